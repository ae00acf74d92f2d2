"""What one statement has paid, over all of its steps: in all, and for each of its numbers.

A record pays for every measurement that touches its cell, so the statement costs what the dearest
cell pays over all steps, and a number what the dearest of its own records pays for what it rests
on.  Invariant: no number costs more than its statement; who paid nothing for it has 0.

Units: 2⁻⁴⁰ alpha per record, as charges.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from msgspec.structs import replace

from proxy.engine.answers import Answer
from proxy.inference.accounting import TABLE, UNIT, Table, charge, maximum
from proxy.inference.dense_system import MeasuredFamily
from proxy.inference.estimator import Estimator
from proxy.inference.family import Family
from proxy.inference.plan import PlannedMeasurement
from proxy.inference.query import Factor, Integers, Term
from proxy.inference.space import Space
from proxy.sql.program import Number

STEP, COST = "step of", "cost so far"  # in the line of a later step: its first, units of all


class Rests(dict[int, MeasuredFamily]):
    """The blocks that were paid for, by row; it records those that are looked up."""

    def __init__(self, paid: Mapping[int, MeasuredFamily]) -> None:
        super().__init__(paid)
        self.blocks: dict[int, MeasuredFamily] = {}  # by their first row

    def __getitem__(self, row: int) -> MeasuredFamily:
        block = super().__getitem__(row)
        self.blocks[block.start] = block
        return block


@dataclass(eq=False)
class Bill:
    """The charges of one statement."""

    space: Space
    limit: int | None = None  # of what the statement may cost, over all its steps
    first: int = 0  # the audit line of its first step; 0: nothing was paid
    paid: dict[int, MeasuredFamily] = field(default_factory=dict)  # row of the history -> block
    charged: int = 0  # the sum of what each step cost, which is no less than what any cell paid
    owners: Sequence[int] = ()  # [target of the next step] the place of its number
    # first row of a block -> its charges: when it was measured, and when refined
    _terms: dict[int, tuple[Term, ...]] = field(default_factory=dict)
    _asked: dict[int, dict[int, MeasuredFamily]] = field(
        default_factory=dict
    )  # by the place of a number

    def continued(self) -> Bill:
        """Return the bill of the statement's next part, whose numbers have paid nothing yet."""
        return Bill(
            self.space, self.limit, self.first, charged=self.charged, _terms=dict(self._terms)
        )

    def add(self, planned: Sequence[PlannedMeasurement], line: int = 0, cost: int = 0) -> None:
        """Add what a step has paid."""
        self.first = self.first or line
        self.charged += cost
        for each in planned:
            block = each.block
            self.paid |= {row: block for row in block.rows}
            term = charge(each.family, each.scale, each.before)
            self._terms[block.start] = (*self._terms.get(block.start, ()), term)
            self._asked.setdefault(self.owners[each.target], {})[block.start] = block

    @property
    def rest(self) -> int | None:
        """What the limit leaves for further steps; None where there is no limit."""
        return None if self.limit is None else max(self.limit - self.charged, 0)

    def cost(self, more: Sequence[Term] = ()) -> int:
        """Return what the dearest cell has paid, with the charges of a further step added."""
        return maximum([*chain(*self._terms.values()), *more], self.space).value

    def price(self, place: int) -> int:
        """Return what the dearest cell paid for what was measured for one number."""
        return maximum(self._of(self._asked.get(place, ())), self.space).value

    def _of(self, blocks: Iterable[int]) -> list[Term]:
        """Return the charges of blocks, by their first rows."""
        return [term for start in blocks for term in self._terms[start]]

    def rests(self, place: int = -1) -> Rests:
        """Return a record of the paid blocks that one number rests on, its own among them."""
        rests = Rests(self.paid)
        rests.blocks |= self._asked.get(place, {})
        return rests

    def priced(self, number: Number, answers: Sequence[Answer], rests: Rests) -> list[Answer]:
        """Return the answers of one number, each with the cost of its dearest record."""
        costs = self.costs(number, rests)
        return [
            replace(a, cost=costs[row]) if a.cost else a for row, a in enumerate(answers)
        ]  # fmt: skip

    def costs(self, number: Number, rests: Rests) -> list[float]:
        """Return what the dearest record of each row paid for what the number rests on, in alpha.

        A row whose own records paid nothing, since what it rests on is of others, costs what the
        dearest of those paid.
        """
        terms = self._of(rests.blocks)
        if not terms:
            return [0.0] * number.family.rows
        most, rows = maximum(terms, self.space).value, number.family.rows
        dearest = _by_row(number.family, terms, self.space)
        if dearest is None:  # too many cells at once to look at each
            return [most / UNIT] * rows
        return [(int(value) or most) / UNIT for value in dearest]


def source(
    estimators: Sequence[Estimator], paid: Mapping[int, MeasuredFamily]
) -> tuple[str, float]:
    """Return ``measured`` or ``inferred``, and the alpha of the paid blocks used."""
    used = {}
    if paid:
        rows = (row for each in estimators for row in each.rows.tolist() if row in paid)
        used = {id(block): block for block in map(paid.__getitem__, rows)}
    cost = math.fsum(block.family.sensitivity / block.scale for block in used.values())
    return ("measured" if used else "inferred"), cost


def _by_row(family: Family, terms: Sequence[Term], space: Space) -> Integers | None:
    """Return the largest sum of charges over the cells of each row of a family [rows]."""
    bound = family.bound
    inside = [Factor(f.axes, (f.array != 0).astype(np.int64)) for f in bound.factors]
    axes = tuple(sorted({*family.axes, *bound.axes, *(a for term in terms for a in term.axes)}))
    if space.cells(axes) > TABLE:
        return None
    total = np.zeros([space.sizes[axis] for axis in axes], dtype=np.int64)
    for term in terms:
        total += Table(term.axes, term.dense(term.axes, space)).over(axes)
    for factor in inside:
        total *= factor.over(axes)
    labels = np.broadcast_to(
        Table(family.axes, family.labels.astype(np.int64)).over(axes), total.shape
    ).ravel()
    dearest = np.zeros(family.rows, dtype=np.int64)
    held = labels >= 0
    np.maximum.at(dearest, labels[held], total.ravel()[held])
    return dearest
