"""The tables of the SQLite ledger, version by version.

``VERSIONS[i]`` takes a ledger from version i to version i + 1; a new ledger goes through all of
them, so that a migrated ledger and a new one have the same schema.  A script that was released is
never edited.  Invariant: triggers refuse every change but the two that the theory has, a new row,
and a refinement (a smaller scale) of a measurement.
"""

from __future__ import annotations

import sqlite3

from proxy.errors import IntegrityError, StateError
from proxy.ledger.chain import LOOK

VERSION_1 = """
CREATE TABLE versions (version INTEGER PRIMARY KEY, time INTEGER NOT NULL) STRICT;
CREATE TABLE ledger (id TEXT PRIMARY KEY, dataset TEXT NOT NULL, created INTEGER NOT NULL) STRICT;
CREATE TABLE audit (
    sequence INTEGER PRIMARY KEY,
    time INTEGER NOT NULL,  -- microseconds since 1970, UTC
    kind TEXT NOT NULL,
    user TEXT NOT NULL,
    statement TEXT NOT NULL,
    cost INTEGER NOT NULL CHECK (cost >= 0),  -- 2**-40 alpha
    answers INTEGER NOT NULL CHECK (answers >= 0),
    detail TEXT NOT NULL,  -- JSON
    covers TEXT NOT NULL,  -- JSON: [table, id, hash] of each row its transaction wrote
    spent TEXT NOT NULL,  -- JSON: history -> 2**-40 alpha, after the line
    notes TEXT,  -- JSON: [file, lines, hash] of the writer's free statements
    hash BLOB NOT NULL
) STRICT;
CREATE INDEX audit_costs ON audit (user, time, cost, answers) WHERE cost > 0;
CREATE TABLE policies (
    id INTEGER PRIMARY KEY,
    sequence INTEGER NOT NULL,
    digest TEXT NOT NULL,
    protection TEXT NOT NULL,  -- JSON
    hash BLOB NOT NULL
) STRICT;
CREATE TABLE snapshots (
    id INTEGER PRIMARY KEY,
    sequence INTEGER NOT NULL,
    fingerprint TEXT NOT NULL,
    bases TEXT NOT NULL,  -- JSON: history -> 2**-40 alpha
    hash BLOB NOT NULL
) STRICT;
CREATE TABLE measurements (
    id INTEGER PRIMARY KEY,
    sequence INTEGER NOT NULL,
    history TEXT NOT NULL,
    snapshot INTEGER NOT NULL REFERENCES snapshots,
    scale REAL NOT NULL CHECK (scale > 0),
    family BLOB NOT NULL,
    answers BLOB NOT NULL,
    hash BLOB NOT NULL
) STRICT;
CREATE INDEX measurements_sequence ON measurements (sequence);

CREATE TRIGGER audit_append BEFORE INSERT ON audit
    WHEN NEW.sequence <= (SELECT max(sequence) FROM audit)
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_update BEFORE UPDATE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_delete BEFORE DELETE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER policies_append BEFORE INSERT ON policies
    WHEN EXISTS (SELECT 1 FROM policies WHERE id = NEW.id)  -- REPLACE deletes without a trigger
    BEGIN SELECT RAISE(ABORT, 'policies are append-only'); END;
CREATE TRIGGER snapshots_append BEFORE INSERT ON snapshots
    WHEN EXISTS (SELECT 1 FROM snapshots WHERE id = NEW.id)  -- REPLACE deletes without a trigger
    BEGIN SELECT RAISE(ABORT, 'snapshots are append-only'); END;
CREATE TRIGGER measurements_append BEFORE INSERT ON measurements
    WHEN EXISTS (SELECT 1 FROM measurements WHERE id = NEW.id)  -- REPLACE deletes without a trigger
    BEGIN SELECT RAISE(ABORT, 'a measurement keeps its query'); END;
CREATE TRIGGER policies_update BEFORE UPDATE ON policies
    BEGIN SELECT RAISE(ABORT, 'policies are append-only'); END;
CREATE TRIGGER policies_delete BEFORE DELETE ON policies
    BEGIN SELECT RAISE(ABORT, 'policies are append-only'); END;
CREATE TRIGGER snapshots_update BEFORE UPDATE ON snapshots
    BEGIN SELECT RAISE(ABORT, 'snapshots are append-only'); END;
CREATE TRIGGER snapshots_delete BEFORE DELETE ON snapshots
    BEGIN SELECT RAISE(ABORT, 'snapshots are append-only'); END;
CREATE TRIGGER ledger_update BEFORE UPDATE ON ledger
    BEGIN SELECT RAISE(ABORT, 'a ledger keeps its identity'); END;
CREATE TRIGGER ledger_delete BEFORE DELETE ON ledger
    BEGIN SELECT RAISE(ABORT, 'a ledger keeps its identity'); END;
CREATE TRIGGER measurements_delete BEFORE DELETE ON measurements
    BEGIN SELECT RAISE(ABORT, 'measurements are never forgotten'); END;
CREATE TRIGGER measurements_move BEFORE UPDATE OF id, history, snapshot, family ON measurements
    BEGIN SELECT RAISE(ABORT, 'a measurement keeps its query'); END;
CREATE TRIGGER measurements_refine BEFORE UPDATE ON measurements
    WHEN NEW.scale >= OLD.scale OR NEW.sequence <= OLD.sequence
    BEGIN SELECT RAISE(ABORT, 'a refinement has a smaller scale'); END;
"""

VERSION_2 = """
ALTER TABLE snapshots ADD COLUMN partition TEXT;
ALTER TABLE measurements ADD COLUMN partition TEXT;
CREATE TRIGGER measurements_partition BEFORE UPDATE OF partition ON measurements
    BEGIN SELECT RAISE(ABORT, 'a measurement keeps its query'); END;
"""

VERSION_3 = """
CREATE TABLE domains (  -- what the positions in a snapshot's rows, and in its cube, stand for
    id INTEGER PRIMARY KEY,
    sequence INTEGER NOT NULL,
    snapshot INTEGER NOT NULL REFERENCES snapshots,
    layout TEXT NOT NULL,  -- JSON: axes, values and measures, in order
    coding TEXT NOT NULL,  -- hash of what decides which cell a record is in; '' where not known
    hash BLOB NOT NULL
) STRICT;
CREATE INDEX domains_snapshot ON domains (snapshot);
CREATE TRIGGER domains_append BEFORE INSERT ON domains
    WHEN EXISTS (SELECT 1 FROM domains WHERE id = NEW.id OR snapshot = NEW.snapshot)
    BEGIN SELECT RAISE(ABORT, 'a snapshot keeps its domain'); END;
CREATE TRIGGER domains_update BEFORE UPDATE ON domains
    BEGIN SELECT RAISE(ABORT, 'a snapshot keeps its domain'); END;
CREATE TRIGGER domains_delete BEFORE DELETE ON domains
    BEGIN SELECT RAISE(ABORT, 'a snapshot keeps its domain'); END;
"""

VERSION_4 = """
ALTER TABLE snapshots RENAME COLUMN partition TO closing;  -- JSON: which cells are closed
DROP TRIGGER measurements_partition;
ALTER TABLE measurements DROP COLUMN partition;
"""

VERSIONS = (VERSION_1, VERSION_2, VERSION_3, VERSION_4)


def version(connection: sqlite3.Connection) -> int:
    """Return the schema version of a ledger, 0 for an empty file.

    Raises:
        StateError: a newer proxy made it.
        IntegrityError: it is damaged.
    """
    names = "SELECT 1 FROM sqlite_master WHERE name = 'versions'"
    if connection.execute(names).fetchone() is None:
        return 0
    steps = [row[0] for row in connection.execute("SELECT version FROM versions ORDER BY version")]
    found = max(steps, default=0)
    if found > len(VERSIONS):
        raise StateError(
            f"the ledger has schema version {found}, this proxy knows {len(VERSIONS)}",
            hint="A newer version of the proxy made it: upgrade this one.",
        )
    if not steps or steps != list(range(1, found + 1)):
        raise IntegrityError("the ledger does not know its version", hint=LOOK)
    return found


def migrate(connection: sqlite3.Connection, time: int) -> int:
    """Bring the schema to the newest version, in the caller's transaction; return the old one."""
    old = version(connection)
    for new, script in enumerate(VERSIONS[old:], old + 1):
        for statement in _statements(script):
            connection.execute(statement)
        connection.execute("INSERT INTO versions VALUES (?, ?)", (new, time))
    return old


def _statements(script: str) -> list[str]:
    """Split a script; ``executescript`` would commit the transaction."""
    statements, text = [], ""
    for line in script.splitlines(keepends=True):
        text += line
        if sqlite3.complete_statement(text):
            statements.append(text)
            text = ""
    return statements
