"""Goals: how good each number of a statement must be, and what it is once that is reached.

An absolute goal (half_width in the units of the number) is met by one plan.  A relative goal
(``5 PERCENT``) and AVG depend on the size of what is asked for, so they are met in at most STEPS
public steps, each with confidence 1 - delta / STEPS, each a transaction of its own: a step looks
at released answers only.  Invariant: a goal reads the history, never the data.

AVG is a ratio S / C: its interval is the hull of {t in the clip: |Ŝ - tĈ| ≤ half_width(S - tC)},
right for every C ≥ 1, since S - tC is itself a linear query with a posterior of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

import numpy as np

from proxy.errors import OperationalError
from proxy.inference import plan as planning
from proxy.inference.family import Family
from proxy.inference.history import Block, Estimator, History, whole_multiples
from proxy.inference.plan import Wanted
from proxy.inference.query import common_grid, next_multiple
from proxy.sql.program import Extra, Number

STEPS = 5  # of a relative goal
SCOUT = Fraction(1, 100)  # of the budget: what the first look at an unknown number may cost
BUCKETS = 2  # half-widths are rounded down to this many steps an octave: rows then share a family
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
    unmet: int  # rows that were not yet as good as asked for, when ``wants`` last looked

    def wants(self, history: History) -> list[Wanted]:
        """Return the families that must be known, and how well, in the next step."""

    def known(self, history: History) -> bool:
        """Return whether there is something to say of every row, should no step be possible."""

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


class Linear:
    """What counts and sums share: each row is one linear query, with one estimator."""

    number: Number
    delta: float
    _used: list[Estimator | None]

    def probability(self, history: History, row: int, claim: Extra) -> float | None:
        """Return a lower bound on P(least ≤ number ≤ most), after ``answers``."""
        used = self._used[row]
        if used is None:
            return None
        return probability(used, history.exact(used), self.number, claim)

    def _answer(
        self, estimator: Estimator | None, history: History, paid: Mapping[int, Block]
    ) -> Answer:
        if estimator is None:
            raise OperationalError("the data was rebuilt while the statement ran", hint=AGAIN)
        estimate = float(history.exact(estimator) + self.number.shift)
        low, high = _around(estimate, self._reported(estimator))
        return Answer(estimate, low, high, 1 - self.delta, *source([estimator], paid))

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
    unmet: int = 0  # it is met, or refused
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
        return [self._answer(each, history, paid) for each in found[0]]

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
class Relative(Linear):
    """A count or sum within ``percent`` of its estimate, with confidence 1 - delta, in steps."""

    number: Number
    percent: Fraction
    delta: float
    scout: float  # alpha of the first look
    steps: int = STEPS
    unmet: int = 0
    _absolute: Absolute = field(init=False)
    _halves: dict[int, Fraction] = field(default_factory=dict)  # row -> half_width asked for
    _used: list[Estimator | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._absolute = Absolute(self.number, Fraction(1), self.delta / self.steps)

    def wants(self, history: History) -> list[Wanted]:
        """Return the rows in groups of like half-widths: what is now thought to be enough."""
        family, delta = self.number.family, self.delta / self.steps
        self.unmet = 0
        for row, known in enumerate(_known(history, family)):
            self.unmet += 1
            if known is None:
                half = _scouted(family, self.scout, delta)
            else:
                width = self._absolute.width(known, delta)
                size = abs(history.estimate(known) + float(self.number.shift))
                share = float(self.percent / 100)
                if width <= share * size or not known.rows.size:  # 0 in any case
                    half = Fraction(width) * Fraction(1 + 1e-9)
                    self.unmet -= 1
                elif size > 2 * width:
                    half = Fraction(share * (size - width) / (1 + share))
                else:
                    half = Fraction(width / 4)  # cannot yet be told from 0
            self._halves[row] = half
        return list(_bucketed(family, self._halves, delta))

    def known(self, history: History) -> bool:
        """Return whether there is an estimator of every row, however wide."""
        return None not in _known(history, self.number.family)

    def answers(self, history: History, found: Found, paid: Mapping[int, Block]) -> list[Answer]:
        """Return estimate and interval of every row from the history as it now is."""
        self._used = _known(history, self.number.family)
        return [self._answer(each, history, paid) for each in self._used]

    def expected(self, history: History, paid: Mapping[int, Block]) -> list[Expected]:
        """Return source and cost of the first step; how near it comes is not known before."""
        found = _known(history, self.number.family)
        return [(*source([each] if each else [], paid), None) for each in found]

    def _reported(self, estimator: Estimator) -> float:
        return self._absolute.width(estimator, self.delta / self.steps)


@dataclass(eq=False)
class Average:
    """AVG(measure) = mid + U / C, U = SUM - mid · COUNT, within ``half_width``, in steps."""

    number: Number
    half_width: Fraction
    delta: float
    scout: float
    clip: tuple[float, float]
    steps: int = STEPS
    unmet: int = 0
    _used: list[tuple[Estimator | None, Estimator | None]] = field(default_factory=list)

    @property
    def _counts(self) -> Family:
        assert self.number.denominator is not None
        return self.number.denominator

    def wants(self, history: History) -> list[Wanted]:
        """Return counts and sums, as well as the counts known so far make them needed."""
        sums, counts, delta = self.number.family, self._counts, self.delta / self.steps
        middle = float(self.number.shift)
        reach = max(self.clip[1] - middle, middle - self.clip[0])
        want_sum: dict[int, Fraction] = {}
        want_count: dict[int, Fraction] = {}
        both = zip(_known(history, sums), _known(history, counts), strict=True)
        self.unmet = 0
        for row, (top, bottom) in enumerate(both):
            self.unmet += 1
            if bottom is None:
                want_count[row] = _scouted(counts, self.scout, delta)
                continue
            if not bottom.rows.size:  # nobody can be in it, so it is NULL
                self.unmet -= 1
                continue
            width = planning.half_width(bottom, delta)
            size = max(history.estimate(bottom) - width, width / 2, 1.0)
            distance = reach
            if top is not None:
                if self._enough(history, top, bottom):
                    want_sum[row] = Fraction(planning.half_width(top, delta)) * Fraction(1 + 1e-9)
                    want_count[row] = Fraction(width) * Fraction(1 + 1e-9)
                    self.unmet -= 1
                    continue
                ratio = abs(history.estimate(top)) / size
                distance = min(reach, ratio + 2 * float(self.half_width))
            goal = float(self.half_width) * size
            want_sum[row] = Fraction(0.7 * goal)
            want_count[row] = Fraction(max(0.25 * goal / max(distance, 1e-9), 1e-6))
        return [*_bucketed(counts, want_count, delta), *_bucketed(sums, want_sum, delta)]

    def known(self, history: History) -> bool:
        """Return whether sum and count of every row have an estimator, however wide."""
        both = (self.number.family, self._counts)
        return not any(None in _known(history, family) for family in both)

    def answers(self, history: History, found: Found, paid: Mapping[int, Block]) -> list[Answer]:
        """Return ratio and interval of every row from the history as it now is."""
        both = zip(_known(history, self.number.family), _known(history, self._counts), strict=True)
        self._used = list(both)
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
        inside, outside = -RARE, RARE
        for end, sign, strict in zip((claim.least, claim.most), (1, -1), claim.strict, strict=True):
            if end is not None:  # sign · (U - (end - mid) C) is a multiple of its grid
                times = end - self.number.shift
                half = common_grid(self.number.family.grid, abs(times) * self._counts.grid) / 2
                value = sign * (history.exact(top) - times * history.exact(bottom))
                distance = value - half if strict else value + half
                law = difference(top, bottom, times)
                inside += below(law, -distance)
                outside += 1 - below(law, distance)
        if claim.negated:
            return max(inside, 0.0)
        return max(1 - outside, 0.0)

    def expected(self, history: History, paid: Mapping[int, Block]) -> list[Expected]:
        """Return source and cost of the first step; how near it comes is not known before."""
        both = zip(_known(history, self.number.family), _known(history, self._counts), strict=True)
        return [(*source([each for each in pair if each], paid), None) for pair in both]

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
            estimate = float(self.number.shift) + history.estimate(top) / under
            estimate = min(max(estimate, low), high)
            low = _edge(outside, estimate, low)
            high = _edge(outside, estimate, high)
        return Answer(estimate, low, high, 1 - self.delta, *source([top, bottom], paid))


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


def _known(history: History, family: Family) -> list[Estimator | None]:
    """Return the best estimator of every row of a family, however wide, where there is one."""
    matched = history.matching(family)
    found: list[Estimator | None] = []
    for row in range(family.rows):
        query = family.row(row)
        if family.rows <= planning.THOROUGH_ROWS:
            candidates = history.estimators(query)
        else:
            candidates = list(history.singles(query))
        if matched is not None:
            candidates = [matched[row], *candidates]
        found.append(min(candidates, key=lambda estimator: estimator.variance, default=None))
    return found


def _around(estimate: float, half: float) -> tuple[float, float]:
    """Return the ends of an interval, outwards where their rounding could lose one."""
    low, high = estimate - half, estimate + half
    if estimate == int(estimate) and half == int(half) and abs(estimate) + half < 2**52:
        return low, high  # exact
    room = 2 * math.ulp(abs(estimate) + half)
    return low - room, high + room


def _scouted(family: Family, alpha: float, delta: float) -> Fraction:
    """Return the half-width that a first look of so much alpha gives."""
    return Fraction(family.sensitivity * math.log(1 / delta) / alpha) * family.grid


def _bucketed(family: Family, halves: Mapping[int, Fraction], delta: float) -> Iterator[Wanted]:
    """Yield the rows of a family, those of like half-widths together."""
    buckets: dict[int, list[int]] = {}
    halves = {row: max(half, Fraction(1, 10**9)) for row, half in halves.items()}  # none is 0
    for row, half in halves.items():
        buckets.setdefault(math.floor(BUCKETS * math.log2(half)), []).append(row)
    for rows in buckets.values():
        yield Wanted(family.subset(rows), min(halves[row] for row in rows), delta)


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
    if extra.what == "present":
        there = goal.probability(history, row, Extra("probability", Fraction(1)))
        return there is not None and there >= 1 - goal.delta
    value: float = getattr(answer, extra.what)
    return value
