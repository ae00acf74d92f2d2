"""How a Result (``answers.py``) is made: the outer SQL run on the noisy numbers, and which number
each cell of a row is.

Nothing here reads the history: it is handed every number with its interval.  Invariant: rounding
and the settings ``privacy.nonnegative`` and ``privacy.columns`` change what is shown, never an
estimate or an interval in ``answers``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from proxy.engine.allowances import Allowance
from proxy.engine.answered import Relations, Sources
from proxy.engine.answers import Answer, Explanation, Result
from proxy.engine.compiler import Compiler
from proxy.engine.functions.cells import computed
from proxy.engine.functions.derived import intervals, settled
from proxy.engine.functions.digits import ends
from proxy.engine.functions.numbers import Numbers
from proxy.engine.outcomes import Inference, Outcome, reaches
from proxy.inference.accounting import UNIT
from proxy.inference.estimator import Cancellation, never_cancel
from proxy.inference.query import LinearQuery
from proxy.settings import COLUMNS, NONNEGATIVE, Settings
from proxy.sql import Column, Number, Origin, Program, Rows, draw, parameters, postprocess


def present(
    program: Program,
    inference: Inference,
    relations: Relations,
    settings: Settings,
    compiler: Compiler,
    allowance: Allowance,
    left_in_cells: float,
    cancellation: Cancellation = never_cancel,
    *,
    told: bool = True,
    sources: Sources | None = None,
) -> Result:
    """Run the outer SQL on the numbers, and return the rows with all that is told of them.

    Of computed numbers nothing is told if not ``told``.  With ``sources``, numbers are explained.

    Raises:
        DataError: an expression of the outer SQL fails on the noisy answers.
    """
    rows, cells, notices = assemble(
        program, inference.outcomes, relations, settings, compiler, cancellation if told else None
    )
    released = by_release(program, inference.outcomes)
    explained: list[list[Explanation | None]] = []
    if sources is not None:
        from proxy.engine.explained.explanations import explanations  # with more of numpy

        explained = explanations(rows.origins, cells, released, sources, cancellation)
    places = [[i for i, answer in enumerate(row) if answer] for row in cells]
    if settings.value(COLUMNS):
        rows, places = _with_columns(program, rows, cells)
    numbers = [answer.source for column in inference.answers for answer in column]
    return Result(
        columns=tuple(rows.columns),
        rows=list(rows.rows),
        answers=[[answer for answer in row if answer] for row in cells],
        cost=inference.cost / UNIT,
        left=allowance.left,
        notices=program.notices + inference.notices + notices,
        tag=f"SELECT {len(rows.rows)}",
        places=places,
        left_of=allowance.name,
        numbers=len(numbers),
        measured=numbers.count("measured"),
        left_in_cells=left_in_cells,
        explanations=explained,
    )


def by_release(program: Program, outcomes: Sequence[Outcome]) -> list[list[Outcome]]:
    """Return the outcomes of each release's numbers."""
    numbers = iter(outcomes)
    return [[next(numbers) for _ in release.numbers] for release in program.releases]


def assemble(
    program: Program,
    outcomes: Sequence[Outcome],
    relations: Relations,
    settings: Settings,
    compiler: Compiler,
    cancellation: Cancellation | None,
) -> tuple[Rows, list[list[Answer | None]], tuple[str, ...]]:
    """Return the rows of a statement, the answer of each cell that is a number, and notices."""
    clamp = settings.value(NONNEGATIVE)
    released = by_release(program, outcomes)
    values = [
        [
            [shown(answer.estimate, each.number, clamp) for answer in each.answers]
            for each in release
        ]
        for release in released
    ]
    companions = [[each.companions for each in release] for release in released]
    answers = [[each.answers for each in release] for release in released]
    rows = postprocess(program, values, compiler, companions, relations)
    notices: tuple[str, ...] = ()
    derived: list[list[Answer]] = []
    if program.derived:
        derived, notices = intervals(program, answers, [reaches(each) for each in outcomes])
    cells = [[origin and _answer(answers, origin) for origin in row] for row in rows.origins]
    if program.derived:
        rows, cells = settled(rows, cells, derived)
    if program.traces and cancellation is not None:
        given = parameters(program, values, companions, relations)
        functions, more = computed(
            Numbers(program, released, values, derived),
            rows,
            lambda drawn, count: draw(program, compiler, given, drawn, count),
            cancellation,
        )
        notices += more
        cells = [
            [known or found for known, found in zip(*pair, strict=True)]
            for pair in zip(cells, functions, strict=True)
        ]
    return rows, cells, notices


def _answer(answers: Sequence[Sequence[Sequence[Answer]]], origin: Origin) -> Answer:
    release, number, row = origin
    return answers[release][number][row]


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
    program: Program, rows: Rows, cells: Sequence[Sequence[Answer | None]]
) -> tuple[Rows, list[list[int]]]:
    """Add <name>_low, <name>_high and <name>_source beside each column that holds numbers."""
    width = len(rows.columns)
    holds = [_holds(program, i) for i in range(width)]

    def beside(i: int, answer: Answer | None) -> Iterator[Any]:
        if holds[i]:
            yield from _shown(answer)

    place = [i + 3 * sum(holds[:i]) for i in range(width)]
    wide = [
        tuple(chain(*((row[i], *beside(i, answers[i])) for i in range(width))))
        for row, answers in zip(rows.rows, cells, strict=True)
    ]
    places = [[place[i] for i, answer in enumerate(answers) if answer] for answers in cells]
    return Rows(wide_columns(program), wide, ()), places


def _holds(program: Program, column: int) -> bool:
    """Return whether a column has released numbers, or what is computed from them."""
    numbers = program.provenances and program.provenances[column] is not None
    return bool(numbers or (program.traces and program.traces[column]))


def _shown(answer: Answer | None) -> tuple[float | None, float | None, str]:
    """Return the ends of an interval, without those that it has not, and its source."""
    if answer is None:
        return None, None, "derived"
    low, high = (end if math.isfinite(end) else None for end in ends(answer))
    return low, high, answer.source


def columns(program: Program, settings: Settings) -> tuple[Column, ...]:
    """Return the columns that the rows of a statement will have."""
    return wide_columns(program) if settings.value(COLUMNS) else program.columns


def wide_columns(program: Program) -> tuple[Column, ...]:
    """Return the columns of a statement, each that holds numbers with its interval and source."""
    wide: list[Column] = []
    for i, column in enumerate(program.columns):
        wide.append(column)
        if _holds(program, i):
            wide += [Column(f"{column.name}_{end}", "double precision") for end in ("low", "high")]
            wide.append(Column(f"{column.name}_source", "text"))
    return tuple(wide)
