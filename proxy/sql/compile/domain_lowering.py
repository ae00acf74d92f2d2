"""Expressions over the public domain: an axis is the column of its values."""

from __future__ import annotations

from collections.abc import Mapping
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
from proxy.sql.expression.lowering import Lowering, Rule, compared
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

    def column(self, node: exp.Expr) -> TypedSql:
        """Return an axis; a measure has no value of its own."""
        if isinstance(node, MeasureColumn):
            name = self.domain.measures[int(node.this)].name
            raise NotSupportedError(
                f"{name} is a measure: it can be summed, averaged and counted, and nothing else",
                hint=f"only attributes may be compared or grouped by; SUM({name}) is allowed",
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

    def __init__(self, lowering: DomainLowering) -> None:
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
