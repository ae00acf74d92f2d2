"""Whether a ledger could be written now, without writing."""

from __future__ import annotations

import os
from pathlib import Path

from proxy.errors import Error, IntegrityError, OperationalError, StateError
from proxy.ledger.connections import Connections

WAIT = 1.0  # seconds for another process's transaction


def unwritable(path: Path, anchor: Path, ledger: str) -> str | None:
    """Return why nothing can be charged to a ledger, in words that name no file; None: it can.

    The write lock is taken on a connection of its own, and given back.
    """
    if not path.exists():
        return "it is not there"
    if not os.access(path.parent, os.W_OK | os.X_OK) or not os.access(path, os.W_OK):
        return "it cannot be written"
    if anchor.exists() and not os.access(anchor, os.R_OK | os.W_OK):
        return "its anchor cannot be written"
    connections = Connections(path, WAIT)
    try:
        with connections.transaction() as connection:
            found = connection.execute("SELECT id FROM ledger").fetchone()
    except IntegrityError:
        return "it is damaged"
    except (OperationalError, StateError) as error:
        return "it is locked" if "locked" in error.message else "it cannot be written"
    except Error:
        return "it cannot be opened"
    finally:
        connections.close()
    return None if found == (ledger,) else "it is another one"
