"""What one user, and one session, may use at a time."""

from __future__ import annotations

from msgspec import Struct


class Limits(Struct, frozen=True):
    """What one user may use at a time."""

    connections: int = 20
    seconds: float = 60.0  # of a statement
    rows: int = 1_000_000  # of a result
    message: int = 16 << 20  # bytes
    temporary: int = 320  # MB of temporary files, of all connections
