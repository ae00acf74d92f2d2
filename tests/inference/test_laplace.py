"""The law of a weighted sum of Laplace variables, to 1e-10 and better."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.inference.contour import ACCURACY
from proxy.inference.laplace import LaplaceSum

EXAMPLE_H = np.array(
    [
        [1, 1, 0, 0],
        [0, 0, 1, 1],
        [0, 0, 0, 1],
        [0, 0, 1, 0],
        [0, 1, 0, 1],
        [2, 1, 0, 0],
        [0, 0, 2, -1],
        [0, -1, 0, 1],
    ]
)
EXAMPLE_ALPHA = np.array([0.05, 0.1, 0.05, 0.1, 0.1, 0.05, 0.05, 0.1])


def example() -> LaplaceSum:
    """The paper's worked example: the noise of the BLUE of [1 0 1 0]."""
    weight = EXAMPLE_ALPHA / np.abs(EXAMPLE_H).max(axis=1)
    x = weight[:, None] * EXAMPLE_H
    return LaplaceSum(np.linalg.pinv(x @ x.T) @ (x @ [1, 0, 1, 0]))


def partial_fractions(noise, t) -> mpmath.mpf:
    """P(|X| > t) = Σ_i Π_{j≠i} c_i²/(c_i² − c_j²) exp(−t/c_i); equal terms are moved by 1e-40."""
    scales, seen = [], {}
    for value in np.abs(noise[noise != 0]).tolist():
        seen[value] = seen.get(value, -1) + 1
        scales.append(mpmath.mpf(value) * (1 + seen[value] * mpmath.mpf(10) ** -40))
    squares = [c * c for c in scales]
    total = mpmath.mpf(0)
    for i, c in enumerate(scales):
        term = mpmath.exp(-mpmath.mpf(t) / c)
        for j, square in enumerate(squares):
            if j != i:
                term *= squares[i] / (squares[i] - square)
        total += term
    return total


def hard_case(kind: int, rng: np.random.Generator) -> np.ndarray:
    noise = rng.exponential(size=int(rng.integers(2, 14)))
    if kind == 1:
        noise[0] = 1e6  # one term a million times the others
    elif kind == 2:
        noise = 10 ** rng.uniform(-6, 6, noise.size)  # twelve decades
    elif kind == 3:
        noise[1] = noise[0]
    elif kind == 4:
        noise = rng.integers(0, 4, noise.size).astype(float)  # several equal, some zero
        noise[0] = 1.0
    elif kind == 5:
        noise *= rng.choice([-1, 1], noise.size)
    elif kind == 6:
        noise[:] = noise[0]
    elif kind == 7:
        noise[1:] *= 1 + 1e-9 * rng.normal(size=noise.size - 1)
    return noise


@pytest.mark.parametrize("kind", range(8))
def test_partial_fractions(kind):
    """
    On 200 random cases, the hard ones included, the inversion is the sum of partial fractions to
    1e-12, and the tail down to 1e-12 to nine digits.
    """
    rng = np.random.default_rng(kind)
    with mpmath.workdps(700):
        for _ in range(25):
            noise = hard_case(kind, rng)
            law = LaplaceSum(noise)
            deviation = math.sqrt(law.variance)
            for t in deviation * np.array([rng.exponential(), 10 ** rng.uniform(-8, 0), 7, 18]):
                truth = partial_fractions(noise, float(t))
                assert abs(law.tail(float(t)) - truth) <= 1e-12
                assert abs(law.tail(float(t)) - truth) <= 1e-9 * truth or truth < 1e-12


def test_worked_example():
    """
    The paper's example, by the independent values of the design.
    """
    law = example()

    assert law.variance == pytest.approx(554.4500359453630, abs=1e-10)
    assert law.cdf(42.01380301941049) == pytest.approx(0.9619041161415354, abs=1e-12)
    for confidence, half_width in {
        0.5: 14.58428418964796,
        0.8: 28.94770697917189,
        0.9: 38.45805501941482,
        0.95: 47.38332970713607,
        0.99: 66.88488644956779,
    }.items():
        assert law.half_width(confidence) == pytest.approx(half_width, abs=1e-10)
        assert law.confidence(half_width) == pytest.approx(confidence, abs=1e-12)


def test_one_term_and_two_equal_terms_by_hand():
    """
    P(|2L| > 3) = exp(−3/2); the sum of two unit terms has P(|X| > t) = (1 + t/2) exp(−t).
    """
    assert LaplaceSum(np.array([0.0, -2.0])).tail(3) == pytest.approx(math.exp(-1.5), rel=1e-15)
    assert LaplaceSum(np.array([1.0, -1.0])).tail(3) == pytest.approx(2.5 * math.exp(-3), rel=1e-14)
    assert LaplaceSum(np.array([3.0])).half_width(0.9) == pytest.approx(3 * math.log(10), rel=1e-15)


@pytest.mark.parametrize("n", [2, 5, 64, 65, 1000, 10_000])
def test_the_contour_is_the_bilateral_gamma_law_for_equal_terms(n):
    """
    The closed form for equal terms and the inversion agree, up to ten thousand terms.
    """
    law = LaplaceSum(np.ones(n))
    for t in (0.01, 1.0, math.sqrt(n), 6 * math.sqrt(n)):
        inverted = 2 * law.contour(t).tail(np.array([t]))[0]
        assert inverted == pytest.approx(law.tail(t), rel=1e-10, abs=1e-13)


def test_ten_thousand_terms_are_nearly_normal():
    """
    With a fourth cumulant of 12 Σ c⁴ the half-width leaves the normal one by its Edgeworth term.
    """
    noise = np.random.default_rng(1).uniform(0.5, 1.5, 10_000)
    law = LaplaceSum(noise)
    deviation, z = math.sqrt(law.variance), 1.959963984540054
    excess = 12 * (noise**4).sum() / deviation**4

    expected = z + excess * (z**3 - 3 * z) / 24
    assert law.half_width(0.95) / deviation == pytest.approx(expected, abs=1e-6)


def test_the_error_is_bounded_where_it_is_planned_and_beyond():
    """
    A contour planned at t is as good as it says at every larger t.
    """
    noise = np.array([1.0, 0.7, 0.2, 0.01])
    for start in (1e-3, 0.5, 5.0):
        contour = LaplaceSum(noise).contour(start)
        assert contour.error < 100 * ACCURACY
        for t in start * np.array([1.0, 1.5, 4.0]):
            truth = partial_fractions(noise, float(t)) / 2
            assert abs(contour.tail(np.array([t]))[0] - truth) <= contour.error


def test_point_mass():
    """
    Without noise the answer is certain.
    """
    law = LaplaceSum(np.zeros(3))

    assert (law.cdf(-1e-9), law.cdf(0), law.confidence(0), law.half_width(0.99)) == (0, 1, 1, 0)
    assert law.probability(-1, 1) == 1
    assert law.probability(1, 2) == 0
    assert law.mass().tolist() == [1.0]


def test_ends_of_the_line():
    """
    Nothing is certain short of infinity, and a half-width of 0 holds nothing.
    """
    law = example()

    assert (law.tail(0), law.tail(-1), law.tail(math.inf), law.cdf(0)) == (1, 1, 0, 0.5)
    assert (law.half_width(0), law.half_width(1)) == (0, math.inf)
    assert law.tail(1e9) == 0
    assert law.half_width(1e-17) < 1e-10


@pytest.mark.parametrize("noise", [np.ones((2, 2)), np.array([1.0, math.nan])])
def test_what_is_no_noise_is_refused(noise):
    """
    A matrix or a NaN is a bug of the caller.
    """
    with pytest.raises(ValueError, match="vector of finite"):
        LaplaceSum(noise)


def test_a_confidence_outside_of_its_range_is_refused():
    """
    95 is not a probability, and neither is NaN.
    """
    for confidence in (95.0, -0.1, math.nan):
        with pytest.raises(ValueError, match="confidence"):
            example().half_width(confidence)


noises = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=90).map(np.array)


@given(noises, st.floats(0.001, 1 - 1e-9))
def test_half_width_inverts_confidence(noise, confidence):
    """
    half_width and confidence are inverse to each other, and so are quantile and cdf.
    """
    law = LaplaceSum(noise)
    half_width = law.half_width(confidence)

    assert law.tail(half_width) == pytest.approx(1 - confidence, rel=1e-9)
    assert law.interval(confidence, 7.0) == (7.0 - half_width, 7.0 + half_width)
    assert law.cdf(law.quantile(confidence)) == pytest.approx(confidence, abs=1e-12)


@given(noises, st.floats(0.01, 5), st.floats(0.01, 5))
def test_probabilities_are_consistent(noise, low, step):
    """
    The probability of an interval is the difference of the cdf, is symmetric, and scales.
    """
    law = LaplaceSum(noise)
    deviation = math.sqrt(law.variance)
    a, b = low * deviation, (low + step) * deviation

    assert law.probability(a, b) == pytest.approx(law.cdf(b) - law.cdf(a), abs=1e-12)
    assert law.probability(-b, -a) == law.probability(a, b)
    assert law.probability(-a, b) == pytest.approx(law.cdf(b) - law.cdf(-a), abs=1e-12)
    assert law.probability(b, a) == 0
    assert LaplaceSum(-3 * noise).tail(3 * a) == pytest.approx(law.tail(a), rel=1e-10, abs=1e-14)


@given(noises, st.floats(1e-12, 0.5))
def test_cheap_bounds_are_bounds(noise, tail):
    """
    Chernoff's bound in constant time is above the tail, and its radius is wide enough.
    """
    law = LaplaceSum(noise)
    radius = law.radius(tail)

    assert law.tail(radius) <= law.chernoff(radius) <= tail * (1 + 1e-6)


def test_exact_mass_vector():
    """
    Entry j is P(j − ½ < X ≤ j + ½), and no more than gamma is missing.
    """
    law = LaplaceSum(np.array([2.0, 0.5]))
    mass = law.mass(gamma=0.001)
    k = mass.size // 2

    assert mass.size % 2 == 1
    assert 0.999 <= mass.sum() <= 1
    assert mass[k] == pytest.approx(law.confidence(0.5), abs=1e-12)
    assert mass[k - 3] == mass[k + 3] == pytest.approx(law.probability(2.5, 3.5), abs=1e-12)


def test_mass_by_the_papers_methods():
    """
    PC and MC give the exact mass but for discretization and sampling; None chooses PC here.
    """
    law = LaplaceSum(np.array([20.0, 15.0, 7.0]))
    exact = law.mass(gamma=1e-9)
    discrete, chosen = law.mass("pc", gamma=1e-9), law.mass(None, gamma=1e-9)
    sampled = law.mass("mc", samples=100_000, rng=np.random.default_rng(3))

    def around_zero(mass):
        return mass[mass.size // 2 - 30 : mass.size // 2 + 31]

    assert np.array_equal(discrete, chosen)
    assert around_zero(discrete) == pytest.approx(around_zero(exact), rel=2e-3)
    assert around_zero(sampled) == pytest.approx(around_zero(exact), abs=2e-3)
    with pytest.raises(ValueError, match="none of exact, pc, mc"):
        law.mass("fft")
