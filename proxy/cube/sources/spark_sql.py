"""Spark's SQL for the values of a record, from version 4 on.

It is composed with the quotes of DuckDB, ``'`` and ``"``, each doubled inside, and with DuckDB's
name of texts, VARCHAR; ``sent`` makes Spark's of it, once and at the end.  TIMESTAMP is that
without a zone, and every cast that fails is an error: see the settings of ``spark``.
"""

from __future__ import annotations

import re
import zoneinfo

from proxy.cube.sources.dialect import (
    BLANK,
    BLANKS,
    DAY,
    DIGIT,
    DIGITS,
    NUMERIC,
    TEXTUAL,
    TIME,
    WRITTEN,
    ZONE,
    Dialect,
    is_of,
    text,
)
from proxy.cube.sources.spark_expressions import Writer
from proxy.sql.source_expressions import REAL, Field, among, typed

TOKEN = re.compile(r"""(E?)'((?:[^']|'')*)'|"((?:[^"]|"")*)"|\bVARCHAR\b""")
ESCAPES = {r"\t": "\t", r"\r": "\r", r"\n": "\n", r"\f": "\f"}
CLOCK = rf"\A\s*([0-9-]{{10}})({TIME})?"  # of a text that is like a moment
PLACES = {"DOUBLE": (14, 15, 16), "FLOAT": (5, 6, 7, 8)}  # behind the first; the last are enough
ENDS = {"infinity": "+20000-01-01 00:00:00", "-infinity": "-20000-01-01 00:00:00"}
ROOM = 21  # decimals of a number of 17 digits that is written without an exponent
ZONES = ",".join(
    f"{zone.lower()}|{zone}"
    for zone in sorted(zoneinfo.available_timezones())
    if "/" in zone or zone in ("UTC", "GMT")
)


def sent(sql: str) -> str:
    """Return SQL as Spark reads it."""

    def own(token: re.Match[str]) -> str:
        escaped, string, name = token.groups()
        if string is not None:
            plain = string.replace("''", "'")
            if escaped:
                plain = re.sub(r"\\[trnf]", lambda each: ESCAPES[each[0]], plain)
            return "'" + plain.replace("\\", "\\\\").replace("'", "\\'") + "'"
        return "STRING" if name is None else "`" + name.replace('""', '"').replace("`", "``") + "`"

    return TOKEN.sub(own, sql)


class SparkDialect(Dialect):
    """The SQL of records in Spark; in a session as ``spark`` sets it up."""

    language = "duckdb"
    whole = "DECIMAL(38, 0)"

    # --- what the coding asks for ----------------------------------------------------------------

    def number(self, value: str, kind: str, digits: int, places: int) -> str:
        """Return a number of so many digits, to so many decimals; NULL if larger or none."""
        narrow = self.decimal(digits, places)
        if is_of(kind, TEXTUAL):
            read = f"CASE WHEN {self.like(value, DIGIT)} THEN {self.trimmed(value)} END"
            return f"TRY_CAST({read} AS {narrow})"
        if kind not in REAL:
            known = kind == "BOOLEAN" or is_of(kind, NUMERIC)
            return f"TRY_CAST({value if known else 'NULL'} AS {narrow})"
        exact = f"TRY_CAST({shortest(value, kind)} AS {narrow})"
        if kind != "DOUBLE":
            return exact
        # far from a tie, and of so many digits, it does not matter which decimal denotes it
        units = f"({value} * 1e{places})"
        plain = f"abs({units}) < 1e12 AND abs(abs({units} - rint({units})) - 0.5) > 1e-3"
        return f"CASE WHEN {plain} THEN TRY_CAST({value} AS {narrow}) ELSE {exact} END"

    def text(self, value: str, kind: str) -> str:
        """Return the text of a value."""
        if kind in REAL:
            return f"CASE WHEN {value} = 0 THEN '0' ELSE {written(value, kind)} END"
        return f"CAST({value} AS VARCHAR)" if is_of(kind, WRITTEN) else "CAST(NULL AS VARCHAR)"

    def moment(self, value: str, kind: str) -> str:
        """Return the TIMESTAMP, or DATE, that a value is in the policy's time zone."""
        if kind.startswith("TIMESTAMP"):
            return f"CAST({value} AS TIMESTAMP)"
        return super().moment(value, kind)

    def moment_of_text(self, value: str) -> str:
        """Return the TIMESTAMP that a text is."""
        plain = self.trimmed(value)
        ends = " ".join(
            f"WHEN lower({plain}) = '{word}' THEN CAST('{end}' AS TIMESTAMP)"
            for word, end in ENDS.items()
        )
        return (
            f"CASE WHEN {self.like(value, f'{DAY}({TIME})?')} THEN {clock(plain)}"
            f" WHEN {self.like(value, f'{DAY}{TIME}{ZONE}')} THEN {_zoned(plain)} {ends} END"
        )

    def like(self, value: str, pattern: str) -> str:
        """Return whether a text, without the blanks around it, is of a pattern."""
        # (?d): a dot is anything but a line feed, as in DuckDB
        pattern = rf"(?d)\A(?:{BLANK}*{pattern}{BLANK}*)\z"
        return f"(CAST({value} AS VARCHAR) RLIKE {text(pattern)})"

    def trimmed(self, value: str) -> str:
        """Return a text without the blanks around it."""
        return f"trim(BOTH {BLANKS} FROM CAST({value} AS VARCHAR))"

    def skips(self, value: str, kind: str) -> str | None:
        """Return a date or a time as Spark compares it with what is known of its files."""
        return value if kind in ("DATE", "TIMESTAMP") else None

    def truth(self, value: str) -> str:
        """Return a text read as a boolean."""
        return among(f"lower({self.trimmed(value)})")

    def quotient(self, a: str, b: str) -> str:
        """Return the whole quotient of whole numbers that are not negative."""
        return f"({a} DIV {b})"

    def unit_text(self, value: str, kind: str) -> str:
        """Return the text of a privacy unit: equal ones have one."""
        if is_of(kind, ("DECIMAL",)):
            plain = f"CAST({value} AS VARCHAR)"
            bare = f"regexp_replace({plain}, '\\.?0+$', '')"
            return f"CASE WHEN contains({plain}, '.') THEN {bare} ELSE {plain} END"
        return self.text(value, kind) if kind in REAL else f"CAST({value} AS VARCHAR)"

    # --- what the policy's own SQL asks for ------------------------------------------------------

    def typed(self, field: Field) -> str:
        """Return a column as a value of its PostgreSQL type."""
        return self.translated(typed(field).sql, {field.sql: field.kind})

    def translated(self, sql: str, kinds: dict[str, str]) -> str:
        """Return an expression, written in DuckDB's SQL over columns of some types."""
        return Writer(kinds, self).write(sql)

    def real(self, value: str, kind: str) -> str:
        """Return the text of a DOUBLE or FLOAT, as DuckDB casts it."""
        shown = written(value, kind)
        point = f"CASE WHEN {shown} RLIKE '\\A-?[0-9]+\\z' THEN concat({shown}, '.0') END"
        zero = f"WHEN {value} = 0 THEN CAST({value} AS VARCHAR)"
        return f"CASE {zero} ELSE coalesce({point}, {shown}) END"

    def clock(self, value: str) -> str:
        """Return the TIMESTAMP that a text of the form of one is; NULL of no day or no time."""
        return clock(self.trimmed(value))


def shortest(value: str, kind: str) -> str:
    """Return a number in the fewest digits that denote it, with an exponent.

    Java writes one too many now and then, before version 19.  Where two decimals are as near, or
    one lies half-way to the next FLOAT, DuckDB writes the FLOAT as it would the equal DOUBLE.
    """
    nothing = f"WHEN {value} IS NULL THEN NULL"  # which Java would write as a word
    *tries, last = (f"format_string('%.{n}e', {value})" for n in PLACES[kind])
    if kind == "DOUBLE":
        found = " ".join(f"WHEN TRY_CAST({each} AS {kind}) = {value} THEN {each}" for each in tries)
        return f"CASE {nothing} {found} ELSE {last} END"
    double = f"CAST({value} AS DOUBLE)"
    exact, found = shortest(double, "DOUBLE"), ""
    for each, longer in zip(tries, [*tries[1:], last], strict=True):
        read = f"TRY_CAST({each} AS DOUBLE)"
        other = f"(2 * {read} - {double})"
        found += (
            f" WHEN {read} <> {double} AND {_float(read)} IN ({double}, {other})"
            f" AND {_float(other)} = {other} THEN {exact}"
            f" WHEN TRY_CAST({each} AS FLOAT) = {value} THEN CASE WHEN {longer} LIKE '%5e%'"
            f" AND TRY_CAST({longer} AS DOUBLE) = {double} THEN {exact} ELSE {each} END"
        )
    return f"CASE {nothing}{found} ELSE {last} END"


def _float(double: str) -> str:
    """Return the FLOAT nearest to a DOUBLE, as a DOUBLE."""
    return f"CAST(CAST({double} AS FLOAT) AS DOUBLE)"


def written(value: str, kind: str) -> str:
    """Return the text of a number that is not 0, as DuckDB writes it, but without ``.0``."""
    digits = shortest(value, kind)
    plain = f"CAST(CAST({digits} AS DECIMAL({DIGITS}, {ROOM})) AS VARCHAR)"
    return (
        f"CASE WHEN isnan({value}) THEN 'nan' WHEN abs({value}) = CAST('inf' AS DOUBLE)"
        f" THEN CASE WHEN {value} > 0 THEN 'inf' ELSE '-inf' END"
        f" WHEN abs({value}) >= 1e-4 AND abs({value}) < 1e16"
        f" THEN regexp_replace({plain}, '\\.?0+$', '')"
        f" ELSE regexp_replace({digits}, '\\.?0*e', 'e') END"
    )


def clock(plain: str) -> str:
    """Return the TIMESTAMP that a text begins with, if that is like one."""
    day, time = (f"regexp_extract({plain}, {text(CLOCK)}, {i})" for i in (1, 2))
    midnight = rf"{time} RLIKE '\A[T ]24:00(:00(\.0*)?)?\z'"
    return (
        f"CASE WHEN {midnight} THEN TRY_CAST({day} AS TIMESTAMP) + INTERVAL '1' DAY"
        f" ELSE TRY_CAST(concat({day}, {time}) AS TIMESTAMP) END"
    )


def _zoned(plain: str) -> str:
    """Return the TIMESTAMP, in the session's zone, that a text with a zone is.

    What a clock showed twice, as it was put back, is the later time.
    """
    start = f"regexp_extract({plain}, {text(CLOCK)}, 0)"
    zone = f"ltrim(substring({plain}, length({start}) + 1))"
    sign, hours = "substring(s.z, 1, 1)", "CAST(substring(s.z, 2, 2) AS INT)"
    minutes = "CAST(coalesce(nullif(regexp_extract(s.z, '\\A...:?(..)', 1), ''), '0') AS INT)"
    offset = f"make_dt_interval(0, {hours}, {minutes})"
    zones = f"str_to_map('{ZONES}', ',', '\\|')"
    name = f"CASE lower({zone}) WHEN 'z' THEN 'utc' ELSE lower({zone}) END"
    known = f"try_element_at({zones}, {name})"
    first = "convert_timezone(s.k, 'UTC', s.t)"
    next_day = f"({first} + INTERVAL '1' DAY)"
    later = f"(s.t - (convert_timezone('UTC', s.k, {next_day}) - {next_day}))"
    instant = (
        f"CASE WHEN {sign} = '+' THEN s.t - {offset} WHEN {sign} = '-' THEN s.t + {offset}"
        f" WHEN s.k IS NULL THEN NULL"
        f" WHEN convert_timezone('UTC', s.k, {later}) = s.t THEN {later} ELSE {first} END"
    )
    parts = f"named_struct('t', {clock(plain)}, 'z', {zone}, 'k', {known})"
    instant = f"transform(array({parts}), s -> {instant})[0]"
    return f"convert_timezone('UTC', current_timezone(), {instant})"
