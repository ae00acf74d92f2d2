"""The command ``serve``: the PostgreSQL door.

Everything of the server is imported where it is used, so that ``--help`` comes at once.
"""

from __future__ import annotations

import json
import math
import re
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from proxy.cli import systemd
from proxy.cli.environment import option, print_settings, variable, warn_of_unknown
from proxy.errors import OperationalError

if TYPE_CHECKING:
    from proxy.console.service import Console
    from proxy.server.wire.certificate import Certificate

SSL_REQUEST = struct.pack("!ii", 8, 80877103)
PARAMETERS = b"user\0-\0privacy.check\0on\0\0"
STARTUP = struct.pack("!ii", 8 + len(PARAMETERS), 3 << 16) + PARAMETERS
PATIENCE = 10.0  # seconds
PORT_MAX = 65535
LOOPBACK = {"127.0.0.1", "localhost", "::1"}
MANY = click.IntRange(1, 100_000)  # connections; PostgreSQL takes some more


def address(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[str, int] | None:
    """Read HOST:PORT; IPv6 is in brackets."""
    if value is None:
        return None
    host, _, port = value.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > PORT_MAX:
        raise click.BadParameter(f"{value!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def seconds(context: click.Context, parameter: click.Parameter, value: float) -> float:
    """Refuse nan, which is outside no range of click's."""
    if math.isnan(value):
        raise click.BadParameter("nan is no number of seconds")
    return value


def dsn(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Refuse what is no connection string, without a word of it: it may hold a password."""
    if value is not None:
        import psycopg.conninfo

        try:
            int(psycopg.conninfo.conninfo_to_dict(value).get("port") or 0)
        except (psycopg.Error, ValueError):
            raise click.BadParameter("a connection string is host=… port=… user=…") from None
    return value


@click.command()
@click.argument("policies", nargs=-1, required=True, envvar=variable("policies"), type=click.Path())
@option(
    "--listen",
    callback=address,
    metavar="HOST:PORT",
    default="127.0.0.1:5439",
    show_default=True,
    help="Where clients connect.",
)
@option(
    "--state",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The folder of ledgers and cubes.",
)
@option(
    "--mirror",
    callback=dsn,
    metavar="DSN",
    help="A PostgreSQL of its own for the proxy, as superuser.  [default: an embedded one]",
)
@option("--tls-cert", metavar="FILE", help="The server's certificate: TLS is required then.")
@option("--tls-key", metavar="FILE", help="The key of the certificate.")
@option("--allow-plain", is_flag=True, help="Let clients connect without TLS all the same.")
@option(
    "--metrics-port",
    type=click.IntRange(0, PORT_MAX),
    metavar="PORT",
    help="On 127.0.0.1: Prometheus' /metrics, /health (it lives), /ready (all can be asked).",
)
@option(
    "--console",
    callback=address,
    metavar="HOST:PORT",
    help="Where browsers find the web console.  [default: nowhere]",
)
@option(
    "--connections",
    type=MANY,
    default=200,
    metavar="N",
    show_default=True,
    help="Connections in all.",
)
@option(
    "--user-connections",
    type=MANY,
    default=20,
    metavar="N",
    show_default=True,
    help="Connections of one user.",
)
@option(
    "--timeout",
    type=click.FloatRange(0.001, 86_400),
    callback=seconds,
    default=60.0,
    metavar="SECONDS",
    show_default=True,
    help="The longest a statement may take.",
)
@option(
    "--rows",
    type=click.IntRange(1),
    default=1_000_000,
    metavar="N",
    show_default=True,
    help="The most that one result may have.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Only ask the server at --listen whether it is well, and see that POLICIES are.",
)
@click.option(
    "--print-settings",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_settings,
    help="Print flags, variables and defaults as a table.",
)
@click.option(
    "--print-systemd",
    is_flag=True,
    help="Print a systemd unit that serves POLICIES with these flags.",
)
@click.pass_context
def serve(
    context: click.Context,
    policies: tuple[str, ...],
    listen: tuple[str, int],
    state: Path | None,
    mirror: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    allow_plain: bool,
    metrics_port: int | None,
    console: tuple[str, int] | None,
    connections: int,
    user_connections: int,
    timeout: float,
    rows: int,
    check: bool,
    print_systemd: bool,
) -> None:
    """Serve the datasets of POLICIES (files, or folders of them) to SQL clients.

    Clients connect as to any PostgreSQL; the name of a dataset is the name of a database.  Who may
    connect is in users.yaml beside the policies.

    POLICIES may come from PRIVACY_PROXY_POLICIES too, with colons between them.
    """
    host, port = listen
    warn_of_unknown(context.command)
    if print_systemd:
        click.echo(systemd.unit(context), nl=False)
        return
    if check:
        _check_files([file for file in policies if Path(file).exists()], state)
        _check(host, port, metrics_port)
        click.echo("well")
        return
    with needing("serve", "server"):
        from proxy.server import logs
        from proxy.server.limits import Limits
        from proxy.server.serve import Options, serving
    options = Options(
        host=host,
        port=port,
        state=state,
        mirror=mirror,
        certificate=_certificate(tls_cert, tls_key),
        allow_plain=allow_plain,
        metrics_port=metrics_port,
        console=_console(console, tls_cert, tls_key),
        connections=connections,
        limits=Limits(connections=user_connections, seconds=timeout, rows=rows),
    )
    listening = {host} if console is None else {host, console[0]}
    if options.certificate is None and not listening <= LOOPBACK:
        click.echo("warning: without --tls-cert, answers travel in the clear", err=True)
    logs.start()
    serving(policies, options)


def _certificate(certificate: str | None, key: str | None) -> Certificate | None:
    """Return what TLS needs; None where it is not asked for."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise click.UsageError(
            "TLS needs both --tls-cert and --tls-key; a file that holds both is given to both"
        )
    from proxy.server.wire.certificate import Certificate

    return Certificate.load(certificate, key)


def _console(
    where: tuple[str, int] | None, certificate: str | None, key: str | None
) -> Console | None:
    """Return the web console; None where it is not asked for."""
    if where is None:
        return None
    with needing("the console", "console"):
        from proxy.console.service import Console
    files = None if certificate is None or key is None else (Path(certificate), Path(key))
    return Console(*where, files)


@contextmanager
def needing(what: str, extra: str) -> Iterator[None]:
    """Say which package is not installed that something needs, and which extra has it."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise OperationalError(
            f"{what} needs the package {missing.name}",
            hint=f"pip install 'sql-privacy-proxy[{extra}]'",
        ) from None


def _check_files(policies: Sequence[str], state: Path | None) -> None:
    """Raise if the next start would not serve all the policies that there are here."""
    if not policies:
        return  # the server is on another machine, perhaps
    from proxy.server.health import problems

    if wrong := problems(policies, state):
        for each in wrong[:-1]:
            click.echo(f"error: {each}", err=True)
        raise OperationalError(wrong[-1], hint="a server that runs serves what was right before")


def _check(host: str, port: int, metrics_port: int | None) -> None:
    """Raise unless a server asks for a password there, and says that it is well.

    Who asks for a password, told that this is a check, has mirrors that answer.
    """
    where = f"{host}:{port}"
    try:
        with socket.create_connection((host, port), timeout=PATIENCE) as connection:
            connection.sendall(SSL_REQUEST)
            with _encrypted(connection, connection.recv(1)) as channel:
                channel.sendall(STARTUP)
                answer = channel.recv(4096)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise OperationalError(f"nothing answers on {where}: {why}") from None
    datasets = {} if metrics_port is None else _ready(metrics_port)
    wrong = [
        f"{part} of {name}: {state}"
        for name, parts in datasets.items()
        for part, state in parts.items()
        if state != "ok"
    ]
    if wrong:
        raise OperationalError(f"the server on {where} is not well: {'; '.join(wrong)}")
    if answer[:1] != b"R":
        found = re.search(rb"\0M([^\0]+)\0", answer) if answer[:1] == b"E" else None
        why = found[1].decode("utf-8", "replace") if found else "it speaks another protocol"
        raise OperationalError(f"what listens on {where} takes no logins: {why}")


def _ready(port: int) -> dict[str, dict[str, str]]:
    """Return what a server says of its datasets' parts."""
    import urllib.error
    import urllib.request

    try:
        try:
            reply = urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=PATIENCE)
        except urllib.error.HTTPError as error:
            reply = error  # 503 has the same body
        with reply:
            datasets: dict[str, dict[str, str]] = json.load(reply)
            return datasets
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or error
        raise OperationalError(f"nothing says on port {port} what is ready: {why}") from None


def _encrypted(connection: socket.socket, offer: bytes) -> socket.socket:
    """Return the connection under TLS if the server offers it; a check sends no secret."""
    if offer == b"N":
        return connection
    if offer != b"S":
        raise ValueError("it speaks another protocol")
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(connection)
