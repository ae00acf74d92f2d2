"""Linear queries over a data cube: exact integer coefficients, as products of small tensors.

A query is  θ = Σ_parts Σ_cells  grid · coefficient · unknown,  where the unknowns of part 0 are
the cell counts x, and of parts 1 + 2k and 2 + 2k the cells' sums of measure k (in quanta) and
their counts of records in which it is not NULL.  The coefficients of a part are a product of
factors over disjoint sets of axes, and constant along every other axis, so nothing here costs
more as the cube gets larger.  Invariant: coefficients are integers without a common divisor, and
factors are irreducible (constant along no axis, not separable), so that equal queries have equal
forms; ``grid`` > 0 is exact.

Shapes: a factor's array is int64 with the sizes of its axes.  Units: grid in answer per record
(or per quantum).  A query of more than MAX_CELLS coefficients in one factor, or with
coefficients past 2**53 in one factor, or 2**62 in all, is a ``TooLargeError``.
Source: Xiao & Xiong, Section 2 (data model); factors and families are ours.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property, reduce
from hashlib import blake2b
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from proxy.inference.space import Space, common_grid

Integers = NDArray[np.int64]

COUNT = 0  # the part of the cell counts
MAX_CELLS = 2**24  # coefficients in one factor
MAX_COEFFICIENT = 2**62
FEW_CELLS = 2**13
SEPARABLE_STEPS = 2**22  # a factor whose search for a finer product takes more is left whole


class TooLargeError(ValueError):
    """The query's coefficients do not fit: too many in one factor, or too large."""


class TooWideError(TooLargeError):
    """The coefficients of a query differ too much in size: they are too large in its grid."""


def sum_part(measure: int) -> int:
    """Return the part of a measure's cell sums, in quanta."""
    return 1 + 2 * measure


def present_part(measure: int) -> int:
    """Return the part of the counts of records whose measure is not NULL."""
    return 2 + 2 * measure


class Factor(Struct, frozen=True, eq=False, dict=True):
    """A tensor over ``axes`` (ascending), its coefficients int64 of those axes' sizes."""

    axes: tuple[int, ...]
    array: Integers
    irreducible = cached_property(lambda self: _irreducible(self))  # what ``Term.of`` makes of it

    def __post_init__(self) -> None:
        self.array.setflags(write=False)

    @cached_property
    def span(self) -> tuple[int, int]:
        """The least and the largest coefficient."""
        return int(self.array.min()), int(self.array.max())

    @cached_property
    def largest(self) -> int:
        """The largest absolute coefficient."""
        return max(-self.span[0], self.span[1]) if self.array.size else 0

    def over(self, axes: Sequence[int]) -> Integers:
        """Return the array shaped to broadcast over ``axes``, a superset of its own."""
        shape = [
            self.array.shape[self.axes.index(axis)] if axis in self.axes else 1 for axis in axes
        ]
        return self.array.reshape(shape)


class Term(Struct, frozen=True, eq=False, dict=True):
    """The coefficients of one part: scale times the product of factors over disjoint axes."""

    scale: int
    factors: tuple[Factor, ...] = ()

    @staticmethod
    def of(scale: int, factors: Iterable[Factor]) -> Term | None:
        """Return the canonical term of a product (axes may overlap), None where it is zero."""
        done: list[Factor] = []
        for factor in _joined(factors):
            scale *= factor.irreducible[0]
            done += factor.irreducible[1]
        if not scale:
            return None
        if abs(scale) * math.prod(factor.largest for factor in done) > MAX_COEFFICIENT:
            raise TooWideError("coefficients past 2**62")
        return Term(scale, tuple(sorted(done, key=lambda factor: factor.axes)))

    def times(self, factors: Sequence[Factor]) -> Term | None:
        """Return the canonical term, as this one is, multiplied by factors; None where it is 0."""
        axes = {axis for factor in factors for axis in factor.axes}
        kept = tuple(factor for factor in self.factors if axes.isdisjoint(factor.axes))
        changed = Term.of(self.scale, (*(f for f in self.factors if f not in kept), *factors))
        if changed is None or not kept:
            return changed
        found = Term(changed.scale, tuple(sorted((*kept, *changed.factors), key=lambda f: f.axes)))
        if found.largest > MAX_COEFFICIENT:
            raise TooWideError("coefficients past 2**62")
        return found

    @cached_property
    def axes(self) -> tuple[int, ...]:
        """The axes along which the coefficients vary."""
        return tuple(sorted(axis for factor in self.factors for axis in factor.axes))

    @cached_property
    def largest(self) -> int:
        """The largest absolute coefficient."""
        return abs(self.scale) * math.prod(factor.largest for factor in self.factors)

    @cached_property
    def span(self) -> tuple[int, int]:
        """The least and the largest coefficient."""
        return reduce(_times, (f.span for f in self.factors), (self.scale, self.scale))

    @cached_property
    def key(self) -> bytes:
        """A digest of the factors, without the scale."""
        digest = blake2b(digest_size=16)
        for factor in self.factors:
            digest.update(repr((factor.axes, factor.array.shape)).encode())
            digest.update(factor.array.tobytes())
        return digest.digest()

    def dense(self, axes: Sequence[int], space: Space) -> Integers:
        """Return the coefficients over ``axes``, a superset of its own."""
        if space.cells(axes) > MAX_CELLS:
            raise TooLargeError(f"{space.cells(axes)} coefficients in one factor")
        shape = tuple(space.sizes[axis] for axis in axes)
        result = np.full(shape, self.scale, dtype=np.int64)
        for factor in self.factors:
            result *= factor.over(axes)
        return result


def _times(left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    """Return the least and the largest product of a number of each interval."""
    products = [a * b for a in left for b in right]
    return min(products), max(products)


def _joined(factors: Iterable[Factor]) -> list[Factor]:
    """Multiply together the factors that share axes."""
    parts: list[Factor] = []
    for factor in factors:
        tied = [part for part in parts if set(part.axes) & set(factor.axes)]
        parts = [part for part in parts if part not in tied]
        parts.append(reduce(_multiply, tied, factor))
    return parts


def _multiply(left: Factor, right: Factor) -> Factor:
    axes = tuple(sorted({*left.axes, *right.axes}))
    if left.largest * right.largest > MAX_COEFFICIENT:
        raise TooWideError("coefficients past 2**62")
    one, two = left.over(axes), right.over(axes)
    if math.prod(np.broadcast_shapes(one.shape, two.shape)) > MAX_CELLS:
        raise TooLargeError("too many coefficients in one factor")
    return Factor(axes, one * two)


def _irreducible(factor: Factor) -> tuple[int, list[Factor]]:
    """Split a factor into an integer and the finest product of primitive factors."""
    array, axes = factor.array, factor.axes
    if array.size > MAX_CELLS:
        raise TooLargeError(f"{array.size} coefficients in one factor")
    for position in reversed(range(array.ndim)):  # along which axes is it constant?
        first = np.take(array, [0], axis=position)
        if (array == first).all():
            array = np.take(array, 0, axis=position)
            axes = axes[:position] + axes[position + 1 :]
    if not axes:
        return int(array), []
    largest = int(np.abs(array).max())
    if largest * array.size > MAX_COEFFICIENT or largest >= 2**53:
        raise TooWideError("coefficients past 2**53 in one factor")
    whole = int(np.gcd.reduce(array, axis=None))
    if not whole:
        return 0, []
    if array.flat[int((array != 0).argmax())] < 0:
        whole = -whole
    array = np.ascontiguousarray(array // whole)
    if len(axes) > 1 and array.size << len(axes) <= SEPARABLE_STEPS:
        for count in range(1, len(axes) // 2 + 1):
            for chosen in itertools.combinations(range(len(axes)), count):
                split = _separate(array, axes, chosen)
                if split:
                    scales, pieces = zip(*(_irreducible(piece) for piece in split), strict=True)
                    return whole * math.prod(scales), [p for piece in pieces for p in piece]
    return whole, [Factor(axes, array)]


def _separate(
    array: Integers, axes: tuple[int, ...], chosen: tuple[int, ...]
) -> tuple[Factor, Factor] | None:
    """Return two factors whose product is the array, one over the chosen axes, if it has rank 1."""
    rest = tuple(i for i in range(len(axes)) if i not in chosen)
    shape = [math.prod(array.shape[i] for i in group) for group in (chosen, rest)]
    matrix = array.transpose(chosen + rest).reshape(shape)
    row, column = divmod(int((matrix != 0).argmax()), shape[1])
    left, right, pivot = matrix[:, column], matrix[row], int(matrix[row, column])
    if int(np.abs(matrix).max()) * max(int(np.abs(left).max()), abs(pivot)) >= MAX_COEFFICIENT:
        return None
    if int(np.abs(left).max()) * int(np.abs(right).max()) >= MAX_COEFFICIENT:
        return None
    if not (matrix * pivot == np.outer(left, right)).all():
        return None
    left = left // np.gcd.reduce(left)  # the array is primitive, so both pieces are
    right = right // np.gcd.reduce(right)
    if int(left[row]) * int(right[column]) * pivot < 0:
        left = -left
    return (
        Factor(tuple(axes[i] for i in chosen), left.reshape([array.shape[i] for i in chosen])),
        Factor(tuple(axes[i] for i in rest), right.reshape([array.shape[i] for i in rest])),
    )


class LinearQuery(Struct, frozen=True, eq=False, dict=True):
    """One number: θ = grid · Σ_parts ⟨term, unknowns of that part⟩.  Equal where all is equal."""

    space: Space
    grid: Fraction
    parts: Mapping[int, Term]  # part -> term; empty for the zero query

    @staticmethod
    def of(space: Space, grid: Fraction, parts: Mapping[int, Term | None]) -> LinearQuery:
        """Return the canonical query with these coefficients, grid times each term."""
        kept = {part: term for part, term in sorted(parts.items()) if term}
        common = math.gcd(*(term.scale for term in kept.values()))
        if not common:
            return LinearQuery(space, Fraction(1), {})
        kept = {part: Term(term.scale // common, term.factors) for part, term in kept.items()}
        return LinearQuery(space, grid * common, kept)

    @staticmethod
    def count(space: Space, *factors: Factor) -> LinearQuery:
        """Return the query Σ_cells Π factors · count."""
        return LinearQuery.of(space, Fraction(1), {COUNT: Term.of(1, factors)})

    @property
    def zero(self) -> bool:
        """Whether the answer is 0 whatever the data."""
        return not self.parts

    @cached_property
    def axes(self) -> tuple[int, ...]:
        """The scope: the axes along which some coefficient varies."""
        return tuple(sorted({axis for term in self.parts.values() for axis in term.axes}))

    @cached_property
    def direction(self) -> bytes:
        """A digest that two queries share iff one is a multiple of the other."""
        sign = -1 if self.parts and next(iter(self.parts.values())).scale < 0 else 1
        items = [(part, sign * term.scale, term.key) for part, term in self.parts.items()]
        return blake2b(repr(items).encode(), digest_size=16).digest()

    @property
    def sign(self) -> int:
        """The sign that is left out of ``direction``."""
        return -1 if self.parts and next(iter(self.parts.values())).scale < 0 else 1

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, LinearQuery)
            and self.space == other.space
            and self.grid * self.sign == other.grid * other.sign
            and self.direction == other.direction
        )

    def __hash__(self) -> int:
        return hash((self.grid * self.sign, self.direction))

    def __mul__(self, factor: Fraction | int) -> LinearQuery:
        if not factor or self.zero:
            return LinearQuery(self.space, Fraction(1), {})
        sign = 1 if factor > 0 else -1
        parts = {p: Term(term.scale * sign, term.factors) for p, term in self.parts.items()}
        return LinearQuery(self.space, self.grid * sign * Fraction(factor), parts)

    def __neg__(self) -> LinearQuery:
        return self * -1

    def __add__(self, other: LinearQuery) -> LinearQuery:
        if self.zero or other.zero:
            return other if self.zero else self
        grid = common_grid(self.grid, other.grid)
        one, two = int(self.grid / grid), int(other.grid / grid)
        parts = {
            part: _add(self.parts.get(part), one, other.parts.get(part), two, self.space)
            for part in {*self.parts, *other.parts}
        }
        return LinearQuery.of(self.space, grid, parts)

    def __sub__(self, other: LinearQuery) -> LinearQuery:
        return self + -other

    def times(self, *factors: Factor) -> LinearQuery:
        """Return the query with its coefficients multiplied by factors (a WHERE, a FILTER)."""
        parts = {part: term.times(factors) for part, term in self.parts.items()}
        return LinearQuery.of(self.space, self.grid, parts)

    @cached_property
    def bound(self) -> Term:
        """The most a record of each cell moves the answer, in grid units: non-negative [scope].

        A record of cell j adds h_j + Σ_k (h_j^sum_k · v_k + h_j^present_k) with v_k in its box, or
        nothing to measure k where it is NULL; the bound is the largest absolute value.
        """
        if len(self.parts) == 1:
            ((part, term),) = self.parts.items()
            reach = 1
            if part % 2:
                reach = self.space.reach(part // 2)
            scale = abs(term.scale) * reach
            signed = any(factor.span[0] < 0 for factor in term.factors)
            if scale and not signed and reach * term.largest <= MAX_COEFFICIENT:
                return Term(scale, term.factors)
            factors = tuple(Factor(f.axes, np.abs(f.array)) for f in term.factors)
            return Term.of(scale, factors) or Term(0)
        return self._joint_bound()

    def _joint_bound(self) -> Term:
        axes = self.axes
        zero = np.zeros(tuple(self.space.sizes[axis] for axis in axes), dtype=np.int64)
        if zero.size > MAX_CELLS:
            raise TooLargeError(f"{zero.size} coefficients in one factor")
        reach = sum(
            term.largest * (self.space.reach(part // 2) if part % 2 else 1)
            for part, term in self.parts.items()
        )
        if reach > MAX_COEFFICIENT:
            raise TooWideError("coefficients past 2**62")
        dense = {part: term.dense(axes, self.space) for part, term in self.parts.items()}
        low = high = dense.get(COUNT, zero)
        for k, box in enumerate(self.space.boxes):
            slope, base = dense.get(sum_part(k), zero), dense.get(present_part(k), zero)
            ends = np.stack([base + slope * box.low, base + slope * box.high])
            if box.nullable:
                ends = np.concatenate([ends, zero[None]])
            low, high = low + ends.min(axis=0), high + ends.max(axis=0)
        return Term.of(1, [Factor(axes, np.maximum(-low, high))]) or Term(0)

    @cached_property
    def sensitivity(self) -> int:
        """S in grid units: the most that one record moves the answer."""
        return self.bound.largest

    @cached_property
    def span(self) -> tuple[int, int]:
        """The least and the most that one record adds, in grid units; 0 is between them.

        Of a query of several parts each is taken by itself: then these are bounds.
        """
        low = high = 0
        for part, term in self.parts.items():
            ends = term.span
            if part % 2:
                box = self.space.boxes[part // 2]
                ends = _times(ends, (box.low, box.high))
            low, high = low + min(ends[0], 0), high + max(ends[1], 0)
        return low, high

    @cached_property
    def square(self) -> int:
        """⟨self, self⟩ exactly, in units of grid · grid."""
        return self.dot(self)

    def dot(self, other: LinearQuery) -> int:
        """Return ⟨self, other⟩ exactly, in units of grid · grid."""
        parts = self.parts.keys() & other.parts.keys()
        return sum(_dot(self.parts[part], other.parts[part], self.space) for part in parts)


def _add(left: Term | None, one: int, right: Term | None, two: int, space: Space) -> Term | None:
    """Return one·left + two·right: common factors stay, the others become one dense factor."""
    if left is None or right is None:
        term, times = (right, two) if left is None else (left, one)
        return term and Term.of(term.scale * times, term.factors)
    theirs = {(factor.axes, factor.array.tobytes()): factor for factor in right.factors}
    common = [f for f in left.factors if (f.axes, f.array.tobytes()) in theirs]
    shared = {(factor.axes, factor.array.tobytes()) for factor in common}
    rests = [
        Term(t.scale * k, tuple(f for f in t.factors if (f.axes, f.array.tobytes()) not in shared))
        for t, k in ((left, one), (right, two))
    ]
    if sum(rest.largest for rest in rests) > MAX_COEFFICIENT:
        raise TooWideError("coefficients past 2**62")
    axes = tuple(sorted({axis for rest in rests for axis in rest.axes}))
    total = rests[0].dense(axes, space) + rests[1].dense(axes, space)
    return Term.of(1, [*common, Factor(axes, total)])


def _dot(left: Term, right: Term, space: Space) -> int:
    """Return Σ_cells left · right."""
    total = int(contract((*left.factors, *right.factors), ()))
    return left.scale * right.scale * total * space.beside({*left.axes, *right.axes})


def _tied(factors: Iterable[Factor]) -> list[tuple[set[int], list[Factor]]]:
    """Group factors into connected components by the axes they share."""
    groups: list[tuple[set[int], list[Factor]]] = []
    for factor in factors:
        axes, members = set(factor.axes), [factor]
        apart = []
        for group in groups:
            if group[0] & axes:
                axes, members = axes | group[0], group[1] + members
            else:
                apart.append(group)
        groups = [*apart, (axes, members)]
    return groups


def contract(factors: Sequence[Factor], keep: Sequence[int]) -> NDArray[np.generic]:
    """Return Σ Π factors over every axis but ``keep``, exactly: int64, or object past 2**63.

    Factors that share no axis with those of ``keep`` are summed up by themselves.
    """
    mine: list[Factor] = []
    times = 1
    for axes, group in _tied(factors):
        if axes & set(keep):
            mine += group
        else:
            times *= int(_contracted(group, ()))
    if times == 1:
        return _contracted(mine, keep)
    if not mine and not keep:
        return np.asarray(times, dtype=object)
    table: NDArray[Any] = _contracted(mine, keep)
    if max(int(np.abs(table).max(initial=0)), 1) * abs(times) >= 2**63:
        table = table.astype(object)
    return np.asarray(table * times)


def _contracted(factors: Sequence[Factor], keep: Sequence[int]) -> NDArray[np.generic]:
    """Return Σ Π factors over every axis but ``keep``, exactly."""
    shapes = {axis: size for f in factors for axis, size in zip(f.axes, f.array.shape, strict=True)}
    most = math.prod(f.largest for f in factors) * math.prod(shapes.values())
    kind: type = np.float64 if most < 2**53 else np.int64 if most < 2**63 else object
    operands: list[Any] = []
    for f in factors:
        operands += [f.array.astype(kind), list(f.axes)]
    if not operands:
        return np.asarray(1)
    # to look for the best order takes longer than some thousands of products
    many = len(factors) > 1 and math.prod(shapes.values()) > FEW_CELLS
    result = np.asarray(np.einsum(*operands, list(keep), optimize=many))
    return result.astype(np.int64) if kind is np.float64 else result
