"""The public shape of a cube: the size of each axis, and what a record can add to a measure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Box:
    """What one record can add to a measure's sum: an integer of quanta in [low, high], or NULL."""

    low: int
    high: int
    nullable: bool = False


@dataclass(frozen=True)
class Space:
    """The public shape of a cube: the size of each axis, the box of each measure."""

    sizes: tuple[int, ...]
    boxes: tuple[Box, ...] = ()

    def cells(self, axes: Iterable[int]) -> int:
        """Return the number of cells over some axes."""
        return math.prod(self.sizes[axis] for axis in axes)

    def reach(self, measure: int) -> int:
        """Return the largest absolute value of a measure, in quanta."""
        return max(abs(self.boxes[measure].low), abs(self.boxes[measure].high))
