"""What a limit affords: requests made wider until what they cost fits.

Requests are widened dearest first: none costs more than a common price, and what is cheaper stays
as it was asked for (max-min fairness).  What a plan then costs is tried, for it may need less than
its rows by themselves.  Invariant: all of it follows from public queries and the plans that the
history allows; the limit itself is kept by ``measure.py``, in integers.

Units: half-widths in answer units; prices in alpha.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from proxy.accountant import Accountant
from proxy.engine.goals import Goal
from proxy.engine.goals.linear import AbsoluteGoal
from proxy.engine.measure import Measurer
from proxy.engine.progress import Progress
from proxy.engine.reports import widened_to, within
from proxy.errors import InsufficientBudgetError
from proxy.inference import steps
from proxy.inference.accounting import UNIT
from proxy.inference.plan import AccuracyTarget

TRIES = 10  # of common prices
NEAR = 1.03  # a price is not looked for nearer than this
DIGITS = 3  # of the half-widths that are recommended

Fits = Callable[[Sequence[AccuracyTarget]], bool]


def widened(
    targets: Sequence[AccuracyTarget], widest: Sequence[Fraction | None], start: float, fits: Fits
) -> list[AccuracyTarget] | None:
    """Return the targets as near to what was asked as fits, none wider than its ``widest``.

    ``start`` is a price to be tried first.  None, where not even the widest fit.
    """
    ends = [most and max(most, t.half_width) for t, most in zip(targets, widest, strict=True)]

    def at(price: float) -> list[AccuracyTarget]:
        found = []
        for target, end in zip(targets, ends, strict=True):
            half = max(steps.narrowest(target.family, price, target.delta), target.half_width)
            found.append(replace(target, half_width=half if end is None else min(half, end)))
        return found

    prices = [_price(target) for target in targets]
    high = max(prices, default=0.0)
    lowest = [
        start / (8 * len(targets)) if end is None else _price(replace(target, half_width=end))
        for target, end in zip(targets, ends, strict=True)
    ]
    low = min((price for price in lowest if price), default=0.0)
    if not 0 < low < high:
        return None
    known = False  # whether the lowest price is seen to fit
    for probe in (start, start / max(len(targets), 1)):  # of one number; of all, in the same cells
        if low < probe < high:
            if fits(at(probe)):
                low, known = probe, True
                break
            high = probe
    if not known and not fits(at(low)):
        return None
    probe = low * NEAR if known else math.sqrt(low * high)
    for _ in range(TRIES):
        if high <= low * NEAR:
            break
        low, high = (probe, high) if fits(at(probe)) else (low, probe)
        probe = math.sqrt(low * high)
    return at(low)


def _price(target: AccuracyTarget) -> float:
    return steps.price(target.family, target.half_width, target.delta)


class Afforded(Struct, frozen=True):
    """What a step measures under a limit."""

    goals: Sequence[Goal]  # those of one step as wide as they had to be made
    progress: list[Progress]
    refusal: str = ""  # why the step measures less than was asked; nothing, where it does not
    notices: tuple[str, ...] = ()


def afford(
    accountant: Accountant, goals: Sequence[Goal], progress: list[Progress], measurer: Measurer
) -> Afforded:
    """Return a step of a statement as the limit on its cost affords it.

    Raises:
        InsufficientBudgetError: of some number it affords nothing that says anything.
    """
    bill, records = measurer.asker.bill, accountant.history.records
    rest = None if bill is None else bill.rest
    if bill is None or bill.limit is None or rest is None:
        return Afforded(goals, progress)
    progress = [replace(each, targets=tuple(_useful(each, records))) for each in progress]
    targets = list(chain(*(each.targets for each in progress)))
    asked = measurer.cost(accountant, targets)
    if asked is not None and asked <= rest:
        return Afforded(goals, progress)

    def fits(tried: Sequence[AccuracyTarget]) -> bool:
        measurer.cancellation()
        cost = measurer.cost(accountant, tried)
        return cost is not None and cost <= rest

    found = widened(targets, _widest(goals, progress, records), rest / UNIT, fits)
    if found is None:
        _require_known(accountant, goals, progress, measurer, asked)
        found = [  # no step is possible: what is known is the answer
            target
            for goal, each in zip(goals, progress, strict=True)
            for target in each.targets
            if isinstance(goal, AbsoluteGoal)
        ]
        progress = [
            each if isinstance(goal, AbsoluteGoal) else replace(each, targets=())
            for goal, each in zip(goals, progress, strict=True)
        ]
    price = _cost(asked)
    limit = bill.limit / UNIT
    refusal = (
        f"the step that it needs costs {price}, and of the {limit:.4g} that the statement may cost "
        f"{rest / UNIT:.4g} is left"
    )
    made: list[Goal] = []
    steps_made, notices, at = [], [], 0
    for goal, each in zip(goals, progress, strict=True):
        mine = tuple(found[at : at + len(each.targets)])
        at += len(each.targets)
        steps_made.append(replace(each, targets=mine))
        if isinstance(goal, AbsoluteGoal) and mine and mine[0].half_width > goal.half_width:
            notices.append(widened_to(goal, mine[0].half_width, price, limit))
            goal = replace(goal, half_width=mine[0].half_width)
        made.append(goal)
    return Afforded(made, steps_made, refusal, tuple(notices))


def _require_known(
    accountant: Accountant,
    goals: Sequence[Goal],
    progress: Sequence[Progress],
    measurer: Measurer,
    asked: int | None,
) -> None:
    """Refuse a statement of which some number would be unknown, unless a first look was paid."""
    history, bill = accountant.history, measurer.asker.bill
    paid = bill is not None and bill.charged
    if all(
        (paid and not isinstance(goal, AbsoluteGoal))
        or (goal.known(history, measurer.cancellation) and not each.new)
        for goal, each in zip(goals, progress, strict=True)
    ):
        return
    widest = _widest(goals, progress, history.records)
    targets = [
        replace(target, half_width=max(most or target.half_width, target.half_width))
        for target, most in zip(chain(*(each.targets for each in progress)), widest, strict=True)
    ]
    least = measurer.cost(accountant, targets)
    hint = "ask for fewer numbers, or let it cost more"
    if least is not None:
        shown = "a first look"
        if _all_absolute(goals):
            shown = fitting_text(goals, targets)
        hint = f"the widest request that says anything, {shown}, costs {least / UNIT:.4g}"
    raise measurer.refused(measurer.over_limit(asked, hint))


def _all_absolute(goals: Sequence[Goal]) -> bool:
    return all(isinstance(goal, AbsoluteGoal) for goal in goals)


def _widest(
    goals: Sequence[Goal], progress: Sequence[Progress], records: int
) -> list[Fraction | None]:
    """Return for each target the widest half-width that is worth asking for.

    None, where that follows from what is known.
    """
    return [
        steps.widest(target.family, records) if isinstance(goal, AbsoluteGoal) or each.new else None
        for goal, each in zip(goals, progress, strict=True)
        for target in each.targets
    ]


def _useful(progress: Progress, records: int) -> Iterator[AccuracyTarget]:
    """Yield what a step measures, a first look so near that it may say something."""
    for target in progress.targets:
        most = steps.widest(target.family, records) if progress.new else target.half_width
        yield replace(target, half_width=min(target.half_width, most))


def with_what_fits(
    error: Exception, accountant: Accountant, goals: Sequence[Goal], measurer: Measurer
) -> None:
    """Add to a refusal for want of budget the nearest request that would not be refused."""
    if isinstance(error, InsufficientBudgetError) and (text := what_fits(
        accountant, goals, measurer, error.left
    )):  # fmt: skip
        error.hint = f"{text} would fit; else {error.hint}" if error.hint else f"{text} would fit"


def what_fits(
    accountant: Accountant, goals: Sequence[Goal], measurer: Measurer, left: float = 0.0
) -> str:
    """Return the nearest request that would not be refused in words; nothing, where none is."""
    progress = [goal.progress(accountant.history) for goal in goals]
    if not _all_absolute(goals):
        return ""  # what that would cost depends on sizes that are not known
    targets = list(chain(*(each.targets for each in progress)))

    def fits(tried: Sequence[AccuracyTarget]) -> bool:
        measurer.cancellation()
        rounded = [replace(each, half_width=_rounded(each.half_width)) for each in tried]
        return not measurer.refusal(accountant, rounded)

    widest = _widest(goals, progress, accountant.history.records)
    found = widened(targets, widest, left, fits)
    return fitting_text(goals, found) if found else ""


def fitting_text(goals: Sequence[Goal], targets: Sequence[AccuracyTarget]) -> str:
    """Return a request for all numbers in words."""
    pairs = [(_rounded(each.half_width), goal) for goal, each in zip(goals, targets, strict=False)]
    if len({(half, goal.delta) for half, goal in pairs}) == 1:
        half, goal = pairs[0]
        return f"WITH UTILITY ({within(half)}, {goal.delta:g})"
    return ", ".join(f"{goal.number.label} within {within(half)}" for half, goal in pairs)


def _rounded(half: Fraction) -> Fraction:
    """Return a half-width rounded up to a few digits."""
    step = Fraction(10) ** (math.floor(math.log10(half)) - DIGITS + 1)
    return -(-half // step) * step


def _cost(units: int | None) -> str:
    return "more than any cell has" if units is None else f"{units / UNIT:.4g}"
