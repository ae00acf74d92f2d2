"""What each cell has paid is Theorem 5.4, exactly, and its maximum is never understated."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import proxy.inference.accounting as accounting
from proxy.inference.accounting import UNIT, Account, BudgetRule, budget_units, charge, maximum
from proxy.inference.family import Family
from proxy.inference.query import Factor, LinearQuery, Term
from proxy.inference.space import Space
from tests.inference.test_blue import ALPHA, H
from tests.inference.test_family import families
from tests.inference.test_query import SPACE, factors

ALL = (0, 1, 2)
terms = st.builds(
    lambda scale, parts: Term.of(scale, [Factor(f.axes, abs(f.array)) for f in parts]) or Term(0),
    st.integers(0, 5),
    st.lists(factors(), max_size=3),
)


def total(parts):
    return sum((t.dense(ALL, SPACE) for t in parts), np.zeros(SPACE.sizes, dtype=np.int64))


def test_the_papers_example():
    """
    B = [0.1 0.275 0.25 0.375] and the system cost is 0.375, each at most 8 roundings high.
    """
    space = Space((4,))
    account = Account(space)
    for row, alpha in zip(H, ALPHA, strict=True):
        query = LinearQuery.count(space, Factor((0,), row))
        scale = 1 / (alpha / abs(row).max() * float(query.grid))
        account.add([charge(Family(query), scale)])
    paid = [account.spent([Factor((0,), cell)]).value for cell in np.eye(4, dtype=np.int64)]
    assert np.array(paid) / UNIT == pytest.approx([0.1, 0.275, 0.25, 0.375], abs=1e-11)
    assert account.spent().value == max(paid)


def test_charges_round_up_and_budgets_down():
    """
    One third costs more than a third, and a budget of one third is less.
    """
    query = LinearQuery.count(SPACE)
    assert charge(Family(query), 3.0).scale == UNIT // 3 + 1
    assert budget_units(Fraction(1, 3)) == UNIT // 3


def test_disjoint_queries_do_not_add_up():
    """
    Each of two disjoint queries may spend the whole budget; their union then nothing.
    """
    account, rule = Account(SPACE), BudgetRule(UNIT)
    for side in ([1, 0], [0, 1]):
        query = LinearQuery.count(SPACE, Factor((1,), np.array(side)))
        assert account.check([charge(Family(query), 1.0)], [rule]) is None
        account.add([charge(Family(query), 1.0)])
    overspend = account.check([charge(Family(LinearQuery.count(SPACE)), 1000.0)], [rule])
    assert overspend is not None
    assert (overspend.left, overspend.spent) == (0, UNIT)


@given(families(), st.floats(0.1, 1e3))
def test_a_charge_is_the_loss_rounded_up(family, scale):
    """
    In every cell ⌈2⁴⁰ c_j / s⌉ with s taken exactly.
    """
    bound = family.bound.dense(ALL, SPACE)
    expected = [-((-UNIT * int(v)) // Fraction(scale)) for v in bound.flat]
    assert charge(family, scale).dense(ALL, SPACE).reshape(-1).tolist() == expected


@given(st.lists(terms, max_size=6), st.lists(factors(), max_size=2))
def test_elimination_is_brute_force(parts, region):
    """
    The maximum over a region equals that over the listed cells.
    """
    region = [Factor(f.axes, (f.array > 0).astype(np.int64)) for f in region]
    mask = np.ones(SPACE.sizes, dtype=bool)
    for factor in region:
        mask &= factor.over(ALL) > 0
    found = maximum(parts, SPACE, region)
    assert found.exact
    assert found.value == total(parts)[mask].max(initial=0)


@given(st.lists(terms, max_size=6), st.integers(1, 12))
def test_a_forced_bound_is_never_below(parts, cells):
    """
    With tables too small, the result is an upper bound, and says so where it differs.
    """
    found = maximum(parts, SPACE, (), cells)
    truth = total(parts).max(initial=0)
    assert found.value >= truth
    assert not found.exact or found.value == truth


@given(st.lists(terms, max_size=6), terms, st.lists(factors(), max_size=2), st.integers(1, 24))
def test_an_account_is_the_sum_of_its_terms(parts, more, region, cells):
    """
    As one table, or as terms where the table would be too large, with and without new charges.
    """
    region = [Factor(f.axes, (f.array > 0).astype(np.int64)) for f in region]
    account, small = Account(SPACE, base=3), Account(SPACE, base=3, cells=cells)
    account.add(parts)
    small.add(parts)
    expected = maximum([*parts, more], SPACE, region).value + 3
    assert account.spent(region, [more]).value == expected
    assert small.spent(region, [more]).value >= expected


@given(st.lists(terms, max_size=6), st.integers(0, 2), st.sampled_from([1, 24]))
def test_the_most_by_a_code_is_that_of_its_cells(parts, axis, cells):
    """
    Of one table, and no less where there is none.
    """
    account = Account(SPACE, 7, cells)
    account.add(parts)
    others = tuple(each for each in range(3) if each != axis)
    expected = 7 + total(parts).max(axis=others)
    found = account.most_by(axis)
    assert (found >= expected).all()
    assert cells == 1 or (found == expected).all()


@given(
    st.lists(terms, max_size=6),
    st.sampled_from([(0, 1), (2, 0), (1,), ()]),
    st.lists(factors(), max_size=2),
    st.lists(factors(), max_size=1),
    st.sampled_from([1, 4, 24]),
)
def test_the_most_by_codes_of_some_axes_is_that_of_the_cells_inside(
    parts, axes, region, apart, cells
):
    """
    Exactly where tables fit, else no less; codes that a factor tells apart stay apart.
    """
    region, apart = (
        [Factor(f.axes, (f.array > 0).astype(np.int64)) for f in each] for each in (region, apart)
    )
    account = Account(SPACE, 7, cells)
    account.add(parts)
    inside = np.where(total([Term(1, (f,)) for f in region]) == len(region), total(parts) + 7, -1)
    others = tuple(each for each in range(3) if each not in axes)
    expected = np.transpose(inside.max(axis=others), np.argsort(np.argsort(axes)))
    most = account.most(axes, region, apart)
    found = most.table[np.ix_(*most.classes)] if axes else most.table
    assert (np.where(expected < 0, expected, found) >= expected).all()
    if most.exact:
        assert (np.where(found < 0, -1, found) == expected).all()
        for factor in apart:
            for axis, classes in zip(axes, most.classes, strict=True):
                if axis in factor.axes:
                    codes = np.moveaxis(factor.array, factor.axes.index(axis), 0)
                    assert all(
                        (codes[a] == codes[b]).all()
                        for a, b in np.argwhere(classes[:, None] == classes)
                    )
    assert most.exact or cells < 24


@pytest.mark.parametrize("largest", [1, 2**39, 2**41, 2**47])
def test_charges_of_one_form_are_added_up_together(monkeypatch, largest):
    """
    4,097 charges over the same axes, a few at a time: in each cell their sum, exactly, whether or
    not floats could lose it; odd ones among them that are the last bit.
    """
    monkeypatch.setattr(accounting, "TABLE", 24 * 4096)
    rng = np.random.default_rng(2)
    charges = [
        Term(
            int(rng.integers(1, largest + 1)),
            (Factor((0, 2), rng.integers(0, 2, (3, 4))), Factor((1,), np.array([i % 2, 1]))),
        )
        for i in range(4097)
    ]
    account = Account(SPACE)
    account.add(charges)
    assert (account._table == total(charges)).all()
    assert account._most == sum(term.largest for term in charges)


def test_thousands_of_large_charges_do_not_wrap_round():
    """
    3,000 charges of 2**52 over the same cells pass 2**63: the sum stays past every budget.
    """
    large = [Term(2**52, (Factor((0,), np.array([1, 0, 1])),))] * 3000
    assert maximum(large, SPACE).value >= 2**60
    account = Account(SPACE)
    assert account.check(large, [BudgetRule(2**55)]) is not None
    account.add(large)
    assert account.spent().value >= 2**60


@pytest.mark.slow
@given(st.data())
def test_elimination_over_three_to_six_attributes(data):
    """
    Random histories of products over random axes, over 3 to 6 attributes: elimination equals
    brute force over all cells, exactly where it says so, and is never below it with tiny tables.
    """
    sizes = tuple(data.draw(st.lists(st.integers(2, 3), min_size=3, max_size=6)))
    space, axes = Space(sizes), tuple(range(len(sizes)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    history = []
    for _ in range(data.draw(st.integers(1, 8))):
        chosen = rng.choice(len(sizes), rng.integers(1, 4), replace=False)
        parts = [Factor((int(a),), rng.integers(0, 3, sizes[a])) for a in chosen]
        history.append(Term.of(int(rng.integers(1, 5)), parts) or Term(0))
    dense = sum((t.dense(axes, space) for t in history), np.zeros(sizes, dtype=np.int64))
    for cells in (2**22, 16, 4):
        found = maximum(history, space, (), cells)
        assert found.value >= dense.max()
        assert not found.exact or found.value == dense.max()
    assert maximum(history, space).exact
