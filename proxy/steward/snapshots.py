"""Snapshots and their cubes: which source a cube was built from, and what a new one begins with.

A cube is a snapshot: in a new one every cell starts with the largest cost that any cell had
reached, since the people in it may be the same.  Only where the policy says that records never
change, rows are what is protected, and nothing that decides the cell of a record has changed, is
every cell charged on with its own.  A missing cube is built again for its own snapshot only from
the snapshot's own source.

Invariant: whenever this is killed, the ledger's snapshot has its whole cube, or none, which is an
error that says what to do.  A new cube is built beside the old one, without the lock; it takes its
place within the transaction that begins its snapshot, and the old one goes after the commit.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from secrets import token_bytes, token_hex
from typing import TYPE_CHECKING, Any

import proxy.cube
from proxy.budgets import accounts
from proxy.errors import IntegrityError, StateError
from proxy.files import create, read
from proxy.inference.accounting import UNIT
from proxy.ledger import Protection, Reads, Snapshot
from proxy.ledger.anchor import sync_folder
from proxy.ledger.stored import StoredLedger
from proxy.policy import Policy
from proxy.protection import coding
from proxy.sql.compile.release_point import space
from proxy.state import cube_path, key_path, near

if TYPE_CHECKING:
    from proxy.cube import Cube, Report

Progress = Callable[[float | None], None]
PART = ":"  # between what the policy, and what the source says of how records become cells


@dataclass(frozen=True)
class RebuildReport:
    """A cube, and what every cell of its snapshot has paid at its beginning, by history."""

    snapshot: int
    survey: Report
    bases: Mapping[str, float]  # alpha
    carried: bool  # each cell goes on with what it had paid itself
    again: bool = False  # the missing cube of a snapshot, from the same source


def fingerprinted(policy: Policy, folder: Path) -> str:
    """Return the source's fingerprint under the state's own key, after the name of that key."""
    name, key = _key(folder)
    return f"{name}:{proxy.cube.fingerprint(policy, key)}"


def surveyed(policy: Policy, folder: Path) -> tuple[Report, str]:
    """Return the effect of a policy on its source, and the fingerprint that it has just now."""
    name, key = _key(folder)
    report, own = proxy.cube.surveyed(policy, key)
    return report, f"{name}:{own}"


def _key(folder: Path) -> tuple[str, bytes]:
    """Return the key of a state's fingerprints, after its name; it is made when first needed."""
    path = key_path(folder)
    if not path.exists():
        draft = path.with_suffix(f".{token_hex(4)}")
        with open(create(draft), "wb") as file:
            file.write(token_bytes(32))
        draft.replace(path)
    key = read(path)
    return hashlib.sha256(key).hexdigest()[:8], key


@dataclass(frozen=True)
class Built:
    """A cube that was built: what was read, of which source, and how its records became cells."""

    report: Report
    fingerprint: str
    coding: str


def built(
    policy: Policy,
    meant: Protection,
    folder: Path,
    draft: Path,
    ledger_id: str,
    progress: Progress | None,
) -> Built:
    """Build a cube.

    Raises:
        SourceError: the source changed while it was read.
    """
    (name, key), codes = _key(folder), coding(meant.protection)
    found = "", ""

    def origin(fingerprint: str, recipe: str) -> str:
        nonlocal found
        found = f"{name}:{fingerprint}", f"{codes}{PART}{recipe}"
        return _origin(*found)

    report = proxy.cube.build(policy, draft, ledger_id, progress, key, origin)
    return Built(report, *found)


@contextmanager
def drafting(folder: Path, alone: bool = False) -> Iterator[Path]:
    """Yield a place for a cube that is built, which nobody clears away meanwhile.

    Raises:
        StateError: another build of the state is under way, where there may be one ``alone``.
    """
    draft = folder / f".cube-{token_hex(4)}.duckdb"
    with ExitStack() as stack:
        try:
            stack.enter_context(
                _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
            )
        except BlockingIOError:
            raise StateError(
                f"another process is making {folder}; nothing was changed", hint="wait for it"
            ) from None
        stack.callback(draft.unlink, missing_ok=True)
        yield draft


def clear(folder: Path) -> None:
    """Remove the leftovers of killed builds, unless one is under way: they hold private data."""
    with suppress(BlockingIOError), _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
        for leftover in folder.glob(".*cube-*"):
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[None]:
    """Hold the lock of a folder's builds, where its file system has locks.

    Raises:
        BlockingIOError: somebody else holds it, and ``how`` says not to wait.
    """
    opened = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(opened, how)
        except BlockingIOError:
            raise
        except OSError:
            pass
        yield
    finally:
        os.close(opened)


def open_cube(policy: Policy, folder: Path, ledger_id: str, snapshot: Snapshot) -> Cube:
    """Open the cube of a snapshot.

    Raises:
        StateError: there is none, or it is that of another source or domain.
    """
    path = cube_path(folder, snapshot.id)
    if not path.exists():
        raise StateError(
            f"the cube of snapshot {snapshot.id} of {policy.dataset} is not there",
            hint=f"build it again: privacy-proxy init {near(policy)}",
        )
    if snapshot.layout is not None and snapshot.layout != policy.domain.layout:
        raise StateError(
            f"the ledger of {policy.dataset} was written for other axes, or in another order",
            hint=f"apply the policy: privacy-proxy apply {near(policy)}",
        )
    return proxy.cube.Cube.open(path, policy.domain, ledger_id, _origin_of(snapshot))


def verify_cube(folder: Path, ledger_id: str, snapshot: Snapshot) -> None:
    """See that the cube of a snapshot is there, whole, and its own.

    Raises:
        Error: it is not.
    """
    proxy.cube.verify(cube_path(folder, snapshot.id), ledger_id, _origin_of(snapshot))


def cubes(folder: Path) -> list[Path]:
    """Return the cubes that are there, of the oldest snapshot first."""
    return sorted(folder.glob("cube-*.duckdb"), key=lambda path: int(path.stem.split("-")[1]))


def unchanged(tx: Reads, digest: str) -> None:
    """Refuse to go on where somebody else has applied a policy meanwhile."""
    if tx.policy() != digest:
        raise StateError("another policy has been applied meanwhile; nothing was changed")


def new_snapshot(
    policy: Policy,
    meant: Protection,
    folder: Path,
    ledger: StoredLedger,
    user: str,
    progress: Progress | None = None,
    applied: Mapping[str, Any] | None = None,
) -> RebuildReport:
    """Build the cube of the next snapshot beside the old one, and begin it in the ledger.

    With ``applied``, the detail of its audit line, the policy is put in force as well.
    """
    old, known = ledger.snapshot(), ledger.protection()
    with drafting(folder) as draft:
        made = built(policy, meant, folder, draft, ledger.id, progress)
        with ledger.transaction() as tx:
            unchanged(tx, known.digest)
            if tx.snapshot() != old:
                raise StateError("the cube has been rebuilt meanwhile; nothing was changed")
            carried = _carries(policy, old, made.coding)
            bases = dict(old.bases) if carried else _bases(tx, old, known, policy)
            new = tx.new_snapshot(made.fingerprint, bases, None, policy.domain.layout, made.coding)
            if applied is not None:
                tx.apply_policy(meant.digest, meant.protection)
            detail = {"snapshot": new, "carried": carried} | dict(applied or {})
            tx.audit("rebuild", user, detail=detail)
            draft.replace(cube_path(folder, new))
            sync_folder(folder)
    for path in cubes(folder):
        if path != cube_path(folder, new):
            path.unlink(missing_ok=True)
    spent = {name: base / UNIT for name, base in bases.items()}
    return RebuildReport(new, made.report, spent, carried)


def recover_cube(
    policy: Policy,
    meant: Protection,
    folder: Path,
    ledger: StoredLedger,
    user: str,
    progress: Progress | None = None,
) -> RebuildReport:
    """Build the missing cube of the current snapshot; of other data, as a new snapshot.

    Raises:
        StateError: the snapshot or the policy in force changed meanwhile.
    """
    old = ledger.snapshot()
    codes = coding(meant.protection)
    same = (old.layout, old.coding.partition(PART)[0]) == (policy.domain.layout, codes)
    if not same or fingerprinted(policy, folder) != old.fingerprint:
        return new_snapshot(policy, meant, folder, ledger, user, progress)
    with drafting(folder) as draft:
        made = built(policy, meant, folder, draft, ledger.id, progress)
        with ledger.transaction() as tx:
            unchanged(tx, meant.digest)
            source = (made.fingerprint, made.coding)
            if tx.snapshot() != old or source != (old.fingerprint, old.coding):
                raise StateError("the cube or its source has changed meanwhile", hint="do it again")
            tx.audit("cube", user, detail={"snapshot": old.id})
            draft.replace(cube_path(folder, old.id))
            sync_folder(folder)
    spent = {name: base / UNIT for name, base in old.bases.items()}
    return RebuildReport(old.id, made.report, spent, True, True)


def adopt_cube(policy: Policy, folder: Path, ledger: StoredLedger, candidates: list[Path]) -> bool:
    """Let a cube that is there be that of the current snapshot, if it is of the same source."""
    snapshot = ledger.snapshot()
    path = cube_path(folder, snapshot.id)
    with suppress(StateError, IntegrityError):
        open_cube(policy, folder, ledger.id, snapshot)
        return True
    for candidate in candidates if snapshot.coding else ():  # without, no cube says what it is of
        aside = path.with_suffix(".aside")
        candidate.rename(aside)
        path.unlink(missing_ok=True)  # that of a snapshot which is forgotten
        aside.rename(path)
        with suppress(StateError, IntegrityError):
            open_cube(policy, folder, ledger.id, snapshot)
            sync_folder(folder)
            return True
    return False


def _origin(source: str, coding: str) -> str:
    """Return what a cube says of the source and of how its records became cells."""
    return f"{source} {coding}"


def _origin_of(snapshot: Snapshot) -> str:
    return _origin(snapshot.fingerprint, snapshot.coding) if snapshot.coding else ""


def _carries(policy: Policy, old: Snapshot, codes: str) -> bool:
    """Whether nobody can be in another cell of a new snapshot than in the old one."""
    same = (old.layout, old.coding) == (policy.domain.layout, codes)
    return same and policy.records == "immutable" and policy.privacy.unit.column is None


def _bases(reads: Reads, old: Snapshot, known: Protection, policy: Policy) -> dict[str, int]:
    """Return the most that any cell has paid, by history.

    Where a unit may have fewer rows now, those that it had have paid for so many more.
    """
    rows = [row for row in reads.measurements() if old.charges(row)]
    shape = rows[0].family.query.space if rows else space(policy.domain)
    before, now = known.protection["unit"]["max_rows"], policy.privacy.unit.max_rows
    more = max(Fraction(before, now), Fraction(1))
    return {
        name: math.ceil(account.spent().value * more)
        for name, account in accounts(old, rows, shape).items()
    }
