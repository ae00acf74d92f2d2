"""Post-processing: the SQL around the aggregations, run over noisy answers.

The numbers of release k are the relation ``rk``: a row number ``i``, the groups ``g0, g1, ...``
and the numbers ``n0, n1, ...``.  Each column that is a number as it stands has its
``provenance`` beside it; a cell without one is derived.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, Protocol

import numpy as np

from proxy.errors import DataError, NotSupportedError, OperationalError
from proxy.sql import privacy_schema, types
from proxy.sql.evaluator.evaluator import decimal_type
from proxy.sql.evaluator.failures import no_time
from proxy.sql.program import (
    Cell,
    GroupColumn,
    Listing,
    Number,
    Origin,
    Place,
    Program,
    Release,
    Rows,
)
from proxy.sql.provenance import DERIVED, unpack

MAX_TRACED = 20_000  # numbers of a statement whose linear combinations are looked at
MAX_WINDOWED = 700  # of one with windows, whose terms may be as many as the square
FAILURES = (DataError, NotSupportedError, OperationalError)
Values = Sequence[Sequence[Sequence[int | float | None]]]  # [release][number][row]
Companions = Sequence[
    Sequence[Sequence[Sequence[float | bool | None]]]
]  # [release][number][companion][row]


class Rower(Protocol):
    """Runs SQL on released numbers: an ``Evaluator``, or the engine's ``Compiler``."""

    def rows(self, sql: str, parameters: dict[str, object]) -> Sequence[tuple[Any, ...]]:
        """Return the rows of a query with named parameters."""


def relation(release: Release, drawn: str | None = None) -> str:
    """Return the definition of a release's relation, over named parameters.

    In the wide form of a statement it has the numbers m0, m1, ..., too: NULL, or those of one draw,
    which are the columns r0m0, r0m1, ... of the relation ``drawn``, if it has a name.
    """
    name = release.name
    columns = [("i", "BIGINT", f"range({release.rows})")]
    for k, group in enumerate(release.groups):
        columns.append((f"g{k}", group_type(group), f"${name}g{k}"))
    for k, number in enumerate(release.numbers):
        columns.append((f"n{k}", numeric_type(number), f"${name}n{k}"))
        for j, companion in enumerate(number.companions):
            kind = "BOOLEAN" if companion.what == "present" else "DOUBLE"
            columns.append((f"n{k}x{j}", kind, f"${name}n{k}x{j}"))
        if drawn is not None:
            column = f"{drawn}.{name}m{k}" if drawn else "[NULL]"
            columns.append((f"m{k}", numeric_type(number), column))
    if not release.rows:  # nothing is measured, and nothing is handed in
        nothing = [f"CAST(NULL AS {kind}) AS {column}" for column, kind, _ in columns]
        return f"{name} AS (SELECT {', '.join(nothing)} WHERE FALSE)"
    parts = [f"unnest(CAST({value} AS {kind}[])) AS {column}" for column, kind, value in columns]
    return f"{name} AS (SELECT {', '.join(parts)})"


def draws(releases: Sequence[Release]) -> str:
    """Return the relation of all draws: their numbers s, and the numbers of each."""
    columns = ["unnest(range($draws)) AS s"]
    for release in releases:
        for k, number in enumerate(release.numbers if release.rows else ()):
            name = f"{release.name}m{k}"
            columns.append(f"unnest(CAST(${name} AS {numeric_type(number)}[][])) AS {name}")
    return f"(SELECT {', '.join(columns)})"


def numeric_type(number: Number) -> str:
    """Return the DuckDB type of a number."""
    return types.DUCKDB.get(number.type, f"DECIMAL(38, {number.scale})")


def group_type(group: GroupColumn) -> str:
    """Return the DuckDB type of a group column."""
    if group.type == "numeric":
        return decimal_type(value for value in group.values if isinstance(value, Decimal))
    return types.DUCKDB[group.type]


def postprocess(
    program: Program,
    values: Values,
    evaluator: Rower,
    companions: Companions = (),
    systems: Mapping[str, Sequence[Sequence[Cell]]] | None = None,
) -> Rows:
    """Return the rows of a statement, given its numbers.

    ``values[release][number][row]`` are whole numbers for counts, floats (or None) for others;
    ``companions[release][number][companion][row]`` the numbers' companions; ``systems`` the rows of
    the relations in ``program.systems``.

    Raises:
        DataError: an expression fails on the noisy answers.
    """
    if program.probe:
        return Rows(program.columns, (), ())
    if program.listing is not None:
        return _listed(program, program.listing, values[0])
    given = parameters(program, values, companions, systems)
    table = evaluator.rows(program.sql, given)
    places = {release.index: r for r, release in enumerate(program.releases)}
    width = len(program.columns)
    kinds = [column.type for column in program.columns]
    return Rows(
        program.columns,
        [tuple(map(_trimmed, row[:width], kinds)) for row in table],
        [
            tuple(None if at is None else origin(row[at], places) for at in program.provenances)
            for row in table
        ],
        [
            tuple(None if at is None else derived(row[at]) for at in program.provenances)
            for row in table
        ]
        if program.derived
        else (),
        [row[program.wide.key] for row in table] if program.wide else (),
        _linear(program, evaluator, given),
    )


def _listed(
    program: Program, listing: Listing, values: Sequence[Sequence[int | float | None]]
) -> Rows:
    """Return the rows of a statement that lists one release."""
    (release,) = program.releases
    columns: list[Sequence[Cell]] = []
    for what, k in listing.columns:
        if what == "g":
            columns.append(release.groups[k].values)
            continue
        number = release.numbers[k]
        kind = round if number.type == "bigint" else float
        cells = [value if value is None else kind(value) for value in _checked(number, values[k])]
        columns.append([_trimmed(cell, number.type) for cell in cells])
    order = listing.order or range(release.rows)
    places = [k if what == "n" else None for what, k in listing.columns]
    return Rows(
        program.columns,
        [tuple(column[i] for column in columns) for i in order],
        [tuple(None if k is None else (0, k, i) for k in places) for i in order],
    )


def parameters(
    program: Program,
    values: Values,
    companions: Companions = (),
    systems: Mapping[str, Sequence[Sequence[Cell]]] | None = None,
) -> dict[str, object]:
    """Return the parameters of a statement's SQL, as ``postprocess`` takes them."""
    parameters: dict[str, object] = {}
    for r, (release, numbers) in enumerate(zip(program.releases, values, strict=True)):
        name = release.name
        for k, group in enumerate(release.groups):
            parameters[f"{name}g{k}"] = list(group.values)
        for k, number in enumerate(release.numbers):
            parameters[f"{name}n{k}"] = _checked(number, numbers[k])
            for j in range(len(number.companions)):
                parameters[f"{name}n{k}x{j}"] = list(companions[r][k][j])
    for name in program.systems:
        rows = (systems or {}).get(name, ())
        for i in range(len(privacy_schema.TABLES[name])):
            parameters[f"sys_{name}{i}"] = [row[i] for row in rows]
    return parameters


def _linear(
    program: Program, evaluator: Rower, given: dict[str, object]
) -> dict[int, Sequence[Any]]:
    """Return the linear combinations that numbers are, by row; nothing where that is too much.

    A statement never fails for what is to be told beside its rows.
    """
    sql = program.wide.linear if program.wide else ""
    numbers = sum(release.rows * len(release.numbers) for release in program.releases)
    if sql and numbers <= (MAX_WINDOWED if " OVER (" in sql else MAX_TRACED):
        with suppress(*FAILURES):
            return {key: parts for key, *parts in evaluator.rows(sql, given)}
    return {}


def draw(
    program: Program,
    evaluator: Rower,
    parameters: dict[str, object],
    drawn: Sequence[Sequence[Sequence[Sequence[float | int | None]]]],
    count: int,
) -> Sequence[tuple[Any, ...]]:
    """Return what the columns that are known from draws are in each: draw, key of the row, values.

    ``drawn[release][number][draw][row]`` are numbers, as ``values`` of ``postprocess``; ``count``
    is the number of draws.  Where this is too much, nothing is returned.
    """
    assert program.wide is not None
    more: dict[str, object] = {"draws": count}
    for release, numbers in zip(program.releases, drawn, strict=True):
        more |= {f"{release.name}m{k}": each for k, each in enumerate(numbers)}
    with suppress(*FAILURES):
        return evaluator.rows(program.wide.drawn, parameters | more)
    return ()


def _checked(number: Number, values: Sequence[int | float | None]) -> list[int | float | None]:
    """Return a number's values; those of a bigint must fit one.

    Raises:
        DataError: one does not.
    """
    if number.type == "bigint" and not all(
        v is None or types.fits(round(v), "bigint") for v in values
    ):
        raise DataError("bigint out of range", hint="add 0.0 to have a numeric", sqlstate="22003")
    return list(values)


def _trimmed(cell: Cell, kind: str) -> Cell:
    """Return a cell as PostgreSQL shows it: a numeric that a double has become has no scale, a
    real the digits that it has.

    Raises:
        DataError: a double is not finite, or a date of a year that Python does not have.
    """
    if kind in types.TIMES and isinstance(cell, str):
        raise no_time(kind)
    if isinstance(cell, float) and not math.isfinite(cell):
        raise DataError("value out of range: overflow", sqlstate="22003")
    if isinstance(cell, float) and kind == "real":
        return float(str(np.float32(cell)))
    if isinstance(cell, Decimal) and cell.as_tuple().exponent == -types.DECIMALS:
        whole = cell.to_integral_value()
        return whole if cell == whole else cell.normalize()
    return cell


def origin(provenance: int | None, places: Mapping[int, int]) -> Origin | None:
    """Return the release, number and row of a released number; None of anything else."""
    if provenance is None:
        return None
    release, number, row = unpack(provenance)
    return None if release == DERIVED else (places[release], number, row)


def derived(provenance: int | None) -> Place | None:
    """Return a derived number and the row of its release; None of anything else."""
    if provenance is None:
        return None
    release, number, row = unpack(provenance)
    return (number, row) if release == DERIVED else None
