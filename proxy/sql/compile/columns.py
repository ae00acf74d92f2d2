"""The meanings of a bound column: an axis, a measure, a public lookup, or one per branch."""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp

from proxy.errors import NotSupportedError
from proxy.sql.expression.lowering import Lowering
from proxy.sql.expression.typed import TypedSql
from proxy.sql.parse.tree import has, position


class Axis(exp.Expression):
    """A resolved column that is an axis: ``this`` is its index."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class MeasureColumn(exp.Expression):
    """A resolved column that is a measure: ``this`` is its index."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class Public(exp.Expression):
    """A lookup in public tables, as DuckDB text.

    ``meaning`` is (text of a query of one column, its type); ``keys`` (of a lookup) the columns,
    with their types, that equal the ``expressions``; ``member``: whether the expression is in it.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "meaning": True, "expressions": False, "keys": False, "member": False
    }  # fmt: skip


class PerBranch(exp.Expression):
    """An expression that differs between branches: ``expressions``, one for each."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}


def at_branch(node: exp.Expr, branch: int) -> exp.Expr:
    """Return an expression as it is in one branch."""
    if isinstance(node, PerBranch):
        return node.expressions[branch]  # type: ignore[no-any-return]
    if not has(node, PerBranch):
        return node
    return node.transform(
        lambda n: exp.Paren(this=n.expressions[branch].copy()) if isinstance(n, PerBranch) else n
    )


def repeat_branches(node: exp.Expr, times: int) -> exp.Expr:
    """Return an expression with each branch repeated, one copy after the other."""
    if times == 1 or not has(node, PerBranch):
        return node

    def more(n: exp.Expr) -> exp.Expr:
        if not isinstance(n, PerBranch):
            return n
        return PerBranch(expressions=[e.copy() for e in n.expressions for _ in range(times)])

    return node.transform(more)


def refuse_branches(_: Lowering, node: exp.Expr) -> TypedSql:
    """Refuse a column that differs between branches where one value is needed."""
    raise NotSupportedError(
        "a record may have several values of this column: in parts of UNION ALL, or in rows of a "
        "public table with the same key",
        hint="it can be counted, summed and compared; to group by it, group in each part, or join "
        "with one row for each key",
        position=position(node),
    )
