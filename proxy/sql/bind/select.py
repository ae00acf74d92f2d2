"""One SELECT, over protected rows or over results.

Over protected rows an aggregation is a release point (``aggregation``), a plain selection a
relation of rows that an outer query may aggregate; over results it is ordinary SQL (``results``).
"""

from __future__ import annotations

from msgspec.structs import replace
from sqlglot import exp

from proxy.errors import NotSupportedError
from proxy.sql.bind import declared_rows, select_list
from proxy.sql.bind.aggregation import bind_release
from proxy.sql.bind.binding import Binding
from proxy.sql.bind.from_clause import FromClause, from_clause
from proxy.sql.bind.grouping_sets import grouping_sets
from proxy.sql.bind.names import Names
from proxy.sql.bind.relations import BoundQuery, Output, ProtectedRows, Scope, beside_all
from proxy.sql.bind.render import Body, identity, render_select
from proxy.sql.bind.results import ResultExpressions
from proxy.sql.expression.typed import TypedSql
from proxy.sql.parse.identifiers import output_name
from proxy.sql.parse.tree import position


def select(
    binding: Binding, node: exp.Select, scope: Scope, *, rows: bool = False
) -> ProtectedRows | BoundQuery:
    """Return a bound SELECT, or, where ``rows`` may be, the protected rows that it selects.

    Raises:
        NotSupportedError: protected rows would be shown.
    """
    distinct = node.args.get("distinct")
    clause = from_clause(binding, node, scope)
    on = distinct is not None and distinct.args.get("on")
    if on and clause.protected is not None and not select_list.is_aggregated(node):
        raise NotSupportedError(
            "DISTINCT ON chooses among results, not among protected rows",
            hint="aggregate in a subquery first, with GROUP BY",
            position=position(distinct),
        )
    if clause.protected is None:
        return _over_results(binding, clause)
    if select_list.is_aggregated(node):
        return bind_release(binding, clause)
    if rows and not any(node.args.get(arg) for arg in ("distinct", "limit", "offset", "qualify")):
        return _rows(binding, clause)
    return bind_release(binding, clause) if distinct else _no_rows(binding, clause)


def _rows(binding: Binding, clause: FromClause) -> ProtectedRows:
    """Return the protected rows that a SELECT without aggregates selects."""
    assert clause.protected is not None
    columns: list[tuple[str, exp.Expr]] = []
    for item in clause.node.expressions:
        if item.is_star:
            columns += [(n, m.copy()) for n, m in clause.protected.names.all(item)]
            continue
        if item.find(exp.Window):
            raise NotSupportedError(
                "window functions run over results, not over protected rows",
                hint="aggregate first: SUM(COUNT(*)) OVER (...) with GROUP BY",
                position=position(item),
            )
        inner = item.this if isinstance(item, exp.Alias) else item
        columns.append((output_name(item, binding.text), clause.resolver(binding).resolve(inner)))
    where = clause.conditions(binding)
    whole = any(item.is_star for item in clause.node.expressions)
    unit = clause.protected.unit if whole else None
    return replace(clause.protected, names=Names({"": columns}), where=where, unit=unit)


def _no_rows(binding: Binding, clause: FromClause) -> BoundQuery:
    """Return the columns of a SELECT without rows (WHERE FALSE, LIMIT 0), or refuse it."""
    rows = _rows(binding, clause)
    limit = clause.node.args.get("limit")
    none = limit is not None and limit.args.get("expression") == exp.Literal.number(0)
    if none or binding.never(rows.where):
        outputs = [Output(name, binding.kind_of(m)) for name, m in rows.names.tables[""]]
        columns = ", ".join(f"{o.typed.sql} AS c{i}" for i, o in enumerate(outputs))
        text = f"SELECT {columns}{beside_all(outputs, '0')} WHERE FALSE"
        return BoundQuery(text, tuple(outputs), probe=True)
    raise select_list.refused(clause, binding)


def _over_results(binding: Binding, clause: FromClause) -> BoundQuery:
    """Return a SELECT of results and public tables, which is ordinary SQL."""
    node = clause.node
    plain = ResultExpressions(binding, clause.names, clause.scope)
    where = node.args.get("where")
    condition = plain.boolean(where.this, "WHERE") if where else None
    declared = "" if condition and condition.chance else clause.declared
    keys, group = _grouping(node, plain) if select_list.is_aggregated(node) else (None, None)
    key = identity(clause.keys)
    if keys is not None:  # of the first of its rows, in each grouping set
        sets = f", grouping({', '.join(typed.sql for typed in keys)})" if keys else ""
        key = f"hash(min({key}){sets})"
    windows = node.args.get("windows") or ()
    lowering = ResultExpressions(binding, clause.names, clause.scope, keys, windows)
    outputs = select_list.outputs(clause, lowering)
    having = node.args.get("having")
    body = Body(
        clause.text,
        outputs,
        key,
        condition.sql if condition else None,
        group,
        lowering.boolean(having.this, "HAVING").sql if having else None,
        select_list.qualified(clause, lowering),
    )
    bound = render_select(node, body, lowering.lower)
    if declared and declared_rows.counted(node):
        declared_rows.tell(binding, declared)
        declared = ""
    return replace(bound, declared=declared if keys != [] else "")


def _grouping(node: exp.Expr, plain: ResultExpressions) -> tuple[list[TypedSql], str | None]:
    """Return the grouping expressions of results, and the text of GROUP BY."""
    group = node.args.get("group")
    if group is None:
        return [], None
    sets = grouping_sets(group)
    keys: list[TypedSql] = []
    listed = []
    for each in sets:
        texts = []
        for item in each:
            typed = plain.lower(select_list.key(node, item, plain.names))
            if all(other.sql != typed.sql for other in keys):
                keys.append(typed)
            texts.append(typed.sql)
        listed.append(f"({', '.join(texts)})")
    if len(sets) == 1:
        return keys, ", ".join(typed.sql for typed in keys) or "()"
    return keys, f"GROUPING SETS ({', '.join(listed)})"
