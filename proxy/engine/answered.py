"""What a planner returns of one program: values only, which may come from another process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from proxy.engine.allowances import Allowance
from proxy.engine.bill import Bill
from proxy.engine.outcomes import Inference

Relations = Mapping[str, Sequence[Sequence[Any]]]  # rows of the relations of schema privacy


class PaidStatement(Struct, frozen=True):
    """A statement that measured numbers, as its user sees it in ``privacy.history``."""

    sequence: int
    time: datetime  # UTC
    text: str


class Sources(Struct, frozen=True):
    """Which statements measured what a program's numbers rest on, by block of the history.

    Invariant: only statements that the asking user may see are among them.
    """

    starts: Sequence[int]  # [block] its first row, rising
    grids: Sequence[float]  # [block] the unit of its answers
    places: Sequence[int]  # [block] where its statement is in ``statements``; -1: not to be seen
    statements: Sequence[PaidStatement]
    asking: int  # where the asking one is itself; -1: it paid nothing
    records: int  # the most that there can be


class Answered(Struct, frozen=True):
    """What is known of every number of a program, and what is left."""

    inference: Inference
    relations: Relations
    allowance: Allowance
    left_in_cells: float
    sequence: int  # of the ledger, from which it follows
    bill: Bill  # of the statement, which may go on
    sources: Sources | None = None  # where the session wants numbers explained
