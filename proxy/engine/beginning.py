"""The state of a new dataset: what the steward makes, and what the policy wants known first."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from msgspec import Struct

import proxy.policy as policies
from proxy.engine.choice import adopt, compare, statements
from proxy.engine.engine import Engine
from proxy.engine.planner import LocalPlanner
from proxy.engine.strategy import CHOSEN, WARM_UP
from proxy.errors import Error, InsufficientBudgetError, PolicyError, StateError
from proxy.state import ledger_place, state_folder
from proxy.steward import RebuildReport, Report, me
from proxy.steward import init as make


class WarmedUp(Struct, frozen=True):
    """What ``init`` gives where the state was there, and its warm-up was not finished."""


def init(
    policy: str | Path,
    state: str | Path | None = None,
    progress: Callable[[float | None], None] | None = None,
    *,
    accept_second_budget: bool = False,
) -> Report | RebuildReport | WarmedUp | None:
    """Make the state of a policy, choose its strategy by its workload, and warm it up.

    Raises:
        StateError: as the steward's ``init``.
        SQLSyntaxError: the workload is no text.
        InsufficientBudgetError: what ``warm_up`` says costs more than the budget; the state is
            there all the same.
    """
    texts = _workload(policy, state)  # what is wrong with it comes before the state
    report: Report | RebuildReport | WarmedUp | None
    try:
        report = make(policy, state, progress, accept_second_budget=accept_second_budget)
    except StateError:
        if not _unfinished(policy, state):
            raise
        report = WarmedUp()
    if isinstance(report, Report | WarmedUp) and (texts or policies.load(policy).privacy.warm_up):
        with closing(Engine.open(policy, state)) as engine:
            if texts:
                adopt(engine, compare(engine, [("", text) for text in texts]), me())
            assert isinstance(engine.planner, LocalPlanner)
            try:
                engine.planner.warm_up(engine.session())
            except InsufficientBudgetError as error:
                error.hint = (
                    "the state is there; give warm_up less, or the budget more, and say init again"
                )
                raise
    return report


def _unfinished(policy: str | Path, state: str | Path | None) -> bool:
    """Return whether a state is as ``init`` has left it before it was warmed up as it was to be."""
    try:
        engine = Engine.open(policy, state)
    except Error:
        return False
    with closing(engine):
        wanted = len(engine.policy.privacy.warm_up)
        for line in engine.ledger.audit():
            if line.statement.startswith(WARM_UP):
                wanted -= 1
            elif line.kind not in ("init", CHOSEN, "policy"):
                return False
        return wanted > 0


def _workload(policy: str | Path, state: str | Path | None) -> list[str]:
    """Return the statements that the strategy of a state yet to be made is chosen by."""
    try:
        found = policies.load(policy)
    except PolicyError:  # the steward's ``init`` tells all that is wrong
        return []
    if found.privacy.strategy != "auto" or found.workload is None:
        return []
    new = not ledger_place(found, state_folder(found, state)).exists()
    return statements(found.workload) if new else []
