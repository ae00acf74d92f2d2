"""Counts and sums: each row is one linear query, with one estimator."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from proxy.engine.answers import Answer, source
from proxy.engine.claims import open_ended, probability
from proxy.engine.stepwise import Expected, Found, Looked, StepwiseGoal
from proxy.errors import OperationalError
from proxy.inference import plan as planning
from proxy.inference import steps
from proxy.inference.dense_system import Block
from proxy.inference.estimator import Estimator
from proxy.inference.history import History
from proxy.inference.plan import Wanted
from proxy.inference.steps import STEPS, Look
from proxy.sql.program import Companion, Number

AGAIN = "send the statement again"


class LinearGoal(Looked):
    """What counts and sums share: each row is one linear query, with one estimator."""

    number: Number
    delta: float
    _used: list[Estimator | None]

    def probability(self, history: History, row: int, claim: Companion) -> float | None:
        """Return a lower bound on P(least ≤ number ≤ most), after ``answers``."""
        used = self._used[row]
        if used is None:
            return None
        claim = open_ended(claim, self._possible(history, row))
        return probability(used, history.exact(used), self.number, claim)

    def _answers(self, history: History, paid: Mapping[int, Block]) -> list[Answer]:
        """Return what is known of every row: its interval within what is possible.

        The interval around an estimate beyond an end is that around the end.  Of a law whose
        density is log-concave, P(X > d + t | X ≥ d) ≤ P(X > t | X ≥ 0) ≤ P(|X| > t), so that it has
        its confidence also given the end; and it holds what the interval around the estimate holds
        of what is possible.
        """
        answers = []
        for row, used in enumerate(self._used):
            least, most = self._possible(history, row)
            if used is None:
                if row not in self.left_out:
                    raise OperationalError("the data was rebuilt meanwhile", hint=AGAIN)
                answers.append(Answer(math.nan, least, most, 1 - self.delta, "inferred", 0.0))
                continue
            estimate = float(history.exact(used) + self.number.shift)
            low, high = _around(min(max(estimate, least), most), self._reported(used))
            ends = max(low, least), min(high, most)
            answers.append(Answer(estimate, *ends, 1 - self.delta, *source([used], paid)))
        return answers

    def _possible(self, history: History, row: int) -> tuple[float, float]:
        """Return the least and the most that a row can be, given max_records and the clips."""
        family, shift = self.number.family, self.number.shift
        many = family.rows > planning.THOROUGH_ROWS  # then what holds for every row
        query = family.query if many else family.row(row)
        low, high = (shift + history.records * query.grid * end for end in query.span)
        return float(low), float(high)

    def _reported(self, estimator: Estimator) -> float:
        """Return the half-width to report."""
        raise NotImplementedError


@dataclass(eq=False)
class AbsoluteGoal(LinearGoal):
    """A count or sum within ``half_width`` with confidence 1 - delta."""

    number: Number
    half_width: Fraction
    delta: float
    steps: int = 1
    looks: dict[int, Look] = field(default_factory=dict)
    left_out: set[int] = field(default_factory=set)
    _used: list[Estimator | None] = field(default_factory=list)
    _widths: dict[tuple[bytes, bytes, str], float] = field(default_factory=dict)

    def wants(self, history: History) -> list[Wanted]:
        """Return the number itself."""
        return [Wanted(self.number.family, self.half_width, self.delta)]

    def known(self, history: History) -> bool:
        """Return whether every row can be inferred, as well as was asked for."""
        return None not in planning.estimators(history, self.wants(history)[0])

    def answers(self, history: History, found: Found, paid: Mapping[int, Block]) -> list[Answer]:
        """Return estimate and narrowest interval of every row."""
        self._used = list(found[0])
        return self._answers(history, paid)

    def expected(self, history: History, paid: Mapping[int, Block]) -> list[Expected]:
        """Return source, cost and half-width of every row, if what is planned were measured."""
        rows = []
        for used in planning.estimators(history, self.wants(history)[0]):
            half = self._reported(used) if used else None
            rows.append((*source([used] if used else [], paid), half))
        return rows

    def _reported(self, estimator: Estimator) -> float:
        """Return the half-width; the search for it ends a little above, and so maybe above the
        request that is known to be met.
        """
        width, asked = self.width(estimator, self.delta), float(self.half_width)
        return asked if asked < width <= asked * (1 + 2e-4) else width

    def width(self, estimator: Estimator, delta: float) -> float:
        """Return half the length of the interval; the rows of a family share most laws."""
        key = (
            estimator.coefficients.tobytes(),
            estimator.rates.tobytes(),
            f"{estimator.slack} {estimator.unit}",
        )
        if key not in self._widths:
            self._widths[key] = planning.half_width(estimator, delta)
        return self._widths[key]


@dataclass(eq=False)
class RelativeGoal(StepwiseGoal, LinearGoal):
    """A count or sum within ``percent`` of its estimate, with confidence 1 - delta, in steps."""

    number: Number
    percent: Fraction
    delta: float
    budget: float  # alpha of a cell
    steps: int = STEPS
    looks: dict[int, Look] = field(default_factory=dict)
    left_out: set[int] = field(default_factory=set)
    _absolute: AbsoluteGoal = field(init=False)
    _used: list[Estimator | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.families = (self.number.family,)
        self._absolute = AbsoluteGoal(self.number, Fraction(1), self._delta)

    def _look(self, history: History, row: int, *found: Estimator | None) -> Look:
        (known,) = found
        if known is None:
            return self._first()
        width, share = self._absolute.width(known, self._delta), float(self.percent / 100)
        size = abs(history.estimate(known) + float(self.number.shift))
        if width <= share * size or not known.rows.size:  # 0 in any case
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

    def answers(self, history: History, found: Found, paid: Mapping[int, Block]) -> list[Answer]:
        """Return estimate and interval of every row from the history as it now is."""
        self._used = steps.known(history, self.number.family, self._delta)
        return self._answers(history, paid)

    def _reported(self, estimator: Estimator) -> float:
        return self._absolute.width(estimator, self._delta)


def _around(estimate: float, half: float) -> tuple[float, float]:
    """Return the ends of an interval, outwards where their rounding could lose one."""
    low, high = estimate - half, estimate + half
    if estimate == int(estimate) and half == int(half) and abs(estimate) + half < 2**52:
        return low, high  # exact
    room = 2 * math.ulp(abs(estimate) + half)
    return low - room, high + room
