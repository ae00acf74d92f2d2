"""``privacy-proxy passwd``: from a password to a verifier, and into the users file.

The file keeps everything else as it was written, comments too: only the verifier's own characters
are replaced, or one entry put before the others.  It is written beside and renamed, so that no
reader meets half of it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from proxy.errors import ProgrammingError
from proxy.files import replace, require_own

if TYPE_CHECKING:
    import yaml

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
        PolicyError: the file would be wrong, whether it was before or not.
        StateError: it belongs to somebody else.
    """
    path = path.resolve()  # a link stays one
    require_own(path)
    old = path.read_bytes().decode() if path.exists() else ""
    text, new = edited(old, user, verifier, roles)
    replace_file(path, text)
    return new


def replace_file(path: Path, text: str) -> None:
    """Put a text in the place of a users file at once, once it is seen to be right.

    Raises:
        PolicyError: it would be wrong; the file is as it was.
    """
    from proxy.policy import load_users

    replace(path, text.encode(), load_users)


def edited(text: str, user: str, verifier: str, roles: tuple[str, ...]) -> tuple[str, bool]:
    """Return the text of a users file with a verifier in it, and whether its user is new."""
    import yaml

    root = composed(text)
    listed = under(root, "users")
    if listed is None and (root is None or isinstance(root, yaml.MappingNode)):
        before = text if not text or text.endswith("\n") else text + "\n"
        return f"{before}users:\n  {_entry(user, verifier, roles, '  ')}", True
    if not isinstance(listed, yaml.MappingNode) or not listed.value:
        raise ProgrammingError("the users file has no mapping of users")
    known = under(listed, user)
    password = under(known, "password")
    if password is not None:
        start, end = password.start_mark.index, password.end_mark.index
        return text[:start] + verifier + text[end:], False
    if known is not None:
        raise ProgrammingError(f"the users file has no password of {user} to replace")
    first = listed.value[0][0].start_mark
    if listed.flow_style:
        entry = f"{_key(user)}: {{password: {verifier}, roles: [{', '.join(roles)}]}}, "
    else:
        indent = " " * first.column
        entry = f"{_entry(user, verifier, roles, indent)}{indent}"
    return text[: first.index] + entry + text[first.index :], True


def composed(text: str) -> yaml.Node | None:
    """Return the nodes of a users file."""
    import yaml

    try:
        root: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ProgrammingError(f"the users file is no YAML: {str(error).splitlines()[0]}") from None
    return root


def under(node: yaml.Node | None, name: str) -> yaml.Node | None:
    """Return what stands under a key of a mapping."""
    import yaml

    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next((value for key, value in pairs if key.value == name), None)


def _entry(user: str, verifier: str, roles: tuple[str, ...], indent: str) -> str:
    """Return the lines of a new user."""
    return f"{_key(user)}:\n{indent}  password: {verifier}\n{indent}  roles: [{', '.join(roles)}]\n"


def _key(user: str) -> str:
    """Return a name as a key that YAML reads as text."""
    import yaml

    plain = re.fullmatch(r"[^\W\d][\w.-]*", user) and yaml.safe_load(user) == user
    return user if plain else "'" + user.replace("'", "''") + "'"
