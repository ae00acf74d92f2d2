"""A source in a database server: only groups cross the wire, to the proxy's own DuckDB."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import duckdb

from proxy.cube.sources.dialect import text
from proxy.cube.sources.duckdb import database, guarded
from proxy.cube.sources.source import GROUPS, Source, Taken
from proxy.files import full


@contextlib.contextmanager
def receiving(
    folder: Path, taken: Taken | None = None
) -> Iterator[tuple[duckdb.DuckDBPyConnection, Path]]:
    """Yield a DuckDB for groups, which reads one file and nothing else, and that file's path."""
    file = folder / "groups.csv"
    with guarded(file, folder=folder), contextlib.closing(database(folder, taken)) as local:
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
        self._grouping = False

    @abstractmethod
    def stream(self, sql: str) -> None:
        """Stream the rows of a query to the file, by ``receive``."""

    def receive(self, blocks: Iterable[bytes | bytearray | memoryview]) -> None:
        """Write lines of CSV to the file."""
        try:
            with self._file.open("xb") as file:
                for block in blocks:
                    file.write(block)
        except OSError as error:
            raise full(self._file.parent.parent, str(error)) or error from None

    def streamed(self, kinds: Mapping[str, str]) -> str:
        """Return the table function that reads the file."""
        columns = ", ".join(f"'{column}': '{kind}'" for column, kind in kinds.items())
        return (
            f"read_csv({text(str(self._file))}, auto_detect = false, header = false, delim = ',',"
            f" quote = '\"', escape = '\"', allow_quoted_nulls = false, columns = {{{columns}}})"
        )

    def group(self, sql: str, columns: Sequence[str]) -> None:
        """Stream the groups to the file, and make GROUPS of it."""
        self._grouping = True
        try:
            self.stream(sql)
        finally:
            self._grouping = False
        kinds = {c: "HUGEINT" if c[0] == "s" else "BIGINT" for c in columns}
        table = GROUPS.rpartition(".")[2]
        self.local.execute(f"CREATE TEMP TABLE {table} AS FROM {self.streamed(kinds)}")
        self._file.unlink()

    def progress(self) -> float | None:
        """Return how much is done of what runs; while a server groups, it does not say."""
        return None if self._grouping else 0.0
