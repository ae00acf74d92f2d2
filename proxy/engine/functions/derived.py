"""Intervals of derived numbers: aggregates of values that follow from their noisy counts.

A number that is NULL, because noise drowns it, has the estimate NaN and all that it may be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from proxy.engine.answers import Answer
from proxy.engine.outcomes import Reach
from proxy.inference.derived import Counts, Ends, after, guess, interval
from proxy.sql import Program, Release, Rows
from proxy.sql.program import Cell, Derived
from proxy.sql.types import NUMBERS

SOURCE = "derived"
NOTHING = Answer(math.nan, 0.0, 0.0, 1.0, SOURCE, 0.0)
Known = Sequence[Sequence[Sequence[Answer]]]  # [release][number][row]
Reaches = Sequence[Reach]  # [number]
WHOLE = ("smallint", "integer", "bigint")


def intervals(
    program: Program, known: Known, reaches: Reaches
) -> tuple[list[list[Answer]], tuple[str, ...]]:
    """Return the derived numbers in each row of their release, and notices of NULLs."""
    names = [release.name for release in program.releases]
    found, notices = [], []
    for derived in program.derived:
        if derived.counts not in names:  # no value is possible
            none = NOTHING if derived.kind != "distinct" else replace(NOTHING, estimate=0.0)
            found.append([none] * sum(each.rows for each in program.releases))
            continue
        at = names.index(derived.counts)
        counts, base = program.releases[at], program.releases[names.index(derived.release)]
        number = sum(len(each.numbers) for each in program.releases[:at]) + derived.number
        answers = known[at][derived.number]
        column = list(_column(derived, base, counts, answers, reaches[number]))
        lost = sum(math.isnan(answer.estimate) for answer in column)
        if lost:
            groups = f" for {lost} of {base.rows} groups" if base.rows > 1 else ""
            notices.append(
                f"{derived.label} is NULL{groups}: noise drowns it, so that it may be anything; "
                "ask for the counts within a smaller half_width, or of fewer values"
            )
        found.append(column)
    return found, tuple(notices)


def _column(
    derived: Derived,
    base: Release,
    counts: Release,
    answers: Sequence[Answer],
    reach: Reach,
) -> Iterator[Answer]:
    """Yield a derived number in each row of its release; its estimate is the row's own."""
    *keys, values = (group.values for group in counts.groups)
    ordered = counts.groups[-1].type in NUMBERS
    places: dict[tuple[Cell, ...], list[int]] = {}
    for i, key in enumerate(zip(*keys, strict=True) if keys else [()] * counts.rows):
        if values[i] is not None:
            places.setdefault(key, []).append(i)
    for row in range(base.rows):
        chosen = places.get(tuple(group.values[row] for group in base.groups), [])
        each = {i: float(str(values[i])) if ordered else float(i) for i in chosen}
        chosen.sort(key=each.__getitem__)
        known = _counts(derived, [each[i] for i in chosen], chosen, answers, reach)
        ends = interval(derived.kind, derived.detail, known, derived.discrete)
        confidence = min((answers[i].confidence for i in chosen), default=1.0)
        cost = max((answers[i].cost for i in chosen), default=0.0)
        low, high = ends or _anything(derived, known)
        middle = (
            math.nan
            if ends is None
            else min(max(guess(derived.kind, derived.detail, known), low), high)
        )
        yield Answer(middle, low, high, confidence, SOURCE, cost)


def _counts(
    derived: Derived,
    values: Sequence[float],
    chosen: Sequence[int],
    answers: Sequence[Answer],
    reach: Reach,
) -> Counts:
    """Return the counts of the values of one group."""
    near, far = (np.array([each[i] for i in chosen]) for each in (reach.near, reach.far))
    return Counts(
        np.array(values),
        np.array([answers[i].estimate for i in chosen]),
        near,
        far,
        np.array([after(derived.edges, low) for low in values]) if derived.edges else None,
        [reach.estimators[i] for i in chosen] if reach.estimators else (),
        reach.delta,
        derived.whole,
    )


def _anything(derived: Derived, counts: Counts) -> Ends:
    """Return the ends of all possible values of a derived number."""
    if not counts.values.size:
        return (0.0, 0.0)
    low, high = counts.ends
    if counts.highs is not None:
        high = float(counts.highs[-1])
    if derived.kind == "distinct":
        return 0.0, float(counts.inside.sum())
    if derived.kind == "spread":
        half = (high - low) / 2
        return 0.0, half if derived.detail.startswith("stddev") else half**2
    return low, high


def settled(
    rows: Rows, found: Sequence[Sequence[Answer | None]], derived: Sequence[Sequence[Answer]]
) -> tuple[Rows, list[list[Answer | None]]]:
    """Return rows with NULL for numbers drowned by noise, and answers with the rows' estimates."""
    cells: list[tuple[Cell, ...]] = []
    answers: list[list[Answer | None]] = []
    for row, known, places in zip(rows.rows, found, rows.derived, strict=True):
        line, beside = list(row), list(known)
        for i, place in enumerate(places):
            if place is not None:
                answer = derived[place[0]][place[1]]
                line[i], beside[i] = _settled(line[i], answer, rows.columns[i].type)
        cells.append(tuple(line))
        answers.append(beside)
    return replace(rows, rows=cells, derived=()), answers


def _settled(value: Cell, answer: Answer, kind: str) -> tuple[Cell, Answer]:
    """Return the value shown in a cell, and its answer."""
    if math.isnan(answer.estimate):
        return None, answer
    if value is None:  # none of the values is there for sure
        value = round(answer.estimate) if kind in WHOLE else answer.estimate
    estimate = float(value)  # type: ignore[arg-type]  # a number, or it has no interval
    low, high = min(answer.low, estimate), max(answer.high, estimate)
    return value, replace(answer, estimate=estimate, low=low, high=high)
