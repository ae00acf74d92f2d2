"""A linear query is exact, in one form, and agrees with its dense vector."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.inference.query import COUNT, Factor, LinearQuery, Term, TooLargeError
from proxy.inference.space import Box, Space

SPACE = Space((3, 2, 4), (Box(-2, 5, True), Box(1, 3)))
AXES = [axes for k in range(4) for axes in itertools.combinations(range(3), k)]


def dense(query):
    """[parts, 3, 2, 4] coefficients as fractions."""
    parts = []
    for part in range(5):
        term = query.parts.get(part)
        parts.append(
            term.dense((0, 1, 2), SPACE).astype(object) * query.grid
            if term
            else np.zeros(SPACE.sizes, dtype=object)
        )
    return np.array(parts)


@st.composite
def factors(draw):
    axes = draw(st.sampled_from(AXES))
    shape = tuple(SPACE.sizes[a] for a in axes)
    size = int(np.prod(shape, dtype=int))
    entries = draw(st.lists(st.integers(-2, 2), min_size=size, max_size=size))
    return Factor(axes, np.array(entries, dtype=np.int64).reshape(shape))


@st.composite
def queries(draw):
    grid = Fraction(draw(st.integers(1, 6)), draw(st.integers(1, 6)))
    parts = {
        part: Term.of(draw(st.integers(-3, 3)), draw(st.lists(factors(), max_size=3)))
        for part in draw(st.sets(st.integers(0, 4), max_size=3))
    }
    return LinearQuery.of(SPACE, grid, parts)


def test_a_conjunction_stays_a_product():
    """
    The conjunction a = 1 AND b <> 0, given as one joint tensor, is two factors over one axis each.
    """
    joint = np.zeros((3, 2), dtype=np.int64)
    joint[1, 1] = 6
    query = LinearQuery.count(SPACE, Factor((0, 1), joint))
    assert query.grid == 6
    assert [f.axes for f in query.parts[COUNT].factors] == [(0,), (1,)]
    assert query.sensitivity == 1


def test_a_wide_cube_costs_nothing():
    """
    The inner product of two counts over 10**30 cells is exact.
    """
    space = Space((10,) * 30)
    one = LinearQuery.count(space, Factor((0,), np.eye(10, dtype=np.int64)[3]))
    assert one.dot(LinearQuery.count(space)) == 10**29
    assert one.dot(one) == 10**29


def test_the_bound_takes_the_worst_record_of_the_box():
    """
    SUM(v) - 4 with v in [-2, 5] or NULL: a record moves it by at most |-2 - 4| = 6.
    """
    query = LinearQuery.of(SPACE, Fraction(1), {1: Term(1), 0: Term(-4)})
    assert query.sensitivity == 6


def test_a_bound_that_is_too_large_is_refused():
    """
    2**30 quanta of up to 2**33 each are past 2**62; of up to 2**32 they are just within it.
    """
    for most in (2**32, 2**33):
        space = Space((3,), (Box(0, most),))
        query = LinearQuery.of(
            space, Fraction(1), {1: Term.of(1, [Factor((0,), np.array([1, 0, 2**30]))])}
        )
        if most == 2**32:
            assert query.sensitivity == 2**62
        else:
            with pytest.raises(TooLargeError):
                query.sensitivity  # noqa: B018


def test_too_many_coefficients_are_refused():
    """
    A factor over 2**25 cells is refused before it is made.
    """
    space = Space((2**13, 2**12))
    one = LinearQuery.count(space, Factor((0,), np.arange(2**13)))
    two = LinearQuery.count(space, Factor((1,), np.arange(2**12)))
    with pytest.raises(TooLargeError):
        one + two


@pytest.mark.slow
@given(queries(), queries())
def test_arithmetic_is_that_of_the_dense_vectors(one, two):
    """
    Sum, difference, multiples and inner product agree with the vectors.
    """
    a, b = dense(one), dense(two)
    assert (dense(one + two) == a + b).all()
    assert (dense(one - two * Fraction(2, 3)) == a - b * Fraction(2, 3)).all()
    assert one.dot(two) * one.grid * two.grid == (a * b).sum()
    assert one.square * one.grid**2 == (a * a).sum()


@given(queries(), queries(), st.integers(-3, 3))
def test_equal_vectors_have_one_form(one, two, times):
    """
    However a query was made, it equals the query with the same vector, and shares the
    direction of its multiples and of nothing else.
    """
    again = (one + two) - two
    assert again == one
    assert hash(again) == hash(one)
    if times and not one.zero:
        assert (one * times).direction == one.direction
    assert (one == two) == bool((dense(one) == dense(two)).all())


@given(queries())
def test_the_bound_is_the_largest_move_of_any_record(query):
    """
    Against enumeration of the corners of the box and NULL, in every cell.
    """
    coefficients = dense(query)
    best = np.zeros(SPACE.sizes, dtype=object)
    for v in (-2, 5, None):
        for w in (1, 3):
            move = coefficients[0] + coefficients[3] * w + coefficients[4]
            if v is not None:
                move = move + coefficients[1] * v + coefficients[2]
            best = np.maximum(best, abs(move))
    bound = query.bound.dense((0, 1, 2), SPACE).astype(object) * query.grid
    assert (bound == best).all()


@given(queries(), factors())
def test_a_filter_multiplies(query, factor):
    """
    ``times`` is the cell by cell product.
    """
    indicator = Factor(factor.axes, (factor.array > 0).astype(np.int64))
    mask = Term(1, (indicator,)).dense((0, 1, 2), SPACE)
    assert (dense(query.times(indicator)) == dense(query) * mask).all()


@given(query=queries(), draw=st.data())
def test_nothing_adds_more_than_the_span(query, draw):
    """
    Whatever records there are, their answer is within so many times the span; of one part, some
    record is at each end.
    """
    cells = list(itertools.product(*map(range, SPACE.sizes)))
    values = [
        st.sampled_from([None, *range(box.low, box.high + 1)] if box.nullable else range(1, 4))
        for box in SPACE.boxes
    ]
    records = draw.draw(st.lists(st.tuples(st.sampled_from(cells), *values), max_size=5))
    total = sum((added(query, *record) for record in records), Fraction(0))
    low, high = (query.grid * end for end in query.span)
    assert low * len(records) <= total <= high * len(records)
    if set(query.parts) <= {COUNT, 1}:
        every = [added(query, cell, v, 1) for cell in cells for v in (-2, 5)]
        if len(query.parts) == 1:
            assert (low, high) == (min(0, *every), max(0, *every))


def added(query, cell, *values):
    """What one record adds to the answer."""
    coefficients = dense(query)[(slice(None), *cell)]
    total = coefficients[COUNT]
    for measure, value in enumerate(values):
        if value is not None:
            total += coefficients[1 + 2 * measure] * value + coefficients[2 + 2 * measure]
    return total
