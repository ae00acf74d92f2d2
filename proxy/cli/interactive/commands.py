r"""The backslash commands: ``\explain``, ``\budget``, ``\d`` and so on."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from proxy.cli import show
from proxy.cli.complaints import status
from proxy.cli.interactive.endings import Leave, Stopped
from proxy.cli.plain import Grid
from proxy.engine.answers import csv
from proxy.errors import Error, OperationalError, ProgrammingError
from proxy.files import write
from proxy.settings import MAX_COST, UTILITY
from proxy.sql.parse.identifiers import nearest

if TYPE_CHECKING:
    from datetime import datetime

    from proxy.cli.interactive.catalog import Column, Table
    from proxy.cli.interactive.interpreter import Interpreter
    from proxy.engine import Result

LATEST = 20  # lines of the history
VALUES = 40  # places of a column's values in a list


class Rule(NamedTuple):
    """A row of SHOW BUDGET."""

    name: str
    budget: float
    spent: float
    left: float
    exact: bool


class Line(NamedTuple):
    """A row of SHOW HISTORY."""

    sequence: int
    time: datetime
    user: str
    statement: str
    cost: float
    numbers: int


class Command(Struct, frozen=True):
    """A command: what comes behind its name, what it does, and the function that does it."""

    argument: str
    what: str
    act: Callable[[Interpreter, str], None]


def run(interpreter: Interpreter, text: str) -> None:
    """Run a command.

    Raises:
        ProgrammingError: there is none of that name.
        Error: it fails.
    """
    name, _, argument = text.rstrip("; \t\r\n").partition(" ")
    name = "\\?" if name == "\\help" else name
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, 1, 0.5)
        hint = f"did you mean {near[0]}?  " if near else ""
        raise ProgrammingError(f"there is no command {name}", hint=f"{hint}\\? lists all")
    COMMANDS[name].act(interpreter, argument.strip())


def explain(interpreter: Interpreter, text: str) -> None:
    """Say what a statement would cost."""
    if not text:
        raise ProgrammingError("\\explain takes a statement, as \\explain SELECT COUNT(*) FROM …")
    try:
        told = interpreter.explain(text)
    except Error as error:
        interpreter.screen.error(error, text)
        raise Stopped(status(error)) from None
    show.explained(told, False, interpreter.screen)


def budget(interpreter: Interpreter, argument: str) -> None:
    """Show every limit, what is spent of it and left."""
    rules = [Rule(*row) for row in interpreter.execute("SHOW BUDGET").rows]
    interpreter.screen.print(show.budgets(rules))


def history(interpreter: Interpreter, argument: str) -> None:
    """List the latest statements that were paid for."""
    latest = _count(argument) if argument else LATEST
    lines = [Line(*row) for row in interpreter.execute("SHOW HISTORY").rows]
    show.history(lines[-latest:], False)


def setting(name: str) -> Callable[[Interpreter, str], None]:
    """Return what shows a setting, sets it, or with ``off`` gives it its default again."""

    def act(interpreter: Interpreter, argument: str) -> None:
        if argument.lower() == "off":
            interpreter.execute(f"RESET {name}")
        elif argument:
            parts = argument.replace(",", " ").split()
            value = ", ".join(parts) if len(parts) == 2 and ";" not in argument else argument
            interpreter.execute(f"SET {name} = '{value.replace(chr(39), chr(39) * 2)}'")
        ((value,),) = interpreter.execute(f"SHOW {name}").rows
        interpreter.screen.print(f"{name} is {value or 'off'}")

    return act


def describe(interpreter: Interpreter, argument: str) -> None:
    """List the tables, or the columns of one."""
    tables = interpreter.catalog.tables
    if not argument:
        rows = [(t.name, f"{len(t.columns)}", t.comment) for t in tables.values()]
        headers = (("table", False), ("columns", True), ("", False))
        interpreter.screen.print(Grid(headers, rows))
        return
    name = argument if argument in tables else argument.strip('"').lower()
    if name not in tables:
        raise ProgrammingError(f"there is no table {argument}", hint=nearest(argument, tables))
    interpreter.screen.print(columns(interpreter, tables[name]))


def columns(interpreter: Interpreter, table: Table) -> Grid:
    """Lay out the columns of a table, with their kinds and declared values."""
    lines = [
        (column.name, column.type, column.kind, _declared(interpreter, column))
        for column in table.columns
    ]
    headers = (("column", False), ("type", False), ("kind", False), ("values", False))
    return Grid(headers, lines)


def _declared(interpreter: Interpreter, column: Column) -> str:
    """Return the first declared values of a column, and how many there are."""
    values = interpreter.catalog.values(column)
    shown: list[str] = []
    for value in values:
        if shown and len(", ".join([*shown, value])) > VALUES:
            break
        shown.append(value if len(value) <= VALUES else f"{value[: VALUES - 1]}…")
    more = f", … ({len(values):,})" if len(shown) < len(values) else ""
    return ", ".join(shown) + more


def confirm(interpreter: Interpreter, argument: str) -> None:
    """Ask before a statement that costs, or do not."""
    interpreter.confirm = _switch(argument, interpreter.confirm)
    asks = "is shown, and asked for," if interpreter.confirm else "is not asked for"
    interpreter.screen.print(f"The price of a statement {asks} before it runs.")


def timing(interpreter: Interpreter, argument: str) -> None:
    """Say how long statements take, or do not."""
    interpreter.timing = _switch(argument, not interpreter.timing)
    interpreter.screen.print(
        f"The time of a statement is {'' if interpreter.timing else 'not '}shown."
    )


def expanded(interpreter: Interpreter, argument: str) -> None:
    """Show a row as lines, or where it does not fit the terminal."""
    screen = interpreter.screen
    screen.expanded = None if argument == "auto" else _switch(argument, not screen.expanded)
    how = {None: "where it is too wide", True: "always", False: "never"}[screen.expanded]
    screen.print(f"A row is shown as lines: {how}.")


def save(written: Callable[[Result], str]) -> Callable[[Interpreter, str], None]:
    """Return what writes the last result to a file, or to the screen."""

    def act(interpreter: Interpreter, argument: str) -> None:
        if interpreter.last is None:
            raise ProgrammingError("there is no result yet")
        text = written(interpreter.last)
        if not argument:
            interpreter.screen.data(text)
            return
        try:
            write(Path(argument).expanduser(), text.encode())
        except OSError as error:
            raise OperationalError(f"{argument} is not written: {error.strerror}") from None
        interpreter.screen.print(f"{len(interpreter.last.rows):,} rows are in {argument}.")

    return act


def include(interpreter: Interpreter, argument: str) -> None:
    """Run what is in a file."""
    path = Path(argument).expanduser()
    if not argument:
        raise ProgrammingError("\\i takes the name of a file")
    if str(path.absolute()) in interpreter.files:
        raise ProgrammingError(f"{argument} reads itself")
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except OSError as error:
        raise OperationalError(f"{argument} is not read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise OperationalError(f"{argument} is not UTF-8") from None
    interpreter.files.append(str(path.absolute()))
    try:
        interpreter.read(lines)
    finally:
        interpreter.files.pop()


def leave(interpreter: Interpreter, argument: str) -> None:
    """Leave."""
    raise Leave


def help(interpreter: Interpreter, argument: str) -> None:
    """List the commands."""
    lines = [(f"{name} {c.argument}".strip(), c.what) for name, c in COMMANDS.items()]
    interpreter.screen.print(Grid((("command", False), ("", False)), lines))


def _count(argument: str) -> int:
    if not argument.isdecimal() or not int(argument):
        raise ProgrammingError(f"how many lines? {argument} is no such number")
    return int(argument)


def _switch(argument: str, otherwise: bool) -> bool:
    if argument.lower() not in ("", "on", "off"):
        raise ProgrammingError(f"on or off, not {argument}")
    return argument.lower() == "on" if argument else otherwise


def _json(result: Result) -> str:
    return show.as_json_text(show.result_parts(result)) + "\n"


COMMANDS = {
    "\\explain": Command("SELECT …", "what it would cost; costs nothing", explain),
    "\\budget": Command("", "what is spent, and what is left", budget),
    "\\history": Command("[N]", "the latest statements that were paid for", history),
    "\\utility": Command(
        "[50 0.05 | off]",
        "how good counts must be: within 50, with 95% confidence",
        setting(UTILITY),
    ),
    "\\cost": Command("[0.05 | off]", "the most that one statement may cost", setting(MAX_COST)),
    "\\confirm": Command("[on | off]", "ask before what costs budget, with its price", confirm),
    "\\d": Command("[TABLE]", "tables, or the columns of one with their declared values", describe),
    "\\x": Command("[on | off | auto]", "a row as lines, one for each column", expanded),
    "\\timing": Command("[on | off]", "how long statements take", timing),
    "\\csv": Command("[FILE]", "write the last result, with the ends of its intervals", save(csv)),
    "\\json": Command("[FILE]", "the same, and all that is known of it", save(_json)),
    "\\i": Command("FILE", "run the statements and commands of a file", include),
    "\\?": Command("", "this list; \\help too", help),
    "\\q": Command("", "leave; Ctrl-D too", leave),
}
