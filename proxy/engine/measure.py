"""One transaction: check every budget, draw the noise, commit.

This module alone reads exact answers off the cube and draws noise.  Invariant: nothing of an exact
answer leaves it but its sum with noise, in a measurement that is charged and committed; plans and
refusals depend on public things and released answers only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import chain
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from proxy.accountant import Accountant, too_dear
from proxy.cube import Cube
from proxy.engine.allowances import spending_allowances
from proxy.engine.asker import Asker
from proxy.engine.bill import COST, STEP
from proxy.engine.strategy import told
from proxy.errors import (
    InsufficientBudgetError,
    IntegrityError,
    NotSupportedError,
    QueryCanceledError,
    StateError,
    StatementTooComplexError,
)
from proxy.inference import plan as planning
from proxy.inference.accounting import UNIT
from proxy.inference.estimator import Cancellation, Estimator
from proxy.inference.noise.mechanism import GeometricSampler, Sampler, UnsafeNoiseError, check_safe
from proxy.inference.plan import AccuracyTarget, Allocation, Plan, PlannedMeasurement, Strategy
from proxy.inference.query import Term, TooLargeError
from proxy.inference.strategies.bases import Base
from proxy.inference.strategies.cover import cover
from proxy.ledger import Ledger, Measurement, Reads, Transaction
from proxy.ledger.chain import LOOK
from proxy.policy import Policy
from proxy.privileges import access
from proxy.settings import MAX_COST, SPEND
from proxy.sql.statement import too_complex

Rows = list[Estimator | None]  # an estimator of every row of a family

MB = 1_000_000
TRIES = 3  # plans while others may measure; after the last, it is planned again in the lock
REFUSALS = (InsufficientBudgetError, NotSupportedError, StatementTooComplexError)  # of a plan

__all__ = ["REFUSALS", "Cube", "Curator", "Measurer", "Rows", "Sampler"]


class Curator:
    """Who holds the exact answers, and gives none without noise."""

    def __init__(self, cube: Callable[[int], Cube], sampler: Sampler | None) -> None:
        self._open_cube = cube  # of a snapshot
        self._cube: tuple[int, Cube] | None = None
        self._sampler = sampler or GeometricSampler()

    def draw(
        self, planned: PlannedMeasurement, accountant: Accountant, tx: Transaction
    ) -> Measurement:
        """Read the exact answers, add the noise, and put the sum, alone, into the ledger."""
        if self._cube is None or self._cube[0] != accountant.snapshot:
            self._cube = accountant.snapshot, self._open_cube(accountant.snapshot)
        family, scale, before = planned.family, planned.scale, planned.before
        exact = self._cube[1].answer(family)
        if before is None:
            noise = self._sampler.draw(scale, family.rows)
            noisy = tuple(a + k for a, k in zip(exact, noise, strict=True))
            row = Measurement(family, scale, noisy, accountant.name, accountant.snapshot)
            return replace(row, id=tx.append(row))
        old = tx.measurement(accountant.row_of(planned.block))
        assert old.id is not None
        if (old.scale, old.history, old.snapshot) != (before, accountant.name, accountant.snapshot):
            raise IntegrityError("what is to be refined is not what was planned", hint=LOOK)
        drawn = [answer - a for a, answer in zip(exact, old.answers, strict=True)]
        noise = self._sampler.refine(drawn, before, scale)
        noisy = tuple(a + k for a, k in zip(exact, noise, strict=True))
        tx.replace(old.id, scale, noisy)
        return replace(old, scale=scale, answers=noisy)


class Measurer(Struct, frozen=True):
    """What measures for one statement: who asks and may cancel, who draws, where it is written."""

    curator: Curator
    ledger: Ledger
    asker: Asker
    text: str
    now: Callable[[], datetime]  # in the policy's time zone
    cancellation: Cancellation
    spend: bool = True
    strategy: Strategy | None = None

    def measure(
        self, accountant: Accountant, targets: Sequence[Sequence[AccuracyTarget]]
    ) -> tuple[Sequence[PlannedMeasurement], Sequence[Rows]]:
        """Measure what cannot be inferred of each number, all or nothing; return what was.

        What the accountant has not caught up with yet is seen in the lock.
        """
        kept, bill, user = accountant.history.mark, self.asker.bill, self.asker.user
        assert bill is not None
        bill.owners = [place for place, each in enumerate(targets) for _ in each]
        try:
            for again in range(TRIES, 0, -1):
                plan = self.plan(accountant, list(chain(*targets)))
                if not plan.measurements:
                    return (), plan.estimators
                self._require_spending(accountant, plan)
                self.cancellation()
                with self.ledger.transaction() as tx:
                    if tx.sequence() != accountant.sequence:  # somebody was faster: plan again
                        accountant.history.take_back(kept)
                        accountant.catch_up(tx)
                        kept = accountant.history.mark
                        if again > 1:
                            continue
                        plan = self.plan(accountant, list(chain(*targets)))  # in the lock
                    sequence, rows, cost = self._paid(accountant, plan, tx)
                break
            bill.add(plan.measurements, sequence if rows else 0, cost)
            accountant.measured(rows, plan.measurements, sequence)
            return plan.measurements, plan.estimators
        except REFUSALS as error:  # nothing was measured: the plan is taken back
            accountant.history.take_back(kept)
            self.ledger.note("refused", user, self.text, {"reason": error.message})
            raise
        except QueryCanceledError:  # which is asked for only before something is drawn
            accountant.history.take_back(kept)
            raise
        except BaseException:  # whatever was or was not committed: the ledger knows
            accountant.forget()
            raise

    def measure_base(self, accountant: Accountant, base: Base) -> None:
        """Measure a base at its level, once, whatever is asked later."""
        mark = accountant.history.mark
        try:
            with self.ledger.transaction() as tx:
                accountant.catch_up(tx)
                mark = accountant.history.mark
                if any(cover(accountant.history, family).parts for family in base.families):
                    return
                blocks = base.at_level(accountant.history)
                plan = Plan(tuple(PlannedMeasurement(b, b.scale, piece=True) for b in blocks), ())
                with _refused_as_numbers():
                    for each in plan.measurements:
                        accountant.require_chargeable(each)
                        check_safe(each.family, each.scale, accountant.policy.max_records)
                sequence, rows, _ = self._paid(accountant, plan, tx)
            accountant.measured(rows, plan.measurements, sequence)
        except REFUSALS:
            accountant.history.take_back(mark)
            raise
        except BaseException:
            accountant.forget()
            raise

    def _paid(
        self, accountant: Accountant, plan: Plan, tx: Transaction
    ) -> tuple[int, list[Measurement], int]:
        """Charge and measure what was planned; return the line, the answers and the cost."""
        bill = self.asker.bill
        assert bill is not None
        terms = accountant.charges(plan.measurements)
        self._require_budget(accountant, terms, tx)
        self._require_room(accountant, plan)
        self.cancellation()  # it may have waited for the lock
        cost = accountant.cost(terms)
        rows = [self.curator.draw(each, accountant, tx) for each in plan.measurements]
        if not rows:
            return tx.sequence(), rows, cost
        spent = {accountant.name: accountant.account.spent((), terms).value}
        detail: dict[str, Any] = {STEP: bill.first, COST: bill.cost(terms)} if bill.first else {}
        if pieces := told(plan.measurements, accountant.policy.domain):
            detail["strategy"] = pieces
        return tx.audit("measured", self.asker.user, self.text, cost, detail, spent), rows, cost

    def plan(self, accountant: Accountant, targets: Sequence[AccuracyTarget]) -> Plan:
        """Return what would be measured, and what each row is then inferred from.

        Where the budgets do not allow what the strategy measures, it is what was asked for.
        """
        kept = accountant.history.mark
        if self.strategy is not None:
            try:
                plan = self._plan(accountant, targets, self.strategy)
                if not any(each.piece for each in plan.measurements):
                    return plan
                terms = accountant.charges(plan.measurements)
                self._require_budget(accountant, terms, self.ledger)
                self._require_room(accountant, plan)
                return plan
            except REFUSALS:
                accountant.history.take_back(kept)
        return self._plan(accountant, targets, None)

    def _plan(
        self,
        accountant: Accountant,
        targets: Sequence[AccuracyTarget],
        strategy: Strategy | None,
    ) -> Plan:
        privacy = accountant.policy.privacy
        allocation = Allocation(privacy.strategy != "paper", float(privacy.floor), strategy)
        with _refused_as_numbers():
            plan = planning.plan(accountant.history, targets, allocation, self.cancellation)
            for each in plan.measurements:
                accountant.require_chargeable(each)
                check_safe(each.family, each.scale, accountant.policy.max_records)
        return plan

    def cost(self, accountant: Accountant, targets: Sequence[AccuracyTarget]) -> int | None:
        """Return what the targets would cost; None where they cannot be measured at any price."""
        kept = accountant.history.mark
        try:
            plan = self.plan(accountant, targets)
            return accountant.cost(accountant.charges(plan.measurements))
        except REFUSALS:
            return None
        finally:
            accountant.history.take_back(kept)

    def refusal(self, accountant: Accountant, targets: Sequence[AccuracyTarget]) -> str:
        """Return why the targets may not be measured; nothing, where they may."""
        kept = accountant.history.mark
        try:
            plan = self.plan(accountant, targets)
            if plan.measurements:
                self._require_spending(accountant, plan)
                self._require_budget(accountant, accountant.charges(plan.measurements), self.ledger)
                self._require_room(accountant, plan)
        except REFUSALS as error:
            return error.message
        finally:
            accountant.history.take_back(kept)
        return ""

    def _require_spending(self, accountant: Accountant, plan: Plan) -> None:
        """Refuse to spend where the session or the analyst must not, before any lock."""
        asker = self.asker
        if not (self.spend and asker.settings.value(SPEND) and asker.privileges.spend):
            if asker.privileges.spend:  # what would be refused all the same is refused for that
                terms = accountant.charges(plan.measurements)
                self._require_budget(accountant, terms, self.ledger)
                self._require_room(accountant, plan)
            who = "this session" if asker.privileges.spend else f"analyst {asker.user}"
            raise InsufficientBudgetError(
                f"refused: {who} may only infer (spend: off), and this must be measured",
                requested=accountant.cost(accountant.charges(plan.measurements)) / UNIT,
                spent=0.0,
                left=0.0,
                hint="ask for a wider interval, or for what follows from earlier answers",
            )

    def _require_budget(self, accountant: Accountant, terms: Sequence[Term], reads: Reads) -> None:
        """Refuse what would break a budget: of the cells, of the analyst, of the period."""
        self._require_users(accountant.policy, reads)
        cost, bill = accountant.cost(terms), self.asker.bill
        if bill is not None and bill.rest is not None and cost > bill.rest:
            raise self.over_limit(cost)
        overspend = accountant.overspend(terms)
        if overspend is not None:
            raise too_dear(overspend)
        for allowance in spending_allowances(
            self.asker.privileges, accountant.policy, reads, self.now()
        ):
            if allowance.spent + cost > allowance.budget:
                raise InsufficientBudgetError(
                    f"refused: the statement costs more than {allowance.name} has left",
                    requested=cost / UNIT,
                    spent=allowance.spent / UNIT,
                    left=allowance.left,
                    hint="ask for a wider interval, or ask the data steward",
                )

    def over_limit(self, cost: int | None, hint: str | None = None) -> InsufficientBudgetError:
        """Return the error of a statement, or a step of it, that costs more than its limit."""
        bill = self.asker.bill
        paid, rest = (bill.charged, bill.rest or 0) if bill is not None else (0, 0)
        return InsufficientBudgetError(
            f"refused: the statement costs more than {MAX_COST}, or its MAX COST, allows",
            requested=math.inf if cost is None else cost / UNIT,
            spent=paid / UNIT,
            left=rest / UNIT,
            hint=hint or "ask for a wider interval, or let it cost more",
        )

    def refused(self, error: InsufficientBudgetError) -> InsufficientBudgetError:
        """Return a refusal, having noted it."""
        self.ledger.note("refused", self.asker.user, self.text, {"reason": error.message})
        return error

    def _require_users(self, policy: Policy, reads: Reads) -> None:
        """Refuse to spend under another users file than the ledger was told: its caps differ."""
        protection = reads.protection()
        if protection is self.asker.agreed:
            return
        known = protection.protection.get("users", {})
        mine = access(policy, self.asker.users)
        if known and any(known.get(name) != each for name, each in mine.items()):
            raise StateError(
                f"another users.yaml of {policy.dataset} has been taken over since this "
                "connection was opened",
                hint="connect again; a server takes it over by itself",
            )
        self.asker.agreed = protection

    def _require_room(self, accountant: Accountant, plan: Plan) -> None:
        """Refuse what would make the history larger than the policy allows."""
        more = sum(each.family.size for each in plan.measurements if each.before is None)
        limits, user = accountant.policy.privacy.history_size, self.asker.user
        total = int(limits.total * MB * self.asker.privileges.share)
        found = [("the history", sum(accountant.sizes.values()), total)]
        if limits.analyst * MB < total:
            mine = {line.seq for line in self.ledger.audit() if line.user == user}
            there = sum(each for line, each in accountant.sizes.items() if line in mine)
            found.append((f"the history of {user or 'this user'}", there, limits.analyst * MB))
        for who, there, limit in found:
            if there + more > limit:
                left = max(limit - there, 0)
                raise InsufficientBudgetError(
                    f"refused: {who} is full: it may hold {limit / MB:,.3g} MB, and this statement "
                    f"adds {more / MB:,.3g} MB",
                    requested=more / MB,
                    spent=there / MB,
                    left=left / MB,
                    hint="ask for what follows from earlier answers, or ask the data steward "
                    "(privacy.history_size)",
                )


@contextmanager
def _refused_as_numbers() -> Iterator[None]:
    """Refuse what is too large to be computed with, and noise that could not be drawn safely."""
    try:
        yield
    except TooLargeError as error:
        raise too_complex("a number", error) from error
    except UnsafeNoiseError as error:
        raise NotSupportedError(
            f"this number cannot be measured safely: {error}", hint=error.hint
        ) from error
