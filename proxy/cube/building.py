"""From a policy's source to a cube file: records -> groups of equal codes -> cells.

The file is written in a folder of mode 0700 beside its place, flushed to disk and renamed: after a
crash there is the old cube or none.  Invariant: a record adds to one cell, and a privacy unit's
records are at most ``max_rows``, chosen by the unit's own records alone.
"""

from __future__ import annotations

import hashlib
import hmac
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from itertools import chain, islice
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from proxy.cube.file import FORMAT, digest, flush
from proxy.cube.sources import coding
from proxy.cube.sources.coded import (
    BEYOND,
    CLIPPED,
    KEPT,
    NO_VALUE,
    UNITLESS,
    UNREADABLE,
    Layout,
    drops,
    grouped,
)
from proxy.cube.sources.dialect import text
from proxy.cube.sources.looks import TYPE, names
from proxy.cube.sources.source import GROUPS, TAKEN, Source, Taken, opened
from proxy.domain import Attribute
from proxy.errors import PolicyError, SourceError
from proxy.files import give
from proxy.policy import Policy

Progress = Callable[[float | None], None]  # None while nobody knows how much is done
POLL = 0.1  # seconds
LARGEST_SUM = 2**63 - 1
CELLS, PACKED = "cells.main.cells", "cells.main.packed"
SOME = 10_000  # groups that are read at once


class Rule(Struct, frozen=True):
    """What the rules of one attribute or measure meet in the source's rows."""

    name: str
    nulls: int
    outside: int  # not in the domain: clamped ones and those that cannot be read included
    unreadable: int  # no value of the type
    clipped: int  # moved into the domain or the clip
    dropped: int  # rows that this rule drops, which others may drop too


class Look(Struct, frozen=True):
    """How some of a column's values look that its type, or its list, does not have."""

    column: str
    kind: str  # of ``sources.looks``
    records: int


class Cells(Struct, frozen=True):
    """The cells of a cube, and how many of them have no record."""

    all: int
    empty: int
    columns: Mapping[str, tuple[int, int]]  # by attribute: its values, and those without a record


class Report(Struct, frozen=True):
    """The effect of a policy on its source, in exact counts: for the data steward only."""

    rows: int  # in the source
    kept: int  # records of the cube
    unitless: int  # rows without a privacy unit, dropped
    beyond: int  # rows beyond max_rows of their unit, dropped
    attributes: tuple[Rule, ...]
    measures: tuple[Rule, ...]
    looks: tuple[Look, ...] = ()
    cells: Cells | None = None  # of a survey
    taken: int = 0  # further records of the cube: of another one's closed cells, not read
    closed: date | None = None  # the day before which periods are closed
    late: int = 0  # of a survey: records of closed periods that the cube has not, or fewer
    headers: tuple[str, ...] = ()  # what was made of the names in the file's first line


def build(
    policy: Policy,
    path: Path,
    ledger_id: str,
    progress: Progress | None = None,
    key: bytes = b"",
    origin: Callable[[str, str, str], str] = lambda fingerprint, recipe, cells: "",
    taken: Taken | None = None,
) -> Report:
    """Build the cube of a policy at ``path``, for one ledger; ``progress`` gets 0 to 1, or None.

    ``key`` is that of the source's fingerprint, of which, of the recipe, and, where there are
    partitions, of the fingerprint of all cells ``origin`` says what the cells are made of; whoever
    opens the cube must know it.  Cells that are ``taken`` are those of another cube, unchanged.

    Raises:
        SourceError: the source is missing, unreadable or malformed, lacks a column, has more than
            max_records records, or a value where the policy says ``error``; or it changed while it
            was read.
        PolicyError: an expression or the query is not row by row, or does not fit its columns.
    """
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
        give(Path(folder), path.parent)
        with opened(policy, Path(folder), taken) as source:
            work = _Work(policy, source, progress, taken)
            report = work.group()
            work.refuse_errors()
            if report.kept + report.taken > policy.max_records:
                raise SourceError(
                    f"the source has more records than max_records: {policy.max_records}"
                )
            work.write()
            cells = work.fingerprint_of_cells(key) if policy.partition else ""
            found = source.fingerprint(key) or work.fingerprint(key)
            made_of = origin(found, source.recipe(), cells)
            source.require_unchanged()
            work.finish(ledger_id, made_of)
        made = Path(folder) / "cells.duckdb"
        made.chmod(0o600)
        give(made, path.parent)
        flush(made)
        made.replace(path)
    flush(path.parent)
    if progress:
        progress(1.0)
    return report


def survey(policy: Policy, closed: Taken | None = None) -> Report:
    """Return the effect of a policy on its source, without building anything.

    Of cells that are ``closed`` it says how many records have come since.

    Raises:
        SourceError, PolicyError: as ``surveyed``.
    """
    return surveyed(policy, None, closed)[0]


def surveyed(policy: Policy, key: bytes | None, closed: Taken | None = None) -> tuple[Report, str]:
    """Return the effect of a policy on its source, and with a key its fingerprint, in one reading.

    Of cells that are ``closed`` it says how many records have come since.

    Raises:
        SourceError: the source is missing, unreadable or malformed, or lacks a column.
        PolicyError: an expression or the query is not row by row, or does not fit its columns.
    """
    with tempfile.TemporaryDirectory() as folder, opened(policy, Path(folder), closed) as source:
        work = _Work(policy, source, None)
        report = replace(work.group(), cells=work.cells(), headers=source.headers())
        if closed is not None:
            report = replace(report, closed=closed.before, late=work.late(closed))
        if key is None:
            return report, ""
        return report, source.fingerprint(key) or work.fingerprint(key)


def fingerprint(policy: Policy, key: bytes) -> str:
    """Return the HMAC-SHA-256 of the source, in hex: of a file's bytes, of a table's rows.

    Of a source that is read where it lives it is that of its groups, which are all that a cube
    knows of it.  Equal sources have equal fingerprints; the order of rows does not matter.

    Raises:
        SourceError: the source cannot be read.
    """
    with tempfile.TemporaryDirectory() as folder, opened(policy, Path(folder)) as source:
        if (own := source.fingerprint(key)) is not None:
            return own
        work = _Work(policy, source, None)
        work.group()
        return work.fingerprint(key)


class _Work:
    """One run over a source, whose groups are in the sandbox."""

    def __init__(
        self,
        policy: Policy,
        source: Source,
        progress: Progress | None,
        taken: Taken | None = None,
    ) -> None:
        self.policy = policy
        self.taken = taken
        self.source = source
        self.connection = source.local
        self.progress = progress
        self.axes = policy.domain.attributes
        self.measures = policy.domain.measures
        self.layout = Layout.of(policy)
        self.codes = self.layout.codes
        self._marked = 0  # groups
        for measure in self.measures:
            if max(map(abs, measure.bounds)) * policy.max_records > LARGEST_SUM:
                raise PolicyError("sums pass 2^63 quanta", key=f"measures.{measure.name}")

    def group(self) -> Report:
        """Make GROUPS, where the source is, and count."""
        sql, columns = grouped(self.policy, self.source, self.taken), self.layout.columns
        self._run(lambda: self.source.group(sql, columns), 0.0, 0.8)
        state, kept = self.layout.state, self._kept()
        beyond = f"{state} = {BEYOND}"
        counts = [_count(each) for each in ("true", kept, f"{state} = {UNITLESS}", beyond)]
        counts.append(f"count(*) FILTER ({self.layout.marked})")
        found = self._one(f"SELECT {', '.join(counts)} FROM {GROUPS}")
        rows, records, unitless, more, self._marked = found
        rules = self._rules({a.name: self._axis_counts(i, a) for i, a in enumerate(self.axes)})
        sums = self._rules({m.name: self._measure_counts(k) for k, m in enumerate(self.measures)})
        looks = tuple(self._looks(rules + sums))
        over = self._records(_over(self.policy, self.taken)) if self.taken else 0
        return Report(rows, records, unitless, more, rules, sums, looks, taken=over)

    def late(self, closed: Taken) -> int:
        """Return how many more records closed cells would have, were they read again."""
        i = self.policy.domain.axis[closed.column]
        inside = f"{self._kept()} AND {_closed(self.policy, closed, self.codes.code(i))}"
        now = self._records(f"FROM {GROUPS} WHERE {inside}")
        return now - self._records(_over(self.policy, closed))

    def _records(self, cells: str) -> int:
        """Return the number of records of some groups or cells."""
        return self._one(f"SELECT CAST(coalesce(sum(n), 0) AS BIGINT) {cells}")[0]

    def fingerprint(self, key: bytes) -> str:
        """Return the HMAC-SHA-256 of the groups, in hex."""
        digest = hmac.new(key, repr(self.layout).encode(), hashlib.sha256)
        columns = ", ".join(self.layout.columns)
        rows = self.connection.execute(f"SELECT {columns} FROM {GROUPS} ORDER BY ALL")
        while some := rows.fetchmany(SOME):
            digest.update(repr(some).encode())
        return digest.hexdigest()

    def fingerprint_of_cells(self, key: bytes) -> str:
        """Return the HMAC-SHA-256 of the cells, in hex; their order does not matter."""
        found = self._one(
            "SELECT count(*), sum(md5_number_lower(r)), bit_xor(md5_number_upper(r))"
            f" FROM (SELECT CAST(t AS VARCHAR) AS r FROM {CELLS} AS t)"
        )
        return hmac.new(key, repr(found).encode(), hashlib.sha256).hexdigest()

    def _rules(self, counts: Mapping[str, list[str]]) -> tuple[Rule, ...]:
        """Return what rules meet, by name."""
        found = iter(self._counts(list(chain(*counts.values()))))
        return tuple(Rule(name, *islice(found, len(each))) for name, each in counts.items())

    def _counts(self, conditions: Sequence[str]) -> tuple[int, ...]:
        """Return the number of records of each condition, under which a group is marked."""
        if not conditions or not self._marked:
            return (0,) * len(conditions)
        counts = ", ".join(map(_count, conditions))
        return self._one(f"SELECT {counts} FROM {GROUPS} WHERE {self.layout.marked}")

    def _looks(self, rules: Sequence[Rule]) -> Iterator[Look]:
        """Yield how values look that are not read, the most frequent first."""
        if not self._marked:
            return
        types = [axis.type for axis in self.axes] + ["decimal"] * len(self.measures)
        for i, (rule, axis) in enumerate(zip(rules, types, strict=True)):
            look = self.layout.look(i)
            counts = f"SELECT {look} AS look, sum(n) FROM {GROUPS} WHERE {look} > 0 GROUP BY look"
            found = self.connection.execute(counts).fetchall()
            named = [(names(axis)[place - 1], int(count)) for place, count in found]
            for kind, count in sorted(named, key=lambda each: (-each[1], each[0])):
                yield Look(rule.name, kind, count)
            told = 0 if axis == "text" else sum(count for _, count in named)
            if rule.unreadable > told:
                yield Look(rule.name, TYPE, rule.unreadable - told)

    def cells(self) -> Cells:
        """Count the cells that records are in."""
        codes = [f"{self._final(i, axis)} AS c{i}" for i, axis in enumerate(self.axes)]
        distinct = f"SELECT DISTINCT {', '.join(codes)} FROM {GROUPS} WHERE {self._kept()}"
        counts = [f"count(DISTINCT c{i})" for i in range(len(self.axes))]
        filled, *by_axis = self._one(f"SELECT count(*), {', '.join(counts)} FROM ({distinct})")
        columns = {
            axis.name: (axis.size, axis.size - some)
            for axis, some in zip(self.axes, by_axis, strict=True)
        }
        return Cells(self.policy.domain.cells, self.policy.domain.cells - filled, columns)

    def refuse_errors(self) -> None:
        """Refuse a source in which a rule that says ``error`` is met."""
        met = [(axis.name, self._when(i, axis, "error")) for i, axis in enumerate(self.axes)]
        met += [
            (measure.name, f"{self.layout.met(k)} >= {UNREADABLE}")
            for k, measure in enumerate(self.measures)
            if measure.nulls == "error"
        ]
        found = self._counts([condition for _, condition in met])
        for (named, _), records in zip(met, found, strict=True):
            if records:
                raise SourceError(
                    f"{named}: NULL, or a value outside the domain, where the policy says error",
                    hint="privacy-proxy check shows how many; group or drop would go on",
                )

    def write(self) -> None:
        """Write the cells to the connection's own database: words, and a view of their codes."""
        words = ", ".join(self.codes.names)
        marked, kept = self.layout.marked, self._kept()
        final = self.codes.words([self._final(i, axis) for i, axis in enumerate(self.axes)])
        sums = ["n"]
        for k, measure in enumerate(self.measures):
            sums.append(f"s{k}")
            if measure.nullable:
                has = f"{self.layout.met(k)} < {UNREADABLE}"
                sums.append(f"CASE WHEN {has} THEN n ELSE 0 END AS p{k}")
        named = [each.rpartition(" ")[2] for each in sums]
        groups = f"SELECT {words}, {', '.join(sums)} FROM {GROUPS} WHERE {kept}"
        rows = groups
        if self._marked:  # then groups may be of one cell
            totals = [f"sum({each}) AS {each}" for each in named]
            both = [f"coalesce(g.{each}, 0) + coalesce(m.{each}, 0) AS {each}" for each in named]
            rows = (
                f"SELECT {', '.join([words, *both])} FROM ({groups} AND NOT ({marked})) AS g"
                f" FULL JOIN (SELECT {', '.join([words, *totals])} FROM (SELECT"
                f" {', '.join([*final, *sums])} FROM {GROUPS} WHERE {kept} AND ({marked}))"
                f" GROUP BY {words}) AS m USING ({words})"
            )
        whole = ", ".join(f"CAST({each} AS BIGINT) AS {each}" for each in named)
        sql = f"CREATE TABLE {PACKED} AS SELECT {words}, {whole} FROM ({rows})"
        self._run(lambda: self.connection.execute(sql), 0.8, 0.98)
        codes = [
            f"CAST({self.codes.cell(i)} AS {_unsigned(axis.size)}) AS c{i}"
            for i, axis in enumerate(self.axes)
        ]
        table = PACKED.rpartition(".")[2]  # in the view's own database, whatever it is called
        self.connection.execute(
            f"CREATE VIEW {CELLS} AS SELECT {', '.join([*codes, *named])} FROM {table}"
        )
        if self.taken:
            again = self.codes.words([f"c{i}" for i in range(len(self.axes))])
            over = f"SELECT {', '.join([*again, *named])} {_over(self.policy, self.taken)}"
            self.connection.execute(f"INSERT INTO {PACKED} {over}")

    def finish(self, ledger_id: str, origin: str) -> None:
        """Write what the cells are."""
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
        self.connection.execute(table)
        self._run(lambda: self.connection.execute("CHECKPOINT cells"), 0.98, 0.99)

    def _kept(self) -> str:
        """Return the SQL condition that the records of a group are in the cube."""
        codes = [self.codes.code(i) for i in range(len(self.axes))]
        met = [self.layout.met(k) for k in range(len(self.measures))]
        dropped = drops(self.policy, codes, met)
        if self.taken:
            code = codes[self.policy.domain.axis[self.taken.column]]
            dropped.append(_closed(self.policy, self.taken, code))
        return f"({self.layout.state} = {KEPT} AND NOT ({' OR '.join(dropped) or 'false'}))"

    def _when(self, i: int, axis: Attribute, rule: str) -> str:
        """Return the SQL condition that an axis's rules meet a value and say ``rule``."""
        met = [str(code) for code in coding.meets(axis, rule)]
        return f"({self.codes.code(i)} IN ({', '.join(met)}))" if met else "(false)"

    def _final(self, i: int, axis: Attribute) -> str:
        """Return SQL for the code of a row that is kept."""
        code, clamped = self.codes.code(i), coding.CLAMPED
        return (
            f"CASE WHEN {code} >= 0 THEN {code} WHEN {code} <= {clamped} THEN {clamped} - {code}"
            f" ELSE {len(axis.values)} END"
        )

    def _axis_counts(self, i: int, axis: Attribute) -> list[str]:
        """Return the conditions of what a Rule counts."""
        code = self.codes.code(i)
        return [
            f"{code} = {coding.NULL}",
            f"{code} <= {coding.OUTSIDE}",
            f"{code} = {coding.UNREADABLE}",
            f"{code} <= {coding.CLAMPED}",
            self._when(i, axis, "drop"),
        ]

    def _measure_counts(self, k: int) -> list[str]:
        """Return the conditions of what a Rule counts."""
        met, unread = self.layout.met(k), f"{self.layout.met(k)} = {UNREADABLE}"
        drop = f"{met} >= {UNREADABLE}" if self.measures[k].nulls == "drop" else "false"
        return [f"{met} = {NO_VALUE}", unread, unread, f"{met} = {CLIPPED}", drop]

    def _one(self, sql: str) -> tuple[int, ...]:
        """Return the one row of a query."""
        row = self.connection.execute(sql).fetchone()
        return tuple(row) if row else ()

    def _run(self, work: Callable[[], object], start: float, end: float) -> None:
        """Do what may take long, reporting progress from start to end."""
        if self.progress is None:
            work()
            return
        failed: list[BaseException] = []

        def execute() -> None:
            try:
                work()
            except BaseException as error:
                failed.append(error)

        reached = 0.0
        thread = threading.Thread(target=execute)
        thread.start()
        try:
            while thread.is_alive():
                done = self.source.progress()
                reached = max(reached, min(done or 0.0, 1.0))
                self.progress(None if done is None else start + (end - start) * reached)
                thread.join(POLL)
        except BaseException:
            self.source.interrupt()
            raise
        finally:
            thread.join()
        if failed:
            raise failed[0]
        self.progress(end)


def _over(policy: Policy, taken: Taken) -> str:
    """Return SQL for the cells that are taken over, from FROM on."""
    code = f"c{policy.domain.axis[taken.column]}"
    return f"FROM {TAKEN}.main.cells WHERE {_closed(policy, taken, code)}"


def _closed(policy: Policy, taken: Taken, code: str) -> str:
    """Return the SQL condition that a code is that of cells that are taken over."""
    axis = policy.domain.attributes[policy.domain.axis[taken.column]]
    codes = [str(i) for i, before in enumerate(axis.before(taken.before)) if before]
    return f"{code} IN ({', '.join(codes)})" if codes else "false"


def _count(condition: str) -> str:
    """Return SQL for the number of records of which a condition holds."""
    return f"CAST(coalesce(sum(n) FILTER ({condition}), 0) AS BIGINT)"


def _unsigned(size: int) -> str:
    """Return the smallest unsigned SQL type for codes below ``size``."""
    return "UTINYINT" if size <= 2**8 else "USMALLINT" if size <= 2**16 else "UINTEGER"
