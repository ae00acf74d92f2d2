"""The command ``draft``: a policy to start from."""

from __future__ import annotations

from pathlib import Path

import click

from proxy.errors import StateError
from proxy.files import write


@click.command()
@click.argument("source")
@click.option("--unit", metavar="COLUMN", help="Who a row belongs to.  [default: a row is a unit]")
@click.option("--table", metavar="NAME", help="The table, in a database.")
@click.option("--output", metavar="FILE", help="The policy; - for standard output.  "
              "[default: the source's name with .yaml, here]")  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite the file.")
def draft(
    source: str, unit: str | None, table: str | None, output: str | None, force: bool
) -> None:
    """Write a policy to start from, for the data in SOURCE.

    SOURCE is a CSV or Parquet file, a DuckDB database, or how to connect to a PostgreSQL, such as
    "host=… dbname=…" or "service=…": of that a table is copied to a temporary folder, and gone
    afterwards.  What stays in the policy becomes public, and the draft has looked at the data: read
    each line, and decide.
    """
    from proxy.cli import show
    from proxy.cli.plain import WIDTH, Grid, rich
    from proxy.steward.draft import draft as drafted
    from proxy.steward.draft import scalar

    piped = output == "-"
    named = Path(table.rpartition(".")[2] if table else source).name.split(".")[0]
    place = Path(output or f"{named or 'policy'}.yaml")
    if not (piped or force):
        _require_new(place)
    made = drafted(source, "." if piped else place.parent, table=table, unit=unit)
    lines = [[scalar(column.header), column.choice] for column in made.columns]
    grid = Grid([("column", False), ("becomes", False)], lines)
    if piped:
        click.echo(made.text, nl=False)
        rich(WIDTH, stderr=True).print(grid)
        return
    if not force:
        _require_new(place)  # a large source takes long
    write(place, made.text.encode())
    out = show.console()
    out.print(grid)
    out.print(f"The draft is in {place}.  What stays in it becomes public: read it, and decide.")


def _require_new(place: Path) -> None:
    if place.exists():
        raise StateError(f"{place} is there already", hint="--force overwrites it, --output FILE")
