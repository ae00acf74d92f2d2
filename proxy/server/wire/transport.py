"""A connection to a client or a mirror: bytes become messages, with backpressure both ways.

Messages wait in a queue for ``get``, or go straight to ``on_message`` once it is set.  A sender
that is faster than its reader is paused; one that has not logged in, and sends much that nobody
has asked for, is closed.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from proxy.server.wire.frames import FrameError, Frames, TooLongError

PIECE = 1 << 15  # bytes that are read at a time
HIGH = 1 << 20  # bytes of queued messages before reading pauses
LINGER = 1.0  # seconds that a connection that broke the protocol is read on, at most
QUIET = 0.05  # seconds without a byte after which it is told that nothing more will come
AHEAD = 1 << 14  # bytes that may arrive behind a message before login: what begins TLS, at most


class ConnectionClosed(Exception):
    """The other side closed the connection, or broke the protocol."""


class Transport(asyncio.BufferedProtocol):
    """The transport to a client or to a mirror."""

    def __init__(
        self, frames: Frames, on_connected: Callable[[Transport], None] | None = None
    ) -> None:
        self.frames = frames
        self.stranger = frames.startup  # not logged in yet: messages are taken one at a time
        self.binding = b""  # of the TLS channel: that of the certificate that it began with
        self.on_message: Callable[[bytes, bytes], None] | None = None
        self.on_rows: Callable[[bytes], None] | None = None  # runs of DataRow, if set
        self._buffer = bytearray(PIECE)
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.raw: asyncio.Transport | None = None  # asyncio's own
        self._on_connected = on_connected
        self._queue: deque[tuple[bytes, bytes]] = deque()
        self._queued = 0
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self.on_writable: Callable[[bool], None] | None = None
        self.broken: FrameError | None = None  # how the other side broke the protocol
        self._dropped: int | None = None  # bytes that came after all was said; None: it was not

    # --- asyncio's side --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep asyncio's transport, and set the socket's options."""
        assert isinstance(transport, asyncio.Transport)
        self.raw = transport
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            with suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._on_connected is not None:
            self._on_connected(self)

    def get_buffer(self, sizehint: int) -> bytearray:
        """Return where the next bytes go: not many, as all connections take turns."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Feed the framing with what has arrived."""
        if self._dropped is not None:
            self._dropped += nbytes
            return
        self.frames.feed(self._buffer[:nbytes])
        self.pump()

    def pump(self) -> None:
        """Turn bytes into messages."""
        try:
            while not self.broken and not (self.stranger and self._queue):
                if self.on_rows is not None and (rows := self.frames.rows()):
                    self.on_rows(rows)
                if (message := self.frames.next()) is None:
                    break
                if self.on_message is not None:
                    self.on_message(*message)
                    continue
                self._queue.append(message)
                self._queued += len(message[1]) + 5
            if self.stranger and self.frames.waiting > AHEAD:
                raise TooLongError("more than a login needs was sent")
        except FrameError as error:
            self.broken = error
            self.frames.rest()
            self.pause(True)
            self._end()
        if self._queued > HIGH:
            self.pause(True)
        self._arrived.set()

    def eof_received(self) -> None:
        """Close: the protocol has no half-closed connections."""
        self._end()

    def connection_lost(self, error: Exception | None) -> None:
        """Close."""
        self._end()

    def pause_writing(self) -> None:
        """Make ``drain`` wait."""
        self._writable.clear()
        if self.on_writable is not None:
            self.on_writable(False)

    def resume_writing(self) -> None:
        """Let ``drain`` return."""
        self._writable.set()
        if self.on_writable is not None:
            self.on_writable(True)

    def _end(self) -> None:
        if not self.closed.done():
            self.closed.set_result(None)
        self._arrived.set()
        self._writable.set()

    # --- the server's side -----------------------------------------------------------------------

    async def get(self) -> tuple[bytes, bytes]:
        """Return the next message.

        Raises:
            ConnectionClosed: no message will come.
            FrameError: what came is none.
        """
        while not self._queue:
            if self.closed.done():
                raise self.broken or ConnectionClosed
            self.pump()
            self._arrived.clear()
            if not self._queue and not self.closed.done():
                await self._arrived.wait()
        message = self._queue.popleft()
        self._queued -= len(message[1]) + 5
        if self._queued < HIGH // 2:
            self.pause(False)
        return message

    def write(self, data: bytes) -> None:
        """Send bytes, or queue them; bytes for a closed connection are dropped."""
        if data and self._dropped is None and self.raw is not None and not self.raw.is_closing():
            self.raw.write(data)

    async def drain(self) -> None:
        """Wait until the write buffer has room.

        Raises:
            ConnectionClosed: it never will.
        """
        await self._writable.wait()
        if self.closed.done():
            raise ConnectionClosed

    def pause(self, paused: bool) -> None:
        """Pause or resume reading."""
        if self.raw is not None and not self.raw.is_closing():
            with suppress(RuntimeError):
                self.raw.pause_reading() if paused else self.raw.resume_reading()

    def close(self) -> None:
        """Close once the write buffer has been sent."""
        if self.raw is not None:
            if self.broken and not self.stranger:
                self._linger(self.raw)
            else:
                self.raw.close()
        self._end()

    def _linger(self, raw: asyncio.Transport) -> None:
        """Read on, and drop it: bytes left unread would take back what the client is told.

        It is told the end when it pauses: libpq does not look at why, if it comes as it sends.
        """
        if self._dropped is None and not raw.is_closing():
            self._dropped = 0
            self.pause(False)
            loop = asyncio.get_running_loop()
            loop.call_later(QUIET, self._end_if_quiet, raw, 0)
            loop.call_later(LINGER, raw.close)

    def _end_if_quiet(self, raw: asyncio.Transport, dropped: int | None) -> None:
        if raw.is_closing():
            return
        if self._dropped != dropped:
            loop = asyncio.get_running_loop()
            loop.call_later(QUIET, self._end_if_quiet, raw, self._dropped)
        elif raw.can_write_eof():
            raw.write_eof()
        else:
            raw.close()

    def abort(self) -> None:
        """Close at once, and drop the write buffer."""
        if self.raw is not None:
            self.raw.abort()
        self._end()
