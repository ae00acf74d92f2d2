"""The SQL of ``coded``: a row for each row of the source, its values as codes and quanta.

Columns: the words w<j> (see ``packing``) of the codes c<i> of the attributes (see ``coding``); for
measure k its quanta q<k> (NULL where it has no value) and what it met, m<k>:
INSIDE, CLIPPED, UNREADABLE or NO_VALUE; l<j> for each of them that is text, what a value that is
not read looks like (see ``looks``); the privacy ``unit``, and ``mix``, which orders the rows of a
unit by their content. Selects, one in the other: the policy's expressions (e), the values they are
read as (k, x), what those that cannot be read are (d, f: a DOUBLE; z, y: whether NULL), codes and
quanta, words.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import duckdb

from proxy.cube.sources import coding, looks
from proxy.cube.sources.duckdb import (
    RECORDS,
    columns,
    connected,
    fault,
    guarded,
    text,
    translated,
)
from proxy.cube.sources.packing import Packing
from proxy.domain import Attribute, Measure, Value
from proxy.errors import Error, PolicyError, SourceError
from proxy.policy import Policy
from proxy.policy.kinds import nearest
from proxy.policy.model import Unit
from proxy.sql.source_expressions import expression
from proxy.sql.source_expressions import identifier as name

UNIT = "privacy.unit.column"
MISSING = "the source has no column"
SOME = 30  # columns that a message names
INSIDE, CLIPPED, UNREADABLE, NO_VALUE = range(4)


def coded(policy: Policy, connection: duckdb.DuckDBPyConnection) -> str:
    """Return the SQL that makes the temporary table ``coded``; lookup tables are made at once.

    Raises:
        SourceError: the source lacks a column.
        PolicyError: an expression is not a value of one record, or does not fit its columns.
    """
    axes, measures = policy.domain.attributes, policy.domain.measures
    sources, kinds = _sources(policy, connection)
    given = [f"({source}) AS e{i}" for i, source in enumerate(sources)]
    given += _unit(policy.privacy.unit)
    typed, told, out = ["unit", "mix"], ["*"], ["unit", "mix"]
    packing = Packing.of(axes)
    joins: list[str] = []
    for i, axis in enumerate(axes):
        number = axis.type in coding.NUMBERS
        far = coding.double(f"e{i}", kinds[i], f"k{i}") if number else "NULL"
        typed += [f"e{i}", f"{coding.key(axis, f'e{i}', kinds[i])} AS k{i}"]
        told += [f"{far} AS d{i}", f"{coding.null(f'e{i}', kinds[i], f'k{i}', axis.type)} AS z{i}"]
        out.append(f"CAST({_code(connection, i, axis, joins)} AS INTEGER) AS c{i}")
        if found := looks.look(f"e{i}", kinds[i], f"c{i}", axis.type, axis):
            out.append(f"CAST({found} AS VARCHAR) AS l{i}")
    for k, measure in enumerate(measures):
        e, kind = f"e{len(axes) + k}", kinds[len(axes) + k]
        typed += [e, f"{coding.number(e, kind, *coding.quanta_size(measure))} AS x{k}"]
        told += [f"{coding.double(e, kind, f'x{k}')} AS f{k}"]
        told += [f"{coding.null(e, kind, f'x{k}', 'decimal')} AS y{k}"]
        out += _measured(k, measure)
        unread = f"CASE WHEN m{k} = {UNREADABLE} THEN {coding.UNREADABLE} END"
        if found := looks.look(e, kind, unread, "decimal"):
            out.append(f"CAST({found} AS VARCHAR) AS l{len(axes) + k}")
    rows = f'SELECT {", ".join(given)} FROM {RECORDS} AS "a record"'
    rows = f"SELECT {', '.join(told)} FROM (SELECT {', '.join(typed)} FROM ({rows}))"
    rows = f"SELECT {', '.join(out)} FROM ({rows}) AS t {' '.join(joins)}"
    codes = [f"c{i}" for i in range(len(axes))]
    rows = f"SELECT {', '.join(packing.words(codes))}, * EXCLUDE ({', '.join(codes)}) FROM ({rows})"
    return f"CREATE TEMP TABLE coded AS {rows}"


def faults(policy: Policy, sources: Mapping[str, str]) -> list[Error]:
    """Return all in which a policy's columns do not fit its source; no record is read.

    ``sources`` has the SQL of each column by its key, also of those that are not in the domain.
    """
    found: list[Error] = []
    try:
        with tempfile.TemporaryDirectory() as folder, connected(policy, Path(folder)) as connection:
            known = columns(connection)
            made = dict(_parts(policy))
            for key, source in sources.items():
                try:
                    _coding(made.get(key))
                    _source(policy, connection, key, source, known)
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
        found.append(fault(policy, "source", error.message, error.hint))
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


def _sources(policy: Policy, connection: duckdb.DuckDBPyConnection) -> tuple[list[str], list[str]]:
    """Return the SQL of attributes and measures, checked, and its types."""
    known = columns(connection)
    made = []
    for key, part in _parts(policy):
        own = name(part.name) if part.source is None else part.source
        made.append(_source(policy, connection, key, own, known))
    if missing := _no_unit(policy, known):
        raise SourceError(f"{UNIT}: {missing}")
    return [source for source, _ in made], [kind for _, kind in made]


def _parts(policy: Policy) -> Iterator[tuple[str, Attribute | Measure]]:
    """Yield the columns of a policy by key."""
    yield from ((f"attributes.{axis.name}", axis) for axis in policy.domain.attributes)
    yield from ((f"measures.{measure.name}", measure) for measure in policy.domain.measures)


def _source(
    policy: Policy,
    connection: duckdb.DuckDBPyConnection,
    key: str,
    own: str,
    known: Mapping[str, str],
) -> tuple[str, str]:
    """Return the SQL of an attribute or measure, checked and translated, and its type."""
    with translated(policy, key):
        source = expression(own, known)
    with guarded(policy.source.path or policy.path, key):
        found = columns(connection, f"SELECT ({source}) AS e FROM {RECORDS}")
    return source, found["e"]


def _no_unit(policy: Policy, known: Mapping[str, str]) -> str | None:
    """Return that the source has no column of the privacy unit, if it has none."""
    unit = policy.privacy.unit.column
    if unit is None or unit.lower() in {column.lower() for column in known}:
        return None
    return f'the source has no column "{unit}"{nearest(unit, known)}'


def _unit(unit: Unit) -> list[str]:
    """Return SQL for a row's unit, and for what chooses among the rows of a unit."""
    if unit.column is None:
        return ["0 AS unit", "0 AS mix"]
    content = f'{text(unit.seed)} || CAST("a record" AS VARCHAR)'
    return [f"{name(unit.column)} AS unit", f"md5_number_lower({content}) AS mix"]


def _code(connection: duckdb.DuckDBPyConnection, i: int, axis: Attribute, joins: list[str]) -> str:
    """Return SQL for an axis's code; tables of values or cuts are made and joined as needed."""
    exact = cut = "NULL"
    if axis.edges is None:
        _values(connection, f"exact{i}", axis, axis.values)
        joins.append(f"LEFT JOIN temp.main.exact{i} ON exact{i}.v = t.k{i}")
        exact = f"exact{i}.code"
    if axis.edges is not None or axis.outside == "clamp":
        between = coding.cuts(axis)
        if len(between) <= coding.TREE:
            cut = coding.tree(f"k{i}", coding.key_type(axis), between)
        else:
            _values(connection, f"cut{i}", axis, between)
            joins.append(f"ASOF LEFT JOIN temp.main.cut{i} ON t.k{i} >= cut{i}.v")
            cut = f"coalesce(cut{i}.code + 1, 0)"
    return coding.code(axis, f"k{i}", f"d{i}", f"z{i}", exact, cut)


def _values(
    connection: duckdb.DuckDBPyConnection, table: str, axis: Attribute, values: Sequence[Value]
) -> None:
    """Make a temporary table of values and their codes."""
    connection.execute(
        f"CREATE TEMP TABLE {table} AS SELECT"
        f" CAST(unnest(?::VARCHAR[]) AS {coding.key_type(axis)}) AS v,"
        f" CAST(unnest(range({len(values)})) AS INTEGER) AS code",
        [[coding.written(value) for value in values]],
    )


def _measured(k: int, measure: Measure) -> list[str]:
    """Return SQL for a measure's quanta q<k> and state m<k>."""
    least, most = coding.ends(measure)
    quanta = coding.rounded(measure, f"x{k}", f"f{k}")
    state = (
        f"CASE WHEN y{k} THEN {NO_VALUE} WHEN coalesce(x{k}, f{k}) IS NULL THEN {UNREADABLE}"
        f" WHEN x{k} >= {least} AND x{k} <= {most} THEN {INSIDE} ELSE {CLIPPED} END"
    )
    return [
        f"CASE WHEN NOT y{k} THEN {quanta} END AS q{k}",
        f"CAST({state} AS UTINYINT) AS m{k}",
    ]
