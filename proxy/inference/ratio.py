"""Ratios of two linear queries, S / C: S - t · C is a linear query too, for every t.

The ends of many intervals are looked for side by side, so that what each look costs is shared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from proxy.inference.contour import Moment
from proxy.inference.estimator import Estimator, Floats, Integers
from proxy.inference.laplace import Bounds

Found = TypeVar("Found")
Search: TypeAlias = Generator[float, bool | None, Found]  # asks of a point, is told, and finds
Booleans = NDArray[np.bool_]

POINTS = 4  # at which the interval of a ratio is looked for, to either side


def difference(left: Estimator, right: Estimator, times: Fraction) -> Estimator:
    """Return the estimator of left - times · right: the law of one linear query.

    Its coefficients are whole, and exact, where those of both are and ``times`` is short enough.
    """
    both = np.concatenate([left.rows, right.rows])
    rows, places = np.unique(both, return_inverse=True)
    one, two, rates = np.zeros(len(rows)), np.zeros(len(rows)), np.zeros(len(rows))
    one[places[: len(left.rows)]] = left.coefficients
    two[places[len(left.rows) :]] = right.coefficients
    rates[places] = np.concatenate([left.rates, right.rates])
    ratio = times * right.unit / left.unit
    step, coefficients = Fraction(1), one - float(ratio) * two
    below, above = min(ratio.denominator, 2**60), min(abs(ratio.numerator), 2**60)
    if max(_whole(one) * below, _whole(two) * above) < 2**52:
        exact = (one * ratio.denominator - two * ratio.numerator).astype(np.int64)
        common = int(np.gcd.reduce(exact, initial=0)) or 1
        step, coefficients = Fraction(common, ratio.denominator), (exact // common).astype(float)
    used = coefficients != 0
    return Estimator(
        left.unit * step,
        rows[used],
        coefficients[used],
        rates[used],
        (left.slack + float(abs(ratio)) * right.slack) / float(step),
    )


def _whole(values: Floats) -> float:
    """Return the largest of some whole numbers; infinity where one is none."""
    if not (values == np.rint(values)).all():
        return math.inf
    return float(np.abs(values).max(initial=0.0))


class Differences(Struct, frozen=True, eq=False):
    """The laws of left - t · right of many pairs of estimators, in answer units, terms that are
    alike taken together.  Shapes: [pairs, terms], there may be zeros; [pairs].
    """

    left: Floats
    right: Floats
    rates: Floats
    counts: Floats  # how often each term occurs
    slacks: tuple[Floats, Floats]

    @staticmethod
    def of(pairs: Sequence[tuple[Estimator, Estimator]]) -> Differences:
        """Return the laws of pairs of left and right."""
        terms = [_terms(*pair) for pair in pairs]
        size = max((each.shape[1] for each in terms), default=0)
        padded = np.zeros((4, len(pairs), size))
        padded[2] = 1.0
        for i, each in enumerate(terms):
            padded[:, i, : each.shape[1]] = each
        lefts, rights = (
            np.array([float(pair[side].unit) * pair[side].slack for pair in pairs])
            for side in (0, 1)
        )
        left, right, rates, counts = padded
        return Differences(left, right, rates, counts, (lefts, rights))

    def meets(
        self, chosen: Integers, times: Floats, half_widths: Floats, confidence: float
    ) -> tuple[Booleans, Booleans]:
        """Return where the noise of left - times · right of chosen pairs is within a half-width for
        sure, with a confidence; and where this does not tell, and ``difference`` may.

        Coefficients are rounded: within ``off`` are all of these errors together, but for 1e-13.
        """
        left, right = self.left[chosen], times[:, None] * self.right[chosen]
        coefficients, rates = np.abs(left - right), self.rates[chosen]
        errors = 2.0**-51 * (np.abs(left) + np.abs(right)) / rates
        off = 1.4 * (self.counts[chosen] * errors).sum(axis=1) + 60 * errors.max(axis=1, initial=0)
        counts = np.where(coefficients > 0, self.counts[chosen], 0.0)
        slack = self.slacks[0][chosen] + np.abs(times) * self.slacks[1][chosen]
        within = half_widths - slack - off
        sure, asked = np.zeros((2, len(chosen)), dtype=bool)
        asked |= (within > 0) & np.isfinite(within)
        known = np.flatnonzero(asked & (counts.sum(axis=1) > 1))
        scales = (coefficients / rates)[known]
        unit, counts = scales.max(axis=1, initial=0.0), counts[known]
        bounds = Bounds(
            Moment(np.square(scales / unit[:, None]), counts),
            unit,
            np.sqrt((counts * np.square(coefficients[known])).sum(axis=1)),
            np.exp((counts * np.log(np.tanh(rates[known] / 2))).sum(axis=1)),
        )
        if known.size:
            sure[known], asked[known] = bounds.meets(within[known], confidence)
        return sure, asked


@lru_cache(maxsize=512)
def _terms(left: Estimator, right: Estimator) -> Floats:
    """Return the different terms of two estimators: coefficients of both, rates, and counts."""
    rows, places = np.unique(np.concatenate([left.rows, right.rows]), return_inverse=True)
    terms = np.zeros((3, len(rows)))
    terms[0, places[: len(left.rows)]] = left.coefficients * float(left.unit)
    terms[1, places[len(left.rows) :]] = right.coefficients * float(right.unit)
    terms[2, places] = np.concatenate([left.rates, right.rates])
    terms = terms[:, np.lexsort(terms)]
    new = np.flatnonzero((np.diff(terms, prepend=np.nan) != 0).any(axis=0))
    return np.vstack([terms[:, new], np.diff(new, append=len(rows))])


def together(
    searches: Sequence[Search[Found]], looks: Callable[[list[int], list[float]], Sequence[bool]]
) -> list[Found]:
    """Return what searches find that go on side by side.

    ``looks`` says, of places of searches and a point of each, what each wants to know there.
    """
    found: dict[int, Found] = {}
    asked: dict[int, float] = {}

    def advance(place: int, answer: bool | None) -> None:
        try:
            asked[place] = searches[place].send(answer)
        except StopIteration as end:
            found[place] = end.value

    for place in range(len(searches)):
        advance(place, None)
    while asked:
        places, points = list(asked), list(asked.values())
        asked.clear()
        for place, answer in zip(places, looks(places, points), strict=True):
            advance(place, bool(answer))
    return [found[place] for place in range(len(searches))]


def all_so(points: Sequence[float]) -> Search[bool]:
    """Find whether all points are so."""
    for point in points:
        if not (yield point):
            return False
    return True


def hull_end(inner: float, outer: float) -> Search[float]:
    """Find the end of the set of inner points towards ``outer``: its hull, never less.

    Asks of points whether they are outside of the set.
    """
    if not (yield outer):
        return outer
    points = [outer + (inner - outer) * i / POINTS for i in range(POINTS + 1)]
    far = 1
    while far < POINTS and (yield points[far]):
        far += 1
    bad, good = points[far - 1], points[far]
    for _ in range(14):
        middle = (bad + good) / 2
        if (yield middle):
            bad = middle
        else:
            good = middle
    return bad
