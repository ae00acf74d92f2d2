"""The SELECT of a release point: its expressions as numbers, groups, or functions of these.

The largest linear combinations of aggregates become single numbers; every other function of
aggregates is computed from numbers.  Invariant: after binding, nothing but group columns and
numbers of the relation is left in the text.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from sqlglot import exp

from proxy.errors import GroupingError, NotSupportedError, ProgrammingError
from proxy.sql import types
from proxy.sql.bind import declared_rows, select_list
from proxy.sql.bind.binding import Binding
from proxy.sql.bind.claims import claim, not_one_number
from proxy.sql.bind.derived import Marginals
from proxy.sql.bind.from_clause import FromClause
from proxy.sql.bind.grouping_sets import grouping_sets
from proxy.sql.bind.linear_combinations import Combinations, scaled_inside
from proxy.sql.bind.names import Names
from proxy.sql.bind.outer import PostAggregate
from proxy.sql.bind.relations import BoundQuery
from proxy.sql.bind.render import Body, identity, render_select
from proxy.sql.bind.results import ungrouped
from proxy.sql.compile.columns import PerBranch
from proxy.sql.compile.domain_lowering import DomainLowering, KnownLowering
from proxy.sql.compile.groups import Key
from proxy.sql.compile.linear import Average, Linear
from proxy.sql.compile.release_point import ReleasePoint
from proxy.sql.expression import forms
from proxy.sql.expression.aggregates import (
    AGGREGATE,
    COLUMN,
    OTHER_AGGREGATES,
    QUERY,
    WINDOW,
    aggregates,
    both_arguments,
    is_aggregate,
    only_argument,
)
from proxy.sql.expression.casts import cast
from proxy.sql.expression.faces import beside, twofold
from proxy.sql.expression.typed import SMOOTH, TypedSql
from proxy.sql.parse.identifiers import output_name
from proxy.sql.parse.tree import position
from proxy.sql.provenance import pack


def bind_release(binding: Binding, clause: FromClause) -> BoundQuery:
    """Return the bound query of a release point."""
    lowering = AggregateExpressions(binding, clause)
    node = clause.node
    outputs = select_list.outputs(clause, lowering)
    having = node.args.get("having")
    condition = lowering.boolean(having.this, "HAVING") if having else None
    kept = condition.sql if condition else None
    body = Body(
        lowering.relation,
        outputs,
        identity(lowering.ties),
        where=kept,
        qualify=select_list.qualified(clause, lowering),
        ties=lowering.ties,
    )
    bound = render_select(node, body, lowering.lower)
    lowering.finish()
    if binding.hide_empty and (hidden := lowering.empty()):
        kept = f"({kept}) AND NOT {hidden}" if kept else f"NOT {hidden}"
        return render_select(node, replace(body, where=kept), lowering.lower)
    if not lowering.keys or bound.probe or (condition and condition.chance):
        return bound
    declared = declared_rows.notice(lowering.keys, lowering.columns())
    numbers = any(p.numbers for p in lowering.points) or any(o.typed.chance for o in outputs)
    if numbers and not declared_rows.counted(node, windows_only=True):
        return replace(bound, declared=declared)
    declared_rows.tell(binding, declared)
    return bound


class AggregateExpressions(PostAggregate):
    """Expressions outside the aggregates of a release point: over its groups and numbers."""

    def __init__(self, binding: Binding, clause: FromClause) -> None:
        super().__init__(binding, clause.scope, clause.node.args.get("windows") or ())
        self.node = clause.node
        self.resolver = clause.resolver(binding)
        if clause.protected and clause.protected.branches > 1 and self._by_branch():
            clause = clause.single(binding)
            self.node, self.resolver = clause.node, clause.resolver(binding)
        self.where = clause.conditions(binding)
        self.branches = clause.protected.branches if clause.protected else 1
        self.keys, sets = self._keys()
        self.points = [self._point([self.keys[i] for i in each]) for each in sets]
        self.sets = sets
        one = len(sets) == 1
        self.relation = self.points[0].name if one else self.binding.fresh("u")
        self.ties = [f"{self.relation}.i"] if one else [f"{self.relation}.s", f"{self.relation}.i"]
        self._linear = Combinations(self.aggregate)
        self._lowered = KnownLowering(DomainLowering(binding.policy.domain))
        # nodes are kept alive, so that no other gets the id of one
        self._parts: dict[int, tuple[exp.Expr, exp.Expr]] = {}  # resolved
        self._aggregates: dict[int, tuple[exp.Expr, Linear | Average | None]] = {}
        self._marginals = Marginals(
            binding, self.resolver, self.points, self.keys, self.relation, self.scope.request
        )

    def columns(self) -> set[str]:
        """Return the names of the columns of the rows."""
        names = self.resolver.names
        return {name for columns in names.tables.values() for name, _ in columns} | {*names.merged}

    def _point(self, keys: Sequence[Key]) -> ReleasePoint:
        point = self.binding.add(self.where, keys, bool(keys), self.branches)
        point.filters  # noqa: B018  # what is wrong with WHERE is said before what follows it
        return point

    def _sets(self) -> Sequence[Sequence[exp.Expr]]:
        """Return the grouping sets."""
        node = self.node
        group = node.args.get("group")
        if group is not None:
            return grouping_sets(group)
        if node.args.get("distinct") and not select_list.is_aggregated(node):
            return [[i.this if isinstance(i, exp.Alias) else i for i in self._starless()]]
        return [[]]

    def _by_branch(self) -> bool:
        """Return whether a grouping expression differs between branches."""
        return any(
            self._resolved(item).find(PerBranch) is not None
            for each in self._sets()
            for item in each
        )

    def _resolved(self, item: exp.Expr) -> exp.Expr:
        return self.resolver.resolve(select_list.key(self.node, item, self.resolver.names))

    def _keys(self) -> tuple[list[Key], list[list[int]]]:
        """Return the grouping expressions and the grouping sets, as indices of these."""
        keys: list[Key] = []
        indices: list[list[int]] = []
        for each in self._sets():
            members: list[int] = []
            for item in each:
                at = self._key(item, keys)
                if at is not None and at not in members:
                    members.append(at)
            indices.append(sorted(members))
        return keys, indices

    def _starless(self) -> list[exp.Expr]:
        items = self.node.expressions
        if any(item.is_star for item in items):
            raise NotSupportedError(
                "SELECT DISTINCT * would list the whole domain; name the columns",
                position=position(items[0]),
            )
        return list(items)

    def _key(self, item: exp.Expr, keys: list[Key]) -> int | None:
        """Return the index of a grouping expression, None for a constant."""
        item = select_list.key(self.node, item, self.resolver.names)
        node = self.resolver.resolve(item)
        typed = self.binding.coefficients.lower(node)
        if not typed.axes:
            return None  # a constant groups nothing
        for index, key in enumerate(keys):
            if key.typed.sql == typed.sql:
                return index
        keys.append(Key(output_name(item, self.binding.text), node, typed))
        return len(keys) - 1

    # --- translation -------------------------------------------------------------------------

    def special_case(self, node: exp.Expr) -> TypedSql | None:
        """Return a group column, a number, or a function of windows and subqueries."""
        if isinstance(node, exp.Grouping):
            return self._grouping(node)
        if isinstance(node, exp.Anonymous) and node.name.lower() in OTHER_AGGREGATES:
            return self._companion(node)
        if isinstance(node, exp.Window | exp.Subquery | exp.Exists) or node.args.get("query"):
            return super().special_case(node)
        if not scaled_inside(node):
            combination = self._linear.of(node)
            if combination is not None and combination.query is not None:
                return self._announced(combination, node)
        if is_aggregate(node):
            return self._nonlinear(node)
        if self.contents.has(node, AGGREGATE | WINDOW | QUERY):
            return None
        if self.contents.has(node, COLUMN):
            return self._group(node)
        return self.constant(node)

    def _group(self, node: exp.Expr) -> TypedSql | None:
        if id(node) not in self._parts:
            self.resolver.resolve(node, self._parts)
        typed = self._lowered.lower(self._parts[id(node)][1])
        for index, key in enumerate(self.keys):
            if key.typed.sql == typed.sql:
                return TypedSql(f"{self.relation}.g{index}", typed.type, scale=typed.scale)
        if not typed.axes:
            return typed  # a public constant
        return None

    def beyond(self) -> Names[exp.Expr] | None:
        """Return the columns of the rows, which no subquery reads."""
        return self.resolver.names

    def column(self, node: exp.Expr) -> TypedSql:
        """Refuse a column that is not grouped."""
        raise ungrouped(node)

    def number(self, what: Linear | Average, node: exp.Expr) -> TypedSql:
        """Add a number to every grouping set, and return its column."""
        indices = {point.add(what, node, self.scope.request) for point in self.points}
        (index,) = indices  # all points have the same numbers
        ids = frozenset((point.index, index) for point in self.points)
        provenance = f"{self.relation}.x{index}"
        if len(self.points) == 1:
            provenance = pack(self.points[0].index, index, self.relation)
        text = twofold(f"{self.relation}.n{index}", f"{self.relation}.m{index}")
        scale = self.points[0].numbers[index].scale
        if what.type in ("smallint", "integer"):  # it is stored as a bigint
            text = f"CAST({text} AS {types.DUCKDB[what.type]})"
        return TypedSql(
            text,
            what.type,
            numbers=ids,
            provenance=provenance,
            number=index,
            scale=scale,
            chance=SMOOTH,
            form=forms.number(provenance),
        )

    def _announced(self, combination: Linear, node: exp.Expr) -> TypedSql:
        """Return a number, of the type that a cast gives it."""
        outer = node
        while isinstance(outer, exp.Paren):
            outer = outer.this
        if not isinstance(outer, exp.Cast) or combination.type in types.FLOATS:
            return self.number(combination, node)
        inner = self._linear.of(outer.this)
        number = self.number(inner or combination, node)
        typed = cast(number, combination.type)
        return replace(typed, provenance=number.provenance, form=number.form)

    def measured(self, node: exp.Expr) -> Linear | Average | None:
        """Return what a node is: a linear combination, a constant, an average; None of others."""
        return self._linear.of(node) or (self.aggregate(node) if is_aggregate(node) else None)

    def _companion(self, node: exp.Expr) -> TypedSql:
        """Return CREDIBLE_LOW, CREDIBLE_HIGH, CONFIDENCE or PROBABILITY of a number."""
        subject, companion = claim(node, self.measured)
        number = self.lower(subject)
        if number.number is None:
            raise not_one_number(subject)
        # its index is the same in each grouping set
        at = max(point.companion(number.number, companion) for point in self.points)
        text = f"{self.relation}.n{number.number}x{at}"
        return TypedSql(text, "double precision", numbers=number.numbers)

    def aggregate(self, node: exp.Expr) -> Linear | Average | None:
        """Return an aggregate of protected rows; None if it is not linear, or a ratio, of them."""
        if id(node) not in self._aggregates:
            self._aggregates[id(node)] = (node, self._compiled(node))
        return self._aggregates[id(node)][1]

    def _compiled(self, node: exp.Expr) -> Linear | Average | None:
        point = self.points[0]
        node, conditions = self.filtered(node)
        if isinstance(node, exp.RegrCount):
            one, two = (self._argument(each) for each in both_arguments(node))
            return point.count_of_pairs(one, two, conditions)
        if not isinstance(node, exp.Count | exp.CountIf | exp.Sum | exp.Avg):
            return None
        inner = only_argument(node)
        if isinstance(node, exp.Count) and self._counts_units(inner):
            return point.count(conditions)
        if isinstance(inner, exp.Distinct):
            return None
        if isinstance(node, exp.Count):
            if isinstance(inner, exp.Star):
                return point.count(conditions)
            return point.count_of(self._argument(inner), conditions)
        if isinstance(node, exp.CountIf):
            return point.count([*conditions, self._argument(inner)])
        if isinstance(node, exp.Sum):
            return point.sum_of(self._argument(inner), conditions)
        return point.average_of(self._argument(inner), conditions)

    def _counts_units(self, inner: exp.Expr | None) -> bool:
        """Return whether COUNT of this counts units, of which each has at most one row."""
        if isinstance(inner, exp.Distinct) and len(inner.expressions) == 1:
            (inner,) = inner.expressions
        rows = self.resolver.rows
        one = self.branches == 1 and rows.unit is not None and rows.unit[1].max_rows == 1
        return one and self.resolver.is_unit(inner)

    def filtered(self, node: exp.Expr) -> tuple[exp.Expr, list[exp.Expr]]:
        """Return an aggregate without its FILTER, and the conditions of that."""
        if isinstance(node, exp.Filter):
            return node.this, [self._argument(node.expression.this)]
        return node, []

    def _argument(self, node: exp.Expr | None) -> exp.Expr:
        if node is None:
            raise ProgrammingError("an aggregate function lacks its argument")
        inner = next(aggregates(node), None)
        if inner is not None:
            raise GroupingError(
                "aggregate function calls cannot be nested", position=position(inner)
            )
        return self.resolver.resolve(node)

    def _nonlinear(self, node: exp.Expr) -> TypedSql:
        compiled = self.aggregate(node)
        if isinstance(compiled, Average):
            return self.number(compiled, node)
        call, conditions = self.filtered(node)
        return self._marginals.aggregate(node, call, conditions)

    def _grouping(self, node: exp.Grouping) -> TypedSql:
        arguments = []
        for item in node.expressions:
            typed = self.binding.coefficients.lower(self.resolver.resolve(item))
            matching = [i for i, key in enumerate(self.keys) if key.typed.sql == typed.sql]
            if not matching:
                raise GroupingError(
                    "arguments to GROUPING must be grouping expressions", position=position(item)
                )
            arguments.append(matching[0])
        masks = [
            sum((key not in each) << (len(arguments) - 1 - k) for k, key in enumerate(arguments))
            for each in self.sets
        ]
        if len(masks) == 1:
            return TypedSql(f"CAST({masks[0]} AS INTEGER)", "integer")
        cases = " ".join(f"WHEN {s} THEN {mask}" for s, mask in enumerate(masks))
        return TypedSql(f"CAST(CASE {self.relation}.s {cases} END AS INTEGER)", "integer")

    # --- the relation ------------------------------------------------------------------------

    def finish(self) -> None:
        """Define the union of the grouping sets, after the last number was added."""
        if len(self.points) == 1:
            return
        parts = []
        for s, (point, each) in enumerate(zip(self.points, self.sets, strict=True)):
            columns = [f"{s} AS s", "i"]
            for index in range(len(self.keys)):
                shown = f"g{each.index(index)}" if index in each else "NULL"
                columns.append(f"{shown} AS g{index}")
            for k, number in enumerate(point.numbers):
                columns += [f"n{k}", f"{pack(point.index, k, point.name)} AS x{k}"]
                columns += [f"n{k}x{j}" for j in range(len(number.companions))]
            drawn = "".join(f", m{k}" for k in range(len(point.numbers)))
            parts.append(f"SELECT {', '.join(columns)}{beside(drawn)} FROM {point.name}")
        self.binding.withs.append(f"{self.relation} AS ({' UNION ALL '.join(parts)})")

    def empty(self) -> str | None:
        """Return the condition that no count of a group is above 0: it is probably empty."""
        counts = [k for k, n in enumerate(self.points[0].numbers) if n.kind == "count"]
        if not counts or not self.keys:
            return None
        return f"({' AND '.join(f'{self.relation}.n{k} <= 0' for k in counts)})"
