"""What is read and written in a ledger, in SQL that SQLite and PostgreSQL both understand.

Invariant: every row that a transaction writes is covered by an audit line of the same
transaction; one that is not is rolled back, with a ValueError.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Protocol

from msgspec.structs import astuple

from proxy.errors import IntegrityError
from proxy.ledger import Closing, Measurement, Protection, Snapshot
from proxy.ledger.anchor import Mark
from proxy.ledger.chain import LOOK, Line, amounts, parsed, require_whole, row_hash, text
from proxy.ledger.closings import closing_of, periods, same, text_of
from proxy.ledger.record import decode, encode, pack, unpack

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

MEASUREMENT = "sequence, history, snapshot, scale, family, answers, hash"
SNAPSHOT = "sequence, fingerprint, bases, closing, hash"
POLICY = "sequence, digest, protection, hash"
DOMAIN = "sequence, snapshot, layout, coding, hash"
LINE = (  # unquoted, user is PostgreSQL's word for who is logged in
    'sequence, time, kind, "user", statement, cost, answers, detail, covers, spent, notes, hash'
)


Head = tuple[int, bytes, str]  # number, hash and spent of a line


class Rows(Protocol):
    """What a statement gives."""

    def fetchall(self) -> list[Any]:
        """Return every row."""


class Connection(Protocol):
    """What runs SQL in which each ``?`` is a value: SQLite's own, and ``sessions.Session``."""

    def execute(self, sql: str, parameters: Any = (), /) -> Rows:
        """Run one statement."""


class SQLReads(ABC):
    """The reads, over whatever runs a SELECT."""

    _chained: tuple[Any, ...] = ()  # of the last snapshot

    @abstractmethod
    def _rows(self, sql: str, *values: object) -> list[Any]:
        """Return the rows of a SELECT."""

    def sequence(self) -> int:
        """Return the number of the last audit line: what was read is stale when it has grown."""
        return int(self._rows("SELECT max(sequence) FROM audit")[0][0] or 0)

    def measurements(self, after: int = 0) -> list[Measurement]:
        """Return the rows that were appended or replaced after a sequence number, by id."""
        rows = self._whole("measurements", MEASUREMENT, "WHERE sequence > ? ORDER BY id", after)
        return [_measurement(row) for row in rows]

    def last(self, kind: str, after: int = 0) -> Mapping[str, Any] | None:
        """Return the detail of the last audit line of a kind, after a sequence number."""
        which = "WHERE sequence > ? AND kind = ? ORDER BY sequence DESC LIMIT 1"
        rows = self._rows(f"SELECT detail FROM audit {which}", after, kind)
        return parsed(rows[0][0]) if rows else None

    def measurement(self, id: int) -> Measurement:
        """Return one row of the history, as it is now."""
        return _measurement(self._row("measurements", MEASUREMENT, "WHERE id = ?", id))

    def snapshot(self, id: int | None = None) -> Snapshot:
        """Return the current snapshot, or an older one."""
        which = "ORDER BY id DESC LIMIT 1" if id is None else "WHERE id = ?"
        row = self._row("snapshots", SNAPSHOT, which, *([] if id is None else [id]))
        other = "SELECT max(id) FROM snapshots WHERE id < ? AND bases <> ?"
        before = self._rows(other, row[0], row[3])[0][0] or 0  # from here on no base has risen
        domains = self._whole("domains", DOMAIN, "WHERE snapshot = ?", row[0])
        layout, coding = (parsed(domains[0][3]), domains[0][4]) if domains else (None, "")
        closing, bases = closing_of(row[4]), amounts(row[3])
        known = self._chain(row[0], row[-1], closing) if closing else ()
        return Snapshot(row[0], row[2], bases, row[1], before + 1, layout, coding, closing, *known)

    def _chain(self, id: int, digest: bytes, closing: Closing) -> tuple[Any, ...]:
        """Return what the snapshots say together from which one has its cells; it is remembered."""
        if self._chained[:2] != (id, digest):
            chain = [(id, closing)]
            older = "WHERE id < ? ORDER BY id DESC"
            for each in self._whole("snapshots", SNAPSHOT, older, id):
                before = closing_of(each[4])
                if chain[-1][1].taken is None or before is None:
                    break
                chain.append((each[0], before))
            self._chained = id, digest, same(chain), periods(chain)
        return self._chained[2:]

    def protection(self) -> Protection:
        """Return the policy that was applied last."""
        row = self._row("policies", POLICY, "ORDER BY id DESC LIMIT 1")
        return _protection(row[1], row[2], row[3])

    def policy(self) -> str:
        """Return the digest of the policy that was applied last."""
        rows = self._rows("SELECT digest FROM policies ORDER BY id DESC LIMIT 1")
        return str(rows[0][0]) if rows else ""

    def protections(self) -> list[Protection]:
        """Return every policy that was ever in force, oldest first."""
        rows = self._whole("policies", POLICY, "ORDER BY id")
        return [_protection(row[1], row[2], row[3]) for row in rows]

    def spent(self) -> Mapping[str, int]:
        """Return what the dearest cell has paid, or a bound on it, by history."""
        return amounts(self.head()[2])

    def spent_by(self, user: str | None = None, since: datetime | None = None) -> int:
        """Return the sum of the costs of a user's statements (None: of everyone's)."""
        return self._sum("cost", user, since)

    def spending(self, since: datetime) -> Mapping[str, int]:
        """Return the sum of the costs of each user's statements."""
        sql = 'SELECT "user", sum(cost) FROM audit WHERE cost > 0 AND time >= ? GROUP BY "user"'
        rows = self._rows(sql, (since - EPOCH) // MICROSECOND)
        return {user: int(cost) for user, cost in rows}

    def spent_unknown(self, since: datetime | None = None) -> int:
        """Return what was spent in statements that a restore knows of by their cost only."""
        return self._sum("cost", None, since, " AND kind = 'restore'")

    def total(self, after: int, last: int) -> int:
        """Return the sum of the costs of the lines after one sequence number, up to another."""
        sql = "SELECT coalesce(sum(cost), 0) FROM audit WHERE sequence > ? AND sequence <= ?"
        return int(self._rows(sql, after, last)[0][0])

    def answers_by(self, user: str | None = None, since: datetime | None = None) -> int:
        """Return how many numbers a user's statements (None: everyone's) added to the history."""
        return self._sum("answers", user, since)

    def head(self) -> Head:
        """Return number, hash and spent of the last audit line; of a new ledger, its identity."""
        rows = self._rows("SELECT sequence, hash, spent FROM audit ORDER BY sequence DESC LIMIT 1")
        return rows[0] if rows else (0, self.genesis(), "{}")

    def checked_head(self) -> Head:
        """Return the head, having compared its line with its hash and the line before it.

        Raises:
            IntegrityError: they do not hold together.
        """
        two = f"SELECT {LINE} FROM audit ORDER BY sequence DESC LIMIT 2"
        rows = self._rows(f"SELECT * FROM ({two}) AS two ORDER BY 1")
        if not rows:
            return 0, self.genesis(), "{}"
        previous = rows[0][-1] if rows[1:] else self.genesis()
        line, digest = Line(*rows[-1][:-1]), rows[-1][-1]
        if line.hash(previous) != digest:
            raise IntegrityError(
                f"the audit log does not hold together at line {line.sequence}", hint=LOOK
            )
        return line.sequence, digest, line.spent

    def identity(self) -> tuple[str, str, int]:
        """Return id, dataset and time of making.

        Raises:
            IntegrityError: the ledger does not say.
        """
        rows: list[tuple[str, str, int]] = self._rows("SELECT id, dataset, created FROM ledger")
        if len(rows) != 1:
            raise IntegrityError("the ledger does not say whose it is", hint=LOOK)
        return rows[0]

    def genesis(self) -> bytes:
        """Return the hash before the first line: that of the ledger's identity."""
        return row_hash("ledger", "id, dataset, created", self.identity())

    def lines(self, after: int, limit: int) -> list[tuple[Line, bytes]]:
        """Return audit lines and their hashes, as they are stored."""
        rows = self._rows(
            f"SELECT {LINE} FROM audit WHERE sequence > ? ORDER BY sequence LIMIT ?", after, limit
        )
        return [(Line(*row[:-1]), row[-1]) for row in rows]

    def charges(self) -> list[tuple[int, str, int, Mapping[str, int]]]:
        """Return time, user and cost of each line that cost something, in order.

        With what the dearest cell of each history had then paid, or a bound on it.
        """
        rows = self._rows(
            'SELECT time, "user", cost, spent FROM audit WHERE cost > 0 ORDER BY sequence'
        )
        return [(time, user, cost, amounts(spent)) for time, user, cost, spent in rows]

    def _whole(self, table: str, columns: str, which: str, *values: object) -> list[Any]:
        """Return rows, from their ids to their hashes, as they were written."""
        rows = self._rows(f"SELECT id, {columns} FROM {table} {which}", *values)
        for row in rows:
            require_whole(table, columns, row)
        return rows

    def _row(self, table: str, columns: str, which: str, *values: object) -> Any:
        """Return a row that every ledger has."""
        rows = self._whole(table, columns, which, *values)
        if not rows:
            raise IntegrityError(f"the ledger has lost its {table}", hint=LOOK)
        return rows[0]

    def _sum(self, column: str, user: str | None, since: datetime | None, more: str = "") -> int:
        sql = f"SELECT coalesce(sum({column}), 0) FROM audit WHERE cost > 0 AND time >= ?{more}"
        start = (since - EPOCH) // MICROSECOND if since else 0
        if user is None:
            return int(self._rows(sql, start)[0][0])
        return int(self._rows(f'{sql} AND "user" = ?', start, user)[0][0])


class SQLReader(SQLReads):
    """The reads over one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def _rows(self, sql: str, *values: object) -> list[Any]:
        return self._connection.execute(sql, values).fetchall()


class SQLTransaction(SQLReader):
    """A ``Transaction``, over a connection that holds the lock.

    ``notes`` is the head of the process's free statements, chained into each line.
    ``after`` is the number that the first line follows, where that is not the last one's.
    """

    def __init__(
        self,
        connection: Connection,
        id: str,
        clock: Callable[[], int],
        notes: list[object] | None = None,
        after: int = 0,
    ) -> None:
        super().__init__(connection)
        self._clock = clock
        self._notes = notes
        self._id = id
        self.begun = sequence, self._hash, spent = self.checked_head()
        self._last = max(sequence, after)
        self._spent = amounts(spent)
        self._lines = self.cost = 0  # the cost of all lines that it wrote
        self._current: int | None = None  # the snapshot
        self._start()

    def _start(self) -> None:
        self._covers: list[object] = []
        self._histories: set[str] = set()
        self._answers = 0

    @property
    def wrote(self) -> bool:
        """Whether there is anything to commit."""
        return self._lines > 0

    def append(self, measurement: Measurement) -> int:
        """Add a row to the history; return its id.

        Raises:
            ValueError: it has an id, or not one answer for each row.
            IntegrityError: its snapshot is not the current one.
        """
        answers, family = measurement.answers, measurement.family
        if measurement.id is not None or len(answers) != family.rows:
            raise ValueError("a new measurement has no id, and one answer for each row")
        self._check(measurement.snapshot)
        fields = (
            self._last + 1, measurement.history, measurement.snapshot,
            _scale(measurement.scale), encode(family), pack(answers),
        )  # fmt: skip
        self._wrote(measurement.history, len(answers))
        return self._insert("measurements", MEASUREMENT, fields)

    def replace(self, id: int, scale: float, answers: tuple[int, ...]) -> None:
        """Put a refinement, of smaller scale, in the place of a row's answers.

        Raises:
            ValueError: there is no such row, or the scale is no smaller.
            IntegrityError: its snapshot is not the current one.
        """
        rows = self._rows(f"SELECT id, {MEASUREMENT} FROM measurements WHERE id = ?", id)
        if not rows:
            raise ValueError(f"no measurement {id}")
        _, _, history, snapshot, old, family, before, _ = rows[0]
        if not _scale(scale) < old or len(answers) != len(unpack(before)):
            raise ValueError("a refinement has a smaller scale, and as many answers")
        self._check(snapshot)
        fields = (self._last + 1, history, snapshot, scale, family, pack(answers))
        digest = row_hash("measurements", MEASUREMENT, fields)
        self._connection.execute(
            "UPDATE measurements SET sequence = ?, scale = ?, answers = ?, hash = ? WHERE id = ?",
            (self._last + 1, scale, fields[5], digest, id),
        )
        self._covers.append(["measurements", id, digest.hex()])
        self._wrote(history, len(answers))

    def new_snapshot(
        self,
        fingerprint: str,
        bases: Mapping[str, int],
        layout: Mapping[str, Any] | None = None,
        coding: str = "",
        closing: Closing | None = None,
    ) -> int:
        """Begin a snapshot in which every cell has paid its base; return its id.

        Raises:
            ValueError: a base is below that of the snapshot before.
        """
        if any(bases.get(history, 0) < base for history, base in self._bases()):
            raise ValueError("a base below that of the snapshot before")
        self._current = None
        for history, base in bases.items():
            self._spent[history] = max(self._spent.get(history, 0), base)
        fields = (self._last + 1, fingerprint, text(bases), closing and text_of(closing))
        id = self._insert("snapshots", SNAPSHOT, fields)
        if layout is not None:
            self.describe_snapshot(id, layout, coding)
        return id

    def describe_snapshot(self, snapshot: int, layout: Mapping[str, Any], coding: str) -> None:
        """Say what the positions in a snapshot's rows stand for, where that is not known yet."""
        self._insert("domains", DOMAIN, (self._last + 1, snapshot, text(layout), coding))

    def apply_policy(self, digest: str, protection: Mapping[str, Any]) -> None:
        """Hold to another policy from here on."""
        self._insert("policies", POLICY, (self._last + 1, digest, text(protection)))

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

        Raises:
            ValueError: answers without a cost.
        """
        if self._histories and cost <= 0:
            raise ValueError("answers that cost nothing")
        if spent is None:
            spent = {h: self._spent.get(h, 0) + cost for h in self._histories}
        for history, value in spent.items():
            self._spent[history] = max(self._spent.get(history, 0), value)
        line = Line(
            self._last + 1, self._clock(), kind, _storable(user), _storable(statement), cost,
            self._answers, text(detail or {}), text(self._covers), text(self._spent),
            text(self._notes) if self._notes else None,
        )  # fmt: skip
        self._hash = line.hash(self._hash)
        self._connection.execute(
            f"INSERT INTO audit ({LINE}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
            (*astuple(line), self._hash),
        )
        self._last, self._lines, self.cost = line.sequence, self._lines + 1, self.cost + cost
        self._start()
        return line.sequence

    def finish(self) -> Mark:
        """Return where the ledger will be once this is committed.

        Raises:
            ValueError: something was written that no audit line covers.
        """
        if self._covers:
            raise ValueError("a transaction ended without the audit line of what it wrote")
        return Mark(self._id, self._last, self._hash.hex(), self._spent, policy=self.policy())

    def _bases(self) -> list[tuple[str, int]]:
        """Return the bases of the current snapshot; none where there is no snapshot yet."""
        if not self._rows("SELECT 1 FROM snapshots LIMIT 1"):
            return []
        return list(self.snapshot().bases.items())

    def _insert(self, table: str, columns: str, fields: tuple[Any, ...]) -> int:
        digest = row_hash(table, columns, fields)
        places = ",".join("?" * (len(fields) + 1))
        ((id,),) = self._rows(
            f"INSERT INTO {table} (id, {columns}) VALUES "
            f"((SELECT coalesce(max(id), 0) + 1 FROM {table}), {places}) RETURNING id",
            *fields,
            digest,
        )
        self._covers.append([table, id, digest.hex()])
        return int(id)

    def _wrote(self, history: str, answers: int) -> None:
        self._histories.add(history)
        self._answers += answers

    def _check(self, snapshot: int) -> None:
        if self._current is None:
            self._current = self._rows("SELECT max(id) FROM snapshots")[0][0]
        if snapshot != self._current:
            raise IntegrityError(f"snapshot {snapshot} is not the current one", hint=LOOK)


def _measurement(row: tuple[Any, ...]) -> Measurement:
    """Return a stored row.

    Raises:
        IntegrityError: it is damaged.
    """
    id, sequence, history, snapshot, scale, family, answers, _ = row
    values = unpack(answers)
    record = decode(family)
    if record.rows != len(values):
        raise IntegrityError(f"measurement {id} of the ledger is damaged", hint=LOOK)
    return Measurement(record, scale, values, history, snapshot, id, sequence)


@lru_cache(maxsize=64)  # of the datasets that one process serves
def _protection(sequence: int, digest: str, protection: str) -> Protection:
    """Return a line of ``policies``: the same object, while it says the same."""
    return Protection(digest, parsed(protection), sequence)


def _scale(scale: float) -> float:
    if not (scale > 0 and math.isfinite(scale)):
        raise ValueError(f"{scale=}")
    return float(scale)


def _storable(value: str) -> str:
    """Return text without lone surrogates, which no database takes."""
    return value.encode("utf-8", "backslashreplace").decode()
