"""Expressions of a policy mean what statements mean; whatever is not known is refused by name."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

from proxy.domain import Attribute
from proxy.errors import Error, PolicyError, SourceError
from proxy.policy import load
from proxy.policy.model import Policy
from proxy.sql.expression import allowlist
from proxy.sql.source_expressions import expression
from tests.cube.making import a_policy, built, cells, texts, write
from tests.searches import share
from tests.sql.survey import plain, run

EXAMPLES = [text for group in allowlist.SCALARS.values() for text in group]
COLUMNS = {"days": "VARCHAR", "n": "INTEGER", "x": "DOUBLE", "at": "TIMESTAMP", "b": "BOOLEAN"}


def value(text: str) -> object:
    """Return the value of an expression as the cube reads it."""
    with duckdb.connect() as connection:
        row = connection.execute(f"SELECT {expression(text, {})}").fetchone()
    return row and row[0]


@pytest.mark.parametrize("text", EXAMPLES)
def test_an_expression_means_what_a_statement_means(text: str) -> None:
    """Each example of the page of functions has the same value in a policy as in a statement."""
    ((told,),) = run(f"SELECT {text}").rows
    if isinstance(told, timedelta):  # which is no value of a column
        told, text = told.total_seconds(), f"CAST(EXTRACT(EPOCH FROM {text}) AS double precision)"
    found = value(text)
    if isinstance(found, Decimal) and isinstance(told, float):
        found = float(found)
    assert plain(found) == plain(told)


def test_integers_are_divided_as_in_statements(tmp_path: Path) -> None:
    """Two years are two, and not 2.19; a remainder follows the sign, as in PostgreSQL."""
    (tmp_path / "data.csv").write_text("days\n800\n729\n-800\n")
    years = Attribute("y", "integer", (-2, 1, 2), source="CAST(days AS INTEGER) / 365")
    rest = Attribute("r", "integer", (-70, 70, 364), source="CAST(Days AS INTEGER) % 365")
    found = cells(a_policy(tmp_path, [years, rest]))
    assert found == {(2, 1): (1,), (1, 2): (1,), (0, 0): (1,)}
    query = "SELECT CAST(days AS INTEGER) / 365 AS y FROM source WHERE CAST(days AS INTEGER) > 0"
    axis = Attribute("y", "integer", (1, 2))
    assert cells(a_policy(tmp_path, [axis], query=query)) == {(0,): (1,), (1,): (1,)}


def test_what_cannot_be_cast_may_be_null(tmp_path: Path) -> None:
    """TRY_CAST gives NULL for a text that is no such value, and one that is too large."""
    (tmp_path / "data.csv").write_text('a\n7\n x\n7.5\n99999999999\n""\n 8 \n')
    axis = Attribute("a", "integer", (7, 8), source="TRY_CAST(a AS integer)", nulls="group")
    assert cells(a_policy(tmp_path, [axis])) == {(0,): (1,), (1,): (1,), (2,): (4,)}
    for text, said in (("TRY_CAST('yes' AS boolean)", True), ("TRY_CAST('a' AS date)", None),
                       ("TRY_CAST(2.5::float8 AS integer)", 2), ("TRY_CAST('2' AS text)", "2"),
                       ("TRY_CAST(3e9::float8 AS integer)", None)):  # fmt: skip
        if "'a'" not in text:
            assert value(text) == said


@pytest.mark.parametrize("part", share(1, range(4)))
def test_every_function_that_is_not_on_the_page_is_refused(part: int) -> None:
    """DuckDB's whole catalog, called with up to three arguments: only what the page has passes."""
    with duckdb.connect() as connection:
        names = connection.execute("SELECT DISTINCT function_name FROM duckdb_functions()")
        catalog = sorted(name for (name,) in names.fetchall() if name.isidentifier())
        keywords = connection.execute("SELECT keyword_name FROM duckdb_keywords()").fetchall()
    known = set(allowlist.names()) | {name for (name,) in keywords} | ALIASES
    passed = set()
    for name in [*catalog[part::4], *STRANGE, "abs", "lower", "replace", "round"]:
        for arguments in ("", "n", "days", "x", "at", "n, n", "days, days", "'day', at", "b, n, n",
                          "days, n, n", "days, days, days"):  # fmt: skip
            try:
                expression(f"{name}({arguments})", COLUMNS)
            except Error:
                continue
            passed.add(name)
    assert passed <= known, sorted(passed - known)
    assert len(catalog) > 400
    assert {"abs", "lower", "replace", "round"} <= passed


# other names of known functions; those that PostgreSQL has not, sqlglot takes for them
ALIASES = {"log10", "log2", "pow", "substr", "len", "char_length", "character_length",
           "ucase", "lcase", "instr"}  # fmt: skip
STRANGE = ["gen_random_uuid", "pg_sleep", "current_setting", "setseed", "pg_read_file", "dblink",
           "clock_timestamp", "timeofday", "txid_current", "nextval", "version", "now"]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["now()", "CURRENT_DATE", "CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "age(at)", "age(at, at)",
     "'now'::timestamp", "'today'::date", "random()", "uuid()", "current_setting('TimeZone')",
     "at AT TIME ZONE 'UTC'", "at::timestamptz", "days::json", "n COLLATE nocase", "current_user",
     "read_text('x')", "glob('*')", "getvariable('x')", "sum(n)", "count(*)", "n FILTER (WHERE b)",
     "rank() OVER ()", "sum(n) OVER (PARTITION BY n)", "(SELECT 1)", "EXISTS (SELECT 1)",
     "n IN (SELECT 1)", "n = ANY (SELECT 1)", "unnest(days)", "[n]", "n[1]", "{'a': n}", "$1", "?",
     ":n", "*", "COLUMNS('n')", "n AS m", "n, x", "(n, x)", "n FROM t", "DISTINCT n", "n LIMIT 1",
     "n; SELECT 1", "", "-- n", "n -> 'a'", "lambda v: v", "n UNION SELECT 1", "INTERVAL '1 day'",
     "a.b.c", "t.n", "at - at", "x % 2", "#1", "n INTO t", "days SIMILAR TO days"],
)  # fmt: skip
def test_what_is_not_a_value_of_one_record_is_refused(text: str) -> None:
    """The clock, randomness, settings, files, sets of rows, and what only DuckDB knows."""
    with pytest.raises(Error):
        expression(text, COLUMNS)


POLICY = """\
dataset: data
source:
  engine: duckdb
  path: data.csv
  query: {query}
max_records: 10
outside: group
nulls: group
attributes:
  a:
    type: integer
    range: [0, 5]
    expression: {expression}
measures:
  m: {{clip: [0, 9], quantum: 1, expression: {measure}}}
privacy: {{budget: 1, unit: row}}
"""


@pytest.mark.parametrize(
    "parts, where, said",
    [
        ({"expression": "soundex(a)"}, "13: attributes.a.expression", "function soundex is not"),
        ({"measure": "random()"}, "15: measures.m.expression", "a random number is not"),
        ({"query": "SELECT md5(a) AS a FROM source"}, "5: source.query", "function md5 is not"),
        ({"query": "SELECT a FROM source LIMIT 5"}, "5: source.query", "LIMIT is not row by row"),
    ],
)
def test_a_refusal_names_file_line_and_key(
    tmp_path: Path, parts: dict[str, str], where: str, said: str
) -> None:
    """Who wrote the policy is told where, what, and what to do."""
    whole = {"query": "SELECT a FROM source", "expression": "TRY_CAST(a AS integer)",
             "measure": "TRY_CAST(a AS integer)"} | parts  # fmt: skip
    (tmp_path / "policy.yaml").write_text(POLICY.format(**whole))
    (tmp_path / "data.csv").write_text("a\n1\n")
    with pytest.raises(PolicyError) as caught:
        built(load(tmp_path / "policy.yaml"))
    assert caught.value.message.startswith(f"{tmp_path}/policy.yaml:{where}: {said}")
    assert caught.value.hint


def test_a_failing_expression_says_so_and_no_value(tmp_path: Path) -> None:
    """Division by zero and a text that is no number are the source's error, without the record."""
    (tmp_path / "data.csv").write_text("a\n0\nsecret\n")
    for source in ("1 / length(replace(a, '0', ''))", "CAST(a AS integer)"):
        with pytest.raises(SourceError, match="fails on some record") as caught:
            built(a_policy(tmp_path, [Attribute("a", "integer", (1,), source=source)]))
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "kind, value, text, expected",
    [
        ("HUGEINT", "5", "v / 2", "2.5000000000000000"), ("TINYINT", "7", "v / 2", "3"),
        ("UBIGINT", "7", "v + 1", "8"), ("FLOAT", "2.5", "round(v)", "2.0"),
        ("DECIMAL(9,2)", "7.00", "v / 2", "3.5000000000000000"), ("UUID", None, "v || 'x'", None),
        ("TIMESTAMP_NS", "2021-03-14 23:59:59.999999999", "v::date", "2021-03-14"),
        ("ENUM('x', 'y')", "y", "upper(v)", "Y"), ("BOOLEAN", "true", "v::integer", "1"),
    ],
)  # fmt: skip
def test_columns_have_postgresql_s_types(
    tmp_path: Path, kind: str, value: str | None, text: str, expected: str | None
) -> None:
    """A column of each type of DuckDB is a value of the nearest type of PostgreSQL."""
    write(tmp_path / "data.parquet", f"SELECT CAST($${value}$$ AS VARCHAR) AS t")
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE r (v {kind})")
        connection.execute("INSERT INTO r VALUES (?)", [value])
        (found,) = connection.execute(
            f"SELECT CAST({expression(text, {'v': described(connection)})} AS VARCHAR) FROM r"
        ).fetchone() or (None,)
    assert found == expected


def described(connection: duckdb.DuckDBPyConnection) -> str:
    """Return DuckDB's name of the type."""
    ((_, kind, *_),) = connection.execute("DESCRIBE r").fetchall()
    return str(kind)


def test_a_column_of_no_such_type_is_refused_in_an_expression(tmp_path: Path) -> None:
    """A list, a structure, bytes: the column is named by its type."""
    policy: Policy = a_policy(tmp_path, [texts("x", source="lower(v)")], path="data.parquet")
    for kind in ("[1]", "{'a': 1}", "'x'::BLOB", "INTERVAL 1 DAY"):
        write(tmp_path / "data.parquet", f"SELECT {kind} AS v")
        with pytest.raises(PolicyError, match="is not read in an expression"):
            built(policy)
