"""Temporary views: names for queries, which belong to one session."""

import psycopg
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import proxy
from tests.server.serving import NAMES

GROUPED = "SELECT region, COUNT(*) AS n FROM cps1988 GROUP BY region WITH UTILITY (500, 0.05)"
IBIS = (  # what ibis reads a schema with
    "SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), NOT a.attnotnull "
    "FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON a.attrelid = c.oid "
    "JOIN pg_catalog.pg_namespace n ON c.relnamespace = n.oid "
    "WHERE a.attnum > 0 AND NOT a.attisdropped AND n.nspname = ANY(%s) AND c.relname = %s "
    "ORDER BY a.attnum"
)


@pytest.fixture(params=["simple", "extended"])
def run(connection, request):
    """Return what runs a statement in one of the protocols."""

    def execute(text, parameters=None):
        raw = psycopg.RawCursor(connection)
        if parameters is None and request.param == "extended":
            parameters = ()
        return raw.execute(text, parameters)

    return execute


def test_a_view_is_its_query(run):
    """
    What names a view is answered as if its query stood there; COPY, cursors and probes too.
    """
    assert run(f"CREATE TEMP VIEW v AS {GROUPED}").statusmessage == "CREATE VIEW"
    rows = run("SELECT * FROM v ORDER BY region").fetchall()
    assert [name for name, _ in rows] == NAMES
    assert run("SELECT COUNT(*) FROM v AS x JOIN pg_temp.v AS y USING (region)").fetchone() == (4,)
    probe = run("SELECT * FROM v LIMIT 0")
    assert [(c.name, c.type_code) for c in probe.description] == [("region", 25), ("n", 20)]
    assert run("SELECT n FROM v WHERE region = $1", ("west",)).fetchone() == rows[3][1:]
    assert run("WITH v AS (SELECT 1 AS x) SELECT x FROM v").fetchall() == [(1,)]
    assert run("DROP VIEW v").statusmessage == "DROP VIEW"
    with pytest.raises(psycopg.errors.UndefinedTable):
        run("SELECT * FROM v")


def test_the_hint_and_the_clause_of_a_view_are_its_own(run, connection):
    """
    How good the numbers of a view must be is said in it; else the statement or the session says it.
    """
    connection.execute("SET privacy.answers = on")
    said = []
    connection.add_notice_handler(lambda notice: said.append(notice.message_detail))
    for clause, hint in (("WITH UTILITY (777, 0.25)", ""), ("", "/*+ UTILITY(777, 0.25) */")):
        run(f"CREATE OR REPLACE TEMP VIEW v AS SELECT {hint} COUNT(*) AS n FROM cps1988 {clause}")
        run("SELECT n FROM v")
        assert '"confidence":0.75' in said.pop()


@pytest.mark.parametrize(
    "text, sqlstate",
    [
        ("CREATE TEMP VIEW v AS SELECT * FROM cps1988", "0A000"),
        ("CREATE TEMP VIEW v AS SELECT foo FROM cps1988", "42703"),
        ("CREATE TEMP VIEW v AS SELECT COUNT(*) FROM nowhere", "42P01"),
        ("CREATE TEMP VIEW v AS SELECT relname FROM pg_class", "42P01"),
        ("CREATE TEMP VIEW v AS SELECT 1 AS a, 2 AS a", "42701"),
        ("CREATE TEMP VIEW v (a, b) AS SELECT 1", "42601"),
        ("CREATE TEMP VIEW v AS DELETE FROM cps1988", "0A000"),
        ("CREATE TEMP VIEW v AS", "42601"),
        ("CREATE TEMP VIEW v AS SELECT COUNT(*) FROM v", "42P01"),
        ("CREATE VIEW v AS SELECT COUNT(*) FROM cps1988", "0A000"),
        ("CREATE TEMP VIEW there AS SELECT 1 AS n", "42P07"),
        ("CREATE OR REPLACE TEMP VIEW there AS SELECT 'x' AS n", "42P16"),
        ("DROP VIEW nowhere", "42P01"),
        ("DROP VIEW there", "2BP01"),
        ("COPY there TO STDOUT", "42809"),
        (f"CREATE TEMP VIEW v AS SELECT 1 AS {'x' * 200_000}", "54001"),
    ],
)
def test_what_makes_no_view_is_refused_at_once(run, text, sqlstate):
    """
    Each refusal has its SQLSTATE, costs nothing and leaves the views as they are.
    """
    run("CREATE TEMP VIEW there AS SELECT 1 AS n")
    run("CREATE TEMP VIEW reader AS SELECT n FROM there")
    with pytest.raises(psycopg.Error) as caught:
        run(text)
    assert caught.value.sqlstate == sqlstate
    assert run("SELECT * FROM reader").fetchall() == [(1,)]


def test_a_session_holds_so_many_views(run):
    """
    There is a limit, with a way out.
    """
    for i in range(20):
        run(f"CREATE TEMP VIEW v{i} AS SELECT 1 AS n")
    with pytest.raises(psycopg.errors.StatementTooComplex, match="20 temporary views") as caught:
        run("CREATE TEMP VIEW more AS SELECT 1 AS n")
    assert caught.value.diag.message_hint == "drop some: DROP VIEW"
    run("DROP VIEW v0, v1")
    run("CREATE TEMP VIEW more AS SELECT 1 AS n")


def test_catalogs_have_the_views(run, connection):
    """
    What ibis asks, pg_class, information_schema and ``::regclass`` know a view while it is there,
    inside a transaction and outside.
    """
    for begin, end in (("SELECT 1", "SELECT 1"), ("BEGIN", "COMMIT")):
        run(f"CREATE TEMP VIEW v AS {GROUPED}")
        run(begin)
        (schema,) = run(
            "SELECT nspname FROM pg_namespace WHERE oid = pg_my_temp_schema()"
        ).fetchone()
        for prepare in (None, True):
            found = connection.execute(IBIS, (["public", schema], "v"), prepare=prepare).fetchall()
            assert found == [("region", "text", True), ("n", "bigint", True)]
        listed = run("SELECT table_name, table_type FROM information_schema.tables").fetchall()
        assert ("v", "LOCAL TEMPORARY") in listed
        assert run("SELECT 'v'::regclass::text").fetchone() == ("v",)
        run("DROP VIEW v")
        assert not connection.execute(IBIS, (["public", schema], "v")).fetchall()
        run(end)


def test_nobody_else_sees_a_view(server, run):
    """
    Neither the same user in another session nor another user finds it, its name or its columns.
    """
    run("CREATE TEMP VIEW secret AS SELECT COUNT(*) AS hidden FROM cps1988")
    run("BEGIN")
    assert run("SELECT 1 FROM pg_class WHERE relname = 'secret'").fetchall() == [(1,)]
    looks = (
        "SELECT 1 FROM pg_class WHERE relname = 'secret'",
        "SELECT 1 FROM pg_attribute WHERE attname = 'hidden'",
        "SELECT 1 FROM pg_type WHERE typname ~ 'secret'",
        "SELECT 1 FROM information_schema.columns WHERE column_name = 'hidden'",
        "SELECT 1 FROM pg_settings WHERE name = 'privacy.views' AND setting <> ''",
    )
    for end in ("SELECT 1", "COMMIT"):
        run(end)
        for user in ("alice", "bob"):
            with server.connect(user) as other:
                assert [other.execute(look).fetchall() for look in looks] == [[]] * len(looks)
                with pytest.raises(psycopg.errors.UndefinedTable):
                    other.execute("SELECT * FROM secret")


def test_the_mirror_never_answers_for_a_view(connection):
    """
    What stands in the catalogs cannot be read, nor kept, by whoever puts it there.
    """
    show = """SELECT privacy.show_views('{"v": [["n", "bigint"]]}')"""
    connection.execute("BEGIN")
    connection.execute(show)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("SELECT * FROM v")
    connection.execute("ROLLBACK")
    connection.execute(show)
    assert not connection.execute("SELECT 1 FROM pg_class WHERE relname = 'v'").fetchall()
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("CREATE TEMP TABLE t (a int)")


def test_a_view_goes_with_its_session(server):
    """
    A session begins without views, and DISCARD ALL makes it so again.
    """
    with server.connect() as connection:
        connection.execute("CREATE TEMP VIEW v AS SELECT 1 AS n")
        connection.execute("DISCARD ALL")
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT * FROM v")
        connection.execute("CREATE TEMP VIEW v AS SELECT 1 AS n")
    with server.connect() as connection, pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute("SELECT * FROM v")


def test_many_views_one_after_the_other(connection):
    """
    As ibis does for each query: create, look, drop; also where its sqlglot forgets the name.
    """
    for i in range(12):
        connection.execute(f"CREATE TEMPORARY VIEW ibis_v{i} AS SELECT {i} AS n")
        assert connection.execute(f"SELECT * FROM ibis_v{i}").fetchone() == (i,)
        connection.execute(f"DROP VIEW IF EXISTS {f'ibis_v{i}' if i % 2 else ''}")
    connection.execute("CREATE TEMP VIEW mine AS SELECT 1 AS n")
    connection.execute("DROP VIEW IF EXISTS")
    assert connection.execute("SELECT * FROM mine").fetchone() == (1,)


# --- the same as PostgreSQL, at every door -------------------------------------------------------

BODIES = {
    "u": ["SELECT 1 AS a", "SELECT 2 AS a"],
    "v": ["SELECT a + 1 AS a FROM u", "SELECT 5 AS a"],
}
BODIES["w"] = ["SELECT a FROM v", "SELECT a FROM u", "SELECT 'x' AS a", "SELECT 1 AS a, 2 AS b"]
CREATE = st.sampled_from("uvw").flatmap(
    lambda name: st.builds(
        lambda replace, body: f"CREATE {replace} TEMP VIEW {name} AS {body}",
        st.sampled_from(["", "OR REPLACE"]),
        st.sampled_from(BODIES[name]),
    )
)
DROP = st.builds(
    lambda exists, names, how: f"DROP VIEW {exists} {names} {how}",
    st.sampled_from(["", "IF EXISTS"]),
    st.sampled_from(["u", "v", "w", "u, v", "w, u"]),
    st.sampled_from(["", "CASCADE", "RESTRICT"]),
)
BLOCK = st.sampled_from(
    ["BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT s", "ROLLBACK TO s", "RELEASE s", "DISCARD ALL"]
)
LOOK = st.sampled_from([f"SELECT * FROM {name}" for name in "uvw"])


@pytest.fixture(scope="module")
def doors(server, postgres):
    state = server.folder / "state"
    with (
        postgres.connect() as plain,
        server.connect() as simple,
        server.connect() as extended,
        proxy.connect(server.folder / "cps1988.yaml", state=state) as embedded,
    ):
        for connection in (plain, simple, extended):
            connection.prepare_threshold = None  # DISCARD ALL takes what is prepared
        yield plain, simple, psycopg.RawCursor(extended), embedded


def outcome(door, text):
    """Return what a statement gave: the rows, or the class of the SQLSTATE."""
    try:
        if isinstance(door, psycopg.RawCursor):
            door.execute(text, ())
            return door.fetchall() if door.description else None
        cursor = door.execute(text)
        return list(map(tuple, cursor.fetchall())) if cursor.description else None
    except psycopg.Error as error:
        return error.sqlstate
    except proxy.Error as error:
        return error.sqlstate


U = "CREATE TEMP VIEW u AS SELECT 1 AS a"
V = "CREATE TEMP VIEW v AS SELECT a FROM u"
LOOKS = ("SELECT * FROM u", "SELECT * FROM v")
OTHER = "CREATE OR REPLACE TEMP VIEW u AS SELECT 2 AS a"


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@example([U, V, "BEGIN", "DROP VIEW u CASCADE", *LOOKS, "ROLLBACK", *LOOKS])
@example([U, "BEGIN", V, "SAVEPOINT s", "DROP VIEW v", "ROLLBACK TO s", *LOOKS, "COMMIT", *LOOKS])
@example([U, V, OTHER, *LOOKS, "BEGIN", "DROP VIEW u", "COMMIT", *LOOKS])
@example([U, V, "BEGIN", OTHER, *LOOKS, "SELECT nothing", "COMMIT", *LOOKS])
@example([V, U, V, U, "DROP VIEW u RESTRICT", "DROP VIEW v, u", *LOOKS, "DROP VIEW IF EXISTS v"])
@given(st.lists(st.one_of(CREATE, CREATE, DROP, LOOK, LOOK, BLOCK), min_size=4, max_size=14))
def test_views_come_and_go_as_in_postgresql(doors, script):
    """
    Random views, drops, transactions and savepoints: the same rows and the same errors from
    PostgreSQL, from the server in both protocols, and from the embedded connection.
    """
    for door in doors:
        for text in ("ROLLBACK", "DISCARD ALL"):
            door.execute(text)
    for at, text in enumerate(script):
        expected, *found = (outcome(door, text) for door in doors)
        assert found == [expected] * 3, script[: at + 1]
