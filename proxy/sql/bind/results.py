"""Expressions over results: columns of relations, aggregates of results, windows, subqueries.

Nothing here meets protected rows: it is ordinary SQL on released numbers and public tables, written
out for DuckDB with generated names.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from msgspec.structs import replace
from sqlglot import exp

from proxy.errors import GroupingError, NotSupportedError
from proxy.sql.bind.binding import Binding
from proxy.sql.bind.names import Names
from proxy.sql.bind.outer import PostAggregate
from proxy.sql.bind.relations import Scope
from proxy.sql.expression import forms
from proxy.sql.expression.aggregates import (
    AGGREGATE,
    COLUMN,
    QUERY,
    WINDOW,
    aggregate,
    coerce_result,
    is_aggregate,
)
from proxy.sql.expression.faces import drawn, shown, twofold
from proxy.sql.expression.typed import TypedSql, combine
from proxy.sql.parse.identifiers import name_of
from proxy.sql.parse.tree import position


class ResultExpressions(PostAggregate):
    """Expressions over the columns of relations; with ``keys``, after a GROUP BY of these."""

    def __init__(
        self,
        binding: Binding,
        names: Names[TypedSql],
        scope: Scope,
        keys: Sequence[TypedSql] | None = None,
        windows: Sequence[exp.Expr] = (),
    ) -> None:
        super().__init__(binding, scope, windows)
        self.names = names
        self.keys = keys

    @cached_property
    def _below(self) -> ResultExpressions:
        """The expressions of rows, before the GROUP BY."""
        return _Rows(self.binding, self.names, self.scope)

    def visible(self) -> Names[TypedSql] | None:
        """Return the columns that a subquery sees: these, and those of outer queries."""
        outer = self.scope.outer
        tables = {**(outer.tables if outer else {}), **self.names.tables}
        return Names(tables, self.names.merged)

    def column(self, node: exp.Expr) -> TypedSql:
        """Return a column."""
        if isinstance(node.this, exp.Star):
            raise NotSupportedError("* is not supported here", position=position(node))
        typed = self._own(node)
        if typed is None and self.scope.outer is not None:
            typed = self.scope.outer.find(node)
        if typed is None:
            if (far := self.scope.unreachable(node)) is not None:
                raise far
            if node.args.get("table") is not None:
                self.names.find(node)  # raises: there is no such table
            raise self.names.unknown(node)
        return typed

    def _own(self, node: exp.Expr) -> TypedSql | None:
        """Return a column of this FROM clause, None if it is one of an outer query."""
        table = node.args.get("table")
        here = table is None or name_of(table) in self.names.tables
        return self.names.find(node) if here else None

    def special_case(self, node: exp.Expr) -> TypedSql | None:
        """Return an aggregate or a key, after GROUP BY."""
        if self.keys is None:
            if is_aggregate(node):
                raise GroupingError(
                    "aggregate functions are not allowed here", position=position(node)
                )
            return super().special_case(node)
        if is_aggregate(node):
            plain = ResultExpressions(self.binding, self.names, self.scope)
            value = aggregate(node, plain.lower)
            value = replace(value, form=forms.over(value.form))
            return coerce_result(value, value.sql)
        if isinstance(node, exp.Grouping):
            plain = ResultExpressions(self.binding, self.names, self.scope)
            parts = [plain.lower(item) for item in node.expressions]
            return combine(
                f"CAST(grouping({', '.join(p.sql for p in parts)}) AS INTEGER)", "integer"
            )
        alone = not self.contents.has(node, WINDOW | QUERY | AGGREGATE)
        if alone and self.contents.has(node, COLUMN):
            typed = self._below.lower(node)
            if any(key.sql == typed.sql for key in self.keys):
                return _grouped(typed)
            if isinstance(node, exp.Column) and self._own(node) is not None:
                raise ungrouped(node)
        return super().special_case(node)


class _Rows(ResultExpressions):
    """Expressions of rows whose parts are asked for again, and kept."""

    def __init__(self, binding: Binding, names: Names[TypedSql], scope: Scope) -> None:
        super().__init__(binding, names, scope)
        self._known: dict[int, tuple[exp.Expr | None, TypedSql, int]] = {}

    def lower(self, node: exp.Expr | None) -> TypedSql:
        """Return the translation of an expression; its constants count each time."""
        if id(node) not in self._known:
            before = self.binding.constants
            typed = super().lower(node)
            self._known[id(node)] = node, typed, self.binding.constants - before
            return typed
        _, typed, constants = self._known[id(node)]
        self.binding.constants += constants
        return typed


def _grouped(key: TypedSql) -> TypedSql:
    """Return a key after GROUP BY.  Groups are of what is shown: of several numbers it is one."""
    if not key.chance:
        return key
    sql = shown(key.sql)

    def one(text: str) -> str:
        return f"CASE WHEN {sql} IS NOT NULL THEN first({text} ORDER BY {order}) END"

    order = key.provenance or sql
    form = key.form and replace(key.form, parts=tuple(map(one, key.form.parts)))
    if form and form.kind == "drawn":
        form = None
    provenance = key.provenance and one(key.provenance)
    face = twofold(sql, one(drawn(key.sql)))
    return replace(key, sql=face, provenance=provenance, form=form)


def ungrouped(node: exp.Expr) -> GroupingError:
    """Return the error for a column that is neither grouped nor aggregated."""
    return GroupingError(
        f'column "{name_of(node.this)}" must appear in the GROUP BY clause or be used in an '
        "aggregate function",
        position=position(node),
    )
