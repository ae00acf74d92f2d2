"""Inner products of one query with many: rows of one structure are stacked and taken at once.

A row's structure is, for each part, the axes of its factors.  For rows of one structure the
inner product with a query is a product over components of small matrix products, each exact in
int64; the results are kept as extended floats and modulo the primes of the estimability test.

Shapes: ``real`` [rows] long double (exact to 2**64), ``residues`` [primes, rows] int64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxy.inference.query import Factor, Integers, LinearQuery, Space, Term, contract

Real = NDArray[np.longdouble]
Structure = tuple[tuple[int, tuple[tuple[int, ...], ...]], ...]


@dataclass(frozen=True)
class Products:
    """Inner products: ``real`` [rows] long double, ``residues`` [primes, rows]."""

    real: Real
    residues: Integers


def exact(values: Sequence[int], primes: Sequence[int]) -> Products:
    """Return integers of any size as products."""
    real = np.array([_long(value) for value in values], dtype=np.longdouble)
    residues = np.array([[value % p for value in values] for p in primes], dtype=np.int64)
    return Products(real, residues.reshape(len(primes), len(values)))


def _long(value: int) -> np.longdouble:
    """Return an integer as a long double, correct to its 64 bits."""
    if abs(value) < 2**53:
        return np.longdouble(value)
    shift = max(abs(value).bit_length() - 96, 0)
    high, low = divmod(value >> shift, 2**48)
    return np.longdouble(np.ldexp(np.longdouble(high) * 2**48 + np.longdouble(low), shift))


def _longs(vector: NDArray[Any]) -> NDArray[Any]:
    if vector.dtype != object:
        return vector
    return np.array([_long(int(value)) for value in vector], dtype=np.longdouble)


def structure(query: LinearQuery) -> Structure:
    """Return what rows must share to be stacked."""
    return tuple((part, tuple(f.axes for f in term.factors)) for part, term in query.parts.items())


class _Stacked:
    """The factors of one part at one place, of all rows of a stack."""

    def __init__(self, axes: tuple[int, ...], shape: tuple[int, ...]) -> None:
        self.axes = axes
        self.array = np.zeros((8, *shape))  # [capacity, *shape], integers as floats for BLAS
        self.sums = np.zeros(8, dtype=np.int64)
        self.largest = 0

    def append(self, rows: int, factor: Factor) -> None:
        if rows == len(self.array):
            self.array = np.concatenate([self.array, np.zeros_like(self.array)])
            self.sums = np.concatenate([self.sums, np.zeros_like(self.sums)])
        self.array[rows] = factor.array
        self.sums[rows] = factor.array.sum()
        self.largest = max(self.largest, factor.largest)


@dataclass
class Stack:
    """Rows of one structure; ``numbers`` are their places in the history."""

    space: Space
    numbers: list[int] = field(default_factory=list)
    _scales: dict[int, list[int]] = field(default_factory=dict)
    _places: dict[int, list[_Stacked]] = field(default_factory=dict)

    def append(self, number: int, query: LinearQuery) -> None:
        """Add a row."""
        for part, term in query.parts.items():
            places = self._places.setdefault(
                part, [_Stacked(f.axes, f.array.shape) for f in term.factors]
            )
            for place, factor in zip(places, term.factors, strict=True):
                place.append(len(self.numbers), factor)
            self._scales.setdefault(part, []).append(term.scale)
        self.numbers.append(number)

    def truncate(self, number: int) -> None:
        """Forget the rows from a number on."""
        while self.numbers and self.numbers[-1] >= number:
            self.numbers.pop()
            for scales in self._scales.values():
                scales.pop()

    def products(self, query: LinearQuery, primes: Sequence[int]) -> Products:
        """Return the inner products of a query with every row."""
        rows = len(self.numbers)
        real = np.zeros(rows, dtype=np.longdouble)
        residues = np.zeros((len(primes), rows), dtype=np.int64)
        for part, places in self._places.items():
            if part in query.parts:
                vectors, constant = self._components(places, query.parts[part])
                vectors.append(np.array(self._scales[part], dtype=np.int64))
                product = np.full(rows, _long(constant))
                for vector in vectors:
                    product *= _longs(vector)
                real += product
                for i, prime in enumerate(primes):
                    residue = np.full(rows, constant % prime, dtype=np.int64)
                    for vector in vectors:
                        residue = residue * (vector % prime) % prime
                    residues[i] = (residues[i] + residue) % prime
        return Products(real, residues)

    def _components(self, places: list[_Stacked], term: Term) -> tuple[list[Integers], int]:
        """Return one exact vector [rows] for each component, and the constant beside them."""
        rows = len(self.numbers)
        used = {axis for place in places for axis in place.axes} | set(term.axes)
        constant = term.scale * self.space.cells(
            axis for axis in range(len(self.space.sizes)) if axis not in used
        )
        vectors: list[Integers] = []
        for mine, theirs in _components(places, term.factors):
            if not mine:
                constant *= int(contract(theirs, ()))
            elif not theirs:
                vectors += [place.sums[:rows] for place in mine]
            else:
                vectors.append(self._contract(mine, theirs))
        return vectors, constant

    def _contract(self, mine: list[_Stacked], theirs: list[Factor]) -> Integers:
        rows = len(self.numbers)
        both: list[_Stacked | Factor] = [*mine, *theirs]
        axes = {axis for item in both for axis in item.axes}
        most = math.prod(item.largest for item in both) * self.space.cells(axes)
        kind: type = np.float64 if most < 2**53 else np.int64 if most < 2**63 else object
        if len(mine) == len(theirs) == 1 and mine[0].axes == theirs[0].axes:
            left: NDArray[Any] = mine[0].array[:rows].reshape(rows, -1).astype(kind, copy=False)
            total = left @ theirs[0].array.reshape(-1).astype(kind)
            return np.asarray(total).astype(np.int64 if kind is np.float64 else kind)
        row = len(self.space.sizes)  # a name for the row index that no axis has
        operands: list[Any] = []
        for place in mine:
            operands += [place.array[:rows].astype(kind), [row, *place.axes]]
        for factor in theirs:
            operands += [factor.array.astype(kind), list(factor.axes)]
        total = np.einsum(*operands, [row], optimize=kind is not object)
        return np.asarray(total).astype(np.int64 if kind is np.float64 else kind)


def _components(
    places: Sequence[_Stacked], factors: Sequence[Factor]
) -> list[tuple[list[_Stacked], list[Factor]]]:
    """Group stacked places and factors that share axes."""
    groups: list[tuple[set[int], list[_Stacked], list[Factor]]] = []
    items: list[tuple[set[int], list[_Stacked], list[Factor]]] = [
        *((set(place.axes), [place], []) for place in places),
        *((set(factor.axes), [], [factor]) for factor in factors),
    ]
    for axes, mine, theirs in items:
        apart = []
        for group in groups:
            if group[0] & axes:
                axes, mine, theirs = axes | group[0], group[1] + mine, group[2] + theirs
            else:
                apart.append(group)
        groups = [*apart, (axes, mine, theirs)]
    return [(mine, theirs) for _, mine, theirs in groups]
