"""Probes: queries that give no row whatever the data are, which tools send to learn columns.

It is decided by the text alone, and in doubt a query is no probe; then the engine's word holds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from proxy.errors import Error
from proxy.sql.parse import grammar
from proxy.sql.parse.deep_stack import deeply

PARTS = {  # of a SELECT; one with others may give a row of nothing, or do more than read
    *("with_", "expressions", "distinct", "from_", "joins", "where", "group", "order"),
    *("limit", "offset", "utility", "hint"),
}
WRITES = (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Into, exp.Lock)
SCALAR = (  # functions that are no aggregates: an aggregate gives a row of nothing
    *(exp.Cast, exp.Coalesce, exp.Case, exp.If, exp.And, exp.Or, exp.Substring, exp.Upper),
    *(exp.Lower, exp.Trim, exp.Round, exp.Abs, exp.Extract, exp.TimestampTrunc),
)
SIGNS: dict[type[exp.Expr], Callable[[Decimal, Decimal], bool]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
}


def gives_no_row(text: str) -> bool:
    """Whether a statement is a query that gives no row, whatever is in the tables it reads."""
    try:
        tokens = [t for t in grammar.tokens(text) if t.token_type is not TokenType.SEMICOLON]
        return deeply(lambda: _proven(grammar.parse(text, tokens)))
    except Error:
        return False


def _proven(tree: exp.Expr) -> bool:
    return _empty(tree) and tree.find(*WRITES) is None


def _empty(query: exp.Expr) -> bool:
    """Whether a query gives no row."""
    if _no_rows_wanted(query.args.get("limit")):
        return True
    if isinstance(query, exp.Subquery):
        return _empty(query.this)
    if isinstance(query, exp.SetOperation):
        return _empty(query.left) and _empty(query.right)
    if not isinstance(query, exp.Select) or not PARTS.issuperset(
        k for k, v in query.args.items() if v
    ):
        return False
    return _reads_nothing(query) and not _aggregates(query)


def _no_rows_wanted(limit: exp.Expr | None) -> bool:
    count = limit and limit.args.get("count" if isinstance(limit, exp.Fetch) else "expression")
    while isinstance(count, exp.Paren | exp.Cast):
        count = count.this
    return isinstance(count, exp.Literal) and count.name == "0"


def _reads_nothing(query: exp.Select) -> bool:
    """Whether no row comes to a SELECT: its condition never holds, or its source has none."""
    where, source = query.args.get("where"), query.args.get("from_")
    if where is not None and _constant(where.this) is False:
        return True
    if source is None or query.args.get("joins"):
        return False
    return isinstance(source.this, exp.Subquery) and _empty(source.this)


def _aggregates(query: exp.Select) -> bool:
    """Whether a SELECT may give a row where it reads none."""
    group = query.args.get("group")
    if group is not None:
        plain = {key for key, value in group.args.items() if value} == {"expressions"}
        grouped = (exp.Tuple, exp.Rollup, exp.Cube, exp.GroupingSets)
        if not plain or any(isinstance(each, grouped) for each in group.expressions):
            return True
    shown = [*query.expressions, query.args.get("order"), query.args.get("distinct")]
    calls = [call for part in shown if part is not None for call in part.find_all(exp.Func)]
    return not all(isinstance(call, SCALAR) for call in calls)


def _constant(node: exp.Expr) -> bool | None:
    """Return the value of a condition without columns; None: it has none that is known here."""
    if isinstance(node, exp.Paren):
        return _constant(node.this)
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Not):
        value = _constant(node.this)
        return None if value is None else not value
    if isinstance(node, exp.And | exp.Or):
        decides = isinstance(node, exp.Or)
        values = {_constant(each) for each in node.flatten()}
        if decides in values:
            return decides
        return None if None in values else not decides
    sign = SIGNS.get(type(node))
    left, right = _literal(node.args.get("this")), _literal(node.args.get("expression"))
    return None if sign is None or left is None or right is None else sign(left, right)


def _literal(node: object) -> Decimal | None:
    """Return a number."""
    if isinstance(node, exp.Paren):
        return _literal(node.this)
    return Decimal(node.name) if isinstance(node, exp.Literal) and node.is_number else None
