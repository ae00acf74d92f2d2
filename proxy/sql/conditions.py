"""A condition of the policy (``cells: where``) as 0/1 factors over the cube's axes."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from proxy.errors import Error, PolicyError, SQLSyntaxError
from proxy.inference.query import COUNT, Factor
from proxy.policy import CellBudget, Policy
from proxy.sql.evaluator.evaluator import Evaluator
from proxy.sql.parse.clock import reading
from proxy.sql.parse.identifiers import quoted
from proxy.sql.program import Program
from proxy.sql.statement import compile_statement


def region(cell: CellBudget, policy: Policy, evaluator: Evaluator) -> tuple[Factor, ...]:
    """Return indicators whose product is the region of a rule's condition.

    Raises:
        PolicyError: it is not a predicate over the policy's attributes, or reads the clock.
    """
    # the brackets keep it a condition, and the new line ends a comment
    start = f"SELECT COUNT(*) FROM {quoted(policy.dataset)} WHERE "
    try:
        program = compile_statement(f"{start}({cell.where}\n)", policy, evaluator, timeless=True)
    except Error as found:
        error = found
        with suppress(Error):
            try:
                compile_statement(start + cell.where, policy, evaluator, timeless=True)
            except SQLSyntaxError as alone:  # which knows of no bracket that nobody wrote
                error = alone
        clocked = reading(cell.where, policy.timezone, None) is not None
        raise PolicyError(
            error.message,
            file=str(policy.path),
            line=cell.line,
            key="privacy.cells.where",
            hint="a condition may not read the clock, since the cells that it means must stay the "
            "same: write the day itself"
            if clocked
            else error.hint,
        ) from found
    if not isinstance(program, Program) or [len(r.numbers) for r in program.releases] != [1]:
        raise PolicyError(
            f"{cell.where!r} is not a condition",
            file=str(policy.path),
            line=cell.line,
            key="privacy.cells.where",
        )
    query = program.releases[0].numbers[0].family.query
    return query.parts[COUNT].factors if query.parts else (Factor((), np.zeros((), np.int64)),)
