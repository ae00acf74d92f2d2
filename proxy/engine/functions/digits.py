"""How a number is shown, at every door: with the digits that its interval supports."""

from __future__ import annotations

import math
from decimal import Decimal

from proxy.engine.answers import Answer


def decimals(length: float) -> int:
    """Return how many decimals are worth showing: two digits of an interval's length."""
    if not 0 < length < math.inf:
        return 2
    return min(max(1 - math.floor(math.log10(length)), 0), 12)


def ends(answer: Answer) -> tuple[float, float]:
    """Return the ends of an interval in the digits that it supports, rounded outwards."""
    scale = 10.0 ** decimals(answer.high - answer.low)
    if not abs(answer.low * scale) + abs(answer.high * scale) < 2**53:
        return answer.low, answer.high
    return math.floor(answer.low * scale) / scale, math.ceil(answer.high * scale) / scale


def interval(answer: Answer) -> str:
    """Return an answer's interval, rounded outwards, and its confidence, rounded down."""
    places, (low, high) = decimals(answer.high - answer.low), ends(answer)
    confidence = math.floor(answer.confidence * 10_000 + 1e-6) / 100
    return f"[{low:,.{places}f}, {high:,.{places}f}] {confidence:g}%"


def number(value: float | Decimal | None, answer: Answer) -> str:
    """Return a number as people read it, its digits in threes."""
    if value is None:
        return "NULL"
    places = decimals(answer.high - answer.low)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{places}f}"


def upwards(half: float | None) -> float | None:
    """Return a half-width in the digits that its interval supports, rounded up."""
    if half is None or not 0 < half < 2**40:
        return half
    scale = 10.0 ** decimals(2 * half)
    return math.ceil(half * scale) / scale
