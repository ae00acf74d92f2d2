"""Plan until every number is as good as was asked for, or as can be; then infer every number.

Each step is a transaction of its own (``measure.py``).  Where no further step is possible, what the
earlier ones gave is the answer: those of this statement, or those of others, so that asking again
gives the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from proxy.accountant import Accountant
from proxy.engine.answers import Answer
from proxy.engine.bill import Bill
from proxy.engine.goals import Goal
from proxy.engine.measure import REFUSALS, Measurer, Rows
from proxy.engine.reports import unmet
from proxy.inference import plan as planning
from proxy.inference.plan import Wanted

TRIES = 64  # of which rows a step can measure


class Inference(NamedTuple):
    """What is known of every number of a statement, and what it paid, in 2⁻⁴⁰ alpha."""

    answers: list[list[Answer]]  # [number][row]
    cost: int
    notices: tuple[str, ...]

    @property
    def final(self) -> bool:
        """Whether it is so again: free, and no unmet request that more budget may meet."""
        return not self.cost and not self.notices


def infer(accountant: Accountant, goals: Sequence[Goal], measurer: Measurer) -> Inference:
    """Measure what is needed, in steps where a goal needs them, and infer every number."""
    bill = measurer.session.bill
    assert bill is not None
    wants, found, end, more = _meet(accountant, goals, measurer, bill)
    if bill.paid or found is None:  # the history is longer than it was when that was planned
        wants = [goal.wants(accountant.history) for goal in goals]
        found = [planning.estimators(accountant.history, wanted) for wanted in chain(*wants)]
    if not bill.paid:
        measurer.ledger.note("inferred", measurer.session.user, measurer.text)
    rows = iter(found)
    answers = []
    for place, (goal, each) in enumerate(zip(goals, wants, strict=True)):
        rests = bill.rests(place)
        known = goal.answers(accountant.history, [next(rows) for _ in each], rests)
        answers.append(bill.priced(goal.number, known, rests))
    notices = chain(*(unmet(goal, end, more) for goal in goals))
    return Inference(answers, bill.cost(), tuple(notices))


def _meet(
    accountant: Accountant, goals: Sequence[Goal], measurer: Measurer, bill: Bill
) -> tuple[list[list[Wanted]], Sequence[Rows] | None, str, bool]:
    """Measure, step by step, until nothing more is needed or possible.

    Return what the last step wanted, the estimators that it planned with, why it left rows out, and
    whether it has brought something new.
    """
    end, more = "", False
    found: Sequence[Rows] | None = None
    wants: list[list[Wanted]] = []
    for _ in range(max((goal.steps for goal in goals), default=1)):
        measurer.session.check_canceled()
        accountant.catch_up(measurer.ledger)
        wants = [goal.wants(accountant.history) for goal in goals]
        try:
            blocks, found = measurer.measure(accountant, wants)
        except REFUSALS as error:
            end = error.message
            if not leave_out(accountant, goals, measurer) and not bill.paid:
                raise
            wants = [goal.wants(accountant.history) for goal in goals]
            try:
                blocks, found = measurer.measure(accountant, wants)
            except REFUSALS:  # somebody was faster
                if not bill.paid:
                    raise
                break
        more = bool(blocks)
        if not blocks:
            break
    return wants, found, end, more


def leave_out(accountant: Accountant, goals: Sequence[Goal], measurer: Measurer) -> bool:
    """Leave out of the next step the rows that it cannot measure, so that all others are met.

    Cheap rows come first, and what is tried is bounded: what was not tried is left out.  Return
    whether there is something to answer: not where all of a number is left out and unknown.
    """
    rows = [
        (look.price, index, row)
        for index, goal in enumerate(goals)
        for row, look in goal.looks.items()
        if look.asked
    ]
    for _, index, row in rows:
        goals[index].left_out.add(row)
    if not rows or refusal(accountant, goals, measurer):
        return False
    chunks = [sorted(rows)]
    for _ in range(TRIES):
        if not chunks:
            break
        chunk = chunks.pop()
        for _, index, row in chunk:
            goals[index].left_out.discard(row)
        if refusal(accountant, goals, measurer):
            for _, index, row in chunk:
                goals[index].left_out.add(row)
            half = len(chunk) // 2
            chunks += [part for part in (chunk[half:], chunk[:half]) if half]
    wholly = [g for g in goals if len(g.left_out) == g.number.family.rows]
    return all(goal.known(accountant.history) for goal in wholly)


def refusal(accountant: Accountant, goals: Sequence[Goal], measurer: Measurer) -> str:
    """Return why what the goals want now may not be measured; nothing, where it may."""
    return measurer.refusal(
        accountant, list(chain(*(goal.wants(accountant.history) for goal in goals)))
    )
