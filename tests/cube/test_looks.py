"""What a steward is told of values that are not read: how they look, and never what they are."""

import json

import pytest

from proxy.cli import run
from proxy.cube import survey
from proxy.cube.sources.looks import TYPE
from proxy.policy import load
from proxy.steward.prices import prices
from tests.cube.making import a_policy, texts, write
from tests.small import PRIVACY

NUMBERS = [
    ("1,234", "a thousands separator"),
    ("-1'234'567.50", "a thousands separator"),
    ("1 234,5", "a thousands separator and another decimal sign"),
    ("1.234.567", "points between thousands"),
    ("12,5", "a decimal comma"),
    ("$ 12.50", "a currency sign"),
    ("1,234€", "a currency sign"),
    ("12 USD", "a currency sign"),
    ("12.5%", "a per cent sign"),
    ("(1,234)", "brackets around a number"),
    ("12-", "a sign behind the number"),
    ("N/A", "a word for what is missing"),
    (".", "a word for what is missing"),
    ("<5", "a bound or a span"),
    ("20-29", "a bound or a span"),
    ("90+", "a bound or a span"),
    ("12 kg", "a number with a unit"),
    ("12/31/2020", "a date"),
    ("a dozen", "another text"),
]
DATES = [
    ("31.12.2020", "day or month first"),
    ("1/2/20 10:00", "day or month first"),
    ("2020/12/31", "year first, without hyphens"),
    ("2020-1-5", "a month or a day in one digit"),
    ("3 March 2020", "the name of a month"),
    ("Mar 3, 2020", "the name of a month"),
    ("20201231", "eight digits"),
    ("2020", "a year, or a month, alone"),
    ("1577836800.5", "a number"),
    ("unknown", "a word for what is missing"),
    ("long ago", "another text"),
]
TOWNS = [
    (" Ulm", "a value of the list in another case, or with blanks around it"),
    ("BONN", "a value of the list in another case, or with blanks around it"),
]
AXES = {
    "number": "{type: decimal, edges: [0, 1, 2]}",
    "day": "{from: 2020-01-01, to: 2020-12-31, bin: month}",
    "town": "{values: [Ulm, Bonn]}",
}
POLICY = """\
dataset: people
source: {{engine: duckdb, path: people.csv}}
max_records: 1000
outside: drop
nulls: drop
attributes:
  c: {}
"""


def surveyed(folder, axis, values, measures=""):
    """Return what is told of a column of values; each is there twice."""
    lines = ['"' + value.replace('"', '""') + '"' for value in values for _ in range(2)]
    (folder / "people.csv").write_text("\n".join(["c", *lines]) + "\n")
    policy = folder / "people.yaml"
    policy.write_text(POLICY.format(axis) + measures + PRIVACY)
    return policy, survey(load(policy))


@pytest.mark.parametrize(
    "axis, value, kind",
    [
        (axis, *each)
        for axis, cases in (("number", NUMBERS), ("day", DATES), ("town", TOWNS))
        for each in cases
    ],
)
def test_the_look_of_a_value_is_told(tmp_path, axis, value, kind):
    """
    Blanks around it are no look.
    """
    _, report = surveyed(tmp_path, AXES[axis], [value, f" {value} "])
    assert [(look.column, look.kind, look.records) for look in report.looks] == [("c", kind, 4)]


def test_measures_have_looks_as_columns_of_numbers_have(tmp_path):
    """
    Of values that are read, NULL included, none is told.
    """
    measures = "measures: {m: {clip: [0, 9], quantum: 1, column: c, nulls: group}}\n"
    values = [value for value, _ in NUMBERS] + ["5", "", "2020-01-01"]
    _, report = surveyed(tmp_path, "{values: [x], outside: group}", values, measures)
    assert {look.column for look in report.looks} == {"m"}
    assert sum(look.records for look in report.looks) == 2 * (len(NUMBERS) + 1)
    assert sum(look.records for look in report.looks) == report.measures[0].unreadable


@pytest.mark.slow
def test_a_type_that_is_not_read_as_text_is_what_is_said(tmp_path):
    """
    Of a list of texts, too, of which no value is compared.
    """
    write(tmp_path / "data.parquet", "SELECT unnest([INTERVAL 1 DAY, INTERVAL 2 DAY]) AS a")
    report = survey(a_policy(tmp_path, [texts("1 day")], path="data.parquet"))
    assert report.attributes[0].unreadable == 2
    assert [(look.kind, look.records) for look in report.looks] == [(TYPE, 2)]


def test_check_and_init_tell_the_looks_and_no_value(tmp_path, capsys):
    """
    `init` warns where more than one in a hundred cannot be read, and of nothing less.
    """
    policy, _ = surveyed(tmp_path, AXES["number"], ["0.5"] * 98 + ["1,234", "secret 99"])
    assert run(["check", str(policy)]) == 0
    told = capsys.readouterr().out
    assert "c: 4 (2.0%) cannot be read: 2 a thousands separator, 2 another text\n" in told
    assert "for you alone, not for analysts" in told
    assert "secret" not in told
    assert "1,234" not in told
    assert run(["check", str(policy), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["survey"]["looks"][0] == {
        "column": "c", "kind": "a thousands separator", "records": 2,
    }  # fmt: skip
    assert found["survey"]["cells"] == {"all": 2, "empty": 1, "columns": {"c": [2, 1]}}
    assert run(["init", str(policy)]) == 0
    assert "warning: c: 4 (2.0%) cannot be read" in capsys.readouterr().out

    (tmp_path / "more").mkdir()
    policy, _ = surveyed(tmp_path / "more", AXES["number"], ["0.5"] * 199 + ["1,234"])
    assert run(["init", str(policy)]) == 0
    assert "warning" not in capsys.readouterr().out


@pytest.mark.slow
def test_names_of_the_first_line_that_need_a_word_get_it(tmp_path, capsys):
    """
    An index without a name, names with blanks around them, doubled names, and no names at all.
    """
    (tmp_path / "people.csv").write_text(",c, d ,a,A\n0,0.5,1,2,3\n")
    policy = tmp_path / "people.yaml"
    policy.write_text(POLICY.format(AXES["number"]) + PRIVACY)
    assert run(["check", str(policy)]) == 0
    told = capsys.readouterr().out
    assert "column 1 has no name: it is called column0\n" in told
    assert "the name of column 3 has blanks around it: write column: ' d '\n" in told
    assert "another column is called a, too: number 4 is called a_1\n" in told
    assert "another column is called A, too: number 5 is called A_2\n" in told
    for names in (
        "column0: {range: [0, 9]}",
        "d: {range: [0, 9], column: ' d '}",
        "A_2: {range: [0, 9]}",
    ):
        policy.write_text(POLICY.format(AXES["number"]) + f"  {names}\n" + PRIVACY)
        assert run(["check", str(policy)]) == 0
    policy.write_text(POLICY.format(AXES["number"]) + "  d: {range: [0, 9]}\n" + PRIVACY)
    capsys.readouterr()
    assert run(["check", str(policy)]) == 2
    assert "blanks around it" in capsys.readouterr().err


@pytest.mark.parametrize("within", [0.4, 2, 4.9, 5, 20])
def test_a_count_is_five_times_as_near_or_not_priced(tmp_path, within):
    """
    Nearer than one record nobody counts.
    """
    (tmp_path / "people.csv").write_text("c\n1\n")
    policy = tmp_path / "people.yaml"
    utility = f"utility: {{half_width: {within}, delta: 0.1}}\n"
    policy.write_text(POLICY.format(AXES["number"]) + utility + PRIVACY)
    found = {price.question: price.half_width for price in prices(load(policy))}
    assert found.pop("COUNT(*)") == within
    assert list(found.values()) == ([within / 5] if within >= 5 else [])


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["row", "{column: who, max_rows: 3}"])
def test_prices_are_what_the_engine_asks(tmp_path, capsys, unit):
    """
    Of each typical question: `explain` on a new ledger says the same, and as many can be paid.
    """
    (tmp_path / "people.csv").write_text("c,who\n0.5,1\n1.5,2\n")
    policy = tmp_path / "people.yaml"
    policy.write_text(
        POLICY.format(AXES["number"])
        + "measures: {m: {clip: [-5, 9], quantum: 0.5, column: c, utility: {half_width: 500, "
        "delta: 0.1}}}\nutility: {half_width: 20, delta: 0.1}\n"
        f"privacy: {{budget: 1, unit: {unit}, "
        'guards: [{claim: "COUNT(*) BETWEEN 0 AND 1", for_each: [c], confidence: 0.8}]}\n'
    )
    assert run(["check", str(policy), "--json"]) == 0
    priced = json.loads(capsys.readouterr().out)["prices"]
    assert run(["init", str(policy)]) == 0
    assert run(["budget", str(policy), "--json"]) == 0
    capsys.readouterr()
    least = min(1 / (3 if "who" in unit else 1), 0.8047)
    for price in priced:
        question = price["question"].split(",")[0]
        asked = f"SELECT {question} FROM people WITH UTILITY ({price['half_width']}, 0.1)"
        assert run(["explain", str(policy), asked, "--json"]) == 0
        cost = json.loads(capsys.readouterr().out)["rows"][0][3]
        assert price["cost"] == pytest.approx(cost, rel=1e-6)
        assert price["times"] == int(least / cost)
