"""Where the rows of a family have been measured: as it stands, or as parts of it.

A block is a part of a family if it has the same query, and each of its rows is one of the family's.
So is what is left of a family of an older snapshot, whose other rows are of cells that are read
again, and what was measured of it for a query that needs few of its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from proxy.inference.dense_system import MeasuredFamily
from proxy.inference.estimator import Floats, Integers
from proxy.inference.family import Family
from proxy.inference.history import History


@dataclass(eq=False)
class Cover:
    """The blocks of a history that are parts of a family."""

    family: Family
    parts: list[tuple[MeasuredFamily, Integers]] = field(default_factory=list)  # [rows] or -1
    _looked: int = 0  # blocks of the history

    def follow(self, history: History) -> None:
        """Look at the blocks that are new."""
        new, self._looked = history.blocks[self._looked :], len(history.blocks)
        for block in new:
            rows = rows_of(block.family, self.family)
            if rows is not None:
                self.parts.append((block, rows))

    def scales(self) -> Floats:
        """Return the least noise scale of each row [rows]; infinity where there is none."""
        found = np.full(self.family.rows, np.inf)
        for block, rows in self.parts:
            np.minimum(found, np.where(rows >= 0, block.scale, np.inf), out=found)
        return found

    def refinable(self, row: int) -> MeasuredFamily | None:
        """Return the block of least noise that has a row and may be refined."""
        found = [block for block, rows in self.parts if rows[row] >= 0 and block.refinable]
        return min(found, key=lambda block: block.scale, default=None)

    def best(self) -> tuple[Integers, Floats, Floats]:
        """Return, for each row, its row in the history with least noise, its sign and rate."""
        numbers = np.full(self.family.rows, -1)
        signs, rates = np.ones(self.family.rows), np.zeros(self.family.rows)
        for block, rows in self.parts:
            better = (rows >= 0) & (1 / block.scale > rates)
            numbers[better] = block.start + rows[better]
            signs[better] = block.family.query.sign
            rates[better] = 1 / block.scale
        return numbers, signs, rates


def cover(history: History, family: Family) -> Cover:
    """Return where the rows of a family have been measured."""
    found = history.covers.setdefault(family.key, Cover(family))
    assert isinstance(found, Cover)
    found.follow(history)
    return found


def rows_of(part: Family, family: Family) -> Integers | None:
    """Return, for each row of a family, that of a part of it, or -1; None if it is no part."""
    if part.key == family.key:
        return np.arange(family.rows)
    if part.query.direction != family.query.direction or part.axes != family.axes:
        return None if part.rows > 1 else _single(part, family)
    mine, theirs = family.labels.ravel(), part.labels.ravel()
    inside = theirs >= 0
    if (mine[inside] < 0).any():
        return None
    owner = np.full(part.rows, -1)
    owner[theirs[inside]] = mine[inside]
    if (owner < 0).any() or (owner[theirs[inside]] != mine[inside]).any():
        return None
    sizes = np.bincount(mine[mine >= 0], minlength=family.rows)
    if (sizes[owner] != np.bincount(theirs[inside], minlength=part.rows)).any():
        return None
    rows = np.full(family.rows, -1)
    rows[owner] = np.arange(part.rows)
    return rows


def _single(part: Family, family: Family) -> Integers | None:
    """Return the same of a single query, which may be a row as a query of its own."""
    if part.axes or (family.rows > 1 and part.query.axes != family.axes):
        return None
    for row in _touched(part, family):
        if part.query.direction == family.row(row).direction:
            rows = np.full(family.rows, -1)
            rows[row] = 0
            return rows
    return None


def _touched(part: Family, family: Family) -> Iterator[int]:
    """Yield the one row that a query over the label axes of a family can be."""
    terms = list(part.query.parts.values())
    if len(terms) != 1 or not family.axes:
        return
    nonzero = terms[0].dense(family.axes, family.query.space) != 0
    labels = np.unique(family.labels[nonzero])
    if len(labels) == 1 and labels[0] >= 0:
        yield int(labels[0])
