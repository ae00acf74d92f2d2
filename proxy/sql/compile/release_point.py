"""A release point: one aggregation of protected rows, as families of linear queries.

The rows of a GROUP BY are disjoint, so a number of every group is one query and one tensor of
labels.  Groups come from the declared domain: a group is a row iff some cell of the domain, not
some record, is in it and satisfies WHERE.  Invariant: nothing here knows more than the text and
the public domain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from msgspec.structs import replace
from sqlglot import exp

from proxy.domain import Domain
from proxy.errors import DataError, NotSupportedError, StatementTooComplexError
from proxy.inference.family import MAX_ROWS_INFERRED, Family
from proxy.inference.query import Factor, LinearQuery, Term
from proxy.inference.space import Box, Space
from proxy.sql import types
from proxy.sql.compile.coefficients import Coefficients
from proxy.sql.compile.columns import at_branch
from proxy.sql.compile.groups import Groups, Key, groups
from proxy.sql.compile.linear import Average, Linear, same_number
from proxy.sql.compile.moments import Moments, has_measure, moments, present, settle
from proxy.sql.parse.tree import as_sql, conjuncts, position
from proxy.sql.program import Companion, GroupColumn, Number, Release, Request

MAX_LOOKED_THROUGH = 2**26  # coefficients of all rows of a release
DIGITS = 38  # of the largest number, as of DuckDB's decimals
LARGEST = Fraction(10**DIGITS)


def space(domain: Domain) -> Space:
    """Return the shape of a domain's cube."""
    return Space(
        domain.sizes, tuple(Box(*measure.bounds, measure.nullable) for measure in domain.measures)
    )


@dataclass(eq=False)
class ReleasePoint:
    """A release point while its statement is bound; numbers are added one by one."""

    index: int
    coefficients: Coefficients
    where: tuple[exp.Expr, ...]  # conjuncts over resolved columns
    keys: tuple[Key, ...]
    grouped: bool  # without GROUP BY there is one row, whatever WHERE says
    branches: int = 1  # of the rows
    numbers: list[Number] = field(default_factory=list)
    sources: list[Linear | Average] = field(default_factory=list)  # of the numbers

    @property
    def name(self) -> str:
        """The name of the relation of its numbers."""
        return f"r{self.index}"

    @cached_property
    def shape(self) -> Space:
        """The shape of the cube."""
        return space(self.coefficients.domain)

    @cached_property
    def filters(self) -> tuple[tuple[Factor, ...], ...]:
        """The indicator of WHERE in each branch, one factor for each conjunct."""
        return tuple(self._indicators(self.where, k, "WHERE") for k in range(self.branches))

    def _indicators(
        self, conditions: Sequence[exp.Expr], branch: int, place: str
    ) -> tuple[Factor, ...]:
        """Return the indicators of the conjuncts of conditions."""
        parts = [part for each in conditions for part in conjuncts(at_branch(each, branch))]
        return tuple(self.coefficients.indicator(part, place) for part in parts)

    def _factors(self, conditions: Sequence[exp.Expr], branch: int) -> tuple[Factor, ...]:
        """Return the indicators of WHERE and of further conditions."""
        return (*self.filters[branch], *self._indicators(conditions, branch, "FILTER"))

    @cached_property
    def groups(self) -> Groups:
        """The groups of the keys."""
        return groups(self.keys, [Term.of(1, f) for f in self.filters], self.coefficients)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.groups.rows if self.grouped else 1

    # --- numbers -----------------------------------------------------------------------------

    def add(
        self, what: Linear | Average, node: exp.Expr, request: Request | None, named: str = ""
    ) -> int:
        """Add an aggregate as a number, unless it is one already, and return its index."""
        for index, source in enumerate(self.sources):
            if same_number(source, what):
                return index
        label = named or as_sql(node)
        if isinstance(what, Average):
            number = Number(
                label, self._family(what.query), what.mid, "avg", request, position(node),
                what.measure, self._family(what.denominator), what.bounds, type=what.type,
                scale=types.DECIMALS,
            )  # fmt: skip
        else:
            assert what.query is not None
            kind = "count" if what.counts else "sum"
            number = Number(
                label, self._family(what.query), what.shift, kind, request, position(node),
                what.measure, type=what.stored, scale=what.decimals,
            )  # fmt: skip
        if abs(number.shift) > LARGEST or not 1 / LARGEST <= number.family.grid <= LARGEST:
            raise NotSupportedError(
                f"{label} is scaled or moved by a number of more than {DIGITS} digits",
                position=number.position,
            )
        number.family.sensitivity  # noqa: B018  # what is too large is said now, with its place
        self.sources.append(what)
        self.numbers.append(number)
        return len(self.numbers) - 1

    def companion(self, number: int, companion: Companion) -> int:
        """Add a companion to a number, unless it has it already, and return its index."""
        current = self.numbers[number]
        if companion not in current.companions:
            self.numbers[number] = replace(current, companions=(*current.companions, companion))
        return self.numbers[number].companions.index(companion)

    def _family(self, query: LinearQuery) -> Family:
        if not self.keys:
            return Family(query)
        return Family(query, self.groups.axes, self.groups.labels, self.rows)

    def count(self, conditions: Sequence[exp.Expr] = ()) -> Linear:
        """Return COUNT(*) of the rows that satisfy further conditions."""
        return Linear(
            self._added(lambda k: LinearQuery.count(self.shape, *self._factors(conditions, k)))
        )

    def _added(self, part: Callable[[int], LinearQuery]) -> LinearQuery:
        """Return the sum over the branches."""
        total = part(0)
        for branch in range(1, self.branches):
            total = total + part(branch)
        return total

    def count_of(self, node: exp.Expr, conditions: Sequence[exp.Expr]) -> Linear:
        """Return COUNT(expression), which leaves NULLs out."""
        return Linear(self._added(lambda k: self._count(at_branch(node, k), conditions, k)))

    def count_of_pairs(
        self, one: exp.Expr, two: exp.Expr, conditions: Sequence[exp.Expr]
    ) -> Linear:
        """Return REGR_COUNT(y, x), which leaves out the records in which either is NULL."""
        return Linear(self._added(lambda k: self._pairs(one, two, conditions, k)))

    def _pairs(
        self, one: exp.Expr, two: exp.Expr, conditions: Sequence[exp.Expr], branch: int
    ) -> LinearQuery:
        """Return REGR_COUNT(y, x) of one branch."""
        nodes = [at_branch(one, branch), at_branch(two, branch)]
        for each in nodes:
            self.coefficients.number(each, "REGR_COUNT", measured=True)
        counted, other = sorted(nodes, key=has_measure, reverse=True)
        if has_measure(other):
            raise NotSupportedError(
                "REGR_COUNT of two measures is not known: the cube has the COUNT of each alone",
                hint="one of the two may be a measure, the other not",
                position=position(one),
            )
        there = exp.Not(this=exp.Is(this=exp.Paren(this=other), expression=exp.Null()))
        return self._count(counted, [*conditions, there], branch)

    def _count(self, node: exp.Expr, conditions: Sequence[exp.Expr], branch: int) -> LinearQuery:
        """Return COUNT(expression) of one branch."""
        factors = self._factors(conditions, branch)
        parts = {}
        for part, condition in present(node, self.coefficients.domain).items():
            if isinstance(condition, exp.Case):
                _, amounts = self.coefficients.amounts(condition, "COUNT")
            else:
                amounts = self.coefficients.indicator(condition, "COUNT")
            parts[part] = Term.of(1, (*factors, amounts))
        return LinearQuery.of(self.shape, Fraction(1), parts)

    def sum_of(self, node: exp.Expr, conditions: Sequence[exp.Expr], place: str = "SUM") -> Linear:
        """Return SUM(expression), of axes and measures."""
        nodes = [at_branch(node, k) for k in range(self.branches)]
        for each in nodes:
            if not has_measure(each):  # what is made of it below would be at fault otherwise
                self.coefficients.number(each, place)
        terms = [self._moments(each) for each in nodes]
        query = self._added(lambda k: self._sum(terms[k], conditions, k, place))
        measures = frozenset[int]().union(*(each.measures for each in terms))
        names = [self.coefficients.domain.measures[index].name for index in sorted(measures)]
        typed = [self.coefficients.number(each, place, measured=True) for each in nodes]
        kind = types.common((each.type for each in typed), place)
        for each in nodes if kind in types.INTEGERS and measures else ():
            if not all(types.fits(end, kind) for end in self._bounds(each)):
                raise DataError(
                    f"an expression fails for a value it may meet: {kind} out of range",
                    hint="cast to bigint or numeric before",
                    position=position(node),
                    sqlstate="22003",
                )
        return Linear(
            query,
            counts=False,
            measure=names[0] if names else None,
            type=types.of_sum(kind),
            scale=max((each.scale or 0 for each in typed), default=0),
        )

    def _moments(self, node: exp.Expr) -> Moments:
        return moments(node, self.coefficients.domain, self.coefficients.typing)

    def _sum(
        self, terms: Moments, conditions: Sequence[exp.Expr], branch: int, place: str
    ) -> LinearQuery:
        """Return SUM(expression) of one branch."""
        factors = self._factors(conditions, branch)
        query = LinearQuery(self.shape, Fraction(1), {})
        for part, coefficient in settle(terms).items():
            grid, amounts = self.coefficients.amounts(coefficient, place)
            if part % 2:
                grid *= self.coefficients.domain.measures[part // 2].quantum
            term = Term.of(1, (*factors, amounts))
            query = query + LinearQuery.of(self.shape, grid, {part: term})
        return query

    def average_of(self, node: exp.Expr, conditions: Sequence[exp.Expr]) -> Average:
        """Return AVG(expression)."""
        total = self.sum_of(node, conditions, "AVG")
        count = self.count_of(node, conditions)
        ends = [self._bounds(at_branch(node, k)) for k in range(self.branches)]
        bounds = min(low for low, _ in ends), max(high for _, high in ends)
        assert total.query is not None
        assert count.query is not None
        mid = (bounds[0] + bounds[1]) / 2
        kind = types.of_mean(total.type)
        return Average(total.query - count.query * mid, count.query, bounds, total.measure, kind)

    def _bounds(self, node: exp.Expr) -> tuple[Fraction, Fraction]:
        """Return the least and the largest possible value of an expression in one record."""
        domain = self.coefficients.domain
        terms = self._moments(node)
        low = high = Fraction(0)
        for part, coefficient in settle(terms).items():
            grid, amounts = self.coefficients.amounts(coefficient, "AVG")
            ends = [Fraction(int(amounts.array.min())), Fraction(int(amounts.array.max()))]
            if part % 2:
                measure = domain.measures[part // 2]
                ends = [a * b for a in ends for b in (measure.low, measure.high)]
            low, high = low + grid * min(ends), high + grid * max(ends)
        return low, high

    def release(self) -> Release:
        """Return the finished release.

        Raises:
            StatementTooComplexError: its rows have more coefficients than can be looked through,
                row by row, while others wait.
        """
        families = {n.family.key: n.family for n in self.numbers if n.family.axes}.values()
        looked_through = sum(
            each.cells - each.rows * each.labels.size * len(each.query.parts)  # beside the labels
            for each in families
            if each.rows <= MAX_ROWS_INFERRED
        )
        if looked_through > MAX_LOOKED_THROUGH:
            raise StatementTooComplexError(
                f"its condition ties too many columns together for {self.rows:,} groups",
                hint="group by fewer columns, or split conditions into parts joined by AND",
            )
        shown = self.groups.values if self.keys else ()
        columns = tuple(
            GroupColumn(key.name, key.typed.type, values)
            for key, values in zip(self.keys, shown, strict=True)
        )
        return Release(self.index, columns, self.rows, tuple(self.numbers))
