"""The FROM clause of one SELECT, its joins carried out: protected rows, or relations.

Protected rows are joined with public tables by ``joins``; results and public tables with one
another here, as DuckDB text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from sqlglot import exp

from proxy.errors import AmbiguousColumnError, GroupingError, NotSupportedError, SQLSyntaxError
from proxy.inference.query import MAX_CELLS
from proxy.sql.bind.binding import Binding
from proxy.sql.bind.joins import join_public
from proxy.sql.bind.names import Names
from proxy.sql.bind.protected_rows import ColumnResolver
from proxy.sql.bind.relations import ProtectedRows, Relation, Scope, columns_of
from proxy.sql.bind.released_first import released_first
from proxy.sql.bind.results import ResultExpressions
from proxy.sql.compile.coefficients import Coefficients
from proxy.sql.compile.columns import PerBranch, at_branch
from proxy.sql.expression.aggregates import aggregates
from proxy.sql.expression.typed import TypedSql, unify
from proxy.sql.parse.identifiers import name_of
from proxy.sql.parse.tree import conjuncts, position


class FromClause(Struct, frozen=True):
    """The input of one SELECT: protected rows, or the columns and the text of relations."""

    node: exp.Expr  # the SELECT
    scope: Scope
    protected: ProtectedRows | None = None
    names: Names[TypedSql] = field(default_factory=Names)
    text: str = ""
    keys: tuple[str, ...] = ()  # what tells the rows of each relation apart
    first: tuple[str, Relation] | None = None  # the first item, where it is a relation
    declared: str = ""  # the notice that is due where its rows are counted

    def resolver(self, binding: Binding) -> ColumnResolver:
        """Return the columns of the protected rows."""
        assert self.protected is not None
        return ColumnResolver(binding, self.protected, self.scope)

    def conditions(self, binding: Binding) -> tuple[exp.Expr, ...]:
        """Return WHERE, resolved, after the conditions of the protected rows.

        Raises:
            GroupingError: it has an aggregate.
        """
        assert self.protected is not None
        where = self.node.args.get("where")
        if where is None:
            return self.protected.where
        if (aggregate := next(aggregates(where.this), None)) is not None:
            raise GroupingError(
                "aggregate functions are not allowed in WHERE",
                hint="HAVING filters by aggregates",
                position=position(aggregate),
            )
        return (*self.protected.where, self.resolver(binding).resolve(where.this))

    def single(self, binding: Binding) -> FromClause:
        """Return the same rows without branches, if no record makes more than one of them.

        A column that differs between them is then the one of the branch that the record is in.
        """
        rows = self.protected
        assert rows is not None
        conditions = self.conditions(binding)
        branches = [[at_branch(each, k) for each in conditions] for k in range(rows.branches)]
        if not _disjoint(binding.coefficients, branches):
            return self
        wheres = [exp.and_(*(each.copy() for each in branch)) for branch in branches]

        def one(meaning: exp.Expr) -> exp.Expr:
            """Return the meaning in the branch that there is."""
            if meaning.find(PerBranch) is None:
                return meaning
            case = exp.Case()
            for k, where in enumerate(wheres):
                case = case.when(where.copy(), at_branch(meaning, k).copy())
            return case

        names = Names(
            {t: [(c, one(m)) for c, m in listed] for t, listed in rows.names.tables.items()},
            {column: one(meaning) for column, meaning in rows.names.merged.items()},
        )
        node = self.node.copy()
        node.set("where", None)  # it is in the conditions
        where = exp.or_(*(each.copy() for each in wheres))
        merged = ProtectedRows(names, (where,), unit=rows.unit)
        return replace(self, node=node, protected=merged)


def _disjoint(coefficients: Coefficients, branches: Sequence[Sequence[exp.Expr]]) -> bool:
    """Return whether no cell satisfies the conditions of more than one branch."""
    terms = [
        [coefficients.indicator(p, "WHERE") for each in branch for p in conjuncts(each)]
        for branch in branches
    ]
    axes = tuple(sorted({axis for term in terms for factor in term for axis in factor.axes}))
    sizes = [coefficients.domain.sizes[axis] for axis in axes]
    if math.prod(sizes) > MAX_CELLS:
        return False
    total = np.zeros(sizes, dtype=np.int64)
    for term in terms:
        total += math.prod((factor.over(axes) for factor in term), start=np.ones(sizes, np.int64))
    return bool(total.max() <= 1)


def from_clause(binding: Binding, node: exp.Expr, scope: Scope) -> FromClause:
    """Return the FROM clause of a SELECT.

    Raises:
        SQLSyntaxError: a join lacks its condition.
        NotSupportedError: protected rows are joined with one another, or with a result.
    """
    clause = FromClause(node, scope)
    source = node.args.get("from_")
    if source is None:
        return clause
    start = binding.mark()
    name, item = binding.source(source.this, scope)
    if isinstance(item, ProtectedRows):
        clause = replace(clause, protected=_named(item, name))
    else:
        clause = _beginning(clause, name, item)
    for join in node.args.get("joins") or ():
        comma = "pivots" not in join.args  # sqlglot tells the two apart by nothing else
        free = comma or join.args.get("kind") == "CROSS" or join.args.get("method")
        if not (free or join.args.get("on") or join.args.get("using")):
            raise SQLSyntaxError(
                "JOIN lacks its condition: ON or USING",
                hint="CROSS JOIN, or a comma, pairs every row with every other",
                position=position(join.this),
            )
        here = binding.mark()
        name, item = binding.source(join.this, scope)
        if isinstance(item, Relation) and clause.protected is not None and not item.public:
            binding.back_to(here)
            item = _released(binding, join.this, item, scope)
        elif isinstance(item, ProtectedRows) and clause.first and not clause.first[1].public:
            binding.back_to(start)
            first, relation = clause.first
            relation = _released(binding, source.this, relation, scope)
            if len(clause.names.tables) == 1:
                clause = _beginning(clause, first, relation)
            name, item = binding.source(join.this, scope)
        clause = _join(binding, clause, join, name, item)
    return clause


def _beginning(clause: FromClause, name: str, item: Relation) -> FromClause:
    """Return a FROM clause that begins with a relation."""
    names = Names({name: item.columns})
    keys = (item.key,)
    first, declared = (name, item), item.declared
    return replace(clause, names=names, text=item.text, keys=keys, first=first, declared=declared)


def _released(binding: Binding, node: exp.Expr, item: Relation, scope: Scope) -> Relation:
    """Return a result that protected rows are joined with as the constants that it gave."""
    query = node.this if isinstance(node, exp.Subquery) else None
    if query is None:
        table = node.copy()
        table.set("alias", None)
        query = exp.select("*").from_(table)
    bound = released_first(binding, query, scope)
    name = binding.fresh("t")
    outputs = [replace(o, name=c) for o, (c, _) in zip(bound.outputs, item.columns, strict=True)]
    text = f"({bound.sql}) AS {name}"
    return Relation(text, columns_of(name, outputs), public=True, key=f"hash({name})")


def _named(rows: ProtectedRows, name: str) -> ProtectedRows:
    unit = rows.unit and (name, rows.unit[1])
    return replace(rows, names=Names({name: rows.names.tables[""]}), unit=unit)


def _join(
    binding: Binding, clause: FromClause, join: exp.Expr, name: str, item: ProtectedRows | Relation
) -> FromClause:
    """Return a FROM clause with one more item."""
    where = clause.node.args.get("where")
    condition = where and where.this
    if isinstance(item, ProtectedRows):
        if clause.protected is not None or len(clause.names.tables) != 1:
            raise NotSupportedError(
                "protected rows are not joined with one another, or with a result",
                hint="aggregate the dataset in subqueries first, then join the results; public "
                "tables go after the dataset: FROM dataset JOIN table ON ...",
                position=position(join),
            )
        if name in clause.names.tables:
            raise _taken(name, join)
        rows = _named(item, name)
        resolver = ColumnResolver(binding, rows, clause.scope)
        assert clause.first is not None
        protected = join_public(resolver, rows, clause.first, join, condition, first=True)
        return replace(clause, protected=protected, names=Names(), text="")
    if clause.protected is not None:
        if name in clause.protected.names.tables:
            raise _taken(name, join)
        resolver = clause.resolver(binding)
        protected = join_public(resolver, clause.protected, (name, item), join, condition)
        return replace(clause, protected=protected)
    return _join_results(binding, clause, join, name, item)


def _join_results(
    binding: Binding, clause: FromClause, join: exp.Expr, name: str, relation: Relation
) -> FromClause:
    """Return a FROM clause of relations with one more relation."""
    side, kind = join.args.get("side") or "", join.args.get("kind") or ""
    allowed = {"this", "side", "kind", "on", "using"}
    if any(value and arg not in allowed for arg, value in join.args.items()):
        raise NotSupportedError("this JOIN is not supported", position=position(join))
    if side not in ("", "LEFT", "RIGHT", "FULL") or kind not in ("", "INNER", "OUTER", "CROSS"):
        raise NotSupportedError(f"{side} {kind} JOIN is not supported", position=position(join))
    left = clause.names
    names = Names(dict(left.tables), dict(left.merged))
    names.add(name, relation.columns, join.this)
    lowering = ResultExpressions(binding, names, clause.scope)
    conditions = []
    if join.args.get("on"):
        conditions.append(lowering.boolean(join.args["on"], "JOIN/ON").sql)
    for identifier in join.args.get("using") or ():
        column = exp.Column(this=identifier.copy())
        one, two = left.find(column), Names({name: relation.columns}).find(column)
        if one is None or two is None:
            raise (names if one is None else Names({name: relation.columns})).unknown(column)
        a, b = unify([one, two], "JOIN/USING")
        conditions.append(f"{a.sql} = {b.sql}")
        names.merged[name_of(identifier)] = _merged(side, a, b)
    text = f" CROSS JOIN {relation.text}"
    if conditions:
        text = f" {side or 'INNER'} JOIN {relation.text} ON ({' AND '.join(conditions)})"
    keys = (*clause.keys, relation.key)
    declared = clause.declared or relation.declared
    return replace(clause, names=names, text=clause.text + text, keys=keys, declared=declared)


def _merged(side: str, left: TypedSql, right: TypedSql) -> TypedSql:
    """Return a column of USING: of the side whose rows are all kept."""
    if side in ("", "LEFT"):
        return left
    if side == "RIGHT":
        return right
    text = f"COALESCE({left.sql}, {right.sql})"
    chance = max(left.chance, right.chance)
    return replace(left, sql=text, provenance=None, chance=chance, form=None)


def _taken(name: str, node: exp.Expr) -> AmbiguousColumnError:
    return AmbiguousColumnError(
        f'table name "{name}" specified more than once', position=position(node)
    )
