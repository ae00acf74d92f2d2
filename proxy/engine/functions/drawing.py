"""The outer SQL over drawn numbers: which are drawn, and what it gives in each row."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from proxy.engine.functions.numbers import Floats, Numbers
from proxy.inference.functions.draws import Noises, corners, count

MAX_DRAWN = 1_000_000  # numbers in all draws, and rows
MAX_CORNERS = 250  # numbers up to which each is looked at against all others
LARGE = 1e6  # what is taken for a number that is not known, to see what depends on it

Run = Callable[[list[list[list[list[float | None]]]], int], Sequence[tuple[Any, ...]]]


@dataclass(frozen=True, eq=False)
class Drawn:
    """What columns are in every draw [draws], by the row's key: first over the numbers as they are
    shown, then with those that are not known in two ways, then over draws, then in corners.
    """

    delta: float
    draws: int
    values: dict[int, list[Floats]] = field(default_factory=dict)

    def of(self, key: int, column: int) -> Floats | None:
        """Return the values of a cell; None where there are none."""
        found = self.values.get(key)
        return found and found[column]  # type: ignore[return-value]  # never an empty list

    def misses(self, values: Floats) -> bool:
        """Return whether a cell depends on numbers that are not known."""
        shown, one, two = values[:3]
        return any(
            each != shown and not (np.isnan(each) and np.isnan(shown)) for each in (one, two)
        )

    def split(self, values: Floats) -> tuple[float, Floats, Floats]:
        """Return a cell's value at the estimates, over draws, and in corners."""
        return float(values[0]), values[3 : 3 + self.draws], values[3 + self.draws :]


def draw(numbers: Numbers, rows: int, run: Run) -> Drawn:
    """Return what the SQL gives over draws of all numbers; nothing where they are too many."""
    names = numbers.names
    _, delta = numbers.delta(names)
    draws = count(delta) if delta else 0
    jumps = any(t and t.kind == "drawn" and t.jumps for t in numbers.program.traces)
    known = [name for name in names if not numbers.missing(name)]
    cases = corners(known if len(known) <= MAX_CORNERS else []) if jumps else []
    if not draws or (draws + len(cases)) * max(len(names), rows) > MAX_DRAWN:
        return Drawn(delta, 0)
    noises = Noises(numbers.program.text, draws)
    columns = {
        name: _column(numbers, name, noises, cases, delta / max(len(known), 1)) for name in names
    }
    total = 3 + draws + len(cases)
    matrices, rest = [], iter(names)
    for release, each in zip(numbers.program.releases, numbers.released, strict=True):
        lists = []
        for _ in each:
            whole = np.stack([columns[next(rest)] for _ in range(release.rows)], axis=1)
            lists.append(_plain(whole))
        matrices.append(lists)
    found: dict[int, list[Floats]] = {}
    for s, key, *values in run(matrices, total):
        if key not in found:
            found[key] = [np.full(total, np.nan) for _ in values]
        for column, value in zip(found[key], values, strict=True):
            if value is not None:
                column[s] = value
    return Drawn(delta, draws, found)


def _column(
    numbers: Numbers, name: int, noises: Noises, cases: Sequence[Any], delta: float
) -> Floats:
    """Return a number in every draw; NaN where it is NULL."""
    drawn, known = numbers.drawn(name, noises), numbers.linear(name)
    shown = numbers.shown(name)
    if known is not None:
        shown = min(max(shown, known.least), known.most)
    if drawn is None:  # it is not known: what depends on it, moves with it
        many = np.full(noises.draws + len(cases), np.nan)
        return np.concatenate([[math.nan, LARGE, -LARGE], many])
    high, low = (numbers.corner(name, sign, delta) for sign in (1, -1))
    signs = np.array([case[name] for case in cases])
    return np.concatenate([[shown] * 3, drawn, np.where(signs > 0, high, low)])


def _plain(values: Floats) -> list[list[float | None]]:
    """Return numbers as parameters of SQL."""
    if not np.isnan(values).any():
        return values.tolist()  # type: ignore[no-any-return]
    return [[None if math.isnan(v) else v for v in row] for row in values.tolist()]
