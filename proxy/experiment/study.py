"""The two settings of the paper's query-answering system, a third one, and its four metrics.

    R_a = answered / asked                    an answer counts if it is as good as requested
    R_i = (|θ̂ - θ| ≤ half_width) / answered   converges to at least 1 - delta
    E   = mean of |θ̂ - θ| / (2·half_width) over the answered
    ᾱ   = max over cells of what they have paid

- Unbounded: no budget; a hierarchical tree measured beforehand at 0.3; 2·half_width on [50, 1000].
- Bounded: budget 1, no history; 2·half_width on [1, 1000].
- Ranges, which the paper has not: as bounded, but random ranges of an axis of 4,096 cells.
- All: delta 0.2, 1,000 queries.

All systems get the same queries.  Decisions depend on queries and weights alone, and the error of
an unbiased estimate on the noise alone: R_a and ᾱ are those of any data of as many cells.
Source: Xiao & Xiong, Definitions "answer ratio", "ratio of satisfaction", "relative error".
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct

from proxy.experiment.systems import (
    Baseline,
    Improved,
    Inference,
    Lumped,
    Noise,
    Product,
    System,
    auto,
    strategy_of,
    usual_alpha,
)
from proxy.experiment.workload import Integers, Request, lumped, ranges, requests, runs, tree
from proxy.inference.plan import Strategy

DELTA = 0.2
EXPECTED = 100  # ranges by which auto chooses
SECONDS = 60.0  # that it may take for it
TREE = 0.3  # alpha of the whole tree


class Setting(Struct, frozen=True):
    """A setting of the paper: the system's budget, the widths asked for, a tree or none."""

    budget: float
    widths: tuple[float, float]  # of 2·half_width
    tree: bool = False
    ranges: bool = False  # of a long axis, rather than the paper's queries


SETTINGS = {
    "unbounded": Setting(math.inf, (50.0, 1000.0), tree=True),
    "bounded": Setting(1.0, (1.0, 1000.0)),
    "ranges": Setting(1.0, (1.0, 1000.0), ranges=True),
}
SYSTEMS = ("baseline", "improved baseline", "ols", "paper", "ours", "ours, pieces")
OF_RANGES = ("paper", "ours", "ours, pieces", "ours, hierarchy", "ours, auto")


class Outcome(Struct, frozen=True):
    """One system after some number of queries; also what a timing is reported as."""

    experiment: str
    seed: int
    system: str
    queries: int
    answer_ratio: float | None = None
    reliability: float | None = None
    error: float | None = None
    system_cost: float | None = None
    seconds: float = 0.0  # of the processor
    setting: dict[str, float | str] = {}  # what else tells it from others


@dataclass
class Record:
    """What one system did with each query so far."""

    answered: list[bool] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)  # |θ̂ - θ| / half_width of the answered
    costs: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def metrics(self, queries: int) -> dict[str, float | None]:
        """Return the metrics after so many queries."""
        answered = sum(self.answered[:queries])
        errors = np.array(self.errors[:answered])
        return {
            "answer_ratio": answered / queries,
            "reliability": float(np.mean(errors <= 1)) if answered else None,
            "error": float(np.mean(errors) / 2) if answered else None,
            "system_cost": self.costs[queries - 1],
            "seconds": math.fsum(self.seconds[:queries]),
        }


def systems(
    counts: Integers,
    setting: Setting,
    asked: Sequence[Request],
    seed: int,
    sampler: Noise | None = None,
) -> Iterator[tuple[str, System]]:
    """Yield each system with its own noise; that of the product is of a ``sampler``, if given."""
    budget = setting.budget
    noises = iter(np.random.default_rng([seed, 1]).spawn(max(len(SYSTEMS), len(OF_RANGES))))

    def ours(strategy: Strategy | None = None) -> Product:
        return Product(counts, budget, next(noises), strategy, sampler)

    if setting.ranges:
        starts = runs(asked)
        fewer = np.add.reduceat(counts, starts)
        yield "paper", Lumped(Inference(fewer, budget, next(noises)), starts)
        yield "ours", ours()
        yield "ours, pieces", ours(strategy_of("pieces"))
        yield "ours, hierarchy", ours(strategy_of("hierarchy"))
        expected = queries_of(setting, len(counts), EXPECTED, [seed, 2])
        choice = auto(len(counts), budget, expected, SECONDS)
        yield "ours, auto", ours(strategy_of(choice.best.name, choice))
        return
    yield "baseline", Baseline(counts, budget, next(noises), usual_alpha(asked))
    yield "improved baseline", Improved(counts, budget, next(noises))
    yield "ols", Inference(counts, budget, next(noises), ordinary=True)
    yield "paper", Inference(counts, budget, next(noises))
    yield "ours", ours()
    yield "ours, pieces", ours(strategy_of("pieces"))


def queries_of(
    setting: Setting, cells: int, count: int, seed: int | Sequence[int]
) -> list[Request]:
    """Return the random queries of a setting."""
    make = ranges if setting.ranges else requests
    return make(cells, count, setting.widths, DELTA, np.random.default_rng(seed))


def study(
    experiment: str,
    counts: Integers,
    queries: int,
    seed: int,
    every: int | None = None,
    progress: Callable[[float], None] = lambda done: None,
    wanted: Collection[str] | None = None,
    sampler: Noise | None = None,
) -> Iterator[Outcome]:
    """Yield how each system, or each that is wanted, fares after every so many queries, or after
    the last.
    """
    setting = SETTINGS[experiment]
    asked = queries_of(setting, len(counts), queries, seed)
    levels = tree(len(counts)) if setting.tree else []
    cells = counts if setting.ranges else lumped(counts)
    names = OF_RANGES if setting.ranges else SYSTEMS
    places = sorted({*range(every or queries, queries + 1, every or queries), queries})
    for number, (name, system) in enumerate(systems(cells, setting, asked, seed, sampler)):
        if wanted is not None and name not in wanted:
            continue
        if levels:
            system.know(levels, TREE / len(levels))
        record = Record()
        for place, request in enumerate(asked):
            _ask(system, request, cells, record)
            progress((number + (place + 1) / queries) / len(names))
        for place in places:
            yield Outcome(experiment, seed, name, place, **record.metrics(place))  # type: ignore[arg-type]


def _ask(system: System, request: Request, counts: Integers, record: Record) -> None:
    start = time.process_time()
    answer = system.ask(request)
    record.seconds.append(time.process_time() - start)
    record.answered.append(answer is not None)
    record.costs.append(system.cost)
    if answer is not None:
        truth = float(request.coefficients @ counts)
        record.errors.append(abs(answer - truth) / request.half_width)
