"""Queries, WITH and the items of FROM; a SELECT itself is bound by ``select``.

Everything inside an aggregation over the protected dataset becomes numbers of a release point;
everything outside of it becomes DuckDB text over the relations r0, r1, ... of those numbers.
Invariant: DuckDB sees generated names only.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace
from sqlglot import exp

from proxy.errors import NotSupportedError, UndefinedColumnError, UndefinedTableError
from proxy.sql.bind import tables
from proxy.sql.bind.binding import Binding
from proxy.sql.bind.relations import (
    BoundQuery,
    Cte,
    Env,
    Output,
    ProtectedRows,
    Relation,
    Scope,
    beside_all,
    columns_of,
    rename_columns,
)
from proxy.sql.bind.render import order_and_limit
from proxy.sql.bind.select import select
from proxy.sql.bind.set_operations import set_operation, values
from proxy.sql.bind.union_all import union_all
from proxy.sql.expression.faces import narrow, shown
from proxy.sql.parse.identifiers import name_of, nearest
from proxy.sql.parse.tree import as_sql, position
from proxy.sql.parse.utility_clause import Utility, limited, requests
from proxy.sql.parse.views import SCHEMA as TEMPORARY
from proxy.sql.program import Request

INLINE = 50_000  # characters of a WITH query of public rows that is written out where it is read


class Binder(Binding):
    """A binding with its recursion tied: subqueries are bound here again."""

    def apart(self) -> Binder:
        """Return a binder of another statement under the same policy."""
        return Binder(
            self.policy,
            self.evaluator,
            self.text,
            self.hide_empty,
            max_cost=self.max_cost,
            released=self.released,
            chosen=self.chosen,
        )

    # --- queries -----------------------------------------------------------------------------

    def query(self, node: exp.Expr, scope: Scope) -> BoundQuery:
        """Return a bound query.

        Raises:
            NotSupportedError: its form is not supported.
        """
        bound = self._bind(node, scope, False)
        assert isinstance(bound, BoundQuery)
        return bound

    def _bind(self, node: exp.Expr, scope: Scope, rows: bool) -> ProtectedRows | BoundQuery:
        """Return a bound query, or, where ``rows`` may be, the protected rows that it selects."""
        before = self.reads_protected
        clause = node.args.get("utility")
        named: Mapping[str, Request] = {}
        if isinstance(clause, Utility):
            request, named = requests(clause)
            self.limit(limited(clause))
            scope = replace(scope, request=request or scope.request)
        if node.args.get("with_"):
            scope = replace(scope, env=self._with(node.args["with_"], scope))
        if isinstance(node, exp.Subquery):
            tail = any(node.args.get(arg) for arg in ("order", "limit", "offset"))
            inner = self._bind(node.this, scope, rows and not tail)
            if isinstance(inner, ProtectedRows):
                return inner
            bound = order_and_limit(inner, node) if tail else inner
        elif isinstance(node, exp.Select):
            selected = select(self, node, scope, rows=rows)
            if isinstance(selected, ProtectedRows):
                return selected
            bound = selected
        elif isinstance(node, exp.SetOperation):
            sides = [self._bind(side, scope, rows) for side in (node.this, node.expression)]
            bounds = [side for side in sides if isinstance(side, BoundQuery)]
            if len(bounds) < len(sides):
                return union_all(self, sides, node)
            bound = order_and_limit(set_operation(node, bounds), node)
        elif isinstance(node, exp.Values):
            bound = values(self, node, scope)
        else:
            raise NotSupportedError(
                "a query begins with SELECT, WITH or VALUES", position=position(node)
            )
        for name, request in named.items():
            self._request(bound, name, request, clause)
        if self.reads_protected == before:  # nothing that noise moves
            return replace(bound, sql=narrow(bound.sql), public=True)
        return bound

    def _request(
        self, bound: BoundQuery, name: str, request: Request, clause: exp.Expr | None
    ) -> None:
        """Give the numbers of a named output their own request."""
        columns = [output for output in bound.outputs if output.name == name]
        if not columns:
            raise UndefinedColumnError(
                f'WITH UTILITY names the column "{name}", which is not in the select list',
                hint=nearest(name, [output.name for output in bound.outputs]),
                position=position(clause),
            )
        for point, number in {pair for output in columns for pair in output.typed.numbers}:
            numbers = self.points[point].numbers
            numbers[number] = replace(numbers[number], utility=request, named=True)

    def _with(self, node: exp.Expr, scope: Scope) -> Env:
        if node.args.get("recursive"):
            raise NotSupportedError("WITH RECURSIVE is not supported", position=position(node))
        env = dict(scope.env)
        for item in node.expressions:
            alias = item.args["alias"]
            names = [name_of(column) for column in alias.args.get("columns") or ()]
            env[name_of(alias.this)] = Cte(item.this, names, dict(env))
        return env

    # --- what FROM names ---------------------------------------------------------------------

    def source(self, node: exp.Expr, scope: Scope) -> tuple[str, ProtectedRows | Relation]:
        """Return the name and the meaning of an item of FROM."""
        alias = node.args.get("alias")
        names = [name_of(column) for column in alias.args.get("columns") or ()] if alias else []
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            name = name_of(alias.this) if alias and alias.this else name_of(node.this)
            item = self._table(node, scope)
        elif isinstance(node, exp.Table) and isinstance(node.this, exp.ExplodingGenerateSeries):
            name = name_of(alias.this) if alias and alias.this else "generate_series"
            item = tables.series(self, node.this, name)
        elif isinstance(node, exp.Unnest) and len(node.expressions) == 1:
            name = name_of(alias.this) if alias and alias.this else "unnest"
            item = self._listed(node, name, scope)
        elif isinstance(node, exp.Subquery | exp.Values):
            name = name_of(alias.this) if alias and alias.this else f"unnamed_{self.count}"
            item = self._inner(node, scope)
        else:
            raise NotSupportedError(
                f"FROM takes tables and subqueries, not {as_sql(node)[:60]}",
                position=position(node),
            )
        return name, rename_columns(item, names, node) if names else item

    def _listed(self, node: exp.Expr, name: str, scope: Scope) -> ProtectedRows | Relation:
        """Return unnest of a list that is written out."""
        (listed,) = node.expressions
        constant = isinstance(listed, exp.Array) and listed.find(exp.Column, exp.Query) is None
        if not constant or not listed.expressions or node.args.get("offset"):
            raise NotSupportedError(
                "unnest takes a list that is written out: unnest(ARRAY[1, 2])",
                position=position(node),
            )
        rows = [exp.Tuple(expressions=[item.copy()]) for item in listed.expressions]
        return rename_columns(self._inner(exp.Values(expressions=rows), scope), [name], node)

    def _inner(self, node: exp.Expr, scope: Scope) -> ProtectedRows | Relation:
        """Return a subquery of FROM as protected rows or as a relation."""
        bound = self._bind(node, scope, True)
        return bound if isinstance(bound, ProtectedRows) else self.relation(bound)

    def relation(self, bound: BoundQuery) -> Relation:
        """Return a bound query as an item of FROM."""
        name = self.fresh("t")
        columns = columns_of(name, bound.outputs)
        key = f"hash({name})" if bound.public else f"{name}.k"
        return Relation(f"({bound.sql}) AS {name}", columns, bound.public, key, bound.declared)

    def _table(self, node: exp.Expr, scope: Scope) -> ProtectedRows | Relation:
        name, schema = name_of(node.this), node.args.get("db")
        if (schema is None or name_of(schema) == TEMPORARY) and name in scope.env:
            return self._cte(scope.env[name], scope)
        if schema is not None and name_of(schema) == "privacy":
            return tables.system(self, name, node)
        if schema is None or name_of(schema) == "public":
            if name == self.policy.dataset:
                return tables.dataset(self.policy.domain, self.policy.privacy.unit)
            if name in self.policy.public:
                return tables.public(self, name)
        shown = f"{name_of(schema)}.{name}" if schema is not None else name
        raise UndefinedTableError(
            f'relation "{shown}" does not exist',
            hint=nearest(name, [self.policy.dataset, *self.policy.public, *scope.env]),
            position=position(node),
        )

    def _cte(self, cte: Cte, scope: Scope) -> ProtectedRows | Relation:
        if cte.relation is None:
            request = cte.request or scope.request
            inner = replace(scope, env=cte.env, request=request, outer=None)
            item = self._inner(cte.node, inner)
            if isinstance(item, ProtectedRows):
                return rename_columns(item, cte.columns, cte.node) if cte.columns else item
            name = self.fresh("w")
            provenances = [typed.provenance for _, typed in item.columns]
            picked = [f"{typed.sql} AS c{i}" for i, (_, typed) in enumerate(item.columns)]
            picked += [
                f"{provenance} AS s{i}" for i, provenance in enumerate(provenances) if provenance
            ]
            outputs = [Output(column, typed) for column, typed in item.columns]
            key = "" if item.public else beside_all(outputs, item.key)
            text = f"SELECT {', '.join(picked)}{key} FROM {item.text}"
            if item.public and len(text) <= INLINE:  # joins are worked out before the statement
                name = f"({narrow(text)})"
            else:
                self.withs.append(f"{name} AS ({shown(text)})")
            cte.relation = Relation(name, item.columns, item.public, declared=item.declared)
            self.ctes.append(cte)
        self.reads_protected += not cte.relation.public
        name = self.fresh("t")
        outputs = [Output(column, typed) for column, typed in cte.relation.columns]
        relation = Relation(
            f"{cte.relation.text} AS {name}",
            columns_of(name, outputs),
            cte.relation.public,
            f"hash({name})" if cte.relation.public else f"{name}.k",
            cte.relation.declared,
        )
        return rename_columns(relation, cte.columns, cte.node) if cte.columns else relation
