"""How a strategy has fared in a simulation, and how it would go on."""

from __future__ import annotations

import math

from msgspec import Struct
from msgspec.structs import replace

AFTER = 20  # more steps, or times as many requests, for which what the last ones cost stands


class Simulated(Struct, frozen=True):
    """What a strategy would have done with the requests, in their order.

    What is paid is that of the dearest cell; where the limit on what statements spend together is
    less than a cell's, it is what counts towards that.
    """

    name: str
    paid: tuple[float | None, ...]  # by request, what was paid more; None: refused

    @property
    def asked(self) -> int:
        """How many requests there was time for."""
        return len(self.paid)

    @property
    def answered(self) -> int:
        """How many were answered."""
        return sum(each is not None for each in self.paid)

    @property
    def free(self) -> int:
        """How many were answered from what was known."""
        return sum(each == 0 for each in self.paid)

    @property
    def alpha(self) -> float:
        """What has been paid in the end."""
        return math.fsum(each or 0.0 for each in self.paid)

    def after(self, later: int, steps: float) -> float:
        """Return what would have been paid in the long run, when the last ``later``
        requests are those of so many steps in time.
        """
        return self.alpha + AFTER * self.growth(later, steps)

    def growth(self, later: int, steps: float) -> float:
        """Return what is paid more with each of these steps; 0 of none."""
        if steps < 1:
            return 0.0
        return math.fsum(each or 0.0 for each in self.paid[-later:]) / steps

    def lasting(self, budget: float) -> tuple[float, float]:
        """Return how many requests it would have answered in the long run, and for what alpha.

        More of them, AFTER times as many, fare as the later half of these does, which rests on the
        earlier one, until the budget is spent; from then on as those that are free.
        """
        half, more = self.paid[len(self.paid) // 2 :], AFTER * len(self.paid)
        if not half:
            return 0.0, self.alpha
        price = math.fsum(each or 0.0 for each in half) / len(half)
        left = 0.0 if None in half else max(budget - self.alpha, 0.0)
        paying = min(more, left / price) if price else more
        answered = sum(each is not None for each in half) / len(half)
        free = sum(each == 0 for each in half) / len(half)
        total = self.answered + paying * answered + (more - paying) * free
        return total, self.alpha + paying * price

    def first(self, requests: int) -> Simulated:
        """Return what it did with the first requests."""
        return replace(self, paid=self.paid[:requests])
