"""The ledger: the durable history of one dataset, what it cost, and who asked for it.

Invariant: a measurement, its charge and its audit line are one transaction, on the disk before
the answer is let out.  A crash loses nothing that was released, and releases nothing that was not
charged.  The audit log is append-only and hash-chained, and the chain covers every row that its
transactions wrote.

The ledger stores and sums; it decides nothing.  Whether a charge fits a budget is the engine's to
say, inside ``transaction()``, which holds the only write lock and in which everything that the
decision needs can be read.  Costs are integers in 2**-40 alpha.  ``Ledger`` and ``Transaction``
are what the engine sees; ``proxy.ledger.sqlite`` and ``proxy.ledger.postgres`` are the backends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import date, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from proxy.inference.family import Family

SHARED = "shared"  # the history that serves every analyst who has none of their own


class Measurement(Struct, frozen=True, eq=False):
    """One row of the history: the released answers of a family and the noise that they carry.

    ``scale`` is the noise scale handed to the sampler, in grid units, so 1/scale is exactly the
    weight per grid unit; ``answers`` are integers in grid units, one for each row of the family.
    A refinement replaces both, and the old answers are not kept: they are the new ones plus noise
    that knows nothing of the data (gradual release), so neither the posterior nor a further
    refinement needs them.  Their hash stays in the audit line that released them.
    ``id`` and ``sequence``, the audit line that last wrote the row, are the ledger's to give.
    """

    family: Family
    scale: float
    answers: tuple[int, ...]
    history: str = SHARED
    snapshot: int = 1
    id: int | None = None
    sequence: int = 0


class Closing(Struct, frozen=True):
    """Which cells of a snapshot no later one reads again, and which it has not read itself.

    They are those before a day of a date column.  ``cells`` is a keyed hash of all cells.  Where
    records may change within their period, ``paid`` is what each cell there has paid beside its
    base: runs of codes of the column, with an amount for each history; None where they are taken.
    """

    column: str
    before: date  # whose periods were closed when the cube was built
    taken: date | None  # whose cells are those of the snapshot before; None: all have been read
    cells: str
    paid: tuple[tuple[int, Mapping[str, int] | None], ...] = ()
    grain: str = ""  # within whose periods records may have moved so far

    def anew(self) -> Closing:
        """Return what is closed where nothing is taken over, and bases say what was paid."""
        codes = sum(count for count, _ in self.paid)
        return replace(self, taken=None, paid=((codes, {}),) if codes else ())


class Snapshot(Struct, frozen=True, dict=True):
    """One build of the cube; ``bases`` is what every cell has already paid, by history.

    A history that has no base starts at 0.  Rows of snapshots from ``since`` on, though too old to
    be inferred from, are charged cell by cell as well: no base has risen to cover them.
    ``fingerprint`` is the source's, keyed.  ``layout`` says what the axes and codes of its rows
    stand for, in names, and ``coding`` what decided the cell of a record; a snapshot of an older
    version has neither until it is first opened.  ``same`` says of older snapshots before which day
    their cells are those of this one; ``periods``, where there are any, of runs of codes of the
    closing's column since which snapshot they are charged, and what they had paid before.
    """

    id: int
    fingerprint: str
    bases: Mapping[str, int]
    sequence: int = 0
    since: int = 0  # where 0, as id: only its own rows are charged
    layout: Mapping[str, Any] | None = None
    coding: str = ""
    closing: Closing | None = None
    same: Mapping[int, date] = {}
    periods: tuple[tuple[int, int, Mapping[str, int]], ...] = ()

    @property
    def axis(self) -> int:
        """The place of the closing's column among the axes."""
        axes = self.layout["attributes"] if self.layout else []
        return [name for name, *_ in axes].index(self.closing.column if self.closing else "")

    @cached_property
    def since_by_code(self) -> tuple[int, ...]:
        """By code of the closing's column, since which snapshot rows are charged there."""
        return tuple(since for count, since, _ in self.periods for _ in range(count))

    def charges(self, measurement: Measurement) -> bool:
        """Whether a row is charged to the cells beside their bases."""
        return (self.since or self.id) <= measurement.snapshot <= self.id


class Protection(Struct, frozen=True):
    """The protecting part of the policy that the ledger was told to hold to."""

    digest: str
    protection: Mapping[str, Any]
    sequence: int = 0


class AuditLine(Struct, frozen=True):
    """Who asked what, when, and what it cost.

    ``seq`` is 0 for a free statement, which is in its process's own file.  ``cost`` is the most
    that the transaction charged any one cell; ``answers`` how many numbers it added to the history.
    """

    seq: int
    time: datetime
    user: str
    kind: str  # measured | refined | inferred | refused | policy | rebuild | restore | init | ...
    statement: str = ""
    cost: int = 0
    answers: int = 0
    detail: Mapping[str, Any] = {}


class Reads(Protocol):
    """The reading side: every Ledger and Transaction.  Inside a transaction nothing changes."""

    def sequence(self) -> int:
        """Return the number of the last audit line: what was read is stale when it has grown."""

    def measurements(self, after: int = 0) -> list[Measurement]:
        """Return the rows that were appended or replaced after a sequence number, by id."""

    def last(self, kind: str, after: int = 0) -> Mapping[str, Any] | None:
        """Return the detail of the last audit line of a kind, after a sequence number."""

    def snapshot(self, id: int | None = None) -> Snapshot:
        """Return the current snapshot, or an older one."""

    def protection(self) -> Protection:
        """Return the policy that was applied last."""

    def policy(self) -> str:
        """Return its digest alone, without reading the rest."""

    def protections(self) -> list[Protection]:
        """Return every policy that was ever in force, oldest first."""

    def spent(self) -> Mapping[str, int]:
        """Return the charge of the dearest cell, or a bound on it, by history."""

    def spent_by(self, user: str | None = None, since: datetime | None = None) -> int:
        """Return the sum of the costs of a user's statements (None: of everyone's)."""

    def spending(self, since: datetime) -> Mapping[str, int]:
        """Return the sum of the costs of each user's statements."""

    def spent_unknown(self, since: datetime | None = None) -> int:
        """Return the cost of statements that a restore knows by their cost only."""

    def answers_by(self, user: str | None = None, since: datetime | None = None) -> int:
        """Return how many numbers a user's statements (None: everyone's) added to the history."""


class Transaction(Reads, Protocol):
    """The write lock: SQLTransaction.  A normal exit commits; an exception rolls back."""

    def append(self, measurement: Measurement) -> int:
        """Add a row to the history; return its id."""

    def measurement(self, id: int) -> Measurement:
        """Return one row of the history, as it is now."""

    def replace(self, id: int, scale: float, answers: tuple[int, ...]) -> None:
        """Put a refinement, of smaller scale, in the place of a row's answers."""

    def new_snapshot(
        self,
        fingerprint: str,
        bases: Mapping[str, int],
        layout: Mapping[str, Any] | None = None,
        coding: str = "",
        closing: Closing | None = None,
    ) -> int:
        """Begin a snapshot in which every cell has paid its base; return its id."""

    def describe_snapshot(self, snapshot: int, layout: Mapping[str, Any], coding: str) -> None:
        """Record a snapshot's layout and coding, where none are recorded yet."""

    def apply_policy(self, digest: str, protection: Mapping[str, Any]) -> None:
        """Put another policy in force."""

    def audit(
        self,
        kind: str,
        user: str,
        statement: str = "",
        cost: int = 0,
        detail: Mapping[str, Any] | None = None,
        spent: Mapping[str, int] | None = None,
    ) -> int:
        """Write the line that covers what the transaction wrote since the last; return its number.

        ``cost`` is at least what any one cell is charged.  ``spent`` is what the dearest cell of
        a history has then paid; where it is not given, the ledger adds the cost to its last bound.
        """


class Ledger(Reads, Protocol):
    """The durable history of one dataset: SQLiteLedger and PostgresLedger conform."""

    id: str
    dataset: str

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Return a context that holds the write lock from entry to commit."""

    def note(
        self, kind: str, user: str, statement: str = "", detail: Mapping[str, Any] | None = None
    ) -> None:
        """Write a free statement, or its beginning, to this process's audit file.

        It needs no write lock.
        """

    def audit(self, after: int = 0) -> Iterator[AuditLine]:
        """Yield the chained lines after a sequence number."""

    def notes(self) -> Iterator[AuditLine]:
        """Yield the free statements of every process, file by file."""

    def backup(self, path: Path, beside: Mapping[str, bytes] | None = None) -> None:
        """Copy the ledger, while it is in use, with its free statements, to a new file.

        ``beside`` (by name) goes into the same file.
        """

    def verify(self) -> list[str]:
        """Re-hash everything; return what does not agree, in words."""

    def close(self) -> None:
        """Release files and connections."""
