"""The loss of a whole attack, estimated from what it sees, the proxy run many times.

Half of the runs choose the events that tell the neighbours apart best; the other half counts them.
P(E | D) ≤ exp(ε) P(E | D') is refuted where the Clopper-Pearson bounds of the two, at 1e-6 for all
events together, say otherwise; ε is what the ledger says that the record's cell has paid.
"""

import math
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import beta

import proxy.engine.engine
from proxy.engine import Engine
from proxy.inference import plan as planning
from proxy.inference.accounting import UNIT
from proxy.inference.mechanism import GeometricSampler
from tests.privacy.conftest import remembered
from tests.privacy.double import MemoryLedger
from tests.privacy.worlds import SEXES, TOWNS, make

ALPHA = 1e-6 / 4  # two events, two bounds each


class Less:
    """The fault to be caught: a share of the noise that is charged."""

    def __init__(self, share):
        self._share = share

    def draw(self, scale, count):
        return GeometricSampler().draw(scale * self._share, count)

    def refine(self, noise, old, new):
        return GeometricSampler().refine(noise, old * self._share, new * self._share)


def statement(cell):
    """An attack on a cell: two numbers that are measured, and their difference, inferred."""
    age, sex, town = cell
    exact = f"age = {age} AND sex = '{SEXES[sex]}'"
    return (
        f"SELECT COUNT(*) FILTER (WHERE {exact}) AS a, COUNT(*) AS b, "
        f"COUNT(*) FILTER (WHERE NOT ({exact})) AS c FROM people WHERE town = '{TOWNS[town]}' "
        "WITH UTILITY (3, 0.05), b (8, 0.05), c (60, 0.3)"
    )


def seen(world, cube, text, sampler, runs):
    """Run the attack on new ledgers; return what it saw [runs, numbers] and what the cell paid."""
    found, spent = [], set()
    real, proxy.engine.engine.Evaluator = (
        proxy.engine.engine.Evaluator,
        lambda domain: world.evaluator,
    )
    try:
        for _ in range(runs):
            ledger = MemoryLedger(world.policy)
            engine = Engine(world.policy, ledger, lambda _: cube, sampler=sampler)
            result = engine.session().execute(text)
            found.append([answer.estimate for answer in result.answers[0]])
            assert len(ledger.measurements()) == 2
            spent |= set(ledger.spent().values())
    finally:
        proxy.engine.engine.Evaluator = real
    (paid,) = spent
    return np.array(found), paid / UNIT


def score(train):
    """Return how much more like the second side than like the first a sample is: the ratio of the
    likelihoods of Laplace noise about the medians of the two, up to its unit.
    """
    one, two = (np.median(side, axis=0) for side in train)
    spread = sum(np.abs(side - np.median(side, axis=0)).mean(axis=0) for side in train)
    return lambda sample: ((np.abs(sample - one) - np.abs(sample - two)) / spread).sum(axis=1)


def least(hits, runs):
    """Clopper-Pearson lower bound."""
    return float(beta.ppf(ALPHA, hits, runs - hits + 1)) if hits else 0.0


def most(hits, runs):
    """Clopper-Pearson upper bound."""
    return float(beta.ppf(1 - ALPHA, hits + 1, runs - hits)) if hits < runs else 1.0


def loss(one, two):
    """Return a lower bound on the loss, wrong with probability 1e-6 at most."""
    half = len(one) // 2
    known = score([one[:half], two[:half]])
    train, test = (
        [known(side[part]) for side in (one, two)] for part in (slice(half), slice(half, None))
    )
    bounds = []
    for likely, unlikely, sign in ((1, 0, 1), (0, 1, -1)):

        def bound(part, edge, likely=likely, unlikely=unlikely, sign=sign):
            hits = [int((sign * part[side] >= edge).sum()) for side in (likely, unlikely)]
            low, high = least(hits[0], len(part[0])), most(hits[1], len(part[0]))
            return math.log(low / high) if low else -math.inf

        edges = np.unique(np.quantile(sign * train[likely], np.linspace(0, 0.98, 50)))
        bounds.append(bound(test, max(edges, key=lambda edge: bound(train, edge))))
    return max(bounds)


def sides(worlds, runs, sampler):
    """Run both sides; return what each saw, and what was paid."""
    world = worlds["guards"]
    pair = world.pairs[0]
    text = statement(pair.cells[0])
    one, paid = seen(world, pair.without[0], text, sampler, runs)
    two, again = seen(world, pair.beside[0], text, sampler, runs)
    assert paid == again > 1
    return one, two, paid


# So many runs tell so much: in a simulation of 300 such tests the least that is asserted is five
# standard deviations or more from the mean of what is found.
RUNS = 2000


@pytest.mark.slow
def test_what_is_seen_is_worth_no_more_than_was_paid(audited):
    """
    2,000 runs a side, ε > 1: no event refutes the charge, and the bound is not idle.
    """
    one, two, paid = sides(audited, RUNS, GeometricSampler())
    assert 0.3 * paid < loss(one, two) <= paid


@pytest.mark.slow
def test_too_little_noise_is_refuted(audited):
    """
    As many runs with half the noise are worth more than was paid, and are found to be.
    """
    one, two, paid = sides(audited, RUNS, Less(1 / 2))
    assert loss(one, two) > paid


def part(folder, runs):
    """One process's share of the runs, on worlds of its own."""
    for name in ("meets", "half_width"):
        setattr(planning, name, remembered(getattr(planning, name)))
    return sides(make(Path(folder) / str(os.getpid()), 1), runs, GeometricSampler())


@pytest.mark.audit
def test_two_hundred_thousand_runs(tmp_path, capsys):
    """
    200,000 runs a side: the bound comes within a tenth of the charge, and not over it.
    """
    workers = os.cpu_count() or 1
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        parts = list(pool.map(partial(part, tmp_path), [200_000 // workers] * workers))
    one, two = (np.concatenate([each[side] for each in parts]) for side in (0, 1))
    (paid,) = {each[2] for each in parts}
    found = loss(one, two)
    with capsys.disabled():
        print(f"\n{len(one)} runs a side: paid {paid:.4f}, at least {found:.4f} lost")  # noqa: T201
    assert 0.9 * paid < found <= paid
