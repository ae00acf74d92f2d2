"""What a data steward sees of a dataset's state: exact counts, and what was asked and spent.

None of it is for analysts.  Invariant: nothing here changes the state.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict, replace

import proxy.cube
import proxy.policy as policies
from proxy.budgets import accounts
from proxy.cube import Report, survey
from proxy.errors import Error, PolicyError
from proxy.files import enter
from proxy.inference.accounting import UNIT, Account
from proxy.ledger import AuditLine
from proxy.ledger.stored import StoredLedger
from proxy.policy import Policy
from proxy.privileges import users_of
from proxy.protection import protection, upgraded
from proxy.sql.compile.release_point import space
from proxy.state import ledger_place, state_folder
from proxy.steward.changes import arranged, opened, same_policy
from proxy.steward.loading import loaded
from proxy.steward.prices import Price, prices
from proxy.steward.snapshots import surveyed, taken_over, verify_cube
from proxy.steward.twins import same_place
from proxy.steward.twins import twins as twins_of


class CheckReport(Struct, frozen=True):
    """For the steward, not private: what the policy does to the data, and to the ledger."""

    dataset: str
    cells: int
    survey: Report
    state: str
    changes: tuple[str, ...] = ()  # how the policy protects less than the ledger was told
    twins: tuple[str, ...] = ()  # policies in the same folder that spend on the same source
    moved: bool | None = None  # whether the source has changed since the cube; None: who knows
    prices: tuple[Price, ...] = ()
    spent: Mapping[str, float] = {}  # alpha at most, by history


class GuardReport(Struct, frozen=True):
    """How close a claim is: what its dearest cell has paid, in alpha, and what that makes of it."""

    claim: str
    for_each: tuple[str, ...]
    confidence: float
    cap: float
    spent: float
    left: float
    bound: float  # on P(claim), whatever was answered
    exact: bool  # whether ``spent`` is that of a cell, or no more than a bound on it


def check(policy: str | Path, state: str | Path | None = None) -> CheckReport:
    """Check a policy against its data, and against the ledger where there is one."""
    found = loaded(policy)
    folder = state_folder(found, state)
    enter(folder)
    if not ledger_place(found, folder).exists():
        return _begun(found, folder, survey(found))
    with opened(found, folder) as ledger:
        found = arranged(found, ledger)
        snapshot = ledger.snapshot()
        closed = taken_over(found, folder, ledger, snapshot)
        report, source = surveyed(found, folder, closed)
        known, meant = ledger.protection(), protection(found, users=users_of(found))
        changes = policies.weaker(upgraded(known.protection), meant.protection)
        now = "in force" if known.digest == meant.digest else "changed since it was applied"
        built = snapshot.fingerprint
        whole = snapshot.closing is None or snapshot.closing.taken is None  # was read
        same_key = built.split(":")[0] == source.split(":")[0]
        moved = built != source if same_key and (whole or found.source.path) else None
        spent = {name: value / UNIT for name, value in ledger.spent().items()}
        begun = _begun(found, folder, report)
        return replace(begun, state=now, changes=tuple(changes), moved=moved, spent=spent)


def _begun(policy: Policy, folder: Path, report: Report) -> CheckReport:
    """Return what is known of a policy without its ledger."""
    return CheckReport(
        policy.dataset,
        policy.domain.cells,
        report,
        "not made yet",
        twins=_all_twins(policy, folder),
        prices=prices(policy),
    )


def sql_for(policy: str | Path, warehouse: str) -> str:
    """Return the SQL that would group a policy's records in a warehouse."""
    return proxy.cube.sql_for(loaded(policy), warehouse)


def _all_twins(policy: Policy, folder: Path) -> tuple[str, ...]:
    """Return who else has a budget on a policy's source, by the files and the states beside it."""
    files = list(_twins(policy))
    named = {name for name, _ in files}
    states = [f"{name}, {how}" for name, how in twins_of(policy, folder) if name not in named]
    return (*(f"{file} ({name})" for name, file in files), *states)


def _twins(policy: Policy) -> Iterator[tuple[str, str]]:
    """Yield dataset and file of the policies beside this one that are over the same source."""
    for path in sorted({*policy.path.parent.glob("*.yaml"), *policy.path.parent.glob("*.yml")}):
        try:
            other = policies.load(path)
        except PolicyError:
            continue  # no policy, or a wrong one
        places = [
            asdict(each.source) | {"path": each.source.path and each.source.path.resolve()}
            for each in (policy, other)
        ]
        if other.dataset != policy.dataset and same_place(*places):
            yield other.dataset, path.name


@contextmanager
def ledger_in_force(
    policy: str | Path | Policy, state: str | Path | None = None
) -> Iterator[tuple[StoredLedger, Policy]]:
    """Open the ledger of a policy for reading, whatever has become of its file meanwhile.

    With the policy as the file is now, or as it is given, its axes in the order of the ledger's
    where they are those.
    """
    found = policy if isinstance(policy, Policy) else policies.load(policy)
    with opened(found, state_folder(found, state)) as ledger:
        yield ledger, arranged(found, ledger)


def audit(policy: str | Path, state: str | Path | None = None) -> list[AuditLine]:
    """Return every line of the audit log, free statements too, by time."""
    found = policies.load(policy)
    with opened(found, state_folder(found, state)) as ledger:
        return sorted([*ledger.audit(), *ledger.notes()], key=lambda line: line.time)


def verify(policy: str | Path, state: str | Path | None = None) -> list[str]:
    """Re-hash the whole ledger, and read the cube; return the discrepancies, in words."""
    found = policies.load(policy)
    folder = state_folder(found, state)
    with opened(found, folder) as ledger:
        problems = ledger.verify()
        try:
            verify_cube(folder, ledger.id, ledger.snapshot())
        except Error as error:
            problems.append(error.message)
        return problems


def guards(policy: str | Path | Policy, state: str | Path | None = None) -> list[GuardReport]:
    """Return how close each claim of the policy is, from what has been charged in all histories.

    Whoever knows every record but those of one cell, and thinks any count of it as likely as any
    other, may become certain of a count between L and U to at most 1 - exp(-B (U - L + 1)), B
    what the cell has paid (paper, §5).
    """
    found = policy if isinstance(policy, Policy) else loaded(policy, source=False)
    folder = state_folder(found, state)
    with opened(found, folder) as ledger:
        found = arranged(found, ledger)
        same_policy(found, protection(found), ledger, folder)
        shape = space(found.domain)
        every = Account(shape)
        for account in accounts(ledger.snapshot(), ledger.measurements(), shape).values():
            every.base += account.base
            every.add(account.terms)
        spent = every.spent()
    paid = spent.value / UNIT
    return [
        GuardReport(
            f"COUNT(*) BETWEEN {guard.low} AND {guard.high}",
            guard.for_each,
            float(guard.confidence),
            guard.cap,
            paid,
            max(guard.cap - paid, 0.0),
            -math.expm1(-paid * (guard.high - guard.low + 1)),
            spent.exact,
        )
        for guard in found.privacy.guards
    ]
