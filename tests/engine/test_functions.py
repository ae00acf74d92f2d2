"""What the outer SQL makes of released numbers has an interval and a source, or says why not."""

import math
import sys

import pytest

from proxy.engine import Engine, init
from proxy.engine.functions import cells, drawing
from proxy.engine.functions.digits import ends
from proxy.inference.steps import STEPS
from tests.engine.conftest import begin_anew

POLICY = """
dataset: d
source: {engine: duckdb, path: d.csv}
max_records: 100000
outside: drop
nulls: drop
attributes:
  g: {values: [a, b, c]}
  s: {values: [x, y]}
  k: {type: integer, range: [0, 9]}
  e: {type: integer, edges: [0, 5, 10]}
measures:
  w: {clip: [0, 10], quantum: 1}
privacy: {budget: 60, unit: row}
"""
RECORDS = [
    (g, "xy"[i % 3 == 0], i % 10, i % 10, i % 8)
    for g, count in (("a", 400), ("b", 60))
    for i in range(count)
]
U = " WITH UTILITY (5, 0.1)"
N = "(SELECT g, COUNT(*) AS n, SUM(w) AS w FROM d GROUP BY g) t"


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """Two groups, and one of nobody."""
    folder = tmp_path_factory.mktemp("d")
    lines = ["g,s,k,e,w", *(",".join(map(str, record)) for record in RECORDS)]
    (folder / "d.csv").write_text("\n".join(lines) + "\n")
    (folder / "d.yaml").write_text(POLICY)
    init(folder / "d.yaml")
    return folder / "d.yaml"


@pytest.fixture(scope="module")
def engine(policy):
    """An engine with the real noise."""
    engine = Engine.open(policy)
    yield engine
    engine.close()


def session(engine):
    """A session on a ledger of its own."""
    begin_anew(engine)
    return engine.session()


def only(result):
    """The answer of a result of one number."""
    ((answer,),) = result.answers
    return answer


def same(one, two, tolerance=1e-6):
    return (one.low, one.high) == pytest.approx((two.low, two.high), abs=tolerance)


# --- linear -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "computed, asked",
    [
        (f"SELECT SUM(n) FROM {N}", "SELECT COUNT(*) FROM d"),
        (f"SELECT SUM(n) FROM {N} WHERE g <> 'c'", "SELECT COUNT(*) FROM d WHERE g <> 'c'"),
        (f"SELECT 3 * SUM(w) - 2 FROM {N}", "SELECT 3 * SUM(w) - 2 FROM d"),
        (
            "SELECT x - y FROM (SELECT COUNT(*) FILTER (WHERE s = 'x') AS x,"
            " COUNT(*) FILTER (WHERE s = 'y') AS y FROM d) t",
            "SELECT COUNT(*) FILTER (WHERE s = 'x') - COUNT(*) FILTER (WHERE s = 'y') FROM d",
        ),
        (
            f"SELECT SUM(CASE WHEN g = 'a' THEN n ELSE -n END) FROM {N}",
            "SELECT SUM(CASE WHEN g = 'a' THEN 1 ELSE -1 END) FROM d",
        ),
        (
            "SELECT (SELECT COUNT(*) FROM d WHERE g = 'a')"
            " + (SELECT COUNT(*) FROM d WHERE g = 'b')",
            "SELECT COUNT(*) FROM d WHERE g IN ('a', 'b')",
        ),
        (
            f"SELECT t FROM (SELECT g, SUM(n) OVER (ORDER BY g) AS t FROM {N}) u WHERE g = 'b'",
            "SELECT COUNT(*) FROM d WHERE g < 'c'",
        ),
        (f"SELECT AVG(n) FROM {N}", "SELECT COUNT(*) / 3.0 FROM d"),
    ],
)
def test_a_linear_combination_is_what_the_same_number_is_asked_directly(engine, computed, asked):
    """
    For nothing, from the same history: the same interval; but for rounding, and the ends that only
    the number itself may have.
    """
    ask = session(engine)
    answer = only(ask.execute(computed + U))
    direct = only(ask.execute(f"{asked} WITH UTILITY (3000, 0.1)"))
    assert (answer.source, direct.source, direct.cost) == ("derived", "inferred", 0)
    assert answer.confidence == direct.confidence
    assert same(answer, direct, 0.01)
    assert answer.low <= answer.estimate <= answer.high
    assert answer.cost > 0


def test_a_total_of_groups_is_narrower_than_the_sum_of_their_intervals(engine):
    """
    By the law of the sum: of three of half-width 5 less than 15.
    """
    answer = only(session(engine).execute(f"SELECT SUM(n) FROM {N}{U}"))
    assert 10 < answer.high - answer.low < 24


def test_numbers_that_were_met_in_steps_may_miss_in_each(silent):
    """
    A total of groups within 5 PERCENT: its law holds with the part of delta that a step has.
    """
    ask = session(silent)
    answer = only(ask.execute(f"SELECT SUM(n) FROM {N} WITH UTILITY (5 PERCENT, 0.1)"))
    direct = only(ask.execute(f"SELECT COUNT(*) FROM d WITH UTILITY (3000, {0.1 / STEPS})"))
    assert (answer.confidence, direct.source) == (0.9, "inferred")
    assert same(answer, direct, 0.01)


# --- ratios -------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["", " WHERE g = 'b'", " WHERE k = 3 AND g = 'b'"])
def test_a_sum_over_a_count_is_a_mean(silent, where):
    """
    As AVG from the same history, each of whose steps may miss its part of delta.
    """
    ask = session(silent)
    answer = only(ask.execute(f"SELECT SUM(w) * 1.0 / COUNT(*) FROM d{where}{U}"))
    delta = 0.1 * STEPS
    mean = only(ask.execute(f"SELECT AVG(w) FROM d{where} WITH UTILITY (10, {delta})"))
    assert (answer.source, mean.source, mean.cost) == ("derived", "inferred", 0)
    assert same(answer, mean, 0.02 * max(answer.high - answer.low, 0.01))
    assert 0 <= answer.low <= answer.high <= 10


def test_shares_of_all_groups(silent):
    """
    Each around its share, and within what shares may be; that of all is known.
    """
    result = session(silent).execute(
        f"SELECT g, 100.0 * n / SUM(n) OVER () AS p, 100.0 * SUM(n) OVER () / SUM(n) OVER () AS q"
        f" FROM {N} ORDER BY g{U}"
    )
    shares = [row[0] for row in result.answers]
    assert [round(each.estimate, 3) for each in shares] == [86.957, 13.043, 0]
    for each in shares:
        assert each.source == "derived"
        assert 0 <= each.low <= each.estimate <= each.high <= 100
        assert 0.5 < each.high - each.low < 5
    for row in result.answers:
        assert (row[1].low, row[1].high) == (100, 100)


def test_a_ratio_over_nothing_is_null_and_may_be_anything_possible(silent):
    """
    A mean is within the clip; a count over a sum is no less than for the largest of its values.
    """
    result = session(silent).execute(
        "SELECT SUM(w) * 1.0 / NULLIF(COUNT(*), 0) AS m,"
        " COUNT(*) * 1.0 / NULLIF(SUM(k), 0) AS r FROM d WHERE g = 'c'" + U
    )
    assert result.rows == [(None, None)]
    mean, rate = result.answers[0]
    assert math.isnan(mean.estimate)
    assert (mean.low, mean.high, mean.source) == (0, 10, "derived")
    assert (rate.low, rate.high, rate.source) == (1 / 9, math.inf, "derived")  # as k is 0 to 9


# --- functions of one number --------------------------------------------------------------------


@pytest.mark.parametrize(
    "function, of",
    [
        ("ROUND({}, -0)", round),
        ("ROUND({} / 7.0, 1)", lambda x: round(x / 7, 1)),
        ("SQRT({})", math.sqrt),
        ("LN({})", math.log),
        ("FLOOR({} / 100.0)", lambda x: math.floor(x / 100)),
        ("CEIL({} / 100.0)", lambda x: math.ceil(x / 100)),
        ("{} / 7", lambda x: int(x / 7)),  # of whole numbers
        ("({} / 7.0)::integer", lambda x: round(x / 7)),
        ("GREATEST({}, 400)", lambda x: max(x, 400)),
        ("1000 - SQRT({})", lambda x: 1000 - math.sqrt(x)),
        ("ABS(430 - {})", lambda x: abs(430 - x)),
        ("COALESCE(NULLIF({}, 0), 0)", lambda x: x),
        ("CASE WHEN {} > 0 THEN {} END", lambda x: x),
    ],
)
@pytest.mark.parametrize("number", ["COUNT(*)", "SUM(k)", "AVG(w) * 100", "MEDIAN(k) * 100"])
def test_the_ends_of_a_function_are_those_of_its_number(engine, function, of, number):
    """
    Of counts, sums, averages, and what is derived from counts.
    """
    if function == "{} / 7" and "100" in number:
        return  # they are no whole numbers
    ask = session(engine)
    function = function.replace("-0", "0")
    plain = number.split(" ")[0]
    utility = " WITH UTILITY (0.5, 0.1)" if "100" in number else U  # so that none comes out as 0
    result = ask.execute(
        f"SELECT {plain}, {function.replace('{}', f'({number})')} FROM d WHERE g = 'a'{utility}"
    )
    one, answer = result.answers[0]
    scale = 100 if "100" in number else 1
    ends = [scale * end for end in (one.low, one.high)]
    values = [of(end) if end > 0 or "LN" not in function else -math.inf for end in ends]
    if function.startswith("ABS"):
        low, high = scale * one.low, scale * one.high
        values = [0 if low <= 430 <= high else min(map(of, (low, high))), max(map(of, (low, high)))]
    assert (answer.low, answer.high) == pytest.approx((min(values), max(values)), abs=1e-6)
    assert (answer.source, answer.confidence) == ("derived", 0.9)


# --- draws --------------------------------------------------------------------------------------

DRAWN = {
    "STDDEV(n)": "one",
    "VARIANCE(n)": "one",
    "MAX(n) - MIN(n)": "one",
    "MEDIAN(n)": "one",
    "SUM(n * w)": "one",
    "AVG(1.0 * w / NULLIF(n, 0))": "one",  # whole quotients may all be the same
}


def test_what_is_not_simple_is_approximate_and_says_so(engine):
    """
    In the answers, in privacy.columns, and in one notice; the estimate lies inside.
    """
    ask = session(engine)
    listed = ", ".join(f"{text} AS v{i}" for i, text in enumerate(DRAWN))
    result = ask.execute(f"SELECT {listed}, SUM(n) AS total FROM {N}{U}")
    *approximate, total = result.answers[0]
    assert {answer.source for answer in approximate} == {"approximate"}
    assert total.source == "derived"
    for answer in result.answers[0]:
        assert answer.low <= answer.estimate <= answer.high
        assert answer.low < answer.high
    assert [n for n in result.notices if "approximate" in n] == list(result.notices[-1:])
    assert result.notices[-1].startswith("v0, v1, v2, v3, v4, v5: approximate intervals")
    ranks = ask.execute(f"SELECT g, RANK() OVER (ORDER BY n DESC) AS r FROM {N} ORDER BY g{U}")
    assert [row[1] for row in ranks.rows] == [1, 2, 3]
    assert [(a.low, a.high, a.source) for (a,) in ranks.answers] == [
        (k, k, "approximate") for k in (1, 2, 3)
    ]


def test_asked_again_it_tells_the_same(engine):
    """
    From the cache, and worked out anew in another session.
    """
    text = f"SELECT STDDEV(n), RANK() OVER (ORDER BY SUM(n)) FROM {N}{U}"
    first = session(engine)
    shown = first.execute(text)
    again = first.execute(text)
    assert again.cost == 0
    (accountant,) = engine.planner._accountants.values()
    accountant.cache.clear()
    anew = engine.session().execute(text)
    for result in (again, anew):
        for one, two in zip(shown.answers[0], result.answers[0], strict=True):
            assert (one.low, one.high, one.source) == (two.low, two.high, two.source)


def test_a_function_of_several_means_is_drawn(engine):
    """
    Their difference: not linear, and no ratio of two.
    """
    result = session(engine).execute(
        "SELECT g, AVG(w) - LAG(AVG(w)) OVER (ORDER BY g) AS d FROM d WHERE g <> 'c' GROUP BY g"
        " ORDER BY g WITH UTILITY (0.5, 0.1)"
    )
    assert result.answers[0] == []
    (answer,) = result.answers[1]
    assert answer.source == "approximate"
    assert answer.low <= answer.estimate <= answer.high
    assert 0.2 < answer.high - answer.low < 3


# --- what nothing is said of --------------------------------------------------------------------


def test_a_number_of_which_nothing_can_be_said_says_why(engine):
    """
    The most frequent value, of bins, whose values are not known; what is made of two medians.
    """
    ask = session(engine)
    result = ask.execute(
        "SELECT MODE() WITHIN GROUP (ORDER BY e) AS top, MEDIAN(k) - MIN(k) AS spread FROM d"
        " WITH UTILITY (5, 0.1)"
    )
    for answer in result.answers[0]:
        assert (answer.source, answer.low, answer.high) == ("unknown", -math.inf, math.inf)
        assert answer.cost > 0
    said = [notice for notice in result.notices if "has no interval" in notice]
    assert [notice.split(" ")[0] for notice in said] == ["top", "spread"]


@pytest.mark.slow
def test_a_number_that_rests_on_one_left_out_is_unknown(tmp_path):
    """
    The cells of a group have not the budget for it: what is computed from others has its interval.
    """
    (tmp_path / "d.csv").write_text("\n".join(["g,s,k,e,w", *["a,x,1,1,1"] * 90]) + "\n")
    cells = "unit: row, cells: [{where: \"g = 'c'\", budget: 0.0001}]}"
    (tmp_path / "d.yaml").write_text(POLICY.replace("unit: row}", cells))
    init(tmp_path / "d.yaml")
    engine = Engine.open(tmp_path / "d.yaml")
    result = engine.session().execute(
        "SELECT g, n * 1.5 AS v, SUM(n) OVER () AS total, n * SUM(n) OVER () AS p, n * n AS q,"
        " RANK() OVER (ORDER BY n DESC) AS r FROM"
        " (SELECT g, COUNT(*) AS n FROM d GROUP BY g) t ORDER BY g"
        " WITH UTILITY (5 PERCENT, 0.1)"
    )
    sources = {
        row[0]: [a.source for a in each]
        for row, each in zip(result.rows, result.answers, strict=True)
    }
    for g in "ab":
        assert sources[g] == ["derived", "unknown", "unknown", "approximate", "unknown"]
    assert result.rows[2][1] is None
    answer = result.answers[2][0]
    assert (answer.low, answer.high) == (0, 150_000)
    said = [n.split(" ")[0] for n in result.notices if "rests on numbers that are not known" in n]
    assert sorted(said) == ["p", "q", "r", "total"]
    engine.close()


def test_what_noise_drowns_is_unknown(silent):
    """
    A ratio whose bottom may be nothing, and that has no bounds.
    """
    result = session(silent).execute(
        "SELECT (COUNT(*) - 5) * 1.0 / NULLIF(SUM(k - 4), 0) AS r FROM d WHERE g = 'c'" + U
    )
    answer = only(result)
    assert (answer.source, answer.low, answer.high) == ("unknown", -math.inf, math.inf)
    assert any("r has no interval: noise drowns it" in notice for notice in result.notices)


# --- how it is shown ----------------------------------------------------------------------------

WIDE = [
    f"SELECT g, n, n / 2.0 AS h, 'x' || n::text AS t, n > 5 AS b FROM {N}{U}",
    f"SELECT MAX(n) AS m, COUNT(*) AS c FROM {N}{U}",
    f"SELECT COUNT(*) AS n FROM d UNION ALL SELECT 7 UNION ALL SELECT SUM(n) FROM {N}{U}",
    f"SELECT g, n FROM {N} WHERE n > 5 ORDER BY n DESC LIMIT 1{U}",
    "SELECT MAX(e) AS top FROM d" + U,
]
COLUMNS = [
    ["g", "n", "n_low", "n_high", "n_source", "h", "h_low", "h_high", "h_source", "t", "b"],
    ["m", "m_low", "m_high", "m_source", "c"],
    ["n", "n_low", "n_high", "n_source"],
    ["g", "n", "n_low", "n_high", "n_source"],
    ["top", "top_low", "top_high", "top_source"],
]


@pytest.mark.parametrize("text, names", list(zip(WIDE, COLUMNS, strict=True)))
def test_every_column_of_numbers_has_its_interval_and_source_beside_it(engine, text, names):
    """
    As Describe says beforehand, of a probe too; in privacy.columns the ends are those of the
    answers, and where there is none there is no end.
    """
    ask = session(engine)
    plain = ask.execute(text)
    ask.execute("SET privacy.columns = on")
    described = [column.name for column in ask.describe(text)]
    result = ask.execute(text)
    assert described == [column.name for column in result.columns] == names
    assert [
        column.name for column in ask.describe(f"SELECT * FROM ({text[: -len(U)]}) u LIMIT 0")
    ] == names
    for row, answers, places, other in zip(
        result.rows, result.answers, result.places, plain.answers, strict=True
    ):
        for answer, place, before in zip(answers, places, other, strict=True):
            assert (answer.low, answer.high) == (before.low, before.high)
            shown = tuple(end if math.isfinite(end) else None for end in ends(answer))
            assert row[place + 1 : place + 4] == (*shown, answer.source)
    hidden = [p.name for p in plain.columns]
    assert [row[names.index(n)] for row in result.rows for n in hidden] == [
        cell for row in plain.rows for cell in row
    ]


def test_a_constant_among_numbers_is_known(engine):
    """
    Of a union of a number and a literal.
    """
    result = session(engine).execute(
        f"SELECT COUNT(*) AS n FROM d UNION ALL SELECT 7 ORDER BY n{U}"
    )
    constant, count = (row[0] for row in result.answers)
    assert (constant.estimate, constant.low, constant.high, constant.source) == (7, 7, 7, "derived")
    assert count.source == "measured"


@pytest.mark.parametrize("many", ["MAX_TRACED", "MAX_DRAWN", "MAX_EXACT", "MAX_CORNERS"])
def test_limits_of_what_is_looked_at_change_intervals_and_nothing_else(silent, many, monkeypatch):
    """
    Rows and costs are the same; what was exact is drawn, and what was drawn has no interval.
    """
    text = f"SELECT SUM(n) AS s, SUM(n) * 1.0 / SUM(w) AS r, STDDEV(n) AS d FROM {N}{U}"
    whole = session(silent).execute(text)
    postprocessing = sys.modules["proxy.sql.postprocess"]  # the name is a function's
    place = {"MAX_TRACED": postprocessing, "MAX_EXACT": cells}.get(many, drawing)
    monkeypatch.setattr(place, many, 0)
    result = session(silent).execute(text)
    assert (result.rows, result.cost, result.left) == (whole.rows, whole.cost, whole.left)
    assert [answer.source for answer in result.answers[0]] == {
        "MAX_TRACED": ["unknown", "unknown", "approximate"],
        "MAX_DRAWN": ["derived", "derived", "unknown"],
        "MAX_EXACT": ["approximate"] * 3,
        "MAX_CORNERS": ["derived", "derived", "approximate"],
    }[many]
    for one, two in zip(whole.answers[0], result.answers[0], strict=True):
        assert one.cost == two.cost
        if two.source == "approximate":
            length = one.high - one.low
            assert (two.low, two.high) == pytest.approx((one.low, one.high), abs=0.25 * length)


def test_plain_numbers_are_told_as_they_were(engine):
    """
    Beside computed ones too: the same estimate, ends, source and cost.
    """
    text = "SELECT g, COUNT(*) AS n, AVG(w) AS m, MEDIAN(k) AS k FROM d GROUP BY g WITH UTILITY"
    ask = session(engine)
    ask.execute(f"{text} (5, 0.1)")
    plain = ask.execute(f"{text} (5, 0.1)")
    beside = ask.execute(f"SELECT t.*, n / 7.0 AS x FROM ({text} (5, 0.1)) t ORDER BY g")
    assert plain.cost == beside.cost == 0
    for one, two in zip(plain.answers, beside.answers, strict=True):
        assert [repr(answer) for answer in two[:3]] == [repr(answer) for answer in one]


def test_of_a_result_that_chooses_rows_nothing_more_is_told(engine):
    """
    It is a constant by then: no notice of how approximate it is, and no interval.
    """
    result = session(engine).execute(
        f"SELECT COUNT(*) AS c FROM d WHERE k < (SELECT STDDEV(n) FROM {N}){U}"
    )
    assert not any("approximate" in notice for notice in result.notices)
    assert only(result).source == "measured"


def test_groups_by_a_released_number_are_answered(engine):
    """
    GROUP BY of a number, or of what is computed from it: groups are of what is shown.
    """
    ask = session(engine)
    result = ask.execute(f"SELECT n, n * 2 AS m, COUNT(*) AS c FROM {N} GROUP BY n ORDER BY n{U}")
    assert sum(row[2] for row in result.rows) == 3
    for row, (n, m) in zip(result.rows, result.answers, strict=True):
        assert (n.source, m.source) == ("measured", "derived")
        assert (m.low, m.high) == (2 * n.low, 2 * n.high)
        assert row[1] == 2 * row[0]
