"""Where a mirror listens: libpq's connection string, and plain connections to the same place.

Libpq itself reads a string that an operator gives, with its services, password files and several
hosts: what counts is the connection that it makes.  Sessions connect without libpq.  Where libpq's
connection was encrypted, theirs are too, with certificates checked as ``sslmode`` says.
"""

from __future__ import annotations

import asyncio
import socket as sockets
import ssl
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from proxy.errors import OperationalError
from proxy.server.wire.frames import SSL, Frames
from proxy.server.wire.transport import Transport

SECONDS = 10  # for a mirror to answer at the start, where the string says nothing
PLACE = {"host", "port", "user", "password", "dbname", "service", "passfile"}
ROOTS = "~/.postgresql/root.crt"  # where libpq looks for them
DEFAULTS = {"host": "localhost", "user": "postgres", "dbname": "postgres"}
HINT = "--mirror names a PostgreSQL that runs, and a superuser of it"


@dataclass(frozen=True)
class Address:
    """Where a mirror listens, and who may make things there."""

    host: str  # of a socket: the folder
    port: int
    user: str
    password: str = field(repr=False)
    database: str = "postgres"
    more: Mapping[str, str] = field(default_factory=dict, repr=False)  # libpq's parameters
    tls: ssl.SSLContext | None = field(default=None, compare=False)

    @classmethod
    def of(cls, dsn: str) -> Address:
        """Return what a connection string of an operator's leads to.

        Raises:
            OperationalError: nowhere, or it is no superuser's.
        """
        said = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value}
        asked = {"connect_timeout": str(SECONDS), **DEFAULTS, **said}
        if "service" in said:  # which says them
            asked = {"connect_timeout": str(SECONDS), **said}
        elif "hostaddr" in said and "host" not in said:
            del asked["host"]
        try:
            with psycopg.connect(**asked) as connection:  # type: ignore[arg-type]
                info, raw = connection.info, connection.pgconn
                encrypted = raw.ssl_in_use
                superuser = info.parameter_status("is_superuser") == "on"
                more = {name: asked[name] for name in asked.keys() - PLACE}
                if "hostaddr" in more:
                    more["hostaddr"] = info.hostaddr
                place = (info.host, info.port, info.user, info.password, info.dbname)
            if not superuser:
                raise OperationalError("the user of --mirror is no superuser there", hint=HINT)
            return cls(*place, more, context(more) if encrypted else None)
        except (psycopg.OperationalError, psycopg.ProgrammingError, OSError) as error:
            why = str(error).strip().splitlines() or [""]
            raise OperationalError(
                "the mirror takes no connections", detail=why[0], hint=HINT
            ) from None

    @property
    def socket(self) -> str | None:
        """The path of the socket; None where the mirror listens on TCP."""
        return f"{self.host}/.s.PGSQL.{self.port}" if self.host.startswith("/") else None

    def conninfo(self, database: str | None = None) -> str:
        """Return libpq's connection string."""
        return make_conninfo(
            **self.more,
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            dbname=database or self.database,
        )

    async def connect(self) -> Transport:
        """Connect without libpq.

        Raises:
            OSError: nobody is there, or not who should be.
        """
        loop = asyncio.get_running_loop()

        def new_transport() -> Transport:
            return Transport(Frames(1 << 20))

        if self.socket is not None:
            _, transport = await loop.create_unix_connection(new_transport, self.socket)
        elif self.tls is None:
            _, transport = await loop.create_connection(new_transport, self._at, self.port)
        else:
            _, transport = await loop.create_connection(
                new_transport, sock=await self._asked(), ssl=self.tls, server_hostname=self.host
            )
        return transport

    async def answers(self, seconds: float) -> bool:
        """Whether anybody is there who speaks the protocol."""
        try:
            async with asyncio.timeout(seconds):
                if self.socket is None:
                    reader, writer = await asyncio.open_connection(self._at, self.port)
                else:
                    reader, writer = await asyncio.open_unix_connection(self.socket)
                try:
                    writer.write(struct.pack("!ii", 8, SSL))  # it says S or N
                    return bool(await reader.read(1))
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return False

    @property
    def _at(self) -> str:
        return self.more.get("hostaddr", self.host)

    async def _asked(self) -> sockets.socket:
        """Return a connection on which TLS may begin."""
        loop = asyncio.get_running_loop()
        (family, kind, protocol, _, at), *_ = await loop.getaddrinfo(
            self._at, self.port, type=sockets.SOCK_STREAM
        )
        connection = sockets.socket(family, kind, protocol)
        try:
            connection.setblocking(False)
            await loop.sock_connect(connection, at)
            await loop.sock_sendall(connection, struct.pack("!ii", 8, SSL))
            if await loop.sock_recv(connection, 1) != b"S":
                raise ConnectionRefusedError("the mirror offers TLS no more")
        except BaseException:
            connection.close()
            raise
        return connection


def context(more: Mapping[str, str]) -> ssl.SSLContext:
    """Return what checks the mirror's certificate as libpq does."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    mode, roots = more.get("sslmode", "prefer"), more.get("sslrootcert")
    made.check_hostname = mode == "verify-full" or roots == "system"
    if mode.startswith("verify") or (roots and mode == "require"):
        if roots == "system":
            made.load_default_certs()
        else:
            made.load_verify_locations(roots or Path(ROOTS).expanduser())
    else:
        made.verify_mode = ssl.CERT_NONE
    if certificate := more.get("sslcert"):
        with suppress(FileNotFoundError):  # libpq goes on without
            made.load_cert_chain(certificate, more.get("sslkey"), more.get("sslpassword", ""))
    return made
