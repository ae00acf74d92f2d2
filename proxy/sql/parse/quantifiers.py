"""Comparisons with a list (ANY, ALL) and of rows, as IN and comparisons of single values.

Invariant: the tree means what it meant; all that comes after sees no list but that of IN.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from proxy.errors import DataError, NotSupportedError, StatementTooComplexError
from proxy.sql.parse.literals import elements
from proxy.sql.parse.tree import COMPARISONS, nodes, position

COMPARING = (*COMPARISONS, exp.Like, exp.ILike, exp.In)
MAX_NODES = 50_000  # of the comparisons with each value of a list, in one statement


def expand(found: Sequence[exp.Expr]) -> bool:
    """Replace the comparisons with lists among the nodes of a tree; return whether there are any.

    Raises:
        NotSupportedError, DataError: a list is not supported, or malformed.
    """
    room, changed = MAX_NODES, False
    for node in reversed(found):
        if not isinstance(node, COMPARING):
            continue
        listed = node.expression
        if _members(node.this) and not node.args.get("query"):
            comparison = _rows(node, room)
        elif isinstance(listed, exp.Any | exp.All) or _named(listed):
            comparison = _compared(node, listed, room)
        else:
            continue
        room -= 0 if isinstance(comparison, exp.In) else len(nodes(comparison))
        node.replace(comparison)
        changed = True
    return changed


def _members(node: object) -> list[exp.Expr] | None:
    """Return the values of a row, (a, b) or ROW(a, b); None for other nodes."""
    if isinstance(node, exp.Tuple) or (
        isinstance(node, exp.Anonymous) and node.name.upper() == "ROW"
    ):
        return list(node.expressions)
    return None


def _rows(node: exp.Expr, room: int) -> exp.Expr:
    """Return the comparison of a row with another, or with those of a list."""
    left = _members(node.this) or []
    others = node.expressions if isinstance(node, exp.In) else [node.expression]
    rights = [_members(other) or [] for other in others]
    if not isinstance(node, exp.In | exp.EQ | exp.NEQ) or {len(left)} != {len(r) for r in rights}:
        raise NotSupportedError(
            "rows are compared by =, <> and IN with rows of as many values",
            hint="compare their values one by one: a = 1 AND b = 2",
            position=position(node),
        )
    if len(others) * len(nodes(node.this)) > room:
        raise _too_long(node)
    kind, join = (exp.NEQ, exp.or_) if isinstance(node, exp.NEQ) else (exp.EQ, exp.and_)
    parts = [
        join(*(kind(this=a.copy(), expression=b) for a, b in zip(left, right, strict=True)))
        for right in rights
    ]
    return exp.Paren(this=exp.or_(*parts, copy=False))


def _too_long(node: exp.Expr) -> StatementTooComplexError:
    return StatementTooComplexError(
        "values are compared with lists that are too long", position=position(node)
    )


def _named(node: object) -> bool:
    """Return whether a node is ALL (...) or SOME (...), which the parser takes for functions."""
    return isinstance(node, exp.Anonymous) and node.name.upper() in ("ALL", "SOME")


def _compared(node: exp.Expr, listed: exp.Expr, room: int) -> exp.Expr:
    """Return the comparison of a value with some or all of a list."""
    every = isinstance(listed, exp.All) or listed.name.upper() == "ALL"
    source = next(iter(listed.expressions), None) if _named(listed) else listed.this
    same = isinstance(node, exp.NEQ if every else exp.EQ)
    value = node.this
    while isinstance(source, exp.Paren):
        source = source.this
    if not isinstance(source, exp.Expr):
        raise _refused(listed)
    if isinstance(source, exp.Subquery | exp.Query):
        if not same:
            raise _refused(listed)
        query = source if isinstance(source, exp.Subquery) else exp.Subquery(this=source)
        membership: exp.Expr = exp.In(this=value, query=query)
    elif isinstance(source, exp.Null):
        return exp.Null()
    else:
        items = _items(source, listed)
        if not items:
            return exp.Boolean(this=every)
        if not same:
            return _each(node, items, every, room)
        membership = exp.In(this=value, expressions=items)
    return exp.Paren(this=exp.Not(this=membership)) if every else membership


def _each(node: exp.Expr, items: list[exp.Expr], every: bool, room: int) -> exp.Expr:
    """Return the comparison with each value, joined by AND or OR."""
    if len(items) * len(nodes(node.this)) > room:
        raise _too_long(node)
    node.set("expression", None)  # the list, which is not to be copied for each of its values
    parts = []
    for item in items:
        part = node.copy()
        part.set("expression", item)
        parts.append(exp.Paren(this=part))
    return exp.Paren(this=exp.and_(*parts, copy=False) if every else exp.or_(*parts, copy=False))


def _items(source: exp.Expr, listed: exp.Expr) -> list[exp.Expr]:
    """Return the values of a list: of ARRAY[...], of an array literal, of either with a cast."""
    if isinstance(source, exp.Cast) and source.to.is_type(exp.DType.ARRAY):
        kinds = source.to.expressions
        return [exp.Cast(this=v, to=kinds[0].copy()) for v in _items(source.this, listed)]
    if isinstance(source, exp.Literal) and source.is_string:
        try:
            texts = elements(source.name)
        except DataError as error:
            error.position = position(source)
            raise
        values: list[exp.Expr] = [exp.Null() if v is None else exp.Literal.string(v) for v in texts]
        for value in values:
            value.meta.update(source.meta)
        return values
    nested = any(item.find(exp.Query) for item in source.expressions)
    if isinstance(source, exp.Array | exp.Tuple) and not nested:
        return list(source.expressions)
    raise _refused(listed)


def _refused(listed: exp.Expr) -> NotSupportedError:
    return NotSupportedError(
        "ANY and ALL take a list, and with = ANY or <> ALL a subquery",
        hint="write ANY (ARRAY[1, 2]), ANY ('{1, 2}'), or IN (1, 2)",
        position=position(listed),
    )
