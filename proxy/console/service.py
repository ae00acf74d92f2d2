"""The console on a port: beside a server in its event loop, or by itself."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from proxy.console.app import create_app
from proxy.console.backend import Backend
from proxy.errors import OperationalError

CONNECTIONS = 500
GRACE = 5  # seconds for requests that run, when it stops
PATIENCE = 20.0  # seconds for a connection to bring the whole of a request


class Connection(H11Protocol):
    """A connection that is closed where a request does not come whole in time.

    Where there are too many, one of the address that holds most makes place, at first the one that
    has waited longest, so that nobody shuts out the others by staying.
    """

    since = 0.0  # when it began to wait
    _late: asyncio.TimerHandle | None = None

    @property
    def address(self) -> str:
        """Where it comes from."""
        return self.client[0] if self.client else ""

    @property
    def waits(self) -> bool:
        """Whether no whole request is here that is to be answered."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, in the place of another where there are too many."""
        super().connection_made(transport)
        self._wait()
        held = [each for each in self.connections if isinstance(each, Connection)]
        if len(held) > CONNECTIONS:
            of = Counter(each.address for each in held)
            most = [each for each in held if of[each.address] == max(of.values())]
            min(most, key=lambda each: (not each.waits, each.since)).drop()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        if self._late is not None:
            self._late.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._wait()

    def drop(self) -> None:
        """Close it at once."""
        self.connections.discard(self)
        self.transport.abort()

    def _wait(self) -> None:
        self.since = time.monotonic()
        if self._late is not None:
            self._late.cancel()
        self._late = self.loop.call_later(PATIENCE, self._end_if_late)

    def _end_if_late(self) -> None:
        if self.waits:
            self.drop()


class Listener(uvicorn.Server):
    """A server of HTTP that leaves the signals to whoever runs the event loop."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class Console:
    """The console of a backend on an address; its certificate can be read again."""

    def __init__(
        self, host: str, port: int, files: tuple[Path, Path] | None = None, flag: str = "--console"
    ) -> None:
        self.host, self.port, self._flag = host, port, flag
        self._context = None if files is None else ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if files is not None:
            self.renew(files)
        self._socket: socket.socket | None = None
        self._listener: Listener | None = None
        self._serving: asyncio.Task[None] | None = None

    def renew(self, files: tuple[Path, Path]) -> None:
        """Read the certificate and its key; connections that are made from now on have it."""
        if self._context is not None:
            self._context.load_cert_chain(*files)

    def bind(self) -> None:
        """Take the port.

        Raises:
            OperationalError: it is taken, or not to be had.
        """
        try:
            family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            self._socket = socket.create_server((self.host, self.port), family=family, backlog=512)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
            where = f"{self._flag} {self.host}:{self.port}"
            raise OperationalError(f"{where}: {why}") from None
        self.port = self._socket.getsockname()[1]

    @property
    def url(self) -> str:
        """Where a browser finds it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self._context else ''}://{host}:{self.port}/"

    async def start(self, backend: Backend) -> None:
        """Serve on the port."""
        if self._socket is None:
            self.bind()
        assert self._socket is not None
        config = uvicorn.Config(
            create_app(backend, secure=self._context is not None),
            http=Connection,
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            ws="none",
            lifespan="on",
            timeout_graceful_shutdown=GRACE,
        )
        config.load()
        config.ssl = self._context
        self._listener = Listener(config)
        self._serving = asyncio.create_task(self._listener.serve([self._socket]))
        while not self._listener.started and not self._serving.done():
            await asyncio.sleep(0.01)
        if self._serving.done():
            self._serving.result()

    async def stop(self) -> None:
        """Let requests that run end, for a while, and close the port."""
        if self._listener is not None and self._serving is not None:
            self._listener.should_exit = True
            await asyncio.wait({self._serving})
        if self._socket is not None:
            self._socket.close()
