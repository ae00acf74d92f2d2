"""The messages of the protocol that the server reads or writes itself, as values."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from msgspec import Struct

from proxy.errors import Error
from proxy.server.wire.frames import FrameError, frame

TEXT = 0
NULL = -1  # the length of a value that is none


class Report(Struct, frozen=True):
    """An error or a notice: PostgreSQL's fields by their letters."""

    severity: str
    sqlstate: str
    message: str
    detail: str | None = None
    hint: str | None = None
    position: int | None = None

    @classmethod
    def of(cls, error: Error, offset: int = 0) -> Report:
        """Return an error as it is sent, its position moved to where the statement began."""
        position = None if error.position is None else error.position + offset
        detail = error.detail
        if position is not None and detail is not None and detail.startswith("line "):
            detail = None  # the picture of the position, which clients draw themselves
        return cls("ERROR", error.sqlstate, error.message, detail, error.hint, position)

    def encode(self, encoding: str) -> bytes:
        """Return the message, ErrorResponse or NoticeResponse."""
        fields = {
            "S": self.severity,
            "V": self.severity,
            "C": self.sqlstate,
            "M": self.message,
            "D": self.detail,
            "H": self.hint,
            "P": self.position,
        }
        body = b"".join(
            letter.encode() + str(value).replace("\0", "").encode(encoding, "replace") + b"\0"
            for letter, value in fields.items()
            if value is not None
        )
        kind = b"N" if self.severity in ("NOTICE", "WARNING") else b"E"
        return frame(kind, body + b"\0")


class Parse(Struct, frozen=True):
    """Parse: prepare a statement."""

    name: bytes
    text: bytes
    types: tuple[int, ...]

    @classmethod
    def decode(cls, body: bytes) -> Parse:
        """Read the message."""
        name, at = cstring(body, 0)
        text, at = cstring(body, at)
        count = _unpack("!H", body, at)[0]
        types = _unpack(f"!{count}I", body, at + 2)
        _ends(body, at + 2 + 4 * count)
        return cls(name, text, types)

    def encode(self) -> bytes:
        """Return the message."""
        types = struct.pack(f"!H{len(self.types)}I", len(self.types), *self.types)
        return frame(b"P", self.name + b"\0" + self.text + b"\0" + types)


class Bind(Struct, frozen=True):
    """Bind: a portal from a prepared statement and values."""

    portal: bytes
    statement: bytes
    formats: tuple[int, ...]  # of the values; one for all, or none for text
    values: tuple[bytes | None, ...]
    results: bytes  # the formats of the results, as they came

    @classmethod
    def decode(cls, body: bytes) -> Bind:
        """Read the message."""
        portal, at = cstring(body, 0)
        statement, at = cstring(body, at)
        (count,) = _unpack("!H", body, at)
        formats = _unpack(f"!{count}h", body, at + 2)
        at += 2 + 2 * count
        values, at = _values(body, at)
        (count,) = _unpack("!H", body, at)
        _ends(body, at + 2 + 2 * count)
        return cls(portal, statement, formats, tuple(values), body[at:])

    def encode(self) -> bytes:
        """Return the message."""
        body = self.portal + b"\0" + self.statement + b"\0"
        body += struct.pack(f"!H{len(self.formats)}h", len(self.formats), *self.formats)
        body += struct.pack("!H", len(self.values))
        for value in self.values:
            body += struct.pack("!i", -1) if value is None else struct.pack("!i", len(value))
            body += value or b""
        return frame(b"B", body + self.results)

    def format(self, index: int) -> int:
        """Return the format of a value."""
        if len(self.formats) > 1:
            return self.formats[index]
        return self.formats[0] if self.formats else TEXT


def query(text: bytes) -> bytes:
    """Return a simple query."""
    return frame(b"Q", text + b"\0")


def execute(portal: bytes, rows: int = 0) -> bytes:
    """Return an Execute."""
    return frame(b"E", portal + b"\0" + struct.pack("!i", rows))


def close(kind: bytes, name: bytes) -> bytes:
    """Return a Close of a statement (S) or a portal (P)."""
    return frame(b"C", kind + name + b"\0")


def startup(parameters: Mapping[str, str], version: int) -> bytes:
    """Return a StartupMessage."""
    pairs = "".join(f"{key}\0{value}\0" for key, value in parameters.items())
    body = struct.pack("!i", version) + pairs.encode() + b"\0"
    return struct.pack("!i", len(body) + 4) + body


def startup_code(body: bytes) -> int:
    """Return what the body of a message without a type begins with: a version, or a request."""
    if len(body) < 4:
        raise FrameError("invalid length of startup packet")
    return int(_unpack("!i", body, 0)[0])


def read_startup(body: bytes) -> dict[str, str]:
    """Return the parameters in a StartupMessage's body, which begins with the version."""
    parts = body[4:].split(b"\0")
    if len(body) < 5 or body[-1:] != b"\0" or len(parts) % 2:
        raise FrameError("invalid startup packet layout")
    try:
        texts = [part.decode() for part in parts[: len(parts) // 2 * 2]]
    except UnicodeDecodeError:
        raise FrameError("the startup packet is not UTF-8") from None
    return {key: value for key, value in zip(texts[::2], texts[1::2], strict=True) if key}


def read_sasl(body: bytes) -> tuple[bytes, bytes]:
    """Return the mechanism and the first message in a SASLInitialResponse."""
    mechanism, at = cstring(body, 0)
    (length,) = _unpack("!i", body, at)
    _ends(body, at + 4 + length)
    return mechanism, body[at + 4 :]


def read_query(body: bytes) -> bytes:
    """Return the text in a Query."""
    text, at = cstring(body, 0)
    _ends(body, at)
    return text


def read_execute(body: bytes) -> tuple[bytes, int]:
    """Return the portal and the greatest number of rows in an Execute; 0: as many as there are."""
    name, at = cstring(body, 0)
    (rows,) = _unpack("!i", body, at)
    _ends(body, at + 4)
    return name, max(rows, 0)


def read_target(body: bytes, message: str) -> tuple[bytes, bytes]:
    """Return what a Describe or Close is about: S or P, and its name."""
    if body[:1] not in (b"S", b"P"):
        raise FrameError(f"invalid {message} message subtype {body[0] if body else 0}")
    name, at = cstring(body, 1)
    _ends(body, at)
    return body[:1], name


def data_row(body: bytes) -> list[bytes | None]:
    """Return the values of a DataRow."""
    return _values(body, 0)[0]


def _values(body: bytes, at: int) -> tuple[list[bytes | None], int]:
    """Return the values that are counted at a place, None for NULL, and the place behind them."""
    (count,) = _unpack("!H", body, at)
    at += 2
    values: list[bytes | None] = []
    for _ in range(count):
        (length,) = _unpack("!i", body, at)
        at += 4
        if length == NULL:
            values.append(None)
            continue
        if not 0 <= length <= len(body) - at:
            raise FrameError("insufficient data left in message")
        values.append(body[at : at + length])
        at += length
    return values, at


def _ends(body: bytes, at: int) -> None:
    """Refuse a message that goes on behind its end, or ends before."""
    if len(body) != at:
        raise FrameError("invalid message format")


def fields(body: bytes) -> dict[str, bytes]:
    """Return the fields of an ErrorResponse or NoticeResponse by their letters."""
    return {part[:1].decode(): part[1:] for part in body.split(b"\0") if part}


def cstring(body: bytes, at: int) -> tuple[bytes, int]:
    """Return the text that begins at a place, and the place behind it."""
    end = body.find(b"\0", at)
    if end < 0:
        raise FrameError("invalid string in message")
    return body[at:end], end + 1


def _unpack(form: str, body: bytes, at: int) -> tuple[int, ...]:
    try:
        return struct.unpack_from(form, body, at)
    except struct.error:
        raise FrameError("insufficient data left in message") from None
