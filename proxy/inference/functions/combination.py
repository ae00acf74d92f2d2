"""Linear combinations of estimated numbers, and ratios of two, with the law of their noise.

The best linear unbiased estimate of Σ c θ is Σ c θ̂, so that the noise of a combination is that of
its numbers, rows of the history that they share added up: no history is needed.  What is said of a
ratio T / C is right for every C > 0, as of AVG: T - t C is linear for every t.

Units: those of the answer.  Coefficients are floats; what cancels but for their rounding, cancels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cached_property

import numpy as np
from msgspec import Struct

from proxy.inference import plan as planning
from proxy.inference.estimator import Estimator, Floats, Integers
from proxy.inference.functions.images import Ends
from proxy.inference.functions.possible import ANYTHING, QUERIES, added, bounds
from proxy.inference.query import LinearQuery
from proxy.inference.ratio import hull_end, together

CANCELED = 1e-12  # of the sizes of what is added up: a rounding
NEAR = 1.1  # times the first guess: within this, and one time less, an end is looked for first
HALVINGS = 6  # of where it is
FARTHEST = 2.0**20  # times the first guess: an end farther off is none


class Known(Struct, frozen=True, eq=False):
    """A number θ: its estimate, the law of its noise, and the least and most that it can be.

    ``query`` is what it is the answer to, if it is that and nothing more.
    """

    estimate: float
    estimator: Estimator
    least: float = -math.inf
    most: float = math.inf
    query: Callable[[], LinearQuery] | None = None


class Combination(Struct, frozen=True, eq=False):
    """constant + Σ coefficient · number."""

    terms: Mapping[int, float]  # by the number's name
    constant: float = 0.0

    def estimate(self, numbers: Mapping[int, Known]) -> float:
        """Return the estimate."""
        return math.fsum([self.constant, *(c * numbers[i].estimate for i, c in self.terms.items())])

    def possible(self, numbers: Mapping[int, Known]) -> Ends:
        """Return the least and the most that it can be, as each number can."""
        low = high = self.constant
        for i, c in self.terms.items():
            ends = c * numbers[i].least, c * numbers[i].most
            low, high = low + min(ends), high + max(ends)
        return low, high

    def law(self, numbers: Mapping[int, Known]) -> Estimator:
        """Return the law of its noise, as that of one linear query."""
        used = [(numbers[i].estimator, c) for i, c in self.terms.items() if c]
        scales = [c * float(each.unit) for each, c in used]
        slack = math.fsum(
            abs(scale) * each.slack for scale, (each, _) in zip(scales, used, strict=True)
        )
        parts = [scale * each.coefficients for scale, (each, _) in zip(scales, used, strict=True)]
        if not parts or not any(part.size for part in parts):
            nothing = np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0)
            return Estimator(Fraction(1), *nothing, slack)
        rows = np.concatenate([each.rows for each, _ in used])
        noise, rates = np.concatenate(parts), np.concatenate([each.rates for each, _ in used])
        names, first, places = np.unique(rows, return_index=True, return_inverse=True)
        total = np.asarray(np.bincount(places, noise, len(names)), dtype=np.float64)
        size = np.bincount(places, np.abs(noise), len(names))
        left = np.abs(total) > CANCELED * size
        return Estimator(Fraction(1), names[left], total[left], rates[first][left], slack)


def around(what: Combination, numbers: Mapping[int, Known], delta: float) -> Ends:
    """Return the interval of confidence 1 - delta of a linear combination, within what is possible.

    The interval around an estimate beyond what is possible is that around its end, as of a number.
    """
    least, most = what.possible(numbers)
    half = planning.half_width(what.law(numbers), delta)
    terms = [what.constant, *(c * numbers[i].estimate for i, c in what.terms.items())]
    middle = min(max(math.fsum(terms), least), most)
    room = 0.0
    if any(value % 1 for value in (*terms, half)):  # else all of it is exact
        room = 4 * math.ulp(math.fsum(map(abs, terms)) + half)
    return max(middle - half - room, least), min(middle + half + room, most)


class Ratio(Struct, frozen=True, eq=False, dict=True):
    """What is known of top / bottom, given numbers, with confidence 1 - delta."""

    top: Combination
    bottom: Combination
    numbers: Mapping[int, Known]
    delta: float

    @cached_property
    def _estimates(self) -> tuple[float, float]:
        return self.top.estimate(self.numbers), self.bottom.estimate(self.numbers)

    @cached_property
    def _laws(self) -> tuple[Estimator, Estimator, Integers, Floats, Floats, Floats]:
        """The laws of top and bottom; their rows, the coefficients of both, and the rates [m]."""
        one, two = self.top.law(self.numbers), self.bottom.law(self.numbers)
        rows, first = np.unique(np.concatenate([one.rows, two.rows]), return_index=True)
        both = np.zeros((2, len(rows)))
        for line, law in zip(both, (one, two), strict=True):
            line[np.searchsorted(rows, law.rows)] = law.coefficients
        return one, two, rows, both[0], both[1], np.concatenate([one.rates, two.rates])[first]

    @cached_property
    def vanishes(self) -> bool:
        """Whether the bottom cannot be told from nothing."""
        return abs(self._estimates[1]) <= planning.half_width(self._laws[1], self.delta)

    def difference(self, t: float) -> Estimator:
        """Return the law of top - t · bottom."""
        one, two, rows, top, bottom, rates = self._laws
        total, size = top - t * bottom, np.abs(top) + abs(t) * np.abs(bottom)
        left = np.abs(total) > CANCELED * size
        slack = one.slack + abs(t) * two.slack
        return Estimator(Fraction(1), rows[left], total[left], rates[left], slack)

    def outside(self, t: float) -> bool:
        """Return whether t is none that the ratio may be."""
        law = self.difference(t)
        value = abs(self._estimates[0] - t * self._estimates[1]) - law.slack
        return value > 0 and planning.law(law).meets(value * (1 - 1e-9), 1 - self.delta)

    @cached_property
    def possible(self) -> Ends:
        """The least and the most that it can be, whatever the data."""
        return possible(self.top, self.bottom, self.numbers)

    def ends(self) -> Ends:
        """Return the interval of the ratio, within what is possible."""
        least, most = self.possible
        over, under = self._estimates
        middle = over / under if under else math.nan
        if self.vanishes:
            if not under > 0:
                return least, most
            middle = min(max(middle, least), most)
            searches = [hull_end(middle, end) for end in (least, most) if math.isfinite(end)]
            found = iter(together(searches, lambda _, points: list(map(self.outside, points))))
            low, high = (e if math.isinf(e) else next(found) for e in (least, most))
            return low, high
        half = planning.half_width(self.difference(middle), self.delta)
        if half == 0:
            return middle, middle
        guess = half / abs(under)
        low, high = (self._end(middle, sign * guess) for sign in (-1, 1))
        return min(max(low, least), most), max(min(high, most), least)

    def _end(self, middle: float, guess: float) -> float:
        """Return the end of the interval to one side, never less."""
        near, far = 1 / NEAR, NEAR
        while not self.outside(middle + far * guess):
            near, far = far, 2 * far
            if far > FARTHEST:
                return math.copysign(math.inf, guess)
        if near < 1 and self.outside(middle + near * guess):
            near, far = 0.0, near
        for _ in range(HALVINGS):
            place = (near + far) / 2
            if self.outside(middle + place * guess):
                far = place
            else:
                near = place
        return middle + far * guess


def possible(top: Combination, bottom: Combination, numbers: Mapping[int, Known]) -> Ends:
    """Return the least and the most that a ratio can be whatever the data, its bottom above 0.

    With numbers that are not negative, t is the most if no coefficient of t · bottom - top is.
    """
    ends = _by_number(top, bottom, numbers)
    if math.isinf(ends[0]) or math.isinf(ends[1]):
        more = _by_record(top, bottom, numbers)
        ends = max(ends[0], more[0]), min(ends[1], more[1])
    return ends


def _by_record(top: Combination, bottom: Combination, numbers: Mapping[int, Known]) -> Ends:
    """Return what a ratio can be as its records can, whichever numbers they are in."""
    names = {*top.terms, *bottom.terms}
    if top.constant or bottom.constant or len(names) > QUERIES:
        return ANYTHING
    queries = {i: numbers[i].query for i in names}
    known = {i: query() for i, query in queries.items() if query is not None}
    if len(known) < len(names):
        return ANYTHING
    one, two = (added([(known[i], c) for i, c in part.terms.items()]) for part in (top, bottom))
    return ANYTHING if one is None or two is None else bounds(one, two)


def _by_number(top: Combination, bottom: Combination, numbers: Mapping[int, Known]) -> Ends:
    """Return what a ratio can be as each of its numbers can, by itself."""
    names = {i for i, c in (*top.terms.items(), *bottom.terms.items()) if c}
    if any(numbers[i].least < 0 for i in names):
        return ANYTHING
    pairs = [(top.terms.get(i, 0.0), bottom.terms.get(i, 0.0)) for i in names]
    pairs.append((top.constant, bottom.constant))
    if any(under < 0 for _, under in pairs):
        return ANYTHING
    over = [a for a, under in pairs if not under]
    shares = [a / under for a, under in pairs if under]
    least = -math.inf if min(over, default=0.0) < 0 else min(shares, default=-math.inf)
    most = math.inf if max(over, default=0.0) > 0 else max(shares, default=math.inf)
    return least, most
