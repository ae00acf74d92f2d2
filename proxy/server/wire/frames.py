"""PostgreSQL's framing, without I/O: bytes in, whole messages out.

    startup    int32 length (itself included), int32 code, rest; or TLS begins at once
    otherwise  byte type, int32 length (itself included, the type not), body

Invariant: nothing longer than the limit is ever collected; the limit is small before login.
"""

from __future__ import annotations

import struct

from proxy.errors import OperationalError

LOGIN_LIMIT = 10_000  # bytes of a message before login
SSL, GSS, CANCEL = 80877103, 80877104, 80877102
ROW = ord("D")
SHORT_LIMIT = 10_000  # bytes of a message with a name or with nothing: PostgreSQL's limit
SHORT_KINDS = frozenset(b"CDEHScfX")
STARTUP = b""  # the type of a message that has none
DIRECT = b"\x16"  # TLS that begins without a request for it; no message, and not taken


class FrameError(OperationalError):
    """The bytes are no PostgreSQL message, or one that is too long."""

    sqlstate = "08P01"  # protocol_violation


class TooLongError(FrameError):
    """A message is longer than it may be."""

    sqlstate = "54000"  # program_limit_exceeded


class Frames:
    """The messages of one direction of one connection."""

    def __init__(self, limit: int = LOGIN_LIMIT, startup: bool = False) -> None:
        self.limit = limit
        self.startup = startup  # the next message is one without a type
        self.short: frozenset[int] = frozenset()  # types of messages that are never long
        self._data = bytearray()

    def feed(self, data: bytes | bytearray) -> None:
        """Take what has arrived."""
        self._data += data

    def next(self) -> tuple[bytes, bytes] | None:
        """Return the next message, its type and its body; None until it is there.

        Raises:
            FrameError: its length cannot be right.
        """
        if self.startup and self._data[:1] == DIRECT:
            return DIRECT, b""
        head = 4 if self.startup else 5
        if len(self._data) < head:
            return None
        length = struct.unpack_from("!i", self._data, head - 4)[0]
        limit = self.limit
        if self.short and not self.startup and self._data[0] in self.short:
            limit = min(limit, SHORT_LIMIT)
        if length > limit:
            raise TooLongError(f"a message of {length} bytes; {limit} are allowed")
        if length < 4:
            raise FrameError(f"a message of {length} bytes")
        end = head - 4 + length
        if len(self._data) < end:
            return None
        kind = STARTUP if self.startup else bytes(self._data[:1])
        body = bytes(self._data[head:end])
        del self._data[:end]
        return kind, body

    def rows(self) -> bytes:
        """Return the rows that come next, as many as there are whole; none of another kind."""
        data, at, end = self._data, 0, len(self._data)
        while end - at >= 5 and data[at] == ROW:
            length = int.from_bytes(data[at + 1 : at + 5])
            if not 4 <= length <= self.limit or at + 1 + length > end:
                break  # ``next`` says why, or waits
            at += 1 + length
        run = bytes(data[:at])
        del data[:at]
        return run

    def rest(self) -> bytes:
        """Give up what is no message."""
        rest = bytes(self._data)
        self._data.clear()
        return rest

    @property
    def waiting(self) -> int:
        """The number of bytes that are not yet a message."""
        return len(self._data)


def frame(kind: bytes, body: bytes = b"") -> bytes:
    """Return a message."""
    return kind + struct.pack("!i", len(body) + 4) + body
