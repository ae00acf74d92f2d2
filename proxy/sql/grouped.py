"""The SELECT of a release point: which of its expressions are numbers, groups, or made of these.

The largest linear combinations of aggregates become single numbers; every other function of
aggregates is computed from numbers.  Invariant: after binding, nothing but group columns and
numbers of the relation is left in the text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from proxy.errors import GroupingError, NotSupportedError, ProgrammingError
from proxy.sql import marginal
from proxy.sql.compile import NUMBERS, Average, Linear, Point
from proxy.sql.groups import Key
from proxy.sql.names import output_name
from proxy.sql.program import Extra
from proxy.sql.relations import Bound
from proxy.sql.results import (
    OTHER_AGGREGATES,
    Body,
    Outer,
    aggregates,
    assembled,
    is_aggregate,
    only_argument,
    ungrouped,
)
from proxy.sql.scalar import COMPARISONS, Typed, flat, position, worded
from proxy.sql.sets import grouping_sets

if TYPE_CHECKING:
    from proxy.sql.select import Select

DOUBLE = "double precision"
CREDIBLE = {"credible_low": "low", "credible_high": "high", "confidence": "confidence"}


def release(select: Select) -> Bound:
    """Return the bound query of a release point."""
    lowering = Grouped(select)
    node = select.node
    outputs = select.outputs(lowering)
    having, qualify = node.args.get("having"), node.args.get("qualify")
    kept = lowering.boolean(having.this, "HAVING").sql if having else None
    body = Body(
        lowering.relation,
        outputs,
        where=kept,
        qualify=select.qualified(lowering, outputs, qualify) if qualify else None,
        ties=lowering.ties,
    )
    bound = assembled(node, body, lowering.lower)
    lowering.finish()
    if select.binder.hide_empty and (hidden := lowering.empty()):
        kept = f"({kept}) AND NOT {hidden}" if kept else f"NOT {hidden}"
        bound = assembled(node, replace(body, where=kept), lowering.lower)
    return bound


class Grouped(Outer):
    """Expressions outside the aggregates of a release point: over its groups and numbers."""

    def __init__(self, select: Select) -> None:
        super().__init__(select.binder, select.context, select.node.args.get("windows") or ())
        self.select = select
        self.inputs = select.inputs
        self.where = select.conditions()
        self.keys, sets = self._keys()
        self.points = [self._point([self.keys[i] for i in each]) for each in sets]
        self.sets = sets
        one = len(sets) == 1
        self.relation = self.points[0].name if one else self.binder.fresh("u")
        self.ties = [f"{self.relation}.i"] if one else [f"{self.relation}.s", f"{self.relation}.i"]
        # with the node itself: its id would be used again after it
        self._aggregates: dict[int, tuple[exp.Expr, Linear | Average | None]] = {}
        self._marginals: dict[tuple[str, ...], marginal.Marginal] = {}

    def _point(self, keys: Sequence[Key]) -> Point:
        point = self.binder.add(self.where, keys, bool(keys))
        point.filter  # noqa: B018  # what is wrong with WHERE is said before what follows it
        return point

    def _keys(self) -> tuple[list[Key], list[list[int]]]:
        """Return the grouping expressions, and the sets of them by which rows are grouped."""
        node = self.select.node
        group = node.args.get("group")
        if group is not None:
            sets = grouping_sets(group)
        elif node.args.get("distinct") and not self.select.aggregated:
            sets = [[i.this if isinstance(i, exp.Alias) else i for i in self._starless()]]
        else:
            sets = [[]]
        keys: list[Key] = []
        indices: list[list[int]] = []
        for each in sets:
            found: list[int] = []
            for item in each:
                at = self._key(item, keys)
                if at is not None and at not in found:
                    found.append(at)
            indices.append(sorted(found))
        return keys, indices

    def _starless(self) -> list[exp.Expr]:
        items = self.select.node.expressions
        if any(item.is_star for item in items):
            raise NotSupportedError(
                "SELECT DISTINCT * would list the whole domain; name the columns",
                position=position(items[0]),
            )
        return list(items)

    def _key(self, item: exp.Expr, keys: list[Key]) -> int | None:
        """Return the index of a grouping expression, None for a constant."""
        item = self.select.key(item, self.inputs.names)
        node = self.inputs.resolve(item)
        typed = self.binder.coefficients.lower(node)
        if not typed.axes:
            return None  # a constant groups nothing
        for index, known in enumerate(keys):
            if known.typed.sql == typed.sql:
                return index
        keys.append(Key(output_name(item, self.binder.text), node, typed))
        return len(keys) - 1

    # --- translation -------------------------------------------------------------------------

    def before(self, node: exp.Expr) -> Typed | None:
        """Return a group column or a number, where a node is one."""
        if isinstance(node, exp.Grouping):
            return self._grouping(node)
        if isinstance(node, exp.Anonymous) and node.name.lower() in OTHER_AGGREGATES:
            return self._credible(node)
        if isinstance(node, exp.Window | exp.Subquery | exp.Exists) or node.args.get("query"):
            return super().before(node)
        linear = self._linear(node)
        if isinstance(linear, Linear) and linear.query is not None:
            return self.number(linear, node)
        if is_aggregate(node):
            return self._nonlinear(node)
        if next(aggregates(node), None) is not None or node.find(exp.Window, exp.Query):
            return None
        if node.find(exp.Column):
            return self._group(node)
        return None

    def _group(self, node: exp.Expr) -> Typed | None:
        typed = self.binder.coefficients.lower(self.inputs.resolve(node))
        for index, key in enumerate(self.keys):
            if key.typed.sql == typed.sql:
                return Typed(f"{self.relation}.g{index}", typed.type)
        if not typed.axes:
            return typed  # a public constant
        return None

    def column(self, node: exp.Expr) -> Typed:
        """Refuse a column that is not grouped."""
        raise ungrouped(node)

    def number(self, what: Linear | Average, node: exp.Expr) -> Typed:
        """Return the column of a number, which is added to every grouping set."""
        label = worded(node)
        indices = {point.add(what, node, self.context.wanted, label) for point in self.points}
        (index,) = indices  # all points have the same numbers
        count = isinstance(what, Linear) and what.counts
        ids = frozenset(point.index * NUMBERS + index for point in self.points)
        shadow = f"{self.relation}.x{index}"
        if len(self.points) == 1:
            shadow = shadow_of(self.points[0], index)
        return Typed(
            f"{self.relation}.n{index}", "bigint" if count else DOUBLE, numbers=ids, shadow=shadow
        )

    def _linear(self, node: exp.Expr) -> Linear | None:
        """Return what a node is, if it is a linear combination of aggregates, or a constant."""
        if isinstance(node, exp.Paren):
            return self._linear(node.this)
        if isinstance(node, exp.Literal):
            if node.is_string:
                return None
            return Linear(None, Fraction(node.name), counts=node.name.isdigit())
        if isinstance(node, exp.Neg):
            inner = self._linear(node.this)
            return None if inner is None else inner * Linear(None, Fraction(-1))
        if isinstance(node, exp.Cast):
            return self._cast(node)
        if isinstance(node, exp.Coalesce):
            inner = self._linear(node.this)  # a released count or sum is never NULL
            return inner if inner is not None and inner.query is not None else None
        if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div):
            left = self._linear(node.this)
            right = None if left is None else self._linear(node.expression)
            return None if left is None or right is None else combined(node, left, right)
        if is_aggregate(node):
            found = self.aggregate(node)
            return found if isinstance(found, Linear) else None
        return None

    def _cast(self, node: exp.Expr) -> Linear | None:
        target = node.args["to"]
        inner = self._linear(node.this)
        if inner is None or inner.query is None or target.expressions:
            return None
        if target.is_type("double", "float", "decimal"):
            return replace(inner, counts=False)
        return inner if inner.counts and target.is_type("int", "bigint") else None

    def aggregate(self, node: exp.Expr) -> Linear | Average | None:
        """Return an aggregate of protected rows; None if it is not linear, or a ratio, of them."""
        if id(node) not in self._aggregates:
            self._aggregates[id(node)] = (node, self._compiled(node))
        return self._aggregates[id(node)][1]

    def _compiled(self, node: exp.Expr) -> Linear | Average | None:
        point = self.points[0]
        node, conditions = self.filtered(node)
        if not isinstance(node, exp.Count | exp.CountIf | exp.Sum | exp.Avg):
            return None
        inner = only_argument(node)
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
        return self.inputs.resolve(node)

    def _nonlinear(self, node: exp.Expr) -> Typed:
        found = self.aggregate(node)
        if isinstance(found, Average):
            return self.number(found, node)
        return marginal.aggregate(self, node, self._marginals)

    # --- what is known of a number -----------------------------------------------------------

    def _credible(self, node: exp.Expr) -> Typed:
        name = node.name.lower()
        if name == "every" or len(node.expressions) != 1:
            raise NotSupportedError(
                f"{name.upper()} is not known over protected rows", position=position(node)
            )
        argument = node.expressions[0]
        if name == "probability":
            number, extra = self._claim(argument)
        else:
            number, extra = self._one(argument), Extra(CREDIBLE[name])
        index = int(number.sql.rpartition("n")[2])
        at = max(point.extra(index, extra) for point in self.points)  # the same in all
        return Typed(f"{self.relation}.n{index}x{at}", DOUBLE, numbers=number.numbers)

    def _one(self, node: exp.Expr) -> Typed:
        """Return the number that a node is."""
        typed = self.lower(node)
        if typed.shadow is None:
            raise NotSupportedError(
                "this takes one number of the aggregation: a COUNT, SUM or AVG, or a linear "
                "combination of COUNTs and SUMs",
                position=position(node),
            )
        return typed

    def _claim(self, node: exp.Expr) -> tuple[Typed, Extra]:
        """Return the number and the interval of a claim such as COUNT(*) > 100."""
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.And):
            claims = [self._claim(part) for part in flat(node)]
            if len({claim[0].sql for claim in claims}) == 1:
                least = [c.least for _, c in claims if c.least is not None]
                most = [c.most for _, c in claims if c.most is not None]
                low, high = max(least, default=None), min(most, default=None)
                return claims[0][0], Extra("probability", low, high)
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            number = self._one(node.this)
            ends = [self._constant(node.args[arg]) for arg in ("low", "high")]
            low, high = _ends(number, ">=", ends[0])[0], _ends(number, "<=", ends[1])[1]
            return number, Extra("probability", low, high)
        if type(node) in COMPARISONS:
            sign, sides = COMPARISONS[type(node)], [node.this, node.expression]
            if (constant := self._linear(node.this)) is not None and constant.query is None:
                sides, sign = (
                    sides[::-1],
                    {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(sign, sign),
                )
            other = self._linear(sides[1])
            if other is not None and other.query is not None:  # of two numbers: their difference
                left, right = (exp.Paren(this=side.copy()) for side in sides)
                sides = [exp.Sub(this=left, expression=right), exp.Literal.number(0)]
            number, value = self._one(sides[0]), self._constant(sides[1])
            if sign in ("<", "<=", ">", ">=") or (sign == "=" and number.type == "bigint"):
                return number, Extra("probability", *_ends(number, sign, value))
        raise NotSupportedError(
            "PROBABILITY takes a claim on one number: a comparison with a constant, or BETWEEN",
            hint="for example PROBABILITY(COUNT(*) > 100)",
            position=position(node),
        )

    def _constant(self, node: exp.Expr) -> Fraction:
        found = self._linear(node)
        if found is None or found.query is not None:
            raise NotSupportedError("a claim compares with a constant", position=position(node))
        return found.shift

    def _grouping(self, node: exp.Grouping) -> Typed:
        wanted = []
        for item in node.expressions:
            typed = self.binder.coefficients.lower(self.inputs.resolve(item))
            found = [i for i, key in enumerate(self.keys) if key.typed.sql == typed.sql]
            if not found:
                raise GroupingError(
                    "arguments to GROUPING must be grouping expressions", position=position(item)
                )
            wanted.append(found[0])
        masks = [
            sum((key not in each) << (len(wanted) - 1 - k) for k, key in enumerate(wanted))
            for each in self.sets
        ]
        if len(masks) == 1:
            return Typed(f"CAST({masks[0]} AS INTEGER)", "integer")
        cases = " ".join(f"WHEN {s} THEN {mask}" for s, mask in enumerate(masks))
        return Typed(f"CAST(CASE {self.relation}.s {cases} END AS INTEGER)", "integer")

    # --- the relation ------------------------------------------------------------------------

    def finish(self) -> None:
        """Define the union of the grouping sets, once all numbers are known."""
        if len(self.points) == 1:
            return
        parts = []
        for s, (point, each) in enumerate(zip(self.points, self.sets, strict=True)):
            columns = [f"{s} AS s", "i"]
            for index in range(len(self.keys)):
                shown = f"g{each.index(index)}" if index in each else "NULL"
                columns.append(f"{shown} AS g{index}")
            for k, number in enumerate(point.numbers):
                columns += [f"n{k}", f"{shadow_of(point, k)} AS x{k}"]
                columns += [f"n{k}x{j}" for j in range(len(number.extras))]
            parts.append(f"SELECT {', '.join(columns)} FROM {point.name}")
        self.binder.withs.append(f"{self.relation} AS ({' UNION ALL '.join(parts)})")

    def empty(self) -> str | None:
        """Return the condition that a group is probably empty: no count in it is above 0."""
        counts = [k for k, n in enumerate(self.points[0].numbers) if n.kind == "count"]
        if not counts or not self.keys:
            return None
        return f"({' AND '.join(f'{self.relation}.n{k} <= 0' for k in counts)})"


def shadow_of(point: Point, number: int) -> str:
    """Return the text of the id of a number: release, number and row in one integer."""
    base = (point.index * NUMBERS + number) << 32
    return f"(CAST({base} AS BIGINT) + {point.name}.i)"


def _ends(number: Typed, sign: str, value: Fraction) -> tuple[Fraction | None, Fraction | None]:
    """Return the closed interval that a comparison claims; of a count, in whole numbers."""
    low, high = value, value
    if number.type == "bigint":
        low = Fraction(math.floor(value) + 1 if sign == ">" else math.ceil(value))
        high = Fraction(math.ceil(value) - 1 if sign == "<" else math.floor(value))
    return (low if sign in (">", ">=", "=") else None), (high if sign in ("<", "<=", "=") else None)


def combined(node: exp.Expr, left: Linear, right: Linear) -> Linear | None:
    """Return the sum, difference, product or quotient of linear combinations, if it is one."""
    if isinstance(node, exp.Mul):
        if left.query is not None and right.query is not None:
            return None
        return left * right if right.query is None else right * left
    if isinstance(node, exp.Div):
        if right.query is not None or not right.shift or (left.counts and right.counts):
            return None  # PostgreSQL divides whole numbers without remainder: not linear
        return left * Linear(None, 1 / right.shift, counts=False)
    return left + (right * Linear(None, Fraction(-1)) if isinstance(node, exp.Sub) else right)
