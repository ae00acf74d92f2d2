"""The clauses of one SELECT that name its output columns: the list itself, GROUP BY, QUALIFY."""

from __future__ import annotations

from sqlglot import exp

from proxy.errors import GroupingError, NotSupportedError
from proxy.sql.bind.binding import Binding
from proxy.sql.bind.from_clause import FromClause
from proxy.sql.bind.names import Names
from proxy.sql.bind.outer import PostAggregate
from proxy.sql.bind.relations import Output
from proxy.sql.bind.results import ResultExpressions
from proxy.sql.compile.moments import has_measure
from proxy.sql.expression.aggregates import aggregates
from proxy.sql.expression.intervals import without_months
from proxy.sql.expression.typed import TypedSql, coerce
from proxy.sql.parse.identifiers import name_of, output_name, quoted
from proxy.sql.parse.tree import as_sql, position, refuse_constant


def is_aggregated(node: exp.Expr) -> bool:
    """Return whether a SELECT aggregates: GROUP BY, HAVING, or an aggregate of its own."""
    order, qualify = node.args.get("order"), node.args.get("qualify")
    clauses = [
        *node.expressions,
        *(order.expressions if order else ()),
        *([qualify.this] if qualify else ()),
        *(node.args.get("windows") or ()),
    ]
    return bool(node.args.get("group") or node.args.get("having")) or any(
        next(aggregates(item), None) is not None for item in clauses
    )


def outputs(clause: FromClause, lowering: PostAggregate) -> list[Output]:
    """Return the columns of the result.

    Raises:
        NotSupportedError, GroupingError: * stands for protected rows, or for what is not grouped.
    """
    columns = []
    for item in clause.node.expressions:
        if item.is_star:
            if clause.protected is not None:
                raise refused(clause, lowering.binding)
            if isinstance(lowering, ResultExpressions) and lowering.keys is not None:
                raise GroupingError("* is not grouped", position=position(item))
            columns += [Output(name, typed) for name, typed in clause.names.all(item)]
            continue
        inner = item.this if isinstance(item, exp.Alias) else item
        typed = _settled(lowering.lower(inner))
        columns.append(Output(output_name(item, lowering.binding.text), typed))
    return columns


def _settled(value: TypedSql) -> TypedSql:
    """Return an output's value: an untyped literal is text, an interval one that is a length."""
    if value.type == "interval":
        return without_months(value)
    return coerce(value, "text") if value.type == "unknown" else value


def key(node: exp.Expr, item: exp.Expr, names: Names[TypedSql] | Names[exp.Expr]) -> exp.Expr:
    """Return the expression of an item of GROUP BY, which may be an ordinal or an alias.

    Raises:
        GroupingError, SQLSyntaxError: it is no ordinal of the list, or it has an aggregate.
    """
    refuse_constant(item, "GROUP BY")
    if isinstance(item, exp.Literal) and not item.is_string:
        at = int(item.name) if item.name.isdigit() else 0
        if not 1 <= at <= len(node.expressions):
            raise GroupingError(
                f"GROUP BY position {item.name} is not in select list", position=position(item)
            )
        item = node.expressions[at - 1]
        item = item.this if isinstance(item, exp.Alias) else item
    elif isinstance(item, exp.Column) and not item.args.get("table") and not names.find(item):
        # PostgreSQL: in GROUP BY an input column goes before an output column
        item = _aliased(node, item) or item
    if next(aggregates(item), None) is not None:
        raise GroupingError(
            "aggregate functions are not allowed in GROUP BY", position=position(item)
        )
    return item


def _aliased(node: exp.Expr, column: exp.Expr) -> exp.Expr | None:
    """Return the first expression of the list whose alias is the name of a column."""
    for item in node.expressions:
        if isinstance(item, exp.Alias) and name_of(item.args["alias"]) == name_of(column.this):
            aliased: exp.Expr = item.this
            return aliased
    return None


def qualified(clause: FromClause, lowering: PostAggregate) -> str | None:
    """Return QUALIFY, which may name output columns; None if there is none."""
    if not (qualify := clause.node.args.get("qualify")):
        return None
    condition = qualify.this.copy()
    for column in list(condition.find_all(exp.Column)):
        for item in clause.node.expressions:
            same = isinstance(item, exp.Alias) and name_of(item.args["alias"]) == name_of(
                column.this
            )
            if same and not column.args.get("table"):
                if column is condition:
                    condition = item.this.copy()
                else:
                    column.replace(exp.Paren(this=item.this.copy()))
    return lowering.boolean(condition, "QUALIFY").sql


def refused(clause: FromClause, binding: Binding) -> NotSupportedError:
    """Return the error for a list that would show protected rows; its hint aggregates them."""
    items = clause.node.expressions
    columns = [item.this if isinstance(item, exp.Alias) else item for item in items]
    plain = [c for c in columns if isinstance(c, exp.Column) and not c.is_star]
    resolver = clause.resolver(binding)
    sums = [c for c in plain if has_measure(resolver.resolve(c))]
    keys = ", ".join(as_sql(c) for c in plain if c not in sums)
    shown = [f"SUM({as_sql(c)})" for c in sums] or ["COUNT(*)"]
    form = f"SELECT {', '.join([keys] * bool(keys) + shown)} FROM {quoted(binding.policy.dataset)}"
    form += f" GROUP BY {keys}" if keys else ""
    return NotSupportedError(
        "the rows of a protected dataset are not shown, only aggregates of them",
        hint=f"ask for counts or sums, for example {form}",
        position=position(items[0]) if columns else None,
    )
