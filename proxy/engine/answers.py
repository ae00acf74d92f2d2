"""What a statement gives: its rows, and for each number its estimate, interval, source and cost.

Values for every door, the remote one too: nothing here needs the inference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from proxy.sql.program import Column


@dataclass(frozen=True)
class Answer:
    """One number: P(low ≤ θ ≤ high) ≥ confidence; ``cost`` in alpha, 0 where it was inferred.

    A ratio whose denominator is nothing has the estimate NaN, and is NULL in the rows; an end that
    an interval has not is infinite.
    """

    estimate: float
    low: float
    high: float
    confidence: float
    source: str  # measured | inferred | derived | approximate | unknown
    cost: float


@dataclass(frozen=True)
class Result:
    """What a statement gives.  ``answers`` has, for each row, one Answer for each of its numbers;
    ``places`` the columns in which they stand.  ``cost`` and ``left`` are in alpha: what the
    dearest cell paid, and what the limit ``left_of`` has left, the least that binds the user now.
    ``numbers`` are all that the statement asked for, shown or not, of which so many were
    ``measured``, and the others ``inferred``; what is derived is not among them, but the counts
    that it follows from.
    """

    columns: tuple[Column, ...]
    rows: list[tuple[Any, ...]]
    answers: list[list[Answer]]
    cost: float
    left: float
    notices: tuple[str, ...] = ()
    tag: str = ""
    places: list[list[int]] = field(default_factory=list)
    left_of: str = ""
    numbers: int = 0
    measured: int = 0
    left_in_cells: float = math.nan  # in the cell that has least, whoever asks

    def after(self, earlier: Sequence[Result]) -> Result:
        """Return the result of a statement whose earlier parts chose its rows."""
        parts = [*earlier, self]
        return replace(
            self,
            cost=max(part.cost for part in parts),  # of bills that go on
            notices=tuple(chain(*(part.notices for part in parts))),
            numbers=sum(part.numbers for part in parts),
            measured=sum(part.measured for part in parts),
        )

    @property
    def inferred(self) -> int:
        """How many of the numbers were free."""
        return self.numbers - self.measured
