"""A disk that is full is called full, whoever meets it, and nothing is charged."""

import errno
import io
import os
import resource
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import proxy.files as files
from proxy.cli import run
from proxy.errors import OperationalError
from tests.small import DOMAIN, VERIFIER, Small

SQL = "SELECT COUNT(*) FROM people WITH UTILITY ({}, 0.05)"
LIMITS = [8, 20, 60, 300]  # KB; a ledger has 60, the part of it that is shared 32, a cube 800
COMMANDS = {
    "budget": ["budget", "people.yaml"],
    "query": ["query", "people.yaml", SQL.format(5)],
    "free": ["query", "people.yaml", SQL.format(9)],
    "verify": ["audit", "people.yaml", "--verify"],
    "check": ["check", "people.yaml"],
    "rebuild": ["rebuild", "people.yaml"],
    "init": ["init", "folk.yaml"],
    "backup": ["ledger", "backup", "people.yaml", "copy"],
    "restore": ["ledger", "restore", "people.yaml", "backup"],
}
DONE = {"budget", "query", "free", "verify", "check", "backup", "restore"}  # with some room


@contextmanager
def file_limit(size):
    """Let no file of this process grow past a size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A state that has spent, a backup, and the policy of another dataset."""
    monkeypatch.chdir(tmp_path)
    small = Small(tmp_path)
    small.data((0, "a", 8), (1, "b", 8))
    with closing(small.made()) as engine:
        engine.session().execute(SQL.format(9))
    assert run(["ledger", "backup", "people.yaml", "backup"]) == 0
    Path("folk.csv").write_text("age,town,unit\n1,a,u\n")
    text = small.policy.read_text().replace(DOMAIN.splitlines()[0], "dataset: folk")
    Path("folk.yaml").write_text(text.replace("people.csv", "folk.csv"))
    return small


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_called_full(small, capsys, command):
    """
    By every command, whatever it was that did not fit; with room again it is done.
    """
    refused = 0
    for limit in LIMITS:
        capsys.readouterr()
        with file_limit(limit * 1024):
            status = run(COMMANDS[command])
        error = capsys.readouterr().err
        if status:
            refused += 1
            assert "may not grow further" in error or "File too large" in error, error
            assert "ulimit -f" in error
            assert "second budget" not in error
        else:
            assert command in DONE
            Path("copy").unlink(missing_ok=True)
    assert refused
    assert run(COMMANDS[command]) == 0
    assert run(["audit", "people.yaml", "--verify"]) == 0


WRITES = {  # a file that somebody has, or not, and what writes it
    "passwd": ("users.yaml", ["passwd", "ann", "--users", "users.yaml"]),
    "new user": ("users.yaml", ["passwd", "eve", "--users", "users.yaml"]),
    "first user": ("none.yaml", ["passwd", "eve", "--users", "none.yaml"]),
    "users": ("users.yaml", ["users", "people.yaml", "--remove", "ann"]),
    "draft": ("new.yaml", ["draft", "people.csv", "--output", "new.yaml"]),
    "draft --force": ("folk.yaml", ["draft", "people.csv", "--output", "folk.yaml", "--force"]),
    "save": ("result.csv", ["shell", "people.yaml"]),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_file_of_a_persons_is_written_whole_or_not_at_all(small, capsys, monkeypatch, name):
    """
    What was there is there still, nothing is left beside it, and the error names the file.
    """
    path, arguments = WRITES[name]
    entry = f"{{password: {VERIFIER}, roles: [analyst]}}"
    Path("users.yaml").write_text(f"users:\n  ann: {entry}\n  bob: {entry}\n")
    Path("result.csv").write_text("precious\n")
    before = {each: each.is_file() and each.read_bytes() for each in Path().iterdir()}
    typed = f"{SQL.format(9)};\n\\csv result.csv\n" if name == "save" else "secret\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(typed.encode())))
    create = files.create

    def full(path, *rest, **how):
        """Open the file, but leave no room."""
        if Path(path).resolve().parent == Path.cwd():
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        return create(path, *rest, **how)

    monkeypatch.setattr(files, "create", full)
    try:
        assert run(arguments) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    error = capsys.readouterr().err
    assert path in error
    assert os.strerror(errno.EFBIG) in error
    after = {each: each.is_file() and each.read_bytes() for each in Path().iterdir()}
    assert after == before


@pytest.mark.parametrize("code", files.FULL)
def test_what_the_system_says_is_said_with_what_to_do(monkeypatch, tmp_path, code):
    """
    Full, past a quota or a limit, read-only: the folder is named.
    """

    def refuse(**_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    found = files.no_room(tmp_path)
    assert isinstance(found, OperationalError)
    assert str(tmp_path) in found.message
    assert "nothing was charged" in found.hint
    said = files.full(tmp_path, f"IO Error: Could not write: {os.strerror(code)}")
    assert said is not None
    assert said.message == found.message
    assert files.full(tmp_path, OSError(errno.EIO, "disk")) is None
