"""What families say together, and with the best of all other rows.

A family that is too large for the dense system says by itself what its rows add up to
(``singles``).  Where several know a query, or none does by itself, they are solved together
(``system``); and the best estimator from them is mixed with the best from the dense system.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from proxy.inference.dense_system import MeasuredFamily, key_of
from proxy.inference.estimator import Cancellation, Estimator, Floats, Integers, mixed, never_cancel
from proxy.inference.family import Family
from proxy.inference.query import LinearQuery
from proxy.inference.remembered import Key, Remembered
from proxy.inference.space import Space

if TYPE_CHECKING:
    from proxy.inference.families.system import FamilySystem, Solved

NONE: frozenset[bytes] = frozenset()


def _rows(solved: Solved) -> int:
    """Return how many rows an estimator has."""
    return len(solved[0].rows) if solved[0] is not None else 0


def _rows_of_all(solved: Sequence[Solved]) -> int:
    """Return how many rows several estimators have."""
    return sum(map(_rows, solved))


@dataclass(eq=False)
class Together:
    """The families of a history."""

    space: Space
    records: int  # N, the public bound on the number of records
    blocks: Sequence[MeasuredFamily]  # of the history
    _large: int = 0  # families that are not in the dense system
    _count: int = 0  # of the blocks that are families
    _families: dict[bytes, Family] = field(default_factory=dict)  # each once
    _known: Remembered[Solved] = field(  # until a row changes
        default_factory=lambda: Remembered(_rows)
    )
    _solutions: Remembered[Sequence[Solved]] = field(  # by what was asked, until a family changes
        default_factory=lambda: Remembered(_rows_of_all)
    )

    @cached_property
    def _system(self) -> FamilySystem:
        from proxy.inference.families.system import FamilySystem  # scipy's matrices take long

        system = FamilySystem(self.space, self.records)
        for block in self.blocks:
            if block.family.rows > 1:
                system.add(block)
        return system

    def add(self, block: MeasuredFamily) -> None:
        """Follow the history: a block was added to it."""
        if block.family.rows > 1:
            self._solutions.clear()
            self._count += 1
            self._families.setdefault(block.family.key, block.family)
            self._large += block.large
            if "_system" in self.__dict__:
                self._system.add(block)

    def truncate(self, row: int) -> None:
        """Follow the history: its rows from a number on are forgotten."""
        self._large = sum(block.large for block in self.blocks)
        kept = [block.family for block in self.blocks if block.family.rows > 1]
        if len(kept) < self._count:
            self._solutions.clear()
        self._count = len(kept)
        self._families = {family.key: family for family in kept}
        if "_system" in self.__dict__:
            self._system.truncate(row)

    def forget(self) -> None:
        """Forget what was found among the rows as they were."""
        self._known.clear()

    def weigh(self, block: MeasuredFamily) -> None:
        """Follow the history: a block has other noise."""
        if block.family.rows > 1:
            self._solutions.clear()

    def _solved(self, family: Family, first: Key, cancellation: Cancellation) -> Sequence[Solved]:
        """Return what the families say of every row of one, whose first row has this key.

        Single rows say nothing here, however many come in between.
        """
        name = family.key + first[0], *first[1:]
        found = self._solutions.get(name)
        if found is None:
            found = self._system.estimators(family, cancellation)
            self._solutions.put(name, found)
        return found

    def prepare(
        self,
        family: Family,
        rows: Sequence[LinearQuery],
        cancellation: Cancellation = never_cancel,
    ) -> None:
        """Find at once what the families say of every row of one."""
        if self._large > 1 and family.rows > 1 and self._may_know(rows[0]):
            keys = [key_of(row) for row in rows]
            if any(key not in self._known for key in keys):
                found = self._solved(family, keys[0], cancellation)
                self._known.update(dict(zip(keys, found, strict=True)))

    def unasked(self, query: LinearQuery, key: Key) -> bool:
        """Whether families might say more together of a query than they have been asked for."""
        several = self._large > 0 and self._count > 1
        return several and key not in self._known and self._may_know(query)

    def told(self, key: Key) -> frozenset[bytes]:
        """Return the families, by key, that are known to say no more of a query than all do."""
        known = self._known.get(key)
        return known[1] if known else NONE

    def estimators(
        self,
        query: LinearQuery,
        key: Key,
        best: Estimator | None,
        alone: Sequence[Estimator],
        cancellation: Cancellation,
        deep: bool = False,
    ) -> list[Estimator | None]:
        """Return what the families say together, and with the best of the other rows.

        They are asked where that is likely to be more than each says alone: where several know the
        query, or none does, or it is a sum of several unknowns; or in any case.
        """
        if not self._large:
            return []
        many = deep or (best is None and not alone) or len(alone) > 1 or len(query.parts) > 1
        if key not in self._known and many and self._may_know(query):
            self._known.put(key, *self._solved(Family(query), key, cancellation))
        known = self._known.get(key)
        together = known[0] if known else None
        other = together or min(alone, key=lambda each: each.variance, default=None)
        if best is None or other is None:
            return [together]
        return [together, mixed(best, other, self.reach)]

    def _may_know(self, query: LinearQuery) -> bool:
        """Return False where a query varies along axes together that no family has together."""
        return all(
            any(
                part in family.query.parts and needed <= family.scope
                for family in self._families.values()
            )
            for part, needed in (
                (part, {axis for f in term.factors if len(f.axes) == 1 for axis in f.axes})
                for part, term in query.parts.items()
            )
        )

    def reach(self, rows: Integers) -> Floats:
        """[rows] The most that all records together move the answers of rows."""
        starts = [block.start for block in self.blocks]
        used, places = np.unique(
            np.searchsorted(starts, rows, side="right") - 1, return_inverse=True
        )
        most = [float(self.blocks[block].family.sensitivity) for block in used]
        return np.asarray(np.array(most)[places] * self.records)
