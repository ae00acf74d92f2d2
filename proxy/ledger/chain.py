"""The hashes of the ledger: of a row, of an audit line, of a free statement.

A line's hash covers the hash before it, all the line's fields, and through ``covers`` the hash of
every row that its transaction wrote; the first covers the identity of the ledger.  So nothing can
be changed, added, left out or moved without changing the last hash, which the anchor holds.  The
hashes have no key: who can write both ledger and anchor can forge both.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from proxy.errors import IntegrityError

Field = bytes | str | int | float | None

LOOK = "look at it: privacy-proxy audit POLICY --verify; a backup is put back by ledger restore"

_plain = json.JSONEncoder().encode


def row_hash(table: str, columns: str, fields: Sequence[Field]) -> bytes:
    """Return the hash of a row's fields, in the order of ``columns``; the id is its line's to hold.

    A field that is None counts as not there, so that a row written before its table got a further
    column keeps its hash.
    """
    parts = [table.encode()]
    for name, value in zip(columns.split(", "), fields, strict=False):
        if value is None:
            continue
        if isinstance(value, bytes):
            data = value
        elif isinstance(value, float):
            data = value.hex().encode()
        else:
            data = str(value).encode()
        parts += [b"%s:%d:" % (name.encode(), len(data)), data]
    return sha256(b"".join(parts)).digest()


class Line(Struct, frozen=True):
    """An audit line as it is stored: the JSON columns are text, and hashed as text."""

    sequence: int
    time: int  # microseconds since 1970, UTC
    kind: str
    user: str
    statement: str
    cost: int
    answers: int
    detail: str
    covers: str
    spent: str
    notes: str | None

    def hash(self, previous: bytes) -> bytes:
        """Return the hash of the line after another."""
        return sha256(previous + _plain(astuple(self)).encode()).digest()


# JSON as it is stored and hashed: in one form, and by encoders that are made once
text = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode


def parsed(value: str) -> dict[str, Any]:
    """Return a JSON object as it is stored.

    Raises:
        IntegrityError: it is none.
    """
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise IntegrityError("a record of the ledger is damaged", hint=LOOK)
    return found


def amounts(value: str) -> dict[str, int]:
    """Return charges by history as they are stored.

    Raises:
        IntegrityError: they are none.
    """
    found = parsed(value)
    if not all(type(amount) is int for amount in found.values()):
        raise IntegrityError("a record of the ledger is damaged", hint=LOOK)
    return found


def require_whole(table: str, columns: str, row: Sequence[Any]) -> None:
    """Compare a row, from its id to its hash, with what was written.

    Raises:
        IntegrityError: it was changed, or is damaged.
    """
    id, *fields, digest = row
    if row_hash(table, columns, fields) != digest:
        raise IntegrityError(f"row {id} of the ledger's {table} was changed", hint=LOOK)
