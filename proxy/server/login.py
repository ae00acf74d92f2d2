"""From a connection to a session: TLS, the startup message, and SCRAM between client and mirror.

The mirror knows the verifiers and does the login; the server only carries the messages.  A name
that no user has is sent on as another that no role has, so that it fails like a wrong password,
after the same exchange.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import ssl
import struct
from dataclasses import dataclass

from proxy.server import messages
from proxy.server.frames import CANCEL, DIRECT, GSS, LOGIN_LIMIT, SSL, Frames, frame
from proxy.server.messages import Report
from proxy.server.peer import Gone, Peer

SECONDS = 15.0  # for all of it
VERSION = 3 << 16
REFUSED = {"replication"}  # parameters that no client of ours needs
SALT = secrets.token_bytes(16)
ASKING = (3, 5, 10, 11)  # authentication messages that the client answers


class LoginError(Exception):
    """The client is told why, and sent away."""

    def __init__(self, report: Report) -> None:
        super().__init__(report.message)
        self.report = report


@dataclass(frozen=True)
class Startup:
    """What a client said first."""

    version: int
    parameters: dict[str, str]

    @property
    def user(self) -> str:
        """The name of the user."""
        return self.parameters.get("user", "")

    @property
    def database(self) -> str:
        """The name of the database, which is the user's where none is given."""
        return self.parameters.get("database") or self.user


@dataclass(frozen=True)
class CancelRequest:
    """A connection that only asks to stop another one's statement."""

    key: bytes


def fatal(sqlstate: str, message: str, hint: str | None = None) -> LoginError:
    """Return the error that ends a connection."""
    return LoginError(Report("FATAL", sqlstate, message, hint=hint))


async def first_message(
    client: Peer, tls: ssl.SSLContext | None, plain: bool
) -> Startup | CancelRequest:
    """Return what a client wants, TLS begun if it asked for it.

    Raises:
        Gone: it sent nothing that makes sense.
        LoginError: it must use TLS, or speaks another protocol.
    """
    encrypted = False
    for _ in range(4):
        kind, body = await client.get()
        if kind == DIRECT and tls is not None and not encrypted:
            await _start_tls(client, tls, client.frames.rest())
            encrypted = True
            continue
        if len(body) < 4:
            raise Gone
        (code,) = struct.unpack_from("!i", body)
        if code == CANCEL:
            return CancelRequest(body[4:])
        if code not in (SSL, GSS):
            break
        if client.frames.waiting:
            raise Gone  # bytes slipped in before TLS begins
        if code == SSL and tls is not None and not encrypted:
            client.write(b"S")
            await _start_tls(client, tls)
            encrypted = True
        else:
            client.write(b"N")
    else:
        raise Gone
    if code >> 16 != 3:
        raise fatal("0A000", f"unsupported frontend protocol {code >> 16}.{code & 0xFFFF}")
    if tls is not None and not encrypted and not plain:
        raise fatal("28000", "connections without TLS are refused", "set sslmode=require")
    client.frames.startup = False
    parameters = messages.read_startup(body)
    return Startup(code, {k: v for k, v in parameters.items() if k not in REFUSED})


async def _start_tls(client: Peer, tls: ssl.SSLContext, hello: bytes = b"") -> None:
    """Begin with TLS; ``hello`` are the first bytes of it, from a client that did not ask.

    Such a client must name the protocol, so that it cannot be one of HTTP, say, led astray.
    """
    plain = client.transport
    assert plain is not None
    loop = asyncio.get_running_loop()
    starting = asyncio.ensure_future(
        loop.start_tls(plain, client, tls, server_side=True, ssl_handshake_timeout=SECONDS)
    )
    try:
        if hello:
            for _ in range(2):  # it takes over the transport, and begins; nothing is read yet
                await asyncio.sleep(0)
            reader = plain.get_protocol()
            if not isinstance(reader, asyncio.BufferedProtocol):
                raise Gone
            reader.get_buffer(len(hello))[: len(hello)] = hello  # type: ignore[index]
            reader.buffer_updated(len(hello))
        client.transport = await starting
    except (OSError, ssl.SSLError, ConnectionError, AttributeError):
        raise Gone from None
    finally:
        starting.cancel()
    if client.transport is None:
        raise Gone
    told = client.transport.get_extra_info("ssl_object")
    if hello and told.selected_alpn_protocol() != "postgresql":
        raise Gone


async def authenticate(
    client: Peer, mirror: Peer, startup: Startup, known: bool
) -> tuple[bytes, dict[bytes, bytes]]:
    """Carry the login between client and mirror; return the session's key, and its parameters.

    Raises:
        Gone: one of them went away; the client has been told why, if the mirror said so.
        LoginError: no such user, wrong password, no such database.
    """
    name = startup.user if known else _nobody(startup.user)
    mirror.write(messages.startup({**startup.parameters, "user": name}, startup.version))
    welcome, key, accepted = [], b"", False
    while True:
        kind, body = await mirror.get()
        if kind == b"E":
            raise LoginError(_refusal(body, startup, known, accepted))
        if kind == b"R":
            (step,) = struct.unpack_from("!i", body)
            accepted = step == 0
            if not accepted:
                client.write(frame(kind, body))
            if step in ASKING:
                answer, reply = await client.get()
                if answer != b"p":
                    raise Gone
                mirror.write(frame(answer, reply))
                continue
        if kind == b"K":
            key = body
        if accepted:
            welcome.append((kind, body))
        elif kind == b"v":
            client.write(frame(kind, body))
        if kind == b"Z":
            break
    if not known:
        raise Gone
    for kind, body in welcome:
        client.write(frame(kind, body))
    return key, parameters(welcome)


def parameters(frames: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the parameters that the mirror reported."""
    found = {}
    for kind, body in frames:
        if kind == b"S":
            name, at = messages.cstring(body, 0)
            found[name] = messages.cstring(body, at)[0]
    return found


def _nobody(user: str) -> str:
    """Return a name that no role has, always the same for a name: its salt does not change."""
    return "nobody-" + hmac.new(SALT, user.encode(), hashlib.sha256).hexdigest()[:32]


def _refusal(body: bytes, startup: Startup, known: bool, accepted: bool) -> Report:
    """Return what a client is told when the mirror does not let it in."""
    said = {k: v.decode("utf-8", "replace") for k, v in messages.fields(body).items()}
    if not known or (not accepted and said.get("C", "").startswith("28")):
        message = f'password authentication failed for user "{startup.user}"'
        return Report("FATAL", "28P01", message)
    sqlstate, message, hint = said.get("C", "08000"), said.get("M", ""), said.get("H")
    if sqlstate in ("3D000", "42501"):
        sqlstate, message = "3D000", f'database "{startup.database}" does not exist'
    return Report("FATAL", sqlstate, message, said.get("D"), hint)


def new_client_frames() -> Frames:
    """Return the framing of a connection that has just been made."""
    return Frames(LOGIN_LIMIT, startup=True)
