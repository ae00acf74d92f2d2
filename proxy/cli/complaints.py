"""What the command says of errors, on standard error, and the status that it then ends with."""

from __future__ import annotations

import click

from proxy.cli.plain import printable
from proxy.errors import Error, InsufficientBudgetError

WRONG, REFUSED, INTERRUPTED = 2, 3, 130


def status(error: Error) -> int:
    """Return the exit status of a command that an error has ended."""
    return REFUSED if isinstance(error, InsufficientBudgetError) else WRONG


def complain(message: str, detail: str | None = None, hint: str | None = None) -> None:
    """Print an error in one line, and what to do about it in another."""
    more = f" ({detail.splitlines()[0]})" if detail else ""  # the rest points into the statement
    click.echo(f"error: {_one_line(message)}{printable(more, '')}", err=True)
    if hint:
        click.echo(f"hint: {_one_line(hint)}", err=True)


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()), "")
