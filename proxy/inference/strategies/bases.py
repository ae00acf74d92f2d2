"""Measure what will be reused: pieces of queries in the place of the queries themselves.

A base is some families of disjoint rows, such as the cells of a marginal, or the levels of a tree,
with fixed proportions of their rates.  What a target needs of a base is the least common factor f:
with the coefficients a of the best estimator from it, whose rows have rates f · r_i, every row of
the target is good enough.  Its families are then measured with these rates, or refined where they
have been measured with more noise, so that each cell pays for a base no more than the most that any
one target needed of it.

Nothing here looks at an answer.  Units: rates in alpha per grid unit.
Source: McKenna et al. 2018 (HDMM) and Xiao et al. 2023 (ResidualPlanner) choose strategies for a
workload that is known beforehand; here they are refined as requests come, beside a history.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from proxy.inference import plan as planning
from proxy.inference.dense_system import MeasuredFamily, key_of
from proxy.inference.estimator import Cancellation, Estimator, Integers, never_cancel
from proxy.inference.family import Family
from proxy.inference.history import History
from proxy.inference.plan import MAX_ROWS_BEST, AccuracyTarget, Measuring, law, scale_of
from proxy.inference.query import LinearQuery, Term
from proxy.inference.space import Space
from proxy.inference.strategies.cover import Cover, cover

MAX_ROWS = 4096  # of the families of a base
NOMINAL = 2.0**-10  # the rate of a base's rows in its own history
NEAR = 1 + 1e-4  # how near to the least factor one is looked for
TRIES = 60  # of factors
ROOM = 1.25  # times the rate that is needed, where a later snapshot cannot raise it: windows grow
SHORT = 16  # cells of an axis that needs no tree
DEARER = 2.0  # times what a question costs, that pieces may while nothing was chosen
MAX_BASES = 8  # of which what a target needs is compared
KEPT = 64  # bases that a strategy of pieces remembers


@dataclass(eq=False)
class Base:
    """Families that are measured, and refined, together.

    ``shares`` are the proportions of their rates.
    """

    families: tuple[Family, ...]
    records: int  # N, the public bound on the number of records
    shares: tuple[float, ...] = ()
    level: float = 0.0  # the alpha that it is expected to have in the end

    def __post_init__(self) -> None:
        self.shares = self.shares or (1.0,) * len(self.families)

    @cached_property
    def _history(self) -> History:
        """The families by themselves, at nominal rates."""
        history = History(self.families[0].query.space, self.records)
        history.extend(
            [(f, 1 / (NOMINAL * share), None) for f, share in zip(self.families, self.shares,
            strict=True)]
        )  # fmt: skip
        return history

    @cached_property
    def _owner(self) -> Integers:
        """[rows] Which family a row of the history is of."""
        return np.repeat(np.arange(len(self.families)), [f.rows for f in self.families])

    @cached_property
    def scope(self) -> frozenset[int]:
        """The axes along which some of its families vary."""
        return frozenset[int]().union(*(family.scope for family in self.families))

    @cached_property
    def parts(self) -> frozenset[int]:
        """The parts of a query that it says something of."""
        return frozenset(part for family in self.families for part in family.query.parts)

    def best(self, family: Family, cancellation: Cancellation) -> list[Estimator]:
        """Return the best estimators from it of a family's rows; fewer where it spans not all."""
        found: list[Estimator] = []
        queries = family.queries()
        self._history.prepare(family, queries, cancellation)
        for query in queries:
            known = self._history.estimators(query, cancellation, deep=True)
            if not known:
                break
            found.append(min(known, key=lambda estimator: estimator.variance))
        return found

    def used(self, estimators: Sequence[Estimator]) -> list[Integers]:
        """Return the rows of its families that estimators from it rest on."""
        rows = np.unique(np.concatenate([estimator.rows for estimator in estimators]))
        starts = np.cumsum([0, *(family.rows for family in self.families)])
        return [rows[(rows >= a) & (rows < b)] - a for a, b in itertools.pairwise(starts.tolist())]

    def at_level(self, history: History) -> list[MeasuredFamily]:
        """Append its families to a history, with the alpha that it is to have."""
        whole = math.fsum(
            family.sensitivity * share
            for family, share in zip(self.families, self.shares, strict=True)
        )
        level = self.level * (1 - 1e-9)  # charges are rounded up
        rates = [share * level / whole for share in self.shares]
        return history.extend(
            [(f, scale_of(rate), None) for f, rate in zip(self.families, rates, strict=True)]
        )

    def weighed(self, estimator: Estimator, scales: Sequence[float]) -> Estimator:
        """Return an estimator from it, with families of other scales."""
        rates = 1 / np.array(scales)
        return replace(estimator, rates=rates[self._owner[estimator.rows]])


class Proposal(Struct, frozen=True, eq=False):
    """What a target needs of a base: the scales of its families, and estimators of its rows."""

    base: Base
    scales: Sequence[float]
    estimators: Sequence[Estimator]
    covers: Sequence[Cover]  # where the rows of its families have been measured
    rows: Sequence[Integers]  # of its families that are to be measured, where they are not
    room: float = 1.0  # times the rate that is needed, of what is measured

    @property
    def beyond(self) -> float:
        """How far it takes the alpha of its base past what is expected."""
        rates = (
            cover.family.sensitivity / scale
            for cover, scale, rows in zip(self.covers, self.scales, self.rows, strict=True)
            if len(rows)
        )
        return max(math.fsum(rates) - self.base.level, 0.0)

    @property
    def alpha(self) -> float:
        """What it adds to what the dearest cell may pay, at most."""
        return math.fsum(
            cover.family.sensitivity * max(1 / scale - 1 / float(cover.scales()[rows].max()), 0.0)
            for cover, scale, rows in zip(self.covers, self.scales, self.rows, strict=True)
            if len(rows)
        )

    def append(self, history: History) -> list[Measuring]:
        """Refine what has been measured with more noise, and append what has not been."""
        made: list[Measuring] = []
        for known, scale, rows in zip(self.covers, self.scales, self.rows, strict=True):
            lacking = rows[known.scales()[rows] > scale].tolist()
            new = []
            for row in lacking:
                block = known.refinable(row)
                if block is None:
                    new.append(row)
                elif block.scale > scale:
                    made.append((block, block.scale))
                    history.refine(block, scale / self.room)
            if new:
                block = history.append(known.family.subset(new), scale / self.room)
                block.refinable = True
                made.append((block, None))
            known.follow(history)
        return made

    def told(self) -> Iterator[Estimator]:
        """Yield the estimators of the target's rows from the rows of the history."""
        best = [cover.best() for cover in self.covers]
        numbers, signs, rates = (np.concatenate(each) for each in zip(*best, strict=True))
        for estimator in self.estimators:
            rows = numbers[estimator.rows]
            order = np.argsort(rows)
            yield replace(
                estimator,
                rows=rows[order],
                coefficients=(estimator.coefficients * signs[estimator.rows])[order],
                rates=rates[estimator.rows][order],
            )


@dataclass(eq=False)
class Bases:
    """A strategy: the bases that are measured in the place of queries.

    Of several that would do, that one is which goes on as expected, and then at least alpha.
    """

    bases: Sequence[Base] = ()
    whole: bool = True  # all rows of a base are measured; else those that are needed
    pieces: Callable[[Family], Base | None] | None = None  # of what no base knows
    most: float = math.inf  # times what the question itself costs, that pieces may
    _made: dict[tuple[object, ...], Base | None] = field(default_factory=dict)

    def append(
        self,
        history: History,
        target: AccuracyTarget,
        floor: float = 0.0,
        cancellation: Cancellation = never_cancel,
    ) -> Sequence[Measuring] | None:
        """Append blocks to the history, or refine some, so that every row of a target is good
        enough; None where no base spans them.
        """
        family = target.family
        if family.rows > MAX_ROWS_BEST:
            return None
        found: list[Proposal] = []
        for base in self._of(family):
            cancellation()
            proposal = needed(base, history, target, floor, cancellation, whole=self.whole)
            if proposal is not None and self._worth(proposal, target, floor):
                found.append(proposal)
        if not found:
            return None
        best = min(found, key=lambda each: (each.beyond, each.alpha))
        mark, made = history.mark, best.append(history)
        told = list(best.told())
        if not all(planning.meets(each, target.half_width, target.delta) for each in told):
            history.take_back(mark)  # the law of less noise is not always the narrower one
            return None
        for query, estimator in zip(family.queries(), told, strict=True):
            history.good_enough.add(key_of(query), estimator)
        return made

    def _worth(self, proposal: Proposal, target: AccuracyTarget, floor: float) -> bool:
        """Whether a proposal may take the place of the question, which it costs more than."""
        if self.most == math.inf or proposal.base in self.bases:
            return True
        own = max(planning.price(target.family, target.half_width, target.delta), floor)
        return proposal.alpha <= own * self.most * (1 + 1e-6)

    def _of(self, family: Family) -> list[Base]:
        """Return the bases that may span a family's rows, those of least scope first."""
        query = family.query
        parts = query.parts.keys()
        fitting = [
            base for base in self.bases if family.scope <= base.scope and parts <= base.parts
        ]
        if not fitting and self.pieces is not None:
            scales = tuple((part, term.scale) for part, term in query.parts.items())
            key = query.axes, family.axes, scales, query.grid if len(parts) > 1 else None
            if key not in self._made:
                if len(self._made) >= KEPT:
                    self._made.clear()
                self._made[key] = self.pieces(family)
            made = self._made[key]
            fitting = [made] if made else []
        space = query.space
        return sorted(fitting, key=lambda base: space.cells(base.scope))[:MAX_BASES]


def needed(
    base: Base,
    history: History,
    target: AccuracyTarget,
    floor: float = 0.0,
    cancellation: Cancellation = never_cancel,
    *,
    whole: bool = True,
) -> Proposal | None:
    """Return what a target needs of a base beside what was measured of it; None if not spanned."""
    estimators = base.best(target.family, cancellation)
    if len(estimators) < target.family.rows:
        return None
    covers = [cover(history, family) for family in base.families]
    rows = [np.arange(family.rows) for family in base.families]
    if not whole:
        rows = base.used(estimators)
    steps = [floor / family.sensitivity for family in base.families]
    noisiest = [float(c.scales()[r].max(initial=0.0)) for c, r in zip(covers, rows, strict=True)]
    now = [1 / scale if scale else math.inf for scale in noisiest]
    shares = np.array(base.shares) * NOMINAL

    def scales(factor: float) -> list[float]:
        """Return the scales at a factor; what changes does so by no less than the floor."""
        return [  # of a family that is not needed, any
            (scale or 1.0) if factor * share <= rate else scale_of(max(factor * share, rate + step))
            for scale, rate, share, step in zip(noisiest, now, shares.tolist(), steps, strict=True)
        ]

    def enough(estimator: Estimator, factor: float) -> bool:
        own = base.weighed(estimator, scales(factor))
        return planning.meets(own, target.half_width, target.delta)

    low = 0.0
    for estimator in distinct(estimators):
        cancellation()
        if low and enough(estimator, low):
            continue
        low = least(lambda factor: enough(estimator, factor), _guess(estimator, target))  # noqa: B023
        if not math.isfinite(low):
            return None
    return Proposal(base, scales(low), estimators, covers, rows, 1.0 if whole else ROOM)


def distinct(estimators: Sequence[Estimator]) -> list[Estimator]:
    """Return one estimator of each law, those of most variance first."""
    laws = {law(each): each for each in estimators}
    return sorted(laws.values(), key=lambda each: -each.variance)


def _guess(estimator: Estimator, target: AccuracyTarget) -> float:
    """Return about the factor that meets a target."""
    wide = math.sqrt(estimator.variance / 2) * math.log(1 / target.delta)
    return max(wide / float(target.half_width), 2.0**-60)


def least(enough: Callable[[float], bool], start: float) -> float:
    """Return nearly the least factor that is enough, to which more is no less; inf if none is."""
    low, high = start / 2, start
    for _ in range(TRIES):
        if enough(high):
            break
        low, high = high, high * 2
    else:
        return math.inf
    for _ in range(TRIES):
        if low <= 0 or not enough(low):
            break
        low, high = low / 2, low
    for _ in range(TRIES):
        if high <= low * NEAR:
            break
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


# --- the families of bases -----------------------------------------------------------------------


def plain(query: LinearQuery, units: Sequence[Fraction]) -> LinearQuery | None:
    """Return a query that is constant over all cells, whose values cell by cell make up another.

    ``units`` are the quanta of the measures.  None where the parts of a query vary differently.
    """
    space, parts = query.space, query.parts
    if len(parts) == 1:
        (part,) = parts
        unit = units[part // 2] if part % 2 else Fraction(1)
        return LinearQuery.of(space, unit, {part: Term(1)})
    if len({term.key for term in parts.values()}) != 1:
        return None
    return LinearQuery.of(space, query.grid, {p: Term(term.scale) for p, term in parts.items()})


def marginal(query: LinearQuery, axes: Iterable[int]) -> Family:
    """Return the family of all cells over some axes, of a query that is constant."""
    kept = tuple(sorted(axes))
    shape = tuple(query.space.sizes[axis] for axis in kept)
    if math.prod(shape) == 1:
        return Family(query)
    labels = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    return Family(query, kept, labels, labels.size)


def tree(query: LinearQuery, axes: Iterable[int], axis: int, fanout: int) -> tuple[Family, ...]:
    """Return the levels of a tree over one of some axes, at each cell of the others."""
    leaves, size = marginal(query, axes), query.space.sizes[axis]
    place, found, width = leaves.axes.index(axis), [leaves], fanout
    while width < size:
        shape = list(leaves.labels.shape)
        shape[place] = -(-size // width)
        coarse = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
        labels = np.ascontiguousarray(np.take(coarse, np.arange(size) // width, axis=place))
        found.append(Family(query, leaves.axes, labels, coarse.size))
        width *= fanout
    return tuple(found)


@cache
def fanout_of(size: int) -> int:
    """Return the fan-out with which ranges of a tree over so many leaves have least variance.

    Source: Qardaji, Yang & Li 2013, for trees whose levels have equal shares.
    """

    def variance(fanout: int) -> float:
        height = 1
        while fanout**height < size:
            height += 1
        return (fanout - 1) * height**3 - 2 * (fanout + 1) * height**2 / 3

    return min(range(2, max(size, 2) + 1), key=variance)


class Pieces(Struct, frozen=True):
    """Bases that are made for what is asked: the cells of its scope, or trees over long axes."""

    records: int
    units: Sequence[Fraction]  # the quanta of the measures
    ordered: Sequence[bool]  # by axis
    trees: bool = False

    def __call__(self, family: Family) -> Base | None:
        """Return the base for a family; None where its scope has too many cells."""
        space = family.query.space
        whole = plain(family.query, self.units)
        if whole is None or space.cells(family.scope) > MAX_ROWS:
            return None
        return self.base(whole, family.scope)

    def base(self, whole: LinearQuery, axes: Iterable[int]) -> Base:
        """Return the base of a constant query over some axes."""
        kept = sorted(axes)
        axis = self.over(kept, whole.space) if self.trees else None
        if axis is None:
            return Base((marginal(whole, kept),), self.records)
        return Base(tree(whole, kept, axis, fanout_of(whole.space.sizes[axis])), self.records)

    def over(self, axes: Iterable[int], space: Space) -> int | None:
        """Return the axis that a tree over some axes would be of; None where none is long."""
        long = [axis for axis in axes if self.ordered[axis] and space.sizes[axis] > SHORT]
        best = max(long, key=lambda axis: space.sizes[axis], default=None)
        return (
            best if best is not None and fanout_of(space.sizes[best]) < space.sizes[best] else None
        )
