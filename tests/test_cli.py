"""The command line: what people see, what programs read, and how each error ends."""

import datetime
import io
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from proxy.cli import run, show
from proxy.errors import InsufficientBudgetError, PolicyError, SQLSyntaxError, StateError
from proxy.policy import Verifier, load_users, scram_verifier
from proxy.sql.program import Column
from tests.small import DOMAIN, Small

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Answer:
    """As the engine's."""

    estimate: float = 8760.4
    low: float = 8710.4
    high: float = 8810.4
    confidence: float = 0.95
    source: str = "measured"
    cost: float = 0.05991


def result(**values):
    """An engine's result: two regions, one number each, the second inferred and so free."""
    second = Answer(-0.6, -50.6, 49.4, 0.96219, "inferred", 0.0)
    fields = {
        "columns": (Column("region", "text"), Column("n", "bigint")),
        "rows": [("south", 8760), (None, -1)],
        "answers": [[Answer()], [second]],
        "places": [(1,), (1,)],
        "cost": 0.05991,
        "left": 0.94009,
        "notices": (),
        "tag": "SELECT 2",
    }
    return SimpleNamespace(**fields | values)


class FakeEngine:
    """Records how it was asked, and answers (or raises) ``answer``."""

    answer = None
    asked: dict = field(default_factory=dict)

    @classmethod
    def open(cls, policy, state=None):
        cls.asked = {"policy": policy, "state": state}
        return cls()

    def session(self, **options):
        self.asked.update(options)
        return self

    def execute(self, sql):
        self.asked["sql"] = sql
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    def close(self):
        self.asked["closed"] = True


@pytest.fixture
def engine(monkeypatch):
    """The engine is replaced by one that answers with ``result()``."""
    module = ModuleType("proxy.engine")
    fake = type("Fake", (FakeEngine,), {"answer": result()})
    module.Engine = fake
    monkeypatch.setitem(sys.modules, "proxy.engine", module)
    return fake


def words(text):
    """The lines of a text, as lists of words."""
    return [line.split() for line in text.splitlines()]


def test_a_query_is_shown_as_a_table_with_intervals(engine, capsys):
    """
    Each number with interval, confidence, source and cost; below, the cost and what is left.
    """
    assert run(["query", "p.yaml", "SELECT 1"]) == 0
    assert words(capsys.readouterr().out) == [
        ["region", "n", "interval", "source", "cost"],
        ["south", "8,760", "[8,710,", "8,811]", "95%", "measured", "0.05991"],
        ["-1", "[-51,", "50]", "96.21%", "inferred", "free"],
        ["cost", "0.05991,", "left", "0.9401"],
    ]
    assert engine.asked == {
        "policy": "p.yaml",
        "state": None,
        "user": None,
        "utility": None,
        "sql": "SELECT 1",
        "closed": True,
    }


def test_a_query_in_json_is_an_object_for_programs(engine, capsys):
    """
    Columns, rows, answers with the fields of Answer, cost and left; types as JSON has them.
    """
    columns = [Column(name, "text") for name in "abcdef"]
    row = (True, Decimal("1.5"), datetime.date(1988, 3, 1), float("nan"), None, "naïve")
    engine.answer = result(columns=columns, rows=[row], answers=[[Answer()]], places=[(1,)])

    assert run(["query", "p.yaml", "SELECT 1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "columns": [{"name": name, "type": "text"} for name in "abcdef"],
        "rows": [[True, 1.5, "1988-03-01", "nan", None, "naïve"]],
        "answers": [
            [
                {
                    "estimate": 8760.4,
                    "low": 8710.4,
                    "high": 8810.4,
                    "confidence": 0.95,
                    "source": "measured",
                    "cost": 0.05991,
                }
            ]
        ],
        "cost": 0.05991,
        "left": 0.94009,
        "notices": [],
    }


def test_options_reach_the_engine(engine):
    """
    State, user and utility, in any order and with or without brackets.
    """
    assert (
        run(["query", "p.yaml", "--user", "alice", "S", "--state", "d", "--utility", "50,.1"]) == 0
    )
    assert engine.asked["state"] == "d"
    assert (engine.asked["user"], engine.asked["utility"]) == ("alice", (50, 0.1))
    assert run(["query", "p.yaml", "S", "--utility", "(5e1, 0.1)"]) == 0
    assert engine.asked["utility"] == (50, 0.1)


def test_a_statement_may_come_from_standard_input(engine, monkeypatch):
    """
    SQL - reads it to its end, as UTF-8 whatever the locale.
    """
    stdin = SimpleNamespace(buffer=io.BytesIO("SELECT 'ü'\nFROM x;\n".encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert run(["query", "p.yaml", "-"]) == 0
    assert engine.asked["sql"] == "SELECT 'ü'\nFROM x;\n"


def test_a_statement_without_rows_shows_its_tag(engine, capsys):
    """
    SET has no table, notices come before the cost.
    """
    engine.answer = result(columns=(), rows=[], answers=[], places=[], tag="SET", notices=("so",))
    assert run(["query", "p.yaml", "SET privacy.utility = '50, 0.05'"]) == 0
    assert words(capsys.readouterr().out)[:2] == [["SET"], ["notice:", "so"]]


def test_names_and_values_are_printed_as_they_are(engine, capsys):
    """
    Square brackets and colons are markup to the library that draws the tables, not to us.
    """
    engine.answer = result(
        columns=(Column("[red]:cat:", "text"), Column("n", "bigint")),
        rows=[("[bold]x", 1), (":smile:", 2)],
    )
    assert run(["query", "p.yaml", "S"]) == 0
    out = capsys.readouterr().out
    assert "[red]:cat:" in out
    assert "[bold]x" in out
    assert ":smile:" in out


def test_a_long_table_is_not_cut_for_want_of_a_terminal(engine, capsys):
    """
    Where output is piped, a line is as long as it needs to be.
    """
    name = "x" * 300
    engine.answer = result(rows=[(name, 8760), (None, -1)])
    assert run(["query", "p.yaml", "S"]) == 0
    assert any(name in line and "measured" in line for line in capsys.readouterr().out.splitlines())


@pytest.mark.parametrize(
    "low, high, shown",
    [
        (8710.4, 8810.4, "[8,710, 8,811] 95%"),
        (-0.4, -0.1, "[-0.40, -0.10] 95%"),
        (-0.123, 0.123, "[-0.13, 0.13] 95%"),
        (-20.5, -0.5, "[-21, 0] 95%"),
        (16_890_000.5, 17_230_000.25, "[16,890,000, 17,230,001] 95%"),
        (7.0, 7.0, "[7.00, 7.00] 95%"),
    ],
)
def test_intervals_are_rounded_outwards(low, high, shown):
    """
    What is printed holds at least as surely as what was computed; two digits of length remain.
    """
    assert show.interval(Answer(low=low, high=high)) == shown


@pytest.mark.parametrize(
    "error, status, lines",
    [
        (
            InsufficientBudgetError("the budget is gone", requested=0.6, spent=0.9, left=0.1),
            3,
            ["error: the budget is gone (requested 0.6, spent 0.9, left 0.1)"],
        ),
        (
            SQLSyntaxError(
                "syntax error", detail="line 1, column 3\n  SE LECT\n    ^", hint="a\nb"
            ),
            2,
            ["error: syntax error (line 1, column 3)", "hint: a b"],
        ),
        (
            PolicyError("must be positive", file="p.yaml", line=3, key="budget"),
            2,
            ["error: p.yaml:3: budget: must be positive"],
        ),
        (
            StateError("no state yet", hint="privacy-proxy init p.yaml"),
            2,
            ["error: no state yet", "hint: privacy-proxy init p.yaml"],
        ),
        (FileNotFoundError(2, "No such file", "x.csv"), 2, ["error: No such file: x.csv"]),
        (OSError("odd"), 2, ["error: odd"]),
        (
            KeyboardInterrupt(),
            130,
            [
                "",
                "error: interrupted; what was already answered stays charged, "
                "and is free to ask again",
            ],
        ),
    ],
)
def test_an_error_is_a_line_or_two_and_a_status(engine, capsys, error, status, lines):
    """
    3 where the budget refuses, 2 for what is wrong; on standard error, nothing beside it.
    """
    engine.answer = error
    assert run(["query", "p.yaml", "S"]) == status
    captured = capsys.readouterr()
    assert captured.err.splitlines() == lines
    assert captured.out == ""
    assert engine.asked["closed"]


@pytest.mark.parametrize(
    "arguments, message, hint",
    [
        (["quary"], "No such command", "privacy-proxy --help"),
        (["query", "p.yaml"], "Missing argument", "privacy-proxy query --help"),
        (["query", "p.yaml", "S", "--bad"], "No such option", "privacy-proxy query --help"),
        (["query", "p.yaml", "S", "--utility", "50"], "'50, 0.05'", "privacy-proxy query --help"),
        (
            ["query", "p.yaml", "S", "--utility", "a, b"],
            "two numbers",
            "privacy-proxy query --help",
        ),
        (["query", "p.yaml", "\udcff"], "not UTF-8", "privacy-proxy query --help"),
        (["demo", "p.yaml"], "unexpected extra argument", "privacy-proxy demo --help"),
    ],
)
def test_a_wrong_call_says_what_is_wrong_and_where_the_help_is(capsys, arguments, message, hint):
    """
    Two lines on standard error, and status 2.
    """
    assert run(arguments) == 2
    error, advice = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ")
    assert message in error
    assert advice == f"hint: {hint}"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_the_commands(capsys, arguments):
    """
    Without arguments too.
    """
    assert run(arguments) == 0
    commands = re.findall(r"^  (\w+)  ", capsys.readouterr().out, re.MULTILINE)
    assert {"budget", "check", "demo", "history", "init", "query"} <= set(commands)
    assert commands == sorted(commands)


def test_the_demo_tells_its_story_and_leaves_nothing_behind(capsys, tmp_path, monkeypatch):
    """
    Measured; again, and free; measured; a new one inferred, free; a tighter one paid; groups;
    one refused with the amounts.  A second run tells the same.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("PRIVACY_PROXY_STATE", str(tmp_path / "not here"))
    stories = []
    for _ in range(2):
        assert run(["demo"]) == 0
        stories.append(capsys.readouterr().out)
        assert list(tmp_path.iterdir()) == []

    refusal = r"requested \d\.\d+, spent 0\.\d+, left 0\.\d+"
    step = rf"\d+%  (measured|inferred) +(free|0\.\d+)|{refusal}"
    for story in stories:
        told = re.findall(step, story)
        sources = [source or "refused" for source, _ in told]
        assert sources == [
            *("measured", "inferred", "measured", "inferred", "measured"),
            *["measured"] * 8,
            *("refused", "measured"),
        ]
        assert [cost == "free" for _, cost in told] == [s == "inferred" for s in sources]
        assert story.count("left 0.") == 8
    noise = r"-?[\d,]+  \[-?[\d,]+, -?[\d,]+\]"
    first, second = (re.sub(r" +", " ", re.sub(noise, "#", story)) for story in stories)
    assert first == second
    assert stories[0] != stories[1]


def test_help_does_not_wait_for_the_engine():
    """
    Neither the engine nor what it needs is imported before it is used.
    """
    code = (
        "import sys; from proxy.cli import run; run(['--help'])\n"
        "heavy = {'proxy.engine', 'duckdb', 'numpy', 'scipy', 'opendp', 'sqlglot', 'rich'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_has_had_enough_is_no_error(tmp_path):
    """
    ``privacy-proxy --help | head -0``: silence, no traceback.
    """
    code = "import sys; from proxy.cli import main; sys.argv[1:] = ['--help']; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1


# --- the commands of a data steward, on a small dataset -------------------------------------------


@pytest.fixture
def small(tmp_path, monkeypatch):
    """The current folder has a few people, a policy with a guard, and its state."""
    claim = '{claim: "COUNT(*) BETWEEN 0 AND 5", for_each: [age, town], confidence: 0.95}'
    small = Small(tmp_path)
    small.data((0, "a", 5), (5, "a", 4), (9, "b", 7))
    small.made(f"privacy: {{budget: 1, unit: row, guards: [{claim}]}}\n").close()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("proxy.steward.me", lambda: "sam")
    return small


@pytest.fixture
def told(capsys):
    """A function that runs a command and returns its output, in words or from JSON."""

    def call(*arguments, status=0):
        assert run(list(arguments)) == status
        captured = capsys.readouterr()
        assert captured.err == ""
        return json.loads(captured.out) if "--json" in arguments else words(captured.out)

    return call


PEOPLE = "SELECT COUNT(*) AS n FROM people"


def test_explain_says_what_would_be_paid(small, told):
    """
    For each number its cost, the interval to expect, and what would be left; nothing is charged.
    """
    groups = "SELECT town, COUNT(*) AS n FROM people GROUP BY town"
    for _ in range(2):
        assert told("explain", "people.yaml", groups) == [
            ["number", "group", "source", "cost", "within"],
            ["COUNT(*)", "a", "measured", "0.2187", "±10"],
            ["COUNT(*)", "b", "measured", "0.2187", "±10"],
            ["left", "0.4993,", "after", "the", "statement", "0.2806"],
        ]
    told("query", "people.yaml", groups)
    explained = told("explain", "people.yaml", PEOPLE, "--utility", "50, 0.1", "--json")
    names = [column["name"] for column in explained["columns"]]
    assert names == ["number", "group", "source", "cost", "half_width", "left_after"]
    ((number, group, source, cost, half_width, after),) = explained["rows"]
    assert (number, group, source, cost) == ("COUNT(*)", None, "inferred", 0)
    assert 10 < half_width <= 50
    assert explained["left"] == after == pytest.approx(0.28056, abs=1e-5)
    assert told("explain", "people.yaml", f"{PEOPLE} WITH UTILITY (50, 0.1)")[1][1:3] == [
        "inferred",
        "free",
    ]


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
    assert heads[:5] == ["claim", "for", "each", "cap", "spent"]
    assert line[:5] == ["COUNT(*)", "BETWEEN", "0", "AND", "5"]
    assert line[5:] == ["age,", "town", "0.4993", "0.2187", "0.2806", "73.08%", "95.00%"]
    (guard,) = told("guards", "people.yaml", "--json")
    assert guard["for_each"] == ["age", "town"]
    assert guard["spent"] + guard["left"] == pytest.approx(guard["cap"])
    small.write()
    told("apply", "people.yaml", "--accept-weaker")
    assert told("guards", "people.yaml") == ["The policy has no guards.".split()]


def test_audit_lists_acts_and_statements_and_free_ones(small, told):
    """
    The free ones have no number; JSON has every field, the cost in alpha.
    """
    for _ in range(2):
        told("query", "people.yaml", PEOPLE, "--user", "ann")
    told("rebuild", "people.yaml")
    lines = told("audit", "people.yaml")
    sql = PEOPLE.split()
    assert [line[:1] + line[3:] if line[0].isdigit() and len(line[0]) == 1 else line[2:]
            for line in lines[1:]] == [
        ["1", *lines[1][3:5], "dataset:", "people"],
        ["2", "ann", "measured", "1", "0.2187", *sql],
        ["ann", "inferred", *sql],
        ["3", "sam", "rebuild", "snapshot:", "2,", "carried:", "false"],
    ]  # fmt: skip
    whole = told("audit", "people.yaml", "--json")
    assert [line["kind"] for line in whole] == ["init", "measured", "inferred", "rebuild"]
    assert whole[1]["cost"] == pytest.approx(0.21873, abs=1e-5)
    assert whole[3]["detail"] == {"snapshot": 2, "carried": False}
    assert datetime.datetime.fromisoformat(whole[0]["time"]).tzinfo


def test_audit_verifies_the_ledger(small, told, capsys):
    """
    0 where everything agrees; 2 with what does not, one problem a line.
    """
    told("query", "people.yaml", PEOPLE)
    assert told("audit", "people.yaml", "--verify")[0][:2] == ["Everything", "agrees:"]
    assert told("audit", "people.yaml", "--verify", "--json") == {"problems": []}
    with closing(sqlite3.connect(small.state / "ledger.sqlite")) as connection:
        connection.execute("DROP TRIGGER measurements_refine")
        connection.execute("UPDATE measurements SET scale = scale / 2")
        connection.commit()
    problems = told("audit", "people.yaml", "--verify", status=2)
    assert problems == ["measurements 1: the row was changed".split()]
    found = told("audit", "people.yaml", "--verify", "--json", status=2)
    assert found == {"problems": ["measurements 1: the row was changed"]}
    os.replace(small.state / "ledger.sqlite", small.folder / "aside")
    assert run(["audit", "people.yaml", "--verify"]) == 2
    assert "there is no ledger" in capsys.readouterr().err


def test_apply_says_what_protects_less_and_what_was_rebuilt(small, told, capsys):
    """
    First it refuses, then it does it, then there is nothing to do.
    """
    told("query", "people.yaml", PEOPLE)
    small.write(domain=DOMAIN.replace("[0, 9]", "[0, 10]"))
    assert run(["apply", "people.yaml"]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert "nothing was changed (attribute age has another domain: values; the guard" in error
    assert hint.startswith("hint: to apply it all the same: privacy-proxy apply --accept-weaker /")
    lines = [" ".join(line) for line in told("apply", "people.yaml", "--accept-weaker")]
    assert lines[:2] == [
        "The policy of people is in force now.",
        "protects less than before: attribute age has another domain: values",
    ]
    assert lines[-3:] == [
        "The cells have changed, so the cube was rebuilt.",
        "16 rows read, 16 kept.",
        "Snapshot 2: every cell starts with the most that any had paid: 0.2187.",
    ]
    again = told("apply", "people.yaml")
    assert again == ["The policy of people was in force already.".split()]
    assert told("apply", "people.yaml", "--json") == {
        "dataset": "people",
        "applied": False,
        "changes": [],
        "rebuilt": None,
    }


def test_rebuild_says_what_every_cell_starts_with(small, told):
    """
    By history, where there are several; or that cells go on.
    """
    small.write(rest="analysts: {ann: {budget: 0.4, history: own}}\n")
    told("apply", "people.yaml", "--accept-weaker")
    told("query", "people.yaml", PEOPLE)
    told("query", "people.yaml", PEOPLE, "--user", "ann", "--utility", "20, 0.1")
    kept, line = (" ".join(line) for line in told("rebuild", "people.yaml"))
    assert kept == "16 rows read, 16 kept."
    assert line.startswith("Snapshot 2: every cell starts with the most that any had paid: 0.")
    assert "0.1122 (own:ann)" in line
    assert "0.2187 (shared)" in line
    report = told("rebuild", "people.yaml", "--json")
    assert (report["snapshot"], report["carried"], report["survey"]["kept"]) == (3, False, 16)
    small.write(rest="records: immutable\n")
    told("apply", "people.yaml", "--accept-weaker")
    assert told("rebuild", "people.yaml")[1][:3] == ["Snapshot", "4:", "records"]


def test_a_ledger_is_backed_up_and_restored(small, told, capsys):
    """
    Never over a file that is there; what was spent since the backup is charged.
    """
    assert told("ledger", "backup", "people.yaml", "b")[0][:5] == "The ledger was copied to".split()
    assert run(["ledger", "backup", "people.yaml", "b"]) == 2
    assert "b cannot be made: File exists" in capsys.readouterr().err
    told("query", "people.yaml", PEOPLE)
    lines = [" ".join(line) for line in told("ledger", "restore", "people.yaml", "b")]
    assert lines == [
        "The backup is older than the ledger was; what was spent since is charged.",
        "Paid by the dearest cell: 0.2187.",
    ]
    assert told("budget", "people.yaml")[1][-2:] == ["0.2187", "0.7813"]
    told("ledger", "backup", "people.yaml", "c")
    report = told("ledger", "restore", "people.yaml", "c", "--json")
    assert (report["missed"], report["charged"]) == (False, {"shared": pytest.approx(0.218725)})
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
    assert told("budget", "people.yaml")[1][-1] == "0"


def test_check_shows_the_difference_to_what_is_in_force(small, told):
    """
    And other policies that spend on the same source.
    """
    small.write()
    (small.folder / "folk.yaml").write_text(
        small.policy.read_text().replace("dataset: people", "dataset: folk")
    )
    lines = [" ".join(line) for line in told("check", "people.yaml")]
    assert lines[0] == "people: 20 cells; state: changed since it was applied"
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
    assert told("budget", "people.yaml", "--user", "ann")[1][-3:] == ["0.4", "0", "0.4"]
    assert told("budget", "people.yaml")[1][-3:] == ["0.6", "0", "0.6"]


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


# --- passwords -----------------------------------------------------------------------------------


@pytest.fixture
def typed(monkeypatch):
    """A function that sets standard input: bytes of a pipe, or what a person types, hidden."""

    def set_input(*lines):
        if lines and isinstance(lines[0], str):
            left = list(lines)
            monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
            monkeypatch.setattr("click.termui.hidden_prompt_func", lambda prompt: left.pop(0))
        else:
            pipe = SimpleNamespace(isatty=lambda: False, buffer=io.BytesIO(*lines))
            monkeypatch.setattr(sys, "stdin", pipe)

    return set_input


def same(verifier, password):
    """Whether a verifier is that of a password."""
    read = Verifier.parse(verifier)
    return verifier == scram_verifier(password, read.iterations, read.salt)


@pytest.mark.parametrize(
    "lines, password",
    [
        ((b"secret\n",), "secret"),
        ((b"secret\r\nmore\n",), "secret"),
        ((" s \N{PILE OF POO}".encode(),), " s \N{PILE OF POO}"),
        (("secret", "secret"), "secret"),
        (("secret", "secrte", "other", "other"), "other"),
    ],
)
def test_passwd_prints_a_verifier(typed, capsys, lines, password):
    """
    Of the first line of a pipe, or of what a person types twice alike; nothing else is printed.
    """
    typed(*lines)
    assert run(["passwd"]) == 0
    out = capsys.readouterr().out
    assert same(out.removesuffix("\n"), password)
    assert password.strip() not in out


@pytest.mark.parametrize(
    "arguments, lines, message",
    [
        ([], b"\n", "the password is empty"),
        ([], b"", "the password is empty"),
        ([], b"\xff\n", "not UTF-8"),
        (["--users", "u.yaml"], b"x\n", "needs the name of the USER"),
        (["ann", "--role", "steward"], b"x\n", "--role goes with --users"),
        (["ann", "--users", "none/u.yaml"], b"x\n", "No such file"),
        (["ann", "--users", "u.yaml", "--role", "root"], b"x\n", "is not one of"),
    ],
)
def test_a_wrong_passwd_says_what_is_wrong(
    typed, capsys, tmp_path, monkeypatch, arguments, lines, message
):
    """
    And writes nothing.
    """
    monkeypatch.chdir(tmp_path)
    typed(lines)
    assert run(["passwd", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


V = scram_verifier("old", 1, b"salt")
FILES = {
    "block": (f"# Who.\nusers:\n  # first\n  ann:\n    password: {V}  # hers\n    roles: [analyst]\n",
              "ann"),
    "flow": (f"users: {{ann: {{password: {V}, roles: [analyst]}}}}", "ann"),
    "quoted": (f"users:\n    'ann lee':\n        roles: [steward]\n        password: \"{V}\"\n",
               "ann lee"),
    "plain password": ("users:\n  ann: {password: hunter2, roles: [analyst]}\n", "ann"),
    "umlauts": (f"# für alle\nusers:\n  jürgen: {{roles: [analyst], password: '{V}'}}\n", "jürgen"),
    "carriage returns": (f"users:\r\n  ann:\r\n    password: {V}\r\n    roles: [analyst]\r\n", "ann"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_passwd_replaces_a_password_and_keeps_the_rest_of_the_file(typed, capsys, tmp_path, name):
    """
    Comments, quotes and line ends too; other users, roles and the file's mode.
    """
    text, user = FILES[name]
    path = tmp_path / "users.yaml"
    path.write_bytes(text.encode())
    path.chmod(0o640)
    typed(b"new\n")
    assert run(["passwd", user, "--users", str(path)]) == 0
    assert capsys.readouterr().out == f"{user} has a new password in {path}\n"
    verifier = str(load_users(path).get(user).password)
    assert same(verifier, "new")
    after = path.read_bytes().decode()
    expected = re.sub(r"hunter2|[\"']?SCRAM[^\s,}\"']*[\"']?", lambda match: verifier, text)
    assert after == expected
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("user", ["bob", "no", "Ann O'Neil", "12"])
def test_passwd_adds_a_user_and_keeps_the_rest_of_the_file(typed, capsys, tmp_path, name, user):
    """
    Before the others, as an analyst or with the roles that are given; any name.
    """
    text, old = FILES[name]
    if "hunter2" in text:
        text = text.replace("hunter2", V)
    path = tmp_path / "users.yaml"
    path.write_bytes(text.encode())
    typed(b"new\n")
    roles = ["--role", "steward", "--role", "auditor"] if user == "no" else []
    assert run(["passwd", user, "--users", str(path), *roles]) == 0
    assert capsys.readouterr().out == f"{user} is a new user of {path}\n"
    users = load_users(path)
    assert list(users.users) == [user, old]
    assert same(str(users.get(user).password), "new")
    assert users.get(user).roles == ({"steward", "auditor"} if roles else {"analyst"})
    after = path.read_bytes().decode()
    lines = iter(after.splitlines() if "{ann" not in text else [text])
    assert all(line in lines for line in text.splitlines())


@pytest.mark.parametrize("text", [None, "", "# nobody yet\n", "# nobody yet"])
def test_passwd_begins_a_users_file(typed, tmp_path, text):
    """
    For its owner only, where it was not there.
    """
    path = tmp_path / "users.yaml"
    if text is not None:
        path.write_text(text)
    typed(b"new\n")
    assert run(["passwd", "ann", "--users", str(path), "--role", "steward"]) == 0
    assert load_users(path).get("ann").roles == {"steward"}
    assert path.read_text().startswith(text or "users:")
    if text is None:
        assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "text, message",
    [
        ("users: [ann]\n", "no mapping of users"),
        ("users: {}\n", "no mapping of users"),
        ("users:\n", "no mapping of users"),
        ("- users\n", "no mapping of users"),
        ("users: [\n", "no YAML"),
        ("users:\n  ann: {roles: [analyst]}\n", "no password of ann"),
        (f"users:\n  bob: {{password: {V}, roles: [root]}}\n", r"roles\[0\]"),
    ],
)
def test_passwd_leaves_a_wrong_file_as_it_is(typed, capsys, tmp_path, text, message):
    """
    The error says what is wrong with it.
    """
    path = tmp_path / "users.yaml"
    path.write_text(text)
    typed(b"new\n")
    assert run(["passwd", "ann", "--users", str(path)]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert path.read_text() == text
    assert list(tmp_path.iterdir()) == [path]
