"""Where the evaluator's DuckDB runs: in this process, or in a child process with limits.

Both do what they are told in SQL and hand back columns or rows.  Invariants: a call that takes
longer than its time is interrupted; a child that goes on all the same is killed; its memory has a
bound; and nothing that it sends can make an object here that is no plain value.  What is lost with
a child is one call: the next one has a new child, in which the tables are made again.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from proxy.lazy import duckdb
from proxy.sql.evaluator import worker
from proxy.sql.evaluator.watchdog import Watchdog
from proxy.sql.evaluator.worker import (
    MESSAGE,
    NUMBER,
    Array,
    Database,
    receive,
    send,
    unpack_array,
    unpack_column,
)

SECONDS = 30.0  # of a call
GRACE = 1.0  # seconds from an interrupt to the end of the child
START = 60.0  # seconds to start a child
WAIT = 0.02  # seconds between two interrupts of a call that runs when the process ends
LEAVE = 10.0  # seconds in all for such a call
MEMORY = 2 << 30  # bytes of a child's address space
INHERITED_ENV = ("LD_LIBRARY_PATH", "PYTHONHOME", "TZDIR")  # what Python itself may need
PLAIN = {
    "datetime": ("date", "datetime", "time", "timedelta"),
    "decimal": ("Decimal",),
}
BROKEN = ("OutOfMemoryException", "MemoryError", "FatalException", "InternalException")


class Sandbox(Protocol):
    """A DuckDB from which nothing else can be reached.  One thread calls, any may interrupt."""

    def run(self, sql: str, parameters: Sequence[object]) -> None:
        """Make a table."""

    def fetch(self, sql: str) -> tuple[list[Array], list[str]]:
        """Return the columns of a query as numpy arrays, masked where NULL, and their types."""

    def rows(self, sql: str, parameters: Mapping[str, object], limit: int) -> list[tuple[Any, ...]]:
        """Return the first rows of a query with named parameters."""

    def interrupt(self) -> None:
        """Stop the call that runs."""

    def rest(self) -> None:
        """Let go of what the next call can make again."""

    def close(self) -> None:
        """Let go of it."""


class Here(Database):
    """A DuckDB in this process, for whoever has the data there anyway: time is limited.

    No thread is in it when the interpreter ends, which would end the process in C++: its watchdog
    never holds the last reference, and what is still open then is closed.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        super().__init__()
        self._call = threading.Lock()
        self._watchdog = Watchdog(seconds)
        weakref.finalize(self, self._watchdog.end).atexit = False  # but ``_close``
        _open.add(self)

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        with self._call, self._watchdog.watching(self.interrupt):
            yield

    def run(self, sql: str, parameters: Sequence[object]) -> None:
        """Make a table."""
        with self._timed():
            super().run(sql, parameters)

    def fetch(self, sql: str) -> tuple[list[Array], list[str]]:
        """Return the columns of a query, and their types."""
        with self._timed():
            return super().fetch(sql)

    def rows(self, sql: str, parameters: Mapping[str, object], limit: int) -> list[tuple[Any, ...]]:
        """Return the first rows of a query."""
        with self._timed():
            return super().rows(sql, parameters, limit)

    def rest(self) -> None:
        """Do nothing: there is no other process."""

    def close(self) -> None:
        """Let go of it, when the call that runs has ended."""
        with self._call:
            self._end()

    def leave(self, seconds: float) -> bool:
        """Close it for good, if the call that runs ends in time; return whether it did."""
        if not self._call.acquire(timeout=seconds):
            return False
        self._end()  # and nobody gets the lock again
        return True

    def _end(self) -> None:
        super().close()
        self._watchdog.close()


_open: weakref.WeakSet[Here] = weakref.WeakSet()


@atexit.register
def _close() -> None:
    """Stop and close what nobody has closed, and let no thread in any more."""
    for sandbox in list(_open):
        for _ in range(round(LEAVE / WAIT)):
            if sandbox.leave(WAIT):
                break
            sandbox.interrupt()  # again, as one that comes before its call is lost


class Child:
    """A DuckDB in a child process: time and memory are limited."""

    def __init__(self, seconds: float = SECONDS, memory: int = MEMORY) -> None:
        self._seconds = seconds
        self._memory = memory
        self._made: list[bytes] = []  # the calls that made the tables
        self._closed = False
        self._process: _Process | None = None
        with contextlib.suppress(duckdb.ConnectionException):  # the first call will say so
            self._process = _Process(memory)

    def run(self, sql: str, parameters: Sequence[object]) -> None:
        """Make a table, and make it again in every later child."""
        message = pickle.dumps(("run", sql, parameters), 5)
        self._call(message)
        self._made.append(message)

    def fetch(self, sql: str) -> tuple[list[Array], list[str]]:
        """Return the columns of a query, and their types."""
        columns, kinds = self._call(pickle.dumps(("fetch", sql), 5))
        return [unpack_array(*column) for column in columns], kinds

    def rows(self, sql: str, parameters: Mapping[str, object], limit: int) -> list[tuple[Any, ...]]:
        """Return the first rows of a query."""
        columns = self._call(pickle.dumps(("rows", sql, dict(parameters), limit), 5))
        return list(zip(*(unpack_column(*column) for column in columns), strict=True))

    def interrupt(self) -> None:
        """Stop the call that runs, or the child if it does not stop."""
        process = self._process
        if process is not None:
            process.interrupt()

    def rest(self) -> None:
        """End the child; the next call makes another."""
        self._drop()

    def close(self) -> None:
        """End the child; there will be no other."""
        self._closed = True
        self._drop()

    def _drop(self) -> None:
        """End the child, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def _call(self, message: bytes) -> Any:
        if len(message) > MESSAGE:
            raise duckdb.OutOfMemoryException("the message is too long")
        process = self._ready()
        try:
            kind, value = process.ask(message, self._seconds)
        except BaseException:
            self._drop()
            raise
        if kind == "done":
            return value
        if kind in BROKEN:  # what it has left of memory or sense is not known
            self._drop()
        raise _error(kind, value)

    def _ready(self) -> _Process:
        """Return a child that has all tables."""
        if self._closed:
            raise duckdb.ConnectionException("it is closed")
        if self._process is not None and not self._process.alive():
            self._drop()
        if self._process is None:
            self._process = _Process(self._memory)
        process = self._process
        if not process.ready:
            try:
                process.begin()
                for message in self._made:
                    kind, value = process.ask(message, self._seconds)
                    if kind != "done":
                        raise _error(kind, value)
            except BaseException:
                self._drop()
                raise
            process.ready = True
        return process


class _Process:
    """One child process, and the line to it: a message there, a message back.

    Its standard input, which ends with us, takes the numbers of the calls that are to stop.

    Raises:
        duckdb.ConnectionException: there can be no process.
    """

    def __init__(self, memory: int) -> None:
        try:
            self._process, self._line = _started(memory)
        except OSError as error:
            raise duckdb.ConnectionException(f"it does not start: {error.strerror}") from None
        self.ready = False
        self._guard = threading.Lock()  # of the four that follow
        self._timer: threading.Timer | None = None  # to the end of a call that was stopped
        self._calls = 0
        self._running = 0  # the call that runs; 0: none
        self._stopped = 0  # the last call that was to stop
        self._finalizer = weakref.finalize(self, _end, self._process, self._line)

    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def end(self) -> None:
        """End the process; ending twice is no error."""
        self._finalizer()

    def begin(self) -> None:
        """Wait until it is there.

        Raises:
            duckdb.ConnectionException: it does not start.
        """
        try:
            self.ask(pickle.dumps(("hello",)), START)
        except duckdb.FatalException:
            raise duckdb.ConnectionException("it does not start") from None

    def ask(self, message: bytes, seconds: float) -> Any:
        """Return the reply to a message: ``done`` and a value, or an error's kind and words.

        Raises:
            duckdb.InterruptException: it was stopped, and so was the process.
            duckdb.FatalException: the process ended.
        """
        deadline = time.monotonic() + seconds
        with self._guard:
            self._calls += 1
            number = self._running = self._calls
        try:
            self._line.settimeout(seconds)
            send(self._line, [message])
            return _plain(*receive(self._line, lambda: self._wait(number, deadline)))
        except Exception as error:  # whatever it is, the process is of no more use
            if self._stopped == number or isinstance(error, TimeoutError):
                raise duckdb.InterruptException("stopped") from None
            raise duckdb.FatalException("the process ended") from None
        finally:
            with self._guard:
                self._running = 0
                timer, self._timer = self._timer, None
            if timer is not None:
                timer.cancel()
                timer.join()

    def _wait(self, number: int, deadline: float) -> None:
        """Set how long to wait for the next bytes; past the deadline, stop the call."""
        left = deadline - time.monotonic()
        if left <= 0:
            self.interrupt()
        stopped = self._stopped == number
        self._line.settimeout(None if stopped else max(left, 0.001))

    def interrupt(self) -> None:
        """Stop the call that runs, and the process if it does not stop."""
        with self._guard:
            number = self._running
            if not number or self._stopped == number:
                return
            self._stopped = number
            self._timer = threading.Timer(GRACE, self._kill, [number])
            self._timer.daemon = True
            self._timer.start()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(NUMBER.pack(number))

    def _kill(self, number: int) -> None:
        with self._guard:
            if self._running == number:
                self._process.kill()


def _started(memory: int) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a child; return it, and our end of the line to it."""
    ours, theirs = socket.socketpair()
    with theirs, contextlib.ExitStack() as failing:
        failing.callback(ours.close)
        process = subprocess.Popen(
            [sys.executable, "-P", worker.__file__, str(theirs.fileno()), str(memory)],
            stdin=subprocess.PIPE,
            bufsize=0,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # it could tell literals of statements
            pass_fds=[theirs.fileno()],
            env=environment(),
            cwd="/",
            start_new_session=True,  # Ctrl-C at the terminal is not for it
        )
        failing.pop_all()
    return process, ours


def environment() -> dict[str, str]:
    """Return the environment of a child: where its libraries are, and nothing of ours."""
    kept = {name: os.environ[name] for name in INHERITED_ENV if name in os.environ}
    paths = [path for path in sys.path if path]
    threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return {**kept, **threads, "MALLOC_ARENA_MAX": "1", "PYTHONPATH": os.pathsep.join(paths)}


def _end(process: subprocess.Popen[bytes], line: socket.socket) -> None:
    """End a process that has nothing to lose."""
    process.kill()
    process.wait()
    line.close()
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()


class ValueUnpickler(pickle.Unpickler):
    """Makes values and nothing else, whoever has written the bytes."""

    classes: Mapping[str, Collection[str]] = PLAIN  # by module

    def find_class(self, module: str, name: str) -> Any:
        """Return a class of values.

        Raises:
            pickle.UnpicklingError: it is another one.
        """
        if name in self.classes.get(module, ()):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no value")


def _plain(head: bytearray, *buffers: bytearray) -> Any:
    """Return what a child has sent."""
    return ValueUnpickler(io.BytesIO(head), buffers=buffers).load()


def _error(kind: str, words: str) -> Exception:
    """Return the error that the child has met."""
    found = getattr(duckdb, kind, None)
    if kind == "MemoryError":
        found = duckdb.OutOfMemoryException
    if isinstance(found, type) and issubclass(found, duckdb.Error):
        return found(words)
    return RuntimeError(f"{kind}: {words}")
