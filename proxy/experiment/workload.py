"""The paper's workload: a histogram, random queries that ask mostly for its first cells, a tree.

Beside it, for what the paper has not: random ranges of a long axis.

A query throws n_t dice, n_t uniform on 1 … 10, on the cells with P_j ∝ 10^(-⌊(j-1)/10⌋); its
coefficients count them (paper, Formula "Query-P"; its factor 0.9 makes P sum to 10, so it is
normalised here).  Of tens of thousands of cells only the first few dozen are ever asked for: the
first ``SINGLE`` are kept as they are, the others, which no query tells apart, in lumps.  Invariant:
every query and every row of the tree is constant on every lump, so that estimators, variances,
costs and answers are those of the full histogram.

The paper's histograms may not be redistributed.  The stand-ins have the same number of cells, the
same total and number of empty cells, and what else is published of them.

Shapes: counts [n] before lumping, [cells] after it; coefficients [cells].  Units: records.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Integers = NDArray[np.int64]

SINGLE = 128  # cells that are kept as they are; P of all others together is below 1e-12
TRACE_HEAD = (1423, 1056, 770, 514, 382, 369, 369, 348, 318, 315)


class Request(Struct, frozen=True, eq=False):
    """A query and how good its answer must be: within ``half_width``, but for ``delta``."""

    coefficients: Integers  # [cells]
    half_width: float
    delta: float

    @property
    def sensitivity(self) -> int:
        """S, the most that one record moves the answer."""
        return int(np.abs(self.coefficients).max())


def trace(rng: np.random.Generator) -> Integers:
    """Return a stand-in for a network trace: 65,536 cells, falling, nearly all of them empty."""
    cells, total, empty = 65_536, 25_714, 63_318
    ranks = np.arange(len(TRACE_HEAD) + 1, cells - empty + 1)
    last = TRACE_HEAD[-1]
    # A power law that goes on where the published values end, and has about the total.
    curve = last * (ranks / len(TRACE_HEAD)) ** -1.2 * rng.lognormal(0, 0.1, len(ranks))
    tail = np.clip(np.rint(curve), 1, last).astype(np.int64)
    tail = np.sort(_with_total(tail, total - sum(TRACE_HEAD), 1, last, rng))[::-1]
    return np.concatenate([TRACE_HEAD, tail, np.zeros(empty, dtype=np.int64)])


def searches(rng: np.random.Generator) -> Integers:
    """Return a stand-in for counts of searches over time: 32,768 cells, the first 1,216 empty."""
    cells, total, empty, head, largest = 32_768, 335_889, 17_082, 1_216, 496
    values = np.clip(np.rint(rng.lognormal(2.5, 1.0, cells - empty)), 1, largest).astype(np.int64)
    values[0] = largest
    values[1:] = _with_total(values[1:], total - largest, 1, largest, rng)
    counts = np.zeros(cells, dtype=np.int64)
    counts[head + rng.permutation(cells - head)[: len(values)]] = values
    return counts


def axis(rng: np.random.Generator) -> Integers:
    """Return the counts along a long axis, such as one of ages in days: 4,096 cells, about 20."""
    return rng.poisson(20, 4096)


STAND_INS = {"trace": trace, "searches": searches, "axis": axis}


def _with_total(
    values: Integers, total: int, low: int, high: int, rng: np.random.Generator
) -> Integers:
    """Return the values moved at random, within [low, high], until they have this total."""
    values = values.copy()
    while missing := total - int(values.sum()):
        free = np.flatnonzero(values < high if missing > 0 else values > low)
        chosen = rng.permutation(free)[: abs(missing)]
        values[chosen] += 1 if missing > 0 else -1
    return values


def lumps(cells: int) -> Integers:
    """Return where the lumps end: SINGLE cells one by one, then doubling, as a tree halves."""
    ends = [*range(1, min(SINGLE, cells) + 1)]
    while ends[-1] < cells:
        ends.append(min(2 * ends[-1], cells))
    return np.array(ends)


def lumped(counts: Integers) -> Integers:
    """Return the counts [cells] of the lumps."""
    return np.add.reduceat(counts, np.concatenate([[0], lumps(len(counts))[:-1]]))


def requests(
    cells: int, count: int, widths: tuple[float, float], delta: float, rng: np.random.Generator
) -> list[Request]:
    """Return random queries over lumps, 2·half_width uniform on ``widths``."""
    asked = min(SINGLE, cells)
    chances = 10.0 ** -(np.arange(asked) // 10)
    chances /= chances.sum()
    found = []
    for _ in range(count):
        coefficients = np.zeros(len(lumps(cells)), dtype=np.int64)
        coefficients[:asked] = rng.multinomial(rng.integers(1, 11), chances)
        found.append(Request(coefficients, rng.uniform(*widths) / 2, delta))
    return found


def ranges(
    cells: int, count: int, widths: tuple[float, float], delta: float, rng: np.random.Generator
) -> list[Request]:
    """Return random ranges [a, b) of cells, a < b uniform, 2·half_width uniform on ``widths``."""
    found = []
    for _ in range(count):
        first, end = sorted(rng.choice(cells + 1, 2, replace=False))
        coefficients = np.zeros(cells, dtype=np.int64)
        coefficients[first:end] = 1
        found.append(Request(coefficients, rng.uniform(*widths) / 2, delta))
    return found


def runs(asked: Sequence[Request]) -> Integers:
    """Return where the runs of cells begin that no request tells apart."""
    changes = np.any([np.diff(request.coefficients) != 0 for request in asked], axis=0)
    return np.concatenate([[0], np.flatnonzero(changes) + 1])


def tree(cells: int) -> list[Integers]:
    """Return the levels of a binary tree over the cells, from the root on: [nodes, cells] each.

    Of the part that no query asks for, each node is kept that hangs on the way to the first cells;
    what lies below it could sharpen it a little, and is left out.
    """
    ends = lumps(cells)
    width = 1 << (cells - 1).bit_length()
    levels = []
    while width >= 1:
        beyond = min(cells, 2 * width if width >= SINGLE else SINGLE)
        nodes = [(ends > start) & (ends <= start + width) for start in range(0, beyond, width)]
        levels.append(np.array(nodes, dtype=np.int64))
        width //= 2
    return levels
