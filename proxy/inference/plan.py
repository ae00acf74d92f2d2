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
from fractions import Fraction
from functools import lru_cache
from typing import Protocol
from weakref import WeakValueDictionary

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from proxy.inference.dense_system import MeasuredFamily, key_of
from proxy.inference.estimator import Cancellation, Estimator, never_cancel
from proxy.inference.family import MAX_ROWS_INFERRED, Family
from proxy.inference.geometric import GeometricSum
from proxy.inference.geometric import look_ahead as together
from proxy.inference.geometric import look_at as together_at
from proxy.inference.history import History
from proxy.inference.least import least_argument
from proxy.inference.query import LinearQuery

SHORT = 512  # terms of a law that is remembered beside many others
MAX_ROWS_BEST = 200  # in a larger family the first estimator that is enough is taken
MAX_ROWS_TOPPED_UP = 8  # a larger family is measured as if nothing were known


class AccuracyTarget(Struct, frozen=True, eq=False):
    """The rows of a family, each wanted within ``half_width`` with probability 1 - ``delta``."""

    family: Family
    half_width: Fraction
    delta: float


class PlannedMeasurement(Struct, frozen=True, eq=False):
    """A block to be measured with the noise that it has in the history; or to be refined."""

    block: MeasuredFamily
    scale: float  # in units of the grid of its family
    target: int = 0  # the place, among all targets, of the one that it is for
    before: float | None = None  # the scale of the answers that are refined
    piece: bool = False  # whether it is in the place of what was asked for

    @property
    def family(self) -> Family:
        """What is measured."""
        return self.block.family


class Allocation(Struct, frozen=True):
    """How much budget a measurement gets: ``topup`` or the paper's, and never below a floor.

    ``strategy`` may measure something else, from which what is asked for then follows.
    """

    topup: bool = True
    floor: float = 0.0  # the least alpha of one measurement
    strategy: Strategy | None = None


class Strategy(Protocol):
    """What is measured in the place of a query: strategies.Bases conforms."""

    def append(
        self, history: History, target: AccuracyTarget, floor: float, cancellation: Cancellation
    ) -> Sequence[Measuring] | None:
        """Append blocks to the history, or refine some, so that every row of a target is good
        enough; None where it has nothing for it.
        """


Measuring = tuple[MeasuredFamily, float | None]  # and the scale before, of one that is refined


def law(estimator: Estimator) -> GeometricSum:
    """Return the law of (θ̂ - θ) / unit, without the slack."""
    of = estimator.coefficients.tobytes(), estimator.rates.tobytes()
    return _law(*of) if _short(estimator) else _long_law(*of)


def _short(estimator: Estimator) -> bool:
    return len(estimator.rows) <= SHORT


@lru_cache(maxsize=64)
def _long_law(coefficients: bytes, rates: bytes) -> GeometricSum:
    """Return the law of many terms, of which few are remembered."""
    return _law.__wrapped__(coefficients, rates)


@lru_cache(maxsize=4096)
def _law(coefficients: bytes, rates: bytes) -> GeometricSum:
    """Return one law for all estimators that share it: it remembers what it has evaluated.

    Those of the rows of a family mostly have the same terms, in another order.
    """
    weights = np.frombuffer(rates)
    law = GeometricSum(np.frombuffer(coefficients), weights, np.ones(len(weights)))
    return _laws.setdefault(law.terms, law)


_laws = WeakValueDictionary[bytes, GeometricSum]()  # by their terms


@lru_cache(maxsize=4096)
def _meets(law: GeometricSum, within: float, confidence: float) -> bool:
    return law.meets(within, confidence)


@lru_cache(maxsize=4096)
def _look(law: GeometricSum, within: float, confidence: float) -> tuple[bool, float]:
    return law.look(within, confidence)


@lru_cache(maxsize=4096)
def _half_width(law: GeometricSum, confidence: float) -> float:
    return law.half_width(confidence)


def meets(estimator: Estimator, half_width: Fraction, delta: float) -> bool:
    """Return whether P(|θ - θ̂| ≤ half_width) ≥ 1 - delta is certain."""
    room = _room(estimator, half_width)
    evaluated = _meets if _short(estimator) else GeometricSum.meets
    return room is not None and evaluated(law(estimator), room, 1 - delta)


def _room(estimator: Estimator, half_width: Fraction) -> float | None:
    """Return what of a half-width is left for the noise, in units; None where it is too little."""
    exact = half_width / estimator.unit
    within = float(exact)
    if within > exact:
        within = math.nextafter(within, 0.0)
    return None if estimator.slack > 1e-6 * within else within - estimator.slack


def best(
    history: History,
    query: LinearQuery,
    half_width: Fraction,
    delta: float,
    cancellation: Cancellation = never_cancel,
) -> Estimator | None:
    """Return the estimator of least variance among those that are enough, if one is."""
    for found in _candidates(history, query, cancellation):
        for estimator in sorted(found, key=lambda estimator: estimator.variance):
            if meets(estimator, half_width, delta):
                history.good_enough.add(key_of(query), estimator)
                return estimator
    return None


def _candidates(
    history: History, query: LinearQuery, cancellation: Cancellation
) -> Iterator[Sequence[Estimator]]:
    """Yield estimators of a query, those last that other processes may not remember."""
    yield history.estimators(query, cancellation)
    yield history.estimators(query, cancellation, deep=True)
    yield history.good_enough.get(key_of(query))


def estimators(
    history: History, target: AccuracyTarget, cancellation: Cancellation = never_cancel
) -> list[Estimator | None]:
    """Return, for every row of a family, an estimator that is enough, or None."""
    family, half_width, delta = target.family, target.half_width, target.delta
    if not family.sensitivity:  # 0 in every row, whatever the data
        return [history.estimators(family.query * 0)[0]] * family.rows
    matched = history.singles.matching(family)
    if matched is not None and meets(matched[0], half_width, delta):
        return list(matched)
    if family.rows > MAX_ROWS_INFERRED:
        return [None] * family.rows
    if family.rows > MAX_ROWS_BEST:
        return list(_first_enough(history, target, cancellation))
    rows = family.queries()
    history.prepare(family, rows, cancellation)
    if len(rows) > 1:
        known = [history.estimators(row, cancellation) for row in rows]
        look_at([min(each, key=lambda one: one.variance) for each in known if each], half_width)
    return [best(history, row, half_width, delta, cancellation) for row in rows]


def _first_enough(
    history: History, target: AccuracyTarget, cancellation: Cancellation
) -> Iterator[Estimator | None]:
    """Yield for each row of a large family the first estimator from one row or block, if enough."""
    enough: dict[tuple[Fraction, float, bytes, bytes], bool] = {}  # by law, which rows share
    for index in range(target.family.rows):
        for estimator in history.alone(target.family.row(index), cancellation):
            law = estimator.coefficients.tobytes(), estimator.rates.tobytes()
            key = (estimator.unit, estimator.slack, *law)
            if key not in enough:
                enough[key] = meets(estimator, target.half_width, target.delta)
            if enough[key]:
                yield estimator
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


def price(family: Family, half_width: Fraction, delta: float) -> float:
    """Return the alpha of a row of a family that is measured by itself."""
    return least_rate(half_width, delta, family.grid) * family.sensitivity


def paper_rate(half_width: Fraction, delta: float, grid: Fraction) -> float:
    """Return the paper's ln(1 / delta) / half_width, or more where integers need it."""
    return max(math.log(1 / delta) * float(grid / half_width), least_rate(half_width, delta, grid))


class Plan(Struct, frozen=True, eq=False):
    """What to measure; only where that is nothing, an estimator of every row of every number."""

    measurements: tuple[PlannedMeasurement, ...]
    estimators: tuple[list[Estimator | None], ...]


def plan(
    history: History,
    targets: Sequence[AccuracyTarget],
    allocation: Allocation,
    cancellation: Cancellation = never_cancel,
) -> Plan:
    """Return what to measure, and append it to the history, without answers.

    Later numbers are inferred from what is planned for earlier ones, so that a statement pays no
    number twice.  The caller fills in the answers, or truncates the history again.
    """
    planned: list[PlannedMeasurement] = []
    inferred: list[list[Estimator | None]] = []
    for place, target in enumerate(targets):
        missing, found = _missing(history, target, cancellation)
        inferred.append(found)
        if missing:
            part = replace(target, family=target.family.subset(missing))
            pieces = None
            if allocation.strategy is not None:
                floor = allocation.floor
                pieces = allocation.strategy.append(history, part, floor, cancellation)
            if pieces is None:
                block = _append(history, part, allocation, cancellation)
                planned.append(PlannedMeasurement(block, block.scale, place))
                continue
            planned += [
                PlannedMeasurement(block, block.scale, place, before, piece=True)
                for block, before in pieces
            ]
            if not pieces:  # with what is there it is good enough
                inferred[-1] = []
    if planned:
        return Plan(_last(planned), ())
    pairs = zip(targets, inferred, strict=True)
    return Plan(
        (), tuple(found or estimators(history, each, cancellation) for each, found in pairs)
    )


def _missing(
    history: History, target: AccuracyTarget, cancellation: Cancellation
) -> tuple[list[int], list[Estimator | None]]:
    """Return the rows of a target that no estimator is enough for, and, if all were looked at, the
    estimators of all.

    A row for which a remembered estimator is enough is not looked at: from what it is best
    estimated is another question, to be asked when it is known that nothing is measured.
    """
    family = target.family
    rest = list(range(family.rows))
    if 1 < family.rows <= MAX_ROWS_BEST:
        known = [history.good_enough.get(key_of(row)) for row in family.queries()]
        look_at([each[-1] for each in known if each], target.half_width)
        rest = [
            i
            for i, each in enumerate(known)
            if not any(meets(one, target.half_width, target.delta) for one in each)
        ]
    if not rest:
        return [], []
    found = estimators(history, replace(target, family=family.subset(rest)), cancellation)
    missing = [i for i, estimator in zip(rest, found, strict=True) if estimator is None]
    return missing, found if len(rest) == family.rows else []


def _last(planned: Sequence[PlannedMeasurement]) -> tuple[PlannedMeasurement, ...]:
    """Return each block once, as it is in the end; ``before`` as it was in the beginning."""
    found: dict[int, PlannedMeasurement] = {}
    for each in planned:
        first = found.setdefault(each.block.start, each)
        found[each.block.start] = replace(first, scale=each.block.scale)
    return tuple(found.values())


def _append(
    history: History, target: AccuracyTarget, allocation: Allocation, cancellation: Cancellation
) -> MeasuredFamily:
    """Append a target with the largest noise scale with which every row of it is good enough.

    Where that rests on the history, the estimators are remembered: floats may not find them again
    once it is longer.  So are those of a family by itself, beside which others of less variance,
    but with a wider interval, may come.
    """
    part, half, delta = target.family, target.half_width, target.delta
    floor = allocation.floor / part.sensitivity
    least = least_rate if allocation.topup else paper_rate
    single_row_rate = max(least(half, delta, part.grid), floor)
    alone = scale_of(single_row_rate)
    if allocation.topup and part.rows <= MAX_ROWS_TOPPED_UP:
        rates = []
        for row in part.queries():
            known = history.estimators(row, cancellation)
            rates.append(_top_up_rate(known, part.grid, target, single_row_rate))
        scale, mark = scale_of(max(*rates, floor)), history.mark
        if scale > alone:  # less than the new row alone needs: see that it is enough
            block = history.append(part, scale)
            if None not in estimators(history, target, cancellation):
                return block
            history.take_back(mark)
    block = history.append(part, alone)
    if part.rows <= MAX_ROWS_BEST:  # else each is looked for in every family
        for row, estimator in zip(
            part.queries(), history.singles.matching(part) or (), strict=False
        ):
            history.good_enough.add(key_of(row), estimator)
    return block


def _top_up_rate(
    known: Sequence[Estimator], grid: Fraction, target: AccuracyTarget, single_row_rate: float
) -> float:
    """Return the least rate of a new row that is enough together with the best known estimator."""
    if not known:
        return single_row_rate
    start = min(known, key=lambda estimator: estimator.variance)
    room = _room(start, target.half_width)
    if room is None:
        return single_row_rate
    alone, evaluated = law(start), _look if _short(start) else GeometricSum.look

    def look(rate: float) -> tuple[bool, float]:
        mixture = topped_up(start, alone, rate, grid) if rate else alone
        return evaluated(mixture, room, 1 - target.delta)

    return least_argument(look, single_row_rate, 2**14, target.delta)


def topped_up(
    estimator: Estimator, alone: GeometricSum, rate: float, grid: Fraction
) -> GeometricSum:
    """Return the law of the best mixture of an estimator, of a law ``alone``, and a new answer, on
    ``grid``, to the query itself, in units of the estimator.
    """
    own = 2 * (float(grid) / (2 * math.sinh(min(rate, 500.0) / 2))) ** 2
    share = estimator.variance / (estimator.variance + own)  # of the new row
    mixture = _mixture if _short(estimator) else GeometricSum.mixed
    return mixture(alone, 1 - share, float(grid / estimator.unit) * share, rate)


_mixture = lru_cache(maxsize=4096)(GeometricSum.mixed)


def look_ahead(estimators: Sequence[Estimator], delta: float) -> None:
    """Prepare the half-widths of several estimators, of those whose laws are remembered."""
    laws = dict.fromkeys(law(estimator) for estimator in estimators if _short(estimator))
    together(list(laws), 1 - delta)


def look_at(estimators: Sequence[Estimator], half_width: Fraction) -> None:
    """Prepare whether several estimators are enough, of those whose laws are remembered."""
    rooms = {law(each): _room(each, half_width) for each in estimators if _short(each)}
    known = {law: room for law, room in rooms.items() if room is not None}
    together_at(list(known), list(known.values()))


def half_width(estimator: Estimator, delta: float) -> float:
    """Return half the length of the narrowest interval of confidence 1 - delta."""
    evaluated = _half_width if _short(estimator) else GeometricSum.half_width
    within = evaluated(law(estimator), 1 - delta) + estimator.slack
    return math.nextafter(within * float(estimator.unit), math.inf)


def scale_of(rate: float) -> float:
    """Return the noise scale for a privacy loss per grid unit, so that 1 / scale ≤ rate exactly."""
    return math.nextafter(1 / rate, math.inf)
