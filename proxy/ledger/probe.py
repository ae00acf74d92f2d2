"""Whether a ledger could be written now, without writing."""

from __future__ import annotations

import os
from pathlib import Path

from proxy.errors import Error, IntegrityError, OperationalError, StateError
from proxy.ledger.connections import Connections
from proxy.ledger.stored import Pool

HEAD = b"SQLite format 3\0"
WAIT = 1.0  # seconds for another process's transaction


def lost(path: Path) -> str:
    """Return why a ledger's file is not the one that is in use, in words that name no file."""
    try:
        with path.open("rb") as file:
            return "it is another one" if file.read(len(HEAD)) == HEAD else "it is damaged"
    except FileNotFoundError:
        return "it is not there"
    except OSError:
        return "it cannot be read"


def unwritable(path: Path, anchor: Path, ledger: str) -> str | None:
    """Return why nothing can be charged to a ledger, in words that name no file; None: it can.

    The write lock is taken on a connection of its own, and given back.
    """
    if not path.exists():
        return "it is not there"
    if not os.access(path.parent, os.W_OK | os.X_OK) or not os.access(path, os.W_OK):
        return "it cannot be written"
    return unanchored(anchor) or unlocked(Connections(path, WAIT), ledger)


def unanchored(anchor: Path) -> str | None:
    """Return why an anchor cannot follow; None: it can, or nobody knows."""
    if anchor.exists() and not os.access(anchor, os.R_OK | os.W_OK):
        return "its anchor cannot be written"
    return None


def unlocked(connections: Pool, ledger: str) -> str | None:
    """Return why the write lock of a ledger cannot be had; None: it can.

    The connections are closed.
    """
    try:
        with connections.transaction(lambda _: True) as connection:
            found = connection.execute("SELECT id FROM ledger").fetchall()
    except IntegrityError:
        return "it is damaged"
    except (OperationalError, StateError) as error:
        return "it is locked" if "locked" in error.message else "it cannot be written"
    except Error:
        return "it cannot be opened"
    finally:
        connections.close()
    return None if [tuple(row) for row in found] == [(ledger,)] else "it is another one"
