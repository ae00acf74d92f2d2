"""Records that Spark reads: the same cubes as from DuckDB, and clear errors if there are none."""

from __future__ import annotations

import random
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from msgspec.structs import replace

from proxy.cube import build, faults
from proxy.cube.sources.source import opened
from proxy.domain import Attribute
from proxy.errors import Error, PolicyError, SourceError
from proxy.policy import Policy, Source, Unit, load
from tests.cube.making import ROOT, ROW, a_policy, edges, money, texts
from tests.cube.places import InPostgres, cube
from tests.cube.test_alike import COLUMNS, EXPRESSIONS, VALUES, a_case, shown

pytest.importorskip("pyspark")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"),
    pytest.mark.filterwarnings("ignore::FutureWarning:pyspark"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Spark that runs while the tests do, whose sessions builds make for themselves."""
    from proxy.cube.sources.spark import _started

    folder = tmp_path_factory.mktemp("spark")
    context = _started("local[2]", {"spark.sql.warehouse.dir": str(folder / "warehouse"),
                                            "spark.sql.shuffle.partitions": "2"})  # fmt: skip
    from pyspark.sql import SparkSession

    yield SparkSession(context)
    context.stop()


def there(policy: Policy, **source: Any) -> Policy:
    """Return a policy whose records Spark reads."""
    given = source or {"path": policy.path.parent / "data.parquet"}
    return replace(policy, source=Source("spark", master="local[2]", **given))


def put(path: Path, columns: dict[str, str], rows: list[Any]) -> None:
    """Put rows, as texts, into a table ``data`` of a DuckDB file, and into a Parquet file."""
    path.unlink(missing_ok=True)
    with duckdb.connect(str(path)) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        named = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
        connection.execute(f"CREATE TABLE data ({named})")
        marks = ", ".join(f"CAST(? AS {kind})" for kind in columns.values())
        connection.executemany(f"INSERT INTO data VALUES ({marks})", rows)
        connection.execute(f"COPY data TO '{path.with_suffix('.parquet')}' (FORMAT parquet)")


@pytest.mark.parametrize("seed", range(16))
def test_cubes_are_those_of_duckdb(tmp_path: Path, spark: Any, seed: int) -> None:
    """Every type of a column, on every type of an axis, by every rule: cells and reports agree."""
    policy, columns, rows = a_case(random.Random(seed), tmp_path, InPostgres(None, ""))
    kinds = InPostgres.kinds | {"uuid": "VARCHAR"}
    columns = {name: kinds[kind] for name, kind in columns.items()}
    put(tmp_path / "data.duckdb", columns, rows)
    assert cube(there(policy), "there") == cube(policy, "here")


OUTSIDE = [  # what is refused: it is not known to be the same in Spark
    "q * 2", "q / 3", "power(n, 2)", "regexp_replace(c, '[0-9]', '#')", "c ~* 'x'",
    "c ~ '[a&&b]'", "date_trunc('hour', t)", "exp(x)", "initcap(c)", "left(d, -1)",
    "to_timestamp(n + 1577854800)", "EXTRACT(hour FROM to_timestamp(n * 1000))",
    "CAST(to_timestamp(n * 1000) AS date)", "TIMESTAMP '1970-01-01' + n * INTERVAL '1 second'",
]  # fmt: skip
MORE = [  # beside those of the suite of PostgreSQL
    "n / n", "n % n", "x / 2", "n + 2147483647", "round(x)", "trunc(x)", "ceil(x)", "-x", "q > 2.5",
    "q = n", "n > 1.5", "right(d, 2)", "c LIKE '%a_b%'", "c LIKE '5\\%%'",
    "c ~ '^-?\\d+$'", "c !~ 'a.b'", "ltrim(c)", "rtrim(c, '5')", "CAST(x AS text)", "sqrt(abs(x))",
    "EXTRACT(week FROM f)", "EXTRACT(doy FROM f)", "EXTRACT(isodow FROM f)", "f - 1",
    "EXTRACT(quarter FROM t)", "date_trunc('week', f)", "date_trunc('day', t)", "n IN (1, NULL)",
    "f + INTERVAL '1 month'", "t - INTERVAL '36 hours'", "n IS NOT DISTINCT FROM 3", "b::text",
    "f::text", "t::text", "starts_with(c, '2')", "n = ANY(ARRAY[1,2])", "b IS TRUE", "f - f",
    "greatest(x, 3)", "CASE WHEN b THEN 'y' END", "'x'", "NULL", "substring(c, n)",
    "CAST(c || '' AS double precision)", "TRY_CAST(c AS double precision)", "upper(c)",
    "c = 'a''b\\'", "c SIMILAR TO '5%'",
]  # fmt: skip


def test_expressions_mean_the_same_or_are_refused(tmp_path: Path, spark: Any) -> None:
    """Each kind of expression of a policy gives the same text of each record in both, or none."""
    draw = random.Random("expressions")
    values = {
        **{"c": [*VALUES["VARCHAR"], "a\\b", "a'b", "ΣΑΣ", "İß", "ǆ", "a\nb"]},
        **{"d": ["a", "B", "b", "Z", "é", "", "ab-cd", "5"], "n": ["0", "1", "2", "5", "-7"]},
        **{"x": ["0", "1.5", "-2.5", "1e5", "0.1"]},
        **{kind: VALUES[COLUMNS[kind]] for kind in "qbtzf"},
    }
    values["c"] = [v for v in values["c"] if len(v) < 40]
    rows = [[draw.choice([*values[name], None]) for name in COLUMNS] for _ in range(300)]
    put(tmp_path / "data.duckdb", COLUMNS, rows)
    policy = a_policy(tmp_path, [texts("5")], path="data.duckdb", table="data")
    policy = replace(policy, timezone="Asia/Tokyo")
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    different, refused, same = {}, {}, {}
    with (
        opened(policy, tmp_path / "one") as here,
        opened(there(policy), tmp_path / "two") as remote,
    ):
        for expression in dict.fromkeys([*EXPRESSIONS, *MORE, *OUTSIDE]):
            try:
                sql = remote.expression(expression)
            except Error as error:
                refused[expression] = error.message
                continue
            expected = outcome(here, {expression: here.expression(expression)})
            if expected is not None:
                same[expression] = sql
            elif outcome(remote, {expression: sql}) is not None:
                different[expression] = "DuckDB fails"
        together = outcome(remote, same)
        if together is None:  # one of them
            different = {e: "Spark fails" for e in same if outcome(remote, {e: same[e]}) is None}
        else:
            for expression, found in together.items():
                expected = outcome(here, {expression: here.expression(expression)})
                if expected[expression] != found:
                    pairs = zip(expected[expression], found, strict=True)
                    different[expression] = [pair for pair in pairs if pair[0] != pair[1]][:3]
    assert different == {}
    assert {e for e in refused if "in Spark" in refused[e]} == set(OUTSIDE)
    assert len(same) > 90


def outcome(source: Any, expressions: dict[str, str]) -> dict[str, list[Any]] | None:
    """Return the texts of all records, by expression, in order; None if one of them fails."""
    columns = []
    try:
        for sql in expressions.values():
            columns.append(source.dialect.text(f"({sql})", source.kind(sql, "a")))
        rows = fetched(source, ", ".join(f"{c} AS c{i}" for i, c in enumerate(columns)))
    except (duckdb.Error, SourceError):
        return None
    found = zip(expressions, zip(*rows, strict=True), strict=True)
    return {e: sorted((shown((v, 0))[0] for v in each), key=repr) for e, each in found}


def fetched(source: Any, columns: str) -> list[tuple[Any, ...]]:
    """Return columns of all records."""
    sql = f"SELECT {columns} FROM {source.records} AS a_record"
    if not hasattr(source, "_spark"):
        return source.local.execute(sql).fetchall()
    from proxy.cube.sources.spark import _guarded
    from proxy.cube.sources.spark_sql import sent

    with _guarded("a"):
        return [tuple(row) for row in source._spark.sql(sent(sql)).collect()]


def test_shipped_data_have_the_same_cubes(tmp_path: Path, spark: Any) -> None:
    """The wages of 1988, and the medical care of 1996, by the policies that are here."""
    for name in ("cps1988", "meps1996"):
        policy = load(ROOT / f"policies/{name}.yaml")
        file = tmp_path / f"{name}.parquet"
        with duckdb.connect() as connection:
            connection.execute(
                f"COPY (FROM read_csv('{policy.source.path}', all_varchar = true,"
                f" header = true)) TO '{file}' (FORMAT parquet)"
            )
        here = replace(policy, path=tmp_path / "policy.yaml",
                       source=replace(policy.source, path=file))  # fmt: skip
        assert cube(there(here, path=file), "there") == cube(here, "here")


def test_doubles_are_read_by_their_shortest_digits(tmp_path: Path, spark: Any) -> None:
    """Whatever Java would write: numbers of few digits and of all, of every size, and ties."""
    draw = random.Random("doubles")
    numbers = [2e23, 8.41e21, 2.0e-3, 1.7976931348623157e308, 2.2250738585072014e-308]
    numbers += [draw.randrange(10**8) / 10 ** draw.randrange(8) for _ in range(2000)]
    numbers += [draw.uniform(-1, 1) * 10.0 ** draw.randrange(-20, 20) for _ in range(999)]
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (a DOUBLE, b FLOAT)")
        rows = [[n, n if 1e-30 < abs(n) < 1e30 else 0.0] for n in numbers]
        connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
        connection.execute(f"COPY t TO '{tmp_path / 'data.parquet'}' (FORMAT parquet)")
    policy = a_policy(tmp_path, [texts("5")], path="data.parquet", max_records=10**4)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    with opened(policy, tmp_path / "one") as a, opened(there(policy), tmp_path / "two") as b:
        for column in ("a", "b"):
            one, two = (
                {row[0] for row in fetched(s, s.dialect.text(column, s.columns[column]))}
                for s in (a, b)
            )
            strange = one ^ two
            assert not [n for n in strange if len(re.sub(r"e.*|[-.]|^0*", "", n)) < 17]
            assert len(strange) <= 2 * len(one) // 100  # the last of 17 digits, before Java 19
    policy = a_policy(tmp_path, [edges(0, 1, 100)], [money(0, 10**6, "0.0001", source="b")],
                      path="data.parquet", max_records=10**4)  # fmt: skip
    assert cube(there(policy), "there") == cube(policy, "here")


ZONED = ["2021-11-07 01:30:00 America/New_York", "2021-11-07 00:30:00 america/NEW_york",
         "2021-11-07 02:30:00 US/Eastern", "2021-03-14 02:30:00 America/New_York",
         "2021-04-04 01:45:00 Australia/Lord_Howe", "2021-10-03 02:15:00 Australia/Lord_Howe",
         "2021-11-07 05:30:00Z", "2021-11-07 05:30:00 UTC", "2021-11-07T05:30:00+0530",
         "1901-01-01 00:00:00 Europe/Paris", "2021-11-07 01:30:00 Nowhere/Land",
         "2021-11-07 24:00:00 GMT", "infinity", "-infinity", "2021-11-07 01:30"]  # fmt: skip


def test_texts_with_zones_are_the_same_moments(tmp_path: Path, spark: Any) -> None:
    """An hour that was there twice is the later one; names of zones count in any case."""
    with duckdb.connect() as connection:
        values = ", ".join(f"('{value}')" for value in ZONED)
        connection.execute(
            f"COPY (FROM (VALUES {values}) AS t(a)) TO '{tmp_path / 'data.parquet'}'"
            " (FORMAT parquet)"
        )
    policy = a_policy(tmp_path, [texts("5")], path="data.parquet")
    for zone in ("UTC", "America/New_York", "Australia/Lord_Howe"):
        policy = replace(policy, timezone=zone)
        found = []
        for each in (policy, there(policy)):
            with opened(each, tmp_path) as source:
                sql = source.dialect.moment_of_text("a")
                got = fetched(source, f"a, CAST({sql} AS VARCHAR) AS t")
            (tmp_path / "cells.duckdb").unlink()
            found.append({a: t for a, t in got if "infinity" not in a})
        assert found[0] == found[1], zone


@pytest.fixture
def schema(spark: Any) -> Iterator[str]:
    """A schema of one's own."""
    name = f"s{random.SystemRandom().randrange(10**9)}"
    spark.sql(f"CREATE SCHEMA {name}")
    yield name
    spark.sql(f"DROP SCHEMA {name} CASCADE")


VISITS = """
CREATE TABLE {0}.people USING parquet AS SELECT * FROM VALUES
    (1, 'A', 'a'), (2, 'B', 'b'), (3, 'C', 'c'), (NULL, 'D', 'a') AS t(who, name, town);
CREATE TABLE {0}.visits USING parquet AS
    SELECT who, CAST(day AS DATE) AS day, CAST(fee AS DECIMAL(8, 2)) AS fee FROM VALUES
    (1, '2021-03-14', 5.0), (1, '2021-03-15', 7.5), (2, '2021-03-14', NULL), (9, '2021-03-14', 1.0)
    AS t(who, day, fee);
CREATE VIEW {0}.adults AS SELECT who, upper(town) AS town FROM {0}.people;
CREATE TABLE {0}.alike (who INT, town STRING COLLATE UTF8_LCASE) USING parquet
"""
QUERIES = {  # of the town and the fee of each visit: the cells, as (town, n, sum of fees)
    "SELECT v.who, p.town, v.fee FROM {0}.visits v JOIN {0}.people p USING (who)":
        [("a", 2, 12.5), ("b", 1, 0)],
    "SELECT v.who, p.town, fee FROM {0}.visits v JOIN {0}.people p ON v.who = p.who AND fee > 6":
        [("a", 1, 7.5)],
    "SELECT who, town, fee FROM {0}.visits LEFT JOIN {0}.people USING (who)":
        [("a", 2, 12.5), ("b", 1, 0), (None, 1, 1)],
    "SELECT * FROM (SELECT who, town, 1 AS fee FROM {0}.people WHERE name ~ '[ABC]') AS t":
        [("a", 1, 1), ("b", 1, 1), ("c", 1, 1)],
}  # fmt: skip
NOT_OURS = {
    "SELECT v.who, p.town, fee FROM {0}.visits v JOIN {0}.people p ON fee = p.who": "not joined",
    "SELECT who, 'a' AS town, random() AS fee FROM {0}.visits": "random",
    "SELECT who, 'a' AS town, fee FROM {0}.visits LIMIT 5": "LIMIT is not row by row",
    "SELECT who, town, 1 AS fee FROM {0}.nobody": "no table",
    "SELECT who, town, 1 AS fee FROM {0}.adults": "a query of its own",
    "SELECT who, town, 1 AS fee FROM {0}.alike": "a collation",
    "SELECT who, java_method('java.lang.System', 'exit', 1) AS town, 1 AS fee FROM {0}.people":
        "java_method",
    "SELECT who, town, fee * 2 AS fee FROM {0}.visits JOIN {0}.people USING (who)": "in Spark",
}  # fmt: skip


def test_tables_and_queries_are_read_there(tmp_path: Path, spark: Any, schema: str) -> None:
    """Joins by the unit, subqueries: the cells written beside each; what is not ours is refused."""
    for statement in VISITS.format(schema).split(";"):
        spark.sql(statement)
    town = Attribute("town", "text", ("a", "b", "c"), nulls="group", outside="group")
    fee = replace(money(0, 100, "0.5"), name="fee", nulls="group")
    policy = a_policy(tmp_path, [town], [fee], unit=Unit("who", 3))
    for query, expected in QUERIES.items():
        rows, _ = cube(there(policy, query=query.format(schema)), "there")
        towns = ["a", "b", "c", None]
        assert [(towns[c], n, s / 2) for c, n, s, *_ in rows] == expected, query
    for query, why in NOT_OURS.items():
        with pytest.raises((PolicyError, SourceError), match=re.escape(why)):
            cube(there(policy, query=query.format(schema)), "there")
    policy = a_policy(tmp_path, [replace(texts("a", "b"), name="town", source="town")])
    assert cube(there(policy, table=f"{schema}.people"), "there")[0] == [(0, 2), (1, 1)]


def test_what_is_wrong_is_said_and_no_value(
    tmp_path: Path, spark: Any, schema: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A Spark that is not there, a table, a column, a type, a value: what to do, no value."""
    spark.sql(f"CREATE TABLE {schema}.data USING parquet AS"
              " SELECT 'secret' AS a, 1 AS p, array(1) AS o")  # fmt: skip

    def said(axis: Attribute, unit: Unit = ROW, master: str = "local[2]", **source: Any) -> str:
        source = source or {"table": f"{schema}.data"}
        policy = there(a_policy(tmp_path, [axis], unit=unit), **source)
        policy = replace(policy, source=replace(policy.source, master=master))
        with pytest.raises((PolicyError, SourceError)) as caught:
            cube(policy, "there")
        assert "secret" not in str(caught.value) + str(caught.value.hint)
        return str(caught.value)

    a = texts("x")
    assert "cannot be reached" in said(a, master="sc://127.0.0.1:1")
    assert "no table" in said(a, table="nothing")
    assert "does not exist" in said(a, path=tmp_path / "nothing.parquet")
    (tmp_path / "no.parquet").write_text("secret")
    assert "is not Parquet" in said(a, path=tmp_path / "no.parquet")
    (tmp_path / "half.parquet").write_bytes(b"PAR1secret")
    assert "cannot be read to its end" in said(a, path=tmp_path / "half.parquet")
    assert 'no column "a b"' in said(replace(a, source='"a b"'))
    assert "no column" in said(a, unit=Unit("who"))
    assert "is not read in an expression" in said(replace(a, source="o IS NULL"))
    assert "fails on some record" in said(replace(a, source="CAST(a AS integer)"))
    assert "fails on some record" in said(replace(a, source="CAST(1 / (p - 1) AS text)"))
    printed = "".join(capfd.readouterr())
    assert "secret" not in printed
    assert "SQLSTATE" not in printed
    found = faults(there(a_policy(tmp_path, [a]), table=f"{schema}.data"),
                   {"attributes.b": '"b"', "attributes.c": "a + 1"})  # fmt: skip
    assert ['no column "b"' in found[0].message, "does not exist" in found[1].message] == [True] * 2


def test_what_java_and_the_extra_are_for_is_said(tmp_path: Path) -> None:
    """Without pyspark, or without Java: what to install."""
    code = (
        "import sys, importlib.util; from pathlib import Path\n"
        "from tests.cube.test_spark import there; from tests.cube.making import a_policy, texts\n"
        "from proxy.cube import build\n"
        "find = importlib.util.find_spec\n"
        "if sys.argv[2] == 'pyspark': importlib.util.find_spec = (\n"
        "    lambda name, *a: None if name == 'pyspark' else find(name, *a))\n"
        "try: build(there(a_policy(Path(sys.argv[1]), [texts('x')])), Path('cube'), 'ledger')\n"
        "except Exception as error: print(type(error).__name__, error.message, error.hint)\n"
    )
    for lacking, words in (("pyspark", "sql-privacy-proxy[spark]"), ("java", "install Java")):
        env = {"PATH": "/usr/bin:/bin" if lacking == "pyspark" else str(tmp_path),
               "JAVA_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}  # fmt: skip
        if lacking == "java":
            for tool in ("bash", "dirname", "env", "ps", "rm", "cat", "uname", "sh"):
                if (path := shutil.which(tool)) and not (tmp_path / tool).exists():
                    (tmp_path / tool).symlink_to(path)
            env.pop("JAVA_HOME")
        run = subprocess.run([sys.executable, "-c", code, str(tmp_path), lacking], env=env,
                             capture_output=True, text=True, cwd=tmp_path)  # fmt: skip
        assert run.stdout.startswith("SourceError")
        assert words in run.stdout, run.stdout
        assert run.stderr == ""


def rows_to(path: Path, select: str) -> None:
    """Write the rows of a SELECT to a Parquet file."""
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({select}) TO '{path}' (FORMAT parquet)")


def test_what_changes_while_it_is_read_is_refused(
    tmp_path: Path, spark: Any, schema: str, monkeypatch: Any
) -> None:
    """A file that is written to or comes, a table that grows: an error, and no cube."""
    from proxy.cube.sources.spark import SparkSource

    folder = tmp_path / "rows"
    folder.mkdir()
    rows_to(folder / "one.parquet", "SELECT 'x' AS a")
    spark.sql(f"CREATE TABLE {schema}.data USING parquet AS SELECT 'x' AS a")
    policy = a_policy(tmp_path, [texts("x")])
    in_files, in_table = there(policy, path=folder), there(policy, table=f"{schema}.data")
    assert cube(in_files, "there")[0] == cube(in_table, "there")[0] == [(0, 1)]
    group = SparkSource.group

    def changing(self: Any, sql: str, columns: Any) -> None:
        group(self, sql, columns)
        rows_to(folder / "two.parquet", "SELECT 'x' AS a")
        spark.sql(f"INSERT INTO {schema}.data SELECT 'x'")

    monkeypatch.setattr(SparkSource, "group", changing)
    for each in (in_files, in_table):
        with pytest.raises(SourceError, match="changed while it was read"):
            build(each, tmp_path / "cube", "ledger")
        assert not (tmp_path / "cube").exists()


def test_folders_of_files_are_one_table(tmp_path: Path, spark: Any) -> None:
    """Names of folders are columns, as texts; a column that a file lacks is NULL: as in DuckDB."""
    for year, select in (("2020", "SELECT 1 AS a"), ("2021", "SELECT 2 AS a, 'y' AS b")):
        (tmp_path / "rows" / f"year={year}").mkdir(parents=True)
        rows_to(tmp_path / "rows" / f"year={year}" / "part.parquet", select)
    year = Attribute("year", "integer", (2020, 2021), nulls="group", outside="group")
    b = replace(texts("y"), name="b", nulls="group", outside="group")
    policy = a_policy(tmp_path, [year, b], path="rows/**/*.parquet")
    for path in (tmp_path / "rows", tmp_path / "rows/**/*.parquet"):
        assert cube(there(policy, path=path), "there") == cube(policy, "here")


def test_an_interrupted_build_leaves_nothing(tmp_path: Path, spark: Any, schema: str) -> None:
    """It ends soon, Spark does nothing more, and the next build is as ever."""
    spark.sql(f"CREATE TABLE {schema}.data USING parquet AS SELECT CAST(id AS STRING) AS a"
              " FROM range(2000000)")  # fmt: skip
    policy = there(a_policy(tmp_path, [texts(*map(str, range(5000)))], unit=Unit("a", 3),
                            max_records=10**7), table=f"{schema}.data")  # fmt: skip
    before, told = set(tmp_path.iterdir()), []

    def stop(done: float) -> None:
        told.append(done)
        if time.monotonic() > begun + 3:
            raise KeyboardInterrupt

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        build(policy, tmp_path / "cube", "ledger", progress=stop)
    assert set(tmp_path.iterdir()) == before
    for _ in range(100):
        if not spark.sparkContext.statusTracker().getActiveJobsIds():
            break
        time.sleep(0.1)
    else:
        pytest.fail("Spark goes on")
    assert cube(there(a_policy(tmp_path, [texts("7")], max_records=10**7),
                      table=f"{schema}.data"), "there")[0] == [(0, 1)]  # fmt: skip


@pytest.fixture
def remote_spark(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A server of Spark Connect, from what pip installed."""
    from pyspark.find_spark_home import _find_spark_home

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [f"{_find_spark_home()}/bin/spark-submit", "--master", "local[2]", "--class",
               "org.apache.spark.sql.connect.service.SparkConnectServer"]  # fmt: skip
    for name, value in {"spark.connect.grpc.binding.port": port, "spark.ui.enabled": "false",
                        "spark.connect.grpc.binding.address": "127.0.0.1",
                        "spark.local.dir": tmp_path,
                        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={tmp_path}",
                        "spark.sql.shuffle.partitions": 2,
                        "spark.sql.warehouse.dir": tmp_path / "warehouse"}.items():  # fmt: skip
        command += ["--conf", f"{name}={value}"]
    with subprocess.Popen([*command, "spark-internal"], cwd=tmp_path, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as process:  # fmt: skip
        for _ in range(1200):
            with socket.socket() as probe:
                if not probe.connect_ex(("127.0.0.1", port)):
                    break
            time.sleep(0.1)
        yield f"sc://127.0.0.1:{port}", process
        process.kill()


def test_spark_connect_is_the_same_and_may_die(
    tmp_path: Path, remote_spark: tuple[str, subprocess.Popen[bytes]]
) -> None:
    """The same cube through Spark Connect; errors without values; a server that is killed."""
    master, process = remote_spark
    folder = tmp_path / "policy"
    folder.mkdir()
    policy, columns, rows = a_case(random.Random(4), folder, InPostgres(None, ""))
    kinds = InPostgres.kinds | {"uuid": "VARCHAR"}
    columns = {name: kinds[kind] for name, kind in columns.items()}
    put(folder / "data.duckdb", columns, rows)
    far = there(policy)
    far = replace(far, source=replace(far.source, master=master))
    assert cube(far, "there") == cube(policy, "here")

    rows_to(folder / "data.parquet", "SELECT 'secret' || i % 50000 AS a FROM range(3000000) t(i)")
    many = replace(a_policy(folder, [texts(*map(str, range(5000)))], unit=Unit("a", 3),
                            max_records=10**7), source=far.source)  # fmt: skip
    wrong = replace(a_policy(folder, [replace(texts("x"), source="CAST(a AS integer)")],
                             max_records=10**7), source=far.source)  # fmt: skip
    with pytest.raises(SourceError, match="fails on some record") as caught:
        build(wrong, folder / "cube", "ledger")
    assert "secret" not in str(caught.value)
    before = set(folder.iterdir())
    threading.Timer(4, process.kill).start()
    with pytest.raises(SourceError, match=r"ended the query|cannot be reached"):
        build(many, folder / "cube", "ledger", progress=lambda done: None)
    assert set(folder.iterdir()) == before
