"""How values of a record are read in SQL: what each database says in a way of its own.

``Dialect`` is DuckDB's, and what a database does otherwise is overridden by its own.  Every method
returns SQL; ``kind`` is the type of a column in DuckDB's words, whatever the database.  The rules
of reading are those of ``coding``, and the same in every dialect.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.sql.source_expressions import REAL, WHOLE, identifier, moment, words

DIGITS = 38  # of DuckDB's widest DECIMAL
FAST = 18  # of one that is an integer of 64 bits
NUMERIC = (*WHOLE, *REAL, "DECIMAL")
TEXTUAL = ("VARCHAR", "ENUM")
WRITTEN = (*WHOLE, *TEXTUAL, "DECIMAL", "BOOLEAN", "DATE", "TIME", "UUID",
           "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")  # fmt: skip
DIGIT = r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,3})?"
INFINITE = r"[-+]?[iI][nN][fF]([iI][nN][iI][tT][yY])?"
DAY = "([0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})-[0-9]{2}-[0-9]{2}"
TIME = r"[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?"
OFFSET = "[-+](0[0-9]|1[0-5])(:?[0-5][0-9])?"
ZONE = f"( ?(Z|{OFFSET})| (UTC|GMT|[A-Za-z]+(/[A-Za-z0-9_+-]+)+))"
BLANK, BLANKS = r"[ \t\r\n\f]", r"E' \t\r\n\f'"


def text(value: str) -> str:
    """Return a string as an SQL literal."""
    return "'" + value.replace("'", "''") + "'"


def is_of(kind: str, kinds: tuple[str, ...]) -> bool:
    """Return whether a SQL type, without its parameters, is among some."""
    return not kind.endswith("]") and kind.split("(")[0].split(" ")[0] in kinds


class Dialect:
    """The SQL of DuckDB, and what others override of it."""

    fence = ""  # ends a SELECT whose values are worked out once, however often they are used
    whole = "HUGEINT"  # that holds a measure's value in the units of its decimals
    long = "BIGINT"  # that holds a word, and quanta
    string = "VARCHAR"
    hints = True  # whether what cannot be read is told apart by what it looks like

    def decimal(self, digits: int, places: int) -> str:
        """Return the type of numbers of so many decimals that holds so many digits."""
        return f"DECIMAL({FAST if digits <= FAST else DIGITS}, {places})"

    def name(self, name: str) -> str:
        """Return a name as an identifier."""
        return identifier(name)

    def counts(self, kind: str) -> bool:
        """Whether whole numbers of a column are best compared as such, and not as decimals."""
        return False

    def compared(self, value: str, kind: str) -> str:
        """Return a value as of the type in which an axis compares."""
        return f"CAST({value} AS {kind})"

    def skips(self, value: str, kind: str) -> str | None:
        """Return a date or a time as a source compares it before reading; None if it cannot.

        A text of ten characters, as folders named day=… have, is a day, or no date at all.
        """
        if kind in ("DATE", "TIMESTAMP"):
            return value
        if kind == "VARCHAR":  # with a pattern in it DuckDB would open each file
            day = f"TRY_CAST({value} AS DATE)"
            return f"CASE WHEN length({value}) = 10 THEN {day} ELSE DATE 'infinity' END"
        return None

    def number(self, value: str, kind: str, digits: int, places: int) -> str:
        """Return a number of so many digits, to so many decimals; NULL if larger or none."""
        if kind == "BOOLEAN":
            return f"TRY_CAST(CAST({value} AS TINYINT) AS {self.decimal(digits, places)})"
        given = value
        if kind in REAL:
            value = f"CAST({value} AS VARCHAR)"
        elif is_of(kind, TEXTUAL):
            value = f"CASE WHEN {self.like(value, DIGIT)} THEN {self.trimmed(value)} END"
        elif not is_of(kind, NUMERIC):
            return f"CAST(NULL AS {self.decimal(digits, places)})"
        narrow = self.decimal(digits, places)
        if is_of(kind, NUMERIC) and kind not in REAL:
            return f"TRY_CAST({value} AS {narrow})"
        # text is read right with room to spare only, which takes ten times as long
        wide = f"TRY_CAST(TRY_CAST({value} AS {self.decimal(DIGITS, places)}) AS {narrow})"
        short = f"length({value}) < {FAST - 1} AND NOT contains(lower({value}), 'e')"
        read = f"CASE WHEN {short} THEN TRY_CAST({value} AS {narrow}) ELSE {wide} END"
        if kind != "DOUBLE":
            return read
        # far from a tie, and of so many digits, it does not matter which decimal denotes it
        units = f"({given} * 1e{places})"
        plain = f"abs({units}) < 1e12 AND abs(abs({units} - round({units})) - 0.5) > 1e-3"
        return f"CASE WHEN {plain} THEN TRY_CAST({given} AS {narrow}) ELSE {read} END"

    def far(self, value: str, kind: str, exact: str) -> str:
        """Return the sign of a number that ``exact`` does not hold; NULL of what is none."""
        condition = f"{exact} IS NULL"
        if is_of(kind, TEXTUAL):
            condition += f" AND {self.like(value, f'({DIGIT}|{INFINITE})')}"
            sign = f"CASE WHEN {self.trimmed(value)} LIKE '-%' THEN -1 ELSE 1 END"
        elif is_of(kind, NUMERIC):
            condition += f" AND {value} IS NOT NULL AND NOT {self.nan(value, kind)}"
            sign = f"CASE WHEN {value} < 0 THEN -1 ELSE 1 END"
        else:
            return "CAST(NULL AS INTEGER)"
        return f"CASE WHEN {condition} THEN {sign} END"

    def nan(self, value: str, kind: str) -> str:
        """Return whether a number that is not NULL is NaN."""
        return f"isnan({value})" if kind in REAL else "false"

    def text(self, value: str, kind: str) -> str:
        """Return the text of a value."""
        if kind in REAL:
            return f"regexp_replace(CAST({value} + 0 AS VARCHAR), '\\.0$', '')"  # + 0: of -0.0
        return f"CAST({value} AS VARCHAR)" if is_of(kind, WRITTEN) else "CAST(NULL AS VARCHAR)"

    def moment(self, value: str, kind: str) -> str:
        """Return the TIMESTAMP, or DATE, that a value is in the policy's time zone."""
        if kind.startswith("TIMESTAMP"):
            return moment(value, kind)
        if kind == "DATE":
            return value
        if not is_of(kind, TEXTUAL):
            return "CAST(NULL AS TIMESTAMP)"
        return self.moment_of_text(value)

    def moment_of_text(self, value: str) -> str:
        """Return the TIMESTAMP that a text is."""
        plain = self.trimmed(value)
        zoned = f"TRY_CAST(regexp_replace({plain}, ' ([-+Z])', '\\1') AS TIMESTAMPTZ)"
        return (
            f"CASE WHEN {self.like(value, f'{DAY}({TIME})?')} THEN TRY_CAST({plain} AS TIMESTAMP)"
            f" WHEN {self.like(value, f'{DAY}{TIME}{ZONE}')} THEN CAST({zoned} AS TIMESTAMP)"
            f" WHEN lower({plain}) IN ('infinity', '-infinity') THEN CAST({plain} AS TIMESTAMP) END"
        )

    def truth(self, value: str) -> str:
        """Return the boolean that a text is."""
        return words(f"CAST({value} AS {self.string})")

    def like(self, value: str, pattern: str) -> str:
        """Return whether a text, without the blanks around it, is of a pattern."""
        pattern = f"{BLANK}*{pattern}{BLANK}*"
        return f"regexp_full_match(CAST({value} AS VARCHAR), {text(pattern)})"

    def trimmed(self, value: str) -> str:
        """Return a text without the blanks around it."""
        return f"trim(CAST({value} AS VARCHAR), {BLANKS})"

    def quotient(self, a: str, b: str) -> str:
        """Return the whole quotient of whole numbers that are not negative."""
        return f"({a} // {b})"

    def unit(self, value: str, kind: str) -> str:
        """Return a privacy unit, so that equal ones are the same."""
        return value

    def unit_text(self, value: str, kind: str) -> str:
        """Return the text of a privacy unit: equal ones have one."""
        plain = f"CAST({value} AS VARCHAR)"
        if is_of(kind, ("DECIMAL",)):
            bare = f"rtrim(rtrim({plain}, '0'), '.')"
            return f"CASE WHEN contains({plain}, '.') THEN {bare} ELSE {plain} END"
        return self.text(value, kind) if kind in REAL else plain

    def plain(self, value: str, kind: str) -> tuple[str, str]:
        """Return a value whose type is nobody's but the database's own, and that type."""
        return value, kind

    def digest(self, parts: Sequence[str]) -> str:
        """Return a text that orders rows as if by chance, of texts that have no NULL."""
        return f"md5(concat_ws('|', {', '.join(parts)}))"


DUCKDB = Dialect()
