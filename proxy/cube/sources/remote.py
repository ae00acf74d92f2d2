"""A source in a database server: only groups cross the wire, to the proxy's own DuckDB."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import duckdb

from proxy.cube.sources.dialect import text
from proxy.cube.sources.duckdb import database, guarded
from proxy.cube.sources.source import GROUPS, Source
from proxy.files import full


@contextlib.contextmanager
def receiving(folder: Path) -> Iterator[tuple[duckdb.DuckDBPyConnection, Path]]:
    """Yield a DuckDB for groups, which reads one file and nothing else, and that file's path."""
    file = folder / "groups.csv"
    with guarded(file, folder=folder), contextlib.closing(database(folder)) as local:
        local.execute(f"SET allowed_paths = [{text(str(file))}]")
        local.execute("SET enable_external_access = false")
        local.execute("SET lock_configuration = true")
        yield local, file


class RemoteSource(Source):
    """What sources in servers have in common."""

    records: str
    columns: Mapping[str, str]

    def __init__(self, local: duckdb.DuckDBPyConnection, file: Path) -> None:
        self.local = local
        self._file = file  # where groups come to

    def receive(
        self, blocks: Iterable[bytes | bytearray | memoryview], columns: Sequence[str]
    ) -> None:
        """Make GROUPS of lines of CSV, by way of a file."""
        try:
            with self._file.open("xb") as file:
                for block in blocks:
                    file.write(block)
        except OSError as error:
            raise full(self._file.parent.parent, str(error)) or error from None
        kinds = ", ".join(f"'{c}': '{'HUGEINT' if c[0] == 's' else 'BIGINT'}'" for c in columns)
        self.local.execute(
            f"CREATE TEMP TABLE {GROUPS.rpartition('.')[2]} AS FROM read_csv("
            f"{text(str(self._file))}, auto_detect = false, header = false, delim = ',',"
            f" columns = {{{kinds}}})"
        )
        self._file.unlink()

    def progress(self) -> float:
        """Return how much is done of what runs; a server does not say."""
        return 0.0

    def fingerprint(self, key: bytes) -> None:
        """Return None: rows that live on have the fingerprint of their groups."""

    def recipe(self) -> str:
        """Return the SHA-256 of the records' SQL and types."""
        found = self.records, sorted(self.columns.items())
        return hashlib.sha256(repr(found).encode()).hexdigest()
