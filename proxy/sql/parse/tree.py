"""Nodes of sqlglot trees: their position, their text, their operands."""

from __future__ import annotations

from sqlglot import exp

from proxy.errors import SQLSyntaxError


def position(node: exp.Expr | None) -> int | None:
    """Return the 1-based position of a node in the statement, if it is known."""
    if node is None:
        return None
    if "start" in node.meta:  # of a column that stands for an expression, its own place
        return int(node.meta["start"]) + 1
    starts = [n.meta["start"] for n in node.walk() if "start" in n.meta]
    return min(starts) + 1 if starts else None


def as_sql(node: exp.Expr) -> str:
    """Return an expression as PostgreSQL text, or the name of its kind if it has none."""
    try:
        return node.sql(dialect="postgres", comments=False)
    except (ValueError, TypeError, AttributeError):  # it holds resolved columns, or half a tree
        return node.key.upper()


def flat(node: exp.Expr) -> list[exp.Expr]:
    """Return the operands of a chain of one connector, left to right, without recursion."""
    kind, stack, out = type(node), [node], []
    while stack:
        item = stack.pop()
        if type(item) is kind:
            stack += [item.expression, item.this]
        elif isinstance(item, exp.Paren) and type(item.this) is kind:
            stack.append(item.this)
        else:
            out.append(item)
    return out


COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
}


def conjuncts(node: exp.Expr) -> list[exp.Expr]:
    """Return the conjuncts of a condition."""
    while isinstance(node, exp.Paren):
        node = node.this
    if not isinstance(node, exp.And):
        return [node]
    return [inner for part in flat(node) for inner in conjuncts(part)]


def refuse_constant(node: exp.Expr, clause: str) -> None:
    """Refuse a constant that is not an ordinal.

    Raises:
        SQLSyntaxError: it is one, in PostgreSQL's words.
    """
    bare = node
    while isinstance(bare, exp.Paren):
        bare = bare.this
    number = isinstance(bare, exp.Literal) and not bare.is_string and bare.name.isdigit()
    if isinstance(bare, exp.Literal | exp.Boolean | exp.Null) and not number:
        raise SQLSyntaxError(f"non-integer constant in {clause}", position=position(node))
