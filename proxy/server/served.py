"""What is served: an engine for each policy, the users, and a mirror for those who see the same.

It is read again when a file of it has changed, another policy has been applied, or a mirror has
ended.  Invariant: ``now`` is what one reading of all files gave; a reading that fails changes
nothing of it.  A policy whose file is not in force is served as it was, and if another is in force
by then, its engine refuses by itself.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from proxy.catalog import Relation, relation
from proxy.engine import Column, Engine
from proxy.errors import Error, PolicyError
from proxy.policy import Users, load_users
from proxy.server.desk import Describer
from proxy.server.embedded import Address, Embedded, end_orphans
from proxy.server.mirror import SCHEMA, Limits, Mirror, PublicRows, visibility
from proxy.server.question import OWN
from proxy.sql.public import load as load_public
from proxy.state import state_folder

log = logging.getLogger("proxy.server")
USERS = "users.yaml"
SPARE = 10  # connections to the mirror for the server itself

Stamp = tuple[object, ...]  # of files: it changes when they do


@dataclass(frozen=True, eq=False)
class Place:
    """A mirror, what runs it if that is ours, and what asks it for types."""

    mirror: Mirror
    describers: Mapping[str, Describer]
    embedded: Embedded | None

    def alive(self) -> bool:
        """Whether the mirror runs, as far as it is ours to know."""
        return self.embedded is None or self.embedded.alive()

    def end(self) -> None:
        """End what is ours of it."""
        for describer in self.describers.values():
            describer.close()
        if self.embedded is not None:
            self.embedded.stop()


@dataclass(frozen=True)
class Now:
    """What one reading gave."""

    engines: Mapping[str, Engine]  # by dataset
    users: Users
    places: Mapping[str, Place]  # by user

    def public(self, home: str) -> dict[str, str]:
        """Return the public tables in the database ``home``, and whose dataset's each is."""
        return dict.fromkeys(self.engines[home].policy.public, home)


class Served:
    """All that is served, from the first reading to the end.  Its methods block."""

    def __init__(
        self,
        named: Sequence[str | Path],
        state: Path | None,
        mirror: str | None,
        connections: int,
        limits: Limits,
    ) -> None:
        self._named, self._state, self._dsn = named, state, mirror
        self._connections, self._limits = connections, limits
        self._lock = threading.Lock()
        self._closed = False
        self._now: Now | None = None
        self._stamps: dict[Path, Stamp] = {}  # of policies that are served, as they were opened
        self._stamp: Stamp = ()

    @property
    def now(self) -> Now:
        """What is served now."""
        assert self._now is not None
        return self._now

    def places(self) -> list[Place]:
        """Return the mirrors that are there."""
        return list({id(place): place for place in self.now.places.values()}.values())

    def changed(self) -> bool:
        """Whether what is served is no longer what is there."""
        return self._stamp != self._read_stamp()

    def load(self) -> list[Engine]:
        """Read everything, for the first time or again; return the engines that were replaced.

        Raises:
            Error: something is not as it must be; nothing was changed.
        """
        with self._lock:
            if self._closed:
                return []
            stamp = self._read_stamp()
            paths = policies(self._named)
            users = load_users(paths[0].parent / USERS)
            before = self._now
            old = dict(before.engines) if before else {}
            places = self.places() if before else []
            engines, stamps = self._open(paths, old)
            made: list[Place] = []
            try:
                by_user = self._make(users, engines, places, made)
            except BaseException:
                for place in made:
                    place.end()
                for engine in engines.values():
                    if engine not in old.values():
                        engine.close()
                raise
            self._now, self._stamps, self._stamp = Now(engines, users, by_user), stamps, stamp
            for place in places:
                if place not in self.places():
                    place.end()
            return [engine for engine in old.values() if engine not in engines.values()]

    def close(self) -> None:
        """End it all."""
        with self._lock:
            self._closed = True
            if self._now is not None:
                for place in self.places():
                    place.end()
                for engine in self.now.engines.values():
                    engine.close()

    # --- engines ---------------------------------------------------------------------------------

    def _open(
        self, paths: Sequence[Path], old: Mapping[str, Engine]
    ) -> tuple[dict[str, Engine], dict[Path, Stamp]]:
        """Return the engines of the policies: those that are there already, where nothing changed.

        At the first reading, one that cannot be served is an error; later it is left as it was.
        """
        by_path = {engine.policy.path: engine for engine in old.values()}
        found: dict[str, Engine] = {}
        stamps: dict[Path, Stamp] = {}
        try:
            for path in map(Path.absolute, paths):
                known = by_path.get(path)
                stamp = _files([path, *_public_files(known)])
                if known is None or stamp != self._stamps.get(path) or not _in_force(known):
                    try:
                        engine = Engine.open(path, self._state, sandbox=True)
                        stamps[path] = _files([path, *_public_files(engine)])
                    except Error as error:
                        if not old:
                            raise
                        told = {"file": path.name, "reason": error.message}
                        log.warning("policy not taken over", extra=told)
                        if known is None:
                            continue
                        engine = known
                else:
                    engine, stamps[path] = known, stamp
                if engine.policy.dataset in found:
                    raise PolicyError(
                        f"the dataset {engine.policy.dataset} has another policy here",
                        file=str(path),
                    )
                engine.read_users()
                found[engine.policy.dataset] = engine
            _distinct(found)
        except BaseException:
            for engine in found.values():
                if engine not in old.values():
                    engine.close()
            raise
        return found, stamps

    # --- mirrors ---------------------------------------------------------------------------------

    def _make(
        self,
        users: Users,
        engines: Mapping[str, Engine],
        places: Sequence[Place],
        made: list[Place],
    ) -> dict[str, Place]:
        """Return the mirror of each user: one that is there and runs, or a new one."""
        notes = state_folder(next(iter(engines.values())).policy, self._state).parent
        if self._now is None and (ended := end_orphans(notes)):
            log.warning("ended mirrors that were left over", extra={"count": ended})
        sets = visibility(users.users.values(), list(engines))
        if self._dsn and len(sets) > 1:
            raise PolicyError(
                "with --mirror, all users see the same datasets: the catalogs of one PostgreSQL "
                "show all its databases",
                hint="leave out --mirror, or give each group of users a server of its own",
            )
        found: dict[str, Place] = {}
        for seen, members in sets.items():
            place = next((p for p in places if p.mirror.datasets == seen and p.alive()), None)
            if place is None:
                address, embedded = self._address(notes)
                describers = {name: Describer(address.conninfo(name)) for name in seen}
                place = Place(Mirror(address, seen, self._limits), describers, embedded)
                made.append(place)
            relations = {home: _relations(engines[home]) for home in seen}
            public = {home: _public_rows(engines[home]) for home in seen}
            for remade in place.mirror.make(relations, members, public):
                place.describers[remade].close()  # it connects again when it is asked
            found |= {member.name: place for member in members}
        return found

    def _address(self, notes: Path) -> tuple[Address, Embedded | None]:
        if self._dsn is None:
            embedded = Embedded(notes, self._connections + SPARE)
            return embedded.address, embedded
        known = conninfo_to_dict(self._dsn)
        address = Address(
            str(known.get("host") or "localhost"),
            int(known.get("port") or 5432),
            str(known.get("user") or "postgres"),
            str(known.get("password") or ""),
            str(known.get("dbname") or "postgres"),
        )
        return address, None

    # --- what has changed ------------------------------------------------------------------------

    def _read_stamp(self) -> Stamp:
        """Return what changes when something must be read again."""
        with suppress(Error, OSError):
            paths = policies(self._named)
            engines = list(self.now.engines.values()) if self._now else []
            users = {path.with_name(USERS) for path in paths}
            public = [file for engine in engines for file in _public_files(engine)]
            applied = [engine.ledger.protection().digest for engine in engines]
            alive = [place.alive() for place in self.places()] if self._now else []
            return (*_files([*paths, *sorted(users), *public]), *applied, all(alive))
        return self._stamp


def policies(named: Sequence[str | Path]) -> list[Path]:
    """Return the policy files that are named, or lie in the folders that are."""
    found: list[Path] = []
    for each in map(Path, named):
        if each.is_dir():
            files = sorted((*each.glob("*.yaml"), *each.glob("*.yml")))
            found += [file for file in files if file.stem != "users"]
        else:
            found.append(each)
    if not found:
        raise PolicyError("there is no policy to serve", hint="name a policy, or a folder of them")
    return found


def _files(paths: Iterable[Path]) -> Stamp:
    """Return a stamp of files, whether or not they exist."""
    stamps: list[object] = []
    for path in paths:
        try:
            told = os.stat(path)
        except OSError:
            stamps.append((path, None))
        else:
            stamps.append((path, told.st_mtime_ns, told.st_size, told.st_ino))
    return tuple(stamps)


def _public_files(engine: Engine | None) -> list[Path]:
    return [table.path for table in engine.policy.public.values()] if engine else []


def _in_force(engine: Engine) -> bool:
    try:
        return engine.ledger.protection().digest == engine.protection.digest
    except Error:
        return False


def _distinct(engines: Mapping[str, Engine]) -> None:
    """Refuse a public table that has the name of another policy's dataset."""
    for engine in engines.values():
        for table in engine.policy.public:
            if table.lower() in {name.lower() for name in engines}:
                raise PolicyError(
                    f"the public table {table} has the name of a dataset that is served beside it",
                    file=str(engine.policy.path),
                    key=f"public.{table}",
                )


def _relations(engine: Engine) -> list[Relation]:
    """Return the tables that only the engine can answer for."""
    relations = [relation(engine.policy)]
    for name in OWN:
        columns = engine.session().describe(f"SELECT * FROM {SCHEMA}.{name}")
        relations.append(Relation(SCHEMA, name, columns))
    return relations


def _public_rows(engine: Engine) -> list[PublicRows]:
    """Return the public tables beside a dataset, with their rows."""
    rows = []
    for table, source in sorted(engine.policy.public.items()):
        path = source.path
        columns, values = load_public(table, path)
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        described = tuple(Column(name, kind) for name, kind, _ in columns)
        rows.append(PublicRows(table, described, list(zip(*values, strict=True)), digest))
    return rows
