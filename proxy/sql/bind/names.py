"""Names, by PostgreSQL's rules: how they fold, what they find, and what is said where they do not.

Invariant: a name that is not quoted is lower case, a quoted one is as it is written.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sqlglot import exp

from proxy.errors import AmbiguousColumnError, UndefinedColumnError, UndefinedTableError
from proxy.sql.expression.typed import position

FOLD = str.maketrans({chr(c): chr(c + 32) for c in range(ord("A"), ord("Z") + 1)})
WORDS = (  # of PostgreSQL that are no names without quotes
    "all analyse analyze and any array as asc asymmetric authorization binary both case cast check "
    "collate collation column concurrently constraint create cross current_catalog current_date "
    "current_role current_schema current_time current_timestamp current_user default deferrable "
    "desc distinct do else end except false fetch for foreign freeze from full grant group having "
    "ilike in initially inner intersect into is isnull join lateral leading left like limit "
    "localtime localtimestamp natural not notnull null offset on only or order outer overlaps "
    "placing primary references returning right select session_user similar some symmetric "
    "system_user table tablesample then to trailing true union unique user using variadic verbose "
    "when where window with"
)
RESERVED = frozenset(WORDS.split())
Meaning = TypeVar("Meaning")


def name_of(identifier: exp.Expr) -> str:
    """Return the name that an identifier means: unquoted ones fold to lower case."""
    text = identifier.name
    return text if identifier.args.get("quoted") else text.translate(FOLD)


def quoted(name: str) -> str:
    """Return a name as it has to be written."""
    plain = name.isidentifier() and name.translate(FOLD) == name and name not in RESERVED
    return name if plain else '"' + name.replace('"', '""') + '"'


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return a hint with the names that are near one that is not known."""
    known = list(dict.fromkeys(known))
    folded = {other.lower(): other for other in known}
    near = difflib.get_close_matches(name.lower(), folded, 3, 0.6)
    if near:
        return f"did you mean {' or '.join(quoted(folded[other]) for other in near)}?"
    return f"there are {', '.join(map(quoted, known))}" if 0 < len(known) <= 20 else None


def output_name(item: exp.Expr, text: str) -> str:
    """Return the name that PostgreSQL gives to a column of a result; ``text`` is the statement."""
    if isinstance(item, exp.Alias):
        return name_of(item.args["alias"])
    while isinstance(item, exp.Paren | exp.Filter | exp.Window | exp.WithinGroup):
        item = item.this
    if "name" in item.meta:
        return str(item.meta["name"])
    if isinstance(item, exp.Cast):
        inner = output_name(item.this, text)
        return inner if inner != "?column?" else _type_name(item)
    if isinstance(item, exp.Column):
        return name_of(item.this)
    if isinstance(item, exp.Case):
        inner = output_name(item.args["default"], text) if item.args.get("default") else "case"
        return inner if isinstance(item.args.get("default"), exp.Column) else "case"
    if isinstance(item, exp.Subquery) and isinstance(item.this, exp.Select):
        return output_name(item.this.expressions[0], text)
    if isinstance(item, exp.Exists):
        return "exists"
    if isinstance(item, exp.Func) and "start" in item.meta:
        written = text[item.meta["start"] : item.meta["end"] + 1]
        return written.translate(FOLD) if written.isidentifier() else "?column?"
    if isinstance(item, exp.Trim):
        side = str(item.args.get("position"))
        return {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(side, "btrim")
    return UNWRITTEN.get(type(item), "?column?")


def _type_name(node: exp.Expr) -> str:
    """Return PostgreSQL's own name of the type that a cast names."""
    name = str(getattr(node.args["to"].this, "value", "")).upper()
    return TYPES.get(name, name.lower()) or "?column?"


TYPES = {
    "INT": "int4",
    "BIGINT": "int8",
    "SMALLINT": "int2",
    "DOUBLE": "float8",
    "FLOAT": "float4",
    "DECIMAL": "numeric",
    "BOOLEAN": "bool",
}
UNWRITTEN: dict[type[exp.Expr], str] = {
    exp.Coalesce: "coalesce",
    exp.Nullif: "nullif",
    exp.Greatest: "greatest",
    exp.Least: "least",
    exp.Extract: "extract",
    exp.Substring: "substring",
    exp.StrPosition: "position",
    exp.CurrentDate: "current_date",
    exp.CurrentTimestamp: "now",
}


@dataclass
class Names(Generic[Meaning]):
    """The columns of a FROM clause, by table; ``merged`` are those that USING has joined."""

    tables: dict[str, Sequence[tuple[str, Meaning]]] = field(default_factory=dict)
    merged: dict[str, Meaning] = field(default_factory=dict)

    def find(self, node: exp.Expr) -> Meaning | None:
        """Return what a column means here; None if there is no such column.

        Raises:
            UndefinedTableError: the column names a table, which is not here.
            AmbiguousColumnError: it may mean several.
        """
        name, table = name_of(node.this), node.args.get("table")
        if table is None and name in self.merged:
            return self.merged[name]
        if table is not None and name_of(table) not in self.tables:
            raise UndefinedTableError(
                f'missing FROM-clause entry for table "{name_of(table)}"',
                hint=nearest(name_of(table), self.tables),
                position=position(node),
            )
        places = [name_of(table)] if table is not None else list(self.tables)
        found = [known for place in places for known in self.tables[place] if known[0] == name]
        if len(found) > 1:
            raise AmbiguousColumnError(
                f'column reference "{name}" is ambiguous', position=position(node)
            )
        return found[0][1] if found else None

    def all(self, node: exp.Expr) -> list[tuple[str, Meaning]]:
        """Return the columns that * or table.* stands for."""
        table = node.args.get("table") if isinstance(node, exp.Column) else None
        if table is not None:
            if name_of(table) not in self.tables:
                raise UndefinedTableError(
                    f'missing FROM-clause entry for table "{name_of(table)}"',
                    position=position(node),
                )
            return list(self.tables[name_of(table)])
        rest = [c for known in self.tables.values() for c in known if c[0] not in self.merged]
        return [*self.merged.items(), *rest]

    def unknown(self, node: exp.Expr) -> UndefinedColumnError:
        """Return the error for a column that is not here."""
        name = name_of(node.this)
        known = [column for columns in self.tables.values() for column, _ in columns]
        return UndefinedColumnError(
            f'column "{name}" does not exist', hint=nearest(name, known), position=position(node)
        )

    def add(self, alias: str, columns: Sequence[tuple[str, Meaning]], node: exp.Expr) -> None:
        """Add a table.

        Raises:
            AmbiguousColumnError: its name is taken.
        """
        if alias in self.tables:
            raise AmbiguousColumnError(
                f'table name "{alias}" specified more than once', position=position(node)
            )
        self.tables[alias] = columns
