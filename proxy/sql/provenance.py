"""Which number a cell of a result is exactly: its release, number and row in one BIGINT.

The number runs as a column of its own beside the cell's, through every rename, ORDER BY and LIMIT.
"""

from __future__ import annotations

NUMBER_BITS = 20  # of a number in its release
ROW_BITS = 32  # of a row of the release
DERIVED = 2**10  # stands for a release where what is derived is counted; there are fewer of them


def pack(release: int, number: int, relation: str) -> str:
    """Return the DuckDB text of the provenance of a number in the row ``i`` of a relation."""
    base = ((release << NUMBER_BITS) + number) << ROW_BITS
    return f"(CAST({base} AS BIGINT) + {relation}.i)"


def name(release: int, number: int, row: int) -> int:
    """Return the provenance of a number in a row."""
    return (((release << NUMBER_BITS) + number) << ROW_BITS) + row


def unpack(provenance: int) -> tuple[int, int, int]:
    """Return the release, the number and the row."""
    packed, row = divmod(provenance, 1 << ROW_BITS)
    return (*divmod(packed, 1 << NUMBER_BITS), row)
