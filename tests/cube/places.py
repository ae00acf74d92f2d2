"""Where records may live, for the tests that compare them with the same records in DuckDB."""

from __future__ import annotations

import datetime
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Protocol
from urllib.parse import urlencode

import duckdb
import pytest
from msgspec.structs import replace
from psycopg.conninfo import conninfo_to_dict

from proxy.cube import Report, build
from proxy.policy import Policy, Source

Rows = list[list[str | None]]


class Place(Protocol):
    """A place of one's own in a database, for a table ``data``."""

    kinds: dict[str, str]  # its types, with DuckDB's
    without: frozenset[str]  # values that it does not have
    refused: set[str]  # expressions that it does not say
    unread: dict[str, str]  # what a query may not have there, and what it is refused for
    name: str  # of the schema that it is

    def run(self, statements: str) -> None:
        """Run statements."""

    def put(self, columns: dict[str, str], rows: Rows) -> None:
        """Make the table, of columns with its types, and fill it with rows, as texts."""

    def there(self, policy: Policy, **source: Any) -> Policy:
        """Return a policy whose records are there."""

    def rows(self, source: Any, sql: str) -> list[tuple[Any, ...]]:
        """Return what a query says through a source that is open."""


def here(path: Path, place: Place, columns: dict[str, str], rows: Rows) -> None:
    """Put rows, as texts, into a table ``data`` of a DuckDB file."""
    path.unlink(missing_ok=True)
    with duckdb.connect(str(path)) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        kinds = [place.kinds[kind] for kind in columns.values()]
        named = ", ".join(f'"{name}" {kind}' for name, kind in zip(columns, kinds, strict=True))
        connection.execute(f"CREATE TABLE data ({named})")
        marks = ", ".join(f"CAST(? AS {kind})" for kind in kinds)
        connection.executemany(f"INSERT INTO data VALUES ({marks})", rows)


def cube(policy: Policy, name: str) -> tuple[list[tuple[Any, ...]], Report]:
    """Return the cells of a policy's new cube, and the report."""
    path = policy.path.parent / f"cube-{name}"
    report = build(policy, path, "ledger")
    with duckdb.connect(str(path), read_only=True) as connection:
        rows = connection.execute("SELECT * FROM cells ORDER BY ALL").fetchall()
    path.unlink()
    return rows, report


class InPostgres:
    """A schema of PostgreSQL."""

    kinds: ClassVar = {
        "text": "VARCHAR", "varchar(40)": "VARCHAR", "smallint": "SMALLINT", "integer": "INTEGER",
        "bigint": "BIGINT", "numeric(12,3)": "DECIMAL(12,3)", "real": "FLOAT",
        "double precision": "DOUBLE", "boolean": "BOOLEAN", "date": "DATE",
        "timestamp": "TIMESTAMP", "timestamptz": "TIMESTAMPTZ", "uuid": "UUID", "time": "TIME",
    }  # fmt: skip
    without: frozenset[str] = frozenset()
    refused: ClassVar = {
        "to_timestamp(n + 1577854800)", "EXTRACT(hour FROM to_timestamp(n * 1000))",
        "CAST(to_timestamp(n * 1000) AS date)",
    }  # fmt: skip
    unread: ClassVar[dict[str, str]] = {}

    def __init__(self, postgres: Any, name: str) -> None:
        self.postgres, self.name = postgres, name

    def run(self, statements: str) -> None:
        """Run statements."""
        self.postgres.connection.execute(statements)

    def put(self, columns: dict[str, str], rows: Rows) -> None:
        """Make the table."""
        named = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
        self.postgres.connection.execute(f"CREATE TABLE {self.name}.data ({named})")
        with self.postgres.connection.cursor().copy(f"COPY {self.name}.data FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)

    def there(self, policy: Policy, **source: Any) -> Policy:
        """Return a policy whose records are there."""
        given = {"table": f"{self.name}.data"} | source
        if given.get("query"):
            given["table"] = None
        return replace(policy, source=Source("postgres", dsn=self.postgres.dsn, **given))

    def rows(self, source: Any, sql: str) -> list[tuple[Any, ...]]:
        """Return what a query says."""
        with source._remote.transaction(force_rollback=True):
            return list(source._remote.execute(sql).fetchall())


class InMariaDB:
    """A database of MariaDB."""

    kinds: ClassVar = {
        "longtext": "VARCHAR", "varchar(40)": "VARCHAR",
        "varchar(60) CHARACTER SET latin1 COLLATE latin1_german1_ci": "VARCHAR",
        "tinyint(1)": "TINYINT", "smallint": "SMALLINT", "int": "INTEGER", "mediumint": "INTEGER",
        "bigint": "BIGINT", "int(12) unsigned zerofill": "UINTEGER", "bigint unsigned": "UBIGINT",
        "decimal(12,3)": "DECIMAL(12,3)", "decimal(14,3) unsigned zerofill": "DECIMAL(14,3)",
        "float": "FLOAT", "double": "DOUBLE", "date": "DATE", "datetime(6)": "TIMESTAMP",
        "timestamp(6)": "TIMESTAMPTZ", "uuid": "UUID", "time(6)": "TIME",
    }  # fmt: skip
    without = frozenset(("NaN", "Infinity", "-Infinity"))
    refused: ClassVar = {
        "CAST(q AS text)", "CAST(x AS integer)", "TRY_CAST(x AS integer)", "c ILIKE 'X%'",
        "concat(c, n)", "concat((b = 1), c)", "d ~ '^[ab]'", "greatest(n, 3)",
        "least(n, 3, NULL)", "power(n, 2)",
        "position('1' IN c)", "q / 3", "regexp_replace(c, '[0-9]', '#')", "sign(n)",
        "split_part(c, '-', 1)", "t + INTERVAL '1 day'", "to_char(t, 'YYYY-MM')",
        "TIMESTAMP '1970-01-01' + n * INTERVAL '1 second'", *InPostgres.refused,
    }  # fmt: skip
    unread: ClassVar = {"adults": "being a view", "~": "is not written for MariaDB"}

    def __init__(self, mariadb: Any, name: str) -> None:
        self.mariadb, self.name = mariadb, name

    def run(self, statements: str, database: str = "") -> None:
        """Run statements."""
        with self.mariadb.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"USE {database or self.name}")
            for statement in filter(str.strip, statements.split(";\n")):
                cursor.execute(statement)

    def put(self, columns: dict[str, str], rows: Rows) -> None:
        """Make the table."""
        named = ", ".join(f"`{name}` {kind} NULL" for name, kind in columns.items())
        kinds = list(columns.values())
        with self.mariadb.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE {self.name}.data ({named})")
            marks = ", ".join(["%s"] * len(kinds))
            shown = [
                [
                    _utc(v) if k.startswith("timestamp") else v
                    for v, k in zip(row, kinds, strict=True)
                ]
                for row in rows
            ]
            cursor.executemany(f"INSERT INTO {self.name}.data VALUES ({marks})", shown)

    def there(self, policy: Policy, **source: Any) -> Policy:
        """Return a policy whose records are there."""
        given = {"table": "data"} | source
        if given.get("query"):
            given["table"] = None
        return replace(
            policy, source=Source("sqlalchemy", dsn=self.mariadb.url(self.name), **given)
        )

    def rows(self, source: Any, sql: str) -> list[tuple[Any, ...]]:
        """Return what a query says."""
        return [tuple(row) for row in source._remote.exec_driver_sql(sql).all()]


class InSQLite:
    """A file of SQLite's, whose records are streamed."""

    kinds: ClassVar = {
        "TEXT": "VARCHAR", "VARCHAR(40)": "VARCHAR", "INTEGER": "BIGINT", "SMALLINT": "BIGINT",
        "DECIMAL(12,3)": "DECIMAL(12,3)", "DOUBLE": "DOUBLE", "BOOLEAN": "BOOLEAN", "DATE": "DATE",
        "DATETIME": "TIMESTAMP", "TIME": "TIME",
    }  # fmt: skip
    without = frozenset(("NaN", "Infinity", "-Infinity"))
    refused: ClassVar[set[str]] = set()
    unread: ClassVar = {"adults": "being a view"}
    name = "main"

    def __init__(self, path: Path) -> None:
        self.path = path

    def run(self, statements: str) -> None:
        """Run statements."""
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.executescript(statements)

    def put(self, columns: dict[str, str], rows: Rows) -> None:
        """Make the table."""
        named = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
        kinds = list(columns.values())

        def own(value: str | None, kind: str) -> str | None:
            if value and kind == "DATETIME" and len(value) == 10:
                return f"{value} 00:00:00"
            return str(int(value == "true")) if value and kind == "BOOLEAN" else value

        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(f"CREATE TABLE data ({named})")
            connection.executemany(
                f"INSERT INTO data VALUES ({', '.join('?' * len(kinds))})",
                [[own(v, k) for v, k in zip(row, kinds, strict=True)] for row in rows],
            )  # fmt: skip

    def there(self, policy: Policy, **source: Any) -> Policy:
        """Return a policy whose records are there."""
        given = {"table": "data"} | source
        if given.get("query"):
            given["table"] = None
        return replace(policy, source=Source("sqlalchemy", dsn=f"sqlite:///{self.path}", **given))

    def rows(self, source: Any, sql: str) -> list[tuple[Any, ...]]:
        """Return what a query says."""
        source._words.add("natural")  # of which every column is read
        source.stream()
        return list(source.local.execute(sql).fetchall())


class StreamedPostgres(InPostgres):
    """A schema of PostgreSQL, whose records are streamed as from any other database."""

    refused: ClassVar[set[str]] = set()
    unread: ClassVar = {"adults": "being a view"}

    def there(self, policy: Policy, **source: Any) -> Policy:
        """Return a policy whose records are there."""
        found = super().there(policy, **source)
        made = conninfo_to_dict(self.postgres.dsn)
        at = {key: made[key] for key in ("host", "port") if key in made}
        url = f"postgresql+psycopg://{made['user']}@/{made['dbname']}?{urlencode(at)}"
        return replace(found, source=replace(found.source, engine="sqlalchemy", dsn=url))

    rows = InSQLite.rows  # type: ignore[assignment]


def natives(place: Place) -> dict[str, str]:
    """Return a place's types by DuckDB's, or by one that is near where it has none."""
    known = {kind: own for own, kind in reversed(place.kinds.items())}
    near = {"INTEGER": "BIGINT", "UUID": "VARCHAR", "TIMESTAMPTZ": "TIMESTAMP",
            "BOOLEAN": "TINYINT"}  # fmt: skip
    return {kind: known[of] for kind, of in near.items() if of in known} | known


def _utc(value: str | None) -> str | None:
    """Return a time with a zone as one of UTC."""
    if value is None:
        return None
    moment = datetime.datetime.fromisoformat(value).astimezone(datetime.UTC)
    return moment.replace(tzinfo=None).isoformat(" ")


@contextmanager
def opened_in(where: str, request: pytest.FixtureRequest) -> Iterator[Place]:
    """A place of one's own, by its name."""
    name = f"s{random.SystemRandom().randrange(10**9)}"
    if where == "sqlite":
        yield InSQLite(request.getfixturevalue("tmp_path") / "data.sqlite")
    elif "postgres" in where:
        postgres = request.getfixturevalue("postgres")
        postgres.connection.execute(f"CREATE SCHEMA {name}")
        yield (InPostgres if where == "postgres" else StreamedPostgres)(postgres, name)
        postgres.connection.execute(f"DROP SCHEMA {name} CASCADE")
    else:
        mariadb = request.getfixturevalue("mariadb")
        place = InMariaDB(mariadb, name)
        place.run(f"CREATE DATABASE {name}", "mysql")
        yield place
        place.run(f"DROP DATABASE {name}")


PLACES = ("postgres", "mariadb", "sqlite", "streamed postgres")
