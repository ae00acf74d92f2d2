"""How far one number has come: what the next step measures of it, and of which rows it does not.

Invariant: values only.  A step returns new ones; nothing here changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from msgspec import Struct

from proxy.inference.estimator import Estimator
from proxy.inference.plan import AccuracyTarget
from proxy.inference.steps import Look

Expected = tuple[str, float, float | None]  # source, cost, half-width
PlannedRows = Sequence[Estimator | None]  # an estimator of every row of a target, as planned
RowEstimators = tuple[Estimator | None, ...]  # of one row: one for each family of its goal


def rather(halves: Sequence[float], asked: Fraction, unit: str = "") -> str:
    """Return how near the answers came, of half-widths that may be NaN, and what was asked."""
    known = [half for half in halves if math.isfinite(half)]
    if not known or max(known) <= asked:
        return ""
    return f": within {max(known):.4g}{unit} rather than {float(asked):.4g}{unit}"


class Progress(Struct, frozen=True):
    """What the next step measures of one number, given all that was released before."""

    targets: tuple[AccuracyTarget, ...]
    looks: Mapping[int, Look] = {}  # by row; none of a goal of one step
    left_out: frozenset[int] = frozenset()  # rows of which no more is wanted, for want of budget

    @property
    def unmet(self) -> tuple[int, int, int]:
        """How many rows were left out, were given up, and are not yet met, in steps."""
        rest = [x for row, x in self.looks.items() if row not in self.left_out and not x.met]
        lost = sum(not look.told for look in rest)
        return len(self.left_out), lost, len(rest) - lost

    @property
    def new(self) -> bool:
        """Whether nothing is known yet of the size of some row."""
        return any(look.new for look in self.looks.values())

    @property
    def going(self) -> list[int]:
        """The rows that are not yet met, in steps, and may be."""
        looks = self.looks.items()
        return [r for r, x in looks if r not in self.left_out and x.told and not x.met]
