"""A family's rows, taken together, are what they are one by one."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from proxy.inference.family import Family
from proxy.inference.query import Factor, LinearQuery
from proxy.inference.space import Space
from tests.inference.test_query import SPACE, dense, queries


@st.composite
def families(draw):
    axes = draw(st.sampled_from([(0,), (1,), (0, 2), (1, 2), (0, 1, 2)]))
    shape = [SPACE.sizes[axis] for axis in axes]
    rows = draw(st.integers(1, 4))
    size = int(np.prod(shape))
    labels = draw(st.lists(st.integers(-1, rows - 1), min_size=size, max_size=size))
    return Family(draw(queries()), axes, np.array(labels, dtype=np.int32).reshape(shape), rows)


@st.composite
def combinations(draw):
    """A family by some values of each axis, as GROUP BY makes it, or with a few cells elsewhere."""
    axes = draw(st.sampled_from([(0,), (0, 2), (0, 1, 2)]))
    shape = [SPACE.sizes[axis] for axis in axes]
    kinds = [np.array(draw(st.permutations([i // 2 for i in range(size)]))) for size in shape]
    labels = np.ravel_multi_index(np.ix_(*kinds), shape).astype(np.int32)
    rows = int(labels.max()) + 1
    for place in draw(st.lists(st.integers(0, labels.size - 1), max_size=2)):
        labels.flat[place] = draw(st.integers(-1, rows - 1))
    return Family(draw(queries()), axes, labels, rows)


@given(st.one_of(families(), combinations()))
def test_all_rows_at_once_are_those_one_by_one(family):
    """
    Every coefficient, the grid and the form are the same, whichever cells a row has.
    """
    for at_once, alone in zip(family.queries(), map(family.row, range(family.rows)), strict=True):
        assert (at_once.grid, at_once.parts.keys()) == (alone.grid, alone.parts.keys())
        for part, term in at_once.parts.items():
            assert (term.scale, term.key) == (alone.parts[part].scale, alone.parts[part].key)


@given(families(), queries())
def test_inner_products_by_label_are_those_of_the_rows(family, query):
    """
    ``dots`` is ⟨row, query⟩ of every row.
    """
    expected = [row.dot(query) * row.grid for row in map(family.row, range(family.rows))]
    assert [dot * family.grid for dot in family.dots(query)] == expected


@given(families(), st.data())
def test_a_subset_keeps_its_rows(family, data):
    """
    The rows of a subset are the chosen rows, in that order.
    """
    chosen = data.draw(st.lists(st.integers(0, family.rows - 1), unique=True, min_size=1))
    part = family.subset(chosen)
    assert [part.row(i) for i in range(part.rows)] == [family.row(i) for i in chosen]


@given(families())
def test_the_bound_is_that_of_the_largest_row(family):
    """
    Rows are disjoint: in every cell the bound is the largest of the rows' bounds.
    """
    rows = [family.row(i) for i in range(family.rows)]
    expected = np.max([r.bound.dense((0, 1, 2), SPACE).astype(object) * r.grid for r in rows], 0)
    assert (family.bound.dense((0, 1, 2), SPACE).astype(object) * family.grid == expected).all()
    assert dense(family.query).shape == dense(rows[0]).shape


@given(data=st.data())
def test_what_cannot_be_spanned_is_seen_in_some_cells(data):
    """
    Whatever is a sum of multiples of rows passes; what is passed over is no such sum.
    """
    space = Space((4, 3, 2), ())
    labels = data.draw(hnp.arrays(np.int32, (4, 3), elements=st.integers(-1, 2)))
    labels.flat[:3] = 0, 1, 2
    family = Family(LinearQuery.count(space), (0, 1), labels, 3)
    values = data.draw(hnp.arrays(np.int64, (4, 3), elements=st.integers(0, 2)))
    values.flat[0] = 1
    spanned = all(len(set(values[labels == row])) == 1 for row in range(3))
    spanned = spanned and not values[labels < 0].any()
    query = LinearQuery.count(space, Factor((0, 1), values))
    assert family.may_span(query) == spanned
    row = np.array([data.draw(st.integers(1, 3)) for _ in range(3)] + [0])
    assert family.may_span(LinearQuery.count(space, Factor((0, 1), row[labels].astype(np.int64))))


@given(families().filter(lambda family: not family.query.zero), st.data())
def test_a_sum_of_rows_is_never_passed_over(family, data):
    """
    Whatever multiples of rows add up to may be spanned, whatever factors the rows have.
    """
    times = [data.draw(st.integers(-2, 2)) for _ in range(family.rows)]
    total = LinearQuery(SPACE, Fraction(1), {})
    for index, number in enumerate(times):
        total = total + family.row(index) * number
    assert family.may_span(total)


@pytest.mark.parametrize(
    ("factors", "spanned"),
    [
        ([[1, 0, 0], [0, 1]], True),
        ([[0, 2, 2], [0, 3]], True),  # a multiple
        ([[0, 2, 2], [1, 1]], False),  # it does not vary along an axis along which the rows do
        ([[1, 0, 0], [1, 2]], False),  # it varies along it otherwise
    ],
)
def test_what_lacks_a_factor_of_the_rows_is_passed_over(factors, spanned):
    """
    Rows that are 0 in half of the cells add up to nothing that is not.
    """
    space = Space((3, 2), ())
    half = LinearQuery.count(space, Factor((1,), np.array([0, 1])))
    family = Family(half, (0,), np.array([0, 1, 1], dtype=np.int32), 2)
    made = [Factor((axis,), np.array(values)) for axis, values in enumerate(factors)]
    assert family.may_span(LinearQuery.count(space, *made)) == spanned


@given(families(), st.integers(0, 2), st.data())
def test_rows_apart_from_some_codes_have_no_coefficient_there(family, axis, data):
    """
    All of them, where labels alone put rows there, and of a single query; never one that has any.
    """
    size = SPACE.sizes[axis]
    codes = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    for each in (family, Family(family.query)):
        found = each.apart(axis, codes)
        coefficients = (dense(each.row(i)) for i in range(each.rows))
        expected = [
            i for i, of in enumerate(coefficients) if not np.moveaxis(of, 1 + axis, 0)[codes].any()
        ]
        assert set(found) <= set(expected)
        by_labels = axis in each.axes and not set(each.query.axes) & set(each.axes)
        assert found == expected or not (by_labels or not each.axes)
