"""Inner products of one query with many rows at once, exactly.

Rows whose factors have one axis each, the usual conjunctions, share one matrix for each axis
[rows, size], so that a query costs a few matrix products however its own factors are tied.  Rows
with tied factors are stacked by structure (the axes of their factors).  Every component of an
inner product is exact in int64; the products of components are kept rounded, modulo the primes of
the estimability test, and modulo 2**64, in which residuals are exact (``history``).

New rows are multiplied with all others together: conjunctions with conjunctions by one product of
two matrices for each axis.

Shapes: ``real`` [rows] float64, ``residues`` [primes, rows] and ``wrapped`` [rows] int64; of k
queries [rows, k] and [primes, rows, k].
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from proxy.inference.query import Factor, Integers, LinearQuery, Term, contract
from proxy.inference.space import Space

Floats = NDArray[np.float64]
Structure = tuple[object, ...]

WIDE_AXIS = 2048  # rows that mention a wider axis are stacked by structure


class Products(Struct, frozen=True, eq=False):
    """Inner products of queries with rows: rounded, modulo each prime, and modulo 2**64."""

    real: Floats
    residues: Integers
    wrapped: Integers

    @staticmethod
    def empty(primes: int, *shape: int) -> Products:
        """Return zero products."""
        return Products(
            np.zeros(shape), np.zeros((primes, *shape), np.int64), np.zeros(shape, np.int64)
        )

    @staticmethod
    def whole(real: Floats, primes: Sequence[int]) -> Products:
        """Return products that are whole numbers below 2**53."""
        wrapped = real.astype(np.int64)
        residues = np.empty((len(primes), *real.shape), dtype=np.int64)
        for prime, out in zip(primes, residues, strict=True):
            np.remainder(wrapped, prime, out=out)
        return Products(real, residues, wrapped)

    @staticmethod
    def columns(each: Sequence[Products]) -> Products:
        """Return the products of several queries with the same rows."""
        return Products(
            np.stack([one.real for one in each], axis=-1),
            np.stack([one.residues for one in each], axis=-1),
            np.stack([one.wrapped for one in each], axis=-1),
        )

    def __getitem__(self, chosen: Any) -> Products:
        where = chosen if isinstance(chosen, tuple) else (chosen,)
        return Products(self.real[where], self.residues[(slice(None), *where)], self.wrapped[where])

    def of(self, queries: Any) -> Products:
        """Return the products of some of the queries."""
        return Products(
            self.real[:, queries], self.residues[..., queries], self.wrapped[:, queries]
        )

    @property
    def transposed(self) -> Products:
        """The same, rows and queries exchanged."""
        return Products(self.real.T, self.residues.transpose(0, 2, 1), self.wrapped.T)

    def put(self, places: Any, part: Products) -> None:
        """Write the products of some rows, and queries, into their places."""
        where = places if isinstance(places, tuple) else (places,)
        self.real[where] = part.real
        self.residues[(slice(None), *where)] = part.residues
        self.wrapped[where] = part.wrapped

    def add(
        self,
        vectors: Sequence[NDArray[Any]],
        constant: int,
        primes: Sequence[int],
        most: float = math.inf,
    ) -> None:
        """Add constant · the elementwise product of exact vectors [rows].

        ``most`` bounds the product of any of them.
        """
        rows = len(self.real)
        real = np.full(rows, float(constant))
        for vector in vectors:
            real *= vector.astype(np.float64, copy=False)
        if most < 2**53:
            whole = Products.whole(real, primes)
        else:
            wrapped = np.full(rows, wrap(constant))
            residues = np.array([np.full(rows, constant % prime) for prime in primes])
            for vector in vectors:
                wrapped *= vector if vector.dtype == np.int64 else _wrapped(vector)
                for own, prime in zip(residues, primes, strict=True):
                    own *= (vector % prime).astype(np.int64)
                    own %= prime
            whole = Products(real, residues, wrapped)
        np.add(self.real, whole.real, out=self.real)
        np.add(self.wrapped, whole.wrapped, out=self.wrapped)
        for own, more, prime in zip(self.residues, whole.residues, primes, strict=True):
            own += more
            own %= prime


def wrap(value: int) -> np.int64:
    """Return an integer of any size modulo 2**64, as int64."""
    return np.int64((value + 2**63) % 2**64 - 2**63)


def _wrapped(vector: NDArray[Any]) -> Integers:
    return np.array([wrap(int(value)) for value in vector], dtype=np.int64)


class Stack(Protocol):
    """Rows multiplied together, ``numbers`` their places: Conjunctions and Tied conform."""

    numbers: list[int]

    def append(self, number: int, query: LinearQuery) -> None:
        """Add a row."""

    def truncate(self, number: int) -> None:
        """Forget the rows from a number on."""

    def products(self, query: LinearQuery, primes: Sequence[int]) -> Products:
        """Return the inner products of a query with every row."""


def structure(query: LinearQuery) -> Structure:
    """Return the structure that rows of one stack share."""
    axes = [tuple(f.axes for f in term.factors) for term in query.parts.values()]
    single = all(
        len(a) == 1 and query.space.sizes[a[0]] <= WIDE_AXIS for part in axes for a in part
    )
    return tuple(query.parts) if single else tuple(zip(query.parts, axes, strict=True))


def stack(query: LinearQuery) -> Stack:
    """Return an empty stack for rows of a query's structure."""
    if structure(query) == tuple(query.parts):
        return Conjunctions(query.space, tuple(query.parts))
    return Tied(query.space, query)


def gram(
    stacks: Collection[Stack], new: Mapping[int, LinearQuery], primes: Sequence[int]
) -> Products:
    """Return the inner products of all stacked rows with the last of them, [rows, new].

    ``new`` has the queries of the last, by place.
    """
    parts = []
    for rows, others in product(stacks, repeat=2):
        last = others.numbers[bisect_left(others.numbers, min(new)) :]
        if rows.numbers and last:
            part = _gram(rows, others, [new[number] for number in last], primes)
            parts.append((rows.numbers, [number - min(new) for number in last], part))
    if len(parts) == 1:
        return parts[0][2]
    found = Products.empty(len(primes), max(new) + 1, len(new))
    for places, columns, part in parts:
        found.put(rectangle(places, columns), part)
    return found


def products_of(
    stacks: Collection[Stack], rows: int, queries: Sequence[LinearQuery], primes: Sequence[int]
) -> Products:
    """Return the inner products of all stacked rows with queries, [rows, queries].

    Conjunctions are multiplied together, as if they were the next rows.
    """
    found = Products.empty(len(primes), rows, len(queries))
    known = [each for each in stacks if each.numbers]
    asked: dict[Structure, Conjunctions] = {}
    for place, query in enumerate(queries):
        parts = tuple(query.parts)
        if structure(query) == parts:
            asked.setdefault(parts, Conjunctions(query.space, parts)).append(place, query)
            continue
        for each in known:
            found.put((each.numbers, place), each.products(query, primes))
    for each, others in product(known, asked.values()):
        part = _gram(each, others, [queries[place] for place in others.numbers], primes)
        found.put(rectangle(each.numbers, others.numbers), part)
    return found


def rectangle(rows: Sequence[int] | Integers, columns: Sequence[int]) -> Any:
    """Return the index of some rows, and some columns, in ascending order."""
    sides = [np.array(rows, dtype=np.intp), np.array(columns, dtype=np.intp)]
    if any(len(s) and s[-1] - s[0] >= len(s) for s in sides):
        return np.ix_(*sides)
    return tuple(slice(s[0], s[-1] + 1) if len(s) else slice(0) for s in sides)  # far faster


def _gram(
    rows: Stack, others: Stack, queries: Sequence[LinearQuery], primes: Sequence[int]
) -> Products:
    """Return the inner products of a stack's rows with the last rows of another."""
    if isinstance(rows, Conjunctions) and isinstance(others, Conjunctions):
        real = rows.gram(others, len(others.numbers) - len(queries))
        if real is not None:
            return Products.whole(real, primes)
    return Products.columns([rows.products(query, primes) for query in queries])


def _grown(array: NDArray[Any], rows: int, fill: int) -> NDArray[Any]:
    if rows < len(array):
        return array
    return np.concatenate([array, np.full_like(array, fill)])


class Conjunctions:
    """Rows whose factors have one axis each: a matrix [rows, size] for each axis of each part."""

    def __init__(self, space: Space, parts: tuple[int, ...]) -> None:
        self.numbers: list[int] = []
        self._space = space
        self._scales = {part: np.ones(8, dtype=np.int64) for part in parts}
        self._matrices: dict[tuple[int, int], Floats] = {}  # (part, axis), integers as floats
        self._sums: dict[tuple[int, int], Integers] = {}  # their rows' sums
        self._largest: dict[tuple[int, int], int] = {}

    def append(self, number: int, query: LinearQuery) -> None:
        """Add a row."""
        rows = len(self.numbers)
        for part, scales in self._scales.items():
            self._scales[part] = _grown(scales, rows, 1)
            self._scales[part][rows] = query.parts[part].scale
        for key, matrix in self._matrices.items():
            self._matrices[key] = _grown(matrix, rows, 1)
            self._sums[key] = _grown(self._sums[key], rows, 1)
            self._matrices[key][rows] = 1
            self._sums[key][rows] = self._space.sizes[key[1]]
        for part, term in query.parts.items():
            for factor in term.factors:
                self._place((part, factor.axes[0]), rows, factor)
        self.numbers.append(number)

    def _place(self, key: tuple[int, int], rows: int, factor: Factor) -> None:
        if key not in self._matrices:
            capacity, size = len(self._scales[key[0]]), self._space.sizes[key[1]]
            self._matrices[key] = np.ones((capacity, size))
            self._sums[key] = np.full(capacity, size, dtype=np.int64)
        self._matrices[key][rows] = factor.array
        self._sums[key][rows] = factor.array.sum()
        self._largest[key] = max(self._largest.get(key, 1), factor.largest)

    def truncate(self, number: int) -> None:
        """Forget the rows from a number on."""
        while self.numbers and self.numbers[-1] >= number:
            self.numbers.pop()

    def products(self, query: LinearQuery, primes: Sequence[int]) -> Products:
        """Return the inner products of a query with every row."""
        rows, sizes = len(self.numbers), self._space.sizes
        result = Products.empty(len(primes), rows)
        for part, scales in self._scales.items():
            if part not in query.parts:
                continue
            term = query.parts[part]
            constant, vectors, met = term.scale, [scales[:rows]], set(term.axes)
            most = abs(term.scale) * int(np.abs(scales[:rows]).max(initial=1)) * math.prod(sizes)
            for factor in term.factors:
                vectors.append(self._component(part, factor, rows))
                most *= max(factor.largest, 1)
            for (kind, axis), sums in self._sums.items():
                if kind == part and axis not in met:
                    vectors.append(sums[:rows])
                    met.add(axis)
                most *= self._largest[kind, axis] if kind == part else 1
            constant *= self._space.cells(axis for axis in range(len(sizes)) if axis not in met)
            result.add(vectors, constant, primes, most)
        return result

    def gram(self, others: Conjunctions, first: int) -> Floats | None:
        """Return the inner products with another's rows from one on; None where floats round."""
        mine, theirs = slice(len(self.numbers)), slice(first, len(others.numbers))
        total, most = np.zeros((mine.stop, theirs.stop - first)), 0
        for part in self._scales.keys() & others._scales.keys():
            own, beside = self._scales[part][mine], others._scales[part][theirs]
            bound = int(np.abs(own).max()) * int(np.abs(beside).max())
            product = np.multiply.outer(own, beside).astype(np.float64)
            for axis, size in enumerate(self._space.sizes):
                key = part, axis
                bound *= size * self._largest.get(key, 1) * others._largest.get(key, 1)
                if bound >= 2**53:
                    return None
                if key in self._matrices and key in others._matrices:
                    product *= self._matrices[key][mine] @ others._matrices[key][theirs].T
                elif key in self._matrices:
                    product *= self._sums[key][mine, None]
                elif key in others._matrices:
                    product *= others._sums[key][theirs]
                else:
                    product *= size
            most += bound
            total += product
        return total if most < 2**53 else None

    def _component(self, part: int, factor: Factor, rows: int) -> NDArray[Any]:
        """Return Σ factor · Π rows' factors over the factor's axes, exactly [rows]."""
        mine = [axis for axis in factor.axes if (part, axis) in self._matrices]
        order = [factor.axes.index(axis) for axis in mine]
        rest = [i for i in range(len(factor.axes)) if i not in order]
        most = factor.largest * factor.array.size
        most *= math.prod(self._largest[part, axis] for axis in mine)
        kind: type = np.float64 if most < 2**53 else np.int64 if most < 2**63 else object
        array: NDArray[Any] = factor.array.transpose(order + rest).astype(kind)
        current = array.reshape(*array.shape[: len(mine)], -1).sum(axis=-1, dtype=kind)
        if not mine:
            return np.full(rows, current).astype(np.int64 if kind is np.float64 else kind)
        first: NDArray[Any] = self._matrices[part, mine[0]][:rows].astype(kind, copy=False)
        current = first @ current.reshape(current.shape[0], -1)
        for axis in mine[1:]:
            matrix: NDArray[Any] = self._matrices[part, axis][:rows].astype(kind, copy=False)
            current = current.reshape(rows, matrix.shape[1], -1)
            current = np.einsum("rak,ra->rk", current, matrix)
        result: NDArray[Any] = current.reshape(rows)
        return result.astype(np.int64) if kind is np.float64 else result


class Tied:
    """Rows of one structure, with factors over several axes: the factors of each place stacked."""

    def __init__(self, space: Space, like: LinearQuery) -> None:
        self.numbers: list[int] = []
        self._space = space
        self._scales = {part: np.ones(8, dtype=np.int64) for part in like.parts}
        self._places = {
            part: [_Place(f.axes, np.zeros((8, *f.array.shape))) for f in term.factors]
            for part, term in like.parts.items()
        }

    def append(self, number: int, query: LinearQuery) -> None:
        """Add a row."""
        rows = len(self.numbers)
        for part, term in query.parts.items():
            self._scales[part] = _grown(self._scales[part], rows, 1)
            self._scales[part][rows] = term.scale
            for place, factor in zip(self._places[part], term.factors, strict=True):
                place.array = _grown(place.array, rows, 0)
                place.array[rows] = factor.array
                place.largest = max(place.largest, factor.largest)
        self.numbers.append(number)

    def truncate(self, number: int) -> None:
        """Forget the rows from a number on."""
        while self.numbers and self.numbers[-1] >= number:
            self.numbers.pop()

    def products(self, query: LinearQuery, primes: Sequence[int]) -> Products:
        """Return the inner products of a query with every row."""
        rows = len(self.numbers)
        result = Products.empty(len(primes), rows)
        for part, places in self._places.items():
            if part in query.parts:
                vectors, constant = self._components(places, query.parts[part])
                result.add([self._scales[part][:rows], *vectors], constant, primes)
        return result

    def _components(self, places: list[_Place], term: Term) -> tuple[list[NDArray[Any]], int]:
        """Return one exact vector [rows] for each component, and the constant beside them."""
        used = {axis for place in places for axis in place.axes} | set(term.axes)
        constant = term.scale * self._space.cells(
            axis for axis in range(len(self._space.sizes)) if axis not in used
        )
        vectors: list[NDArray[Any]] = []
        for mine, theirs in _tied(places, term.factors):
            if mine:
                vectors.append(self._contract(mine, theirs))
            else:
                constant *= int(contract(theirs, ()))
        return vectors, constant

    def _contract(self, mine: list[_Place], theirs: list[Factor]) -> NDArray[Any]:
        rows = len(self.numbers)
        both: list[_Place | Factor] = [*mine, *theirs]
        axes = {axis for item in both for axis in item.axes}
        most = math.prod(item.largest for item in both) * self._space.cells(axes)
        kind: type = np.float64 if most < 2**53 else np.int64 if most < 2**63 else object
        row = len(self._space.sizes)  # a name for the row index that no axis has
        operands: list[Any] = []
        for place in mine:
            operands += [place.array[:rows].astype(kind, copy=False), [row, *place.axes]]
        for factor in theirs:
            operands += [factor.array.astype(kind), list(factor.axes)]
        total = np.einsum(*operands, [row], optimize=kind is not object and len(both) > 2)
        return np.asarray(total).astype(np.int64 if kind is np.float64 else kind)


@dataclass(eq=False)
class _Place:
    """The factors at one place of the rows of a structure."""

    axes: tuple[int, ...]
    array: Floats  # [capacity, *sizes], integers as floats for BLAS
    largest: int = 0


def _tied(
    places: Sequence[_Place], factors: Sequence[Factor]
) -> list[tuple[list[_Place], list[Factor]]]:
    """Group places and factors that share axes."""
    groups: list[tuple[set[int], list[_Place], list[Factor]]] = []
    items: list[tuple[set[int], list[_Place], list[Factor]]] = [
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
