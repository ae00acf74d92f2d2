"""The server: engines, mirrors, a listening port, and an orderly end.

Invariant: whatever happens, the mirror that was started is ended, and statements that run are
given time to end or are cancelled, so that nothing is charged that was not committed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import ssl
import struct
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from proxy.engine import Engine, Result
from proxy.errors import Error, InsufficientBudgetError, OperationalError, QueryCanceledError
from proxy.ledger import SHARED
from proxy.policy import User
from proxy.server import login, logs, metrics, scram
from proxy.server.health import Health, notify, ready
from proxy.server.limits import Limits
from proxy.server.mirror.address import Address
from proxy.server.registry import Generation, MirrorInstance, Registry, described
from proxy.server.session.conversation import Conversation
from proxy.server.session.engine_sessions import EngineSessions
from proxy.server.session.relay import Relay
from proxy.server.wire.frames import CANCEL, FrameError
from proxy.server.wire.transport import ConnectionClosed, Transport

log = logging.getLogger("proxy.server")
WORKERS = 16  # threads for the engines
LOGINS = 256  # connections that have not logged in yet
GRACE = 10.0  # seconds for running statements, when the server stops
LOOK = 1.0  # seconds between two looks at the files


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


class Server:
    """The server.  ``run`` starts it, waits for a signal, and stops it."""

    def __init__(self, policies: Sequence[str | Path], options: Options) -> None:
        self.options = options
        self.metrics = metrics.Metrics()
        self.registry = Registry(
            policies, options.state, options.mirror, options.connections, options.limits
        )
        self.health = Health(self.registry, self.metrics)
        self._retired: list[Engine] = []  # that may still run a statement
        self._hangup = asyncio.Event()
        self._pool = ThreadPoolExecutor(WORKERS, "engine")
        self._relays: dict[bytes, Relay] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._logins: dict[Transport, None] = {}  # that have not logged in yet, oldest first
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
            await self._bind()
            await asyncio.to_thread(self.registry.load)
            await asyncio.to_thread(self._count_budgets)
            for server in (self._server, self._metrics_server):
                if server is not None:
                    await server.start_serving()
            self._start(self._watch_times())
            self._start(self._watch_files())
        except BaseException:
            await self.stop()
            raise
        where = {"host": self.options.host, "port": self.port, "metrics_port": self.metrics_port}
        log.info("listening", extra=where)
        notify("READY=1")

    async def _bind(self) -> None:
        """Take the ports, before anything takes long; nothing is accepted yet.

        Raises:
            OperationalError: one of them is taken, or not to be had.
        """
        loop = asyncio.get_running_loop()
        host, port = self.options.host, self.options.port
        with _naming(f"--listen {host}:{port}"):
            self._server = await loop.create_server(
                self._new_client, host, port, backlog=512, start_serving=False
            )
        self.port = self._server.sockets[0].getsockname()[1]
        if (own := self.options.metrics_port) is not None:
            with _naming(f"--metrics-port {own}"):
                self._metrics_server = await metrics.serve(
                    "127.0.0.1", own, self.metrics, self.health.datasets, ready
                )
            self.metrics_port = self._metrics_server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening, let running statements end, cancel the rest, and clean up."""
        for server in (self._server, self._metrics_server):
            if server is not None:
                server.close()
        for relay in list(self._relays.values()):
            relay.stopping = True
            if not relay.busy:
                relay.stop()
        deadline = time.monotonic() + GRACE
        while self._relays and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
            for relay in list(self._relays.values()):
                if not relay.busy:
                    relay.stop()
        for relay in list(self._relays.values()):
            relay.cancel()
            relay.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.health.close()
        await asyncio.to_thread(self._clean_up)

    def _clean_up(self) -> None:
        self._pool.shutdown(wait=True)
        self.registry.close()
        for engine in self._retired:
            engine.close()

    async def run(self) -> None:
        """Serve until a signal says to stop; SIGHUP says to read all files again."""
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopped.set)
        loop.add_signal_handler(signal.SIGHUP, self._hangup.set)
        await self.start()
        try:
            await stopped.wait()
            log.info("stopping")
            notify("STOPPING=1")
        finally:
            await self.stop()

    # --- what is served --------------------------------------------------------------------------

    async def _watch_files(self) -> None:
        """Reload when files have changed; where that fails, the current generation stays."""
        logged = ""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hangup.wait(), LOOK)
            if not self._hangup.is_set() and not await asyncio.to_thread(self.registry.changed):
                continue
            self._hangup.clear()
            try:
                await self._reload()
                logged = ""
            except Exception as error:
                why = error.message if isinstance(error, Error) else type(error).__name__
                self.metrics.reloads.labels("failed").inc()
                if why != logged:  # the reload is tried again and again
                    more = described(error) if isinstance(error, Error) else {"reason": why}
                    log.error("cannot read again", extra=more)
                logged = why
                await asyncio.sleep(LOOK)

    async def _reload(self) -> None:
        """Load the files again; a replaced engine closes once its statements have ended."""
        replaced = await asyncio.to_thread(self.registry.load)
        await asyncio.to_thread(self._count_budgets)
        self.metrics.reloads.labels("done").inc()
        log.info("read again", extra={"count": len(replaced)})
        self._retired += replaced
        running = {relay: relay.calls for relay in self._relays.values() if relay.engine_runs}
        if replaced:
            self._start(self._retire(replaced, running))

    async def _retire(self, engines: list[Engine], running: dict[Relay, int]) -> None:
        while any(relay.engine_runs and relay.calls == call for relay, call in running.items()):
            await asyncio.sleep(0.1)
        for engine in engines:
            self._retired.remove(engine)
            await asyncio.to_thread(engine.close)

    # --- connections -----------------------------------------------------------------------------

    def _new_client(self) -> Transport:
        return Transport(login.new_client_frames(), self._accept)

    def _accept(self, client: Transport) -> None:
        """Serve a new connection; beyond ``LOGINS`` logins under way, drop the oldest."""
        if len(self._logins) >= LOGINS:
            oldest = next(iter(self._logins))
            del self._logins[oldest]
            oldest.abort()
            self.metrics.logins.labels("dropped").inc()
        self._logins[client] = None
        self._start(self._serve(client))

    def _start(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]  # a coroutine
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, client: Transport) -> None:
        """Serve one connection from its first byte to its last."""
        mirror: Transport | None = None
        relay: Relay | None = None
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
                    mirror, relay, key = await self._login(client, wish)
            finally:
                self._logins.pop(client, None)
            self._relays[key] = relay
            self.metrics.connections.set(len(self._relays))
            await relay.run()
        except login.LoginError as refusal:
            self.metrics.logins.labels("failed").inc()
            client.write(refusal.report.encode("utf-8"))
        except FrameError as error:
            self.metrics.logins.labels("failed").inc()
            client.write(login.fatal(error.sqlstate, error.message).report.encode("utf-8"))
        except (ConnectionClosed, TimeoutError, ConnectionError, FileNotFoundError):
            if client.broken is not None and relay is None:
                report = login.fatal(client.broken.sqlstate, client.broken.message).report
                client.write(report.encode("utf-8"))
        except Exception:
            log.exception("internal error")
            client.write(login.fatal("XX000", "internal error of the proxy").report.encode("utf-8"))
        finally:
            if self._relays.pop(key, None) is not None:
                self.metrics.connections.set(len(self._relays))
                log.info("session ended", extra={"count": len(self._relays)})
            client.close()
            if mirror is not None:
                mirror.close()

    async def _login(
        self, client: Transport, wish: login.Startup
    ) -> tuple[Transport, Relay, bytes]:
        if wish.check:
            await self._tell_health(client)
        if len(self._relays) >= self.options.connections:
            raise login.fatal("53300", "sorry, too many clients already")
        users = self.registry.current.users
        claimed = users.get(wish.user)
        everybody = [user.password for user in users.users.values()]
        nobody = scram.nobody(wish.user, self.registry.key, everybody)
        await login.prove(client, wish, nobody if claimed is None else claimed.password)
        generation = self.registry.current  # perhaps a newer one
        user = generation.users.get(wish.user)
        if claimed is None or user is None or user.password != claimed.password:
            raise login.wrong(wish)
        instance = generation.instances.get(user.name)
        if instance is None or wish.database not in instance.type_lookups:
            raise self._no_database(wish, user, instance)
        try:
            mirror = await instance.mirror.address.connect()
        except OSError:
            raise login.fatal("57P03", "the server is not ready", "try again soon") from None
        try:
            secret = instance.mirror.secret(user.name)
            key, parameters = await login.enter(client, mirror, wish, secret)
        except login.ShutOutError:
            mirror.close()
            log.error("the mirror lets a user in no more", extra={"user": user.name})
            self._hangup.set()  # the roles are made anew
            raise login.fatal("57P03", "the server is not ready", "try again soon") from None
        except BaseException:
            mirror.close()
            raise
        relay = self._new_relay(client, mirror, key, user, wish.database, instance, generation)
        relay.conversation.replies.parameters.update(parameters)
        self.metrics.logins.labels("accepted").inc()
        log.info("session began", extra={"user": user.name, "database": wish.database})
        return mirror, relay, key

    def _new_relay(
        self,
        client: Transport,
        mirror: Transport,
        key: bytes,
        user: User,
        home: str,
        instance: MirrorInstance,
        generation: Generation,
    ) -> Relay:
        """Return the session of a user who has logged in."""
        address = instance.mirror.address
        type_lookup = instance.type_lookups[home]
        engine = EngineSessions(
            lambda: self.registry.current.engines, user, type_lookup, self.options.limits
        )
        peer = client.raw.get_extra_info("peername") if client.raw else None
        who = {"user": user.name, "database": home, "address": peer[0] if peer else ""}
        lines = logs.Statements(who, lambda what: self.metrics.statements.labels(home, what).inc())
        client.closed.add_done_callback(lambda _: lines.flush())
        conversation = Conversation(
            engine,
            (home,),  # another dataset is another database
            home,
            tuple(generation.public(home).items()),
            on_outcome=partial(self._count, user.name, lines),
        )
        relay = Relay(
            client,
            mirror,
            conversation,
            self.options.limits,
            self._pool,
            lambda: self._cancel_on_mirror(address, key),
        )
        relay.on_reply = lines.replied
        return relay

    def _no_database(
        self, wish: login.Startup, user: User, instance: MirrorInstance | None
    ) -> login.LoginError:
        """Return the error for a user who exists but may not open the database."""
        if user.may_see(wish.database) and wish.database in self.registry.current.broken_datasets():
            return login.fatal(
                "57P03",
                f'the dataset "{wish.database}" cannot be served at present',
                "tell whoever runs the server: its log says why",
            )
        hint = None
        if instance is not None:
            hint = f"a dataset is a database; there are {', '.join(instance.mirror.datasets)}"
        return login.fatal("3D000", f'database "{wish.database}" does not exist', hint)

    async def _tell_health(self, client: Transport) -> None:
        """Answer ``serve --check``, which sends no password: the log has the reasons."""
        if unwell := await self.health.unwell():
            raise login.fatal("57P03", unwell)

    def _count(
        self,
        user: str,
        lines: logs.Statements,
        dataset: str,
        outcome: Result | Error,
        seconds: float,
    ) -> None:
        """Count and log the outcome of a statement."""
        sqlstate = None
        if isinstance(outcome, Error):
            what, cost, sqlstate = _failure(outcome), outcome.cost, outcome.sqlstate
        else:
            what, cost = _success(outcome), outcome.cost
            if cost and (engine := self.registry.current.engines.get(dataset)):
                history = engine.privileges(user).history
                left = outcome.left_in_cells
                self.metrics.budget_left.labels(dataset, history).set(left)
        self.metrics.statements.labels(dataset, what).inc()
        self.metrics.cost.labels(dataset).inc(cost)
        self.metrics.statement_duration.observe(seconds)
        lines.ran(what, cost, seconds, sqlstate)

    def _count_budgets(self) -> None:
        """Set the gauges of each dataset's budget, and of what its shared history has left."""
        self.metrics.policies_broken.set(len(self.registry.current.broken))
        self.metrics.keep_datasets(self.registry.current.engines)
        for name, engine in self.registry.current.engines.items():
            self.metrics.add_dataset(name, float(engine.policy.privacy.budget))
            with suppress(Error):  # of another policy, which will be read soon
                left = engine.left_in_cells()
                self.metrics.budget_left.labels(name, SHARED).set(left)

    # --- cancelling ------------------------------------------------------------------------------

    def _cancel(self, key: bytes) -> None:
        relay = self._relays.get(key)
        if relay is not None:
            relay.cancel()

    def _cancel_on_mirror(self, address: Address, key: bytes) -> None:
        if key not in self._cancels:  # a storm of requests is one
            self._cancels.add(key)
            self._start(self._send_cancel(address, key))

    async def _send_cancel(self, address: Address, key: bytes) -> None:
        with suppress(OSError, ConnectionClosed, TimeoutError):
            async with asyncio.timeout(5):
                mirror = await address.connect()
                mirror.write(struct.pack("!ii", len(key) + 8, CANCEL) + key)
                await mirror.closed
                mirror.close()
        self._cancels.discard(key)

    async def _watch_times(self) -> None:
        while True:
            await asyncio.sleep(1)
            now = time.monotonic()
            for relay in list(self._relays.values()):
                relay.check_time(now)


@contextmanager
def _naming(flag: str) -> Iterator[None]:
    """Say which flag it is that the system refuses."""
    try:
        yield
    except OSError as error:
        code = error.errno or 0
        why = os.strerror(code) if code > 0 else error.strerror  # asyncio's words are long
        raise OperationalError(f"{flag}: {why}") from None


def _success(result: Result) -> str:
    """Return the outcome label of a statement that was answered."""
    if result.cost:
        return "measured"
    return "inferred" if any(result.answers) else "public"


def _failure(error: Error) -> str:
    """Return the outcome label of a statement that failed."""
    if isinstance(error, InsufficientBudgetError):
        return "refused"
    return "canceled" if isinstance(error, QueryCanceledError) else "failed"
