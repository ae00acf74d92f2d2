"""Intervals of what is computed from the noisy counts of values: extremes, quantiles, variances.

Given are the values v [m] of a group, the estimates n of their counts, and how far each may be off:
``near`` with the confidence asked for, ``far`` with so much that all of them are within it at once.
What is known of many counts together follows from independent noises: Σ g n is within
√Σ (g · near)².  No data is read.

- A value is there for sure where n - far > 0, and may be where n + far ≥ 1: so MIN, MAX and
  COUNT(DISTINCT) lie between those of the two sets, and so does what is the most frequent.
- A quantile is an x with F(x) ≥ q N > F(x-), F and N linear in the counts: those x remain for which
  the intervals of F(x) - q N allow it (inversion of a test), one record more or less.
- A variance is smooth in the counts: its half-width is that of its differential.

The result is None where noise drowns it: it may be all that it can be whatever the data.
Source: for quantiles, Woodruff 1952; for variances, the delta method.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ends = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Counts:
    """The counts of the values of one group, in ascending order of value: all [m]."""

    values: Floats
    counts: Floats
    near: Floats
    far: Floats

    @property
    def ends(self) -> Ends:
        """The least and the largest value."""
        return float(self.values[0]), float(self.values[-1])

    @property
    def sure(self) -> NDArray[np.bool_]:
        """Whether each value is certainly present."""
        return np.asarray(self.counts - self.far > 0)

    @property
    def possible(self) -> NDArray[np.bool_]:
        """Whether each value is possibly present."""
        return np.asarray(self.counts + self.far >= 1)


def interval(kind: str, detail: str, counts: Counts) -> Ends | None:
    """Return the ends of an aggregate: min | max | distinct | mode | percentile | spread.

    ``detail`` is the part of a percentile, and of a spread PostgreSQL's name of it.
    """
    if not counts.values.size or not np.isfinite(counts.far).all():
        return None
    if kind == "percentile":
        return _percentile(counts, float(detail))
    if kind == "spread":
        return _spread(counts, detail)
    if kind == "distinct":
        ends = float(counts.sure.sum()), float(counts.possible.sum())
        return None if ends == (0, counts.values.size) else ends
    if not counts.sure.any():
        return None
    if kind == "mode":
        top = (counts.counts - counts.far).max()
        chosen = counts.values[counts.counts + counts.far >= top]
        return _within(counts, chosen.min(), chosen.max())
    sure, possible = counts.values[counts.sure], counts.values[counts.possible | counts.sure]
    if kind == "min":
        return _within(counts, possible.min(), sure.min())
    return _within(counts, sure.max(), possible.max())


def guess(kind: str, detail: str, counts: Counts) -> float:
    """Return the likely value of an aggregate where no value is certainly present."""
    if kind != "percentile":
        return -math.inf
    over = np.cumsum(counts.counts) >= float(detail) * counts.counts.sum()
    return float(counts.values[int(np.argmax(over))])


def _within(counts: Counts, low: float, high: float) -> Ends | None:
    """Return the ends; None where they span all values."""
    ends = float(low), float(high)
    return None if ends == counts.ends and counts.values.size > 1 else ends


def _present(counts: Counts) -> bool:
    """Return whether the number of all records can be told from 0."""
    return float(counts.counts.sum()) > math.sqrt(float(np.square(counts.near).sum()))


def _percentile(counts: Counts, part: float) -> Ends | None:
    if not _present(counts):
        return None
    total, squares = counts.counts.sum(), np.cumsum(np.square(counts.near))
    over = np.cumsum(counts.counts) - part * total  # F(x) - q N, at each value
    reach = np.sqrt((1 - part) ** 2 * squares + part**2 * (squares[-1] - squares))
    low = counts.values[over + reach >= -1]
    before = np.append(-np.inf, (over - reach)[:-1])
    high = counts.values[before < 1]
    return _within(counts, low.min() if low.size else counts.ends[1], high.max())


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
    most = (counts.ends[1] - counts.ends[0]) ** 2 / 4
    low, high = max(variance - reach, 0.0), min(max(variance, 0.0) + reach, most)
    if low == 0 and high == most:
        return None
    low, high = low * total / below, high * total / below
    return (math.sqrt(low), math.sqrt(high)) if name.startswith("stddev") else (low, high)
