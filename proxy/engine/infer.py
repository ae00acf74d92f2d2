"""Measure until every number is as accurate as requested, or as possible; then infer every number.

Each step is a transaction of its own (``measure.py``).  Where no further step is possible, what the
earlier ones gave is the answer: those of this statement, or those of others, so that asking again
gives the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from proxy.accountant import Accountant
from proxy.engine.afford import afford, what_fits, with_what_fits
from proxy.engine.bill import Bill
from proxy.engine.goals import Goal, outcome
from proxy.engine.measure import REFUSALS, Measurer, Rows
from proxy.engine.outcomes import Inference
from proxy.engine.progress import Progress
from proxy.engine.reports import NEXT_TIME, NO_NEARER, dear, unmet
from proxy.errors import InsufficientBudgetError
from proxy.inference import plan as planning
from proxy.inference.estimator import Cancellation

TRIES = 64  # of which rows a step can measure

LeftOut = tuple[frozenset[int], ...]  # [number] rows of which no more is wanted


class LastStep(Struct, frozen=True):
    """The last step of a statement."""

    goals: Sequence[Goal]  # as wide as the limit on the cost has made them
    progress: list[Progress]  # [number] what it was to measure
    planned: Sequence[Rows] | None  # the estimators that it planned with, of every target
    refusal: str = ""  # why rows were left out
    why: str = NO_NEARER  # what ended the steps
    notices: tuple[str, ...] = ()


def infer(accountant: Accountant, goals: Sequence[Goal], measurer: Measurer) -> Inference:
    """Measure what is needed, in steps where a goal needs them, and infer every number."""
    bill, cancellation = measurer.asker.bill, measurer.cancellation
    assert bill is not None
    last = _meet(accountant, goals, measurer, bill)
    goals, history = last.goals, accountant.history
    progress, planned = last.progress, last.planned
    if bill.paid or planned is None:  # the history is longer than it was when that was planned
        progress = _progress(accountant, goals, [p.left_out for p in progress], cancellation)
        targets = chain(*(each.targets for each in progress))
        planned = [planning.estimators(history, target, cancellation) for target in targets]
    if not bill.paid:
        measurer.ledger.note("inferred", measurer.asker.user, measurer.text)
    rows = iter(planned)
    outcomes = []
    for place, (goal, each) in enumerate(zip(goals, progress, strict=True)):
        rests = bill.rests(place)
        estimators = goal.estimators(history, [next(rows) for _ in each.targets], cancellation)
        answers = goal.answers(history, estimators, each.left_out, rests)
        answers = bill.priced(goal.number, answers, rests)
        outcomes.append(outcome(goal, history, estimators, answers))
    notices = (
        unmet(goal, each, told.answers, last.refusal, last.why)
        for goal, each, told in zip(goals, progress, outcomes, strict=True)
    )
    said = (*last.notices, *chain(*notices), *dear(goals, bill))
    return Inference(outcomes, bill.cost(), said)


def _meet(
    accountant: Accountant, goals: Sequence[Goal], measurer: Measurer, bill: Bill
) -> LastStep:
    """Measure, step by step, until nothing more is needed or possible."""
    last = LastStep(goals, [], None)
    left_out: LeftOut = (frozenset(),) * len(goals)
    refusal = ""
    later = bill.limit is not None and len({goal.steps for goal in goals}) > 1
    for _ in range(max((goal.steps for goal in goals), default=1) + later):
        measurer.cancellation()
        accountant.catch_up(measurer.ledger)
        progress = _progress(accountant, goals, left_out, measurer.cancellation)
        later = later and any(each.new for each in progress)
        if later:  # sizes are looked at first, so that the limit is shared out knowing all prices
            progress = [each if each.new else replace(each, targets=()) for each in progress]
        afforded = afford(accountant, goals, progress, measurer)
        goals, progress = afforded.goals, afforded.progress
        notices = last.notices + afforded.notices
        try:
            measured, planned = measurer.measure(accountant, [each.targets for each in progress])
        except REFUSALS as error:
            refusal = error.message
            left_out, answerable = leave_out(accountant, goals, progress, measurer)
            if not answerable and not bill.paid:
                with_what_fits(error, accountant, goals, measurer)
                raise
            progress = _progress(accountant, goals, left_out, measurer.cancellation)
            try:
                measured, planned = measurer.measure(
                    accountant, [each.targets for each in progress]
                )
            except REFUSALS:  # somebody was faster
                if not bill.paid:
                    raise
                return replace(last, progress=progress, refusal=refusal)
        why = afforded.refusal or (NEXT_TIME if measured else NO_NEARER)
        last = LastStep(goals, progress, planned, refusal, why, notices)
        if not later and (not measured or afforded.refusal):
            break
        later = False
    return last


def _progress(
    accountant: Accountant,
    goals: Sequence[Goal],
    left_out: Iterable[frozenset[int]],
    cancellation: Cancellation,
) -> list[Progress]:
    """Return what the next step measures of every number."""
    history, pairs = accountant.history, zip(goals, left_out, strict=True)
    return [goal.progress(history, rows, cancellation) for goal, rows in pairs]


class Forecast(Struct, frozen=True):
    """The first step of a statement, before it is measured."""

    goals: Sequence[Goal]
    progress: list[Progress]  # [number] what it would measure
    refusal: str  # why rows are left out, or the statement is refused
    refused: bool
    notices: tuple[str, ...] = ()


def forecast(accountant: Accountant, goals: Sequence[Goal], measurer: Measurer) -> Forecast:
    """Return what the first step would measure, and whether it would be refused."""
    none: LeftOut = (frozenset(),) * len(goals)
    progress = _progress(accountant, goals, none, measurer.cancellation)
    try:
        afforded = afford(accountant, goals, progress, measurer)
    except InsufficientBudgetError as error:
        return Forecast(goals, progress, f"{error.message}; {error.hint}", True)
    goals, progress = afforded.goals, afforded.progress
    refusal = measurer.refusal(accountant, _targets(progress))
    if not refusal:
        return Forecast(goals, progress, afforded.refusal, False, afforded.notices)
    left_out, answerable = leave_out(accountant, goals, progress, measurer)
    possible = left_out if answerable else none
    progress = _progress(accountant, goals, possible, measurer.cancellation)
    if not answerable and (text := what_fits(accountant, goals, measurer)):
        refusal += f"; {text} would fit"
    return Forecast(goals, progress, refusal, not answerable, afforded.notices)


def leave_out(
    accountant: Accountant,
    goals: Sequence[Goal],
    progress: Sequence[Progress],
    measurer: Measurer,
) -> tuple[LeftOut, bool]:
    """Return the rows that the next step cannot measure, so that all others are met.

    Cheap rows come first, and what is tried is bounded: what was not tried is left out.  Return,
    too, whether there is something to answer: not where all of a number is left out and unknown.
    """
    rows = [
        (look.price, place, row)
        for place, each in enumerate(progress)
        for row, look in each.looks.items()
        if look.asked
    ]
    left_out = [set(each.left_out) for each in progress]

    def refused() -> bool:
        tried = _progress(accountant, goals, map(frozenset, left_out), measurer.cancellation)
        return bool(measurer.refusal(accountant, _targets(tried)))

    for _, place, row in rows:
        left_out[place].add(row)
    if not rows or refused():
        return tuple(map(frozenset, left_out)), False
    chunks = [sorted(rows)]
    for _ in range(TRIES):
        if not chunks:
            break
        chunk = chunks.pop()
        for _, place, row in chunk:
            left_out[place].discard(row)
        if refused():
            for _, place, row in chunk:
                left_out[place].add(row)
            half = len(chunk) // 2
            chunks += [part for part in (chunk[half:], chunk[:half]) if half]
    wholly = [
        goal
        for goal, each, out in zip(goals, progress, left_out, strict=True)
        if each.looks and len(out) == len(each.looks)
    ]
    history = accountant.history
    answerable = all(goal.known(history, measurer.cancellation) for goal in wholly)
    return tuple(map(frozenset, left_out)), answerable


def _targets(progress: Iterable[Progress]) -> list[planning.AccuracyTarget]:
    """Return the targets of all numbers, in their order."""
    return list(chain(*(each.targets for each in progress)))
