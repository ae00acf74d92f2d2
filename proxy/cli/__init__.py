"""The command ``privacy-proxy``: the door for a terminal and for scripts.

Exit status: 0; 2 for a wrong call, policy or statement; 3 for a refusal, when nothing was spent;
130 for Ctrl-C.  Results go to standard output, everything else to standard error.

The engine and rich are imported where they are used, so that ``--help`` comes at once.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import click

from proxy.cli.experiment import experiment
from proxy.cli.serve import serve
from proxy.errors import Error, InsufficientBudgetError

if TYPE_CHECKING:
    from proxy.engine import Engine

WRONG, REFUSED, INTERRUPTED = 2, 3, 130


def main() -> None:
    """Run the command line of this process, and exit with its status."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status.

    What a person can do wrong never ends in a traceback.  A reader who has had enough, as in
    ``| head``, is click's to handle: it exits with 1, silently.
    """
    try:
        commands.main(list(arguments) or ["--help"], "privacy-proxy", standalone_mode=False)
        return 0
    except click.ClickException as error:
        help_of = getattr(getattr(error, "ctx", None), "command_path", "privacy-proxy")
        _complain(error.format_message(), hint=f"{help_of} --help")
        return WRONG
    except Error as error:
        _complain(error.message, error.detail, error.hint)
        return REFUSED if isinstance(error, InsufficientBudgetError) else WRONG
    except OSError as error:
        _complain(f"{error.strerror}: {error.filename}" if error.filename else str(error))
        return WRONG
    except (click.Abort, KeyboardInterrupt):
        _complain("interrupted; what was already answered stays charged, and is free to ask again")
        return INTERRUPTED


def _complain(message: str, detail: str | None = None, hint: str | None = None) -> None:
    """Print an error in one line, and what to do about it in another."""
    more = f" ({detail.splitlines()[0]})" if detail else ""  # the rest points into the statement
    click.echo(f"error: {' '.join(message.split())}{more}", err=True)
    if hint:
        click.echo(f"hint: {' '.join(hint.split())}", err=True)


def _utility(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[float, float] | None:
    """Read ``HALF_WIDTH, DELTA``; the engine says whether the two make sense."""
    if value is None:
        return None
    try:
        half_width, delta = map(float, value.strip("() ").split(","))
        if not math.isfinite(half_width + delta):
            raise ValueError
    except ValueError:
        raise click.BadParameter(f"{value!r} is not two numbers such as '50, 0.05'") from None
    return half_width, delta


def _statement(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Return the text of a statement; ``-`` stands for standard input."""
    raw = sys.stdin.buffer.read() if value == "-" else os.fsencode(value)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise click.BadParameter("the statement is not UTF-8") from None


Command = Callable[..., None]


def _policy(command: Command) -> Command:
    """Add what every command about a policy takes: POLICY, --state and --json."""
    for parameter in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs."),
        click.option(
            "--state",
            metavar="DIR",
            help="The folder of ledger and cube.  [default: .privacy-proxy beside the policy]",
        ),
        click.argument("policy"),
    ):
        command = parameter(command)
    return command


def _open(policy: str, state: str | None) -> Engine:
    from proxy.engine import Engine

    return Engine.open(policy, state)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sql-privacy-proxy", prog_name="privacy-proxy")
def commands() -> None:
    """Private answers to SQL: say how good each number must be, pay the least for it."""


@commands.command()
def demo() -> None:
    """See it work on the wages of 28,155 people; leaves nothing behind."""
    from proxy.cli.demo import play

    play()


@commands.command()
@_policy
def init(policy: str, state: str | None, as_json: bool) -> None:
    """Make the state of POLICY: the cube and an empty ledger."""
    from proxy.cli import show
    from proxy.steward import init as make

    with show.progress("building the cube") as progress:
        report = make(policy, state, progress)
    show.made(report, as_json)


@commands.command()
@_policy
@click.argument("sql", callback=_statement)
@click.option(
    "--utility",
    callback=_utility,
    metavar="'HALF_WIDTH, DELTA'",
    help="How good each number must be, where the statement does not say: '50, 0.05' is "
    "within 50, with 95% confidence.",
)
@click.option("--user", metavar="NAME", help="The analyst of the policy who asks.")
def query(
    policy: str,
    sql: str,
    state: str | None,
    as_json: bool,
    utility: tuple[float, float] | None,
    user: str | None,
) -> None:
    """Answer one SQL statement; SQL may be - for standard input."""
    from proxy.cli import show

    with closing(_open(policy, state)) as engine:
        show.result(engine.session(user=user, utility=utility).execute(sql), as_json)


@commands.command()
@_policy
def check(policy: str, state: str | None, as_json: bool) -> None:
    """Check POLICY against the data; for stewards, not private."""
    from proxy.cli import show
    from proxy.steward import check as check_policy

    show.check(check_policy(policy, state), as_json)


@commands.command()
@_policy
def budget(policy: str, state: str | None, as_json: bool) -> None:
    """Show what has been spent of the privacy budget, and what is left."""
    from proxy.cli import show

    with closing(_open(policy, state)) as engine:
        show.budget(engine.budget(), as_json)


@commands.command()
@_policy
@click.option("--user", metavar="NAME", help="Only the statements of this analyst.")
def history(policy: str, state: str | None, as_json: bool, user: str | None) -> None:
    """List the statements that were paid for, oldest first."""
    from proxy.cli import show

    with closing(_open(policy, state)) as engine:
        show.history(engine.history(user), as_json)


commands.add_command(experiment)
commands.add_command(serve)
