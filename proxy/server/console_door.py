"""The way in for the console that runs beside the server: it is a client, as all others are.

Each user who comes has a socket of their own, in a folder that only the server may open, which
stands for the browser's address: so that a guess through the console waits as one over the wire,
and sessions have the same limits, workers, log lines and notices.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import psycopg
from msgspec import Struct
from psycopg.conninfo import make_conninfo

from proxy.engine import Engine
from proxy.errors import Error, InsufficientPrivilegeError, OperationalError
from proxy.policy import Policy, Verifier
from proxy.privileges import Privileges
from proxy.remote import Remote, RemoteSession, translated
from proxy.server.connections import Connections
from proxy.server.registry import Registry

NAME = ".s.PGSQL.5432"  # of a socket, as libpq looks for it
EVERYWHERE = {"", "0.0.0.0", "::"}
OURS = {  # what a variable of the server's environment, such as PGHOSTADDR, must not decide
    "hostaddr": "",
    "passfile": os.devnull,
    "sslmode": "disable",
    "gssencmode": "disable",
    "channel_binding": "disable",
    "target_session_attrs": "any",
    "connect_timeout": "60",
    "client_encoding": "utf8",
}


class Credentials(Protocol):
    """Who comes, from where."""

    @property
    def user(self) -> str:
        """The name that they give."""

    @property
    def password(self) -> str:
        """The password that they give."""

    @property
    def address(self) -> str:
        """Where their browser is."""


class Served(Struct, frozen=True):
    """A dataset that is served."""

    policy: Policy
    state: Path | None

    @property
    def name(self) -> str:
        """The name of the dataset."""
        return self.policy.dataset


class Entry(Struct, frozen=True):
    """The socket of one user who comes, and the verifier that their password has met."""

    folder: Path
    server: asyncio.Server
    verifier: Verifier


class ConsoleDoor:
    """The console's ``Backend`` in a server."""

    passwords = True

    def __init__(
        self, registry: Registry, connections: Connections, listens: tuple[str, int]
    ) -> None:
        self._registry, self._connections = registry, connections
        self._host, self._port = listens  # where other clients come
        self._entries: dict[Credentials, Entry] = {}

    async def login(self, credentials: Credentials) -> None:
        """Let in a user whose password is right, and keep a socket for their sessions.

        Raises:
            Error: it is wrong, or too many were tried.
        """
        if not (credentials.user and credentials.password):  # libpq would look elsewhere for them
            raise InsufficientPrivilegeError("a name and a password are needed")
        folder, server = await self._socket(credentials.address)
        try:
            user = self._registry.current.users.get(credentials.user)
            names = sorted(self._engines(), key=lambda name: not (user and user.may_see(name)))
            if not names:
                raise OperationalError("no dataset is served at present")
            await _prove(folder, credentials, names[0])
            if user is None:  # came a moment ago: no session of theirs could be checked
                raise InsufficientPrivilegeError("the users have changed: try again")
        except BaseException:
            await _end(folder, server)
            raise
        self._entries[credentials] = Entry(folder, server, user.password)

    def valid(self, credentials: Credentials) -> bool:
        """Return whether the user is still there, with the same password."""
        user = self._registry.current.users.get(credentials.user)
        entry = self._entries.get(credentials)
        return user is not None and entry is not None and user.password == entry.verifier

    def datasets(self, user: str) -> Mapping[str, Served]:
        """Return the datasets that are served and open to a user."""
        listed = self._registry.current.users.get(user)
        return {
            name: Served(engine.policy, self._registry.state)
            for name, engine in self._engines().items()
            if listed is not None and listed.may_see(name)
        }

    def privileges(self, user: str, dataset: str) -> Privileges:
        """Return what a user may do, see and spend.

        Raises:
            InsufficientPrivilegeError: the dataset is not open to the user.
        """
        engine = self._engines().get(dataset)
        if engine is None or not user:
            raise InsufficientPrivilegeError(f"{dataset} is not open to you")
        return engine.privileges(user)

    def address(self, user: str, dataset: str, host: str) -> str:
        """Return the URL of a dataset, where the server listens; on all addresses, at that host."""
        host = host if self._host in EVERYWHERE else self._host
        host = f"[{host}]" if ":" in host else host
        return f"postgresql://{quote(user, '')}@{host}:{self._port}/{quote(dataset, '')}"

    async def connect(self, credentials: Credentials, dataset: str) -> RemoteSession:
        """Return a new session of a user.

        Raises:
            Error: they are no longer let in, or have too many.
        """
        entry = self._entries.get(credentials)
        if entry is None:
            raise InsufficientPrivilegeError("you are logged out")
        return await asyncio.to_thread(_session, entry.folder, credentials, dataset)

    async def leave(self, credentials: Credentials) -> None:
        """Close a user's socket."""
        entry = self._entries.pop(credentials, None)
        if entry is not None:
            await _end(entry.folder, entry.server)

    async def renew(self, dataset: str) -> None:
        """Have the server look at its files at once."""
        self._connections.reload()

    def _engines(self) -> Mapping[str, Engine]:
        return self._registry.current.engines

    async def _socket(self, address: str) -> tuple[Path, asyncio.Server]:
        """Return a new folder, and the socket in it on which a client comes from an address."""
        folder = Path(tempfile.mkdtemp(prefix="privacy-proxy-console-"))
        accept = partial(self._connections.new_client, address)
        try:
            loop = asyncio.get_running_loop()
            return folder, await loop.create_unix_server(accept, folder / NAME)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


async def _end(folder: Path, server: asyncio.Server) -> None:
    server.close()
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def _prove(folder: Path, credentials: Credentials, dataset: str) -> None:
    """Log in and out; a wrong password waits in no thread, of which there are few."""
    with _without_libpq(), translated():
        conninfo = _conninfo(folder, credentials, dataset)
        connection = await psycopg.AsyncConnection.connect(conninfo)
    await connection.close()


def _session(folder: Path, credentials: Credentials, dataset: str) -> RemoteSession:
    """Log in over a socket."""
    with _without_libpq():
        return Remote(_conninfo(folder, credentials, dataset)).session()


def _conninfo(folder: Path, credentials: Credentials, dataset: str) -> str:
    return make_conninfo(
        host=str(folder),
        port=NAME.rpartition(".")[2],
        user=credentials.user,
        password=credentials.password,
        dbname=dataset,
        application_name="console",
        **OURS,
    )


@contextmanager
def _without_libpq() -> Iterator[None]:
    """Take libpq's words about our socket from an error."""
    try:
        yield
    except Error as error:
        _, fatal, said = error.message.rpartition("FATAL: ")
        error.message = said.strip().splitlines()[0] if fatal else "the server cannot be reached"
        raise
