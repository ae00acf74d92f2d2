"""All that an expression may be made of, in one table: what each kind of node means.

``ExpressionLowering`` is what others derive from; only how a column is resolved is theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from sqlglot import exp

from proxy.sql.expression import (
    casts,
    date_functions,
    functions,
    lowering,
    text_functions,
)
from proxy.sql.expression.lowering import Arguments, Lowering, Rule, Rules

RULES: Rules = (
    lowering.RULES | casts.RULES | functions.RULES | text_functions.RULES | date_functions.RULES
)
ARGUMENTS: Arguments = (
    lowering.ARGUMENTS | functions.ARGUMENTS | text_functions.ARGUMENTS | date_functions.ARGUMENTS
)


class ExpressionLowering(Lowering):
    """The translation of expressions, with every rule there is."""

    rules: ClassVar[Mapping[type[exp.Expr], Rule]] = RULES
    arguments: ClassVar[Mapping[type[exp.Expr], frozenset[str]]] = ARGUMENTS
