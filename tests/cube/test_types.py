"""One rule for each type: a table of source types, axis types and edge values, by hand.

N is NULL, O outside the domain, U what cannot be read; a number is the code of a cell, and C0, C1
are values clamped to the cells 0 and 1.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from proxy.cube import survey
from proxy.cube.sources import coding
from proxy.cube.sources.coded import rows_coded
from proxy.cube.sources.packing import Packing
from proxy.cube.sources.source import opened
from proxy.domain import Attribute
from proxy.policy import Policy
from tests.cube.making import ROOT, a_policy, edges, money, texts, write
from tests.searches import share

N, O, U = coding.NULL, coding.OUTSIDE, coding.UNREADABLE  # noqa: E741
C0, C1 = coding.CLAMPED, coding.CLAMPED - 1
DAY = datetime.date(2021, 3, 14)
NEXT = DAY.replace(day=15)
TICK = datetime.timedelta(microseconds=1)
LAST = datetime.datetime(2021, 3, 15) - TICK
INTEGER = Attribute("a", "integer", (0, 5))
CLAMP = edges(0, 5, 10, outside="clamp")
DECIMAL = Attribute("a", "decimal", (Decimal("0"), Decimal("5.5")))
FINE = Attribute("a", "decimal", (Decimal("0"), Decimal("1234.567")))
BINS = edges(Decimal("0"), Decimal("0.5"), Decimal("10"), kind="decimal")
BOOLEAN = Attribute("a", "boolean", (False, True))
DATE = Attribute("a", "date", (DAY, NEXT))
NEAR = Attribute("a", "date", (DAY, NEXT), outside="clamp")
TIMESTAMP = Attribute("a", "timestamp", (datetime.datetime(2021, 3, 14, 23, 30), LAST))
TEXT = texts("5", "5.5", "true", "2021-03-14", "0")
LINE = Attribute("line", "integer", tuple(range(100)))

TABLE: list[tuple[str, Attribute, dict[str | None, int]]] = [
    # --- text: numbers -------------------------------------------------------------------------
    ("VARCHAR", INTEGER, {
        None: N, "": N, " \t": N, "NaN": N, "nan": N, "5": 1, " 5 ": 1, "+5": 1, "05": 1, "5.": 1,
        "5.0": 1, "0.5e1": 1, "50E-1": 1, "-0": 0, "-0.0": 0, "0e999": 0, "5.7": O, "4.999": O,
        "5.5": O, "1e3": O, "9223372036854775808": O, "9" * 60: O, "1e999": O,
        "999999999.9999999999": O, "999999999": O, "-1e9": O, "inf": O,
        "-Infinity": O, "0x5": U, "0b1": U, "0o5": U, "5_0": U, "5,0": U, "5 0": U, "\u22125": U,
        "\uff15": U, "\u0665": U, "5\u00a0": U, "1e": U, "e1": U, ".": U, "-": U, "--5": U,
        "1e9999": U, "5d": U, "$5": U, "true": U, "t": U, "2021-03-14": U, "infinite": U}),
    ("VARCHAR", CLAMP, {
        "-1": C0, "4.9": C0, "5": 1, "5.5": C1, "99": C1, "1e99": C1, "-1e999": C0, "inf": C1,
        "999999999.9999999999": C1, "-1000000000": C0,
        "x": U, "": N}),
    ("VARCHAR", DECIMAL, {
        "5.5": 1, "5.50": 1, "55e-1": 1, "5.4999999999999": 1, "5.500000001": O, "5,5": U,
        "5.5.": U, "1_0": U, "0.00000000001": 0}),
    ("VARCHAR", FINE, {
        "1234.567": 1, "12345670.0000000e-4": 1, "0.0000012345670e9": 1, "1.234567e3": 1,
        "1234567000000000000000e-18": 1, "1234.5670000000004": 1, "1234.5670000004": O}),
    ("DOUBLE", FINE, {"1234.567": 1, "1.234567e3": 1, "1e-15": 0, "1e22": O}),
    ("DECIMAL(38, 20)", FINE, {"1234.5670000000004": 1, "1234.567000000001": O, "-1e10": O}),
    ("VARCHAR", BINS, {"0": 0, "0.49": 0, "0.5": 1, "-0.1": O, "9.99": 1, "10": O, "-0": 0}),
    # --- text: booleans ------------------------------------------------------------------------
    ("VARCHAR", BOOLEAN, {
        "TRUE": 1, "t": 1, "yes": 1, "Y": 1, "on": 1, "1": 1, " true ": 1, "tru": 1, "f": 0,
        "off": 0, "of": 0, "no": 0, "0": 0, "": N, " ": N, None: N, "o": U, "2": U, "1.0": U,
        "truee": U, "wahr": U, "NaN": U}),
    # --- text: dates and times, in Asia/Tokyo ----------------------------------------------------
    ("VARCHAR", DATE, {
        "2021-03-14": 0, " 2021-03-14 ": 0, "2021-03-14 23:59:59.9999999": 0, "2021-03-14T00:00": 0,
        "2021-03-14 24:00:00": 1, "2021-03-14T23:30:00-05:00": 1, "2021-03-14T14:59:59Z": 0,
        "2021-03-14T15:00:00Z": 1, "2021-03-14 15:00Z": 1, "2021-03-14 15:00:00 UTC": 1,
        "2021-03-15 04:59:59+14": 0, "2021-03-14 20:29:59+0530": 0, "2021-03-14 20:30:00+0530": 1,
        "2021-03-14 20:30:00 +05:30": 1, "2021-03-14T20:30:00.5+05:30": 1,
        "2021-03-14 10:59:59 America/New_York": 0, "2021-03-14 11:00:00 America/New_York": 1,
        "2021-03-14 11:00:00 america/new_york": 1, "2021-03-14 10:00:00 Etc/GMT+5": 1,
        "2021-03-13 15:00:00Z": 0, "2021-03-16": O, "1969-12-31": O, "infinity": O,
        "-infinity": O, "9999-12-31": O, "0001-01-01": O, "": N, " ": N, None: N,
        "2021-03-14 10:00:00 EST": U, "2021-03-14 10:00:00 America/New_Yrk": U,
        "2021-03-14 10:00:00+19": U, "2021-03-14Z": U, "2021-03-14 +05": U, "2021-02-29": U,
        "2021-03-14 25:00": U, "2021-03-14 10": U, "12/31/2020": U, "31.12.2020": U,
        "21-03-14": U, "2021/03/14": U, "2021-3-14": U, "20210314": U, "0000-01-01": U,
        "0044-03-15 BC": U, "0044-03-15 (BC)": U, "1615680000": U, "1615680000000": U, "now": U,
        "today": U, "epoch": U, "NaN": U, "March 14, 2021": U, "12021-03-14": U,
        "2021-03-14 10:00:00 PM": U, "2021-03-14 \u0661\u0660:00": U}),
    ("VARCHAR", NEAR, {"1969-12-31": C0, "infinity": C1, "-infinity": C0, "2099-01-01": C1,
                       "12/31/2020": U, "0044-03-15 (BC)": U}),
    ("VARCHAR", TIMESTAMP, {
        "2021-03-14 23:30": 0, "2021-03-14T23:30:00.000000": 0, "2021-03-14 14:30:00Z": 0,
        "2021-03-14T09:30:00-05": 0, "2021-03-14 23:59:59.9999999": 1, "2021-03-14 23:30:01": O,
        "2021-03-14": O, "2021-03-14 11:30 PM": U, "23:30": U, "infinity": O}),
    ("VARCHAR", TEXT, {"5": 0, " 5": O, "5.50": O, "TRUE": O, "": O, " ": O, None: N, "NaN": O}),
    # --- numbers -------------------------------------------------------------------------------
    ("INTEGER", INTEGER, {"0": 0, "5": 1, "-5": O, None: N}),
    ("INTEGER", DECIMAL, {"0": 0, "5": O}),
    ("INTEGER", BOOLEAN, {"0": 0, "1": 1, "2": U, "-1": U, None: N}),
    ("INTEGER", DATE, {"20210314": U, "18700": U, None: N}),
    ("BIGINT", TIMESTAMP, {"1615764600": U, "1615764600000": U}),
    ("INTEGER", TEXT, {"5": 0, "0": 4, "6": O, None: N}),
    ("HUGEINT", INTEGER, {"5": 1, "170141183460469231731687303715884105727": O}),
    ("UHUGEINT", CLAMP, {"5": 1, "340282366920938463463374607431768211455": C1}),
    ("DOUBLE", INTEGER, {"5": 1, "5.5": O, "5.0000000000001": 1, "5.00000001": O, "-0.0": 0,
                         "nan": N, "inf": O, "1e300": O, "4.9999": O, None: N}),
    ("DOUBLE", CLAMP, {"5.5": C1, "-0.0": 0, "-inf": C0, "inf": C1, "1e300": C1, "nan": N}),
    ("DOUBLE", DECIMAL, {"5.5": 1, "-0.0": 0, "5.4": O, "nan": N}),
    ("FLOAT", Attribute("a", "decimal", (Decimal("0.1"),)), {"0.1": 0, "0.2": O}),
    ("DOUBLE", BOOLEAN, {"0": 0, "1": 1, "-0.0": 0, "0.5": U, "nan": N}),
    ("DOUBLE", DATE, {"20210314": U, "nan": N}),
    ("DOUBLE", TEXT, {"5": 0, "5.5": 1, "-0.0": 4, "nan": N, "inf": O, None: N}),
    ("DECIMAL(9,2)", INTEGER, {"5": 1, "5.00": 1, "5.01": O, "-0.00": 0}),
    ("DECIMAL(38,20)", INTEGER, {"5": 1, "5.00000000000000000001": 1, "5.00000001": O}),
    ("DECIMAL(9,2)", DECIMAL, {"5.5": 1, "5.51": O}),
    ("DECIMAL(9,1)", TEXT, {"5.5": 1, "5": O}),
    ("DECIMAL(9,1)", BOOLEAN, {"1": 1, "0.1": U}),
    ("DECIMAL(9,1)", DATE, {"5.5": U}),
    # --- booleans ------------------------------------------------------------------------------
    ("BOOLEAN", BOOLEAN, {"true": 1, "false": 0, None: N}),
    ("BOOLEAN", Attribute("a", "integer", (0, 1)), {"true": 1, "false": 0, None: N}),
    ("BOOLEAN", TEXT, {"true": 2, "false": O}),
    ("BOOLEAN", DATE, {"true": U, None: N}),
    # --- dates and times -----------------------------------------------------------------------
    ("DATE", DATE, {"2021-03-14": 0, "2021-03-16": O, "infinity": O, "0044-03-15 (BC)": O,
                    None: N}),
    ("DATE", NEAR, {"0044-03-15 (BC)": C0, "infinity": C1}),
    ("DATE", TIMESTAMP, {"2021-03-14": O, None: N}),
    ("DATE", TEXT, {"2021-03-14": 3}),
    ("DATE", INTEGER, {"1970-01-01": U, None: N}),
    ("DATE", BOOLEAN, {"1970-01-01": U}),
    ("TIMESTAMP", DATE, {"2021-03-14 23:59:59.999999": 0, "2021-03-15": 1, "infinity": O, None: N}),
    ("TIMESTAMP", TIMESTAMP, {"2021-03-14 23:30:00": 0, "2021-03-14 23:59:59.999999": 1}),
    ("TIMESTAMP_NS", DATE, {"2021-03-14 23:59:59.999999999": 0, "2021-03-15": 1, None: N}),
    ("TIMESTAMP_NS", TIMESTAMP, {"2021-03-14 23:59:59.999999999": 1}),
    ("TIMESTAMP_NS", Attribute("a", "timestamp", (datetime.datetime(1970, 1, 1) - TICK,)),
     {"1969-12-31 23:59:59.999999001": 0, "1969-12-31 23:59:59.999998999": O}),
    ("TIMESTAMP_S", TIMESTAMP, {"2021-03-14 23:30:00": 0}),
    ("TIMESTAMP_MS", DATE, {"2021-03-14 23:59:59.999": 0}),
    ("TIMESTAMP", INTEGER, {"1970-01-01": U}),
    ("TIMESTAMPTZ", DATE, {"2021-03-14 14:59:59+00": 0, "2021-03-14 15:00:00+00": 1, None: N}),
    ("TIMESTAMPTZ", TIMESTAMP, {"2021-03-14 14:30:00+00": 0, "2021-03-14 23:30:00-05": O}),
    ("TIMESTAMPTZ", BOOLEAN, {"2021-03-14 14:30:00+00": U}),
    # --- what is of no such type -----------------------------------------------------------------
    ("TIME", DATE, {"23:30:00": U, None: N}),
    ("BLOB", TEXT, {"5": U, None: N}),
    ("INTEGER[]", INTEGER, {"[5]": U, None: N}),
    ("INTERVAL", INTEGER, {"5 days": U}),
    ("UUID", TEXT, {"00000000-0000-0000-0000-000000000005": O}),
]  # fmt: skip


def a_source(folder: Path, kind: str, values: list[str | None]) -> None:
    """Write numbered values of a type."""
    rows = ", ".join(
        f"({i}, {'NULL' if v is None else chr(39) + v + chr(39)})" for i, v in enumerate(values)
    )
    made = f"SELECT line, CAST(v AS {kind}) AS a FROM (VALUES {rows}) AS t(line, v)"
    write(folder / "data.parquet", made)


def in_tokyo(folder: Path, axis: Attribute) -> Policy:
    policy = a_policy(folder, [LINE, axis], path="data.parquet")
    return replace(policy, timezone="Asia/Tokyo")


def codes(policy: Policy, folder: Path) -> list[int]:
    """Return the codes of the second axis, line by line."""
    (folder / "work").mkdir(exist_ok=True)
    with opened(policy, folder / "work") as source:
        packing = Packing.of(policy.domain.attributes)
        rows = rows_coded(policy, source)
        sql = f"SELECT {packing.code(1)} FROM ({rows}) ORDER BY {packing.code(0)}"
        return [c for (c,) in source.local.execute(sql).fetchall()]


@pytest.mark.parametrize(
    "kind, axis, expected", TABLE, ids=[f"{kind}-{axis.type}" for kind, axis, _ in TABLE]
)
def test_a_value_of_a_type_is_read_by_the_rule_of_its_axis(
    tmp_path: Path, kind: str, axis: Attribute, expected: dict[str | None, int]
) -> None:
    """Each value has the code written in the table, in the policy's time zone."""
    values = list(expected)
    a_source(tmp_path, kind, values)
    found = codes(in_tokyo(tmp_path, axis), tmp_path)
    assert dict(zip(values, found, strict=True)) == expected


def test_every_type_meets_every_axis() -> None:
    """No type of a column and no type of an axis is left out of the table."""
    kinds = {"VARCHAR", "INTEGER", "DOUBLE", "DECIMAL", "DATE", "TIMESTAMP", "TIMESTAMPTZ",
             "BOOLEAN"}  # fmt: skip
    assert kinds <= {kind.split("(")[0] for kind, _, _ in TABLE}
    for kind in ("VARCHAR", "INTEGER"):
        types = {axis.type for k, axis, _ in TABLE if k == kind} | {"timestamp"}
        assert types == {"integer", "decimal", "boolean", "date", "timestamp", "text"}


def test_what_cannot_be_read_is_counted(tmp_path: Path) -> None:
    """The report says how many values of each attribute and measure are no value of its type."""
    (tmp_path / "data.csv").write_text("a,m\n2021-03-14,1\n12/31/2020,1\n2021-03-16,1_0\nx,\n,1\n")
    report = survey(a_policy(tmp_path, [DATE], [money(0, 9, "1")]))
    assert [(r.nulls, r.outside, r.unreadable) for r in report.attributes] == [(1, 3, 2)]
    assert [(r.nulls, r.outside, r.unreadable) for r in report.measures] == [(1, 1, 1)]


MEASURED: list[tuple[str, dict[str | None, Any]]] = [
    ("VARCHAR", {"5": 500, "0.005": 1, "500000000000000000000e-20": 500,
                 "0.00000000000000000005e20": 500, "1_0": None, "0x1": None, "1,5": None,
                 "inf": 1000, "-1e999": 0, "9999999999999999.999": 1000, "1e16": 1000, "-1e17": 0,
                 "NaN": None, "": None, None: None, "true": None, "1e-999": 0}),
    ("DOUBLE", {"5": 500, "-0.0": 0, "nan": None, "inf": 1000, "1.005": 101, "1e-300": 0}),
    ("BOOLEAN", {"true": 100, "false": 0}),
    ("DATE", {"2021-03-14": None}),
    ("DECIMAL(9,4)", {"0.0050": 1, "0.0049": 0, "-5": 0}),
    ("HUGEINT", {"170141183460469231731687303715884105727": 1000}),
]  # fmt: skip


@pytest.mark.parametrize("kind, expected", MEASURED)
def test_a_measure_is_read_as_a_decimal(
    tmp_path: Path, kind: str, expected: dict[str | None, int | None]
) -> None:
    """Each value has the quanta written in the table; None where it has none."""
    values = list(expected)
    a_source(tmp_path, kind, values)
    m = money(0, 10, "0.01", source="a", nulls="group")
    policy = a_policy(tmp_path, [LINE], [m], path="data.parquet")
    with opened(policy, tmp_path) as source:
        packing = Packing.of(policy.domain.attributes)
        sql = f"SELECT q0 FROM ({rows_coded(policy, source)}) ORDER BY {packing.code(0)}"
        rows = source.local.execute(sql).fetchall()
    assert dict(zip(values, (q for (q,) in rows), strict=True)) == expected


TIMES = ["2021-03-14T23:30:00-05:00", "2021-03-14 15:00:00Z", "2021-03-14 12:00:00+09",
         "2021-03-14 10:59:59 America/New_York"]  # fmt: skip
COMPUTED = Attribute("a", "date", (DAY, NEXT), source="date_trunc('day', a)")
SCRIPT = """
import sys, pathlib
from tests.cube import test_types as t
folder = pathlib.Path(sys.argv[1])
axes = [t.DATE] if sys.argv[2] == "VARCHAR" else [t.DATE, t.COMPUTED]
print([t.codes(t.in_tokyo(folder, axis), folder) for axis in axes])
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind, expected", share(1, [("TIMESTAMPTZ", 2), ("VARCHAR", 1)]))
def test_the_time_zone_of_the_machine_does_not_matter(
    tmp_path: Path, kind: str, expected: int
) -> None:
    """The same source has the same cells under TZ far in the west and far in the east."""
    a_source(tmp_path, kind, list(TIMES))
    for zone in ("Pacific/Honolulu", "Pacific/Kiritimati"):
        found = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path), kind], check=True, capture_output=True,
            text=True, cwd=ROOT, env={**os.environ, "TZ": zone},
        ).stdout  # fmt: skip
        assert found == f"{[[1, 1, 0, 0]] * expected}\n"
