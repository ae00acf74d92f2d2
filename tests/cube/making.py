"""Small policies, their cubes and cells, for the tests of the cube."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb

from proxy.cube import Cube, Report, build
from proxy.domain import Attribute, Domain, Measure
from proxy.inference.space import Box, Space
from proxy.policy import Policy, Privacy, Source, Unit
from proxy.policy.model import HistorySize

ROOT = Path(__file__).parent.parent.parent
ROW = Unit()


def a_policy(
    folder: Path,
    axes: Sequence[Attribute],
    measures: Sequence[Measure] = (),
    *,
    unit: Unit = ROW,
    max_records: int = 1000,
    path: str = "data.csv",
    **source: Any,
) -> Policy:
    """Return a policy over folder/path."""
    privacy = Privacy(
        Fraction(1), unit, (), (), Fraction(1, 10**4), HistorySize(10, 10), {}, "topup", "shared"
    )
    return Policy(
        folder / "policy.yaml", "data", "", Source("duckdb", folder / path, **source), max_records,
        Domain(tuple(axes), tuple(measures)), {}, None, privacy,
    )  # fmt: skip


def built(policy: Policy) -> tuple[Cube, Report]:
    """Return the cube of a policy, built anew, and its report."""
    path = policy.path.parent / "cube"
    report = build(policy, path, "ledger")
    return Cube.open(path, policy.domain, "ledger"), report


def cells(policy: Policy) -> dict[tuple[int, ...], tuple[int, ...]]:
    """Return all columns of all cells of a new cube: codes -> n, s0, p0, s1, ..."""
    built(policy)
    axes = len(policy.domain.attributes)
    with duckdb.connect(str(policy.path.parent / "cube"), read_only=True) as connection:
        rows = connection.execute("SELECT * FROM cells").fetchall()
    return {tuple(row[:axes]): tuple(map(int, row[axes:])) for row in rows}


def space(domain: Domain) -> Space:
    return Space(domain.sizes, tuple(Box(*m.bounds, m.nullable) for m in domain.measures))


def texts(*values: str, **rules: Any) -> Attribute:
    return Attribute("a", "text", values, **rules)


def edges(*ends: Any, kind: str = "integer", **rules: Any) -> Attribute:
    return Attribute("a", kind, ends[:-1], ends, **rules)


def money(low: Any, high: Any, quantum: str, **rules: Any) -> Measure:
    return Measure("m", Fraction(low), Fraction(high), Fraction(quantum), **rules)


def write(path: Path, select: str) -> None:
    """Write the rows of a SELECT to a Parquet file."""
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({select}) TO '{path}' (FORMAT parquet)")
