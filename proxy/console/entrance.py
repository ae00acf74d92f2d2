"""Logging in and out, and the way from the address of the console to its first page."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from proxy.console.backend import Backend, Credentials
from proxy.console.guard import same_token
from proxy.console.pages import COOKIE, PLACES, failed, fields, link, render, to_login, visit_of
from proxy.console.visits import LONGEST, Visits
from proxy.errors import Error

NAME_LIMIT, PASSWORD_LIMIT = 63, 1000  # characters


async def home(request: Request) -> Response:
    """Go to the first page that the user may see."""
    visit = visit_of(request)
    if visit is None:
        return to_login(request)
    for name in visit.backend.datasets(visit.user):
        roles = visit.backend.privileges(visit.user, name).roles
        for place in PLACES:
            if roles & place.roles:
                return RedirectResponse(link(name, place.name), 303)
    return failed(request, visit, "no dataset is open to you", 403, "a steward can open one")


async def login(request: Request) -> Response:
    """Ask for a name and a password, or take the token of an address."""
    backend: Backend = request.app.state.backend
    given = request.query_params.get("token")
    if request.method == "POST":
        form = await fields(request)
        user, password = form.get("user", "")[:NAME_LIMIT], form.get("password", "")
        next_ = form.get("next", "")
    elif given is not None and not backend.passwords:
        user, password, next_ = "", given, "/"
    else:
        return _form(request, request.query_params.get("next", ""))
    if len(password) > PASSWORD_LIMIT:
        return _form(request, next_, user, "the password is too long")
    address = request.client.host if request.client else ""
    try:
        token, _ = await request.app.state.visits.enter(Credentials(user, password, address))
    except Error as error:
        return _form(request, next_, user, error.message)
    await request.app.state.visits.leave(request.cookies.get(COOKIE))
    response = RedirectResponse(next_ if _ours(next_) else "/", 303)
    response.set_cookie(
        COOKIE,
        token,
        max_age=int(LONGEST),
        secure=request.app.state.secure,
        httponly=True,
        samesite="strict",
    )
    return response


def _form(request: Request, next_: str, user: str = "", problem: str = "") -> Response:
    """Return the page on which one logs in."""
    passwords = request.app.state.backend.passwords
    return render(
        request,
        "login.html",
        401 if problem else 200,
        next=next_ if _ours(next_) else "",
        user=user,
        problem=problem,
        passwords=passwords,
    )


def _ours(address: str) -> bool:
    """Return whether an address is of our own pages, and of no other site."""
    return (
        address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    )


async def logout(request: Request) -> Response:
    """End the visit."""
    visits: Visits = request.app.state.visits
    visit, form = visit_of(request), await fields(request)
    if visit is not None and not same_token(request, form.get("csrf"), visit.csrf):
        return failed(request, visit, "the page is out of date: load it again", 403)
    await visits.leave(request.cookies.get(COOKIE))
    response = RedirectResponse("/login", 303)
    response.delete_cookie(COOKIE)
    return response
