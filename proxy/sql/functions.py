"""The allow-list of scalar functions: each means in DuckDB what it means in PostgreSQL.

What differs between the two (rounding of halves, negative starts of substring, the calendar's
fields) is written out; a function that is neither here, nor in ``texts`` or ``dates``, is refused
by name.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from proxy.errors import NotSupportedError, TypeMismatchError
from proxy.sql import casts, dates, texts  # noqa: F401  # they add their rules
from proxy.sql.arguments import all_texts, arguments, number, required, whole, wrong
from proxy.sql.casts import cast
from proxy.sql.scalar import ARGUMENTS, PLAIN, RULES, Lowering, checked, guarded, numbers, unknown
from proxy.sql.typed import Typed, convert, make, together

DOUBLE, NUMERIC, TEXT = "double precision", "numeric", "text"


def _abs(lowering: Lowering, node: exp.Expr) -> Typed:
    value = number("abs", lowering.lower(node.this))
    return make(f"abs({value.sql})", value.type, value)


def _floor(lowering: Lowering, node: exp.Expr) -> Typed:
    name = "floor" if isinstance(node, exp.Floor) else "ceil"
    value = number(name, lowering.lower(node.this))
    value = value if value.type == NUMERIC else convert(value, DOUBLE)
    return make(f"{name}({value.sql})", value.type, value)


def _sign(lowering: Lowering, node: exp.Expr) -> Typed:
    value = number("sign", lowering.lower(node.this))
    kind = NUMERIC if value.type == NUMERIC else DOUBLE
    return make(
        f"CAST(sign({value.sql}) AS {'DECIMAL(10, 0)' if kind == NUMERIC else 'DOUBLE'})",
        kind,
        value,
    )


def _round(lowering: Lowering, node: exp.Expr) -> Typed:
    name = "round" if isinstance(node, exp.Round) else "trunc"
    (value,), rest = required(lowering, node, "this"), arguments(lowering, node, "decimals")
    value = number(name, value)
    if not rest:
        if value.type != NUMERIC:
            value = convert(value, DOUBLE)
            # PostgreSQL rounds the halves of a double to the even, those of a numeric away from 0
            text = f"round_even({value.sql}, 0)" if name == "round" else f"trunc({value.sql})"
            return make(text, DOUBLE, value)
        return make(f"{name}({value.sql})", NUMERIC, value)
    digits = node.args["decimals"]
    if not (isinstance(digits, exp.Literal) and digits.name.isdigit() and int(digits.name) <= 15):
        raise NotSupportedError(f"{name} takes a number of decimals from 0 to 15")
    if name == "trunc":
        scale = 10 ** int(digits.name)
        text = f"(trunc(CAST({value.sql} AS DECIMAL(38, 15)) * {scale}) / {scale})"
        return make(f"CAST({text} AS DECIMAL(38, {digits.name}))", NUMERIC, value)
    if value.type != NUMERIC:  # AVG and SUM are doubles here and numerics there
        value = make(f"CAST({value.sql} AS DECIMAL(38, 15))", NUMERIC, value)
    return make(
        f"CAST(round({value.sql}, {digits.name}) AS DECIMAL(38, {digits.name}))", NUMERIC, value
    )


def real(name: str, value: Typed) -> Typed:
    """Return a number as a double."""
    return cast(number(name, value), DOUBLE)


def _root(lowering: Lowering, node: exp.Expr) -> Typed:
    value = real("sqrt", lowering.lower(node.this))
    message = "cannot take square root of a negative number"
    text = checked(f"{value.sql} < 0", message, f"sqrt({value.sql})", value)
    return make(text, DOUBLE, value)


def _cube_root(lowering: Lowering, node: exp.Expr) -> Typed:
    value = real("cbrt", lowering.lower(node.this))
    return make(f"cbrt({value.sql})", DOUBLE, value)


def _log(lowering: Lowering, node: exp.Expr) -> Typed:
    values = [real("log", v) for v in arguments(lowering, node, "this", "expression")]
    wrong = " OR ".join(f"{value.sql} <= 0" for value in values)
    if isinstance(node, exp.Ln):
        text = f"ln({values[0].sql})"
    elif len(values) == 1:
        text = f"log10({values[0].sql})"
    else:
        text = f"(ln({values[1].sql}) / ln({values[0].sql}))"
        wrong += f" OR {values[0].sql} = 1"
    message = "cannot take logarithm of zero or a negative number"
    return make(checked(wrong, message, text, *values), DOUBLE, *values)


def _exponential(lowering: Lowering, node: exp.Expr) -> Typed:
    value = real("exp", lowering.lower(node.this))
    text = checked(f"{value.sql} > 709", "value out of range: overflow", f"exp({value.sql})", value)
    return make(text, DOUBLE, value)


def _power(lowering: Lowering, node: exp.Expr) -> Typed:
    left, right = (real("power", lowering.lower(n)) for n in (node.this, node.expression))
    text = f"pow({left.sql}, {right.sql})"
    message = "the power is not a finite number"
    return make(checked(f"NOT isfinite({text})", message, text, left, right), DOUBLE, left, right)


def _greatest(lowering: Lowering, node: exp.Expr) -> Typed:
    name = "greatest" if isinstance(node, exp.Greatest) else "least"
    values = together(arguments(lowering, node, "this", "expressions"), name.upper())
    return make(f"{name}({', '.join(v.sql for v in values)})", values[0].type, *values)


def _integer_division(lowering: Lowering, node: exp.Expr) -> Typed:
    left, right = numbers("div", lowering.lower(node.this), lowering.lower(node.expression))
    if left.type not in ("integer", "bigint"):
        raise wrong("div", [left, right])
    text = f"CAST(CAST({left.sql} AS HUGEINT) // {right.sql} AS DECIMAL(38, 0))"
    return make(guarded(left, right, text), NUMERIC, left, right)


def _make_date(lowering: Lowering, values: Sequence[exp.Expr]) -> Typed:
    parts = [whole("make_date", lowering.lower(value)) for value in values]
    if len(parts) != 3:
        raise wrong("make_date", parts)
    return make(f"make_date({', '.join(p.sql for p in parts)})", "date", *parts)


def _anonymous(lowering: Lowering, node: exp.Expr) -> Typed:
    name = node.name.lower()
    if name == "make_date":
        return _make_date(lowering, node.expressions)
    if name == "octet_length":
        values = all_texts(name, [lowering.lower(item) for item in node.expressions])
        if len(values) != 1:
            raise wrong(name, values)
        (value,) = values
        return make(f"CAST(strlen({value.sql}) AS INTEGER)", "integer", value)
    raise unknown(name)


def _if(lowering: Lowering, node: exp.Expr) -> Typed:
    raise TypeMismatchError(
        "IF is not PostgreSQL", hint="write CASE WHEN ... THEN ... ELSE ... END"
    )


RULES.update(
    {
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
        exp.Anonymous: _anonymous,
        exp.If: _if,
    }
)
ARGUMENTS.update(
    {
        exp.Round: PLAIN | {"decimals"},
        exp.Trunc: PLAIN | {"decimals"},
        exp.Greatest: PLAIN | {"ignore_nulls"},
        exp.Least: PLAIN | {"ignore_nulls"},
        exp.If: PLAIN | {"true", "false"},
    }
)
