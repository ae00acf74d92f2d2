"""What every request and response goes through: where it comes from, how long it is, and headers.

A request that changes anything is a POST of our own pages: its Origin is ours, and it brings the
visit's token (``X-CSRF-Token``, or the field ``csrf``).  A response says that nothing but our own
files may run, and that nobody may keep it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

LONGEST = 2 << 20  # bytes of a request
TOO_LONG = "the request is too long"
SAFE = ("GET", "HEAD", "OPTIONS")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; "
    "img-src 'self' data:; connect-src 'self'; font-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """The application with what all of it goes through, errors too."""

    def __init__(self, app: Starlette, secure: bool) -> None:
        self.app, self._secure = app, secure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        nonce = scope["nonce"] = secrets.token_urlsafe(16)
        static = scope["path"].startswith("/static/")
        length = 0

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers["Content-Security-Policy"] = POLICY.format(nonce=nonce)
                headers["Cache-Control"] = "no-cache" if static else "no-store"
                if self._secure:
                    headers["Strict-Transport-Security"] = "max-age=31536000"
            await send(message)

        async def bounded() -> Message:
            nonlocal length
            message = await receive()
            length += len(message.get("body", b""))
            if length > LONGEST:
                raise HTTPException(413, TOO_LONG)
            return message

        if wrong := _wrong(scope["method"], Headers(scope=scope)):
            status, why = wrong
            await PlainTextResponse(why, status)(scope, receive, guarded)
            return
        await self.app(scope, bounded, guarded)


def _wrong(method: str, headers: Mapping[str, str]) -> tuple[int, str] | None:
    """Return the status of a request that is refused, and why."""
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > LONGEST:
        return 413, TOO_LONG
    if method in SAFE:
        return None
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site not in (None, "same-origin") or (site is None and origin is None):
        return 403, "the request comes from another site"
    if origin is not None and urlsplit(origin).netloc != headers.get("host"):
        return 403, "the request comes from another site"
    return None


def same_token(request: Request, given: object, token: str) -> bool:
    """Return whether a request brings the token of its visit."""
    brought = request.headers.get("x-csrf-token") or (given if isinstance(given, str) else "")
    return secrets.compare_digest(brought.encode(), token.encode())
