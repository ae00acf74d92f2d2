"""The Audit page: every line of the audit log, and whether all of it still agrees.

Stewards see all but the texts of statements, which are for auditors.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from contextlib import suppress
from urllib.parse import urlencode

from starlette.responses import Response

from proxy.console import reports
from proxy.console.backend import Dataset
from proxy.console.history import number
from proxy.console.pages import Asked, page
from proxy.errors import OperationalError
from proxy.privileges import AUDITOR, STEWARD

LONGEST = 600.0  # seconds that a verification may take
DAY = re.compile(r"\d{4}-\d\d-\d\d")

_verifying: dict[str, asyncio.Lock] = {}


@page(AUDITOR, STEWARD)
async def audit(asked: Asked) -> Response:
    """Show lines of the audit log, a page of them; to htmx the list alone."""
    given = {n: asked.request.query_params.get(n, "")[:200] for n in ("user", "words", "kind")}
    days = {n: asked.request.query_params.get(n, "") for n in ("since", "until")}
    given |= {name: day if DAY.fullmatch(day) else "" for name, day in days.items()}
    part, kinds = await asked.visit.thread(
        reports.audited,
        asked.dataset,
        asked.may(AUDITOR),
        *given.values(),
        number(asked.request.query_params.get("page", "")),
    )
    return asked.render(
        "lines.html" if asked.fragment else "audit.html",
        part=part,
        kinds=kinds,
        given=given,
        texts=asked.may(AUDITOR),
        query=urlencode(given),
    )


@page(AUDITOR, STEWARD)
async def line(asked: Asked) -> Response:
    """Show all that there is of one line, and how it is chained."""
    sequence = number(asked.request.path_params["sequence"])
    found = await asked.visit.thread(reports.chained, asked.dataset, sequence)
    if found is None:
        raise OperationalError(f"the audit log has no line {sequence}")
    shown, chain = found
    hidden = reports.untold(shown) and not asked.may(AUDITOR)
    return asked.render(
        "line.html" if asked.fragment else "line_page.html",
        line=shown,
        hidden=hidden,
        detail="" if hidden else json.dumps(shown.detail, indent=1, ensure_ascii=False),
        chain=chain,
    )


@page(AUDITOR, STEWARD)
async def verify(asked: Asked) -> Response:
    """Verify the whole ledger, and the cube, in a process of its own; say what does not agree."""
    lock = _verifying.setdefault(asked.dataset.name, asyncio.Lock())
    if lock.locked():
        raise OperationalError("it is being verified already")
    async with lock:
        problems = await verified(asked.dataset)
    return asked.render("verified.html", problems=problems)


async def verified(dataset: Dataset) -> list[str]:
    """Return what does not agree in a dataset's state, in words.

    Raises:
        OperationalError: it could not be verified, or not in time.
    """
    command = ["-m", "proxy", "audit", str(dataset.policy.path), "--verify", "--json"]
    if dataset.state is not None:
        command += ["--state", str(dataset.state)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(LONGEST):
            told, wrong = await process.communicate()
    except TimeoutError:
        raise OperationalError(
            "it takes too long here", hint="verify it there: privacy-proxy audit --verify POLICY"
        ) from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    try:
        return [str(each) for each in json.loads(told)["problems"]]
    except (ValueError, KeyError, TypeError):
        lines = wrong.decode("utf-8", "replace").splitlines()
        said = next((each for each in lines if each.startswith("error: ")), "error: it failed")
        raise OperationalError(said.removeprefix("error: ")) from None
