"""SQLAlchemy's dialect ``privacyproxy``: an embedded policy, for pandas, notebooks and BI tools.

    create_engine("privacyproxy:///policies/cps1988.yaml?utility=50,0.05")

SQL is PostgreSQL's; tables and columns are reflected from the policy.  How good a number must be is
said with ``utility=`` here (what a statement may cost with ``max_cost=``), in text, or with
``select(...).prefix_with("/*+ UTILITY(50, 0.05) */")``.  Works with SQLAlchemy 1.4 and 2.  A
running proxy is reached with ``postgresql+psycopg``.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from sqlalchemy import types
from sqlalchemy.dialects.postgresql import base
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.engine.url import URL
from sqlalchemy.exc import ArgumentError, NoSuchTableError

from proxy.catalog import Relation, relation
from proxy.policy import Policy

SCHEMA = "public"
TYPES: Mapping[str, type[types.TypeEngine[Any]]] = {
    "smallint": types.SMALLINT,
    "integer": types.INTEGER,
    "bigint": types.BIGINT,
    "numeric": types.NUMERIC,
    "real": types.REAL,
    "double precision": types.FLOAT,
    "text": types.TEXT,
    "boolean": types.BOOLEAN,
    "date": types.DATE,
    "timestamp": types.TIMESTAMP,
}


class PrivacyProxyDialect(DefaultDialect):
    """The dialect; a database is a policy file."""

    name = "privacyproxy"
    driver = "proxy"
    default_paramstyle = "pyformat"
    supports_statement_cache = True
    supports_native_boolean = True
    supports_native_decimal = True
    supports_alter = False
    supports_smallserial = True  # asked for by PGDDLCompiler, whose CREATE TABLE is then refused
    supports_sane_rowcount = False
    supports_default_values = False
    postfetch_lastrowid = False
    statement_compiler = base.PGCompiler
    ddl_compiler = base.PGDDLCompiler
    type_compiler = base.PGTypeCompiler  # of 1.4; 2 names it otherwise
    type_compiler_cls = base.PGTypeCompiler
    preparer = base.PGIdentifierPreparer
    colspecs = base.PGDialect.colspecs
    _backslash_escapes = False

    @classmethod
    def import_dbapi(cls) -> ModuleType:
        """Return the PEP 249 module."""
        return import_module("proxy")

    @classmethod
    def dbapi(cls) -> ModuleType:  # type: ignore[override]  # the name of it in 1.4
        """Return the PEP 249 module."""
        return cls.import_dbapi()

    def create_connect_args(self, url: URL) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of ``proxy.connect`` that a URL stands for."""
        options: dict[str, Any] = dict(url.query)
        if not url.database:
            raise ArgumentError(
                "the URL names no policy; write privacyproxy:///path/to/policy.yaml"
            )
        known = {"state", "utility", "max_cost", "user", "dialect"}
        if unknown := sorted(set(options) - known):
            raise ArgumentError(f"{unknown[0]!r} is none of {', '.join(sorted(known))}")
        if url.username:
            options["user"] = url.username
        return [url.database], options

    def do_ping(self, dbapi_connection: Any) -> bool:
        """Whether the connection is open: there is no network that could have failed."""
        return not dbapi_connection.closed

    def _get_default_schema_name(self, connection: Any) -> str:
        return SCHEMA

    def _get_server_version_info(self, connection: Any) -> tuple[int, ...]:
        return (16, 0)  # of the PostgreSQL whose language is spoken

    # --- reflection ------------------------------------------------------------------------------

    def get_schema_names(self, connection: Any, **kw: Any) -> list[str]:
        """Return the schemas."""
        return [SCHEMA]

    def get_table_names(self, connection: Any, schema: str | None = None, **kw: Any) -> list[str]:
        """Return the tables: the dataset."""
        return [_policy(connection).dataset] if schema in (None, SCHEMA) else []

    def get_view_names(self, connection: Any, schema: str | None = None, **kw: Any) -> list[str]:
        """Return the views: none."""
        return []

    def has_table(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> bool:
        """Whether there is a table."""
        return table_name in self.get_table_names(connection, schema)

    def get_columns(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        """Return the columns of a table, with types and comments."""
        found = self._relation(connection, table_name, schema)
        return [
            {
                "name": column.name,
                "type": TYPES[column.type](),
                "nullable": True,
                "default": None,
                "autoincrement": False,
                "comment": comment,
            }
            for column, comment in zip(found.columns, found.comments, strict=True)
        ]

    def get_table_comment(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        """Return the dataset's description."""
        return {"text": self._relation(connection, table_name, schema).comment or None}

    def get_pk_constraint(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        """Return no primary key: rows are not shown."""
        self._relation(connection, table_name, schema)
        return {"constrained_columns": [], "name": None}

    def _none(self, connection: Any, table_name: str, schema: str | None = None, **kw: Any) -> Any:
        self._relation(connection, table_name, schema)
        return []

    get_foreign_keys = get_indexes = get_unique_constraints = get_check_constraints = _none

    def _relation(self, connection: Any, name: str, schema: str | None) -> Relation:
        if not self.has_table(connection, name, schema):
            raise NoSuchTableError(name)
        return relation(_policy(connection))


def _policy(connection: Any) -> Policy:
    """Return the policy of a connection."""
    policy: Policy = connection.connection.dbapi_connection.policy
    return policy


dialect = PrivacyProxyDialect
