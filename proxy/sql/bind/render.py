"""A SELECT written out: columns and their provenances, ORDER BY, LIMIT, DISTINCT.

Invariant: each column that is a number as it stands has its provenance beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace
from sqlglot import exp

from proxy.errors import NotSupportedError, ProgrammingError, TypeMismatchError
from proxy.sql.bind.relations import BoundQuery, Output, beside_all, beside_columns, with_key
from proxy.sql.expression.aggregates import ordered
from proxy.sql.expression.faces import shown
from proxy.sql.expression.typed import TypedSql
from proxy.sql.parse.identifiers import name_of
from proxy.sql.parse.tree import position, refuse_constant


class Body(Struct, frozen=True):
    """The parts of a SELECT as DuckDB text."""

    source: str
    outputs: Sequence[Output]
    key: str  # tells rows apart
    where: str | None = None
    group: str | None = None
    having: str | None = None
    qualify: str | None = None
    ties: Sequence[str] = ()  # tie-breakers appended to ORDER BY


def render_select(node: exp.Expr, body: Body, lower: Callable[[exp.Expr], TypedSql]) -> BoundQuery:
    """Return a SELECT as text: its columns, then their provenances, in order, limited."""
    columns = [f"{output.typed.sql} AS c{i}" for i, output in enumerate(body.outputs)]
    traced = [i for i, output in enumerate(body.outputs) if output.typed.provenance]
    columns += [f"{body.outputs[i].typed.provenance} AS s{i}" for i in traced]
    columns = columns or ["1"]
    distinct = bool(node.args.get("distinct"))
    on = node.args["distinct"].args.get("on") if distinct else None
    distinct = distinct and on is None
    chosen = [_ordered(key, body.outputs, lower, False) for key in on.expressions] if on else []
    picked = f"DISTINCT ON ({', '.join(chosen)}) " if on else ""
    text = f"SELECT {picked}{', '.join(columns)}{beside_all(body.outputs, body.key)}"
    text += f" FROM {body.source}" if body.source else ""
    for word in ("where", "group", "having", "qualify"):
        clause = getattr(body, word)
        text += f" {'GROUP BY' if word == 'group' else word.upper()} {clause}" if clause else ""
    items = node.args["order"].expressions if node.args.get("order") else []
    keys = [_ordered(item.this, body.outputs, lower, distinct) for item in items]
    order = [ordered(key, item) for key, item in zip(keys, items, strict=True)]
    if (
        keys
        and (set(chosen) - set(keys) or not set(keys[: len(set(chosen))]) <= set(chosen))
        and on
    ):
        raise ProgrammingError(
            "SELECT DISTINCT ON expressions must match initial ORDER BY expressions",
            position=position(on),
        )
    if distinct:
        listed = ", ".join(f"c{i}" for i in range(len(body.outputs)))
        traces = [f"min(s{i}) AS s{i}" for i in traced]
        first = first_of(body.outputs)
        text = f"SELECT {', '.join([listed, *traces])}{first} FROM ({text}) GROUP BY {listed}"
    else:
        order += body.ties
    text += f" ORDER BY {', '.join(order)}" if order else ""
    limit, tail = _limits(node)
    return BoundQuery(shown(text) + tail, tuple(body.outputs), probe=limit == 0)


def identity(keys: Sequence[str]) -> str:
    """Return what tells the rows of a FROM clause apart, given what tells those of each item."""
    return f"hash({', '.join(keys) or '0'})"


def first_of(outputs: Sequence[Output]) -> str:
    """Return what stands beside the columns of one of several like rows."""
    names = beside_columns(outputs)[1:]
    return with_key("min(k)", (f"first({name} ORDER BY k) AS {name}" for name in names))


def _ordered(
    node: exp.Expr,
    outputs: Sequence[Output],
    lower: Callable[[exp.Expr], TypedSql],
    distinct: bool,
) -> str:
    """Return the text of an item of ORDER BY: an ordinal, an output column, or an expression."""
    at = output_at(node, outputs)
    if at is None:
        typed = lower(node)
        matching = [i for i, output in enumerate(outputs) if output.typed.sql == typed.sql]
        if not distinct:
            return typed.sql
        if not matching:
            raise ProgrammingError(
                "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
                position=position(node),
            )
        at = matching[0]
    return f"c{at}" if distinct else outputs[at].typed.sql


def output_at(node: exp.Expr, outputs: Sequence[Output]) -> int | None:
    """Return the index of the output that an item of ORDER BY names, by ordinal or by name."""
    refuse_constant(node, "ORDER BY")
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


def order_and_limit(bound: BoundQuery, node: exp.Expr) -> BoundQuery:
    """Return a query with the ORDER BY and LIMIT that stand after it as a whole."""
    order = []
    for item in node.args["order"].expressions if node.args.get("order") else ():
        at = output_at(item.this, bound.outputs)
        if at is None:
            raise NotSupportedError(
                "ORDER BY after UNION takes a column of the result, by name or number",
                position=position(item),
            )
        order.append(ordered(f"c{at}", item))
    limit, tail = _limits(node)
    text = f"SELECT * FROM ({bound.sql})" if order or tail else bound.sql
    text += f" ORDER BY {', '.join(order)}" if order else ""
    outputs = tuple(
        replace(o, typed=replace(o.typed, sql=f"c{i}", provenance=o.typed.provenance and f"s{i}"))
        for i, o in enumerate(bound.outputs)
    )  # a form keeps the number of its parts, which stand beside
    return replace(bound, sql=text + tail, outputs=outputs, probe=bound.probe or limit == 0)


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
        ties = options.args.get("with_ties")
        raise NotSupportedError(
            f"{'WITH TIES' if ties else 'PERCENT'} is not supported: LIMIT takes a number of rows",
            hint="rank() OVER (ORDER BY ...) in a subquery tells ties" if ties else None,
            position=position(clause),
        )
    value = clause.args.get("expression") or clause.args.get("count") or exp.Literal.number(1)
    while isinstance(value, exp.Paren) or (isinstance(value, exp.Cast) and _is_whole(value)):
        value = value.this
    if isinstance(value, exp.Null) or (isinstance(value, exp.Var) and value.name == "ALL"):
        return None
    digits = value.name if isinstance(value, exp.Literal) else ""
    digits = digits.removesuffix(".")  # a numeric that is whole
    if not (digits.isdigit() and len(digits) < 19):
        raise TypeMismatchError(
            f"{arg.upper()} takes a whole number that is not negative",
            position=position(value if isinstance(value, exp.Expr) else clause),
        )
    return int(digits)


def _is_whole(node: exp.Cast) -> bool:
    return node.to.is_type("smallint", "int", "bigint")
