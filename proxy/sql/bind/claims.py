"""What may be shown of a number beside itself: its interval, and the probability of a claim on it.

Each becomes an ``Extra`` of the number, a further column of the release's relation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING

from sqlglot import exp

from proxy.errors import NotSupportedError
from proxy.inference.space import next_multiple
from proxy.sql.compile.release_point import DIGITS, LARGEST, NUMBERS
from proxy.sql.expression.typed import Typed
from proxy.sql.parse.tree import COMPARISONS, flat, position
from proxy.sql.program import Extra, Number

if TYPE_CHECKING:
    from proxy.sql.bind.aggregation import Grouped

DOUBLE = "double precision"
CREDIBLE = {"credible_low": "low", "credible_high": "high", "confidence": "confidence"}


def credible(grouped: Grouped, node: exp.Expr) -> Typed:
    """Return CREDIBLE_LOW, CREDIBLE_HIGH, CONFIDENCE or PROBABILITY of a number.

    Raises:
        NotSupportedError: it is not of one number.
    """
    name = node.name.lower()
    if len(node.expressions) != 1:
        raise NotSupportedError(f"{name.upper()} takes one number", position=position(node))
    argument = node.expressions[0]
    claim = _claim(grouped, argument) if name == "probability" else None
    number = claim.number if claim else _one(grouped, argument)
    index = _index(number)
    extra = claim.extra(_number(grouped, number)) if claim else Extra(CREDIBLE[name])
    at = max(point.extra(index, extra) for point in grouped.points)  # the same in all
    return Typed(f"{grouped.relation}.n{index}x{at}", DOUBLE, numbers=number.numbers)


def _index(number: Typed) -> int:
    """Return the place of a number in its release."""
    return min(number.numbers) % NUMBERS


def _number(grouped: Grouped, number: Typed) -> Number:
    return grouped.points[0].numbers[_index(number)]


def _one(grouped: Grouped, node: exp.Expr) -> Typed:
    """Return the number that a node is."""
    while isinstance(node, exp.Paren) or (isinstance(node, exp.Cast) and grouped.linear(node)):
        node = node.this  # the type that it is shown as does not matter
    typed = grouped.lower(node)
    if typed.shadow is None or not typed.sql.rpartition(".n")[2].isdigit():
        raise NotSupportedError(
            "this takes one number of the aggregation: a COUNT, SUM or AVG, or a linear "
            "combination of COUNTs and SUMs",
            position=position(node),
        )
    return typed


@dataclass(frozen=True)
class Claim:
    """That a number is between two ends, each with whether it is itself left out; or is not."""

    number: Typed
    least: tuple[Fraction, bool] | None = None
    most: tuple[Fraction, bool] | None = None
    negated: bool = False

    def opposite(self) -> Claim:
        """Return the claim that holds where this one does not."""
        if self.negated or (self.least and self.most):
            return replace(self, negated=not self.negated)
        least = self.most and (self.most[0], not self.most[1])
        most = self.least and (self.least[0], not self.least[1])
        return replace(self, least=least, most=most)

    def over(self, factor: Fraction) -> Claim:
        """Return the claim on a number of which this one is on so many times it."""
        ends = [end and (end[0] / factor, end[1]) for end in (self.least, self.most)]
        least, most = ends if factor > 0 else reversed(ends)
        return replace(self, least=least, most=most)

    def also(self, other: Claim) -> Claim:
        """Return the claim that both hold, of one number."""
        least = [end for end in (self.least, other.least) if end]
        most = [end for end in (self.most, other.most) if end]
        return Claim(
            self.number,
            max(least, default=None),
            min(most, default=None, key=lambda end: (end[0], not end[1])),
        )

    def extra(self, number: Number) -> Extra:
        """Return what is shown of the number; ends of all but means are multiples of its grid."""
        ends = [self.least, self.most]
        if number.kind != "avg":
            shift, grid = number.shift, number.family.grid
            if self.least:
                ends[0] = next_multiple(*self.least, shift, grid), False
            if self.most:
                value, strict = self.most
                ends[1] = -next_multiple(-value, strict, -shift, grid), False
        (low, above), (high, under) = (end or (None, False) for end in ends)
        return Extra("probability", low, high, (above, under), self.negated)


def _claim(grouped: Grouped, node: exp.Expr) -> Claim:
    """Return a claim on one number, such as COUNT(*) > 100."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Not):
        return _claim(grouped, node.this).opposite()
    if isinstance(node, exp.And):
        first, *others = (_claim(grouped, part) for part in flat(node))
        if not any(c.negated or c.number.numbers != first.number.numbers for c in (first, *others)):
            return reduce(Claim.also, others, first)
    if isinstance(node, exp.Between):
        number, factor = _unscaled(grouped, node.this)
        low, high = (_constant(grouped, node.args[arg]) for arg in ("low", "high"))
        if node.args.get("symmetric"):
            low, high = min(low, high), max(low, high)
        return Claim(number, (low, False), (high, False)).over(factor)
    if type(node) in SIGNS:
        return _compared(grouped, node, SIGNS[type(node)])
    raise _refused(node)


def _refused(node: exp.Expr) -> NotSupportedError:
    return NotSupportedError(
        "PROBABILITY takes a claim on one number: a comparison with a constant, or BETWEEN",
        hint="for example PROBABILITY(COUNT(*) > 100)",
        position=position(node),
    )


SIGNS = {kind: sign for kind, sign in COMPARISONS.items() if not sign.startswith("IS")}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _compared(grouped: Grouped, node: exp.Expr, sign: str) -> Claim:
    """Return what a comparison claims."""
    sides = [node.this, node.expression]
    if (constant := grouped.linear(node.this)) is not None and constant.query is None:
        sides, sign = sides[::-1], MIRRORED.get(sign, sign)
    other = grouped.linear(sides[1])
    if other is not None and other.query is not None:  # of two numbers: their difference
        left, right = (exp.Paren(this=side.copy()) for side in sides)
        sides = [exp.Sub(this=left, expression=right), exp.Literal.number(0)]
    (number, factor), end = _unscaled(grouped, sides[0]), _constant(grouped, sides[1])
    if sign in ("=", "<>"):
        if _number(grouped, number).kind == "avg":  # it is hardly ever equal to anything
            raise _refused(node)
        return Claim(number, (end, False), (end, False), sign == "<>").over(factor)
    if sign in (">", ">="):
        return Claim(number, (end, sign == ">")).over(factor)
    return Claim(number, None, (end, sign == "<")).over(factor)


def _unscaled(grouped: Grouped, node: exp.Expr) -> tuple[Typed, Fraction]:
    """Return the number of which a node is a multiple, and how many times it."""
    factor = Fraction(1)
    while isinstance(node, exp.Paren | exp.Neg | exp.Mul | exp.Div):
        sides = (
            [node.this] if isinstance(node, exp.Paren | exp.Neg) else list(node.iter_expressions())
        )
        found = [grouped.linear(side) for side in sides]
        constants = [f for f in found if f is not None and f.query is None]
        if isinstance(node, exp.Paren | exp.Neg):
            times, node = Fraction(-1 if isinstance(node, exp.Neg) else 1), node.this
        elif len(constants) == 1 and constants[0].shift and grouped.linear(node) is not None:
            times = constants[0].shift if isinstance(node, exp.Mul) else 1 / constants[0].shift
            node = sides[0] if constants[0] is found[1] else sides[1]
        else:
            break
        factor *= times
    return _one(grouped, node), factor


def _constant(grouped: Grouped, node: exp.Expr) -> Fraction:
    found = grouped.linear(node)
    if found is None or found.query is not None:
        raise NotSupportedError("a claim compares with a constant", position=position(node))
    if abs(found.shift) > LARGEST:
        raise NotSupportedError(
            f"a claim compares with a number of up to {DIGITS} digits", position=position(node)
        )
    return found.shift
