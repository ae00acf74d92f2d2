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

Shapes: of one law, c [m] and numbers; of many laws, each at a t of its own, c [laws, m] and [laws].
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Complex = NDArray[np.complex128]
Number = Any  # of one law a number, of many [laws]

ACCURACY = 1e-13  # of P(X > t), relative to its Chernoff bound
NEGLIGIBLE = -400.0  # log of a tail that is taken for 0
FEW = 512  # terms up to which all are multiplied out
CHUNK = (48, 16)  # nodes evaluated at once, for few terms and for many
BLOCK = 200  # terms of one law multiplied at a time, to stay in the processor's cache
ORDER = 15  # power sums of the small terms
SERIES = np.arange(1, ORDER + 1) * (-1.0) ** np.arange(ORDER)  # of the logarithm: 1, -2, 3, …
NEWTON = 8  # steps to a saddle
FAR = 2.0**20  # of p₂: no saddle farther out is looked for


class Contour(Struct, frozen=True, eq=False):
    """Nodes and weights that give P(X > t) for every t ≥ start."""

    start: Number
    nodes: Complex  # [n] z
    weights: Complex  # [n] (h/π) M(z) coth(v), the first halved: the other half line mirrors this
    error: Number  # bound on aliasing, truncation and rounding at every such t

    def tail(self, t: Vector) -> Vector:
        """P(X > t) for t [k], each ≥ start."""
        powers = np.exp(-t[..., None] * self.nodes[..., None, :])
        return np.asarray((powers @ self.weights[..., None])[..., 0].imag)

    def shifts(self, first: Number, step: Number, count: int) -> tuple[Complex, Complex]:
        """exp(−sz) and exp(sz) for s = first, first + step, … [count]: what moves t out, and in."""
        away = np.exp(_along(-step)[..., None] * self.nodes[..., None, :])
        away = np.repeat(away, count, axis=-2)
        away[..., 0, :] = np.exp(_along(-first) * self.nodes)
        away = np.cumprod(away, axis=-2)
        return away, np.asarray(1 / away)

    def around(self, t: Number, shifts: tuple[Complex, Complex]) -> tuple[Vector, ...]:
        """P(X > t − s), P(X > t) and P(X > t + s) for every shift s [count]."""
        here = np.exp(_along(-t) * self.nodes) * self.weights
        outer, inner = ((away @ here[..., None])[..., 0].imag for away in shifts)
        return np.asarray(inner), np.asarray(here.sum(axis=-1).imag), np.asarray(outer)

    def apart(self) -> Iterator[Contour]:
        """The rules of many laws one by one."""
        for start, nodes, weights, error in zip(
            self.start, self.nodes, self.weights, self.error, strict=True
        ):
            used = np.flatnonzero(weights)
            length = int(used[-1]) + 1 if used.size else 1
            yield Contour(start, nodes[:length], weights[:length], error)

    def tail_and_density(self, t: Number) -> tuple[Number, Number]:
        """P(X > t) and the density at t ≥ start."""
        terms = np.exp(-_along(t) * self.nodes) * self.weights
        return terms.imag.sum(axis=-1), (terms * self.nodes).imag.sum(axis=-1)


class Moment(Struct, frozen=True, eq=False, dict=True):
    """M for the squared coefficients, with constant-time bounds on K = log M."""

    squares: Vector  # [m] c², the largest 1; there may be zeros
    counts: Vector | None = None  # [m] how often each occurs; once, where not said

    @cached_property
    def p1(self) -> Number:
        """Σ c²."""
        return self._sum(self.squares)

    @cached_property
    def p2(self) -> Number:
        """Σ c⁴."""
        return self._sum(self.squares * self.squares)

    @cached_property
    def terms(self) -> Number:
        """m, each as often as it occurs."""
        return self._sum(np.sign(self.squares))

    def logarithm(self, s: Vector) -> Vector:
        """An upper bound on K(s), 0 ≤ s < 1 [k]."""
        square = s * s
        return np.asarray(_along(self.p1 - self.p2) * square - _along(self.p2) * np.log1p(-square))

    def exponent(self, t: Number) -> Number:
        """The bound for K(s) − st, least in s: Newton on its derivative, from the right.

        The derivative of the bound for K, 2s (p₁ − p₂ + p₂/(1 − s²)), is convex, and at least what
        it is for p₁ = p₂: of that, the root is known.
        """
        rest, p2 = self.p1 - self.p2, self.p2
        # beyond it, a root is too near to 1, and another s serves
        near = min(float(t), FAR * p2) if isinstance(t, float) else np.minimum(t, FAR * p2)
        s = near / (p2 + (p2 * p2 + near * near) ** 0.5)
        for _ in range(NEWTON):
            below = 1 - s * s
            slope = 2 * (rest + p2 * (2 - below) / (below * below))
            s = s - (2 * s * (rest + p2 / below) - near) / slope
        return rest * s * s - p2 * np.log1p(-s * s) - t * s

    def radius(self, tail: float) -> Number:
        """A t whose ``exponent`` is at most log(tail)."""
        s = _saddles(self._octaves)
        return ((self.logarithm(s) - math.log(tail)) / s).min(axis=-1)

    @staticmethod
    def beside(moments: Sequence[Moment]) -> Moment:
        """Those of several laws, each term as often as it occurs, the largest first: so that the
        small ones are in the same places.
        """
        each = [repeated(moment.squares, moment.counts) for moment in moments]
        squares = np.zeros((len(moments), max(terms.size for terms in each)))
        for row, terms in zip(squares, each, strict=True):
            row[: terms.size] = np.sort(terms)[::-1]
        return Moment(squares)

    def contour(self, t: Number) -> Contour:
        """Plan and evaluate the rule for every argument ≥ t > 0."""
        lowest = self.exponent(t)
        negligible = lowest < NEGLIGIBLE
        if negligible.all():
            none = np.zeros((*np.shape(lowest), 1), dtype=np.complex128)
            return Contour(t, none, none, np.exp(lowest))
        goal = math.log(ACCURACY) + np.maximum(lowest, NEGLIGIBLE)  # −E
        outer, inner, out_sin, in_sin, out_cot, in_cot = _strips(self._octaves)
        beside = _along(goal)
        a_out = np.maximum(self.logarithm(out_sin) - _along(t) * out_sin + out_cot - beside, 2)
        a_in = np.maximum(self.logarithm(in_sin) - _along(t) * in_sin + in_cot - beside, 2)
        steps = 2 * math.pi * (outer - inner) / (a_out + a_in)
        best = steps.argmax(axis=-1)
        chosen = best if steps.ndim == 1 else (np.arange(len(best)), best)
        h = steps[chosen]
        found = self._evaluate(t, inner[best] + h * a_in[chosen] / (2 * math.pi), h, goal)
        if not negligible.any():
            return found
        nodes, weights = (
            np.where(_along(negligible), 0, each) for each in (found.nodes, found.weights)
        )
        return Contour(t, nodes, weights, np.where(negligible, np.exp(lowest), found.error))

    @cached_property
    def _many(self) -> bool:
        """Whether some law has many terms."""
        return self.squares.shape[-1] > FEW or _most(self.terms) > FEW

    @cached_property
    def _octaves(self) -> int:
        """How far below 1 the scale of 1/X lies."""
        return max(1, math.ceil(math.log2(1 + _most(self.p1)) / 2))

    def _sum(self, values: Vector) -> Number:
        """Σ values, each as often as it occurs."""
        total = (values if self.counts is None else values * self.counts).sum(axis=-1)
        return total if values.ndim > 1 else float(total)

    def _evaluate(self, t: Number, y: Number, h: Number, goal: Number) -> Contour:
        """The nodes on the hyperbola y, as far out as the truncation bound asks."""
        nodes, weights = [], []
        first, chunk = 0, CHUNK[self._many]
        open_ = np.ones(np.shape(goal), dtype=bool)
        while open_.any():
            x = _along(h) * np.arange(first, first + chunk)
            z = _along(np.sin(y)) * np.cosh(x) + 1j * _along(np.cos(y)) * np.sinh(x)
            with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
                moment = 1 / self._product(-z * z)
                # A product that overflowed, a moment below 1e-130, ends as NaN: not above the goal.
                bound = np.log(np.abs(moment)) - np.log(np.tanh(x)) - _along(t) * z.real
            done = ~(bound > _along(goal) - 0.25)
            # the first such node is the X of the bound, and the last that counts
            ended = done.any(axis=-1)
            stop = np.where(ended, done.argmax(axis=-1) + 1, chunk) * open_
            kept = np.arange(int(stop.max())) < stop[..., None]
            z, x, moment = (each[..., : kept.shape[-1]] for each in (z, x, moment))
            moment = np.where(kept & np.isfinite(moment), moment, 0)
            nodes.append(np.where(kept, z, 0))
            weights.append(_along(h) / math.pi * moment / np.tanh(x - 1j * _along(y)))
            open_ = open_ & ~ended
            first += chunk
        weights[0][..., 0] /= 2
        z, weight = (np.concatenate(each, axis=-1) for each in (nodes, weights))
        size = (np.abs(weight) * np.exp(-_along(t) * z.real)).sum(axis=-1)
        rounding = 2.0**-52 * (400 + 4 * np.minimum(self.terms, 3000)) * size
        return Contour(t, z, weight, np.exp(goal) + rounding)

    def _product(self, w: Complex) -> Complex:
        """Π (1 + c² w) for w [k], with a rounding that does not grow with many small terms.

        Terms with c²|w| ≤ 1/10 enter by power sums, log(1 + x) = Σ ±x^j / j, of which ORDER leave
        out less than 1e-16 Σ c²|w|. The others, where M matters, are at most some hundreds.
        """
        direct, counts, product = self.squares, self.counts, np.ones_like(w)
        if self._many:
            small = direct * np.abs(w).max(axis=-1, keepdims=True) <= 0.1
            rest = np.where(small, direct, 0.0)
            powers = np.multiply.accumulate(np.broadcast_to(rest, (ORDER, *rest.shape)))
            sums = self._sum(powers).T / SERIES
            images = np.multiply.accumulate(np.repeat(w[..., None], ORDER, axis=-1), axis=-1)
            product = np.exp((images @ sums[..., None])[..., 0])
            large = ~small.reshape(-1, small.shape[-1]).all(axis=0)
            direct = np.where(small, 0.0, direct)[..., large]
            counts = counts if counts is None else counts[..., large]
        block = max(1, BLOCK * w.shape[-1] // w.size)
        for first in range(0, direct.shape[-1], block):
            factors = direct[..., first : first + block, None] * w[..., None, :]
            factors += 1
            if counts is None:
                product = product * np.multiply.reduce(factors, axis=-2)
            elif counts.ndim > 1:
                repeated = np.log(factors) * counts[..., first : first + block, None]
                product = product * np.exp(repeated.sum(axis=-2))
            else:
                product = product * _powers(factors, counts[first : first + block])
        return product


def repeated(values: Vector, counts: Vector | None) -> Vector:
    """Values [m] as often as they occur."""
    return values if counts is None else np.repeat(values, counts.astype(np.int64))


def _powers(factors: Complex, counts: Vector) -> Complex:
    """Π factors^counts [k], of [m, k] and whole counts [m], by squaring."""
    whole, product = counts.astype(np.int64), np.ones_like(factors[0])
    for bit in reversed(range(int(whole.max()).bit_length())):
        product *= product
        product *= np.multiply.reduce(factors[whole & 1 << bit != 0], axis=0)
    return np.asarray(product)


def _most(values: Number) -> float:
    """The largest of numbers."""
    return values if isinstance(values, float) else float(values.max())


def _along(values: Number) -> Number:
    """Numbers, or [laws], beside whatever each law has several of."""
    return values if isinstance(values, float) else values[..., None]


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
