"""A ledger in a database: what holds in whichever one it lies.

The order of a commit is: rows, audit line, COMMIT (durable), anchor (synced), and only then the
caller goes on.  The write lock ends with the connection that has it, so no crash leaves it behind.
"""

from __future__ import annotations

import os
import time
import uuid
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from proxy.errors import IntegrityError, StateError
from proxy.ledger import AuditLine, Closing, Measurement
from proxy.ledger.anchor import Anchor, Mark
from proxy.ledger.chain import LOOK, amounts, parsed
from proxy.ledger.notes import Note, Notes, cut, paths, read
from proxy.ledger.schema import VERSIONS
from proxy.ledger.transaction import (
    EPOCH,
    MICROSECOND,
    Connection,
    SQLReader,
    SQLReads,
    SQLTransaction,
)
from proxy.ledger.witness import Witness, synced

TIMEOUT = 30.0  # seconds to wait for the lock
PAGE = 1000  # audit lines read at once

Clock = Callable[[], int]  # microseconds since 1970, UTC
Stands = Callable[[Connection], bool]  # whether a transaction is in the ledger


def now() -> int:
    """Return the time in microseconds since 1970, UTC."""
    return time.time_ns() // 1000


class Pool(Protocol):
    """Connections to one ledger; what the database raises comes out as the proxy's errors."""

    def use(self) -> AbstractContextManager[Connection]:
        """Lend a connection."""

    def transaction(self, stands: Stands) -> AbstractContextManager[Connection]:
        """Lend a connection that holds the write lock; commit, or roll back on an exception.

        ``stands`` is asked where a COMMIT had no answer, with a connection that holds the lock.
        """

    def close(self) -> None:
        """Close every connection."""

    def forked(self) -> None:
        """Begin anew in a child process."""


class Beginning(Struct, frozen=True):
    """What the first lines of a new ledger say."""

    dataset: str
    protection: Mapping[str, Any]
    digest: str
    fingerprint: str = ""
    layout: Mapping[str, Any] | None = None
    coding: str = ""
    closing: Closing | None = None
    id: str = ""
    user: str = ""
    detail: Mapping[str, Any] | None = None


class StoredLedger(SQLReads):
    """A ``Ledger``, over the connections of a database."""

    def __init__(
        self,
        place: str,
        connections: Pool,
        notes: Notes,
        anchor: Path | Anchor | None,
        clock: Clock,
    ) -> None:
        self.place = place  # in words
        self.id = self.dataset = ""
        self._witness = Witness(anchor)
        self._clock = clock
        self._added = (0, 0)  # a sequence number, and the sum of the costs up to it
        self._connections = connections
        self._notes = notes
        self._end = weakref.finalize(self, _close, connections, notes)
        _ledgers.add(self)

    @abstractmethod
    def backup(self, path: Path, beside: Mapping[str, bytes] | None = None) -> None:
        """Copy the ledger, while it is in use, with its free statements, to a new file."""

    @abstractmethod
    def _version(self, connection: Connection) -> int:
        """Return the version of the schema, 0 where there is no ledger."""

    @abstractmethod
    def _migrate(self, connection: Connection, time: int) -> int:
        """Bring the schema to this version, in a transaction; return the old one."""

    @abstractmethod
    def _problems(self) -> list[str]:
        """Return what does not agree in the database, and in the files of free statements."""

    @contextmanager
    def transaction(self) -> Iterator[SQLTransaction]:
        """Hold the write lock from entry to commit; what it wrote is durable at the exit.

        Raises:
            OperationalError: the lock was not free in time, or the disk failed: nothing happened;
                or nobody can say what happened, and no answer may be let out.
            IntegrityError: the ledger is behind its anchor.
        """
        notes = self._notes.head()
        syncing = None

        def stands(connection: Connection) -> bool:
            """Whether the last line is in the ledger."""
            lines = SQLReader(connection).lines(mark.sequence - 1, 1)
            return [(line.sequence, hash.hex()) for line, hash in lines] == [
                (mark.sequence, mark.hash)
            ]

        try:
            with self._connections.transaction(stands) as connection:
                transaction = SQLTransaction(connection, self.id, self._clock, notes)
                head = transaction.begun
                held = self._witness.check(self._witness.read(), self.id, transaction, head)
                yield transaction
                mark = transaction.finish()
                if transaction.wrote:
                    total = self._total(transaction, head[0]) + transaction.cost
                    mark = replace(mark, total=total)
                    syncing = self._witness.prepare(mark, held)
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
        """Write a free statement, or its beginning, to this process's audit file, without the
        write lock.
        """
        seen = self._witness.read()
        self._witness.check(seen, self.id, self, self.head())  # what is free follows from these
        self._notes.write(Note(self._clock(), kind, user, cut(statement), detail or {}))

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

    def verify(self) -> list[str]:
        """Re-hash everything; return what does not agree, in words."""
        seen = self._witness.read()
        problems = self._problems()
        try:
            self._witness.check(seen, self.id, self, self.head())
        except IntegrityError as error:
            problems.append(error.message)
        return problems

    def close(self) -> None:
        """Sync the free statements, and close every file."""
        self._end()

    def _begin(self, connection: Connection, begin: Beginning) -> Mark:
        """Write the first lines of a new ledger, in a transaction."""
        moment = self._clock()
        self._migrate(connection, moment)
        self.id = begin.id or uuid.uuid4().hex
        identity = (self.id, begin.dataset, moment)
        connection.execute("INSERT INTO ledger (id, dataset, created) VALUES (?, ?, ?)", identity)
        transaction = SQLTransaction(connection, self.id, self._clock, None)
        transaction.apply_policy(begin.digest, begin.protection)
        transaction.new_snapshot(begin.fingerprint, {}, begin.layout, begin.coding, begin.closing)
        detail = {"dataset": begin.dataset} | dict(begin.detail or {})
        transaction.audit("init", begin.user, detail=detail)
        return transaction.finish()

    def _attach(self, dataset: str) -> None:
        """Take up a ledger that is there.

        Raises:
            StateError: it is none, or of another dataset.
            IntegrityError: it is behind its anchor, or the chain is broken at its head.
        """
        found = self._identify(dataset)
        seen = self._witness.read()  # before the ledger, which may grow in between
        with self._connections.use() as connection:
            head = SQLReader(connection).checked_head()
            self._witness.check(seen, self.id, SQLReader(connection), head)
        if found < len(VERSIONS):
            self._upgrade()
        self._witness.advance(self._mark())

    def _identify(self, dataset: str) -> int:
        """Read whose ledger it is; return its version."""
        with self._connections.use() as connection:
            found = self._version(connection)
        if not found:
            raise StateError(
                f"{self.place} is not a ledger",
                hint="if it was one, put a backup in its place: privacy-proxy ledger restore "
                "POLICY BACKUP",
            )
        self.id, self.dataset, _ = self.identity()
        if self.dataset != dataset:
            raise StateError(
                f"{self.place} is the ledger of {self.dataset!r}, not of {dataset!r}",
                hint="Name another state folder: --state DIR.",
            )
        return found

    def _upgrade(self) -> None:
        def stands(connection: Connection) -> bool:
            """Whether the schema is this version's."""
            return self._version(connection) == len(VERSIONS)

        with self._connections.transaction(stands) as connection:
            old = self._migrate(connection, self._clock())
            if old < len(VERSIONS):  # else another process was faster
                transaction = SQLTransaction(connection, self.id, self._clock)
                transaction.audit("migrate", "", detail={"from": old, "to": len(VERSIONS)})

    def _mark(self) -> Mark:
        sequence, digest, spent = self.head()
        known = amounts(spent), False, self.policy(), self._total(self, sequence)
        return Mark(self.id, sequence, digest.hex(), *known)

    def _total(self, reads: SQLReads, sequence: int) -> int:
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


def _close(connections: Pool, notes: Notes) -> None:
    with suppress(OSError):
        notes.close()
    connections.close()


_ledgers: weakref.WeakSet[StoredLedger] = weakref.WeakSet()


def _forked() -> None:
    for ledger in list(_ledgers):
        ledger._connections.forked()
        ledger._notes.forked()
        ledger._witness.forked()


os.register_at_fork(after_in_child=_forked)
