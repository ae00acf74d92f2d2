"""The ledger in one SQLite file, for any number of threads and processes of one machine.

BEGIN IMMEDIATE is the lock: it ends with its process, so no crash leaves it behind.  The order of
a commit is: rows, audit line, COMMIT (synced), anchor (synced), and only then the caller goes on.
"""

from __future__ import annotations

import os
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from secrets import token_hex
from typing import Any

import proxy.files as files
from proxy.errors import IntegrityError, StateError
from proxy.ledger import AuditLine, Measurement
from proxy.ledger.anchor import Anchor, Mark, sync_folder
from proxy.ledger.chain import LOOK, amounts, parsed
from proxy.ledger.connections import Connections, copy
from proxy.ledger.notes import Note, Notes, paths, read
from proxy.ledger.schema import VERSIONS, migrate, version
from proxy.ledger.transaction import (
    EPOCH,
    MICROSECOND,
    SQLiteReader,
    SQLiteReads,
    SQLiteTransaction,
)
from proxy.ledger.verify import verify
from proxy.ledger.witness import Witness, synced

TIMEOUT = 30.0  # seconds to wait for the lock
PAGE = 1000  # audit lines read at once

Clock = Callable[[], int]  # microseconds since 1970, UTC


def remains(path: Path, anchor: Path | Anchor | None) -> list[str]:
    """Return the names of what a ledger leaves when its own file is lost, in its folder."""
    old = Witness(anchor).read()
    names = ["anchor"] if old and old[0].sequence > 1 else []  # an init that failed leaves 1
    for pattern in (f"{path.name}-wal", f"{path.name}.notes", f"{path.name}.replaced-*", "cube-*"):
        names += sorted(file.name for file in path.parent.glob(pattern))
    return names


def _lost(path: Path, left: list[str]) -> StateError:
    """Return the error for a ledger that is not there: `init` is no way to get one back."""
    back = "put a backup in its place: privacy-proxy ledger restore POLICY BACKUP"
    if left:
        return StateError(
            f"the ledger {path} is gone, and with it what was spent; of it there is still "
            f"{', '.join(left[:3])}{', ...' if left[3:] else ''}",
            hint=f"bring the file back, or {back}",
        )
    others = sorted({file.parent.name for file in path.parent.parent.glob(f"*/{path.name}")})
    beside = f" Beside it are the states of {', '.join(others)}: was it renamed?" if others else ""
    return StateError(
        f"there is no ledger {path}",
        hint=f"if there was one, mount its disk, name its folder (--state), or {back}.{beside} "
        "Only a dataset that never had a ledger begins with privacy-proxy init POLICY",
    )


def now() -> int:
    """Return the time in microseconds since 1970, UTC."""
    return time.time_ns() // 1000


class SQLiteLedger(SQLiteReads):
    """A ``Ledger``; made by ``create`` or ``open``."""

    def __init__(self, path: Path, anchor: Path | Anchor | None, timeout: float, clock: Clock):
        self.path = path
        self.id = self.dataset = ""
        self._witness = Witness(anchor)
        self._clock = clock
        self._added = (0, 0)  # a sequence number, and the sum of the costs up to it
        self._connections = Connections(path, timeout)
        self._notes = Notes(path.with_name(path.name + ".notes"))
        self._end = weakref.finalize(self, _close, self._connections, self._notes)
        _ledgers.add(self)

    @classmethod
    def create(
        cls,
        path: Path,
        *,
        dataset: str,
        protection: Mapping[str, Any],
        digest: str,
        anchor: Path | Anchor | None = None,
        fingerprint: str = "",
        layout: Mapping[str, Any] | None = None,
        coding: str = "",
        id: str = "",
        user: str = "",
        detail: Mapping[str, Any] | None = None,
        timeout: float = TIMEOUT,
        clock: Clock = now,
    ) -> SQLiteLedger:
        """Make a new ledger: a full budget.  ``detail`` goes into its first audit line.

        Raises:
            StateError: there is a ledger already, or there was one: its anchor is still there.
        """
        cls.require_none(path, anchor)
        draft = path.with_name(f"{path.name}.{token_hex(4)}")
        os.close(files.create(draft))
        try:
            ledger = cls(draft, anchor, timeout, clock)
            first: tuple[Any, ...] = (fingerprint, {}, None, layout, coding)
            mark = ledger._initialise(id, dataset, protection, digest, first, user, detail)
            ledger.close()
            ledger._witness.advance(mark)
            os.link(draft, path)  # fails where another was faster
        except FileExistsError:
            raise StateError(f"{path} exists already") from None
        finally:
            draft.unlink()
        sync_folder(path.parent)
        return cls.open(path, dataset=dataset, anchor=anchor, timeout=timeout, clock=clock)

    @staticmethod
    def require_none(path: Path, anchor: Path | Anchor | None) -> None:
        """Refuse to begin a ledger where there is one, or was one.

        Raises:
            StateError: there is a ledger already, or something that it has left.
        """
        left = remains(path, anchor)
        if path.exists():
            raise StateError(f"{path} exists already")
        if left:
            raise _lost(path, left)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        dataset: str,
        anchor: Path | Anchor | None = None,
        timeout: float = TIMEOUT,
        clock: Clock = now,
    ) -> SQLiteLedger:
        """Open a ledger, bringing it to this version's schema.

        Raises:
            StateError: it is missing, of another dataset, or of a newer proxy.
            IntegrityError: it is behind its anchor, or the chain is broken at its head.
        """
        if not path.exists():
            raise _lost(path, remains(path, anchor))
        ledger = cls(path, anchor, timeout, clock)
        try:
            ledger._attach(dataset)
        except BaseException:
            ledger.close()
            raise
        return ledger

    @contextmanager
    def transaction(self) -> Iterator[SQLiteTransaction]:
        """Hold the write lock from entry to commit; what it wrote is durable at the exit.

        Raises:
            OperationalError: the lock was not free in time, or the disk failed: nothing happened.
            IntegrityError: the ledger is behind its anchor.
        """
        notes = self._notes.head()
        syncing = None
        try:
            with self._connections.transaction() as connection:
                transaction = SQLiteTransaction(connection, self.id, self._clock, notes)
                head = transaction.begun
                self._witness.check(self._witness.read(), self.id, transaction, head)
                yield transaction
                mark = transaction.finish()
                if transaction.wrote:
                    total = self._total(transaction, head[0]) + transaction.cost
                    mark = replace(mark, total=total)
                    syncing = self._witness.prepare(mark, head[0])
        finally:
            synced(syncing)
        if not transaction.wrote:
            self._witness.advance(mark)  # what it read may be let out
            return
        self._witness.confirm(mark)
        if notes:
            self._notes.chained(notes)

    def measurements(self, after: int = 0) -> list[Measurement]:
        """Return the rows that were appended or replaced after a sequence number, by id.

        They may be let out: the anchor has seen them, though their writer may not be so far.
        """
        rows = super().measurements(after)
        if rows and not self._witness.knows(max(row.sequence for row in rows)):
            self._witness.advance(self._mark())
        return rows

    def note(
        self, kind: str, user: str, statement: str = "", detail: Mapping[str, Any] | None = None
    ) -> None:
        """Write a free statement to this process's audit file, without the write lock."""
        seen = self._witness.read()
        self._witness.check(seen, self.id, self, self.head())  # what is free follows from these
        self._notes.write(Note(self._clock(), kind, user, statement, detail or {}))

    def audit(self, after: int = 0) -> Iterator[AuditLine]:
        """Yield the chained lines after a sequence number."""
        while page := self.lines(after, PAGE):
            for line, _ in page:
                yield AuditLine(
                    line.sequence, _moment(line.time), line.user, line.kind, line.statement,
                    line.cost, line.answers, parsed(line.detail),
                )  # fmt: skip
            after = page[-1][0].sequence

    def notes(self) -> Iterator[AuditLine]:
        """Yield the free statements of every process, file by file."""
        for path in paths(self._notes.folder):
            for item in read(path):
                if item is None:
                    raise IntegrityError(f"{path} was changed, or is damaged", hint=LOOK)
                note = item[0]
                yield AuditLine(
                    0, _moment(note.time), note.user, note.kind, note.statement,
                    detail=note.detail,
                )  # fmt: skip

    def backup(self, path: Path, beside: Mapping[str, bytes] | None = None) -> None:
        """Copy the ledger, while it is in use, with its free statements, to a new file.

        ``beside`` (by name) goes into the same file.

        Raises:
            StateError: the file exists.
        """

        def contents() -> dict[str, bytes]:
            """Return what is read after the rows that chain it, so that none of it is missing."""
            return self._notes.contents() | dict(beside or {})

        with self._connections.use() as source:
            copy(source, path, self.path.parent, contents)

    def verify(self) -> list[str]:
        """Re-hash everything; return what does not agree, in words."""
        seen = self._witness.read()
        with self._connections.use() as connection:
            problems = verify(connection, self._notes.folder)
        try:
            self._witness.check(seen, self.id, self, self.head())
        except IntegrityError as error:
            problems.append(error.message)
        return problems

    def close(self) -> None:
        """Sync the free statements, and close every file."""
        self._end()

    def _initialise(
        self,
        id: str,
        dataset: str,
        protection: Mapping[str, Any],
        digest: str,
        first: tuple[Any, ...],
        user: str,
        detail: Mapping[str, Any] | None,
    ) -> Mark:
        with self._connections.transaction() as connection:
            moment = self._clock()
            migrate(connection, moment)
            self.id = id or uuid.uuid4().hex
            identity = (self.id, dataset, moment)
            connection.execute("INSERT INTO ledger VALUES (?, ?, ?)", identity)
            transaction = SQLiteTransaction(connection, self.id, self._clock, None)
            transaction.apply_policy(digest, protection)
            transaction.new_snapshot(*first)
            detail = {"dataset": dataset} | dict(detail or {})
            transaction.audit("init", user, detail=detail)
            return transaction.finish()

    def _attach(self, dataset: str) -> None:
        with self._connections.use() as connection:
            found = version(connection)
        if not found:
            raise StateError(f"{self.path} is not a ledger")
        self.id, self.dataset, _ = self.identity()
        if self.dataset != dataset:
            raise StateError(
                f"{self.path} is the ledger of {self.dataset!r}, not of {dataset!r}",
                hint="Name another state folder: --state DIR.",
            )
        seen = self._witness.read()  # before the ledger, which may grow in between
        with self._connections.use() as connection:
            head = SQLiteReader(connection).checked_head()
            self._witness.check(seen, self.id, SQLiteReader(connection), head)
        if found < len(VERSIONS):
            self._migrate()
        self._witness.advance(self._mark())

    def _migrate(self) -> None:
        with self._connections.transaction() as connection:
            old = migrate(connection, self._clock())
            if old < len(VERSIONS):  # else another process was faster
                transaction = SQLiteTransaction(connection, self.id, self._clock)
                transaction.audit("migrate", "", detail={"from": old, "to": len(VERSIONS)})

    def _mark(self) -> Mark:
        sequence, digest, spent = self.head()
        known = amounts(spent), False, self.policy(), self._total(self, sequence)
        return Mark(self.id, sequence, digest.hex(), *known)

    def _total(self, reads: SQLiteReads, sequence: int) -> int:
        """Return the sum of the costs up to a committed line; what was added up is remembered."""
        last, before = self._added
        if last > sequence:
            last, before = 0, 0
        self._added = sequence, before + reads.total(last, sequence)
        return self._added[1]

    def _rows(self, sql: str, *values: object) -> list[Any]:
        with self._connections.use() as connection:
            return connection.execute(sql, values).fetchall()


def _moment(time: int) -> datetime:
    try:
        return EPOCH + time * MICROSECOND
    except (OverflowError, TypeError):
        raise IntegrityError("a time in the audit log is damaged", hint=LOOK) from None


def _close(connections: Connections, notes: Notes) -> None:
    with suppress(OSError):
        notes.close()
    connections.close()


_ledgers: weakref.WeakSet[SQLiteLedger] = weakref.WeakSet()


def _forked() -> None:
    for ledger in list(_ledgers):
        ledger._connections.forked()
        ledger._notes.forked()
        ledger._witness.forked()


os.register_at_fork(after_in_child=_forked)
