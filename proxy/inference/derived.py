"""Intervals of what is computed from the noisy counts of values: extremes, quantiles, variances.

Given are the values v [m] of a group, the estimates n of their counts, and how far each may be off:
``near`` with the confidence asked for, ``far`` with so much that all of them are within it at once.
A sum Σ g n is a linear query, whose posterior is exact where the ``estimators`` of the counts are
given; else it is within √Σ (g · near)².  No data is read.

- A quantile is an x with F(x) ≥ q N ≥ F(x-): those x remain for which the posterior of F(x) - q N
  allows it, one-sided at either end (inversion of a test): the truth is among them with the
  confidence asked for, since only the two tests at the truth can exclude it.
- MIN is the x with F(x) ≥ 1 and F(x-) = 0, tested alike; MAX is that of the upper tail.
- A value is there for sure where n - far > 0, and may be where n + far ≥ 1: so COUNT(DISTINCT) lies
  between the sizes of the two sets, and so does what is the most frequent.
- A variance is smooth in the counts: its half-width is that of its differential.
- Of bins, the ends are those of all values that their records may have.  Their deviation is that
  of the lower edges, but for the deviation of their distances from these at most (Minkowski), and
  this is half of the widest bin at most (Popoviciu).

The result is None where noise drowns it: it may be all that it can be whatever the data.
Source: for quantiles, Woodruff 1952; for variances, the delta method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from statistics import NormalDist

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from proxy.inference import plan as planning
from proxy.inference.estimator import Estimator, omega

NEVER = 0.9  # of the half-width: what is nearer is not excluded
Floats = NDArray[np.float64]
Ends = tuple[float, float]
GRAIN = 10**6  # the largest denominator of a weight


class Counts(Struct, frozen=True, eq=False, dict=True):
    """The counts of the values of one group, in ascending order of value: all [m].

    ``highs`` are the upper edges, where the values are those of bins, whose records may have any
    value from one to the other, or any ``whole`` number below it.
    """

    values: Floats
    counts: Floats
    near: Floats
    far: Floats
    highs: Floats | None = None
    estimators: Sequence[Estimator] = ()
    delta: float = 0.0  # with which a sum of the estimators may be farther off
    whole: bool = False

    def excludes(self, weights: Floats, distance: float) -> bool:
        """Return whether the noise of Σ weight · n is less than a distance, but for delta.

        The law itself is asked only where neither a bound on its tail nor its variance says enough;
        what is not sure is not excluded.
        """
        if distance <= 0:
            return False
        if not self.estimators:
            return distance > math.sqrt(float(np.square(weights * self.near).sum()))
        coefficients, rates = self._noise
        reach = np.abs(weights @ coefficients) / rates
        if not reach.any():
            return True  # it is known exactly
        distance -= float(np.abs(weights) @ self._slack)
        if distance <= NEVER * self.spread(weights):
            return False
        if _tail(reach, distance) <= self.delta:
            return True
        parts = [Fraction(w).limit_denominator(GRAIN) for w in np.unique(weights).tolist()]
        grain = math.lcm(*(part.denominator for part in parts))  # what is whole stays whole
        combined = np.rint(weights * grain) @ coefficients
        used = np.flatnonzero(combined)
        noise = Estimator(Fraction(1, grain), used, combined[used], rates[used])
        return planning.meets(noise, Fraction(distance * (1 - 1e-9)), self.delta)

    def spread(self, weights: Floats) -> float:
        """Return about how far Σ weight · n may be off, but for delta."""
        coefficients, rates = self._noise
        deviation = math.sqrt(float(2 * np.square(weights @ coefficients / omega(rates)).sum()))
        normal = NormalDist().inv_cdf(1 - self.delta / 2)
        return deviation * min(normal, math.log(1 / self.delta) / math.sqrt(2))

    @cached_property
    def _noise(self) -> tuple[Floats, Floats]:
        """[m, rows] The coefficients of the answers, in units of the counts; [rows] their rates."""
        rows = np.concatenate([each.rows for each in self.estimators])
        names, places = np.unique(rows, return_inverse=True)
        owner = np.repeat(np.arange(len(self.estimators)), [len(e.rows) for e in self.estimators])
        units = [each.coefficients * float(each.unit) for each in self.estimators]
        coefficients, rates = np.zeros((len(self.estimators), len(names))), np.ones(len(names))
        np.add.at(coefficients, (owner, places), np.concatenate(units))
        rates[places] = np.concatenate([each.rates for each in self.estimators])
        return coefficients, rates

    @cached_property
    def _slack(self) -> Floats:
        """[m] The bias that the estimators may have."""
        return np.array([float(each.unit) * each.slack for each in self.estimators])

    @property
    def ends(self) -> Ends:
        """The least and the largest value."""
        return float(self.values[0]), float(self.values[-1])

    @property
    def inside(self) -> Floats:
        """[m] How many values a bin may have; 1 where values are no bins."""
        if self.highs is None:
            return np.ones(self.values.size)
        return self.highs - self.values if self.whole else np.full(self.values.size, np.inf)

    @property
    def sure(self) -> NDArray[np.bool_]:
        """Whether each value is certainly present."""
        return np.asarray(self.counts - self.far > 0)

    @property
    def possible(self) -> NDArray[np.bool_]:
        """Whether each value is possibly present."""
        return np.asarray(self.counts + self.far >= 1)


def interval(kind: str, detail: str, counts: Counts, discrete: bool = False) -> Ends | None:
    """Return the ends of an aggregate: min | max | distinct | mode | percentile | spread.

    ``detail`` is the part of a percentile, and of a spread PostgreSQL's name of it.
    """
    if not counts.values.size and kind == "distinct":
        return 0.0, 0.0
    if not counts.values.size or not np.isfinite(counts.far).all():
        return None
    if kind in ("min", "max"):
        ends = _extreme(counts, kind == "max") if _present(counts) else None
        return ends and _within(counts, *ends)
    if kind == "percentile":
        ends = quantile(counts, Fraction(detail), discrete)
        return ends and _within(counts, *ends)
    if kind == "spread":
        return _spread(counts, detail)
    if kind == "distinct":
        most = np.minimum(counts.inside, np.floor(counts.counts + counts.far))
        ends = float(counts.sure.sum()), float(most[counts.possible].sum())
        return None if ends == (0, counts.inside.sum()) else ends
    if not counts.sure.any():
        return None
    top = (counts.counts - counts.far).max()
    chosen = counts.values[counts.counts + counts.far >= top]
    return _within(counts, chosen.min(), chosen.max())


def guess(kind: str, detail: str, counts: Counts) -> float:
    """Return the likely value of an aggregate where no value is certainly present.

    A quantile of bins is as if the values lay evenly within each.
    """
    if kind != "percentile":
        return -math.inf
    place = float(detail) * float(counts.counts.sum())
    sums = np.cumsum(counts.counts)
    at = int(np.argmax(sums >= place))
    low, count = float(counts.values[at]), float(counts.counts[at])
    if counts.highs is None or count <= 0:
        return low
    share = min(max((place - (float(sums[at]) - count)) / count, 0.0), 1.0)
    return low + (float(counts.highs[at]) - low) * share


def _tail(reach: Floats, distance: float) -> float:
    """Return a bound on P(|Σ a K| > distance), K two-sided geometric, reach = |a| / rate.

    E exp(t a K) ≤ 1 / (1 - (t · reach)²), as of Laplace noise, for (cosh x - 1) / x² grows with x.
    """
    t = min(distance / (2 * float(np.square(reach).sum())), 0.9 / float(reach.max()))
    return 2 * math.exp(-t * distance - float(np.log1p(-np.square(t * reach)).sum()))


def after(edges: Sequence[float], low: float) -> float:
    """Return the upper edge of a bin, given its lower one."""
    return next((edge for edge in edges if edge > low), low)


def _within(counts: Counts, low: float, high: float) -> Ends | None:
    """Return the ends; None where they span all values."""
    ends, most = (float(low), float(high)), counts.ends
    if counts.highs is not None:
        most = most[0], float(counts.highs[-1])
    return None if ends == most and counts.values.size > 1 else ends


def _present(counts: Counts) -> bool:
    """Return whether the number of all records can be told from 0."""
    return counts.excludes(np.ones(counts.values.size), float(counts.counts.sum()))


def quantile(counts: Counts, part: Fraction, discrete: bool) -> Ends | None:
    """Return the ends of a quantile; None, where there may be nobody.

    PERCENTILE_CONT lies between the records of which q (N - 1) others are before, rounded down and
    up: F - q N is more than -q at the lower one, and less than 1 - q below the upper one.
    """
    if not _present(counts):
        return None
    size, q = counts.values.size, float(part)
    over = np.cumsum(counts.counts) - q * float(counts.counts.sum())  # F(x) - q N, at each value
    step = 1 / part.denominator  # F - q (N - 1) is a multiple of it
    below, above = (0.0, 0.0) if discrete else (q - step, 1 - q - step)

    def weights(last: int) -> Floats:
        return np.asarray((np.arange(size) <= last) - q)

    low = next(
        (i for i in range(size) if not counts.excludes(weights(i), -below - float(over[i]))),
        size - 1,
    )
    high = next(
        (
            i
            for i in range(size - 1, 0, -1)
            if not counts.excludes(weights(i - 1), float(over[i - 1]) - above)
        ),
        0,
    )
    highs = counts.values if counts.highs is None else counts.highs
    return float(counts.values[low]), float(highs[max(high, low)])


def _extreme(counts: Counts, largest: bool) -> Ends:
    """Return the ends of MIN, or of MAX."""
    size = counts.values.size
    sums = np.cumsum(counts.counts[::-1] if largest else counts.counts)

    def weights(last: int) -> Floats:
        tail = (np.arange(size) <= last).astype(np.float64)
        return tail[::-1] if largest else tail

    first = next(
        (i for i in range(size) if not counts.excludes(weights(i), 1 - float(sums[i]))), size - 1
    )
    last = next(
        (
            i
            for i in range(size - 1, 0, -1)
            if not counts.excludes(weights(i - 1), float(sums[i - 1]))
        ),
        0,
    )
    last = max(first, last)
    highs = counts.values if counts.highs is None else counts.highs
    if largest:
        return float(counts.values[size - 1 - last]), float(highs[size - 1 - first])
    return float(counts.values[first]), float(highs[last])


def _spread(counts: Counts, name: str) -> Ends | None:
    total = float(counts.counts.sum())
    below = total - 1 if name.endswith("samp") else total
    if not _present(counts) or below <= 0:
        return None
    middle = float(counts.values @ counts.counts) / total
    squares = np.square(counts.values - middle)
    variance = float(squares @ counts.counts) / total
    reach = math.sqrt(float(np.square((squares - variance) / total * counts.near).sum()))
    # the mean is off by some too, which enters squared
    reach += float(np.square((counts.values - middle) / total * counts.near).sum())
    highs = counts.values if counts.highs is None else counts.highs
    most = (float(highs[-1]) - counts.ends[0]) ** 2 / 4
    low, high = max(variance - reach, 0.0), max(variance, 0.0) + reach
    off = float((highs - counts.values)[counts.possible].max(initial=0.0)) / 2
    low, high = max(math.sqrt(low) - off, 0.0) ** 2, min((math.sqrt(high) + off) ** 2, most)
    if low == 0 and high == most:
        return None
    low, high = low * total / below, high * total / below
    return (math.sqrt(low), math.sqrt(high)) if name.startswith("stddev") else (low, high)
