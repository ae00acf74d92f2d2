"""Refined noise has its exact conditional law, from the first bit to the last digit."""

import decimal
import math
import random
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.inference.mechanism import GeometricSampler
from proxy.inference.refinement import BITS, Refinement, _Law
from tests.inference.refined import below, difference, f, given_old
from tests.searches import share

PAIRS = [(3.0, 2.0), (5.0, 0.3), (1.5, 1.4999), (0.75, 0.5), (8.0, 1.0)]  # old and new scale
SMALL = [0, 1, 2, 3, 9]  # old noises


@pytest.fixture(autouse=True)
def digits():
    """Work with 60 digits."""
    with mpmath.workdps(60):
        yield


class Chosen:
    """A source of bits that are those of a chosen number between 0 and 1."""

    def __init__(self, number, length=1024):
        self.bits = int(mpmath.floor(mpmath.mpf(number) * 2**length)).to_bytes(length // 8, "big")
        self.read = 0  # bytes

    def __call__(self, size):
        self.read += size
        assert self.read <= len(self.bits)
        return self.bits[self.read - size : self.read]


def drawn(u, n, old, new):
    """The noise that is drawn when the random bits are those of u."""
    return Refinement(old, new, Chosen(u)).draw(n)


def test_the_law_by_hand():
    """
    With p₁ = 1/2 and p₂ = 1/4 the new noise, if the old is 1, is negative up to U = 1/15, 0 up to
    8/15 and 1 up to 29/30; if the old is 0, it is negative up to 1/15, and 0 up to 14/15.
    """
    old, new = 1 / math.log(2), 1 / math.log(4)
    for n, cuts in ((1, [1 / 15, 8 / 15, 29 / 30]), (0, [1 / 15, 14 / 15])):
        for k, cut in enumerate(cuts, -1):
            assert drawn(cut - 1e-12, n, old, new) == k
            assert drawn(cut + 1e-12, n, old, new) == k + 1
    assert drawn(1 / 15 + 1e-12, -1, old, new) == 0  # with all signs turned
    assert drawn(8 / 15 + 1e-12, -1, old, new) == -1


@pytest.mark.parametrize(("old", "new"), share(2, PAIRS))
def test_the_old_noise_is_a_noisier_copy_of_the_new(old, new):
    """
    f₂ * R = f₁ with R a probability, to 40 digits.
    """
    reach = int(95 / (1 / old + 1 / new)) + 10
    assert 0 <= difference(old, new, 0) <= 1
    for n in SMALL:
        total = sum(f(1 / mpmath.mpf(new), k) * difference(old, new, n - k) for k in span(reach))
        assert mpmath.almosteq(total, f(1 / mpmath.mpf(old), n), 1e-40)


def span(reach):
    return range(-reach, reach + 1)


@pytest.mark.parametrize("n", SMALL)
@pytest.mark.parametrize(("old", "new"), share(2, PAIRS))
def test_draws_change_where_the_exact_law_does(old, new, n):
    """
    Bits that are 1e-45 below P(N₂ ≤ k), added up by Bayes' rule to 50 digits, give k or less, and
    those 1e-45 above it more; so for each k from -4 to n + 4, and with all signs turned.
    """
    cut = sum(given_old(k, n, old, new) for k in range(-int(120 / (1 / old + 1 / new)) - 6, -4))
    for k in range(-4, n + 5):
        cut += given_old(k, n, old, new)
        assert mpmath.almosteq(cut, below(k, n, old, new)[0], 1e-50)
        for sign in (1, -1):
            turned = -1 if sign * n < 0 else 1
            assert drawn(cut - mpmath.mpf("1e-45"), sign * n, old, new) * turned <= k
            assert drawn(cut + mpmath.mpf("1e-45"), sign * n, old, new) * turned == k + 1


exponents = st.floats(-12, 48)
scales = st.builds(lambda e: min(max(2.0**e, 2.0**-12), 2.0**48), exponents)
pairs = st.one_of(
    st.tuples(scales, scales).filter(lambda s: s[0] != s[1]).map(lambda s: (max(s), min(s))),
    scales.map(lambda s: (s, math.nextafter(s, 0))),
    scales.map(lambda s: (s, s / 1000)),
)
noises = st.one_of(st.integers(0, 50), st.integers(0, 2**60), st.just(2**60))
words = st.one_of(st.integers(0, 2**128 - 1), st.integers(0, 2**32), st.integers(1, 2**32))


@given(pairs, noises, words, st.booleans())
def test_every_draw_is_the_least_k_whose_probability_is_above_the_bits(pair, n, word, tail):
    """
    Whatever the scales, steps of one ulp and of three decades among them, the old noise up to 2**60
    and the bits, those far in the tails among them: P(N₂ ≤ k − 1) ≤ U < P(N₂ ≤ k).
    """
    with mpmath.workdps(150):
        u = (mpmath.mpf(word) + mpmath.mpf(1) / 3) / 2**128
        v = 1 - u
        if tail:
            u, v = v, u
        k = drawn(u, n, *pair)
        if u < 0.5:
            assert below(k - 1, n, *pair)[0] <= u < below(k, n, *pair)[0]
        else:
            assert below(k, n, *pair)[1] < v <= below(k - 1, n, *pair)[1]


class Coarse(_Law):
    """The law with few digits of everything."""

    digits = 3

    def _round(self, digits):
        super()._round(self.digits)


@pytest.mark.parametrize("digits", share(1, [3, 4, 5]))
def test_rounding_leaves_open_what_it_does_not_decide(digits, monkeypatch):
    """
    With 3 to 5 digits instead of 24: what is decided of 64 bits near a change of k, or anywhere, is
    still right for all the numbers that begin with these bits; and much is decided.
    """
    monkeypatch.setattr(Coarse, "digits", digits)
    rng, decided = random.Random(digits), 0
    for old, new in (*PAIRS[:2], *PAIRS[3:], (70.0, 31.0), (1000.0, 7.0)):
        law = Coarse(1 / Fraction(old), 1 / Fraction(new), 64)
        for trial in range(240):
            n = rng.choice([0, 1, 2, int(new), int(old)])
            k = rng.randint(-4, n + 4) if trial % 2 else rng.choice([-1, n - 1, n])
            low, high = below(k, n, old, new)
            off = 1 + rng.choice([-1, 1]) * mpmath.mpf(10) ** -rng.uniform(digits - 3, digits + 0.5)
            u = low * off if low < high else 1 - high * off
            word = min(max(int(u * 2**64), 0), 2**64 - 1)
            found = law.quantile(word, n)
            if found is not None:
                decided += 1
                assert below(found - 1, n, old, new)[0] <= mpmath.mpf(word) / 2**64
                assert below(found, n, old, new)[0] >= mpmath.mpf(word + 1) / 2**64
    assert 300 < decided < 1500


@given(
    st.fractions(Fraction(1, 4), 12, max_denominator=10**6),
    st.one_of(st.integers(1, 100), st.floats(10, 63.99).map(lambda bits: int(2**bits))),
)
def test_every_enclosure_holds_the_number(rate, word):
    """
    With 3 digits: a quotient, exp(−x), ln(1 − exp(−x)), and −ln u at both ends of a word of bits.
    """
    law = Coarse(Fraction(1, 3), Fraction(1, 2), 64)
    x = mpmath.mpf(rate.numerator) / rate.denominator
    held = [
        (law._ratio(rate), x),
        (law._exp(*law._ratio(-rate)), mpmath.exp(-x)),
        (law._log_of_rest(rate), mpmath.log(1 - mpmath.exp(-x))),
        (law._log_inverse(word), -mpmath.log(mpmath.mpf(word) / 2**64)),
        (law._log_inverse(word), -mpmath.log(mpmath.mpf(word + 1) / 2**64)),
    ]
    for (low, high), number in held:
        assert mpmath.mpf(str(low)) <= number + mpmath.mpf("1e-50")
        assert number <= mpmath.mpf(str(high)) + mpmath.mpf("1e-50")


def test_bits_are_drawn_until_they_decide():
    """
    64 where that is plain; twice as many, each time, for a U that is near a change of k.
    """
    for distance, total in ((0.01, 64), (1e-25, 128), (1e-60, 256), (1e-100, 512)):
        with mpmath.workdps(150):
            cut, _ = below(2, 4, 3.0, 2.0)
            for sign, k in ((1, 3), (-1, 2)):
                source = Chosen(cut + sign * mpmath.mpf(distance))
                assert Refinement(3.0, 2.0, source).draw(4) == k
                assert source.read * 8 == total
    assert BITS == 64


@pytest.mark.slow
@given(st.integers(22, 90), st.fractions(Fraction(1, 10**30), 10**4), st.booleans())
def test_logarithms_and_powers_are_rounded_to_the_nearest(digits, x, near):
    """
    As the proof takes from the documentation of decimal: exp(−x), ln x and ln of what is near 1 are
    within half of their last digit, whatever the rounding.
    """
    with mpmath.workdps(200):
        for rounding in (decimal.ROUND_FLOOR, decimal.ROUND_CEILING):
            context = decimal.Context(prec=digits, rounding=rounding)
            number = context.divide(x.numerator, x.denominator)
            if near:
                number = decimal.Context(prec=200).subtract(1, number.scaleb(-5))
            exact = mpmath.mpf(str(number))
            for found, true in (
                (context.exp(number.copy_negate()), mpmath.exp(-exact)),
                (context.ln(number), mpmath.log(exact)),
            ):
                unit = mpmath.mpf(10) ** (found.adjusted() - digits + 1)
                assert abs(mpmath.mpf(str(found)) - true) <= unit / 2


@pytest.mark.parametrize("high", [False, True])
@pytest.mark.parametrize("n", [0, 7])
def test_there_is_no_largest_and_no_smallest_noise(high, n):
    """
    After 1,000 equal bits the noise is where the law has 2**-1000 left.
    """
    with mpmath.workdps(400):
        tail = mpmath.mpf(1) / 3 / mpmath.mpf(2) ** 1000
        k = Refinement(3.0, 2.0, Chosen(1 - tail if high else tail, 2**12)).draw(n)
        one, other = (below(j, n, 3.0, 2.0)[high] for j in (k - 1, k))
        assert (other < tail <= one) if high else (one <= tail < other)
    assert abs(k) > 800


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (2.0, 2.0),
        (1.0, 2.0),
        (1.0, 0.0),
        (1.0, -1.0),
        (math.inf, 1.0),
        (math.nan, 1.0),
        (1.0, math.nan),
    ],
)
def test_only_a_smaller_scale_is_a_refinement(old, new):
    """
    Anything else is the mistake of a caller; also where there is nothing to refine.
    """
    with pytest.raises(ValueError, match="smaller, positive scale"):
        GeometricSampler().refine([], old, new)


def test_each_row_is_refined_from_its_own_noise():
    """
    In their order, and each with bits of its own: of 64 rows of a large scale, fewer than 60 are
    different by chance with a probability below 1e-9; nor is it likelier that a scale that is less
    by one ulp changes anything, or that noise of 2**60 is left where only a scale of 1 is allowed.
    """
    sampler = GeometricSampler()
    assert len(set(sampler.refine([0] * 64, 2.0**48, 2.0**36))) > 60
    noise = [5, -7, 0, 10**6]
    assert sampler.refine(noise, 1e6, math.nextafter(1e6, 0)) == noise
    assert max(map(abs, sampler.refine([2**60, -(2**60)], 2.0, 1.0))) < 100
    assert sampler.refine([], 2.0, 1.0) == []


def test_noise_of_numpy_is_refined_as_whole_numbers():
    """
    Which do not overflow, and of which the result has none.
    """
    for n in (2**60, -(2**63)):
        k = Refinement(1e5, math.nextafter(1e5, 0), Chosen(0.3)).draw(np.int64(n))
        assert (k, type(k)) == (drawn(0.3, n, 1e5, math.nextafter(1e5, 0)), int)
