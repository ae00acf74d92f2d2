"""What is served: an engine for each policy, the users, and a mirror for those who see the same.

It is read again when a file of it has changed, another policy has been applied, or a mirror has
ended.  Invariant: ``current`` is the generation of one reading of all files; a reading that fails
leaves it as it was.  A policy that cannot be served takes down itself alone; one that was served
before is served as it was, and if another is in force by then, its engine refuses by itself.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from proxy.engine import Engine
from proxy.errors import Error, OperationalError, PolicyError
from proxy.policy import Users, load_users
from proxy.server import login
from proxy.server.broken import Broken
from proxy.server.limits import Limits
from proxy.server.mirror.address import Address
from proxy.server.mirror.mirror import Mirror, visibility
from proxy.server.mirror.postgres import Embedded, end_orphans
from proxy.server.mirror.type_lookup import TypeLookup
from proxy.server.public_parts import public_part, public_rows, relations
from proxy.server.workers.planners import PlannerProcess, RemotePlanner
from proxy.server.workers.pool import Lease, Pool
from proxy.server.workers.tasks import Dataset
from proxy.sql.evaluator.public_tables import load as load_public
from proxy.state import ledger_path, state_folder

log = logging.getLogger("proxy.server")
USERS = "users.yaml"
SPARE = 10  # connections to the mirror for the server itself

Fingerprint = tuple[object, ...]  # of files: it changes when they do


class MirrorInstance(Struct, frozen=True, eq=False):
    """A mirror, the process that runs it if it is embedded, and its type lookups."""

    mirror: Mirror
    type_lookups: Mapping[str, TypeLookup]
    embedded: Embedded | None

    def alive(self) -> bool:
        """Whether the embedded mirror is alive; True for an external one."""
        return self.embedded is None or self.embedded.alive()

    def end(self) -> None:
        """Close the lookups, and stop the mirror if it is embedded."""
        for type_lookup in self.type_lookups.values():
            type_lookup.close()
        if self.embedded is not None:
            self.embedded.stop()


class Generation(Struct, frozen=True):
    """What one reading of all files serves."""

    engines: Mapping[str, Engine]  # by dataset
    users: Users
    instances: Mapping[str, MirrorInstance]  # by user
    broken: Sequence[Broken] = ()

    def broken_datasets(self) -> set[str]:
        """Return the datasets that are not served, though there is a policy."""
        return {each.dataset for each in self.broken} - set(self.engines)

    def public(self, home: str) -> dict[str, str]:
        """Return the public tables in the database ``home``, and whose dataset's each is."""
        return dict.fromkeys(self.engines[home].policy.public, home)


class Registry:
    """The current generation, from the first reading to the end.  Methods block."""

    def __init__(
        self,
        named: Sequence[str | Path],
        state: Path | None,
        mirror: str | None,
        connections: int,
        limits: Limits,
    ) -> None:
        self._named, self.state, self._dsn = named, state, mirror
        self._connections, self._limits = connections, limits
        self.pool = Pool()
        self.planners = Pool(PlannerProcess)
        self._planned: dict[str, Engine] = {}  # what the planners know, by the policy's key
        self._prepared: dict[str, Dataset] = {}  # what the workers know, by the policy's key
        self._lock = threading.Lock()
        self._closed = False
        self._current: Generation | None = None
        self._fingerprints: dict[Path, Fingerprint] = {}  # of served policies, when opened
        self._fingerprint: Fingerprint = ()
        self._logged: dict[Path, str] = {}  # the reasons of broken policies
        self.stale = False  # the last reading failed
        self.key = b""  # of the salts of users who do not exist

    @property
    def current(self) -> Generation:
        """The generation that is served."""
        assert self._current is not None
        return self._current

    def instances(self) -> list[MirrorInstance]:
        """Return the mirrors of the current generation, each once."""
        return list({id(each): each for each in self.current.instances.values()}.values())

    def changed(self) -> bool:
        """Whether the files differ from those of the last reading."""
        return self._fingerprint != self._read_fingerprint()

    def load(self) -> list[Engine]:
        """Read everything, for the first time or again; return the engines that were replaced.

        Raises:
            Error: something is not as it must be; nothing was changed.
        """
        with self._lock:
            if self._closed:
                return []
            try:
                replaced = self._load()
            except BaseException:
                self.stale = True
                raise
            self.stale = False
            return replaced

    def _load(self) -> list[Engine]:
        if self._current is None and self._dsn is not None:
            Address.of(self._dsn)  # before anything takes long
        fingerprint = self._read_fingerprint()
        paths = policies(self._named)
        users = users_beside(paths[0])
        before = self._current
        old = dict(before.engines) if before else {}
        instances = self.instances() if before else []
        engines, fingerprints, broken = self._open(paths, old)
        created: list[MirrorInstance] = []
        try:
            parts = self._public_parts(engines.values())
            by_user = self._make(users, engines, parts, instances, created)
            self._prepare_workers(parts, old.values())
            self._prepare_planners(engines.values())
        except BaseException:
            for instance in created:
                instance.end()
            for engine in engines.values():
                if engine not in old.values():
                    engine.close()
            raise
        for engine in engines.values():
            engine.rest()  # from now on workers read the statements
        self._current = Generation(engines, users, by_user, broken)
        self._fingerprints = fingerprints
        self._fingerprint = fingerprint
        if before is None and not broken and all(map(_in_force, engines.values())):
            whole = self._read_fingerprint()  # now that there are engines, of their files too
            if whole[: len(fingerprint) - 1] == fingerprint[:-1]:
                self._fingerprint = whole
        for instance in instances:
            if instance not in self.instances():
                instance.end()
        return [engine for engine in old.values() if engine not in engines.values()]

    def close(self) -> None:
        """End it all."""
        with self._lock:
            self._closed = True
            if self._current is not None:
                for instance in self.instances():
                    instance.end()
                for engine in self.current.engines.values():
                    engine.close()
        self.pool.close()
        self.planners.close()

    # --- workers ---------------------------------------------------------------------------------

    def _public_parts(self, engines: Iterable[Engine]) -> dict[str, Dataset]:
        """Return what is public of each dataset, by the key of its policy."""
        keys = {engine: engine.policy.key for engine in engines}
        return {key: self._prepared.get(key) or public_part(e) for e, key in keys.items()}

    def _prepare_workers(self, parts: Mapping[str, Dataset], old: Iterable[Engine]) -> None:
        """Have workers that know these datasets, and those whose last statements still run."""
        replaced = {engine.policy.key for engine in old} - parts.keys()
        known = {**parts, **{key: self._prepared[key] for key in replaced}}
        if known.keys() != self._prepared.keys():
            self.pool.update(list(known.values()))
            self._prepared = known

    def _prepare_planners(self, engines: Iterable[Engine]) -> None:
        """Have planners for these engines, and those whose last statements still run."""
        known = {engine.policy.key: engine for engine in engines}
        if known != self._planned:
            replaced = {k: engine for k, engine in self._planned.items() if k not in known}
            setups = {key: engine.setup() for key, engine in (replaced | known).items()}
            self.planners.update(list(setups.items()))
            self._planned = known

    def left_in_cells(self, engine: Engine) -> float:
        """Return the alpha left in that cell of a shared history which has least left."""
        lease = Lease(self.planners)
        try:
            planner = RemotePlanner(engine.policy.key, lease.call)
            return engine.through(engine.compiler, planner).left_in_cells()
        finally:
            lease.close()

    # --- engines ---------------------------------------------------------------------------------

    def _open(
        self, paths: Sequence[Path], old: Mapping[str, Engine]
    ) -> tuple[dict[str, Engine], dict[Path, Fingerprint], list[Broken]]:
        """Return the engines of the policies: those that are there already, where nothing changed.

        Raises:
            Error: none of them can be served.
        """
        by_path = {engine.policy.path: engine for engine in old.values()}
        served: dict[str, Engine] = {}
        fingerprints: dict[Path, Fingerprint] = {}
        errors: dict[Path, Error] = {}
        try:
            # those that are served come first: they stay where a new one does not fit beside them
            for path in sorted(map(Path.absolute, paths), key=lambda path: path not in by_path):
                previous = by_path.get(path)
                fingerprint = _files([path, *_public_files(previous)])
                engine = previous
                try:
                    same = fingerprint == self._fingerprints.get(path)
                    if previous is None or not same or not _in_force(previous):
                        engine = opened(path, self.state)
                        fingerprint = _files([path, *_public_files(engine)])
                    assert engine is not None
                    fits(engine, served)
                    engine.read_users()
                    fingerprints[path] = fingerprint
                except Error as error:
                    errors[path] = error
                    if engine is not None and engine is not previous:
                        engine.close()
                    engine = previous
                if engine is not None:
                    served[engine.policy.dataset] = engine
            self._tell(errors)
            if errors and not served:
                raise next(iter(errors.values()))
        except BaseException:
            for engine in served.values():
                if engine not in old.values():
                    engine.close()
            raise
        return served, fingerprints, [Broken.of(path, self.state) for path in errors]

    def _tell(self, errors: Mapping[Path, Error]) -> None:
        """Log each policy that is broken, once."""
        reasons = {path: f"{error.message} {error.detail or ''}" for path, error in errors.items()}
        for path, error in errors.items():
            if self._logged.get(path) != reasons[path]:
                reason = "cannot be served" if self._current is None else "not taken over"
                log.error("policy %s", reason, extra=described(error, path))
        self._logged = reasons

    # --- mirrors ---------------------------------------------------------------------------------

    def _make(
        self,
        users: Users,
        engines: Mapping[str, Engine],
        parts: Mapping[str, Dataset],
        instances: Sequence[MirrorInstance],
        created: list[MirrorInstance],
    ) -> dict[str, MirrorInstance]:
        """Return the mirror of each user: one that is there and runs, or a new one."""
        notes = state_folder(next(iter(engines.values())).policy, self.state).parent
        self.key = self.key or login.key(notes)
        if self._current is None and (ended := end_orphans(notes)):
            log.warning("ended mirrors that were left over", extra={"count": ended})
        sets = visibility(users.users.values(), list(engines))
        if self._dsn and len(sets) > 1:
            raise PolicyError(
                "with --mirror, all users see the same datasets: the catalogs of one PostgreSQL "
                "show all its databases",
                hint="leave out --mirror, or give each group of users a server of its own",
            )
        by_user: dict[str, MirrorInstance] = {}
        for seen, members in sets.items():
            usable = (p for p in instances if p.mirror.datasets == seen and p.alive())
            instance = next(usable, None)
            new: MirrorInstance | None = None
            if instance is None:
                address, embedded = self._address(notes)
                type_lookups = {name: TypeLookup(address.conninfo(name)) for name in seen}
                mirror = Mirror(address, seen, self._limits)
                new = instance = MirrorInstance(mirror, type_lookups, embedded)
                created.append(instance)
            tables = {home: relations(engines[home]) for home in seen}
            public = {home: public_rows(parts[engines[home].policy.key]) for home in seen}
            for remade in instance.mirror.make(tables, members, public):
                instance.type_lookups[remade].close()  # the next lookup reconnects
            if new is not None:
                new.mirror.admit(members[0].name)
            by_user |= {member.name: instance for member in members}
        return by_user

    def _address(self, notes: Path) -> tuple[Address, Embedded | None]:
        if self._dsn is None:
            embedded = Embedded(notes, self._connections + SPARE)
            return embedded.address, embedded
        return Address.of(self._dsn), None

    def _missing(self) -> list[Broken]:
        """Return the policies that are not served at all."""
        if self._current is None:
            return []
        unserved = self._current.broken_datasets()
        return [each for each in self._current.broken if each.dataset in unserved]

    # --- what has changed ------------------------------------------------------------------------

    def _read_fingerprint(self) -> Fingerprint:
        """Return a fingerprint of the files that a reload would read."""
        with suppress(Error, OSError):
            paths = policies(self._named)
            engines = list(self.current.engines.values()) if self._current else []
            users = {path.with_name(USERS) for path in paths}
            public = [file for engine in engines for file in _public_files(engine)]
            applied = [self._ledger(engine) for engine in engines]
            alive = [instance.alive() for instance in self.instances()] if self._current else []
            missing = self._missing()
            applied += [each.ledger() for each in missing]
            states = [file for each in missing for file in each.state()]
            files = _files([*paths, *sorted(users), *public, *states])
            return (*files, *applied, all(alive))
        return self._fingerprint

    def _ledger(self, engine: Engine) -> object:
        """Return the policy that a ledger has in force, or what lies where the ledger was."""
        try:
            return engine.ledger.policy()
        except Error:
            return _files([ledger_path(state_folder(engine.policy, self.state))])


def policies(named: Sequence[str | Path]) -> list[Path]:
    """Return the policy files that are named, or lie in the folders that are."""
    paths: list[Path] = []
    for each in map(Path, named):
        if each.is_dir():
            files = sorted((*each.glob("*.yaml"), *each.glob("*.yml")))
            paths += [file for file in files if file.stem != "users"]
        else:
            paths.append(each)
    if not paths:
        raise PolicyError("there is no policy to serve", hint="name a policy, or a folder of them")
    return paths


def users_beside(policy: Path) -> Users:
    """Return the users in the file beside a policy.

    Raises:
        PolicyError: the file is wrong, or there is none, nor perhaps a policy.
    """
    path = policy.parent / USERS
    if not path.exists():
        if not policy.exists():
            raise PolicyError("there is no such policy, nor a folder of policies", file=str(policy))
        raise PolicyError(
            "there is no such file, which says who may connect",
            file=str(path),
            hint=f"make it: privacy-proxy passwd NAME --users {path}",
        )
    return load_users(path)


def _files(paths: Iterable[Path]) -> Fingerprint:
    """Return the fingerprint of files, whether or not they exist."""
    marks: list[object] = []
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            marks.append((path, None))
        else:
            marks.append((path, status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(marks)


def _public_files(engine: Engine | None) -> list[Path]:
    return [table.path for table in engine.policy.public.values()] if engine else []


def _in_force(engine: Engine) -> bool:
    try:
        return engine.ledger.policy() == engine.protection.digest
    except Error:
        return False


def opened(path: Path, state: Path | None, sandbox: bool = True) -> Engine:
    """Open the engine of a policy, and see that all can be read that it needs.

    Raises:
        Error: it cannot be served.
    """
    try:
        engine = Engine.open(path, state, sandbox=sandbox)
    except OSError as error:
        raise OperationalError(f"{error.filename} cannot be read: {error.strerror}") from None
    try:
        for name, table in engine.policy.public.items():
            load_public(name, table.path)
    except BaseException:
        engine.close()
        raise
    return engine


def described(error: Error, path: Path | None = None) -> dict[str, object]:
    """Return what a log line says of an error in a file."""
    fields = {
        "file": getattr(error, "file", None) or (path and str(path)),
        "line": getattr(error, "line", None),
        "key": getattr(error, "key", None),
        "reason": error.message,
        "detail": error.detail,
        "hint": error.hint,
    }
    return {name: value for name, value in fields.items() if value is not None}


def fits(engine: Engine, beside: Mapping[str, Engine]) -> None:
    """Refuse a second policy of a dataset, and a public table with the name of a dataset."""
    mine, file = engine.policy, str(engine.policy.path)
    if mine.dataset in beside:
        raise PolicyError(f"the dataset {mine.dataset} has another policy here", file=file)
    for table in mine.public:
        if table.lower() in {name.lower() for name in (*beside, mine.dataset)}:
            raise PolicyError(
                f"the public table {table} has the name of a dataset that is served beside it",
                file=file,
                key=f"public.{table}",
            )
    for name, other in beside.items():
        if mine.dataset.lower() in {table.lower() for table in other.policy.public}:
            raise PolicyError(
                f"the dataset {mine.dataset} has the name of a public table of {name}", file=file
            )
