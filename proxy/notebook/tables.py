"""A result as an HTML table: each number with its interval, its source and what it cost.

Invariant: every text that is not ours is escaped, and what would steer a reader's eye (control
characters, marks that turn the direction of writing) is written out.  Colours are those around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from proxy.engine.allowances import said
from proxy.engine.answers import Answer, Result
from proxy.engine.functions.digits import interval, number
from proxy.sql.shown import printable, shown

SHOWN = 50  # rows
LONG = 200  # characters of a text that are shown
SOURCES = {  # what is no plain measurement, in words
    "measured": "noise was drawn for it, and paid for, by this statement",
    "inferred": "it follows from earlier answers, and was free",
    "derived": "computed from such numbers; its interval is exact",
    "approximate": "computed from such numbers; its interval is from draws of their noise",
    "unknown": "computed from such numbers; how good it is nobody knows",
}
ABOUT = {"approximate": "≈ ", "unknown": "? "}
STYLE = (
    ".privacy-result{overflow-x:auto}"
    ".privacy-result table{border-collapse:collapse;color:inherit;background:none}"
    ".privacy-result th,.privacy-result td{padding:.2em .6em;text-align:left;border:0;"
    "border-bottom:1px solid rgba(128,128,128,.35);background:none;color:inherit}"
    ".privacy-result .n,.privacy-result .i{white-space:nowrap;font-variant-numeric:tabular-nums}"
    ".privacy-result .n{text-align:right}"
    ".privacy-result .i{opacity:.8}"
    ".privacy-result p{margin:.3em 0;opacity:.8}"
)


def html(result: Result) -> str:
    """Return a result as HTML: its first rows, what it cost, what is left, and its notices."""
    parts = [f"<style>{STYLE}</style>"]
    if result.columns:
        parts += ["<table>", _head(result), "<tbody>", *_rows(result), "</tbody>", "</table>"]
        if len(result.rows) > SHOWN:
            parts.append(f"<p>the first {SHOWN} of {len(result.rows):,} rows</p>")
    else:
        parts.append(f"<p>{_safe(result.tag)}</p>")
    if result.numbers:
        left = said(result.left, result.left_of)
        parts.append(f"<p>cost {result.cost:.4g}, left {_safe(left)}</p>")
    parts += (f"<p>notice: {_safe(notice, len(notice))}</p>" for notice in result.notices)
    return f'<div class="privacy-result">{"".join(parts)}</div>'


def _head(result: Result) -> str:
    """Return the names of the columns; one of numbers is as wide as two."""
    numeric = {place for places in result.places for place in places}
    cells = (
        f'<th colspan="2">{_safe(column.name)}</th>'
        if place in numeric
        else f"<th>{_safe(column.name)}</th>"
        for place, column in enumerate(result.columns)
    )
    return f"<thead><tr>{''.join(cells)}</tr></thead>"


def _rows(result: Result) -> Iterator[str]:
    """Yield the first rows."""
    numeric = {place for places in result.places for place in places}
    known = zip(result.rows[:SHOWN], result.answers, result.places, strict=False)
    for row, answers, places in known:
        told = dict(zip(places, answers, strict=True))
        cells = (
            _number(value, told.get(place)) if place in numeric else f"<td>{_text(value)}</td>"
            for place, value in enumerate(row)
        )
        yield f"<tr>{''.join(cells)}</tr>"


def _number(value: Any, answer: Answer | None) -> str:
    """Return the two cells of a number: itself, and how it is known."""
    if answer is None:
        return f'<td class="n">{_text(value)}</td><td class="i"></td>'
    source = answer.source
    ends = f"{interval(answer)} " if source != "unknown" else ""
    cost = f", {answer.cost:.4g}" if answer.cost else ""
    known = f'{ends}<span title="{_safe(SOURCES.get(source, ""))}">{_safe(source)}{cost}</span>'
    shown = ABOUT.get(source, "") + number(value, answer)
    return f'<td class="n">{_safe(shown)}</td><td class="i">{known}</td>'


def _text(value: Any) -> str:
    """Return a value that is no number of the aggregation; NULL is told from a text."""
    if value is None:
        return "<em>NULL</em>"
    return _safe(f"{value:.10g}" if isinstance(value, float) else shown(value))


def _safe(text: str, longest: int = LONG) -> str:
    """Return a text that is shown as it is, whatever is in it."""
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    return escape(printable(text))


def labels(result: Result, places: Sequence[int]) -> list[str]:
    """Return what tells each row from the others: what stands in these columns."""
    return [", ".join(printable(shown(row[place])) for place in places) for row in result.rows]
