"""MariaDB's SQL for the values of a record, from version 10.6 on; in a session of ``mariadb``'s.

Texts are compared byte by byte: blanks at their end and cases count.  A cast there cuts what does
not fit and only warns, so that each is guarded.  Of the policy's own SQL what is written here
means the same as in DuckDB; the rest is refused by name, and may be computed in the database.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from proxy.cube.sources.dialect import (
    BLANK,
    DAY,
    DIGIT,
    DIGITS,
    FAST,
    NUMERIC,
    OFFSET,
    TEXTUAL,
    TIME,
    WRITTEN,
    Dialect,
    is_of,
    text,
)
from proxy.cube.sources.mariadb_expressions import CASTS, error, written
from proxy.errors import NotSupportedError, SourceError
from proxy.sql import types
from proxy.sql.expression.casts import READABLE
from proxy.sql.source_expressions import REAL, WHOLE, Field

COLLATION = "utf8mb4_nopad_bin"
WIDE = 65  # digits of MariaDB's widest DECIMAL
LONG = 64  # characters of a number with an exponent, past which MariaDB reads another one
FRACTIONS = ("numeric", *types.FLOATS)
RANGES = {"smallint": 15, "integer": 31, "bigint": 63}  # bits
FIRST, LAST = "0000-01-01", "9999-12-31 23:59:59.999999"  # what infinite times are taken for
SEEN = ("1970-01-02", "2038-01-18")  # between which MariaDB knows zones
ZONED = rf"( ?(Z|{OFFSET})| (UTC|GMT))"  # a zone that needs no table of zones
NAMED = " [A-Za-z]+(/[A-Za-z0-9_+-]+)+"


class MariaDBDialect(Dialect):
    """The SQL of records in MariaDB; ``zone`` is the policy's, ``zones`` whether it knows names."""

    language = "mysql"
    whole = f"DECIMAL({WIDE})"
    long = "SIGNED"
    string = "CHAR"

    def __init__(self, zone: str = "UTC", zones: bool = True) -> None:
        self._zone, self._zones = zone, zones

    # --- what the coding asks for ----------------------------------------------------------------

    def counts(self, kind: str) -> bool:
        """Whether whole numbers of a column are best compared as such, and not as decimals."""
        return kind in WHOLE and kind not in ("UBIGINT", "HUGEINT", "UHUGEINT")

    def compared(self, value: str, kind: str) -> str:
        """Return a value as of the type in which an axis compares."""
        return _text(value) if kind == "VARCHAR" else f"CAST({value} AS {CASTS.get(kind, kind)})"

    def skips(self, value: str, kind: str) -> str | None:
        """Return a date or a time as MariaDB compares it with an index."""
        return value if kind in ("DATE", "TIMESTAMP") else None

    def number(self, value: str, kind: str, digits: int, places: int) -> str:
        """Return a number of so many digits, to so many decimals; NULL if larger or none."""
        if is_of(kind, TEXTUAL):
            short = f"(char_length({value}) <= {LONG} OR {value} NOT REGEXP '[eE]')"
            read = f"{self.like(value, DIGIT)} AND {short}"
            value = f"CASE WHEN {read} THEN {self.trimmed(value)} END"
        elif kind in REAL:
            value = _shortest(value, kind)
        elif kind != "BOOLEAN" and not is_of(kind, NUMERIC):
            value = "NULL"
        return _bounded(value, FAST if digits <= FAST else DIGITS, places)

    def nan(self, value: str, kind: str) -> str:
        """Return whether a number is NaN, which MariaDB does not have."""
        return "false"

    def text(self, value: str, kind: str) -> str:
        """Return the text of a value."""
        if kind in REAL:
            return _plain(value, _shortest(value, kind))
        if not is_of(kind, WRITTEN):
            return "CAST(NULL AS CHAR)"
        if kind == "BOOLEAN":
            return _truth(value)
        return _without_zeros(value) if kind[:4] == "TIME" else f"CAST({value} AS CHAR)"

    def moment(self, value: str, kind: str) -> str:
        """Return the time that a value is in the policy's time zone; NULL of no day."""
        if not (kind == "DATE" or kind.startswith("TIMESTAMP")):
            return super().moment(value, kind).replace("TIMESTAMP", "DATETIME(6)")
        return _day(value, "DATETIME(6)")

    def moment_of_text(self, value: str) -> str:
        """Return the time that a text is."""
        if not self._zones:
            raise SourceError(
                "texts of times may name a time zone, and the database of the source knows none",
                hint="have its administrator run mariadb-tzinfo-to-sql, or let an expression make "
                "them times: TRY_CAST(column AS timestamp)",
            )
        plain = self.trimmed(value)
        return (
            f"CASE WHEN {self.like(value, f'{DAY}({TIME})?')} THEN {_clock(plain)}"
            f" WHEN {self.like(value, f'{DAY}{TIME}({ZONED}|{NAMED})')} THEN {self._zoned(plain)}"
            f" WHEN lower({plain}) = 'infinity' THEN CAST('{LAST}' AS DATETIME(6))"
            f" WHEN lower({plain}) = '-infinity' THEN CAST('{FIRST}' AS DATETIME(6)) END"
        )

    def truth(self, value: str) -> str:
        """Return the boolean that a text is."""
        word = f"lower({self.trimmed(value)})"
        true, false = (
            ", ".join(f"'{w}'" for w in sorted(each)) for each in (types.TRUE, types.FALSE)
        )
        return f"CASE WHEN {word} IN ({true}) THEN 1 WHEN {word} IN ({false}) THEN 0 END"

    def like(self, value: str, pattern: str) -> str:
        """Return whether a text, without the blanks around it, is of a pattern."""
        return _matches(value, f"{BLANK}*{pattern}{BLANK}*")

    def trimmed(self, value: str) -> str:
        """Return a text without the blanks around it."""
        return f"regexp_replace({value}, '\\A{BLANK}+|{BLANK}+\\z', '')"

    def quotient(self, a: str, b: str) -> str:
        """Return the whole quotient of whole numbers that are not negative."""
        return f"({a} DIV {b})"

    def unit(self, value: str, kind: str) -> str:
        """Return a privacy unit; of a text its digest, since long ones are sorted in part only."""
        return f"sha2({value}, 256)" if is_of(kind, TEXTUAL) else value

    def unit_text(self, value: str, kind: str) -> str:
        """Return the text of a privacy unit: equal ones have one."""
        if kind[:4] == "TIME" or is_of(kind, ("DECIMAL",)):
            return _without_zeros(value)
        return self.text(value, kind) if kind in REAL else f"CAST({value} AS CHAR)"

    def plain(self, value: str, kind: str) -> tuple[str, str]:
        """Return a value without what its column does to it: a collation, zeros before it."""
        if is_of(kind, (*TEXTUAL, "UUID")):
            return _text(value), kind
        if kind in WHOLE or is_of(kind, ("DECIMAL",)):
            return f"({value} + 0)", kind
        if kind == "DOUBLE":  # whatever its column shows of it
            return f"CAST({value} AS DOUBLE)", kind
        return (f"CAST({value} AS DATETIME(6))", kind) if "ZONE" in kind else (value, kind)

    def _zoned(self, plain: str) -> str:
        """Return the time, in the policy's zone, that a text with a zone is."""
        # MariaDB leaves what is before 1970, or after 2038, as it is; so do we not: it fails
        zone = f"ltrim(regexp_replace({plain}, '\\A.{{10}}[T ][0-9:.]+', ''))"
        clock = _clock(f"regexp_substr({plain}, '\\A.{{10}}[T ][0-9:.]+')")
        minutes = f"CAST(concat('0', right(replace(substr({zone}, 4), ':', ''), 2)) AS SIGNED)"
        shift = f"(CAST(substr({zone}, 2, 2) AS SIGNED) * 60 + {minutes})"
        named = f"convert_tz({clock}, {zone}, '+00:00')"
        utc = (
            f"CASE WHEN {zone} LIKE '+%' THEN {clock} - INTERVAL {shift} MINUTE"
            f" WHEN {zone} LIKE '-%' THEN {clock} + INTERVAL {shift} MINUTE"
            f" WHEN {zone} IN ('Z', 'UTC', 'GMT') THEN {clock}"
            f" ELSE {self._seen(clock, named)} END"
        )
        if self._zone == "UTC":
            return utc
        return self._seen(f"({utc})", f"convert_tz({utc}, '+00:00', {text(self._zone)})")

    def _seen(self, moment: str, then: str) -> str:
        """Return ``then`` if a time is one of which MariaDB knows zones; else an error."""
        start, end = (f"CAST('{each}' AS DATETIME(6))" for each in SEEN)
        return (
            f"CASE WHEN {moment} BETWEEN {start} AND {end} THEN {then}"
            f" WHEN {moment} IS NOT NULL THEN {error(moment, 'timestamp')} END"
        )

    # --- what the policy's own SQL asks for ------------------------------------------------------

    def typed(self, field: Field) -> str:
        """Return a column as a value of its PostgreSQL type."""
        sql, kind = self.plain(field.sql, field.kind)
        if kind == "DATE" or kind.startswith("TIMESTAMP"):
            return _day(sql, "DATE" if kind == "DATE" else "DATETIME(6)")
        if kind == "TIME":
            return _text(_without_zeros(sql))
        return f"({sql} + 0e0)" if kind in REAL else sql

    def prepared(self, tree: exp.Expr) -> exp.Expr:
        """Return the tree of an expression as it is."""
        return tree

    def written(
        self, node: exp.Expr, sql: Callable[[exp.Expr], str], kind: Callable[[exp.Expr], str]
    ) -> str:
        """Return a node in MariaDB's words."""
        return written(node, sql, kind, self)

    def cast(self, sql: str, of: str, kind: str) -> str:
        """Return a value as another type; an error where it cannot be read."""
        return (
            f"CASE WHEN {sql} IS NOT NULL THEN coalesce({self.tried(sql, of, kind)},"
            f" {error(sql, kind)}) END"
        )

    def tried(self, sql: str, of: str, kind: str) -> str:
        """Return a value as another type; NULL where it cannot be read, or does not fit."""
        if kind == "real":
            raise NotSupportedError("a cast to real is not written for MariaDB")
        if of == "text":
            return self._read(f"({sql})", kind)
        if (of in types.FLOATS and kind in RANGES) or (kind == "text" and of in FRACTIONS):
            raise NotSupportedError(f"a cast of {of} to {kind} is not written for MariaDB")
        if kind in RANGES:
            return _within(f"CAST({sql} AS DECIMAL({WIDE}))", 2 ** RANGES[kind])
        if kind == "numeric":
            plain = _shortest(f"({sql})", "DOUBLE") if of in types.FLOATS else sql
            return _bounded(plain, DIGITS, types.DECIMALS)
        if kind == "text":
            if of == "boolean":
                return _text(_truth(sql))
            return _text(_without_zeros(sql) if of == "timestamp" else sql)
        if kind == "boolean":
            return f"({sql} <> 0)"
        return f"({sql} + 0e0)" if kind in types.FLOATS else f"CAST({sql} AS {CASTS[kind]})"

    def sized(self, sql: str, kind: str, size: Sequence[int]) -> str:
        """Return a value as a type of a size."""
        if kind == "text":
            return f"left({sql}, {size[0]})"
        digits, places = size[0], size[1] if len(size) > 1 else 0
        fits = _bounded(sql, digits, places)
        return f"CASE WHEN {sql} IS NOT NULL THEN coalesce({fits}, {error(sql, kind)}) END"

    def _read(self, sql: str, kind: str) -> str:
        """Return a text as another type; NULL where it is none of it."""
        if kind == "boolean":
            return self.truth(sql)
        if kind == "text":
            return sql
        test = _matches(sql, READABLE[kind].replace(r"\s", BLANK))
        plain = f"CASE WHEN {test} THEN {self.trimmed(sql)} END"
        if kind in types.TIMES:
            return f"CAST({_clock(plain)} AS {CASTS[kind]})"
        short = f"(char_length({sql}) <= {LONG} OR {sql} NOT REGEXP '[eE]')"
        plain = f"CASE WHEN {test} AND {short} THEN {self.trimmed(sql)} END"
        if kind in RANGES:
            return _within(f"CAST({plain} AS DECIMAL({WIDE}))", 2 ** RANGES[kind])
        if kind in types.FLOATS:
            value = f"CAST({plain} AS DOUBLE)"
            return f"CASE WHEN abs({value}) < 1e308 THEN {value} END"
        return _bounded(plain, DIGITS, types.DECIMALS)


def _text(value: str) -> str:
    return f"(CONVERT({value} USING utf8mb4) COLLATE {COLLATION})"


def _truth(value: str) -> str:
    return f"CASE WHEN {value} THEN 'true' WHEN NOT ({value}) THEN 'false' END"


def _matches(value: str, pattern: str) -> str:
    whole = rf"\A(?:{pattern})\z"
    return f"({value} REGEXP {text(whole)})"


def _without_zeros(value: str) -> str:
    """Return the text of a time or a number without zeros after its point."""
    plain = f"CAST({value} AS CHAR)"
    return f"regexp_replace({plain}, '\\.0+\\z|(\\.[0-9]*[1-9])0+\\z', '\\1')"


def _bounded(value: str, digits: int, places: int) -> str:
    """Return a number to so many decimals; NULL where it has more digits."""
    rounded = f"CAST({value} AS DECIMAL({WIDE}, {places}))"
    fits = f"abs({rounded}) < 1{'0' * (digits - places)}"
    return f"CASE WHEN {fits} THEN CAST({value} AS DECIMAL({digits}, {places})) END"


def _within(value: str, end: int) -> str:
    return f"CASE WHEN {value} >= -{end} AND {value} < {end} THEN CAST({value} AS SIGNED) END"


def _day(value: str, kind: str) -> str:
    """Return a day or time of a column as of a type; NULL where a part of it is zero."""
    last = f"dayofmonth(last_day({value}))"
    return (
        f"CASE WHEN year({value}) > 0 AND dayofmonth({value}) BETWEEN 1 AND {last}"
        f" THEN CAST({value} AS {kind}) END"
    )


def _clock(plain: str) -> str:
    """Return the time that a text of the form of one is; NULL of no day or no time."""
    day = f"CAST(left({plain}, 10) AS DATETIME(6))"
    time = f"substr({plain}, 12)"
    return (
        f"CASE WHEN {plain} LIKE '0000%' OR {plain} LIKE '____-00%' OR {plain} LIKE '_______-00%'"
        f" THEN NULL WHEN {time} REGEXP '\\A24:00(:00([.]0+)?)?\\z'"
        f" THEN {day} + INTERVAL 1 DAY ELSE CAST(concat(left({plain}, 10), ' ',"
        f" coalesce(nullif(left({time}, 15), ''), '00:00')) AS DATETIME(6)) END"
    )


def _shortest(value: str, kind: str) -> str:
    """Return the shortest decimal that denotes a number; MariaDB has no NaN, and no infinity."""
    if kind == "DOUBLE":
        return f"CAST({value} AS CHAR)"
    whole = f"CAST({value} + 0e0 AS CHAR)"  # all digits of the number; of itself it shows six
    found = [f"CAST({value} AS CHAR)"]
    for digits in (7, 8, 9):
        first = f"CAST(substring_index({whole}, 'e', 1) AS DECIMAL(40, 30))"
        scientific = f"concat({_without_zeros(f'round({first}, {digits - 1})')}, 'e', "
        scientific += f"substring_index({whole}, 'e', -1))"
        places = f"{digits - 1} - floor(log10(abs({value})))"
        fixed = _without_zeros(f"round(CAST({whole} AS DECIMAL({WIDE}, 30)), {places})")
        found.append(f"CASE WHEN {whole} LIKE '%e%' THEN {scientific} ELSE {fixed} END")
    *tried, last = found
    parts = ""
    for each in tried:
        mirrored = f"(2 * ({each} + 0e0) - ({value} + 0e0))"  # the neighbour, of what is half way
        tie = f"CAST({mirrored} AS FLOAT) + 0e0 = {mirrored} AND {mirrored} <> {value} + 0e0"
        parts += f" WHEN CAST({each} AS FLOAT) = {value} AND NOT ({tie}) THEN {each}"
    return f"CASE{parts} ELSE {last} END"


def _plain(value: str, shortest: str) -> str:
    """Return a number as PostgreSQL writes it: with an exponent below 1e-4, and from 1e16 on."""
    digits = f"regexp_replace({shortest}, '\\A-?0[.]0*', '')"
    rest = f"CASE WHEN char_length({digits}) > 1 THEN concat('.', substr({digits}, 2)) ELSE '' END"
    zeros = f"(char_length(CAST({shortest} AS CHAR)) - char_length({digits}) - ({value} < 0) - 1)"
    sign = f"CASE WHEN {value} < 0 THEN '-' ELSE '' END"
    small = f"concat({sign}, left({digits}, 1), {rest}, 'e-', lpad({zeros}, 2, '0'))"
    power = f"CAST(substring_index({shortest}, 'e', -1) AS SIGNED)"
    length = f"greatest(2, char_length(abs({power})))"
    large = (
        f"concat(substring_index({shortest}, 'e', 1), CASE WHEN {power} < 0 THEN 'e-' ELSE 'e+' END"
        f", lpad(abs({power}), {length}, '0'))"
    )
    fixed = _without_zeros(f"CAST({shortest} AS DECIMAL({WIDE}, 30))")
    size = f"abs({shortest} + 0e0)"
    return (
        f"CASE WHEN {value} = 0 THEN '0' WHEN {size} >= 1e-4 AND {size} < 1e16 THEN"
        f" CASE WHEN {shortest} LIKE '%e%' THEN {fixed} ELSE {shortest} END"
        f" WHEN {shortest} LIKE '%e%' THEN {large} ELSE {small} END"
    )
