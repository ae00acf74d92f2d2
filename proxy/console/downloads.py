"""A result to take away: CSV as the command line has it, JSON, Parquet, and code that asks again.

Beside each number with an interval are its ends, in full, and its source.  Texts are written as
they are: who opens the CSV in a spreadsheet imports its columns as text.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import duckdb
from msgspec.structs import asdict

from proxy.console.results import plain
from proxy.engine.answers import Result, csv, table
from proxy.sql.types import DUCKDB

KINDS = {**DUCKDB, "numeric": "DOUBLE"}


def as_json(result: Result) -> str:
    """Return the result as JSON, in the words of the command line's."""
    told = {
        "columns": [{"name": column.name, "type": column.type} for column in result.columns],
        "rows": [[plain(value) for value in row] for row in result.rows],
        "answers": [
            [{k: plain(v) for k, v in asdict(answer).items()} for answer in answers]
            for answers in result.answers
        ],
        "cost": plain(result.cost),
        "left": plain(result.left),
        "left_of": result.left_of,
        "notices": list(result.notices),
    }
    return json.dumps(told, indent=2, ensure_ascii=False, allow_nan=False)


def parquet(result: Result) -> bytes:
    """Return the rows as Parquet."""
    header, _ = table(result)
    names = _distinct([column.name for column in header])
    kinds = [KINDS.get(column.type, "VARCHAR") for column in header]
    columns = ", ".join(f"{text(n)}: {text(k)}" for n, k in zip(names, kinds, strict=True))
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
        source, target = Path(folder, "rows.csv"), Path(folder, "rows.parquet")
        source.write_text(csv(result, every=True), encoding="utf-8", newline="")
        connection.execute("SET threads = 1")
        connection.execute(
            f"COPY (SELECT * FROM read_csv({text(str(source))}, header = true, delim = ',', "
            f"quote = '\"', escape = '\"', nullstr = '', allow_quoted_nulls = false, "
            f"auto_detect = false, null_padding = false, columns = {{{columns}}})) "
            f"TO {text(str(target))} (FORMAT parquet)"
        )
        return target.read_bytes()


def _distinct(names: Sequence[str]) -> list[str]:
    """Return names of which no two are the same, in any case."""
    found: list[str] = []
    seen: set[str] = set()
    for name in names:
        other, n = name or "column", 1
        while other.lower() in seen:
            n += 1
            other = f"{name}_{n}"
        seen.add(other.lower())
        found.append(other)
    return found


def text(value: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + value.replace("'", "''") + "'"


def python(statement: str, address: str, state: Path | None = None, utility: str = "") -> str:
    """Return a program that asks the same, where ``utility`` is what the session is set to."""
    quotes = '"""'
    plain_ = quotes not in statement and "\\" not in statement and not statement.endswith('"')
    body = f"{quotes}\n{statement}\n{quotes}" if plain_ else repr(statement)
    given = {"state": state and str(state.absolute()), "utility": utility}
    more = "".join(f", {name}={value!r}" for name, value in given.items() if value)
    return (
        "import proxy\n\n"
        f"with proxy.connect({address!r}{more}) as connection:\n"
        "    cursor = connection.cursor()\n"
        f"    cursor.execute({body})\n"
        "    for row, answers in zip(cursor, cursor.answers):\n"
        "        print(row, [(a.low, a.high, a.source) for a in answers])\n"
    )
