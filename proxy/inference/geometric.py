r"""The posterior law of the noise that is drawn: a weighted sum of two-sided geometric variables, never overstated.

    X = Σ a_i g_i K_i,   P(K_i = k) ∝ exp(−w_i g_i |k|)        coefficients a, weights w, grids g [m]

a_i answers per answer of row i, w_i per unit of that answer (1/scale of its noise), g_i in that unit. With
b = |a| g, λ = w g, c = |a|/w: X = Σ b_i K_i, φ(u) = Π 1/(1 + sin²(b_i u/2)/sinh²(λ_i/2)).

Invariant: a reported confidence is never above the true one, nor a half-width below it; a probability is a bracket
(lower, upper) that holds the truth, rounding included. The brackets are tried cheapest first until they are tight:

1. One row: P(|X| ≤ t) = 1 − 2 p^(⌊t/b⌋ + 1)/(1 + p), p = exp(−λ), the floor taken in rational arithmetic.
2. A Laplace variable is geometric + bounded: an exponential is a geometric on g plus an independent remainder in [0, g),
   so X_L = Σ c_i L_i has the law of X + D, D = Σ b_i (R_i − R_i') independent of X and symmetric. The density of R − R' is
   ∝ sinh(λ(1 − |r|)), likelihood-ratio smaller in |r| than the triangle, so E exp(sD) ≤ Π (sinh(sb_i/2)/(sb_i/2))² ≤
   exp(s²B/12), B = Σ b_i², and P(D ≤ −s) ≤ q(s) = exp(−3s²/B). Hence, with tail(t) = P(|·| > t),

       tail(t) ≤ min_s tail_L(t − s) / max(1 − q, 1/2),        P(|X| ≤ t) ≤ min_s P(|X_L| ≤ t + s) / (1 − 2q),

   and E exp(sX) ≤ E exp(sX_L): the Chernoff bound of X_L serves X. A symmetric log-concave law of variance V has a
   density ≤ 1/√(2V) (compare with the Laplace law of the same height), so P(|X_L| ≤ r) ≤ r √(2/V).
3. The law wrapped round a circle, a lattice, or its atoms (``circle``).

Coefficients are the floats given. b_i = fl(|a_i| g_i), or n_i η on a lattice, is off by a relative ρ, which moves X by at most
ρ Σ b_i|K_i|; as E exp(Σ b_i|K_i|/(2 max c)) ≤ 2^(Σc/max c), that is ≤ ρ (1.4 Σc + 60 max c) but for 1e-13. Half-widths are
moved by this much against us, save where rational arithmetic settles a tie.

Source: Xiao & Xiong, Bayesian Inference under Differential Privacy, for the posterior as a sum of noises; its law here
is that of the noise on a grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from proxy.inference.circle import Atoms, Bracket, arcs, atoms, common_step, entropies, lattice
from proxy.inference.laplace import LaplaceSum

Vector = NDArray[np.float64]
Built = TypeVar("Built")

SLACK = 1e-12  # subtracted from lower bounds, added to upper ones: rounding of the last operations
DEGREES = (512, 2048, 8192)  # of the polynomials on the circle, tried in turn
MAX_MODULUS = 8192  # of a lattice
TIGHT = 0.004  # brackets no wider are not refined,
TIGHT_TAIL = 0.05  # if no wider than this part of what is left out
FEW_ATOMS, MANY_ATOMS = 5.0, 11.0  # entropies up to which atoms are listed first, or at all
SHIFTS = np.linspace(0.85, 5.0, 16) / math.sqrt(3)  # s/√B
SHORTFALL = np.exp(-3 * SHIFTS**2)  # q(s)


@dataclass(frozen=True, eq=False)
class GeometricSum:
    """The law of Σ a_i g_i K_i; signs of coefficients do not matter, and rows of coefficient 0 do not enter."""

    coefficients: Vector  # [m] a
    weights: Vector  # [m] w > 0
    grids: Vector  # [m] g > 0
    _rows: Vector = field(init=False, repr=False)  # [3, k] |a|, w, g of the rows that enter
    _built: dict[tuple[object, ...], object] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rows = np.array([self.coefficients, self.weights, self.grids], dtype=np.float64)
        if rows.ndim != 2:
            raise ValueError("coefficients, weights and grids must be vectors of one length")
        rows[0] = np.abs(rows[0])
        rows = rows[:, rows[0] != 0]
        if not (np.isfinite(rows).all() and (rows > 0).all()):
            raise ValueError("need finite coefficients, and positive finite weights and grids")
        object.__setattr__(self, "_rows", rows)
        object.__setattr__(self, "_built", {})

    @property
    def variance(self) -> float:
        """Σ b² / (2 sinh²(λ/2))."""
        half = np.minimum(self._rate / 2, 350.0)
        return float((np.square(self._step / np.sinh(half))).sum()) / 2

    def confidence(self, half_width: float) -> float:
        """A lower bound on P(|X| ≤ half_width)."""
        return self.bracket(half_width).lower

    def meets(self, half_width: float, confidence: float) -> bool:
        """Whether ``confidence(half_width)`` ≥ ``confidence``, by the first bound that decides."""
        for bracket in self._narrowing(half_width, closed=True):
            if bracket.lower >= confidence:
                return True
            if bracket.upper < confidence:
                return False
        return False

    def bracket(self, half_width: float, closed: bool = True) -> Bracket:
        """Bounds on P(|X| ≤ half_width), or on P(|X| < half_width) if not ``closed``."""
        bracket = Bracket(0.0, 0.0)
        for bracket in self._narrowing(half_width, closed):
            if bracket.upper - bracket.lower <= min(TIGHT, TIGHT_TAIL * (1 - bracket.upper)):
                break
        return bracket

    def cdf(self, t: float) -> Bracket:
        """Bounds on P(X ≤ t)."""
        if t >= 0:
            inner = self.bracket(t)
            return Bracket((1 + inner.lower) / 2, (1 + inner.upper) / 2)
        inner = self.bracket(-t, closed=False)
        return Bracket((1 - inner.upper) / 2, (1 - inner.lower) / 2)

    def probability(self, low: float, high: float) -> Bracket:
        """Bounds on P(low ≤ X ≤ high)."""
        if low > high:
            return Bracket(0.0, 0.0)
        if low <= 0 <= high:
            left, right = self.bracket(-low), self.bracket(high)
            return Bracket((left.lower + right.lower) / 2, (left.upper + right.upper) / 2)
        near, far = sorted((abs(low), abs(high)))
        inner, outer = self.bracket(near, closed=False), self.bracket(far)
        lower, upper = (outer.lower - inner.upper) / 2, (outer.upper - inner.lower) / 2
        return Bracket(max(lower, 0.0), upper)

    def half_width(self, confidence: float) -> float:
        """A t that ``meets`` the confidence; nearly the least.

        Raises:
            ValueError: ``confidence`` is not in [0, 1].
        """
        if not 0 <= confidence <= 1:
            raise ValueError(f"{confidence=} is not in [0, 1]")
        if self.meets(0.0, confidence):
            return 0.0
        if confidence == 1:
            return math.inf
        high = self.continuous.radius(max(1 - confidence - 2 * SLACK, 1e-300))
        while not self.meets(high, confidence):
            high *= 2
            if not math.isfinite(high):
                return math.inf
        low = 0.0
        while high - low > 1e-6 * high:  # ``meets`` holds at ``high`` throughout
            middle = (low + high) / 2
            if self.meets(middle, confidence):
                high = middle
            else:
                low = middle
        point = self._point_below(high)
        return point if self.meets(point, confidence) else high

    def interval(self, confidence: float, estimate: float = 0.0) -> tuple[float, float]:
        """[low, high] around ``estimate`` that has at least this confidence."""
        half_width = self.half_width(confidence)
        return estimate - half_width, estimate + half_width

    @cached_property
    def continuous(self) -> LaplaceSum:
        """X_L = Σ (a_i / w_i) L_i, the paper's law for the same weights."""
        return LaplaceSum(self._rows[0] / self._rows[1])

    @cached_property
    def _step(self) -> Vector:
        """[k] b."""
        return np.asarray(self._rows[0] * self._rows[2])

    @cached_property
    def _rate(self) -> Vector:
        """[k] λ."""
        return np.asarray(self._rows[1] * self._rows[2])

    @cached_property
    def _square(self) -> float:
        """B."""
        return float(self._step @ self._step)

    @cached_property
    def _sorted(self) -> tuple[Vector, Vector]:
        """b and λ, the widest term first."""
        order = np.argsort(self._rate / self._step, kind="stable")
        return self._step[order], self._rate[order]

    @cached_property
    def _reach(self) -> float:
        """What Σ b_i|K_i| exceeds with probability ≤ 1e-13."""
        scales = self.continuous.noise
        return 1.4 * float(scales.sum()) + 60 * self.continuous.scale

    @cached_property
    def _exact(self) -> list[Fraction]:
        """[k] |a_i| g_i without rounding, in the order of ``_sorted``."""
        order = np.argsort(self._rate / self._step, kind="stable").tolist()
        pairs = zip(self._rows[0].tolist(), self._rows[2].tolist(), strict=True)
        exact = [Fraction(a) * Fraction(g) for a, g in pairs]
        return [exact[i] for i in order]

    @cached_property
    def _entropy(self) -> float:
        """The entropy of (K_1, …, K_k)."""
        return float(entropies(self._rate).sum())

    @cached_property
    def _lattice(self) -> tuple[float, Vector, float] | None:
        """η, n [k] in the order of ``_sorted``, and the relative error of b ≈ nη."""
        return common_step(self._sorted[0])

    def _narrowing(self, t: float, closed: bool) -> Iterator[Bracket]:
        """Yield ever narrower brackets of P(|X| ≤ t), or P(|X| < t), until they are tight."""
        lower, upper = 0.0, 1.0
        if not t > 0 and not (t == 0 and closed):
            yield Bracket(0.0, 0.0)
            return
        for method in self._methods(t):
            low, high = method(t, closed, lower)
            lower = min(max(lower, low), 1.0)
            upper = max(min(upper, high), lower)
            yield Bracket(lower, upper)
            if upper - lower <= min(TIGHT, TIGHT_TAIL * (1 - upper)):
                return

    def _methods(self, t: float) -> Iterator[Callable[[float, bool, float], Bracket]]:
        """The methods that are worth trying at t, cheapest first."""
        terms = self._rows.shape[1]
        if terms == 0:
            yield lambda t, closed, lower: Bracket(1.0, 1.0)
            return
        if terms == 1:
            yield self._one_row
            return
        yield self._crude
        if math.sqrt(self._square) < 0.15 * t:
            yield self._by_laplace
        if self._entropy <= FEW_ATOMS:
            yield self._by_atoms
        if self._lattice is not None:
            yield self._by_lattice
        yield self._by_arcs(DEGREES[0])
        if FEW_ATOMS < self._entropy <= MANY_ATOMS:
            yield self._by_atoms
        for degree in DEGREES[1:]:
            yield self._by_arcs(degree)

    def _one_row(self, t: float, closed: bool, lower: float) -> Bracket:
        """The closed form; P(|K| ≤ k) = 1 − 2 p^(k+1)/(1 + p)."""
        k = _floor(Fraction(t) / self._exact[0], closed)
        p = math.exp(-float(self._rate[0]))
        value = 1 - 2 * math.exp(-float(self._rate[0]) * (k + 1)) / (1 + p)
        return Bracket(value * (1 - SLACK), value + SLACK) if k >= 0 else Bracket(0.0, 0.0)

    def _crude(self, t: float, closed: bool, lower: float) -> Bracket:
        """Chernoff's bound, and that of a log-concave density, in constant time."""
        s = 1.5 * math.sqrt(self._square)  # q = exp(−6.75)
        upper = (t + s) * math.sqrt(2 / self.continuous.variance) / (1 - 2 * math.exp(-6.75))
        return Bracket(1 - self.continuous.chernoff(t) - SLACK, upper + SLACK)

    def _by_laplace(self, t: float, closed: bool, lower: float) -> Bracket:
        """Both bounds by X_L, the best of several shifts s < t."""
        unit = self.continuous.scale
        shifts = SHIFTS * math.sqrt(self._square)
        level = math.floor(4 * math.log2((t - shifts[-1]) / unit))
        contour = self._once("contour", level, lambda: self.continuous.contour(2 ** (level / 4)))
        tails = 2 * contour.tail(np.concatenate([t - shifts, [t], t + shifts]) / unit)
        error = 2 * contour.error + SLACK
        inner, middle, outer = np.split(tails, [shifts.size, shifts.size + 1])
        most = ((inner + error) / np.maximum(1 - SHORTFALL, 0.5)).min()
        far = 1 - 2 * SHORTFALL
        upper = ((1 - outer + error)[far > 0] / far[far > 0]).min()
        return Bracket(1 - min(float(most), 2 * (float(middle[0]) + error)), float(upper))

    def _by_atoms(self, t: float, closed: bool, lower: float) -> Bracket:
        """List the atoms."""
        found: Atoms | None = self._once("atoms", 0, lambda: atoms(self._exact, self._sorted[1]))
        return found.bracket(t, closed) if found else Bracket(0.0, 1.0)

    def _by_lattice(self, t: float, closed: bool, lower: float) -> Bracket:
        """All b_i are multiples of η."""
        assert self._lattice is not None
        eta, whole, off = self._lattice
        slack = (off + 2.0**-51) * self._reach + 2.0**-50 * t
        low, high = math.floor((t - slack) / eta), math.floor((t + slack) / eta)
        lost = 0.0 if low == high else 1e-13
        if low != high and self._exactly(eta, whole):
            low = high = _floor(Fraction(t) / (self._exact[0] / int(whole[0])), closed)
        far = self.continuous.radius(_alias(lower)) / eta
        modulus = _even_above(max(high + far, 2 * high) + 2)
        if modulus > MAX_MODULUS:
            return Bracket(0.0, 1.0)
        found = self._once("lattice", modulus, lambda: lattice(whole, self._sorted[1], modulus))
        inner, outer = found.bracket(low, high)
        alias = self.continuous.chernoff((modulus - low) * eta * (1 - 1e-6))
        return Bracket(inner - alias - lost - SLACK, outer + lost + SLACK)

    def _by_arcs(self, degree: int) -> Callable[[float, bool, float], Bracket]:
        """The polynomials of this degree on a circle of a length from a ladder."""

        def method(t: float, closed: bool, lower: float) -> Bracket:
            slack = 2.0**-51 * self._reach + 2.0**-50 * t
            far = self.continuous.radius(_alias(lower))
            unit = self.continuous.scale
            level = math.ceil(4 * math.log2((t + max(far, 1.01 * t)) / unit))
            length = unit * 2 ** (level / 4)
            found = self._once("arcs", (level, degree), lambda: arcs(*self._sorted, length, degree))
            inner, outer = found.bracket(max(t - slack, 0.0), t + slack)
            alias = self.continuous.chernoff(length - t) + 1e-13 + SLACK
            return Bracket(inner - alias, outer + 1e-13 + SLACK)

        return method

    def _exactly(self, eta: float, whole: Vector) -> bool:
        """Whether b_i = n_i η holds without any rounding, for the η of the first row."""
        step = self._exact[0] / int(whole[0])
        return all(b == int(n) * step for b, n in zip(self._exact, whole.tolist(), strict=True))

    def _point_below(self, t: float) -> float:
        """The least float that reaches the last lattice point ≤ t, or t itself."""
        if self._rows.shape[1] == 1:
            step = self._exact[0]
        elif self._lattice is not None and self._exactly(self._lattice[0], self._lattice[1]):
            step = self._exact[0] / int(self._lattice[1][0])
        else:
            return t
        point = (Fraction(t) // step) * step
        rounded = float(point)
        return rounded if Fraction(rounded) >= point else math.nextafter(rounded, math.inf)

    def _once(self, kind: str, key: object, build: Callable[[], Built]) -> Built:
        """Build what depends on the law and ``key`` only once."""
        found = self._built.get((kind, key), self)
        if found is self:
            found = self._built[kind, key] = build()
        return found  # type: ignore[return-value]  # what ``build`` made for this key


def _floor(ratio: Fraction, closed: bool) -> int:
    """The largest whole number ≤ ratio, or < ratio if not ``closed``."""
    return math.floor(ratio) if closed else math.ceil(ratio) - 1


def _alias(lower: float) -> float:
    """How much probability beyond the circle may be lost where 1 − ``lower`` is left out at most."""
    return max(min(1e-5, 1e-4 * (1 - lower)), 1e-14)


def _even_above(least: float) -> int:
    """The next 2^j or 3·2^j."""
    power = 2 ** max(3, math.ceil(math.log2(least)))
    return power * 3 // 4 if power * 3 // 4 >= least else power
