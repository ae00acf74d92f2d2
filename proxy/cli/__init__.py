"""The command ``privacy-proxy``: the door for a terminal and for scripts.

Exit status: 0; 2 for a wrong call, policy or statement; 3 for a refusal, when nothing was spent;
130 for Ctrl-C.  Results go to standard output, everything else to standard error.

The engine and rich are imported where they are used, so that ``--help`` comes at once.
"""

from __future__ import annotations

import errno
import gc
import logging
import sys
from collections.abc import Sequence
from contextlib import closing
from importlib import import_module

import click

from proxy.cli.complaints import INTERRUPTED, WRONG, complain, status
from proxy.cli.options import (
    MAX_COST,
    SQL,
    USER,
    UTILITY,
    WIDE,
    about_policy,
    open_engine,
    open_session,
)
from proxy.errors import Error, OperationalError, PolicyError
from proxy.files import remedy

ALONE = ("console", "draft", "experiment", "passwd", "plan", "serve", "shell", "users")
STEWARD = ("init", "check", "apply", "rebuild", "audit", "guards", "ledger", "schema")
# commands, and the modules that have them, imported when they are called
LATER = {name: name for name in ALONE} | dict.fromkeys(STEWARD, "steward")


def main() -> None:
    """Run the command line of this process, and exit with its status."""
    logging.basicConfig(format="warning: %(message)s")
    ended = run(sys.argv[1:])
    gc.freeze()  # all goes with the process: nothing in it needs to be told from garbage
    sys.exit(ended)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status.

    What a person can do wrong never ends in a traceback.  A reader who has had enough, as in
    ``| head``, is click's to handle: it exits with 1, silently.
    """
    try:
        ended = commands.main(list(arguments) or ["--help"], "privacy-proxy", standalone_mode=False)
        return ended if isinstance(ended, int) else 0
    except click.ClickException as error:
        help_of = getattr(getattr(error, "ctx", None), "command_path", "privacy-proxy")
        complain(error.format_message(), hint=f"{help_of} --help")
        return WRONG
    except PolicyError as error:
        for each in (error, *error.others):
            complain(each.message, None, each.hint)
        return WRONG
    except Error as error:
        complain(error.message, error.detail, error.hint)
        return status(error)
    except OSError as error:
        said = f"{error.strerror}: {error.filename}" if error.filename else str(error)
        complain(said, hint=remedy(error))
        return WRONG
    except (click.Abort, KeyboardInterrupt):
        complain("interrupted; what was already answered stays charged, and is free to ask again")
        return INTERRUPTED


class Commands(click.Group):
    """The commands, most of them imported when they are called: mostly that is ``query``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all."""
        return sorted({*super().list_commands(ctx), *LATER})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return one by its name."""
        if cmd_name in LATER and cmd_name not in self.commands:
            module = import_module(f"proxy.cli.{LATER[cmd_name]}")
            self.add_command(getattr(module, cmd_name))
        return super().get_command(ctx, cmd_name)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sql-privacy-proxy", prog_name="privacy-proxy")
def commands() -> None:
    """Private answers to SQL: say how good each number must be, pay the least for it."""


@commands.command()
def demo() -> None:
    """See it work on the wages of 28,155 people; leaves nothing behind."""
    from proxy.cli.demo import play

    play()


@commands.command()
@about_policy
@SQL
@UTILITY
@MAX_COST
@USER
@click.option(
    "--csv", "as_csv", is_flag=True, help="Print CSV; the ends of intervals beside numbers."
)
def query(
    policy: str,
    sql: str,
    state: str | None,
    as_json: bool,
    as_csv: bool,
    utility: tuple[float, float] | str | None,
    max_cost: float | None,
    user: str | None,
) -> None:
    """Answer one SQL statement; SQL may be - for standard input."""
    from proxy.cli import show

    if as_json and as_csv:
        raise click.UsageError("--json or --csv, not both")
    with closing(open_engine(policy, state)) as engine:
        result = open_session(engine, user, utility, max_cost).execute(sql)
    try:
        if as_csv:
            show.csv(result)
        else:
            show.result(result, as_json)
        sys.stdout.flush()
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        raise OperationalError(
            f"the answer cannot be printed: {error.strerror}",
            hint="what it cost is charged, and it is kept: to ask the same again is free",
        ) from None


@commands.command()
@about_policy
@SQL
@UTILITY
@MAX_COST
@USER
def explain(
    policy: str,
    sql: str,
    state: str | None,
    as_json: bool,
    utility: tuple[float, float] | str | None,
    max_cost: float | None,
    user: str | None,
) -> None:
    """Say what a statement would cost; costs nothing."""
    from proxy.cli import show

    with closing(open_engine(policy, state)) as engine:
        session = open_session(engine, user, utility, max_cost)
        show.explained(session.explain(sql), as_json)


@commands.command()
@about_policy
@USER
def budget(policy: str, state: str | None, as_json: bool, user: str | None) -> None:
    """Show what is spent of the budget, and what is left."""
    from proxy.cli import show
    from proxy.engine import reports
    from proxy.steward import ChangedPolicyError, ledger_in_force

    try:
        with closing(open_engine(policy, state)) as engine:
            show.budget(engine.budget(user or ""), as_json)
    except ChangedPolicyError as error:
        with ledger_in_force(policy, state) as (ledger, found):
            show.budget(reports.in_force(ledger, found.domain, user), as_json)
        _still_in_force(error)


@commands.command()
@about_policy
@WIDE
@click.option("--user", metavar="NAME", help="Only the statements of this analyst.")
def history(policy: str, state: str | None, as_json: bool, wide: bool, user: str | None) -> None:
    """List the statements that were paid for."""
    from proxy.cli import show
    from proxy.engine import reports
    from proxy.steward import ChangedPolicyError, ledger_in_force

    try:
        with closing(open_engine(policy, state)) as engine:
            show.history(engine.history(user), as_json, wide)
    except ChangedPolicyError as error:
        with ledger_in_force(policy, state) as (ledger, _):
            show.history(reports.history(ledger.audit(), user), as_json, wide)
        _still_in_force(error)


def _still_in_force(error: Error) -> None:
    """Say that what was shown is not of the policy's file as it is now."""
    click.echo(f"notice: shown is the policy in force; {error.message}: {error.detail}", err=True)
    click.echo(f"hint: {error.hint}", err=True)
