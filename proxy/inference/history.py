"""The history: noisy answers to queries, and the best linear unbiased estimate of any other query.

Rows h_i are integer queries in units of their own grid, with answers y_i = ⟨h_i, x⟩ + K_i, K_i
two-sided geometric, P(k) ∝ p_i^|k|, p_i = exp(-1 / scale_i), whose variance is 2 / ω_i² with
ω_i = 2 sinh(1 / (2 scale_i)).  An estimator of q is Σ a_i y_i with Σ a_i h_i = q; the best has the
least Σ (a_i / ω_i)².  Only inner products of queries enter, so nothing depends on the number n of
cells.

The rows are split into independent ones B, by exact arithmetic modulo primes, and dependent ones
D = T·B.  With t the coordinates of q on B, every unbiased a is  a_B = t - Tᵀ a_D,  and the best is
(Ω_D⁻² + T Ω_B⁻² Tᵀ) a_D = T Ω_B⁻² t.  Floats only choose a_D; a_B is then refined with residuals
b - G a that are exact: a is a multiple of 2⁻ᵏ, G is an integer, and integers modulo 2**64 know a
residual that floats bound below 2**63.  So  |bias| ≤ N Σ |error of a_i| S_i  is known and small
(N the public bound on records, S_i the sensitivity); that bound, ``slack``, widens the interval.
Where the refinement does not settle, there is no estimator: the caller measures instead.

Rows that come together enter in panels: what follows is what would have, had they come one by one,
but for rounding.  What does not fit is used by itself (``families``), alone and together.

Shapes: m rows, r of them independent: Gram [m, m], T [m - r, r].
Source: Xiao & Xiong, Theorem 3.1 with the generalized inverse of its footnote (the form is ours).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from operator import lshift, mul
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from proxy.inference.cholesky import Cholesky
from proxy.inference.dense_system import NOWHERE, Dense, Joining, MeasuredFamily, key_of
from proxy.inference.estimability import Independence
from proxy.inference.estimator import (
    FINE_SHARES,
    Cancellation,
    Estimator,
    Floats,
    Integers,
    Rates,
    mixed,
    never_cancel,
)
from proxy.inference.families.singles import Singles
from proxy.inference.families.together import Together
from proxy.inference.family import Family
from proxy.inference.products import (
    Products,
    Stack,
    Structure,
    gram,
    products_of,
    stack,
    structure,
)
from proxy.inference.query import LinearQuery
from proxy.inference.remembered import MAX_QUERIES, GoodEnough, Key, Remembered, rows_of
from proxy.inference.space import Space

DENSE_ROWS, DENSE_FAMILY_ROWS = 2000, 600  # in the dense system; the last that is of a family
DENSE_FAMILY = 128  # a larger family is used alone
DENSE_CELLS = 2**22  # coefficients of a row: so is one of more
FAMILY_CELLS = 2**19  # coefficients of all rows of a family: more would take seconds
PANEL = 512  # rows that enter the dense system together
SPARE = 32  # rows that there is room for behind them
QUERIES = 64  # solved at once

Measured = tuple[Family, float, Sequence[int] | None]  # with its noise scale, and answers
Row = tuple[LinearQuery, int, Fraction]  # with its number, and the grid of its answer
Refined = tuple[MeasuredFamily, float]  # and its scale before


class Mark(NamedTuple):
    """How many blocks a history has, and how many refinements of them are planned."""

    blocks: int
    refined: int


class Projection(Struct, frozen=True):
    """A query on the independent rows: it is asked for again, when it has become a row itself."""

    key: Key
    column: Products  # its products with them, [rank, 1]
    coordinates: Floats | None  # G⁻¹ · column; None where it is not in their span

    def of(self, query: LinearQuery) -> bool:
        """Whether it is that of a query."""
        return self.key == key_of(query)


class History:
    """Rows, weights and answers, kept so that one more query or row costs O(rows²)."""

    def __init__(self, space: Space, records: int = 0, primes: Sequence[int] | None = None) -> None:
        self.space = space
        self.records = records  # N, the public bound on the number of records
        self.blocks: list[MeasuredFamily] = []
        self.answers: list[int] = []  # in grid units of the row's family
        self._rates = Rates()
        self.singles = Singles(records, self._rates)
        self._independence = Independence(primes)
        self._stacks: dict[Structure, Stack] = {}
        self.good_enough = GoodEnough(self._rates)
        self._memory, self._alone = (Remembered(rows_of) for _ in range(2))
        self._best: dict[Key, Estimator | None] = {}  # of the queries that were prepared
        self._sums: dict[Estimator, Fraction] = {}  # θ̂, while all answers are as they are
        self.covers: dict[bytes, object] = {}  # where families were measured, by key
        self.refined: list[Refined] = []  # planned, and not measured
        self.together = Together(space, records, self.blocks)
        self._dense = Dense()
        self._held = 0  # coefficients of its rows
        self._projection: Projection | None = None  # the last
        self._triangle = Cholesky()  # of the Gram matrix of the independent rows
        self._weights = Cholesky()  # of Ω_D⁻² + T Ω_B⁻² Tᵀ
        self._joining = Joining(
            self._dense, self._independence, self._triangle, self._weights, self._coordinates
        )

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def rank(self) -> int:
        """The number of independent rows in the dense system."""
        return len(self._dense.basis)

    # --- growing and shrinking -------------------------------------------------------------------

    def append(
        self, family: Family, scale: float, answers: Sequence[int] | None = None
    ) -> MeasuredFamily:
        """Add the rows of a family, measured (or to be measured) with noise of one scale.

        ``scale`` and ``answers`` are in units of the family's grid.
        """
        before = self._best
        block = self.extend([(family, scale, answers)])[0]
        if family.rows == 1:
            self._top_up(block, before)
        return block

    def _top_up(self, block: MeasuredFamily, before: Mapping[Key, Estimator | None]) -> None:
        """Mix what was the best estimator of a new row's query, if that is known, with the row.

        It is the best again, as if solved for: the row's noise is independent of all others.
        """
        query, dense = block.family.row(0), self._dense
        key, place = key_of(query), int(np.searchsorted(dense.number, block.start))
        if key in before and place in (*dense.basis[-1:], *dense.others[-1:]):
            start, own = before[key], self.singles.last(query)
            best = mixed(start, own, self.together.reach, FINE_SHARES) if start else own
            self._best = {key: best} if best else {}

    def extend(self, measured: Sequence[Measured]) -> list[MeasuredFamily]:
        """Add families in turn: many at once cost far less than one by one."""
        blocks: list[MeasuredFamily] = []
        rows: list[Row] = []  # for the dense system
        for _, scale, _ in measured:
            if not (0 < scale < np.inf):
                raise ValueError(f"need a positive finite scale, not {scale}")
        if measured:
            self._forget()
        few = sum(family.rows for family, _, _ in measured if family.rows <= DENSE_FAMILY)
        room, held = min(self.rank + few + SPARE, DENSE_ROWS), self._held
        if few > SPARE:
            self._independence.reserve(room)
            self._triangle.reserve(room)
            self._dense.gram.grow(room, room)
        for family, scale, answers in measured:
            block = MeasuredFamily(family, len(self), scale)
            self.blocks.append(block)
            self._rates.append(1 / scale, family.rows)
            self.answers += list(answers) if answers is not None else [0] * family.rows
            if answers is not None:
                self.good_enough.measured(len(self))
            if self._fits(family, len(rows)):
                own = zip(family.queries(), block.rows, strict=True)
                rows += [(query, number, family.grid) for query, number in own if not query.zero]
            elif family.rows == 1:
                self.singles.add_row(family.row(0), block.start, family.grid)
            else:
                self.singles.add_family(block)
            self.together.add(block)
            blocks.append(block)
            if len(rows) >= PANEL or self._held - held > DENSE_CELLS:
                self._append_rows(rows)
                rows, held = [], self._held
        if rows:
            self._append_rows(rows)
        if few > SPARE:
            self._triangle.reserve(min(self.rank + SPARE, DENSE_ROWS))
        return blocks

    def _fits(self, family: Family, waiting: int) -> bool:
        """Return whether the rows of a family are to enter the dense system, behind others."""
        cells = family.cells
        most = DENSE_ROWS if family.rows == 1 else DENSE_FAMILY_ROWS
        if family.rows > DENSE_FAMILY or len(self._dense.number) + waiting + family.rows > most:
            return False
        if cells > (FAMILY_CELLS if family.rows > 1 else DENSE_CELLS):
            return False
        if self._held + cells > 8 * DENSE_CELLS:
            return False
        self.blocks[-1].cells = cells
        self._held += cells
        return True

    def _forget(self) -> None:
        """Forget the estimators that were found among the rows as they were."""
        self._memory.clear()
        self._alone.clear()
        self._best, self._sums = {}, {}
        self.together.forget()

    def set_answers(self, block: MeasuredFamily, answers: Sequence[int]) -> None:
        """Fill in the answers of a planned block."""
        self._sums = {}
        self.answers[block.start : block.start + block.family.rows] = answers
        self.good_enough.measured(block.start + block.family.rows)

    @property
    def mark(self) -> Mark:
        """How far it has come: what is planned from here on can be taken back."""
        return Mark(len(self.blocks), len(self.refined))

    def take_back(self, mark: Mark) -> None:
        """Forget what was planned since a mark, and not measured."""
        while len(self.refined) > mark.refined:
            self._weigh(*self.refined.pop())
        self.truncate(mark.blocks)

    def truncate(self, blocks: int) -> None:
        """Forget the blocks from a number on."""
        if blocks >= len(self.blocks):
            return
        self._forget()
        start = self.blocks[blocks].start
        dense = self._dense
        places = int(np.searchsorted(dense.number, start))
        self._held -= sum(block.cells for block in self.blocks[blocks:])
        del self.blocks[blocks:], self.answers[start:]
        dense.truncate(places)
        self._projection = None
        self.covers.clear()
        for rows in self._stacks.values():
            rows.truncate(places)
        for part in (self._rates, self.singles, self.together, self.good_enough):
            part.truncate(start)
        self._independence.truncate(len(dense.basis))
        self._triangle.truncate(len(dense.basis))
        self._weights.truncate(len(dense.others))

    def refine(self, block: MeasuredFamily, scale: float) -> None:
        """Plan less noise in a block's answers, which follow."""
        self.refined.append((block, block.scale))
        self._weigh(block, scale)

    def replace(self, block: MeasuredFamily, scale: float, answers: Sequence[int]) -> None:
        """Give a block a new scale and answers: a refinement."""
        self._weigh(block, scale)
        self.set_answers(block, answers)

    def _weigh(self, block: MeasuredFamily, scale: float) -> None:
        """Give a block another scale."""
        block.scale = scale
        self.together.weigh(block)
        self._forget()
        self._rates.put(block.rows, 1 / scale)
        self.singles.index()
        dense, others = self._dense, self._dense.others.tolist()
        if not dense.weigh(block.rows, 1 / scale):
            return
        coordinates = dense.transform.copy()
        dense.others = NOWHERE
        self._weights.truncate(0)
        dense.cross.keep(self._joining.weigh(others, coordinates))

    def _append_rows(self, rows: Sequence[Row]) -> None:
        """Add rows to the dense system.

        A row that floats cannot tell from the others has a place there, and is used alone only.
        """
        dense, first = self._dense, len(self._dense.number)
        for place, (query, number, grid) in enumerate(rows, first):
            self.singles.add_row(query, number, grid)
            key = structure(query)
            if key not in self._stacks:
                self._stacks[key] = stack(query)
            self._stacks[key].append(place, query)
        numbers = [number for _, number, _ in rows]
        dense.extend(
            numbers,
            [1 if grid == query.grid else int(query.grid / grid) for query, _, grid in rows],
            [float(query.sensitivity) for query, _, _ in rows],
            self._rates.of(np.array(numbers)),
        )
        queries = [query for query, _, _ in rows]
        known, rank = self._projection, len(dense.basis)
        if len(rows) == 1 and known and known.of(queries[0]) and known.coordinates is not None:
            dense.norm = np.append(dense.norm, math.sqrt(queries[0].square))
            self._joining.depend([first], known.column, known.coordinates.T)
            return
        asked = dict(enumerate(queries, first))
        products = gram(self._stacks.values(), asked, self._independence.primes)
        dense.norm = np.concatenate([dense.norm, np.sqrt(np.diagonal(products.real[first:]))])
        self._joining.rows(first, products)
        if len(dense.basis) > rank:
            self._projection = None

    def _products(self, query: LinearQuery) -> Products:
        """Return the inner products of a query with every row of the dense system."""
        primes = self._independence.primes
        found = Products.empty(len(primes), len(self._dense.number))
        for rows in self._stacks.values():
            if rows.numbers:
                found.put(np.array(rows.numbers), rows.products(query, primes))
        return found

    def _project(self, query: LinearQuery) -> Projection:
        """Return a query on the independent rows."""
        if self._projection is None or not self._projection.of(query):
            column = Products.columns([self._products(query)[self._dense.basis]])
            start = None
            if self._independence.spans(column.residues, [query.square]).size:
                found = self._joining.coordinates_of(column).T
                start = found if np.isfinite(found).all() else None
            self._projection = Projection(key_of(query), column, start)
        return self._projection

    # --- estimating ------------------------------------------------------------------------------

    def prepare(
        self, family: Family, rows: Sequence[LinearQuery], cancellation: Cancellation = never_cancel
    ) -> None:
        """Find at once the best estimators of every row of a family."""
        self.together.prepare(family, rows, cancellation)
        queries = {key_of(row): row for row in rows if not row.zero}
        new = [key for key in queries if key not in self._memory and key not in self._best]
        self._best = {key: self._best[key] for key in queries if key in self._best}
        for first in range(0, len(new), QUERIES):
            cancellation()
            chunk = new[first : first + QUERIES]
            found = self._best_of([queries[key] for key in chunk])
            self._best |= zip(chunk, found, strict=True)

    def estimators(
        self, query: LinearQuery, cancellation: Cancellation = never_cancel, *, deep: bool = False
    ) -> Sequence[Estimator]:
        """Return unbiased estimators of a query: the best one, and those of single blocks.

        ``deep``: families are asked for what they say together, even where one of them alone knows
        the query, and no other.  Empty where the query is not estimable from the history, or floats
        cannot say so safely.
        """
        if query.zero:
            return [Estimator(Fraction(1), np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))]
        key = key_of(query)
        known = self._memory.get(key)
        if known is None or (deep and self.together.unasked(query, key)):
            cancellation()
            alone = list(self.singles.estimators(query, but=self.together.told(key)))
            best = self._best[key] if key in self._best else self._best_of([query])[0]
            found = [best, *alone]
            found += self.together.estimators(query, key, best, alone, cancellation, deep)
            self._memory.put(key, known := [each for each in found if each is not None])
        return known

    def alone(
        self, query: LinearQuery, cancellation: Cancellation = never_cancel
    ) -> Sequence[Estimator]:
        """Return the estimators of a query from a single row, and from single large families."""
        key = key_of(query)
        known = self._alone.get(key)
        if known is None:
            cancellation()
            self._alone.put(key, known := list(self.singles.estimators(query)))
        return known

    def estimate(self, estimator: Estimator) -> float:
        """Return θ̂, in answer units, rounded once."""
        return float(self.exact(estimator))

    def exact(self, estimator: Estimator) -> Fraction:
        """Return θ̂, in answer units, without any rounding: its coefficients are dyadic."""
        if estimator not in self._sums:
            mantissas, exponents = np.frexp(estimator.coefficients)
            least = int(exponents.min(initial=0))
            whole = np.ldexp(mantissas, 53).astype(np.int64).tolist()
            shifts = (exponents - least).tolist()
            values = [self.answers[row] for row in estimator.rows.tolist()]
            total = sum(map(mul, map(lshift, whole, shifts), values))
            if len(self._sums) >= MAX_QUERIES:
                self._sums = {}
            self._sums[estimator] = estimator.unit * Fraction(total, 1 << 53 - least)
        return self._sums[estimator]

    def _best_of(self, queries: Sequence[LinearQuery]) -> list[Estimator | None]:
        """Return the best estimators from the dense system."""
        dense = self._dense
        best: list[Estimator | None] = [None] * len(queries)
        if not dense.basis.size or not queries:
            return best
        spanned, columns, start = self._projected(queries)
        if not spanned.size:
            return best
        others = self._optimal(start)
        own, others, error = self._dense.refined(
            self._triangle, columns, start - dense.transform.T @ others, others
        )
        places = np.concatenate([dense.basis, dense.others])
        units, numbers = dense.real_unit[places], dense.number[places]
        dyadic = (np.frexp(units)[0] == 0.5).all()  # else the division rounds
        for i in np.flatnonzero(np.isfinite(error)).tolist():
            at = int(spanned[i])
            found = dense.rational(columns.of([i]), own[:, i], others[:, i])
            if found is not None:
                grid = queries[at].grid
                best[at] = dense.scaled(grid, places, *found, self._rates, self.records)
                continue
            coefficients = np.concatenate([own[:, i], others[:, i]])
            used = coefficients != 0
            off = float(error[i])
            if not dyadic:
                off += 2.0**-53 * float(np.abs(coefficients) @ dense.reach[places])
            best[at] = Estimator(
                queries[at].grid,
                numbers[used],
                (coefficients / units)[used],
                self._rates.of(numbers[used]),
                off * self.records,
            )
        return best

    def _projected(self, queries: Sequence[LinearQuery]) -> tuple[Integers, Products, Floats]:
        """Return which queries are in the span of the independent rows, their products with these,
        and their coordinates on them: those that settle.
        """
        if len(queries) == 1:
            one = self._project(queries[0])
            if one.coordinates is None:
                return np.zeros(0, dtype=np.int64), one.column, np.zeros((0, 0))
            return np.zeros(1, dtype=np.int64), one.column, one.coordinates
        stacks, rows = self._stacks.values(), len(self._dense.number)
        columns = products_of(stacks, rows, queries, self._independence.primes)[self._dense.basis]
        spanned = self._independence.spans(columns.residues, [query.square for query in queries])
        start = self._joining.coordinates_of(columns := columns.of(spanned)).T
        settled = np.flatnonzero(np.isfinite(start).all(axis=0))
        return spanned[settled], columns.of(settled), start[:, settled]

    def _optimal(self, start: Floats) -> Floats:
        """Return a_D: the coefficients of the dependent rows that make the variance least."""
        dense = self._dense
        if not dense.others.size:
            return np.zeros((0, start.shape[1]))
        weighted = start / dense.omega[dense.basis][:, None] ** 2
        return self._weights.solve(dense.transform @ weighted)

    def _coordinates(self, column: Products) -> tuple[Floats, Floats]:
        """Return G_B⁻¹ · column, and how far it may be off, NaN where it does not settle."""
        start, none = self._triangle.solve(column.real), np.zeros((0, column.real.shape[1]))
        own, _, error = self._dense.refined(self._triangle, column, start, none)
        return own, error
