"""Goals: how good each number of a statement must be, and what it is once that is reached.

An absolute goal (half_width in the units of the number) is met by one plan.  A relative goal
(``5 PERCENT``) and AVG depend on the size of what is asked for, so they are met in at most STEPS
public steps, each with confidence 1 - delta / STEPS, each a transaction of its own: a step looks
at released answers only.  Rows are met one by one: what cannot be met is left out, or given up,
and costs the others nothing.  Invariant: a goal reads the history, never the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Protocol

from proxy.engine.answers import Answer
from proxy.engine.averages import AverageGoal
from proxy.engine.linear_goals import AbsoluteGoal, LinearGoal, RelativeGoal
from proxy.engine.stepwise import Expected, Found
from proxy.errors import NotSupportedError, UtilityError
from proxy.inference import plan as planning
from proxy.inference.dense_system import Block
from proxy.inference.estimator import Estimator, correlation
from proxy.inference.history import History
from proxy.inference.plan import Wanted
from proxy.inference.steps import Look
from proxy.settings import UTILITY, Wishes, checked
from proxy.sql.program import Companion, Number, Request


class Goal(Protocol):
    """What is wanted of one number of a statement."""

    number: Number
    delta: float
    steps: int
    looks: dict[int, Look]  # by row; none where it is met in one step, or not at all
    left_out: set[int]  # rows of which no more is wanted, for want of budget

    def wants(self, history: History) -> list[Wanted]:
        """Return the families that must be known, and how well, in the next step."""

    def unmet(self) -> tuple[int, int, int]:
        """Return how many rows were left out, were given up, and are not yet met, in steps."""

    def known(self, history: History) -> bool:
        """Return whether there is something to say of some row that no further step is for."""

    def answers(self, history: History, found: Found, paid: Mapping[int, Block]) -> list[Answer]:
        """Return the number in every row, given estimators of what was wanted."""

    def probability(self, history: History, row: int, claim: Companion) -> float | None:
        """Return a lower bound on P(least ≤ number ≤ most), after ``answers``."""

    def expected(self, history: History, paid: Mapping[int, Block]) -> list[Expected]:
        """Return source, cost and half-width of every row, if what is planned were measured."""


def goal_for(number: Number, budget: float, asked: Callable[[], Wishes], default: Wishes) -> Goal:
    """Return how good a number must be: the nearest request wins.

    That is the number's own, then what the session ``asked`` for, then the policy's ``default``;
    ``budget`` is the alpha of a cell.
    """
    request = number.utility or asked().of(number)
    stepwise = number.kind == "avg" or (request is not None and request.relative)
    if stepwise and number.family.rows > planning.QUICK_ROWS:
        raise NotSupportedError(
            f"{number.label} is met in steps, which more than {planning.QUICK_ROWS} groups "
            "are too many for",
            hint="group by fewer columns, or ask for COUNT and SUM with a half_width",
            position=number.position,
        )
    if request is not None and request.relative:
        if number.kind not in ("count", "sum"):
            raise NotSupportedError(
                f"{number.label} takes no relative utility (PERCENT)",
                hint="give half_width in the units of the number",
                position=number.position,
            )
        wish = checked(request.half_width, request.delta, True, number.position)
        return RelativeGoal(number, wish.half_width, float(wish.delta), budget)
    if request is not None:
        wish = checked(request.half_width, request.delta, False, number.position)
    else:
        wish = _default(number, asked, default)
    if number.kind == "avg":
        assert number.bounds is not None
        clip = float(number.bounds[0]), float(number.bounds[1])
        return AverageGoal(number, wish.half_width, float(wish.delta), budget, clip)
    return AbsoluteGoal(number, wish.half_width, float(wish.delta))


def _default(number: Number, asked: Callable[[], Wishes], default: Wishes) -> Request:
    """Return the policy's default for a number that the session says nothing of.

    What is good enough for a sum says nothing of a mean, which has its own or the session's.
    """
    found = default.of(number)
    if found is None and number.kind == "avg":
        found = asked().counts
    if found is None or found.relative:
        name = number.label if number.kind == "avg" else number.measure or number.label
        raise UtilityError(
            f"how good must {number.label} be? The query does not say, and there is no default "
            "for it; a pair of numbers without a name is the default of counts",
            hint="add WITH UTILITY (half_width, delta), for example WITH UTILITY (100, 0.05), "
            f"or name it: SET {UTILITY} = '{name} half_width, delta'",
            position=number.position,
        )
    return found


def reaches(goal: Goal) -> tuple[list[float], list[float]]:
    """Return how far each row may be off, with the confidence asked for and for all rows at once.

    Where rows rest on the same measurements, their noises are correlated, and those are widened so
    that √Σ (g · near)² still holds for sums Σ g n of rows.
    """
    used = goal._used if isinstance(goal, LinearGoal) else []
    if None in used or not used:
        return [math.inf] * goal.number.family.rows, [math.inf] * goal.number.family.rows
    found = [each for each in used if each is not None]
    near, far = goal.delta, goal.delta / len(found)
    wide = math.sqrt(correlation(found))
    return [wide * _reach(e, near) for e in found], [_reach(e, far) for e in found]


def _reach(estimator: Estimator, delta: float) -> float:
    """Return a half-width of a number alone that serves in sums: of Laplace noise, at least."""
    normal = math.sqrt(estimator.variance / 2) * math.log(1 / delta)
    return max(planning.half_width(estimator, delta), normal)


def companions(
    goal: Goal, answers: Sequence[Answer], history: History
) -> list[list[float | bool | None]]:
    """Return what else the statement shows of a number: [companion][row]."""
    return [
        [_companion(goal, companion, row, answer, history) for row, answer in enumerate(answers)]
        for companion in goal.number.companions
    ]


def _companion(
    goal: Goal, companion: Companion, row: int, answer: Answer, history: History
) -> float | bool | None:
    if companion.what == "probability":
        return goal.probability(history, row, companion)
    if companion.what == "present":  # of all values at once
        there = goal.probability(history, row, Companion("probability", Fraction(1)))
        return there is not None and there >= 1 - goal.delta / goal.number.family.rows
    value: float = getattr(answer, companion.what)
    return value
