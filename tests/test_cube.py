"""The cube: what each rule makes of a value, by hand; against plain Python; on the real data."""

from __future__ import annotations

import bisect
import csv
import datetime
import gzip
import io
import itertools
import math
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.cube import Cube, Report, build, fingerprint, survey
from proxy.domain import Attribute, Domain, Measure
from proxy.errors import Error, IntegrityError, PolicyError, SourceError, StateError
from proxy.inference.family import Family
from proxy.inference.query import (
    COUNT,
    Box,
    Factor,
    LinearQuery,
    Space,
    Term,
    present_part,
    sum_part,
)
from proxy.policy import Policy, Privacy, Rows, Source, Unit, load

ROOT = Path(__file__).parent.parent
ROW = Unit()


def a_policy(
    folder: Path,
    axes: Sequence[Attribute],
    measures: Sequence[Measure] = (),
    *,
    unit: Unit = ROW,
    max_records: int = 1000,
    path: str = "data.csv",
    **source: Any,
) -> Policy:
    """Return a policy over folder/path."""
    privacy = Privacy(
        Fraction(1), unit, (), (), Fraction(1, 10**4), Rows(10, 10), {}, "topup", "shared"
    )
    return Policy(
        folder / "policy.yaml", "data", "", Source("duckdb", folder / path, **source), max_records,
        Domain(tuple(axes), tuple(measures)), {}, None, privacy,
    )  # fmt: skip


def built(policy: Policy) -> tuple[Cube, Report]:
    """Return the cube of a policy, built anew, and its report."""
    path = policy.path.parent / "cube"
    report = build(policy, path, "ledger")
    return Cube.open(path, policy.domain, "ledger"), report


def cells(policy: Policy) -> dict[tuple[int, ...], tuple[int, ...]]:
    """Return all columns of all cells of a new cube: codes -> n, s0, p0, s1, ..."""
    built(policy)
    axes = len(policy.domain.attributes)
    with duckdb.connect(str(policy.path.parent / "cube"), read_only=True) as connection:
        rows = connection.execute("SELECT * FROM cells").fetchall()
    return {tuple(row[:axes]): tuple(map(int, row[axes:])) for row in rows}


def space(domain: Domain) -> Space:
    return Space(domain.sizes, tuple(Box(*m.bounds, m.nullable) for m in domain.measures))


def texts(*values: str, **rules: Any) -> Attribute:
    return Attribute("a", "text", values, **rules)


def edges(*ends: Any, kind: str = "integer", **rules: Any) -> Attribute:
    return Attribute("a", kind, ends[:-1], ends, **rules)


def money(low: Any, high: Any, quantum: str, **rules: Any) -> Measure:
    return Measure("m", Fraction(low), Fraction(high), Fraction(quantum), **rules)


GROUP = {"nulls": "group", "outside": "group"}
FEW = Attribute("a", "integer", (-1, 0, 1, 5, 12, 10**18), **GROUP)
RANGE = Attribute("a", "integer", tuple(range(0, 10)), nulls="drop", outside="clamp")
TENTHS = Attribute("a", "decimal", (Decimal("0.1"), Decimal("0.30"), Decimal("2")), **GROUP)
BINS = edges(-5, 0, 5, 10, **GROUP)
CLAMPED = edges(-5, 0, 5, 10, nulls="group", outside="clamp")
HALVES = edges(Decimal("-0.5"), Decimal(0), Decimal("0.5"), kind="decimal", **GROUP)
SWITCH = Attribute("a", "boolean", (False, True), **GROUP)
DAY = datetime.date(2024, 2, 28)
DAYS = Attribute("a", "date", (DAY, DAY.replace(day=29)), **GROUP)
NEAR = Attribute("a", "date", (DAY, DAY.replace(day=29)), outside="clamp")
WEEKS = edges(*(DAY + datetime.timedelta(7 * i) for i in range(4)), kind="date", **GROUP)
NOON = datetime.datetime(2024, 2, 28, 12)
TIMES = edges(NOON, NOON + datetime.timedelta(hours=6), kind="timestamp", **GROUP)
WORDS = texts("no", "yes", "it's", "5", " no", "é", "", **GROUP)
GONE = None


@pytest.mark.parametrize(
    "axis, read",
    [
        (FEW, {"5": 3, "012": 4, " 5 ": 3, "5.0": 3, "-1": 0, "-0": 1, "1e0": 2, "5.4": 6, "7": 6,
               "": 6, '""': 6, '" "': 6, "x": 6, "nan": 6, "inf": 6, "0x5": 6, "1e40": 6,
               "1000000000000000000": 5, "1000000000000000001": 6, "5.000000001": 6}),
        (RANGE, {"0": 0, "-3": 0, "9": 9, "10": 9, "inf": 9, "-inf": 0, "1e99": 9, "-1e99": 0,
                 "4.4": 4, "4.5": 4, "4.6": 5, "": GONE, "nan": GONE, "x": GONE}),
        (TENTHS, {"0.1": 0, ".3": 1, "0.300": 1, "2": 2, "3e-1": 1, "0.10000001": 3, "": 3}),
        (BINS, {"-5": 0, "-1": 0, "0": 1, "4": 1, "5": 2, "9": 2, "10": 3, "-6": 3, "4.5": 3,
                "": 3, "1e99": 3}),
        (CLAMPED, {"-99": 0, "-5": 0, "4.5": 1, "10": 2, "99": 2, "": 3, "x": 3}),
        (HALVES, {"-0.5": 0, "-0.000000001": 0, "0": 1, "0.499": 1, "0.5": 2, "-0.51": 2}),
        (SWITCH, {"true": 1, "F": 0, "YES": 1, "0": 0, "2": 2, "": 2, '" "': 2, "maybe": 2}),
        (DAYS, {"2024-02-28": 0, "2024-02-29": 1, "2024-02-29 23:59:59": 1, "2024-03-01": 2,
                "2023-02-29": 2, "29/02/2024": 2, "": 2, "infinity": 2}),
        (NEAR, {"1999-01-01": 0, "2024-02-28": 0, "2025-01-01": 1, "infinity": 1, "x": GONE}),
        (WEEKS, {"2024-02-28": 0, "2024-03-05": 0, "2024-03-06": 1, "2024-03-20": 3}),
        (TIMES, {"2024-02-28 12:00": 0, "2024-02-28T17:59:59.999999": 0, "2024-02-28 18:00": 1}),
        (WORDS, {"no": 0, "yes": 1, "it's": 2, "5": 3, " no": 4, "no ": 7, "No": 7, "é": 5,
                 '""': 6, "": 7, "5.0": 7, "NULL": 7}),
    ],
)  # fmt: skip
def test_a_text_field_is_read_as_its_axis_says(
    tmp_path: Path, axis: Attribute, read: dict[str, int | None]
) -> None:
    """Each field of a CSV gets the code written here: exact values, bins, NULL, outside, clamp."""
    for field, code in read.items():
        (tmp_path / "data.csv").write_text(f"b,a\n1,{field}\n2,{field}\n")
        expected = {} if code is GONE else {(code,): (2,)}
        assert cells(a_policy(tmp_path, [axis])) == expected, field


@pytest.mark.parametrize(
    "measure, read",
    [
        (money(0, 2000, "0.01"), {"354.94": 35494, "0.005": 1, "0.0049999999999": 0, "-3": 0,
                                  "1e9": 200_000, "inf": 200_000, "-inf": 0, "1999.995": 200_000,
                                  "1.005": 101, "1e-300": 0, " 7 ": 700, "1e99": 200_000}),
        (money(-10, 10, "0.25"), {"0.125": 1, "-0.125": -1, "0.12": 0, "-9.9": -40, "-11": -40,
                                  "3.375": 14, "0.375": 2}),
        (money(-100, 1000, "50"), {"24.999": 0, "25": 1, "-25": -1, "-24": 0, "75": 2, "5e2": 10}),
        (money(0, 1, "0.000000001"), {"0.0000000005": 1, "0.12345678949": 123456789}),
        (money(-(10**15), 10**15, "1"), {"999999999999999": 999999999999999, "0.5": 1, "-0.5": -1,
                                         "-1e20": -(10**15)}),
    ],
)  # fmt: skip
def test_a_measure_is_clipped_then_rounded_halves_away_from_zero(
    tmp_path: Path, measure: Measure, read: dict[str, int]
) -> None:
    """Each field gets the quanta written here, from its decimal digits, not from a float."""
    for field, quanta in read.items():
        (tmp_path / "data.csv").write_text(f"a,m\nx,{field}\n")
        assert cells(a_policy(tmp_path, [texts("x")], [measure])) == {(0,): (1, quanta)}, field


def test_a_double_stands_for_its_shortest_decimal(tmp_path: Path) -> None:
    """1.005 in a DOUBLE column rounds as 1.005 in a CSV does; NaN is NULL, and so is NULL."""
    write(tmp_path / "data.parquet", "SELECT 'x' AS a, unnest([1.005::DOUBLE, 'nan', NULL]) AS m")
    measure = money(0, 10, "0.01", nulls="group")
    policy = a_policy(tmp_path, [texts("x")], [measure], path="data.parquet")
    assert cells(policy) == {(0,): (3, 101, 1)}


@pytest.mark.parametrize(
    "kind, value, code",
    [
        ("TINYINT", "5", 3), ("HUGEINT", "170141183460469231731687303715884105727", 6),
        ("DOUBLE", "5", 3), ("DOUBLE", "5.5", 6), ("DOUBLE", "1e18", 5), ("DOUBLE", "'nan'", 6),
        ("DECIMAL(9, 2)", "5.00", 3), ("DECIMAL(9, 2)", "5.01", 6), ("BOOLEAN", "true", 2),
        ("VARCHAR", "'05'", 3), ("DATE", "'2024-01-01'", 6),
    ],
)  # fmt: skip
def test_a_typed_column_is_read_by_value(tmp_path: Path, kind: str, value: str, code: int) -> None:
    """A Parquet column of any numeric type compares as the number that it holds."""
    write(tmp_path / "data.parquet", f"SELECT CAST({value} AS {kind}) AS a")
    assert cells(a_policy(tmp_path, [FEW], path="data.parquet")) == {(code,): (1,)}


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMP_NS"])
def test_a_time_is_cut_to_its_day(tmp_path: Path, kind: str) -> None:
    """On a date axis any column of dates or times counts by the day, in the policy's zone."""
    write(tmp_path / "data.parquet", f"SELECT CAST('2024-02-29 00:00:00' AS {kind}) AS a")
    assert cells(a_policy(tmp_path, [DAYS], path="data.parquet")) == {(1,): (1,)}


def test_long_axes_are_looked_up_like_short_ones(tmp_path: Path) -> None:
    """Five thousand values, or bins, and clamping among days, give the codes bisection gives."""
    ends = [i * i for i in range(5001)]
    days = tuple(DAY + datetime.timedelta(i) for i in range(5000))
    axes = [
        Attribute("a", "integer", tuple(ends[:-1]), tuple(ends)),
        Attribute("v", "integer", tuple(reversed(ends)), source="a", nulls="group", **{}),
        Attribute("d", "date", days, outside="clamp", source="DATE '2024-02-28' + CAST(a AS INT)"),
    ]
    values = [0, 1, 2, 3, 4, 24_999, 4999**2, 5000**2 - 1, 4242**2]
    (tmp_path / "data.csv").write_text("a\n" + "\n".join(map(str, values)))
    square = {v: len(ends) - 1 - i for i, v in enumerate(ends)}
    axes[1] = Attribute("v", "integer", tuple(reversed(ends)), source="a", outside="group")
    expected = Counter(
        (bisect.bisect_right(ends, v) - 1, square.get(v, len(ends)), min(v, 4999)) for v in values
    )
    assert cells(a_policy(tmp_path, axes)) == {key: (n,) for key, n in expected.items()}


def write(path: Path, select: str) -> None:
    """Write the rows of a SELECT to a Parquet file."""
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({select}) TO '{path}' (FORMAT parquet)")


# --- the rules -------------------------------------------------------------------------------


def test_the_report_counts_what_each_rule_meets(tmp_path: Path) -> None:
    """Seven rows by hand: NULL, outside, clamped, clipped, unreadable, dropped, kept."""
    (tmp_path / "data.csv").write_text("a,b,m\nx,1,5\ny,2,6\n,3,7\nx,99,8\nx,1,\nx,1,oops\nx,1,70\n")
    b = Attribute("b", "integer", (1, 2, 3), outside="clamp")
    policy = a_policy(tmp_path, [texts("x"), b], [money(0, 10, "1")])
    cube, report = built(policy)
    assert (report.rows, report.kept) == (7, 3)
    assert [vars(rule) for rule in (*report.attributes, *report.measures)] == [
        {"name": "a", "nulls": 1, "outside": 1, "clipped": 0, "dropped": 2},
        {"name": "b", "nulls": 0, "outside": 1, "clipped": 1, "dropped": 0},
        {"name": "m", "nulls": 1, "outside": 1, "clipped": 1, "dropped": 2},
    ]
    assert survey(policy) == report
    total = LinearQuery.of(space(policy.domain), Fraction(1), {sum_part(0): Term.of(1, ())})
    assert cube.answer(Family(total)) == [5 + 8 + 10]


@pytest.mark.parametrize(
    "rules, field",
    [({"nulls": "error"}, ""), ({"outside": "error"}, "secret"),
     ({"outside": "clamp", "nulls": "error"}, "secret")],
)  # fmt: skip
def test_error_refuses_the_source_and_names_no_value(
    tmp_path: Path, rules: dict[str, Any], field: str
) -> None:
    """`error` fails the build, not the survey, with the attribute's name and nothing else."""
    (tmp_path / "data.csv").write_text(f"a,b\n1,2\n{field},2\n")
    policy = a_policy(tmp_path, [Attribute("a", "integer", (1, 2), **rules)])
    assert survey(policy).rows == 2
    with pytest.raises(SourceError, match="a: NULL, or a value outside") as caught:
        built(policy)
    assert "secret" not in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["data.csv"]


def test_a_measure_may_refuse_null(tmp_path: Path) -> None:
    """`nulls: error` of a measure fails on NULL and on what is not a number."""
    for field in ("", "oops"):
        (tmp_path / "data.csv").write_text(f"a,m\nx,1\nx,{field}\n")
        with pytest.raises(SourceError, match="m: NULL"):
            built(a_policy(tmp_path, [texts("x")], [money(0, 9, "1", nulls="error")]))


def test_clamping_text_is_the_policy_s_error(tmp_path: Path) -> None:
    """Texts have no order, so none is the nearest."""
    (tmp_path / "data.csv").write_text("a\nx\n")
    with pytest.raises(PolicyError, match=r"attributes\.a: clamp needs ascending values"):
        built(a_policy(tmp_path, [texts("x", outside="clamp")]))


def test_max_records_is_a_promise(tmp_path: Path) -> None:
    """One record more than max_records is refused; the message has the limit, not the count."""
    (tmp_path / "data.csv").write_text("a\n" + "x\n" * 12 + "y\n" * 5)
    assert built(a_policy(tmp_path, [texts("x")], max_records=12))[1].kept == 12
    with pytest.raises(SourceError, match="more records than max_records: 11$") as caught:
        built(a_policy(tmp_path, [texts("x")], max_records=11))
    assert "12" not in str(caught.value)


FIELDS = {
    "integer": ["0", "1", "2", "3", "-7", "5.0", "2.5", "7", "011", " 3", "1e1", "", "no", "nan"],
    "decimal": ["0.5", "1.25", "-0.75", "2", "0.50", "9.999", "1.2500001", "", "x", "1e3"],
    "text": ["x", "y", "X", " x", "x'y", "", "5"],
}


@st.composite
def an_axis(draw: st.DrawFn, name: str) -> Attribute:
    """Draw an axis with its rules; clamp where it has an order."""
    kind = draw(st.sampled_from(["integer", "decimal", "text"]))
    binned = kind != "text" and draw(st.booleans())
    rules = ["group", "drop"] + (["clamp"] if kind != "text" else [])
    outside, nulls = draw(st.sampled_from(rules)), draw(st.sampled_from(["group", "drop"]))
    if kind == "text":
        values: tuple[Any, ...] = tuple(draw(st.permutations(["x", "y", "5", "x'y"]))[:3])
    else:
        whole = draw(st.lists(st.integers(-8, 12), min_size=2, max_size=6, unique=True))
        values = tuple(sorted(v if kind == "integer" else Decimal(v) / 4 for v in whole))
    if binned:
        return Attribute(name, kind, values[:-1], values, nulls, outside)
    return Attribute(name, kind, values, None, nulls, outside)


def reference_code(axis: Attribute, field: str) -> int | None:
    """Return a field's code by the rules as the documentation words them; None: dropped."""
    value: Any = field if axis.type == "text" else number(field)
    null = field == "" or value == "nan"
    rule = axis.nulls if null else axis.outside
    if not null and value is not None:
        if axis.edges is not None and axis.edges[0] <= value < axis.edges[-1]:
            whole = axis.type != "integer" or value == int(value)
            if whole or rule == "clamp":
                return bisect.bisect_right(axis.edges, value) - 1
        elif axis.edges is None and value in axis.values:
            return axis.values.index(value)
        if rule == "clamp" and axis.edges is not None:
            return 0 if value < axis.edges[0] else len(axis.values) - 1
        if rule == "clamp":
            return min(range(len(axis.values)), key=lambda i: (abs(axis.values[i] - value), i))
    if rule == "clamp":
        rule = axis.nulls
    return len(axis.values) if rule == "group" else None


def number(field: str) -> Any:
    """Return the exact number of a field, "nan", or None where it is none."""
    if field in ("nan", ""):
        return "nan"
    try:
        return Decimal(field.strip())
    except ArithmeticError:
        return None


def reference_quanta(measure: Measure, field: str) -> int | None:
    """Return the quanta of a field; None where it has no value."""
    value = number(field)
    if value in (None, "nan"):
        return None
    inside = min(max(Fraction(value), measure.low), measure.high) / measure.quantum
    return int((Decimal(inside.numerator) / inside.denominator).quantize(1, ROUND_HALF_UP))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_the_cube_equals_plain_python(tmp_path_factory: Any, data: st.DataObject) -> None:
    """Random tables, domains and rules: every cell is what a loop over the rows makes of them."""
    folder = tmp_path_factory.mktemp("cube")
    axes = [data.draw(an_axis(f"a{i}")) for i in range(data.draw(st.integers(1, 3)))]
    quantum = data.draw(st.sampled_from(["1", "0.25", "0.01", "3"]))
    nulls = data.draw(st.sampled_from(["group", "drop"]))
    low, high = sorted(data.draw(st.lists(st.integers(-9, 9), min_size=2, max_size=2, unique=True)))
    q = Fraction(quantum)
    measure = Measure("m", low * q, high * q, q, nulls)
    drawn = [st.sampled_from(FIELDS[a.type]) for a in axes] + [st.sampled_from(FIELDS["decimal"])]
    rows = data.draw(st.lists(st.tuples(*drawn), max_size=25))
    with (folder / "data.csv").open("w", newline="") as file:
        csv.writer(file).writerows([[a.name for a in axes] + ["m"], *rows])
    expected: dict[tuple[int, ...], list[int]] = {}
    for *fields, field in rows:
        codes = [reference_code(axis, f) for axis, f in zip(axes, fields, strict=True)]
        value = reference_quanta(measure, field)
        if None in codes or (value is None and nulls == "drop"):
            continue
        cell = expected.setdefault(tuple(c for c in codes if c is not None), [0, 0, 0])
        cell[0] += 1
        cell[1] += value or 0
        cell[2] += value is not None
    shown = 3 if nulls == "group" else 2
    found = cells(a_policy(folder, axes, [measure]))
    assert found == {codes: tuple(cell[:shown]) for codes, cell in expected.items()}


# --- privacy units ---------------------------------------------------------------------------

PEOPLE = [(person, visit, v) for person in range(12) for v, visit in enumerate("xyxzy"[: person % 6])]


def people(folder: Path, rows: Iterable[Sequence[Any]], unit: Unit) -> dict[Any, Any]:
    """Return the cells of visits, an axis for the person and one for the visit."""
    with (folder / "data.csv").open("w") as file:
        csv.writer(file).writerows([("p", "a", "v"), *rows])
    axes = [
        Attribute("p", "integer", tuple(range(12)), nulls="group"),
        texts("x", "y", outside="drop"),
    ]
    return cells(a_policy(folder, axes, unit=unit))


def test_a_unit_keeps_at_most_max_rows(tmp_path: Path) -> None:
    """Of each person two rows at most are left, among those that no rule drops."""
    found = people(tmp_path, PEOPLE, Unit("p", 2))
    kept: Counter[int] = Counter()
    for (person, _), (n,) in found.items():
        kept[person] += n
    whole = Counter(person for person, visit, _ in PEOPLE if visit != "z")
    assert kept == {person: min(2, n) for person, n in whole.items()}
    report = survey(a_policy(tmp_path, [texts("x", "y", "z")], unit=Unit("p", 2)))
    assert report.beyond == sum(max(0, person % 6 - 2) for person in range(12))


@settings(max_examples=10, deadline=None)
@given(st.permutations(PEOPLE), st.integers(0, 11))
def test_which_rows_a_unit_keeps_depends_on_its_own_rows_alone(
    tmp_path_factory: Any, rows: list[tuple[Any, ...]], left: int
) -> None:
    """Neither the order of the rows nor whether another unit is there changes what is kept."""
    folder = tmp_path_factory.mktemp("people")
    before = people(folder, PEOPLE, Unit("p", 2))
    after = people(folder, [row for row in rows if row[0] != left], Unit("p", 2))
    assert after == {cell: n for cell, n in before.items() if cell[0] != left}


def test_a_row_without_a_unit_is_dropped(tmp_path: Path) -> None:
    """Nobody's row cannot be bounded, so it does not count, whatever its other values."""
    assert people(tmp_path, [("", "x", 1), (3, "x", 1)], Unit("p", 5)) == {(3, 0): (1,)}
    assert survey(a_policy(tmp_path, [texts("x")], unit=Unit("p", 5))).unitless == 1


def test_the_seed_chooses_the_rows(tmp_path: Path) -> None:
    """Another seed keeps other rows of some unit."""
    kept = [people(tmp_path, PEOPLE, Unit("p", 1, seed)) for seed in "0123"]
    assert any(one != kept[0] for one in kept[1:])


# --- sources ---------------------------------------------------------------------------------

SELECT = "SELECT unnest(['x','y','x', NULL]) AS a, unnest([1, 2, 3, 4]) AS k"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A DuckDB database with two tables and two views; folder/other.csv is no part of it."""
    (tmp_path / "other.csv").write_text("a\nx\n")
    with duckdb.connect(str(tmp_path / "data.duckdb")) as connection:
        connection.execute(f"CREATE TABLE Visits AS {SELECT}")
        connection.execute("CREATE SCHEMA s")
        connection.execute('CREATE TABLE s."odd ""name" AS SELECT 1 AS k, \'p\' AS p')
        connection.execute("CREATE VIEW joined AS SELECT * FROM visits JOIN visits AS v USING (k)")
        connection.execute("CREATE VIEW far AS SELECT * FROM read_csv('{tmp_path}/other.csv')"
                           .replace("{tmp_path}", str(tmp_path)))  # fmt: skip
        connection.execute("CREATE MACRO mine(x) AS x || 'x'")
    return tmp_path


def from_database(folder: Path, unit: Unit = ROW, **source: Any) -> Policy:
    return a_policy(folder, [texts("x", "y")], path="data.duckdb", unit=unit, **source)


def test_csv_gz_parquet_and_tables_give_one_cube(database: Path) -> None:
    """The same rows in every form of source give the same cells."""
    rows = "a,k\nx,1\ny,2\nx,3\n,4\n"
    (database / "data.csv").write_text(rows)
    (database / "data.csv.gz").write_bytes(gzip.compress(rows.encode()))
    (database / "windows.csv").write_bytes(b"\xef\xbb\xbf" + rows.replace("\n", "\r\n").encode())
    (database / "data [1].csv").write_text(rows.replace(",", ";"))
    write(database / "data.parquet", SELECT)
    for path in ("data.csv", "data.csv.gz", "windows.csv", "data [1].csv", "data.parquet"):
        assert cells(a_policy(database, [texts("x", "y")], path=path)) == {(0,): (2,), (1,): (1,)}
    for table in ("visits", "Visits", "main.visits"):
        assert cells(from_database(database, table=table)) == {(0,): (2,), (1,): (1,)}
    odd = a_policy(database, [texts("p", source="p")], path="data.duckdb", table='s.odd "name')
    assert cells(odd) == {(0,): (1,)}


@pytest.mark.parametrize(
    "query, expected",
    [
        ("SELECT a FROM visits WHERE k > 1", {(0,): (1,), (1,): (1,)}),
        ("SELECT * FROM main.visits v WHERE v.k IN (1, 4) -- first", {(0,): (1,)}),
        ("FROM visits;", {(0,): (2,), (1,): (1,)}),
        ("SELECT lower(CASE WHEN k % 2 = 0 THEN 'X' ELSE a END) AS a FROM visits",
         {(0,): (4,)}),
        ("SELECT * EXCLUDE (a) REPLACE (k + 1 AS k), split_part(a || ',y', ',', 2) AS a"
         " FROM visits", {(1,): (3,)}),
    ],
)  # fmt: skip
def test_a_query_filters_and_computes_row_by_row(
    database: Path, query: str, expected: dict[Any, Any]
) -> None:
    """Its rows are the records; text after -- is no part of it."""
    assert cells(from_database(database, query=query)) == expected


def test_a_query_of_a_file_calls_it_source(tmp_path: Path) -> None:
    """FROM source is the file's table; its columns are text, to be cast."""
    (tmp_path / "data.csv").write_text("a,k\nx,1\ny,10\n")
    query = "SELECT a FROM source WHERE CAST(k AS INTEGER) > 9"
    assert cells(a_policy(tmp_path, [texts("x", "y")], query=query)) == {(1,): (1,)}


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a FROM visits LIMIT 1", "SELECT DISTINCT a FROM visits",
        "SELECT a FROM visits ORDER BY k", "SELECT max(a) AS a FROM visits",
        "SELECT a FROM visits GROUP BY a", "SELECT a FROM visits GROUP BY ALL",
        "SELECT a FROM visits HAVING true", "SELECT first(a) OVER () AS a FROM visits",
        "SELECT a FROM visits QUALIFY row_number() OVER () = 1",
        "SELECT a FROM visits, visits AS w", "SELECT a FROM visits JOIN visits AS w USING (k)",
        "SELECT a FROM (SELECT * FROM visits)", "SELECT (SELECT a FROM visits LIMIT 1) AS a FROM visits",
        "SELECT a FROM visits WHERE k = (SELECT max(k) FROM visits)",
        "SELECT a FROM visits WHERE k IN (SELECT 1)", "SELECT a FROM visits WHERE random() < 0.5",
        "SELECT a FROM visits WHERE now() > '2020-01-01'", "SELECT a FROM visits TABLESAMPLE 50%",
        "SELECT a FROM visits USING SAMPLE 1", "WITH v AS (FROM visits) SELECT a FROM v",
        "SELECT a FROM visits UNION ALL SELECT a FROM visits", "SELECT unnest([a, a]) AS a FROM visits",
        "SELECT a FROM read_csv('other.csv')", "VALUES ('x')", "SELECT 'x' AS a",
        "SELECT a FROM visits; SELECT a FROM visits", "SELECT mine(a) AS a FROM visits",
        "SELECT COLUMNS('a') FROM visits", "SELECT uuid() AS a FROM visits",
        "SELECT nextval('s') AS a FROM visits", "DELETE FROM visits", "SELECT a FROM", "",
        "SELECT list_transform([a], lambda x: x)[1] AS a FROM visits", "SELECT $1 AS a FROM visits",
        "SELECT age(DATE '2020-01-01')::VARCHAR AS a FROM visits", "SELECT #1 AS a FROM visits",
        "SELECT a FROM visits POSITIONAL JOIN visits AS w",
        "SELECT getvariable('x') AS a FROM visits", "SELECT list_sum([k])::VARCHAR AS a FROM visits",
        "SELECT GROUPING(a) AS a FROM visits",
    ],
)  # fmt: skip
def test_a_query_that_is_not_row_by_row_is_refused(database: Path, query: str) -> None:
    """What lets one record become several, or none because of others, is the policy's error."""
    with pytest.raises(PolicyError, match=r"source\.query"):
        built(from_database(database, query=query))


@pytest.mark.parametrize(
    "expression",
    ["count(*)", "a) , (k", "a) FROM visits WHERE (true", "(SELECT a FROM visits)", "random()",
     "row_number() OVER ()", "a; SELECT 1", "mine(a)", "*", "", "a AND"],
)  # fmt: skip
def test_an_expression_is_a_value_of_one_record(database: Path, expression: str) -> None:
    """Anything else in an attribute or a measure is the policy's error, and the key is named."""
    policy = a_policy(
        database, [texts("x", source=expression)], path="data.duckdb", table="visits"
    )
    with pytest.raises(PolicyError, match=r"^attributes\.a: "):
        built(policy)
    measure = money(0, 9, "1", source=expression)
    policy = a_policy(database, [texts("x")], [measure], path="data.duckdb", table="visits")
    with pytest.raises(PolicyError, match=r"^measures\.m: "):
        built(policy)


def test_an_expression_computes_a_value(database: Path) -> None:
    """Built-in functions of a record's own columns are allowed, comments and CASE too."""
    source = "CASE WHEN k > 2 THEN 'y' ELSE upper(a) END -- as it was"
    policy = a_policy(
        database, [texts("X", "Y", "y", source=source)], [money(0, 9, "1", source="k * 2 + 1")],
        path="data.duckdb", table="visits",
    )  # fmt: skip
    assert cells(policy) == {(0,): (1, 3), (1,): (1, 5), (2,): (2, 16)}


def test_a_unit_allows_joins_and_views(database: Path) -> None:
    """Rows of a unit are bounded after the join, so tables may be joined; windows still not."""
    unit = Unit("k", 1)
    query = "SELECT v.a, k FROM visits AS v JOIN s.\"odd \"\"name\" USING (k)"
    assert cells(from_database(database, unit, query=query)) == {(0,): (1,)}
    assert cells(from_database(database, unit, table="joined")) == {(0,): (2,), (1,): (1,)}
    for query in ("SELECT * FROM visits LIMIT 1", "SELECT count(*) AS k FROM visits"):
        with pytest.raises(PolicyError):
            built(from_database(database, unit, query=query))


def test_a_view_needs_a_unit(database: Path) -> None:
    """A view may join or aggregate, so without a unit it is no table of the source."""
    for source in ({"table": "joined"}, {"query": "SELECT * FROM joined"}):
        with pytest.raises(SourceError, match='no table "joined"'):
            built(from_database(database, **source))


def test_only_the_source_is_read(database: Path) -> None:
    """Neither a view of the source nor a query reaches another file."""
    with pytest.raises(Error) as caught:
        built(from_database(database, Unit("k", 1), table="far"))
    assert str(database / "other.csv") not in str(caught.value)
    for query in (f"SELECT a FROM '{database}/other.csv'", "SELECT * FROM duckdb_settings"):
        with pytest.raises(SourceError, match="the source has no table"):
            built(from_database(database, query=query))


def test_macros_cannot_take_the_place_of_functions(tmp_path: Path) -> None:
    """A database that redefines trim() would change what values mean."""
    with duckdb.connect(str(tmp_path / "data.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS SELECT 'x' AS a")
        connection.execute("CREATE MACRO trim(x, y) AS 'x'")
    with pytest.raises(SourceError, match="hides a function"):
        built(from_database(tmp_path, table="t"))


def test_an_unknown_column_is_named_with_its_neighbours(tmp_path: Path) -> None:
    """The message has the name that was asked for and near names of the source."""
    (tmp_path / "data.csv").write_text("region,k\nx,1\n")
    for axis in (Attribute("regoin", "text", ("x",)), texts("x", source='lower("regoin")')):
        with pytest.raises(SourceError, match='no column "regoin", did you mean region?'):
            built(a_policy(tmp_path, [axis]))
    with pytest.raises(SourceError, match='unit.column: the source has no column "person"'):
        built(a_policy(tmp_path, [texts("x", source="region")], unit=Unit("person", 1)))
    with pytest.raises(SourceError, match='source.query: the source has no column "kk"'):
        built(a_policy(tmp_path, [texts("x")], query="SELECT kk AS a FROM source"))


@pytest.mark.parametrize(
    "content, said",
    [
        (b"", "is empty"), (b"a,a\n1,2\n", "twice"), (b"a,\n1,2\n", "no name"),
        (b"a,b\nsecret\n", "cannot be read to its end"),
        (b"a,b\nsecret,2,3\n", "cannot be read to its end"),
        (b'a,b\n"secret,2\n', "cannot be read to its end"),
        (b"a,b\n\xffsecret,2\n", "UTF-8"), (b"a,b\nx,2\n" * 9000 + b"\xffsecret,2\n", "UTF-8"),
        (gzip.compress(b"a,b\nx,secret\n" * 9000)[:100], "damaged"),
        (b"\x1f\x8bnot gzip", "damaged"), (b"PAR1 not parquet", "damaged"),
        (b"01234567DUCK not a database", "damaged"),
    ],
)  # fmt: skip
def test_a_malformed_source_is_refused_without_its_content(
    tmp_path: Path, content: bytes, said: str
) -> None:
    """A source error says what is wrong with the file, never what is in it."""
    (tmp_path / "data.csv").write_bytes(content)
    with pytest.raises(SourceError, match=said) as caught:
        built(a_policy(tmp_path, [texts("x")]))
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__cause__ is None


def test_a_missing_source_is_named(tmp_path: Path) -> None:
    """No file, a folder, an engine that is not there, a table that is not there."""
    with pytest.raises(SourceError, match=r"nothing\.csv does not exist"):
        built(a_policy(tmp_path, [texts("x")], path="nothing.csv"))
    with pytest.raises(SourceError, match="cannot be read: Is a directory"):
        built(a_policy(tmp_path, [texts("x")], path="."))


def test_a_failing_expression_does_not_show_the_value(tmp_path: Path) -> None:
    """A conversion error of DuckDB quotes the value; ours does not."""
    (tmp_path / "data.csv").write_text("a\n12\nsecret\n")
    axis = Attribute("a", "integer", (12,), source="CAST(a AS INTEGER)")
    with pytest.raises(SourceError, match="fails on some record") as caught:
        built(a_policy(tmp_path, [axis]))
    assert "secret" not in str(caught.value)
    with pytest.raises(PolicyError, match=r"attributes\.a: the SQL does not fit the types"):
        built(a_policy(tmp_path, [Attribute("a", "integer", (12,), source="a + DATE '2020-01-01'")]))


def test_the_fingerprint_is_keyed_and_follows_the_content(database: Path) -> None:
    """Another key or content gives another fingerprint; the order of a table's rows does not."""
    (database / "data.csv").write_text("a\nx\n")
    policy = a_policy(database, [texts("x")])
    first = fingerprint(policy, b"key")
    assert first == fingerprint(policy, b"key") != fingerprint(policy, b"other")
    (database / "data.csv").write_text("a\ny\n")
    assert fingerprint(policy, b"key") != first
    table = from_database(database, table="visits")
    first = fingerprint(table, b"key")
    with duckdb.connect(str(database / "data.duckdb")) as connection:
        connection.execute("CREATE OR REPLACE TABLE visits AS FROM visits ORDER BY k DESC")
    assert fingerprint(table, b"key") == first
    with duckdb.connect(str(database / "data.duckdb")) as connection:
        connection.execute("INSERT INTO visits VALUES ('x', 1)")
    assert fingerprint(table, b"key") != first


# --- the file --------------------------------------------------------------------------------


def test_the_file_is_its_owner_s_and_comes_whole_or_not_at_all(tmp_path: Path) -> None:
    """Mode 0600, nothing beside it; a build that fails leaves the old cube as it was."""
    (tmp_path / "data.csv").write_text("a\nx\n")
    policy = a_policy(tmp_path, [texts("x")])
    built(policy)
    assert stat.S_IMODE((tmp_path / "cube").stat().st_mode) == 0o600
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cube", "data.csv"]
    before = (tmp_path / "cube").read_bytes()
    (tmp_path / "data.csv").write_text("a\n" + "x\n" * 2000)
    with pytest.raises(SourceError):
        built(policy)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cube", "data.csv"]
    assert (tmp_path / "cube").read_bytes() == before


def test_a_cube_opens_for_its_own_ledger_and_domain_only(tmp_path: Path) -> None:
    """No cube, another ledger, another domain, clip or quantum, a damaged file: refused."""
    (tmp_path / "data.csv").write_text("a,m\nx,1\n")
    policy = a_policy(tmp_path, [texts("x", "y")], [money(0, 9, "1")])
    path = tmp_path / "cube"
    with pytest.raises(StateError, match="no cube yet"):
        Cube.open(path, policy.domain, "ledger")
    built(policy)
    with pytest.raises(IntegrityError, match="another ledger"):
        Cube.open(path, policy.domain, "other")
    for axis, measure in (
        (texts("y", "x"), money(0, 9, "1")), (texts("x", "y", nulls="group"), money(0, 9, "1")),
        (texts("x", "y"), money(0, 8, "1")), (texts("x", "y"), money(0, 9, "0.5")),
        (texts("x", "y", source="b"), money(0, 9, "1")),
    ):  # fmt: skip
        with pytest.raises(StateError, match="other attributes or measures"):
            Cube.open(path, Domain((axis,), (measure,)), "ledger")
    path.write_bytes(b"no database")
    with pytest.raises(IntegrityError, match="damaged"):
        Cube.open(path, policy.domain, "ledger")


def test_a_cube_that_is_rebuilt_is_not_read_as_the_old_one(tmp_path: Path) -> None:
    """Cells are read at the first answer; if another cube is there by then, it is refused."""
    (tmp_path / "data.csv").write_text("a\nx\n")
    policy = a_policy(tmp_path, [texts("x")])
    (one, _), (two, _) = built(policy), built(policy)
    whole = Family(LinearQuery.count(space(policy.domain)))
    with pytest.raises(StateError, match="rebuilt"):
        one.answer(whole)
    assert two.answer(whole) == [1]


def test_several_processes_read_one_cube(tmp_path: Path) -> None:
    """While one process holds a cube open, another answers from it."""
    (tmp_path / "data.csv").write_text("a\nx\nx\n")
    cube, _ = built(a_policy(tmp_path, [texts("x")]))
    code = f"""
import duckdb
with duckdb.connect({str(tmp_path / "cube")!r}, read_only=True) as c:
    print(c.execute("SELECT sum(n) FROM cells").fetchone())
"""
    with duckdb.connect(str(tmp_path / "cube"), read_only=True, config=CONFIG):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert (done.stdout, done.stderr) == ("(2,)\n", "")
        assert cube.answer(Family(LinearQuery.count(Space((1,))))) == [2]


CONFIG: dict[str, Any] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}


def test_progress_goes_from_0_to_1(tmp_path: Path) -> None:
    """The callback sees ascending shares, the last of them 1; what it raises stops the build."""
    (tmp_path / "data.csv").write_text("a\nx\n")
    policy = a_policy(tmp_path, [texts("x")])
    seen: list[float] = []
    build(policy, tmp_path / "cube", "ledger", seen.append)
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0.0, 1.0)

    def stop(share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(policy, tmp_path / "stopped", "ledger", stop)
    assert not (tmp_path / "stopped").exists()
    with pytest.raises(SourceError, match="more records"):
        build(a_policy(tmp_path, [texts("x")], max_records=0), tmp_path / "c", "", seen.append)


# --- answers ---------------------------------------------------------------------------------

PAIRS = [("x", "1", "5"), ("x", "2", ""), ("y", "2", "-7"), ("x", "1", "6"), ("y", "3", "1")]


@pytest.fixture
def small(tmp_path: Path) -> tuple[Policy, Cube]:
    """A cube of PAIRS: two axes, the second with a NULL cell, a nullable and a plain measure."""
    with (tmp_path / "data.csv").open("w") as file:
        csv.writer(file).writerows([("a", "b", "m"), *PAIRS])
    b = Attribute("b", "integer", (1, 2), outside="group")
    measures = [money(-5, 9, "1", nulls="group"), Measure("k", *map(Fraction, (0, 2, 1)), "drop", "b")]
    policy = a_policy(tmp_path, [texts("x", "y"), b], measures)
    return policy, built(policy)[0]


def test_answers_by_hand(small: tuple[Policy, Cube]) -> None:
    """COUNT, SUM and COUNT(measure), in all and by group, constants times them, and sums."""
    policy, cube = small
    here = space(policy.domain)
    row = np.array([1, 0])
    count = LinearQuery.count(here)
    total = LinearQuery.of(here, Fraction(1), {sum_part(0): Term.of(1, ())})
    present = LinearQuery.of(here, Fraction(1), {present_part(0): Term.of(1, ())})
    both = LinearQuery.of(here, Fraction(1), {present_part(1): Term.of(1, ())})
    capped = LinearQuery.of(here, Fraction(1), {sum_part(1): Term.of(1, ())})
    labels = np.array([[0, 1, -1], [2, -1, 1]], dtype=np.int32)
    for query, whole, x, groups in (
        (count, 5, 3, [2, 2, 0]), (total, 5 - 5 + 6 + 1, 11, [11, 1, 0]),
        (present, 4, 2, [2, 1, 0]), (both, 5, 3, [2, 2, 0]), (capped, 8, 4, [2, 4, 0]),
        (count * 3 + total, 22, 20, [17, 7, 0]), (-present, -4, -2, [-2, -1, 0]),
    ):  # fmt: skip
        grid = int(query.grid)
        assert cube.answer(Family(query)) == [whole // grid]
        assert cube.answer(Family(query.times(Factor((0,), row)))) == [x // grid]
        assert cube.answer(Family(query, (0, 1), labels, 3)) == [n // grid for n in groups]
    assert cube.answer(Family(LinearQuery(here, Fraction(1), {}))) == [0]
    assert cube.max_records == 1000
    with pytest.raises(ValueError, match="another cube"):
        cube.answer(Family(LinearQuery.count(Space((3, 3)))))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.sampled_from([7, 2**30, 2**45, 2**55]))
def test_answers_are_exact_at_any_size(
    small: tuple[Policy, Cube], data: st.DataObject, most: int
) -> None:
    """Coefficients past float and past 64 bits together with the counts give exact integers."""
    policy, cube = small
    here = space(policy.domain)
    numbers = st.lists(st.integers(-most, most), min_size=6, max_size=6)
    arrays = [np.array(data.draw(numbers), dtype=np.int64).reshape(2, 3) for _ in range(3)]
    labels = np.array(data.draw(st.lists(st.integers(-1, 1), min_size=6, max_size=6)), np.int32)
    parts = dict(zip((COUNT, sum_part(0), present_part(0)), arrays, strict=True))
    query = LinearQuery.of(
        here, Fraction(1), {p: Term.of(1, [Factor((0, 1), a)]) for p, a in parts.items()}
    )
    expected = [0, 0]
    for a, b, m in PAIRS:
        cell = ("xy".index(a), min(int(b), 3) - 1)
        value = max(-5, int(m)) if m else None
        label = int(labels.reshape(2, 3)[cell])
        if label >= 0:
            expected[label] += int(arrays[0][cell])
            if value is not None:
                expected[label] += int(arrays[1][cell]) * value + int(arrays[2][cell])
    found = cube.answer(Family(query, (0, 1), labels.reshape(2, 3), 2))
    assert [n * query.grid for n in found] == expected
    assert sum(found) == cube.answer(Family(query.times(*covered(labels))))[0]


def covered(labels: Any) -> list[Factor]:
    inside = (labels >= 0).astype(np.int64).reshape(2, 3)
    return [Factor((0, 1), inside)]


@pytest.fixture(scope="module", params=["cps1988", "meps1996"])
def real(request: Any, tmp_path_factory: Any) -> tuple[Policy, Cube, Report, list[dict[str, str]]]:
    """A shipped policy, its cube, and the raw rows of its file."""
    policy = load(ROOT / "policies" / f"{request.param}.yaml")
    path = tmp_path_factory.mktemp("real") / "cube"
    report = build(policy, path, "ledger")
    with gzip.open(ROOT / "examples" / f"{request.param}.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    return policy, Cube.open(path, policy.domain, "ledger"), report, rows


def test_random_families_on_the_real_data(real: Any) -> None:
    """Totals of 40 random families equal a loop over the raw rows of the file."""
    policy, cube, report, rows = real
    domain, here = policy.domain, space(policy.domain)
    codes = np.array([[raw_code(a, row[a.name]) for a in domain.attributes] for row in rows])
    assert report.kept == len(rows) == cube.answer(Family(LinearQuery.count(here)))[0]
    wages = [
        [min(max(round(Fraction(row[m.name]) / m.quantum), m.bounds[0]), m.bounds[1]) for row in rows]
        for m in domain.measures
    ]
    rng = np.random.default_rng(0)
    for _ in range(40):
        axes = tuple(sorted(rng.choice(len(here.sizes), rng.integers(1, 4), replace=False)))
        where = tuple(sorted(rng.choice(len(here.sizes), rng.integers(1, 3), replace=False)))
        by = tuple(sorted(rng.choice(len(here.sizes), rng.integers(0, 3), replace=False)))
        sizes = [tuple(here.sizes[a] for a in over) for over in (axes, where, by)]
        factors = [Factor(tuple(map(int, axes)), rng.integers(-9, 10, sizes[0])),
                   Factor(tuple(map(int, where)), rng.integers(0, 2, sizes[1]))]  # fmt: skip
        rows_of = int(rng.integers(1, 6)) if by else 1
        labels = rng.integers(-1, rows_of, sizes[2]).astype(np.int32) if by else np.int32(0)
        part = int(rng.integers(0, 1 + 2 * len(wages)))
        query = LinearQuery.of(here, Fraction(1), {part: Term.of(1, factors)})
        values = np.array(wages[part // 2] if part % 2 else [1] * len(rows), dtype=np.int64)
        for factor in factors:
            values = values * factor.array[tuple(codes[:, factor.axes].T)]
        label = np.asarray(labels)[tuple(codes[:, by].T)] if by else np.zeros(len(rows), int)
        expected = [int(values[label == i].sum()) for i in range(rows_of)]
        family = Family(query, tuple(map(int, by)), np.asarray(labels), rows_of)
        assert [n * query.grid for n in cube.answer(family)] == expected


def raw_code(axis: Attribute, field: str) -> int:
    """Return a raw field's code; both files hold declared values only."""
    if axis.edges is not None:
        return bisect.bisect_right(axis.edges, int(field)) - 1
    return axis.codes[int(field) if axis.type == "integer" else field]
