"""What a policy protects is compared as the cells, records and users that it means."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.domain import Attribute, Domain
from proxy.errors import PolicyError
from proxy.policy import load, load_users, scram_verifier, weaker
from proxy.policy.regions import contains, region_json
from proxy.protection import coding, protection

POLICY = """\
dataset: people
source: {{engine: duckdb, path: people.csv}}
max_records: 1000
outside: drop
nulls: group
{rest}attributes:
{attributes}measures:
  pay: {{clip: [0, 10], quantum: 1}}
  age: {{clip: [0, 99], quantum: 1}}
privacy:
  budget: 1
  unit: row
  cells: {cells}
public:
  frail: {{path: frail.csv}}
"""
ATTRIBUTES = (
    "  town: {values: ['x  y', 'x y', q]}\n",
    "  kind: {values: [a, b, c], levels: {sort: {weak: [a], firm: [b, c]}}}\n",
    "  year: {type: integer, range: [2020, 2024]}\n",
    "  day: {from: 2026-11-01, to: 2026-11-30}\n",
)
VERIFIER = scram_verifier("secret", 1, b"salt")


@pytest.fixture
def policy(tmp_path):
    """Return a function that loads a policy with some cells, in some order of its attributes."""
    (tmp_path / "frail.csv").write_text("kind\na\n")

    def loaded(cells="[]", attributes=ATTRIBUTES, rest=""):
        path = tmp_path / "people.yaml"
        path.write_text(POLICY.format(cells=cells, attributes="".join(attributes), rest=rest))
        return load(path)

    return loaded


def where(*conditions):
    return "[" + ", ".join(f'{{where: "{each}", budget: 0.1}}' for each in conditions) + "]"


CONDITIONS = (
    "town = 'x y' AND kind <> 'b' OR year > 2022",
    "sort = 'weak'",
    "day >= '2026-11-20'",
    "kind IS NULL OR town IN ('q', 'x  y')",
)


@pytest.mark.parametrize("seed", range(8))
def test_the_order_of_attributes_and_values_means_nothing(policy, seed):
    """
    Lines and values change places: the digest and what decides a record's cell are the same.
    """
    draw = random.Random(seed)
    values = [("['x  y', 'x y', q]", ["'x  y'", "'x y'", "q"]), ("[a, b, c]", ["a", "b", "c"])]
    lines = list(ATTRIBUTES)
    for text, each in values:
        mixed = f"[{', '.join(draw.sample(each, len(each)))}]"
        lines = [line.replace(f"values: {text}", f"values: {mixed}") for line in lines]
    draw.shuffle(lines)
    cells = where(*CONDITIONS)
    one, other = protection(policy(cells)), protection(policy(cells, lines))

    assert one.digest == other.digest
    assert coding(one.protection) == coding(other.protection)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("town = 'x  y'", "town = 'x y'", False),
        ("town = 'q' -- old\n OR kind = 'a'", "town = 'q' -- old  OR kind = 'a'", False),
        ("town = 'q'", "  town  =\n 'q'  /* a comment */", True),
        ("town = 'q'", "'q' = town", True),
        ("kind IN ('a', 'b')", "kind = 'b' OR kind = 'a'", True),
        ("year > 2022", "year >= 2023", True),
        ("year > 2022", "year >= 2022", False),
        ("sort = 'weak'", "kind = 'a'", True),
        ("kind IN (SELECT kind FROM frail)", "kind = 'a'", True),
    ],
)
def test_a_condition_is_the_cells_that_it_means(policy, tmp_path, one, other, same):
    """
    Not its text: white space outside of literals, comments and order mean nothing, inside they do.
    """
    texts = [repr_yaml(each) for each in (one, other)]
    first, second = (protection(policy(f"[{{where: {text}, budget: 0.1}}]")) for text in texts)

    assert (first.digest == second.digest) == same


def repr_yaml(text):
    """Return a text as YAML has it in double quotes."""
    return '"' + text.replace("\\", "\\\\").replace("\n", "\\n") + '"'


def test_what_a_condition_reads_is_part_of_it(policy, tmp_path):
    """
    A public table, or the members of a level, that change the cells are another protection, which
    protects less where a cell lost its smaller budget.
    """
    table = where("kind IN (SELECT kind FROM frail)")
    before = protection(policy(table)), protection(policy(where("sort = 'weak'")))
    (tmp_path / "frail.csv").write_text("kind\nb\n")
    swapped = [line.replace("weak: [a], firm: [b, c]", "weak: [b], firm: [a, c]")
               for line in ATTRIBUTES]  # fmt: skip
    after = protection(policy(table)), protection(policy(where("sort = 'weak'"), swapped))

    for old, new in zip(before, after, strict=True):
        assert old.digest != new.digest
        (sentence,) = weaker(old.protection, new.protection)
        assert "is 1, it was 0.1" in sentence


@pytest.mark.parametrize(
    ("old", "new", "less"),
    [
        ("kind = 'a'", "kind IN ('a', 'b')", False),
        ("kind IN ('a', 'b')", "kind = 'a'", True),
        ("kind = 'a' AND year = 2020", "kind = 'a'", False),
        ("kind = 'a'", "kind = 'a' OR year = 2020", False),
        ("kind = 'a' OR year = 2020", "kind = 'a'", True),
        ("kind = 'a' AND kind = 'b'", "year = 2020", False),
        ("kind = 'a'", "true", False),
        ("true", "kind = 'a'", True),
    ],
)
def test_a_rule_that_covers_more_protects_no_less(policy, old, new, less):
    """
    What is compared is whether every cell keeps a budget that is as small.
    """
    one, other = protection(policy(where(old))), protection(policy(where(new)))

    assert bool(weaker(one.protection, other.protection)) == less


@pytest.mark.parametrize(
    "condition",
    [
        "day >= current_date - 5",
        "day < now()",
        "day < current_timestamp",
        "day < localtimestamp",
        "day < transaction_timestamp()",
        "day < clock_timestamp()",
        "day < 'now'::timestamp",
        "day = 'today'",
        "day < date 'tomorrow'",
        "age(day) > interval '1 day'",
        "day IN (SELECT now()::date)",
        "EXISTS (SELECT 1 WHERE now() > '2020-01-01')",
        "random() < 0.5",
        "town = 'q' LIMIT 0",
        "town = 'q' GROUP BY town",
        "town = 'q' UNION ALL SELECT 1",
        "town = 'q') OR (true",
    ],
)
def test_a_condition_reads_no_clock_and_is_nothing_but_one(policy, condition):
    """
    Which cells it means must not move by itself; with line and key.
    """
    if condition == "town = 'q') OR (true":  # two conditions, whatever the brackets
        assert protection(policy(where(condition))).protection["cells"][0]["region"] == []
        return
    with pytest.raises(PolicyError, match=r"(?s)people.yaml:\d+: privacy.cells.where") as raised:
        protection(policy(where(condition)))
    if "now()" in condition or "current" in condition:
        assert "clock" in raised.value.hint


AXES = ("a", "b", "c")
bits = st.lists(st.booleans(), min_size=12, max_size=12)


def tensors(draw):
    """Draw a product of 0/1 tensors over a, b and c (sizes 2, 3, 2)."""
    sizes = (2, 3, 2)
    groups = draw(st.sampled_from([((0,), (1,)), ((0, 1),), ((2,),), ((0,), (1, 2)), ((0, 1, 2),)]))
    return [
        (axes, np.array(draw(bits)[: np.prod([sizes[i] for i in axes])], dtype=np.int64)
         .reshape([sizes[i] for i in axes]))
        for axes in groups
    ]  # fmt: skip


regions = st.composite(tensors)()
DOMAIN = Domain(
    (
        Attribute("b", "text", ("y", "x")),
        Attribute("a", "text", ("p", "r", "q")),
        Attribute("c", "integer", (10, 9)),
    )
)


def dense(product):
    """Return a region as one boolean tensor over all three axes."""
    whole = np.ones((2, 3, 2), dtype=bool)
    for axes, array in product:
        shape = [array.shape[axes.index(i)] if i in axes else 1 for i in range(3)]
        whole &= array.reshape(shape) > 0
    return whole


@pytest.mark.slow
@settings(max_examples=300)
@given(regions, regions)
def test_containment_is_that_of_the_cells(outer, inner):
    """
    As brute force over the cells says it.
    """
    expected = not (dense(inner) & ~dense(outer)).any()

    assert contains(region_json(outer, DOMAIN), region_json(inner, DOMAIN)) == expected


@given(regions)
def test_cells_of_a_changed_axis_are_not_compared(region):
    """
    What cannot be shown is not so.
    """
    found = region_json(region, DOMAIN)
    axes = {name for tensor in found for name in tensor["axes"]}

    assert not contains(found, found, {sorted(axes)[0]})


@pytest.mark.slow
def test_long_regions_are_held_by_their_hash():
    """
    Equal ones contain one another, others cannot be shown to.
    """
    noise = np.random.default_rng(1).integers(0, 2, (2, 2**20))
    domain = Domain(
        (Attribute("a", "text", ("p", "q")), Attribute("n", "integer", tuple(range(2**20))))
    )
    one, other = ([((0, 1), array)] for array in (noise, noise | (np.arange(2**20) == 0)))
    texts = [region_json(each, domain) for each in (one, other)]

    assert all(len(text[0]["cells"]) < 100 for text in texts)
    assert contains(texts[0], texts[0])
    assert not contains(texts[1], texts[0])


def test_the_time_zone_decides_the_cell_of_a_record(policy):
    """
    Dates, times and their texts are read in it.
    """
    utc, other = (
        coding(protection(policy(rest=rest)).protection) for rest in ("", "timezone: Asia/Tokyo\n")
    )

    assert utc != other


def test_records_that_move_with_the_time_zone_leave_the_cells_that_may_lose_less(policy):
    """
    Such a change is weaker where some cells may; where all may lose the same, it is not.
    """
    for cells, said in (("[]", []), (where(CONDITIONS[0]), ["the budget of records"])):
        utc, other = (
            protection(policy(cells, rest=rest)).protection
            for rest in ("", "timezone: Asia/Tokyo\n")
        )
        assert [sentence[:21] for sentence in weaker(utc, other)] == said


# --- users ---------------------------------------------------------------------------------------

USERS = {
    "ann": "roles: [analyst], groups: [few]",
    "bob": "roles: [analyst], groups: [some]",
    "eve": "roles: [analyst, steward]",
}
LIMITS = """\
analysts: {eve: {budget: 0.2}, mute: {spend: off}}
groups: {few: {budget: 0.1}, some: {budget: 0.3, history: own}}
"""


def users(tmp_path, **changed):
    lines = [
        f'  {name}: {{password: "{VERIFIER}", {text}}}'
        for name, text in (USERS | changed).items()
        if text
    ]
    path = tmp_path / "users.yaml"
    path.write_text("\n".join(["users:", *lines]) + "\n")
    return load_users(path)


@pytest.mark.parametrize(
    ("changed", "gain"),
    [
        ({"ann": "roles: [analyst]"}, "user ann: the cap @few of 0.1 no longer binds"),
        (
            {"ann": "roles: [analyst], groups: [some]"},  # there, what @few paid does not count
            "user ann: the cap @few of 0.1 no longer binds",
        ),
        ({"bob": "roles: [analyst]"}, "user bob: the history is shared, it was own:@some"),
        ({"bob": "roles: [analyst], groups: [few]"}, "user bob: the history is shared"),
        ({"ann": ""}, None),
        ({"new": "roles: [analyst]"}, None),
        ({"new": "roles: [analyst], groups: [few]"}, None),
        ({"eve": "roles: [analyst]"}, None),
        ({"ann": "roles: [analyst], groups: [few, other]"}, None),
        ({"mute": "roles: [analyst], groups: [few]"}, None),
    ],
)
def test_what_a_user_gains_is_named(policy, tmp_path, changed, gain):
    """
    A group left, a history of one's own given up; whoever gains nothing is not named.
    """
    found = policy(rest=LIMITS)
    before = protection(found, users=users(tmp_path)).protection
    after = protection(found, users=users(tmp_path, **changed)).protection
    said = weaker(before, after)

    assert (said == []) if gain is None else (len(said) == 1 and said[0].startswith(gain))


def test_without_a_users_file_those_it_listed_gain_what_anybody_may(policy, tmp_path):
    """
    Their caps, and that they may not spend, hold only while the file says who they are.
    """
    found = policy(rest=LIMITS)
    before = protection(found, users=users(tmp_path)).protection
    said = weaker(before, protection(found).protection)

    assert "user ann: the cap @few of 0.1 no longer binds" in said
    assert weaker(protection(found).protection, before) == []


def test_users_are_beside_the_digest(policy, tmp_path):
    """
    A users file may change while the policy in force does not.
    """
    found = policy(rest=LIMITS)
    digests = {
        protection(found, users=each).digest
        for each in (None, users(tmp_path), users(tmp_path, new="roles: [analyst]"))
    }

    assert len(digests) == 1


OWN = "analysts: {bob: {history: shared}}\n"


def test_an_analyst_who_is_let_into_the_shared_history_gains(policy, tmp_path):
    """
    Where those who are not listed have histories of their own, with nothing in them.
    """
    text = POLICY.replace("  unit: row\n", "  unit: row\n  history: own\n")
    path = tmp_path / "people.yaml"
    values = []
    for rest in ("", OWN, "analysts: {bob: {budget: 0.5}}\n"):
        path.write_text(text.format(cells="[]", attributes="".join(ATTRIBUTES), rest=rest))
        values.append(protection(load(path)).protection)
    none, shared, own = values

    assert weaker(none, shared) == ["user bob: the history is shared, it was own"]
    assert weaker(none, own) == ["user bob: the history's budget is 0.5, it was 0"]
    assert weaker(own, none) == []
    for one, other in itertools.permutations(values, 2):
        assert weaker(one, other) == [] or weaker(other, one) == []
