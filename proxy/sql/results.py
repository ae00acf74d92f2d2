"""Expressions over results: columns of relations, aggregates of results, windows, subqueries.

Nothing here meets protected rows: it is ordinary SQL on released numbers and public tables, written
out for DuckDB with generated names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from proxy.errors import (
    GroupingError,
    NotSupportedError,
    ProgrammingError,
    TypeMismatchError,
    UndefinedFunctionError,
)
from proxy.sql import types
from proxy.sql.names import Names, name_of
from proxy.sql.relations import Bound, Context, Output
from proxy.sql.scalar import Lowering, Typed, compared, convert, make, position, worded

if TYPE_CHECKING:
    from proxy.sql.bind import Binder

DOUBLE = "double precision"
OTHER_AGGREGATES = {"every", "credible_low", "credible_high", "confidence", "probability"}
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


AGGREGATES = {
    *(exp.Count, exp.CountIf, exp.LogicalAnd, exp.LogicalOr, exp.Min, exp.Max, exp.Sum, exp.Avg),
    *(exp.Median, *SPREADS),
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
        children = list(item.iter_expressions())
        if window:  # its own function is none, but may have one inside
            inner = item.this.this if isinstance(item.this, exp.Filter) else item.this
            children = [c for c in children if c is not item.this] + list(inner.iter_expressions())
        stack += reversed(children)


def is_aggregate(node: exp.Expr) -> bool:
    """Return whether a node is a call of an aggregate function, with its FILTER."""
    if isinstance(node, exp.Filter | exp.WithinGroup):
        return True
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in OTHER_AGGREGATES
    return isinstance(node, exp.AggFunc) and type(node) not in WINDOWS


def only_argument(node: exp.Expr) -> exp.Expr | None:
    """Return the argument of an aggregate.

    Raises:
        ProgrammingError: it has others, or conditions of its own.
    """
    for name, value in node.args.items():
        if value and name not in ("this", "big_int"):
            raise ProgrammingError(
                f"{worded(node)}: {node.key.upper()} takes one argument", position=position(node)
            )
    return node.this if isinstance(node.this, exp.Expr) else None


class Outer(Lowering):
    """What all expressions outside of aggregations may have: subqueries of results, windows."""

    def __init__(self, binder: Binder, context: Context, windows: Sequence[exp.Expr] = ()) -> None:
        self.binder = binder
        self.context = context
        self.windows = {name_of(window.this): window for window in windows}

    def visible(self) -> Names[Typed] | None:
        """Return the columns that a subquery sees from here."""
        return None

    def before(self, node: exp.Expr) -> Typed | None:
        """Return the translation of a subquery or a window."""
        if isinstance(node, exp.Subquery):
            return self._scalar(node)
        if isinstance(node, exp.Exists):
            bound = self._subquery(node.this)
            return make(f"(EXISTS ({bound.sql}))", "boolean", *(o.typed for o in bound.outputs))
        if isinstance(node, exp.In) and node.args.get("query"):
            return self._member(node)
        if isinstance(node, exp.Window):
            return self._window(node)
        return None

    def _subquery(self, node: exp.Expr) -> Bound:
        return self.binder.query(node, replace(self.context, outer=self.visible()))

    def _one_column(self, node: exp.Expr) -> tuple[Bound, Typed]:
        bound = self._subquery(node)
        if len(bound.outputs) != 1:
            raise ProgrammingError("subquery must return only one column", position=position(node))
        return bound, bound.outputs[0].typed

    def _scalar(self, node: exp.Expr) -> Typed:
        bound, typed = self._one_column(node)
        shadow = f"(SELECT s0 FROM ({bound.sql}))" if typed.shadow else None
        text = f"(SELECT c0 FROM ({bound.sql}))"
        return replace(make(text, typed.type, typed), axes=frozenset(), shadow=shadow)

    def _member(self, node: exp.Expr) -> Typed:
        bound, typed = self._one_column(node.args["query"])
        inner = Typed("c0", typed.type, numbers=typed.numbers)
        left, right = compared(self.lower(node.this), inner, "=")
        text = f"({left.sql} IN (SELECT {right.sql} FROM ({bound.sql})))"
        return make(text, "boolean", left, right)

    # --- windows -----------------------------------------------------------------------------

    def _window(self, node: exp.Expr) -> Typed:
        named = node.args.get("alias")
        if named is not None:
            if name_of(named) not in self.windows:
                raise ProgrammingError(
                    f'window "{name_of(named)}" does not exist', position=position(node)
                )
            spec = self.windows[name_of(named)]
        else:
            spec = node
        function, kind, values = self._windowed(node.this)
        pieces = []
        partition = [self.lower(item) for item in spec.args.get("partition_by") or ()]
        values += partition
        if partition:
            pieces.append(f"PARTITION BY {', '.join(p.sql for p in partition)}")
        order = spec.args.get("order")
        ordered = [(self.lower(item.this), item) for item in order.expressions] if order else []
        values += [typed for typed, _ in ordered]
        if ordered:
            pieces.append(f"ORDER BY {', '.join(direction(t.sql, item) for t, item in ordered)}")
        if spec.args.get("spec"):
            pieces.append(_frame(spec.args["spec"]))
        made = make(f"({function} OVER ({' '.join(pieces)}))", kind, *values)
        return convert_result(made, function)

    def _windowed(self, node: exp.Expr) -> tuple[str, str, list[Typed]]:
        """Return the call, its type and its arguments."""
        if type(node) in WINDOWS:
            name, kind = WINDOWS[type(node)]
            found = [
                self.lower(node.args[arg])
                for arg in ("this", "offset", "default")
                if isinstance(node.args.get(arg), exp.Expr)
            ]
            if kind is None and len(found) > 2:
                found[0], found[2] = together_or_raise(found[0], found[2], name)
            text = f"{name}({', '.join(v.sql for v in found)})"
            return text, kind or found[0].type, found
        call = aggregate(node, self.lower)
        return call.sql, call.type, [call]


def together_or_raise(one: Typed, two: Typed, place: str) -> tuple[Typed, Typed]:
    """Return two values as the type they have in common."""
    kind = types.common([one.type, two.type], place.upper())
    return convert(one, kind), convert(two, kind)


def convert_result(value: Typed, function: str) -> Typed:
    """Return a sum over a window in PostgreSQL's type."""
    if function.startswith("sum(") and value.type in SUMS:
        return replace(value, sql=f"CAST({value.sql} AS {SUMS[value.type]})")
    return value


SUMS = {"bigint": "BIGINT"}  # DuckDB gives a HUGEINT


def _frame(spec: exp.Expr) -> str:
    if spec.args.get("exclude"):
        raise NotSupportedError("EXCLUDE is not supported in a window")

    def end(name: str) -> str:
        value, side = spec.args.get(name), spec.args.get(f"{name}_side") or ""
        if isinstance(value, exp.Literal) and value.name.isdigit():
            return f"{value.name} {side}"
        if value in ("UNBOUNDED", "CURRENT ROW"):
            return f"{value} {side}".strip()
        raise NotSupportedError("a window frame takes whole numbers, UNBOUNDED or CURRENT ROW")

    kind = str(spec.args.get("kind"))
    if spec.args.get("end") is None:
        return f"{kind} {end('start')}"
    return f"{kind} BETWEEN {end('start')} AND {end('end')}"


def direction(sql: str, item: exp.Expr) -> str:
    """Return an item of ORDER BY, with PostgreSQL's place for NULLs."""
    nulls = "FIRST" if item.args.get("nulls_first") else "LAST"
    return f"{sql} {'DESC' if item.args.get('desc') else 'ASC'} NULLS {nulls}"


# --- aggregates of results ---------------------------------------------------------------------


def aggregate(node: exp.Expr, lower: Callable[[exp.Expr], Typed]) -> Typed:
    """Return an aggregate of results; ``lower`` translates what it aggregates.

    Raises:
        UndefinedFunctionError: it is none that is known.
    """
    tail, conditions = "", []
    if isinstance(node, exp.Filter):
        condition = convert(lower(node.expression.this), "boolean")
        conditions, tail = [condition], f" FILTER (WHERE {condition.sql})"
        node = node.this
    text, kind, values = _call(node, lower)
    return make(text + tail, kind, *values, *conditions)


def _call(node: exp.Expr, lower: Callable[[exp.Expr], Typed]) -> tuple[str, str, list[Typed]]:
    """Return the text of an aggregate, its type, and what it reads."""
    if isinstance(node, exp.WithinGroup):
        return _within(node, lower)
    if isinstance(node, exp.Anonymous) and node.name.lower() == "every":
        value = convert(lower(next(iter(node.expressions), exp.Null())), "boolean")
        return f"bool_and({value.sql})", "boolean", [value]
    if type(node) not in AGGREGATES:
        name = node.name if isinstance(node, exp.Anonymous) else node.key
        raise UndefinedFunctionError(
            f"the aggregate {name.lower()} is not among those the proxy knows here",
            position=position(node),
        )
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
        value = convert(lower(inner), "boolean")
        if isinstance(node, exp.CountIf):
            return f"count(CASE WHEN {value.sql} THEN 1 END)", "bigint", [value]
        both = "bool_and" if isinstance(node, exp.LogicalAnd) else "bool_or"
        return f"{both}({value.sql})", "boolean", [value]
    if isinstance(node, exp.Min | exp.Max):
        value = lower(inner)
        value = convert(value, "text") if value.type == "unknown" else value
        return f"{'min' if isinstance(node, exp.Min) else 'max'}({value.sql})", value.type, [value]
    if isinstance(node, exp.Sum):
        value = _number("sum", lower(inner))
        kind = {"integer": "bigint", "bigint": "numeric"}.get(value.type, value.type)
        if value.type == "bigint":
            value = replace(value, sql=f"CAST({value.sql} AS DECIMAL(38, 0))")
        return f"sum({distinct}{value.sql})", kind, [value]
    if isinstance(node, exp.Avg):
        value = _number("avg", lower(inner))
        return f"avg({distinct}{value.sql})", DOUBLE, [value]
    if type(node) in SPREADS:
        value = _number(SPREADS[type(node)], lower(inner))
        return f"{SPREADS[type(node)]}({value.sql})", DOUBLE, [value]
    value = _number("median", lower(inner))
    return f"median(CAST({value.sql} AS DOUBLE))", DOUBLE, [value]


def _number(name: str, value: Typed) -> Typed:
    if value.type == "unknown":
        return convert(value, DOUBLE)
    if value.type not in types.NUMBERS:
        raise UndefinedFunctionError(f"function {name}({value.type}) does not exist")
    return value


def _within(node: exp.Expr, lower: Callable[[exp.Expr], Typed]) -> tuple[str, str, list[Typed]]:
    item = sole(node)
    value = lower(item.this)
    order = "DESC" if item.args.get("desc") else "ASC"
    if isinstance(node.this, exp.Mode):
        return f"mode() WITHIN GROUP (ORDER BY {value.sql} {order})", value.type, [value]
    name = {exp.PercentileCont: "percentile_cont", exp.PercentileDisc: "percentile_disc"}.get(
        type(node.this)
    )
    if name is None:
        raise UndefinedFunctionError(f"the aggregate {node.this.key} is not known")
    part = fraction(node.this.this)
    kind = DOUBLE if name == "percentile_cont" else value.type
    value = convert(value, DOUBLE) if name == "percentile_cont" else value
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
    """Return the fraction that a percentile is asked for."""
    if isinstance(node, exp.Literal) and not node.is_string and 0 <= float(node.name) <= 1:
        return node.name
    raise TypeMismatchError("a percentile takes a number between 0 and 1", position=position(node))


# --- SELECT over results ------------------------------------------------------------------------


class Results(Outer):
    """Expressions over the columns of relations; with ``keys``, after a GROUP BY of these texts."""

    def __init__(
        self,
        binder: Binder,
        names: Names[Typed],
        context: Context,
        keys: Sequence[Typed] | None = None,
        windows: Sequence[exp.Expr] = (),
    ) -> None:
        super().__init__(binder, context, windows)
        self.names = names
        self.keys = keys

    def visible(self) -> Names[Typed] | None:
        """Return the columns that a subquery sees: these, and those around."""
        outer = self.context.outer
        tables = {**(outer.tables if outer else {}), **self.names.tables}
        return Names(tables, self.names.merged)

    def column(self, node: exp.Expr) -> Typed:
        """Return a column."""
        if isinstance(node.this, exp.Star):
            raise NotSupportedError("* is not supported here", position=position(node))
        found = None
        table = node.args.get("table")
        if table is None or name_of(table) in self.names.tables:
            found = self.names.find(node)
        if found is None and self.context.outer is not None:
            found = self.context.outer.find(node)
        if found is None:
            if table is not None:
                self.names.find(node)  # says that there is no such table
            raise self.names.unknown(node)
        return found

    def before(self, node: exp.Expr) -> Typed | None:
        """Return an aggregate or a key, after GROUP BY."""
        if self.keys is None:
            if is_aggregate(node):
                raise GroupingError(
                    "aggregate functions are not allowed here", position=position(node)
                )
            return super().before(node)
        if is_aggregate(node):
            plain = Results(self.binder, self.names, self.context)
            made = aggregate(node, plain.lower)
            return convert_result(made, made.sql)
        if isinstance(node, exp.Grouping):
            plain = Results(self.binder, self.names, self.context)
            parts = [plain.lower(item) for item in node.expressions]
            return make(f"CAST(grouping({', '.join(p.sql for p in parts)}) AS INTEGER)", "integer")
        alone = node.find(exp.Column) and not node.find(exp.Window, exp.Query)
        if alone and next(aggregates(node), None) is None:
            typed = Results(self.binder, self.names, self.context).lower(node)
            if any(key.sql == typed.sql for key in self.keys):
                return typed
            if isinstance(node, exp.Column) and typed.sql.split(".")[0] in self._own():
                raise ungrouped(node)
        return super().before(node)

    def _own(self) -> set[str]:
        """Return the generated names of the relations of this FROM clause."""
        columns = [typed for known in self.names.tables.values() for _, typed in known]
        return {typed.sql.split(".")[0] for typed in columns}


def ungrouped(node: exp.Expr) -> GroupingError:
    """Return the error for a column that is neither grouped nor aggregated."""
    return GroupingError(
        f'column "{name_of(node.this)}" must appear in the GROUP BY clause or be used in an '
        "aggregate function",
        position=position(node),
    )


@dataclass(frozen=True)
class Body:
    """A SELECT in translation: where it reads from, and the texts of its clauses."""

    source: str
    outputs: Sequence[Output]
    where: str | None = None
    group: str | None = None
    having: str | None = None
    qualify: str | None = None
    ties: Sequence[str] = ()  # what orders rows that ORDER BY does not


def assembled(node: exp.Expr, body: Body, lower: Callable[[exp.Expr], Typed]) -> Bound:
    """Return a SELECT as text: its columns, then the shadows, in order, limited."""
    columns = [f"{output.typed.sql} AS c{i}" for i, output in enumerate(body.outputs)]
    shadowed = [i for i, output in enumerate(body.outputs) if output.typed.shadow]
    columns += [f"{body.outputs[i].typed.shadow} AS s{i}" for i in shadowed]
    text = f"SELECT {', '.join(columns or ['1'])}"
    text += f" FROM {body.source}" if body.source else ""
    for word in ("where", "group", "having", "qualify"):
        clause = getattr(body, word)
        text += f" {'GROUP BY' if word == 'group' else word.upper()} {clause}" if clause else ""
    distinct = bool(node.args.get("distinct"))
    order = [
        direction(_ordered(item.this, body.outputs, lower, distinct), item)
        for item in (node.args["order"].expressions if node.args.get("order") else ())
    ]
    if distinct:
        listed = ", ".join(f"c{i}" for i in range(len(body.outputs)))
        picked = [f"min(s{i}) AS s{i}" for i in shadowed]
        text = f"SELECT {', '.join([listed, *picked])} FROM ({text}) GROUP BY {listed}"
    else:
        order += body.ties
    text += f" ORDER BY {', '.join(order)}" if order else ""
    limit, tail = _limits(node)
    return Bound(text + tail, tuple(body.outputs), probe=limit == 0)


def _ordered(
    node: exp.Expr,
    outputs: Sequence[Output],
    lower: Callable[[exp.Expr], Typed],
    distinct: bool,
) -> str:
    """Return what to order by: an ordinal, an output column, an expression of the input."""
    at = output_at(node, outputs)
    if at is None:
        typed = lower(node)
        found = [i for i, output in enumerate(outputs) if output.typed.sql == typed.sql]
        if not distinct:
            return typed.sql
        if not found:
            raise ProgrammingError(
                "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
                position=position(node),
            )
        at = found[0]
    return f"c{at}" if distinct else outputs[at].typed.sql


def output_at(node: exp.Expr, outputs: Sequence[Output]) -> int | None:
    """Return which output an item of ORDER BY names by its ordinal or its name."""
    if isinstance(node, exp.Literal) and not node.is_string:
        at = int(node.name) if node.name.isdigit() else 0
        if not 1 <= at <= len(outputs):
            raise ProgrammingError(
                f"ORDER BY position {node.name} is not in select list", position=position(node)
            )
        return at - 1
    if isinstance(node, exp.Column) and not node.args.get("table"):
        # PostgreSQL: in ORDER BY an output column goes before an input column
        for i, output in enumerate(outputs):
            if output.name == name_of(node.this):
                return i
    return None


def modified(binder: Binder, bound: Bound, node: exp.Expr) -> Bound:
    """Return a query with the ORDER BY and LIMIT that stand after it as a whole."""
    del binder
    order = []
    for item in node.args["order"].expressions if node.args.get("order") else ():
        at = output_at(item.this, bound.outputs)
        if at is None:
            raise NotSupportedError(
                "ORDER BY after UNION takes a column of the result, by name or number",
                position=position(item),
            )
        order.append(direction(f"c{at}", item))
    limit, tail = _limits(node)
    text = f"SELECT * FROM ({bound.sql})" if order or tail else bound.sql
    text += f" ORDER BY {', '.join(order)}" if order else ""
    outputs = tuple(
        replace(o, typed=replace(o.typed, sql=f"c{i}", shadow=o.typed.shadow and f"s{i}"))
        for i, o in enumerate(bound.outputs)
    )
    return Bound(text + tail, outputs, probe=bound.probe or limit == 0)


def _limits(node: exp.Expr) -> tuple[int | None, str]:
    """Return the LIMIT, and the text of LIMIT and OFFSET."""
    limit, offset = (_whole(node, arg) for arg in ("limit", "offset"))
    text = f" LIMIT {limit}" if limit is not None else ""
    return limit, text + (f" OFFSET {offset}" if offset is not None else "")


def _whole(node: exp.Expr, arg: str) -> int | None:
    clause = node.args.get(arg)
    if clause is None:
        return None
    options = clause.args.get("limit_options")
    if options and (options.args.get("percent") or options.args.get("with_ties")):
        raise NotSupportedError("LIMIT takes a number of rows", position=position(clause))
    value = clause.args.get("expression") or clause.args.get("count")
    while isinstance(value, exp.Paren):
        value = value.this
    if isinstance(value, exp.Null) or (isinstance(value, exp.Var) and value.name == "ALL"):
        return None
    if not (isinstance(value, exp.Literal) and value.name.isdigit() and len(value.name) < 19):
        raise TypeMismatchError(
            f"{arg.upper()} takes a whole number that is not negative",
            position=position(value if isinstance(value, exp.Expr) else clause),
        )
    return int(value.name)
