"""What a planner returns of one program: values only, which may come from another process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.engine.allowances import Allowance
from proxy.engine.bill import Bill
from proxy.engine.outcomes import Inference

Relations = Mapping[str, Sequence[Sequence[Any]]]  # rows of the relations of schema privacy


@dataclass(frozen=True)
class Answered:
    """What is known of every number of a program, and what is left."""

    inference: Inference
    relations: Relations
    allowance: Allowance
    left_in_cells: float
    sequence: int  # of the ledger, from which it follows
    bill: Bill  # of the statement, which may go on
