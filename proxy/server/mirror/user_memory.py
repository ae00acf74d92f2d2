"""What one user may take of memory and disk, over all their backends of the embedded PostgreSQL.

A thread looks ten times a second.  While a user has less than a third of the bound, each backend
has its own bound only; past it, what is left is shared out among the user's backends by setting
their limits, so that together they cannot pass it: the next allocation fails as ``out of memory``
(53200) in the statement that makes it, and the session goes on.  Past the bound of temporary files,
the statement of the backend that has most is canceled; a backend that keeps them is ended.

Only a process of the same account may set the limits of another, so the thread becomes that account
where PostgreSQL runs under one; Linux lets a thread do so alone.  Elsewhere than on Linux, each
backend has its own bound, and no more.
"""

from __future__ import annotations

import ctypes
import os
import platform
import pwd
import resource
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psycopg

BACKEND_MEMORY = 512 << 20  # bytes of private memory
USER_MEMORY = 1 << 30
USER_FILES = 256 << 20  # bytes of temporary files; each backend has ``temp_file_limit``
INTERVAL = 0.1  # seconds
SET_GROUP_AND_USER = {"x86_64": (119, 117), "aarch64": (149, 147)}  # setresgid, setresuid
GRACE = 1.0  # seconds from canceling a statement to ending its backend
BACKENDS = (
    "SELECT pid, usename FROM pg_stat_activity "
    "WHERE backend_type = 'client backend' AND usename <> session_user"
)


def shares(used: Mapping[int, int]) -> dict[int, int]:
    """Return the limit of each of a user's backends, in bytes, from what each has by now."""
    total = sum(used.values())
    if total * 3 <= USER_MEMORY:
        return dict.fromkeys(used, BACKEND_MEMORY)
    more = max(USER_MEMORY - total, 0) // len(used)
    return {process: min(size + more, BACKEND_MEMORY) for process, size in used.items()}


class UserMemory:
    """The thread that keeps each user of a PostgreSQL within the bounds."""

    def __init__(self, conninfo: str, data: Path, account: pwd.struct_passwd | None) -> None:
        self._conninfo = conninfo
        self._account = account
        self._files = data / "base" / "pgsql_tmp"
        self._limits: dict[int, int] = {}  # of backends, as they were set
        self._canceled: dict[int, float] = {}  # when a backend's statement was
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="user memory", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        if self._account is not None:
            _become(self._account)
        connection: psycopg.Connection | None = None
        while not self._stopped.wait(INTERVAL):
            try:
                if connection is None or connection.closed:
                    connection = psycopg.connect(self._conninfo, autocommit=True)
                self._look(connection)
            except psycopg.Error:  # it starts again after a crash, or ends
                connection = None
        if connection is not None:
            connection.close()

    def _look(self, connection: psycopg.Connection) -> None:
        by_user: dict[str, list[int]] = defaultdict(list)
        for process, user in connection.execute(BACKENDS):
            by_user[user].append(process)
        every = {process for processes in by_user.values() for process in processes}
        self._limits = {p: limit for p, limit in self._limits.items() if p in every}
        self._canceled = {p: since for p, since in self._canceled.items() if p in every}
        files = self._temporary()
        for processes in by_user.values():
            used = {process: size for process in processes if (size := _memory(process))}
            for process, limit in shares(used).items():
                self._limit(process, limit)
            sizes = {process: files.get(process, 0) for process in processes}
            if sum(sizes.values()) > USER_FILES:
                self._end(connection, max(sizes, key=sizes.__getitem__))
            else:
                self._canceled = {p: t for p, t in self._canceled.items() if p not in sizes}

    def _limit(self, process: int, limit: int) -> None:
        if self._limits.get(process, BACKEND_MEMORY) != limit:
            with suppress(OSError, AttributeError):  # it has ended, or this is no Linux
                resource.prlimit(process, resource.RLIMIT_DATA, (limit, BACKEND_MEMORY))
                self._limits[process] = limit

    def _temporary(self) -> dict[int, int]:
        """Return the bytes of temporary files of each backend that has some."""
        sizes: dict[int, int] = defaultdict(int)
        with suppress(OSError), os.scandir(self._files) as entries:
            for entry in entries:  # pgsql_tmp4711.0
                process = entry.name.removeprefix("pgsql_tmp").partition(".")[0]
                with suppress(OSError, ValueError):
                    sizes[int(process)] += entry.stat().st_size
        return sizes

    def _end(self, connection: psycopg.Connection, process: int) -> None:
        now = time.monotonic()
        if now - self._canceled.setdefault(process, now) > GRACE:
            connection.execute("SELECT pg_terminate_backend(%s)", [process])
        else:
            connection.execute("SELECT pg_cancel_backend(%s)", [process])


def _become(account: pwd.struct_passwd) -> None:
    """Make this thread one of an account; the C library's functions would take all threads."""
    if platform.machine() in SET_GROUP_AND_USER and sys.platform == "linux":
        system, (group, user) = ctypes.CDLL(None).syscall, SET_GROUP_AND_USER[platform.machine()]
        system(group, *[account.pw_gid] * 3)
        system(user, *[account.pw_uid] * 3)


def _memory(process: int) -> int:
    """Return the bytes of private memory of a process; 0 if that cannot be read."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[5])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * resource.getpagesize()
