r"""The tail of a weighted sum of Laplace variables, by the trapezoid rule on a hyperbola.

    X = Σ c_i L_i,   L_i unit Laplace, max c_i = 1;   M(z) = E exp(zX) = Π 1/(1 − c_i² z²),   t > 0

Invariant: |tail(t) − P(X > t)| ≤ ``error`` for every t ≥ ``start``, and but for rounding that is
``ACCURACY`` times the Chernoff bound at ``start``. Let K = log M on [0, 1).

P(X > t) = 1/(2πi) ∫ M(z) exp(−tz) dz/z along a vertical line right of 0. With z = i sinh v,
v = x − iy, the line may be bent into the hyperbola z = cosh x sin y + i sinh x cos y, 0 < y ≤ π/4,
as all singularities are real, at 0 and |z| ≥ 1. There exp(−tz) dies doubly exponentially for any c:

    P(X > t) = (1/π) ∫₀^∞ Im g(x) dx,     g = M(z) exp(−tz) coth(x − iy).

Bounds on g. With C = c²/2 and w = cosh 2x, |1 − c²z²|² = C²w² + 2C(1 − C) w cos 2y + const grows
with x as cos 2y ≥ 0, so each factor of |M| falls from x = 0 on; that of the largest term is
1/(sinh²x + cos²y). |coth| falls too, from cot y. Hence, with ψ(y) = K(sin y) − t sin y,

    |g| ≤ cot y exp(ψ(y)) cos²y/(sinh²x + cos²y),     of integral ≤ 2 cot y exp(ψ(y)) over ℝ.

Aliasing. By the theorem on the trapezoid rule of step h in a strip y₁ < y < y₂ ≤ π/4 (Trefethen &
Weideman, SIAM Review 2014, Theorem 5.1, either side by itself) its error is at most

    (1/π) Σ_j cot y_j exp(ψ(y_j)) / (exp(2π|y − y_j|/h) − 1) ≤ 0.74 exp(−E),     j = 1, 2,

if 2π|y − y_j|/h = A_j = max(2, E + log cot y_j + ψ(y_j)). Given y₁ and y₂, this sets h and y.

Truncation. The nodes beyond X, a node, add up to at most the integral of their falling bound, and
(sinh²X + cos²y) ∫_X^∞ dx/(sinh²x + cos²y) ≤ exp(−X) cosh X ≤ 1, so the rest is at most

    (1/π) coth X |M(z(X))| exp(−t sin y cosh X),     brought below 0.25 exp(−E).

E = −log ACCURACY − min ψ makes both relative to the Chernoff bound exp(min ψ) ≥ P(X > t). K itself
is not needed: with p₁ = Σ c², p₂ = Σ c⁴ and c ≤ 1, K(s) = Σ_k Σ c^2k s^2k / k ≤ (p₁ − p₂) s² −
p₂ log(1 − s²), an equality for equal terms. What holds at t holds at every larger t.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Complex = NDArray[np.complex128]

ACCURACY = 1e-13  # of P(X > t), relative to its Chernoff bound
NEGLIGIBLE = -400.0  # log of a tail that is taken for 0
FEW = 64  # terms up to which all are multiplied out
CHUNK = (48, 16)  # nodes evaluated at once, for few terms and for many
BLOCK = 200  # terms multiplied at a time, to stay in the processor's cache
ORDER = 15  # power sums of the small terms


@dataclass(frozen=True, eq=False)
class Contour:
    """Nodes and weights that give P(X > t) for every t ≥ start."""

    start: float
    nodes: Complex  # [n] z
    weights: Complex  # [n] (h/π) M(z) coth(v), the first halved: the other half line mirrors this
    error: float  # bound on aliasing, truncation and rounding at every such t

    def tail(self, t: Vector) -> Vector:
        """P(X > t) for t [k], each ≥ start."""
        return np.asarray((np.exp(np.multiply.outer(-t, self.nodes)) @ self.weights).imag)

    def tail_and_density(self, t: float) -> tuple[float, float]:
        """P(X > t) and the density at t ≥ start."""
        terms = np.exp(-t * self.nodes) * self.weights
        return float(terms.imag.sum()), float((terms * self.nodes).imag.sum())


@dataclass(frozen=True, eq=False)
class Moment:
    """M for the squared coefficients, with constant-time bounds on K = log M."""

    squares: Vector  # [m] c², the largest 1
    p1: float  # Σ c²
    p2: float  # Σ c⁴

    def logarithm(self, s: Vector) -> Vector:
        """An upper bound on K(s), 0 ≤ s < 1."""
        square = s * s
        return (self.p1 - self.p2) * square - self.p2 * np.log1p(-square)

    def exponent(self, t: float) -> float:
        """The bound for K(s) − st, least in s by bisection of its derivative."""
        low, high, rest = 0.0, 1.0, self.p1 - self.p2
        for _ in range(24):
            s = (low + high) / 2
            if 2 * s * (rest + self.p2 / (1 - s * s)) > t:
                high = s
            else:
                low = s
        return rest * low * low - self.p2 * math.log1p(-low * low) - t * low

    def radius(self, tail: float) -> float:
        """A t whose ``exponent`` is at most log(tail)."""
        s = _saddles(self._octaves)
        return float(((self.logarithm(s) - math.log(tail)) / s).min())

    def contour(self, t: float) -> Contour:
        """Plan and evaluate the rule for every argument ≥ t > 0."""
        lowest = self.exponent(t)
        if lowest < NEGLIGIBLE:
            return Contour(t, np.zeros(1, complex), np.zeros(1, complex), math.exp(lowest))
        goal = math.log(ACCURACY) + lowest  # −E
        outer, inner, out_sin, in_sin, out_cot, in_cot = _strips(self._octaves)
        a_out = np.maximum(self.logarithm(out_sin) - t * out_sin + out_cot - goal, 2)
        a_in = np.maximum(self.logarithm(in_sin) - t * in_sin + in_cot - goal, 2)
        steps = 2 * math.pi * (outer - inner) / (a_out + a_in)
        best = int(steps.argmax())
        h = float(steps[best])
        y = float(inner[best]) + h * float(a_in[best]) / (2 * math.pi)
        return self._evaluate(t, y, h, goal)

    @property
    def _octaves(self) -> int:
        """How far below 1 the scale of 1/X lies."""
        return max(1, math.ceil(math.log2(1 + self.p1) / 2))

    def _evaluate(self, t: float, y: float, h: float, goal: float) -> Contour:
        """The nodes on the hyperbola y, as far out as the truncation bound asks."""
        nodes, weights = [], []
        first, chunk = 0, CHUNK[self.squares.size > FEW]
        while True:
            x = h * np.arange(first, first + chunk)
            z = math.sin(y) * np.cosh(x) + 1j * math.cos(y) * np.sinh(x)
            with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
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
        weights[0][0] /= 2
        z, weight = np.concatenate(nodes), np.concatenate(weights)
        size = float(np.abs(weight) @ np.exp(-t * z.real))
        rounding = 2.0**-52 * (400 + 4 * min(self.squares.size, 3000)) * size
        return Contour(t, z, weight, math.exp(goal) + rounding)

    def _product(self, w: Complex) -> Complex:
        """Π (1 + c² w) for w [k], with a rounding that does not grow with many small terms.

        Terms with c²|w| ≤ 1/10 enter by power sums, log(1 + x) = Σ ±x^j / j, of which ORDER leave
        out less than 1e-16 Σ c²|w|. The others, where M matters, are at most some hundreds.
        """
        direct, product = self.squares, np.ones_like(w)
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
def _angles(octaves: int) -> Vector:
    """Angles from π/4 down to π/4 · 2^−octaves."""
    return np.geomspace(math.pi / 4 / 2**octaves, math.pi / 4, 12 + 6 * octaves)


@lru_cache(maxsize=64)
def _saddles(octaves: int) -> Vector:
    """Points of (0, 1), dense at the scale of 1/X and at 1."""
    return np.concatenate([np.sin(_angles(octaves)), [0.8, 0.87, 0.92, 0.95, 0.97, 0.99]])


@lru_cache(maxsize=64)
def _strips(octaves: int) -> tuple[Vector, ...]:
    """Candidates for y₂ and y₁ = y₂/32, their sines, and their log cotangents."""
    outer = _angles(octaves)
    inner = outer / 32
    cotangents = -np.log(np.tan(outer)), -np.log(np.tan(inner))
    return outer, inner, np.sin(outer), np.sin(inner), *cotangents
