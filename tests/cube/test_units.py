"""What one unit's rows can do to another's: a search over random sources, by brute force.

A source that is accepted keeps what it says: without the rows of one unit in all tables, the
records of that unit are gone, and all others are as they were.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path

import duckdb
import pytest

from proxy.errors import Error, PolicyError
from proxy.policy import Unit
from proxy.sql.source_queries import Table, records
from tests.cube.making import a_policy, built, cells, texts
from tests.searches import share

TABLES = {"visits": ("person", "k", "doctor"), "secret": ("person", "k"), "other": ("id", "k")}
NAMES = count()
Rows = Mapping[str, list[tuple[int | None, ...]]]


SOURCE = {
    table: Table(f"src.main.{table}", dict.fromkeys(columns, "INTEGER"))
    for table, columns in TABLES.items()
}


class Grammar:
    """Random SELECTs over the tables, right and wrong ones."""

    def __init__(self, seed: random.Random) -> None:
        self.seed = seed

    def source(self, depth: int = 0) -> tuple[str, str]:
        """Return what FROM may have, and its name."""
        name = f"x{next(NAMES)}"
        if depth < 2 and self.seed.random() < 0.25:
            return f"({self.select(depth + 1)}) AS {name}", name
        table = self.seed.choices(list(TABLES), (4, 4, 1))[0]
        return f"{table} AS {name}", name

    def equality(self, names: list[str]) -> str:
        """Return a condition that may join by the unit."""
        a, b = self.seed.sample(names, 2) if len(names) > 1 else (names[0], names[0])
        if len(names) > 2 and self.seed.random() < 0.3:
            return " AND ".join(f"{names[-1]}.person = {name}.person" for name in names[:-1])
        right = f"{a}.person = {b}.person"
        return self.seed.choices(
            (right, f"({b}.person = {a}.person) AND {a}.k > 1", f"{right} OR {a}.k = 2",
             f"{a}.k = {b}.k", f"{a}.person = {b}.k", f"{a}.person <= {b}.person", "true",
             f"NOT ({a}.person <> {b}.person)", f"{a}.person + 0 = {b}.person",
             f"{a}.person IS NOT DISTINCT FROM {b}.person", f"{a}.person IS NULL"),
            (9, 4, 2, 2, 1, 1, 1, 1, 1, 1, 1),
        )[0]  # fmt: skip

    def select(self, depth: int = 0) -> str:
        """Return a SELECT."""
        text, name = self.source(depth)
        names = [name]
        for _ in range(self.seed.choices((0, 1, 2), (3, 4, 3))[0]):
            other, name = self.source(depth)
            names.append(name)
            join = self.seed.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "JOIN", ","))
            kind = self.seed.random()
            if join == ",":
                text += f", {other}"
            elif kind < 0.25:
                text += f" {join} {other} USING (person)"
            elif kind < 0.3:
                text += f" {join} {other} USING (k)"
            elif kind < 0.32:
                text = f"{text} CROSS JOIN {other}"
            else:
                text += f" {join} {other} ON {self.equality(names)}"
        a = self.seed.choice(names)
        unit = self.seed.choices(
            (f"{a}.person", "person", f"{a}.k AS person", f"{a}.person + 0 AS person",
             f"{a}.doctor AS person", f"{a}.id AS person"), (8, 4, 1, 1, 1, 1),
        )[0]  # fmt: skip
        b = self.seed.choice(names)
        other = self.seed.choice((f"{b}.k", f"{b}.k * 2 AS k", "1 AS k"))
        text = f"SELECT {unit}, {other} FROM {text}"
        if self.seed.random() < 0.5:
            text += f" WHERE {self.equality(names)}"
        extra = ("GROUP BY ALL", "LIMIT 3", "ORDER BY 1", "QUALIFY row_number() OVER () < 3",
                 "AND random() < 1", "UNION ALL SELECT 1, 2", "TABLESAMPLE SYSTEM (50)",
                 "AND k IN (SELECT k FROM secret)",
                 "AND EXISTS (SELECT 1 FROM secret)")  # fmt: skip
        return f"{text} {self.seed.choice(extra)}" if self.seed.random() < 0.1 else text


@pytest.fixture
def source() -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB with empty tables."""
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("ATTACH ':memory:' AS src")
        for table, columns in TABLES.items():
            connection.execute(f"CREATE TABLE src.{table} ({' INTEGER, '.join(columns)} INTEGER)")
        yield connection


def fill(source: duckdb.DuckDBPyConnection, rows: Rows) -> None:
    """Put rows into the tables, instead of those that are there."""
    for table, listed in rows.items():
        values = ", ".join(f"({', '.join(map(str, row))})" for row in listed).replace(
            "None", "NULL"
        )
        source.execute(f"DELETE FROM src.{table}")
        if listed:
            source.execute(f"INSERT INTO src.{table} VALUES {values}")


def read(source: duckdb.DuckDBPyConnection, sql: str) -> Counter[tuple[int | None, ...]]:
    """Return the records of a source that have a unit, with how many there are of each."""
    found = source.execute(f"SELECT person, * FROM ({sql})").fetchall()
    return Counter(row for row in found if row[0] is not None)


def without(rows: Rows, gone: int, units: Mapping[str, str | None]) -> Rows:
    """Return rows of tables without those of one unit."""
    left = dict(rows)
    for table, columns in TABLES.items():
        unit = units.get(f"src.main.{table}")
        if unit is not None:
            at = columns.index(unit)
            left[table] = [row for row in rows[table] if row[at] != gone]
    return left


@pytest.mark.slow
@pytest.mark.parametrize("queries", share(1, [300, 1000]))
def test_a_source_that_is_accepted_keeps_units_apart(
    source: duckdb.DuckDBPyConnection, queries: int
) -> None:
    """Random sources, random rows: whoever leaves takes but the own records along."""
    seed = random.Random(7)
    accepted = joined = refused = 0
    for _ in range(queries):
        query = Grammar(seed).select()
        try:
            made = records(SOURCE, "person", query=query)
        except Error:
            refused += 1
            continue
        sql, units = made.sql, made.units
        if None in units.values():  # one table, whose unit is computed
            continue
        rows = {
            table: [tuple(seed.choice((1, 2, 3, None)) for _ in columns) for _ in range(4)]
            for table, columns in TABLES.items()
        }
        fill(source, rows)
        whole = read(source, sql)
        accepted += 1
        joined += "JOIN" in sql
        for gone in (1, 2, 3):
            fill(source, without(rows, gone, units))
            kept = Counter({row: n for row, n in whole.items() if row[0] != gone})
            assert read(source, sql) == kept, query
    assert accepted > 0.1 * queries
    assert joined > 0.04 * queries
    assert refused > 0.3 * queries


UNIT = Unit("person", 9)
VISITS = "SELECT v.person, v.k FROM visits AS v"
VIEWS = {
    "same": f"{VISITS} LEFT JOIN secret AS s ON v.person = s.person AND s.k > 1 WHERE v.k IN (1)",
    "star": "SELECT * FROM visits JOIN secret USING (person)",
    "nested": "SELECT person, k FROM same WHERE NOT k IS NULL",
    "moved": f"{VISITS} JOIN secret AS s ON s.person < 1000",
    "sampled": "SELECT person, k FROM visits ORDER BY random() LIMIT 10",
    "chosen": "SELECT person, k FROM visits USING SAMPLE 50%",
    "counted": "SELECT person, count(*) AS k FROM visits GROUP BY person",
    "distinct_": "SELECT DISTINCT person, k FROM visits",
    "united": "SELECT person, k FROM visits UNION ALL SELECT person, k FROM secret",
    "member": "SELECT person, k FROM visits WHERE k IN (SELECT k FROM secret)",
    "there": f"{VISITS} WHERE EXISTS (SELECT 1 FROM secret AS s WHERE s.k = v.k)",
    "windowed": "SELECT person, row_number() OVER () AS k FROM visits",
    "far": "SELECT person, k FROM moved",
    "series": "SELECT range AS person, 1 AS k FROM range(5)",
    "recent": "SELECT person, k FROM visits WHERE now() > '2020-01-01'",
    "halved": "SELECT person, k / 2 AS k FROM visits",
    "asof_": f"{VISITS} ASOF JOIN secret AS s ON v.k >= s.k",
    "lateral_": f"{VISITS}, LATERAL (SELECT k FROM secret AS s WHERE s.k = v.k) AS s",
    "renamed(person, k)": "SELECT doctor, k FROM visits",
    "semi_": f"{VISITS} SEMI JOIN secret AS s ON v.k = s.k",
    "positional_": f"{VISITS} POSITIONAL JOIN secret AS s",
    "natural_": "SELECT person, k FROM visits NATURAL JOIN secret",
    "cte": "WITH w AS (SELECT max(k) AS k FROM secret) SELECT person, w.k FROM visits, w",
}
READ = ("same", "star", "nested")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the tables and the views."""
    made = tmp_path_factory.mktemp("database")
    with duckdb.connect(str(made / "data.duckdb")) as connection:
        connection.execute("CREATE TABLE visits AS SELECT 1 AS person, 1 AS k, 1 AS doctor")
        connection.execute("CREATE TABLE secret AS SELECT 1 AS person, 2 AS k, '1' AS name")
        connection.execute("CREATE TABLE other AS SELECT 1 AS id, 1 AS k")
        connection.execute("CREATE TABLE words AS SELECT '1' AS person, 1 AS k")
        connection.execute("CREATE TABLE loose (person VARCHAR COLLATE NOCASE, k INTEGER)")
        connection.execute("CREATE TABLE drawn (person INTEGER, k INTEGER, r AS (random()))")
        for name, query in VIEWS.items():
            connection.execute(f"CREATE VIEW {name} AS {query}")
    return made


@pytest.mark.parametrize("view", share(10, VIEWS))
def test_a_view_is_read_where_it_keeps_units_apart(folder: Path, view: str) -> None:
    """A view is looked through, whatever it is made of; by its name and in a query alike."""
    name = view.split("(")[0]
    for source in (
        {"table": name},
        {"query": f"SELECT person, k FROM {name}"},
        {"query": f"SELECT v.person, v.k FROM visits JOIN {name} AS v USING (person)"},
    ):
        policy = a_policy(
            folder, [texts("1", source="k")], path="data.duckdb", unit=UNIT, **source
        )  # fmt: skip
        if view in READ:
            assert sum(n for (n,) in cells(policy).values()) == 1
        else:
            with pytest.raises(PolicyError, match=r"the view .* is not read") as caught:
                built(policy)
            assert caught.value.hint


@pytest.mark.parametrize(
    "query, people",
    [
        (f"{VISITS} JOIN secret s ON s.person = v.person", 1),
        (f"{VISITS}, secret s WHERE v.k < s.k AND (s.person = v.person)", 1),
        ("SELECT person, k FROM visits JOIN secret USING (person, k)", 0),
        ("SELECT person, v.k FROM visits v FULL JOIN secret USING (person)", 1),
        (f"{VISITS} LEFT JOIN (secret s JOIN visits w USING (person)) ON v.person = s.person", 1),
        (f"{VISITS} JOIN (SELECT id AS person FROM other) o ON o.person = v.person", 1),
        ("SELECT a.person, b.k FROM visits a JOIN visits b ON a.person = b.person", 1),
        ("SELECT k % 10 AS person, k FROM visits", 1),
        ('SELECT V."Person", k FROM (SELECT * EXCLUDE (doctor) FROM VISITS) AS v', 1),
    ],
)  # fmt: skip
def test_a_join_by_equality_of_the_unit_is_read(folder: Path, query: str, people: int) -> None:
    """USING, ON and WHERE may say so, with more beside it; a single table is free in its unit."""
    policy = a_policy(
        folder, [texts("1", "2", source="k")], path="data.duckdb", unit=UNIT, query=query
    )
    assert sum(n for (n,) in cells(policy).values()) == people


@pytest.mark.parametrize(
    "query, said",
    [
        (f"{VISITS} JOIN secret s ON s.person < 1000", "v and s are not joined by equality of"),
        (f"{VISITS} JOIN secret s ON s.person = v.person OR s.k = 1", "v and s are not joined"),
        (f"{VISITS} JOIN secret s ON NOT (s.person = v.person)", "v and s are not joined"),
        (f"{VISITS} JOIN secret s ON s.person = v.doctor", "v and s are not joined"),
        (f"{VISITS} JOIN secret s ON s.person + 0 = v.person", "v and s are not joined"),
        (f"{VISITS} JOIN secret s ON v.person = v.person", "v and s are not joined"),
        (f"{VISITS} JOIN secret s ON v.person = 1 AND s.person = 1", "v and s are not joined"),
        (f"{VISITS} JOIN secret s USING (k)", "v and s are not joined"),
        (f"{VISITS} CROSS JOIN secret s", "v and s are not joined"),
        (f"{VISITS}, secret s", "v and s are not joined"),
        (f"{VISITS} LEFT JOIN secret s ON s.k = v.k WHERE s.person = v.person", "outer JOIN"),
        (f"{VISITS} LEFT JOIN secret s ON true", "outer JOIN"),
        (f"{VISITS} LEFT JOIN secret s ON s.k = v.k LEFT JOIN visits w ON w.person = v.person"
         " AND w.person = s.person", "outer JOIN"),
        (f"{VISITS}, secret s LEFT JOIN visits w ON w.person = v.person", "outer JOIN"),
        (f"{VISITS} JOIN other o ON o.id = v.person", "other has no column person"),
        (f"{VISITS} JOIN words w ON w.person = v.person", "operator does not exist"),
        (f"{VISITS} JOIN words w ON w.person = CAST(v.person AS text)", "v and w are not joined"),
        (f"{VISITS} JOIN words w USING (person)", "person is of two types"),
        (f"{VISITS} NATURAL JOIN secret s", "JOIN is not known here"),
        (f"{VISITS} SEMI JOIN secret s ON v.person = s.person", "JOIN is not known here"),
        ("SELECT v.doctor AS person, v.k FROM visits v JOIN secret s ON v.person = s.person",
         "person is not the column person"),
        ("SELECT v.person, 1 AS k FROM (SELECT doctor AS person FROM visits) w"
         " JOIN visits v ON v.person = w.person", "two privacy units"),
        ("SELECT k AS person, k FROM (SELECT v.person, s.k FROM visits v JOIN secret s"
         " USING (person)) AS j", "person is not the column person"),
        (f"{VISITS} JOIN LATERAL (SELECT * FROM secret s WHERE s.person = v.person) s ON true",
         "FROM takes tables"),
        ("SELECT v.person, s.k FROM visits v,"
         " (SELECT * FROM secret s WHERE s.person = v.person) AS s", "missing FROM-clause entry"),
        ("SELECT person, k FROM visits TABLESAMPLE SYSTEM (10)", "FROM takes tables"),
        ("SELECT person, k FROM visits LIMIT 1", "LIMIT is not row by row"),
        ("SELECT DISTINCT ON (k) person, k FROM visits", "DISTINCT is not row by row"),
        ("SELECT person, k FROM visits ORDER BY k FETCH FIRST 1 ROW ONLY", "not row by row"),
        ("SELECT person, max(k) AS k FROM visits GROUP BY person", "GROUP BY is not row by row"),
        ("SELECT person, max(k) AS k FROM visits", "an aggregate is not a value"),
        ("SELECT person, first_value(k) OVER (PARTITION BY person) AS k FROM visits", "a window"),
        ("SELECT person, k FROM visits WHERE k IN (SELECT k FROM secret)", "a subquery|a list of"),
        ("SELECT person, k FROM visits WHERE k = ANY (SELECT k FROM secret)", "a list of|subquery"),
        ("SELECT person, (SELECT max(k) FROM secret) AS k FROM visits", "a subquery is not"),
        ("SELECT person, k FROM visits UNION SELECT person, k FROM secret", "not one SELECT"),
        ("WITH w AS (SELECT * FROM visits) SELECT person, k FROM w", "WITH is not row by row"),
        ("SELECT person, k FROM read_csv('secret.csv')", "FROM takes tables"),
        ("SELECT person, k FROM range(5) AS r(person, k)", "FROM takes tables"),
        ("SELECT person, k FROM src.main.visits", "schema.table"),
        ("SELECT person, k FROM visits WHERE random() < 0.5", "a random number"),
        ("SELECT person, k FROM visits WHERE current_date > '2020-01-01'", "the clock"),
        ("SELECT person, k FROM visits FOR UPDATE", "FOR UPDATE is not row by row"),
        ("SELECT person, k FROM loose", "a collation"),
        ("SELECT person, k FROM drawn", "generated columns"),
        ("SELECT person, k, k FROM visits", "there twice"),
        ("SELECT person, k + 1 FROM visits", "no name"),
        ("VALUES (1, 2)", "not one SELECT"),
        ("SELECT 1 AS person, 1 AS k", "reads from no table"),
    ],
)  # fmt: skip
def test_a_source_that_mixes_units_is_refused(folder: Path, query: str, said: str) -> None:
    """Whatever is not understood as one unit's is the policy's error, with what to do."""
    policy = a_policy(folder, [texts("1", source="k")], path="data.duckdb", unit=UNIT, query=query)
    with pytest.raises(PolicyError, match=said) as caught:
        built(policy)
    assert caught.value.key == "source.query"


@pytest.mark.parametrize(
    "kinds, said",
    [
        (("BIGINT", "DOUBLE"), "its types differ, BIGINT and DOUBLE"),
        (
            ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE"),
            "its types differ, TIMESTAMP and TIMESTAMP WITH",
        ),
        (("DOUBLE", "DOUBLE"), "equal values of its type, DOUBLE, may be different ones"),
    ],
)
def test_units_of_other_types_are_said_to_be_of_them(
    tmp_path: Path, kinds: tuple[str, str], said: str
) -> None:
    """That a text has them as equal is to be seen; why this is not enough is not."""
    with duckdb.connect(str(tmp_path / "data.duckdb")) as connection:
        for table, kind in zip("vs", kinds, strict=True):
            connection.execute(f"CREATE TABLE {table} (person {kind}, k INTEGER)")
    query = "SELECT v.person, v.k FROM v JOIN s ON s.person = v.person"
    policy = a_policy(tmp_path, [texts("1")], path="data.duckdb", unit=UNIT, query=query)
    with pytest.raises(PolicyError, match=f"not joined by equality of person in both: {said}"):
        built(policy)


def test_a_hint_ends_where_there_is_no_more_to_say() -> None:
    """Of a view that is refused without a hint of its own."""
    tables = {
        "a": Table("a", {"person": "INTEGER"}),
        "v": Table("v", {"person": "INTEGER"}, "SELECT * FROM a AS x JOIN a AS x USING (person)"),
    }
    with pytest.raises(Error, match="the view v is not read") as refused:
        records(tables, "person", table="v")
    assert (refused.value.hint or "").endswith("source.trusted")
