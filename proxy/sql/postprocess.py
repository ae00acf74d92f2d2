"""The SQL outside of the aggregations, run over noisy answers; and where each cell comes from.

The numbers of release k are the relation ``rk``: a row number ``i``, the groups ``g0, g1, ...``
and the numbers ``n0, n1, ...``.  Beside each column that is a number as it is runs a shadow, the
number's id, through every rename, ORDER BY and LIMIT; a cell without one is derived.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from proxy.sql import types
from proxy.sql.evaluate import Evaluator, decimal_type
from proxy.sql.program import Cell, GroupColumn, Origin, Program, Release, Rows

Values = Sequence[Sequence[Sequence[int | float | None]]]  # [release][number][row]


def relation(release: Release) -> str:
    """Return the definition of a release's relation, over named parameters."""
    name = release.name
    parts = [f"unnest(range({release.rows})) AS i"]
    for k, group in enumerate(release.groups):
        parts.append(f"unnest(CAST(${name}g{k} AS {group_type(group)}[])) AS g{k}")
    for k, number in enumerate(release.numbers):
        kind = "BIGINT" if number.kind == "count" else "DOUBLE"
        parts.append(f"unnest(CAST(${name}n{k} AS {kind}[])) AS n{k}")
    return f"{name} AS (SELECT {', '.join(parts)})"


def group_type(group: GroupColumn) -> str:
    """Return the DuckDB type of a group column."""
    if group.type == "numeric":
        return decimal_type(value for value in group.values if isinstance(value, Decimal))
    return types.DUCKDB[group.type]


def postprocess(program: Program, values: Values, evaluator: Evaluator) -> Rows:
    """Return the rows of a statement, given its numbers.

    ``values[release][number][row]`` are whole numbers for counts, floats (or None) for others.

    Raises:
        DataError: an expression fails on the noisy answers.
    """
    if program.probe:
        return Rows(program.columns, (), ())
    parameters: dict[str, object] = {}
    for release, numbers in zip(program.releases, values, strict=True):
        for k, group in enumerate(release.groups):
            parameters[f"{release.name}g{k}"] = list(group.values)
        for k, number in enumerate(numbers):
            parameters[f"{release.name}n{k}"] = [v for v in number]
    found = evaluator.rows(program.sql, parameters)
    width = len(program.columns)
    rows = [tuple(row[:width]) for row in found]
    origins = [
        tuple(None if at is None else origin(row[at]) for at in program.shadows) for row in found
    ]
    return Rows(program.columns, rows, origins)


def origin(shadow: int | None) -> Origin | None:
    """Return the release, number and row that a shadow stands for."""
    if shadow is None:
        return None
    return shadow >> 52, (shadow >> 32) & (2**20 - 1), shadow & (2**32 - 1)


__all__ = ["Cell", "Values", "origin", "postprocess", "relation"]
