"""What each cell of the cube has paid, exactly, and the dearest cell under any condition.

A measurement of h with noise of scale s (in grid units) costs a record of cell j the privacy loss
c_j / s, c_j its bound on how far it moves the answer, and losses add up (paper, Theorem 5.4):

    B_j = Σ_i c_ij / s_i,      system cost = max_j B_j

Charges are integers, ⌈2⁴⁰ c_j / s⌉, so that no sum drifts and none is too small; budgets round
down.  B is a sum of small tensors, never a vector over the cube: its maximum is found by max-sum
elimination over the axes, exact while the tables fit, else an upper bound, never a lower one.

Units: charges in 2⁻⁴⁰ alpha per record.  Source: Xiao & Xiong, Theorem 5.4; the elimination is
that of graphical models (mini-buckets where it is forced to bound).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from proxy.inference.family import Family
from proxy.inference.query import Factor, Integers, Term, TooLargeError
from proxy.inference.space import Space

UNIT = 2**40  # charges per alpha
DEAREST = 2**52  # one measurement may charge less than that
TABLE = 2**22  # cells of the largest table
FORBIDDEN = -(2**61)  # stands for minus infinity in tables
CEILING = 2**60  # past every budget: sums stop here, so that none wraps round


class TooDearError(TooLargeError):
    """A measurement would cost more than is computed with."""


@lru_cache(maxsize=64)  # of one statement: it is asked for at each step of measuring
def charge(family: Family, scale: float, before: float | None = None) -> Term:
    """Return what a measurement charges each cell: non-negative integers [scope], 2⁻⁴⁰ alpha.

    A refinement, of answers of the scale ``before``, charges the difference.

    Raises:
        TooLargeError: the magnitudes vary over too many cells at once, or are too large.
    """
    bound = family.bound
    flags = tuple(factor for factor in bound.factors if factor.largest == 1)
    others = Term(bound.scale, tuple(factor for factor in bound.factors if factor.largest != 1))
    if not others.axes:
        return Term(_paid(bound.scale, scale, before), flags)
    magnitudes = others.dense(others.axes, family.query.space)
    values, places = np.unique(magnitudes, return_inverse=True)
    paid = [_paid(int(value), scale, before) for value in values]
    table = np.array(paid, dtype=np.int64)[places].reshape(magnitudes.shape)
    own = Term.of(1, [Factor(others.axes, table)]) or Term(0)
    return Term(own.scale, tuple(sorted((*own.factors, *flags), key=lambda factor: factor.axes)))


def _paid(magnitude: int, scale: float, before: float | None) -> int:
    """Return ⌈2⁴⁰ c / s⌉, less what was paid with another scale."""
    above, below = scale.as_integer_ratio()
    paid = -(-UNIT * magnitude * below // above)
    if paid >= DEAREST:
        raise TooDearError(f"a cost past {DEAREST // UNIT:,} alpha")
    return paid if before is None else paid - _paid(magnitude, before, None)


def budget_units(budget: Fraction) -> int:
    """Return a budget in 2⁻⁴⁰ alpha, rounded down."""
    return int(budget * UNIT // 1)


class Maximum(Struct, frozen=True):
    """The largest sum over cells, or an upper bound on it where not ``exact``."""

    value: int
    exact: bool


class Table(Struct, frozen=True, eq=False):
    """A summand over some axes: int64 [sizes]."""

    axes: tuple[int, ...]
    array: Integers

    def over(self, axes: Sequence[int]) -> Integers:
        """Return the array shaped to broadcast over more axes."""
        sizes = dict(zip(self.axes, self.array.shape, strict=True))
        return self.array.reshape([sizes.get(axis, 1) for axis in axes])


def maximum(
    terms: Iterable[Term], space: Space, within: Sequence[Factor] = (), cells: int = TABLE
) -> Maximum:
    """Return max over the cells inside ``within`` (0/1 factors) of the sum of the terms.

    Terms are non-negative.  Where no cell is inside, the value is 0.
    """
    items, exact = _tables(terms, space, cells)
    found = _peak(items, within, cells)
    return Maximum(found.value, found.exact and exact)


def _tables(terms: Iterable[Term], space: Space, cells: int) -> tuple[list[Table], bool]:
    """Return the terms as tables, those over the same axes added up; False where relaxed."""
    exact = True
    tables: dict[tuple[int, ...], Integers] = {}
    for term in terms:
        relaxed = _fitting(term, space, cells)
        exact &= relaxed is term
        array = relaxed.dense(relaxed.axes, space)
        before = tables.get(relaxed.axes)
        tables[relaxed.axes] = array if before is None else _sum(before, array)
    return [Table(axes, array) for axes, array in tables.items()], exact


def _peak(items: list[Table], within: Sequence[Factor], cells: int) -> Maximum:
    """Return the largest sum of tables inside a region; 0 where nothing is inside."""
    items = [*items, *(Table(f.axes, np.where(f.array > 0, 0, FORBIDDEN)) for f in within)]
    exact = True
    if len(items) > 1:
        items = _coarsened(items, cells)
    while any(item.axes for item in items):
        if len(items) == 1:
            items = [Table((), items[0].array.max())]
            continue
        items, whole = _eliminate(items, cells)
        exact &= whole
    return Maximum(max(sum(int(item.array) for item in items), 0), exact)


def _sum(left: Integers, right: Integers) -> Integers:
    """Return left + right within FORBIDDEN and CEILING."""
    return np.asarray(np.clip(left + right, FORBIDDEN, CEILING))


def _fitting(term: Term, space: Space, cells: int) -> Term:
    """Return the term, or an upper bound on it over fewer axes, whose table fits."""
    factors, scale = list(term.factors), term.scale
    while space.cells(axis for factor in factors for axis in factor.axes) > cells:
        dropped = max(factors, key=lambda factor: factor.array.size)
        factors.remove(dropped)
        scale *= dropped.largest
    return term if len(factors) == len(term.factors) else Term(scale, tuple(factors))


def _coarsened(tables: list[Table], cells: int) -> list[Table]:
    """Keep, along each axis, one of all the values that every table treats alike."""
    sizes = {a: n for t in tables for a, n in zip(t.axes, t.array.shape, strict=True)}
    if math.prod(sizes.values()) <= cells:
        axes = tuple(sorted(sizes))
        total: NDArray[np.int64] = np.zeros([sizes[a] for a in axes], dtype=np.int64)
        for table in tables:
            total = _sum(total, table.over(axes))
        return [Table(axes, total)]
    for axis in sorted({axis for table in tables for axis in table.axes}):
        tables, _ = _alike(tables, axis)
    return tables


def _alike(tables: list[Table], axis: int) -> tuple[list[Table], Integers]:
    """Keep, along an axis, one of all the codes that every table treats alike.

    Return for each code which of those that are kept stands for it, too.
    """
    mine = [table for table in tables if axis in table.axes]
    slices = [np.moveaxis(t.array, t.axes.index(axis), 0) for t in mine]
    # np.unique(axis=0) would make a type of as many fields as a row has numbers: minutes
    alike: dict[tuple[bytes, ...], int] = {}
    kept: list[int] = []
    classes = []
    for code, parts in enumerate(zip(*slices, strict=True)):
        place = alike.setdefault(tuple(part.tobytes() for part in parts), len(kept))
        if place == len(kept):
            kept.append(code)
        classes.append(place)
    tables = [
        Table(t.axes, np.take(t.array, kept, axis=t.axes.index(axis))) if axis in t.axes else t
        for t in tables
    ]
    return tables, np.array(classes, dtype=np.int64)


def _eliminate(
    tables: list[Table], cells: int, keep: Collection[int] = ()
) -> tuple[list[Table], bool]:
    """Maximise over the axis that is cheapest to maximise over, of those that are not kept."""
    sizes = {a: n for t in tables for a, n in zip(t.axes, t.array.shape, strict=True)}

    def cost(axes: Iterable[int]) -> int:
        total = 1
        for axis in set(axes):
            total *= sizes[axis]
        return total

    others = [axis for axis in sizes if axis not in keep]
    axis = min(others, key=lambda a: cost(b for t in tables if a in t.axes for b in t.axes))
    rest = [table for table in tables if axis not in table.axes]
    buckets: list[list[Table]] = []
    for table in sorted((t for t in tables if axis in t.axes), key=lambda t: -t.array.size):
        for bucket in buckets:
            if cost(a for t in (*bucket, table) for a in t.axes) <= cells:
                bucket.append(table)
                break
        else:
            buckets.append([table])
    for bucket in buckets:
        axes = tuple(sorted({a for table in bucket for a in table.axes}))
        total: NDArray[np.int64] = np.zeros([sizes[a] for a in axes], dtype=np.int64)
        for table in bucket:
            total = _sum(total, table.over(axes))
        best = np.maximum(total.max(axis=axes.index(axis)), FORBIDDEN)  # it must not wrap
        rest.append(Table(tuple(a for a in axes if a != axis), best))
    return rest, len(buckets) <= 1


class BudgetRule(Struct, frozen=True, eq=False):
    """A budget of the cells inside ``within`` (0/1 factors; none: all cells), 2⁻⁴⁰ alpha."""

    budget: int
    within: tuple[Factor, ...] = ()
    name: str = "the budget"


class Overspend(Struct, frozen=True):
    """A rule that some cell would break: the charge requested, and what was spent there."""

    rule: BudgetRule
    requested: int
    spent: int

    @property
    def left(self) -> int:
        """The rest of the rule's budget in the requested cells."""
        return max(self.rule.budget - self.spent, 0)


def _halved(table: Table, axis: int) -> Table:
    """Return the larger of each two neighbours along an axis, if the table has it."""
    if axis not in table.axes:
        return table
    place = table.axes.index(axis)
    starts = np.arange(0, table.array.shape[place], 2)
    return Table(table.axes, np.maximum.reduceat(table.array, starts, axis=place))


class Most(Struct, frozen=True, eq=False):
    """The most that any cell has paid by the codes of some axes: int64 [classes of each axis].

    Codes that all charges treat alike are of one class; ``classes`` has that of each code, by
    axis.  Below 0 where no cell is inside; an upper bound, where not ``exact``.
    """

    classes: tuple[Integers, ...]
    table: Integers
    exact: bool


@dataclass(eq=False)
class Account:
    """The charges of one history: B as a list of terms, and as one table while that is small."""

    space: Space
    base: int = 0  # what every cell starts with: a snapshot's inheritance
    cells: int = TABLE
    terms: list[Term] = field(default_factory=list)
    _axes: tuple[int, ...] = ()
    _table: Integers | None = field(default_factory=lambda: np.zeros((), dtype=np.int64))
    _most: int = 0  # no cell of the table is above

    def add(self, terms: Iterable[Term]) -> None:
        """Charge the cells."""
        alike: dict[tuple[tuple[int, ...], ...], list[Term]] = {}
        for term in terms:
            self.terms.append(term)
            alike.setdefault(tuple(factor.axes for factor in term.factors), []).append(term)
        for each in alike.values():
            self._add(each)

    def _add(self, terms: Sequence[Term]) -> None:
        """Add terms whose factors have the same axes to the table."""
        own = terms[0].axes
        axes = tuple(sorted({*self._axes, *own}))
        if self._table is None or self.space.cells(axes) > self.cells:
            self._table = None
            return
        if axes != self._axes:
            wide = Table(self._axes, self._table).over(axes)
            shape = [self.space.sizes[axis] for axis in axes]
            self._axes, self._table = axes, np.broadcast_to(wide, shape).copy()
        for array, most in _sums(terms, self.space):
            self._table += Table(own, array).over(axes)
            self._most += most
            if self._most > CEILING:
                np.minimum(self._table, CEILING, out=self._table)
                self._most = int(self._table.max())

    def forget(self) -> None:
        """Start again without charges."""
        self.terms, self._axes, self._table = [], (), np.zeros((), dtype=np.int64)
        self._most = 0

    @property
    def least(self) -> int:
        """A lower bound on what any cell has paid; min B_j where there is one table."""
        return self.base + (0 if self._table is None else int(self._table.min()))

    def spent(self, within: Sequence[Factor] = (), more: Sequence[Term] = ()) -> Maximum:
        """Return the largest B_j inside ``within``, with the charges of ``more`` added."""
        if self._table is None:
            found = maximum([*self.terms, *more], self.space, within, self.cells)
        else:
            items, exact = _tables(more, self.space, self.cells)
            found = _peak([Table(self._axes, self._table), *items], within, self.cells)
            found = Maximum(found.value, found.exact and exact)
        return Maximum(found.value + self.base, found.exact)

    def most_by(self, axis: int) -> Integers:
        """Return, by code of an axis, the most that a cell has paid there, or a bound on it."""
        found = self.most((axis,))
        return np.asarray(found.table[found.classes[0]])

    def most(
        self, axes: Sequence[int], within: Sequence[Factor] = (), apart: Sequence[Factor] = ()
    ) -> Most:
        """Return the largest B_j inside ``within`` by the codes of some axes.

        Codes that ``apart`` tells from each other are in classes of their own, too.
        """
        items, classes, exact = self._by_class(axes, [*within, *apart])
        sizes = {axis: int(codes.max()) + 1 for axis, codes in classes.items()}
        while math.prod(sizes.values()) > self.cells:
            longest = max(axes, key=sizes.__getitem__)
            items, exact = [_halved(item, longest) for item in items], False
            classes[longest] //= 2
            sizes[longest] = -(-sizes[longest] // 2)
        rest = len(within) + len(apart)
        kept = items[: len(items) - rest]
        for item in items[len(kept) : len(kept) + len(within)]:
            kept.append(Table(item.axes, np.where(item.array > 0, 0, FORBIDDEN)))
        while any(axis not in axes for item in kept for axis in item.axes):
            kept, whole = _eliminate(kept, self.cells, axes)
            exact &= whole
        total: Integers = np.zeros([sizes[axis] for axis in axes], dtype=np.int64)
        for item in kept:
            total = _sum(total, item.over(axes))
        return Most(tuple(classes[axis] for axis in axes), total + self.base, exact)

    def classes(self, apart: Sequence[Factor] = ()) -> dict[int, int]:
        """Return how many kinds of codes the charges tell apart, by axis along which they vary."""
        items, _, _ = self._by_class((), apart)
        return {a: n for item in items for a, n in zip(item.axes, item.array.shape, strict=True)}

    def _by_class(
        self, axes: Sequence[int], apart: Sequence[Factor]
    ) -> tuple[list[Table], dict[int, Integers], bool]:
        """Return charges, then ``apart``, by class of codes; the classes along some axes."""
        if self._table is None:
            items, exact = _tables(self.terms, self.space, self.cells)
        else:
            items, exact = [Table(self._axes, self._table)], True
        items += [Table(factor.axes, factor.array) for factor in apart]
        classes = {axis: np.zeros(self.space.sizes[axis], dtype=np.int64) for axis in axes}
        for axis in sorted({axis for item in items for axis in item.axes}):
            items, found = _alike(items, axis)
            if axis in classes:
                classes[axis] = found
        return items, classes, exact

    def check(self, terms: Sequence[Term], rules: Iterable[BudgetRule]) -> Overspend | None:
        """Return the first rule that a charged cell breaks if these are added, else None.

        A cell that is past a rule already, since the rule is newer, stops only what charges it.
        """
        for rule in rules:
            if self.spent(rule.within, terms).value > rule.budget and any(
                self.spent(inside.factors, terms).value > rule.budget
                for inside in _charged(terms, rule)
            ):
                return self._overspend(terms, rule)
        return None

    def _overspend(self, terms: Sequence[Term], rule: BudgetRule) -> Overspend:
        requested = maximum(terms, self.space, rule.within, self.cells).value
        inside = [*rule.within, *_support(terms)]
        spent = self.spent(_joined(inside)).value
        return Overspend(rule, requested, spent)


def _sums(terms: Sequence[Term], space: Space) -> Iterator[tuple[Integers, int]]:
    """Yield sums of terms whose factors have the same axes, and what no cell of a sum is above."""
    axes = terms[0].axes
    many = max(1, TABLE // space.cells(axes))
    for start in range(0, len(terms), many):
        chosen = terms[start : start + many]
        most = sum(term.largest for term in chosen)
        if most >= 2**53 or len(chosen) == 1:
            yield from ((term.dense(axes, space), term.largest) for term in chosen)
            continue
        # whole numbers, none negative, whose sum is exact in floats in whatever order
        operands: list[Any] = [np.array([term.scale for term in chosen], dtype=np.float64), [0]]
        for place, factor in enumerate(chosen[0].factors):
            stacked = np.array([term.factors[place].array for term in chosen], dtype=np.float64)
            operands += [stacked, [0, *(axes.index(axis) + 1 for axis in factor.axes)]]
        total = np.einsum(*operands, [*range(1, len(axes) + 1)], optimize=True)
        yield np.asarray(total).astype(np.int64), most


def _charged(terms: Iterable[Term], rule: BudgetRule) -> Iterator[Term]:
    """Yield, as 0/1 factors, the cells of a rule that each of the terms charges, if there are."""
    for term in terms:
        if term.scale and (inside := Term.of(1, [*rule.within, *_support([term])])):
            yield inside


def _support(terms: Sequence[Term]) -> list[Factor]:
    """Return 0/1 factors that hold every cell that a single term charges; none for several."""
    if len(terms) != 1:
        return []
    return [Factor(f.axes, (f.array != 0).astype(np.int64)) for f in terms[0].factors]


def _joined(factors: Sequence[Factor]) -> tuple[Factor, ...]:
    term = Term.of(1, factors)
    return term.factors if term else (Factor((), np.zeros((), dtype=np.int64)),)
