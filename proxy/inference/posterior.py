r"""The posterior of one number as a curve: its cumulative distribution at points around θ̂.

Given the answers, θ is distributed as θ̂ − X, X the noise of the estimator, given that θ is
possible.  Where the estimate is beyond an end of what is possible, the law is that around the end,
as its interval is; so P(low ≤ θ ≤ high) is the interval's confidence, or more, up to a step.

θ is a multiple of a step, and no more, so the points are half-way between two such values, as far
as θ̂ is one of them.  Where the noise is narrow, all of them are there; else they are closest around
θ̂, and some are about the interval.  X is taken for Σ c_i L_i, which is so near that no picture
shows it, unless there is but one term, whose law is closed, or the noise is a few steps wide.

Source: Xiao & Xiong, Bayesian Inference under Differential Privacy, for the posterior.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from proxy.inference import plan as planning
from proxy.inference.estimator import Estimator
from proxy.inference.geometric import GeometricSum
from proxy.inference.laplace import LaplaceSum

Vector = NDArray[np.float64]

POINTS = 40  # on either side of the estimate, or up to half as many more
TAIL = 1e-3  # the most that is beyond the last of them
FEW = 24  # steps that the noise reaches, up to which it is looked at as it is drawn


def distribution(
    estimator: Estimator,
    estimate: float,
    half_width: float,
    possible: tuple[float, float],
    zero: float,
    step: float,
) -> tuple[Vector, Vector]:
    """Return rising values [k] and P(θ ≤ value) [k].

    ``half_width`` is that of the interval around ``estimate``; θ is ``zero`` and a multiple of
    ``step``, and within ``possible``.
    """
    law, unit = planning.law(estimator), float(estimator.unit)
    center = min(max(estimate, possible[0]), possible[1])
    reach = max(law.continuous.radius(TAIL) * unit, 1.5 * half_width)
    reach = (math.ceil(reach / step) + 0.5) * step
    least, most = possible[0] - step / 2 - center, possible[1] + step / 2 - center
    low, high = max(-reach, least), min(reach, most)
    narrow = high - low <= 3 * POINTS * step
    if narrow:
        first, last = ((end + center - zero) / step for end in (low, high))
        steps = np.arange(math.floor(first - 0.49), math.ceil(last - 0.51) + 1)
        away = zero - center + (steps + 0.5) * step
    else:
        away = _spaced(low, high, reach, half_width + step / 2, step)
    exact = law.size <= 1 or reach <= FEW * step
    within = _within(law, np.abs(away).tobytes(), half_width, unit, estimator.slack, exact)
    if not narrow:
        within = np.where(away == 0, 0.0, within)  # half of what is there is below
    below = np.maximum.accumulate((1 + np.where(away < 0, -within, within)) / 2)
    start = below[0] if low == least else 0.0
    end = below[-1] if high == most else 1.0
    values = np.asarray(center + away, dtype=np.float64)
    if end - start < TAIL:  # all that is possible is as likely
        return values, np.linspace(0.0, 1.0, len(values))
    return values, np.clip((below - start) / (end - start), 0.0, 1.0)


def _spaced(low: float, high: float, reach: float, edge: float, step: float) -> Vector:
    """Return distances from ``low`` to ``high``, and ±``edge`` among them, closest around 0."""
    parts = (np.arange(1, POINTS + 1) / POINTS) ** 1.5
    right = np.unique((np.floor(reach / step * parts) + 0.5) * step)
    right[np.abs(right - edge).argmin()] = edge
    every = np.concatenate([-right[::-1], [0.0], right])
    near = reach / POINTS / 4
    inside = every[(every > low + near) & (every < high - near)]
    return np.concatenate([[low], inside, [high]])


@lru_cache(maxsize=256)
def _within(
    law: GeometricSum, away: bytes, half_width: float, unit: float, slack: float, exact: bool
) -> Vector:
    """Return P(|X| ≤ t) of distances t from the estimate [k]: beyond the interval's end, at least
    what the interval is said to have.
    """
    points, places = np.unique(np.frombuffer(away), return_inverse=True)
    t = np.maximum(points / unit - slack, 0.0)
    if exact:
        brackets = [law.bracket(each) for each in t.tolist()]
        found = np.array([(each.lower + each.upper) / 2 for each in brackets])
    else:
        found = 1 - 2 * _tails(law.continuous, t)
    known = law.confidence(max(half_width / unit - slack, 0.0))
    beyond = points >= half_width * (1 - 1e-12)
    found[beyond] = np.maximum(found[beyond], known)
    return np.asarray(np.maximum.accumulate(found)[places])


def ratio_distribution(
    top: Estimator,
    bottom: Estimator,
    estimates: tuple[float, float],
    mean: float,
    ends: tuple[float, float],
    possible: tuple[float, float],
    delta: float,
) -> tuple[Vector, Vector]:
    """Return rising values [k] of a ratio θ = S / C and P(θ ≤ value) [k], given C > 0.

    θ ≤ t iff S - tC ≤ 0, a linear query, whose noise has a variance of its own for each t, and is
    taken to have the shape that it has where t is the ``mean``.  ``estimates`` are those of S and
    C; ``ends`` those of the interval of confidence 1 - ``delta``, which the curve agrees with.
    """
    over, under = estimates
    most = max(math.log(TAIL) / math.log(delta), 1.5)  # times the interval
    parts = (np.arange(1, POINTS + 1) / POINTS) ** 1.5 * most
    parts[np.abs(parts - 1).argmin()] = 1.0
    sides = mean - (mean - ends[0]) * parts[::-1], np.array([mean]), mean + (ends[1] - mean) * parts
    values: Vector = np.unique(np.clip(np.concatenate(sides), *possible))
    rows = np.union1d(top.rows, bottom.rows)
    own, other = np.zeros((2, len(rows)))
    own[np.searchsorted(rows, top.rows)] = top.noise
    other[np.searchsorted(rows, bottom.rows)] = bottom.noise
    noise, every = own - mean * other, own[:, None] - other[:, None] * values
    spread = np.sqrt(np.square(every).sum(axis=0) / np.square(noise).sum())
    law, distances = LaplaceSum(noise), (values * under - over) / spread
    within = 1 - 2 * _tails(law, np.abs(distances))
    below = (1 + np.sign(distances) * within) / 2
    below[values <= ends[0]] = np.minimum(below[values <= ends[0]], delta / 2)
    below[values >= ends[1]] = np.maximum(below[values >= ends[1]], 1 - delta / 2)
    below = np.maximum.accumulate(below)
    start = below[0] if values[0] == possible[0] else 0.0
    end = below[-1] if values[-1] == possible[1] else 1.0
    return values, np.clip((below - start) / max(end - start, TAIL), 0.0, 1.0)


def _tails(law: LaplaceSum, t: Vector) -> Vector:
    """Return P(X > t) of distances in any order [k]."""
    points, places = np.unique(t, return_inverse=True)
    found = np.full(len(points), 0.5)
    found[points > 0] = law.tails(points[points > 0])
    return np.asarray(found[places])
