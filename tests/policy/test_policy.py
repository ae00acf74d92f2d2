"""A right policy becomes exact values; a wrong one is refused with its line, its key and why."""

import datetime
import gzip
import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.domain import Attribute
from proxy.policy import Analyst, Partition, Unit, Utility, describe, json_schema, load
from proxy.policy.axes import next_start, period_start
from proxy.policy.kinds import decimal
from proxy.policy.model import HistorySize
from proxy.protection import protection
from tests.policy.people import GOOD, LIST, axis, changed, partitioned
from tests.policy.test_wrong_policies import WRONG

POLICIES = Path(__file__).parents[2] / "policies"
# --- right policies --------------------------------------------------------------------------


def test_the_survey_of_wages_is_as_designed():
    """
    cps1988: 19 · 7 · 2 · 2 · 4 · 2 cells, wages clipped to 2,000 dollars in cents.
    """
    policy = load(POLICIES / "cps1988.yaml")

    assert policy.domain.sizes == (19, 7, 2, 2, 4, 2)
    assert policy.domain.measures[0].bounds == (0, 200_000)
    assert policy.measure_utility == {"wage": Utility(Fraction(170_000), Fraction(1, 20))}
    assert policy.source.path == POLICIES.parent / "examples" / "cps1988.csv.gz"
    assert policy.source.path.exists()


def test_the_survey_of_health_has_eleven_axes():
    """
    meps1996: eleven attributes, 3,386,880 cells.
    """
    domain = load(POLICIES / "meps1996.yaml").domain

    assert len(domain.attributes) == 11
    assert domain.cells == 3_386_880


@pytest.mark.parametrize("name", ["cps1988", "meps1996"])
def test_the_examples_lie_in_their_domains(name):
    """
    Every field of the example data is in the declared domain: `drop` drops nobody.
    """
    domain = load(POLICIES / f"{name}.yaml").domain
    with gzip.open(POLICIES.parent / "examples" / f"{name}.csv.gz", "rt") as lines:
        header = next(lines).strip().split(",")
        rows = [line.strip().split(",") for line in lines]
    columns = [set(column) for column in zip(*rows, strict=True)]

    for attribute in domain.attributes:
        seen = columns[header.index(attribute.name)]
        if attribute.binned:
            assert attribute.edges[0] <= min(map(int, seen))
            assert max(map(int, seen)) < attribute.edges[-1]
        else:
            assert seen <= {str(value) for value in attribute.values}


def test_numbers_are_exact(policy):
    """
    0.1 is one tenth, not the nearest binary fraction.
    """
    loaded = policy()

    assert loaded.privacy.budget == Fraction(1, 10)
    assert loaded.privacy.cells[0].budget == Fraction(1, 20)
    assert loaded.privacy.per == {"day": Fraction(1, 100), "week": Fraction(1, 20)}
    assert loaded.domain.measures[0].quantum == Fraction(1, 100)
    assert loaded.utility == Utility(Fraction(100), Fraction(1, 20))


def test_what_is_not_said_has_its_default(policy):
    """
    The floor is a ten-thousandth of the budget; whoever is not listed has no cap.
    """
    loaded = policy()

    assert loaded.privacy.floor == Fraction(1, 100_000)
    assert loaded.privacy.history_size == HistorySize(500, 500)
    assert loaded.privacy.unit == Unit(None, 1)
    assert (loaded.privacy.strategy, loaded.privacy.history) == ("topup", "shared")
    assert loaded.analyst("carol") == Analyst(None, True, "shared")
    assert (loaded.description, loaded.state, loaded.records) == ("", None, "mutable")


def test_what_is_said_holds(policy):
    """
    Every optional key, once.
    """
    text = changed(
        ("unit: row", "unit: {column: person, max_rows: 3}\n  floor: 0.001\n  strategy: paper"),
        ("per:", "history_size: {total: 9, analyst: 4}\n  per:"),
        ("groups:", "state: ../state\npublic: {names: {path: names.csv}}\nrecords: immutable\n"
         "description: of the town\ngroups:"),
    )  # fmt: skip
    loaded = policy(text, names="a\n1\n")

    assert loaded.privacy.unit == Unit("person", 3, "0")
    assert loaded.privacy.floor == Fraction(1, 1000)
    assert loaded.privacy.strategy == "paper"
    assert loaded.privacy.history_size == HistorySize(9, 4)
    assert loaded.state == loaded.path.parent.parent / "state"
    assert loaded.public["names"].path.name == "names.csv"
    assert (loaded.records, loaded.description) == ("immutable", "of the town")


def test_periods_of_a_date_are_partitions(policy):
    """
    Of months in quarters, which close at their end unless it is said that records come later.
    """
    parts = "{column: born, grain: quarter}"
    loaded = policy(partitioned(parts))
    assert loaded.partition == Partition("born", "quarter", 0)
    assert policy(partitioned(parts[:-1] + ", closes: 3}")).partition.closes == 3
    assert policy(partitioned(parts, ("bin: month, ", "bin: month, type: timestamp, "))).partition


def test_analysts_groups_and_what_is_set_aside(policy):
    """
    An own history's cap is taken from the shared budget; a shared one's is not.
    """
    loaded = policy()

    assert loaded.analyst("alice") == Analyst(Fraction(1, 20), True, "shared")
    assert loaded.analyst("bi") == Analyst(None, False, "shared")
    assert loaded.groups == {"survey": Analyst(Fraction(1, 50), True, "own")}
    assert loaded.set_aside == Fraction(1, 50)
    assert loaded.shared_budget == Fraction(8, 100)


def test_a_guard_is_read_from_its_claim_and_caps_a_cell(policy):
    """
    0 to 5 with confidence 0.95: ln(20)/6 = 0.49928871.
    """
    guard = policy().privacy.guards[0]

    assert (guard.low, guard.high, guard.for_each) == (0, 5, ("age", "region"))
    assert guard.cap == pytest.approx(0.4992887122589985, rel=1e-14)
    assert guard.cap < 0.4992887122589985


def test_each_attribute_has_its_source_and_rules(policy):
    """
    A column is quoted; rules come from the attribute, else from the policy.
    """
    attributes = {a.name: a for a in policy().domain.attributes}

    assert attributes["age"].source == '"age"'
    assert attributes["region"].source == '"Region"'
    assert (attributes["age"].outside, attributes["age"].nulls) == ("drop", "group")
    assert (attributes["seen"].outside, attributes["seen"].cut) == ("clamp", "snap")
    assert attributes["smokes"].nulls == "drop"
    assert attributes["age"].size == 46  # 18 … 62 and NULL


@pytest.mark.parametrize(
    ("declaration", "kind", "values", "edges"),
    [
        ("{range: [-1, 1]}", "integer", (-1, 0, 1), None),
        ("{edges: [0, 5, 9]}", "integer", (0, 5), (0, 5, 9)),
        ("{range: [-9223372036854775808, -9223372036854775808]}", "integer", (-(2**63),), None),
        ("{edges: [-9223372036854775808, 9]}", "integer", (-(2**63),), (-(2**63), 9)),
        ("{edges: [2020-01-01, 2020-03-01]}", "date", (datetime.date(2020, 1, 1),),
         (datetime.date(2020, 1, 1), datetime.date(2020, 3, 1))),
        ("{edges: [0, 0.5]}", "decimal", (Decimal(0),), (Decimal(0), Decimal("0.5"))),
        ("{values: [3, 1, 1_000]}", "integer", (3, 1, 1000), None),
        ("{values: [1.5, 2]}", "decimal", (Decimal("1.5"), Decimal(2)), None),
        ("{values: ['012', 'no', ' ', '']}", "text", ("012", "no", " ", ""), None),
        ("{values: [a b, y, Straße]}", "text", ("a b", "y", "Straße"), None),
        ("{type: boolean}", "boolean", (False, True), None),
        ("{type: boolean, values: [yes]}", "boolean", (True,), None),
        ("{type: date, values: [2020-02-29]}", "date", (datetime.date(2020, 2, 29),), None),
        ("{type: timestamp, values: [2020-02-29 12:30:00]}", "timestamp",
         (datetime.datetime(2020, 2, 29, 12, 30),), None),
    ],
)  # fmt: skip
def test_domains(policy, declaration, kind, values, edges):
    """
    Each form of a domain gives the cells that it says, in its order.
    """
    attribute = axis(policy, declaration)

    assert (attribute.type, attribute.values, attribute.edges) == (kind, values, edges)
    assert [type(value) for value in attribute.values] == [type(value) for value in values]


def test_months_are_bins_at_their_starts(policy):
    """
    The twelve months of 2020: the last edge is the first day of 2021.
    """
    born = policy().domain.attributes[4]

    assert (born.type, born.size) == ("date", 13)
    assert born.edges[:2] == (datetime.date(2020, 1, 1), datetime.date(2020, 2, 1))
    assert born.edges[-1] == datetime.date(2021, 1, 1)


@pytest.mark.parametrize(("bin", "cells"), [("week", 1), ("day", 7)])  # 2020-06-01 is a Monday
def test_days_of_dates_are_exact_and_weeks_begin_on_monday(policy, bin, cells):
    """
    A cell of a day is the day; a week is a bin.
    """
    attribute = axis(policy, f"{{from: 2020-06-01, to: 2020-06-07, bin: {bin}}}")

    assert len(attribute.values) == cells
    assert attribute.binned == (bin == "week")


def test_days_of_timestamps_are_bins(policy):
    """
    A day has many moments.
    """
    attribute = axis(policy, "{type: timestamp, from: 2020-06-01, to: 2020-06-01}")

    assert attribute.edges == (datetime.datetime(2020, 6, 1), datetime.datetime(2020, 6, 2))


@given(st.dates(datetime.date(1000, 1, 1), datetime.date(9000, 1, 1)),
       st.sampled_from(["day", "week", "month", "quarter", "year"]))  # fmt: skip
def test_every_day_lies_in_one_period(day, grain):
    """
    The period's start is not after the day, the next one is, and a start starts itself.
    """
    start = period_start(day, grain)

    assert start <= day < next_start(start, grain)
    assert period_start(start, grain) == start
    assert period_start(next_start(start, grain), grain) == next_start(start, grain)
    assert period_start(next_start(start, grain) - datetime.timedelta(1), grain) == start


def test_values_from_a_public_file(policy):
    """
    A column's distinct values, in the file's order.
    """
    states = 'code,state\n1,Ohio\n2,"New York"\n3,Ohio\n'

    text = axis(policy, "{values: {path: states.csv, column: state}}", states=states)
    codes = axis(policy, "{type: integer, values: {path: states.csv, column: code}}")
    assert text.values == ("Ohio", "New York")
    assert codes.values == (1, 2, 3)


def test_levels_are_coarser_columns(policy):
    """
    A level has a label for each value, bins and numbers included.
    """
    attribute = axis(policy, "{edges: [0, 5, 10], levels: {half: {low: [0], high: [5]}}}")

    assert attribute.levels == {"half": {"low": (0,), "high": (5,)}}


def test_a_switch_is_a_boolean_under_any_of_its_words(policy):
    """
    on, off, yes, no, true and false are booleans where one is expected.
    """
    for word, spend in {"on": True, "no": False, "true": True, "False": False}.items():
        assert policy(changed(("spend: off", f"spend: {word}"))).analyst("bi").spend is spend


def test_aliases_work(policy):
    """
    An anchor's value may be used again; the list of values is written once.
    """
    text = changed(
        ("smokes: {values: ['no', 'yes'], nulls: drop}", "smokes: {values: &two ['no', 'yes']}"),
        ("region: {values: [north, south, west]", "region: {values: *two"),
    )

    assert policy(text).domain.attributes[3].values == ("no", "yes")


def test_a_byte_order_mark_is_no_key(policy, tmp_path):
    """
    Editors on Windows put one in front.
    """
    (tmp_path / "bom.yaml").write_bytes(b"\xef\xbb\xbf" + GOOD.encode())

    assert load(tmp_path / "bom.yaml").dataset == "people"


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6))
def test_a_number_is_shown_as_it_is(number):
    """
    A decimal that is shown is read back as the same number.
    """
    assert Fraction(decimal(Fraction(number))) == Fraction(number)


def test_a_fraction_is_shown_as_it_is():
    """
    One third has no decimal.
    """
    assert (decimal(Fraction(1, 3)), decimal(Fraction(1, 20)), decimal(-5)) == ("1/3", "0.05", "-5")


# --- the table of keys -----------------------------------------------------------------------


def test_the_published_schema_is_the_table_of_keys():
    """
    policies/policy.schema.json is what `json_schema` gives.
    """
    published = json.loads((POLICIES / "policy.schema.json").read_text(encoding="utf-8"))

    assert published == json_schema()
    jsonschema.Draft202012Validator.check_schema(published)


@pytest.mark.parametrize("name", ["cps1988.yaml", "meps1996.yaml", "good"])
def test_right_policies_satisfy_the_schema(name):
    """
    What `load` takes, an editor takes.
    """
    text = GOOD if name == "good" else (POLICIES / name).read_text(encoding="utf-8")

    document = json.loads(json.dumps(yaml.safe_load(text), default=str))
    jsonschema.validate(document, json_schema())


@pytest.mark.parametrize(
    ("old", "new"), [(old, new) for old, new, *_, message in WRONG if "unknown key" in message]
)
def test_editors_see_unknown_keys(old, new):
    """
    The schema closes every mapping of known keys.
    """
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(
            json.loads(json.dumps(yaml.safe_load(changed((old, new))), default=str)), json_schema()
        )


def test_the_documentation_has_every_key_once():
    """
    One row a key, with its default or `required`.
    """
    rows = describe().splitlines()

    assert (
        "| `privacy.budget` | a number more than 0 and at most 1000000 | required |"
        in rows[[row.startswith("| `privacy.budget`") for row in rows].index(True)]
    )
    assert len(rows) == len(set(rows))
    assert all(row.count("|") - row.count(r"\|") == 5 for row in rows)


# --- the protection --------------------------------------------------------------------------


def test_the_digest_does_not_see_what_protects_nobody(policy):
    """
    Words, utilities and levels may change freely.
    """
    other = changed(
        ("dataset: people", "dataset: people\ndescription: hello"),
        (LIST, LIST + ", levels: {all: {all: [north, south, west]}}"),
        ("half_width: 100", "half_width: 7"),
    )

    assert protection(policy(other)).digest == protection(policy()).digest


def test_the_protection_is_json_and_short():
    """
    A long axis enters by its hash; two long axes differ where one value does.
    """
    policy = load(POLICIES / "cps1988.yaml")
    long, other = (
        replace(
            policy,
            domain=replace(
                policy.domain, attributes=(Attribute("n", "integer", tuple(range(i, 90_000))),)
            ),
        )
        for i in (0, 1)
    )

    assert json.loads(json.dumps(long.protection())) == long.protection()
    assert len(json.dumps(long.protection())) < 2000
    assert protection(long).digest != protection(other).digest
