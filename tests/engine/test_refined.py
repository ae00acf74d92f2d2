"""Answers that are refined: by whom and when, what for, and what is left as it was."""

import re
import shutil
import subprocess
import sys
import threading
from contextlib import closing

import numpy as np
import pytest

from proxy.errors import InsufficientBudgetError, QueryCanceledError
from proxy.inference.accounting import charge
from proxy.steward import apply, backup, rebuild, restore
from tests.engine.conftest import begin_anew
from tests.engine.pieces import (
    STRATEGIES,
    Place,
    Witness,
    accountant,
    anew,
    ask,
    paid,
    state,
    widths,
)
from tests.privacy.double import MemoryLedger
from tests.searches import share
from tests.small import Silent

# --- one row, several engines --------------------------------------------------------------------

WIDE, NARROW = (
    f"SELECT town, COUNT(*) FROM people GROUP BY town WITH UTILITY ({half}, 0.1)"
    for half in (12, 4)
)


@pytest.mark.parametrize("count", share(1, [2, 4]))
def test_engines_that_refine_at_once_refine_what_the_others_left(piecemeal, count):
    """
    Each asks for less and less, all at the same time: every refinement is of the noise that was
    drawn last, and of none twice; what the last left is what all of them tell.
    """
    place, witness = piecemeal("pieces"), Witness()
    engines = [place.engine(witness) for _ in range(count)]
    ask(engines[0], WIDE)
    start, faults = threading.Barrier(count), []

    def work(number):
        try:
            for half in range(11 - number, 3, -count):
                start.wait(60)
                text = f"SELECT town, COUNT(*) FROM people GROUP BY town WITH UTILITY ({half}, 0.1)"
                assert max(widths(ask(engines[number], text))) <= 2 * half * (1 + 1e-12)
        except BaseException as fault:
            start.abort()
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    (first,) = witness.drawn
    assert len(witness.refined) >= len(range(11, 3, -count))  # once a round, or more
    last = first
    for old, new in witness.refined:  # one after the other, in the lock of the ledger
        assert old == last
        assert new[0] < old[0]
        last = new
    (row,) = engines[0].ledger.measurements()
    assert row.scale == last[0]
    told = [ask(engine, WIDE) for engine in engines]
    assert [each.rows for each in told] == [told[0].rows] * count
    assert [row.cost for row in told] == [0] * count
    most = charge(row.family, row.scale).scale
    assert engines[0].ledger.spent() == {"shared": most}
    assert [state(accountant(engine)) for engine in engines[1:]] == [
        state(accountant(engines[0]))
    ] * (count - 1)
    for engine in engines:
        assert engine.ledger.verify() == []
        engine.close()


KILLED = """
import os, signal, sys
from proxy.accountant import Accountant
from proxy.engine import Engine
from proxy.inference.noise.mechanism import GeometricSampler
from proxy.ledger.transaction import SQLTransaction
STEPS = [
    (GeometricSampler, "refine", False), (GeometricSampler, "refine", True),
    (SQLTransaction, "replace", True), (SQLTransaction, "audit", True),
    (SQLTransaction, "finish", True), (Accountant, "measured", False),
]
def deadly(real, after):
    def act(*args, **how):
        if after:
            real(*args, **how)
        os.kill(os.getpid(), signal.SIGKILL)
    return act
text, *policies = sys.argv[1:]
for (owner, name, after), policy in zip(STEPS, policies, strict=True):
    if not (child := os.fork()):
        setattr(owner, name, deadly(getattr(owner, name), after))
        Engine.open(policy).session().execute(text)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
"""


@pytest.mark.slow
def test_killed_while_it_refines_it_has_refined_all_or_nothing(piecemeal):
    """
    Before the commit the old answers are there, at their old charge, and are refined as if nothing
    had been drawn; after it the new ones, at theirs.
    """
    place = piecemeal("pieces")
    with closing(place.engine()) as engine:
        ask(engine, WIDE)
        (old,) = engine.ledger.measurements()
    places = []
    for number in range(6):
        shutil.copytree(place.folder, folder := place.folder.with_name(f"killed {number}"))
        places.append(Place(folder, "pieces"))
    subprocess.run(
        [sys.executable, "-c", KILLED, NARROW, *(str(each.policy) for each in places)], check=True
    )
    for number, each in enumerate(places):
        with closing(each.engine(witness := Witness())) as engine:
            (row,) = engine.ledger.measurements()
            assert engine.ledger.verify() == []
            spent = engine.ledger.spent()["shared"]
            assert spent == charge(row.family, row.scale).scale
            committed = number == 5
            assert (row.scale < old.scale) == committed
            assert (row.answers == old.answers) != committed
            result = ask(engine, NARROW)
            assert len(witness.refined) == (not committed)
            assert bool(result.cost) != committed
            (now,) = engine.ledger.measurements()
            assert engine.ledger.spent() == {"shared": charge(now.family, now.scale).scale}


# --- what is not refined -------------------------------------------------------------------------


def only(engine, snapshot):
    return [
        (row.id, row.scale, row.answers)
        for row in engine.ledger.measurements()
        if row.snapshot == snapshot
    ]


def test_a_new_snapshot_refines_nothing_of_the_old(piecemeal):
    """
    Its answers are drawn anew, at their whole price.
    """
    place = piecemeal("pieces")
    with closing(place.engine()) as engine:
        ask(engine, WIDE)
        before = only(engine, 1)
    rebuild(place.policy)
    with closing(place.engine(witness := Witness())) as engine:
        assert ask(engine, NARROW).cost
        assert (len(witness.drawn), len(witness.refined)) == (1, 0)
        assert only(engine, 1) == before
        assert len(only(engine, 2)) == 1
        assert state(accountant(engine))[0][-1][2]


def test_a_backup_refines_nothing_that_was_refined_since(piecemeal):
    """
    A row that was refined after the backup is out of use in it: what was lost is charged, and the
    answers are drawn anew.
    """
    place = piecemeal("pieces")
    with closing(place.engine()) as engine:
        ask(engine, WIDE)
        backup(place.policy, copy := place.folder / "backup")
        before = only(engine, 1)
        ask(engine, NARROW)
        spent = engine.ledger.spent()
    restore(place.policy, copy)
    with closing(place.engine(witness := Witness())) as engine:
        assert only(engine, 1) == before
        assert engine.ledger.spent() == spent
        for text in (WIDE, NARROW):
            ask(engine, text)
        assert only(engine, 1) == before
        assert [old for old, _ in witness.refined] == witness.drawn
        assert engine.ledger.verify() == []


def test_what_was_paid_is_free_under_another_strategy(piecemeal):
    """
    Forth and back: pieces are inferred from by whoever measures no pieces, and are refined again
    later, by the difference; an engine under the old policy is told to connect again, or goes on.
    """
    place = piecemeal("pieces")
    with closing(place.engine()) as engine:
        paid_for = [ask(engine, text).cost for text in (WIDE, NARROW)]
        assert all(paid_for)
    for strategy, half in (("topup", 3), ("hierarchy", 2), ("paper", 1.9), ("pieces", 0.9)):
        place.write(strategy)
        apply(place.policy)
        text = NARROW.replace("(4,", f"({half},")
        with closing(place.engine(witness := Witness())) as engine:
            assert [ask(engine, each).cost for each in (WIDE, NARROW)] == [0, 0]
            cost = ask(engine, text).cost
            assert cost
            assert bool(witness.refined) == (strategy in STRATEGIES)
            assert ask(engine, text).cost == 0
            assert max(widths(ask(engine, text))) <= 2 * half * (1 + 1e-12)
            assert engine.ledger.verify() == []
            dearest = paid(engine.ledger).max()
            assert engine.ledger.spent() == {"shared": dearest}


# --- pieces that do not fit ----------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_where_the_pieces_do_not_fit_the_number_itself_is_measured(piecemeal, strategy):
    """
    Cells that may pay no more stand in the way of pieces, of which they are some, and not of a
    number that is of others; EXPLAIN says so before.
    """
    place = piecemeal(strategy)
    place.policy.write_text(place.policy.read_text().replace("budget: 7", "budget: 0.1"))
    apply(place.policy)
    text = "SELECT COUNT(*) FROM people WHERE age >= 10 WITH UTILITY (1, 0.1)"
    with closing(place.engine()) as engine:
        explained = engine.session().explain(text)
        before = [row.id for row in engine.ledger.measurements()]
        result = ask(engine, text)
        new = [row for row in engine.ledger.measurements() if row.id not in before]
        assert [row.family.rows for row in new] == [1]
        assert explained.rows[0][3] == result.cost > 0
        assert max(widths(result)) <= 2 * (1 + 1e-12)


LIMITED = "SELECT town, COUNT(*) FROM people GROUP BY town WITH UTILITY (HALF, 0.1)"


@pytest.mark.parametrize(
    ("user", "more"), [("bi", ""), ("", "per: {day: 0.3}"), ("cap", ""), ("", "")]
)
def test_a_refinement_that_may_not_be_paid_changes_nothing(piecemeal, user, more):
    """
    ``spend: off``, the day's limit, an analyst's, and that of the statement: the wide answer is
    there as it was, also for who asks again, and a refinement that fits is made.
    """
    place = piecemeal("pieces", 30, more)
    with closing(place.engine(witness := Witness())) as engine:
        wide = ask(engine, WIDE)
        mine = accountant(engine, user)
        held, head = state(mine), engine.ledger.sequence()
        session = engine.session({"cap": "ann"}.get(user, user))
        half, limit = {"cap": (0.05, ""), "": (1, "" if more else ", MAX COST 0.001")}.get(
            user, (4, "")
        )
        text = LIMITED.replace("HALF, 0.1)", f"{half}, 0.1){limit}")
        if limit:  # the statement is as exact as the limit allows: as it was
            assert session.execute(text).cost <= 0.001
            return
        assert any("refused" in notice for notice in session.explain(text).notices)
        with pytest.raises(InsufficientBudgetError):
            session.execute(text)
        assert (state(accountant(engine, user)), engine.ledger.sequence()) == (held, head)
        assert witness.refined == []
        assert session.execute(WIDE).rows == wide.rows
        if user != "bi":
            assert session.execute(LIMITED.replace("HALF", "11.5")).cost
            assert len(witness.refined) == 1
            assert np.array_equal(state(mine)[-1], paid(engine.ledger))


def test_a_statement_that_is_cancelled_before_it_draws_changes_nothing(piecemeal, monkeypatch):
    """
    At every look whether it is: the plan of a refinement is taken back.
    """
    place = piecemeal("pieces")
    with closing(place.engine(witness := Witness())) as engine:
        ask(engine, WIDE)
        session, mine = engine.session(), accountant(engine)
        held, head = state(mine), engine.ledger.sequence()
        real = type(session).check_canceled
        for look in range(1, 200):
            looks = []

            def check(self, last=look, looks=looks):
                looks.append(1)
                if len(looks) == last:
                    self.cancel()
                real(self)

            monkeypatch.setattr(type(session), "check_canceled", check)
            try:
                session.execute(NARROW)
                break
            except QueryCanceledError:
                if not witness.refined:
                    assert (state(mine), engine.ledger.sequence()) == (held, head)
        assert look > 5
        assert len(witness.refined) == 1
        assert np.array_equal(state(accountant(engine))[-1], paid(engine.ledger))


def test_histories_of_their_own_share_no_refinement(piecemeal):
    """
    What one analyst's history has in pieces is measured anew for the others.
    """
    place = piecemeal("pieces")
    own = "analysts: {ann: {budget: 9, history: own}, bi: {spend: off}}"
    place.policy.write_text(re.sub("analysts: .*", own, place.policy.read_text()))
    apply(place.policy, accept_weaker=True)
    with closing(place.engine(witness := Witness())) as engine:
        for user in ("ann", "", "ann", ""):
            assert ask(engine, NARROW if witness.drawn[1:] else WIDE, user).cost
        assert [row.history for row in engine.ledger.measurements()] == ["own:ann", "shared"]
        assert [old for old, _ in witness.refined] == witness.drawn
        for user in ("ann", ""):
            mine = accountant(engine, user)
            assert state(anew(mine, engine.ledger)) == state(mine)


# --- intervals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "runs"), share(1, [("pieces", 10), ("pieces", 400), ("hierarchy", 400)], 2)
)
def test_intervals_of_refined_answers_hold_the_truth(piecemeal, strategy, runs):
    """
    So many ledgers, the real noise, three numbers that are asked twice: after the refinement at
    least 1 - delta of the intervals hold the truth, less 4.75 standard deviations, which happens
    by chance less than once in a million times (of the normal law; the share of hits is exact).
    """
    place, delta = piecemeal(strategy), 0.2
    texts = [
        "SELECT COUNT(*) FROM people WHERE age BETWEEN 3 AND 11 WITH UTILITY (HALF, 0.2)",
        "SELECT COUNT(*) FROM people WHERE sex = 'f' WITH UTILITY (HALF, 0.2)",
        "SELECT SUM(pay) FROM people WHERE town = 'a' WITH UTILITY (HALF, 0.2)",
    ]
    with closing(place.engine(Silent())) as engine:
        true = [ask(engine, text.replace("HALF", "30")).answers[0][0].estimate for text in texts]
    hits, refined = np.zeros(3), 0
    with closing(place.engine(witness := Witness())) as engine:
        for _ in range(runs):
            begin_anew(engine, MemoryLedger(engine.planner.policy))
            for text, truth, number in zip(texts, true, range(3), strict=True):
                for half in (30, 12, 7):
                    told = ask(engine, text.replace("HALF", str(half))).answers[0][0]
                hits[number] += told.low <= truth <= told.high
            refined += len(witness.refined) >= 2
            witness.refined.clear()
    assert refined == runs
    room = 4.75 * np.sqrt(delta * (1 - delta) * runs)
    assert (hits >= (1 - delta) * runs - room).all(), hits
