"""The best estimate from families of any size together: conjugate gradients over their rows.

The best estimator of q from rows h_i has the least Σ (a_i / ω_i)² with Σ a_i h_i = q.  With a = Ω s
it is the s of least norm with  M s = Ω b,  M = Ω G Ω,  G = ⟨h, h⟩,  b = ⟨h, q⟩,  which conjugate
gradients from 0 find, since they stay in the range of M.  G is sparse (two rows have a product
where they share a cell), and of marginals it has few distinct eigenvalues, so few steps are enough.

Nothing shows beforehand that q is in the span.  Floats choose whole numbers A, with a = A / D; then
‖D q - Σ A_i h_i‖² = D (D ⟨q, q⟩ - A·b) - A·(D b - G A)  is a whole number, and exact, whatever the
floats were.  It bounds the coefficient that is missed in any cell, and so the bias: ``slack``.

Families of one key, the same GROUP BY measured again, are one family here, whose weight is the sum
of theirs.  Which families are solved together is chosen by the query's axes, within bounds.

Shapes: n rows of the chosen families, m queries: G [n, n], b and a [n, m].
Source: Xiao & Xiong, Theorem 3.1; the method is ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from scipy import sparse

from proxy.inference.dense_system import MeasuredFamily
from proxy.inference.estimator import (
    Cancellation,
    Estimator,
    Floats,
    Integers,
    never_cancel,
    omega,
)
from proxy.inference.families.products import MAX_CELLS, Measured, Pairs, products
from proxy.inference.families.solving import System, coefficients, fractions, missing
from proxy.inference.family import Family
from proxy.inference.query import TooLargeError
from proxy.inference.space import Space

MAX_FAMILIES = 16  # that are solved together: nearest to the query, with least noise
MAX_LOOKS = 64  # at families, which of them these are
MAX_ROWS = 2**15  # that are solved together
MAX_KEPT = 2**21  # pairs of rows whose products are kept, and looked up again
MAX_SYSTEMS = 4  # that are kept
COLUMNS = 64  # queries that are solved at once
MAX_WORK = 2**25  # products of all queries, in a step
LOUDEST = 1e300  # the largest variance that is compared
EXACT = 1e-9  # of the noise: the bias of what may stand for other estimators
NEAR = 2.0**-10  # of the noise: a bias that may be more is of a query that is not in the span
MAX_SUM = 2**53  # of the products of one row with those of a family


Solved = tuple[Estimator | None, frozenset[bytes]]  # and the families that say no more of it


class Layout(Struct, frozen=True, eq=False):
    """Which rows of the history the rows of families are: those of each of their blocks."""

    starts: Integers  # [families + 1] the first row of each
    parts: Sequence[frozenset[int]]  # [families] of their queries
    counts: Integers  # [families] of their blocks
    firsts: Integers  # [families, blocks] the row of the history that is the first of a block
    signs: Floats  # [families, blocks]
    rates: Floats  # [families, blocks]
    shares: Floats  # [families, blocks] of a coefficient; of the last: what is left

    @staticmethod
    def of(families: Sequence[Measured]) -> Layout:
        """Return the layout of families as they were measured."""
        counts = np.array([len(known.blocks) for known in families])
        firsts = np.zeros((len(families), counts.max()), dtype=np.int64)
        signs, rates, shares = np.zeros((3, *firsts.shape))
        for i, known in enumerate(families):
            weights = known.weights
            shares[i, : counts[i]] = weights / weights.sum()
            for place, block in enumerate(known.blocks):
                firsts[i, place], rates[i, place] = block.start, 1 / block.scale
                signs[i, place] = block.family.query.sign
        starts = np.cumsum([0, *(known.family.rows for known in families)])
        parts = [frozenset(known.family.query.parts) for known in families]
        return Layout(starts, parts, counts, firsts, signs, rates, shares)

    def spread(self, rows: Integers, whole: Floats) -> tuple[Integers, Floats, Floats, Integers]:
        """Return rows of the history, their coefficients and rates, and the families that have
        some, given whole numbers for rows of the families.
        """
        used, whole = rows[whole != 0], whole[whole != 0]
        owners = np.searchsorted(self.starts, used, side="right") - 1
        rest, found = whole.copy(), []
        for place in range(self.firsts.shape[1]):
            here = self.counts[owners] > place
            mine, last = owners[here], self.counts[owners[here]] == place + 1
            shared = np.rint(whole[here] * self.shares[mine, place])
            part = np.where(last, rest[here], shared)
            rest[here] -= part
            number = self.firsts[mine, place] + used[here] - self.starts[mine]
            found.append((number, part * self.signs[mine, place], self.rates[mine, place]))
        numbers, coefficients, rates = map(np.concatenate, zip(*found, strict=True))
        return numbers, coefficients, rates, np.unique(owners)


@dataclass(eq=False)
class FamilySystem:
    """The families of a history, solved together."""

    space: Space
    records: int  # N, the public bound on the number of records
    _families: dict[bytes, Measured] = field(default_factory=dict)
    _products: dict[tuple[bytes, bytes], Pairs | None] = field(default_factory=dict)
    _kept: int = 0  # pairs of rows in them, about
    _systems: dict[tuple[bytes, ...], System | None] = field(default_factory=dict)

    def add(self, block: MeasuredFamily) -> None:
        """Add a family that was measured, or is to be."""
        family, key = block.family, block.family.key
        if key not in self._families:
            query = family.query * family.query.sign
            self._families[key] = Measured(Family(query, family.axes, family.labels, family.rows))
        self._families[key].blocks.append(block)

    def truncate(self, row: int) -> None:
        """Forget the rows from a number on."""
        for key, known in list(self._families.items()):
            known.blocks = [block for block in known.blocks if block.start < row]
            if not known.blocks:
                del self._families[key]

    def estimators(self, family: Family, cancellation: Cancellation = never_cancel) -> list[Solved]:
        """Return the best estimator of every row of a family, None where there is none; and the
        families, by key, that by themselves do not know it, or no better.
        """
        none: list[Solved] = [(None, frozenset())] * family.rows
        scope = family.scope
        chosen = self._chosen(scope, cancellation)
        if chosen is None or family.query.zero:
            return none
        if not scope <= chosen.scope or chosen.gram.nnz * family.rows > MAX_WORK:
            return none
        try:
            right = self._right(chosen, family)
            squares = family.squares()
        except TooLargeError:
            return none
        layout, found = Layout.of(chosen.families), list[Solved]()
        for first in range(0, family.rows, COLUMNS):
            cancellation()
            last = min(first + COLUMNS, family.rows)
            side = right.between(first, last)
            norms = [square // chosen.outside for square in squares[first:last]]
            try:
                solved = self._solved(chosen, layout, family, side, norms, cancellation)
            except TooLargeError:
                return found + none[first:]
            found += zip(solved, _told(chosen, family.grid, side, norms, solved), strict=True)
            if not any(solved):  # nor are the others
                return found + none[last:]
        return found

    def _chosen(self, scope: frozenset[int], cancellation: Cancellation) -> System | None:
        """Return the families that are solved together for a query of this scope."""
        order = sorted(
            self._families.items(),
            key=lambda item: (
                not scope <= item[1].family.scope,
                not scope & item[1].family.scope,
                -item[1].weights.sum() * float(item[1].family.sensitivity) ** 2,
            ),
        )
        kept: list[bytes] = []
        rows = pairs = looks = 0
        for key, known in order:
            cells = pairs + sum(self._cells(other, key) for other in (*kept, key))
            if rows + known.family.rows > MAX_ROWS or cells > MAX_CELLS:
                continue
            cancellation()
            if self._pair(key, key) is None:  # it takes part beside no other
                continue
            looks += 1
            if None not in [self._pair(other, key) for other in kept]:
                kept.append(key)
                rows, pairs = rows + known.family.rows, cells
            if len(kept) == MAX_FAMILIES or looks == MAX_LOOKS:
                break
        while kept:
            names = tuple(sorted(kept))
            if names not in self._systems:
                if len(self._systems) >= MAX_SYSTEMS:
                    self._systems.clear()
                self._systems[names] = self._assembled(names)
            system = self._systems[names]
            if system is not None:  # whose blocks may be others now
                system.families = tuple(self._families[name] for name in names)
                return system
            kept.remove(max(kept, key=self._width))  # in whose units products are largest
        return None

    def _width(self, key: bytes) -> int:
        """Return the cells of the scope of a family."""
        return self.space.cells(self._families[key].family.scope)

    def _cells(self, one: bytes, two: bytes) -> int:
        """Return over how many cells the products of the rows of two families are taken."""
        return _cells(self.space, self._families[one].family.axes, self._families[two].family.axes)

    def _pair(self, one: bytes, two: bytes) -> Pairs | None:
        """Return the products of the rows of two families, where there are not too many; of which
        the one whose key is less is the first.

        In units of the cells outside of the scopes of the two.
        """
        key = (one, two) if one < two else (two, one)
        if key not in self._products:
            if self._kept > MAX_KEPT:
                self._products, self._kept = {}, 0
            try:
                made = products(*(self._families[name].family for name in key))
            except TooLargeError:
                made = None
            self._products[key] = made
            self._kept += 100 + (len(made.values) if made is not None else 0)
        return self._products[key]

    def _assembled(self, names: Sequence[bytes]) -> System | None:
        """Return the system of some families, of ascending keys; None where its products are too
        large.
        """
        families = tuple(self._families[name] for name in names)
        scopes = [known.family.scope for known in families]
        scope = frozenset[int]().union(*scopes)
        starts = np.cumsum([0, *(known.family.rows for known in families)])
        parts: list[tuple[Integers, Integers, Integers]] = []
        for one, mine in enumerate(names):
            for two in range(one, len(names)):
                pair = self._pair(mine, names[two])
                beside = self.space.cells(scope - scopes[one] - scopes[two])
                try:
                    if pair is None:
                        return None
                    pair = pair.times(beside, MAX_SUM)
                except TooLargeError:
                    return None
                parts.append((pair.rows + starts[one], pair.columns + starts[two], pair.values))
                if two > one:
                    parts.append((parts[-1][1], parts[-1][0], pair.values))
        rows, columns, values = map(np.concatenate, zip(*parts, strict=True))
        size = int(starts[-1])
        gram = sparse.csr_array((values, (rows, columns)), shape=(size, size))
        row_sum = int(abs(gram).sum(axis=1).max(initial=0))
        outside = self.space.cells(set(range(len(self.space.sizes))) - scope)
        return System(families, gram, scope, outside, row_sum)

    def _right(self, system: System, family: Family) -> Pairs:
        """Return the products of the rows of a system with those of a family, in units of the cells
        outside of the scope of the system, which has that of the family.

        Raises:
            TooLargeError: there are too many, or they are too large.
        """
        found, start = [], 0
        for known in system.families:
            beside = self.space.cells(system.scope - known.family.scope - family.scope)
            pair = products(known.family, family).times(beside, 2**61)
            found.append((pair.rows + start, pair.columns, pair.values))
            start += known.family.rows
        return Pairs(*map(np.concatenate, zip(*found, strict=True)))

    # --- solving -----------------------------------------------------------------------------

    def _solved(
        self,
        system: System,
        layout: Layout,
        family: Family,
        right: Pairs,
        norms: Sequence[int],
        cancellation: Cancellation,
    ) -> list[Estimator | None]:
        """Return the best estimator of queries with these products with the rows, and squares."""
        found = coefficients(system, right, len(norms), cancellation)
        largest = found.largest
        found = replace(found, values=np.where(largest[found.queries] < 2**52, found.values, 0.0))
        small, below = fractions(system, found)
        missed = missing(system, found, small, below, norms)
        rounded = [query for query, each in enumerate(missed) if each]
        for query in rounded:
            below[query] = 1 << max(52 - math.frexp(found.largest[query])[1], 0)
            here = found.of(query)
            small[here] = np.rint(found.values[here] * below[query])
        if rounded:
            again = np.where(np.isin(found.queries, rounded), small, 0.0)
            more = missing(system, found, again, below, norms)
            missed = [more[i] if i in rounded else each for i, each in enumerate(missed)]
        solved = []
        for query, each in enumerate(missed):
            rows, whole = found.rows[found.of(query)], small[found.of(query)]
            solved.append(
                self._estimator(layout, family, rows, whole, below[query], each, query in rounded)
            )
        return solved

    def _estimator(
        self,
        layout: Layout,
        family: Family,
        rows: Integers,
        whole: Floats,
        below: int,
        missed: int,
        rounded: bool,
    ) -> Estimator | None:
        """Return the estimator with the coefficients ``whole`` / ``below`` of rows, if it is one.

        Where these are not ``rounded``, its own are whole.
        """
        if missed < 0:  # no norm: something is not as it should be
            return None
        far = (math.isqrt(missed) + 1 if missed else 0) / below
        numbers, merged, loud, owners = layout.spread(rows, whole)
        parts = {*family.query.parts}.union(*(layout.parts[i] for i in owners))
        kept = merged != 0
        step = below
        if not rounded:
            step = int(np.gcd.reduce(merged[kept].astype(np.int64), initial=0)) or 1
        reach = sum(self.space.reach(part // 2) if part % 2 else 1 for part in parts)
        unit = Fraction(step, below)
        own, loud = merged[kept] / step, loud[kept]
        slack = self.records * reach * far / float(unit)
        if not slack <= NEAR * math.sqrt(2 * float(np.sum((own / omega(loud)) ** 2))):
            return None
        return Estimator(family.grid * unit, numbers[kept], own, loud, slack)


@lru_cache(maxsize=1024)
def _cells(space: Space, one: tuple[int, ...], two: tuple[int, ...]) -> int:
    """Return the cells over the axes of two families."""
    return space.cells({*one, *two})


def _told(
    system: System,
    grid: Fraction,
    right: Pairs,
    norms: Sequence[int],
    solved: Sequence[Estimator | None],
) -> list[frozenset[bytes]]:
    """Return, for each query, the families that by themselves do not know it, or no better.

    A family knows q iff Σ ⟨h, q⟩² / ⟨h, h⟩ = ⟨q, q⟩, and then with coefficients ⟨h, q⟩ / ⟨h, h⟩.
    """
    sizes, count = np.array(norms, dtype=np.float64), len(norms)
    shares = right.values / np.maximum(system.gram.diagonal(), 1)[right.rows]
    ends = np.cumsum([known.family.rows for known in system.families])
    places = np.searchsorted(ends, right.rows, side="right") * count + right.columns
    spanned, alone = (
        np.bincount(places, each, minlength=len(ends) * count).reshape(-1, count)
        for each in (shares * right.values, 2 * shares * shares)
    )
    best = []  # the variance of each, in grid units of the query, if it is all but unbiased
    for each in solved:
        best.append(math.inf)
        if each is not None:
            variance = 2 * float(np.sum((each.coefficients / omega(each.rates)) ** 2))
            if each.slack <= EXACT * math.sqrt(variance):
                best[-1] = variance * float(each.unit / grid) ** 2
    told: list[set[bytes]] = [set() for _ in norms]
    unknown = np.abs(spanned - sizes) > 1e-9 * sizes
    for place, known in enumerate(system.families):
        most = np.minimum(alone[place] / known.weights.max() * (1 + 1e-9), LOUDEST)
        for query in np.flatnonzero(unknown[place] | (np.array(best) <= most)).tolist():
            told[query].add(known.family.key)
    return [frozenset(each) for each in told]
