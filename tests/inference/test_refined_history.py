"""A history that was refined, planned upon and taken back is the one that its last blocks make."""

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import proxy.inference.history as history_module
import proxy.inference.remembered as remembered
from proxy.inference.dense_system import key_of
from proxy.inference.family import Family
from proxy.inference.history import History
from proxy.inference.query import LinearQuery, Term
from tests.inference.test_family import families
from tests.inference.test_query import SPACE, queries
from tests.searches import share

RECORDS = 1000
SCALES = st.floats(0.3, 30)
SOME = families().filter(lambda family: not family.query.zero)
ACTIONS = st.sampled_from(
    ("append", "append", "extend", "refine", "refine", "replace", "answers", "look", "back", "mark")
)


@dataclass
class Twin:
    """A history that has lived, and what its blocks are."""

    history: History = field(default_factory=lambda: History(SPACE, RECORDS))
    marks: list = field(default_factory=list)

    def blocks(self):
        answers = self.history.answers
        return [
            (b.family, b.scale, answers[b.start : b.start + b.family.rows])
            for b in self.history.blocks
        ]

    def fresh(self):
        """A history of the same blocks, which has not lived."""
        made = History(SPACE, RECORDS)
        for family, scale, answers in self.blocks():
            made.append(family, scale, answers)
        return made


def seen(estimators, history):
    """What estimators are, in an order that floats do not change."""
    told = [
        (
            round(float(np.log(e.variance)), 6) if e.variance else None,
            e.rows.tolist(),
            e.rates.tolist(),
            (e.coefficients * float(e.unit)).tolist(),
            history.estimate(e),
        )
        for e in estimators
    ]
    return sorted(told, key=lambda each: (each[0] or 0.0, each[1]))


def agree(one, two, query):
    """Whether two histories know the same of a query: what is best, and of each block alone."""
    for deep in (False, True):
        left, right = ([e for e in h.estimators(query, deep=deep)] for h in (one, two))
        assert bool(left) == bool(right)
        if not left:
            continue
        best = [min(each, key=lambda e: e.variance) for each in (left, right)]
        assert best[0].variance == pytest.approx(best[1].variance, rel=1e-6)
        if best[0].variance:
            theta = [h.estimate(e) for h, e in zip((one, two), best, strict=True)]
            deviation = best[0].variance ** 0.5
            assert theta[0] == pytest.approx(theta[1], abs=1e-3 * deviation, rel=1e-6)
        for history, estimators in ((one, left), (two, right)):
            for e in estimators:
                rates = [1 / block_of(history, row).scale for row in e.rows.tolist()]
                assert e.rates.tolist() == rates
    alone = [seen(h.singles.estimators(query), h) for h in (one, two)]
    assert alone[0] == alone[1]


def block_of(history, row):
    return next(b for b in history.blocks if row in b.rows)


def live(twin, data):
    """Let something happen to a history."""
    history, action = twin.history, data.draw(ACTIONS)
    blocks = history.blocks
    if action == "append":
        family, scale = data.draw(SOME), data.draw(SCALES)
        if blocks and data.draw(st.booleans()):
            family = data.draw(st.sampled_from(blocks)).family
            if data.draw(st.booleans()):
                family = Family(-family.query, family.axes, family.labels, family.rows)
        history.append(family, scale, None if twin.marks else drawn(family, data))
    elif action == "extend":
        chosen = data.draw(st.lists(st.tuples(SOME, SCALES), max_size=3))
        history.extend([(f, s, None if twin.marks else drawn(f, data)) for f, s in chosen])
    elif action in ("refine", "replace") and blocks:
        block = data.draw(st.sampled_from(blocks))
        scale = block.scale * data.draw(st.sampled_from((0.999999, 0.9, 0.5, 0.1, 1e-3)))
        if action == "refine" and twin.marks:
            history.refine(block, scale)
        elif action == "replace" and not twin.marks:
            history.replace(block, scale, drawn(block.family, data))
    elif action == "answers" and blocks and not twin.marks:
        block = data.draw(st.sampled_from(blocks))
        history.set_answers(block, drawn(block.family, data))
    elif action == "look":
        query = data.draw(queries())
        for each in history.estimators(query, deep=data.draw(st.booleans())):
            history.good_enough.add(key_of(query), each)
    elif action == "mark":
        twin.marks.append((history.mark, twin.blocks(), firm(history)))
    elif action == "back" and twin.marks:
        mark, before, known = twin.marks.pop()
        history.take_back(mark)
        found = firm(history)
        assert twin.blocks() == before
        assert {each for each in known if each not in found} == set()


def firm(history):
    """What is remembered as good enough."""
    return {
        (key, *e.rows.tolist(), *e.rates.tolist(), *e.coefficients.tolist())
        for key in history.good_enough._found._found
        for e in history.good_enough.get(key)
    }


def drawn(family, data):
    seed = data.draw(st.integers(0, 99))
    return np.random.default_rng(seed).integers(-50, 50, family.rows).tolist()


@pytest.mark.parametrize("dense", [128, 0, 1])
@pytest.mark.parametrize("examples", share(1, [8, 100, 400], 2))
def test_what_a_history_knows_hangs_on_its_blocks_alone(dense, examples):
    """
    Appended one by one and together, refined and taken back, answered and replaced, in whatever
    order: the best estimators, and those of each block alone, are those of a history that has only
    the blocks that are left; what was good enough before a plan is so after it is taken back.  The
    families are solved with the rows (128), or by themselves (1), or all are (0).
    """

    @settings(max_examples=examples)
    @given(st.data())
    def check(data):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(history_module, "DENSE_FAMILY", dense)
            patched.setattr(remembered, "GOOD_ENOUGH", 99)  # so that nothing gives way
            twin = Twin()
            for _ in range(data.draw(st.integers(2, 12))):
                live(twin, data)
            while twin.marks and data.draw(st.booleans()):
                twin.history.take_back(twin.marks.pop()[0])
            fresh = twin.fresh()
            wanted = [data.draw(queries())]
            for block in twin.history.blocks:
                wanted += [block.family.row(data.draw(st.integers(0, block.family.rows - 1)))]
            if len(wanted) > 2:
                wanted.append(wanted[1] + wanted[2] * 2)
            for query in wanted:
                if not query.zero:
                    agree(twin.history, fresh, query)

    check()


@pytest.mark.parametrize("dense", [128, 0, 1])
@pytest.mark.parametrize("scale", [2.5e-2, 2.5e-3, 2.5e-6, 1e-12])
def test_noise_that_is_all_but_none_is_no_trouble(monkeypatch, dense, scale):
    """Beside noise as usual, and with a row that is empty: no warning, and no interval of worth."""
    monkeypatch.setattr(history_module, "DENSE_FAMILY", dense)
    query = LinearQuery(SPACE, Fraction(1), {2: Term(1, ())})
    labels = np.array([[0] * 4, [0] * 4, [0, 0, 0, -1]], dtype=np.int32)
    history = History(SPACE, RECORDS)
    for each, noise in ((query, scale), (-query, 1.0), (query, scale / 1000)):
        history.append(Family(each, (0, 2), labels, 2), noise, [0, 0])
        row = history.blocks[0].family.row(0)
        for wanted in (row, row * -3):
            for deep in (False, True):
                best = min(e.variance for e in history.estimators(wanted, deep=deep))
                assert 0 <= best < 1e-15
