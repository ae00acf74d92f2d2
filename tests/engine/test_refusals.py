"""What cannot be answered is refused in words that help, and nothing is charged."""

import pytest

from proxy import errors
from proxy.engine import Engine, init
from proxy.inference.noise.mechanism import UnsafeNoiseError
from tests.engine.conftest import policy_with

U = " WITH UTILITY (100, 0.05)"
WRONG = {
    "unknown column": ("SELECT COUNT(*) FROM cps1988 WHERE eduction > 3", "education"),
    "unknown table": ("SELECT COUNT(*) FROM cps1989", "cps1988"),
    "rows": ("SELECT education FROM cps1988 WHERE education > 3 LIMIT 5", "COUNT"),
    "star": ("SELECT * FROM cps1988", "COUNT"),
    "not linear": (f"SELECT SUM(wage * wage) FROM cps1988{U}", "wage"),
    "no utility": ("SELECT SUM(education) FROM cps1988", "WITH UTILITY"),
    "half_width 0": ("SELECT COUNT(*) FROM cps1988 WITH UTILITY (0, 0.05)", "more than 0"),
    "negative": ("SELECT COUNT(*) FROM cps1988 WITH UTILITY (-5, 0.05)", "more than 0"),
    "delta 0": ("SELECT COUNT(*) FROM cps1988 WITH UTILITY (5, 0)", "between 0 and 1"),
    "delta 1": ("SELECT COUNT(*) FROM cps1988 WITH UTILITY (5, 1)", "between 0 and 1"),
    "cut bin": ("SELECT COUNT(*) FROM cps1988 WHERE experience > 12", "10"),
    "syntax": ("SELECT COUNT(* FROM cps1988", "line 1"),
    "delete": ("DELETE FROM cps1988", "not supported"),
    "empty parentheses": ("SELECT COUNT(*) FROM cps1988 WITH UTILITY ()", "line 1"),
    "too long": ("SELECT COUNT(*) FROM cps1988 WHERE " + "education = 1 OR " * 70_000, "long"),
    "half_width of a billion digits": ("SET privacy.utility = '1e999999999, 0.05'", "useful range"),
    "delta of a billion digits": ("SET privacy.utility = '50, 1e-999999999'", "useful range"),
    "delta past a double": ("SET privacy.utility = '50, 1e300'", "hundreds of digits"),
    "5,000 digits": ("SELECT COUNT(*) FROM cps1988 WHERE education < " + "9" * 5000, "2000 digits"),
    "claim past a double": ("SELECT PROBABILITY(COUNT(*) > 1e400) FROM cps1988", "38 digits"),
    "too deep": ("SELECT COUNT(*) FROM cps1988 WHERE " + "(" * 10_000, "nested"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_statement_is_an_error_that_helps(name, engine):
    """
    The message, its detail or hint names what to do; the ledger does not change.
    """
    text, fragment = WRONG[name]
    before = engine.ledger.sequence()
    with pytest.raises(errors.Error) as caught:
        engine.session().execute(text)
    assert not isinstance(caught.value, errors.InternalError)
    assert fragment in str(caught.value)
    assert engine.ledger.sequence() == before


def test_a_default_that_is_no_request_is_refused(engine):
    """
    Whatever a program hands over as its default utility, there is one error, and at once.
    """
    for pair in (("1e999999999", 0.1), (50, "1e-999999999"), (10**400, 0.1), (float("nan"), 0.1),
                 (50, float("inf")), ("x", 1), (1, 2, 3), 5):  # fmt: skip
        with pytest.raises(errors.UtilityError):
            engine.session(None, pair)


def test_a_refusal_says_requested_spent_and_left(engine):
    """
    Past the budget: what the statement would cost, what is spent, what is left.
    """
    session = engine.session()
    session.execute("SELECT COUNT(*) FROM cps1988 WITH UTILITY (5, 0.05)")
    before = engine.ledger.sequence()
    with pytest.raises(errors.InsufficientBudgetError) as caught:
        session.execute("SELECT COUNT(*) FROM cps1988 WHERE smsa = 'no' WITH UTILITY (5, 0.05)")
    error = caught.value
    assert error.requested + error.spent > 1 > error.spent
    assert error.left == pytest.approx(1 - error.spent)
    assert error.sqlstate == "53400"
    assert engine.ledger.sequence() == before


def test_a_missing_state_names_init(tmp_path):
    """
    Without ``init`` there is no ledger, and none is made.
    """
    with pytest.raises(errors.StateError, match="init"):
        Engine.open(policy_with(tmp_path, "cps1988"), tmp_path / "state")
    assert not (tmp_path / "state").exists()


def test_init_twice_changes_nothing(made):
    """
    A second ``init`` does not start a second budget.
    """
    policy, state = made("cps1988")
    with pytest.raises(errors.StateError, match="already"):
        init(policy, state)


def test_the_state_of_another_policy_is_refused(made):
    """
    A larger budget in the policy is not applied silently.
    """
    policy, state = made("cps1988")
    policy.write_text(policy.read_text().replace("budget: 1.0", "budget: 2.0"))
    try:
        with pytest.raises(errors.StateError, match="budget"):
            Engine.open(policy, state)
    finally:
        policy.write_text(policy.read_text().replace("budget: 2.0", "budget: 1.0"))


def test_missing_files_are_named(tmp_path):
    """
    A policy that is not there, and a data file that is not there.
    """
    with pytest.raises(errors.PolicyError, match=r"nowhere\.yaml"):
        Engine.open(tmp_path / "nowhere.yaml")
    policy = policy_with(tmp_path, "cps1988", ("cps1988.csv.gz", "gone.csv.gz"))
    with pytest.raises(errors.PolicyError, match=r"gone\.csv\.gz"):
        init(policy, tmp_path / "state")


def test_asked_again_the_same_number_comes_back_free(engine):
    """
    Also when the first answer was exactly 0, and from another session.
    """
    text = "SELECT COUNT(*) FROM cps1988 WHERE education = 0 AND smsa = 'no' WITH UTILITY (9, 0.3)"
    first = engine.session().execute(text)
    again = engine.session().execute(text)
    assert first.cost > 0
    assert again.cost == 0
    assert again.rows == first.rows
    assert again.answers[0][0].source == "inferred"
    looser = engine.session().execute(text.replace("(9,", "(30,"))
    assert (looser.cost, looser.rows) == (0, first.rows)
    tighter = engine.session().execute(text.replace("(9,", "(4,"))
    assert tighter.cost > 0


def test_a_new_process_goes_on_where_the_old_one_stopped(made):
    """
    History and budget are in the state, not in the process.
    """
    policy, state = made("cps1988")
    text = "SELECT region, COUNT(*) FROM cps1988 GROUP BY region WITH UTILITY (50, 0.05)"
    one = Engine.open(policy, state)
    first = one.session().execute(text)
    one.close()
    two = Engine.open(policy, state)
    again = two.session().execute(text)
    assert (again.rows, again.cost, again.left) == (first.rows, 0, first.left)
    two.close()


def test_two_engines_share_one_budget(made):
    """
    What one spends the other sees, before it spends itself.
    """
    policy, state = made("cps1988")
    one, two = Engine.open(policy, state), Engine.open(policy, state)
    text = "SELECT COUNT(*) FROM cps1988 WITH UTILITY (10, 0.05)"
    first = one.session().execute(text)
    assert two.session().execute(text).rows == first.rows
    two.session().execute("SELECT COUNT(*) FROM cps1988 WHERE smsa = 'no' WITH UTILITY (7, 0.05)")
    with pytest.raises(errors.InsufficientBudgetError):
        one.session().execute("SELECT COUNT(*) FROM cps1988 WHERE smsa='yes' WITH UTILITY (1, 0.1)")
    assert one.budget() == two.budget()


def test_a_plan_that_fails_leaves_nothing_behind(engine, monkeypatch):
    """
    A number that cannot be drawn safely is refused after it was planned; the plan is taken back,
    so that nothing is inferred from answers that were never measured.
    """

    def unsafe(family, scale, records):
        raise UnsafeNoiseError("too fine")

    session = engine.session()
    with monkeypatch.context() as patch:
        patch.setattr("proxy.engine.measure.check_safe", unsafe)
        with pytest.raises(errors.NotSupportedError, match="measured safely"):
            session.execute("SELECT COUNT(*) FROM cps1988")
    assert session.execute("SELECT COUNT(*) FROM cps1988").answers[0][0].source == "measured"


def test_other_dialects_are_understood(made):
    """
    A session may speak MySQL or DuckDB: the statement is translated, and means the same.
    """
    engine = Engine.open(*made("cps1988"))
    first = engine.session().execute("SELECT region, COUNT(*) FROM cps1988 GROUP BY region")
    for dialect in ("mysql", "bigquery"):
        session = engine.session(dialect=dialect)
        again = session.execute("SELECT `region`, COUNT(*) FROM `cps1988` GROUP BY `region`")
        assert (again.rows, again.cost) == (first.rows, 0)
    with pytest.raises(errors.Error, match="cobol"):
        engine.session(dialect="cobol").execute("SELECT COUNT(*) FROM cps1988")
    engine.close()


def test_init_clears_what_a_killed_build_left(tmp_path):
    """
    Its temporary folder holds private data, and goes with the next ``init``.
    """
    policy = policy_with(tmp_path, "cps1988")
    leftover = tmp_path / "state" / "cps1988" / ".cube-1.duckdb-x"
    leftover.mkdir(parents=True)
    init(policy, tmp_path / "state")
    assert not leftover.exists()
