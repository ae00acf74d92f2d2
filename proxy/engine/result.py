"""Results: the outer SQL run on the noisy numbers, and which number each cell of a row is.

Nothing here reads the history: it is handed every number with its interval.  Invariant: rounding
and the settings ``privacy.nonnegative`` and ``privacy.columns`` change what is shown, never an
estimate or an interval in ``answers``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from proxy.engine.answers import Answer
from proxy.engine.derived import intervals, settled
from proxy.engine.digits import ends
from proxy.inference.query import LinearQuery
from proxy.settings import COLUMNS, NONNEGATIVE, Settings
from proxy.sql import Column, Evaluator, Number, Origin, Program, Rows, postprocess

Companions = Sequence[Sequence[float | bool | None]]  # [companion][row] of one number


@dataclass(frozen=True)
class Result:
    """What a statement gives.  ``answers`` has, for each row, one Answer for each of its numbers;
    ``places`` the columns in which they stand.  ``cost`` and ``left`` are in alpha: what the
    dearest cell paid, and what the limit ``left_of`` has left, the least that binds the user now.
    ``numbers`` are all that the statement asked for, shown or not, of which so many were
    ``measured``.
    """

    columns: tuple[Column, ...]
    rows: list[tuple[Any, ...]]
    answers: list[list[Answer]]
    cost: float
    left: float
    notices: tuple[str, ...] = ()
    tag: str = ""
    places: list[list[int]] = field(default_factory=list)
    left_of: str = ""
    numbers: int = 0
    measured: int = 0
    left_in_cells: float = math.nan  # in the cell that has least, whoever asks


@dataclass(frozen=True)
class Numbers:
    """Every number of a statement, in the order of its releases."""

    answers: Sequence[Sequence[Answer]]  # [number][row]
    companions: Sequence[Companions]  # [number][companion][row]
    reaches: Sequence[tuple[Sequence[float], Sequence[float]]] = ()  # [number], where it is derived


def assemble(
    program: Program,
    numbers: Numbers,
    systems: Mapping[str, Sequence[Sequence[Any]]],
    settings: Settings,
    evaluator: Evaluator,
) -> tuple[Rows, list[list[Answer]], list[list[int]], tuple[str, ...]]:
    """Return the rows of a statement, for each row its answers and their columns, and notices.

    Raises:
        DataError: an expression of the outer SQL fails on the noisy answers.
    """
    clamp = settings.value(NONNEGATIVE)
    answers, companions = iter(numbers.answers), iter(numbers.companions)
    known: list[Sequence[Sequence[Answer]]] = [
        [next(answers) for _ in release.numbers] for release in program.releases
    ]
    more = [[next(companions) for _ in release.numbers] for release in program.releases]
    values = [
        [
            [shown(answer.estimate, number, clamp) for answer in column]
            for number, column in zip(release.numbers, columns, strict=True)
        ]
        for release, columns in zip(program.releases, known, strict=True)
    ]
    rows = postprocess(program, values, evaluator, more, systems)
    notices: tuple[str, ...] = ()
    if program.derived:
        derived, notices = intervals(program, known, numbers.reaches)
    found = [[origin and _answer(known, origin) for origin in row] for row in rows.origins]
    if program.derived:
        rows, found = settled(rows, found, derived)
    if settings.value(COLUMNS):
        return *_with_columns(program, rows, found), notices
    places = [[i for i, answer in enumerate(row) if answer] for row in found]
    return rows, [[answer for answer in row if answer] for row in found], places, notices


def _answer(known: Sequence[Sequence[Sequence[Answer]]], origin: Origin) -> Answer:
    release, number, row = origin
    return known[release][number][row]


def shown(estimate: float, number: Number, clamp: bool) -> int | float | None:
    """Return a number as it stands in rows: a bigint is whole, a ratio over nothing is NULL."""
    if math.isnan(estimate):
        return None
    if clamp and number.kind != "avg" and number.shift >= 0 and never_negative(number.family.query):
        estimate = max(estimate, 0.0)
    return round(estimate) if number.whole else estimate


def never_negative(query: LinearQuery) -> bool:
    """Return whether the true answer cannot be below 0, whatever the data."""
    for part, term in query.parts.items():
        if term.scale < 0 or any(factor.array.min() < 0 for factor in term.factors):
            return False
        if part % 2 and query.space.boxes[part // 2].low < 0:
            return False
    return True


def _with_columns(
    program: Program, rows: Rows, found: Sequence[Sequence[Answer | None]]
) -> tuple[Rows, list[list[Answer]], list[list[int]]]:
    """Add <name>_low, <name>_high and <name>_source beside each column that holds numbers."""
    width = len(rows.columns)
    holds = [at is not None for at in program.provenances] or [False] * width

    def beside(i: int, answer: Answer | None) -> Iterator[Any]:
        if holds[i]:
            yield from ((*ends(answer), answer.source) if answer else (None, None, "derived"))

    place = [i + 3 * sum(holds[:i]) for i in range(width)]
    wide = [
        tuple(chain(*((row[i], *beside(i, answers[i])) for i in range(width))))
        for row, answers in zip(rows.rows, found, strict=True)
    ]
    places = [[place[i] for i, answer in enumerate(answers) if answer] for answers in found]
    return (
        Rows(wide_columns(program), wide, ()),
        [[answer for answer in answers if answer] for answers in found],
        places,
    )


def columns(program: Program, settings: Settings) -> tuple[Column, ...]:
    """Return the columns that the rows of a statement will have."""
    return wide_columns(program) if settings.value(COLUMNS) else program.columns


def wide_columns(program: Program) -> tuple[Column, ...]:
    """Return the columns of a statement, each that holds numbers with its interval and source."""
    found: list[Column] = []
    for i, column in enumerate(program.columns):
        found.append(column)
        if program.provenances and program.provenances[i] is not None:
            found += [Column(f"{column.name}_{end}", "double precision") for end in ("low", "high")]
            found.append(Column(f"{column.name}_source", "text"))
    return tuple(found)
