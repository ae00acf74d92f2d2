"""Whatever a connection begins with: it ends with an error of its own, and nobody else notices."""

import contextlib
import itertools
import random
import re
import socket
import struct

import pytest

from proxy.server.wire.frames import frame
from tests.server.test_attacks import opened, startup

SSL, GSS, CANCEL = (struct.pack("!ii", 8, code) for code in (80877103, 80877104, 80877102))
HELLO = startup(user="alice", database="cps1988")
FIRST = b"n,,n=,r=abcdefghijklmnopqrstuvwx"
SASL = frame(b"p", b"SCRAM-SHA-256\0" + struct.pack("!i", len(FIRST)) + FIRST)
CLOSED = None  # without a word


def packet(code, rest=b"", length=None):
    """Return a message without a type; its length is right if it is not given."""
    length = 8 + len(rest) if length is None else length
    return struct.pack("!ii", length, code) + rest


def told(server, data, halt=True):
    """Return all that a connection is told that sends some bytes, and no more."""
    answer = b""
    with opened(server) as wire, contextlib.suppress(ConnectionError):
        wire.sendall(data)
        if halt:
            wire.shutdown(socket.SHUT_WR)
        while part := wire.recv(4096):
            answer += part
    return answer


def errors(answer):
    """Return severity and SQLSTATE of each error in an answer."""
    return re.findall(rb"S(ERROR|FATAL|PANIC)\0V\w+\0C(\w{5})\0", answer)


V3 = 3 << 16
MALFORMED = {
    "length 0": (packet(V3, length=0), b"08P01"),
    "length 3": (packet(V3, length=3), b"08P01"),
    "negative length": (packet(V3, length=-1), b"08P01"),
    "no version": (struct.pack("!i", 4), b"08P01"),
    "half a version": (struct.pack("!ih", 6, 3), b"08P01"),
    "2 GB": (packet(V3, length=2**31 - 1), b"54000"),
    "http": (b"GET / HTTP/1.0\r\n\r\n", b"54000"),
    "version 0": (packet(0), b"0A000"),
    "version 2": (packet(2 << 16, b"user\0alice\0\0"), b"0A000"),
    "version 4": (packet(4 << 16, b"user\0alice\0\0"), b"0A000"),
    "version -1": (packet(-1, b"user\0alice\0\0"), b"0A000"),
    "no parameters": (packet(V3), b"08P01"),
    "no terminator": (packet(V3, b"user\0alice\0"), b"08P01"),
    "no end of a value": (packet(V3, b"user\0alice"), b"08P01"),
    "odd parameters": (packet(V3, b"user\0alice\0database\0\0"), b"08P01"),
    "behind the terminator": (packet(V3, b"user\0alice\0\0x"), b"08P01"),
    "not UTF-8": (packet(V3, b"user\0\xff\xfe\0\0"), b"08P01"),
    "an empty name": (packet(V3, b"user\0\0\0"), b"28000"),
    "no user": (packet(V3, b"database\0cps1988\0\0"), b"28000"),
    "only a terminator": (packet(V3, b"\0"), b"28000"),
    "a request with more": (packet(80877103, b"x"), b"08P01"),
    "bytes behind a request": (SSL + b"x", b"08P01"),
    "many requests": (None, b"08P01"),
    "TLS to who has none": (b"\x16\x03\x01\0\x05hello", b"08P01"),
    "a query for a password": (HELLO + frame(b"Q", b"SELECT 1\0"), b"08P01"),
    "no mechanism": (HELLO + frame(b"p"), b"08P01"),
    "a proof of nothing": (HELLO + SASL + frame(b"p", b"c=biws,r=x,p=x"), b"08P01"),
    "a flood": (HELLO + frame(b"p", b"x" * 9000) * 20, b"54000"),
    "a cancel without a key": (CANCEL, CLOSED),
    "a cancel of nobody": (packet(80877102, b"12345678"), CLOSED),
    "a cancel with a long key": (packet(80877102, b"x" * 5000), CLOSED),
    "nothing": (b"", CLOSED),
    "half a length": (b"\0\0", CLOSED),
    "less than its length": (HELLO[:-5], CLOSED),
}


@pytest.mark.parametrize("data, sqlstate", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_beginning_has_its_own_error(server, data, sqlstate):
    """
    It is FATAL with its SQLSTATE, and the connection is closed, whatever the client does; what asks
    for nothing is closed without a word.
    """
    count = len(server.log)
    if data is None:
        with opened(server) as wire:
            for request in (SSL, GSS, SSL):
                wire.sendall(request)
                assert wire.recv(1) == b"N"
            wire.sendall(SSL)
            answer = wire.recv(4096)
    else:
        answer = told(server, data, halt=sqlstate is CLOSED)
    assert errors(answer) == ([] if sqlstate is CLOSED else [(b"FATAL", sqlstate)])
    assert "internal error" not in "".join(server.log[count:])


EXTREMES = (-(2**31), -1, 0, 1, 2, 3, 4, 5, 7, 8, 9, 255, 9999, 10_000, 10_001, 65536, 2**31 - 1)
CODES = (*EXTREMES, V3, V3 + 1, V3 + 9999, 2 << 16, 80877102, 80877103, 80877104, 80877105)
NAMES = (
    b"",
    b"user",
    b"alice",
    b"database",
    b"options",
    b"_pq_.x",
    b"privacy.check",
    b"\xff",
    b"=",
)


def beginnings(seed):
    """Yield what fuzzed clients send, each in pieces."""
    chance = random.Random(seed)

    def number():
        return (
            chance.choice(EXTREMES)
            if chance.random() < 0.7
            else chance.randint(-(2**31), 2**31 - 1)
        )

    def parameters():
        parts = [chance.choice(NAMES) for _ in range(chance.randint(0, 7))]
        return b"\0".join(parts) + b"\0" * chance.randint(0, 3)

    def one():
        kind = chance.randrange(7)
        if kind == 0:
            return chance.randbytes(chance.choice((1, 3, 8, 50, 500, 12_000)))
        if kind == 1:
            return packet(chance.choice(CODES), parameters(), chance.choice((None, number())))
        if kind == 2:
            whole = chance.choice((HELLO, SSL, GSS, SASL, packet(80877102, bytes(8))))
            return whole[: chance.randrange(len(whole))]
        if kind == 3:
            return chance.choice((SSL, GSS, CANCEL, packet(80877102, chance.randbytes(8))))
        if kind == 4:
            return HELLO
        if kind == 5:
            return (
                chance.choice((b"p", b"Q", b"\0", b"X"))
                + struct.pack("!i", number())
                + parameters()
            )
        first = chance.choice((FIRST, b"", b"y,,", b"p=x,,n=,r=a", chance.randbytes(20)))
        return frame(b"p", b"SCRAM-SHA-256\0" + struct.pack("!i", number()) + first)

    while True:
        yield [one() for _ in range(chance.randint(1, 4))]


def high_water(server):
    """Return the most memory that the server's process has had, in MB."""
    with open(f"/proc/{server.process.pid}/status") as file:
        (line,) = (line for line in file if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


@pytest.mark.parametrize(
    "count", [300, pytest.param(5_000, marks=pytest.mark.slow)], ids=lambda count: f"{count:,}"
)
def test_random_beginnings(server, count):
    """
    Random bytes, truncated messages, every field at its ends, requests in any order: no connection
    is let in or makes an internal error, memory stays, and others are answered all the while.
    """
    with server.connect() as other:
        before, lines = high_water(server), len(server.log)
        for done, pieces in enumerate(itertools.islice(beginnings(count), count)):
            answer = b""
            with opened(server) as wire, contextlib.suppress(ConnectionError):
                for piece in pieces:
                    wire.sendall(piece)
                    wire.settimeout(0.002)
                    with contextlib.suppress(TimeoutError):
                        answer += wire.recv(4096)
                    wire.settimeout(10)
                with contextlib.suppress(OSError):  # closed already
                    wire.shutdown(socket.SHUT_WR)
                while part := wire.recv(4096):
                    answer += part
            assert struct.pack("!cii", b"R", 8, 0) not in answer, pieces
            for severity, sqlstate in errors(answer):
                assert severity == b"FATAL", pieces
                assert sqlstate in (b"08P01", b"54000", b"28000", b"0A000"), pieces
            if done % 100 == 99:
                assert other.execute("SELECT 1").fetchone() == (1,)
        assert high_water(server) < before + 30
    assert "internal error" not in "".join(server.log[lines:])
