"""Workers: the same programs as here, no way out, bounds; fair turns; a cache by cost."""

import asyncio
import contextlib
import os
import pathlib
import resource
import subprocess
import threading
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from proxy.errors import Error, InternalError, QueryCanceledError, StatementTooComplexError
from proxy.policy.model import PublicTable
from proxy.server.workers import pool as workers_pool
from proxy.server.workers import tasks
from proxy.server.workers.cache import Cache
from proxy.server.workers.compiler import RemoteCompiler
from proxy.server.workers.pool import Lease, Pool
from proxy.server.workers.turns import Turns
from proxy.sql.evaluator.public_tables import load
from proxy.sql.program import Program
from proxy.sql.statement import compile_statement, program_key
from tests.searches import share
from tests.sql import survey
from tests.sql.test_cases import read

SLOW = "SELECT COUNT(*) FROM survey WHERE " + " OR ".join(f"age = {i % 90}" for i in range(4_000))


@pytest.fixture(scope="module")
def pool():
    """Workers that know the survey."""
    policy = survey.policy()
    tables = {name: load(name, table.path) for name, table in policy.public.items()}
    workers = Pool()
    workers.update([tasks.Dataset(policy.key, policy, tables)])
    yield workers
    workers.close()


@pytest.fixture
def lease(pool):
    """A worker for one test."""
    borrowed = Lease(pool)
    yield borrowed
    borrowed.close()


def meaning(compiled):
    """Return all that a program says, comparable."""
    if not isinstance(compiled, Program):
        return asdict(compiled) | {"program": compiled.program and meaning(compiled.program)}
    numbers = [
        (n.label, n.family.key, n.family.grid, n.shift, n.kind, n.utility, n.bounds, n.type)
        for release in compiled.releases
        for n in release.numbers
    ]
    groups = [release.groups for release in compiled.releases]
    return compiled.columns, compiled.sql, compiled.notices, compiled.derived, groups, numbers


def outcome(compile_):
    """Return what a text means, or why it means nothing."""
    try:
        return meaning(compile_())
    except Error as error:
        return error.message, error.hint, error.detail, error.position, error.sqlstate


@pytest.mark.parametrize("part", share(1, range(4)))
def test_a_worker_compiles_as_this_process_does(pool, lease, part):
    """
    Every accepted and every refused case: the same program, or the same error in all its parts,
    though a worker can open no file for what it would import.
    """
    policy, evaluator = survey.policy(), survey.evaluator()
    remote = RemoteCompiler(policy, Cache(0, 0), lease.call)
    texts = [case.values[1] for folder in ("cases", "refused") for case in read(folder)]
    assert len(texts) > 900
    for text in texts[part::4]:
        here = outcome(lambda text=text: compile_statement(text, policy, evaluator))
        there = outcome(
            lambda text=text: remote.compile(program_key(text, policy, {}, {}, "postgres"))
        )
        assert here == there, text


READ = {  # a text, and whether its program comes with the route
    "SELECT COUNT(*) FROM survey": True,
    "SELECT COUNT(*) FROM survey WHERE age = $1": False,
    "SELECT COUNT(*) FROM survey WHERE nonsense": False,
    "SELECT COUNT(*) FROM survey; SELECT 1": False,
    "DECLARE c CURSOR FOR SELECT COUNT(*) FROM survey": False,
    "SELECT COUNT(*) FROM survey WITH UTILITY (5, 7)": False,
    "SELECT 1": False,
}


@pytest.mark.parametrize("text", READ)
def test_who_routes_a_text_compiles_it(lease, text):
    """
    The route is what it is without; the program is the one of the key, and only where the text is
    one statement that the dataset of the key answers: no error but the route's is told by it.
    """
    policy = survey.policy()
    of = (text, ("survey",), "survey", (), (), True)
    for other in (policy, replace(policy, dataset="other")):
        key = program_key(text, other, {}, None, "postgres")
        plan, program = lease.call(tasks.read, of, key)
        assert repr(plan) == repr(lease.call(tasks.routed, *of))
        assert (program is not None) == (READ[text] and other is policy)
        if program is not None:
            assert meaning(program) == meaning(lease.call(tasks.compiled, key))
    assert lease.call(tasks.read, of, None)[1] is None


@pytest.mark.slow
def test_a_program_means_the_same_in_every_worker(tmp_path):
    """
    What one worker has compiled another one runs, whichever public tables each has met, and in
    what order.
    """
    for name in ("one", "two"):
        (tmp_path / f"{name}.csv").write_text(f"word\n{name}\n")
    public = {name: PublicTable(tmp_path / f"{name}.csv") for name in ("one", "two")}
    policy = replace(survey.policy(), public=public)
    pool = Pool()
    pool.update(
        [tasks.Dataset(policy.key, policy, {n: load(n, t.path) for n, t in public.items()})]
    )
    try:
        leases = [Lease(pool) for _ in range(3)]
        texts = ["SELECT word FROM one", "SELECT word FROM two"]
        remotes = [RemoteCompiler(policy, Cache(0, 0), lease.call) for lease in leases]
        keys = [program_key(text, policy, {}, {}, "postgres") for text in texts]
        programs = [[remotes[0].compile(key) for key in keys]]
        programs += [[remotes[1].compile(key) for key in keys[::-1]][::-1]]
        for one, two in programs:
            for remote in remotes:  # the third has compiled nothing
                assert list(remote.rows(two.sql, {})) == [("two",)]
                assert list(remote.rows(one.sql, {})) == [("one",)]
        for lease in leases:
            lease.close()
    finally:
        pool.close()


@pytest.mark.parametrize(
    "call, arguments",
    [
        (open, ("/etc/passwd",)),
        (os.listdir, ("/",)),
        (subprocess.run, (["true"],)),
        (pathlib.Path, ("/etc",)),  # an object that is no value
    ],
    ids=["open", "list", "run", "object"],
)
def test_nothing_gets_out_of_a_worker(pool, lease, call, arguments):
    """
    A worker opens no file, starts no process, and sends nothing but values.
    """
    with pytest.raises((InternalError, StatementTooComplexError)):
        lease.call(call, *arguments)


@pytest.mark.slow
def test_memory_has_a_bound_and_goes_back(pool, lease):
    """
    What takes too much fails alone, and a worker that has grown is replaced.
    """
    with pytest.raises(StatementTooComplexError, match="memory"):
        lease.call(bytes, 3 << 30)
    lease.close()
    worker = os.getpid()
    assert lease.call(os.getpid) != worker
    first = lease.call(os.getpid)
    assert len(lease.call(bytes, 200 << 20)) == 200 << 20
    lease.close()
    assert lease.call(os.getpid) != first


@pytest.mark.slow
def test_time_has_a_bound(pool, monkeypatch):
    """
    A call that takes too long ends with its worker, and says so.
    """
    monkeypatch.setattr(workers_pool.Worker, "seconds", 0.3)
    lease = Lease(pool)
    with pytest.raises(StatementTooComplexError, match=r"more than 0\.3 s"):
        lease.call(time.sleep, 60)
    lease.close()


def tasks_key(text):
    """Return the key of a text's program."""
    return program_key(text, survey.policy(), {}, {}, "postgres")


@pytest.mark.slow
def test_a_crowd_of_connections_does_not_come_in_the_way(pool):
    """
    Files whose numbers are past 1,024, as of a server with many connections, are as good as others.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4_096)), hard))
    try:
        with contextlib.ExitStack() as crowd:
            for _ in range(1_100):
                crowd.callback(os.close, os.open(os.devnull, os.O_RDONLY))
            leases = [Lease(pool) for _ in range(3)]  # new workers too
            assert [lease.call(tasks.numbers, "SELECT $1") for lease in leases] == [[1]] * 3
            with pytest.raises(QueryCanceledError):
                canceled(leases[0], 0.2)
            for lease in leases:
                lease.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def canceled(lease, moment):
    """Cancel a long call after so many seconds."""
    threading.Timer(moment, lease.cancel, ["enough"]).start()
    work_on(lease)


@pytest.mark.slow
def test_what_is_cancelled_ends_at_once(pool):
    """
    At any moment of a long call a cancellation ends it within a second, and what was to follow;
    the next step has a worker.
    """
    for moment in (0.0, 0.01, 0.1, 0.3):
        lease = Lease(pool)
        threading.Timer(moment, lease.cancel, ["enough"]).start()
        began = time.monotonic()
        with pytest.raises(QueryCanceledError, match="enough"):
            work_on(lease)
        assert time.monotonic() < began + moment + 5  # generous: the machine may be busy
        with pytest.raises(QueryCanceledError, match="enough"):
            lease.call(tasks.numbers, "SELECT $1")
        lease.close()
        again = Lease(pool)
        assert again.call(tasks.numbers, "SELECT $1") == [1]
        again.close()


def work_on(lease):
    """Compile for ten seconds."""
    began = time.monotonic()
    while time.monotonic() < began + 10:
        lease.call(tasks.compiled, tasks_key(SLOW))


# --- turns -----------------------------------------------------------------------------------


@given(
    st.integers(1, 8),
    st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=60),
)
def test_turns_are_fair(places, moves):
    """
    Never more than the places; a user who holds k got the last of them while more than k were
    free; nobody waits who may have a place; all that wait are served as places come free.
    """

    async def play():
        turns = Turns(places)
        held, tasks_ = Counter(), []

        async def take(user):
            await turns.take(user)
            held[user] += 1

        for user, takes in moves:
            if takes:
                tasks_.append((user, asyncio.ensure_future(take(user))))
            elif held[user]:
                held[user] -= 1
                turns.release(user)
            for _ in range(4):
                await asyncio.sleep(0)
            assert held.total() <= places
            free = places - held.total()
            for waiting in {user for user, task in tasks_ if not task.done()}:
                assert free <= held[waiting]
        while held.total():
            user = next(iter(+held))
            held[user] -= 1
            turns.release(user)
            for _ in range(4):
                await asyncio.sleep(0)
        assert all(task.done() for _, task in tasks_)
        assert turns.waiting == 0

    asyncio.run(play())


def test_one_user_leaves_room_for_others():
    """
    However many ask, one user holds half of the places; the next user gets one at once.
    """

    async def play():
        turns = Turns(8)
        crowd = [asyncio.ensure_future(turns.take("mallory")) for _ in range(100)]
        await asyncio.sleep(0)
        assert sum(task.done() for task in crowd) == 4
        await asyncio.wait_for(turns.take("alice"), 1)
        for task in crowd:
            task.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)
        assert turns.waiting == 0

    asyncio.run(play())


# --- the cache -------------------------------------------------------------------------------


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 50), st.floats(0, 10)), max_size=80))
def test_a_cache_has_bounds(entries):
    """
    Never more items or bytes than allowed; what was put last is there if it fits at all, or was
    worth less than what is there.
    """
    cache = Cache(10, 100)
    for key, size, cost in entries:
        cache.put(key, (key, size), size, cost)
        there = [cache.get(each) for each in range(31) if cache.get(each) is not None]
        assert len(there) <= 10
        assert sum(size for _, size in there) <= 100


def test_a_cache_keeps_what_was_dear():
    """
    Cheap and large values go first; what is never asked for goes in the end.
    """
    cache = Cache(10, 1_000)
    cache.put("dear", 1, 10, 5.0)
    for i in range(100):
        cache.put(i, i, 10, 0.01)
    assert cache.get("dear") == 1
    for i in range(100_000):
        cache.put(i, i, 10, 0.1)
    assert cache.get("dear") is None
