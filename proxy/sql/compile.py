"""A release point: one aggregation of protected rows, as families of linear queries.

The rows of a GROUP BY are disjoint, so a number of every group is one query and one tensor of
labels.  Groups come from the declared domain: a group is a row iff some cell of the domain, not
some record, is in it and satisfies WHERE.  Invariant: nothing here knows more than the text and
the public domain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from sqlglot import exp

from proxy.domain import Domain
from proxy.inference.family import Family
from proxy.inference.query import (
    COUNT,
    Box,
    Factor,
    LinearQuery,
    Space,
    Term,
    present_part,
    sum_part,
)
from proxy.sql.coefficients import Coefficients, MeasureColumn
from proxy.sql.groups import Groups, Key, groups
from proxy.sql.program import GroupColumn, Number, Release, Request
from proxy.sql.scalar import flat, position


def space(domain: Domain) -> Space:
    """Return the shape of a domain's cube."""
    return Space(
        domain.sizes, tuple(Box(*measure.bounds, measure.nullable) for measure in domain.measures)
    )


@dataclass(frozen=True, eq=False)
class Linear:
    """A linear combination of aggregates: a query for all groups together, and a constant."""

    query: LinearQuery
    shift: Fraction = Fraction(0)
    counts: bool = True  # whole multiples of counts, plus a whole number
    measure: str | None = None

    def __add__(self, other: Linear) -> Linear:
        return Linear(
            self.query + other.query,
            self.shift + other.shift,
            self.counts and other.counts,
            self.measure or other.measure,
        )

    def __mul__(self, factor: Fraction) -> Linear:
        whole = self.counts and factor.denominator == 1
        return Linear(self.query * factor, self.shift * factor, whole, self.measure)


@dataclass(eq=False)
class Point:
    """A release point while its statement is bound: numbers are added as they are met."""

    name: str
    coefficients: Coefficients
    where: tuple[exp.Expr, ...]  # conjuncts over resolved columns
    keys: tuple[Key, ...]
    numbers: list[Number] = field(default_factory=list)

    @cached_property
    def shape(self) -> Space:
        """The shape of the cube."""
        return space(self.coefficients.domain)

    @cached_property
    def filter(self) -> tuple[Factor, ...]:
        """The indicator of WHERE, one factor for each conjunct."""
        return self.indicators(self.where, "WHERE")

    def indicators(self, conjuncts: Sequence[exp.Expr], place: str) -> tuple[Factor, ...]:
        """Return the indicators of the conjuncts of conditions."""
        parts = [part for conjunct in conjuncts for part in _conjuncts(conjunct)]
        return tuple(self.coefficients.indicator(part, place) for part in parts)

    def add(self, linear: Linear, node: exp.Expr, request: Request | None) -> int:
        """Return the index of the number that a linear combination is."""
        kind = "count" if linear.counts else "sum"
        for index, known in enumerate(self.numbers):
            same = (known.kind, known.shift, known.utility) == (kind, linear.shift, request)
            if same and known.family.query == linear.query:
                return index
        family = Family(linear.query)
        if self.keys:
            family = Family(linear.query, self.groups.axes, self.groups.labels, self.rows)
        self.numbers.append(
            Number(
                node.sql(dialect="postgres"),
                family,
                linear.shift,
                kind,
                request,
                position(node),
                linear.measure,
            )
        )
        return len(self.numbers) - 1

    def count(self, conditions: Sequence[exp.Expr] = ()) -> Linear:
        """Return COUNT(*) of the rows that satisfy further conditions."""
        extra = self.indicators(conditions, "FILTER")
        return Linear(LinearQuery.count(self.shape, *self.filter, *extra))

    def count_of(self, node: exp.Expr, conditions: Sequence[exp.Expr]) -> Linear:
        """Return COUNT(expression), which leaves NULLs out."""
        measure = _measure(node)
        extra = self.indicators(conditions, "FILTER")
        if measure is not None:
            declared = self.coefficients.domain.measures[measure]
            part = present_part(measure) if declared.nullable else COUNT
            term = Term.of(1, (*self.filter, *extra))
            return Linear(LinearQuery.of(self.shape, Fraction(1), {part: term}))
        present = self.coefficients.present(node)
        return Linear(LinearQuery.count(self.shape, *self.filter, *extra, present))

    def sum_of(self, node: exp.Expr, conditions: Sequence[exp.Expr]) -> Linear:
        """Return SUM(expression), of a measure or of axes."""
        measure = _measure(node)
        factors = (*self.filter, *self.indicators(conditions, "FILTER"))
        if measure is not None:
            declared = self.coefficients.domain.measures[measure]
            parts = {sum_part(measure): Term.of(1, factors)}
            query = LinearQuery.of(self.shape, declared.quantum, parts)
            return Linear(query, counts=False, measure=declared.name)
        grid, amounts = self.coefficients.amounts(node, "SUM")
        parts = {COUNT: Term.of(1, (*factors, amounts))}
        return Linear(LinearQuery.of(self.shape, grid, parts), counts=False)

    @cached_property
    def groups(self) -> Groups:
        """The groups of the keys."""
        return groups(self.keys, Term.of(1, self.filter), self.coefficients)

    @property
    def rows(self) -> int:
        """The number of rows: one without GROUP BY, whatever WHERE says."""
        return self.groups.rows if self.keys else 1

    def release(self) -> Release:
        """Return the finished release."""
        columns = (
            tuple(
                GroupColumn(key.name, key.typed.type, values)
                for key, values in zip(self.keys, self.groups.values, strict=True)
            )
            if self.keys
            else ()
        )
        return Release(self.name, columns, self.rows, tuple(self.numbers))


def _conjuncts(node: exp.Expr) -> list[exp.Expr]:
    while isinstance(node, exp.Paren):
        node = node.this
    return (
        [n for part in flat(node) for n in _conjuncts(part)]
        if isinstance(node, exp.And)
        else [node]
    )


def _measure(node: exp.Expr) -> int | None:
    while isinstance(node, exp.Paren):
        node = node.this
    return int(node.this) if isinstance(node, MeasureColumn) else None
