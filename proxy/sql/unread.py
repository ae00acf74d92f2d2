"""Numbers that nothing reads: no statement measures them, or pays for them.

The aggregates in the list of a subquery in FROM, of a WITH or of a view are left out where the rest
of the statement does not name their column: NULL stands for them.  Only names are looked at, so
that what may be read is always there.  Invariant: rows, their order and all other columns are the
same without them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

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
    found = nodes(tree)
    places = [i for i, node in enumerate(found) if _is_derived(node)]
    names = named(tree) if places else None
    if names is None:
        return None
    columns = [[output_name(item, text) for item in found[i].expressions] for i in places]
    unread = [_unread(found[i], own, names) for i, own in zip(places, columns, strict=True)]
    return _without(tree, dict(zip(places, unread, strict=True))) if any(unread) else None


def views_left_out(
    views: Mapping[str, exp.Expr], columns: Mapping[str, Sequence[str]], read: Names | None
) -> dict[str, exp.Expr]:
    """Return the views that change without the numbers that nothing reads.

    ``read`` are the names in the statement, to which those in the views that it reads come.
    """
    waiting = set(views)
    while read is not None and (used := next(filter(read.__getitem__, waiting), None)):
        waiting.remove(used)  # perhaps through others
        names = named(views[used])
        read = read + names if names is not None else None
    changed: dict[str, exp.Expr] = {}
    if read is None:
        return changed
    for name in views.keys() - waiting:
        view = views[name]
        fits = isinstance(view, exp.Select) and len(columns[name]) == len(view.expressions)
        if fits and (unread := _unread(view, columns[name], read)):
            changed[name] = _without(view, {0: unread})
    return changed


def _is_derived(node: exp.Expr) -> bool:
    """Return whether a SELECT is in FROM or a WITH, and its columns have their own names."""
    around = node.parent
    if not isinstance(node, exp.Select) or around is None or not around.alias:
        return False
    if around.this is not node or around.args["alias"].args.get("columns"):
        return False
    if isinstance(around, exp.CTE):
        return not (around.parent and around.parent.args.get("recursive"))
    return isinstance(around, exp.Subquery) and isinstance(around.parent, exp.From | exp.Join)


def _unread(query: exp.Expr, columns: Sequence[str], names: Names) -> dict[int, str]:
    """Return the places in a list of aggregates that no name reads, and their columns."""
    if any(query.args.get(each) for each in LISTS):
        return {}
    order = query.args.get("order")
    numbers = {o.this.name for o in (order.expressions if order else ()) if o.this.is_number}
    kept = bool(query.args.get("group"))
    unread = {}
    for place, (item, column) in enumerate(zip(query.expressions, columns, strict=True)):
        inside = nodes(item)
        own = sum(isinstance(node, exp.Identifier) and name_of(node) == column for node in inside)
        more = any(isinstance(node, exp.Query | exp.Window) for node in inside)
        aggregated = bool(list(aggregates(item)))
        if not aggregated or more or names[column] > own or str(place + 1) in numbers:
            kept |= aggregated
        else:
            unread[place] = column
    if unread and not kept:  # without any aggregate it would be no aggregation
        del unread[min(unread)]
    return unread


def _without(tree: exp.Expr, unread: Mapping[int, Mapping[int, str]]) -> exp.Expr:
    """Return a tree with NULL for what is unread in the lists of the nodes at these places."""
    copied = tree.copy()
    found = nodes(copied)
    for place, items in unread.items():
        lists = found[place].expressions
        for at, column in items.items():
            lists[at].replace(exp.alias_(exp.Null(), exp.to_identifier(column, quoted=True)))
    return copied
