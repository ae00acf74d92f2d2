"""One client's statements: settings, transaction block, commands, cancellation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import proxy.engine.reports as reports
from proxy.engine.allowances import Allowance
from proxy.engine.answers import Result
from proxy.engine.asker import Asker
from proxy.engine.result import columns
from proxy.engine.transaction_block import KINDS, TransactionBlock
from proxy.errors import Error, NotSupportedError
from proxy.policy import Policy, Users
from proxy.privileges import Privileges
from proxy.settings import Settings, Wishes, given, of_user
from proxy.sql.parse.grammar import split
from proxy.sql.parse.parameters import bind_parameters
from proxy.sql.parse.views import Create, Drop, created, dropped
from proxy.sql.program import Column, Command, Program

IGNORED_COMMANDS = ("set", "reset")


class Backend(Protocol):
    """The engine, as its sessions see it: ``Engine`` conforms."""

    policy: Policy
    wishes: Wishes

    @property
    def users(self) -> Users | None:
        """The users file, as it was last read."""

    def execute(self, text: str, session: Session) -> Result:
        """Run one statement."""

    def execute_script(self, texts: Sequence[str], session: Session) -> list[Result]:
        """Run statements in turn, having measured together what they ask for."""

    def compile(self, text: str, session: Session) -> Program | Command:
        """Return what a statement means, without running it."""

    def explain(
        self, text: str, program: Program, session: Session
    ) -> tuple[list[tuple[Any, ...]], tuple[str, ...]]:
        """Return what each number of a statement would cost, and notices; measure nothing."""

    def privileges(self, user: str) -> Privileges:
        """Return what a user may do, see and spend."""

    def budget(self, user: str) -> reports.BudgetReport:
        """Return every budget of the history that serves a user, and what is left of it."""

    def history(self, user: str | None) -> Sequence[reports.HistoryLine]:
        """Return the statements that were paid for, oldest first; of one user, or of all."""

    def left(self, privileges: Privileges) -> Allowance:
        """Return the limit that has least left, of all that bind a user."""

    def interrupt(self, session: Session) -> None:
        """Stop the running statement of a session, from another thread."""


class Session(Asker):
    """One client's statements, on one user's account, with settings of their own."""

    def __init__(
        self,
        engine: Backend,
        user: str,
        utility: tuple[float, float] | str | None,
        dialect: str,
        max_cost: float | str | None = None,
    ) -> None:
        privileges = engine.privileges(user)
        wish = of_user(privileges.utility)
        wish = given(utility) if utility is not None else wish
        settings = Settings(wish, engine.wishes, max_cost)
        super().__init__(engine.policy, user, engine.users, privileges, settings)
        self.block = TransactionBlock(self.settings)
        self._engine = engine
        self.dialect = dialect
        self.thread: int | None = None  # which runs a statement

    def renew_privileges(self) -> None:
        """Take the privileges of the current users file."""
        if self.users != self._engine.users:
            self.users, self.privileges = self._engine.users, self._engine.privileges(self.user)
            self.agreed = None

    def execute(self, text: str, parameters: Any = None) -> Result:
        """Run one statement; in a transaction, an error makes it fail until its end."""
        self._canceled = False
        if parameters is not None:  # wrong ones are no statement yet, and fail no transaction
            text = bind_parameters(text, parameters)
        try:
            if self.block.failed:
                self.block.check(self._kind(text))
            return self._engine.execute(text, self)
        except Exception:
            self.block.fail()
            raise

    def execute_script(self, text: str) -> list[Result]:
        """Run the statements of a text, having measured together what they ask for."""
        self._canceled = False
        texts = split(text)
        if self.block.failed:
            return [self.execute(each) for each in texts]
        try:
            return self._engine.execute_script(texts, self)
        except Exception:
            self.block.fail()
            raise

    def _kind(self, text: str) -> str | None:
        """Return the kind of a command; None for a query, and for a text that does not parse."""
        try:
            statement = self._engine.compile(text, self)
        except Error:
            return None
        return statement.kind if isinstance(statement, Command) else None

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction block is open."""
        return self.block.open

    def explain(self, text: str) -> Result:
        """Return the cost that a query would have, and measure nothing: EXPLAIN UTILITY."""
        self._canceled = False
        program = self._engine.compile(text, self)
        if not isinstance(program, Program):
            raise NotSupportedError(f"EXPLAIN UTILITY takes a query, not {program.kind.upper()}")
        return self.command(Command("explain", "utility", text, program=program))

    def describe(self, text: str) -> tuple[Column, ...]:
        """Return the columns of a statement's result: it is compiled, and releases nothing."""
        statement = self._engine.compile(text, self)
        if isinstance(statement, Program):
            return columns(statement, self.settings)
        return self.command(statement).columns if statement.kind in ("show", "explain") else ()

    def cancel(self) -> None:
        """Stop the running statement, from another thread, unless it is committed already."""
        super().cancel()
        self._engine.interrupt(self)

    def command(self, command: Command) -> Result:
        """Run a statement that releases nothing."""
        columns: tuple[Column, ...] = ()
        rows: list[tuple[Any, ...]] = []
        notices: tuple[str, ...] = ()
        tag = command.kind.upper()
        if command.kind in ("set", "reset") and command.name.startswith("privacy."):
            notices = self.block.set(command.name, command.value, command.local)
        elif command.kind == "reset" and command.name == "all":
            self.block.reset_all()
        elif command.kind == "discard":
            tag = self.block.discard(command.name)
        elif command.kind == "empty":
            tag = ""
        elif command.kind in KINDS:
            tag, notices = self.block.command(command.kind, command.name)
        elif isinstance(command.change, Create):
            assert command.program is not None
            there = self.settings.views
            self.settings.views = created(there, command.change, command.program.columns)
        elif isinstance(command.change, Drop):
            self.settings.views, notices = dropped(self.settings.views, command.change)
        elif command.kind == "show":
            columns, rows = self._shown(command.name)
        elif command.kind == "explain" and command.program is not None:
            columns = reports.EXPLAINED
            rows, notices = self._engine.explain(command.value or "", command.program, self)
        elif command.kind not in IGNORED_COMMANDS:
            raise NotSupportedError(
                f"{command.kind.upper()} is not supported",
                hint="EXPLAIN UTILITY SELECT … says what a statement would cost"
                if command.kind == "explain"
                else None,
            )
        allowance = self._engine.left(self.privileges)
        none: list[list[Any]] = [[] for _ in rows]
        return Result(columns, rows, none, 0.0, allowance.left, notices, tag, none, allowance.name)

    def _shown(self, name: str) -> tuple[tuple[Column, ...], list[tuple[Any, ...]]]:
        """Return columns and rows of SHOW."""
        if name == "budget":
            return reports.BUDGET, reports.budget_rows(self._engine.budget(self.user))
        if name == "history":
            return reports.HISTORY, list(
                reports.history_rows(self._engine.history(self.privileges.sees))
            )
        return (Column(name, "text"),), [(self.settings.text(name),)]

    def close(self) -> None:
        """End the session."""
