"""A compiled statement: releases of linear queries, and the SQL that turns them into rows.

A ``Program`` holds no data and no noise: it is the same for everybody who sends the text under the
same policy and settings.  Invariant: ``releases`` (rows, groups, numbers) follow from the text and
the public domain alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from msgspec import Struct

from proxy.domain import Value
from proxy.inference.family import Family

Cell = Value | None
Origin = tuple[int, int, int]  # release, number, row
Place = tuple[int, int]  # index of a derived number, row of its release


class Column(Struct, frozen=True):
    """A column of a result, its type by PostgreSQL's name."""

    name: str
    type: str


class Request(Struct, frozen=True):
    """How good a number must be: an interval of confidence 1 − delta within ± half_width."""

    half_width: Fraction  # per cent of the number where relative
    delta: Fraction
    relative: bool = False
    source: str = "clause"  # clause | hint | setting


class GroupColumn(Struct, frozen=True):
    """A grouping column of a release, one value per row."""

    name: str
    type: str
    values: tuple[Cell, ...]


class Companion(Struct, frozen=True):
    """What a statement shows beside a number, one value a row.

    ``low``, ``high``, ``confidence``: of its interval; ``probability``: P(from ≤ number ≤ to), None
    being unbounded, or without an end that is ``strict``, or of the opposite where ``negated``;
    ``present``: whether P(number ≥ 1) is at least the confidence.
    """

    what: str
    least: Fraction | None = None
    most: Fraction | None = None
    strict: tuple[bool, bool] = (False, False)  # of a mean: other numbers have a next multiple
    negated: bool = False


class Quantile(Struct, frozen=True):
    """The value below which a part of the records lie; ``edges`` are those of its bins, if any."""

    part: str
    discrete: bool  # PERCENTILE_DISC
    column: str  # nothing, where it is of an expression
    edges: tuple[float, ...] = ()


class Number(Struct, frozen=True, eq=False):
    """One aggregate of a release point: in row i the answer to row i of ``family``, plus ``shift``.

    Of kind ``avg`` the family is U = SUM − mid · COUNT, ``denominator`` is COUNT of the same
    records, and the number is mid + U / COUNT; ``shift`` is mid, ``bounds`` the least and the
    largest that it can be.
    """

    label: str
    family: Family
    shift: Fraction
    kind: str  # count (whole numbers) | sum | avg
    utility: Request | None  # None: the defaults hold
    position: int | None  # 1-based character of the statement
    measure: str | None = None  # the measure whose default utility applies
    denominator: Family | None = None
    bounds: tuple[Fraction, Fraction] | None = None
    companions: tuple[Companion, ...] = ()
    type: str = "double precision"  # bigint | numeric | real | double precision
    scale: int = 0  # of a numeric: it is shown with so many decimals
    column: str | None = None  # of the result, as the clause would name it
    named: bool = False  # whether the clause does
    quantile: Quantile | None = None  # which the counts are measured for, and its request is of

    @property
    def whole(self) -> bool:
        """Whether it is a whole number, and shown as one."""
        return self.kind == "count" or self.type == "bigint"


class Release(Struct, frozen=True, eq=False):
    """The numbers of one aggregation, and the groups they belong to."""

    index: int  # of its release point in the statement
    groups: tuple[GroupColumn, ...]
    rows: int
    numbers: tuple[Number, ...]

    @property
    def name(self) -> str:
        """The name of its relation."""
        return f"r{self.index}"


class Derived(Struct, frozen=True):
    """An aggregate of values, in each row of ``release``, that follows from their counts.

    These are the number ``number`` of the release ``counts``, whose last group is the value.
    """

    label: str
    release: str
    counts: str
    number: int
    kind: str  # min | max | distinct | mode | percentile | spread
    detail: str = ""  # the part of a percentile, PostgreSQL's name of a spread
    discrete: bool = False  # PERCENTILE_DISC
    edges: tuple[float, ...] = ()  # of the bins, where the values are their lower edges
    whole: bool = False  # all that lies within the bins are whole numbers


class Trace(Struct, frozen=True):
    """How a column of numbers depends on released ones, where it is none of these as it stands.

    ``steps`` are taken, in order, of a linear combination of numbers, or of a ``ratio`` of two:
    ``parts`` are the columns of ``Wide.linear`` in which their terms begin.  Or of what is
    ``drawn``: of a column of ``Wide.drawn``.  ``jumps``: it is no smooth function of them;
    ``hidden``: draws do not tell how noise moves it.  ``numbers`` are what it rests on: the indices
    of a release and of a number of it.
    """

    kind: str  # linear | ratio | drawn | hidden
    numbers: tuple[tuple[int, int], ...]
    parts: tuple[int, ...] = ()
    steps: tuple[tuple[str | float, ...], ...] = ()
    jumps: bool = False


class Wide(Struct, frozen=True):
    """How the computed numbers of a statement depend on released ones, in SQL beside its own.

    ``key`` is the column of the statement's SQL that tells its rows apart.  ``linear`` gives, by
    key, linear combinations: lists of the provenances of numbers (-1: none), and of coefficients;
    ``drawn``, for each draw of all numbers, its number, the key, and values.  Each is empty where
    no column needs it.
    """

    key: int
    linear: str
    drawn: str


class Listing(Struct, frozen=True):
    """The groups ("g") and numbers ("n") of a release that are the columns of a result as they
    stand, by place, and the order of its rows: their own where there is none.
    """

    columns: tuple[tuple[str, int], ...]
    order: tuple[int, ...] = ()


class Program(Struct, frozen=True, eq=False):
    """A statement that answers with rows."""

    text: str
    releases: tuple[Release, ...]
    columns: tuple[Column, ...]
    sql: str  # the post-processing, in DuckDB's dialect, over the relations r0, r1, ...
    provenances: tuple[int | None, ...] = ()  # per column the index of its own among the sql's
    probe: bool = False  # nothing is released: WHERE 1=0, LIMIT 0
    systems: tuple[str, ...] = ()  # the relations of schema privacy that it reads
    notices: tuple[str, ...] = ()
    derived: tuple[Derived, ...] = ()
    traces: tuple[Trace | None, ...] = ()  # of the columns; none where there are only plain numbers
    wide: Wide | None = None
    first: tuple[tuple[str, Program], ...] = ()  # results to be released before it is compiled
    max_cost: Fraction | None = None  # alpha that it may take from a cell, over all its steps
    listing: Listing | None = None  # where the SQL only lists one release


class Command(Struct, frozen=True, eq=False):
    """A statement that is not a query: SET, SHOW, EXPLAIN UTILITY, BEGIN, ..."""

    kind: str  # set | reset | show | explain | begin | commit | rollback | ... | empty
    name: str = ""  # of the setting, or what is shown
    value: str | None = None
    local: bool = False
    program: Program | None = None
    change: object = None  # of the views of the session: a Create or a Drop


class Rows(Struct, frozen=True):
    """A result: its rows, and for each cell the number that it is exactly, if it is one, or which
    derived number.
    """

    columns: tuple[Column, ...]
    rows: Sequence[tuple[Cell, ...]]
    origins: Sequence[tuple[Origin | None, ...]] = ()
    derived: Sequence[tuple[Place | None, ...]] = ()
    keys: Sequence[int] = ()  # of the rows, where some of their numbers are computed
    linear: Mapping[int, Sequence[Any]] = {}  # ``Wide.linear``, if it ran
