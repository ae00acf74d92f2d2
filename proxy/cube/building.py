"""From a policy's source to a cube file: records -> codes and quanta -> cells.

The file is written in a folder of mode 0700 beside its place, flushed to disk and renamed: after a
crash there is the old cube or none.  Invariant: a record adds to one cell, and a privacy unit's
records are at most ``max_rows``, chosen by the unit's own records alone.
"""

from __future__ import annotations

import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

import duckdb

from proxy.cube.file import FORMAT, digest, flush
from proxy.cube.sources import coding
from proxy.cube.sources.coded import CLIPPED, INSIDE, NO_VALUE, UNREADABLE, coded
from proxy.cube.sources.duckdb import columns, connected, headers, text
from proxy.cube.sources.looks import TYPE
from proxy.cube.sources.packing import Packing
from proxy.domain import Attribute, Measure
from proxy.errors import PolicyError, SourceError
from proxy.files import give
from proxy.policy import Policy

Progress = Callable[[float], None]
POLL = 0.1  # seconds
LARGEST_SUM = 2**63 - 1


@dataclass(frozen=True)
class Rule:
    """What the rules of one attribute or measure meet in the source's rows."""

    name: str
    nulls: int
    outside: int  # not in the domain: clamped ones and those that cannot be read included
    unreadable: int  # no value of the type
    clipped: int  # moved into the domain or the clip
    dropped: int  # rows that this rule drops, which others may drop too


@dataclass(frozen=True)
class Look:
    """How some of a column's values look that its type, or its list, does not have."""

    column: str
    kind: str  # of ``sources.looks``
    records: int


@dataclass(frozen=True)
class Cells:
    """The cells of a cube, and how many of them have no record."""

    all: int
    empty: int
    columns: Mapping[str, tuple[int, int]]  # by attribute: its values, and those without a record


@dataclass(frozen=True)
class Report:
    """The effect of a policy on its source, in exact counts: for the data steward only."""

    rows: int  # in the source
    kept: int  # records of the cube
    unitless: int  # rows without a privacy unit, dropped
    beyond: int  # rows beyond max_rows of their unit, dropped
    attributes: tuple[Rule, ...]
    measures: tuple[Rule, ...]
    looks: tuple[Look, ...] = ()
    cells: Cells | None = None  # of a survey
    headers: tuple[str, ...] = ()  # what was made of the names in the file's first line


def build(
    policy: Policy,
    path: Path,
    ledger_id: str,
    progress: Progress | None = None,
    origin: str = "",
) -> Report:
    """Build the cube of a policy at ``path``, for one ledger; ``progress`` gets 0 to 1.

    ``origin`` says what the cells are made of; whoever opens the cube must know it.

    Raises:
        SourceError: the source is missing, unreadable or malformed, lacks a column, has more than
            max_records records, or a value where the policy says ``error``.
        PolicyError: an expression or the query is not row by row, or does not fit its columns.
    """
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
        give(Path(folder), path.parent)
        with connected(policy, Path(folder)) as connection:
            work = _Work(policy, connection, progress)
            report = work.code()
            work.refuse_errors()
            if report.kept > policy.max_records:
                raise SourceError(
                    f"the source has more records than max_records: {policy.max_records}"
                )
            work.write(ledger_id, origin)
        made = Path(folder) / "cells.duckdb"
        made.chmod(0o600)
        give(made, path.parent)
        flush(made)
        made.replace(path)
    flush(path.parent)
    if progress:
        progress(1.0)
    return report


def survey(policy: Policy, progress: Progress | None = None) -> Report:
    """Return the effect of a policy on its source, without building anything.

    Raises:
        SourceError: the source is missing, unreadable or malformed, or lacks a column.
        PolicyError: an expression or the query is not row by row, or does not fit its columns.
    """
    with tempfile.TemporaryDirectory() as folder, connected(policy, Path(folder)) as connection:
        work = _Work(policy, connection, progress)
        report = replace(work.code(), cells=work.cells(), headers=headers(policy))
    if progress:
        progress(1.0)
    return report


class _Work:
    """One run over a source; its temporary tables ``coded`` and ``kept`` stay in the sandbox."""

    def __init__(
        self, policy: Policy, connection: duckdb.DuckDBPyConnection, progress: Progress | None
    ) -> None:
        self.policy = policy
        self.connection = connection
        self.progress = progress
        self.axes = policy.domain.attributes
        self.measures = policy.domain.measures
        self.packing = Packing.of(self.axes)
        for measure in self.measures:
            if max(map(abs, measure.bounds)) * policy.max_records > LARGEST_SUM:
                raise PolicyError("sums pass 2^63 quanta", key=f"measures.{measure.name}")

    def code(self) -> Report:
        """Make ``coded``, a row for each row of the source, and ``kept``, and count."""
        self._run(coded(self.policy, self.connection), 0.0, 0.75)
        self._run(self._kept(), 0.75, 0.8)
        rows, unitless = self._one(
            "SELECT count(*), count(*) FILTER (unit IS NULL) FROM temp.main.coded"
        )
        rules = self._rules(
            {axis.name: self._axis_counts(i, axis) for i, axis in enumerate(self.axes)},
            self.packing.met(),
        )
        sums = self._rules(
            {measure.name: _measure_counts(k, measure) for k, measure in enumerate(self.measures)},
            " OR ".join(f"m{k} <> {INSIDE}" for k in range(len(self.measures))),
        )
        (kept,) = self._one("SELECT count(*) FROM temp.main.kept")
        (good,) = self._one(f"SELECT count(*) FILTER ({self._keep()}) FROM temp.main.coded")
        looks = tuple(self._looks(rules + sums))
        return Report(rows, kept, unitless, good - kept, rules, sums, looks)

    def _rules(self, counts: Mapping[str, list[str]], met: str) -> tuple[Rule, ...]:
        """Return what rules meet, by name; ``met`` is true where any does."""
        every = ", ".join(chain(*counts.values()))
        if not every:
            return ()
        found = iter(self._one(f"SELECT {every} FROM temp.main.coded WHERE {met}"))
        return tuple(Rule(name, *islice(found, len(each))) for name, each in counts.items())

    def _looks(self, rules: Sequence[Rule]) -> Iterator[Look]:
        """Yield how values look that are not read, the most frequent first."""
        known = columns(self.connection, "temp.main.coded")
        for i, rule in enumerate(rules):
            if f"l{i}" in known:
                counts = f"SELECT l{i}, count(*) FROM temp.main.coded WHERE l{i} IS NOT NULL"
                found = self.connection.execute(f"{counts} GROUP BY 1 ORDER BY 2 DESC, 1")
                yield from (Look(rule.name, *each) for each in found.fetchall())
            elif rule.unreadable:
                yield Look(rule.name, TYPE, rule.unreadable)

    def cells(self) -> Cells:
        """Count the cells that the records of ``kept`` are in."""
        codes = [f"{self._final(i, axis)} AS c{i}" for i, axis in enumerate(self.axes)]
        distinct = f"SELECT DISTINCT {', '.join(codes)} FROM temp.main.kept"
        counts = [f"count(DISTINCT c{i})" for i in range(len(self.axes))]
        filled, *by_axis = self._one(f"SELECT count(*), {', '.join(counts)} FROM ({distinct})")
        columns = {
            axis.name: (axis.size, axis.size - some)
            for axis, some in zip(self.axes, by_axis, strict=True)
        }
        return Cells(self.policy.domain.cells, self.policy.domain.cells - filled, columns)

    def refuse_errors(self) -> None:
        """Refuse a source in which a rule that says ``error`` is met."""
        conditions = [(a.name, self._when(i, a, "error")) for i, a in enumerate(self.axes)]
        conditions += [
            (m.name, f"m{k} >= {UNREADABLE}")
            for k, m in enumerate(self.measures)
            if m.nulls == "error"
        ]
        counts = ", ".join(f"count(*) FILTER ({condition})" for _, condition in conditions)
        met = " OR ".join([self.packing.met(), *(each for _, each in conditions[len(self.axes) :])])
        found = self._one(f"SELECT {counts} FROM temp.main.coded WHERE {met}")
        for (named, _), records in zip(conditions, found, strict=True):
            if records:
                raise SourceError(
                    f"{named}: NULL, or a value outside the domain, where the policy says error",
                    hint="privacy-proxy check shows how many; group or drop would go on",
                )

    def write(self, ledger_id: str, origin: str) -> None:
        """Write the cells and what they are to the connection's own database."""
        names = ", ".join(self.packing.names)
        met = self.packing.met()
        final = self.packing.words([self._final(i, axis) for i, axis in enumerate(self.axes)])
        rows = (
            f"SELECT * FROM temp.main.kept WHERE NOT {met} UNION ALL"
            f" SELECT {', '.join(final)}, * EXCLUDE ({names}) FROM temp.main.kept WHERE {met}"
        )
        codes = [
            f"CAST({self.packing.cell(i)} AS {_unsigned(axis.size)}) AS c{i}"
            for i, axis in enumerate(self.axes)
        ]
        sums = ["count(*) AS n"]
        for k, measure in enumerate(self.measures):
            sums.append(f"CAST(coalesce(sum(q{k}), 0) AS HUGEINT) AS s{k}")
            if measure.nullable:
                sums.append(f"count(q{k}) AS p{k}")
        self._run(
            f"CREATE TABLE cells.main.cells AS SELECT {', '.join(codes)}, * EXCLUDE ({names})"
            f" FROM (SELECT {', '.join([names, *sums])} FROM ({rows}) GROUP BY {names}"
            f" ORDER BY {names})",
            0.8,
            0.98,
        )
        meta = {
            "format": FORMAT,
            "id": uuid.uuid4().hex,
            "ledger": ledger_id,
            "origin": origin,
            "domain": digest(self.policy.domain),
            "max_records": str(self.policy.max_records),
        }
        rows = ", ".join(f"({text(key)}, {text(value)})" for key, value in meta.items())
        table = f"CREATE TABLE cells.main.meta AS FROM (VALUES {rows}) AS t(key, value)"
        self._run(table, 0.98, 0.98)
        self._run("CHECKPOINT cells", 0.98, 0.99)

    def _kept(self) -> str:
        """Return the SQL of ``kept``: the rows that no rule drops, at most max_rows of a unit."""
        condition, bound = f"{self._keep()}", ""
        if self.policy.privacy.unit.column is not None:
            content = [self.packing.code(i) for i in range(len(self.axes))]
            content += [c for k in range(len(self.measures)) for c in (f"q{k}", f"m{k}")]
            bound = (
                " QUALIFY row_number() OVER (PARTITION BY unit"
                f" ORDER BY mix, {', '.join(content)}) <= {self.policy.privacy.unit.max_rows}"
            )
        kind = "TABLE" if bound else "VIEW"
        return f"CREATE TEMP {kind} kept AS SELECT * FROM temp.main.coded WHERE {condition}{bound}"

    def _keep(self) -> str:
        """Return the SQL condition that no rule drops a row."""
        dropped = [self._when(i, axis, "drop") for i, axis in enumerate(self.axes)]
        conditions = [
            "unit IS NOT NULL",
            f"NOT ({self.packing.met()} AND ({' OR '.join(dropped)}))",
        ]
        conditions += [
            f"m{k} < {UNREADABLE}" for k, m in enumerate(self.measures) if m.nulls == "drop"
        ]
        return " AND ".join(conditions)

    def _when(self, i: int, axis: Attribute, rule: str) -> str:
        """Return the SQL condition that an axis's rules meet a value and say ``rule``."""
        # what cannot be clamped, being no value of the type at all, goes the way of NULL
        outside = axis.nulls if axis.outside == "clamp" else axis.outside
        rules = (coding.NULL, axis.nulls), (coding.OUTSIDE, outside), (coding.UNREADABLE, outside)
        met = [str(code) for code, says in rules if says == rule]
        return f"({self.packing.code(i)} IN ({', '.join(met)}))" if met else "(false)"

    def _final(self, i: int, axis: Attribute) -> str:
        """Return SQL for the code of a row that is kept."""
        code, clamped = self.packing.code(i), coding.CLAMPED
        return (
            f"CASE WHEN {code} >= 0 THEN {code} WHEN {code} <= {clamped} THEN {clamped} - {code}"
            f" ELSE {len(axis.values)} END"
        )

    def _axis_counts(self, i: int, axis: Attribute) -> list[str]:
        code = self.packing.code(i)
        return [
            f"count(*) FILTER ({code} = {coding.NULL})",
            f"count(*) FILTER ({code} <= {coding.OUTSIDE})",
            f"count(*) FILTER ({code} = {coding.UNREADABLE})",
            f"count(*) FILTER ({code} <= {coding.CLAMPED})",
            f"count(*) FILTER ({self._when(i, axis, 'drop')})",
        ]

    def _one(self, sql: str) -> tuple[int, ...]:
        """Return the one row of a query."""
        row = self.connection.execute(sql).fetchone()
        return tuple(row) if row else ()

    def _run(self, sql: str, start: float, end: float) -> None:
        """Run one statement, reporting progress from start to end."""
        if self.progress is None:
            self.connection.execute(sql)
            return
        failed: list[duckdb.Error] = []

        def execute() -> None:
            try:
                self.connection.execute(sql)
            except duckdb.Error as error:
                failed.append(error)

        reached = 0.0
        thread = threading.Thread(target=execute)
        thread.start()
        try:
            while thread.is_alive():
                share = max(0.0, self.connection.query_progress()) / 100
                reached = max(reached, min(share, 1.0))
                self.progress(start + (end - start) * reached)
                thread.join(POLL)
        except BaseException:
            self.connection.interrupt()
            raise
        finally:
            thread.join()
        if failed:
            raise failed[0]
        self.progress(end)


def _measure_counts(k: int, measure: Measure) -> list[str]:
    drop = f"m{k} >= {UNREADABLE}" if measure.nulls == "drop" else "false"
    return [
        f"count(*) FILTER (m{k} = {NO_VALUE})",
        f"count(*) FILTER (m{k} = {UNREADABLE})",
        f"count(*) FILTER (m{k} = {UNREADABLE})",
        f"count(*) FILTER (m{k} = {CLIPPED})",
        f"count(*) FILTER ({drop})",
    ]


def _unsigned(size: int) -> str:
    """Return the smallest unsigned SQL type for codes below ``size``."""
    return "UTINYINT" if size <= 2**8 else "USMALLINT" if size <= 2**16 else "UINTEGER"
