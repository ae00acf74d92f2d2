r"""The posterior law of the paper: a weighted sum of Laplace variables, inverted with a proved bound.

    X = Σ c_i L_i,   L_i unit Laplace,   M(z) = E exp(zX) = Π 1/(1 − c_i² z²)        c [m], answer units

θ − θ̂ has this law when c holds the BLUE's coefficients on unit noise. Let max|c_i| = 1 (by a change of
unit), K = log M on (−1, 1) and t ≥ 0. Invariant: every probability is within ``ACCURACY`` of the truth, and a
tail within ``ACCURACY`` of its own Chernoff bound, up to the rounding of m products.

Inversion. P(X > t) = 1/(2πi) ∫ M(z) exp(−tz) dz/z along a line to the right of 0. With z = i·sinh(v),
v = x − iy, the line may be bent into the hyperbola z = cosh x sin y + i sinh x cos y, 0 < y ≤ π/4, as the only
singularities are real, at 0 and |z| ≥ 1. There exp(−tz) dies doubly exponentially, whatever the coefficients:

    P(X > t) = (1/π) ∫₀^∞ Im g(x) dx,     g = M(z) exp(−tz) coth(x − iy).

Trapezoid rule with step h. On such a line |1 − c²z²|² = C²w² + 2C(1 − C)w cos 2y + const, with C = c²/2 and
w = cosh 2x, grows with x as cos 2y ≥ 0, so it is least at x = 0; for the largest term, c = 1, it is
(sinh²x + cos²y)². |coth| is at most cot y and falls with x. Hence |g| ≤ cot y exp(ψ(y)) cos²y/(sinh²x + cos²y)
with ψ(y) = K(sin y) − t sin y, of integral ≤ 2 cot y exp(ψ(y)) over the whole line, and by the theorem on the trapezoid rule in a
strip y₁ < y < y₂ (Trefethen & Weideman 2014, Theorem 5.1, each side by itself)

    aliasing   ≤ (1/π) Σ_j cot y_j exp(ψ(y_j)) / (exp(2π|y − y_j|/h) − 1),      j = 1, 2.

Set A_j = E + log cot y_j + ψ(y_j), at least 2, and 2π|y − y_j|/h = A_j: then aliasing ≤ 0.74 exp(−E).
The nodes beyond x = X add up to at most the integral of their falling bound, and (sinh²X + cos²y) times
∫_X^∞ dx/(sinh²x + cos²y) is ≤ exp(−X) cosh X ≤ 1:

    truncation ≤ (1/π) coth X |M(z(X))| exp(−t sin y cosh X),       brought below 0.25 exp(−E).

E = log(1/ACCURACY) − min ψ makes this relative to the Chernoff bound. K itself is not needed: with
p₁ = Σ c², p₂ = Σ c⁴, K(s) = Σ_k p_k s^2k / k ≤ (p₁ − p₂) s² − p₂ log(1 − s²), as c ≤ 1 (and with equality for equal
terms). A bound that holds at t holds at every larger t: one contour serves them all.

Source: Xiao & Xiong, Bayesian Inference under Differential Privacy, §"Theoretical Probability Function".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincc

from proxy.inference import mass as paper

Vector = NDArray[np.float64]

ACCURACY = 1e-13  # of a one-sided tail, relative to its Chernoff bound
NEGLIGIBLE = -400.0  # log of a tail that is returned as 0
FEW = 64  # terms up to which all are multiplied out
CHUNK = (48, 16)  # nodes evaluated at once, for few terms and for many
BLOCK = 200  # terms multiplied at a time, to stay in the processor's cache
ORDER = 15  # power sums of the small terms


@dataclass(frozen=True, eq=False)
class Contour:
    """Nodes and weights that give P(X > t) for every t ≥ start, in units of the largest term."""

    start: float
    nodes: NDArray[np.complex128]  # [n] z
    weights: NDArray[np.complex128]  # [n] (h/π) M(z) coth(v), the first halved
    error: float  # bound on aliasing, truncation and rounding at every such t

    def tail(self, t: Vector) -> Vector:
        """P(X > t) for t [k], each ≥ start."""
        return np.asarray((np.exp(np.multiply.outer(-t, self.nodes)) @ self.weights).imag)

    def tail_and_density(self, t: float) -> tuple[float, float]:
        """P(X > t) and the density at t."""
        terms = np.exp(-t * self.nodes) * self.weights
        return float(terms.imag.sum()), float((terms * self.nodes).imag.sum())


@dataclass(frozen=True, eq=False)
class LaplaceSum:
    """The law of Σ c_i L_i: ``noise`` c [m] in units of the answer; signs and zeros do not matter."""

    noise: Vector
    scale: float = field(init=False)  # the largest |c|; 0 for the point mass at 0
    _squares: Vector = field(init=False, repr=False)  # [m] (c/scale)² of the terms that are not 0
    _p1: float = field(init=False, repr=False)
    _p2: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        noise = np.abs(np.asarray(self.noise, dtype=np.float64))
        if noise.ndim != 1 or not np.isfinite(noise).all():
            raise ValueError("noise must be a vector of finite numbers")
        scale = float(noise.max(initial=0.0))
        squares = np.square(noise[noise > 0] / scale) if scale else noise[:0]
        for name, value in (
            ("noise", noise),
            ("scale", scale),
            ("_squares", squares),
            ("_p1", float(squares.sum())),
            ("_p2", float(squares @ squares)),
        ):
            object.__setattr__(self, name, value)

    @property
    def variance(self) -> float:
        """2 Σ c²."""
        return 2.0 * self._p1 * self.scale**2

    def tail(self, half_width: float) -> float:
        """P(|X| > half_width), to a relative accuracy wherever the Chernoff bound is near."""
        if half_width < 0:
            return 1.0
        if self.scale == 0:
            return 0.0
        t = half_width / self.scale
        if t == 0:
            return 1.0
        if self._squares.min() == 1:  # equal terms, one included
            return _bilateral_gamma_tail(self._squares.size, t)
        value = 2 * float(self.contour(t).tail(np.array([t]))[0])
        return min(max(value, 0.0), 1.0)

    def cdf(self, t: float) -> float:
        """P(X ≤ t)."""
        return 1 - self.tail(t) / 2 if t >= 0 else self.tail(-t) / 2

    def confidence(self, half_width: float) -> float:
        """P(|X| ≤ half_width)."""
        return 1 - self.tail(half_width)

    def probability(self, low: float, high: float) -> float:
        """P(low ≤ X ≤ high), as a difference of the smaller tails."""
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
        target = (1 - confidence) / 2
        start = -math.log(2 * target)  # the largest term alone needs this much
        if self._squares.size == 1:
            return self.scale * start
        # The tail is log-concave, so after one step Newton on its logarithm comes from the right.
        start = max(start, 0.6 * self.radius(2 * target) / self.scale)
        for _ in range(60):
            contour = self.contour(start)
            if contour.tail_and_density(start)[0] >= target:
                break
            start *= 0.8
        root = _newton(contour, start, target)
        close = 0.98 * root  # a contour for the place itself
        return self.scale * _newton(self.contour(close), root, target)

    def interval(self, confidence: float, estimate: float = 0.0) -> tuple[float, float]:
        """The narrowest [low, high] around ``estimate`` that has this confidence."""
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

        ``exact`` loses at most ``gamma`` of mass; ``pc`` and ``mc`` are the paper's algorithms, and None its
        choice between them.
        """
        if method is None:
            method = "pc" if paper.prefers_pc(self.noise, gamma) else "mc"
        if method == "pc":
            return paper.discrete_mass(self.noise, gamma)
        if method == "mc":
            return paper.monte_carlo_mass(
                self.noise, samples, rng or np.random.default_rng(), gamma
            )
        if method != "exact":
            raise ValueError(f"{method=} is none of exact, pc, mc")
        reach = max(math.ceil(self.half_width(1 - gamma) - 0.5), 0) if self.scale else 0
        ends = np.arange(reach + 1) + 0.5
        beyond = np.concatenate([[0.5], self._tails(ends)])  # P(X > 0), P(X > j + ½)
        right = -np.diff(beyond)
        right[0] *= 2
        return np.concatenate([right[:0:-1], right])

    def chernoff(self, half_width: float) -> float:
        """An upper bound on P(|X| > half_width), in constant time."""
        if self.scale == 0:
            return 0.0 if half_width >= 0 else 1.0
        t = half_width / self.scale
        return min(1.0, 2 * math.exp(self._exponent(t))) if t > 0 else 1.0

    def radius(self, tail: float) -> float:
        """A half-width that ``chernoff`` shows to leave out at most ``tail``, in constant time."""
        s = _saddles(self._p1)
        return self.scale * float(((self._log_moment(s) + math.log(2 / tail)) / s).min())

    def _log_moment(self, s: Vector) -> Vector:
        """An upper bound on K(s), 0 ≤ s < 1."""
        square = s * s
        return (self._p1 - self._p2) * square - self._p2 * np.log1p(-square)

    def _exponent(self, t: float) -> float:
        """min_s K(s) − st by bisection of its derivative, with the bound for K."""
        low, high, rest = 0.0, 1.0, self._p1 - self._p2
        for _ in range(24):
            s = (low + high) / 2
            if 2 * s * (rest + self._p2 / (1 - s * s)) > t:
                high = s
            else:
                low = s
        return rest * low * low - self._p2 * math.log1p(-low * low) - t * low

    def _tails(self, t: Vector) -> Vector:
        """P(X > t) for rising t [k] > 0."""
        if self.scale == 0:
            return np.zeros_like(t)
        t = t / self.scale
        contour = self.contour(float(t[0]))
        blocks = np.array_split(t, 1 + t.size * contour.nodes.size // 1_000_000)
        return np.concatenate([contour.tail(block) for block in blocks])

    def contour(self, t: float) -> Contour:
        """Plan the rule for every argument ≥ t > 0 (units of the largest term), as proved above."""
        lowest = self._exponent(t)
        if lowest < NEGLIGIBLE:
            return Contour(t, np.zeros(1, complex), np.zeros(1, complex), math.exp(lowest))
        goal = math.log(ACCURACY) + lowest
        outer, inner, out_sin, in_sin, out_cot, in_cot = _strips(self._p1)
        a_out = np.maximum(self._log_moment(out_sin) - t * out_sin + out_cot - goal, 2)
        a_in = np.maximum(self._log_moment(in_sin) - t * in_sin + in_cot - goal, 2)
        steps = 2 * math.pi * (outer - inner) / (a_out + a_in)
        best = int(steps.argmax())
        h = float(steps[best])
        y = float(inner[best]) + h * float(a_in[best]) / (2 * math.pi)
        return self._nodes(t, y, h, goal)

    def _nodes(self, t: float, y: float, h: float, goal: float) -> Contour:
        """The trapezoid rule on the hyperbola y, as far out as the truncation bound asks."""
        nodes, weights = [], []
        first, chunk = 0, CHUNK[self._squares.size > FEW]
        while True:
            x = h * np.arange(first, first + chunk)
            z = math.sin(y) * np.cosh(x) + 1j * math.cos(y) * np.sinh(x)
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                moment = 1 / self._product(-z * z)
                # A product that overflowed, a moment below 1e-130, ends as NaN: not above the goal.
                bound = np.log(np.abs(moment)) - np.log(np.tanh(x)) - t * z.real
            done = np.flatnonzero(~(bound > goal - 0.25))
            stop = int(done[0]) + 1 if done.size else chunk  # that node is the X of the bound
            moment = np.where(np.isfinite(moment), moment, 0)[:stop]
            nodes.append(z[:stop])
            weights.append(h / math.pi * moment / np.tanh(x[:stop] - 1j * y))
            if done.size:
                break
            first += chunk
        weights[0][0] /= 2  # the other half line mirrors this one
        z, weight = np.concatenate(nodes), np.concatenate(weights)
        size = float(np.abs(weight) @ np.exp(-t * z.real))
        rounding = 2.0**-52 * (400 + 4 * min(self._squares.size, 3000)) * size
        return Contour(t, z, weight, math.exp(goal) + rounding)

    def _product(self, w: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Π (1 + c² w) for w [k]; rounding does not grow with the number of small terms.

        Terms with c²|w| ≤ 1/10 enter by their power sums, log(1 + x) = Σ ±x^j / j, of which ORDER leave out less
        than 1e-16 Σ c²|w|. The others, in the region that matters, are a few hundred at most.
        """
        direct, product = self._squares, np.ones_like(w)
        if direct.size > FEW:
            small = direct * np.abs(w).max() <= 0.1
            power = rest = direct[small]
            direct = direct[~small]
            sums = [float(power.sum())]
            for _ in range(ORDER - 1):
                power = power * rest
                sums.append(float(power.sum()))
            logarithm = np.zeros_like(w)
            for j in range(ORDER, 0, -1):
                logarithm = w * ((sums[j - 1] / j if j % 2 else -sums[j - 1] / j) + logarithm)
            product = np.exp(logarithm)
        for first in range(0, direct.size, BLOCK):
            factors = np.multiply.outer(direct[first : first + BLOCK], w)
            factors += 1
            product *= np.multiply.reduce(factors, axis=0)
        return product


@lru_cache(maxsize=64)
def _grid(reach: int) -> Vector:
    """Angles from π/4 down to the scale of a sum of 4^reach equal terms."""
    return np.geomspace(math.pi / 4 / 2**reach, math.pi / 4, 12 + 6 * reach)


def _reach(p1: float) -> int:
    return max(1, math.ceil(math.log2(1 + p1) / 2))


def _saddles(p1: float) -> Vector:
    return _saddle_grid(_reach(p1))


@lru_cache(maxsize=64)
def _saddle_grid(reach: int) -> Vector:
    """Points of (0, 1), dense at the scale of the sum and at 1."""
    return np.concatenate([np.sin(_grid(reach)), [0.8, 0.87, 0.92, 0.95, 0.97, 0.99]])


def _strips(p1: float) -> tuple[Vector, ...]:
    return _strip_grid(_reach(p1))


@lru_cache(maxsize=64)
def _strip_grid(reach: int) -> tuple[Vector, ...]:
    """Candidates for y₂ and y₁ = y₂/32, their sines, and their log cotangents."""
    outer = _grid(reach)
    inner = outer / 32
    return (
        outer,
        inner,
        np.sin(outer),
        np.sin(inner),
        -np.log(np.tan(outer)),
        -np.log(np.tan(inner)),
    )


def _bilateral_gamma_tail(n: int, t: float) -> float:
    """P(|X| > t) for n equal unit terms: |X| is Erlang(j) with weight C(2n−1−j, n−1)/2^(2n−1−j)."""
    if n == 1:
        return math.exp(-t)
    j = np.arange(1, n)
    falling = np.log(2.0 * (n - j) / (2 * n - 1 - j))  # each weight by the one before it
    weights = np.exp(np.concatenate([[0.0], np.cumsum(falling)]))
    weights /= weights.sum()
    return min(float(weights @ gammaincc(np.arange(1, n + 1), t)), 1.0)


def _newton(contour: Contour, t: float, target: float) -> float:
    """The root of P(X > t) = target right of the contour's start, by Newton on the logarithm."""
    for _ in range(60):
        tail, density = contour.tail_and_density(t)
        if tail <= 0 or density <= 0:  # beyond the contour's accuracy: come back
            t = (t + contour.start) / 2
            continue
        step = tail / density * math.log(tail / target)
        t = max(t + step, contour.start)
        if abs(step) <= 4e-16 * t:
            break
    return t


def laplace_sum(noise: ArrayLike) -> LaplaceSum:
    """The law of Σ c_i L_i for anything that is a vector."""
    return LaplaceSum(np.asarray(noise, dtype=np.float64))
