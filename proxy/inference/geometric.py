r"""The posterior law of the noise that is drawn: a sum of two-sided geometric variables.

    X = Σ a_i g_i K_i,   P(K_i = k) ∝ exp(−w_i g_i |k|)     coefficients a, weights w, grids g [m]

a_i in answers per answer of row i, w_i per unit of that answer (1/scale of its noise), g_i in that
unit. With b = |a| g, λ = w g, c = |a|/w: X = Σ b_i K_i. Invariant: a reported confidence is never
above the true one, nor a half-width below it; a probability is a bracket (lower, upper) around the
truth, rounding included. Brackets are tried cheapest first, until they are tight or decide:

1. One row: P(|X| ≤ t) = 1 − 2 p^(⌊t/b⌋ + 1)/(1 + p), p = exp(−λ), the floor in rational arithmetic.
2. As X_L = Σ c_i L_i is X and something bounded, the bounds of ``laplace``.
3. The law wrapped round a circle, the law on a lattice, and its atoms (``circle``).
4. Without its finest terms, X' = X − R, P(|X'| ≤ t − r) − P(|R| > r) ≤ P(|X| ≤ t) ≤
   P(|X'| ≤ t + r) + P(|R| > r): so clusters of atoms are seen that are far narrower than t.

Coefficients are the floats given. b as a float, or n η on a lattice, is off by some relative ρ,
which moves X by ≤ ρ Σ b_i|K_i|; as E exp(Σ b_i|K_i| / (2 max c)) ≤ 2^(Σc / max c), that is at most
ρ (1.4 Σc + 60 max c) but with probability 1e-13. t is moved by this against us, unless rational
arithmetic settles a tie.

Source: Xiao & Xiong, Bayesian Inference under Differential Privacy, for the posterior as the law of
a sum of noises; Inusah & Kozubowski 2006 for the discrete Laplace law.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TypeVar

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from proxy.inference.brackets import (
    Atoms,
    Bracket,
    Terms,
    arcs,
    atoms,
    common_step,
    entropies,
    lattice,
)
from proxy.inference.contour import Moment
from proxy.inference.laplace import (
    ROUND_UP,
    SLACK,
    Bounds,
    LaplaceSum,
    complement,
    half_widths,
    rung,
    tight,
)
from proxy.inference.least import NEAR, least

Vector = NDArray[np.float64]
Built = TypeVar("Built")

LAWS = 64  # that are looked at together
DEGREES = (512, 2048, 8192)  # of the polynomials on the circle, tried in turn
MAX_MODULUS = 8192  # of a lattice
FAR = 1.2  # times what may be left out: by how much more, need not be known well
FINE = 1e-5  # scale of a term, relative to t, that may be left out
MAX_SINES = 4e6  # to be evaluated for a refinement
FEW_ATOMS, MANY_ATOMS = 5.0, 11.0  # entropies up to which atoms are listed first, or at all


@dataclass(frozen=True, eq=False)
class GeometricSum:
    """The law of Σ a_i g_i K_i; neither signs of coefficients nor rows of coefficient 0 matter.

    Raises:
        ValueError: lengths differ, or a row that enters has no finite, positive weight and grid.
    """

    coefficients: Vector  # [m] a
    weights: Vector  # [m] w > 0
    grids: Vector  # [m] g > 0
    counts: Vector | None = None  # [m] how often each row occurs; once, where not said
    # [4, k] |a|, w, g of the rows that enter, each once, the widest first; how often each occurs
    _rows: Vector = field(init=False, repr=False)
    _built: dict[tuple[object, ...], object] = field(init=False, repr=False)
    # of each confidence: a half-width that was found not to meet it, and a larger one that does
    _ends: dict[float, tuple[float, float]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rows = np.ones((4, np.size(self.coefficients)))
        given = self.coefficients, self.weights, self.grids, self.counts
        for row, values in zip(rows, given, strict=True):
            if values is not None:
                if np.shape(values) != row.shape:
                    raise ValueError("coefficients, weights and grids must be of one length")
                row[:] = values
        rows[0] = np.abs(rows[0])
        rows = rows[:, rows[0] != 0]
        if not (np.isfinite(rows).all() and (rows > 0).all()):
            raise ValueError("need finite coefficients, and positive finite weights and grids")
        object.__setattr__(self, "_rows", _distinct(rows))
        object.__setattr__(self, "_built", {})
        object.__setattr__(self, "_ends", {})

    @property
    def terms(self) -> bytes:
        """What is the same for laws of the same terms, in whatever order."""
        return self._rows.tobytes()

    @property
    def variance(self) -> float:
        """Σ b² / (2 sinh²(λ/2))."""
        half = np.minimum(self._rate / 2, 350.0)
        return float(self._count @ np.square(self._step / np.sinh(half))) / 2

    def confidence(self, half_width: float) -> float:
        """A lower bound on P(|X| ≤ half_width)."""
        return self.bracket(half_width).lower

    def meets(self, half_width: float, confidence: float) -> bool:
        """Whether P(|X| ≤ half_width) ≥ ``confidence`` for sure, by the first bound that decides.

        Or by one that did at a smaller half-width, or did not at a larger one.
        """
        no, yes = self._ends.get(confidence, (-math.inf, math.inf))
        if half_width <= no or yes <= half_width < math.inf:
            return half_width > no
        enough, _ = self.look(half_width, confidence, 1.0)
        self._ends[confidence] = (no, half_width) if enough else (half_width, yes)
        return enough

    def look(self, half_width: float, confidence: float, far: float = FAR) -> tuple[bool, float]:
        """Whether it ``meets``, and an upper bound on what is then left out, by the first that
        decides; or a lower one, where that is ``far`` times more than may be.
        """
        bracket = Bracket(0.0, 0.0)
        for bracket in self._narrowing(half_width, closed=True):
            if bracket.lower >= confidence:
                break
            if bracket.upper < 1 - far * (1 - confidence):
                return False, 1 - bracket.upper
        return bracket.lower >= confidence, 1 - bracket.lower

    def bracket(self, half_width: float, closed: bool = True) -> Bracket:
        """Bounds on P(|X| ≤ half_width), or on P(|X| < half_width) if not ``closed``."""
        bracket = Bracket(0.0, 0.0)
        for bracket in self._narrowing(half_width, closed):
            if tight(*bracket):
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
        near = self._once("near", confidence, lambda: self.continuous.half_width(confidence))
        high = least(self, confidence, near)
        if high == math.inf:
            return high
        point = self._point_below(high)
        return point if self.meets(point, confidence) else high

    def interval(self, confidence: float, estimate: float = 0.0) -> tuple[float, float]:
        """[low, high] around ``estimate`` that has at least this confidence."""
        half_width = self.half_width(confidence)
        return estimate - half_width, estimate + half_width

    def mixed(self, part: float, coefficient: float, weight: float) -> GeometricSum:
        """The law of part · X + coefficient · K, K another noise, of this weight on a grid of 1."""
        scaled = self._rows * np.array([[part], [1.0], [1.0], [1.0]])
        return GeometricSum(*np.append(scaled, [[coefficient], [weight], [1.0], [1.0]], axis=1))

    @cached_property
    def continuous(self) -> LaplaceSum:
        """X_L = Σ (a_i / w_i) L_i, the paper's law for the same weights."""
        return LaplaceSum(self._rows[0] / self._rows[1], self._repeated)

    @cached_property
    def _step(self) -> Vector:
        """[k] b."""
        return np.asarray(self._rows[0] * self._rows[2])

    @cached_property
    def _rate(self) -> Vector:
        """[k] λ."""
        return np.asarray(self._rows[1] * self._rows[2])

    @property
    def _count(self) -> Vector:
        """[k] How often each row occurs."""
        return np.asarray(self._rows[3])

    @cached_property
    def _repeated(self) -> Vector | None:
        """[k] The same; None where each occurs once."""
        return self._count if (self._count > 1).any() else None

    @cached_property
    def size(self) -> int:
        """The number of terms."""
        return int(self._count.sum())

    @cached_property
    def _bounds(self) -> Bounds:
        """The bounds by X_L."""
        moment, unit = self.continuous.moment, self.continuous.scale
        size = math.sqrt(float(self._count @ np.square(self._step)))
        return Bounds(moment, unit, size, self._at_zero)

    @cached_property
    def _terms(self) -> Terms:
        """What ``circle`` needs to know of them."""
        return Terms(self._step, self._rate, self._count)

    @cached_property
    def _reach(self) -> float:
        """What Σ b_i|K_i| exceeds with probability ≤ 1e-13."""
        scales = self.continuous.noise
        return 1.4 * float(self._count @ scales) + 60 * self.continuous.scale

    @cached_property
    def _exact(self) -> list[Fraction]:
        """|a_i| g_i without rounding."""
        pairs = zip(self._rows[0].tolist(), self._rows[2].tolist(), strict=True)
        return [Fraction(a) * Fraction(g) for a, g in pairs]

    @cached_property
    def _entropy(self) -> float:
        """The entropy of all K."""
        return float(self._count @ entropies(self._rate))

    @cached_property
    def _at_zero(self) -> float:
        """The probability that all K are 0."""
        return float(np.prod(np.tanh(self._rate / 2) ** self._count))

    @cached_property
    def _depth(self) -> float:
        """How many factors make φ negligible, as log φ has the mean 2 Σ log(1 − p) over u."""
        mean = -2 * float(self._count @ np.log(-np.expm1(-self._rate)))
        return self.size * min(1.0, 37 / max(mean, 1.0))

    @cached_property
    def _lattice(self) -> tuple[float, Vector, float] | None:
        """η, n of the rows, and the relative error of b ≈ nη."""
        return common_step(self._step)

    def _narrowing(self, t: float, closed: bool) -> Iterator[Bracket]:
        """Yield ever narrower brackets of P(|X| ≤ t), or P(|X| < t), until they are tight."""
        lower, upper = 0.0, 1.0
        if not t > 0 and not (t == 0 and closed):
            yield Bracket(0.0, 0.0)
            return
        if t == math.inf:
            yield Bracket(1.0, 1.0)
            return
        for method in self._methods(t):
            low, high = method(t, closed, lower)
            lower = min(max(lower, low), 1.0)
            upper = max(min(upper, high), lower)
            yield Bracket(lower, upper)
            if tight(lower, upper):
                return

    def _methods(self, t: float) -> Iterator[Callable[[float, bool, float], Bracket]]:
        """The methods that are worth trying at t, cheapest first."""
        if self.size == 0:
            yield lambda t, closed, lower: Bracket(1.0, 1.0)
            return
        if self.size == 1:
            yield self._one_row
            return
        yield self._crude
        if self._bounds.smooth(t):
            yield self._by_laplace
        if self._entropy <= FEW_ATOMS:
            yield self._by_atoms
        if self._lattice is not None:
            yield self._by_lattice
        if self.continuous.noise.min() < FINE * t < self.continuous.scale:
            yield self._by_the_wide
        yield self._by_arcs(DEGREES[0])
        if FEW_ATOMS < self._entropy <= MANY_ATOMS:
            yield self._by_atoms
        for degree in DEGREES[1:]:
            if degree * self._depth <= MAX_SINES:
                yield self._by_arcs(degree)

    def _one_row(self, t: float, closed: bool, lower: float) -> Bracket:
        """The closed form; P(|K| ≤ k) = 1 − 2 p^(k+1)/(1 + p)."""
        k = _floor(Fraction(t) / self._exact[0], closed)
        if k < 0:
            return Bracket(0.0, 0.0)
        rate = float(self._rate[0])
        tail = 2 * math.exp(-rate * min(k + 1, 800 / rate)) / (1 + math.exp(-rate))
        return Bracket(float(complement(tail * ROUND_UP)), 1 - tail / ROUND_UP)

    def _crude(self, t: float, closed: bool, lower: float) -> Bracket:
        """Chernoff's bound, the atom at 0, and the height of a log-concave density."""
        return Bracket(*map(float, self._bounds.crude(t)))

    def _by_laplace(self, t: float, closed: bool, lower: float) -> Bracket:
        """Both bounds by X_L, the best of several shifts s < t."""
        level = self._bounds.level(t)
        contour = self._once("contour", level, lambda: self._bounds.contour(level))
        shifts = self._once("shifts", level, lambda: self._bounds.shifts(contour))
        return Bracket(*map(float, self._bounds.by_laplace(t, contour, shifts)))

    def _by_atoms(self, t: float, closed: bool, lower: float) -> Bracket:
        """List the atoms."""
        found: Atoms | None = self._once("atoms", 0, lambda: atoms(self._exact, self._terms))
        return found.bracket(t, closed) if found else Bracket(0.0, 1.0)

    def _by_the_wide(self, t: float, closed: bool, lower: float) -> Bracket:
        """Leave out the terms that are fine, whose sum R is within r but for 1e-9."""
        fine = self.continuous.noise < FINE * t
        r = LaplaceSum(self.continuous.noise[fine], self._count[fine]).radius(1e-9)
        if r > 20 * FINE * t:
            return Bracket(0.0, 1.0)
        wide = self._once("wide", int(fine.sum()), lambda: GeometricSum(*self._rows[:, ~fine]))
        inner, outer = wide.bracket(t - r, closed), wide.bracket(t + r, closed)
        return Bracket(inner.lower - 1e-9, outer.upper + 1e-9)

    def _by_lattice(self, t: float, closed: bool, lower: float) -> Bracket:
        """All b_i are multiples of η."""
        assert self._lattice is not None
        eta, whole, off = self._lattice
        slack = (off + 2.0**-51) * self._reach + 2.0**-50 * t
        low, high = math.floor((t - slack) / eta), math.floor((t + slack) / eta)
        if low != high and self._exactly(eta, whole):
            low = high = _floor(Fraction(t) / (self._exact[0] / int(whole[0])), closed)
        far = self.continuous.radius(1e-3 * _alias(lower)) / eta
        modulus = _even_above(max(high + far, 2 * high) + 2)
        if modulus > MAX_MODULUS:
            return Bracket(0.0, 1.0)
        terms = replace(self._terms, step=whole)
        found = self._once("lattice", modulus, lambda: lattice(terms, modulus))
        inner, outer = found.bracket(low, high)
        alias = self.continuous.chernoff((modulus - low) * eta * (1 - 1e-6))
        return Bracket(inner - alias - SLACK, outer + SLACK)

    def _by_arcs(self, degree: int) -> Callable[[float, bool, float], Bracket]:
        """The polynomials of this degree on a circle of a length from a ladder."""

        def method(t: float, closed: bool, lower: float) -> Bracket:
            slack = 2.0**-51 * self._reach + 2.0**-50 * t
            far = self.continuous.radius(_alias(lower))
            unit = self.continuous.scale
            level = math.ceil(4 * math.log2((t + max(far, 1.01 * t)) / unit))
            length = unit * 2 ** (level / 4)
            found = self._once("arcs", (level, degree), lambda: arcs(self._terms, length, degree))
            inner, outer = found.bracket(max(t - slack, 0.0), t + slack)
            alias = self.continuous.chernoff(length - t)
            return Bracket(inner - alias * ROUND_UP - SLACK, outer + SLACK)

        return method

    def _exactly(self, eta: float, whole: Vector) -> bool:
        """Whether b_i = n_i η holds without any rounding, for the η of the first row."""
        step = self._exact[0] / int(whole[0])
        return all(b == int(n) * step for b, n in zip(self._exact, whole.tolist(), strict=True))

    def _point_below(self, t: float) -> float:
        """The least float that reaches the last lattice point ≤ t, or t itself."""
        if self.size == 1:
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


def look_ahead(laws: Sequence[GeometricSum], confidence: float) -> None:
    """Work out at once what the half-widths of several laws begin with, for each to find."""
    if not 0 < confidence < 1:
        return
    new = [law for law in laws if law.size > 1 and ("near", confidence) not in law._built]
    for first in range(0, len(new), LAWS):
        chunk = new[first : first + LAWS]
        nears = half_widths([law.continuous for law in chunk], confidence).tolist()
        for law, near in zip(chunk, nears, strict=True):
            law._built["near", confidence] = near
        look_at(chunk, [near * (1 - NEAR) for near in nears])


def look_at(laws: Sequence[GeometricSum], points: Sequence[float]) -> None:
    """Work out at once what brackets of several laws, of each at a point, begin with."""
    levels = {
        law: law._bounds.level(t)
        for law, t in zip(laws, points, strict=True)
        if law.size > 1 and law._bounds.smooth(t)
    }
    new = [law for law, level in levels.items() if ("contour", level) not in law._built]
    for first in range(0, len(new), LAWS):
        chunk = new[first : first + LAWS]
        moment = Moment.beside([law.continuous.moment for law in chunk])
        contours = moment.contour(rung(np.array([levels[law] for law in chunk]))).apart()
        for law, contour in zip(chunk, contours, strict=True):
            law._built["contour", levels[law]] = contour


def _distinct(rows: Vector) -> Vector:
    """The different rows |a|, w, g, the widest term first, and how often each occurs [4, k]."""
    rows = rows[:, np.lexsort((rows[2], rows[0], -rows[0] / rows[1]))]
    new = np.ones(rows.shape[1], dtype=bool)
    new[1:] = (rows[:3, 1:] != rows[:3, :-1]).any(axis=0)
    found = rows[:, new]
    if found.shape[1] < rows.shape[1]:
        found[3] = np.add.reduceat(rows[3], np.flatnonzero(new))
    return found


def _floor(ratio: Fraction, closed: bool) -> int:
    """The largest whole number ≤ ratio, or < ratio if not ``closed``."""
    below: int = ratio.numerator // ratio.denominator
    return below if closed or below != ratio else below - 1


def _alias(lower: float) -> float:
    """The probability beyond a circle that may be lost where ≤ 1 − ``lower`` is left out."""
    return max(min(1e-5, 1e-4 * (1 - lower)), 1e-14)


def _even_above(least: float) -> int:
    """The next 2^j or 3·2^j."""
    power = 1 << max(3, math.ceil(math.log2(least)))
    return power * 3 // 4 if power * 3 // 4 >= least else power
