"""Steps towards a goal that depends on the size of what is asked for: AVG and relative requests.

Nothing is known of a size before a first look at it, which costs every row of a number the same
small part of the budget.  What a row then wants depends on what it was told, released answers
only.  A row that can be told from 0 is met, at a price that follows from its size.  One that
cannot has no size yet: it is looked at again, but at no more than the dearest of the others pays
in the same step, and by itself, so that it costs none of them anything; where that would tell
nothing new it is given up.  Where no row can be told from 0, all are looked at ever closer, until
even the largest that they can be would be dearer than the budget.

Units: half-widths in answer units; prices in alpha.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from msgspec import Struct
from msgspec.structs import replace

from proxy.inference import plan as planning
from proxy.inference.dense_system import key_of
from proxy.inference.estimator import Cancellation, Estimator, never_cancel
from proxy.inference.family import Family
from proxy.inference.history import History
from proxy.inference.plan import AccuracyTarget

STEPS = 5  # of a goal
BUCKETS = 2  # half-widths are rounded down to this many steps an octave: rows then share a family
CLOSER = 4  # how many times as near a row is looked at that cannot be told from 0
EXACT = 0.99  # of a step of the grid: within this a row is known exactly
NEWS = 0.8  # of the half-width that is known: a wider one would tell nothing new
TIGHTER = Fraction(3, 4)  # of what was wanted of a row, where that is known and was not enough
TIGHTENED = 64  # times, at most
WIDER = 10  # times the least variance: what has more is not the narrowest
SMALLEST = Fraction(1, 10**9)  # half-width that is asked for: none is 0

Asked = tuple[int, Fraction, float]  # which family, half_width, delta


class Look(Struct, frozen=True):
    """The request of the next step for one row: none where it is met, or given up."""

    asked: tuple[Asked, ...] = ()
    price: float = 0.0  # of what is asked, by itself
    met: bool = False
    told: bool = True  # from 0, or not looked at yet
    new: bool = False  # whether nothing is known of it yet
    known: float = math.inf  # the half-width that is known of a row that cannot be told from 0


MET = Look(met=True)
LOST = Look(told=False)
LEFT_OUT = Look()


def price(family: Family, half_width: Fraction, delta: float) -> float:
    """Return the alpha of a row that is measured by itself."""
    return planning.price(family, max(half_width, SMALLEST), delta)


def priced(families: Sequence[Family], *asked: Asked) -> Look:
    """Return a look with these requests, and its price."""
    return Look(asked, math.fsum(price(families[i], half, delta) for i, half, delta in asked))


def first(family: Family, alpha: float, delta: float) -> Look:
    """Return the first look at a row."""
    return Look(((0, within(family, alpha, delta), delta),), alpha, new=True)


def within(family: Family, alpha: float, delta: float) -> Fraction:
    """Return the half-width that ``alpha`` buys for a row, or a little more."""
    return Fraction(family.sensitivity * math.log(1 / delta) / alpha) * family.grid


def widest(family: Family, records: int) -> Fraction:
    """Return the widest half-width that says anything of a row, of at most so many records."""
    low, high = family.query.span
    return max(records * family.grid * (high - low) / 2 - family.grid, family.grid)


def narrowest(family: Family, alpha: float, delta: float) -> Fraction:
    """Return the least half-width that a row by itself has for ``alpha``: of whole grid steps."""
    if not family.sensitivity:
        return SMALLEST
    rate = alpha / family.sensitivity
    goal = math.log(delta * (1 - 1e-9) - 2e-12)  # as in ``planning.least_rate``
    steps = math.ceil((math.log(2) - math.log1p(math.exp(-rate)) - goal) / rate) - 1
    half = max(steps, 1) * family.grid
    while price(family, half, delta) > alpha and half < family.grid * 2 * max(steps, 1):
        half += family.grid * max(1, steps // 2**40)
    return half


def closer(family: Family, width: float, delta: float) -> Look:
    """Return a closer look at a row that cannot be told from 0, known within ``width``."""
    half = max(Fraction(width) / CLOSER, Fraction(EXACT) * family.grid)
    if half > NEWS * width:
        return LOST
    return replace(priced([family], (0, half, delta)), told=False, known=width)


def capped(looks: Mapping[int, Look], families: Sequence[Family]) -> dict[int, Look]:
    """Return the looks, those at rows that cannot be told from 0 no dearer than the others."""
    prices = [look.price for look in looks.values() if look.told]
    if not prices:
        return dict(looks)
    dearest = max(prices)
    return {
        row: look if look.told else _capped(look, families, dearest) for row, look in looks.items()
    }


def _capped(look: Look, families: Sequence[Family], dearest: float) -> Look:
    if not look.asked or look.price <= dearest:
        return look
    if not dearest:
        return LOST
    asked, total = [], 0.0
    for which, wanted, delta in look.asked:
        family, part = families[which], dearest / len(look.asked)
        half = max(wanted, within(family, part, delta))
        while (cost := price(family, half, delta)) > part:
            half *= Fraction(5, 4)
        if half > NEWS * look.known:
            return LOST
        asked.append((which, half, delta))
        total += cost
    return replace(look, asked=tuple(asked), price=total)


def bucketed(looks: Mapping[int, Look], families: Sequence[Family]) -> Iterator[AccuracyTarget]:
    """Yield the targets of looks, rows of similar half-widths together.

    Rows that can be told from 0 and rows that cannot are never measured together.
    """
    buckets: dict[tuple[int, bool, float, int], dict[int, Fraction]] = {}
    for row, look in looks.items():
        for which, asked, delta in look.asked:
            half = max(asked, SMALLEST)
            bucket = (which, look.told, delta, math.floor(BUCKETS * math.log2(half)))
            buckets.setdefault(bucket, {})[row] = half
    for (which, _, delta, _), halves in sorted(buckets.items(), key=lambda item: item[0][0]):
        yield AccuracyTarget(families[which].subset(list(halves)), min(halves.values()), delta)


def inferred(
    history: History,
    family: Family,
    row: int,
    half: Fraction,
    delta: float,
    cancellation: Cancellation = never_cancel,
) -> bool:
    """Return whether a plan would infer a row rather than measure it."""
    target = AccuracyTarget(family.subset([row]), max(half, SMALLEST), delta)
    return planning.estimators(history, target, cancellation)[0] is not None


def known(
    history: History, family: Family, delta: float, cancellation: Cancellation = never_cancel
) -> list[Estimator | None]:
    """Return the narrowest estimator of every row of a family; None where there is none."""
    matched = history.singles.matching(family)
    found: list[Estimator | None] = []
    rows = family.queries()
    if family.rows <= planning.MAX_ROWS_BEST:
        history.prepare(family, rows, cancellation)
    for row, query in enumerate(rows):
        if family.rows <= planning.MAX_ROWS_BEST:
            candidates = history.estimators(query, cancellation, deep=True)
            candidates = candidates or history.good_enough.get(key_of(query))
        else:
            candidates = history.alone(query, cancellation)
        if matched is not None:
            candidates = [matched[row], *candidates]
        found.append(_narrowest(candidates, delta))
    return found


def _narrowest(candidates: Sequence[Estimator], delta: float) -> Estimator | None:
    """Return the estimator of least half-width: of least variance is another one on a lattice."""
    least = min((each.variance for each in candidates), default=0.0)
    near = [each for each in candidates if each.variance <= WIDER * least]
    if len(near) < 2:
        return near[0] if near else None
    return min(near, key=lambda each: (planning.half_width(each, delta), each.variance))
