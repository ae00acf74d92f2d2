"""The prompt: what is typed, with completion, colours and a memory, and how a statement is stopped.

Ctrl-C clears a line, or stops the statement that runs; Ctrl-D leaves.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import Output

from proxy.cli.complaints import complain
from proxy.cli.interactive.commands import COMMANDS
from proxy.cli.interactive.completion import SQLCompleter
from proxy.cli.interactive.endings import Leave
from proxy.cli.interactive.highlighting import STYLE, SQLLexer
from proxy.cli.interactive.interpreter import Interpreter
from proxy.cli.interactive.lexemes import complete
from proxy.cli.plain import printable
from proxy.errors import Error

if TYPE_CHECKING:
    from proxy.engine import Result

APPLICATION = "privacy-proxy"
FILE = "shell_history"


def interact(
    interpreter: Interpreter,
    remembered: bool,
    input: Input | None = None,
    output: Output | None = None,
) -> int:
    """Read and run what is typed, until whoever types has had enough; return the exit status."""
    with ThreadPoolExecutor(1) as pool:
        interpreter.run = lambda work: stoppable(interpreter, pool, work)
        with suppress(Error):  # of a proxy that knows no explanations yet
            interpreter.execute("SET privacy.explanations = on")
        interpreter.look()
        return _loop(interpreter, remembered, input, output)


def _loop(
    interpreter: Interpreter, remembered: bool, input: Input | None, output: Output | None
) -> int:
    session = prompt(
        interpreter, history_file() if remembered else InMemoryHistory(), input, output
    )
    question: PromptSession[str] = PromptSession(input=input, output=output)
    interpreter.ask = lambda text: _yes(question, text)
    _greet(interpreter)
    while True:
        try:
            interpreter.script([session.prompt()])
        except KeyboardInterrupt:
            continue
        except (EOFError, Leave):
            return 0


def prompt(
    interpreter: Interpreter, history: History, input: Input | None, output: Output | None
) -> PromptSession[str]:
    """Return what reads one entry: a command, or statements up to a semicolon."""
    catalog = interpreter.catalog
    name = printable(catalog.dataset, "")
    what = {name: command.what for name, command in COMMANDS.items()}

    def toolbar() -> str:
        asks = "" if interpreter.confirm else "   prices are not asked for: \\confirm on"
        return f" left {printable(interpreter.left, '')}   \\? help{asks}"

    return PromptSession(
        lambda: f"{name}{'*' if interpreter.connection.in_transaction else ''}=> ",
        prompt_continuation=lambda width, number, soft: "-> ".rjust(width),
        multiline=Condition(lambda: not complete(get_app().current_buffer.text)),
        lexer=SQLLexer(),
        completer=SQLCompleter(catalog, what),
        complete_in_thread=True,
        style=STYLE,
        key_bindings=_keys(),
        history=history,
        bottom_toolbar=toolbar,
        input=input,
        output=output,
    )


def stoppable(
    interpreter: Interpreter, pool: ThreadPoolExecutor, work: Callable[[], Result]
) -> Result:
    """Do work in a thread; Ctrl-C stops it, and then it raises that it was stopped."""
    future: Future[Result] = pool.submit(work)
    while True:
        try:
            return future.result()
        except KeyboardInterrupt:
            interpreter.connection.cancel()


def history_file() -> History:
    """Return what was typed before, from a file that nobody else may read."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    path = Path(base) / APPLICATION / FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
        path.chmod(0o600)
    except OSError as error:
        complain(f"what is typed is not remembered: {error.strerror}: {path}")
        return InMemoryHistory()
    return FileHistory(str(path))


def _keys() -> KeyBindings:
    """Return what keys do beside what they do anyway."""
    keys = KeyBindings()
    keys.add(Keys.Vt100MouseEvent)(lambda event: None)  # else an untrue one ends in a traceback
    return keys


def _yes(question: PromptSession[str], text: str) -> bool:
    """Return whether whoever types says yes; Enter alone is no."""
    try:
        return question.prompt(f"{printable(text)} [y/N] ").strip().lower() in ("y", "yes")
    except (KeyboardInterrupt, EOFError):
        return False


def _greet(interpreter: Interpreter) -> None:
    name = printable(interpreter.catalog.dataset, "")
    left = printable(interpreter.left, "")
    click.echo(f"{name}: left {left}.  Statements end with a semicolon; \\? lists the commands.")
