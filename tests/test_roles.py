"""Every key of a policy and of users.yaml that says who may do or spend what is honoured.

Through the engine, on a small dataset, without noise; each test is for one key.
"""

import re
from contextlib import suppress
from datetime import UTC, datetime

import pytest

from proxy.errors import (
    InsufficientBudgetError,
    InsufficientPrivilegeError,
    StateError,
)
from proxy.inference import family
from proxy.inference.accounting import UNIT
from tests.searches import share
from tests.small import DOMAIN, Small, count

COST = 0.2187254167320134  # of the first count within 10, with confidence 90%


@pytest.fixture
def small(tmp_path):
    """A folder with a few people."""
    small = Small(tmp_path)
    small.data((0, "a", 5), (1, "b", 3), (5, "a", 4), (9, "b", 7))
    return small


def privacy(budget=1, **more):
    """The part ``privacy`` of a policy, as YAML."""
    keys = {"budget": budget, "unit": "row"} | more
    return f"privacy: {{{', '.join(f'{key}: {value}' for key, value in keys.items())}}}\n"


def refused(engine, match, *args, **more):
    """Ask for a count that must be refused; return the error."""
    with pytest.raises(InsufficientBudgetError, match=match) as caught:
        count(engine, *args, **more)
    return caught.value


@pytest.mark.slow
def test_budget_ends_what_cells_pay(small):
    """
    Two counts fit 0.5, a third does not; one of people who paid once still fits.
    """
    engine = small.made(privacy(0.5))
    assert count(engine).cost == pytest.approx(COST)
    count(engine, "age < 5")
    error = refused(engine, "the budget of the cells has left", "age < 3", 9)
    assert error.spent == pytest.approx(2 * COST)
    assert error.left == pytest.approx(0.5 - 2 * COST)
    count(engine, "age >= 5", 9)


def test_cells_have_smaller_budgets_where_the_condition_is_true(small):
    """
    A count with one of these cells in it is refused, another not.
    """
    engine = small.made(privacy(cells='[{where: "age < 2", budget: 0.1}]'))
    assert refused(engine, "where age < 2", "age < 4").left == pytest.approx(0.1)
    assert count(engine, "age BETWEEN 2 AND 4").left == pytest.approx(0.1)
    names = [rule.name for rule in engine.budget().rules]
    assert names == ["the budget of the cells", "the budget of the cells where age < 2"]


@pytest.mark.slow
def test_a_cell_that_is_past_a_newer_budget_stops_only_what_charges_it(small):
    """
    After a steward has lowered the budget of some cells below what they paid.
    """
    from proxy.steward import apply

    count(small.made(privacy()))
    small.write(privacy(cells='[{where: "age < 2", budget: 0.1}]'))
    apply(small.policy)
    engine = small.engine()
    assert engine.budget().rules[1].left == 0
    assert refused(engine, "where age < 2", "age < 2", 9).left == 0
    assert count(engine, "age = 9", 9).rows == [(7,)]


def test_guards_cap_every_cell(small):
    """
    ln(1/(1 - 0.95))/(5 - 0 + 1) = 0.499.
    """
    guards = '[{claim: "COUNT(*) BETWEEN 0 AND 5", for_each: [age], confidence: 0.95}]'
    engine = small.made(privacy(guards=guards))
    count(engine)
    count(engine, "age < 5")
    error = refused(engine, "the guard COUNT", "age < 3", 9)
    assert error.left == pytest.approx(0.49928871 - 2 * COST)


@pytest.mark.slow
def test_unit_max_rows_divides_what_a_row_may_cost(small):
    """
    A unit of up to 4 rows pays four times: of the budget, of a cap, of a day.
    """
    unit = "{column: unit, max_rows: 4}"
    engine = small.made(privacy(unit=unit))
    assert engine.budget().rules[0].budget == 0.25
    count(engine)
    refused(engine, "the budget of the cells", "age < 5")

    for key, rest, match in (
        ({"per": "{day: 0.8}"}, "", "this day"),
        ({}, "analysts: {ann: {budget: 0.8}}\n", "analyst ann"),
    ):
        other = Small(small.folder / match.replace(" ", "_"))
        other.folder.mkdir()
        other.data((0, "a", 5))
        engine = other.made(privacy(unit=unit, **key), rest)
        assert refused(engine, match, user="ann").left == pytest.approx(0.2)


def test_unit_max_rows_keeps_so_many_rows_of_each_unit(small):
    """
    Two rows of each unit in the data, of which one is kept.
    """
    small.data((0, "a", 8))
    engine = small.made(privacy(unit="{column: unit, max_rows: 1}"))
    assert count(engine).rows == [(4,)]


def test_floor_is_the_least_that_a_measurement_costs(small):
    """
    A count within 10,000 would cost next to nothing.
    """
    engine = small.made(privacy(floor=0.125))
    assert count(engine, within=10_000).cost == pytest.approx(0.125)


@pytest.fixture
def large(monkeypatch):
    """Every family counts one MB, and some bytes."""
    monkeypatch.setattr(family, "LEAST_SIZE", 1_000_000)


def test_history_size_total_bounds_the_history(small, large):
    """
    Two families fit, a third does not, nor three at once.
    """
    engine = small.made(privacy(history_size="{total: 3}"))
    every = "SELECT COUNT(*) FILTER (WHERE age < 3) AS a, COUNT(*) FILTER (WHERE age < 4) AS b, {}"
    with pytest.raises(InsufficientBudgetError, match="history is full: it may hold 3 MB"):
        engine.session().execute(every.format("COUNT(*) FROM people"))
    count(engine, user="ann")
    count(engine, "age < 5", user="bob")
    refused(
        engine, "the history is full: it may hold 3 MB, and this statement adds 1 MB", "age < 3"
    )


def test_history_size_analyst_bounds_what_one_adds(small, large):
    """
    The other goes on.
    """
    engine = small.made(privacy(history_size="{total: 9, analyst: 2}"))
    count(engine, user="ann")
    refused(engine, "the history of ann is full: it may hold 2 MB", "age < 5", user="ann")
    count(engine, "age < 5", user="bob")


@pytest.mark.parametrize(
    ("period", "begins", "ends"),
    [
        ("day", datetime(2024, 6, 3, 12, tzinfo=UTC), datetime(2024, 6, 4, 12, tzinfo=UTC)),
        ("week", datetime(2024, 6, 2, 12, tzinfo=UTC), datetime(2024, 6, 9, 12, tzinfo=UTC)),
    ],
)
def test_per_rations_a_period(small, period, begins, ends):
    """
    Past 0.3 in a day, or a week, nothing; in the next one again.  They begin where the policy's
    time zone says: at noon UTC in Auckland's winter, weeks so on Sunday, which is Monday there.
    """
    small.made(privacy(per=f"{{{period}: 0.3}}"), "timezone: Pacific/Auckland\n").close()
    engine = small.clocked()
    first, last = (int(moment.timestamp()) * 10**6 for moment in (begins, ends))
    for small.now, where in ((first - 1, "true"), (first, "age < 5")):
        count(engine, where)
    small.now = last - 1
    error = refused(engine, f"this {period}", "age < 3", user="bob")
    assert error.left == pytest.approx(0.3 - COST)
    small.now = last
    count(engine, "age < 3", user="bob")


@pytest.mark.parametrize("strategy", ["topup", "paper"])
def test_strategy_says_what_a_better_answer_costs(small, strategy):
    """
    topup: what is missing; paper: what it would cost if nothing were known.
    """
    engine = small.made(privacy(2, strategy=strategy))
    first = count(engine, within=8).cost
    again = count(engine, within=7).cost
    assert (again < first * 0.8) == (strategy == "topup")
    assert (again > first) == (strategy == "paper")


def test_a_cap_rations_what_an_analyst_spends(small):
    """
    Whoever is not listed has none.
    """
    engine = small.made(privacy(), "analysts: {ann: {budget: 0.3}}\n")
    count(engine, user="ann")
    error = refused(engine, "analyst ann", "age < 5", user="ann")
    assert error.left == pytest.approx(0.3 - COST)
    assert count(engine, "age < 5", user="bob").cost > 0


def test_a_cap_of_a_group_counts_who_is_listed_no_more(small):
    """
    Members who come and go do not renew it.
    """
    small.users(
        ann="roles: [analyst], groups: [survey]",
        bob="roles: [analyst], groups: [survey]",
    )
    engine = small.made(privacy(), "groups: {survey: {budget: 0.3}}\n")
    count(engine, "age = 9", user="ann")
    small.users(
        bob="roles: [analyst], groups: [survey]",
        eve="roles: [analyst], groups: [survey]",
    )
    engine.read_users()
    for user in ("bob", "eve"):
        refused(engine, "group survey", "age < 5", user=user)


def test_a_cap_of_a_group_is_spent_by_its_members_together(small):
    """
    The group is in users.yaml.
    """
    small.users(
        ann="roles: [analyst], groups: [survey]",
        bob="roles: [analyst], groups: [survey]",
        eve="roles: [analyst]",
    )
    engine = small.made(privacy(), "groups: {survey: {budget: 0.3}}\n")
    count(engine, user="ann")
    refused(engine, "group survey", "age < 5", user="bob")
    count(engine, "age < 5", user="eve")


@pytest.mark.slow
def test_an_older_connection_pays_only_under_the_users_file_in_force(small):
    """
    It is refused until it looks at the file again, whatever it has paid before; a session that was
    open then stands as it says.
    """
    small.users(ann="roles: [analyst]")
    old = small.made(privacy(), "groups: {survey: {budget: 0.1}}\n")
    session = old.session("ann")
    assert session.execute("SELECT COUNT(*) FROM people WITH UTILITY (100, 0.1)").cost
    small.users(ann="roles: [analyst], groups: [survey]")
    small.engine().close()
    text = "SELECT COUNT(*) FROM people WITH UTILITY (10, 0.1)"
    with pytest.raises(StateError, match=r"another users\.yaml"):
        session.execute(text)
    old.read_users()
    with pytest.raises(InsufficientBudgetError, match="group survey"):
        session.execute(text)


@pytest.mark.parametrize(
    "rest",
    [
        "analysts: {bi: {spend: off}}",
        "groups: {dash: {spend: off}}",
        "analysts: {bi: {budget: 0.9}}\ngroups: {dash: {spend: off}}",
    ],
)
def test_spend_off_infers_only(small, rest):
    """
    Of an analyst, or of a group of theirs: what others paid for is to be had, and nothing else.
    """
    small.users(bi="roles: [analyst], groups: [dash]", ann="roles: [analyst]")
    engine = small.made(privacy(), rest + "\n")
    refused(engine, "bi may only infer", user="bi")
    count(engine, user="ann")
    assert count(engine, user="bi").cost == 0


def test_the_default_utility_of_a_user_is_nearer_than_the_datasets(small):
    """
    And farther than the statement's.
    """
    small.users(ann="roles: [analyst], utility: {half_width: 50, delta: 0.5}")
    engine = small.made(privacy())
    session = engine.session("ann")
    assert session.execute("SELECT COUNT(*) FROM people").answers[0][0].confidence == 0.5
    text = "SELECT COUNT(*) FROM people WITH UTILITY (40, 0.25)"
    assert session.execute(text).answers[0][0].confidence == 0.75


def test_roles_say_who_may_query_and_see_what(small):
    """
    Analysts query and see their own statements; auditors everybody's; stewards the budgets.
    """
    roles = {"ann": "analyst", "bob": "analyst", "sam": "steward", "eve": "auditor"}
    small.users(**{name: f"roles: [{role}]" for name, role in roles.items()})
    engine = small.made(privacy())
    count(engine, user="ann")
    count(engine, "age < 5", user="bob")

    def seen(user):
        shown = engine.session(user).execute("SHOW HISTORY").rows
        table = "SELECT analyst FROM privacy.history"
        assert [row[2:3] for row in shown] == engine.session(user).execute(table).rows
        return [row[2] for row in shown]

    assert [seen(user) for user in ("ann", "bob", "sam", "eve")] == [
        ["ann"],
        ["bob"],
        [],
        ["ann", "bob"],
    ]
    for user in ("sam", "eve"):
        with pytest.raises(InsufficientPrivilegeError, match=f"{user} is no analyst"):
            count(engine, user=user)
        spent = engine.session(user).execute("SELECT spent FROM privacy.budget").rows
        assert spent == engine.session("ann").execute("SELECT spent FROM privacy.budget").rows


def test_without_a_users_file_a_name_is_an_analysts(small):
    """
    Whoever runs the process and names nobody sees everything; who takes a name, what it may see.
    """
    engine = small.made(privacy())
    count(engine, user="ann")
    assert len(engine.session().execute("SHOW HISTORY").rows) == 1
    assert engine.session("bob").execute("SHOW HISTORY").rows == []


def test_whoever_is_in_neither_file_is_refused(small):
    """
    Where there is a users file; the policy's own analysts are known.
    """
    small.users(ann="roles: [analyst]", bob="roles: [analyst], datasets: [others]")
    engine = small.made(privacy(), "analysts: {bi: {budget: 0.5}}\n")
    with pytest.raises(InsufficientPrivilegeError, match='no user "mallory"'):
        engine.session("mallory")
    with pytest.raises(InsufficientPrivilegeError, match="may not use the dataset people"):
        engine.session("bob")
    assert count(engine, user="bi").cost > 0
    assert count(engine).cost == 0


# --- histories of one's own ----------------------------------------------------------------------

OWN = "analysts: {ann: {budget: 0.4, history: own}}\n"
CAPPED = "analysts: {ann: {budget: 0.4}}\n"


def test_the_budget_of_an_own_history_is_set_aside(small):
    """
    0.4 of 1 for her, 0.6 for all others: neither can spend what is the other's.
    """
    engine = small.made(privacy(), OWN)
    assert engine.budget("ann").rules[0].budget == pytest.approx(0.4)
    assert engine.budget().rules[0].budget == pytest.approx(0.6)
    assert count(engine, user="ann").cost == count(engine, user="bob").cost > 0
    refused(engine, "the budget of the cells", "age < 5", user="ann")
    count(engine, "age < 5", user="bob")
    assert count(engine, user="ann").cost == 0


def test_every_limit_is_shared_out(small, large):
    """
    Budgets of cells, guards, sizes and periods: each history has its part, 0.4 or 0.6 of them.
    """
    engine = small.made(privacy(**RULES["cells"], history_size="{total: 1}"), OWN)
    hers, others = engine.budget("ann").rules, engine.budget().rules
    whole = [1, 0.5, 0.80471896]
    assert [rule.budget for rule in hers] == pytest.approx([0.4 * each for each in whole])
    assert [rule.budget for rule in others] == pytest.approx([0.6 * each for each in whole])
    ages = "SELECT age, COUNT(*) FROM people GROUP BY age WITH UTILITY (1000, 0.5)"
    for user, part in (("ann", 0.4), ("bob", 0.6)):
        with pytest.raises(InsufficientBudgetError, match=f"full: it may hold {part} MB"):
            engine.session(user).execute(ages)


def test_a_period_is_shared_out(small):
    """
    What others spend in a day leaves her part of it alone, and the reverse.
    """
    engine = small.made(privacy(2, per="{day: 0.6}"), OWN.replace("0.4", "0.8"))
    assert refused(engine, "this day", within=8, user="ann").left == pytest.approx(0.24)
    count(engine, user="ann")
    refused(engine, "this day", "age < 5", user="ann")
    count(engine, user="bob")
    assert refused(engine, "this day", "age < 5").left == pytest.approx(0.36 - COST)


@pytest.mark.parametrize(
    "before, after, payer, asker",
    [
        ("", OWN, None, "ann"),  # a part is set aside when all of it has been spent
        (CAPPED, OWN, "ann", None),  # so it is when she has spent more than that
        (CAPPED, "", "ann", None),  # she gets a history of her own with nothing in it
    ],
)
def test_a_period_does_not_begin_again_with_another_policy(small, before, after, payer, asker):
    """
    Whoever's statements have spent the budget of a day, under shares or histories that were others
    then: no history spends it again.
    """
    from proxy.steward import apply

    small.users(ann="roles: [analyst]")
    rules = {"per": "{day: 0.3}"}
    engine = small.made(privacy(**rules), before)
    assert count(engine, user=payer).cost == pytest.approx(COST)
    engine.close()
    small.write(privacy(**rules | ({} if after else {"history": "own"})), after)
    apply(small.policy, accept_weaker=True)
    error = refused(small.engine(), "this day", "age < 5", user=asker)
    assert error.left <= 0.3 - COST + 1e-9


def test_a_group_has_one_history_of_its_own(small):
    """
    Its members infer from one another's answers, others do not.
    """
    small.users(
        ann="roles: [analyst], groups: [survey]",
        bob="roles: [analyst], groups: [survey]",
        eve="roles: [analyst]",
    )
    engine = small.made(privacy(), "groups: {survey: {budget: 0.3, history: own}}\n")
    count(engine, user="ann")
    assert count(engine, user="bob").cost == 0
    assert count(engine, user="eve").cost > 0
    refused(engine, "the budget of the cells", "age < 5", user="bob")


def test_privacy_history_own_is_the_default_of_analysts(small):
    """
    Who is listed has her budget to herself, who is not listed has none, who has no name shares.
    """
    engine = small.made(privacy(history="own"), "analysts: {ann: {budget: 0.3}}\n")
    count(engine, user="ann")
    assert refused(engine, "the budget of the cells", user="bob").left == 0
    assert count(engine).cost > 0


def test_a_groups_cap_does_not_ration_whom_it_does_not_serve(small):
    """
    Her refusals would tell what the others of the group have spent, and theirs what she has.
    """
    small.users(ann="roles: [analyst], groups: [survey]", bob="roles: [analyst], groups: [survey]")
    engine = small.made(privacy(), OWN + "groups: {survey: {budget: 0.3}}\n")
    count(engine, user="bob")
    count(engine, user="ann")
    error = refused(engine, "group survey", "age < 5", user="bob")
    assert error.left == pytest.approx(0.3 - COST)


GUARDS = '[{claim: "COUNT(*) BETWEEN 0 AND 1", for_each: [age], confidence: 0.8}]'
RULES = {
    "budget": {},
    "cells": {"cells": '[{where: "age < 2", budget: 0.5}]', "guards": GUARDS},
    "day": {"per": "{day: 0.9}"},
    "history_size": {"history_size": "{total: 8}"},
}
STATEMENTS = [
    "SELECT COUNT(*) FROM people WITH UTILITY (20, 0.1)",
    "EXPLAIN UTILITY SELECT town, COUNT(*) FROM people GROUP BY town WITH UTILITY (30, 0.1)",
    "SHOW BUDGET",
    "SELECT COUNT(*) FROM people WHERE age < 5 WITH UTILITY (30, 0.1)",
    "SELECT town, COUNT(*) FROM people GROUP BY town WITH UTILITY (30, 0.1)",
    "SELECT COUNT(*) FROM people WHERE age > 2 WITH UTILITY (1, 0.1)",
    "SELECT * FROM privacy.budget",
    'SELECT "sequence", analyst, statement, cost, numbers FROM privacy.history',
    "SELECT COUNT(*) FROM people WHERE age > 2 WITH UTILITY (15, 0.1)",
    "SELECT COUNT(*) FROM people WHERE age > 3 WITH UTILITY (15, 0.1)",
    "SELECT COUNT(*) FROM people WHERE age > 4 WITH UTILITY (15, 0.1)",
    "SHOW HISTORY",
]


def told(engine, user, before=lambda: None):
    """All that statements tell a user, refusals too; the clock is left out."""
    session, found = engine.session(user), []
    for text in STATEMENTS:
        before()
        try:
            result = session.execute(text)
            found.append((repr(result.rows), result.answers, result.cost, result.left))
        except InsufficientBudgetError as error:
            found.append(str(error))
    return re.sub(r"datetime\([^)]*\)", "<time>", repr(found))


@pytest.mark.slow
@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize(("user", "others"), share(1, [("ann", ("bob", "cat")), ("bob", ("ann",))]))
def test_a_history_shows_nothing_of_the_others(small, rules, user, others):
    """
    Rows, intervals, costs, what is left, refusals, EXPLAIN, SHOW and the relations of schema
    privacy are the same, whether others ask between her statements or nobody does.
    """
    rest = "analysts: {ann: {budget: 0.4, history: own}, cat: {budget: 0.3, history: own}}\n"
    small.made(privacy(**RULES[rules]), rest).close()
    twin = Small(small.folder / "twin")
    twin.folder.mkdir()
    twin.data((0, "a", 5), (1, "b", 3), (5, "a", 4), (9, "b", 7))
    alone = told(twin.made(privacy(**RULES[rules]), rest), user)
    engine, asked = small.engine(), iter(range(100))

    def another():
        for other in others:
            with suppress(InsufficientBudgetError):
                count(engine, f"age <> {next(asked) % 10}", 20, other)

    assert told(engine, user, another) == alone
    assert {line.user for line in engine.history()} == {user, *others}


@pytest.mark.slow
def test_a_running_engine_refuses_after_another_policy_was_applied(small):
    """
    Even what it could infer: the policy may be stricter, and cells mean something else.
    """
    from proxy.steward import apply

    engine = small.made(privacy())
    count(engine)
    small.write(privacy(0.5))
    apply(small.policy)
    for within in (10, 5):
        with pytest.raises(StateError, match="another policy"):
            count(engine, within=within)
    with pytest.raises(StateError, match="another policy"):
        engine.budget()
    assert small.engine().budget().rules[0].budget * UNIT == UNIT / 2


@pytest.mark.slow
def test_a_large_group_by_does_not_fill_the_history(small):
    """
    Its groups are one family: 5,836 of them take some 0.6 MB; a refusal says in numbers what was
    asked, is kept and is left.
    """
    domain = DOMAIN.replace("range: [0, 9]", "range: [0, 5835]")
    privacy = "privacy: {budget: 1, unit: row, history_size: {total: 2}}\n"
    engine = small.made(privacy, domain=domain)
    text = "SELECT age, COUNT(*) FROM people GROUP BY age WITH UTILITY ({}, 0.05)"
    for within in (4000, 3000, 2000):
        assert engine.session().execute(text.format(within)).cost < 0.01
    with pytest.raises(InsufficientBudgetError, match="the history is full: it may hold 2 MB") as e:
        engine.session().execute(text.format(1000))
    each = 0.02 + 5836 * (4 + 100) / 1e6
    assert e.value.requested == pytest.approx(each)
    assert (e.value.spent, e.value.left) == pytest.approx((3 * each, 2 - 3 * each))
    assert "privacy.history_size" in e.value.hint
    assert count(engine, within=900).cost > 0
