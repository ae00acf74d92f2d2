"""The command ``console``: the web console for one's own machine."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from proxy.cli.options import STATE
from proxy.cli.serve import LOOPBACK, address, needing

if TYPE_CHECKING:
    from proxy.console.embedded import Embedded
    from proxy.console.service import Console


@click.command()
@click.argument("policies", nargs=-1, required=True, metavar="POLICY...")
@STATE
@click.option(
    "--listen",
    callback=address,
    metavar="HOST:PORT",
    default="127.0.0.1:8439",
    show_default=True,
    help="Where browsers find it.",
)
def console(policies: tuple[str, ...], state: str | None, listen: tuple[str, int]) -> None:
    """Open the datasets of POLICY in a web console for one's own machine.

    Whoever has the address that is printed may do all; for several people there is serve --console.
    """
    import asyncio

    with needing("the console", "console"):
        from proxy.console.embedded import Embedded
        from proxy.console.service import Console

    if listen[0] not in LOOPBACK:
        raise click.UsageError(
            "this console is for one's own machine: for others, serve --console has users"
        )
    served = Console(*listen, flag="--listen")
    served.bind()
    with contextlib.closing(Embedded(policies, Path(state) if state else None)) as backend:
        asyncio.run(_serve(served, backend))


async def _serve(served: Console, backend: Embedded) -> None:
    """Serve until a signal says to stop."""
    import asyncio
    import signal

    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await served.start(backend)
    try:
        click.echo(f"The console is at {served.url}login?token={backend.token}")
        click.echo("Whoever has this address may do all.  Ctrl-C stops it.", err=True)
        await stopped.wait()
    finally:
        await served.stop()
