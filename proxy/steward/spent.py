"""Where a budget goes: what each history's cells have paid, and which are nearest to their limit.

All of it follows from the public queries of the ledger's rows and from their scales; nothing reads
the cube.  Cells are counted, not listed: codes that all charges treat alike are one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from fractions import Fraction

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from proxy.budgets import Limit, accounts, limits, rules_beside
from proxy.domain import Attribute
from proxy.errors import ProgrammingError
from proxy.inference.accounting import UNIT, Account, BudgetRule, Most
from proxy.inference.query import Factor, Integers
from proxy.ledger import SHARED, Reads
from proxy.policy import Policy
from proxy.privileges import histories
from proxy.protection import protection
from proxy.sql.compile.release_point import space
from proxy.sql.evaluator.evaluator import Evaluator
from proxy.sql.shown import printable, shown
from proxy.steward.changes import same_policy

BINS = 40  # labels along an axis of a heat map
NEAREST = 10  # cells
JOINT = 2**18  # groups of cells that are compared
NAMED = 3  # values of one attribute that are named


class LimitReport(Struct, frozen=True):
    """One limit of a history: what the dearest cell that it covers has paid of it, in alpha."""

    name: str
    budget: float
    spent: float
    exact: bool  # else no more than that

    @property
    def left(self) -> float:
        """What is left of it."""
        return max(self.budget - self.spent, 0.0)

    @property
    def share(self) -> float:
        """What is spent of it, between 0 and 1; of nothing, all is."""
        return min(self.spent / self.budget, 1.0) if self.budget else 1.0


class AxisReport(Struct, frozen=True):
    """The labels along one axis of a heat map; ``grouped`` values each where they are many."""

    name: str
    labels: tuple[str, ...]
    grouped: int = 1


class HeatMap(Struct, frozen=True):
    """What the dearest cell with each label, or two, has paid: alpha [rows, columns]."""

    rows: AxisReport
    columns: AxisReport | None
    spent: NDArray[np.float64]
    exact: bool


class CellReport(Struct, frozen=True):
    """Cells that have paid alike, by label of each attribute that tells them apart."""

    labels: tuple[tuple[str, str], ...]
    limit: LimitReport


class Spending(Struct, frozen=True):
    """What the cells of each history had paid, and may pay, at one moment of the ledger."""

    policy: Policy
    sequence: int
    accounts: Mapping[str, Account]
    every: tuple[Limit, ...]  # of all histories together

    def limits(self, history: str = SHARED) -> list[LimitReport]:
        """Return how far each limit of a history is used up."""
        account = self._account(history)
        found = ((rule, account.spent(rule.within)) for rule in self._rules(history))
        return [_limit(rule, most.value, most.exact) for rule, most in found]

    def heat(self, rows: str, columns: str | None = None, history: str = SHARED) -> HeatMap:
        """Return what the dearest cell has paid by the labels of one attribute, or of two."""
        names = [rows] if columns in (None, rows) else [rows, str(columns)]
        axes = [self._axis(name) for name in names]
        most = self._account(history).most(axes)
        reports, table = [], most.table
        for place, (axis, classes) in enumerate(zip(axes, most.classes, strict=True)):
            report, starts = _labels(self.policy.domain.attributes[axis])
            table = _largest(table, place, classes, starts)
            reports.append(report)
        spent = table.reshape(len(reports[0].labels), -1) / UNIT
        return HeatMap(reports[0], reports[1] if len(reports) > 1 else None, spent, most.exact)

    def nearest(
        self, history: str = SHARED, steps: int | None = None, count: int = NEAREST
    ) -> tuple[list[CellReport], bool]:
        """Return the cells that have used up most of a limit; False if others may be as near.

        That is where charges tell more groups of cells apart than are compared: it is then the
        dearest cell with each of the labels.  With ``steps`` what is used of a limit is rounded
        down to one of so many, and cells that are then alike are one group.
        """
        account, rules = self._account(history), self._rules(history)
        regions = [factor for rule in rules for factor in rule.within]
        axes, whole = _told_apart(account, regions)
        shares: NDArray[np.float64] | None = None
        tables = [account.most(axes, rule.within, regions) for rule in rules]
        if steps is not None and tables:
            tables = _in_steps(tables, [rule.budget for rule in rules], steps)
        for rule, most in zip(rules, tables, strict=True):
            share = np.where(most.table >= 0, most.table / rule.budget if rule.budget else 1.0, -1)
            shares = share if shares is None else np.maximum(shares, share)
        if shares is None:
            return [], True
        best = np.argsort(-shares, axis=None, kind="stable")[:count]
        places = [tuple(map(int, np.unravel_index(place, shares.shape))) for place in best]
        cells = [
            CellReport(tuple(self._said(axes, tables[0], place)), _nearest_of(rules, tables, place))
            for place in places
        ]
        found = [cell for cell in cells if cell.limit.spent > 0 or not cell.limit.budget]
        return found, whole and all(most.exact for most in tables)

    def _said(
        self, axes: Sequence[int], most: Most, place: Sequence[int]
    ) -> Iterator[tuple[str, str]]:
        """Yield attribute and labels of a group of cells, where not all labels are in it."""
        for axis, classes, each in zip(axes, most.classes, place, strict=True):
            codes = np.flatnonzero(classes == each)
            if len(codes) < len(classes):
                attribute = self.policy.domain.attributes[axis]
                yield attribute.name, _several(attribute, codes.tolist())

    def _axis(self, name: str) -> int:
        """Return the place of an attribute.

        Raises:
            ProgrammingError: there is none of the name.
        """
        if name not in self.policy.domain.axis:
            raise ProgrammingError(f"no attribute {name}")
        return self.policy.domain.axis[name]

    def _account(self, history: str) -> Account:
        """Return the account of a history; of one that was never used, an empty one."""
        return self.accounts.get(history) or Account(space(self.policy.domain))

    def _rules(self, history: str) -> tuple[BudgetRule, ...]:
        others = {name: each for name, each in self.accounts.items() if name != history}
        return tuple(rules_beside(self.every, history, self.policy, others))


def spending(policy: Policy, reads: Reads) -> Spending:
    """Return what has been spent under the policy in force, its axes in the ledger's order.

    Raises:
        ChangedPolicyError: the policy is not the one in force.
    """
    sequence = reads.sequence()
    shape, snapshot = space(policy.domain), reads.snapshot()
    found = accounts(snapshot, reads.measurements(), shape)
    for name in histories(policy):
        found.setdefault(name, Account(shape, snapshot.bases.get(name, 0)))
    with closing(Evaluator(policy.domain)) as evaluator:
        same_policy(policy, protection(policy, evaluator), reads)
        every = limits(policy, evaluator)
    return Spending(policy, sequence, found, every)


def in_steps(shares: NDArray[np.float64], steps: int) -> NDArray[np.float64]:
    """Return shares rounded down to so many steps: what one statement paid is not seen in them."""
    return np.floor(shares * steps + 1e-9) / steps


def label(attribute: Attribute, code: int) -> str:
    """Return a cell's label along an axis, in words; of a bin, both ends."""
    if code >= len(attribute.values):
        return "NULL"
    if attribute.edges is not None:
        return f"{attribute.edges[code]} to below {attribute.edges[code + 1]}"
    return printable(shown(attribute.values[code]))


def _limit(rule: BudgetRule, spent: int, exact: bool) -> LimitReport:
    return LimitReport(rule.name, rule.budget / UNIT, spent / UNIT, exact)


def _nearest_of(
    rules: Sequence[BudgetRule], tables: Sequence[Most], place: tuple[int, ...]
) -> LimitReport:
    """Return the limit that a group of cells has used up most of."""
    inside = [
        _limit(rule, int(most.table[place]), most.exact)
        for rule, most in zip(rules, tables, strict=True)
        if most.table[place] >= 0
    ]
    return max(inside, key=lambda limit: limit.share)


def _in_steps(tables: Sequence[Most], budgets: Sequence[int], steps: int) -> list[Most]:
    """Return tables whose amounts are rounded down to steps of their budgets, and classes of codes
    that are then alike in all of them as one.
    """
    exact = np.stack([most.table for most in tables])
    whole = np.array(budgets).reshape(-1, *(1 for _ in exact.shape[1:]))
    rough = in_steps(exact / np.maximum(whole, 1), steps) * whole
    rough = np.where((exact > 0) & (whole > 0), rough, exact).astype(np.int64)
    classes = []
    for place, codes in enumerate(tables[0].classes, 1):
        slices = np.moveaxis(rough, place, 0).reshape(rough.shape[place], -1)
        _, first, same = np.unique(slices, axis=0, return_index=True, return_inverse=True)
        kept = np.sort(first)
        rough = np.take(rough, kept, axis=place)
        classes.append(np.searchsorted(kept, first)[same.reshape(-1)][codes])
    return [Most(tuple(classes), rough[i], most.exact) for i, most in enumerate(tables)]


def _told_apart(account: Account, regions: Sequence[Factor]) -> tuple[list[int], bool]:
    """Return the axes whose groups are compared: all that matter, or as many as there is room."""
    kinds = account.classes(regions)
    axes: list[int] = []
    room: Fraction = Fraction(JOINT)
    for axis in sorted((a for a in kinds if kinds[a] > 1), key=lambda a: kinds[a]):
        if kinds[axis] <= room:
            axes.append(axis)
            room /= kinds[axis]
    return sorted(axes), len(axes) == sum(n > 1 for n in kinds.values())


def _labels(attribute: Attribute) -> tuple[AxisReport, Integers]:
    """Return the labels along an axis, of several values each where it is long; their codes."""
    size = attribute.size
    each = -(-size // BINS)
    starts = np.arange(0, size, each)
    labels = [_several(attribute, range(s, min(s + each, size))) for s in starts.tolist()]
    return AxisReport(attribute.name, tuple(labels), each), starts


def _largest(table: Integers, place: int, classes: Integers, starts: Integers) -> Integers:
    """Return a table by ranges of codes in the place of classes: the largest of each."""
    ends = [*starts[1:].tolist(), len(classes)]
    parts = [
        np.take(table, np.unique(classes[start:end]), axis=place).max(axis=place)
        for start, end in zip(starts.tolist(), ends, strict=True)
    ]
    return np.stack(parts, axis=place)


def _several(attribute: Attribute, codes: Sequence[int]) -> str:
    """Return some labels of an axis in words: the ends of a range, or the first of a list."""
    if len(codes) == 1:
        return label(attribute, codes[0])
    first, last = label(attribute, codes[0]), label(attribute, codes[-1])
    if len(codes) > NAMED and codes[-1] - codes[0] == len(codes) - 1:
        return f"{first} … {last}"
    named = [label(attribute, code) for code in codes[:NAMED]]
    rest = f" and {len(codes) - NAMED} more" if len(codes) > NAMED else ""
    return ", ".join(named) + rest
