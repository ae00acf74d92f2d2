"""Checks that keep an expression within the range of its type."""

from __future__ import annotations

from msgspec.structs import replace

from proxy.sql import types
from proxy.sql.expression.typed import TypedSql, coerce, combine


def wide(value: TypedSql) -> TypedSql:
    """Return a numeric of full width: DuckDB gives a sum the width of its operands."""
    value = coerce(value, "numeric")
    if value.scale is None:
        return value
    return replace(value, sql=f"CAST({value.sql} AS DECIMAL(38, {value.scale}))")


def finite(text: str, operand: TypedSql) -> str:
    """Return a result that fails where it is infinite; a long text is checked when shown."""
    if operand.type not in types.FLOATS or len(text) > CHECKED:
        return text
    return checked(f"isinf({text})", "value out of range: overflow", text)


CHECKED = 200  # characters: each check writes an expression twice


EXACT = 18  # decimals of a product of numerics that is exact


def numeric(text: str, *parts: TypedSql) -> TypedSql:
    """Return a double as a numeric: of 15 digits, so that 0.3 / 0.1 is 3, and not a bit less."""
    scale = types.QUOTIENT
    written = f"CAST(format('{{:.14e}}', {text}) AS DECIMAL(38, {scale}))"
    return combine(written, "numeric", *parts, scale=scale)


def guarded(left: TypedSql, divisor: TypedSql, text: str) -> str:
    """Return a division that fails where the divisor is 0 and the dividend is not NULL."""
    if divisor.nonzero:
        return text
    wrong = f"{divisor.sql} = 0 AND {left.sql} IS NOT NULL"
    return checked(wrong, "division by zero", text, divisor)


def checked(wrong: str, message: str, text: str, *parts: TypedSql) -> str:
    """Return a text that fails with a message, as PostgreSQL does, where a condition holds.

    Where noise may make it hold the result is NULL: a statement must not fail by chance.  What is
    past the range of its type fails all the same.
    """
    noisy = any(part.numbers for part in parts) and not message.startswith("value out of range")
    failed = "NULL" if noisy else f"error('{message}')"
    return f"CASE WHEN {wrong} THEN {failed} ELSE {text} END"
