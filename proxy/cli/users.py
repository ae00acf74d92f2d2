"""``privacy-proxy users``: who may use a dataset, what they spent, and taking somebody out.

Taking out removes one entry of the users file, with its comments; all else stays as it was written.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from proxy.cli.options import about_policy
from proxy.cli.passwd import composed, replace_file, under
from proxy.errors import ProgrammingError
from proxy.files import require_own

if TYPE_CHECKING:
    import yaml

    from proxy.steward import Person


@click.command()
@about_policy
@click.option("--remove", metavar="NAME", help="Take this user out of users.yaml.")
def users(policy: str, state: str | None, as_json: bool, remove: str | None) -> None:
    """List the users of POLICY, what each has spent, and since when.

    Who was removed stays in the list, for what they spent stays spent: the ledger remembers it, and
    what they could do, so that nobody who comes back under the name has more.
    """
    from proxy.policy import load
    from proxy.steward import people

    if remove is not None:
        found = load(policy)
        path = found.path.with_name("users.yaml")
        take_out(path, remove)
        click.echo(f"{remove} was taken out of {path}")
        if remove in found.analysts:
            click.echo(
                f"{remove} is also among the analysts of {policy}: take that out too", err=True
            )
        return
    show(people(policy, state), as_json)


def show(listed: list[Person], as_json: bool) -> None:
    """Print users, a line each."""
    from proxy.cli import show as shown

    if as_json:
        shown.print_json(listed)
        return
    headers = [("user", False), ("roles", False), ("groups", False), ("history", False)]
    headers += [("spent", True), ("since (UTC)", False)]
    lines = [
        [
            each.name,
            ", ".join(each.roles) if each.listed else "removed",
            ", ".join(each.groups),
            each.history,
            shown.amount(each.spent),
            f"{each.since:%Y-%m-%d %H:%M:%S}" if each.since else "",
        ]
        for each in listed
    ]
    shown.listing(headers, lines, wide=False)


def take_out(path: Path, user: str) -> None:
    """Take a user out of a users file.

    Raises:
        ProgrammingError: nobody of the name is in it.
        PolicyError: the file would be wrong without the user, or was.
        StateError: it belongs to somebody else.
    """
    from proxy.policy import load_users

    path = path.resolve()
    if not path.exists():
        raise ProgrammingError(f"there is no {path}", hint="`privacy-proxy passwd` makes one")
    known = load_users(path).users
    if user not in known:
        raise ProgrammingError(f'there is no user "{user}" in {path}')
    if len(known) == 1:
        raise ProgrammingError(
            f"{user} is the only user of {path}",
            hint="without the file anybody may ask who can read the state: name another user first",
        )
    require_own(path)
    replace_file(path, without(path.read_bytes().decode(), user))


def without(text: str, user: str) -> str:
    """Return the text of a users file without one of its several users."""
    import yaml

    listed = under(composed(text), "users")
    assert isinstance(listed, yaml.MappingNode)
    entries: list[tuple[yaml.Node, yaml.Node]] = listed.value
    place = next(i for i, (key, _) in enumerate(entries) if key.value == user)
    key, value = entries[place]
    if listed.flow_style:
        first = place == 0
        start = key.start_mark.index if first else entries[place - 1][1].end_mark.index
        end = entries[1][0].start_mark.index if first else value.end_mark.index
        return text[:start] + text[end:]
    lines = text.splitlines(keepends=True)
    after = _last_line(value) + 1
    while after < len(lines) and _belongs(lines[after], key.start_mark.column):
        after += 1
    return "".join([*lines[: key.start_mark.line], *lines[after:]])


def _last_line(node: yaml.Node) -> int:
    """Return the line in which a node ends, without the comments that follow it."""
    import yaml

    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _last_line(last[1] if isinstance(last, tuple) else last)
    mark = node.end_mark
    return int(mark.line) - (1 if mark.column == 0 and mark.line > node.start_mark.line else 0)


def _belongs(line: str, column: int) -> bool:
    """Whether a line is a comment inside an entry whose key begins at a column."""
    bare = line.lstrip(" ")
    return bare.startswith("#") and len(line) - len(bare) > column
