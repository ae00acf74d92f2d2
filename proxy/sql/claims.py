"""What may be shown of a number beside itself: its interval, and the probability of a claim on it.

Each becomes an ``Extra`` of the number, a further column of the release's relation.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from proxy.errors import NotSupportedError
from proxy.sql.compile import DIGITS, LARGEST
from proxy.sql.program import Extra
from proxy.sql.scalar import COMPARISONS, flat
from proxy.sql.typed import Typed, position

if TYPE_CHECKING:
    from proxy.sql.grouped import Grouped

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
    if name == "probability":
        number, extra = _claim(grouped, argument)
    else:
        number, extra = _one(grouped, argument), Extra(CREDIBLE[name])
    index = int(number.sql.rpartition("n")[2])
    at = max(point.extra(index, extra) for point in grouped.points)  # the same in all
    return Typed(f"{grouped.relation}.n{index}x{at}", DOUBLE, numbers=number.numbers)


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


def _claim(grouped: Grouped, node: exp.Expr) -> tuple[Typed, Extra]:
    """Return the number and the interval of a claim such as COUNT(*) > 100."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.And):
        claims = [_claim(grouped, part) for part in flat(node)]
        if len({claim[0].sql for claim in claims}) == 1:
            least = [c.least for _, c in claims if c.least is not None]
            most = [c.most for _, c in claims if c.most is not None]
            low, high = max(least, default=None), min(most, default=None)
            return claims[0][0], Extra("probability", low, high)
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        number = _one(grouped, node.this)
        ends = [_constant(grouped, node.args[arg]) for arg in ("low", "high")]
        low, high = _ends(number, ">=", ends[0])[0], _ends(number, "<=", ends[1])[1]
        return number, Extra("probability", low, high)
    if type(node) in COMPARISONS:
        sign, sides = COMPARISONS[type(node)], [node.this, node.expression]
        if (constant := grouped.linear(node.this)) is not None and constant.query is None:
            sides, sign = (
                sides[::-1],
                {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(sign, sign),
            )
        other = grouped.linear(sides[1])
        if other is not None and other.query is not None:  # of two numbers: their difference
            left, right = (exp.Paren(this=side.copy()) for side in sides)
            sides = [exp.Sub(this=left, expression=right), exp.Literal.number(0)]
        number, value = _one(grouped, sides[0]), _constant(grouped, sides[1])
        if sign in ("<", "<=", ">", ">=") or (sign == "=" and number.type == "bigint"):
            return number, Extra("probability", *_ends(number, sign, value))
    raise NotSupportedError(
        "PROBABILITY takes a claim on one number: a comparison with a constant, or BETWEEN",
        hint="for example PROBABILITY(COUNT(*) > 100)",
        position=position(node),
    )


def _constant(grouped: Grouped, node: exp.Expr) -> Fraction:
    found = grouped.linear(node)
    if found is None or found.query is not None:
        raise NotSupportedError("a claim compares with a constant", position=position(node))
    if abs(found.shift) > LARGEST:
        raise NotSupportedError(
            f"a claim compares with a number of up to {DIGITS} digits", position=position(node)
        )
    return found.shift


def _ends(number: Typed, sign: str, value: Fraction) -> tuple[Fraction | None, Fraction | None]:
    """Return the closed interval that a comparison claims; of a count, in whole numbers."""
    low, high = value, value
    if number.type == "bigint":
        low = Fraction(math.floor(value) + 1 if sign == ">" else math.ceil(value))
        high = Fraction(math.ceil(value) - 1 if sign == "<" else math.floor(value))
    return (low if sign in (">", ">=", "=") else None), (high if sign in ("<", "<=", "=") else None)
