"""A policy as a steward loads it: with all that is wrong with it at once.

Beside the file itself that is what its conditions mean, the users file beside it, and whether its
columns and SQL fit the source.  Nothing here reads a record.
"""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import proxy.cube as cubes
import proxy.policy as policies
from proxy.cube.sources.file_set import files_at
from proxy.policy import CellBudget, Policy, keys
from proxy.privileges import users_of
from proxy.sql.conditions import region
from proxy.sql.evaluator.evaluator import Evaluator


def loaded(
    policy: str | Path, source: bool = True, absent: bool = False, text: str | None = None
) -> Policy:
    """Return a policy whose every key is right and supported, with the source that it fits.

    Without ``source`` nobody looks whether it does; with ``absent`` only where the source is there.
    With a ``text`` it is this that is read, as if it were in the file.

    Raises:
        PolicyError: it is wrong, or has a key that is not supported yet; all its faults.
    """
    found, faults, sources, lacking = policies.read(policy, text)
    if found.domain.attributes:
        with closing(Evaluator(found.domain)) as evaluator:
            for cell in found.privacy.cells:
                if not _names(cell.where, lacking):
                    faults.tried(_condition, cell, found, evaluator)
    faults.tried(users_of, found)
    path = found.source.path
    there = path is not None and files_at(path) != ()
    where = path or found.source.dsn or found.source.master
    if source and where and (there or not absent):
        for error in cubes.faults(found, sources):
            faults.add(error)
    keys.explain(faults.errors)
    faults.finish()
    return found


def _condition(cell: CellBudget, policy: Policy, evaluator: Evaluator) -> None:
    region(cell, policy, evaluator)


def _names(condition: str, columns: frozenset[str]) -> bool:
    """Whether a condition may name one of some columns."""
    return any(re.search(re.escape(column), condition, re.I) for column in columns)
