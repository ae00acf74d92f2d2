"""A group that cannot be met costs the others nothing: they are met as if it were not there."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.engine import Engine, init
from tests.engine.conftest import Silent, begin_anew
from tests.searches import share

SIZES = (0, 1, 2, 5, 20, 60, 150, 400, 1000, 3000, 5000)
POLICY = """
dataset: d
source: {{engine: duckdb, path: d.csv}}
max_records: 100000
outside: {outside}
nulls: {nulls}
attributes:
  g: {{values: [{values}]}}
measures:
  x: {{clip: [0, 100], quantum: 1}}
privacy: {{budget: {budget}, unit: row{cells}}}
utility: {{half_width: 100, delta: 0.05}}
"""
NUMBERS = {"AVG(x)": "(5, 0.05)", "COUNT(*)": "(5 PERCENT, 0.05)", "SUM(x)": "(10 PERCENT, 0.05)"}
NOT_TOLD = "what cannot be told from 0 is not met"


def made(folder, sizes, values, *, outside="drop", nulls="drop", budget=1, cells=""):
    """An engine without noise, each of whose groups has so many records."""
    rows = [f"{name},{20 + i % 41}" for name, size in sizes.items() for i in range(size)]
    (folder / "d.csv").write_text("\n".join(["g,x", *rows]) + "\n")
    text = POLICY.format(
        outside=outside, nulls=nulls, values=", ".join(values), budget=budget, cells=cells
    )
    (folder / "d.yaml").write_text(text)
    init(folder / "d.yaml")
    return Engine.open(folder / "d.yaml", sampler=Silent())


def by_group(engine, number, where="true", utility=None):
    """Ask a number of every group, on a ledger of its own; return the result and its groups."""
    begin_anew(engine)
    text = f"SELECT g, {number} FROM d WHERE {where} GROUP BY g WITH UTILITY "
    result = engine.session().execute(text + (utility or NUMBERS[number]))
    pairs = zip(result.rows, result.answers, strict=True)
    return result, {row[0]: (row[1], answer) for row, (answer,) in pairs}


@pytest.fixture(scope="module", params=share(1, [20, 1, 100]))
def engine(request, tmp_path_factory):
    """Groups of many sizes, under budgets from one that few can be met with to one for most."""
    sizes = {f"n{size}": size for size in SIZES}
    return made(tmp_path_factory.mktemp("d"), sizes, sizes, budget=request.param)


@pytest.mark.slow
@settings(max_examples=15)
@given(chosen=st.sets(st.sampled_from(SIZES), min_size=1), number=st.sampled_from(sorted(NUMBERS)))
def test_what_cannot_be_met_costs_the_others_nothing(engine, chosen, number):
    """
    Whatever the sizes: leave out by WHERE the groups that were not met, and the others cost at
    least five sixths of what they cost beside them, and are the same.
    """
    names = [f"n{size}" for size in sorted(chosen)]
    listed = ", ".join(f"'{name}'" for name in names)
    result, groups = by_group(engine, number, f"g IN ({listed})")
    met = [name for name in names if good(number, *groups[name])]
    assert len(met) == len(names) or result.notices
    if not met:
        return
    kept = ", ".join(f"'{name}'" for name in met)
    alone, others = by_group(engine, number, f"g IN ({kept})")
    assert alone.notices == ()
    for name in met:
        assert groups[name][1].cost <= 1.2 * others[name][1].cost
        assert groups[name][0] == pytest.approx(others[name][0])
    for name in {*names} - {*met}:
        if groups[name][1].low <= 0 or groups[name][0] is None:  # not told from 0
            assert groups[name][1].cost <= 1.2 * alone.cost


def good(number, value, answer):
    """Return whether a number is as good as NUMBERS asks for."""
    half = (answer.high - answer.low) / 2
    if number == "AVG(x)":
        return value is not None and half <= 5 * (1 + 1e-6)
    share = 0.05 if number == "COUNT(*)" else 0.1
    return half <= share * abs(answer.estimate) * (1 + 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "values, rules",
    [
        ("abcde", {}),
        ("abcd", {"nulls": "group"}),
        ("abcd", {"outside": "group"}),
    ],
)
@pytest.mark.parametrize("budget", share(1, [1, 20, 1000]))
def test_a_group_of_nobody_is_null(tmp_path, values, rules, budget):
    """
    However it came to be declared, and whatever the budget: NULL, its mean anywhere in the clip,
    and a notice that says so.  The statement costs at most a fifth more than without it.
    """
    sizes = dict.fromkeys("abcd", 5000)
    (tmp_path / "with").mkdir()
    engine = made(tmp_path / "with", sizes, values, budget=budget, **rules)
    result, groups = by_group(engine, "AVG(x)")
    (notice,) = result.notices
    assert "for 1 of 5 groups" in notice
    assert NOT_TOLD in notice
    value, answer = groups.pop("e" if "e" in values else None)
    assert value is None
    assert (math.isnan(answer.estimate), answer.low, answer.high) == (True, 0, 100)
    assert all(answer.high - answer.low <= 10 for _, answer in groups.values())
    engine.close()
    (tmp_path / "without").mkdir()
    engine = made(tmp_path / "without", sizes, "abcd", budget=budget)
    alone, others = by_group(engine, "AVG(x)")
    assert alone.notices == ()
    assert result.cost <= 1.2 * alone.cost
    assert [a.cost for _, a in groups.values()] == pytest.approx(
        [a.cost for _, a in others.values()]
    )
    engine.close()


@pytest.mark.slow
def test_asked_again_nothing_changes_for_nothing(engine):
    """
    After groups of which some are met, some not and some NULL: the same rows, free.
    """
    for number, utility in NUMBERS.items():
        begin_anew(engine)
        text = f"SELECT g, {number} FROM d GROUP BY g WITH UTILITY {utility}"
        first, again = (engine.session().execute(text) for _ in range(2))
        assert first.cost > 0
        assert (again.cost, again.rows) == (0, first.rows)
        assert again.notices


def test_a_group_whose_cells_have_less_budget_is_left_out(tmp_path):
    """
    The cells of b may pay less than its mean costs: it is as good as the first look, the others
    are met, and the notice says what stopped b.
    """
    cells = ", cells: [{where: \"g = 'b'\", budget: 0.015}]"
    engine = made(tmp_path, dict.fromkeys("abc", 3000), "abc", cells=cells)
    result, groups = by_group(engine, "AVG(x)")
    (notice,) = result.notices
    assert "for 1 of 3 groups: refused" in notice
    assert "where g = 'b'" in notice
    assert groups["a"][1].high - groups["a"][1].low <= 10
    assert groups["b"][0] is None
    assert groups["b"][1].cost <= 0.015
    engine.close()


def test_beside_a_count_that_must_be_met_a_mean_is_left_out(engine):
    """
    A count within a half_width is met or refused; the means of the same groups are met as far as
    the budget goes.
    """
    begin_anew(engine)
    text = "SELECT g, COUNT(*) AS n, AVG(x) FROM d GROUP BY g WITH UTILITY (5, 0.05), n (50, 0.05)"
    result = engine.session().execute(text)
    for (_, n, mean), (count, average) in zip(result.rows, result.answers, strict=True):
        assert count.high - count.low <= 100
        assert (n >= 3000) <= (average.high - average.low <= 10)
        assert (mean is None) <= (n < 400)
