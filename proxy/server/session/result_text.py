"""An engine result as text: its rows as a statement for the mirror, and its notices.

The rows go through the mirror as literals, one array for each column, with the types announced, so
that portals, cursors, formats and fetch sizes are PostgreSQL's own.  Nothing is computed there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import asdict

from proxy.engine import Answer, Column, Explanation, Result
from proxy.engine.allowances import said
from proxy.server.mirror.mirror import SCHEMA, quoted, text
from proxy.server.wire.messages import Report

FAILS = f"WHERE {SCHEMA}.guard()"
NOTHING = "WHERE false"
UNKNOWN = "text"  # what PostgreSQL makes of a literal that nothing gives a type


def rows(result: Result, columns: Sequence[Column]) -> str:
    """Return the SELECT that gives the rows of a result."""
    names = ", ".join(f"c{i} AS {quoted(column.name)}" for i, column in enumerate(columns))
    if not result.rows:
        return stub(columns, NOTHING)
    arrays = ", ".join(
        f"{array(row[i] for row in result.rows)}::{kind(column)}[]"
        for i, column in enumerate(columns)
    )
    aliases = ", ".join(f"c{i}" for i in range(len(columns)))
    return f"SELECT {names} FROM unnest({arrays}) AS t({aliases})"


def stub(columns: Sequence[Column], where: str = "") -> str:
    """Return a SELECT of these columns, which raises when run, unless ``where`` is given."""
    listed = ", ".join(f"NULL::{kind(column)} AS {quoted(column.name)}" for column in columns)
    return f"SELECT {listed} {where or FAILS}"


def kind(column: Column) -> str:
    """Return the type of a column in the mirror."""
    return UNKNOWN if column.type in ("unknown", "") else column.type


def array(values: Iterable[object]) -> str:
    """Return values as a literal of an array."""
    return text("{" + ",".join(map(_element, values)) + "}")


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value).replace("inf", "Infinity")
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def notices(result: Result, with_answers: bool) -> list[Report]:
    """Return the notices that accompany the rows."""
    reports = [Report("NOTICE", "00000", notice) for notice in result.notices]
    if result.numbers or with_answers:
        detail = document(result) if with_answers else None
        reports.append(Report("NOTICE", "00000", summary(result), detail))
    return reports


def summary(result: Result) -> str:
    """Return one line: numbers measured and free, shown or not, the cost, what is left."""
    paid, free = result.measured, result.inferred
    parts = [f"{_count(paid)} measured"] if paid else []
    if free or not paid:
        parts.append(f"{free if paid else _count(free)} free")
    cost = f"{result.cost:.4g}" if result.cost else "nothing"
    return f"privacy: {', '.join(parts)}; cost {cost}, left {said(result.left, result.left_of)}"


def _count(numbers: int) -> str:
    return f"{numbers:,} number" + ("s" if numbers != 1 else "")


def document(result: Result) -> str:
    """Return the answers as JSON, for clients that read them; explained, where they are."""
    explained = [[each and _explained(each) for each in row] for row in result.explanations]
    return json.dumps(
        {
            "answers": [[_plain(answer) for answer in row] for row in result.answers],
            "places": result.places,
            "cost": result.cost,
            "left": result.left,
            "left_of": result.left_of,
            "numbers": result.numbers,
            "measured": result.measured,
            "notices": list(result.notices),
            **({"explanations": explained} if explained else {}),
        },
        separators=(",", ":"),
    )


def _explained(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation for JSON, whose times are texts."""
    posterior = asdict(explanation.posterior)
    origins = [asdict(origin) for origin in explanation.origins]
    for origin in origins:
        origin["time"] = origin["time"] and origin["time"].isoformat()
    return {"posterior": posterior, "origins": origins}


def _plain(answer: Answer) -> dict[str, Any]:
    """Return an answer for JSON, which has no NaN and no infinity but as texts."""
    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in asdict(answer).items()
    }
