"""The History page: what was asked, by oneself, or, for auditors, by everybody."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.responses import Response

from proxy.console import reports
from proxy.console.pages import Asked, page
from proxy.privileges import ANALYST, AUDITOR

OUTCOMES = (reports.PAID, reports.FREE, reports.REFUSED)
MOST = 10**6  # pages


def number(text: str) -> int:
    """Return the number of a page, of what may be anything."""
    return min(int(text), MOST) if text.isascii() and text.isdecimal() and len(text) < 9 else 1


@page(ANALYST, AUDITOR)
async def history(asked: Asked) -> Response:
    """Show statements, a page of them; to htmx the list alone."""
    given = asked.request.query_params
    words, outcome = given.get("words", "")[:200], given.get("outcome", "")
    outcome = outcome if outcome in OUTCOMES else ""
    part = await asked.visit.thread(
        reports.statements,
        asked.dataset,
        asked.privileges.sees,
        words,
        outcome,
        number(given.get("page", "")),
    )
    return asked.render(
        "statements.html" if asked.fragment else "history.html",
        part=part,
        words=words,
        outcome=outcome,
        outcomes=OUTCOMES,
        everybody=asked.may(AUDITOR),
        query=urlencode({"words": words, "outcome": outcome}),
    )
