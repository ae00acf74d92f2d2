"""What is known of every number of a statement when its last step is done: values only."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from proxy.engine.answers import Answer
from proxy.engine.progress import RowEstimators
from proxy.inference import plan as planning
from proxy.inference.estimator import Estimator, correlation
from proxy.sql.program import Number

Companions = Sequence[Sequence[float | bool | None]]  # [companion][row] of one number


class Outcome(Struct, frozen=True):
    """What is known of one number."""

    number: Number
    delta: float  # with which the interval of one step may miss
    estimators: Sequence[RowEstimators]  # [row]
    answers: Sequence[Answer]  # [row]
    companions: Companions
    steps: int = 1  # in which it was met, each of which may miss its part of delta
    estimates: Sequence[tuple[float, ...]] = ()  # [row] of an average's families, where known


class Inference(Struct, frozen=True):
    """The outcome of every number of a statement, and what it paid, in 2⁻⁴⁰ alpha."""

    outcomes: list[Outcome]  # [number]
    cost: int
    notices: tuple[str, ...]

    @property
    def answers(self) -> list[Sequence[Answer]]:
        """Every number in every row: [number][row]."""
        return [outcome.answers for outcome in self.outcomes]

    @property
    def final(self) -> bool:
        """Whether it is so again: free, and no unmet request that more budget may meet."""
        return not self.cost and not self.notices


class Reach(Struct, frozen=True):
    """How far the rows of a number may be off: each alone, all at once, and any sum of them."""

    near: Sequence[float]  # [row] with the confidence asked for, in sums too: √Σ (g · near)²
    far: Sequence[float]  # [row] of all at once
    estimators: Sequence[Estimator]  # [row]; none where a row is no linear query, or not known
    delta: float


def possible(number: Number, records: int, row: int) -> tuple[float, float]:
    """Return the least and the most that a row can be, given max_records and the clips."""
    family, shift = number.family, number.shift
    many = family.rows > planning.MAX_ROWS_BEST  # then what holds for every row
    query = family.query if many else family.queries()[row]
    low, high = (shift + records * query.grid * end for end in query.span)
    return float(low), float(high)


def reaches(outcome: Outcome) -> Reach:
    """Return how far each row may be off.

    Infinitely far, where the rows are no linear queries, or one of them is not known.

    Where rows rest on the same measurements, their noises are correlated, and those are widened so
    that √Σ (g · near)² still holds for sums Σ g n of rows.
    """
    rows, delta = outcome.number.family.rows, outcome.delta
    estimators = [row[0] for row in outcome.estimators if len(row) == 1 and row[0] is not None]
    if not estimators or len(estimators) < rows:
        none = [math.inf] * rows
        return Reach(none, none, (), delta)
    wide = math.sqrt(correlation(estimators))
    near = [wide * _reach(each, delta) for each in estimators]
    far = [planning.half_width(each, delta / rows) for each in estimators]
    return Reach(near, far, estimators, delta)


def _reach(estimator: Estimator, delta: float) -> float:
    """Return a half-width of a number alone that serves in sums: of Laplace noise, at least."""
    normal = math.sqrt(estimator.variance / 2) * math.log(1 / delta)
    return max(planning.half_width(estimator, delta), normal)
