"""Functions of dates, timestamps and intervals, as PostgreSQL has them."""

from __future__ import annotations

import re
from datetime import datetime

from sqlglot import exp

from proxy.errors import DataError, NotSupportedError
from proxy.sql import types
from proxy.sql.expression.arguments import wrong
from proxy.sql.expression.casts import cast
from proxy.sql.expression.lowering import PLAIN, Arguments, Lowering, Rules
from proxy.sql.expression.typed import TypedSql, coerce, combine

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


def _trunc(lowering: Lowering, node: exp.Expr) -> TypedSql:
    unit = str(node.args["unit"].name).lower()
    value = lowering.lower(node.this)
    if value.type not in types.TIMES:
        raise wrong("date_trunc", [TypedSql("", "unknown"), value])
    if unit not in UNITS:
        raise DataError(f'unit "{unit}" not recognized for type {value.type}')
    value = coerce(value, "timestamp")
    return combine(f"CAST(date_trunc('{unit}', {value.sql}) AS TIMESTAMP)", "timestamp", value)


def _extract(lowering: Lowering, node: exp.Expr) -> TypedSql:
    part = _part(lowering, node)
    return cast(part, "double precision") if node.meta.get("name") == "date_part" else part


def _part(lowering: Lowering, node: exp.Expr) -> TypedSql:
    field = str(node.this.name).lower()
    value = lowering.lower(node.expression)
    if value.type not in types.TIMES:
        raise wrong("extract", [value])
    if field == "epoch":
        return combine(f"CAST(epoch({value.sql}) AS DECIMAL(20, 6))", NUMERIC, value, scale=6)
    if value.type == "date" and field in CLOCK:
        raise NotSupportedError(f'unit "{field}" not supported for type date')
    if field == "second":
        text = f"CAST(microsecond({value.sql}) / 1000000 AS DECIMAL(10, 6))"
        return combine(text, NUMERIC, value, scale=6)
    if field not in FIELDS:
        raise NotSupportedError(f'unit "{field}" is not supported in EXTRACT')
    return combine(f"CAST({FIELDS[field]}({value.sql}) AS DECIMAL(10, 0))", NUMERIC, value, scale=0)


READ = re.compile(r"(?:%[YmdHMSf]|[-/.,: T])+")
FORMAT = re.compile(r"(?:%[YmdHMS]|[-/.,: ])+")  # as sqlglot has translated it


def _to_char(lowering: Lowering, node: exp.Expr) -> TypedSql:
    value, shape = lowering.lower(node.this), node.args["format"]
    if value.type not in types.TIMES:
        raise NotSupportedError("to_char takes a date or a timestamp")
    if not shape.is_string or not FORMAT.fullmatch(shape.name):
        raise NotSupportedError(
            "to_char knows YYYY, MM, DD, HH24, MI and SS, with - / . , : between them",
            hint="EXTRACT and date_trunc give the other parts of a date",
        )
    return combine(f"strftime({value.sql}, '{shape.name}')", TEXT, value)


def _read(_: Lowering, node: exp.Expr) -> TypedSql:
    """Return to_date or to_timestamp of a text that is written out, by a known format."""
    name = "to_date" if isinstance(node, exp.StrToDate) else "to_timestamp"
    value, shape = node.this, node.args.get("format")
    if shape is None or not (value.is_string and shape.is_string and READ.fullmatch(shape.name)):
        raise NotSupportedError(
            f"{name} takes a text in quotes, and YYYY, MM, DD, HH24, MI, SS, US between - / . , :",
            hint="cast the text: CAST(x AS date)",
        )
    try:
        moment = datetime.strptime(value.name, shape.name)
    except ValueError:
        raise DataError(f'"{value.name}" is not written as {name} is told') from None
    kind = "date" if name == "to_date" else "timestamp"
    return TypedSql(types.literal(kind, moment.date() if kind == "date" else moment), kind)


def _date(lowering: Lowering, node: exp.Expr) -> TypedSql:
    value = lowering.lower(node.this)
    return coerce(value, "date") if value.type == "unknown" else cast(value, "date")


def _interval(_: Lowering, node: exp.Expr) -> TypedSql:
    text = node.this.name if node.this is not None else ""
    unit = node.args.get("unit")
    shown = f"{text} {unit.name}" if unit is not None else text
    pattern = r"\s*(?:[-+]?\d+\s+(?:year|month|week|day|hour|minute|second)s?\s*)+"
    if not re.fullmatch(pattern, shown, re.IGNORECASE):
        raise NotSupportedError(
            f"the interval '{shown}' is not known", hint="write, for example, INTERVAL '3 months'"
        )
    parts = re.findall(r"([-+]?\d+)\s+([a-z]+?)s?(?=\s|$)", shown, re.IGNORECASE)
    sums = " + ".join(f"to_{unit.lower()}s({count})" for count, unit in parts)
    return TypedSql(f"({sums})", "interval")


RULES: Rules = {
    exp.TimestampTrunc: _trunc,
    exp.DateTrunc: _trunc,
    exp.Extract: _extract,
    exp.TimeToStr: _to_char,
    exp.StrToDate: _read,
    exp.StrToTime: _read,
    exp.Date: _date,
    exp.Interval: _interval,
}
ARGUMENTS: Arguments = {
    exp.TimestampTrunc: PLAIN | {"unit"},
    exp.DateTrunc: PLAIN | {"unit"},
    exp.TimeToStr: PLAIN | {"format"},
    exp.StrToDate: PLAIN | {"format"},
    exp.StrToTime: PLAIN | {"format"},
    exp.Interval: PLAIN | {"unit"},
}
