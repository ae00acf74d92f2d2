"""Linear combinations, ratios, functions and draws of numbers, against what is known by hand."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.inference.estimator import Estimator
from proxy.inference.functions.combination import Combination, Known, Ratio, around, possible
from proxy.inference.functions.draws import Noises, corners, count, interval
from proxy.inference.functions.images import image
from proxy.inference.functions.possible import bounds
from proxy.inference.query import Factor, LinearQuery, Term, present_part, sum_part
from proxy.inference.space import Box, Space

NONE = np.zeros(0)


def known(estimate, *rows, least=-math.inf, most=math.inf):
    """A number: its estimate, and (row, coefficient, rate) of its noise."""
    names, coefficients, rates = zip(*rows, strict=True)
    law = Estimator(
        Fraction(1), np.array(names), np.array(coefficients, float), np.array(rates, float)
    )
    return Known(estimate, law, least, most)


def geometric(rate, reach=4000):
    """P(K = k) for k in -reach .. reach."""
    p = math.exp(-rate)
    return (1 - p) / (1 + p) * p ** np.abs(np.arange(-reach, reach + 1.0))


def half_width(mass, confidence):
    """The least t with P(|X| ≤ t) ≥ confidence, of a symmetric mass vector."""
    middle = len(mass) // 2
    inside = mass[middle] + 2 * np.cumsum(np.append(0.0, mass[middle + 1 :]))
    return int(np.searchsorted(inside, confidence))


@pytest.mark.parametrize("rates", [(0.5, 0.5), (0.3, 1.1), (0.05, 0.2)])
@pytest.mark.parametrize("delta", [0.05, 0.3])
def test_a_difference_of_two_counts_has_the_dense_posterior(rates, delta):
    """
    The mass of K - K' by convolution: the interval has exactly its half-width.
    """
    numbers = {1: known(100, (0, 1, rates[0])), 2: known(30, (1, 1, rates[1]))}
    mass = np.convolve(geometric(rates[0]), geometric(rates[1]))
    half = half_width(mass, 1 - delta)
    low, high = around(Combination({1: 1.0, 2: -1.0}, 7), numbers, delta)
    assert (low, high) == pytest.approx((77 - half, 77 + half), abs=1e-9)


def test_rows_that_numbers_share_are_added_up():
    """
    A + b from one row, and a from another: their difference has the noise of both; what cancels but
    for the rounding of its coefficients is gone.
    """
    both, one = known(50, (0, 1, 0.5)), known(20, (1, 1, 0.5))
    numbers = {1: both, 2: one, 3: known(70, (0, 1, 0.5), (1, 1, 0.5))}
    law = Combination({3: 1.0, 1: -1.0}).law(numbers)
    assert (law.rows.tolist(), law.coefficients.tolist()) == ([1], [1.0])
    law = Combination({1: 0.1 + 0.2, 3: -0.3, 2: 0.3}).law(numbers)
    assert not law.rows.size
    low, high = around(Combination({1: 0.1 + 0.2, 3: -0.3, 2: 0.3}), numbers, 0.05)
    assert -1e-12 < low <= 0 <= high < 1e-12


def test_a_combination_keeps_to_what_is_possible():
    """
    The interval around an estimate beyond an end is that around the end, as of a count.
    """
    numbers = {1: known(-9, (0, 1, 0.5), least=0), 2: known(-3, (1, 1, 0.5), least=0)}
    half = half_width(np.convolve(geometric(0.5), geometric(0.5)), 0.9)
    assert around(Combination({1: 1.0, 2: 1.0}), numbers, 0.1) == pytest.approx((0, half))
    low, high = around(Combination({1: 1.0, 2: -1.0}), numbers, 0.1)
    assert (low, high) == pytest.approx((-6 - half, -6 + half))


def test_a_ratio_with_a_bottom_that_is_all_but_known_is_a_multiple():
    """
    Of 40 ± half over 200.
    """
    numbers = {1: known(40, (0, 1, 0.5)), 2: known(200, (1, 1, 600.0))}
    half = half_width(geometric(0.5), 0.9)
    low, high = Ratio(Combination({1: 1.0}), Combination({2: 1.0}), numbers, 0.1).ends()
    assert low == pytest.approx((40 - half) / 200, rel=0.02)
    assert high == pytest.approx((40 + half) / 200, rel=0.02)
    assert low <= (40 - half) / 200
    assert high >= (40 + half) / 200


@pytest.mark.parametrize("shared", [False, True])
def test_the_ends_of_a_ratio_are_where_a_linear_query_just_may_be_zero(shared):
    """
    T - t C, by its dense mass in steps of 1/64: beyond an end |T - t C| is too large for 0, just
    inside it is not.
    """
    top = known(90, (0, 1, 0.4))
    bottom = known(160, (1, 1, 0.4), *([(0, 1, 0.4)] if shared else []))
    ratio = Ratio(Combination({1: 1.0}), Combination({2: 1.0}), {1: top, 2: bottom}, 0.1)
    low, high = ratio.ends()

    def may_be(t):
        step = 64
        t = round(t * step) / step
        masses = []
        for c in [(1 - t) if shared else 1.0, t]:
            fine = np.zeros(2 * 60 * step + 1)
            k = np.arange(-60, 61)
            places = np.rint(k * abs(c) * step).astype(int) + 60 * step
            held = (places >= 0) & (places < fine.size)
            np.add.at(fine, places[held], geometric(0.4, 60)[held])
            masses.append(fine)
        mass = np.convolve(*masses)
        off = round(abs(90 - t * 160) * step)
        middle = mass.size // 2
        return mass[middle - off : middle + off + 1].sum() < 0.9 + 0.02

    span = high - low
    assert 0.05 < span < 0.3
    for end, inwards in ((low, 1), (high, -1)):
        assert may_be(end + inwards * 0.12 * span)
        assert not may_be(end - inwards * 0.12 * span)


def test_a_ratio_over_what_may_be_nothing_may_be_anything():
    """
    Or anything that is possible: a share is between 0 and 1.
    """
    small = {1: known(2, (0, 1, 0.1), least=0), 2: known(3, (1, 1, 0.1), least=0)}
    one, two, both = Combination({1: 1.0}), Combination({2: 1.0}), Combination({1: 1.0, 2: 1.0})
    assert Ratio(one, two, small, 0.1).ends() == (0, math.inf)
    assert Ratio(one, both, small, 0.1).ends() == (0, 1)
    assert Ratio(one, both, {k: known(2, (k, 1, 0.1)) for k in (1, 2)}, 0.1).ends() == (
        -math.inf,
        math.inf,
    )


def test_a_share_is_between_its_least_and_its_most_only_if_it_must_be():
    """
    In percent too, and with a constant below; not of a number that may be negative.
    """
    numbers = {k: known(5, (k, 1, 0.5), least=0) for k in (1, 2, 3)}
    total = Combination({1: 1.0, 2: 1.0, 3: 1.0})
    assert possible(Combination({1: 100.0}), total, numbers) == (0, 100)
    assert possible(Combination({1: 2.0, 2: 1.0, 3: 1.0}), total, numbers) == (1, 2)
    assert possible(Combination({1: 1.0}), Combination({1: 1.0}, 10), numbers) == (0, 1)
    assert possible(Combination({1: 1.0}), Combination({2: 1.0}), numbers) == (0, math.inf)
    numbers[3] = known(5, (3, 1, 0.5))
    assert possible(Combination({1: 1.0}), total, numbers) == (-math.inf, math.inf)


def test_a_ratio_of_queries_is_between_what_records_have():
    """
    A mean within the clip, of a nullable measure too; a rate of a part; nothing where records count
    above that do not below.
    """
    space = Space((3,), (Box(-4, 10, True),))
    some = Factor((0,), np.array([1, 1, 0]))
    count = LinearQuery.count(space)
    part = LinearQuery.count(space, some)
    sums = LinearQuery.of(space, Fraction(1, 2), {sum_part(0): Term.of(1, [some])})
    there = LinearQuery.of(space, Fraction(1), {present_part(0): Term.of(1, [some])})
    values = LinearQuery.of(
        space, Fraction(1), {0: Term.of(1, [Factor((0,), np.array([2, 3, 9]))])}
    )
    assert bounds(part * 100, count) == (0, 100)
    assert bounds(sums, there) == (-2, 5)
    assert bounds(sums, part) == (-2, 5)
    assert bounds(values, count) == (2, 9)
    assert bounds(values.times(some), part) == (2, 3)
    assert bounds(count, part) == (1, math.inf)
    assert bounds(count, part * -1) == (-math.inf, math.inf)


STEPS = {
    "round": (lambda x: np.sign(x) * np.floor(abs(x) * 10 + 0.5) / 10, ("round", 1)),
    "floor": (np.floor, ("floor",)),
    "ceil": (np.ceil, ("ceil",)),
    "trunc": (np.trunc, ("trunc", 0)),
    "abs": (abs, ("abs",)),
    "sign": (np.sign, ("sign",)),
    "times": (lambda x: -3 * x, ("times", -3)),
    "plus": (lambda x: x + 2, ("plus", 2)),
    "greatest": (lambda x: np.maximum(x, 1), ("greatest", 1)),
    "least": (lambda x: np.minimum(x, 1), ("least", 1)),
    "exp": (np.exp, ("exp",)),
    "cbrt": (np.cbrt, ("cbrt",)),
}


@given(st.floats(-50, 50), st.floats(0, 40), st.sampled_from(sorted(STEPS)))
def test_the_image_of_an_interval_is_the_least_that_holds_all_values(low, length, name):
    """
    Also through an end that is no end.
    """
    function, step = STEPS[name]
    found = image((low, low + length), [step])
    values = function(
        np.append(np.linspace(low, low + length, 201), [0.0] * (low <= 0 <= low + length))
    )
    rounding = 1e-9 + 1e-12 * float(np.abs(values).max())
    assert found[0] <= values.min() + rounding
    assert found[1] >= values.max() - rounding
    assert found == pytest.approx((values.min(), values.max()), abs=0.11, rel=1e-12)
    wide = image((-math.inf, math.inf), [step])
    assert wide[0] <= values.min()
    assert wide[1] >= values.max()


def test_images_by_hand():
    """
    Steps in their order; a root of what may be negative; another value where the number may be a
    ratio over nothing.
    """
    assert image((-4, 9), [("sqrt",)]) == (0, 3)
    assert image((0, 100), [("ln",), ("times", -1)]) == (-math.log(100), math.inf)
    assert image((2.26, 3.14), [("times", 10), ("round", 0), ("plus", 1)]) == (24, 32)
    assert image((2, 3), [("or", 0)]) == (2, 3)
    assert image((2, 3), [("or", 0)], True) == (0, 3)
    assert image((-5, 2), [("abs",)]) == (0, 5)
    assert image((2, math.inf), [("times", -1)]) == (-math.inf, -2)


def test_draws_have_the_law_of_the_noise_and_are_the_same_again():
    """
    Variance 2 p / (1 - p)² of each row, rows that are shared being one, and the seed alone decides.
    """
    one, two = known(0, (0, 1, 0.5)).estimator, known(0, (0, 2, 0.5), (1, 1, 0.2)).estimator
    noises = Noises("a statement", 50_000)
    first, second = noises.of(one), noises.of(two)
    variance = [2 * math.exp(-r) / (1 - math.exp(-r)) ** 2 for r in (0.5, 0.2)]
    assert first.var() == pytest.approx(variance[0], rel=0.05)
    assert second.var() == pytest.approx(4 * variance[0] + variance[1], rel=0.05)
    assert np.mean(first * second) == pytest.approx(2 * variance[0], rel=0.06)
    p = math.exp(-0.5)
    assert (first == 0).mean() == pytest.approx((1 - p) / (1 + p), abs=0.01)
    again = Noises("a statement", 50_000)
    assert (again.of(two) == second).all()
    assert (Noises("another", 50_000).of(two) != second).any()
    assert Noises("a statement", 10).of(known(0, (0, 1, 1e-9)).estimator).std() > 1e8


def test_intervals_of_draws_by_hand():
    """
    Percentiles, and mirrored ones where nothing jumps; a NULL may be anything; corners.
    """
    draws, none = np.arange(1000.0), np.full(60, np.nan)
    assert interval(draws, 499.5, 0.1, True, NONE) == (49, 950)
    assert interval(draws, 499.5, 0.1, False, NONE) == (49, 950)
    assert interval(draws, 400, 0.1, False, NONE) == (-150, 950)
    assert interval(draws, math.nan, 0.1, False, NONE) == (49, 950)
    assert interval(draws, 499.5, 0.1, True, np.array([-3.0, np.nan, 2000])) == (-3, 2000)
    many = np.concatenate([draws[60:], none])
    assert interval(many, 499.5, 0.1, True, NONE) == (-math.inf, math.inf)
    assert (count(0.3), count(0.05), count(0.01), count(1e-9)) == (1000, 1000, 5000, 5000)
    assert [tuple(c.values()) for c in corners([7, 8])] == [
        (1, 1), (-1, -1), (-1, 1), (1, -1), (1, -1), (-1, 1)
    ]  # fmt: skip
