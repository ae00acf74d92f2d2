"""Medians and percentiles: within a half-width in the units of their column, in steps.

What is measured are the counts of the values, which have no record in common, so that all of them
cost what one costs.  A first look at them says where the quantile may lie; how near they must be
follows from how many records lie within the half-width of it.  A group whose values are met, or of
which nothing nearer can be known (one bin), asks for no more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property

import numpy as np
from msgspec import Struct

from proxy.engine.answers import Answer
from proxy.engine.goals.linear import LinearGoal
from proxy.engine.goals.stepwise import StepwiseGoal
from proxy.engine.progress import Progress, RowEstimators
from proxy.inference import plan as planning
from proxy.inference import steps
from proxy.inference.dense_system import MeasuredFamily
from proxy.inference.derived import Counts, after, guess, quantile
from proxy.inference.estimator import Cancellation, Estimator, never_cancel
from proxy.inference.family import Family
from proxy.inference.history import History
from proxy.inference.steps import STEPS, Look
from proxy.sql.program import Number, Release

NEARER = (Fraction(1, 16), Fraction(3, 4))  # times the half-width of the counts, in one step
ROOM = Fraction(9, 10)  # of what a half-width of the counts may be


class QuantileGoal(LinearGoal, StepwiseGoal, Struct, frozen=True, eq=False, dict=True):
    """The counts of values, so near that a quantile of them is within ``half_width``.

    The half-width is in the units of the values, or in per cent of the quantile where ``relative``.
    """

    number: Number
    half_width: Fraction
    delta: float
    budget: float  # alpha that any cell can pay
    first: float  # alpha of the first look
    groups: tuple[tuple[int, ...], ...]  # the rows of the values of each group, ascending
    values: tuple[float, ...]  # [row]
    relative: bool = False
    steps: int = STEPS

    @cached_property
    def _of(self) -> Mapping[int, tuple[int, ...]]:
        """The rows of a group, by the first."""
        return {rows[0]: rows for rows in self.groups}

    @property
    def families(self) -> tuple[Family, ...]:
        """The counts."""
        return (self.number.family,)

    @property
    def asked(self) -> tuple[Fraction, bool]:
        """The half-width, and whether it is in per cent."""
        return self.half_width, self.relative

    def reached(self, answers: Sequence[Answer]) -> str:
        """Return nothing: how near a quantile is stands beside it."""
        return ""

    def progress(
        self,
        history: History,
        left_out: frozenset[int] = frozenset(),
        cancellation: Cancellation = never_cancel,
    ) -> Progress:
        """Return what the next step measures: all values of a group are looked at alike.

        A group is named by the first of its rows, in looks and in what is left out.
        """
        known = self._narrowest(history, cancellation)
        looks = {first: self._group(history, rows, known) for first, rows in self._of.items()}
        rest = {row: look for row, look in looks.items() if row not in left_out}
        looks = dict.fromkeys(left_out, steps.LEFT_OUT) | steps.capped(rest, self.families)
        rows = {row: look for first, look in looks.items() for row in self._of[first]}
        return Progress(tuple(steps.bucketed(rows, self.families)), looks, left_out)

    def answers(
        self,
        history: History,
        estimators: Sequence[RowEstimators],
        left_out: frozenset[int],
        paid: Mapping[int, MeasuredFamily],
    ) -> list[Answer]:
        """Return the count of every value; NaN where nothing is known."""
        unknown = frozenset(row for row, (each,) in enumerate(estimators) if each is None)
        return super().answers(history, estimators, left_out | unknown, paid)

    def _reported(self, estimator: Estimator) -> float:
        return planning.half_width(estimator, self._delta)

    def _group(self, history: History, rows: Sequence[int], known: Sequence[RowEstimators]) -> Look:
        """Return what the next step wants of the values of one group."""
        found = [known[row][0] for row in rows]
        estimators = [each for each in found if each is not None]
        if len(estimators) < len(found):
            return self._first()
        if not any(each.rows.size for each in estimators):  # nobody can be in it
            return steps.MET
        counts = self._counts(history, rows, estimators)
        width = max(planning.half_width(each, self._delta) for each in estimators)
        total = float(counts.counts.sum())
        ends = quantile(counts, self._part, self._discrete)
        if ends is None:
            most = Fraction(max(total + counts.spread(np.ones(len(rows))), 0.0) / 2)
            if steps.price(self.families[0], most, self._delta) > self.budget:
                return steps.LOST
            return steps.closer(self.families[0], width, self._delta)
        middle = min(max(guess("percentile", str(float(self._part)), counts), ends[0]), ends[1])
        half = float(self.half_width)
        half = half / 100 * abs(middle) if self.relative else half
        if max(ends[1] - middle, middle - ends[0]) <= half or self._indivisible(counts, ends):
            return steps.MET
        wanted = max(Fraction(width) * self._nearer(counts, middle, half), steps.SMALLEST)
        look = steps.priced(self.families, (0, wanted, self._delta))
        return look if look.price <= self.budget else steps.LOST

    def _nearer(self, counts: Counts, middle: float, half: float) -> Fraction:
        """Return how much nearer the counts must be: as many records as lie within the half-width
        of the quantile, to either side, are to be told from none.
        """
        over = np.cumsum(counts.counts) - float(self._part) * float(counts.counts.sum())
        highs = counts.values if counts.highs is None else counts.highs
        right = np.flatnonzero(highs <= middle + half)
        left = np.flatnonzero(highs < middle - half)
        masses = [float(over[right[-1]])] if right.size else []
        masses += [-float(over[left[-1]])] if left.size else []
        size = len(counts.values)
        noise = counts.spread(np.asarray((np.arange(size) < size // 2) - float(self._part)))
        mass = min(masses, default=0.0)
        if mass <= 0 or noise <= 0:
            return Fraction(1, steps.CLOSER)
        return min(max(Fraction(mass / noise) * ROOM, NEARER[0]), NEARER[1])

    def _indivisible(self, counts: Counts, ends: tuple[float, float]) -> bool:
        """Return whether the ends are those of one value, or of one bin."""
        at = int(np.searchsorted(counts.values, ends[0]))
        highs = counts.values if counts.highs is None else counts.highs
        return float(highs[at]) >= ends[1]

    def _counts(
        self, history: History, rows: Sequence[int], estimators: Sequence[Estimator]
    ) -> Counts:
        values = np.array([self.values[row] for row in rows])
        assert self.number.quantile is not None
        edges, unknown = self.number.quantile.edges, np.full(len(rows), math.inf)
        highs = np.array([after(edges, low) for low in values]) if edges else None
        known = np.array([history.estimate(each) for each in estimators])
        return Counts(values, known, unknown, unknown, highs, estimators, self._delta)

    @property
    def _part(self) -> Fraction:
        assert self.number.quantile is not None
        return Fraction(self.number.quantile.part)

    @property
    def _discrete(self) -> bool:
        return self.number.quantile is not None and self.number.quantile.discrete


def groups_of(release: Release) -> tuple[tuple[tuple[int, ...], ...], tuple[float, ...]]:
    """Return the rows of each group by value, ascending, and the value of each row.

    The last grouping column is the value; NULL is none, and NaN here.
    """
    *keys, values = (group.values for group in release.groups)
    found: dict[tuple[object, ...], list[int]] = {}
    numbers = [math.nan if value is None else float(str(value)) for value in values]
    for row, number in enumerate(numbers):
        if not math.isnan(number):
            found.setdefault(tuple(key[row] for key in keys), []).append(row)
    groups = (tuple(sorted(rows, key=numbers.__getitem__)) for rows in found.values())
    return tuple(groups), tuple(numbers)
