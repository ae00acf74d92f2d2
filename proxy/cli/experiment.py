"""``privacy-proxy experiment``: the paper's experimental study, run again on stand-in data.

It needs no policy and no ledger, and protects nothing: its noise is seeded.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from proxy.experiment.study import Outcome

QUERIES = {"blue": 5, "posterior": 3, "unbounded": 1000, "bounded": 1000, "ranges": 1000}


@click.command()
@click.argument("name", type=click.Choice(list(QUERIES)))
@click.option("--seed", "seeds", multiple=True, default=(0,), type=click.IntRange(0), metavar="N")
@click.option(
    "--queries",
    type=click.IntRange(1),
    metavar="N",
    help="How many queries are asked; of blue and posterior, how often each is timed.  "
    "[default: 1000; 5 and 3]",
)
@click.option(
    "--counts",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A histogram, one count a line, instead of stand-in data.  It is read as it is: nothing "
    "protects it here.",
)
@click.option(
    "--data",
    type=click.Choice(["trace", "searches"]),
    default="trace",
    show_default=True,
    help="Which stand-in: of a network trace, of search logs.  Ranges have one of their own.",
)
@click.option("--every", type=click.IntRange(1), metavar="N", help="Report after each N queries.")
@click.option(
    "--plot",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Draw the paper's figures of it, one PNG for each seed's.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def experiment(
    name: str,
    seeds: tuple[int, ...],
    queries: int | None,
    counts: Path | None,
    data: str,
    every: int | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Repeat an experiment of the paper: blue, posterior, unbounded or bounded; or ranges."""
    from proxy.cli import show
    from proxy.cli.plain import Grid

    if plot:
        need_matplotlib()
    queries = queries or QUERIES[name]
    curve = every or (max(queries // 10, 1) if plot else None)
    shown: list[dict[str, Any]] = []
    for seed in seeds:
        histogram = _counts(counts, "axis" if name == "ranges" else data, seed)
        with show.progress(f"{name}, seed {seed}") as progress:
            outcomes = list(_run(name, seed, queries, histogram, curve, progress))
        if plot:
            _draw(outcomes, plot / f"seed-{seed}" if len(seeds) > 1 else plot)
        wanted = [o for o in outcomes if every or o.setting or o.queries == queries]
        shown += [_plain(outcome) for outcome in wanted]
    if as_json:
        show.print_json(shown)
    else:
        headers = [(key, key not in ("experiment", "system", "against")) for key in shown[0]]
        lines = [[_text(line.get(key)) for key, _ in headers] for line in shown]
        show.console().print(Grid(headers, lines))


def _run(
    name: str, seed: int, queries: int, counts: NDArray[Any], every: int | None, progress: Any
) -> Iterator[Outcome]:
    from proxy.experiment import study, timings

    if name == "blue":
        return timings.blue(seed, queries, progress)
    if name == "posterior":
        return timings.posterior(seed, queries, progress)
    return study.study(name, counts, queries, seed, every, progress)


def _counts(path: Path | None, data: str, seed: int) -> NDArray[Any]:
    """Return the histogram of a file, or a stand-in."""
    import numpy as np

    from proxy.experiment.workload import STAND_INS

    if path is None:
        return STAND_INS[data](np.random.default_rng([seed, 0]))
    lines = path.read_text(encoding="utf-8").split()
    try:
        found = np.array([int(line) for line in lines], dtype=np.int64)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{path} has a line that is no whole number") from None
    if not len(found) or found.min() < 0 or found.sum() > 1_000_000:
        raise click.BadParameter(f"{path}: need counts from 0 on, of 1,000,000 records at most")
    return found


def _plain(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as one flat object."""
    names = "experiment seed system queries answer_ratio reliability error system_cost seconds"
    return {key: getattr(outcome, key) for key in names.split()} | outcome.setting


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)


def _draw(outcomes: list[Outcome], folder: Path) -> None:
    from proxy.experiment.figures import draw

    for path in draw(outcomes, folder):
        click.echo(f"drawn: {path}", err=True)


def need_matplotlib() -> None:
    """Refuse to draw without matplotlib, before what is drawn is worked out."""
    try:
        import matplotlib  # noqa: F401  # only whether it is there
    except ImportError:
        raise click.UsageError(
            "--plot needs matplotlib: pip install 'sql-privacy-proxy[plots]'"
        ) from None
