"""The shell as a script runs it, and what it shows: statements, commands, prices, errors."""

import io
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

import proxy
from proxy.cli import run
from proxy.cli.interactive import commands, screen
from proxy.cli.interactive.catalog import Catalog
from proxy.cli.interactive.endings import Leave, Stopped
from proxy.cli.interactive.interpreter import Interpreter, price
from proxy.cli.interactive.lexemes import complete, entries, lexemes
from proxy.cli.interactive.screen import Screen, pointed
from proxy.cli.interactive.sparkline import BLOCKS, sparkline
from proxy.cli.plain import Grid, printable
from proxy.dbapi import Connection
from proxy.engine.answers import Answer, Explanation, Posterior, Result
from proxy.errors import OperationalError, ProgrammingError
from proxy.sql.parse.grammar import split
from tests.shells import ESCAPE, copied


@pytest.fixture
def folder(tmp_path):
    """A state of its own for each test."""
    return copied(tmp_path / "people")


@pytest.fixture
def shell(folder):
    """A shell without noise, which nobody types at."""
    with Connection(folder.engine()) as connection:
        yield Interpreter(connection, Catalog(connection), Screen(False))


@pytest.fixture
def at_terminal(shell, monkeypatch):
    """The same at a terminal of 80 by 24 places, with what was asked and what is answered."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    monkeypatch.delenv("NO_COLOR", raising=False)
    shell.screen = Screen(True)
    shell.asked, shell.answer = [], True
    shell.ask = lambda text: shell.asked.append(text) or shell.answer
    return shell


def spent(shell):
    return shell.connection.execute("SHOW BUDGET").fetchone()[2]


# --- the words of a text -------------------------------------------------------------------------

TEXTS = (
    "SELECT 'a;b' ; SELECT \";\"",
    "SELECT 'it''s;' -- no; end\n; x",
    "SELECT /* a; /* b; */ ; */ 1; SELECT 2",
    "SELECT E'\\';' ; SELECT $$;$$ ; SELECT $t$ ; $$ ; $t$",
    "SELECT 1e5, .5, a<>b, x::text;",
    "/*+ UTILITY(50, 0.05) */ SELECT COUNT(*) FROM t;;",
)


@pytest.mark.parametrize("text", TEXTS)
def test_statements_end_where_the_proxy_ends_them(text):
    """
    The shell cuts a text at the semicolons at which the proxy's own parser does.
    """
    assert "".join(each.text for each in lexemes(text)) == text
    assert entries(text)[0] == [piece.strip() for piece in split(text) if piece.strip()]


@pytest.mark.parametrize(
    "text, ends",
    [
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1; ", True),
        ("SELECT 1; -- and no more", True),
        ("SELECT 1; /* and", False),
        ("SELECT 1; SELECT 2", False),
        ("SELECT ';", False),
        ("SELECT E'\\';", False),
        ('SELECT ";', False),
        ("SELECT $$;", False),
        ("SELECT $a$;$$;", False),
        ("SELECT 1 -- ;", False),
        ("", True),
        ("  \n", True),
        ("\\d people", True),
        ("quit", True),
    ],
)
def test_enter_ends_what_is_whole(text, ends):
    """
    A statement goes on over lines until its semicolon, which no text and no comment is.
    """
    assert complete(text) is ends


def test_commands_stand_between_statements():
    """
    A backslash begins a command where a statement could begin, and nowhere else.
    """
    text = "SELECT 1;\\d people; x\n\n \\x\nSELECT '\n\\d';\nSELECT 2"
    assert entries(text) == (["SELECT 1", "\\d people; x", "\\x", "SELECT '\n\\d'", "SELECT 2"], "")
    assert entries("\\d peo", whole=False) == ([], "\\d peo")
    assert entries("SELECT 1; SEL", whole=False) == (["SELECT 1"], " SEL")


# --- scripts -------------------------------------------------------------------------------------


def test_a_pipe_prints_what_query_prints(folder, capsys, monkeypatch):
    """
    Statements of a pipe run without a question, and show the same as the command ``query``.
    """
    text = "SELECT town, COUNT(*) AS n FROM people WHERE town < 'z' GROUP BY town"
    policy = str(folder.policy)
    assert run(["query", policy, text]) == 0
    capsys.readouterr()
    assert run(["query", policy, text]) == 0
    expected = capsys.readouterr()
    stdin = SimpleNamespace(buffer=io.BytesIO(f"{text}\n;".encode()), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", stdin)
    assert run(["shell", policy]) == 0
    assert capsys.readouterr() == expected
    assert run(["shell", policy, "-c", text]) == 0
    assert capsys.readouterr() == expected


def test_a_script_stops_at_an_error(folder, capsys):
    """
    The status is that of the error, 2 or 3; ``--keep-going`` goes on, and ends with the first.
    """
    shell = ["shell", str(folder.policy)]
    refused = "SELECT COUNT(*) FROM people WITH UTILITY (0.0001, 0.1)"
    after = ["-c", "SELECT 'reached' AS x"]
    for wrong, status in (("SELECT foo FROM people", 2), (refused, 3), ("\\foo", 2)):
        assert run([*shell, "-c", wrong, *after]) == status
        assert "reached" not in capsys.readouterr().out
        assert run([*shell, "--keep-going", "-c", wrong, *after, "-c", "\\bar"]) == status
        assert "reached" in capsys.readouterr().out
    assert run([*shell, "-c", "\\q", "-c", "SELECT foo"]) == 0
    assert run([*shell, "-c", "quit; SELECT foo"]) == 0


def test_an_error_of_a_script_points_into_the_statement(folder, capsys):
    """
    A line says what is wrong, two where, and one what to do about it.
    """
    assert run(["shell", str(folder.policy), "-c", "SELECT 1 AS x; SELECT\n foo FROM people"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        'error: column "foo" does not exist',
        "line 2:  foo FROM people",
        "         ^",
        "hint: there are age, town",
    ]


def test_calls_that_make_no_sense(folder, capsys, monkeypatch):
    """
    Each ends with one line that says what is wrong, and the status 2.
    """
    assert run(["shell", "postgresql://x@localhost/y", "--state", "z"]) == 2
    assert "--state is of a policy" in capsys.readouterr().err
    stdin = SimpleNamespace(buffer=io.BytesIO(b"SELECT '\xff';"), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", stdin)
    assert run(["shell", str(folder.policy)]) == 2
    assert "not UTF-8" in capsys.readouterr().err


def test_a_missing_package_is_named(folder, capsys, monkeypatch):
    """
    At a terminal without prompt_toolkit there is a line for pip; a script does not need it.
    """
    monkeypatch.setitem(sys.modules, "prompt_toolkit", None)
    assert run(["shell", str(folder.policy), "-c", "SELECT 1"]) == 0
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert run(["shell", str(folder.policy)]) == 2
    assert "pip install 'sql-privacy-proxy[shell]'" in capsys.readouterr().err


def test_other_commands_do_not_wait_for_the_shell():
    """
    ``--help`` imports nothing of the prompt, nor of the engine.
    """
    code = (
        "import sys, proxy.cli; proxy.cli.run(['shell', '--help']);"
        "print([m for m in ('prompt_toolkit', 'numpy', 'sqlglot', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


# --- prices --------------------------------------------------------------------------------------


def test_nobody_spends_unknowingly(at_terminal, capsys):
    """
    What costs is asked with its price, and not run unless it is agreed to; what is free just runs.
    """
    count = "SELECT COUNT(*) FROM people WHERE age = 3"
    before, at_terminal.answer = spent(at_terminal), False
    assert at_terminal.script([f"{count}; SELECT 'reached' AS x;"]) == 0
    (asked,) = at_terminal.asked
    assert asked == "This costs 0.2187: left 2, then 1.781.  Run it?"
    out = capsys.readouterr().out
    assert "nothing was spent" in out
    assert "reached" not in out
    assert spent(at_terminal) == before
    at_terminal.answer = True
    at_terminal.script([f"{count};"])
    assert len(at_terminal.asked) == 2
    at_terminal.script([f"{count};", "SET privacy.hide_empty = off;", "SELECT 1 AS x;"])
    assert len(at_terminal.asked) == 2
    at_terminal.script(["\\confirm off\n", "SELECT COUNT(*) FROM people WHERE age = 4;"])
    assert len(at_terminal.asked) == 2


def test_what_has_no_price_is_asked_too(at_terminal):
    """
    A statement that may cost and that EXPLAIN does not take is not run without a question.
    """
    at_terminal.answer = False
    at_terminal.script(["COPY (SELECT COUNT(*) FROM people) TO STDOUT;"])
    assert at_terminal.asked == ["What COPY costs is not known before.  Run it?"]


def test_what_is_refused_is_not_asked(at_terminal, capsys):
    """
    It costs nothing: the refusal is shown at once, with requested, spent and left.
    """
    at_terminal.script(["SELECT COUNT(*) FROM people WITH UTILITY (0.0001, 0.1);"])
    assert at_terminal.asked == []
    assert "requested" in capsys.readouterr().err


def test_an_error_points_into_the_statement_not_into_its_explanation(at_terminal, capsys):
    """
    Before the price is known the text is one of EXPLAIN; the caret is below what was typed.
    """
    at_terminal.script(["SELECT\n  foo FROM people;"])
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == 'error: column "foo" does not exist'
    assert lines[1:3] == ["line 2:   foo FROM people", "          ^"]
    assert lines[3].startswith("hint: ")


def test_a_failed_transaction_says_so(at_terminal, capsys):
    """
    An error fails a transaction, whose statements then have the error that they have anywhere.
    """
    at_terminal.script(["BEGIN; SELECT foo FROM people;"])
    capsys.readouterr()
    at_terminal.script(["SELECT COUNT(*) FROM people;"])
    assert "transaction" in capsys.readouterr().err
    assert at_terminal.asked == []
    at_terminal.script(["ROLLBACK;"])


def test_a_price_is_what_explain_says():
    """
    Of the whole statement; where that is met in steps, of the first, for which groups cost what
    the dearest does and numbers add up, and the most that all of them can cost.
    """

    def said(most, *rows):
        return price(SimpleNamespace(rows=[(*row, 0.5, most) for row in rows]))

    one = [("a", "x", "measured", 0.25, 1.0), ("a", "y", "measured", 0.5, 1.0)]
    more = [("a", "x", "measured", 0.25, 1.0), ("b", None, "measured", 1.0, 1.0)]
    step = [("b", None, "measured", 2.0, None), ("c", None, "inferred", 0.0, 1.0)]
    assert said(0.7, *one) == "0.7"
    assert said(0.0, step[1]) == ""
    assert said(9.0, *one, *more, *step) == "3.75 for its first step, at most 9 for all"
    assert said(None, *one).startswith("0.5 for its first part, ")
    assert price(SimpleNamespace(rows=[])) == ""


def test_the_price_of_steps_is_shown(at_terminal):
    """
    What the first costs, the most that all cost, and what the first leaves.
    """
    at_terminal.answer = False
    at_terminal.script(["SELECT AVG(age) FROM people WITH UTILITY (2, 0.1);"])
    (asked,) = at_terminal.asked
    assert re.match(r"This costs \S+ for its first step, at most 2 for all: left 2, then ", asked)


# --- commands ------------------------------------------------------------------------------------


def enter(shell, capsys, text):
    """What a command prints, as lists of words."""
    shell.enter(text)
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_explain_says_the_price_and_pays_nothing(shell, capsys):
    r"""
    ``\explain`` is EXPLAIN UTILITY; an error points into what was typed.
    """
    before = spent(shell)
    lines = enter(shell, capsys, "\\explain SELECT COUNT(*) FROM people WHERE age = 5;")
    assert lines[0] == ["number", "source", "cost", "within"]
    assert lines[1][:3] == ["COUNT(*)", "measured", "0.2187"]
    assert lines[2][0] == "left"
    assert spent(shell) == before
    assert shell.script(["\\explain SELECT foo FROM people"]) == 2
    assert capsys.readouterr().err.splitlines()[1:3] == ["  SELECT foo FROM people", "         ^"]
    with pytest.raises(ProgrammingError, match="takes a statement"):
        shell.enter("\\explain")


def test_budget_and_history(shell, capsys):
    """
    They show what the commands of these names do, the history its last lines.
    """
    for age in (6, 7):
        shell.enter(f"SELECT COUNT(*) FROM people WHERE age = {age}")
    capsys.readouterr()
    lines = enter(shell, capsys, "\\budget")
    assert lines[0] == ["budget", "alpha", "spent", "left"]
    assert lines[1] == ["the", "budget", "of", "the", "cells", "2", "0.2187", "1.781"]
    lines = enter(shell, capsys, "\\history 1")
    assert len(lines) == 2
    assert lines[1][-3:] == ["age", "=", "7"]
    assert len(enter(shell, capsys, "\\history")) == 3
    with pytest.raises(ProgrammingError, match="how many"):
        shell.enter("\\history all")


def test_utility_and_cost_are_settings(shell, capsys):
    """
    They show the setting, set it, and take it back.
    """
    said = enter(shell, capsys, "\\utility")
    assert said == [["privacy.utility", "is", "10,", "0.1"]]
    for text in ("50 0.05", "50, 0.05", "(50, 0.05)"):
        assert enter(shell, capsys, f"\\utility {text}") == [
            ["privacy.utility", "is", *said_of(text)]
        ]
    enter(shell, capsys, "\\utility 5, 0.2; sum(age) 7, 0.1")
    assert shell.connection.execute("SHOW privacy.utility").fetchone()[0].startswith("5, 0.2; ")
    assert enter(shell, capsys, "\\utility off") == said
    assert enter(shell, capsys, "\\cost 0.05") == [["privacy.max_cost", "is", "0.05"]]
    assert enter(shell, capsys, "\\cost") == [["privacy.max_cost", "is", "0.05"]]
    assert enter(shell, capsys, "\\cost off") == [["privacy.max_cost", "is", "off"]]
    assert shell.script(["\\utility 'x"]) == 2
    assert "utility" in capsys.readouterr().err


def said_of(text):
    return ["(50,", "0.05)"] if "(" in text else ["50,", "0.05"]


def test_tables_columns_and_values(shell, capsys):
    r"""
    ``\d`` lists tables; of one, columns with type, kind and declared values.
    """
    names = [line[0] for line in enter(shell, capsys, "\\d")]
    assert names == ["table", "people", "towns", "privacy.budget", "privacy.history"]
    lines = enter(shell, capsys, "\\d people")
    assert lines[1][:3] == ["age", "integer", "attribute"]
    assert lines[1][3:] == [*(f"{n}," for n in range(9)), "9"]
    assert enter(shell, capsys, "\\d towns")[1:] == [["name", "text"], ["river", "boolean"]]
    shell.enter(
        "CREATE TEMP VIEW old AS SELECT age AS years, COUNT(*) AS n FROM people GROUP BY age"
    )
    assert enter(shell, capsys, "\\d old")[-1][:2] == ["n", "bigint"]
    shell.enter("DROP VIEW old")
    with pytest.raises(ProgrammingError) as told:
        shell.enter("\\d peple")
    assert told.value.hint == "did you mean people?"


def test_long_lists_of_values_are_cut():
    """
    A column's values have one line, which says how many there are.
    """
    column = SimpleNamespace()
    catalog = SimpleNamespace(values=lambda asked: [f"value {i}" for i in range(5000)])
    said = commands._declared(SimpleNamespace(catalog=catalog), column)
    assert said.endswith(", … (5,000)")
    assert len(said) < 60


def test_results_are_saved(shell, capsys, tmp_path):
    r"""
    ``\csv`` and ``\json`` write the last result; without a file they print it.
    """
    with pytest.raises(ProgrammingError, match="no result"):
        shell.enter("\\csv")
    shell.enter("SELECT 'x, y' AS a, COUNT(*) AS n FROM people WHERE age = 8")
    capsys.readouterr()
    shell.enter("\\csv")
    printed = capsys.readouterr().out
    assert printed.splitlines()[0] == "a,n,n_low,n_high,n_source"
    assert enter(shell, capsys, f"\\csv {tmp_path}/r.csv")[0][:2] == ["1", "rows"]
    assert (tmp_path / "r.csv").read_text() == printed
    shell.enter(f"\\json {tmp_path}/r.json")
    assert '"left_of"' in (tmp_path / "r.json").read_text()
    with pytest.raises(OperationalError, match="is not written"):
        shell.enter(f"\\csv {tmp_path}/none/r.csv")


def test_rows_as_lines(shell, capsys):
    r"""
    ``\x`` shows a line for each column, and behind a number what is told of it.
    """
    shell.enter("\\x on")
    capsys.readouterr()
    lines = enter(shell, capsys, "SELECT 1 AS one, COUNT(*) AS n FROM people WHERE age = 9")
    assert lines[0] == ["-[", "1", "]-"]
    assert lines[1] == ["one", "|", "1"]
    assert lines[2][:3] == ["n", "|", "0"]
    assert lines[2][-2:] in (["measured", "0.2187"], ["inferred", "free"])


def test_time_is_shown(shell, capsys):
    r"""
    After ``\timing``, until it is said again.
    """
    shell.enter("\\timing")
    capsys.readouterr()
    assert enter(shell, capsys, "SELECT 1 AS x")[-1][::2] == ["time", "s"]
    shell.enter("\\timing")
    capsys.readouterr()
    assert enter(shell, capsys, "SELECT 1 AS x")[-1][0] == "cost"


def test_files_are_run(shell, capsys, tmp_path):
    r"""
    ``\i`` runs statements and commands, stops at an error, and does not read itself for ever.
    """
    script, inner = tmp_path / "a.sql", tmp_path / "b.sql"
    inner.write_text("SELECT 'inner' AS x;\n")
    script.write_text(
        f"SELECT 'outer'\n AS x;\n\\i {inner}\nSELECT foo FROM people;\nSELECT 'x';\n"
    )
    assert shell.script([f"\\i {script}\nSELECT 'after' AS x;"]) == 2
    told = capsys.readouterr()
    assert [w for w in told.out.split() if w in ("outer", "inner", "after")] == ["outer", "inner"]
    inner.write_text(f"\\i {script}\n")
    assert shell.script([f"\\i {script}"]) == 2
    assert "reads itself" in capsys.readouterr().err
    assert shell.files == []
    script.write_bytes(b"\xff")
    for name, why in ((script, "not UTF-8"), (tmp_path / "none", "is not read"), ("", "takes")):
        with pytest.raises(proxy.Error, match=why):
            shell.enter(f"\\i {name}".strip())


def test_help_lists_every_command(shell, capsys):
    """
    An unknown command names the nearest.
    """
    lines = enter(shell, capsys, "\\?")
    assert {line[0] for line in lines} == {"command", *commands.COMMANDS}
    with pytest.raises(ProgrammingError) as told:
        shell.enter("\\bugdet")
    assert told.value.hint.startswith("did you mean \\budget?")
    with pytest.raises(ProgrammingError, match="on or off"):
        shell.enter("\\confirm perhaps")
    with pytest.raises(Leave):
        shell.enter("\\q")


# --- what a terminal shows -----------------------------------------------------------------------


def test_nothing_steers_the_terminal(at_terminal, capsys):
    """
    Values, names of columns, statements of the history and of errors may be anybody's: what would
    steer a terminal is shown as escapes, at every door of the shell.
    """
    hostile = f'SELECT town, COUNT(*) AS "{ESCAPE}" FROM people GROUP BY town'
    wrong = f'SELECT "{ESCAPE}" FROM people'
    at_terminal.script([f"{hostile};", "\\x on\n", f"{hostile};", "\\x off\n", "\\history\n"])
    at_terminal.script(["\\csv\n", "\\json\n", "\\d people\n", f"\\explain {hostile}\n"])
    at_terminal.script([f"\\explain {wrong}"])
    at_terminal.script([f"{wrong};"])
    at_terminal.script([f"\\{ESCAPE}"])
    at_terminal.script([f"\\i {ESCAPE}"])
    at_terminal.script([f"\\d {ESCAPE}"])
    at_terminal.screen.print(f"notice: {ESCAPE}")
    at_terminal.screen.data(ESCAPE)
    at_terminal.screen.flush()
    told = capsys.readouterr()
    for text in told:
        assert "\\x1b]0;title\\x07" in text
        assert {c for c in text if not c.isprintable()} <= {"\n", "\x1b"}
        own = text.replace("\x1b[0m", "").replace("\x1b[1m", "").replace("\x1b[2m", "")
        for colour in range(30, 38):
            own = own.replace(f"\x1b[{colour}m", "")
        assert "\x1b" not in own
    assert told.err.count("\x1b") == 0  # colours are of results only


def test_other_commands_steer_no_terminal_either(folder, capsys):
    """
    ``query``, ``explain``, ``history`` and errors show escapes, too.
    """
    policy = str(folder.policy)
    hostile = f'SELECT town, COUNT(*) AS "{ESCAPE}" FROM people GROUP BY town'
    assert run(["query", policy, hostile]) == 0
    assert run(["explain", policy, hostile]) == 0
    assert run(["history", policy]) == 0
    assert run(["query", policy, f'SELECT "{ESCAPE}" FROM people']) == 2
    for text in capsys.readouterr():
        assert "\\x1b]0;title\\x07" in text
        assert {c for c in text if not c.isprintable()} <= {"\n"}


def test_sources_have_colours(at_terminal, capsys, monkeypatch):
    """
    At a terminal each source has its own, and a NULL is faint, unless NO_COLOR is set.
    """
    rows = [["measured", "NULL"], ["derived", "'NULL'"]]
    grid = Grid([("source", False), ("x", False)], rows)
    monkeypatch.setattr(screen.click, "echo", lambda text: told.append(text))
    told = []
    at_terminal.screen.print(grid)
    at_terminal.screen.flush()
    assert "\x1b[33mmeasured\x1b[0m" in told[0]
    assert "\x1b[36mderived\x1b[0m" in told[0]
    assert "\x1b[2mNULL\x1b[0m" in told[0]
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Screen(True)
    plain.print(grid)
    plain.flush()
    assert "\x1b" not in told[1]


def test_a_table_that_is_too_wide_is_shown_as_lines(at_terminal, capsys):
    r"""
    Unless ``\x off`` was said: then it is cut by nobody.
    """
    statement = f"SELECT '{'a' * 60}' AS one, '{'b' * 60}' AS two;"
    at_terminal.script([statement])
    assert capsys.readouterr().out.startswith("-[ 1 ]-")
    at_terminal.script(["\\x off\n", statement])
    assert f"{'a' * 60}  {'b' * 60}" in capsys.readouterr().out


def test_what_is_longer_than_the_screen_goes_to_a_pager(at_terminal, monkeypatch):
    """
    And what is not is printed.
    """
    paged = []
    monkeypatch.setattr(screen.click, "echo_via_pager", lambda lines: paged.append(list(lines)))
    monkeypatch.delenv("LESS", raising=False)
    at_terminal.script(["SELECT x FROM generate_series(1, 19) AS t(x);"])
    assert paged == []
    at_terminal.script(["SELECT x FROM generate_series(1, 30) AS t(x);"])
    assert len(paged[0]) == 32
    assert os.environ.pop("LESS") == "-RSX"


def test_a_caret_stands_below_the_fault():
    """
    In the line of the position, whatever stands before it: tabs, wide characters, escapes.
    """
    for text, fault in (
        ("SELECT foo", "foo"),
        ("SELECT 1,\n\tfoo", "foo"),
        ("SELECT '日本', foo", "foo"),
        ("SELECT '\x1b[31m', foo", "foo"),
        (f"SELECT {'x, ' * 100} foo {', x' * 100}", "foo"),
        ("SELECT", ""),
    ):
        position = text.index(fault) + 1 if fault else len(text) + 1
        line, caret = pointed(text, position)
        from rich.cells import cell_len

        before = line[: line.index(fault)] if fault else line
        assert cell_len(before) == len(caret) - 1
        assert caret.strip() == "^"
        assert "\x1b" not in line
    assert printable("a\nb\x1bc\u202e") == "a\nb\\x1bc\\u202e"


# --- the sparkline -------------------------------------------------------------------------------


def one(posterior, low=90.0, high=110.0):
    answer = Answer(100.0, low, high, 0.95, "measured", 0.1)
    explained = None if posterior is None else Explanation(posterior, ())
    return Result((), [(100,)], [[answer]], 0.1, 0.9, explanations=[[explained]])


def test_a_number_has_a_picture_of_its_posterior():
    """
    Blocks as high as values are probable, those of the interval apart, between two ends.
    """
    values = tuple(float(v) for v in range(60, 141))
    below = tuple(min(max((v - 60) / 80, 0), 1) ** 1 for v in values)
    before, inside, behind = sparkline(one(Posterior(values, below, 0.0, 1.0)))
    assert before.startswith("80 ")
    assert behind.endswith(" 120")
    assert set(before[3:] + inside + behind[:-4]) <= set(BLOCKS[7:])
    assert len(inside) == pytest.approx(20, abs=2)
    peak = tuple(0.0 if v < 100 else 1.0 for v in values)
    picture = "".join(sparkline(one(Posterior(values, peak, 0.0, 1.0))))
    assert picture.count("█") >= 1
    assert picture.index("█") == pytest.approx(len(picture) / 2, abs=3)


def test_other_results_have_no_picture():
    """
    Neither several numbers, nor one of which nothing is known, nor one that is certain.
    """
    posterior = Posterior((0.0, 200.0), (0.0, 1.0), 0.0, 1.0)
    several = one(posterior)
    assert sparkline(several) is not None
    several.explanations.append(several.explanations[0])
    assert sparkline(several) is None
    assert sparkline(one(None)) is None
    assert sparkline(one(Posterior((5.0,), (1.0,), 0.0, 1.0), 5.0, 5.0)) is None
    assert sparkline(Result((), [], [], 0.0, 1.0)) is None


def test_a_stop_has_a_status():
    """
    What ends a script says with which status.
    """
    assert Stopped().status == 0
    assert Stopped(3).status == 3
