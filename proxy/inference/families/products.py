"""A family however often measured; inner products of its rows with those of another, exact.

Two rows have a product where they share a cell.  Shapes: [rows of one, rows of two], int64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from msgspec import Struct

from proxy.inference.dense_system import MeasuredFamily
from proxy.inference.estimator import Floats, Integers, omega
from proxy.inference.family import Family
from proxy.inference.query import Factor, TooLargeError, contract

MAX_CELLS = 2**19  # over which the products of two families are taken
MAX_TIED = 2**23  # over which their conditions and labels, if these tie columns, are looked at


@dataclass(eq=False)
class Measured:
    """The blocks of one family, whose first coefficient is positive; those of a block may be the
    negative ones.
    """

    family: Family
    blocks: list[MeasuredFamily] = field(default_factory=list)
    _weights: dict[tuple[float, ...], Floats] = field(default_factory=dict)  # of the last scales

    @property
    def weights(self) -> Floats:
        """[blocks] ω² of each."""
        scales = tuple(block.scale for block in self.blocks)
        if scales not in self._weights:
            self._weights = {scales: omega(1 / np.array(scales)) ** 2}
        return self._weights[scales]


class Pairs(Struct, frozen=True, eq=False, dict=True):
    """The inner products of the rows of two families: those of rows that share a cell."""

    rows: Integers  # of one
    columns: Integers  # of two
    values: Integers

    @cached_property
    def most(self) -> int:
        """The largest sum of the absolute products of a row, of either family."""
        largest, sizes = 0, np.abs(self.values)
        for places in (self.rows, self.columns) if sizes.size else ():
            sums = np.zeros(int(places.max()) + 1, dtype=np.int64)
            np.add.at(sums, places, sizes)
            largest = max(largest, int(sums.max()))
        return largest

    def between(self, first: int, last: int) -> Pairs:
        """Return those of some rows of the second, numbered from 0."""
        here = (self.columns >= first) & (self.columns < last)
        return Pairs(self.rows[here], self.columns[here] - first, self.values[here])

    def times(self, number: int, most: int) -> Pairs:
        """Return the products times a number.

        Raises:
            TooLargeError: the sum of a row's is more than ``most`` then.
        """
        if self.most * number > most:
            raise TooLargeError(f"inner products past {most}")
        return self if number == 1 else Pairs(self.rows, self.columns, self.values * number)


def products(one: Family, two: Family) -> Pairs:
    """Return the inner products of the rows of two families, exactly, in the order of the rows.

    In units of the cells outside of the scopes of the two.

    Raises:
        TooLargeError: there are too many, or they are too large.
    """
    space = one.query.space
    axes, scope = tuple(sorted({*one.axes, *two.axes})), one.scope | two.scope
    if space.cells(axes) > MAX_CELLS:
        raise TooLargeError("too many inner products")
    ones = [Factor((a,), np.ones(space.sizes[a], dtype=np.int64)) for a in axes]
    total = np.zeros(tuple(space.sizes[a] for a in axes), dtype=np.int64)
    most = 0
    for part, term in one.query.parts.items():
        other = two.query.parts.get(part)
        if other is None:
            continue
        tied = {axis for f in (*term.factors, *other.factors) if len(f.axes) > 1 for axis in f.axes}
        if space.cells(tied.union(axes)) > MAX_TIED:
            raise TooLargeError("too many columns tied together")
        table = contract((*term.factors, *other.factors, *ones), axes)
        beside = space.cells(scope.difference(term.axes, other.axes, axes))
        times = term.scale * other.scale * beside
        largest = int(np.abs(table).max(initial=0)) * abs(times) * total.size
        most += largest
        if most >= 2**61:
            raise TooLargeError("inner products past 2**61")
        if largest:
            total = total + table.astype(np.int64) * times
    first, second = (_over(each, axes, total.shape) for each in (one, two))
    met = (first >= 0) & (second >= 0) & (total != 0)
    keys = first[met].astype(np.int64) * two.rows + second[met]
    order = np.argsort(keys)
    keys, values = keys[order], total[met][order]
    new = np.flatnonzero(np.diff(keys, prepend=-1))
    rows, columns = np.divmod(keys[new], two.rows)
    return Pairs(rows, columns, np.add.reduceat(values, new) if new.size else values)


def _over(family: Family, axes: Sequence[int], shape: tuple[int, ...]) -> Integers:
    """Return the labels of a family over more axes."""
    own = [family.labels.shape[family.axes.index(a)] if a in family.axes else 1 for a in axes]
    return np.broadcast_to(family.labels.reshape(own), shape)
