"""A result as the Ask page shows it: cells, intervals, sources, and which picture fits.

Pure: a ``Result`` goes in, values of JSON come out.  Invariant: intervals are rounded outwards and
confidence down, so that what is shown claims no more than what was computed; the rows are those
of the result, in their order.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from proxy.domain import Attribute
from proxy.engine.allowances import said
from proxy.engine.answers import Answer, Origin, Result
from proxy.engine.functions.digits import decimals, interval
from proxy.policy import Policy
from proxy.sql.shown import printable, shown

BARS = 60  # that a picture has room for
ORDERED = ("smallint", "integer", "bigint", "numeric", "real", "double precision")
DAYS = ("date", "timestamp")

SOURCES = {
    "measured": "noise was drawn for it, and paid for, by this statement",
    "inferred": "it follows from earlier answers, and was free",
    "derived": "computed from such numbers; its interval is exact",
    "approximate": "computed from such numbers; its interval is estimated from draws of the noise",
    "unknown": "computed from such numbers; nothing can be said about how good it is",
}


def view(result: Result, policy: Policy) -> dict[str, Any]:
    """Return a result for the page: columns, rows of cells, what it cost, and its picture.

    A cell of a number with an interval is [text, interval, source, cost, estimate, low, high];
    any other is a text, for a page would round numbers of JSON, or None for NULL.
    """
    numeric = sorted({place for places in result.places for place in places})
    return {
        "columns": [
            {"name": printable(column.name), "type": column.type, "number": place in numeric}
            for place, column in enumerate(result.columns)
        ],
        "rows": [
            _row(row, answers, places, numeric)
            for row, answers, places in zip(result.rows, result.answers, result.places, strict=True)
        ],
        "sources": _sources(result),
        "cost": amount(result.cost),
        "free": not result.cost,
        "left": said(result.left, result.left_of),
        "measured": result.measured,
        "inferred": result.inferred,
        "notices": list(result.notices),
        "nulls": nulls(result, numeric, policy),
        "picture": picture(result, numeric),
        "explained": [[why is not None for why in line] for line in result.explanations],
        "tag": result.tag,
    }


def _row(
    row: Sequence[Any], answers: Sequence[Answer], places: Sequence[int], numeric: Sequence[int]
) -> list[Any]:
    known = dict(zip(places, answers, strict=True))
    return [
        number(value, known[place]) if place in known else text(value)
        for place, value in enumerate(row)
    ]


def number(value: Any, answer: Answer) -> list[Any]:
    """Return the cell of a number, with what is known of it."""
    ends_ = interval(answer) if answer.source != "unknown" else ""
    cost = amount(answer.cost) if answer.cost else "free"
    floats = [finite(each) for each in (answer.estimate, answer.low, answer.high)]
    return [written(value, decimals(answer.high - answer.low)), ends_, answer.source, cost, *floats]


def text(value: Any) -> str | None:
    """Return the text of a value that has no interval; None for NULL."""
    return None if value is None else printable(shown(value), kept="\n")


def written(value: Any, places: int) -> str | None:
    """Return a number as people read it; None for NULL."""
    if value is None or isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{places}f}"


def amount(alpha: float) -> str:
    """Return an amount of privacy budget, in four digits."""
    return f"{alpha:.4g}"


def finite(value: float) -> float | None:
    """Return a number as JSON has it, which knows no infinity."""
    return value if math.isfinite(value) else None


def plain(value: Any) -> Any:
    """Return a value as JSON for programs has it."""
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ")
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value) if value.is_finite() else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _sources(result: Result) -> dict[str, str]:
    """Return what the sources that occur mean."""
    found = {answer.source for answers in result.answers for answer in answers}
    return {source: text for source, text in SOURCES.items() if source in found}


def nulls(result: Result, numeric: Sequence[int], policy: Policy) -> list[str]:
    """Return what a NULL means, for each column that has one."""
    told = []
    axes = {axis.name: axis for axis in policy.domain.attributes}
    for place, column in enumerate(result.columns):
        if not any(row[place] is None for row in result.rows):
            continue
        if place in numeric:
            told.append(f"NULL in {column.name}: there is nothing to divide by, or nobody")
        else:
            told.append(f"NULL in {column.name}: {_nobody(axes.get(column.name))}")
    return told


def _nobody(axis: Attribute | None) -> str:
    """Return whose records a NULL group has."""
    kinds = []
    if axis is not None and axis.nulls == "group":
        kinds.append("records without a value")
    if axis is not None and axis.outside == "group":
        kinds.append("records whose value is none of the declared ones")
    if kinds:
        return ", and ".join(kinds)
    return "a total over all groups, or where an expression has no value"


def picture(result: Result, numeric: Sequence[int]) -> dict[str, Any] | None:
    """Return which picture a result makes: of what kind, of which columns; None if of none.

    ``density`` is one number; ``bars`` are groups by name, of which there is room for so many;
    ``line`` has groups in order along an axis.
    """
    keys = [place for place in range(len(result.columns)) if place not in numeric]
    numbers = [place for place in numeric if any(place in places for places in result.places)]
    if not numbers or not result.rows:
        return None
    if len(result.rows) == 1:
        return {"kind": "density", "numbers": numbers, "keys": keys}
    if not keys:
        return None
    kind = result.columns[keys[0]].type
    ordered = len(keys) == 1 and kind in (*ORDERED, *DAYS)
    line = ordered and (len(result.rows) > BARS // 2 or kind in DAYS)
    return {"kind": "line" if line else "bars", "numbers": numbers, "keys": keys, "most": BARS}


def explained(result: Result, row: int, place: int) -> dict[str, Any] | None:
    """Return how probable the values of a number are, and where it comes from, if that is told."""
    if row >= len(result.explanations) or place not in result.places[row]:
        return None
    at = result.places[row].index(place)
    why, answer = result.explanations[row][at], result.answers[row][at]
    if why is None:
        return None
    posterior = why.posterior
    return {
        "values": posterior.values,
        "below": posterior.below,
        "zero": posterior.zero,
        "step": posterior.step,
        "density": posterior.density(),
        "answer": number(answer.estimate, answer),
        "origins": [_origin(origin) for origin in why.origins],
    }


def _origin(origin: Origin) -> dict[str, Any]:
    """Return one of the statements that a number rests on."""
    count = f"{origin.numbers:,} number{'s' if origin.numbers != 1 else ''}"
    whose = {
        "this": f"{count} measured by this statement",
        "earlier": f"{count} of an earlier statement",
        "others": f"{count} of statements that you may not see",
        "rest": f"{count} of further statements",
    }
    return {
        "what": whose[origin.kind],
        "kind": origin.kind,
        "share": math.floor(origin.share * 1000 + 0.5) / 10,
        "statement": origin.statement,
        "time": f"{origin.time:%Y-%m-%d %H:%M} UTC" if origin.time else None,
        "weights": weights(*origin.weights) if origin.weights else None,
    }


def weights(least: float, most: float) -> str:
    """Return the weights with which numbers are added up."""
    low, high = f"{least:.4g}", f"{most:.4g}"
    return low if low == high else f"{low} to {high}"
