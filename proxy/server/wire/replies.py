"""The replies expected from the mirror, in order, and what of them the client may see.

Each message to the mirror announces the reply that ends it.  A reply may be hidden (its message is
one of our own), captured for us to read, or, if it is an error, replaced by our own.  After an
error the mirror skips to the next Sync, so the expectations up to it are void.
Invariant: replies are matched to messages one by one; nothing hidden reaches the client.
"""

from __future__ import annotations

import re
import struct
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from proxy.server.wire.frames import frame
from proxy.server.wire.messages import cstring

ENDS = {  # message: the replies that end it
    b"P": b"1",
    b"B": b"2",
    b"D": b"Tn",
    b"E": b"CIs",
    b"C": b"3",
    b"S": b"Z",
    b"Q": b"Z",
    b"F": b"Z",
}
TRANSACTION_ENDS = ((b"Z", b"I"), (b"C", b"COMMIT\0"))  # ROLLBACK may be to a savepoint
ANY_TIME = b"NSA"  # notice, parameter, notification


@dataclass
class Expected:
    """An expected reply."""

    ends: bytes
    hide: bool = False
    hide_error: bool = False  # of a hidden one: the sender of its message reports it
    hide_end: bool = False  # only the ReadyForQuery: more statements of the same message follow
    error: bytes | None = None  # replaces the mirror's ErrorResponse
    tag: bytes | None = None  # replaces the command tag
    shift: int = 0  # characters of the client's message before the statement
    captured: list[tuple[bytes, bytes]] = field(default_factory=list)  # of hidden replies
    failed: bool = False  # or skipped
    done: bool = False
    transaction: int = 0  # in which it was done

    @property
    def answered(self) -> bool:
        """Whether the mirror has answered, or will not."""
        return self.done or self.failed


class Replies:
    """The replies of one connection to the mirror."""

    def __init__(self) -> None:
        self._expected: deque[Expected] = deque()
        self.failed = False  # since the last Sync: the mirror skips
        self.status = b"I"  # idle, in a transaction, in a failed one
        self.transaction = 0  # how many have ended
        self.parameters: dict[bytes, bytes] = {}

    def expect(self, kind: bytes, **how: Any) -> Expected:
        """Announce the reply to a message of this kind."""
        expected = Expected(ENDS[kind], **how)
        if self.failed and expected.ends != b"Z" and self.settled:
            expected.failed = True  # the mirror skips it
        else:
            self._expected.append(expected)
        return expected

    @property
    def settled(self) -> bool:
        """Whether all replies have come that can come before the next message is sent."""
        if self.failed:  # the mirror skips; only a Sync that is under way is answered
            return not any(expected.ends == b"Z" for expected in self._expected)
        return not self._expected

    @property
    def shows_rows(self) -> bool:
        """Whether the client gets the rows that come now."""
        return not self._expected or not self._expected[0].hide

    def got(self, kind: bytes, body: bytes) -> bytes:
        """Return what the client gets of a message from the mirror, perhaps nothing."""
        if kind == b"S":
            name, at = cstring(body, 0)
            self.parameters[name] = cstring(body, at)[0]
            return frame(kind, body)
        if kind in ANY_TIME:
            hidden = kind == b"N" and self._expected and self._expected[0].hide
            return b"" if hidden else frame(kind, body)
        if kind == b"Z":
            self.status, self.failed = body, False
            self._skip()
        if (kind, body) in TRANSACTION_ENDS:
            self.transaction += 1
        if not self._expected:
            return frame(kind, body)  # FATAL, on its own account
        expected = self._expected[0]
        if kind == b"E":
            return self._error(expected, body)
        end = kind in expected.ends
        if end:
            expected.done, expected.transaction = True, self.transaction
            self._expected.popleft()
        if expected.hide or (end and expected.hide_end):
            expected.captured.append((kind, body))
            return b""
        if kind == b"C" and expected.tag is not None:
            body = expected.tag + b"\0"
        return frame(kind, body)

    def _error(self, expected: Expected, body: bytes) -> bytes:
        expected.failed = self.failed = True
        self._skip()
        body = _shifted(body, expected.shift) if expected.shift else body
        if expected.hide_error:
            expected.captured.append((b"E", body))
            return b""
        return frame(b"E", body) if expected.error is None else expected.error

    def _skip(self) -> None:
        """Fail what the mirror skips: everything before the next Sync."""
        while self._expected and self._expected[0].ends != b"Z":
            self._expected.popleft().failed = True


def _shifted(body: bytes, shift: int) -> bytes:
    """Return an error's body with its position moved by ``shift`` characters."""
    parts = body.split(b"\0")
    moved = [b"P%d" % (int(p[1:]) + shift) if re.fullmatch(rb"P\d+", p) else p for p in parts]
    return b"\0".join(moved)


def flush() -> bytes:
    """Return a Flush, which makes the mirror send its pending output."""
    return b"H" + struct.pack("!i", 4)
