"""The console as a web application: its routes, and what they share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from proxy.console import ask, audit, budget, entrance, history, policy
from proxy.console.backend import Backend
from proxy.console.guard import Guard
from proxy.console.pages import HERE, failed, visit_of
from proxy.console.visits import Visits

THREADS = 32  # statements and reports of all visits at a time
SWEEP = 5.0  # seconds between two looks at what is over

ROUTES: list[BaseRoute] = [
    Route("/", entrance.home),
    Route("/login", entrance.login, methods=["GET", "POST"]),
    Route("/logout", entrance.logout, methods=["POST"]),
    *ask.ROUTES,
    Route("/d/{dataset:path}/budget", budget.budget),
    Route("/d/{dataset:path}/budget/heat", budget.heat),
    Route("/d/{dataset:path}/budget/typical", budget.typical),
    Route("/d/{dataset:path}/history", history.history),
    Route("/d/{dataset:path}/policy", policy.policy),
    Route("/d/{dataset:path}/policy/check", policy.check, methods=["POST"]),
    Route("/d/{dataset:path}/policy/apply", policy.apply, methods=["POST"]),
    Route("/d/{dataset:path}/audit", audit.audit),
    Route("/d/{dataset:path}/audit/line/{sequence}", audit.line),
    Route("/d/{dataset:path}/audit/verify", audit.verify, methods=["POST"]),
    Mount("/static", StaticFiles(directory=HERE / "static")),
]


def create_app(backend: Backend, secure: bool = False) -> Guard:
    """Return the console over a backend; ``secure`` where it is served over TLS."""
    threads = ThreadPoolExecutor(THREADS, "console")
    visits = Visits(backend, threads)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        sweeping = asyncio.create_task(_sweep(visits))
        try:
            yield
        finally:
            sweeping.cancel()
            with suppress(asyncio.CancelledError):
                await sweeping
            await visits.close()
            threads.shutdown(wait=False, cancel_futures=True)

    app = Starlette(
        routes=ROUTES,
        exception_handlers={HTTPException: _missing, Exception: _broken},
        lifespan=lifespan,
    )
    app.state.backend, app.state.visits, app.state.secure = backend, visits, secure
    return Guard(app, secure)


async def _sweep(visits: Visits) -> None:
    while True:
        await asyncio.sleep(SWEEP)
        await visits.sweep()


async def _missing(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    message = "there is no such page" if status == 404 else "the request makes no sense here"
    return failed(request, visit_of(request), message, status)


async def _broken(request: Request, error: Exception) -> Response:
    return failed(request, None, "internal error of the console", 500, "its log says more")
