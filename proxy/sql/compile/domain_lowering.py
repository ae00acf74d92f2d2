"""Expressions over the public domain: an axis is the column of its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from sqlglot import exp

from proxy.domain import Domain
from proxy.errors import NotSupportedError
from proxy.sql import types
from proxy.sql.compile.columns import (
    Axis,
    MeasureColumn,
    PerBranch,
    Public,
    refuse_branches,
)
from proxy.sql.expression.lowering import Lowering, Rule, compared, signed
from proxy.sql.expression.rules import ARGUMENTS, RULES, ExpressionLowering
from proxy.sql.expression.typed import TypedSql, combine


def _public(lowering: Lowering, node: exp.Expr) -> TypedSql:
    text, kind = node.args["meaning"]
    operands = [lowering.lower(operand) for operand in node.expressions]
    if node.args.get("member"):
        left, right = compared(operands[0], TypedSql("c0", kind), "=")
        return combine(f"({left.sql} IN (SELECT {right.sql} FROM {text}))", "boolean", left)
    if not node.args.get("keys"):
        return TypedSql(text, kind)
    pairs = [
        compared(operand, TypedSql(*key), "=")
        for operand, key in zip(operands, node.args["keys"], strict=True)
    ]
    where = " AND ".join(f"{left.sql} = {right.sql}" for left, right in pairs)
    return combine(f"({text} WHERE {where})", kind, *operands)


LISTS: dict[type[exp.Expr], tuple[type[exp.Expr], str, str]] = {
    exp.Or: (exp.EQ, " = ", " IN "),
    exp.And: (exp.NEQ, " <> ", " NOT IN "),
}


def _compared(node: exp.Expr, comparison: type[exp.Expr], sign: str) -> str:
    """Return how a comparison of an axis with a literal begins; nothing for other nodes."""
    while isinstance(node, exp.Paren):
        node = node.this
    if type(node) is not comparison or not isinstance(node.this, Axis):
        return ""
    literal = isinstance(node.expression, exp.Literal) or signed(node.expression)
    return f"(d{int(node.this.this)}.v{sign}" if literal else ""


def _list(head: str, sign: str, word: str, values: Sequence[str]) -> str:
    """Return the comparison of an axis with each of some values."""
    if len(values) == 1:
        return f"{head}{values[0]})"
    return f"{head.removesuffix(sign)}{word}({', '.join(values)}))"


def _own(lowering: Lowering, node: exp.Expr) -> TypedSql:
    return lowering.column(node)


class DomainLowering(ExpressionLowering):
    """Columns are axes: axis i is ``di.v``."""

    rules: ClassVar[Mapping[type[exp.Expr], Rule]] = RULES | {
        Axis: _own,
        MeasureColumn: _own,
        Public: _public,
        PerBranch: refuse_branches,
    }
    arguments: ClassVar[Mapping[type[exp.Expr], frozenset[str]]] = ARGUMENTS | {
        Public: frozenset({"meaning", "expressions", "keys", "member"})
    }

    def __init__(self, domain: Domain) -> None:
        self.domain = domain

    def listed(
        self, kind: type[exp.Expr], operands: Sequence[exp.Expr], texts: Sequence[str]
    ) -> list[str]:
        """Return what AND or OR connects, each once; a run of comparisons of an axis as a list.

        It is the same to DuckDB, in a third of the time.  Another order would be another error.
        """
        comparison, sign, word = LISTS[kind]
        found: dict[str, dict[str, None]] = {}  # the values of each list, under its beginning
        last = ""
        for node, text in zip(operands, texts, strict=True):
            head = _compared(node, comparison, sign)
            if not head or not text.startswith(head):
                found[text], last = {}, ""
                continue
            if head != last:
                run = f"{len(found)} {head}"
            found.setdefault(run, {})[text.removeprefix(head)[:-1]] = None
            last = head
        return [
            _list(run.partition(" ")[2], sign, word, list(values)) if values else run
            for run, values in found.items()
        ]

    def column(self, node: exp.Expr) -> TypedSql:
        """Return an axis; a measure has no value of its own."""
        if isinstance(node, MeasureColumn):
            name = self.domain.measures[int(node.this)].name
            raise NotSupportedError(
                f"{name} is a measure: it can be summed, averaged and counted, and nothing else",
                hint=f"only attributes may be compared or grouped by; SUM({name}) is allowed, and "
                f"COUNT(*) - COUNT({name}) counts where it is NULL",
            )
        index = int(node.this)
        attribute = self.domain.attributes[index]
        kind = types.of_attribute(attribute)
        width = attribute.longest if attribute.type == "text" else 64
        axes, scale = frozenset([index]), attribute.decimals
        return TypedSql(f"d{index}.v", kind, axes, width=width, scale=scale)


class MeasureLowering(DomainLowering):
    """Measures have a type, and no value: for the types of what is made of them."""

    def column(self, node: exp.Expr) -> TypedSql:
        """Return an axis, or something of the type of a measure."""
        if not isinstance(node, MeasureColumn):
            return super().column(node)
        return TypedSql("m", types.of_measure(self.domain.measures[int(node.this)]))


class KnownLowering:
    """The translations of the parts of expressions, each worked out once."""

    def __init__(self, lowering: Lowering) -> None:
        self._known: dict[int, tuple[exp.Expr, TypedSql]] = {}
        self._lower = lowering.lower
        lowering.lower = self.lower  # type: ignore[method-assign]  # of the parts, too

    def lower(self, node: exp.Expr | None) -> TypedSql:
        """Return the translation of an expression, as ``Lowering.lower``."""
        if id(node) not in self._known or node is None:
            typed = self._lower(node)
            assert node is not None
            self._known[id(node)] = node, typed
        return self._known[id(node)][1]
