"""AVG: within a half-width, in steps.

AVG is a ratio S / C: its interval is the hull of {t in the clip: |Ŝ - tĈ| ≤ half_width(S - tC)},
right for every C ≥ 1, since S - tC is itself a linear query with a posterior of its own.  Per cent
are those of the mean that is known so far: at first, of the largest that it can be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from proxy.engine.answers import Answer
from proxy.engine.bill import source
from proxy.engine.claims import below, open_ended
from proxy.engine.goals.stepwise import StepwiseGoal
from proxy.engine.progress import RowEstimators, rather
from proxy.inference import plan as planning
from proxy.inference import steps
from proxy.inference.dense_system import MeasuredFamily
from proxy.inference.estimator import Cancellation, Estimator
from proxy.inference.family import Family
from proxy.inference.history import History
from proxy.inference.ratio import (
    Differences,
    Found,
    Search,
    all_so,
    difference,
    hull_end,
    together,
)
from proxy.inference.space import common_grid
from proxy.inference.steps import STEPS, Look
from proxy.sql.program import Companion, Number

SHARE = 0.7  # of an average's half-width: for its sum, and for its count; they rarely add up
RARE = 1e-6  # the chance that is left of a ratio's denominator being nothing


class AverageGoal(StepwiseGoal, Struct, frozen=True, eq=False):
    """AVG(x) = mid + U / C, U = SUM - mid · COUNT, within ``half_width``, in steps.

    The half-width is in the units of x, or in per cent of the mean where ``relative``.
    """

    number: Number
    half_width: Fraction
    delta: float
    budget: float  # alpha that any cell can pay
    first: float  # alpha of the first look
    clip: tuple[float, float]
    relative: bool = False
    steps: int = STEPS

    @property
    def families(self) -> tuple[Family, ...]:
        """Count and sum."""
        assert self.number.denominator is not None
        return self.number.denominator, self.number.family

    @property
    def asked(self) -> tuple[Fraction, bool]:
        """The half-width, and whether it is in per cent."""
        return self.half_width, self.relative

    def reached(self, answers: Sequence[Answer]) -> str:
        """Return how near the answers came, in words."""
        halves = [(answer.high - answer.low) / 2 for answer in answers]
        if not self.relative:
            return rather(halves, self.half_width)
        sizes = [abs(answer.estimate) or math.nan for answer in answers]
        percents = [100 * half / size for half, size in zip(halves, sizes, strict=True)]
        return rather(percents, self.half_width, "%")

    def _looks(
        self, history: History, rows: Sequence[RowEstimators], cancellation: Cancellation
    ) -> Iterator[Look]:
        pairs = [(top, bottom) for bottom, top in rows if bottom and top]
        enough = iter(self._enough(history, pairs))
        for row, estimators in enumerate(rows):
            met = None not in estimators and next(enough)
            yield self._look(history, row, estimators, met, cancellation)

    def _look(
        self,
        history: History,
        row: int,
        estimators: RowEstimators,
        enough: bool,
        cancellation: Cancellation,
    ) -> Look:
        """Return what is wanted of count and sum, given the count known so far, and whether the
        interval that both have is short enough.
        """
        bottom, top = estimators
        if bottom is None:
            return self._first()
        if not bottom.rows.size:  # nobody can be in it, so it is NULL
            return steps.MET
        width, under = planning.half_width(bottom, self._delta), history.estimate(bottom)
        if under <= width:
            most = SHARE * self._within(self._largest) * (under + width)
            sums = (self.families[1], Fraction(max(most, 0.0)), self._delta)
            if under + width < 1 or steps.price(*sums) > self.budget:
                return steps.LOST
            return steps.closer(self.families[0], width, self._delta)
        size, middle = max(under, 1.0), float(self.number.shift)
        distance = max(self.clip[1] - middle, middle - self.clip[0])
        within, told = self._within(self._largest), True
        if top is not None:
            if enough:
                return steps.MET
            ratio = abs(history.estimate(top)) / size
            if self.relative:
                within, told = self._next(history, top, bottom)
            distance = min(distance, ratio + 2 * within)
        goal = within * size
        count = Fraction(max(SHARE * goal / max(distance, 1e-9), 1e-6))
        total = Fraction(SHARE * goal)
        look = self._asked(history, row, top is None, count, total, cancellation)
        if told:
            return look
        return replace(look, told=False) if look.price <= self.budget else steps.LOST

    @property
    def _largest(self) -> float:
        """The largest size that a mean can have."""
        return max(abs(self.clip[0]), abs(self.clip[1]))

    def _within(self, size: float) -> float:
        """Return the half-width that a mean of this size may have."""
        half = float(self.half_width)
        return half / 100 * size if self.relative else half

    def _next(self, history: History, top: Estimator, bottom: Estimator) -> tuple[float, bool]:
        """Return the half-width to ask for next, of a relative goal; and whether it tells the mean
        from 0, which else it may do next time.
        """
        ((_, low, high),) = self._intervals(history, [(top, bottom)])
        share, width = float(self.half_width / 100), (high - low) / 2
        size = abs(low + high) / 2
        if size <= width:
            return width / steps.CLOSER, False
        half = share * (size - width) / (1 + share)
        return (max(half, width / steps.CLOSER) if size <= 2 * width else half), True

    def _asked(
        self,
        history: History,
        row: int,
        new: bool,
        count: Fraction,
        total: Fraction,
        cancellation: Cancellation,
    ) -> Look:
        """Return what is asked of count and sum: more than is known, since that was not enough.

        Where each is known within what the step asks for, with all of its delta, the ratio need not
        be: then they share the delta.
        """
        delta = self._delta

        def inferred(which: int, half: Fraction) -> bool:
            return steps.inferred(history, self.families[which], row, half, delta, cancellation)

        for _ in range(steps.TIGHTENED):
            near = inferred(0, count)
            if new or not (near and inferred(1, total)):
                break
            delta, count, total = delta / 2, count * steps.TIGHTER, total * steps.TIGHTER
        count_too = ((0, count, delta),) if not near else ()
        return steps.priced(self.families, *count_too, (1, total, delta))

    def answers(
        self,
        history: History,
        estimators: Sequence[RowEstimators],
        left_out: frozenset[int],
        paid: Mapping[int, MeasuredFamily],
    ) -> list[Answer]:
        """Return ratio and interval of every row."""
        pairs = [(top, bottom) for bottom, top in estimators if bottom and top]
        known, answers = iter(self._intervals(history, pairs)), []
        for row in estimators:
            both = None not in row
            ends = next(known) if both else (math.nan, *self.clip)
            answers.append(Answer(*ends, 1 - self.delta, *source([e for e in row if e], paid)))
        return answers

    def probability(
        self, history: History, row: int, estimators: RowEstimators, claim: Companion
    ) -> float | None:
        """Return a lower bound on P(least ≤ AVG ≤ most); None where C may well be 0.

        AVG ≤ t iff U - (t - mid) C ≤ 0, a linear query, where C > 0.
        """
        bottom, top = estimators
        if top is None or bottom is None:
            return None
        under = history.estimate(bottom)
        if planning.law(bottom).cdf(-under / float(bottom.unit)).upper > RARE:
            return None
        claim = open_ended(claim, self.clip)
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

    def _enough(self, history: History, pairs: Sequence[tuple[Estimator, Estimator]]) -> list[bool]:
        """Return of every pair of sum and count whether its interval is as short as was asked."""
        if self.relative:
            intervals = self._intervals(history, pairs)
            return [
                max(high - mean, mean - low) <= self._within(abs(mean))
                for mean, low, high in intervals
            ]
        half, searches, owners = float(self.half_width), [], []
        enough = [self.clip[1] - self.clip[0] <= 2 * half] * len(pairs)  # of NULL, in the clip
        for i, (top, bottom) in enumerate(pairs):
            if (under := history.estimate(bottom)) > 0:
                ratio = float(self.number.shift) + history.estimate(top) / under
                ends = [ratio - half, ratio + half]
                searches.append(all_so([e for e in ends if self.clip[0] < e < self.clip[1]]))
                owners.append(i)
        for i, found in zip(owners, self._found(history, pairs, owners, searches), strict=True):
            enough[i] = found
        return enough

    def _intervals(
        self, history: History, pairs: Sequence[tuple[Estimator, Estimator]]
    ) -> list[tuple[float, float, float]]:
        """Return of every pair of sum and count the mean, NaN where it may be of nobody, and the
        ends of its interval.
        """
        shift = float(self.number.shift)
        means, searches, owners = [], [], []
        for i, (top, bottom) in enumerate(pairs):
            means.append(math.nan)
            if (under := history.estimate(bottom)) > 0:
                mean = shift + history.estimate(top) / under
                means[i] = min(max(mean, self.clip[0]), self.clip[1])
                searches += [hull_end(means[i], end) for end in self.clip]
                owners += [i, i]
        ends = iter(self._found(history, pairs, owners, searches))
        intervals = []
        for mean, (_, bottom) in zip(means, pairs, strict=True):
            low, high = self.clip if math.isnan(mean) else (next(ends), next(ends))
            if history.estimate(bottom) <= planning.half_width(bottom, self._delta):
                mean = math.nan  # it may be of nobody
            intervals.append((mean, low, high))
        return intervals

    def _found(
        self,
        history: History,
        pairs: Sequence[tuple[Estimator, Estimator]],
        owners: Sequence[int],
        searches: Sequence[Search[Found]],
    ) -> list[Found]:
        """Return what searches find that ask whether means are outside of the intervals of pairs of
        sum and count; ``owners`` says of which.
        """
        over, under = (
            np.array([history.estimate(pair[side]) for pair in pairs]) for side in (0, 1)
        )
        laws, shift = Differences.of(pairs), float(self.number.shift)

        def outside(places: list[int], points: list[float]) -> list[bool]:
            rows, times = np.array([owners[place] for place in places]), np.array(points) - shift
            values = np.abs(over[rows] - times * under[rows]) * (1 - 1e-9)
            sure, asked = laws.meets(rows, times, values, 1 - self._delta)
            for i in np.flatnonzero(asked):
                sure[i] = self._outside(history, *pairs[rows[i]])(points[i])
            return list(map(bool, sure))

        return together(searches, outside)
