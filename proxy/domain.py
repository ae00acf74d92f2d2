"""The public domain: the axes of the data cube and its measures, all declared, none read off data.

An axis has one cell for each declared value (or bin), in code order 0, 1, ..., and, where NULLs
or values outside the domain are grouped, one more cell, the last, that SQL sees as NULL.  A
measure is a clipped, quantized number of a record; cells hold exact integer sums of its quanta.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

LONG = 1000  # values; a longer list is described by its length and hash

Value = int | str | bool | Decimal | float | datetime.date | datetime.datetime
TYPES = ("integer", "text", "boolean", "decimal", "date", "timestamp")


class Attribute(Struct, frozen=True, dict=True):
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

    @cached_property
    def small(self) -> bool:
        """Whether all values are whole numbers of 32 bits."""
        values = self.edges or self.values
        return all(isinstance(value, int) and -(2**31) <= value < 2**31 for value in values)

    @cached_property
    def longest(self) -> int:
        """The most bytes that a value has as a text."""
        return max((len(str(value).encode()) for value in self.values), default=1)

    @cached_property
    def decimals(self) -> int | None:
        """The most decimals of a value; None where none is a decimal."""
        values = [value for value in self.values if isinstance(value, Decimal)]
        return max((-int(value.as_tuple().exponent) for value in values), default=None)

    def value(self, code: int) -> Value | None:
        """Return the value SQL shows for a cell; None for the NULL cell."""
        return self.values[code] if code < len(self.values) else None

    @property
    def days(self) -> list[datetime.date]:
        """The days that the cells of an axis of dates, or timestamps, begin with."""
        values: Any = self.values
        return [value.date() for value in values] if self.type == "timestamp" else list(values)

    def before(self, day: datetime.date) -> list[bool]:
        """Return which cells of an axis of dates, or timestamps, begin before a day."""
        return [each < day for each in self.days]

    def ordered_as(self, cells: Sequence[Any]) -> Attribute:
        """Return the axis with its values in a described order, if they are the same values."""
        values = {str(value): value for value in self.values}
        if self.binned or sorted(map(str, cells)) != sorted(values):
            return self
        return replace(self, values=tuple(values[text] for text in cells))


class Measure(Struct, frozen=True):
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


class Domain(Struct, frozen=True, dict=True):
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

    @cached_property
    def layout(self) -> dict[str, Any]:
        """What a code or a position in state stands for, as JSON: axes, values and measures."""
        axes = [[a.name, described(a.edges or a.values), a.null] for a in self.attributes]
        boxes = [[m.name, str(m.quantum), *m.bounds, m.nullable] for m in self.measures]
        return {"attributes": axes, "measures": boxes}

    def ordered_as(self, layout: Mapping[str, Any]) -> Domain:
        """Return the same domain in the order of a layout; itself where that is of another."""
        axes = {name: cells for name, cells, _ in layout["attributes"]}
        measures = [name for name, *_ in layout["measures"]]
        if sorted(axes) != sorted(self.axis) or sorted(measures) != sorted(self.measure):
            return self
        return Domain(
            tuple(self.attributes[self.axis[n]].ordered_as(cells) for n, cells in axes.items()),
            tuple(self.measures[self.measure[name]] for name in measures),
        )


def described(values: Sequence[Value]) -> list[Any]:
    """Return values as texts, or as their number and hash where they are many."""
    texts = [str(value) for value in values]
    if len(texts) <= LONG:
        return texts
    return [len(texts), hashlib.sha256(json.dumps(texts).encode()).hexdigest()]
