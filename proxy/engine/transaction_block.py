"""The transaction block of a session, as PostgreSQL has it: BEGIN, SAVEPOINT, ROLLBACK, errors.

It is over the settings and the views, since nothing else can be taken back: what was released in it
has been seen, and stays charged.  Without BEGIN each statement is a transaction of its own.
Invariant: the embedded connection and the server, whose mirror has PostgreSQL's own, say the same.
"""

from __future__ import annotations

import re

from proxy.errors import (
    ActiveTransactionError,
    FailedTransactionError,
    NoTransactionError,
    UndefinedSavepointError,
)
from proxy.settings import Settings
from proxy.sql.parse.views import Views

WORD = r"(?:\s+(?:WORK|TRANSACTION))?"
POINT = re.compile(
    rf"(?:SAVEPOINT|RELEASE(?:\s+SAVEPOINT)?|(?:ROLLBACK|ABORT){WORD}\s+TO(?:\s+SAVEPOINT)?)"
    r'\s+("(?:[^"]|"")+"|[^\W\d][\w$]*)',
    re.IGNORECASE,
)
CHAIN = re.compile(r"\bAND\s+CHAIN\b", re.IGNORECASE)
ENDS = ("commit", "rollback")
KINDS = ("begin", *ENDS, "savepoint", "release")
BEGUN = "there is already a transaction in progress"
NONE = "there is no transaction in progress"
LOCAL = "SET LOCAL can only be used in transaction blocks"

Texts = dict[str, str]
Point = tuple[str, Texts, Views, dict[str, str | None]]


class TransactionBlock:
    """The transaction of one session: the settings that it, and its savepoints, began with."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._points: list[Point] = []  # BEGIN, savepoints
        self._local: dict[str, str | None] = {}  # SET LOCAL: what comes back at the end
        self.failed = False

    @property
    def open(self) -> bool:
        """Whether BEGIN was not yet followed by COMMIT or ROLLBACK."""
        return bool(self._points)

    def fail(self) -> None:
        """Note an error: every command is refused until the block ends."""
        self.failed = self.open

    def check(self, kind: str | None) -> None:
        """Raise in a failed transaction, unless a command of that kind ends it."""
        if self.failed and kind not in (*ENDS, "empty"):
            raise FailedTransactionError(
                "current transaction is aborted, commands ignored until end of transaction block"
            )

    def set(self, name: str, value: str | None, local: bool) -> tuple[str, ...]:
        """Set or, with None, reset a setting, until the end where local; return the notices."""
        before = self._settings.texts.get(name)
        self._put(name, value)
        if not local:
            self._local.pop(name, None)
            return ()
        self._local.setdefault(name, before)
        if self.open:
            return ()
        self._forget_local()
        return (LOCAL,)

    def reset_all(self) -> None:
        """Reset every setting to its default."""
        self._settings.reset()
        self._local.clear()

    def discard(self, text: str) -> str:
        """DISCARD: of all that it may discard a session has the settings; return the tag."""
        if re.search(r"\bALL\b", text, re.IGNORECASE):
            if self.open:
                raise ActiveTransactionError("DISCARD ALL cannot run inside a transaction block")
            self.reset_all()
        return text.upper()

    def command(self, kind: str, text: str) -> tuple[str, tuple[str, ...]]:
        """Run a command of ``KINDS``; return its tag and the notices."""
        if kind == "begin":
            tag = "BEGIN" if text[:5].upper() == "BEGIN" else "START TRANSACTION"
            if self.open:
                return tag, (BEGUN,)
            self._mark("")
            return tag, ()
        if match := POINT.match(text):
            return self._point(kind, match[1]), ()
        return self._end(kind, CHAIN.search(text) is not None)

    def _point(self, kind: str, written: str) -> str:
        """SAVEPOINT, RELEASE, ROLLBACK TO."""
        name = written[1:-1].replace('""', '"') if written[0] == '"' else written.lower()
        what = {"rollback": "ROLLBACK TO SAVEPOINT", "release": "RELEASE SAVEPOINT"}
        if not self.open:
            what_for = what.get(kind, "SAVEPOINT")
            raise NoTransactionError(f"{what_for} can only be used in transaction blocks")
        if kind == "savepoint":
            self._mark(name)
            return "SAVEPOINT"
        at = max((i for i, point in enumerate(self._points) if i and point[0] == name), default=0)
        if not at:
            raise UndefinedSavepointError(f'savepoint "{name}" does not exist')
        if kind == "rollback":
            self._restore(at)
            at += 1
        del self._points[at:]
        return kind.upper()

    def _end(self, kind: str, chain: bool) -> tuple[str, tuple[str, ...]]:
        """COMMIT, ROLLBACK."""
        if not self.open:
            if chain:
                what = f"{kind.upper()} AND CHAIN"
                raise NoTransactionError(f"{what} can only be used in transaction blocks")
            return kind.upper(), (NONE,)
        if kind == "rollback" or self.failed:
            kind = "rollback"
            self._restore(0)
        self._forget_local()
        self._points.clear()
        if chain:
            self._mark("")
        return kind.upper(), ()

    def _mark(self, name: str) -> None:
        settings = self._settings
        self._points.append((name, dict(settings.texts), settings.views, dict(self._local)))

    def _restore(self, at: int) -> None:
        _, texts, views, local = self._points[at]
        self._settings.restore(texts, views)
        self._local = dict(local)
        self.failed = False

    def _forget_local(self) -> None:
        for name, before in self._local.items():
            self._put(name, before)
        self._local.clear()

    def _put(self, name: str, value: str | None) -> None:
        if value is None:
            self._settings.reset(name)
        else:
            self._settings.set(name, value)
