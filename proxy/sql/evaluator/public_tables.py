"""Public tables that the policy declares: small files, read once, outside of the sandbox.

Invariant: only the path that the policy names is read, and nothing of a statement reaches it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from proxy.errors import OperationalError
from proxy.lazy import duckdb

PublicTable = tuple[list[tuple[str, str, str]], list[list[Any]]]  # columns, and their values
MAX_ROWS = 1_000_000
KINDS = {
    "BIGINT": ("bigint", "BIGINT"),
    "INTEGER": ("integer", "INTEGER"),
    "DOUBLE": ("double precision", "DOUBLE"),
    "FLOAT": ("double precision", "DOUBLE"),
    "BOOLEAN": ("boolean", "BOOLEAN"),
    "DATE": ("date", "DATE"),
    "TIMESTAMP": ("timestamp", "TIMESTAMP"),
}


def load(name: str, path: Path) -> PublicTable:
    """Return the columns (name, type, DuckDB's type) and the values of a CSV or Parquet file.

    Raises:
        OperationalError: it cannot be read, or is too long.
    """
    reader = "read_parquet" if path.suffix == ".parquet" else "read_csv"
    connection = duckdb.connect(":memory:", config={"threads": 1})
    try:
        result = connection.execute(f"SELECT * FROM {reader}($1) LIMIT {MAX_ROWS + 1}", [str(path)])
        described = [(column[0], str(column[1])) for column in result.description or []]
        rows = result.fetchall()
    except duckdb.Error:
        raise OperationalError(
            f"the public table {name} cannot be read", hint=f"the policy says that it is {path}"
        ) from None
    finally:
        connection.close()
    if len(rows) > MAX_ROWS:
        raise OperationalError(f"the public table {name} has more than {MAX_ROWS:,} rows")
    columns = []
    for column, duckdb_type in described:
        if duckdb_type.startswith("DECIMAL"):
            columns.append((column, "numeric", duckdb_type))
        else:
            columns.append((column, *KINDS.get(duckdb_type, ("text", "VARCHAR"))))
    values = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in columns]
    for i, (_, kind, _) in enumerate(columns):
        if kind == "text":
            values[i] = [None if value is None else str(value) for value in values[i]]
    return columns, values
