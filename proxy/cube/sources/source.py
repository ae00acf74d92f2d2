"""A source: where records live, and where they are grouped.

Of a source only groups are read: how many records are of the same codes, and what their measures
sum to.  They become the table GROUPS of a DuckDB of the proxy's own, ``local``, whose database is
the cube to be.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import duckdb
from msgspec import Struct

from proxy.cube.sources.dialect import Dialect
from proxy.errors import PolicyError, SourceError
from proxy.policy import Policy

GROUPS = "temp.main.groups"
TAKEN = "taken"  # the database of another cube, whose closed cells are taken over


class FailedError(SourceError):
    """An expression of the policy fails on some record; of which attribute, nobody says."""

    def __init__(self, what: str = "an expression of the policy") -> None:
        super().__init__(
            f"{what} fails on some record",
            hint="use TRY_CAST for what may not convert; NULL then follows the nulls rule",
        )


class Source(ABC):
    """A source that is open."""

    dialect: Dialect
    local: duckdb.DuckDBPyConnection
    records: str  # what follows FROM
    columns: Mapping[str, str]  # of the records, with their types in DuckDB's words

    @abstractmethod
    def expression(self, text: str) -> str:
        """Return SQL of the policy in the source's own, checked.

        Raises:
            Error: it is not a value of one record.
        """

    @abstractmethod
    def kind(self, sql: str, key: str) -> str:
        """Return the type of an expression over records, in DuckDB's words.

        Raises:
            PolicyError: it does not fit its columns.
        """

    @abstractmethod
    def equal(self, key: str, kind: str, values: Sequence[str], name: str) -> tuple[str, str]:
        """Return a join, and with it the place of the value that is equal; NULL if none is.

        The values are written as text; ``name`` is free to be that of a relation.
        """

    @abstractmethod
    def below(self, key: str, kind: str, values: Sequence[str], name: str) -> tuple[str, str]:
        """Return a join, and with it the number of values at or below one; they ascend."""

    @abstractmethod
    def group(self, sql: str, columns: Sequence[str]) -> None:
        """Make GROUPS of a query whose columns are whole numbers: no one knows of which records.

        Raises:
            SourceError: the source cannot be read to its end.
        """

    @abstractmethod
    def progress(self) -> float | None:
        """Return how much is done of what runs: 0 to 1; None where nobody knows."""

    @abstractmethod
    def interrupt(self) -> None:
        """Stop what runs."""

    def fingerprint(self, key: bytes) -> str | None:
        """Return the HMAC-SHA-256 of the source, in hex; None where its groups say as much."""
        return None  # as those of rows that live on do

    def recipe(self) -> str:
        """Return the SHA-256 of how records are read, in hex: the SQL, views taken apart, types."""
        found = self.records, sorted(self.columns.items())
        return hashlib.sha256(repr(found).encode()).hexdigest()

    def headers(self) -> tuple[str, ...]:
        """Return what was made of the names of columns, where that needs a word."""
        return ()

    def tables_read(self, name: str) -> frozenset[str]:
        """Return what a table or view of the source reads its rows from, itself included."""
        return frozenset({name.lower()})  # where views are not read

    def require_unchanged(self) -> None:  # noqa: B027  # where all is read at one moment, it is
        """Refuse a source that changed while it was read.

        Raises:
            SourceError: it did.
        """


class Taken(Struct, frozen=True):
    """A cube whose cells before a day of a date column are taken over: they are not read."""

    path: Path
    column: str
    before: datetime.date


@contextlib.contextmanager
def opened(policy: Policy, folder: Path, taken: Taken | None = None) -> Iterator[Source]:
    """Open the source of a policy; ``folder`` is for what is made of it.

    Raises:
        SourceError: it, or its table, is missing, unreadable or malformed.
        PolicyError: the policy's query is not row by row.
    """
    try:
        with _opened(policy, folder, taken) as source:
            yield source
    except FailedError:
        raise FailedError(_expressions(policy)) from None


def _expressions(policy: Policy) -> str:
    """Return the expressions of a policy, and its query, with the lines that they are in."""
    found = [
        f"{key} (line {line})"
        for key, line in policy.lines.items()
        if re.fullmatch(r"(attributes|measures)\..+\.expression|source\.query", key)
    ]
    if not found:
        return "an expression of the policy"
    return f"{policy.path}: {'one of ' if len(found) > 1 else ''}{', '.join(found)}"


@contextlib.contextmanager
def _opened(policy: Policy, folder: Path, taken: Taken | None) -> Iterator[Source]:
    match policy.source.engine:
        case "duckdb":
            from proxy.cube.sources.duckdb import FileSource, connected
            from proxy.cube.sources.file_set import FileSet

            assert policy.source.path is not None
            files = FileSet.at(policy.source.path)
            with connected(policy, folder, files, taken) as connection:
                yield FileSource(connection, files)
        case "postgres":
            from proxy.cube.sources.postgres import reading

            with reading(policy, folder, taken) as source:
                yield source
        case "sqlalchemy":
            from proxy.cube.sources import mariadb, streamed

            own = re.match("(mysql|mariadb)[+]pymysql:", policy.source.dsn or "")
            with (mariadb if own else streamed).reading(policy, folder, taken) as source:
                yield source
        case "spark":
            from proxy.cube.sources import spark

            with spark.reading(policy, folder, taken) as source:
                yield source
        case engine:
            raise PolicyError(f"engine {engine} is not built in", key="source.engine")


def tables_read(policy: Policy, names: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return what some tables or views in the database of a policy's source are made of, by name.

    Raises:
        SourceError, PolicyError: as ``opened``.
    """
    with tempfile.TemporaryDirectory() as folder, opened(policy, Path(folder)) as source:
        return {name: source.tables_read(name) for name in names}
