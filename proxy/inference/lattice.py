"""The lattices that answers lie on: the coarsest common one, and the next point of one."""

from __future__ import annotations

import math
from fractions import Fraction


def common_grid(one: Fraction, two: Fraction) -> Fraction:
    """Return the largest fraction of which both are whole multiples; 0 is one of all."""
    return Fraction(
        math.gcd(one.numerator * two.denominator, two.numerator * one.denominator),
        one.denominator * two.denominator,
    )


def next_multiple(end: Fraction, strict: bool, shift: Fraction, grid: Fraction) -> Fraction:
    """Return the least shift + k · grid above ``end``, or at it where not ``strict``."""
    steps = (end - shift) / grid
    return shift + grid * (math.floor(steps) + 1 if strict else math.ceil(steps))
