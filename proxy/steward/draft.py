"""A policy to start from, made by looking at a source: for a steward with an empty page.

``profile`` looks, and keeps nothing that few have; here it becomes axes, measures and YAML.  Bounds
are rounded outwards to round numbers and whole periods.  What a draft says becomes public, so that
a person must decide on it; it loads, and its cube can be built, without any edit.
"""

from __future__ import annotations

import datetime
import math
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import duckdb
from msgspec import Struct
from msgspec.structs import replace

import proxy.policy as policies
from proxy.cube.sources.duckdb import columns, connected
from proxy.errors import PolicyError, SourceError, UndefinedColumnError
from proxy.inference.plan import least_rate
from proxy.policy import Policy
from proxy.policy.axes import next_start, period_start
from proxy.policy.kinds import decimal, nearest
from proxy.steward.profile import FEW, MOST, SHARES, Profile, Profiler, Rows

BUDGET = 1  # alpha
DELTA = Fraction(1, 20)
SUM_COST, COUNT_COST = 0.01, 0.03  # shares of the budget, of a number over everything
CELLS = 10**7  # of the cube
FEWEST = 4  # cells of an axis that was made coarser
RANGE = 100  # whole numbers of a range
LIST = 20  # numbers of a list
REACH = 10**8  # quanta of a clip: the noise then fits 64 bits
LEADING = [Fraction(n, 10) for n in (10, 15, 20, 25, 30, 40, 50, 60, 80, 100)]
IDENTIFIER = re.compile(r"(^|[_\W])(id|uuid|guid|ssn|e?mail|phone)$", re.I)
LIKE_DATA = re.compile(r"[-+.:/ \d]*\d[-+.:/ \d]*")
DSN = re.compile(
    r"postgres(ql)?://|(host|hostaddr|port|dbname|user|password|passfile|service|sslmode)\s*="
)
WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"}
HEAD = """\
# A draft of a policy by `privacy-proxy draft`, WHICH HAS LOOKED AT THE DATA.  All that stays in
# this file becomes public, so that a person must decide on each line: put what is public knowledge
# in the place of what was read off the data, and delete what must not be told.
# Of the values only those are here that {few} {who} or more have; bounds are rounded outwards.
# `privacy-proxy check` says what each rule does to the data, `privacy-proxy init` makes the state.
"""


class Axis(Struct, frozen=True):
    """One way to make a column an attribute."""

    keys: tuple[str, ...]  # YAML, without name and column
    cells: int
    says: str
    summed: bool = False  # whether sums of it are exact, so that it needs no measure


@dataclass
class Column:
    """What becomes of a column of the source."""

    header: str
    name: str = ""
    axes: list[Axis] = field(default_factory=list)  # the finest that is left comes first
    measure: Axis | None = None
    too_wide: Axis | None = None  # that would make too many cells
    why_not: str = ""
    note: str = ""

    @property
    def summed(self) -> Axis | None:
        """The measure, where sums are not those of the attribute."""
        return None if self.axes and self.axes[0].summed else self.measure

    @property
    def choice(self) -> str:
        """What was chosen, in short."""
        chosen = [f"attribute: {self.axes[0].says}"] if self.axes else []
        chosen += [f"measure: {self.summed.says}"] if self.summed else []
        chosen += [] if chosen and not self.too_wide else [f"left out: {self.why_not}"]
        return "; ".join(chosen)


class Draft(Struct, frozen=True):
    """A policy as YAML, and what was chosen, column by column."""

    text: str
    columns: tuple[Column, ...]


def draft(
    source: str | Path,
    folder: str | Path = ".",
    *,
    table: str | None = None,
    unit: str | None = None,
) -> Draft:
    """Return a draft of a policy that will lie in ``folder``.

    The source is a file, or how to connect to a PostgreSQL, of which one table is copied to a
    temporary folder meanwhile.

    Raises:
        SourceError: the source, or its table, is missing, unreadable or malformed.
        UndefinedColumnError: it has no such column.
    """
    path = Path(source)
    remote = DSN.match(str(source)) is not None and not path.exists()
    if not remote and not path.exists() and any(sign in str(source) for sign in "*?["):
        raise SourceError(
            "a draft looks at one file",
            hint="draft one of these, and write the pattern as source.path afterwards",
        )
    stem = re.sub(r"\.(csv|gz|parquet|duckdb|d?db)$", "", re.sub(r"\.gz$", "", path.name))
    where = [f"table: {scalar(table)}"] if table else []
    if remote:
        where.insert(0, f"engine: postgres, dsn: {scalar(str(source))}")
    dataset = _name(table.rpartition(".")[2] if table else stem, set())
    try:
        with tempfile.TemporaryDirectory() as own:
            stub = Path(own) / "stub.yaml"
            here = where if remote else [_file(path.absolute()), *where]
            stub.write_text(_yaml(dataset, here, unit or "", Rows(10, 1), []), "utf-8")
            with _reading(policies.load(stub), Path(own)) as connection:
                _refuse(list(columns(connection)), unit, table if remote else path)
                seen = Profiler(connection, unit)
                counted, reserved = seen.rows(), seen.reserved()
                profiles = [seen.profile(i) for i in range(len(seen.names))]
    except PolicyError as error:
        message = re.sub(r"^.*stub\.yaml(:\d+)?: ", "", error.message)
        raise SourceError(message, hint=error.hint) from None
    rows = replace(counted, per_unit=math.ceil(_outwards(Fraction(counted.per_unit))))
    made = _columns(profiles, rows, reserved)
    _fit(made)
    if not remote:
        where.insert(0, _file(os.path.relpath(path.absolute(), Path(folder).absolute())))
    return Draft(_yaml(dataset, where, unit or "", rows, made), tuple(made))


@contextmanager
def _reading(policy: Policy, folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection that has the records of a policy in RECORDS."""
    if policy.source.engine == "duckdb":
        with connected(policy, folder) as connection:
            yield connection
        return
    from proxy.cube.sources.postgres import reading  # which takes long to import

    with reading(policy, folder) as source:
        source.copy()
        yield source.local


def _file(path: str | Path) -> str:
    return f"engine: duckdb, path: {scalar(str(path))}"


def _refuse(names: Sequence[str], unit: str | None, path: str | Path | None) -> None:
    """Refuse a unit that is no column, and a first line of data, which would become public."""
    if unit is not None and unit.lower() not in (name.lower() for name in names):
        raise UndefinedColumnError(f'the source has no column "{unit}"{nearest(unit, names)}')
    if 2 * sum(bool(LIKE_DATA.fullmatch(name)) for name in names) > len(names):
        raise SourceError(
            f"most columns of {path} have a number or a date for a name; is its first line data?",
            hint="the first line names the columns",
        )


def _columns(profiles: Sequence[Profile], rows: Rows, reserved: set[str]) -> list[Column]:
    """Return what becomes of each column, with names for SQL."""
    columns = []
    taken: set[str] = set()
    for profile in profiles:
        column = Column(profile.column, why_not=profile.why_not)
        columns.append(column)
        if not profile.column.strip() or "\0" in profile.column:
            column.why_not = "a name that is blank"
        if column.why_not:
            continue
        column.name = _name(profile.column, taken)
        taken |= {column.name, f"{column.name}_bin"}
        if column.name in reserved:
            column.note = f'; in SQL "{column.name}", quoted'
        _choose(column, profile, rows)
    return columns


def _choose(column: Column, profile: Profile, rows: Rows) -> None:
    """Choose the axes and the measure of a column, or say why it has none."""
    short = profile.listed and 0 < len(profile.values) <= LIST
    if profile.kind in ("date", "timestamp"):
        column.axes = list(_dates(profile))
        column.why_not = "nearly all have one day"
    elif profile.kind == "boolean":
        keys = ("type: boolean", *_lost(profile))
        column.axes = [Axis(keys, 2 + profile.missing, "true or false")]
    elif len(profile.values) == 1 and profile.listed and not (profile.rare or profile.missing):
        column.why_not = "nearly all have one value"
    elif IDENTIFIER.search(profile.column) and not short:
        column.why_not = "an identifier, by its name; if a row belongs to it, say --unit"
    elif profile.kind == "text":
        if len(profile.values) > MOST:
            column.why_not = f"more than {MOST} common values; list those that matter"
        else:
            column.axes = [_list(profile)]
    else:
        column.axes = list(_numbers(profile, short))
        column.measure = _measure(profile, rows)
        column.why_not = "too little spread"


def _list(profile: Profile) -> Axis:
    """Return an axis of the values that many have."""
    values = profile.values
    written = [scalar(v) if isinstance(v, str) else decimal(Fraction(repr(v))) for v in values]
    keys = f"type: {profile.kind}", f"values: [{', '.join(written)}]", *_lost(profile)
    says = f"{len(values)} values" + (", all others in one group" * bool(_lost(profile)))
    cells = len(values) + (profile.missing or profile.rare)
    return Axis(keys, cells, says, profile.kind != "text")


def _lost(profile: Profile) -> tuple[str, ...]:
    """Return the rules of a list; none where the policy's, to drop, lose few.

    What cannot be read is outside of a list, so that both rules go together; one cell is for both.
    """
    return ("outside: group", "nulls: group") if profile.missing or profile.rare else ()


def _numbers(profile: Profile, listed: bool) -> Iterator[Axis]:
    """Yield the axes of a column of numbers, the finest first."""
    low, *_, high = quantiles = [Fraction(repr(q)) for q in profile.quantiles]
    rules = "outside: clamp", *(["nulls: group"] * profile.missing)
    numbers = [int(v) for v in profile.values if profile.kind == "integer"]
    inside = [v for v in numbers if low <= v <= high]
    if len(inside) > 1:
        for values in (numbers, inside):
            first, last = min(values), max(values)
            width = last - first
            sparse = listed and width > 2 * LIST
            held = sum(first <= q <= last for q in quantiles) >= len(SHARES) - 2
            if width <= RANGE and held and not sparse:
                step = 5 if width > LIST else 1
                first, last = first // step * step, -(-last // step) * step
                keys = "type: integer", f"range: [{first}, {last}]", *rules
                cells = last - first + 1 + profile.missing
                yield Axis(keys, cells, f"each whole number from {first} to {last}", True)
                break
    if listed and len(profile.values) + (profile.missing or profile.rare) > 1:
        yield _list(profile)
    if edges := _edges(quantiles, profile.kind == "integer"):
        keys = f"type: {profile.kind}", f"edges: [{', '.join(map(decimal, edges))}]", *rules
        bins = len(edges) - 1
        yield Axis(keys, bins + profile.missing, f"{bins} bins")


def _edges(quantiles: Sequence[Fraction], whole: bool) -> list[Fraction]:
    """Return round edges of about ten bins that about as many have; none where there is no spread.

    Each is a multiple of 1, 2 or 5 · 10^k of the size of the distance to those beside it.
    """
    low, *inner, high = quantiles
    if high <= low:
        return []
    found = {Fraction(0)} if low < 0 < high else set()
    for before, at, after in zip(quantiles, inner, quantiles[2:], strict=False):
        if after > before:
            step = _step((after - before) / 2, whole)
            found.add(round(at / step) * step)
    begin = _step((inner[0] - low) or (high - low) / 10, whole)
    end = _step((high - inner[-1]) or (high - low) / 10, whole)
    first, last = low // begin * begin, (high // end + 1) * end
    return [first, *sorted(edge for edge in found if first < edge < last), last]


def _step(size: Fraction, whole: bool) -> Fraction:
    """Return the largest of 1, 2, 5 · 10^k that is no more than a size."""
    power = Fraction(10) ** math.floor(math.log10(size))
    step = max((n * power for n in (1, 2, 5) if n * power <= size), default=power)
    return max(step, Fraction(1)) if whole else step


def _outwards(size: Fraction) -> Fraction:
    """Return the least round number that is no less than a positive one."""
    power = Fraction(10) ** math.floor(math.log10(size))
    return next(n * power for n in LEADING if n * power >= size)


def _measure(profile: Profile, rows: Rows) -> Axis | None:
    """Return the measure of a column of numbers: a round clip, and a price that can be paid."""
    low, high = (Fraction(repr(profile.quantiles[i])) for i in (0, -1))
    least, most = (_outwards(abs(end)) if end else Fraction(0) for end in (low, high))
    least, most = (-least if low < 0 else Fraction(0)), (most if high > 0 else Fraction(0))
    reach = max(-least, most)
    if not reach:
        return None
    quantum = max(Fraction(1, 10**profile.places), _power(reach / REACH))
    least, most = least // quantum * quantum, -(-most // quantum) * quantum
    reach = max(-least, most)
    half, cost = _half_width(reach / quantum, quantum, rows, SUM_COST)
    keys = [f"clip: [{decimal(least)}, {decimal(most)}]", f"quantum: {decimal(quantum)}"]
    keys += [f"utility: {{half_width: {decimal(half)}, delta: {decimal(DELTA)}}}"]
    keys += ["nulls: group"] if profile.missing else []
    clip = f"{decimal(least)} to {decimal(most)}"
    return Axis(tuple(keys), 0, f"{clip}; SUM within {decimal(half)} for {cost:.1%} of the budget")


def _power(size: Fraction) -> Fraction:
    """Return the least power of ten that is no less than a size."""
    return Fraction(10) ** math.ceil(math.log10(size))


def _half_width(
    reach: Fraction, quantum: Fraction, rows: Rows, share: float
) -> tuple[Fraction, float]:
    """Return a round half-width that costs about a share of the budget, and the share it costs."""
    budget = BUDGET / rows.per_unit
    exact = reach * quantum * Fraction(math.log(1 / DELTA) / (share * budget))
    low = Fraction(10) ** math.floor(math.log10(exact))
    half = min((n * low for n in (1, 2, 5, 10)), key=lambda n: abs(math.log(n / exact)))
    return half, float(reach) * least_rate(half, float(DELTA), quantum) / budget


def _dates(profile: Profile) -> Iterator[Axis]:
    """Yield the axes of a column of dates or times, the finest first."""
    ends = [
        q.date() for q in profile.quantiles[:: len(SHARES) - 1] if isinstance(q, datetime.datetime)
    ]
    low, high = ends
    if low == high and profile.kind == "date":
        return
    days = (high - low).days
    grains = ["year"] if days > 3660 else ["month", "quarter", "year"]
    for grain in ["day", *grains] if days <= 92 else grains:
        around = "month" if grain == "day" else "year"
        first = period_start(low, around)
        end = next_start(period_start(high, around), around)
        edges = [first]
        while edges[-1] < end:
            edges.append(next_start(edges[-1], grain))
        keys = [f"type: {profile.kind}", f"from: {first}", f"to: {end - datetime.timedelta(1)}"]
        keys += [f"bin: {grain}", "outside: clamp", *(["nulls: group"] * profile.missing)]
        yield Axis(tuple(keys), len(edges) - 1 + profile.missing, f"by {grain}")


def _fit(columns: Sequence[Column]) -> None:
    """Bring the cube to CELLS at most: the widest axis is made coarser, or left out.

    Bins of a measure are left out first, for its sums stay; then what can be coarser is, at least
    by half, but not to less than FEWEST cells; last goes what is wide.
    """
    while math.prod(c.axes[0].cells for c in columns if c.axes) > CELLS:
        there = [c for c in reversed(columns) if c.axes]  # of equals the last goes
        sums = [c for c in there if c.summed]
        coarser = [c for c in there if len(c.axes) > 1
                   and FEWEST <= c.axes[1].cells <= c.axes[0].cells // 2]  # fmt: skip
        bins = [c for c in sums if not c.too_wide]
        widest = max(bins or coarser or sums or there, key=lambda c: c.axes[0].cells)
        widest.too_wide = widest.too_wide or widest.axes[0]
        widest.why_not = f"{widest.too_wide.says}: too many cells"
        widest.axes = [] if bins or not coarser else widest.axes[1:]


def _name(header: str, taken: set[str]) -> str:
    """Return a name for SQL that needs no quotes, unlike those that are taken."""
    name = re.sub(r"\W+", "_", header.strip().lower()).strip("_") or "data"
    name = f"_{name}" if name[:1].isdigit() else name
    name = name.encode()[:48].decode(errors="ignore")
    numbered = (f"{name}_{n}" for n in range(2, len(taken) + 3))
    return next(n for n in (name, *numbered) if not {n, f"{n}_bin"} & taken)


def scalar(text: str) -> str:
    """Return a text as YAML in one line, quoted where it needs to be."""
    if re.fullmatch(r"[A-Za-z_][\w./-]*", text, re.ASCII) and text.lower() not in WORDS:
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08X}" for c in escaped) + '"'


def _yaml(
    dataset: str,
    source: Sequence[str],
    unit: str,
    rows: Rows,
    columns: Sequence[Column],
) -> str:
    """Return the policy as YAML with comments."""
    who = "units" if unit else "records"
    records = max(rows.magnitude, 10**4 * 10 ** len(str(rows.per_unit)))
    half, cost = _half_width(Fraction(1), Fraction(1), rows, COUNT_COST)
    lines = [
        HEAD.format(few=FEW, who=who),
        f"dataset: {scalar(dataset)}",
        f"source: {{{', '.join(source)}}}",
        f"max_records: {records:_}  # public: no more records than this can be in the data",
        "",
        "outside: drop  # a record with a value outside the domain, or with a NULL, is left out",
        f"nulls: drop  # where no other rule stands below: fewer than {FEW} {who} by each rule",
        "",
        "attributes:  # what can be grouped by, at the price of one group, and filtered by",
    ]
    axes = [c for c in columns if c.axes]
    lines += [_attribute(c, c.axes[0]) for c in axes]
    if not axes:
        lines += ["  # No column is fit to be one, and there must be one:"]
        lines += ['  everybody: {expression: "1", type: integer, range: [1, 1]}']
    if measures := [c for c in columns if c.summed]:
        lines += ["", "measures:  # what can be summed; a value beyond the clip counts as its end"]
        lines += [_line(c.name, c.header, c.summed, c.summed.says) for c in measures if c.summed]
    lines += [
        "",
        "privacy:",
        f"  budget: {BUDGET}  # alpha: nobody's odds change by more than e^it",
    ]
    if unit:
        lines.append(
            f"  unit: {{column: {scalar(unit)}, max_rows: {rows.per_unit}}}  # whose a row is; most"
            " have no more rows, the others lose the rest, and a charge counts so many times"
        )
    else:
        lines.append(
            "  unit: row  # a person of several rows is not protected: draft --unit COLUMN"
        )
    lines += ["", f"utility: {{half_width: {decimal(half)}, delta: {decimal(DELTA)}}}"
              f"  # of counts that say nothing: {cost:.1%} of the budget"]  # fmt: skip
    if too_wide := [c for c in columns if c.too_wide]:
        lines += ["", f"# Attributes in place of others; all would be more than {CELLS:,} cells:"]
        lines += [f"#{_attribute(c, c.too_wide)}" for c in too_wide if c.too_wide]
    if left_out := [c for c in columns if not c.axes and not c.summed and not c.too_wide]:
        lines += ["", "# Left out:"]
        lines += [f"#   {scalar(c.header)}: {c.why_not}" for c in left_out]
    return "\n".join(lines) + "\n"


def _attribute(column: Column, axis: Axis) -> str:
    """Return the line of an attribute; where a measure has the name, it is that of bins."""
    name = column.name + "_bin" * (column.summed is not None)
    beyond = "; what lies beyond is put into the ends" * ("outside: clamp" in axis.keys)
    return _line(name, column.header, axis, axis.says + beyond + column.note)


def _line(name: str, header: str, axis: Axis, says: str) -> str:
    """Return the line of an attribute or a measure."""
    column = () if name == header else (f"column: {scalar(header)}",)
    return f"  {scalar(name)}: {{{', '.join((*column, *axis.keys))}}}  # {says}"
