"""From a connection to a session: TLS, the startup message, the client's proof, and the mirror.

The server itself checks the proof, against the verifier in the users file; how the mirror lets
anybody in does not matter.  Then it logs in to the mirror as the user, with a secret of its own
that no client ever sees, so that nothing a session says makes it another user's.  Invariant: no
client hears AuthenticationOk, or reaches the mirror, before it has proved a password.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
import struct
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from proxy.files import create, make_folder
from proxy.policy import Verifier
from proxy.server.mirror import user_settings
from proxy.server.scram import MECHANISM, Exchange, Proof
from proxy.server.wire import messages
from proxy.server.wire.certificate import Certificate
from proxy.server.wire.frames import (
    CANCEL,
    DIRECT,
    GSS,
    LOGIN_LIMIT,
    SSL,
    FrameError,
    Frames,
    frame,
)
from proxy.server.wire.messages import Report
from proxy.server.wire.transport import ConnectionClosed, Transport

SECONDS = 10.0  # from the connection to the proof, and again from the proof to the session
STEP = 5.0  # seconds for one message of it, however it drips in
FAREWELL = 1.0  # seconds for the end of TLS
REQUESTS = 3  # for encryption, at most
VERSION = 3 << 16
REFUSED = {"replication"}  # parameters that no client of ours needs
EXTENSION = "_pq_."  # the names of protocol extensions begin so; we have none
CHECK = "privacy.check"  # a parameter of ``serve --check``
KEY = "login.key"
DATABASE_GONE = ("3D000", "42501")  # the database is no more, or not open: it will be made anew
OK, CLEARTEXT, SASL, SASL_CONTINUE, SASL_FINAL = 0, 3, 10, 11, 12  # of authentication


class LoginError(Exception):
    """The client is told why, and sent away; ``reason`` has no text of the client, for the log."""

    def __init__(self, report: Report, reason: str) -> None:
        super().__init__(report.message)
        self.report = report
        self.reason = reason


class ShutOutError(Exception):
    """The mirror does not let us in as a user."""


class Startup(Struct, frozen=True):
    """A StartupMessage."""

    version: int
    parameters: dict[str, str]
    check: bool = False  # the client only asks whether the server is well

    @property
    def user(self) -> str:
        """The name of the user."""
        return self.parameters.get("user", "")

    @property
    def database(self) -> str:
        """The name of the database, which is the user's where none is given."""
        return self.parameters.get("database") or self.user


class CancelRequest(Struct, frozen=True):
    """A connection that only asks to stop another one's statement."""

    key: bytes


def fatal(
    sqlstate: str, message: str, hint: str | None = None, reason: str | None = None
) -> LoginError:
    """Return the error that ends a connection; its message is the reason, if there is no other."""
    return LoginError(Report("FATAL", sqlstate, message, hint=hint), reason or message)


async def first_message(
    client: Transport, certificate: Certificate | None, plain: bool
) -> Startup | CancelRequest:
    """Return a client's first message, after TLS if the client asks for it.

    Raises:
        ConnectionClosed: it closed, or TLS failed.
        FrameError: it sent nothing that makes sense.
        LoginError: it must use TLS, or speaks another protocol.
        TimeoutError: it is too slow.
    """
    encrypted = False
    for requests in range(REQUESTS + 1):
        kind, body = await _next(client)
        if kind == DIRECT:
            if certificate is None or encrypted:
                raise FrameError("invalid length of startup packet")
            await _start_tls(client, certificate, client.frames.rest())
            encrypted = True
            continue
        code = messages.startup_code(body)
        if code == CANCEL:
            return CancelRequest(body[4:])
        if code not in (SSL, GSS):
            return _startup(client, code, body, encrypted or certificate is None or plain)
        if len(body) > 4:
            raise FrameError("invalid length of startup packet")
        if requests == REQUESTS:
            break
        if client.frames.waiting:
            raise FrameError("received unencrypted data after a request for encryption")
        if code == SSL and certificate is not None and not encrypted:
            client.write(b"S")
            await _start_tls(client, certificate)
            encrypted = True
        else:
            client.write(b"N")
    raise FrameError("too many requests for encryption")


def _startup(client: Transport, code: int, body: bytes, safe: bool) -> Startup:
    """Read a StartupMessage; what follows are messages with a type."""
    if code >> 16 != 3:
        version = f"{code >> 16 & 0xFFFF}.{code & 0xFFFF}"
        raise fatal("0A000", f"unsupported frontend protocol {version}: server supports 3.0")
    if not safe:
        raise fatal("28000", "connections without TLS are refused", "set sslmode=require")
    client.frames.startup = False
    parameters = messages.read_startup(body)
    if not parameters.get("user"):
        raise fatal("28000", "no PostgreSQL user name specified in startup packet")
    check = parameters.pop(CHECK, None) is not None
    return Startup(code, {k: v for k, v in parameters.items() if k not in REFUSED}, check)


async def _next(client: Transport) -> tuple[bytes, bytes]:
    """Return a client's next message; a byte now and then does not buy it time."""
    async with asyncio.timeout(STEP):
        return await client.get()


async def _start_tls(client: Transport, certificate: Certificate, hello: bytes = b"") -> None:
    """Begin with TLS; ``hello`` are the first bytes of it, from a client that did not ask.

    Such a client must name the protocol, so that it cannot be one of HTTP, say, led astray.
    """
    plain = client.raw
    assert plain is not None
    starting = asyncio.ensure_future(
        asyncio.get_running_loop().start_tls(
            *(plain, client, certificate.context),
            server_side=True,
            ssl_handshake_timeout=STEP,
            ssl_shutdown_timeout=FAREWELL,
        )
    )
    try:
        if hello:
            for _ in range(2):  # the loop takes over, and begins; nothing is read yet
                await asyncio.sleep(0)
            reader = plain.get_protocol()
            if not isinstance(reader, asyncio.BufferedProtocol):
                raise ConnectionClosed
            reader.get_buffer(len(hello))[: len(hello)] = hello  # type: ignore[index]
            reader.buffer_updated(len(hello))
        client.raw = await starting
    except (OSError, ssl.SSLError, ConnectionError, AttributeError):
        raise ConnectionClosed from None
    finally:
        starting.cancel()
    if client.raw is None:
        raise ConnectionClosed
    client.binding = certificate.binding
    tls_object = client.raw.get_extra_info("ssl_object")
    if hello and tls_object.selected_alpn_protocol() != "postgresql":
        raise ConnectionClosed


async def challenge(
    client: Transport, startup: Startup, verifier: Verifier
) -> tuple[Exchange, bytes]:
    """Ask a client for its password; return its proof, of which nobody knows yet if it is right.

    Raises:
        ConnectionClosed: it went away.
        FrameError: what it sent is no such message, or of another exchange or channel.
        TimeoutError: it is too slow.
    """
    extensions = [name for name in startup.parameters if name.startswith(EXTENSION)]
    if startup.version != VERSION or extensions:
        names = b"".join(name.encode() + b"\0" for name in extensions)
        client.write(frame(b"v", struct.pack("!ii", VERSION, len(extensions)) + names))
    exchange = Exchange(verifier, client.binding)
    offered = b"".join(mechanism + b"\0" for mechanism in exchange.mechanisms)
    client.write(_authentication(SASL, offered + b"\0"))
    mechanism, first = messages.read_sasl(await _answer(client))
    client.write(_authentication(SASL_CONTINUE, exchange.challenge(first, mechanism)))
    proof = await _answer(client)
    exchange.read(proof)
    return exchange, proof


def judge(client: Transport, startup: Startup, exchange: Exchange, proof: bytes) -> None:
    """Look at a client's proof; it is told that it is right, but not yet that it is in.

    Raises:
        LoginError: it is wrong.
    """
    signature = exchange.signature(proof)
    if signature is None:
        raise wrong(startup)
    client.write(_authentication(SASL_FINAL, signature))


async def _answer(client: Transport) -> bytes:
    """Return what a client answers to a request for its password."""
    kind, body = await _next(client)
    if kind == b"X":
        raise ConnectionClosed
    if kind != b"p":
        raise FrameError(f"expected password response, got message type {kind[0]}")
    return body


def _authentication(step: int, data: bytes = b"") -> bytes:
    return frame(b"R", struct.pack("!i", step) + data)


def wrong(startup: Startup) -> LoginError:
    """Return the error of a proof that is wrong, or of a user who does not exist."""
    message = f'password authentication failed for user "{startup.user}"'
    return fatal("28P01", message, reason="wrong password")


async def enter(
    client: Transport, mirror: Transport, startup: Startup, secret: str
) -> tuple[bytes, dict[bytes, bytes]]:
    """Log a client in to the mirror; return the session's key, and its parameters.

    Raises:
        ConnectionClosed: the mirror went away.
        ShutOutError: it does not let us in.
        LoginError: it says why not: too many connections, a setting that is wrong.
    """
    kept = {k: v for k, v in startup.parameters.items() if not k.startswith(EXTENSION)}
    if why := user_settings.refused_at_login(kept):
        raise fatal(why.sqlstate, why.message, why.hint)
    mirror.write(messages.startup(kept, VERSION))
    proof, key = Proof(secret), b""
    welcome: list[tuple[bytes, bytes]] = []
    while True:
        kind, body = await mirror.get()
        if kind == b"E":
            raise _refusal(body, inside=bool(welcome))
        if kind == b"R" and (reply := _reply(body, proof, secret)) is not None:
            mirror.write(frame(b"p", reply))
        elif welcome or (kind == b"R" and body == struct.pack("!i", OK)):
            welcome.append((kind, body))
        if kind == b"K":
            key = body
        if kind == b"Z" and welcome:
            break
    for kind, body in welcome:
        client.write(frame(kind, body))
    return key, parameters(welcome)


def _reply(body: bytes, proof: Proof, secret: str) -> bytes | None:
    """Return our reply to the mirror's request for a password; None where it needs none.

    Raises:
        ShutOutError: it asks for something else.
    """
    (step,) = struct.unpack_from("!i", body.ljust(4, b"\xff"))
    if step in (OK, SASL_FINAL):
        return None
    if step == CLEARTEXT:
        return secret.encode() + b"\0"
    if step == SASL and MECHANISM in body[4:].split(b"\0"):
        return MECHANISM + b"\0" + struct.pack("!i", len(proof.first)) + proof.first
    if step == SASL_CONTINUE:
        with suppress(FrameError):
            return proof.final(body[4:])
    raise ShutOutError


def parameters(frames: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the parameters that the mirror reported."""
    reported = {}
    for kind, body in frames:
        if kind == b"S":
            name, at = messages.cstring(body, 0)
            reported[name] = messages.cstring(body, at)[0]
    return reported


def _refusal(body: bytes, inside: bool) -> LoginError | ShutOutError:
    """Return what a client is told when the mirror does not let it in."""
    said = {k: v.decode("utf-8", "replace") for k, v in messages.fields(body).items()}
    sqlstate = said.get("C", "08000")
    if sqlstate in DATABASE_GONE or (sqlstate.startswith("28") and not inside):
        return ShutOutError()
    report = Report("FATAL", sqlstate, said.get("M", ""), said.get("D"), said.get("H"))
    return LoginError(report, "the mirror refused")


def key(folder: Path) -> bytes:
    """Return the key of the salts of users who do not exist, which a state folder keeps."""
    path = folder / KEY
    with suppress(OSError):
        make_folder(folder)
        with suppress(FileExistsError), open(create(path), "wb") as file:
            file.write(secrets.token_bytes(32))
        if len(kept := path.read_bytes()) == 32:
            return kept
    return secrets.token_bytes(32)


def new_client_frames() -> Frames:
    """Return the framing of a new connection."""
    return Frames(LOGIN_LIMIT, startup=True)
