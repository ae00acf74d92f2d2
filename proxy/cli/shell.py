"""The command ``shell``: statements and backslash commands, typed or from a pipe.

Everything of the terminal is imported where it is used, so that other commands do not wait for it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from proxy.cli.options import MAX_COST, USER, UTILITY, staying
from proxy.errors import OperationalError, SQLSyntaxError

if TYPE_CHECKING:
    from proxy.dbapi import Connection

URLS = ("postgresql:", "postgres:")
NO_PASSWORD = "no password supplied"  # as libpq says it


@click.command()
@click.argument("place", metavar="POLICY|URL")
@click.option(
    "--state",
    metavar="DIR",
    help="The folder of ledger and cube.  [default: .privacy-proxy beside the policy]",
)
@UTILITY
@MAX_COST
@USER
@click.option(
    "-c",
    "--command",
    "texts",
    multiple=True,
    metavar="SQL",
    help="Run this, statements or a backslash command, and leave.  May be given several times.",
)
@click.option("--keep-going", is_flag=True, help="Go on after an error of a script.")
@click.option("--no-history-file", is_flag=True, help="Remember what was typed only until the end.")
def shell(
    place: str,
    state: str | None,
    utility: tuple[float, float] | str | None,
    max_cost: float | None,
    user: str | None,
    texts: tuple[str, ...],
    keep_going: bool,
    no_history_file: bool,
) -> int:
    r"""Ask in a terminal: a policy, or a running proxy by its postgresql://… URL.

    Statements end with a semicolon; what begins with a backslash is a command of the shell, and \?
    lists these.  Before a statement that costs budget the price is shown, and whether to pay asked.
    From a pipe, statements run as they come, without a question, until one fails.
    """
    if state is not None and place.startswith(URLS):
        raise click.UsageError("--state is of a policy: a running proxy has its own")
    typed = not texts and sys.stdin.isatty() and sys.stdout.isatty()
    if typed:
        _need_prompt_toolkit()
    connection = _connected(place, state, utility, max_cost, user)
    with connection:
        from proxy.cli.interactive.catalog import Catalog
        from proxy.cli.interactive.interpreter import Interpreter
        from proxy.cli.interactive.screen import Screen

        interpreter = Interpreter(connection, Catalog(connection), Screen(typed), keep_going)
        if typed:
            from proxy.cli.interactive.terminal import interact

            return interact(interpreter, remembered=not no_history_file)
        if texts:
            return interpreter.script(line for text in texts for line in (text, "\n;\n"))
        return interpreter.script(_lines())


def _lines() -> Iterator[str]:
    """Yield the lines of standard input."""
    for line in sys.stdin.buffer:
        try:
            yield line.decode()
        except UnicodeDecodeError:
            raise SQLSyntaxError("the statement is not UTF-8") from None


def _need_prompt_toolkit() -> None:
    """Refuse where what draws the prompt is not installed."""
    try:
        import prompt_toolkit  # noqa: F401
    except ModuleNotFoundError as missing:
        raise OperationalError(
            f"shell needs the package {missing.name}",
            hint="pip install 'sql-privacy-proxy[shell]'; without it, statements may come from a "
            "pipe or from -c",
        ) from None


def _connected(
    place: str,
    state: str | None,
    utility: tuple[float, float] | str | None,
    max_cost: float | None,
    user: str | None,
) -> Connection:
    """Connect; a password that is needed and not there is asked for, if a person looks."""
    from proxy.dbapi import connect

    if not place.startswith(URLS):
        with staying("proxy.engine.engine"):
            import proxy.engine.engine  # noqa: F401
        return connect(place, state=state, utility=utility, max_cost=max_cost, user=user)
    try:
        return connect(place, utility=utility, max_cost=max_cost, user=user)
    except OperationalError as error:
        if NO_PASSWORD not in error.message or not sys.stdin.isatty():
            raise
    from urllib.parse import quote

    password = click.prompt("password", hide_input=True, err=True)
    known = f"{place}{'&' if '?' in place else '?'}password={quote(password, safe='')}"
    return connect(known, utility=utility, max_cost=max_cost, user=user)
