"""Snapshots and their cubes: which source a cube was built from, and what a new one begins with.

A cube is a snapshot: in a new one every cell starts with the largest cost that any cell had
reached, since the people in it may be the same.  Only where the policy says that records never
change, rows are what is protected, and nothing that decides the cell of a record has changed, is
every cell charged on with its own; where they may change, but not leave their period, is each
period, from the most that any of its cells had paid.  A missing cube is built again for its own
snapshot only from the snapshot's own source.

Where the policy has partitions, the cells of periods that were closed when the old cube was built
are taken over from it, whatever the source has there now: so they are the same cells, and what was
answered about them alone is still true.  Which periods are closed follows from the policy and the
clock, never from the data.

Invariant: whenever this is killed, the ledger's snapshot has its whole cube, or none, which is an
error that says what to do.  A new cube is built beside the old one, without the lock; it takes its
place within the transaction that begins its snapshot, and the old one goes after the commit.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date, datetime, timedelta
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

import proxy.cube
from proxy.accountant import still_true
from proxy.budgets import accounts
from proxy.errors import IntegrityError, StateError
from proxy.files import read
from proxy.files import replace as replace_file
from proxy.inference.accounting import UNIT
from proxy.ledger import Closing, Protection, Reads, Snapshot
from proxy.ledger.anchor import sync_folder
from proxy.ledger.stored import StoredLedger
from proxy.policy import Partition, Policy
from proxy.policy.axes import period_start
from proxy.protection import coding
from proxy.sql.compile.release_point import space
from proxy.state import command, cube_path, key_path
from proxy.steward.drafts import cubes, drafting, only

if TYPE_CHECKING:
    from proxy.cube import Cube, Report, Taken

Progress = Callable[[float | None], None]
WITHIN = {  # periods of a grain lie in one of each of these
    "day": ("week", "month", "quarter", "year"),
    "month": ("quarter", "year"),
    "quarter": ("year",),
}
BY_BYTES = ("duckdb",)  # engines whose sources have a fingerprint of their bytes
PART = ":"  # between what the policy, and what the source says of how records become cells


class RebuildReport(Struct, frozen=True):
    """A cube, and what every cell of its snapshot has paid at its beginning, by history."""

    snapshot: int
    survey: Report
    bases: Mapping[str, float]  # alpha
    carried: bool  # each cell goes on with what it had paid itself
    again: bool = False  # the missing cube of a snapshot, from the same source
    by_period: bool = False  # or with what any cell of its period had
    usable: int = 0  # numbers of older snapshots that are still inferred from
    before: int | None = None  # records of the cube before it, where that was there


def fingerprinted(policy: Policy, folder: Path) -> str:
    """Return the source's fingerprint under the state's own key, after the name of that key."""
    name, key = _key(folder)
    return f"{name}:{proxy.cube.fingerprint(policy, key)}"


def surveyed(policy: Policy, folder: Path, closed: Taken | None = None) -> tuple[Report, str]:
    """Return the effect of a policy on its source, and the fingerprint that it has just now."""
    name, key = _key(folder)
    report, own = proxy.cube.surveyed(policy, key, closed)
    return report, f"{name}:{own}"


def _key(folder: Path) -> tuple[str, bytes]:
    """Return the key of a state's fingerprints, after its name; it is made when first needed."""
    path = key_path(folder)
    if not path.exists():
        replace_file(path, token_bytes(32))
    key = read(path)
    return hashlib.sha256(key).hexdigest()[:8], key


class Built(Struct, frozen=True):
    """A cube that was built: what was read, of which source, and how its records became cells."""

    report: Report
    fingerprint: str
    coding: str
    closing: Closing | None

    @property
    def origin(self) -> str:
        """What the cube says that it is made of."""
        return _origin(self.fingerprint, self.coding, self.closing)


def built(
    policy: Policy,
    meant: Protection,
    folder: Path,
    draft: Path,
    ledger_id: str,
    progress: Progress | None,
    taken: Taken | None = None,
    closed: date | None = None,
) -> Built:
    """Build a cube; periods before ``closed`` are closed whatever the clock says now.

    Raises:
        SourceError: the source changed while it was read.
    """
    (name, key), codes, part = _key(folder), coding(meant.protection), policy.partition
    before = closed_before(part, today(policy), closed) if part else date.min
    found: tuple[str, str, Closing | None] = "", "", None

    def origin(fingerprint: str, recipe: str, cells: str) -> str:
        nonlocal found
        day = taken.before if taken else None
        closing = None
        if part:
            axis = policy.domain.attributes[policy.domain.axis[part.column]]
            closing = Closing(part.column, before, day, f"{name}:{cells}", grain=part.grain)
            if policy.records != "immutable":
                closing = replace(closing, paid=((axis.size, {}),))
        found = f"{name}:{fingerprint}", f"{codes}{PART}{recipe}", closing
        return _origin(*found)

    report = proxy.cube.build(policy, draft, ledger_id, progress, key, origin, taken)
    closing = found[2]
    return Built(replace(report, closed=closing.before if closing else None), *found)


def today(policy: Policy) -> date:
    """Return the day that it is in the policy's time zone."""
    return datetime.now(policy.zone).date()


def closed_before(part: Partition, today: date, closed: date | None = None) -> date:
    """Return the day before which periods are closed: none is opened again."""
    start = period_start(today - timedelta(days=part.closes), part.grain)
    return max(start, closed) if closed else start


def cube_of(policy: Policy, folder: Path, snapshot: Snapshot) -> Path:
    """Return the file of a snapshot's cube, which is there, and whose axes are the policy's.

    Raises:
        StateError: it is not, or they are others.
    """
    path = cube_path(folder, snapshot.id)
    if not path.exists():
        raise StateError(
            f"the cube of snapshot {snapshot.id} of {policy.dataset} is not there",
            hint=f"build it again: {command('init', policy, folder)}",
        )
    if snapshot.layout is not None and snapshot.layout != policy.domain.layout:
        raise StateError(
            f"the ledger of {policy.dataset} was written for other axes, or in another order",
            hint=f"apply the policy: {command('apply', policy, folder)}",
        )
    return path


def open_cube(policy: Policy, folder: Path, ledger_id: str, snapshot: Snapshot) -> Cube:
    """Open the cube of a snapshot.

    Raises:
        StateError: there is none, or it is that of another source or domain.
    """
    path = cube_of(policy, folder, snapshot)
    return proxy.cube.Cube.open(path, policy.domain, ledger_id, _origin_of(snapshot))


def verify_cube(folder: Path, ledger_id: str, snapshot: Snapshot) -> None:
    """See that the cube of a snapshot is there, whole, and its own.

    Raises:
        Error: it is not.
    """
    proxy.cube.verify(cube_path(folder, snapshot.id), ledger_id, _origin_of(snapshot))


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
    everything: bool = False,
) -> RebuildReport:
    """Build the cube of the next snapshot beside the old one, and begin it in the ledger.

    With ``applied``, the detail of its audit line, the policy is put in force as well; with
    ``everything`` nothing is taken over from the old cube.

    Raises:
        StateError: closed periods cannot be taken over, and ``everything`` does not say to read
            them again; or the snapshot or the policy in force changed meanwhile.
    """
    old, known = ledger.snapshot(), ledger.protection()
    taken = None if everything else taken_over(policy, folder, ledger, old)
    if not (taken or everything):
        _require_open(policy, folder, old, applied)
    with drafting(folder) as draft:
        made = _built(policy, meant, folder, draft, ledger.id, progress, taken, old)
        if taken and not _carries(policy, old, made.coding):  # those would be other cells
            _require_open(policy, folder, old, applied)
            made = _built(policy, meant, folder, draft, ledger.id, progress, None, old)
        with ledger.transaction() as tx:
            unchanged(tx, known.digest)
            if tx.snapshot() != old:
                raise StateError("the cube has been rebuilt meanwhile; nothing was changed")
            carried = _carries(policy, old, made.coding)
            bases = dict(old.bases) if carried else _bases(tx, old, known, policy)
            axes, closing = policy.domain.layout, made.closing
            if closing and closing.paid and carried:
                closing = replace(closing, paid=_paid(tx, old, policy, closing))
            new = tx.new_snapshot(made.fingerprint, bases, axes, made.coding, closing)
            if applied is not None:
                tx.apply_policy(meant.digest, meant.protection)
            detail = {"snapshot": new, "carried": carried} | _days(closing) | dict(applied or {})
            tx.audit("rebuild", user, detail=detail)
            draft.replace(cube_path(folder, new))
            sync_folder(folder)
    before = proxy.cube.records(cube_path(folder, old.id))
    only(folder, new)
    return replace(_report(policy, ledger, made, carried), before=before)


def _require_open(
    policy: Policy, folder: Path, old: Snapshot, applied: Mapping[str, Any] | None
) -> None:
    """Refuse to read closed periods again where nobody said so, with what was ``applied``.

    What the source has lost of them since, or got, would go into the cube without a word.
    """
    closing, axes = old.closing, policy.domain.axis
    if closing is None:
        return
    place = axes.get(closing.column)
    if place is not None and not any(policy.domain.attributes[place].before(closing.before)):
        return
    flags = ["--accept-weaker"] if applied and applied["weaker"] else []
    again = command("rebuild" if applied is None else "apply", policy, folder, "--all", *flags)
    raise StateError(
        f"periods before {closing.before} are closed, and what the cube of snapshot {old.id} has "
        "of them cannot be taken over; nothing was changed",
        hint=f"to read them again from the source, as it has them today: {again}; "
        f"a copy of {cube_path(Path(), old.id).name}, from another machine or a copy of the state, "
        "may be put back before, if that is what is missing",
    )


def tells_records(policy: Policy) -> bool:
    """Whether cubes of equal cells are of the same records, each in the cell that it was in.

    Where records may change, two of them may have changed places; what one of them has paid in its
    old cell would then be paid once more in the new one.
    """
    return policy.records == "immutable" and policy.privacy.unit.column is None


def recover_cube(
    policy: Policy,
    meant: Protection,
    folder: Path,
    ledger: StoredLedger,
    user: str,
    progress: Progress | None = None,
) -> RebuildReport:
    """Build the missing cube of the current snapshot; of other data, as a new snapshot.

    Data are the same if the bytes of their file are, or, where records never change, the cells.

    Raises:
        StateError: the snapshot or the policy in force changed meanwhile.
    """
    old = ledger.snapshot()
    codes = coding(meant.protection)
    same = (old.layout, old.coding.partition(PART)[0]) == (policy.domain.layout, codes)
    by_cells = tells_records(policy) and old.closing is not None
    if same and not by_cells:
        known = policy.source.engine in BY_BYTES or tells_records(policy)
        same = known and fingerprinted(policy, folder) == old.fingerprint
    if not same:
        return new_snapshot(policy, meant, folder, ledger, user, progress)
    with drafting(folder) as draft:
        taken = taken_over(policy, folder, ledger, old)
        made = _built(policy, meant, folder, draft, ledger.id, progress, taken, old)
        same = made.origin == _origin_of(old)
        if not by_cells or same:
            same = same and (by_cells or made.fingerprint == old.fingerprint)
            with ledger.transaction() as tx:
                unchanged(tx, meant.digest)
                if tx.snapshot() != old or not same:
                    raise StateError(
                        "the cube or its source has changed meanwhile", hint="do it again"
                    )
                tx.audit("cube", user, detail={"snapshot": old.id})
                draft.replace(cube_path(folder, old.id))
                sync_folder(folder)
            only(folder, old.id)
            return _report(policy, ledger, made, carried=True, again=True)
    return new_snapshot(policy, meant, folder, ledger, user, progress)


def _built(
    policy: Policy,
    meant: Protection,
    folder: Path,
    draft: Path,
    ledger_id: str,
    progress: Progress | None,
    taken: Taken | None,
    old: Snapshot,
) -> Built:
    """Build a cube after that of a snapshot, with the cells that are taken over."""
    closed = old.closing.before if taken and old.closing else None
    return built(policy, meant, folder, draft, ledger_id, progress, taken, closed)


def _report(
    policy: Policy, ledger: StoredLedger, made: Built, carried: bool, again: bool = False
) -> RebuildReport:
    """Return what became of a snapshot, which is the current one."""
    snapshot = ledger.snapshot()
    rows = ledger.measurements() if snapshot.same else []
    usable = sum(len(row.answers) for row in still_true(rows, snapshot, policy.domain))
    spent = {name: base / UNIT for name, base in snapshot.bases.items()}
    by_period = bool(snapshot.periods)
    return RebuildReport(snapshot.id, made.report, spent, carried, again, by_period, usable)


def _days(closing: Closing | None) -> dict[str, str]:
    """Return what the audit log says of closed periods."""
    if closing is None:
        return {}
    taken = {"taken_over_before": str(closing.taken)} if closing.taken else {}
    return {"closed_before": str(closing.before)} | taken


def taken_over(policy: Policy, folder: Path, ledger: StoredLedger, old: Snapshot) -> Taken | None:
    """Return the cube that is there, and the day before which its cells are a snapshot's own."""
    closing, part = old.closing, policy.partition
    if closing is None or part is None or closing.column != part.column:
        return None
    days = {**old.same, old.id: closing.before}
    for path in reversed(cubes(folder)):
        id = int(path.stem.split("-")[1])
        with suppress(StateError, IntegrityError):
            if id in days:
                snapshot = ledger.snapshot(id)
                open_cube(policy, folder, ledger.id, snapshot)
                verify_cube(folder, ledger.id, snapshot)
                # a period of another grain is not closed by half
                return proxy.cube.Taken(path, part.column, period_start(days[id], part.grain))
    return None


def adopt_cube(policy: Policy, folder: Path, ledger: StoredLedger, candidates: list[Path]) -> bool:
    """Let a cube that is there be that of the current snapshot, if it is of the same source."""
    snapshot = ledger.snapshot()
    path = cube_path(folder, snapshot.id)
    with suppress(StateError, IntegrityError):
        open_cube(policy, folder, ledger.id, snapshot)
        return True
    known = tells_records(policy) or (policy.source.engine in BY_BYTES and snapshot.closing is None)
    # without a coding no cube says what it is of
    for candidate in candidates if snapshot.coding and known else ():
        aside = path.with_suffix(".aside")
        candidate.rename(aside)
        path.unlink(missing_ok=True)  # that of a snapshot which is forgotten
        aside.rename(path)
        with suppress(StateError, IntegrityError):
            open_cube(policy, folder, ledger.id, snapshot)
            sync_folder(folder)
            return True
    return False


def _origin(source: str, coding: str, closing: Closing | None) -> str:
    """Return what a cube says of the source and of how its records became cells.

    Where cells may have been taken over, the source alone does not say what they are.
    """
    return f"{closing.cells if closing else source} {coding}"


def _origin_of(snapshot: Snapshot) -> str:
    fingerprint, coding = snapshot.fingerprint, snapshot.coding
    return _origin(fingerprint, coding, snapshot.closing) if coding else ""


def _carries(policy: Policy, old: Snapshot, codes: str) -> bool:
    """Whether nobody can be in another cell, or period, of a new snapshot than in the old one."""
    same = (old.layout, old.coding) == (policy.domain.layout, codes)
    part, closing = policy.partition, old.closing
    stay = bool(
        part
        and closing
        and part.column == closing.column
        and part.grain in (closing.grain, *WITHIN.get(closing.grain, ()))
    )
    return same and (policy.records == "immutable" or stay) and policy.privacy.unit.column is None


def _paid(
    reads: Reads, old: Snapshot, policy: Policy, closing: Closing
) -> tuple[tuple[int, Mapping[str, int] | None], ...]:
    """Return, of the periods that are read again, the most that any of their cells has paid."""
    assert policy.partition is not None
    domain, grain = policy.domain, policy.partition.grain
    axis = domain.attributes[domain.axis[closing.column]]
    taken = axis.before(closing.taken) if closing.taken else [False] * axis.size
    starts = [period_start(day, grain) for day in axis.days]
    most: dict[date, dict[str, int]] = {}
    for name, account in accounts(old, reads.measurements(), space(domain)).items():
        for code, paid in enumerate(account.most_by(old.axis).tolist()):
            if not taken[code] and paid > account.base:
                amounts = most.setdefault(starts[code], {})
                amounts[name] = max(amounts.get(name, 0), paid - account.base)
    codes = [None if gone else most.get(s, {}) for s, gone in zip(starts, taken, strict=True)]
    return tuple((len(list(run)), amounts) for amounts, run in groupby(codes))


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
