"""The public shape of a cube: its axes, what a record can add, and the lattice of its answers."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from fractions import Fraction

from msgspec import Struct


class Box(Struct, frozen=True):
    """What one record can add to a measure's sum: an integer of quanta in [low, high], or NULL."""

    low: int
    high: int
    nullable: bool = False


class Space(Struct, frozen=True):
    """The public shape of a cube: the size of each axis, the box of each measure."""

    sizes: tuple[int, ...]
    boxes: tuple[Box, ...] = ()

    def cells(self, axes: Iterable[int]) -> int:
        """Return the number of cells over some axes."""
        return math.prod(self.sizes[axis] for axis in axes)

    def beside(self, axes: Collection[int]) -> int:
        """Return the number of cells over all other axes."""
        return self.cells(axis for axis in range(len(self.sizes)) if axis not in axes)

    def reach(self, measure: int) -> int:
        """Return the largest absolute value of a measure, in quanta."""
        return max(abs(self.boxes[measure].low), abs(self.boxes[measure].high))


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
