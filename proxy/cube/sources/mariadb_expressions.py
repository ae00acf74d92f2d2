"""The policy's own SQL in MariaDB's: what is here means the same as in DuckDB, the rest is refused.

A translation word by word would not do: MariaDB divides whole numbers to decimals, gives NULL for a
quotient by 0 and for what cannot be cast, and ranks texts by collations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sqlglot import exp

from proxy.cube.sources.dialect import text
from proxy.errors import NotSupportedError
from proxy.sql import types

Written = Callable[[exp.Expr], str]  # of a part: its SQL, or its type
CASTS = {  # of DuckDB's, and PostgreSQL's, types: MariaDB's
    **dict.fromkeys(("BIGINT", "BOOLEAN", *types.INTEGERS, "boolean"), "SIGNED"),
    **dict.fromkeys(("DATE", "date"), "DATE"),
    **dict.fromkeys(("TIMESTAMP", "timestamp"), "DATETIME(6)"),
    "numeric": f"DECIMAL(65, {types.DECIMALS})",
    "text": "CHAR",
}
COMPARED: dict[type[exp.Expr], str] = {
    **{exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="},
    exp.NullSafeEQ: "<=>",
}
CONNECTED: dict[type[exp.Expr], str] = {exp.And: "AND", exp.Or: "OR"}
COMPUTED: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
WHOLE: dict[type[exp.Expr], str] = {exp.Div: "DIV", exp.Mod: "MOD"}
PARTS = ("year", "quarter", "month", "day", "hour", "minute")
STARTS = {"year": "%Y-01-01", "month": "%Y-%m-01", "day": "%Y-%m-%d", "hour": "%Y-%m-%d %H:00"}
CASED = (  # characters that MariaDB writes otherwise in another case than DuckDB, or may do so
    r"[\x{DF}\x{180}\x{19A}\x{19E}]|(?![\x{0}-\x{21F}\x{391}-\x{3A1}\x{3A3}-\x{3A9}\x{3B1}-\x{3C9}"
    r"\x{410}-\x{44F}])[\p{L&}\x{345}\x{2160}-\x{217F}\x{24B6}-\x{24E9}]"
)
ARGS = {  # of nodes: what is written below, wherever it may be
    *("this", "expression", "expressions", "is_string", "negate", "low", "high", "ifs", "default"),
    *("true", "to", "start", "length", "unit", "decimals", "replacement", "symmetric", "typed"),
    *("safe", "coalesce"),
}
HINT = "compute it in the database: a generated column that is STORED, or another table"


class Casting(Protocol):
    """What writes a cast that fails where the value is none of its type."""

    def cast(self, sql: str, of: str, kind: str) -> str:
        """Return a value as another type."""

    def sized(self, sql: str, kind: str, size: list[int]) -> str:
        """Return a value as a type of a size."""


def written(node: exp.Expr, sql: Written, kind: Written, casting: Casting) -> str:
    """Return an expression; ``sql`` writes a part of it, ``kind`` is the type of one.

    Raises:
        NotSupportedError: MariaDB has no such expression, or it would mean another thing.
    """
    strange = {key for key, value in node.args.items() if value} - ARGS
    if strange or (node.args.get("negate") and not isinstance(node, exp.Is | exp.Like)):
        raise _refused(node)
    match node:
        case exp.Paren():
            return f"({sql(node.this)})"
        case exp.Boolean():
            return "TRUE" if node.this else "FALSE"
        case exp.Null():
            return "NULL"
        case exp.Literal() if node.is_string:
            return text(node.this)
        case exp.Literal() if "e" not in node.this.lower():
            return str(node.this)
        case exp.And() | exp.Or():
            return f"({sql(node.this)} {CONNECTED[type(node)]} {sql(node.expression)})"
        case exp.Not():
            return f"(NOT {sql(node.this)})"
        case exp.NullSafeNEQ():
            return f"(NOT {_compared(node, '<=>', node.this, node.expression, sql, kind)})"
        case exp.Between() if not node.args.get("symmetric"):
            low, high = node.args["low"], node.args["high"]
            above = _compared(node, ">=", node.this, low, sql, kind)
            return f"({above} AND {_compared(node, '<=', node.this, high, sql, kind)})"
        case exp.In() if node.expressions:
            each = [_compared(node, "=", node.this, one, sql, kind) for one in node.expressions]
            return f"({' OR '.join(each)})"
        case exp.Is() if isinstance(node.expression, exp.Null):
            null = f"({sql(node.this)} <=> NULL)"  # a day of zeros IS NULL there
            return f"(NOT {null})" if node.args.get("negate") else null
        case exp.Case():
            return _cases(node, sql, kind)
        case exp.Coalesce():
            parts = [node.this, *node.expressions]
            _alike(node, parts, kind)
            return f"coalesce({', '.join(map(sql, parts))})"
        case exp.Nullif():
            equal = _compared(node, "=", node.this, node.expression, sql, kind)
            return f"CASE WHEN {equal} THEN NULL ELSE {sql(node.this)} END"
    if type(node) in COMPARED:
        return _compared(node, COMPARED[type(node)], node.this, node.expression, sql, kind)
    for write in (_number, _words, _time, _cast):
        found = write(node, sql, kind, casting)
        if found is not None:
            return found
    raise _refused(node)


def error(sql: str, kind: str) -> str:
    """Return an error, of a type, for a value that is not NULL."""
    wrong = f"(9223372036854775807 + greatest(char_length({sql}), 1))"  # no whole number of 64 bits
    return f"({wrong} + 0e0)" if kind in types.FLOATS else f"CAST({wrong} AS {CASTS[kind]})"


def _refused(node: exp.Expr) -> NotSupportedError:
    name = node.key if isinstance(node, exp.Func) else f"the operator {node.key}"
    return NotSupportedError(f"{name}, as it is used here, is not written for MariaDB", hint=HINT)


def _compared(
    node: exp.Expr, sign: str, left: exp.Expr, right: exp.Expr, sql: Written, kind: Written
) -> str:
    """Return a comparison of two values of one kind."""
    a, b = kind(left), kind(right)
    numbers = a in types.NUMBERS and b in types.NUMBERS
    if numbers or a == b or {a, b} == {"text", "unknown"} or {a, b} == set(types.TIMES):
        return f"({sql(left)} {sign} {sql(right)})"
    if "unknown" in (a, b) and {a, b} & set(types.TIMES):
        as_time = CASTS[b if a == "unknown" else a]
        sides = [
            f"CAST({sql(part)} AS {as_time})" if of == "unknown" else sql(part)
            for part, of in ((left, a), (right, b))
        ]
        return f"({sides[0]} {sign} {sides[1]})"
    if any(isinstance(part, exp.Null) for part in (left, right)):
        return f"({sql(left)} {sign} {sql(right)})"
    raise _refused(node)


def _cases(node: exp.Case, sql: Written, kind: Written) -> str:
    """Return a choice."""
    other, cases = node.args.get("default"), []
    for if_ in node.args["ifs"]:
        says = sql(if_.this)
        if node.this is not None:
            says = _compared(node, "=", node.this, if_.this, sql, kind)
        cases.append(f"WHEN {says} THEN {sql(if_.args['true'])}")
    results = [if_.args["true"] for if_ in node.args["ifs"]]
    _alike(node, [*results, *([other] if other is not None else [])], kind)
    return f"CASE {' '.join(cases)}{f' ELSE {sql(other)}' if other is not None else ''} END"


def _alike(node: exp.Expr, parts: list[exp.Expr], kind: Written) -> None:
    """Refuse values of several types, one of which would become another."""
    known = {kind(part) for part in parts if not isinstance(part, exp.Null)}
    if len(known - {"unknown"}) > 1 or (known > {"unknown"} and "text" not in known):
        raise _refused(node)


def _number(node: exp.Expr, sql: Written, kind: Written, casting: Casting) -> str | None:
    """Return arithmetic."""
    both = [part for part in (node.this, node.expression) if isinstance(part, exp.Expr)]
    kinds = (
        [kind(part) for part in both] if isinstance(node, exp.Binary | exp.Neg | exp.Abs) else []
    )
    if type(node) in COMPUTED and all(each in types.NUMBERS for each in kinds):
        return f"({sql(node.this)} {COMPUTED[type(node)]} {sql(node.expression)})"
    if type(node) in WHOLE and all(each in types.INTEGERS for each in kinds):
        divisor = sql(node.expression)
        checked = f"CASE WHEN {divisor} = 0 THEN {error(divisor, 'bigint')} ELSE {divisor} END"
        return f"({sql(node.this)} {WHOLE[type(node)]} {checked})"
    if isinstance(node, exp.Neg) and kinds[0] in types.NUMBERS:
        return f"(- {sql(node.this)})"
    if isinstance(node, exp.Abs) and kinds[0] in types.NUMBERS:
        return f"abs({sql(node.this)})"
    alone = not any(value for key, value in node.args.items() if key != "this")
    if isinstance(node, exp.Floor | exp.Ceil) and alone and kind(node.this) in types.NUMBERS:
        return f"{'floor' if isinstance(node, exp.Floor) else 'ceil'}({sql(node.this)})"
    if isinstance(node, exp.Round) and kind(node.this) == "numeric":
        decimals = node.args.get("decimals")
        if decimals is None or _counts(decimals, 0):
            return f"round({sql(node.this)}, {sql(decimals) if decimals else 0})"
    return None


def _words(node: exp.Expr, sql: Written, kind: Written, casting: Casting) -> str | None:
    """Return what is made of a text."""
    match node:
        case exp.DPipe():
            parts = [
                sql(part)
                if (of := kind(part)) in ("text", "unknown")
                else casting.cast(sql(part), of, "text")
                for part in (node.this, node.expression)
            ]
            return f"concat({', '.join(parts)})"
        case exp.Replace() if node.expression and node.expression.name != "":
            old, new = sql(node.expression), sql(node.args["replacement"])
            return f"replace({sql(node.this)}, {old}, {new})"
        case exp.Upper() | exp.Lower():
            plain = sql(node.this)
            fails = f"CASE WHEN {plain} REGEXP {text(CASED)} THEN {error(plain, 'text')}"
            return f"{fails} ELSE {node.key}({plain}) END"
        case exp.Length() if kind(node.this) in ("text", "unknown"):
            return f"char_length({sql(node.this)})"
        case exp.Trim() if not any(value for key, value in node.args.items() if key != "this"):
            return f"trim({sql(node.this)})"
        case exp.Substring() if _counts(node.args.get("start"), 1):
            length = node.args.get("length")
            if length is not None and not _counts(length, 0):
                return None
            more = f", {sql(length)}" if length is not None else ""
            return f"substr({sql(node.this)}, {sql(node.args['start'])}{more})"
        case exp.Left() if _counts(node.expression, 0):
            return f"left({sql(node.this)}, {sql(node.expression)})"
        case exp.Like() if isinstance(node.expression, exp.Literal) and kind(node.this) == "text":
            pattern = node.expression.this
            if pattern.replace("\\\\", "").endswith("\\"):
                return None
            sign = "NOT LIKE" if node.args.get("negate") else "LIKE"
            return f"({sql(node.this)} {sign} {text(pattern)} ESCAPE '\\')"
    return None


def _counts(node: exp.Expr | None, least: int) -> bool:
    """Whether a number is written out, and is whole and not less than another."""
    return (
        isinstance(node, exp.Literal)
        and not node.is_string
        and node.this.isdigit()
        and int(node.this) >= least
    )


def _time(node: exp.Expr, sql: Written, kind: Written, casting: Casting) -> str | None:
    """Return what is made of a time."""
    match node:
        case exp.Extract() if node.name.lower() in PARTS and kind(node.expression) in types.TIMES:
            return f"extract({node.name} FROM {sql(node.expression)})"
        case exp.Extract() if node.name.lower() == "dow" and kind(node.expression) in types.TIMES:
            return f"(dayofweek({sql(node.expression)}) - 1)"
        case exp.TimestampTrunc() | exp.DateTrunc():
            unit = node.args["unit"].name.lower()
            if unit in STARTS and kind(node.this) in types.TIMES:
                start = f"date_format({sql(node.this)}, '{STARTS[unit]}')"
                return f"CAST({start} AS DATETIME(6))"
        case exp.Add() if (kind(node.this), kind(node.expression)) == ("date", "integer"):
            return f"({sql(node.this)} + INTERVAL {sql(node.expression)} DAY)"
        case exp.Sub() if (kind(node.this), kind(node.expression)) == ("date", "integer"):
            return f"({sql(node.this)} - INTERVAL {sql(node.expression)} DAY)"
        case exp.Sub() if (kind(node.this), kind(node.expression)) == ("date", "date"):
            return f"datediff({sql(node.this)}, {sql(node.expression)})"
    return None


def _cast(node: exp.Expr, sql: Written, kind: Written, casting: Casting) -> str | None:
    """Return a cast that may not fail without a word."""
    if not isinstance(node, exp.Cast):
        return None
    target, of = types.of_cast(node.args["to"]), kind(node.this)
    size = [int(part.name) for part in node.args["to"].expressions]
    made = casting.cast(sql(node.this), "text" if of == "unknown" else of, target)
    return casting.sized(made, target, size) if size else made
