"""A backup in the place of a lost ledger: what was spent in between is charged in full.

What was spent in the gap is not known cell by cell, but the anchor says what the dearest cell of
each history had paid at its end.  No cell had paid more, so a new snapshot that starts every cell
there charges never too little.  It also puts the rows of the backup out of use, which it must: a
row that was refined in the gap and is refined again from its old answer would cost more than the
difference of the weights (the old noise is used twice).
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

import proxy.files as files
from proxy.errors import IntegrityError, OperationalError, StateError
from proxy.ledger import Protection
from proxy.ledger.anchor import Anchor, FileAnchor, Mark, sync_folder
from proxy.ledger.connections import Connections, copy, take_files
from proxy.ledger.notes import FOLDER, paths, put_back
from proxy.ledger.schema import version
from proxy.ledger.sqlite import SQLiteLedger, verified
from proxy.ledger.stored import TIMEOUT, Clock, StoredLedger, now
from proxy.ledger.transaction import SQLReader, SQLTransaction
from proxy.ledger.witness import Witness

Restored = tuple[StoredLedger, dict[str, bytes], bool]


class Target(Protocol):
    """A place for a ledger that is no file."""

    @property
    def notes(self) -> Path:
        """The folder of free statements."""

    def mark(self) -> Mark | None:
        """Return how far the ledger that is there has come; None where none can be read."""

    def put(self, draft: Path, found: Mark | None) -> None:
        """Put the ledger in a file in the place of the one that was found, which is kept."""

    def open(self, **how: Any) -> StoredLedger:
        """Open it."""


def restore(
    path: Path,
    backup: Path,
    *,
    dataset: str,
    anchor: Path | Anchor | None,
    user: str,
    charge: Callable[[SQLiteLedger], Mapping[str, int]] | None = None,
    in_force: Callable[[SQLiteLedger, str], Protection | None] | None = None,
    timeout: float = TIMEOUT,
    clock: Clock = now,
    target: Target | None = None,
    anchors: Sequence[Path] = (),
) -> Restored:
    """Put a backup in the place of a ledger, which is kept beside it, and charge the gap.

    Without a ``target`` it is a file.  What ``charge`` makes of the backup (by history, in 2**-40
    alpha) is charged where it is more than the anchor says, or ``anchors`` of other proxies; it
    must be the whole budget where the anchor is lost too, or is that of a ledger that was made
    since: then nothing more can be charged, in either.  ``in_force`` gets the digest of the policy
    that the anchor saw, and returns what must be applied again.  Returned with the ledger is what
    else was in the backup, by name, and whether it was older.

    Raises:
        StateError: there is no backup of this dataset, or neither an anchor nor ``charge``.
        IntegrityError: the backup does not verify, or is not of the history that the anchor saw.
        OperationalError: the old ledger is in use.
    """
    witness = Witness(anchor)
    marks = _marks(witness, anchors, charge is not None)
    draft = path.with_name(f"{path.name}.{token_hex(4)}")
    try:
        _copy(backup, draft)
        beside = _files(backup, draft)
        folder = target.notes if target else path.with_name(path.name + ".notes")
        notes = {name: beside.pop(name) for name in list(beside) if name.startswith(FOLDER)}
        there = {name.removeprefix(FOLDER) for name in notes}
        there |= {file.name for file in paths(folder)}
        found = target.mark() if target else None
        # before a migration adds a line
        mark, missed = _missed(draft, [*marks, *filter(None, [found])], charge is not None)
        ledger = SQLiteLedger.open(draft, dataset=dataset, timeout=timeout, clock=clock)
        try:
            spent = charge(ledger) if charge else {}
            same = mark is not None and missed and mark.ledger == ledger.id
            held = in_force(ledger, mark.policy) if in_force and mark and same else None
            gap = _Gap(mark, missed, spent, held, there)
            new = _charge(ledger, ledger._files, clock, gap, user)
        finally:
            ledger.close()
        _set_aside(path)
        put_back(folder, notes)
        os.rename(draft, path) if target is None else target.put(draft, found)
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(path.parent)
    witness.advance(new)
    how: dict[str, Any] = {"dataset": dataset, "anchor": anchor, "timeout": timeout, "clock": clock}
    opened = target.open(**how) if target else SQLiteLedger.open(path, **how)
    return opened, beside, missed or mark is None


def _marks(witness: Witness, anchors: Sequence[Path], charged: bool) -> list[Mark]:
    """Return the newest mark of every anchor.

    Raises:
        StateError: one that was named is none, or there is none at all and not all is ``charged``.
    """
    marks = witness.read()[:1]
    for anchor in anchors:
        if not (seen := FileAnchor(anchor).read()):
            raise StateError(f"{anchor} is no anchor, or it is damaged")
        marks.append(seen[0])
    if not marks and not charged:
        raise StateError(
            "what was spent since the backup is not known: the anchor is missing",
            hint="Charge the whole budget of each history: --charge-all.",
        )
    return marks


def _copy(backup: Path, draft: Path) -> None:
    """Copy a backup."""
    if not backup.exists():
        raise StateError(f"there is no backup {backup}")
    if what := files.special(backup):
        raise StateError(f"{backup} is {what}, and no backup of a ledger")
    if not os.access(backup, os.R_OK, effective_ids=True):
        raise files.denied(backup)
    try:
        with closing(sqlite3.connect(backup)) as source:
            copy(source.backup, draft, draft.parent)
    except sqlite3.DatabaseError as error:
        raise StateError(f"{backup} is no backup of a ledger: {error}") from error
    _require_ledger(backup, draft)


def _require_ledger(backup: Path, draft: Path) -> None:
    """Refuse a backup that is some other database, or empty.

    Raises:
        StateError: it is, by the name that it has.
    """
    with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(draft)) as connection:
        if not version(connection):
            raise StateError(
                f"{backup} is no backup of a ledger",
                hint="name a file that `privacy-proxy ledger backup` has made",
            )


def _files(backup: Path, draft: Path) -> dict[str, bytes]:
    """Take out of the copy of a backup the files that are in it."""
    try:
        return take_files(draft)
    except sqlite3.DatabaseError as error:
        raise files.no_room(draft.parent) or StateError(
            f"{backup} is no whole backup of a ledger: {error}"
        ) from error


class _Gap(Struct, frozen=True):
    """What is known of the time between a backup and the loss of its ledger."""

    mark: Mark | None  # what the anchor saw last
    missed: bool  # whether it saw more than the backup has
    spent: Mapping[str, int]  # to be charged at least
    held: Protection | None  # to be applied again
    notes: Collection[str]  # files of free statements that are there


def _charge(
    ledger: SQLiteLedger, connections: Connections, clock: Clock, gap: _Gap, user: str
) -> Mark:
    """Charge the gap in the copy of the backup; return its new mark."""
    mark, missed = gap.mark, gap.missed
    with connections.use() as connection:
        problems = verified(connection, None)
        chained = connection.execute("SELECT notes FROM audit WHERE notes IS NOT NULL").fetchall()
    if problems:
        raise IntegrityError(f"the backup does not verify: {problems[0]}")
    head, before = ledger.sequence(), ledger.spent()
    last = max(mark.sequence, head) if mark and missed else head
    lost_costs = mark.total - ledger.total(0, head) if mark and missed else 0
    lost = sorted({str(json.loads(text)[0]) for (text,) in chained} - set(gap.notes))
    charged = dict(before)
    for more in (gap.spent, mark.spent if mark else {}):
        charged |= {history: max(value, charged.get(history, 0)) for history, value in more.items()}
    with connections.transaction() as connection:
        transaction = SQLTransaction(connection, ledger.id, clock, after=last)
        if missed or mark is None or gap.spent:
            old = ledger.snapshot()
            closing = old.closing and old.closing.anew()
            transaction.new_snapshot(old.fingerprint, charged, old.layout, old.coding, closing)
        if gap.held is not None:
            transaction.apply_policy(gap.held.digest, gap.held.protection)
        transaction.audit(
            "restore",
            user,
            cost=max(sum(charged.values()) - sum(before.values()), lost_costs),
            detail={"backup": head, "anchor": last, "anchor_hash": mark.hash if mark else None,
                    "charged": charged} | ({"notes_lost": lost} if lost else {}),
            spent=charged,
        )  # fmt: skip
        return transaction.finish()


def _missed(draft: Path, marks: Sequence[Mark], charged: bool) -> tuple[Mark | None, bool]:
    """Return the newest of marks, and whether it is past what the copy of the backup has.

    Each history has then paid the most that any of them says.

    Raises:
        IntegrityError: it is of another history, or another ledger and not all is ``charged``.
    """
    if not marks:
        return None, False
    with closing(sqlite3.connect(draft)) as connection:
        reader = SQLReader(connection)
        try:
            ((id,),) = connection.execute("SELECT id FROM ledger")
            head = reader.sequence()
        except (sqlite3.DatabaseError, ValueError):
            return marks[0], True  # opening it says what it is
        mark = _newest(marks, id)
        lines = reader.lines(mark.sequence - 1, 1)
    if mark.ledger != id:
        if charged:
            return mark, True
        known = "" if any(mark.spent.values()) else "put back the anchor of the lost one, or "
        raise IntegrityError(
            "the anchor belongs to another ledger than the backup",
            hint=f"if that one was made since (init) for the same data: {known}charge the whole "
            "budget of each history: --charge-all; the ledger that is there is kept beside it",
        )
    if mark.sequence > head:
        return mark, True
    if not lines or lines[0][1].hex() != mark.hash:
        raise IntegrityError("the backup is not of the history that the anchor saw")
    return mark, False


def _newest(marks: Sequence[Mark], id: str) -> Mark:
    """Return the last of marks, one of another ledger before all, with the most that each saw."""
    # pending or not: its answer may be out
    newest = max(marks, key=lambda mark: (mark.ledger != id, mark.sequence, not mark.pending))
    same = [mark for mark in marks if mark.ledger == newest.ledger]
    histories = {history for mark in same for history in mark.spent}
    spent = {history: max(mark.spent.get(history, 0) for mark in same) for history in histories}
    return replace(newest, spent=spent, total=max(mark.total for mark in same))


def _set_aside(path: Path) -> None:
    """Move a ledger that nobody uses out of the way.

    Raises:
        OperationalError: somebody uses it.
    """
    if not path.exists():
        return
    if why := files.refused(path):
        raise why
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as connection:
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("BEGIN EXCLUSIVE")  # fails while another connection is open
            connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                raise OperationalError(
                    f"{path} is in use", hint="Stop every proxy on it, then restore."
                ) from error
        except sqlite3.DatabaseError:
            pass  # it is damaged, which is why it is replaced
    aside = f"{path.name}.replaced-{time.strftime('%Y%m%dT%H%M%S')}-{token_hex(2)}"
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.rename(path.with_name(path.name + suffix), path.with_name(aside + suffix))
