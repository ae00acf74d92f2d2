"""Strategies are compared over requests and adopted; what is wanted first is measured by init."""

import json
from contextlib import closing, suppress
from datetime import date, timedelta

import pytest

import proxy
from proxy.cli import run
from proxy.engine import Engine, init
from proxy.engine.choice import adopt, compare, log
from proxy.engine.planner import LocalPlanner
from proxy.errors import InsufficientBudgetError, StateError
from proxy.inference.strategies.choosing import ahead
from proxy.steward import apply
from tests.small import DOMAIN, Silent, Small

DAYS = DOMAIN.replace("  town:", "  day: {type: date, from: 2026-01-01, to: 2026-02-28}\n  town:")


def privacy(strategy, more="", budget=1):
    return f"privacy: {{budget: {budget}, unit: row, strategy: {strategy}{more}}}\n"


@pytest.fixture
def small(tmp_path):
    small = Small(tmp_path)
    small.data(*((age, town, 20 + age) for age in range(10) for town in "ab"))
    return small


def windows(first):
    """Return the statements of a day's dashboard: the 30 days before, in three ways."""
    since = f"day >= DATE '{first - timedelta(days=30)}' AND day < DATE '{first}'"
    return [
        f"SELECT COUNT(*) FROM people WHERE {since} WITH UTILITY (40, 0.1)",
        f"SELECT town, COUNT(*) FROM people WHERE {since} GROUP BY town WITH UTILITY (40, 0.1)",
        f"SELECT age, COUNT(*) FROM people WHERE {since} GROUP BY age WITH UTILITY (40, 0.1)",
    ]


def dated(small):
    rows = [
        f"{(i * 7) % 10},{'ab'[i % 2]},u{i},{date(2026, 1, 1) + timedelta(days=i % 59)}"
        for i in range(590)
    ]
    (small.folder / "people.csv").write_text("\n".join(["age,town,unit,day", *rows, ""]))


def test_windows_that_move_are_made_of_days(small):
    """
    One day's dashboard is the log; later days', moved on, cost nearly nothing by what was adopted,
    and each of them again by what is paid for each text.
    """
    dated(small)
    spent = {}
    for strategy in ("auto", "topup"):
        small.write(privacy(strategy, budget=50), domain=DAYS)
        state = small.folder / strategy
        init(small.policy, state, accept_second_budget=True)
        with closing(Engine.open(small.policy, state, sampler=Silent())) as engine:
            session = engine.session()
            for day in range(16):
                for text in windows(date(2026, 2, 1) + timedelta(days=day)):
                    session.execute(text)
                if day == 0:
                    found = compare(engine, log(engine.ledger), 20, repeated=False)
                    if strategy == "auto":
                        adopt(engine, found, "sam")
            spent[strategy] = max(rule.spent for rule in engine.budget().rules)
            assert (found.requests, found.skipped) == (3, ())
            assert found.adopted["strategy"] in ("marginals", "pieces")
    assert spent["auto"] < spent["topup"] / 1.5, spent


def test_requests_move_on_in_time(small):
    """
    What has no days is as it was; a window ends a day later for each step, and its labels too.
    """
    dated(small)
    engine = small.made(privacy("auto"), domain=DAYS)
    session, texts = engine.session(), windows(date(2026, 2, 1))
    asked = [
        engine.planner.targets(engine.compile(text, session), session)
        for text in (*texts[:2], "SELECT COUNT(*) FROM people")
    ]
    later = ahead(asked, [1])
    assert len(later) == 3 + 4 * 2
    expected = engine.planner.targets(
        engine.compile(windows(date(2026, 2, 3))[1], session), session
    )
    (moved,) = later[3 + 2 + 1]
    assert moved.family.key == expected[0].family.key
    engine.close()


def test_what_is_adopted_is_followed_by_who_is_open(small):
    """
    The line of the ledger is followed by other engines, and by those that open later; the audit
    log says what would have been paid.
    """
    small.made(privacy("auto")).close()
    with closing(small.engine()) as one, closing(small.engine()) as two:
        assert two.session().execute("SELECT COUNT(*) FROM people WHERE age < 0").cost == 0
        texts = [f"SELECT COUNT(*) FROM people WHERE age < {age}" for age in range(10, 0, -1)]
        found = compare(one, [("", text) for text in texts], 10)
        name = found.adopted["strategy"]
        assert name in ("pieces", "marginals")
        adopt(one, found, "sam")
        explained = two.session().execute(f"EXPLAIN UTILITY {texts[1]}")
        assert any("is measured" in notice for notice in explained.notices)
        assert any(f"strategy auto is {name}: of 10 requests" in n for n in explained.notices)
        for text in texts:
            two.session().execute(text)
        (line,) = [line for line in one.ledger.audit() if line.kind == "strategy"]
        assert line.user == "sam"
        foreseen = line.detail["simulated"]
        assert two.budget().rules[0].spent == pytest.approx(foreseen[name]["alpha"], abs=1e-9)
        assert foreseen[name]["alpha"] < foreseen["topup"]["alpha"]
    with closing(small.engine()) as later:
        assert all(later.session().execute(text).cost == 0 for text in texts)


def test_init_follows_a_declared_workload(small):
    """
    Of a policy whose strategy is open and whose workload is a file; no answer is needed for it.
    """
    statements = [f"SELECT COUNT(*) FROM people WHERE age = {age};" for age in range(10)]
    (small.folder / "asked.sql").write_text("\n".join(statements))
    small.made(privacy("auto"), "workload: asked.sql\n").close()
    with closing(small.engine()) as engine:
        assert [line.kind for line in engine.ledger.audit()] == ["init", "strategy"]
        assert engine.budget().rules[0].spent == 0


def test_warm_up_is_measured_once(small):
    """
    At init and never again; each cell pays what was said, and first answers follow from it.
    """
    warm = ", warm_up: [{attributes: [age, town], alpha: 0.25}, {attributes: [town], alpha: 0.1}]"
    small.made(privacy("topup", warm)).close()
    with closing(small.engine()) as engine:
        assert engine.budget().rules[0].spent == pytest.approx(0.35)
        assert engine.budget().rules[0].spent <= 0.35
        session = engine.session()
        free = "SELECT COUNT(*) FROM people WHERE town = 'a' WITH UTILITY (25, 0.1)"
        assert session.execute(free).cost == 0
        assert [line.statement for line in engine.history()] == [
            "warm_up: hierarchy of age, town",
            "warm_up: hierarchy of town",
        ]
    with closing(small.engine()) as engine:
        assert len(engine.history()) == 2


def test_a_warm_up_may_take_all_and_no_more(small):
    """
    All of the budget can be said; what with the rest is more is refused, once the state is there.
    """
    small.made(privacy("topup", ", warm_up: [{attributes: [age], alpha: 1}]")).close()
    with closing(small.engine()) as engine:
        assert engine.budget().rules[0].left < 1e-6
    more = ", warm_up: [{attributes: [age], alpha: 1}, {attributes: [town], alpha: 0.1}]"
    small.write(privacy("topup", more))
    with pytest.raises(InsufficientBudgetError):
        init(small.policy, small.folder / "other", accept_second_budget=True)
    with closing(Engine.open(small.policy, small.folder / "other")) as engine:
        assert engine.budget().rules[0].spent == pytest.approx(1)


@pytest.mark.parametrize("alpha", ["1000000", "0.000000000000000001"])
def test_a_warm_up_that_cannot_be_measured_is_refused(small, alpha, capsys):
    """
    Its charge is past what can be written down, or its noise past what is drawn.
    """
    warm = f", warm_up: [{{attributes: [age], alpha: {alpha}}}]"
    small.write(privacy("topup", warm, budget=1_000_000))
    assert run(["init", str(small.policy)]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_a_warm_up_that_was_stopped_is_finished_by_init(small, monkeypatch):
    """
    Whether it was killed or refused: init again measures what is missing, and then is refused as
    ever; a state that somebody has asked is not warmed up any more.
    """
    warm = ", warm_up: [{attributes: [age], alpha: 0.2}, {attributes: [town], alpha: ALPHA}]"
    small.write(privacy("topup", warm.replace("ALPHA", "0.9")))
    with pytest.raises(InsufficientBudgetError, match="costs more") as refused:
        init(small.policy)
    assert "say init again" in refused.value.hint
    small.write(privacy("topup", warm.replace("ALPHA", "0.3")))
    apply(small.policy)
    init(small.policy)
    with closing(small.engine()) as engine:
        assert engine.budget().rules[0].spent == pytest.approx(0.5)
    with pytest.raises(StateError, match="already the state"):
        init(small.policy)
    other = small.folder / "other"
    monkeypatch.setattr(LocalPlanner, "warm_up", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        init(small.policy, other, accept_second_budget=True)
    monkeypatch.undo()
    with closing(Engine.open(small.policy, other)) as engine:
        engine.session().execute("SELECT COUNT(*) FROM people")
    with pytest.raises(StateError, match="already the state"):
        init(small.policy, other, accept_second_budget=True)


def test_init_says_that_it_has_finished_a_warm_up(small, capsys, monkeypatch):
    """
    And nothing of a ledger that was copied.
    """
    small.write(privacy("topup", ", warm_up: [{attributes: [age], alpha: 0.2}]"))
    with monkeypatch.context() as stopped:
        stopped.setattr(LocalPlanner, "warm_up", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            init(small.policy)
    assert run(["init", str(small.policy)]) == 0
    said = capsys.readouterr().out
    assert said == "What warm_up says was measured; `budget` says what is left.\n"


def test_a_script_that_releases_nothing_is_for_everybody(small):
    """
    As its statements are: a steward, who is no analyst, may run them.
    """
    small.users(sam="roles: [steward]")
    small.made(privacy("topup")).close()
    with proxy.connect(small.policy, user="sam") as connection:
        cursor = connection.cursor().executescript("SELECT 1 AS one; SELECT 2 AS two")
        assert cursor.fetchall() == [(1,)]
        assert cursor.nextset()
        assert cursor.fetchall() == [(2,)]


def test_a_policy_says_what_is_wrong_with_a_warm_up(small, capsys):
    """
    Attributes and measures that there are, with the nearest, and no more than the budget.
    """
    small.write(privacy("topup", ", warm_up: [{attributes: [agee], alpha: 2, measure: pay}]"))
    assert run(["init", str(small.policy)]) == 2
    said = capsys.readouterr().err
    assert "no attribute agee" in said
    assert "age" in said
    assert "2 is more than the budget 1" in said
    assert "no measure pay" in said
    same = "{attributes: [age, town], alpha: 0.1}, {attributes: [town, age], alpha: 0.2}"
    small.write(privacy("topup", f", warm_up: [{same}]"))
    assert run(["init", str(small.policy)]) == 2
    assert "the same cells are there twice" in capsys.readouterr().err


# --- several statements ----------------------------------------------------------------------


SCRIPT = (
    "SELECT COUNT(*) FROM people WITH UTILITY (20, 0.1)",
    "SELECT town, COUNT(*) FROM people GROUP BY town WITH UTILITY (9, 0.1)",
    "SELECT COUNT(*) FROM people WHERE town = 'a' WITH UTILITY (9, 0.1)",
)


@pytest.mark.parametrize("strategy", ["topup", "pieces"])
def test_a_script_costs_no_more_than_its_statements(small, strategy):
    """
    The dearest is planned first, the others follow from it; results come in their order, and each
    statement is free afterwards.
    """
    small.made(privacy(strategy)).close()
    with proxy.connect(small.policy) as connection:
        cursor = connection.cursor().executescript("; ".join(SCRIPT))
        shapes = [(cursor.rowcount, cursor.cost)]
        while cursor.nextset():
            shapes.append((cursor.rowcount, cursor.cost))
        assert [rows for rows, _ in shapes] == [1, 2, 1]
        assert [cost for _, cost in shapes[1:]] == [0, 0]
        together = shapes[0][1]
        assert all(connection.execute(text).cost == 0 for text in SCRIPT)
    init(small.policy, small.folder / "apart", accept_second_budget=True)
    with proxy.connect(small.policy, state=small.folder / "apart") as connection:
        apart = sum(connection.execute(text).cost for text in SCRIPT)
    assert 0 < together <= apart * 1.000001
    assert strategy == "pieces" or together < apart * 0.9


def test_what_is_refused_together_is_answered_as_far_as_it_goes(small):
    """
    A script that the budget does not allow fails at the statement that it has no budget for;
    before that statements are answered, and are free again.
    """
    small.made(privacy("topup", budget=0.5)).close()
    dear = "SELECT age, COUNT(*) FROM people GROUP BY age WITH UTILITY (1, 0.1)"
    with proxy.connect(small.policy) as connection:
        with pytest.raises(proxy.OperationalError, match="refused") as failed:
            connection.cursor().executescript(f"{SCRIPT[0]}; {dear}; {SCRIPT[1]}")
        with closing(small.engine()) as engine:
            assert failed.value.cost == pytest.approx(engine.budget().rules[0].spent)
        assert failed.value.cost > 0
        assert "kept, and free to ask again" in failed.value.hint
        assert connection.execute(SCRIPT[0]).cost == 0
        assert connection.execute(SCRIPT[1]).cost > 0


def test_a_script_may_change_its_session(small):
    """
    Then each statement is measured by itself, under what the ones before it have set.
    """
    small.made(privacy("topup")).close()
    with proxy.connect(small.policy) as connection:
        cursor = connection.cursor().executescript(
            "SET privacy.utility = '30, 0.1'; SELECT COUNT(*) FROM people; SHOW privacy.utility"
        )
        assert cursor.nextset()
        assert cursor.cost > 0
        assert cursor.nextset()
        assert cursor.fetchone() == ("30, 0.1",)
        assert cursor.nextset() is None


# --- the command -----------------------------------------------------------------------------


@pytest.fixture
def workload(small):
    path = small.folder / "asked.sql"
    path.write_text(
        "SELECT COUNT(*) FROM people;\nSELECT age, COUNT(*) FROM people GROUP BY age;\n"
        "SELECT nothing FROM people;\n"
    )
    return path


def test_plan_needs_no_state_and_makes_none(small, workload, capsys):
    """
    Before init: each strategy with what it would answer and spend, and what could not be read.
    """
    small.write(privacy("topup"))
    assert run(["plan", str(small.policy), str(workload)]) == 0
    said = capsys.readouterr().out
    assert "strategy: " in said
    assert 'skipped: SELECT nothing FROM people: column "nothing" does not exist' in said
    assert not small.state.exists()
    assert run(["plan", "--json", str(small.policy), str(workload)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["requests"] == 2
    by_name = {each["strategy"]: each for each in found["strategies"]}
    assert {"paper", "topup", "pieces"} <= by_name.keys()
    assert by_name["topup"]["answered"] == 2


LIMITS = """\
analysts:
  olga: {budget: 0.25, history: own}
  bob: {budget: 0.3}
  eve: {spend: false}
"""


@pytest.mark.parametrize(
    "user, budget, limit",
    [
        ("olga", 0.25, "the budget of the cells"),
        ("bob", 0.3, "analyst bob"),
        ("eve", 0, "analyst eve, who may only infer"),
        ("ann", 0.75, "the budget of the cells"),
        (None, 0.75, "the budget of the cells"),
    ],
)
def test_a_plan_keeps_to_the_limit_that_binds_its_user(small, capsys, user, budget, limit):
    """
    A cap counts what statements spend together, each its dearest cell; it is what is foreseen for
    a user that the user then may do.
    """
    small.write(privacy("topup"), LIMITS)
    workload = small.folder / "asked.sql"
    asked = [
        f"SELECT COUNT(*) FROM people WHERE age = {age} WITH UTILITY (20, 0.1)" for age in range(9)
    ]
    workload.write_text(";\n".join(asked))
    where = [str(small.policy), str(workload), *(["--user", user] if user else [])]
    assert run(["plan", *where]) == 0
    assert f"{budget:g} may be spent: {limit}" in capsys.readouterr().out
    assert run(["plan", "--json", *where]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["budget"] == pytest.approx(budget, abs=1e-9)
    (foreseen,) = (each for each in found["strategies"] if each["strategy"] == "topup")
    with closing(small.made(privacy("topup"), LIMITS)) as engine:
        session, answered = engine.session(user), 0
        for text in asked:
            with suppress(InsufficientBudgetError):
                session.execute(text)
                answered += 1
        assert foreseen["answered"] == answered
        if user == "bob":
            assert 0 < answered < len(asked)
            left = engine.left(engine.privileges(user))
            assert left.spent / left.budget == pytest.approx(foreseen["alpha"] / budget)


def test_what_a_plan_foresees_is_what_is_paid(small, workload, capsys):
    """
    The alpha of a simulation is what the same statements then cost in truth.
    """
    for strategy in ("topup", "paper", "pieces"):
        small.write(privacy(strategy))
        state = small.folder / strategy
        init(small.policy, state, accept_second_budget=True)
        where = ["--json", "--state", str(state), str(small.policy), str(workload)]
        assert run(["plan", *where]) == 0
        found = json.loads(capsys.readouterr().out)["strategies"]
        (foreseen,) = (each["alpha"] for each in found if each["strategy"] == strategy)
        with closing(Engine.open(small.policy, state)) as engine:
            assert engine.budget().rules[0].spent == 0
            for text in workload.read_text().split(";\n")[:2]:
                engine.session().execute(text)
            assert engine.budget().rules[0].spent == pytest.approx(foreseen, abs=1e-9)


def test_requests_say_which_statement_is_asked_how_well(small, workload, capsys):
    """
    One line for each time; what is wrong with a line is said, with its number.
    """
    small.write(privacy("topup"))
    requests = small.folder / "requests.csv"
    requests.write_text("statement,half_width,delta\n1,20,0.1\n1,10,0.1\n2,30,0.05\n")
    call = ["plan", "--json", str(small.policy), str(workload), "--requests", str(requests)]
    assert run(call) == 0
    assert json.loads(capsys.readouterr().out)["requests"] == 3
    for line, told in (
        ("7,1,0.1", "no number 7"),
        ("1,wide,0.1", "not a statement's number"),
        ("1,nan,0.1", "half_width above 0"),
        ("1,5,2", "between 0 and 1"),
    ):
        requests.write_text(f"1,20,0.1\n{line}\n")
        assert run(call) == 2
        said = capsys.readouterr().err
        assert "line 2: " in said
        assert told in said


def test_a_plan_is_adopted_where_the_strategy_is_open_alone(small, workload, capsys):
    """
    Of another policy nothing is written.
    """
    small.made(privacy("topup")).close()
    assert run(["plan", "--adopt", str(small.policy), str(workload)]) == 2
    assert "privacy.strategy is auto" in capsys.readouterr().err
    with closing(small.engine()) as engine:
        assert [line.kind for line in engine.ledger.audit()] == ["init"]


# --- what was adopted, and what cannot be read ------------------------------------------------


BASE = {"axes": ["town"], "of": {"COUNT(*)": 1}, "grid": "1", "tree": False, "alpha": 0.5}
PAID = {"of": {"SUM(pay)": 1}, "axes": ["age"]}


@pytest.mark.parametrize(
    "chosen",
    [
        {"strategy": "marginals", "bases": [BASE | PAID]},  # the measure is gone
        {"strategy": "marginals", "bases": [BASE | {"axes": ["city"]}]},
        {"strategy": "marginals", "bases": [BASE | {"grid": "0"}, BASE | {"of": {}}, {}, None]},
        {"strategy": "marginals", "bases": [BASE | {"of": {"COUNT(*)": 2**70}}]},
        {"strategy": "marginals", "bases": "all"},
        {"strategy": ["marginals"]},
        {},
    ],
)
def test_bases_that_the_policy_has_no_more_are_passed_over(small, chosen):
    """
    Statements are answered by the other bases, or as if nothing had been adopted.
    """
    small.made(privacy("auto", budget=9)).close()
    text = "SELECT COUNT(*) FROM people WHERE town = 'a' WITH UTILITY (10, 0.1)"
    with closing(small.engine()) as engine:
        for detail in (chosen, {"strategy": "marginals"}):
            with engine.ledger.transaction() as tx:
                tx.audit("strategy", "sam", detail=detail)
            explained = engine.session().execute(f"EXPLAIN UTILITY {text}")
            assert explained.rows[0][3] > 0
        bases = chosen.get("bases")
        with engine.ledger.transaction() as tx:
            more = [*bases, BASE] if isinstance(bases, list) else [BASE]
            tx.audit("strategy", "sam", detail={"strategy": "marginals", "bases": more})
        explained = engine.session().execute(f"EXPLAIN UTILITY {text}")
        assert any("COUNT(*) of town" in notice for notice in explained.notices)
        assert engine.session().execute(text).rows == [(245,)]


def test_a_base_that_has_become_too_large_is_passed_over(small):
    """
    An attribute may have more values by now than a base may have rows.
    """
    domain = DOMAIN.replace("range: [0, 9]", "range: [0, 9999]")
    engine = small.made(privacy("auto", budget=9), domain=domain)
    with closing(engine), engine.ledger.transaction() as tx:
        tx.audit(
            "strategy", "", detail={"strategy": "marginals", "bases": [BASE | {"axes": ["age"]}]}
        )
    with closing(small.engine()) as engine:
        (row,) = engine.session().execute("SELECT COUNT(*) FROM people WHERE age < 3").rows
        assert row == (126,)
        assert [each.family.rows for each in engine.ledger.measurements()] == [1]


@pytest.mark.parametrize(("data", "told"), [(b"SELECT \xff", "UTF-8"), (b"SELECT 'a", "quotation")])
def test_a_workload_that_is_no_text_stops_init_before_there_is_a_state(small, data, told, capsys):
    """
    So that init, once it is mended, still chooses and measures; ``plan`` says the same of it.
    """
    file = small.folder / "asked.sql"
    file.write_bytes(data)
    warm = ", warm_up: [{attributes: [town], alpha: 0.25}]"
    small.write(privacy("auto", warm), "workload: asked.sql\n")
    for call in (["init", str(small.policy)], ["plan", str(small.policy)]):
        assert run(call) == 2
        assert told in capsys.readouterr().err
    file.write_text("SELECT COUNT(*) FROM people;")
    assert run(["init", str(small.policy)]) == 0
    assert "The ledger is empty" not in capsys.readouterr().out
    with closing(small.engine()) as engine:
        kinds = [line.kind for line in engine.ledger.audit()]
        assert kinds == ["init", "strategy", "measured"]


def test_requests_that_are_no_csv_are_an_error(small, workload, capsys):
    """
    Binary files, and fields longer than any statement's number.
    """
    small.made(privacy("topup")).close()
    requests = small.folder / "requests.csv"
    for data in (b"\xff\xfe,1\n", b"1," + b"1" * 200_000):
        requests.write_bytes(data)
        assert run(["plan", str(small.policy), str(workload), "--requests", str(requests)]) == 2
        assert "cannot be read as CSV" in capsys.readouterr().err
