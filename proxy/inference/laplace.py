"""The posterior law of the paper: a weighted sum of independent Laplace variables.

    X = Σ c_i L_i,   L_i unit Laplace,   E exp(iuX) = Π 1/(1 + c_i² u²)         c [m], answer units

θ − θ̂ has this law when c holds the BLUE's coefficients on unit noise. Invariant: a probability is
within 1e-12 of the truth, rounding included, and a tail P(|X| > t) keeps a relative accuracy far
out. One term, P(|X| > t) = exp(−t/|c|), and n equal terms, the bilateral gamma law, are closed
forms; all else is inverted with the bound that ``contour`` proves.

``Bounds`` are those on a sum of two-sided geometric variables of the same weights:

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

Source: Xiao & Xiong, Bayesian Inference under Differential Privacy, "Theoretical Probability
Function" (the law, its characteristic function, equal terms) and "Confidence Level and Credible
Interval" (the narrowest interval is symmetric).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from proxy.inference import monte_carlo as paper
from proxy.inference.contour import Complex, Contour, Moment, Number, repeated

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
class LaplaceSum:
    """The law of Σ c_i L_i, ``noise`` c [m] in units of the answer; signs and zeros do not matter.

    Raises:
        ValueError: ``noise`` is not a vector of finite numbers.
    """

    noise: Vector
    counts: Vector | None = None  # [m] how often each occurs; once, where not said
    scale: float = field(init=False)  # the largest |c|; 0 for the point mass at 0
    moment: Moment = field(init=False, repr=False)  # of X/scale

    def __post_init__(self) -> None:
        noise = np.abs(np.asarray(self.noise, dtype=np.float64))
        if noise.ndim != 1 or not np.isfinite(noise).all():
            raise ValueError("noise must be a vector of finite numbers")
        noise.setflags(write=False)
        scale, counts = float(noise.max(initial=0.0)), self.counts
        squares = np.square(noise[noise > 0] / scale) if scale else noise[:0]
        counts = counts if counts is None else counts[noise > 0]
        object.__setattr__(self, "noise", noise)
        object.__setattr__(self, "scale", scale)
        object.__setattr__(self, "moment", Moment(squares, counts))

    @property
    def variance(self) -> float:
        """2 Σ c²."""
        return 2.0 * float(self.moment.p1) * self.scale**2

    def tail(self, half_width: float) -> float:
        """P(|X| > half_width)."""
        if not half_width > 0:
            return 0.0 if half_width == 0 == self.scale else 1.0
        if self.scale == 0 or half_width == math.inf:
            return 0.0
        t, squares = half_width / self.scale, self.moment.squares
        if squares.min() == 1:
            return _bilateral_gamma_tail(int(self.moment.terms), t)
        value = 2 * float(self.moment.contour(t).tail(np.array([t]))[0]) if t > 0 else 1.0
        return min(max(value, 0.0), 1.0)

    def cdf(self, t: float) -> float:
        """P(X ≤ t)."""
        return 1 - self.tail(t) / 2 if t >= 0 else self.tail(-t) / 2

    def confidence(self, half_width: float) -> float:
        """P(|X| ≤ half_width)."""
        return 1 - self.tail(half_width)

    def probability(self, low: float, high: float) -> float:
        """P(low ≤ X ≤ high), from the tails outside or, far out, as their difference."""
        if low > high:
            return 0.0
        if low <= 0 <= high:
            return 1 - (self.tail(high) + self.tail(-low)) / 2
        near, far = sorted((abs(low), abs(high)))
        return max(self.tail(near) - self.tail(far), 0.0) / 2

    def half_width(self, confidence: float) -> float:
        """The t with P(|X| ≤ t) = confidence.

        Raises:
            ValueError: ``confidence`` is not in [0, 1].
        """
        if not 0 <= confidence <= 1:
            raise ValueError(f"{confidence=} is not in [0, 1]")
        if self.scale == 0 or confidence == 0:
            return 0.0
        if confidence == 1:
            return math.inf
        if self.moment.terms == 1:
            return self.scale * -math.log1p(-confidence)
        return self.scale * float(_half_width(self.moment, confidence))

    def interval(self, confidence: float, estimate: float = 0.0) -> tuple[float, float]:
        """The narrowest [low, high] of this confidence; it lies around ``estimate``."""
        half_width = self.half_width(confidence)
        return estimate - half_width, estimate + half_width

    def quantile(self, probability: float) -> float:
        """The t with P(X ≤ t) = probability."""
        half_width = self.half_width(abs(2 * probability - 1))
        return half_width if probability >= 0.5 else -half_width

    def mass(
        self,
        method: Literal["exact", "pc", "mc"] | None = "exact",
        gamma: float = 0.01,
        samples: int | None = None,
        rng: np.random.Generator | None = None,
    ) -> Vector:
        """The probability mass vector on the integers −k … k, P(j − ½ < X ≤ j + ½).

        ``exact`` leaves out at most ``gamma`` of mass; ``pc`` and ``mc`` are the paper's
        algorithms, and None its choice between the two.

        Raises:
            ValueError: there is no such method.
        """
        noise = repeated(self.noise, self.counts)
        if method is None:
            method = "pc" if paper.prefers_pc(noise, gamma) else "mc"
        if method == "pc":
            return paper.discrete_mass(noise, gamma)
        if method == "mc":
            rng = rng or np.random.default_rng()
            return paper.monte_carlo_mass(noise, samples, rng, gamma)
        if method != "exact":
            raise ValueError(f"{method=} is none of exact, pc, mc")
        reach = max(math.ceil(self.half_width(1 - gamma) - 0.5), 0)
        beyond = np.concatenate([[0.5], self.tails(np.arange(0.5, reach + 1))])
        right = -np.diff(beyond)
        right[0] *= 2
        return np.concatenate([right[:0:-1], right])

    def chernoff(self, half_width: float) -> float:
        """An upper bound on P(|X| ≥ half_width), in constant time."""
        if not half_width > 0:
            return 1.0
        if self.scale == 0:
            return 0.0
        return min(1.0, 2 * math.exp(float(self.moment.exponent(half_width / self.scale))))

    def radius(self, tail: float) -> float:
        """A half-width beyond which ``chernoff`` leaves at most ``tail``, in constant time."""
        return self.scale * float(self.moment.radius(tail / 2)) if self.scale else 0.0

    def contour(self, half_width: float) -> Contour:
        """The rule for tails from ``half_width`` > 0 on, in units of ``scale``."""
        return self.moment.contour(half_width / self.scale)

    def tails(self, t: Vector) -> Vector:
        """P(X > t) for rising t [k] > 0."""
        if self.scale == 0:
            return np.zeros_like(t)
        contour = self.contour(float(t[0]))
        blocks = np.array_split(t / self.scale, 1 + t.size * contour.nodes.size // 1_000_000)
        return np.concatenate([contour.tail(block) for block in blocks])


def _bilateral_gamma_tail(n: int, t: float) -> float:
    """P(|X| > t) for n equal unit terms: |X| is Erlang(j) of weight C(2n−1−j, n−1)/2^(2n−1−j)."""
    if n == 1:
        return math.exp(-t)
    from scipy.special import gammaincc  # SciPy takes long to import, and few laws need it

    j = np.arange(1, n)
    ratio = np.log(2.0 * (n - j) / (2 * n - 1 - j))  # of a weight to the one before
    weights = np.exp(np.concatenate([[0.0], np.cumsum(ratio)]))
    return min(float(weights @ gammaincc(np.arange(1, n + 1), t)) / float(weights.sum()), 1.0)


def half_widths(laws: Sequence[LaplaceSum], confidence: float) -> Vector:
    """The t with P(|X| ≤ t) = confidence, in (0, 1), of laws of several terms, [laws]."""
    scales = np.array([law.scale for law in laws])
    return np.asarray(scales * _half_width(Moment.beside([x.moment for x in laws]), confidence))


def _half_width(moment: Moment, confidence: float) -> Number:
    """The half-width of one law, or of many, in units of its scale."""
    target = (1 - confidence) / 2
    # the largest term alone needs this much
    start = np.maximum(-math.log1p(-confidence), 0.6 * moment.radius(target))
    contour = moment.contour(start)
    while (far := (contour.tail_and_density(start)[0] < target) & (start > 1e-14)).any():
        start = np.where(far, 0.8 * start, start)[()]
        contour = moment.contour(start)
    root = _newton(contour, start, target, 1e-3)
    return _newton(moment.contour(0.98 * root), root, target, 4e-16)


def _newton(contour: Contour, t: Number, target: float, off: float) -> Number:
    """The root of P(X > t) = target right of the contour's start, to within a last step.

    The tail is log-concave: Newton on its logarithm, after one step, comes from the right.
    """
    for _ in range(60):
        tail, density = contour.tail_and_density(t)
        beyond = (tail <= 0) | (density <= 0)  # the contour's accuracy
        if beyond.any():
            t = np.where(beyond, (t + contour.start) / 2, t)[()]
            continue
        step = tail / density * np.log(tail / target)
        t = np.maximum(t + step, contour.start)
        if (np.abs(step) <= off * t).all():
            break
    return t


class Bounds(Struct, frozen=True, eq=False):
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
        """The octave of a ladder that is below the least argument for t."""
        return np.floor(np.log2((t - SHIFTS[-1] * self.size) / self.unit))

    def contour(self, level: Number) -> Contour:
        """The rule for every argument from an octave of the ladder on."""
        return self.moment.contour(rung(level))

    def shifts(self, contour: Contour) -> tuple[Complex, Complex]:
        """What moves an argument of a contour by every shift."""
        size = self.size / self.unit
        return contour.shifts(SHIFTS[0] * size, (SHIFTS[1] - SHIFTS[0]) * size, SHIFTS.size)

    def by_laplace(
        self, t: Number, contour: Contour, shifts: tuple[Complex, Complex]
    ) -> tuple[Number, Number]:
        """Both bounds by X_L, the best of several shifts s < t."""
        inner, middle, outer = contour.around(t / self.unit, shifts)
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
            contour = laws.contour(laws.level(at))
            found = laws.by_laplace(at, contour, laws.shifts(contour))
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
    """The argument at an octave of the ladder, in units of the law."""
    return 2.0**level * (1 - 1e-12)


def complement(tail: Number) -> Number:
    """1 − tail, rounded down."""
    return np.nextafter(1 - tail, -math.inf)
