"""Results that are given again: those of free statements, while the history is as it was.

Invariant: what is kept follows from the ledger up to one line of it, and from nothing that it does
not know.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from proxy.engine.answers import Result
from proxy.engine.session import Session
from proxy.privileges import Privileges
from proxy.sql.program import Program

MAX_CACHED = 512  # results, and what is left
MAX_CACHED_SIZE = 10_000  # rows and characters: what has more is worked out anew when asked again


@dataclass(eq=False)
class Cache:
    """What follows from the ledger up to a line.  Any thread may use it."""

    _sequence: int = -1
    _kept: dict[Hashable, Any] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def get(self, sequence: int, key: Hashable) -> Any:
        """Return what was kept under a key, if the ledger still ends with that line."""
        with self._guard:
            return self._kept.get(key) if sequence == self._sequence else None

    def put(self, sequence: int, key: Hashable, value: object) -> None:
        """Keep what follows from the ledger up to a line, unless it has been longer."""
        with self._guard:
            if sequence > self._sequence:
                self._sequence, self._kept = sequence, {}
            elif sequence < self._sequence:
                return
            if len(self._kept) >= MAX_CACHED:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = value

    def recall(self, sequence: int, key: Hashable, program: Program) -> Result | None:
        """Return what the same statement gave, if the ledger still ends with that line."""
        cached: tuple[Program, Result] | None = self.get(sequence, key)
        if cached is None or cached[0] is not program:  # an id may be that of another by now
            return None
        return replace(cached[1], rows=list(cached[1].rows))

    def remember(self, sequence: int, key: Hashable, program: Program, result: Result) -> None:
        """Keep a result, unless it is large, or shows what changes while the history does not."""
        if not program.systems and len(result.rows) + len(program.text) < MAX_CACHED_SIZE:
            self.put(sequence, key, (program, result))


def key_of(program: Program, session: Session) -> Hashable:
    """Return what a result depends on, beside the history."""
    who = served(session.privileges)
    return (
        id(program),
        *who,
        session.privileges.sees,
        str(session.wishes()),
        *session.settings.items(),
    )


def served(privileges: Privileges) -> tuple[Hashable, ...]:
    """Return whose statement it is, on which history and limits."""
    of = privileges
    return of.user, of.history, of.share, of.spend, of.caps
