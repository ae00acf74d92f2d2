"""Medians and percentiles within a half-width of their column's units, met in steps."""

import math

import numpy as np
import pytest

import proxy.policy as policies
from proxy.engine import Engine, init
from proxy.errors import InsufficientBudgetError
from proxy.settings import defaults
from tests.engine.conftest import Memory, Silent, begin_anew

POLICY = """\
dataset: d
source: {engine: duckdb, path: d.csv}
max_records: 100000
outside: drop
nulls: drop
attributes:
  g: {values: [a, b, c]}
  k: {type: integer, range: [0, 59]}
  e: {type: integer, edges: [0, 10, 20, 30, 60]}
utility: {half_width: 40, delta: 0.1}
privacy: {budget: 4, unit: row}
"""
RNG = np.random.default_rng(5)
RECORDS = {
    "a": np.clip(RNG.normal(24, 9, 6000), 0, 59).astype(int),
    "b": np.clip(RNG.normal(40, 6, 2500), 0, 59).astype(int),
}
CONT = "PERCENTILE_CONT({}) WITHIN GROUP (ORDER BY {})"
DISC = CONT.replace("CONT", "DISC")


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    folder = tmp_path_factory.mktemp("d")
    lines = [f"{g},{k},{k}" for g, values in RECORDS.items() for k in values]
    (folder / "d.csv").write_text("\n".join(["g,k,e", *lines]) + "\n")
    (folder / "d.yaml").write_text(POLICY)
    init(folder / "d.yaml")
    engine = Engine.open(folder / "d.yaml", sampler=Silent())
    ledger = engine.ledger
    yield engine
    begin_anew(engine, ledger)
    engine.close()


@pytest.fixture
def engine(opened):
    """An engine without noise, on a ledger of its own; coverage is tested over many draws."""
    begin_anew(opened, Memory(opened.protection_of_ledger))
    return opened


@pytest.fixture(scope="module", autouse=True)
def _kept(opened):
    opened.protection_of_ledger = opened.ledger.protection()


def ask(engine, text, **options):
    return engine.session(**options).execute(text)


NUMBERS = {
    "MEDIAN(k)": lambda v: np.percentile(v, 50),
    CONT.format(0.9, "k"): lambda v: np.percentile(v, 90),
    DISC.format(0.25, "k"): lambda v: sorted(v)[math.ceil(0.25 * len(v)) - 1],
}


@pytest.mark.slow
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("request_", ["4, 0.001", "1, 0.001", "15 PERCENT, 0.001"])
def test_a_quantile_is_within_its_half_width(engine, number, request_):
    """
    In the units of its column, or in per cent of itself; asked again it is the same, for nothing.
    """
    text = f"SELECT g, {number} FROM d WHERE g <> 'c' GROUP BY g WITH UTILITY ({request_})"
    first, again = (ask(engine, text) for _ in range(2))
    assert (again.rows, again.cost) == (first.rows, 0)
    assert first.notices == again.notices == ()
    for (group, value), (answer,) in zip(first.rows, first.answers, strict=True):
        half = float(request_.split()[0].rstrip(","))
        half = half / 100 * value if "PERCENT" in request_ else half
        assert answer.low <= NUMBERS[number](RECORDS[group]) <= answer.high
        assert answer.low <= value <= answer.high
        assert answer.high - answer.low <= 2 * half + 1
        assert answer.confidence == pytest.approx(0.999)


@pytest.mark.slow
def test_what_is_nearer_costs_more_and_a_wide_one_little(engine):
    """
    The price follows from the records near the quantile, not from a half-width of counts.
    """
    costs = []
    for half in (12, 1.5, 0.5):
        begin_anew(engine)
        costs.append(ask(engine, f"SELECT MEDIAN(k) FROM d WITH UTILITY ({half}, 0.1)").cost)
    assert 0 < costs[0] <= costs[1] < costs[2] <= 4
    assert costs[0] < 0.1


@pytest.mark.slow
def test_a_group_of_nobody_is_null_and_costs_the_others_nothing(engine):
    """
    It is said of how many groups; the others are met.
    """
    costs = []
    for where in ("true", "g <> 'c'"):
        begin_anew(engine)
        text = f"SELECT g, MEDIAN(k) FROM d WHERE {where} GROUP BY g WITH UTILITY (3, 0.05)"
        result = ask(engine, text)
        costs.append(result.cost)
        for (group, value), (answer,) in zip(result.rows, result.answers, strict=True):
            assert (value is None) == (group == "c")
            assert group == "c" or answer.high - answer.low <= 6
        assert any("for 1 of 3 groups" in n for n in result.notices) == (where == "true")
    assert costs[0] <= 1.5 * costs[1]  # the noise of a step says what the next one needs


@pytest.mark.parametrize("number", ["MEDIAN(e)", CONT.format(0.9, "e"), DISC.format(0.25, "e")])
def test_a_quantile_of_bins_lies_between_edges(engine, number):
    """
    The estimate is interpolated, the interval is of whole bins, and a notice says so; outer
    expressions compute with the same.
    """
    text = f"SELECT {number} AS m, {number} + 1 AS n FROM d WHERE g = 'a' WITH UTILITY (1, 0.001)"
    result = ask(engine, text)
    ((value, more),), ((answer, *_),) = result.rows, result.answers
    truth = NUMBERS[number.replace("(e)", "(k)").replace("BY e", "BY k")](RECORDS["a"])
    assert answer.low <= truth <= answer.high
    assert {answer.low, answer.high} <= {0, 10, 20, 30, 60}
    assert answer.low <= value <= answer.high
    assert abs(value - truth) < (4 if answer.high < 60 else 15)  # the last bin is half empty
    assert more == value + 1
    assert any("as if the values lay evenly" in notice for notice in result.notices)


def test_a_spread_of_bins_says_what_the_bins_cost(engine):
    """
    And one of an exact column has no such notice.
    """
    said = ask(engine, "SELECT STDDEV(e) FROM d WITH UTILITY (40, 0.1)").notices
    assert any("the widest of e is 30" in notice for notice in said)
    said = ask(engine, "SELECT STDDEV(k) FROM d WITH UTILITY (40, 0.1)").notices
    assert not any("widest" in notice for notice in said)


@pytest.mark.parametrize("name", ["MEDIAN(k)", "QUANTILE(k)", "QUANTILE(*)", "PERCENTILE_CONT(k)"])
def test_a_default_of_quantiles_is_in_the_units_of_their_column(engine, name):
    """
    Set in the session; without one, the default of counts holds for the counts of the values.
    """
    ((answer,),) = ask(engine, "SELECT MEDIAN(k) FROM d", utility=f"{name} 2, 0.25").answers
    assert answer.confidence == 0.75
    assert answer.high - answer.low <= 4
    ((answer,),) = ask(engine, "SELECT MEDIAN(k) FROM d").answers
    assert answer.confidence == 0.9
    ((answer,),) = ask(engine, "SELECT MEDIAN(k) FROM d", utility="30, 0.2").answers
    assert answer.confidence == 0.8


def test_a_policy_names_quantiles_too(tmp_path):
    """
    By the same names as the session.
    """
    wish = (
        "utilities: {QUANTILE(k): {half_width: 2, delta: 0.3}, MEDIAN(e): {percent: 9, delta: 0.3}}"
    )
    (tmp_path / "d.yaml").write_text(f"{POLICY}{wish}\n")
    named = defaults(policies.load(tmp_path / "d.yaml")).named
    assert {name: each.relative for name, each in named.items()} == {
        ("quantile", "k"): False,
        ("quantile", "e"): True,
    }


def test_a_quantile_that_the_limit_does_not_afford_is_wider(engine):
    """
    As any number that is met in steps; where not even a look is possible it is refused.
    """
    text = "SELECT MEDIAN(k) FROM d WITH UTILITY (0.1, 0.1)"
    result = ask(engine, text, max_cost=0.05)
    assert 0 < result.cost <= 0.05
    ((answer,),) = result.answers
    assert answer.low <= np.percentile(np.concatenate(list(RECORDS.values())), 50) <= answer.high
    assert any("less exact than was asked" in notice for notice in result.notices)
    with pytest.raises(InsufficientBudgetError):
        ask(engine, "SELECT MEDIAN(e) FROM d WITH UTILITY (0.1, 0.1)", max_cost=1e-7)


VALUES = {  # of g, of a date for each of its values, of a condition: and which is in the middle
    "g": "a",
    "CASE g WHEN 'a' THEN DATE '2020-01-01' ELSE DATE '2021-01-01' END": "2020-01-01",
    "k > 100": "False",
}


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("keys", ["", "e"])
def test_the_middle_of_what_is_no_number_is_asked_for_by_counts(engine, value, keys):
    """In PostgreSQL, texts, dates and conditions have percentiles too; they have no half-width."""
    said = f"{keys}, " if keys else ""
    tail = f" GROUP BY {keys} ORDER BY {keys}" if keys else ""
    text = f"SELECT {said}{DISC.format(0.5, value)} AS m FROM d{tail} WITH UTILITY (50, 0.1)"
    rows = engine.session().execute(text).rows
    assert len(rows) == (4 if keys else 1)
    if not keys:
        assert str(rows[0][0]) == VALUES[value]
