"""What the command line prints: tables for people, JSON for programs.

Every number is shown with its interval, its source and what it cost.  Intervals are rounded
outwards and confidence down, so that what is printed claims no more than what was computed.
"""

from __future__ import annotations

import datetime
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct
from msgspec.structs import asdict

from proxy.cli.plain import Grid, Plain, Printer, Terminal, printable, rich

COLUMN = 80  # places of a column of a list, where no terminal says otherwise
TIME = 19  # places of a time, which is not cut
CUT = "…"
GAP = "  "

if TYPE_CHECKING:
    from proxy.engine import Answer, BudgetReport, Result


def console() -> Printer:
    """Return what prints texts as they are, and cuts no table when it is piped."""
    return Terminal() if sys.stdout.isatty() else Plain()


@contextmanager
def progress(what: str) -> Iterator[Callable[[float | None], None]]:
    """Give a function of the share done that moves a bar on standard error, if a person looks.

    While nobody knows the share, since a database groups and does not tell, the bar says so.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    screen = Console(stderr=True)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task(what, total=None)  # which runs to and fro

        def show(done: float | None) -> None:
            if done is None:
                bar.update(task, description=f"{what}: the database groups the records")
            else:
                bar.update(task, total=1.0, completed=done, description=what)

        yield show


def plain(value: Any) -> Any:
    """Return ``value`` in the types of JSON; records become objects, other types texts."""
    if isinstance(value, Struct):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no NaN
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def print_json(value: Any) -> None:
    """Print one JSON value."""
    click.echo(as_json_text(value))


def as_json_text(value: Any) -> str:
    """Return one JSON value as text."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False)


def result_parts(result: Result) -> dict[str, Any]:
    """Return what programs read of a result."""
    names = ("columns", "rows", "answers", "cost", "left", "left_of", "notices")
    return {name: getattr(result, name) for name in names}


def result(result: Result, as_json: bool, out: Printer | None = None) -> None:
    """Print the result of a statement, what it cost, and what is left."""
    if as_json:
        print_json(result_parts(result))
        return
    out = out or console()
    out.print(answers(result) if result.columns else result.tag)
    for notice in result.notices:
        out.print(f"notice: {notice}")
    if not math.isnan(result.left):  # a running proxy tells it only with numbers
        out.print(f"cost {amount(result.cost)}, left {left(result)}")


def answers(result: Result) -> Grid:
    """Lay out one line for each row of the result, each number followed by how it is known."""
    numeric = {place for places in result.places for place in places}
    headers: list[tuple[str, bool]] = []
    for place, column in enumerate(result.columns):
        headers.append((column.name, column.type not in ("text", "boolean", "date", "timestamp")))
        if place in numeric:
            headers += [("interval", False), ("source", False), ("cost", True)]
    lines = []
    for row, told, places in zip(result.rows, result.answers, result.places, strict=True):
        known = dict(zip(places, told, strict=True))
        line: list[str] = []
        for place, value in enumerate(row):
            answer = known.get(place)
            if answer is None:
                line += [text(value)] + [""] * 3 * (place in numeric)
            else:
                cost = amount(answer.cost) if answer.cost else "free"
                ends = interval(answer) if answer.source != "unknown" else ""
                line += [number(value, decimals(answer)), ends, answer.source, cost]
        lines.append(line)
    return Grid(headers, lines)


def csv(result: Result) -> None:
    """Print rows as CSV; beside each number with an interval are its ends and its source."""
    from proxy.engine.answers import csv_lines

    for line in csv_lines(result):
        click.echo(line)
    click.echo(f"cost {amount(result.cost)}, left {left(result)}", err=True)
    for notice in result.notices:
        click.echo(f"notice: {notice}", err=True)


def explained(result: Result, as_json: bool, out: Printer | None = None) -> None:
    """Print what a statement would cost, number by number."""
    if as_json:
        names = ("columns", "rows", "left", "left_of", "notices")
        print_json({name: getattr(result, name) for name in names})
        return
    grouped = any(row[1] is not None for row in result.rows)
    headers = [("number", False), *[("group", False)] * grouped, ("source", False)]
    lines = []
    for number, group, source, cost, half_width, *_ in result.rows:
        within = "" if half_width is None else f"±{half_width:,.10g}"
        paid = amount(cost) if cost else "free"
        lines.append([number, *[group or ""] * grouped, source, paid, within])
    out = out or console()
    if lines:
        out.print(Grid([*headers, ("cost", True), ("within", True)], lines))
    for notice in result.notices:
        out.print(f"notice: {notice}")
    after = min((row[5] for row in result.rows), default=result.left)
    stepwise = any(row[2] == "measured" and row[4] is None for row in result.rows)
    end = "its first step" if stepwise else "the statement"
    out.print(f"left {left(result)}, after {end} {amount(after)}")


def budget(report: BudgetReport, as_json: bool) -> None:
    """Print every budget: what its dearest cell has spent, and has left."""
    if as_json:
        print_json(report)
        return
    out = console()
    out.print(budgets(report.rules))
    out.print(f"The history holds {report.numbers:,} measured numbers.")


def budgets(rules: Iterable[Any]) -> Grid:
    """Lay out one line for each budget: a RuleReport, or what has the same names."""
    headers = [("budget", False), ("alpha", True), ("spent", True), ("left", True)]
    lines = [
        [
            rule.name,
            amount(rule.budget),
            amount(rule.spent) if rule.exact else f"at most {amount(rule.spent)}",
            amount(rule.left),
        ]
        for rule in rules
    ]
    return Grid(headers, lines)


def history(lines: Sequence[Any], as_json: bool, wide: bool = False) -> None:
    """Print the statements that were paid for, each a HistoryLine or alike, one in a line."""
    if as_json:
        print_json(lines)
        return
    headers = [("time (UTC)", False), ("user", False), ("numbers", True), ("cost", True)]
    headers += [("statement", False)]
    cells = [
        [
            f"{line.time:%Y-%m-%d %H:%M:%S}",
            line.user,
            f"{line.numbers:,}",
            amount(line.cost),
            line.statement,
        ]
        for line in lines
    ]
    listing(headers, cells, wide)


def listing(
    headers: Sequence[tuple[str, bool]], lines: Sequence[Sequence[str]], wide: bool
) -> None:
    """Print a list whose texts may be of any length: a line each, cut with a mark unless wide.

    On a terminal the last column ends with it; elsewhere a column has ``COLUMN`` places.
    """
    from rich.cells import cell_len, set_cell_size

    rows = [[_one_line(cell) for cell in line] for line in lines]
    columns = range(len(headers))
    widths = [max((cell_len(row[i]) for row in rows), default=0) for i in columns]
    widths = [max(width, len(headers[i][0])) for i, width in enumerate(widths)]
    if not wide:
        widths = [min(width, COLUMN) for width in widths]
        if sys.stdout.isatty():
            screen = rich().width
            widths = [min(width, max(screen // 5, TIME)) for width in widths[:-1]]
            widths.append(max(screen - sum(widths) - len(GAP) * len(widths), len(CUT)))
    for row in ([name for name, _ in headers], *rows):
        cells = []
        for cell, width, (_, right) in zip(row, widths, headers, strict=True):
            shown = cell if cell_len(cell) <= width else set_cell_size(cell, width - 1) + CUT
            space = " " * (width - cell_len(shown))
            cells.append(space + shown if right else shown + space)
        click.echo(GAP.join(cells).rstrip())


def _one_line(text: str) -> str:
    """Return a text in one line, with what would steer a terminal as escapes, as psql does."""
    return printable(" ".join(text.split()), "")


def text(value: Any) -> str:
    """Return a value that is no number of the aggregation."""
    from proxy.sql.shown import shown

    return shown(value)


def number(value: float | Decimal | None, places: int) -> str:
    """Return a number as people read it, its digits in threes."""
    if value is None:
        return "NULL"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{places}f}"


def decimals(answer: Answer) -> int:
    """Return how many decimals are worth showing."""
    from proxy.engine.functions.digits import decimals as places

    return places(answer.high - answer.low)


def interval(answer: Answer) -> str:
    """Return an answer's interval, rounded outwards, and its confidence, rounded down."""
    from proxy.engine.functions.digits import interval as written

    return written(answer)


def left(result: Result) -> str:
    """Return what is left, and of what."""
    from proxy.engine.allowances import said

    return said(result.left, result.left_of)


def amount(alpha: float) -> str:
    """Return an amount of privacy budget, in four digits."""
    return f"{alpha:.4g}"
