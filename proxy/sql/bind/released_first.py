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
from proxy.sql.bind.binding import Binding, Chosen
from proxy.sql.bind.relations import BoundQuery, Cte, Env, Output, Scope
from proxy.sql.expression.faces import without_marks
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
    key = _key(query, scope)
    if key not in binding.chosen:
        binding.chosen[key] = _chosen(binding, query, scope, key)
    chosen = binding.chosen[key]
    binding.limit(chosen.max_cost)
    binding.first.update(chosen.first)
    return chosen.bound


def _chosen(binding: Binding, query: exp.Expr, scope: Scope, key: str) -> Chosen:
    apart = binding.apart()
    bound = apart.query(query.copy(), Scope(_unbound(scope.env, {}), scope.request))
    rows = (binding.released or {}).get(key)
    first = dict(apart.first)
    if not first and rows is None:
        first[key] = apart, bound
    if rows is not None and len(rows) > MAX_ROWS:
        raise StatementTooComplexError(
            f"a result that chooses rows has {len(rows):,} rows; {MAX_ROWS:,} are allowed",
            hint="ORDER BY and LIMIT take the first of them",
            position=position(query),
        )
    return Chosen(_constants(bound.outputs, rows or ()), first, apart.max_cost)


def _key(query: exp.Expr, scope: Scope) -> str:
    """Return what tells a query from the statement's others: its text, and what it may read."""
    env = sorted((name, cte.meaning) for name, cte in scope.env.items())
    return repr((as_sql(query), scope.request, env))


def _unbound(env: Env, made: dict[int, Cte]) -> Env:
    """Return the same WITH queries for another binding; ``made`` has those that are, by id."""
    for cte in env.values():
        if id(cte) not in made:
            made[id(cte)] = replace(cte, env=_unbound(cte.env, made), relation=None)
    return {name: made[id(cte)] for name, cte in env.items()}


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
    return BoundQuery(without_marks(text), tuple(columns), public=True)
