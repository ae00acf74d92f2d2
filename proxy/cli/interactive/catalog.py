"""What may be named in a statement: tables, columns, declared values, functions, settings.

All of it is public.  An embedded connection has it from the policy; a running proxy is asked, for
tables at once, and for the values of a column when they are first wanted.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

from proxy.catalog import relation
from proxy.cli.show import text
from proxy.dbapi import Connection
from proxy.errors import Error
from proxy.policy import Policy
from proxy.settings import TABLE
from proxy.sql.expression import allowlist
from proxy.sql.parse.identifiers import quoted
from proxy.sql.privacy_schema import TABLES

SETTINGS = tuple(TABLE)
VIEW = re.compile(
    r"\s*(?P<change>CREATE|DROP)\b.*?\bVIEW\s+(?:IF\s+EXISTS\s+)?(?:pg_temp\s*\.\s*)?"
    r"(?P<name>[^\W\d]\w*|\"(?:[^\"]|\"\")+\")",
    re.IGNORECASE | re.DOTALL,
)
DESCRIBED = """
    SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
        col_description(c.oid, a.attnum), obj_description(c.oid, 'pg_class')
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
    WHERE n.nspname = 'public' AND c.relkind IN ('r', 'v', 'p', 'f') AND a.attnum > 0
        AND NOT a.attisdropped AND has_table_privilege(c.oid, 'SELECT')
    ORDER BY c.relname, a.attnum
"""
LISTED = ("attribute", "level")  # what comments of columns with declared values begin with
MOST = 100_000  # values of a column that are asked for


@dataclass
class Column:
    """A column; ``values`` are the declared ones as texts, None while nobody knows them."""

    name: str
    type: str
    kind: str = ""
    values: Sequence[str] | None = None

    @property
    def listed(self) -> bool:
        """Whether it has declared values, one a cell."""
        return self.kind.startswith(LISTED) and "bins" not in self.kind


@dataclass
class Table:
    """A table or view."""

    name: str
    columns: list[Column]
    comment: str = ""


@dataclass
class Catalog:
    """The names that a connection knows; ``guard`` is held while anything uses the connection."""

    connection: Connection
    guard: threading.Lock = field(default_factory=threading.Lock)
    views: dict[str, Table] = field(default_factory=dict)

    @property
    def tables(self) -> dict[str, Table]:
        """The tables and views, by name."""
        return self._tables | self.views

    @cached_property
    def _tables(self) -> dict[str, Table]:
        policy = self.connection.policy
        tables = self._asked() if policy is None else {policy.dataset: declared(policy)}
        for name in policy.public if policy else ():
            tables[name] = Table(name, self._columns(name), "public")
        for name, columns in TABLES.items():
            known = [Column(*each) for each in columns]
            tables[f"privacy.{name}"] = Table(f"privacy.{name}", known, "of the proxy itself")
        return tables

    @property
    def dataset(self) -> str:
        """The name of the protected table, or of any."""
        protected = (name for name, t in self.tables.items() if any(c.kind for c in t.columns))
        return next(protected, next(iter(self.tables), ""))

    def note(self, statement: str) -> None:
        """Learn of the view that a statement has made or dropped."""
        match = VIEW.match(statement)
        if match is None:
            return
        name = match["name"]
        name = name[1:-1].replace('""', '"') if name[0] == '"' else name.lower()
        if match["change"].upper() == "DROP":
            self.views.pop(name, None)
        else:
            self.views[name] = Table(name, self._columns(name), "temporary view")

    def values(self, column: Column) -> Sequence[str]:
        """Return the declared values of a column; none where they are not to be had now."""
        if column.values is None and column.listed and not self.connection.in_transaction:
            table = next(t for t in self.tables.values() if column in t.columns)
            name = quoted(column.name)
            asked = f"SELECT {name} FROM {quoted(table.name)} GROUP BY {name} LIMIT {MOST}"
            with self.guard:
                try:
                    rows = self.connection.execute(asked).fetchall()
                except Error:
                    rows = []
            column.values = [text(value) for (value,) in rows if value is not None]
        return column.values or ()

    def _asked(self) -> dict[str, Table]:
        """Return the tables that a running proxy tells of."""
        tables: dict[str, Table] = {}
        with self.guard:
            rows = self.connection.execute(DESCRIBED).fetchall()
        for name, column, kind, comment, about in rows:
            table = tables.setdefault(name, Table(name, [], about or ""))
            table.columns.append(Column(column, kind, comment or ""))
        return tables

    def _columns(self, name: str) -> list[Column]:
        """Return the columns of a table, by a query that gives no row."""
        with self.guard:
            try:
                cursor = self.connection.execute(f"SELECT * FROM {quoted(name)} WHERE 1 = 0")
            except Error:
                return []
        return [Column(each[0], each[1]) for each in cursor.description or ()]


def declared(policy: Policy) -> Table:
    """Return the protected table with all that its policy declares."""
    told = relation(policy)
    values = {a.name: [text(v) for v in a.values] for a in policy.domain.attributes if not a.binned}
    for attribute in policy.domain.attributes:
        values |= {name: list(labels) for name, labels in (attribute.levels or {}).items()}
    columns = [
        Column(column.name, column.type, comment, values.get(column.name))
        for column, comment in zip(told.columns, told.comments, strict=True)
    ]
    return Table(told.name, columns, told.comment)


@cache
def functions() -> tuple[str, ...]:
    """Return the names of the functions that a statement may use, as people write them."""
    shown = [form for forms in allowlist.OTHERS.values() for form, _ in forms]
    over = {name for form in shown for name in re.findall(r"\b([A-Z][A-Z_]+)\(", form)}
    return tuple(sorted(over | {name.upper() for name in allowlist.names()}))
