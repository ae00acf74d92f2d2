"""The command line: what people see, what programs read, and how each error ends."""

import contextlib
import csv
import datetime
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import field
from decimal import Decimal
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from proxy.cli import run, show
from proxy.cli.plain import WIDTH, Grid, Plain, printable, rich
from proxy.engine import Engine
from proxy.errors import InsufficientBudgetError, PolicyError, SQLSyntaxError, StateError
from proxy.sql.program import Column
from tests.small import Small


class Answer(Struct, frozen=True):
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
        "left_of": "the budget of the cells",
        "notices": (),
        "tag": "SELECT 2",
    }
    return SimpleNamespace(**fields | values)


class FakeEngine:
    """Records how it was asked, and answers (or raises) ``answer``."""

    answer = None
    asked: dict = field(default_factory=dict)

    @classmethod
    def open(cls, policy, state=None, eager=True):
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
    module.__path__ = find_spec("proxy.engine").submodule_search_locations
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
        ["NULL", "-1", "[-51,", "50]", "96.21%", "inferred", "free"],
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
        "left_of": "the budget of the cells",
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
        *(
            (["serve", "p.yaml", option, value], option, "privacy-proxy serve --help")
            for option, values in {
                "--listen": ("5439", "h:", "h:65536", "h:-1", "h:²"),
                "--metrics-port": ("-1", "65536", "x"),
                "--connections": ("-1", "0", "1e3", "100001"),
                "--user-connections": ("-1", "0", "100001"),
                "--timeout": ("nan", "inf", "0", "-1", "86401"),
                "--rows": ("0", "-1"),
                "--tls-key": ("key.pem",),
                "--mirror": ("secret", "x=y", "port=abc", "postgresql://h:abc/"),
            }.items()
            for value in values
        ),
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


@pytest.mark.slow
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


HEAVY = {
    *("scipy", "scipy.linalg", "scipy.special", "scipy.sparse", "opendp", "rich", "asyncio"),
    "duckdb",
    *("numpy.ma", "numpy.fft", "numpy.random", "urllib.request", "psycopg"),
    *("proxy.cube.building", "proxy.cube.sources.duckdb", "proxy.steward.inspection"),
    *("proxy.cli.serve", "proxy.cli.steward", "proxy.cli.passwd"),
}


def test_an_inferred_statement_imports_only_what_it_needs(tmp_path, capsys):
    """
    Free, of many rows, and printed to a pipe, it waits for nothing that noise, stewards, terminals
    or other statements need; nor is it wrong to wait: what it imports is what it stands on.
    """
    (tmp_path / "people.csv").write_text("a,b\n" + "1,x\n" * 40)
    policy = tmp_path / "people.yaml"
    policy.write_text(
        "dataset: people\nsource: {engine: duckdb, path: people.csv}\nmax_records: 1000\n"
        "outside: drop\nnulls: drop\nattributes:\n  a: {type: integer, range: [0, 9]}\n"
        "  b: {values: [x, y]}\nprivacy: {budget: 100, unit: row}\n"
    )
    assert run(["init", str(policy)]) == 0
    for by in ("a", "b", "a, b"):
        sql = f"SELECT {by}, COUNT(*) FROM people GROUP BY {by} WITH UTILITY (9, 0.05)"
        assert run(["query", str(policy), sql]) == 0
    capsys.readouterr()
    code = (
        "import os, sys; from proxy.cli import run\n"
        "status = run(sys.argv[1:]); threads = os.environ['OPENBLAS_NUM_THREADS']\n"
        "print(threads, *sys.modules, file=sys.stderr); sys.exit(status)"
    )
    sql = "SELECT COUNT(*) FROM people WHERE a < 6 AND b = 'x' WITH UTILITY (90, 0.05)"
    command = [sys.executable, "-c", code, "query", str(policy), sql]
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert "inferred" in done.stdout
    threads, *modules = done.stderr.split()
    assert threads == "1"
    modules = set(modules)
    assert {"numpy", "sqlglot", "proxy.inference.history"} <= modules
    assert not HEAVY & modules


def test_what_is_known_is_told_without_the_cube(tmp_path, capsys):
    """
    Whatever became of it; who measures is told that it is damaged, and pays nothing.
    """
    small = Small(tmp_path)
    small.data((1, "a", 90), (2, "b", 60))
    small.made()

    def asked(which):
        sql = f"SELECT COUNT(*) FROM people WHERE age < {which}"
        ended = run(["query", str(small.policy), sql])
        return ended, capsys.readouterr().err

    assert asked(5)[0] == 0
    (cube,) = small.state.glob("cube-*")
    cube.write_bytes(b"no cube")
    assert asked(5)[0] == 0
    ended, said = asked(2)
    assert (ended, "is damaged" in said) == (2, True)
    with contextlib.closing(Engine.open(small.policy, eager=False)) as engine:
        assert len(engine.history()) == 1
    cube.unlink()
    ended, said = asked(5)
    assert (ended, "is not there" in said) == (2, True)


WORDS = st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S", "Zs"]), max_size=9)


@given(st.data())
def test_what_is_piped_is_what_rich_prints(data):
    """
    A table, or a line, in ASCII or not, of one line each or more, is printed plainly as by rich,
    once what would steer a terminal is escaped.
    """
    cells = st.one_of(WORDS, st.text(max_size=4))
    sides = data.draw(st.lists(st.tuples(cells, st.booleans()), min_size=1, max_size=4))
    count = len(sides)
    lines = data.draw(st.lists(st.lists(cells, min_size=count, max_size=count), max_size=4))
    for what in (Grid(sides, lines), data.draw(cells)):
        printed = []
        for printer in (Plain(), rich(WIDTH)):
            with contextlib.redirect_stdout(io.StringIO()) as out:
                printer.print(printable(what) if isinstance(what, str) else what)
            printed.append(out.getvalue())
        assert printed[0] == printed[1]
        assert {c for c in printed[0] if not c.isprintable()} <= {"\n"}


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


@pytest.mark.slow
def test_csv_tells_null_from_an_empty_text(tmp_path, capsys):
    """
    And quotes what needs it; a table shows the three apart, with no more digits than are known.
    """
    (tmp_path / "people.csv").write_text('t,m\n"",1\n"a,""b",2\n,3\nNULL,4\n')
    policy = tmp_path / "people.yaml"
    policy.write_text(
        "dataset: people\nsource: {engine: duckdb, path: people.csv}\nmax_records: 1000\n"
        "outside: drop\nnulls: group\nattributes:\n  t: {values: ['', 'a,\"b', 'NULL']}\n"
        "measures: {m: {clip: [0, 9], quantum: 0.001, column: m}}\n"
        "privacy: {budget: 100, unit: row}\n"
    )
    sql = "SELECT t, COUNT(*) AS n, SUM(m) AS s FROM people GROUP BY t ORDER BY t"
    utility = ["--utility", "3, 0.05; m 40, 0.05"]
    assert run(["init", str(policy)]) == 0
    capsys.readouterr()
    assert run(["query", str(policy), sql, *utility, "--csv"]) == 0
    captured = capsys.readouterr()
    rows = list(csv.reader(io.StringIO(captured.out)))
    assert rows[0] == ["t", "n", "n_low", "n_high", "n_source", "s", "s_low", "s_high", "s_source"]
    assert [line.split(",")[0] for line in captured.out.splitlines()[1:]] == [
        '""',
        "NULL",
        '"a',
        "",
    ]
    assert [row[0] for row in rows[1:]] == ["", "NULL", 'a,"b', ""]
    assert all(float(row[2]) < float(row[3]) for row in rows[1:])
    assert any(len(row[5].partition(".")[2]) > 1 for row in rows[1:])
    assert captured.err.startswith("cost ")

    assert run(["query", str(policy), sql, *utility]) == 0
    lines = capsys.readouterr().out.splitlines()[1:-1]
    assert [line.split("  ")[0].strip() for line in lines] == ["''", "'NULL'", 'a,"b', "NULL"]
    for line in lines:  # a sum within 40, of measures in thousandths
        assert re.search(r"\s-?\d+  \[\d+, \d+\] 95% +inferred  free$", line), line
    assert run(["query", str(policy), sql, "--csv", "--json"]) == 2
