"""The Budget page: how much is spent and left, where, by whom, and what is still to be had.

An analyst is shown what binds them, what their own statements cost, and of the cells of the history
that serves them how many whole tenths of the budget are gone, which tells where it is left and not
what each statement of others was about and paid; stewards and auditors all histories and users.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from starlette.responses import Response

from proxy.budgets import CELLS
from proxy.console import reports
from proxy.console.pages import Asked, page
from proxy.console.visits import LOOK
from proxy.errors import Error
from proxy.policy import Policy
from proxy.privileges import ANALYST, AUDITOR, STEWARD, histories
from proxy.sql.parse.identifiers import quoted
from proxy.steward import Curves, HeatMap, LimitReport, Spending, in_steps

TYPICAL = 3  # attributes, and measures, of which typical questions are about
LEVELS = 10  # shades of a heat map
RECENT = 12  # moments of a curve that are told in words


class Question(Struct, frozen=True):
    """A typical question, what it costs now, and how many like it the budget buys."""

    words: str
    sql: str
    within: str = ""
    cost: float = 0.0
    times: int = 0
    problem: str = ""


@page()
async def budget(asked: Asked) -> Response:
    """Show the page."""
    histories = _histories(asked)
    history = asked.request.query_params.get("history", histories[0])
    history = history if history in histories else histories[0]
    look = asked.visit.thread
    spent: Spending = await look(reports.spent, asked.dataset)
    user = None if _all(asked) else asked.visit.user
    curves: Curves = await look(reports.over_time, asked.dataset, user)
    cells, whole = await look(spent.nearest, history, None if _all(asked) else LEVELS)
    limits: list[LimitReport] = await look(spent.limits, history)
    mine: list[LimitReport] = []
    if asked.may(ANALYST) and history == asked.privileges.history:
        mine = await look(reports.limits, asked.dataset, asked.privileges)
    hero = min(mine or limits, key=lambda limit: limit.left)  # as what is left is told
    return asked.render(
        "budget.html",
        history=history,
        histories=histories,
        hero=hero,
        of_cells=hero.name.partition(",")[0] == CELLS,
        limits=limits,
        mine=mine,
        cells=cells,
        whole=whole,
        curves=curves,
        chart=_chart(curves, history if user is None else None, limits[0]),
        recent=_recent(curves),
        people=sorted(((n, c[-1]) for n, c in curves.users.items()), key=lambda each: -each[1]),
        everybody=_all(asked),
        **await _heat(asked, spent, history, limits[0]),
    )


@page()
async def heat(asked: Asked) -> Response:
    """Show the heat map of two attributes, as a part of the page."""
    histories = _histories(asked)
    history = asked.request.query_params.get("history", "")
    history = history if history in histories else histories[0]
    spent: Spending = await asked.visit.thread(reports.spent, asked.dataset)
    limits: list[LimitReport] = await asked.visit.thread(spent.limits, history)
    found = await _heat(asked, spent, history, limits[0])
    return asked.render("heat.html", history=history, **found)


@page()
async def typical(asked: Asked) -> Response:
    """Show what typical questions cost, as a part of the page."""
    found = []
    for words, sql in questions(asked.dataset.policy) if asked.may(ANALYST) else ():
        try:
            result = await asked.visit.execute(asked.dataset.name, f"EXPLAIN UTILITY {sql}", LOOK)
        except Error as error:
            found.append(Question(words, sql, problem=error.message))
            continue
        columns = [column.name for column in result.columns]
        rows = [dict(zip(columns, row, strict=True)) for row in result.rows]
        found.append(_priced(words, sql, rows))
    return asked.render("typical.html", questions=found)


def questions(policy: Policy) -> list[tuple[str, str]]:
    """Return typical questions about a dataset, in words and in SQL, at its default utility."""
    table = quoted(policy.dataset)
    axes = sorted(policy.domain.attributes, key=lambda axis: axis.size)[:TYPICAL]
    found = [("COUNT", f"SELECT COUNT(*) FROM {table}")] if policy.utility else []
    for axis in axes if policy.utility else ():
        column = quoted(axis.name)
        sql = f"SELECT {column}, COUNT(*) FROM {table} GROUP BY {column}"
        found.append((f"COUNT by {axis.name}", sql))
    for measure in policy.domain.measures[:TYPICAL]:
        if measure.name in policy.measure_utility:
            sum_ = f"SUM({quoted(measure.name)})"
            found.append((f"SUM of {measure.name}", f"SELECT {sum_} FROM {table}"))
            if axes:
                by = quoted(axes[-1].name)
                sql = f"SELECT {by}, {sum_} FROM {table} GROUP BY {by}"
                found.append((f"SUM of {measure.name} by {axes[-1].name}", sql))
    return found


def _priced(words: str, sql: str, rows: Sequence[Mapping[str, Any]]) -> Question:
    """Return a question with what EXPLAIN says of it: of groups the dearest, as cells pay it."""
    cost = max((row["cost"] or 0.0 for row in rows), default=0.0)
    left = min((row["left_after"] for row in rows), default=0.0) + cost
    widest = max((row["half_width"] or 0.0 for row in rows), default=0.0)
    return Question(words, sql, f"±{widest:,.6g}", cost, int(left / cost + 1e-9) if cost else 0)


def _all(asked: Asked) -> bool:
    return asked.may(STEWARD, AUDITOR)


def _histories(asked: Asked) -> list[str]:
    """Return the names of the histories that a user may look at, their own first."""
    own = asked.privileges.history
    if not _all(asked):
        return [own]
    return list(dict.fromkeys([own, *histories(asked.dataset.policy)]))


async def _heat(asked: Asked, spent: Spending, history: str, limit: LimitReport) -> dict[str, Any]:
    """Return what the template of a heat map needs, whose shades are shares of a limit."""
    names = [axis.name for axis in asked.dataset.policy.domain.attributes]
    chosen = asked.request.query_params
    rows = chosen.get("rows", "")
    rows = rows if rows in names else names[0]
    columns = chosen.get("columns")
    if columns is None or columns not in ("", *names):
        columns = next((name for name in names if name != rows), "")
    found: HeatMap = await asked.visit.thread(spent.heat, rows, columns or None, history)
    shares = found.spent / limit.budget if limit.budget else found.spent * 0
    coarse = not _all(asked)
    if coarse:
        shares = in_steps(shares, LEVELS)
    levels = np.minimum(np.ceil(shares * LEVELS - 1e-9), LEVELS)
    return {
        "names": names,
        "rows": rows,
        "columns": columns,
        "heat_map": found,
        "levels": levels.astype(int).tolist(),
        "shares": shares.tolist(),
        "of": limit.budget,
        "coarse": coarse,
    }


def _chart(curves: Curves, history: str | None, limit: LimitReport) -> dict[str, Any]:
    """Return what the chart draws: users' sums, and a history's dearest cell, with its budget."""
    series: list[dict[str, Any]] = [
        {"label": name, "values": values} for name, values in curves.users.items()
    ]
    if history is not None and history in curves.histories:
        dearest = {"label": "the dearest cell", "values": curves.histories[history], "main": True}
        series.insert(0, dearest)
    return {"times": curves.times, "series": series, "budget": limit.budget}


def _recent(curves: Curves) -> list[tuple[float, float]]:
    """Return the last moments of the curves, and what all that is shown had cost by then."""
    sums = [sum(values) for values in zip(*curves.users.values(), strict=True)]
    return list(zip(curves.times, sums, strict=False))[: -RECENT - 1 : -1]
