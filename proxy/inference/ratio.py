"""Ratios of two linear queries, S / C: S - t · C is a linear query too, for every t."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from proxy.inference.estimator import Estimator, Floats

POINTS = 4  # at which the interval of a ratio is looked for, to either side


def difference(left: Estimator, right: Estimator, times: Fraction) -> Estimator:
    """Return the estimator of left - times · right: the law of one linear query.

    Its coefficients are whole, and exact, where those of both are and ``times`` is short enough.
    """
    both = np.concatenate([left.rows, right.rows])
    rows, places = np.unique(both, return_inverse=True)
    one, two, rates = np.zeros(len(rows)), np.zeros(len(rows)), np.zeros(len(rows))
    one[places[: len(left.rows)]] = left.coefficients
    two[places[len(left.rows) :]] = right.coefficients
    rates[places] = np.concatenate([left.rates, right.rates])
    ratio = times * right.unit / left.unit
    step, coefficients = Fraction(1), one - float(ratio) * two
    below, above = min(ratio.denominator, 2**60), min(abs(ratio.numerator), 2**60)
    if max(_whole(one) * below, _whole(two) * above) < 2**52:
        exact = (one * ratio.denominator - two * ratio.numerator).astype(np.int64)
        common = int(np.gcd.reduce(exact, initial=0)) or 1
        step, coefficients = Fraction(common, ratio.denominator), (exact // common).astype(float)
    used = coefficients != 0
    return Estimator(
        left.unit * step,
        rows[used],
        coefficients[used],
        rates[used],
        (left.slack + float(abs(ratio)) * right.slack) / float(step),
    )


def _whole(values: Floats) -> float:
    """Return the largest of some whole numbers; infinity where one is none."""
    if not (values == np.rint(values)).all():
        return math.inf
    return float(np.abs(values).max(initial=0.0))


def hull_end(outside: Callable[[float], bool], inner: float, outer: float) -> float:
    """Return the end of the set of inner points towards ``outer``: its hull, never less."""
    if not outside(outer):
        return outer
    points = [outer + (inner - outer) * i / POINTS for i in range(POINTS + 1)]
    far = next((i for i in range(1, POINTS + 1) if not outside(points[i])), POINTS)
    bad, good = points[far - 1], points[far]
    for _ in range(14):
        middle = (bad + good) / 2
        if outside(middle):
            bad = middle
        else:
            good = middle
    return bad
