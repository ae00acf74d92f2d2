"""The search for the least argument that is enough, and the noise of a row that tops up."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.inference import plan
from proxy.inference.estimator import Estimator
from proxy.inference.family import Family
from proxy.inference.least import BEHIND, least_argument
from proxy.inference.plan import AccuracyTarget
from proxy.inference.query import LinearQuery
from proxy.inference.space import Space

STEPS = 14  # of a search by halves to the tolerance


@given(
    st.floats(0.001, 0.999),
    st.floats(0.05, 8),
    st.sampled_from([0.01, 0.05, 0.2]),
    st.sampled_from([1.0, 1.2, 3.0, math.inf]),
    st.floats(1e-3, 1e3),
)
def test_it_is_the_least_that_is_enough(threshold, power, delta, far, most):
    """
    Whatever the curve of what is left out, and however badly it is known far away.  Known well, it
    is found in half the looks of a search by halves; otherwise in hardly more than that needs.
    """
    looks = []

    def look(argument):
        left_out = delta * math.exp(power * (threshold - (argument / most) ** 2))
        enough = left_out <= delta
        looks.append(argument)
        return enough, left_out if enough else min(left_out, far * delta)

    found = least_argument(look, most, 2**STEPS, delta)
    assert look(found)[0]
    place = round(found / most * 2**STEPS)
    assert found == most * place / 2**STEPS
    assert place == 1 or not look(most * (place - 1) / 2**STEPS)[0]
    assert len(looks) <= STEPS + BEHIND + 4
    if far == math.inf:
        assert len(looks) <= STEPS / 2 + 3


@given(st.integers(0, 2**32 - 1))
def test_a_search_that_is_told_nonsense_ends_too(seed):
    """
    What is left out is random; only whether it is enough holds.
    """
    rng = np.random.default_rng(seed)
    threshold, looks = rng.random(), []

    def look(argument):
        looks.append(argument)
        return argument >= threshold, float(rng.choice([0.0, 1e-300, rng.random(), 1.0]))

    found = least_argument(look, 1.0, 2**STEPS, 0.05)
    assert threshold <= found <= threshold + 2.0**-STEPS * (1 + 1e-9)
    assert len(looks) <= STEPS + BEHIND + 2


@pytest.mark.parametrize("delta", [0.01, 0.05, 0.3])
@pytest.mark.parametrize("rows, ratio", [(1, 1.3), (2, 2.0), (5, 1.1), (40, 1.5)])
def test_a_row_tops_up_with_the_least_that_is_enough(rows, ratio, delta):
    """
    What a search by halves finds, of 2¹⁴ steps up to what the row alone would need.
    """
    query = LinearQuery.count(Space((8,)))
    rates = np.linspace(0.2, 0.4, rows) / math.sqrt(rows)
    known = Estimator(Fraction(1), np.arange(rows), np.full(rows, 1 / rows), rates)
    within = Fraction(plan.half_width(known, delta) / ratio)
    target = AccuracyTarget(Family(query), within, delta)
    alone = plan.least_rate(within, delta, Fraction(1))
    found = plan._top_up_rate([known], Fraction(1), target, alone)

    def enough(rate):
        law = plan.topped_up(known, plan.law(known), rate, Fraction(1))
        return law.meets(float(within), 1 - delta)

    low, high = 0.0, alone
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    assert enough(found)
    assert found == pytest.approx(high, rel=1e-12)
    assert found < alone
