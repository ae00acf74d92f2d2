"""Families: the disjoint rows of one GROUP BY, as one coefficient query and one label tensor.

Row i of a family is its query restricted to the cells whose label is i; cells labelled -1 are in
no row.  Five thousand groups are two tensors: inner products with another query are one weighted
count per label, and the rows are orthogonal.  Answers, noise and weights of the rows are in units
of the family's one public grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from proxy.inference.query import (
    MAX_CELLS,
    SEPARABLE_STEPS,
    Factor,
    Integers,
    LinearQuery,
    Term,
    TooLargeError,
    contract,
)

Labels = NDArray[np.int32]
MAX_ROWS_INFERRED = 4000  # a larger family is inferred only if it was measured as it stands
PAIRS = 256  # cells that are looked at before all are
KEPT, KEPT_CELLS = 16, 2**19  # families whose rows are kept as queries, and their coefficients
LEAST_SIZE, ROW_SIZE = 20_000, 100  # bytes; small ones cost time rather than memory


class Family(Struct, frozen=True, eq=False, dict=True):
    """``rows`` disjoint queries: ``query`` where ``labels`` (over ``axes``) is 0, 1, ..., rows-1.

    With no axes the family is the query itself, one row.
    """

    query: LinearQuery
    axes: tuple[int, ...] = ()
    labels: Labels = field(default_factory=lambda: np.zeros((), dtype=np.int32))
    rows: int = 1

    def __post_init__(self) -> None:
        if self.labels.size > MAX_CELLS:
            raise TooLargeError(f"{self.labels.size} cells in the labels of one family")
        self.labels.setflags(write=False)

    @property
    def grid(self) -> Fraction:
        """The step of the rows' answers and noise, in answer per record."""
        return self.query.grid

    @cached_property
    def key(self) -> bytes:
        """A digest that families share whose rows are the same multiples of one another."""
        digest = blake2b(self.query.direction, digest_size=16)
        digest.update(repr((self.axes, self.labels.shape, self.rows)).encode())
        digest.update(self.labels.tobytes())
        return digest.digest()

    @cached_property
    def scope(self) -> frozenset[int]:
        """The axes along which its rows vary."""
        return frozenset({*self.query.axes, *self.axes})

    @cached_property
    def covered(self) -> Factor | None:
        """The indicator of the cells that are in some row; None where all are."""
        if not self.axes:
            return None
        inside = self.labels >= 0
        return None if inside.all() else Factor(self.axes, inside.astype(np.int64))

    @cached_property
    def bound(self) -> Term:
        """The most a record of each cell moves any row, in grid units: non-negative [scope]."""
        whole = self.query.bound
        if self.covered is None:
            return whole
        return Term.of(whole.scale, (*whole.factors, self.covered)) or Term(0)

    @property
    def sensitivity(self) -> int:
        """S in grid units: the most that one record moves a row."""
        return self.bound.largest

    @cached_property
    def cells(self) -> int:
        """How many coefficients its rows have, each as a query of its own.

        In a row the labels join the factors whose axes they share.
        """
        own, space, cells = set(self.axes), self.query.space, 0
        for term in self.query.parts.values():
            joined = [factor.axes for factor in term.factors if own & set(factor.axes)]
            cells += space.cells(own.union(*joined))
            cells += sum(f.array.size for f in term.factors if not own & set(f.axes))
        return self.rows * cells

    @cached_property
    def size(self) -> int:
        """Roughly the bytes that a history holds of it, and what it costs to be read again."""
        factors = {id(f): f for term in self.query.parts.values() for f in term.factors}
        arrays = self.labels.nbytes + sum(factor.array.nbytes for factor in factors.values())
        return LEAST_SIZE + arrays + ROW_SIZE * self.rows

    @cached_property
    def pairs(self) -> tuple[tuple[NDArray[np.intp], ...], tuple[NDArray[np.intp], ...]]:
        """Some cells, and for each another of its row: places along the label axes."""
        kinds = self.labels.reshape(-1)
        _, first = np.unique(kinds, return_index=True)
        chosen = np.linspace(0, kinds.size - 1, min(PAIRS, kinds.size)).astype(np.intp)
        others = first[np.searchsorted(kinds[first], kinds[chosen])]
        shape = self.labels.shape
        return np.unravel_index(chosen, shape), np.unravel_index(others, shape)

    def may_span(self, other: LinearQuery) -> bool:
        """Return False where multiples of the rows cannot add up to ``other``, which is soon seen.

        A factor over none of the label axes is in every row, and so in ``other``: factors are
        irreducible.  Of a family whose query does not vary along its label axes, ``other`` would
        have to have one value in all cells of a row, and 0 in the cells of none: in some cells.
        """
        if not all(self._shares(part, term) for part, term in other.parts.items()):
            return False
        if not self.axes or set(self.query.axes) & set(self.axes):
            return True
        here, there = self.pairs
        none = self.labels[here] < 0
        for term in other.parts.values():
            for factor in term.factors:
                if not set(factor.axes) <= set(self.axes) and set(factor.axes) & set(self.axes):
                    return True
            one, two = (_along(term, self.axes, places) for places in (here, there))
            if (one[none] != 0).any() or (one != two)[~none].any():
                return False
        return True

    def _shares(self, part: int, term: Term) -> bool:
        """Return False where a part of a query lacks a factor that every row has."""
        theirs, own = {factor.axes: factor.array for factor in term.factors}, set(self.axes)
        for factor in self.query.parts[part].factors if part in self.query.parts else ():
            if own.isdisjoint(factor.axes):
                if not set(factor.axes) <= set(term.axes):
                    return False
                if not np.array_equal(theirs.get(factor.axes, factor.array), factor.array):
                    return False
        return True

    def queries(self) -> Sequence[LinearQuery]:
        """Return its rows as queries of their own; those of the last small families are kept."""
        return _kept_queries(self) if self.cells <= KEPT_CELLS else _queries(self)

    def row(self, index: int) -> LinearQuery:
        """Return one row as a query of its own."""
        if not self.axes:
            return self.query
        return self.query.times(Factor(self.axes, (self.labels == index).astype(np.int64)))

    def subset(self, chosen: Sequence[int]) -> Family:
        """Return the family of some of the rows, renumbered in the order given."""
        if len(chosen) == self.rows and list(chosen) == list(range(self.rows)):
            return self
        if len(chosen) == 1:
            return Family(self.row(chosen[0]))
        new = np.full(self.rows + 1, -1, dtype=np.int32)  # the last entry answers label -1
        new[list(chosen)] = np.arange(len(chosen), dtype=np.int32)
        return Family(self.query, self.axes, new[self.labels], len(chosen))

    def apart(self, axis: int, codes: NDArray[np.bool_]) -> list[int]:
        """Return the rows without a coefficient where an axis has one of some codes.

        A row that the labels put there counts as having one, if any row has.
        """
        reach = np.zeros_like(codes)
        for term in self.query.parts.values():
            own = [factor for factor in term.factors if axis in factor.axes]
            if not own:
                reach[:] = True
            for factor in own:
                others = tuple(i for i, each in enumerate(factor.axes) if each != axis)
                reach |= (factor.array != 0).any(axis=others)
        reach &= codes
        if not reach.any():
            return list(range(self.rows))
        if axis not in self.axes:
            return []
        there = np.unique(self.labels.compress(reach, axis=self.axes.index(axis)))
        return [row for row in range(self.rows) if row not in there]

    def dots(self, other: LinearQuery) -> list[int]:
        """Return ⟨row, other⟩ of every row exactly, in units of grid · other.grid."""
        totals: list[int] = self.products(other).tolist()
        return totals

    def products(self, other: LinearQuery) -> NDArray[np.generic]:
        """Return the same as an array: int64, or object where one may be past 2**62."""
        totals: NDArray[Any] = np.zeros(self.rows, dtype=np.int64)
        for part, term in self.query.parts.items():
            if part in other.parts:
                table, times = self._table(term, other.parts[part])
                values: NDArray[Any] = _by_label(table, self.labels, self.rows)
                most = int(np.abs(values).max(initial=0)) * abs(times)
                if not most:
                    continue
                if most + int(np.abs(totals).max(initial=0)) >= 2**62:
                    values, totals = values.astype(object), totals.astype(object)
                totals = totals + values * times
        return totals

    def squares(self) -> list[int]:
        """Return ⟨row, row⟩ of every row exactly, in units of grid · grid."""
        return self.dots(self.query)

    def _table(self, one: Term, two: Term) -> tuple[NDArray[np.generic], int]:
        """Return Σ one · two over all but the label axes, and a constant to multiply it by."""
        factors = (*one.factors, *two.factors)
        used = {*one.axes, *two.axes, *self.axes}
        sizes = self.query.space.sizes
        beside = math.prod(size for axis, size in enumerate(sizes) if axis not in used)
        ones = [Factor((a,), np.ones(sizes[a], dtype=np.int64)) for a in self.axes]
        return contract((*factors, *ones), self.axes), one.scale * two.scale * beside


def _queries(family: Family) -> Sequence[LinearQuery]:
    """Return its rows as queries; a row of all combinations of some codes is a product as it is."""
    labels = family.labels
    if labels.ndim < 2 or labels.size << labels.ndim > SEPARABLE_STEPS:
        return tuple(map(family.row, range(family.rows)))
    cells = np.nonzero(labels >= 0)
    kinds = labels[cells]
    combinations = np.ones(family.rows, dtype=np.int64)
    codes: list[NDArray[np.bool_]] = []  # along each axis: which row has which code
    for places, size in zip(cells, labels.shape, strict=True):
        codes.append(np.zeros((family.rows, size), dtype=np.bool_))
        codes[-1][kinds, places] = True
        combinations *= codes[-1].sum(axis=1)
    whole = combinations == np.bincount(kinds, minlength=family.rows)
    shared: dict[tuple[int, bytes], Factor] = {}  # with what is known of each

    def side(axis: int, own: NDArray[np.bool_]) -> Factor:
        key = axis, own.tobytes()
        if key not in shared:
            shared[key] = Factor((axis,), own.astype(np.int64))
        return shared[key]

    def row(index: int) -> LinearQuery:
        if not whole[index]:
            return family.row(index)
        sides = zip(family.axes, (each[index] for each in codes), strict=True)
        return family.query.times(*(side(axis, own) for axis, own in sides))

    return tuple(map(row, range(family.rows)))


_kept_queries = lru_cache(maxsize=KEPT)(_queries)


def _along(term: Term, axes: Sequence[int], places: Sequence[NDArray[np.intp]]) -> Integers:
    """Return a term's coefficients in some cells, up to the factors over other axes."""
    at = dict(zip(axes, places, strict=True))
    found = np.ones(len(places[0]), dtype=np.int64)
    for factor in term.factors:
        if set(factor.axes) <= at.keys():
            found = found * factor.array[tuple(at[axis] for axis in factor.axes)]
    return found


def _by_label(table: NDArray[np.generic], labels: Labels, rows: int) -> NDArray[np.generic]:
    """Return the sums of a table's cells by label, exactly."""
    if not labels.ndim:
        return table.reshape(1)
    flat, kinds = table.reshape(-1), labels.reshape(-1)
    inside = kinds >= 0
    most = int(np.abs(flat).max(initial=0)) * flat.size
    if most < 2**53:
        return np.bincount(
            kinds[inside], weights=flat[inside].astype(np.float64), minlength=rows
        ).astype(np.int64)
    sums = np.zeros(rows, dtype=object)
    np.add.at(sums, kinds[inside], flat[inside].astype(object))
    return sums
