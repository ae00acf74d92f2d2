"""The SQL for warehouses: what sqlglot is given, and that what it writes is what was read."""

from __future__ import annotations

import datetime
import random
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest
import sqlglot
from msgspec.structs import replace
from sqlglot import exp

from proxy.cli import run
from proxy.cube.sources.coded import grouped
from proxy.cube.sources.dialect import Dialect
from proxy.cube.sources.duckdb import FileSource
from proxy.cube.sources.source import opened
from proxy.cube.sources.warehouse import TYPED, WAREHOUSES, _Elsewhere, sql_for
from proxy.domain import Attribute, Domain
from proxy.errors import PolicyError, SourceError
from proxy.policy import Policy, Source, Unit, load
from tests.cube.making import ROOT, a_policy, edges, money, texts, write
from tests.cube.places import here
from tests.cube.test_alike import VALUES, a_case
from tests.searches import share

ZONED = r".*\d{2}(:\d{2})? ?([-+Z]|[A-Za-z]).*|-?[iI]nfinity"
KEPT = Path(__file__).with_name("warehouses")
DAYS = (datetime.date(2021, 3, 14), datetime.date(2021, 3, 15))


LANGUAGES = {"sqlserver": "tsql"}  # as sqlglot calls them


class Unhinting(Dialect):
    """DuckDB's SQL, which does not look at what cannot be read."""

    hints = False


class InTables:
    """The same, without kinds that typed warehouses refuse on nearly every axis."""

    kinds: ClassVar = {
        kind: kind for kind in VALUES if kind not in ("FLOAT", "DOUBLE", "TIMESTAMPTZ")
    }
    without: frozenset[str] = frozenset()


class InFiles:
    """A file of DuckDB, without the values that are known to be read otherwise."""

    kinds: ClassVar = {kind: kind for kind in VALUES if kind not in ("FLOAT", "DOUBLE")}
    without = frozenset(v for v in VALUES["VARCHAR"] if re.fullmatch(ZONED, v))


def small(folder: Path, warehouse: str) -> Policy:
    """Return a policy that has some of everything that a warehouse reads."""
    day = "DATE '2021-03-14'" if warehouse in TYPED else "'2021-03-14'"
    who = "'p1'" if warehouse in TYPED else "1"
    write(folder / "data.parquet",
          f"SELECT {who} AS who, 'a' AS town, 7::DECIMAL(8,2) AS fee, {day} AS day, true AS new"
    )  # fmt: skip
    axes = [
        texts("a", "b's", outside="group", nulls="group"),
        Attribute("day", "date", DAYS, outside="clamp", nulls="drop"),
        Attribute("new", "boolean", (False, True), outside="drop", nulls="group"),
    ]
    axes[0] = replace(axes[0], name="town")
    fees = replace(edges(0, 5, 10, outside="drop"), name="fees", source="fee")
    fee = money(0, 100, "0.25", nulls="group", source="fee")
    return a_policy(folder, [*axes, fees], [fee], unit=Unit("who", 3), path="data.parquet")


@pytest.mark.parametrize("warehouse", WAREHOUSES)
def test_the_sql_is_the_one_that_was_read(tmp_path: Path, warehouse: str) -> None:
    """As it is kept beside the tests, for people; and sqlglot reads what it wrote."""
    written = sql_for(small(tmp_path, warehouse), warehouse)
    assert written == (KEPT / f"{warehouse}.sql").read_text()
    assert written.startswith("-- Untested")
    language = LANGUAGES.get(warehouse, warehouse)
    sqlglot.parse_one(written, read=language, error_level=sqlglot.ErrorLevel.RAISE)


def test_a_steward_can_look_at_it(capsys: pytest.CaptureFixture[str]) -> None:
    """For a policy over a file; of any other source it says what is needed."""
    assert run(["check", "--sql", "bigquery", str(ROOT / "policies/cps1988.yaml")]) == 0
    assert "FROM `cps1988` AS a_record" in capsys.readouterr().out
    policy = load(ROOT / "policies/cps1988.yaml")
    with pytest.raises(PolicyError, match="has another text in each warehouse"):
        sql_for(replace(policy, domain=Domain((texts("x", source="1.5::float8"),))), "bigquery")


def is_text(node: Any) -> bool:
    """Whether a part of what is added says that texts are put together."""
    return node.is_string or isinstance(node, exp.National) or node.name == "NCHAR"


def of_sqlglot(written: str, warehouse: str) -> str:
    """Return the SQL of a warehouse as DuckDB's, by sqlglot alone and names of what it lacks."""

    def back(node: Any) -> Any:
        if isinstance(node, exp.Collate):
            return node.this.transform(back)
        if isinstance(node, exp.Anonymous) and node.name == "COLLATE":
            return node.expressions[0].transform(back)
        if isinstance(node, exp.National):
            return exp.Literal.string(node.name)
        if isinstance(node, exp.Anonymous) and node.name == "NCHAR":
            return exp.Chr(expressions=node.expressions)
        if isinstance(node, exp.Add) and any(map(is_text, node.flatten())):
            left, right = node.left.transform(back), node.right.transform(back)
            return exp.DPipe(this=left, expression=right)
        if isinstance(node, exp.DataType) and node.this in exp.DataType.TEXT_TYPES:
            return exp.DataType.build("VARCHAR")
        if isinstance(node, exp.DataType) and node.this == exp.DataType.Type.BIT:
            return exp.DataType.build("BOOLEAN")
        return node

    tree = sqlglot.parse_one(written, read=LANGUAGES.get(warehouse, warehouse))
    return tree.transform(back).sql(dialect="duckdb")


@pytest.mark.parametrize("warehouse", TYPED)
@pytest.mark.parametrize("seed", share(20, range(80)))
def test_what_is_written_says_the_same(tmp_path: Path, seed: int, warehouse: str) -> None:
    """
    Read by sqlglot as the warehouse's, and run by DuckDB, the text gives the groups of our own
    source, unless it is refused; whatever the types of the columns and the rules.
    """
    place: Any = InTables()
    policy, columns, rows = a_case(random.Random(seed), tmp_path, place)
    here(tmp_path / "data.duckdb", place, columns, rows)
    try:
        written = sql_for(policy, warehouse)
    except (PolicyError, SourceError) as error:
        if "is not written for" in str(error):
            return
        raise
    with opened(policy, tmp_path) as source:
        assert isinstance(source, FileSource)
        source.dialect = Unhinting()
        source.local.execute("CREATE TEMP VIEW data AS FROM src.main.data")
        found = source.local.execute(of_sqlglot(written, warehouse)).fetchall()
        known = source.local.execute(grouped(policy, source)).fetchall()
    assert sorted(found) == sorted(known)


REFUSED = {
    "number": (Attribute("town", "integer", (1, 2)), "what reads a text as another type"),
    "truth": (Attribute("town", "boolean", (False, True)), "what reads a text as another type"),
    "day": (Attribute("town", "date", DAYS), "what reads a text as another type"),
    "zone": (Attribute("at", "date", DAYS), "the time that a TIMESTAMP WITH TIME ZONE is"),
    "text": (Attribute("t", "text", ("a",)), "the text of a TIMESTAMP"),
    "fine": (Attribute("fine", "integer", (1, 2)), "to 9 decimals"),
    "sum": (replace(texts("a"), source="lower(town)"), "an expression"),
}


@pytest.mark.parametrize("warehouse", TYPED)
@pytest.mark.parametrize("what", REFUSED)
def test_what_would_mean_something_else_is_refused(
    tmp_path: Path, what: str, warehouse: str
) -> None:
    """By name, with the column and what to do; of Redshift and SQL Server."""
    axis, why = REFUSED[what]
    write(
        tmp_path / "data.parquet",
        "SELECT 'a' AS town, now() AS at, TIMESTAMP '2021-03-14 00:00:00' AS t,"
        " CAST(1 AS DECIMAL(30, 20)) AS fine",
    )
    with pytest.raises(PolicyError, match=re.escape(why)) as caught:
        sql_for(a_policy(tmp_path, [axis], path="data.parquet"), warehouse)
    assert f"not written for {TYPED[warehouse]}" in str(caught.value)
    assert f"attributes.{axis.name}" in str(caught.value)
    assert "let the file have" in str(caught.value.hint)


@pytest.mark.parametrize("engine", ["sqlalchemy", "postgres"])
def test_it_is_made_from_a_file(tmp_path: Path, engine: str) -> None:
    """Of a database nothing is asked, not even whether it is there."""
    source = Source(engine, dsn="sqlite:///nothing", table="data")
    policy = replace(a_policy(tmp_path, [texts("x")]), source=source)
    with pytest.raises(SourceError, match="is made from a file"):
        sql_for(policy, "snowflake")


def test_sql_server_has_no_bins_past_its_nesting(tmp_path: Path) -> None:
    """Of CASEs it takes ten in one another: more bins than these can tell apart are refused."""
    write(tmp_path / "data.parquet", "SELECT 1 AS a")
    few, many = (
        a_policy(tmp_path, [edges(*range(n + 1))], path="data.parquet") for n in (200, 1000)
    )
    assert "CASE" in sql_for(few, "sqlserver")
    assert "CASE" in sql_for(many, "redshift")
    with pytest.raises(SourceError, match="more than 10 CASEs"):
        sql_for(many, "sqlserver")


def test_texts_are_compared_to_their_last_blank_and_by_case(tmp_path: Path) -> None:
    """In Redshift and SQL Server, which would not; also those of people; letters beyond ASCII."""
    write(tmp_path / "data.parquet", "SELECT 'a' AS a, 'b' AS who")
    policy = a_policy(tmp_path, [texts("a", "é")], unit=Unit("who", 1), path="data.parquet")
    redshift, sqlserver = (" ".join(sql_for(policy, each).split()) for each in TYPED)
    redshift, sqlserver = (
        each.replace("( ", "(").replace(" )", ")") for each in (redshift, sqlserver)
    )
    for value in ('"who"', "CAST(e0 AS VARCHAR(MAX))", "'a'", "'é'"):
        found = f"COLLATE((CAST({value} AS VARCHAR(MAX)) || '|'), 'case_sensitive') AS "
        assert found in redshift
    for value in ("[who]", "CAST(e0 AS NVARCHAR(MAX))", "'a'", "N'é'"):
        found = f"(CAST({value} AS NVARCHAR(MAX)) + '|') COLLATE Latin1_General_100_BIN2 AS "
        assert found in sqlserver
    assert "VARCHAR)" not in redshift + sqlserver


@pytest.mark.parametrize("seed", range(20))
def test_what_sqlglot_gets_says_the_same(tmp_path: Path, seed: int) -> None:
    """Before it is another database's, it is SQL of DuckDB: run there, it gives the same groups."""
    place: Any = InFiles()
    policy, columns, rows = a_case(random.Random(seed), tmp_path, place)
    here(tmp_path / "data.duckdb", place, columns, rows)
    policy = replace(policy, timezone="UTC")
    with opened(policy, tmp_path) as source:
        assert isinstance(source, FileSource)
        plain = _Elsewhere(source, "data", "snowflake")
        plain.records = source.records
        found = source.local.execute(grouped(policy, plain)).fetchall()
        known = source.local.execute(grouped(policy, source)).fetchall()
    assert sorted(found) == sorted(known)
