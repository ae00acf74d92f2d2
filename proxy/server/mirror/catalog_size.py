"""What users may make PostgreSQL's catalogs grow by, over all databases.

Each temporary view that is shown leaves dead rows in the catalogs.  While a transaction is open
that might still see them, no VACUUM removes them, so a session that keeps one open and others that
show views would fill the disk.  Every few seconds the size of the databases is looked at; once they
have grown by ``EXCESS``, the transactions that have kept rows for ``HELD`` are ended with their
sessions, and the catalogs are written anew.  That is done in a thread of its own, since it waits
for locks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from contextlib import suppress

import psycopg
from psycopg import sql as psql
from psycopg.conninfo import make_conninfo

from proxy.server.mirror.mirror import DRAFT

log = logging.getLogger(__name__)
INTERVAL = 5.0  # seconds
EXCESS = 256 << 20  # bytes, of all databases together
GROWN = 16 << 20  # bytes, of a table with its indexes
HELD = 60.0  # seconds
PAUSE = 30.0  # seconds after the catalogs were written anew, which keeps others waiting
LOCK_WAIT = "900ms"  # less than deadlock_timeout, so that no other session is its victim
END_WAIT = 1000  # milliseconds
SIZES = "SELECT oid, datname, pg_database_size(oid) FROM pg_database WHERE datallowconn"
# What keeps dead rows: a transaction's own number, and the oldest that it may yet see running.
# Its virtual number tells it from the session's next one, which may see the same.
HOLDERS = """
SELECT pid, virtualtransaction, unnest(ARRAY[backend_xid::text, backend_xmin::text])
FROM pg_stat_activity JOIN pg_locks USING (pid)
WHERE backend_type = 'client backend' AND usename <> session_user AND locktype = 'virtualxid'
"""
GROWN_TABLES = """
SELECT relname FROM pg_class
WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind = 'r'
AND pg_total_relation_size(oid) > %s
"""

Database = tuple[int, str]
Holder = tuple[int, str, str]


class CatalogSize:
    """Keeps the databases of a PostgreSQL from growing without bound."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._least: dict[Database, int] = {}  # bytes
        self._since: dict[Holder, float] = {}  # when each was first seen
        self._next_look = self._next_cleaning = 0.0
        self._cleaning: threading.Thread | None = None

    def look(self, connection: psycopg.Connection) -> None:
        """Look whether the databases have grown, if it is time to, and begin to clean them."""
        now = time.monotonic()
        if now < self._next_look or (self._cleaning is not None and self._cleaning.is_alive()):
            return
        self._next_look = now + INTERVAL
        rows = connection.execute(HOLDERS).fetchall()
        self._since = {row: self._since.get(row, now) for row in rows if row[-1] is not None}
        grown = self._grown(connection)
        if sum(grown.values()) > EXCESS and now >= self._next_cleaning:
            self._next_cleaning = now + PAUSE
            old = {pid for (pid, *_), since in self._since.items() if now - since > HELD}
            databases = [database for database, size in grown.items() if size]
            self._cleaning = threading.Thread(
                target=self._clean, args=(old, databases), name="catalog size", daemon=True
            )
            self._cleaning.start()

    def _grown(self, connection: psycopg.Connection) -> dict[Database, int]:
        """Return the bytes that each database has grown by since it was smallest.

        One that is being made is left out: it is filled, and nobody else may be connected to it.
        """
        rows = connection.execute(SIZES).fetchall()
        sizes = {(oid, name): size or 0 for oid, name, size in rows if name != DRAFT}
        self._least = {each: min(self._least.get(each, n), n) for each, n in sizes.items()}
        return {each: size - self._least[each] for each, size in sizes.items()}

    def _clean(self, holders: Collection[int], databases: Collection[Database]) -> None:
        """End sessions, and write the large catalogs of databases anew."""
        try:
            with suppress(psycopg.Error), self._connect() as connection:
                for pid in holders:
                    connection.execute("SELECT pg_terminate_backend(%s, %s)", [pid, END_WAIT])
            for database in databases:
                with suppress(psycopg.Error), self._connect(database[1]) as connection:
                    if not _vacuum(connection):
                        self._least.pop(database, None)  # what has grown is no catalog
            log.warning(
                "catalogs have grown: cleaned, sessions ended", extra={"count": len(holders)}
            )
        except Exception:
            log.exception("internal error")

    def _connect(self, database: str | None = None) -> psycopg.Connection:
        more = {"dbname": database} if database else {}
        return psycopg.connect(make_conninfo(self._conninfo, **more), autocommit=True)


def _vacuum(connection: psycopg.Connection) -> bool:
    """Write the large catalogs of a database anew, or what is in use only clean of dead rows.

    Return whether there are any.
    """
    connection.execute(psql.SQL("SET lock_timeout = {}").format(LOCK_WAIT))
    tables = connection.execute(GROWN_TABLES, [GROWN]).fetchall()
    for (name,) in tables:
        for vacuum in ("VACUUM (FULL) pg_catalog.{}", "VACUUM pg_catalog.{}"):
            with suppress(psycopg.errors.LockNotAvailable):
                connection.execute(psql.SQL(vacuum).format(psql.Identifier(name)))
                break
    return bool(tables)
