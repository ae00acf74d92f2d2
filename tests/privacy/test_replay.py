"""Nothing leaves but what was paid for: random adaptive attacks on neighbouring data, replayed."""

import itertools
import random
from collections import Counter
from contextlib import closing

import numpy as np
import pytest
from msgspec.structs import replace

from proxy.accountant import Accountant
from proxy.engine import measure
from proxy.errors import InsufficientBudgetError
from proxy.inference.accounting import Account, Table, maximum
from proxy.ledger import Measurement
from proxy.ledger.sqlite import SQLiteLedger
from proxy.protection import coding, protection
from tests.privacy import replay
from tests.privacy.attacker import Attacker
from tests.privacy.double import START, MemoryLedger
from tests.privacy.replay import AuditError, audit
from tests.privacy.worlds import POLICIES
from tests.searches import share

SEEN = {
    "measured": "source='measured'",
    "inferred": "source='inferred'",
    "derived": "FROM (SELECT",
    "refused": "InsufficientBudgetError",
    "average": "AVG(",
    "relative": "PERCENT",
    "groups": "GROUP BY",
    "several": "AS n1",
    "twice": "UNION ALL",
    "chosen": "(SELECT ",
    "rebuilt": "rebuild ",
    "display": "BudgetReport",
}


def attack(world, seeds, **how):
    """Audit a world once a seed; return what the attacks saw, counted, and share lost of paid."""
    seen, lost, paid = Counter(), 0.0, 0.0
    for seed in seeds:
        outcome = audit(world, seed, **how)
        seen += Counter(
            kind for kind, text in SEEN.items() if text in "\n".join(outcome.transcript)
        )
        lost, paid = lost + outcome.lost, paid + outcome.paid
    return seen, lost / paid


@pytest.mark.parametrize("seeds", share(1, [range(12), range(12, 37), range(50)], 2), ids=str)
@pytest.mark.parametrize("name", share(5, POLICIES))
def test_two_hundred_attacks_learn_no_more_than_was_charged(name, seeds, audited):
    """
    Rows, groups, errors, refusals, displays and the ledger are byte-equal on neighbouring data,
    and the exact loss is within the charges of each statement, history, cell and budget.

    The attacks meet all that there is to meet, and lose most of what they pay: the bound is near.
    What they meet hangs on the noise, which is therefore the same in every run.
    """
    seen, share = attack(audited[name], seeds, repeated=True)
    assert len(seen) >= len(SEEN) - 1, seen
    assert 0.4 < share <= 1


@pytest.mark.parametrize("part", share(0, range(4), 0))
@pytest.mark.parametrize("name", POLICIES)
def test_four_hundred_attacks(name, part, audited):
    """
    The same over 400 attacks, with noise that is another in each run (100 in the slow run).
    """
    attack(audited[name], range(1000 + part, 1100, 4))


@pytest.mark.audit
@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("name", POLICIES)
def test_ten_thousand_attacks(name, part, audited):
    """
    The same over 10,000 attacks.
    """
    attack(audited[name], range(10_000 + part, 12_500, 10))


@pytest.mark.parametrize(
    "count",
    [2, pytest.param(8, marks=pytest.mark.slow), pytest.param(100, marks=pytest.mark.audit)],
)
@pytest.mark.parametrize("name", POLICIES)
def test_attacks_on_the_real_ledger(name, count, audited, tmp_path):
    """
    The same with the SQLite ledger in place of its double in memory.
    """
    names = itertools.count()
    ledgers = []

    def ledger(policy):
        ticks = itertools.count(int(START.timestamp() * 1e6))
        folder = tmp_path / str(next(names))
        folder.mkdir()
        meant = protection(policy)
        ledgers.append(
            SQLiteLedger.create(
                folder / "ledger",
                dataset=policy.dataset,
                protection=meant.protection,
                digest=meant.digest,
                layout=policy.domain.layout,
                coding=coding(meant.protection),
                anchor=folder / "anchor",
                clock=lambda: next(ticks),
            )
        )
        return ledgers[-1]

    for seed in range(500, 500 + count):
        audit(audited[name], seed, ledger)
        for made in ledgers:
            with closing(made):
                assert made.verify() == []
        ledgers.clear()


@pytest.mark.slow
@pytest.mark.parametrize("seed", share(2, range(6)))
def test_an_own_history_sees_nothing_of_the_others(seed, audited):
    """
    What ann is told, when all ask, is what she is told when the others are silent: results,
    costs, refusals and what is left.
    """
    world = audited["own"]
    pair, rng = world.pairs[seed % len(world.pairs)], random.Random(seed)
    attacker = Attacker(seed, pair.cells[0], world)
    asked = [(rng.choice(("ann", "ann", "bob", "")), attacker.move([str(i)])[3]) for i in range(16)]
    asked = [(user, text) for user, text in asked if "HISTORY" not in text and text]
    crowd = replay.Attack(
        world, MemoryLedger(world.policy), replay.Recording(pair.beside), attacker
    )
    told, draws = [], []
    for user, text in asked:
        before = len(crowd.side.changes)
        said = crowd._ask(0, user, text)
        if user == "ann":
            told.append(said)
            draws += [answers for _, answers in crowd.side.changes[before:]]
    side = replay.Replaying(pair.beside, list(enumerate(draws)))
    alone = replay.Attack(world, MemoryLedger(world.policy), side, attacker)
    assert [alone._ask(0, "ann", text) for user, text in asked if user == "ann"] == told


# --- what the audit is worth: faults that it must find -------------------------------------------


def caught(worlds, match, names=POLICIES):
    """Attack until the audit finds a fault: the same one in every run."""

    def attacks():
        for seed, name in itertools.product(range(60), names):
            audit(worlds[name], seed, repeated=True)

    with pytest.raises(AuditError, match=match):
        attacks()


def replaced(monkeypatch, place, name, change):
    """Put ``change(real)`` in the place of a function."""
    monkeypatch.setattr(place, name, change(getattr(place, name)))


def test_half_the_noise_is_caught(audited, monkeypatch):
    """
    The library is asked for noise of half the scale that was charged.
    """

    def halved(real):
        def draw(self, planned, accountant, tx):
            row = real(self, replace(planned, scale=planned.scale / 2), accountant, tx)
            tx._rows[-1] = replace(row, scale=planned.scale, sequence=tx._rows[-1].sequence)
            return tx._rows[-1]

        return draw

    replaced(monkeypatch, measure.Curator, "draw", halved)
    caught(audited, "a measurement loses")


def test_half_the_noise_inside_the_sampler_is_caught(audited, monkeypatch):
    """
    The sampler itself asks the library for half; or halves what the library gave.
    """

    def halved(real):
        return lambda self, scale, count: real(self, scale / 2, count)

    replaced(monkeypatch, replay.GeometricSampler, "draw", halved)
    caught(audited, "a measurement loses")


def test_noise_halved_after_it_was_drawn_is_caught(audited, monkeypatch):
    """
    What is released is the exact answer and half of the noise.
    """

    def halved(real):
        def draw(self, planned, accountant, tx):
            noisy = real(self, planned, accountant, tx)
            exact = self._cube[1]._cube.answer(planned.family)
            mixed = tuple((a + y) // 2 for a, y in zip(exact, noisy.answers, strict=True))
            tx._rows[-1] = replace(tx._rows[-1], answers=mixed)
            return tx._rows[-1]

        return draw

    replaced(monkeypatch, measure.Curator, "draw", halved)
    caught(audited, "shows the data|other answers|on the neighbour")


@pytest.mark.slow
def test_a_path_without_noise_is_caught(audited, monkeypatch):
    """
    Families of several rows are released as they are.
    """

    def bare(real):
        def draw(self, planned, accountant, tx):
            if planned.family.rows == 1:
                return real(self, planned, accountant, tx)
            exact = self._open_cube(accountant.snapshot)._cube.answer(planned.family)
            row = Measurement(
                planned.family, planned.scale, tuple(exact), accountant.name, accountant.snapshot
            )
            return replace(row, id=tx.append(row))

        return draw

    replaced(monkeypatch, measure.Curator, "draw", bare)
    caught(audited, "shows the data|not in the ledger|on the neighbour")


REFINED = ("pieces", "hierarchy")


def test_noise_that_is_drawn_anew_and_charged_as_refined_is_caught(audited, monkeypatch):
    """
    A refinement that forgets the old noise: the older answers say something, too.
    """

    def anew(real):
        return lambda self, noise, old, new: self.draw(new, len(noise))

    replaced(monkeypatch, replay.GeometricSampler, "refine", anew)
    caught(audited, "the noise is not", REFINED)


def test_a_refinement_of_half_the_noise_is_caught(audited, monkeypatch):
    """
    What is refined is of the right law, and of a smaller scale than was charged.
    """

    def halved(real):
        return lambda self, noise, old, new: real(self, noise, old, new / 2)

    replaced(monkeypatch, replay.GeometricSampler, "refine", halved)
    caught(audited, "the noise is not a refinement's", REFINED)


def test_a_refinement_of_older_noise_is_caught(audited, monkeypatch):
    """
    Each refinement begins with the noise that was drawn first.
    """
    first = {}

    def older(real):
        def measurement(self, id):
            row = real(self, id)
            kept = first.setdefault((self, id), row)
            return replace(row, answers=kept.answers)

        return measurement

    replaced(monkeypatch, MemoryLedger, "measurement", older)
    caught(audited, "no noise that was drawn last", REFINED)


def test_a_refinement_that_is_not_charged_is_caught(audited, monkeypatch):
    """
    Beside others that are; or it is charged for half of what it takes away.
    """

    def spared(real):
        def charges(self, planned):
            free = [replace(p, scale=(p.scale + p.before) / 2) if p.before else p for p in planned]
            return real(self, free)

        return charges

    replaced(monkeypatch, Accountant, "charges", spared)
    caught(audited, "too cheap|was lost|says less", REFINED)


def test_a_forgotten_aggregate_is_caught(audited, monkeypatch):
    """
    Of several measurements of one statement the last is not charged.
    """

    def forgetful(real):
        return lambda self, planned: real(self, list(planned)[: max(len(planned) - 1, 1)])

    replaced(monkeypatch, Accountant, "charges", forgetful)
    caught(audited, "too cheap|told more than was charged")


def test_a_refusal_that_looks_at_the_data_is_caught(audited, monkeypatch):
    """
    A statement about too few records is refused.
    """

    def curious(real):
        def check(self, accountant, terms, *rest):
            cube = self.curator._open_cube(accountant.snapshot)._cube
            for block in accountant.history.blocks[-len(terms) :]:
                if min(cube.answer(block.family)) == 0:
                    raise InsufficientBudgetError("too few", requested=0, spent=0, left=0)
            return real(self, accountant, terms, *rest)

        return check

    replaced(monkeypatch, measure.Measurer, "_require_budget", curious)
    caught(audited, "shows the data|on the neighbour")


def test_a_maximum_for_a_sum_is_caught_in_a_statement(audited, monkeypatch):
    """
    A statement is charged as the dearest of its measurements.
    """

    def dearest(real):
        def cost(self, terms):
            return max((maximum([term], self.space).value for term in terms), default=0)

        return cost

    replaced(monkeypatch, Accountant, "cost", dearest)
    caught(audited, "too cheap")


def test_a_maximum_for_a_sum_is_caught_in_the_account(audited, monkeypatch):
    """
    A cell is charged as much as its dearest measurement, not as all of them.
    """

    def dearest(real):
        def add(self, terms):
            for term in terms:
                axes = tuple(range(len(self.space.sizes)))
                table = Table(term.axes, term.dense(term.axes, self.space)).over(axes)
                before = np.zeros(self.space.sizes, np.int64)
                if self._axes:
                    before = self._table
                self._axes, self._table = axes, np.maximum(before, table)

        return add

    replaced(monkeypatch, Account, "add", dearest)
    caught(audited, "was lost|the ledger says less")
