"""What the rows of EXPLAIN UTILITY, whose columns are ``reports.EXPLAINED``, say together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Rows = Sequence[Sequence[Any]]


def first_cost(rows: Rows) -> float:
    """Return what the first step of a statement costs, in alpha.

    Groups have nobody in common, so that a number costs what its dearest group does; numbers, of
    which one begins where the label changes or a group comes again, add up.
    """
    first, dearest = 0.0, 0.0
    number, groups = None, set[str | None]()
    for label, group, _, cost, *_ in rows:
        if label != number or group in groups:
            first, dearest, number, groups = first + dearest, 0.0, label, set()
        groups.add(group)
        dearest = max(dearest, cost)
    return first + dearest


def in_steps(rows: Rows) -> bool:
    """Return whether a number is met in steps, each as the answers before it require."""
    return any(row[2] == "measured" and row[4] is None for row in rows)
