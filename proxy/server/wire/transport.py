"""One side of a connection: bytes become messages, and both directions have a bound.

Messages wait in a queue until they are asked for, or go straight to ``on_message`` once it is set.
Whoever sends more than is read is made to wait.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from proxy.server.wire.frames import DIRECT, FrameError, Frames

HIGH = 1 << 20  # bytes that may wait


class Gone(Exception):
    """The other side has closed, or sent what is no message."""


class Peer(asyncio.Protocol):
    """A client, or a mirror."""

    def __init__(self, frames: Frames, on_made: Callable[[Peer], None] | None = None) -> None:
        self.frames = frames
        self.on_message: Callable[[bytes, bytes], None] | None = None
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport | None = None
        self._on_made = on_made
        self._queue: deque[tuple[bytes, bytes]] = deque()
        self._queued = 0
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self.on_writable: Callable[[bool], None] | None = None
        self.broken: FrameError | None = None  # what came was no message

    # --- asyncio's side --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            with suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._on_made is not None:
            self._on_made(self)

    def data_received(self, data: bytes) -> None:
        """Take what has arrived."""
        self.frames.feed(data)
        self.pump()

    def pump(self) -> None:
        """Turn bytes into messages, one at a time before login."""
        try:
            while not self.broken and (message := self.frames.next()) is not None:
                if self.on_message is not None:
                    self.on_message(*message)
                    continue
                self._queue.append(message)
                self._queued += len(message[1]) + 5
                if self.frames.startup:
                    self.pause(message[0] == DIRECT)
                    break  # the next one may come under TLS, or have another form
        except FrameError as error:
            self.broken = error
            self.pause(True)
            self._end()
        if self._queued > HIGH:
            self.pause(True)
        self._arrived.set()

    def eof_received(self) -> None:
        """End: nobody half-closes a connection of this protocol."""
        self._end()

    def connection_lost(self, error: Exception | None) -> None:
        """End."""
        self._end()

    def pause_writing(self) -> None:
        """Wait before more is written."""
        self._writable.clear()
        if self.on_writable is not None:
            self.on_writable(False)

    def resume_writing(self) -> None:
        """Go on."""
        self._writable.set()
        if self.on_writable is not None:
            self.on_writable(True)

    def _end(self) -> None:
        if not self.gone.done():
            self.gone.set_result(None)
        self._arrived.set()
        self._writable.set()

    # --- our side --------------------------------------------------------------------------------

    async def get(self) -> tuple[bytes, bytes]:
        """Return the next message.

        Raises:
            Gone: there will be none.
        """
        while not self._queue:
            if self.gone.done():
                raise Gone
            self.pump()
            self._arrived.clear()
            if not self._queue and not self.gone.done():
                await self._arrived.wait()
        message = self._queue.popleft()
        self._queued -= len(message[1]) + 5
        if self._queued < HIGH // 2:
            self.pause(False)
        return message

    def write(self, data: bytes) -> None:
        """Send bytes, now or soon."""
        if data and self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    async def drain(self) -> None:
        """Wait until more may be written."""
        await self._writable.wait()
        if self.gone.done():
            raise Gone

    def pause(self, paused: bool) -> None:
        """Read no more for now, or go on."""
        if self.transport is not None and not self.transport.is_closing():
            with suppress(RuntimeError):
                self.transport.pause_reading() if paused else self.transport.resume_reading()

    def close(self) -> None:
        """Close, when what was written has gone."""
        if self.transport is not None:
            self.transport.close()
        self._end()

    def abort(self) -> None:
        """Close at once."""
        if self.transport is not None:
            self.transport.abort()
        self._end()
