"""Rows and families that are used by themselves: what needs no dense system.

A row answers the multiples of its query.  A family answers what its rows add up to:  q = Σ β_i h_i
with β_i = ⟨h_i, q⟩/⟨h_i, h_i⟩  iff  Σ ⟨h_i, q⟩²/⟨h_i, h_i⟩ = ⟨q, q⟩, exactly, since its rows are
orthogonal.  Cost of a query: one look-up, and a look at each family.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxy.inference.dense_system import MeasuredFamily
from proxy.inference.estimator import Estimator, Integers, Rates, whole_multiples
from proxy.inference.family import Family
from proxy.inference.query import LinearQuery

Kind = tuple[frozenset[int], frozenset[int]]  # of families: their scope, and their parts


@dataclass(eq=False)
class Singles:
    """The rows of a history by direction, and its families that are not in the dense system."""

    records: int  # N, the public bound on the number of records
    rates: Rates  # of the history's rows
    _directions: dict[bytes, list[tuple[int, Fraction]]] = field(default_factory=dict)
    _families: list[MeasuredFamily] = field(default_factory=list)
    _newest: dict[bytes, MeasuredFamily] = field(default_factory=dict)  # of each family
    # with least noise
    _nearest: dict[bytes, tuple[Kind, MeasuredFamily]] = field(default_factory=dict)
    _kinds: set[Kind] = field(default_factory=set)  # of these

    def add_row(self, query: LinearQuery, number: int, grid: Fraction) -> None:
        """Add a row whose answer is in units of ``grid``."""
        if not query.zero:
            # what a grid unit of the answer says of it
            unit = Fraction(query.sign) if grid == query.grid else query.sign * grid / query.grid
            self._directions.setdefault(query.direction, []).append((number, unit))

    def add_family(self, block: MeasuredFamily) -> None:
        """Add a family as a whole."""
        block.norms = block.family.products(block.family.query)
        self._families.append(block)
        self.index()

    def truncate(self, row: int) -> None:
        """Forget the rows from a number on."""
        for known in self._directions.values():
            known[:] = [each for each in known if each[0] < row]
        self._families = [block for block in self._families if block.start < row]
        self.index()

    def index(self) -> None:
        """Find the newest block of each family, and the one with the least noise."""
        self._newest = {block.family.key: block for block in self._families}
        order = sorted(self._families, key=lambda block: -block.scale)
        self._nearest = {block.family.key: (_kind(block.family), block) for block in order}
        self._kinds = {kind for kind, _ in self._nearest.values()}

    def estimators(self, query: LinearQuery, but: Container[bytes] = ()) -> Iterator[Estimator]:
        """Yield the estimators from one row that is a multiple, and from one family; ``but``: of
        which it is known already.
        """
        for row in self._directions.get(query.direction, ()):
            yield self._single(query, *row)
        kinds = {
            kind
            for kind in self._kinds
            if kind[0].issuperset(query.axes) and query.parts.keys() <= kind[1]
        }
        for key, (kind, block) in self._nearest.items():
            if kind in kinds and key not in but and (found := self._alone(query, block)):
                yield found

    def last(self, query: LinearQuery) -> Estimator:
        """Return the estimator from the last row that is a multiple of a query; there is one."""
        return self._single(query, *self._directions[query.direction][-1])

    def matching(self, family: Family) -> list[Estimator] | None:
        """Return estimators of all rows of a family that was measured as it stands, if it was."""
        block = self._newest.get(family.key)
        if block is None:
            return None
        sign = np.array([float(family.query.sign * block.family.query.sign)])
        rate = np.array([1 / block.scale])
        return [Estimator(family.grid, np.array([row]), sign, rate) for row in block.rows]

    def _single(self, query: LinearQuery, number: int, unit: Fraction) -> Estimator:
        """Return the estimator from one row that is a multiple of the query."""
        sign = np.array(
            [math.copysign(1.0, query.sign * unit)]
        )  # whole, so that nothing is rounded
        row = np.array([number])
        return Estimator(query.grid * abs(unit), row, sign, self.rates.of(row))

    def _alone(self, query: LinearQuery, block: MeasuredFamily) -> Estimator | None:
        """Return the estimator from the rows of one large family, of the query's columns and
        measures, if it spans the query.
        """
        family = block.family
        if not family.may_span(query):
            return None
        dots = family.products(query)
        used = np.flatnonzero(dots)
        kinds, places, times = _kinds(dots[used], block.norms[used])
        squares = sum(Fraction(n * d * d, norm) for (d, norm), n in zip(kinds, times, strict=True))
        if squares != query.square:
            return None
        step, values, whole = whole_multiples([Fraction(*kind) for kind in kinds])
        coefficients = values[places]
        rounding = 0.0 if whole else float(np.abs(coefficients).sum()) * 2.0**-52
        slack = rounding * block.family.sensitivity
        return Estimator(
            query.grid * step,
            block.start + used,
            coefficients,
            np.full(len(used), 1 / block.scale),
            slack * self.records,
        )


def _kind(family: Family) -> Kind:
    return family.scope, frozenset(family.query.parts)


def _kinds(
    dots: NDArray[Any], norms: NDArray[Any]
) -> tuple[list[tuple[int, int]], Integers, list[int]]:
    """Return the different pairs, the place of each row's pair among them, and how many have it."""
    one, mine = np.unique(dots, return_inverse=True)
    two, theirs = np.unique(norms, return_inverse=True)
    keys, places, times = np.unique(
        mine * len(two) + theirs, return_inverse=True, return_counts=True
    )
    pairs = zip(one[keys // max(len(two), 1)].tolist(), two[keys % max(len(two), 1)].tolist(),
                strict=True)  # fmt: skip
    return list(pairs), places, times.tolist()
