"""Functions of dates, timestamps and intervals, as PostgreSQL has them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from proxy.errors import DataError, NotSupportedError
from proxy.sql import types
from proxy.sql.expression.arguments import moment, number, required, whole, wrong
from proxy.sql.expression.casts import cast
from proxy.sql.expression.date_reading import read
from proxy.sql.expression.date_templates import texts as date_texts
from proxy.sql.expression.intervals import DAY, constant
from proxy.sql.expression.lowering import PLAIN, Arguments, Lowering, Rules
from proxy.sql.expression.number_templates import number_text
from proxy.sql.expression.typed import TypedSql, coerce, combine
from proxy.sql.parse.dialects import ToChar
from proxy.sql.parse.tree import is_null, quoted_text

NUMERIC, TEXT = "numeric", "text"

UNITS = {
    *("microseconds", "milliseconds", "second", "minute", "hour", "day", "week", "month"),
    *("quarter", "year", "decade"),
}
FIELDS = {
    "year": "year", "month": "month", "day": "day", "quarter": "quarter", "week": "week",
    "dow": "dayofweek", "isodow": "isodow", "doy": "dayofyear", "hour": "hour",
    "minute": "minute", "isoyear": "isoyear", "decade": "decade", "century": "century",
}  # fmt: skip
CLOCK = {"hour", "minute", "second", "epoch"}
SPANS = {"year", "month", "day", "hour", "minute", "decade", "century"}  # fields of intervals
PARTS = ("year", "month", "day", "hour", "min", "sec")


def _trunc(lowering: Lowering, node: exp.Expr) -> TypedSql:
    unit = str(node.args["unit"].name).lower()
    value = lowering.lower(node.this)
    if value.type not in types.TIMES:
        raise wrong("date_trunc", [TypedSql("", "unknown"), value])
    if unit not in UNITS:
        raise DataError(
            f'unit "{unit}" not recognized for type {value.type}',
            hint=f"a unit in quotes: {', '.join(sorted(UNITS))}",
        )
    value = coerce(value, "timestamp")
    return combine(f"CAST(date_trunc('{unit}', {value.sql}) AS TIMESTAMP)", "timestamp", value)


def _extract(lowering: Lowering, node: exp.Expr) -> TypedSql:
    part = _part(lowering, node)
    return cast(part, "double precision") if node.meta.get("name") == "date_part" else part


def _part(lowering: Lowering, node: exp.Expr) -> TypedSql:
    field = str(node.this.name).lower()
    value = lowering.lower(node.expression)
    if value.type not in (*types.TIMES, "interval"):
        raise wrong("extract", [value])
    if value.type == "interval" and field not in SPANS | {"second", "epoch"}:
        raise NotSupportedError(f'unit "{field}" is not supported in EXTRACT of an interval')
    if field == "epoch":
        return combine(f"CAST(epoch({value.sql}) AS DECIMAL(20, 6))", NUMERIC, value, scale=6)
    if value.type == "date" and field in CLOCK:
        raise NotSupportedError(f'unit "{field}" not supported for type date')
    if field == "second":
        text = f"CAST(microsecond({value.sql}) / 1000000 AS DECIMAL(10, 6))"
        return combine(text, NUMERIC, value, scale=6)
    if field not in FIELDS:
        raise NotSupportedError(
            f'unit "{field}" is not supported in EXTRACT',
            hint=f"there are {', '.join(sorted({*FIELDS, 'second', 'epoch'}))}",
        )
    return combine(f"CAST({FIELDS[field]}({value.sql}) AS DECIMAL(10, 0))", NUMERIC, value, scale=0)


TO_TIMESTAMP = ("to_timestamp", "timestamp")
REORDERED = "CAST(substr(x, 7, 4) || '-' || substr(x, 4, 2) || '-' || substr(x, 1, 2) AS date)"


def _to_char(lowering: Lowering, node: exp.Expr) -> TypedSql:
    """Return to_char of a number, a date or a timestamp, by a template that is written out."""
    (value, *_), shape = required(lowering, node, "this", "format"), node.args["format"]
    if is_null(shape) and value.type in (*types.NUMBERS, *types.TIMES):
        return combine("CAST(NULL AS VARCHAR)", TEXT, value)
    if (template := quoted_text(shape)) is None:
        raise NotSupportedError("to_char takes a template in quotes")
    if value.type in types.NUMBERS and value.type != "real":
        return number_text(template, value)
    if value.type not in types.TIMES:
        raise wrong("to_char", [value, TypedSql("", TEXT)])
    pieces = date_texts(template, value.sql)
    text = f"({' || '.join(pieces)})" if pieces else "CAST(NULL AS VARCHAR)"
    text = f"CASE WHEN {value.sql} IS NULL THEN NULL ELSE {text} END"
    return combine(text, TEXT, value, width=64 + 12 * len(template))


def _read(lowering: Lowering, node: exp.Expr) -> TypedSql:
    """Return to_date or to_timestamp of a text that is written out, by a known template."""
    name, kind = ("to_date", "date") if isinstance(node, exp.StrToDate) else TO_TIMESTAMP
    given = node.this, node.args.get("format")
    if any(map(is_null, given)):
        parts = [lowering.lower(each) for each in given if each is not None]
        return combine(types.literal(kind, None), kind, *parts)
    value, shape = map(quoted_text, given)
    if value is None or shape is None:
        raise NotSupportedError(
            f"{name} takes a text in quotes and a template in quotes",
            hint=f"cast a text, its parts in this order: {REORDERED} reads DD.MM.YYYY",
        )
    moment = read(name, value, shape)
    return TypedSql(types.literal(kind, moment.date() if kind == "date" else moment), kind)


def age(lowering: Lowering, values: Sequence[exp.Expr]) -> TypedSql:
    """Return age: the years, months and days between two times; of one, until today."""
    if len(values) != 2:  # of one time the clock has made two
        raise wrong("age", [lowering.lower(value) for value in values])
    later, earlier = (moment("age", lowering.lower(value)) for value in values)
    return combine(f"age({later.sql}, {earlier.sql})", "interval", later, earlier)


def _of_epoch(lowering: Lowering, node: exp.Expr) -> TypedSql:
    """Return to_timestamp of seconds since 1970."""
    value = number("to_timestamp", lowering.lower(node.this))
    value = cast(value, "double precision")
    text = f"make_timestamp(CAST(round_even({value.sql} * 1000000, 0) AS BIGINT))"
    return combine(text, "timestamp", value)


def _make_timestamp(lowering: Lowering, node: exp.Expr) -> TypedSql:
    *parts, seconds = required(lowering, node, *PARTS)
    listed = [whole("make_timestamp", part) for part in parts]
    seconds = cast(number("make_timestamp", seconds), "double precision")
    text = f"make_timestamp({', '.join(p.sql for p in [*listed, seconds])})"
    return combine(text, "timestamp", *listed, seconds)


def _date(lowering: Lowering, node: exp.Expr) -> TypedSql:
    value = lowering.lower(node.this)
    return coerce(value, "date") if value.type == "unknown" else cast(value, "date")


def _interval(_: Lowering, node: exp.Expr) -> TypedSql:
    span = constant(node)
    assert span is not None
    return span.typed


def _date_bin(lowering: Lowering, node: exp.Expr) -> TypedSql:
    """Return date_bin: the beginning of the stride, counted from an origin, that a time is in."""
    stride = constant(node.this)
    if stride is None or node.args.get("zone") is None:
        raise NotSupportedError(
            "date_bin takes a stride in quotes, a time and an origin",
            hint="for example date_bin('15 minutes', x, TIMESTAMP '2001-01-01')",
        )
    if stride.months:
        raise NotSupportedError(
            "timestamps cannot be binned into intervals containing months or years",
            hint="date_trunc('month', x) does that",
        )
    size = stride.days * DAY + stride.micros
    if size <= 0:
        raise DataError("stride must be greater than zero")
    value, origin = (
        moment("date_bin", lowering.lower(node.args[arg])) for arg in ("expression", "zone")
    )
    past = f"(epoch_us({value.sql}) - epoch_us({origin.sql}))"
    text = f"make_timestamp(epoch_us({value.sql}) - ({past} % {size} + {size}) % {size})"
    return combine(text, "timestamp", value, origin)


RULES: Rules = {
    exp.Interval: _interval,
    exp.DateBin: _date_bin,
    exp.TimestampTrunc: _trunc,
    exp.DateTrunc: _trunc,
    exp.Extract: _extract,
    ToChar: _to_char,
    exp.UnixToTime: _of_epoch,
    exp.TimestampFromParts: _make_timestamp,
    exp.StrToDate: _read,
    exp.StrToTime: _read,
    exp.Date: _date,
}
ARGUMENTS: Arguments = {
    exp.Interval: PLAIN | {"unit", "fraction_in_string"},
    exp.DateBin: PLAIN | {"zone"},
    exp.TimestampTrunc: PLAIN | {"unit"},
    exp.DateTrunc: PLAIN | {"unit"},
    ToChar: PLAIN | {"format"},
    exp.TimestampFromParts: PLAIN | set(PARTS),
    exp.StrToDate: PLAIN | {"format"},
    exp.StrToTime: PLAIN | {"format"},
}
