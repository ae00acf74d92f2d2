"""``privacy-proxy plan``: what strategies would make of a workload, before anything is spent."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from proxy.cli.experiment import need_matplotlib
from proxy.cli.options import about_policy, open_engine
from proxy.errors import DataError, SQLSyntaxError

if TYPE_CHECKING:
    from proxy.engine import Engine
    from proxy.engine.choice import Comparison
    from proxy.inference.strategies.choosing import Choice
    from proxy.inference.strategies.simulated import Simulated

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
BASES = 12  # that are listed


@click.command()
@about_policy
@click.argument("workload", type=FILE, required=False)
@click.option(
    "--requests",
    type=FILE,
    metavar="FILE",
    help="Which statements of WORKLOAD are asked, and how good they must be: a CSV file of "
    "statement (1 is the first), half_width and delta, one line for each time.",
)
@click.option("--log", is_flag=True, help="Take the statements of the audit log.")
@click.option(
    "--user", metavar="NAME", default="", help="Who asks the WORKLOAD, within whose limits."
)
@click.option("--seconds", type=click.FloatRange(1), default=60.0, show_default=True)
@click.option(
    "--adopt", is_flag=True, help="Follow the best from now on, where the strategy is auto."
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Draw what each strategy would spend, as .svg or .png (the extra plots).",
)
def plan(
    policy: str,
    state: str | None,
    as_json: bool,
    workload: Path | None,
    requests: Path | None,
    log: bool,
    user: str,
    seconds: float,
    adopt: bool,
    plot: Path | None,
) -> None:
    """Simulate strategies for POLICY over a WORKLOAD: a file of SQL statements.

    Nothing is spent, no data is read: what a statement costs depends on statements alone.  It says
    how many would be answered within the budget, how many of them free, and what would be paid of
    the limit that binds the user most.  Windows of time are moved on by some days.  Without
    WORKLOAD it takes the policy's `workload`, and the audit log.
    """
    from proxy.cli import show
    from proxy.engine import choice as choices
    from proxy.steward import me

    if plot is not None:
        need_matplotlib()
    with _opened(policy, state, adopt or log) as engine:
        asked = list(_asked(engine, workload, requests, log, user))
        if not asked:
            raise click.UsageError("no statement to plan for: name a WORKLOAD, or say --log")
        with_times = requests is not None or (log and workload is None)
        found = choices.compare(engine, asked, seconds, with_times, user)
        if not found.requests:
            raise DataError("no statement could be planned", hint="; ".join(found.skipped[:1]))
        if adopt:
            if engine.policy.privacy.strategy != "auto":
                raise click.UsageError("--adopt is for policies whose privacy.strategy is auto")
            choices.adopt(engine, found, me())
        if as_json:
            show.print_json(_plain(found))
        else:
            _print(found, adopt)
        if plot is not None:
            from proxy.cli.plan_figure import draw

            draw(found.choice.simulated, found.budget, plot)
            click.echo(f"drawn: {plot}")


@contextmanager
def _opened(policy: str, state: str | None, required: bool) -> Iterator[Engine]:
    """Open the dataset; where it has no state yet, with an empty ledger that is thrown away."""
    import proxy.policy as policies
    from proxy.engine.engine import Engine
    from proxy.ledger.sqlite import SQLiteLedger
    from proxy.privileges import users_of
    from proxy.protection import protection
    from proxy.state import ledger_place, state_folder

    loaded = policies.load(policy)
    if required or ledger_place(loaded, state_folder(loaded, state)).exists():
        with closing(open_engine(policy, state)) as engine:
            yield engine
        return
    meant = protection(loaded, users=users_of(loaded))
    with TemporaryDirectory() as folder:
        ledger = SQLiteLedger.create(
            Path(folder) / "ledger",
            dataset=loaded.dataset,
            protection=meant.protection,
            digest=meant.digest,
            layout=loaded.domain.layout,
        )
        with closing(Engine(loaded, ledger, _no_cube)) as engine:
            yield engine


def _no_cube(snapshot: int) -> Any:
    raise AssertionError("a plan reads no data")


def _asked(
    engine: Engine, workload: Path | None, requests: Path | None, log: bool, user: str
) -> Iterator[tuple[str, str]]:
    """Yield who asks which statement, in their order."""
    from proxy.engine.choice import log as logged
    from proxy.engine.choice import statements

    path = workload or engine.policy.workload
    texts = statements(path) if path else []
    if requests is not None:
        yield from ((user, text) for text in _wanted(requests, texts))
    else:
        yield from ((user, text) for text in texts)
    if log or path is None:
        yield from logged(engine.ledger)


def _wanted(path: Path, texts: list[str]) -> Iterator[str]:
    """Yield the statements that a file of requests asks for, each as good as it says."""
    with path.open(encoding="utf-8", newline="") as file:
        try:
            lines = list(csv.reader(file))
        except (UnicodeDecodeError, csv.Error):
            raise DataError(f"{path} cannot be read as CSV") from None
        for number, line in enumerate(lines, 1):
            if not line or (number == 1 and not line[0].strip().isdigit()):
                continue
            where = f"{path}, line {number}"
            try:
                place, half, delta = int(line[0]), float(line[1]), float(line[2])
            except (ValueError, IndexError):
                raise DataError(
                    f"{where}: not a statement's number, a half_width and a delta"
                ) from None
            if not (0 < half < float("inf") and 0 < delta < 1):
                raise DataError(f"{where}: need a half_width above 0, and a delta between 0 and 1")
            if not 1 <= place <= len(texts):
                raise DataError(f"{where}: there are {len(texts)} statements, no number {place}")
            if "utility" in texts[place - 1].lower():
                raise SQLSyntaxError(
                    f"{where}: statement {place} has a utility of its own", hint="leave one out"
                )
            yield f"{texts[place - 1].rstrip()} WITH UTILITY ({half!r}, {delta!r})"


def _plain(found: Comparison) -> dict[str, Any]:
    """Return what programs read."""
    return {
        "requests": found.requests,
        "skipped": list(found.skipped),
        "budget": found.budget,
        "limit": found.limit,
        "strategies": [
            {
                "strategy": each.name,
                "asked": each.asked,
                "answered": each.answered,
                "free": each.free,
                "alpha": each.alpha,
            }
            for each in found.choice.simulated
        ],
        "recommended": found.adopted,
    }


def _print(found: Comparison, adopted: bool) -> None:
    """Print the strategies as a table, and the recommended part of a policy."""
    from proxy.cli import show
    from proxy.cli.plain import Grid

    headers = ("answered", "free", "spent", "per answer", "of the budget", "which lasts")
    lines = [_line(each, found.choice, found.budget) for each in found.choice.simulated]
    out = show.console()
    out.print(f"{show.amount(found.budget)} may be spent: {found.limit}")
    out.print(Grid([("strategy", False), *((name, True) for name in headers)], lines))
    asked = max(each.asked for each in found.choice.simulated)
    if asked < found.requests:
        out.print(
            f"the first {asked:,} of {found.requests:,} statements: there was no time for all"
        )
    elif asked > found.requests:
        out.print(f"{found.requests:,} statements, and {asked - found.requests:,} of later days")
    for why in found.skipped[:BASES]:
        out.print(f"skipped: {why}")
    best = found.adopted["strategy"]
    for base in found.adopted["bases"][:BASES]:
        axes, of = " × ".join(base["axes"]) or "total", ", ".join(base["of"])
        out.print(f"  {of} by {axes}, at {show.amount(base['alpha'])} a cell")
    if adopted:
        out.print(f"adopted: {best}")
        return
    out.print("recommended:")
    out.print("  privacy:")
    out.print(f"    strategy: {'auto' if found.adopted['bases'] else best}")
    if found.adopted["bases"]:
        out.print("then: privacy-proxy plan POLICY WORKLOAD.sql --adopt")


def _line(each: Simulated, choice: Choice, budget: float) -> list[str]:
    """Return one strategy as texts."""
    from proxy.cli import show

    share = f"{each.answered / max(each.asked, 1):.1%}"
    free = f"{each.free / max(each.asked, 1):.1%}"
    mean = each.alpha / max(each.answered, 1)
    return [
        each.name, share, free, show.amount(each.alpha), show.amount(mean),
        f"{each.alpha / budget if each.alpha else 0:.1%}", _lasts(each, choice, budget),
    ]  # fmt: skip


def _lasts(each: Simulated, choice: Choice, budget: float) -> str:
    """Return how long the budget lasts: of statements that move on in time, so many steps."""
    if choice.steps < 1:
        return f"{budget / each.alpha:,.1f} times" if each.alpha else "for good"
    growth = each.growth(choice.later, choice.steps)
    if growth <= 0:
        return "for good"
    return f"{choice.steps + max(budget - each.alpha, 0) / growth:,.0f} steps"
