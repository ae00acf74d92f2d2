"""No death of a process, full disk or crowd loses what was released or leaves it uncharged."""

import gc
import multiprocessing
import os
import random
import signal
import sqlite3
import threading
import time
import weakref
from contextlib import closing

import pytest

from proxy.errors import OperationalError
from proxy.ledger import Measurement
from proxy.ledger.anchor import FileAnchor
from tests.searches import share
from tests.server import forked
from tests.test_ledger import COUNT, create, measure, reopen, server


def check(folder, released):
    """Open as after a crash: every released answer is there, and all that is there is charged."""
    with closing(reopen(folder)) as ledger:
        rows = {row.id: row.answers[0] for row in ledger.measurements()}
        assert released.items() <= rows.items()
        assert ledger.spent_by("ann") == 3 * len(rows) == ledger.spent().get("shared", 0)
        assert ledger.verify() == []


@pytest.mark.parametrize("kills", share(1, [3, 20, 50], 2))
@pytest.mark.parametrize("how", share(1, [signal.SIGKILL, signal.SIGTERM]))
def test_a_killed_process_loses_nothing_that_it_released(folder, kills, how):
    """
    Killed at a random moment, again and again, two at a time, on one ledger.
    """
    create(folder).close()
    released, rng = {}, random.Random(how)
    for _ in range(kills):
        children = [forked.piped("tests.measuring", folder) for _ in range(2)]
        for _, said in children:  # both run, whatever the machine is busy with
            id, answer = map(int, said.readline().split())
            released[id] = answer
        time.sleep(rng.random() * 0.1)
        for child, _ in children:
            child.send_signal(how)
        for child, said in children:
            with said:
                lines = said.read().splitlines(keepends=True)
            child.wait()
            for id, answer in (map(int, line.split()) for line in lines if line.endswith("\n")):
                assert id not in released
                released[id] = answer
        check(folder, released)


def work(folder, processes, threads, count, errors):
    """One process of the crowd: threads that share a ledger, and one that only reads."""
    with closing(reopen(folder, timeout=60)) as ledger:

        def write(name):
            try:
                for i in range(count):
                    with ledger.transaction() as tx:
                        assert tx.spent_by() == 3 * (tx.sequence() - 1)
                        tx.append(Measurement(COUNT, 1.0, (i,)))
                        tx.audit("measured", name, cost=3)
                    ledger.note("inferred", name)
                    ledger.sequence()
            except BaseException as error:
                errors.put(repr(error))
                raise

        names = [f"{os.getpid()}-{i}" for i in range(threads)]
        pool = [threading.Thread(target=write, args=(name,)) for name in names]
        for thread in pool:
            thread.start()
        for thread in pool:
            thread.join()


@pytest.mark.parametrize(
    "processes, threads, count",
    [
        (2, 4, 8),
        pytest.param(8, 8, 40, marks=pytest.mark.slow),
        pytest.param(8, 8, 200, marks=pytest.mark.audit),
    ],
)
def test_a_crowd_on_one_ledger_adds_up(folder, processes, threads, count):
    """
    Each transaction sees all before it; the sums are right and the chain holds.
    """
    create(folder).close()
    count = max(count // 4, 8) if server(folder) else count  # a commit takes longer there
    context = multiprocessing.get_context("spawn")
    errors = context.Queue()
    crowd = [
        context.Process(target=work, args=(folder, processes, threads, count, errors))
        for _ in range(processes)
    ]
    for process in crowd:
        process.start()
    for process in crowd:
        process.join()
    assert [process.exitcode for process in crowd] == [0] * processes
    assert errors.empty()
    total = processes * threads * count
    with closing(reopen(folder)) as ledger:
        assert len(ledger.measurements()) == len(list(ledger.notes())) == total
        assert ledger.spent_by() == 3 * total
        assert ledger.sequence() == total + 1
        assert ledger.verify() == []
        mark = FileAnchor(folder / "anchor").read()[0]
        assert (mark.sequence, mark.spent) == (total + 1, {"shared": 3 * total})


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # threads of xdist
def test_a_fork_shares_nothing(folder):
    """
    A child that inherits a ledger in use, idle connections and a half-written audit file, works
    on connections and a file of its own; the parent's transaction is the parent's.
    """
    with closing(create(folder)) as ledger:
        ledger.note("inferred", "ann")
        measure(ledger)
        with ledger.transaction() as tx:
            tx.audit("x", "ann")
            child = os.fork()
            if not child:
                status = 1
                try:
                    assert ledger.sequence() == 2
                    ledger.note("inferred", "bob")
                    status = 0
                finally:
                    os._exit(status)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        child = os.fork()
        if not child:
            status = 1
            try:
                measure(ledger, user="bob")
                ledger.close()
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        measure(ledger)
        assert ledger.sequence() == 5
        assert len(list((folder / "ledger.notes").iterdir())) == 2
        assert ledger.verify() == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # threads of xdist
def test_a_child_that_leaves_the_parents_transaction_ends_nothing(tmp_path):
    """
    The exception that takes a forked child out of the ``with`` does not roll the parent back,
    and the child neither uses nor closes the connections that it inherited.
    """
    with closing(create(tmp_path)) as ledger:
        child, inherited = None, []
        try:
            with ledger.transaction() as tx:
                tx.append(Measurement(COUNT, 1.0, (1,)))
                tx.audit("measured", "ann", cost=3)
                ledger.sequence()  # on a second connection, which is idle now
                inherited = [weakref.ref(c) for c in (tx._connection, *ledger._connections._idle)]
                child = os.fork()
                if not child:
                    tx._connection.set_trace_callback(lambda sql: os._exit(3))
                    del tx
                    raise KeyboardInterrupt
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        except KeyboardInterrupt:
            gc.collect()
            left = [c() for c in inherited]
            status = 0 if all(c is not None and c.total_changes is not None for c in left) else 4
            os._exit(status or 5 * (ledger.sequence() != 1))
        assert len(inherited) == 2
    check(tmp_path, {1: 1})


def test_a_full_disk_loses_nothing(tmp_path):
    """
    When no page can be added the statement fails as a whole, with words, and later ones succeed.
    """
    create(tmp_path).close()
    with closing(reopen(tmp_path)) as ledger:
        measure(ledger, answers=(0,), cost=3)
        with ledger._connections.use() as connection:
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {pages}")
        released = {1: 0}

        def fill():
            for i in range(1, 100):
                released[measure(ledger, answers=(i,), cost=3)] = i

        with pytest.raises(OperationalError, match="full") as caught:
            fill()
        assert "Nothing was charged" in caught.value.hint
        assert len(ledger.measurements()) == len(released) > 1
        with ledger._connections.use() as connection:
            connection.execute(f"PRAGMA max_page_count = {2**30}")
        released[measure(ledger, answers=(100,), cost=3)] = 100
    check(tmp_path, released)


@pytest.mark.parametrize("code", ["SQLITE_FULL", "SQLITE_IOERR_FSYNC"])
def test_a_commit_that_fails_charges_nothing(tmp_path, monkeypatch, code):
    """
    An error of COMMIT itself undoes the transaction; its mark stays pending, and gives way.
    """
    with closing(create(tmp_path)) as ledger:
        real = type(ledger._connections._idle[0]) if ledger._connections._idle else None
        assert real

        def execute(self, sql, *values):
            if sql == "COMMIT":
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = getattr(sqlite3, code)
                raise error
            return sqlite3.Connection.execute(self, sql, *values)

        monkeypatch.setattr(real, "execute", execute, raising=False)
        with pytest.raises(OperationalError, match="disk"):
            measure(ledger)
        monkeypatch.undo()
        assert ledger.sequence() == 1
        assert [m.pending for m in FileAnchor(tmp_path / "anchor").read()] == [True, False]
        measure(ledger, answers=(9,), cost=3)
        assert [m.sequence for m in FileAnchor(tmp_path / "anchor").read()] == [2, 1]
    check(tmp_path, {1: 9})


def test_an_audit_file_that_cannot_be_written_fails_the_statement(folder, monkeypatch):
    """
    A free statement that cannot be audited is an error; the lines after it are whole again.
    """
    with closing(create(folder)) as ledger:
        ledger.note("inferred", "ann", "SELECT 1")

        def write(file, data, write=os.write):
            write(file, data[:5])
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "write", write)
        with pytest.raises(OperationalError, match="is full"):
            ledger.note("inferred", "ann", "SELECT 2")
        monkeypatch.undo()
        ledger.note("inferred", "ann", "SELECT 3")
        assert sorted(n.statement for n in ledger.notes()) == ["SELECT 1", "SELECT 3"]
        measure(ledger)
        assert ledger.verify() == []


def test_a_commit_is_synced_before_it_returns(tmp_path):
    """
    Every connection runs in WAL mode with synchronous=FULL: SQLite then syncs the log at COMMIT.
    """
    with closing(create(tmp_path)) as ledger, ledger._connections.use() as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert connection.execute("PRAGMA synchronous").fetchone()[0] == 2
