"""The state of a dataset: the folder that holds its ledger, its cube and its anchor.

It lies in ``.privacy-proxy/`` beside the policy, unless ``--state``, PRIVACY_PROXY_STATE or the
policy's ``state`` says otherwise; one folder for each dataset.  It is for its owner only, to
whom belongs what anybody makes there (``proxy.files``), and ignores itself in git.  Only ``init``
makes one: an empty ledger is a full budget.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import proxy.files as files
from proxy.errors import StateError
from proxy.ledger.place import FilePlace, Place
from proxy.policy import Policy

VARIABLE = "PRIVACY_PROXY_STATE"


def state_folder(policy: Policy, state: str | Path | None = None) -> Path:
    """Return the folder of a policy's dataset."""
    chosen = state or os.environ.get(VARIABLE) or policy.state
    base = Path(chosen).expanduser() if chosen else usual(policy)
    # the name of a dataset may have what the name of a folder may not
    name = re.sub(r"[/%]|^\.", lambda match: f"%{ord(match[0]):02X}", policy.dataset)
    return base / name


def usual(policy: Policy) -> Path:
    """Return the folder of the states of policies that say nothing of it."""
    return policy.path.parent / ".privacy-proxy"


def elsewhere(policy: Policy) -> list[Path]:
    """Return the folders in which a policy may have had its state, were it told or moved."""
    bases = [os.environ.get(VARIABLE), policy.state]
    return [*(Path(base).expanduser() for base in bases if base), usual(policy)]


def make_folder(folder: Path) -> None:
    """Make a state folder that only its owner, or the owner of the one around it, can look into."""
    try:
        files.make_folder(folder)
        folder.chmod(0o700)
        ignore = folder.parent / ".gitignore"
        if not ignore.exists() and folder.parent.name == ".privacy-proxy":
            folder.parent.chmod(0o700)
            files.replace(ignore, b"*\n", 0o644)
    except OSError as error:
        raise StateError(f"cannot make the state folder {folder}: {error.strerror}") from error


def ledger_path(folder: Path) -> Path:
    """Return where the ledger is, if it is a file."""
    return folder / "ledger.sqlite"


def ledger_place(policy: Policy, folder: Path) -> Place:
    """Return where the ledger of a policy is: in its state folder, if it names no other place.

    Raises:
        StateError: what talks to PostgreSQL is not installed.
    """
    where = policy.dataset, ledger_path(folder), anchor_path(folder)
    if policy.ledger is None:
        return FilePlace(*where)
    try:
        from proxy.ledger.postgres import PostgresPlace  # and psycopg, which files do not need
    except ImportError as error:
        raise StateError(
            f"the ledger of {policy.dataset} is in PostgreSQL, whose client library is not there",
            hint="pip install 'sql-privacy-proxy[server]'",
        ) from error
    return PostgresPlace(*where, policy.ledger)


def cube_path(folder: Path, snapshot: int = 1) -> Path:
    """Return where the cube of a snapshot is: exact counts, as secret as the data."""
    return folder / f"cube-{snapshot}.duckdb"


def anchor_path(folder: Path) -> Path:
    """Return where the anchor is, which tells an old copy of the ledger from the newest."""
    return folder / "anchor"


def key_path(folder: Path) -> Path:
    """Return where the key of the source's fingerprints is."""
    return folder / "source.key"


def near(policy: Policy) -> Path:
    """Return the policy's path as seen from the current folder, where it lies inside."""
    path, here = policy.path, Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def command(verb: str, policy: Policy, folder: Path | None = None, *flags: str) -> str:
    """Return the command that does something to a policy, and to its state in a folder."""
    known = folder is None or folder == state_folder(policy)
    where = [] if known or folder is None else ["--state", str(folder.parent)]
    return shlex.join(["privacy-proxy", *verb.split(), *flags, *where, str(near(policy))])
