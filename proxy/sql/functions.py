"""The allow-list of scalar functions: each means in DuckDB what it means in PostgreSQL.

What differs between the two (negative starts of substring, rounding of halves, the calendar's
fields) is written out; a function that is not here is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp

from proxy.errors import DataError, NotSupportedError, TypeMismatchError, UndefinedFunctionError
from proxy.sql import types
from proxy.sql.casts import cast
from proxy.sql.scalar import (
    ARGUMENTS,
    PLAIN,
    RULES,
    Lowering,
    Typed,
    checked,
    convert,
    guarded,
    make,
    numbers,
    together,
)

DOUBLE, NUMERIC, TEXT = "double precision", "numeric", "text"


def arguments(lowering: Lowering, node: exp.Expr, *names: str) -> list[Typed]:
    """Return the translated arguments of a function, those that are there."""
    found: list[exp.Expr] = []
    for name in names:
        value = node.args.get(name)
        found += value if isinstance(value, list) else [value] if value is not None else []
    return [lowering.lower(value) for value in found]


def required(lowering: Lowering, node: exp.Expr, *names: str) -> list[Typed]:
    """Return the translated arguments of a function, all of them.

    Raises:
        UndefinedFunctionError: one is missing.
    """
    return [lowering.lower(node.args.get(name)) for name in names]  # it refuses None


def wrong(name: str, values: Sequence[Typed]) -> UndefinedFunctionError:
    """Return the error for arguments of types that a function does not take."""
    kinds = ", ".join(value.type for value in values)
    return UndefinedFunctionError(f"function {name}({kinds}) does not exist")


def texts(name: str, values: Sequence[Typed]) -> list[Typed]:
    """Return values that must be texts."""
    if any(value.type not in (TEXT, "unknown") for value in values):
        raise wrong(name, values)
    return [convert(value, TEXT) for value in values]


def number(name: str, value: Typed) -> Typed:
    """Return a value that must be a number."""
    if value.type == "unknown":
        return convert(value, DOUBLE)
    if value.type not in types.NUMBERS:
        raise wrong(name, [value])
    return value


def whole(name: str, value: Typed) -> Typed:
    """Return a value that must be a whole number."""
    if value.type not in ("integer", "unknown"):
        raise wrong(name, [value])
    return convert(value, "integer")


# --- text ------------------------------------------------------------------------------------


def _text(name: str, duckdb: str, *args: str, kind: str = TEXT) -> None:
    def rule(lowering: Lowering, node: exp.Expr) -> Typed:
        values = texts(name, required(lowering, node, *args))
        return make(f"{duckdb}({', '.join(v.sql for v in values)})", kind, *values)

    RULES[BY_NAME[name]] = rule


BY_NAME: dict[str, type[exp.Expr]] = {
    "lower": exp.Lower,
    "upper": exp.Upper,
    "length": exp.Length,
    "reverse": exp.Reverse,
    "starts_with": exp.StartsWith,
}
_text("lower", "lower", "this")
_text("upper", "upper", "this")
_text("reverse", "reverse", "this")
_text("starts_with", "starts_with", "this", "expression", kind="boolean")


def _length(lowering: Lowering, node: exp.Expr) -> Typed:
    (value,) = texts("length", required(lowering, node, "this"))
    return make(f"CAST(length({value.sql}) AS INTEGER)", "integer", value)


def _substring(lowering: Lowering, node: exp.Expr) -> Typed:
    (value,), rest = required(lowering, node, "this"), arguments(lowering, node, "start", "length")
    (value,) = texts("substring", [value])
    if not rest:
        raise wrong("substring", [value])
    start, *size = (whole("substring", v) for v in rest)
    # DuckDB counts a negative start from the end; PostgreSQL lets it eat up the length
    if not size:
        return make(f"substring({value.sql}, greatest({start.sql}, 1))", TEXT, value, start)
    length = size[0]
    negative = "error('negative substring length not allowed')"
    taken = f"greatest({length.sql} + least({start.sql}, 1) - 1, 0)"
    text = (
        f"CASE WHEN {length.sql} < 0 THEN {negative} "
        f"ELSE substring({value.sql}, greatest({start.sql}, 1), {taken}) END"
    )
    return make(text, TEXT, value, start, length)


def _left(lowering: Lowering, node: exp.Expr) -> Typed:
    name = "left" if isinstance(node, exp.Left) else "right"
    value, count = required(lowering, node, "this", "expression")
    (value,), count = texts(name, [value]), whole(name, count)
    return make(f"{name}({value.sql}, {count.sql})", TEXT, value, count)


def _trim(lowering: Lowering, node: exp.Expr) -> Typed:
    values = texts("trim", arguments(lowering, node, "this", "expression"))
    side = node.args.get("position")
    name = {None: "trim", "BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}[side]
    characters = values[1].sql if len(values) > 1 else "' '"
    return make(f"{name}({values[0].sql}, {characters})", TEXT, *values)


def _position(lowering: Lowering, node: exp.Expr) -> Typed:
    value, part = texts("position", required(lowering, node, "this", "substr"))
    text = f"CASE WHEN {part.sql} = '' THEN 1 ELSE strpos({value.sql}, {part.sql}) END"
    return make(
        f"CASE WHEN {value.sql} IS NULL THEN NULL ELSE CAST({text} AS INTEGER) END",
        "integer",
        value,
        part,
    )


def _replace(lowering: Lowering, node: exp.Expr) -> Typed:
    values = texts("replace", arguments(lowering, node, "this", "expression", "replacement"))
    if len(values) != 3:
        raise wrong("replace", values)
    value, old, new = (v.sql for v in values)
    text = f"CASE WHEN {old} = '' THEN {value} ELSE replace({value}, {old}, {new}) END"
    width = values[0].width * max(values[2].width, 1)
    return make(f"CASE WHEN {new} IS NULL THEN NULL ELSE {text} END", TEXT, *values, width=width)


def _split_part(lowering: Lowering, node: exp.Expr) -> Typed:
    value, by, index = required(lowering, node, "this", "delimiter", "part_index")
    value, by = texts("split_part", [value, by])
    index = whole("split_part", index)
    zero = "error('field position must not be zero')"
    part = f"split_part({value.sql}, {by.sql}, {index.sql})"
    return make(f"CASE WHEN {index.sql} = 0 THEN {zero} ELSE {part} END", TEXT, value, by, index)


def _concat(lowering: Lowering, node: exp.Expr) -> Typed:
    values = [_shown(value) for value in arguments(lowering, node, "expressions")]
    if not values:
        raise wrong("concat", values)
    name = "concat_ws" if isinstance(node, exp.ConcatWs) else "concat"
    width = sum(value.width for value in values) + len(values) * values[0].width
    return make(f"{name}({', '.join(v.sql for v in values)})", TEXT, *values, width=width)


def _shown(value: Typed) -> Typed:
    return convert(value, TEXT) if value.type == "unknown" else cast(value, TEXT)


def _pipe(lowering: Lowering, node: exp.Expr) -> Typed:
    left, right = lowering.lower(node.this), lowering.lower(node.expression)
    if TEXT not in (left.type, right.type) and "unknown" not in (left.type, right.type):
        raise UndefinedFunctionError(f"operator does not exist: {left.type} || {right.type}")
    left, right = _shown(left), _shown(right)
    text = f"({left.sql} || {right.sql})"
    return make(text, TEXT, left, right, width=left.width + right.width)


def _like(lowering: Lowering, node: exp.Expr) -> Typed:
    escape = "\\"
    negated = False
    if isinstance(node, exp.Escape):
        if not node.expression.is_string or len(node.expression.name) > 1:
            raise NotSupportedError("ESCAPE takes one character in quotes")
        escape, node = node.expression.name, node.this
    if node.args.get("negate"):
        negated = True
    word = "ILIKE" if isinstance(node, exp.ILike) else "LIKE"
    left, right = texts(word, [lowering.lower(node.this), lowering.lower(node.expression)])
    if right.axes or right.numbers:
        raise NotSupportedError(f"{word} takes a pattern in quotes")
    if escape and node.expression.is_string:
        pattern = node.expression.name
        if (len(pattern) - len(pattern.rstrip(escape))) % 2:
            raise DataError("LIKE pattern must not end with escape character")
    tail = f" ESCAPE '{escape.replace(chr(39), chr(39) * 2)}'" if escape else ""
    text = f"({left.sql} {word} {right.sql}{tail})"
    return make(f"(NOT {text})" if negated else text, "boolean", left, right)


# what PostgreSQL's regular expressions and RE2 have in common
PATTERN = re.compile(r"(?:[\w\s%&@!/,;:'\"<>=~#^$.*+?|()-]|\[\^?[\w\s.,:%&@!-]+\]|\\[dws.])*")


def _matches(lowering: Lowering, node: exp.Expr) -> Typed:
    left, right = texts("~", [lowering.lower(node.this), lowering.lower(node.expression)])
    pattern = node.expression
    if not pattern.is_string or not PATTERN.fullmatch(pattern.name) or "(?" in pattern.name:
        raise NotSupportedError(
            "a regular expression takes plain characters, . [...] * + ? | ^ $ \\d \\s \\w",
            hint="use LIKE, or a simpler pattern",
        )
    options = "'si'" if isinstance(node, exp.RegexpILike) else "'s'"
    return make(f"regexp_matches({left.sql}, {right.sql}, {options})", "boolean", left, right)


# --- numbers ---------------------------------------------------------------------------------


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
    return make(guarded(right, f"({left.sql} // {right.sql})"), left.type, left, right)


# --- dates -----------------------------------------------------------------------------------

UNITS = {
    *("microseconds", "milliseconds", "second", "minute", "hour", "day", "week", "month"),
    *("quarter", "year", "decade", "century", "millennium"),
}
FIELDS = {
    "year": "year", "month": "month", "day": "day", "quarter": "quarter", "week": "week",
    "dow": "dayofweek", "isodow": "isodow", "doy": "dayofyear", "hour": "hour",
    "minute": "minute", "isoyear": "isoyear", "decade": "decade", "century": "century",
}  # fmt: skip
CLOCK = {"hour", "minute", "second", "epoch"}


def _trunc(lowering: Lowering, node: exp.Expr) -> Typed:
    unit = str(node.args["unit"].name).lower()
    value = lowering.lower(node.this)
    if value.type not in types.TIMES:
        raise wrong("date_trunc", [Typed("", "unknown"), value])
    if unit not in UNITS:
        raise DataError(f'unit "{unit}" not recognized for type {value.type}')
    value = convert(value, "timestamp")
    return make(f"CAST(date_trunc('{unit}', {value.sql}) AS TIMESTAMP)", "timestamp", value)


def _extract(lowering: Lowering, node: exp.Expr) -> Typed:
    field = str(node.this.name).lower()
    value = lowering.lower(node.expression)
    if value.type not in types.TIMES:
        raise wrong("extract", [value])
    if field == "epoch":
        return make(f"CAST(epoch({value.sql}) AS DECIMAL(20, 6))", NUMERIC, value)
    if value.type == "date" and field in CLOCK:
        raise NotSupportedError(f'unit "{field}" not supported for type date')
    if field == "second":
        text = f"CAST(microsecond({value.sql}) / 1000000 AS DECIMAL(10, 6))"
        return make(text, NUMERIC, value)
    if field not in FIELDS:
        raise NotSupportedError(f'unit "{field}" is not supported in EXTRACT')
    return make(f"CAST({FIELDS[field]}({value.sql}) AS DECIMAL(10, 0))", NUMERIC, value)


FORMAT = re.compile(r"(?:%[YmdHMS]|[-/.,: ])+")  # as sqlglot has translated it


def _to_char(lowering: Lowering, node: exp.Expr) -> Typed:
    value, shape = lowering.lower(node.this), node.args["format"]
    if value.type not in types.TIMES:
        raise NotSupportedError("to_char takes a date or a timestamp")
    if not shape.is_string or not FORMAT.fullmatch(shape.name):
        raise NotSupportedError(
            "to_char knows YYYY, MM, DD, HH24, MI and SS, with - / . , : between them",
            hint="EXTRACT and date_trunc give the other parts of a date",
        )
    return make(f"strftime({value.sql}, '{shape.name}')", TEXT, value)


def _interval(_: Lowering, node: exp.Expr) -> Typed:
    text = node.this.name if node.this is not None else ""
    unit = node.args.get("unit")
    shown = f"{text} {unit.name}" if unit is not None else text
    pattern = r"\s*(?:[-+]?\d+\s+(?:year|month|week|day|hour|minute|second)s?\s*)+"
    if not re.fullmatch(pattern, shown, re.IGNORECASE):
        raise NotSupportedError(
            f"the interval '{shown}' is not known", hint="write, for example, INTERVAL '3 months'"
        )
    parts = re.findall(r"([-+]?\d+)\s+([a-z]+?)s?(?=\s|$)", shown, re.IGNORECASE)
    sums = " + ".join(f"to_{unit.lower()}s({count})" for count, unit in parts)
    return Typed(f"({sums})", "interval")


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
        values = texts(name, [lowering.lower(item) for item in node.expressions])
        if len(values) != 1:
            raise wrong(name, values)
        (value,) = values
        return make(f"CAST(strlen({value.sql}) AS INTEGER)", "integer", value)
    raise UndefinedFunctionError(
        f"function {name} is not among those the proxy knows",
        hint="the documentation lists the functions that are",
    )


def _if(lowering: Lowering, node: exp.Expr) -> Typed:
    raise TypeMismatchError(
        "IF is not PostgreSQL", hint="write CASE WHEN ... THEN ... ELSE ... END"
    )


RULES.update(
    {
        exp.Length: _length,
        exp.Substring: _substring,
        exp.Left: _left,
        exp.Right: _left,
        exp.Trim: _trim,
        exp.StrPosition: _position,
        exp.Replace: _replace,
        exp.SplitPart: _split_part,
        exp.Concat: _concat,
        exp.ConcatWs: _concat,
        exp.DPipe: _pipe,
        exp.Like: _like,
        exp.ILike: _like,
        exp.Escape: _like,
        exp.RegexpLike: _matches,
        exp.RegexpILike: _matches,
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
        exp.TimestampTrunc: _trunc,
        exp.DateTrunc: _trunc,
        exp.Extract: _extract,
        exp.TimeToStr: _to_char,
        exp.Interval: _interval,
        exp.Anonymous: _anonymous,
        exp.If: _if,
    }
)
ARGUMENTS.update(
    {
        exp.Substring: PLAIN | {"start", "length"},
        exp.Left: PLAIN,
        exp.Trim: PLAIN | {"position"},
        exp.StrPosition: PLAIN | {"substr"},
        exp.Replace: PLAIN | {"replacement"},
        exp.SplitPart: PLAIN | {"delimiter", "part_index"},
        exp.Concat: PLAIN | {"safe", "coalesce"},
        exp.ConcatWs: PLAIN | {"safe", "coalesce"},
        exp.DPipe: PLAIN | {"safe"},
        exp.Like: PLAIN | {"negate"},
        exp.ILike: PLAIN | {"negate"},
        exp.Round: PLAIN | {"decimals"},
        exp.Trunc: PLAIN | {"decimals"},
        exp.Greatest: PLAIN | {"ignore_nulls"},
        exp.Least: PLAIN | {"ignore_nulls"},
        exp.TimestampTrunc: PLAIN | {"unit"},
        exp.DateTrunc: PLAIN | {"unit"},
        exp.TimeToStr: PLAIN | {"format"},
        exp.Interval: PLAIN | {"unit"},
        exp.If: PLAIN | {"true", "false"},
    }
)
