"""Runs what is entered: statements, at a price that somebody agreed to, and commands."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from proxy.cli import show
from proxy.cli.complaints import status
from proxy.cli.interactive import commands
from proxy.cli.interactive.catalog import Catalog
from proxy.cli.interactive.endings import Leave, Stopped
from proxy.cli.interactive.lexemes import entries, spoken
from proxy.cli.interactive.screen import Screen
from proxy.cli.interactive.sparkline import sparkline
from proxy.dbapi import Connection
from proxy.engine.explained.price import first_cost, in_steps
from proxy.errors import Error

if TYPE_CHECKING:
    from proxy.engine import Result

T = TypeVar("T")
EXPLAIN = "EXPLAIN UTILITY "
RELEASING_NOTHING = (  # what begins such statements
    "SET RESET SHOW EXPLAIN BEGIN START COMMIT END ROLLBACK ABORT SAVEPOINT RELEASE DISCARD "
    "DEALLOCATE CREATE DROP"
)
FREE = frozenset(RELEASING_NOTHING.split())
PRICELESS = {"COPY", "EXECUTE", "FETCH", "DECLARE", "MOVE"}  # which may cost, and take no EXPLAIN
LEFT_AFTER, AT_MOST = 5, 6  # columns of EXPLAIN
WOULD = "would be refused"  # a notice of EXPLAIN: then nothing is spent


class Interpreter:
    """One session at a shell.  ``ask`` puts a question to whoever types; without it, nobody does.

    ``run`` does what may take long; at a terminal, in a thread of its own, so that it can be
    stopped.
    """

    def __init__(
        self, connection: Connection, catalog: Catalog, screen: Screen, keep_going: bool = False
    ) -> None:
        self.connection, self.catalog, self.screen = connection, catalog, screen
        self.keep_going = keep_going
        self.ask: Callable[[str], bool] | None = None
        self.run: Callable[[Callable[[], Result]], Result] = lambda work: work()
        self.confirm = True
        self.timing = False
        self.last: Result | None = None
        self.left = ""
        self.files: list[str] = []  # that are being read, each by the one before
        self._failed = 0

    def script(self, lines: Iterable[str]) -> int:
        """Run what comes in lines, as soon as it is whole, and return the exit status."""
        self._failed = 0
        try:
            self.read(lines)
        except Stopped as stopped:
            return stopped.status
        except Leave:
            pass
        return self._failed

    def read(self, lines: Iterable[str]) -> None:
        """Run what comes in lines.

        Raises:
            Stopped, Leave: the rest is not to be run.
        """
        text = ""
        for line in lines:
            text += line
            if ";" in line or "\\" in line:
                found, text = entries(text, whole=False)
                self._enter(found)
        self._enter(entries(text)[0])

    def _enter(self, texts: Iterable[str]) -> None:
        for text in texts:
            try:
                self.enter(text)
            except Error as error:
                self.screen.flush()
                self.screen.error(error, "" if text.startswith("\\") else text)
                if not self.keep_going:
                    raise Stopped(status(error)) from None
                self._failed = self._failed or status(error)

    def enter(self, text: str) -> None:
        """Run a statement or a command, and show what it gives."""
        if text.startswith("\\"):
            commands.run(self, text)
        elif text.lower() in ("quit", "exit"):
            raise Leave
        else:
            self.statement(text)
        self.screen.flush()

    def statement(self, text: str) -> None:
        """Run a statement, if it is free or its price agreed to, and show its result."""
        if self.ask is not None and self.confirm:
            self._agree(text)
        began = time.perf_counter()
        result = self.execute(text)
        took = time.perf_counter() - began
        self.catalog.note(text)
        if result.columns:
            self.last = result
            show.result(result, False, self.screen)
            if spark := sparkline(result):
                self.screen.spark(spark)
        else:
            for line in (result.tag, *(f"notice: {notice}" for notice in result.notices)):
                self.screen.print(line)
        if self.timing:
            self.screen.print(f"time {took:.3f} s")

    def execute(self, text: str) -> Result:
        """Run a statement without a question; it shows nothing."""

        def work() -> Result:
            result = self.connection.execute(text).result
            assert result is not None
            return result

        with self.catalog.guard:
            result = self.run(work)
        if not math.isnan(result.left):
            self.left = show.left(result)
        return result

    def explain(self, text: str) -> Result:
        """Return what a statement would cost.

        Raises:
            Error: as the statement would; its position is that in the text.
        """
        try:
            return self.execute(EXPLAIN + text)
        except Error as error:
            if error.position:
                error.position = max(error.position - len(EXPLAIN), 1)
            raise

    def look(self) -> None:
        """Learn what is left: nothing else tells before the first statement."""
        from proxy.engine.allowances import said

        rules = self.execute("SHOW BUDGET").rows
        name, _, _, left, _ = min(rules, key=lambda rule: rule[3])
        self.left = said(left, name)

    def _agree(self, text: str) -> None:
        """Ask whether to pay for a statement, unless it is free.

        Raises:
            Stopped: no.
            Error: the statement is wrong.
        """
        first = next((word.text.upper() for word in spoken(text)), "")
        if first in FREE:
            return
        if first in PRICELESS:
            self._question(f"What {first} costs is not known before.")
            return
        told = self.explain(text)
        said = price(told)
        if not said or any(WOULD in notice for notice in told.notices):
            return
        for notice in told.notices:
            self.screen.print(f"notice: {notice}")
        self.screen.flush()
        after = min(row[LEFT_AFTER] for row in told.rows)
        then = "" if after == told.left else f", then {show.amount(after)}"
        self._question(f"This costs {said}: left {show.left(told)}{then}.")

    def _question(self, said: str) -> None:
        assert self.ask is not None
        if not self.ask(f"{said}  Run it?"):
            self.screen.print("Not run: nothing was spent.")
            self.screen.flush()
            raise Stopped


def price(told: Result) -> str:
    """Return what a statement would cost by EXPLAIN; nothing if it is free."""
    most = told.rows[0][AT_MOST] if told.rows else 0.0
    first = show.amount(first_cost(told.rows))
    if most is None:
        return f"{first} for its first part, and then what is known only after it"
    if in_steps(told.rows):
        return f"{first} for its first step, at most {show.amount(most)} for all"
    return show.amount(most) if most else ""
