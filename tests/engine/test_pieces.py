"""What is measured in pieces, and refined: right numbers, at the charges of the ledger's rows."""

import random
import re
from contextlib import closing

import duckdb
import numpy as np
import pytest

from proxy.errors import InsufficientBudgetError, NotSupportedError
from proxy.inference.accounting import UNIT
from tests.engine.pieces import SHAPE, STRATEGIES, accountant, anew, ask, paid, state, widths
from tests.searches import share
from tests.small import Silent

# --- right numbers -------------------------------------------------------------------------------

TRUE = [  # a statement, what duckdb is asked in its place, and how near it is asked
    ("SELECT COUNT(*) FROM people", "", "", 10),
    ("SELECT COUNT(*) FROM people", "", "age BETWEEN 3 AND 11", 10),
    ("SELECT COUNT(*) FROM people", "town, sex", "age > 5", 8),
    ("SELECT COUNT(*) FROM people", "town, sex", "age > 5", 3),
    ("SELECT COUNT(*) FROM people", "sex, town", "town <> 'b' OR sex = 'm'", 6),
    ("SELECT SUM(pay) FROM people", "town", "", 40),
    ("SELECT SUM(pay) FROM people", "", "town IS NULL AND sex = 'f'", 20),
    ("SELECT COUNT(pay) FROM people", "", "age = 7", 8),
    ("SELECT SUM(pay) - 2 * COUNT(pay) FROM people", "sex", "", 60),
    ("SELECT AVG(pay) FROM people", "sex", "", 2),
    ("SELECT AVG(pay) FROM people", "sex", "", 1),
    ("SELECT COUNT(*) FILTER (WHERE sex = 'f') FROM people", "town", "age < 9", 8),
    ("SELECT 3 * COUNT(*) FROM people", "age", "", 30),
    ("SELECT SUM(age) FROM people", "sex", "age > 2", 90),
    ("SELECT COUNT(*), SUM(pay) FROM people", "town", "", 30),
    ("SELECT COUNT(*) FROM people", "town", "", "20 PERCENT"),
]


@pytest.mark.parametrize("strategy", share(1, STRATEGIES))
def test_the_numbers_are_those_of_the_data(piecemeal, strategy):
    """
    Without noise, after each step of refining: by several axes, filtered, of measures with values
    below 0 and of NULLs as a group; and no interval is wider than was asked.
    """
    place = piecemeal(strategy)
    data = duckdb.sql(f"SELECT * FROM read_csv('{place.folder}/people.csv', header=true)")
    refined = 0
    with closing(place.engine(Silent())) as engine:
        for select, by, where, half in TRUE:
            columns = f"{by}, " if by else ""
            text = select.replace("SELECT ", f"SELECT {columns}")
            text += (f" WHERE {where}" if where else "") + (f" GROUP BY {by}" if by else "")
            before = {row.id: row.scale for row in engine.ledger.measurements()}
            result = ask(engine, f"{text} WITH UTILITY ({half}, 0.1)")
            refined += any(
                row.scale < before.get(row.id, 0) for row in engine.ledger.measurements()
            )
            true = duckdb.sql(text.replace("people", "data")).fetchall()
            keys = len(by.split(", ")) if by else 0
            known = {row[:keys]: row[keys:] for row in true}
            told = {row[:keys]: row[keys:] for row in result.rows}
            assert len(told) == len(result.rows)
            assert known.keys() <= told.keys()
            for key, values in told.items():
                wanted = [v or 0 for v in known.get(key, (0,) * len(values))]
                assert [v or 0 for v in values] == pytest.approx(wanted, abs=1e-9), text
            if not isinstance(half, str):
                assert max(widths(result)) <= 2 * half * (1 + 1e-12), text
    assert refined
    assert len(data.columns) == 4


# --- lives of two engines ------------------------------------------------------------------------


def statement(rng):
    number = rng.choice(
        ("COUNT(*)", "COUNT(*)", "SUM(pay)", "COUNT(pay)", "AVG(pay)", "SUM(pay) - COUNT(*)",
         "COUNT(*) FILTER (WHERE sex = 'f')", "MEDIAN(age)", "2 * COUNT(*)", "SUM(age)")
    )  # fmt: skip
    by = rng.choice(("", "", "town", "sex", "age", "town, sex"))
    where = rng.choice(
        ("true", "age > 2", "age < 9", "age < 2", "age BETWEEN 3 AND 11", "town = 'a'",
         "town = 'b'",         "town IS NULL", "sex = 'f' AND age > 5", "town <> 'b' OR sex = 'm'")
    )  # fmt: skip
    halves = {"C": (3, 8, 20, 60), "S": (40, 100, 300), "A": (0.5, 2), "M": (2, 5), "2": (10, 30)}
    half = f"{rng.choice(halves[number[0]])}, {rng.choice((0.05, 0.1, 0.3))}"
    if number == "COUNT(*)" and rng.random() < 0.2:
        half = "20 PERCENT, 0.1"
    text = f"SELECT {by}{', ' * bool(by)}{number} AS n"
    if rng.random() < 0.2 and number[0] not in "AM":
        text += ", COUNT(*) AS n2"
    most = ", MAX COST 0.2" if rng.random() < 0.15 else ""
    return (
        f"{text} FROM people WHERE {where}{' GROUP BY ' * bool(by)}{by} WITH UTILITY ({half}){most}"
    )


class Life:
    """Two engines on one ledger, which are asked in turn, and what they were seen to do."""

    def __init__(self, engines):
        self.engines, self.kept, self.refined = engines, [], 0
        self.budget = np.full(SHAPE, 30 * UNIT)
        self.budget[:2] = 7 * UNIT

    def step(self, rng):
        engine, user = rng.choice(self.engines), rng.choice(("", "", "ann", "bi"))
        ledger, text, session = engine.ledger, statement(rng), engine.session(user)
        mine = accountant(engine, user)
        before, head, held = paid(ledger), ledger.sequence(), state(mine)
        scales = {row.id: row.scale for row in ledger.measurements()}
        explained = session.explain(text)
        assert (ledger.sequence(), state(mine)) == (head, held), text
        refused = any("would be refused" in notice for notice in explained.notices)
        try:
            result = session.execute(text)
        except (InsufficientBudgetError, NotSupportedError) as error:
            assert refused, text
            assert not error.cost  # noqa: PT017
            assert (ledger.sequence(), state(mine)) == (head, held), text
            return
        self.refined += any(r.scale < scales.get(r.id, 0) for r in ledger.measurements())
        after = paid(ledger)
        assert result.cost * UNIT == (after - before).max(), text
        assert (after <= self.budget).all(), text
        assert np.array_equal(state(mine)[-1], after), text
        assert state(anew(mine, ledger)) == state(mine), text
        assert ledger.spent().get("shared", 0) == after.max(), text
        assert result.left * UNIT <= (self.budget - after).min(), text
        shown = {row[0]: row for row in session.execute("SHOW BUDGET").rows}
        assert any(after.max() / UNIT in row for row in shown.values()), shown
        steps = re.search("AVG|PERCENT|MEDIAN|MAX COST", text)
        if not steps and user != "bi":
            assert not refused, text
            costs = [row[3] for row in explained.rows]
            assert max(costs) == max(a.cost for row in result.answers for a in row), text
            assert {row[5] for row in explained.rows} == {result.left}, text
        if "MAX COST" in text or any("less exact" in notice for notice in result.notices):
            return  # asked again, it may cost as much again, or be refused
        again = session.execute(text)
        assert (again.rows, again.cost) == (result.rows, 0), text
        self.kept.append((text, user, result))

    def end(self):
        """What was answered once is free, and as good as it was asked, for both engines."""
        for engine in self.engines:
            for text, user, result in self.kept:
                again = ask(engine, text, user)
                assert not again.cost, text
                if not re.search("AVG|PERCENT|MEDIAN|MAX COST", text):
                    half = float(re.search(r"UTILITY \(([0-9.]+),", text)[1])
                    assert max(widths(again)) <= 2 * half * (1 + 1e-12), text
                assert len(again.rows) == len(result.rows)
            assert engine.ledger.verify() == []


@pytest.mark.parametrize("seed", share(1, range(40), 4))
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_lives_add_up(piecemeal, strategy, seed):
    """
    EXPLAIN and refusals change nothing, and say what is then done; a statement costs what the
    dearest cell of the ledger's rows paid; the account is that of an accountant that reads the
    ledger anew, and within each cell's budget; asked again it is free, and says the same; in the
    end all of it still is, as exact as it was asked.
    """
    place, rng = piecemeal(strategy), random.Random(f"{strategy} {seed}")
    with closing(place.engine()) as one, closing(place.engine()) as two:
        life = Life((one, two))
        for _ in range(12 if seed else 3):
            life.step(rng)
        life.end()
