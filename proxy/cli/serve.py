"""The command ``serve``: the PostgreSQL door.

Everything of the server is imported where it is used, so that ``--help`` comes at once.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import click

from proxy.errors import OperationalError, PolicyError

if TYPE_CHECKING:
    import ssl

SSL_REQUEST = struct.pack("!ii", 8, 80877103)


@click.command()
@click.argument("policies", nargs=-1, required=True)
@click.option(
    "--listen",
    default="127.0.0.1:5439",
    metavar="HOST:PORT",
    show_default=True,
    help="Where clients connect.",
)
@click.option("--state", metavar="DIR", help="The folder of ledgers and cubes.")
@click.option(
    "--mirror",
    metavar="DSN",
    help="A PostgreSQL of its own for the proxy, as superuser.  [default: an embedded one]",
)
@click.option("--tls-cert", metavar="FILE", help="The server's certificate: TLS is required then.")
@click.option("--tls-key", metavar="FILE", help="The key of the certificate.")
@click.option("--allow-plain", is_flag=True, help="Let clients connect without TLS all the same.")
@click.option("--metrics-port", type=int, help="Prometheus' /metrics, and /health, on 127.0.0.1.")
@click.option("--connections", default=200, show_default=True, help="In all.")
@click.option("--user-connections", default=20, show_default=True, help="Of one user.")
@click.option("--timeout", default=60.0, show_default=True, help="Seconds of one statement.")
@click.option("--rows", default=1_000_000, show_default=True, help="Rows of one result.")
@click.option("--check", is_flag=True, help="Only ask whether the server listens, and is well.")
def serve(
    policies: tuple[str, ...],
    listen: str,
    state: str | None,
    mirror: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    allow_plain: bool,
    metrics_port: int | None,
    connections: int,
    user_connections: int,
    timeout: float,
    rows: int,
    check: bool,
) -> None:
    """Serve the datasets of POLICIES (files, or folders of them) to SQL clients.

    Clients connect as to any PostgreSQL; the name of a dataset is the name of a database.  Who may
    connect is in users.yaml beside the policies.
    """
    host, port = _address(listen)
    if check:
        _check(host, port)
        click.echo("well")
        return
    from proxy.server import logs
    from proxy.server.mirror import Limits
    from proxy.server.serve import Options, Server

    options = Options(
        host=host,
        port=port,
        state=Path(state) if state else None,
        mirror=mirror,
        tls=_tls(tls_cert, tls_key),
        allow_plain=allow_plain,
        metrics_port=metrics_port,
        connections=connections,
        limits=Limits(connections=user_connections, seconds=timeout, rows=rows),
    )
    if options.tls is None and host not in ("127.0.0.1", "localhost", "::1"):
        click.echo("warning: without --tls-cert, answers travel in the clear", err=True)
    logs.start()
    asyncio.run(Server(policies, options).run())


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise click.BadParameter(f"{listen!r} is not HOST:PORT", param_hint="--listen")
    return host.strip("[]"), int(port)


def _tls(certificate: str | None, key: str | None) -> ssl.SSLContext | None:
    """Return what TLS needs; None without a certificate."""
    if certificate is None:
        return None
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["postgresql"])
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise PolicyError(
            f"the certificate or its key cannot be read: {error.strerror or error}",
            file=certificate,
        ) from None
    return context


def _check(host: str, port: int) -> None:
    """Raise unless a server answers in the protocol."""
    try:
        with socket.create_connection((host, port), timeout=5) as connection:
            connection.sendall(SSL_REQUEST)
            answer = connection.recv(1)
    except OSError as error:
        raise OperationalError(
            f"nothing listens on {host}:{port}: {error.strerror or error}"
        ) from None
    if answer not in (b"S", b"N"):
        raise OperationalError(f"what listens on {host}:{port} is no server of ours")
