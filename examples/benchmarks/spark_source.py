"""What a cube built by Spark costs beside Spark's own GROUP BY of the same columns.

    python examples/benchmarks/spark_source.py               ten million rows, here, on all cores
    python examples/benchmarks/spark_source.py --rows 1e6 --master local[2]

Rows of eight attributes and a measure are generated as Parquet; each value is a cell, so that both
have as many groups (128,000).  Both sides are timed by the clock
in one run, in turns, and so is their CPU time: that of this process and of its Java.  The first
turn, in which Java compiles, is left out.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import duckdb

from proxy.cube import build
from proxy.cube.sources.spark import _session
from proxy.policy import load

POLICY = """
dataset: people
source: {{engine: spark, master: '{master}', path: people}}
max_records: 2_000_000_000
outside: drop
nulls: drop
attributes:
  age: {{type: integer, range: [0, 7]}}
  state: {{type: integer, range: [0, 9]}}
  industry: {{type: integer, range: [0, 4]}}
  sex: {{values: [a, b]}}
  married: {{type: boolean}}
  degree: {{values: [a, b, c, d, e]}}
  joined: {{from: 2020-01-01, to: 2023-12-31, bin: year}}
  score: {{type: decimal, edges: [0, 0.25, 0.5, 0.75, 1]}}
measures:
  income: {{clip: [0, 1000], quantum: 1}}
privacy: {{budget: 1, unit: row}}
utility: {{half_width: 100, delta: 0.05}}
"""
ROWS = """
SELECT CAST(hash(i, 1) % 8 AS INTEGER) AS age, CAST(hash(i, 2) % 10 AS INTEGER) AS state,
       CAST(hash(i, 3) % 5 AS INTEGER) AS industry,
       chr(CAST(97 + hash(i, 4) % 2 AS INTEGER)) AS sex, hash(i, 5) % 2 = 0 AS married,
       chr(CAST(97 + hash(i, 6) % 5 AS INTEGER)) AS degree,
       make_date(CAST(2020 + hash(i, 7) % 4 AS INTEGER), 1, 1) AS joined,
       CAST(hash(i, 8) % 4 / 4 AS DECIMAL(9, 3)) AS score, hash(i, 9) % 120000 / 100 AS income
FROM range({}, {}) AS t(i)
"""
COLUMNS = "age, state, industry, sex, married, degree, joined, score"
PART = 1_000_000  # rows of a file


def cpu():
    """Return the CPU time of this process, and of its children that run."""
    tick, total = os.sysconf("SC_CLK_TCK"), 0.0
    mine = {os.getpid()}
    for _ in range(4):  # generations
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) in mine:
                mine.add(int(path.parent.name))
    for pid in mine:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / tick
    return total


def timed(work):
    """Return seconds by the clock, and of CPU."""
    begun, before = time.perf_counter(), cpu()
    work()
    return time.perf_counter() - begun, cpu() - before


def main():
    """Print both times, and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=float, default=10e6)
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--turns", type=int, default=3)
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        (folder / "people").mkdir()
        with duckdb.connect() as connection:
            for i, start in enumerate(range(0, int(chosen.rows), PART)):
                rows = ROWS.format(start, min(start + PART, int(chosen.rows)))
                connection.execute(f"COPY ({rows}) TO '{folder}/people/{i}.parquet'")
        (folder / "policy.yaml").write_text(POLICY.format(master=chosen.master))
        policy = load(folder / "policy.yaml")
        plain = f"SELECT {COLUMNS}, count(*) AS n, sum(income) AS s FROM people GROUP BY {COLUMNS}"
        with _session(policy) as spark:  # runs on, so that builds use it
            spark.read.parquet(str(folder / "people")).createOrReplaceTempView("people")
            spark.conf.set("spark.sql.parquet.mergeSchema", "true")
            turns = {"GROUP BY": [], "cube": []}
            for turn in range(chosen.turns + 1):
                sides = {
                    "GROUP BY": lambda: spark.sql(plain).toArrow(),
                    "cube": lambda: build(policy, folder / "cube", "ledger"),
                }
                for name, work in sides.items():
                    seconds = timed(work)
                    turns[name] += [seconds] * (turn > 0)
        for i, what in enumerate(("s by the clock", "s of CPU")):
            found = {name: statistics.median(s[i] for s in each) for name, each in turns.items()}
            plainly, cube = found.values()
            print(
                f"{chosen.rows:,.0f} rows: GROUP BY {plainly:.1f}, cube {cube:.1f} {what}:"
                f" {cube / plainly:.2f} times"
            )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
