"""Results that choose rows: released first, then constants; told and charged as one statement."""

from contextlib import closing
from datetime import datetime

import pytest

from proxy.errors import InsufficientBudgetError, StatementTooComplexError
from proxy.sql.bind import released_first
from tests.small import Small

TOP = "SELECT age FROM people GROUP BY age ORDER BY COUNT(*) DESC LIMIT 2"
CHOSEN = f"SELECT town, COUNT(*) FROM people WHERE age IN ({TOP}) GROUP BY town"


@pytest.fixture
def small(tmp_path):
    small = Small(tmp_path)
    small.data((0, "a", 5), (1, "b", 30), (5, "a", 40), (9, "b", 7))
    return small


def asked(text, within=10):
    return f"{text} WITH UTILITY ({within}, 0.1)"


def test_one_statement_one_line_one_price(small):
    """
    The dearest cell pays for both steps; asked again all of it is free; the history has one line.
    """
    with closing(small.made("privacy: {budget: 1, unit: row}\n")) as engine:
        session = engine.session()
        inner = session.explain(asked(TOP))
        result, again = (session.execute(asked(CHOSEN)) for _ in range(2))
        (line,) = engine.history()

    assert result.rows == again.rows == [("a", 40), ("b", 30)]
    assert result.cost == pytest.approx(2 * inner.rows[0][3])
    assert result.cost == line.cost
    assert (result.numbers, result.measured, line.numbers) == (12, 12, 12)
    assert (again.cost, again.measured) == (0, 0)


def test_what_chose_the_rows_is_kept_where_the_rest_is_refused(small):
    """
    The error says what was paid; asked again that part is free, and the refusal costs nothing.
    """
    with closing(small.made("privacy: {budget: 0.3, unit: row}\n")) as engine:
        session = engine.session()
        costs = []
        for _ in range(2):
            with pytest.raises(InsufficientBudgetError) as caught:
                session.execute(asked(CHOSEN))
            costs.append(caught.value.cost)
        assert session.execute(asked(TOP)).cost == 0

    assert costs[0] == pytest.approx(0.2187254167320134)
    assert "is kept, and free to ask again: cost 0.2187" in str(caught.value.hint) or not costs[1]
    assert not costs[1]


def test_explain_shows_the_steps_and_pays_for_none(small):
    """
    The first until it is known, then both; EXPLAIN itself measures nothing.
    """
    with closing(small.made("privacy: {budget: 1, unit: row}\n")) as engine:
        session = engine.session()
        before = session.explain(asked(CHOSEN))
        assert engine.history() == []
        first = session.execute(asked(TOP)).cost
        both = session.explain(asked(CHOSEN))
        assert len(engine.history()) == 1
        result = session.execute(asked(CHOSEN))

    assert [row[2] for row in before.rows] == ["measured"] * 10
    assert "released first" in before.notices[-1]
    assert max(row[3] for row in before.rows) == first
    assert [row[2] for row in both.rows] == ["inferred"] * 10 + ["measured"] * 2
    assert both.notices == ()
    assert max(row[3] for row in both.rows) == result.cost
    assert result.left == both.rows[-1][5]


def test_who_may_only_infer_chooses_rows_by_what_is_known(small):
    """
    With ``privacy.spend`` off, nothing of the first step is measured either.
    """
    with closing(small.made()) as engine:
        session = engine.session()
        session.execute("SET privacy.spend = off")
        with pytest.raises(InsufficientBudgetError, match="may only infer"):
            session.execute(asked(CHOSEN))
        assert engine.history() == []


def test_columns_beside_numbers_are_no_part_of_what_chooses(small):
    """
    With ``privacy.columns`` the result has them, the list has one column still.
    """
    with closing(small.made("privacy: {budget: 9, unit: row}\n")) as engine:
        session = engine.session()
        session.execute("SET privacy.columns = on")
        text = "SELECT COUNT(*) AS n FROM people WHERE age > (SELECT AVG(age) FROM people)"
        result = session.execute(asked(text, 4))
    assert [column.name for column in result.columns] == ["n", "n_low", "n_high", "n_source"]
    assert result.rows[0][0] == 47


def test_a_statement_has_one_time(small):
    """
    The clock goes on between the steps; the statement does not see it, and pays once.
    """
    ticks = iter(range(10_000))

    def clock(zone):
        return datetime(2026, 1, 1, 0, next(ticks) // 60 % 60, 0, next(ticks), tzinfo=zone)

    with closing(small.made("privacy: {budget: 9, unit: row}\n")) as engine:
        engine._clock = clock
        inner = "SELECT age FROM people GROUP BY age HAVING COUNT(*) > extract(hour FROM now()) + 9"
        text = f"SELECT COUNT(*) FROM people WHERE age IN ({inner})"
        result = engine.session().execute(asked(text))
        assert len(engine.history()) == 1
    assert result.rows == [(70,)]


def test_too_many_rows_are_refused(small, monkeypatch):
    """
    With what they cost.
    """
    monkeypatch.setattr(released_first, "MAX_ROWS", 1)
    with closing(small.made("privacy: {budget: 9, unit: row}\n")) as engine:
        with pytest.raises(StatementTooComplexError, match="has 2 rows; 1 are allowed") as caught:
            engine.session().execute(asked(CHOSEN))
        assert caught.value.cost == engine.history()[0].cost > 0
