"""What a data steward does to a dataset's state: make, change, rebuild and restore it.

These are acts on the ledger, audited like any other; none of them gives an analyst anything back.
A policy, or a users file, that protects less than the ledger was told is accepted only when the
steward says so.  What is compared is what they mean (``proxy.protection``), and state is opened
only in the order of axes and values that it was written in.
"""

from __future__ import annotations

import getpass
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

import proxy.policy as policies
from proxy.errors import IntegrityError, StateError
from proxy.files import enter
from proxy.ledger import Ledger, Protection, Reads
from proxy.ledger.anchor import sync_folder
from proxy.ledger.place import Place
from proxy.ledger.stored import StoredLedger
from proxy.policy import Policy, Users
from proxy.policy.weaker import gains
from proxy.privileges import access, users_of
from proxy.protection import coding, digest, first_version, protection, upgraded, without_rows
from proxy.state import (
    command,
    cube_path,
    key_path,
    ledger_place,
    make_folder,
    near,
    state_folder,
)
from proxy.steward.drafts import drafting
from proxy.steward.loading import loaded
from proxy.steward.snapshots import (
    Progress,
    RebuildReport,
    built,
    new_snapshot,
    open_cube,
    recover_cube,
    unchanged,
    verify_cube,
)
from proxy.steward.twins import twins

if TYPE_CHECKING:
    from proxy.cube import Report


class ApplyReport(Struct, frozen=True):
    """The outcome of applying a policy."""

    dataset: str
    applied: bool  # False: it was in force already
    changes: tuple[str, ...]  # how it protects less
    rebuilt: RebuildReport | None = None


class ChangedPolicyError(StateError):
    """A policy's file, or the users file, is not what is in force."""


def me() -> str:
    """Return the name that the steward's acts are audited under."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def init(
    policy: str | Path,
    state: str | Path | None = None,
    progress: Progress | None = None,
    *,
    accept_second_budget: bool = False,
) -> Report | RebuildReport | None:
    """Make the state of a policy: the cube built from the data, and an empty ledger.

    Where the ledger is there and its cube is missing, only the cube is built again, and nothing
    that was spent is forgotten.  None where a folder with a copy of the right cube has joined.

    Raises:
        StateError: it has been made already, or another policy is in force, or another state beside
            it is over the same source, which was not accepted.
    """
    found = loaded(policy)
    folder = state_folder(found, state)
    enter(folder)
    place = ledger_place(found, folder)
    if place.exists():
        return _recovered(found, folder, _join(place, found), progress)
    place.require_none()
    others = dict(twins(found, folder))
    if others and not accept_second_budget:
        raise _second_budget(found, folder, others)
    make_folder(folder)
    meant = protection(found, users=users_of(found))
    id = uuid.uuid4().hex
    with drafting(folder, alone=True) as draft:
        place.require_none()
        made = built(found, meant, folder, draft, id, progress)
        place.create(
            {
                "protection": meant.protection,
                "digest": meant.digest,
                "fingerprint": made.fingerprint,
                "layout": found.domain.layout,
                "coding": made.coding,
                "closing": made.closing,
                "id": id,
                "user": me(),
                "detail": {"second_budget_beside": sorted(others)} if others else {},
            }
        )
        draft.replace(cube_path(folder))
        sync_folder(folder)
    return made.report


def _recovered(
    policy: Policy, folder: Path, joined: bool, progress: Progress | None
) -> RebuildReport | None:
    """Build the missing cube of a state that is there; None if it has joined with its cube."""
    with opened(policy, folder) as ledger:
        policy = arranged(policy, ledger)
        if _has_cube(policy, folder, ledger):
            if joined:
                return None
            raise StateError(
                f"{folder} is already the state of {policy.dataset}; nothing was changed",
                hint="`privacy-proxy query` can be used at once",
            )
        meant = protection(policy, users=users_of(policy))
        same_policy(policy, meant, ledger, folder)
        return recover_cube(policy, meant, folder, ledger, me(), progress)


def _join(place: Place, policy: Policy) -> bool:
    """Let a new state folder follow a ledger that proxies with other folders use already, if it is.

    Raises:
        StateError: the key is not there by which they know that the source is the same.
    """
    if not place.joins():
        return False
    key = key_path(place.path.parent)
    if not key.exists():
        raise StateError(
            f"other proxies use the ledger of {policy.dataset} already, and without their key it "
            "cannot be told whether this one reads the same data; nothing was changed",
            hint=f"copy {key.name} from the state folder of one of them to {key}, for its owner "
            "alone (mode 600), and do it again",
        )
    make_folder(key.parent)
    place.join()
    return True


def _second_budget(policy: Policy, folder: Path, others: Mapping[str, str]) -> StateError:
    """Return the error for a state whose people have another budget already."""
    keeps = f"its name ({', '.join(others)})"
    if policy.dataset in others:
        keeps = "its state (--state, or `state:` in the policy, names the folder around it)"
    all_the_same = command("init", policy, folder, "--accept-second-budget")
    return StateError(
        f"{policy.dataset} would have a second budget: {'; '.join(others.values())}",
        hint=f"a dataset keeps {keeps}, and its budget with it; to let people lose both budgets "
        f"all the same: {all_the_same}",
    )


@contextmanager
def opened(policy: Policy, folder: Path) -> Iterator[StoredLedger]:
    """Open the ledger of a state folder for the length of a block, in today's version."""
    enter(folder)
    ledger = ledger_place(policy, folder).open()
    try:
        upgrade(policy, folder, ledger)
        yield ledger
    finally:
        ledger.close()


def upgrade(policy: Policy, folder: Path, ledger: StoredLedger) -> None:
    """Bring the policy in force of an older ledger to today's version, if this is that policy.

    Its snapshot's rows were written in the order of this policy's axes only where its cube was,
    and what decided the cell of a record then is not known, so that it is never carried on.
    """
    known, snapshot = ledger.protection(), ledger.snapshot()
    if known.protection.get("version") == 1:
        if known.digest != first_version(policy):
            return
        meant = protection(policy, users=users_of(policy))
    elif "rows" in known.protection:
        value = without_rows(known.protection)
        meant = Protection(digest(value), value)
    else:
        return
    layout = None
    with suppress(StateError, IntegrityError):
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


def same_policy(
    policy: Policy, meant: Protection, reads: Reads, folder: Path | None = None
) -> None:
    """Refuse a policy that is not the one in force in the ledger, of a state folder.

    Raises:
        ChangedPolicyError: it is not; with what it protects less.
    """
    known = reads.protection()
    if known.digest == meant.digest:
        return
    changes = policies.weaker(upgraded(known.protection), meant.protection)
    weaker = ["--accept-weaker"] if changes else []
    raise ChangedPolicyError(
        f"{near(policy)} has changed since it was applied to the state of {policy.dataset}",
        detail="it protects less: " + "; ".join(changes) if changes else "it protects no less",
        hint=f"undo the change, or apply it: {command('apply', policy, folder, *weaker)}",
    )


def take_users(
    policy: Policy, users: Users | None, ledger: Ledger, folder: Path | None = None
) -> None:
    """Take over a users file that gives nobody more than before, and audit what it changes.

    Raises:
        ChangedPolicyError: it gives somebody more.
    """
    known = ledger.protection()
    now, before = access(policy, users), known.protection.get("users")
    if before is None or all(before.get(name) == each for name, each in now.items()):
        return
    if gained := gains(before, now):
        raise ChangedPolicyError(
            f"users.yaml gives more than was accepted for {policy.dataset}",
            detail="; ".join(gained),
            hint="undo the change, or accept it: "
            + command("apply", policy, folder, "--accept-weaker"),
        )
    with ledger.transaction() as tx:
        unchanged(tx, known.digest)
        meant = Protection(known.digest, dict(known.protection) | {"users": now})
        tx.apply_policy(meant.digest, with_users(known, meant).protection)
        changed = sorted(name for name, each in now.items() if before.get(name) != each)
        tx.audit("users", me(), detail={"changed": changed})


def with_users(known: Protection, meant: Protection) -> Protection:
    """Return a protection that still has the users who were removed or changed."""
    users = known.protection.get("users", {}) | meant.protection["users"]
    return replace(meant, protection=dict(meant.protection) | {"users": users})


class Intention(Struct, frozen=True):
    """What applying a policy would do to a state."""

    known: Protection  # in force
    meant: Protection
    weaker: tuple[str, ...]  # how it protects less
    fits: bool  # the present cube; else it is rebuilt
    new: bool  # whether it is not in force already


def intention(policy: Policy, folder: Path, ledger: StoredLedger) -> Intention:
    """Return what applying a policy would do; its axes are in the ledger's order."""
    known, meant = ledger.protection(), protection(policy, users=users_of(policy))
    before = upgraded(known.protection)
    changes = tuple(policies.weaker(before, meant.protection))
    if before["source"] != meant.protection["source"]:
        others = twins(policy, folder)
        changes += tuple(f"the people of {name} have a budget there: {how}" for name, how in others)
    users, fits = before["users"], _fits(policy, meant, folder, ledger)
    listed = all(users.get(name) == each for name, each in meant.protection["users"].items())
    new = known.digest != meant.digest or not listed or not fits
    return Intention(known, meant, changes if new else (), fits, new)


def apply(
    policy: str | Path,
    state: str | Path | None = None,
    *,
    accept_weaker: bool | Collection[str] = False,
    everything: bool = False,
    progress: Progress | None = None,
    user: str | None = None,
) -> ApplyReport:
    """Make a changed policy the one in force; rebuild the cube where its cells have changed.

    ``accept_weaker`` is True for whatever it protects less, or has the sentences that are accepted.
    ``user`` is who does it, if not the user of this process.

    Raises:
        StateError: it protects less than the one in force, and that was not accepted; or closed
            periods would be read again, and ``everything`` does not say so.
    """
    new = loaded(policy, absent=True)  # only other cells need it
    folder, user = state_folder(new, state), user or me()
    with opened(new, folder) as ledger:
        new = arranged(new, ledger)
        found = intention(new, folder, ledger)
        if not found.new:
            return ApplyReport(new.dataset, False, ())
        accepted = found.weaker if accept_weaker is True else accept_weaker or ()
        if not set(found.weaker) <= set(accepted):
            flags = ["--accept-weaker", *(["--all"] if everything else [])]
            raise StateError(
                "the policy protects less than the one in force; nothing was changed",
                detail="; ".join(found.weaker),
                hint=f"to apply it all the same: {command('apply', new, folder, *flags)}",
            )
        meant = with_users(found.known, found.meant)
        detail = {"digest": meant.digest, "weaker": list(found.weaker)}
        if not found.fits:
            rebuilt = new_snapshot(
                new, meant, folder, ledger, user, progress, detail, everything=everything
            )
            return ApplyReport(new.dataset, True, found.weaker, rebuilt)
        with ledger.transaction() as tx:
            unchanged(tx, found.known.digest)
            tx.apply_policy(meant.digest, meant.protection)
            tx.audit("policy", user, detail=detail)
        return ApplyReport(new.dataset, True, found.weaker)


def _fits(policy: Policy, meant: Protection, folder: Path, ledger: StoredLedger) -> bool:
    """Return whether the present cube has the policy's domain and source."""
    known, snapshot = upgraded(ledger.protection().protection), ledger.snapshot()
    try:
        open_cube(policy, folder, ledger.id, snapshot)
    except StateError:
        return False
    same = coding(known) == coding(meant.protection)
    part, closing = policy.partition, snapshot.closing
    same &= (part and part.column) == (closing and closing.column)
    return same and policy.max_records >= known["max_records"]


def rebuild(
    policy: str | Path,
    state: str | Path | None = None,
    progress: Progress | None = None,
    *,
    everything: bool = False,
) -> RebuildReport:
    """Read the source again, as a new snapshot in which every cell has paid what any has paid.

    With ``everything`` closed periods are read again, too.

    Raises:
        StateError: the policy is not the one in force.
    """
    found = loaded(policy)
    folder = state_folder(found, state)
    with opened(found, folder) as ledger:
        found = arranged(found, ledger)
        meant = protection(found, users=users_of(found))
        same_policy(found, meant, ledger, folder)
        return new_snapshot(found, meant, folder, ledger, me(), progress, everything=everything)


def _has_cube(policy: Policy, folder: Path, ledger: StoredLedger) -> bool:
    """Whether the cube of the current snapshot is there, whole, and its own."""
    snapshot = ledger.snapshot()
    with suppress(StateError, IntegrityError):
        open_cube(policy, folder, ledger.id, snapshot)
        verify_cube(folder, ledger.id, snapshot)
        return True
    return False
