"""Backups of a state, and restoring one where the state is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path

from msgspec import Struct

import proxy.files as state_files
import proxy.policy as policies
from proxy.errors import OperationalError, StateError
from proxy.inference.accounting import UNIT, budget_units
from proxy.ledger import Protection
from proxy.ledger.stored import StoredLedger
from proxy.policy import Policy
from proxy.policy.weaker import gains
from proxy.privileges import users_of
from proxy.protection import protection, shares
from proxy.state import (
    key_path,
    ledger_place,
    make_folder,
    near,
    state_folder,
)
from proxy.steward.changes import arranged, me, opened, same_policy, upgrade, with_users
from proxy.steward.drafts import cubes
from proxy.steward.loading import loaded
from proxy.steward.snapshots import (
    Progress,
    RebuildReport,
    adopt_cube,
    recover_cube,
)


class RestoreReport(Struct, frozen=True):
    """The outcome of a restore: what it charged, and what became of the cube."""

    dataset: str
    missed: bool  # whether the backup was older than the anchor
    charged: Mapping[str, float]  # alpha that the dearest cell has paid now, by history
    cube: str = "kept"  # kept | built | missing: why
    rebuilt: RebuildReport | None = None
    unknown: float = 0.0  # alpha that nobody knows who spent: charged to each who has a cap


def _newer_users(known: Protection, given: Protection) -> Protection | None:
    """Return a protection with the users of another, if it is the same and they gain nothing."""
    before, now = known.protection.get("users"), given.protection["users"]
    if before is None or known.digest != given.digest or gains(before, now):
        return None
    return with_users(known, given)


def backup(policy: str | Path, target: Path, state: str | Path | None = None) -> None:
    """Copy the ledger, with all that only its folder has, to a new file, while it is in use."""
    found = policies.load(policy)
    folder = state_folder(found, state)
    key = key_path(folder)
    with opened(found, folder) as ledger:
        ledger.backup(target, {key.name: state_files.read(key)} if key.exists() else {})


def restore(
    policy: str | Path,
    source: Path,
    state: str | Path | None = None,
    *,
    charge_all: bool = False,
    accept_weaker: bool = False,
    anchors: Sequence[Path] = (),
    progress: Progress | None = None,
) -> RestoreReport:
    """Put a backup in the place of the ledger; what was spent since is charged in full.

    ``anchors`` are copies of those of the other proxies on the ledger, which may have seen more.

    With ``charge_all`` the whole budget is, which a lost anchor needs: the largest that the policy
    or any that was ever in force gives.  A cube that is missing is built again.  Where a policy
    was applied since the backup, the policy file must be that one, and is put in force again.

    Raises:
        StateError: there is no backup of this dataset, or the anchor is missing, or the policy
            that was in force is not this one, which was not accepted.
        IntegrityError: the backup does not verify, or is not of the history that the anchor saw.
        OperationalError: the ledger is in use.
    """
    found = loaded(policy, source=False)
    folder = state_folder(found, state)
    state_files.enter(folder)
    if not source.exists():
        raise StateError(f"there is no backup {source}")
    make_folder(folder)
    before = cubes(folder)
    given = protection(found, users=users_of(found))

    ledger, files, missed = ledger_place(found, folder).restore(
        source,
        user=me(),
        anchors=anchors,
        charge=partial(_whole, given) if charge_all else None,
        in_force=partial(_in_force, found, given, accept_weaker),
    )
    try:
        key = key_path(folder)
        if key.name in files and not key.exists():
            state_files.replace(key, files[key.name])
        spent = {name: value / UNIT for name, value in ledger.spent().items()}
        capped = [each.budget for each in (*found.analysts.values(), *found.groups.values())]
        unknown = ledger.spent_unknown() / UNIT if any(capped) else 0.0
        cube, rebuilt = _restored_cube(found, folder, ledger, before, progress)
        return RestoreReport(found.dataset, missed, spent, cube, rebuilt, unknown)
    finally:
        ledger.close()


def _in_force(
    policy: Policy, given: Protection, accept_weaker: bool, ledger: StoredLedger, digest: str
) -> Protection | None:
    """Return what a restored ledger must hold to again, given what its anchor saw in force."""
    known = ledger.protection()
    if digest in ("", known.digest):
        return _newer_users(known, given)
    if given.digest != digest and not accept_weaker:
        raise StateError(
            f"another policy was in force than {near(policy)} and that of the backup",
            hint="put the policy file back as it was applied last, or accept that of the "
            "backup, whatever it lets pass: --accept-weaker",
        )
    return with_users(known, given) if given.digest == digest else None


def _whole(given: Protection, ledger: StoredLedger) -> dict[str, int]:
    """Return the most that any policy that was in force, or is given, lets each history charge."""
    most: dict[str, Fraction] = {}
    for value in (given.protection, *(each.protection for each in ledger.protections())):
        for history, budget in shares(value).items():
            most[history] = max(budget, most.get(history, Fraction(0)))
    return {history: budget_units(budget) for history, budget in most.items()}


def _restored_cube(
    policy: Policy,
    folder: Path,
    ledger: StoredLedger,
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
        same_policy(policy, meant, ledger, folder)
        return "built", recover_cube(policy, meant, folder, ledger, me(), progress)
    except OperationalError as error:
        return f"missing: {error.message}", None
