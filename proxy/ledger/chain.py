"""The hashes of the ledger: of a row, of an audit line, of a free statement.

A line's hash covers the hash before it, all the line's fields, and through ``covers`` the hash of
every row that its transaction wrote; the first covers the identity of the ledger.  So nothing can
be changed, added, left out or moved without changing the last hash, which the anchor holds.  The
hashes have no key: who can write both ledger and anchor can forge both.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

Field = bytes | str | int | float | None

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


@dataclass(frozen=True)
class Line:
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
        fields = list(self.__dict__.values())
        return sha256(previous + _plain(fields).encode()).digest()


# JSON as it is stored and hashed: in one form, and by encoders that are made once
text = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode
