"""The limits of a policy, as the rules of one history.

Every limit is shared out among the histories beforehand (``proxy.privileges.share``), so that no
history's plans and refusals depend on what is asked in another, and all of them together stay
within it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

import numpy as np
from msgspec import Struct

from proxy.inference.accounting import Account, BudgetRule, budget_units, charge
from proxy.inference.query import Factor, Term
from proxy.inference.space import Space
from proxy.ledger import Measurement, Snapshot
from proxy.policy import Policy
from proxy.privileges import share
from proxy.sql.compile.release_point import space
from proxy.sql.conditions import region
from proxy.sql.evaluator.evaluator import Evaluator

CELLS = "the budget of the cells"


class Limit(Struct, frozen=True):
    """A budget of the cells inside ``within`` (0/1 factors; none: all) in all histories, alpha."""

    budget: Fraction  # for one row
    within: tuple[Factor, ...]
    name: str


def limits(policy: Policy, evaluator: Evaluator) -> tuple[Limit, ...]:
    """Return the limits that a policy sets on cells.

    A unit of up to k rows pays k times; limits of single cells protect rows.  A guard is a cap on
    every cell: it bounds what the posterior of its claim can become.

    Raises:
        PolicyError: a condition is not a predicate over the policy's attributes.
    """
    privacy = policy.privacy
    rows = privacy.unit.max_rows
    name = CELLS
    if rows > 1:
        name += f" (1/{rows} of the policy's, for each of {rows} rows)"
    limits = [Limit(privacy.budget / rows, (), name)]
    for cell in privacy.cells:
        name = f"the budget of the cells where {cell.where}"
        limits.append(Limit(cell.budget, region(cell, policy, evaluator), name))
    for guard in privacy.guards:
        name = f"the guard COUNT(*) BETWEEN {guard.low} AND {guard.high}"
        limits.append(Limit(Fraction(guard.cap), (), name))
    return tuple(limits)


def shared_out(
    limits: Iterable[Limit],
    name: str,
    policy: Policy,
    snapshot: Snapshot,
    rows: Iterable[Measurement],
) -> Iterable[BudgetRule]:
    """Yield the rules of one history: its share of each limit; ``rows``: of all histories.

    What another history has paid beyond its own share, since the policy was another then, or in a
    snapshot that began with it everywhere, is taken from this one's.  That history can pay no
    more, so the difference does not move with what is asked there.
    """
    yield from rules_beside(
        limits, name, policy, accounts(snapshot, rows, space(policy.domain), name)
    )


def rules_beside(
    limits: Iterable[Limit], name: str, policy: Policy, others: Mapping[str, Account]
) -> Iterator[BudgetRule]:
    """Yield the rules of one history, given the accounts of the others."""
    for limit in limits:
        beyond = 0
        for other, account in others.items():
            part = budget_units(limit.budget * share(policy, other))
            beyond += max(account.spent(limit.within).value - part, 0)
        own = budget_units(limit.budget * share(policy, name))
        yield BudgetRule(max(own - beyond, 0), limit.within, limit.name)


def accounts(
    snapshot: Snapshot, rows: Iterable[Measurement], shape: Space, but: str = ""
) -> dict[str, Account]:
    """Return the account of each history (``but`` for one) in the current snapshot, by name."""
    names = {*snapshot.bases, *(name for _, _, paid in snapshot.periods for name in paid)}
    charges: dict[str, list[Term]] = {name: [] for name in sorted(names)}
    for row in rows:
        if term := charged(snapshot, row):
            charges.setdefault(row.history, []).append(term)
    found = {}
    for name, terms in charges.items():
        if name != but:
            found[name] = Account(shape, snapshot.bases.get(name, 0))
            found[name].add(filter(None, [opening(snapshot, name), *terms]))
    return found


def opening(snapshot: Snapshot, name: str) -> Term | None:
    """Return what the cells of periods had paid in a history when they were last read."""
    paid = [amounts.get(name, 0) for count, _, amounts in snapshot.periods for _ in range(count)]
    if not paid:
        return None
    return Term.of(1, [Factor((snapshot.axis,), np.array(paid, dtype=np.int64))])


def charged(snapshot: Snapshot, row: Measurement) -> Term | None:
    """Return what a row charges: of older ones, where periods say so, cells that are the same."""
    if not snapshot.charges(row):
        return None
    term = charge(row.family, row.scale)
    if row.snapshot == snapshot.id or not snapshot.periods:
        return term
    inside = (np.array(snapshot.since_by_code) <= row.snapshot).astype(np.int64)
    return Term.of(term.scale, [*term.factors, Factor((snapshot.axis,), inside)])
