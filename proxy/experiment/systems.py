"""The systems that are compared: how each answers one query, or cannot.

- Baseline: the same alpha for every query, whatever is asked of it.
- Improved baseline: the paper's allocation, alpha = S ln(1/delta) / half_width; no inference.
- Inference: infers where P(|θ - θ̂| ≤ half_width) ≥ 1 - delta, else as the improved baseline;
  with the paper's best estimator, or with that of ordinary least squares (OLS), which weighs all
  noisy answers alike.  OLS itself knows no posterior; it is lent the exact law of its own error.
- Product: what this proxy does, through its own plan: noise on integers and its exact law, the
  least budget that is enough together with the history, under a strategy of the policy.

All others draw continuous Laplace noise.  A system knows queries, weights and noisy answers; the
counts serve to answer what it pays for.  Noise is numpy's and seeded: it protects nobody.

Shapes: rows H [m, cells], weights and answers [m], spent [cells].  Units: budget, spent in alpha.
Source: Xiao & Xiong, Sections "Application" and "Experimental study", Theorems 3.1, 5.3 and 5.4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from proxy.experiment.workload import Integers, Request
from proxy.inference import plan as planning
from proxy.inference.accounting import UNIT, Account, BudgetRule, budget_units, charge
from proxy.inference.family import Family
from proxy.inference.history import History
from proxy.inference.laplace import LaplaceSum
from proxy.inference.plan import AccuracyTarget, Allocation, PlannedMeasurement, Strategy
from proxy.inference.query import Factor, LinearQuery
from proxy.inference.space import Space
from proxy.inference.strategies.bases import Pieces
from proxy.inference.strategies.choosing import (
    STRATEGIES,
    Choice,
    Shadow,
    afforded,
    choose,
    strategies,
)

Floats = NDArray[np.float64]

FLOOR = 1e-4  # the least alpha of one measurement, as a share of the budget: the policy's default
RECORDS = 1_000_000  # the public bound on records that the product is told
SPANNED = 1e-9  # residual of small integer queries, below which they are in the row space


class System(Protocol):
    """Answers queries one after the other."""

    @property
    def cost(self) -> float:
        """The system cost ᾱ so far."""

    def know(self, levels: Sequence[Integers], alpha: float) -> None:
        """Measure a tree beforehand, if that is of any use: ``alpha`` for each level."""

    def ask(self, request: Request) -> float | None:
        """Return an answer that is as good as requested, or None."""


class Continuous:
    """What the systems with Laplace noise share: the data, the noise, and what cells have paid."""

    def __init__(self, counts: Integers, budget: float, rng: np.random.Generator) -> None:
        self.counts = counts
        self.budget = budget
        self.spent = np.zeros(len(counts))  # B
        self._rng = rng

    @property
    def cost(self) -> float:
        """The system cost ᾱ = max B."""
        return float(self.spent.max())

    def know(self, levels: Sequence[Integers], alpha: float) -> None:
        """Measure nothing: without inference a tree is of no use."""

    def measure(self, coefficients: Integers, weight: float) -> float | None:
        """Return a noisy answer, or None where some cell cannot pay weight·|coefficient|."""
        spent = self.spent + weight * np.abs(coefficients)
        if spent.max() > self.budget:
            return None
        self.spent = spent
        return float(coefficients @ self.counts) + float(self._rng.laplace(scale=1 / weight))


def enough(request: Request) -> float:
    """Return the weight alpha / S = ln(1/delta) / half_width of the paper's allocation."""
    return math.log(1 / request.delta) / request.half_width


class Baseline(Continuous):
    """Spends the same alpha on every query."""

    def __init__(
        self, counts: Integers, budget: float, rng: np.random.Generator, alpha: float
    ) -> None:
        super().__init__(counts, budget, rng)
        self.alpha = alpha

    def ask(self, request: Request) -> float | None:
        """Return a noisy answer; one that is not as good as requested does not count."""
        weight = self.alpha / request.sensitivity
        answer = self.measure(request.coefficients, weight)
        return answer if weight >= enough(request) else None


def usual_alpha(requests: Sequence[Request]) -> float:
    """Return the alpha with which a query of average sensitivity meets an average request."""
    sensitivity = np.mean([request.sensitivity for request in requests])
    half_width = np.mean([request.half_width for request in requests])
    return float(sensitivity / half_width) * math.log(1 / requests[0].delta)


class Improved(Continuous):
    """Spends what the request needs."""

    def ask(self, request: Request) -> float | None:
        """Return a noisy answer, if it can be paid."""
        return self.measure(request.coefficients, enough(request))


class Inference(Continuous):
    """Infers what the history can tell well enough, and spends what the request needs otherwise."""

    def __init__(
        self, counts: Integers, budget: float, rng: np.random.Generator, *, ordinary: bool = False
    ) -> None:
        super().__init__(counts, budget, rng)
        self.ordinary = ordinary  # least squares without weights
        self._rows = np.zeros((0, len(counts)))
        self._weights: Floats = np.zeros(0)
        self._answers: Floats = np.zeros(0)
        self._solved: tuple[Floats, Floats, Floats] | None = None

    def know(self, levels: Sequence[Integers], alpha: float) -> None:
        """Measure every node with weight ``alpha``; the nodes of one level are disjoint."""
        for level in levels:
            noise = self._rng.laplace(scale=1 / alpha, size=len(level))
            self._append(level, np.full(len(level), alpha), level @ self.counts + noise)
        self.spent += alpha * len(levels)

    def ask(self, request: Request) -> float | None:
        """Return the estimate where its posterior is good enough, else a new answer."""
        inferred = self._infer(request)
        if inferred is not None:
            return inferred
        answer = self.measure(request.coefficients, enough(request))
        if answer is None:
            return None
        self._append(request.coefficients[None], np.array([enough(request)]), np.array([answer]))
        # OLS takes its estimate from all answers, the new one included, if that is good enough.
        again = self._infer(request) if self.ordinary else None
        return answer if again is None else again

    def _append(self, rows: Integers, weights: Floats, answers: Floats) -> None:
        self._rows = np.concatenate([self._rows, rows])
        self._weights = np.concatenate([self._weights, weights])
        self._answers = np.concatenate([self._answers, answers])
        self._solved = None

    def _infer(self, request: Request) -> float | None:
        """Return θ̂ where it is good enough."""
        query = request.coefficients.astype(np.float64)
        left, scales, right = self._decomposed()
        inside = right @ query
        if np.abs(query - inside @ right).max() > SPANNED * request.sensitivity:
            return None
        solution = left @ (inside / scales)
        # Of least norm: weighted, the c of (diag(w)·H)ᵀ c = q; ordinary, the a of Hᵀ a = q.
        coefficients = solution if self.ordinary else solution * self._weights
        law = LaplaceSum(coefficients / self._weights)
        if law.confidence(request.half_width) < 1 - request.delta:
            return None
        return float(coefficients @ self._answers)

    def _decomposed(self) -> tuple[Floats, Floats, Floats]:
        """Return the singular value decomposition of the history, once for each of its states."""
        if self._solved is None:
            rows = self._rows if self.ordinary else self._rows * self._weights[:, None]
            left, scales, right = np.linalg.svd(rows, full_matrices=False)
            kept = scales > scales.max(initial=0.0) * 1e-11
            self._solved = left[:, kept], scales[kept], right[kept]
        return self._solved


class Lumped:
    """Another system that sees runs of cells, ``starts``, which no query tells apart, as one."""

    def __init__(self, system: System, starts: Integers) -> None:
        self._system = system
        self._starts = starts

    @property
    def cost(self) -> float:
        """The system cost ᾱ, which is that of the cells."""
        return self._system.cost

    def know(self, levels: Sequence[Integers], alpha: float) -> None:
        """Measure a tree beforehand; its nodes, too, must be made of whole runs."""
        self._system.know([level[:, self._starts] for level in levels], alpha)

    def ask(self, request: Request) -> float | None:
        """Return the answer of the system."""
        coefficients = request.coefficients[self._starts]
        return self._system.ask(replace(request, coefficients=coefficients))


class Product:
    """What this proxy does: its plan, history and account, with noise that is seeded."""

    def __init__(
        self,
        counts: Integers,
        budget: float,
        rng: np.random.Generator,
        strategy: Strategy | None = None,
        sampler: Noise | None = None,
    ) -> None:
        self.counts = counts
        self._sampler = sampler or Seeded(rng)
        self._space = Space((len(counts),))
        self._history = History(self._space, RECORDS)
        self._account = Account(self._space)
        self._rules = limits(budget)
        self._allocation = Allocation(True, FLOOR * budget if self._rules else 0.0, strategy)

    @property
    def cost(self) -> float:
        """The system cost ᾱ."""
        return self._account.spent().value / UNIT

    def know(self, levels: Sequence[Integers], alpha: float) -> None:
        """Measure the nodes of every level as one family, with weight ``alpha``."""
        for nodes in levels:
            labels = np.where(nodes.any(axis=0), nodes.argmax(axis=0), -1).astype(np.int32)
            family = Family(LinearQuery.count(self._space), (0,), labels, len(nodes))
            block = self._history.append(family, 1 / alpha)
            self._measure(PlannedMeasurement(block, block.scale))
            # Every cell pays for every level, those under nodes that are left out included.
            self._account.add([charge(Family(LinearQuery.count(self._space)), 1 / alpha)])

    def ask(self, request: Request) -> float | None:
        """Return the estimate: from the history, or from a history that is longer by one answer."""
        history, target = self._history, target_of(request, self._space)
        plan = afforded(history, self._account, self._rules, [target], self._allocation)
        if plan is None:
            return None
        for each in plan.measurements:
            self._measure(each)
        found = planning.estimators(history, target) if plan.measurements else plan.estimators[0]
        return history.estimate(found[0]) if found[0] is not None else None

    def _exact(self, family: Family) -> Integers:
        """Return the answers of a family's rows, in units of its grid."""
        answers = []
        for row in map(family.row, range(family.rows)):
            steps = sum(int(t.dense((0,), self._space) @ self.counts) for t in row.parts.values())
            answers.append(int(steps * row.grid / family.grid))
        return np.array(answers, dtype=np.int64)

    def _measure(self, planned: PlannedMeasurement) -> None:
        """Draw the answers of what is planned, or less noise in the answers that are there."""
        block, exact = planned.block, self._exact(planned.family)
        if planned.before is None:
            noise = self._sampler.draw(planned.scale, len(exact))
        else:
            old = self._history.answers[block.start : block.start + len(exact)]
            drawn = [answer - a for a, answer in zip(exact.tolist(), old, strict=True)]
            noise = self._sampler.refine(drawn, planned.before, planned.scale)
        answers = [a + k for a, k in zip(exact.tolist(), noise, strict=True)]
        self._history.set_answers(block, answers)
        block.refinable = True


def target_of(request: Request, space: Space) -> AccuracyTarget:
    """Return a request in the words of the product."""
    query = LinearQuery.count(space, Factor((0,), request.coefficients))
    return AccuracyTarget(Family(query), Fraction(request.half_width), request.delta)


def limits(budget: float) -> list[BudgetRule]:
    """Return the rule that a budget is; none where it is without end."""
    return [BudgetRule(budget_units(Fraction(budget)))] if math.isfinite(budget) else []


def strategy_of(name: str, choice: Choice | None = None) -> Strategy | None:
    """Return a strategy of the policy, over one ordered axis."""
    bases = choice.bases if choice else ()
    return strategies(_pieces(), _pieces(trees=True), bases).get(name)


def auto(cells: int, budget: float, expected: Sequence[Request], seconds: float) -> Choice:
    """Return how the strategies fare with a workload that is expected."""
    space = Space((cells,))
    targets = [[target_of(request, space)] for request in expected]
    shadow = Shadow(space, RECORDS, limits(budget), FLOOR * budget)
    return choose(targets, shadow, _pieces(), _pieces(trees=True), seconds, STRATEGIES)


def _pieces(*, trees: bool = False) -> Pieces:
    return Pieces(RECORDS, (), [True], trees)


class Noise(Protocol):
    """A source of noise: inference.noise.mechanism.GeometricSampler conforms, and Seeded."""

    def draw(self, scale: float, count: int) -> list[int]:
        """Return draws of the two-sided geometric law of this scale."""

    def refine(self, noise: Sequence[int], old: float, new: float) -> list[int]:
        """Return draws of the law of scale ``new``, given those of scale ``old``."""


class Seeded(Struct, frozen=True):
    """Noise that protects nobody."""

    rng: np.random.Generator

    def draw(self, scale: float, count: int) -> list[int]:
        """Return differences of two geometrics."""
        draws = self.rng.geometric(-math.expm1(-1 / scale), size=(2, count))
        return (draws[0] - draws[1]).tolist()  # type: ignore[no-any-return]

    def refine(self, noise: Sequence[int], old: float, new: float) -> list[int]:
        """Return one new noise for each old one, from its conditional law, rounded."""
        return [self._refined(each, 1 / old, 1 / new) for each in noise]

    def _refined(self, noise: int, old: float, new: float) -> int:
        size = abs(noise)
        same = math.expm1(-2 * old) / math.expm1(-2 * new) * math.exp(-(new - old) * (size + 1))
        if self.rng.random() < same:
            return noise
        far = math.ceil(60 / (old + new))
        values = np.arange(-far, size + far + 1)
        logs = -new * np.abs(values) - old * np.abs(size - values)
        weights = np.exp(logs - logs.max())
        drawn = int(self.rng.choice(values, p=weights / weights.sum()))
        return drawn if noise >= 0 else -drawn
