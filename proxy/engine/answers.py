"""What is told of one number: estimate, interval, confidence, source and cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proxy.inference.dense_system import Block
from proxy.inference.estimator import Estimator


@dataclass(frozen=True)
class Answer:
    """One number: P(low ≤ θ ≤ high) ≥ confidence; ``cost`` in alpha, 0 where it was inferred.

    A ratio whose denominator is nothing has the estimate NaN, and is NULL in the rows.
    """

    estimate: float
    low: float
    high: float
    confidence: float
    source: str  # measured | inferred | derived
    cost: float


def source(estimators: Sequence[Estimator], paid: Mapping[int, Block]) -> tuple[str, float]:
    """Return whether a number rests on rows that this statement paid for, and what they cost."""
    used = {id(paid[r]): paid[r] for e in estimators for r in e.rows.tolist() if r in paid}
    cost = math.fsum(block.family.sensitivity / block.scale for block in used.values())
    return ("measured" if used else "inferred"), cost
