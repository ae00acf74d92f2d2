"""What one user may take of memory, over all their backends of the embedded PostgreSQL.

A thread looks ten times a second, and sets the limit of each backend: what it has, and its share of
what is left to its user.  So together they cannot pass the bound: the next allocation fails as
``out of memory`` (53200) in the statement that makes it, and the session goes on.  While little is
used, a backend may take ``HEADROOM`` whatever its share is, as before the thread has seen it.

Only a process of the same account may set the limits of another, so the thread becomes one of that
account where PostgreSQL runs under another than ours; Linux lets a thread do so alone.  Where
limits cannot be set, each backend has ``HEADROOM``, and no more.

The same thread looks at the size of the catalogs.
"""

from __future__ import annotations

import ctypes
import logging
import platform
import pwd
import resource
import sys
import threading
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psycopg

from proxy.server.mirror.catalog_size import CatalogSize

log = logging.getLogger(__name__)
BACKEND_MEMORY = 512 << 20  # bytes of private memory
HEADROOM = 64 << 20
USER_MEMORY = 1 << 30
INTERVAL = 0.1  # seconds
SET_GROUP_AND_USER = {"x86_64": (119, 117), "aarch64": (149, 147)}  # setresgid, setresuid
BACKENDS = (  # the proxy's own, as each of another user
    "SELECT pid, CASE WHEN usename = session_user THEN pid::text ELSE 'user ' || usename END "
    "FROM pg_stat_activity WHERE backend_type = 'client backend'"
)


def shares(used: Mapping[int, int]) -> dict[int, int]:
    """Return the limit of each of a user's backends, in bytes, from what each has by now."""
    total = sum(used.values())
    more = max(USER_MEMORY - total, 0) // max(len(used), 1)
    if total * 3 <= USER_MEMORY:
        more = max(more, HEADROOM)
    return {process: min(size + more, BACKEND_MEMORY) for process, size in used.items()}


class UserMemory:
    """The thread that keeps each user of a PostgreSQL within the bounds."""

    def __init__(self, conninfo: str, account: pwd.struct_passwd | None) -> None:
        self._conninfo = conninfo
        self._account = account
        self._limits: dict[int, int] = {}  # of backends, as they were set
        self._catalogs = CatalogSize(conninfo)
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
                self._catalogs.look(connection)
            except psycopg.Error:  # it starts again after a crash, or ends
                connection = None
            except Exception:
                log.exception("internal error")
        if connection is not None:
            connection.close()

    def _look(self, connection: psycopg.Connection) -> None:
        by_user: dict[str, list[int]] = defaultdict(list)
        for process, user in connection.execute(BACKENDS):
            by_user[user].append(process)
        every = {process for processes in by_user.values() for process in processes}
        self._limits = {p: limit for p, limit in self._limits.items() if p in every}
        for processes in by_user.values():
            used = {process: size for process in processes if (size := _memory(process))}
            for process, limit in shares(used).items():
                self._limit(process, limit)

    def _limit(self, process: int, limit: int) -> None:
        if self._limits.get(process) != limit:
            with suppress(OSError, AttributeError):  # it has ended, or this is no Linux
                resource.prlimit(process, resource.RLIMIT_DATA, (limit, BACKEND_MEMORY))
                self._limits[process] = limit


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
