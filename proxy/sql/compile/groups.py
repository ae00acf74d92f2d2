"""The groups of a GROUP BY: which cells are in which row, and what the row's columns show.

Invariant: a group is listed iff some cell of the declared domain is in it and satisfies WHERE, so
the rows of a result say nothing about the data.  Rows come in the order of the first key, then of
the second, ...: a column in its declared order, an expression in ascending order, NULL last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from sqlglot import exp

from proxy.errors import NotSupportedError, StatementTooComplexError
from proxy.inference.query import MAX_CELLS, Factor, Term
from proxy.sql import types
from proxy.sql.compile.coefficients import Coefficients
from proxy.sql.compile.columns import Axis
from proxy.sql.evaluator.evaluator import Values
from proxy.sql.evaluator.failures import no_time
from proxy.sql.expression.typed import TypedSql
from proxy.sql.parse.tree import position
from proxy.sql.program import Cell

MAX_GROUPS = 100_000


class Key(Struct, frozen=True):
    """A grouping expression of resolved columns."""

    name: str
    node: exp.Expr
    typed: TypedSql
    place: str = "GROUP BY"


class Groups(Struct, frozen=True, eq=False):
    """The rows of a GROUP BY."""

    axes: tuple[int, ...]
    labels: NDArray[np.int32]  # [sizes of the axes] the row of each cell, -1 where in none
    rows: int
    values: tuple[tuple[Cell, ...], ...]  # per key, per row


def groups(
    keys: Sequence[Key], wheres: Sequence[Term | None], coefficients: Coefficients
) -> Groups:
    """Return the groups of some keys under any of some conditions (None where never true).

    Raises:
        StatementTooComplexError: there are too many.
    """
    sizes = coefficients.domain.sizes
    axes = tuple(sorted({axis for key in keys for axis in key.typed.axes}))
    shape = tuple(sizes[axis] for axis in axes)
    if math.prod(shape) > MAX_CELLS:
        raise StatementTooComplexError(
            f"GROUP BY reads {math.prod(shape):,} cells at once; {MAX_CELLS:,} are allowed"
        )
    coded = [_codes(key, coefficients) for key in keys]
    combined = np.zeros(shape, dtype=np.int64)
    for own, codes, values in coded:
        spread = Factor(own, codes).over(axes)
        combined = combined * max(len(values), 1) + spread
    inside = np.zeros(shape, dtype=bool)
    for where in wheres:
        inside |= _allowed(where, axes, shape)
    kinds, inverse = np.unique(combined[inside], return_inverse=True)
    if len(kinds) > MAX_GROUPS:
        raise StatementTooComplexError(
            f"GROUP BY makes {len(kinds):,} groups; {MAX_GROUPS:,} are allowed",
            hint="group by fewer columns, or restrict them in WHERE",
        )
    labels = np.full(shape, -1, dtype=np.int32)
    labels[inside] = inverse
    rows = len(kinds)
    shown: list[tuple[Cell, ...]] = []
    for _, _, values in reversed(coded):
        kinds, codes = np.divmod(kinds, max(len(values), 1))
        shown.append(tuple(values[code] for code in codes))
    return Groups(axes, labels, rows, tuple(reversed(shown)))


def _codes(
    key: Key, coefficients: Coefficients
) -> tuple[tuple[int, ...], NDArray[np.int64], list[Cell]]:
    """Return the axes of a key, the code of its value on each of their cells, and the values."""
    node = key.node
    while isinstance(node, exp.Paren):
        node = node.this
    if key.typed.type == "interval":
        raise NotSupportedError(
            "an interval is no group",
            hint="group by its parts, EXTRACT(year FROM ...), or by its text",
            position=position(key.node),
        )
    if isinstance(node, Axis):
        axis = int(node.this)
        attribute = coefficients.domain.attributes[axis]
        codes = np.arange(attribute.size, dtype=np.int64)
        return (axis,), codes, [attribute.value(code) for code in range(attribute.size)]
    values = coefficients.values(key.node, key.typed, key.place)
    present = values.present
    kinds, inverse = np.unique(values.array[present], return_inverse=True)
    codes = np.full(present.shape, len(kinds), dtype=np.int64)
    codes[present] = inverse
    null: list[Cell] = [] if present.all() else [None]
    return (
        values.axes,
        codes,
        [*(_cell(kind, values, key.typed.type) for kind in kinds.tolist()), *null],
    )


def _cell(value: Any, values: Values, kind: str) -> Cell:
    if values.scale:
        return Decimal(round(value * 10**values.scale)).scaleb(-values.scale)
    if values.decimal:
        return Decimal(round(value))
    if kind in types.TIMES and isinstance(value, int):  # Python has no datetime of it
        raise no_time(kind)
    if kind == "date":
        return value.date()  # type: ignore[no-any-return]  # numpy has made a datetime of it
    return value  # type: ignore[no-any-return]


def _allowed(
    where: Term | None, axes: tuple[int, ...], shape: tuple[int, ...]
) -> NDArray[np.bool_]:
    """Return the cells over some axes for which a condition can be true."""
    allowed = np.full(shape, where is not None, dtype=bool)
    for factor in where.factors if where else ():
        others = tuple(i for i, axis in enumerate(factor.axes) if axis not in axes)
        kept = tuple(axis for axis in factor.axes if axis in axes)
        some = (factor.array != 0).any(axis=others)
        allowed &= Factor(kept, some.astype(np.int64)).over(axes) != 0
    return allowed
