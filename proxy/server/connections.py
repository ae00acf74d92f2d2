"""Clients, from a connection that is made to a session, and the requests to cancel one.

Invariant: before its password is right, a connection takes a place among strangers and a task of
the event loop, for seconds; nothing of a mirror, no thread, and no session's place.
"""

from __future__ import annotations

import asyncio
import logging
import math
import resource
import struct
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from msgspec import Struct

from proxy.policy import User, Users, Verifier
from proxy.server import login, scram
from proxy.server.metrics import Metrics
from proxy.server.mirror.address import Address
from proxy.server.registry import Generation, MirrorInstance, Registry
from proxy.server.session.relay import Relay
from proxy.server.strangers import LINE, PLACES, FullError, Journal, Places, Throttle, network
from proxy.server.wire.certificate import Certificate
from proxy.server.wire.frames import CANCEL, FrameError
from proxy.server.wire.transport import ConnectionClosed, Transport

log = logging.getLogger("proxy.server")
WAITING = 256  # proofs that the throttle holds back, at most

OTHER_FILES = 300  # of ledgers, cubes, evaluators
CROWDED = "too many connections of the network have not logged in"


class Login(Struct, frozen=True):
    """A client that has proved who it is, and has a connection to its mirror."""

    client: Transport
    mirror: Transport
    key: bytes  # of requests to cancel
    user: User
    database: str
    instance: MirrorInstance
    generation: Generation
    parameters: dict[bytes, bytes]
    address: str  # of the client


@dataclass(eq=False)
class Visitor:
    """A connection, and what is known of who made it."""

    client: Transport
    address: str
    local: bool = False  # of our own console: nobody else could listen, it needs no TLS
    network: str = field(init=False)
    user: str | None = None  # of those that exist: another name may be a password, mistyped
    dropped: str | None = None  # why we closed it

    def __post_init__(self) -> None:
        self.network = network(self.address)

    def drop(self, reason: str) -> None:
        """Close it at once."""
        self.dropped = reason
        self.client.abort()


@dataclass
class Turn:
    """Whose turn it is in the line of a network."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class Connections:
    """The connections of one server."""

    def __init__(
        self,
        registry: Registry,
        metrics: Metrics,
        most: int,
        certificate: Certificate | None,
        allow_plain: bool,
        *,
        start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        unwell: Callable[[], Awaitable[str | None]],
        new_relay: Callable[[Login], Relay],
        reload: Callable[[], None],
    ) -> None:
        self.relays: dict[bytes, Relay] = {}
        self.certificate = certificate  # of those that begin from now on
        self._registry, self._metrics, self._most = registry, metrics, most
        self._allow_plain = allow_plain
        self._start, self._unwell = start, unwell
        self._new_relay, self.reload = new_relay, reload
        self._line: Places[Visitor] = Places(LINE, math.inf)
        self._turns: dict[str, Turn] = {}  # by network, while anybody waits
        self._strangers: Places[Visitor] = Places()
        self._waiting: Places[Visitor] = Places(WAITING)
        self._throttle = Throttle()
        self._journal = Journal()
        self._entering = 0  # that have logged in, and have no session yet
        self._cancels: dict[bytes, asyncio.Task[None]] = {}
        self._shapes: tuple[Users | None, list[Verifier]] = None, []

    def new_client(self, address: str | None = None) -> Transport:
        """Return what serves a connection that is made; by our console, for one at an address."""
        return Transport(login.new_client_frames(), partial(self._accept, address))

    def _accept(self, address: str | None, client: Transport) -> None:
        """Serve a new connection, if there is a place for it."""
        assert client.raw is not None
        if address is None:
            peer = client.raw.get_extra_info("peername")
            visitor = Visitor(client, peer[0] if peer else "")
        else:
            visitor = Visitor(client, address, local=True)
        try:
            lost = self._line.take(visitor.network, visitor, time.monotonic())
        except FullError:
            visitor.drop(CROWDED)
            self._failed(visitor, "53300", CROWDED)
            return
        if lost is not None:
            lost.drop(CROWDED)
        self._start(self._serve(visitor))

    async def _take_place(self, visitor: Visitor) -> None:
        """Wait for a place among strangers, behind those of the same network who came before.

        Raises:
            ConnectionClosed: the client did not wait.
        """
        turn = self._turns.setdefault(visitor.network, Turn())
        turn.waiting += 1
        try:
            async with turn.lock:
                while not visitor.client.closed.done():
                    try:
                        lost = self._strangers.take(visitor.network, visitor, time.monotonic())
                    except FullError as full:
                        await asyncio.wait({visitor.client.closed}, timeout=full.seconds)
                        continue
                    if lost is not None:
                        lost.drop("another connection took its place")
                    return
                raise ConnectionClosed
        finally:
            self._line.leave(visitor.network, visitor)
            turn.waiting -= 1
            if not turn.waiting:
                del self._turns[visitor.network]

    async def _serve(self, visitor: Visitor) -> None:
        """Serve one connection from its first byte to its last."""
        entered: Login | None = None
        try:
            try:
                await self._take_place(visitor)
                entered = await self._log_in(visitor)
            finally:
                self._strangers.leave(visitor.network, visitor)
            if entered is not None:
                await self._session(visitor, entered)
        except login.LoginError as refusal:
            self._refuse(visitor, refusal)
        except FrameError as error:
            self._refuse(visitor, login.fatal(error.sqlstate, error.message))
        except (ConnectionClosed, TimeoutError, ConnectionError) as error:
            if isinstance(error, TimeoutError):
                visitor.dropped = "it took too long to log in"
            if visitor.dropped is not None:
                self._failed(visitor, "08006", visitor.dropped)
        except Exception:
            log.exception("internal error")
            report = login.fatal("XX000", "internal error of the proxy").report
            visitor.client.write(report.encode("utf-8"))
        finally:
            visitor.client.close()
            if entered is not None:
                entered.mirror.close()

    async def _session(self, visitor: Visitor, entered: Login) -> None:
        relay = self._new_relay(entered)
        self.relays[entered.key] = relay
        self._metrics.connections.set(len(self.relays))
        self._metrics.logins.labels("accepted").inc()
        who = {"user": entered.user.name, "database": entered.database, "address": visitor.address}
        log.info("session began", extra=who)
        try:
            await relay.run()
        finally:
            self.relays.pop(entered.key, None)
            self._metrics.connections.set(len(self.relays))
            log.info("session ended", extra={"count": len(self.relays)})

    # --- failures --------------------------------------------------------------------------------

    def _refuse(self, visitor: Visitor, refusal: login.LoginError) -> None:
        """Tell a client why it is not let in, and the log."""
        sqlstate, reason = refusal.report.sqlstate, refusal.reason
        visitor.client.write(refusal.report.encode("utf-8"))
        unknown = sqlstate == "28P01" and visitor.user is None
        self._failed(visitor, sqlstate, "no such user" if unknown else reason)

    def _failed(self, visitor: Visitor, sqlstate: str, reason: str) -> None:
        """Count and log a connection that did not become a session."""
        self._metrics.logins.labels("dropped" if visitor.dropped else "failed").inc()
        if self._journal.one(visitor.network):
            who = {"address": visitor.address, "sqlstate": sqlstate}
            who |= {"user": visitor.user} if visitor.user is not None else {}
            log.warning("login failed", extra=who | {"reason": reason})

    def log_crowds(self) -> None:
        """Log how many more failures there were than have lines of their own."""
        for where, count in self._journal.rest(time.monotonic()):
            log.warning("more logins failed", extra={"address": where, "count": count})

    # --- logging in ------------------------------------------------------------------------------

    async def _log_in(self, visitor: Visitor) -> Login | None:
        """Return a client that has logged in; None for one that only wanted to cancel."""
        client = visitor.client
        async with asyncio.timeout(login.SECONDS):
            plain = self._allow_plain or visitor.local
            wish = await login.first_message(client, self.certificate, plain)
            if isinstance(wish, login.CancelRequest):
                if (sent := self._cancel(wish.key)) is not None:
                    await asyncio.wait({sent})  # or it might meet what the client sends next
                return None
            if wish.check:
                await self._tell_health()
            users = self._registry.current.users
            claimed = users.get(wish.user)
            visitor.user = None if claimed is None else claimed.name
            nobody = scram.nobody(wish.user, self._registry.key, self._shapes_of(users))
            verifier = nobody if claimed is None else claimed.password
            exchange, proof = await login.challenge(client, wish, verifier)
        self._strangers.leave(visitor.network, visitor)
        looked, told = self._throttled(visitor, wish.user)
        await self._wait(visitor, looked)
        try:
            login.judge(client, wish, exchange, proof)
        except login.LoginError:
            await self._wait(visitor, told)
            raise
        self._throttle.succeeded(visitor.network, wish.user, time.monotonic())
        generation = self._registry.current  # perhaps a newer one
        user = generation.users.get(wish.user)
        if claimed is None or user is None or user.password != claimed.password:
            raise login.wrong(wish)
        if len(self.relays) + self._entering >= self._most:
            raise login.fatal("53300", "sorry, too many clients already")
        self._entering += 1
        try:
            async with asyncio.timeout(login.SECONDS):
                return await self._enter(visitor, wish, user, generation)
        except (ConnectionClosed, TimeoutError, OSError):
            raise _not_ready() from None
        finally:
            self._entering -= 1

    def _shapes_of(self, users: Users) -> list[Verifier]:
        """Return a verifier of each shape among the users, whose number costs no login time."""
        if self._shapes[0] is not users:
            every = (user.password for user in users.users.values())
            shapes = {(each.iterations, len(each.salt)): each for each in every}
            self._shapes = users, list(shapes.values())
        return self._shapes[1]

    def _throttled(self, visitor: Visitor, name: str) -> tuple[float, float]:
        """Return how long a proof waits, and how much longer a wrong one does.

        Raises:
            LoginError: too many of them wait.
        """
        try:
            return self._throttle.wait(visitor.network, name, time.monotonic())
        except FullError:
            raise _many_failures() from None

    async def _wait(self, visitor: Visitor, seconds: float) -> None:
        """Wait; a timer and the connection itself are all that is kept.

        Raises:
            ConnectionClosed: the client did not wait.
            LoginError: too many wait.
        """
        if not seconds:
            return
        try:
            lost = self._waiting.take(visitor.network, visitor, time.monotonic())
        except FullError:
            raise _many_failures() from None
        if lost is not None:
            lost.drop("too many failed logins wait")
        try:
            await asyncio.wait({visitor.client.closed}, timeout=seconds)
        finally:
            self._waiting.leave(visitor.network, visitor)
        if visitor.client.closed.done():
            raise ConnectionClosed

    async def _enter(
        self, visitor: Visitor, wish: login.Startup, user: User, generation: Generation
    ) -> Login:
        """Log a client in to its mirror, as the user that it is.

        Raises:
            ConnectionClosed, OSError: the mirror is not there, or went away.
            LoginError: there is no such database, or the mirror says why it lets nobody in.
        """
        client = visitor.client
        instance = generation.instances.get(user.name)
        if instance is None or wish.database not in instance.type_lookups:
            raise self._no_database(wish, user, instance)
        mirror = await instance.mirror.address.connect()
        try:
            secret = instance.mirror.secret(user.name)
            key, parameters = await login.enter(client, mirror, wish, secret)
        except login.ShutOutError:
            mirror.close()
            log.error("the mirror lets a user in no more", extra={"user": user.name})
            self.reload()  # the roles are made anew
            raise _not_ready() from None
        except BaseException:
            mirror.close()
            raise
        client.stranger = False
        return Login(
            client,
            mirror,
            key,
            user,
            wish.database,
            instance,
            generation,
            parameters,
            visitor.address,
        )

    def _no_database(
        self, wish: login.Startup, user: User, instance: MirrorInstance | None
    ) -> login.LoginError:
        """Return the error for a user who exists but may not open the database."""
        broken = self._registry.current.broken_datasets()
        if user.may_see(wish.database) and wish.database in broken:
            return login.fatal(
                "57P03",
                f'the dataset "{wish.database}" cannot be served at present',
                "tell whoever runs the server: its log says why",
                "the dataset cannot be served",
            )
        hint = None
        if instance is not None:
            hint = f"a dataset is a database; there are {', '.join(instance.mirror.datasets)}"
        message = f'database "{wish.database}" does not exist'
        return login.fatal("3D000", message, hint, "no such database")

    async def _tell_health(self) -> None:
        """Answer ``serve --check``, which sends no password: the log has the reasons."""
        if unwell := await self._unwell():
            raise login.fatal("57P03", unwell)

    # --- cancelling ------------------------------------------------------------------------------

    def _cancel(self, key: bytes) -> asyncio.Task[None] | None:
        relay = self.relays.get(key)
        return relay.cancel() if relay is not None else None

    def cancel_on_mirror(self, address: Address, key: bytes) -> asyncio.Task[None]:
        """Ask a mirror to stop a session's statement; what is returned ends when it knows."""
        if key not in self._cancels:  # a storm of requests is one
            self._cancels[key] = self._start(self._send_cancel(address, key))
        return self._cancels[key]

    async def _send_cancel(self, address: Address, key: bytes) -> None:
        with suppress(OSError, ConnectionClosed, TimeoutError):
            async with asyncio.timeout(5):
                mirror = await address.connect()
                mirror.write(struct.pack("!ii", len(key) + 8, CANCEL) + key)
                await mirror.closed
                mirror.close()
        self._cancels.pop(key, None)


def raise_file_limit(sessions: int) -> None:
    """Let the process open files for its sessions and all strangers, as far as the system lets it.

    Else strangers could take the last ones, and nobody's session would reach its mirror.
    """
    wanted = 2 * sessions + PLACES + LINE + WAITING + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _many_failures() -> login.LoginError:
    message = "too many failed logins of this user from this address"
    return login.fatal("53300", message, "try again soon")


def _not_ready() -> login.LoginError:
    return login.fatal("57P03", "the server is not ready", "try again soon")
