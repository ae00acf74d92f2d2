"""SQLite connections to one ledger file: one for each use, none carried over a fork.

A connection in WAL mode with ``synchronous=FULL`` syncs the log before COMMIT returns, so a
commit that was seen is on the disk.  A child process never touches, and never closes, what it
inherited: SQLite's locks belong to the parent.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from proxy.errors import IntegrityError, OperationalError, StateError
from proxy.ledger.anchor import sync_folder

FULL = 2  # PRAGMA synchronous


class Connections:
    """A pool: threads take a connection each and give it back."""

    def __init__(self, path: Path, timeout: float) -> None:
        self.path = path
        self.timeout = timeout  # seconds to wait for another process's transaction
        self._open = True
        self._start()

    def _start(self) -> None:
        self._idle: list[sqlite3.Connection] = []
        self._all: weakref.WeakSet[_Connection] = weakref.WeakSet()
        self._lock = threading.Lock()  # of the two sets
        self._writer = threading.Lock()  # in one process, threads queue here and not in SQLite

    @contextmanager
    def use(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection; what SQLite raises comes out as the proxy's errors."""
        with self._lock:
            if not self._open:
                raise StateError("the ledger is closed")
            connection = self._idle.pop() if self._idle else None
        try:
            connection = connection or self._connect()
            yield connection
        except sqlite3.Error as error:
            raise self._fault(error) from error
        finally:
            self._return(connection)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection that holds the write lock; commit, or roll back on an exception."""
        if not self._writer.acquire(timeout=self.timeout):
            raise self._busy()
        writer, process = self._writer, os.getpid()
        try:
            with self.use() as connection:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    if process == os.getpid() and connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
        finally:
            writer.release()

    def close(self) -> None:
        """Close what is idle now, and what is in use when it comes back."""
        with self._lock:
            self._open = False
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def forked(self) -> None:
        """Begin anew in a child process."""
        for connection in self._all:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))  # never closed here
        self._start()

    def _return(self, connection: sqlite3.Connection | None) -> None:
        if connection is None or connection not in self._all:  # inherited, while in use
            return
        with self._lock:
            if self._open and not connection.in_transaction:
                self._idle.append(connection)
                return
        connection.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(str(self.path.absolute()))}?mode=rw",  # never makes a file
            uri=True,
            timeout=self.timeout,
            isolation_level=None,
            check_same_thread=False,
            factory=_Connection,
        )
        self._all.add(connection)
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        connection.execute(f"PRAGMA synchronous = {FULL}")
        connection.execute("PRAGMA fullfsync = ON")  # means something on macOS only
        connection.execute("PRAGMA checkpoint_fullfsync = ON")
        connection.execute("PRAGMA foreign_keys = ON")
        if (mode, connection.execute("PRAGMA synchronous").fetchone()[0]) != ("wal", FULL):
            raise StateError(f"{self.path}: the file system does not allow a durable ledger")
        return connection

    def _fault(self, error: sqlite3.Error) -> OperationalError | IntegrityError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return self._busy()
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return IntegrityError(
                f"{self.path}: {error}", hint="Restore it: privacy-proxy ledger restore."
            )
        return OperationalError(
            f"{self.path}: {error}", hint="Nothing was charged and nothing was released."
        )

    def _busy(self) -> OperationalError:
        return OperationalError(
            f"the ledger was locked by other statements for {self.timeout:g} s",
            hint="Nothing was charged: try again.",
        )


class _Connection(sqlite3.Connection):
    """A connection that a weak set can hold."""


def copy(
    source: sqlite3.Connection,
    path: Path,
    beside: Callable[[], Mapping[str, bytes]] | None = None,
) -> None:
    """Copy a database, while it is in use, to a new file that only its owner can read.

    What ``beside`` then returns, contents by name, becomes a table of the copy.

    Raises:
        StateError: the file exists, or cannot be made.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise StateError(f"{path} cannot be made: {error.strerror}") from error
    try:
        with closing(sqlite3.connect(path)) as target:
            source.backup(target)
            if beside is not None:
                target.execute("DROP TABLE IF EXISTS files")  # where it was put in place by hand
                target.execute("CREATE TABLE files (name TEXT PRIMARY KEY, content BLOB) STRICT")
                target.executemany("INSERT INTO files VALUES (?, ?)", beside().items())
                target.commit()
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
        sync_folder(path.parent)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def take_files(path: Path) -> dict[str, bytes]:
    """Remove from a copy the files that lie beside its rows; return them by name."""
    with closing(sqlite3.connect(path)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'files'").fetchall():
            return {}
        files = dict(connection.execute("SELECT name, content FROM files").fetchall())
        connection.execute("DROP TABLE files")
        connection.commit()
    return files
