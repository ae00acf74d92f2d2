"""The outer SQL over drawn numbers: which are drawn, and what it gives in each row."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from proxy.engine.functions.numbers import Floats, Numbers
from proxy.inference.functions.draws import Noises, corners, count
from proxy.sql.provenance import name as name_of

MAX_DRAWN = 2_000_000  # numbers in all draws, and rows
MAX_CORNERS = 250  # numbers up to which each is looked at against all others
LARGE = 1e6  # what is taken for a number that is not known, to see what depends on it
FIRST = 4  # cases before the draws

Matrices = list[list[list[list[float | None]]]]  # [release][number][draw][row]
Run = Callable[[Matrices, int], Sequence[tuple[Any, ...]]]


class Drawn(Struct, frozen=True, eq=False):
    """What columns are in every case, by the row's key: [column][case].

    The cases are the numbers as shown; where some are not known, any others, with those NULL, large
    and small; for what is smooth, draws as they come; for what jumps, draws within what is
    possible, then corners.
    """

    delta: float
    draws: int = 0
    smooth: bool = False
    values: dict[int, list[Floats]] = {}

    def of(self, key: int, column: int) -> Floats | None:
        """Return the values of a cell; None where there are none."""
        return self.values[key][column] if key in self.values else None

    def misses(self, values: Floats) -> bool:
        """Return whether a cell depends on numbers that are not known."""
        return not np.array_equal(values[[1, 1]], values[[2, 3]], equal_nan=True)

    def split(self, values: Floats, jumps: bool) -> tuple[float, Floats, Floats]:
        """Return a cell's value as it is shown, over draws, and in corners."""
        first = FIRST + self.draws * (jumps and self.smooth)
        after = first + self.draws
        return float(values[0]), values[first:after], values[after:] if jumps else values[:0]


def draw(numbers: Numbers, rows: int, run: Run) -> Drawn:
    """Return what the SQL gives over draws of all numbers; nothing where they are too many."""
    traces = [t for t in numbers.program.traces if t is not None and t.kind == "drawn"]
    names = numbers.names(traces)
    _, delta = numbers.delta(names)
    draws = count(delta) if delta else 0
    jumps, smooth = any(t.jumps for t in traces), not all(t.jumps for t in traces)
    known = [name for name in names if not numbers.missing(name)]
    cases = corners(known if len(known) <= MAX_CORNERS else []) if jumps else []
    total = FIRST + draws * (jumps + smooth) + len(cases)
    if not draws or total * max(len(names), rows) > MAX_DRAWN:
        return Drawn(delta)
    noises, share = Noises(numbers.program.text, draws), delta / max(len(known), 1)
    columns = {}
    for name in names:
        column = _drawn(numbers, name, noises, smooth, jumps)
        if len(known) == len(names):
            column[1:FIRST] = column[0]
        ends = [numbers.corner(name, sign, share) for sign in (1, -1)] if cases else [0.0, 0.0]
        signs = np.array([case.get(name, 0) for case in cases])
        columns[name] = np.concatenate([column, np.where(signs > 0, *ends)])
    found: dict[int, list[Floats]] = {}
    for case, key, *values in run(_matrices(numbers, columns, total), total):
        if key not in found:
            found[key] = [np.full(total, np.nan) for _ in values]
        for column, value in zip(found[key], values, strict=True):
            if value is not None:
                column[case] = value
    return Drawn(delta, draws, smooth, found)


def _drawn(numbers: Numbers, name: int, noises: Noises, smooth: bool, jumps: bool) -> Floats:
    """Return a number as it is shown and in every draw; NaN where it is NULL."""
    draws = numbers.drawn(name, noises)
    if draws is None:  # it is not known: what depends on it, moves with it
        nothing = np.full(noises.draws * (smooth + jumps), np.nan)
        return np.concatenate([[math.nan, math.nan, LARGE, -LARGE], nothing])
    any_number = float(1009 + name % 997)
    known = numbers.linear(name)
    parts = [np.array([numbers.shown(name), *[any_number] * (FIRST - 1)])]
    if smooth:
        parts.append(draws)
    if jumps:
        parts.append(np.clip(draws, known.least, known.most) if known else draws)
    return np.concatenate(parts)


def _matrices(numbers: Numbers, columns: Mapping[int, Floats], total: int) -> Matrices:
    """Return all numbers in every case, as parameters of SQL."""
    matrices: Matrices = []
    for release in numbers.program.releases:
        matrices.append([])
        for k in range(len(release.numbers)):
            each = [columns.get(name_of(release.index, k, row)) for row in range(release.rows)]
            given = [column for column in each if column is not None]
            if not given:  # nothing that is drawn rests on it
                matrices[-1].append([[None] * len(each)] * total)
                continue
            values = np.stack(given, axis=1)
            plain: list[list[float | None]] = values.tolist()
            if np.isnan(values).any():
                plain = [[None if v is None or math.isnan(v) else v for v in row] for row in plain]
            matrices[-1].append(plain)
    return matrices
