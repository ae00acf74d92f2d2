"""The console on a port: beside a server in its event loop, or by itself."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from proxy.console.app import create_app
from proxy.console.backend import Backend
from proxy.errors import OperationalError

CONNECTIONS = 500  # past which a newcomer takes the place of another
GRACE = 5  # seconds for requests that run, when it stops


class Listener(uvicorn.Server):
    """A server of HTTP that leaves the signals to whoever runs the event loop."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class Connection(H11Protocol):
    """A connection.  One too many ends the oldest of the address that holds most, at first one
    without a request under way, so that nobody shuts out the others by staying.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a place."""
        super().connection_made(transport)
        self.since = self.loop.time()
        held = [each for each in self.connections if isinstance(each, Connection)]
        held = [each for each in held if not each.transport.is_closing()]
        if len(held) > CONNECTIONS:
            of = Counter(each.address for each in held)
            most = [each for each in held if of[each.address] == max(of.values())]
            min(most, key=lambda each: (each.busy, each.since)).transport.abort()

    @property
    def address(self) -> str:
        """Where it comes from."""
        return self.client[0] if self.client else ""

    @property
    def busy(self) -> bool:
        """Whether a request is under way."""
        return self.cycle is not None and not self.cycle.response_complete


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
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            ws="none",
            lifespan="on",
            http=Connection,
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
