"""How good a number must be that says nothing itself: which default holds, and what is refused."""

import itertools
import re
from contextlib import closing
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import proxy
import proxy.policy as policies
from proxy.cli import run
from proxy.errors import Error, PolicyError, UtilityError
from proxy.policy import scram_verifier
from proxy.policy.kinds import decimal
from proxy.settings import defaults, utility
from tests.small import Small

DOMAIN = """\
dataset: people
source: {engine: duckdb, path: people.csv}
max_records: 1000
outside: drop
nulls: drop
attributes:
  age: {type: integer, range: [0, 9]}
  town: {values: [a, b]}
measures:
  wage: {clip: [0, 100], quantum: 1, utility: {half_width: 900, delta: 0.2}, column: age}
  debt: {clip: [0, 100], quantum: 1, column: age}
privacy: {budget: 1000, unit: row}
"""
POLICY = "utility: {half_width: 10, delta: 0.1}\n"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A dataset of two measures, one of which has a default, and of ten people."""
    small = Small(tmp_path_factory.mktemp("defaults"))
    small.data((1, "a", 6), (5, "b", 4))
    small.users(ann="roles: [analyst], utility: {half_width: 20, delta: 0.15}")
    small.made("", POLICY, DOMAIN).close()
    return small


@pytest.fixture(scope="module")
def engine(small):
    engine = small.engine()
    yield engine
    engine.close()


def confidence(engine, number, user=None, wish=None, text=None, clause=""):
    """Ask for a number; return the confidence that it was given: it says which default held."""
    session = engine.session(user, wish)
    if text is not None:
        session.execute(f"SET privacy.utility = '{text}'")
    answers = session.execute(f"SELECT {number} FROM people {clause}").answers
    return answers[0][0].confidence


@pytest.mark.parametrize(
    "number, pair, named",
    [
        ("COUNT(*)", 0.7, 0.7),
        ("SUM(1)", 0.7, 0.7),
        ("SUM(wage)", 0.8, 0.6),
        ("sum( p.wage )", 0.8, 0.6),
    ],
)
def test_a_pair_without_a_name_is_of_counts(engine, number, pair, named):
    """
    As a setting, or what a session begins with, it leaves a measure its default; a name is nearer.
    A clause is of all numbers.
    """
    table = "people p" if "p." in number else "people"
    for wish, text in ((None, "30, 0.3"), ((30, 0.3), None), ("30, 0.3", None)):
        session = engine.session(None, wish)
        if text:
            session.execute(f"SET privacy.utility = '{text}'")
        got = session.execute(f"SELECT {number} FROM {table}").answers[0][0].confidence
        assert got == pytest.approx(pair)
    for text in (
        "30, 0.3; wage 800, 0.4",
        "wage (800, 0.4), (30, 0.3)",
        'SUM("wage") 800, 0.4; 30, 0.3',
    ):
        session = engine.session(None, text)
        got = session.execute(f"SELECT {number} FROM {table}").answers[0][0].confidence
        assert got == pytest.approx(named)
        got = session.execute(f"SELECT {number} FROM {table} WITH UTILITY (900, 0.45)")
        assert got.answers[0][0].confidence == pytest.approx(0.55)


def test_the_nearest_default_holds(engine):
    """
    Clause, setting, what the session began with, user, policy; each where the nearer are silent.
    """
    assert confidence(engine, "COUNT(*)") == pytest.approx(0.9)
    assert confidence(engine, "COUNT(*)", "ann") == pytest.approx(0.85)
    assert confidence(engine, "COUNT(*)", "ann", (30, 0.3)) == pytest.approx(0.7)
    assert confidence(engine, "COUNT(*)", "ann", (30, 0.3), "30, 0.35") == pytest.approx(0.65)
    assert confidence(engine, "COUNT(*)", "ann", (30, 0.3), "wage 9, 0.35") == pytest.approx(0.7)
    assert confidence(engine, "SUM(wage)", "ann", (30, 0.3)) == pytest.approx(0.8)
    clause = "WITH UTILITY (40, 0.25)"
    assert confidence(engine, "COUNT(*)", "ann", (30, 0.3), "9, 0.4", clause) == pytest.approx(0.75)


@pytest.mark.parametrize("number, name", [("SUM(debt)", "debt"), ("SUM(age)", "SUM(age)")])
def test_a_number_without_a_default_says_how_to_name_one(engine, number, name):
    """
    The hint, with numbers in it, is then enough.
    """
    session = engine.session(None, (50, 0.05))
    with pytest.raises(UtilityError, match="how good must") as caught:
        session.execute(f"SELECT {number} FROM people")
    assert f"SET privacy.utility = '{name} half_width, delta'" in caught.value.hint
    session.execute(f"SET privacy.utility = '{name} 700, 0.3'")
    assert session.execute(f"SELECT {number} FROM people").answers[0][0].confidence == 0.7


def test_a_mean_has_its_own_default_or_the_sessions_pair(engine):
    """
    What is good enough for a sum says nothing of it.
    """
    with pytest.raises(UtilityError, match="how good must AVG"):
        engine.session().execute("SELECT AVG(wage) FROM people")
    assert confidence(engine, "AVG(wage)", wish="200, 0.3") == pytest.approx(0.7)
    assert confidence(engine, "AVG(wage)", wish="200, 0.3; AVG(wage) 200, 0.4") == pytest.approx(
        0.6
    )


def test_a_name_that_is_no_column_is_an_error(engine):
    """
    It would be passed over in silence else.
    """
    session = engine.session(None, "50, 0.05; wages 5, 0.05")
    with pytest.raises(UtilityError, match='"wages", which is no column of people') as caught:
        session.execute("SELECT COUNT(*) FROM people")
    assert caught.value.hint == "did you mean wage or age?"


def test_show_says_what_holds(engine):
    """
    What was set as it was written; else what the session began with, or the policy's defaults.
    """
    session = engine.session("ann")
    assert session.execute("SHOW privacy.utility").rows == [("20, 0.15",)]
    session.execute("SET privacy.utility = '5 PERCENT, .05'")
    assert session.execute("SHOW privacy.utility").rows == [("5 PERCENT, .05",)]
    session.execute("RESET privacy.utility")
    assert session.execute("SHOW privacy.utility").rows == [("20, 0.15",)]
    assert engine.session().execute("SHOW privacy.utility").rows == [("10, 0.1; wage 900, 0.2",)]


NAMES = st.sampled_from(["wage", "debt", '"Wage"', "AVG(wage)", "sum( debt )", "COUNT(*)"])
NUMBERS = st.fractions(Fraction(1, 1000), 10**6).map(lambda f: f"{float(f):.6f}")
ITEMS = st.tuples(
    NAMES | st.just(""), NUMBERS, st.sampled_from(["", " PERCENT", "%"]), st.just("0.05")
)


@settings(max_examples=100)
@given(
    items=st.lists(ITEMS, max_size=4, unique_by=lambda item: item[0].lower().replace(" ", "")),
    brackets=st.booleans(),
)
def test_what_is_shown_of_a_setting_says_the_same(items, brackets):
    """
    Written again, and read again, it is the same.
    """
    pair = "({}{}, {})" if brackets else "{}{}, {}"
    text = (", " if brackets else "; ").join(
        f"{name} " + pair.format(*rest) for name, *rest in items if name not in ("sum( debt )",)
    )
    assert utility(str(utility(text))) == utility(text)


# --- what no request may say, at any door ---

WRONG = {
    "0, 0.05": "half_width must be more than 0",
    "-1, 0.05": "half_width must be more than 0",
    "1e19, 0.05": "half_width is out of any useful range",
    "1e-10, 0.05": "half_width is out of any useful range",
    "50, 0": "delta must be between 0 and 1",
    "50, -0.05": "delta must be between 0 and 1",
    "50, 1": "delta must be between 0 and 1",
    "50, 95": "delta must be between 0 and 1",
    "50, 0.95": "delta must be at most 0.5",
    "50, 0.5000001": "delta must be at most 0.5",
    "50, 1e-10": "delta is out of any useful range",
    "nan, 0.05": "two numbers",
    "inf, 0.05": "two numbers",
    "50, nan": "two numbers",
    "50": "two numbers",
    "50, 0.05, 3": "two numbers",
}
EVERYWHERE = [pair for pair, said in WRONG.items() if said != "two numbers"]


def test_an_exponent_that_no_decimal_has_is_out_of_range():
    """
    Which Python's own decimals cannot read, though it is written as a number.
    """
    for pair in ("1e99999999999999999999, 0.05", "50, 1e-99999999999999999999"):
        with pytest.raises(UtilityError, match="out of any useful range"):
            utility(pair)


def by_setting(small, pair):
    with closing(small.engine()) as engine:
        engine.session().execute(f"SET privacy.utility = '{pair}'")


def by_name(small, pair):
    with closing(small.engine()) as engine:
        engine.session().execute(f"SET privacy.utility = '50, 0.05; wage {pair}'")


def by_text(small, pair):
    return proxy.connect(small.policy, utility=pair)


def by_connect(small, pair):
    return proxy.connect(small.policy, utility=tuple(float(part) for part in pair.split(",")))


def by_url(small, pair):
    sqlalchemy = pytest.importorskip("sqlalchemy")
    url = f"privacyproxy:///{small.policy}?utility={pair.replace(' ', '')}"
    try:
        sqlalchemy.create_engine(url).connect()
    except sqlalchemy.exc.DBAPIError as error:
        raise error.orig from None


def by_clause(small, pair):
    with closing(small.engine()) as engine:
        engine.session().execute(f"SELECT COUNT(*) FROM people WITH UTILITY ({pair})")


def by_hint(small, pair):
    with closing(small.engine()) as engine:
        engine.session().execute(f"/*+ UTILITY({pair}) */ SELECT COUNT(*) FROM people")


def by_column(small, pair):
    with closing(small.engine()) as engine:
        engine.session().execute(f"SELECT COUNT(*) AS n FROM people WITH UTILITY n ({pair})")


def by_policy(small, pair):
    write(small, "utility: {half_width: 10, delta: 0.1}", pair)


def by_measure(small, pair):
    write(small, "utility: {half_width: 900, delta: 0.2}", pair)


def write(small, old, pair):
    """Write a pair into a copy of the policy, and load it."""
    half, delta = (yaml(part) for part in pair.split(","))
    text = (DOMAIN + POLICY).replace(old, f"utility: {{half_width: {half}, delta: {delta}}}")
    path = small.folder / "wrong.yaml"
    path.write_text(text)
    policies.load(path)


def by_user(small, pair):
    half, delta = (yaml(part) for part in pair.split(","))
    verifier = scram_verifier("x", 1, b"salt")
    path = small.folder / "others.yaml"
    path.write_text(
        f"users:\n  ann:\n    password: {verifier}\n    roles: [analyst]\n"
        f"    utility: {{half_width: {half}, delta: {delta}}}\n"
    )
    policies.load_users(path)


def yaml(number):
    """Return a number as a policy takes it: 1e19 is text to some readers of YAML."""
    return decimal(Fraction(number.strip()))


DOORS = (by_setting, by_name, by_text, by_connect, by_url, by_clause, by_hint, by_column)
FILES = (by_policy, by_measure, by_user)


@pytest.mark.parametrize("door, pair", list(itertools.product((*DOORS, *FILES), EVERYWHERE)))
def test_one_rule_holds_at_every_door(small, door, pair):
    """
    half_width is more than 0, delta a chance of being wrong of one half at most; files, whose table
    of keys names the bounds, say it in their own words.
    """
    with pytest.raises(Error) as caught:
        door(small, pair)
    if door not in FILES or "0.5" in WRONG[pair]:
        assert WRONG[pair] in str(caught.value)
        assert caught.value.hint
    if "at most 0.5" in WRONG[pair]:
        assert "for 95% write 0.05" in caught.value.hint


@pytest.mark.parametrize("pair", WRONG)
@pytest.mark.parametrize("command", ["query", "explain"])
def test_the_command_line_holds_it_too(small, capsys, command, pair):
    """
    Status 2, what is wrong, and a hint.
    """
    call = [command, str(small.policy), "SELECT COUNT(*) FROM people", "--utility", pair]
    assert run(call) == 2
    error, advice = capsys.readouterr().err.splitlines()
    assert WRONG[pair] in error
    assert advice.startswith("hint: ")


@pytest.mark.parametrize("door", [*DOORS, *FILES])
def test_even_odds_are_a_request(small, door):
    """
    One half is its own confidence: nobody can have meant another.
    """
    opened = door(small, "50, 0.5")
    if opened is not None:
        opened.close()


# --- every kind of number, in its units or in per cent ---

KINDS = {  # number -> the name of its default, and of every column's
    "COUNT(*)": ("COUNT(*)", None),
    "SUM(wage)": ("wage", "SUM(*)"),
    "SUM(age)": ("SUM(age)", "SUM(*)"),
    "AVG(wage)": ("AVG(wage)", "AVG(*)"),
    "AVG(age)": ('avg("age")', "AVG(*)"),
}
PAIRS = {"9, 0.3": 0.7, "90 PERCENT, 0.35": 0.65}


@pytest.mark.parametrize("number, pair", list(itertools.product(KINDS, PAIRS)))
def test_a_default_of_each_kind_holds_at_each_door(engine, small, number, pair):
    """
    In the session, in what it begins with, and in the policy; that of a column before every one's.
    """
    own, every = KINDS[number]
    wanted = pytest.approx(PAIRS[pair])
    for name in filter(None, KINDS[number]):
        assert confidence(engine, number, wish=f"{name} {pair}") == wanted
        assert confidence(engine, number, text=f"1, 0.05; {name} ({pair})") == wanted
        assert confidence(engine, number, clause=f"WITH UTILITY ({pair})") == wanted
        which = "percent" if "PERCENT" in pair else "half_width"
        half, delta = pair.split()[0].rstrip(","), pair.split()[-1]
        told = f"utilities: {{'{name}': {{{which}: {half}, delta: {delta}}}}}\n"
        path = small.folder / "kinds.yaml"
        path.write_text(DOMAIN.replace("utility: {half_width: 900, delta: 0.2}, ", "") + told)
        found = defaults(policies.load(path)).named
        assert [(each.half_width, each.relative) for each in found.values()] == [
            (int(half), which == "percent")
        ]
    if every:
        text = f"{every} 1, 0.05; {own} {pair}"
        assert confidence(engine, number, wish=text) == wanted


@pytest.mark.parametrize(
    "told, said",
    [
        ("{'MAX(age)': {half_width: 1, delta: 0.1}}", "max is none of COUNT, SUM, AVG, QUANTILE"),
        ("{'AVG(ages)': {half_width: 1, delta: 0.1}}", "no attribute or measure ages"),
        ("{'AVG(age)': {delta: 0.1}}", "half_width: missing"),
        ("{'AVG(age)': {half_width: 1, percent: 3, delta: 0.1}}", "keep one of the two"),
        ("{'AVG(age)': {percent: 1, delta: 0.9}}", "0.5"),
        ("{age: {percent: 1, delta: 0.1}, SUM(age): {percent: 1, delta: 0.1}}", "twice"),
    ],
)
def test_a_default_that_means_nothing_is_refused(small, told, said):
    """
    With line and key, as any of the policy.
    """
    path = small.folder / "wrong.yaml"
    path.write_text(f"{DOMAIN}utilities: {told}\n")
    with pytest.raises(PolicyError, match=said) as caught:
        policies.load(path)
    assert caught.value.line == len(DOMAIN.splitlines()) + 1
    assert caught.value.key.startswith("utilities.")


@pytest.mark.parametrize("number", ["AVG(wage)", "AVG(age)"])
@pytest.mark.parametrize("percent", ["20", "3", "0.4"])
def test_a_mean_within_a_percentage_is_that_near(engine, number, percent):
    """
    In steps; asked again it is the same, for nothing.
    """
    text = f"SELECT {number} FROM people WITH UTILITY ({percent} PERCENT, 0.1)"
    first, again = (engine.session().execute(text) for _ in range(2))
    ((answer,),) = first.answers
    assert first.notices == again.notices == ()
    assert again.cost == 0
    assert answer.low <= 2.6 <= answer.high
    assert answer.high - answer.low <= 2 * float(percent) / 100 * 2.6
    assert again.rows == first.rows


@pytest.mark.slow
def test_a_mean_of_nothing_has_no_percentage_and_costs_the_others_nothing(tmp_path):
    """
    Its interval stays, with a notice of how many groups; the others are met, at the price that they
    have without it.
    """
    costs = []
    for ages in ("a, b, c", "a, b"):
        small = Small(tmp_path / str(len(costs)))
        small.folder.mkdir()
        small.data((3, "a", 500), (5, "b", 300), (0, "c", 400))
        domain = DOMAIN.replace("[a, b]", f"[{ages}]").replace("1000", "10000")
        engine = small.made("", POLICY, domain)
        text = "SELECT town, AVG(age) FROM people GROUP BY town WITH UTILITY (5 PERCENT, 0.1)"
        result = engine.session().execute(text)
        costs.append(result.cost)
        for (town, mean), (answer,) in zip(result.rows, result.answers, strict=True):
            assert answer.low <= mean <= answer.high
            if town != "c":
                assert answer.high - answer.low <= 0.1 * float(mean)
        assert ["1 of 3" in notice for notice in result.notices] == [True] * (len(costs) == 1)
        engine.close()
    assert costs[0] <= 1.2 * costs[1]


def test_what_takes_most_of_the_price_is_said(tmp_path):
    """
    A count within what is meant for a mean beside it, in EXPLAIN UTILITY and in a notice, with a
    clause that can be sent; not where each number has a request of its own.
    """
    small = Small(tmp_path)
    small.data((3, "a", 600), (5, "b", 400))
    engine = small.made("", POLICY, DOMAIN.replace("budget: 1000", "budget: 10"))
    text = "SELECT AVG(age) AS a, COUNT(*) AS \"N\" FROM people WHERE town = 'a' "
    session = engine.session()
    asked = f"{text} WITH UTILITY (1, 0.1)"
    told = [n for n in session.explain(asked).notices if "takes" in n]
    result = session.execute(asked)
    (notice,) = result.notices
    assert re.fullmatch(
        r"COUNT\(\*\) takes \d\d% of what the statement costs, \S+ of \S+: a clause may ask it for "
        r'less, as WITH UTILITY \(1, 0.1\), "N" \(10, 0.1\)',
        notice,
    )
    assert told[0].partition("%")[0][:-2] == notice.partition("%")[0][:-2]
    clause = notice.partition(" as ")[2]
    again = session.execute(text.replace("= 'a'", "= 'b'") + clause)
    assert again.cost < result.cost / 3
    assert again.notices == ()
    engine.close()
