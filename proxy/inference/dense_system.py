"""The rows that are solved together: their Gram matrix, which of them depend on the others, and how
more of them come in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxy.inference.cholesky import Cholesky
from proxy.inference.estimability import Independence
from proxy.inference.estimator import (
    Estimator,
    Floats,
    Integers,
    Rates,
    denominator,
    omega,
    whole_multiples,
)
from proxy.inference.family import Family
from proxy.inference.products import Products, rectangle, wrap
from proxy.inference.query import LinearQuery

LEAST_LIMB = 7  # bits of numbers multiplied at once: with less, integers are as fast
STEPS = 5  # of refinement
FINEST, COARSEST = 2.0**-47, 2.0**-30  # of the bias, per record: enough, and the most there may be
NEAR = 2.0**-40  # of coordinates of dependent rows
NOWHERE = np.zeros(0, dtype=np.int64)


@dataclass(eq=False)
class Dense:
    """The rows of the dense system, [places], and the Gram matrix of the independent ones."""

    number: Integers = field(default_factory=lambda: np.zeros(0, np.int64))  # row of the history
    unit: list[int] = field(default_factory=list)  # canonical grid / family grid
    real_unit: Floats = field(default_factory=lambda: np.zeros(0))  # the same, rounded
    reach: Floats = field(default_factory=lambda: np.zeros(0))  # sensitivity, in canonical units
    norm: Floats = field(default_factory=lambda: np.zeros(0))  # ‖h‖
    omega: Floats = field(default_factory=lambda: np.zeros(0))  # ω, in canonical units
    basis: Integers = field(default_factory=lambda: NOWHERE)  # places of the independent rows
    others: Integers = field(default_factory=lambda: NOWHERE)  # places of the dependent rows
    coordinates: Floats = field(default_factory=lambda: np.zeros((16, 16)))  # T, with room
    gram: Gram = field(default_factory=lambda: Gram())  # ⟨basis, basis⟩
    cross: Gram = field(default_factory=lambda: Gram())  # ⟨basis, others⟩

    def extend(
        self, numbers: Sequence[int], units: Sequence[int], reach: Sequence[float], rates: Floats
    ) -> None:
        """Add rows, whose norms follow, before it is known whether they depend on the others."""
        real = np.array(units, dtype=np.float64)
        self.unit += units
        for name, more in (
            ("number", numbers),
            ("real_unit", real),
            ("reach", reach),
            ("omega", omega(rates) * real),
        ):
            setattr(self, name, np.concatenate([getattr(self, name), more]))

    def weigh(self, numbers: range, rate: float) -> bool:
        """Give rows of the history another rate; return whether some are here."""
        first, last = np.searchsorted(self.number, (numbers.start, numbers.stop))
        self.omega[first:last] = omega(np.array(rate)) * self.real_unit[first:last]
        return bool(first < last)

    def truncate(self, places: int) -> None:
        """Forget the rows from a place on."""
        del self.unit[places:]
        for name in ("number", "real_unit", "reach", "norm", "omega"):
            setattr(self, name, getattr(self, name)[:places])
        self.basis = self.basis[self.basis < places]
        self.others = self.others[self.others < places]
        self.coordinates[len(self.others) :] = 0.0

    @property
    def transform(self) -> Floats:
        """T [others, rank]: the dependent rows on the independent ones."""
        self._make_room(len(self.others), len(self.basis))
        return self.coordinates[: len(self.others), : len(self.basis)]

    def add_other(self, place: int, coordinates: Floats) -> None:
        """Add a dependent row."""
        self._make_room(len(self.others) + 1, len(self.basis))
        self.coordinates[len(self.others), : len(coordinates)] = coordinates
        self.others = np.append(self.others, place)

    def residual(
        self, column: Products, own: Floats, others: Floats
    ) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
        """Return a, in multiples of 2⁻ᵏ, its exact residual, and for which queries it is lost."""
        rank, count, gram, cross = len(own), len(others), self.gram, self.cross
        rough = column.real - gram.real[:rank, :rank] @ own
        norms, theirs = self.norm[self.basis], self.norm[self.others[:count]]
        size = norms @ np.abs(own)  # |⟨h_i, h_j⟩| ≤ ‖h_i‖ ‖h_j‖
        if count:
            rough = rough - cross.real[:rank, :count] @ others
            size = size + theirs @ np.abs(others)
        widest = float(norms.max(initial=0.0))
        size = size * widest + np.abs(column.real).max(axis=0, initial=0.0)
        doubt = size * (rank + count + 4) * 2.0**-52
        reach = np.abs(rough).max(axis=0, initial=0.0) + 2 * doubt
        k = fixed_points(np.abs(own).max(axis=0, initial=0.0), reach)
        beside = fixed_points(np.abs(others).max(axis=0, initial=0.0), np.zeros(len(k)))
        beside = np.minimum(k, beside)  # a_D may be larger than a_B, and then is on a coarser grid
        lost = beside < 0
        if lost.any():
            own, others = (np.where(lost, 0.0, each) for each in (own, others))
            k, beside = (np.where(lost, 0, each) for each in (k, beside))
        a, d = np.rint(np.ldexp(own, k)), np.rint(np.ldexp(others, beside))
        moved = norms @ np.abs(np.ldexp(own, k) - a)  # by rounding, in units of 2⁻ᵏ
        if count:
            far = theirs @ np.abs(np.ldexp(others, beside) - d)
            moved = moved + np.ldexp(far, k - beside)
        lost |= ~(moved * widest < 2**62)
        exact_residual = (column.wrapped << k) - gram.times(rank, a)
        if count:
            exact_residual -= cross.times(rank, d) << (k - beside)
        own, others = np.ldexp(a, -k), np.ldexp(d, -beside)
        return own, others, np.ldexp(exact_residual.astype(np.float64), -k), lost

    def rational(self, column: Products, own: Floats, others: Floats) -> tuple[int, Floats] | None:
        """Return a denominator D and whole coefficients of D · query, if these are exact.

        So a query that is a sum, a multiple or a mean of rows is estimated without rounding.
        """
        both = np.concatenate([own, others])
        below = denominator(both)
        if below is None:
            return None
        whole = np.rint(both * below)
        times = Products(column.real * below, column.residues, column.wrapped * wrap(below))
        *_, residual, lost = self.residual(times, whole[: len(own), None], whole[len(own) :, None])
        return None if lost.any() or residual.any() else (below, whole)

    def scaled(
        self,
        grid: Fraction,
        places: Integers,
        below: int,
        whole: Floats,
        rates: Rates,
        records: int,
    ) -> Estimator:
        """Return the estimator of the coefficients ``whole`` / ``below`` of rows, given the rates
        of the history's.
        """
        used = np.flatnonzero(whole)
        places = places[used]
        pairs = [
            (int(number), self.unit[place])
            for number, place in zip(whole[used].tolist(), places.tolist(), strict=True)
        ]
        kinds = list(dict.fromkeys(pairs))
        ratios = [Fraction(number, below * unit) for number, unit in kinds]
        step, values, exact = whole_multiples(ratios)
        scaled = dict(zip(kinds, values.tolist(), strict=True))
        coefficients = np.array([scaled[pair] for pair in pairs])
        numbers = self.number[places]
        error = 0.0
        if not exact:
            reach = np.array([self.reach[i] * self.unit[i] for i in places.tolist()])
            error = 2.0**-52 * float(np.abs(coefficients) @ reach)
        return Estimator(grid * step, numbers, coefficients, rates.of(numbers), error * records)

    def refined(
        self, triangle: Cholesky, column: Products, own: Floats, others: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Refine a_B so that G_B a_B + G_BD a_D = column, [rank, queries].

        Returns a_B, a_D and Σ |error of a_i| S_i, from the last correction; NaN where it does not
        settle.
        """
        own, others, queries = own.copy(), others.copy(), np.arange(own.shape[1])
        reach, far = self.reach[self.basis], self.reach[self.others[: len(others)]]
        beside, errors = far @ np.abs(others), np.full(len(queries), np.nan)
        last = np.full(len(queries), np.inf)
        for _ in range(STEPS):
            if not queries.size:
                break
            *rounded, residual, lost = self.residual(
                column.of(queries), own[:, queries], others[:, queries]
            )
            own[:, queries], others[:, queries] = rounded
            queries, residual = queries[~lost], residual[:, ~lost]
            correction = triangle.solve(residual)
            error = 2 * (reach @ np.abs(correction))
            size = reach @ np.abs(own[:, queries]) + beside[queries]
            done = (error <= FINEST * size) | (not reach.size)
            stuck = ~done & ~(error <= last[queries] / 4)  # also where it is NaN
            coarse = stuck & (error <= COARSEST * size)
            if coarse.any():
                some = residual[:, coarse], correction[:, coarse]
                coarse[coarse] = self._solved(triangle, *some)
            errors[queries[done | coarse]] = error[done | coarse]
            on = ~done & ~stuck
            queries = queries[on]
            own[:, queries] += correction[:, on]
            last[queries] = error[on]
        return own, others, errors

    def _solved(
        self, triangle: Cholesky, residual: Floats, correction: Floats
    ) -> NDArray[np.bool_]:
        """Return whether G⁻¹ · residual is known well: solving for what is left gives far less.

        Then a multiple of 2⁻ᵏ is as near as there is, and the correction says how near.
        """
        rank = len(residual)
        left = residual - self.gram.real[:rank, :rank] @ correction
        second = triangle.solve(left)
        return np.asarray(np.abs(second).max(axis=0) <= np.abs(correction).max(axis=0) / 8)

    def _make_room(self, rows: int, columns: int) -> None:
        have = self.coordinates.shape
        if rows > have[0] or columns > have[1]:
            room = [max(old, 2 * new) for old, new in zip(have, (rows, columns), strict=True)]
            grown = np.zeros(room)
            grown[: have[0], : have[1]] = self.coordinates
            self.coordinates = grown


class Gram:
    """A growing matrix of inner products: rounded, and modulo 2**64."""

    def __init__(self) -> None:
        self._largest = 0.0  # absolute product; infinity where one is not as rounded, modulo 2**64
        self.real: Floats = np.zeros((16, 16))
        self.wrapped: Integers = np.zeros((16, 16), dtype=np.int64)

    def grow(self, rows: int, columns: int) -> None:
        """Make room."""
        have = self.real.shape
        want = [
            n if n <= old else max(n, 2 * old) for n, old in zip((rows, columns), have, strict=True)
        ]
        want = [max(n, old) for n, old in zip(want, have, strict=True)]
        if tuple(want) != have:
            for name in ("real", "wrapped"):
                old = getattr(self, name)
                new = np.zeros(want, dtype=old.dtype)
                new[: have[0], : have[1]] = old
                setattr(self, name, new)

    def keep(self, columns: Sequence[int]) -> None:
        """Keep some columns, in ascending order, in place of the first."""
        for matrix in (self.real, self.wrapped):
            matrix[:, : len(columns)] = matrix[:, columns]

    def times(self, rows: int, right: Floats) -> Integers:
        """Return the first rows times whole numbers below 2**53 [columns, queries], modulo 2**64.

        By limbs of these that BLAS sums exactly, where the products are as floats know them.
        """
        columns, queries = right.shape
        whole = right.astype(np.int64)
        bits = 0
        if self._largest < 2**53:
            bits = 53 - math.frexp(self._largest)[1] - columns.bit_length()
        if bits < LEAST_LIMB:
            exact: Integers = np.einsum("ij,jk->ik", self.wrapped[:rows, :columns], whole)
            return exact
        shifts = bits * np.arange(-(-54 // bits))[:, None]
        limbs = whole[:, None] >> shifts  # the last has the sign
        limbs[:, :-1] &= (1 << bits) - 1
        factors = limbs.reshape(columns, -1).astype(np.float64)
        sums = (self.real[:rows, :columns] @ factors).astype(np.int64)
        return np.asarray((sums.reshape(rows, -1, queries) << shifts).sum(axis=1))

    def put(self, where: tuple[Any, Any], products: Products, mirrored: bool = False) -> None:
        """Write inner products; ``mirrored``: also those with rows and columns exchanged."""
        real, wrapped = products.real, products.wrapped
        largest = max(float(real.max(initial=0.0)), -float(real.min(initial=0.0)))
        self._largest = max(self._largest, largest if (real == wrapped).all() else math.inf)
        self.real[where], self.wrapped[where] = real, wrapped
        if mirrored:
            self.real[where[::-1]], self.wrapped[where[::-1]] = real.T, wrapped.T


@dataclass(eq=False)
class Joining:
    """How rows enter the dense system: among its independent rows, or the dependent ones."""

    dense: Dense
    independence: Independence
    triangle: Cholesky  # of the Gram matrix of the independent rows
    weights: Cholesky  # of Ω_D⁻² + T Ω_B⁻² Tᵀ
    coordinates: Callable[[Products], tuple[Floats, Floats]]  # G_B⁻¹ · columns, and how far off

    def rows(self, first: int, products: Products) -> None:
        """Add the rows from a place on, with these products with all rows."""
        count = products.real.shape[1]
        _in_parts(count, lambda columns: self._join(first, products, columns))

    def _join(self, first: int, products: Products, columns: range) -> int:
        """Put rows, with these columns of products, among the independent or the dependent ones.

        Returns how many were looked at; the next needs those before it to have been joined.
        """
        dense, rank = self.dense, len(self.dense.basis)
        own = products[rectangle(dense.basis, columns)]
        places = slice(first + columns.start, first + columns.stop)
        inner = products[places, columns.start : columns.stop]
        kinds = self.independence.append(own.residues, inner.residues)
        new = [i for i, kind in enumerate(kinds) if kind]
        count = 0
        if new:
            count = self.triangle.append(
                own.real[:, new],
                inner.real[np.ix_(new, new)],
                lambda: self._schur(own.of([new[0]]), inner[new[0], new[0]]),
            )
        done = len(columns) if count == len(new) else new[count] if count else new[0] + 1
        joined, every, both = new[:count], slice(rank + count), slice(rank, rank + count)
        self.independence.truncate(rank + count)
        dense.basis = np.append(dense.basis, np.array(joined, dtype=np.int64) + places.start)
        dense.gram.grow(rank + count, rank + count)
        chosen = [columns.start + i for i in joined]
        beside = products[rectangle(dense.basis, chosen)]
        dense.gram.put((every, both), beside, mirrored=True)
        dense.cross.grow(rank + count, len(dense.others))
        beside = products[rectangle(dense.others, chosen)]
        dense.cross.put((both, slice(len(dense.others))), beside.transposed)
        depend = [columns.start + i for i in range(done) if kinds[i] is False]
        self._depend([first + i for i in depend], products[rectangle(dense.basis, depend)])
        return done

    def _depend(self, places: Sequence[int], columns: Products) -> None:
        """Put rows, with these products with the independent ones, among the dependent ones."""
        if places:
            self.depend(places, columns, self.coordinates_of(columns))

    def depend(self, places: Sequence[int], columns: Products, coordinates: Floats) -> None:
        """Add dependent rows of these coordinates, [k, rank]; NaN: they did not settle."""
        dense, others = self.dense, len(self.dense.others)
        settled = np.flatnonzero(np.isfinite(coordinates).all(axis=1))
        chosen = [places[i] for i in settled.tolist()]
        added = settled[self.weigh(chosen, coordinates[settled])]
        dense.cross.grow(len(dense.basis), others + len(added))
        where = slice(len(dense.basis)), slice(others, others + len(added))
        dense.cross.put(where, columns[:, added])

    def coordinates_of(self, columns: Products) -> Floats:
        """Return G_B⁻¹ · columns, [k, rank], NaN where it does not settle: what a_D is chosen by,
        and a_B is refined from.
        """
        dense, solve, rank = self.dense, self.triangle.solve, len(self.dense.basis)
        gram, reach = dense.gram.real[:rank, :rank], dense.reach[dense.basis]
        most = float(np.diagonal(gram).max(initial=1.0)) * rank
        found = solve(columns.real)
        for _ in range(2):
            # what floats multiply by the Gram matrix without rounding, and the rest
            bits = np.frexp(np.abs(found).max(axis=0, initial=0.0))[1] + np.frexp(most)[1] - 53
            high = np.ldexp(np.rint(np.ldexp(found, -bits)), bits)
            product = gram @ np.concatenate([high, found - high], axis=1)
            exact, rest = product[:, : len(bits)], product[:, len(bits) :]
            correction = solve(columns.real - exact - rest)
            found = found + correction
            lost = ~(reach @ np.abs(correction) <= NEAR * (reach @ np.abs(found)))
            if not lost.any():
                break
        else:
            known, error = self.coordinates(columns.of(np.flatnonzero(lost)))
            found[:, lost] = np.where(np.isfinite(error), known, np.nan)
        return found.T

    def _schur(self, column: Products, norm: Products) -> float:
        """Return ⟨q, q⟩ - column · coordinates where q is nearly dependent; 0 where it is lost."""
        found, error = self.coordinates(column)
        if not np.isfinite(error[0]):
            return 0.0
        coordinates, real = found[:, 0], column.real[:, 0]
        rough = float(norm.real) - float(real @ coordinates)
        size = float(norm.real) + float(np.abs(real) @ np.abs(coordinates))
        largest = float(np.abs(coordinates).max(initial=0.0))
        k = _fixed_point(largest, abs(rough) + size * (len(coordinates) + 4) * 2.0**-51)
        if k is None:
            return 0.0
        fixed = np.rint(np.ldexp(coordinates, k)).astype(np.int64)
        moved = np.abs(real) @ np.abs(np.ldexp(coordinates, k) - fixed)
        if not float(moved) < 2**62:
            return 0.0
        total = int((column.wrapped[:, 0] * fixed).sum())
        return math.ldexp(int(wrap((int(norm.wrapped) << k) - total)), -k)

    def weigh(self, places: Sequence[int], coordinates: Floats) -> list[int]:
        """Add dependent rows; return which: not those that floats lose."""
        dense, added = self.dense, list[int]()

        def weigh(rows: range) -> int:
            own = coordinates[rows.start : rows.stop]
            weighted = (own / dense.omega[dense.basis] ** 2).T
            columns, square = dense.transform @ weighted, own @ weighted
            noise = 1 / dense.omega[places[rows.start : rows.stop]] ** 2
            square[np.diag_indices_from(square)] += noise

            def schur() -> float:
                return float(square[0, 0] - columns[:, 0] @ self.weights.solve(columns[:, 0]))

            count = self.weights.append(columns, square, schur)
            for row in rows[:count]:
                dense.add_other(places[row], coordinates[row])
            added.extend(rows[:count])
            return count or 1

        _in_parts(len(places), weigh)
        return added


@dataclass(eq=False)
class MeasuredFamily:
    """A block of rows: those of a family from ``start`` on, all at one noise scale."""

    family: Family
    start: int
    scale: float
    norms: NDArray[Any] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # ⟨h, h⟩
    cells: int = 0  # coefficients that its rows hold in the dense system
    refinable: bool = False  # whether its answers may be given less noise

    @property
    def large(self) -> bool:
        """Whether it is a family of several rows that is not in the dense system."""
        return self.family.rows > 1 and not self.cells

    @property
    def rows(self) -> range:
        """The numbers of its rows in the history."""
        return range(self.start, self.start + self.family.rows)


def key_of(query: LinearQuery) -> tuple[bytes, int, int]:
    """Return what tells a query from all others, in a dictionary: fractions are slow there."""
    return query.direction, query.grid.numerator * query.sign, query.grid.denominator


def _fixed_point(largest: float, residual: float) -> int | None:
    """Return the k for which a · 2ᵏ is exact in floats and residual · 2ᵏ in int64, if there is."""
    k = int(fixed_points(np.array([largest]), np.array([residual]))[0])
    return k if k >= 0 else None


def fixed_points(largest: Floats, residuals: Floats) -> Integers:
    """Return k with a · 2ᵏ exact in floats and residual · 2ᵏ in int64; -1 where there is none."""
    known = np.isfinite(largest + residuals)
    bits = [np.frexp(np.where(known, sizes, 0.0))[1] for sizes in (largest, residuals)]
    k = np.minimum(np.minimum(52 - bits[0], 61 - bits[1]), 62)
    return np.where(known & (k >= 0), k, -1).astype(np.int64)


def _in_parts(count: int, act: Callable[[range], int]) -> None:
    """Let ``act`` do so many things in turn, as many at once as it can.

    It returns how many it did: where that are not all, it does the next by itself.
    """
    start, width = 0, count
    while start < count:
        done = act(range(start, min(start + width, count)))
        start, width = start + done, 2 * width if done == width else 1
