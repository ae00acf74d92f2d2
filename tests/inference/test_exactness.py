"""What is a whole or rational combination of noisy answers is estimated without any rounding."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.inference.estimator import Estimator, denominator, whole_multiples
from proxy.inference.family import Family
from proxy.inference.history import History
from proxy.inference.query import Factor, LinearQuery, Term
from proxy.inference.ratio import difference
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


def estimators(rows):
    """Estimators of some rows, some whole, some not."""
    coefficients = st.one_of(st.integers(-50, 50).map(float), st.floats(-50, 50, width=32))
    pairs = st.lists(
        st.tuples(rows, coefficients), min_size=1, max_size=5, unique_by=lambda p: p[0]
    )
    return st.builds(
        lambda unit, pairs: Estimator(
            unit,
            np.array([row for row, _ in pairs], dtype=np.int64),
            np.array([a for _, a in pairs]),
            np.array([1 / (row + 1) for row, _ in pairs]),
        ),
        grids,
        pairs,
    )


@given(estimators(st.integers(0, 6)), estimators(st.integers(0, 6)), factors)
def test_a_difference_of_estimators_has_the_coefficients_of_both(one, two, times):
    """
    Each answer counts for what it says in the one, less what it says in the other: exactly, where
    all of them are whole.
    """
    found = difference(one, two, times)
    wanted, sizes = Counter(), Counter()
    for each, factor in ((one, Fraction(1)), (two, -times)):
        for row, a in zip(each.rows.tolist(), each.coefficients.tolist(), strict=True):
            wanted[row] += factor * each.unit * Fraction(a)
            sizes[row] += abs(factor * each.unit * Fraction(a))
    told = {
        row: found.unit * Fraction(a)
        for row, a in zip(found.rows.tolist(), found.coefficients.tolist(), strict=True)
    }
    assert (found.rates == 1 / (found.rows + 1)).all()
    whole = all((each.coefficients % 1 == 0).all() for each in (one, two))
    for row in wanted.keys() | told.keys():
        error = abs(told.get(row, 0) - wanted[row])
        assert error <= (0 if whole else sizes[row] * Fraction(1, 2**50))
