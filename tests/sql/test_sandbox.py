"""The evaluator's DuckDB: what it reaches, what it may use up, and what becomes of its process."""

import datetime
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.engine import Engine, init
from proxy.errors import OperationalError, QueryCanceledError, StatementTooComplexError
from proxy.sql import Evaluator
from proxy.sql.evaluator import sandbox, worker
from proxy.sql.evaluator.sandbox import Child, Here
from tests.searches import share
from tests.sql.survey import policy

ROOT = Path(__file__).parents[2]
MEMORY = 640 << 20
TABLE = "CREATE TABLE numbers AS SELECT unnest(CAST($1 AS INTEGER[])) AS n"
SUM = "SELECT CAST(sum(n) AS INTEGER) FROM numbers"
LONG = "SELECT count(*) FROM range(100000) a, range(100000) b, range(100000) c"
DEAF = "SELECT length(lpad('x', 2000000000, 'y'))"  # cannot be interrupted
ALL = "SELECT 1, 2.5, 'a', NULL, TRUE, DATE '2000-02-29', TIMESTAMP '2000-02-29 12:34:56.789', "
ALL += "CAST(1.50 AS DECIMAL(5, 2)), INTERVAL 3 DAY, 'NaN'::DOUBLE, -0.0, 123456789012::HUGEINT"


def made(sandbox):
    sandbox.run(TABLE, [[1, 2, 4]])
    return sandbox


def pid(child):
    """The process of a child; it starts if there is none."""
    return child._ready()._process.pid


def killed(process):
    """Kill a child of ours, and wait until it is dead."""
    os.kill(process, signal.SIGKILL)
    os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)


def gone(process, seconds=10):
    """Whether a process ends in time and leaves no zombie."""
    deadline = time.monotonic() + seconds
    while Path(f"/proc/{process}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return not Path(f"/proc/{process}").exists()


@pytest.fixture(scope="module")
def shared():
    child = made(Child(memory=MEMORY))
    yield child
    child.close()


@pytest.fixture
def child(monkeypatch):
    """A child of its own, whose calls have a fifth of a second, and a tenth to end."""
    monkeypatch.setattr(sandbox, "GRACE", 0.1)
    child = made(Child(memory=MEMORY))
    child._seconds = 0.2  # when it has started
    yield child
    child.close()


@pytest.fixture
def here():
    here = made(Here())
    yield here
    here.close()


# --- what it says --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        ALL,
        f"{ALL} UNION ALL {ALL} ORDER BY 1",
        "SELECT n, n > 1, n / 2.0, 'a' || n FROM numbers",
        "SELECT n, CASE WHEN n > 1 THEN 'a' || n END, CASE WHEN n > 1 THEN n END FROM numbers",
        "SELECT CASE WHEN n > 1 THEN DATE '2020-01-01' + n END AS d FROM numbers",
        "SELECT n, 'a' AS t, TIMESTAMP '2020-01-01' AS s FROM numbers WHERE n > 9",
        "SELECT '' AS nothing, '😀' AS beyond, chr(0) AS nul",
    ],
)
def test_a_child_says_what_is_said_here(shared, here, sql):
    """
    Rows and columns, values, types and masks are the same in both.
    """
    assert repr(shared.rows(sql, {}, 10)) == repr(here.rows(sql, {}, 10))
    (columns, kinds), (others, same) = shared.fetch(sql), here.fetch(sql)
    assert kinds == same
    for one, other in zip(columns, others, strict=True):
        assert one.dtype == other.dtype
        assert (np.ma.getmaskarray(one) == np.ma.getmaskarray(other)).all()
        assert repr(np.ma.filled(one).tolist()) == repr(np.ma.filled(other).tolist())


def test_parameters_and_the_limit_of_rows(shared, here):
    """
    Named lists go in; no more rows than asked for come out.
    """
    sql = "SELECT unnest(CAST($a AS BIGINT[])) AS a, unnest(CAST($b AS VARCHAR[])) AS b"
    values = {"a": [1, None, 2**40], "b": ["x", "y", None]}
    for each in (shared, here):
        assert each.rows(sql, values, 2) == [(1, "x"), (None, "y")]
        assert len(each.rows(sql, values, 4)) == 3


@pytest.mark.parametrize(
    "sql",
    [
        *("SELECT 1 / (n - n) FROM numbers", "SELECT CAST('a' || n AS INTEGER) FROM numbers"),
        *("SELECT to_days(2147483647)", "SELEC"),
    ],
)
def test_errors_are_the_same(shared, here, sql):
    """
    An error has the same kind and words, wherever it is met.
    """
    said = []
    for each in (shared, here):
        try:
            said.append(repr(each.rows(sql, {}, 10)))
        except duckdb.Error as error:
            said.append((type(error), str(error)))
    assert said[0] == said[1]


COLUMNS = [st.integers(), st.text(), st.floats(allow_nan=False), st.booleans(), st.dates()]
COLUMNS += [st.datetimes().map(lambda moment: moment.replace(fold=0))]  # as all of DuckDB's
COLUMNS += [st.decimals(allow_nan=False, allow_infinity=False)]


@settings(max_examples=50)
@given(st.one_of(*(st.lists(st.none() | each) for each in COLUMNS)))
def test_a_column_comes_out_as_it_went_in(values):
    """
    A column of rows is the same behind the line, to the type of each value.
    """
    sent = pickle.loads(pickle.dumps(worker.pack_column(values)))
    assert repr(worker.unpack_column(*sent)) == repr(values)


# --- what it reaches -----------------------------------------------------------------------------

ESCAPES = [
    "SELECT * FROM read_csv('{file}')",
    "SELECT * FROM read_text('{file}')",
    "SELECT * FROM read_blob('{file}')",
    "SELECT * FROM read_parquet('{file}')",
    "SELECT * FROM '{file}'",
    "SELECT * FROM glob('{folder}/*')",
    "SELECT * FROM read_text('/proc/self/environ')",
    "SELECT * FROM read_csv('https://example.org/x.csv')",
    "COPY (SELECT 1) TO '{folder}/new'",
    "COPY (SELECT 1) TO '/dev/stdout'",
    "COPY numbers FROM '{file}'",
    "EXPORT DATABASE '{folder}/new'",
    "IMPORT DATABASE '{folder}'",
    "ATTACH '{folder}/new'",
    "ATTACH '{file}' (TYPE sqlite)",
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '{file}'",
    "CREATE PERSISTENT SECRET s (TYPE s3)",
    "PRAGMA enable_profiling = 'json'",
    "SET memory_limit = '100GB'",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "SET temp_directory = '{folder}'",
    "SET threads = 8",
    "RESET memory_limit",
    "SELECT getenv('HOME')",
    "SELECT * FROM sniff_csv('{file}')",
    "SELECT * FROM duckdb_secrets()",
]


@pytest.mark.parametrize("sql", ESCAPES)
def test_nothing_outside_is_within_reach(shared, here, tmp_path, sql):
    """
    Files, network, extensions and settings are refused by DuckDB itself, in both.
    """
    file = tmp_path / "secret.csv"
    file.write_text("secret\n1988\n")
    text = sql.replace("{file}", str(file)).replace("{folder}", str(tmp_path))
    for each in (shared, here):
        with pytest.raises(duckdb.Error) as refused:
            each.rows(text, {}, 10)
        assert "1988" not in str(refused.value)
        assert each.rows(SUM, {}, 10) == [(7,)]
    assert list(tmp_path.iterdir()) == [file]


def test_catalogs_know_no_more_than_the_axes(shared):
    """
    What system catalogs list are the tables that were made, and settings.
    """
    tables = shared.rows("SELECT table_name FROM information_schema.tables", {}, 10)
    assert tables == [("numbers",)]
    told = repr(shared.rows("SELECT * FROM duckdb_settings()", {}, 1000))
    assert str(Path.home()) not in told


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_child_has_next_to_nothing(monkeypatch):
    """
    No variable of ours, no file but its two lines, no more of them, no core, and bounded memory.
    """
    monkeypatch.setenv("PGPASSWORD", "a secret")
    child = Child(memory=MEMORY)
    try:
        proc = Path(f"/proc/{pid(child)}")
        assert b"secret" not in (proc / "environ").read_bytes()
        limits = {line[:26].strip(): line[26:].split()[:2] for line in _lines(proc / "limits")}
        assert limits["Max address space"] == [str(MEMORY)] * 2
        assert limits["Max open files"] == ["1", "1"]
        for name in ("Max core file size", "Max file size", "Max processes"):
            assert limits[name] == ["0", "0"]
        files = [os.readlink(path) for path in (proc / "fd").iterdir()]
        assert sorted(name.partition(":")[0] for name in files) == [
            *("/dev/null", "/dev/null", "pipe", "socket")
        ]
    finally:
        child.close()


def _lines(path):
    return path.read_text().splitlines()


def test_what_a_child_sends_makes_values_only(shared):
    """
    Bytes of a child that was taken over make no other object, and call nothing.
    """
    assert sandbox._plain(bytearray(pickle.dumps((1, Decimal(2), datetime.date.min))))
    for found in (os.system, print, eval, subprocess.Popen, np.dtype("i4")):
        with pytest.raises(pickle.UnpicklingError, match="is no value"):
            sandbox._plain(bytearray(pickle.dumps(found)))


@pytest.mark.parametrize(
    "words",
    [b"nonsense" * 100, b"\1\0\0\0" + b"\xff" * 8, b"\xff" * 4, b"\1\0\0\0\3" + b"\0" * 7 + b"abc"],
)
def test_a_child_that_sends_nonsense_is_given_up(monkeypatch, tmp_path, words):
    """
    A message that is none, or too long, ends the child and the call.
    """
    program = tmp_path / "program.py"
    program.write_text(
        "import socket, sys, time\n"
        f"socket.socket(fileno=int(sys.argv[1])).sendall({words!r})\ntime.sleep(60)\n"
    )
    monkeypatch.setattr(worker, "__file__", str(program))
    child = Child()
    process = child._process._process.pid
    with pytest.raises(duckdb.ConnectionException, match="does not start"):
        child.rows(SUM, {}, 10)
    assert gone(process)
    child.close()


# --- what it uses up -----------------------------------------------------------------------------

MEMORY_BOMBS = [
    "SELECT length(repeat('x', 2000000000))",
    "SELECT unnest(range(100000000))",
    "SELECT list(i) FROM range(100000000) t(i)",
    "SELECT string_agg(repeat('x', 1000000), '') FROM range(10000)",
    "SELECT repeat('x', 1000000) FROM range(10000)",
    "SELECT printf('%1000000000d', 1)",
    "WITH RECURSIVE t AS (SELECT 1 UNION ALL SELECT 1 FROM t, range(9999)) SELECT sum(1) FROM t",
]


@pytest.mark.parametrize("sql", MEMORY_BOMBS)
def test_memory_is_bounded(shared, sql):
    """
    What needs more than there is fails, and the next call does not.
    """
    process = pid(shared)
    with pytest.raises(duckdb.OutOfMemoryException):
        shared.rows(sql, {}, 1_000_001)
    assert gone(process, 0)  # what it had left of memory is not known
    assert shared.rows(SUM, {}, 10) == [(7,)]


@pytest.mark.slow
def test_memory_is_not_lent_by_the_disk(here, tmp_path, monkeypatch):
    """
    In this process DuckDB's own bound holds for what it can put aside: no answer is written.
    """
    monkeypatch.chdir(tmp_path)
    with pytest.raises(duckdb.OutOfMemoryException):
        here.rows("SELECT random() FROM range(100000000) ORDER BY 1", {}, 10)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "sql",
    [
        LONG,
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t",
    ],
)
def test_time_is_bounded(child, sql):
    """
    What takes longer than its time is stopped, as rows, as columns and as a table, and only that.
    """
    process = pid(child)
    for call in (
        lambda: child.rows(sql, {}, 10),
        lambda: child.fetch(sql),
        lambda: child.run(f"CREATE TABLE t AS {sql}", []),
    ):
        begun = time.monotonic()
        with pytest.raises(duckdb.InterruptException):
            call()
        assert 0.15 < time.monotonic() - begun < 10
        child._seconds = 10.0
        assert child.rows(SUM, {}, 10) == [(7,)]
        child._seconds = 0.2
    assert gone(process, 0) or pid(child) == process


@pytest.mark.slow
def test_time_is_bounded_here_too():
    """
    In this process, rows, columns and tables that take longer are interrupted.
    """
    here = Here(seconds=0.1)
    for call in (
        lambda: here.rows(LONG, {}, 10),
        lambda: here.fetch(LONG),
        lambda: here.run(f"CREATE TABLE t AS {LONG}", []),
    ):
        with pytest.raises(duckdb.InterruptException):
            call()
    assert here.rows("SELECT 1", {}, 10) == [(1,)]
    here.close()


@pytest.mark.slow
def test_what_does_not_stop_is_killed(child):
    """
    A call that is deaf to interrupts ends with its process; the next one has another.
    """
    process = pid(child)
    with pytest.raises(duckdb.InterruptException):
        child.rows(DEAF, {}, 10)
    assert gone(process)
    child._seconds = 10.0
    assert child.rows(SUM, {}, 10) == [(7,)]


@pytest.mark.slow
def test_a_child_that_hangs_is_killed(child):
    """
    One that was stopped by a signal answers nothing, and is killed when its time is over.
    """
    process = pid(child)
    os.kill(process, signal.SIGSTOP)
    with pytest.raises(duckdb.InterruptException):
        child.rows(SUM, {}, 10)
    assert gone(process)


@pytest.mark.slow
def test_long_texts_are_survived(shared):
    """
    10 MB of text are handed back, 200,000 additions and 10,000 nested parentheses are refused.
    """
    process = pid(shared)
    text = "x" * 10_000_000
    assert shared.rows(f"SELECT '{text}'", {}, 10) == [(text,)]
    for deep in ("SELECT 1" + " + 1" * 200_000, "SELECT " + "(" * 10_000 + "1" + ")" * 10_000):
        with pytest.raises(duckdb.ParserException, match="depth limit"):
            shared.rows(deep, {}, 10)
    assert shared.rows(SUM, {}, 10) == [(7,)]
    assert pid(shared) == process


def test_messages_are_bounded(monkeypatch, shared):
    """
    An argument that is too long is refused here, a result in the child, and one all the same here.
    """
    for module in (sandbox, worker):
        monkeypatch.setattr(module, "MESSAGE", 1000)
    with pytest.raises(duckdb.OutOfMemoryException, match="too long"):
        shared.rows("SELECT $a", {"a": "x" * 1000}, 10)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        service = worker._Service(theirs)
        with pytest.raises(MemoryError, match="too large"):
            service._answer("rows", "SELECT repeat('x', 1000)", {}, 10, buffers=[])
        with pytest.raises(MemoryError, match="too large"):
            service._answer("fetch", "SELECT i FROM range(125) t(i)", buffers=[])
        for sizes, words in (([600, 600], "bytes"), ([0] * 126, "parts")):
            worker.send(ours, [bytes(size) for size in sizes])
            with pytest.raises(ValueError, match=f"too many {words}"):
                worker.receive(theirs)
            theirs.recv(10_000)
        service._database.close()


# --- what becomes of it --------------------------------------------------------------------------


@pytest.mark.slow
def test_a_child_that_was_killed_is_replaced(child):
    """
    Kill -9 between calls is not noticed; during a call, that call fails.
    """
    child._seconds = 60.0
    first = pid(child)
    killed(first)
    assert child.rows(SUM, {}, 10) == [(7,)]
    second = pid(child)
    killer = threading.Timer(0.2, os.kill, [second, signal.SIGKILL])
    killer.start()
    with pytest.raises(duckdb.FatalException):
        child.rows(LONG, {}, 10)
    killer.join()
    assert child.rows(SUM, {}, 10) == [(7,)]
    assert gone(first)
    assert gone(second)


@pytest.mark.slow
def test_another_thread_stops_the_call_that_runs(child):
    """
    An interrupt ends the call that runs when it comes, and neither the process nor a later call.
    """
    child._seconds = 60.0
    process = pid(child)
    child.interrupt()  # nothing runs
    time.sleep(0.2)  # what does not run is not killed either
    assert child.rows(SUM, {}, 10) == [(7,)]
    for _ in range(3):
        stop = threading.Timer(0.05, child.interrupt)
        stop.start()
        with pytest.raises(duckdb.InterruptException):
            child.rows(LONG, {}, 10)
        stop.join()
        assert child.rows(SUM, {}, 10) == [(7,)]
    time.sleep(0.2)  # the kill that would have come
    assert pid(child) == process


PARENT = """
import sys, threading, time
from proxy.sql.evaluator.sandbox import Child
child = Child()
print(child._ready()._process.pid, flush=True)
if sys.argv[1]:
    threading.Thread(target=child.rows, args=(sys.argv[1], {}, 1), daemon=True).start()
time.sleep(0.2)
print("now", flush=True)
time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("sql", share(1, [DEAF, "", LONG]))
def test_a_child_ends_with_its_parent(sql):
    """
    When the parent is killed, idle or during a call, its child is gone at once.
    """
    command = [sys.executable, "-c", PARENT, sql]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True) as parent:
        process = int(parent.stdout.readline())
        assert parent.stdout.readline() == "now\n"
        assert Path(f"/proc/{process}").exists()
        parent.kill()
        parent.wait()
        assert _ended(process)


def _ended(process):
    """Whether an orphan ends in time; its zombie is init's to reap."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_a_closed_one_stays_closed():
    """
    Closing ends the process, twice is no error, and nothing starts another.
    """
    child = made(Child())
    process = pid(child)
    child.close()
    child.close()
    assert gone(process, 0)
    with pytest.raises(duckdb.ConnectionException, match="closed"):
        child.rows(SUM, {}, 10)


def test_one_that_is_forgotten_is_ended():
    """
    The process does not outlive the object.
    """
    process = pid(made(Child()))
    assert gone(process, 0)


# --- the evaluator with one ----------------------------------------------------------------------


@pytest.mark.slow
def test_the_evaluator_says_what_happened(monkeypatch, child):
    """
    Memory and a lost process are 54001, time and a cancellation 57014, no process 58000.
    """
    asked = Evaluator(policy().domain, child)
    with pytest.raises(QueryCanceledError, match="took too long"):
        asked.rows(LONG, {})
    child._seconds = 60.0
    with pytest.raises(StatementTooComplexError, match="more memory than it may have"):
        asked.rows(MEMORY_BOMBS[0], {})
    threading.Timer(0.2, os.kill, [pid(child), signal.SIGKILL]).start()
    with pytest.raises(StatementTooComplexError, match="the evaluator ended"):
        asked.fetch(LONG)
    assert asked.rows(SUM, {}) == [(7,)]
    killed(pid(child))
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(OperationalError, match="there is no evaluator: it does not start"):
        asked.rows(SUM, {})


def test_the_axes_are_there_again(child):
    """
    After the end of a child, expressions over the domain have the values that they had.
    """
    child._seconds = 60.0
    asked = Evaluator(policy().domain, child)
    before = asked.evaluate("d2.v = 'north'", [2])
    child._drop()
    after = asked.evaluate("NOT d2.v = 'north'", [2])
    assert (before.array != after.array).all()


@pytest.mark.slow
def test_a_thread_s_call_is_interrupted_and_no_other_s():
    """
    An interrupt is for the thread whose call runs; one for another thread passes by.
    """
    asked = Evaluator(policy().domain, Here(seconds=1.0))
    ours = threading.get_ident()
    other = threading.Timer(0.1, asked.interrupt, [ours + 1])
    other.start()
    begun = time.monotonic()
    with pytest.raises(QueryCanceledError):
        asked.rows(LONG, {})
    assert time.monotonic() - begun > 0.9
    own = threading.Timer(0.1, asked.interrupt, [ours])
    own.start()
    begun = time.monotonic()
    with pytest.raises(QueryCanceledError):
        asked.fetch(LONG)
    assert time.monotonic() - begun < 0.9
    asked.close()


def test_what_is_kept_is_bounded():
    """
    Of arrays of a megabyte some 64 are kept, the last ones; of numbers 512.
    """
    asked = Evaluator(policy().domain)
    for i in range(100):
        asked.cached(i, lambda: np.zeros(2**17))
    kept = [i for i in range(100) if asked.cached(i, lambda: None) is not None]
    assert 60 <= len(kept) <= 64
    assert kept == list(range(100 - len(kept), 100))
    for i in range(1000):
        asked.cached(("n", i), lambda: 1)
    assert len(asked._cache) == 512
    assert asked._cached_bytes == 512 * 64
    asked.cached("twice", lambda: asked.cached("twice", lambda: 1))  # as two threads do
    assert asked._cached_bytes == 512 * 64
    asked.close()


@pytest.mark.slow
def test_a_session_cancels_what_its_engine_evaluates(tmp_path):
    """
    With a child, a statement is cancelled while it is evaluated; the engine goes on, and closing
    it ends the child.
    """
    init(ROOT / "policies/cps1988.yaml", tmp_path)
    engine = Engine.open(ROOT / "policies/cps1988.yaml", tmp_path, sandbox=True)
    process = pid(engine._evaluator._sandbox)
    session = engine.session()
    text = (
        "WITH t AS (SELECT education, COUNT(*) AS n FROM cps1988 GROUP BY education) "
        "SELECT SUM(a.n + b.n + c.n + d.n + e.n + f.n + g.n + h.n) AS s "
        "FROM t a, t b, t c, t d, t e, t f, t g, t h WITH UTILITY (1000, 0.05)"
    )
    stop = threading.Timer(1.0, session.cancel)
    stop.start()
    begun = time.monotonic()
    with pytest.raises(QueryCanceledError):
        session.execute(text)
    assert time.monotonic() - begun < 15
    count = session.execute("SELECT COUNT(*) AS n FROM cps1988 WITH UTILITY (500, 0.05)")
    assert count.rows[0][0] > 0
    engine.close()
    assert gone(process, 0)


SLOW = """
import atexit, sys, threading, time

begun, leaving = threading.Event(), threading.Event()

def run(thread):  # it ends as late as it may
    watch(thread)
    leaving.wait(0.2)

@atexit.register
def leave():
    leaving.set()
    time.sleep(0.001)

from proxy.sql.evaluator.watchdog import Watchdog
watch, Watchdog._watch = Watchdog._watch, run
from proxy.sql.evaluator.sandbox import Here

def use():
    here = Here()
    here.run("CREATE TABLE t AS SELECT range AS a, random() AS b FROM range(1000000)", [])
    here.fetch("SELECT 1")

def work():
    here = Here()
    begun.set()
    here.fetch(sys.argv[1])

"""
WAYS = {
    "returns": ("use()", 0),
    "raises": ("use(); raise ValueError", 1),
    "exits": ("use(); sys.exit(3)", 3),
    "is interrupted": ("use(); raise KeyboardInterrupt", -signal.SIGINT),
    "never closed": ("here = Here(); here.fetch('SELECT 1')", 0),
    "in use by a thread": (
        "threading.Thread(target=work, daemon=True).start(); begun.wait(); time.sleep(0.1)",
        0,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("way, status", share(1, reversed(WAYS.values())), ids=reversed(WAYS))
def test_no_thread_is_in_duckdb_when_the_process_ends(way, status):
    """
    However a process ends, its exit status is its own: no thread that was left behind comes back
    from C++ into an interpreter that has ended, which would abort the process.
    """
    command = [sys.executable, "-c", SLOW + way, LONG]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == status
    assert "terminate" not in done.stderr


@pytest.mark.slow
def test_no_call_starts_a_thread(monkeypatch):
    """
    In this process one thread, that of the first call, watches over all of them; it ends when it
    is closed, or forgotten, which it does not hinder.  A child is watched by the line to it.
    """
    began, start = [], threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda each: began.append(each) or start(each))
    before = threading.active_count()
    here, child, forgotten = Here(seconds=0.2), Child(seconds=20.0), Here()
    for each in (here, child, forgotten) * 3:
        each.fetch("SELECT 1")
    with pytest.raises(duckdb.InterruptException):
        here.fetch(LONG)
    assert len(began) == 2
    assert threading.active_count() == before + 2
    child.close()
    here.close()
    here.close()
    assert threading.active_count() == before + 1
    there = weakref.ref(forgotten)
    del each, forgotten
    assert there() is None
    began[1].join(10)
    assert threading.active_count() == before


@pytest.mark.slow
def test_a_child_s_call_leaves_no_thread_behind():
    """
    When a call was stopped, the thread that would have killed its process has ended.
    """
    before = threading.active_count()
    child = Child(seconds=0.2)
    try:
        with pytest.raises(duckdb.InterruptException):
            child.fetch(LONG)
        assert threading.active_count() == before
    finally:
        child.close()


FORK = """
import os, signal, sys, threading, duckdb
from proxy.sql.evaluator.sandbox import Here
here = Here(seconds=0.2)
here.fetch("SELECT 1")
holder = threading.Thread(target=here._watchdog._changed.acquire)
holder.start()
holder.join()
if process := os.fork():
    os._exit(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
signal.alarm(30)  # nobody else ends it
try:
    here.fetch(sys.argv[1])
except duckdb.InterruptException:
    os._exit(7)
"""


@pytest.mark.slow
def test_time_is_bounded_after_a_fork():
    """
    The thread that watches does not live on in a forked process, whatever it has locked; the next
    call there has another.
    """
    command = [sys.executable, "-c", FORK, LONG]
    assert subprocess.run(command, cwd=ROOT, timeout=60).returncode == 7
