"""The prompt of the shell: completion, colours, lines, questions, stops and memory."""

import contextlib
import os
import pty
import select
import signal
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

import proxy
from proxy.cli.interactive import terminal
from proxy.cli.interactive.catalog import Catalog, declared, functions
from proxy.cli.interactive.commands import COMMANDS
from proxy.cli.interactive.completion import SQLCompleter
from proxy.cli.interactive.highlighting import SQLLexer
from proxy.cli.interactive.interpreter import Interpreter
from proxy.cli.interactive.screen import Screen
from proxy.dbapi import Connection
from proxy.domain import Attribute, Domain
from proxy.errors import QueryCanceledError
from tests.shells import ESCAPE, LONG, copied

ROOT = Path(__file__).parent.parent
SLOW = (
    "SELECT SUM(sqrt(a * c * 1.0) * ln(b)) AS s FROM generate_series(1, 10000) t(a), "
    "generate_series(1, 10000) u(b), generate_series(1, 1000) v(c)"
)
ENTER, DOWN, TAB, CTRL_C, CTRL_D = "\r", "\x1b[B", "\t", "\x03", "\x04"


@pytest.fixture
def folder(tmp_path):
    """A state of its own for each test."""
    return copied(tmp_path / "people")


@pytest.fixture
def shell(folder):
    with Connection(folder.engine()) as connection:
        yield Interpreter(connection, Catalog(connection), Screen(True))


@pytest.fixture
def typed(shell, monkeypatch, tmp_path):
    """A function that types at the prompt, and then leaves."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))

    def type_(*keys, remembered=False):
        with create_pipe_input() as keyboard:
            keyboard.send_text("".join(keys) + CTRL_C + CTRL_D)
            return terminal.interact(shell, remembered, keyboard, DummyOutput())

    return type_


@pytest.fixture
def completed(shell):
    """A function from a text, with | for the cursor, to what could stand there."""
    completer = SQLCompleter(shell.catalog, {name: c.what for name, c in COMMANDS.items()})

    def complete(text, asked=False):
        before, _, behind = text.partition("|")
        document = Document(before + behind, len(before))
        event = CompleteEvent(completion_requested=asked, text_inserted=not asked)
        return [each.text for each in completer.get_completions(document, event)]

    return complete


# --- completion ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, first",
    [
        ("SEL|", ["SELECT"]),
        ("sel|", ["select"]),
        ("SELECT to|", ["town"]),
        ("SELECT cou| FROM people", ["count"]),
        ("SELECT CRED|", ["CREDIBLE_HIGH", "CREDIBLE_LOW"]),
        ("SELECT * FROM |", ["people", "towns", "privacy.budget", "privacy.history"]),
        ("SELECT * FROM to|", ["towns"]),
        ("SELECT * FROM privacy.h|", ["history"]),
        ("SELECT people.t| FROM people", ["town"]),
        ("SELECT p.t| FROM people p", ["town"]),
        ("SELECT riv| FROM towns", ["river"]),
        ("SELECT COUNT(*) FROM people WHERE town = |", ["'a'", "'b'"]),
        ("SELECT COUNT(*) FROM people WHERE town = '|", ["'a'", "'b'"]),
        ("SELECT COUNT(*) FROM people WHERE town IN ('a', 'b|", ["'b'"]),
        ("SELECT COUNT(*) FROM people WHERE town <> 'IT|", ["'it''s'"]),
        ("SELECT COUNT(*) FROM people WHERE town = 'S|", ["'it''s'"]),
        ("SELECT COUNT(*) FROM people WHERE town = 'it''|", ["'it''s'"]),
        ('SELECT COUNT(*) FROM people WHERE "town" = \'b|', ["'b'"]),
        ("SELECT 1; SELECT COUNT(*) FROM people WHERE town = 'b|", ["'b'"]),
        ("SELECT COUNT(*) FROM people WITH |", []),
        ("SELECT COUNT(*) FROM people WITH U|", ["UTILITY"]),
        ("SET priv|", ["privacy.utility", "privacy.max_cost"]),
        ("SHOW bud|", ["BUDGET"]),
        ("\\ex|", ["\\explain"]),
        ("\\d pe|", ["people"]),
        ("\\explain SELECT COUNT(*) FROM people WHERE town = 'b|", ["'b'"]),
        ("\\confirm o|", ["on", "off"]),
        ("SELECT 'no|", []),
        ("SELECT 1 -- SEL|", []),
        ("SELECT age + '|", []),
        ("SELECT COUNT(*) FROM people WHERE age = |", []),
    ],
)
def test_what_could_come_next(completed, text, first):
    """
    Keywords in the case that somebody types; tables after FROM, columns of the tables that are
    named, a column's declared values behind a comparison; and nothing where nothing is known.
    """
    found = completed(text)
    assert found[: len(first)] == first
    assert first or not found


def test_settings_are_completed_behind_their_dot(completed):
    """
    A setting is one name, though there is a dot in it.
    """
    assert completed("SET privacy.ut|") == ["utility"]
    assert completed("RESET privacy.max|") == ["max_cost"]


def test_tab_shows_what_there_is(completed):
    """
    Without a letter, names and keywords come when they are asked for.
    """
    assert completed("SELECT |") == []
    assert {"age", "town", "COUNT", "FROM"} <= set(completed("SELECT |", asked=True))
    assert {"\\explain", "\\budget", "\\?"} <= set(completed("\\|"))


def test_views_of_the_session_are_known(shell, completed):
    """
    From their creation until they are dropped.
    """
    shell.statement('CREATE TEMP VIEW "Old ones" AS SELECT age AS years FROM people GROUP BY age')
    assert '"Old ones"' in completed("SELECT * FROM |")
    assert completed('SELECT yea| FROM "Old ones"')[:1] == ["years"]
    shell.statement('DROP VIEW "Old ones"')
    assert '"Old ones"' not in completed("SELECT * FROM |")


def test_menus_steer_no_terminal(shell):
    """
    What is shown of a value has escapes; what is inserted is the value.
    """
    completer = SQLCompleter(shell.catalog, {})
    text = "SELECT COUNT(*) FROM people WHERE town = '"
    found = list(completer.get_completions(Document(text), CompleteEvent()))
    (hostile,) = [each for each in found if ESCAPE in each.text]
    assert hostile.display_text.isprintable()
    assert hostile.display_text.startswith("\\x1b]0;title")


def test_of_five_thousand_values_few_are_offered(shell, completed):
    """
    So many are offered as a menu can hold: those that begin so first, then those that have it
    inside.
    """
    policy = shell.connection.policy
    values = tuple(f"{'xy'[n % 2]}{n}" for n in range(LONG))
    long = Domain((Attribute("code", "text", values), *policy.domain.attributes))
    shell.catalog.tables  # noqa: B018  # are read
    shell.catalog.__dict__["_tables"] = {"people": declared(replace(policy, domain=long))}
    assert len(completed("SELECT COUNT(*) FROM people WHERE code = '|")) == 200
    assert completed("SELECT COUNT(*) FROM people WHERE code = 'y4999|") == ["'y4999'"]
    inside = completed("SELECT COUNT(*) FROM people WHERE code = '499|")
    assert len(inside) == 15
    assert inside[0] == "'y499'"


def test_functions_are_those_of_the_allowlist():
    """
    Of scalars and of aggregates, in capitals.
    """
    assert {"COUNT", "MEDIAN", "WIDTH_BUCKET", "PROBABILITY", "STDDEV"} <= set(functions())
    assert all(name.isupper() for name in functions())


def test_the_clause_has_a_colour_of_its_own():
    """
    Words are coloured by what they are, over lines; the text stays as it is.
    """
    text = "SELECT COUNT(*) FROM t\nWHERE a = 'x\ny' WITH UTILITY (5, 0.1) -- no\n"
    text += "/*+ UTILITY(1, 0.1) */"
    line = SQLLexer().lex_document(Document(text))
    lines = [line(number) for number in range(text.count("\n") + 1)]
    assert "\n".join("".join(part[1] for part in each) for each in lines) == text
    styles = {part[1]: part[0] for each in lines for part in each}
    assert styles["SELECT"] == "class:sql.keyword"
    assert styles["COUNT"] == "class:sql.function"
    assert styles["UTILITY"] == "class:sql.privacy"
    assert styles["'x"] == styles["y'"] == "class:sql.text"
    assert styles["/*+ UTILITY(1, 0.1) */"] == "class:sql.privacy"
    assert styles["-- no"] == "class:sql.comment"
    assert styles["t"] == ""
    assert SQLLexer().lex_document(Document("\\explain SELECT 1"))(0)[0][0] == "class:sql.command"
    assert line(99) == []


# --- the prompt ----------------------------------------------------------------------------------


def test_a_statement_goes_on_until_its_semicolon(typed, capsys):
    """
    Enter begins a new line until there is one; several statements of a line run in turn.
    """
    assert typed("SELECT 'one'", ENTER, " AS x", ENTER, ";", ENTER) == 0
    assert "one" in capsys.readouterr().out
    typed("SELECT 2 AS x; SELECT 'three' AS y;", ENTER, ENTER, "\\q", ENTER)
    out = capsys.readouterr().out.split()
    assert "2" in out
    assert "three" in out


def test_ctrl_c_clears_the_line(typed, capsys):
    """
    And the session goes on.
    """
    typed("SELECT 'lost' AS x", ENTER, CTRL_C, "SELECT 'kept' AS x;", ENTER)
    out = capsys.readouterr().out
    assert "lost" not in out
    assert "kept" in out


def test_a_price_is_answered_by_yes_or_no(typed, capsys, shell):
    """
    ``y`` runs what was asked, Enter and Ctrl-C do not, and errors do not end the session.
    """
    count = "SELECT COUNT(*) FROM people WHERE age = 2;"
    typed(count, ENTER, ENTER, count, ENTER, CTRL_C, "SELECT foo FROM people;", ENTER)
    assert capsys.readouterr().out.count("nothing was spent") == 2
    assert shell.connection.execute("SHOW BUDGET").fetchone()[2] == 0
    typed(count, ENTER, "y", ENTER)
    out = capsys.readouterr().out
    assert "measured" in out
    assert "█" in out  # the posterior, which the prompt asks for
    typed("\\confirm off", ENTER, "SELECT COUNT(*) FROM people WHERE age = 5;", ENTER)
    assert "measured" in capsys.readouterr().out


def test_untrue_mouse_events_do_nothing(typed, capsys):
    """
    Keys that look like the beginning of one, as text pasted with escapes has them.
    """
    typed("\x1b[31M", "SELECT 'on' AS x;", ENTER)
    told = capsys.readouterr()
    assert "on" in told.out.split()
    assert "Traceback" not in told.out + told.err


def test_ctrl_c_stops_the_statement_that_runs(shell):
    """
    It fails as a canceled one, and the session goes on.
    """
    ended = threading.Event()

    def work():
        threading.Thread(target=interrupt).start()
        try:
            return shell.connection.execute(SLOW).result
        finally:
            ended.set()

    def interrupt():
        if not ended.wait(0.3):  # else the signal would stop the tests
            os.kill(os.getpid(), signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(QueryCanceledError):
            terminal.stoppable(shell, pool, work)
        assert terminal.stoppable(shell, pool, lambda: 5) == 5
    assert shell.connection.execute("SELECT 1 AS x").fetchall() == [(1,)]


def test_what_is_typed_is_remembered_for_oneself(typed, tmp_path):
    """
    In a file under XDG_STATE_HOME that nobody else may read; with --no-history-file, nowhere.
    """
    typed("SELECT 'no' AS x;", ENTER, remembered=False)
    file = tmp_path / "home" / "privacy-proxy" / "shell_history"
    assert not file.exists()
    typed("SELECT 'yes'\n AS x;", ENTER, remembered=True)
    assert "SELECT 'yes'" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    file.chmod(0o644)
    assert list(terminal.history_file().load_history_strings()) == ["SELECT 'yes'\n AS x;"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_without_a_place_nothing_is_remembered(monkeypatch, tmp_path, capsys):
    """
    A warning says so.
    """
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert isinstance(terminal.history_file(), InMemoryHistory)
    assert "not remembered" in capsys.readouterr().err


# --- a real terminal -----------------------------------------------------------------------------


class Pty:
    """The shell in a terminal of its own, as whoever types there sees it."""

    def __init__(self, policy, home):
        self.ours, theirs = pty.openpty()
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "XDG_STATE_HOME": str(home),
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "TERM": "xterm",
        }
        command = [sys.executable, "-m", "proxy", "shell", str(policy)]
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
        self.process = subprocess.Popen(command, env=environment, start_new_session=True, **streams)
        os.close(theirs)
        self.seen, self.at = b"", 0

    def until(self, text):
        """Read until a text is there, behind the one before."""
        while text not in self.seen[self.at :]:
            ready, _, _ = select.select([self.ours], [], [], 60)
            assert ready, self.seen
            self.seen += os.read(self.ours, 65536)
        self.at = self.seen.index(text, self.at) + len(text)

    def type(self, keys):
        os.write(self.ours, keys)

    def ended(self):
        """Read what is left, and return the exit status."""
        with contextlib.suppress(OSError):  # of a terminal that nobody uses any more
            while rest := os.read(self.ours, 65536):
                self.seen += rest
        return self.process.wait(60)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.wait()
        os.close(self.ours)


@pytest.mark.slow
def test_a_session_at_a_terminal(folder, tmp_path):
    """
    A pty sees the prompt, the menu, the price and the answer, and no escape of a value.
    """
    with Pty(folder.policy, tmp_path) as terminal:
        terminal.until(b"people=>")
        terminal.type(b"SELECT town, COUNT(*) AS n FROM people WHERE town <> '")
        terminal.until(rb"\x1b]0;title\x07")
        terminal.type(b"z' GROUP BY town;\r")
        terminal.until(b"Run it?")
        terminal.type(b"y\r")
        terminal.until(rb"\x1b]0;title\x07")
        terminal.until(b"people=>")
        terminal.type(b"SELECT town FROM people WHERE town = 'it")
        terminal.until(b"it's")
        terminal.type(b"\t GROUP BY town;\r")
        terminal.until(b"cost 0, left")
        terminal.until(b"people=>")
        terminal.type(b"\x04")
        assert terminal.ended() == 0
    assert ESCAPE[:5].encode() not in terminal.seen
    assert "\x9b2J".encode() not in terminal.seen


def test_what_a_connection_offers_the_shell(folder):
    """
    Its policy, whether a transaction is open, how to stop a statement; and a cursor's result.
    """
    with proxy.connect(folder.policy) as connection:
        assert connection.policy.dataset == "people"
        assert not connection.in_transaction
        connection.execute("BEGIN")
        assert connection.in_transaction
        assert connection.cursor().result is None
        assert connection.execute("SELECT 1 AS x").result.rows == [(1,)]
        stop = threading.Timer(0.3, connection.cancel)
        stop.start()
        with pytest.raises(QueryCanceledError):
            connection.execute(SLOW)
    with pytest.raises(proxy.InterfaceError):
        connection.cancel()
