"""The law of the noise that is drawn: never overstated, and tight."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.inference import brackets, geometric
from proxy.inference.geometric import GeometricSum
from proxy.inference.laplace import SHIFTS, SHORTFALL, SLACK

TIGHT = 0.007


def law(coefficients, weights, grids=1.0) -> GeometricSum:
    a = np.asarray(coefficients, dtype=float)
    return GeometricSum(a, np.full(a.size, weights), np.full(a.size, grids))


def pmf(rate: float, reach: int) -> np.ndarray:
    k = np.arange(-reach, reach + 1)
    return math.tanh(rate / 2) * np.exp(-rate * np.abs(k))


def on_lattice(multiples, rates, k: int) -> float:
    """P(|Σ n_i K_i| ≤ k) by convolution, the cut-off mass (< 1e-14) left out."""
    total = np.ones(1)
    for i in np.argsort(multiples / rates).tolist():
        n, rate = int(multiples[i]), float(rates[i])
        reach = int(34 / rate) + 1
        spread = np.zeros(2 * reach * n + 1)
        spread[::n] = pmf(rate, reach)
        total = np.convolve(total, spread)
    middle = total.size // 2
    return float(total[max(middle - k, 0) : middle + k + 1].sum())


def by_enumeration(steps, rates, t: float) -> tuple[float, float]:
    """P(|X| < t) and P(|X| ≤ t): atoms within 1e-11 t of ±t are left out, and counted in."""
    halves = [(np.zeros(1), np.ones(1)), (np.zeros(1), np.ones(1))]
    for i in np.argsort(rates):
        half = int(halves[1][0].size <= halves[0][0].size)
        x, mass = halves[half]
        reach = int(34 / rates[i]) + 1
        x = np.add.outer(x, steps[i] * np.arange(-reach, reach + 1)).ravel()
        mass = np.multiply.outer(mass, pmf(rates[i], reach)).ravel()
        halves[half] = x[mass > 1e-17], mass[mass > 1e-17]
    (y, y_mass), (z, z_mass) = halves
    order = np.argsort(z)
    z, within = z[order], np.concatenate([[0.0], np.cumsum(z_mass[order])])
    results = []
    for end in (t * (1 - 1e-11), t * (1 + 1e-11)):
        high, low = np.searchsorted(z, end - y, "right"), np.searchsorted(z, -end - y, "left")
        results.append(float(y_mass @ np.where(high > low, within[high] - within[low], 0.0)))
    return results[0], results[1]


def test_one_row_by_hand():
    """
    With p = ½, a = 2, g = 3, P(|X| ≤ 6) = P(|K| ≤ 1) = 1 − 2 · ¼ / 1.5 = 2/3, and P(|X| < 6) =
    P(K = 0) = 1/3.
    """
    one = GeometricSum(np.array([-2.0]), np.array([math.log(2) / 3]), np.array([3.0]))

    assert one.confidence(6) == pytest.approx(2 / 3, abs=1e-8)
    assert one.confidence(math.nextafter(6, 0)) == pytest.approx(1 / 3, abs=1e-8)
    assert one.bracket(6, closed=False).upper == pytest.approx(1 / 3, abs=1e-8)
    assert one.cdf(-6).upper == pytest.approx(1 / 3, abs=1e-8)
    assert one.cdf(6).lower == pytest.approx(5 / 6, abs=1e-8)
    assert one.half_width(0.5) == 6
    assert one.half_width(0.7) == 12
    assert one.variance == pytest.approx(36 * 4)


def test_two_rows_by_hand():
    """
    With p = ½ twice, P(K₁ + K₂ = 0) = Σ P(K = k)² = (1/9)(1 + 2 Σ 4^−k) = 5/27.
    """
    two = law([1, -1], math.log(2))

    assert two.confidence(0) == pytest.approx(5 / 27, abs=1e-7)
    assert two.confidence(0.999) == pytest.approx(5 / 27, abs=1e-7)
    assert two.bracket(1, closed=False).upper == pytest.approx(5 / 27, abs=1e-7)
    assert two.half_width(5 / 27 - 1e-7) == 0
    assert two.half_width(5 / 27 + 1e-7) == 1


@pytest.mark.parametrize("k, truth", [(30, 0.9475), (3, 0.9269)])
def test_the_continuous_law_overstates_just_below_a_whole_number(k, truth):
    """
    Why the continuous law does not serve: at k, with w = ln(20)/k, it claims 95%.
    """
    one = law([1.0], math.log(20) / k)

    assert one.continuous.confidence(math.nextafter(k, 0)) == pytest.approx(0.95, abs=1e-9)
    assert one.confidence(math.nextafter(k, 0)) == pytest.approx(truth, abs=5e-5)


@pytest.mark.parametrize("seed", range(10))
def test_never_above_the_truth_on_lattices(seed):
    """
    100 random cases a seed with commensurable coefficients: the bracket holds the exact convolution
    and its lower end, the confidence, is within 0.7 points of it.
    """
    rng = np.random.default_rng(seed)
    for case in range(100):
        m = int(rng.integers(2, 12))
        multiples = rng.integers(1, 6, m)
        rates = np.exp(rng.uniform(math.log(0.05), math.log(4), m))
        if case % 4 == 0:
            multiples[:], rates[:] = 1, rates[0]
        sign, grid = rng.choice([-1, 1], m), 2.0 ** rng.integers(-3, 3, m)
        x = GeometricSum(sign * multiples * 0.25 / grid, rates / grid, grid)
        k = int(rng.integers(0, int(14 * math.sqrt(x.variance)) + 2))
        t = 0.25 * (k if case % 2 else k + rng.uniform(0.01, 0.99))
        truth = on_lattice(multiples, rates, k)
        lower, upper = x.bracket(t)
        assert truth - TIGHT < lower <= truth + 2e-13
        assert truth - 2e-13 <= upper


@pytest.mark.parametrize("seed", range(10))
def test_never_above_the_truth_for_real_coefficients(seed):
    """
    100 random cases a seed with real coefficients, dense, coarse, mixed, t on an atom or not: the
    bracket holds what enumeration finds, and the confidence is within 0.7 points of it.
    """
    rng = np.random.default_rng(100 + seed)
    for case in range(100):
        m = int(rng.integers(2, 4))
        rates = np.exp(rng.uniform(math.log(0.3), math.log(5), m))
        steps = np.abs(rng.normal(size=m))
        if case % 3 == 1:
            m = int(rng.integers(2, 6))
            rates = rng.uniform(1.5, 8, m)
            steps = rng.choice([1, 0.5, 2, math.sqrt(2), 0.25, math.sqrt(3)], m)
        elif case % 3 == 2:
            rates = np.array([rng.uniform(1, 4), 0.3, 0.4])
            steps = np.array([1, *rng.uniform(0.001, 0.1, 2)])
        x = GeometricSum(steps, rates, np.ones(steps.size))
        t = math.sqrt(x.variance) * 1.5 * rng.exponential()
        if case % 2:
            t = float(steps[int(rng.integers(steps.size))]) * int(rng.choice([1, 2, 4]))
        inside, truth = by_enumeration(steps, rates, t)
        lower, upper = x.bracket(t)
        assert truth - TIGHT < lower <= truth + 2e-13
        assert inside - 1e-12 <= upper


@pytest.mark.parametrize("terms", [20, 60])
def test_every_method_is_sound_alone(terms):
    """
    Each bracket by itself holds the exact value, at several half-widths, for many rows.
    """
    rng = np.random.default_rng(terms)
    multiples, rates = rng.integers(1, 4, terms), rng.uniform(0.2, 0.8, terms)
    x = GeometricSum(multiples.astype(float), rates, np.ones(terms))
    deviation = math.sqrt(x.variance)
    seen = set()
    for k in (deviation * np.array([0.3, 1, 2, 3.5])).astype(int).tolist():
        truth = on_lattice(multiples, rates, k)
        for t in (float(k), k + 0.5):
            for method in x._methods(t):
                lower, upper = method(t, True, 0.5)
                assert lower <= truth + 1e-12
                assert upper >= truth - 1e-12
                seen.add(method.__name__)

    assert seen >= {"_crude", "_by_laplace", "_by_lattice", "method"}


def test_a_circle_that_is_too_short_costs_but_does_not_lie(monkeypatch):
    """
    With a tenth of the mass beyond the circle, what wraps round it is still not claimed.
    """
    monkeypatch.setattr(geometric, "_alias", lambda lower: 0.5)
    x = law([1, 2], 0.3)
    for k in (2, 5, 9):
        truth = on_lattice(np.array([1, 2]), np.array([0.3, 0.3]), k)
        for method in (x._by_lattice, x._by_arcs(2048)):
            lower, upper = method(k + 0.5, True, 0.0)
            assert lower <= truth <= upper
    wrapped = brackets.arcs(x._terms, 12.0, 2048).bracket(4.5, 4.5)
    assert wrapped.lower > on_lattice(np.array([1, 2]), np.array([0.3, 0.3]), 4)


@pytest.mark.parametrize("terms", [1, 2, 3])
def test_the_remainder_is_as_rare_as_claimed(terms):
    """
    P(D ≤ −s) ≤ exp(−3s²/B) for D a sum of differences of uniforms, the widest remainders.
    """
    n = 400
    triangle = np.convolve(np.full(n, 1 / n), np.full(n, 1 / n))
    total = np.ones(1)
    for _ in range(terms):
        total = np.convolve(total, triangle)
    d = (np.arange(total.size) - total.size // 2) / n
    for shift, shortfall in zip(SHIFTS, SHORTFALL, strict=True):
        s = shift * math.sqrt(terms)
        assert total[d <= -s].sum() <= shortfall
        assert shortfall == pytest.approx(math.exp(-3 * s**2 / terms))


def test_the_laplace_bracket_is_its_formula():
    """
    The bracket by the continuous law is the formula of the docstring, over all shifts.
    """
    x = law([1.0, 0.3, math.pi], 0.05)
    t, root = 100.0, math.sqrt(1 + 0.09 + math.pi**2)
    tail = x.continuous.tail
    pairs = [
        (shift * root, q) for shift, q in zip(SHIFTS.tolist(), SHORTFALL.tolist(), strict=True)
    ]
    most = min(2 * tail(t), *(tail(t - s) / max(1 - q, 0.5) for s, q in pairs))
    upper = min((1 - tail(t + s)) / (1 - 2 * q) for s, q in pairs if q < 0.5)

    assert x._by_laplace(t, True, 0.0) == pytest.approx((1 - most, upper), abs=1e-10)


def test_steps_that_are_nearly_commensurable():
    """
    1 and 1 + 5e-10 are taken for a lattice, but their sum is not claimed to be within 2.
    """
    x = law([1.0, 1 + 5e-10], 1.0)
    inside, truth = by_enumeration(np.array([1.0, 1 + 5e-10]), np.ones(2), 2.0)

    assert x._by_lattice(2.0, True, 0.0).lower <= truth
    assert x._by_lattice(2.0, True, 0.0).upper >= truth
    assert inside - 1e-12 <= x.confidence(2.0) <= truth


def test_fine_terms_are_not_forgotten():
    """
    With a second row of coefficient 1e-7, half of the atom at 3 lies beyond 3.
    """
    x = law([1.0, 1e-7], 1.0)
    p = math.exp(-1)
    at_three = 2 * math.tanh(0.5) * p**3
    truth = 1 - 2 * p**3 / (1 + p) + at_three * (1 + math.tanh(0.5)) / 2
    lower, upper = x._by_the_wide(3.0, True, 0.0)

    assert lower <= truth <= upper
    assert upper - lower == pytest.approx(at_three, abs=1e-6)
    assert x.confidence(3) == pytest.approx(truth, abs=1e-6)


def test_the_laplace_bracket_is_tight_for_small_weights():
    """
    At w g = 1e-9 nothing but the continuous law is needed, and it is nearly attained.
    """
    x = law([1.0, 0.3, math.pi], 1e-9)
    t = 2 * math.sqrt(x.variance)
    lower, upper = x.bracket(t)

    assert upper - lower < 1e-7
    assert lower <= x.continuous.confidence(t) <= upper
    assert not any(kind == "arcs" for kind, _ in x._built)


def test_probabilities_are_plain_numbers():
    """
    By whatever method: they are compared, and what comes of that is handed to the evaluator.
    """
    for terms in (1, 2, 3, 40):
        x = law(np.arange(1.0, terms + 1) ** 0.5, 0.1)
        for t in (0.0, 0.5, 20.0, 100.0, 5000.0):
            assert {type(end) for end in (*x.bracket(t), *x.cdf(t), *x.probability(-t, t))} == {
                float
            }
        assert type(x.half_width(0.9)) is float
        assert type(x.meets(3.0, 0.5)) is bool


def test_point_masses():
    """
    Without a coefficient, or with weights so large that no noise is ever drawn, 0 is certain.
    """
    nothing = GeometricSum(np.zeros(2), np.array([1.0, math.nan]), np.ones(2))
    silent = law([1.0, 0.7, 3.0], 5000.0)

    assert nothing.bracket(0) == (1, 1)
    assert nothing.meets(0, 1)
    assert nothing.half_width(1) == 0
    assert nothing.cdf(-1e-9) == (0, 0)
    assert silent.confidence(0) > 1 - 1e-11
    assert silent.half_width(0.99) == 0
    assert nothing.variance == 0
    assert silent.variance < 1e-300


def test_ends_of_the_line():
    """
    Only infinity is certain; nothing is nearer to 0 than 0.
    """
    x = law([1.0, 0.7], 0.5)

    assert x.bracket(math.inf) == (1, 1)
    assert x.bracket(-1) == x.bracket(0, closed=False) == x.probability(2, 1) == (0, 0)
    assert x.half_width(1) == math.inf
    assert x.half_width(0) == 0
    assert x.meets(x.half_width(1 - 1e-12), 1 - 1e-12)
    with pytest.raises(ValueError, match="confidence"):
        x.half_width(95)


@pytest.mark.parametrize(
    "a, w, g",
    [
        ([1], [0], [1]),
        ([1], [1], [-1]),
        ([math.nan], [1], [1]),
        ([1, 2], [1], [1]),
        ([1], [math.inf], [1]),
    ],
)
def test_what_is_no_row_is_refused(a, w, g):
    """
    A row that enters needs a finite coefficient and a positive finite weight and grid.
    """
    with pytest.raises(ValueError, match=r"need finite|one length"):
        GeometricSum(np.array(a, float), np.array(w, float), np.array(g, float))


@pytest.mark.parametrize(
    "coefficients, weights",
    [
        (np.random.default_rng(1).normal(size=10_000), 0.06),
        (np.ones(10_000), 0.06),
        (np.array([1e6, 1.0, 1e-6]), 0.1),
        (10.0 ** np.random.default_rng(2).uniform(-6, 6, 50), 0.3),
        (np.random.default_rng(3).normal(size=2000), 12.0),
        (np.full(3, 1 / 3), 1.0),
    ],
)
def test_hard_cases(coefficients, weights):
    """
    Ten thousand rows, equal ones, twelve decades, coarse ones: the half-width meets its confidence,
    is near the least that does, and the bracket is narrow.
    """
    x = law(coefficients, weights)
    for confidence in (0.5, 0.99):
        half_width = x.half_width(confidence)
        lower, upper = x.bracket(half_width)
        assert confidence <= lower <= upper
        assert upper - lower < 0.01
        assert half_width == 0 or x.bracket(0.99 * half_width).lower < confidence


def test_half_widths_on_a_lattice_are_on_it():
    """
    Two hundred pieces with grid 1: the half-width is a whole number, the least that is enough.
    """
    x = law(np.ones(200), 0.06)
    half_width = x.half_width(0.95)

    assert half_width == int(half_width)
    assert x.meets(half_width, 0.95)
    assert not x.meets(half_width - 1, 0.95)
    assert not x.meets(math.nextafter(half_width, 0), 0.95)


row = st.tuples(st.sampled_from([-1, 1]), st.floats(0.01, 3), st.floats(0.01, 3))
rows = st.lists(row, min_size=1, max_size=12)


@settings(deadline=None, max_examples=60)
@given(rows, st.floats(0.05, 4), st.floats(0.3, 0.999))
def test_meets_is_the_confidence(rows, width, confidence):
    """
    ``meets`` stops early and says what ``confidence`` would; ``half_width`` meets; all scale.
    """
    sign, size, w = np.array(rows).T
    a, g = sign * size, np.where(size > 1, 0.5, 1)
    x = GeometricSum(a, w, g)
    t = width * math.sqrt(x.variance)

    assert GeometricSum(a, w, g).meets(t, confidence) == (x.confidence(t) >= confidence)
    assert x.meets(x.half_width(confidence), confidence)
    assert x.interval(confidence, 5.0)[1] == 5.0 + x.half_width(confidence)
    assert GeometricSum(-4 * a, w, g).confidence(4 * t) == pytest.approx(x.confidence(t), abs=1e-9)


coarse = st.tuples(st.floats(0.1, 3), st.floats(0.4, 3))


@settings(deadline=None)
@given(coarse, coarse, st.floats(-3, 3), st.floats(0.1, 3))
def test_probabilities_are_brackets(first, second, low, step):
    """
    P(low ≤ X ≤ high) and P(X ≤ high) are in their brackets, wherever 0 lies.
    """
    a, w = np.array([first, second]).T
    x = GeometricSum(a, w, np.ones(2))
    low, high = low * math.sqrt(x.variance), (low + step) * math.sqrt(x.variance)
    reach = 90
    atoms = np.add.outer(*(b * np.arange(-reach, reach + 1) for b in a))
    mass = np.multiply.outer(*(pmf(rate, reach) for rate in w))
    lower, upper = x.probability(low, high)
    below = x.cdf(high)

    within = mass[(atoms >= low - 1e-12) & (atoms <= high + 1e-12)].sum()
    inside = mass[(atoms > low + 1e-12) & (atoms < high - 1e-12)].sum()
    assert lower <= within + 1e-13
    assert inside - 1e-13 <= upper
    ends = mass[(abs(atoms - low) < 0.02) | (abs(atoms - high) < 0.02)].sum()  # in or out
    assert upper - lower < 0.012 + ends
    assert below.lower <= mass[atoms <= high + 1e-12].sum() + 1e-13
    assert mass[atoms < high - 1e-12].sum() - 1e-13 <= below.upper


@given(st.integers(0, 40), st.floats(0.05, 3), st.integers(1, 6))
def test_the_lattice_law_is_exact(k, rate, n):
    """
    The Fourier sum modulo M is the convolution, to the error that it states.
    """
    terms = brackets.Terms(np.array([n, 1.0]), np.array([rate, 1.0]), np.array([1.0, 2.0]))
    found = brackets.lattice(terms, 2 ** math.ceil(math.log2(2 * (k + 60 * n / rate + 60))))
    truth = on_lattice(np.array([n, 1, 1]), np.array([rate, 1.0, 1.0]), k)

    assert found.error < 1e-10
    assert abs(found.within[k] - truth) <= found.error + 1e-13


def test_common_steps():
    """
    A common step is found up to a divisor of 64, and not where there is none.
    """
    eta, whole, off = brackets.common_step(np.array([0.5, 0.75, 2.0]))

    assert (eta, whole.tolist(), off) == (0.25, [2, 3, 8], 0)
    assert brackets.common_step(np.array([1.0, math.sqrt(2)])) is None
    assert brackets.common_step(np.array([1.0, 5000.0])) is None
    assert brackets.common_step(np.array([0.1, 0.2, 0.3]))[1].tolist() == [1, 2, 3]


def test_ties_that_floats_cannot_settle():
    """
    Three times the float 1/3 is below 1, ten times 0.1 above it: the law is that of the floats.
    """
    third, tenth = law([1 / 3], 1.0), law([0.1], 1.0)

    assert 3 * Fraction(1 / 3) < 1 < 10 * Fraction(0.1)
    assert third.confidence(1) == pytest.approx(1 - 2 * math.exp(-4) / (1 + math.exp(-1)), abs=1e-9)
    assert tenth.confidence(1) == pytest.approx(
        1 - 2 * math.exp(-10) / (1 + math.exp(-1)), abs=1e-9
    )
    assert law([1 / 3, 1 / 3], 1.0).bracket(1).lower == pytest.approx(
        on_lattice(np.array([1, 1]), np.array([1.0, 1.0]), 3), abs=100 * SLACK
    )
