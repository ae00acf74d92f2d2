"""Tables and lines where no terminal shows them: as rich prints them, without waiting for rich.

Whatever is not printable ASCII is rich's to print: it knows how wide it is.  What would steer a
terminal is never printed as it is: names and values may come from anybody.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import click
from msgspec import Struct

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDTH = 10_000  # places of what is piped
GAP = 2  # places between columns


def printable(text: str, kept: str = "\n") -> str:
    """Return a text with what would steer a terminal as escapes, as psql shows it."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text
    )


class Grid(Struct, frozen=True):
    """A table of texts; a header says whether its column is set to the right."""

    headers: Sequence[tuple[str, bool]]
    lines: Sequence[Sequence[str]]

    def __rich__(self) -> Table:
        """Return it as rich prints it."""
        from rich.table import Table

        grid = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
        for header, right in self.headers:
            grid.add_column(printable(header), justify="right" if right else "left")
        for line in self.lines:
            grid.add_row(*map(printable, line))
        return grid

    def plain(self) -> Iterator[str]:
        """Yield its lines, if every character is printable, and takes one place."""
        rows = [[header for header, _ in self.headers], *self.lines]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        widths[-1] = max(widths[-1], 1)
        for row in rows:
            yield (" " * GAP).join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, (_, right) in zip(row, widths, self.headers, strict=True)
            )


class Printer(Protocol):
    """What prints: ``Plain``, ``Terminal``, or the screen of the shell."""

    def print(self, what: Grid | str) -> None:
        """Print a table or a line."""


class Plain:
    """Prints to what is no terminal."""

    def print(self, what: Grid | str) -> None:
        """Print a table or a line."""
        lines = [printable(what)] if isinstance(what, str) else list(what.plain())
        if all(line.isascii() and line.isprintable() and len(line) < WIDTH for line in lines):
            click.echo("\n".join(lines))
        else:
            rich(WIDTH).print(printable(what) if isinstance(what, str) else what)


class Terminal:
    """Prints to a terminal."""

    def print(self, what: Grid | str) -> None:
        """Print a table or a line."""
        rich().print(printable(what) if isinstance(what, str) else what)


def rich(width: int | None = None, stderr: bool = False) -> Console:
    """Return a console of rich that prints texts as they are."""
    from rich.console import Console

    return Console(markup=False, highlight=False, emoji=False, width=width, stderr=stderr)
