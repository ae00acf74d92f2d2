"""SQL that turns a value of a record into its code on an axis, or into quanta of a measure.

How a value is read, by the type of the attribute; a measure is read as decimal:

- text: text as it is (white space and case count); of other columns what PostgreSQL's ``::text``
  gives, a DOUBLE as its shortest decimal without ``.0``.
- boolean: BOOLEAN; the numbers 0 and 1; text in PostgreSQL's words, in any case (t, tr, tru, true,
  y, ye, yes, on, 1 and f, fa, fal, fals, false, n, no, of, off, 0).
- integer, decimal: a number by its value: of a DOUBLE the shortest decimal that denotes it, of a
  BOOLEAN 0 or 1, of text ASCII digits with sign, point and exponent ('012', ' 5 ', '5.0', '1e1',
  '-.5', 'inf'; not '0x10', '1_000', '1,5'), as PostgreSQL's numeric reads it.  It is rounded to
  FINE decimals more than the policy declares.  One that is not whole is outside an integer axis.
- date, timestamp: DATE, TIMESTAMP; a TIMESTAMP WITH TIME ZONE as what the clock showed in the
  policy's time zone; text YYYY-MM-DD, then perhaps T or a space and HH:MM[:SS[.fraction]], then
  perhaps a zone (Z, UTC, ±HH, ±HHMM, ±HH:MM, Area/City), by which it is brought into the policy's.
  No other text: no 2021/3/4, 12/31/2020, 21-03-14, no BC; no number either.  On a date axis it
  is the day that counts; what is finer than a microsecond is cut off.

NULL is NULL; NaN, and text that is blank, is NULL, save on a text axis (NaN of a DOUBLE there too).
Whatever else is not read is unreadable: it goes the way of what is outside, or, where that is
clamped, of NULL, and is counted by ``check``.  The machine's time zone and locale have no part in
it.  Exact axes are a join with a table of the declared values; bins are a search tree of
comparisons, both the same work for every record of a column.  The code of a cell is 0, 1, ...; NULL
is -1, outside -2, unreadable -3, and a value clamped to cell c is -4 - c.

A measure is clipped, then rounded to its quantum, halves away from zero, with integer arithmetic.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from itertools import pairwise

from proxy.cube.sources.duckdb import text
from proxy.domain import Attribute, Measure, Value
from proxy.errors import PolicyError
from proxy.sql.source_expressions import REAL, WHOLE, moment, words

NULL, OUTSIDE, UNREADABLE, CLAMPED = -1, -2, -3, -4
FINE = 9  # decimals read beyond those that the policy declares
DIGITS = 38  # of DuckDB's widest DECIMAL
FAST = 18  # of one that is an integer of 64 bits
NUMBERS = ("integer", "decimal")
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
TREE = 2**10  # cuts; past it an ASOF join


def scale(attribute: Attribute) -> int:
    """Return the decimals to which values of an axis of numbers are read.

    Raises:
        PolicyError: the declared values have more digits than DuckDB's DECIMAL.
    """
    whole, places = _whole(attribute), 0
    if attribute.type == "decimal":
        places = max(_places(_fraction(value)) for value in attribute.edges or attribute.values)
    if whole + places + 1 > DIGITS:
        raise PolicyError("the values have too many digits", key=f"attributes.{attribute.name}")
    return min(places + FINE, DIGITS - whole)


def _whole(attribute: Attribute) -> int:
    """Return the digits before the point of an axis's numbers."""
    declared = attribute.edges or attribute.values
    return max(len(str(abs(int(_fraction(end(declared)))))) for end in (min, max))


def _size(attribute: Attribute) -> tuple[int, int]:
    """Return how many digits, and decimals, values of an axis of numbers are read to."""
    places = scale(attribute)
    return _whole(attribute) + places, places


def key_type(attribute: Attribute) -> str:
    """Return the SQL type in which an axis's values are compared."""
    if attribute.type in NUMBERS:
        return decimal(*_size(attribute))
    return "VARCHAR" if attribute.type == "text" else attribute.type.upper()


def key(attribute: Attribute, value: str, kind: str) -> str:
    """Return SQL for a value of SQL type ``kind`` as the axis compares it; NULL if it cannot."""
    if attribute.type in NUMBERS:
        return number(value, kind, *_size(attribute))
    if attribute.type == "text":
        read = _text(value, kind)
    else:
        read = _truth(value, kind) if attribute.type == "boolean" else _moment(value, kind)
    return f"CAST({read} AS {key_type(attribute)})"


def decimal(digits: int, places: int) -> str:
    """Return the DECIMAL of so many places that holds so many digits."""
    return f"DECIMAL({FAST if digits <= FAST else DIGITS}, {places})"


def number(value: str, kind: str, digits: int, places: int) -> str:
    """Return SQL for a number of so many digits, to so many decimals; NULL if larger or none."""
    if kind == "BOOLEAN":
        value = f"CAST({value} AS TINYINT)"
    elif kind in REAL:
        value = f"CAST({value} AS VARCHAR)"
    elif is_of(kind, TEXTUAL):
        value = f"CASE WHEN {like(value, DIGIT)} THEN {_trimmed(value)} END"
    elif not is_of(kind, NUMERIC):
        value = "NULL"
    if not is_of(kind, NUMERIC) or kind in REAL:  # text is read right with room to spare only
        value = f"TRY_CAST({value} AS {decimal(DIGITS, places)})"
    return f"TRY_CAST({value} AS {decimal(digits, places)})"


def double(value: str, kind: str, exact: str) -> str:
    """Return SQL for the DOUBLE of a number that ``exact`` does not hold."""
    condition = f"{exact} IS NULL"
    if is_of(kind, TEXTUAL):
        condition += f" AND {like(value, f'({DIGIT}|{INFINITE})')}"
        value = _trimmed(value)
    elif not is_of(kind, NUMERIC):
        value = "NULL"
    return f"CASE WHEN {condition} THEN TRY_CAST({value} AS DOUBLE) END"


def null(value: str, kind: str, exact: str, axis: str) -> str:
    """Return SQL for whether a value of SQL type ``kind`` is NULL on an axis of a type."""
    blank = f"{value} IS NULL"
    if kind in REAL:
        blank += f" OR isnan({value})"
    elif axis != "text" and is_of(kind, TEXTUAL):
        blank += f" OR {like(value, '([nN][aA][nN])?' if axis in NUMBERS else '')}"
    return (
        f"coalesce({blank}, false)"
        if axis == "text"
        else (f"CASE WHEN {exact} IS NULL THEN coalesce({blank}, false) ELSE false END")
    )


def _text(value: str, kind: str) -> str:
    """Return SQL for the text of a value."""
    if kind in REAL:
        return f"regexp_replace(CAST({value} + 0 AS VARCHAR), '\\.0$', '')"  # + 0: of -0.0
    return f"CAST({value} AS VARCHAR)" if is_of(kind, WRITTEN) else "NULL"


def _truth(value: str, kind: str) -> str:
    """Return SQL for the boolean that a value is."""
    if is_of(kind, NUMERIC):
        return f"CASE WHEN {value} = 0 THEN false WHEN {value} = 1 THEN true END"
    if kind == "BOOLEAN":
        return value
    return words(f"CAST({value} AS VARCHAR)") if is_of(kind, TEXTUAL) else "NULL"


def _moment(value: str, kind: str) -> str:
    """Return SQL for the TIMESTAMP, or DATE, that a value is in the policy's time zone."""
    if kind.startswith("TIMESTAMP"):
        return moment(value, kind)
    if kind == "DATE":
        return value
    if not is_of(kind, TEXTUAL):
        return "NULL"
    plain = _trimmed(value)
    zoned = f"TRY_CAST(regexp_replace({plain}, ' ([-+Z])', '\\1') AS TIMESTAMPTZ)"
    return (
        f"CASE WHEN {like(value, f'{DAY}({TIME})?')} THEN TRY_CAST({plain} AS TIMESTAMP)"
        f" WHEN {like(value, f'{DAY}{TIME}{ZONE}')} THEN CAST({zoned} AS TIMESTAMP)"
        f" WHEN lower({plain}) IN ('infinity', '-infinity') THEN CAST({plain} AS TIMESTAMP) END"
    )


def is_of(kind: str, kinds: tuple[str, ...]) -> bool:
    """Return whether a SQL type, without its parameters, is among some."""
    return not kind.endswith("]") and kind.split("(")[0].split(" ")[0] in kinds


def like(value: str, pattern: str) -> str:
    """Return SQL for whether a text, without the blanks around it, is of a pattern."""
    pattern = f"{BLANK}*{pattern}{BLANK}*"
    return f"regexp_full_match(CAST({value} AS VARCHAR), {text(pattern)})"


def _trimmed(value: str) -> str:
    return f"trim(CAST({value} AS VARCHAR), {BLANKS})"


def code(attribute: Attribute, key: str, far: str, null: str, exact: str, cut: str) -> str:
    """Return SQL for the code of a value.

    ``far`` is a number that the key does not hold, ``exact`` the code of the equal declared value
    (or NULL), ``cut`` that of the cell between the cuts.
    """
    found = f"WHEN {exact} IS NOT NULL THEN {exact}"
    if attribute.edges is not None:
        kind = key_type(attribute)
        low, high = (literal(attribute.edges[i], kind) for i in (0, -1))
        whole = f" AND {key} = floor({key})" if attribute.type == "integer" else ""
        found = f"WHEN {key} >= {low} AND {key} < {high}{whole} THEN {cut}"
    clamp = ""
    if attribute.outside == "clamp":
        last = len(attribute.values) - 1
        clamp = (
            f" WHEN {key} IS NOT NULL THEN {CLAMPED} - {cut}"
            f" WHEN {far} > 0 THEN {CLAMPED - last} WHEN {far} < 0 THEN {CLAMPED}"
        )
    read = f"WHEN coalesce({key} IS NULL AND {far} IS NULL, true) THEN {UNREADABLE}"
    return f"CASE WHEN {null} THEN {NULL} {found}{clamp} {read} ELSE {OUTSIDE} END"


def cuts(attribute: Attribute) -> list[Value]:
    """Return the values between cells, ascending: what is at or past one is above it.

    Raises:
        PolicyError: values without an order cannot be clamped.
    """
    if attribute.edges is not None:
        return list(attribute.edges[1:-1])
    values = attribute.values
    ordered = attribute.type not in ("text", "boolean")
    if not ordered or any(not a < b for a, b in pairwise(values)):  # type: ignore[operator]
        raise PolicyError("clamp needs ascending values", key=f"attributes.{attribute.name}")
    unit = _unit(attribute)
    return [_nearer(a, b, unit) for a, b in pairwise(values)]


def tree(key: str, kind: str, cuts: Sequence[Value], first: int = 0) -> str:
    """Return SQL for the number of cuts at or below a value: a balanced tree of comparisons."""
    if not cuts:
        return str(first)
    middle = len(cuts) // 2
    above = tree(key, kind, cuts[middle + 1 :], first + middle + 1)
    below = tree(key, kind, cuts[:middle], first)
    return f"CASE WHEN {key} >= {literal(cuts[middle], kind)} THEN {above} ELSE {below} END"


def literal(value: Value, kind: str) -> str:
    """Return a declared value as SQL of the type ``kind`` in which the axis compares."""
    return f"CAST({text(written(value))} AS {kind})"


def written(value: Value) -> str:
    """Return a declared value as text that DuckDB reads."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def quanta_size(measure: Measure) -> tuple[int, int]:
    """Return how many digits, and decimals, a measure's values are read to: for their quanta."""
    places, _ = quanta(measure)
    return len(str(_most(measure))) + 2 * places, places


def _most(measure: Measure) -> int:
    return int(max(abs(measure.low), abs(measure.high)) + 1)


def quanta(measure: Measure) -> tuple[int, int]:
    """Return (places, step): a measure's quantum is step / 10^p, and values are read to ``places``.

    Raises:
        PolicyError: the quantum is no finite decimal, or too fine for the clip.
    """
    exact = _places(measure.quantum)
    step = int(measure.quantum * 10**exact)
    places = exact if step == 1 else exact + FINE
    most = _most(measure)
    while places > exact + 1 and most * 10 ** (2 * places) >= 10**DIGITS:
        places -= 1
    if most * 10 ** (2 * places) >= 10**DIGITS:
        raise PolicyError("the quantum is too fine for the clip", key=f"measures.{measure.name}")
    return places, step * 10 ** (places - exact)


def rounded(measure: Measure, exact: str, double: str) -> str:
    """Return SQL for the quanta of a number, clipped and then rounded; NULL if it is none."""
    (low, high), (places, step) = measure.bounds, quanta(measure)
    least, most = ends(measure)
    # the product fits the DECIMAL only inside the clip
    inside = f"CASE WHEN {exact} > {least} AND {exact} < {most} THEN {exact} END"
    units = f"CAST(({inside}) * {10**places} AS HUGEINT)"
    if step > 1:
        units = f"(sign({units}) * ((2 * abs({units}) + {step}) // {2 * step}))"
    return (
        f"CASE WHEN {exact} <= {least} OR {double} < 0 THEN {low}"
        f" WHEN {exact} >= {most} OR {double} > 0 THEN {high}"
        f" WHEN {exact} IS NOT NULL THEN CAST({units} AS BIGINT) END"
    )


def ends(measure: Measure) -> tuple[str, str]:
    """Return a measure's clip as SQL."""
    places, _ = quanta(measure)
    low, high = (
        f"CAST('{end * 10**places // 1}e-{places}' AS {decimal(*quanta_size(measure))})"
        for end in (measure.low, measure.high)
    )
    return low, high


def _unit(attribute: Attribute) -> Fraction | datetime.timedelta:
    """Return the least difference between values as the axis compares them."""
    match attribute.type:
        case "date":
            return datetime.timedelta(days=1)
        case "timestamp":
            return datetime.timedelta.resolution
    return Fraction(1, 10 ** scale(attribute))


def _nearer(low: Value, high: Value, unit: Fraction | datetime.timedelta) -> Value:
    """Return the least value that is nearer to ``high``; a tie goes to ``low``."""
    if isinstance(unit, datetime.timedelta):
        assert isinstance(low, datetime.date)
        assert isinstance(high, datetime.date)
        return low + ((high - low) // unit // 2 + 1) * unit
    least = ((_fraction(low) + _fraction(high)) / 2 // unit + 1) * unit
    return Context(2 * DIGITS).divide(Decimal(least.numerator), Decimal(least.denominator))


def _fraction(value: Value) -> Fraction:
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)  # type: ignore[arg-type]


def _places(value: Fraction) -> int:
    """Return the decimals of a number; of an infinite decimal, more than fit."""
    return next((p for p in range(DIGITS) if (value * 10**p).denominator == 1), DIGITS)
