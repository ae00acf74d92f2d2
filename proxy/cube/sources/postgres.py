"""Records of a PostgreSQL database, grouped where they live.

One read-only transaction at one moment (REPEATABLE READ) sees all; of its rows only groups cross
the wire, streamed to a file.  The catalogs are asked for names and types of columns, and for the
SQL of views.  Nothing of the database but pg_catalog is looked up by its bare name, so that no
function of anybody's takes the place of PostgreSQL's own.

How to connect is libpq's to find out (``dsn`` of the policy: host, dbname, service, ...); passwords
come from the environment, a password file or a service file.  Invariant: no message has a value in
it; those of a failed connection are libpq's, which knows none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import duckdb
import psycopg
from psycopg import errors

from proxy.cube.sources.dialect import text
from proxy.cube.sources.duckdb import RECORDS, declared, fault, translated
from proxy.cube.sources.postgres_sql import OLDEST, PostgresDialect
from proxy.cube.sources.remote import RemoteSource, receiving
from proxy.cube.sources.source import FailedError, Taken
from proxy.errors import Error, PolicyError, SourceError
from proxy.policy import Policy
from proxy.sql.source_expressions import expression, identifier
from proxy.sql.source_queries import UNITS_ONLY, Table, records

HOME = "public"  # whose tables need no schema before their names
KINDS = {
    **{"int2": "SMALLINT", "int4": "INTEGER", "int8": "BIGINT", "numeric": "DECIMAL"},
    **{"float4": "FLOAT", "float8": "DOUBLE", "bool": "BOOLEAN", "uuid": "UUID", "date": "DATE"},
    **dict.fromkeys(("text", "varchar", "bpchar", "name"), "VARCHAR"),
    **{"time": "TIME", "timestamp": "TIMESTAMP", "timestamptz": "TIMESTAMP WITH TIME ZONE"},
}
SETTINGS = {
    "search_path": "pg_catalog",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
    "standard_conforming_strings": "on",
    "row_security": "off",  # rows that are held back would be missed without a word
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "lock_timeout": "0",
    "transform_null_equals": "off",
    "client_encoding": "UTF8",
    "work_mem": "256MB",  # for one query, of one connection
}
TABLES = """
    SELECT n.nspname, c.relname,
           CASE WHEN EXISTS (
               SELECT FROM pg_foreign_table WHERE ftrelid IN (
                   WITH RECURSIVE below(id) AS (SELECT c.oid UNION
                       SELECT inhrelid FROM pg_inherits JOIN below ON inhparent = below.id)
                   SELECT id FROM below))
           THEN 'rows of another database'
           WHEN EXISTS (SELECT FROM pg_attribute AS a
                        WHERE a.attrelid = c.oid AND a.attgenerated NOT IN ('', 's'))
           THEN 'columns that are computed when they are read'
           WHEN c.relkind = 'm'
           THEN 'rows of other tables, being a materialized view: make a table of it' END,
           CASE WHEN c.relkind = 'v' THEN pg_get_viewdef(c.oid) END
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'f', 'v', 'm') AND strpos(c.relname || n.nspname, '.') = 0
      AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_%'
    ORDER BY 1, 2
"""
COLUMNS = """
    SELECT n.nspname, c.relname, a.attname, a.atttypid
    FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'p', 'f', 'v')
      AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_%'
    ORDER BY 1, 2, a.attnum
"""
MADE_OF = """
    WITH RECURSIVE made(id, of) AS (
        SELECT r.ev_class, d.refobjid
        FROM pg_rewrite AS r JOIN pg_depend AS d ON d.objid = r.oid
        WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass
        UNION ALL SELECT inhparent, inhrelid FROM pg_inherits),
    reached(id) AS (
        SELECT c.oid FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE {0} IN (lower(n.nspname || '.' || c.relname),
                      CASE WHEN n.nspname = {1} THEN lower(c.relname) END)
        UNION SELECT of FROM reached JOIN made USING (id))
    SELECT id::text FROM reached
"""
TYPES = """
    WITH RECURSIVE base(oid, id) AS (
        SELECT oid, oid FROM pg_type
        UNION ALL
        SELECT base.oid, t.typbasetype FROM base JOIN pg_type AS t ON t.oid = base.id
        WHERE t.typtype = 'd')
    SELECT base.oid::bigint, t.typname::text, t.typtype::text, n.nspname = 'pg_catalog'
    FROM base JOIN pg_type AS t ON t.oid = base.id JOIN pg_namespace AS n ON n.oid = t.typnamespace
    WHERE t.typtype <> 'd'
"""
LONGEST = 1000  # characters of a value of which a draft is made
Tables = dict[tuple[str, str], Table]


@contextlib.contextmanager
def reading(policy: Policy, folder: Path, taken: Taken | None = None) -> Iterator[PostgresSource]:
    """Open the source of a policy, in one transaction.

    Raises:
        SourceError: the database cannot be reached, or the table is missing.
        PolicyError: the policy's query is not row by row.
    """
    with (
        receiving(folder, taken) as (local, file),
        _connected(policy) as remote,
        _guarded("source"),
    ):
        yield PostgresSource(policy, local, remote, file)


@contextlib.contextmanager
def _connected(policy: Policy) -> Iterator[psycopg.Connection]:
    """Connect, and begin the transaction."""
    try:
        remote = psycopg.connect(policy.source.dsn or "", application_name="privacy-proxy")
    except psycopg.Error as error:
        said = str(error).strip().splitlines() or ["no reason is given"]
        raise SourceError(
            f"the database of the source cannot be reached: {said[-1].strip()}",
            hint="see source.dsn in the policy; a password comes from PGPASSWORD, PGPASSFILE or "
            "a service file",
        ) from None
    with contextlib.closing(remote):
        if remote.info.server_version < OLDEST * 10_000:
            raise SourceError(
                f"the database of the source is PostgreSQL {remote.info.server_version // 10_000}; "
                f"{OLDEST} or later is needed"
            )
        remote.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        remote.read_only = True
        with _guarded("source"):
            more = {"transaction_timeout": "0"} if remote.info.server_version >= 170_000 else {}
            for name, value in (SETTINGS | more).items():
                remote.execute(f"SET LOCAL {name} = {text(value)}".encode())
        try:
            remote.execute(f"SET LOCAL TimeZone = {text(policy.timezone)}".encode())
        except psycopg.Error:
            message = "the database of the source does not know this time zone"
            raise fault(policy, "timezone", message) from None
        yield remote


@contextlib.contextmanager
def _guarded(key: str) -> Iterator[None]:
    """Turn the database's errors into ours, without their text, which may hold data."""
    try:
        yield
    except Error:
        raise
    except (errors.UndefinedFunction, errors.DatatypeMismatch, errors.AmbiguousFunction):
        raise PolicyError(
            "the SQL does not fit the types of the source's columns", key=key,
            hint="write a CAST, as PostgreSQL asks for it",
        ) from None  # fmt: skip
    except errors.InsufficientPrivilege as error:
        rows = "row-level" in str(error)
        raise SourceError(
            "row-level security holds back rows of the source from the proxy's role"
            if rows
            else "the proxy's role may not read the source",
            hint="give it a role that may read all rows: BYPASSRLS"
            if rows
            else "GRANT USAGE ON SCHEMA, and SELECT ON the tables, to it",
        ) from None
    except psycopg.DataError:
        raise FailedError() from None
    except (errors.DiskFull, errors.OutOfMemory, errors.ConfigurationLimitExceeded):
        raise SourceError("the database of the source has no room to group its records") from None
    except psycopg.Error as error:
        state = f" (SQLSTATE {error.sqlstate})" if error.sqlstate else ""
        raise SourceError(
            f"the database of the source ended the query{state}: it cannot be read to its end",
            hint="nothing was changed; do it again when the database is well",
        ) from None


class PostgresSource(RemoteSource):
    """A table, view or query of PostgreSQL, in a transaction."""

    dialect: PostgresDialect

    def __init__(
        self,
        policy: Policy,
        local: duckdb.DuckDBPyConnection,
        remote: psycopg.Connection,
        file: Path,
    ) -> None:
        super().__init__(local, file)
        self._remote = remote
        encoding = remote.info.parameter_status("server_encoding") or ""
        self.dialect = PostgresDialect(remote.info.server_version // 10_000, encoding)
        self._types = {
            oid: KINDS.get(name, "OTHER") if own else _kind_of(name, sort)
            for oid, name, sort, own in remote.execute(TYPES).fetchall()
        }
        source, unit = policy.source, policy.privacy.unit.column
        tables = declared(policy, self._tables(views=unit is not None))
        with translated(policy, "source" if source.query is None else "source.query"):
            found = records(
                tables, unit, query=source.query, table=source.table or "", native=self.dialect
            )
        self.records = f"({found.sql})"
        self.columns: Mapping[str, str] = self._kinds(found.sql)

    def expression(self, text: str) -> str:
        """Return SQL of the policy in PostgreSQL's, checked."""
        return expression(text, self.columns, self.dialect)

    def kind(self, sql: str, key: str) -> str:
        """Return the type of an expression over records."""
        with _guarded(key), self._remote.transaction(force_rollback=True):
            return self._kinds(f"SELECT ({sql}) AS e FROM {self.records} AS a_record")["e"]

    def equal(self, key: str, kind: str, values: Sequence[str], name: str) -> tuple[str, str]:
        """Return a join with the values, and with it the place of the equal one."""
        value = self.dialect.compared("u.v", kind)
        array = f"CAST(ARRAY[{', '.join(map(text, values))}] AS text[])"
        rows = (
            f"SELECT {value} AS v, CAST(u.n - 1 AS integer) AS code"
            f" FROM unnest({array}) WITH ORDINALITY AS u(v, n)"
        )
        return f"LEFT JOIN ({rows}) AS {name} ON {name}.v = {key}", f"{name}.code"

    def below(self, key: str, kind: str, values: Sequence[str], name: str) -> tuple[str, str]:
        """Return the number of values at or below one, which needs no join."""
        base = kind.partition("(")[0]
        array = ", ".join(f"CAST({text(value)} AS {base})" for value in values)  # constants, once
        count = f"width_bucket(CAST({key} AS {base}), ARRAY[{array}])"
        return "", f"CASE WHEN {key} IS NOT NULL THEN {count} END"

    def copy(self) -> None:
        """Make RECORDS in ``local`` of the beginnings of all values as text, for who may see them.

        What a type of others writes is not asked: such a column is a list.
        """
        values, items = [], []
        for i, (name, kind) in enumerate(self.columns.items()):
            own, _ = self.dialect.plain(identifier(name), kind)
            values.append("''" if kind == "OTHER" else f"left(CAST({own} AS text), {LONGEST})")
            items.append(f"{f'[c{i}]' if kind == 'OTHER' else f'c{i}'} AS {identifier(name)}")
        self.stream(f"SELECT {', '.join(values)} FROM {self.records} AS a_record")
        rows = self.streamed({f"c{i}": "VARCHAR" for i in range(len(values))})
        self.local.execute(f"CREATE TEMP VIEW {RECORDS} AS SELECT {', '.join(items)} FROM {rows}")

    def stream(self, sql: str) -> None:
        """Stream the rows of a query to the file."""
        out = f"COPY ({sql}) TO STDOUT (FORMAT csv)".encode()
        with _guarded("source"), self._remote.cursor().copy(out) as copy:
            self.receive(copy)

    def tables_read(self, name: str) -> frozenset[str]:
        """Return what a table or view is made of, parts and heirs of tables included."""
        sql = MADE_OF.format(text(name.lower()), text(HOME))
        return frozenset(id for (id,) in self._remote.execute(sql.encode()).fetchall())

    def interrupt(self) -> None:
        """Stop what runs."""
        with contextlib.suppress(psycopg.Error):
            self._remote.cancel_safe(timeout=5)
        self.local.interrupt()

    def _kinds(self, sql: str) -> dict[str, str]:
        """Return the columns of a query, and their types."""
        cursor = self._remote.execute(f"SELECT * FROM ({sql}) AS q LIMIT 0".encode())
        return {c.name: self._types.get(c.type_code, "OTHER") for c in cursor.description or ()}

    def _tables(self, views: bool) -> dict[str, Table]:
        """Return the source's tables by name: table (if in HOME) and schema.table."""
        columns: dict[tuple[str, str], dict[str, str]] = {}
        for schema, table, column, oid in self._remote.execute(COLUMNS).fetchall():
            columns.setdefault((schema, table), {})[column] = self._types.get(oid, "OTHER")
        found: Tables = {}
        for schema, table, why_not, view in self._remote.execute(TABLES).fetchall():
            sql, known = f"{identifier(schema)}.{identifier(table)}", (schema, table)
            why_not = why_not or (None if view is None or views else UNITS_ONLY)
            found[known] = Table(sql, columns.get(known, {}), view, why_not)
        home = {table: made for (schema, table), made in found.items() if schema == HOME}
        return home | {f"{s}.{t}": made for (s, t), made in found.items()}


def _kind_of(name: str, sort: str) -> str:
    """Return the kind of a type that is not PostgreSQL's own: none has a cast that is trusted."""
    return "ENUM" if sort == "e" or (name, sort) == ("citext", "b") else "OTHER"
