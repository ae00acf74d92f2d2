"""The numbers of a statement by their provenance, as what is computed from them needs them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from proxy.engine.answers import Answer
from proxy.engine.outcomes import Outcome
from proxy.inference import plan as planning
from proxy.inference.functions.combination import Known
from proxy.inference.functions.draws import Noises
from proxy.sql import Program
from proxy.sql.program import Trace
from proxy.sql.provenance import DERIVED, name, unpack

Floats = NDArray[np.float64]
CONSTANT = -1  # the provenance of what is no number


class Numbers(Struct, frozen=True, eq=False, dict=True):
    """Every number of a statement, and what is derived from counts of values."""

    program: Program
    released: Sequence[Sequence[Outcome]]  # [release][number]
    values: Sequence[Sequence[Sequence[int | float | None]]]  # as shown [release][number][row]
    derived: Sequence[Sequence[Answer]]
    _known: dict[int, Known | None] = {}

    @cached_property
    def releases(self) -> dict[int, int]:
        """The places of the releases, by their index."""
        return {release.index: place for place, release in enumerate(self.program.releases)}

    def names(self, traces: Iterable[Trace]) -> list[int]:
        """Return the provenance of every released number that columns rest on."""
        chosen = {number for trace in traces for number in trace.numbers}
        return [
            name(release.index, k, row)
            for release in self.program.releases
            for k in range(len(release.numbers))
            if (release.index, k) in chosen
            for row in range(release.rows)
        ]

    def outcome(self, number: int) -> tuple[Outcome, int] | None:
        """Return what is known of a released number, and its row; None of a derived one."""
        release, k, row = unpack(number)
        return None if release == DERIVED else (self.released[self.releases[release]][k], row)

    def answer(self, number: int) -> Answer:
        """Return the answer of a number, released or derived."""
        found = self.outcome(number)
        if found is not None:
            return found[0].answers[found[1]]
        _, place, row = unpack(number)
        return self.derived[place][row]

    def shown(self, number: int) -> float:
        """Return a released number as it stands in rows; NaN where it is NULL."""
        release, k, row = unpack(number)
        value = self.values[self.releases[release]][k][row]
        return math.nan if value is None else float(value)

    def missing(self, number: int) -> bool:
        """Return whether a released number was left out."""
        found = self.outcome(number)
        return found is not None and None in found[0].estimators[found[1]]

    def linear(self, number: int) -> Known | None:
        """Return a number that is the answer to one linear query; None of any other."""
        if number not in self._known:
            self._known[number] = self._linear(number)
        return self._known[number]

    def _linear(self, number: int) -> Known | None:
        found = self.outcome(number)
        if found is None:
            return None
        outcome, row = found
        estimators = outcome.estimators[row]
        if len(estimators) != 1 or estimators[0] is None:
            return None
        family, shift = outcome.number.family, outcome.number.shift
        low, high = family.query.span
        return Known(
            outcome.answers[row].estimate,
            estimators[0],
            -math.inf if low else float(shift),
            math.inf if high else float(shift),
            None if shift else lambda: family.row(row),
        )

    def delta(self, numbers: Sequence[int]) -> tuple[float, float]:
        """Return what an interval of several numbers may miss, and what each of its laws may."""
        found = [self.outcome(number) for number in numbers]
        outcomes = [each[0] for each in found if each]
        delta = max((outcome.delta * outcome.steps for outcome in outcomes), default=0.0)
        return delta, min((outcome.delta for outcome in outcomes), default=0.0)

    def drawn(self, number: int, noises: Noises) -> Floats | None:
        """Return draws of a number, as far beyond what is possible as its estimate may be; None of
        one that has none.
        """
        known = self.linear(number)
        if known is not None:
            draws = known.estimate - noises.of(known.estimator)
            found = self.outcome(number)
            assert found is not None
            return np.rint(draws) if found[0].number.whole else draws
        return self._mean(number, noises)

    def _mean(self, number: int, noises: Noises) -> Floats | None:
        """Return draws of an AVG: NaN where there is nobody."""
        found = self.outcome(number)
        if found is None or None in found[0].estimators[found[1]]:
            return None
        outcome, row = found
        bottom, top = outcome.estimators[row]
        assert bottom is not None
        assert top is not None
        assert outcome.number.bounds is not None
        values = outcome.estimates[row]
        count = values[0] - noises.of(bottom)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = float(outcome.number.shift) + (values[1] - noises.of(top)) / count
        low, high = (float(end) for end in outcome.number.bounds)
        return np.where(count > 0, np.clip(mean, low, high), np.nan)

    def corner(self, number: int, sign: int, delta: float) -> float:
        """Return how high or low a number may be so that all may be within such ends at once."""
        answer = self.answer(number)
        if (known := self.linear(number)) is not None:
            end = known.estimate + sign * planning.half_width(known.estimator, delta)
            found = self.outcome(number)
            end = float(np.rint(end)) if found and found[0].number.whole else end
            return min(max(end, known.least), known.most)
        return answer.high if sign > 0 else answer.low
