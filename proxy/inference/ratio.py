"""Ratios of two linear queries, S / C: S - t · C is a linear query too, for every t."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from proxy.inference.estimator import Estimator, whole_multiples

POINTS = 4  # at which the interval of a ratio is looked for, to either side


def difference(left: Estimator, right: Estimator, times: Fraction) -> Estimator:
    """Return the estimator of left - times · right: the law of one linear query."""
    coefficients: dict[int, Fraction] = {}
    rates: dict[int, float] = {}
    for estimator, factor in ((left, Fraction(1)), (right, -times)):
        unit = estimator.unit * factor / left.unit
        for row, a, rate in zip(
            estimator.rows.tolist(), estimator.coefficients.tolist(), estimator.rates, strict=True
        ):
            coefficients[row] = coefficients.get(row, Fraction(0)) + unit * Fraction(a)
            rates[row] = float(rate)
    rows = [row for row, a in coefficients.items() if a]
    step, whole, _ = whole_multiples([coefficients[row] for row in rows])
    return Estimator(
        left.unit * step,
        np.array(rows, dtype=np.int64),
        whole,
        np.array([rates[row] for row in rows]),
        (left.slack + float(abs(times) * right.unit / left.unit) * right.slack) / float(step),
    )


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
