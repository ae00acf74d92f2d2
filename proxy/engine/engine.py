"""A SQL text enters, a result leaves: read this first.

    sql/         parse, bind, compile: the text becomes releases of linear queries over the domain
    planner.py   whose turn it is, and what is left
      goals/       how good each number must be
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
from copy import copy
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

from msgspec.structs import replace

import proxy.engine.reports as reports
import proxy.policy as policies
from proxy.accountant import LEFT
from proxy.budgets import limits
from proxy.engine.allowances import Allowance
from proxy.engine.answers import Result
from proxy.engine.cache import Cache, key_of, served
from proxy.engine.compiler import Compiler, LocalCompiler
from proxy.engine.measure import Cube, Curator, Sampler
from proxy.engine.planner import (
    Explained,
    LocalPlanner,
    Planner,
    Setup,
    cost_in_errors,
    cubes,
    opened,
)
from proxy.engine.reports import BudgetReport, HistoryLine
from proxy.engine.result import present
from proxy.engine.session import Session
from proxy.errors import Error, StateError
from proxy.files import enter
from proxy.ledger import Ledger
from proxy.policy import Policy, Users
from proxy.privileges import ANALYST, Privileges, privileges_of, users_of
from proxy.protection import protection
from proxy.settings import COLUMNS, defaults
from proxy.sql.evaluator.evaluator import Evaluator
from proxy.sql.evaluator.sandbox import Child
from proxy.sql.program import Command, Program
from proxy.sql.statement import ProgramKey, Released, program_key
from proxy.state import state_folder
from proxy.steward import arranged, cube_of, same_policy, take_users, upgrade
from proxy.steward.drafts import clear

NOTHING: Released = {}
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
        self.folder: Path | None = None  # of the state, where it is one
        self._clock = clock
        self.ledger = ledger
        self._evaluator = evaluator or Evaluator(policy.domain)
        self.wishes = defaults(policy)
        self._users = [users_of(policy)]  # the file, of all that go ``through`` this engine
        self.protection = protection(policy, self._evaluator, self.users)
        self._limits = limits(policy, self._evaluator)
        self.compiler: Compiler = LocalCompiler(policy, self._evaluator)
        self.planner: Planner = LocalPlanner(
            policy,
            ledger,
            Curator(cube, sampler),
            self._limits,
            self.protection.digest,
            self.wishes,
            self._now,
        )
        self._cache = Cache()

    @classmethod
    def open(
        cls,
        policy: str | Path,
        state: str | Path | None = None,
        *,
        sampler: Sampler | None = None,
        sandbox: bool = False,
        eager: bool = True,
    ) -> Engine:
        """Open the dataset of a policy file, whose state ``init`` has made.

        With ``sandbox``, statements are worked on in a child process that has bounds; without
        ``eager``, the cube is not read before something is measured.

        Raises:
            PolicyError: the policy is missing or wrong.
            StateError: there is no state yet, or it is not of this policy.
        """
        loaded = policies.load(policy)
        folder = state_folder(loaded, state)
        enter(folder)
        ledger = opened(loaded, folder)
        evaluator = None
        try:
            upgrade(loaded, folder, ledger)
            loaded = arranged(loaded, ledger)
            cube = cubes(loaded, folder, ledger)
            evaluator = Evaluator(loaded.domain, Child() if sandbox else None)
            engine = cls(loaded, ledger, cube, sampler=sampler, evaluator=evaluator)
            same_policy(loaded, engine.protection, ledger, folder)
            snapshot = ledger.snapshot()
            if eager or snapshot.layout is None:  # then only the cube knows of which axes it is
                cube(snapshot.id)
            else:
                cube_of(loaded, folder, snapshot)
            take_users(loaded, engine.users, ledger, folder)
            engine.folder = folder
            clear(folder)
            return engine
        except BaseException:
            if evaluator is not None:
                evaluator.close()
            ledger.close()
            raise

    @property
    def users(self) -> Users | None:
        """The users file, as it was last read."""
        return self._users[0]

    def through(self, compiler: Compiler, planner: Planner) -> Engine:
        """Return the same engine, whose statements are read and planned elsewhere."""
        other = copy(self)
        other.compiler, other.planner = compiler, planner
        return other

    def setup(self) -> Setup:
        """Return what a planner in another process starts from."""
        assert self.folder is not None
        digest = self.protection.digest
        return Setup(
            self.policy, self.folder.absolute(), self.users, self._limits, digest, self.wishes
        )

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
        take_users(self.policy, users, self.ledger, self.folder)
        self._users[0] = users

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
            with cost_in_errors(session, self.left):
                statement = self._completed(statement, text, session, now, released)
        return self._run(statement, session).after(earlier)

    def execute_script(self, texts: Sequence[str], session: Session) -> list[Result]:
        """Run statements in turn, having measured together what they ask for.

        The first result has the cost of that.  Where one of them changes the session, or its rows
        are chosen by results, each is measured by itself.
        """
        now = self._now().replace(tzinfo=None)
        session.renew_privileges()
        compiled = [self.compile(text, session, now) for text in texts]
        programs = [each for each in compiled if isinstance(each, Program) and not each.first]
        cost = 0.0
        if len(programs) == len(texts) > 1 and isinstance(self.planner, LocalPlanner):
            session.bill = None
            cost = self.planner.prepare(programs, session)
        results: list[Result] = []
        for text in texts:
            try:
                results.append(self.execute(text, session))
            except Error as error:
                if paid := cost + sum(result.cost for result in results):
                    error.cost += paid
                    told = f"what was measured before it is kept, and free to ask again: {paid:.4g}"
                    error.hint = f"{error.hint}; {told}" if error.hint else told
                raise
        if cost:
            told = f"{len(texts)} statements were planned together: they cost {cost:.4g}"
            first = results[0]
            results[0] = replace(first, cost=first.cost + cost, notices=(*first.notices, told))
        return results

    def _run(
        self, statement: Program, session: Session, *, shown: bool = True, spend: bool = True
    ) -> Result:
        """Answer one program; ``shown``: with columns beside numbers, if wanted."""
        settings = session.settings if shown else session.settings.having(COLUMNS, "off")
        session.renew_privileges()
        if statement.releases:
            session.privileges.require(ANALYST)
        key = key_of(statement, session)
        if result := self._cache.recall(self.ledger.sequence(), key, statement):
            session.check_canceled()
            self.ledger.note("inferred", session.user, statement.text)
            allowance = self.left(session.privileges)  # another day may have begun
            return replace(result, left=allowance.left, left_of=allowance.name)
        left_key = self._left_key(session.privileges)
        answered = self.planner.answered(statement, session, spend)
        session.bill = answered.bill
        with cost_in_errors(session, lambda _: answered.allowance), self._running(session):
            result = present(
                statement,
                answered.inference,
                answered.relations,
                settings,
                self.compiler,
                answered.allowance,
                answered.left_in_cells,
                session.check_canceled,
                told=shown,
                sources=answered.sources if shown else None,
            )
        self._cache.put(answered.sequence, left_key, answered.allowance)
        if answered.inference.final:
            self._cache.remember(answered.sequence, key, statement, result)
        return result

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
        with self._running(session):
            return self.compiler.compile(self.key(text, session, now, released))

    def key(
        self,
        text: str,
        session: Session,
        now: datetime | None = None,
        released: Released = NOTHING,
    ) -> ProgramKey:
        """Return what the program of a text depends on."""
        settings = session.settings
        return program_key(
            text, self.policy, settings.texts, settings.views, session.dialect, now,
            released=released,
        )  # fmt: skip

    def _completed(
        self, program: Program, text: str, session: Session, now: datetime, released: Released
    ) -> Program:
        """Return a program again, now that the results are known that choose its rows."""
        complete = self.compile(text, session, now, released)
        assert isinstance(complete, Program)
        if {key for key, _ in complete.first} & released.keys():  # it would pay for ever
            raise StateError("the statement does not mean the same any more", hint="try again")
        return complete

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

    def _now(self) -> datetime:
        """Return the time in the policy's zone."""
        return self._clock(self.policy.zone)

    # --- budgets and reports ---------------------------------------------------------------------

    def privileges(self, user: str) -> Privileges:
        """Return what a user may do, see and spend."""
        return privileges_of(self.policy, self.users, user)

    def budget(self, user: str = EMBEDDED_USER) -> BudgetReport:
        """Return every budget of the history that serves a user, and what is left of it."""
        return self.planner.budget(self.privileges(user))

    def history(self, user: str | None = None) -> list[HistoryLine]:
        """Return the statements that were paid for, oldest first; of one user, or of all."""
        return reports.history(self.ledger.audit(), user)

    def left(self, privileges: Privileges) -> Allowance:
        """Return the limit with the least left, of all that bind a user."""
        sequence, key = self.ledger.sequence(), self._left_key(privileges)
        allowance: Allowance | None = self._cache.get(sequence, key)
        if allowance is None:
            allowance = self.planner.left(privileges)
            self._cache.put(sequence, key, allowance)
        return allowance

    def _left_key(self, privileges: Privileges) -> tuple[object, ...]:
        return LEFT, *served(privileges), self._now().date()

    def left_in_cells(self) -> float:
        """Return the alpha left in that cell of the shared history which has least left."""
        return self.planner.left_in_cells(self.privileges(EMBEDDED_USER))

    def explain(self, text: str, program: Program, session: Session) -> Explained:
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
                more, told = self.planner.explained(each, session)
                rows, notices = rows + more, notices + told
                if told or any(row[reports.COST_AT] for row in more):
                    rows = [(*row[:-1], None) for row in rows]  # nobody knows what the rest costs
                    return rows, (*notices, reports.RELEASED_FIRST)
                session.bill = None
                released[key] = self._run(each, session, shown=False, spend=False).rows
            program = self._completed(program, text, session, now, released)
        more, told = self.planner.explained(program, session)
        return rows + more, notices + told
