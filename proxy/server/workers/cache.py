"""A cache that keeps what was dear to make, for its size, and was used of late: GreedyDual-Size.

Source: Cao and Irani, "Cost-aware WWW proxy caching algorithms", 1997.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Any


class Cache:
    """Values under keys, within a number of items and of bytes.  Any thread may use it."""

    def __init__(self, items: int, size: int) -> None:
        self._items, self._size = items, size
        self._guard = threading.Lock()
        self._entries: dict[Hashable, list[Any]] = {}  # value, bytes, worth, rank
        self._bytes = 0
        self._floor = 0.0  # the rank of what was dropped last: what is unused sinks below others

    def get(self, key: Hashable) -> Any:
        """Return the value of a key, or None."""
        with self._guard:
            entry = self._entries.get(key)
            if entry is None:
                return None
            entry[3] = self._floor + entry[2]
            return entry[0]

    def put(self, key: Hashable, value: Any, size: int, cost: float) -> None:
        """Keep a value of so many bytes, which took so many seconds to make."""
        if size > self._size:
            return
        with self._guard:
            self._drop(key)
            worth = cost / max(size, 1)
            self._entries[key] = [value, size, worth, self._floor + worth]
            self._bytes += size
            while len(self._entries) > self._items or self._bytes > self._size:
                least = min(self._entries, key=lambda key: self._entries[key][3])
                self._floor = self._entries[least][3]
                self._drop(least)

    def _drop(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry[1]
