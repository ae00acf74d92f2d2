"""``privacy-proxy passwd``: from a password to a verifier, and into the users file.

The file keeps everything else as it was written, comments too: only the verifier's own characters
are replaced, or one entry put before the others.  It is written beside and renamed, so that no
reader meets half of it.
"""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from proxy.errors import PolicyError, ProgrammingError, StateError
from proxy.files import replace, require_own

if TYPE_CHECKING:
    import yaml

    from proxy.policy import Users

ROLES = ("analyst", "steward", "auditor")


@click.command()
@click.argument("user", required=False)
@click.option("--users", "file", metavar="FILE", help="Write it into this users.yaml.")
@click.option(
    "--role",
    "roles",
    type=click.Choice(ROLES),
    multiple=True,
    help="Of a user who is new in FILE; may be given again.  [default: analyst]",
)
def passwd(user: str | None, file: str | None, roles: tuple[str, ...]) -> None:
    """Print the verifier of a password, for users.yaml.

    It is a SCRAM-SHA-256 verifier, as PostgreSQL has them.  The password is asked for twice;
    where standard input is no terminal, it is its first line.
    """
    if file and not user:
        raise click.UsageError("--users needs the name of the USER")
    if roles and not file:
        raise click.UsageError("--role goes with --users")
    from proxy.policy import scram_verifier

    password = _password(user)
    if not password:
        raise ProgrammingError("the password is empty")
    verifier = scram_verifier(password)
    if not file:
        click.echo(verifier)
        return
    new = write(Path(file), str(user), verifier, roles or ("analyst",))
    done = "is a new user of" if new else "has a new password in"
    click.echo(f"{user} {done} {file}")
    if roles and not new:
        click.echo(f"the roles of {user} were left as they are", err=True)


def _password(user: str | None) -> str:
    """Ask a person twice, a program not at all."""
    if not sys.stdin.isatty():
        raw = sys.stdin.buffer.readline()
        try:
            return raw.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise ProgrammingError("the password is not UTF-8") from None
    prompt = f"Password of {user}" if user else "Password"
    entered: str = click.prompt(prompt, hide_input=True, confirmation_prompt="Once more", err=True)
    return entered


def write(path: Path, user: str, verifier: str, roles: tuple[str, ...]) -> bool:
    """Put a verifier into a users file, which need not be there yet; return whether it is new.

    Raises:
        ProgrammingError: the file would be wrong, or was, or others would change with the user.
        StateError: it belongs to somebody else, or has no folder.
        OSError: it cannot be written.
    """
    from proxy.policy import Users, document, load_users

    path = path.resolve()  # a link stays one
    if not path.parent.is_dir():
        raise StateError(f"there is no folder {path.parent} for {path.name}", hint="make it first")
    require_own(path)
    old = document.text_of(path) if path.exists() else ""
    text, new = edited(path, old, user, verifier, roles)
    before = Users(path, {}) if new else None  # and if it had others, they were right
    with suppress(PolicyError):
        before = load_users(path, old)
    replace_file(path, before, text, user)
    return new


def replace_file(path: Path, before: Users | None, text: str, user: str) -> None:
    """Put a text in the place of a users file at once, once it is seen to be right.

    It may differ from what was ``before``, where that was right, in one user alone.

    Raises:
        ProgrammingError: it would be wrong, or differ in others; the file is as it was.
        OSError: it cannot be written; the file is as it was.
    """
    from proxy.policy import load_users

    try:
        now = load_users(path, text)
    except PolicyError as error:
        if before is None:
            raise
        if error.key is None:
            raise _unedited(path) from None
        message = error.message.removeprefix(f"{error.file}:{error.line}: ")  # it is not there yet
        raise ProgrammingError(message, hint=error.hint) from None
    if before is not None:
        names = {*before.users, *now.users}
        changed = {name for name in names if before.get(name) != now.get(name)}
        if changed != {user}:
            raise _unedited(path)
    replace(path, text.encode())


def edited(
    path: Path, text: str, user: str, verifier: str, roles: tuple[str, ...]
) -> tuple[str, bool]:
    """Return the text of a users file with a verifier in it, and whether its user is new.

    Raises:
        ProgrammingError: it cannot be edited, or is to have a new user and is wrong.
    """
    import yaml

    from proxy.policy import document, load_users

    root = document.compose(path, text)
    listed = entry(root, "users")
    if listed is None and (root is None or isinstance(root, yaml.MappingNode)):
        before = text if not text or text.endswith("\n") else text + "\n"
        return f"{before}users:\n  {_entry(user, verifier, roles, '  ')}", True
    if listed is not None and _empty(listed[1]):
        key, nobody = listed
        indent = " " * (key.start_mark.column + 2)
        new = _entry(user, verifier, roles, indent).rstrip("\n")
        after = text[nobody.end_mark.index :]
        return f"{text[: key.end_mark.index]}:\n{indent}{new}{after}", True
    known = entry(listed and listed[1], user)
    password = entry(known and known[1], "password")
    if known is not None and password is not None:
        for each, _ in (known, password):
            _require_own_value(path, text, each)
        start, end = password[1].start_mark.index, password[1].end_mark.index
        end = start + len(text[start:end].rstrip())  # that of a block is in another line
        return text[:start] + verifier + text[end:], False
    load_users(path, text)
    assert listed is not None
    assert isinstance(listed[1], yaml.MappingNode)
    first, flow = listed[1].value[0][0].start_mark, listed[1].flow_style
    indent = " " * first.column
    new = f"{_entry(user, verifier, roles, indent)}{indent}"
    if flow:
        new = f"{_key(user)}: {{password: {verifier}, roles: [{', '.join(roles)}]}}, "
    return text[: first.index] + new + text[first.index :], True


def entry(node: yaml.Node | None, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    """Return a key of a mapping, and what stands under it."""
    import yaml

    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next(((key, value) for key, value in pairs if key.value == name), None)


def marks(text: str) -> list[tuple[bool, str, int, int]]:
    """Return the anchors (True) and aliases of a text, each with name, index and line."""
    import yaml

    return [
        (
            isinstance(each, yaml.AnchorToken),
            each.value,
            each.start_mark.index,
            each.start_mark.line,
        )
        for each in yaml.scan(text, Loader=yaml.SafeLoader)
        if isinstance(each, yaml.AnchorToken | yaml.AliasToken)
    ]


def shared(path: Path, line: int, name: str) -> PolicyError:
    """Return the error for what is in one place of a file and means something in others too."""
    return PolicyError(
        f"by &{name} and *{name} this is shared, so that it cannot be changed for one user alone",
        file=str(path),
        line=line + 1,
        hint=f"write it out in the place of each *{name}, take &{name} away, and do it again",
    )


def _require_own_value(path: Path, text: str, key: yaml.Node) -> None:
    """Refuse to change what stands under a key, if it stands elsewhere too.

    Raises:
        PolicyError: it is an alias, or others are aliases of it.
    """
    found = marks(text)
    aliases = {name for anchor, name, _, _ in found if not anchor}
    after = key.end_mark.index
    for _, name, index, line in found:
        own = index >= after and re.fullmatch(r"\s*:\s*(!\S*\s+)?", text[after:index])
        if own and name in aliases:
            raise shared(path, line, name)


def _empty(node: yaml.Node) -> bool:
    """Whether a mapping has nothing in it, or is not even written."""
    return node.tag.endswith((":null", ":map")) and not (node.value and node.tag.endswith(":map"))


def _unedited(path: Path) -> ProgrammingError:
    return ProgrammingError(
        f"{path} is written in a way that cannot be edited here; it is as it was",
        hint="give each user lines of their own, `name:` and below it `password:` and `roles:`",
    )


def _entry(user: str, verifier: str, roles: tuple[str, ...], indent: str) -> str:
    """Return the lines of a new user."""
    return f"{_key(user)}:\n{indent}  password: {verifier}\n{indent}  roles: [{', '.join(roles)}]\n"


def _key(user: str) -> str:
    """Return a name as a key that YAML reads as text."""
    import yaml

    plain = re.fullmatch(r"[^\W\d][\w.-]*", user) and yaml.safe_load(user) == user
    return user if plain else "'" + user.replace("'", "''") + "'"
