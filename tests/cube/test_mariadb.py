"""Records in MariaDB: what is its own, beside ``test_alike``, and clear errors."""

from __future__ import annotations

import datetime
import random
import re
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from proxy.cube import build
from proxy.cube.sources.source import opened
from proxy.domain import Attribute
from proxy.errors import PolicyError, SourceError
from proxy.policy import Unit, load
from proxy.steward.twins import same_place
from tests.cube.making import ROOT, ROW, a_policy, texts
from tests.cube.places import InMariaDB, cube, here, opened_in

DAYS = (datetime.date(2021, 3, 14), datetime.date(2021, 3, 15))


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A database of one's own."""
    with opened_in("mariadb", request) as found:
        yield found


def test_what_is_wrong_is_said_and_no_value(
    tmp_path: Path, place: InMariaDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is not there, a user, a table, a column, a type, a value: what to do, each."""
    place.run(
        "CREATE TABLE data (a text, p int, o point);\n"
        "INSERT INTO data VALUES ('secret', 1, NULL);\n"
        "CREATE VIEW seen AS SELECT a FROM data;\n"
        "CREATE TABLE still (a text) ENGINE=MyISAM;\n"
        "CREATE TABLE made (a text, r double AS (rand()) VIRTUAL);\n"
        f"CREATE USER {place.name}@'127.0.0.1' IDENTIFIED BY 'a secret'"
    )

    def said(axis: Attribute, unit: Unit = ROW, url: str | None = None, **source: Any) -> str:
        policy = place.there(a_policy(tmp_path, [axis], unit=unit), **source)
        if url:
            policy = replace(policy, source=replace(policy.source, dsn=url))
        with pytest.raises((PolicyError, SourceError)) as caught:
            cube(policy, "there")
        assert "secret" not in f"{caught.value} {caught.value.hint}"
        return str(caught.value)

    a, url = texts("x"), place.mariadb.url(place.name)
    assert "cannot be reached: error 2003" in said(a, url=re.sub(r":\d+/", ":1/", url))
    assert "has no such database" in said(a, url=place.mariadb.url("nowhere"))
    assert "cannot be reached" in said(a, url=place.mariadb.url(place.name, user=place.name))
    assert 'no table "nothing"' in said(a, table="nothing")
    assert "being a view" in said(a, table="seen")
    assert "only InnoDB is read" in said(a, table="still")
    assert "computed when they are read" in said(a, table="made")
    assert 'no column "a b"' in said(replace(a, source='"a b"'))
    assert "no column" in said(a, unit=Unit("who"))
    assert "is not read in an expression" in said(replace(a, source="o IS NULL"))
    assert "fails on some record" in said(replace(a, source="CAST(a AS integer)"))
    assert "fails on some record" in said(replace(a, source="CAST(1 / (p - 1) AS text)"))
    assert "a cast to real is not written" in said(replace(a, source="CAST(a AS real) > 1"))
    monkeypatch.setenv("MYSQL_PWD", "another secret")
    assert "refuses this user or password" in said(a)
    place.run(f"DROP USER {place.name}@'127.0.0.1'")


URLS = {
    "mysql+pymysql://u:pw@h/d": "has a password in it",
    "mysql+pymysql://h/d?password=pw": "has a password in it",
    "mysql+pymysql://h/d?passwd=pw": "has a password in it",
    "mysql+pymysql://u%3Apw@h/d": "has a password in it",
    "mysql+pymysql://h/d?local_infile=1": "the option local_infile is not known",
    "mysql+pymysql://h/d?init_command=x": "the option init_command is not known",
    "oracle+oracledb://h/d?wallet_password=pw": "has a password in it",
    "mssql+pyodbc:///?odbc_connect=PWD%3Dpw": "has a password in it",
    "postgresql+psycopg://h/d": "with engine postgres",
    "sqlite:///x.db?mode=rw": "sqlite:///path is expected",
    "sqlite://": "sqlite:///path is expected",
    "snowflake": "a URL of SQLAlchemy's is expected",
    "mysql+pymysql://h/?read_default_file=x": "it names no database",
}


def test_a_url_that_is_not_read_is_refused(tmp_path: Path) -> None:
    """With a password, in whatever way; of another database; with an option that could do more."""
    policy = (ROOT / "policies/cps1988.yaml").read_text()
    for url, why in URLS.items():
        source = f"source: {{engine: sqlalchemy, url: '{url}', table: t}}"
        path = tmp_path / "policy.yaml"
        path.write_text(re.sub(r"source: \{.*\}", source, policy))
        with pytest.raises(PolicyError, match=why) as caught:
            load(path)
        assert "pw" not in str(caught.value)


def test_one_table_is_one_source_by_whatever_name() -> None:
    """A second dataset over it is seen, by any host and with the database named or meant."""

    def source(url: str, **more: str) -> dict[str, str | None]:
        known = {"engine": "sqlalchemy", "path": None, "table": None, "query": None}
        return known | {"dsn": f"mysql+pymysql://{url}"} | more

    one = source("a@h/shop", table="orders")
    for other in (
        source("b@h2:1/shop", table="Orders"),
        source("b@h2/other?ssl_ca=x", table="shop.orders"),
        source("b@h2/other", query="SELECT 1 FROM x"),
    ):
        assert same_place(one, other)
    assert not same_place(one, source("a@h/shop", table="visits"))
    assert not same_place(one, source("a@h/other", table="orders"))
    assert not same_place(one, source("a@h/shop", table="orders") | {"engine": "postgres"})


def test_a_source_that_dies_leaves_the_old_cube(tmp_path: Path, place: InMariaDB) -> None:
    """Its connection is cut while it groups, then there is no server: an error, each time."""
    place.run("CREATE TABLE data (a text)")
    rows = ", ".join(f"('{i}')" for i in range(3000))
    place.run(f"INSERT INTO data VALUES {rows}")
    policy = place.there(a_policy(tmp_path, [texts(*map(str, range(3000)))], max_records=10**6))
    build(policy, tmp_path / "cube", "ledger")
    before = (tmp_path / "cube").read_bytes()
    place.run(";\n".join(["INSERT INTO data SELECT * FROM data"] * 5))
    done = threading.Event()

    def cut() -> None:
        with place.mariadb.connect() as other, other.cursor() as cursor:
            while not done.wait(0.01):
                cursor.execute(
                    "SELECT id FROM information_schema.processlist"
                    " WHERE user = 'reader' AND info LIKE 'SELECT w0%'"
                )
                for (found,) in cursor.fetchall():
                    cursor.execute(f"KILL CONNECTION {found}")

    cutter = threading.Thread(target=cut)
    cutter.start()
    try:
        with pytest.raises(SourceError, match="ended the query"):
            build(policy, tmp_path / "cube", "ledger")
    finally:
        done.set()
        cutter.join()
    place.mariadb.stop()
    with pytest.raises(SourceError, match="cannot be reached"):
        build(policy, tmp_path / "cube", "ledger")
    place.mariadb.start()
    assert [path.name for path in tmp_path.iterdir()] == ["cube"]
    assert (tmp_path / "cube").read_bytes() == before
    build(policy, tmp_path / "cube", "ledger")


def test_a_password_may_come_from_an_option_file(
    tmp_path: Path, place: InMariaDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for MariaDB's own programs, where the environment has none."""
    place.put({"a": "varchar(40)"}, [["x"]])
    (tmp_path / "own.cnf").write_text("[client]\npassword = a secret\n")
    policy = place.there(a_policy(tmp_path, [texts("x")]))
    url = f"{policy.source.dsn}?read_default_file={tmp_path / 'own.cnf'}"
    monkeypatch.delenv("MYSQL_PWD")
    with pytest.raises(SourceError, match="cannot be reached"):
        cube(policy, "there")
    assert cube(replace(policy, source=replace(policy.source, dsn=url)), "there")[0] == [(0, 1)]


def test_two_builds_at_once_are_two_readers(tmp_path: Path, place: InMariaDB) -> None:
    """Both end, with the same cells."""
    place.put({"a": "varchar(40)"}, [[str(i % 7)] for i in range(500)])
    policies = []
    for i in range(2):
        (tmp_path / str(i)).mkdir()
        policies.append(place.there(a_policy(tmp_path / str(i), [texts(*"0123456")])))
    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(lambda policy: cube(policy, "there"), policies)
    assert one == two
    assert len(one[0]) == 7


def test_what_runs_can_be_stopped(tmp_path: Path, place: InMariaDB) -> None:
    """By another connection, as from another thread."""
    place.run("CREATE TABLE data (a text)")
    rows = "seq_1_to_1000000 AS a, seq_1_to_1000000 AS b"
    with opened(place.there(a_policy(tmp_path, [texts("x")])), tmp_path) as source:
        timer = threading.Timer(0.5, source.interrupt)
        timer.start()
        with pytest.raises(SourceError, match="error 1317"):
            source.group(f"SELECT count(*) AS n FROM {rows}", ["n"])
        timer.join()


def test_settings_of_the_server_change_nothing(tmp_path: Path, place: InMariaDB) -> None:
    """What its administrator has set for all sessions has no part in what a record is."""
    rows = [["a", "2021-03-14 14:30:00+00"], ["a ", None], ["A", None], ["\\'", None]]
    place.put({"a": "varchar(40)", "t": "timestamp(6)"}, rows)
    day = Attribute("day", "text", ("2021-03-14",), source="CAST(CAST(t AS date) AS text)")
    axes = [texts("a", "a ", "A", "\\'"), replace(day, nulls="group")]
    policy = place.there(a_policy(tmp_path, axes))
    expected = [(0, 0, 1), (1, 1, 1), (2, 1, 1), (3, 1, 1)]
    assert cube(policy, "there")[0] == expected
    changed = {"sql_mode": "''", "sql_select_limit": "1", "time_zone": "'+13:00'",
               "collation_server": "'latin1_german2_ci'", "lc_time_names": "'de_DE'",
               "max_sort_length": "64", "div_precision_increment": "0"}  # fmt: skip
    try:
        place.run(";\n".join(f"SET GLOBAL {name} = {value}" for name, value in changed.items()))
        assert cube(policy, "there")[0] == expected
    finally:
        place.run(";\n".join(f"SET GLOBAL {name} = DEFAULT" for name in changed))


def test_a_time_zone_is_the_one_that_is_meant(tmp_path: Path, place: InMariaDB) -> None:
    """One that the server does not know, or knows wrongly, is an error."""
    place.put({"a": "varchar(40)"}, [["x"]])
    policy = place.there(a_policy(tmp_path, [texts("x")]))
    for zone, why in (
        ("Asia/Tokyo", None),
        ("America/New_York", None),
        ("Europe/Berlin", "knows another time zone by this name"),
        ("Asia/Kolkata", "does not know this time zone"),
    ):
        named = replace(policy, timezone=zone)
        if why is None:
            assert cube(named, "there")[0] == [(0, 1)]
            continue
        with pytest.raises(PolicyError, match=why):
            cube(named, "there")


def test_a_day_of_zeros_is_no_day(tmp_path: Path, place: InMariaDB) -> None:
    """Such dates are unreadable, not NULL and not the first: they go where the outside goes."""
    place.run(
        "CREATE TABLE data (d date NOT NULL, t datetime NOT NULL);\n"
        "SET SESSION sql_mode = 'ALLOW_INVALID_DATES';\n"
        "INSERT INTO data VALUES ('0000-00-00', '0000-00-00'), ('2021-00-00', '2021-03-00'),"
        " ('2021-02-31', '2021-02-31 10:00'), ('2021-03-14', '2021-03-14 10:00')"
    )
    axes = [
        Attribute("d", "date", DAYS, nulls="group", outside="group"),
        Attribute("e", "date", DAYS, source="t", nulls="group", outside="group"),
    ]
    rows, report = cube(place.there(a_policy(tmp_path, axes)), "there")
    assert rows == [(0, 0, 1), (2, 2, 3)]
    assert [each.unreadable for each in report.attributes] == [3, 3]


@pytest.mark.slow
def test_texts_of_numbers_are_those_of_duckdb(tmp_path: Path, place: InMariaDB) -> None:
    """Of random DOUBLEs of every size; of FLOATs, where DuckDB has the fewest digits."""
    draw = random.Random("floats")
    rows: list[list[str | None]] = []
    while len(rows) < 1000:
        (single,) = struct.unpack("f", draw.randbytes(4))
        (double,) = struct.unpack("d", draw.randbytes(8))
        if draw.random() < 0.7:
            single = round(draw.uniform(-1, 1) * 10 ** draw.randint(-6, 18), draw.randint(0, 6))
            double = round(draw.uniform(-1, 1) * 10 ** draw.randint(-6, 18), draw.randint(0, 12))
        (single,) = struct.unpack("f", struct.pack("f", single))
        if 1e-37 < abs(single) < 3e38 and 1e-300 < abs(double) < 1e300:
            rows.append([repr(single), repr(double)])
    columns = {"f": "float", "x": "double"}
    place.put(columns, rows)
    here(tmp_path / "data.duckdb", place, columns, rows)
    policy = a_policy(tmp_path, [texts("x")], path="data.duckdb", table="data")
    found = []
    for name, each in (("here", policy), ("there", place.there(policy))):
        (tmp_path / name).mkdir()
        with opened(each, tmp_path / name) as source:
            one = (source.dialect.text(f'"{c}"', k) for c, k in source.columns.items())
            sql = f"SELECT {', '.join(one)} FROM {source.records} AS r"
            local = name == "here"
            got = source.local.execute(sql).fetchall() if local else place.rows(source, sql)
        found.append(got)
    doubles = [sorted(x for _, x in each) for each in found]
    assert doubles[0] == doubles[1]
    by_number = [{struct.pack("f", float(f)): f for f, _ in each} for each in found]
    assert by_number[0].keys() == by_number[1].keys()
    longer = [(f, by_number[1][key]) for key, f in by_number[0].items() if f != by_number[1][key]]
    assert all(len(here.strip("0")) >= len(there.strip("0")) for here, there in longer)
    assert len(longer) < 0.02 * len(rows)


@pytest.mark.slow
def test_cases_are_those_of_duckdb_or_an_error(tmp_path: Path, place: InMariaDB) -> None:
    """Of every character: where MariaDB would write another one, the expression fails."""
    characters = [chr(i) for i in range(1, 0x1F000) if not 0xD800 <= i < 0xE000]
    rows = [[str(ord(c)), c] for c in characters]
    columns = {"i": "int", "c": "varchar(40)"}
    place.put(columns, rows)
    policy = a_policy(tmp_path, [texts("x")])
    with opened(place.there(policy), tmp_path) as source:
        for name in ("lower", "upper"):
            sql = source.expression(f"{name}(c)")
            guard = re.search(r"CASE WHEN (.* REGEXP '(?:[^']|'')*') THEN", sql)
            assert guard
            plain = f"CASE WHEN NOT {guard[1]} THEN {name}(c) END"
            sql = f"SELECT c, {plain} FROM {source.records} AS r"
            found = dict(place.rows(source, sql))
            source.local.execute("CREATE OR REPLACE TABLE c AS SELECT unnest(?) AS c", [characters])
            known = dict(source.local.execute(f"SELECT c, {name}(c) FROM c").fetchall())
            assert [c for c, got in found.items() if got not in (None, known[c])] == []
            assert sum(got is None for got in found.values()) < 4000
