"""Reports of the proxy on itself: budgets, the history, and the cost of a planned statement.

All of it follows from public queries and released answers.  Invariant: nothing here measures; a
plan that is made to be shown is taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from fractions import Fraction
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from proxy.accountant import Accountant, still_true
from proxy.budgets import CELLS
from proxy.domain import Domain
from proxy.engine.allowances import Allowance
from proxy.engine.answers import Answer
from proxy.engine.bill import COST, STEP, Bill
from proxy.engine.functions.digits import upwards
from proxy.engine.goals import Goal
from proxy.engine.goals.linear import AbsoluteGoal
from proxy.engine.progress import Progress
from proxy.engine.strategy import told
from proxy.inference.accounting import UNIT
from proxy.inference.plan import AccuracyTarget, Plan
from proxy.inference.query import Term
from proxy.ledger import SHARED, AuditLine, Ledger
from proxy.policy.kinds import decimal
from proxy.policy.weaker import UNLISTED
from proxy.privileges import OWN
from proxy.protection import shares, upgraded
from proxy.sql import Column, Program, privacy_schema


class RuleReport(Struct, frozen=True):
    """One limit: what the dearest cell that it covers, or its statements together, have spent."""

    name: str
    budget: float
    spent: float
    left: float
    exact: bool


class BudgetReport(Struct, frozen=True):
    """All limits that bind a user, and the size of their history."""

    dataset: str
    rules: tuple[RuleReport, ...]
    measurements: int
    numbers: int


class HistoryLine(Struct, frozen=True):
    """One paid statement."""

    sequence: int
    time: datetime
    user: str
    statement: str
    cost: float
    numbers: int


def budget(dataset: str, accountant: Accountant, allowances: Sequence[Allowance]) -> BudgetReport:
    """Return the report of every limit that binds a user."""
    lines = [
        RuleReport(
            allowance.name,
            allowance.budget / UNIT,
            allowance.spent / UNIT,
            allowance.left,
            allowance.exact,
        )
        for allowance in allowances
    ]
    return BudgetReport(
        dataset, tuple(lines), len(accountant.history.blocks), len(accountant.history)
    )


def in_force(ledger: Ledger, domain: Domain, user: str | None = None) -> BudgetReport:
    """Return what each history has spent at most, of the policy in force, as the ledger says alone.

    Of a user, only the history that serves them.  Numbers of closed periods are counted where the
    domain is that of the ledger.
    """
    known, paid = upgraded(ledger.protection().protection), ledger.spent()
    users = known["users"]
    serves = users.get(user, users[UNLISTED])["history"]
    serves = f"{OWN}{user}" if serves == "own" else serves
    lines = []
    for name, share in shares(known).items():
        if user is not None and name != serves:
            continue
        spent = paid.get(name, 0) / UNIT
        rule = CELLS if name == SHARED else f"{CELLS}, {name}"
        lines.append(RuleReport(rule, float(share), spent, max(float(share) - spent, 0.0), False))
    snapshot, every = ledger.snapshot(), ledger.measurements()
    rows = [row for row in every if row.snapshot == snapshot.id]
    if snapshot.layout == domain.layout:
        rows += still_true(every, snapshot, domain)
    numbers = sum(row.family.rows for row in rows)
    return BudgetReport(ledger.dataset, tuple(lines), len(rows), numbers)


def history(lines: Iterable[AuditLine], user: str | None = None) -> list[HistoryLine]:
    """Return the paid statements, oldest first; of one user, or of all.

    The steps of a statement, each a line of the ledger, are one.  Those of one user are numbered on
    their own, so that no gap tells of others' statements.
    """
    statements: dict[int, HistoryLine] = {}  # by the first line of each
    for line in lines:
        if line.kind != "measured" or user not in (None, line.user):
            continue
        cost = line.detail.get(COST, line.cost) / UNIT
        first = statements.get(line.detail.get(STEP, line.seq))
        if first is not None:
            numbers = first.numbers + line.answers
            statements[first.sequence] = replace(first, cost=cost, numbers=numbers)
            continue
        statements[line.seq] = HistoryLine(
            line.seq, line.time, line.user, line.statement, cost, line.answers
        )
    if user is None:
        return list(statements.values())
    return [replace(each, sequence=n) for n, each in enumerate(statements.values(), 1)]


COST_AT = 3
RELEASED_FIRST = (
    "this is the result that chooses rows, which is released first; with its values the rest is "
    "planned and priced: explain it once that result is known"
)
EXPLAINED = (
    Column("number", "text"),
    Column("group", "text"),
    Column("source", "text"),
    Column("cost", "double precision"),
    Column("half_width", "double precision"),
    Column("left_after", "double precision"),
    Column("at_most", "double precision"),
)


def explain(
    program: Program,
    goals: Sequence[Goal],
    progress: Sequence[Progress],
    accountant: Accountant,
    make: Callable[[Accountant, Sequence[AccuracyTarget]], Plan],
    after: Callable[[Sequence[Term]], float],
    most: int,
) -> tuple[list[tuple[Any, ...]], tuple[str, ...]]:
    """Return one row for each number: free, or its cost; the interval to expect; what is left.

    ``left_after`` is what the whole statement would leave, as ``after`` says it of its charges.  A
    number that is met in steps shows its first; ``at_most`` is what the whole statement costs, or,
    where there are steps, ``most``, in 2⁻⁴⁰ alpha.  Return notices of what is dear, too.
    """
    kept = accountant.history.mark
    try:
        plan = make(accountant, [target for each in progress for target in each.targets])
        left = after(accountant.charges(plan.measurements))
        bill = Bill(accountant.space)
        bill.owners = [place for place, each in enumerate(progress) for _ in each.targets]
        bill.add(plan.measurements)
        stepwise = any(look.asked for each in progress for look in each.looks.values())
        end = left, (most if stepwise else bill.cost()) / UNIT
        rows: list[tuple[Any, ...]] = []
        for release in program.releases:
            labels = list(zip(*(group.values for group in release.groups), strict=True))
            for goal in [goal for goal in goals if goal.number in release.numbers]:
                rests = bill.rests()
                expected = goal.expected(accountant.history, rests)
                costs = bill.costs(goal.number, rests)
                for row, (source, paid, half) in enumerate(expected):
                    cost = costs[row] if paid else 0.0
                    group = ", ".join(map(_written, labels[row])) if labels else None
                    rows.append((goal.number.label, group, source, cost, upwards(half), *end))
        pieces = told(plan.measurements, accountant.policy.domain)
        return rows, (*pieces, *dear(goals, bill))
    finally:
        accountant.history.take_back(kept)


def _written(value: Any) -> str:
    """Return a group's value as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "NULL" if value is None else str(value)


MOST = 0.75  # of the price of a statement
TOO_DEAR = (
    "what cannot be told from 0 is not met at more than the other groups cost, or than the budget"
)
NEXT_TIME = "the steps it was given were not enough; asking again may bring it nearer"
NO_NEARER = "nothing more that could be measured would bring it nearer"


def unmet(
    goal: Goal, progress: Progress, answers: Sequence[Answer], refusal: str, why: str
) -> Iterator[str]:
    """Yield the notices that rows met in steps are not as good as they were asked for, and why.

    ``refusal`` is why rows were left out; ``why``, what ended the steps of the others.
    """
    out, lost, rest = progress.unmet
    every = len(progress.looks)
    yield from _less_exact(goal, every, out, refusal)
    yield from _less_exact(goal, every, lost, TOO_DEAR)
    reached = goal.reached([answers[row] for row in progress.going]) if rest else ""
    yield from _less_exact(goal, every, rest, why, reached)


def dear(goals: Sequence[Goal], bill: Bill) -> Iterator[str]:
    """Yield the notice that one number takes most of the price, and the clause that names it.

    So does a count that is asked within what is meant for a mean beside it.
    """
    total = bill.cost()
    prices = [bill.price(place) for place in range(len(goals))]
    most = [i for i, price in enumerate(prices) if total and price >= MOST * total]
    if len(goals) < 2 or len(most) > 1:
        return
    for place in most:
        goal, request = goals[place], goals[place].number.utility
        shared = any(g.asked == goal.asked and g.number.kind != goal.number.kind for g in goals)
        if goal.number.named or not shared or goal.number.column is None:
            continue
        half, relative = goal.asked
        unit, delta = " PERCENT" if relative else "", f"{goal.delta:g}"
        wider = f"{goal.number.column} ({within(10 * half)}{unit}, {delta})"
        rest = f"({within(half)}{unit}, {delta}), " if request is not None else ""
        yield (
            f"{goal.number.label} takes {prices[place] / total:.0%} of what the statement costs, "
            f"{prices[place] / UNIT:.4g} of {total / UNIT:.4g}: a clause may ask it for less, as "
            f"WITH UTILITY {rest}{wider}"
        )


def within(half: Fraction) -> str:
    """Return a half-width as a request has it, in a few digits."""
    return decimal(half) if half.denominator < 10**6 else f"{float(half):.4g}"


def widened_to(goal: AbsoluteGoal, half: Fraction, price: str, limit: float) -> str:
    """Return the notice of a number that is wider than was asked, to cost no more than a limit."""
    asked = within(goal.half_width)
    return (
        f"{goal.number.label} is asked within {within(half)} rather than {asked}, so that the "
        f"statement costs at most {limit:.4g}: as it was asked it would cost {price}"
    )


def foreseen(goal: Goal, progress: Progress, refusal: str, most: int, left: float) -> Iterator[str]:
    """Yield the notices of what is known of a number that is met in steps, before the first.

    ``most`` is what they can cost in all, in 2⁻⁴⁰ alpha; ``left``, what the limit that binds has.
    """
    out, lost, _ = progress.unmet
    every = len(progress.looks)
    yield from _less_exact(goal, every, out, refusal)
    yield from _less_exact(goal, every, lost, TOO_DEAR)
    if any(look.asked for look in progress.looks.values()):
        yield (
            f"{goal.number.label} is met in up to {goal.steps} steps, each as the answers before "
            "it require: this is the cost of the first, and all of them cost at most "
            f"{most / UNIT:.4g}, {_why(most / UNIT, left)}"
        )


def _why(most: float, left: float) -> str:
    """Return why a statement can cost no more than so much: of what is left, or its own limit."""
    if most > left:
        return f"which the cell that has most has left: the one that has least has {left:.4g}"
    return "which is left" if most == left else "which is its limit"


def _less_exact(goal: Goal, every: int, rows: int, why: str, reached: str = "") -> Iterator[str]:
    groups = f", for {rows} of {every} groups" if every > 1 else ""
    if rows:
        yield f"{goal.number.label} is less exact than was asked{groups}{reached}: {why}"


BUDGET, HISTORY = (
    tuple(Column(name, kind) for name, kind in privacy_schema.TABLES[table])
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
