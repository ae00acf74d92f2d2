"""States that are lost, copied or renamed: no road leads to a second budget unnoticed."""

import shutil
from contextlib import closing

import pytest

from proxy.cli import run
from proxy.errors import InsufficientBudgetError
from proxy.steward import audit, backup, restore
from tests.small import Small

SQL = "SELECT COUNT(*) FROM people WITH UTILITY (4, 0.05)"
LEAVES = ("anchor", "cube-1.duckdb", "ledger.sqlite.notes", "ledger.sqlite-wal")


@pytest.fixture
def small(tmp_path):
    """Sixteen people, and a policy that is written by each test."""
    small = Small(tmp_path)
    small.data((0, "a", 8), (1, "b", 8))
    return small


def every_command(policy):
    """Return a call of each command that needs a ledger."""
    return (
        *(["budget", policy], ["history", policy], ["guards", policy], ["audit", policy]),
        *(["audit", policy, "--verify"], ["apply", policy], ["rebuild", policy]),
        *(["query", policy, SQL], ["explain", policy, SQL]),
        ["ledger", "backup", policy, "never"],
    )


@pytest.mark.parametrize("left", [*LEAVES, "", "state"])
def test_where_a_ledger_is_lost_the_way_back_is_a_backup(small, capsys, left):
    """
    Whatever of it is left, every command names `ledger restore` before `init`, or instead of it.
    """
    engine = small.made()
    engine.session().execute(SQL)
    engine.session().execute(SQL)  # free, and in the notes
    engine.close()
    for path in list(small.state.iterdir()):
        if path.name == left or (left == "state" and path.name != "ledger.sqlite"):
            continue
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if left == "ledger.sqlite-wal":
        (small.state / left).write_bytes(b"what was not written back")
    if not left:
        small.state.rmdir()
    commands = [*every_command(str(small.policy))]
    for command in commands if not left else [*commands, ["init", str(small.policy)]]:
        assert run(command) == 2
        error = capsys.readouterr().err
        assert "privacy-proxy ledger restore" in error
        assert ("is gone" in error) == bool(left)
        if left:
            assert "init" not in error
        else:
            assert error.index("ledger restore") < error.index("Only a dataset that never had")


def test_a_ledger_that_was_made_since_gives_way_to_a_backup(small, capsys):
    """
    Whether it has spent or not: the refusal says how, and then the whole budget is charged.
    """
    small.made().close()
    copy = small.folder / "backup"
    backup(small.policy, copy)
    for spend in (False, True):
        shutil.rmtree(small.state)
        engine = small.made()
        if spend:
            for _ in range(3):
                engine.session().execute(SQL)
        engine.close()
        assert run(["ledger", "restore", str(small.policy), str(copy)]) == 2
        error = capsys.readouterr().err
        assert "--charge-all" in error
        assert ("put back the anchor" in error) != spend
        assert restore(small.policy, copy, charge_all=True).charged["shared"] == 1
        assert [p for p in small.state.iterdir() if ".replaced-" in p.name]
        assert "restore" in [line.kind for line in audit(small.policy)]
        with closing(small.engine()) as engine, pytest.raises(InsufficientBudgetError):
            engine.session().execute(SQL)
        assert run(["audit", str(small.policy), "--verify"]) == 0
        capsys.readouterr()
