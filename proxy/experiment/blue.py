"""The best linear unbiased estimate for plain matrices, as the paper states it.

    θ̂ = A y,  A = Q (Hᵀ diag²(w) H)⁻ Hᵀ diag²(w),  Var = 2 Q (Hᵀ diag²(w) H)⁻ Qᵀ

with w = α / S the weights of Laplace noise, and estimability by the generalized inverse of the
footnote to Section 3, exact here.  For histories over a cube, use ``history`` instead.

Shapes: H [m, n], weights and y [m], q [n].  Units: weights per unit of answer.
Source: Xiao & Xiong, Theorem 3.1, Corollaries 3.1 and 3.2.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


class Estimate(Struct, frozen=True, eq=False):
    """θ̂ with its variance, and the coefficients on the answers [m] and on unit noise [m]."""

    estimable: bool
    estimate: float
    variance: float
    coefficients: Floats
    noise: Floats


def blue(history: ArrayLike, weights: ArrayLike, answers: ArrayLike, query: ArrayLike) -> Estimate:
    """Return the best linear unbiased estimate of one query from noisy answers.

    Where the query is not in the row space of the history, exactly, ``estimable`` is false and
    the numbers are NaN.

    Raises:
        ValueError: the shapes do not fit, or a weight is not positive and finite.
    """
    h, w = np.atleast_2d(np.asarray(history, dtype=np.float64)), np.asarray(weights, np.float64)
    y, q = np.asarray(answers, dtype=np.float64), np.asarray(query, dtype=np.float64)
    if h.shape != (len(w), len(q)) or w.shape != y.shape:
        raise ValueError(f"H {h.shape}, weights {w.shape}, answers {y.shape}, query {q.shape}")
    if not (np.isfinite(w).all() and (w > 0).all() and np.isfinite(h).all()):
        raise ValueError("need positive finite weights and finite coefficients")
    if not _spans(h, q):
        nothing = np.full(len(w), np.nan)
        return Estimate(False, np.nan, np.nan, nothing, nothing)
    x = h * w[:, None]
    noise = np.asarray(
        np.linalg.lstsq(x.T, q, rcond=None)[0], dtype=np.float64
    )  # the solution of Xᵀc = q of least norm
    coefficients = noise * w
    return Estimate(True, float(coefficients @ y), float(2 * noise @ noise), coefficients, noise)


def _spans(rows: Floats, query: Floats) -> bool:
    """Return whether a query is in the row space, by elimination over the rationals."""
    matrix = [[Fraction(v) for v in row] for row in (*rows.tolist(), query.tolist())]
    *known, wanted = matrix
    column = 0
    while known and column < len(wanted):
        pivot = next((row for row in known if row[column]), None)
        if pivot is not None:
            known.remove(pivot)
            for row in (*known, wanted):
                if factor := row[column] / pivot[column]:
                    row[column:] = [
                        a - factor * b for a, b in zip(row[column:], pivot[column:], strict=True)
                    ]
        column += 1
    return not any(wanted)
