"""PostgreSQL's types: their names, their order, their literals.

A type is its PostgreSQL name.  ``unknown`` is the type of a quoted literal or NULL before its
place has given it one, as in PostgreSQL; so ``age = '5'`` is a comparison of numbers.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from fractions import Fraction

import numpy as np
from sqlglot import exp

from proxy.domain import Attribute, Measure
from proxy.errors import DataError, NotSupportedError, TypeMismatchError

INTEGERS = ("smallint", "integer", "bigint")
FLOATS = ("real", "double precision")
NUMBERS = (*INTEGERS, "numeric", *FLOATS)  # each converts to those after it
TIMES = ("date", "timestamp")
BITS = {"smallint": 16, "integer": 32, "bigint": 64}
DECIMALS = 15  # of a numeric made from a double or a text, which have no scale of their own
QUOTIENT = 16  # decimals of a quotient of numerics
DUCKDB = {
    "smallint": "SMALLINT",
    "integer": "INTEGER",
    "bigint": "BIGINT",
    "real": "FLOAT",
    "double precision": "DOUBLE",
    "text": "VARCHAR",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "interval": "INTERVAL",
}
NAMES = {
    "SMALLINT": "smallint",
    "TINYINT": "smallint",
    "INT": "integer",
    "BIGINT": "bigint",
    "DECIMAL": "numeric",
    "FLOAT": "real",
    "DOUBLE": "double precision",
    "TEXT": "text",
    "VARCHAR": "text",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "INTERVAL": "interval",
}
TRUE = {"t", "tr", "tru", "true", "y", "ye", "yes", "on", "1"}
FALSE = {"f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0"}


def of_attribute(attribute: Attribute) -> str:
    """Return the type of an axis as a column."""
    if attribute.type == "integer":
        return "integer" if attribute.small else "bigint"
    return {"decimal": "numeric"}.get(attribute.type, attribute.type)


def of_measure(measure: Measure) -> str:
    """Return the type of a measure as a column: whole where its quantum is."""
    if measure.quantum.denominator != 1:
        return "double precision"
    return "integer" if fits(measure.low, "integer") and fits(measure.high, "integer") else "bigint"


def fits(value: Fraction | int, kind: str) -> bool:
    """Return whether a number is in the range of a type."""
    end = 2 ** (BITS[kind] - 1) if kind in INTEGERS else None
    return end is None or -end <= value < end


def of_literal(text: str, sign: int = 1) -> str:
    """Return the type of a numeric literal, including its sign."""
    if not text.isdigit():
        return "numeric"
    value = sign * int(text)
    return next((kind for kind in ("integer", "bigint") if fits(value, kind)), "numeric")


def of_sum(kind: str) -> str:
    """Return the type of SUM of numbers of a type."""
    return {"smallint": "bigint", "integer": "bigint", "bigint": "numeric"}.get(kind, kind)


def of_mean(kind: str) -> str:
    """Return the type of AVG, and of variances, of numbers of a type."""
    return "double precision" if kind in FLOATS else "numeric"


def of_arithmetic(left: str, right: str) -> str:
    """Return the type in which two numbers are added, multiplied or divided."""
    if "real" in (left, right) and left != right and "unknown" not in (left, right):
        return "double precision"
    return common([left, right], "arithmetic")


def of_cast(node: exp.DataType) -> str:
    """Return the type that a cast names.

    Raises:
        NotSupportedError: it is not supported.
    """
    name = NAMES.get(node.this.value if isinstance(node.this, exp.DType) else "")
    if name is None or (node.expressions and name != "numeric" and name != "text"):
        written = name or str(getattr(node.this, "value", node.this))
        raise NotSupportedError(f"the type {written.lower()} is not supported in this form")
    return name


def common(kinds: Iterable[str], place: str) -> str:
    """Return the common type of several types, as in CASE.

    Raises:
        TypeMismatchError: they have none.
    """
    result = "unknown"
    for kind in kinds:
        if result in ("unknown", kind):
            result = kind
        elif kind == "unknown":
            continue
        elif result in NUMBERS and kind in NUMBERS:
            result = NUMBERS[max(NUMBERS.index(result), NUMBERS.index(kind))]
        elif result in TIMES and kind in TIMES:
            result = "timestamp"
        else:
            raise TypeMismatchError(f"{place} types {result} and {kind} cannot be matched")
    return result


def literal(kind: str, value: object) -> str:
    """Return a Python value of a type as DuckDB SQL."""
    if value is None:
        return f"CAST(NULL AS {DUCKDB.get(kind, 'INTEGER')})"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, datetime.date | datetime.datetime):
        return f"CAST('{value}' AS {DUCKDB[kind]})"
    if isinstance(value, str):
        escaped = value.replace("'", "''")
        return f"'{escaped}'"
    if kind == "numeric":
        return decimal(Decimal(str(value)))
    return f"CAST({value} AS {DUCKDB[kind]})"


def scale_of(text: str, kind: str = "numeric") -> int | None:
    """Return the decimals of a numeric as it is written."""
    return max(-int(Decimal(text.strip()).as_tuple().exponent), 0) if kind == "numeric" else None


def decimal(value: Decimal) -> str:
    """Return an exact decimal as DuckDB SQL."""
    sign, digits, exponent = value.as_tuple()
    scale = max(-int(exponent), 0)
    width = max(len(digits) + max(int(exponent), 0), scale + 1)
    if width > 38:
        raise NotSupportedError(
            f"the number {value} has more than 38 digits", hint="cast it to double precision"
        )
    del sign
    return f"CAST({value:f} AS DECIMAL({width}, {scale}))"


def read(text: str, kind: str) -> object:
    """Return a quoted literal, read as a value of a type.

    Raises:
        DataError: it is not one.
    """
    plain = text.strip()
    try:
        if kind in INTEGERS:
            if not re.fullmatch(r"[-+]?\d+", plain, re.ASCII):
                raise ValueError
            value = int(plain)
            if not fits(value, kind):
                raise DataError(f'value "{text}" is out of range for type {kind}', sqlstate="22003")
            return value
        if kind == "numeric":
            if not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,2})?", plain, re.ASCII):
                raise ValueError
            return Decimal(plain)
        if kind in FLOATS:
            if not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?", plain, re.ASCII):
                raise ValueError
            return real(text, kind)
        if kind == "boolean":
            word = plain.lower()
            if word not in TRUE | FALSE:
                raise ValueError
            return word in TRUE
        if kind == "date":
            return datetime.date.fromisoformat(plain[:10] if len(plain) > 10 else plain)
        if kind == "timestamp":
            return datetime.datetime.fromisoformat(plain)
    except (ValueError, InvalidOperation):
        hint = "write YYYY-MM-DD" if kind in TIMES else None
        message = f'invalid input syntax for type {kind}: "{text}"'
        state = "22007" if kind in TIMES else "22P02"
        if kind in TIMES and re.match(r"\d{4}-\d\d-\d\d", plain, re.ASCII):
            state = "22008"  # of numbers that are no date
        raise DataError(message, hint=hint, sqlstate=state) from None
    return text


def real(text: str, kind: str) -> float:
    """Return the value of a text as a float.

    Raises:
        DataError: it is too large, or too small and yet not 0.
    """
    value = float(text)
    size = float(np.float32(value)) if kind == "real" and abs(value) < 3.5e38 else value
    large = abs(size) > (3.4028235e38 if kind == "real" else 1.8e308)
    if large or math.isinf(size) or (not size and re.search("[1-9]", re.split("[eE]", text)[0])):
        raise DataError(f'"{text.strip()}" is out of range for type {kind}', sqlstate="22003")
    return value
