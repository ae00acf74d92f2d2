"""Intervals as PostgreSQL has them: months, days and microseconds, each for itself."""

from __future__ import annotations

import re
from decimal import Decimal

from msgspec import Struct
from sqlglot import exp

from proxy.errors import NotSupportedError
from proxy.sql import types
from proxy.sql.expression.guards import checked
from proxy.sql.expression.typed import TypedSql, combine

SECOND = 1_000_000
DAY = 86_400 * SECOND
UNITS: dict[str, tuple[int, int, int]] = {  # months, days, microseconds
    **dict.fromkeys(("y", "yr", "yrs", "year", "years"), (12, 0, 0)),
    **dict.fromkeys(("mon", "mons", "month", "months"), (1, 0, 0)),
    **dict.fromkeys(("w", "week", "weeks"), (0, 7, 0)),
    **dict.fromkeys(("d", "day", "days"), (0, 1, 0)),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), (0, 0, 3600 * SECOND)),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), (0, 0, 60 * SECOND)),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), (0, 0, SECOND)),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), (0, 0, 1000)),
}
CLOCK = [UNITS["h"], UNITS["m"], UNITS["s"]]
PART = re.compile(
    r"\s*(?:(?P<count>[-+]?\d{1,9}(?:\.\d{1,6})?)\s*(?P<unit>[a-z]+)"
    r"|(?P<hours>\d{1,4}):(?P<minutes>[0-5]\d)(?::(?P<seconds>[0-5]\d(?:\.\d{1,6})?))?)\s*",
    re.IGNORECASE,
)


class Span(Struct, frozen=True):
    """An interval that is written out."""

    months: int = 0
    days: int = 0
    micros: int = 0

    @property
    def typed(self) -> TypedSql:
        """The interval as DuckDB text."""
        text = f"to_months({self.months}) + to_days({self.days}) + to_microseconds({self.micros})"
        return TypedSql(f"({text})", "interval")


def read(text: str) -> Span:
    """Return an interval that is written as a text.

    Raises:
        NotSupportedError: it is in a form that is not known.
    """
    months = days = micros = 0
    at, used = 0, list[tuple[int, int, int]]()
    while match := PART.match(text, at):
        unit = UNITS.get((match["unit"] or "").lower())
        if match["hours"]:
            seconds = Decimal(match["seconds"] or 0)
            seconds += int(match["hours"]) * 3600 + int(match["minutes"]) * 60
            micros += int(seconds * SECOND)
            used += CLOCK
        elif unit and (unit[2] or "." not in match["count"]):
            count = Decimal(match["count"])
            months, days = months + int(count) * unit[0], days + int(count) * unit[1]
            micros += int(count * unit[2])
            used.append(unit)
        else:
            break
        at = match.end()
    if at < len(text) or not used or len(set(used)) < len(used):  # a unit stands once
        raise NotSupportedError(
            f"the interval '{text}' is not known",
            hint="write, for example, INTERVAL '3 months' or '1 day 12 hours'",
        )
    return Span(months, days, micros)


def constant(node: exp.Expr) -> Span | None:
    """Return an interval that is written out: INTERVAL '1 day', '1 day', '1 day'::interval."""
    while isinstance(node, exp.Paren) or (
        isinstance(node, exp.Cast) and node.to.is_type("interval")
    ):
        node = node.this
    if isinstance(node, exp.Literal) and node.is_string:
        return read(node.name)
    if isinstance(node, exp.Interval):
        text, unit = node.this.name if node.this is not None else "", node.args.get("unit")
        return read(f"{text} {unit.name.lower()}" if unit is not None else text)
    return None


def multiple(interval: TypedSql, factor: TypedSql) -> TypedSql:
    """Return a multiple of an interval."""
    text = f"({interval.sql} * CAST({factor.sql} AS BIGINT))"
    if factor.type not in types.INTEGERS:
        message = "only whole numbers multiply a length of time"
        text = checked(f"{factor.sql} <> trunc({factor.sql})", message, text, factor)
    return combine(text, "interval", interval, factor)


def shown(value: TypedSql) -> TypedSql:
    """Return an interval as text, in PostgreSQL's own style: 1 year 2 mons -3 days +04:00:00."""
    x = value.sql
    fields = [
        (f"datepart('{unit}', {x})", name)
        for unit, name in (("year", "year"), ("month", "mon"), ("day", "day"))
    ]
    pieces, before = [], "FALSE"
    for count, name in fields:
        sign = f"CASE WHEN {before} AND {count} > 0 THEN '+' ELSE '' END"
        plural = f"CASE WHEN {count} = 1 THEN '' ELSE 's' END"
        pieces.append(f"CASE WHEN {count} <> 0 THEN {sign} || {count} || ' {name}' || {plural} END")
        before = f"CASE WHEN {count} <> 0 THEN {count} < 0 ELSE {before} END"
    micros = (
        f"(datepart('hour', {x}) * {3600 * SECOND} + datepart('minute', {x}) * {60 * SECOND} "
        f"+ datepart('microsecond', {x}))"
    )
    size, empty = f"abs({micros})", " AND ".join(f"{count} = 0" for count, _ in fields)
    sign = f"CASE WHEN {micros} < 0 THEN '-' WHEN {before} AND {micros} > 0 THEN '+' ELSE '' END"
    clock = (
        f"format('{{:02d}}:{{:02d}}:{{:02d}}', {size} // {3600 * SECOND}, "
        f"{size} // {60 * SECOND} % 60, {size} // {SECOND} % 60)"
    )
    part = f"rtrim(format('.{{:06d}}', {size} % {SECOND}), '.0')"
    part = f"CASE WHEN {size} % {SECOND} = 0 THEN '' ELSE {part} END"
    pieces.append(f"CASE WHEN {empty} OR {micros} <> 0 THEN {sign} || {clock} || {part} END")
    text = f"CASE WHEN {x} IS NULL THEN NULL ELSE concat_ws(' ', {', '.join(pieces)}) END"
    return combine(text, "text", value)


def without_months(value: TypedSql) -> TypedSql:
    """Return an interval that a result may show: one of months has no length."""
    message = "years and months have no one length: EXTRACT them, or cast to text"
    months = f"datepart('year', {value.sql}) <> 0 OR datepart('month', {value.sql}) <> 0"
    return combine(checked(months, message, value.sql), "interval", value)
