"""What a ratio of two linear queries can be, whatever the records: no more than for one record.

(Σ a) / (Σ b) lies between the least and the largest a / b of a record, where every b > 0 but where
a = b = 0.  In a record of a cell a and b are linear in its measure, so that the ends of the clip,
and NULL, are all that is to be looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from proxy.inference.functions.images import Ends
from proxy.inference.query import COUNT, LinearQuery, TooLargeError, present_part, sum_part

Floats = NDArray[np.float64]
CELLS = 2**16  # that are looked at
QUERIES = 6  # that are added up by those who ask
ANYTHING = (-math.inf, math.inf)


def added(terms: Sequence[tuple[LinearQuery, float]]) -> LinearQuery | None:
    """Return Σ coefficient · query; None of coefficients that do not fit."""
    try:
        return reduce(add, [query * Fraction(times) for query, times in terms])
    except TooLargeError:
        return None


def bounds(top: LinearQuery, bottom: LinearQuery) -> Ends:
    """Return the least and the most that a ratio of two queries can be, its bottom above 0."""
    axes = tuple(sorted({*top.axes, *bottom.axes}))
    measures = {(part - 1) // 2 for part in (*top.parts, *bottom.parts) if part != COUNT}
    if top.space.cells(axes) > CELLS or len(measures) > 1:
        return ANYTHING
    over, shares = [0.0], []
    pairs = zip(_records(top, axes, measures), _records(bottom, axes, measures), strict=True)
    for one, two in pairs:
        if two.min() < 0:
            return ANYTHING
        held = two > 0
        over += [float(one[~held].min(initial=0.0)), float(one[~held].max(initial=0.0))]
        if held.any():
            share = one[held] / two[held]
            shares += [float(share.min()), float(share.max())]
    least = -math.inf if min(over) < 0 else min(shares, default=-math.inf)
    return least, (math.inf if max(over) > 0 else max(shares, default=math.inf))


def _records(query: LinearQuery, axes: tuple[int, ...], measures: set[int]) -> Iterator[Floats]:
    """Yield what a record of each cell adds: at the ends of its measure's clip, and where NULL."""
    dense = {part: term.dense(axes, query.space) for part, term in query.parts.items()}
    nothing = np.zeros([query.space.sizes[axis] for axis in axes])
    grid, base = float(query.grid), dense.get(COUNT, nothing)
    if not measures:
        yield np.asarray(grid * base)
    for k in measures:
        box = query.space.boxes[k]
        there = base + dense.get(present_part(k), nothing)
        for end in (box.low, box.high):
            yield np.asarray(grid * (there + dense.get(sum_part(k), nothing) * end))
        if box.nullable:
            yield np.asarray(grid * base)
