"""How many digits of a number are shown, at every door: those that its interval supports."""

from __future__ import annotations

import math

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


def upwards(half: float | None) -> float | None:
    """Return a half-width in the digits that its interval supports, rounded up."""
    if half is None or not 0 < half < 2**40:
        return half
    scale = 10.0 ** decimals(2 * half)
    return math.ceil(half * scale) / scale
