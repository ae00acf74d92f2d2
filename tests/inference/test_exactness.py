"""What is a whole or rational combination of noisy answers is estimated without any rounding."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.inference.estimator import denominator, whole_multiples
from proxy.inference.family import Family
from proxy.inference.history import History
from proxy.inference.query import Factor, LinearQuery, Term
from proxy.inference.space import Box, Space

SPACE = Space((3, 2), (Box(-100, 100),))
grids = st.fractions(Fraction(1, 1000), 1000, max_denominator=1000).filter(bool)
vectors = st.lists(st.integers(-5, 5), min_size=3, max_size=3)
answers = st.integers(-(10**12), 10**12)
factors = st.fractions(-9, 9, max_denominator=9)


def total(grid):
    """The sum of the measure."""
    return LinearQuery.of(SPACE, grid, {1: Term.of(1, ())})


def weighted(grid, vector):
    """A sum over the first axis."""
    array = np.array(vector, dtype=np.int64)
    return LinearQuery.of(SPACE, grid, {0: Term.of(1, (Factor((0,), array),))})


@pytest.mark.slow
@given(grids, answers, factors.filter(bool), st.floats(0.01, 1e6))
def test_a_row_that_is_the_query_is_used_as_it_stands(grid, answer, factor, scale):
    """
    Of one measurement every multiple, negative ones too, is exact, whatever its grid.
    """
    history = History(SPACE, 1000)
    history.append(Family(total(grid)), scale, [answer])
    found = history.estimators(total(grid) * factor)
    assert found
    for estimator in found:
        assert history.exact(estimator) == factor * grid * answer
        assert history.estimate(estimator) == float(factor * grid * answer)
        assert estimator.slack == 0


@pytest.mark.slow
@given(grids, grids, vectors.filter(any), st.tuples(answers, answers), factors, factors)
def test_rational_combinations_of_rows_are_exact(one, two, vector, values, a, b):
    """
    So are sums, differences and means of rows that have nothing else in common.
    """
    history = History(SPACE, 1000)
    rows = [total(one), weighted(two, vector)]
    for query, answer in zip(rows, values, strict=True):
        history.append(Family(query), 2.0, [answer])
    wanted = rows[0] * a + rows[1] * b
    truth = a * values[0] * one
    truth += b * values[1] * Family(rows[1]).grid  # in which the answer is
    for estimator in history.estimators(wanted):
        assert history.exact(estimator) == (0 if wanted.zero else truth)
    assert history.estimators(wanted)


@given(st.lists(grids, min_size=1, max_size=5))
def test_fractions_are_whole_multiples_of_a_step(ratios):
    """
    The step times the multiples gives the fractions again, unless they say that it does not.
    """
    step, multiples, exact = whole_multiples(ratios)
    if exact:
        assert [step * Fraction(m) for m in multiples.tolist()] == ratios
    else:
        assert step == 1


def test_what_is_no_small_fraction_is_left_as_it_is():
    """
    Only floats that are all but a fraction of a small denominator stand for one.
    """
    assert denominator(np.array([0.5, -1 / 3, 2.0, 1e-14])) == 6
    assert denominator(np.array([0.5, 2**0.5])) is None
