"""Records that Spark reads, grouped where they are: on this host, a cluster, by Spark Connect.

The SQL of groups is one query, which Spark plans against one listing of the files; only groups come
to this process.  The session is a new one, whose settings are ours and none of the policy's.  A
Spark that is started here ends with the build, writes what does not fit in memory to a folder that
only its owner can read, and says nothing on the terminal.

Where to find Spark is ``master`` of the policy; everything else is Spark's own configuration
(SPARK_CONF_DIR), and a token of Spark Connect comes from SPARK_CONNECT_AUTHENTICATE_TOKEN.
Invariant: no message has a value in it, hence none of Spark's own words.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import logging
import re
import signal
import socket
import subprocess
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from proxy.cube.sources.dialect import text
from proxy.cube.sources.duckdb import database, fault, guarded, translated
from proxy.cube.sources.file_set import FileSet
from proxy.cube.sources.source import GROUPS, FailedError, Source, Taken
from proxy.cube.sources.spark_sql import SparkDialect, sent
from proxy.errors import Error, PolicyError, SourceError
from proxy.policy import Policy
from proxy.sql.source_expressions import expression, identifier
from proxy.sql.source_queries import Table, records

FILE = "source"  # what a query calls the table of Parquet files
REMOTE, PORT = "sc://", 15002
PATIENCE = 10.0  # seconds for a server to be there
KINDS = {
    **{"tinyint": "TINYINT", "smallint": "SMALLINT", "int": "INTEGER", "bigint": "BIGINT"},
    **{"float": "FLOAT", "double": "DOUBLE", "boolean": "BOOLEAN", "date": "DATE"},
    **{"timestamp": "TIMESTAMP WITH TIME ZONE", "timestamp_ntz": "TIMESTAMP"},
    **{"time": "TIME", "void": "INTEGER"},
    **dict.fromkeys(("string", "varchar", "char"), "VARCHAR"),
}
SETTINGS = {
    "spark.sql.ansi.enabled": "true",  # what fails is an error
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.ansi.enforceReservedKeywords": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.charAsVarchar": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.legacy.allowNegativeScaleOfDecimal": "false",
    "spark.sql.legacy.consecutiveStringLiterals.enabled": "false",
    "spark.sql.legacy.exponentLiteralAsDecimal.enabled": "false",
    "spark.sql.legacy.literal.pickMinimumPrecision": "true",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.mergeSchema": "true",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.timeType.enabled": "true",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.variable.substitute": "false",  # of ${...} in texts
}
STARTED = {  # of a Spark that is started here
    "spark.app.name": "privacy-proxy",
    "spark.driver.maxResultSize": "0",
    "spark.log.level": "OFF",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
LACKING = "the Spark source needs the extra spark: pip install 'sql-privacy-proxy[spark]'"
AGAIN = "nothing was changed; do it again when Spark is well"

_folders = contextlib.ExitStack()
atexit.register(_folders.close)


@contextlib.contextmanager
def reading(policy: Policy, folder: Path, taken: Taken | None = None) -> Iterator[SparkSource]:
    """Open the source of a policy, in a session of its own.

    Raises:
        SourceError: Spark cannot be started or reached, or the table is missing.
        PolicyError: the policy's query is not row by row.
    """
    with (
        guarded(folder, folder=folder),
        contextlib.closing(database(folder, taken)) as local,
        _session(policy) as session,
    ):
        local.execute("SET enable_external_access = false")
        local.execute("SET lock_configuration = true")
        with _guarded("source"):
            for name, value in SETTINGS.items():
                session.conf.set(name, value)
        try:
            session.conf.set("spark.sql.session.timeZone", policy.timezone)
        except Exception:
            raise fault(policy, "timezone", "Spark does not know this time zone") from None
        with _guarded("source"):
            source = SparkSource(policy, local, session)
        yield source


@contextlib.contextmanager
def _session(policy: Policy) -> Iterator[Any]:
    """Yield a new session, of a Spark that runs or of one that is started for it."""
    if any(importlib.util.find_spec(name) is None for name in ("pyspark", "pyarrow")):
        raise SourceError(LACKING)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="pyspark")
        with _opened(policy.source.master or "") as session:
            yield session


@contextlib.contextmanager
def _opened(master: str) -> Iterator[Any]:
    """Yield a new session; pyspark is there."""
    _hush()
    if master.startswith(REMOTE):
        session = _connected(master)
        try:
            yield session
        finally:
            with contextlib.suppress(Exception):
                session.stop()
        return
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    running = SparkContext._active_spark_context
    context = running or _started(master)
    try:
        with _guarded("source"):
            session = SparkSession(context).newSession()
        yield session
    finally:
        if running is None:
            with contextlib.suppress(Exception):
                context.stop()


def _hush() -> None:
    """Keep from the terminal what Spark logs of errors, which holds SQL and values."""
    from pyspark.logger import PySparkLogger

    for name in ("py4j", "pyspark", "grpc"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


@functools.cache
def _overflow() -> str:
    """Return a folder for what does not fit in memory, of this process: its Java knows no other."""
    return _folders.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))


def _started(master: str, more: Mapping[str, str] | None = None) -> Any:
    """Start Spark, whose Java writes to nobody's terminal."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf().setMaster(master)
    for name, value in (STARTED | dict(more or {})).items():
        conf.set(name, value)
    if master.startswith("local"):
        conf.set("spark.driver.bindAddress", "127.0.0.1").set("spark.driver.host", "127.0.0.1")
        conf.set("spark.local.dir", _overflow())
    before = signal.getsignal(signal.SIGINT)
    try:
        if SparkContext._gateway is None:
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            SparkContext._ensure_initialized(gateway=launch_gateway(conf, quiet), conf=conf)
        return SparkContext(conf=conf)
    except PySparkException as error:
        java = error.getCondition() == "JAVA_GATEWAY_EXITED"
        raise SourceError(
            "Java cannot be started, which Spark runs in" if java else "Spark cannot be started",
            hint="install Java 17 or later (Debian: default-jre-headless), or set JAVA_HOME",
        ) from None
    except Exception:
        raise SourceError(
            "Spark cannot be started, or its master cannot be reached",
            hint="see source.master in the policy, and Spark's own configuration",
        ) from None
    finally:
        with contextlib.suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGINT, before)


def _connected(master: str) -> Any:
    """Return a new session of Spark Connect."""
    hint = "see source.master in the policy; a token comes from SPARK_CONNECT_AUTHENTICATE_TOKEN"
    unreachable = SourceError("the Spark Connect server of the source cannot be reached", hint=hint)
    place = re.match(r"sc://\[?([^/;]*?)\]?(?::(\d+))?(?:[/;]|$)", master)
    assert place is not None
    try:
        socket.create_connection((place[1], int(place[2] or PORT)), PATIENCE).close()
    except OSError:
        raise unreachable from None
    try:
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession

        session = SparkSession.builder.remote(master).create()
        session.client.set_retry_policies([DefaultPolicy(max_retries=3, max_backoff=1000)])
        return session
    except ImportError:
        raise SourceError(LACKING) from None
    except Exception:
        raise unreachable from None


@contextlib.contextmanager
def _guarded(key: str) -> Iterator[None]:
    """Turn Spark's errors into ours, without their text, which may hold data."""
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, PySparkException

    try:
        yield
    except Error:
        raise
    except (PySparkException, Py4JError, OSError, EOFError) as error:
        condition, state = _kind_of_error(error)
        if state == "42501" or "PERMISSION" in condition:
            raise SourceError(
                "Spark may not read the source", hint="its user needs SELECT on the tables"
            ) from None
        if state in ("42P01", "42704"):
            raise SourceError("the table of the source is no longer there", hint=AGAIN) from None
        if state.startswith("22") or state == "P0001":
            raise FailedError() from None
        if isinstance(error, AnalysisException) and state[:2] in ("42", "0A"):
            raise PolicyError(
                f"the SQL does not fit the types of the source's columns ({condition})", key=key,
                hint="write a CAST",
            ) from None  # fmt: skip
        said = f" ({condition})" if condition else ""
        raise SourceError(
            f"Spark ended the query{said}: the source cannot be read to its end", hint=AGAIN
        ) from None


def _kind_of_error(error: BaseException) -> tuple[str, str]:
    """Return Spark's name of a kind of error, and its SQLSTATE, where there are such."""
    try:
        return error.getCondition() or "", error.getSqlState() or ""  # type: ignore[attr-defined]
    except Exception:  # it would ask a Java that is gone
        return "", ""


class SparkSource(Source):
    """A table, files or a query, in a session of Spark."""

    dialect: SparkDialect

    def __init__(self, policy: Policy, local: duckdb.DuckDBPyConnection, session: Any) -> None:
        self.local = local
        self.dialect = SparkDialect()
        self._spark = session
        self._done = 0.0
        if not _is_classic(session):
            session.registerProgressHandler(self._progressed)
        source, unit = policy.source, policy.privacy.unit.column
        self._paths = FileSet.at(_pattern(source.path)) if source.path else None
        if self._paths is not None:
            if self._paths.kind != "parquet":
                raise SourceError(f"{self._paths.path} is not Parquet, which Spark reads here")
            self._state = self._paths.state()
            tables: Mapping[str, Table] = {FILE: self._file(self._paths)}
        else:
            tables = _Catalog(session, source.table or source.query or "")
        with translated(policy, "source" if source.query is None else "source.query"):
            found = records(
                tables, unit, query=source.query, table=source.table or FILE, native=self.dialect
            )
        self.records = f"({found.sql})"
        self.columns: Mapping[str, str] = kinds(session, found.sql)
        self._read = [] if self._paths is not None else sorted(found.units)
        self._files = self._listed()

    def expression(self, text: str) -> str:
        """Return SQL of the policy in Spark's, checked."""
        return expression(text, self.columns, self.dialect)

    def kind(self, sql: str, key: str) -> str:
        """Return the type of an expression over records."""
        with _guarded(key):
            return kinds(self._spark, f"SELECT ({sql}) AS e FROM {self.records} AS a_record")["e"]

    def equal(self, key: str, kind: str, values: Sequence[str], name: str) -> tuple[str, str]:
        """Return a join with the values, and with it the place of the equal one."""
        rows = ", ".join(f"({text(value)}, {i})" for i, value in enumerate(values))
        table = f"SELECT CAST(v AS {kind}) AS v, code FROM VALUES {rows} AS u(v, code)"
        return f"LEFT JOIN ({table}) AS {name} ON {name}.v = {key}", f"{name}.code"

    def below(self, key: str, kind: str, values: Sequence[str], name: str) -> tuple[str, str]:
        """Return the number of values at or below one, which needs no join: a binary search."""
        ends = f"transform(split({text(','.join(values))}, ','), v -> CAST(v AS {kind}))"
        steps = ", ".join(str(2**i) for i in reversed(range(len(values).bit_length())))
        further = f"n + s <= {len(values)} AND {key} >= element_at({ends}, n + s)"
        found = f"aggregate(array({steps}), 0, (n, s) -> CASE WHEN {further} THEN n + s ELSE n END)"
        return "", f"CASE WHEN {key} IS NOT NULL THEN {found} END"

    def group(self, sql: str, columns: Sequence[str]) -> None:
        """Make GROUPS of what Spark groups."""
        with _guarded("source"):
            found = self._spark.sql(sent(sql)).toArrow()
        self.local.register("of_spark", found)
        names = ", ".join(f"CAST({c} AS {'HUGEINT' if c[0] == 's' else 'BIGINT'}) AS {c}"
                          for c in columns)  # fmt: skip
        table = GROUPS.rpartition(".")[2]
        self.local.execute(f"CREATE TEMP TABLE {table} AS SELECT {names} FROM of_spark")
        self.local.unregister("of_spark")

    def progress(self) -> float:
        """Return how much is done of the stage that runs."""
        if _is_classic(self._spark):
            with contextlib.suppress(Exception):
                tracker = self._spark.sparkContext.statusTracker()
                stages = [tracker.getStageInfo(i) for i in tracker.getActiveStageIds()]
                tasks = sum(stage.numTasks for stage in stages if stage)
                done = sum(stage.numCompletedTasks for stage in stages if stage)
                self._done = done / tasks if tasks else self._done
        return self._done

    def _progressed(self, stages: Sequence[Any], *_: Any, **__: Any) -> None:
        """Take what Spark Connect says of its progress."""
        tasks = sum(stage.num_tasks for stage in stages)
        if tasks:
            self._done = sum(stage.num_completed_tasks for stage in stages) / tasks

    def interrupt(self) -> None:
        """Stop what runs."""
        with contextlib.suppress(Exception):
            self._spark.interruptAll()
        self.local.interrupt()

    def require_unchanged(self) -> None:
        """Refuse files that were written to, came or went since the source was opened."""
        same = self._files == self._listed()
        if self._paths is not None:
            same = FileSet.at(self._paths.path).state() == self._state
        if not same:
            raise SourceError(
                "the source changed while it was read; nothing was changed", hint="do it again"
            )

    def _listed(self) -> list[str]:
        """Return the names of the files that tables are made of, as they are now."""
        with _guarded("source"):
            for table in self._read:
                self._spark.catalog.refreshTable(sent(table))
            files = [self._spark.table(sent(table)).inputFiles() for table in self._read]
        return sorted(file for each in files for file in each)

    def _file(self, files: FileSet) -> Table:
        """Return Parquet files as a table."""
        reader = self._spark.read.option("basePath", str(_root(files.path)))
        frame = reader.parquet(*map(str, files.files))
        frame.createOrReplaceTempView(FILE)
        return Table(identifier(FILE), kinds(self._spark, f"SELECT * FROM {FILE}"))


class _Catalog(Mapping[str, Table]):
    """The tables of the current catalog by name: table (if of the current schema), schema.table.

    Of schemas that a text does not name none is listed, and of a table only what is asked for.
    """

    def __init__(self, session: Any, mentioned: str) -> None:
        self._spark = session
        self._known: dict[str, Table] = {}
        home = session.catalog.currentDatabase()
        schemas = [row[0] for row in session.sql("SHOW SCHEMAS").collect()]
        named = [s for s in schemas if s == home or s.lower() in mentioned.lower()]
        self._names: dict[str, tuple[str, str]] = {}
        for schema in sorted(named, key=lambda each: each != home):
            rows = session.sql(sent(f"SHOW TABLES IN {identifier(schema)}")).collect()
            tables = sorted(row["tableName"] for row in rows if not row["isTemporary"])
            if schema == home:
                self._names |= {table: (schema, table) for table in tables}
            self._names |= {f"{schema}.{table}": (schema, table) for table in tables}

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, name: str) -> Table:
        if name not in self._known:
            sql = ".".join(map(identifier, self._names[name]))
            self._known[name] = Table(sql, kinds(self._spark, f"SELECT * FROM {sql}"), None,
                                      self._strange(sql))  # fmt: skip
        return self._known[name]

    def _strange(self, sql: str) -> str | None:
        """Return what a table has for which it is not read."""
        if self._spark.catalog.getTable(sent(sql)).tableType == "VIEW":
            return "a query of its own, as it is a view"
        for field in self._spark.table(sent(sql)).schema.fields:
            if "collate" in field.dataType.simpleString().lower():
                return "a collation, under which different texts are equal"
        return None


def kinds(session: Any, sql: str) -> dict[str, str]:
    """Return the columns of a query, and their types in DuckDB's words."""
    found = {}
    for field in session.sql(sent(sql)).schema.fields:
        kind = field.dataType.simpleString()
        decimal = kind.upper() if kind.startswith("decimal") else "OTHER"
        found[field.name] = KINDS.get(kind.partition("(")[0], decimal)
    return found


def _is_classic(session: Any) -> bool:
    return "connect" not in type(session).__module__


def _pattern(path: Path) -> Path:
    """Return the pattern of the files in a folder; what is none stays."""
    return path / "**" / "*.parquet" if path.is_dir() else path


def _root(path: Path) -> Path:
    """Return the folder below which names of folders are columns."""
    parts = path.parts
    at = next((i for i, part in enumerate(parts) if set(part) & set("*?[")), len(parts) - 1)
    return Path(*parts[:at])
