"""What a data steward does to a dataset's state: make it, check it, change its policy, rebuild it.

These are acts on the ledger, audited like any other; none of them gives an analyst anything back.
A policy that protects less than the ledger was told is applied only when the steward says so.  A
cube is a snapshot: in a new one every cell starts with the largest cost that any cell had reached,
since the people in it may be the same.
"""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import proxy.policy as policies
from proxy.book import Book, rules
from proxy.cube import Cube, Report, build, survey
from proxy.errors import StateError
from proxy.inference.query import Space
from proxy.ledger import SHARED, AuditLine, Reads
from proxy.ledger.restore import restore as restore_ledger
from proxy.ledger.sqlite import SQLiteLedger
from proxy.policy import Policy
from proxy.roles import honoured
from proxy.sql.compile import space
from proxy.sql.evaluate import Evaluator
from proxy.state import anchor_path, cube_path, ledger_path, make_folder, state_folder

Progress = Callable[[float], None]


@dataclass(frozen=True)
class CheckReport:
    """For the steward, not private: what the policy does to the data, and to the ledger."""

    dataset: str
    cells: int
    survey: Report
    state: str
    changes: tuple[str, ...] = ()  # how the policy protects less than the ledger was told


@dataclass(frozen=True)
class ApplyReport:
    """What applying a policy did."""

    dataset: str
    changes: tuple[str, ...]  # how it protects less
    rebuilt: bool


def me() -> str:
    """Return the name that the steward's acts are audited under."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def init(
    policy: str | Path, state: str | Path | None = None, progress: Progress | None = None
) -> Report:
    """Make the state of a policy: an empty ledger, and the cube built from the data.

    Raises:
        StateError: it has been made already.
    """
    loaded = policies.load(policy)
    folder = state_folder(loaded, state)
    if ledger_path(folder).exists() and any(folder.glob("cube-*.duckdb")):
        raise StateError(
            f"{folder} is already the state of {loaded.dataset}; nothing was changed",
            hint="`privacy-proxy query` can be used at once",
        )
    honoured(loaded)
    rules(loaded, Evaluator(loaded.domain), SHARED)  # what does not compile fails here, not later
    make_folder(folder)
    if ledger_path(folder).exists():  # a build was interrupted: go on with its ledger
        with opened(loaded, folder) as ledger:
            _same_policy(loaded, ledger)
            return build(loaded, cube_path(folder, ledger.snapshot().id), ledger.id, progress)
    ledger = SQLiteLedger.create(
        ledger_path(folder),
        dataset=loaded.dataset,
        protection=loaded.protection(),
        digest=loaded.digest,
        anchor=anchor_path(folder),
        user=me(),
    )
    try:
        return build(loaded, cube_path(folder), ledger.id, progress)
    finally:
        ledger.close()


@contextmanager
def opened(policy: Policy, folder: Path) -> Iterator[SQLiteLedger]:
    """Open the ledger of a state folder for the length of a block."""
    ledger = SQLiteLedger.open(
        ledger_path(folder), dataset=policy.dataset, anchor=anchor_path(folder)
    )
    try:
        yield ledger
    finally:
        ledger.close()


def _same_policy(policy: Policy, ledger: SQLiteLedger) -> None:
    known = ledger.protection()
    if known.digest != policy.digest:
        raise other_policy(policy, dict(known.protection))


def other_policy(policy: Policy, known: dict[str, Any]) -> StateError:
    """Return the error of a policy that is not the one the ledger was told."""
    changes = policies.weaker(known, policy.protection())
    return StateError(
        f"{policy.path} has changed since it was applied to the state of {policy.dataset}",
        detail="it protects less: " + "; ".join(changes) if changes else "it protects no less",
        hint=f"undo the change, or apply it: privacy-proxy apply {policy.path}",
    )


def check(policy: str | Path, state: str | Path | None = None) -> CheckReport:
    """Check a policy against its data, and against the ledger where there is one."""
    loaded = policies.load(policy)
    folder = state_folder(loaded, state)
    honoured(loaded)
    rules(loaded, Evaluator(loaded.domain), SHARED)
    found = survey(loaded)
    if not ledger_path(folder).exists():
        return CheckReport(loaded.dataset, loaded.domain.cells, found, "not made yet")
    with opened(loaded, folder) as ledger:
        known = ledger.protection()
        same = known.digest == loaded.digest
        changes = policies.weaker(dict(known.protection), loaded.protection())
        state_now = "in force" if same else "changed since it was applied"
        return CheckReport(loaded.dataset, loaded.domain.cells, found, state_now, tuple(changes))


def apply(
    policy: str | Path,
    state: str | Path | None = None,
    *,
    accept_weaker: bool = False,
    progress: Progress | None = None,
) -> ApplyReport:
    """Make a changed policy the one in force; rebuild the cube where its cells have changed.

    Raises:
        StateError: it protects less than the one in force, and that was not accepted.
    """
    loaded = policies.load(policy)
    folder = state_folder(loaded, state)
    honoured(loaded)
    rules(loaded, Evaluator(loaded.domain), SHARED)
    with opened(loaded, folder) as ledger:
        known = ledger.protection()
        changes = policies.weaker(dict(known.protection), loaded.protection())
        if known.digest == loaded.digest:
            return ApplyReport(loaded.dataset, (), False)
        if changes and not accept_weaker:
            raise StateError(
                "the policy protects less than the one in force; nothing was changed",
                detail="; ".join(changes),
                hint="to apply it all the same: privacy-proxy apply --accept-weaker",
            )
        detail = {"digest": loaded.digest, "weaker": changes}
        fits = _fits(loaded, folder, ledger)
        if not fits:
            _new_snapshot(loaded, folder, ledger, progress, detail)
        else:
            with ledger.transaction() as tx:
                tx.apply_policy(loaded.digest, loaded.protection())
                tx.audit("policy", me(), detail=detail)
        return ApplyReport(loaded.dataset, tuple(changes), not fits)


def _fits(policy: Policy, folder: Path, ledger: SQLiteLedger) -> bool:
    """Return whether the cube that is there is that of the policy's domain and source."""
    try:
        Cube.open(cube_path(folder, ledger.snapshot().id), policy.domain, ledger.id)
    except StateError:
        return False
    known = dict(ledger.protection().protection)
    parts = ("source", "attributes", "measures", "unit")
    return all(known.get(part) == policy.protection().get(part) for part in parts)


def rebuild(
    policy: str | Path, state: str | Path | None = None, progress: Progress | None = None
) -> Report:
    """Read the source again, as a new snapshot in which every cell has paid what any has paid.

    Raises:
        StateError: the policy is not the one in force.
    """
    loaded = policies.load(policy)
    folder = state_folder(loaded, state)
    with opened(loaded, folder) as ledger:
        _same_policy(loaded, ledger)
        return _new_snapshot(loaded, folder, ledger, progress, {})


def _new_snapshot(
    policy: Policy,
    folder: Path,
    ledger: SQLiteLedger,
    progress: Progress | None,
    detail: dict[str, Any],
) -> Report:
    """Build the cube of the next snapshot beside the old one, and begin it in the ledger."""
    with ledger.transaction() as tx:
        bases = {}
        for name in {SHARED, *(m.history for m in tx.measurements())}:
            book = Book(name, _space_of(tx, policy), policy.max_records, ())
            book.catch_up(tx)
            bases[name] = book.account.spent().value
        old = tx.snapshot().id
        report = build(policy, cube_path(folder, old + 1), ledger.id, progress)
        new = tx.new_snapshot("", bases)
        assert new == old + 1
        if detail:
            tx.apply_policy(policy.digest, policy.protection())
        tx.audit("rebuild", me(), detail=detail)
    cube_path(folder, old).unlink(missing_ok=True)
    return report


def _space_of(reads: Reads, policy: Policy) -> Space:
    """Return the shape of the cube so far: that of its measurements, or of the policy."""
    rows = [m for m in reads.measurements() if m.snapshot == reads.snapshot().id]
    return rows[0].family.query.space if rows else space(policy.domain)


def audit(policy: str | Path, state: str | Path | None = None) -> list[AuditLine]:
    """Return every line of the audit log, free statements too, by time."""
    loaded = policies.load(policy)
    with opened(loaded, state_folder(loaded, state)) as ledger:
        return sorted([*ledger.audit(), *ledger.notes()], key=lambda line: line.time)


def verify(policy: str | Path, state: str | Path | None = None) -> list[str]:
    """Re-hash the whole ledger; return what does not agree, in words."""
    loaded = policies.load(policy)
    with opened(loaded, state_folder(loaded, state)) as ledger:
        return ledger.verify()


def backup(policy: str | Path, target: Path, state: str | Path | None = None) -> None:
    """Copy the ledger to a new file, while it is in use."""
    loaded = policies.load(policy)
    with opened(loaded, state_folder(loaded, state)) as ledger:
        ledger.backup(target)


def restore(policy: str | Path, source: Path, state: str | Path | None = None) -> None:
    """Put a backup in the place of the ledger; what was spent since is charged in full."""
    loaded = policies.load(policy)
    folder = state_folder(loaded, state)
    before = _cubes(folder)
    ledger = restore_ledger(
        ledger_path(folder),
        source,
        dataset=loaded.dataset,
        anchor=anchor_path(folder),
        user=me(),
    )
    try:  # a restored ledger begins a snapshot of the same cube
        if before:
            before[-1].replace(cube_path(folder, ledger.snapshot().id))
    finally:
        ledger.close()


def _cubes(folder: Path) -> list[Path]:
    return sorted(folder.glob("cube-*.duckdb"), key=lambda path: int(path.stem.split("-")[1]))


__all__ = [
    "ApplyReport",
    "CheckReport",
    "Report",
    "apply",
    "audit",
    "backup",
    "check",
    "init",
    "other_policy",
    "rebuild",
    "restore",
    "verify",
]
