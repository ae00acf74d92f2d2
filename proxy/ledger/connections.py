"""SQLite connections to one ledger file: one for each use, none carried over a fork.

A connection in WAL mode with ``synchronous=FULL`` syncs the log before COMMIT returns, so a
commit that was seen is on the disk.  A child process never touches, and never closes, what it
inherited: SQLite's locks belong to the parent.

A file that is open stays, though its name is deleted or given to another: what is written then is
lost with the process.  So whoever uses a connection first sees that its files, the database and its
log, are those at their paths, and a transaction sees it again after its commit.
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

import proxy.files as files
from proxy.errors import IntegrityError, OperationalError, StateError
from proxy.ledger.anchor import sync_folder

FULL = 2  # PRAGMA synchronous
UNREADABLE = (
    *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM),
    *(sqlite3.SQLITE_IOERR, sqlite3.SQLITE_AUTH),
)


Identity = tuple[int, int] | None  # device and number of a file


class Connections:
    """A pool: threads take a connection each and give it back."""

    def __init__(self, path: Path, timeout: float) -> None:
        self.path = path
        self.timeout = timeout  # seconds to wait for another process's transaction
        self._open = True
        self._file: Identity = None  # of the file that was opened first
        self._names = [f"{path}{suffix}" for suffix in ("", "-wal", "-shm")]
        self._start()

    def _start(self) -> None:
        self._idle: list[_Connection] = []
        self._all: weakref.WeakSet[_Connection] = weakref.WeakSet()
        self._lock = threading.Lock()  # of the two sets
        self._writer = threading.Lock()  # in one process, threads queue here and not in SQLite

    @contextmanager
    def use(self) -> Iterator[_Connection]:
        """Lend a connection; what SQLite raises comes out as the proxy's errors."""
        with self._lock:
            if not self._open:
                raise StateError("the ledger is closed")
            connection = self._idle.pop() if self._idle else None
        try:
            connection = connection or self._connect()
            self._require(connection)
            yield connection
        except sqlite3.Error as error:
            raise self._fault(error) from error
        finally:
            self._return(connection)

    @contextmanager
    def transaction(self, stands: object = None) -> Iterator[_Connection]:
        """Lend a connection that holds the write lock; commit, or roll back on an exception.

        SQLite's COMMIT always says what came of it, so nobody asks whether it ``stands``.
        """
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
                self._require(connection)  # or it was committed to a file that nobody will read
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

    def _return(self, connection: _Connection | None) -> None:
        if connection is None or connection not in self._all:  # inherited, while in use
            return
        with self._lock:
            if self._open and not connection.in_transaction:
                self._idle.append(connection)
                return
        connection.close()

    def _require(self, connection: _Connection) -> None:
        """Refuse to go on with files that are no longer those at their paths.

        Raises:
            StateError: they were deleted, moved or replaced.
        """
        file, log = _identity(self._names[0]), _identity(self._names[1])
        connection.log = connection.log or log  # that of a new file comes with its first write
        if (file, log) != (self._file, connection.log):
            raise StateError(
                f"{self.path} was deleted, moved or replaced while it was in use; nothing was told",
                hint="put it back, or a backup in its place (privacy-proxy ledger restore), and "
                "connect again",
            )

    def _connect(self) -> _Connection:
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
        self._file = self._file or _identity(self._names[0])
        return connection

    def _fault(self, error: sqlite3.Error) -> OperationalError | IntegrityError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return self._busy()
        if code in UNREADABLE and (why := files.refused(*map(Path, self._names))):
            return why
        if code in (sqlite3.SQLITE_FULL, *UNREADABLE) and (why := files.no_room(self.path.parent)):
            return why
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return IntegrityError(
                f"{self.path}: {error}",
                hint="put a backup in its place: privacy-proxy ledger restore",
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
    """A connection that a weak set can hold, and that knows its log; both stay while it is open."""

    log: Identity = None


def _identity(path: str) -> Identity:
    """Return which file is at a path; None where there is none."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        raise files.denied(Path(path)) from None
    return found.st_dev, found.st_ino


def copy(
    fill: Callable[[sqlite3.Connection], object],
    path: Path,
    like: Path,
    beside: Callable[[], Mapping[str, bytes]] | None = None,
) -> None:
    """Fill a new file that only its owner can read with a copy of a database, while it is in use.

    What ``beside`` then returns, contents by name, becomes a table of the copy.  The owner is that
    of the folder ``like``.

    Raises:
        StateError: the file exists, or cannot be made.
        OperationalError: its disk is full.
    """
    try:
        os.close(files.create(path, like))
    except OSError as error:
        raise StateError(f"{path} cannot be made: {error.strerror}") from error
    try:
        with closing(sqlite3.connect(path)) as target:
            fill(target)
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
    except BaseException as error:
        why = files.no_room(path.parent) if isinstance(error, sqlite3.Error | OSError) else None
        path.unlink(missing_ok=True)
        if why:
            raise why from error
        raise


def take_files(path: Path) -> dict[str, bytes]:
    """Remove from a copy the files that lie beside its rows; return them by name."""
    with closing(sqlite3.connect(path)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'files'").fetchall():
            return {}
        found = dict(connection.execute("SELECT name, content FROM files").fetchall())
        connection.execute("DROP TABLE files")
        connection.commit()
    return found
