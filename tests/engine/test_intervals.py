"""Intervals of groups, relative requests and averages hold what they say."""

import pytest

from proxy.engine import Engine, init
from tests.engine.conftest import Silent, begin_anew

POLICY = """
dataset: people
source: {engine: duckdb, path: people.csv}
max_records: 100000
outside: drop
nulls: drop
attributes:
  x: {type: integer, range: [0, 299]}
measures:
  income: {clip: [0, 100], quantum: 1}
privacy: {budget: 4000, unit: row}
utility: {half_width: 10, delta: 0.05}
"""


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """Thirty records in each of 300 groups, with the state that ``init`` makes."""
    folder = tmp_path_factory.mktemp("people")
    (folder / "people.csv").write_text(
        "x,income\n" + "".join(f"{i % 300},{i % 101}\n" for i in range(9000))
    )
    (folder / "people.yaml").write_text(POLICY)
    init(folder / "people.yaml", folder / "state")
    return folder / "people.yaml", folder / "state"


def opened(people, **kwargs):
    engine = Engine.open(*people, **kwargs)
    begin_anew(engine)
    return engine.session()


def test_rows_of_different_size_are_judged_each_by_itself(people):
    """
    After COUNT(*) by x, SUM(x) by x follows for small x only: what is inferred for row 1 says
    nothing of row 299, whose noise is 299 times as large.
    """
    session = opened(people)
    session.execute("SELECT x, COUNT(*) FROM people GROUP BY x WITH UTILITY (10, 0.05)")
    result = session.execute("SELECT x, SUM(x) FROM people GROUP BY x WITH UTILITY (30, 0.05)")
    misses = sum(
        not a.low <= 30 * x <= a.high
        for (x, _), (a,) in zip(result.rows, result.answers, strict=True)
    )
    assert result.cost > 0
    assert misses < 45  # of 300 at 5%: 15 expected, and 45 in less than one of 10**9 runs
    assert all(a.high - a.low <= 60.1 for (a,) in result.answers)


def test_a_relative_request_of_many_groups_gets_what_it_paid_for(people):
    """
    Of 300 groups, every number ends within 20 per cent of its estimate.
    """
    result = opened(people).execute(
        "SELECT x, COUNT(*) FROM people GROUP BY x WITH UTILITY (20 PERCENT, 0.05)"
    )
    wide = [a for (a,) in result.answers if (a.high - a.low) / 2 > 0.21 * abs(a.estimate)]
    assert result.cost > 0
    assert len(wide) < 15


def test_an_average_is_within_its_half_width(people):
    """
    Without noise AVG is exact, and its interval is no longer than was asked for.
    """
    result = opened(people, sampler=Silent()).execute(
        "SELECT AVG(income) FROM people WHERE x < 150 WITH UTILITY (5, 0.05)"
    )
    values = [i % 101 for i in range(9000) if i % 300 < 150]
    (answer,) = result.answers[0]
    assert float(result.rows[0][0]) == pytest.approx(sum(values) / len(values))
    assert answer.low < sum(values) / len(values) < answer.high
    assert answer.high - answer.low <= 10


@pytest.mark.slow
def test_ends_on_a_coarse_grid_are_not_rounded_inwards(people):
    """
    SUM(x * 0.1) on its grid of 0.1: when the noise is five steps, the end is the truth itself.
    """
    for steps in (-5, 5):

        class Shifted:
            def draw(self, scale, count, steps=steps):
                return [steps] * count

        session = opened(people, sampler=Shifted())
        for x in range(1, 40):
            result = session.execute(
                f"SELECT 0.1 * COUNT(*) FROM people WHERE x <= {x} WITH UTILITY (0.5, 0.05)"
            )
            (answer,) = result.answers[0]
            if answer.source == "measured" and answer.high - answer.low > 0.99:
                assert answer.low <= 3 * (x + 1) <= answer.high
