"""What a data steward does to a dataset's state: make it, check it, change its policy, rebuild it.

These are acts on the ledger, audited like any other; none of them gives an analyst anything back.
A policy that protects less than the ledger was told is applied only when the steward says so.  A
cube is a snapshot: in a new one every cell starts with the largest cost that any cell had reached,
since the people in it may be the same; only where the policy says that records never change, and
rows are what is protected, is every cell charged on with its own.

Invariant: whenever this is killed, the ledger's snapshot has its whole cube, or none, which is an
error that says what to do.  A new cube is built beside the old one, without the lock; it takes its
place within the transaction that begins its snapshot, and the old one goes after the commit.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_bytes, token_hex
from typing import Any

import proxy.policy as policies
from proxy.book import accounts, limits
from proxy.cube import Cube, Report, build, fingerprint
from proxy.errors import StateError
from proxy.inference.accounting import UNIT, budget_units
from proxy.ledger import Reads, Snapshot
from proxy.ledger.anchor import sync_folder
from proxy.ledger.restore import restore as restore_ledger
from proxy.ledger.sqlite import SQLiteLedger
from proxy.policy import Policy
from proxy.roles import histories, honoured, share
from proxy.sql.compile import space
from proxy.sql.evaluate import Evaluator
from proxy.state import (
    anchor_path,
    cube_path,
    key_path,
    ledger_path,
    make_folder,
    state_folder,
)

Progress = Callable[[float], None]


@dataclass(frozen=True)
class RebuildReport:
    """A new snapshot: its data, and what every cell has paid at its beginning, by history."""

    snapshot: int
    survey: Report
    bases: Mapping[str, float]  # alpha
    carried: bool  # each cell goes on with what it had paid itself


@dataclass(frozen=True)
class ApplyReport:
    """What applying a policy did."""

    dataset: str
    applied: bool  # False: it was in force already
    changes: tuple[str, ...]  # how it protects less
    rebuilt: RebuildReport | None = None


@dataclass(frozen=True)
class RestoreReport:
    """What putting back a backup charged."""

    dataset: str
    missed: bool  # whether the backup was older than the anchor
    charged: Mapping[str, float]  # alpha that the dearest cell has paid now, by history


def me() -> str:
    """Return the name that the steward's acts are audited under."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def loaded(policy: str | Path) -> Policy:
    """Return a policy, all of which is honoured here.

    Raises:
        PolicyError: it is wrong, or asks for what nothing here does yet.
    """
    found = policies.load(policy)
    honoured(found)
    with closing(Evaluator(found.domain)) as evaluator:
        limits(found, evaluator)  # what does not compile fails here, not later
    return found


def init(
    policy: str | Path, state: str | Path | None = None, progress: Progress | None = None
) -> Report:
    """Make the state of a policy: an empty ledger, and the cube built from the data.

    Raises:
        StateError: it has been made already.
    """
    found = loaded(policy)
    folder = state_folder(found, state)
    if ledger_path(folder).exists() and _cubes(folder):
        raise StateError(
            f"{folder} is already the state of {found.dataset}; nothing was changed",
            hint="`privacy-proxy query` can be used at once",
        )
    if _cubes(folder):
        raise StateError(
            f"the ledger in {folder} is gone, and with it what was spent of {found.dataset}",
            hint="put a backup in its place: privacy-proxy ledger restore",
        )
    make_folder(folder)
    for leftover in folder.glob(".cube-*"):  # of a build that was killed: it holds private data
        shutil.rmtree(leftover, ignore_errors=True)
    if ledger_path(folder).exists():  # a build was interrupted, or failed: go on with its ledger
        with opened(found, folder) as ledger:
            if ledger.protection().digest != found.digest:
                if ledger.measurements():
                    raise other_policy(found, dict(ledger.protection().protection))
                with ledger.transaction() as tx:
                    tx.apply_policy(found.digest, found.protection())
                    tx.audit("policy", me(), detail={"digest": found.digest})
            return build(found, cube_path(folder, ledger.snapshot().id), ledger.id, progress)
    ledger = SQLiteLedger.create(
        ledger_path(folder),
        dataset=found.dataset,
        protection=found.protection(),
        digest=found.digest,
        fingerprint=fingerprinted(found, folder),
        anchor=anchor_path(folder),
        user=me(),
    )
    try:
        return build(found, cube_path(folder), ledger.id, progress)
    finally:
        ledger.close()


def fingerprinted(policy: Policy, folder: Path) -> str:
    """Return the source's fingerprint under the state's own key, after the name of that key."""
    path = key_path(folder)
    if not path.exists():
        draft = path.with_suffix(f".{token_hex(4)}")
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(token_bytes(32))
        draft.replace(path)
    key = path.read_bytes()
    return f"{hashlib.sha256(key).hexdigest()[:8]}:{fingerprint(policy, key)}"


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


def open_cube(policy: Policy, folder: Path, ledger_id: str, snapshot: int) -> Cube:
    """Open the cube of a snapshot.

    Raises:
        StateError: there is none.
    """
    path = cube_path(folder, snapshot)
    if not path.exists() and (snapshot > 1 or _cubes(folder)):
        raise StateError(
            f"the cube of snapshot {snapshot} of {policy.dataset} is not there",
            hint=f"build it anew: privacy-proxy rebuild {_near(policy)}",
        )
    return Cube.open(path, policy.domain, ledger_id)


def same_policy(policy: Policy, reads: Reads) -> None:
    """Refuse a policy that is not the one in force."""
    known = reads.protection()
    if known.digest != policy.digest:
        raise other_policy(policy, dict(known.protection))


def other_policy(policy: Policy, known: dict[str, Any]) -> StateError:
    """Return the error of a policy that is not the one the ledger was told."""
    changes = policies.weaker(known, policy.protection())
    return StateError(
        f"{_near(policy)} has changed since it was applied to the state of {policy.dataset}",
        detail="it protects less: " + "; ".join(changes) if changes else "it protects no less",
        hint=f"undo the change, or apply it: privacy-proxy apply {_near(policy)}",
    )


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
    new = loaded(policy)
    folder = state_folder(new, state)
    with opened(new, folder) as ledger:
        known = ledger.protection()
        changes = tuple(policies.weaker(dict(known.protection), new.protection()))
        if known.digest == new.digest:
            return ApplyReport(new.dataset, False, ())
        if changes and not accept_weaker:
            raise StateError(
                "the policy protects less than the one in force; nothing was changed",
                detail="; ".join(changes),
                hint=f"to apply it all the same: privacy-proxy apply --accept-weaker {_near(new)}",
            )
        detail = {"digest": new.digest, "weaker": list(changes)}
        if not _fits(new, folder, ledger):
            rebuilt = _new_snapshot(new, folder, ledger, progress, detail)
            return ApplyReport(new.dataset, True, changes, rebuilt)
        with ledger.transaction() as tx:
            _unchanged(tx, known.digest)
            tx.apply_policy(new.digest, new.protection())
            tx.audit("policy", me(), detail=detail)
        return ApplyReport(new.dataset, True, changes)


def _fits(policy: Policy, folder: Path, ledger: SQLiteLedger) -> bool:
    """Return whether the cube that is there is that of the policy's domain and source."""
    try:
        open_cube(policy, folder, ledger.id, ledger.snapshot().id)
    except StateError:
        return False
    known, new = dict(ledger.protection().protection), policy.protection()
    parts = ("source", "attributes", "measures", "unit")
    same = all(known.get(part) == new.get(part) for part in parts)
    return same and new["max_records"] >= known["max_records"]


def rebuild(
    policy: str | Path, state: str | Path | None = None, progress: Progress | None = None
) -> RebuildReport:
    """Read the source again, as a new snapshot in which every cell has paid what any has paid.

    Raises:
        StateError: the policy is not the one in force.
    """
    found = loaded(policy)
    folder = state_folder(found, state)
    with opened(found, folder) as ledger:
        same_policy(found, ledger)
        return _new_snapshot(found, folder, ledger, progress, {})


def _unchanged(tx: Reads, digest: str) -> None:
    """Refuse to go on where somebody else has applied a policy meanwhile."""
    if tx.protection().digest != digest:
        raise StateError("another policy has been applied meanwhile; nothing was changed")


def _new_snapshot(
    policy: Policy,
    folder: Path,
    ledger: SQLiteLedger,
    progress: Progress | None,
    detail: dict[str, Any],
) -> RebuildReport:
    """Build the cube of the next snapshot beside the old one, and begin it in the ledger."""
    old, known = ledger.snapshot(), ledger.protection()
    draft = folder / f".cube-{token_hex(4)}.duckdb"
    try:
        source = fingerprinted(policy, folder)
        report = build(policy, draft, ledger.id, progress)
        with ledger.transaction() as tx:
            _unchanged(tx, known.digest)
            if tx.snapshot() != old:
                raise StateError("the cube has been rebuilt meanwhile; nothing was changed")
            carried = _carries(policy) and not detail
            bases = dict(old.bases) if carried else _bases(tx, old, policy)
            new = tx.new_snapshot(source, bases)
            if detail:
                tx.apply_policy(policy.digest, policy.protection())
            tx.audit("rebuild", me(), detail={"snapshot": new, "carried": carried} | detail)
            draft.replace(cube_path(folder, new))
            sync_folder(folder)
    finally:
        draft.unlink(missing_ok=True)
    for path in _cubes(folder):
        if path != cube_path(folder, new):
            path.unlink(missing_ok=True)
    spent = {name: base / UNIT for name, base in bases.items()}
    return RebuildReport(new, report, spent, carried)


def _carries(policy: Policy) -> bool:
    """Whether nobody can be in another cell of a new snapshot than in the old one."""
    return policy.records == "immutable" and policy.privacy.unit.column is None


def _bases(reads: Reads, old: Snapshot, policy: Policy) -> dict[str, int]:
    """Return the most that any cell has paid, by history."""
    rows = [row for row in reads.measurements() if old.charges(row)]
    shape = rows[0].family.query.space if rows else space(policy.domain)
    return {name: account.spent().value for name, account in accounts(reads, shape).items()}


def backup(policy: str | Path, target: Path, state: str | Path | None = None) -> None:
    """Copy the ledger to a new file, while it is in use."""
    found = policies.load(policy)
    with opened(found, state_folder(found, state)) as ledger:
        ledger.backup(target)


def restore(
    policy: str | Path,
    source: Path,
    state: str | Path | None = None,
    *,
    charge_all: bool = False,
) -> RestoreReport:
    """Put a backup in the place of the ledger; what was spent since is charged in full.

    With ``charge_all`` the whole budget is, which a lost anchor needs.

    Raises:
        StateError: there is no backup of this dataset, or the anchor is missing.
        IntegrityError: the backup does not verify, or is not of the history that the anchor saw.
        OperationalError: the ledger is in use.
    """
    found = policies.load(policy)
    folder = state_folder(found, state)
    whole = found.privacy.budget / found.privacy.unit.max_rows
    budgets = {name: budget_units(whole * share(found, name)) for name in histories(found)}
    before = _cubes(folder)
    ledger = restore_ledger(
        ledger_path(folder),
        source,
        dataset=found.dataset,
        anchor=anchor_path(folder),
        user=me(),
        spent=budgets if charge_all else None,
    )
    try:
        snapshot = ledger.snapshot()
        missed = snapshot.sequence == ledger.sequence()  # then it began with the restore
        if missed and before:  # and is of the same data
            before[-1].replace(cube_path(folder, snapshot.id))
            sync_folder(folder)
        spent = {name: value / UNIT for name, value in ledger.spent().items()}
        return RestoreReport(found.dataset, missed, spent)
    finally:
        ledger.close()


def _near(policy: Policy) -> Path:
    """Return the policy's path as seen from the current folder, where it lies inside."""
    path, here = policy.path, Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _cubes(folder: Path) -> list[Path]:
    return sorted(folder.glob("cube-*.duckdb"), key=lambda path: int(path.stem.split("-")[1]))
