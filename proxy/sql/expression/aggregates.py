"""Aggregate functions: how to find them in an expression, and their meaning over results.

Over protected rows they become numbers instead: what is linear in counts and sums, and AVG, in
``bind.aggregation``; what follows from the counts of values, as MAX and BOOL_OR, in
``bind.derived``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace
from sqlglot import exp

from proxy.errors import ProgrammingError, TypeMismatchError, UndefinedFunctionError
from proxy.sql import types
from proxy.sql.expression import forms
from proxy.sql.expression.guards import numeric
from proxy.sql.expression.typed import TypedSql, coerce, combine, widest
from proxy.sql.parse.tree import (
    as_sql,
    called,
    is_null,
    nodes,
    position,
    quoted_text,
    whole_number,
)

DOUBLE = "double precision"
# the proxy's own, of protected rows, which the parser does not know
OTHER_AGGREGATES = {"credible_low", "credible_high", "confidence", "probability"}


WINDOWS: dict[type[exp.Expr], tuple[str, str | None]] = {  # DuckDB's name, type (None: argument's)
    exp.RowNumber: ("row_number", "bigint"),
    exp.Rank: ("rank", "bigint"),
    exp.DenseRank: ("dense_rank", "bigint"),
    exp.PercentRank: ("percent_rank", DOUBLE),
    exp.CumeDist: ("cume_dist", DOUBLE),
    exp.Ntile: ("ntile", "integer"),
    exp.Lag: ("lag", None),
    exp.Lead: ("lead", None),
    exp.FirstValue: ("first_value", None),
    exp.LastValue: ("last_value", None),
    exp.NthValue: ("nth_value", None),
}


SPREADS: dict[type[exp.Expr], str] = {
    exp.Stddev: "stddev_samp",
    exp.StddevSamp: "stddev_samp",
    exp.StddevPop: "stddev_pop",
    exp.Variance: "var_samp",
    exp.VariancePop: "var_pop",
}


# over results; of ordered sets see _within
AGGREGATES = {
    *(exp.Count, exp.CountIf, exp.LogicalAnd, exp.LogicalOr, exp.Min, exp.Max, exp.Sum, exp.Avg),
    *(exp.RegrCount, exp.Median, exp.GroupConcat, *SPREADS),
}


def aggregates(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the aggregate calls of an expression, outermost first; not those of subqueries."""
    stack = [node]
    while stack:
        item = stack.pop()
        if isinstance(item, exp.Query | exp.Subquery):
            continue
        window = isinstance(item, exp.Window)
        if not window and is_aggregate(item):
            yield item
            continue
        children = _below(item) if window else list(item.iter_expressions())
        stack += reversed(children)


def _below(window: exp.Expr) -> list[exp.Expr]:
    """Return the parts of a window: its own function is no aggregate, but may have one inside."""
    inner = window.this.this if isinstance(window.this, exp.Filter) else window.this
    rest = [child for child in window.iter_expressions() if child is not window.this]
    return rest + list(inner.iter_expressions())


class Contents:
    """What the parts of expressions hold: each is looked at once, however often it is asked."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[exp.Expr, int]] = {}  # nodes are kept alive for their ids

    def has(self, node: exp.Expr, what: int) -> bool:
        """Return whether an expression holds any of COLUMN, QUERY, WINDOW, CALL, AGGREGATE."""
        if id(node) not in self._known:
            for each in reversed(nodes(node)):
                if id(each) not in self._known:
                    self._known[id(each)] = each, self._held(each)
        return bool(self._known[id(node)][1] & what)

    def _held(self, node: exp.Expr) -> int:
        held = 0
        for child in node.iter_expressions():
            held |= self._known[id(child)][1]
        if isinstance(node, exp.Window):
            inner = (self._known[id(child)][1] & AGGREGATE for child in _below(node))
            held = held & ~AGGREGATE | max(inner, default=0) | WINDOW
        elif isinstance(node, exp.Query | exp.Subquery):
            held &= ~AGGREGATE
        elif is_aggregate(node):
            held |= AGGREGATE
        for flag, kinds in HELD.items():
            held |= flag if isinstance(node, kinds) else 0
        return held


COLUMN, QUERY, WINDOW, CALL, AGGREGATE = 1, 2, 4, 8, 16
HELD: dict[int, tuple[type[exp.Expr], ...]] = {
    COLUMN: (exp.Column,),
    QUERY: (exp.Query,),
    CALL: (exp.AggFunc, exp.Anonymous),
}


def is_aggregate(node: exp.Expr) -> bool:
    """Return whether a node is a call of an aggregate function, with its FILTER."""
    if isinstance(node, exp.Filter | exp.WithinGroup):
        return True
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in OTHER_AGGREGATES
    return isinstance(node, exp.AggFunc) and type(node) not in WINDOWS


def both_arguments(node: exp.RegrCount) -> tuple[exp.Expr, exp.Expr]:
    """Return the arguments of REGR_COUNT.

    Raises:
        ProgrammingError: they are not two, or DISTINCT.
    """
    one, two = node.this, node.args.get("expression")
    if two is None or isinstance(one, exp.Star | exp.Distinct):
        raise ProgrammingError(
            "REGR_COUNT takes two arguments, without DISTINCT", position=position(node)
        )
    return one, two


def only_argument(node: exp.Expr) -> exp.Expr | None:
    """Return the argument of an aggregate.

    Raises:
        ProgrammingError: it has several, or conditions of its own.
    """
    for name, value in node.args.items():
        if value and name not in ("this", "big_int"):
            raise ProgrammingError(
                f"{as_sql(node)}: {called(node).upper()} takes one argument",
                position=position(node),
            )
    return node.this if isinstance(node.this, exp.Expr) else None


def coerce_result(value: TypedSql, function: str) -> TypedSql:
    """Return an aggregate, maybe over a window, in PostgreSQL's type where DuckDB has another."""
    name = function.split("(", 1)[0]
    if name == "sum" and value.type in ("bigint", "real"):  # DuckDB gives a HUGEINT, a DOUBLE
        return replace(value, sql=f"CAST({value.sql} AS {types.DUCKDB[value.type]})")
    if name in MEANS and value.type == "numeric":  # a DOUBLE
        shown = numeric(value.sql, value)
        return replace(shown, numbers=value.numbers, chance=value.chance, form=value.form)
    return value


MEANS = {"avg", *SPREADS.values()}


def aggregate(node: exp.Expr, lower: Callable[[exp.Expr], TypedSql]) -> TypedSql:
    """Return an aggregate of results; ``lower`` translates what it aggregates.

    The window over which it may be is still to be written into its form.

    Raises:
        UndefinedFunctionError: it is unknown.
    """
    tail, conditions = "", []
    if isinstance(node, exp.Filter):
        condition = coerce(lower(node.expression.this), "boolean")
        conditions, tail = [condition], f" FILTER (WHERE {condition.sql})"
        node = node.this
    text, kind, values = _call(node, lower)
    scale = widest(values) if values else None
    value = combine(text + tail, kind, *values, *conditions, scale=scale)
    if not value.chance:
        return value
    name, *rest = text.split("(", 1)
    smooth = name in ("sum", *MEANS) and not rest[0].startswith("DISTINCT ")
    if not smooth or any(condition.chance for condition in conditions):
        return value
    return forms.smooth(value, values, forms.aggregate(name, values[0], conditions))


def _call(node: exp.Expr, lower: Callable[[exp.Expr], TypedSql]) -> tuple[str, str, list[TypedSql]]:
    """Return the text of an aggregate, its type, and its arguments."""
    if isinstance(node, exp.WithinGroup):
        return _within(node, lower)
    if type(node) not in AGGREGATES:
        raise UndefinedFunctionError(
            f"the aggregate {called(node)} is not among those the proxy knows here",
            position=position(node),
        )
    if isinstance(node, exp.GroupConcat):
        if node.args.get("on_overflow"):  # a third argument
            raise UndefinedFunctionError("string_agg takes two arguments", position=position(node))
        return _listed(node, lower)
    if isinstance(node, exp.RegrCount):
        values = [_number("regr_count", lower(each)) for each in both_arguments(node)]
        there = " AND ".join(f"{value.sql} IS NOT NULL" for value in values)
        return f"count(CASE WHEN {there} THEN 1 END)", "bigint", values
    inner, distinct = only_argument(node), ""
    if isinstance(inner, exp.Distinct) and len(inner.expressions) == 1:
        inner, distinct = inner.expressions[0], "DISTINCT "
    if inner is None:
        raise ProgrammingError("an aggregate function lacks its argument")
    if isinstance(node, exp.Count):
        if isinstance(inner, exp.Star):
            return "count(*)", "bigint", []
        value = lower(inner)
        return f"count({distinct}{value.sql})", "bigint", [value]
    if isinstance(node, exp.CountIf | exp.LogicalAnd | exp.LogicalOr):
        value = coerce(lower(inner), "boolean")
        if isinstance(node, exp.CountIf):
            return f"count(CASE WHEN {value.sql} THEN 1 END)", "bigint", [value]
        both = "bool_and" if isinstance(node, exp.LogicalAnd) else "bool_or"
        return f"{both}({value.sql})", "boolean", [value]
    if isinstance(node, exp.Min | exp.Max):
        value = lower(inner)
        value = coerce(value, "text") if value.type == "unknown" else value
        return f"{'min' if isinstance(node, exp.Min) else 'max'}({value.sql})", value.type, [value]
    if isinstance(node, exp.Sum):
        value = _number("sum", lower(inner))
        kind = types.of_sum(value.type)
        if value.type == "bigint":
            value = replace(value, sql=f"CAST({value.sql} AS DECIMAL(38, 0))", scale=0)
        if value.type == "real":  # DuckDB gives a DOUBLE
            value = replace(value, sql=f"CAST({value.sql} AS DOUBLE)")
        return f"sum({distinct}{value.sql})", kind, [value]
    if isinstance(node, exp.Avg):
        value = _number("avg", lower(inner))
        return f"avg({distinct}{value.sql})", types.of_mean(value.type), [value]
    if type(node) in SPREADS:
        value = _number(SPREADS[type(node)], lower(inner))
        return f"{SPREADS[type(node)]}({value.sql})", types.of_mean(value.type), [value]
    value = _number("median", lower(inner))
    return f"median(CAST({value.sql} AS DOUBLE))", DOUBLE, [value]


LISTED = 100_000  # bytes that a list of texts is taken to have


def _listed(
    node: exp.Expr, lower: Callable[[exp.Expr], TypedSql]
) -> tuple[str, str, list[TypedSql]]:
    """Return STRING_AGG, with its DISTINCT and ORDER BY."""
    inner, separator, order, distinct = node.this, node.args.get("separator"), "", ""
    values = []
    if isinstance(inner, exp.Order):
        keys = [(lower(item.this), item) for item in inner.expressions]
        order = f" ORDER BY {', '.join(ordered(key.sql, item) for key, item in keys)}"
        values, inner = [key for key, _ in keys], inner.this
    if isinstance(inner, exp.Distinct) and len(inner.expressions) == 1:
        inner, distinct = inner.expressions[0], "DISTINCT "
    value = lower(inner)
    between = "" if is_null(separator) else quoted_text(separator)
    if between is None or value.type not in ("text", "unknown"):
        raise UndefinedFunctionError(
            f"function string_agg({value.type}) does not exist",
            hint="string_agg takes a text and a separator in quotes: string_agg(x::text, ', ')",
        )
    value = replace(coerce(value, "text"), width=LISTED)
    text = f"string_agg({distinct}{value.sql}, {types.literal('text', between)}{order})"
    return text, "text", [value, *values]


def ordered(sql: str, item: exp.Expr) -> str:
    """Return an item of ORDER BY, with PostgreSQL's place for NULLs."""
    nulls = "FIRST" if item.args.get("nulls_first") else "LAST"
    return f"{sql} {'DESC' if item.args.get('desc') else 'ASC'} NULLS {nulls}"


def _number(name: str, value: TypedSql) -> TypedSql:
    if value.type == "unknown":
        return coerce(value, DOUBLE)
    if value.type not in types.NUMBERS:
        raise UndefinedFunctionError(f"function {name}({value.type}) does not exist")
    return value


def _within(
    node: exp.Expr, lower: Callable[[exp.Expr], TypedSql]
) -> tuple[str, str, list[TypedSql]]:
    item = sole(node)
    value = lower(item.this)
    order = "DESC" if item.args.get("desc") else "ASC"
    if isinstance(node.this, exp.Mode):
        return f"mode() WITHIN GROUP (ORDER BY {value.sql} {order})", value.type, [value]
    name = {exp.PercentileCont: "percentile_cont", exp.PercentileDisc: "percentile_disc"}.get(
        type(node.this)
    )
    if name is None:
        raise UndefinedFunctionError(f"the aggregate {called(node.this)} is not known")
    part = fraction(node.this.this)
    kind = DOUBLE if name == "percentile_cont" else value.type
    value = coerce(value, DOUBLE) if name == "percentile_cont" else value
    return f"{name}({part}) WITHIN GROUP (ORDER BY {value.sql} {order})", kind, [value]


def sole(node: exp.Expr) -> exp.Expr:
    """Return the one item of WITHIN GROUP (ORDER BY ...).

    Raises:
        ProgrammingError: there is none, or several.
    """
    items: list[exp.Expr] = node.expression.expressions if node.expression else []
    if len(items) != 1:
        raise ProgrammingError("WITHIN GROUP takes one ORDER BY expression")
    return items[0]


def fraction(node: exp.Expr) -> str:
    """Return the fraction of a percentile."""
    bare = node
    while isinstance(bare, exp.Cast) and bare.to.is_type("decimal", "float", "double"):
        bare = bare.this
    if isinstance(bare, exp.Literal) and not bare.is_string and 0 <= float(bare.name) <= 1:
        return bare.name
    if (whole := whole_number(node)) in (0, 1):
        return str(whole)
    raise TypeMismatchError(
        "a percentile takes a number between 0 and 1",
        hint="ask for several in columns of their own" if isinstance(node, exp.Array) else None,
        position=position(node),
    )
