"""What goals share: the looks at rows that are met in steps, since they depend on their size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proxy.engine.answers import source
from proxy.inference import steps
from proxy.inference.dense_system import Block
from proxy.inference.estimator import Estimator
from proxy.inference.family import Family
from proxy.inference.history import History
from proxy.inference.plan import Wanted
from proxy.inference.steps import SCOUT, Look

Expected = tuple[str, float, float | None]  # source, cost, half-width
Found = Sequence[Sequence[Estimator | None]]  # for each wanted family, an estimator of every row


class Looked:
    """What all goals share: the looks of rows that are met in steps."""

    looks: dict[int, Look]
    left_out: set[int]

    def unmet(self) -> tuple[int, int, int]:
        """Return how many rows were left out, were given up, and are not yet met, in steps."""
        rest = [x for row, x in self.looks.items() if row not in self.left_out and not x.met]
        lost = sum(not look.told for look in rest)
        return len(self.left_out), lost, len(rest) - lost


class StepwiseGoal(Looked):
    """What is met in steps: a look at every row says what the next one wants of it."""

    families: tuple[Family, ...]
    budget: float
    delta: float
    steps: int

    def wants(self, history: History) -> list[Wanted]:
        """Return what the next step measures: rows in groups of like half-widths."""
        known = zip(
            *(steps.known(history, each, self._delta) for each in self.families), strict=True
        )
        looks = {row: self._look(history, row, *found) for row, found in enumerate(known)}
        self.looks = {row: steps.LEFT_OUT for row in self.left_out}
        rest = {row: look for row, look in looks.items() if row not in self.left_out}
        self.looks |= steps.capped(rest, self.families)
        return list(steps.bucketed(self.looks, self.families))

    def known(self, history: History) -> bool:
        """Return whether there is something to say of some row, should no step be possible."""
        columns = [steps.known(history, each, self._delta) for each in self.families]
        return any(None not in row for row in zip(*columns, strict=True))

    def expected(self, history: History, paid: Mapping[int, Block]) -> list[Expected]:
        """Return source and cost of the first step; how near it comes is not known before."""
        columns = [steps.known(history, each, self._delta) for each in self.families]
        rows = zip(*columns, strict=True)
        return [(*source([each for each in row if each], paid), None) for row in rows]

    @property
    def _delta(self) -> float:
        """What a step may miss."""
        return self.delta / self.steps

    def _first(self) -> Look:
        return steps.first(self.families[0], self.budget * float(SCOUT), self._delta)

    def _look(self, history: History, row: int, *found: Estimator | None) -> Look:
        """Return what the next step wants of a row, of which so much is known."""
        raise NotImplementedError
