"""The server's certificate: what TLS needs of it, and its hash, to which a login can be bound.

tls-server-end-point (RFC 5929, section 4.1) is the hash of the certificate by the hash function of
its own signature, where MD5 and SHA-1 count as SHA-256.  A signature that has none of its own, as
Ed25519's, has no such value.  Invariant: context and hash are of the same reading of the files.
"""

from __future__ import annotations

import hashlib
import os
import ssl
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from proxy.errors import PolicyError

Fingerprint = tuple[tuple[int, ...], ...]
SEQUENCE, OID, HASH = 0x30, 0x06, 0xA0  # tags of DER; HASH is the first field of PSS's parameters
UNFIT = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")
PSS = "2a864886f70d01010a"
HASHES = {  # object identifiers as in DER: of signatures, and of hashes in PSS's parameters
    **dict.fromkeys(("2a864886f70d010104", "2a864886f70d0205"), "sha256"),  # MD5
    **dict.fromkeys(("2a864886f70d010105", "2a8648ce3d0401", "2b0e03021a"), "sha256"),  # SHA-1
    **dict.fromkeys(("2a864886f70d01010e", "2a8648ce3d040301", "608648016503040204"), "sha224"),
    **dict.fromkeys(("2a864886f70d01010b", "2a8648ce3d040302", "608648016503040201"), "sha256"),
    **dict.fromkeys(("2a864886f70d01010c", "2a8648ce3d040303", "608648016503040202"), "sha384"),
    **dict.fromkeys(("2a864886f70d01010d", "2a8648ce3d040304", "608648016503040203"), "sha512"),
}


class Certificate(Struct, frozen=True):
    """A certificate and its key, as they were when they were read."""

    files: tuple[Path, Path]  # the certificate with its chain, the key
    fingerprint: Fingerprint
    context: ssl.SSLContext
    binding: bytes  # tls-server-end-point; empty: there is none

    @classmethod
    def load(cls, certificate: str | Path, key: str | Path) -> Certificate:
        """Read a certificate with its chain, and its key, from two files in PEM.

        Raises:
            PolicyError: one cannot be read, or they do not fit together.
        """
        files = Path(certificate), Path(key)
        fingerprint = read_fingerprint(files)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["postgresql"])
        for file in files:
            try:
                file.read_bytes()
            except OSError as error:
                raise PolicyError(f"cannot be read: {error.strerror}", file=str(file)) from None
        try:
            context.load_cert_chain(*files, password=_no_password)
            served = _served(context)
        except ssl.SSLError as error:
            raise PolicyError(_why(error), file=str(certificate), hint=f"its key: {key}") from None
        return cls(files, fingerprint, context, server_end_point(served))


def read_fingerprint(files: tuple[Path, ...]) -> Fingerprint:
    """Return what tells whether files have changed; of a file that is not there, nothing."""
    told: list[tuple[int, ...]] = []
    for file in files:
        with suppress(OSError):
            found = os.stat(file)
            told.append((found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size))
    return tuple(told)


def _no_password() -> str:
    """Nobody is there to type one when the files are read again; an empty one opens no key."""
    return ""


def _why(error: ssl.SSLError) -> str:
    """Return what is wrong with the files, in words."""
    if error.reason in UNFIT:
        return "the key does not fit the certificate"
    why = (error.reason or "").lower().replace("_", " ") or "no PEM, or an encrypted key"
    return f"the certificate and its key are of no use for TLS: {why}"


def _served(context: ssl.SSLContext) -> bytes:
    """Return the certificate that a context shows to clients, in DER, from a handshake with it."""
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname, asking.verify_mode = False, ssl.CERT_NONE
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asking.wrap_bio(back, there)
    server = context.wrap_bio(there, back, server_side=True)
    for side in (client, server, client):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return client.getpeercert(binary_form=True) or b""


def server_end_point(certificate: bytes) -> bytes:
    """Return tls-server-end-point of a certificate in DER; empty where it has none."""
    _, at, _ = _element(certificate, 0)
    _, _, at = _element(certificate, at)  # what is signed
    _, at, end = _element(certificate, at)  # by which algorithm
    _, first, last = _element(certificate, at)
    algorithm = certificate[first:last].hex()
    if algorithm == PSS:
        algorithm = _pss_hash(certificate[last:end])
    name = HASHES.get(algorithm)
    return hashlib.new(name, certificate).digest() if name else b""


def _pss_hash(parameters: bytes) -> str:
    """Return the hash's identifier in the parameters of RSASSA-PSS, which is SHA-1's if omitted."""
    _, at, end = _element(parameters, 0)
    if at == end or parameters[at] != HASH:
        return "2b0e03021a"
    for _ in range(2):  # the field, and the algorithm in it
        _, at, _ = _element(parameters, at)
    _, first, last = _element(parameters, at)
    return parameters[first:last].hex()


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Return the tag of what begins at a place, where its content begins, and where it ends."""
    tag, length, at = der[at], der[at + 1], at + 2
    if length > 0x7F:
        size = length & 0x7F
        length = int.from_bytes(der[at : at + size], "big")
        at += size
    return tag, at, at + length
