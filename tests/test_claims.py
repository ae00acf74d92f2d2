"""Claims about numbers: their probability against the law of the noise, atom by atom."""

import math
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.engine.claims import probability
from proxy.engine.goals.averages import AverageGoal
from proxy.inference.family import Family
from proxy.inference.history import History
from proxy.inference.query import COUNT, LinearQuery, Term
from proxy.inference.space import Box, Space
from proxy.sql.program import Companion, Number

SPACE = Space((3,), (Box(-100, 100),))
FAR = 400  # steps beyond which there is next to nothing


def law(scale):
    """The probability of each noise."""
    p = math.exp(-1 / scale)
    return {k: math.tanh(0.5 / scale) * p ** abs(k) for k in range(-FAR, FAR + 1)}


def claims(end):
    """The claims that one end makes, and what satisfies them."""
    return {
        ">": (Companion("probability", end, None, (True, False)), lambda v: v > end),
        ">=": (Companion("probability", end), lambda v: v >= end),
        "<": (Companion("probability", None, end, (False, True)), lambda v: v < end),
        "<=": (Companion("probability", None, end), lambda v: v <= end),
        "=": (Companion("probability", end, end), lambda v: v == end),
        "<>": (Companion("probability", end, end, negated=True), lambda v: v != end),
    }


@pytest.mark.slow
@given(
    st.fractions(Fraction(1, 100), 100, max_denominator=100).filter(bool),
    st.sampled_from([0.5, 2.0, 9.0]),
    st.integers(-5, 5),
    st.fractions(-3, 3, max_denominator=3).filter(bool),
    st.integers(-5, 5),
    st.integers(-6, 6),
    st.sampled_from([0, 0, Fraction(1, 5)]),
)
def test_claims_have_the_law_s_probability(grid, scale, answer, factor, shift, steps, beside):
    """
    Of one row, or a multiple of it plus a constant, each claim has the probability that its atoms
    have, the end's own atom in or out; and P(>) + P(=) + P(<) = 1.
    """
    query = LinearQuery.of(SPACE, grid, {1: Term.of(1, ())})
    history = History(SPACE, 1000)
    history.append(Family(query), scale, [answer])
    family = Family(query * factor)
    number = Number("x", family, Fraction(shift), "sum", None, None)
    (estimator, *_) = history.estimators(family.query)
    end = shift + family.grid * (steps + beside)
    found = {}
    for sign, (claim, holds) in claims(end).items():
        values = ((factor * grid * (answer - k) + shift, p) for k, p in law(scale).items())
        truth = math.fsum(p for value, p in values if holds(value))
        found[sign] = probability(estimator, history.exact(estimator), number, claim)
        assert truth - 1e-8 < found[sign] < truth + 1e-12
    assert found[">"] + found["="] + found["<"] == pytest.approx(1, abs=1e-8)


@pytest.mark.slow
@settings(max_examples=30)
@given(st.integers(-3, 3), st.integers(2, 6), st.fractions(-2, 2, max_denominator=2))
def test_claims_about_means_leave_the_end_out_or_not(over, under, end):
    """
    P(AVG > t) and P(AVG >= t) are below what the two laws give, by no more than the chance that
    nobody is there; and differ by the atoms at t.
    """
    sums = LinearQuery.of(SPACE, Fraction(1, 2), {1: Term.of(1, ())})
    counts = LinearQuery.of(SPACE, Fraction(1), {COUNT: Term.of(1, ())})
    history, scale, small = History(SPACE, 1000), 1.5, 0.12
    history.append(Family(sums), scale, [over])
    history.append(Family(counts), small, [under])
    number = Number(
        "AVG", Family(sums), Fraction(0), "avg", None, None, denominator=Family(counts),
        bounds=(Fraction(-50), Fraction(50)),
    )  # fmt: skip
    goal = AverageGoal(number, Fraction(1), 0.05, 0.01, 0.01, (-50.0, 50.0))
    (estimators,) = goal.estimators(history, [])
    for sign, (claim, holds) in claims(end).items():
        if sign in ("=", "<>"):
            continue
        truth = math.fsum(
            p * q
            for (k, p), (m, q) in product(law(scale).items(), law(small).items())
            if q > 1e-15
            and p > 1e-12
            and under - m > 0
            and holds(Fraction(over - k, 2) / (under - m))
        )
        found = goal.probability(history, 0, estimators, claim)
        assert found is not None
        assert truth - 1e-5 < found < truth + 1e-9


def test_the_atom_at_an_end_counts_once():
    """
    Where the noise is nearly nothing and the estimate is 36, θ > 36 and θ < 36 are both unlikely.
    """
    query = LinearQuery.of(SPACE, Fraction(1), {1: Term.of(1, ())})
    history = History(SPACE, 1000)
    history.append(Family(query), 0.2, [36])
    number = Number("SUM(w)", Family(query), Fraction(0), "sum", None, None)
    (estimator, *_) = history.estimators(query)
    found = {
        sign: probability(estimator, history.exact(estimator), number, claim)
        for sign, (claim, _) in claims(Fraction(36)).items()
    }
    assert found["="] > 0.98 > 0.01 > found[">"] == found["<"]
    assert found[">="] == found["<="] > 0.99
