"""Goals: how good each number of a statement must be, and what it is once that is reached.

A goal is a request, and never changes.  What the next step measures of it is a ``Progress``, what
is known of it in the end an ``Outcome``: both are returned, and handed on.

An absolute goal (half_width in the units of the number) is met by one plan.  A relative goal
(``5 PERCENT``) and AVG depend on the size of what is asked for, so they are met in at most STEPS
public steps, each with confidence 1 - delta / STEPS, each a transaction of its own: a step looks
at released answers only.  Rows are met one by one: what cannot be met is left out, or given up,
and costs the others nothing.  Invariant: a goal reads the history, never the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Protocol

from proxy.engine.answers import Answer
from proxy.engine.goals.averages import AverageGoal
from proxy.engine.goals.linear import AbsoluteGoal, RelativeGoal
from proxy.engine.goals.quantiles import QuantileGoal, groups_of
from proxy.engine.outcomes import Outcome
from proxy.engine.progress import Expected, PlannedRows, Progress, RowEstimators
from proxy.errors import NotSupportedError, UtilityError
from proxy.inference.dense_system import MeasuredFamily
from proxy.inference.estimator import Cancellation, never_cancel
from proxy.inference.family import MAX_ROWS_INFERRED
from proxy.inference.history import History
from proxy.settings import UTILITY, Wishes, checked
from proxy.sql.program import Companion, Number, Release, Request


class Goal(Protocol):
    """How good one number must be: Absolute-, Relative-, Average- or QuantileGoal."""

    @property
    def number(self) -> Number:
        """The number."""

    @property
    def delta(self) -> float:
        """The probability with which an interval may miss."""

    @property
    def steps(self) -> int:
        """The largest number of steps in which it is met."""

    def progress(
        self,
        history: History,
        left_out: frozenset[int] = frozenset(),
        cancellation: Cancellation = never_cancel,
    ) -> Progress:
        """Return what the next step measures, of all rows but those ``left_out``."""

    def known(self, history: History, cancellation: Cancellation = never_cancel) -> bool:
        """Return whether some row, of a goal of one step every row, needs no further step."""

    def estimators(
        self,
        history: History,
        planned: Sequence[PlannedRows],
        cancellation: Cancellation = never_cancel,
    ) -> list[RowEstimators]:
        """Return what answers every row; ``planned`` are the estimators of each target's rows."""

    def answers(
        self,
        history: History,
        estimators: Sequence[RowEstimators],
        left_out: frozenset[int],
        paid: Mapping[int, MeasuredFamily],
    ) -> list[Answer]:
        """Return the number in every row."""

    def probability(
        self, history: History, row: int, estimators: RowEstimators, claim: Companion
    ) -> float | None:
        """Return a lower bound on P(least ≤ number ≤ most) in a row; None where nothing is."""

    @property
    def asked(self) -> tuple[Fraction, bool]:
        """The half-width that was asked for, and whether it is in per cent."""

    def reached(self, answers: Sequence[Answer]) -> str:
        """Return how near the answers came, in words, where that is less than was asked for."""

    def expected(self, history: History, paid: Mapping[int, MeasuredFamily]) -> list[Expected]:
        """Return source, cost and half-width of every row, if what is planned were measured."""


def goal_for(
    number: Number,
    release: Release,
    budget: float,
    first: float,
    asked: Callable[[], Wishes],
    default: Wishes,
) -> Goal:
    """Return how good a number must be: the nearest request wins.

    That is the number's own, then what the session ``asked`` for, then the policy's ``default``;
    ``budget`` is the alpha that any cell can pay, ``first`` what a first look may cost.
    """
    request = number.utility or asked().of(number) or default.of(number)
    of_values = number.quantile is not None and request is not None
    request = request or _default(number, asked, default)
    relative = request.relative
    wish = checked(request.half_width, request.delta, relative, number.position)
    if (number.kind == "avg" or relative or of_values) and number.family.rows > MAX_ROWS_INFERRED:
        raise NotSupportedError(
            f"{number.label} is met in steps, which more than {MAX_ROWS_INFERRED} groups "
            "are too many for",
            hint="group by fewer columns, or ask for COUNT and SUM with a half_width",
            position=number.position,
        )
    half, delta = wish.half_width, float(wish.delta)
    if number.kind == "avg":
        assert number.bounds is not None
        clip = float(number.bounds[0]), float(number.bounds[1])
        return AverageGoal(number, half, delta, budget, first, clip, relative)
    if of_values:
        groups, values = groups_of(release)
        return QuantileGoal(number, half, delta, budget, first, groups, values, relative)
    if relative:
        return RelativeGoal(number, half, delta, budget, first)
    return AbsoluteGoal(number, half, delta)


def _default(number: Number, asked: Callable[[], Wishes], default: Wishes) -> Request:
    """Return the policy's default for a number that the session says nothing of.

    What is good enough for a sum says nothing of a mean, which has its own or the session's.
    """
    found = default.of(number)
    if found is None and number.kind == "avg":
        found = asked().counts
    if found is None and number.quantile is not None:  # its counts are asked as others are
        found = asked().counts or default.counts
    if found is None:
        name = number.label if number.kind == "avg" else number.measure or number.label
        raise UtilityError(
            f"how good must {number.label} be? The query does not say, and there is no default "
            "for it; a pair of numbers without a name is the default of counts",
            hint="add WITH UTILITY (half_width, delta), for example WITH UTILITY (100, 0.05), "
            f"or name it: SET {UTILITY} = '{name} half_width, delta'",
            position=number.position,
        )
    return found


def outcome(
    goal: Goal, history: History, estimators: Sequence[RowEstimators], answers: Sequence[Answer]
) -> Outcome:
    """Return what is known of a number, with all else that the statement shows of it."""
    number = goal.number

    def companion_of(companion: Companion, row: int) -> float | bool | None:
        if companion.what == "probability":
            return goal.probability(history, row, estimators[row], companion)
        if companion.what == "present":  # of all values at once
            claim = Companion("probability", Fraction(1))
            there = goal.probability(history, row, estimators[row], claim)
            return there is not None and there >= 1 - goal.delta / number.family.rows
        value: float = getattr(answers[row], companion.what)
        return value

    companions = [
        [companion_of(companion, row) for row in range(len(answers))]
        for companion in number.companions
    ]
    estimates = [
        tuple(history.estimate(each) for each in row if each is not None)
        for row in (estimators if number.kind == "avg" else ())
    ]
    return Outcome(
        number, goal.delta / goal.steps, estimators, answers, companions, goal.steps, estimates
    )
