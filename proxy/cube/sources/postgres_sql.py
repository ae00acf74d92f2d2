"""PostgreSQL's SQL for the values of a record, from version 14 on.

No cast is tried there, so what may not convert is looked at before: no value makes a query fail
that would not make DuckDB's fail.  Texts are compared byte by byte, whatever their collation.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from proxy.cube.sources.dialect import (
    BLANK,
    BLANKS,
    DAY,
    DIGIT,
    DIGITS,
    FAST,
    NUMERIC,
    TEXTUAL,
    TIME,
    WRITTEN,
    ZONE,
    Dialect,
    is_of,
    text,
)
from proxy.errors import NotSupportedError
from proxy.sql import types
from proxy.sql.expression.casts import READABLE
from proxy.sql.source_expressions import REAL, TEXTS, WHOLE, Field, words

EXACT = 'COLLATE "C"'
LONG = 10_000  # characters of a number, past which PostgreSQL may not hold it
OLDEST, CASES = 14, 17  # versions: that can be read, whose order of code points knows cases
ENDLESS = "('NaN', 'Infinity', '-Infinity')"
RANGES = {"smallint": 15, "integer": 31, "bigint": 63}  # bits
LONGEST = {"SMALLINT": 5, "INTEGER": 10, "BIGINT": 19}  # digits
CLOCK = r"[0-9-]{10}([T ][0-9:]{5}(:[0-9]{2}(\.[0-9]{1,9})?)?)?"
KNOWN = "ARRAY(SELECT lower(name) FROM pg_catalog.pg_timezone_names)"  # asked for once


class PostgresDialect(Dialect):
    """The SQL of records in PostgreSQL; in a session as ``postgres`` sets it up."""

    language = "postgres"

    def __init__(self, version: int = OLDEST, encoding: str = "UTF8") -> None:
        # of texts in the policy's own SQL: in the order of code points, like DuckDB's
        self._knows_cases = version >= CASES and encoding == "UTF8"
        self._order = 'COLLATE "pg_c_utf8"' if self._knows_cases else EXACT

    fence = " OFFSET 0"
    whole = "numeric"

    # --- what the coding asks for ----------------------------------------------------------------

    def decimal(self, digits: int, places: int) -> str:
        """Return the type of numbers of so many decimals that holds so many digits."""
        return f"numeric({FAST if digits <= FAST else DIGITS}, {places})"

    def counts(self, kind: str) -> bool:
        """Whether whole numbers of a column are best compared as such, and not as decimals."""
        return kind in ("SMALLINT", "INTEGER", "BIGINT")

    def compared(self, value: str, kind: str) -> str:
        """Return a value as of the type in which an axis compares."""
        return self._text(value) if kind == "VARCHAR" else f"CAST({value} AS {kind})"

    def skips(self, value: str, kind: str) -> str | None:
        """Return a date or a time as PostgreSQL compares it with an index."""
        return value if kind in ("DATE", "TIMESTAMP") else None

    def number(self, value: str, kind: str, digits: int, places: int) -> str:
        """Return a number of so many digits, to so many decimals; NULL if larger or none."""
        bound = FAST if digits <= FAST else DIGITS
        if LONGEST.get(kind, bound) < bound - places:  # nothing is rounded, nothing is too large
            return f"CAST({value} AS numeric)"
        if kind == "BOOLEAN":
            value = f"CAST({value} AS integer)"
        elif is_of(kind, TEXTUAL):
            short = f"length({value}) <= {LONG}"
            read = f"{self.like(value, DIGIT)} AND {short}"
            value = f"CASE WHEN {read} THEN {self.trimmed(value)} END"
        elif kind in REAL:
            value = f"CASE WHEN {value} NOT IN {ENDLESS} THEN CAST({value} AS text) END"
        elif is_of(kind, ("DECIMAL",)):
            value = f"CASE WHEN {value} NOT IN {ENDLESS} THEN {value} END"
        elif not is_of(kind, NUMERIC):
            value = "NULL"
        return self._bounded(value, bound, places)

    def nan(self, value: str, kind: str) -> str:
        """Return whether a number that is not NULL is NaN."""
        return f"{value} = 'NaN'" if kind in REAL or is_of(kind, ("DECIMAL",)) else "false"

    def text(self, value: str, kind: str) -> str:
        """Return the text of a value."""
        if not is_of(kind, (*WRITTEN, *REAL)):
            return "CAST(NULL AS text)"
        plain = f"CAST({value} AS text)"
        if kind not in REAL:
            return plain
        # where PostgreSQL writes an exponent, and the rule does not
        return (
            f"CASE WHEN {value} = 0 THEN '0' WHEN {value} IN ('Infinity', '-Infinity')"
            f" THEN replace(lower({plain}), 'inity', '') WHEN abs({value}) >= 1e6"
            f" AND abs({value}) < 1e16 THEN CAST(CAST({plain} AS numeric) AS text) ELSE {plain} END"
        )

    def moment(self, value: str, kind: str) -> str:
        """Return the timestamp, or date, that a value is in the policy's time zone."""
        return (
            f"CAST({value} AS timestamp)"
            if kind.startswith("TIMESTAMP")
            else super().moment(value, kind)
        )

    def moment_of_text(self, value: str) -> str:
        """Return the timestamp that a text is."""
        plain = self.trimmed(value)
        return (
            f"CASE WHEN {self.like(value, f'{DAY}({TIME})?')} THEN {_clock(plain)}"
            f" WHEN {self.like(value, f'{DAY}{TIME}{ZONE}')} THEN {_zoned(plain)}"
            f" WHEN lower({plain}) IN ('infinity', '-infinity') THEN CAST({plain} AS timestamp) END"
        )

    def like(self, value: str, pattern: str) -> str:
        """Return whether a text, without the blanks around it, is of a pattern."""
        return f"({self._text(value)} ~ {text(f'^(?:{BLANK}*{pattern}{BLANK}*)$')})"

    def trimmed(self, value: str) -> str:
        """Return a text without the blanks around it."""
        return f"btrim({self._text(value)}, {BLANKS})"

    def quotient(self, a: str, b: str) -> str:
        """Return the whole quotient of whole numbers that are not negative."""
        return f"div({a}, {b})"

    def unit(self, value: str, kind: str) -> str:
        """Return a privacy unit, so that equal ones are the same."""
        return self._text(value) if is_of(kind, TEXTUAL) else value

    def unit_text(self, value: str, kind: str) -> str:
        """Return the text of a privacy unit: equal ones have one."""
        if is_of(kind, ("DECIMAL",)):
            return f"CAST(trim_scale({value}) AS text)"
        return self.text(value, kind) if kind in REAL else f"CAST({value} AS text)"

    def plain(self, value: str, kind: str) -> tuple[str, str]:
        """Return a value whose type is nobody's but PostgreSQL's own, and that type.

        Others are written by what their type writes, which no cast of anybody's changes.
        """
        if kind != "ENUM":
            return value, kind
        return f"CASE WHEN ({value}) IS NOT NULL THEN format('%s', {value}) END", "VARCHAR"

    def digest(self, parts: Sequence[str]) -> str:
        """Return a text that orders rows as if by chance, of texts that have no NULL."""
        return f"(md5(concat_ws('|', {', '.join(parts)})) {EXACT})"

    def _text(self, value: str) -> str:
        return f"(CAST({value} AS text) {EXACT})"

    def _bounded(self, value: str, digits: int, places: int) -> str:
        """Return a number to so many decimals; NULL where it has more digits."""
        rounded = f"round(CAST({value} AS numeric), {places})"
        return f"CASE WHEN abs({rounded}) < 1e{digits - places} THEN {rounded} END"

    # --- what the policy's own SQL asks for ------------------------------------------------------

    def typed(self, field: Field) -> str:
        """Return a column as a value of its PostgreSQL type."""
        sql, kind = self.plain(field.sql, field.kind)
        if kind.startswith("TIMESTAMP"):
            return f"CAST({sql} AS timestamp)"
        if kind in WHOLE:
            return f"CAST({sql} AS {WHOLE[kind]})"
        if kind in REAL:
            return f"CAST({sql} AS double precision)"
        return f"(CAST({sql} AS text) {self._order})" if kind.startswith(TEXTS) else sql

    def prepared(self, tree: exp.Expr) -> exp.Expr:
        """Return the tree of an expression, made to mean the same; it may be changed.

        Of a date PostgreSQL makes a time of the session's zone.
        """
        for node in list(tree.find_all(exp.TimestampTrunc, exp.DateTrunc)):
            node.set("this", exp.cast(node.this, "TIMESTAMP"))
        if tree.find(exp.UnixToTime):
            raise NotSupportedError(
                "to_timestamp of seconds is not written for PostgreSQL, where it is of a zone",
                hint="write TIMESTAMP '1970-01-01' + seconds * INTERVAL '1 second', in UTC",
            )
        if not self._knows_cases:  # then the database's own order has to
            for cased in tree.find_all(exp.Upper, exp.Lower, exp.Initcap, exp.ILike):
                whole = exp.Identifier(this="default", quoted=True)
                cased.set("this", exp.Collate(this=cased.this, expression=whole))
        return tree

    def written(self, node: exp.Expr, sql: object, kind: object) -> None:
        """Return None: PostgreSQL's SQL means what it says."""

    def sized(self, sql: str, kind: str, size: Sequence[int]) -> str:
        """Return a value as a type of a size."""
        if kind == "text":
            return f"left({sql}, {size[0]})"
        return f"CAST({sql} AS {kind}({', '.join(map(str, size))}))"

    def cast(self, sql: str, of: str, kind: str) -> str:
        """Return a text as another type; an error where it cannot be read."""
        if of != "text" or not (kind == "boolean" or kind in READABLE):
            return f"CAST({sql} AS {kind})"
        sql = f"({sql})"
        wrong = f"CAST(concat({sql}, ' is no value') AS {kind})"  # which is an error of any type
        return (
            f"CASE WHEN {sql} IS NOT NULL THEN coalesce({self.tried(sql, of, kind)}, {wrong}) END"
        )

    def tried(self, sql: str, of: str, kind: str) -> str:
        """Return a value as another type; NULL where it cannot be read, or does not fit."""
        sql = f"({sql})"
        if of == "text" and kind == "boolean":
            return words(sql)
        if of == "text" and kind in READABLE:
            known = READABLE[kind].replace(r"\s", BLANK)
            test = f"{sql} ~ '^(?:{known})$' AND length({sql}) <= {LONG}"
            sql = f"CASE WHEN {test} THEN btrim({sql}, {BLANKS}) END"
            if kind in types.FLOATS:
                size = f"abs(CAST({sql} AS numeric))"
                return (
                    f"CASE WHEN {size} < 1e-300 THEN 0 WHEN {size} < 1e308"
                    f" THEN CAST({sql} AS double precision) END"
                )
            if kind in types.TIMES:
                return f"CAST({_clock(sql)} AS {kind})"
        if kind == "numeric":
            return self._bounded(sql, DIGITS, types.DECIMALS)
        if kind in RANGES:
            value = f"round({sql})" if of in types.FLOATS else f"round(CAST({sql} AS numeric))"
            end = 2 ** RANGES[kind]
            fits = f"{value} >= -{end} AND {value} < {end}"
            return f"CAST(CASE WHEN {fits} THEN {value} END AS {kind})"
        return f"CAST({sql} AS {kind})"


def _clock(plain: str) -> str:
    """Return the timestamp that a text of the form of one is; NULL of no day or no time."""
    parts = ", ".join(
        f"CAST(coalesce(nullif(substr(s.x, {at}, 2), ''), '0') AS integer) AS {name}"
        for name, at in (("m", 6), ("d", 9), ("h", 12), ("i", 15), ("s", 18))
    )
    fraction = "CAST(rpad(substr(s.x, 21, 6), 6, '0') AS integer)"
    last = "extract(day FROM make_date(p.y, p.m, 1) + interval '1 month - 1 day')"
    day = f"CASE WHEN p.y > 0 AND p.m BETWEEN 1 AND 12 THEN p.d BETWEEN 1 AND {last} ELSE false END"
    time = "(p.h < 24 AND p.i < 60 AND p.s < 60 OR p.h = 24 AND p.i + p.s + p.f = 0)"
    return (
        f"(SELECT CASE WHEN ({day}) AND {time} THEN make_timestamp(p.y, p.m, p.d, 0, 0, 0)"
        " + make_interval(hours => p.h, mins => p.i, secs => p.s) + p.f * interval '1 microsecond'"
        f" END FROM (SELECT CAST(substr(s.x, 1, 4) AS integer) AS y, {parts}, {fraction} AS f"
        f" FROM (SELECT substring({plain} FROM '^(?:{_open(CLOCK)})') AS x) AS s) AS p)"
    )


def _zoned(plain: str) -> str:
    """Return the timestamp, in the session's zone, that a text with a zone is."""
    clock = f"substring({plain} FROM '^(?:{_open(CLOCK)})')"
    offset = (
        "make_interval(hours => CAST(substr(z.z, 2, 2) AS integer), "
        "mins => CAST(coalesce(nullif(right(replace(substr(z.z, 4), ':', ''), 2), ''), '0')"
        " AS integer))"
    )
    return (
        "(SELECT CAST(CASE WHEN z.z = 'Z' THEN z.t AT TIME ZONE 'UTC'"
        f" WHEN z.z LIKE '+%' THEN (z.t - {offset}) AT TIME ZONE 'UTC'"
        f" WHEN z.z LIKE '-%' THEN (z.t + {offset}) AT TIME ZONE 'UTC'"
        f" WHEN lower(z.z) = ANY ({KNOWN}) THEN z.t AT TIME ZONE z.z END AS timestamp)"
        f" FROM (SELECT {_clock(plain)} AS t, ltrim(substr({plain}, length({clock}) + 1)) AS z)"
        " AS z)"
    )


def _open(pattern: str) -> str:
    """Return a pattern whose groups capture nothing."""
    return pattern.replace("(", "(?:")
