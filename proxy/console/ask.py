"""The page Ask: an editor, what a statement would cost, its result, and what was asked before."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from proxy.console import downloads
from proxy.console.asking import LONGEST, Asking, Price, checked, is_query, unpriced
from proxy.console.completion import schema, starters
from proxy.console.pages import Asked, page
from proxy.console.results import amount, explained, view
from proxy.console.saved import NameTakenError, Saved, SavedQueries
from proxy.console.visits import Visit
from proxy.engine.answers import csv
from proxy.errors import Error, InsufficientBudgetError, NotSupportedError
from proxy.privileges import ANALYST
from proxy.state import state_folder

FORMATS = {
    "csv": ("text/csv; charset=utf-8", csv),
    "json": ("application/json", downloads.as_json),
    "parquet": ("application/vnd.apache.parquet", downloads.parquet),
}


@page(ANALYST)
async def ask(asked: Asked) -> Response:
    """Show the page."""
    given = asked.request.query_params.get("sql", "")[:LONGEST]
    asking = _asking(asked)
    begun = starters(asked.dataset.policy)
    last = asking.asked[-1].statement if asking.asked else ""
    return asked.render(
        "ask.html",
        starters=begun,
        text=given or last or begun[0]["sql"],
        newcomer=not given and not last,
        history=_shown(asking),
        saved=await _saved_of(asked),
    )


@page(ANALYST)
async def known(asked: Asked) -> Response:
    """Return what the editor knows of the dataset."""
    return JSONResponse(await asked.visit.thread(schema, asked.dataset.policy))


@page(ANALYST)
async def preview(asked: Asked) -> Response:
    """Return what a statement would cost; nothing is measured."""
    try:
        text = checked(asked.form.get("sql", ""))
        price = await _asking(asked).preview(text)
    except Error as error:
        return _error(error)
    if price is None:
        return JSONResponse({"command": not is_query(text), "unpriced": unpriced(text)})
    return JSONResponse(price.told())


@page(ANALYST)
async def run(asked: Asked) -> Response:
    """Run a statement that costs no more than the price that was shown."""
    asking, text = _asking(asked), asked.form.get("sql", "")
    try:
        found = await asking.run(checked(text), _limit(asked.form.get("limit", "")))
    except Error as error:
        asking.remember(text[:LONGEST], "refused" if _refused(error) else "failed")
        return _error(error)
    if isinstance(found, Price):
        return JSONResponse({"dearer": found.told()})
    cost = f"cost {amount(found.cost)}" if found.cost else "free"
    asking.remember(text, cost if found.numbers else "done")
    try:
        name = asking.keep(found, text)
    except NotSupportedError as error:
        return _error(error)
    shown = await asked.visit.thread(view, found, asked.dataset.policy)
    python = downloads.python(text, *_connection(asked), await asking.utility())
    return JSONResponse(shown | {"name": name, "statement": text, "python": python})


@page(ANALYST)
async def cancel(asked: Asked) -> Response:
    """Stop the statement that runs."""
    await _asking(asked).cancel()
    return Response(status_code=204)


@page(ANALYST)
async def download(asked: Asked) -> Response:
    """Return a result as a file."""
    kept = _asking(asked).kept(asked.request.path_params["name"])
    kind = asked.request.path_params["kind"]
    if kept is None or kind not in FORMATS:
        return Response("this result is kept no longer: run the statement again", 404)
    media, write = FORMATS[kind]
    body = await asked.visit.thread(write, kept.result)
    stamp = f"{datetime.now(UTC):%Y-%m-%dT%H%M%SZ}"
    headers = {"Content-Disposition": f'attachment; filename="result-{stamp}.{kind}"'}
    return Response(body, media_type=media, headers=headers)


@page(ANALYST)
async def why(asked: Asked) -> Response:
    """Return how probable the values of one number of a result are, and what it follows from."""
    kept = _asking(asked).kept(asked.request.path_params["name"])
    row, place = asked.request.path_params["row"], asked.request.path_params["place"]
    told = explained(kept.result, row, place) if kept is not None else None
    return JSONResponse(told or {"none": True})


@page(ANALYST)
async def history(asked: Asked) -> Response:
    """Return the list of what was asked in this visit."""
    return asked.render("ask_history.html", history=_shown(_asking(asked)))


@page(ANALYST)
async def saved(asked: Asked) -> Response:
    """Return the list of saved queries; save one, or delete one, before."""
    queries, problem, taken = _queries(asked), None, None
    name, sql = asked.form.get("name", ""), asked.form.get("sql", "")
    try:
        if asked.request.method == "POST" and "delete" in asked.form:
            await asked.visit.thread(queries.delete, asked.form["delete"])
        elif asked.request.method == "POST":
            await asked.visit.thread(queries.save, name, sql, "replace" in asked.form)
    except Error as error:
        problem = error
        taken = Saved(name, sql) if isinstance(error, NameTakenError) else None
    there = await _saved_of(asked)
    return asked.render("ask_saved.html", saved=there, problem=problem, taken=taken)


def _asking(asked: Asked) -> Asking:
    visit: Visit = asked.visit
    return Asking.of(visit, asked.dataset.name)


def _queries(asked: Asked) -> SavedQueries:
    folder = state_folder(asked.dataset.policy, asked.dataset.state)
    return SavedQueries(folder, asked.visit.user)


async def _saved_of(asked: Asked) -> list[Any]:
    try:
        return await asked.visit.thread(_queries(asked).all)
    except Error:
        return []


def _shown(asking: Asking) -> list[dict[str, Any]]:
    """Return what was asked, the newest first."""
    return [
        {
            "statement": each.statement,
            "outcome": each.outcome,
            "time": f"{datetime.fromtimestamp(each.time, UTC):%H:%M:%S}",
        }
        for each in reversed(asking.asked)
    ]


def _connection(asked: Asked) -> tuple[str, Path | None]:
    """Return what a program connects to, to ask the same: an address, or a policy and its state."""
    backend, host = asked.visit.backend, asked.request.url.hostname or "localhost"
    address = backend.address(asked.visit.user, asked.dataset.name, host)
    return address, None if backend.passwords else asked.dataset.state


def _limit(text: str) -> float | None:
    """Return the price that was shown; None if none was."""
    try:
        limit = float(text)
    except ValueError:
        return None
    return limit if 0 <= limit < float("inf") else None


def _refused(error: Error) -> bool:
    return isinstance(error, InsufficientBudgetError)


def _error(error: Error) -> Response:
    """Return an error with the place in the statement that caused it."""
    told = {
        "message": error.message,
        "detail": error.detail,
        "hint": error.hint,
        "position": error.position,
        "refused": _refused(error),
        "cost": amount(error.cost) if error.cost else None,
    }
    return JSONResponse({"error": told})


ROUTES: list[BaseRoute] = [
    Route("/d/{dataset:path}/ask", ask),
    Route("/d/{dataset:path}/ask/known", known),
    Route("/d/{dataset:path}/ask/preview", preview, methods=["POST"]),
    Route("/d/{dataset:path}/ask/run", run, methods=["POST"]),
    Route("/d/{dataset:path}/ask/cancel", cancel, methods=["POST"]),
    Route("/d/{dataset:path}/ask/history", history),
    Route("/d/{dataset:path}/ask/saved", saved, methods=["GET", "POST"]),
    Route("/d/{dataset:path}/ask/results/{name}/{row:int}/{place:int}", why),
    Route("/d/{dataset:path}/ask/results/{name}.{kind}", download),
]
