"""Answers to families: by hand, exact at any size, and on the real data."""

from __future__ import annotations

import bisect
import csv
import gzip
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.cube import Cube, Report, build
from proxy.domain import Attribute, Measure
from proxy.inference.family import Family
from proxy.inference.query import COUNT, Factor, LinearQuery, Term, present_part, sum_part
from proxy.inference.space import Space
from proxy.policy import Policy, load
from tests.cube.making import (
    ROOT,
    a_policy,
    built,
    money,
    space,
    texts,
)

PAIRS = [("x", "1", "5"), ("x", "2", ""), ("y", "2", "-7"), ("x", "1", "6"), ("y", "3", "1")]


@pytest.fixture
def small(tmp_path: Path) -> tuple[Policy, Cube]:
    """A cube of PAIRS: two axes, the second with a NULL cell, a nullable and a plain measure."""
    with (tmp_path / "data.csv").open("w") as file:
        csv.writer(file).writerows([("a", "b", "m"), *PAIRS])
    b = Attribute("b", "integer", (1, 2), outside="group")
    plain = Measure("k", Fraction(0), Fraction(2), Fraction(1), "drop", "b")
    one = Fraction(1)
    large = Measure("l", Fraction(0), one * 10**18, one, "drop", "CAST(b AS INT) * 10^17")
    measures = [money(-5, 9, "1", nulls="group"), plain, large]
    policy = a_policy(tmp_path, [texts("x", "y"), b], measures, max_records=len(PAIRS))
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
    assert cube.max_records == 5
    with pytest.raises(ValueError, match="another cube"):
        cube.answer(Family(LinearQuery.count(Space((3, 3)))))


def test_large_answers_are_exact(small: tuple[Policy, Cube]) -> None:
    """Past 2**53 floats would round, past 2**63 integers would wrap: neither happens."""
    policy, cube = small
    here = space(policy.domain)
    ends = (2**52 + 1, 2**52 - 1)
    factor = Factor((0,), np.array(ends))
    labels = np.array([0, 1], dtype=np.int32)
    for part, x, y in ((COUNT, 3, 2), (sum_part(2), 4 * 10**17, 5 * 10**17)):
        query = LinearQuery.of(here, Fraction(1), {part: Term.of(1, [factor])})
        assert cube.answer(Family(query)) == [x * ends[0] + y * ends[1]]
        assert cube.answer(Family(query, (0,), labels, 2)) == [x * ends[0], y * ends[1]]


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.sampled_from([7, 2**30, 2**45, 2**52]))
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
    inside = query.times(Factor((0, 1), (labels >= 0).astype(np.int64).reshape(2, 3)))
    assert cube.answer(Family(inside))[0] * inside.grid == sum(expected)


@pytest.fixture(scope="module", params=["cps1988", "meps1996"])
def real(request: Any, tmp_path_factory: Any) -> tuple[Policy, Cube, Report, list[dict[str, str]]]:
    """A shipped policy, its cube, and the raw rows of its file."""
    policy = load(ROOT / "policies" / f"{request.param}.yaml")
    path = tmp_path_factory.mktemp("real") / "cube"
    report = build(policy, path, "ledger")
    with gzip.open(ROOT / "examples" / f"{request.param}.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    return policy, Cube.open(path, policy.domain, "ledger"), report, rows


@pytest.mark.parametrize("largest, kept", [(2**22, 2**24), (2**22, 100), (200, 2**24), (0, 0)])
def test_random_families_on_the_real_data(
    real: Any, monkeypatch: pytest.MonkeyPatch, largest: int, kept: int
) -> None:
    """
    Totals of 40 random families equal a loop over the raw rows of the file, whichever marginals
    are kept: all, the last one, those of small scopes, none.
    """
    policy, cube, report, rows = real
    monkeypatch.setattr("proxy.cube.cells.LARGEST", largest)
    monkeypatch.setattr("proxy.cube.cells.KEPT", kept)
    cube._marginals.clear()
    domain, here = policy.domain, space(policy.domain)
    codes = np.array([[raw_code(a, row[a.name]) for a in domain.attributes] for row in rows])
    assert report.kept == len(rows) == cube.answer(Family(LinearQuery.count(here)))[0]
    wages = [
        [int(np.clip(round(Fraction(row[m.name]) / m.quantum), *m.bounds)) for row in rows]
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
