"""What a data steward does to a dataset's state: make, change, rebuild and restore it.

These are acts on the ledger, audited like any other; none of them gives an analyst anything back.
A policy, or a users file, that protects less than the ledger was told is accepted only when the
steward says so.  What is compared is what they mean (``proxy.protection``), and state is opened
only in the order of axes and values that it was written in.
"""

from __future__ import annotations

import getpass
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from secrets import token_hex

import proxy.policy as policies
from proxy.budgets import limits
from proxy.cube import Report
from proxy.errors import Error, SourceError, StateError
from proxy.inference.accounting import UNIT, budget_units
from proxy.ledger import Ledger, Protection, Reads
from proxy.ledger.anchor import sync_folder
from proxy.ledger.restore import restore as restore_ledger
from proxy.ledger.sqlite import SQLiteLedger
from proxy.policy import Policy, Users
from proxy.policy.weaker import gains
from proxy.privileges import access, require_supported, users_of
from proxy.protection import coding, first_version, protection, shares, upgraded
from proxy.sql.evaluator.evaluator import Evaluator
from proxy.state import (
    anchor_path,
    cube_path,
    key_path,
    ledger_path,
    make_folder,
    near,
    state_folder,
)
from proxy.steward.snapshots import (
    Progress,
    RebuildReport,
    adopt_cube,
    built,
    cubes,
    new_snapshot,
    open_cube,
    recover_cube,
    unchanged,
)


@dataclass(frozen=True)
class ApplyReport:
    """What applying a policy did."""

    dataset: str
    applied: bool  # False: it was in force already
    changes: tuple[str, ...]  # how it protects less
    rebuilt: RebuildReport | None = None


@dataclass(frozen=True)
class RestoreReport:
    """What putting back a backup charged, and what became of its cube."""

    dataset: str
    missed: bool  # whether the backup was older than the anchor
    charged: Mapping[str, float]  # alpha that the dearest cell has paid now, by history
    cube: str = "kept"  # kept | built | missing: why
    rebuilt: RebuildReport | None = None


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
    require_supported(found)
    with closing(Evaluator(found.domain)) as evaluator:
        limits(found, evaluator)  # what does not compile fails here, not later
    return found


def init(
    policy: str | Path, state: str | Path | None = None, progress: Progress | None = None
) -> Report | RebuildReport:
    """Make the state of a policy: the cube built from the data, and an empty ledger.

    Where the ledger is there and its cube is missing, only the cube is built again, and nothing
    that was spent is forgotten.

    Raises:
        StateError: it has been made already, or another policy is in force.
    """
    found = loaded(policy)
    folder = state_folder(found, state)
    if ledger_path(folder).exists():
        with opened(found, folder) as ledger:
            if cube_path(folder, ledger.snapshot().id).exists():
                raise StateError(
                    f"{folder} is already the state of {found.dataset}; nothing was changed",
                    hint="`privacy-proxy query` can be used at once",
                )
            _clear(folder)
            found = arranged(found, ledger)
            meant = protection(found, users=users_of(found))
            same_policy(found, meant, ledger)
            return recover_cube(found, meant, folder, ledger, me(), progress)
    if cubes(folder):
        raise StateError(
            f"the ledger in {folder} is gone, and with it what was spent of {found.dataset}",
            hint="put a backup in its place: privacy-proxy ledger restore",
        )
    SQLiteLedger.require_none(ledger_path(folder), anchor_path(folder))
    make_folder(folder)
    _clear(folder)
    meant = protection(found, users=users_of(found))
    id, draft = uuid.uuid4().hex, folder / f".cube-{token_hex(4)}.duckdb"
    try:
        made = built(found, meant, folder, draft, id, progress)
        SQLiteLedger.create(
            ledger_path(folder),
            dataset=found.dataset,
            protection=meant.protection,
            digest=meant.digest,
            fingerprint=made.fingerprint,
            layout=found.domain.layout,
            coding=made.coding,
            id=id,
            anchor=anchor_path(folder),
            user=me(),
        ).close()
        draft.replace(cube_path(folder))
        sync_folder(folder)
    finally:
        draft.unlink(missing_ok=True)
    return made.report


def _clear(folder: Path) -> None:
    """Remove what a build that was killed has left: it holds private data."""
    for leftover in folder.glob(".*cube-*"):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


@contextmanager
def opened(policy: Policy, folder: Path) -> Iterator[SQLiteLedger]:
    """Open the ledger of a state folder for the length of a block, in today's version."""
    ledger = SQLiteLedger.open(
        ledger_path(folder), dataset=policy.dataset, anchor=anchor_path(folder)
    )
    try:
        upgrade(policy, folder, ledger)
        yield ledger
    finally:
        ledger.close()


def upgrade(policy: Policy, folder: Path, ledger: SQLiteLedger) -> None:
    """Bring the policy in force of an older ledger to today's version, if this is that policy.

    Its snapshot's rows were written in the order of this policy's axes only where its cube was,
    and what decided the cell of a record then is not known, so that it is never carried on.
    """
    known, snapshot = ledger.protection(), ledger.snapshot()
    if known.protection.get("version") != 1 or known.digest != first_version(policy):
        return
    meant = protection(policy, users=users_of(policy))
    layout = None
    with suppress(Error):
        open_cube(policy, folder, ledger.id, snapshot)
        layout = policy.domain.layout
    with ledger.transaction() as tx:
        unchanged(tx, known.digest)
        tx.apply_policy(meant.digest, meant.protection)
        if snapshot.layout is None and layout is not None:
            tx.describe_snapshot(snapshot.id, layout, "")
        tx.audit("migrate", me(), detail={"digest": meant.digest})


def arranged(policy: Policy, reads: Reads) -> Policy:
    """Return the policy with its axes and values in the order of the state's own."""
    layout = reads.snapshot().layout
    if layout is None:
        return policy
    return replace(policy, domain=policy.domain.ordered_as(layout))


def same_policy(policy: Policy, meant: Protection, reads: Reads) -> None:
    """Refuse a policy that is not the one in force.

    Raises:
        StateError: it is not; with what it protects less.
    """
    known = reads.protection()
    if known.digest == meant.digest:
        return
    changes = policies.weaker(upgraded(known.protection), meant.protection)
    raise StateError(
        f"{near(policy)} has changed since it was applied to the state of {policy.dataset}",
        detail="it protects less: " + "; ".join(changes) if changes else "it protects no less",
        hint=f"undo the change, or apply it: privacy-proxy apply {near(policy)}",
    )


def take_users(policy: Policy, users: Users | None, ledger: Ledger) -> None:
    """Take over a users file that gives nobody more than before, and audit what it changes.

    Raises:
        StateError: it gives somebody more.
    """
    known = ledger.protection()
    now, before = access(policy, users), known.protection.get("users")
    if before is None or all(before.get(name) == each for name, each in now.items()):
        return
    if gained := gains(before, now):
        raise StateError(
            f"users.yaml gives more than was accepted for {policy.dataset}",
            detail="; ".join(gained),
            hint="undo the change, or accept it: privacy-proxy apply --accept-weaker "
            f"{near(policy)}",
        )
    with ledger.transaction() as tx:
        unchanged(tx, known.digest)
        meant = Protection(known.digest, dict(known.protection) | {"users": now})
        tx.apply_policy(meant.digest, _with_users(known, meant).protection)
        changed = sorted(name for name, each in now.items() if before.get(name) != each)
        tx.audit("users", me(), detail={"changed": changed})


def _with_users(known: Protection, meant: Protection) -> Protection:
    """Return a protection that remembers who is no longer listed as they were."""
    users = known.protection.get("users", {}) | meant.protection["users"]
    return replace(meant, protection=dict(meant.protection) | {"users": users})


def _newer_users(known: Protection, given: Protection) -> Protection | None:
    """Return a protection with the users of another, if it is the same and they gain nothing."""
    before, now = known.protection.get("users"), given.protection["users"]
    if before is None or known.digest != given.digest or gains(before, now):
        return None
    return _with_users(known, given)


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
        new = arranged(new, ledger)
        known, meant = ledger.protection(), protection(new, users=users_of(new))
        before = upgraded(known.protection)
        changes = tuple(policies.weaker(before, meant.protection))
        users, fits = before["users"], _fits(new, meant, folder, ledger)
        listed = all(users.get(n) == each for n, each in meant.protection["users"].items())
        if known.digest == meant.digest and listed and fits:
            return ApplyReport(new.dataset, False, ())
        if changes and not accept_weaker:
            raise StateError(
                "the policy protects less than the one in force; nothing was changed",
                detail="; ".join(changes),
                hint=f"to apply it all the same: privacy-proxy apply --accept-weaker {near(new)}",
            )
        meant = _with_users(known, meant)
        detail = {"digest": meant.digest, "weaker": list(changes)}
        if not fits:
            rebuilt = new_snapshot(new, meant, folder, ledger, me(), progress, detail)
            return ApplyReport(new.dataset, True, changes, rebuilt)
        with ledger.transaction() as tx:
            unchanged(tx, known.digest)
            tx.apply_policy(meant.digest, meant.protection)
            tx.audit("policy", me(), detail=detail)
        return ApplyReport(new.dataset, True, changes)


def _fits(policy: Policy, meant: Protection, folder: Path, ledger: SQLiteLedger) -> bool:
    """Return whether the cube that is there is that of the policy's domain and source."""
    known = upgraded(ledger.protection().protection)
    try:
        open_cube(policy, folder, ledger.id, ledger.snapshot())
    except StateError:
        return False
    same = coding(known) == coding(meant.protection)
    return same and policy.max_records >= known["max_records"]


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
        found = arranged(found, ledger)
        meant = protection(found, users=users_of(found))
        same_policy(found, meant, ledger)
        return new_snapshot(found, meant, folder, ledger, me(), progress)


def backup(policy: str | Path, target: Path, state: str | Path | None = None) -> None:
    """Copy the ledger, with all that only its folder has, to a new file, while it is in use."""
    found = policies.load(policy)
    folder = state_folder(found, state)
    key = key_path(folder)
    with opened(found, folder) as ledger:
        ledger.backup(target, {key.name: key.read_bytes()} if key.exists() else {})


def restore(
    policy: str | Path,
    source: Path,
    state: str | Path | None = None,
    *,
    charge_all: bool = False,
    accept_weaker: bool = False,
    progress: Progress | None = None,
) -> RestoreReport:
    """Put a backup in the place of the ledger; what was spent since is charged in full.

    With ``charge_all`` the whole budget is, which a lost anchor needs: the largest that the policy
    or any that was ever in force gives.  A cube that is missing is built again.  Where a policy
    was applied since the backup, the policy file must be that one, and is put in force again.

    Raises:
        StateError: there is no backup of this dataset, or the anchor is missing, or the policy
            that was in force is not this one, which was not accepted.
        IntegrityError: the backup does not verify, or is not of the history that the anchor saw.
        OperationalError: the ledger is in use.
    """
    found = loaded(policy)
    folder = state_folder(found, state)
    if not source.exists():
        raise StateError(f"there is no backup {source}")
    make_folder(folder)
    before = cubes(folder)
    given = protection(found, users=users_of(found))

    def in_force(ledger: SQLiteLedger, digest: str) -> Protection | None:
        known = ledger.protection()
        if digest in ("", known.digest):
            return _newer_users(known, given)
        if given.digest != digest and not accept_weaker:
            raise StateError(
                f"another policy was in force than {near(found)} and that of the backup",
                hint="put the policy file back as it was applied last, or accept that of the "
                "backup, whatever it lets pass: --accept-weaker",
            )
        return _with_users(known, given) if given.digest == digest else None

    def whole(ledger: SQLiteLedger) -> dict[str, int]:
        most: dict[str, Fraction] = {}
        for value in (given.protection, *(each.protection for each in ledger.protections())):
            for history, budget in shares(value).items():
                most[history] = max(budget, most.get(history, Fraction(0)))
        return {history: budget_units(budget) for history, budget in most.items()}

    ledger, files, missed = restore_ledger(
        ledger_path(folder),
        source,
        dataset=found.dataset,
        anchor=anchor_path(folder),
        user=me(),
        charge=whole if charge_all else None,
        in_force=in_force,
    )
    try:
        key = key_path(folder)
        if key.name in files and not key.exists():
            key.touch(0o600)
            key.write_bytes(files[key.name])
        spent = {name: value / UNIT for name, value in ledger.spent().items()}
        cube, rebuilt = _restored_cube(found, folder, ledger, before, progress)
        return RestoreReport(found.dataset, missed, spent, cube, rebuilt)
    finally:
        ledger.close()


def _restored_cube(
    policy: Policy,
    folder: Path,
    ledger: SQLiteLedger,
    there: list[Path],
    progress: Progress | None,
) -> tuple[str, RebuildReport | None]:
    """Find or build the cube of the snapshot that is the current one after a restore."""
    try:
        adopted = adopt_cube(arranged(policy, ledger), folder, ledger, there)
        upgrade(policy, folder, ledger)
        policy = arranged(policy, ledger)
        if adopted:
            return "kept", None
        meant = protection(policy, users=users_of(policy))
        same_policy(policy, meant, ledger)
        return "built", recover_cube(policy, meant, folder, ledger, me(), progress)
    except (StateError, SourceError) as error:
        return f"missing: {error.message}", None
