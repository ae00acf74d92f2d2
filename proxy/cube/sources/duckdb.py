"""CSV, Parquet or DuckDB files as the relation RECORDS of a sandboxed DuckDB connection.

The connection may read the source's files and write its own folder, nothing else: no other file,
no network, no extension; its configuration is locked before any SQL of the policy runs.

How a CSV is read, so that nothing depends on its content: UTF-8; the first line is the header; the
delimiter is the one of , ; tab | that gives the header the most columns; quotes are ``"``, doubled
inside; every column is text, white space kept; an empty field is NULL, a quoted empty one is ''.  A
column without a name is column<i>, i = 0, 1, ..., and those of one name are <name>_1, <name>_2, ...

Invariant: no message has a value or an engine's text in it.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import hashlib
import hmac
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import duckdb
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from proxy.cube.file import damaged
from proxy.cube.sources.dialect import DUCKDB, text
from proxy.cube.sources.file_set import FileSet
from proxy.cube.sources.source import GROUPS, TAKEN, FailedError, Source, Taken
from proxy.errors import (
    Error,
    PolicyError,
    SourceError,
    UndefinedColumnError,
    UndefinedTableError,
)
from proxy.files import full
from proxy.policy import Policy
from proxy.sql.source_expressions import expression
from proxy.sql.source_expressions import identifier as name
from proxy.sql.source_queries import UNITS_ONLY, Table, promised, records, shortest

RECORDS = '"the records"'
FILE = "source"  # what a query calls the table of a CSV or Parquet file
DELIMITERS = ",;\t|"
NUMBER = re.compile(r"[-+]?\d+([.,]\d+)?")
Undefined = UndefinedTableError | UndefinedColumnError
DAMAGE = re.compile("CSV|unicode|UTF|zip|[Ff]ile|[Pp]arquet")  # not from error('...')
RELATIONS = """
    SELECT schema_name, table_name, sql, false FROM duckdb_tables() WHERE database_name = 'src'
    UNION ALL SELECT schema_name, view_name, sql, true FROM duckdb_views()
    WHERE database_name = 'src' AND NOT internal
"""
ELSEWHERE = "SQL of its own, being a view outside of the schema main, which is not read"
QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*\"""")


@contextlib.contextmanager
def connected(
    policy: Policy, folder: Path, files: FileSet | None = None, taken: Taken | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection with RECORDS in it, whose own database is folder/cells.duckdb.

    ``files`` are those of the source, where it is known which.

    Raises:
        SourceError: the source, or its table, is missing, unreadable or malformed.
        PolicyError: the policy's query is not row by row.
    """
    path = policy.source.path
    assert path is not None
    files = files or FileSet.at(path)
    kind = files.kind
    with (
        guarded(path, folder=folder),
        contextlib.closing(database(folder, taken)) as connection,
    ):
        try:
            connection.execute(f"SET TimeZone = {text(policy.timezone)}")
        except duckdb.Error:
            raise fault(policy, "timezone", "DuckDB does not know this time zone") from None
        watch(connection)
        if kind == "database":
            connection.execute(f"ATTACH {text(str(path))} AS src (READ_ONLY)")
        names = ", ".join(text(str(file)) for file in files.files)
        connection.execute(f"SET allowed_paths = [{names}]")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        if kind == "database":
            connection.execute("USE src")
            _no_shadows(connection)
        else:
            connection.execute(f"CREATE TEMP VIEW {FILE} AS SELECT * FROM {_reader(files)}")
        rows = _rows(policy, kind, connection)
        connection.execute(f"CREATE TEMP VIEW {RECORDS} AS ({rows}\n)")
        yield connection


def watch(connection: duckdb.DuckDBPyConnection) -> None:
    """Let a connection know how far its queries are, and print nothing.

    In a notebook DuckDB wants widgets for that, and where there are none, nobody knows.
    """
    with contextlib.suppress(duckdb.InvalidInputException):
        connection.execute("SET enable_progress_bar = true")
        connection.execute("SET enable_progress_bar_print = false")


def database(folder: Path, taken: Taken | None = None) -> duckdb.DuckDBPyConnection:
    """Return a new database of a folder's own, for the cube to be, which loads no extension."""
    config: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "temp_directory": str(folder / "spill"),
        "preserve_insertion_order": "false",
    }
    made = duckdb.connect(str(folder / "cells.duckdb"), config=config)
    (folder / "cells.duckdb").chmod(0o600)
    if taken:
        try:
            made.execute(f"ATTACH {text(str(taken.path))} AS {TAKEN} (READ_ONLY)")
        except duckdb.Error:
            made.close()
            raise damaged(taken.path) from None
    return made


def columns(connection: duckdb.DuckDBPyConnection, relation: str = RECORDS) -> dict[str, str]:
    """Return the columns of a relation with their types."""
    return {row[0]: row[1] for row in connection.execute(f"DESCRIBE {relation}").fetchall()}


@contextlib.contextmanager
def guarded(path: Path, key: str = "source", folder: Path | None = None) -> Iterator[None]:
    """Turn DuckDB's errors into ours, without their text, which may hold data.

    What it writes is in ``folder``, a temporary one in that which may be full.
    """
    try:
        yield
    except duckdb.OutOfMemoryException:
        raise SourceError("not enough memory, or disk for its overflow, to read it") from None
    except (duckdb.ConversionException, duckdb.OutOfRangeException):
        raise FailedError() from None
    except (duckdb.BinderException, duckdb.CatalogException):
        raise PolicyError(
            "the SQL does not fit the types of the source's columns",
            key=key,
            hint="columns of a CSV are text: write CAST(column AS INTEGER)",
        ) from None
    except duckdb.Error as error:
        if isinstance(error, duckdb.InvalidInputException) and not DAMAGE.search(str(error)):
            raise FailedError() from None
        text = str(error) if isinstance(error, duckdb.IOException | duckdb.FatalException) else ""
        if folder and (why := full(folder.parent, text)):
            raise why from None
        raise SourceError(
            f"{path} cannot be read to its end: it is damaged, or a line has not as many fields "
            "as the header, or it is not UTF-8, or another process has it open, or the disk is full"
        ) from None


class FileSource(Source):
    """A file, through a connection that has RECORDS in it."""

    dialect = DUCKDB
    records = RECORDS

    def __init__(self, connection: duckdb.DuckDBPyConnection, files: FileSet) -> None:
        self.local = connection
        self.columns: Mapping[str, str] = columns(connection)
        self._files = files
        self._seen = files.state()

    def expression(self, text: str) -> str:
        """Return SQL of the policy in DuckDB's."""
        return expression(text, self.columns)

    def kind(self, sql: str, key: str) -> str:
        """Return the type of an expression over records."""
        with guarded(self._files.path, key):
            return columns(self.local, f"SELECT ({sql}) AS e FROM {RECORDS}")["e"]

    def equal(self, key: str, kind: str, values: Sequence[str], name: str) -> tuple[str, str]:
        """Return a join with a table of the values, and with it the place of the equal one."""
        table = self._table(name, kind, values)
        return f"LEFT JOIN {table} ON {name}.v = {key}", f"{name}.code"

    def below(self, key: str, kind: str, values: Sequence[str], name: str) -> tuple[str, str]:
        """Return a join with a table of the values, and with it the number at or below one."""
        table = self._table(name, kind, values)
        return f"ASOF LEFT JOIN {table} ON {key} >= {name}.v", f"coalesce({name}.code + 1, 0)"

    def _table(self, name: str, kind: str, values: Sequence[str]) -> str:
        """Make a temporary table of values v and their places code: 0, 1, ..."""
        self.local.execute(
            f"CREATE TEMP TABLE {name} AS SELECT CAST(unnest(?::VARCHAR[]) AS {kind}) AS v,"
            f" CAST(unnest(range({len(values)})) AS INTEGER) AS code",
            [list(values)],
        )
        return f"temp.main.{name}"

    def group(self, sql: str, columns: Sequence[str]) -> None:
        """Make GROUPS of a query."""
        self.local.execute(f"CREATE TEMP TABLE {GROUPS.rpartition('.')[2]} AS {sql}")

    def progress(self) -> float:
        """Return how much is done of what runs."""
        return self.local.query_progress() / 100

    def interrupt(self) -> None:
        """Stop what runs."""
        self.local.interrupt()

    def fingerprint(self, key: bytes) -> str:
        """Return the HMAC of a file's bytes, or of a table's rows, whose order does not matter."""
        if self._files.kind != "database":
            return self._files.fingerprint(key)
        found = self.local.execute(
            "SELECT count(*), sum(md5_number_lower(r)), bit_xor(md5_number_upper(r))"
            f" FROM (SELECT CAST(t AS VARCHAR) AS r FROM {RECORDS} AS t)"
        ).fetchone()
        names = sorted(self.columns.items())
        return hmac.new(key, repr((names, found)).encode(), hashlib.sha256).hexdigest()

    def recipe(self) -> str:
        """Return the SHA-256 of the SQL of RECORDS, and of its types."""
        sql = self.local.execute(
            "SELECT sql FROM duckdb_views() WHERE NOT internal AND temporary"
            f" AND view_name = {text(RECORDS.strip(chr(34)))}"
        ).fetchone()
        found = sql, sorted(self.columns.items())
        return hashlib.sha256(repr(found).encode()).hexdigest()

    def headers(self) -> tuple[str, ...]:
        """Return what was made of the names in a CSV file's first line."""
        return headers(self._files)

    def tables_read(self, name: str) -> frozenset[str]:
        """Return what a table or view is made of; all there is, where a view is not understood."""
        relations = self.local.execute(RELATIONS).fetchall()
        views = {f"{schema}.{table}".lower(): sql for schema, table, sql, view in relations if view}
        found: set[str] = set()
        left = [name]
        while left:
            table = left.pop().lower()
            table = table if "." in table else f"main.{table}"
            if table in found:
                continue
            found.add(table)
            try:
                tree = sqlglot.parse_one(views.get(table, "SELECT 1"), dialect="duckdb")
            except SqlglotError:
                return frozenset(f"{schema}.{each}".lower() for schema, each, *_ in relations)
            read = tree.find_all(exp.Table)
            left += [".".join(part.name for part in each.parts[-2:]) for each in read]
        return frozenset(found)

    def require_unchanged(self) -> None:
        """Refuse a file that was written to since it was opened."""
        if FileSet.at(self._files.path).state() != self._seen:
            raise SourceError(
                "the source changed while it was read; nothing was changed", hint="do it again"
            )


def _reader(files: FileSet) -> str:
    """Return the table function that reads CSV or Parquet files.

    Raises:
        SourceError: the first lines of CSV files are not alike.
    """
    names = ", ".join(text(str(file)) for file in files.files)
    more = f"hive_partitioning = {files.partitioned}, hive_types_autocast = false"
    if files.kind == "parquet":
        return f"read_parquet([{names}], union_by_name = {len(files.files) > 1}, {more})"
    first = delimiter, _, header = _header(files.files[0], files.kind)
    for file in files.files[1:]:
        if _header(file, files.kind) != first:
            raise SourceError(
                f"the first lines of {files.files[0].name} and {file.name} are not alike",
                hint="CSV files of one source have the same columns, in the same order",
            )
    types = ", ".join(f"{text(column)}: 'VARCHAR'" for column in header)
    compression = "gzip" if files.kind == "csv.gz" else "none"
    return (
        f"read_csv([{names}], auto_detect = false, header = true, columns = {{{types}}},"
        f" delim = {text(delimiter)}, quote = '\"', escape = '\"', allow_quoted_nulls = false,"
        f" compression = '{compression}', {more})"
    )


def headers(files: FileSet) -> tuple[str, ...]:
    """Return what was made of the names in a CSV file's first line, where that needs a word."""
    if not files.kind.startswith("csv"):
        return ()
    said = []
    _, written, named = _header(files.files[0], files.kind)
    for i, (raw, column) in enumerate(zip(written, named, strict=True)):
        if not raw:
            said.append(f"column {i + 1} has no name: it is called {column}")
        elif raw != column:
            said.append(f"another column is called {raw}, too: number {i + 1} is called {column}")
        elif raw != raw.strip():
            said.append(f"the name of column {i + 1} has blanks around it: write column: '{raw}'")
    if all(NUMBER.fullmatch(raw) for raw in written):
        said.append("the first line has numbers only: it is read as the names of columns")
    return tuple(said)


def _header(path: Path, kind: str) -> tuple[str, list[str], list[str]]:
    """Return the delimiter of a CSV file, its columns as written, and as they are called."""
    try:
        opener = gzip.open if kind == "csv.gz" else open
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            start = file.read(2**16)
        first = [next(csv.reader(io.StringIO(start, newline=""), delimiter=d)) for d in DELIMITERS]
    except StopIteration:
        raise SourceError(f"{path} is empty; the first line names the columns") from None
    except (OSError, EOFError):
        raise SourceError(f"{path} is damaged") from None
    except (UnicodeDecodeError, csv.Error):
        raise SourceError(f"{path} is not a CSV file in UTF-8") from None
    best = max(range(len(first)), key=lambda i: (len(first[i]), -i))
    if any("\n" in column or "\r" in column for column in first[best]):
        raise SourceError(f"{path} has a line break in the name of a column")  # DuckDB loses lines
    named = [column or f"column{i}" for i, column in enumerate(first[best])]
    times = Counter(column.lower() for column in named)
    seen: Counter[str] = Counter()
    for i, column in enumerate(named):
        seen[column.lower()] += 1
        if times[column.lower()] > 1:
            named[i] = f"{column}_{seen[column.lower()]}"
    if len({column.lower() for column in named}) < len(named):
        raise SourceError(f"{path} has twice a column of one name, also once they are numbered")
    return DELIMITERS[best], first[best], named


def _no_shadows(connection: duckdb.DuckDBPyConnection) -> None:
    """Refuse a database whose macros hide built-in functions, which our own SQL uses."""
    hidden = connection.execute(
        "SELECT count(*) FROM duckdb_functions() AS mine JOIN duckdb_functions() AS built"
        " USING (function_name) WHERE NOT mine.internal AND built.internal"
    ).fetchone()
    if hidden != (0,):
        raise SourceError("the database has a macro that hides a function of DuckDB; rename it")


@contextlib.contextmanager
def translated(policy: Policy, key: str) -> Iterator[None]:
    """Turn what the policy's SQL is refused for into an error of the policy, with its line."""
    try:
        yield
    except Error as error:
        if isinstance(error, Undefined) and error.message.startswith("the source has no"):
            raise SourceError(f"{key}: {error.message}", hint=error.hint) from None
        raise fault(policy, key, error.message, error.hint) from None


def fault(policy: Policy, key: str, message: str, hint: str | None = None) -> PolicyError:
    """Return an error of the policy, with the line of its key."""
    own = next((k for k in (f"{key}.expression", f"{key}.column", key) if k in policy.lines), None)
    if own is None:
        return PolicyError(message, key=key, hint=hint)
    return PolicyError(message, file=str(policy.path), line=policy.lines[own], key=own, hint=hint)


def _rows(policy: Policy, kind: str, connection: duckdb.DuckDBPyConnection) -> str:
    """Return the SELECT of the records: the file, the table, or the query."""
    source, unit = policy.source, policy.privacy.unit.column
    key = "source" if source.query is None else "source.query"
    if kind == "database":
        tables = declared(policy, _tables(connection, views=unit is not None))
    else:
        tables = {FILE: Table(f"temp.main.{FILE}", columns(connection, FILE))}
    with translated(policy, key):
        made = records(tables, unit, query=source.query, table=source.table or FILE)
    for table in tables.values():
        if (table.sql in made.units or table.public) and (found := _strange(connection, table)):
            raise fault(
                policy, key, f"the table {shortest(tables, table.sql)} has {found}",
                "make a table of plain columns from it, and compute in the policy",
            )  # fmt: skip
    return made.sql


def declared(policy: Policy, tables: dict[str, Table]) -> dict[str, Table]:
    """Return the tables of a source, with what the policy promises of them.

    Raises:
        PolicyError: it cannot promise that.
    """
    source, unit = policy.source, policy.privacy.unit.column
    if unit is None:  # which ``load`` refuses
        return tables
    for key, names in (("public", source.public), ("trusted", source.trusted)):
        try:
            tables = promised(tables, key, names, unit)
        except Error as error:
            raise fault(policy, f"source.{key}", error.message, error.hint) from None
    return tables


def _tables(connection: duckdb.DuckDBPyConnection, views: bool) -> dict[str, Table]:
    """Return the source's tables by name: table (if in main) and schema.table."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    rows = connection.execute(
        "SELECT schema_name, table_name, column_name, data_type FROM duckdb_columns()"
        " WHERE database_name = 'src' ORDER BY schema_name, table_name, column_index"
    ).fetchall()
    for schema, table, column, kind in rows:
        found.setdefault((schema, table), {})[column] = kind
    tables = {}
    for schema, table, made, view in connection.execute(RELATIONS).fetchall():
        sql = f"src.{name(schema)}.{name(table)}"
        why_not = None
        if view and not (views and schema == "main"):
            why_not = ELSEWHERE if views else UNITS_ONLY
        tables[schema, table] = Table(sql, found[schema, table], made if view else None, why_not)
    main = {table: made for (schema, table), made in tables.items() if schema == "main"}
    return main | {f"{s}.{t}": made for (s, t), made in tables.items()}


def _strange(connection: duckdb.DuckDBPyConnection, table: Table) -> str | None:
    """Return what makes a table's values or their equality other than they seem.

    A view that is not looked through may have it from any table.
    """
    for schema, known, sql, _ in connection.execute(RELATIONS).fetchall():
        bare = QUOTED.sub("", sql).upper()
        own = table.sql == f"src.{name(schema)}.{name(known)}"
        if own and table.view is None and "GENERATED ALWAYS" in bare:
            return "generated columns, which may be random or read the clock"
        if (own or table.view is not None) and re.search(r"\bCOLLATE\b", bare):
            return "a collation, under which different texts are equal"
    return None
