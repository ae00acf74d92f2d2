"""The paper's experiments: the workload is the paper's, and each system keeps its promise."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.cli import run
from proxy.experiment import study, timings
from proxy.experiment.blue import blue
from proxy.experiment.systems import (
    Baseline,
    Improved,
    Inference,
    Lumped,
    Product,
    enough,
    strategy_of,
    usual_alpha,
)
from proxy.experiment.workload import (
    STAND_INS,
    TRACE_HEAD,
    Request,
    lumped,
    lumps,
    ranges,
    requests,
    runs,
    searches,
    trace,
    tree,
)
from proxy.inference.family import Family
from proxy.inference.query import Factor, LinearQuery
from proxy.inference.space import Space
from tests.searches import share

CELLS = np.array([7, 1, 5, 30], dtype=np.int64)


def rng(seed=0):
    return np.random.default_rng(seed)


def request(*coefficients, half_width=50.0, delta=0.2):
    return Request(np.array(coefficients, dtype=np.int64), half_width, delta)


# --- the workload --------------------------------------------------------------------------------


def test_the_stand_in_of_the_trace_has_the_published_figures():
    """
    65,536 cells, total 25,714, 63,318 of them empty, non-increasing, its first ten values.
    """
    counts = trace(rng())
    assert len(counts) == 65_536
    assert counts.sum() == 25_714
    assert (counts == 0).sum() == 63_318
    assert (np.diff(counts) <= 0).all()
    assert tuple(counts[:10]) == TRACE_HEAD


def test_the_stand_in_of_the_search_logs_has_the_published_figures():
    """
    32,768 cells, total 335,889, 17,082 of them empty, the first 1,216 among them, at most 496.
    """
    counts = searches(rng())
    assert len(counts) == 32_768
    assert counts.sum() == 335_889
    assert (counts == 0).sum() == 17_082
    assert not counts[:1_216].any()
    assert counts.max() == 496


@pytest.mark.parametrize("name", STAND_INS)
def test_a_seed_gives_one_stand_in(name):
    """
    The same seed the same counts, another seed others.
    """
    make = STAND_INS[name]
    assert (make(rng(3)) == make(rng(3))).all()
    assert (make(rng(3)) != make(rng(4))).any()


def test_queries_follow_the_paper():
    """
    One to ten throws, a tenth each; nine in ten of them on the first ten cells; widths in range.
    """
    asked = requests(65_536, 4_000, (1, 1000), 0.2, rng())
    throws = np.array([r.coefficients.sum() for r in asked])
    assert set(throws) == set(range(1, 11))
    assert abs(throws.mean() - 5.5) < 5 * math.sqrt(8.25 / 4_000)
    first = sum(r.coefficients[:10].sum() for r in asked) / throws.sum()
    assert abs(first - 0.9) < 5 * math.sqrt(0.09 / throws.sum())
    widths = np.array([2 * r.half_width for r in asked])
    assert widths.min() >= 1
    assert widths.max() <= 1000
    assert abs(widths.mean() - 500.5) < 5 * 289 / math.sqrt(4_000)


def test_sensitivity_is_the_largest_coefficient():
    """
    [2 0 1] moves by 2 with one record.
    """
    assert request(2, 0, 1).sensitivity == 2


@given(st.integers(1, 5_000), st.integers(0, 10))
@settings(max_examples=30, deadline=None)
def test_lumps_leave_nothing_out(cells, seed):
    """
    Lumped counts have the total of the counts, and agree with them on the first cells.
    """
    counts = rng(seed).integers(0, 9, cells)
    found = lumped(counts)
    assert found.sum() == counts.sum()
    assert len(found) == len(lumps(cells))
    assert (found[: min(128, cells)] == counts[: min(128, cells)]).all()


def test_the_tree_of_eight_cells_has_its_fifteen_nodes():
    """
    One root, two halves, four quarters, eight cells; each level covers every cell once.
    """
    levels = tree(8)
    assert [len(level) for level in levels] == [1, 2, 4, 8]
    assert all((level.sum(axis=0) == 1).all() for level in levels)
    assert (levels[2][1] == [0, 0, 1, 1, 0, 0, 0, 0]).all()


def test_the_tree_of_a_trace_keeps_the_way_to_the_first_cells():
    """
    17 levels; the root, then two nodes a level, then all that lie within the first 128 cells.
    """
    levels = tree(65_536)
    assert [len(level) for level in levels] == [1, *[2] * 9, 2, 4, 8, 16, 32, 64, 128][:17]
    assert levels[0].all()
    assert (levels[-1][:, :128] == np.eye(128)).all()
    assert levels[1][0].sum() + levels[1][1].sum() == len(lumps(65_536))


# --- the systems ---------------------------------------------------------------------------------


def test_the_improved_baseline_spends_the_papers_alpha():
    """
    [2 0 1 0] within 50 but for 0.2 costs its dearest cell 2·ln 5/50, and the others their share.
    """
    system = Improved(CELLS, 1.0, rng())
    assert system.ask(request(2, 0, 1, 0)) is not None
    weight = math.log(5) / 50
    assert np.allclose(system.spent, [2 * weight, 0, weight, 0])
    assert system.cost == pytest.approx(2 * weight)


@pytest.mark.parametrize("make", [Improved, Inference, Product])
def test_no_cell_pays_more_than_the_budget(make):
    """
    A query that would cost more is refused, costs nothing, and a cheaper one is still answered.
    """
    system = make(CELLS, 0.1, rng())
    assert system.ask(request(1, 1, 0, 0, half_width=30)) is not None
    cost = system.cost
    assert system.ask(request(1, 0, 0, 0, half_width=20)) is None
    assert system.cost == cost <= 0.1
    assert system.ask(request(0, 0, 1, 0, half_width=20)) is not None
    assert system.cost <= 0.1


def test_the_baseline_pays_also_for_what_is_not_good_enough():
    """
    Its alpha is fixed: a request for more is paid for and does not count.
    """
    system = Baseline(CELLS, 1.0, rng(), alpha=0.01)
    assert system.ask(request(1, 0, 0, 0, half_width=500)) is not None
    assert system.ask(request(1, 0, 0, 0, half_width=100)) is None
    assert system.cost == pytest.approx(0.02)


def test_the_usual_alpha_meets_the_average_request():
    """
    Sensitivities 1 and 3, half-widths 50 and 150: 2·ln 5/100.
    """
    asked = [request(1, 0), request(3, 1, half_width=150.0)]
    assert usual_alpha(asked) == pytest.approx(2 * math.log(5) / 100)


@pytest.mark.parametrize("make", [Inference, Product])
def test_what_follows_from_the_history_is_free(make):
    """
    The sum of two measured cells, twice as wide; a cell never asked for costs.
    """
    system = make(CELLS, 1.0, rng())
    first, second = (system.ask(request(*cells)) for cells in ([1, 0, 0, 0], [0, 1, 0, 0]))
    cost = system.cost
    assert system.ask(request(1, 1, 0, 0, half_width=150)) == pytest.approx(first + second)
    assert system.cost == cost
    system.ask(request(1, 1, 1, 0, half_width=10))
    assert system.cost > cost


@pytest.mark.parametrize("make", [Inference, Product])
def test_an_answer_serves_again_only_within_its_own_width(make):
    """
    What was measured within 50 is free within 50, and costs within 48.
    """
    system = make(CELLS, 1.0, rng())
    answer = system.ask(request(1, 0, 0, 0, half_width=50))
    cost = system.cost
    assert system.ask(request(1, 0, 0, 0, half_width=50)) == answer
    assert system.cost == cost
    system.ask(request(1, 0, 0, 0, half_width=48))
    assert system.cost > cost


def test_the_papers_estimate_is_that_of_the_plain_formula():
    """
    Theorem 3.1 on random histories, whatever their rank.
    """
    draws = rng(5)
    system = Inference(CELLS, math.inf, rng(6))
    for _ in range(12):
        asked = request(*draws.integers(0, 3, 3), 0, half_width=float(draws.uniform(1, 9)))
        if asked.coefficients.any():
            system.ask(asked)
    query = request(2, 1, 1, 0, half_width=1e6)
    plain = blue(system._rows, system._weights, system._answers, query.coefficients)
    assert plain.estimable
    assert system.ask(query) == pytest.approx(plain.estimate, rel=1e-9)


def test_ols_weighs_all_answers_alike():
    """
    Of two answers to one query, at whatever cost, it returns the mean.
    """
    system = Inference(CELLS, math.inf, rng(), ordinary=True)
    rows = np.array([[1, 0, 0, 0], [1, 0, 0, 0]])
    system._append(rows, np.array([1.0, 5.0]), np.array([10.0, 20.0]))
    assert system.ask(request(1, 0, 0, 0)) == pytest.approx(15.0)


def test_the_product_returns_whole_answers_with_the_history_it_pays_for():
    """
    Asked for the same thing again it says the same, for nothing.
    """
    system = Product(CELLS, 1.0, rng())
    answer = system.ask(request(1, 1, 1, 1))
    assert answer == round(answer)
    assert system.ask(request(1, 1, 1, 1)) == answer
    assert system.cost == pytest.approx(enough(request(1)), rel=0.05)


def test_a_refusal_leaves_nothing_in_the_products_history():
    """
    What was planned and not paid is taken back.
    """
    system = Product(CELLS, 0.1, rng())
    assert system.ask(request(1, 0, 0, 0, half_width=1)) is None
    assert len(system._history) == 0
    assert system.ask(request(1, 0, 0, 0, half_width=2)) is None


def test_the_products_noise_is_two_sided_geometric():
    """
    Mean 0, variance 1/(2 sinh²(1/2s)), and no draw used twice: 5 standard errors.
    """
    scale, draws = 3.0, 20_000
    noise = np.array(Product(CELLS, 1.0, rng())._sampler.draw(scale, draws))
    variance = 1 / (2 * math.sinh(1 / (2 * scale)) ** 2)
    assert abs(noise.mean()) < 5 * math.sqrt(variance / draws)
    assert abs(noise.var() - variance) < 5 * variance * math.sqrt(5 / draws)
    assert abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) < 5 / math.sqrt(draws)


def test_the_products_noise_is_refined_to_that_of_the_smaller_scale():
    """
    As if it had been drawn so, and the difference has the variance that was given up.
    """
    old, new, draws = 6.0, 3.0, 20_000
    sampler = Product(CELLS, 1.0, rng())._sampler
    first = np.array(sampler.draw(old, draws))
    noise = np.array(sampler.refine(first.tolist(), old, new))
    variance, before = (1 / (2 * math.sinh(1 / (2 * scale)) ** 2) for scale in (new, old))
    assert abs(noise.var() - variance) < 5 * variance * math.sqrt(5 / draws)
    gone = before - variance
    assert abs((first - noise).var() - gone) < 5 * gone * math.sqrt(8 / draws)


def test_runs_are_the_cells_that_no_request_tells_apart():
    """
    Of [1 1 0 0 0] and [0 1 1 0 0]: cells 0, 1, 2, and the last two together.
    """
    assert list(runs([request(1, 1, 0, 0, 0), request(0, 1, 1, 0, 0)])) == [0, 1, 2, 3]


def test_runs_change_no_answer_and_no_cost_of_the_papers_system():
    """
    Ranges of 40 cells, asked of cells and of runs of them, with the same noise.
    """
    counts = rng(1).integers(0, 50, 40)
    asked = ranges(40, 60, (20.0, 400.0), 0.2, rng(2))
    starts = runs(asked)
    plain = Inference(counts, 1.0, rng(3))
    lumped_ = Lumped(Inference(np.add.reduceat(counts, starts), 1.0, rng(3)), starts)
    for each in asked:
        one, other = plain.ask(each), lumped_.ask(each)
        assert (one is None) == (other is None)
        assert one is None or one == pytest.approx(other, abs=1e-6)
    assert plain.cost == pytest.approx(lumped_.cost)


def test_ranges_are_uniform():
    """
    A < b, each pair as likely as any other: a third of the axis long in the mean.
    """
    lengths = [r.coefficients.sum() for r in ranges(1_000, 2_000, (1, 1000), 0.2, rng())]
    assert min(lengths) >= 1
    assert abs(np.mean(lengths) - 1001 / 3) < 5 * 236 / math.sqrt(2_000)


def test_what_a_strategy_cannot_pay_is_asked_for_itself():
    """
    Pieces of a range of 4 cells need more than is left; the range itself does not.
    """
    pieces = Product(CELLS, 0.04, rng(), strategy_of("pieces"))
    plain = Product(CELLS, 0.04, rng())
    wide = request(1, 1, 1, 1, half_width=50)
    assert plain.ask(wide) is not None
    assert pieces.ask(wide) is not None
    assert pieces.cost <= 0.04


def test_rows_of_a_family_are_answered_in_the_familys_grid():
    """
    Of [2 0 0 4] split into its cells, in steps of 2: 7 and 60.
    """
    system = Product(CELLS, 1.0, rng())
    whole = LinearQuery.count(Space((4,)), Factor((0,), np.array([2, 0, 0, 4])))
    labels = np.array([0, -1, -1, 1], dtype=np.int32)
    assert list(system._exact(Family(whole, (0,), labels, 2))) == [7, 60]


def test_the_product_answers_in_the_grid_of_the_query():
    """
    [2 0 0 4] is twice [1 0 0 2]: its noise is in steps of 2, its answer near the truth.
    """
    system = Product(CELLS, math.inf, rng())
    answers = [system.ask(request(2, 0, 0, 4, half_width=h)) for h in (9.0, 4.0, 0.5)]
    assert answers[-1] == pytest.approx(2 * 7 + 4 * 30, abs=10)


@pytest.mark.parametrize("make", [Inference, Product])
def test_a_tree_is_paid_for_once_in_every_cell(make):
    """
    At 0.3 it costs 0.3, and then tells every cell.
    """
    system = make(CELLS, math.inf, rng())
    levels = tree(4)
    system.know(levels, 0.3 / len(levels))
    assert system.cost == pytest.approx(0.3)
    assert system.ask(request(0, 1, 1, 0, half_width=200)) is not None
    assert system.cost == pytest.approx(0.3)


# --- the study -----------------------------------------------------------------------------------


def test_metrics_are_those_of_the_definitions():
    """
    Three of four answered, off by half, by one and by two half-widths.
    """
    record = study.Record([True, False, True, True], [0.5, 1.0, 2.0], [1, 1, 2, 3], [0.1] * 4)
    found = record.metrics(4)
    assert found["answer_ratio"] == 0.75
    assert found["reliability"] == pytest.approx(2 / 3)
    assert found["error"] == pytest.approx(3.5 / 6)
    assert found["system_cost"] == 3
    early = record.metrics(2)
    assert (early["answer_ratio"], early["error"], early["system_cost"]) == (0.5, 0.25, 1)


def test_nothing_answered_has_no_reliability():
    """
    A ratio of nothing is none.
    """
    found = study.Record([False], [], [0.0], [0.1]).metrics(1)
    assert (found["answer_ratio"], found["reliability"], found["error"]) == (0, None, None)


@pytest.fixture(scope="module")
def bounded():
    """The bounded setting, 150 queries, two seeds."""
    counts = rng().integers(0, 99, 1_000)
    return [o for seed in range(2) for o in study.study("bounded", counts, 150, seed)]


@pytest.mark.slow
def test_every_interval_is_as_reliable_as_it_says(bounded):
    """
    R_i ≥ 0.8 − 4.75·√(0.16/n) over all seeds: a false alarm in a million.
    """
    for system in study.SYSTEMS:
        mine = [o for o in bounded if o.system == system]
        answered = sum(round(o.answer_ratio * o.queries) for o in mine)
        held = sum(o.reliability * o.answer_ratio * o.queries for o in mine) / answered
        assert held >= 0.8 - 4.75 * math.sqrt(0.16 / answered), system


@pytest.mark.slow
def test_inference_answers_more_and_none_passes_the_budget(bounded):
    """
    As the paper found; with ordinary least squares, less of it.
    """
    ratio = {s: np.mean([o.answer_ratio for o in bounded if o.system == s]) for s in study.SYSTEMS}
    assert min(ratio["paper"], ratio["ours"]) > ratio["ols"] > ratio["improved baseline"]
    assert max(o.system_cost for o in bounded) <= 1


def test_decisions_do_not_depend_on_the_data_or_the_noise():
    """
    R_a and the cost are the same for other counts of as many cells.
    """
    some, others = (
        [
            (o.system, o.answer_ratio, o.system_cost)
            for o in study.study("bounded", counts, 40, seed=3)
        ]
        for counts in (np.zeros(500, dtype=np.int64), rng().integers(0, 99, 500))
    )
    assert some == others


@pytest.mark.slow
def test_without_a_budget_everything_is_answered():
    """
    R_a = 1 for all that allocate; the tree is charged to those that use it.
    """
    found = {o.system: o for o in study.study("unbounded", trace(rng()), 30, 0)}
    for system in ("improved baseline", "ols", "paper", "ours"):
        assert found[system].answer_ratio == 1
    assert found["paper"].system_cost >= 0.3 - 1e-9
    assert found["ours"].system_cost >= 0.3 - 1e-9


@pytest.mark.parametrize("seeds", share(0, [5, 10], 1))
def test_the_bounded_setting_at_full_length(seeds):
    """
    1,000 queries, so many seeds: the improved baseline answers about a fifth, inference about 0.9.
    """
    found = [o for seed in range(seeds) for o in study.study("bounded", trace(rng()), 1000, seed)]
    ratio = {s: np.array([o.answer_ratio for o in found if o.system == s]) for s in study.SYSTEMS}
    assert 0.16 <= ratio["improved baseline"].mean() <= 0.22
    assert 0.87 <= ratio["paper"].mean() <= 0.94
    assert ratio["ours"].mean() >= ratio["paper"].mean() - 0.03
    for outcome in found:
        answered = outcome.answer_ratio * outcome.queries
        assert outcome.reliability >= 0.8 - 4.75 * math.sqrt(0.16 / answered)


# --- the timings ---------------------------------------------------------------------------------


def test_the_papers_solution_is_that_of_the_plain_formula():
    """
    What is timed is what Theorem 3.1 says.
    """
    draws = rng(1)
    rows, weights = timings._rows(draws, 8, 3, 10)
    query = np.array([1.0, 2.0, 0.0])
    plain = blue(rows, weights, np.zeros(8), query)
    assert np.allclose(timings._noise(rows, weights, query), plain.noise)


def test_masses_are_compared_middle_to_middle():
    """
    [1] against [1/4 1/2 1/4]: 1/16 + 1/4 + 1/16.
    """
    assert timings._difference(np.array([1.0]), np.array([0.25, 0.5, 0.25])) == 0.375


def test_exact_inversion_beats_both_approximations():
    """
    Less error than PC and MC on one law of the figure.
    """
    noise = timings._terms(rng(), 200, 50) * 4
    case = timings.Case(noise, {"against": "m"}, ("exact", "pc", "mc"), 20_000)
    error = {o.system: o.error for o in timings._masses(case, 1, 0)}
    assert error["exact"] < 1e-15 < min(error["pc"], error["mc"])


# --- the command ---------------------------------------------------------------------------------

KEYS = ["experiment", "seed", "system", "queries", "answer_ratio", "reliability", "error"]
KEYS += ["system_cost", "seconds"]


def test_the_command_prints_a_list_of_objects(capsys):
    """
    One for each seed and system, with the agreed keys.
    """
    arguments = ["experiment", "bounded", "--queries", "20", "--seed", "1", "--seed", "2", "--json"]
    assert run(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(o["seed"], o["system"]) for o in found] == [
        (seed, system) for seed in (1, 2) for system in study.SYSTEMS
    ]
    assert all(list(o) == KEYS for o in found)
    assert {o["queries"] for o in found} == {20}


def test_a_seed_gives_one_outcome(capsys):
    """
    All but the seconds is the same when it is run again.
    """
    outputs = []
    for _ in range(2):
        assert run(["experiment", "bounded", "--queries", "15", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        outputs.append([{k: v for k, v in o.items() if k != "seconds"} for o in found])
    assert outputs[0] == outputs[1]


def test_every_reports_the_curve(capsys):
    """
    After each 10 of 25 queries, and at the end.
    """
    assert run(["experiment", "bounded", "--queries", "25", "--every", "10", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [o["queries"] for o in found if o["system"] == "ours"] == [10, 20, 25]


def test_counts_come_from_a_file(tmp_path, capsys):
    """
    One count a line, of any number of cells.
    """
    path = tmp_path / "counts.txt"
    path.write_text("5\n0\n12\n")
    assert run(["experiment", "unbounded", "--queries", "5", "--counts", str(path), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(study.SYSTEMS)


@pytest.mark.parametrize("text", ["5\nx\n", "-1\n", "", "1e3\n", "99999999999999999999\n"])
def test_a_file_that_holds_no_counts_is_refused(tmp_path, capsys, text):
    """
    Status 2, and the file is named.
    """
    path = tmp_path / "counts.txt"
    path.write_text(text)
    assert run(["experiment", "bounded", "--counts", str(path)]) == 2
    assert "counts.txt" in capsys.readouterr().err


@pytest.mark.clients  # they need matplotlib
@pytest.mark.parametrize("name", ["bounded", "unbounded", "ranges"])
def test_figures_are_drawn(tmp_path, capsys, name):
    """
    One PNG for each experiment, with its three panels.
    """
    pytest.importorskip("matplotlib")
    folder = tmp_path / "plots"
    arguments = ["experiment", name, "--queries", "10", "--plot", str(folder), "--json"]
    assert run(arguments) == 0
    assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    systems = study.OF_RANGES if name == "ranges" else study.SYSTEMS
    assert [o["system"] for o in json.loads(capsys.readouterr().out)] == list(systems)
