"""What is asked wrongly ends in a line or two that say what to do, and costs nothing.

Through the command line and the real engine, on the policy and the people of cps1988.
"""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from proxy.cli import run

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder as the repository's, with the state of cps1988 made, and budget spent."""
    folder = tmp_path_factory.mktemp("wrong")
    for name in ("policies", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns(".*"))
    assert run(["init", str(folder / "policies/cps1988.yaml")]) == 0
    for where in ("region = 'south'", "region <> 'south'"):
        sql = f"SELECT COUNT(*) FROM cps1988 WHERE {where} WITH UTILITY (5, 0.05)"
        assert run(["query", str(folder / "policies/cps1988.yaml"), sql]) == 0
    return folder


@pytest.fixture
def wrong(folder, monkeypatch, capsys):
    """Run a command that must fail; return status and messages.  The budget must not move."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PRIVACY_PROXY_STATE", raising=False)

    def budget():
        assert run(["budget", "policies/cps1988.yaml", "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    def call(*arguments):
        before = budget()
        status = run(arguments)
        captured = capsys.readouterr()
        assert captured.out == ""
        lines = captured.err.splitlines()
        faults = [line for line in lines if line.startswith("error: ")]
        assert len(lines) <= 2 * len(faults)
        assert len(faults) == 1 or all(".yaml:" in line for line in faults)
        assert budget() == before
        return status, captured.err

    return call


STATEMENTS = {
    "column": ("SELECT COUNT(*) FROM cps1988 WHERE regio = 'west'", 2, "regio.*you mean region"),
    "dataset": ("SELECT COUNT(*) FROM cps1989", 2, "cps1989.*cps1988"),
    "rows": ("SELECT * FROM cps1988", 2, "rows.*COUNT"),
    "columns": ("SELECT education FROM cps1988", 2, "rows.*GROUP BY education"),
    "non-linear": ("SELECT SUM(wage * wage) FROM cps1988", 2, "linear"),
    "no default": ("SELECT SUM(education) FROM cps1988", 2, "WITH UTILITY"),
    "half_width": ("SELECT COUNT(*) FROM cps1988 WITH UTILITY (0, 0.05)", 2, "half_width"),
    "negative": ("SELECT COUNT(*) FROM cps1988 WITH UTILITY (-5, 0.05)", 2, "half_width"),
    "delta 0": ("SELECT COUNT(*) FROM cps1988 WITH UTILITY (50, 0)", 2, "delta"),
    "delta 1": ("SELECT COUNT(*) FROM cps1988 WITH UTILITY (50, 1)", 2, "delta"),
    "syntax": ("SELECT COUNT(* FROM cps1988", 2, r"syntax error.*line 1"),
    "writing": ("DELETE FROM cps1988", 2, "DELETE"),
    "two": ("SELECT COUNT(*) FROM cps1988; SELECT 1", 2, "one statement"),
    "bin": ("SELECT COUNT(*) FROM cps1988 WHERE experience < 7", 2, r"\b5\b.*\b10\b"),
    "deep": ("SELECT " + "(" * 501 + "1" + ")" * 501, 2, "500"),
    "budget": (
        "SELECT COUNT(*) FROM cps1988 WITH UTILITY (3, 0.05)",
        3,
        r"requested 0\.\d+, spent 0\.\d+, left 0\.\d+\)\nhint: ",
    ),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_wrong_statement(wrong, name):
    """
    An unknown name has its neighbours, a wrong number its rule, a refusal the amounts.
    """
    sql, expected, message = STATEMENTS[name]
    status, error = wrong("query", "policies/cps1988.yaml", sql)
    assert status == expected
    assert re.search(message, error, re.DOTALL), error


@pytest.mark.parametrize(
    "option", ["0, 0.05", "-1, 0.05", "50, 0", "50, 1", "50, nan", "inf, 0.05"]
)
def test_a_utility_that_makes_no_sense_as_an_option(wrong, option):
    """
    As in the statement itself.
    """
    sql = "SELECT COUNT(*) FROM cps1988"
    status, error = wrong("query", "policies/cps1988.yaml", sql, "--utility", option)
    assert status == 2
    assert re.search("half_width|delta|utility", error), error


POLICIES = {
    "missing": (None, "no such file"),
    "folder": ("", ""),
    "not YAML": ("dataset: [cps1988\n", r"wrong\.yaml:\d+"),
    "a list": ("- dataset\n", r"wrong\.yaml:1"),
    "an unknown key": ("buget: 1\n", r"wrong\.yaml:\d+: .*buget"),
    "a wrong value": ("budget: 1.0|budget: much", r"wrong\.yaml:\d+: privacy\.budget"),
    "no such data": ("cps1988.csv.gz|none.csv.gz", r"none\.csv\.gz"),
}


@pytest.mark.parametrize("command", ["init", "check"])
@pytest.mark.parametrize("name", POLICIES)
def test_a_wrong_policy(wrong, folder, name, command):
    """
    File, line and key; nothing is made.
    """
    text, message = POLICIES[name]
    path = folder / "policies" / "wrong.yaml"
    if name == "folder":
        path = folder / "policies"
    elif text is not None:
        good = (folder / "policies/cps1988.yaml").read_text()
        old, _, new = text.partition("|")
        path.write_text(good.replace(old, new) if new else text)
    status, error = wrong(command, str(path), "--state", str(folder / "elsewhere"))
    if path.is_file():
        path.unlink()
    assert status == 2
    assert re.search(message, error), error


@pytest.mark.slow
def test_no_init_yet(wrong):
    """
    The message says which command makes the state; asking makes none.
    """
    policy = "policies/meps1996.yaml"
    for command in (
        *(["budget", policy], ["history", policy], ["guards", policy], ["audit", policy]),
        *(["audit", policy, "--verify"], ["apply", policy], ["rebuild", policy]),
        *([word, policy, "SELECT COUNT(*) FROM meps1996"] for word in ("query", "explain")),
        ["ledger", "backup", policy, "backup"],
    ):
        status, error = wrong(*command)
        assert status == 2
        assert "privacy-proxy init" in error
        assert not Path("policies/.privacy-proxy/meps1996").exists()
        assert not Path("backup").exists()


@pytest.mark.slow
def test_a_restore_of_what_is_no_backup(wrong, capsys):
    """
    A missing file, one that is no ledger, and none of this dataset: the ledger stays.
    """
    policy = "policies/cps1988.yaml"
    Path("text").write_text("text")
    assert run(["init", policy, "--state", "other", "--accept-second-budget"]) == 0
    assert run(["ledger", "backup", policy, "stranger", "--state", "other"]) == 0
    capsys.readouterr()
    Path("empty").touch()
    os.mkfifo("pipe")
    for name, message in (
        ("none", "no backup none"),
        ("text", "not a"),
        ("stranger", "another"),
        ("empty", "empty is no backup"),
        ("pipe", "pipe is a pipe, and no backup"),
    ):
        status, error = wrong("ledger", "restore", policy, name)
        assert status == 2
        assert message in error
        assert "ledger.sqlite." not in error  # a file beside it


def test_init_twice(wrong):
    """
    A state is never made anew: an empty ledger would be a full budget.
    """
    status, error = wrong("init", "policies/cps1988.yaml")
    assert status == 2
    assert "already" in error


@pytest.mark.slow
def test_the_state_of_another_policy(wrong, folder):
    """
    A policy that was changed is not applied silently, nor another dataset's state taken.
    """
    text = (folder / "policies/cps1988.yaml").read_text()
    changed = folder / "policies/changed.yaml"
    changed.write_text(text.replace("budget: 1.0 ", "budget: 9.0 "))
    sql = "SELECT COUNT(*) FROM cps1988"
    for command in (["query", str(changed), sql], ["explain", str(changed), sql]):
        status, error = wrong(*command)
        assert status == 2
        assert "has changed since it was applied" in error
        assert "hint: undo the change, or apply it: privacy-proxy apply" in error
    for command in ("rebuild", "guards"):
        assert "has changed since it was applied" in wrong(command, str(changed))[1]
    assert "nothing was changed (privacy.budget is 9" in wrong("apply", str(changed))[1]
