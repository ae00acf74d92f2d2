"""The anchor: a second, separate witness of how far the ledger has come.

After each commit, and before its answer is let out, the anchor holds the number and the hash of
the last audit line, and what the dearest cell of each history has paid.  A ledger *ahead* of its
anchor is one whose process died between the two: nothing was let out, the anchor follows at the
next open.  A ledger *behind* its anchor was put back to an older state, and its budget with it:
it is refused, and ``restore`` charges at least what the anchor says.  Invariant: the anchor never
goes back.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Protocol

SLOT = 2**20  # bytes between the two copies; a mark is one line, far shorter
BLOCK = 4096


@dataclass(frozen=True)
class Mark:
    """A point in the life of a ledger."""

    ledger: str
    sequence: int
    hash: str
    spent: Mapping[str, int]  # by history, in 2**-40 alpha


class Anchor(Protocol):
    """Somewhere else that remembers a mark: a file, or a row in another database."""

    def read(self) -> Mark | None:
        """Return the newest mark, None where there is none."""

    def advance(self, mark: Mark) -> None:
        """Remember a mark durably, unless the newest is already as far."""


class FileAnchor:
    """A file with two copies, written in turn and synced, so that a torn write leaves the other.

    Each use opens the file anew: forked and parallel processes, and a file that was moved, are
    no special cases.  Writers take turns by ``flock``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[int, tuple[bytes, Mark | None]] = {}  # slot -> what it held last

    def read(self) -> Mark | None:
        """Return the newest mark, None where there is none."""
        try:
            file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            return self._newest(file)[0]
        finally:
            os.close(file)

    def advance(self, mark: Mark) -> None:
        """Remember a mark durably, unless the newest is already as far."""
        with self._locked() as file:
            newest, slot = self._newest(file)
            if newest and newest.ledger != mark.ledger:  # left by an init that died
                slot = 1 - slot
            elif newest and newest.sequence >= mark.sequence:
                return
            line = _line(mark)
            os.pwrite(file, line, (1 - slot) * SLOT)
            sync(file)
            self._known[1 - slot] = line, mark

    def _newest(self, file: int) -> tuple[Mark | None, int]:
        """Return the newest whole mark and its slot."""
        marks = [self._mark(file, slot) for slot in (0, 1)]
        newest = max((0, 1), key=lambda slot: mark.sequence if (mark := marks[slot]) else -1)
        return marks[newest], newest

    def _mark(self, file: int, slot: int) -> Mark | None:
        data = os.pread(file, BLOCK, slot * SLOT)
        if b"\n" not in data:
            data = os.pread(file, SLOT, slot * SLOT)
        known = self._known.get(slot)
        if not known or known[0] != data:
            self._known[slot] = known = data, _parse(data)
        return known[1]

    @contextmanager
    def _locked(self) -> Iterator[int]:
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            sync_folder(self.path.parent)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
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


def _line(mark: Mark) -> bytes:
    text = json.dumps([mark.ledger, mark.sequence, mark.hash, dict(mark.spent)]).encode()
    line = text + b" " + sha256(text).hexdigest().encode() + b"\n"
    if len(line) > SLOT:
        raise ValueError(f"a mark of {len(line)} bytes: too many histories")
    return line.ljust(BLOCK)


def _parse(data: bytes) -> Mark | None:
    text, _, check = data.partition(b"\n")[0].rpartition(b" ")
    if sha256(text).hexdigest().encode() != check:
        return None
    return Mark(*json.loads(text))
