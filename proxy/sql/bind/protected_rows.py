"""Expressions over protected rows: their columns resolved to axes and measures.

A resolved expression holds no names: columns are ``Axis`` and ``MeasureColumn`` nodes, or the
expressions that a subquery gave them; what it reads of public tables is a ``Public`` node.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace
from sqlglot import exp

from proxy.errors import NotSupportedError, StatementTooComplexError
from proxy.sql.bind.binding import Binding
from proxy.sql.bind.names import Names
from proxy.sql.bind.relations import ProtectedRows, Scope, several_columns
from proxy.sql.bind.released_first import released_first
from proxy.sql.compile.columns import Axis, Public
from proxy.sql.parse.identifiers import name_of
from proxy.sql.parse.tree import bare_copy, flat, nodes, position

MAX_NODES = 50_000  # of one expression


class ColumnResolver:
    """The resolution of columns of protected rows to their meanings."""

    def __init__(self, binding: Binding, protected: ProtectedRows, scope: Scope) -> None:
        self.binding = binding
        self.names = protected.names
        self.rows = protected
        self.scope = scope

    def resolve(
        self, node: exp.Expr, parts: dict[int, tuple[exp.Expr, exp.Expr]] | None = None
    ) -> exp.Expr:
        """Return an expression with its columns replaced by their meanings.

        ``parts`` gets each of its parts and what became of it, by the id of the part.

        Raises:
            StatementTooComplexError: subqueries upon subqueries have made it too large.
        """
        resolved = self._resolve(node, parts)
        if len(nodes(resolved)) > MAX_NODES:
            raise StatementTooComplexError("an expression of this statement becomes too long")
        return resolved

    def _resolve(
        self, node: exp.Expr, parts: dict[int, tuple[exp.Expr, exp.Expr]] | None = None
    ) -> exp.Expr:
        """Return a resolved copy, made from left to right without recursion."""
        top = exp.Paren(this=None)
        work: list[tuple[exp.Expr, exp.Expr, str, int | None]] = [(node, top, "this", None)]
        while work:
            source, parent, key, index = work.pop()
            made = self._meaning(source)
            if made is None:
                made = bare_copy(source)
                work += reversed(list(_places(made)))
            if index is None:
                parent.args[key] = made
            else:
                parent.args[key][index] = made
            made.parent, made.arg_key, made.index = parent, key, index
            if parts is not None:
                parts[id(source)] = source, made
        resolved: exp.Expr = top.this
        resolved.parent = resolved.arg_key = None
        return resolved

    def _meaning(self, node: exp.Expr) -> exp.Expr | None:
        """Return what a column or a subquery is; None of what is copied with its parts."""
        if isinstance(node, exp.Column):
            return self._column(node)
        if isinstance(node, exp.Subquery | exp.Exists) or node.args.get("query"):
            return self._public(node.copy())
        if isinstance(node, exp.Query):
            raise NotSupportedError("a subquery is not supported here", position=position(node))
        return None

    def _column(self, node: exp.Expr) -> exp.Expr:
        if isinstance(node.this, exp.Star):
            raise NotSupportedError("* is not supported here", position=position(node))
        table = node.args.get("table")
        here = table is None or name_of(table) in self.names.tables
        meaning = self.names.find(node) if here else None
        if meaning is None and not self.is_unit(node) and (far := self.scope.unreachable(node)):
            raise far
        if not here:
            self.names.find(node)  # raises: there is no such table
        if meaning is None:
            raise self._unit(node) if self.is_unit(node) else self.names.unknown(node)
        column = bare_copy(meaning) if isinstance(meaning, Axis) else meaning.copy()
        if "start" in node.this.meta:
            column.meta["start"] = node.this.meta["start"]
        return column if not column.args or not _compound(column) else exp.Paren(this=column)

    def is_unit(self, node: exp.Expr | None) -> bool:
        """Return whether an expression is the column that says whose a row is, and that alone."""
        while isinstance(node, exp.Paren):
            node = node.this
        if self.rows.unit is None or not isinstance(node, exp.Column):
            return False
        alias, unit = self.rows.unit
        if unit.column is None or name_of(node.this).lower() != unit.column.lower():
            return False
        table = node.args.get("table")
        return (table is None or name_of(table) == alias) and self.names.find(node) is None

    def _unit(self, node: exp.Expr) -> NotSupportedError:
        """Return the error for the column that says whose a row is."""
        assert self.rows.unit is not None
        name, most = self.rows.unit[1].column, self.rows.unit[1].max_rows
        hint = (
            f"COUNT(*) counts rows, and each {name} has up to {most} of them here, so that how "
            "many different ones there are cannot be told; a dataset with max_rows: 1, which a "
            "data steward can declare, counts them"
        )
        if most == 1:
            hint = (
                f"each {name} has one row here: COUNT(*) and COUNT(DISTINCT {name}) count them, "
                "unless a join or UNION ALL has repeated rows"
            )
        return NotSupportedError(
            f'"{name}" says whose a row is, and that is protected: no statement shows it, or '
            "chooses or groups rows by it",
            hint=hint,
            position=position(node),
        )

    def _public(self, node: exp.Expr) -> exp.Expr:
        """Return a subquery of public tables, or of what is released first, as a value, a list or a
        condition.
        """
        inner = node.args.get("query") or node
        query = inner.this
        member = self._member(query) if isinstance(node, exp.Exists) else None
        if member is not None:
            return self._resolve(member)
        mark = self.binding.mark()
        around = {**(self.scope.beyond.tables if self.scope.beyond else {}), **self.names.tables}
        scope = replace(self.scope, outer=None, beyond=Names(around))
        bound = self.binding.query(query, scope)
        if not bound.public:
            self.binding.back_to(mark)
            bound = released_first(self.binding, query, self.scope)
        if len(bound.outputs) != 1 and not isinstance(node, exp.Exists):
            raise several_columns(node)
        if isinstance(node, exp.Exists):
            return Public(meaning=(f"(EXISTS ({bound.sql}))", "boolean"))
        if isinstance(node, exp.In):
            text = f"(SELECT c0 FROM ({bound.sql}))"
            operand = self._resolve(node.this)
            return Public(
                meaning=(text, bound.outputs[0].typed.type), expressions=[operand], member=True
            )
        text = f"(SELECT c0 FROM ({bound.sql}))"
        return Public(meaning=(text, bound.outputs[0].typed.type))

    def _member(self, query: exp.Expr) -> exp.Expr | None:
        """Return EXISTS (SELECT ... WHERE inner = outer AND ...) as outer IN (SELECT inner ...).

        ``outer`` is a column of the protected rows, with the name of its table.
        """
        where = query.args.get("where")
        plain = {"expressions", "from_", "where"}
        source = query.args.get("from_")
        if (
            where is None
            or source is None
            or any(v for k, v in query.args.items() if k not in plain)
        ):
            return None
        parts = flat(where.this) if isinstance(where.this, exp.And) else [where.this]
        alias = source.this.args.get("alias")
        called = alias.this if alias and alias.this else source.this.this
        inner = name_of(called) if isinstance(called, exp.Identifier) else ""
        mine = self.names.tables.keys() - {inner}

        def own(node: exp.Expr) -> bool:
            tables = (c.args.get("table") for c in node.find_all(exp.Column))
            return any(table and name_of(table) in mine for table in tables)

        keys = [part for part in parts if own(part)]
        if len(keys) != 1 or not isinstance(keys[0], exp.EQ):
            return None
        sides = sorted((keys[0].this, keys[0].expression), key=own)
        if own(sides[0]):
            return None
        rest = [part.copy() for part in parts if part is not keys[0]]
        there = exp.Not(this=exp.Paren(this=exp.Is(this=sides[0].copy(), expression=exp.Null())))
        select = exp.Select(
            expressions=[sides[0].copy()],
            from_=source.copy(),
            where=exp.Where(this=exp.and_(*rest, there)),
        )
        member = exp.In(this=sides[1].copy(), query=exp.Subquery(this=select))
        return exp.Coalesce(this=exp.Paren(this=member), expressions=[exp.false()])


def _places(node: exp.Expr) -> Iterator[tuple[exp.Expr, exp.Expr, str, int | None]]:
    """Yield the children of a node, each with the place where it is."""
    for key, value in node.args.items():
        if isinstance(value, exp.Expr):
            yield value, node, key, None
        elif isinstance(value, list):
            for i, each in enumerate(value):
                if isinstance(each, exp.Expr):
                    yield each, node, key, i


def _compound(node: exp.Expr) -> bool:
    return isinstance(node, exp.Binary | exp.Unary) and not isinstance(node, exp.Paren)
