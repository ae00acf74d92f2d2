"""Whatever is wrong in a ledger, each command says it in the proxy's own words."""

import random
import shutil
import sqlite3
from contextlib import closing, suppress

import pytest

from proxy.cli import run
from proxy.errors import Error
from tests.searches import share
from tests.small import Small

FREE = "SELECT COUNT(*) AS n FROM people WITH UTILITY (100, 0.1)"
TABLES = ("ledger", "versions", "audit", "policies", "snapshots", "domains", "measurements")
COMMANDS = [
    ["query", "people.yaml", "SELECT COUNT(*) AS n FROM people WHERE age = 3"],
    ["query", "people.yaml", FREE],
    ["explain", "people.yaml", FREE],
    *(
        [name, "people.yaml"]
        for name in ("budget", "history", "audit", "check", "apply", "init", "guards", "rebuild")
    ),
    ["audit", "people.yaml", "--json"],
    ["ledger", "backup", "people.yaml", "another"],
    ["ledger", "restore", "people.yaml", "backup"],
]
TEXTS = ["", "{", "[]", "null", "{}", '"x"', "1", '{"shared":"1"}', '{"shared":1e99}', "[" * 99_999]
NUMBERS = [0, -1, 1, 2**62, 2**63 - 1, -(2**63)]
REALS = [0.0, -1.0, 1e-320, 1e308, float("inf")]
UNSEEN = {("versions", "time")}  # says when, to nobody, and is in no hash


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a policy and the state of a life: answers, a rebuild, a restore, notes."""
    small = Small(tmp_path_factory.mktemp("life"))
    small.data((0, "a", 5), (5, "a", 4), (9, "b", 7))
    small.write("privacy: {budget: 9, unit: row}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(small.folder)
        run(["init", "people.yaml"])
        for _ in range(2):
            with closing(small.engine()) as engine:
                session = engine.session()
                for sql in (FREE, FREE, "SELECT town, COUNT(*) FROM people GROUP BY town"):
                    session.execute(sql)
                session.execute("SELECT COUNT(*) AS n FROM people WITH UTILITY (8, 0.1)")
            run(["ledger", "backup", "people.yaml", "backup"])
            run(["rebuild", "people.yaml"])
            run(["ledger", "restore", "people.yaml", "backup"])
            (small.folder / "backup").unlink()
        run(["ledger", "backup", "people.yaml", "backup"])
    return small.folder


@pytest.fixture
def small(made, tmp_path, monkeypatch):
    """The current folder is a copy of that."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return Small(tmp_path)


def columns(path, table):
    with closing(sqlite3.connect(path)) as raw:
        return [(row[1], row[2]) for row in raw.execute(f"PRAGMA table_info({table})")]


def wrong(value, kind, rng):
    """Return what may stand in a column in the place of a value."""
    if kind == "TEXT":
        flipped = bytearray((value or "x").encode())
        flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
        return rng.choice([*TEXTS, *[bytes(flipped)] * 4])
    if kind == "BLOB":
        flipped = bytearray(value)
        flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
        return rng.choice([b"", value[:-1], *[bytes(flipped)] * 3])
    return rng.choice([*(REALS if kind == "REAL" else NUMBERS), value + 1])


def corrupt(path, table, column, kind, rng):
    """Change one value in the table; return whether there was one, and it is another now."""
    with closing(sqlite3.connect(path)) as raw:
        raw.text_factory = lambda data: data.decode("utf-8", "replace")
        raw.execute("PRAGMA ignore_check_constraints = ON")
        triggers = raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (name,) in triggers:
            raw.execute(f"DROP TRIGGER {name}")
        rows = raw.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
        row, value = rng.choice([rows[-1], rng.choice(rows)])
        new = wrong(value, kind, rng)
        place = "CAST(? AS TEXT)" if kind == "TEXT" else "?"
        with suppress(sqlite3.IntegrityError):  # the number of another row
            raw.execute(f"UPDATE {table} SET {column} = {place} WHERE rowid = ?", (new, row))
        raw.commit()
        changed = raw.execute(f"SELECT rowid, {column} FROM {table}").fetchall() != rows
    return changed


@pytest.mark.parametrize("table", share(2, TABLES))
@pytest.mark.parametrize("times", share(1, [1, 2, 20], 2))
def test_no_damage_ends_in_a_traceback(small, table, times, capfd):
    """
    In any column: each command succeeds or says what is wrong and what to do, in a process that
    had the ledger open as well; and the verification is red.
    """
    rng = random.Random(f"{table} {times}")
    good = small.folder / "good"
    shutil.copytree(small.state, good)
    for column, kind in columns(small.state / "ledger.sqlite", table) * times:
        shutil.rmtree(small.state)
        shutil.copytree(good, small.state)
        with closing(small.engine()) as engine:
            session = engine.session()
            session.execute(FREE)
            if not corrupt(small.state / "ledger.sqlite", table, column, kind, rng):
                continue
            for sql in (FREE, "SELECT COUNT(*) FROM people WHERE age = 2", "SHOW BUDGET"):
                with suppress(Error):
                    session.execute(sql)
        saved = small.folder / "saved"
        shutil.rmtree(saved, ignore_errors=True)
        shutil.copytree(small.state, saved)
        verified = run(["audit", "people.yaml", "--verify"])
        assert verified == 2 or (table, column) in UNSEEN, (table, column)
        for command in rng.sample(COMMANDS, 2 if times == 1 else 4):
            shutil.rmtree(small.state)
            shutil.copytree(saved, small.state)
            capfd.readouterr()
            assert run(command) in (0, 2, 3)
            error = capfd.readouterr().err
            assert not error or "error: " in error
            (small.folder / "another").unlink(missing_ok=True)
