"""What the pages on budgets and statements read: the ledger's lines and policies, never the data.

All of it blocks, so that pages call it in threads; what a ledger says is worked out once for each
of its states.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec import Struct

from proxy.console.backend import Dataset
from proxy.engine.allowances import spending_allowances
from proxy.engine.reports import history
from proxy.inference.accounting import UNIT
from proxy.ledger import AuditLine
from proxy.ledger.stored import StoredLedger
from proxy.privileges import Privileges
from proxy.steward import Curves, LimitReport, Spending, curves, ledger_in_force, spending

PAGE = 100  # lines of a page
PAID, FREE, REFUSED = "paid", "free", "refused"
ASKED = ("measured", "refined", "inferred", "refused")  # kinds of lines that are of statements

_cache: dict[str, tuple[tuple[int, str], Spending]] = {}  # by the ledger's id
_logs: dict[str, list[AuditLine]] = {}
_ends: dict[str, bytes] = {}  # hashes of their last lines
_locks: dict[str, threading.Lock] = {}


class Statement(Struct, frozen=True):
    """A statement that was asked: what it cost in all its steps."""

    number: int | None  # of those that were paid for
    time: datetime
    user: str
    outcome: str  # paid | free | refused
    text: str
    cost: float = 0.0
    numbers: int = 0


class Part(Struct, frozen=True):
    """A page of a list: which it is, of how many, and how long the list is."""

    lines: Sequence[Statement] | Sequence[AuditLine]
    page: int
    pages: int
    found: int


def spent(dataset: Dataset) -> Spending:
    """Return what a dataset's histories have spent; once for each state of its ledger."""
    with ledger_in_force(dataset.policy, dataset.state) as (ledger, policy):
        with _locks.setdefault(ledger.id, threading.Lock()):
            key = ledger.sequence(), ledger.policy()
            known = _cache.get(ledger.id)
            if known is None or known[0] != key:
                known = _cache[ledger.id] = key, spending(policy, ledger)
        return known[1]


def limits(dataset: Dataset, privileges: Privileges) -> list[LimitReport]:
    """Return every limit that binds a user, as their own session would tell it."""
    found = spent(dataset).limits(privileges.history)
    now = datetime.now(dataset.policy.zone)
    with ledger_in_force(dataset.policy, dataset.state) as (ledger, policy):
        for each in spending_allowances(privileges, policy, ledger, now):
            found.append(LimitReport(each.name, each.budget / UNIT, each.spent / UNIT, each.exact))
    return found


def over_time(dataset: Dataset, user: str | None) -> Curves:
    """Return how a dataset's budget was spent in the course of time; by a user, or by all."""
    with ledger_in_force(dataset.policy, dataset.state) as (ledger, _):
        return curves(ledger, user=user)


def statements(
    dataset: Dataset, user: str | None, words: str = "", outcome: str = "", page: int = 1
) -> Part:
    """Return statements that have some words in them, the newest first; of a user, or of all."""
    with ledger_in_force(dataset.policy, dataset.state) as (ledger, _):
        paid = [
            Statement(
                each.sequence, each.time, each.user, PAID, each.statement, each.cost, each.numbers
            )
            for each in history(_log(ledger), user)
        ]
        free = [
            Statement(None, n.time, n.user, REFUSED if n.kind == REFUSED else FREE, n.statement)
            for n in ledger.notes()
            if n.kind in ASKED and user in (None, n.user)
        ]
    wanted = words.casefold()
    found = [
        line
        for line in (*paid, *free)
        if outcome in ("", line.outcome)
        and (
            not wanted
            or wanted in line.text.casefold()
            or (user is None and wanted in line.user.casefold())
        )
    ]
    found.sort(key=lambda line: line.time, reverse=True)
    return _part(found, page)


def audited(
    dataset: Dataset,
    texts: bool,
    user: str = "",
    words: str = "",
    kind: str = "",
    since: str = "",
    until: str = "",
    page: int = 1,
) -> tuple[Part, list[str]]:
    """Return lines of the audit log, the newest first, and the kinds that there are.

    Without ``texts`` those of statements are left out, and nothing is found by them.  Days are in
    UTC, as ISO 8601; the last one is included.
    """
    with ledger_in_force(dataset.policy, dataset.state) as (ledger, _):
        lines = [*_log(ledger), *ledger.notes()]
    kinds = sorted({line.kind for line in lines})
    wanted, who = words.casefold(), user.casefold()
    found = [
        line
        for line in (lines if texts else map(_untold, lines))
        if kind in ("", line.kind)
        and who in line.user.casefold()
        and (not since or f"{line.time:%Y-%m-%d}" >= since)
        and (not until or f"{line.time:%Y-%m-%d}" <= until)
        and (not wanted or any(wanted in each.casefold() for each in _words(line)))
    ]
    found.sort(key=lambda line: line.time, reverse=True)
    return _part(found, page), kinds


def _log(ledger: StoredLedger) -> Sequence[AuditLine]:
    """Return the chained lines; those that were read before are, if their chain still stands."""
    with _locks.setdefault(ledger.id, threading.Lock()):
        known = _logs.setdefault(ledger.id, [])
        last = known[-1].seq if known else 0
        if known and [hash for _, hash in ledger.lines(last - 1, 1)] != [_ends[ledger.id]]:
            known.clear()  # a ledger that was put back
            last = 0
        known.extend(ledger.audit(last))
        if known and known[-1].seq != last:
            _ends[ledger.id] = ledger.lines(known[-1].seq - 1, 1)[0][1]
        return tuple(known)


def chained(dataset: Dataset, sequence: int) -> tuple[AuditLine, dict[str, str]] | None:
    """Return a line of the audit log, and how it is chained; None where there is none."""
    with ledger_in_force(dataset.policy, dataset.state) as (ledger, _):
        stored = ledger.lines(max(sequence - 2, 0), min(sequence, 2))
        if not stored or stored[-1][0].sequence != sequence:
            return None
        line = next(each for each in ledger.audit(sequence - 1))
    (last, digest), before = stored[-1], stored[0][1] if len(stored) > 1 else b""
    return line, {
        "hash": digest.hex(),
        "hash of the line before": before.hex(),
        "hash, computed again": last.hash(before).hex() if before else "",
        "rows that it covers": last.covers,
        "dearest cells after it, 2⁻⁴⁰ alpha": last.spent,
    }


def untold(line: AuditLine) -> bool:
    """Return whether a line is of a statement, whose text is for auditors."""
    return line.kind in ASKED


def alpha(cost: int) -> float:
    """Return a charge in alpha."""
    return cost / UNIT


def _untold(line: AuditLine) -> AuditLine:
    if not untold(line):
        return line
    return AuditLine(line.seq, line.time, line.user, line.kind, "", line.cost, line.answers)


def _words(line: AuditLine) -> Iterator[str]:
    yield line.statement
    yield from (f"{key}: {value}" for key, value in line.detail.items())


def _part(found: Sequence[Statement] | Sequence[AuditLine], page: int) -> Part:
    pages = max(-(-len(found) // PAGE), 1)
    page = min(max(page, 1), pages)
    return Part(found[(page - 1) * PAGE : page * PAGE], page, pages, len(found))
