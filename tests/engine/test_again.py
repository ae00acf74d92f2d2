"""A free statement that is asked again gives what it gave, until the history grows."""

import gc
import random
from contextlib import closing

import pytest
from msgspec.structs import replace

from proxy.engine import Engine
from proxy.errors import InsufficientPrivilegeError, QueryCanceledError
from proxy.inference.families.singles import Singles
from proxy.inference.history import History
from tests.searches import share

TEXT = "SELECT region, COUNT(*) AS n FROM cps1988 GROUP BY region ORDER BY n DESC"


def seen(result):
    return result.columns, result.rows, result.answers, result.cost, result.left


@pytest.fixture
def asked(engine, monkeypatch):
    """An engine, and the statements that it works out, not those that it remembers."""
    texts = []
    real = engine.planner.answered

    def answered(program, asker, spend):
        texts.append(program.text)
        return real(program, asker, spend)

    monkeypatch.setattr(engine.planner, "answered", answered)
    return engine, texts


def test_what_was_free_is_not_worked_out_again(asked):
    """
    The third time nothing is planned; rows, answers, cost and what is left are those of the
    second, and the audit has all three.
    """
    engine, texts = asked
    session = engine.session()
    first, second, third = (session.execute(TEXT) for _ in range(3))
    assert len(texts) == 2
    assert first.cost > 0 == second.cost
    assert first.rows == second.rows
    assert seen(third) == seen(second)
    third.rows.clear()
    assert session.execute(TEXT).rows == second.rows
    lines = [*engine.ledger.audit(), *engine.ledger.notes()]
    assert [line.kind for line in lines if line.statement == TEXT].count("inferred") == 3


def test_a_longer_history_is_looked_at(asked):
    """
    What is measured later, also through another engine, makes the answer better.
    """
    engine, texts = asked
    session = engine.session()
    for _ in range(3):
        before = session.execute(TEXT)
    session.execute("SELECT region, COUNT(*) FROM cps1988 GROUP BY region WITH UTILITY (20, 0.05)")
    after = session.execute(TEXT)
    assert texts[-1] == TEXT
    width = [row[0].high - row[0].low for result in (before, after) for row in result.answers]
    assert max(width[4:]) < min(width[:4])


def test_what_it_depends_on_is_part_of_the_question(asked):
    """
    Settings, the session's utility, parameters and the user are; so is what relations of the
    budget show.
    """
    engine, _ = asked
    session = engine.session()
    for _ in range(3):
        session.execute(TEXT)
    session.execute("SET privacy.columns = on")
    assert len(session.execute(TEXT).columns) == 5
    loose = engine.session(utility=(400, 0.05))
    assert loose.execute(TEXT).answers != session.execute(TEXT).answers
    years = "SELECT COUNT(*) FROM cps1988 WHERE education >= %s"
    plain = engine.session()
    rows = [plain.execute(years, (n,)).rows for n in (0, 16, 0, 16, 0, 16)]
    assert rows[:2] == rows[2:4] == rows[4:]
    assert rows[0] != rows[1]
    budget = "SELECT max(spent) FROM privacy.budget"
    one = session.execute(budget).rows
    session.execute("SELECT COUNT(*) FROM cps1988 WHERE smsa = 'no' WITH UTILITY (30, 0.05)")
    assert session.execute(budget).rows > one


def test_who_may_not_ask_is_not_told(engine):
    """
    What one user was told is refused to another who may not ask.
    """
    analyst, steward = engine.session(), engine.session()
    for _ in range(3):
        analyst.execute(TEXT)
    steward.privileges = replace(steward.privileges, roles=frozenset({"steward"}))
    with pytest.raises(InsufficientPrivilegeError):
        steward.execute(TEXT)


def test_a_cancellation_stops_the_inference_of_many_groups(engine, monkeypatch):
    """
    It is heard between two numbers, nothing is charged, and the next statement works.
    """
    session, seen = engine.session(), []
    groups = "SELECT education, COUNT(*) FROM cps1988 GROUP BY education"
    real, before = Singles.estimators, engine.ledger.sequence()

    def singles(self, query, **how):
        seen.append(query)
        if len(seen) == 3:
            session.cancel()
        return real(self, query)

    monkeypatch.setattr(Singles, "estimators", singles)
    with pytest.raises(QueryCanceledError):
        session.execute(groups)
    assert len(seen) == 3
    assert engine.ledger.sequence() == before
    monkeypatch.undo()
    assert session.execute(groups).cost > 0


def test_a_look_at_the_ledger_that_is_broken_off_begins_anew(engine, monkeypatch):
    """
    Rows that are in the history when reading ends are not there twice after the next look; what
    Python cleans up is as before.
    """
    session = engine.session()
    session.execute(TEXT + " WITH UTILITY (300, 0.05)")
    accountant = engine.planner._accountant(engine.privileges(""))
    blocks, spent = len(accountant.history.blocks), accountant.account.spent()
    extend = History.extend

    def broken(self, measured):
        extend(self, measured)
        raise KeyboardInterrupt

    accountant.forget()
    with monkeypatch.context() as patch:
        patch.setattr(History, "extend", broken)
        with pytest.raises(KeyboardInterrupt):
            accountant.catch_up(engine.ledger)
    assert gc.isenabled()
    accountant.catch_up(engine.ledger)
    assert len(accountant.history.blocks) == blocks > 0
    assert accountant.account.spent() == spent


def test_what_was_refined_is_charged_once(engine):
    """
    Of three measurements one is refined, in the ledger: whoever followed it holds the rows, and
    what each cell has paid, as one who reads it anew.
    """
    session = engine.session()
    for years in (9, 12, 15):
        session.execute(
            f"SELECT COUNT(*) FROM cps1988 WHERE education < {years} WITH UTILITY (900, 0.05)"
        )
    rows = engine.ledger.measurements()
    with engine.ledger.transaction() as tx:
        tx.replace(rows[1].id, rows[1].scale / 2, (77,))
        tx.audit("refined", "ann", cost=1)
    session.execute("SELECT COUNT(*) FROM cps1988 WHERE region = 'west' WITH UTILITY (900, 0.05)")
    followed = engine.planner._accountant(engine.privileges(""))
    spent, answers = followed.account.spent(), list(followed.history.answers)
    assert answers[1] == 77
    followed.forget()
    followed.catch_up(engine.ledger)
    assert followed.account.spent() == spent
    assert followed.history.answers == answers


def statements(seed):
    """Sixty statements of one number, each wanted nearer than most before it."""
    rng = random.Random(seed)
    regions = ("midwest", "northeast", "south", "west")
    for i in range(60):
        words = [f"education >= {rng.randrange(17)}"]
        if rng.random() < 0.6:
            words.append(f"region {rng.choice(('=', '<>'))} '{rng.choice(regions)}'")
        words += [
            f"{name} = '{rng.choice(('no', 'yes'))}'"
            for name, often in (("smsa", 0.5), ("parttime", 0.4))
            if rng.random() < often
        ]
        number, width = rng.choice((("COUNT(*)", 1), ("COUNT(*)", 1), ("SUM(wage)", 1000)))
        width *= round(2000 * 0.93**i * rng.uniform(0.5, 2) + 3)
        clause = f"WITH UTILITY ({width}, {rng.choice((0.05, 0.1, 0.01))})"
        yield f"SELECT {number} FROM cps1988 WHERE {' AND '.join(words)} {clause}"


@pytest.mark.parametrize("seed", share(1, range(8)))
def test_what_one_process_pays_for_is_free_in_another(seed, made):
    """
    What rests on a mixture of what was known and a new row in the one is solved for in the other.
    """
    of = made("cps1988", ("budget: 1.0", "budget: 100_000\n  floor: 0.0001"))
    with closing(Engine.open(*of)) as one, closing(Engine.open(*of)) as two:
        for by in (
            "education, region",
            "education, experience",
            "region, smsa",
            "experience, smsa",
        ):
            group = f"SELECT {by}, COUNT(*) FROM cps1988 GROUP BY {by}"
            one.session().execute(f"{group} WITH UTILITY (6000, 0.05)")
        for text in statements(seed):
            mine, theirs = one.session().execute(text), two.session().execute(text)
            assert theirs.cost == 0, text
            ((a,),), ((b,),) = one.session().execute(text).answers, theirs.answers
            assert a.estimate == pytest.approx(b.estimate, rel=1e-9, abs=1e-6 * mine.cost)
