"""Intervals and probabilities keep to what is possible, whatever the noise, and lose no truth."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.engine import Engine, init
from tests.engine.conftest import begin_anew

POLICY = """
dataset: d
source: {engine: duckdb, path: d.csv}
max_records: 500
outside: drop
nulls: drop
attributes:
  g: {values: [a, b]}
  k: {type: integer, range: [-2, 3]}
measures:
  x: {clip: [-10, 40], quantum: 1}
privacy: {budget: 40, unit: row}
utility: {half_width: 100, delta: 0.1}
"""
RECORDS = [("a" if i % 3 else "b", i % 6 - 2, i % 51 - 10) for i in range(60)]
NUMBERS = {  # -> its half-width, the least and the most that it can be, the truth
    "COUNT(*)": (30, 0, 500, 60),
    "COUNT(*) - 10": (30, -10, 490, 50),
    "7 - COUNT(*)": (30, -493, 7, -53),
    "SUM(k)": (90, -1000, 1500, sum(k for _, k, _ in RECORDS)),
    "SUM(x)": (900, -5000, 20000, sum(x for *_, x in RECORDS)),
    "SUM(k) FILTER (WHERE k > 0)": (90, 0, 1500, sum(k for _, k, _ in RECORDS if k > 0)),
    "COUNT(*) FILTER (WHERE k > 9)": (30, 0, 0, 0),
}


class Shifted:
    """A sampler whose noise is the same number everywhere."""

    noise = 0
    scale = 0.0

    def draw(self, scale, count):
        self.scale = scale
        return [self.noise] * count

    def refine(self, noise, old, new):
        return self.draw(new, len(noise))


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """Sixty records, of at most 500."""
    folder = tmp_path_factory.mktemp("d")
    lines = ["g,k,x", *(f"{g},{k},{x}" for g, k, x in RECORDS)]
    (folder / "d.csv").write_text("\n".join(lines) + "\n")
    (folder / "d.yaml").write_text(POLICY)
    init(folder / "d.yaml")
    return Engine.open(folder / "d.yaml", sampler=Shifted())


def ask(engine, text, noise):
    """Ask on a ledger of its own, with that noise; return the row and the answers."""
    begin_anew(engine)
    engine.planner._curator._sampler.noise = noise
    result = engine.session().execute(text)
    return result.rows[0], result.answers[0]


@given(number=st.sampled_from(sorted(NUMBERS)), noise=st.integers(-6000, 6000))
def test_an_interval_is_of_what_is_possible_and_loses_nothing(engine, number, noise):
    """
    It is within the ends, and holds whatever of what is possible is within half_width of the
    estimate, so that it holds the truth whenever the interval around the estimate does.  The
    estimate itself is as it was drawn.
    """
    half, least, most, truth = NUMBERS[number]
    text = f"SELECT {number} AS n FROM d WITH UTILITY ({half}, 0.1)"
    (shown,), (answer,) = ask(engine, text, noise)
    width = half if answer.source == "measured" else 0
    assert least <= answer.low <= answer.high <= most
    assert answer.low <= max(least, min(answer.estimate - width, most) + 1) + 1e-6
    assert answer.high >= min(most, max(answer.estimate + width, least) - 1) - 1e-6
    if abs(answer.estimate - truth) < width - 1:
        assert answer.low <= truth <= answer.high
    assert shown == pytest.approx(answer.estimate, abs=0.5)
    if answer.source == "measured":
        assert (answer.estimate - truth) == noise


@given(noise=st.integers(-3000, -61))
def test_beyond_an_end_the_posterior_given_the_end_is_in_the_interval(engine, noise):
    """
    A count of 60 that is shown below 0: [0, high] has its confidence among the counts from 0 on,
    by the law p^|k| of the noise, however far below.
    """
    _, (answer,) = ask(engine, "SELECT COUNT(*) FROM d WITH UTILITY (30, 0.1)", noise)
    assert answer.estimate == 60 + noise < 0
    p = math.exp(-1 / engine.planner._curator._sampler.scale)
    assert answer.low == 0
    assert p ** (answer.high + 1) <= 0.1  # P(count > high | count ≥ 0), the rest is memoryless
    assert p ** (answer.high - 1) > 0.04


@pytest.mark.parametrize("noise", [-5000, -60, 0, 5000])
def test_claims_agree_with_the_interval(engine, noise):
    """
    What nothing can be beyond is certain; the interval has at least its confidence; a claim that
    cannot be is as improbable as ever.  So too of sums and means, and of what is shown beside.
    """
    text = (
        "SELECT COUNT(*), PROBABILITY(COUNT(*) >= 0), PROBABILITY(COUNT(*) BETWEEN 0 AND 500), "
        "PROBABILITY(COUNT(*) > 500), PROBABILITY(SUM(x) >= -5000), PROBABILITY(SUM(x) <= 20000), "
        "PROBABILITY(AVG(x) >= -10), CREDIBLE_LOW(COUNT(*)), CREDIBLE_HIGH(COUNT(*)) "
        "FROM d WITH UTILITY (30, 0.1)"
    )
    row, (answer,) = ask(engine, text, noise)
    assert row[1:3] == (1, 1)
    assert row[3] < 0.5 or noise > 400
    assert row[4:6] == (1, 1)
    assert row[6] is None or row[6] >= 1 - 1e-5
    assert row[7:] == (answer.low, answer.high)
    _, (answer,) = ask(engine, "SELECT COUNT(*) FROM d WITH UTILITY (30, 0.1)", noise)
    low, high = math.ceil(answer.low), math.floor(answer.high)
    claim = f"SELECT PROBABILITY(COUNT(*) BETWEEN {low} AND {high}) FROM d WITH UTILITY (30, 0.1)"
    ((probability,), _) = ask(engine, claim, noise)
    assert probability >= 0.9


def test_columns_beside_show_the_interval(engine):
    """
    privacy.columns shows the ends of the interval, not those around the estimate.
    """
    begin_anew(engine)
    engine.planner._curator._sampler.noise = -5000
    session = engine.session()
    session.execute("SET privacy.columns = on")
    (row,) = session.execute("SELECT COUNT(*) AS n FROM d WITH UTILITY (30, 0.1)").rows
    assert row[0] == -4940
    assert row[1] == 0 < row[2] <= 30


def test_groups_have_ends_of_their_own(engine):
    """
    SUM(k) by k: of the records of k = -2 it is at most 0, of k = 0 it is 0.
    """
    begin_anew(engine)
    engine.planner._curator._sampler.noise = 4000
    result = engine.session().execute("SELECT k, SUM(k) FROM d GROUP BY k WITH UTILITY (90, 0.1)")
    for (k, _), (answer,) in zip(result.rows, result.answers, strict=True):
        assert min(0, 500 * k) <= answer.low <= answer.high <= max(0, 500 * k)


def test_the_noise_is_the_same_without_the_ends(engine):
    """
    Where nothing is near an end, nothing is changed: an interval of the half-width asked for.
    """
    text = "SELECT COUNT(*) FROM d WITH UTILITY (30, 0.1)"
    _, (answer,) = ask(engine, text, 140)
    assert (answer.low, answer.high) == (170, 230)
    assert Fraction(answer.estimate) == 200
