"""Linear combinations of aggregates: the sums, differences and multiples that are one number."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from msgspec.structs import replace
from sqlglot import exp

from proxy.errors import DataError
from proxy.sql import types
from proxy.sql.compile.linear import Average, Linear
from proxy.sql.expression.aggregates import is_aggregate
from proxy.sql.expression.lowering import signed
from proxy.sql.parse.tree import position

Aggregate = Callable[[exp.Expr], Linear | Average | None]  # None where it is neither


class Combinations:
    """The linear combinations that the parts of an expression are, each worked out once."""

    def __init__(self, aggregate: Aggregate) -> None:
        self.aggregate = aggregate
        self._known: dict[int, tuple[exp.Expr, Linear | None]] = {}  # nodes are kept alive

    def of(self, node: exp.Expr) -> Linear | None:
        """Return what a node is, if it is a linear combination of aggregates, or a constant.

        Raises:
            DataError: it is a constant that is out of the range of its type, or a division by 0.
        """
        if id(node) not in self._known:
            self._known[id(node)] = node, _linear(node, self)
        return self._known[id(node)][1]


def _linear(node: exp.Expr, known: Combinations) -> Linear | None:
    if (written := signed(node)) is not None:
        return _constant(*written)
    if isinstance(node, exp.Paren):
        return known.of(node.this)
    if isinstance(node, exp.Neg):
        inner = known.of(node.this)
        return None if inner is None else inner * Linear(None, Fraction(-1), type=inner.type)
    if isinstance(node, exp.Cast):
        return _cast(node, known)
    if isinstance(node, exp.Coalesce):
        return _coalesce(node, known)
    if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div):
        left = known.of(node.this)
        right = None if left is None else known.of(node.expression)
        return None if left is None or right is None else _combined(node, left, right)
    if is_aggregate(node):
        compiled = known.aggregate(node)
        return compiled if isinstance(compiled, Linear) else None
    return None


def scaled_inside(node: exp.Expr) -> bool:
    """Return whether a node is a scaled term inside a larger output expression.

    Then what is scaled is the number: the half-width of a count need not be a hundred times less
    where the output is a ratio, in percent.
    """
    if not isinstance(node, exp.Mul | exp.Div | exp.Neg):
        return False
    parent = node.parent
    while isinstance(parent, exp.Paren | exp.Cast):
        parent = parent.parent
    return not isinstance(parent, exp.Alias | exp.Query | exp.Ordered | None)


def _coalesce(node: exp.Coalesce, known: Combinations) -> Linear | None:
    """Return its first argument: a released count or sum is never NULL; the others type it."""
    inner = known.of(node.this)
    if inner is None or inner.query is None:
        return None
    for argument in node.expressions:
        if isinstance(argument, exp.Null) or argument.is_string:
            continue
        if (other := known.of(argument)) is None:
            return None
        kind = types.common([inner.type, other.type], "COALESCE")
        inner = replace(inner, type=kind, scale=max(inner.scale, other.scale))
    return inner


def _cast(node: exp.Expr, known: Combinations) -> Linear | None:
    target = node.args["to"]
    inner = known.of(node.this)
    if inner is None or target.expressions:
        return None
    kind = types.of_cast(target)
    if inner.query is None and not _stays(inner, kind):
        return None
    if kind == "numeric" and inner.type in types.FLOATS:
        return replace(inner, counts=False, type=kind, scale=types.DECIMALS)
    if kind in ("numeric", *types.FLOATS):
        return replace(inner, counts=False, type=kind)
    whole = inner.type in types.INTEGERS and kind in types.INTEGERS
    return replace(inner, type=kind) if whole else None


def _stays(number: Linear, kind: str) -> bool:
    """Return whether a constant is the same number as another type."""
    if kind in types.INTEGERS:
        return number.type in types.INTEGERS and types.fits(number.shift, kind)
    size = max(abs(number.shift.numerator), number.shift.denominator)
    exact = kind == "numeric" or (kind == "double precision" and size < 10**15)
    return exact and number.type not in types.FLOATS


def _constant(text: str, sign: int) -> Linear:
    """Return a number as it is written, with the sign that stands before it."""
    kind = types.of_literal(text, sign)
    scale = types.scale_of(text) or 0
    return Linear(None, sign * Fraction(text), kind in types.INTEGERS, None, kind, scale)


def _combined(node: exp.Expr, left: Linear, right: Linear) -> Linear | None:
    """Return the sum, difference, product or quotient of linear combinations, if it is one."""
    if isinstance(node, exp.Mul):
        if left.query is not None and right.query is not None:
            return None
        result = left * right if right.query is None else right * left
    elif isinstance(node, exp.Div):
        kind = types.of_arithmetic(left.type, right.type)
        if right.query is None and not right.shift and left.query is not None:
            raise DataError("division by zero", position=position(node), sqlstate="22012")
        if right.query is not None or not right.shift or kind in types.INTEGERS:
            return None  # PostgreSQL divides whole numbers without remainder: not linear
        inverse = Linear(None, 1 / right.shift, counts=False, type=right.type)
        result = replace(left * inverse, scale=types.DECIMALS)
    else:
        minus = Linear(None, Fraction(-1), type=right.type)
        result = left + (right * minus if isinstance(node, exp.Sub) else right)
    if result.query is None and not types.fits(result.shift, result.type):
        message = f"{result.type} out of range"
        raise DataError(message, position=position(node), sqlstate="22003")
    return result
