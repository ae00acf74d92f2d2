"""Name resolution by PostgreSQL's rules: folding, lookup, and the errors where it fails.

Invariant: a name that is not quoted is lower case, a quoted one is as it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sqlglot import exp

from proxy.errors import AmbiguousColumnError, UndefinedColumnError, UndefinedTableError
from proxy.sql.parse.identifiers import name_of, nearest
from proxy.sql.parse.tree import position

Meaning = TypeVar("Meaning")


@dataclass
class Names(Generic[Meaning]):
    """The columns of a FROM clause, by table; ``merged`` are those that USING has joined."""

    tables: dict[str, Sequence[tuple[str, Meaning]]] = field(default_factory=dict)
    merged: dict[str, Meaning] = field(default_factory=dict)

    def find(self, node: exp.Expr) -> Meaning | None:
        """Return the meaning of a column; None if there is no such column.

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
        matching = [
            column for place in places for column in self.tables[place] if column[0] == name
        ]
        if len(matching) > 1:
            raise AmbiguousColumnError(
                f'column reference "{name}" is ambiguous', position=position(node)
            )
        return matching[0][1] if matching else None

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
        rest = [c for columns in self.tables.values() for c in columns if c[0] not in self.merged]
        return [*self.merged.items(), *rest]

    def unknown(self, node: exp.Expr) -> UndefinedColumnError:
        """Return the error for a column that is not here."""
        name = name_of(node.this)
        candidates = [column for columns in self.tables.values() for column, _ in columns]
        return UndefinedColumnError(
            f'column "{name}" does not exist',
            hint=nearest(name, candidates),
            position=position(node),
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
