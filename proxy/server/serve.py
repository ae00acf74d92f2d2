"""The server: engines, mirrors, a listening port, and an orderly end.

Invariant: whatever happens, the mirror that was started is ended, and statements that run are
given time to end or are cancelled, so that nothing is charged that was not committed.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
import struct
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from proxy.catalog import Relation, relation
from proxy.engine import Engine, Result
from proxy.errors import Error, InsufficientBudgetError, PolicyError, QueryCanceledError
from proxy.policy import User, Users, load_users
from proxy.server import login, metrics
from proxy.server.conversation import Conversation
from proxy.server.desk import Describer, Desk
from proxy.server.embedded import Address, Embedded, end_orphans
from proxy.server.frames import CANCEL, Frames
from proxy.server.link import Link
from proxy.server.mirror import (
    SCHEMA,
    Limits,
    Mirror,
    PublicRows,
    visibility,
)
from proxy.server.peer import Gone, Peer
from proxy.server.question import OWN
from proxy.state import state_folder

log = logging.getLogger("proxy.server")
WORKERS = 16  # threads for the engines
LOGINS = 256  # connections that have not logged in yet
GRACE = 10.0  # seconds for running statements, when the server stops
SPARE = 10  # connections to the mirror for the server itself


@dataclass(frozen=True)
class Options:
    """How to serve."""

    host: str = "127.0.0.1"
    port: int = 5439
    state: Path | None = None
    mirror: str | None = None  # a DSN
    tls: ssl.SSLContext | None = None
    allow_plain: bool = False  # beside TLS
    metrics_port: int | None = None
    connections: int = 200
    limits: Limits = field(default_factory=Limits)


@dataclass
class _Place:
    """A mirror, the users whose it is, and what asks it for types."""

    mirror: Mirror
    describers: dict[str, Describer]


class Server:
    """All of it.  ``start`` and ``stop`` may block; ``run`` does both and waits between."""

    def __init__(self, policies: Sequence[str | Path], options: Options) -> None:
        self.options = options
        self.metrics = metrics.Metrics()
        self._paths = _policies(policies)
        self._engines: dict[str, Engine] = {}
        self._users: Users | None = None
        self._places: dict[str, _Place] = {}  # by user
        self._embedded: list[Embedded] = []
        self._pool = ThreadPoolExecutor(WORKERS, "engine")
        self._links: dict[bytes, Link] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._logins: dict[Peer, None] = {}  # that have not logged in yet, oldest first
        self._server: asyncio.Server | None = None
        self._metrics_server: asyncio.Server | None = None
        self._cancels: set[bytes] = set()
        self.port = options.port
        self.metrics_port = options.metrics_port

    # --- start and stop --------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the engines, start the mirrors, and listen.

        Raises:
            PolicyError, StateError, OperationalError: something of it is not as it must be.
        """
        try:
            await asyncio.to_thread(self._prepare)
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(
                self._new_client, self.options.host, self.options.port, backlog=512
            )
            self.port = self._server.sockets[0].getsockname()[1]
            if self.options.metrics_port is not None:
                self._metrics_server = await metrics.serve(
                    "127.0.0.1", self.options.metrics_port, self.metrics, self.healthy
                )
                self.metrics_port = self._metrics_server.sockets[0].getsockname()[1]
            self._start(self._watch_times())
        except BaseException:
            await self.stop()
            raise
        where = {"host": self.options.host, "port": self.port, "metrics_port": self.metrics_port}
        log.info("listening", extra=where)

    def _prepare(self) -> None:
        users = load_users(self._paths[0].parent / "users.yaml")
        self._users = users
        for path in self._paths:
            engine = Engine.open(path, self.options.state)
            self._engines[engine.policy.dataset] = engine
        first = next(iter(self._engines.values())).policy
        notes = state_folder(first, self.options.state).parent
        ended = end_orphans(notes)
        if ended:
            log.warning("ended mirrors that were left over", extra={"count": ended})
        sets = visibility(users.users.values(), list(self._engines))
        if self.options.mirror and len(sets) > 1:
            raise PolicyError(
                "with --mirror, all users see the same datasets: the catalogs of one PostgreSQL "
                "show all its databases",
                hint="leave out --mirror, or give each group of users a server of its own",
            )
        for seen, members in sets.items():
            self._place(seen, members, notes)

    def _place(self, seen: Sequence[str], members: Sequence[User], notes: Path) -> None:
        address = self._address(notes)
        relations: list[Relation] = []
        public: list[PublicRows] = []
        for name in seen:
            relations.append(relation(self._engines[name].policy))
        for name in OWN:
            columns = self._engines[seen[0]].session().describe(f"SELECT * FROM {SCHEMA}.{name}")
            relations.append(Relation(SCHEMA, name, columns))
        mirror = Mirror(address, relations, public, self.options.limits)
        mirror.make(members)
        describers = {name: Describer(address.conninfo(name)) for name in seen}
        place = _Place(mirror, describers)
        self._places.update({member.name: place for member in members})

    def _address(self, notes: Path) -> Address:
        if self.options.mirror is None:
            self._embedded.append(Embedded(notes, self.options.connections + SPARE))
            return self._embedded[-1].address
        known = conninfo_to_dict(self.options.mirror)
        return Address(
            str(known.get("host") or "localhost"),
            int(known.get("port") or 5432),
            str(known.get("user") or "postgres"),
            str(known.get("password") or ""),
            str(known.get("dbname") or "postgres"),
        )

    def healthy(self) -> bool:
        """Whether every mirror of our own runs."""
        return all(each.alive() for each in self._embedded)

    async def stop(self) -> None:
        """Stop listening, let running statements end, cancel those that do not, and clean up."""
        for server in (self._server, self._metrics_server):
            if server is not None:
                server.close()
        for link in list(self._links.values()):
            if not link.busy:
                link.stop()
        deadline = time.monotonic() + GRACE
        while self._links and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
            for link in list(self._links.values()):
                if not link.busy:
                    link.stop()
        for link in list(self._links.values()):
            link.cancel()
            link.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self._clean_up)

    def _clean_up(self) -> None:
        self._pool.shutdown(wait=True)
        for place in {id(p): p for p in self._places.values()}.values():
            for describer in place.describers.values():
                describer.close()
        for embedded in self._embedded:
            embedded.stop()
        for engine in self._engines.values():
            engine.close()

    async def run(self) -> None:
        """Serve until a signal says to stop."""
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopped.set)
        await self.start()
        try:
            await stopped.wait()
            log.info("stopping")
        finally:
            await self.stop()

    # --- connections -----------------------------------------------------------------------------

    def _new_client(self) -> Peer:
        return Peer(login.new_client_frames(), self._accept)

    def _accept(self, client: Peer) -> None:
        """Begin with a connection; if too many have not logged in, the oldest of them goes."""
        if len(self._logins) >= LOGINS:
            oldest = next(iter(self._logins))
            del self._logins[oldest]
            oldest.abort()
            self.metrics.add("logins_total", outcome="dropped")
        self._logins[client] = None
        self._start(self._serve(client))

    def _start(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]  # a coroutine
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, client: Peer) -> None:
        """Serve one connection from its first byte to its last."""
        mirror: Peer | None = None
        link: Link | None = None
        key = b""
        try:
            try:
                async with asyncio.timeout(login.SECONDS):
                    wish = await login.first_message(
                        client, self.options.tls, self.options.allow_plain
                    )
                    if isinstance(wish, login.CancelRequest):
                        self._cancel(wish.key)
                        return
                    mirror, link, key = await self._login(client, wish)
            finally:
                self._logins.pop(client, None)
            self._links[key] = link
            self.metrics.set("connections", len(self._links))
            await link.run()
        except login.LoginError as refusal:
            self.metrics.add("logins_total", outcome="failed")
            client.write(refusal.report.encode("utf-8"))
        except (Gone, TimeoutError, ConnectionError, FileNotFoundError):
            pass
        except Exception:
            log.exception("internal error")
        finally:
            if self._links.pop(key, None) is not None:
                self.metrics.set("connections", len(self._links))
                log.info("session ended", extra={"count": len(self._links)})
            client.close()
            if mirror is not None:
                mirror.close()

    async def _login(self, client: Peer, wish: login.Startup) -> tuple[Peer, Link, bytes]:
        place = self._places.get(wish.user)
        known = place is not None
        if place is None:
            place = next(iter(self._places.values()))
        if len(self._links) >= self.options.connections:
            raise login.fatal("53300", "sorry, too many clients already")
        mirror = await _connect(place.mirror.address)
        try:
            key, parameters = await login.authenticate(client, mirror, wish, known)
        except login.LoginError as refusal:
            mirror.close()
            if refusal.report.sqlstate == "3D000" and known:
                names = ", ".join(place.mirror.datasets)
                raise login.fatal(
                    "3D000", refusal.report.message, f"a dataset is a database; there are {names}"
                ) from None
            raise
        except BaseException:
            mirror.close()
            raise
        assert self._users is not None
        user = self._users.users[wish.user]
        seen = place.mirror.datasets
        engines = {name: self._engines[name] for name in seen}
        desk = Desk(engines, user, place.describers[wish.database], self.options.limits)
        talk = Conversation(
            desk, seen, wish.database, on_outcome=self._counted(user.name, wish.database)
        )
        talk.replies.parameters.update(parameters)
        address = place.mirror.address
        link = Link(
            client,
            mirror,
            talk,
            self.options.limits,
            self._pool,
            lambda: self._cancel_on_mirror(address, key),
        )
        self.metrics.add("logins_total", outcome="accepted")
        log.info("session began", extra={"user": user.name, "database": wish.database})
        return mirror, link, key

    def _counted(self, user: str, dataset: str) -> Callable[[Result | Error, float], None]:
        """Return what counts and logs the outcome of one user's statements."""

        def count(outcome: Result | Error, seconds: float) -> None:
            if isinstance(outcome, Error):
                what, cost = _failure(outcome), 0.0
            else:
                what, cost = "measured" if outcome.cost else "inferred", outcome.cost
                self.metrics.set("budget_left", outcome.left, dataset=dataset)
            self.metrics.add("statements_total", outcome=what)
            self.metrics.add("cost_total", cost, dataset=dataset)
            self.metrics.time(seconds)
            told = {"user": user, "outcome": what, "cost": cost, "seconds": round(seconds, 4)}
            log.info("answered", extra=told)

        return count

    # --- cancelling ------------------------------------------------------------------------------

    def _cancel(self, key: bytes) -> None:
        link = self._links.get(key)
        if link is not None:
            link.cancel()

    def _cancel_on_mirror(self, address: Address, key: bytes) -> None:
        if key not in self._cancels:  # a storm of requests is one
            self._cancels.add(key)
            self._start(self._send_cancel(address, key))

    async def _send_cancel(self, address: Address, key: bytes) -> None:
        with suppress(OSError, Gone, TimeoutError):
            async with asyncio.timeout(5):
                mirror = await _connect(address)
                mirror.write(struct.pack("!ii", len(key) + 8, CANCEL) + key)
                await mirror.gone
                mirror.close()
        self._cancels.discard(key)

    async def _watch_times(self) -> None:
        while True:
            await asyncio.sleep(1)
            now = time.monotonic()
            for link in list(self._links.values()):
                link.check_time(now)


def _failure(error: Error) -> str:
    """Return what a statement without an answer counts as."""
    if isinstance(error, InsufficientBudgetError):
        return "refused"
    return "canceled" if isinstance(error, QueryCanceledError) else "failed"


async def _connect(address: Address) -> Peer:
    """Connect to a mirror."""
    loop = asyncio.get_running_loop()

    def made() -> Peer:
        return Peer(Frames(1 << 20))

    if address.socket is not None:
        _, peer = await loop.create_unix_connection(made, address.socket)
    else:
        _, peer = await loop.create_connection(made, address.host, address.port)
    return peer


def _policies(named: Sequence[str | Path]) -> list[Path]:
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
