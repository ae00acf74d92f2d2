"""What goals share that are met in steps, since they depend on the size of what is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from proxy.engine.bill import source
from proxy.engine.progress import Expected, PlannedRows, Progress, RowEstimators
from proxy.inference import steps
from proxy.inference.dense_system import MeasuredFamily
from proxy.inference.estimator import Cancellation, never_cancel
from proxy.inference.family import Family
from proxy.inference.history import History
from proxy.inference.steps import Look


class StepwiseGoal:
    """What is met in steps: a look at every row says what the next step wants of it."""

    budget: float
    first: float
    delta: float
    steps: int

    @property
    def families(self) -> tuple[Family, ...]:
        """The families that an answer rests on, the one that is looked at first before all."""
        raise NotImplementedError

    def progress(
        self,
        history: History,
        left_out: frozenset[int] = frozenset(),
        cancellation: Cancellation = never_cancel,
    ) -> Progress:
        """Return what the next step measures: rows in groups of like half-widths."""
        rows = self._narrowest(history, cancellation)
        looks = dict(enumerate(self._looks(history, rows, cancellation)))
        rest = {row: look for row, look in looks.items() if row not in left_out}
        looks = dict.fromkeys(left_out, steps.LEFT_OUT) | steps.capped(rest, self.families)
        return Progress(tuple(steps.bucketed(looks, self.families)), looks, left_out)

    def known(self, history: History, cancellation: Cancellation = never_cancel) -> bool:
        """Return whether any row can be answered without a further step."""
        return any(None not in row for row in self._narrowest(history, cancellation))

    def estimators(
        self,
        history: History,
        planned: Sequence[PlannedRows],
        cancellation: Cancellation = never_cancel,
    ) -> list[RowEstimators]:
        """Return the narrowest estimators of every row, of the history as it now is."""
        return self._narrowest(history, cancellation)

    def expected(self, history: History, paid: Mapping[int, MeasuredFamily]) -> list[Expected]:
        """Return source and cost of the first step; how near it comes is not known before."""
        rows = self._narrowest(history, never_cancel)
        return [(*source([each for each in row if each], paid), None) for row in rows]

    @property
    def _delta(self) -> float:
        """What a step may miss."""
        return self.delta / self.steps

    def _narrowest(self, history: History, cancellation: Cancellation) -> list[RowEstimators]:
        """Return for every row the narrowest estimator of each family, where there is one."""
        columns = (steps.known(history, each, self._delta, cancellation) for each in self.families)
        return list(zip(*columns, strict=True))

    def _first(self) -> Look:
        return steps.first(self.families[0], self.first, self._delta)

    def _looks(
        self, history: History, rows: Sequence[RowEstimators], cancellation: Cancellation
    ) -> Iterator[Look]:
        """Yield what the next step wants of each row, given each family's narrowest estimator."""
        raise NotImplementedError
