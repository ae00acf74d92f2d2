"""Connections to one ledger in PostgreSQL: none is carried over a fork, and a lost one is replaced.

The write lock is the row of table ``ledger``, locked by the first statement of a transaction that
reads committed rows: what follows sees all that was committed before, and nothing else changes.
Should the lock ever fail, two transactions after one line still have one number for theirs, and the
primary key of the audit log lets one of them in.

A COMMIT without an answer is looked up: whoever gets the lock next knows that the transaction has
ended, and sees whether its line is there.  Where that cannot be found out, no answer is let out.
"""

from __future__ import annotations

import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

import psycopg
from psycopg.adapt import Buffer, Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Format, TransactionStatus
from psycopg.types.string import StrDumperUnknown

from proxy.errors import Error, IntegrityError, OperationalError, StateError
from proxy.ledger.stored import Stands

RECONNECT = 10.0  # seconds in which a server that was there may come back
PAUSE = 0.1  # seconds between two looks
IDLE = "60s"  # for which a proxy that is gone, its machine with it, may keep the lock
OPTIONS = {  # of a connection, where the URL says nothing else
    "application_name": "privacy-proxy",
    "connect_timeout": "10",
    "target_session_attrs": "read-write",  # of several hosts, and never one that follows
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
NOTHING = "Nothing was charged and nothing was released"
TABLE = re.compile(
    r"\b(FROM|INTO|UPDATE) "
    r"(versions|ledger|audit|policies|snapshots|domains|measurements)\b(?! ON| OF)"
)
BEGIN = """
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL lock_timeout = {timeout};
SET LOCAL statement_timeout = 0;
SET LOCAL idle_in_transaction_session_timeout = '{idle}';
SELECT pg_catalog.set_config('synchronous_commit', 'on', true)
    WHERE pg_catalog.current_setting('synchronous_commit') <> 'remote_apply';
{lock}
"""
STATE = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
LOST = ("08", "57P")  # SQLSTATEs of a connection that ended, and of a server that ends

_inherited: list[object] = []  # connections of a parent, which are never closed here


class Sessions:
    """A pool: threads take a session each and give it back."""

    def __init__(self, url: str, schema: str, place: str, timeout: float) -> None:
        self.schema = schema
        self.place = place
        self.timeout = timeout  # seconds to wait for another proxy's transaction
        self.conninfo = conninfo(url)
        self.reached = False  # whether the server was ever there
        self._open = True
        self._start()

    def _start(self) -> None:
        self._idle: list[Session] = []
        self._all: weakref.WeakSet[Session] = weakref.WeakSet()
        self._lock = threading.Lock()  # of the two sets
        self._writer = threading.Lock()  # in one process, threads queue here

    @contextmanager
    def use(self) -> Iterator[Session]:
        """Lend a session; what PostgreSQL raises comes out as the proxy's errors."""
        with self._lock:
            if not self._open:
                raise StateError("the ledger is closed")
            session = self._idle.pop() if self._idle else Session(self)
            self._all.add(session)
        try:
            yield session
        except psycopg.Error as error:
            raise self._fault(error, session) from error
        finally:
            self._return(session)

    @contextmanager
    def state(self) -> Iterator[Session]:
        """Lend a session that shows one state, however long it takes."""
        with self.use() as session:
            session.begin(STATE)
            try:
                yield session
            finally:
                session.rollback()

    @contextmanager
    def transaction(self, stands: Stands, lock: str = "") -> Iterator[Session]:
        """Lend a session that holds the write lock; commit, or roll back on an exception.

        ``lock`` is the SQL that takes it where there is no ledger yet.
        """
        if not self._writer.acquire(timeout=self.timeout):
            raise self._busy()
        writer, process = self._writer, os.getpid()
        try:
            with self.use() as session:
                session.begin(self._beginning(lock))
                try:
                    yield session
                except BaseException:
                    if process == os.getpid():
                        session.rollback()
                    raise
                self._commit(session, stands, lock)
        finally:
            writer.release()

    def close(self) -> None:
        """Close what is idle now, and what is in use when it comes back."""
        with self._lock:
            self._open = False
            idle, self._idle = self._idle, []
        for session in idle:
            session.close()

    def forked(self) -> None:
        """Begin anew in a child process."""
        for session in self._all:
            session.disown()
        self._start()

    def _beginning(self, lock: str) -> str:
        lock = lock or f"SELECT id FROM {self.schema}.ledger FOR UPDATE;"
        milliseconds = max(round(self.timeout * 1000), 1)
        return BEGIN.format(timeout=milliseconds, idle=IDLE, lock=lock)

    def _commit(self, session: Session, stands: Stands, lock: str) -> None:
        """Commit, whatever becomes of the connection.

        Raises:
            OperationalError: it was rolled back, or nobody can say.
        """
        try:
            committed = session.commit()
        except psycopg.Error as error:
            session.close()
            if not self._stands(stands, lock):
                raise self._fault(error, session) from error
            return
        if not committed:  # a statement had failed, and the caller went on
            raise OperationalError(f"{self.place}: it was rolled back", hint=f"{NOTHING}.")

    def _stands(self, stands: Stands, lock: str) -> bool:
        """Whether the transaction of a COMMIT without an answer is in the ledger."""
        try:
            with self.use() as session:
                session.begin(self._beginning(lock))
                try:
                    return stands(session)
                finally:
                    session.rollback()
        except (Error, psycopg.Error) as error:
            raise OperationalError(
                f"{self.place}: the connection was lost during a commit, and whether it was "
                "charged cannot be found out now",
                hint="No answer was let out. If it was charged, that stands, and the same "
                "statement is then free: ask it again.",
            ) from error

    def _return(self, session: Session) -> None:
        if session not in self._all:  # inherited, while in use
            return
        with self._lock:
            if self._open and session.ready:
                self._idle.append(session)
                return
        session.close()

    def _busy(self) -> OperationalError:
        return OperationalError(
            f"the ledger was locked by other statements for {self.timeout:g} s",
            hint="Nothing was charged: try again.",
        )

    def _fault(self, error: psycopg.Error, session: Session) -> OperationalError | IntegrityError:
        """Return the error for what PostgreSQL said; of its own words only the first."""
        said, again = error.diag.message_primary or "", f"{NOTHING}: try again."
        match error:
            case psycopg.errors.LockNotAvailable():
                return self._busy()
            case psycopg.errors.UndefinedTable() | psycopg.errors.InvalidSchemaName():
                return StateError(
                    f"{self.place} is gone: it was dropped or moved while it was in use",
                    hint="put a backup in its place: privacy-proxy ledger restore",
                )
            case psycopg.errors.InsufficientPrivilege():
                what, hint = said, "Let the role of the proxy do it: policies/README.md says how."
            case psycopg.errors.ReadOnlySqlTransaction():
                what, hint = "the server takes no writes", "Name the primary in the policy's URL."
            case psycopg.errors.UniqueViolation():
                what, hint = "another proxy was faster", again
            case psycopg.errors.DataCorrupted() | psycopg.errors.IndexCorrupted():
                return IntegrityError(
                    f"{self.place}: {said}",
                    hint="put a backup in its place: privacy-proxy ledger restore",
                )
            case _ if session.connecting:
                what = "the server cannot be reached"
                return OperationalError(
                    f"{self.place}: {what}",
                    detail=" ".join(str(error).split()),
                    hint="See that it runs, and that PGUSER, PGPASSWORD, PGPASSFILE or PGSERVICE "
                    f"let this proxy in. {NOTHING}.",
                )
            case _ if lost(error, session.raw):
                what, hint = "the connection to the server was lost", again
            case _:
                what, hint = said or type(error).__name__, f"{NOTHING}."
        return OperationalError(f"{self.place}: {what}", hint=hint)


class Session:
    """One connection, made when it is first used; where a read finds it lost, another is made."""

    def __init__(self, pool: Sessions) -> None:
        self._pool = pool
        self._within = self._foreign = False
        self.connecting = False
        self.raw: psycopg.Connection[Any] | None = None

    @property
    def ready(self) -> bool:
        """Whether another use may begin with it."""
        status = self.raw.info.transaction_status if self.raw else None
        return status == TransactionStatus.IDLE and not self._within

    def execute(self, sql: str, parameters: Any = (), /) -> psycopg.Cursor[Any]:
        """Run one statement; outside a transaction, it only reads."""
        text = translated(sql, self._pool.schema, bool(parameters))
        return self._again(lambda: self._run(text, parameters))

    def begin(self, text: str) -> None:
        """Begin a transaction by statements that write nothing."""
        self._again(lambda: self._connection().execute(text))
        self._within = True

    def commit(self) -> bool:
        """End a transaction; whether PostgreSQL says that it was committed."""
        self._within = False
        if self.raw is None or self.raw.info.transaction_status == TransactionStatus.IDLE:
            return False  # a COMMIT outside a transaction would be said to have succeeded
        return self.raw.execute("COMMIT").statusmessage == "COMMIT"

    def rollback(self) -> None:
        """Undo a transaction, with the connection where that is lost."""
        self._within = False
        try:
            if self.raw is not None:
                self.raw.execute("ROLLBACK")
        except psycopg.Error:
            self.close()

    def close(self) -> None:
        """Close the connection."""
        raw, self.raw, self._within = self.raw, None, False
        if raw is not None:
            with suppress(psycopg.Error):
                raw.close()

    def disown(self) -> None:
        """Leave the connection to the parent; its end is seen though this process lives on."""
        self._foreign = True
        if self.raw is None:
            return
        _inherited.append(self.raw)
        if not self.raw.closed:
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, self.raw.fileno(), inheritable=False)
            os.close(nothing)
        self.raw = None

    def _again(self, ask: Callable[[], psycopg.Cursor[Any]]) -> psycopg.Cursor[Any]:
        """Ask, and on a new connection once more, if the old one is lost and changed nothing."""
        fresh = self.raw is None
        try:
            return ask()
        except psycopg.Error as error:
            if self._within or fresh or not lost(error, self.raw):
                raise
        self.close()
        return ask()

    def _run(self, text: str, parameters: Any) -> psycopg.Cursor[Any]:
        return self._connection().cursor(binary=True).execute(text, parameters or None)

    def _connection(self) -> psycopg.Connection[Any]:
        if self._foreign:
            raise StateError("a connection to the ledger was carried over a fork")
        if self.raw is None:
            if self._within:
                raise StateError("a transaction of the ledger goes on without its connection")
            self.connecting = True
            self.raw = self._connect()
            self.connecting = False
        return self.raw

    def _connect(self) -> psycopg.Connection[Any]:
        """Return a new connection; a server that was there may be about to come back."""
        pool = self._pool
        end = time.monotonic() + (RECONNECT if pool.reached else 0)
        while True:
            try:
                raw: psycopg.Connection[Any] = psycopg.connect(
                    pool.conninfo, autocommit=True, prepare_threshold=None, client_encoding="utf8"
                )
                break
            except psycopg.OperationalError:
                if time.monotonic() > end:
                    raise
            time.sleep(PAUSE)
        try:
            self._require(raw)
        except BaseException:
            raw.close()
            raise
        pool.reached = True
        return raw

    def _require(self, raw: psycopg.Connection[Any]) -> None:
        """Refuse a server that would not keep what it was told."""
        raw.adapters.register_dumper(str, _Dumper)
        raw.adapters.register_loader("text", _Loader)
        if raw.info.parameter_status("server_encoding") != "UTF8":
            raise StateError(f"{self._pool.place}: a database with encoding UTF8 is needed")
        ((durable,),) = raw.execute("SHOW fsync").fetchall()
        if durable != "on":
            raise StateError(
                f"{self._pool.place}: the server runs with fsync = {durable}, and would lose what "
                "was charged when its machine fails",
                hint="set fsync = on in postgresql.conf, and reload",
            )


def conninfo(url: str) -> str:
    """Return what to connect by: the URL, with what it leaves open.

    Raises:
        StateError: it is no URL of PostgreSQL, or has a password.
    """
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise StateError(f"the ledger's URL cannot be read: {error}") from None
    return make_conninfo("", **(OPTIONS | given))


def lost(error: psycopg.Error, raw: psycopg.Connection[Any] | None) -> bool:
    """Whether a connection is of no more use, as an error says or as it is."""
    return raw is None or raw.closed or (error.sqlstate or "").startswith(LOST)


@lru_cache(maxsize=256)
def translated(sql: str, schema: str, values: bool) -> str:
    """Return SQL with each table in its schema, and PostgreSQL's words for what SQLite calls so.

    No setting of a connection says which ledger is meant: a pooler may share it with others.
    """
    text = TABLE.sub(rf"\1 {schema}.\2", sql)
    if not values:
        return text
    text = text.replace("%", "%%").replace(" IS ?", " IS NOT DISTINCT FROM ?")
    return text.replace("?", "%s")


class _Dumper(StrDumperUnknown):
    """Text with NUL, which PostgreSQL does not take and a statement may have, as SOH and 0."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(obj.replace("\1", "\1\1").replace("\0", "\0010"))


class _Loader(Loader):
    """And back."""

    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        text = bytes(data).decode()
        if "\1" not in text:
            return text
        return re.sub("\1(.)", lambda found: "\0" if found[1] == "0" else "\1", text, flags=re.S)
