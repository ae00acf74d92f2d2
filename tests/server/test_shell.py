"""The shell over a running proxy: the same as over a policy."""

import threading

import click
import pytest

import proxy
from proxy.cli import run
from proxy.cli.interactive.catalog import Catalog, declared
from proxy.cli.interactive.completion import SQLCompleter
from proxy.cli.interactive.interpreter import Interpreter
from proxy.cli.interactive.screen import Screen
from proxy.errors import InternalError, QueryCanceledError
from proxy.policy import load
from tests.server.serving import password

SLOW = (
    "SELECT SUM(sqrt(a * c * 1.0) * ln(b)) AS s FROM generate_series(1, 10000) t(a), "
    "generate_series(1, 10000) u(b), generate_series(1, 1000) v(c)"
)


@pytest.fixture
def shell(server):
    with proxy.connect(server.url()) as connection:
        yield Interpreter(connection, Catalog(connection), Screen(False))


def test_the_catalog_is_that_of_the_policy(shell, server):
    """
    Tables, columns, types, kinds and declared values: what the policy says, asked from the server.
    """
    known = declared(load(server.folder / "cps1988.yaml"))
    tables = shell.catalog.tables
    assert list(tables) == ["cps1988", "privacy.budget", "privacy.history"]
    assert shell.catalog.dataset == "cps1988"
    for asked, said in zip(tables["cps1988"].columns, known.columns, strict=True):
        assert (asked.name, asked.type, asked.kind) == (said.name, said.type, said.kind)
        assert list(shell.catalog.values(asked)) == list(said.values or ())
    assert tables["cps1988"].comment == known.comment


def test_values_are_asked_once_and_for_nothing(shell):
    """
    When they are first wanted, and not in a transaction, which an error would make fail.
    """
    before = shell.execute("SHOW BUDGET").rows
    (region,) = [c for c in shell.catalog.tables["cps1988"].columns if c.name == "region"]
    shell.statement("BEGIN")
    assert shell.catalog.values(region) == ()
    shell.statement("ROLLBACK")
    assert region.values is None
    assert list(shell.catalog.values(region)) == ["midwest", "northeast", "south", "west"]
    assert shell.execute("SHOW BUDGET").rows == before
    shell.connection.close()
    assert len(shell.catalog.values(region)) == 4


def test_completion_asks_the_server(shell):
    """
    A value behind a comparison is completed over a wire, too.
    """
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    completer = SQLCompleter(shell.catalog, {})
    text = "SELECT COUNT(*) FROM cps1988 WHERE region = 'so"
    found = completer.get_completions(Document(text), CompleteEvent())
    assert [each.text for each in found] == ["'south'"]


def test_commands_over_a_wire(shell, capsys):
    """
    Each is answered by the server, with what is left, and errors point into what was typed.
    """
    shell.look()
    assert float(shell.left) <= 2
    count = "SELECT COUNT(*) AS n FROM cps1988 WITH UTILITY (500, 0.05)"
    shell.script(
        [f"{count}; \\budget\n\\history 1\n\\utility 50 0.05\n\\explain {count}\n\\d cps1988"]
    )
    out = capsys.readouterr().out
    for part in ("n  interval", "the budget of the cells", "time (UTC)", "is 50, 0.05", "left "):
        assert part in out
    assert "midwest, northeast, south, west" in out
    shell.ask = lambda text: False
    assert shell.script(["SELECT\n foo FROM cps1988;"]) == 2
    assert capsys.readouterr().err.splitlines()[1:3] == ["line 2:  foo FROM cps1988", " " * 9 + "^"]


def test_a_result_without_numbers_says_nothing_of_the_budget(shell, capsys):
    """
    The server does not tell what is left with it; nothing is shown, rather than no number.
    """
    shell.script(["SELECT 1 AS x;"])
    assert capsys.readouterr().out.split() == ["x", "1"]


def test_a_picture_over_a_wire(shell, capsys):
    """
    A number has its posterior, which the planner's process has told.
    """
    shell.execute("SET privacy.explanations = on")
    shell.script(["SELECT COUNT(*) AS n FROM cps1988 WITH UTILITY (500, 0.05);"])
    assert "█" in capsys.readouterr().out


def test_ctrl_c_over_a_wire(shell):
    """
    A statement that runs on the server is stopped there; the session goes on.
    """
    stop = threading.Timer(0.3, shell.connection.cancel)
    stop.start()
    with pytest.raises(QueryCanceledError):
        shell.execute(SLOW)
    assert shell.execute("SELECT 1 AS x").rows == [(1,)]


def test_a_transaction_over_a_wire(shell):
    """
    It is seen as open, and a price is not asked for once it has failed.
    """
    shell.ask = lambda text: False
    shell.statement("BEGIN")
    assert shell.connection.in_transaction
    with pytest.raises(proxy.Error):
        shell.statement("SELECT foo FROM cps1988")
    with pytest.raises(InternalError):
        shell.statement("SELECT COUNT(*) FROM cps1988 WITH UTILITY (500, 0.05)")
    shell.statement("ROLLBACK")
    assert not shell.connection.in_transaction


def test_a_password_is_asked_for(server, monkeypatch, capsys):
    """
    Of whoever types, where the URL has none; a script is refused with what the server says.
    """
    for name in ("PGPASSWORD", "PGPASSFILE"):
        monkeypatch.delenv(name, raising=False)
    url = f"postgresql://alice@{server.host}:{server.port}/cps1988"
    assert run(["shell", url, "-c", "SELECT 1"]) == 2
    assert "password" in capsys.readouterr().err
    asked = []
    monkeypatch.setattr(
        click, "prompt", lambda *_, **options: asked.append(options) or password("alice")
    )
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert run(["shell", url, "-c", "SELECT 'in' AS x"]) == 0
    assert capsys.readouterr().out.split()[1] == "in"
    assert [options["hide_input"] for options in asked] == [True]
