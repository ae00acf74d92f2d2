"""What the proxy says of itself: budgets, the history, and what a statement would cost.

All of it follows from public queries and released answers.  Invariant: nothing here measures; a
plan that is made to be shown is taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from proxy.book import Book
from proxy.goals import Goal
from proxy.inference.accounting import UNIT
from proxy.inference.plan import Plan, Wanted
from proxy.sql import Column, Program, system


@dataclass(frozen=True)
class RuleReport:
    """One budget: what the dearest cell that it covers has spent of it, in alpha."""

    name: str
    budget: float
    spent: float
    left: float
    exact: bool


@dataclass(frozen=True)
class BudgetReport:
    """All budgets of a dataset, and the size of its history."""

    dataset: str
    rules: tuple[RuleReport, ...]
    measurements: int
    numbers: int


@dataclass(frozen=True)
class HistoryLine:
    """One statement that was paid for."""

    sequence: int
    time: datetime
    user: str
    statement: str
    cost: float
    numbers: int


def budget(dataset: str, book: Book) -> BudgetReport:
    """Return every budget of a history, and what is left of it."""
    lines = []
    for rule in book.rules:
        spent = book.account.spent(rule.within)
        lines.append(
            RuleReport(
                rule.name,
                rule.budget / UNIT,
                spent.value / UNIT,
                max(rule.budget - spent.value, 0) / UNIT,
                spent.exact,
            )
        )
    return BudgetReport(dataset, tuple(lines), len(book.history.blocks), len(book.history))


def history(ledger: Any, user: str | None = None) -> list[HistoryLine]:
    """Return the statements that were paid for, oldest first; of one user, or of all.

    Those of one user are numbered on their own, so that no gap tells of others' statements.
    """
    lines = [x for x in ledger.audit() if x.kind == "measured" and user in (None, x.user)]
    return [
        HistoryLine(
            line.seq if user is None else number,
            line.time,
            line.user,
            line.statement,
            line.cost / UNIT,
            line.answers,
        )
        for number, line in enumerate(lines, 1)
    ]


EXPLAINED = (
    Column("number", "text"),
    Column("group", "text"),
    Column("source", "text"),
    Column("cost", "double precision"),
    Column("half_width", "double precision"),
    Column("left_after", "double precision"),
)


def explain(
    program: Program,
    goals: Sequence[Goal],
    book: Book,
    make: Callable[[Book, Sequence[Wanted]], Plan],
    charged: bool = True,
) -> list[tuple[Any, ...]]:
    """Return one row for each number: free, or its cost; the interval to expect; what is left.

    ``left_after`` is what the whole statement would leave: all, if it would not be ``charged``.  A
    number that is met in steps shows its first.
    """
    kept = len(book.history.blocks)
    try:
        wants = [goal.wants(book.history) for goal in goals]
        plan = make(book, [w for each in wants for w in each])
        left = book.left(book.charges(plan.measurements) if charged else ())
        paid = {row: b for b in book.history.blocks[kept:] for row in b.rows}
        rows: list[tuple[Any, ...]] = []
        for release in program.releases:
            labels = list(zip(*(group.values for group in release.groups), strict=True))
            for goal in [goal for goal in goals if goal.number in release.numbers]:
                for row, (source, cost, half) in enumerate(goal.expected(book.history, paid)):
                    group = ", ".join(map(str, labels[row])) if labels else None
                    rows.append((goal.number.label, group, source, cost, half, left))
        return rows
    finally:
        book.history.truncate(kept)


TOO_DEAR = (
    "what cannot be told from 0 is not met at more than the other groups cost, or than the budget"
)
NEXT_TIME = "the steps it was given were not enough; asking again may bring it nearer"
NO_NEARER = "nothing more that could be measured would bring it nearer"


def unmet(goal: Goal, end: str, more: bool) -> Iterator[str]:
    """Yield the notices that rows met in steps are not as good as they were asked for, and why.

    ``end`` is why rows were left out; ``more``, whether the last step still measured something.
    """
    out, lost, rest = goal.unmet()
    yield from _less_exact(goal, out, end)
    yield from _less_exact(goal, lost, TOO_DEAR)
    yield from _less_exact(goal, rest, NEXT_TIME if more else NO_NEARER)


def foreseen(goal: Goal, end: str, most: int) -> Iterator[str]:
    """Yield the notices of what is known of a number that is met in steps, before the first.

    ``most`` is what they can cost in all, in 2⁻⁴⁰ alpha.
    """
    out, lost, _ = goal.unmet()
    yield from _less_exact(goal, out, end)
    yield from _less_exact(goal, lost, TOO_DEAR)
    if any(look.asked for look in goal.looks.values()):
        yield (
            f"{goal.number.label} is met in up to {goal.steps} steps, each as the answers before "
            "it require: this is the cost of the first, and all of them cost at most "
            f"{most / UNIT:.4g}, which is left"
        )


def _less_exact(goal: Goal, rows: int, why: str) -> Iterator[str]:
    every = goal.number.family.rows
    groups = f", for {rows} of {every} groups" if every > 1 else ""
    if rows:
        yield f"{goal.number.label} is less exact than was asked{groups}: {why}"


BUDGET, HISTORY = (
    tuple(Column(name, kind) for name, kind in system.TABLES[table])
    for table in ("budget", "history")
)


def budget_rows(report: BudgetReport) -> list[tuple[Any, ...]]:
    """Return a budget report as rows of the relation ``privacy.budget``."""
    return [(r.name, r.budget, r.spent, r.left, r.exact) for r in report.rules]


def history_rows(lines: Sequence[HistoryLine]) -> Iterator[tuple[Any, ...]]:
    """Yield the history as rows of the relation ``privacy.history``."""
    for line in lines:
        time = line.time.replace(tzinfo=None)
        yield line.sequence, time, line.user, line.statement, line.cost, line.numbers
