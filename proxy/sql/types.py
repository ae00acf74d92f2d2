"""PostgreSQL's types as this proxy knows them: their names, their order, their literals.

A type is its PostgreSQL name.  ``unknown`` is the type of a quoted literal or NULL before its
place has given it one, as in PostgreSQL; so ``age = '5'`` is a comparison of numbers.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation

from sqlglot import exp

from proxy.domain import Attribute
from proxy.errors import DataError, NotSupportedError, TypeMismatchError

NUMBERS = ("integer", "bigint", "numeric", "double precision")  # each converts to those after it
TIMES = ("date", "timestamp")
DUCKDB = {
    "integer": "INTEGER",
    "bigint": "BIGINT",
    "double precision": "DOUBLE",
    "text": "VARCHAR",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "interval": "INTERVAL",
}
NAMES = {
    "SMALLINT": "integer",
    "TINYINT": "integer",
    "INT": "integer",
    "BIGINT": "bigint",
    "DECIMAL": "numeric",
    "FLOAT": "double precision",
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
        values = attribute.edges or attribute.values
        small = all(isinstance(value, int) and -(2**31) <= value < 2**31 for value in values)
        return "integer" if small else "bigint"
    return {"decimal": "numeric"}.get(attribute.type, attribute.type)


def of_cast(node: exp.DataType) -> str:
    """Return the type that a cast names.

    Raises:
        NotSupportedError: none of ours.
    """
    name = NAMES.get(node.this.value if isinstance(node.this, exp.DType) else "")
    if name is None or (node.expressions and name != "numeric" and name != "text"):
        written = name or str(getattr(node.this, "value", node.this))
        raise NotSupportedError(f"the type {written.lower()} is not supported in this form")
    return name


def common(kinds: Iterable[str], place: str) -> str:
    """Return the type that values of several types have together, e.g. in CASE.

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
    """Return the value of a quoted literal that stands for a value of a type.

    Raises:
        DataError: the text is no such value.
    """
    plain = text.strip()
    try:
        if kind in ("integer", "bigint"):
            if not re.fullmatch(r"[-+]?\d+", plain, re.ASCII):
                raise ValueError
            value = int(plain)
            if not -(2**63) <= value < 2**63 or (kind == "integer" and abs(value) >= 2**31):
                raise DataError(f'value "{text}" is out of range for type {kind}')
            return value
        if kind == "numeric":
            if not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,2})?", plain, re.ASCII):
                raise ValueError
            return Decimal(plain)
        if kind == "double precision":
            if not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?", plain, re.ASCII):
                raise ValueError
            return float(plain)
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
        raise DataError(f'invalid input syntax for type {kind}: "{text}"', hint=hint) from None
    return text
