"""A ledger in memory, for audits of thousands of independent ledgers."""

import copy
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from proxy.ledger import AuditLine, Protection, Snapshot
from proxy.protection import coding, protection

START = datetime.now(UTC)
_known = {}  # by a policy's id: it, and what it protects


def _protected(policy):
    """Return what a policy protects, worked out once for thousands of ledgers."""
    if id(policy) not in _known:
        _known[id(policy)] = policy, protection(policy)
    return _known[id(policy)][1]


class MemoryLedger:
    """What the engine needs of a ledger, as the SQLite one does it, without a file."""

    def __init__(self, policy, id="audit"):
        self.id, self.dataset = id, policy.dataset
        self._rows, self._lines, self._notes = [], [], []
        meant = _protected(policy)
        layout, code = policy.domain.layout, coding(meant.protection)
        self._snapshots = [Snapshot(1, "", {}, layout=layout, coding=code)]
        self._policies = [meant]
        self._spent = {}

    def sequence(self):
        return len(self._lines)

    def measurements(self, after=0):
        return [row for row in self._rows if row.sequence > after]

    def measurement(self, id):
        return self._rows[id - 1]

    def snapshot(self, id=None):
        last = self._snapshots[-1]
        others = [each.id for each in self._snapshots if each.bases != last.bases]
        return replace(last, since=max(others, default=0) + 1)

    def protection(self):
        return self._policies[-1]

    def policy(self):
        return self._policies[-1].digest

    def spent(self):
        return dict(self._spent)

    def spent_by(self, user=None, since=None):
        return sum(line.cost for line in self._mine(user, since))

    def spending(self, since):
        spent = Counter()
        for line in self._mine(None, since):
            spent[line.user] += line.cost
        return spent

    def spent_unknown(self, since=None):
        return 0

    def answers_by(self, user=None, since=None):
        return sum(line.answers for line in self._mine(user, since))

    def _mine(self, user, since):
        return [
            line
            for line in self._lines
            if line.cost and user in (None, line.user) and (since is None or line.time >= since)
        ]

    @contextmanager
    def transaction(self):
        parts = ("_rows", "_lines", "_snapshots", "_policies", "_spent")
        before = {part: copy.copy(getattr(self, part)) for part in parts}
        try:
            yield MemoryTransaction(self)
        except BaseException:
            self.__dict__.update(before)
            raise

    def note(self, kind, user, statement="", detail=None):
        self._notes.append(AuditLine(0, self.time(), user, kind, statement, detail=detail or {}))

    def time(self):
        return START + timedelta(microseconds=len(self._lines) + len(self._notes))

    def audit(self, after=0):
        return iter(self._lines[after:])

    def notes(self):
        return iter(self._notes)

    def verify(self):
        return []

    def close(self):
        pass


class MemoryTransaction:
    """The writes; reads are the ledger's own."""

    def __init__(self, ledger):
        self._ledger = ledger
        self._answers, self._histories = 0, set()

    def __getattr__(self, name):
        return getattr(self._ledger, name)

    def append(self, measurement):
        ledger = self._ledger
        id = len(ledger._rows) + 1
        ledger._rows.append(replace(measurement, id=id, sequence=ledger.sequence() + 1))
        self._answers += len(measurement.answers)
        self._histories.add(measurement.history)
        return id

    def replace(self, id, scale, answers):
        ledger, old = self._ledger, self._ledger.measurement(id)
        if not scale < old.scale or len(answers) != len(old.answers):
            raise ValueError("a refinement has a smaller scale, and as many answers")
        assert old.snapshot == ledger.snapshot().id
        line = ledger.sequence() + 1
        ledger._rows[id - 1] = replace(old, scale=scale, answers=answers, sequence=line)
        self._answers += len(answers)
        self._histories.add(old.history)

    def new_snapshot(self, fingerprint, bases, layout=None, coding="", closing=None):
        ledger = self._ledger
        before = ledger.snapshot()
        assert all(bases.get(name, 0) >= base for name, base in before.bases.items())
        id, line = before.id + 1, ledger.sequence() + 1
        ledger._snapshots.append(
            Snapshot(id, fingerprint, dict(bases), line, layout=layout, coding=coding)
        )
        return before.id + 1

    def apply_policy(self, digest, protection):
        self._ledger._policies.append(Protection(digest, protection))

    def audit(self, kind, user, statement="", cost=0, detail=None, spent=None):
        ledger = self._ledger
        line = AuditLine(
            ledger.sequence() + 1, ledger.time(), user, kind, statement, cost, self._answers,
            detail or {},
        )  # fmt: skip
        ledger._lines.append(line)
        for name in self._histories:
            ledger._spent[name] = (spent or {}).get(name, ledger._spent.get(name, 0) + cost)
        self._answers, self._histories = 0, set()
        return line.seq
