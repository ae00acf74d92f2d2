"""Typed DuckDB text, the currency of all translations.

Invariant: the DuckDB type of the text is the one of ``type``; nothing grows past the limits here,
however statements nest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from proxy.errors import StatementTooComplexError, TypeMismatchError
from proxy.sql import types

INTEGER = re.compile(r"CAST\(-?\d+ AS INTEGER\)", re.ASCII)
MAX_TEXT = 2_000_000  # characters: every translation doubles some part of what it translates
MAX_WIDTH = 1_000_000  # bytes of one text value
# what noise does to a value: nothing; a smooth function of numbers, one that jumps, one unknown
STILL, SMOOTH, JUMPS, HIDDEN = range(4)
NONE: frozenset[Any] = frozenset()
Step = tuple[str | float, ...]  # the name of a function of one number, and its constants


class Form(Struct, frozen=True):
    """What a value is of released numbers: ``steps``, in order, of ``parts``, DuckDB texts.

    ``linear`` has one part, the terms of a linear combination; ``ratio`` two; ``drawn`` has the
    text of what the steps begin with.
    """

    kind: str
    parts: tuple[str, ...]
    steps: tuple[Step, ...] = ()


class TypedSql(Struct, frozen=True):
    """A piece of DuckDB text, with the type and further properties of its value."""

    sql: str
    type: str
    axes: frozenset[int] = frozenset()  # the axes it reads
    numbers: frozenset[tuple[int, int]] = frozenset()  # (release point, number) that it reads
    provenance: str | None = None  # DuckDB text, where it is exactly one number: which
    number: int | None = None  # the index of that number in its release
    literal: str | None = None  # of an untyped quoted literal, its text
    width: int = 64  # of a text, the most bytes that it may have
    nonzero: bool = False  # it is a literal other than 0
    scale: int | None = None  # of a numeric, its decimals, where they are known
    chance: int = STILL
    form: Form | None = None
    constant: float | None = None  # of a literal, its value
    null: bool = False  # it is NULL as it is written
    partial: bool = False  # its provenance is NULL in some rows, where it is something else


NULL = TypedSql("NULL", "unknown", null=True)


def combine(
    sql: str,
    kind: str,
    *parts: TypedSql,
    width: int | None = None,
    scale: int | None = None,
    length: int = 0,
) -> TypedSql:
    """Return text composed of parts; without ``width`` it is as wide as its widest part.

    ``length`` is that of the text with what it says twice, where that is left out.

    Raises:
        StatementTooComplexError: the text, or the value, may become too long.
    """
    if width is None:
        width = max((part.width for part in parts), default=64)
    length = max(length, len(sql))
    if length > MAX_TEXT or width > MAX_WIDTH:
        what = "an expression" if length > MAX_TEXT else "a text"
        raise StatementTooComplexError(f"{what} of this statement becomes too long")
    axes, numbers, chance = NONE, NONE, STILL
    for part in parts:
        if not part.axes <= axes:
            axes |= part.axes
        if not part.numbers <= numbers:
            numbers |= part.numbers
        chance = max(chance, part.chance)
    chance = JUMPS if chance == SMOOTH else chance  # whoever knows better says so
    return TypedSql(sql, kind, axes, numbers, width=width, scale=scale, chance=chance)


def hidden(value: TypedSql) -> TypedSql:
    """Return a value of which it is not known how noise moves it, if it does."""
    return replace(value, chance=HIDDEN, form=None) if value.chance else value


def coerce(value: TypedSql, kind: str) -> TypedSql:
    """Return a value as another type, where PostgreSQL converts implicitly.

    Raises:
        TypeMismatchError: PostgreSQL does not.
    """
    if value.type == kind:
        return value
    if value.literal is not None:
        literal = types.literal(kind, types.read(value.literal, kind))
        return TypedSql(literal, kind, width=value.width, scale=types.scale_of(value.literal, kind))
    if value.type == "unknown":
        return TypedSql(types.literal(kind, None), kind, scale=0, null=value.null)
    wider = any(
        value.type in order and kind in order and order.index(value.type) < order.index(kind)
        for order in (types.NUMBERS, types.TIMES)
    )
    if not wider:
        raise TypeMismatchError(f"expected type {kind}, got {value.type}")
    if kind == "numeric":
        digits = 19 if value.type == "bigint" else 10
        return replace(value, sql=f"CAST({value.sql} AS DECIMAL({digits}, 0))", type=kind, scale=0)
    return replace(value, sql=f"CAST({value.sql} AS {types.DUCKDB[kind]})", type=kind, scale=None)


def widest(values: Sequence[TypedSql]) -> int | None:
    """Return the largest scale of some values; None if one is unknown."""
    scales = [value.scale for value in values]
    return None if None in scales else max(scale or 0 for scale in scales)


def unify(values: Sequence[TypedSql], place: str) -> list[TypedSql]:
    """Return values as their common type; text where all are untyped."""
    kind = types.common((value.type for value in values), place)
    kind = "text" if kind == "unknown" else kind
    coerced = [coerce(value, kind) for value in values]
    if kind != "numeric":
        return coerced
    scale = widest(coerced)  # DuckDB itself may take a narrower one
    scale = types.DECIMALS if scale is None else scale
    return [replace(v, sql=f"CAST({v.sql} AS DECIMAL(38, {scale}))", scale=scale) for v in coerced]


def written(value: TypedSql) -> str:
    """Return the text of a value that is compared, an integer without its cast.

    DuckDB takes it for one all the same, and binds a cast more slowly than a literal.
    """
    plain = value.constant is not None and value.type == "integer"
    return value.sql[5:-12] if plain and INTEGER.fullmatch(value.sql) else value.sql
