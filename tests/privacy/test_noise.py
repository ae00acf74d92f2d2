"""The noise that is drawn has the law that is accounted for, at every weight that is allowed."""

import json
import math
import os
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binomtest, chi2

import proxy.policy as policies
from proxy.engine import Engine
from proxy.inference.accounting import UNIT
from proxy.inference.noise.mechanism import GeometricSampler
from proxy.inference.plan import scale_of
from tests.privacy.double import MemoryLedger
from tests.searches import share

FEW = 100  # draws expected in a bin
ALARM = 1e-6  # of all tests of one function together, each a share
WEIGHTS = [2.0**-20, 2.0**-12, 2.0**-7, 0.1, 0.5, 1.0, math.log(3), 2.0, 4.0, 8.0]
POLICY = """
dataset: people
source: {engine: duckdb, path: nowhere.csv}
max_records: 1000
outside: drop
nulls: drop
attributes:
  place: {type: integer, range: [1, 20000]}
measures:
  pay: {clip: [-2, 10], quantum: 0.01}
privacy: {budget: 1000, unit: row, history_size: {total: 1_000_000}}
"""


def below(k, rate):
    """P(K ≤ k) of the two-sided geometric law with p = exp(-rate)."""
    p = math.exp(-rate)
    tail = math.exp(-rate * (abs(k) if k < 0 else k + 1)) / (1 + p)
    return tail if k < 0 else 1 - tail


def edges(rate, runs):
    """Whole numbers that cut the law into bins, narrow in the tails, fine in the middle."""
    levels = np.concatenate([np.geomspace(FEW / runs, 0.008, 8), np.linspace(0.01, 0.5, 50)])
    cuts = {math.ceil(math.log(level * (1 + math.exp(-rate))) / rate) for level in levels}
    return sorted({-abs(cut) - 1 for cut in cuts} | {abs(cut) for cut in cuts})


def alarm(draws, rate):
    """Return the chance, at most, that the law gives draws that are as far from it as these.

    Chi-squared over the bins in which many are expected; the rest together, exactly.
    """
    cuts = edges(rate, len(draws))
    share = np.diff([0.0, *(below(cut, rate) for cut in cuts), 1.0])
    counts = np.bincount(np.searchsorted(cuts, draws, side="left"), minlength=len(share))
    many = share * len(draws) >= FEW
    rest = float(share[~many].sum())
    exact = binomtest(int(counts[~many].sum()), len(draws), min(rest, 1.0)).pvalue
    expected = share[many] * counts[many].sum() / (1 - rest)
    rough = chi2.sf(((counts[many] - expected) ** 2 / expected).sum(), max(many.sum() - 1, 1))
    return min(2 * exact, 2 * float(rough), 1.0)


def test_the_law_by_hand():
    """
    At p = 1/3: P(0) = 1/2, P(±1) = 1/6, P(±2) = 1/18.
    """
    rate = math.log(3)
    steps = [below(k, rate) - below(k - 1, rate) for k in (-2, -1, 0, 1, 2)]
    assert steps == pytest.approx([1 / 18, 1 / 6, 1 / 2, 1 / 6, 1 / 18])


@pytest.mark.parametrize("count", [50_000, pytest.param(10**6, marks=pytest.mark.audit)])
@pytest.mark.parametrize("weight", share(4, WEIGHTS))
def test_draws_have_the_law_of_their_weight(weight, count):
    """
    10⁶ draws (50,000 in the fast run) at the scale of a weight, chi-squared, alarm 1e-6 in all.
    """
    draws = np.array(GeometricSampler().draw(scale_of(weight), count))
    assert alarm(draws, weight) > ALARM / len(WEIGHTS)


@pytest.mark.slow
@pytest.mark.parametrize("fault", share(2, ["halved", "one-sided", "shifted", "rounded Laplace"]))
def test_wrong_laws_are_found(fault):
    """
    100,000 draws at weight 1/2 of half the scale, off by one, of rounded Laplace noise, and with
    too few negatives.
    """
    rng = np.random.default_rng(5)
    draws = np.array(GeometricSampler().draw(4.0 if fault == "halved" else 2.0, 100_000))
    if fault == "halved":
        draws = draws // 2
    elif fault == "shifted":
        draws = draws + 1
    elif fault == "rounded Laplace":
        draws = np.rint(rng.laplace(0, 2, 100_000)).astype(int)
    else:
        draws = np.where(rng.random(100_000) < 0.05, np.abs(draws), draws)
    assert alarm(draws, 0.5) < ALARM


class Nothing:
    """A cube without records."""

    def answer(self, family):
        return [0] * family.rows


@pytest.mark.slow
@pytest.mark.parametrize(
    "number, width",
    share(
        2,
        [
            ("COUNT(*)", "9"),
            ("SUM(pay) - 0.37 * COUNT(*)", "500"),
            ("0.25 * COUNT(*)", "1"),
            ("SUM(pay)", "300"),
            ("1.5 * SUM(place)", "99999"),
        ],
    ),
)
def test_noise_on_the_grid_of_real_coefficients(number, width, tmp_path):
    """
    20,000 numbers of one statement over no records: what is released is noise alone, of the law
    of the scale in the ledger, in steps of the grid; and the cost that was told is that scale's.
    """
    (tmp_path / "people.yaml").write_text(POLICY)
    policy = policies.load(tmp_path / "people.yaml")
    ledger = MemoryLedger(policy)
    engine = Engine(policy, ledger, lambda _: Nothing())
    text = f"SELECT place, {number} AS n FROM people GROUP BY place WITH UTILITY ({width}, 0.2)"
    result = engine.session().execute(text)
    (row,) = ledger.measurements()
    rate = 1 / row.scale
    assert alarm(np.array(row.answers), rate) > ALARM / 5
    released = [answers[0].estimate for answers in result.answers]
    assert released == pytest.approx([float(row.family.grid * y) for y in row.answers])
    least = Fraction(row.family.sensitivity) / Fraction(row.scale) * UNIT
    assert least <= result.cost * UNIT < least + 1


def test_processes_that_are_forked_draw_noise_of_their_own():
    """
    From one that has drawn before, as nothing of the source may be shared: 8 draws of scale 2**40
    in each of 4 are all different; alike by chance with a probability below 1e-9.
    """
    GeometricSampler().draw(2.0**40, 8)
    drawn = []
    for _ in range(4):
        ours, theirs = os.pipe()
        child = os.fork()
        if not child:
            try:
                os.write(theirs, json.dumps(GeometricSampler().draw(2.0**40, 8)).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        drawn += json.loads(os.read(ours, 4096))
        os.close(ours)
        os.close(theirs)
    assert len(set(drawn)) == 32
