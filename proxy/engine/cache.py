"""Results that are given again: those of free statements, while the history is as it was.

The accountant holds them, and drops them all when its history grows.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from proxy.accountant import Accountant
from proxy.engine.answers import Result
from proxy.engine.session import Session
from proxy.sql.program import Program

MAX_CACHED_SIZE = 10_000  # rows and characters: what has more is worked out anew when asked again


def key_of(program: Program, session: Session) -> Hashable:
    """Return what a result depends on, beside the history."""
    return id(program), session.user, str(session.wishes()), *session.settings.items()


def recall(accountant: Accountant, key: Hashable, program: Program) -> Result | None:
    """Return what the same statement gave, if the history, which is up to date, is as it was."""
    cached: tuple[Program, Result] | None = accountant.cache.get(key)
    if cached is None or cached[0] is not program:  # an id may be that of another by now
        return None
    return replace(cached[1], rows=list(cached[1].rows))


def remember(accountant: Accountant, key: Hashable, program: Program, result: Result) -> None:
    """Keep a result, unless it is large, or shows what changes while the history does not."""
    if not program.systems and len(result.rows) + len(program.text) < MAX_CACHED_SIZE:
        accountant.remember(key, (program, result))
