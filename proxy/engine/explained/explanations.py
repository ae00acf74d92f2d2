"""Explanations of released numbers: how probable their values are, and what they rest on.

All of it follows from the laws of the noise, from answers that were released, and from statements
that the asking user may see.  A count or a sum, which is one linear query, has an explanation, and
so has an average, whose noise is, nearly, that of one: that of its sum less the average times that
of its count, over the count.  Quantiles, and what is derived from numbers, have none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from proxy.engine.answered import Sources
from proxy.engine.answers import Answer, Explanation, Origin, Posterior
from proxy.engine.outcomes import Outcome, possible
from proxy.inference import plan as planning
from proxy.inference.estimator import Estimator
from proxy.inference.posterior import distribution, ratio_distribution
from proxy.inference.ratio import difference
from proxy.sql.program import Origin as Place  # release, number, row

EXPLAINED = 200  # rows of a result whose numbers are explained
MAX_ORIGINS = 20  # of one number; the rest is taken together
NOTHING = 1e-9  # of the noise: a share that is but a rounding
DIGITS = 10  # of a probability
RARE = 1e-6  # the chance that is left of an average's being of nobody

Places = Sequence[Sequence[Place | None]]


def explanations(
    places: Places,
    answers: Sequence[Sequence[Answer | None]],
    released: Sequence[Sequence[Outcome]],
    sources: Sources,
    cancellation: Callable[[], None],
) -> list[list[Explanation | None]]:
    """Return an explanation, or None, for each answer of each row."""
    known: dict[Place, Explanation | None] = {}
    rows: list[list[Explanation | None]] = []
    for i, (line, cells) in enumerate(zip(places, answers, strict=True)):
        rows.append([])
        for place, answer in zip(line, cells, strict=True):
            if answer is None:
                continue
            if place is None or i >= EXPLAINED:
                rows[-1].append(None)
                continue
            if place not in known:
                cancellation()
                release, number, row = place
                known[place] = _explanation(released[release][number], row, sources)
            rows[-1].append(known[place])
    return rows


def _explanation(outcome: Outcome, row: int, sources: Sources) -> Explanation | None:
    """Return the explanation of one number, if it has one."""
    number, (estimator, *more) = outcome.number, outcome.estimators[row]
    if number.kind == "avg":
        return _average(outcome, row, sources)
    if estimator is None or more or number.quantile is not None:
        return None
    return Explanation(_posterior(outcome, row, estimator, sources), _origins(estimator, sources))


def _posterior(outcome: Outcome, row: int, estimator: Estimator, sources: Sources) -> Posterior:
    """Return the posterior of one number, of which the interval is that of its answer."""
    number, answer = outcome.number, outcome.answers[row]
    ends = possible(number, sources.records, row)
    center = min(max(answer.estimate, ends[0]), ends[1])
    inside = [abs(end - center) for end in (answer.low, answer.high) if end not in ends]
    half = max(inside, default=0.0) or planning.half_width(estimator, outcome.delta)
    grid = number.family.grid
    zero, step = float(number.shift % grid), float(grid)
    values, below = distribution(estimator, answer.estimate, half, ends, zero, step)
    return Posterior(tuple(values.tolist()), _rounded(below), zero, step)


def _average(outcome: Outcome, row: int, sources: Sources) -> Explanation | None:
    """Return the explanation of an average; None where it may be of nobody."""
    number, answer = outcome.number, outcome.answers[row]
    bottom, top = outcome.estimators[row]
    if bottom is None or top is None or math.isnan(answer.estimate) or not bottom.rows.size:
        return None
    under, over = outcome.estimates[row]
    if planning.law(bottom).cdf(-under / float(bottom.unit)).upper > RARE:
        return None
    assert number.bounds is not None
    shift = float(number.shift)
    mean, low, high = (end - shift for end in (answer.estimate, answer.low, answer.high))
    clip = float(number.bounds[0]) - shift, float(number.bounds[1]) - shift
    curve = ratio_distribution(top, bottom, (over, under), mean, (low, high), clip, outcome.delta)
    values, below = curve[0] + shift, curve[1]
    posterior = Posterior(tuple(values.tolist()), _rounded(below), shift, 0.0)
    noise = difference(top, bottom, Fraction(mean))
    return Explanation(posterior, _origins(noise, sources, 1 / under))


def _rounded(below: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(round(each, DIGITS) for each in below.tolist())


def _origins(estimator: Estimator, sources: Sources, times: float = 1.0) -> tuple[Origin, ...]:
    """Return what an estimator, ``times`` a factor, adds up: the asking statement's numbers first,
    then those of the largest shares.
    """
    if not estimator.rows.size:
        return ()
    blocks = np.searchsorted(np.array(sources.starts), estimator.rows, side="right") - 1
    places = np.array(sources.places)[blocks]
    weights = (
        times * float(estimator.unit) * estimator.coefficients / np.array(sources.grids)[blocks]
    )
    shares = np.square(estimator.noise)
    shares /= shares.sum()
    found: list[tuple[bool, Origin]] = []
    for place in np.unique(places).tolist():
        chosen = places == place
        numbers, share = int(chosen.sum()), float(shares[chosen].sum())
        if share < NOTHING:
            continue
        if place < 0:
            found.append((False, Origin("others", numbers, share)))
            continue
        told, asking = sources.statements[place], place == sources.asking
        kind = "this" if asking else "earlier"
        least, most = float(weights[chosen].min()), float(weights[chosen].max())
        origin = Origin(kind, numbers, share, told.text, told.time, told.sequence, (least, most))
        found.append((asking, origin))
    found.sort(key=lambda each: (not each[0], -each[1].share))
    return _capped([origin for _, origin in found])


def _capped(origins: Sequence[Origin]) -> tuple[Origin, ...]:
    """Return the first origins, and the rest taken together, but for the others', who stay."""
    if len(origins) <= MAX_ORIGINS:
        return tuple(origins)
    others = [each for each in origins if each.kind == "others"]
    own = [each for each in origins if each.kind != "others"]
    shown, rest = own[: MAX_ORIGINS - 1 - len(others)], own[MAX_ORIGINS - 1 - len(others) :]
    together = Origin("rest", sum(o.numbers for o in rest), sum(o.share for o in rest))
    return (*shown, *others, together)
