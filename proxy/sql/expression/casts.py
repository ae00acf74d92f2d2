"""Casts, as PostgreSQL makes them; text is read by PostgreSQL's rules or not at all."""

from __future__ import annotations

import re

from msgspec.structs import replace
from sqlglot import exp

from proxy.errors import DataError, NotSupportedError, TypeMismatchError
from proxy.sql import types
from proxy.sql.expression.forms import smooth, stepped
from proxy.sql.expression.guards import checked
from proxy.sql.expression.intervals import constant, shown
from proxy.sql.expression.lowering import Lowering, Rules, signed
from proxy.sql.expression.typed import Form, TypedSql, coerce, combine

WHOLE = r"\s*[-+]?[0-9]+\s*"
DAY = r"\s*[0-9]{4}-[0-9]{2}-[0-9]{2}"
REAL = r"\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,3})?\s*"
WRITTEN = re.compile(r"CAST\((-?\d+) AS (?:SMALLINT|INTEGER|BIGINT)\)", re.ASCII)
READABLE = {
    **dict.fromkeys(types.INTEGERS, WHOLE),
    **dict.fromkeys(("numeric", *types.FLOATS), REAL),
    "date": rf"{DAY}\s*",
    "timestamp": rf"{DAY}([ T][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}(\.[0-9]{{1,6}})?)?)?\s*",
}
PLAIN = {  # casts that DuckDB makes as PostgreSQL does
    **dict.fromkeys([(a, b) for a in types.NUMBERS for b in types.NUMBERS]),
    ("boolean", "integer"): None,
    ("date", "timestamp"): None,
    ("timestamp", "date"): None,
    **dict.fromkeys([(a, "text") for a in (*types.INTEGERS, "numeric", "boolean", *types.TIMES)]),
}


def _cast(lowering: Lowering, node: exp.Expr) -> TypedSql:
    target = node.args["to"]
    kind = types.of_cast(target)
    if kind == "interval":
        span = constant(node)
        if span is None and isinstance(node.this, exp.Null):
            return coerce(lowering.lower(node.this), kind)
        if span is None:
            raise NotSupportedError("only a text in quotes is cast to interval")
        return span.typed
    if kind in types.FLOATS and (written := signed(node.this)) is not None:  # of any size
        text, sign = written
        size = sign * types.real(text, kind)
        return TypedSql(types.literal(kind, size), kind, nonzero=bool(size), constant=size)
    value = lowering.lower(node.this)
    if kind in types.INTEGERS and value.constant is not None and value.type in types.INTEGERS:
        return _whole(value, kind)
    if value.type == "unknown":
        return sized(coerce(value, kind), target)
    return sized(cast(value, kind), target)


def cast(value: TypedSql, kind: str) -> TypedSql:
    """Return a value as another type.

    Raises:
        TypeMismatchError: PostgreSQL has no such cast.
        NotSupportedError: DuckDB's differs.
    """
    if value.type == kind:
        return value
    if (value.type, kind) in PLAIN:
        if kind == "numeric" and value.type not in types.FLOATS:
            return coerce(value, kind)
        if kind == "numeric":  # by its shortest text
            text = f"CAST(CAST({value.sql} AS VARCHAR) AS {_duckdb(kind)})"
            return smooth(combine(text, kind, value, scale=types.DECIMALS), [value], value.form)
        other = combine(f"CAST({value.sql} AS {_duckdb(kind)})", kind, value)
        return smooth(other, [value], _form(value, kind)) if kind in types.NUMBERS else other
    if (value.type, kind) == ("integer", "boolean"):
        return combine(f"({value.sql} <> 0)", kind, value)
    if value.type == "text" and kind in READABLE:
        failed = f"error('invalid input syntax for type {kind}')"
        read = f"CAST(trim({value.sql}) AS {_duckdb(kind)})"
        test = f"regexp_full_match({value.sql}, '{READABLE[kind]}')"
        text = f"CASE WHEN {value.sql} IS NULL THEN NULL WHEN {test} THEN {read} ELSE {failed} END"
        return combine(text, kind, value, scale=types.DECIMALS if kind == "numeric" else None)
    if value.type == "text" and kind == "boolean":
        word = f"lower(trim({value.sql}))"
        lists = [", ".join(f"'{w}'" for w in sorted(words)) for words in (types.TRUE, types.FALSE)]
        text = (
            f"CASE WHEN {value.sql} IS NULL THEN NULL WHEN {word} IN ({lists[0]}) THEN TRUE "
            f"WHEN {word} IN ({lists[1]}) THEN FALSE "
            "ELSE error('invalid input syntax for type boolean') END"
        )
        return combine(text, kind, value)
    if value.type == "interval" and kind == "text":
        return shown(value)
    if value.type == "double precision" and kind == "text":
        return _written(value)
    if value.type == "real" and kind == "text":
        raise NotSupportedError("a real value is not cast to text: round it first")
    raise TypeMismatchError(f"cannot cast type {value.type} to {kind}")


def _whole(value: TypedSql, kind: str) -> TypedSql:
    """Return a whole number that is written out as another type of them."""
    written = WRITTEN.fullmatch(value.sql)
    if written is None or value.type == kind:
        return cast(value, kind)
    number = int(written[1])
    if not types.fits(number, kind):
        raise DataError(f"{kind} out of range", sqlstate="22003")
    return replace(value, sql=types.literal(kind, number), type=kind)


def _form(value: TypedSql, kind: str) -> Form | None:
    """Return the form of a number as another type, which may round it."""
    if value.type not in types.NUMBERS or kind not in types.NUMBERS:
        return None
    whole = kind in types.INTEGERS and value.type not in types.INTEGERS
    return stepped(value, "round", 0) if whole else value.form


def _written(value: TypedSql) -> TypedSql:
    """Return a double as text, in its shortest digits."""
    x = value.sql
    whole = f"CASE WHEN {x} = 0 AND starts_with(CAST({x} AS VARCHAR), '-') THEN '-0' "
    whole += f"ELSE CAST(CAST({x} AS BIGINT) AS VARCHAR) END"
    size = f"abs({x})"
    text = (
        f"CASE WHEN {size} < 1e15 AND {x} = trunc({x}) THEN {whole} ELSE CAST({x} AS VARCHAR) END"
    )
    wrong = f"{size} >= 1e15 OR {size} < 1e-4 AND {x} <> 0"
    message = "a double precision value with an exponent is not cast to text: round it first"
    return combine(checked(wrong, message, text, value), "text", value)


def _duckdb(kind: str) -> str:
    return f"DECIMAL(38, {types.DECIMALS})" if kind == "numeric" else types.DUCKDB[kind]


def sized(value: TypedSql, target: exp.DataType) -> TypedSql:
    """Return a value with the precision, scale or length that a cast gives it."""
    sizes = [int(size.name) for size in target.expressions if size.name.isdigit()]
    if not sizes:
        return value
    if value.type == "text":
        return combine(f"left({value.sql}, {sizes[0]})", "text", value)
    width, scale = sizes[0], sizes[1] if len(sizes) > 1 else 0
    if not 0 <= scale <= width <= 38 or width == 0:
        raise NotSupportedError("numeric takes a precision of 1 to 38 and a scale within it")
    text = f"CAST({value.sql} AS DECIMAL({width}, {scale}))"
    rounded = combine(text, "numeric", value, scale=scale)
    return smooth(rounded, [value], stepped(value, "round", scale))


RULES: Rules = {exp.Cast: _cast}
