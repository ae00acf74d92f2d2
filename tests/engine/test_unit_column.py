"""The column that says whose a row is: no statement may use it, and where each unit has one row
COUNT of it counts units.

The statements are shapes with every way of writing the column; DuckDB counts the units of the
raw records, of which each is in one cell.
"""

import itertools
from contextlib import closing

import duckdb
import pytest

from proxy import errors
from tests.small import DOMAIN, Small

PUBLIC = """\
public: {towns: {path: towns.csv}, twice: {path: twice.csv}}
"""
NAMES = ("{0}unit", "{0}UNIT", '{0}"unit"', '{0}"UNIT"')
COUNTED = (  # {u} is the column, {d} the dataset under the name of {u}
    "SELECT COUNT(DISTINCT {u}) FROM {d}",
    "SELECT COUNT({u}) FROM {d}",
    "SELECT town, COUNT(DISTINCT ({u})) FROM {d} GROUP BY town",
    "SELECT COUNT(DISTINCT {u}) FILTER (WHERE town = 'a') FROM {d} WHERE age > 1",
    "SELECT age, COUNT(DISTINCT {u}) + 1 FROM {d} GROUP BY age HAVING COUNT(DISTINCT {u}) > 4",
    "WITH w AS (SELECT * FROM {d} WHERE age < 5) SELECT COUNT(DISTINCT unit) FROM w",
    "SELECT COUNT(DISTINCT q.unit) FROM (SELECT * FROM {d} WHERE {n}age > 2) AS q WHERE q.age < 8",
    "SELECT t.size, COUNT(DISTINCT {u}) FROM {d} JOIN towns AS t ON t.name = {n}town GROUP BY 1",
    "SELECT COUNT(DISTINCT {u}) FROM {d} LEFT JOIN towns AS t ON t.name = {n}town",
)
REFUSED = (
    "SELECT {u} FROM {d}",
    "SELECT {u}, age FROM {d} WHERE FALSE",
    "SELECT {u} FROM {d} LIMIT 0",
    "SELECT DISTINCT {u} FROM {d}",
    "SELECT * FROM {d} WHERE {u} = 'u1'",
    "SELECT COUNT(*) FROM {d} WHERE {u} = 'u1' AND age > 3",
    "SELECT COUNT(*) FILTER (WHERE {u} IS NULL) FROM {d}",
    "SELECT COUNT(*) FROM {d} WHERE {u} IN (SELECT name FROM towns)",
    "SELECT COUNT(*) FROM {d} WHERE ({u}, age) IN (('u1', 1))",
    "SELECT COUNT(*) FROM {d} WHERE EXISTS (SELECT 1 FROM towns AS t WHERE t.name = people.unit)",
    "SELECT COUNT(*) FROM {d} WHERE age IN (SELECT age FROM people WHERE unit = 'u1' GROUP BY age)",
    "SELECT COUNT(*) FROM {d} GROUP BY {u}",
    "SELECT town, {u}, COUNT(*) FROM {d} GROUP BY ROLLUP (town, 2)",
    "SELECT town FROM {d} GROUP BY town HAVING MAX({u}) > 'u1'",
    "SELECT town, COUNT(*) FROM {d} GROUP BY town ORDER BY {u}",
    "SELECT SUM({u}) FROM {d}",
    "SELECT AVG(LENGTH({u})) FROM {d}",
    "SELECT MIN({u}), MAX({u}) FROM {d}",
    "SELECT COUNT(DISTINCT LOWER({u})) FROM {d}",
    "SELECT COUNT(DISTINCT p) FROM (SELECT {u} AS p FROM {d}) AS q",
    "SELECT COUNT(*) FROM {d} JOIN towns AS t ON t.name = {u}",
    "SELECT COUNT(DISTINCT {u}) FROM {d} JOIN twice AS t ON t.name = {n}town",
    "SELECT COUNT(DISTINCT {u}) FROM {d}, towns",
    "SELECT COUNT(DISTINCT unit) FROM (SELECT * FROM people UNION ALL SELECT * FROM people) AS q",
    "SELECT q.town FROM (SELECT town, COUNT({u} || 'x') FROM {d} GROUP BY town) AS q",
)
OTHER = (  # the column that they name is not the dataset's
    ("SELECT unit FROM towns", errors.UndefinedColumnError),
    ("SELECT COUNT(DISTINCT t.unit) FROM people JOIN towns t ON t.name = town",
     errors.UndefinedColumnError),
    ("SELECT COUNT(DISTINCT unit) FROM (SELECT age FROM people) AS q", errors.UndefinedColumnError),
    ("SELECT unit FROM (SELECT age, COUNT(*) FROM people GROUP BY age) q",
     errors.UndefinedColumnError),
    ("SELECT COUNT(units) FROM people", errors.UndefinedColumnError),
)  # fmt: skip


def forms(shapes):
    """Yield each shape with three ways of writing the column and the dataset, in turn."""
    tables = (("", "people"), ("people.", "people"), ("p.", "people AS p"))
    ways = itertools.cycle(itertools.product(NAMES, tables))
    for shape in shapes:
        for name, (alias, table) in itertools.islice(ways, 3):
            if "people.unit" not in shape or table == "people":
                yield shape.format(u=name.format(alias), d=table, n=alias)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of people who have all their rows in one cell, and public tables."""
    folder = tmp_path_factory.mktemp("units")
    rows = [f"{n % 10},{'ab'[n % 3 % 2]},u{n}" for n in range(60) for _ in range(n % 4 + 1)]
    (folder / "people.csv").write_text("\n".join(["age,town,unit", *rows]) + "\n")
    (folder / "towns.csv").write_text("name,size\na,1\nb,2\n")
    (folder / "twice.csv").write_text("name,size\na,1\na,2\nb,2\n")
    return folder


@pytest.fixture(scope="module", params=[1, 3])
def engine(request, folder):
    """An engine without noise, of one row for each unit, or of three."""
    privacy = f"privacy: {{budget: 100000, unit: {{column: Unit, max_rows: {request.param}}}}}\n"
    rest = f"state: state{request.param}\n{PUBLIC}"
    with closing(Small(folder).made(privacy, rest, DOMAIN)) as engine:
        yield engine


def refusal(engine, text):
    """Return the error of a statement, which nothing was charged for."""
    before = engine.ledger.sequence()
    with pytest.raises(errors.NotSupportedError) as caught:
        engine.session().execute(text)
    assert engine.ledger.sequence() == before
    return caught.value


def test_where_each_has_one_row_units_are_counted(engine, folder):
    """
    COUNT of the unit's column is what DuckDB counts in the raw records; where units may have
    several rows it is refused, and says what would count them.
    """
    for text in forms(COUNTED):
        if engine.policy.privacy.unit.max_rows > 1:
            error = refusal(engine, text)
            assert "says whose a row is" in error.message
            assert "max_rows: 1" in error.hint
            continue
        with duckdb.connect() as raw:
            raw.execute(f"SET file_search_path = '{folder}'")
            for name in ("people", "towns"):
                raw.execute(f"CREATE VIEW {name} AS FROM '{name}.csv'")
            true = raw.execute(text.replace("COUNT(", "COUNT(DISTINCT ").replace(
                "DISTINCT DISTINCT", "DISTINCT")).fetchall()  # fmt: skip
        mine = engine.session().execute(text).rows
        # the domain lists groups of nobody too
        assert sorted(row for row in map(tuple, mine) if row[-1] != 0) == sorted(
            row for row in true if row[-1] != 0
        ), text


def test_no_statement_uses_the_column_in_another_way(engine):
    """
    However it is named, the refusal says what the column is and what can be asked; never a value.
    """
    for text in forms(REFUSED):
        error = refusal(engine, text)
        assert "says whose a row is" in error.message, text
        assert "COUNT(*)" in error.hint
        assert "unit" in text[error.position - 1 :][:13].lower(), text


@pytest.mark.parametrize("text, kind", OTHER)
def test_where_it_is_not_the_datasets_column_it_does_not_exist(text, kind, engine):
    """
    A column of that name of another table, or of a subquery, is as unknown as any.
    """
    with pytest.raises(kind, match="does not exist"):
        engine.session().execute(text)


def test_a_column_that_is_shown_keeps_its_name(engine):
    """
    An alias, and * of a probe, are as if the column were not there.
    """
    session = engine.session()
    renamed = session.execute("SELECT age AS unit, COUNT(*) FROM people GROUP BY unit").rows
    assert sorted(map(tuple, renamed)) == sorted(
        map(tuple, session.execute("SELECT age, COUNT(*) FROM people GROUP BY age").rows)
    )
    probe = session.execute("SELECT * FROM people WHERE FALSE")
    assert [column.name for column in probe.columns] == ["age", "town"]
