"""What a statement costs beside the database that it protects: one table of figure, ratio, goal.

    python examples/benchmarks/speed.py                  all, some ten minutes, on a quiet machine
    python examples/benchmarks/speed.py statements ...   some: statements, singles, texts, groups,
                                                         histories, cubes, command, dashboard
    python examples/benchmarks/speed.py --keep           all, and keep the table for this version

The last column is what was kept last, in ``results/``, on the machine that its first line names.
Times are medians (by the clock, unless a line says CPU), and ratios are within one run, with the
two sides taking turns.  The people are made up: 107,100 cells of age, state and industry, and ten
million with five attributes more.
"""

import argparse
import datetime
import json
import os
import platform
import re
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing, contextmanager
from importlib.metadata import version
from pathlib import Path

# BLAS threads that wait for one another cost more than they bring at these sizes.
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import duckdb
import numpy as np
import psycopg
import sqlglot

import proxy
from proxy.engine import Engine, init
from proxy.inference.family import Family
from proxy.inference.query import Factor, LinearQuery
from proxy.ledger import Measurement
from proxy.sql.compile.release_point import space

ROOT = Path(__file__).parents[2]
AXES = {"age": 100, "state": 51, "industry": 21}
MORE = {"sex": 2, "married": 2, "citizen": 2, "race": 3, "degree": 4}
POLICY = """
dataset: people
source: {engine: duckdb, path: people.parquet}
max_records: 20_000_000
outside: error
nulls: error
attributes:
%s
measures:
  income: {clip: [0, 1000], quantum: 1}
privacy:
  budget: 100_000
  floor: 0.0001
  unit: row
  history_size: {total: 4_000, analyst: 4_000}
"""
COUNTED = "SELECT COUNT(*) AS n FROM people WHERE "


KEPT = Path(__file__).parent / "results"
WHAT, FIGURE = 66, 11  # widths of columns
LINE = f"{{:<{WHAT}}}{{:>{FIGURE}}}  {{:<10}}"
shown = []  # lines of this run


def machine():
    """Return what this machine is, in a line."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    what = model[1] if model else platform.machine()
    return f"{what}, {os.cpu_count()} cores, {memory:.0f} GiB, Python {platform.python_version()}"


def kept():
    """Return the figures that were kept last, by what they are of."""
    files = sorted(KEPT.glob("*.txt"), key=lambda file: tuple(map(int, file.stem.split("."))))
    lines = files[-1].read_text().splitlines()[1:] if files else []
    return {line[:WHAT].strip(): line[WHAT : WHAT + FIGURE].strip() for line in lines}


def show(what, figure, goal, beside=""):
    """Print one line of the table, with what was kept last beside it."""
    shown.append((LINE.format(what, figure, goal) + beside).rstrip())
    before = kept().get(what)
    print(f"{shown[-1]:<112} {f'before: {before}' if before else ''}".rstrip(), flush=True)


def clock(action, *arguments):
    """Return the seconds that an action takes, and its value."""
    start = time.perf_counter()
    value = action(*arguments)
    return time.perf_counter() - start, value


def median(action, texts):
    """Return the median seconds of an action on each of some texts."""
    return statistics.median(clock(action, text)[0] for text in texts)


def ms(seconds):
    """Return milliseconds as text."""
    return f"{seconds * 1e3:.1f} ms"


def people(folder, axes, records):
    """Write made-up people and their policy; return its path."""
    columns = [
        f"CAST(hash(i * 31 + {place}) % {size} AS INTEGER) AS {name}"
        for place, (name, size) in enumerate(axes.items())
    ]
    duckdb.execute(
        f"COPY (SELECT {', '.join(columns)}, CAST(hash(i) % 1000 AS INTEGER) AS income "
        f"FROM range({records}) t(i)) TO '{folder / 'people.parquet'}' (FORMAT parquet)"
    )
    lines = [f"  {name}: {{type: integer, range: [0, {size - 1}]}}" for name, size in axes.items()]
    path = folder / "people.yaml"
    path.write_text(POLICY % "\n".join(lines))
    return path


@contextmanager
def state(axes, records=1_000_000):
    """Make a state of people; yield an open engine and a session of it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        policy = people(folder, axes, records)
        init(policy, folder / "state", accept_second_budget=True)
        with closing(Engine.open(policy, folder / "state")) as engine:
            yield engine, engine.session()


def conjunction(shape, rng):
    """Return a random query: a range of ages, some states, and half of the time some industries."""
    sizes = shape.sizes
    first = rng.integers(sizes[0] - 1)
    ages = np.zeros(sizes[0], dtype=np.int64)
    ages[first : rng.integers(first + 1, sizes[0])] = 1
    factors = [Factor((0,), ages), Factor((1,), (rng.random(sizes[1]) < 0.4).astype(np.int64))]
    if rng.random() < 0.5:
        factors.append(Factor((2,), (rng.random(sizes[2]) < 0.5).astype(np.int64)))
    return LinearQuery.count(shape, *factors)


def grouped(shape, axes):
    """Return the counts of every combination of some axes."""
    sizes = tuple(shape.sizes[axis] for axis in axes)
    labels = np.arange(np.prod(sizes), dtype=np.int32).reshape(sizes)
    return Family(LinearQuery.count(shape), tuple(axes), labels, labels.size)


def put(engine, families, scale=100.0):
    """Commit measurements as statements would, without planning them; answers are made up."""
    rng = np.random.default_rng(2)
    snapshot = engine.ledger.snapshot().id
    spent = 1
    for family in families:
        answers = tuple(rng.integers(0, 10_000, family.rows).tolist())
        with engine.ledger.transaction() as tx:
            tx.append(Measurement(family, scale, answers, "shared", snapshot))
            tx.audit("measured", "", "SELECT 1", cost=1, spent={"shared": spent})
        spent += 1


def sources(result):
    """Return how the numbers of a result are known."""
    return {answer.source for row in result.answers for answer in row}


def timed(session, texts, source):
    """Return the median seconds of statements, all of whose numbers have one source."""
    times = []
    for text in texts:
        seconds, result = clock(session.execute, text)
        if sources(result) != {source}:
            raise SystemExit(f"{text}: {sources(result)}, not {source}")
        times.append(seconds)
    return statistics.median(times)


# --- one number -----------------------------------------------------------------------------------


FILL = (
    "education, region", "education, experience", "region, experience", "education, smsa",
    "education, ethnicity", "experience, smsa", "education, parttime", "region, smsa",
    "region, parttime", "experience, parttime", "experience, ethnicity",
    "education, region, smsa",
)  # fmt: skip
INFERRED = (
    "SELECT COUNT(*) AS n{0} FROM cps1988 WHERE education >= {1} AND region <> '{2}'"
    " AND smsa = '{3}'"
)
MEASURED = (
    "SELECT COUNT(*) AS n{0} FROM cps1988 WHERE education >= {1} AND region = '{2}'"
    " AND parttime = '{3}' AND ethnicity = 'cauc'"
)
TYPES = {"BIGINT": "bigint", "DOUBLE": "float8"}
REGIONS = ("midwest", "northeast", "south", "west")


def texts(pattern, count, utility=""):
    """Return so many statements that differ."""
    return [
        pattern.format(i, i % 17, REGIONS[i // 17 % 4], ("no", "yes")[i % 2])
        + (f" WITH UTILITY ({utility(i)}, 0.05)" if utility else "")
        for i in range(count)
    ]


def filled(folder):
    """Make a state of cps1988 with a lasting budget and 561 rows; return policy and state."""
    text = (ROOT / "policies" / "cps1988.yaml").read_text()
    text = text.replace("../examples", str(ROOT / "examples"))
    text = text.replace("budget: 1.0", "budget: 100_000\n  floor: 0.0001").replace(
        "  alice: {budget: 0.5}\n", ""
    )
    policy = folder / "cps1988.yaml"
    policy.write_text(text)
    init(policy, folder / "state", accept_second_budget=True)
    with proxy.connect(policy, state=folder / "state") as connection:
        for by in FILL:
            connection.cursor().execute(
                f"SELECT {by}, COUNT(*) FROM cps1988 GROUP BY {by} WITH UTILITY (6000, 0.05)"
            )
    return policy, folder / "state"


@contextmanager
def postgresql(folder):
    """A PostgreSQL with the raw table of cps1988."""
    from proxy.server.mirror.postgres import Embedded

    server = Embedded(folder, 20)
    try:
        with psycopg.connect(server.address.conninfo(), autocommit=True) as connection:
            file = ROOT / "examples" / "cps1988.csv.gz"
            rows = duckdb.sql(
                f"FROM read_csv('{file}', auto_type_candidates = ['BIGINT', 'DOUBLE', 'VARCHAR'])"
            )
            names = ", ".join(
                f"{name} {TYPES.get(str(kind), 'text')}"
                for name, kind in zip(rows.columns, rows.types, strict=True)
            )
            connection.execute(f"CREATE TABLE cps1988 ({names})")
            with connection.cursor().copy("COPY cps1988 FROM STDIN") as copy:
                for row in rows.fetchall():
                    copy.write_row(row)
            connection.execute("VACUUM ANALYZE cps1988")
            yield connection
    finally:
        server.stop()


def statements():
    """New texts of one number, beside PostgreSQL's exact answer and a bare durable commit."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        policy, where = filled(folder)
        exact = [text + ";" for text in texts(INFERRED, 300)]
        known = texts(INFERRED, 300, lambda i: 60_000)
        dear = texts(MEASURED, 300, lambda i: 200 * 0.6 ** (i // 68))
        with postgresql(folder) as plain, closing(Engine.open(policy, where)) as engine:
            session = engine.session()
            bare = sqlite3.connect(folder / "bare", isolation_level=None)
            bare.execute("PRAGMA journal_mode = WAL")
            bare.execute("PRAGMA synchronous = FULL")
            bare.execute("CREATE TABLE lines (id INTEGER PRIMARY KEY, body BLOB)")
            sides = {"exact": [], "inferred": [], "commit": [], "measured": []}
            for theirs, ours in zip(exact, known, strict=True):
                sides["exact"].append(clock(lambda t=theirs: plain.execute(t).fetchall())[0])
                sides["inferred"].append(timed(session, [ours], "inferred"))
            body = "INSERT INTO lines (body) VALUES (zeroblob(2000))"
            for paid in dear:
                sides["commit"].append(clock(bare.execute, body)[0])
                sides["measured"].append(timed(session, [paid], "measured"))
            exact_, inferred, commit, measured = map(statistics.median, sides.values())
        show(
            "inferred, beside PostgreSQL's exact answer",
            f"{inferred / exact_:.2f} x", "<= 1.5 x", f"{ms(inferred)}, {ms(exact_)}",
        )  # fmt: skip
        show(
            "measured and durable, beside that and a bare durable commit",
            f"{measured / (exact_ + commit):.2f} x", "<= 2.5 x", f"{ms(measured)}, {ms(commit)}",
        )  # fmt: skip
        _served(folder, policy, where, exact)


def _served(folder, policy, where, exact):
    """The same at a server, of one client."""
    from proxy.policy import scram_verifier

    (policy.parent / "users.yaml").write_text(
        f"users:\n  ann: {{password: '{scram_verifier('secret')}', roles: [analyst]}}\n"
    )
    command = [sys.executable, "-m", "proxy", "serve", str(folder), "--state", str(where)]
    server = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    try:
        port = _port(server.stdout)
        dsn = f"host=127.0.0.1 port={port} user=ann password=secret dbname=cps1988"
        ours, theirs = [], []
        with (
            postgresql(folder) as plain,
            psycopg.connect(dsn, autocommit=True) as connection,
        ):
            for text, real in zip(
                texts(INFERRED.replace("AS n", "AS m"), 300, lambda i: 60_000), exact, strict=True
            ):
                theirs.append(clock(lambda t=real: plain.execute(t).fetchall())[0])
                ours.append(clock(lambda t=text: connection.execute(t).fetchall())[0])
        ours, theirs = statistics.median(ours), statistics.median(theirs)
        show(
            "inferred, at the server, one client",
            f"{ours / theirs:.2f} x", "<= 2 x", f"{ms(ours)}, {ms(theirs)}",
        )  # fmt: skip
    finally:
        server.terminate()
        server.wait()


def _port(lines):
    """Return the port that a server says it listens on."""
    for line in lines:
        if '"listening"' in line:
            return json.loads(line)["port"]
    raise SystemExit("the server did not start")


# --- long histories and texts ---------------------------------------------------------------------


def ages(count, rng, utility):
    """Return statements, each a range of ages and a set of states, that differ."""
    found = []
    for i in range(count):
        states = ", ".join(map(str, sorted(rng.choice(51, 12, replace=False))))
        found.append(
            f"{COUNTED}age BETWEEN {i % 50} AND {50 + i % 49} AND state IN ({states})"
            f" WITH UTILITY ({utility - i}, 0.05)"
        )
    return found


def _asked(engine, session, rows, goals):
    """Time statements on a history of single rows; ``goals``: of inferred and measured ones."""
    rng = np.random.default_rng(1)
    shape = space(engine.policy.domain)
    # what follows from two rows: ages below a limit in two disjoint halves of the states
    parts = [
        (f"age < {limit} AND state < {half}", f"age < {limit} AND state >= {half}")
        for limit, half in zip(range(20, 60), range(5, 45), strict=True)
    ]
    for pair in parts:
        for part in pair:
            session.execute(f"{COUNTED}{part} WITH UTILITY (3000, 0.05)")
    put(engine, [Family(conjunction(shape, rng)) for _ in range(rows)])
    seconds, _ = clock(session.execute, f"{COUNTED}age < 3 WITH UTILITY (5000, 0.05)")
    dear = timed(session, ages(40, rng, 5000), "measured")
    free = timed(
        session,
        [f"{COUNTED}age < {20 + i} WITH UTILITY (20000, 0.05)" for i in range(40)],
        "inferred",
    )
    name = f"{rows:,} independent single rows in the history"
    show(f"{name}: inferred", ms(free), goals[0])
    show(f"{name}: measured", ms(dear), goals[1], f"the first after {seconds:.1f} s")


def singles():
    """A thousand single rows."""
    with state(AXES) as (engine, session):
        _asked(engine, session, 1000, ("<= 15 ms", "<= 40 ms"))


def histories():
    """Five thousand single rows; a million numbers in 300 families."""
    with state(AXES) as (engine, session):
        shape = space(engine.policy.domain)
        _asked(engine, session, 5000, ("<= 60 ms", "<= 150 ms"))
        opened = _opened(engine)
        show("5,000 single rows: open, and the first statement", f"{opened:.2f} s", "<= 1 s")
    with state(AXES | MORE) as (engine, session):
        shape = space(engine.policy.domain)
        rng = np.random.default_rng(3)
        by = [(0, 1), (0, 2), (1, 2), (0, 1, 4), (0, 1, 3)]
        families = []
        while sum(family.rows for family in families) < 1_000_000:
            whole = grouped(shape, by[rng.integers(len(by))])
            half = Factor((7,), (rng.random(4) < 0.7).astype(np.int64))
            families.append(Family(whole.query.times(half), whole.axes, whole.labels, whole.rows))
        put(engine, families)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        opened = _opened(engine)
        memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**10
        rows, count = sum(family.rows for family in families), len(families)
        show(
            f"{rows:,} numbers in {count} families: open, and a statement",
            f"{opened:.2f} s", "<= 2 s", f"{memory:.0f} MB more",
        )  # fmt: skip
        session.execute(f"{COUNTED}age < 3 WITH UTILITY (5000, 0.05)")
        one = timed(session, ages(10, rng, 20), "measured")
        show(f"{rows:,} numbers in {count} families: one statement", ms(one), "<= 60 ms")


def _opened(engine):
    """Return the seconds until another engine of the same state has answered a statement."""
    folder = engine.policy.path.parent

    def opened():
        with closing(Engine.open(folder / "people.yaml", folder / "state")) as again:
            again.session().execute(f"{COUNTED}age < 4 WITH UTILITY (50000, 0.05)")

    return clock(opened)[0]


def texts_():
    """Long texts, beside sqlglot's parser alone."""
    with state(AXES) as (_, session):
        rng = np.random.default_rng(4)
        lists = [", ".join(map(str, rng.integers(0, 100, 20_000))) for _ in range(5)]
        ors = " OR ".join(f"age = {i % 100} AND state = {i % 51}" for i in range(38_000))
        _beside_parsing(session, "IN with 20,000 values", [f"age IN ({each})" for each in lists])
        _beside_parsing(session, "a MB of ORs", [ors])


def _beside_parsing(session, name, conditions):
    """Show what statements with these conditions take beside parsing alone, each in turn."""
    alone, ours, kept = [], [], 0
    for condition in conditions:
        text = COUNTED + condition
        alone.append(clock(sqlglot.parse_one, text, "postgres")[0])

        def answered(text=text):
            try:
                session.execute(text + " WITH UTILITY (3000, 0.05)")
            except proxy.errors.Error as error:
                return type(error).__name__
            return "answered"

        before = _memory()
        seconds, how = clock(answered)
        ours.append(seconds)
        kept += _memory() - before
    theirs, ours = statistics.median(alone), statistics.median(ours)
    show(
        f"{name}, {len(text) / 1e6:.1f} MB, beside parsing alone ({how})",
        f"{ours / theirs:.2f} x", "<= 3 x", f"{ours:.2f} s, {theirs:.2f} s; {kept:.0f} MB kept",
    )  # fmt: skip


def _memory():
    """Return this process's resident memory in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


# --- many groups ----------------------------------------------------------------------------------


def groups():
    """GROUP BYs of thousands of groups on ten million cells, and what follows from them."""
    with state(AXES | MORE) as (engine, session):
        by = "SELECT age, state, COUNT(*) AS n FROM people GROUP BY age, state"
        session.execute(f"{by} WITH UTILITY (100, 0.05)")
        dear = [f"{by} WITH UTILITY ({100 * 0.7**i}, 0.05)" for i in range(1, 6)]
        show("5,100 groups, measured", ms(timed(session, dear, "measured")), "<= 400 ms")
        free = [f"{by} WITH UTILITY ({1000 + i}, 0.05)" for i in range(5)]
        show("5,100 groups, inferred anew", ms(timed(session, free, "inferred")), "<= 200 ms")
        show("5,100 groups, again", ms(timed(session, free[-1:] * 20, "inferred")), "<= 5 ms")
    with state(AXES) as (engine, session):
        shape = space(engine.policy.domain)
        rng = np.random.default_rng(5)
        put(engine, [grouped(shape, (0, 1)), grouped(shape, (1, 2))], scale=20.0)
        put(engine, [Family(conjunction(shape, rng)) for _ in range(200)], scale=20.0)
        session.execute(f"{COUNTED}age < 3 WITH UTILITY (5000, 0.05)")
        session.execute(
            "SELECT age, state, SUM(income) AS n FROM people GROUP BY age, state "
            "WITH UTILITY (20000, 0.05)"
        )
        states = [
            f"SELECT state, COUNT(*) AS n FROM people WHERE age > {i} GROUP BY state "
            "WITH UTILITY (30000, 0.05)"
            for i in range(20, 30)
        ]
        show(
            "51 groups from two families and 200 rows",
            ms(timed(session, states, "inferred")),
            "<= 60 ms",
        )
        filtered = [
            f"SELECT COUNT(*) FILTER (WHERE age > {i} AND state < 40) AS n FROM people "
            "WITH UTILITY (60000, 0.05)"
            for i in range(20, 40)
        ]
        show("a filtered COUNT from the same", ms(timed(session, filtered, "inferred")), "<= 60 ms")
        means = [
            f"SELECT state, AVG(income) AS n FROM people WHERE age > {i} GROUP BY state "
            "WITH UTILITY (400, 0.05)"
            for i in range(20, 30)
        ]
        show("AVG over 51 groups, inferred", ms(timed(session, means, "inferred")), "<= 60 ms")


# --- cubes, the command, a dashboard --------------------------------------------------------------


def cubes():
    """A cube of ten million cells from ten million rows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        policy = people(folder, AXES | MORE, 10_000_000)
        columns = ", ".join(AXES | MORE)
        plain = (
            f"CREATE OR REPLACE TABLE cells AS SELECT {columns}, count(*), sum(income) "
            f"FROM '{folder / 'people.parquet'}' GROUP BY {columns}"
        )
        ours, theirs = [], []
        for _ in range(3):
            with duckdb.connect(str(folder / "plain.duckdb")) as connection:
                theirs.append(clock(connection.execute, plain)[0])
            shutil.rmtree(folder / "state", ignore_errors=True)
            ours.append(clock(init, policy, folder / "state")[0])
        ours, theirs = statistics.median(ours), statistics.median(theirs)
        show(
            "init of 10 million rows, beside a plain GROUP BY",
            f"{ours / theirs:.2f} x", "<= 1.6 x", f"{ours:.1f} s, {theirs:.1f} s",
        )  # fmt: skip
        first = [[], []]
        for _ in range(3):
            opened, engine = clock(Engine.open, policy, folder / "state")
            with closing(engine):
                text = f"{COUNTED}age = 3 AND sex = 1 WITH UTILITY (500, 0.05)"
                first[0].append(opened)
                first[1].append(clock(engine.session().execute, text)[0])
            shutil.rmtree(folder / "state")
            init(policy, folder / "state", accept_second_budget=True)
        show("opening it", f"{statistics.median(first[0]):.2f} s", "<= 0.3 s")
        show("its first measurement", f"{statistics.median(first[1]):.2f} s", "<= 0.5 s")


def command():
    """The command beside importing what it stands on."""
    with tempfile.TemporaryDirectory() as name:
        policy, where = filled(Path(name))
        ours = [sys.executable, "-m", "proxy", "query", str(policy)]
        ours += ["--state", str(where), texts(INFERRED, 1, lambda i: 60_000)[0]]
        theirs = [sys.executable, "-c", "import numpy, duckdb, sqlglot"]
        spent = [[], []]
        _processor(ours)  # Python keeps what it has compiled
        for _ in range(9):
            for mine, what in zip(spent, (ours, theirs), strict=True):
                mine.append(_processor(what))
        ours, theirs = map(statistics.median, spent)
        show(
            "CPU of `privacy-proxy query`, inferred, beside three imports",
            f"{ours / theirs:.2f} x", "<= 1.6 x", f"{ours:.2f} s, {theirs:.2f} s",
        )  # fmt: skip


def _processor(what):
    """Return the seconds of the processor that a command took."""
    keeps = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(what, check=True, stdout=subprocess.DEVNULL, env=keeps)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def dashboard():
    """The first refresh of a day of 30 charts."""
    sys.path.insert(0, str(Path(__file__).parent))
    import dashboard as charts

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with closing(Engine.open(charts.state(folder, "topup"), folder / "topup")) as engine:
            session, days = engine.session(), []
            for day in range(6):
                today = charts.START + datetime.timedelta(days=60 + day)
                start = time.perf_counter()
                for text in charts.charts(today):
                    session.execute(text)
                days.append(time.perf_counter() - start)
    show(
        "30 charts, the first refresh of a day", f"{statistics.median(days[1:]):.2f} s", "<= 0.5 s"
    )


BENCHMARKS = {
    f.__name__.rstrip("_"): f
    for f in (statements, singles, texts_, groups, histories, cubes, command, dashboard)
}


def main():
    """Run some or all, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []])
    parser.add_argument("--keep", action="store_true", help="keep the table for this version")
    options = parser.parse_args()
    if options.keep and options.names:
        parser.error("--keep takes all")
    for name in options.names or BENCHMARKS:
        BENCHMARKS[name]()
    if options.keep:
        KEPT.mkdir(exist_ok=True)
        table = "\n".join([machine(), *shown, ""])
        (KEPT / f"{version('sql-privacy-proxy')}.txt").write_text(table)


if __name__ == "__main__":
    main()
