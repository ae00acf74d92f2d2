"""The audit by replay: the same attack on neighbouring data, made to see the same answers.

An attack runs on data D with the real noise, and again on a neighbour D' with the noise that gives
the same answers.  What the attacker sees must then be equal, byte by byte: it follows from the
answers alone.  So the likelihood of all that is seen is that of the noise, two-sided geometric,
p^|n| with p = exp(-1/scale), and the loss of an attack is Σ (|n'| - |n|)/scale ≤ Σ |Δ|/scale, Δ the
difference of the exact answers: exact rational numbers, compared with what the ledger charged.

``scale`` is what the library was asked for, and Δ is taken from the cubes, so that no line of the
proxy's accounting vouches for itself.

A refinement takes the place of noise that was drawn, and of no other: then the newest answers have
the likelihood of their own noise, the older ones one that is free of the data, and a row loses what
its last scale says; a step of it, the difference.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from random import Random

import numpy as np
import opendp.measurements

import proxy.engine.engine
import proxy.inference.mechanism as mechanism
from proxy.engine import Engine
from proxy.errors import Error
from proxy.inference.accounting import UNIT
from proxy.inference.mechanism import GeometricSampler
from proxy.inference.query import COUNT, Factor
from proxy.protection import coding, protection
from proxy.steward import snapshots as steward
from tests.privacy.attacker import Attacker
from tests.privacy.double import MemoryLedger
from tests.privacy.worlds import budget, limit

STEPS = 6


class AuditError(AssertionError):
    """The proxy broke its promise, or this audit's reading of it."""


def need(holds, fault):
    """Raise AuditError unless it holds."""
    if not holds:
        raise AuditError(fault)


@dataclass
class Draw:
    """The noise of one measurement: its scale, the exact answers below it, and itself; and at which
    audit lines it was drawn and refined, to which scales.
    """

    scale: float
    exact: list[int]
    noise: list[int]
    steps: list[tuple[int, float]] = field(default_factory=list)

    @property
    def answers(self):
        return [a + k for a, k in zip(self.exact, self.noise, strict=True)]


class Side:
    """The data of one side: hands out its cubes, and sees what the proxy reads and draws."""

    def __init__(self, cubes):
        self._cubes = cubes
        self._exact = []
        self.draws = []
        self.changes = []  # [draws and refinements, in their order] which draw, and its answers
        self.ledger = None

    def open(self, snapshot):
        """Return the cube of a snapshot."""
        return Watched(self._cubes[min(snapshot, 2) - 1], self._exact)

    def draw(self, scale, count):
        """Return the noise of a measurement."""
        need(self._exact and count == len(self._exact[0]), "noise for what was not read")
        self.draws.append(self._drawn(scale, self._exact.pop()))
        return self._changed(len(self.draws) - 1)

    def refine(self, noise, old, new):
        """Return the noise that takes the place of a measurement's."""
        need(self._exact and len(noise) == len(self._exact[0]), "noise for what was not read")
        exact = self._exact.pop()
        found = [
            place
            for place, draw in enumerate(self.draws)
            if (draw.scale, draw.exact, draw.noise) == (old, exact, noise)
        ]
        need(found and new < old, "what is refined is no noise that was drawn last")
        draw = self.draws[found[0]]
        draw.noise, draw.scale = self._refined(draw, new), new
        return self._changed(found[0])

    def _changed(self, place):
        draw = self.draws[place]
        line = self.ledger.sequence() + 1 if self.ledger else 0
        draw.steps.append((line, draw.scale))
        self.changes.append((place, draw.answers))
        return draw.noise

    def end(self):
        """Check that nothing was read without noise."""
        need(not self._exact, "exact answers were read, and no noise was drawn")


class Recording(Side):
    """Draws the real noise, at the scale that reaches the library; or, with a generator, noise of
    that law that is the same in every run.
    """

    def __init__(self, cubes, generator=None):
        super().__init__(cubes)
        self._generator = generator

    def _drawn(self, scale, exact):
        real, asked = opendp.measurements.make_laplace, []

        def spy(*args, scale, **kwargs):
            asked.append(scale)
            return real(*args, scale=scale, **kwargs)

        opendp.measurements.make_laplace = spy
        try:
            noise = GeometricSampler().draw(scale, len(exact))
        finally:
            opendp.measurements.make_laplace = real
        need(len(asked) == 1, "the noise is not one call of the library")
        if self._generator is not None:
            one, two = self._generator.geometric(-np.expm1(-1 / asked[0]), (2, len(exact)))
            noise = (one - two).tolist()
        return Draw(asked[0], exact, noise)

    def _refined(self, draw, new):
        real, asked, given, generator = mechanism.Refinement, [], [], self._generator

        class Spy(real):
            def __init__(self, *scales):
                asked.append(scales)
                super().__init__(*scales, *([generator.bytes] if generator is not None else []))

            def draw(self, noise):
                given.append(super().draw(noise))
                return given[-1]

        mechanism.Refinement = Spy
        try:
            noise = GeometricSampler().refine(draw.noise, draw.scale, new)
        finally:
            mechanism.Refinement = real
        need(asked == [(draw.scale, new)] and given == noise, "the noise is not a refinement's")
        return noise


class Replaying(Side):
    """Returns the noise that makes the answers those of a recording."""

    def __init__(self, cubes, recorded):
        super().__init__(cubes)
        self._recorded = recorded

    def _told(self, place, exact):
        """Return the noise with which the next answers are those of the recording."""
        number = len(self.changes)
        need(number < len(self._recorded), "more is measured on the neighbour")
        same, answers = self._recorded[number]
        need(same == place, "other answers are refined on the neighbour")
        need(len(answers) == len(exact), "other families are measured on the neighbour")
        return [y - a for y, a in zip(answers, exact, strict=True)]

    def _drawn(self, scale, exact):
        return Draw(scale, exact, self._told(len(self.draws), exact))

    def _refined(self, draw, new):
        return self._told(self.draws.index(draw), draw.exact)


class Watched:
    """A cube that notes what was read off it."""

    def __init__(self, cube, exact):
        self._cube = cube
        self._exact = exact

    def answer(self, family):
        self._exact.append(self._cube.answer(family))
        return self._exact[-1]


@dataclass
class Attack:
    """One attack on one side, and what it saw: one text a step."""

    world: object
    ledger: object
    side: Side
    attacker: Attacker
    transcript: list[str] = field(default_factory=list)
    told: list[float] = field(default_factory=list)  # the costs

    def __post_init__(self):
        self.side.ledger = self.ledger
        self.engines = [self._engine() for _ in range(2)]
        self._sessions = {}

    def _engine(self):
        real = proxy.engine.engine.Evaluator
        proxy.engine.engine.Evaluator = lambda domain: (
            self.world.evaluator
        )  # it knows the domain only
        try:
            return Engine(self.world.policy, self.ledger, self.side.open, sampler=self.side)
        finally:
            proxy.engine.engine.Evaluator = real

    def run(self, steps=STEPS):
        """Let the attacker see one step after the other."""
        for _ in range(steps):
            what, place, user, text = self.attacker.move(self.transcript)
            step = getattr(self, f"_{what}")
            said = f"{what} {place} {user} {text}\n"
            try:
                self.transcript.append(said + step(place, user, text))
            except Exception as error:
                error.add_note("\n".join(["the attack:", *self.transcript, said]))
                raise
        self.transcript.append(self._public())
        self.side.end()
        return self

    def _ask(self, place, user, text):
        key = place, user
        if key not in self._sessions:
            self._sessions[key] = self.engines[place].session(user)
        try:
            result = self._sessions[key].execute(text)
        except Error as error:
            amounts = [getattr(error, part, None) for part in ("requested", "spent", "left")]
            return f"{type(error).__name__} {error.sqlstate} {error.position} {error}\n{amounts!r}"
        self.told.append(result.cost)
        return repr(result)

    def _look(self, place, user, text):
        engine = self.engines[place]
        lines = [(h.sequence, h.user, h.statement, h.cost, h.numbers) for h in engine.history()]
        return repr((engine.budget(user), lines))

    def _rebuild(self, *_):
        return repr(rebuild(self.ledger, self.world.policy))

    def _public(self):
        """What is in the ledger, save the times."""
        rows = [
            (m.id, m.sequence, m.family.key, m.scale.hex(), m.answers, m.history, m.snapshot)
            for m in self.ledger.measurements()
        ]
        lines = [
            (i.seq, i.user, i.kind, i.statement, i.cost, i.answers, i.detail)
            for i in [*self.ledger.audit(), *self.ledger.notes()]
        ]
        return repr((rows, lines, self.ledger.spent(), self.ledger.snapshot()))


def rebuild(ledger, policy):
    """Begin a snapshot as the steward does; the cubes are there already.

    The fingerprint of the source is left out: it is for operators, and its key is the state's.
    """
    real = steward.built
    steward.built = lambda policy, meant, folder, draft, *_: (
        draft.touch() or steward.Built(None, "", coding(meant.protection), None)
    )
    try:
        with tempfile.TemporaryDirectory() as folder:
            return steward.new_snapshot(policy, protection(policy), Path(folder), ledger, "sam")
    finally:
        steward.built = real


@dataclass(frozen=True)
class Outcome:
    """An attack that the proxy stood: what was lost and paid, in alpha, and what was seen."""

    lost: float
    paid: float
    transcript: list[str]


def audit(world, seed, ledger=MemoryLedger, steps=STEPS, *, repeated=False):
    """Attack one pair of neighbours, from the side that has the record or from the other.

    ``repeated``: with noise that is the same in every run.

    Raises:
        AuditError: what is seen depends on the data, or is worth more than was charged.
    """
    rng = Random(f"{world.name} {seed}")
    pair, sides = (
        rng.choice(world.pairs),
        rng.choice((("without", "beside"), ("beside", "without"))),
    )
    here, there = (getattr(pair, side) for side in sides)

    def attack(side):
        attacker = Attacker(seed, pair.cells[0], world)
        return Attack(world, ledger(world.policy), side, attacker).run(steps)

    one = attack(Recording(here, np.random.default_rng(seed) if repeated else None))
    two = attack(Replaying(there, one.side.changes))
    for at, (left, right) in enumerate(zip(one.transcript, two.transcript, strict=True)):
        need(left == right, f"step {at} shows the data:\n{left}\nor\n{right}")
    need(len(one.side.changes) == len(two.side.changes), "other plans on the neighbour")
    return _account(world, pair, one, two)


def _account(world, pair, one, two):
    """Compare the losses with the charges, exactly."""
    rows = one.ledger.measurements()
    need(len(rows) == len(one.side.draws), "drawn and not in the ledger, or the reverse")
    lost, by_line, rounded = {}, {}, Counter()
    pairs = list(zip(one.side.draws, two.side.draws, strict=True))
    for row in rows:
        # of several that were alike when one of them was refined, either may be this row
        mine, other = next(
            (pair for pair in pairs if tuple(pair[0].answers) == row.answers), (None, None)
        )
        need(mine, "the ledger has other answers than were drawn")
        pairs.remove((mine, other))
        need(mine.steps[-1][0] == row.sequence, "a row of another line than it was drawn for")
        rate = 1 / Fraction(mine.scale)
        moved = sum(abs(a - b) for a, b in zip(mine.exact, other.exact, strict=True))
        signed = sum(abs(m) - abs(k) for k, m in zip(mine.noise, other.noise, strict=True))
        need(abs(signed) <= moved, "the likelihoods differ by more than the answers")
        most = sum(reach(row.family, cell) for cell in pair.cells)
        need(
            moved * rate * Fraction(row.scale) <= most, f"a measurement loses {float(moved * rate)}"
        )
        lost[row.history] = lost.get(row.history, 0) + moved * rate * UNIT
        before = Fraction(0)
        for line, scale in mine.steps:
            step = 1 / Fraction(scale) - before
            by_line[line] = by_line.get(line, 0) + moved * step * UNIT
            # the difference of two charges, each rounded up, may be less than the step by one unit
            rounded[line] += len(pair.cells) * bool(before)
            before += step
    for line in one.ledger.audit():
        cost = line.cost * kept(world) + rounded[line.seq]
        need(by_line.get(line.seq, 0) <= cost, f"line {line.seq}: too cheap")
    costs = [line.cost for line in one.ledger.audit()]
    need(sum(one.told) * UNIT <= sum(costs), "clients were told more than was charged")
    return _budgets(world, pair, one, lost)


def kept(world):
    """How many records of one unit are in the data."""
    return world.policy.privacy.unit.max_rows


def _budgets(world, pair, attack, lost):
    """Compare the losses with what the cells have paid by the proxy's own account."""
    cells = set(pair.cells)
    total, paid = dict.fromkeys(cells, 0), 0
    accountants = {}
    for user in world.users:
        accountant = attack.engines[0].planner._accountant(attack.engines[0].privileges(user))
        accountant.catch_up(attack.ledger)
        accountants[accountant.name] = accountant
    need(lost.keys() <= accountants.keys(), "a history that no user has")
    for name, accountant in accountants.items():
        mine = {cell: accountant.account.spent(_only(cell, world)).value for cell in cells}
        need(max(mine.values()) <= attack.ledger.spent().get(name, 0), "the ledger says less")
        most = sum(mine[cell] for cell in pair.cells)
        need(
            lost.get(name, 0) <= most,
            f"{name}: {float(lost.get(name, 0) / UNIT)} was lost, {most / UNIT} paid",
        )
        paid += most
        for cell in cells:
            total[cell] += mine[cell]
    whole = sum(lost.values())
    base = sum(attack.ledger.snapshot().bases.values())  # in a new snapshot all begin with it
    for cell, spent in total.items():
        most = limit(world.name, cell) * UNIT
        need(spent <= max(most, base), f"cell {cell} has paid {spent / UNIT}")
        need(len(pair.cells) > 1 or whole <= most, f"cell {cell} has lost {float(whole / UNIT)}")
    need(whole <= budget(world.name) * UNIT, "more was lost than the budget")
    return Outcome(float(whole / UNIT), paid / UNIT, attack.transcript)


def _only(cell, world):
    """Indicators of one cell."""
    return tuple(
        Factor((axis,), (np.arange(size) == code).astype(np.int64))
        for axis, (code, size) in enumerate(zip(cell, world.space().sizes, strict=True))
    )


def reach(family, cell):
    """The most that one record of a cell moves the answers of a family, worked out one by one."""
    label = family.labels[tuple(cell[axis] for axis in family.axes)]
    if label < 0:
        return 0
    (box,) = family.query.space.boxes

    def coefficient(part):
        term = family.query.parts.get(part)
        if term is None:
            return 0
        product = term.scale
        for factor in term.factors:
            product *= int(factor.array[tuple(cell[axis] for axis in factor.axes)])
        return product

    count, total, present = (coefficient(part) for part in (COUNT, 1, 2))
    values = [count + total * v + present for v in (box.low, box.high)]
    return max(abs(v) for v in [*values, count])  # the last: its measure is NULL
