"""Visits: browsers that are logged in, each with sessions of its user that are opened as needed.

Invariants: a token is as good as a password, is made at login and never before, and is kept only
as its hash; a visit ends when it is left, after ``IDLE`` seconds without a request and after
``LONGEST`` in any case, and its sessions end with it.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from proxy.console.backend import Backend, Credentials, Session
from proxy.engine import Result
from proxy.errors import Error, OperationalError

T = TypeVar("T")

IDLE, LONGEST = 30 * 60.0, 12 * 3600.0  # seconds
UNUSED = 5 * 60.0  # seconds after which a session is closed, and opened again when needed
THREADS_OF_USER = 8  # at work at a time, over all of a user's visits
MOST, MOST_OF_USER = 1000, 10  # visits; past that the oldest ends
KEPT_OF_USER = 40_000_000  # bytes that a user's visits keep together; past that the oldest goes
WORK, LOOK = "work", "look"  # what a session is for: statements that are run, and previews


@dataclass(eq=False)
class Lane:
    """One session of a visit, and whose turn it is."""

    session: Session | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    used: float = 0.0


class Shelf:
    """What the visits of a user keep, oldest first, each under a name and an owner."""

    def __init__(self) -> None:
        self._kept: dict[tuple[object, str], tuple[Any, int]] = {}

    def put(self, owner: object, name: str, value: object, size: int, most: int) -> None:
        """Keep a value of so many bytes under a new name, and ``most`` values of its owner."""
        self._kept[owner, name] = value, size
        own = [key for key in self._kept if key[0] is owner]
        for key in own[:-most]:
            del self._kept[key]
        while sum(size for _, size in self._kept.values()) > KEPT_OF_USER:
            del self._kept[next(iter(self._kept))]

    def get(self, owner: object, name: str) -> Any:
        """Return what an owner keeps under a name; None where that is nothing."""
        return self._kept.get((owner, name), (None, 0))[0]

    def leave(self, owner: object) -> None:
        """Let go of all that an owner keeps."""
        self._kept = {key: kept for key, kept in self._kept.items() if key[0] is not owner}


@dataclass(eq=False)
class Visit:
    """A browser that is logged in."""

    credentials: Credentials
    backend: Backend
    threads: Executor
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(THREADS_OF_USER))
    shelf: Shelf = field(default_factory=Shelf)
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    began: float = field(default_factory=time.monotonic)
    seen: float = field(default_factory=time.monotonic)
    lanes: dict[tuple[str, str], Lane] = field(default_factory=dict)
    memory: dict[str, object] = field(default_factory=dict)  # of pages, gone with the visit
    ended: bool = False

    @property
    def user(self) -> str:
        """The name of the user."""
        return self.credentials.user

    async def execute(self, dataset: str, text: str, purpose: str = WORK) -> Result:
        """Run one statement in the session of a dataset; one at a time for each purpose.

        Raises:
            Error: the statement fails, or no session can be had.
        """
        return await self.use(dataset, lambda session: session.execute(text), purpose)

    async def use(self, dataset: str, work: Callable[[Session], T], purpose: str = WORK) -> T:
        """Return what is made of a session, in a thread.

        Raises:
            Error: it fails, or no session can be had.
        """
        lane = self.lanes.setdefault((dataset, purpose), Lane())
        async with lane.lock:
            if self.ended:
                raise OperationalError("you are logged out")
            if lane.session is None:
                lane.session = await self.backend.connect(self.credentials, dataset)
            try:
                return await self.thread(work, lane.session)
            except Error as error:
                if type(error) is OperationalError:  # the connection may be lost: take a new one
                    await self._close(lane)
                raise
            finally:
                lane.used = time.monotonic()

    async def thread(self, work: Callable[..., T], *arguments: object) -> T:
        """Return what a function returns that blocks."""
        async with self.turns:
            return await asyncio.get_running_loop().run_in_executor(self.threads, work, *arguments)

    async def cancel(self, dataset: str, purpose: str = WORK) -> None:
        """Stop the statement that runs, if one does."""
        lane = self.lanes.get((dataset, purpose))
        if lane is not None and lane.session is not None and lane.lock.locked():
            await asyncio.to_thread(lane.session.cancel)

    async def rest(self, now: float) -> None:
        """Close what has not been used for long."""
        for key, lane in list(self.lanes.items()):
            if not lane.lock.locked() and now - lane.used > UNUSED:
                async with lane.lock:
                    await self._close(lane)
                self.lanes.pop(key, None)

    async def end(self) -> None:
        """Stop what runs, and close the sessions."""
        self.ended = True
        for owner in self.memory.values():
            self.shelf.leave(owner)
        for dataset, purpose in list(self.lanes):
            await self.cancel(dataset, purpose)
        for lane in list(self.lanes.values()):
            async with lane.lock:
                await self._close(lane)
        self.lanes.clear()
        await self.backend.leave(self.credentials)

    async def _close(self, lane: Lane) -> None:
        session, lane.session = lane.session, None
        if session is not None:
            with suppress(Error):
                await self.thread(session.close)


class Visits:
    """The visits of a console."""

    def __init__(self, backend: Backend, threads: Executor) -> None:
        self._backend, self._threads = backend, threads
        self._visits: dict[bytes, Visit] = {}  # by the hash of the token, oldest first

    async def enter(self, credentials: Credentials) -> tuple[str, Visit]:
        """Log a user in; return a token, and the visit.

        Raises:
            Error: the user is not let in.
        """
        await self._backend.login(credentials)
        token, visit = secrets.token_urlsafe(32), Visit(credentials, self._backend, self._threads)
        for other in self._visits.values():
            if other.user == visit.user:
                visit.turns, visit.shelf = other.turns, other.shelf
        self._visits[_hash(token)] = visit
        mine = [key for key, each in self._visits.items() if each.user == visit.user]
        surplus = mine[:-MOST_OF_USER] + list(self._visits)[:-MOST]
        for key in dict.fromkeys(surplus):
            await self._end(key)
        return token, visit

    def get(self, token: str | None) -> Visit | None:
        """Return the visit of a token, if there is one, and count it as seen."""
        visit = self._visits.get(_hash(token)) if token else None
        if visit is None or self._over(visit, time.monotonic()):
            return None
        visit.seen = time.monotonic()
        return visit

    async def leave(self, token: str | None) -> None:
        """End the visit of a token."""
        if token:
            await self._end(_hash(token))

    async def sweep(self) -> None:
        """End what is over, and close what has not been used for long."""
        now = time.monotonic()
        for key, visit in list(self._visits.items()):
            if self._over(visit, now):
                await self._end(key)
            else:
                await visit.rest(now)

    async def close(self) -> None:
        """End all of them."""
        for key in list(self._visits):
            await self._end(key)

    def _over(self, visit: Visit, now: float) -> bool:
        old = now - visit.seen > IDLE or now - visit.began > LONGEST
        return old or visit.ended or not self._backend.valid(visit.credentials)

    async def _end(self, key: bytes) -> None:
        visit = self._visits.pop(key, None)
        if visit is not None:
            await visit.end()


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
