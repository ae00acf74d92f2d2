"""Infer or answer: what must be measured so that every number is as good as was asked for.

A number is inferred where some unbiased estimator from the history has
P(|θ - θ̂| ≤ half_width) ≥ 1 - delta by the law of the noise that was drawn.  Otherwise its query is
measured, with the least budget that is enough: the least rate of the lattice law for the new row
alone (paper, Theorem 5.3, corrected for integers), or less where the inequality itself was
evaluated together with the history.  Nothing here looks at an answer, so plans are public.

Units: half_width in answer units; rates in alpha per grid unit.
Source: Xiao & Xiong, Section 5 (framework, Theorem 5.3); topping up is ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from proxy.inference.estimator import Estimator
from proxy.inference.family import Family
from proxy.inference.geometric import GeometricSum
from proxy.inference.history import History
from proxy.inference.query import LinearQuery

THOROUGH_ROWS = 200  # in a larger family the first estimator that is enough is taken
QUICK_ROWS = 4000  # of a still larger family nothing is inferred but what was measured as it is
TOPPED_ROWS = 8  # so many rows are topped up one by one


@dataclass(frozen=True, eq=False)
class Wanted:
    """The rows of a family, each wanted within ``half_width`` with probability 1 - ``delta``."""

    family: Family
    half_width: Fraction
    delta: float


@dataclass(frozen=True, eq=False)
class Measurement:
    """A family to be measured with noise of this scale, in units of its grid."""

    family: Family
    scale: float
    wanted: int = 0  # the place of what it is for, among all that is wanted


@dataclass(frozen=True)
class Allocation:
    """How much budget a measurement gets: ``topup`` or the paper's, and never below a floor."""

    topup: bool = True
    floor: float = 0.0  # the least alpha of one measurement


def law(estimator: Estimator) -> GeometricSum:
    """Return the law of (θ̂ - θ) / unit, without the slack."""
    return _law(estimator.coefficients.tobytes(), estimator.rates.tobytes())


@lru_cache(maxsize=4096)
def _law(coefficients: bytes, rates: bytes) -> GeometricSum:
    """Return one law for all estimators that share it: it remembers what it has evaluated."""
    weights = np.frombuffer(rates)
    return GeometricSum(np.frombuffer(coefficients), weights, np.ones(len(weights)))


@lru_cache(maxsize=4096)
def _meets(law: GeometricSum, within: float, confidence: float) -> bool:
    return law.meets(within, confidence)


@lru_cache(maxsize=4096)
def _half_width(law: GeometricSum, confidence: float) -> float:
    return law.half_width(confidence)


def meets(estimator: Estimator, half_width: Fraction, delta: float) -> bool:
    """Return whether P(|θ - θ̂| ≤ half_width) ≥ 1 - delta is certain."""
    exact = half_width / estimator.unit
    within = float(exact)
    if within > exact:
        within = math.nextafter(within, 0.0)
    if estimator.slack > 1e-6 * within:
        return False
    return _meets(law(estimator), within - estimator.slack, 1 - delta)


def best(
    history: History, query: LinearQuery, half_width: Fraction, delta: float
) -> Estimator | None:
    """Return the estimator of least variance among those that are enough, if one is."""
    enough = [e for e in history.estimators(query) if meets(e, half_width, delta)]
    chosen = min(enough, key=lambda estimator: estimator.variance, default=None)
    if chosen is not None:
        history.keep(query, chosen)
    return chosen


def estimators(history: History, wanted: Wanted) -> list[Estimator | None]:
    """Return, for every row of a family, an estimator that is enough, or None."""
    family, half_width, delta = wanted.family, wanted.half_width, wanted.delta
    if not family.sensitivity:  # 0 in every row, whatever the data
        return [history.estimators(family.query * 0)[0]] * family.rows
    matched = history.matching(family)
    if matched is not None and meets(matched[0], half_width, delta):
        return list(matched)
    if family.rows > QUICK_ROWS:
        return [None] * family.rows
    if family.rows > THOROUGH_ROWS:
        return list(_quick(history, wanted))
    return [best(history, family.row(i), half_width, delta) for i in range(family.rows)]


def _quick(history: History, wanted: Wanted) -> Iterator[Estimator | None]:
    """Yield for each row of a large family what a single row or block says, if it is enough."""
    known: dict[tuple[Fraction, float, bytes, bytes], bool] = {}
    for index in range(wanted.family.rows):
        for found in history.singles(wanted.family.row(index)):
            law = found.coefficients.tobytes(), found.rates.tobytes()
            key = (found.unit, found.slack, *law)
            if key not in known:
                known[key] = meets(found, wanted.half_width, wanted.delta)
            if known[key]:
                yield found
                break
        else:
            yield None


def least_rate(half_width: Fraction, delta: float, grid: Fraction) -> float:
    """Return the least privacy loss per grid unit that meets a request by one row alone.

    The least r with 2 p^(k+1) / (1 + p) ≤ delta, p = exp(-r), k = ⌊half_width / grid⌋.
    """
    steps = half_width / grid // 1
    goal = math.log(delta * (1 - 1e-9) - 2e-12)  # the law's own allowance for rounding

    def excess(rate: float) -> float:
        return math.log(2) - (steps + 1) * rate - math.log1p(math.exp(-rate)) - goal

    low, high = 0.0, (math.log(2) - goal) / (steps + 1)
    while high - low > high * 2.0**-50:
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high


def paper_rate(half_width: Fraction, delta: float, grid: Fraction) -> float:
    """Return the paper's ln(1 / delta) / half_width, or more where integers need it."""
    return max(math.log(1 / delta) * float(grid / half_width), least_rate(half_width, delta, grid))


@dataclass(frozen=True, eq=False)
class Plan:
    """What to measure; where that is nothing, an estimator of every row of every number."""

    measurements: tuple[Measurement, ...]
    estimators: tuple[list[Estimator | None], ...]


def plan(history: History, wants: Sequence[Wanted], allocation: Allocation) -> Plan:
    """Return what to measure, and append it to the history, without answers.

    Later numbers are inferred from what is planned for earlier ones, so that a statement pays no
    number twice.  The caller fills in the answers, or truncates the history again.
    """
    planned: list[Measurement] = []
    known: list[list[Estimator | None]] = []
    for wanted in wants:
        known.append(estimators(history, wanted))
        missing = [i for i, found in enumerate(known[-1]) if found is None]
        if missing:
            part = wanted.family.subset(missing)
            scale = _scale(history, part, wanted, allocation)
            planned.append(Measurement(part, scale, len(known) - 1))
            history.append(part, scale)
    return Plan(tuple(planned), tuple(known))


def _scale(history: History, part: Family, wanted: Wanted, allocation: Allocation) -> float:
    """Return the largest noise scale with which every row of ``part`` will be good enough."""
    floor = allocation.floor / part.sensitivity
    if not allocation.topup:
        return scale_of(max(paper_rate(wanted.half_width, wanted.delta, part.grid), floor))
    alone = max(least_rate(wanted.half_width, wanted.delta, part.grid), floor)
    if part.rows > TOPPED_ROWS:
        return scale_of(alone)
    rates = [_topped(history, part.row(i), part.grid, wanted, alone) for i in range(part.rows)]
    scale = scale_of(max(*rates, floor))
    if scale <= scale_of(alone):
        return scale
    blocks = len(history.blocks)  # less than the new row alone needs: see that it is enough
    history.append(part, scale)
    enough = all(e is not None for e in estimators(history, Wanted(part, *_goal(wanted))))
    history.truncate(blocks)
    return scale if enough else scale_of(alone)


def _goal(wanted: Wanted) -> tuple[Fraction, float]:
    return wanted.half_width, wanted.delta


def _topped(
    history: History, query: LinearQuery, grid: Fraction, wanted: Wanted, alone: float
) -> float:
    """Return the least rate that is enough together with the best estimate so far."""
    known = history.estimators(query)
    if not known:
        return alone
    start = min(known, key=lambda estimator: estimator.variance)
    low, high = 0.0, alone
    for _ in range(14):
        middle = (low + high) / 2
        if meets(combined(start, middle, grid), *_goal(wanted)):
            high = middle
        else:
            low = middle
    return high


def combined(estimator: Estimator, rate: float, grid: Fraction) -> Estimator:
    """Return the best mixture of an estimator and a new answer, on ``grid``, to the query itself.

    The new row is numbered -1; it serves to evaluate the law only.
    """
    own = 2 * (float(grid) / (2 * math.sinh(min(rate, 500.0) / 2))) ** 2
    share = estimator.variance / (estimator.variance + own)  # of the new row
    return Estimator(
        estimator.unit,
        np.append(estimator.rows, -1),
        np.append(estimator.coefficients * (1 - share), float(grid / estimator.unit) * share),
        np.append(estimator.rates, rate),
        estimator.slack,
    )


def half_width(estimator: Estimator, delta: float) -> float:
    """Return half the length of the narrowest interval of confidence 1 - delta."""
    within = _half_width(law(estimator), 1 - delta) + estimator.slack
    return math.nextafter(within * float(estimator.unit), math.inf)


def scale_of(rate: float) -> float:
    """Return the noise scale for a privacy loss per grid unit, so that 1 / scale ≤ rate exactly."""
    return math.nextafter(1 / rate, math.inf)
