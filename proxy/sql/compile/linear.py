"""Aggregates before they are numbers of a release: linear combinations, and averages.

Both are exact, over the whole cube; the groups of a release point are not in them.
"""

from __future__ import annotations

from fractions import Fraction

from msgspec import Struct

from proxy.inference.query import LinearQuery
from proxy.sql import types


class Linear(Struct, frozen=True, eq=False):
    """A linear combination of aggregates: a query for all groups together, and a constant.

    ``query`` None is a constant alone; ``type`` is PostgreSQL's.
    """

    query: LinearQuery | None
    shift: Fraction = Fraction(0)
    counts: bool = True  # whole multiples of counts, plus a whole number
    measure: str | None = None
    type: str = "bigint"
    scale: int = 0  # of a numeric, its decimals

    @property
    def stored(self) -> str:
        """The type in which its values are handed on."""
        return "bigint" if self.type in types.INTEGERS else self.type

    @property
    def decimals(self) -> int:
        """The decimals with which a numeric is shown: PostgreSQL's, or as many as it has."""
        assert self.query is not None
        for scale in range(self.scale, types.DECIMALS):
            power = 10**scale
            if (self.query.grid * power).denominator == 1 == (self.shift * power).denominator:
                return scale
        return types.DECIMALS

    @property
    def identity(self) -> tuple[object, ...]:
        """What two numbers of a release point share iff they are the same."""
        kind = "count" if self.counts else "sum"
        return kind, self.query, self.shift, self.stored, self.decimals

    def __add__(self, other: Linear) -> Linear:
        query = other.query if self.query is None else self.query
        if self.query is not None and other.query is not None:
            query = self.query + other.query
        return Linear(
            query,
            self.shift + other.shift,
            self.counts and other.counts,
            self.measure or other.measure,
            types.of_arithmetic(self.type, other.type),
            max(self.scale, other.scale),
        )

    def __mul__(self, factor: Linear) -> Linear:
        """Return the product with a constant."""
        query = None if self.query is None else self.query * factor.shift
        counts = self.counts and factor.counts
        kind = types.of_arithmetic(self.type, factor.type)
        scale = self.scale + factor.scale
        return Linear(query, self.shift * factor.shift, counts, self.measure, kind, scale)


class Average(Struct, frozen=True, eq=False):
    """AVG: U = SUM − mid · COUNT, the COUNT, mid, and the least and largest that it can be."""

    query: LinearQuery
    denominator: LinearQuery
    bounds: tuple[Fraction, Fraction]
    measure: str | None
    type: str

    @property
    def mid(self) -> Fraction:
        """The midpoint of the bounds, which is subtracted from each record."""
        return (self.bounds[0] + self.bounds[1]) / 2

    @property
    def identity(self) -> tuple[object, ...]:
        """What two numbers of a release point share iff they are the same."""
        return "avg", self.query, self.mid, self.type, self.denominator


def same_number(one: Linear | Average | None, two: Linear | Average | None) -> bool:
    """Return whether two aggregates are the same number of a release point."""
    return one is not None and two is not None and one.identity == two.identity
