"""Numbers that nothing reads: no statement measures them, or pays for them.

The aggregates in the list of a subquery in FROM, of a WITH or of a view are left out where the rest
of the statement does not name their column: NULL stands for them.  Only names are looked at, so
that what may be read is always there.  Invariant: rows, their order and all other columns are the
same without them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from sqlglot import exp

from proxy.sql.expression.aggregates import aggregates
from proxy.sql.parse.identifiers import name_of, output_name
from proxy.sql.parse.tree import nodes

Names = Counter[str]
LISTS = ("distinct", "qualify", "windows", "connect")  # what makes each column matter


def named(tree: exp.Expr) -> Names | None:
    """Return how often each name is in a tree; None where columns are read without their names."""
    names: Names = Counter()
    for node in nodes(tree):
        if isinstance(node, exp.Star) and not isinstance(node.parent, exp.Count):
            return None
        if isinstance(node, exp.Join) and node.method == "NATURAL":
            return None
        if isinstance(node, exp.Identifier):
            names[name_of(node)] += 1
    return names


def left_out(tree: exp.Expr, text: str) -> exp.Expr | None:
    """Return a statement without the numbers that nothing in it reads; None if it has none."""
    places = [i for i, node in enumerate(nodes(tree)) if _is_derived(node)]
    names = named(tree) if places else None
    if names is None:
        return None
    copied = tree.copy()
    found = nodes(copied)
    changed = False
    for place in places:
        query = found[place].this
        columns = [output_name(item, text) for item in query.expressions]
        changed |= _leave_out(query, names, columns)
    return copied if changed else None


def view_left_out(tree: exp.Expr, columns: Sequence[str], read: Names) -> exp.Expr:
    """Return a view, of these columns, without the numbers that nothing reads; ``read`` has the
    names in it too.
    """
    if not isinstance(tree, exp.Select) or len(columns) != len(tree.expressions):
        return tree
    copied = tree.copy()
    return copied if _leave_out(copied, read, columns) else tree


def _is_derived(node: exp.Expr) -> bool:
    """Return whether a node is a subquery in FROM or a WITH whose columns have their own names."""
    if not isinstance(node.this, exp.Select) or not node.alias:
        return False
    alias = node.args.get("alias")
    if isinstance(alias, exp.TableAlias) and alias.columns:
        return False
    if isinstance(node, exp.CTE):
        return not (node.parent and node.parent.args.get("recursive"))
    return isinstance(node, exp.Subquery) and isinstance(node.parent, exp.From | exp.Join)


def _leave_out(query: exp.Select, names: Names, columns: Sequence[str]) -> bool:
    """Put NULL for the aggregates in a list that are not read; return whether there are any."""
    if any(query.args.get(each) for each in LISTS):
        return False
    order = query.args.get("order")
    places = {o.this.name for o in (order.expressions if order else ()) if o.this.is_number}
    kept = bool(query.args.get("group"))
    items = list(zip(query.expressions, columns, strict=True))
    unread = []
    for place, (item, column) in enumerate(items, 1):
        calls = list(aggregates(item))
        own = _names_in([item])
        if not calls or names[column] > own[column] or str(place) in places or _is_more(item):
            kept |= bool(calls)
        else:
            unread.append((item, column))
    if not kept:  # without any aggregate it would be no aggregation
        unread = unread[1:]
    for item, column in unread:
        item.replace(exp.alias_(exp.Null(), exp.to_identifier(column, quoted=True)))
    return bool(unread)


def _is_more(item: exp.Expr) -> bool:
    """Return whether an item of a list has more in it than aggregates."""
    return any(isinstance(node, exp.Query | exp.Window) for node in nodes(item))


def _names_in(items: Iterable[exp.Expr]) -> Names:
    return Counter(
        name_of(node) for item in items for node in nodes(item) if isinstance(node, exp.Identifier)
    )
