"""The cube file, a DuckDB database: what is in it, and how it comes to be whole or not at all.

``cells``: one row for each non-empty cell: a code for each attribute (c0, c1, ...), the number of
its records (n), and for measure k the exact sum of its quanta (s<k>) and, where the measure may be
NULL, the count of records in which it is not (p<k>).  It is a view of ``packed``, which has the
codes in words (``sources/packing.py``); in older files it is a table.  ``meta``: key and value,
whose cube it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from proxy.domain import Domain
from proxy.errors import Error, IntegrityError, OperationalError, StateError
from proxy.files import opening
from proxy.lazy import duckdb

FORMAT = "1"
AWAY = (
    "move it away: `privacy-proxy init` then builds it again, for nothing if the source is the same"
)
CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}


def digest(domain: Domain) -> str:
    """Return the SHA-256 of all that the codes and sums of a cube mean, in hex."""
    axes = [
        (a.name, a.type, _texts(a.values), _texts(a.edges or ()), a.nulls, a.outside, a.source)
        for a in domain.attributes
    ]
    sums = [
        (m.name, str(m.low), str(m.high), str(m.quantum), m.nulls, m.source)
        for m in domain.measures
    ]
    return hashlib.sha256(repr((axes, sums)).encode()).hexdigest()


@contextlib.contextmanager
def reading(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a read-only connection to a cube file.

    Raises:
        OperationalError: it cannot be read, or we may not.
        IntegrityError: it is no cube file, or damaged.
    """
    with opening(path), path.open("rb"):
        pass
    try:
        with contextlib.closing(duckdb.connect(str(path), True, CONFIG)) as connection:
            yield connection
    except (duckdb.OutOfMemoryException, MemoryError):
        raise OperationalError("there is not enough memory to read the cube") from None
    except duckdb.Error:
        raise damaged(path) from None


def meta(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Return whose cube it is: format, id, ledger, domain, max_records."""
    return dict(connection.execute("SELECT key, value FROM meta").fetchall())


def damaged(path: Path) -> IntegrityError:
    """Return the error of a file that is no whole cube."""
    return IntegrityError(
        f"the cube file {path} is damaged",
        hint=AWAY,
    )


def verify(path: Path, ledger_id: str, origin: str) -> None:
    """See that a cube file can be read to its end, and is that of a ledger and an origin.

    Raises:
        Error: it is not.
    """
    if not path.exists():
        raise StateError(f"the cube {path} is not there", hint="privacy-proxy init builds it")
    with reading(path) as connection:
        found = meta(connection)
        connection.execute("SELECT bit_xor(hash(cells)) FROM cells").fetchall()  # reads each block
    if found.get("ledger") != ledger_id:
        raise IntegrityError(f"the cube {path} belongs to another ledger", hint=AWAY)
    if found.get("origin", "") != origin:
        said = f"the cube {path} is of another source than its snapshot says"
        raise IntegrityError(said, hint=AWAY)


def records(path: Path) -> int | None:
    """Return how many records are in a cube file; None where it does not say."""
    with contextlib.suppress(FileNotFoundError, Error), reading(path) as connection:
        found = connection.execute("SELECT coalesce(sum(n), 0) FROM cells").fetchone()
        return int(found[0]) if found else None
    return None


def columns(
    connection: duckdb.DuckDBPyConnection, domain: Domain, max_records: int
) -> dict[str, NDArray[np.generic]]:
    """Return the cells by column: codes and counts as they fit, sums as int64."""
    counts = "UINTEGER" if max_records < 2**32 else "BIGINT"
    names = [f"c{i}" for i in range(len(domain.attributes))] + [f"CAST(n AS {counts}) AS n"]
    for k, measure in enumerate(domain.measures):
        names.append(f"CAST(s{k} AS BIGINT) AS s{k}")
        if measure.nullable:
            names.append(f"CAST(p{k} AS {counts}) AS p{k}")
    found = connection.execute(f"SELECT {', '.join(names)} FROM cells").fetchnumpy()
    return {name: np.ascontiguousarray(column) for name, column in found.items()}


def flush(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _texts(values: Sequence[object]) -> list[str]:
    return [str(value) for value in values]
