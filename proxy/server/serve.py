"""The server: engines, mirrors, a listening port, and an orderly end.

Invariant: whatever happens, the mirror that was started is ended, and statements that run are
given time to end or are cancelled, so that nothing is charged that was not committed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from msgspec import Struct, field

from proxy.engine import Engine, Result
from proxy.errors import Error, InsufficientBudgetError, OperationalError, QueryCanceledError
from proxy.ledger import SHARED
from proxy.server import logs, metrics
from proxy.server.choosing import Choosing
from proxy.server.connections import Connections, Login, raise_file_limit
from proxy.server.console_door import ConsoleDoor
from proxy.server.health import Health, notify, ready
from proxy.server.limits import Limits
from proxy.server.registry import Registry, described
from proxy.server.session.conversation import Conversation
from proxy.server.session.engine_sessions import EngineSessions
from proxy.server.session.relay import Relay
from proxy.server.wire.certificate import Certificate, Fingerprint, read_fingerprint
from proxy.server.workers.turns import Turns

T = TypeVar("T")
log = logging.getLogger("proxy.server")
PLACES = max(4, 2 * (os.cpu_count() or 2))  # steps of statements at work at a time
GRACE = 10.0  # seconds for running statements, when the server stops
LOOK = 1.0  # seconds between two looks at the files


class Console(Protocol):
    """A console that is served beside, over a door of this server."""

    def bind(self) -> None:
        """Take its port."""

    async def start(self, door: ConsoleDoor) -> None:
        """Serve."""

    async def stop(self) -> None:
        """Stop serving."""

    def renew(self, files: tuple[Path, Path]) -> None:
        """Read the certificate again."""

    @property
    def url(self) -> str:
        """Where it is."""


class Options(Struct, frozen=True):
    """How to serve."""

    host: str = "127.0.0.1"
    port: int = 5439
    state: Path | None = None
    mirror: str | None = None  # a DSN
    certificate: Certificate | None = None  # of TLS
    allow_plain: bool = False  # beside TLS
    metrics_port: int | None = None
    connections: int = 200
    limits: Limits = field(default_factory=Limits)
    console: Console | None = None


class Server:
    """The server.  ``run`` starts it, waits for a signal, and stops it."""

    def __init__(self, policies: Sequence[str | Path], options: Options) -> None:
        self.options = options
        self.metrics = metrics.Metrics()
        self.registry = Registry(
            policies, options.state, options.mirror, options.connections, options.limits
        )
        self._looked: Fingerprint = ()  # of the certificate, at the last look
        self._certificate_failed = ""  # why it could not be read, as logged
        self.health = Health(self.registry, self.metrics)
        self._choosing = Choosing(lambda: self.registry.current.engines.values())
        self._retired: list[Engine] = []  # that may still run a statement
        self._hangup = asyncio.Event()
        self._threads = ThreadPoolExecutor(2 * PLACES, "engine")
        self._turns = Turns(PLACES)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None
        self._metrics_server: asyncio.Server | None = None
        self._connections = Connections(
            self.registry,
            self.metrics,
            options.connections,
            options.certificate,
            options.allow_plain,
            start=self._start,
            unwell=self.health.unwell,
            new_relay=self._new_relay,
            reload=self._hangup.set,
        )
        self._relays = self._connections.relays
        self.port = options.port
        self.metrics_port = options.metrics_port

    # --- start and stop --------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the engines, start the mirrors, and listen.

        Raises:
            PolicyError, StateError, OperationalError: something of it is not as it must be.
        """
        try:
            raise_file_limit(self.options.connections)
            await self._bind()
            await asyncio.to_thread(self.registry.load)
            await asyncio.to_thread(self._show_datasets)
            if self.options.console is not None:
                listens = self.options.host, self.port
                door = ConsoleDoor(self.registry, self._connections, listens)
                await self.options.console.start(door)
            for server in (self._server, self._metrics_server):
                if server is not None:
                    await server.start_serving()
            self._start(self._watch_times())
            self._start(self._watch_files())
            self._start(self._choosing.watch())
        except BaseException:
            await self.stop()
            raise
        where = {"host": self.options.host, "port": self.port, "metrics_port": self.metrics_port}
        if self.options.console is not None:
            where["console"] = self.options.console.url
        log.info("listening", extra=where)
        notify("READY=1")

    async def _bind(self) -> None:
        """Take the ports, before anything takes long; nothing is accepted yet.

        Raises:
            OperationalError: one of them is taken, or not to be had.
        """
        if self.options.console is not None:  # first: it listens, so that no other takes its port
            self.options.console.bind()
        loop = asyncio.get_running_loop()
        host, port = self.options.host, self.options.port
        with _naming(f"--listen {host}:{port}"):
            self._server = await loop.create_server(
                self._connections.new_client, host, port, backlog=512, start_serving=False
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
        if self.options.console is not None:
            await self.options.console.stop()
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
        self._threads.shutdown(wait=True)
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
                async with asyncio.timeout(LOOK):  # wait_for of Python 3.11 can lose a cancellation
                    await self._hangup.wait()
            told = self._hangup.is_set()
            await self._renew_certificate(told)
            if not told and not await asyncio.to_thread(self.registry.changed):
                continue
            self._hangup.clear()
            try:
                await self._reload()
                logged = ""
            except Exception as error:
                logged = self._cannot_read(error, logged)
                await asyncio.sleep(LOOK)

    def _cannot_read(self, error: Exception, logged: str) -> str:
        """Count and log that files cannot be read, once for each reason; return the reason."""
        why = error.message if isinstance(error, Error) else type(error).__name__
        self.metrics.reloads.labels("failed").inc()
        if why != logged:  # the reload is tried again and again
            more = described(error) if isinstance(error, Error) else {"reason": why}
            log.error("cannot read again", extra=more)
        return why

    async def _renew_certificate(self, told: bool) -> None:
        """Read the certificate again if it has changed; where that fails, the old one stays.

        Files that change one after the other are read once they no longer do.
        """
        old = self._connections.certificate
        if old is None:
            return
        found = await asyncio.to_thread(read_fingerprint, old.files)
        stable, self._looked = found == self._looked, found
        if found == old.fingerprint or not (told or stable):
            return
        try:
            new = await asyncio.to_thread(Certificate.load, *old.files)
        except Error as error:
            self._certificate_failed = self._cannot_read(error, self._certificate_failed)
            return
        self._certificate_failed = ""
        self._connections.certificate = new
        if self.options.console is not None:
            self.options.console.renew(new.files)
        log.info("certificate read again")

    async def _reload(self) -> None:
        """Load the files again; a replaced engine closes once its statements have ended."""
        replaced = await asyncio.to_thread(self.registry.load)
        await asyncio.to_thread(self._show_datasets)
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

    # --- sessions --------------------------------------------------------------------------------

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _new_relay(self, entered: Login) -> Relay:
        """Return the session of a user who has logged in."""
        user, home, instance = entered.user, entered.database, entered.instance
        type_lookup = instance.type_lookups[home]
        engine = EngineSessions(
            lambda: self.registry.current.engines,
            user,
            type_lookup,
            self.options.limits,
            self.registry.pool,
            self.registry.planners,
        )
        who = {"user": user.name, "database": home, "address": entered.address}
        lines = logs.Statements(who, lambda what: self.metrics.statements.labels(home, what).inc())
        entered.client.closed.add_done_callback(lambda _: lines.flush())
        conversation = Conversation(
            engine,
            (home,),  # another dataset is another database
            home,
            tuple(entered.generation.public(home).items()),
            on_outcome=partial(self._count, user.name, lines),
        )
        conversation.replies.parameters.update(entered.parameters)
        cancel = partial(self._connections.cancel_on_mirror, instance.mirror.address, entered.key)
        relay = Relay(
            entered.client,
            entered.mirror,
            conversation,
            self.options.limits,
            user.name,
            self._turns,
            self._threads,
            cancel,
        )
        relay.on_reply = lines.replied
        return relay

    def _count(
        self,
        user: str,
        lines: logs.Statements,
        dataset: str,
        outcome: Result | Error,
        seconds: float,
    ) -> None:
        """Count and log the outcome of a statement that the engine ran, also if it failed."""
        sqlstate = None
        numbers: dict[str, int] = {}  # by source; an error tells none
        if isinstance(outcome, Error):
            what, cost, sqlstate = _failure(outcome), outcome.cost, outcome.sqlstate
        else:
            what, cost = _success(outcome), outcome.cost
            numbers = {"measured": outcome.measured, "inferred": outcome.inferred}
            if cost and (engine := self.registry.current.engines.get(dataset)):
                history = engine.privileges(user).history
                left = outcome.left_in_cells
                self.metrics.budget_left.labels(dataset, history).set(left)
        self.metrics.statements.labels(dataset, what).inc()
        for source, count in numbers.items():
            self.metrics.numbers.labels(dataset, user, source).inc(count)
        self.metrics.cost.labels(dataset).inc(cost)
        self.metrics.statement_duration.observe(seconds)
        lines.ran(what, cost, seconds, sqlstate, numbers)

    def _show_datasets(self) -> None:
        """Set the gauges of budgets and of what shared histories have left; begin the counters."""
        current = self.registry.current
        self.metrics.policies_broken.set(len(current.broken))
        self.metrics.keep_datasets(current.engines)
        for name, engine in current.engines.items():
            users = [user.name for user in current.users.users.values() if user.may_see(name)]
            self.metrics.add_dataset(name, float(engine.policy.privacy.budget), users)
            with suppress(Error):  # of another policy, which will be read soon
                left = self.registry.left_in_cells(engine)
                self.metrics.budget_left.labels(name, SHARED).set(left)

    async def _watch_times(self) -> None:
        while True:
            await asyncio.sleep(1)
            now = time.monotonic()
            for relay in list(self._relays.values()):
                relay.check_time(now)
            self.metrics.waiting.set(self._turns.waiting)
            registry, metrics = self.registry, self.metrics
            for pool, gauge in (
                (registry.pool, metrics.workers),
                (registry.planners, metrics.planners),
            ):
                for state, count in pool.count().items():
                    gauge.labels(state).set(count)
            self._connections.log_crowds()


def serving(policies: Sequence[str], options: Options) -> None:
    """Serve datasets until told to stop."""
    asyncio.run(Server(policies, options).run())


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
    return "inferred" if result.numbers else "public"  # shown or not


def _failure(error: Error) -> str:
    """Return the outcome label of a statement that failed."""
    if isinstance(error, InsufficientBudgetError):
        return "refused"
    return "canceled" if isinstance(error, QueryCanceledError) else "failed"
