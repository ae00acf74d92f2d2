"""What the shell prints: tables that fit the terminal, or a pager; plain ones in a pipe."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from itertools import pairwise

import click

from proxy.cli.complaints import complain
from proxy.cli.plain import Grid, Plain, printable
from proxy.errors import Error

TINTS = {  # of the sources of numbers, and of what is no value
    "measured": "yellow",
    "inferred": "green",
    "derived": "cyan",
    "approximate": "magenta",
    "unknown": "red",
}
GAP = "  "
BEFORE, BEHIND = 60, 60  # places of a statement that are shown around a fault
CLEAR = "RSX"  # colours, long lines cut, the screen kept: how less shows what does not fit


class Screen:
    """Prints tables and lines; a ``terminal`` gets colours, and ``flush`` then shows them."""

    def __init__(self, terminal: bool) -> None:
        self.terminal = terminal
        self.expanded: bool | None = None if terminal else False  # None: where it does not fit
        self._lines: list[str] = []
        self._colour = terminal and not os.environ.get("NO_COLOR")

    def print(self, what: Grid | str) -> None:
        """Print a table or a line."""
        if isinstance(what, Grid) and self.expanded:
            self._add(list(self._records(what)))
        elif not self.terminal:
            Plain().print(what)
        elif isinstance(what, str):
            self._add([printable(what)])
        else:
            self._add(self._table(what))

    def data(self, text: str) -> None:
        """Print lines for programs as they are, unless it is a person who looks."""
        if self.terminal:
            self._add(printable(text.removesuffix("\n")).split("\n"))
        else:
            click.echo(printable(text) if sys.stdout.isatty() else text, nl=False)

    def spark(self, parts: tuple[str, str, str]) -> None:
        """Print a line whose middle part stands out."""
        before, inside, behind = parts
        inside = click.style(inside, fg="yellow") if self._colour else inside
        self._add([before + inside + behind])

    def flush(self) -> None:
        """Show what was printed, in a pager if it is longer than the screen."""
        lines, self._lines = self._lines, []
        if not lines:
            return
        if self.terminal and len(lines) >= shutil.get_terminal_size().lines - 1:
            os.environ.setdefault("LESS", f"-{CLEAR}")
            click.echo_via_pager(f"{line}\n" for line in lines)
        else:
            click.echo("\n".join(lines))

    def error(self, error: Error, text: str = "") -> None:
        """Print an error on standard error, and below it the place of the text that is at fault."""
        sys.stdout.flush()
        fault = list(pointed(text, error.position)) if text and error.position else []
        detail = error.detail
        if fault and detail and detail.startswith("line "):
            detail = None  # which says the same
        complain(error.message, detail, None)
        for line in fault:
            click.echo(line, err=True)
        if error.hint:
            click.echo(f"hint: {printable(' '.join(error.hint.split()), '')}", err=True)

    def _add(self, lines: list[str]) -> None:
        if self.terminal:
            self._lines += lines
        else:
            click.echo("\n".join(lines))

    def _table(self, grid: Grid) -> list[str]:
        """Lay out a table; as records, if it is wider than the terminal and nobody objects."""
        from rich.cells import cell_len

        rows = [[printable(cell, "") for cell in line] for line in (_names(grid), *grid.lines)]
        widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
        wide = sum(widths) + len(GAP) * (len(widths) - 1)
        if self.expanded is None and grid.lines and wide > shutil.get_terminal_size().columns:
            return list(self._records(grid))
        lines = []
        for number, row in enumerate(rows):
            cells = []
            for cell, width, (_, right) in zip(row, widths, grid.headers, strict=True):
                space = " " * (width - cell_len(cell))
                shown = click.style(cell, bold=True) if number == 0 else self._tinted(cell)
                shown = shown if self._colour else cell
                cells.append(space + shown if right else shown + space)
            lines.append(GAP.join(cells).rstrip())
        return lines

    def _records(self, grid: Grid) -> Iterator[str]:
        """Yield a table with a line for each column of each row."""
        from rich.cells import cell_len

        names = [printable(name, "") for name in _names(grid)]
        starts = [i for i, name in enumerate(names) if not _told(names, i)]
        width = max((cell_len(names[i]) for i in starts), default=0)
        for number, line in enumerate(grid.lines, 1):
            yield f"-[ {number} ]-".ljust(width + 1, "-")
            for start, end in pairwise([*starts, len(names)]):
                cells = [printable(cell, "") for cell in line[start:end]]
                shown = [self._tinted(cell) if self._colour else cell for cell in cells if cell]
                space = " " * (width - cell_len(names[start]))
                yield f"{names[start]}{space} | {GAP.join(shown)}".rstrip()

    def _tinted(self, cell: str) -> str:
        if cell == "NULL":
            return click.style(cell, dim=True)
        return click.style(cell, fg=TINTS[cell]) if cell in TINTS else cell


def _names(grid: Grid) -> list[str]:
    return [name for name, _ in grid.headers]


def _told(names: list[str], i: int) -> bool:
    """Return whether a column is what is told of the number before it."""
    told = ["interval", "source", "cost"]
    return any(names[i - k : i - k + 3] == told for k in range(3) if i - k > 0)


def pointed(text: str, position: int) -> Iterator[str]:
    """Yield the line of a text in which a 1-based position is, and a caret below it."""
    from rich.cells import cell_len

    at = min(position - 1, len(text))
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    number = text.count("\n", 0, start) + 1
    head = f"line {number}: " if "\n" in text.strip() else "  "
    before = printable(text[max(start, at - BEFORE) : at].replace("\t", " "), "")
    behind = printable(text[at : min(end, at + BEHIND)].replace("\t", " "), "")
    yield f"{head}{before}{behind}"
    yield " " * (len(head) + cell_len(before)) + "^"
