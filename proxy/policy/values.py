"""A value of the domain: from YAML, or from a field of a public CSV file, to what SQL compares.

A value means exactly what is written; what YAML would read otherwise is refused, and the message
says what to quote.
"""

from __future__ import annotations

import csv
import datetime
import gzip
import re
import zlib
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from proxy.domain import Value
from proxy.files import special
from proxy.policy.document import Item, Scalar
from proxy.policy.keys import INTEGER, NUMBER
from proxy.policy.kinds import Boolean, Date, nearest

MAX_CELLS = 2**24  # of one axis
TIMESTAMP = r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)?"
CSV_TAGS = {"integer": "int", "decimal": "float", "boolean": "bool"}


def inferred(items: Sequence[Item]) -> str:
    """Return the type of a list that does not say it; text, which has traps, where in doubt."""
    scalars: list[Scalar] = [item.value for item in items]
    if any(scalar.number_trap for scalar in scalars):
        return "text"
    tags = {scalar.tag for scalar in scalars}
    if tags <= {"int"}:
        return "integer"
    return "decimal" if tags <= {"int", "float"} else "text"


def typed(item: Item, kind: str) -> Value:
    """Return a scalar as a value of a type.

    Raises:
        PolicyError: it is not one; the message says what to quote where YAML misreads it.
    """
    scalar: Scalar = item.value
    value: Any
    match kind:
        case "integer":
            value = INTEGER.read(item).value
        case "decimal":
            NUMBER.read(item)
            value = Decimal(scalar.text.replace("_", ""))
        case "boolean":
            value = Boolean("true | false").read(item).value
        case "date":
            value = Date().read(item).value
        case "timestamp":
            value = _timestamp(item)
        case _:
            if scalar.trap:
                raise item.error(scalar.trap)
            if "\0" in scalar.text:
                raise item.error("text cannot hold the character U+0000")
            value = scalar.text
    read: Value = value
    return read


def _timestamp(item: Item) -> datetime.datetime:
    """Return a timestamp without time zone."""
    if re.fullmatch(TIMESTAMP, item.value.text):
        try:
            return datetime.datetime.fromisoformat(item.value.text)
        except ValueError:
            pass
    raise item.error(
        f"{item.value} is not allowed; expected a time such as 2024-01-31 12:30:00, without zone"
    )


def column(item: Item, kind: str, folder: Path) -> tuple[Value, ...]:
    """Return the distinct values of a public CSV file's column, in the order of the file."""
    path, name = folder / item.get("path"), item.get("column")
    if (what := special(path)) is not None:
        raise item.value["path"].error(f"{path} is {what}, and no file")
    seen: dict[Value, None] = {}
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as opened:
            rows = csv.DictReader(opened, strict=True)
            names = rows.fieldnames or []
            if name not in names:
                raise item.value["column"].error(
                    f"{path.name} has no column {name}{nearest(name, names)}"
                )
            for row in rows:
                at = Item(_csv_scalar(row[name], kind), rows.line_num, name, str(path), item.faults)
                seen[typed(at, kind)] = None
                if len(seen) > MAX_CELLS:
                    break
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "it is damaged"
        raise item.value["path"].error(f"{path} cannot be read: {reason}") from None
    except (UnicodeDecodeError, csv.Error):
        raise item.value["path"].error(f"{path} is not a CSV file in UTF-8") from None
    if not seen:
        raise item.value["path"].error(f"{path} has no rows")
    return tuple(seen)


def _csv_scalar(text: str | None, kind: str) -> Scalar:
    """Return a field of a CSV file as a scalar; an empty field of a number is null."""
    if text is None:
        return Scalar("", "null", False)
    return Scalar(text, CSV_TAGS.get(kind, "str"), False)
