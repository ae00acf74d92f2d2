"""Which statement measured what a number rests on, as far as the asking user may see it.

Invariant: of others' statements nothing leaves but how many numbers are theirs, unless the user may
see them in ``privacy.history``; sequences are those that the user finds there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct

from proxy.accountant import Accountant
from proxy.engine.answered import PaidStatement, Sources
from proxy.engine.bill import STEP, Bill
from proxy.engine.outcomes import Outcome
from proxy.ledger import Ledger
from proxy.privileges import Privileges


class _Line(Struct, frozen=True):
    """A statement's first line: its place among all, and among those of its user."""

    sequence: int
    own: int
    user: str
    statement: PaidStatement


@dataclass(eq=False)
class Statements:
    """The paid statements of a ledger, whose lines are read once."""

    _last: int = 0
    _first: dict[int, _Line] = field(default_factory=dict)  # of the statement of a line
    _counts: dict[str, int] = field(default_factory=dict)  # of statements, by user

    def follow(self, ledger: Ledger) -> None:
        """Read the lines that were added."""
        for line in ledger.audit(self._last):
            self._last = line.seq
            if line.kind != "measured":
                continue
            first = self._first.get(line.detail.get(STEP, line.seq))
            if first is None:
                own = self._counts[line.user] = self._counts.get(line.user, 0) + 1
                told = PaidStatement(line.seq, line.time.replace(tzinfo=None), line.statement)
                first = _Line(line.seq, own, line.user, told)
            self._first[line.seq] = first

    def sources(
        self,
        accountant: Accountant,
        outcomes: Sequence[Outcome],
        privileges: Privileges,
        bill: Bill,
    ) -> Sources:
        """Return which statement measured each block that the outcomes rest on."""
        rows = [
            each.rows for outcome in outcomes for row in outcome.estimators for each in row if each
        ]
        used = np.unique(np.concatenate(rows)) if rows else np.zeros(0, dtype=np.int64)
        blocks = accountant.history.blocks
        starts = np.array([block.start for block in blocks], dtype=np.int64)
        chosen = np.unique(np.searchsorted(starts, used, side="right") - 1).tolist()
        places: dict[int, int] = {}  # of the statements that may be seen, by their first lines
        statements: list[PaidStatement] = []
        found = []
        for line in (self._first.get(accountant.lines[blocks[i].start]) for i in chosen):
            if line is None or privileges.sees not in (None, line.user):
                found.append(-1)
                continue
            if line.sequence not in places:
                places[line.sequence] = len(statements)
                statements.append(_seen(line, privileges))
            found.append(places[line.sequence])
        return Sources(
            [blocks[i].start for i in chosen],
            [float(blocks[i].family.grid) for i in chosen],
            found,
            statements,
            places.get(bill.first, -1),
            accountant.history.records,
        )


def _seen(line: _Line, privileges: Privileges) -> PaidStatement:
    """Return a statement as its user's history has it, which numbers it on its own."""
    if privileges.sees is None:
        return line.statement
    return PaidStatement(line.own, line.statement.time, line.statement.text)
