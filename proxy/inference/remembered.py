"""Estimators that were found of queries, remembered within bounds on their number and rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from proxy.inference.estimator import Estimator

Key = tuple[bytes, Fraction]

MAX_QUERIES = 10_000  # whose estimators are remembered
MAX_ROWS = 2**21  # of these estimators together


@dataclass(eq=False)
class Remembered:
    """The estimators of queries, by what tells a query from others."""

    _found: dict[Key, Sequence[Estimator]] = field(default_factory=dict)
    _rows: int = 0

    def __contains__(self, key: Key) -> bool:
        return key in self._found

    def get(self, key: Key) -> Sequence[Estimator]:
        """Return the estimators of a query, if they are remembered."""
        return self._found.get(key, ())

    def put(self, key: Key, estimators: Sequence[Estimator]) -> None:
        """Remember the estimators of a query; where there are too many, forget all others."""
        if len(self._found) >= MAX_QUERIES or self._rows > MAX_ROWS:
            self.clear()
        self._found[key] = estimators
        self._rows += sum(len(each.rows) for each in estimators)

    def clear(self) -> None:
        """Forget all."""
        self._found, self._rows = {}, 0

    def truncate(self, row: int) -> None:
        """Forget the estimators that rest on rows from a number on."""
        kept = {
            key: [each for each in estimators if each.rows.max(initial=-1) < row]
            for key, estimators in self._found.items()
        }
        self.clear()
        for key, estimators in kept.items():
            if estimators:
                self.put(key, estimators)
