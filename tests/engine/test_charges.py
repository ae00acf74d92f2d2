"""What is told is what is charged: costs, what is left, and the history, against the raw ledger."""

import re
import shutil
from contextlib import closing, suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.cli import run
from proxy.errors import DataError, InsufficientBudgetError
from proxy.inference.accounting import UNIT, charge
from proxy.server.session import result_text
from tests.small import DOMAIN, Small

MEASURES = """\
measures:
  pay: {column: age, clip: [0, 10], quantum: 1, utility: {half_width: 300, delta: 0.1}}
"""
PRIVACY = 'privacy: {budget: 3, unit: row, cells: [{where: "age < 2", budget: 1.5}]}\n'

# Numbers that stand in the result as they are, are worked on, or are nowhere in it.
FORMS = [
    "SELECT COUNT(*) FROM people WHERE {where} WITH UTILITY ({how})",
    "SELECT ROUND(COUNT(*) / 10.0) FROM people WHERE {where} WITH UTILITY ({how})",
    "SELECT {by}, COUNT(*) FROM people GROUP BY {by} WITH UTILITY ({how})",
    "SELECT {by}, COUNT(*), SUM(pay) FROM people WHERE {where} GROUP BY {by}",
    "SELECT {by}, SUM(pay) / COUNT(*) FROM people GROUP BY {by}",
    "SELECT STDDEV(age) FROM people WHERE {where} WITH UTILITY (600, 0.1)",
    "SELECT AVG(pay) FROM people WHERE {where} WITH UTILITY (2, 0.1)",
    "SELECT {by} FROM people GROUP BY {by} HAVING COUNT(*) > 20 WITH UTILITY ({how})",
    "SELECT {by} FROM people GROUP BY {by} ORDER BY COUNT(*) DESC LIMIT 1 WITH UTILITY ({how})",
    "SELECT 1 WHERE EXISTS (SELECT 1 FROM people HAVING COUNT(*) > 3) WITH UTILITY ({how})",
    "SELECT 'x', (SELECT COUNT(*) FROM people WHERE {where}) > 5 WITH UTILITY ({how})",
    "WITH t AS (SELECT {by}, COUNT(*) AS n FROM people GROUP BY {by}) "
    "SELECT MAX(n) - MIN(n) FROM t WITH UTILITY ({how})",
    "SELECT COUNT(*) FROM people WHERE 1 = 0",
    "SELECT {by}, COUNT(*) FROM people GROUP BY {by} LIMIT 0",
    "SELECT COUNT(*) FROM privacy.history",
    "SELECT COUNT(*) FROM people WHERE age IN (SELECT age FROM people WHERE {where} GROUP BY age "
    "ORDER BY COUNT(*) DESC LIMIT 3) WITH UTILITY ({how})",
    "SELECT {by}, COUNT(*) FROM people WHERE age > (SELECT COUNT(*) / 60 FROM people "
    "WHERE {where}) GROUP BY {by} WITH UTILITY ({how})",
]
STATEMENTS = st.builds(
    lambda form, **values: form.format(**values),
    st.sampled_from(FORMS),
    where=st.sampled_from(["true", "town = 'a'", "age < 2", "age > 5 AND town = 'b'"]),
    by=st.sampled_from(["town", "age", "town, age"]),
    how=st.sampled_from(["10, 0.1", "25, 0.1", "60, 0.05", "20 PERCENT, 0.1"]),
)


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    """A folder in which a dataset can be begun anew."""
    small = Small(tmp_path_factory.mktemp("charges"))
    small.data((1, "a", 20), (3, "a", 200), (7, "b", 300), (9, "b", 7))
    return small


def begun(small, **policy):
    """Return an engine of the dataset with an empty ledger."""
    shutil.rmtree(small.folder / ".privacy-proxy", ignore_errors=True)
    return small.made(**policy)


def paid(engine):
    """What each cell has paid, by the ledger alone [cells], in 2⁻⁴⁰ alpha."""
    space = engine.planner._accountant(engine.privileges("")).space
    axes = range(len(space.sizes))
    total = np.zeros(space.sizes, dtype=np.int64)
    for row in engine.ledger.measurements():
        total += charge(row.family, row.scale).dense(axes, space)
    return total


@pytest.mark.slow
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(STATEMENTS, min_size=1, max_size=5))
def test_every_charge_is_told(master, texts):
    """
    A statement costs what the dearest cell paid over all of its steps; its notice says cost and
    left, wherever its numbers are; where it cost nothing, nothing was measured.  No number costs
    more, and one does where it was measured.  The history has a line for it.  What is left is that
    of the cell that has least.
    """
    with closing(begun(master, privacy=PRIVACY, domain=DOMAIN + MEASURES)) as engine:
        budget = np.full((10, 2), 3 * UNIT)
        budget[:2] = 1.5 * UNIT
        lines = 0
        for text in texts:
            before, session = paid(engine), engine.session()
            left = engine.left(session.privileges).left
            try:
                result = session.execute(text)
            except InsufficientBudgetError as refused:  # what chose the rows may be paid by then
                cost = refused.cost or 0
            else:
                cost = None
            if cost is not None:
                assert (paid(engine) - before).max() == cost * UNIT
                lines += cost > 0
                continue
            after = paid(engine)
            assert result.cost * UNIT == (after - before).max()
            assert result.left * UNIT == (budget - after).min()
            assert left - result.cost <= result.left <= left
            dearest = np.unravel_index((after - before).argmax(), after.shape)
            if (budget - before)[dearest] == left * UNIT:
                assert left - result.cost == result.left
            assert (result.measured > 0) == (result.cost > 0)
            told = [report.message for report in result_text.notices(result, False)]
            said = [x for x in told if x.startswith("privacy: ")]
            assert len(said) == (result.numbers > 0)
            if result.cost:
                assert f"{result.measured:,} number" in said[0]
                assert f"; cost {result.cost:.4g}, left {result.left:.4g}" in said[0]
            elif said:
                assert re.fullmatch(r"privacy: \S+ numbers? free; cost nothing, left .*", said[0])
            for each in (each for row in result.answers for each in row):
                computed = each.source in ("derived", "approximate")
                assert computed or (each.source == "measured") == (each.cost > 0)
                assert each.cost <= result.cost
            lines += result.cost > 0
            assert len(engine.history()) == lines
            if result.cost:
                last = engine.history()[-1]
                assert (last.statement, last.cost) == (text, result.cost)


def test_a_number_costs_what_its_dearest_record_paid(master):
    """
    Two counts a group, the second of half of it, and a third that is what the first leaves: whose
    records paid twice.  The dearest number of each group has the cost of the statement.
    """
    with closing(begun(master)) as engine:
        result = engine.session().execute(
            "SELECT town, COUNT(*), COUNT(*) FILTER (WHERE age < 5), "
            "COUNT(*) FILTER (WHERE age > 6) FROM people GROUP BY town WITH UTILITY (20, 0.1)"
        )
        one = engine.session().execute("SELECT COUNT(*) FROM people WITH UTILITY (90, 0.4)")
    assert one.cost == 0
    for all_of_them, young, old in result.answers:
        assert all_of_them.cost == pytest.approx(result.cost / 2)
        assert young.cost == pytest.approx(old.cost) == pytest.approx(result.cost / 2)


@pytest.mark.slow
def test_steps_are_one_statement(master):
    """
    A relative request by two columns after those by each: no row costs more than the statement,
    the dearest as much; one line of history, at both doors that show it.
    """
    with closing(begun(master)) as engine:
        session = engine.session()
        for by in ("town", "age"):
            text = f"SELECT {by}, COUNT(*) FROM people GROUP BY {by} WITH UTILITY (40, 0.1)"
            session.execute(text)
        left = engine.left(session.privileges).left
        text = "SELECT town, age, COUNT(*) FROM people GROUP BY 1, 2 WITH UTILITY (40 PERCENT, 0.4)"
        result = session.execute(text)
        costs = [answer.cost for (answer,) in result.answers]
        assert max(costs) == result.cost > min(cost for cost in costs if cost)
        assert result.left == left - result.cost
        steps = [line for line in engine.ledger.audit() if line.statement == text]
        assert len(steps) > 1
        (line,) = [line for line in engine.history() if line.statement == text]
        assert (line.cost, line.numbers) == (result.cost, sum(step.answers for step in steps))
        shown = session.execute("SHOW HISTORY").rows
        assert [row[3] for row in shown].count(text) == 1
        assert shown[-1][4] == result.cost


def test_an_error_after_a_measurement_says_what_was_paid(master):
    """
    What the outer SQL makes of a noisy number can fail; the number was paid for, and is kept.
    """
    with closing(begun(master)) as engine:
        session = engine.session()
        failing = "SELECT CAST('x' || COUNT(*) AS INTEGER) FROM people WITH UTILITY (20, 0.1)"
        with pytest.raises(DataError) as caught:
            session.execute(failing)
        cost = paid(engine).max() / UNIT
        assert caught.value.cost == cost > 0
        assert f"cost {cost:.4g}, left {1 - cost:.4g}" in caught.value.hint
        with pytest.raises(DataError) as caught:
            session.execute(failing)
        assert caught.value.cost == 0
        assert "cost" not in (caught.value.hint or "")


# --- what is left ---

CAPS = """\
analysts:
  ann: {budget: 0.6}
  bi: {spend: off}
  eve: {budget: 0.5, history: own}
groups: {survey: {budget: 0.8}}
"""
LIMITS = [
    "",
    ", per: {day: 0.9}",
    ", per: {day: 0.4, week: 0.7}",
    ', cells: [{where: "age < 2", budget: 0.7}]',
    ', guards: [{claim: "COUNT(*) BETWEEN 0 AND 2", for_each: [age], confidence: 0.8}]',
]
ASKED = st.tuples(
    st.sampled_from(["", "ann", "bob", "bi", "eve"]),
    st.sampled_from([8, 9, 12, 15, 30]),
    st.integers(0, 3),
)


@pytest.mark.slow
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(limits=st.sampled_from(LIMITS), asked=st.lists(ASKED, min_size=1, max_size=8))
def test_what_costs_no_more_than_is_left_is_not_refused(master, limits, asked):
    """
    And what costs more is; a count of everybody touches the cell that has least.  What is left is
    the least of what the user's budget report says; its name is the refusal's.
    """
    users = ("ann", "bob", "bi", "eve")
    master.users(**{name: "roles: [analyst], groups: [survey]" for name in users})
    privacy = f"privacy: {{budget: 2, unit: row{limits}}}\n"
    with closing(begun(master, privacy=privacy, rest=CAPS)) as engine:
        for user, within, _ in asked:
            session = engine.session(user)
            text = f"SELECT COUNT(*) FROM people WITH UTILITY ({within}, 0.1)"
            told = session.explain(text)
            ((*_, cost, _, after, _),) = told.rows
            report = engine.budget(user).rules
            least = min(report, key=lambda rule: rule.left)
            assert (told.left, told.left_of) == (least.left, least.name)
            assert after == max(told.left - cost, 0) or cost > told.left
            try:
                result = session.execute(text)
            except InsufficientBudgetError:
                assert cost > told.left
                continue
            assert cost <= told.left
            assert (result.cost, result.left) == (cost, after)
    (master.folder / "users.yaml").unlink()


def test_left_says_of_what(master, capsys):
    """
    The command, its budget, and the notice of the server, for a user with a cap.
    """
    with closing(
        begun(master, rest="analysts: {ann: {budget: 0.5}, bi: {spend: off}}\n")
    ) as engine:
        result = engine.session("ann").execute("SELECT COUNT(*) FROM people")
        assert (result.left, result.left_of) == (0.5 - result.cost, "analyst ann")
        assert result_text.summary(result).endswith(f"left {0.5 - result.cost:.4g} (analyst ann)")
        again = engine.session().execute("SELECT COUNT(*) FROM people")
        assert result_text.summary(again).endswith(f"left {1 - result.cost:.4g}")
        assert again.left_of == "the budget of the cells"
        reader = engine.session("bi").execute("SELECT COUNT(*) FROM people")
        assert (reader.left, reader.left_of) == (0, "analyst bi, who may only infer")
    policy = str(master.policy)
    assert run(["query", policy, "SELECT COUNT(*) FROM people", "--user", "ann"]) == 0
    assert capsys.readouterr().out.endswith(f"left {0.5 - result.cost:.4g} (analyst ann)\n")
    assert run(["budget", policy, "--user", "ann"]) == 0
    assert re.search(r"analyst ann +0\.5 ", capsys.readouterr().out)
    with suppress(FileNotFoundError):
        (master.folder / "users.yaml").unlink()


@pytest.mark.slow
def test_the_ends_of_intervals_have_the_digits_that_they_support(master, capsys):
    """
    As columns, printed by the command, and beforehand: rounded outwards to two digits of the
    interval's length.
    """
    text = "SELECT SUM(pay) AS n FROM people WITH UTILITY (333.3, 0.1)"
    with closing(begun(master, domain=DOMAIN + MEASURES)) as engine:
        session = engine.session()
        half = session.explain(text).rows[0][4]
        session.execute("SET privacy.columns = on")
        result = session.execute(text)
    _, low, high, _ = result.rows[0]
    (answer,) = result.answers[0]
    assert (low, high) == (np.floor(answer.low), np.ceil(answer.high))
    assert half == np.ceil(half)
    assert run(["query", str(master.policy), text]) == 0
    assert f"[{low:,.0f}, {high:,.0f}] 90%" in capsys.readouterr().out


def test_null_is_written_alike(master, capsys):
    """
    As a group of a result, and of what it would cost.
    """
    domain = DOMAIN.replace("nulls: drop", "nulls: group")
    begun(master, domain=domain).close()
    call = str(master.policy), "SELECT town, age > 3, COUNT(*) FROM people GROUP BY town, age > 3"
    assert run(["explain", *call]) == 0
    groups = re.findall(r"^COUNT\(\*\)  (\S+, \S+)", capsys.readouterr().out, re.MULTILINE)
    assert run(["query", *call]) == 0
    rows = re.findall(r"^(\S+) +(true|false|NULL) ", capsys.readouterr().out, re.MULTILINE)
    assert sorted(groups) == sorted(", ".join(row) for row in rows)
    assert "NULL, NULL" in groups
