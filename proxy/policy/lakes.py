"""Tables of a data lake, Delta, Iceberg or Hudi: a log beside the files says which of them count.

DuckDB reads such logs by extensions that its package does not have, and nothing is downloaded.
Read as plain files, rows that were deleted or replaced would count.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

LOGS = {  # what is in the folder of a table
    "Delta": "_delta_log",
    "Iceberg": "metadata/*.metadata.json",
    "Hudi": ".hoodie",
}
HINT = (
    "export what the table has now, by a tool that reads it, to Parquet files outside of its "
    "folder: in Spark, df.write.parquet(…)"
)


def lake(paths: Iterable[Path]) -> tuple[str, Path] | None:
    """Return of which kind is the table that one of these paths is, or is in, and its folder."""
    folders = {each for path in paths for each in (path.absolute(), path.resolve())}
    for folder in sorted(folders | {above for each in folders for above in each.parents}):
        for kind, log in LOGS.items():
            try:
                found = next(folder.glob(log), None)
            except OSError:  # it may not be looked into
                continue
            if found is not None:
                return kind, folder
    return None


def in_lake(kind: str, folder: Path) -> str:
    """Return why files of such a table are not read."""
    return (
        f"{folder} is a table of {kind}, whose log says which of its files count, and that is not "
        "read here: rows that were deleted or replaced would count"
    )
