"""The allow-list of scalar functions: each means in DuckDB what it means in PostgreSQL.

What differs between the two (rounding of halves, negative starts of substring, the calendar's
fields) is written out; a function that is neither here, nor in ``texts`` or ``dates``, is refused
by name.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from sqlglot import exp

from proxy.errors import NotSupportedError, TypeMismatchError
from proxy.sql import types
from proxy.sql.expression.arguments import all_texts, arguments, number, required, whole, wrong
from proxy.sql.expression.casts import cast
from proxy.sql.expression.date_functions import age
from proxy.sql.expression.forms import bounded, quotient, smooth, stepped
from proxy.sql.expression.guards import checked, guarded, numeric, wide
from proxy.sql.expression.lowering import (
    PLAIN,
    Arguments,
    Lowering,
    Rules,
    compared,
    numbers,
)
from proxy.sql.expression.refusals import unknown
from proxy.sql.expression.typed import TypedSql, coerce, combine, unify, widest
from proxy.sql.parse.tree import whole_number

DOUBLE, NUMERIC, TEXT = "double precision", "numeric", "text"


def _abs(lowering: Lowering, node: exp.Expr) -> TypedSql:
    value = number("abs", lowering.lower(node.this))
    size = combine(f"abs({value.sql})", value.type, value, scale=value.scale)
    return smooth(size, [value], stepped(value, "abs"))


def _floor(lowering: Lowering, node: exp.Expr) -> TypedSql:
    name = "floor" if isinstance(node, exp.Floor) else "ceil"
    value = number(name, lowering.lower(node.this))
    value = value if value.type == NUMERIC else coerce(value, DOUBLE)
    rounded = combine(f"{name}({value.sql})", value.type, value, scale=0)
    return smooth(rounded, [value], stepped(value, name))


def _sign(lowering: Lowering, node: exp.Expr) -> TypedSql:
    value = number("sign", lowering.lower(node.this))
    kind = NUMERIC if value.type == NUMERIC else DOUBLE
    text = f"CAST(sign({value.sql}) AS {'DECIMAL(10, 0)' if kind == NUMERIC else 'DOUBLE'})"
    return replace(combine(text, kind, value, scale=0), form=stepped(value, "sign"))


def _round(lowering: Lowering, node: exp.Expr) -> TypedSql:
    name = "round" if isinstance(node, exp.Round) else "trunc"
    (value,), rest = required(lowering, node, "this"), arguments(lowering, node, "decimals")
    value = number(name, value)
    rounded = _rounded(name, node, value, bool(rest))
    return smooth(rounded, [value], stepped(value, name, (rest and rest[0].constant) or 0))


def _rounded(name: str, node: exp.Expr, value: TypedSql, digits_too: bool) -> TypedSql:
    """Return a number that is rounded, or cut off."""
    if not digits_too:
        if value.type != NUMERIC:
            value = coerce(value, DOUBLE)
            # PostgreSQL rounds the halves of a double to the even, those of a numeric away from 0
            text = f"round_even({value.sql}, 0)" if name == "round" else f"trunc({value.sql})"
            return combine(text, DOUBLE, value)
        return combine(f"{name}({value.sql})", NUMERIC, value, scale=0)
    digits = whole_number(node.args["decimals"])
    if digits is None or digits > 15:
        raise NotSupportedError(f"{name} takes a number of decimals from 0 to 15")
    if name == "trunc":
        scale = 10**digits
        text = f"(trunc(CAST({value.sql} AS DECIMAL(38, 15)) * {scale}) / {scale})"
        text = f"CAST({text} AS DECIMAL(38, {digits}))"
        return combine(text, NUMERIC, value, scale=digits)
    if value.type != NUMERIC:  # PostgreSQL has none for doubles, but people ask for it
        value = combine(f"CAST({value.sql} AS DECIMAL(38, 15))", NUMERIC, value)
    text = f"CAST(round({value.sql}, {digits}) AS DECIMAL(38, {digits}))"
    return combine(text, NUMERIC, value, scale=digits)


def real(name: str, value: TypedSql) -> TypedSql:
    """Return a number as a double."""
    return cast(number(name, value), DOUBLE)


def _like(text: str, given: Sequence[TypedSql], *parts: TypedSql) -> TypedSql:
    """Return a double as PostgreSQL has it: a numeric where the function is given one."""
    if NUMERIC in [value.type for value in given]:
        return numeric(text, *parts)
    return combine(text, DOUBLE, *parts)


def _root(lowering: Lowering, node: exp.Expr) -> TypedSql:
    given = lowering.lower(node.this)
    value = real("sqrt", given)
    message = "cannot take square root of a negative number"
    text = checked(f"{value.sql} < 0", message, f"sqrt({value.sql})", value)
    return smooth(_like(text, [given], value), [value], stepped(value, "sqrt"))


def _cube_root(lowering: Lowering, node: exp.Expr) -> TypedSql:
    value = real("cbrt", lowering.lower(node.this))
    root = combine(f"cbrt({value.sql})", DOUBLE, value)
    return smooth(root, [value], stepped(value, "cbrt"))


def _log(lowering: Lowering, node: exp.Expr) -> TypedSql:
    given = arguments(lowering, node, "this", "expression")
    values = [real("log", v) for v in given]
    outside = " OR ".join(f"{value.sql} <= 0" for value in values)
    if isinstance(node, exp.Ln):
        text = f"ln({values[0].sql})"
    elif len(values) == 1:
        text = f"log10({values[0].sql})"
    else:
        if any(value.type in types.FLOATS for value in given):
            raise wrong("log", given)
        text = f"(ln({values[1].sql}) / ln({values[0].sql}))"
        outside += f" OR {values[0].sql} = 1"
    message = "cannot take logarithm of zero or a negative number"
    text = checked(outside, message, text, *values)
    if len(values) > 1:
        return numeric(text, *values)
    name = "ln" if isinstance(node, exp.Ln) else "log10"
    return smooth(_like(text, given, *values), values, stepped(values[0], name))


def _exponential(lowering: Lowering, node: exp.Expr) -> TypedSql:
    given = lowering.lower(node.this)
    value = real("exp", given)
    text = checked(f"{value.sql} > 709", "value out of range: overflow", f"exp({value.sql})", value)
    if given.type != NUMERIC:
        text = checked(f"{value.sql} < -745", "value out of range: underflow", text, value)
    return smooth(_like(text, [given], value), [value], stepped(value, "exp"))


def _power(lowering: Lowering, node: exp.Expr) -> TypedSql:
    given = [lowering.lower(n) for n in (node.this, node.expression)]
    left, right = (real("power", value) for value in given)
    text = f"pow({left.sql}, {right.sql})"
    message = "the power is not a finite number"
    power = checked(f"isinf({text})", "value out of range: overflow", text, left, right)
    wrong = f"{left.sql} = 0 AND {right.sql} < 0 OR isnan({text})"
    power = checked(wrong, message, power, left, right)
    floats = any(value.type in types.FLOATS for value in given)
    value = combine(power, DOUBLE, left, right) if floats else _like(power, given, left, right)
    return smooth(value, given, None)


def _greatest(lowering: Lowering, node: exp.Expr) -> TypedSql:
    name = "greatest" if isinstance(node, exp.Greatest) else "least"
    values = unify(arguments(lowering, node, "this", "expressions"), name.upper())
    text = f"{name}({', '.join(v.sql for v in values)})"
    value = combine(text, values[0].type, *values, scale=widest(values))
    return replace(value, form=bounded(name, values))


def _integer_division(lowering: Lowering, node: exp.Expr) -> TypedSql:
    left, right = numbers("div", lowering.lower(node.this), lowering.lower(node.expression))
    if left.type in types.FLOATS:
        raise wrong("div", [left, right])
    if {left.type, right.type} <= set(types.INTEGERS):
        text = f"CAST(CAST({left.sql} AS HUGEINT) // {right.sql} AS DECIMAL(38, 0))"
    else:
        divided = numeric(f"(CAST({left.sql} AS DOUBLE) / CAST({right.sql} AS DOUBLE))")
        text = f"CAST(trunc({divided.sql}) AS DECIMAL(38, 0))"
    whole = combine(guarded(left, right, text), NUMERIC, left, right, scale=0)
    return replace(whole, form=quotient(left, right, True))


def _width_bucket(lowering: Lowering, node: exp.Expr) -> TypedSql:
    """Return width_bucket: the number of the bucket, 0 and one more for what is outside."""
    value = number("width_bucket", lowering.lower(node.this))
    if node.args.get("threshold") is not None:
        return _between_thresholds(lowering, value, node.args["threshold"])
    ends = [number("width_bucket", v) for v in required(lowering, node, "min_value", "max_value")]
    count = whole("width_bucket", lowering.lower(node.args.get("num_buckets")))
    kinds = {value.type, *(end.type for end in ends)}
    exact = NUMERIC in kinds and not kinds & set(types.FLOATS)
    if exact:  # whole multiples of their least decimal
        value, *ends = [wide(v) for v in (value, *ends)]
        scale = widest([value, *ends])
        decimals = types.DECIMALS if scale is None else scale
        x, low, high = (
            f"CAST(replace(CAST(CAST({v.sql} AS DECIMAL(38, {decimals})) AS VARCHAR), '.', '') "
            "AS HUGEINT)"
            for v in (value, *ends)
        )
    else:
        value, *ends = [cast(v, DOUBLE) for v in (value, *ends)]
        x, low, high = value.sql, ends[0].sql, ends[1].sql
    n = f"CAST({count.sql} AS HUGEINT)"

    def inside(past: str, length: str) -> str:
        if exact:
            return f"({n} * ({past}) // ({length}))"
        place = f"trunc({count.sql} * (({past}) / ({length})))"
        return f"least(CAST({place} AS HUGEINT), {n} - 1)"

    text = (
        f"CASE WHEN {low} < {high} THEN CASE WHEN {x} < {low} THEN 0 WHEN {x} >= {high} "
        f"THEN {n} + 1 ELSE {inside(f'{x} - {low}', f'{high} - {low}')} + 1 END "
        f"WHEN {low} > {high} THEN CASE WHEN {x} > {low} THEN 0 WHEN {x} <= {high} "
        f"THEN {n} + 1 ELSE {inside(f'{low} - {x}', f'{low} - {high}')} + 1 END END"
    )
    parts = [value, *ends, count]
    null = " OR ".join(f"{part.sql} IS NULL" for part in parts)
    text = f"CASE WHEN {null} THEN NULL ELSE CAST({text} AS INTEGER) END"
    there = " AND ".join(f"{part.sql} IS NOT NULL" for part in parts)
    equal = f"{there} AND {low} = {high}"
    text = checked(equal, "lower bound cannot equal upper bound", text, *parts)
    less = f"{there} AND {count.sql} <= 0"
    return combine(
        checked(less, "count must be greater than zero", text, *parts), "integer", *parts
    )


def _between_thresholds(lowering: Lowering, value: TypedSql, node: exp.Expr) -> TypedSql:
    """Return how many thresholds of a list are no more than a value."""
    items = node.expressions if isinstance(node, exp.Array) else []
    values = [lowering.lower(item) for item in items]
    sizes = [each.constant for each in values if each.constant is not None]
    if not sizes or len(sizes) < len(items) or sizes != sorted(sizes):
        raise NotSupportedError(
            "width_bucket takes its thresholds as numbers in ascending order",
            hint="for example width_bucket(x, ARRAY[10, 20, 50])",
        )
    pairs = [compared(value, item, ">=") for item in values]
    reached = " + ".join(f"CAST({a.sql} >= {b.sql} AS INTEGER)" for a, b in pairs)
    return combine(f"CAST({reached} AS INTEGER)", "integer", value)


def _array_position(lowering: Lowering, node: exp.Expr) -> TypedSql:
    """Return the place of a value in a list that is written out."""
    items = node.this.expressions if isinstance(node.this, exp.Array) else []
    if not items:
        raise NotSupportedError("array_position takes a list that is written out: ARRAY['a', 'b']")
    value, *listed = unify(
        [lowering.lower(item) for item in (node.expression, *items)], "array_position"
    )
    places = [
        f"WHEN {value.sql} IS NOT DISTINCT FROM {item.sql} THEN {k + 1}"
        for k, item in enumerate(listed)
    ]
    return combine(f"CAST(CASE {' '.join(places)} END AS INTEGER)", "integer", value, *listed)


def _make_date(lowering: Lowering, values: Sequence[exp.Expr]) -> TypedSql:
    parts = [whole("make_date", lowering.lower(value)) for value in values]
    if len(parts) != 3:
        raise wrong("make_date", parts)
    return combine(f"make_date({', '.join(p.sql for p in parts)})", "date", *parts)


def _anonymous(lowering: Lowering, node: exp.Expr) -> TypedSql:
    name = node.name.lower()
    if name == "make_date":
        return _make_date(lowering, node.expressions)
    if name == "age":
        return age(lowering, node.expressions)
    if name == "octet_length":
        values = all_texts(name, [lowering.lower(item) for item in node.expressions])
        if len(values) != 1:
            raise wrong(name, values)
        (value,) = values
        return combine(f"CAST(strlen({value.sql}) AS INTEGER)", "integer", value)
    raise unknown(name)


def _if(lowering: Lowering, node: exp.Expr) -> TypedSql:
    raise TypeMismatchError(
        "IF is not PostgreSQL", hint="write CASE WHEN ... THEN ... ELSE ... END"
    )


RULES: Rules = {
    exp.Abs: _abs,
    exp.Floor: _floor,
    exp.Ceil: _floor,
    exp.Sign: _sign,
    exp.Round: _round,
    exp.Trunc: _round,
    exp.Log: _log,
    exp.Ln: _log,
    exp.Sqrt: _root,
    exp.Cbrt: _cube_root,
    exp.Exp: _exponential,
    exp.Pow: _power,
    exp.Greatest: _greatest,
    exp.Least: _greatest,
    exp.IntDiv: _integer_division,
    exp.WidthBucket: _width_bucket,
    exp.ArrayPosition: _array_position,
    exp.Anonymous: _anonymous,
    exp.If: _if,
}
ARGUMENTS: Arguments = {
    exp.Round: PLAIN | {"decimals"},
    exp.Trunc: PLAIN | {"decimals"},
    exp.Greatest: PLAIN | {"ignore_nulls"},
    exp.Least: PLAIN | {"ignore_nulls"},
    exp.If: PLAIN | {"true", "false"},
    exp.WidthBucket: PLAIN | {"min_value", "max_value", "num_buckets", "threshold"},
}
