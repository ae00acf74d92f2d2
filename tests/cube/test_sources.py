"""Where records come from, what a policy may compute from them, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import duckdb
import pytest
from msgspec.structs import replace

from proxy.cube import build, faults, fingerprint
from proxy.cube.sources.duckdb import FileSource
from proxy.domain import Attribute
from proxy.errors import Error, PolicyError, SourceError
from proxy.policy import Policy, Unit, load
from tests.cube.making import (
    ROW,
    a_policy,
    built,
    cells,
    money,
    texts,
    write,
)

SELECT = "SELECT unnest(['x','y','x', NULL]) AS a, unnest([1, 2, 3, 4]) AS k"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A DuckDB database with two tables and two views; folder/other.csv is no part of it."""
    (tmp_path / "other.csv").write_text("a,k\nx,1\n")
    with duckdb.connect(str(tmp_path / "data.duckdb")) as connection:
        connection.execute(f"CREATE TABLE Visits AS {SELECT}")
        connection.execute("CREATE SCHEMA s")
        connection.execute('CREATE TABLE s."odd ""name" AS SELECT 1 AS k, \'p\' AS p')
        connection.execute("CREATE VIEW joined AS SELECT * FROM visits JOIN visits AS v USING (k)")
        connection.execute("CREATE VIEW far AS SELECT * FROM read_csv('{tmp_path}/other.csv')"
                           .replace("{tmp_path}", str(tmp_path)))  # fmt: skip
        connection.execute("CREATE MACRO mine(x) AS x || 'x'")
    return tmp_path


def from_database(folder: Path, unit: Unit = ROW, **source: Any) -> Policy:
    return a_policy(folder, [texts("x", "y")], path="data.duckdb", unit=unit, **source)


@pytest.mark.slow
def test_csv_gz_parquet_and_tables_give_one_cube(database: Path) -> None:
    """The same rows in every form of source give the same cells."""
    rows = "a,k\nx,1\ny,2\nx,3\n,4\n"
    (database / "data.csv").write_text(rows)
    (database / "data.csv.gz").write_bytes(gzip.compress(rows.encode()))
    (database / "windows.csv").write_bytes(b"\xef\xbb\xbf" + rows.replace("\n", "\r\n").encode())
    (database / "data [1].csv").write_text(rows.replace(",", ";"))
    write(database / "data.parquet", SELECT)
    for path in ("data.csv", "data.csv.gz", "windows.csv", "data [1].csv", "data.parquet"):
        assert cells(a_policy(database, [texts("x", "y")], path=path)) == {(0,): (2,), (1,): (1,)}
    for table in ("visits", "Visits", "main.visits"):
        assert cells(from_database(database, table=table)) == {(0,): (2,), (1,): (1,)}
    odd = a_policy(database, [texts("p", source="p")], path="data.duckdb", table='s.odd "name')
    assert cells(odd) == {(0,): (1,)}


@pytest.mark.parametrize(
    "query, expected",
    [
        ("SELECT a FROM visits WHERE k > 1", {(0,): (1,), (1,): (1,)}),
        ("SELECT * FROM main.visits v WHERE v.k IN (1, 4) -- first", {(0,): (1,)}),
        ("FROM visits;", {(0,): (2,), (1,): (1,)}),
        ("SELECT a FROM (SELECT * FROM visits) AS v WHERE k > 1", {(0,): (1,), (1,): (1,)}),
        ("SELECT lower(CASE WHEN k % 2 = 0 THEN 'X' ELSE a END) AS a FROM visits",
         {(0,): (4,)}),
        ("SELECT * EXCLUDE (a) REPLACE (k + 1 AS k), split_part(a || ',y', ',', 2) AS a"
         " FROM visits", {(1,): (3,)}),
    ],
)  # fmt: skip
def test_a_query_filters_and_computes_row_by_row(
    database: Path, query: str, expected: dict[Any, Any]
) -> None:
    """Its rows are the records; text after -- is no part of it."""
    assert cells(from_database(database, query=query)) == expected


def test_a_query_of_a_file_calls_it_source(tmp_path: Path) -> None:
    """FROM source is the file's table; its columns are text, to be cast."""
    (tmp_path / "data.csv").write_text("a,k\nx,1\ny,10\n")
    query = "SELECT a FROM source WHERE CAST(k AS INTEGER) > 9"
    assert cells(a_policy(tmp_path, [texts("x", "y")], query=query)) == {(1,): (1,)}


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a FROM visits LIMIT 1", "SELECT DISTINCT a FROM visits",
        "SELECT a FROM visits ORDER BY k", "SELECT max(a) AS a FROM visits",
        "SELECT a FROM visits GROUP BY a", "SELECT a FROM visits GROUP BY ALL",
        "SELECT a FROM visits HAVING true", "SELECT first(a) OVER () AS a FROM visits",
        "SELECT a FROM visits QUALIFY row_number() OVER () = 1",
        "SELECT a FROM visits, visits AS w", "SELECT a FROM visits JOIN visits AS w USING (k)",
        "SELECT (SELECT a FROM visits LIMIT 1) AS a FROM visits",
        "SELECT a FROM visits WHERE k = (SELECT max(k) FROM visits)",
        "SELECT a FROM visits WHERE k IN (SELECT 1)", "SELECT a FROM visits WHERE random() < 0.5",
        "SELECT a FROM visits WHERE now() > '2020-01-01'", "SELECT a FROM visits TABLESAMPLE 50%",
        "SELECT a FROM visits USING SAMPLE 1", "WITH v AS (FROM visits) SELECT a FROM v",
        "SELECT a FROM visits UNION ALL SELECT a FROM visits",
        "SELECT unnest([a, a]) AS a FROM visits",
        "SELECT a FROM read_csv('other.csv')", "VALUES ('x')", "SELECT 'x' AS a",
        "SELECT a FROM visits; SELECT a FROM visits", "SELECT mine(a) AS a FROM visits",
        "SELECT COLUMNS('a') FROM visits", "SELECT uuid() AS a FROM visits",
        "SELECT nextval('s') AS a FROM visits", "DELETE FROM visits", "SELECT a FROM", "",
        "SELECT list_transform([a], lambda x: x)[1] AS a FROM visits", "SELECT $1 AS a FROM visits",
        "SELECT age(DATE '2020-01-01')::VARCHAR AS a FROM visits", "SELECT #1 AS a FROM visits",
        "SELECT a FROM visits POSITIONAL JOIN visits AS w",
        "SELECT getvariable('x') AS a FROM visits",
        "SELECT list_sum([k])::VARCHAR AS a FROM visits",
        "SELECT GROUPING(a) AS a FROM visits",
    ],
)  # fmt: skip
def test_a_query_that_is_not_row_by_row_is_refused(database: Path, query: str) -> None:
    """What lets one record become several, or none because of others, is the policy's error."""
    with pytest.raises(PolicyError, match=r"source\.query"):
        built(from_database(database, query=query))


@pytest.mark.parametrize(
    "expression",
    ["count(*)", "a) , (k", "a) FROM visits WHERE (true", "(SELECT a FROM visits)", "random()",
     "row_number() OVER ()", "a; SELECT 1", "mine(a)", "*", "", "a AND"],
)  # fmt: skip
def test_an_expression_is_a_value_of_one_record(database: Path, expression: str) -> None:
    """Anything else in an attribute or a measure is the policy's error, and the key is named."""
    policy = a_policy(database, [texts("x", source=expression)], path="data.duckdb", table="visits")
    with pytest.raises(PolicyError, match=r"^attributes\.a: "):
        built(policy)
    measure = money(0, 9, "1", source=expression)
    policy = a_policy(database, [texts("x")], [measure], path="data.duckdb", table="visits")
    with pytest.raises(PolicyError, match=r"^measures\.m: "):
        built(policy)


def test_an_expression_computes_a_value(database: Path) -> None:
    """Built-in functions of a record's own columns are allowed, comments and CASE too."""
    source = "CASE WHEN k > 2 THEN 'y' ELSE upper(a) END -- as it was"
    policy = a_policy(
        database, [texts("X", "Y", "y", source=source)], [money(0, 9, "1", source="k * 2 + 1")],
        path="data.duckdb", table="visits",
    )  # fmt: skip
    assert cells(policy) == {(0,): (1, 3), (1,): (1, 5), (2,): (2, 16)}


def test_a_column_of_any_name_means_the_column(tmp_path: Path) -> None:
    """A source whose columns are called as our own ones are is read all the same."""
    names = ["e1", "e0", "unit", "mix", "k0", "n", "c0", "a record", "cells"]
    row = ", ".join(f'{i} AS "{column}"' for i, column in enumerate(names))
    write(tmp_path / "data.parquet", f"SELECT {row}")
    numbers = tuple(range(9))
    axes = [Attribute(f"a{i}", "integer", numbers, source=f'"{names[i]}"') for i in numbers]
    for unit in (ROW, Unit("unit", 1)):
        policy = a_policy(tmp_path, axes, path="data.parquet", unit=unit)
        assert cells(policy) == {numbers: (1,)}


@pytest.mark.slow
def test_a_unit_allows_joins_and_views(database: Path) -> None:
    """Rows of a unit are bounded after the join, so tables may be joined; windows still not."""
    unit = Unit("k", 1)
    query = 'SELECT v.a, k FROM visits AS v JOIN s."odd ""name" USING (k)'
    assert cells(from_database(database, unit, query=query)) == {(0,): (1,)}
    assert cells(from_database(database, unit, table="joined")) == {(0,): (2,), (1,): (1,)}
    for query in (
        "SELECT * FROM visits LIMIT 1", "SELECT count(*) AS k FROM visits",
        "SELECT v.a, v.k FROM visits AS v POSITIONAL JOIN visits AS w",
        "SELECT v.a, v.k FROM visits AS v ASOF JOIN visits AS w ON v.k >= w.k",
    ):  # fmt: skip
        with pytest.raises(PolicyError):
            built(from_database(database, unit, query=query))


def test_a_view_needs_a_unit(database: Path) -> None:
    """A view may join or aggregate, so without a unit it is no table of the source."""
    for source in ({"table": "joined"}, {"query": "SELECT * FROM joined"}):
        with pytest.raises(PolicyError, match="view, which is read only where the privacy unit is"):
            built(from_database(database, **source))


def test_only_the_source_is_read(database: Path) -> None:
    """Neither a view of the source nor a query reaches another file."""
    with pytest.raises(Error) as caught:
        built(from_database(database, Unit("k", 1), table="far"))
    assert str(database / "other.csv") not in str(caught.value)
    for query in (f"SELECT a FROM '{database}/other.csv'", "SELECT * FROM duckdb_settings"):
        policy = from_database(database, query=query)
        with pytest.raises(SourceError, match="the source has no table"):
            built(policy)
        (fault,) = faults(policy, {})
        assert str(fault).startswith("source.query: the source has no table")
    (fault,) = faults(from_database(database, table="nothing"), {})
    assert str(fault).startswith("source: the source has no table")


def test_macros_cannot_take_the_place_of_functions(tmp_path: Path) -> None:
    """A database that redefines trim() would change what values mean."""
    with duckdb.connect(str(tmp_path / "data.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS SELECT 'x' AS a")
        connection.execute("CREATE MACRO trim(x, y) AS 'x'")
    with pytest.raises(SourceError, match="hides a function"):
        built(from_database(tmp_path, table="t"))


def test_an_unknown_column_is_named_with_its_neighbours(tmp_path: Path) -> None:
    """The message has the name that was asked for and near names of the source."""
    (tmp_path / "data.csv").write_text("region,k\nx,1\n")
    for axis in (Attribute("regoin", "text", ("x",)), texts("x", source='lower("regoin")')):
        with pytest.raises(SourceError, match=r'no column "regoin", did you mean region\?'):
            built(a_policy(tmp_path, [axis]))
    with pytest.raises(SourceError, match=r'unit\.column: the source has no column "person"'):
        built(a_policy(tmp_path, [texts("x", source="region")], unit=Unit("person", 1)))
    with pytest.raises(SourceError, match=r'source\.query: the source has no column "kk"'):
        built(a_policy(tmp_path, [texts("x")], query="SELECT kk AS a FROM source"))


def test_columns_of_a_csv_that_have_no_name_or_one_name_are_told_apart(tmp_path: Path) -> None:
    """By their place, or numbered; no name means two columns."""
    (tmp_path / "data.csv").write_text(",a,b,A\nx,y,z,y\n")
    for column in ("column0", "a_1", "b", "A_2"):
        assert cells(a_policy(tmp_path, [texts("x", "y", "z", source=f'"{column}"')]))
    with pytest.raises(SourceError, match='no column "a"'):
        built(a_policy(tmp_path, [texts("x", source="a")]))


@pytest.mark.parametrize(
    "content, said",
    [
        (b"", "is empty"), (b"a,a,a_1\n1,2,3\n", "twice"),
        (b'a,"b\n"\r\nsecret,2\r\n', "line break"),
        (b"a,b\nsecret\n", "cannot be read to its end"),
        (b"a,b\nsecret,2,3\n", "cannot be read to its end"),
        (b'a,b\n"secret,2\n', "cannot be read to its end"),
        (b"a,b\n\xffsecret,2\n", "UTF-8"), (b"a,b\nx,2\n" * 9000 + b"\xffsecret,2\n", "UTF-8"),
        (gzip.compress(b"a,b\nx,secret\n" * 9000, mtime=0)[:100], "damaged"),
        (b"\x1f\x8bnot gzip", "damaged"), (b"PAR1 not parquet", "damaged"),
        (b"01234567DUCK not a database", "damaged"),
    ],
)  # fmt: skip
def test_a_malformed_source_is_refused_without_its_content(
    tmp_path: Path, content: bytes, said: str
) -> None:
    """A source error says what is wrong with the file, never what is in it."""
    (tmp_path / "data.csv").write_bytes(content)
    with pytest.raises(SourceError, match=said) as caught:
        built(a_policy(tmp_path, [texts("x")]))
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__cause__ is None


def test_a_missing_source_is_named(tmp_path: Path) -> None:
    """No file, a folder, an engine that is not there, a table that is not there."""
    with pytest.raises(SourceError, match=r"nothing\.csv does not exist"):
        built(a_policy(tmp_path, [texts("x")], path="nothing.csv"))
    with pytest.raises(SourceError, match="cannot be read: Is a directory"):
        built(a_policy(tmp_path, [texts("x")], path="."))


def test_a_failing_expression_does_not_show_the_value(tmp_path: Path) -> None:
    """A conversion error of DuckDB quotes the value; ours does not."""
    (tmp_path / "data.csv").write_text("a\n12\nsecret\n")
    axis = Attribute("a", "integer", (12,), source="CAST(a AS INTEGER)")
    with pytest.raises(SourceError, match="fails on some record") as caught:
        built(a_policy(tmp_path, [axis]))
    assert "secret" not in str(caught.value)
    lines = {"attributes.a": 7, "attributes.a.expression": 8}
    with pytest.raises(SourceError, match=r"policy\.yaml: attributes\.a\.expression \(line 8\) f"):
        built(replace(a_policy(tmp_path, [axis]), lines=lines))
    lines["measures.m.expression"] = 9
    with pytest.raises(SourceError, match=r"one of att.+ \(line 8\), measures\.m.+ \(line 9\) f"):
        built(replace(a_policy(tmp_path, [axis]), lines=lines))
    with pytest.raises(PolicyError, match=r"attributes\.a: operator does not exist: text \+ date"):
        built(a_policy(tmp_path, [texts("x", source="a + DATE '2020-01-01'")]))


def test_the_fingerprint_is_keyed_and_follows_the_content(database: Path) -> None:
    """Another key or content gives another fingerprint; the order of a table's rows does not."""
    (database / "data.csv").write_text("a\nx\n")
    policy = a_policy(database, [texts("x")])
    first = fingerprint(policy, b"key")
    assert first == fingerprint(policy, b"key") != fingerprint(policy, b"other")
    (database / "data.csv").write_text("a\ny\n")
    assert fingerprint(policy, b"key") != first
    table = from_database(database, table="visits")
    first = fingerprint(table, b"key")
    with duckdb.connect(str(database / "data.duckdb")) as connection:
        connection.execute("CREATE OR REPLACE TABLE visits AS FROM visits ORDER BY k DESC")
    assert fingerprint(table, b"key") == first
    with duckdb.connect(str(database / "data.duckdb")) as connection:
        connection.execute("INSERT INTO visits VALUES ('x', 1)")
    assert fingerprint(table, b"key") != first


def test_a_pattern_is_all_the_files_that_it_finds(tmp_path: Path) -> None:
    """Of each kind, also in folders whose names are columns; what comes later is another source."""
    for year, rows in ((2023, "x\nx\n"), (2024, "y\n")):
        folder = tmp_path / f"d/year={year}"
        folder.mkdir(parents=True)
        (folder / "part.csv").write_text(f"a\n{rows}")
        with gzip.open(folder / "part.csv.gz", "wt") as file:
            file.write(f"a\n{rows}")
        letters = ", ".join(f"'{row}'" for row in rows.split())
        write(folder / "part.parquet", f"SELECT unnest([{letters}]) AS a")
    axes = [texts("x", "y"), Attribute("year", "integer", (2023, 2024))]
    for suffix in ("csv", "csv.gz", "parquet"):
        policy = a_policy(tmp_path, axes, path=f"d/**/*.{suffix}")
        assert cells(policy) == {(0, 0): (2,), (1, 1): (1,)}
        before = fingerprint(policy, b"key")
        assert before == fingerprint(policy, b"key")
        one = tmp_path / "d/year=2024"
        (tmp_path / "d/year=2023/more").mkdir(exist_ok=True)
        (tmp_path / f"d/year=2023/more/part.{suffix}").write_bytes(
            (one / f"part.{suffix}").read_bytes()
        )
        assert fingerprint(policy, b"key") != before
        assert cells(policy) == {(0, 0): (2,), (1, 0): (1,), (1, 1): (1,)}


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet"])
def test_a_file_of_several_names_is_read_once(tmp_path: Path, suffix: str) -> None:
    """Links, hard ones too, to files and to folders, whose names are not the records' columns."""
    folder = tmp_path / "d/year=2023"
    folder.mkdir(parents=True)
    made = folder / f"part.{suffix}"
    if suffix == "parquet":
        write(made, "SELECT 'x' AS a")
    else:
        made.write_bytes(gzip.compress(b"a\nx\n") if suffix == "csv.gz" else b"a\nx\n")
    (folder / f"last.{suffix}").symlink_to(made.name)
    (folder / f"old.{suffix}").hardlink_to(made)
    (tmp_path / "d/year=2022").symlink_to("year=2023")
    axes = [texts("x"), Attribute("year", "integer", (2022, 2023))]
    policy = a_policy(tmp_path, axes, path=f"d/*/*.{suffix}")
    assert cells(policy) == {(0, 1): (1,)}


def test_files_that_do_not_go_together_are_refused(tmp_path: Path, database: Path) -> None:
    """None at all, of two kinds, databases, or CSVs whose first lines differ."""
    folder = tmp_path / "e"
    folder.mkdir()

    def said(path: str) -> str:
        with pytest.raises(SourceError) as caught:
            built(a_policy(tmp_path, [texts("x")], path=path))
        return caught.value.message

    assert said("e/*.csv").startswith("no file is like")
    (folder / "1.csv").write_text("a,b\nx,1\n")
    (folder / "2.csv").write_text("b,a\n1,x\n")
    assert "first lines of 1.csv and 2.csv are not alike" in said("e/*.csv")
    write(folder / "2.csv", "SELECT 'x' AS a")
    assert "several kinds" in said("e/*.csv")
    assert "several kinds" in said("*.duckdb")


def test_a_column_that_older_files_lack_is_null_there(tmp_path: Path) -> None:
    """Parquet files are put together by name."""
    write(tmp_path / "1.parquet", "SELECT 'x' AS a")
    write(tmp_path / "2.parquet", "SELECT 7 AS k, 'x' AS a")
    k = Attribute("k", "integer", (7,), nulls="group")
    policy = a_policy(tmp_path, [texts("x"), k], path="*.parquet")
    assert cells(policy) == {(0, 0): (1,), (0, 1): (1,)}


def test_a_file_that_comes_while_others_are_read_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cube would lack it, and its fingerprint would not say so."""
    (tmp_path / "1.csv").write_text("a\nx\n")
    group = FileSource.group

    def slow(source: FileSource, *of: Any) -> None:
        group(source, *of)
        (tmp_path / "2.csv").write_text("a\ny\n")

    monkeypatch.setattr(FileSource, "group", slow)
    with pytest.raises(SourceError, match="changed while it was read"):
        built(a_policy(tmp_path, [texts("x", "y")], path="*.csv"))


@pytest.mark.parametrize(
    "kind, log",
    [
        ("Delta", "_delta_log/00000000000000000000.json"),
        ("Iceberg", "metadata/00001-5a3d.metadata.json"),
        ("Hudi", ".hoodie/hoodie.properties"),
    ],
)
def test_tables_with_a_log_are_not_read_as_files(kind: str, log: str, tmp_path: Path) -> None:
    """By whatever path, since files count that the log has removed; what lies beside is read."""
    table = tmp_path / "lake/orders"
    part = table / "data/day=1/part-0.parquet"
    for file in (part, table / log, tmp_path / "lake/other.parquet", table / "notes.csv"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    write(part, "SELECT unnest(['x', 'x']) AS a")
    write(tmp_path / "lake/other.parquet", "SELECT 'x' AS a")
    (table / "notes.csv").write_text("a\nx\n")
    (tmp_path / "link").symlink_to(part.parent)
    (tmp_path / "copy.parquet").symlink_to(part)
    (tmp_path / "orders.parquet").symlink_to(table)
    for path in (
        "lake/orders/**/*.parquet", "lake/orders/data/day=1/part-0.parquet", "lake/*/*/*/*.parquet",
        "lake/**/*.parquet", "link/*.parquet", "link/part-0.parquet", "copy.parquet",
        "orders.parquet", "lake/../lake/orders/data/*/*.parquet",
    ):  # fmt: skip
        with pytest.raises(SourceError, match=f"is a table of {kind}, whose log") as caught:
            built(a_policy(tmp_path, [texts("x")], path=path))
        assert "outside of its folder" in str(caught.value.hint)
    for path in ("lake/*.parquet", "lake/orders/notes.csv"):
        assert cells(a_policy(tmp_path, [texts("x")], path=path)) == {(0,): (1,)}
    policy = tmp_path / "orders.yaml"
    policy.write_text(
        "dataset: orders\nsource: {engine: duckdb, path: lake/orders}\nmax_records: 9\n"
        "outside: drop\nnulls: drop\nattributes: {a: {values: [x]}}\n"
        "privacy: {budget: 1, unit: row}\n"
    )
    with pytest.raises(PolicyError, match=f"is a table of {kind}, whose log") as wrong:
        load(policy)
    assert (wrong.value.key, wrong.value.line) == ("source.path", 2)


def test_a_log_that_comes_while_files_are_read_is_seen(tmp_path: Path) -> None:
    """A build that has begun ends in the refusal."""
    write(tmp_path / "part.parquet", "SELECT 'x' AS a")
    policy = a_policy(tmp_path, [texts("x")], path="*.parquet")

    def progress(_: float) -> None:
        (tmp_path / "_delta_log").mkdir(exist_ok=True)

    with pytest.raises(SourceError, match="is a table of Delta"):
        build(policy, tmp_path / "cube", "ledger", progress)
    assert not (tmp_path / "cube").exists()
