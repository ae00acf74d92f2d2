"""The tables that FROM may name: the protected dataset, public tables, the schema ``privacy``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlglot import exp

from proxy.domain import Attribute, Domain, Value
from proxy.errors import (
    DataError,
    NotSupportedError,
    StatementTooComplexError,
    UndefinedTableError,
)
from proxy.policy import Unit
from proxy.sql import privacy_schema, types
from proxy.sql.bind.binding import Binding
from proxy.sql.bind.names import Names
from proxy.sql.bind.relations import ProtectedRows, Relation
from proxy.sql.compile.columns import Axis, MeasureColumn
from proxy.sql.evaluator.failures import no_time
from proxy.sql.expression import intervals
from proxy.sql.expression.typed import TypedSql, coerce
from proxy.sql.parse.identifiers import nearest
from proxy.sql.parse.tree import position


def dataset(domain: Domain, unit: Unit) -> ProtectedRows:
    """Return all rows of the dataset: an axis or a measure for each column, and the levels."""
    columns: list[tuple[str, exp.Expr]] = []
    for index, attribute in enumerate(domain.attributes):
        columns.append((attribute.name, Axis(this=index)))
        for level, labels in (attribute.levels or {}).items():
            columns.append((level, _level(index, attribute, labels)))
    columns += [(m.name, MeasureColumn(this=i)) for i, m in enumerate(domain.measures)]
    return ProtectedRows(Names({"": columns}), unit=("", unit))


def _level(index: int, attribute: Attribute, labels: Mapping[str, tuple[Value, ...]]) -> exp.Expr:
    """Return a coarser column of an axis: CASE WHEN axis IN (members) THEN label ... END."""
    ifs = []
    for label, members in labels.items():
        listed = [exp.convert(member) for member in members]
        inside = exp.In(this=Axis(this=index), expressions=listed)
        ifs.append(exp.If(this=inside, true=exp.convert(label)))
    return exp.Case(ifs=ifs)


def public(binding: Binding, name: str) -> Relation:
    """Return a public table of the policy."""
    table, columns = binding.evaluator.public(name, binding.policy.public[name].path)
    alias = binding.fresh("t")
    typed = tuple(
        (column, TypedSql(f"{alias}.c{i}", kind, width=width))
        for i, (column, kind, width) in enumerate(columns)
    )
    return Relation(f"{table} AS {alias}", typed, public=True, key=f"hash({alias})")


def system(binding: Binding, name: str, node: exp.Expr) -> Relation:
    """Return a relation of the schema ``privacy``.

    Raises:
        UndefinedTableError: it has none of this name.
    """
    if name not in privacy_schema.TABLES:
        raise UndefinedTableError(
            f'relation "privacy.{name}" does not exist',
            hint=nearest(name, privacy_schema.TABLES),
            position=position(node),
        )
    binding.systems[name] = privacy_schema.relation(name)
    alias = binding.fresh("t")
    typed = tuple(
        (column, TypedSql(f"{alias}.c{i}", kind))
        for i, (column, kind) in enumerate(privacy_schema.TABLES[name])
    )
    binding.reads_protected += 1
    return Relation(f"sys_{name} AS {alias}", typed, key=f"hash({alias})")


MAX_SERIES = 10_000


def series(binding: Binding, node: exp.Expr, name: str) -> Relation:
    """Return generate_series of constants as a relation.

    Raises:
        NotSupportedError: its ends are no numbers or times that are written out.
        StatementTooComplexError: it has too many rows.
        DataError: its step is 0.
    """
    start, stop, step = (node.args.get(arg) for arg in ("start", "end", "step"))
    ends = [_constant(binding, each, node) for each in (start, stop)]
    span = intervals.constant(step) if isinstance(step, exp.Expr) else None
    alias = binding.fresh("t")
    if all(typed.type in types.INTEGERS for typed in ends) and span is None:
        by = _constant(binding, step or exp.Literal.number(1), node)
        if by.type in types.INTEGERS:
            kind = types.common([typed.type for typed in (*ends, by)], "generate_series")
            first, last, stride = (_value(binding, typed) for typed in (*ends, by))
            texts = [coerce(typed, kind).sql for typed in (*ends, by)]
            _require_short(first, last, stride, node)
            made = f"unnest(generate_series({', '.join(texts)}))"
            return _one_column(f"CAST({made} AS {types.DUCKDB[kind]})", kind, alias, name)
    if all(typed.type in types.TIMES for typed in ends) and span is not None:
        first, last = (_value(binding, coerce(typed, "timestamp")) for typed in ends)
        parts = (span.months * 28 * intervals.DAY, span.days * intervals.DAY, span.micros)
        if any(part > 0 for part in parts) and any(part < 0 for part in parts):
            raise _no_series(node)
        _require_short(_micros(first), _micros(last), sum(parts), node)
        texts = [coerce(typed, "timestamp").sql for typed in ends]
        made = f"unnest(generate_series({', '.join(texts)}, {span.typed.sql}))"
        return _one_column(made, "timestamp", alias, name)
    raise _no_series(node)


def _one_column(made: str, kind: str, alias: str, name: str) -> Relation:
    """Return a relation of one column, as public as its text."""
    column = (name, TypedSql(f"{alias}.c0", kind))
    text = f"(SELECT {made} AS c0) AS {alias}"
    return Relation(text, (column,), public=True, key=f"hash({alias})")


def _constant(binding: Binding, node: exp.Expr | None, series: exp.Expr) -> TypedSql:
    """Return an end of a series."""
    if node is None or node.find(exp.Column, exp.Query, exp.AggFunc, exp.Window):
        raise _no_series(series)
    return binding.coefficients.lower(node)


def _value(binding: Binding, typed: TypedSql) -> Any:
    value = binding.evaluator.value(typed.sql)
    if typed.type in types.TIMES and isinstance(value, str):  # Python has no datetime of it
        raise no_time(typed.type)
    return value


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)


def _require_short(first: int | None, last: int | None, step: int | None, node: exp.Expr) -> None:
    """Refuse a series without an end."""
    if step == 0:
        raise DataError("step size cannot equal zero", position=position(node), sqlstate="22023")
    if None not in (first, last, step) and (last - first) // step >= MAX_SERIES:  # type: ignore[operator]
        raise StatementTooComplexError(
            f"generate_series makes more than {MAX_SERIES:,} rows", position=position(node)
        )


def _no_series(node: exp.Expr) -> NotSupportedError:
    return NotSupportedError(
        "generate_series takes whole numbers, or times and an interval, that are written out",
        hint="for example generate_series(1, 12), or generate_series(DATE '2020-01-01', "
        "DATE '2020-12-01', INTERVAL '1 month')",
        position=position(node),
    )
