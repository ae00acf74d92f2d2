"""What stops a call whose time is over: one thread for all calls of a sandbox, none for each.

The thread wakes at least as often as a call may take, so that no call has to wake it, and looks
whether one is overdue.  Invariant: it knows what to stop only while that call runs, and the call
does not return while it is being stopped, so that this thread never has the last reference.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

AGAIN = 0.02  # seconds between two stops of a call that goes on


class Watchdog:
    """Watches over one call at a time, from a thread that the first of them starts."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds  # of a call
        self._ended = False
        self.forked()
        _all.add(self)

    def forked(self) -> None:
        """Begin anew: a forked process has neither the thread, nor what it may have locked."""
        self._changed = threading.Condition()  # of all that follows
        self._call: tuple[float, Callable[[], None]] | None = None  # its deadline, and its stop
        self._thread: threading.Thread | None = None

    @contextmanager
    def watching(self, stop: Callable[[], None]) -> Iterator[None]:
        """Call ``stop``, until it ends, if what is done inside takes longer than its time."""
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, daemon=True)
                self._thread.start()
            self._call = time.monotonic() + self._seconds, stop
        try:
            yield
        finally:
            with self._changed:
                self._call = None

    def _watch(self) -> None:
        with self._changed:
            while not self._ended:
                self._changed.wait(self._look())

    def _look(self) -> float:
        """Stop what is overdue; return for how long nothing else can be."""
        if self._call is None:
            return self._seconds
        deadline, stop = self._call
        left = deadline - time.monotonic()
        if left > 0:
            return left
        stop()
        return AGAIN

    def end(self) -> None:
        """Let the thread end, soon."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def close(self) -> None:
        """End the thread, and wait for it."""
        self.end()
        if self._thread not in (None, threading.current_thread()):  # which may collect garbage
            self._thread.join()


_all: weakref.WeakSet[Watchdog] = weakref.WeakSet()


def _forked() -> None:
    for watchdog in list(_all):
        watchdog.forked()


os.register_at_fork(after_in_child=_forked)
