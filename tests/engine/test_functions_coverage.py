"""Intervals of what is computed from numbers hold the truth as often as they say.

4,000 runs of each kind, at two sizes of noise; groups are large, small, and empty.  A cell is
looked at in each run, in turn.  An exact share p̂ of n fails falsely with probability below 1e-6:
the bound is 4.75 standard deviations of the binomial law below the promise.
"""

import math

import numpy as np
import pytest

import proxy.policy as policies
from proxy.inference.query import COUNT, present_part, sum_part
from proxy.sql import Evaluator, compile_statement
from tests.engine.functions import World

POLICY = """
dataset: d
source: {engine: duckdb, path: d.csv}
max_records: 100000
outside: drop
nulls: drop
attributes:
  g: {values: [a, b, c, e, f, h]}
  s: {values: [x, y]}
measures:
  w: {clip: [0, 10], quantum: 1}
privacy: {budget: 60, unit: row}
"""
COUNTS = np.array([[300, 100], [40, 20], [5, 3], [0, 0], [1, 0], [0, 2]])
SUMS = np.array([[1200, 900], [20, 160], [21, 30], [0, 0], [7, 0], [0, 0]])
HISTORY = [  # what was measured before: the numbers themselves, and what shares their noise
    "SELECT g, COUNT(*), SUM(w) FROM d GROUP BY g",
    "SELECT g, COUNT(*) FROM d WHERE s = 'x' GROUP BY g",
    "SELECT COUNT(*) FROM d",
]
DELTA = 0.1
RUNS = [  # at each of two sizes of noise
    pytest.param(250, marks=pytest.mark.slow),
    pytest.param(2000, marks=pytest.mark.audit),
]
N = "(SELECT g, COUNT(*) AS n FROM d GROUP BY g) t"


def squared(n):
    return n.var(axis=1, ddof=1)[:, None]


EXACT = {
    "a difference of groups": "SELECT g, COUNT(*) - LAG(COUNT(*)) OVER (ORDER BY g) AS v FROM d"
    " GROUP BY g",
    "a running sum": "SELECT g, SUM(COUNT(*)) OVER (ORDER BY g DESC) AS v FROM d GROUP BY g",
    "a total of groups": f"SELECT SUM(n) AS v FROM {N}",
    "a mean of groups": f"SELECT g, n - AVG(n) OVER () AS v FROM {N}",
    "a share": "SELECT g, 100.0 * COUNT(*) / SUM(COUNT(*)) OVER () AS v FROM d GROUP BY g",
    "a rate": "SELECT g, 1.0 * COUNT(*) FILTER (WHERE s = 'x') / NULLIF(COUNT(*), 0) AS v FROM d"
    " GROUP BY g",
    "a sum over a count": "SELECT g, SUM(w) * 1.0 / COUNT(*) AS v FROM d GROUP BY g",
    "a rounded root": "SELECT g, ROUND(SQRT(COUNT(*)), 1) AS v FROM d GROUP BY g",
    "a rounded share": "SELECT g, ROUND(COUNT(*) / SUM(COUNT(*)) OVER (), 2) AS v FROM d"
    " GROUP BY g",
}
APPROXIMATE = {
    "a variance": (f"SELECT VARIANCE(n) AS v FROM {N}", squared),
    "a deviation": (f"SELECT STDDEV(n) AS v FROM {N}", squared),
    "a coefficient of variation": (
        f"SELECT STDDEV(n) / NULLIF(AVG(n), 0) AS v FROM {N}",
        lambda n: np.sqrt(squared(n)) / n.mean(axis=1)[:, None],
    ),
    "a concentration": (
        f"SELECT SUM(p * p) AS v FROM (SELECT 1.0 * n / SUM(n) OVER () AS p FROM {N}) u",
        lambda n: ((n / n.sum(axis=1)[:, None]) ** 2).sum(axis=1)[:, None],
    ),
    "a product": (
        f"SELECT g, n * SUM(n) OVER () AS v FROM {N}",
        lambda n: n * n.sum(axis=1)[:, None],
    ),
    "a square": (f"SELECT g, POWER(n, 2) AS v FROM {N}", lambda n: n**2),
    "a maximum": (f"SELECT MAX(n) AS v FROM {N}", lambda n: n.max(axis=1)[:, None]),
    "a minimum": (f"SELECT MIN(n) AS v FROM {N}", lambda n: n.min(axis=1)[:, None]),
    "a range": (
        f"SELECT MAX(n) - MIN(n) AS v FROM {N}",
        lambda n: (n.max(axis=1) - n.min(axis=1))[:, None],
    ),
    "a median": (f"SELECT MEDIAN(n) AS v FROM {N}", lambda n: np.median(n, axis=1)[:, None]),
    "a rank": (
        f"SELECT g, RANK() OVER (ORDER BY n DESC) AS v FROM {N}",
        lambda n: 1.0 + (n[:, None, :] > n[:, :, None]).sum(axis=2),
    ),
    "a case": (
        f"SELECT g, CASE WHEN n > 5 THEN n ELSE 0 END AS v FROM {N}",
        lambda n: np.where(n > 5, n, 0),
    ),
    "the greater one": (
        "SELECT g, GREATEST(COUNT(*) FILTER (WHERE s = 'x'), COUNT(*) FILTER (WHERE s = 'y')) AS v"
        " FROM d GROUP BY g",
        np.maximum,
    ),
    "a difference of means": (
        "SELECT g, AVG(w) - LAG(AVG(w)) OVER (ORDER BY g) AS v FROM d WHERE g <> 'e' GROUP BY g",
        None,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def public(tmp_path_factory):
    """The policy, and an evaluator."""
    path = tmp_path_factory.mktemp("d") / "d.yaml"
    path.write_text(POLICY)
    policy = policies.load(path)
    evaluator = Evaluator(policy.domain)
    yield policy, evaluator
    evaluator.close()


def world(public, scale):
    """A history with noise of this scale."""
    truth = {COUNT: COUNTS, sum_part(0): SUMS, present_part(0): COUNTS}
    found = World(*public, truth, DELTA)
    for text in HISTORY:
        found.measured(compile_statement(text, *public), scale)
    return found


def statement(text):
    """Return a statement whose rows are in the order of the groups."""
    return f"{text} ORDER BY g" if text.startswith("SELECT g") else text


def holds(public, text, scale, over=None, *, runs):
    """Return, of each row, how many intervals held the truth, how many there were; and sources."""
    program = compile_statement(statement(text), *public)
    made = world(public, scale)
    truth = [row[-1] for row in made.true_rows(program)]
    places = [i for i, value in enumerate(truth) if value is not None]
    held, seen, sources = np.zeros(len(truth)), np.zeros(len(truth)), set()
    for k in range(runs):
        made.run()
        place = places[k % len(places)]
        ((*_, answer),) = made.told(program, over, place)
        exact = float(truth[place])
        held[place] += answer.low - 1e-9 * abs(exact) - 1e-9 <= exact <= answer.high + 1e-9
        seen[place] += 1
        sources.add(answer.source)
    return held[places], seen[places], sources


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("kind", EXACT)
def test_exact_intervals_hold_the_truth(public, kind, runs):
    """
    Of all runs as often as they say, and in each group.
    """
    found = [holds(public, EXACT[kind], scale, runs=runs) for scale in (3.0, 12.0)]
    assert set().union(*(sources for *_, sources in found)) <= {"derived", "unknown"}
    held, seen = (np.array(each) for each in zip(*((h, s) for h, s, _ in found), strict=True))
    for h, n in ((held.sum(), seen.sum()), *zip(held.ravel(), seen.ravel(), strict=True)):
        assert h / n >= 1 - DELTA - 4.75 * math.sqrt(DELTA * (1 - DELTA) / n), (held, seen)


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("kind", APPROXIMATE)
def test_approximate_intervals_hold_the_truth_nearly_as_often(public, kind, runs):
    """
    Of all runs within 3% of what they say, but for what chance allows.
    """
    text, over = APPROXIMATE[kind]
    found = [holds(public, text, scale, over, runs=runs) for scale in (3.0, 12.0)]
    sources = set().union(*(sources for *_, sources in found))
    assert {"approximate"} <= sources <= {"approximate", "unknown"}
    held, seen = (sum(float(each[k].sum()) for each in found) for k in (0, 1))
    assert held / seen >= 1 - DELTA - 0.03


@pytest.mark.parametrize("kind", EXACT)
def test_forms_say_what_the_sql_says(public, kind):
    """
    So that they may stand for it, too: the second run's value is the SQL's.
    """
    program, made = compile_statement(statement(EXACT[kind]), *public), world(public, 5.0)
    made.run()
    made.told(program)
    made.run()
    second = made.told(program)
    made._first.clear()
    for one, two in zip(second, made.told(program), strict=True):
        if two[-1] is None or program.traces[-1].steps:
            continue
        assert one[-1].estimate == pytest.approx(two[-1].estimate, rel=1e-9, nan_ok=True)


@pytest.mark.parametrize("kind", [kind for kind, each in APPROXIMATE.items() if each[1]])
def test_numpy_says_what_the_sql_says_over_drawn_numbers(public, kind):
    """
    So that it may stand for it where runs are many.
    """
    text, over = APPROXIMATE[kind]
    program, made = compile_statement(statement(text), *public), world(public, 5.0)
    made.run()
    for one, two in zip(made.told(program), made.told(program, over), strict=True):
        pairs = ((one[-1].low, two[-1].low), (one[-1].high, two[-1].high))
        for a, b in pairs:
            assert a == pytest.approx(b, rel=1e-9, abs=1e-9)
