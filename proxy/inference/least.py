"""The least half-width that a law meets, nearly: a search in few looks, since each costs a bound.

The logarithm of what is left out is all but straight in that of the half-width, so that two looks
say where ``meets`` begins to hold; two more, close to both sides of it, show it.  The search by
halves that follows is told by these, as ``meets`` remembers what it has found, and looks elsewhere
only where they were wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count
from typing import Protocol

from proxy.inference.brackets import Bracket

NEAR = 1e-3  # how near the continuous half-width mostly is
SLOPE = 4.0  # by which what is left out falls with the half-width, about, both as logarithms
BEHIND = 4  # looks that may be in vain
BESIDE = 2e-5  # how far from where ``meets`` should begin to hold it is asked


class Law(Protocol):
    """A law of noise."""

    def meets(self, half_width: float, confidence: float) -> bool:
        """Whether P(|X| ≤ half_width) ≥ ``confidence`` for sure; it remembers."""

    def bracket(self, half_width: float) -> Bracket:
        """Bounds on P(|X| ≤ half_width)."""


def least(law: Law, confidence: float, near: float) -> float:
    """A t that a law meets, within 1e-4 the least, or infinity; it is looked for at ``near``."""
    _look_beside(law, confidence, near)
    step = NEAR
    low, high = 0.0, near * (1 + step)
    while not law.meets(high, confidence):
        step *= 4
        low, high = high, near * (1 + step)
        if not math.isfinite(high):
            return math.inf
    while low == 0 and step < 0.5:  # then it is below ``high``, but who knows how far
        below = near * (1 - step)
        if law.meets(below, confidence):
            high, step = below, 4 * step
        else:
            low = below
    while high - low > 1e-4 * high:  # ``meets`` holds at ``high`` throughout
        middle = (low + high) / 2
        if law.meets(middle, confidence):
            high = middle
        else:
            low = middle
    return high


def least_argument(
    look: Callable[[float], tuple[bool, float]], most: float, steps: int, delta: float
) -> float:
    """Return the least argument that is enough, of ``most`` · 1, 2, ... ``steps`` / ``steps``.

    ``look`` says whether one is, and the probability that is then left out: ``delta`` is enough.
    Its logarithm is nearly straight in the square of the argument.  A search that has fallen
    behind one by halves goes on by halves; what is found is the same.  ``most`` is enough.
    """
    low, high = 0, steps
    looks = [(0.0, _excess(look(0.0)[1], delta))]
    at = steps // 2
    for turn in count(1):
        enough, left_out = look(most * at / steps)
        low, high = (low, at) if enough else (at, high)
        if high - low == 1:
            break
        looks.append((float(at) ** 2, _excess(left_out, delta)))
        (one, above), (two, below) = looks[-2:]
        at = (low + high) // 2
        if high - low <= steps * 2.0 ** (BEHIND - turn) and above != below:
            square = two - below * (two - one) / (below - above)
            root = math.sqrt(min(max(square, 0.0), float(steps) ** 2))
            beside = math.ceil(root) if root < (low + high) / 2 else math.floor(root)
            at = min(max(beside, low + 1), high - 1)  # the side that is farther away
    return most * high / steps


def _excess(left_out: float, delta: float) -> float:
    """Return by how much more is left out than may be, as a logarithm."""
    return math.log(max(left_out, 1e-300) / delta)


def _look_beside(law: Law, confidence: float, near: float) -> None:
    """Look where ``meets`` begins to hold, mostly."""
    points, excess = [near * (1 + NEAR)], list[float]()  # of what is left out, a logarithm
    while len(excess) < 2:
        excess.append(_excess(1 - law.bracket(points[-1]).lower, 1 - confidence))
        points.append(points[-1] * math.exp(min(max(excess[-1] / SLOPE, -1), 1)))
    if excess[0] != excess[1]:
        straight = math.log(points[1] / points[0]) / (excess[0] - excess[1])
        root = points[1] * math.exp(min(max(excess[1] * straight, -1), 1))
        for beside in (1 + BESIDE, 1 - BESIDE):
            law.meets(root * beside, confidence)
