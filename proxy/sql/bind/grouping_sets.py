"""The grouping sets of a GROUP BY: ROLLUP, CUBE, GROUPING SETS, and their products."""

from __future__ import annotations

from sqlglot import exp

from proxy.errors import NotSupportedError


def grouping_sets(group: exp.Expr) -> list[list[exp.Expr]]:
    """Return the sets of GROUP BY: the product of its items' own sets.

    Raises:
        NotSupportedError: there are more than 64, or like ones are to be left out.
    """
    every = group.args.get("all")  # False: DISTINCT
    if every and not group.expressions:
        raise NotSupportedError("GROUP BY ALL is not supported", hint="list the columns")
    sets: list[list[exp.Expr]] = [[]]
    for item in group.expressions:
        sets = [[*one, *other] for one in sets for other in _sets(item)]
        if len(sets) > 64:
            raise NotSupportedError("GROUP BY has more than 64 grouping sets")
    if every is False and len(sets) > 1:
        raise NotSupportedError(
            "GROUP BY DISTINCT is not supported",
            hint="list each set once: GROUP BY GROUPING SETS ((a, b), (a), ())",
        )
    return sets


def _sets(item: exp.Expr) -> list[list[exp.Expr]]:
    if isinstance(item, exp.Rollup):
        parts = [_members(part) for part in item.expressions]
        return [[m for part in parts[:k] for m in part] for k in range(len(parts), -1, -1)]
    if isinstance(item, exp.Cube):
        parts = [_members(part) for part in item.expressions]
        masks = range(2 ** min(len(parts), 7) - 1, -1, -1)
        width = len(parts)
        return [
            [m for i, part in enumerate(parts) if mask >> (width - 1 - i) & 1 for m in part]
            for mask in masks
        ]
    if isinstance(item, exp.GroupingSets):
        return [each for part in item.expressions for each in _inner_sets(part)]
    return [_members(item)]


def _inner_sets(part: exp.Expr) -> list[list[exp.Expr]]:
    return (
        _sets(part)
        if isinstance(part, exp.Rollup | exp.Cube | exp.GroupingSets)
        else [_members(part)]
    )


def _members(part: exp.Expr) -> list[exp.Expr]:
    if isinstance(part, exp.Tuple):
        return list(part.expressions)
    if isinstance(part, exp.Paren):
        return [part.this]
    return [part]
