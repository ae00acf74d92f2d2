"""Records of any database that SQLAlchemy knows, streamed here and grouped by DuckDB.

The columns that the policy names are read in one transaction, at one moment where the database has
such, into Parquet files of the build's own folder; the rest is what becomes of a file, so that the
same values make the same cube.  Each value must be one of its column's type: SQLite, which has a
type for each value, may hold others.  A password comes from the environment, never from the URL.
Invariant: no message has a value, nor a text of the database's, in it.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb
from msgspec import Struct

from proxy.cube.sources.dialect import text
from proxy.cube.sources.duckdb import (
    RECORDS,
    FileSource,
    columns,
    database,
    declared,
    fault,
    guarded,
    translated,
    watch,
)
from proxy.cube.sources.source import Taken
from proxy.cube.sources.streamed_values import Column, arrow_type, column_of, typed
from proxy.errors import Error, NotSupportedError, SourceError
from proxy.files import full
from proxy.policy import Policy
from proxy.sql.source_expressions import identifier
from proxy.sql.source_queries import Table, records

PASSWORD = "SOURCE_PASSWORD"
FILE = "sqlite:///"
BLOCK = 20_000  # rows
LEVELS = {  # of isolation, at which all is read at one moment
    **dict.fromkeys(("postgresql", "mysql", "mariadb"), "REPEATABLE READ"),
    **{"mssql": "SNAPSHOT", "cockroachdb": "SERIALIZABLE"},
}
FIRST = {  # what begins a transaction that writes nothing
    "sqlite": ("PRAGMA query_only = ON", "BEGIN"),
    **dict.fromkeys(("mysql", "mariadb"), ("SET SESSION TRANSACTION READ ONLY",)),
    "oracle": ("SET TRANSACTION READ ONLY",),
}
QUOTED = re.compile(r'(?="((?:[^"]|"")*)")')  # from any quote on: one may be within a text
WORDS = re.compile(r"[^\W\d][\w$]*")
RUNS = re.compile(r"(?:[\w$]|[^\x00-\x7f])+")  # as words with marks that are no letters are
NOT_READ = "CAST(error('a column that was not read is used') AS {})"


class _Found(Struct, frozen=True):
    """A table there, what it is called here, and the file that its records come to."""

    name: str
    schema: str | None
    columns: Mapping[str, Column]
    has: str | None
    here: str
    file: Path

    @property
    def kinds(self) -> dict[str, str]:
        """Its columns, with their types in DuckDB's words."""
        return {name: column.kind for name, column in self.columns.items()}


@contextlib.contextmanager
def reading(policy: Policy, folder: Path, taken: Taken | None = None) -> Iterator[StreamedSource]:
    """Open the source of a policy, in one transaction.

    Raises:
        SourceError: the database cannot be reached, or the table is missing.
        PolicyError: the policy's query is not row by row.
    """
    with (
        _connected(policy) as remote,
        _guarded(),
        guarded(folder, folder=folder),
        contextlib.closing(database(folder, taken)) as local,
    ):
        yield StreamedSource(policy, local, remote, folder)


@contextlib.contextmanager
def _connected(policy: Policy) -> Iterator[Any]:
    """Connect, and begin the transaction."""
    try:
        import pyarrow  # noqa: F401
        import sqlalchemy
        from sqlalchemy.exc import SQLAlchemyError
        from sqlalchemy.pool import NullPool
    except ImportError:
        raise SourceError(
            "a database is read by SQLAlchemy and pyarrow, which are not installed",
            hint="pip install 'sql-privacy-proxy[databases]'",
        ) from None
    dsn, more = policy.source.dsn or "", {}
    if dsn.startswith(FILE):  # which has no password, and is called as ``load`` says
        more["creator"] = _sqlite(policy.path.parent / dsn.removeprefix(FILE))
        dsn = "sqlite://"
    try:
        url = sqlalchemy.engine.make_url(dsn)
        if "creator" not in more and (password := os.environ.get(PASSWORD)):
            url = url.set(password=password)
        engine = sqlalchemy.create_engine(url, poolclass=NullPool, hide_parameters=True, **more)
        remote = engine.connect()
    except (ImportError, sqlalchemy.exc.NoSuchModuleError):
        raise SourceError(
            f"the driver of {dsn.partition(':')[0]} is not installed",
            hint="pip install it: SQLAlchemy's documentation says what it is called",
        ) from None
    except (SQLAlchemyError, RuntimeError, ValueError, TypeError, OSError):
        raise SourceError(
            "the database of the source cannot be reached, or refuses this user or password",
            hint=f"see source.url in the policy; a password comes from {PASSWORD}",
        ) from None
    try:
        with _guarded():
            dialect = remote.dialect.name
            options: dict[str, Any] = {"postgresql_readonly": True}
            if level := LEVELS.get(dialect):
                options["isolation_level"] = level
            remote = remote.execution_options(**options if dialect != "sqlite" else {})
            for statement in FIRST.get(dialect, ()):
                remote.exec_driver_sql(statement)
        yield remote
    finally:
        with contextlib.suppress(Exception):  # where it is gone there is nothing to close
            remote.invalidate()
            remote.close()


def _sqlite(path: Path) -> Callable[[], sqlite3.Connection]:
    """Return what opens a file of SQLite's, and makes none."""
    if not path.is_file():
        raise SourceError(f"{path} does not exist", hint="see source.url in the policy")
    where = f"file:{quote(str(path))}?mode=ro"
    return lambda: sqlite3.connect(where, uri=True, check_same_thread=False)


@contextlib.contextmanager
def _guarded() -> Iterator[None]:
    """Turn the database's errors into ours, without their text, which may hold data."""
    from sqlalchemy.exc import DataError, SQLAlchemyError

    try:
        yield
    except (Error, duckdb.Error):
        raise
    except DataError:
        raise SourceError(
            "a table there has a value that its driver cannot read, such as an infinite date",
            hint="correct it there, or have the database keep the column as text",
        ) from None
    except SQLAlchemyError:
        raise SourceError(
            "the database of the source ended the query, or may not be read: it cannot be read to "
            "its end",
            hint="nothing was changed; do it again when the database is well, by a user who may "
            "SELECT from its tables",
        ) from None


class StreamedSource(FileSource):
    """Tables of a database, whose records are streamed when they are grouped."""

    def __init__(
        self, policy: Policy, local: duckdb.DuckDBPyConnection, remote: Any, folder: Path
    ) -> None:
        self.local, self._remote, self._folder = local, remote, folder
        self._streaming = self._stopped = self._streamed = False
        source = policy.source
        mentioned = _mentioned(source.query or "")
        self._words = mentioned | {(policy.privacy.unit.column or "").lower()}
        found = _tables(remote, folder, mentioned | _names(policy))
        self._prepare(policy, found)
        names = {name: Table(f"temp.main.{t.here}", t.kinds, None, t.has) for name, t in found}
        with translated(policy, "source" if source.query is None else "source.query"):
            made = records(
                declared(policy, names), policy.privacy.unit.column,
                query=source.query, table=source.table or "",
            )  # fmt: skip
            self._read = {table.here: table for _, table in found if table.here in made.sql}
            self._require_read()
        local.execute(f"CREATE TEMP VIEW {RECORDS} AS ({made.sql}\n)")
        self.columns = columns(local)

    def _prepare(self, policy: Policy, found: Sequence[tuple[str, _Found]]) -> None:
        """Make the tables here, empty, and let DuckDB read nothing but their files."""
        try:
            self.local.execute(f"SET TimeZone = {text(policy.timezone)}")
        except duckdb.Error:
            raise fault(policy, "timezone", "DuckDB does not know this time zone") from None
        watch(self.local)
        files = ", ".join(sorted({text(str(table.file)) for _, table in found}))
        self.local.execute(f"SET allowed_paths = [{files}]")
        self.local.execute("SET enable_external_access = false")
        self.local.execute("SET lock_configuration = true")
        for here, table in {t.here: t for _, t in found if t.columns}.items():
            kinds = ", ".join(f"{identifier(c)} {kind}" for c, kind in table.kinds.items())
            self.local.execute(f"CREATE TEMP TABLE {here} ({kinds})")

    def expression(self, text: str) -> str:
        """Return SQL of the policy in DuckDB's, whose columns are to be read."""
        sql = super().expression(text)
        self._words |= _mentioned(text)
        self._require_read()
        return sql

    def _needed(self, table: _Found) -> list[str]:
        """Return the columns of a table that the policy may mean, all of which are read."""
        every = "natural" in self._words
        known = sorted(table.columns, key=lambda c: not table.columns[c].read)
        named = [c for c in table.columns if every or c.lower() in self._words]
        return named or known[:1]  # of which the number of rows is read

    def _require_read(self) -> None:
        """Refuse columns of types that are not read, where the policy may mean them."""
        for table in self._read.values():
            for name in self._needed(table):
                if not (column := table.columns[name]).read:
                    raise NotSupportedError(
                        f'the column "{name}" of the table {table.name} is of the type '
                        f"{column.said}, which is not read",
                        hint="leave it out, or have the database keep it as another type",
                    )

    def kind(self, sql: str, key: str) -> str:
        """Return the type of an expression over records."""
        with guarded(self._folder, key):
            return columns(self.local, f"SELECT ({sql}) AS e FROM {RECORDS}")["e"]

    def group(self, sql: str, columns: Sequence[str]) -> None:
        """Stream the records, and make GROUPS of a query over them."""
        self.stream()
        super().group(sql, columns)
        for table in self._read.values():
            table.file.unlink()

    def stream(self) -> None:
        """Put the records of all tables into files, and these in the place of the empty tables."""
        if self._streamed:
            return
        self._streaming = True
        try:
            with _guarded():
                for table in self._read.values():
                    self._copy(table, self._needed(table))
        finally:
            self._streaming = False
        for table in self._read.values():
            needed = self._needed(table)
            shown = ", ".join(
                f"{f'CAST({identifier(c)} AS {kind})' if c in needed else NOT_READ.format(kind)}"
                f" AS {identifier(c)}"
                for c, kind in table.kinds.items()
            )
            self.local.execute(f"DROP TABLE {table.here}")
            rows = f"read_parquet({text(str(table.file))})"
            self.local.execute(f"CREATE TEMP VIEW {table.here} AS SELECT {shown} FROM {rows}")
        self._streamed = True

    def _copy(self, table: _Found, needed: Sequence[str]) -> None:
        """Write the needed columns of a table's records to its file."""
        import pyarrow
        import sqlalchemy
        from pyarrow.parquet import ParquetWriter

        quoted = sqlalchemy.sql.quoted_name
        of = sqlalchemy.table(
            quoted(table.name, True),
            *(sqlalchemy.column(quoted(name, True)) for name in needed),
            schema=quoted(table.schema, True) if table.schema else None,
        )
        own = {name: table.columns[name] for name in needed}
        schema = pyarrow.schema([(name, arrow_type(column.kind)) for name, column in own.items()])
        options = {"stream_results": True, "yield_per": BLOCK, "max_row_buffer": BLOCK}
        rows = self._remote.execution_options(**options).execute(sqlalchemy.select(*of.c))
        try:
            with ParquetWriter(table.file, schema, compression="zstd") as file:
                for block in rows.partitions(BLOCK):
                    if self._stopped:
                        raise SourceError("the build was stopped")
                    made = [
                        typed(table.name, name, column, values, schema.field(name).type)
                        for (name, column), values in zip(
                            own.items(), zip(*block, strict=True), strict=True
                        )
                    ]
                    file.write_table(pyarrow.table(made, schema=schema))
        except OSError as error:
            raise full(self._folder.parent, str(error)) or error from None
        finally:
            with contextlib.suppress(Exception):  # where it is gone there is nothing to close
                rows.close()

    def progress(self) -> float | None:  # type: ignore[override]
        """Return how much is done of what runs; None while records are streamed."""
        return None if self._streaming else super().progress()

    def interrupt(self) -> None:
        """Stop what runs: by a driver that can be asked to from another thread, or at a block."""
        self._stopped = True
        with contextlib.suppress(Exception):
            driver = self._remote.connection.driver_connection
            stop = getattr(driver, "interrupt", None) or getattr(driver, "cancel", None)
            if stop is not None:
                stop()
        super().interrupt()

    def fingerprint(self, key: bytes) -> None:  # type: ignore[override]
        """Return None: rows that live on have the fingerprint of their groups."""

    def headers(self) -> tuple[str, ...]:
        """Return nothing: names are what they are there."""
        return ()

    def require_unchanged(self) -> None:
        """Do nothing: all was read at one moment."""


def _names(policy: Policy) -> set[str]:
    """Return the names, in lower case, of tables of the policy, and the parts of them."""
    source = policy.source
    names = [source.table or "", *source.public, *source.trusted]
    return {part.lower() for name in names for part in (name, *name.split("."))}


def _mentioned(sql: str) -> set[str]:
    """Return all names, in lower case, that SQL may mean, and more."""
    quoted = {name.replace('""', '"') for name in QUOTED.findall(sql)}
    bare = {*WORDS.findall(sql), *RUNS.findall(sql)}
    return {word.lower() for word in quoted | bare}


def _tables(remote: Any, folder: Path, words: set[str]) -> list[tuple[str, _Found]]:
    """Return the tables of which the policy may speak, by name, with a schema and without."""
    import sqlalchemy

    there = sqlalchemy.inspect(remote)
    home = there.default_schema_name
    made: list[tuple[str, _Found]] = []
    schemas = [s for s in there.get_schema_names() if s.lower() in words and s != home]
    for schema in (None, *schemas):
        views = set(there.get_view_names(schema=schema))
        for name in sorted(views.union(there.get_table_names(schema=schema))):
            if name.lower() not in words or "." in name:
                continue
            found = there.get_columns(name, schema=schema)
            own = {c["name"]: column_of(remote.dialect.name, c["type"]) for c in found}
            has = None
            if len(own) > len({each.lower() for each in own}):
                has, own = "columns whose names differ in case alone", {}
            elif name in views:
                has = "SQL of its own, being a view, which is not read here"
            elif any((c.get("computed") or {}).get("persisted") is False for c in found):
                has = "columns that are computed when they are read"
            file = folder / f"rows{len(made)}.parquet"
            here = f"{schema or home}.{name}"
            if here.lower() in {each.lower() for each, _ in made}:  # which ``records`` refuses
                here = f"{here} {len(made)}"
            table = _Found(name, schema, own, has, identifier(here), file)
            made += [(f"{schema or home}.{name}", table)]
            made += [(name, table)] if schema is None else []
    return made
