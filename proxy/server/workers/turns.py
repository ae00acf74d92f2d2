"""Turns: who may use a worker next, so that no user keeps the others waiting.

A user who holds k places may take another while more than k are free (a dynamic threshold, as
switches share a buffer: Choudhury and Hahne, 1998).  So one user alone gets half of the places,
and whoever comes next still finds some.  Those who wait are served in turn, user by user, the one
who holds least first.  Used from the event loop alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque


class Turns:
    """A number of places, shared out among users."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by user, next to serve first

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return sum(map(len, self._waiting.values()))

    def took(self, user: str) -> bool:
        """Take a place if there is one to have at once; return whether."""
        if user in self._waiting or not self._may_take(user):
            return False
        self._grant(user)
        return True

    async def take(self, user: str) -> None:
        """Wait for a place; whoever got one must ``release`` it."""
        if self.took(user):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(user)
            else:
                self._forget(user, turn)
            raise

    def release(self, user: str) -> None:
        """Give a place back."""
        self._free += 1
        self._held[user] -= 1
        if not self._held[user]:
            del self._held[user]
        while chosen := self._next():
            turn = self._waiting[chosen].popleft()
            queue = self._waiting.pop(chosen)
            if queue:
                self._waiting[chosen] = queue  # behind the others
            self._grant(chosen)
            turn.set_result(None)

    def _may_take(self, user: str) -> bool:
        return self._free > self._held[user]

    def _grant(self, user: str) -> None:
        self._free -= 1
        self._held[user] += 1

    def _next(self) -> str | None:
        """Return the user to serve, of those who wait and may take a place."""
        chosen = min(self._waiting, key=lambda user: self._held[user], default=None)
        return chosen if chosen is not None and self._may_take(chosen) else None

    def _forget(self, user: str, turn: asyncio.Future[None]) -> None:
        queue = self._waiting[user]
        queue.remove(turn)
        if not queue:
            del self._waiting[user]
