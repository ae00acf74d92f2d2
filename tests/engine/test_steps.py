"""Requests met in steps, of which the last is not possible: the answer is what the others gave."""

import math

import pytest

import proxy.engine.measure
from proxy import errors
from proxy.inference.noise.mechanism import UnsafeNoiseError, check_safe
from tests.searches import share
from tests.small import DOMAIN, Small

MEASURES = """\
measures:
  pay: {column: age, clip: [0, 10], quantum: 1}
"""
FAR = "SELECT COUNT(*) FROM people WITH UTILITY (1 PERCENT, 0.1)"  # its second step costs too much
TOO_DEAR = (
    "what cannot be told from 0 is not met at more than the other groups cost, or than the budget"
)


@pytest.fixture
def engine(tmp_path):
    """An engine without noise: 40 people of 3 in a, 60 of 5 in b."""
    small = Small(tmp_path)
    small.data((3, "a", 40), (5, "b", 60))
    engine = small.made(domain=DOMAIN + MEASURES, rest="analysts: {bi: {spend: off}}\n")
    yield engine
    engine.close()


def spent(engine):
    """What has been paid, in the ledger's own units."""
    return engine.ledger.spent_by()


def test_a_budget_that_ends_midway_leaves_the_last_step(engine):
    """
    The first look is paid, the second refused: the wide interval is the answer, with a notice that
    says why.  Asked again it is the same, free: by the same user, or by one who may not spend.
    """
    first = engine.session().execute(FAR)
    assert first.rows == [(100,)]
    assert (first.answers[0][0].source, first.cost > 0) == ("measured", True)
    (notice,) = first.notices
    assert notice.startswith("COUNT(*) is less exact than was asked: refused: the statement")
    paid = spent(engine)
    again = engine.session().execute(FAR)
    assert (again.rows, again.cost, again.notices) == (first.rows, 0, first.notices)
    assert again.answers[0][0].source == "inferred"
    assert (again.answers[0][0].low, again.answers[0][0].high) == (
        first.answers[0][0].low, first.answers[0][0].high,
    )  # fmt: skip
    reader = engine.session("bi").execute(FAR)
    assert reader.rows == first.rows
    assert "analyst bi may only infer" in reader.notices[0]
    with pytest.raises(errors.InsufficientBudgetError):  # of these nothing is known
        engine.session("bi").execute(FAR.replace("WITH", "WHERE age = 3 WITH"))
    assert spent(engine) == paid


def test_a_request_goes_on_when_there_is_more_budget(tmp_path):
    """
    What was given twice for want of this day's budget is measured better on the next.
    """
    small = Small(tmp_path, now=10**15)
    small.data((3, "a", 100))
    small.made(privacy="privacy: {budget: 2, unit: row, per: {day: 0.5}}\n").close()
    engine = small.clocked()
    text = FAR.replace("1 PERCENT", "20 PERCENT")
    first, again = (engine.session().execute(text) for _ in range(2))
    assert "this day has left" in first.notices[0]
    assert again.notices == first.notices
    small.now += 24 * 3600 * 10**6
    later = engine.session().execute(text)
    assert later.cost > 0
    assert later.answers[0][0].high < first.answers[0][0].high
    engine.close()


def test_an_average_that_ends_midway_is_given_again(engine):
    """
    AVG, of which count and sum are known, not well enough: the same interval, free.
    """
    text = "SELECT AVG(pay) FROM people WITH UTILITY (0.3, 0.1)"
    wide = engine.session().execute(text.replace("0.3", "1.5"))
    assert wide.notices == ()
    paid = spent(engine)
    results = [engine.session().execute(text) for _ in range(2)]
    for result in results:
        assert result.rows == wide.rows
        assert "AVG(pay) is less exact" in result.notices[0]
        low, high = result.answers[0][0].low, result.answers[0][0].high
        assert low < 4.2 - 0.3
        assert high > 4.2 + 0.3
    assert results[1].cost == 0
    assert results[0].cost == 0
    assert spent(engine) == paid


def test_an_average_that_would_be_too_dear_is_null(engine):
    """
    The first look, at the count, is paid, the sum is not: NULL within the clip, marked as measured.
    Asked again it is the same, for nothing, and the notice says why.
    """
    text = "SELECT AVG(pay) FROM people WITH UTILITY (0.01, 0.1)"
    first = engine.session().execute(text)
    (answer,) = first.answers[0]
    assert first.rows == [(None,)]
    assert (math.isnan(answer.estimate), answer.low, answer.high) == (True, 0.0, 10.0)
    assert (answer.source, answer.cost > 0, first.cost > 0) == ("measured", True, True)
    assert first.notices == (f"AVG(pay) is less exact than was asked: {TOO_DEAR}",)
    paid = spent(engine)
    again = engine.session().execute(text)
    assert (again.rows, again.cost, again.notices) == (first.rows, 0, first.notices)
    assert spent(engine) == paid


def test_beside_a_number_that_must_be_met_nothing_is_given_away(engine):
    """
    A count within a half_width is refused where it cannot be met, whatever stands beside it.
    """
    engine.session().execute(FAR)
    text = (
        "SELECT COUNT(*) AS n, COUNT(*) FILTER (WHERE age = 3) AS m FROM people "
        "WITH UTILITY (1 PERCENT, 0.1), m (1, 0.1)"
    )
    with pytest.raises(errors.InsufficientBudgetError):
        engine.session().execute(text)


def test_noise_that_cannot_be_drawn_ends_the_steps_too(engine, monkeypatch):
    """
    A second step that is not safe to measure leaves the first one's answer, and no planned row.
    """

    def unsafe(family, scale, records):
        if scale < 10:
            raise UnsafeNoiseError("too fine")
        check_safe(family, scale, records)

    monkeypatch.setattr(proxy.engine.measure, "check_safe", unsafe)
    text = "SELECT COUNT(*) FROM people WITH UTILITY (20 PERCENT, 0.1)"
    first, again = (engine.session().execute(text) for _ in range(2))
    assert (again.cost, again.rows) == (0, first.rows)
    assert first.cost == spent(engine) / 2**40 > 0
    for result in (first, again):
        assert "measured safely: too fine" in result.notices[0]
    with pytest.raises(errors.NotSupportedError, match="measured safely"):
        engine.session().execute("SELECT COUNT(*) FROM people WITH UTILITY (2, 0.1)")
    assert engine.budget().measurements == len(engine.ledger.measurements())


def test_a_group_that_no_step_could_meet_is_said(tmp_path):
    """
    Nobody lives in c: no interval is within a percentage of 0.  The notice says of how many groups;
    the others are met.
    """
    small = Small(tmp_path)
    small.data((3, "a", 600), (5, "b", 400))
    domain = DOMAIN.replace("[a, b]", "[a, b, c]")
    engine = small.made(privacy="privacy: {budget: 100, unit: row}\n", domain=domain)
    text = "SELECT town, COUNT(*) FROM people GROUP BY town WITH UTILITY (20 PERCENT, 0.1)"
    result = engine.session().execute(text)
    assert [row[1] for row in result.rows] == [600, 400, 0]
    (notice,) = result.notices
    assert notice == (f"COUNT(*) is less exact than was asked, for 1 of 3 groups: {TOO_DEAR}")
    engine.close()


def test_what_is_nothing_whatever_the_data_is_exact(engine):
    """
    Of those who cannot be there any percentage is met, and their mean is NULL: free, no notice.
    """
    for number in ("COUNT(*)", "AVG(pay)"):
        request = "(5 PERCENT, 0.1)" if number == "COUNT(*)" else "(1, 0.1)"
        text = f"SELECT {number} FROM people WHERE age > 100 WITH UTILITY {request}"
        result = engine.session().execute(text)
        assert (result.cost, result.notices) == (0, ())
        assert result.rows == [(0 if number == "COUNT(*)" else None,)]


@pytest.mark.parametrize("people", share(2, [1, 100, 2, 8]))
@pytest.mark.parametrize("within", share(2, ["0.001", "1", "0.01", "0.1"]))
def test_an_average_within_less_than_a_step_of_the_lattice_is_met(tmp_path, people, within):
    """
    Where sum and count are each known exactly, but not with confidence enough for both, they are
    measured once more.  Asked again it is the same, for nothing, without a notice.
    """
    small = Small(tmp_path)
    small.data((3, "a", people))
    privacy = "privacy: {budget: 1000, unit: row}\n"
    engine = small.made(privacy=privacy, domain=DOMAIN + MEASURES)
    text = f"SELECT AVG(pay) FROM people WITH UTILITY ({within}, 0.05)"
    first, again = (engine.session().execute(text) for _ in range(2))
    assert first.notices == again.notices == ()
    assert first.cost > again.cost == 0
    assert again.rows == first.rows == [(3,)]
    ((answer,),) = again.answers
    assert answer.low <= 3 <= answer.high
    assert answer.high - answer.low <= 2 * float(within)
    engine.close()


@pytest.mark.slow
def test_a_notice_says_that_asking_again_helps_only_where_it_does(tmp_path):
    """
    Whatever is asked of whatever group, a statement that was free twice does not say so.
    """
    small = Small(tmp_path)
    small.data((3, "a", 7), (5, "b", 300))
    privacy = "privacy: {budget: 30, unit: row}\n"
    engine = small.made(privacy=privacy, domain=DOMAIN + MEASURES)
    for number, half in (("AVG(pay)", "0.02"), ("AVG(age)", "0.3"), ("COUNT(*)", "1 PERCENT")):
        text = f"SELECT age, {number} FROM people GROUP BY age WITH UTILITY ({half}, 0.05)"
        results = [engine.session().execute(text) for _ in range(4)]
        assert results[-1].cost == 0
        assert results[-1].notices
        assert not any("asking again" in notice for notice in results[-1].notices)
    engine.close()


def test_a_goal_is_a_request_that_no_call_changes(engine):
    """
    What the next step measures, and what is known, depend on the history and the rows left out
    alone: not on which was asked before.
    """
    session = engine.session()
    program = engine.compile(
        "SELECT town, AVG(pay), COUNT(*) FROM people GROUP BY town WITH UTILITY (1, 0.1)", session
    )
    history = engine.planner._accountant(session.privileges).history
    for goal in engine.planner._goals(program, session):
        first = goal.progress(history)
        without = goal.progress(history, frozenset({0}))
        assert without.left_out == {0}
        again = goal.progress(history)
        assert (again.looks, again.left_out) == (first.looks, frozenset())
        assert [each.half_width for each in again.targets] == [x.half_width for x in first.targets]
        with pytest.raises(AttributeError, match="immutable"):
            goal.delta = 0.5
