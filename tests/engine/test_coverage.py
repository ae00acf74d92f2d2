"""Intervals hold the truth as often as they say: one answer for each independent ledger.

The true noise, 4,000 measured and 4,000 inferred answers, spread over requests of large and small
weights.  A test of a share p̂ of n fails falsely with probability below 1e-6: the bound is 4.75
standard deviations of the binomial law below the promise.
"""

import math

import pytest

from proxy.engine import Engine
from tests.engine.conftest import begin_anew

WIDE = ("budget: 1.0", "budget: 4000")
N = 800  # answers for each request

MEASURED = [
    ("SELECT COUNT(*) FROM cps1988", "0.4", "0.05"),
    ("SELECT COUNT(*) FROM cps1988 WHERE region = 'west'", "3", "0.2"),
    ("SELECT COUNT(*) FROM cps1988 WHERE education < 3", "50", "0.3"),
    ("SELECT SUM(education) FROM cps1988", "20000", "0.01"),
    ("SELECT SUM(wage) - 100 * COUNT(*) FROM cps1988", "3000", "0.05"),
]
INFERRED = [
    # two earlier statements, and the one that follows from them
    (
        "SELECT COUNT(*) FROM cps1988 WITH UTILITY (1, 0.05)",
        "SELECT COUNT(*) FROM cps1988 WHERE smsa = 'no' WITH UTILITY (1, 0.05)",
        "SELECT COUNT(*) FROM cps1988 WHERE smsa = 'yes' WITH UTILITY (4, 0.3)",
    ),
    (
        "SELECT region, COUNT(*) FROM cps1988 GROUP BY region WITH UTILITY (2, 0.1)",
        "SELECT COUNT(*) FROM cps1988 WITH UTILITY (5, 0.1)",
        "SELECT COUNT(*) FROM cps1988 WITH UTILITY (9, 0.05)",
    ),
    (
        "SELECT education, COUNT(*) FROM cps1988 GROUP BY education WITH UTILITY (30, 0.1)",
        "SELECT COUNT(*) FROM cps1988 WHERE education > 11 WITH UTILITY (40, 0.1)",
        "SELECT SUM(education) FROM cps1988 WHERE education < 15 WITH UTILITY (9000, 0.2)",
    ),
    (
        "SELECT SUM(wage) FROM cps1988 WITH UTILITY (5000, 0.1)",
        "SELECT SUM(wage) FROM cps1988 WHERE parttime = 'no' WITH UTILITY (5000, 0.1)",
        "SELECT SUM(wage) FROM cps1988 WHERE parttime = 'yes' WITH UTILITY (20000, 0.05)",
    ),
    (
        "SELECT COUNT(*) FROM cps1988 WHERE region < 'south' WITH UTILITY (100, 0.05)",
        "SELECT COUNT(*) FROM cps1988 WHERE region >= 'south' WITH UTILITY (100, 0.05)",
        "SELECT 3 * COUNT(*) - 7 FROM cps1988 WITH UTILITY (2000, 0.01)",
    ),
]


def ask(engine, *texts):
    """Run statements on a ledger of their own; return the last one's first answer."""
    begin_anew(engine)
    session = engine.session()
    for text in texts:
        result = session.execute(text)
    return result.answers[0][0]


def truth(made, text):
    from tests.engine.conftest import Silent

    engine = Engine.open(*made("cps1988", WIDE), sampler=Silent())
    begin_anew(engine)
    return engine.session().execute(text).answers[0][0].estimate


def check(answers, exact, delta):
    inside = sum(a.low <= exact + 1e-9 and exact - 1e-9 <= a.high for a in answers)
    n = len(answers)
    assert inside / n >= 1 - delta - 4.75 * math.sqrt(delta * (1 - delta) / n)


@pytest.mark.slow
@pytest.mark.parametrize("text, half_width, delta", MEASURED)
def test_measured_intervals_hold_the_truth(text, half_width, delta, made):
    """
    A measured answer's interval holds the exact answer with the promised probability.
    """
    text = f"{text} WITH UTILITY ({half_width}, {delta})"
    engine = Engine.open(*made("cps1988", WIDE))
    answers = [ask(engine, text) for _ in range(N)]
    assert {answer.source for answer in answers} == {"measured"}
    for a in answers:  # no longer than was asked for, but for the rounding of its ends
        assert a.high - a.low <= 2 * float(half_width) + 16 * math.ulp(abs(a.estimate))
    check(answers, truth(made, text), float(delta))


@pytest.mark.slow
@pytest.mark.parametrize("texts", INFERRED)
def test_inferred_intervals_hold_the_truth(texts, made):
    """
    So does one that was inferred from two earlier statements.
    """
    delta = float(texts[-1].rsplit(", ")[-1].strip(" )"))
    engine = Engine.open(*made("cps1988", WIDE))
    answers = [ask(engine, *texts) for _ in range(N)]
    assert {answer.source for answer in answers} == {"inferred"}
    check(answers, truth(made, texts[-1]), delta)
