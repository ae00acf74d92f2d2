"""Which strategy a dataset would do best with: simulated over requests, and adopted.

The requests are a workload that somebody expects, or those of the ledger's log.  Nothing here
looks at data or at an answer, nothing is measured, and it is never on the path of a query.
Invariant: what is adopted is a line of the audit log, which planners of strategy ``auto`` follow.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from msgspec import Struct

from proxy.engine.engine import Engine
from proxy.engine.planner import LocalPlanner
from proxy.engine.strategy import CHOSEN, WARM_UP, description, pieces
from proxy.errors import Error, SQLSyntaxError
from proxy.inference.accounting import UNIT, budget_units
from proxy.inference.plan import AccuracyTarget
from proxy.inference.strategies.choosing import MARGINALS, STRATEGIES, Choice, Shadow, choose
from proxy.ledger import Ledger
from proxy.sql.compile.release_point import space
from proxy.sql.parse.grammar import split
from proxy.sql.program import Program

LAST = 2000  # requests of the log that are looked at
SECONDS = 60.0  # that a simulation may take
MOVING = ("date", "timestamp")  # types of axes along which requests move on

Asked = tuple[str, str]  # a user, and the text of a statement


class Comparison(Struct, frozen=True):
    """How strategies would do with some requests."""

    choice: Choice
    requests: int  # statements that could be read
    skipped: tuple[str, ...]  # why others could not
    adopted: dict[str, Any]  # the detail of the audit line
    budget: float  # the least of the limits, alpha
    limit: str  # which that is


def log(ledger: Ledger) -> list[Asked]:
    """Return the last statements of the audit log, the free ones too, in their order."""
    kept: deque[tuple[Any, Asked]] = deque(maxlen=LAST)
    for line in ledger.audit():
        if line.kind in ("measured", "refused") and line.statement:
            kept.append((line.time, (line.user, line.statement)))
    free: deque[tuple[Any, Asked]] = deque(maxlen=LAST)
    for note in ledger.notes():
        if note.kind in ("inferred", "refused") and note.statement:
            free.append((note.time, (note.user, note.statement)))
    both = sorted([*kept, *free], key=lambda each: each[0])[-LAST:]
    return [asked for _, asked in both if _one(asked[1])]


def _one(text: str) -> bool:
    """Whether a text is one statement: those of a script stand in the log by themselves, too."""
    if text.startswith(WARM_UP):
        return False
    try:
        return ";" not in text or len(split(text)) == 1
    except Error:
        return True  # it will be said why it is skipped


def statements(path: Path) -> list[str]:
    """Return the statements of a file.

    Raises:
        SQLSyntaxError: it is no text, or ends inside a quotation.
    """
    try:
        return split(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise SQLSyntaxError(f"{path} is not UTF-8") from None


def compare(
    engine: Engine,
    asked: Iterable[Asked],
    seconds: float = SECONDS,
    repeated: bool = True,
    user: str = "",
) -> Comparison:
    """Return how the strategies would do, from nothing on, within the limits of a user.

    A text that a user sends again is asked once where it is not to be ``repeated``.
    """
    requests, skipped = _requests(engine, asked if repeated else dict.fromkeys(asked))
    policy = engine.policy
    planner = _local(engine)
    privileges = engine.privileges(user)
    rules = planner.rules(privileges)
    caps = [(budget_units(cap.budget), cap.name) for cap in privileges.caps]
    if not privileges.spend:
        caps.append((0, f"analyst {user}, who may only infer"))
    cap = min(caps, default=(math.inf, ""))
    floor = float(policy.privacy.floor)
    shadow = Shadow(space(policy.domain), policy.max_records, rules, floor, cap[0])
    budget, limit = min([*((rule.budget, rule.name) for rule in rules), cap], key=itemgetter(0))
    moving = [i for i, each in enumerate(policy.domain.attributes) if each.type in MOVING]
    flat, trees = pieces(policy), pieces(policy, trees=True)
    choice = choose(requests, shadow, flat, trees, seconds, ("paper", *STRATEGIES), moving)
    detail = _detail(choice, engine)
    return Comparison(choice, len(requests), tuple(skipped), detail, budget / UNIT, limit)


def _detail(choice: Choice, engine: Engine) -> dict[str, Any]:
    """Return what a planner needs of a choice, and why it was made."""
    best = next((each.name for each in choice.simulated if each.name != "paper"), "topup")
    bases = [description(base, engine.policy.domain) for base in choice.bases]
    why = {
        each.name: {"asked": each.asked, "answered": each.answered, "alpha": each.alpha}
        for each in choice.simulated
    }
    return {"strategy": best, "bases": bases if best == MARGINALS else [], "simulated": why}


def _requests(
    engine: Engine, asked: Iterable[Asked]
) -> tuple[list[Sequence[AccuracyTarget]], list[str]]:
    """Return what each statement asks for; of what is met in steps, the first."""
    sessions: dict[str, Any] = {}
    known: dict[Asked, Sequence[AccuracyTarget]] = {}
    requests: list[Sequence[AccuracyTarget]] = []
    skipped: list[str] = []
    for each in asked:
        user, text = each
        try:
            if each not in known:
                session = sessions.setdefault(user, engine.session(user))
                program = engine.compile(text, session)
                if not isinstance(program, Program) or program.first:
                    continue
                known[each] = _local(engine).targets(program, session)
            if known[each]:
                requests.append(known[each])
        except Error as error:
            skipped.append(f"{' '.join(text.split())[:60]}: {error.message}")
    return requests, skipped


def _local(engine: Engine) -> LocalPlanner:
    """Return the planner of an engine that plans in its own process."""
    assert isinstance(engine.planner, LocalPlanner)
    return engine.planner


def adopt(engine: Engine, comparison: Comparison, user: str) -> None:
    """Write the choice into the ledger: planners of strategy ``auto`` follow it from now on."""
    with engine.ledger.transaction() as tx:
        tx.audit(CHOSEN, user, detail=comparison.adopted)
