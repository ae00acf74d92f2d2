"""``privacy-proxy users``: who may use a dataset, what they spent, and taking somebody out.

Taking out removes one entry of the users file, with its comments; all else stays as it was written.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from proxy.cli.options import about_policy
from proxy.cli.passwd import entry, marks, replace_file, shared
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
    from proxy.policy import document, load_users

    path = path.resolve()
    if not path.exists():
        hint = f"make it: privacy-proxy passwd NAME --users {path}"
        raise ProgrammingError(f"there is no {path}", hint=hint)
    known = load_users(path)
    if user not in known.users:
        raise ProgrammingError(f'there is no user "{user}" in {path}')
    if len(known.users) == 1:
        raise ProgrammingError(
            f"{user} is the only user of {path}",
            hint="without the file anybody may ask who can read the state: name another user first",
        )
    require_own(path)
    text = document.text_of(path)
    _require_no_alias(path, text, user)
    replace_file(path, known, without(text, user), user)


def _require_no_alias(path: Path, text: str, user: str) -> None:
    """Refuse to take out what others are aliases of.

    Raises:
        PolicyError: there is such.
    """
    import yaml

    listed = entry(yaml.compose(text, Loader=yaml.SafeLoader), "users")
    assert listed is not None
    starts = [key.start_mark.index for key, _ in listed[1].value] + [listed[1].end_mark.index]
    place = next(i for i, (key, _) in enumerate(listed[1].value) if key.value == user)
    found = marks(text)
    for anchor, name, index, line in found:
        if anchor and starts[place] <= index < starts[place + 1]:
            for other, same, where, _ in found:
                if not other and same == name and not starts[place] <= where < starts[place + 1]:
                    raise shared(path, line, name)


def without(text: str, user: str) -> str:
    """Return the text of a users file without one of its several users."""
    import yaml

    found = entry(yaml.compose(text, Loader=yaml.SafeLoader), "users")
    assert found is not None
    assert isinstance(found[1], yaml.MappingNode)
    listed = found[1]
    entries: list[tuple[yaml.Node, yaml.Node]] = listed.value
    place = next(i for i, (key, _) in enumerate(entries) if key.value == user)
    key, value = entries[place]
    if listed.flow_style:
        first = place == 0
        start = key.start_mark.index if first else _end(text, *entries[place - 1])
        end = entries[1][0].start_mark.index if first else _end(text, key, value)
        return text[:start] + text[end:]
    lines = text.splitlines(keepends=True)
    after = max(_last_line(value), key.end_mark.line) + 1
    while after < len(lines) and _belongs(lines[after], key.start_mark.column):
        after += 1
    return "".join([*lines[: key.start_mark.line], *lines[after:]])


def _end(text: str, key: yaml.Node, value: yaml.Node) -> int:
    """Return where an entry ends; what an alias stands for lies before its key."""
    if value.start_mark.index > key.end_mark.index:
        return int(value.end_mark.index)
    alias = re.compile(r"\s*:\s*\*[^\s,}]*").match(text, key.end_mark.index)
    return alias.end() if alias else int(key.end_mark.index)


def _last_line(node: yaml.Node) -> int:
    """Return the line in which a node ends, without the comments that follow it."""
    import yaml

    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        if isinstance(last, tuple):
            return max(_last_line(last[1]), int(last[0].end_mark.line))
        return _last_line(last)
    mark = node.end_mark
    return int(mark.line) - (1 if mark.column == 0 and mark.line > node.start_mark.line else 0)


def _belongs(line: str, column: int) -> bool:
    """Whether a line is a comment inside an entry whose key begins at a column."""
    bare = line.lstrip(" ")
    return bare.startswith("#") and len(line) - len(bare) > column
