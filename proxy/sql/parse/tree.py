"""Nodes of sqlglot trees: their position, their text, their operands."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TypeVar

from sqlglot import exp

from proxy.errors import SQLSyntaxError

Kind = TypeVar("Kind", bound=exp.Expr)
WHOLE = ("smallint", "int", "bigint")


def nodes(tree: exp.Expr) -> list[exp.Expr]:
    """Return the nodes of a tree in the order of sqlglot's own walk, in a third of its time."""
    found = [tree]
    for node in found:
        for value in node.args.values():
            if isinstance(value, exp.Expr):
                found.append(value)
            elif isinstance(value, list):
                found += [each for each in value if isinstance(each, exp.Expr)]
    return found


def find_all(tree: exp.Expr, *kinds: type[Kind]) -> list[Kind]:
    """Return the nodes of some kinds, in the order of ``nodes``."""
    return [node for node in nodes(tree) if isinstance(node, kinds)]


def has(tree: exp.Expr, *kinds: type[exp.Expr]) -> bool:
    """Return whether a tree has a node of some kinds."""
    return any(isinstance(node, kinds) for node in nodes(tree))


def unread(node: exp.Expr, known: Collection[str]) -> str | None:
    """Return the first argument that a node has, FALSE too, and that is not among the known."""
    for name, value in node.args.items():
        if name not in known and value is not None and value != []:
            return name
    return None


def bare_copy(node: exp.Expr) -> exp.Expr:
    """Return a copy of a node whose children are still those of the node itself."""
    copy = type(node)()
    for name, value in node.args.items():
        copy.args[name] = list(value) if isinstance(value, list) else value
    if node.comments is not None:
        copy.comments = list(node.comments)
    if node._meta is not None:  # sqlglot's property would make one
        copy.meta.update(node._meta)
    copy._type = node._type
    return copy


def position(node: exp.Expr | None) -> int | None:
    """Return the 1-based position of a node in the statement, if it is known."""
    if node is None:
        return None
    if "start" in node.meta:  # of a column that stands for an expression, its own place
        return int(node.meta["start"]) + 1
    starts = [n._meta["start"] for n in nodes(node) if n._meta is not None and "start" in n._meta]
    return min(starts) + 1 if starts else None


def as_sql(node: exp.Expr) -> str:
    """Return an expression as PostgreSQL text, or the name of its kind if it has none."""
    try:
        return node.sql(dialect="postgres", comments=False)
    except (ValueError, TypeError, AttributeError):  # it holds resolved columns, or half a tree
        return called(node) or "an expression"


def called(node: exp.Expr) -> str:
    """Return how people call a node: its function or its operator; nothing of what has no name."""
    if "name" in node.meta:
        return str(node.meta["name"])
    if isinstance(node, exp.Query):
        return node.key.upper()  # SELECT, UNION, INTERSECT or EXCEPT
    parts = {"this": exp.Var(this="x"), "expression": exp.Var(this="y")}
    if isinstance(node, exp.Binary | exp.Unary):
        written = type(node)(**parts if isinstance(node, exp.Binary) else {"this": parts["this"]})
        try:
            text = written.sql(dialect="postgres")
        except ValueError:  # PostgreSQL has none
            return ""
        match = re.fullmatch(r"x (.*[^\s()]) y|([^\s()]+) ?x", text)
        return (match[1] or match[2]) if match else ""
    return node.sql_name().lower() if isinstance(node, exp.Func) else ""


def whole_number(node: object) -> int | None:
    """Return the number that digits are, in brackets and casts to whole numbers or not."""
    while isinstance(node, exp.Paren) or (isinstance(node, exp.Cast) and node.to.is_type(*WHOLE)):
        node = node.this
    return int(node.name) if isinstance(node, exp.Literal) and node.name.isdigit() else None


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
SIGNS = {kind: sign for kind, sign in COMPARISONS.items() if not sign.startswith("IS")}


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


def quoted_text(node: exp.Expr | None) -> str | None:
    """Return a text that is written out, also one that drivers cast to text; None for another."""
    node = _bare(node)
    return node.name if isinstance(node, exp.Literal) and node.is_string else None


def is_null(node: exp.Expr | None) -> bool:
    """Return whether a value is NULL as it is written: a parameter before it has a value."""
    return isinstance(_bare(node), exp.Null)


def _bare(node: exp.Expr | None) -> exp.Expr | None:
    """Return a value without brackets around it, and casts to text."""
    while isinstance(node, exp.Paren) or (
        isinstance(node, exp.Cast)
        and node.to.is_type("text", "varchar")
        and not node.to.expressions
    ):
        node = node.this
    return node
