"""What typical questions cost under a policy, while nothing is known, and how many are affordable.

It follows from the policy alone; where the policy has no utility for a number, it is asked within
one per cent of the most that the number can be.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from fractions import Fraction

from msgspec import Struct

from proxy.budgets import limits
from proxy.inference.plan import least_rate
from proxy.policy import Policy, Utility
from proxy.sql.evaluator.evaluator import Evaluator

DELTA = Fraction(1, 20)


class Price(Struct, frozen=True):
    """A question, how good its number is to be, what it costs (alpha), how often it can be paid."""

    question: str
    half_width: float
    delta: float
    cost: float
    times: int


def prices(policy: Policy) -> tuple[Price, ...]:
    """Return the prices of a count and of the sum of each measure; of its groups they are the same.

    What can be paid is what every cell has at the start, of the shared history.
    """
    with closing(Evaluator(policy.domain)) as evaluator:
        everywhere = [limit.budget for limit in limits(policy, evaluator) if not limit.within]
    budget = min(everywhere) * policy.shared_budget / policy.privacy.budget
    found = []
    for question, reach, quantum, wish in _questions(policy):
        rate = least_rate(wish.half_width, float(wish.delta), quantum) * float(reach / quantum)
        cost = max(rate, float(policy.privacy.floor))
        half_width, delta = float(wish.half_width), float(wish.delta)
        found.append(Price(question, half_width, delta, cost, int(float(budget) / cost)))
    return tuple(found)


def _questions(policy: Policy) -> Iterator[tuple[str, Fraction, Fraction, Utility]]:
    """Yield statements, the most that one record adds, its grain, and the utility."""
    one, records = Fraction(1), policy.max_records
    wish = policy.utility or Utility(Fraction(records, 100), DELTA)
    yield "COUNT(*)", one, one, wish
    if (near := wish.half_width / 5) >= one:  # nearer than one record is no count
        yield "COUNT(*), five times as near", one, one, Utility(near, wish.delta)
    for measure in policy.domain.measures:
        reach = max(abs(measure.low), abs(measure.high))
        default = Utility(reach * records / 100, DELTA)
        wish = policy.measure_utility.get(measure.name, default)
        yield f"SUM({measure.name})", reach, measure.quantum, wish
