"""What a statement gives: its rows, and for each number its estimate, interval, source and cost.

Values for every door, the remote one too: nothing here needs the inference.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain, pairwise
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from proxy.sql.program import Column


class Answer(Struct, frozen=True):
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


class Posterior(Struct, frozen=True):
    """How probable the values of one number are, given the answers: P(θ ≤ values[i]) = below[i].

    θ is ``zero`` and a multiple of ``step``, and no more, so that P(θ ≤ t) is read half-way between
    the last possible value up to t and the next, on a straight line from point to point; about 1 in
    1,000 may be beyond the points.  An average has the step 0: it may be anything between.
    """

    values: tuple[float, ...]  # rising
    below: tuple[float, ...]  # not falling
    zero: float
    step: float

    def at_most(self, value: float) -> float:
        """Return P(θ ≤ value)."""
        if not self.step:
            return self._read(value)
        return self._before(math.floor((value - self.zero) / self.step + 1e-9) + 0.5)

    def above(self, value: float) -> float:
        """Return P(θ > value)."""
        return 1 - self.at_most(value)

    def between(self, low: float, high: float) -> float:
        """Return P(low ≤ θ ≤ high)."""
        if not self.step:
            return max(self._read(high) - self._read(low), 0.0)
        first = math.ceil((low - self.zero) / self.step - 1e-9) - 0.5
        return max(self.at_most(high) - self._before(first), 0.0)

    def density(self) -> list[tuple[float, float]]:
        """Return points of the density, each half-way between two values: for a picture."""
        pairs = pairwise(zip(self.values, self.below, strict=True))
        return [((v + w) / 2, (q - p) / (w - v)) for (v, p), (w, q) in pairs if w > v]

    def _before(self, steps: float) -> float:
        """Return the probability of what is below a point half-way between two possible values."""
        return self._read(self.zero + steps * self.step)

    def _read(self, value: float) -> float:
        """Return the probability of what is below a value, from point to point."""
        i = bisect_left(self.values, value)
        if i in (0, len(self.values)):
            return float(i > 0)
        (v, w), (p, q) = self.values[i - 1 : i + 1], self.below[i - 1 : i + 1]
        return p + (q - p) * (value - v) / (w - v)


class Origin(Struct, frozen=True):
    """Noisy numbers that a number follows from, taken together: those of one statement, or of many.

    ``kind``: ``this`` statement measured them; an ``earlier`` one, which the user may see in
    ``privacy.history``; ``others``, which they may not, all together; or the ``rest`` of the
    earlier ones.  Only one statement has a text, a time (UTC), its ``sequence`` there, and
    ``weights``: the least and the largest with which its numbers are added up.
    """

    kind: str
    numbers: int
    share: float  # of the variance of the number's noise; all of them add up to 1
    statement: str | None = None
    time: datetime | None = None
    sequence: int | None = None
    weights: tuple[float, float] | None = None


class Explanation(Struct, frozen=True):
    """How probable the values of one number are, and which noisy numbers it follows from: those of
    this statement first, then those of the largest share.

    Where nobody can be counted there is no noise, and no origin.
    """

    posterior: Posterior
    origins: tuple[Origin, ...]


class Result(Struct, frozen=True):
    """What a statement gives.  ``answers`` has, for each row, one Answer for each of its numbers;
    ``places`` the columns in which they stand.  ``cost`` and ``left`` are in alpha: what the
    dearest cell paid, and what the limit ``left_of`` has left, the least that binds the user now.
    ``numbers`` are all that the statement asked for, shown or not, of which so many were
    ``measured``, and the others ``inferred``; what is derived is not among them, but the counts
    that it follows from.  ``explanations`` are there if ``privacy.explanations`` is on: for each
    answer one, or None where it has none: a quantile, an average that may be of nobody, what is
    derived or approximate, what is not known, and the rows behind the first 200.
    """

    columns: tuple[Column, ...]
    rows: list[tuple[Any, ...]]
    answers: list[list[Answer]]
    cost: float
    left: float
    notices: tuple[str, ...] = ()
    tag: str = ""
    places: list[list[int]] = []
    left_of: str = ""
    numbers: int = 0
    measured: int = 0
    left_in_cells: float = math.nan  # in the cell that has least, whoever asks
    explanations: list[list[Explanation | None]] = []  # as ``answers``

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


def table(result: Result) -> tuple[list[Column], Iterator[list[Any]]]:
    """Return the columns and the rows of a result as a file has them: beside each number with an
    interval are its ends, in full, and its source.
    """
    numeric = {place for places in result.places for place in places}
    header: list[Column] = []
    for place, column in enumerate(result.columns):
        header.append(column)
        if place in numeric:
            header += [
                Column(f"{column.name}_{end}", "double precision") for end in ("low", "high")
            ]
            header.append(Column(f"{column.name}_source", "text"))

    def rows() -> Iterator[list[Any]]:
        for row, answers, places in zip(result.rows, result.answers, result.places, strict=True):
            known = dict(zip(places, answers, strict=True))
            line: list[Any] = []
            for place, value in enumerate(row):
                line.append(value)
                if place in numeric:
                    answer = known.get(place)
                    line += [answer.low, answer.high, answer.source] if answer else [None] * 3
            yield line

    return header, rows()


def csv_lines(result: Result, every: bool = False) -> Iterator[str]:
    """Yield a result as CSV, as PostgreSQL's COPY does: NULL is nothing, an empty text is ``""``;
    ``every`` text is quoted, or those that must be.
    """
    header, rows = table(result)
    for line in chain([[column.name for column in header]], rows):
        yield ",".join(_csv_field(value, every) for value in line)


def csv(result: Result, every: bool = False) -> str:
    """Return a result as CSV, as ``csv_lines`` does."""
    return "".join(f"{line}\n" for line in csv_lines(result, every))


def _csv_field(value: Any, every: bool) -> str:
    if value is None:
        return ""
    field = ("true" if value else "false") if isinstance(value, bool) else str(value)
    needed = not field or any(mark in field for mark in ',"\r\n')
    if needed or (every and isinstance(value, str)):
        return '"' + field.replace('"', '""') + '"'
    return field
