"""The users file: who may connect, as what, with SCRAM-SHA-256 verifiers and never a password.

A verifier is PostgreSQL's, so that files may be moved either way:

    SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>        base64

with SaltedPassword = PBKDF2-HMAC-SHA-256(SASLprep(password), salt, iterations), StoredKey =
SHA-256(HMAC(SaltedPassword, "Client Key")) and ServerKey = HMAC(SaltedPassword, "Server Key")
(RFC 5802, RFC 7677).  No message here shows what a password key holds.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import secrets
import stringprep
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from unicodedata import ucd_3_2_0

from msgspec import Struct

from proxy.policy import document, keys
from proxy.policy.axes import listed
from proxy.policy.document import Item
from proxy.policy.faults import Unread
from proxy.policy.load import utility
from proxy.policy.model import Utility

RESERVED = ("public", "none", "privacy_proxy")  # PostgreSQL's, and that of the embedded mirror
RESERVED_PREFIX = "pg_"
MAX_ITERATIONS = 10_000_000  # as PostgreSQL's clients bear
PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,
)


@dataclass(frozen=True)
class Verifier:
    """What a server keeps of a password."""

    iterations: int
    salt: bytes
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> Verifier:
        """Return the verifier in PostgreSQL's form.

        Raises:
            ValueError: the text is none.
        """
        match = re.fullmatch(r"SCRAM-SHA-256\$(\d{1,8}):([^:$]+)\$([^:$]+):([^:$]+)", text)
        if not match:
            raise ValueError("not SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey")
        try:
            salt, stored, server = (base64.b64decode(m, validate=True) for m in match.groups()[1:])
        except binascii.Error:
            raise ValueError("salt or keys are not base64") from None
        iterations = int(match[1])
        if len(stored) != 32 or len(server) != 32:
            raise ValueError("keys are not 32 bytes long")
        if not 1 <= iterations <= MAX_ITERATIONS:
            raise ValueError(f"iterations are not between 1 and {MAX_ITERATIONS:,}")
        return cls(iterations, salt, stored, server)

    def __str__(self) -> str:
        salt, stored, server = (
            base64.b64encode(part).decode()
            for part in (self.salt, self.stored_key, self.server_key)
        )
        return f"SCRAM-SHA-256${self.iterations}:{salt}${stored}:{server}"


class User(Struct, frozen=True):
    """Someone who may connect."""

    name: str
    password: Verifier
    roles: frozenset[str]  # of analyst, steward, auditor
    groups: tuple[str, ...]
    datasets: tuple[str, ...] | None  # None: all
    utility: Utility | None

    def may_see(self, dataset: str) -> bool:
        """Whether a dataset is open to the user."""
        return self.datasets is None or dataset in self.datasets


class Users(Struct, frozen=True):
    """The users file."""

    path: Path
    users: Mapping[str, User]

    def get(self, name: str) -> User | None:
        """Return a user by name."""
        return self.users.get(name)


def load_users(path: str | os.PathLike[str], text: str | None = None) -> Users:
    """Return the users in a file, or in a text that is to be in it.

    Raises:
        PolicyError: the file is wrong; all of its faults, each with line and key, and what is
            allowed.
    """
    path = Path(path)
    item = keys.USERS.read(document.read(path, text))
    users = {}
    for name, each in listed(item, "users").items():
        users[name] = item.faults.tried(_user, name, each)
        if name in RESERVED or name.startswith(RESERVED_PREFIX):
            error = each.error(f'the name "{name}" is reserved: PostgreSQL has no such users')
            error.hint = 'choose another name; "public", "none", "privacy_proxy" and those that '
            error.hint += 'begin with "pg_" cannot be users'
            item.faults.add(error)
    keys.explain(item.faults.errors, keys.USERS)
    item.faults.finish()
    return Users(path.absolute(), {name: user for name, user in users.items() if user is not None})


def _user(name: str, item: Item) -> User:
    """Return one user; the only password is a verifier."""
    tried = item.faults.tried
    verifier = tried(_verifier, item.value["password"])
    wish = tried(utility, item.value["utility"]) if "utility" in item.value else None
    if verifier is None:
        raise Unread
    return User(
        name=name,
        password=verifier,
        roles=frozenset(role.value for role in item.get("roles")),
        groups=tuple(group.value for group in item.get("groups")),
        datasets=tuple(d.value for d in item.get("datasets")) if "datasets" in item.value else None,
        utility=wish,
    )


def _verifier(password: Item) -> Verifier:
    """Return what stands for a password."""
    try:
        return Verifier.parse(password.value)
    except ValueError as error:
        raise password.error(
            f"no SCRAM-SHA-256 verifier ({error}); a plain password is never kept, "
            "`privacy-proxy passwd` prints its verifier"
        ) from None


def scram_verifier(password: str, iterations: int = 4096, salt: bytes | None = None) -> str:
    """Return the verifier of a password, in PostgreSQL's form; the salt is random if not given.

    Raises:
        ValueError: the password is empty.
    """
    if not password:
        raise ValueError("an empty password")
    salt = secrets.token_bytes(16) if salt is None else salt
    salted = hashlib.pbkdf2_hmac("sha256", saslprep(password).encode(), salt, iterations)
    client = hmac.digest(salted, b"Client Key", "sha256")
    server = hmac.digest(salted, b"Server Key", "sha256")
    return str(Verifier(iterations, salt, hashlib.sha256(client).digest(), server))


def saslprep(password: str) -> str:
    """Return a password in SASLprep form (RFC 4013); one that has none, as it is (PostgreSQL)."""
    mapped = "".join(
        " " if stringprep.in_table_c12(character) else character
        for character in password
        if not stringprep.in_table_b1(character)
    )
    prepared = ucd_3_2_0.normalize("NFKC", mapped)
    if not prepared or any(table(c) for c in prepared for table in PROHIBITED):
        return password
    right = [stringprep.in_table_d1(character) for character in prepared]
    if any(right) and (
        any(stringprep.in_table_d2(c) for c in prepared) or not (right[0] and right[-1])
    ):
        return password  # both directions of writing
    return prepared
