"""What it costs to build a cube, beside a plain GROUP BY of the same columns where the rows are.

    python examples/benchmarks/sources.py files [ROWS [TURNS]] Parquet in folders, one a month
    python examples/benchmarks/sources.py postgres DSN [ROWS]  a table of PostgreSQL, dropped then
    python examples/benchmarks/sources.py streamed [ROWS]      a file of SQLite's, beside Parquet
    python examples/benchmarks/sources.py cells [ROWS]         statements on a cube of 10^9 cells

A hundred million rows of eight attributes and an amount unless said otherwise, ten million in
PostgreSQL, one in SQLite: made up, of five million sorts, in 822,528,000 nominal cells.  Each side
is a process of its own, which says how long it took by the clock and of the processor, and its peak
of memory.
"""

import json
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

# BLAS threads that wait for one another cost more than they bring at these sizes.
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import duckdb
import psycopg

from proxy.engine import Engine, init

AXES = {
    **{"month": 12, "weekday": 7, "hour": 24, "state": 51},
    **{"product": 100, "channel": 4, "new": 2, "age": 10},
}
SORTS = 5_000_000
POLICY = """
dataset: sales
source: {%s}
max_records: 1_000_000_000
outside: error
nulls: error
attributes:
%s
measures:
  amount: {clip: [0, 1000], quantum: 1}
privacy: {budget: 100_000, floor: 0.0001, unit: row}
"""
FEW = {"state": 51, "product": 100, "channel": 4}  # the small cube's: 20,400 cells


def columns(axes=AXES):
    """Return the SQL of made-up rows' columns, of the number i."""
    sort = f"(hash(i) % {SORTS})"
    return ", ".join(
        f"CAST(hash({sort} * 31 + {place}) % {size} AS INTEGER) AS {name}"
        for place, (name, size) in enumerate(axes.items())
    )


def policy(folder, source, axes=AXES):
    """Write the policy of a source; return its path."""
    lines = [f"  {name}: {{type: integer, range: [0, {size - 1}]}}" for name, size in axes.items()]
    path = folder / "sales.yaml"
    path.write_text(POLICY % (source, "\n".join(lines)))
    return path


def grouping(of):
    """Return the SQL of a plain GROUP BY."""
    names = ", ".join(AXES)
    return f"SELECT {names}, count(*) AS n, sum(amount) AS s FROM {of} GROUP BY {names}"


def spent(what, *arguments):
    """Return what a process of its own says of ``what``: seconds, of the processor, MB."""
    done = subprocess.run(
        [sys.executable, __file__, what, *map(str, arguments)],
        check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def one(what, *arguments):
    """Do what ``spent`` asks for."""
    start = time.perf_counter()
    match what, arguments:
        case "init", [path, state]:
            init(Path(path), Path(state))
        case "group", [files, out]:
            with duckdb.connect(out) as connection:
                of = f"read_parquet('{files}', hive_partitioning = true)"
                connection.execute("SET preserve_insertion_order = false")
                connection.execute(f"CREATE TABLE cells AS {grouping(of)}")
    used = resource.getrusage(resource.RUSAGE_SELF)
    found = (time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
    print(json.dumps(found))


def show(what, found):
    """Print what a process took."""
    print(f"{what:<14}{found[0]:8.1f} s {found[1]:8.1f} s of CPU {found[2]:8.0f} MB", flush=True)


def made(folder, rows):
    """Write rows to Parquet files in folders; return what finds them."""
    where = folder / "sales"
    duckdb.execute(
        f"COPY (SELECT {columns()}, CAST(hash(i + 1) % 1000 AS INTEGER) AS amount"
        f" FROM range({rows}) t(i)) TO '{where}' (FORMAT parquet, PARTITION_BY (month))"
    )
    return f"{where}/*/*.parquet"


def files(rows=100_000_000, turns=3):
    """Time files, in turns."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = made(folder, int(rows))
        path = policy(folder, "engine: duckdb, path: sales/*/*.parquet")
        ratios = []
        for turn in range(int(turns)):
            plain = spent("group", found, folder / f"plain{turn}.duckdb")
            ours = spent("init", path, folder / f"state{turn}")
            show("GROUP BY", plain)
            show("init", ours)
            ratios.append([ours[k] / plain[k] for k in range(2)])
        clock, cpu = (statistics.median(each) for each in zip(*ratios, strict=True))
        print(
            f"init of {int(rows):,} rows: {clock:.2f} x by the clock, {cpu:.2f} x of CPU (<= 2 x)"
        )


def postgres(dsn, rows=10_000_000):
    """Time a table, in turns; only the clock sees what the server does."""
    with tempfile.TemporaryDirectory() as name, psycopg.connect(dsn, autocommit=True) as remote:
        folder = Path(name)
        kinds = ", ".join(f"{name} integer" for name in [*AXES, "amount"])
        remote.execute(f"CREATE UNLOGGED TABLE privacy_sales ({kinds})".encode())
        try:
            names = [*AXES, "amount"]
            copy = f"COPY privacy_sales ({', '.join(names)}) FROM STDIN (FORMAT csv)"
            many = duckdb.sql(
                f"SELECT {columns()}, CAST(hash(i + 1) % 1000 AS INTEGER) AS amount"
                f" FROM range({int(rows)}) t(i)"
            )
            many.write_csv(str(folder / "rows.csv"), header=False)
            with (
                remote.cursor().copy(copy.encode()) as into,
                (folder / "rows.csv").open("rb") as lines,
            ):
                while block := lines.read(1 << 20):
                    into.write(block)
            remote.execute(b"VACUUM ANALYZE privacy_sales")
            path = policy(folder, f'engine: postgres, dsn: "{dsn}", table: privacy_sales')
            ratios = []
            for turn in range(3):
                start = time.perf_counter()
                remote.execute(f"SELECT count(*) FROM ({grouping('privacy_sales')}) AS q".encode())
                plain = time.perf_counter() - start
                ours = spent("init", path, folder / f"state{turn}")
                print(f"GROUP BY {plain:8.1f} s")
                show("init", ours)
                ratios.append(ours[0] / plain)
            print(f"init of {int(rows):,} rows: {statistics.median(ratios):.2f} x by the clock")
        finally:
            remote.execute(b"DROP TABLE privacy_sales")


def streamed(rows=1_000_000):
    """Time a file of SQLite's, whose records are streamed, beside the same in Parquet."""
    with tempfile.TemporaryDirectory() as name, duckdb.connect() as connection:
        folder, names = Path(name), [*AXES, "amount"]
        select = (
            f"SELECT {columns()}, CAST(hash(i + 1) % 1000 AS INTEGER) AS amount"
            f" FROM range({int(rows)}) t(i)"
        )
        connection.execute(f"COPY ({select}) TO '{folder / 'sales.parquet'}' (FORMAT parquet)")
        found = connection.execute(select)
        with closing(sqlite3.connect(folder / "sales.sqlite")) as made, made:
            made.execute(f"CREATE TABLE sales ({' INTEGER, '.join(names)} INTEGER)")
            while some := found.fetchmany(100_000):
                made.executemany(f"INSERT INTO sales VALUES ({', '.join('?' * len(names))})", some)
        ratios = []
        for turn in range(3):
            both = []
            for source in (
                "engine: duckdb, path: sales.parquet",
                "engine: sqlalchemy, url: 'sqlite:///sales.sqlite', table: sales",
            ):
                both.append(
                    spent("init", policy(folder, source), folder / f"state{turn}{source[8]}")
                )
                show(source[8:18], both[-1])
            ratios.append(both[1][1] / both[0][1])
        print(f"init of {int(rows):,} rows: {statistics.median(ratios):.2f} x of CPU of Parquet's")


def cells(rows=20_000_000):
    """Time statements on the large cube beside a small one of the same rows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made(folder, int(rows))
        engines = []
        for axes, where in ((FEW, "small"), (AXES, "large")):
            path = policy(folder, "engine: duckdb, path: sales/*/*.parquet", axes)
            init(path, folder / where, accept_second_budget=True)
            engines.append(Engine.open(path, folder / where))
        with closing(engines[0]), closing(engines[1]):
            sessions = [engine.session() for engine in engines]
            for what, width in (("measured", 3000), ("inferred", 60_000)):
                times = [[], []]
                for turn in range(200):
                    text = (
                        f"SELECT COUNT(*) AS n{turn} FROM sales WHERE state = {turn % 51}"
                        f" AND product < {50 + turn // 51}"
                        f" WITH UTILITY ({width - turn}, 0.05)"
                    )
                    for session, taken in zip(sessions, times, strict=True):
                        start = time.process_time()
                        session.execute(text)
                        taken.append(time.process_time() - start)
                small, large = (statistics.median(each[20:]) * 1e3 for each in times)
                first = times[1][0] * 1e3
                print(
                    f"{what}: {small:.1f} ms of CPU on 20,400 cells, {large:.1f} ms on"
                    f" {5 * 10**6:,} of 822,528,000, {large / small:.2f} x (<= 1.5 x);"
                    f" the first touch of a scope {first:.0f} ms"
                )


COMMANDS = {"files": files, "postgres": postgres, "streamed": streamed, "cells": cells}

if __name__ == "__main__":
    match sys.argv[1:]:
        case ["init" | "group" as what, *arguments]:
            one(what, *arguments)
        case [what, *arguments] if what in COMMANDS:
            COMMANDS[what](*arguments)
        case _:
            sys.exit(__doc__)
