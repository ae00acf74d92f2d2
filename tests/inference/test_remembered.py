"""What is remembered of queries: within its bounds, and nothing is forgotten by a mere look."""

import gc
import math
import weakref
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import proxy.inference.plan as planning
import proxy.inference.remembered as remembered
from proxy.inference.dense_system import key_of
from proxy.inference.estimator import Estimator, Rates
from proxy.inference.family import Family
from proxy.inference.history import History
from proxy.inference.plan import AccuracyTarget, Allocation
from proxy.inference.query import LinearQuery
from proxy.inference.remembered import Remembered
from proxy.inference.space import Space

SPACE = Space((2, 3), ())


def grouped(*axes):
    """COUNT(*) by some columns."""
    sizes = tuple(SPACE.sizes[axis] for axis in axes)
    labels = np.arange(math.prod(sizes), dtype=np.int32).reshape(sizes)
    return Family(LinearQuery.count(SPACE), axes, labels, labels.size)


TARGETS = [
    AccuracyTarget(grouped(*axes), Fraction(half), 0.05)
    for axes in ((), (0,), (1,), (0, 1))
    for half in (5, 7, 10, 14, 20, 28, 40)
]
statements = st.lists(
    st.lists(st.sampled_from(TARGETS), min_size=1, max_size=2), min_size=2, max_size=6
)


def known(history, rows):
    """What is known of queries, without what is rebuilt anyway."""
    history._forget()
    return [
        {(e.unit, *e.rows, *e.coefficients, e.slack) for e in history.estimators(row)}
        for row in rows
    ]


@settings(max_examples=60)
@given(statements)
def test_a_plan_that_is_taken_back_leaves_no_trace(asked):
    """
    After statements that were paid for, an EXPLAIN, or a refusal, of others.
    """
    *measured, planned = asked
    history = History(SPACE, 1000)
    for each in measured:
        kept = len(history.blocks)
        planning.plan(history, each, Allocation())
        for block in history.blocks[kept:]:
            history.set_answers(block, [0] * block.family.rows)
    families = [target.family for each in asked for target in each]
    rows = [family.row(i) for family in families for i in range(family.rows)]
    before, kept = known(history, rows), len(history.blocks)
    planning.plan(history, planned, Allocation())
    history.truncate(kept)
    assert known(history, rows) == before


@settings(max_examples=60)
@given(statements)
def test_rows_that_are_known_to_be_good_enough_are_not_looked_at_again(asked):
    """
    What is measured is what it would be if they were; and where nothing is, their estimators are
    the best that there are now, not those that are remembered.
    """
    history = History(SPACE, 1000)
    for targets in asked:
        kept = len(history.blocks)
        for target in targets:
            looked = planning.estimators(history, target)
            plan = planning.plan(history, [target], Allocation())
            missing = [i for i, each in enumerate(looked) if each is None]
            measured = sum(each.block.family.rows for each in plan.measurements)
            assert measured == len(missing)
            if missing:
                assert not plan.estimators
                continue
            (found,) = plan.estimators
            assert all(one.same(other) for one, other in zip(looked, found, strict=True))
        for block in history.blocks[kept:]:
            history.set_answers(block, [0] * block.family.rows)


def test_of_a_row_more_only_that_row_is_looked_at(monkeypatch):
    """
    As a chart asks that moves on by a day: the days before are known.
    """
    history = History(SPACE, 1000)
    whole = AccuracyTarget(grouped(0, 1), Fraction(40), 0.05)
    before = AccuracyTarget(whole.family.subset(range(5)), whole.half_width, whole.delta)
    planning.plan(history, [before], Allocation())
    history.set_answers(history.blocks[0], [0] * 5)
    assert None not in planning.estimators(history, before)
    asked, find = [], history.estimators

    def estimators(query, *more, **named):
        asked.append(key_of(query))
        return find(query, *more, **named)

    monkeypatch.setattr(history, "estimators", estimators)
    plan = planning.plan(history, [whole], Allocation())
    assert [each.block.family.rows for each in plan.measurements] == [1]
    assert set(asked) == {key_of(whole.family.row(5))}


actions = st.lists(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 6)), min_size=1, max_size=4)
    | st.integers(1, 6),
    max_size=12,
)


@given(actions)
def test_the_bounds_are_those_of_what_is_there(actions):
    """
    Finds of so many rows, each put once or several at a time, again, and revised.
    """
    remembered_here = Remembered(lambda found: found)
    for action in actions:
        if isinstance(action, int):
            remembered_here.revise(lambda found, most=action: min(found, most))
        else:
            remembered_here.update({(bytes([key]), Fraction(1)): rows for key, rows in action})
        there = remembered_here._found
        assert remembered_here._rows == sum(there.values())


def test_what_is_too_much_is_forgotten_but_for_the_newest(monkeypatch):
    """
    By number, and by rows; never a part of what was found together.
    """
    for bound in ("MAX_QUERIES", "MAX_ROWS"):
        with monkeypatch.context() as patch:
            patch.setattr(remembered, bound, 5)
            here = Remembered(lambda found: found)
            keys = [(bytes([i]), Fraction(1)) for i in range(20)]
            for key in keys[:5]:
                here.put(key, 1)
            assert all(key in here for key in keys[:5])
            here.put(keys[0], 1)  # again: it counts once
            assert all(key in here for key in keys[:5])
            here.update(dict.fromkeys(keys[5:], 1))
            assert not any(key in here for key in keys[:5])
            assert all(key in here for key in keys[5:])
            here.put(keys[0], 1)
            assert sum(key in here for key in keys) == 1


def test_few_laws_of_many_terms_are_kept():
    """
    What was evaluated of them goes with them.
    """
    laws = []
    for number in range(70):
        rates = np.full(planning.SHORT + 1, 0.5 + number / 100)
        own = Estimator(Fraction(1), np.arange(len(rates)), np.ones(len(rates)), rates)
        planning.meets(own, Fraction(10**4), 0.05)
        planning.half_width(own, 0.05)
        laws.append(weakref.ref(planning.law(own)))
    gc.collect()
    assert sum(law() is not None for law in laws) == 64


def test_what_was_good_enough_is_known_last_and_with_the_rates_that_there_are(monkeypatch):
    """
    It stands in where what the rows say of themselves is not enough; once they have been refined,
    with less noise, and as before when that is taken back.
    """
    history = History(SPACE, 1000)
    block = history.append(grouped(0, 1), 5.0, [0] * 6)
    query = grouped().query
    (best,) = history.estimators(query, deep=True)
    half = Fraction(planning.half_width(best, 0.1)).limit_denominator(100)
    history.good_enough.add(key_of(query), best)
    monkeypatch.setattr(history, "estimators", lambda *_, **__: [])
    assert planning.best(history, query, half + 1, 0.1).same(best)
    assert planning.best(history, query, half / 2, 0.1) is None
    mark = history.mark
    history.refine(block, 1.0)
    assert planning.best(history, query, half / 2, 0.1).rates.tolist() == [1.0] * 6
    history.take_back(mark)
    assert planning.best(history, query, half / 2, 0.1) is None
    assert planning.best(history, query, half + 1, 0.1).same(best)


steps = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 40), st.floats(1e-6, 1e6)),
    st.tuples(st.just("put"), st.integers(0, 200), st.integers(0, 200), st.floats(1e-6, 1e6)),
    st.tuples(st.just("truncate"), st.integers(0, 200)),
)


@given(st.lists(steps, max_size=30))
def test_rates_are_those_of_a_list(steps):
    """
    Whichever rows come, change and go, each has the rate that it was given last; what is not there
    has none.
    """
    rates, told = Rates(), []
    for what, *arguments in steps:
        if what == "append":
            rows, rate = arguments
            rates.append(rate, rows)
            told += [rate] * rows
        elif what == "put":
            first, last = sorted(min(each, len(told)) for each in arguments[:2])
            rates.put(range(first, last), arguments[2])
            told[first:last] = [arguments[2]] * (last - first)
        else:
            rows = min(arguments[0], len(told))
            rates.truncate(rows)
            del told[rows:]
        assert rates.of(np.arange(len(told))).tolist() == told
        with pytest.raises(IndexError):
            rates.of(np.array([len(told)]))
