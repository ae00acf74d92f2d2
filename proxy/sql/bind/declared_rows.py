"""Rows that stand for groups of the domain: each is there, whether a record is in it or not.

Where their numbers are shown, a group without records shows itself; where the rows are counted,
listed or looked up, a notice says what they are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlglot import exp

from proxy.sql.bind.binding import Binding
from proxy.sql.compile.groups import Key
from proxy.sql.expression.aggregates import aggregates, is_aggregate
from proxy.sql.parse.identifiers import quoted


def notice(keys: Sequence[Key], columns: Collection[str]) -> str:
    """Return the notice about the rows of a GROUP BY or DISTINCT; ``columns`` are those read."""
    named = all(key.name in columns for key in keys)
    listed = ", ".join(quoted(key.name) for key in keys) if named else "..."
    each = "group" if not named else f"value of {listed}"
    each = f"combination of {listed}" if named and len(keys) > 1 else each
    estimate = f"COUNT(DISTINCT {listed}) estimates how many records have, and "
    return (
        f"there is a row for every declared {each}, whether a record has it or not: "
        f"{estimate if named and len(keys) == 1 else ''}GROUP BY {listed} HAVING COUNT(*) > 5, "
        "for example, leaves out those of few records or none"
    )


def tell(binding: Binding, text: str) -> None:
    """Add the notice, once."""
    if text and text not in binding.notices:
        binding.notices.append(text)


def counted(node: exp.Expr, windows_only: bool = False) -> bool:
    """Return whether a SELECT aggregates its rows by more than sums, which no empty row moves."""
    order, qualify = node.args.get("order"), node.args.get("qualify")
    items = [*node.expressions, *(order.expressions if order else ())]
    items += [each.this for each in (node.args.get("having"), qualify) if each]
    calls = [window.this for item in items for window in item.find_all(exp.Window)]
    if not windows_only:
        calls += [call for item in items for call in aggregates(item)]
    calls = [call for call in calls if is_aggregate(call)]
    return any(not isinstance(c.this if isinstance(c, exp.Filter) else c, exp.Sum) for c in calls)
