"""One history in memory: its rows, their charges, and the rules that hold for it.

The accountant follows the ledger: ``catch_up`` adds what other processes committed.  Invariant:
between statements the history holds exactly the ledger's rows of its name that are of the cells of
the current snapshot; what was planned and not measured is taken back.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from msgspec.structs import replace

from proxy.budgets import Limit, charged, opening, shared_out
from proxy.domain import Domain
from proxy.errors import InsufficientBudgetError, StateError
from proxy.inference.accounting import UNIT, Account, BudgetRule, Overspend, charge, maximum
from proxy.inference.dense_system import MeasuredFamily
from proxy.inference.history import History
from proxy.inference.plan import PlannedMeasurement
from proxy.inference.query import Factor, Term, TooLargeError
from proxy.inference.space import Space
from proxy.ledger import Measurement, Reads, Snapshot
from proxy.policy import Policy
from proxy.sql.compile.release_point import space

MAX_CACHED = 512  # of what is left
LEFT = "left"


@contextmanager
def uncollected() -> Iterator[None]:
    """Look for no cycles, which go through all objects that there are: what is read has none."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@dataclass(eq=False)
class Accountant:
    """A history, the account of its charges, and the rules that hold for it."""

    name: str
    policy: Policy
    limits: tuple[Limit, ...]
    digest: str  # of the protection that the policy is
    space: Space = field(init=False)
    sequence: int = -1
    snapshot: int = 0
    history: History = field(init=False)
    account: Account = field(init=False)
    rules: tuple[BudgetRule, ...] = ()
    cache: dict[Hashable, Any] = field(default_factory=dict)  # what follows from this history
    sizes: dict[int, int] = field(default_factory=dict)  # audit line -> bytes of its families
    lines: dict[int, int] = field(default_factory=dict)  # first row of a block -> its audit line
    _blocks: dict[int, MeasuredFamily] = field(
        init=False, default_factory=dict
    )  # by the ledger's id
    _rows: dict[int, int] = field(init=False, default_factory=dict)  # the same: id by first row

    def __post_init__(self) -> None:
        self.space = space(self.policy.domain)
        self.history = History(self.space, self.policy.max_records)
        self.account = Account(self.space)

    def catch_up(self, ledger: Reads) -> None:
        """Add what was committed since the last look.

        Raises:
            StateError: another policy has been applied.
        """
        sequence = ledger.sequence()
        if sequence == self.sequence:
            return
        with uncollected():
            self._follow(ledger, sequence)

    def _follow(self, ledger: Reads, sequence: int) -> None:
        snapshot = ledger.snapshot()
        new = snapshot.id != self.snapshot
        rows = ledger.measurements(0 if new else self.sequence)
        if ledger.policy() != self.digest:  # its rows may mean other cells
            raise StateError(
                f"another policy of {self.policy.dataset} has been applied since this connection "
                "was opened",
                hint="connect again; a server takes it over by itself within some seconds: where "
                "a new connection is told the same, wait for that",
            )
        if new:
            if snapshot.layout not in (None, self.policy.domain.layout):
                raise StateError(
                    f"the ledger of {self.policy.dataset} was written for other axes, or in "
                    "another order",
                    hint="connect again",
                )
            self._restart(snapshot, rows)
        try:
            self._take([r for r in rows if (r.history, r.snapshot) == (self.name, snapshot.id)])
        except BaseException:  # some rows may be in the history already
            self.forget()
            raise
        self.sequence = sequence
        self.cache.clear()

    def forget(self) -> None:
        """Drop the history: the next ``catch_up`` reads all of it from the ledger."""
        self.sequence, self.snapshot = -1, 0

    def _restart(self, snapshot: Snapshot, rows: Sequence[Measurement]) -> None:
        """Begin a snapshot: older rows are charged where it says so, and inferred from if true."""
        self.history = History(self.space, self.policy.max_records)
        self._blocks, self._rows = {}, {}
        self.sizes.clear()
        self.lines.clear()
        older = [row for row in rows if row.history == self.name and row.snapshot < snapshot.id]
        terms = [opening(snapshot, self.name), *(charged(snapshot, row) for row in older)]
        self.account = Account(self.space, snapshot.bases.get(self.name, 0))
        self.account.add(term for term in terms if term)
        known = list(still_true(older, snapshot, self.policy.domain))
        blocks = self.history.extend([(row.family, row.scale, row.answers) for row in known])
        for row, block in zip(known, blocks, strict=True):
            self.lines[block.start] = row.sequence
            self.sizes[row.sequence] = self.sizes.get(row.sequence, 0) + row.family.size
        self.rules = tuple(shared_out(self.limits, self.name, self.policy, snapshot, rows))
        self.snapshot = snapshot.id

    def _take(self, rows: Sequence[Measurement]) -> None:
        """Take over rows of the ledger: new ones, and refinements of those that are known."""
        refined = [(row, self._blocks[row.id]) for row in rows if row.id in self._blocks]
        new = [row for row in rows if row.id not in self._blocks]
        terms = [charge(row.family, row.scale) for row in new]
        for row, block in refined:  # the same query, at a higher price
            terms.append(charge(block.family, row.scale, block.scale))
            self.history.replace(block, row.scale, row.answers)
            self.lines[block.start] = row.sequence
        blocks = self.history.extend([(row.family, row.scale, row.answers) for row in new])
        for row, block in zip(new, blocks, strict=True):
            self._keep(row, block, row.sequence)
            self.lines[block.start] = row.sequence
        self.account.add(terms)

    def measured(
        self, rows: Sequence[Measurement], planned: Sequence[PlannedMeasurement], sequence: int
    ) -> None:
        """Take over the committed answers of what was planned."""
        self.account.add(self.charges(planned))
        for row, each in zip(rows, planned, strict=True):
            self.history.set_answers(each.block, row.answers)
            if each.before is None:
                self._keep(row, each.block, sequence)
            self.lines[each.block.start] = sequence
        self.history.refined.clear()
        self.sequence = sequence
        self.cache.clear()

    def _keep(self, row: Measurement, block: MeasuredFamily, sequence: int) -> None:
        """Note a new row of the ledger, in its own history and snapshot: it may be refined."""
        assert row.id is not None
        block.refinable = True
        self._blocks[row.id] = block
        self._rows[block.start] = row.id
        self.sizes[sequence] = self.sizes.get(sequence, 0) + row.family.size

    def row_of(self, block: MeasuredFamily) -> int:
        """Return the ledger's id of a block that may be refined."""
        return self._rows[block.start]

    def remember(self, key: Hashable, value: object) -> None:
        """Cache what follows from the history, until it grows."""
        if len(self.cache) >= MAX_CACHED:
            del self.cache[next(iter(self.cache))]
        self.cache[key] = value

    def charges(self, planned: Iterable[PlannedMeasurement]) -> list[Term]:
        """Return the charges of planned measurements: of refinements, the difference."""
        return [charge(each.family, each.scale, each.before) for each in planned]

    def cost(self, terms: Sequence[Term]) -> int:
        """Return the most that charges take from any one cell, in 2⁻⁴⁰ alpha."""
        return maximum(terms, self.space).value

    def overspend(self, terms: Sequence[Term]) -> Overspend | None:
        """Return the first rule that the charges would break, and by how much, if there is one."""
        return self.account.check(terms, self.rules)

    def require_chargeable(self, planned: PlannedMeasurement) -> None:
        """Refuse a measurement so dear that its charge cannot be written down.

        Raises:
            InsufficientBudgetError: it costs more than the whole budget.
            TooLargeError: its charges are too many.
        """
        try:
            charge(planned.family, planned.scale)
        except TooLargeError:
            family = planned.family
            alpha = Fraction(family.sensitivity) / Fraction(planned.scale)
            touched = [
                Factor(f.axes, (f.array != 0).astype(np.int64)) for f in family.bound.factors
            ]
            for rule in self.rules:
                if not rule.within and alpha * UNIT > rule.budget:
                    spent = self.account.spent(touched).value
                    raise too_dear(Overspend(rule, math.ceil(alpha * UNIT), spent)) from None
            raise

    def left(self, more: Sequence[Term] = ()) -> float:
        """Return the alpha left in the cell that has least left, after further charges."""
        if more:
            return self._least(more)
        if LEFT not in self.cache:
            self.remember(LEFT, self._least(()))
        return float(self.cache[LEFT])

    def most_left(self) -> int:
        """Return an upper bound on what any cell has left, in 2⁻⁴⁰ alpha."""
        return max(max(rule.budget for rule in self.rules) - self.account.least, 0)

    def _least(self, more: Sequence[Term]) -> float:
        least = min(r.budget - self.account.spent(r.within, more).value for r in self.rules)
        return float(Fraction(max(least, 0), UNIT))


def still_true(
    rows: Iterable[Measurement], snapshot: Snapshot, domain: Domain
) -> Iterator[Measurement]:
    """Yield of older snapshots' rows what is of cells that are still the same in a snapshot.

    Those are the numbers of a row that lie before the day from which it has other cells, by their
    coefficients alone.
    """
    if not snapshot.same:
        return
    axis = snapshot.axis
    masks = {
        id: np.array([not each for each in domain.attributes[axis].before(day)])
        for id, day in snapshot.same.items()
    }
    for row in rows:
        if row.snapshot in masks:
            kept = row.family.apart(axis, masks[row.snapshot])
            if kept:
                answers = tuple(row.answers[index] for index in kept)
                yield replace(row, family=row.family.subset(kept), answers=answers)


def too_dear(overspend: Overspend) -> InsufficientBudgetError:
    """Return the error of a statement that costs more than a budget has left."""
    return InsufficientBudgetError(
        f"refused: the statement costs more than {overspend.rule.name} has left",
        requested=overspend.requested / UNIT,
        spent=overspend.spent / UNIT,
        left=overspend.left / UNIT,
        hint="ask for a wider interval (larger half_width or delta), for fewer numbers, "
        "or for what follows from earlier answers",
    )
