"""What the editor knows of a dataset, and the statements that a newcomer can begin with.

All of it follows from the policy alone, which every user may see.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from proxy.catalog import relation
from proxy.domain import Attribute, Value
from proxy.policy import Policy, Utility
from proxy.sql.parse.identifiers import quoted

MOST = 20_000  # declared values of a column that the editor is given
FEW = range(3, 13)  # values of an attribute by which a first chart is grouped
GENERAL = Utility(Fraction(100), Fraction(5, 100))  # of counts, where a policy says nothing


def schema(policy: Policy) -> dict[str, Any]:
    """Return tables, their columns and the declared values, written as SQL has them."""
    table = relation(policy)
    values: dict[str, list[str]] = {}
    for axis in policy.domain.attributes:
        values[axis.name] = [literal(value) for value in axis.values[:MOST]]
        for level, groups in (axis.levels or {}).items():
            values[level] = [literal(label) for label in list(groups)[:MOST]]
    columns = [
        {
            "name": column.name,
            "written": quoted(column.name),
            "type": column.type,
            "comment": comment,
            "values": values.get(column.name, []),
        }
        for column, comment in zip(table.columns, table.comments, strict=True)
    ]
    return {
        "tables": [{"name": table.name, "written": quoted(table.name), "columns": columns}],
        "utility": utilities(policy),
        "largest": largest(policy),
    }


def literal(value: Value) -> str:
    """Return a value as it is compared with in SQL."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str | datetime.date):
        return "'" + str(value).replace("'", "''") + "'"
    return str(value)


def utilities(policy: Policy) -> dict[str, list[float]]:
    """Return the policy's defaults, [half_width, delta], of counts and of ``SUM(measure)``."""
    told: dict[str, list[float]] = {}
    general: Mapping[str, Utility | None] = {"COUNT": policy.utility}
    sums = {f"SUM({name})": wish for name, wish in policy.measure_utility.items()}
    for name, wish in {**general, **sums}.items():
        if wish is not None and not wish.relative:
            told[name] = [float(wish.half_width), float(wish.delta)]
    return told


def largest(policy: Policy) -> float:
    """Return the largest half-width that makes sense to choose, a power of ten."""
    most = max(Fraction(policy.max_records), *_widths(policy)) / 10
    digits = len(str(int(most)))
    return float(10 ** max(digits, 3))


def _widths(policy: Policy) -> list[Fraction]:
    wishes = [policy.utility, *policy.measure_utility.values()]
    return [Fraction(0), *(20 * wish.half_width for wish in wishes if wish and not wish.relative)]


def starters(policy: Policy) -> list[dict[str, str]]:
    """Return statements to begin with, the first of which is in the editor of a newcomer."""
    table, wish = quoted(policy.dataset), policy.utility or GENERAL
    unit = " PERCENT" if wish.relative else ""
    clause = f"WITH UTILITY ({float(wish.half_width):g}{unit}, {float(wish.delta):g})"
    axes = sorted(policy.domain.attributes, key=_place)
    found = []

    def add(title: str, *lines: str) -> None:
        found.append({"title": title, "sql": "\n".join(lines)})

    for axis in axes[:1]:
        name = quoted(axis.name)
        add(
            f"How many, by {axis.name}",
            f"SELECT {name}, COUNT(*) AS n",
            f"FROM {table}",
            f"GROUP BY {name}",
            clause,
        )
    add("How many in all", "SELECT COUNT(*) AS n", f"FROM {table}", clause)
    if len(axes) > 1 and axes[0].size * axes[1].size <= 100:
        pair = f"{quoted(axes[0].name)}, {quoted(axes[1].name)}"
        add(
            f"By {axes[0].name} and {axes[1].name}",
            f"SELECT {pair}, COUNT(*) AS n",
            f"FROM {table}",
            f"GROUP BY {pair}",
            clause,
        )
    ordered = [a for a in axes[1:] if a.type in ("integer", "date") and 5 < a.size <= 400]
    for axis in ordered[:1]:
        name = quoted(axis.name)
        add(
            f"Along {axis.name}",
            f"SELECT {name}, COUNT(*) AS n",
            f"FROM {table}",
            f"GROUP BY {name}",
            f"ORDER BY {name}",
            clause,
        )
    for measure in list(policy.measure_utility)[:1]:
        by = quoted(axes[0].name)
        total = f"SELECT {by}, SUM({quoted(measure)}) AS total"
        add(f"Sum of {measure}", total, f"FROM {table}", f"GROUP BY {by}")
    return found


def _place(axis: Attribute) -> tuple[bool, int]:
    """Return the place of an axis among those to begin with: few groups, but some."""
    return axis.size not in FEW, axis.size
