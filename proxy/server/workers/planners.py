"""The planners of a server: what is planned, measured and inferred in processes of their own."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from proxy.engine.allowances import Allowance
from proxy.engine.answered import Answered
from proxy.engine.asker import Asker
from proxy.engine.planner import Explained
from proxy.engine.reports import BudgetReport
from proxy.privileges import Privileges
from proxy.server.workers import planner
from proxy.server.workers.pool import Worker, readable
from proxy.sql.evaluator.worker import send
from proxy.sql.program import Program

GRACE = 0.5  # seconds that a cancelled call has to stop by itself


class PlannerProcess(Worker):
    """One planner process, and the line to it."""

    module = planner.__name__
    seconds = None  # the statement's own limit cancels it
    grown = 1 << 30  # the cube among it

    def __init__(self, *of: Any) -> None:
        super().__init__(*of)
        self._there = planner.Kept()
        self._sending = threading.Lock()  # of what is sent, which may take long
        self._state = threading.Lock()  # of these two
        self._calls = self._sent = self._canceled = 0  # by number
        self._runs = False
        self._users: object = self  # that were sent last; at first none were

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Know that a call runs: from now on a cancellation finds it."""
        with self._state:
            self._calls += 1
            self._runs = True
        try:
            yield
        except BaseException:
            if self._sent < self._calls:  # who knows what the other side has
                self.kill()
            raise
        finally:
            with self._state:
                self._runs = False

    def _prepared(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return arguments without what the planner has."""
        return tuple(map(self._without, arguments))

    def _without(self, argument: Any) -> Any:
        if isinstance(argument, Program):
            return planner.packed(argument, self._there)
        if isinstance(argument, planner.Who):
            users, self._users = self._users, argument.users
            if users is argument.users:
                return replace(argument, users=None, known=True)
        return argument

    def _send(self, request: bytes) -> None:
        with self._sending:
            send(self._line, [self._calls.to_bytes(8), request])
        self._sent = self._calls

    def cancel(self) -> None:
        """Stop the call that runs; end the process, if it does not stop.  Waits for nothing."""
        with self._state:
            number = self._calls
            if not self._runs or number == self._canceled:
                return
            self._canceled = number
        for work in (threading.Timer(GRACE, self._end, [number]),
                     threading.Thread(target=self._tell, args=[number])):  # fmt: skip
            work.daemon = True
            work.start()

    def close(self) -> None:
        """End it when no call runs: it syncs what it has noted."""
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)
        readable(self._process, GRACE)
        super().close()

    def _tell(self, number: int) -> None:
        """Send the cancellation of a call, behind the call itself."""
        with self._sending, contextlib.suppress(OSError):  # it may have ended
            send(self._line, [number.to_bytes(8)])

    def _end(self, number: int) -> None:
        """End the process, if it still runs a call."""
        with self._state:
            if self._runs and self._calls == number:
                self.kill()


class RemotePlanner:
    """Plans the statements of one dataset in planners."""

    def __init__(self, key: str, call: Callable[..., Any]) -> None:
        self._key = key  # of the policy
        self._call = call  # a function of ``planner``, in the planner of the step

    def answered(self, program: Program, asker: Asker, spend: bool = True) -> Answered:
        """Return every number of a program; measure what cannot be inferred, if it may."""
        told: Answered = self._call(planner.answered, self._key, program, planner.who(asker), spend)
        numbers = [number for release in program.releases for number in release.numbers]
        outcomes = [
            replace(each, number=number)
            for each, number in zip(told.inference.outcomes, numbers, strict=True)
        ]
        return replace(told, inference=replace(told.inference, outcomes=outcomes))

    def explained(self, program: Program, asker: Asker) -> Explained:
        """Return the cost that each number of one program would have; measure nothing."""
        told: Explained = self._call(planner.explained, self._key, program, planner.who(asker))
        return told

    def budget(self, privileges: Privileges) -> BudgetReport:
        """Return every budget of the history that serves a user, and what is left of it."""
        told: BudgetReport = self._call(planner.budget, self._key, privileges)
        return told

    def left(self, privileges: Privileges) -> Allowance:
        """Return the limit with the least left, of all that bind a user."""
        told: Allowance = self._call(planner.left, self._key, privileges)
        return told

    def left_in_cells(self, privileges: Privileges) -> float:
        """Return the alpha left in that cell of the user's history which has least left."""
        return float(self._call(planner.left_in_cells, self._key, privileges))
