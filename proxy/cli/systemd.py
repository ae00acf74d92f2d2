"""A systemd unit for ``serve``, hardened, with the paths and flags of this installation.

What the server needs: its state and nothing else to write; /tmp, a private one, for the mirror;
child processes, and signals to them; no capability, unless its port is below 1024.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

import click
from click.core import ParameterSource

ACCOUNT = "privacy-proxy"
SECRETS = "/etc/privacy-proxy/environment"
LATER = ("check", "print_settings", "print_systemd")  # flags of other uses
FILES = ("policies", "state", "tls_cert", "tls_key")
HOMES = ("/home", "/root", "/run/user")
PRIVILEGED = 1024  # the first port that needs no capability

UNIT = """\
[Unit]
Description=SQL privacy proxy
Wants=network-online.target
After=network-online.target

[Service]
Type=notify
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
# Variables for what other users must not read, such as PRIVACY_PROXY_MIRROR; mode 0600.
EnvironmentFile=-{secrets}
# A library tries out the processor by code that it writes: MemoryDenyWriteExecute forbids that.
Environment=POLARS_SKIP_CPU_CHECK=1
WorkingDirectory=/
Restart=on-failure
RestartSec=5
# 2: a wrong flag, policy or state, which no restart mends
RestartPreventExitStatus=2
TimeoutStartSec=300
TimeoutStopSec=60
KillMode=mixed

{account}UMask=0077
{writable}ProtectSystem=strict
ProtectHome={home}
PrivateMounts=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectProc=invisible
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes

NoNewPrivileges=yes
CapabilityBoundingSet={capabilities}
AmbientCapabilities={capabilities}
LockPersonality=yes
MemoryDenyWriteExecute=yes
RemoveIPC=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@aio @keyring @memlock @privileged
SystemCallErrorNumber=EPERM

LimitNOFILE=65536
LimitCORE=0
TasksMax=4096
MemoryMax=80%

[Install]
WantedBy=multi-user.target
"""


def unit(context: click.Context) -> str:
    """Return the unit of a call of ``serve``."""
    values = context.params
    ports = [each[1] for each in (values["listen"], values["console"]) if each]
    states = _states([Path(each) for each in values["policies"]], values["state"])
    paths = [Path(sys.executable), *states, *_files(context)]
    return UNIT.format(
        command=" ".join(map(quoted, (sys.executable, "-m", "proxy", "serve", *_flags(context)))),
        secrets=SECRETS,
        account=_account(states),
        writable="".join(f"ReadWritePaths={quoted(str(each))}\n" for each in states),
        home="read-only" if any(map(_at_home, paths)) else "yes",
        capabilities="CAP_NET_BIND_SERVICE" if any(0 < port < PRIVILEGED for port in ports) else "",
    )


def quoted(word: str) -> str:
    """Return one word as systemd reads it: % and $ are doubled, what is special is escaped."""
    word = word.replace("%", "%%").replace("$", "$$")
    if re.fullmatch(r"[^\s\"'\\;]+", word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _flags(context: click.Context) -> list[str]:
    """Return what was given, as flags; a password of the mirror's is for a file of its own."""
    given: list[str] = []
    arguments: list[str] = []
    for parameter in context.command.params:
        name, value = str(parameter.name), context.params.get(str(parameter.name))
        source = context.get_parameter_source(name)
        if source == ParameterSource.DEFAULT or name in LATER or value is None:
            continue
        if name == "policies":
            arguments = [os.path.abspath(each) for each in value]
        elif name == "mirror" and _secret(str(value)):
            click.echo(
                f"warning: --mirror has a password: write {parameter.envvar}=… into {SECRETS}",
                err=True,
            )
        elif isinstance(parameter, click.Option) and parameter.is_flag:
            given += [parameter.opts[0]] if value else []
        else:
            text = f"{_host(value[0])}:{value[1]}" if isinstance(value, tuple) else str(value)
            given += [parameter.opts[0], os.path.abspath(text) if name in FILES else text]
    return [*arguments, *given]


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _secret(dsn: str) -> bool:
    from psycopg.conninfo import conninfo_to_dict

    return bool({"password", "sslpassword"} & conninfo_to_dict(dsn).keys())


def _files(context: click.Context) -> list[Path]:
    named = [context.params[name] for name in FILES[1:] if context.params[name]]
    return [Path(each).absolute() for each in (*context.params["policies"], *named)]


def _states(policies: Iterable[Path], state: Path | None) -> list[Path]:
    """Return the folders of the states, and what else the server must be able to write."""
    from proxy.policy import load
    from proxy.server.registry import policies as files
    from proxy.state import state_folder

    folders = {state_folder(load(each), state).parent.absolute() for each in files([*policies])}
    return sorted(folders)


def _account(states: Iterable[Path]) -> str:
    """Return whom the server runs as: whose the state is, if that is not root."""
    for each in states:
        if each.exists() and (owner := each.stat().st_uid):
            try:
                return f"User={pwd.getpwuid(owner).pw_name}\n"
            except KeyError:
                return f"User={owner}\n"
    names = " ".join(shlex.quote(str(each)) for each in states)
    return f"# useradd --system {ACCOUNT} && chown -R {ACCOUNT}: {names}\nUser={ACCOUNT}\n"


def _at_home(path: Path) -> bool:
    return any(path.is_relative_to(home) for home in HOMES)
