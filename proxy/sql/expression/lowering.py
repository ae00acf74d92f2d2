"""One scalar expression of PostgreSQL to one of DuckDB, with its type: what both doors agree on.

A ``TypedSql`` is DuckDB text that means, on every value, what the expression means in PostgreSQL;
what has no such text is refused by name.  So no dialect is transpiled: integer division,
LIKE's backslash, quoted literals that take the type of their place are all decided here.
Invariant: the DuckDB type of the text is the one of ``type``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import ClassVar

from msgspec.structs import replace
from sqlglot import exp

from proxy.errors import (
    DataError,
    NotSupportedError,
    ProgrammingError,
    TypeMismatchError,
    UndefinedFunctionError,
)
from proxy.sql import types
from proxy.sql.expression import forms
from proxy.sql.expression.guards import EXACT, finite, guarded, numeric, wide
from proxy.sql.expression.intervals import multiple
from proxy.sql.expression.refusals import not_so, refusal
from proxy.sql.expression.typed import (
    NULL,
    TypedSql,
    coerce,
    combine,
    unify,
    widest,
    written,
)
from proxy.sql.parse.tree import COMPARISONS, flat, position, unread


class Lowering:
    """The translation of expressions, for one way of resolving columns.

    ``column`` gives the meaning of a name; ``special_case`` may give that of any node beforehand.
    ``rules`` and ``arguments`` say what each kind of node means, and what it may have;
    ``proxy.sql.expression.rules`` has all of them.
    """

    rules: ClassVar[Mapping[type[exp.Expr], Rule]]
    arguments: ClassVar[Mapping[type[exp.Expr], frozenset[str]]]

    def column(self, node: exp.Expr) -> TypedSql:
        """Return the meaning of a column."""
        raise NotImplementedError

    def special_case(self, node: exp.Expr) -> TypedSql | None:
        """Return the meaning of a node that has one as a whole; None to translate its parts."""
        del node
        return None

    def listed(
        self, kind: type[exp.Expr], operands: Sequence[exp.Expr], texts: Sequence[str]
    ) -> list[str]:
        """Return what AND or OR connects, each once, some in fewer words."""
        del kind, operands
        return list(dict.fromkeys(texts))

    def lower(self, node: exp.Expr | None) -> TypedSql:
        """Return the translation of an expression.

        Raises:
            ProgrammingError, NotSupportedError, DataError: it has none; ``position`` says where.
        """
        if not isinstance(node, exp.Expr):  # sqlglot takes abs() and floor(AS x) as they come
            raise UndefinedFunctionError("a function or an operator lacks an argument")
        try:
            special = self.special_case(node)
            if special is not None:
                return special
            rule = self.rules.get(type(node))
            if rule is None:
                raise refusal(node)
            allowed = self.arguments.get(type(node), PLAIN)
            if unread(node, allowed) is not None:
                raise not_so(node)
            return rule(self, node)
        except (ProgrammingError, NotSupportedError, DataError) as error:
            error.position = error.position or position(node)
            raise

    def boolean(self, node: exp.Expr, place: str) -> TypedSql:
        """Return the translation of a condition.

        Raises:
            TypeMismatchError: it is not boolean.
        """
        value = self.lower(node)
        if value.type not in ("boolean", "unknown"):
            raise TypeMismatchError(
                f"argument of {place} must be type boolean, not type {value.type}",
                position=position(node),
            )
        return coerce(value, "boolean")


Rule = Callable[[Lowering, exp.Expr], TypedSql]
Rules = dict[type[exp.Expr], Rule]
Arguments = dict[type[exp.Expr], frozenset[str]]


def _literal(_: Lowering, node: exp.Expr) -> TypedSql:
    if node.args["is_string"]:
        width = len(node.name.encode("utf-8", "surrogatepass"))
        return TypedSql(types.literal("text", node.name), "unknown", literal=node.name, width=width)
    return _signed(node.name)


def signed(node: exp.Expr) -> tuple[str, int] | None:
    """Return the digits and the sign of a node that is a signed numeric literal.

    PostgreSQL's parser takes them together, so that the least integer is one.
    """
    sign = 1
    while isinstance(node, exp.Neg | exp.Paren):
        sign, node = (-sign if isinstance(node, exp.Neg) else sign), node.this
    return (node.name, sign) if isinstance(node, exp.Literal) and not node.is_string else None


@lru_cache(4096)  # of a list, each value is there many times
def _signed(text: str, sign: int = 1) -> TypedSql:
    """Return a numeric literal with its sign."""
    kind = types.of_literal(text, sign)
    nonzero = bool(Decimal(text))
    size = sign * float(text)
    if kind != "numeric":
        literal = types.literal(kind, sign * int(text))
        return TypedSql(literal, kind, nonzero=nonzero, constant=size)
    value = Decimal(text) if sign > 0 else Decimal(text).copy_negate()
    scale = types.scale_of(text)
    return TypedSql(types.decimal(value), kind, nonzero=nonzero, scale=scale, constant=size)


def _boolean(_: Lowering, node: exp.Expr) -> TypedSql:
    return TypedSql("TRUE" if node.this else "FALSE", "boolean")


def _paren(lowering: Lowering, node: exp.Expr) -> TypedSql:
    return lowering.lower(node.this)


def _connector(lowering: Lowering, node: exp.Expr) -> TypedSql:
    word = "AND" if isinstance(node, exp.And) else "OR"
    operands = flat(node)
    parts = [lowering.boolean(part, word) for part in operands]
    texts = [part.sql for part in parts]
    length = sum(map(len, texts)) + (len(word) + 2) * len(texts)
    texts = lowering.listed(type(node), operands, texts)
    return combine(f"({f' {word} '.join(texts)})", "boolean", *parts, length=length)


def _not(lowering: Lowering, node: exp.Expr) -> TypedSql:
    value = lowering.boolean(node.this, "NOT")
    return combine(f"(NOT {value.sql})", "boolean", value)


def _comparison(lowering: Lowering, node: exp.Expr) -> TypedSql:
    operator = COMPARISONS[type(node)]
    left, right = compared(lowering.lower(node.this), lowering.lower(node.expression), operator)
    return combine(f"({left.sql} {operator} {written(right)})", "boolean", left, right)


def compared(left: TypedSql, right: TypedSql, operator: str) -> list[TypedSql]:
    """Return two values, converted to the type in which they are compared."""
    try:
        if {left.type, right.type} <= set(types.NUMBERS):
            kind = types.of_arithmetic(left.type, right.type)
            return [coerce(left, kind), coerce(right, kind)]
        return unify([left, right], "comparison")
    except TypeMismatchError:
        raise UndefinedFunctionError(
            f"operator does not exist: {left.type} {operator} {right.type}",
            hint="quote the literal, or add an explicit cast",
        ) from None


def _between(lowering: Lowering, node: exp.Expr) -> TypedSql:
    value, low, high = (lowering.lower(node.args[arg]) for arg in ("this", "low", "high"))
    a, low = compared(value, low, ">=")
    b, high = compared(value, high, "<=")
    text = f"({a.sql} >= {written(low)} AND {b.sql} <= {written(high)})"
    if node.args.get("symmetric"):
        text = f"({text} OR ({a.sql} <= {low.sql} AND {b.sql} >= {high.sql}))"
    return combine(text, "boolean", a, b, low, high)


def _in(lowering: Lowering, node: exp.Expr) -> TypedSql:
    if node.args.get("query") or not node.expressions:
        what = "a list of values here, not a subquery" if node.args.get("query") else "values"
        raise NotSupportedError(f"IN takes {what}")
    value = lowering.lower(node.this)
    items = node.expressions
    if len(items) == 1 and isinstance(items[0], exp.Tuple):
        items = items[0].expressions
    listed = [lowering.lower(item) for item in items]
    try:
        first, *rest = unify([value, *listed], "IN")
    except TypeMismatchError:
        odd = next(item for item in listed if item.type != value.type)
        compared(value, odd, "=")
        raise
    values = [written(item) for item in rest]
    length = sum(map(len, values)) + 2 * len(values)
    text = f"({first.sql} IN ({', '.join(dict.fromkeys(values))}))"
    return combine(text, "boolean", first, *rest, length=length)


def _is(lowering: Lowering, node: exp.Expr) -> TypedSql:
    value, what = lowering.lower(node.this), node.expression
    negated = "NOT " if node.args.get("negate") else ""
    if isinstance(what, exp.Null):
        return combine(f"({value.sql} IS {negated}NULL)", "boolean", value)
    if isinstance(what, exp.Boolean):
        value = coerce(value, "boolean")
        # TRUE and FALSE are what NULL is distinct from
        operator = "IS DISTINCT FROM" if negated else "IS NOT DISTINCT FROM"
        return combine(
            f"({value.sql} {operator} {'TRUE' if what.this else 'FALSE'})", "boolean", value
        )
    raise NotSupportedError("IS takes NULL, TRUE, FALSE or UNKNOWN")


def _negative(lowering: Lowering, node: exp.Expr) -> TypedSql:
    if (written := signed(node)) is not None:
        return _signed(*written)
    value = lowering.lower(node.this)
    if value.type == "unknown":
        value = coerce(value, "double precision")
    if value.type not in (*types.NUMBERS, "interval"):
        raise UndefinedFunctionError(f"operator does not exist: - {value.type}")
    text, scale = f"(-{value.sql})", value.scale
    if value.type in types.INTEGERS:  # DuckDB's own minus widens the type, or not
        text, scale = f"(CAST(0 AS {types.DUCKDB[value.type]}) - {value.sql})", None
    opposite = combine(text, value.type, value, scale=scale)
    return forms.smooth(opposite, [value], forms.negative(value))


SIGNS: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}


def _arithmetic(lowering: Lowering, node: exp.Expr) -> TypedSql:
    sign = SIGNS[type(node)]
    left, right = lowering.lower(node.this), lowering.lower(node.expression)
    return arithmetic(sign, left, right)


def numbers(sign: str, left: TypedSql, right: TypedSql) -> list[TypedSql]:
    """Return two numbers, converted to the type of their sum, product or quotient.

    Raises:
        UndefinedFunctionError: one is not a number.
    """
    if left.type in (*types.NUMBERS, "unknown") and right.type in (*types.NUMBERS, "unknown"):
        kind = types.of_arithmetic(left.type, right.type)
        if kind == "numeric":
            return [v if v.type != "unknown" else coerce(v, kind) for v in (left, right)]
        if kind != "unknown":
            return [coerce(left, kind), coerce(right, kind)]
    raise UndefinedFunctionError(
        f"operator does not exist: {left.type} {sign} {right.type}", hint="add an explicit cast"
    )


def arithmetic(sign: str, left: TypedSql, right: TypedSql) -> TypedSql:
    """Return a sum, difference or product, also of dates."""
    kinds = (left.type, sign, right.type)
    if kinds in DATES:
        return combine(DATES[kinds][0].format(left.sql, right.sql), DATES[kinds][1], left, right)
    if sign == "*" and "interval" in (left.type, right.type):
        interval, factor = (left, right) if left.type == "interval" else (right, left)
        if factor.type in types.NUMBERS:
            return multiple(interval, factor)
    left, right = numbers(sign, left, right)
    form = forms.arithmetic(sign, left, right)
    return forms.smooth(_combined(sign, left, right), [left, right], form)


def _combined(sign: str, left: TypedSql, right: TypedSql) -> TypedSql:
    """Return a sum, difference or product of two numbers."""
    if "numeric" not in (left.type, right.type):
        return combine(finite(f"({left.sql} {sign} {right.sql})", left), left.type, left, right)
    left, right = wide(left), wide(right)
    scales = [left.scale, right.scale]
    if sign != "*":
        scale = None if None in scales else max(one or 0 for one in scales)
        return combine(f"({left.sql} {sign} {right.sql})", "numeric", left, right, scale=scale)
    if None not in scales and (total := sum(one or 0 for one in scales)) <= EXACT:
        return combine(f"({left.sql} * {right.sql})", "numeric", left, right, scale=total)
    product = f"(CAST({left.sql} AS DOUBLE) * CAST({right.sql} AS DOUBLE))"
    return numeric(product, left, right)


DAYS = ("smallint", "integer")
DATES: dict[tuple[str, str, str], tuple[str, str]] = {
    ("date", "-", "date"): ("CAST({} - {} AS INTEGER)", "integer"),
    **dict.fromkeys([("date", "+", n) for n in DAYS], ("({} + CAST({} AS INTEGER))", "date")),
    **dict.fromkeys([("date", "-", n) for n in DAYS], ("({} - CAST({} AS INTEGER))", "date")),
    **dict.fromkeys([(n, "+", "date") for n in DAYS], ("({1} + CAST({0} AS INTEGER))", "date")),
    ("date", "+", "interval"): ("(CAST({} AS TIMESTAMP) + {})", "timestamp"),
    ("date", "-", "interval"): ("(CAST({} AS TIMESTAMP) - {})", "timestamp"),
    ("timestamp", "+", "interval"): ("({} + {})", "timestamp"),
    ("timestamp", "-", "interval"): ("({} - {})", "timestamp"),
    ("timestamp", "-", "timestamp"): ("({} - {})", "interval"),
    ("timestamp", "-", "date"): ("({} - CAST({} AS TIMESTAMP))", "interval"),
    ("date", "-", "timestamp"): ("(CAST({} AS TIMESTAMP) - {})", "interval"),
    ("interval", "+", "interval"): ("({} + {})", "interval"),
    ("interval", "-", "interval"): ("({} - {})", "interval"),
    ("interval", "+", "date"): ("(CAST({1} AS TIMESTAMP) + {0})", "timestamp"),
    ("interval", "+", "timestamp"): ("({1} + {0})", "timestamp"),
}


def _divide(lowering: Lowering, node: exp.Expr) -> TypedSql:
    return division(lowering.lower(node.this), lowering.lower(node.expression))


def division(left: TypedSql, right: TypedSql) -> TypedSql:
    """Return a quotient: truncated for integers, to 16 decimals for numerics."""
    left, right = numbers("/", left, right)
    kind = "numeric" if "numeric" in (left.type, right.type) else left.type
    scale = None
    if kind in types.INTEGERS:
        text = f"({left.sql} // {right.sql})"
    elif kind in types.FLOATS:
        text = finite(f"({left.sql} / {right.sql})", left)
    else:
        quotient = numeric(f"(CAST({left.sql} AS DOUBLE) / CAST({right.sql} AS DOUBLE))")
        text, scale = quotient.sql, quotient.scale
    value = combine(guarded(left, right, text), kind, left, right, scale=scale)
    form = forms.quotient(left, right, kind in types.INTEGERS)
    return forms.smooth(value, [left, right], form)


def _modulo(lowering: Lowering, node: exp.Expr) -> TypedSql:
    left, right = numbers("%", lowering.lower(node.this), lowering.lower(node.expression))
    kind = "numeric" if "numeric" in (left.type, right.type) else left.type
    if kind in types.FLOATS:
        raise UndefinedFunctionError(f"operator does not exist: {kind} % {kind}")
    if kind == "numeric":  # DuckDB's is exact between numbers of one scale
        left, right = unify([left, right], "%")
    text = guarded(left, right, f"({left.sql} % {right.sql})")
    return combine(text, kind, left, right, scale=widest([left, right]))


def _case(lowering: Lowering, node: exp.Expr) -> TypedSql:
    conditions = []
    for branch in node.args["ifs"]:
        if node.this is None:
            conditions.append(lowering.boolean(branch.this, "CASE/WHEN"))
        else:
            left, right = compared(lowering.lower(node.this), lowering.lower(branch.this), "=")
            conditions.append(combine(f"({left.sql} = {right.sql})", "boolean", left, right))
    values = [lowering.lower(branch.args["true"]) for branch in node.args["ifs"]]
    default = node.args.get("default")
    values.append(lowering.lower(default) if default else NULL)
    values = unify(values, "CASE")
    pairs = [(one.sql, value.sql) for one, value in zip(conditions, values, strict=False)]
    first = dict(reversed(pairs))  # a condition that is written again is never met there
    pieces = [f"WHEN {when} THEN {first[when]}" for when in dict(pairs)]
    text = f"CASE {' '.join(pieces)} ELSE {values[-1].sql} END"
    length = sum(len(when) + len(value) + len("WHEN  THEN  ") for when, value in pairs)
    length += len(f"CASE ELSE {values[-1].sql} END")
    value = combine(text, values[0].type, *conditions, *values, scale=widest(values), length=length)
    form = forms.chosen(conditions, values)
    return forms.smooth(value, values, form) if form else value


def _coalesce(lowering: Lowering, node: exp.Expr) -> TypedSql:
    values = [lowering.lower(item) for item in (node.this, *node.expressions)]
    values = unify(values, "COALESCE")
    text = f"COALESCE({', '.join(v.sql for v in values)})"
    value = combine(text, values[0].type, *values, scale=widest(values))
    form = forms.replaced(values)
    return forms.smooth(value, values, form) if form else value


def _nullif(lowering: Lowering, node: exp.Expr) -> TypedSql:
    value, other = lowering.lower(node.this), lowering.lower(node.expression)
    left, right = compared(value, other, "=")
    kinds = {value.type, other.type}
    mixed = kinds <= set(types.NUMBERS) and not (
        kinds <= set(types.INTEGERS) or kinds <= set(types.FLOATS)
    )  # for these there is no operator but that of the wider type
    result = left if mixed or value.type == "unknown" else value
    text = f"CASE WHEN {left.sql} = {right.sql} THEN NULL ELSE {result.sql} END"
    result = replace(
        combine(text, result.type, value, left, right, scale=result.scale), form=result.form
    )
    return replace(result, form=None) if right.chance else forms.smooth(result, [left], result.form)


def _column(lowering: Lowering, node: exp.Expr) -> TypedSql:
    return lowering.column(node)


PLAIN = frozenset({"this", "expression", "expressions"})
# what sqlglot may put beside these; anything else could change the meaning, and is refused
ARGUMENTS: Arguments = {
    exp.Literal: PLAIN | {"is_string"},
    exp.Between: PLAIN | {"low", "high", "symmetric"},
    exp.In: PLAIN | {"query"},
    exp.Is: PLAIN | {"negate"},
    exp.Div: PLAIN | {"typed", "safe"},
    exp.Case: PLAIN | {"ifs", "default"},
    exp.Column: PLAIN | {"table", "db", "catalog"},
    exp.Cast: PLAIN | {"to"},
}
RULES: Rules = {
    exp.Literal: _literal,
    exp.Boolean: _boolean,
    exp.Null: lambda _, __: NULL,
    exp.Paren: _paren,
    exp.And: _connector,
    exp.Or: _connector,
    exp.Not: _not,
    **dict.fromkeys(COMPARISONS, _comparison),
    exp.Between: _between,
    exp.In: _in,
    exp.Is: _is,
    exp.Neg: _negative,
    **dict.fromkeys(SIGNS, _arithmetic),
    exp.Div: _divide,
    exp.Mod: _modulo,
    exp.Case: _case,
    exp.Coalesce: _coalesce,
    exp.Nullif: _nullif,
    exp.Column: _column,
}
