"""The SQL of groups: a row for all records of the same codes, with their number and their sums.

Columns: the words w<j> (see ``packing``) of the codes of the attributes (see ``coding``); the words
v<j> of marks, which are what became of the record as one of its unit (KEPT, BEYOND, UNITLESS), what
each measure met (INSIDE, CLIPPED, UNREADABLE or NO_VALUE), and what each column that is not read
looks like (see ``looks``); the number of records n; and for measure k the sum of its quanta, s<k>.

Selects, one in the other: the policy's expressions (e), the values that they are read as (k, x),
what those that cannot be read are (d, f: the sign of a number; z, y: whether NULL), codes c, quanta
q, marks m and looks l; words.  Where records are of units, the rows of each are then put in an
order that its own rows alone decide, by codes and quanta, so that it is the same from any source.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

from msgspec import Struct

from proxy.cube.sources import coding, looks
from proxy.cube.sources.dialect import Dialect, text
from proxy.cube.sources.duckdb import fault, translated
from proxy.cube.sources.packing import Packing
from proxy.cube.sources.source import Source, Taken, opened
from proxy.domain import Attribute, Measure
from proxy.errors import Error, PolicyError, SourceError
from proxy.policy import Policy
from proxy.policy.kinds import nearest
from proxy.sql.source_expressions import identifier as name

UNIT = "privacy.unit.column"
MISSING = "the source has no column"
SOME = 30  # columns that a message names
INSIDE, CLIPPED, UNREADABLE, NO_VALUE = range(4)
KEPT, BEYOND, UNITLESS = range(3)
LOOK = 4  # bits


class Layout(Struct, frozen=True):
    """Where groups have what: ``codes`` of attributes, and marks in the order of the docstring."""

    codes: Packing
    marks: Packing
    measures: int

    @classmethod
    def of(cls, policy: Policy) -> Layout:
        """Return the layout of a policy's groups."""
        axes, measures = policy.domain.attributes, len(policy.domain.measures)
        sizes = [2] * (1 + measures) + [LOOK] * (len(axes) + measures)
        return cls(Packing.of(axes), Packing.of_bits(sizes, "v"), measures)

    @property
    def columns(self) -> list[str]:
        """The columns of groups."""
        sums = [f"s{k}" for k in range(self.measures)]
        return [*self.codes.names, *self.marks.names, "n", *sums]

    @property
    def state(self) -> str:
        """SQL for what became of a record as one of its unit."""
        return self.marks.cell(0)

    @property
    def marked(self) -> str:
        """The SQL condition that a rule is met, or that anything is to be said of a record."""
        return " OR ".join([self.codes.met(), *(f"{word} <> 0" for word in self.marks.names)])

    def met(self, k: int) -> str:
        """Return SQL for what a measure met."""
        return self.marks.cell(1 + k)

    def look(self, i: int) -> str:
        """Return SQL for what an attribute, or after all of them a measure, looks like."""
        return self.marks.cell(1 + self.measures + i)


def grouped(policy: Policy, source: Source, taken: Taken | None = None) -> str:
    """Return the SQL of the groups, without those that are taken over from another cube.

    Raises:
        SourceError: the source lacks a column.
        PolicyError: an expression is not a value of one record, or does not fit its columns.
    """
    layout, measures = Layout.of(policy), range(len(policy.domain.measures))
    every = len(policy.domain.attributes) + len(measures)
    rows = rows_coded(policy, source, taken)
    state = str(KEPT)
    if policy.privacy.unit.column is not None:
        rows = _in_order(policy, source, layout, rows)
        most = policy.privacy.unit.max_rows
        state = (
            f"CASE WHEN unit IS NULL THEN {UNITLESS} WHEN dropped = 0 AND place > {most}"
            f" THEN {BEYOND} ELSE {KEPT} END"
        )
    long = source.dialect.long
    marks = [state, *(f"m{k}" for k in measures), *(f"l{i}" for i in range(every))]
    quanta = "".join(f", q{k}" for k in measures)
    keys = ", ".join([*layout.codes.names, *layout.marks.names])
    rows = (
        f"SELECT {', '.join([*layout.codes.names, *layout.marks.words(marks, long)])}{quanta}"
        f" FROM ({rows}) AS r6"
    )
    sums = "".join(f", coalesce(sum(q{k}), 0) AS s{k}" for k in measures)
    return f"SELECT {keys}, count(*) AS n{sums} FROM ({rows}) AS r7 GROUP BY {keys}"


def rows_coded(policy: Policy, source: Source, taken: Taken | None = None) -> str:
    """Return the SQL of the records: words w, quanta q, marks m, looks l, unit, and if dropped.

    Those before the day of ``taken`` are left out: once values are read, and before, where the
    source can skip them so and no value is to be an error.
    """
    axes, measures, dialect = policy.domain.attributes, policy.domain.measures, source.dialect
    sources, kinds = _sources(policy, source)
    unit, text_of_unit = _unit(policy, source)
    plain = [dialect.plain(f"({sql})", kind) for sql, kind in zip(sources, kinds, strict=True)]
    given = [f"{sql} AS e{i}" for i, (sql, _) in enumerate(plain)]
    given += [f"{unit} AS unit", f"{text_of_unit} AS whose"]
    kinds = [kind for _, kind in plain]
    typed, told, out = ["unit", "whose"], [], ["unit", "whose"]
    packing = Packing.of(axes)
    joins: list[str] = []
    for i, axis in enumerate(axes):
        number = axis.type in coding.NUMBERS
        far = dialect.far(f"e{i}", kinds[i], f"k{i}") if number else "CAST(NULL AS INTEGER)"
        typed += [f"e{i}", f"{coding.key(axis, f'e{i}', kinds[i], dialect)} AS k{i}"]
        null = coding.null(f"e{i}", kinds[i], f"k{i}", axis.type, dialect)
        told += [f"{far} AS d{i}", f"{null} AS z{i}"]
        out += [f"{_code(source, i, axis, kinds[i], joins)} AS c{i}", f"t.e{i}"]
    for k, measure in enumerate(measures):
        e, kind = f"e{len(axes) + k}", kinds[len(axes) + k]
        typed += [e, f"{dialect.number(e, kind, *coding.quanta_size(measure))} AS x{k}"]
        told += [f"{dialect.far(e, kind, f'x{k}')} AS f{k}"]
        told += [f"{coding.null(e, kind, f'x{k}', 'decimal', dialect)} AS y{k}"]
        out += [*_measured(k, measure, source), f"t.{e}"]
    once, early, late = dialect.fence, "", ""
    if taken is not None:
        i = policy.domain.axis[taken.column]
        late = _not_taken(axes[i], f"k{i}", taken, dialect)
        skipped = dialect.skips(plain[i][0], kinds[i])
        if skipped and "error" not in (axes[i].nulls, axes[i].outside):
            early = _not_taken(axes[i], skipped, taken, dialect)
    rows = f"SELECT {', '.join(given)} FROM {source.records} AS a_record{early}{once}"
    rows = f"SELECT {', '.join(typed)} FROM ({rows}) AS r1{once}"
    rows = f"SELECT r2.*, {', '.join(told)} FROM ({rows}) AS r2{late}{once}"
    rows = f"SELECT {', '.join(out)} FROM ({rows}) AS t {' '.join(joins)}{once}"
    shown = [
        looks.look(f"e{i}", kinds[i], f"c{i}", axis.type, axis, dialect)
        for i, axis in enumerate(axes)
    ]
    for k in range(len(measures)):
        unread = f"CASE WHEN m{k} = {UNREADABLE} THEN {coding.UNREADABLE} ELSE 0 END"
        at = len(axes) + k
        shown.append(looks.look(f"e{at}", kinds[at], unread, "decimal", None, dialect))
    words = packing.words([f"c{i}" for i in range(len(axes))], dialect.long)
    words += [c for k in range(len(measures)) for c in (f"q{k}", f"m{k}")]
    words += [f"{look} AS l{i}" for i, look in enumerate(shown)]
    codes, met = [f"c{i}" for i in range(len(axes))], [f"m{k}" for k in range(len(measures))]
    dropped = " OR ".join(drops(policy, codes, met)) or "false"
    words += ["unit", "whose", f"CASE WHEN {dropped} THEN 1 ELSE 0 END AS dropped"]
    return f"SELECT {', '.join(words)} FROM ({rows}) AS r3"


def _not_taken(axis: Attribute, value: str, taken: Taken, dialect: Dialect) -> str:
    """Return WHERE, by which a value is not before the day, or is to be an error."""
    found = f" WHERE {value} >= {coding.literal(taken.before, axis.type.upper(), dialect)}"
    if "error" in (axis.nulls, axis.outside):
        first = coding.literal(min(axis.values), axis.type.upper(), dialect)
        found += f" OR {value} IS NULL OR {value} < {first}"
    return found


def drops(policy: Policy, codes: Sequence[str], met: Sequence[str]) -> list[str]:
    """Return SQL conditions under which a rule drops a record, of its codes and what was met."""
    found = [
        f"{code} IN ({', '.join(map(str, says))})"
        for code, axis in zip(codes, policy.domain.attributes, strict=True)
        if (says := coding.meets(axis, "drop"))
    ]
    measures = zip(met, policy.domain.measures, strict=True)
    return found + [f"{each} >= {UNREADABLE}" for each, m in measures if m.nulls == "drop"]


def _in_order(policy: Policy, source: Source, layout: Layout, rows: str) -> str:
    """Return records with their place among those of their unit that no rule drops.

    Records of the same codes and quanta are numbered, so that each has a chance of its own.
    """
    of = [c for k in range(layout.measures) for c in (f"q{k}", f"m{k}")]
    content = [*layout.codes.names, *of]
    same = ", ".join(["unit", "dropped", *content])
    rows = (
        f"SELECT r4.*, row_number() OVER (PARTITION BY {same} ORDER BY w0) AS copy"
        f" FROM ({rows}) AS r4"
    )
    parts = [
        f"coalesce(CAST({part} AS {source.dialect.string}), '')"
        for part in ("whose", *content, "copy")
    ]
    mix = source.dialect.digest([text(policy.privacy.unit.seed), *parts])
    return (
        f"SELECT r5.*, row_number() OVER (PARTITION BY unit, dropped ORDER BY {mix}) AS place"
        f" FROM ({rows}) AS r5"
    )


def faults(policy: Policy, sources: Mapping[str, str]) -> list[Error]:
    """Return all in which a policy's columns do not fit its source; no record is read.

    ``sources`` has the SQL of each column by its key, also of those that are not in the domain.
    """
    found: list[Error] = []
    try:
        with tempfile.TemporaryDirectory() as folder, opened(policy, Path(folder)) as source:
            known = source.columns
            made = dict(parts(policy))
            for key, sql in sources.items():
                try:
                    _coding(made.get(key))
                    _source(policy, source, key, sql)
                except (PolicyError, SourceError) as error:
                    words = error.message.removeprefix(f"{key}: ")
                    placed = isinstance(error, PolicyError) and error.file
                    hint = error.hint or (_columns(known) if MISSING in words else None)
                    found.append(error if placed else fault(policy, key, words, hint))
            if missing := _no_unit(policy, known):
                found.append(fault(policy, UNIT, missing, _columns(known)))
    except PolicyError as error:
        found.append(error)
    except SourceError as error:
        key = "source.query" if error.message.startswith("source.query: ") else "source"
        found.append(fault(policy, key, error.message.removeprefix(f"{key}: "), error.hint))
    return found


def _columns(known: Mapping[str, str]) -> str:
    """Return the source's columns in words, with the blanks around their names."""
    names = [name if name == name.strip() else f"'{name}' with blanks around it" for name in known]
    more = f" and {len(names) - SOME} more" if len(names) > SOME else ""
    return f"its columns are {', '.join(names[:SOME])}{more}"


def _coding(part: Attribute | Measure | None) -> None:
    """Refuse what cannot be coded, whatever its source."""
    match part:
        case Measure():
            coding.quanta(part)
        case Attribute():
            coding.key_type(part)
            if part.outside == "clamp":
                coding.cuts(part)


def _sources(policy: Policy, source: Source) -> tuple[list[str], list[str]]:
    """Return the SQL of attributes and measures, checked, and its types."""
    made = []
    for key, part in parts(policy):
        own = name(part.name) if part.source is None else part.source
        made.append(_source(policy, source, key, own))
    if missing := _no_unit(policy, source.columns):
        raise SourceError(f"{UNIT}: {missing}")
    return [sql for sql, _ in made], [kind for _, kind in made]


def parts(policy: Policy) -> Iterator[tuple[str, Attribute | Measure]]:
    """Yield the columns of a policy by key."""
    yield from ((f"attributes.{axis.name}", axis) for axis in policy.domain.attributes)
    yield from ((f"measures.{measure.name}", measure) for measure in policy.domain.measures)


def _source(policy: Policy, source: Source, key: str, own: str) -> tuple[str, str]:
    """Return the SQL of an attribute or measure, checked and translated, and its type."""
    with translated(policy, key):
        sql = source.expression(own)
    return sql, source.kind(sql, key)


def _no_unit(policy: Policy, known: Mapping[str, str]) -> str | None:
    """Return that the source has no column of the privacy unit, if it has none."""
    unit = policy.privacy.unit.column
    found = [column for column in known if unit is not None and column.lower() == unit.lower()]
    if len(found) > 1:
        return f'the source has several columns "{unit}", in different cases'
    if unit is None or found:
        return None
    return f'the source has no column "{unit}"{nearest(unit, known)}'


def _unit(policy: Policy, source: Source) -> tuple[str, str]:
    """Return SQL for a record's privacy unit, and for its text."""
    unit, dialect = policy.privacy.unit.column, source.dialect
    if unit is None:
        return "0", "''"
    known = next(each for each in source.columns if each.lower() == unit.lower())
    value, kind = dialect.plain(dialect.name(known), source.columns[known])
    return dialect.unit(value, kind), dialect.unit_text(value, kind)


def _code(source: Source, i: int, axis: Attribute, column: str, joins: list[str]) -> str:
    """Return SQL for an axis's code; relations of values or cuts are joined as needed."""
    exact = cut = "NULL"
    kind = coding.key_type(axis, column, source.dialect)
    if kind == "BIGINT" and coding.consecutive(axis):
        exact = coding.counted(axis, f"k{i}", source.dialect)
    elif axis.edges is None:
        values = [coding.written(value) for value in axis.values]
        join, exact = source.equal(f"t.k{i}", kind, values, f"exact{i}")
        joins.append(join)
    if axis.edges is not None or axis.outside == "clamp":
        between = coding.cuts(axis)
        if kind == "BIGINT":  # what is whole is at or past a cut if at or past the next whole one
            between = [math.ceil(Fraction(cut)) for cut in between]  # type: ignore[arg-type]
        if len(between) <= coding.TREE:
            cut = coding.tree(f"k{i}", kind, between, source.dialect)
        else:
            values = [coding.written(value) for value in between]
            join, cut = source.below(f"t.k{i}", kind, values, f"cut{i}")
            joins.append(join)
    return coding.code(axis, f"k{i}", f"d{i}", f"z{i}", exact, cut, kind, source.dialect)


def _measured(k: int, measure: Measure, source: Source) -> list[str]:
    """Return SQL for a measure's quanta q<k> and what it met, m<k>."""
    least, most = coding.ends(measure, source.dialect)
    quanta = coding.rounded(measure, f"x{k}", f"f{k}", source.dialect)
    met = (
        f"CASE WHEN y{k} THEN {NO_VALUE} WHEN x{k} IS NULL AND f{k} IS NULL THEN {UNREADABLE}"
        f" WHEN x{k} >= {least} AND x{k} <= {most} THEN {INSIDE} ELSE {CLIPPED} END"
    )
    return [f"CASE WHEN NOT y{k} THEN {quanta} END AS q{k}", f"{met} AS m{k}"]
