"""A SQL text enters, a result leaves: read this first.

    sql/         parse, bind, compile: the text becomes releases of linear queries over the domain
    goals.py     how good each number must be
    infer.py     plan: each number inferred from the history, or measured with least budget
    measure.py   one ledger transaction: check every budget, draw the noise, commit
    infer.py     estimate and interval of every number from the (now longer) history
    result.py    post-process: the outer SQL runs on the noisy relation
    cache.py     results of free statements, given again while the history is as it was

Invariants (the proxy's promise): nothing computed from the data leaves except through a committed,
charged measurement; plans, refusals and errors depend on public things and released answers only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, tzinfo
from itertools import chain
from pathlib import Path
from typing import Any

import proxy.engine.cache as cache
import proxy.engine.reports as reports
import proxy.policy as policies
from proxy.accountant import LEFT, Accountant
from proxy.budgets import limits
from proxy.engine.allowances import Allowance, allowances, least, spending_allowances
from proxy.engine.answers import Result
from proxy.engine.bill import Bill
from proxy.engine.compiler import Compiler, LocalCompiler
from proxy.engine.goals import Goal, goal_for
from proxy.engine.infer import forecast, infer
from proxy.engine.measure import Cube, Curator, Measurer, Sampler
from proxy.engine.outcomes import Inference
from proxy.engine.reports import BudgetReport, HistoryLine
from proxy.engine.result import Relations, present
from proxy.engine.session import Session
from proxy.errors import Error, StateError
from proxy.files import enter
from proxy.inference.accounting import UNIT, budget_units
from proxy.inference.query import Term
from proxy.ledger import Ledger
from proxy.ledger.sqlite import SQLiteLedger
from proxy.policy import Policy
from proxy.privileges import ANALYST, Privileges, privileges_of, require_supported, users_of
from proxy.protection import protection
from proxy.settings import COLUMNS, defaults
from proxy.sql.evaluator.evaluator import Evaluator
from proxy.sql.evaluator.sandbox import Child
from proxy.sql.program import Command, Program
from proxy.sql.statement import Released, program_key
from proxy.state import anchor_path, ledger_path, state_folder
from proxy.steward import arranged, open_cube, same_policy, take_users, upgrade

WAIT = 0.05  # seconds between two looks whether a statement that waits is cancelled
NOTHING: Released = {}
FIRST = 0.01  # of the budget: what the first look of what is met in steps may cost
FIRST_OF_LIMIT = 0.1  # of what the statement may cost: no more than that
EMBEDDED_USER = ""  # the user of an embedded connection that names none


class Engine:
    """One dataset: its policy, its ledger, its cube, and the way of a query between them."""

    def __init__(
        self,
        policy: Policy,
        ledger: Ledger,
        cube: Callable[[int], Cube],
        *,
        sampler: Sampler | None = None,
        clock: Callable[[tzinfo], datetime] = datetime.now,
        evaluator: Evaluator | None = None,
    ) -> None:
        self.policy = policy
        self._clock = clock
        self.ledger = ledger
        self._curator = Curator(cube, sampler)
        self._evaluator = evaluator or Evaluator(policy.domain)
        self._compiler: Compiler = LocalCompiler(policy, self._evaluator)
        self._limits = limits(policy, self._evaluator)
        self.wishes = defaults(policy)
        self._lock = threading.RLock()
        self._accountants: dict[str, Accountant] = {}
        self.users = users_of(policy)
        self.protection = protection(policy, self._evaluator, self.users)

    @classmethod
    def open(
        cls,
        policy: str | Path,
        state: str | Path | None = None,
        *,
        sampler: Sampler | None = None,
        sandbox: bool = False,
    ) -> Engine:
        """Open the dataset of a policy file, whose state ``init`` has made.

        With ``sandbox``, statements are worked on in a child process that has bounds.

        Raises:
            PolicyError: the policy is missing or wrong.
            StateError: there is no state yet, or it is not of this policy.
        """
        loaded = policies.load(policy)
        require_supported(loaded)
        folder = state_folder(loaded, state)
        enter(folder)
        ledger = SQLiteLedger.open(
            ledger_path(folder), dataset=loaded.dataset, anchor=anchor_path(folder)
        )
        evaluator = None
        try:
            upgrade(loaded, folder, ledger)
            loaded = arranged(loaded, ledger)

            def cube(snapshot: int) -> Cube:
                current = ledger.snapshot()
                if current.id != snapshot:
                    raise StateError("the cube has been rebuilt meanwhile", hint="connect again")
                return open_cube(loaded, folder, ledger.id, current)

            evaluator = Evaluator(loaded.domain, Child() if sandbox else None)
            engine = cls(loaded, ledger, cube, sampler=sampler, evaluator=evaluator)
            same_policy(loaded, engine.protection, ledger)
            cube(ledger.snapshot().id)
            take_users(loaded, engine.users, ledger)
            return engine
        except BaseException:
            if evaluator is not None:
                evaluator.close()
            ledger.close()
            raise

    def session(
        self,
        user: str | None = None,
        utility: tuple[float, float] | str | None = None,
        dialect: str = "postgres",
        max_cost: float | str | None = None,
    ) -> Session:
        """Return a new session of a user, with a default utility and a limit on each statement."""
        return Session(self, user or EMBEDDED_USER, utility, dialect, max_cost)

    def read_users(self) -> None:
        """Reload the users file, for statements that begin from now on.

        Raises:
            StateError: it gives somebody more than was accepted; the old one stands.
        """
        users = users_of(self.policy)
        take_users(self.policy, users, self.ledger)
        self.users = users

    def rest(self) -> None:
        """Let go of the evaluator's process, until the evaluator is asked again."""
        self._evaluator.rest()

    def close(self) -> None:
        """Release the ledger's files, and end the evaluator."""
        self._evaluator.close()
        self.ledger.close()

    # --- the way of a query ----------------------------------------------------------------------

    def execute(self, text: str, session: Session) -> Result:
        """Run one statement: parse, bind, compile, plan, measure, infer, post-process."""
        session.bill, now = None, self._now().replace(tzinfo=None)
        statement = self.compile(text, session, now)
        if isinstance(statement, Command):
            return session.command(statement)
        released: dict[str, Sequence[tuple[Any, ...]]] = {}
        earlier: list[Result] = []
        while statement.first:  # results that choose rows: then they are constants
            for key, program in statement.first:
                earlier.append(self._run(program, session, shown=False))
                released[key] = earlier[-1].rows
            with self._cost_in_errors(session):
                statement = self._completed(statement, text, session, now, released)
        return self._run(statement, session).after(earlier)

    def _run(
        self, statement: Program, session: Session, *, shown: bool = True, spend: bool = True
    ) -> Result:
        """Answer one program; ``shown``: with columns beside numbers, if wanted."""
        settings = session.settings if shown else session.settings.having(COLUMNS, "off")
        with self._turn(session):
            session.renew_privileges()
            if statement.releases:
                session.privileges.require(ANALYST)
            accountant = self._accountant(session.privileges)
            key = cache.key_of(statement, session)
            accountant.catch_up(self.ledger)
            if result := cache.recall(accountant, key, statement):
                self.ledger.note("inferred", session.user, statement.text)
                allowance = self._left(accountant, session)  # another day may have begun
                return replace(result, left=allowance.left, left_of=allowance.name)
            goals = self._goals(statement, session)
            if session.bill:
                session.bill = session.bill.continued()
            else:
                session.bill = self._bill(accountant, statement, session)
            with self._cost_in_errors(session):
                inference = self._answer(accountant, goals, statement.text, session, spend)
            relations = self._relations(statement, session)
            left, in_cells = self._left(accountant, session), accountant.left()
            history = accountant.sequence
        with self._cost_in_errors(session), self._running(session):
            result = present(
                statement,
                inference,
                relations,
                settings,
                self._of(session),
                left,
                in_cells,
                session.check_canceled,
                told=shown,
            )
        with self._lock:
            if inference.final and accountant.sequence == history:
                cache.remember(accountant, key, statement, result)
        return result

    def _answer(
        self,
        accountant: Accountant,
        goals: Sequence[Goal],
        text: str,
        session: Session,
        spend: bool,
    ) -> Inference:
        """Plan, measure and infer every number."""
        return infer(accountant, goals, self._measurer(text, session, spend))

    def _measurer(self, text: str, session: Session, spend: bool) -> Measurer:
        """Return the measurer of one statement."""
        return Measurer(
            self._curator, self.ledger, session, text, self._now, session.check_canceled, spend
        )

    def compile(
        self,
        text: str,
        session: Session,
        now: datetime | None = None,
        released: Released = NOTHING,
    ) -> Program | Command:
        """Return the program or command of a text, without running it; ``now`` as it is at first.

        ``released`` are the rows of results that choose rows of the dataset.
        """
        settings = session.settings
        with self._running(session):
            key = program_key(
                text, self.policy, settings.texts, settings.views, session.dialect, now,
                released=released,
            )  # fmt: skip
            return self._of(session).compile(key)

    def _completed(
        self, program: Program, text: str, session: Session, now: datetime, released: Released
    ) -> Program:
        """Return a program again, now that the results are known that choose its rows."""
        complete = self.compile(text, session, now, released)
        assert isinstance(complete, Program)
        if {key for key, _ in complete.first} & released.keys():  # it would pay for ever
            raise StateError("the statement does not mean the same any more", hint="try again")
        return complete

    def _of(self, session: Session) -> Compiler:
        """Return what reads the texts of a session."""
        return session.compiler or self._compiler

    @contextmanager
    def _cost_in_errors(self, session: Session) -> Iterator[None]:
        """Add to an error the cost of the statement's earlier steps, and what is left."""
        try:
            yield
        except Error as error:
            if session.bill is not None and session.bill.first:
                error.cost = session.bill.cost() / UNIT
                with self._lock:
                    left = self._left(self._accountant(session.privileges), session)
                cost = (
                    f"what it measured before is kept, and free to ask again: cost "
                    f"{error.cost:.4g}, left {left}"
                )
                error.hint = f"{error.hint}; {cost}" if error.hint else cost
            raise

    @contextmanager
    def _turn(self, session: Session) -> Iterator[None]:
        """Wait until no other statement plans or measures, unless this one is cancelled."""
        while not self._lock.acquire(timeout=WAIT):
            session.check_canceled()
        try:
            session.check_canceled()
            yield
        finally:
            self._lock.release()

    @contextmanager
    def _running(self, session: Session) -> Iterator[None]:
        """Note the thread of a session's statement, so that a cancellation stops no other."""
        session.thread = threading.get_ident()
        try:
            yield
        finally:
            session.thread = None

    def interrupt(self, session: Session) -> None:
        """Stop the evaluator's work for a session, from another thread."""
        if session.thread is not None:
            self._evaluator.interrupt(session.thread)

    def _goals(self, program: Program, session: Session) -> list[Goal]:
        """Return the goal of every number of a statement."""
        budget, limit = float(self.policy.privacy.budget), session.limit(program)
        most = budget if limit is None else min(budget, float(limit))
        first = min(budget * FIRST, most * FIRST_OF_LIMIT)
        return [
            goal_for(number, release, most, first, session.wishes, self.wishes)
            for release in program.releases
            for number in release.numbers
        ]

    def _bill(self, accountant: Accountant, program: Program, session: Session) -> Bill:
        """Return the bill of a statement that has paid nothing yet."""
        limit = session.limit(program)
        return Bill(accountant.space, None if limit is None else budget_units(limit))

    def _now(self) -> datetime:
        """Return the time in the policy's zone."""
        return self._clock(self.policy.zone)

    # --- budgets and reports ---------------------------------------------------------------------

    def _accountant(self, privileges: Privileges) -> Accountant:
        """Return the accountant of a user's history: their own, or the shared one."""
        name = privileges.history
        if name not in self._accountants:
            self._accountants[name] = Accountant(
                name, self.policy, self._limits, self.protection.digest
            )
        return self._accountants[name]

    def privileges(self, user: str) -> Privileges:
        """Return what a user may do, see and spend."""
        return privileges_of(self.policy, self.users, user)

    def budget(self, user: str = EMBEDDED_USER) -> BudgetReport:
        """Return every budget of the history that serves a user, and what is left of it."""
        with self._lock:
            accountant = self._accountant(self.privileges(user))
            accountant.catch_up(self.ledger)
            now = self._now()
            binding = allowances(self.privileges(user), accountant, self.ledger, now)
            return reports.budget(self.policy.dataset, accountant, binding)

    def history(self, user: str | None = None) -> list[HistoryLine]:
        """Return the statements that were paid for, oldest first; of one user, or of all."""
        return reports.history(self.ledger, user)

    def left(self, session: Session) -> Allowance:
        """Return the limit with the least left, of all that bind a session's user."""
        with self._lock:
            accountant = self._accountant(session.privileges)
            accountant.catch_up(self.ledger)
            return self._left(accountant, session)

    def _left(self, accountant: Accountant, session: Session) -> Allowance:
        """Return the limit with the least left, cached for the day until the history grows."""
        now = self._now()
        key = LEFT, session.user, now.date()
        if key not in accountant.cache:
            accountant.remember(
                key, least(allowances(session.privileges, accountant, self.ledger, now))
            )
        allowance: Allowance = accountant.cache[key]
        return allowance

    def left_in_cells(self) -> float:
        """Return the alpha left in that cell of the shared history which has least left."""
        with self._lock:
            accountant = self._accountant(self.privileges(EMBEDDED_USER))
            accountant.catch_up(self.ledger)
            return accountant.left()

    def explain(
        self, text: str, program: Program, session: Session
    ) -> tuple[list[tuple[Any, ...]], tuple[str, ...]]:
        """Return the cost that each number would have, and notices; measure nothing.

        A result that chooses rows is explained first, and where it is free the rest as well.
        """
        rows: list[tuple[Any, ...]] = []
        notices: tuple[str, ...] = ()
        now = self._now().replace(tzinfo=None)
        released: dict[str, Sequence[tuple[Any, ...]]] = {}
        if program.first:
            program = self._completed(program, text, session, now, released)
        while program.first:
            for key, each in program.first:
                more, told = self._explain(each, session)
                rows, notices = rows + more, notices + told
                if told or any(row[reports.COST_AT] for row in more):
                    return rows, (*notices, reports.RELEASED_FIRST)
                session.bill = None
                released[key] = self._run(each, session, shown=False, spend=False).rows
            program = self._completed(program, text, session, now, released)
        more, told = self._explain(program, session)
        return rows + more, notices + told

    def _explain(
        self, program: Program, session: Session
    ) -> tuple[list[tuple[Any, ...]], tuple[str, ...]]:
        """Return the cost that each number of one program would have, and notices."""
        with self._turn(session):
            goals = self._goals(program, session)
            accountant = self._accountant(session.privileges)
            session.bill = self._bill(accountant, program, session)
            now = self._now()
            accountant.catch_up(self.ledger)
            measurer = self._measurer(program.text, session, spend=True)
            first = forecast(accountant, goals, measurer)

            def after(terms: Sequence[Term]) -> float:
                more = () if first.refused else terms
                return least(
                    allowances(session.privileges, accountant, self.ledger, now, more)
                ).left

            rows, dear = reports.explain(
                program, first.goals, first.progress, accountant, measurer.plan, after
            )
            if first.refused:
                return rows, (f"the statement would be refused: {first.refusal}",)
            most = accountant.most_left()
            most = most if session.bill.limit is None else min(most, session.bill.limit)
            for allowance in spending_allowances(session.privileges, accountant, self.ledger, now):
                most = min(most, max(allowance.budget - allowance.spent, 0))
            notices = (
                reports.foreseen(goal, progress, first.refusal, most)
                for goal, progress in zip(first.goals, first.progress, strict=True)
            )
            return rows, (*first.notices, *chain(*notices), *dear)

    def _relations(self, program: Program, session: Session) -> Relations:
        """Return the rows of the relations of schema privacy that a statement reads."""
        rows: dict[str, list[tuple[Any, ...]]] = {}
        if "budget" in program.systems:
            rows["budget"] = reports.budget_rows(self.budget(session.user))
        if "history" in program.systems:
            rows["history"] = list(reports.history_rows(self.history(session.privileges.sees)))
        return rows
