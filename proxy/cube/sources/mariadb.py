"""Records of a MariaDB, reached by a SQLAlchemy URL, grouped where they live.

One read-only transaction at one moment (a consistent snapshot of InnoDB) sees all; of its rows only
groups cross the wire, streamed to a file.  All settings of the session that bear on what values
mean are ours.  The URL has no password: that comes from MYSQL_PWD or from the driver's option file.
Invariant: no message has a value, nor a text of the server's, in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb

from proxy.cube.sources import coding
from proxy.cube.sources.dialect import text
from proxy.cube.sources.duckdb import declared, fault, translated
from proxy.cube.sources.mariadb_sql import MariaDBDialect
from proxy.cube.sources.remote import RemoteSource, receiving
from proxy.cube.sources.source import FailedError, Taken
from proxy.errors import Error, SourceError
from proxy.policy import Policy
from proxy.sql.source_expressions import expression_field, identifier
from proxy.sql.source_queries import Table, records

OLDEST = (10, 6)
PASSWORD = "MYSQL_PWD"  # as for MariaDB's own programs
BLOCK = 10_000  # rows
YEARS = range(1971, 2037)  # of which MariaDB knows zones
KINDS = {
    **{"smallint": "SMALLINT", "mediumint": "INTEGER", "int": "INTEGER", "bigint": "BIGINT"},
    **{"tinyint": "TINYINT", "year": "SMALLINT", "float": "FLOAT", "double": "DOUBLE"},
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), "VARCHAR"),
    **dict.fromkeys(("enum", "set"), "VARCHAR"),
    **{"date": "DATE", "time": "TIME", "datetime": "TIMESTAMP", "uuid": "UUID"},
    "timestamp": "TIMESTAMP WITH TIME ZONE",
}
SETTINGS = {
    "sql_mode": "'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,STRICT_ALL_TABLES'",
    "old_mode": "''",
    "sql_select_limit": "18446744073709551615",
    "max_statement_time": "0",
    "max_sort_length": "1024",
    "optimizer_switch": "'derived_merge=off'",  # values are worked out once, however often used
    "default_regex_flags": "''",
    "lc_time_names": "'en_US'",
    "sql_auto_is_null": "0",
}
COLUMNS = """
    SELECT c.table_schema, c.table_name, c.column_name, c.data_type, c.column_type,
           t.table_type, coalesce(t.engine, ''), c.extra
    FROM information_schema.columns AS c
    JOIN information_schema.tables AS t USING (table_schema, table_name)
    WHERE t.table_type IN ('BASE TABLE', 'SYSTEM VERSIONED', 'VIEW')
      AND c.table_schema NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys')
      AND locate('.', concat(c.table_schema, c.table_name)) = 0
    ORDER BY 1, 2, c.ordinal_position
"""
REFUSED = {1044, 1142, 1143, 1370}  # the numbers of what a role may not
FAILED = {1264, 1292, 1365, 1366, 1690, 1411}  # of values that do not fit
FULL = {1021, 1037, 1038, 1041, 1114, 1135, 3}


@contextlib.contextmanager
def reading(policy: Policy, folder: Path, taken: Taken | None = None) -> Iterator[MariaDBSource]:
    """Open the source of a policy, in one transaction.

    Raises:
        SourceError: the database cannot be reached, or the table is missing.
        PolicyError: the policy's query is not row by row.
    """
    with receiving(folder, taken) as (local, file), _connected(policy) as remote, _guarded():
        yield MariaDBSource(policy, local, remote, file)


@contextlib.contextmanager
def _connected(policy: Policy) -> Iterator[Any]:
    """Connect, and begin the transaction."""
    try:
        import sqlalchemy
        from sqlalchemy.exc import SQLAlchemyError
        from sqlalchemy.pool import NullPool
    except ImportError:
        raise _no_driver() from None
    try:
        url = sqlalchemy.engine.make_url(policy.source.dsn or "")
        if password := os.environ.get(PASSWORD):
            url = url.set(password=password)
        engine = sqlalchemy.create_engine(
            url, poolclass=NullPool, isolation_level="AUTOCOMMIT", hide_parameters=True,
            execution_options={"no_parameters": True},
        )  # fmt: skip
        remote = engine.connect()
    except ImportError:
        raise _no_driver() from None
    except (SQLAlchemyError, RuntimeError, ValueError, TypeError, OSError) as error:
        known = _number(error)
        why = {1045: "it refuses this user or password", 1049: "it has no such database"}
        raise SourceError(
            "the database of the source cannot be reached: "
            f"{why.get(known or 0, f'error {known}' if known else 'no reason is given')}",
            hint=f"see source.url in the policy; a password comes from {PASSWORD}, or from an "
            "option file: ?read_default_file=/path",
        ) from None
    try:
        with _guarded():
            _begin(policy, remote)
        yield remote
    finally:
        with contextlib.suppress(Exception):  # where it is gone there is nothing to close
            remote.invalidate()
            remote.close()


def _begin(policy: Policy, remote: Any) -> None:
    """Make the session what the SQL is written for, and begin."""
    found = str(remote.exec_driver_sql("SELECT version()").scalar())
    match = re.match(r"(\d+)\.(\d+)", found.removeprefix("5.5.5-"))
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    if "MariaDB" not in found or version < OLDEST:
        raise SourceError(
            "the database of the source is none of MariaDB "
            f"{'.'.join(map(str, OLDEST))} or later, which is what is read by a URL"
        )
    remote.exec_driver_sql("SET NAMES utf8mb4 COLLATE utf8mb4_nopad_bin")
    for name, value in SETTINGS.items():
        remote.exec_driver_sql(f"SET SESSION {name} = {value}")
    if policy.timezone == "UTC":
        remote.exec_driver_sql("SET SESSION time_zone = '+00:00'")
    else:
        _set_zone(policy, remote)
    remote.exec_driver_sql("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    remote.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")


def _set_zone(policy: Policy, remote: Any) -> None:
    """Let times be those of the policy's zone, as the server knows it.

    Raises:
        PolicyError: it does not know it, or another one by this name.
    """
    hint = "have its administrator run mariadb-tzinfo-to-sql, which gives it the time zones"
    known = ZoneInfo(policy.timezone)
    moments = [datetime(year, month, 1, 12) for year in YEARS for month in (1, 4, 7, 10)]
    right = [m.replace(tzinfo=UTC).astimezone(known).replace(tzinfo=None) for m in moments]
    zone = text(policy.timezone)
    asked = ", ".join(f"convert_tz(timestamp'{moment}', '+00:00', {zone})" for moment in moments)
    found = list(remote.exec_driver_sql(f"SELECT {asked}").one())
    if None in found:
        message = "the database of the source does not know this time zone"
        raise fault(policy, "timezone", message, hint)
    if found != right:
        message = "the database of the source knows another time zone by this name"
        raise fault(policy, "timezone", message, hint)
    remote.exec_driver_sql(f"SET SESSION time_zone = {zone}")


def _no_driver() -> SourceError:
    return SourceError(
        "MariaDB is read by SQLAlchemy and PyMySQL, which are not installed",
        hint="pip install 'sql-privacy-proxy[mariadb]'",
    )


def _number(error: BaseException) -> int | None:
    """Return the number of an error of MariaDB."""
    own = getattr(error, "orig", None) or error
    return own.args[0] if own.args and isinstance(own.args[0], int) else None


@contextlib.contextmanager
def _guarded() -> Iterator[None]:
    """Turn the database's errors into ours, without their text, which may hold data."""
    from pymysql.err import MySQLError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except Error:
        raise
    except (SQLAlchemyError, MySQLError) as error:
        number = _number(error)
        if number in REFUSED:
            raise SourceError(
                "the proxy's user may not read the source", hint="GRANT SELECT ON the tables to it"
            ) from None
        if number in FAILED:
            raise FailedError() from None
        if number in FULL:
            raise SourceError(
                "the database of the source has no room to group its records"
            ) from None
        raise SourceError(
            f"the database of the source ended the query{f' (error {number})' if number else ''}: "
            "it cannot be read to its end",
            hint="nothing was changed; do it again when the database is well",
        ) from None


class MariaDBSource(RemoteSource):
    """A table or query of MariaDB, in a transaction."""

    dialect: MariaDBDialect

    def __init__(
        self, policy: Policy, local: duckdb.DuckDBPyConnection, remote: Any, file: Path
    ) -> None:
        super().__init__(local, file)
        self._remote = remote
        ask = "SELECT database(), connection_id(), convert_tz('2021-03-14', 'UTC', 'Europe/Paris')"
        home, self._id, zoned = remote.exec_driver_sql(ask).one()
        self.dialect = MariaDBDialect(policy.timezone, zoned is not None)
        self._kinds: dict[str, str] = {}  # of expressions, as they were translated
        source, unit = policy.source, policy.privacy.unit.column
        tables = declared(policy, self._tables(home))
        with translated(policy, "source" if source.query is None else "source.query"):
            found = records(
                tables, unit,
                query=source.query, table=source.table or "", native=self.dialect,
            )  # fmt: skip
        self.records = f"({found.sql})"
        self.columns = found.columns

    def expression(self, text: str) -> str:
        """Return SQL of the policy in MariaDB's, checked."""
        found = expression_field(text, self.columns, self.dialect)
        self._kinds[found.sql] = found.kind
        return found.sql

    def kind(self, sql: str, key: str) -> str:
        """Return the type of an expression over records, by the rules of PostgreSQL."""
        return self._kinds[sql]

    def equal(self, key: str, kind: str, values: Sequence[str], name: str) -> tuple[str, str]:
        """Return a join with the values, and with it the place of the equal one."""
        if kind == "BOOLEAN":
            values = [str(int(value == "true")) for value in values]
        size = max(map(len, values))
        column = f"VARCHAR({size or 1})" if size < 2**12 else "LONGTEXT"
        known = text(json.dumps(values, ensure_ascii=False))
        rows = (
            f"SELECT {self.dialect.compared('u.v', kind)} AS v, u.n - 1 AS code FROM json_table("
            f"{known}, '$[*]' COLUMNS (n FOR ORDINALITY, v {column} PATH '$')) AS u"
        )
        return f"LEFT JOIN ({rows}) AS {name} ON {name}.v = {key}", f"{name}.code"

    def below(self, key: str, kind: str, values: Sequence[str], name: str) -> tuple[str, str]:
        """Return the number of values at or below one, which needs no join."""
        return "", coding.tree(key, kind, values, self.dialect)

    def stream(self, sql: str) -> None:
        """Stream the rows of a query to the file."""
        with _guarded():
            options = {"stream_results": True, "max_row_buffer": BLOCK}
            rows = self._remote.execution_options(**options).exec_driver_sql(sql)
            blocks = (
                "".join(f"{','.join(map(str, row))}\n" for row in block).encode()
                for block in rows.partitions(BLOCK)
            )
            self.receive(blocks)

    def interrupt(self) -> None:
        """Stop what runs."""
        with contextlib.suppress(Exception), self._remote.engine.connect() as other:
            other.exec_driver_sql(f"KILL QUERY {int(self._id)}")
        self.local.interrupt()

    def _tables(self, home: str | None) -> dict[str, Table]:
        """Return the source's tables by name: table (of the URL's database) and database.table."""
        columns: dict[tuple[str, str], dict[str, str]] = {}
        why_not: dict[tuple[str, str], str] = {}
        for row in self._remote.exec_driver_sql(COLUMNS).all():
            schema, table, column, kind, whole, sort, engine, extra = map(_string, row)
            known = (schema, table)
            columns.setdefault(known, {})
            if sort == "VIEW":
                why_not[known] = "SQL of its own, being a view, which is not read here"
            elif engine.lower() != "innodb":
                why_not[known] = "an engine without snapshots; only InnoDB is read"
            elif "VIRTUAL GENERATED" in extra.upper():
                why_not.setdefault(known, "columns that are computed when they are read")
            if "INVISIBLE" not in extra.upper():
                columns[known][column] = _kind(kind.lower(), whole.lower())
        found = {
            (s, t): Table(f"{identifier(s)}.{identifier(t)}", each, None, why_not.get((s, t)))
            for (s, t), each in columns.items()
        }
        own = {table: made for (schema, table), made in found.items() if schema == home}
        return own | {f"{s}.{t}": made for (s, t), made in found.items()}


def _string(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _kind(name: str, whole: str) -> str:
    """Return the kind of a column, in DuckDB's words."""
    if name == "decimal":
        return whole.split(" ")[0].upper()
    kind = KINDS.get(name, "OTHER")
    unsigned = "unsigned" in whole and kind in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")
    return f"U{kind}" if unsigned and name != "year" else kind
