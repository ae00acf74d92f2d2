"""``weaker`` finds every change that lowers protection, and is silent about the others."""

import json
import re
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.policy import weaker
from proxy.policy.model import guard_cap
from proxy.protection import protection
from tests.policy.people import GOOD, LIST, changed, partitioned

STRICT = changed(
    ("unit: row", "unit: {column: person, max_rows: 3}\n  floor: 0.001\n  history: own"),
    ("{spend: off}", "{spend: off, history: shared}"),
    ("{alice: {budget: 0.05}", "{alice: {budget: 0.05, history: own}"),
)
PER = "per: {day: 0.01, week: 0.05}"
GUARD = "guards: [{claim"
CLAIM = '"COUNT(*) BETWEEN 0 AND 5"'

# (what is replaced, by what, the sentence)
ONE_WAY = [
    ("budget: 0.1\n", "budget: 0.2\n", "privacy.budget is 0.2, it was 0.1"),
    ("max_rows: 3", "max_rows: 2", "privacy.unit.max_rows is 2, it was 3"),
    ("floor: 0.001", "floor: 0.0001", "privacy.floor is 0.0001, it was 0.001"),
    ("day: 0.01", "day: 0.02", "privacy.per.day is 0.02, it was 0.01"),
    (PER, "per: {day: 0.01}", "privacy.per.week is unlimited, it was 0.05"),
    ("budget: 0.05}]", "budget: 0.06}]", "cells where age < 20 is 0.06, it was 0.05"),
    ('cells: [{where: "age < 20", budget: 0.05}]', "cells: []", "is 0.1, it was 0.05"),
    ("confidence: 0.95", "confidence: 0.96", "confidence 0.95, is looser"),
    (CLAIM, CLAIM.replace("5", "4"), "COUNT(*) BETWEEN 0 AND 5 for each age, region, confidence"),
    ("  history: own", "  history: shared", "privacy.history is shared, it was own"),
    ("{alice: {budget: 0.05, history: own}", "{alice: {budget: 0.06, history: own}",
     "analysts.alice.budget is 0.06, it was 0.05"),
    ("{alice: {budget: 0.05, history: own}", "{alice: {history: shared}",
     "analysts.alice.budget is unlimited, it was 0.05"),
    ("spend: off", "spend: on", "analysts.bi.spend is on, it was off"),
    ("{budget: 0.02, history: own}", "{budget: 0.02, history: shared}",
     "groups.survey.history is shared, it was own"),
    ("[0, 2000]", "[0, 2001]", "measure wage: the clip is [0, 2001], it was [0, 2000]"),
    ("[0, 2000]", "[-1, 2000]", "measure wage: the clip is [-1, 2000], it was [0, 2000]"),
    ("quantum: 0.01}", "quantum: 0.01}\n  tips: {clip: [0, 1], quantum: 1}", "tips is new"),
    ("utility:", "records: immutable\nutility:", "records are immutable now"),
]  # fmt: skip
EITHER_WAY = [
    ("dataset: people", "dataset: persons", "dataset is"),
    ("path: people.csv", "path: people.csv, query: SELECT 1", "source.query has changed"),
    ("[18, 62]", "[18, 63]", "attribute age has another domain: values"),
    ("nulls: drop}", "nulls: error}", "attribute smokes has another domain: nulls"),
    ("outside: clamp", "outside: group", "attribute seen has another domain: outside"),
    (", column: Region", "", "attribute region has another domain: source"),
    ("  smokes:", "  more: {type: boolean}\n  smokes:", "attribute more is"),
    ("quantum: 0.01", "quantum: 0.02", "measure wage: quantum is"),
    ("column: person", "column: house", "privacy.unit is"),
    ("unit: {column: person, max_rows: 3}", "unit: row", "privacy.unit is"),
    ("max_rows: 3}", "max_rows: 3, seed: b}", "privacy.unit.seed has changed"),
    ("for_each: [age, region]", "for_each: [age]", "is gone"),
    ("Europe/Berlin", "UTC", "timezone is"),
]


def differences(policy, old, new):
    """Return what `weaker` says, the old side having been in a ledger as JSON."""
    before = json.loads(json.dumps(protection(policy(old)).protection, sort_keys=True))
    return weaker(before, protection(policy(new)).protection)


@pytest.mark.parametrize(("old", "new", "sentence"), ONE_WAY)
def test_less_protection_is_named_and_more_is_not(policy, old, new, sentence):
    """
    One change lowers it, its reverse raises it; a changed default may take others along.
    """
    lowered = changed((old, new), text=STRICT)

    found = differences(policy, STRICT, lowered)
    assert re.search(re.escape(sentence), " ".join(found))
    assert differences(policy, lowered, STRICT) == []


def test_a_cap_and_a_history_of_ones_own_are_each_weaker_than_the_other(policy):
    """
    What was spent within the one does not count in the other.
    """
    own = "{alice: {budget: 0.05, history: own}"
    shared = changed((own, "{alice: {budget: 0.05, history: shared}"), text=STRICT)

    assert differences(policy, STRICT, shared) == ["analysts.alice.history is shared, it was own"]
    gained = ["user alice: the cap alice of 0.05 no longer binds"]
    assert differences(policy, shared, STRICT) == gained


@pytest.mark.parametrize(("old", "new", "sentence"), EITHER_WAY)
def test_another_domain_is_named_in_both_directions(policy, old, new, sentence):
    """
    Cells that are others have not paid what the old ones have.
    """
    other = changed((old, new), text=STRICT)

    assert sentence in " ".join(differences(policy, STRICT, other))
    assert sentence in " ".join(differences(policy, other, STRICT))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dataset: people", "description: hello\ndataset: people"),
        ("half_width: 100", "half_width: 1"),
        (LIST, LIST + ", levels: {all: {all: [north, south, west]}}"),
        ('"age < 20"', '"age  <  20"'),
        ("max_records: 1_000_000", "max_records: 2_000_000"),
        ("[0, 2000]", "[0, 1999]"),
        ("for_each: [age, region]", "for_each: [region, age]"),
    ],
)
def test_what_lowers_nothing_is_silent(policy, old, new):
    """
    Words, utilities, levels, a narrower clip, the same rule otherwise written.
    """
    other = changed((old, new), text=STRICT)

    assert differences(policy, STRICT, other) == []


def test_that_records_keep_to_their_period_is_a_promise_where_they_may_change(policy):
    """
    Costs are then carried over by period; where they never change, they are cell by cell anyway.
    """
    never = partitioned()
    changing = changed(("records: immutable\n", ""), text=never)
    years = changed(("quarter", "year"), text=changing)
    said = ["no record leaves its quarter of born: costs are carried over by period"]
    assert (
        differences(policy, GOOD.replace("bin: month", "bin: month, nulls: drop"), changing) == said
    )
    assert differences(policy, years, changing) == said
    assert differences(policy, changing, changing.replace("quarter", "quarter, closes: 9")) == []
    assert differences(policy, never, changed(("quarter", "year"), text=never)) == []
    assert differences(policy, never, changing) == []


def test_a_dropped_guard_is_named(policy):
    """
    Without guards, the old one is gone.
    """
    line = next(line for line in STRICT.splitlines() if GUARD in line)
    without = STRICT.replace(line + "\n", "")

    assert "is gone" in " ".join(differences(policy, STRICT, without))
    assert differences(policy, without, STRICT) == []


def test_an_analyst_who_is_no_longer_listed_has_no_cap(policy):
    """
    Taking the entry away takes the cap away.
    """
    without = changed(("alice: {budget: 0.05}, ", ""))

    assert differences(policy, GOOD, without) == ["analysts.alice.budget is unlimited, it was 0.05"]
    assert differences(policy, without, GOOD) == []


def test_a_rule_that_the_budget_makes_idle_may_go(policy):
    """
    The budget falls to that of the rule, and the default floor with it: nothing is lowered.
    """
    strict = changed(
        ("  budget: 0.1\n", "  budget: 0.05\n"),
        ('  cells: [{where: "age < 20", budget: 0.05}]\n', ""),
    )

    assert differences(policy, GOOD, strict) == []


def test_versions_that_do_not_fit_are_a_callers_fault(policy):
    """
    A ledger of another version is migrated first.
    """
    value = protection(policy()).protection

    with pytest.raises(ValueError, match="versions 0 and 2"):
        weaker(value | {"version": 0}, value)


number = st.integers(1, 100).map(lambda n: f"{n / 1000}")


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.tuples(number, number), st.tuples(st.integers(1, 9), st.integers(1, 9)))
def test_silence_in_both_directions_is_equality(policy, budgets, rows):
    """
    Two policies that are each as strict as the other have one digest.
    """
    first, second = (
        protection(policy(changed(("budget: 0.05}, bi", f"budget: {budget}}}, bi"),
                       ("unit: row", f"unit: {{column: p, max_rows: {k}}}"))))
        for budget, k in zip(budgets, rows, strict=True)
    )  # fmt: skip
    there = weaker(first.protection, second.protection)
    back = weaker(second.protection, first.protection)

    assert (not there and not back) == (first.digest == second.digest)


@given(st.integers(0, 50), st.integers(0, 50), st.fractions(Fraction(1, 10**6), 1))
def test_a_guards_cap_is_never_above_its_formula(low, more, confidence):
    """
    ln(1/(1−γ))/(U−L+1) in 40 digits is at least the cap, and hardly more.
    """
    import mpmath

    if confidence == 1:
        return
    with mpmath.workdps(40):
        rest = mpmath.mpf((1 - confidence).numerator) / (1 - confidence).denominator
        exact = -mpmath.log(rest) / (more + 1)
        cap = guard_cap(low, low + more, confidence)
        assert exact * (1 - mpmath.mpf(2) ** -48) <= cap <= exact
