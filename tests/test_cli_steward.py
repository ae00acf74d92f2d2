"""The commands of data stewards and auditors, as they run them, on a small dataset."""

import datetime
import json
import os
import re
import sqlite3
import sys
from contextlib import closing, nullcontext, suppress
from pathlib import Path

import pytest
from rich.cells import cell_len

import proxy.cube.building as building
from proxy.cli import run
from proxy.steward.drafts import drafting
from tests.searches import share
from tests.small import DOMAIN, Small

ROOT = Path(__file__).parent.parent
PEOPLE = "SELECT COUNT(*) AS n FROM people"


@pytest.fixture
def small(tmp_path, monkeypatch):
    """The current folder has a few people, a policy with a guard, and its state."""
    claim = '{claim: "COUNT(*) BETWEEN 0 AND 5", for_each: [age, town], confidence: 0.95}'
    small = Small(tmp_path)
    small.data((0, "a", 5), (5, "a", 4), (9, "b", 7))
    small.made(f"privacy: {{budget: 1, unit: row, guards: [{claim}]}}\n").close()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("proxy.steward.changes.me", lambda: "sam")
    return small


@pytest.fixture
def told(capsys):
    """A function that runs a command and returns its lines, spaces squeezed, or its JSON."""

    def call(*arguments, status=0):
        assert run(list(arguments)) == status
        captured = capsys.readouterr()
        assert captured.err == ""
        return (
            json.loads(captured.out)
            if "--json" in arguments
            else [" ".join(line.split()) for line in captured.out.splitlines()]
        )

    return call


def test_explain_says_what_would_be_paid(small, told):
    """
    For each number its cost, the interval to expect, and what would be left; nothing is charged.
    """
    groups = "SELECT town, COUNT(*) AS n FROM people GROUP BY town"
    for _ in range(2):
        assert told("explain", "people.yaml", groups) == [
            "number group source cost within",
            "COUNT(*) a measured 0.2187 ±10",
            "COUNT(*) b measured 0.2187 ±10",
            "left 0.4993 (the guard COUNT(*) BETWEEN 0 AND 5), after the statement 0.2806",
        ]
    told("query", "people.yaml", groups)
    explained = told("explain", "people.yaml", PEOPLE, "--utility", "50, 0.1", "--json")
    names = [column["name"] for column in explained["columns"]]
    assert names == ["number", "group", "source", "cost", "half_width", "left_after", "at_most"]
    ((number, group, source, cost, half_width, after, most),) = explained["rows"]
    assert (number, group, source, cost, most) == ("COUNT(*)", None, "inferred", 0, 0)
    assert 10 < half_width <= 50
    assert explained["left"] == after == pytest.approx(0.28056, abs=1e-5)
    line = told("explain", "people.yaml", f"{PEOPLE} WITH UTILITY (50, 0.1)")[1]
    assert line.startswith("COUNT(*) inferred free ±")


def test_explain_points_into_the_statement(small, capsys):
    """
    Not into EXPLAIN UTILITY, which nobody typed.
    """
    assert run(["explain", "people.yaml", "SELECT COUNT(*) FROM people WHERE ag = 1"]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error == 'error: column "ag" does not exist (line 1, column 35)'
    assert hint == "hint: did you mean age?"
    assert run(["explain", "people.yaml", "SHOW BUDGET"]) == 2
    assert "takes a query, not SHOW" in capsys.readouterr().err


def test_guards_are_shown_with_how_certain_anyone_can_be(small, told):
    """
    Cap, paid, left, and the bound on the claim beside what the policy allows.
    """
    told("query", "people.yaml", PEOPLE)
    heads, line = told("guards", "people.yaml")
    assert heads == "claim for each cap spent left certain at most allowed"
    claim = "COUNT(*) BETWEEN 0 AND 5 age, town"
    assert line == f"{claim} 0.4993 0.2187 0.2806 73.08% 95.00%"
    (guard,) = told("guards", "people.yaml", "--json")
    assert guard["for_each"] == ["age", "town"]
    assert guard["spent"] + guard["left"] == pytest.approx(guard["cap"])
    small.write()
    told("apply", "people.yaml", "--accept-weaker")
    assert told("guards", "people.yaml") == ["The policy has no guards."]


def test_audit_lists_acts_and_statements_and_free_ones(small, told):
    """
    The free ones have no number; JSON has every field, the cost in alpha.
    """
    for _ in range(2):
        told("query", "people.yaml", PEOPLE, "--user", "ann")
    told("rebuild", "people.yaml")
    lines = [re.sub(r"\d{4}-\S+ \S+", "<time>", line) for line in told("audit", "people.yaml")]
    assert lines[0] == "line time (UTC) user kind numbers cost statement"
    assert lines[2:] == [
        f"2 <time> ann measured 1 0.2187 {PEOPLE}",
        f"<time> ann inferred {PEOPLE}",
        "3 <time> sam rebuild carried: false, snapshot: 2",
    ]
    whole = told("audit", "people.yaml", "--json")
    assert [line["kind"] for line in whole] == ["init", "measured", "inferred", "rebuild"]
    assert whole[1]["cost"] == pytest.approx(0.21873, abs=1e-5)
    assert whole[3]["detail"] == {"snapshot": 2, "carried": False}
    assert datetime.datetime.fromisoformat(whole[0]["time"]).tzinfo


@pytest.mark.slow
@pytest.mark.parametrize("screen", share(2, [None, 100, 80, 200]))
def test_a_long_statement_takes_one_line(small, capsys, monkeypatch, screen):
    """
    As wide as the terminal, or with columns of 80 where there is none; whole if asked for; and
    nothing that it has in it steers a terminal.
    """
    words = "SELECT COUNT(*) AS n\n FROM people /* \x1b[31m\u202e\t漢字 */ WHERE age < 9"
    long = words + " AND age < 9" * 4000
    assert run(["query", "people.yaml", long, "--user", "u" * 300]) == 0
    if screen:
        monkeypatch.setenv("COLUMNS", str(screen))
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for name, last in (("history", -1), ("audit", -1)):
        capsys.readouterr()
        assert run([name, "people.yaml"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == {"history": 2, "audit": 3}[name]
        shown = "S" + lines[last].rpartition("  S")[2]
        assert "SELECT COUNT(*) AS n FROM people".startswith(shown[:-1][:32])
        assert lines[last].endswith("…")
        assert lines[last].count("…") == 2  # in the user's name as well
        assert max(map(cell_len, lines)) == screen if screen else cell_len(shown) == 80
        assert run([name, "people.yaml", "--wide"]) == 0
        wide = capsys.readouterr().out.splitlines()[last]
        assert "u" * 300 in wide
        assert wide.endswith(r"/* \x1b[31m\u202e 漢字 */ WHERE age < 9" + " AND age < 9" * 4000)
        assert run([name, "people.yaml", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)[-1]["statement"] == long


def test_audit_verifies_the_ledger(small, told, capsys):
    """
    0 where everything agrees; 2 with what does not, one problem a line.
    """
    told("query", "people.yaml", PEOPLE)
    assert told("audit", "people.yaml", "--verify")[0].startswith("Everything agrees: ")
    assert told("audit", "people.yaml", "--verify", "--json") == {"problems": []}
    with closing(sqlite3.connect(small.state / "ledger.sqlite")) as connection:
        connection.execute("DROP TRIGGER measurements_refine")
        connection.execute("UPDATE measurements SET scale = scale / 2")
        connection.commit()
    problems = told("audit", "people.yaml", "--verify", status=2)
    assert problems == ["measurements 1: the row was changed"]
    found = told("audit", "people.yaml", "--verify", "--json", status=2)
    assert found == {"problems": ["measurements 1: the row was changed"]}
    os.replace(small.state / "ledger.sqlite", small.folder / "aside")
    assert run(["audit", "people.yaml", "--verify"]) == 2
    assert "is gone, and with it what was spent" in capsys.readouterr().err


@pytest.mark.slow
def test_apply_says_what_protects_less_and_what_was_rebuilt(small, told, capsys):
    """
    First it refuses, then it does it, then there is nothing to do.
    """
    told("query", "people.yaml", PEOPLE)
    small.write(domain=DOMAIN.replace("[0, 9]", "[0, 10]"))
    assert run(["apply", "people.yaml"]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert "nothing was changed (attribute age has another domain: values; the guard" in error
    assert hint == (
        "hint: to apply it all the same: privacy-proxy apply --accept-weaker people.yaml"
    )
    lines = told("apply", "people.yaml", "--accept-weaker")
    assert lines[:2] == [
        "The policy of people is in force now.",
        "protects less than before: attribute age has another domain: values",
    ]
    assert lines[-3:] == [
        "What decides the cell of a record has changed, so the cube was rebuilt.",
        "16 rows read, 16 kept.",
        "Snapshot 2: every cell starts with the most that any had paid: 0.2187.",
    ]
    last = told("audit", "people.yaml")[-1]
    assert "sam rebuild carried: false, snapshot: 2, weaker: attribute age has another" in last
    again = told("apply", "people.yaml")
    assert again == ["The policy of people was in force already."]
    assert told("apply", "people.yaml", "--json") == {
        "dataset": "people",
        "applied": False,
        "changes": [],
        "rebuilt": None,
    }


@pytest.mark.parametrize("rows", ["old,a,u\n" * 16, "20,a,u\n" * 16, ""])
def test_rebuild_warns_where_hardly_a_record_is_left(small, told, rows):
    """
    Of columns that cannot be read in the words of `init`, and of records that are gone, whatever
    the reason.
    """
    Path("people.csv").write_text(f"age,town,unit\n{rows}")
    kept, *warnings, _ = told("rebuild", "people.yaml")
    assert kept == f"{rows.count('a')} rows read, 0 kept."
    unread = "warning: age: 16 (100.0%) cannot be read: 16 another text; see `check`"
    gone = "warning: 0 records are in the cube now, and 16 were before; see `check`"
    assert warnings == [*([unread] if "old" in rows else []), gone]
    small.data((0, "a", 8))
    assert "warning" not in " ".join(told("rebuild", "people.yaml"))


@pytest.mark.slow
def test_rebuild_says_what_every_cell_starts_with(small, told):
    """
    By history, where there are several; or that cells go on.
    """
    small.write(rest="analysts: {ann: {budget: 0.4, history: own}}\n")
    told("apply", "people.yaml", "--accept-weaker")
    told("query", "people.yaml", PEOPLE)
    told("query", "people.yaml", PEOPLE, "--user", "ann", "--utility", "20, 0.1")
    kept, line = told("rebuild", "people.yaml")
    assert kept == "16 rows read, 16 kept."
    assert line.startswith("Snapshot 2: every cell starts with the most that any had paid: 0.")
    assert "0.1122 (own:ann)" in line
    assert "0.2187 (shared)" in line
    report = told("rebuild", "people.yaml", "--json")
    assert (report["snapshot"], report["carried"], report["survey"]["kept"]) == (3, False, 16)
    small.write(rest="records: immutable\n")
    told("apply", "people.yaml", "--accept-weaker")
    assert told("rebuild", "people.yaml")[1].startswith("Snapshot 5: records never")


def test_a_ledger_is_backed_up_and_restored(small, told, capsys):
    """
    Never over a file that is there; what was spent since the backup is charged.
    """
    assert told("ledger", "backup", "people.yaml", "b")[0].startswith("The ledger was copied to b.")
    assert run(["ledger", "backup", "people.yaml", "b"]) == 2
    assert "b cannot be made: File exists" in capsys.readouterr().err
    told("query", "people.yaml", PEOPLE)
    lines = told("ledger", "restore", "people.yaml", "b")
    assert lines == [
        "The backup is older than the ledger was; what was spent since is charged.",
        "Paid by the dearest cell: 0.2187.",
    ]
    assert told("budget", "people.yaml")[1].endswith(" 1 0.2187 0.7813")
    told("ledger", "backup", "people.yaml", "c")
    report = told("ledger", "restore", "people.yaml", "c", "--json")
    assert (report["missed"], report["charged"]) == (False, {"shared": pytest.approx(0.2187254)})
    assert run(["ledger", "restore", "people.yaml", "none"]) == 2
    assert "there is no backup none" in capsys.readouterr().err


def test_a_lost_anchor_costs_the_whole_budget(small, told, capsys):
    """
    And only if the steward says so.
    """
    told("ledger", "backup", "people.yaml", "b")
    (small.state / "anchor").unlink()
    assert run(["ledger", "restore", "people.yaml", "b"]) == 2
    assert "the anchor is missing" in capsys.readouterr().err
    told("ledger", "restore", "people.yaml", "b", "--charge-all")
    assert told("budget", "people.yaml")[1].endswith(" 1 1 0")


def test_check_shows_the_difference_to_what_is_in_force(small, told):
    """
    And other policies that spend on the same source.
    """
    small.write()
    (small.folder / "folk.yaml").write_text(
        small.policy.read_text().replace("dataset: people", "dataset: folk")
    )
    lines = told("check", "people.yaml")
    assert lines[0] == "people: 20 cells, 17 of them empty; state: changed since it was applied"
    assert lines[-2].startswith("protects less than before: the guard COUNT(*) BETWEEN 0 AND 5")
    assert lines[-1] == (
        "the same source has another budget: folk.yaml (folk); what both spend adds up"
    )


def test_budgets_are_those_of_the_history_that_serves_the_user(small, told):
    """
    Hers are set aside.
    """
    small.write(rest="analysts: {ann: {budget: 0.4, history: own}}\n")
    told("apply", "people.yaml", "--accept-weaker")
    assert told("budget", "people.yaml", "--user", "ann")[1].endswith(" 0.4 0 0.4")
    assert told("budget", "people.yaml")[1].endswith(" 0.6 0 0.6")


@pytest.mark.parametrize(
    "option, path", [([], "policy.schema.json"), (["--users"], "users.schema.json")]
)
def test_schema_prints_what_editors_want(capsys, option, path):
    """
    The schema of policies is the file beside them; that of users names what a user may have.
    """
    assert run(["schema", *option]) == 0
    schema = json.loads(capsys.readouterr().out)
    if option:
        assert list(schema["properties"]) == ["users"]
    else:
        assert schema == json.loads((ROOT / "policies" / path).read_text())


@pytest.mark.parametrize(
    "name, state, dataset, there",
    [
        ("people.yaml", "else", "people", "over the same source"),
        ("moved.yaml", None, "people", "over the same source"),
        ("moved.yaml", None, "folk", "over the same source"),
        ("copy/people.yaml", None, "people", "over the same source"),
        ("copy/folk.yaml", None, "folk", "over the same source"),
        ("other.yaml", "else", "people", "a state of people already"),
    ],
)
def test_a_state_elsewhere_is_a_second_budget_too(small, told, capsys, name, state, dataset, there):
    """
    Whether the policy names another folder, or the command, or is a copy in another folder; nothing
    is made, unless that is accepted, by the command that the hint names.
    """
    Path("copy").mkdir()
    Path("other.csv").write_text("age,town,unit\n1,a,u\n")
    text = small.policy.read_text().replace("dataset: people", f"dataset: {dataset}")
    if name.startswith("moved"):
        text = f"state: moved\n{text}"
    source = {"copy": "../people.csv", "othe": "other.csv"}.get(name[:4], "people.csv")
    Path(name).write_text(text.replace("people.csv", source))
    before = sorted(Path().rglob("*"))
    assert run(["init", name, *(["--state", state] if state else [])]) == 2
    error = capsys.readouterr().err
    assert there in error
    assert sorted(Path().rglob("*")) == before
    command = error.split("privacy-proxy ")[-1].split()
    assert command[:2] == ["init", "--accept-second-budget"]
    told(*command)
    (twin,) = [line for line in told("check", *command[2:]) if "has another budget" in line]
    assert there in twin or "people.yaml (people)" in twin


def test_a_hint_keeps_the_state_that_was_named(small, capsys):
    """
    As it was typed it would be about another state, or none.
    """
    small.state.parent.rename("a folder")
    with_state = ["people.yaml", "--state", "a folder"]
    small.users(ann="roles: [analyst]")
    small.write("privacy: {budget: 2, unit: row}\n")
    for arguments in (["query", *with_state, PEOPLE], ["apply", *with_state]):
        assert run(arguments) == 2
        error = capsys.readouterr().err
        assert "privacy-proxy apply --accept-weaker --state 'a folder' people.yaml" in error
    assert run(["apply", *with_state, "--accept-weaker"]) == 0


@pytest.mark.parametrize("command", ["rebuild", "apply", "query"])
def test_what_a_killed_build_has_left_is_cleared_away(small, capsys, command):
    """
    By whatever opens the state to write there; not while another process builds.
    """
    privacy = "privacy: {budget: 1, unit: row}\n"
    small.write(privacy, domain=DOMAIN.replace("9]", "8]"))
    assert run(["apply", "people.yaml", "--accept-weaker"]) == 0
    left = small.state / "..cube-1234.duckdb-rand"
    more = {"query": [PEOPLE], "apply": ["--accept-weaker"]}.get(command, [])
    for domain, busy in (("7]", True), ("6]", False)):
        if command == "apply":
            small.write(privacy, domain=DOMAIN.replace("9]", domain))
        with drafting(small.state) if busy else nullcontext():
            left.mkdir(exist_ok=True)
            (left / "cells.duckdb").write_text("private")
            (small.state / ".cube-1234.duckdb").write_text("private")
            assert run([command, "people.yaml", *more]) == 0
            assert left.exists() == busy
    assert list(small.state.glob(".*")) == []


def test_a_cube_is_for_its_owner_alone_while_it_is_built(small, monkeypatch, told):
    """
    Its folder is, too.
    """
    modes = []
    write = building._Work.write

    def look(work):
        (file,) = small.state.glob(".*/cells.duckdb")
        modes.append(file.stat().st_mode & 0o777)
        write(work)

    monkeypatch.setattr(building._Work, "write", look)
    told("rebuild", "people.yaml")
    assert modes == [0o600]


def test_what_nobody_knows_who_spent_is_told_and_held_against_each_cap(small, told):
    """
    ``users`` and ``budget`` agree on it.
    """
    small.write(rest="analysts: {ann: {budget: 0.5}, bob: {}}\n")
    told("apply", "people.yaml", "--accept-weaker")
    told("ledger", "backup", "people.yaml", "b")
    told("query", "people.yaml", PEOPLE, "--user", "ann")
    assert "Nobody knows who spent 0.2187 of it" in told("ledger", "restore", "people.yaml", "b")[2]
    listed = {each["name"]: each["spent"] for each in told("users", "people.yaml", "--json")}
    report = told("budget", "people.yaml", "--user", "ann", "--json")
    spent = {rule["name"]: rule["spent"] for rule in report["rules"]}
    assert listed == {"ann": spent["analyst ann"], "bob": 0}
    assert spent["analyst ann"] > 0.2


def test_an_answer_that_cannot_be_printed_is_kept(small, monkeypatch, capsys, told):
    """
    The error says so, and what it costs to ask again: nothing.
    """
    for more in ([], ["--csv"], ["--json"]):
        full = open("/dev/full", "w")  # noqa: SIM115  # what it holds cannot be flushed at the end
        with monkeypatch.context() as patched, suppress(OSError), full:
            patched.setattr(sys, "stdout", full)
            assert run(["query", "people.yaml", PEOPLE, *more]) == 2
        error = capsys.readouterr().err
        assert "the answer cannot be printed: No space left on device" in error
        assert "to ask the same again is free" in error
    assert told("query", "people.yaml", PEOPLE)[-1].startswith("cost 0,")


def test_a_source_that_is_no_file_is_refused_at_once(small, capsys):
    """
    A pipe would be waited for.
    """
    os.mkfifo("pipe.csv")
    small.policy.write_text(small.policy.read_text().replace("people.csv", "pipe.csv"))
    for command in ("check", "apply", "rebuild", "init"):
        assert (
            run([command, "people.yaml", *(["--state", "new"] if command == "init" else [])]) == 2
        )
        assert "pipe.csv is a pipe, and no file" in capsys.readouterr().err
    small.write(domain=DOMAIN.replace("[a, b]", "{path: pipe.csv, column: town}"))
    assert run(["check", "people.yaml"]) == 2
    assert "pipe.csv is a pipe, and no file" in capsys.readouterr().err


def test_an_empty_ledger_is_put_back_as_a_damaged_one_is(small, capsys):
    """
    The hint says how.
    """
    assert run(["ledger", "backup", "people.yaml", "b"]) == 0
    (small.state / "ledger.sqlite").write_bytes(b"")
    assert run(["budget", "people.yaml"]) == 2
    assert "privacy-proxy ledger restore POLICY BACKUP" in capsys.readouterr().err
    assert run(["ledger", "restore", "people.yaml", "b"]) == 0


@pytest.mark.parametrize(
    "where, message",
    [
        ("age <", 'at or near "<": the expression is incomplete'),
        ("(age < 3", None),
        ("age IN (1, 2", None),
        ("town = 'a", None),
    ],
)
def test_a_wrong_condition_is_told_in_its_own_words(small, capsys, where, message):
    """
    Of brackets around it, which nobody wrote, nothing is said.
    """
    small.write(f'privacy: {{budget: 1, unit: row, cells: [{{where: "{where}", budget: 0.5}}]}}\n')
    assert run(["check", "people.yaml"]) == 2
    error = capsys.readouterr().err
    assert "people.yaml:10: privacy.cells.where: " in error
    assert message in error if message else 'near ")"' not in error
