"""The tables of the PostgreSQL ledger, version by version, with the columns of the SQLite one.

Version n has the columns of SQLite's version n, so that a backup fits both.  A script that was
released is never edited.  Triggers refuse every change but the two that the theory has, also to the
owner of the tables; who is not the owner cannot remove the triggers.
"""

from __future__ import annotations

from proxy.errors import IntegrityError, StateError
from proxy.ledger.chain import LOOK
from proxy.ledger.schema import VERSIONS
from proxy.ledger.transaction import Connection

VERSION_3 = (
    "CREATE TABLE versions (version BIGINT PRIMARY KEY, time BIGINT NOT NULL)",
    """CREATE TABLE ledger (
        id TEXT PRIMARY KEY, dataset TEXT NOT NULL, created BIGINT NOT NULL
    )""",
    """CREATE TABLE audit (
        sequence BIGINT PRIMARY KEY,
        time BIGINT NOT NULL,
        kind TEXT NOT NULL,
        "user" TEXT NOT NULL,
        statement TEXT NOT NULL,
        cost BIGINT NOT NULL CHECK (cost >= 0),
        answers BIGINT NOT NULL CHECK (answers >= 0),
        detail TEXT NOT NULL,
        covers TEXT NOT NULL,
        spent TEXT NOT NULL,
        notes TEXT,
        hash BYTEA NOT NULL
    )""",
    'CREATE INDEX audit_costs ON audit ("user", time, cost, answers) WHERE cost > 0',
    """CREATE TABLE policies (
        id BIGINT PRIMARY KEY,
        sequence BIGINT NOT NULL,
        digest TEXT NOT NULL,
        protection TEXT NOT NULL,
        hash BYTEA NOT NULL
    )""",
    """CREATE TABLE snapshots (
        id BIGINT PRIMARY KEY,
        sequence BIGINT NOT NULL,
        fingerprint TEXT NOT NULL,
        bases TEXT NOT NULL,
        hash BYTEA NOT NULL,
        partition TEXT
    )""",
    """CREATE TABLE measurements (
        id BIGINT PRIMARY KEY,
        sequence BIGINT NOT NULL,
        history TEXT NOT NULL,
        snapshot BIGINT NOT NULL REFERENCES snapshots,
        scale DOUBLE PRECISION NOT NULL CHECK (scale > 0),
        family BYTEA NOT NULL,
        answers BYTEA NOT NULL,
        hash BYTEA NOT NULL,
        partition TEXT
    )""",
    "CREATE INDEX measurements_sequence ON measurements (sequence)",
    """CREATE TABLE domains (
        id BIGINT PRIMARY KEY,
        sequence BIGINT NOT NULL,
        snapshot BIGINT NOT NULL UNIQUE REFERENCES snapshots,
        layout TEXT NOT NULL,
        coding TEXT NOT NULL,
        hash BYTEA NOT NULL
    )""",
    """CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION '%', TG_ARGV[0]; END $$""",
    """CREATE FUNCTION append() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE last bigint;
        BEGIN
            EXECUTE pg_catalog.format('SELECT max(sequence) FROM %s', TG_RELID::regclass) INTO last;
            IF NEW.sequence <= last THEN RAISE EXCEPTION '%', TG_ARGV[0]; END IF;
            RETURN NEW;
        END $$""",
    "CREATE TRIGGER audit_append BEFORE INSERT ON audit "
    "FOR EACH ROW EXECUTE FUNCTION append('the audit log is append-only')",
    """CREATE TRIGGER measurements_move
        BEFORE UPDATE OF id, history, snapshot, family, partition ON measurements
        FOR EACH ROW EXECUTE FUNCTION refuse('a measurement keeps its query')""",
    """CREATE TRIGGER measurements_refine BEFORE UPDATE ON measurements
        FOR EACH ROW WHEN (NEW.scale >= OLD.scale OR NEW.sequence <= OLD.sequence)
        EXECUTE FUNCTION refuse('a refinement has a smaller scale')""",
    "CREATE TRIGGER measurements_delete BEFORE DELETE ON measurements "
    "FOR EACH ROW EXECUTE FUNCTION refuse('measurements are never forgotten')",
    *(
        f"CREATE TRIGGER {table}_change BEFORE UPDATE OR DELETE ON {table} "
        f"FOR EACH ROW EXECUTE FUNCTION refuse('{words}')"
        for table, words in {
            "audit": "the audit log is append-only",
            "policies": "policies are append-only",
            "snapshots": "snapshots are append-only",
            "domains": "a snapshot keeps its domain",
            "ledger": "a ledger keeps its identity",
        }.items()
    ),
    *(
        f"CREATE TRIGGER {table}_truncate BEFORE TRUNCATE ON {table} "
        "FOR EACH STATEMENT EXECUTE FUNCTION refuse('a ledger is append-only')"
        for table in ("audit", "policies", "snapshots", "domains", "ledger", "measurements")
    ),
)

VERSION_4 = (
    "ALTER TABLE snapshots RENAME COLUMN partition TO closing",
    "DROP TRIGGER measurements_move ON measurements",
    "ALTER TABLE measurements DROP COLUMN partition",
    """CREATE TRIGGER measurements_move
        BEFORE UPDATE OF id, history, snapshot, family ON measurements
        FOR EACH ROW EXECUTE FUNCTION refuse('a measurement keeps its query')""",
)

FIRST = 3  # of the versions; before it there was no ledger in PostgreSQL
SCRIPTS = (VERSION_3, VERSION_4)
assert FIRST + len(SCRIPTS) - 1 == len(VERSIONS)


def version(connection: Connection, schema: str) -> int:
    """Return the version of the ledger in a schema, 0 where there is none.

    Raises:
        StateError: a newer proxy made it.
        IntegrityError: it is damaged.
    """
    names = "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = ? AND tablename = 'versions'"
    if not connection.execute(names, (schema,)).fetchall():
        return 0
    rows = connection.execute("SELECT version FROM versions ORDER BY version").fetchall()
    found: int = max((row[0] for row in rows), default=0)
    if found > len(VERSIONS):
        raise StateError(
            f"the ledger has schema version {found}, this proxy knows {len(VERSIONS)}",
            hint="A newer version of the proxy made it: upgrade this one.",
        )
    if not rows or [row[0] for row in rows] != list(range(1, found + 1)):
        raise IntegrityError("the ledger does not know its version", hint=LOOK)
    return found


def make(connection: Connection, schema: str) -> None:
    """Make the tables of this version's ledger, empty, in the caller's transaction."""
    connection.execute(f"CREATE SCHEMA {schema}")
    connection.execute(f"SET LOCAL search_path TO {schema}, pg_catalog")
    for script in SCRIPTS:
        for statement in script:
            connection.execute(statement)


def migrate(connection: Connection, schema: str, time: int) -> int:
    """Bring the schema to the newest version, in the caller's transaction; return the old one."""
    old = version(connection, schema)
    if not old:
        make(connection, schema)
    for new in range(old + 1, len(VERSIONS) + 1):
        if old:
            connection.execute(f"SET LOCAL search_path TO {schema}, pg_catalog")
            for statement in SCRIPTS[new - FIRST]:
                connection.execute(statement)
        connection.execute("INSERT INTO versions (version, time) VALUES (?, ?)", (new, time))
    return old
