"""The pool: worker processes of one template, each lent to one step of a statement at a time.

Invariants: what a worker sends can make plain values here and nothing else; a worker that was
killed, or has grown, is replaced before its place is free again; when this process ends, so do
the template and the workers.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from proxy.errors import (
    Error,
    InternalError,
    OperationalError,
    QueryCanceledError,
    StatementTooComplexError,
)
from proxy.inference.estimator import never_cancel
from proxy.server.workers import template, worker
from proxy.server.workers.cache import Cache
from proxy.server.workers.tasks import StaleError
from proxy.server.workers.template import NICE, QUICK
from proxy.sql.evaluator.sandbox import ValueUnpickler, environment
from proxy.sql.evaluator.worker import MESSAGE, receive, send

log = logging.getLogger("proxy.server")
SECONDS = 30.0  # of a call
START = 300.0  # seconds to start a template: planners read the histories
PROGRAMS, PROGRAM_BYTES = 512, 64 << 20  # compiled statements that are kept
ROUTES, ROUTE_BYTES = 1024, 8 << 20
GROWN = 64 << 20  # bytes by which a worker may grow before it is replaced
VALUES = {  # modules and their classes that a worker may send
    "builtins": {"set", "frozenset", "slice", "complex", "bytearray"},
    "datetime": {"date", "datetime", "time", "timedelta"},
    "decimal": {"Decimal"},
    "fractions": {"Fraction"},
    "types": {"MappingProxyType"},
    "collections": {"OrderedDict"},
    "numpy": {"dtype", "ndarray"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.numeric": {"_frombuffer"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},
    "numpy.core.numeric": {"_frombuffer"},
}
PLAIN = (  # modules of ours with nothing but values in them
    "proxy.engine.allowances",
    "proxy.engine.answered",
    "proxy.engine.answers",
    "proxy.engine.bill",
    "proxy.engine.outcomes",
    "proxy.engine.reports",
    "proxy.errors",
    "proxy.inference.estimator",
    "proxy.inference.family",
    "proxy.inference.query",
    "proxy.inference.space",
    "proxy.server.statements.parameters",
    "proxy.server.statements.routing",
    "proxy.server.workers.tasks",
    "proxy.sql.parse.views",
    "proxy.sql.program",
)


class Worker:
    """One worker process, and the line to it.  One thread calls, any may kill."""

    module = worker.__name__  # the template's
    seconds: float | None = SECONDS  # of a call
    grown = GROWN

    def __init__(self, line: socket.socket, number: int, process: int) -> None:
        self._line = line
        self._number = number
        self._process = process  # a file descriptor that stands for it
        self._guard = threading.Lock()
        self._at_first = 0  # bytes in memory after the first call
        self.usable = True

    def call(
        self,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        check: Callable[[], None] = never_cancel,
    ) -> Any:
        """Return the value of a function there; ``check`` raises where it is cancelled already.

        Raises:
            Error: the function did.
            StatementTooComplexError: it took too much time or memory.
        """
        with self._running():
            check()
            request = pickle.dumps((function, self._prepared(arguments)), 5)
            check()
            if len(request) > MESSAGE:
                raise StatementTooComplexError(
                    "the statement's values need more memory than allowed"
                )
            return self._called(request)

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Know that a call runs."""
        yield

    def _prepared(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return arguments without what the other side has."""
        return arguments

    def _called(self, request: bytes) -> Any:
        """Return the value of a call that is pickled."""
        deadline = None if self.seconds is None else time.monotonic() + self.seconds

        def wait() -> None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError
            self._line.settimeout(left)

        try:
            wait()
            self._send(request)
            resident, head, *buffers = receive(self._line, wait)
            kind, value = _Unpickler(io.BytesIO(head), buffers=buffers).load()
        except TimeoutError:
            self.kill()
            raise StatementTooComplexError(
                f"the statement takes more than {self.seconds:g} s to read and to evaluate"
            ) from None
        except (OSError, EOFError, ValueError, pickle.UnpicklingError) as error:
            self.kill()
            if isinstance(error, pickle.UnpicklingError):
                raise InternalError("a worker sent what is no value", detail=str(error)) from None
            raise StatementTooComplexError(
                "the process that worked on the statement ended; the statement may need more "
                "memory than it may have"
            ) from None
        except BaseException:
            self.kill()
            raise
        size = int.from_bytes(resident)
        self._at_first = self._at_first or size
        self.usable = self.usable and size <= self._at_first + self.grown
        if kind == "error":
            failure = template.raised(value)
            if isinstance(failure, InternalError):
                log.error("internal error of a worker", extra={"reason": failure.detail})
                failure.detail = None
                failure.hint = "the log of the proxy says more; please report it"
            raise failure
        return value

    def _send(self, request: bytes) -> None:
        """Send a call, and see that a long one lets others go first."""
        send(self._line, [request])
        if not readable(self._line.fileno(), QUICK):
            self._step_back()

    def _step_back(self) -> None:
        """Let quicker ones go first; that lasts, so another worker follows after the call."""
        self.usable = False
        with self._guard, contextlib.suppress(OSError):
            if self.alive():
                os.setpriority(os.PRIO_PROCESS, self._number, NICE)

    def alive(self) -> bool:
        """Whether the process runs."""
        return not readable(self._process, 0)

    def cancel(self) -> None:
        """Stop the call that runs."""
        self.kill()

    def kill(self) -> None:
        """End it, whatever it does; killing twice is no error."""
        with self._guard:
            self.usable = False
            if self._process >= 0:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._process, signal.SIGKILL)

    def close(self) -> None:
        """End it and let go of it, when no call runs."""
        self.kill()
        with self._guard:
            os.close(self._process)
            self._process = -1
        self._line.close()


def readable(file: int, seconds: float) -> bool:
    """Whether a file can be read within so many seconds, whatever its number: no ``select``."""
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


class _Unpickler(ValueUnpickler):
    """Makes values too that statements are compiled to."""

    classes = VALUES

    known: ClassVar[dict[tuple[str, str], Any]] = {}  # that were found before

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.known:
            self.known[module, name] = self._found(module, name)
        return self.known[module, name]

    def _found(self, module: str, name: str) -> Any:
        if module in PLAIN:
            found = getattr(sys.modules[module], name, None)
            if isinstance(found, type) and found.__module__ == module:
                return found
        return super().find_class(module, name)


class Template:
    """The process that forks workers."""

    def __init__(self, setup: Iterable[object], kind: type[Worker] = Worker) -> None:
        self._kind = kind
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", kind.module, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # it could tell literals of statements
                pass_fds=[theirs.fileno()],
                env=environment(),
                cwd="/",
                start_new_session=True,  # Ctrl-C at the terminal is not for it
            )
        self._line = ours
        self._guard = threading.Lock()
        ours.settimeout(START)
        send(ours, [pickle.dumps(list(setup), 5)])

    def fork(self) -> Worker:
        """Return a new worker that is ready.

        Raises:
            OperationalError: there can be none.
        """
        ours, theirs = socket.socketpair()
        try:
            with self._guard, theirs:
                socket.send_fds(self._line, [b"?"], [theirs.fileno()])
                data, handles, _, _ = socket.recv_fds(self._line, 8, 1)
            if not data:
                raise OSError
        except OSError:
            ours.close()
            raise OperationalError("there is no process to work on the statement") from None
        forked = self._kind(ours, int.from_bytes(data), handles[0])
        try:
            forked.call(len, ((),))
        except Error:
            forked.close()
            raise OperationalError("there is no process to work on the statement") from None
        return forked

    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def close(self) -> None:
        """End it, and its workers."""
        self._process.kill()
        self._process.wait()
        self._line.close()


@dataclass
class _Crew:
    """A template and its workers."""

    template: Template
    setup: Sequence[object]
    idle: list[Worker] = field(default_factory=list)
    lent: int = 0


class Pool:
    """Processes of a kind, for a number of steps at a time, over the datasets as they are now."""

    def __init__(self, kind: type[Worker] = Worker) -> None:
        self._kind = kind
        self._guard = threading.Lock()
        self._starting = threading.RLock()  # one crew at a time
        self._crew: _Crew | None = None
        self.programs = Cache(PROGRAMS, PROGRAM_BYTES)
        self.routes = Cache(ROUTES, ROUTE_BYTES)

    def update(self, setup: Sequence[object]) -> None:
        """Have workers that know these datasets; those that are lent end with their steps."""
        with self._starting:
            crew = _Crew(Template(setup, self._kind), setup)
            try:
                crew.idle.append(crew.template.fork())  # so it is there
            except BaseException:
                crew.template.close()
                raise
            with self._guard:
                before, self._crew = self._crew, crew
        if before is not None:
            self._end(before)

    def lend(self) -> tuple[_Crew, Worker]:
        """Return a worker, and its crew, which takes it back.

        Raises:
            OperationalError: there can be none.
        """
        with self._guard:
            crew = self._crew
            if crew is None:
                raise OperationalError("the server stops")
            crew.lent += 1
            while crew.idle:
                lent = crew.idle.pop()
                if lent.alive():
                    return crew, lent
                lent.close()
        try:
            return crew, crew.template.fork()
        except OperationalError:
            self.take_back(crew, None)
            if self._began_anew(crew):
                return self.lend()
            raise

    def _began_anew(self, crew: _Crew) -> bool:
        """Whether there is another crew now, as this one's template has ended."""
        with self._starting:
            if crew is self._crew and not crew.template.alive():
                self.update(crew.setup)
            return crew is not self._crew

    def take_back(self, crew: _Crew, lent: Worker | None) -> None:
        """Keep a worker for the next step, or have a new one in its place."""
        new = lent is not None and not lent.usable
        if lent is not None and new:
            lent.close()
            lent = None
            if crew is self._crew:
                with contextlib.suppress(OperationalError):  # the next one who asks is told
                    lent = crew.template.fork()
        with self._guard:
            crew.lent -= 1
            if lent is not None:
                crew.idle.insert(0 if new else len(crew.idle), lent)  # those that are warm go first
        if crew is not self._crew:
            self._end(crew)

    def count(self) -> dict[str, int]:
        """Return how many workers there are, by what they do."""
        with self._guard:
            crew = self._crew
            return {"busy": crew.lent, "idle": len(crew.idle)} if crew is not None else {}

    def _end(self, crew: _Crew) -> None:
        """End the workers of a crew that are idle, and with the last of all the template."""
        with self._guard:
            idle, crew.idle = crew.idle, []
            last = not crew.lent
        for each in idle:
            each.close()
        if last:
            crew.template.close()

    def close(self) -> None:
        """End all workers; what they do is lost."""
        with self._guard:
            crew, self._crew = self._crew, None
        if crew is not None:
            self._end(crew)
            crew.template.close()


class Lease:
    """A worker for one step of a statement, borrowed when first needed.

    One thread calls, any may cancel.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._guard = threading.Lock()
        self._borrowed: tuple[_Crew, Worker] | None = None
        self._canceled: str | None = None

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the value of a function, worked out by the process that is lent.

        Raises:
            QueryCanceledError: ``cancel`` was called.
            StatementTooComplexError: it takes too much time or memory.
            Error: as the function raises.
        """
        try:
            try:
                return self._worker().call(function, arguments, self._check)
            except StaleError:
                self.close()
                return self._worker().call(function, arguments, self._check)
        except QueryCanceledError:
            raise
        except Error as error:
            if self._canceled is not None:
                canceled = QueryCanceledError(self._canceled, hint=error.hint)
                canceled.cost = error.cost
                raise canceled from None
            raise

    def _check(self) -> None:
        if self._canceled is not None:
            raise QueryCanceledError(self._canceled)

    def _worker(self) -> Worker:
        if self._borrowed is None:
            borrowed = self._pool.lend()
            with self._guard:
                self._borrowed = borrowed
        self._check()
        return self._borrowed[1]

    def cancel(self, reason: str) -> None:
        """Stop what runs, and all that would; ``reason`` is what the client is told."""
        with self._guard:
            self._canceled = reason
            if self._borrowed is not None:
                self._borrowed[1].cancel()

    def close(self) -> None:
        """Give the worker back."""
        with self._guard:
            borrowed, self._borrowed = self._borrowed, None
        if borrowed is not None:
            self._pool.take_back(*borrowed)
