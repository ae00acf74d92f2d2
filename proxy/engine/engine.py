"""A SQL text enters, a result leaves: read this first.

    sql/         parse, bind, compile: the text becomes releases of linear queries over the domain
    goals.py     how good each number must be
    infer.py     plan: each number inferred from the history, or measured with least budget
    measure.py   one ledger transaction: check every budget, draw the noise, commit
    infer.py     estimate and interval of every number from the (now longer) history
    result.py    post-process: the outer SQL runs on the noisy relation

Invariants (the proxy's promise): nothing computed from the data leaves except through a committed,
charged measurement; plans, refusals and errors depend on public things and released answers only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, tzinfo
from itertools import chain
from pathlib import Path
from typing import Any

import proxy.engine.reports as reports
import proxy.policy as policies
from proxy.accountant import LEFT, Accountant
from proxy.budgets import limits
from proxy.engine.allowances import Allowance, allowances, least, spending_allowances
from proxy.engine.bill import Bill
from proxy.engine.goals import Goal, extras, goal_for, reaches
from proxy.engine.infer import Inference, infer, leave_out, refusal
from proxy.engine.measure import Cube, Curator, Measurer, Sampler
from proxy.engine.reports import BudgetReport, HistoryLine
from proxy.engine.result import Numbers, Result, assemble
from proxy.engine.session import Session
from proxy.errors import Error, StateError
from proxy.files import enter
from proxy.inference.accounting import UNIT
from proxy.inference.query import Term
from proxy.ledger import Ledger
from proxy.ledger.sqlite import SQLiteLedger
from proxy.policy import Policy
from proxy.privileges import ANALYST, Privileges, privileges_of, require_supported, users_of
from proxy.protection import protection
from proxy.settings import defaults
from proxy.sql.evaluator.evaluator import Evaluator
from proxy.sql.evaluator.sandbox import Child
from proxy.sql.program import Command, Program
from proxy.sql.statement import compile_statement
from proxy.state import anchor_path, ledger_path, state_folder
from proxy.steward import arranged, open_cube, same_policy, take_users, upgrade

MAX_CACHED_SIZE = 10_000  # rows and characters: what has more is worked out anew when asked again
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
    ) -> Session:
        """Return a new session of a user, with a default utility."""
        return Session(self, user or EMBEDDED_USER, utility, dialect)

    def read_users(self) -> None:
        """Read the users file again: statements that begin from now on go by it.

        Raises:
            StateError: it gives somebody more than was accepted; the old one stands.
        """
        users = users_of(self.policy)
        take_users(self.policy, users, self.ledger)
        self.users = users

    def close(self) -> None:
        """Release the ledger's files, and end the evaluator."""
        self._evaluator.close()
        self.ledger.close()

    # --- the way of a query ----------------------------------------------------------------------

    def execute(self, text: str, session: Session) -> Result:
        """Run one statement: parse, bind, compile, plan, measure, infer, post-process."""
        statement = self.compile(text, session)
        if isinstance(statement, Command):
            return session.command(statement)
        with self._lock, self._running(session):
            session.check_canceled()
            session.renew_privileges()
            if statement.releases:
                session.privileges.require(ANALYST)
            accountant = self._accountant(session.privileges)
            key = _key(statement, session)
            if remembered := self._recall(accountant, statement, key, session):
                return remembered
            goals = self._goals(statement, session)
            session.bill = Bill(accountant.space)
            with self._telling(accountant, session):
                with accountant.watched(session.check_canceled):
                    inference = self._answer(accountant, goals, statement.text, session)
                result = self._present(accountant, statement, goals, inference, session)
            size = len(result.rows) + len(statement.text)
            if inference.final and not statement.systems and size < MAX_CACHED_SIZE:
                accountant.remember(key, (statement, result))
            return result

    def _answer(
        self, accountant: Accountant, goals: Sequence[Goal], text: str, session: Session
    ) -> Inference:
        """Plan, measure and infer every number."""
        return infer(accountant, goals, self._measurer(text, session))

    def _measurer(self, text: str, session: Session) -> Measurer:
        """Return what measures for one statement."""
        return Measurer(self._curator, self.ledger, session, text, self._now)

    def _present(
        self,
        accountant: Accountant,
        statement: Program,
        goals: Sequence[Goal],
        inference: Inference,
        session: Session,
    ) -> Result:
        """Run the outer SQL on the numbers, and return the rows with all that is told of them."""
        answers = inference.answers
        more = [extras(g, a, accountant.history) for g, a in zip(goals, answers, strict=True)]
        reached = [reaches(goal) for goal in goals] if statement.derived else []
        rows, shown, places, drowned = assemble(
            statement,
            Numbers(answers, more, reached),
            self._systems(statement, session),
            session.settings,
            self._evaluator,
        )
        allowance = self._left(accountant, session)
        sources = [answer.source for each in answers for answer in each]
        return Result(
            tuple(rows.columns),
            list(rows.rows),
            shown,
            inference.cost / UNIT,
            allowance.left,
            statement.notices + inference.notices + drowned,
            f"SELECT {len(rows.rows)}",
            places,
            allowance.name,
            len(sources),
            sources.count("measured"),
            accountant.left(),
        )

    def _recall(
        self, accountant: Accountant, statement: Program, key: Hashable, session: Session
    ) -> Result | None:
        """Return what the same statement gave, if it was free and the history is as it was."""
        accountant.catch_up(self.ledger)
        kept: tuple[Program, Result] | None = accountant.cache.get(key)
        if kept is None or kept[0] is not statement:  # an id may be that of another by now
            return None
        self.ledger.note("inferred", session.user, statement.text)
        allowance = self._left(accountant, session)  # another day may have begun
        return replace(
            kept[1], rows=list(kept[1].rows), left=allowance.left, left_of=allowance.name
        )

    def compile(self, text: str, session: Session) -> Program | Command:
        """Return what a statement means, without running it."""
        with self._running(session):
            return compile_statement(
                text,
                self.policy,
                self._evaluator,
                settings=session.settings.texts,
                views=session.settings.views,
                language=session.dialect,
            )

    @contextmanager
    def _telling(self, accountant: Accountant, session: Session) -> Iterator[None]:
        """Let an error say what the statement has paid before it failed."""
        try:
            yield
        except Error as error:
            if session.bill is not None and session.bill.first:
                error.cost = session.bill.cost() / UNIT
                told = (
                    f"what it measured before is kept, and free to ask again: cost "
                    f"{error.cost:.4g}, left {self._left(accountant, session)}"
                )
                error.hint = f"{error.hint}; {told}" if error.hint else told
            raise

    @contextmanager
    def _running(self, session: Session) -> Iterator[None]:
        """Mark whose statement a thread runs, so that a cancellation stops no other."""
        session.thread = threading.get_ident()
        try:
            yield
        finally:
            session.thread = None

    def interrupt(self, session: Session) -> None:
        """Stop the evaluator, from another thread, if it works for a session."""
        if session.thread is not None:
            self._evaluator.interrupt(session.thread)

    def _goals(self, program: Program, session: Session) -> list[Goal]:
        """Return how good each number of a statement must be."""
        budget = float(self.policy.privacy.budget)
        return [
            goal_for(number, budget, session.wishes, self.wishes)
            for release in program.releases
            for number in release.numbers
        ]

    def _now(self) -> datetime:
        """Return the time in the policy's zone."""
        return self._clock(self.policy.zone)

    # --- budgets and reports ---------------------------------------------------------------------

    def _accountant(self, privileges: Privileges) -> Accountant:
        """Return the history that serves a user: their own, or the shared one."""
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
            found = allowances(self.privileges(user), accountant, self.ledger, now)
            return reports.budget(self.policy.dataset, accountant, found)

    def history(self, user: str | None = None) -> list[HistoryLine]:
        """Return the statements that were paid for, oldest first; of one user, or of all."""
        return reports.history(self.ledger, user)

    def left(self, session: Session) -> Allowance:
        """Return the limit that has least left for a session's user."""
        with self._lock:
            accountant = self._accountant(session.privileges)
            accountant.catch_up(self.ledger)
            return self._left(accountant, session)

    def _left(self, accountant: Accountant, session: Session) -> Allowance:
        """Return the limit that has least left; worked out once while nothing changes."""
        now = self._now()
        key = LEFT, session.user, now.date()
        if key not in accountant.cache:
            accountant.remember(
                key, least(allowances(session.privileges, accountant, self.ledger, now))
            )
        allowance: Allowance = accountant.cache[key]
        return allowance

    def left_in_cells(self) -> float:
        """Return the alpha that the shared history has left in the cell that has least."""
        with self._lock:
            accountant = self._accountant(self.privileges(EMBEDDED_USER))
            accountant.catch_up(self.ledger)
            return accountant.left()

    def explain(
        self, program: Program, session: Session
    ) -> tuple[list[tuple[Any, ...]], tuple[str, ...]]:
        """Return what each number of a statement would cost, and notices; measure nothing."""
        with self._lock:
            goals = self._goals(program, session)
            accountant = self._accountant(session.privileges)
            now = self._now()
            accountant.catch_up(self.ledger)
            measurer = self._measurer(program.text, session)
            why = refusal(accountant, goals, measurer)
            refused = bool(why) and not leave_out(accountant, goals, measurer)
            if refused:
                for goal in goals:
                    goal.left_out.clear()

            def after(terms: Sequence[Term]) -> float:
                more = () if refused else terms
                return least(
                    allowances(session.privileges, accountant, self.ledger, now, more)
                ).left

            rows = reports.explain(program, goals, accountant, measurer.plan, after)
            if refused:
                return rows, (f"the statement would be refused: {why}",)
            most = accountant.most_left()
            for allowance in spending_allowances(session.privileges, accountant, self.ledger, now):
                most = min(most, max(allowance.budget - allowance.spent, 0))
            return rows, tuple(chain(*(reports.foreseen(goal, why, most) for goal in goals)))

    def _systems(self, program: Program, session: Session) -> dict[str, list[tuple[Any, ...]]]:
        """Return the rows of the relations of schema privacy that a statement reads."""
        rows: dict[str, list[tuple[Any, ...]]] = {}
        if "budget" in program.systems:
            rows["budget"] = reports.budget_rows(self.budget(session.user))
        if "history" in program.systems:
            rows["history"] = list(reports.history_rows(self.history(session.privileges.sees)))
        return rows


def _key(statement: Program, session: Session) -> Hashable:
    """Return what a result depends on, beside the history."""
    return id(statement), session.user, str(session.wishes()), *session.settings.items()
