"""What the arguments and options of several commands have in common."""

from __future__ import annotations

import gc
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from proxy.errors import UtilityError

if TYPE_CHECKING:
    from proxy.engine import Engine
    from proxy.engine.session import Session

Command = Callable[..., None]

STATE = click.option(
    "--state",
    metavar="DIR",
    help="The folder of ledger and cube.  [default: .privacy-proxy beside the policy]",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
WIDE = click.option(
    "--wide",
    is_flag=True,
    help="Show texts whole.  [default: a line ends, with …, where the terminal does; a column of "
    "what is piped, after 80 places]",
)
POLICY = click.argument("policy")


def about_policy(command: Command) -> Command:
    """Add what every command about a policy takes: POLICY, --state and --json."""
    for parameter in (JSON, STATE, POLICY):
        command = parameter(command)
    return command


def utility(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[float, float] | str | None:
    """Read a pair, or the text of ``privacy.utility``; the engine says whether it makes sense."""
    if value is None:
        return None
    from proxy.settings import utility as read

    try:
        half_width, delta = map(float, value.strip("() ").split(","))
        if not math.isfinite(half_width + delta):
            raise ValueError
        return half_width, delta
    except ValueError:
        pass
    try:
        read(value)
    except UtilityError as error:
        raise click.BadParameter(f"{error.message} such as '50, 0.05'") from None
    return value


def statement(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Return the text of a statement; ``-`` stands for standard input."""
    raw = sys.stdin.buffer.read() if value == "-" else os.fsencode(value)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise click.BadParameter("the statement is not UTF-8") from None


SQL = click.argument("sql", callback=statement)
UTILITY = click.option(
    "--utility",
    callback=utility,
    metavar="'HALF_WIDTH, DELTA'",
    help="How good counts must be, where the statement does not say: '50, 0.05' is within 50, "
    "with 95% confidence.  '50, 0.05; wage 170000, 0.05' names sums too.",
)
MAX_COST = click.option(
    "--max-cost",
    type=click.FloatRange(min=0, min_open=True),
    metavar="ALPHA",
    help="The most that the statement may cost, over all its steps; what that affords is given.",
)
USER = click.option("--user", metavar="NAME", help="The analyst of the policy who asks.")


def open_engine(policy: str, state: str | None) -> Engine:
    """Open a dataset for one statement, importing what that needs."""
    with staying("proxy.engine.engine"):
        from proxy.engine import Engine
    return Engine.open(policy, state, eager=False)


@contextmanager
def staying(module: str) -> Iterator[None]:
    """Import a module without looking for garbage in what stays anyway, now or later.

    BLAS gets one thread, unless the environment says more: several wait longer than they work.
    """
    if module in sys.modules:
        yield
        return
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


def open_session(
    engine: Engine,
    user: str | None,
    utility: tuple[float, float] | str | None,
    max_cost: float | None,
) -> Session:
    """Return a session with what the options say."""
    more: dict[str, Any] = {} if max_cost is None else {"max_cost": max_cost}
    return engine.session(user=user, utility=utility, **more)
