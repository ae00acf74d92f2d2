"""Expressions over the public domain as arrays: indicators of conditions, amounts of sums.

An expression is evaluated on every combination of the values of the axes it reads, and on nothing
else.  On a binned axis it must be constant inside each bin, which is tried at every value in the
bins where they are few (integers, dates), else at the constants it is compared with and between.
Invariant: what is returned here is exactly what the expression is on each cell.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray
from sqlglot import exp

from proxy.domain import Domain, Value
from proxy.errors import (
    DataError,
    Error,
    NotSupportedError,
    StatementTooComplexError,
    TypeMismatchError,
)
from proxy.inference.query import MAX_CELLS, Factor
from proxy.sql import types
from proxy.sql.compile.bins import (
    ENUMERABLE,
    boundaries,
    calendar,
    compared_axes,
    edges_for,
    points_between,
)
from proxy.sql.compile.columns import Axis, MeasureColumn
from proxy.sql.compile.domain_lowering import DomainLowering, KnownLowering, MeasureLowering
from proxy.sql.evaluator.evaluator import Evaluator, Points, Values, inside
from proxy.sql.expression.typed import TypedSql, coerce
from proxy.sql.parse.tree import find_all, flat, has, position

MAX_EFFORT = 2**28  # cells evaluated for one statement
TOGETHER = 2**12  # cells on which a whole condition is evaluated at once
AT_ONCE = 100  # constants
FALSE, NULL, TRUE = 0, 1, 2  # in this order AND is the minimum, OR the maximum


class CutError(NotSupportedError):
    """An expression has several values inside one bin: ``values``, of the ``node``."""

    node: exp.Expr | None = None
    values: Values | None = None


class Coefficients(Struct, frozen=True, dict=True):
    """Expressions of resolved columns, over one domain."""

    domain: Domain
    evaluator: Evaluator
    notices: list[str] = []
    effort: list[int] = field(default_factory=lambda: [0])  # cells that were evaluated
    read: dict[int, tuple[exp.Expr, list[tuple[int, Value]]]] = {}

    def lower(self, node: exp.Expr) -> TypedSql:
        """Return an expression of axes as DuckDB text."""
        return DomainLowering(self.domain).lower(node)

    @cached_property
    def typing(self) -> KnownLowering:
        """The types of expressions of axes and measures; where there are no measures, all."""
        return KnownLowering(MeasureLowering(self.domain))

    def kind(self, node: exp.Expr) -> str:
        """Return the type of an expression of axes and measures."""
        return MeasureLowering(self.domain).lower(node).type

    def values(self, node: exp.Expr, typed: TypedSql, place: str) -> Values:
        """Return an expression's value on each cell of the axes it reads.

        Raises:
            NotSupportedError: it is not constant inside the bins of an axis.
        """
        attributes = self.domain.attributes
        points = {a: self._points(node, a) for a in typed.axes if attributes[a].binned}
        values = self._evaluate(node, typed, points)
        if values.uneven:
            error = self._cut(node, values, points, place)
            error.node, error.values = node, values
            raise error
        return values

    def _evaluate(self, node: exp.Expr, typed: TypedSql, points: dict[int, Points]) -> Values:
        self.effort[0] += self._cells(typed.axes)
        if self.effort[0] > MAX_EFFORT:
            raise StatementTooComplexError("the expressions of the statement have too many cells")
        try:
            return self.evaluator.evaluate(typed.sql, typed.axes, points)
        except (DataError, StatementTooComplexError) as error:
            error.position = error.position or position(node)
            raise

    def indicator(self, node: exp.Expr, place: str) -> Factor:
        """Return 1 where a condition is true, 0 where it is false or NULL."""
        try:
            if (values := self._at_once(_bare(node), place)) is not None and values.factor:
                return values.factor
            axes, truth = self._truth(node, place, values)
        except CutError as error:
            return self._whole(node, place, error)
        return Factor(axes, (truth == TRUE).astype(np.int64))

    def _whole(self, node: exp.Expr, place: str, error: CutError) -> Factor:
        """Return a condition of which a part cuts a bin: as a whole it may not, or be widened."""
        values = error.values if error.node is _bare(node) else None
        try:
            values = values or self._evaluated(node, place)
        except StatementTooComplexError:
            raise error from None
        binned = [a for a in values.axes if self.domain.attributes[a].binned]
        if not values.uneven:
            return Factor(values.axes, (values.array & values.present).astype(np.int64))
        if any(self.domain.attributes[a].cut != "snap" for a in binned):
            raise error
        self.notices.append(f"{error.message}: widened to whole bins, {error.hint}")
        assert values.some is not None
        return Factor(values.axes, values.some.astype(np.int64))

    def _evaluated(self, node: exp.Expr, place: str) -> Values:
        """Return a condition on each cell of the axes it reads, also where it cuts a bin."""
        typed = DomainLowering(self.domain).boolean(node, place)
        binned = [a for a in typed.axes if self.domain.attributes[a].binned]
        points = {a: self._points(node, a) for a in binned}
        return self.evaluator.evaluate(typed.sql, typed.axes, points)

    def _at_once(self, node: exp.Expr, place: str) -> Values | None:
        """Return a condition that is evaluated as a whole; None of what is in parts, of too many
        cells.
        """
        if isinstance(node, exp.And | exp.Or | exp.Not):
            axes = {int(axis.this) for axis in find_all(node, Axis)}
            if self._cells(axes) > TOGETHER:
                return None
        typed = DomainLowering(self.domain).boolean(node, place)
        return self.values(node, typed, place)

    def _truth(
        self, node: exp.Expr, place: str, values: Values | None = None
    ) -> tuple[tuple[int, ...], NDArray[np.int8]]:
        """Return a condition in three-valued logic on each cell of the axes it reads.

        Only what AND, OR and NOT connect is evaluated, each on its own axes: a long condition over
        many columns costs no more than its widest part.
        """
        node = _bare(node)
        values = values or self._at_once(node, place)
        if values is not None:
            truth = np.where(values.present, values.array.astype(np.int8) * TRUE, NULL)
            return values.axes, truth.astype(np.int8)
        parts = [node.this] if isinstance(node, exp.Not) else flat(node)
        axes = sorted({int(axis.this) for axis in find_all(node, Axis)})
        if self._cells(axes) > MAX_CELLS:
            names = ", ".join(self.domain.attributes[a].name for a in axes)
            raise StatementTooComplexError(
                f"a condition ties {names} together: {self._cells(axes):,} cells, and "
                f"{MAX_CELLS:,} are allowed",
                hint="split it into conditions on fewer columns, joined by AND",
                position=position(node),
            )
        total: NDArray[np.int8] | None = None
        join = np.minimum if isinstance(node, exp.And) else np.maximum
        for part in parts:
            own, truth = self._truth(part, place)
            spread = truth.reshape([self.domain.sizes[a] if a in own else 1 for a in axes])
            total = spread if total is None else join(total, spread)
        assert total is not None
        if isinstance(node, exp.Not):
            total = TRUE - total
        shape = [self.domain.sizes[a] for a in axes]
        return tuple(axes), np.broadcast_to(total, shape)

    def _cells(self, axes: Iterable[int]) -> int:
        """Return the number of cells over some axes."""
        return math.prod(self.domain.sizes[axis] for axis in axes)

    def present(self, node: exp.Expr) -> Factor:
        """Return 1 where an expression is not NULL."""
        typed = self.lower(node)
        values = self.values(node, replace(typed, sql=f"({typed.sql} IS NOT NULL)"), "COUNT")
        return Factor(values.axes, values.array.astype(np.int64))

    def amounts(self, node: exp.Expr, place: str) -> tuple[Fraction, Factor]:
        """Return a number's value on each cell, 0 where it is NULL: a grid, and multiples of it.

        Raises:
            TypeMismatchError: it is no number.
        """
        bare = _bare(node)
        if isinstance(bare, Axis) and self.domain.attributes[int(bare.this)].binned:
            name = self.domain.attributes[int(bare.this)].name
            raise NotSupportedError(
                f"{place}({name}) is not known: {name} is declared in bins, and the cube holds no "
                "values finer than those",
                hint=f"count by bin: SELECT {name}, COUNT(*) ... GROUP BY {name}",
                position=position(node),
            )
        typed = self.number(node, place)
        values = self.values(node, typed, place)
        array = np.where(values.present, values.array, 0)
        grid, whole = integers(array, values.scale)
        return grid, Factor(values.axes, whole)

    def number(self, node: exp.Expr, place: str, measured: bool = False) -> TypedSql:
        """Return an expression that must be a number; ``measured``: for its type alone.

        Raises:
            TypeMismatchError: it is none.
        """
        known = measured or not has(node, MeasureColumn)
        typed = (self.typing if known else DomainLowering(self.domain)).lower(node)
        if typed.type == "unknown":
            typed = coerce(typed, "numeric")
        if typed.type not in types.NUMBERS:
            raise TypeMismatchError(
                f"{place} needs a number, not type {typed.type}", position=position(node)
            )
        return typed

    def _points(self, node: exp.Expr, axis: int) -> Points:
        """Return where inside the bins of an axis an expression has to be tried.

        Raises:
            NotSupportedError: the axis is dense, and not only compared with constants.
        """
        attribute = self.domain.attributes[axis]
        if attribute.type in ("integer", "date") and inside(attribute) <= ENUMERABLE:
            return None
        edges = [v for a, v in self._constants(node) if a == axis]
        explained = sum(1 for a, _ in compared_axes(node) if int(a.this) == axis)
        for unit in calendar(node, axis) if attribute.type == "timestamp" else []:
            explained += 1
            edges += boundaries(attribute, unit)
        if explained != sum(1 for use in find_all(node, Axis) if int(use.this) == axis):
            raise NotSupportedError(
                f"{attribute.name} is declared in bins: only comparisons with constants are known",
                position=position(node),
            )
        return points_between(attribute, edges)

    def _constants(self, node: exp.Expr) -> list[tuple[int, Value]]:
        """Return the constants with which axes are compared; those of the last node are kept."""
        if id(node) not in self.read:
            self.read.clear()
            self.read[id(node)] = node, self._compared(node)
        return self.read[id(node)][1]

    def _compared(self, node: exp.Expr) -> list[tuple[int, Value]]:
        pairs = []
        try:
            for axis, others in compared_axes(node):
                kind = types.of_attribute(self.domain.attributes[int(axis.this)])
                pairs += [(int(axis.this), self._constant(other, kind)) for other in others]
        except Error:
            self._read(text for _, text in pairs)  # what fails first is told
            raise
        values = self._read(text for _, text in pairs)
        known = [(axis, values[text]) for axis, text in pairs]
        return [(axis, value) for axis, value in known if value is not None]

    def _constant(self, node: exp.Expr, kind: str) -> str:
        """Return a constant, beside which an axis of this type stands, as DuckDB text."""
        typed = self.lower(node)
        if typed.type == "unknown":
            typed = coerce(typed, kind)
        elif typed.type in types.TIMES:
            typed = coerce(typed, types.common([typed.type, kind], "comparison"))
        return typed.sql

    def _read(self, texts: Iterable[str]) -> dict[str, Any]:
        """Return the values of constants, many at once: to ask for one costs as much."""
        waiting = list(dict.fromkeys(texts))
        values: dict[str, Any] = {}
        for start in range(0, len(waiting), AT_ONCE):
            some = waiting[start : start + AT_ONCE]
            try:
                ((*found,),) = self.evaluator.rows(f"SELECT {', '.join(some)}", {})
            except (DataError, NotSupportedError):  # of which one, and before which other
                found = [self.evaluator.rows(f"SELECT {text}", {})[0][0] for text in some]
            exact = [Decimal(value) if isinstance(value, float) else value for value in found]
            values.update(zip(some, exact, strict=True))
        return values

    def _cut(
        self, node: exp.Expr, values: Values, points: dict[int, Points], place: str
    ) -> CutError:
        """Return the refusal that names column, value and nearest edges."""
        looked: set[tuple[int, Value]] = set()
        for axis, value in self._constants(node):
            if (axis, value) in looked:
                continue
            looked.add((axis, value))
            attribute = self.domain.attributes[axis]
            edges = edges_for(attribute, value)
            if axis in points and edges[0] < value < edges[-1] and value not in edges:  # type: ignore[operator]
                low = max(e for e in edges if e <= value)  # type: ignore[operator]
                high = min(e for e in edges if e > value)  # type: ignore[operator]
                return CutError(
                    f"{_what(place)} cuts the bin [{low}, {high}) of {attribute.name} at {value}",
                    hint=f"the nearest edges are {low} and {high}",
                    position=position(node),
                )
        cell = dict(zip(values.axes, values.uneven[0], strict=True))
        axis = next(iter(points))
        attribute = self.domain.attributes[axis]
        edges = attribute.edges or ()
        low, high = edges[cell[axis]], edges[cell[axis] + 1]
        shown = ", ".join(str(edge) for edge in edges[:12]) + (", ..." if len(edges) > 12 else "")
        return CutError(
            f"{_what(place)} is not the same for all values in the bin [{low}, {high}) of "
            f"{attribute.name}",
            hint=f"{attribute.name} is declared in bins with the edges {shown}",
            position=position(node),
        )


def _what(place: str) -> str:
    return f"the {'condition' if place in ('WHERE', 'FILTER') else 'expression'} in {place}"


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def integers(array: NDArray[Any], scale: int) -> tuple[Fraction, NDArray[np.int64]]:
    """Return a grid and whole numbers, whose product is the array.

    Numerics are exact.  Doubles that are no multiples of a short decimal or binary fraction are
    rounded to a grid of 2**-40 of the largest: the rounded query is the query.

    Raises:
        DataError: a value is not finite.
    """
    if array.dtype.kind in "iu":
        return Fraction(1), array.astype(np.int64)
    array = array.astype(np.float64) if array.dtype.kind == "f" else array
    if not np.isfinite(array).all():
        raise DataError(
            "an expression fails for a value it may meet: value out of range: overflow",
            sqlstate="22003",
        )
    largest = float(np.abs(array).max(initial=0))
    if scale and largest * 10.0**scale < 2**53:
        return Fraction(1, 10**scale), np.rint(array * 10.0**scale).astype(np.int64)
    for denominator in (1, *(10**k for k in range(1, 7)), *(2**k for k in range(1, 21))):
        scaled = array * float(denominator)
        whole = np.rint(scaled)
        if (
            largest * denominator < 2**50
            and (np.abs(scaled - whole) <= 1e-15 * np.abs(scaled)).all()
        ):
            return Fraction(1, denominator), whole.astype(np.int64)
    exponent = math.frexp(largest)[1] - 40
    return Fraction(2) ** exponent, np.rint(np.ldexp(array, -exponent)).astype(np.int64)
