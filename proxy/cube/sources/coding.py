"""SQL that turns a value of a record into its code on an axis, or into quanta of a measure.

How a value is read, by the type of the attribute:

- text: the value's text, compared exactly (white space and case count).
- boolean: DuckDB's reading (true/false, t/f, yes/no, 1/0, in any case).
- integer, decimal: a number, exactly; a DOUBLE stands for the shortest decimal that denotes it,
  text is read as DuckDB casts it ('012', ' 5 ', '5.0' and '1e1' are numbers).  NaN is NULL; a
  number that is not whole is outside an integer axis.
- date, timestamp: ISO text, or the type itself; a time is cut to its day on a date axis.

Text that is blank is NULL, save on a text axis.  What cannot be read at all is outside.  Exact axes
are a join with a table of the declared values; bins are a search tree of comparisons, both the same
work for every record of a column.  The code of a cell is 0, 1, ...; NULL is -1, outside -2, and a
value clamped to cell c is -3 - c.

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

NULL, OUTSIDE, CLAMPED = -1, -2, -3
FINE = 9  # decimals read beyond those that the policy declares
DIGITS = 38  # of DuckDB's widest DECIMAL
NUMBERS = ("integer", "decimal")
WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER",
         "UBIGINT", "UHUGEINT")  # fmt: skip
TREE = 2**10  # cuts; past it an ASOF join


def scale(attribute: Attribute) -> int:
    """Return the decimals to which values of an axis of numbers are read.

    Raises:
        PolicyError: the declared values have more digits than DuckDB's DECIMAL.
    """
    declared = attribute.edges or attribute.values
    whole = max(len(str(abs(int(_fraction(end(declared)))))) for end in (min, max))
    places = 0
    if attribute.type == "decimal":
        places = max(_places(_fraction(value)) for value in declared)
    if whole + places + 1 > DIGITS:
        raise PolicyError("the values have too many digits", key=f"attributes.{attribute.name}")
    return min(places + FINE, DIGITS - whole)


def key_type(attribute: Attribute) -> str:
    """Return the SQL type in which an axis's values are compared."""
    if attribute.type in NUMBERS:
        return f"DECIMAL({DIGITS}, {scale(attribute)})"
    return "VARCHAR" if attribute.type == "text" else attribute.type.upper()


def key(attribute: Attribute, value: str, kind: str) -> str:
    """Return SQL for a value of SQL type ``kind`` as the axis compares it; NULL if it cannot."""
    if attribute.type in NUMBERS:
        return number(value, kind, scale(attribute))
    if attribute.type == "text" or kind.startswith(("DATE", "TIMESTAMP")):
        return f"TRY_CAST({value} AS {key_type(attribute)})"
    return f"TRY_CAST({_written(value)} AS {key_type(attribute)})"


def number(value: str, kind: str, places: int) -> str:
    """Return SQL for a number, exactly to so many decimals; NULL if too large or none."""
    if kind == "BOOLEAN":
        value = f"CAST({value} AS TINYINT)"
    elif kind not in WHOLE and not kind.startswith("DECIMAL"):
        value = _written(value)
    return f"TRY_CAST({value} AS DECIMAL({DIGITS}, {places}))"


def double(value: str, exact: str) -> str:
    """Return SQL for the DOUBLE of a number that ``exact`` does not hold."""
    return f"CASE WHEN {exact} IS NULL THEN TRY_CAST({_written(value)} AS DOUBLE) END"


def null(value: str, exact: str, kind: str) -> str:
    """Return SQL for whether a value is NULL: ``kind`` is text, number or else."""
    if kind == "text":
        return f"{value} IS NULL"
    blank = f"{value} IS NULL OR trim({_written(value)}, E' \\t\\r\\n') = ''"
    if kind == "number":
        blank = f"{blank} OR coalesce(isnan({double(value, exact)}), false)"
    return f"CASE WHEN {exact} IS NULL THEN {blank} ELSE false END"


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
    return f"CASE WHEN {null} THEN {NULL} {found}{clamp} ELSE {OUTSIDE} END"


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


def quanta(measure: Measure) -> tuple[int, int]:
    """Return (places, step): a measure's quantum is step / 10^p, and values are read to ``places``.

    Raises:
        PolicyError: the quantum is no finite decimal, or too fine for the clip.
    """
    exact = _places(measure.quantum)
    step = int(measure.quantum * 10**exact)
    places = exact if step == 1 else exact + FINE
    most = int(max(abs(measure.low), abs(measure.high)) + 1)
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
        f"CAST('{end * 10**places // 1}e-{places}' AS DECIMAL({DIGITS}, {places}))"
        for end in (measure.low, measure.high)
    )
    return low, high


def _written(value: str) -> str:
    return f"CAST({value} AS VARCHAR)"


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
