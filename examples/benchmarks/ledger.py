"""How fast the ledger is: measured statements a second beside bare SQLite commits of their size.

    python examples/benchmarks/ledger.py [FOLDER]    about a minute; FOLDER is on the disk to try

Every commit is durable (WAL, synchronous=FULL).  The rounds take turns in one run, so that what
the disk does meets all alike; figures are medians.  Inferred statements take no write lock: with
processes that only read, their rate should grow as far as the machine has processors.
"""

import itertools
import multiprocessing
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

# BLAS threads that wait for one another cost more than they bring at these sizes.
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

from proxy.engine import Engine, init
from proxy.ledger import Measurement
from proxy.ledger.sqlite import SQLiteLedger

ROOT = Path(__file__).parents[2]
COMMITS = 50  # in a round
ROUNDS = 9
SECONDS = 4.0  # of each crowd of readers
READERS = (1, 2, 4, 8)
REGIONS = ("midwest", "northeast", "south", "west")
FREE = [
    f"SELECT COUNT(*) FROM cps1988 WHERE region = '{region}' WITH UTILITY (400, 0.1)"
    for region in REGIONS
]


def state(folder):
    """Make the state of cps1988 with a budget that lasts; return the paths of policy and state."""
    text = (ROOT / "policies" / "cps1988.yaml").read_text()
    text = text.replace("../examples", str(ROOT / "examples")).replace(
        "budget: 1.0", "budget: 100_000"
    )
    policy = folder / "cps1988.yaml"
    policy.write_text(text)
    init(policy, folder / "state", accept_second_budget=True)
    return policy, folder / "state"


def statements():
    """Yield statements none of which follows from the others."""
    parts = (range(19), REGIONS, ("afam", "cauc"), ("no", "yes"), ("no", "yes"))
    for education, region, ethnicity, smsa, parttime in itertools.product(*parts):
        yield (
            f"SELECT COUNT(*) FROM cps1988 WHERE education = {education} AND region = '{region}' "
            f"AND ethnicity = '{ethnicity}' AND smsa = '{smsa}' AND parttime = '{parttime}' "
            "WITH UTILITY (30, 0.05)"
        )


def whole(engine):
    """Measured statements, from the text to the rows."""
    session, texts = engine.session(), statements()

    def run():
        for _ in range(COMMITS):
            assert session.execute(next(texts)).cost > 0

    return run


def alone(ledger, family):
    """The ledger's own part of such a statement."""
    text = next(statements())

    def run():
        for i in range(COMMITS):
            with ledger.transaction() as tx:
                tx.spent_by("ann")
                tx.append(Measurement(family, 100.0, (i,)))
                tx.audit("measured", "ann", text, cost=1, spent={"shared": i + 1})

    return run


def bare(connection):
    """Commits of the rows that the ledger wrote last, with nothing around them."""
    rows = {
        table: connection.execute(f"SELECT * FROM {table} ORDER BY 1 DESC LIMIT 1").fetchone()
        for table in ("measurements", "audit")
    }
    for table in rows:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        columns[0] += " INTEGER PRIMARY KEY"
        connection.execute(f"CREATE TABLE bare_{table} ({', '.join(columns)})")

    def run():
        for _ in range(COMMITS):
            connection.execute("BEGIN IMMEDIATE")
            for table, row in rows.items():
                places = ",".join("?" * (len(row) - 1))
                connection.execute(f"INSERT INTO bare_{table} VALUES (NULL, {places})", row[1:])
            connection.execute("COMMIT")

    return run


def copied(source, folder):
    """Open a copy of a ledger as plain SQLite, as durable as it."""
    source.backup(folder / "bare")
    connection = sqlite3.connect(folder / "bare", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def read(policy, folder, start, counts):
    """One reader: asks what can be inferred, until the time is over."""
    engine = Engine.open(policy, folder)
    session = engine.session()
    for text in FREE:
        assert session.execute(text).cost == 0
    start.wait()
    done, end = 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        session.execute(FREE[done % len(FREE)])
        done += 1
    counts.put(done)
    engine.close()


def readers(policy, folder, count):
    """Return the inferred statements a second of so many processes."""
    context = multiprocessing.get_context("spawn")
    start, counts = context.Barrier(count), context.Queue()
    crowd = [
        context.Process(target=read, args=(policy, folder, start, counts)) for _ in range(count)
    ]
    for process in crowd:
        process.start()
    total = sum(counts.get() for _ in crowd)
    for process in crowd:
        process.join()
    return total / SECONDS


def main(folder):
    """Print the figures."""
    policy, place = state(folder)
    with closing(Engine.open(policy, place)) as engine:
        engine.session().execute("SELECT region, COUNT(*) FROM cps1988 GROUP BY region")
        engine.session().execute("SELECT COUNT(*) FROM cps1988 WHERE smsa = 'no' OR education = 3")
        row = engine.ledger.measurements()[-1]
        own = SQLiteLedger.create(
            folder / "own",
            dataset="cps1988",
            protection={},
            digest="",
            anchor=folder / "anchor",
        )
        alone(own, row.family)()
        runs = {
            "bare SQLite commits": bare(copied(own, folder)),
            "the ledger's own part": alone(own, row.family),
            "measured statements": whole(engine),
        }
        times = {name: [] for name in runs}
        for turn in range(ROUNDS + 1):
            for name, run in runs.items():
                start = time.perf_counter()
                run()
                if turn:  # the first is not counted
                    times[name].append(time.perf_counter() - start)
        own.close()
    rates = {name: COMMITS / statistics.median(taken) for name, taken in times.items()}
    print("durable commits, one writer:")
    for name, rate in rates.items():
        print(f"    {name:<28}{rate:>9,.0f} a second  {rate / rates['bare SQLite commits']:>7.2f}")
    print("    goal: the ledger's own part at least half the rate of bare commits")
    print(f"inferred statements, processes that read, {os.cpu_count()} processors:")
    base = 0.0
    for count in READERS:
        rate = readers(policy, place, count)
        base = base or rate
        print(f"    {count} of them{rate:>26,.0f} a second  {rate / base:>7.2f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if sys.argv[1:] else None) as made:
        main(Path(made))
