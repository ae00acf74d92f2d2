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
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from proxy.inference.dense_system import MeasuredFamily
from proxy.inference.estimator import (
    Cancellation,
    Estimator,
    Floats,
    Integers,
    denominator,
    never_cancel,
    omega,
)
from proxy.inference.families.products import MAX_CELLS, Measured, Pairs, products
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
MAX_TERMS = 2**19  # coefficients of COLUMNS queries, which are looked at one by one
STEPS = 100  # of conjugate gradients
VAIN = 10  # of them, in which none came nearer
ROUNDS = 3  # of refinement, with exact residuals
LOUDEST = 1e300  # the largest variance that is compared
EXACT = 1e-9  # of the noise: the bias of what may stand for other estimators
NEAR = 2.0**-10  # of the noise: a bias that may be more is of a query that is not in the span
MAX_SUM = 2**53  # of the products of one row with those of a family


Solved = tuple[Estimator | None, frozenset[bytes]]  # and the families that say no more of it


@dataclass(eq=False)
class System:
    """Families that are solved together, and the inner products of their rows."""

    families: tuple[Measured, ...]
    gram: sparse.csr_array  # int64, in units of the cells outside of the scope
    scope: frozenset[int]
    outside: int  # cells outside of the scope: each product is a multiple of it
    row_sum: int  # the largest Σ |G_ij| of a row

    @cached_property
    def real(self) -> sparse.csr_array:
        """The products as floats."""
        return self.gram.astype(np.float64)

    @cached_property
    def parts(self) -> Integers:
        """[n] The part of every row: rows of different parts have no products, nor by others."""
        return np.asarray(csgraph.connected_components(self.gram, directed=False)[1])

    @property
    def omega(self) -> Floats:
        """[n, 1] ω of every row."""
        return np.concatenate(
            [np.full(f.family.rows, math.sqrt(f.weights.sum())) for f in self.families]
        )[:, None]


@dataclass(frozen=True, eq=False)
class Layout:
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
        found = _values(system, right, len(norms), cancellation)
        largest = found.largest
        found = replace(found, values=np.where(largest[found.queries] < 2**52, found.values, 0.0))
        small, below = _small(system, found)
        missed = _missed(system, found, small, below, norms)
        rounded = [query for query, each in enumerate(missed) if each]
        for query in rounded:
            below[query] = 1 << max(52 - math.frexp(found.largest[query])[1], 0)
            here = found.of(query)
            small[here] = np.rint(found.values[here] * below[query])
        if rounded:
            again = np.where(np.isin(found.queries, rounded), small, 0.0)
            more = _missed(system, found, again, below, norms)
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


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Coefficients of rows for several queries, query by query: those that may not be 0."""

    count: int  # of queries
    rows: Integers
    queries: Integers  # ascending
    values: Floats
    sides: Integers  # the products of the rows with the queries
    columns: Integers  # of a matrix of the rows, one for all queries that meet different parts

    @cached_property
    def largest(self) -> Floats:
        """[queries] The largest absolute coefficient."""
        largest = np.zeros(self.count)
        np.maximum.at(largest, self.queries, np.abs(self.values))
        return largest

    @cached_property
    def _ends(self) -> list[int]:
        return list(np.searchsorted(self.queries, np.arange(self.count + 1)).tolist())

    def of(self, query: int) -> slice:
        """Return where the coefficients of a query are."""
        return slice(self._ends[query], self._ends[query + 1])


def _values(system: System, right: Pairs, count: int, cancellation: Cancellation) -> Coefficients:
    """Return a of queries with these products with the rows, as near as floats come.

    Queries that meet different parts of the rows, as the groups of one GROUP BY may, are solved
    as if they were one.
    """
    parts = system.parts
    owners = np.full((parts.max(initial=0) + 1, 2), -1)
    np.maximum.at(owners[:, 0], parts[right.rows], right.columns)
    np.maximum.at(owners[:, 1], parts[right.rows], count - right.columns)
    one = bool(((owners[:, 0] < 0) | (owners.sum(axis=1) == count)).all())
    side = np.zeros((len(parts), 1 if one else count), dtype=np.int64)
    side[right.rows, 0 if one else right.columns] = right.values
    weights, real = system.omega, system.real
    values = weights * _least(real, weights, weights * side, cancellation)
    for _ in range(ROUNDS):
        below = np.clip(52 - np.frexp(np.abs(values).max(axis=0, initial=0.0))[1], 0, 62)
        whole = np.rint(np.ldexp(values, below)).astype(np.int64)
        values = np.ldexp(whole.astype(np.float64), -below)
        # modulo 2**64, of which a wrong one is found out in the end
        rest = (side << below) - (system.gram @ whole)
        if (np.abs(rest) <= system.row_sum).all():
            break  # no nearer than whole numbers are
        rest = np.ldexp(rest.astype(np.float64), -below)
        values = values + weights * _least(real, weights, weights * rest, cancellation)
    if one:
        queries = owners[parts, 0]
        rows = np.argsort(queries, kind="stable")
        rows = rows[queries[rows] >= 0]
        queries, columns = queries[rows], np.zeros(len(rows), dtype=np.int64)
    else:
        queries, rows = np.nonzero(values.T)
        columns = queries
    at = rows, columns
    return Coefficients(count, rows, queries, values[at], side[at], columns)


def _small(system: System, found: Coefficients) -> tuple[Floats, list[int]]:
    """Return whole numbers and their denominators [queries], where coefficients may be fractions of
    small ones; else 0 and 1.
    """
    whole, below = np.zeros_like(found.values), [1] * found.count
    if any(len(known.blocks) > 1 for known in system.families):
        return whole, below  # whose shares are no such fractions
    values = np.where(np.abs(found.values) > 2.0**-40, found.values, 0.0)
    for query in range(found.count):
        here = found.of(query)
        number = denominator(values[here])
        if number is not None:
            below[query] = number
            whole[here] = np.rint(values[here] * number)
    return whole, below


def _missed(
    system: System,
    found: Coefficients,
    whole: Floats,
    below: Sequence[int],
    norms: Sequence[int],
) -> list[int]:
    """Return ‖D q - Σ A_i h_i‖² of every query, exactly; of whole numbers A below 2**53."""
    used = np.flatnonzero(whole)
    if len(used) > MAX_TERMS:
        raise TooLargeError("too many coefficients")
    numbers, queries = whole[used].astype(np.int64), found.queries[used]
    at = found.rows[used], found.columns[used]
    shape = system.gram.shape[0], int(found.columns.max(initial=0)) + 1
    limb = 62 - system.row_sum.bit_length()  # bits of A whose products with G are exact in int64
    sides = -2 * np.array(below, dtype=object)[queries] * found.sides[used].astype(object)
    for shift in range(0, 54, limb):
        part = numbers >> shift
        if shift + limb < 54:
            part &= (1 << limb) - 1
        if part.any():
            image = system.gram @ sparse.csc_array((part, at), shape)
            sides = sides + image.toarray()[at].astype(object) * (1 << shift)
    ends = np.searchsorted(queries, np.arange(found.count + 1)).tolist()
    products = (numbers.astype(object) * sides).tolist()
    return [
        sum(products[first:last], scale * scale * norm)
        for scale, norm, first, last in zip(below, norms, ends[:-1], ends[1:], strict=True)
    ]


def _least(
    gram: sparse.csr_array, weights: Floats, right: Floats, cancellation: Cancellation
) -> Floats:
    """Return the s of least norm with Ω G Ω s = right, [n, m], by conjugate gradients from 0.

    Rounding leads away from it once they are near, so the nearest is kept, and no nearer looked for
    long.
    """
    found, rest = np.zeros_like(right), right.copy()
    towards, size = rest.copy(), np.sum(rest * rest, axis=0)
    best, least, enough, vain = found.copy(), size.copy(), size * 1e-28, 0
    for _ in range(STEPS):
        cancellation()
        open_ = least > enough
        if not open_.any() or vain > VAIN:
            break
        image = weights * (gram @ (weights * towards))
        curve = np.sum(towards * image, axis=0)
        step = np.divide(size, curve, out=np.zeros_like(size), where=open_ & (curve > 0))
        found += step * towards
        rest -= step * image
        new = np.sum(rest * rest, axis=0)
        turn = np.divide(new, size, out=np.zeros_like(size), where=open_ & (size > 0))
        towards = rest + turn * towards
        size = new
        nearer = size < least
        vain = 0 if nearer.any() else vain + 1
        best[:, nearer], least = found[:, nearer], np.where(nearer, size, least)
    return best
