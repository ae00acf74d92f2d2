"""Values as drivers of databases give them, and SQLAlchemy's types, as those of DuckDB.

A value must be one of its column's type: SQLite, which has a type for each value, may have others.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from types import NoneType
from typing import Any

from msgspec import Struct

from proxy.errors import SourceError

DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
MOMENT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?", re.ASCII)
CLOCK = re.compile(r"\d\d:\d\d(:\d\d(\.\d{1,6})?)?", re.ASCII)
NUMBER = "NUMBER"  # decimals whose digits nobody has declared: read as text


class Column(Struct, frozen=True):
    """A column: its type in DuckDB's words, how its values are read, and if blanks fill them up."""

    kind: str
    read: str
    said: str  # its type there
    padded: bool = False


def column_of(dialect: str, kind: Any) -> Column:
    """Return how a column of a type of SQLAlchemy's is read."""
    from sqlalchemy import types

    said = type(kind).__name__.upper()
    if dialect in ("mysql", "mariadb") and said in ("FLOAT", "TIMESTAMP", "TIME", "BIT"):
        return Column("VARCHAR", "", said)  # rounded, or in a zone of the session's
    match kind:
        case types.Boolean():
            found = "BOOLEAN"
        case types.Integer():
            whole = {types.SmallInteger: "SMALLINT", types.BigInteger: "BIGINT"}
            sizes = (size for of, size in whole.items() if isinstance(kind, of))
            found = "BIGINT" if dialect in ("sqlite", "oracle") else next(sizes, "INTEGER")
            found = f"U{found}" if getattr(kind, "unsigned", False) else found
        case types.Float():
            found = "FLOAT" if said == "REAL" and dialect == "postgresql" else "DOUBLE"
        case types.Numeric() if kind.precision and 0 <= (kind.scale or 0) <= kind.precision <= 38:
            found = f"DECIMAL({kind.precision},{kind.scale or 0})"
        case types.Numeric():
            return Column("VARCHAR", NUMBER, said)
        case types.String():
            padded = said == "CHAR" and dialect == "postgresql"  # which compares them without
            return Column("VARCHAR", "VARCHAR", said, padded)
        case types.DateTime():
            found = "TIMESTAMP WITH TIME ZONE" if kind.timezone else "TIMESTAMP"
        case types.Date():
            found = "DATE"
        case types.Time() if not kind.timezone:
            found = "TIME"
        case _:
            found = "UUID" if said == "UUID" else ""
    return Column(found or "VARCHAR", found.partition("(")[0], said)


def arrow_type(kind: str) -> Any:
    """Return the type of a column of the file."""
    import pyarrow as pa

    if kind.startswith("DECIMAL"):
        return pa.decimal128(*map(int, kind[8:-1].split(",")))
    known = {
        **{"BOOLEAN": pa.bool_(), "SMALLINT": pa.int16(), "INTEGER": pa.int32()},
        **{"BIGINT": pa.int64(), "USMALLINT": pa.uint16(), "UINTEGER": pa.uint32()},
        **{"UBIGINT": pa.uint64(), "FLOAT": pa.float32(), "DOUBLE": pa.float64()},
        **{"DATE": pa.date32(), "TIME": pa.time64("us"), "TIMESTAMP": pa.timestamp("us")},
        "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", tz="UTC"),
    }
    return known.get(kind, pa.string())


def typed(table: str, name: str, column: Column, values: Sequence[Any], kind: Any) -> Any:
    """Return the values of a column as those of its type.

    Raises:
        SourceError: one is none.
    """
    import pyarrow

    plain, convert = READ[column.read]
    try:
        if not set(map(type, values)) <= {plain, type(None)}:
            if convert is None:
                raise TypeError
            values = [None if v is None else convert(v) for v in values]
        if plain is datetime:
            zoned = {v.tzinfo is not None for v in values if v is not None}
            if not zoned <= {column.kind != "TIMESTAMP"}:
                raise TypeError
        if column.padded:
            values = [None if v is None else v.rstrip(" ") for v in values]
        return pyarrow.array(values, kind)
    except (ArithmeticError, TypeError, ValueError, pyarrow.ArrowException):
        raise SourceError(
            f'the column "{name}" of the table {table} has a value that is none of its type, '
            f"{column.said}",
            hint="correct it there, or have the database keep the column as text",
        ) from None


def _exactly(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError
    return value


def _decimal(value: Any) -> Decimal | None:
    """Return a number by the shortest decimal that denotes it; what is none is NULL."""
    number = Decimal(repr(value)) if type(value) in (int, float) else _exactly(Decimal, value)
    return None if number.is_nan() else number


def _number(value: Any) -> str | None:
    number = _decimal(value)
    return None if number is None else f"{number:f}"


def _truth(value: Any) -> bool:
    if type(value) not in (bool, int) or value not in (0, 1):
        raise TypeError
    return bool(value)


def _real(value: Any) -> float:
    return float(value if type(value) in (int, Decimal) else _exactly(float, value))


def _of_text(kind: Any, pattern: re.Pattern[str]) -> Callable[[Any], Any]:
    """Return what reads dates or times, or their texts as SQLite has them, and nothing else."""

    def read(value: Any) -> Any:
        if type(value) is str and pattern.fullmatch(value):
            return kind.fromisoformat(value)
        return _exactly(kind, value)

    return read


READ: dict[str, tuple[type, Callable[[Any], Any] | None]] = {  # what stays as it is, and how else
    **dict.fromkeys(("SMALLINT", "INTEGER", "BIGINT"), (int, None)),
    **dict.fromkeys(("USMALLINT", "UINTEGER", "UBIGINT"), (int, None)),
    **dict.fromkeys(("FLOAT", "DOUBLE"), (float, _real)),
    **{"DECIMAL": (NoneType, _decimal), NUMBER: (str, _number), "VARCHAR": (str, None)},
    **{"BOOLEAN": (bool, _truth), "DATE": (date, _of_text(date, DAY))},
    **{"TIME": (time, _of_text(time, CLOCK)), "TIMESTAMP": (datetime, _of_text(datetime, MOMENT))},
    "TIMESTAMP WITH TIME ZONE": (datetime, None),
    "UUID": (str, lambda value: str(_exactly(uuid.UUID, value))),
}
