"""How a page is served: who asks, for which dataset, with which role; and what errors look like.

``page`` wraps a handler: it is called only for a user who is logged in, for a dataset that is open
to them, with the role that the page needs, and, for a POST, with the token of the visit.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import jinja2
from markupsafe import Markup
from msgspec import Struct
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from proxy.console.backend import Backend, Dataset
from proxy.console.guard import same_token
from proxy.console.visits import Visit, Visits
from proxy.errors import Error, InsufficientPrivilegeError
from proxy.privileges import ANALYST, AUDITOR, STEWARD, Privileges

HERE = Path(__file__).parent
COOKIE = "privacy-proxy-console"


class Place(NamedTuple):
    """A page of a dataset in the navigation, and the roles of which one is needed."""

    name: str
    title: str
    roles: frozenset[str]


EVERYBODY = frozenset({ANALYST, STEWARD, AUDITOR})
PLACES = (
    Place("ask", "Ask", frozenset({ANALYST})),
    Place("budget", "Budget", EVERYBODY),
    Place("history", "History", frozenset({ANALYST, AUDITOR})),
    Place("policy", "Policy", frozenset({STEWARD, AUDITOR})),
    Place("audit", "Audit", frozenset({STEWARD, AUDITOR})),
)


def sentence(text: str) -> str:
    """Return a text as a sentence: with a capital, unless it begins with a name, and an end."""
    begun = text[:1].upper() + text[1:] if re.match(r"refused:|[a-z']+[ ,]", text) else text
    return begun if begun.endswith((".", "?", "!")) else f"{begun}."


def json_block(value: Any) -> Markup:
    """Return JSON for a script element of type application/json, which no text can end."""
    text = json.dumps(value, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def moment(time: datetime | float) -> str:
    """Return a time, or seconds since 1970, in UTC, as pages show it."""
    shown = time if isinstance(time, datetime) else datetime.fromtimestamp(time, UTC)
    return f"{shown:%Y-%m-%d %H:%M:%S}"


def link(dataset: str, place: str, **query: str) -> str:
    """Return the address of a page of a dataset."""
    more = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
    return f"/d/{quote(dataset, safe='')}/{place}" + (f"?{more}" if more else "")


TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(HERE / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters["json_block"] = json_block
TEMPLATES.filters["moment"] = moment
TEMPLATES.filters["sentence"] = sentence
TEMPLATES.globals["link"] = link


class Asked(Struct, frozen=True):
    """A request for a page: who asks, about what."""

    request: Request
    visit: Visit
    dataset: Dataset
    privileges: Privileges
    form: Mapping[str, str] = {}

    @property
    def backend(self) -> Backend:
        """What the console stands on."""
        return self.visit.backend

    @property
    def fragment(self) -> bool:
        """Whether a part of a page is asked for, by htmx."""
        return "hx-request" in self.request.headers

    def may(self, *roles: str) -> bool:
        """Return whether the user has one of these roles."""
        return bool(self.privileges.roles & set(roles))

    def link(self, place: str, **query: str) -> str:
        """Return the address of another page of this dataset."""
        return link(self.dataset.name, place, **query)

    def render(self, template: str, status: int = 200, **context: Any) -> HTMLResponse:
        """Return a page, or a part of one, made of a template."""
        return render(
            self.request,
            template,
            status,
            visit=self.visit,
            dataset=self.dataset.name,
            datasets=sorted(self.backend.datasets(self.visit.user)),
            places=[place for place in PLACES if self.may(*place.roles)],
            roles=self.privileges.roles,
            asked=self,
            **context,
        )


Handler = Callable[[Asked], Awaitable[Response]]


def render(request: Request, template: str, status: int = 200, **context: Any) -> HTMLResponse:
    """Return a page made of a template."""
    context = {"visit": None, "nonce": request.scope["nonce"], "path": request.url.path} | context
    return HTMLResponse(TEMPLATES.get_template(template).render(context), status)


def page(*roles: str) -> Callable[[Handler], Callable[[Request], Awaitable[Response]]]:
    """Make a handler of ``Asked`` an endpoint, for users who have one of the roles."""

    def wrap(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        @functools.wraps(handler)
        async def endpoint(request: Request) -> Response:
            visit = visit_of(request)
            if visit is None:
                return to_login(request)
            form = await fields(request)
            if request.method == "POST" and not same_token(request, form.get("csrf"), visit.csrf):
                return failed(request, visit, "the page is out of date: load it again", 403)
            name = request.path_params["dataset"]
            dataset = visit.backend.datasets(visit.user).get(name)
            if dataset is None:
                return failed(request, visit, "there is no such dataset, or it is not open", 404)
            try:
                privileges = visit.backend.privileges(visit.user, name)
                if roles and not privileges.roles & set(roles):
                    raise InsufficientPrivilegeError(
                        f"this page is for {' and '.join(f'{role}s' for role in sorted(roles))}",
                        hint="roles are given in users.yaml",
                    )
                return await handler(Asked(request, visit, dataset, privileges, form))
            except InsufficientPrivilegeError as error:
                return failed(request, visit, error.message, 403, error.hint)
            except Error as error:
                return failed(request, visit, error.message, 400, error.hint)

        return endpoint

    return wrap


async def fields(request: Request) -> dict[str, str]:
    """Return the fields of a form that are texts; of one that is given twice, the last."""
    if request.method != "POST":
        return {}
    form: FormData = await request.form(max_files=0, max_fields=100, max_part_size=1 << 20)
    return {name: value for name, value in form.items() if isinstance(value, str)}


def to_login(request: Request) -> Response:
    """Send somebody who is not logged in to where that is done, and then back."""
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    back = quote(here, safe="") if request.method == "GET" else ""
    where = "/login" + (f"?next={back}" if back and here != "/" else "")
    if "hx-request" in request.headers:
        return Response(status_code=204, headers={"HX-Redirect": "/login"})
    return RedirectResponse(where, 303)


def visit_of(request: Request) -> Visit | None:
    """Return the visit of a browser that is logged in."""
    visits: Visits = request.app.state.visits
    return visits.get(request.cookies.get(COOKIE))


def failed(
    request: Request, visit: Visit | None, message: str, status: int, hint: str | None = None
) -> Response:
    """Return what says that something is wrong: a part of a page for htmx, else a page."""
    if "hx-request" in request.headers:
        return render(request, "problem.html", message=message, hint=hint)
    return render(request, "failed.html", status, visit=visit, message=message, hint=hint)
