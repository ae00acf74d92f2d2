"""Goals: how good each number of a statement must be, and what it is once that is reached.

An absolute goal (half_width in the units of the number) is met by one plan.  A relative goal
(``5 PERCENT``) and AVG depend on the size of what is asked for, so they are met in at most STEPS
public steps, each with confidence 1 - delta / STEPS, each a transaction of its own: a step looks
at released answers only.  Rows are met one by one: what cannot be met is left out, or given up,
and costs the others nothing.  Invariant: a goal reads the history, never the data.

AVG is a ratio S / C: its interval is the hull of {t in the clip: |Ŝ - tĈ| ≤ half_width(S - tC)},
right for every C ≥ 1, since S - tC is itself a linear query with a posterior of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Protocol

import numpy as np

from proxy.errors import OperationalError
from proxy.inference import plan as planning
from proxy.inference import steps
from proxy.inference.family import Family
from proxy.inference.history import Block, Estimator, History, correlation, whole_multiples
from proxy.inference.plan import Wanted
from proxy.inference.query import common_grid, next_multiple
from proxy.inference.steps import SCOUT, STEPS, Look
from proxy.sql.program import Extra, Number

SHARE = 0.7  # of an average's half-width: for its sum, and for its count; they rarely add up
AGAIN = "send the statement again"
RARE = 1e-6  # the chance that is left of a ratio's denominator being nothing
POINTS = 4  # at which the interval of a ratio is looked for, to either side

Expected = tuple[str, float, float | None]

Found = Sequence[Sequence[Estimator | None]]  # for each wanted family, an estimator of every row


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

    def probability(self, history: History, row: int, claim: Extra) -> float | None:
        """Return a lower bound on P(least ≤ number ≤ most), after ``answers``."""

    def expected(self, history: History, paid: Mapping[int, Block]) -> list[Expected]:
        """Return source, cost and half-width of every row, if what is planned were measured."""


def source(estimators: Sequence[Estimator], paid: Mapping[int, Block]) -> tuple[str, float]:
    """Return whether a number rests on rows that this statement paid for, and what they cost."""
    used = {id(paid[r]): paid[r] for e in estimators for r in e.rows.tolist() if r in paid}
    cost = math.fsum(block.family.sensitivity / block.scale for block in used.values())
    return ("measured" if used else "inferred"), cost


class Looked:
    """What all goals share: the looks of rows that are met in steps."""

    looks: dict[int, Look]
    left_out: set[int]

    def unmet(self) -> tuple[int, int, int]:
        """Return how many rows were left out, were given up, and are not yet met, in steps."""
        rest = [x for row, x in self.looks.items() if row not in self.left_out and not x.met]
        lost = sum(not look.told for look in rest)
        return len(self.left_out), lost, len(rest) - lost


class Linear(Looked):
    """What counts and sums share: each row is one linear query, with one estimator."""

    number: Number
    delta: float
    _used: list[Estimator | None]

    def probability(self, history: History, row: int, claim: Extra) -> float | None:
        """Return a lower bound on P(least ≤ number ≤ most), after ``answers``."""
        used = self._used[row]
        if used is None:
            return None
        claim = _open(claim, self._possible(history, row))
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
class Absolute(Linear):
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


class Stepwise(Looked):
    """What is met in steps: a look at every row says what the next one wants of it."""

    families: tuple[Family, ...]
    budget: float
    delta: float
    steps: int

    def wants(self, history: History) -> list[Wanted]:
        """Return what the next step measures: rows in groups of like half-widths."""
        known = zip(
            *(steps.known(history, each, self._delta) for each in self.families), strict=True
        )
        looks = {row: self._look(history, row, *found) for row, found in enumerate(known)}
        self.looks = {row: steps.LEFT_OUT for row in self.left_out}
        rest = {row: look for row, look in looks.items() if row not in self.left_out}
        self.looks |= steps.capped(rest, self.families)
        return list(steps.bucketed(self.looks, self.families))

    def known(self, history: History) -> bool:
        """Return whether there is something to say of some row, should no step be possible."""
        columns = [steps.known(history, each, self._delta) for each in self.families]
        return any(None not in row for row in zip(*columns, strict=True))

    def expected(self, history: History, paid: Mapping[int, Block]) -> list[Expected]:
        """Return source and cost of the first step; how near it comes is not known before."""
        columns = [steps.known(history, each, self._delta) for each in self.families]
        rows = zip(*columns, strict=True)
        return [(*source([each for each in row if each], paid), None) for row in rows]

    @property
    def _delta(self) -> float:
        """What a step may miss."""
        return self.delta / self.steps

    def _first(self) -> Look:
        return steps.first(self.families[0], self.budget * float(SCOUT), self._delta)

    def _look(self, history: History, row: int, *found: Estimator | None) -> Look:
        """Return what the next step wants of a row, of which so much is known."""
        raise NotImplementedError


@dataclass(eq=False)
class Relative(Stepwise, Linear):
    """A count or sum within ``percent`` of its estimate, with confidence 1 - delta, in steps."""

    number: Number
    percent: Fraction
    delta: float
    budget: float  # alpha of a cell
    steps: int = STEPS
    looks: dict[int, Look] = field(default_factory=dict)
    left_out: set[int] = field(default_factory=set)
    _absolute: Absolute = field(init=False)
    _used: list[Estimator | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.families = (self.number.family,)
        self._absolute = Absolute(self.number, Fraction(1), self._delta)

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


@dataclass(eq=False)
class Average(Stepwise):
    """AVG(measure) = mid + U / C, U = SUM - mid · COUNT, within ``half_width``, in steps."""

    number: Number
    half_width: Fraction
    delta: float
    budget: float  # alpha of a cell
    clip: tuple[float, float]
    steps: int = STEPS
    looks: dict[int, Look] = field(default_factory=dict)
    left_out: set[int] = field(default_factory=set)
    _used: list[tuple[Estimator | None, Estimator | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        assert self.number.denominator is not None
        self.families = (self.number.denominator, self.number.family)

    def _look(self, history: History, row: int, *found: Estimator | None) -> Look:
        """Return what is wanted of count and sum, given the count known so far."""
        bottom, top = found
        if bottom is None:
            return self._first()
        if not bottom.rows.size:  # nobody can be in it, so it is NULL
            return steps.MET
        width, under = planning.half_width(bottom, self._delta), history.estimate(bottom)
        if under <= width:
            most = SHARE * float(self.half_width) * (under + width)
            sums = (self.families[1], Fraction(max(most, 0.0)), self._delta)
            if under + width < 1 or steps.price(*sums) > self.budget:
                return steps.LOST
            return steps.closer(self.families[0], width, self._delta)
        size, middle = max(under, 1.0), float(self.number.shift)
        distance = max(self.clip[1] - middle, middle - self.clip[0])
        if top is not None:
            if self._enough(history, top, bottom):
                return steps.MET
            ratio = abs(history.estimate(top)) / size
            distance = min(distance, ratio + 2 * float(self.half_width))
        goal = float(self.half_width) * size
        count = Fraction(max(SHARE * goal / max(distance, 1e-9), 1e-6))
        return self._asked(history, row, top is None, count, Fraction(SHARE * goal))

    def _asked(
        self, history: History, row: int, new: bool, count: Fraction, total: Fraction
    ) -> Look:
        """Return what is asked of count and sum: more than is known, since that was not enough.

        Where each is known within what the step asks for, with all of its delta, the ratio need not
        be: then they share the delta.
        """
        delta = self._delta
        for _ in range(steps.TIGHTENED):
            near = steps.inferred(history, self.families[0], row, count, delta)
            if new or not (near and steps.inferred(history, self.families[1], row, total, delta)):
                break
            delta, count, total = delta / 2, count * steps.TIGHTER, total * steps.TIGHTER
        wanted = ((0, count, delta),) if not near else ()
        return steps.priced(self.families, *wanted, (1, total, delta))

    def answers(self, history: History, found: Found, paid: Mapping[int, Block]) -> list[Answer]:
        """Return ratio and interval of every row from the history as it now is."""
        bottoms, tops = (steps.known(history, each, self._delta) for each in self.families)
        self._used = list(zip(tops, bottoms, strict=True))
        return [self._answer(history, top, bottom, paid) for top, bottom in self._used]

    def probability(self, history: History, row: int, claim: Extra) -> float | None:
        """Return a lower bound on P(least ≤ AVG ≤ most); None where C may well be 0.

        AVG ≤ t iff U - (t - mid) C ≤ 0, a linear query, where C > 0.
        """
        top, bottom = self._used[row]
        if top is None or bottom is None:
            return None
        under = history.estimate(bottom)
        if planning.law(bottom).cdf(-under / float(bottom.unit)).upper > RARE:
            return None
        claim = _open(claim, self.clip)
        inside, outside = -RARE, RARE
        for end, sign, strict in zip((claim.least, claim.most), (1, -1), claim.strict, strict=True):
            if end is not None:  # sign · (U - (end - mid) C) is a multiple of its grid
                times = end - self.number.shift
                grid = abs(times) * self.families[0].grid
                half = common_grid(self.number.family.grid, grid) / 2
                value = sign * (history.exact(top) - times * history.exact(bottom))
                distance = value - half if strict else value + half
                law = difference(top, bottom, times)
                inside += below(law, -distance)
                outside += 1 - below(law, distance)
        if claim.negated:
            return max(inside, 0.0)
        return max(1 - outside, 0.0)

    def _outside(
        self, history: History, top: Estimator, bottom: Estimator
    ) -> Callable[[float], bool]:
        """Return whether |Û - (t - mid) Ĉ| is more than the half-width of U - (t - mid) C."""
        middle, delta = float(self.number.shift), self.delta / self.steps
        over, under = history.estimate(top), history.estimate(bottom)

        def outside(t: float) -> bool:
            posterior = difference(top, bottom, Fraction(t - middle))
            value = abs(over - (t - middle) * under) / float(posterior.unit) - posterior.slack
            return value > 0 and planning.law(posterior).meets(value * (1 - 1e-9), 1 - delta)

        return outside

    def _enough(self, history: History, top: Estimator, bottom: Estimator) -> bool:
        """Return whether the interval is no longer than was asked for."""
        under = history.estimate(bottom)
        if under <= 0:  # NULL, somewhere in the clip
            return self.clip[1] - self.clip[0] <= 2 * float(self.half_width)
        ratio = float(self.number.shift) + history.estimate(top) / under
        outside, half = self._outside(history, top, bottom), float(self.half_width)
        ends = (ratio - half, ratio + half)
        return all(not self.clip[0] < end < self.clip[1] or outside(end) for end in ends)

    def _answer(
        self,
        history: History,
        top: Estimator | None,
        bottom: Estimator | None,
        paid: Mapping[int, Block],
    ) -> Answer:
        low, high = self.clip
        if top is None or bottom is None:
            used = [each for each in (top, bottom) if each]
            return Answer(math.nan, low, high, 1 - self.delta, *source(used, paid))
        estimate, under = math.nan, history.estimate(bottom)
        if under > 0:
            outside = self._outside(history, top, bottom)
            middle = float(self.number.shift) + history.estimate(top) / under
            middle = min(max(middle, low), high)
            low, high = _edge(outside, middle, low), _edge(outside, middle, high)
            if under > planning.half_width(bottom, self._delta):  # else it may be of nobody
                estimate = middle
        return Answer(estimate, low, high, 1 - self.delta, *source([top, bottom], paid))


def _open(claim: Extra, possible: tuple[float, float]) -> Extra:
    """Return a claim without the ends that nothing can be beyond."""
    low, high = possible
    least, most = claim.least, claim.most
    if least is not None and (least < low or (least == low and not claim.strict[0])):
        least = None
    if most is not None and (most > high or (most == high and not claim.strict[1])):
        most = None
    return replace(claim, least=least, most=most)


def probability(used: Estimator, estimate: float | Fraction, number: Number, claim: Extra) -> float:
    """Return a lower bound on the probability of a claim about θ = estimate + shift - X.

    Whatever the data, θ is the shift plus a multiple of the grid: an end that matters is half-way
    between two of these, one that satisfies the claim and one that does not.
    """
    shift, half = number.shift, number.family.grid / 2
    center = Fraction(estimate) + shift
    least = most = None  # how far θ may lie below, above the estimate
    if claim.least is not None:
        first = next_multiple(claim.least, claim.strict[0], shift, 2 * half)
        least = center - first + half
    if claim.most is not None:
        first = next_multiple(-claim.most, claim.strict[1], -shift, 2 * half)
        most = half - first - center
    ends = [end for end in (least, most) if end is not None]
    if claim.negated:
        return min(sum(below(used, -end) for end in ends), 1.0)
    if len(ends) == 2:
        return between(used, -ends[1], ends[0])
    return below(used, ends[0]) if ends else 1.0


def below(used: Estimator, distance: Fraction) -> float:
    """Return a lower bound on P(X < distance), X the estimator's noise."""
    law, t = planning.law(used), _steps(used, distance)
    if t > 0:
        return (1 + law.bracket(t, closed=False).lower) / 2
    return (1 - law.bracket(-t).upper) / 2


def between(used: Estimator, low: Fraction, high: Fraction) -> float:
    """Return a lower bound on P(low < X < high), X the estimator's noise."""
    law, left, right = planning.law(used), -_steps(used, -low), _steps(used, high)
    if left >= right:
        return 0.0
    if left < 0 < right:
        return sum(law.bracket(t, closed=False).lower for t in (-left, right)) / 2
    near, far = sorted((abs(left), abs(right)))
    return max((law.bracket(far, closed=False).lower - law.bracket(near).upper) / 2, 0.0)


def _steps(used: Estimator, distance: Fraction) -> float:
    """Return a distance in units of the estimator, less its possible bias, rounded down."""
    exact = distance / used.unit - Fraction(used.slack)
    rounded = float(exact)
    return rounded if rounded <= exact else math.nextafter(rounded, -math.inf)


def difference(left: Estimator, right: Estimator, times: Fraction) -> Estimator:
    """Return the estimator of left - times · right: the law of one linear query."""
    coefficients: dict[int, Fraction] = {}
    rates: dict[int, float] = {}
    for estimator, factor in ((left, Fraction(1)), (right, -times)):
        unit = estimator.unit * factor / left.unit
        for row, a, rate in zip(
            estimator.rows.tolist(), estimator.coefficients.tolist(), estimator.rates, strict=True
        ):
            coefficients[row] = coefficients.get(row, Fraction(0)) + unit * Fraction(a)
            rates[row] = float(rate)
    rows = [row for row, a in coefficients.items() if a]
    step, whole, _ = whole_multiples([coefficients[row] for row in rows])
    return Estimator(
        left.unit * step,
        np.array(rows, dtype=np.int64),
        whole,
        np.array([rates[row] for row in rows]),
        (left.slack + float(abs(times) * right.unit / left.unit) * right.slack) / float(step),
    )


def _edge(outside: Callable[[float], bool], inner: float, outer: float) -> float:
    """Return the end of the set of inner points towards ``outer``: its hull, never less."""
    if not outside(outer):
        return outer
    points = [outer + (inner - outer) * i / POINTS for i in range(POINTS + 1)]
    far = next((i for i in range(1, POINTS + 1) if not outside(points[i])), POINTS)
    bad, good = points[far - 1], points[far]
    for _ in range(14):
        middle = (bad + good) / 2
        if outside(middle):
            bad = middle
        else:
            good = middle
    return bad


def _around(estimate: float, half: float) -> tuple[float, float]:
    """Return the ends of an interval, outwards where their rounding could lose one."""
    low, high = estimate - half, estimate + half
    if estimate == int(estimate) and half == int(half) and abs(estimate) + half < 2**52:
        return low, high  # exact
    room = 2 * math.ulp(abs(estimate) + half)
    return low - room, high + room


def reaches(goal: Goal) -> tuple[list[float], list[float]]:
    """Return how far each row may be off, with the confidence asked for and for all rows at once.

    Where rows rest on the same measurements, their noises are correlated, and those are widened so
    that √Σ (g · near)² still holds for sums Σ g n of rows.
    """
    used = goal._used if isinstance(goal, Linear) else []
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


def extras(
    goal: Goal, answers: Sequence[Answer], history: History
) -> list[list[float | bool | None]]:
    """Return what else the statement shows of a number: [extra][row]."""
    return [
        [_extra(goal, extra, row, answer, history) for row, answer in enumerate(answers)]
        for extra in goal.number.extras
    ]


def _extra(
    goal: Goal, extra: Extra, row: int, answer: Answer, history: History
) -> float | bool | None:
    if extra.what == "probability":
        return goal.probability(history, row, extra)
    if extra.what == "present":  # of all values at once
        there = goal.probability(history, row, Extra("probability", Fraction(1)))
        return there is not None and there >= 1 - goal.delta / goal.number.family.rows
    value: float = getattr(answer, extra.what)
    return value
