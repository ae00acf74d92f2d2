"""The ledger's own part of a measured statement costs no more than a bare commit of its size."""

import sqlite3
import time
from contextlib import closing
from statistics import median

import pytest

from tests.test_ledger import create, measure

COUNT = 100  # commits in a round
ROUNDS = 9


def bare(connection):
    """Commit the last measurement and audit line once more, COUNT times, with nothing around."""
    rows = {
        table: connection.execute(f"SELECT * FROM {table} ORDER BY 1 DESC LIMIT 1").fetchone()
        for table in ("measurements", "audit")
    }

    def run():
        for _ in range(COUNT):
            connection.execute("BEGIN IMMEDIATE")
            for table, row in rows.items():
                places = ",".join("?" * (len(row) - 1))
                connection.execute(f"INSERT INTO bare_{table} VALUES (NULL, {places})", row[1:])
            connection.execute("COMMIT")

    return run


@pytest.mark.slow
def test_a_charge_is_at_least_half_as_fast_as_a_bare_commit(tmp_path, capsys):
    """
    Interleaved rounds in one run, medians: a ledger, and a bare commit of the same rows, both
    durable.  With an anchor, a second file that is synced beside it, a third is left at least.
    """
    (tmp_path / "with").mkdir()
    with (
        closing(create(tmp_path, anchor=None)) as ledger,
        closing(create(tmp_path / "with")) as anchored,
        closing(sqlite3.connect(tmp_path / "bare", isolation_level=None)) as raw,
    ):
        measure(ledger)
        with closing(sqlite3.connect(tmp_path / "ledger")) as source:
            source.backup(raw)
        raw.execute("PRAGMA journal_mode = WAL")
        raw.execute("PRAGMA synchronous = FULL")
        for table in ("measurements", "audit"):
            columns = [row[1] for row in raw.execute(f"PRAGMA table_info({table})")]
            columns[0] += " INTEGER PRIMARY KEY"
            raw.execute(f"CREATE TABLE bare_{table} ({', '.join(columns)})")
        runs = {
            "bare": bare(raw),
            "ledger": lambda: [measure(ledger) for _ in range(COUNT)],
            "with anchor": lambda: [measure(anchored) for _ in range(COUNT)],
        }
        times = {name: [] for name in runs}
        for _ in range(ROUNDS):
            for name, run in runs.items():
                start = time.perf_counter()
                run()
                times[name].append(time.perf_counter() - start)
    rates = {name: COUNT / median(taken) for name, taken in times.items()}
    with capsys.disabled():
        print("\ncommits a second:", {name: round(rate) for name, rate in rates.items()})  # noqa: T201
    assert rates["ledger"] >= rates["bare"] / 2
    assert rates["with anchor"] >= rates["bare"] / 3
