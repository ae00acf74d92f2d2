"""How a value of a record becomes a code or quanta, by hand."""

from __future__ import annotations

import bisect
import datetime
import re
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from proxy.domain import Attribute, Measure
from proxy.errors import PolicyError
from proxy.policy import Policy
from tests.cube.making import (
    ROOT,
    a_policy,
    cells,
    edges,
    money,
    texts,
    write,
)

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
LINE = Attribute("line", "integer", tuple(range(100)))


def fields(folder: Path, column: str, read: Iterable[str]) -> None:
    """Write a CSV of numbered lines, one for each field."""
    lines = [f"line,{column}", *(f"{i},{field}" for i, field in enumerate(read))]
    (folder / "data.csv").write_text("\n".join(lines), encoding="utf-8")


def each(policy: Policy, read: Iterable[str]) -> list[tuple[tuple[Any, ...], tuple[int, ...]]]:
    """Return the cells of a policy whose first axis is LINE, with the field for the line."""
    names = list(read)
    return [((names[codes[0]], *codes[1:]), rest) for codes, rest in cells(policy).items()]


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
    fields(tmp_path, "a", read)
    found = {field: code for (field, code), _ in each(a_policy(tmp_path, [LINE, axis]), read)}
    assert found == {field: code for field, code in read.items() if code is not GONE}


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
                                         "-1e20": -(10**15), "-1e99": -(10**15)}),
    ],
)  # fmt: skip
def test_a_measure_is_clipped_then_rounded_halves_away_from_zero(
    tmp_path: Path, measure: Measure, read: dict[str, int]
) -> None:
    """Each field gets the quanta written here, from its decimal digits, not from a float."""
    fields(tmp_path, "m", read)
    found = each(a_policy(tmp_path, [LINE], [measure]), read)
    assert {field: quanta for (field,), (_, quanta) in found} == read


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
        Attribute("v", "integer", tuple(reversed(ends)), source="a", outside="group"),
        Attribute("d", "date", days, outside="clamp", source="DATE '2024-02-28' + day"),
    ]
    values = [0, 1, 2, 3, 4, 24_999, 4999**2, 5000**2 - 1, 4242**2]
    numbers = f"SELECT unnest({values}) AS a"
    write(tmp_path / "data.parquet", f"SELECT a, least(a, 9999)::INTEGER AS day FROM ({numbers})")
    square = {v: len(ends) - 1 - i for i, v in enumerate(ends)}
    expected = Counter(
        (bisect.bisect_right(ends, v) - 1, square.get(v, len(ends)), min(v, 4999)) for v in values
    )
    found = cells(a_policy(tmp_path, axes, path="data.parquet"))
    assert found == {key: (n,) for key, n in expected.items()}


def test_days_in_another_order_are_read_as_the_hint_says(tmp_path: Path) -> None:
    """``to_date`` of a column is refused; the hint and policies/README.md say what is not."""
    (tmp_path / "data.csv").write_text("x\n31.12.2024\n30.12.2024\n30.12.2024\n")
    days = tuple(datetime.date(2024, 12, day) for day in (30, 31))
    axis = Attribute("d", "date", days, source="to_date(x, 'DD.MM.YYYY')")
    with pytest.raises(PolicyError, match="to_date takes a text in quotes") as refused:
        cells(a_policy(tmp_path, [axis]))
    found = re.search(r"CAST\(.+ AS date\)", refused.value.hint or "")
    assert found is not None
    said = re.sub(r"\bx\b", "day", found[0])
    assert said in (ROOT / "policies/README.md").read_text()
    assert cells(a_policy(tmp_path, [replace(axis, source=found[0])])) == {(0,): (2,), (1,): (1,)}
