"""Where statements are planned, measured and inferred: a program enters, its numbers leave.

What holds the histories of a dataset, its ledger and its cube: ``LocalPlanner``, in this process,
or in one of the server's, which its ``RemotePlanner`` asks.  One statement at a time plans.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

import proxy.engine.reports as reports
from proxy.accountant import LEFT, Accountant
from proxy.budgets import Limit
from proxy.engine.allowances import Allowance, allowances, least, spending_allowances
from proxy.engine.answered import Answered, Relations, Sources
from proxy.engine.asker import Asker
from proxy.engine.bill import Bill
from proxy.engine.explained.statements import Statements
from proxy.engine.goals import Goal, goal_for
from proxy.engine.goals.linear import AbsoluteGoal
from proxy.engine.infer import forecast, infer
from proxy.engine.measure import Cube, Curator, Measurer
from proxy.engine.outcomes import Outcome
from proxy.engine.reports import BudgetReport
from proxy.engine.strategy import CHOSEN, WARM_UP, strategy_of, warm, why
from proxy.errors import Error, StateError
from proxy.files import enter
from proxy.inference.accounting import UNIT, BudgetRule, budget_units
from proxy.inference.history import History
from proxy.inference.plan import AccuracyTarget
from proxy.inference.query import Term
from proxy.inference.steps import price
from proxy.ledger import Ledger
from proxy.ledger.stored import StoredLedger
from proxy.policy import Policy, Users
from proxy.privileges import ANALYST, Privileges
from proxy.settings import EXPLANATIONS, Wishes
from proxy.sql.program import Program
from proxy.state import ledger_place
from proxy.steward import open_cube

WAIT = 0.05  # seconds between two looks whether a statement that waits is cancelled
FIRST = 0.01  # of the budget: what the first look of what is met in steps may cost
FIRST_OF_LIMIT = 0.1  # of what the statement may cost: no more than that
FIRST_MOST = 100.0  # alpha: nor than that, however large the budget is

Explained = tuple[list[tuple[Any, ...]], tuple[str, ...]]  # rows of EXPLAIN UTILITY, and notices


class Planner(Protocol):
    """Plans, measures and infers: ``LocalPlanner``, and the server's ``RemotePlanner``."""

    def answered(self, program: Program, asker: Asker, spend: bool = True) -> Answered:
        """Return every number of a program; measure what cannot be inferred, if it may ``spend``.

        Raises:
            Error: it is refused, cancelled, or fails; ``cost`` says what was paid all the same.
        """

    def explained(self, program: Program, asker: Asker) -> Explained:
        """Return the cost that each number of one program would have; measure nothing."""

    def budget(self, privileges: Privileges) -> BudgetReport:
        """Return every budget of the history that serves a user, and what is left of it."""

    def left(self, privileges: Privileges) -> Allowance:
        """Return the limit with the least left, of all that bind a user."""

    def left_in_cells(self, privileges: Privileges) -> float:
        """Return the alpha left in that cell of the user's history which has least left."""


class Setup(Struct, frozen=True):
    """What a planner starts from that another process opens."""

    policy: Policy
    folder: Path  # of the state
    users: Users | None
    limits: tuple[Limit, ...]
    digest: str
    wishes: Wishes

    def open(self, before: LocalPlanner | None = None) -> LocalPlanner:
        """Open the ledger, and return the planner; ``before`` is one whose histories it takes over.

        Raises:
            StateError: it is not there, or not this dataset's.
        """
        enter(self.folder)
        ledger = opened(self.policy, self.folder)
        planner = LocalPlanner(
            self.policy,
            ledger,
            Curator(cubes(self.policy, self.folder, ledger), None),
            self.limits,
            self.digest,
            self.wishes,
            lambda: datetime.now(self.policy.zone),
        )
        if before is not None and before.ledger.id == ledger.id:
            planner.take_over(before)
        return planner


def opened(policy: Policy, folder: Path) -> StoredLedger:
    """Return the ledger of a dataset."""
    return ledger_place(policy, folder).open()


def cubes(policy: Policy, folder: Path, ledger: Ledger) -> Callable[[int], Cube]:
    """Return what opens the cube of a snapshot, while it is the current one."""

    def cube(snapshot: int) -> Cube:
        current = ledger.snapshot()
        if current.id != snapshot:
            raise StateError("the cube has been rebuilt meanwhile", hint="connect again")
        return open_cube(policy, folder, ledger.id, current)

    return cube


class LocalPlanner:
    """The histories of one dataset."""

    def __init__(
        self,
        policy: Policy,
        ledger: Ledger,
        curator: Curator,
        limits: tuple[Limit, ...],
        digest: str,
        wishes: Wishes,
        now: Callable[[], datetime],
    ) -> None:
        self.policy = policy
        self.ledger = ledger
        self._curator = curator
        self._limits = limits
        self._digest = digest  # of the protection that the policy is
        self._wishes = wishes  # the policy's
        self._now = now  # in the policy's time zone
        self._strategy = strategy_of(policy)
        self._why = ""  # it was chosen, if it was
        self._looked = 0  # the last line of the ledger that was asked for another strategy
        self._lock = threading.RLock()
        self._accountants: dict[str, Accountant] = {}
        self._statements = Statements()

    def take_over(self, before: LocalPlanner) -> None:
        """Go on with the histories of another, which is not used any more."""
        self._accountants = before._accountants

    def answered(self, program: Program, asker: Asker, spend: bool = True) -> Answered:
        """Return every number of a program; measure what cannot be inferred, if it may."""
        if program.releases:
            asker.privileges.require(ANALYST)
        with self._turn(asker):
            accountant = self._accountant(asker.privileges)
            accountant.catch_up(self.ledger)
            goals = self._goals(program, asker)
            if asker.bill:
                asker.bill = asker.bill.continued()
            else:
                asker.bill = self._bill(accountant, program, asker)
            with cost_in_errors(asker, self.left):
                measurer = self._measurer(program.text, asker, spend)
                inference = infer(accountant, goals, measurer)
            return Answered(
                inference,
                self._relations(program, asker.privileges),
                self._left(accountant, asker.privileges),
                accountant.left(),
                accountant.sequence,
                asker.bill,
                self._sources(accountant, inference.outcomes, asker),
            )

    def _sources(
        self, accountant: Accountant, outcomes: Sequence[Outcome], asker: Asker
    ) -> Sources | None:
        """Return which statements measured what numbers rest on, where the session wants it."""
        if not asker.settings.value(EXPLANATIONS):
            return None
        assert asker.bill is not None
        self._statements.follow(self.ledger)
        return self._statements.sources(accountant, outcomes, asker.privileges, asker.bill)

    def explained(self, program: Program, asker: Asker) -> Explained:
        """Return the cost that each number of one program would have, and notices."""
        with self._turn(asker):
            goals = self._goals(program, asker)
            accountant = self._accountant(asker.privileges)
            asker.bill = self._bill(accountant, program, asker)
            now = self._now()
            accountant.catch_up(self.ledger)
            measurer = self._measurer(program.text, asker, spend=True)
            first = forecast(accountant, goals, measurer)

            def after(terms: Sequence[Term]) -> float:
                more = () if first.refused else terms
                return least(allowances(asker.privileges, accountant, self.ledger, now, more)).left

            most = accountant.most_left()
            most = most if asker.bill.limit is None else min(most, asker.bill.limit)
            for allowance in spending_allowances(
                asker.privileges, accountant.policy, self.ledger, now
            ):
                most = min(most, max(allowance.budget - allowance.spent, 0))
            rows, dear = reports.explain(
                program, first.goals, first.progress, accountant, measurer.plan, after, most
            )
            if first.refused:
                return rows, (f"the statement would be refused: {first.refusal}",)
            left = after(())
            notices = (
                reports.foreseen(goal, progress, first.refusal, most, left)
                for goal, progress in zip(first.goals, first.progress, strict=True)
            )
            chosen = (self._why,) if self._why and any(row[reports.COST_AT] for row in rows) else ()
            return rows, (*first.notices, *chain(*notices), *dear, *chosen)

    def budget(self, privileges: Privileges) -> BudgetReport:
        """Return every budget of the history that serves a user, and what is left of it."""
        with self._lock:
            accountant = self._accountant(privileges)
            accountant.catch_up(self.ledger)
            binding = allowances(privileges, accountant, self.ledger, self._now())
            return reports.budget(self.policy.dataset, accountant, binding)

    def left(self, privileges: Privileges) -> Allowance:
        """Return the limit with the least left, of all that bind a user."""
        with self._lock:
            accountant = self._accountant(privileges)
            accountant.catch_up(self.ledger)
            return self._left(accountant, privileges)

    def _left(self, accountant: Accountant, privileges: Privileges) -> Allowance:
        """Return the limit with the least left, cached for the day until the history grows."""
        now = self._now()
        key = LEFT, privileges.user, now.date()
        if key not in accountant.cache:
            accountant.remember(key, least(allowances(privileges, accountant, self.ledger, now)))
        allowance: Allowance = accountant.cache[key]
        return allowance

    def left_in_cells(self, privileges: Privileges) -> float:
        """Return the alpha left in that cell of the user's history which has least left."""
        with self._lock:
            accountant = self._accountant(privileges)
            accountant.catch_up(self.ledger)
            return accountant.left()

    @contextmanager
    def _turn(self, asker: Asker) -> Iterator[None]:
        """Wait until no other statement plans or measures, unless this one is cancelled."""
        while not self._lock.acquire(timeout=WAIT):
            asker.check_canceled()
        try:
            asker.check_canceled()
            yield
        finally:
            self._lock.release()

    def _accountant(self, privileges: Privileges) -> Accountant:
        """Return the accountant of a user's history: their own, or the shared one."""
        name = privileges.history
        if name not in self._accountants:
            self._accountants[name] = Accountant(name, self.policy, self._limits, self._digest)
        return self._accountants[name]

    def _measurer(self, text: str, asker: Asker, spend: bool) -> Measurer:
        """Return the measurer of one statement."""
        self._follow_strategy()
        return Measurer(
            self._curator,
            self.ledger,
            asker,
            text,
            self._now,
            asker.check_canceled,
            spend,
            self._strategy,
        )

    def prepare(self, programs: Sequence[Program], asker: Asker) -> float:
        """Measure together what programs ask for within a half-width; return what it cost.

        The order in which they are planned is theirs, or the dearest first: what costs less.  What
        would be refused together is left to each by itself, and so is what has a limit of its own.
        """
        if any(asker.limit(program) is not None for program in programs):
            return 0.0
        if any(program.releases for program in programs):
            asker.privileges.require(ANALYST)
        with self._turn(asker):
            accountant = self._accountant(asker.privileges)
            accountant.catch_up(self.ledger)
            goals = [goal for program in programs for goal in self._goals(program, asker)]
            given = [goal.target for goal in goals if isinstance(goal, AbsoluteGoal)]
            dearest = sorted(given, key=lambda t: -price(t.family, t.half_width, t.delta))
            asker.bill = bill = Bill(accountant.space)
            text = "; ".join(program.text.strip() for program in programs)
            measurer = self._measurer(text, asker, spend=True)
            costs = [(measurer.cost(accountant, order), order) for order in (given, dearest)]
            known = [(cost, order) for cost, order in costs if cost is not None]
            if not known:
                return 0.0
            _, best = min(known, key=lambda each: each[0])
            if measurer.refusal(accountant, best):
                return 0.0
            measurer.measure(accountant, [[target] for target in best])
            return bill.cost() / UNIT

    def warm_up(self, asker: Asker) -> None:
        """Measure what the policy wants known before anything is asked, unless that was done."""
        for wanted in self.policy.privacy.warm_up:
            base = warm(wanted, self.policy)
            text = f"{WARM_UP}{wanted.strategy} of {', '.join(wanted.attributes)}"
            with self._turn(asker):
                accountant = self._accountant(asker.privileges)
                accountant.catch_up(self.ledger)
                asker.bill = Bill(accountant.space)
                self._measurer(text, asker, spend=True).measure_base(accountant, base)

    def _follow_strategy(self) -> None:
        """Take over the strategy that was chosen last, where the policy leaves it open."""
        if self.policy.privacy.strategy != "auto":
            return
        if (sequence := self.ledger.sequence()) != self._looked:
            if chosen := self.ledger.last(CHOSEN, self._looked):
                self._strategy, self._why = strategy_of(self.policy, chosen), why(chosen)
            self._looked = sequence

    def targets(self, program: Program, asker: Asker) -> list[AccuracyTarget]:
        """Return what a program asks for, where nothing is known; of steps, the first."""
        accountant = self._accountant(asker.privileges)
        empty = History(accountant.space, self.policy.max_records)
        goals = self._goals(program, asker)
        return [target for goal in goals for target in goal.progress(empty).targets]

    def rules(self, privileges: Privileges) -> Sequence[BudgetRule]:
        """Return the limits on the cells of the history that serves a user."""
        with self._lock:
            accountant = self._accountant(privileges)
            accountant.catch_up(self.ledger)
            return accountant.rules

    def _goals(self, program: Program, asker: Asker) -> list[Goal]:
        """Return the goal of every number of a statement."""
        budget, limit = float(self.policy.privacy.budget), asker.limit(program)
        most = budget if limit is None else min(budget, float(limit))
        first = min(budget * FIRST, most * FIRST_OF_LIMIT, FIRST_MOST)
        return [
            goal_for(number, release, most, first, asker.wishes, self._wishes)
            for release in program.releases
            for number in release.numbers
        ]

    def _bill(self, accountant: Accountant, program: Program, asker: Asker) -> Bill:
        """Return the bill of a statement that has paid nothing yet."""
        limit = asker.limit(program)
        return Bill(accountant.space, None if limit is None else budget_units(limit))

    def _relations(self, program: Program, privileges: Privileges) -> Relations:
        """Return the rows of the relations of schema privacy that a statement reads."""
        rows: dict[str, list[tuple[Any, ...]]] = {}
        if "budget" in program.systems:
            rows["budget"] = reports.budget_rows(self.budget(privileges))
        if "history" in program.systems:
            lines = reports.history(self.ledger.audit(), privileges.sees)
            rows["history"] = list(reports.history_rows(lines))
        return rows


@contextmanager
def cost_in_errors(asker: Asker, left: Callable[[Privileges], Allowance]) -> Iterator[None]:
    """Add to an error the cost of the statement's earlier steps, and what is left."""
    try:
        yield
    except Error as error:
        if asker.bill is not None and asker.bill.first:
            error.cost = asker.bill.cost() / UNIT
            cost = f"what it measured before is kept, and free to ask again: cost {error.cost:.4g}"
            with suppress(Error):  # it may be cancelled, too
                cost += f", left {left(asker.privileges)}"
            error.hint = f"{error.hint}; {cost}" if error.hint else cost
        raise
