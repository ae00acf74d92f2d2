"""Claims about a number, and how probable they are: a comparison, BETWEEN, a group that exists."""

from __future__ import annotations

import math
from fractions import Fraction

from msgspec.structs import replace

from proxy.inference import plan as planning
from proxy.inference.estimator import Estimator
from proxy.inference.space import next_multiple
from proxy.sql.program import Companion, Number


def open_ended(claim: Companion, possible: tuple[float, float]) -> Companion:
    """Return a claim without the ends that lie outside of all possible values."""
    low, high = possible
    least, most = claim.least, claim.most
    if least is not None and (least < low or (least == low and not claim.strict[0])):
        least = None
    if most is not None and (most > high or (most == high and not claim.strict[1])):
        most = None
    return replace(claim, least=least, most=most)


def probability(
    used: Estimator, estimate: float | Fraction, number: Number, claim: Companion
) -> float:
    """Return a lower bound on the probability of a claim about θ = estimate + shift - X.

    Whatever the data, θ is the shift plus a multiple of the grid: an end that matters is half-way
    between two of these, one that satisfies the claim and one that does not.
    """
    shift, half = number.shift, number.family.grid / 2
    center = Fraction(estimate) + shift
    least = most = None  # how far θ may lie below, above the estimate
    if claim.least is not None:
        first = next_multiple(claim.least, claim.strict[0], shift, 2 * half)
        least = center - first + half
    if claim.most is not None:
        first = next_multiple(-claim.most, claim.strict[1], -shift, 2 * half)
        most = half - first - center
    ends = [end for end in (least, most) if end is not None]
    if claim.negated:
        return min(sum(below(used, -end) for end in ends), 1.0)
    if len(ends) == 2:
        return between(used, -ends[1], ends[0])
    return below(used, ends[0]) if ends else 1.0


def below(used: Estimator, distance: Fraction) -> float:
    """Return a lower bound on P(X < distance), X the estimator's noise."""
    law, t = planning.law(used), _steps(used, distance)
    if t > 0:
        return (1 + law.bracket(t, closed=False).lower) / 2
    return (1 - law.bracket(-t).upper) / 2


def between(used: Estimator, low: Fraction, high: Fraction) -> float:
    """Return a lower bound on P(low < X < high), X the estimator's noise."""
    law, left, right = planning.law(used), -_steps(used, -low), _steps(used, high)
    if left >= right:
        return 0.0
    if left < 0 < right:
        return sum(law.bracket(t, closed=False).lower for t in (-left, right)) / 2
    near, far = sorted((abs(left), abs(right)))
    return max((law.bracket(far, closed=False).lower - law.bracket(near).upper) / 2, 0.0)


def _steps(used: Estimator, distance: Fraction) -> float:
    """Return a distance in units of the estimator, less its possible bias, rounded down."""
    exact = distance / used.unit - Fraction(used.slack)
    rounded = float(exact)
    return rounded if rounded <= exact else math.nextafter(rounded, -math.inf)
