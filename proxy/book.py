"""One history as the engine keeps it in memory: the rows, what they charged, and its rules.

A book follows the ledger: ``catch_up`` adds what other processes committed.  Invariant: between
statements the history holds exactly the ledger's rows of its name and current snapshot; what was
planned and not measured is taken back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from proxy.inference.accounting import (
    UNIT,
    Account,
    Breach,
    Rule,
    budget_units,
    charge,
    maximum,
)
from proxy.inference.history import Block, History
from proxy.inference.plan import Measurement as Planned
from proxy.inference.query import Space, Term
from proxy.ledger import Measurement, Reads
from proxy.policy import Policy
from proxy.roles import budget_of
from proxy.sql.evaluate import Evaluator
from proxy.sql.region import region


@dataclass(eq=False)
class Book:
    """A history, the account of its charges, and the rules that hold for it."""

    name: str
    space: Space
    records: int
    rules: tuple[Rule, ...]
    sequence: int = -1
    snapshot: int = 0
    history: History = field(init=False)
    account: Account = field(init=False)
    _blocks: dict[int, Block] = field(init=False, default_factory=dict)  # by the ledger's id
    _charges: dict[int, Term] = field(init=False, default_factory=dict)
    _left: dict[int, float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._restart(0)

    def _restart(self, base: int) -> None:
        self.history = History(self.space, self.records)
        self.account = Account(self.space, base)
        self._blocks, self._charges = {}, {}

    def catch_up(self, ledger: Reads) -> None:
        """Add what was committed since the last look."""
        sequence = ledger.sequence()
        if sequence == self.sequence:
            return
        snapshot = ledger.snapshot()
        after = self.sequence
        if snapshot.id != self.snapshot:
            self._restart(snapshot.bases.get(self.name, 0))
            self.snapshot, after = snapshot.id, 0
        rows = [m for m in ledger.measurements(max(after, 0)) if m.snapshot == snapshot.id]
        for row in rows:
            if row.history == self.name:
                self._take(row)
        self.sequence = sequence

    def _take(self, row: Measurement) -> None:
        assert row.id is not None
        term = charge(row.family, row.scale)
        if row.id in self._blocks:  # a refinement: the same query, at a higher price
            self.history.replace(self._blocks[row.id], row.scale, row.answers)
            self._charges[row.id] = term
            self.account.forget()
            self.account.add(self._charges.values())
        else:
            self._blocks[row.id] = self.history.append(row.family, row.scale, row.answers)
            self._charges[row.id] = term
            self.account.add([term])

    def measured(self, rows: Sequence[Measurement], blocks: Iterable[Block], sequence: int) -> None:
        """Take over the committed answers of blocks that were planned."""
        for row, block in zip(rows, blocks, strict=True):
            assert row.id is not None
            self.history.set_answers(block, row.answers)
            self._blocks[row.id] = block
            self._charges[row.id] = charge(row.family, row.scale)
            self.account.add([self._charges[row.id]])
        self.sequence = sequence

    def charges(self, planned: Iterable[Planned]) -> list[Term]:
        """Return what measurements would charge each cell."""
        return [charge(each.family, each.scale) for each in planned]

    def cost(self, terms: Sequence[Term]) -> int:
        """Return the most that charges take from any one cell, in 2⁻⁴⁰ alpha."""
        return maximum(terms, self.space).value

    def breach(self, terms: Sequence[Term]) -> Breach | None:
        """Return the rule that the charges would break, if there is one."""
        return self.account.check(terms, self.rules)

    def left(self, more: Sequence[Term] = ()) -> float:
        """Return the alpha that is left in the cell that has least, after further charges."""
        if more:
            return self._least(more)
        if self.sequence not in self._left:
            self._left = {self.sequence: self._least(())}
        return self._left[self.sequence]

    def _least(self, more: Sequence[Term]) -> float:
        least = min(r.budget - self.account.spent(r.within, more).value for r in self.rules)
        return float(Fraction(max(least, 0), UNIT))


def rules(policy: Policy, evaluator: Evaluator, history: str) -> tuple[Rule, ...]:
    """Return the budgets of the cells in one history.

    A unit of up to k rows pays k times; rules of single cells protect rows.  A guard is a cap on
    every cell: it bounds what the posterior of its claim can become.

    Raises:
        PolicyError: a condition is none over the policy's attributes.
    """
    privacy = policy.privacy
    whole = budget_of(policy, history) / privacy.unit.max_rows
    found = [Rule(budget_units(whole), name="the budget of the cells")]
    for cell in privacy.cells:
        name = f"the budget of the cells where {cell.where}"
        found.append(Rule(budget_units(cell.budget), region(cell, policy, evaluator), name))
    for guard in privacy.guards:
        name = f"the guard COUNT(*) BETWEEN {guard.low} AND {guard.high}"
        found.append(Rule(budget_units(Fraction(guard.cap)), name=name))
    return tuple(found)
