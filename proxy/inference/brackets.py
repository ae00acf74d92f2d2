r"""Brackets for P(|X| ≤ t), X = Σ b_i K_i: by its law on a circle or a lattice, or by its atoms.

K_i is two-sided geometric, P(K_i = k) = tanh(λ_i/2) p_i^|k| with p_i = exp(−λ_i); b, λ [m].
Invariant: ``lower`` never exceeds P(|X| < t), ``upper`` is never below P(|X| ≤ t), rounding
included (but for what may lie beyond the circle, where said). The characteristic function,

    φ(u) = Π 1 / (1 + sin²(b_i u/2) / sinh²(λ_i/2)),

does not decay, as the law has atoms, so nothing here integrates over a line.

- ``Arcs``. Wrap X round a circle of length T > 2t. The indicator of the arc [−t, t] lies between
  two trigonometric polynomials of degree N (Beurling; Selberg; Vaaler, Bull. AMS 1985, Theorem
  18). With τ = t/T, φ_n = φ(2πn/T), x_n = n/(N + 1), J(x) = πx(1 − x) cot πx + x, their
  expectations are

      S ∓ F,   S = 2τ + Σ_{n=1}^N 2J(x_n)/(πn) sin(2πnτ) φ_n,
               F = (1 + 2 Σ_{n=1}^N (1 − x_n) cos(2πnτ) φ_n) / (N + 1),

  finite sums with no truncation and no quadrature. They bracket P(X mod T ∈ arc), which is between
  P(|X| ≤ t) and P(|X| ≤ t) + P(|X| ≥ T − t). The loss F is the mass within about T/N of ±t.
- ``Lattice``. If b_i = n_i η, the law of X/η modulo M is a discrete Fourier transform, exactly.
- ``Atoms``. With few atoms of any weight, list those of either half of the terms; ties with t are
  settled in whole numbers.

Once a partial product of φ is negligible at a node, it is evaluated no further: it bounds φ there,
and enters the bracket as an error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]

NEGLIGIBLE = 1e-16  # a value of φ not worth its remaining factors
UNIT = 2.0**-52
BLOCK = 100_000  # sines evaluated at once
MAX_TERMS = 40  # whose atoms are listed
MAX_ATOMS = 30_000  # in each half of the terms
PRUNED = 1e-9  # an atom lighter than this is left out
TIES = 2000  # atoms compared with t in whole numbers


class Bracket(NamedTuple):
    """Bounds on a probability."""

    lower: float
    upper: float


class Terms(Struct, frozen=True, eq=False):
    """The different b_i K_i, the widest first."""

    step: Vector  # [m] b
    rate: Vector  # [m] λ
    count: Vector  # [m] how often each occurs


def characteristic(terms: Terms, u: Vector) -> Vector:
    """φ(u) [n] with its largest factors first; below ``NEGLIGIBLE``, an upper bound of it."""
    value, kept = np.ones_like(u), np.arange(u.size)
    inverse = 1 / np.square(np.sinh(np.minimum(terms.rate, 700.0) / 2))
    half, single = terms.step / 2, terms.count.max() == 1
    first, size = 0, 8
    with np.errstate(over="ignore"):  # an infinite product is a φ of 0
        while first < half.size and kept.size:
            block = slice(first, first + min(size, max(1, BLOCK // kept.size)))
            factors = np.multiply.outer(half[block], u[kept])
            np.sin(factors, out=factors)
            factors *= factors
            factors *= inverse[block, None]
            factors += 1
            if not single:
                factors **= terms.count[block, None]
            value[kept] /= np.multiply.reduce(factors, axis=0)
            kept = kept[value[kept] > NEGLIGIBLE]
            first, size = block.stop, 2 * size
    return value


def rounding(terms: Terms, highest: float) -> float:
    """The relative rounding of φ at frequencies ≤ ``highest``.

    A factor is some 8 roundings, and an argument x = bu/2 that is off by x·UNIT moves its logarithm
    by at most x·UNIT / sinh(λ/2) ≤ UNIT bu/λ.
    """
    spread = float((terms.count * terms.step) @ (1 / terms.rate))
    return UNIT * (8 * float(terms.count.sum()) + 4 * spread * highest)


class Arcs(Struct, frozen=True, eq=False):
    """The law on a circle of length T between trigonometric polynomials of degree N."""

    length: float  # T
    angles: Vector  # [k] 2πn/T of the nodes that matter
    sines: Vector  # [k] 2J(x_n)/(πn) φ_n
    cosines: Vector  # [k] 2(1 − x_n) φ_n / (N + 1)
    floor: float  # 1/(N + 1)
    error: float  # of the nodes left out, and of rounding

    def bracket(self, low: float, high: float) -> Bracket:
        """P(|X| < low) from below and P(|X| ≤ high) from above, but for P(|X| > T − low) below."""
        inner, outer = np.multiply.outer([low, high], self.angles)
        lower = 2 * low / self.length + np.sin(inner) @ self.sines - np.cos(inner) @ self.cosines
        upper = 2 * high / self.length + np.sin(outer) @ self.sines + np.cos(outer) @ self.cosines
        slack = self.floor + self.error
        return Bracket(float(lower) - slack, float(upper) + slack)


@lru_cache(maxsize=8)
def _polynomial(degree: int) -> tuple[Vector, Vector, Vector]:
    """n, 2J(x_n)/(πn) and 2(1 − x_n)/(N + 1) for n = 1 … N."""
    n = np.arange(1.0, degree + 1)
    x = n / (degree + 1)
    j = math.pi * x * (1 - x) / np.tan(math.pi * x) + x
    return n, 2 * j / (math.pi * n), 2 * (1 - x) / (degree + 1)


def arcs(terms: Terms, length: float, degree: int) -> Arcs:
    """Evaluate φ at 2πn/T, n ≤ N."""
    n, sines, cosines = _polynomial(degree)
    angles = n * (2 * math.pi / length)
    phi = characteristic(terms, angles)
    kept = phi > NEGLIGIBLE
    weight = phi * (sines + cosines)
    relative = rounding(terms, float(angles[-1])) + UNIT * degree
    error = float(weight[~kept].sum()) + relative * (1 + float(weight.sum())) + 8 * UNIT * degree
    return Arcs(
        length,
        angles[kept],
        (sines * phi)[kept],
        (cosines * phi)[kept],
        1 / (degree + 1),
        error,
    )


class Lattice(Struct, frozen=True, eq=False):
    """The law of S = Σ n_i K_i modulo M."""

    modulus: int
    within: Vector  # [M/2] P(|S mod M| ≤ k)
    error: float

    def bracket(self, low: int, high: int) -> Bracket:
        """P(|S| ≤ low) from below and P(|S| ≤ high) from above, but for P(|S| ≥ M − low) below."""
        lower = self.within[low] - self.error if low >= 0 else 0.0
        upper = self.within[high] + self.error if high >= 0 else 0.0
        return Bracket(float(lower), float(upper))


def lattice(terms: Terms, modulus: int) -> Lattice:
    """The exact law of S modulo the even ``modulus``, the steps being whole numbers."""
    u = np.arange(modulus // 2 + 1, dtype=np.float64) * (2 * math.pi / modulus)
    phi = characteristic(terms, u)
    small = phi <= NEGLIGIBLE
    error = 2 * float(phi[small].sum())
    phi[small] = 0
    mass = np.fft.irfft(phi, modulus)
    within = mass[0] + 2 * np.concatenate([[0.0], np.cumsum(mass[1 : modulus // 2])])
    # Relative errors of φ meet a Dirichlet kernel, of mean ≤ 2 + 2 log M; then transform and sum.
    relative = rounding(terms, math.pi)
    error += relative * (2 + 2 * math.log(modulus)) + 9 * UNIT * modulus
    return Lattice(modulus, within, error)


def common_step(step: Vector) -> tuple[float, Vector, float] | None:
    """η, whole numbers n_i ≤ 4096 [m] and the relative error of b_i ≈ n_i η, if there are any."""
    least = float(step.min())
    ratio = step / least
    if ratio.max() > 4096:
        return None
    divisors = np.arange(1.0, 65.0)
    for sample in (ratio[:8], ratio):
        multiples = np.multiply.outer(sample, divisors)
        off = np.abs(multiples - np.rint(multiples)) > 1e-9 * multiples
        divisors = divisors[~off.any(axis=0)]
        if not divisors.size:
            return None
    whole = np.rint(ratio * divisors[0])
    if whole.max() > 4096:
        return None
    eta = least / float(divisors[0])
    return eta, whole, float((np.abs(step - whole * eta) / step).max())


class Atoms(Struct, frozen=True, eq=False):
    """X = Y + Z with the heaviest atoms of both: their law without listing the pairs."""

    left: Vector  # [k] y
    left_mass: Vector  # [k]
    right: Vector  # [n] z, rising
    right_within: Vector  # [n + 1] mass of the first
    counts: tuple[Integers, Integers]  # [k, r], [n, m − r] their K
    exact: tuple[Fraction, ...]  # [m] the b that the columns of counts stand for
    missing: float  # mass of the pairs not covered
    error: float  # of a sum y + z

    def bracket(self, t: float, closed: bool) -> Bracket:
        """P(|X| ≤ t), or P(|X| < t) if not ``closed``."""
        if t <= self.error:
            return Bracket(0.0, 1.0)
        outer = t + self.error
        first = np.searchsorted(self.right, -outer - self.left, side="left")
        last = np.searchsorted(self.right, outer - self.left, side="right")
        inner = t - self.error
        after = np.searchsorted(self.right, -inner - self.left, side="left")
        before = np.searchsorted(self.right, inner - self.left, side="right")
        # To each left atom, the right ones in [after, before) surely, in [first, last) possibly.
        sure = self.left_mass @ (self.right_within[before] - self.right_within[after])
        possible = self.left_mass @ (self.right_within[last] - self.right_within[first])
        open_pairs = int((last - before + after - first).sum())
        if 0 < open_pairs <= TIES:
            sure += self._settle(t, closed, first, after, before, last)
            possible = sure
        slack = UNIT * (8 * MAX_TERMS + self.left.size + self.right.size)
        return Bracket(float(sure) - slack, float(possible) + self.missing + slack)

    def _settle(
        self,
        t: float,
        closed: bool,
        first: Integers,
        after: Integers,
        before: Integers,
        last: Integers,
    ) -> float:
        """The mass, among the pairs too near to ±t for floats, of those within."""
        unit = math.lcm(Fraction(t).denominator, *(b.denominator for b in self.exact))
        steps = np.array([int(b * unit) for b in self.exact], dtype=object)
        bound, total = int(Fraction(t) * unit), 0.0
        split = self.counts[0].shape[1]
        for i in np.flatnonzero((first < after) | (before < last)).tolist():
            y = int(self.counts[0][i].astype(object) @ steps[:split])
            for j in (*range(first[i], after[i]), *range(before[i], last[i])):
                x = abs(y + int(self.counts[1][j].astype(object) @ steps[split:]))
                if x < bound or (closed and x == bound):
                    mass = self.right_within[j + 1] - self.right_within[j]
                    total += float(self.left_mass[i] * mass)
        return total


def atoms(exact: Sequence[Fraction], terms: Terms) -> Atoms | None:
    """List the atoms of two halves of the terms, of like entropy; None if too many have weight.

    Terms of one b, ``exact`` [m], count as one.
    """
    if terms.count.sum() > MAX_TERMS:
        return None
    laws: dict[Fraction, Vector] = {}
    for b, decay, count in zip(exact, terms.rate.tolist(), terms.count.tolist(), strict=True):
        for _ in range(int(count)):
            laws[b] = np.convolve(laws.get(b, np.ones(1)), _two_sided(decay))
    halves: tuple[dict[Fraction, Vector], dict[Fraction, Vector]] = ({}, {})
    for b in sorted(laws, key=lambda b: laws[b].size, reverse=True):
        sizes = [math.prod(law.size for law in half.values()) for half in halves]
        halves[int(sizes[1] < sizes[0])][b] = laws[b]
    left, right = _list_atoms(halves[0]), _list_atoms(halves[1])
    if left is None or right is None:
        return None
    (y, y_mass, y_counts), (z, z_mass, z_counts) = left, right
    order = np.argsort(z, kind="stable")
    within = np.concatenate([[0.0], np.cumsum(z_mass[order])])
    steps = (*halves[0], *halves[1])
    widest = sum(
        float((np.abs(counts) @ np.array([float(b) for b in half])).max(initial=0.0))
        for counts, half in zip((y_counts, z_counts), halves, strict=True)
    )
    missing = max(1 - float(y_mass.sum()) * float(within[-1]), 0.0)
    error = UNIT * (len(steps) + 2) * widest
    return Atoms(y, y_mass, z[order], within, (y_counts, z_counts[order]), steps, missing, error)


def entropies(rate: Vector) -> Vector:
    """The entropy of each K_i: the exponential of a sum of them says how many atoms have weight."""
    rate = np.minimum(rate, 700.0)
    return np.asarray(rate / np.sinh(rate) - np.log(np.tanh(rate / 2)))


def _two_sided(decay: float) -> Vector:
    """P(K = k) for k = −r … r, cut off below ``PRUNED``."""
    peak = math.tanh(decay / 2)
    reach = int(max(math.log(max(peak, PRUNED) / PRUNED), 0) / decay)
    return np.asarray(peak * np.exp(-decay * np.abs(np.arange(-reach, reach + 1))))


def _list_atoms(laws: dict[Fraction, Vector]) -> tuple[Vector, Vector, Integers] | None:
    """The values, masses and K of the atoms of Σ b K, but for those lighter than ``PRUNED``."""
    x, mass = np.zeros(1), np.ones(1)
    counts = np.zeros((1, 0), dtype=np.int64)
    for b, law in laws.items():
        if law.size * mass.size > 8 * MAX_ATOMS:
            return None
        joint = np.multiply.outer(mass, law)
        i, j = np.nonzero(joint > PRUNED)
        if not 0 < i.size <= MAX_ATOMS:
            return None
        k = j - law.size // 2
        mass, x = joint[i, j], x[i] + float(b) * k
        counts = np.column_stack([counts[i], k])
    return x, mass, counts
