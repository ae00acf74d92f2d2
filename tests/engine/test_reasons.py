"""Why a statement is refused, or fails after it was charged: the true reason, with the amounts."""

import shutil

import pytest

from proxy.errors import DataError, InsufficientBudgetError, StatementTooComplexError
from tests.small import Small

DOMAIN = """\
dataset: people
source: {engine: duckdb, path: people.csv}
max_records: 1000
outside: drop
nulls: drop
attributes:
  n: {type: integer, range: [0, 1000]}
  town: {values: [a, b]}
measures:
  w: {clip: [0, 2000], quantum: 0.01, utility: {half_width: 5000, delta: 0.05}}
  k: {clip: [0, 50], quantum: 1, utility: {half_width: 500, delta: 0.05}}
utility: {half_width: 100, delta: 0.05}
"""


@pytest.fixture
def engine(tmp_path):
    """200 people without noise."""
    small = Small(tmp_path)
    rows = [f"{i * 5},{'ab'[i % 2]},{i}.25,{i % 50}" for i in range(200)]
    (tmp_path / "people.csv").write_text("\n".join(["n,town,w,k", *rows]) + "\n")
    made = small.made(domain=DOMAIN)
    yield made
    made.close()


@pytest.mark.parametrize(
    "text, least",
    [
        ("SELECT SUM(w) FROM people WITH UTILITY (1, 0.05)", 5_000),
        ("SELECT SUM(w) FROM people WITH UTILITY (0.0001, 0.05)", 500_000),
        ("SELECT SUM(n * 1e6 + w) FROM people", 500_000),
        ("SELECT town, SUM(n * n) FROM people GROUP BY town WITH UTILITY (1, 0.05)", 1_000_000),
        ("SELECT COUNT(*) FROM people WITH UTILITY (0.001, 0.05)", 2),
    ],
)
def test_what_is_too_dear_is_refused_for_its_price(engine, text, least):
    """
    However dear: what it costs, what was spent, what is left.
    """
    engine.session().execute("SELECT COUNT(*) FROM people")
    left = engine.left(engine.session().privileges).left
    with pytest.raises(InsufficientBudgetError, match="costs more than the budget") as caught:
        engine.session().execute(text)
    assert caught.value.requested > least
    assert caught.value.left == pytest.approx(left)
    assert caught.value.spent == pytest.approx(1 - left)


@pytest.mark.parametrize(
    "text, says",
    [
        ("SELECT SUM(n * 1e12 + w) FROM people", "amounts of too different sizes"),
        ("SELECT SUM(n * 1e18 + w) FROM people", "amounts of too different sizes"),
    ],
)
def test_what_cannot_be_written_down_is_refused_for_that(engine, text, says):
    """
    Coefficients past their bounds are no columns that are tied together.
    """
    with pytest.raises(StatementTooComplexError, match=says) as caught:
        engine.session().execute(text)
    assert "columns" not in str(caught.value)


def test_an_error_after_a_charge_says_what_was_charged(engine):
    """
    The numbers are kept; sent again, the statement fails for nothing, and without a charge.
    """
    text = "SELECT (COUNT(*) * 1000)::smallint FROM people WITH UTILITY (100000, 0.05)"
    before = engine.left(engine.session().privileges).left
    with pytest.raises(DataError) as caught:
        engine.session().execute(text)
    after = engine.left(engine.session().privileges).left
    error = caught.value
    assert (error.sqlstate, error.message) == ("22003", "smallint out of range")
    assert error.cost == pytest.approx(before - after)
    assert f"cost {error.cost:.4g}, left {after:.4g}" in error.hint
    assert "free to ask again" in error.hint
    with pytest.raises(DataError) as caught:
        engine.session().execute(text)
    assert caught.value.cost == 0
    assert engine.left(engine.session().privileges).left == after


@pytest.mark.parametrize(
    "expression, message",
    [
        ("40000::smallint", "smallint out of range"),
        ("2147483647 + 1", "integer out of range"),
        ("abs((-2147483648)::int)", "integer out of range"),
        ("CASE WHEN COUNT(*) > 0 THEN 0 ELSE 70000::smallint END", "smallint out of range"),
        ("COUNT(*) / 0", "division by zero"),
        ("(SELECT COUNT(*) FROM people) + '99999999999'::int", "out of range for type integer"),
    ],
)
def test_what_is_known_to_fail_fails_before_a_charge(engine, expression, message):
    """
    Constants are tried before anything is measured.
    """
    with pytest.raises(DataError, match=message):
        engine.session().execute(f"SELECT COUNT(*), {expression} FROM people")
    assert engine.left(engine.session().privileges).left == 1


def test_sums_of_whole_measures_are_whole(engine):
    """
    A measure with a whole quantum is an integer: its sum is a bigint, its mean a numeric; divided
    without remainder it cannot be summed.
    """
    found = engine.session().execute(
        "SELECT SUM(k), SUM(k) / 3, SUM(k / 2.0), AVG(k), SUM(k::bigint), SUM(w) FROM people"
        " WITH UTILITY (20000, 0.05)"
    )
    assert [column.type for column in found.columns] == [
        "bigint", "bigint", "numeric", "numeric", "numeric", "double precision",
    ]  # fmt: skip
    numbers = [float(cell) for cell in found.rows[0]]
    assert numbers == pytest.approx([4900, 1633, 2450, 24.5, 4900, 19950], rel=1e-12)
    assert found.places == [[0, 1, 2, 3, 4, 5]]
    assert [answer.source for answer in found.answers[0]][1] == "derived"  # the quotient
    with pytest.raises(Exception, match="divided without remainder"):
        engine.session().execute("SELECT SUM(k / 2) FROM people")
    with pytest.raises(DataError, match="integer out of range"):
        engine.session().execute("SELECT SUM(k * 100000000) FROM people")


RICH = "privacy: {budget: 1_000_000, floor: 0.001, unit: row, strategy: %s}\n"


@pytest.fixture(params=["paper", "topup"])
def rich(engine, request, tmp_path):
    """The same people with a budget that nothing reaches."""
    small = Small(tmp_path)
    for path in (tmp_path / ".privacy-proxy", tmp_path / "state"):
        shutil.rmtree(path, ignore_errors=True)
    made = small.made(RICH % request.param, domain=DOMAIN)
    yield made
    made.close()


def test_a_cost_that_no_budget_should_give_is_refused_for_that(rich):
    """
    Not for amounts of different sizes, which are not there; a wider interval is the way.
    """
    with pytest.raises(StatementTooComplexError, match=r"cost past 4,096 alpha") as caught:
        rich.session().execute("SELECT SUM(w) FROM people WITH UTILITY (1, 0.05)")
    assert "half_width" in caught.value.hint
    assert "sizes" not in str(caught.value)


def test_the_first_look_of_an_average_has_a_bound_however_large_the_budget_is(rich):
    """
    A hundredth of the budget would be 10,000 alpha, which is more than is computed with.
    """
    session = rich.session()
    assert 0 < session.execute("SELECT AVG(w) FROM people WITH UTILITY (50, 0.1)").cost < 200
    assert session.execute("SELECT AVG(k) FROM people WITH UTILITY (10, 0.1)").cost < 200
