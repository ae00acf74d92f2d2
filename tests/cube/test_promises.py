"""What a steward promises of a source: tables that have nobody's data, and views that are trusted.

By brute force over random sources: whatever is joined with public tables, the records of one unit
come from its own rows.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest
from msgspec.structs import replace

from proxy.cube import build
from proxy.domain import Attribute
from proxy.errors import Error, PolicyError, SourceError
from proxy.policy import Source, Unit, load, weaker
from proxy.protection import coding, protection
from proxy.sql.source_queries import Table, promised, records
from tests.cube.making import a_policy, cells, texts
from tests.searches import share

PEOPLE = {"visits": ("person", "k"), "homes": ("person", "zone", "k")}
PUBLIC = {"zones": ("zone", "k"), "areas": ("code", "k")}
COLUMNS = PEOPLE | PUBLIC
SOURCE = promised(
    {t: Table(f"src.main.{t}", dict.fromkeys(c, "INTEGER")) for t, c in COLUMNS.items()},
    "public",
    PUBLIC,
    "person",
)
Rows = dict[str, list[tuple[int | None, ...]]]


def a_source(draw: random.Random, names: list[str], depth: int = 0) -> tuple[str, dict[str, str]]:
    """Return an item of FROM, and its columns as they are written: by column, without a table."""
    name = f"x{len(names)}"
    names.append(name)
    if depth < 2 and draw.random() < 0.2:
        return f"({a_query(draw, names, depth + 1)}) AS {name}", {"person": name, "k": name}
    table = draw.choice(list(COLUMNS))
    if draw.random() < 0.15:
        inner = f"SELECT * FROM {table} WHERE k > 1"
        return f"({inner}) AS {name}", dict.fromkeys(COLUMNS[table], name)
    return f"{table} AS {name}", dict.fromkeys(COLUMNS[table], name)


def a_condition(draw: random.Random, left: list[str], right: list[str]) -> str:
    """Return a condition between columns of two sides."""
    people = [c for c in left if c.endswith(".person")], [c for c in right if c.endswith(".person")]
    if all(people) and draw.random() < 0.75:
        parts = [f"{draw.choice(people[0])} = {draw.choice(people[1])}"]
    else:
        sign = draw.choice(("=", "=", "<", "<>", ">="))
        parts = [f"{draw.choice(left)} {sign} {draw.choice(right)}"]
    if draw.random() < 0.3:
        parts.append(draw.choice((f"{draw.choice(left)} > 1", f"{draw.choice(right)} IS NOT NULL")))
    return draw.choice((" AND ", " AND ", " OR ")).join(parts) if draw.random() < 0.9 else "true"


def a_query(draw: random.Random, names: list[str], depth: int = 0) -> str:
    """Return a random SELECT of tables of people and public ones, right or wrong."""
    text, columns = a_source(draw, names, depth)
    known = [f"{name}.{column}" for column, name in columns.items()]
    for _ in range(draw.choice((0, 1, 1, 2))):
        other, columns = a_source(draw, names, depth)
        new = [f"{name}.{column}" for column, name in columns.items()]
        side = draw.choice(("", "", "", "LEFT ", "LEFT ", "RIGHT ", "FULL "))
        if draw.random() < 0.1:
            text += f", {other}"
        elif draw.random() < 0.1:
            text += f" {side}JOIN {other} USING ({draw.choice(('k', 'person', 'zone'))})"
        else:
            text += f" {side}JOIN {other} ON {a_condition(draw, known, new)}"
        known += new
    people = [column for column in known if column.endswith(".person")]
    unit = draw.choice(people) if people and draw.random() < 0.9 else f"{draw.choice(known)}"
    where = f" WHERE {a_condition(draw, known, known)}" if draw.random() < 0.3 else ""
    return f"SELECT {unit} AS person, {draw.choice(known)} AS k FROM {text}{where}"


def some_rows(draw: random.Random, columns: tuple[str, ...]) -> list[tuple[int | None, ...]]:
    """Return four rows of a few values, NULL one of them."""
    return [tuple(draw.choice((1, 2, 3, None)) for _ in columns) for _ in range(4)]


def read(connection: duckdb.DuckDBPyConnection, sql: str, rows: Rows) -> Counter[Any]:
    """Return the records that tables with these rows have, with how many there are of each."""
    for table, listed in rows.items():
        values = ", ".join(str(row).replace("None", "NULL") for row in listed)
        connection.execute(f"DELETE FROM src.{table}")
        if listed:
            connection.execute(f"INSERT INTO src.{table} VALUES {values}")
    found = connection.execute(f"SELECT person, * FROM ({sql})").fetchall()
    return Counter(row for row in found if row[0] is not None)


@pytest.mark.slow
@pytest.mark.parametrize("seed", share(1, range(4)))
def test_joined_with_public_tables_units_stay_apart(seed: int) -> None:
    """Whoever has other rows changes but the own records; those that have nobody are refused."""
    draw, accepted, joined, outer = random.Random(seed), 0, 0, 0
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("ATTACH ':memory:' AS src")
        for table, columns in COLUMNS.items():
            connection.execute(f"CREATE TABLE src.{table} ({' INTEGER, '.join(columns)} INTEGER)")
        for _ in range(300):
            query = a_query(draw, [])
            try:
                made = records(SOURCE, "person", query=query)
            except Error:
                continue
            sql, units = made.sql, made.units
            assert not units.keys() & {f"src.main.{table}" for table in PUBLIC}
            if None in units.values():  # one table, whose unit is computed
                continue
            public = any(f"src.main.{table}" in sql for table in PUBLIC)
            accepted, joined = accepted + 1, joined + public
            outer += public and ("LEFT" in sql or "RIGHT" in sql)
            rows = {table: some_rows(draw, columns) for table, columns in COLUMNS.items()}
            whole = read(connection, sql, rows)
            for who in (1, 2, 3):
                other = dict(rows)
                for table, columns in PEOPLE.items():
                    if unit := units.get(f"src.main.{table}"):
                        at = columns.index(unit)
                        kept = [row for row in rows[table] if row[at] != who]
                        new = [row for row in some_rows(draw, columns) if row[at] == who]
                        other[table] = kept + new
                before, after = (
                    Counter({row: n for row, n in each.items() if row[0] != who})
                    for each in (whole, read(connection, sql, other))
                )
                assert before == after, query
    assert accepted > 60
    assert joined > 30
    assert outer > 10


# --- in files of DuckDB, and in PostgreSQL ---

TABLES = """
CREATE TABLE {0}.visits (person integer, zone text, day integer);
CREATE TABLE {0}.homes (person integer, zone text);
CREATE TABLE {0}.zones (zone text, area text, first integer, last integer);
CREATE VIEW {0}.named AS SELECT zone, area FROM {0}.zones WHERE first > 0;
CREATE VIEW {0}.placed AS SELECT v.person, z.area AS a FROM {0}.visits v
    LEFT JOIN {0}.zones z ON z.zone = v.zone;
CREATE VIEW {0}.most AS SELECT person, max(zone) AS a FROM {0}.visits GROUP BY person;
CREATE VIEW {0}.busy AS SELECT zone AS a FROM {0}.visits GROUP BY zone;
INSERT INTO {0}.visits VALUES (1, 'n', 1), (1, 's', 9), (2, 'n', 5), (3, 'x', 5), (4, NULL, 3);
INSERT INTO {0}.homes VALUES (1, 's'), (2, 's'), (3, 'n');
INSERT INTO {0}.zones VALUES ('n', 'up', 1, 4), ('s', 'down', 1, 9), ('n', 'high', 5, 9),
    ('q', 'far', 1, 9);
"""
JOIN = "SELECT v.person, z.area AS a FROM {0}visits v"
AREAS = ("up", "high", "down", "far", "n", "s", "x", "-")
READ: dict[str, dict[str, int]] = {  # the values of a: how many records, NULL is ""
    JOIN + " JOIN {0}zones z ON z.zone = v.zone": {"up": 2, "high": 2, "down": 1},
    JOIN + " JOIN {0}zones z ON z.zone = v.zone AND v.day BETWEEN z.first AND z.last":
        {"up": 1, "down": 1, "high": 1},
    JOIN + " LEFT JOIN {0}zones z ON z.zone = v.zone AND z.first <= v.day AND z.last >= v.day":
        {"up": 1, "down": 1, "high": 1, "": 2},
    JOIN + ", {0}zones z WHERE z.last < v.day": {"up": 3},
    JOIN + " CROSS JOIN (SELECT area FROM {0}zones WHERE zone = 'q') z": {"far": 5},
    "SELECT person, area AS a FROM {0}zones RIGHT JOIN {0}visits USING (zone)":
        {"up": 2, "high": 2, "down": 1, "": 2},
    "SELECT v.person, z.area AS a FROM {0}visits v JOIN {0}homes h ON h.person = v.person"
    " JOIN {0}zones z ON z.zone = h.zone WHERE z.area <> v.zone": {"down": 3, "up": 1, "high": 1},
    "SELECT h.person, z.area AS a FROM {0}homes h LEFT JOIN ({0}zones z JOIN {0}named n USING"
    " (zone)) ON z.zone = h.zone WHERE n.area <> 'up'": {"down": 2, "up": 1, "high": 1},
    "SELECT person, n.area AS a FROM {0}homes JOIN {0}named n USING (zone)":
        {"down": 2, "up": 1, "high": 1},
    "SELECT person, a FROM {0}placed": {"up": 2, "high": 2, "down": 1, "": 2},
    "SELECT person, a FROM {0}most": {"s": 1, "n": 1, "x": 1, "": 1},
    "SELECT m.person, m.a FROM {0}most m JOIN {0}homes h ON h.person = m.person":
        {"s": 1, "n": 1, "x": 1},
}  # fmt: skip
REFUSED = {
    JOIN + " RIGHT JOIN {0}zones z ON z.zone = v.zone": "keeps rows of a public table",
    JOIN + " FULL JOIN {0}zones z ON z.zone = v.zone": "keeps rows of a public table",
    "SELECT person, z.zone AS a FROM {0}zones z LEFT JOIN {0}visits v ON z.zone = v.zone":
        "keeps rows of a public table",
    "SELECT v.person, h.zone AS a FROM {0}visits v JOIN {0}zones z ON z.zone = v.zone"
    " JOIN {0}homes h ON h.zone = z.zone": "v and h are not joined by equality of person",
    "SELECT v.person, h.zone AS a FROM {0}visits v, {0}homes h LEFT JOIN {0}zones z"
    " ON v.person = h.person": "outer JOIN is not by equality|not joined by equality",
    JOIN + " JOIN {0}zones z ON z.zone = v.zone AND random() < 0.5": "random",
    JOIN + " JOIN {0}zones z ON z.zone = v.zone AND now() > '2020-01-01'": "the clock",
    JOIN + " JOIN {0}zones z ON z.zone = v.zone LIMIT 3": "LIMIT is not row by row",
    "SELECT v.person, first_value(z.area) OVER (ORDER BY z.area) AS a FROM {0}visits v"
    " JOIN {0}zones z ON z.zone = v.zone": "window function",
    "SELECT z.first AS person, z.area AS a FROM {0}visits v JOIN {0}zones z ON z.zone = v.zone":
        "person is not the column person",
    "SELECT first AS person, area AS a FROM {0}zones": "public tables only",
    "SELECT v.person, b.a FROM {0}visits v JOIN {0}busy b ON b.a = v.zone":
        "the view .*busy is not read",
}  # fmt: skip
WHY_NOT = [
    ({"public": ("visits",)}, "visits has the column person"),
    ({"public": ("most",)}, "most has the column person"),
    ({"public": ("regions",)}, 'no table "regions"'),
    ({"trusted": ("homes",)}, "homes is a table, not a view"),
    ({"trusted": ("busy",)}, "the view busy has no column person"),
    ({"public": ("busy",), "trusted": ("busy",)}, "busy is in public, too"),
]


def values(policy: Any) -> dict[str, int]:
    """Return how many records of a new cube have each value of a."""
    named = (*policy.domain.attributes[0].values, "")
    return {str(named[code]): n for (code,), (n,) in cells(policy).items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the tables."""
    made = tmp_path_factory.mktemp("promises")
    with duckdb.connect(str(made / "data.duckdb")) as connection:
        connection.execute(TABLES.format("main"))
    return made


@pytest.fixture(params=share(1, ["duckdb", "postgres"]))
def policy(request: pytest.FixtureRequest, folder: Path, tmp_path: Path) -> Any:
    """Yield a policy over the tables, and what stands before their names."""
    axis = Attribute("a", "text", AREAS, nulls="group")
    made = a_policy(folder, [axis], unit=Unit("person", 9), path="data.duckdb")
    if request.param == "duckdb":
        yield made, "main."
        return
    postgres = request.getfixturevalue("postgres")
    schema = f"s{random.SystemRandom().randrange(10**9)}"
    postgres.connection.execute(f"CREATE SCHEMA {schema}; {TABLES.format(schema)}")
    made = replace(made, source=Source("postgres", dsn=postgres.dsn))
    yield replace(made, path=tmp_path / "policy.yaml"), f"{schema}."
    postgres.connection.execute(f"DROP SCHEMA {schema} CASCADE")


def with_source(policy: Any, schema: str, **keys: Any) -> Any:
    """Return the policy with keys of its source, whose tables are those of the schema."""
    named = {
        key: tuple(f"{schema}{name}" for name in value)
        if isinstance(value, tuple)
        else value.format(schema)
        for key, value in keys.items()
    }
    return replace(policy, source=replace(policy.source, **named))


def test_public_tables_are_joined_by_anything(policy: Any) -> None:
    """The records written beside each query, the same from files and from PostgreSQL."""
    made, schema = policy
    for query, expected in READ.items():
        found = with_source(made, schema, query=query, public=("zones",), trusted=("most",))
        assert values(found) == expected, query
    whole = with_source(made, schema, table="{0}placed", public=("ZONES",))
    assert values(whole) == {"up": 2, "high": 2, "down": 1, "": 2}


def test_what_ties_units_together_stays_refused(policy: Any) -> None:
    """With a public table in it as without; and without the promise, all of them."""
    made, schema = policy
    for query, said in REFUSED.items():
        found = with_source(made, schema, query=query, public=("zones",))
        with pytest.raises(PolicyError, match=said) as caught:
            values(found)
        assert caught.value.key == "source.query"
        assert caught.value.hint
    for query in list(READ)[::3]:
        with pytest.raises(
            PolicyError, match=r"not in source\.public|is not read|outer JOIN is not"
        ):
            values(with_source(made, schema, query=query))


def test_a_promise_that_cannot_be_is_refused(policy: Any) -> None:
    """A public table that has units, a view that has none, what is not there or no view."""
    made, schema = policy
    for keys, said in WHY_NOT:
        named = re.sub(r"(visits|most|regions|homes|busy)", rf"{schema}\1", said)
        with pytest.raises((PolicyError, SourceError), match=named) as caught:
            values(with_source(made, schema, table="{0}visits", **keys))
        assert "source." in str(caught.value)


def test_tables_that_are_not_what_they_seem_are_no_better_for_a_promise(tmp_path: Path) -> None:
    """Values drawn anew, and texts that are equal and differ, in DuckDB."""
    with duckdb.connect(str(tmp_path / "data.duckdb")) as connection:
        connection.execute(TABLES.format("main"))
        connection.execute("CREATE TABLE drawn (zone TEXT, r AS (random()))")
        connection.execute("CREATE TABLE loose (p TEXT COLLATE NOCASE)")
    made = a_policy(
        tmp_path, [texts("1", source="zone")], unit=Unit("person", 9), path="data.duckdb"
    )
    drawn = replace(made.source, table="visits", public=("drawn",))
    with pytest.raises(PolicyError, match="drawn has generated columns"):
        build(replace(made, source=drawn), tmp_path / "cube", "ledger")
    most = replace(made.source, query="SELECT person, a AS zone FROM most", trusted=("most",))
    with pytest.raises(PolicyError, match="most has a collation"):  # which it may have from loose
        build(replace(made, source=most), tmp_path / "cube", "ledger")


POLICY = """\
dataset: visits
source: {{engine: {0}}}
max_records: 100
outside: drop
nulls: drop
attributes: {{zone: {{values: [n, s]}}}}
privacy: {{budget: 1, unit: {1}}}
"""
FILE = "duckdb, path: data.duckdb, table: visits"


def test_a_promise_more_protects_less(tmp_path: Path) -> None:
    """One fewer does not; either is another cell for some records."""
    kept = []
    for keys in ("", ", public: [b, A]", ", public: [a, b]", ", public: [a, b], trusted: [v]"):
        path = tmp_path / "visits.yaml"
        path.write_text(POLICY.format(f"{FILE}{keys}", "{column: person, max_rows: 2}"))
        kept.append(protection(load(path)))
    none, some, same, more = (each.protection for each in kept)
    assert (kept[1].digest, coding(some)) == (kept[2].digest, coding(same))
    assert [sentence.split(":")[0] for sentence in weaker(none, more)] == [
        "source.public has a", "source.public has b", "source.trusted has v",
    ]  # fmt: skip
    assert weaker(more, none) == weaker(some, same) == []
    assert len({coding(each) for each in (none, some, more)}) == 3


@pytest.mark.parametrize(
    "source, unit, key, said",
    [
        (f"{FILE}, public: [zones]", "row", "source.public", "needs a column as privacy.unit"),
        (f"{FILE}, trusted: [most]", "row", "source.trusted", "needs a column as privacy.unit"),
        ("duckdb, path: data.csv, public: [zones]", "{column: person, max_rows: 2}",
         "source.public", "a file is a single table"),
        (f"{FILE}, public: []", "{column: person, max_rows: 2}", "source.public", "at least 1"),
        (f"{FILE}, public: zones", "{column: person, max_rows: 2}", "source.public", "a list"),
    ],
)  # fmt: skip
def test_keys_that_promise_are_checked(
    source: str, unit: str, key: str, said: str, tmp_path: Path
) -> None:
    """With file, line and key."""
    path = tmp_path / "visits.yaml"
    path.write_text(POLICY.format(source, unit))
    with pytest.raises(PolicyError, match=said) as caught:
        load(path)
    assert (caught.value.key, caught.value.line) == (key, 2)
    assert str(path) in str(caught.value)
