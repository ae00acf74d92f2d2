"""The mirror: an empty PostgreSQL with the same tables, which knows everything but the data.

It owns login, catalogs, settings, transactions, portals and the types of parameters.  The policy
of each protected table reads the table itself, an endless recursion that PostgreSQL refuses when
it rewrites a query, before there is a plan: whatever the server fails to recognise as a question to
the engine ends in an error, never in an answer.  Invariant: nothing in it was computed from
protected data, and its catalogs name no dataset that its users may not see.

Users who may see the same datasets share a mirror.  Each dataset is a database of it, with its
table in schema ``public`` and its public tables beside it; nothing of another dataset is in there.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import psycopg
from msgspec import Struct
from psycopg import sql as psql

from proxy.catalog import Relation
from proxy.engine import Column
from proxy.errors import NotSupportedError, OperationalError
from proxy.policy import User, scram_verifier
from proxy.server.limits import Limits
from proxy.server.mirror import functions
from proxy.server.mirror.address import Address
from proxy.settings import TABLE, UTILITY, of_user
from proxy.sql.parse.identifiers import quoted as identifier
from proxy.sql.parse.views import MOST

SCHEMA = "privacy"
MARK = "mirror of sql-privacy-proxy "
DRAFT = "mirror of sql-privacy-proxy, being made"
GUARD = """
CREATE FUNCTION privacy.guard() RETURNS boolean LANGUAGE plpgsql VOLATILE AS
$$ BEGIN RAISE EXCEPTION USING ERRCODE = '0A000',
  MESSAGE = 'this form of statement is not supported on a protected table',
  HINT = 'run the SELECT by itself, or in a cursor';
END $$;
"""
REFUSES = {  # functions of PostgreSQL that refuse to read a protected table, with their SQLSTATE
    b"fireRIRrules": b"42P17",  # the policy's recursion
    b"check_enable_rls": b"42501",  # the same, where a client turned row_security off
}
LOCKS = 500  # of a session, with which it is shown no more views in its transaction
COLUMNS = 2000  # of all views that are shown
FREE, WAIT = 50, 0.001  # columns that a call makes at once, and seconds for each beyond them
# The temporary views of the session in the catalogs, until the transaction ends: nothing of them is
# committed, so that no other session sees them.  They cannot be read.  Each takes about eight locks
# until then, of a table of locks that all share, and rows of catalogs that are dead afterwards; so
# what is made waits, before it is made.
SHOW_VIEWS = f"""
CREATE FUNCTION privacy.show_views(views jsonb) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS
$$ DECLARE each record; made integer = 0; BEGIN
  IF current_setting('transaction_read_only')::boolean
     OR (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()) > {LOCKS}
     OR (SELECT sum(jsonb_array_length(value)) FROM jsonb_each(views)) > {COLUMNS}
  THEN RETURN; END IF;
  FOR each IN
    SELECT name, wanted, width, there FROM (
      SELECT key AS name, jsonb_array_length(value) AS width, (
        SELECT string_agg(format('%I %s', c->>0, (c->>1)::regtype), ', ' ORDER BY i)
        FROM jsonb_array_elements(value) WITH ORDINALITY AS e(c, i)
      ) AS wanted FROM jsonb_each(views) LIMIT {MOST}
    ) AS w FULL JOIN (
      SELECT relname::text AS name, (
        SELECT string_agg(format('%I %s', attname, atttypid::regtype), ', ' ORDER BY attnum)
        FROM pg_attribute WHERE attrelid = r.oid AND attnum > 0
      ) AS there FROM pg_class AS r WHERE relnamespace = pg_my_temp_schema() AND relkind = 'r'
    ) AS t USING (name) WHERE wanted IS DISTINCT FROM there
  LOOP
    IF each.there IS NOT NULL THEN EXECUTE format('DROP TABLE pg_temp.%I', each.name); END IF;
    IF each.wanted IS NOT NULL THEN
      made := made + each.width;
      PERFORM pg_sleep(least(each.width, greatest(made - {FREE}, 0)) * {WAIT});
      EXECUTE format('CREATE TEMP TABLE %I (%s) ON COMMIT DROP', each.name, each.wanted);
      EXECUTE format('GRANT REFERENCES ON pg_temp.%I TO %I', each.name, session_user);
    END IF;
  END LOOP;
EXCEPTION WHEN OTHERS THEN RETURN;
END $$;
"""


class PublicRows(Struct, frozen=True):
    """A public table, whose rows the mirror does hold."""

    name: str
    columns: tuple[Column, ...]
    rows: Sequence[Sequence[object]]
    digest: str  # of the rows


def visibility(users: Iterable[User], datasets: Sequence[str]) -> dict[tuple[str, ...], list[User]]:
    """Group users by the datasets that they may see; those who may see none are left out."""
    sets: dict[tuple[str, ...], list[User]] = {}
    for user in users:
        seen = tuple(dataset for dataset in datasets if user.may_see(dataset))
        if seen:
            sets.setdefault(seen, []).append(user)
    return sets


class Mirror:
    """The databases and roles for the users who may see the same datasets."""

    def __init__(self, address: Address, datasets: tuple[str, ...], limits: Limits) -> None:
        self.address = address
        self.datasets = datasets
        self._limits = limits
        self._key = secrets.token_bytes(32)

    def secret(self, user: str) -> str:
        """Return the password of a user's role, known to this process alone."""
        return hmac.new(self._key, user.encode(), "sha256").hexdigest()

    def admit(self, user: str) -> None:
        """Check that the mirror lets a user's role in.

        Raises:
            OperationalError: it does not.
        """
        role = replace(self.address, user=user, password=self.secret(user))
        try:
            psycopg.connect(role.conninfo(self.datasets[0])).close()
        except psycopg.OperationalError:
            raise OperationalError(
                "the mirror does not let in the roles that the proxy makes in it",
                hint="its pg_hba.conf must let them in, by scram-sha-256 for example",
            ) from None

    def make(
        self,
        relations: Mapping[str, Sequence[Relation]],
        users: Sequence[User],
        public: Mapping[str, Sequence[PublicRows]],
    ) -> list[str]:
        """Create or update the roles and databases; return the names of rebuilt databases.

        ``relations`` and ``public`` are the protected and the public tables of each database.

        Raises:
            OperationalError: it takes no connections, or a role or database of that name exists,
                and is not this proxy's.
        """
        try:
            connection = psycopg.connect(self.address.conninfo(), autocommit=True)
        except psycopg.OperationalError:
            raise OperationalError(
                "the mirror takes no connections",
                hint="--mirror names a PostgreSQL that runs, and a superuser of it",
            ) from None
        with connection as admin:
            admin.execute("REVOKE CONNECT ON DATABASE postgres, template1 FROM PUBLIC")
            for user in users:
                self._role(admin, user)
            self._shut_out(admin, [user.name for user in users])
            rebuilt = [
                dataset
                for dataset in self.datasets
                if self._database(admin, dataset, relations[dataset], public[dataset])
            ]
            self._close(admin)
            for dataset in self.datasets:
                self._admit(admin, dataset)
            return rebuilt

    def _role(self, admin: psycopg.Connection, user: User) -> None:
        name = psql.Identifier(user.name)
        marked = admin.execute(
            "SELECT shobj_description(oid, 'pg_authid') FROM pg_roles WHERE rolname = %s",
            [user.name],
        ).fetchone()
        if marked is None:
            admin.execute(psql.SQL("CREATE ROLE {}").format(name))
        elif not str(marked[0]).startswith(MARK):
            raise _not_ours("role", user.name)
        admin.execute(psql.SQL("COMMENT ON ROLE {} IS {}").format(name, MARK))
        admin.execute(
            psql.SQL("ALTER ROLE {} LOGIN NOINHERIT CONNECTION LIMIT {} PASSWORD {}").format(
                name, self._limits.connections, scram_verifier(self.secret(user.name), 1)
            )
        )
        admin.execute(psql.SQL("ALTER ROLE {} RESET ALL").format(name))
        for setting, value in self._defaults(user).items():
            admin.execute(
                psql.SQL("ALTER ROLE {} SET {} = {}").format(
                    name, psql.Identifier(*setting.split(".")), value
                )
            )

    def _defaults(self, user: User) -> dict[str, str]:
        """Return the settings that a user's sessions begin with."""
        return {
            "statement_timeout": f"{round(self._limits.seconds * 1000)}ms",
            "temp_file_limit": f"{max(self._limits.temporary // self._limits.connections, 1)}MB",
            "max_parallel_workers_per_gather": "0",
            "work_mem": "64MB",  # memory has a bound for a user, disk one for a session
            "hash_mem_multiplier": "1",
            "temp_buffers": "800kB",
            "jit": "off",
            **{name: setting.default for name, setting in TABLE.items()},
            UTILITY: str(of_user(user.utility)),
        }

    def _shut_out(self, admin: psycopg.Connection, users: Sequence[str]) -> None:
        """End the sessions of former users, and let them log in no longer."""
        former = admin.execute(
            "SELECT rolname FROM pg_roles WHERE NOT rolname = ANY(%s) "
            "AND starts_with(shobj_description(oid, 'pg_authid'), %s)",
            [list(users), MARK],
        ).fetchall()
        for (name,) in former:
            admin.execute(psql.SQL("ALTER ROLE {} NOLOGIN").format(psql.Identifier(name)))
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", [name]
            )

    def _database(
        self,
        admin: psycopg.Connection,
        name: str,
        relations: Sequence[Relation],
        public: Sequence[PublicRows],
    ) -> bool:
        """Create a database, unless it exists and is up to date; return whether it was created.

        It is built under a draft name, so that an unfinished one is never taken for ours.
        """
        statements = definition(relations, public)
        content = [*statements, *(table.digest for table in public)]
        mark = MARK + hashlib.sha256("\n".join(content).encode()).hexdigest()
        existing = admin.execute(
            "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = %s",
            [name],
        ).fetchone()
        if existing is not None and not str(existing[0]).startswith(MARK):
            raise _not_ours("database", name)
        if existing is not None and existing[0] == mark:
            return False
        draft, database = psql.Identifier(DRAFT), psql.Identifier(name)
        drop = psql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        admin.execute(drop.format(draft))
        admin.execute(psql.SQL("CREATE DATABASE {} TEMPLATE template0").format(draft))
        self._fill(statements, public)
        admin.execute(psql.SQL("COMMENT ON DATABASE {} IS {}").format(draft, mark))
        admin.execute(psql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(draft))
        admin.execute(drop.format(database))
        admin.execute(psql.SQL("ALTER DATABASE {} RENAME TO {}").format(draft, database))
        return True

    def _close(self, admin: psycopg.Connection) -> None:
        """Drop the databases of datasets no longer served, so that no catalog names them."""
        unserved = admin.execute(
            "SELECT datname FROM pg_database WHERE NOT datname = ANY(%s) "
            "AND starts_with(shobj_description(oid, 'pg_database'), %s)",
            [list(self.datasets), MARK],
        ).fetchall()
        for (name,) in unserved:
            admin.execute(psql.SQL("DROP DATABASE {} WITH (FORCE)").format(psql.Identifier(name)))

    def _admit(self, admin: psycopg.Connection, name: str) -> None:
        """Let the users into a database; a list of them would be seen by all of them."""
        admin.execute(
            psql.SQL("GRANT CONNECT ON DATABASE {} TO PUBLIC").format(psql.Identifier(name))
        )

    def _fill(self, statements: Sequence[str], public: Sequence[PublicRows]) -> None:
        with psycopg.connect(self.address.conninfo(DRAFT)) as connection:
            for statement in statements:
                connection.execute(statement.encode())
            for table in public:
                copy = psql.SQL("COPY public.{} FROM STDIN").format(psql.Identifier(table.name))
                try:
                    with connection.cursor().copy(copy) as rows:
                        for row in table.rows:
                            rows.write_row(row)
                except psycopg.DataError:
                    raise OperationalError(
                        f"the public table {table.name} has a value that PostgreSQL cannot hold"
                    ) from None


def definition(relations: Sequence[Relation], public: Sequence[PublicRows]) -> list[str]:
    """Return the statements that make the schema of one database."""
    statements = [
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        f"CREATE SCHEMA {SCHEMA}",
        GUARD,
        SHOW_VIEWS,
    ]
    statements.append(f"GRANT USAGE ON SCHEMA {SCHEMA}, public TO PUBLIC")
    statements.append("REVOKE USAGE ON LANGUAGE plpgsql FROM PUBLIC")  # no DO
    statements += functions.STATEMENTS
    for each in relations:
        statements += _protected(each)
    for table in public:
        statements.append(_create("public", table.name, table.columns))
        statements.append(f"GRANT SELECT ON public.{quoted(table.name)} TO PUBLIC")
    return statements


def _protected(relation: Relation) -> list[str]:
    """Return the statements that create a protected table.

    Reading it fails for everyone but its owner, whatever else is in the query; the catalogs show an
    ordinary table that one may read, as tools want it.
    """
    name = f"{quoted(relation.schema)}.{quoted(relation.name)}"
    statements = [_create(relation.schema, relation.name, relation.columns)]
    if relation.comment:
        statements.append(f"COMMENT ON TABLE {name} IS {text(relation.comment)}")
    for column, comment in zip(relation.columns, relation.comments, strict=False):
        statements.append(f"COMMENT ON COLUMN {name}.{quoted(column.name)} IS {text(comment)}")
    return [
        *statements,
        f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY",
        f'CREATE POLICY "only aggregates" ON {name} USING (EXISTS (SELECT FROM {name}))',
        f"GRANT SELECT ON {name} TO PUBLIC",
    ]


def refusal(fields: Mapping[str, bytes]) -> NotSupportedError | None:
    """Return our refusal for a mirror error raised by reading a protected table; else None."""
    routine = fields.get("R", b"")
    if routine not in REFUSES or REFUSES[routine] != fields.get("C"):
        return None
    named = re.search(r'"(.+)"', fields.get("M", b"").decode("utf-8", "replace"))
    table = f"the protected table {named[1]}" if named else "a protected table"
    return NotSupportedError(
        f"this form of statement is not supported on {table}",
        hint="ask for counts or sums in a plain SELECT, for example "
        f"SELECT COUNT(*) FROM {identifier(named[1]) if named else '…'} WITH UTILITY (100, 0.05)",
    )


def _create(schema: str, name: str, columns: Sequence[Column]) -> str:
    listed = ", ".join(f"{quoted(column.name)} {column.type}" for column in columns)
    return f"CREATE TABLE {quoted(schema)}.{quoted(name)} ({listed})"


def quoted(name: str) -> str:
    """Return a name as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """Return a text as a literal that every setting reads alike."""
    return "E'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def _not_ours(what: str, name: str) -> OperationalError:
    return OperationalError(
        f"the mirror already has a {what} {name} that this proxy did not make",
        hint="name a PostgreSQL that is there for the proxy alone",
    )


__all__ = ["Limits", "Mirror", "PublicRows", "quoted", "refusal", "text", "visibility"]
