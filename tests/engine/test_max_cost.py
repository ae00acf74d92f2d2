"""What a statement may cost: never more is charged, what fits is given, what does not is said."""

import json
import re
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import proxy
from proxy.cli import run
from proxy.errors import InsufficientBudgetError, ProgrammingError, SQLSyntaxError, UtilityError
from tests.engine.conftest import begin_anew
from tests.small import DOMAIN, Small

UNIT = 2**40
WIDE = DOMAIN.replace("max_records: 1000", "max_records: 100000") + (
    "measures:\n  pay: {column: age, clip: [0, 10], quantum: 1}\n"
)
COUNT = "SELECT COUNT(*) FROM people"
FULL = 0.2187  # of COUNT within 10, delta 0.1: about


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Some hundred people in two towns, of some ages."""
    small = Small(tmp_path_factory.mktemp("cost"))
    small.data((3, "a", 40), (5, "a", 400), (5, "b", 260), (7, "b", 300))
    small.made("privacy: {budget: 5, unit: row}\n", domain=WIDE).close()
    return small


@pytest.fixture(scope="module")
def kept(small):
    engine = small.engine()
    yield engine
    engine.ledger.close()
    engine.close()


@pytest.fixture
def engine(kept):
    """The engine with a ledger of its own, that is forgotten."""
    ledger = kept.ledger
    begin_anew(kept)
    yield kept
    begin_anew(kept, ledger)


def charged(engine):
    """The sum of what the lines of the ledger were charged, in its own units."""
    return sum(line[3] for line in engine.ledger.lines[1:])


def ask(engine, text, **options):
    return engine.session(**options).execute(text)


def within(result):
    """The half-widths of the intervals of the first row."""
    return [(answer.high - answer.low) / 2 for answer in result.answers[0]]


# --- doors ---


@pytest.mark.parametrize(
    "text",
    [
        f"{COUNT} WITH UTILITY (10, 0.1), MAX COST 0.05",
        f"{COUNT} WITH UTILITY MAX COST .05",
        f"/*+ MAX_COST(0.05) */ {COUNT}",
        f"/*+ UTILITY(10, 0.1), MAX_COST(5e-2) */ {COUNT}",
        f"SELECT n FROM ({COUNT.replace('*)', '*) AS n')} WITH UTILITY (10, 0.1), MAX COST 0.05) t",
    ],
)
def test_a_statement_says_what_it_may_cost(engine, text):
    """
    In the clause, in a hint; in a subquery too, for a limit is of the whole statement.
    """
    result = ask(engine, text)
    assert 0.045 < result.cost <= 0.05
    assert charged(engine) <= 0.05 * UNIT
    assert within(result)[0] > 40
    (notice,) = result.notices
    found = re.fullmatch(
        r"COUNT\(\*\) is asked within (\d+) rather than 10, so that the statement costs at most "
        r"0\.05: as it was asked it would cost (\S+)",
        notice,
    )
    assert float(found[1]) >= within(result)[0]
    assert float(found[2]) == pytest.approx(FULL, rel=1e-3)


def test_the_least_limit_holds(engine):
    """
    No text passes what the session was given, and the session not what the text says.
    """
    session = engine.session(max_cost=0.02)
    assert session.execute("SHOW privacy.max_cost").rows == [("0.02",)]
    assert session.execute(f"{COUNT} WITH UTILITY MAX COST 0.05").cost <= 0.02
    session.execute("SET privacy.max_cost = 0.03")
    text = f"{COUNT} WHERE town = 'a'"
    assert 0.02 < session.execute(f"{text} WITH UTILITY MAX COST 0.05").cost <= 0.03
    assert session.execute(f"{text} AND age = 3 WITH UTILITY MAX COST 0.01").cost <= 0.01
    session.execute("SET privacy.max_cost = ''")
    session.execute("RESET privacy.max_cost")
    assert session.execute("SHOW privacy.max_cost").rows == [("0.02",)]


def test_it_can_be_said_at_every_door(small, capsys):
    """
    connect, the URL of SQLAlchemy, the command.
    """
    with proxy.connect(small.policy, max_cost=0.01) as connection:
        assert 0 < connection.execute(f"{COUNT} WHERE age = 7").cost <= 0.01
    sqlalchemy = pytest.importorskip("sqlalchemy")
    url = f"privacyproxy:///{small.policy}?utility=10,0.1&max_cost=0.01"
    with sqlalchemy.create_engine(url).connect() as connection:
        shown = connection.exec_driver_sql("SHOW privacy.max_cost").scalar()
    assert shown == "0.01"
    call = [str(small.policy), f"{COUNT} WHERE age = 6", "--max-cost", "0.01"]
    assert run(["query", *call, "--json"]) == 0
    assert 0 < json.loads(capsys.readouterr().out)["cost"] <= 0.01
    assert run(["explain", *call]) == 0
    assert run(["query", *call[:-1], "0"]) == 2


@pytest.mark.parametrize("wrong", ["0", "-1", "x", "1, 2", "nan", "inf", "5 PERCENT"])
def test_what_is_no_cost_is_refused(engine, wrong):
    """
    By the same words wherever it stands, and the session keeps what it had.
    """
    session = engine.session()
    for text in (f"SET privacy.max_cost = '{wrong}'", f"/*+ MAX_COST({wrong}) */ {COUNT}"):
        with pytest.raises(UtilityError, match="alpha above 0") as caught:
            session.execute(text)
        assert "privacy.spend" in caught.value.hint
    with pytest.raises((UtilityError, SQLSyntaxError)):
        session.execute(f"{COUNT} WITH UTILITY MAX COST {wrong}")
    with pytest.raises(ProgrammingError):
        engine.session(max_cost=wrong)
    assert session.execute("SHOW privacy.max_cost").rows == [("",)]


@pytest.mark.parametrize("far", ["1e400", "1e309", "1e-400", "1" + "0" * 400])
def test_no_cost_is_out_of_range(engine, far):
    """
    Wherever it stands: a number that no float holds is refused, and no fault of the proxy.
    """
    session = engine.session()
    for text in (
        f"SET privacy.max_cost = '{far}'",
        f"/*+ MAX_COST({far}) */ {COUNT}",
        f"{COUNT} WITH UTILITY (10, 0.1), MAX COST {far}",
    ):
        with pytest.raises(UtilityError, match="out of any useful range"):
            session.execute(text)
    with pytest.raises(UtilityError):
        engine.session(max_cost=far)
    assert session.execute("SHOW privacy.max_cost").rows == [("",)]


# --- what is given ---


def test_what_is_cheap_stays_as_it_was_asked(engine):
    """
    Of two numbers only the dear one is widened, and only it has a notice.
    """
    text = (
        f"{COUNT.replace('*)', '*) AS n, SUM(pay) AS s')} WITH UTILITY n (100, 0.1), s (100, 0.1)"
    )
    result = ask(engine, text, max_cost=0.1)
    assert within(result)[0] <= 100
    assert within(result)[1] > 100
    (notice,) = result.notices
    assert notice.startswith("SUM(pay) is asked within")
    assert 0.09 < result.cost <= 0.1


def test_what_is_known_is_given_whatever_the_limit(engine):
    """
    What is free is within any limit; what is known not so well is given, with the notice.
    """
    known = ask(engine, f"{COUNT} WITH UTILITY (20, 0.1)")
    for text in (f"{COUNT} WITH UTILITY (20, 0.1)", f"{COUNT} WITH UTILITY (15, 0.1)"):
        result = ask(engine, text, max_cost=1e-9)
        assert (result.cost, result.rows) == (0, known.rows)
        assert within(result) == within(known)
    assert result.notices[0].startswith("COUNT(*) is asked within")


def test_what_nothing_affords_is_refused(engine):
    """
    Nothing is charged; the refusal says the widest request that says anything, and its cost, with
    which it is answered.
    """
    with pytest.raises(InsufficientBudgetError, match=r"privacy\.max_cost") as caught:
        ask(engine, "SELECT COUNT(*) FROM people WITH UTILITY (10, 0.1)", max_cost=1e-5)
    assert charged(engine) == 0
    assert caught.value.requested == pytest.approx(FULL, rel=1e-3)
    assert (caught.value.spent, caught.value.left) == (0, pytest.approx(1e-5))
    found = re.fullmatch(
        r"the widest request that says anything, (.*), costs (\S+)", caught.value.hint
    )
    result = ask(engine, f"{COUNT} {found[1]}", max_cost=float(found[2]) * 1.001)
    assert 0 < result.cost <= float(found[2]) * 1.001
    for number in ("AVG(pay)", "SUM(pay), AVG(pay)"):
        with pytest.raises(InsufficientBudgetError):
            ask(
                engine,
                f"SELECT {number} FROM people WHERE age = 3 WITH UTILITY (1, 0.1)",
                max_cost=1e-7,
            )


def test_a_mean_is_given_as_near_as_the_limit_affords(engine):
    """
    With how much wider it is, what the step would have cost, and what is left of the limit.
    """
    text = "SELECT AVG(pay) FROM people WITH UTILITY (0.1, 0.1)"
    result = ask(engine, text, max_cost=0.1)
    assert 0.08 < result.cost <= 0.1
    assert 0.1 < within(result)[0] < 3
    (notice,) = result.notices
    assert re.search(r"within \S+ rather than 0\.1: the step that it needs costs \S+, and of the "
                     r"0\.1 that the statement may cost \S+ is left", notice)  # fmt: skip
    relative = ask(engine, f"{COUNT} WHERE age = 5 WITH UTILITY (1 PERCENT, 0.1)", max_cost=0.1)
    assert re.search(r"within \S+% rather than 1%: the step", relative.notices[0])


def test_explain_says_what_the_limit_affords(engine):
    """
    Costs within it, and the notices of the statement.
    """
    session = engine.session(max_cost=0.05)
    told = session.explain(COUNT)
    assert 0.045 < told.rows[0][3] <= 0.05
    assert told.notices == session.execute(COUNT).notices
    refused = engine.session(max_cost=1e-6).explain(f"{COUNT} WHERE age = 2")
    assert "would be refused" in refused.notices[0]
    assert "the widest request that says anything" in refused.notices[0]


# --- never more ---

NUMBERS = (
    "COUNT(*)",
    "SUM(pay)",
    "AVG(pay)",
    "SUM(age)",
    "MEDIAN(age)",
    "COUNT(*) / 2.0",
    "STDDEV(age)",
)


def written(numbers, group, where, half, percent, extra):
    """Return a statement; a percentage where every number takes one."""
    unit = " PERCENT" if percent and all(n.startswith(("COUNT", "SUM")) for n in numbers) else ""
    by = f" GROUP BY {', '.join(group)}" if group else ""
    clause = f"WITH UTILITY ({half}{unit}, 0.1){extra}"
    return f"SELECT {', '.join([*group, *numbers])} FROM people WHERE {where}{by} {clause}"


STATEMENTS = st.builds(
    written,
    numbers=st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=3, unique=True),
    group=st.sampled_from([[], ["town"], ["age"], ["town", "age"]]),
    where=st.sampled_from(["true", "age = 3", "town = 'b'", "age > 4 OR town = 'a'"]),
    half=st.sampled_from(["0.5", "2", "9", "31", "200"]),
    percent=st.booleans(),
    extra=st.sampled_from(["", "", ", MAX COST 0.003", ", MAX COST 1"]),
)
COSTS = st.sampled_from([1e-7, 1e-4, 0.001, 0.0123, 0.07, 0.3, 0.9])


@pytest.mark.slow
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(asked=st.lists(st.tuples(STATEMENTS, COSTS), min_size=1, max_size=4))
def test_no_statement_is_charged_more(kept, asked):
    """
    Whatever is asked, one after the other, in integers, over all lines of a statement; and its cost
    says no more.
    """
    ledger = kept.ledger
    begin_anew(kept)
    try:
        for text, most in asked:
            before = charged(kept)
            limit = min(Fraction(str(most)), Fraction("0.003") if "0.003" in text else 1)
            try:
                result = ask(kept, text, max_cost=most)
            except InsufficientBudgetError:
                pass
            else:
                assert Fraction(result.cost) <= limit
            paid = charged(kept) - before
            assert paid <= limit * UNIT
    finally:
        begin_anew(kept, ledger)


# --- refusals name what would fit ---


@pytest.mark.parametrize("numbers", ["COUNT(*)", "SUM(age)", "COUNT(*), SUM(pay)"])
@pytest.mark.parametrize("before", ["", f"{COUNT} WITH UTILITY (2, 0.1)"])
def test_a_refusal_names_the_nearest_request_that_fits(small, numbers, before):
    """
    It is answered, and a fifth narrower it is refused; where something is known of it, too.
    """
    engine = small.engine()
    ledger = engine.ledger
    begin_anew(engine)
    if before:
        ask(engine, before)
    text = f"SELECT {numbers} FROM people WHERE town = 'a'"
    with pytest.raises(InsufficientBudgetError) as caught:
        ask(engine, f"{text} WITH UTILITY (0.1, 1e-6)")
    said = caught.value.hint.partition(" would fit; else ask for")[0]
    if said.startswith("WITH UTILITY"):
        half = [float(re.search(r"\(([\d.]+),", said)[1])]
    else:
        half = [float(each) for each in re.findall(r"within ([\d.]+)", said)]
    assert len(half) <= len(numbers.split(","))
    columns = ["n", "s"][: len(numbers.split(","))]
    named = ", ".join(f"{n} AS {c}" for n, c in zip(numbers.split(", "), columns, strict=True))

    def request(times):
        pairs = [f"{c} ({h * times:.6f}, 1e-6)" for c, h in zip(columns, half * 2, strict=False)]
        return f"SELECT {named} FROM people WHERE town = 'a' WITH UTILITY {', '.join(pairs)}"

    with pytest.raises(InsufficientBudgetError):
        ask(engine, request(0.8))
    assert ask(engine, request(1)).cost > 0
    begin_anew(engine, ledger)
    engine.close()
