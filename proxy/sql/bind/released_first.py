"""Results of the protected dataset that choose its rows: released first, then they are constants.

``WHERE town IN (SELECT town ... ORDER BY COUNT(*) DESC LIMIT 3)`` is two steps.  The inner query is
bound apart, as a statement of its own; until its rows are known, none stand for it, so that the
columns of the whole can be described.  With its rows it is as public as a list that is written out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from proxy.errors import NotSupportedError, StatementTooComplexError
from proxy.sql import types
from proxy.sql.bind.binding import Binding
from proxy.sql.bind.relations import BoundQuery, Env, Output, Scope
from proxy.sql.expression.typed import TypedSql
from proxy.sql.parse.tree import as_sql, position
from proxy.sql.program import Cell

MAX_ROWS = 1_000  # of a result that chooses rows


def released_first(binding: Binding, query: exp.Expr, scope: Scope) -> BoundQuery:
    """Return a query of the protected dataset as the constants that it gave.

    Raises:
        NotSupportedError: nothing may be released for this text.
        StatementTooComplexError: it gave too many rows.
    """
    if binding.released is None:
        raise NotSupportedError(
            "rows are not selected by a result of the protected dataset here",
            position=position(query),
        )
    apart = binding.apart()
    bound = apart.query(query.copy(), Scope(_unbound(scope.env), scope.request))
    binding.limit(apart.max_cost)
    key = _key(query, scope)
    rows = binding.released.get(key)
    if apart.first:
        binding.first.update(apart.first)
    elif rows is None:
        binding.first[key] = apart, bound
    if rows is not None and len(rows) > MAX_ROWS:
        raise StatementTooComplexError(
            f"a result that chooses rows has {len(rows):,} rows; {MAX_ROWS:,} are allowed",
            hint="ORDER BY and LIMIT take the first of them",
            position=position(query),
        )
    return _constants(bound.outputs, rows or ())


def _key(query: exp.Expr, scope: Scope) -> str:
    """Return what tells a query from the statement's others: its text, and what it may read."""
    env = {name: (as_sql(cte.node), *cte.columns, cte.request) for name, cte in scope.env.items()}
    return repr((as_sql(query), scope.request, sorted(env.items())))


def _unbound(env: Env) -> Env:
    """Return the same WITH queries for another binding."""
    return {name: replace(cte, env=_unbound(cte.env), relation=None) for name, cte in env.items()}


def _constants(outputs: Sequence[Output], rows: Sequence[Sequence[Cell]]) -> BoundQuery:
    """Return rows as a query."""
    kinds = [output.typed.type for output in outputs]
    width = range(len(kinds))
    listed = [
        ", ".join(types.literal(kind, value) for kind, value in zip(kinds, row, strict=True))
        for row in rows
    ]
    none = ", ".join(f"{types.literal(kind, None)} AS c{i}" for i, kind in enumerate(kinds))
    text = f"SELECT {none} WHERE FALSE"
    if listed:
        values = ", ".join(f"({each})" for each in listed)
        text = f"SELECT * FROM (VALUES {values}) AS v({', '.join(f'c{i}' for i in width)})"
    columns = [
        Output(output.name, TypedSql(f"c{i}", kind, width=output.typed.width))
        for i, (output, kind) in enumerate(zip(outputs, kinds, strict=True))
    ]
    return BoundQuery(text, tuple(columns), public=True)
