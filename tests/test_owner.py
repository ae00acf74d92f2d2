"""Whose the files of a state are: its owner's, whoever runs a command; nobody else changes any.

The users are made of thin air: who is root may be anybody.
"""

import os
import re
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import click
import pytest

from proxy.cli import commands, run
from proxy.files import _told
from proxy.ledger.anchor import FileAnchor
from proxy.server import login
from proxy.server.mirror.postgres import NOTES, Embedded
from tests.searches import share
from tests.small import Small

OWNER, OTHER = 20001, 20002
FREE = "SELECT COUNT(*) AS n FROM people WITH UTILITY (100, 0.1)"
COMMANDS = {  # by name; what each says where it is the first
    "query": ["people.yaml", "SELECT COUNT(*) AS n FROM people WHERE age < 5"],
    "query again": ["people.yaml", FREE],
    "explain": ["people.yaml", FREE],
    "budget": ["people.yaml"],
    "history": ["people.yaml"],
    "init": ["people.yaml"],
    "check": ["people.yaml"],
    "apply": ["people.yaml"],
    "rebuild": ["people.yaml"],
    "audit": ["people.yaml"],
    "audit --verify": ["people.yaml"],
    "guards": ["people.yaml"],
    "plan": ["people.yaml", "--log"],
    "users": ["people.yaml"],
    "ledger backup": ["people.yaml", "backup"],
    "ledger restore": ["people.yaml", "backup"],
    "passwd": ["ann", "--users", "users.yaml"],
    "shell": ["people.yaml", "-c", FREE],
}
FIRST = {"query", "init", "rebuild", "ledger restore", "ledger backup", "passwd"}  # they write
STATELESS = {"demo", "draft", "experiment", "schema"}
SERVING = {"serve", "console"}  # whose parts are tried below

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")


@contextmanager
def user(number):
    """Be another user for the length of a block, as far as files are concerned."""
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(number)
    os.seteuid(number)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def call(name):
    """Run a command; return its status."""
    words = name.replace(" again", "").split()
    if name == "ledger backup" and os.path.exists("backup"):
        os.unlink("backup")
    return run([*words, *COMMANDS[name]])


@pytest.fixture(scope="module")
def made():
    """A folder with data, policy and state: two answers, a backup and all that commands make."""
    folder = Path(tempfile.mkdtemp(prefix="owner-"))
    small = Small(folder)
    small.data((0, "a", 5), (5, "a", 4), (9, "b", 7))
    small.users(ann="roles: [analyst]", bob="roles: [analyst]")
    small.write("privacy: {budget: 1000, unit: row}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("proxy.cli.passwd._password", lambda user: "secret")
        run(["init", "people.yaml"])
        for name in COMMANDS:  # also imports, as root, what it needs
            call(name)
        call("query again")
        yield folder
    shutil.rmtree(folder)


@pytest.fixture
def small(made, monkeypatch):
    """The current folder, a copy of that, belongs to an ordinary user."""
    folder = Path(tempfile.mkdtemp(prefix="owner-"))
    shutil.copytree(made, folder, dirs_exist_ok=True)
    for aside in folder.rglob("*.replaced-*"):
        aside.unlink()
    given(folder, OWNER)
    monkeypatch.chdir(folder)
    yield Small(folder)
    shutil.rmtree(folder)


def given(folder, owner):
    """Let all in a folder belong to somebody."""
    os.chown(folder, owner, owner)
    for path in folder.rglob("*"):
        os.chown(path, owner, owner)


def opened(folder, mode=0o777):
    """Let everybody into a folder, and read what is not the state."""
    folder.chmod(mode)
    for path in ("users.yaml", "people.yaml", "people.csv"):
        (folder / path).chmod(0o644)


def owners(folder):
    """Return whose is what in a folder, and in what group."""
    return {(p.lstat().st_uid, p.lstat().st_gid) for p in (folder, *folder.rglob("*"))}


def content(folder):
    """Return all that can be seen of a folder."""
    return {
        path: (path.stat().st_mode, path.stat().st_uid, path.is_file() and path.read_bytes())
        for path in (folder, *folder.rglob("*"))
    }


def test_every_command_is_tried():
    """
    A new command gets a line above.
    """

    def names(group, before=()):
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if isinstance(command, click.Group):
                yield from names(command, (*before, name))
            else:
                yield " ".join((*before, name))

    assert set(names(commands)) == STATELESS | SERVING | set(COMMANDS) - {
        "query again",
        "audit --verify",
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", share(6, sorted(COMMANDS, key=FIRST.__contains__, reverse=True)))
def test_what_root_does_leaves_everything_to_the_owner(small, name, capfd):
    """
    After any command of root's, all files are the owner's, who can do all there is to do.
    """
    assert call(name) == (2 if name == "init" else 0)
    assert owners(small.folder) == {(OWNER, OWNER)}
    with user(OWNER):
        for each in COMMANDS:
            assert call(each) == (2 if each == "init" else 0), (each, capfd.readouterr())
    assert owners(small.folder) == {(OWNER, OWNER)}


def test_root_beside_the_owner(small):
    """
    Files that last as long as a process are the owner's too, whoever comes first.
    """
    engine = small.engine()
    engine.session().execute(FREE)
    assert (small.state / "ledger.sqlite-wal").exists()
    assert owners(small.folder) == {(OWNER, OWNER)}
    with user(OWNER):
        assert call("query") == call("query again") == 0
    engine.session().execute("SELECT COUNT(*) FROM people WHERE town = 'a'")
    engine.close()
    assert owners(small.folder) == {(OWNER, OWNER)}


@pytest.mark.parametrize("name", COMMANDS)
def test_somebody_else_is_told_who_must_run_it(small, name, capfd):
    """
    Nothing is touched, nothing is called damaged, and the message names both.
    """
    opened(small.folder)
    if name == "ledger backup":
        os.unlink("backup")
    before = content(small.folder)
    with user(OTHER):
        assert call(name) == 2
    error, hint = capfd.readouterr().err.splitlines()
    assert f"belongs to user {OWNER}, and this is user {OTHER}: nothing was touched" in error
    assert f"sudo -u '#{OWNER}'" in hint
    assert content(small.folder) == before


@pytest.mark.slow
@pytest.mark.parametrize("state", [None, "elsewhere/state"])
def test_a_state_that_root_makes_belongs_to_whom_its_place_does(small, state, capfd):
    """
    Folders on the way too; who else may write there makes their own.
    """
    shutil.rmtree(small.folder / ".privacy-proxy")
    more = ["--state", state] if state else []
    assert run(["init", "people.yaml", *more]) == 0
    assert owners(small.folder) == {(OWNER, OWNER)}
    with user(OWNER):
        assert run(["query", "people.yaml", FREE, *more]) == 0
    opened(small.folder, 0o755)
    with user(OTHER):
        assert run(["init", "people.yaml", "--state", "another"]) == 2
        assert "cannot make the state folder" in capfd.readouterr().err
    os.chmod(small.folder, 0o1777)
    with user(OTHER):
        assert run(["init", "people.yaml", "--state", "another"]) == 0
    assert owners(small.folder / "another") == {(OTHER, OTHER)}


def test_root_without_its_rights_is_somebody_else(small, monkeypatch, capfd):
    """
    As in a container, or on a network's disk: whoever cannot give files away makes none.
    """

    def chown(path, *owner):
        raise PermissionError(1, "Operation not permitted", path)

    monkeypatch.setattr(os, "chown", chown)
    before = content(small.folder)
    assert call("query") == 2
    assert "and this is root: nothing was touched" in capfd.readouterr().err
    assert content(small.folder) == before


@pytest.mark.parametrize("name", COMMANDS)
def test_what_may_not_be_read_is_never_called_damaged(small, name, capfd):
    """
    Root's files, as an older version left them, are named with both users and what to do; a
    verification is never green.
    """
    with user(OWNER):
        call("query again")
    if name == "ledger restore":
        os.chown("backup", 0, 0)
        with user(OWNER):
            assert call(name) == 2
        assert "it belongs to root, and this is user" in capfd.readouterr().err
        os.chown("backup", OWNER, OWNER)
    for path in sorted(small.state.iterdir()):
        if not path.exists():  # a cube, which was replaced
            continue
        number = path.stat().st_ino
        os.chown(path, 0, 0)
        capfd.readouterr()
        with user(OWNER):
            status = call(name)
        told = "".join(capfd.readouterr())
        if status:
            assert re.search("damaged|corrupt|is not there|malformed", told) is None, told
            told_why = f"may not be opened: it belongs to root, and this is user {OWNER}" in told
            assert told_why or name == "init", told
        there = {each.stat().st_ino for each in small.state.iterdir()}
        assert number in there or name == "rebuild", told  # which needs no old cube
        assert status or name != "audit --verify" or path.name == "source.key"
        given(small.folder, OWNER)


@pytest.mark.slow
def test_what_a_server_of_roots_makes(small):
    """
    The key of the logins and the notes of its mirrors.
    """
    notes = small.state.parent
    key = login.key(notes)
    mirror = Embedded(notes, 5)
    try:
        assert list((notes / NOTES).iterdir())
        assert owners(notes) == {(OWNER, OWNER)}
    finally:
        mirror.stop()
    with user(OWNER):
        assert login.key(notes) == key


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"passwd"}))
def test_a_state_that_is_open_to_others_is_warned_of(small, name, caplog):
    """
    At every command that opens it, with what to run; once that is done, no more.
    """
    places = [small.state, *sorted(small.state.iterdir())] if name == "query again" else []
    for place, mode in zip([*places, small.state], [0o040, 0o002] * 9, strict=False):
        place.chmod(place.stat().st_mode | mode)
        _told.clear()
        caplog.clear()
        with user(OWNER):
            call(name)
        (record,) = caplog.records
        assert (record.levelname, record.name) == ("WARNING", "proxy.files")
        text = record.getMessage()
        assert str(place) in text
        assert os.system(text.rpartition(": ")[2]) == 0
        _told.clear()
        caplog.clear()
        with user(OWNER):
            call(name)
        assert not caplog.records


def test_an_anchor_elsewhere_is_looked_at_too(small, caplog):
    """
    Through its link.
    """
    elsewhere = small.folder / "disk"
    elsewhere.mkdir()
    (small.state / "anchor").rename(elsewhere / "anchor")
    (small.state / "anchor").symlink_to(elsewhere / "anchor")
    (elsewhere / "anchor").chmod(0o644)
    _told.clear()
    assert call("query") == 0
    assert caplog.messages[0].endswith(f": chmod go= {elsewhere / 'anchor'}")
    assert FileAnchor(small.state / "anchor").read()
