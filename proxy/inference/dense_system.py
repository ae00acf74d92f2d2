"""The rows that are solved together: their Gram matrix, and which of them depend on the others."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxy.inference.estimator import (
    Floats,
    Integers,
)
from proxy.inference.family import Family
from proxy.inference.products import Products, wrap
from proxy.inference.query import LinearQuery

LEAST_LIMB = 7  # bits of numbers multiplied at once: with less, integers are as fast


@dataclass(eq=False)
class Dense:
    """The rows of the dense system, by place, and the Gram matrix of the independent ones."""

    number: list[int] = field(default_factory=list)  # place -> row of the history
    unit: list[int] = field(default_factory=list)  # canonical grid / family grid
    reach: list[float] = field(default_factory=list)  # sensitivity, in canonical grid units
    basis: list[int] = field(default_factory=list)  # places of the independent rows
    others: list[int] = field(default_factory=list)  # places of the dependent rows
    coordinates: Floats = field(default_factory=lambda: np.zeros((16, 16)))  # T, with room
    gram: Gram = field(default_factory=lambda: Gram())  # ⟨basis, basis⟩
    cross: Gram = field(default_factory=lambda: Gram())  # ⟨basis, others⟩

    def truncate(self, places: int) -> None:
        """Forget the rows from a place on."""
        for kept in (self.number, self.unit, self.reach):
            del kept[places:]
        self.basis = [place for place in self.basis if place < places]
        self.others = [place for place in self.others if place < places]
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
        self.others.append(place)

    def residual(
        self, column: Products, own: Floats, others: Floats, sizes: Floats
    ) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
        """Return a, in multiples of 2⁻ᵏ, its exact residual, and for which queries it is lost.

        ``sizes`` are ‖h‖ by place.
        """
        rank, count, gram, cross = len(own), len(others), self.gram, self.cross
        rough = column.real - gram.real[:rank, :rank] @ own
        norms, theirs = sizes[self.basis], sizes[self.others[:count]]
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

    def put(self, where: tuple[Any, Any], products: Products) -> None:
        """Write inner products."""
        same = (products.real == products.wrapped).all()
        largest = float(np.abs(products.real).max(initial=0.0))
        self._largest = max(self._largest, largest if same else math.inf)
        self.real[where] = products.real
        self.wrapped[where] = products.wrapped


@dataclass(eq=False)
class MeasuredFamily:
    """A block of rows: those of a family from ``start`` on, all at one noise scale."""

    family: Family
    start: int
    scale: float
    norms: NDArray[Any] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # ⟨h, h⟩
    cells: int = 0  # coefficients that its rows hold in the dense system

    @property
    def large(self) -> bool:
        """Whether it is a family of several rows that is not in the dense system."""
        return self.family.rows > 1 and not self.cells

    @property
    def rows(self) -> range:
        """The numbers of its rows in the history."""
        return range(self.start, self.start + self.family.rows)


def key_of(query: LinearQuery) -> tuple[bytes, Fraction]:
    """Return what tells a query from all others, in a dictionary."""
    return query.direction, query.grid * query.sign


def schur(column: Products, coordinates: Floats, norm: int) -> float:
    """Return norm - column · coordinates, known well; 0 where it is lost."""
    rough = float(norm) - float(column.real @ coordinates)
    size = float(norm) + float(np.abs(column.real) @ np.abs(coordinates))
    largest = float(np.abs(coordinates).max(initial=0.0))
    k = _fixed_point(largest, abs(rough) + size * (len(coordinates) + 4) * 2.0**-51)
    if k is None:
        return 0.0
    fixed = np.rint(np.ldexp(coordinates, k)).astype(np.int64)
    moved = np.abs(column.real) @ np.abs(np.ldexp(coordinates, k) - fixed)
    if not float(moved) < 2**62:
        return 0.0
    total = int((column.wrapped * fixed).sum())
    return math.ldexp(int(wrap((norm << k) - total)), -k)


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
