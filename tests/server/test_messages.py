"""Messages whose numbers and texts are not what they should be, in every state of a session.

Each ends in PostgreSQL's error with a state of its own, or in an answer; where the message has an
end that can be found, the session goes on.  Nothing that a number says is believed before it has
been compared with what is there: the server's memory stays as it was.
"""

import contextlib
import itertools
import os
import random
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.server.statements.routing import Reject, route
from proxy.server.wire.frames import FrameError, frame
from proxy.server.wire.messages import Bind, Parse, query
from tests.server.serving import COUNT
from tests.server.test_attacks import SYNC, memory

SHORTS = (0, 1, 2, 0x7FFF, 0x8000, 0xFFFF)
LONGS = (0, 1, -1, -2, 5, 65536, 2**31 - 1, -(2**31))
TEXTS = (b"", b"\0", b"s\0", b"s", b"\xff\xfe\0", b"x" * 5000 + b"\0")
ASK = b"SELECT COUNT(*) FROM cps1988 WHERE education = $1"
NUMBERS = ("0", "00", "65535", "65536", "99999999999", "268435455", "2147483648", "9" * 3000, "²")
SQL = (
    "SELECT COUNT(*) FROM cps1988 WHERE education = ${}",
    "SELECT ${}",
    "SELECT 1 FROM pg_class WHERE oid = ${}::int",
    "PREPARE many AS SELECT ${}::int",
    "PREPARE many AS SELECT COUNT(*) FROM cps1988 WHERE education = ${}",
    "DECLARE c CURSOR FOR SELECT COUNT(*) FROM cps1988 WHERE education = ${}",
    "EXPLAIN UTILITY SELECT COUNT(*) FROM cps1988 WHERE education = ${}",
    "EXPLAIN SELECT ${}",
    "EXPLAIN EXECUTE many(${})",
    "/* a */ EXECUTE many(${})",
)
STATES = {
    "idle": b"",
    "in a transaction": query(b"BEGIN"),
    "in one that failed": query(b"BEGIN") + query(b"!"),
    "behind an error": Parse(b"", b"!", ()).encode(),
    "with statement and portal": (
        query(b"BEGIN")
        + Parse(b"s", ASK, ()).encode()
        + Bind(b"p", b"s", (), (b"5",), b"\0\0").encode()
        + SYNC
    ),
}
FATAL = ("08P01", "54000", "28P01", "28000", "0A000")


def short(number):
    return struct.pack("!H", number)


def long(number):
    return struct.pack("!i", number)


def bodies():
    """Yield messages, type and body, with every field at its ends in turn."""
    for text in TEXTS:
        yield b"Q", text
        yield b"P", text
        yield b"P", text + b"SELECT 1"
        yield b"B", text
        yield b"E", text
        for kind in (b"", b"S", b"P", b"X", b"\0"):
            yield b"D", kind + text
            yield b"C", kind + text
    yield b"Q", b"SELECT 1\0SELECT 2\0"
    yield b"Q", COUNT.encode() + b"\0 AND more\0"
    for number in SHORTS:
        yield b"P", b"\0" + ASK + b"\0" + short(number)
        yield b"P", b"\0SELECT 1\0" + short(number) + long(23)
        yield b"B", b"\0s\0" + short(number)
        yield b"B", b"\0s\0" + short(0) + short(number) + long(-1) + short(0)
        yield b"B", b"\0s\0" + short(1) + short(number) + short(1) + long(1) + b"5" + short(0)
        yield b"B", b"\0s\0" + short(0) + short(1) + long(1) + b"5" + short(number)
        yield b"B", b"\0s\0" + short(0) + short(1) + long(1) + b"5" + short(1) + short(number)
        yield b"F", long(2026) + short(number)
        yield b"F", long(2026) + short(0) + short(number) + long(-1) + short(0)
    for number in LONGS:
        yield b"P", b"\0" + ASK + b"\0" + short(1) + long(number)
        yield b"B", b"\0s\0" + short(0) + short(1) + long(number) + b"5" + short(0)
        yield b"E", b"p\0" + long(number)
        yield b"E", b"\0" + long(number)
        yield b"F", long(number) + short(0) + short(0) + short(0)
        yield b"F", long(2026) + short(0) + short(1) + long(number) + b"5" + short(0)
    for kind in (b"S", b"H", b"d", b"c", b"f", b"F"):
        for body in (b"", b"\0", b"xxxx"):
            yield kind, body
    draw = random.Random(1996)
    for kind in b"QPBDECSHFdcf":
        for size in (1, 3, 17, 300):
            yield bytes([kind]), draw.randbytes(size)


def texts():
    """Yield statements with parameters that have the numbers, in Parse and in Query."""
    for sql, number in itertools.product(SQL, NUMBERS):
        text = sql.format(number).encode()
        yield Parse(b"", text, ()).encode() + Bind(b"", b"", (), (), b"\0\0").encode()
        yield query(text)


class Wire:
    """The bytes of a session that has logged in."""

    def __init__(self, server):
        self.connection = server.connect()
        self.socket = socket.socket(fileno=os.dup(self.connection.fileno()))
        self.socket.setblocking(True)
        self.socket.settimeout(20)
        self.data = b""

    def send(self, data):
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(data)

    def answered(self, mark):
        """Return what comes up to the answer to a question of our own; None: the session ended."""
        self.send(SYNC + query(b"ROLLBACK") + query(b"DEALLOCATE ALL"))
        self.send(query(b"SELECT '%b'" % mark))
        found = []
        while not (found and found[-1][:1] == b"D" and mark in found[-1]):
            while len(self.data) < 5 or len(self.data) < self._size():
                try:
                    more = self.socket.recv(1 << 16)
                except ConnectionError:
                    more = b""
                if not more:
                    return [*found, None]
                self.data += more
            found.append(self.data[: self._size()])
            self.data = self.data[self._size() :]
        return found

    def _size(self):
        return struct.unpack_from("!i", self.data, 1)[0] + 1

    def close(self):
        self.socket.close()
        self.connection.close()


def sqlstates(found):
    """Return the states of the errors among messages."""
    errors = [each[5:] for each in found if each and each[:1] == b"E"]
    for error in errors:
        assert b"nternal error" not in error
        assert b"Traceback" not in error
    return [error.split(b"\0C", 1)[1][:5].decode() for error in errors]


@pytest.mark.parametrize("sql", SQL)
def test_a_number_that_no_message_can_fill_reaches_nobody(sql):
    """
    PostgreSQL makes room for all parameters up to a number: it gets none beyond what Bind counts.
    """
    for number in ("65536", "99999999999", "268435455", "00099999999999", "9" * 1000):
        decision = route(sql.format(number), ("cps1988",), "cps1988")
        assert isinstance(decision, Reject)
        assert decision.error.sqlstate == "42P02"
    for text in (sql.format("65535"), f"{sql.format(1)} AND '$99999999999' <> ''"):
        assert not isinstance(route(text, ("cps1988",), "cps1988"), Reject)


@given(st.sampled_from([b"P", b"B"]), st.sampled_from(list(bodies())), st.binary(max_size=8))
def test_what_is_read_is_what_was_sent(kind, case, more):
    """
    A message that is read is, written again, the same to the byte: no length was cut or stretched.
    """
    reader = Parse if kind == b"P" else Bind
    for body in (case[1], case[1] + more, case[1][: -len(more)]):
        with contextlib.suppress(FrameError):
            assert reader.decode(body).encode() == frame(kind, body)


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
def test_a_message_that_cannot_be_read_fails_alone(server, state):
    """
    Whatever the fields of a message hold, the session has an answer or an error to it, and then
    the answer to the next; another session has its own meanwhile, and no memory is taken.
    """
    before = memory(server)
    cases = [frame(*each) for each in bodies()]
    if state == "idle":
        cases += texts()
    wire = Wire(server)
    try:
        with server.connect() as other:
            for i, case in enumerate(cases):
                wire.send(STATES[state] + case)
                found = wire.answered(b"mark %d" % i)
                assert found[-1] is not None, case
                assert not any(each.startswith("XX") for each in sqlstates(found)), case
                if i % 50 == 0:
                    assert other.execute("SELECT 1").fetchone() == (1,)
    finally:
        wire.close()
    assert memory(server) < before + 100


def ends():
    """Yield messages behind which no other can be found, or that have no type."""
    for kind in range(256):
        if bytes([kind]) not in b"QPBDECSHFdcfX":
            yield frame(bytes([kind]), b"abcd\0")
    for kind, length in itertools.product(b"QPBDECSHFdcfX\0", (0, 3, -1, 2**31 - 1, -(2**31))):
        yield bytes([kind]) + long(length) + b"abcd"


@pytest.mark.slow
def test_a_message_without_an_end_ends_its_session(server):
    """
    A length that cannot be right, or a type that there is not, ends the session with an error that
    says so; others go on, and no memory is taken.
    """
    before = memory(server)
    with server.connect() as other:
        for case in ends():
            wire = Wire(server)
            wire.send(case)
            found = wire.answered(b"mark")
            wire.close()
            assert found[-1] is None, case
            if case[:1] != b"X" or sqlstates(found):
                assert sqlstates(found)[-1] in FATAL, case
        assert other.execute("SELECT 1").fetchone() == (1,)
    assert memory(server) < before + 100
