"""Counts and sums: each row is one linear query, with one estimator."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from msgspec import Struct

from proxy.engine.answers import Answer
from proxy.engine.bill import source
from proxy.engine.claims import open_ended, probability
from proxy.engine.goals.stepwise import StepwiseGoal
from proxy.engine.outcomes import possible
from proxy.engine.progress import Expected, PlannedRows, Progress, RowEstimators, rather
from proxy.errors import OperationalError
from proxy.inference import plan as planning
from proxy.inference import steps
from proxy.inference.dense_system import MeasuredFamily
from proxy.inference.estimator import Cancellation, Estimator, never_cancel
from proxy.inference.family import Family
from proxy.inference.history import History
from proxy.inference.plan import AccuracyTarget
from proxy.inference.steps import STEPS, Look
from proxy.sql.program import Companion, Number

AGAIN = "send the statement again"


class LinearGoal:
    """What counts and sums share: each row is one linear query, with one estimator."""

    number: Number
    delta: float
    steps: int

    def probability(
        self, history: History, row: int, estimators: RowEstimators, claim: Companion
    ) -> float | None:
        """Return a lower bound on P(least ≤ number ≤ most); None of a row that was left out."""
        (estimator,) = estimators
        if estimator is None:
            return None
        claim = open_ended(claim, possible(self.number, history.records, row))
        return probability(estimator, history.exact(estimator), self.number, claim)

    def answers(
        self,
        history: History,
        estimators: Sequence[RowEstimators],
        left_out: frozenset[int],
        paid: Mapping[int, MeasuredFamily],
    ) -> list[Answer]:
        """Return estimate and interval of every row, the interval within what is possible.

        The interval around an estimate beyond an end is that around the end.  Of a law whose
        density is log-concave, P(X > d + t | X ≥ d) ≤ P(X > t | X ≥ 0) ≤ P(|X| > t), so that it has
        its confidence also given the end; and it holds what the interval around the estimate holds
        of what is possible.
        """
        planning.look_ahead([each for (each,) in estimators if each], self._delta)
        answers = []
        for row, (estimator,) in enumerate(estimators):
            least, most = possible(self.number, history.records, row)
            if estimator is None:
                if row not in left_out:
                    raise OperationalError("the data was rebuilt meanwhile", hint=AGAIN)
                answers.append(Answer(math.nan, least, most, 1 - self.delta, "inferred", 0.0))
                continue
            estimate = float(history.exact(estimator) + self.number.shift)
            low, high = _around(min(max(estimate, least), most), self._reported(estimator))
            ends = max(low, least), min(high, most)
            answers.append(Answer(estimate, *ends, 1 - self.delta, *source([estimator], paid)))
        return answers

    @property
    def _delta(self) -> float:
        """What a step may miss."""
        return self.delta / self.steps

    def _reported(self, estimator: Estimator) -> float:
        """Return the half-width to report."""
        return planning.half_width(estimator, self._delta)


class AbsoluteGoal(LinearGoal, Struct, frozen=True, eq=False):
    """A count or sum within ``half_width`` with confidence 1 - delta."""

    number: Number
    half_width: Fraction
    delta: float
    steps: int = 1

    @property
    def asked(self) -> tuple[Fraction, bool]:
        """The half-width, in the units of the number."""
        return self.half_width, False

    def reached(self, answers: Sequence[Answer]) -> str:
        """Return how near the answers came, in words: nothing, for it is near enough."""
        return ""

    @property
    def target(self) -> AccuracyTarget:
        """What one plan must meet: the number itself."""
        return AccuracyTarget(self.number.family, self.half_width, self.delta)

    def progress(
        self,
        history: History,
        left_out: frozenset[int] = frozenset(),
        cancellation: Cancellation = never_cancel,
    ) -> Progress:
        """Return the one step, whatever is known."""
        return Progress((self.target,), left_out=left_out)

    def known(self, history: History, cancellation: Cancellation = never_cancel) -> bool:
        """Return whether every row can be inferred, as well as was asked for."""
        return None not in planning.estimators(history, self.target, cancellation)

    def estimators(
        self,
        history: History,
        planned: Sequence[PlannedRows],
        cancellation: Cancellation = never_cancel,
    ) -> list[RowEstimators]:
        """Return the estimators of every row that the step planned with."""
        return [(estimator,) for estimator in planned[0]]

    def expected(self, history: History, paid: Mapping[int, MeasuredFamily]) -> list[Expected]:
        """Return source, cost and half-width of every row, if what is planned were measured."""
        rows = []
        for estimator in planning.estimators(history, self.target):
            half = self._reported(estimator) if estimator else None
            rows.append((*source([estimator] if estimator else [], paid), half))
        return rows

    def _reported(self, estimator: Estimator) -> float:
        """Return the half-width; the search for it ends a little above, and so maybe above the
        request that is known to be met.
        """
        width, asked = super()._reported(estimator), float(self.half_width)
        return asked if asked < width <= asked * (1 + 2e-4) else width


class RelativeGoal(StepwiseGoal, LinearGoal, Struct, frozen=True, eq=False):
    """A count or sum within ``percent`` of its estimate, with confidence 1 - delta, in steps."""

    number: Number
    percent: Fraction
    delta: float
    budget: float  # alpha that any cell can pay
    first: float  # alpha of the first look
    steps: int = STEPS

    @property
    def families(self) -> tuple[Family, ...]:
        """The number itself."""
        return (self.number.family,)

    @property
    def asked(self) -> tuple[Fraction, bool]:
        """The half-width, in per cent."""
        return self.percent, True

    def reached(self, answers: Sequence[Answer]) -> str:
        """Return how near the answers came, in words."""
        halves = [(a.high - a.low) / 2 / abs(a.estimate) for a in answers if a.estimate]
        return rather([100 * half for half in halves], self.percent, "%")

    def _looks(
        self, history: History, rows: Sequence[RowEstimators], cancellation: Cancellation
    ) -> Iterator[Look]:
        return (self._look(history, estimator) for (estimator,) in rows)

    def _look(self, history: History, estimator: Estimator | None) -> Look:
        """Return what is wanted of a row, given its narrowest estimator."""
        if estimator is None:
            return self._first()
        width, share = self._reported(estimator), float(self.percent / 100)
        size = abs(history.estimate(estimator) + float(self.number.shift))
        if width <= share * size or not estimator.rows.size:  # 0 in any case
            return steps.MET
        if size <= width:
            most = Fraction(share * (size + width))
            if steps.price(self.number.family, most, self._delta) > self.budget:
                return steps.LOST
            return steps.closer(self.number.family, width, self._delta)
        half = share * (size - width) / (1 + share)
        if size <= 2 * width:  # so near to 0 that a closer look may well ask for less
            half = max(half, width / steps.CLOSER)
        return steps.priced(self.families, (0, Fraction(half), self._delta))


def _around(estimate: float, half: float) -> tuple[float, float]:
    """Return the ends of an interval, outwards where their rounding could lose one."""
    low, high = estimate - half, estimate + half
    if estimate == int(estimate) and half == int(half) and abs(estimate) + half < 2**52:
        return low, high  # exact
    room = 2 * math.ulp(abs(estimate) + half)
    return low - room, high + room
