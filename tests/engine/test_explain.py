"""EXPLAIN UTILITY says what the statement then does: what is free, refused, or its cost."""

import random
import re

import pytest

from proxy.engine import Engine, init
from proxy.errors import InsufficientBudgetError
from tests.engine.conftest import Silent, begin_anew
from tests.searches import share

POLICY = """
dataset: d
source: {engine: duckdb, path: d.csv}
max_records: 100000
outside: drop
nulls: drop
attributes:
  g: {values: [a, b, c, d]}
  k: {type: integer, range: [0, 4]}
measures:
  x: {clip: [0, 100], quantum: 1}
privacy: {budget: 1, unit: row, cells: [{where: "g = 'c'", budget: 0.4}]}
utility: {half_width: 100, delta: 0.05}
analysts: {bi: {spend: off}, eve: {budget: 0.3}}
"""
SIZES = {"a": 3000, "b": 800, "c": 2000, "d": 3}
NUMBERS = ("COUNT(*)", "SUM(k)", "SUM(x)", "COUNT(*) FILTER (WHERE k = 1)", "AVG(x)", "AVG(k)")


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """Four groups, one of them of three records, one with less budget; the real noise."""
    folder = tmp_path_factory.mktemp("d")
    rows = [f"{g},{i % 5},{20 + i % 41}" for g, n in SIZES.items() for i in range(n)]
    (folder / "d.csv").write_text("\n".join(["g,k,x", *rows]) + "\n")
    (folder / "d.yaml").write_text(POLICY)
    init(folder / "d.yaml")
    return Engine.open(folder / "d.yaml")


def statement(draw):
    """A statement with an absolute or relative request, or of a mean."""
    number = draw.choice(NUMBERS)
    relative = draw.random() < 0.3 and not number.startswith("AVG")
    scale = {"C": 1, "S": 40, "A": 0.05}[number[0]]
    half = f"{draw.choice((2, 5, 20))} PERCENT" if relative else scale * draw.choice((20, 60, 200))
    keys = draw.choice(("", "g", "k", "g, k"))
    where = draw.choice(("true", "k > 1", "g <> 'c'", "g = 'd'"))
    text = f"SELECT {keys}{', ' * bool(keys)}{number} FROM d WHERE {where}"
    return f"{text}{' GROUP BY ' * bool(keys)}{keys} WITH UTILITY ({half}, 0.05)", (
        relative or number.startswith("AVG")
    )


def compare(session, text, stepwise):
    """Explain and run a statement, and compare; return what became of it."""
    before = session.explain(text)
    costs = [row[3] for row in before.rows]
    after = min((row[5] for row in before.rows), default=before.left)
    refused = any("would be refused" in notice for notice in before.notices)
    assert before.cost == 0
    try:
        result = session.execute(text)
    except InsufficientBudgetError:
        assert refused, text
        assert after == before.left
        return "refused"
    assert not refused, text
    ran = [answer.cost for answers in result.answers for answer in answers]
    steps = [float(x) for n in before.notices for x in re.findall("at most ([-+.e0-9]+),", n)]
    if not any(costs):
        assert result.cost == 0, text
        return "free"
    assert result.cost > 0
    if not stepwise:
        assert ran == costs, text
        assert {row[6] for row in before.rows} == {result.cost}, text
        assert result.left == after, text
        return "measured"
    assert result.left <= after
    assert max(costs) <= result.cost * (1 + 1e-9), text
    assert max(ran) <= min(steps) * (1 + 1e-3), text
    assert {f"{row[6]:.4g}" for row in before.rows} == {f"{most:.4g}" for most in steps}, text
    assert result.cost <= before.rows[0][6]
    assert "up to 5 steps" in before.notices[-1]
    return "in steps"


@pytest.mark.slow
@pytest.mark.parametrize("seed", share(1, range(6)))
def test_a_statement_does_what_was_explained(engine, seed):
    """
    On random histories: free is free, refused is refused, a cost is the cost to the last digit,
    and what is left is what was said; numbers met in steps cost no less and no more than was said.
    """
    draw, seen = random.Random(seed), set()
    for _ in range(3):
        begin_anew(engine)
        for _ in range(8):
            user = draw.choice((None, None, None, "bi"))
            seen.add(compare(engine.session(user), *statement(draw)))
    assert {"measured", "in steps", "refused"} <= seen


@pytest.mark.parametrize(
    "user, limit, why",
    [
        (None, "", "1, which the cell that has most has left: the one that has least has 0.4"),
        ("eve", "", "0.3, which is left"),
        (None, "0.2", "0.2, which is its limit"),
    ],
)
def test_why_steps_cost_no_more_in_all_is_said(engine, user, limit, why):
    """Of cells that have more left than the one whose budget is what is left; a cap; a limit."""
    begin_anew(engine)
    session = engine.session(user)
    session.execute(f"SET privacy.max_cost = '{limit}'")
    text = "SELECT AVG(x) FROM d WHERE g <> 'c' WITH UTILITY (2, 0.05)"
    assert session.explain(text).notices[-1].endswith(f"all of them cost at most {why}")


def test_a_mean_that_is_known_as_well_as_it_can_be_is_explained_as_free(engine, monkeypatch):
    """
    After AVG by group has met what the budget allows, the same costs nothing more, and is said to.
    """
    begin_anew(engine)
    session = engine.session()
    monkeypatch.setattr(
        engine.planner._curator, "_sampler", Silent()
    )  # what a step costs, noise says
    text = "SELECT g, AVG(x) FROM d GROUP BY g WITH UTILITY (2, 0.05)"
    assert session.execute(text).cost > 0.3
    again = session.explain(text)
    assert [row[2:4] for row in again.rows] == [("inferred", 0.0)] * 4
    assert [row[5] for row in again.rows] == [again.left] * 4
    assert again.notices == session.execute(text).notices
    assert session.execute(text).cost == 0
