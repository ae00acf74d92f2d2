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
it.  Exact axes are a subtraction, where whole values are consecutive, or a join with a table of
them; bins are a search tree of comparisons, all the same work for every record of a column.  The
code of a cell is 0, 1, ...; NULL is -1, outside -2, unreadable -3, and a value clamped to cell c
is -4 - c.

A measure is clipped, then rounded to its quantum, halves away from zero, with integer arithmetic.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from itertools import pairwise

from proxy.cube.sources.dialect import DIGITS, DUCKDB, NUMERIC, TEXTUAL, Dialect, is_of, text
from proxy.domain import Attribute, Measure, Value
from proxy.errors import PolicyError

NULL, OUTSIDE, UNREADABLE, CLAMPED = -1, -2, -3, -4
FINE = 9  # decimals read beyond those that the policy declares
NUMBERS = ("integer", "decimal")
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


def key_type(attribute: Attribute, kind: str = "", dialect: Dialect = DUCKDB) -> str:
    """Return the SQL type in which an axis's values are compared with those of a column."""
    if attribute.type in NUMBERS:
        if attribute.type == "integer" and dialect.counts(kind):
            declared = attribute.edges or attribute.values
            if all(abs(_fraction(end(declared))) < 2**63 for end in (min, max)):
                return "BIGINT"
        return dialect.decimal(*_size(attribute))
    return "VARCHAR" if attribute.type == "text" else attribute.type.upper()


def key(attribute: Attribute, value: str, kind: str, dialect: Dialect = DUCKDB) -> str:
    """Return SQL for a value of SQL type ``kind`` as the axis compares it; NULL if it cannot."""
    compared = key_type(attribute, kind, dialect)
    if compared == "BIGINT":
        return dialect.compared(value, compared)
    if attribute.type in NUMBERS:
        return dialect.number(value, kind, *_size(attribute))
    if attribute.type == "text":
        read = dialect.text(value, kind)
    elif attribute.type == "boolean":
        read = _truth(value, kind, dialect)
    else:
        read = dialect.moment(value, kind)
    return dialect.compared(read, compared)


def null(value: str, kind: str, exact: str, axis: str, dialect: Dialect = DUCKDB) -> str:
    """Return SQL for whether a value of SQL type ``kind`` is NULL on an axis of a type."""
    blank = f"{value} IS NULL"
    if is_of(kind, NUMERIC):
        blank += f" OR {dialect.nan(value, kind)}"
    elif axis != "text" and is_of(kind, TEXTUAL):
        blank += f" OR {dialect.like(value, '([nN][aA][nN])?' if axis in NUMBERS else '')}"
    return (
        f"coalesce({blank}, false)"
        if axis == "text"
        else (f"CASE WHEN {exact} IS NULL THEN coalesce({blank}, false) ELSE false END")
    )


def _truth(value: str, kind: str, dialect: Dialect) -> str:
    """Return SQL for the boolean that a value is."""
    if is_of(kind, NUMERIC):
        return f"CASE WHEN {value} = 0 THEN false WHEN {value} = 1 THEN true END"
    if kind == "BOOLEAN":
        return value
    return dialect.truth(value) if is_of(kind, TEXTUAL) else "NULL"


def code(
    attribute: Attribute,
    key: str,
    far: str,
    null: str,
    exact: str,
    cut: str,
    kind: str,
    dialect: Dialect = DUCKDB,
) -> str:
    """Return SQL for the code of a value.

    ``far`` is the sign of a number that the key does not hold, ``exact`` the code of the equal
    declared value (or NULL), ``cut`` that of the cell between the cuts; ``kind`` is the type of
    the key.
    """
    found = f"WHEN {exact} IS NOT NULL THEN {exact}"
    if attribute.edges is not None:
        low, high = (literal(attribute.edges[i], kind, dialect) for i in (0, -1))
        fine = attribute.type == "integer" and kind != "BIGINT"
        whole = f" AND {key} = floor({key})" if fine else ""
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


def consecutive(attribute: Attribute) -> bool:
    """Whether an axis's values are whole numbers one after the other."""
    values = attribute.values
    return (
        attribute.type == "integer"
        and attribute.edges is None
        and all(b == a + 1 for a, b in pairwise(values))  # type: ignore[operator]
    )


def counted(attribute: Attribute, key: str, dialect: Dialect) -> str:
    """Return SQL for the code of the equal value, of consecutive ones; NULL if none is."""
    low, high = (literal(attribute.values[end], "BIGINT", dialect) for end in (0, -1))
    return f"CASE WHEN {key} >= {low} AND {key} <= {high} THEN {key} - {low} END"


def meets(axis: Attribute, rule: str) -> list[int]:
    """Return the codes of values that an axis's rules meet where they say ``rule``."""
    # what cannot be clamped, being no value of the type at all, goes the way of NULL
    outside = axis.nulls if axis.outside == "clamp" else axis.outside
    rules = (NULL, axis.nulls), (OUTSIDE, outside), (UNREADABLE, outside)
    return [code for code, says in rules if says == rule]


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


def tree(
    key: str, kind: str, cuts: Sequence[Value], dialect: Dialect = DUCKDB, first: int = 0
) -> str:
    """Return SQL for the number of cuts at or below a value: a balanced tree of comparisons."""
    if not cuts:
        return str(first)
    middle = len(cuts) // 2
    above = tree(key, kind, cuts[middle + 1 :], dialect, first + middle + 1)
    below = tree(key, kind, cuts[:middle], dialect, first)
    cut = literal(cuts[middle], kind, dialect)
    return f"CASE WHEN {key} >= {cut} THEN {above} ELSE {below} END"


def literal(value: Value, kind: str, dialect: Dialect = DUCKDB) -> str:
    """Return a declared value as SQL of the type ``kind`` in which the axis compares."""
    return dialect.compared(text(written(value)), kind)


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


def rounded(measure: Measure, exact: str, far: str, dialect: Dialect = DUCKDB) -> str:
    """Return SQL for the quanta of a number, clipped and then rounded; NULL if it is none."""
    (low, high), (places, step) = measure.bounds, quanta(measure)
    least, most = ends(measure, dialect)
    # the product fits the DECIMAL only inside the clip
    inside = f"CASE WHEN {exact} > {least} AND {exact} < {most} THEN {exact} END"
    units = f"CAST(({inside}) * {10**places} AS {dialect.whole})"
    if step > 1:
        rounded = dialect.quotient(f"(2 * abs({units}) + {step})", f"{2 * step}")
        units = f"(CASE WHEN {units} < 0 THEN -{rounded} ELSE {rounded} END)"
    return (
        f"CASE WHEN {exact} <= {least} OR {far} < 0 THEN {low}"
        f" WHEN {exact} >= {most} OR {far} > 0 THEN {high}"
        f" WHEN {exact} IS NOT NULL THEN CAST({units} AS {dialect.long}) END"
    )


def ends(measure: Measure, dialect: Dialect = DUCKDB) -> tuple[str, str]:
    """Return a measure's clip as SQL."""
    places, _ = quanta(measure)
    low, high = (
        f"CAST('{end * 10**places // 1}e-{places}' AS {dialect.decimal(*quanta_size(measure))})"
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
