"""The anchor: a second, separate witness of how far the ledger has come.

Before an answer is let out, the anchor holds the number and the hash of the last audit line, and
what the dearest cell of each history has paid.  A ledger *behind* its anchor was put back to an
older state, and its budget with it: it is refused, and ``restore`` charges at least what the
anchor says.  Invariant: no answer is out that the anchor has not seen on the disk.

So that a commit does not take two syncs one after the other, the mark is written as *pending*
before COMMIT and synced beside it, and confirmed after both.  A ledger exactly at the mark before
a pending one is one whose process died in between, with nothing let out.  (The confirmation
itself is on the disk with the next sync: a failure of the machine may leave a last mark pending,
and then, and only for this one transaction, an older ledger would be taken for that.)
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

import proxy.files as files

SLOT = 2**20  # bytes between the two copies; a mark is one line, far shorter
BLOCK = 4096
PENDING, CONFIRMED = b"?", b"."

_json = json.JSONEncoder(separators=(",", ":")).encode


class Mark(Struct, frozen=True):
    """A point in the life of a ledger; pending until its commit is known to have come about."""

    ledger: str
    sequence: int
    hash: str
    spent: Mapping[str, int]  # by history, in 2**-40 alpha
    pending: bool = False
    policy: str = ""  # the digest of the protection in force; an older version wrote none
    total: int = 0  # the sum of the costs of all lines, in 2**-40 alpha; nor this


class Anchor(Protocol):
    """Another place for the last two marks, a file or a database: FileAnchor conforms."""

    def read(self) -> list[Mark]:
        """Return what is remembered, newest first; nothing where there is nothing whole."""

    def prepare(self, mark: Mark, previous: int) -> Callable[[], None]:
        """Write a mark as pending, inside its transaction; return what makes it durable.

        ``previous`` is the ledger's last sequence: a pending mark past it was never committed,
        and an anchor that does not hold it is not the one that the transaction began with.
        """

    def confirm(self, mark: Mark) -> None:
        """Take a committed, durable mark as no longer pending."""

    def advance(self, mark: Mark) -> None:
        """Remember a committed mark durably, unless a newer one is there."""


class FileAnchor:
    """A file with two copies, written in turn, so that a torn write leaves the other.

    Each use opens the file anew: forked and parallel processes, and a file that was moved, are
    no special cases.  Writers take turns by ``flock``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[int, tuple[bytes, Mark | None]] = {}  # slot -> what it held last

    def read(self) -> list[Mark]:
        """Return what is remembered, newest first; nothing where there is nothing whole."""
        try:
            with self._locked(shared=True) as file:  # of two copies of one moment one came about
                return [mark for mark, _ in self._copies(file) if mark]
        except FileNotFoundError:
            return []

    def prepare(self, mark: Mark, previous: int) -> Callable[[], None]:
        """Write a mark as pending, inside its transaction; return what makes it durable."""
        with self._locked() as file:
            (newest, slot), (_, other) = self._copies(file)
            if not newest or newest.sequence < previous:
                raise _replaced()
            failed = newest.pending and newest.sequence > previous
            self._write(file, slot if failed else other, replace(mark, pending=True))
        return self._sync

    def confirm(self, mark: Mark) -> None:
        """Take a committed, durable mark as no longer pending."""
        with self._locked() as file:
            later = any(copy and copy.sequence > mark.sequence for copy, _ in self._copies(file))
            if not self._confirm(file, mark) and not later:
                raise _replaced()

    def advance(self, mark: Mark) -> None:
        """Remember a committed mark durably, unless a newer one is there."""
        with self._locked(make=True) as file:
            (newest, slot), (second, other) = self._copies(file)
            came = second if newest and newest.pending else newest  # it did: the newest follows it
            if self._confirm(file, mark):
                pass
            elif newest and newest.sequence == mark.sequence:
                self._write(file, slot, mark)  # over what an init, or a commit, that failed left
            elif not came or came.sequence <= mark.sequence:
                self._write(file, other, mark)
            sync(file)  # also where it was there: whoever wrote it may not be so far

    def _sync(self) -> None:
        file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            sync(file)
        finally:
            os.close(file)

    def _confirm(self, file: int, mark: Mark) -> bool:
        """Whether a copy of the mark is there; it is pending no longer."""
        for known, slot in self._copies(file):
            if known and (known.sequence, known.hash) == (mark.sequence, mark.hash):
                if known.pending:
                    self._write(file, slot, mark)
                return True
        return False

    def _copies(self, file: int) -> list[tuple[Mark | None, int]]:
        """Return the two copies, the newer one first, and their slots."""
        copies = [(self._copy(file, slot), slot) for slot in (0, 1)]
        return sorted(copies, key=lambda copy: -copy[0].sequence if copy[0] else 1)

    def _copy(self, file: int, slot: int) -> Mark | None:
        data = os.pread(file, BLOCK, slot * SLOT)
        if data and b"\n" not in data:
            data = os.pread(file, SLOT, slot * SLOT)
        known = self._known.get(slot)
        if not known or known[0] != data:
            self._known[slot] = known = data, _parse(data)
        return known[1]

    def _write(self, file: int, slot: int, mark: Mark) -> None:
        line = _line(mark)
        os.pwrite(file, line, slot * SLOT)
        self._known[slot] = line, mark

    @contextmanager
    def _locked(self, make: bool = False, shared: bool = False) -> Iterator[int]:
        try:
            with files.opening(self.path):
                file = os.open(self.path, (os.O_RDONLY if shared else os.O_RDWR) | os.O_CLOEXEC)
        except FileNotFoundError:
            if not make:
                raise
            file = files.create(self.path, flags=0)
            sync_folder(self.path.parent)
        try:
            fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            yield file
        finally:
            os.close(file)  # and with it the lock


def sync(file: int) -> None:
    """Bring a file's content to the disk itself."""
    if sys.platform == "darwin":  # there fsync stops at the drive's cache
        fcntl.fcntl(file, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(file)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _replaced() -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "it was replaced while it was in use")


def _line(mark: Mark) -> bytes:
    fields = [mark.ledger, mark.sequence, mark.hash, mark.spent]
    text = _json([*fields, mark.policy, mark.total] if mark.policy else fields).encode()
    state = PENDING if mark.pending else CONFIRMED  # one byte, which cannot be torn
    line = b"%s %s %s\n" % (text, sha256(text).hexdigest().encode(), state)
    if len(line) > SLOT:
        raise ValueError(f"a mark of {len(line)} bytes: too many histories")
    return line.ljust(BLOCK)


def _parse(data: bytes) -> Mark | None:
    text, _, end = data.partition(b"\n")[0].rpartition(b"] ")
    check, _, state = end.partition(b" ")
    text += b"]"
    if sha256(text).hexdigest().encode() != check or state not in (PENDING, CONFIRMED):
        return None
    try:
        ledger, sequence, hash, spent, *more = json.loads(text)
        return Mark(ledger, int(sequence), hash, dict(spent), state == PENDING, *more)
    except (ValueError, TypeError):
        return None
