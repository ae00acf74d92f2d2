"""The arguments of functions: translated, and of the types that the function takes."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from proxy.errors import UndefinedFunctionError
from proxy.sql import types
from proxy.sql.expression.lowering import Lowering
from proxy.sql.expression.typed import TypedSql, coerce

DOUBLE, TEXT = "double precision", "text"


def arguments(lowering: Lowering, node: exp.Expr, *names: str) -> list[TypedSql]:
    """Return the translated arguments of a function, without missing ones."""
    nodes: list[exp.Expr] = []
    for name in names:
        value = node.args.get(name)
        nodes += value if isinstance(value, list) else [value] if value is not None else []
    return [lowering.lower(value) for value in nodes]


def required(lowering: Lowering, node: exp.Expr, *names: str) -> list[TypedSql]:
    """Return the translated arguments of a function, all of them.

    Raises:
        UndefinedFunctionError: one is missing.
    """
    return [lowering.lower(node.args.get(name)) for name in names]  # it refuses None


def wrong(name: str, values: Sequence[TypedSql]) -> UndefinedFunctionError:
    """Return the error for arguments of the wrong types."""
    kinds = ", ".join(value.type for value in values)
    return UndefinedFunctionError(f"function {name}({kinds}) does not exist")


def all_texts(name: str, values: Sequence[TypedSql]) -> list[TypedSql]:
    """Return values that must be texts."""
    if any(value.type not in (TEXT, "unknown") for value in values):
        raise wrong(name, values)
    return [coerce(value, TEXT) for value in values]


def number(name: str, value: TypedSql) -> TypedSql:
    """Return a value that must be a number."""
    if value.type == "unknown":
        return coerce(value, DOUBLE)
    if value.type not in types.NUMBERS:
        raise wrong(name, [value])
    return value


def whole(name: str, value: TypedSql) -> TypedSql:
    """Return a value that must be a whole number."""
    if value.type not in ("smallint", "integer", "unknown"):
        raise wrong(name, [value])
    return coerce(value, "integer")


def moment(name: str, value: TypedSql) -> TypedSql:
    """Return a value that must be a date or a timestamp, as a timestamp."""
    if value.type not in (*types.TIMES, "unknown"):
        raise wrong(name, [value])
    return coerce(value, "timestamp")
