"""Options that the environment may give too, and the table of flags and variables."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from typing import Any

import click

PREFIX = "PRIVACY_PROXY_"
POLICIES = "Policy files, or folders of them; in the variable with colons between."


def variable(name: str) -> str:
    """Return the variable of a flag or an argument."""
    return PREFIX + name.strip("-").upper().replace("-", "_")


def option(flag: str, **more: Any) -> Callable[..., Any]:
    """Return an option that a variable may give; help and errors name both."""
    return click.option(flag, envvar=variable(flag), show_envvar=True, **more)


def warn_of_unknown(command: click.Command) -> None:
    """Warn of variables that look as if they were a command's, and are not."""
    known = {str(parameter.envvar) for parameter in command.params if parameter.envvar}
    for name in sorted(os.environ):
        if name.startswith(PREFIX) and name not in known:
            near = difflib.get_close_matches(name, known, 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            click.echo(f"warning: the variable {name} means nothing here{meant}", err=True)


def settings(command: click.Command) -> list[tuple[str, str, str, str]]:
    """Return flag, variable, default and meaning of each parameter that a variable may give."""
    rows = []
    with click.Context(command) as context:
        for parameter in command.params:
            if parameter.envvar:
                is_option = isinstance(parameter, click.Option)
                flag = parameter.opts[0] if is_option else parameter.make_metavar(context)
                text = str(getattr(parameter, "help", None) or POLICIES)
                meaning, _, default = text.rstrip("]").partition("  [default: ")
                rows.append((flag, str(parameter.envvar), _default(parameter, default), meaning))
    return rows


def _default(parameter: click.Parameter, otherwise: str) -> str:
    value = parameter.to_info_dict()["default"]
    return otherwise if value in (None, False) else str(value)


def print_settings(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
    """Print the table, and end."""
    if not asked or context.resilient_parsing:
        return
    rows = [("flag", "variable", "default", "meaning"), *settings(context.command)]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        click.echo("  ".join((*cells, row[3])))
    context.exit()
