"""What was found of queries, remembered within bounds on their number and on rows of estimators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Generic, TypeVar

Key = tuple[bytes, Fraction]
Found = TypeVar("Found")

MAX_QUERIES = 10_000  # whose estimators are remembered
MAX_ROWS = 2**21  # of these estimators together


@dataclass(eq=False)
class Remembered(Generic[Found]):
    """What was found, by what tells a query from others; ``rows``: those that a find holds."""

    rows: Callable[[Found], int]
    _found: dict[Key, Found] = field(default_factory=dict)
    _rows: int = 0

    def __contains__(self, key: Key) -> bool:
        return key in self._found

    def get(self, key: Key) -> Found | None:
        """Return what was found of a query, if it is remembered."""
        return self._found.get(key)

    def put(self, key: Key, found: Found) -> None:
        """Remember what was found of a query; where that is too much, forget all others."""
        self.update({key: found})

    def update(self, found: Mapping[Key, Found]) -> None:
        """Remember what was found of queries; where that is too much, forget all others."""
        for key in found.keys() & self._found.keys():
            self._rows -= self.rows(self._found.pop(key))
        rows = sum(map(self.rows, found.values()))
        if len(self._found) + len(found) > MAX_QUERIES or self._rows + rows > MAX_ROWS:
            self.clear()
        self._found |= found
        self._rows += rows

    def clear(self) -> None:
        """Forget all."""
        self._found, self._rows = {}, 0

    def revise(self, left: Callable[[Found], Found]) -> None:
        """Replace each find by what is left of it, and forget those of which nothing is."""
        kept = {key: left(found) for key, found in self._found.items()}
        self.clear()
        self.update({key: found for key, found in kept.items() if found})
