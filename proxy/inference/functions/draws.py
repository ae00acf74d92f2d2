"""Draws from the posterior of many numbers at once, and intervals of what is computed from them.

θ̂ - θ is a known combination of independent noises, whose laws are public: drawn anew, they give
numbers as they may be, θ̂ - noise, rows of the history that numbers share being shared.  No data is
read, and nothing here protects anybody: the seed is a text that everybody may know, so that a
statement that is repeated tells the same.

The interval of a smooth function f spans the percentiles of f(draws) and, since the draws are as
far from θ̂ as θ̂ is from θ, those percentiles mirrored at f(θ̂) (Efron & Tibshirani 1993, chapter 13;
Davison & Hinkley 1997, section 5.2).  A function that jumps, such as a rank or a maximum, is looked
at in the corners of a box that holds all numbers at once, too.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from proxy.inference.estimator import Estimator
from proxy.inference.functions.images import Ends

Floats = NDArray[np.float64]
FEWEST, MOST = 1000, 5000  # draws
BEYOND = 25  # draws that lie beyond either end, at least


def count(delta: float) -> int:
    """Return how many draws serve for an interval that may miss with probability delta."""
    return min(max(FEWEST, math.ceil(2 * BEYOND / delta)), MOST)


class Noises:
    """Noise of rows of a history, each row's drawn when it is first asked for [draws]."""

    def __init__(self, seed: str, draws: int) -> None:
        digest = hashlib.blake2b(seed.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        self._seed = int.from_bytes(digest, "big")
        self.draws = draws
        self._rows: dict[int, Floats] = {}

    def of(self, estimator: Estimator) -> Floats:
        """Return the noise of an estimate, in answer units [draws]."""
        total = np.zeros(self.draws)
        for row, a, rate in zip(
            estimator.rows.tolist(), estimator.coefficients, estimator.rates, strict=True
        ):
            if row not in self._rows:
                self._rows[row] = self._geometric(row, float(rate))
            total += a * self._rows[row]
        return float(estimator.unit) * total

    def _geometric(self, row: int, rate: float) -> Floats:
        """Return two-sided geometric variables: the difference of two one-sided ones."""
        rng = np.random.default_rng([self._seed, row])
        if rate > 700:
            return np.zeros(self.draws)
        # by inversion, since a rate may be so small that no integer holds the geometric one
        one, two = np.floor(rng.standard_exponential((2, self.draws)) / rate)
        return np.asarray(one - two)


def corners(names: Sequence[int]) -> list[Mapping[int, int]]:
    """Return corners of a box: all numbers high or low, and each of them against all others."""
    every = [dict.fromkeys(names, sign) for sign in (1, -1)]
    return [*every, *({**all_of, i: -all_of[i]} for i in names for all_of in every)]


def interval(draws: Floats, middle: float, delta: float, jumps: bool, cases: Floats) -> Ends:
    """Return the interval of a function, given its value in each draw; NaN may be anything.

    ``middle`` is its value at the estimates, ``cases`` those in corners, for one that ``jumps``.
    """
    beyond = max(math.floor(delta / 2 * len(draws)) - 1, 0)
    low = float(np.sort(np.where(np.isnan(draws), -math.inf, draws))[beyond])
    high = float(np.sort(np.where(np.isnan(draws), math.inf, draws))[-1 - beyond])
    if not jumps:
        if math.isnan(middle):
            return low, high
        return min(low, 2 * middle - high), max(high, 2 * middle - low)
    seen = cases[~np.isnan(cases)]
    return (min(low, float(seen.min())), max(high, float(seen.max()))) if seen.size else (low, high)
