r"""Bounds on a sum of two-sided geometric variables, by that of Laplace variables.

    X = Σ b_i K_i,   X_L = Σ c_i L_i,   P(K_i = k) ∝ exp(−λ_i |k|),   c_i = b_i/λ_i

An exponential variable is a geometric one on g plus a remainder in [0, g) independent of it, so X_L
has the law of X + D with D = Σ b_i (R_i − R_i') independent and symmetric. R − R' has a density
∝ sinh(λ(1 − |r|)), in |r| likelihood-ratio smaller than the triangle 1 − |r|, so E exp(sD) ≤
Π (sinh(sb_i/2)/(sb_i/2))² ≤ exp(s²B/12) with B = Σ b_i², and P(D ≤ −s) ≤ q(s) = exp(−3s²/B).
Hence, with tail(t) = P(|·| > t),

    tail(t) ≤ min_s tail_L(t − s) / max(1 − q, ½),
    P(|X| ≤ t) ≤ min_s P(|X_L| ≤ t + s) / (1 − 2q),

and E exp(sX) ≤ E exp(sX_L): Chernoff's bound for X_L holds for X. A symmetric log-concave law of
variance V has a density ≤ 1/√(2V) (it crosses the Laplace law of its height but once on either
side, so has no larger variance), hence P(|X_L| ≤ r) ≤ r √(2/V).

Shapes: of one law c [m] and numbers; of many laws c [laws, m] and [laws], each at a t of its own.
Invariant: ``lower`` ≤ P(|X| < t), P(|X| ≤ t) ≤ ``upper``, rounding included.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proxy.inference.contour import Contour, Moment, Number

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

SLACK = 1e-12  # taken off lower bounds, added to upper ones: the 1e-13, and the last roundings
ROUND_UP = 1 + 1e-9  # a factor for tails that come from a formula
TIGHT = 0.004  # brackets no wider are not refined,
TIGHT_TAIL = 0.05  # if no wider than this part of what is left out
SHIFTS = np.linspace(0.85, 5.0, 16) / math.sqrt(3)  # s/√B
SHORTFALL = np.exp(-3 * SHIFTS**2)  # q(s)
INWARD = np.maximum(1 - SHORTFALL, 0.5)
OUTWARD = 1 - 2 * SHORTFALL  # > 0
CRUDE = 1.5  # s/√B: q = exp(−6.75)


@dataclass(frozen=True, eq=False)
class Bounds:
    """The bounds of one law, or of many."""

    moment: Moment  # of X_L / unit
    unit: Number  # the largest c
    size: Number  # √B
    at_zero: Number  # the probability that all K are 0

    def smooth(self, t: Number) -> Number:
        """Whether t is so far out that it is worth to ask X_L itself."""
        return self.size < 0.15 * t

    def crude(self, t: Number) -> tuple[Number, Number]:
        """Chernoff's bound, the atom at 0, and the height of a log-concave density."""
        height = 1 / (self.unit * self.moment.p1**0.5)
        upper = (t + CRUDE * self.size) * height / (1 - 2 * math.exp(-3 * CRUDE**2))
        chernoff = np.minimum(2 * np.exp(self.moment.exponent(t / self.unit)), 1.0)
        lower = complement(chernoff * ROUND_UP)
        return np.maximum(lower, self.at_zero - SLACK), upper + SLACK

    def level(self, t: Number) -> Number:
        """The step of a ladder that is below the least argument for t."""
        return np.floor(4 * np.log2((t - SHIFTS[-1] * self.size) / self.unit))

    def contour(self, level: Number) -> Contour:
        """The rule for every argument from a step of the ladder on."""
        return self.moment.contour(rung(level))

    def by_laplace(self, t: Number, contour: Contour) -> tuple[Number, Number]:
        """Both bounds by X_L, the best of several shifts s < t."""
        size = self.size / self.unit
        first, step = SHIFTS[0] * size, (SHIFTS[1] - SHIFTS[0]) * size
        inner, middle, outer = contour.around(t / self.unit, first, step, SHIFTS.size)
        error = 2 * contour.error + SLACK
        beside = error[..., None]
        most = ((2 * inner + beside) / INWARD).min(axis=-1)
        upper = ((1 - 2 * outer + beside) / OUTWARD).min(axis=-1)
        return 1 - np.minimum(most, 2 * (2 * middle + error)), upper

    def meets(self, t: Vector, confidence: float) -> tuple[Booleans, Booleans]:
        """Of many laws, each at a t > 0: where P(|X| ≤ t) ≥ confidence for sure, and where neither
        that nor the opposite is known, and a narrower bracket may tell.
        """
        lower, upper = _narrowed(0.0, 1.0, *self.crude(t))
        open_ = (lower < confidence) & (upper >= confidence) & ~tight(lower, upper)
        some = np.flatnonzero(open_ & self.smooth(t))
        if some.size:
            laws, at = self._of(some), t[some]
            found = laws.by_laplace(at, laws.contour(laws.level(at)))
            lower[some], upper[some] = _narrowed(lower[some], upper[some], *found)
            open_ = (lower < confidence) & (upper >= confidence) & ~tight(lower, upper)
        return lower >= confidence, open_

    def _of(self, chosen: Integers) -> Bounds:
        """The bounds of some of many laws."""
        counts = self.moment.counts
        moment = Moment(self.moment.squares[chosen], None if counts is None else counts[chosen])
        return Bounds(moment, self.unit[chosen], self.size[chosen], self.at_zero[chosen])


def _narrowed(lower: Number, upper: Number, low: Vector, high: Vector) -> tuple[Vector, Vector]:
    """A bracket and another one of the same."""
    lower = np.minimum(np.maximum(lower, low), 1.0)
    return lower, np.maximum(np.minimum(upper, high), lower)


def tight(lower: Number, upper: Number) -> Number:
    """Whether a bracket is not worth to be refined."""
    return (upper - lower <= TIGHT) & (upper - lower <= TIGHT_TAIL * (1 - upper))


def rung(level: Number) -> Number:
    """The argument at a step of the ladder, in units of the law."""
    return 2 ** (level / 4) * (1 - 1e-12)


def complement(tail: Number) -> Number:
    """1 − tail, rounded down."""
    return np.nextafter(1 - tail, -math.inf)
