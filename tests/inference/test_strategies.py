"""Bases are measured in the place of queries: what they cost, and what then follows from them."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.inference import plan as planning
from proxy.inference.accounting import UNIT, Account, charge
from proxy.inference.family import Family
from proxy.inference.history import History
from proxy.inference.plan import AccuracyTarget, Allocation
from proxy.inference.query import Factor, LinearQuery, sum_part
from proxy.inference.space import Box, Space
from proxy.inference.strategies.bases import (
    Base,
    Bases,
    Pieces,
    fanout_of,
    least,
    marginal,
    needed,
    plain,
    tree,
)

SPACE = Space((12, 5), (Box(-3, 7),))
UNITS = (Fraction(1, 2),)
ORDERED = (True, False)
FLAT = Pieces(1000, UNITS, ORDERED)


def count(*factors):
    return LinearQuery.count(SPACE, *(Factor((axis,), np.array(v)) for axis, v in factors))


def target(query, half, delta=0.05):
    return AccuracyTarget(Family(query), Fraction(half), delta)


def asked(history, account, strategy, *targets):
    """Plan, charge and answer with zeros; return the measurements."""
    planned = planning.plan(history, targets, Allocation(strategy=strategy)).measurements
    account.add([charge(each.family, each.scale, each.before) for each in planned])
    for each in planned:
        history.set_answers(each.block, [0] * each.family.rows)
        each.block.refinable = True
    history.refined.clear()
    return planned


@pytest.fixture
def world():
    return History(SPACE, 1000), Account(SPACE), Bases(pieces=FLAT)


def test_the_cells_of_the_scope_are_measured_in_the_place_of_a_query(world):
    """
    One family, a row a cell of the query's axes, at the rate that the query alone needs of it; the
    query then follows from it.
    """
    history, account, strategy = world
    query = count((0, [1] * 4 + [0] * 8))
    (made,) = asked(history, account, strategy, target(query, 20))
    assert made.piece
    assert (made.family.axes, made.family.rows) == ((0,), 12)
    assert account.spent().value == math.ceil(UNIT / made.scale)
    best = planning.best(history, query, Fraction(20), 0.05)
    assert best is not None
    assert len(best.rows) == 4
    wider = planning.best(history, query, Fraction(20 * 0.98), 0.05)
    assert wider is None, "no more is paid than is needed"


def test_a_nearer_request_refines_and_pays_the_difference(world):
    """
    One block whatever is asked of these cells; in the end each cell has paid what the dearest
    request needs, to the last unit, whatever came before.
    """
    history, account, strategy = world
    for half in (40, 30, 20, 25, 10):
        asked(history, account, strategy, target(count((0, [1] * 6 + [0] * 6)), half))
    assert len(history.blocks) == 1
    alone, only = History(SPACE, 1000), Account(SPACE)
    asked(alone, only, strategy, target(count((0, [1] * 6 + [0] * 6)), 10))
    assert account.spent().value == only.spent().value
    assert history.blocks[0].scale == alone.blocks[0].scale


def test_what_is_known_is_not_measured_again(world):
    """
    A query over the same cells that needs no more is inferred; so is each group.
    """
    history, account, strategy = world
    asked(history, account, strategy, target(count((0, [1] * 11 + [0])), 20))
    spent = account.spent().value
    assert not asked(history, account, strategy, target(count((0, [0, 1] * 6)), 20))
    groups = AccuracyTarget(marginal(count(), [0]), Fraction(20), 0.05)
    assert not asked(history, account, strategy, groups)
    assert account.spent().value == spent


def test_what_is_planned_is_taken_back(world):
    """
    Blocks, scales and estimators are as they were, also after a refinement of what was planned in
    the same statement.
    """
    history, account, strategy = world
    query = count((0, [1] * 6 + [0] * 6))
    asked(history, account, strategy, target(query, 40))
    scale, mark = history.blocks[0].scale, history.mark
    before = [each.variance for each in history.estimators(query)]
    two = count((0, [1] * 6 + [0] * 6), (1, [1, 0, 0, 0, 0]))
    targets = [target(query, 20), target(query, 10), target(two, 20), target(two, 10)]
    planned = planning.plan(history, targets, Allocation(strategy=strategy))
    assert [each.before for each in planned.measurements] == [scale, None]
    history.take_back(mark)
    assert (len(history.blocks), history.blocks[0].scale) == (1, scale)
    assert [each.variance for each in history.estimators(query)] == before


def test_a_tree_answers_ranges_at_less_than_its_leaves():
    """
    A long range needs less of a tree over 4,096 leaves than of these alone; and its best estimator
    has the variance that a dense solution gives.
    """
    space = Space((4096,))
    trees, flat = (Pieces(1000, (), (True,), trees=t) for t in (True, False))
    coefficients = np.zeros(4096, dtype=np.int64)
    coefficients[1000:2901] = 1
    query = LinearQuery.count(space, Factor((0,), coefficients))
    empty = History(space, 1000)
    bases = [pieces(Family(query)) for pieces in (trees, flat)]
    proposals = [needed(base, empty, target(query, 100, 0.2)) for base in bases]
    assert proposals[0].alpha < proposals[1].alpha / 3
    rows = np.vstack([np.kron(np.eye(4096 // w), np.ones(w)) for w in (1, 16, 256)])
    best = coefficients @ np.linalg.solve(rows.T @ rows, coefficients)
    scale = proposals[0].scales[0]
    omega = 2 * math.sinh(1 / (2 * scale))
    weighed = bases[0].weighed(proposals[0].estimators[0], proposals[0].scales)
    assert weighed.variance == pytest.approx(2 * best / omega**2, rel=1e-6)


def test_a_fan_out_follows_the_size():
    """
    Sixteen of 4,096 leaves, as the formula of Qardaji, Yang & Li has it; a short axis has no tree.
    """
    assert fanout_of(4096) == 16
    assert FLAT.over([0], Space((12,))) is None
    assert [f.rows for f in tree(LinearQuery.count(Space((100, 3))), [0, 1], 0, 10)] == [300, 30]


def test_sums_and_means_are_made_of_cells_too(world):
    """
    The sum of a measure, and the numerator of a mean (a sum and a count of the same records), are
    spanned by cells of their own kind; what varies differently in its parts by none.
    """
    history, account, strategy = world
    where = Factor((0,), np.array([1] * 6 + [0] * 6))
    total = LinearQuery.of(SPACE, UNITS[0], {sum_part(0): count().parts[0]}).times(where)
    mean = total - count((0, [1] * 6 + [0] * 6)) * 2
    for query in (total, mean):
        (made,) = asked(history, account, strategy, target(query, 50))
        assert made.piece
        assert made.family.rows == 12
        assert planning.best(history, query, Fraction(50), 0.05) is not None
    assert plain(mean + count((1, [1, 0, 0, 0, 0])), UNITS) is None


def test_means_of_other_expressions_have_cells_of_their_own(world):
    """
    Their numerators have the same parts over the same axes, in other proportions.
    """
    history, account, strategy = world
    where = Factor((0,), np.array([1] * 6 + [0] * 6))
    total = LinearQuery.of(SPACE, UNITS[0], {sum_part(0): count().parts[0]}).times(where)
    for mid in (2, 3):
        mean = total - count((0, [1] * 6 + [0] * 6)) * mid
        (made,) = asked(history, account, strategy, target(mean, 50))
        assert made.piece
        assert planning.best(history, mean, Fraction(50), 0.05) is not None


def test_of_several_bases_the_one_that_goes_on_as_expected_is_measured():
    """
    A base whose level is expected to be enough is taken though another would add less.
    """
    small, wide = (Base((marginal(count(), axes),), 1000) for axes in ([0], [0, 1]))
    query = count((0, [1] * 6 + [0] * 6))
    history = History(SPACE, 1000)
    need = {base: needed(base, history, target(query, 20)).alpha for base in (small, wide)}
    assert need[small] < need[wide]
    for level, taken in ((0.0, 12), (need[wide] * 1.01, 60)):
        wide.level = level
        (made,) = asked(History(SPACE, 1000), Account(SPACE), Bases([small, wide]),
                        target(query, 20))  # fmt: skip
        assert made.family.rows == taken


@given(st.floats(1e-6, 1e6), st.floats(1e-3, 1e3))
def test_the_least_factor_is_found(edge, start):
    """
    Nearly the least that is enough, and enough itself.
    """
    found = least(lambda factor: factor >= edge, start)
    assert edge <= found <= edge * 1.001


def test_no_factor_is_enough():
    """
    Then there is none, and it says so.
    """
    assert least(lambda factor: False, 1.0) == math.inf


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 1), min_size=12, max_size=12),
            st.lists(st.integers(0, 1), min_size=5, max_size=5),
            st.integers(5, 60),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_whatever_is_asked_is_good_enough_and_paid_once(requests):
    """
    After each request every row asked for so far has an estimator that is enough; what the dearest
    cell has paid is what the final scales charge.
    """
    history, account, strategy = History(SPACE, 1000), Account(SPACE), Bases(pieces=FLAT)
    known = []
    for one, two, half in requests:
        query = count((0, one), (1, two))
        if query.zero:
            continue
        asked(history, account, strategy, target(query, half))
        known.append((query, half))
        for each, within in known:
            assert planning.best(history, each, Fraction(within), 0.05) is not None
    dense = sum(
        np.broadcast_to(charge(b.family, b.scale).dense((0, 1), SPACE), SPACE.sizes)
        for b in history.blocks
    )
    assert account.spent().value == (dense.max() if history.blocks else 0)


def test_beside_chosen_bases_pieces_cost_no_more_than_the_question():
    """
    The cells of a GROUP BY are the question itself, and are refined when it is asked more exactly;
    a range is measured as it is, where a strategy of pieces would measure its cells.
    """
    history, account = History(SPACE, 1000), Account(SPACE)
    strategy = Bases(pieces=FLAT, most=1.0)
    cells = marginal(count(), [0])
    (first,) = asked(history, account, strategy, AccuracyTarget(cells, Fraction(20), 0.05))
    (again,) = asked(history, account, strategy, AccuracyTarget(cells, Fraction(15), 0.05))
    assert again.block is first.block
    assert again.before == first.scale
    (range_,) = asked(history, account, strategy, target(count((1, [1, 1, 1, 0, 0])), 20))
    assert not range_.piece
