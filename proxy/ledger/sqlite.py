"""The ledger in one SQLite file, for any number of threads and processes of one machine.

BEGIN IMMEDIATE is the lock.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any, cast

import proxy.files as files
from proxy.errors import StateError
from proxy.ledger.anchor import Anchor, sync_folder
from proxy.ledger.connections import Connections, copy
from proxy.ledger.notes import NAME, Notes
from proxy.ledger.schema import migrate, version
from proxy.ledger.stored import TIMEOUT, Beginning, Clock, StoredLedger, now
from proxy.ledger.transaction import Connection
from proxy.ledger.verify import verify
from proxy.ledger.witness import Witness


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
    if left and path.with_name(NAME).exists():
        return StateError(
            f"the ledger of {path.parent} was in PostgreSQL, which the policy does not name",
            hint="put `ledger` back into the policy; to move it into a file, make a copy before "
            "(privacy-proxy ledger backup POLICY COPY), stop every proxy, and restore the copy "
            "(privacy-proxy ledger restore POLICY COPY)",
        )
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


class SQLiteLedger(StoredLedger):
    """A ``Ledger``; made by ``create`` or ``open``."""

    def __init__(self, path: Path, anchor: Path | Anchor | None, timeout: float, clock: Clock):
        notes = Notes(path.with_name(path.name + ".notes"))
        self._files = Connections(path, timeout)
        super().__init__(str(path), self._files, notes, anchor, clock)
        self.path = path

    @classmethod
    def create(
        cls,
        path: Path,
        *,
        anchor: Path | Anchor | None = None,
        timeout: float = TIMEOUT,
        clock: Clock = now,
        **begin: Any,
    ) -> SQLiteLedger:
        """Make a new ledger: a full budget.  ``begin`` are the fields of its ``Beginning``.

        Raises:
            StateError: there is a ledger already, or there was one: its anchor is still there.
        """
        cls.require_none(path, anchor)
        draft = path.with_name(f"{path.name}.{token_hex(4)}")
        os.close(files.create(draft))
        first = Beginning(**begin)
        try:
            ledger = cls(draft, anchor, timeout, clock)
            with ledger._files.transaction() as connection:
                mark = ledger._begin(connection, first)
            ledger.close()
            ledger._witness.advance(mark)
            os.link(draft, path)  # fails where another was faster
        except FileExistsError:
            raise StateError(f"{path} exists already") from None
        finally:
            draft.unlink()
        sync_folder(path.parent)
        return cls.open(path, dataset=first.dataset, anchor=anchor, timeout=timeout, clock=clock)

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

    def backup(self, path: Path, beside: Mapping[str, bytes] | None = None) -> None:
        """Copy the ledger, while it is in use, with its free statements, to a new file.

        ``beside`` (by name) goes into the same file.

        Raises:
            StateError: the file exists.
        """

        def contents() -> dict[str, bytes]:
            """Return what is read after the rows that chain it, so that none of it is missing."""
            return self._notes.contents() | dict(beside or {})

        with self._files.use() as source:
            copy(source.backup, path, self.path.parent, contents)

    def _version(self, connection: Connection) -> int:
        return version(cast(sqlite3.Connection, connection))

    def _migrate(self, connection: Connection, time: int) -> int:
        return migrate(cast(sqlite3.Connection, connection), time)

    def _problems(self) -> list[str]:
        with self._files.use() as connection:
            return verified(connection, self._notes.folder)


def verified(connection: sqlite3.Connection, folder: Path | None) -> list[str]:
    """Return the problems of a ledger's file, and of its free statements, if a folder is given."""
    try:
        connection.execute("BEGIN")
        checked = connection.execute("PRAGMA quick_check")
        problems = [f"file: {row[0]}" for row in checked if row[0] != "ok"]
        return problems + verify(connection, folder)
    except sqlite3.DatabaseError as error:
        return [f"file: {error}"]
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
