"""Planners: what is planned in processes of its own is what is planned here, and ends when told."""

import contextlib
import io
import os
import pickle
import signal
import sqlite3
import threading
import time

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import proxy.errors as errors
from proxy.engine import Engine
from proxy.errors import (
    Error,
    InsufficientBudgetError,
    InsufficientPrivilegeError,
    QueryCanceledError,
)
from proxy.server.workers import planner, template
from proxy.server.workers.planners import PlannerProcess, RemotePlanner
from proxy.server.workers.pool import Lease, Pool, _Unpickler
from tests.server import serving, templates
from tests.server.serving import COUNT
from tests.server.test_lifecycle import Slow

GROUPS = "FROM cps1988 GROUP BY education, experience WITH UTILITY"
KNOWN = (f"SELECT education, experience, COUNT(*) {GROUPS} (300, 0.05)",
         f"SELECT education, experience, SUM(wage) {GROUPS} (300000, 0.05)")  # fmt: skip
LONG = f"SELECT education, experience, AVG(wage) {GROUPS} (300, 0.05)"  # from these: many seconds

ASKED = (
    COUNT,
    KNOWN[0],
    "SELECT COUNT(*) FROM cps1988 WITH UTILITY (1e-6, 0.1)",
    "SELECT AVG(wage), COUNT(*) / 2 FROM cps1988 WHERE education > 12 WITH UTILITY (50, 0.05)",
    "SELECT * FROM privacy.budget",
    "SELECT COUNT(*) FROM cps1988 WITH UTILITY (5 PERCENT, 0.05)",
    "SELECT region FROM cps1988 GROUP BY region HAVING COUNT(*) > 5000",
)


def pids(pool):
    """The processes of a pool that do nothing now."""
    return [each._number for each in pool._crew.idle]


@contextlib.contextmanager
def held(engine):
    """Another process is in a transaction."""
    with contextlib.closing(sqlite3.connect(engine.ledger.path, isolation_level=None)) as lock:
        lock.execute("BEGIN IMMEDIATE")
        yield


@pytest.fixture
def planners(tmp_path):
    """An engine, and planners for it."""
    serving.prepare(tmp_path)
    with contextlib.closing(Engine.open(tmp_path / "cps1988.yaml", tmp_path / "state")) as engine:
        pool = Pool(PlannerProcess)
        with templates.forked(templates.lines()):
            pool.update([(engine.policy.key, engine.setup())])
            yield engine, pool
            pool.close()


@pytest.mark.parametrize("text", ASKED)
def test_a_planner_says_what_the_engine_says(planners, text):
    """
    Once it has measured, the engine infers the same from the ledger; and it is refused the same.
    """
    engine, pool = planners
    lease = Lease(pool)
    remote = engine.through(engine.compiler, RemotePlanner(engine.policy.key, lease.call))
    try:
        one, two = remote.session("bob"), engine.session("bob")
        outcomes = []
        for session in (one, one, two):
            try:
                result = session.execute(text)
                outcomes.append((result.columns, len(result.rows), result.cost, result.left,
                                 result.notices, result.numbers, result.measured))  # fmt: skip
                outcomes[-1] += ([a.source for row in result.answers for a in row],)
            except Error as error:
                outcomes.append((type(error), {**vars(error), "sqlstate": error.sqlstate}))
        assert outcomes[1] == outcomes[2]
        assert one.explain(COUNT).rows == two.explain(COUNT).rows
        assert remote.budget("bob") == engine.budget("bob")
        assert remote.left_in_cells() == engine.left_in_cells()
    finally:
        lease.close()


def every_error():
    """One of each class of errors that a planner may raise."""
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, Error):
            with contextlib.suppress(TypeError):
                yield kind("it is wrong", hint="do this")
    yield InsufficientBudgetError("too dear", requested=3.0, spent=1.0, left=0.5, hint="less")


def test_errors_arrive_as_they_were():
    """
    Class, words, fields and SQLSTATE, of every class that there is.
    """
    seen = 0
    for error in every_error():
        error.cost, error.position = 0.25, 7
        sent = pickle.dumps(template.told(error))
        arrived = template.raised(_Unpickler(io.BytesIO(sent)).load())
        assert type(arrived) is type(error)
        assert str(arrived) == str(error)
        assert arrived.args == error.args
        assert {**vars(error), "sqlstate": error.sqlstate} == vars(arrived)
        seen += 1
    assert seen > 20


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=1), st.integers(1, 9))))
def test_both_sides_keep_the_same_programs(few, sent):
    """
    Whatever is sent, in whatever sizes: what one side takes for known, the other has.
    """
    here, there = planner.Kept(), planner.Kept()
    for digest, size in sent:
        if here.get(digest) is None:
            here.put(digest, size, digest)
            data = digest
        else:
            data = b""
        if there.get(digest) is None:
            assert data
            there.put(digest, size, digest)
        assert here._programs == there._programs
        assert here._bytes == sum(size for size, _ in here._programs.values()) <= 20


@pytest.fixture(scope="module")
def few():
    """Bounds that a few small programs reach."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(planner, "KEPT", 4)
        patched.setattr(planner, "KEPT_BYTES", 20)
        yield


def test_a_planner_finds_a_state_that_was_named_from_where_the_server_began(tmp_path, monkeypatch):
    """
    Planners have another current folder: with `serve --state FOLDER` every statement failed.
    """
    serving.prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    with contextlib.closing(Engine.open("cps1988.yaml", "state")) as engine:
        setup = engine.setup()
    monkeypatch.chdir("/")
    setup.open().ledger.close()


def test_planners_that_end_are_replaced(tmp_path):
    """
    Killed while they do nothing, with their template or without: the next statement is answered.
    """
    serving.prepare(tmp_path)
    with serving.running(tmp_path) as running, running.connect("bob") as connection:
        connection.execute(COUNT)
        pool = running.server.registry.planners
        for template_too in (False, True, False):
            for pid in pids(pool):
                os.kill(pid, signal.SIGKILL)
            if template_too:
                pool._crew.template._process.kill()
                pool._crew.template._process.wait()
            time.sleep(0.1)
            rows = connection.execute(f"{COUNT} -- {time.monotonic()}").fetchall()
            assert len(rows) == 1


def test_a_planner_that_does_not_stop_is_ended(tmp_path):
    """
    Where it waits in the ledger: the statement is cancelled within a second or two, and another
    process has its place.
    """
    serving.prepare(tmp_path)
    with serving.running(tmp_path) as running, running.connect("bob") as connection:
        connection.execute("SELECT 1")
        before = pids(running.server.registry.planners)
        with Slow(running):
            timer = threading.Timer(0.5, connection.cancel_safe)
            timer.start()
            began = time.monotonic()
            with pytest.raises(psycopg.errors.QueryCanceled):
                connection.execute(COUNT)
            assert time.monotonic() - began < 20  # in place of the 30 s that the lock waits
            timer.join()
        assert connection.execute("SHOW history").fetchall() == []
        assert connection.execute(COUNT).fetchall()
        assert pids(running.server.registry.planners) != before


@pytest.mark.slow
def test_a_long_plan_keeps_nobody_waiting(tmp_path):
    """
    While one user's statements plan for many seconds, another's are answered, one after the other;
    those stop when they are told to, and have cost nothing.
    """
    serving.prepare(tmp_path)
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(serving.running(tmp_path))
        alice = [stack.enter_context(running.connect("alice")) for _ in range(6)]
        bob = stack.enter_context(running.connect("bob"))
        for text in (*KNOWN, COUNT):
            alice[0].execute(text)
        spent = bob.execute("SHOW budget").fetchall()
        ended = []

        def ask(connection):
            try:
                connection.execute(LONG)
            except psycopg.Error as error:
                ended.append(error.sqlstate)
            else:
                ended.append("done")

        threads = [threading.Thread(target=ask, args=[each]) for each in alice]
        for each in threads:
            each.start()
        while running.server.registry.planners.count()["busy"] < 2:
            time.sleep(0.01)
        for i in range(20):
            assert bob.execute(f"{COUNT} -- {i}").fetchall()
        assert not ended
        for each in alice:
            each.cancel_safe(timeout=20)
        for each in threads:
            each.join()
        assert ended == ["57014"] * len(alice)
        assert bob.execute("SHOW budget").fetchall() == spent


def test_a_cancellation_that_comes_late_stops_nothing_else(planners):
    """
    It is of one call: the next one runs.
    """
    engine, pool = planners
    lease = Lease(pool)
    session = engine.session("bob")
    program = engine.compile(COUNT, session)
    remote = RemotePlanner(engine.policy.key, lease.call)
    try:
        assert remote.answered(program, session).inference.answers
        process = lease._borrowed[1]
        process.cancel()
        time.sleep(0.1)
        session.bill = None
        assert remote.answered(program, session).inference.answers
        assert process.alive()
        session.bill = None
        thread = threading.Timer(0.2, lambda: lease.cancel("it is enough"))
        slow = engine.compile("SELECT COUNT(*) FROM cps1988 WITH UTILITY (444, 0.05)", session)
        with held(engine):
            thread.start()
            with pytest.raises(QueryCanceledError, match="it is enough"):
                remote.answered(slow, session)
        assert engine.history() == engine.history()[:1]
    finally:
        lease.close()


def test_what_was_paid_is_told_where_the_rest_is_cancelled(planners):
    """
    The planner is not asked any more by then: the error has the cost all the same.
    """
    engine, pool = planners
    lease = Lease(pool)
    remote = RemotePlanner(engine.policy.key, lease.call)
    session = engine.through(engine.compiler, remote).session("bob")
    real = remote.answered

    def answered(*of):
        told = real(*of)
        lease.cancel("it is enough")
        session.cancel()
        return told

    remote.answered = answered
    try:
        with pytest.raises(QueryCanceledError, match="canceling statement") as caught:
            session.execute("SELECT sqrt(COUNT(*)) AS n FROM cps1988 WITH UTILITY (500, 0.05)")
        (line,) = engine.history()
        assert caught.value.cost == line.cost > 0
        assert f"cost {line.cost:.4g}, left" in caught.value.hint
    finally:
        lease.close()


def test_a_cancellation_during_the_way_there_stops_the_call(planners, monkeypatch):
    """
    While the program is packed: nothing is measured.
    """
    engine, pool = planners
    lease = Lease(pool)
    session = engine.session("bob")
    program = engine.compile(COUNT, session)
    real = planner.packed

    def packed(*of):
        lease.cancel("it is enough")
        return real(*of)

    monkeypatch.setattr(planner, "packed", packed)
    try:
        with pytest.raises(QueryCanceledError):
            RemotePlanner(engine.policy.key, lease.call).answered(program, session)
        time.sleep(1)
        assert engine.history() == []
    finally:
        lease.close()


def test_what_a_user_may_is_what_the_users_file_says_that_came_with_it(planners):
    """
    Whatever the session takes its privileges to be: they may be older.
    """
    engine, pool = planners
    lease = Lease(pool)
    session = engine.session("bob")
    program = engine.compile(COUNT, session)
    users = engine.users.users
    session.users = replace(
        engine.users, users={**users, "bob": replace(users["bob"], roles=frozenset())}
    )
    remote = RemotePlanner(engine.policy.key, lease.call)
    try:
        with pytest.raises(InsufficientPrivilegeError, match="no analyst"):
            remote.answered(program, session)
        assert engine.history() == []
        session.users = engine.users
        assert remote.answered(program, session).inference.cost > 0
    finally:
        lease.close()


def test_a_plan_that_is_cancelled_leaves_the_history_as_it_was(planners):
    """
    It is not read again: a long one would take long.
    """
    engine, _ = planners
    session = engine.session("bob")
    session.execute(COUNT)
    accountant = engine.planner._accountant(session.privileges)
    before, blocks = accountant.sequence, list(accountant.history.blocks)
    real = engine.ledger.transaction

    @contextlib.contextmanager
    def transaction():
        with real() as tx:
            session.cancel()
            yield tx

    engine.ledger.transaction = transaction
    with pytest.raises(QueryCanceledError):
        session.execute("SELECT COUNT(*) FROM cps1988 WITH UTILITY (77, 0.05)")
    assert (accountant.sequence, accountant.history.blocks) == (before, blocks)
    assert len(engine.history()) == 1
