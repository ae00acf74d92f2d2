"""Every limit that binds a user now: what decides a refusal is what is shown as left.

A limit is of the cells (budgets, guards, of the history that serves the user), or of what
statements spend together (caps of analysts and groups, of this day and week).  Invariant: a
statement that costs no more than the least that is left is not refused for want of budget.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from msgspec import Struct

from proxy.accountant import Accountant
from proxy.budgets import CELLS
from proxy.inference.accounting import UNIT, budget_units
from proxy.inference.query import Term
from proxy.ledger import SHARED, Reads
from proxy.policy import Policy
from proxy.privileges import Cap, Privileges, share


class Allowance(Struct, frozen=True):
    """One limit, in 2⁻⁴⁰ alpha: what its dearest cell, or its statements together, have spent."""

    name: str
    budget: int
    spent: int
    exact: bool = True

    @property
    def left(self) -> float:
        """What is left of it, in alpha."""
        return max(self.budget - self.spent, 0) / UNIT

    def __str__(self) -> str:
        return said(self.left, self.name)


def spending_allowances(
    privileges: Privileges, policy: Policy, reads: Reads, now: datetime
) -> Iterator[Allowance]:
    """Yield the limits on what statements spend together; ``now`` is in the policy's time zone."""
    if not privileges.spend:
        yield Allowance(f"analyst {privileges.user}, who may only infer", 0, 0)
    for cap in privileges.caps:
        spent = sum(map(reads.spent_by, _bound(cap, reads))) + reads.spent_unknown()
        yield Allowance(cap.name, budget_units(cap.budget), spent)
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    privacy = policy.privacy
    for period, budget in privacy.per.items():
        days = today.weekday() if period == "week" else 0
        since = (today - timedelta(days=days)).astimezone(UTC)
        part = budget / privacy.unit.max_rows
        yield _of_period(f"this {period}", part, privileges, policy, reads, since)


def _of_period(
    name: str,
    budget: Fraction,
    privileges: Privileges,
    policy: Policy,
    reads: Reads,
    since: datetime,
) -> Allowance:
    """Return what the user's history may spend of a period's budget: its share.

    What other histories have spent beyond theirs, since the policy was another then, is taken from
    it, as in ``budgets.shared_out``: they can spend no more, so that it does not move.
    """
    spent: Counter[str] = Counter()
    for user, cost in reads.spending(since).items():
        spent[privileges.history_of(user)] += cost
    own = spent.pop(privileges.history, 0)
    own += 0 if privileges.history == SHARED else reads.spent_unknown(since)
    beyond = sum(
        max(cost - budget_units(budget * share(policy, other)), 0) for other, cost in spent.items()
    )
    return Allowance(name, max(budget_units(budget * privileges.share) - beyond, 0), own)


def _bound(cap: Cap, reads: Reads) -> set[str]:
    """Return whose statements a cap counts: of a group, also of members who are listed no more."""
    listed = reads.protection().protection.get("users", {}) if cap.group else {}
    shared = (name for name, each in listed.items() if each["own"] is None)
    return {*cap.users, *(name for name in shared if cap.group in listed[name]["groups"])}


def allowances(
    privileges: Privileges,
    accountant: Accountant,
    reads: Reads,
    now: datetime,
    more: Sequence[Term] = (),
) -> list[Allowance]:
    """Return every limit that binds a user, with the charges of a further statement added."""
    cells = [(rule, accountant.account.spent(rule.within, more)) for rule in accountant.rules]
    cost = accountant.cost(more) if more else 0
    return [
        *(Allowance(rule.name, rule.budget, spent.value, spent.exact) for rule, spent in cells),
        *(
            Allowance(allowance.name, allowance.budget, allowance.spent + cost)
            for allowance in spending_allowances(privileges, accountant.policy, reads, now)
        ),
    ]


def said(left: float, of: str) -> str:
    """Return what is left in words: of what, unless it is the budget that all cells have."""
    return f"{left:.4g}" if of in ("", CELLS) else f"{left:.4g} ({of})"


def least(found: Sequence[Allowance]) -> Allowance:
    """Return the limit that has least left, the first of them."""
    return min(found, key=lambda allowance: allowance.left)
