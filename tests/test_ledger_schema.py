"""A ledger of an older version is brought to this one, whole, once, and audited."""

import hashlib
import json
import multiprocessing
import sqlite3
from contextlib import closing
from datetime import date

import pytest

from proxy.errors import StateError
from proxy.inference.family import Family
from proxy.inference.query import LinearQuery
from proxy.inference.space import Space
from proxy.ledger import Closing, Measurement
from proxy.ledger.anchor import FileAnchor, Mark
from proxy.ledger.record import encode
from tests.test_ledger import COUNT, create, measure, reopen

# The first version as it was, frozen: nothing here may follow a change of the product.
VERSION_1 = """
CREATE TABLE versions (version INTEGER PRIMARY KEY, time INTEGER NOT NULL) STRICT;
CREATE TABLE ledger (id TEXT PRIMARY KEY, dataset TEXT NOT NULL, created INTEGER NOT NULL) STRICT;
CREATE TABLE audit (sequence INTEGER PRIMARY KEY, time INTEGER NOT NULL, kind TEXT NOT NULL,
    user TEXT NOT NULL, statement TEXT NOT NULL, cost INTEGER NOT NULL CHECK (cost >= 0),
    answers INTEGER NOT NULL CHECK (answers >= 0), detail TEXT NOT NULL, covers TEXT NOT NULL,
    spent TEXT NOT NULL, notes TEXT, hash BLOB NOT NULL) STRICT;
CREATE INDEX audit_costs ON audit (user, time, cost, answers) WHERE cost > 0;
CREATE TABLE policies (id INTEGER PRIMARY KEY, sequence INTEGER NOT NULL, digest TEXT NOT NULL,
    protection TEXT NOT NULL, hash BLOB NOT NULL) STRICT;
CREATE TABLE snapshots (id INTEGER PRIMARY KEY, sequence INTEGER NOT NULL,
    fingerprint TEXT NOT NULL, bases TEXT NOT NULL, hash BLOB NOT NULL) STRICT;
CREATE TABLE measurements (id INTEGER PRIMARY KEY, sequence INTEGER NOT NULL,
    history TEXT NOT NULL, snapshot INTEGER NOT NULL REFERENCES snapshots,
    scale REAL NOT NULL CHECK (scale > 0), family BLOB NOT NULL, answers BLOB NOT NULL,
    hash BLOB NOT NULL) STRICT;
CREATE INDEX measurements_sequence ON measurements (sequence);
CREATE TRIGGER audit_append BEFORE INSERT ON audit
    WHEN NEW.sequence <= (SELECT max(sequence) FROM audit)
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_update BEFORE UPDATE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_delete BEFORE DELETE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER measurements_delete BEFORE DELETE ON measurements
    BEGIN SELECT RAISE(ABORT, 'measurements are never forgotten'); END;
"""


def hashed(table, **fields):
    digest = hashlib.sha256(table.encode())
    for name, value in fields.items():
        data = {bytes: bytes, float: lambda v: v.hex().encode()}.get(
            type(value), lambda v: str(v).encode()
        )(value)
        digest.update(f"{name}:{len(data)}:".encode() + data)
    return digest.digest()


def version_1(folder):
    """A ledger as the first version left it: init, and one measurement, 7, by ann for 5."""
    with closing(sqlite3.connect(folder / "ledger")) as raw:
        raw.executescript(VERSION_1)

        def insert(table, **fields):
            places = ",".join("?" * len(fields))
            raw.execute(
                f"INSERT INTO {table} ({','.join(fields)}) VALUES ({places})", [*fields.values()]
            )

        def covered(table, **fields):
            digest = hashed(table, **fields)
            insert(table, **fields, hash=digest)
            return [table, 1, digest.hex()]

        def audit(previous, *fields):
            digest = hashlib.sha256(previous + json.dumps(fields).encode()).digest()
            places = ",".join("?" * 12)
            raw.execute(f"INSERT INTO audit VALUES ({places})", (*fields, digest))
            return digest

        insert("versions", version=1, time=1000)
        insert("ledger", id="abc", dataset="people", created=1000)
        genesis = hashed("ledger", id="abc", dataset="people", created=1000)
        covers = [
            covered("policies", sequence=1, digest="d1", protection='{"budget":1.0}'),
            covered("snapshots", sequence=1, fingerprint="f1", bases="{}"),
        ]
        first = audit(
            genesis, 1, 1000, "init", "op", "", 0, 0, "{}", json.dumps(covers), "{}", None
        )
        row = covered(
            "measurements", sequence=2, history="shared", snapshot=1, scale=4.0,
            family=encode(Family(LinearQuery.count(Space((3, 2))))), answers=b"\1\7",
        )  # fmt: skip
        last = audit(
            first, 2, 2000, "measured", "ann", "SELECT 1", 5, 1, "{}", json.dumps([row]),
            '{"shared":5}', None,
        )  # fmt: skip
        raw.commit()
    FileAnchor(folder / "anchor").advance(Mark("abc", 2, last.hex(), {"shared": 5}))


def schema(folder):
    with closing(sqlite3.connect(folder / "ledger")) as raw:
        names = "SELECT type, name FROM sqlite_master WHERE type <> 'trigger' ORDER BY 1, 2"
        tables = raw.execute(names).fetchall()
        return tables, [raw.execute(f"PRAGMA table_xinfo({n})").fetchall() for _, n in tables]


def test_the_first_version_is_migrated(tmp_path):
    """
    Rows, costs, policy and chain are as they were; the new columns work; the step is audited.
    """
    version_1(tmp_path)
    with closing(reopen(tmp_path)) as ledger:
        (row,) = ledger.measurements()
        assert (row.id, row.answers, row.scale) == (1, (7,), 4.0)
        assert row.family.query == COUNT.query
        assert (ledger.spent_by("ann"), ledger.spent()) == (5, {"shared": 5})
        assert ledger.protection().protection == {"budget": 1.0}
        assert [line.kind for line in ledger.audit()] == ["init", "measured", "migrate"]
        with ledger.transaction() as tx:
            tx.replace(1, 2.0, (8,))
            tx.new_snapshot("p", {"shared": 6}, closing=Closing("day", date(2026, 2, 1), None, "c"))
            tx.append(Measurement(COUNT, 1.0, (1,), snapshot=2))
            tx.audit("measured", "ann", cost=6)
        assert ledger.verify() == []
    (tmp_path / "new").mkdir()
    create(tmp_path / "new").close()
    assert schema(tmp_path) == schema(tmp_path / "new")
    with closing(reopen(tmp_path)) as ledger:
        assert ledger.sequence() == 4  # migrated once


def test_a_mark_that_was_never_committed_does_not_stop_a_migration(tmp_path):
    """
    The old version died before a commit, whose mark is pending at the migration's own number.
    """
    version_1(tmp_path)
    anchor = FileAnchor(tmp_path / "anchor")
    anchor.prepare(Mark("abc", 3, "f" * 64, {"shared": 9}), 2)()
    for _ in range(3):
        with closing(reopen(tmp_path)) as ledger:
            assert ledger.sequence() == 3
            assert ledger.verify() == []
        anchor.prepare(Mark("abc", 4, "f" * 64, {"shared": 9}), 3)()  # and the new one, too
    opened(tmp_path)


def opened(folder):
    with closing(reopen(folder)) as ledger:
        measure(ledger)


@pytest.mark.slow
def test_two_processes_migrate_once(tmp_path):
    """
    Whoever comes second finds the work done.
    """
    version_1(tmp_path)
    context = multiprocessing.get_context("spawn")
    crowd = [context.Process(target=opened, args=(tmp_path,)) for _ in range(3)]
    for process in crowd:
        process.start()
    for process in crowd:
        process.join()
    with closing(reopen(tmp_path)) as ledger:
        kinds = sorted(line.kind for line in ledger.audit())
        assert kinds == ["init"] + ["measured"] * 4 + ["migrate"]
        assert ledger.verify() == []


def test_a_migration_that_fails_changes_nothing(tmp_path, monkeypatch):
    """
    All steps are one transaction: the old version can still be used.
    """
    version_1(tmp_path)
    before = schema(tmp_path)
    broken = ("", "ALTER TABLE snapshots ADD COLUMN partition TEXT;\nDROP TABLE nonsense;\n")
    monkeypatch.setattr("proxy.ledger.schema.VERSIONS", broken)
    with pytest.raises(Exception, match="nonsense"):
        reopen(tmp_path)
    assert schema(tmp_path) == before
    monkeypatch.undo()
    opened(tmp_path)


def test_a_newer_ledger_is_refused(tmp_path):
    """
    With the advice to upgrade, and untouched.
    """
    create(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "ledger")) as raw:
        raw.execute("INSERT INTO versions VALUES (99, 0)")
        raw.commit()
    with pytest.raises(StateError, match="upgrade"):
        reopen(tmp_path)
