"""The ledger in PostgreSQL, for any number of proxies on any number of machines.

Each dataset has a schema of its own.  What is each proxy's own stays in its state folder: the
anchor, which tells a ledger that was set back behind what this proxy has seen, and the files of
free statements, whose names begin with the proxy's, so that ``verify`` misses its own only.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

import proxy.files as files
from proxy.errors import IntegrityError, OperationalError, StateError
from proxy.ledger.anchor import Anchor, Mark
from proxy.ledger.chain import amounts
from proxy.ledger.connections import copy
from proxy.ledger.notes import NAME, Notes
from proxy.ledger.place import Place
from proxy.ledger.postgres_schema import make, migrate, version
from proxy.ledger.probe import WAIT, unanchored, unlocked
from proxy.ledger.restore import Restored, restore
from proxy.ledger.schema import migrate as migrate_file
from proxy.ledger.sessions import Sessions
from proxy.ledger.sqlite import remains
from proxy.ledger.stored import TIMEOUT, Beginning, Clock, StoredLedger, now
from proxy.ledger.transaction import (
    DOMAIN,
    LINE,
    MEASUREMENT,
    POLICY,
    SNAPSHOT,
    Connection,
    SQLReader,
)
from proxy.ledger.verify import pages, verify
from proxy.ledger.witness import Witness

COLUMNS = {  # in the order in which rows refer to one another; the key first
    "versions": ("version", "version, time"),
    "ledger": ("", "id, dataset, created"),
    "audit": ("sequence", LINE),
    "policies": ("id", f"id, {POLICY}"),
    "snapshots": ("id", f"id, {SNAPSHOT}"),
    "domains": ("id", f"id, {DOMAIN}"),
    "measurements": ("id", f"id, {MEASUREMENT}"),
}


def schema_of(dataset: str) -> str:
    """Return the schema of a dataset's ledger, a name that needs no quotes."""
    plain = re.sub(r"[^a-z0-9_]", "_", dataset.lower())[:40]
    name = f"ledger_{plain}"
    return name if plain == dataset else f"{name}_{sha256(dataset.encode()).hexdigest()[:8]}"


def place_of(url: str, dataset: str) -> str:
    """Return what a ledger is called in messages."""
    parts = urlsplit(url)
    return f"the ledger of {dataset!r} at {parts.scheme}://{parts.netloc}{parts.path}"


def fill(source: Connection, target: Connection) -> None:
    """Write every row of one ledger into the empty tables of another."""
    target.execute("DELETE FROM versions")
    for table, (key, columns) in COLUMNS.items():
        places = ",".join("?" * len(columns.split(", ")))
        insert = f"INSERT INTO {table} ({columns}) VALUES ({places})"
        rows = f"SELECT {columns} FROM {table}"
        for row in pages(source, table, columns, key) if key else source.execute(rows).fetchall():
            target.execute(insert, tuple(row))


class PostgresLedger(StoredLedger):
    """A ``Ledger``; made by ``create`` or ``open``, and on further machines first by ``join``."""

    def __init__(
        self,
        url: str,
        folder: Path,
        dataset: str,
        anchor: Path | Anchor | None,
        timeout: float,
        clock: Clock,
    ) -> None:
        self.folder = folder
        self._name = _read_name(folder)
        notes = Notes(notes_folder(folder), f"{self._name}-")
        self._sessions = sessions(url, dataset, timeout)
        super().__init__(self._sessions.place, self._sessions, notes, anchor, clock)

    @classmethod
    def create(
        cls,
        url: str,
        folder: Path,
        *,
        anchor: Path | Anchor | None = None,
        timeout: float = TIMEOUT,
        clock: Clock = now,
        **begin: Any,
    ) -> PostgresLedger:
        """Make a new ledger: a full budget.  ``begin`` are the fields of its ``Beginning``.

        Raises:
            StateError: there is a ledger already, or there was one: its anchor is still there.
        """
        first = Beginning(**begin)
        cls.require_none(url, folder, first.dataset, anchor)
        ledger = cls(url, folder, first.dataset, anchor, timeout, clock)
        pool = ledger._sessions
        try:
            with pool.transaction(lambda c: bool(version(c, pool.schema)), _naming(pool)) as made:
                if version(made, pool.schema):
                    raise StateError(f"{pool.place} exists already")
                ledger._take_name()
                ledger._witness.advance(ledger._begin(made, first))
        finally:
            ledger.close()
        return cls.open(
            url, folder, dataset=first.dataset, anchor=anchor, timeout=timeout, clock=clock
        )

    @staticmethod
    def require_none(url: str, folder: Path, dataset: str, anchor: Path | Anchor | None) -> None:
        """Refuse to begin a ledger where there is one, or was one.

        Raises:
            StateError: there is a ledger already, or something that it has left.
        """
        if there(url, dataset):
            raise StateError(f"{place_of(url, dataset)} exists already")
        if left := leavings(folder, anchor):
            raise _lost(url, folder, dataset, left)

    @classmethod
    def join(
        cls, url: str, folder: Path, dataset: str, anchor: Path | Anchor, timeout: float = TIMEOUT
    ) -> None:
        """Let a new state folder follow a ledger that is there, from where it is now.

        It may hold cubes, copies of another folder's, which say themselves what they are of.

        Raises:
            StateError: the folder has something of another state.
        """
        if left := [each for each in leavings(folder, anchor) if not each.startswith("cube-")]:
            raise StateError(
                f"{folder} is not whole: of a state it has {', '.join(left[:3])} and no anchor"
                if "anchor" not in left
                else f"{folder} is a state already",
                hint="bring the anchor back; or, where that is lost, remove the folder except "
                "for source.key, and let it join anew: privacy-proxy init POLICY",
            )
        ledger = cls(url, folder, dataset, None, timeout, now)
        try:
            ledger._identify(dataset)
            with ledger._sessions.state() as session:
                SQLReader(session).checked_head()
            ledger._take_name()
            Witness(anchor).advance(ledger._mark())
        finally:
            ledger.close()

    @classmethod
    def open(
        cls,
        url: str,
        folder: Path,
        *,
        dataset: str,
        anchor: Path | Anchor | None = None,
        timeout: float = TIMEOUT,
        clock: Clock = now,
    ) -> PostgresLedger:
        """Open a ledger, bringing it to this version's schema.

        Raises:
            StateError: it is missing, of another dataset, or of a newer proxy.
            IntegrityError: it is behind its anchor, or the chain is broken at its head.
        """
        ledger = cls(url, folder, dataset, anchor, timeout, clock)
        try:
            with ledger._sessions.use() as session:
                found = version(session, ledger._sessions.schema)
            if not found:
                raise _lost(url, folder, dataset, leavings(folder, anchor))
            ledger._attach(dataset)
            if not ledger._name:
                raise IntegrityError(
                    f"{folder / NAME} is missing: which free statements are this proxy's is not "
                    "known",
                    hint="bring it back",
                )
        except BaseException:
            ledger.close()
            raise
        return ledger

    def backup(self, path: Path, beside: Mapping[str, bytes] | None = None) -> None:
        """Copy the ledger, while it is in use, to a new file, as that of a SQLite ledger.

        The free statements in it are this proxy's.

        Raises:
            StateError: the file exists.
        """

        def filled(target: sqlite3.Connection) -> None:
            with self._sessions.state() as source:
                migrate_file(target, 0)
                fill(source, target)
                target.commit()

        copy(filled, path, self.folder, lambda: self._notes.contents() | dict(beside or {}))

    def _take_name(self) -> None:
        self._name = self._name or make_name(self.folder)

    def _version(self, connection: Connection) -> int:
        return version(connection, self._sessions.schema)

    def _migrate(self, connection: Connection, time: int) -> int:
        return migrate(connection, self._sessions.schema, time)

    def _problems(self) -> list[str]:
        try:
            with self._sessions.state() as session:
                return verify(session, self._notes.folder, f"{self._name}-")
        except OperationalError as error:
            return [error.message]


def sessions(url: str, dataset: str, timeout: float = TIMEOUT) -> Sessions:
    """Return connections to a dataset's ledger."""
    return Sessions(url, schema_of(dataset), place_of(url, dataset), timeout)


def there(url: str, dataset: str) -> bool:
    """Whether there is a ledger of a dataset.

    Raises:
        OperationalError: the server cannot be reached.
    """
    pool = sessions(url, dataset)
    try:
        with pool.use() as session:
            return version(session, pool.schema) > 0
    finally:
        pool.close()


def notes_folder(folder: Path) -> Path:
    """Return where the free statements are."""
    return folder / "ledger.notes"


def leavings(folder: Path, anchor: Path | Anchor | None) -> list[str]:
    """Return the names of what a state folder has of a ledger, one in a file too."""
    file = folder / "ledger.sqlite"
    names = [file.name] if file.exists() else []
    names += remains(file, anchor)
    return names + [path.name for path in (notes_folder(folder),) if path.exists()]


def make_name(folder: Path) -> str:
    """Give the proxy of a state folder a name, if it has none; return it."""
    if not (name := _read_name(folder)):
        name = token_hex(4)
        files.replace(folder / NAME, f"{name}\n".encode())
    return name


def _read_name(folder: Path) -> str:
    try:
        return files.read(folder / NAME).decode().strip()
    except FileNotFoundError:
        return ""


def _naming(pool: Sessions) -> str:
    """Return what is locked where there may be no ledger: its name."""
    return f"SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext('{pool.schema}'));"


def _lost(url: str, folder: Path, dataset: str, left: list[str]) -> StateError:
    """Return the error for a ledger that is not there: `init` is no way to get one back."""
    back = "put a backup in its place: privacy-proxy ledger restore POLICY BACKUP"
    place = place_of(url, dataset)
    if "ledger.sqlite" in left:
        return StateError(
            f"{place} is not there, and {folder} has one in a file",
            hint="to move it: take `ledger` out of the policy, make a copy (privacy-proxy ledger "
            "backup POLICY COPY), put `ledger` back, and restore the copy (privacy-proxy ledger "
            "restore POLICY COPY)",
        )
    if left:
        return StateError(
            f"{place} is gone, and with it what was spent; of it there is still "
            f"{', '.join(left[:3])}{', ...' if left[3:] else ''} in {folder}",
            hint=f"see that the URL is right, or {back}",
        )
    return StateError(
        f"there is no ledger of {dataset!r} at {place.rpartition(' ')[2]}",
        hint=f"if there was one, see that the URL is right, or {back}. Only a dataset that never "
        "had a ledger begins with privacy-proxy init POLICY",
    )


@dataclass(frozen=True)
class PostgresPlace(Place):
    """A database that the policy names, for the proxy of a state folder."""

    url: str = ""

    @property
    def folder(self) -> Path:
        """The state folder."""
        return self.path.parent

    @property
    def notes(self) -> Path:
        """The folder of free statements."""
        return notes_folder(self.folder)

    def exists(self) -> bool:
        """Whether there is a ledger."""
        return there(self.url, self.dataset)

    def open(self, **how: Any) -> StoredLedger:
        """Open the ledger."""
        given: dict[str, Any] = {"dataset": self.dataset, "anchor": self.anchor} | how
        return PostgresLedger.open(self.url, self.folder, **given)

    def require_none(self) -> None:
        """Refuse to begin a ledger where there is one, or was one."""
        PostgresLedger.require_none(self.url, self.folder, self.dataset, self.anchor)

    def create(self, begin: Mapping[str, Any]) -> None:
        """Make a new ledger."""
        given: dict[str, Any] = dict(begin) | {"dataset": self.dataset, "anchor": self.anchor}
        PostgresLedger.create(self.url, self.folder, **given).close()

    def joins(self) -> bool:
        """Whether a new state folder would follow a ledger that other proxies use already."""
        return not self.anchor.exists() and self.exists()

    def join(self) -> None:
        """Let a new state folder follow the ledger from now on."""
        PostgresLedger.join(self.url, self.folder, self.dataset, self.anchor)

    def restore(self, backup: Path, **how: Any) -> Restored:
        """Put a backup in the place of the ledger, or of one in a file of the state folder."""
        return restore(
            self.path, backup, dataset=self.dataset, anchor=self.anchor, target=self, **how
        )

    def lost(self) -> str:
        """Return why a ledger cannot be read any more."""
        return "it cannot be reached"

    def unwritable(self, ledger: str) -> str | None:
        """Return why nothing can be charged to a ledger."""
        pool = sessions(self.url, self.dataset, WAIT)
        return unanchored(self.anchor) or unlocked(pool, ledger)

    def mark(self) -> Mark | None:
        """Return how far the ledger that is there has come; None where none can be read.

        Raises:
            OperationalError: the server cannot be reached.
        """
        pool = sessions(self.url, self.dataset)
        try:
            with pool.state() as session:
                return _mark(session, pool.schema)
        finally:
            pool.close()

    def put(self, draft: Path, found: Mark | None) -> None:
        """Put the ledger in a file in the place of the one that was found; its schema is renamed.

        Raises:
            OperationalError: a proxy has written to it since, or the role may not do this, or the
                connection is lost: nothing was changed.
        """
        make_name(self.folder)
        pool = sessions(self.url, self.dataset)
        aside = f"{pool.schema[:30]}_replaced_{time.strftime('%Y%m%dt%H%M%S')}_{token_hex(2)}"
        with closing(sqlite3.connect(draft)) as source:
            head = SQLReader(source).head()[:2]

            def stands(connection: Connection) -> bool:
                """Whether the last line is there."""
                return SQLReader(connection).head()[:2] == head

            try:
                with pool.transaction(stands, _naming(pool)) as into:
                    if version(into, pool.schema):
                        into.execute("SELECT id FROM ledger FOR UPDATE")  # after who writes now
                        if found is not None and _mark(into, pool.schema) != found:
                            raise OperationalError(
                                f"{pool.place} is in use", hint="Stop every proxy, then restore."
                            )
                        into.execute(f"ALTER SCHEMA {pool.schema} RENAME TO {aside}")
                    make(into, pool.schema)
                    fill(source, into)
            finally:
                pool.close()


def _mark(connection: Connection, schema: str) -> Mark | None:
    """Return how far a ledger has come; None where there is none, or it is damaged."""
    if not version(connection, schema):
        return None
    reads = SQLReader(connection)
    try:
        (id, _, _), (sequence, digest, spent) = reads.identity(), reads.head()
        known = amounts(spent), False, reads.policy(), reads.total(0, sequence)
        return Mark(id, sequence, digest.hex(), *known)
    except IntegrityError:
        return None
