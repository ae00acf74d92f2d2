"""What was found of queries, remembered within bounds on their number and on rows of estimators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from msgspec.structs import replace

from proxy.inference.estimator import Estimator, Rates

Key = tuple[bytes, int, int]  # of a query: its direction, and its grid with a sign
Found = TypeVar("Found")

MAX_QUERIES = 10_000  # whose estimators are remembered
MAX_ROWS = 2**21  # of these estimators together
GOOD_ENOUGH = 4  # estimators of a query that were good enough, which are remembered


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


def rows_of(found: Sequence[Estimator]) -> int:
    """Return how many rows estimators have together."""
    return sum(len(each.rows) for each in found)


@dataclass(eq=False)
class GoodEnough:
    """Estimators that were good enough: the best of a longer history has less variance, and yet
    may put less mass on one interval.

    The last few of a query that rest on answers alone stay beside those that rest on rows that are
    planned: these may be taken back.  Each is given with the rates that its rows have now, with
    which it is unbiased as before.
    """

    rates: Rates  # of the history's rows
    _found: Remembered[list[Estimator]] = field(default_factory=lambda: Remembered(rows_of))
    _measured: int = 0  # the row after the last that has an answer

    def get(self, key: Key) -> Sequence[Estimator]:
        """Return the estimators of a query that were good enough."""
        return [self._now(each) for each in self._found.get(key) or ()]

    def _now(self, estimator: Estimator) -> Estimator:
        """Return an estimator with the rates that its rows have now."""
        now = self.rates.of(estimator.rows)
        if np.array_equal(now, estimator.rates):
            return estimator
        return replace(estimator, rates=now)

    def add(self, key: Key, estimator: Estimator) -> None:
        """Remember one more."""
        firm: list[Estimator] = []
        planned: list[Estimator] = []
        for each in (*(each for each in self.get(key) if not each.same(estimator)), estimator):
            (firm if each.before(self._measured) else planned).append(each)
        self._found.put(key, [*firm[-GOOD_ENOUGH:], *planned])

    def measured(self, row: int) -> None:
        """Follow the history: all rows before this one have answers."""
        self._measured = max(self._measured, row)

    def truncate(self, row: int) -> None:
        """Follow the history: its rows from this one on are forgotten."""
        self._measured = min(self._measured, row)
        self._found.revise(lambda found: [each for each in found if each.before(row)])
