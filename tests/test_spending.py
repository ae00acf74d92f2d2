"""Where the budget went is told from the ledger's rows alone, exactly, for domains of any size."""

from datetime import UTC, datetime

import numpy as np
import pytest

import proxy.policy as policies
from proxy.errors import ProgrammingError
from proxy.steward import curves, ledger_in_force, spending
from tests.small import DOMAIN, Small, count

COST = 0.2187254167320134  # of the first count within 10, with confidence 90%
LONG = DOMAIN.replace("range: [0, 9]", "range: [0, 4999]")
VAST = DOMAIN.replace(
    "  town:",
    "".join(f"  x{n}: {{type: integer, range: [0, 99], expression: age}}\n" for n in range(5))
    + "  town:",
)


@pytest.fixture
def small(tmp_path):
    """A folder with a few people."""
    small = Small(tmp_path)
    small.data((0, "a", 5), (1, "b", 3), (5, "a", 4), (9, "b", 7))
    return small


def seen(small):
    """What has been spent."""
    with ledger_in_force(small.policy) as (ledger, policy):
        return spending(policy, ledger)


def privacy(**keys):
    """The part ``privacy`` of a policy, as YAML."""
    keys = {"budget": 1, "unit": "row"} | keys
    return f"privacy: {{{', '.join(f'{key}: {value}' for key, value in keys.items())}}}\n"


def test_the_cells_that_two_counts_share_have_paid_both(small):
    """
    Of ages below 5, and of town a; what is told is what EXPLAIN and a refusal tell.
    """
    engine = small.made()
    count(engine, "age < 5")
    count(engine, "town = 'a'")
    heat = seen(small).heat("age", "town")
    assert heat.rows.labels == tuple(map(str, range(10)))
    assert heat.columns.labels == ("a", "b")
    young = np.arange(10)[:, None] < 5
    expected = COST * young + COST * np.array([True, False])
    assert heat.spent == pytest.approx(expected)
    assert heat.exact
    assert seen(small).heat("town").spent == pytest.approx(np.array([[2 * COST], [COST]]))


def test_the_nearest_cells_are_named_as_groups_that_have_paid_alike(small):
    """
    The dearest first; where all labels of an attribute are in a group, it is not named.
    """
    engine = small.made()
    count(engine, "age < 5")
    count(engine, "town = 'a'")
    cells, whole = seen(small).nearest()
    assert whole
    assert [(cell.labels, round(cell.limit.spent / COST)) for cell in cells] == [
        ((("age", "0 … 4"), ("town", "a")), 2),
        ((("age", "0 … 4"), ("town", "b")), 1),
        ((("age", "5 … 9"), ("town", "a")), 1),
    ]


def test_in_steps_cells_that_are_alike_are_one_group(small):
    """
    Rounded down, what each has paid does not tell them apart: a cheap statement is not seen.
    """
    engine = small.made()
    count(engine, "age < 5")
    cheap = count(engine, "town = 'a'", 60).cost
    assert 0.2 < COST < COST + cheap < 0.4
    exact, _ = seen(small).nearest()
    assert len(exact) == 3
    cells, whole = seen(small).nearest(steps=5)
    assert whole
    assert [(cell.labels, cell.limit.share) for cell in cells] == [
        ((("age", "0 … 4"),), pytest.approx(0.2))
    ]
    assert seen(small).nearest(steps=2) == ([], True)


def test_a_cell_with_a_smaller_budget_is_nearer(small):
    """
    By the limit that it has used up most of, and it is told which one that is.
    """
    engine = small.made(privacy(cells='[{where: "age = 9", budget: 0.3}]'))
    count(engine, "age < 5")
    count(engine, "age < 5 OR age = 8", 9)
    count(engine, "age = 9")
    cells, _ = seen(small).nearest()
    assert cells[0].labels == (("age", "9"),)
    assert cells[0].limit.name == "the budget of the cells where age = 9"
    assert cells[0].limit.share == pytest.approx(COST / 0.3)
    assert [each.name for each in seen(small).limits()] == [
        "the budget of the cells",
        "the budget of the cells where age = 9",
    ]


def test_limits_are_those_that_the_engine_refuses_by(small):
    """
    What a report shows is what the budget of a session shows, for each history.
    """
    engine = small.made(privacy(), "analysts: {eve: {budget: 0.4, history: own}}\n")
    count(engine, "age < 5", user="eve")
    count(engine, "age < 7")
    found = seen(small)
    for user, history in (("", "shared"), ("eve", "own:eve")):
        mine, theirs = found.limits(history), engine.budget(user).rules
        assert [(a.name, a.budget, a.spent, a.left) for a in mine] == [
            (b.name, b.budget, b.spent, b.left) for b in theirs
        ]
    assert found.heat("age", history="own:eve").spent[9, 0] == 0
    assert [limit.budget for limit in found.limits("own:bob")] == [0]
    with pytest.raises(ProgrammingError, match="no attribute region"):
        found.heat("region")


def test_long_axes_are_shown_by_ranges_and_the_dearest_value_of_each(small):
    """
    Of 5,000 values 125 to a label.
    """
    engine = small.made(domain=LONG)
    count(engine, "age = 130")
    heat = seen(small).heat("age", "town")
    assert (len(heat.rows.labels), heat.rows.grouped) == (40, 125)
    assert heat.rows.labels[1] == "125 … 249"
    assert heat.spent[1] == pytest.approx([COST, COST])
    assert heat.spent.sum() == pytest.approx(2 * COST)


def test_a_domain_of_ten_billion_cells_is_never_listed(small):
    """
    The attributes that no statement named are left out of what is told.
    """
    engine = small.made(domain=VAST)
    count(engine, "x0 < 50 AND x1 < 50 AND x3 = 4")
    count(engine, "x3 < 7 AND x4 = 0", 9)
    cells, whole = seen(small).nearest()
    assert whole
    assert cells[0].labels[-2:] == (("x3", "4"), ("x4", "0"))
    assert seen(small).heat("town", "x4").spent[0, :2] == pytest.approx(
        [engine.budget().rules[0].spent, COST]
    )


def test_curves_end_where_the_ledger_is(small):
    """
    The sum of each user's statements, and the dearest cell; thinned, the last moment stays.
    """
    small.made()
    engine = small.clocked()
    small.now = 1_000_000
    paid = [count(engine, f"age < {age}", within, user=user).cost
            for age, within, user in ((3, 10, "ann"), (4, 9, "bob"), (5, 8, "ann"))]  # fmt: skip
    engine.close()
    policy = policies.load(small.policy)
    with ledger_in_force(small.policy) as (ledger, _):
        every, thin = curves(ledger), curves(ledger, points=1)
    assert len(every.times) == 3
    assert datetime.fromtimestamp(every.times[0], UTC).year == 1970
    assert every.users["ann"] == pytest.approx([paid[0], paid[0], paid[0] + paid[2]])
    assert every.users["bob"] == pytest.approx([0, paid[1], paid[1]])
    assert thin.users == {name: curve[-1:] for name, curve in every.users.items()}
    assert policy.privacy.budget >= every.histories["shared"][-1] >= max(paid)


def test_cells_that_may_pay_nothing_are_at_their_limit(small):
    """
    And no other cell is, for their sake.
    """
    small.made(privacy(cells='[{where: "age = 9", budget: 0}]'))
    cells, _ = seen(small).nearest()
    assert [(cell.labels, cell.limit.share) for cell in cells] == [((("age", "9"),), 1.0)]
