"""Expressions over protected rows: their columns resolved to axes and measures.

A resolved expression holds no names: columns are ``Axis`` and ``MeasureColumn`` nodes, or the
expressions that a subquery gave them; what it reads of public tables is a ``Public`` node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from sqlglot import exp

from proxy.errors import NotSupportedError, ProgrammingError, StatementTooComplexError
from proxy.sql.bins import Public
from proxy.sql.names import Names, name_of
from proxy.sql.relations import Context, Protected, Relation
from proxy.sql.scalar import flat
from proxy.sql.typed import Typed, position

if TYPE_CHECKING:
    from proxy.sql.bind import Binder

MAX_NODES = 50_000  # of one expression
JOIN = "protected rows are joined with a public table by equality of its key: ON a = b, or USING"


class Inputs:
    """The columns of protected rows."""

    def __init__(self, binder: Binder, protected: Protected, context: Context) -> None:
        self.binder = binder
        self.names = protected.names
        self.context = context

    def resolve(self, node: exp.Expr) -> exp.Expr:
        """Return an expression with its columns replaced by what they are.

        Raises:
            StatementTooComplexError: subqueries upon subqueries have made it too large.
        """
        found = self._resolve(node.copy())
        if sum(1 for _ in islice(found.walk(), MAX_NODES + 1)) > MAX_NODES:
            raise StatementTooComplexError("an expression of this statement becomes too long")
        return found

    def _resolve(self, node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column):
            return self._column(node)
        if isinstance(node, exp.Subquery | exp.Exists) or node.args.get("query"):
            return self._public(node)
        if isinstance(node, exp.Query):
            raise NotSupportedError("a subquery is not supported here", position=position(node))
        for child in list(node.iter_expressions()):
            found = self._resolve(child)
            if found is not child:
                child.replace(found)
        return node

    def _column(self, node: exp.Expr) -> exp.Expr:
        if isinstance(node.this, exp.Star):
            raise NotSupportedError("* is not supported here", position=position(node))
        known = self.names.find(node)
        if known is None:
            raise self.names.unknown(node)
        found = known.copy()
        if "start" in node.this.meta:
            found.meta["start"] = node.this.meta["start"]
        return found if not found.args or not _compound(found) else exp.Paren(this=found)

    def _public(self, node: exp.Expr) -> exp.Expr:
        """Return a subquery of public tables as a value, a list or a condition."""
        inner = node.args.get("query") or node
        query = inner.this
        bound = self.binder.query(query, replace(self.context, outer=None))
        if not bound.public:
            raise NotSupportedError(
                "rows are not selected by a result of the protected dataset",
                hint="ask for that result first, and put the number into the statement",
                position=position(node),
            )
        if len(bound.outputs) != 1 and not isinstance(node, exp.Exists):
            raise ProgrammingError("subquery must return only one column", position=position(node))
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


def _compound(node: exp.Expr) -> bool:
    return isinstance(node, exp.Binary | exp.Unary) and not isinstance(node, exp.Paren)


def with_public(
    inputs: Inputs,
    protected: Protected,
    name: str,
    relation: Relation,
    join: exp.Expr,
    where: exp.Expr | None,
) -> Protected:
    """Return protected rows with the columns of a public table, found by its key.

    The key is what ON or USING says, or, of a table after a comma, equalities in WHERE.

    Raises:
        NotSupportedError: the join is not by a key of the table.
    """
    if not relation.public:
        raise NotSupportedError(
            "protected rows are not joined with a result",
            hint="aggregate the dataset in a subquery first, then join the two results",
            position=position(join),
        )
    side, kind = join.args.get("side") or "", join.args.get("kind") or ""
    if join.args.get("method") or side not in ("", "LEFT") or kind == "SEMI" or kind == "ANTI":
        raise NotSupportedError(f"{side or kind} JOIN: {JOIN}", position=position(join))
    public = Names({name: relation.columns})
    pairs = _pairs(inputs, public, join, where)
    keys = ", ".join(typed.sql for _, typed in pairs)
    twice = inputs.binder.evaluator.rows(
        f"SELECT 1 FROM {relation.text} GROUP BY {keys} HAVING count(*) > 1 LIMIT 1", {}
    )
    if twice:
        raise NotSupportedError(
            f"several rows of {name} have the same key",
            hint="protected rows are joined with at most one row of a public table each",
            position=position(join),
        )
    operands = [operand for operand, _ in pairs]
    columns: list[tuple[str, exp.Expr]] = [
        (column, _lookup(typed.sql, typed.type, relation, pairs, operands))
        for column, typed in relation.columns
    ]
    conditions = list(protected.where)
    if side != "LEFT":
        found = _lookup("TRUE", "boolean", relation, pairs, operands)
        conditions.append(exp.Is(this=found, expression=exp.Boolean(this=True)))
    names = Names({**protected.names.tables, name: columns}, dict(protected.names.merged))
    for identifier in join.args.get("using") or ():
        column = name_of(identifier)
        first = exp.Column(this=identifier.copy())
        names.merged[column] = protected.names.find(first) or dict(columns)[column]
    return Protected(names, tuple(conditions))


def _lookup(
    sql: str,
    kind: str,
    relation: Relation,
    pairs: Sequence[tuple[exp.Expr, Typed]],
    operands: Sequence[exp.Expr],
) -> Public:
    keys = tuple((typed.sql, typed.type) for _, typed in pairs)
    return Public(
        meaning=(f"SELECT {sql} FROM {relation.text}", kind),
        expressions=[operand.copy() for operand in operands],
        keys=keys,
    )


def _pairs(
    inputs: Inputs, public: Names[Typed], join: exp.Expr, where: exp.Expr | None
) -> list[tuple[exp.Expr, Typed]]:
    """Return what of the rows equals which column of the public table."""
    pairs = []
    for identifier in join.args.get("using") or ():
        column = exp.Column(this=identifier.copy())
        typed = public.find(column)
        if typed is None:
            raise public.unknown(column)
        pairs.append((inputs.resolve(column), typed))
    on = join.args.get("on")
    if on is None and not pairs:
        parts = [part for part in _parts(where) if _key_of(part, public, inputs) is not None]
    else:
        parts = _parts(on)
    for part in parts:
        key = _key_of(part, public, inputs)
        if key is None:
            raise NotSupportedError(JOIN, position=position(part))
        operand, named = key
        typed = public.find(named)
        assert typed is not None
        pairs.append((inputs.resolve(operand), typed))
    if not pairs:
        raise NotSupportedError(JOIN, position=position(join))
    return pairs


def _parts(node: exp.Expr | None) -> list[exp.Expr]:
    """Return the conditions that are joined by AND."""
    while isinstance(node, exp.Paren):
        node = node.this
    if node is None:
        return []
    return flat(node) if isinstance(node, exp.And) else [node]


def _key_of(
    node: exp.Expr, public: Names[Typed], inputs: Inputs
) -> tuple[exp.Expr, exp.Expr] | None:
    """Return what of the rows equals which column of the public table, if a condition says so."""
    if not isinstance(node, exp.EQ):
        return None
    sides = [node.this, node.expression]
    mine = [_columns(side, public, inputs) for side in sides]
    for k in (0, 1):
        if isinstance(sides[k], exp.Column) and mine[k] and not mine[1 - k]:
            return sides[1 - k], sides[k]
    return None


def _columns(node: exp.Expr, public: Names[Typed], inputs: Inputs) -> list[exp.Expr]:
    """Return the columns of an expression that are the public table's."""
    return [
        column
        for column in node.find_all(exp.Column)
        if (
            name_of(column.args["table"]) in public.tables
            if column.args.get("table")
            else public.find(column) is not None and inputs.names.find(column) is None
        )
    ]
