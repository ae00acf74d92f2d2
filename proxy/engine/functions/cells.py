"""Intervals of what the outer SQL makes of released numbers, cell by cell.

A linear combination of counts and sums is one linear query, with its law; a ratio of two is known
as AVG is; a monotone function of either, or of any number by itself, has its ends.  All else is
known from draws (``inference.functions.draws``), and called approximate.  What nothing can be said
of says so.  Invariant: only estimates, laws of noise and what is shown are looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from proxy.engine.answers import Answer
from proxy.engine.functions.drawing import Drawn, draw
from proxy.engine.functions.numbers import CONSTANT, Floats, Numbers
from proxy.inference.functions.combination import Combination, Known, Ratio, around
from proxy.inference.functions.draws import Noises, count, interval
from proxy.inference.functions.images import Ends, Step, image
from proxy.sql import Rows
from proxy.sql.program import Trace

EXACT, APPROXIMATE, UNKNOWN = "derived", "approximate", "unknown"
MAX_EXACT = 1600  # cells whose law is looked at, a ratio counting as RATIO; others are drawn
RATIO = 8
NUMBERS = 500  # in one combination whose law is looked at
DROWNED = (
    "noise drowns it, so that it may be anything; ask for its numbers within a smaller half_width"
)
LEFT_OUT = "it rests on numbers that are not known"
HIDDEN = "how noise moves it is not known"
MANY = "it rests on more numbers than are looked at together"
FAILED = "the statement cannot be worked out over draws of the noise"
Everything = (-math.inf, math.inf)


@dataclass(eq=False)
class Cells:
    """The cells of a result that are computed from released numbers."""

    numbers: Numbers
    rows: Rows
    drawn: Callable[[], Drawn]  # what the SQL gives over drawn numbers
    cancellation: Callable[[], None]
    looked_at: int = 0
    reasons: dict[int, str] = field(default_factory=dict)  # by column: why it has no interval
    approximate: set[int] = field(default_factory=set)  # columns
    _columns: dict[int, list[int]] = field(default_factory=dict)
    _noises: dict[float, Noises] = field(default_factory=dict)
    _draws: dict[tuple[int, float], Floats | None] = field(default_factory=dict)

    def answers(self) -> Iterator[list[Answer | None]]:
        """Yield, for each row, the answers of its computed cells."""
        traces = self.numbers.program.traces
        for place, row in enumerate(self.rows.rows):
            self.cancellation()
            yield [
                self._answer(place, column, trace, row[column]) if trace else None
                for column, trace in enumerate(traces)
            ]

    def _answer(self, place: int, column: int, trace: Trace, value: Any) -> Answer | None:
        if trace.kind == "hidden":
            return self._unknown(column, value, self._names(column), HIDDEN)
        if trace.kind == "drawn":
            return self._from_draws(place, column, trace, value)
        terms = self.rows.linear.get(self.rows.keys[place])
        if terms is None:
            return self._unknown(column, value, self._names(column), MANY)
        parts = [_combination(terms[part], terms[part + 1]) for part in trace.parts]
        if None in parts:  # an outer join, the first row of a window: it is no number, or constant
            return None if value is None else _constant(value)
        top, *bottom = [part for part in parts if part is not None]
        under = bottom[0] if bottom else Combination({}, 1.0)
        if not under.terms:
            if not under.constant:
                return None
            top = Combination(
                {i: c / under.constant for i, c in top.terms.items()},
                top.constant / under.constant,
            )
            return self._linear(column, top, trace.steps, value)
        return self._ratio(column, top, under, trace.steps, value)

    def _linear(
        self, column: int, what: Combination, steps: Sequence[Step], value: Any
    ) -> Answer | None:
        names = list(what.terms)
        if not names:
            return None if value is None else _constant(value)
        if len(names) == 1:  # a number by itself, of whatever kind
            ((name, times),) = what.terms.items()
            answer = self.numbers.answer(name)
            ends = [times * end + what.constant for end in (answer.low, answer.high)]
            return self._told(column, (min(ends), max(ends)), steps, value, names)
        if any(self.numbers.missing(name) for name in names):
            return self._unknown(column, value, names, LEFT_OUT)
        if (known := self._known(names, 1)) is None:
            return self._approximate(column, what, None, steps, value)
        _, delta = self.numbers.delta(names)
        found = _with_shown(around(what, known, delta), what.possible(known), value, steps)
        return self._told(column, found, steps, value, names)

    def _ratio(
        self, column: int, top: Combination, under: Combination, steps: Sequence[Step], value: Any
    ) -> Answer | None:
        names = sorted({*top.terms, *under.terms})
        if any(self.numbers.missing(name) for name in names):
            return self._unknown(column, value, names, LEFT_OUT)
        if (known := self._known(names, RATIO)) is None:
            return self._approximate(column, top, under, steps, value)
        ratio = Ratio(top, under, known, self.numbers.delta(names)[1])
        ends = _with_shown(ratio.ends(), ratio.possible, value, steps)
        return self._told(column, ends, steps, value, names, ratio.vanishes)

    def _known(self, names: Sequence[int], price: int) -> dict[int, Known] | None:
        """Return numbers as linear queries; None where one is none, or it would take too long."""
        if self.looked_at + price > MAX_EXACT or len(names) > NUMBERS:
            return None
        self.looked_at += price
        known = {name: self.numbers.linear(name) for name in names}
        found = {name: number for name, number in known.items() if number is not None}
        return found if len(found) == len(names) else None

    # --- draws -----------------------------------------------------------------------------------

    def _approximate(
        self,
        column: int,
        top: Combination,
        under: Combination | None,
        steps: Sequence[Step],
        value: Any,
    ) -> Answer | None:
        """Return what draws tell of a combination, or of a ratio."""
        names = sorted({*top.terms, *(under.terms if under else ())})
        _, delta = self.numbers.delta(names)
        draws = {name: self._drawn(name, delta) for name in names} if delta else {}
        if not draws or any(each is None for each in draws.values()):
            return self._unknown(column, value, names, HIDDEN)

        def total(what: Combination, of: Callable[[int], Any]) -> Any:
            return sum((c * of(i) for i, c in what.terms.items()), what.constant)

        values, middle = total(top, draws.get), total(top, self._estimate)
        if under is not None:
            below, size = total(under, draws.get), total(under, self._estimate)
            with np.errstate(divide="ignore", invalid="ignore"):
                values = np.where(below > 0, values / below, np.nan)
            middle = middle / size if size > 0 else math.nan
        self.approximate.add(column)
        ends = interval(values, middle, delta, False, np.zeros(0))
        return self._told(column, ends, steps, value, names, True, APPROXIMATE)

    def _estimate(self, name: int) -> float:
        return self.numbers.answer(name).estimate

    def _drawn(self, name: int, delta: float) -> Floats | None:
        """Return the draws of one number."""
        if delta not in self._noises:
            self._noises[delta] = Noises(self.numbers.program.text, count(delta))
        key = name, delta
        if key not in self._draws:
            self._draws[key] = self.numbers.drawn(name, self._noises[delta])
        return self._draws[key]

    def _from_draws(self, place: int, column: int, trace: Trace, value: Any) -> Answer | None:
        """Return what the SQL over drawn numbers tells of a cell."""
        drawn, names = self.drawn(), self._names(column)
        found = drawn.of(self.rows.keys[place], trace.parts[0])
        if found is None:
            return self._unknown(column, value, names, FAILED if drawn.draws else MANY)
        if drawn.misses(found):
            return self._unknown(column, value, names, LEFT_OUT)
        middle, draws, cases = drawn.split(found, trace.jumps)
        if value is None and np.isnan(draws).all():
            return None
        self.approximate.add(column)
        ends = interval(draws, middle, drawn.delta, trace.jumps, cases)
        return self._told(column, ends, trace.steps, value, names, True, APPROXIMATE)

    # --- answers ---------------------------------------------------------------------------------

    def _told(
        self,
        column: int,
        ends: Ends,
        steps: Sequence[Step],
        value: Any,
        names: Sequence[int],
        vanishes: bool = False,
        source: str = EXACT,
    ) -> Answer:
        """Return an answer: the image of an interval."""
        low, high = image(ends, steps, vanishes)
        if (low, high) == Everything:
            return self._unknown(column, value, names, DROWNED)
        estimate = math.nan if value is None else float(value)
        return Answer(estimate, low, high, self._confidence(names), source, self._cost(names))

    def _unknown(self, column: int, value: Any, names: Sequence[int], reason: str) -> Answer:
        self.reasons.setdefault(column, reason)
        estimate = math.nan if value is None else float(value)
        return Answer(estimate, *Everything, self._confidence(names), UNKNOWN, self._cost(names))

    def _names(self, column: int) -> Sequence[int]:
        """Return the numbers that a column may rest on."""
        if column not in self._columns:
            trace = self.numbers.program.traces[column]
            self._columns[column] = self.numbers.names([trace] if trace else [])
        return self._columns[column]

    def _confidence(self, names: Sequence[int]) -> float:
        return min((self.numbers.answer(name).confidence for name in names), default=1.0)

    def _cost(self, names: Sequence[int]) -> float:
        return max((self.numbers.answer(name).cost for name in names), default=0.0)

    def notices(self) -> tuple[str, ...]:
        """Return what is to be said of columns without an interval, or with an approximate one."""
        columns = self.rows.columns
        notices = [f"{columns[i].name} has no interval: {why}" for i, why in self.reasons.items()]
        if self.approximate:
            listed = ", ".join(columns[i].name for i in sorted(self.approximate))
            notices.append(
                f"{listed}: approximate intervals, from draws of the noise of the numbers that "
                "they are computed from"
            )
        return tuple(notices)


def _combination(
    names: Sequence[int | None] | None, coefficients: Sequence[float | None] | None
) -> Combination | None:
    """Return a linear combination, given its terms as the SQL lists them."""
    if names is None or coefficients is None:
        return None
    found: dict[int, float] = {}
    constants = []
    for i, c in zip(names, coefficients, strict=True):
        if i is None or c is None:
            return None
        if i == CONSTANT:
            constants.append(c)
        else:
            found[i] = found.get(i, 0.0) + c
    return Combination({i: c for i, c in found.items() if c}, math.fsum(constants))


def _with_shown(ends: Ends, possible: Ends, value: Any, steps: Sequence[Step]) -> Ends:
    """Return an interval that holds what is shown, which is made of rounded numbers, if it may."""
    if value is None or steps:
        return ends
    shown = min(max(float(value), possible[0]), possible[1])
    return min(ends[0], shown), max(ends[1], shown)


def _constant(value: Any) -> Answer:
    """Return the answer of what no noise moves."""
    return Answer(float(value), float(value), float(value), 1.0, EXACT, 0.0)


def computed(
    numbers: Numbers,
    rows: Rows,
    run: Callable[[list[list[list[list[float | None]]]], int], Sequence[tuple[Any, ...]]],
    cancellation: Callable[[], None],
) -> tuple[list[list[Answer | None]], tuple[str, ...]]:
    """Return the answers of all computed cells, and notices; ``run`` runs the SQL over draws."""
    found: list[Drawn] = []

    def drawn() -> Drawn:
        if not found:
            found.append(draw(numbers, len(rows.rows), run))
            cancellation()
        return found[0]

    cells = Cells(numbers, rows, drawn, cancellation)
    answers = list(cells.answers())
    return answers, cells.notices()
