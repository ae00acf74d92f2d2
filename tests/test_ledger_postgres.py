"""A ledger in PostgreSQL, where connections are lost, servers fail, and proxies are many."""

import os
import signal
import socket
import threading
import time
from contextlib import ExitStack, closing, suppress

import psycopg
import pytest

from proxy.errors import IntegrityError, OperationalError, StateError
from proxy.ledger import Measurement
from proxy.ledger.anchor import FileAnchor
from proxy.ledger.postgres import NAME, PostgresLedger, PostgresPlace, schema_of
from proxy.ledger.sessions import Session
from tests.cluster import running
from tests.test_ledger import COUNT, SERVER, create, lose, measure, reopen, server


@pytest.fixture
def folder(cluster, tmp_path):
    """The state folder of the first proxy."""
    return state(tmp_path / "first", cluster.database())


def state(folder, url):
    """A state folder whose ledger is in a database."""
    folder.mkdir(parents=True)
    (folder / SERVER).write_text(url)
    return folder


def joined(folder, name="second"):
    """The state folder of another proxy on the same ledger."""
    other = state(folder.parent / name, server(folder))
    PostgresLedger.join(server(folder), other, "people", other / "anchor")
    return other


@pytest.fixture
def ledger(folder):
    with closing(create(folder)) as made:
        yield made


def cut(folder, state="%"):
    """End every connection to a database, of those in a state; return how many."""
    with psycopg.connect(server(folder), autocommit=True) as raw:
        ended = raw.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() AND state LIKE %s",
            [state],
        )
        return len(ended.fetchall())


# --- connections that are lost -------------------------------------------------------------------


def test_a_lost_connection_is_replaced_where_nothing_was_begun(ledger, folder):
    """
    For a read, and for a transaction before it has the lock.
    """
    measure(ledger)
    assert cut(folder) > 0
    assert ledger.sequence() == 2
    assert cut(folder) > 0
    assert measure(ledger) == 2
    assert ledger.verify() == []


def test_a_connection_lost_within_a_transaction_charges_nothing(ledger, folder):
    """
    Neither at the next statement, nor at COMMIT; and the caller is told to try again.
    """

    def losing(early):
        with ledger.transaction() as tx:
            tx.append(Measurement(COUNT, 1.0, (1,)))
            if early:
                cut(folder)
            tx.audit("measured", "ann", cost=5)
            cut(folder)

    for early in (True, False):
        with pytest.raises(OperationalError, match="was lost") as caught:
            losing(early)
        assert "Nothing was charged" in caught.value.hint
        assert (ledger.sequence(), ledger.spent_by("ann")) == (1, 0)
    assert measure(ledger) == 1
    assert ledger.verify() == []


def test_a_failure_that_the_caller_passed_over_is_no_commit(ledger):
    """
    PostgreSQL answers COMMIT with ROLLBACK then, which is no error of its own.
    """

    def passed_over():
        with ledger.transaction() as tx:
            tx.audit("measured", "ann")
            with pytest.raises(psycopg.Error):
                tx._connection.execute("SELECT 1 / ?", (0,))

    with pytest.raises(OperationalError, match=r"rolled back|aborted"):
        passed_over()
    assert ledger.sequence() == 1


class Relay:
    """A way to a server that is cut as soon as a COMMIT has passed, before its answer."""

    def __init__(self, port):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._server, self.armed, self.commits = port, False, 0
        self._sockets, self._threads = [self._listener], []
        self._begin(self._accept)

    def _begin(self, what, *args):
        self._threads.append(threading.Thread(target=what, args=args))
        self._threads[-1].start()

    def _accept(self):
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                there = socket.create_connection(("127.0.0.1", self._server))
                self._sockets += [client, there]
                self._begin(self._pass, client, there, True)
                self._begin(self._pass, there, client, False)

    def _pass(self, source, target, sent):
        with suppress(OSError):
            while data := source.recv(65536):
                last = sent and self.armed and b"COMMIT\0" in data
                self.commits += last
                target.sendall(data)
                if last:
                    return source.shutdown(socket.SHUT_RDWR)  # the server sees no end yet
            target.shutdown(socket.SHUT_RDWR)

    def close(self):
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def relay(cluster):
    with closing(Relay(cluster.port)) as relay:
        yield relay


def through(relay, folder, **options):
    """Open the ledger of a folder over a relay."""
    url = server(folder)
    port = url.rpartition(":")[2].partition("/")[0]
    (folder / SERVER).write_text(url.replace(port, str(relay.port)))
    opened = reopen(folder, **options)
    (folder / SERVER).write_text(url)
    return opened


def test_a_commit_without_an_answer_is_looked_up_and_told_if_it_stands(ledger, folder, relay):
    """
    The transaction is done as if the answer had come: its line is there, and the anchor has it.
    """
    with closing(through(relay, folder)) as mine:
        relay.armed = True
        assert measure(mine, answers=(9,)) == 1
        assert relay.commits >= 1
        relay.armed = False
        assert mine.verify() == []
    assert [row.answers for row in ledger.measurements()] == [(9,)]
    (mark, _) = FileAnchor(folder / "anchor").read()
    assert (mark.sequence, mark.pending) == (2, False)


def test_a_commit_that_never_came_is_no_charge(ledger, monkeypatch):
    """
    The connection ended before it.
    """
    real = Session.commit

    def ended(self):
        self.raw.close()
        self.raw.execute("COMMIT")

    monkeypatch.setattr(Session, "commit", ended)
    with pytest.raises(OperationalError, match="was lost") as caught:
        measure(ledger)
    assert "Nothing was charged" in caught.value.hint
    monkeypatch.setattr(Session, "commit", real)
    assert ledger.sequence() == 1
    assert measure(ledger) == 1


def test_a_commit_that_nobody_can_look_up_lets_nothing_out(ledger, folder, relay, cluster):
    """
    While the server still commits, its lock is not free, and the outcome not known: no answer, and
    no word that nothing was charged.  What was charged in the end stands.
    """
    with ExitStack() as ends:
        mine = ends.enter_context(closing(through(relay, folder, timeout=0.5)))
        raw = ends.enter_context(cluster.connect())
        raw.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        raw.execute("SELECT pg_reload_conf()")
        ends.callback(time.sleep, 0.2)
        ends.callback(raw.execute, "SELECT pg_reload_conf()")
        ends.callback(raw.execute, "ALTER SYSTEM RESET synchronous_standby_names")
        time.sleep(0.2)
        relay.armed = True
        with pytest.raises(OperationalError, match="cannot be found out") as caught:
            measure(mine)
        assert "Nothing was charged" not in str(caught.value)
        assert FileAnchor(folder / "anchor").read()[0].pending
    for _ in range(100):
        if ledger.sequence() == 2:
            break
        time.sleep(0.1)
    assert ledger.spent_by("ann") == 5
    assert len(ledger.measurements()) == 1
    assert measure(ledger) == 2
    assert ledger.verify() == []


def test_a_server_that_fails_and_comes_back_is_waited_for(folder):
    """
    Within a transaction that is an error without a charge; what comes next waits for the server.
    """
    with running() as own:
        here = state(folder.parent / "own", own.url)
        with closing(create(here)) as ledger:
            measure(ledger)

            def failing():
                with ledger.transaction() as tx:
                    tx.append(Measurement(COUNT, 1.0, (1,)))
                    own.stop(at_once=True)
                    tx.audit("measured", "ann", cost=5)

            with pytest.raises(OperationalError, match=r"was lost|cannot be reached"):
                failing()
            starter = threading.Timer(1, own.start)
            starter.start()
            assert measure(ledger) == 2
            starter.join()
            assert (ledger.sequence(), ledger.spent_by("ann")) == (3, 10)
            assert ledger.verify() == []


# --- what a server must keep ---------------------------------------------------------------------


def test_a_commit_is_durable_whatever_the_database_is_set_to(ledger, folder):
    """
    ``synchronous_commit`` is on within a transaction; more than that stays as it is.
    """
    for set_to, held in (("off", "on"), ("local", "on"), ("remote_apply", "remote_apply")):
        with psycopg.connect(server(folder), autocommit=True) as raw:
            name = raw.info.dbname
            raw.execute(f"ALTER DATABASE {name} SET synchronous_commit = {set_to}")
        with closing(reopen(folder)) as fresh, fresh.transaction() as tx:
            (row,) = tx._connection.execute("SHOW synchronous_commit").fetchall()
            assert row == (held,)


def test_a_server_that_would_lose_what_it_was_told_is_refused(tmp_path):
    """
    With ``fsync = off`` a charge is lost with the machine.
    """
    with running(durable=False) as careless:
        folder = state(tmp_path / "first", careless.url)
        with pytest.raises(StateError, match="fsync = off"):
            create(folder)


def test_a_role_that_owns_nothing_can_charge_and_change_nothing_else(ledger, folder):
    """
    With the privileges that policies/README.md names it measures and refines; it cannot change or
    remove a line, nor the triggers that refuse that.
    """
    schema = schema_of("people")
    with psycopg.connect(server(folder), autocommit=True) as raw:
        raw.execute("DROP ROLE IF EXISTS serving")
        raw.execute("CREATE ROLE serving LOGIN")
        for statement in grants(schema, "serving"):
            raw.execute(statement)
    url = server(folder)
    (folder / SERVER).write_text(url.replace("postgres@", "serving@"))
    with closing(reopen(folder)) as mine:
        assert measure(mine) == 1
        with mine.transaction() as tx:
            tx.replace(1, 2.0, (8,))
            tx.audit("refined", "ann", cost=3)
        assert mine.verify() == []
        mine.backup(folder / "backup")
    with psycopg.connect(server(folder), autocommit=True) as raw:
        raw.execute(f"SET search_path = {schema}")
        for statement in (
            "UPDATE audit SET cost = 0",
            "DELETE FROM audit",
            "TRUNCATE measurements",
            "UPDATE measurements SET family = answers",
            "ALTER TABLE audit DISABLE TRIGGER ALL",
            "DROP TABLE audit",
            "SET session_replication_role = replica",
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE sql AS 'SELECT 1'",
        ):
            with pytest.raises(psycopg.Error, match=r"permission denied|must be owner"):
                raw.execute(statement)
        with pytest.raises(psycopg.Error, match="keeps its identity"):
            raw.execute("UPDATE ledger SET dataset = 'mine'")
    (folder / SERVER).write_text(url)
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute("DROP OWNED BY serving")
        raw.execute("DROP ROLE serving")


def grants(schema, role):
    """The statements of policies/README.md, for a role."""
    from pathlib import Path

    text = (Path(__file__).parents[1] / "policies/README.md").read_text()
    block = text[text.index("GRANT USAGE ON SCHEMA") :].partition("```")[0]
    for statement in block.replace("ledger_cps1988", schema).split(";"):
        if statement.strip():
            yield statement.replace("TO proxy", f"TO {role}")


# --- forks ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # threads of xdist
def test_a_lock_ends_with_its_process_though_a_child_lives_on(folder, tmp_path):
    """
    A forked child holds none of its parent's connections open, and cannot use them.
    """
    create(folder).close()
    ready, child_ready = os.pipe()
    parent = os.fork()
    if not parent:
        with reopen(folder).transaction() as tx:
            tx.audit("x", "ann")
            if not os.fork():
                try:
                    tx.audit("x", "eve")
                    said = b"used"
                except StateError:
                    said = b"refused"
                os.write(child_ready, said)
                time.sleep(5)
                os._exit(0)
            time.sleep(60)
    try:
        assert os.read(ready, 10) == b"refused"
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        with closing(reopen(folder, timeout=3)) as ledger:
            measure(ledger)
            assert ledger.sequence() == 2
            assert ledger.verify() == []
    finally:
        os.close(ready)
        os.close(child_ready)


# --- several proxies -----------------------------------------------------------------------------


def test_proxies_with_folders_of_their_own_share_one_history(ledger, folder):
    """
    Each goes on where another was; each has its own anchor, and its own free statements, which
    ``verify`` misses nowhere else.
    """
    second = joined(folder)
    with closing(reopen(second)) as other:
        for i in range(3):
            ledger.note("inferred", "ann")
            other.note("inferred", "bob")
            measure(ledger, answers=(i,), cost=3)
            measure(other, answers=(i,), cost=3, user="bob")
        assert ledger.spent_by() == other.spent_by() == 18
        assert [row.sequence for row in other.measurements(after=4)] == [5, 6, 7]
        assert {line.user for line in ledger.notes()} == {"ann"}
        assert (ledger.verify(), other.verify()) == ([], [])
        for path in (second / "ledger.notes").iterdir():
            path.unlink()
        assert ledger.verify() == []
        assert any("the file is missing" in problem for problem in other.verify())


def test_a_mark_that_was_never_committed_leaves_the_one_before(ledger, folder):
    """
    A proxy dies between its mark and its COMMIT, others go on, and it fails again: its anchor
    still has what it saw last.
    """
    with closing(reopen(joined(folder))) as other:
        measure(ledger)
        for _ in range(2):
            anchor = FileAnchor(folder / "anchor")
            held = anchor.read()[-1]
            lost = ledger._mark()
            lost = type(lost)(lost.ledger, lost.sequence + 1, "f" * 64, {"shared": 99})
            anchor.prepare(lost, held.sequence)()
            measure(other)
            measure(other)
            with closing(reopen(folder)) as again:
                assert again.sequence() == other.sequence()
        measure(ledger)
        assert ledger.verify() == []


def test_each_proxy_finds_a_ledger_that_was_set_back_behind_what_it_saw(ledger, folder):
    """
    By its own anchor: the one that saw more refuses it, the one that saw less cannot know.
    """
    second = joined(folder)
    measure(ledger)
    ledger.backup(folder / "old")
    with closing(reopen(second)) as other:
        measure(other)
    PostgresPlace("people", folder / "none", folder / "anchor", server(folder)).put(
        folder / "old", None
    )
    reopen(folder).close()
    with pytest.raises(IntegrityError, match="behind its anchor: line 2 of 3"):
        reopen(second)


def back(folder, **options):
    place = PostgresPlace("people", folder / "none", folder / "anchor", server(folder))
    return place.restore(folder / "backup", user="op", **options)[0]


def test_a_restore_charges_what_the_ledger_that_is_there_has_spent(ledger, folder):
    """
    Also what only another proxy saw; and both go on after it, on the lines that follow.
    """
    second = joined(folder)
    measure(ledger, cost=5)
    ledger.backup(folder / "backup")
    with closing(reopen(second)) as other:
        measure(other, cost=7, user="bob")
        with closing(back(folder)) as restored:
            assert restored.spent() == {"shared": 12}
            assert (restored.sequence(), restored.verify()) == (4, [])
        assert other.spent() == {"shared": 12}
        measure(other, snapshot=other.snapshot().id)
        measure(ledger, snapshot=other.snapshot().id)
        assert (ledger.verify(), other.verify()) == ([], [])
    with psycopg.connect(server(folder)) as raw:
        kept = raw.execute("SELECT count(*) FROM pg_namespace WHERE nspname LIKE '%replaced%'")
        assert kept.fetchone() == (1,)


def test_a_restore_does_not_pass_over_a_charge_that_comes_meanwhile(ledger, folder, monkeypatch):
    """
    A proxy that charges after the restore has looked makes it fail, with nothing changed.
    """
    measure(ledger, cost=5)
    ledger.backup(folder / "backup")
    real = PostgresPlace.put

    def meanwhile(place, draft, found):
        measure(ledger, cost=7)
        real(place, draft, found)

    monkeypatch.setattr(PostgresPlace, "put", meanwhile)
    with pytest.raises(OperationalError, match="in use"):
        back(folder)
    assert (ledger.spent(), ledger.verify()) == ({"shared": 12}, [])


def test_where_the_server_is_lost_the_anchors_of_all_proxies_count(ledger, folder):
    """
    Restored with one proxy's anchor, another that saw more refuses the ledger; with both anchors
    all that was spent is charged, and every proxy goes on.
    """
    second, third = joined(folder), joined(folder, "third")
    measure(ledger, cost=5)
    ledger.backup(folder / "backup")
    with closing(reopen(third)) as other:
        measure(other, cost=4)
    with closing(reopen(second)) as other:
        measure(other, cost=7)
        measure(other, cost=7)
    lose(folder)
    with closing(back(folder)) as restored:
        assert restored.spent() == {"shared": 5}
    with pytest.raises(IntegrityError, match=r"behind|not what its anchor saw"):
        reopen(second)
    lose(folder)
    with closing(back(folder, anchors=[second / "anchor", third / "anchor"])) as restored:
        assert restored.spent() == {"shared": 23}
        assert restored.verify() == []
    for each in (second, third):
        with closing(reopen(each)) as other:
            measure(other, snapshot=other.snapshot().id)
            assert other.verify() == []


def test_a_folder_that_has_lost_its_anchor_does_not_join_silently(ledger, folder):
    """
    Nor does one that has anything else of a state; the proxy's name is missed as well.
    """
    measure(ledger)
    ledger.note("inferred", "ann")
    ledger.close()
    (folder / "anchor").rename(folder / "gone")
    with pytest.raises(IntegrityError, match="missing or damaged"):
        reopen(folder)
    with pytest.raises(StateError, match="not whole"):
        PostgresLedger.join(server(folder), folder, "people", folder / "anchor")
    (folder / "gone").rename(folder / "anchor")
    with pytest.raises(StateError, match="a state already"):
        PostgresLedger.join(server(folder), folder, "people", folder / "anchor")
    (folder / NAME).unlink()
    with pytest.raises(IntegrityError, match="is missing"):
        reopen(folder)


def test_one_of_two_that_make_a_ledger_at_once_is_told_that_it_exists(folder):
    """
    There is one ledger, and its anchor is that of who made it.
    """
    folders = [folder, state(folder.parent / "second", server(folder))]
    said = []

    def make(where):
        try:
            create(where).close()
            said.append(None)
        except StateError as error:
            said.append(error.message)

    threads = [threading.Thread(target=make, args=(where,)) for where in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(word is None for word in said) == [False, True]
    assert any("exists already" in word for word in said if word)


@pytest.mark.parametrize(
    "name", ["people", "People", "peöple", "a b", "x" * 90, "a?%s'\"", "a?%t'"]
)
def test_datasets_of_any_name_share_a_database(folder, name):
    """
    Each has a schema of its own, under a plain name.
    """
    url = server(folder)
    (folder / "own").mkdir()
    begin = {"protection": {}, "digest": "d", "anchor": folder / "own/anchor"}
    with ExitStack() as ends:
        first = ends.enter_context(
            closing(PostgresLedger.create(url, folder / "own", dataset=name, **begin))
        )
        (folder / "other").mkdir()
        begin["anchor"] = folder / "other/anchor"
        other = PostgresLedger.create(url, folder / "other", dataset=f"{name}!", **begin)
        ends.callback(other.close)
        measure(first)
        assert (first.sequence(), other.sequence()) == (2, 1)
        assert (first.verify(), other.verify()) == ([], [])


def test_a_schema_is_a_plain_name_of_its_dataset_alone():
    """
    As PostgreSQL takes it without quotes, of 63 bytes at most.
    """
    names = ["people", "People", "PEOPLE", "peöple", "a b", "a_b", "x" * 90, "x" * 91, "", "_"]
    schemas = [schema_of(name) for name in names]
    assert schemas[0] == "ledger_people"
    assert len(set(schemas)) == len(names)
    assert all(len(s) < 64 and s.replace("_", "a").isalnum() and s.isascii() for s in schemas)


def test_a_server_that_cannot_be_reached_is_said_so_at_once(folder):
    """
    Before it was ever there nobody waits for it; the message has the way to give a password.
    """
    (folder / SERVER).write_text("postgresql://127.0.0.1:1/nowhere")
    begin = time.monotonic()
    with pytest.raises(OperationalError, match="cannot be reached") as caught:
        reopen(folder)
    assert time.monotonic() - begin < 5
    assert "PGPASSFILE" in caught.value.hint


def test_a_probe_says_whether_it_could_be_charged(ledger, folder):
    """
    In words that name no server: whose ledger it is, that it is locked, and that it is away.
    """
    place = PostgresPlace("people", folder / "none", folder / "anchor", server(folder))
    assert place.unwritable(ledger.id) is None
    assert place.unwritable("x") == "it is another one"
    with ledger.transaction():
        assert place.unwritable(ledger.id) == "it is locked"
    away = PostgresPlace("people", folder / "none", folder / "anchor", "postgresql://[::1]:1/none")
    assert away.unwritable(ledger.id) == "it cannot be written"
    assert away.lost() == "it cannot be reached"
