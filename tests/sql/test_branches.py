"""UNION ALL of protected rows: what one record adds is what its rows add together."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.inference.query import COUNT, sum_part
from tests.sql.survey import policy, program

AGES = range(40)
CHILDREN = [*range(-2, 6), None]
TESTS = {  # a condition in SQL, and of an age and a number of children
    "age > 20": lambda age, children: age > 20,
    "age % 3 = 1": lambda age, children: age % 3 == 1,
    "children > 0": lambda age, children: children is not None and children > 0,
    "children IS NULL": lambda age, children: children is None,
    "TRUE": lambda age, children: True,
}
COLUMNS = {
    "age": lambda age, children: age,
    "children": lambda age, children: children or 0,
    "age * children": lambda age, children: age * (children or 0),
    "7": lambda age, children: 7,
}


def query(text):
    """The one linear query of a statement."""
    ((number,),) = [release.numbers for release in program(text).releases]
    return number.family.query


def coefficients(found, part=COUNT):
    """What a record of each age and number of children adds."""
    domain = policy().domain
    axes = (domain.axis["age"], domain.axis["children"])
    assert set(found.axes) <= set(axes)
    dense = found.parts[part].dense(axes, found.space) if part in found.parts else 0
    return np.broadcast_to(dense * found.grid, (len(AGES), len(CHILDREN)))


def test_a_record_in_both_parts_counts_twice():
    """
    Records older than 20 add 1, the others that are older than 10 too; those older than 20 in
    both parts add 2, and 2 is the sensitivity.
    """
    found = query(
        "SELECT COUNT(*) FROM (SELECT age FROM survey WHERE age > 10 "
        "UNION ALL SELECT children FROM survey WHERE age > 20) x"
    )
    assert [int(c) for c in coefficients(found)[[0, 10, 11, 20, 21, 39], 0]] == [0, 0, 1, 1, 2, 2]
    assert found.sensitivity * found.grid == 2


def test_disjoint_parts_cost_no_more_than_one():
    """
    A record that can be in one part only adds 1 at most.
    """
    found = query(
        "SELECT COUNT(*) FROM (SELECT age FROM survey WHERE age > 20 "
        "UNION ALL SELECT age FROM survey WHERE age <= 20) x"
    )
    assert found == query("SELECT COUNT(*) FROM survey")
    assert found.sensitivity * found.grid == 1


def test_a_measure_and_an_amount_add_up():
    """
    A record of wage w and age a adds w + a, at most 2000 + 39.
    """
    found = query(
        "SELECT SUM(n) FROM (SELECT wage AS n FROM survey UNION ALL SELECT age FROM survey) x"
    )
    assert (coefficients(found)[:, 0] == [Fraction(a) for a in AGES]).all()
    assert (coefficients(found, sum_part(0)) == Fraction(1, 100)).all()
    assert found.sensitivity * found.grid == 2039


def test_a_record_counts_once_for_each_public_row_that_it_finds():
    """
    Ages 1, 2 and 3 find one, two and no rows, a NULL key none; the amounts of the rows add up.
    """
    rows = "(VALUES (1, 5), (2, -7), (2, 3), (NULL, 9)) AS v(a, n)"
    found = query(f"SELECT COUNT(*) FROM survey s JOIN {rows} ON s.age = v.a")
    assert [int(c) for c in coefficients(found)[:4, 0]] == [0, 1, 2, 0]
    assert found.sensitivity * found.grid == 2
    found = query(f"SELECT SUM(n) FROM survey s LEFT JOIN {rows} ON s.age = v.a")
    assert [int(c) for c in coefficients(found)[:4, 0]] == [0, 5, -4, 0]
    assert found.sensitivity * found.grid == 5
    found = query(f"SELECT COUNT(*) FROM survey s LEFT JOIN {rows} ON s.age = v.a")
    assert [int(c) for c in coefficients(found)[:4, 0]] == [1, 1, 2, 1]


def test_all_rows_of_a_public_table_are_met():
    """
    Without a condition each record counts once for every row.
    """
    found = query("SELECT COUNT(*) FROM places, survey")
    assert found.sensitivity * found.grid == 4
    assert found * Fraction(1, 4) == query("SELECT COUNT(*) FROM survey")


parts = st.lists(
    st.tuples(st.sampled_from(sorted(COLUMNS)), st.sampled_from(sorted(TESTS))),
    min_size=1,
    max_size=4,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(parts, st.sampled_from(["COUNT(*)", "SUM(n)"]), st.sampled_from(["TRUE", "n > 5"]))
def test_coefficients_are_those_of_all_rows_of_a_record(parts, number, where):
    """
    Of every record the coefficient is what its rows add, one by one; the sensitivity is the
    largest.
    """
    rows = " UNION ALL ".join(f"SELECT {n} AS n FROM survey WHERE {w}" for n, w in parts)
    compiled = program(f"SELECT {number} FROM ({rows}) x WHERE {where}")
    found = compiled.releases[0].numbers[0].family.query
    expected = np.array(
        [[_added(parts, number, where, age, c) for c in CHILDREN] for age in AGES], dtype=object
    )
    assert (coefficients(found) == expected).all()
    assert found.sensitivity * found.grid == abs(expected).max()


def _added(parts, number, where, age, children):
    total = 0
    for column, test in parts:
        value = COLUMNS[column](age, children)
        known = children is not None or "children" not in column
        if TESTS[test](age, children) and (where == "TRUE" or (known and value > 5)):
            total += 1 if number == "COUNT(*)" else value
    return total


@pytest.mark.parametrize("count, error", [(64, None), (65, "more than 64 parts")])
def test_parts_have_a_limit(count, error):
    """
    Up to 64 SELECTs are put together.
    """
    rows = " UNION ALL ".join(["SELECT age FROM survey"] * count)
    text = f"SELECT COUNT(*) FROM ({rows}) x"
    if error is None:
        assert query(text).sensitivity * query(text).grid == 64
    else:
        with pytest.raises(Exception, match=error):
            program(text)
