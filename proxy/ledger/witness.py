"""The ledger before its anchor: is it the one that the anchor saw, and has the anchor seen it all.

The order of a commit: the mark is written as pending, COMMIT and the anchor's sync go on beside
each other, the mark is confirmed, and only then the caller goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import proxy.files as files
from proxy.errors import IntegrityError, OperationalError
from proxy.ledger.anchor import Anchor, FileAnchor, Mark
from proxy.ledger.chain import parsed
from proxy.ledger.transaction import Head, SQLReads

POSTPONED = "What was charged stands, and is released once the anchor can be written."


class Witness:
    """What one process knows of an anchor; without an anchor it agrees to everything."""

    def __init__(self, anchor: Path | Anchor | None) -> None:
        self._anchor = FileAnchor(anchor) if isinstance(anchor, Path) else anchor
        self._seen = 0  # the highest sequence that the anchor is known to hold
        self.forked()

    def forked(self) -> None:
        """Begin anew in a child process: threads stay with the parent."""
        self._beside = ThreadPoolExecutor(1, "anchor")

    def read(self) -> list[Mark]:
        """Return what the anchor remembers, newest first."""
        return self._anchor.read() if self._anchor else []

    def check(self, seen: list[Mark], ledger: str, reads: SQLReads, head: Head) -> int:
        """Compare a ledger with marks that were read before it; return the line of what holds.

        It is not the last one where other proxies, with anchors of their own, went on.

        Raises:
            IntegrityError: the ledger is behind, or another than, what the anchor saw.
        """
        if self._anchor is None:
            return 0
        if seen and seen[0].ledger != ledger:
            raise IntegrityError("the ledger's anchor belongs to another ledger")
        for mark in seen:
            if _holds(mark, reads, head):
                return mark.sequence
            if mark.sequence > head[0] and not mark.pending:
                raise IntegrityError(
                    f"the ledger is behind its anchor: line {head[0]} of {mark.sequence}",
                    hint="It is an older state, with its budget. privacy-proxy ledger restore"
                    " charges what is missing.",
                )
            if not mark.pending:  # if it is, its commit did not come about
                raise IntegrityError(f"ledger line {mark.sequence} is not what its anchor saw")
        raise IntegrityError(
            "the ledger's anchor is missing or damaged",
            hint="Bring the anchor back; a lost one takes privacy-proxy ledger restore.",
        )

    def prepare(self, mark: Mark, previous: int) -> Future[None] | None:
        """Write a mark, inside its transaction, and begin to sync it."""
        if self._anchor is None:
            return None
        with _faults("Nothing was charged."):
            return self._beside.submit(self._anchor.prepare(mark, previous))

    def confirm(self, mark: Mark) -> None:
        """Take a mark that was prepared, committed and synced as seen."""
        if self._anchor:
            with _faults(POSTPONED):
                self._anchor.confirm(mark)
        self._seen = max(self._seen, mark.sequence)

    def advance(self, mark: Mark) -> None:
        """Make sure that the anchor has seen a committed mark."""
        if self._anchor and mark.sequence > self._seen:
            with _faults(POSTPONED):
                self._anchor.advance(mark)
        self._seen = max(self._seen, mark.sequence)

    def knows(self, sequence: int) -> bool:
        """Whether the anchor is known to have seen a line."""
        return sequence <= self._seen


def synced(future: Future[None] | None) -> None:
    """Wait for the sync that ``prepare`` began."""
    if future:
        with _faults(POSTPONED):
            future.result()


def _holds(mark: Mark, reads: SQLReads, head: Head) -> bool:
    """Whether the ledger has the line that was marked, or a restore that followed it."""
    if mark.sequence >= head[0]:
        return (mark.sequence, mark.hash) == (head[0], head[1].hex())
    line, digest = reads.lines(mark.sequence - 1, 1)[0]
    if line.sequence > mark.sequence and line.kind == "restore":
        return _restored(mark, parsed(line.detail))
    return line.sequence == mark.sequence and digest.hex() == mark.hash


def _restored(mark: Mark, gap: Mapping[str, Any]) -> bool:
    """Whether a restore charged no less than a mark, whose line is lost, had seen spent.

    A restore knows the last line that any anchor saw; others, of other proxies, saw earlier ones.
    """
    if mark.sequence == gap.get("anchor"):
        return bool(gap.get("anchor_hash") == mark.hash)
    charged = gap.get("charged", {})
    return all(value <= charged.get(history, 0) for history, value in mark.spent.items())


@contextmanager
def _faults(hint: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"the anchor cannot be written: {error.strerror}"
        _, do = files.FULL.get(error.errno or 0, ("", ""))
        raise OperationalError(message, hint=f"{hint} To do: {do}." if do else hint) from error
