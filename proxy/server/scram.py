"""SCRAM-SHA-256 and -PLUS (RFC 5802, RFC 7677) without I/O: of clients the server's side, of the
mirror the client's.

    AuthMessage     = client-first-bare "," server-first "," client-final-without-proof
    ClientKey       = proof XOR HMAC(StoredKey, AuthMessage), right if SHA-256 of it is StoredKey
    ServerSignature = HMAC(ServerKey, AuthMessage)
    header, in c=   "n,,"  the client binds no channel
                    "y,,"  it would, and was not offered to: a lie in between, if it was
                    "p=tls-server-end-point,,"  it binds, and the value stands behind the header

Invariant: a proof is good for one exchange, whose nonce is drawn here; a user who does not exist
has an exchange that cannot be told from that of one who does, and always fails.  As PostgreSQL
does, the name inside of the exchange is ignored: that of the startup message counts.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable

from proxy.policy import Verifier
from proxy.server.wire.frames import FrameError

MECHANISM = b"SCRAM-SHA-256"
PLUS = b"SCRAM-SHA-256-PLUS"  # with channel binding
KEY = 32  # bytes of SHA-256
OURS = 4096  # iterations that the mirror may ask of us, at most: others wait meanwhile
NONCE = rb"[\x21-\x2b\x2d-\x7e]+"
MORE = rb"(?:,[A-Za-z]=[^,\0]*)*"  # extensions, which are ignored; m=, a mandatory one, is first
BASE64 = rb"[A-Za-z0-9+/]+={0,2}"
BOUND = b"p=tls-server-end-point,,"
FIRST = re.compile(rb"((?:[ny]|p=[A-Za-z0-9.-]+),,)(n=[^,\0]*,r=(" + NONCE + rb")" + MORE + rb")")
FINAL = re.compile(
    rb"(c=(" + BASE64 + rb"),r=(" + NONCE + rb")" + MORE + rb"),p=(" + BASE64 + rb")"
)
CHALLENGE = re.compile(rb"r=(" + NONCE + rb"),s=(" + BASE64 + rb"),i=([1-9][0-9]{0,7})" + MORE)


class ChannelBindingError(FrameError):
    """The client sees another channel than we do: somebody may be between."""

    sqlstate = "28000"  # invalid_authorization_specification


class Exchange:
    """One login of one client: its first message, our challenge, its proof, our signature.

    ``binding`` is tls-server-end-point of the client's channel; empty where it has none.
    """

    def __init__(self, verifier: Verifier, binding: bytes = b"") -> None:
        self.mechanisms = (PLUS, MECHANISM) if binding else (MECHANISM,)  # that are offered
        self._binding = binding
        self._verifier = verifier
        self._nonce = base64.b64encode(secrets.token_bytes(18))
        self._header = self._bare = self._challenge = b""

    def challenge(self, first: bytes, mechanism: bytes = MECHANISM) -> bytes:
        """Return the server's first message.

        Raises:
            ChannelBindingError: the client was told that we do not bind, and we do.
            FrameError: the client's is none, or asks for what was not offered.
        """
        if mechanism not in self.mechanisms:
            raise FrameError("client selected an invalid SASL authentication mechanism")
        match = FIRST.fullmatch(first)
        if match is None:
            raise FrameError("malformed SCRAM message")
        self._header, self._bare, nonce = match.groups()
        if self._header == b"y,," and self._binding:
            raise ChannelBindingError(
                "the client was not offered channel binding, but the server offers it"
            )
        if (self._header == BOUND) != (mechanism == PLUS):
            raise FrameError("malformed SCRAM message: not the channel binding of the mechanism")
        self._nonce = nonce + self._nonce
        salt = base64.b64encode(self._verifier.salt)
        self._challenge = b"r=%b,s=%b,i=%d" % (self._nonce, salt, self._verifier.iterations)
        return self._challenge

    def read(self, final: bytes) -> tuple[bytes, bytes]:
        """Return the proof in the client's final message, and what is proved by it.

        Raises:
            ChannelBindingError: the client's channel is not ours.
            FrameError: the client's message is none, or belongs to another exchange.
        """
        match = FINAL.fullmatch(final)
        if match is None or not self._challenge:
            raise FrameError("malformed SCRAM message")
        bare, binding, nonce, text = match.groups()
        bound = self._header == BOUND
        if binding != base64.b64encode(self._header + self._binding * bound):
            wrong = ChannelBindingError if bound else FrameError
            raise wrong("SCRAM channel binding check failed")
        if not hmac.compare_digest(nonce, self._nonce):
            raise FrameError("malformed SCRAM message: the nonce does not match")
        proof = _decoded(text)
        if len(proof) != KEY:
            raise FrameError("malformed SCRAM message")
        return proof, b",".join((self._bare, self._challenge, bare))

    def signature(self, final: bytes) -> bytes | None:
        """Return the server's final message; None where the proof is wrong.

        Raises:
            FrameError: as of ``read``.
        """
        proof, said = self.read(final)
        key = _xor(proof, hmac.digest(self._verifier.stored_key, said, "sha256"))
        if not hmac.compare_digest(hashlib.sha256(key).digest(), self._verifier.stored_key):
            return None
        return b"v=" + base64.b64encode(hmac.digest(self._verifier.server_key, said, "sha256"))


class Proof:
    """The client's side, towards the mirror."""

    def __init__(self, password: str) -> None:
        self._password = password.encode()
        self._bare = b"n=,r=" + base64.b64encode(secrets.token_bytes(18))
        self.first = b"n,," + self._bare

    def final(self, challenge: bytes) -> bytes:
        """Return the client's final message.

        Raises:
            FrameError: the challenge is none, or asks for too much.
        """
        match = CHALLENGE.fullmatch(challenge)
        if match is None or not match[1].startswith(self._bare.removeprefix(b"n=,r=")):
            raise FrameError("malformed SCRAM message of the mirror")
        iterations = int(match[3])
        if iterations > OURS:
            raise FrameError("the mirror asks for too many SCRAM iterations")
        salted = hashlib.pbkdf2_hmac("sha256", self._password, _decoded(match[2]), iterations)
        key = hmac.digest(salted, b"Client Key", "sha256")
        bare = b"c=biws,r=" + match[1]
        said = b",".join((self._bare, challenge, bare))
        stored = hashlib.sha256(key).digest()
        proof = _xor(key, hmac.digest(stored, said, "sha256"))
        return bare + b",p=" + base64.b64encode(proof)


def nobody(user: str, key: bytes, users: Iterable[Verifier]) -> Verifier:
    """Return the verifier of a user who does not exist: nothing proves it.

    Its salt is always the same for a name and a key; salt and iterations look like those of one
    of the users.
    """
    shapes = {(verifier.iterations, len(verifier.salt)) for verifier in users} or {(4096, 16)}
    iterations, size = max(shapes, key=lambda shape: _keyed(key, f"{shape} {user}"))
    salt = hashlib.shake_256(_keyed(key, user)).digest(size)
    return Verifier(iterations, salt, secrets.token_bytes(32), secrets.token_bytes(32))


def _keyed(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode("utf-8", "surrogatepass"), "sha256")


def _decoded(text: bytes) -> bytes:
    try:
        decoded = base64.b64decode(text, validate=True)
    except ValueError:
        decoded = b""
    if base64.b64encode(decoded) != text:  # bits that mean nothing may not be set either
        raise FrameError("malformed SCRAM message")
    return decoded


def _xor(one: bytes, other: bytes) -> bytes:
    """Return the exclusive or of two values of the same length."""
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
