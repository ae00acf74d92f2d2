"""The paper's Monte Carlo and discrete probability calculation, as the paper states them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.inference import monte_carlo

# |A_k| S_k / α_k of the paper's worked example, to the digits that it prints.
EXAMPLE = np.array([0.48, 0.36, -0.03, 0.50, -0.50, 0.26, 0.07, 0.24])
EXAMPLE = EXAMPLE * [1, 1, 1, 1, 1, 2, 2, 1] / [0.05, 0.1, 0.05, 0.1, 0.1, 0.05, 0.05, 0.1]


def test_length_of_the_papers_first_vector():
    """
    The example's v_1: 2 · 0.48 · ln(8/0.01)/0.05 = 128, hence 129 entries up to ±64 … and one
    more on either side, as 64.17 is rounded up.
    """
    alone = np.concatenate([EXAMPLE[:1], np.full(7, 1e-9)])

    assert monte_carlo.discrete_mass(alone, 0.01).size == 2 * 65 + 1 + 7 * 2


def test_one_term_by_hand():
    """
    With c = 1, γ = 0.1: three a side, P(X ∈ ±½) = 1 − e^−½, P(½ < X ≤ 3/2) = (e^−½ − e^−3/2)/2.
    """
    vector = monte_carlo.discrete_mass(np.array([0.0, -1.0]), 0.1)

    assert vector.size == 7
    assert vector[3] == pytest.approx(1 - math.exp(-0.5))
    assert vector[4] == vector[2] == pytest.approx((math.exp(-0.5) - math.exp(-1.5)) / 2)


def test_no_term_is_a_point_mass():
    """
    Zeros convolve to certainty, and round to it.
    """
    rng = np.random.default_rng(0)

    assert monte_carlo.discrete_mass(np.zeros(2)).tolist() == [1.0]
    assert monte_carlo.monte_carlo_mass(np.zeros(2), 10, rng).tolist() == [1.0]


@given(st.lists(st.floats(0.01, 20), min_size=1, max_size=8).map(np.array), st.floats(1e-6, 0.5))
def test_truncation_loses_at_most_gamma(noise, gamma):
    """
    PC loses at most gamma of mass, so its truncation error is at most gamma²; it is symmetric.
    """
    vector = monte_carlo.discrete_mass(noise, gamma)

    assert 1 - gamma - 1e-12 <= vector.sum() <= 1 + 1e-12
    assert vector == pytest.approx(vector[::-1], abs=1e-15)
    assert monte_carlo.truncation_error(gamma) == gamma**2
    if noise.size == 1:
        assert 1 - vector.sum() == pytest.approx(math.exp(-vector.size / 2 / noise[0]), rel=1e-6)


def test_convolution_is_from_the_shortest_to_the_longest(monkeypatch):
    """
    The vectors come in rising length, which makes the work least.
    """
    lengths = []
    convolve = np.convolve
    monkeypatch.setattr(np, "convolve", lambda u, v: lengths.append(v.size) or convolve(u, v))
    monte_carlo.discrete_mass(EXAMPLE)

    assert len(lengths) == 8
    assert lengths == sorted(lengths)


def test_monte_carlo_is_within_its_error():
    """
    The mean error of MC over 40 runs is below |u|/(m_s − 1) · max u (1 − max u), and not idly so.
    """
    noise = np.array([1.0, 0.5])
    rng = np.random.default_rng(1)
    many = monte_carlo.monte_carlo_mass(noise, 4_000_000, rng)
    errors, bounds = [], []
    for _ in range(40):
        vector = monte_carlo.monte_carlo_mass(noise, 1000, rng)
        k, reach = many.size // 2, vector.size // 2
        expected = many[k - reach : k + reach + 1]
        errors.append(((vector - expected) ** 2).sum())
        bounds.append(monte_carlo.monte_carlo_error(vector, 1000))

    assert np.mean(bounds) / 20 < np.mean(errors) < np.mean(bounds)


def test_number_of_samples_by_hand():
    """
    |u| = 3, max u = ½, γ = 0.001: 3 · 10⁶ / 4 + 1; never fewer than 10⁴.
    """
    vector = np.array([0.25, 0.5, 0.25])

    assert monte_carlo.samples_needed(vector, 0.001) == 750_001
    assert monte_carlo.samples_needed(vector, 0.1) == 10_000
    assert monte_carlo.monte_carlo_error(vector, 750_001) == pytest.approx(0.001**2)


def test_samples_follow_the_bound_when_none_are_given():
    """
    The vector counts the paper's number of samples: its entries are multiples of 1/m_s.
    """
    noise = np.array([3.0, 2.0])
    vector = monte_carlo.monte_carlo_mass(noise, None, np.random.default_rng(5), gamma=0.01)
    again = np.random.default_rng(5)
    samples = monte_carlo.samples_needed(monte_carlo.monte_carlo_mass(noise, 10_000, again), 0.01)

    assert samples > 10_000
    assert vector.sum() == pytest.approx(1, abs=1e-12)
    assert vector * samples == pytest.approx(np.rint(vector * samples), abs=1e-6)


def test_cost_and_choice():
    """
    log²(m/γ) β by hand: two terms of sum 3, γ = 0.02, (3 ln 100)²; PC while it is small.
    """
    noise = np.array([1.0, -2.0, 0.0])

    assert monte_carlo.discrete_cost(noise, 0.02) == pytest.approx((3 * math.log(100)) ** 2)
    assert monte_carlo.prefers_pc(noise, 0.02)
    assert not monte_carlo.prefers_pc(1e5 * noise, 0.02)
