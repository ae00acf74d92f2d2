"""What the rules make of rows: by hand, against plain Python, and for privacy units."""

from __future__ import annotations

import bisect
import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from proxy.cube import survey
from proxy.domain import Attribute, Measure
from proxy.errors import PolicyError, SourceError
from proxy.inference.family import Family
from proxy.inference.query import (
    LinearQuery,
    Term,
    sum_part,
)
from proxy.policy import Unit
from tests.cube.making import (
    a_policy,
    built,
    cells,
    money,
    space,
    texts,
    write,
)


def test_the_report_counts_what_each_rule_meets(tmp_path: Path) -> None:
    """Seven rows by hand: NULL, outside, clamped, clipped, unreadable, dropped, kept."""
    rows = ["a,b,m", "x,1,5", "y,2,6", ",3,7", "x,99,8", "x,1,", "x,1,oops", "x,1,70"]
    (tmp_path / "data.csv").write_text("\n".join(rows))
    b = Attribute("b", "integer", (1, 2, 3), outside="clamp")
    policy = a_policy(tmp_path, [texts("x"), b], [money(0, 10, "1")])
    cube, report = built(policy)
    assert (report.rows, report.kept) == (7, 3)
    assert [asdict(rule) for rule in (*report.attributes, *report.measures)] == [
        {"name": "a", "nulls": 1, "outside": 1, "unreadable": 0, "clipped": 0, "dropped": 2},
        {"name": "b", "nulls": 0, "outside": 1, "unreadable": 0, "clipped": 1, "dropped": 0},
        {"name": "m", "nulls": 1, "outside": 1, "unreadable": 1, "clipped": 1, "dropped": 2},
    ]
    assert replace(survey(policy), cells=None) == report
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
    with pytest.raises(SourceError, match=r"more records than max_records: 11$") as caught:
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


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
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
    rows = data.draw(st.lists(st.tuples(*drawn), max_size=40))
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


# --- privacy units -----------------------------------------------------------------------------

PEOPLE = [(p, visit, v) for p in range(12) for v, visit in enumerate("xyxzy"[: p % 6])]


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


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(st.permutations(PEOPLE), st.integers(0, 11))
def test_which_rows_a_unit_keeps_depends_on_its_own_rows_alone(
    tmp_path_factory: Any, rows: list[tuple[Any, ...]], left: int
) -> None:
    """Neither the order of the rows nor whether another unit is there changes what is kept."""
    folder = tmp_path_factory.mktemp("people")
    before = people(folder, PEOPLE, Unit("p", 2))
    after = people(folder, [row for row in rows if row[0] != left], Unit("p", 2))
    assert after == {cell: n for cell, n in before.items() if cell[0] != left}


def test_which_rows_are_kept_is_decided_by_what_the_cube_holds(tmp_path: Path) -> None:
    """Neither the place of a row nor a column that no attribute reads has a part in it."""
    kept = []
    for visits, other in (("['x', 'y']", "7"), ("['y', 'x']", "8")):
        rows = f"SELECT 1 AS p, {other} AS a_record, unnest({visits}) AS a"
        write(tmp_path / "data.parquet", rows)
        policy = a_policy(tmp_path, [texts("x", "y")], path="data.parquet", unit=Unit("p", 1))
        kept.append(cells(policy))
    assert kept[0] == kept[1]
    assert [*kept[0].values()] == [(1,)]


def test_rows_that_are_equal_have_a_chance_each(tmp_path: Path) -> None:
    """
    Of nine rows x and one row y of each of 4,000 units one is kept: y of a tenth of the units
    (binomial, 5 standard deviations: fewer than 1e-6 of false alarms, were the seed not fixed).
    """
    rows = "SELECT u AS p, CASE WHEN r = 0 THEN 'y' ELSE 'x' END AS a FROM range(4000) AS t(u),"
    write(tmp_path / "data.parquet", f"{rows} range(10) AS s(r)")
    policy = a_policy(
        tmp_path, [texts("x", "y")], path="data.parquet", unit=Unit("p", 1), max_records=10**5
    )
    found = cells(policy)
    assert found[0,][0] + found[1,][0] == 4000
    assert abs(found[1,][0] - 400) < 5 * (4000 * 0.1 * 0.9) ** 0.5


def test_a_row_without_a_unit_is_dropped(tmp_path: Path) -> None:
    """Nobody's row cannot be bounded, so it does not count, whatever its other values."""
    assert people(tmp_path, [("", "x", 1), (3, "x", 1)], Unit("p", 5)) == {(3, 0): (1,)}
    assert survey(a_policy(tmp_path, [texts("x")], unit=Unit("p", 5))).unitless == 1


@pytest.mark.slow
def test_the_seed_chooses_the_rows(tmp_path: Path) -> None:
    """Another seed keeps other rows of some unit."""
    kept = [people(tmp_path, PEOPLE, Unit("p", 1, seed)) for seed in "0123"]
    assert any(one != kept[0] for one in kept[1:])
