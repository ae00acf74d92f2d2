"""The public domain: the axes of the data cube and its measures, all declared, none read off data.

An axis has one cell for each declared value (or bin), in code order 0, 1, ..., and, where NULLs
or values outside the domain are grouped, one more cell, the last, that SQL sees as NULL.  A
measure is a clipped, quantized number of a record; cells hold exact integer sums of its quanta.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

Value = int | str | bool | Decimal | float | datetime.date | datetime.datetime
TYPES = ("integer", "text", "boolean", "decimal", "date", "timestamp")


@dataclass(frozen=True)
class Attribute:
    """One axis.  Binned axes have ``edges``: bin i is [edges[i], edges[i+1]), shown as edges[i].

    ``source`` is the SQL expression (over the source's columns) that the cube is built from.
    ``nulls`` is group | drop | error, ``outside`` is group | drop | clamp | error.
    ``levels`` maps the name of a coarser column to {label: member values}.
    """

    name: str
    type: str  # one of TYPES
    values: tuple[Value, ...]  # [cells] the value of each cell; of a bin, its lower edge
    edges: tuple[Value, ...] | None = None  # [cells + 1]
    nulls: str = "drop"
    outside: str = "drop"
    cut: str = "refuse"  # a predicate that cuts a bin: refuse | snap
    source: str | None = None
    levels: Mapping[str, Mapping[str, tuple[Value, ...]]] | None = None

    @property
    def null(self) -> bool:
        """Whether the axis has a last cell that SQL sees as NULL."""
        return "group" in (self.nulls, self.outside)

    @property
    def binned(self) -> bool:
        """Whether a cell stands for more than one value."""
        return self.edges is not None

    @property
    def size(self) -> int:
        """The number of cells along the axis."""
        return len(self.values) + self.null

    @cached_property
    def codes(self) -> dict[Value, int]:
        """The code of each declared value."""
        return {value: code for code, value in enumerate(self.values)}

    def value(self, code: int) -> Value | None:
        """Return the value SQL shows for a cell; None for the NULL cell."""
        return self.values[code] if code < len(self.values) else None


@dataclass(frozen=True)
class Measure:
    """A number of each record, clipped to [low, high] and rounded to a multiple of ``quantum``."""

    name: str
    low: Fraction  # units of the measure, a multiple of quantum
    high: Fraction
    quantum: Fraction
    nulls: str = "drop"  # group (kept, as NULL) | drop (the record) | error
    source: str | None = None

    @property
    def nullable(self) -> bool:
        """Whether a record may have no value here."""
        return self.nulls == "group"

    @property
    def bounds(self) -> tuple[int, int]:
        """The clip in quanta."""
        return int(self.low / self.quantum), int(self.high / self.quantum)


@dataclass(frozen=True)
class Domain:
    """The axes and measures of one dataset."""

    attributes: tuple[Attribute, ...]
    measures: tuple[Measure, ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of cells along each axis."""
        return tuple(attribute.size for attribute in self.attributes)

    @property
    def cells(self) -> int:
        """The number of cells of the cube."""
        return math.prod(self.sizes)

    @cached_property
    def axis(self) -> dict[str, int]:
        """The index of each attribute by name."""
        return {attribute.name: i for i, attribute in enumerate(self.attributes)}

    @cached_property
    def measure(self) -> dict[str, int]:
        """The index of each measure by name."""
        return {measure.name: i for i, measure in enumerate(self.measures)}
