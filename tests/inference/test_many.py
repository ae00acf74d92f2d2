"""What is worked out for many numbers at once is what it is for each of them alone."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.inference import plan as planning
from proxy.inference.contour import Moment
from proxy.inference.estimator import Estimator
from proxy.inference.family import Family
from proxy.inference.geometric import GeometricSum, look_ahead, look_at
from proxy.inference.history import History
from proxy.inference.laplace import SHIFTS, Bounds, LaplaceSum, half_widths
from proxy.inference.least import NEAR
from proxy.inference.query import Factor, LinearQuery
from proxy.inference.ratio import Differences, difference, hull_end, together
from proxy.inference.space import Space

SIZES = (2, 3, 40, 300, 700)  # of terms: few, and so many that small ones are summed up


def noises(seed):
    rng = np.random.default_rng(seed)
    return [rng.exponential(size=size) ** rng.uniform(0.2, 4) for size in SIZES]


@pytest.mark.parametrize("seed", range(5))
def test_tails_of_many_laws_are_those_of_each(seed):
    """
    Each at an argument of its own, near and so far out that nothing is left.
    """
    rng = np.random.default_rng(seed)
    laws = [LaplaceSum(noise) for noise in noises(seed)]
    t = np.array([law.half_width(rng.uniform(0.1, 0.999)) / law.scale for law in laws])
    t[seed] = 1e5
    contour = Moment.beside([law.moment for law in laws]).contour(t)
    found = contour.tail(np.stack([t, 1.5 * t], axis=-1))
    around = contour.around(t, contour.shifts(0.0 * t, 0.01 * t, 3))
    for i, (law, one) in enumerate(zip(laws, contour.apart(), strict=True)):
        alone = law.moment.contour(float(t[i]))
        expected = alone.tail(np.array([t[i], 1.5 * t[i]]))
        room = float(alone.error + contour.error[i])
        assert room < 1e-11
        assert np.abs(found[i] - expected).max() <= room
        assert np.abs(one.tail(t[i : i + 1]) - found[i, :1]).max() <= 1e-15
        assert around[1][i] == pytest.approx(found[i, 0], abs=1e-15)
        assert around[0][i, 0] == pytest.approx(around[2][i, 0], abs=1e-15)  # at a shift of 0
        beyond = alone.tail(t[i] * np.array([1.01, 1.02]))
        assert np.abs(around[2][i, 1:] - beyond).max() <= room


@given(st.lists(st.tuples(st.floats(1e-3, 1), st.integers(1, 200)), min_size=1, max_size=6))
def test_a_term_that_occurs_often_is_that_many_terms(terms):
    """
    Counts stand for repeated terms, few or many.
    """
    squares = np.array([1.0, *(size for size, _ in terms)])
    counts = np.array([1, *(count for _, count in terms)])
    whole = Moment(np.repeat(squares, counts))
    short = Moment(squares, counts.astype(float))
    assert short.p1 == pytest.approx(whole.p1)
    assert short.p2 == pytest.approx(whole.p2)
    t = float(whole.radius(0.02))
    one, two = short.contour(t), whole.contour(t)
    assert abs(one.tail(np.array([t])) - two.tail(np.array([t]))) <= one.error + two.error
    assert one.error < 1e-11


def test_half_widths_of_many_laws_are_those_of_each():
    """
    For any confidence, also where the start of the search is beyond the end.
    """
    for seed in range(3):
        laws = [LaplaceSum(noise) for noise in noises(seed)]
        for confidence in (1e-6, 0.5, 0.95, 1 - 1e-9):
            found = half_widths(laws, confidence)
            assert found == pytest.approx([law.half_width(confidence) for law in laws], rel=1e-11)
            tails = [law.tail(t) for law, t in zip(laws, found, strict=True)]
            assert tails == pytest.approx([1 - confidence] * len(laws), rel=1e-6, abs=1e-12)


def test_looking_ahead_changes_no_half_width():
    """
    What several half-widths begin with is what each would.
    """
    rng = np.random.default_rng(3)
    for confidence in (0.5, 0.95, 0.999):
        rows = [(noise, rng.uniform(0.01, 2, noise.size)) for noise in noises(4)]
        laws, alone = ([GeometricSum(a, w, np.ones(a.size)) for a, w in rows] for _ in range(2))
        look_ahead([*laws, GeometricSum([2.0], [0.1], [1.0])], confidence)
        assert all(("near", confidence) in law._built for law in laws)
        found = [law.half_width(confidence) for law in laws]
        assert found == pytest.approx([law.half_width(confidence) for law in alone], rel=1e-10)
    look_ahead(laws, 1.0)


@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_bounds_of_many_laws_decide_as_those_of_each(seed):
    """
    Where they are sure, the law meets the confidence; where nothing is left to ask, it does not.
    """
    rng = np.random.default_rng(seed)
    laws = []
    for size in (2, 5, 30, 100):
        rates = rng.uniform(0.001, 0.5, size)
        laws.append(GeometricSum(rng.exponential(size=size), rates, np.ones(size)))
    each = [law._bounds for law in laws]
    bounds = Bounds(
        Moment.beside([one.moment for one in each]),
        *(np.array([getattr(one, name) for one in each]) for name in ("unit", "size", "at_zero")),
    )
    confidence = float(rng.choice([0.5, 0.9, 0.99]))
    t = np.array([law.half_width(confidence) for law in laws]) * rng.uniform(0.3, 3, len(laws))
    sure, asked = bounds.meets(t, confidence)
    assert not (sure & asked).any()
    for law, at, known, more in zip(laws, t.tolist(), sure, asked, strict=True):
        assert more or law.meets(at, confidence) == known


def estimator(rng, rows):
    chosen = np.sort(rng.choice(30, rows, replace=False))
    unit = Fraction(int(rng.integers(1, 5)), int(rng.integers(1, 5)))
    coefficients = rng.integers(1, 4, rows).astype(float)
    return Estimator(unit, chosen, coefficients, 0.05 + chosen % 3 / 10, float(rng.uniform(0, 2)))


@settings(max_examples=50)
@given(st.integers(0, 10**6))
def test_differences_of_many_pairs_decide_as_each_does(seed):
    """
    The same as the law of ``difference`` says, its slack taken off the half-width.
    """
    rng = np.random.default_rng(seed)
    pairs = [(estimator(rng, i), estimator(rng, int(rng.integers(1, 20)))) for i in (1, 3, 20, 30)]
    pairs.append((pairs[0][0], pairs[0][0]))  # whose difference is nothing, for one number
    chosen = np.array([4, 0, 1, 2, 3, 2])
    times = np.append(1.0, rng.uniform(-3, 3, 5))
    laws = [
        difference(*pairs[i], Fraction(at)) for i, at in zip(chosen, times.tolist(), strict=True)
    ]
    halves = [planning.half_width(law, 0.1) * float(rng.uniform(0.2, 4)) for law in laws]
    halves[-1] = float(laws[-1].unit) * laws[-1].slack / 2  # less than the slack
    sure, asked = Differences.of(pairs).meets(chosen, times, np.array(halves), 0.9)
    for law, half, known, more in zip(laws, halves, sure, asked, strict=True):
        within = half / float(law.unit) - law.slack
        met = within > 0 and planning.law(law).meets(within, 0.9)
        assert more or bool(known) == met
    assert not sure[-1]
    assert not asked[-1]


def test_searches_go_on_side_by_side():
    """
    Searches of different lengths, one of which asks only once, find what each finds alone.
    """
    sets = [(0.3, 0.6), (-1.0, 0.51), (0.499, 2.0)]
    ends = [(inner, outer) for inner, _ in [(0.5, 0)] * 3 for outer in (-1.0, 2.0)]
    asked = []

    def outside(places, points):
        asked.append(len(places))
        sides = [sets[place // 2] for place in places]
        return [not low <= t <= high for (low, high), t in zip(sides, points, strict=True)]

    found = together([hull_end(*each) for each in ends], outside)
    for i, (low, high) in enumerate(sets):
        assert low - 1e-4 < found[2 * i] <= low
        assert high <= found[2 * i + 1] < high + 1e-4
    assert asked[0] == 6
    assert asked[1] == 4  # two ends are no end
    alone = [
        together([hull_end(*e)], lambda _, t, i=i: outside([i], t)) for i, e in enumerate(ends)
    ]
    assert found == [end for (end,) in alone]


def test_the_rows_of_a_family_are_solved_as_one_by_one():
    """
    Of a dense system with rows that depend on others, sums, multiples and what is unknown.
    """
    space = Space((8, 3), ())
    rng = np.random.default_rng(5)

    def history():
        known = History(space, 1000)
        for axis, size in enumerate(space.sizes):
            labels = np.arange(size, dtype=np.int32)
            known.append(Family(LinearQuery.count(space), (axis,), labels, size), 3.0 + axis)
        for row in weights:
            known.append(Family(LinearQuery.count(space, Factor((0,), row))), 2.0)
        half = LinearQuery.count(space, Factor((1,), np.array([1, 1, 0])))
        labels = np.arange(8, dtype=np.int32)
        known.append(Family(half, (0,), labels, 8), 5.0)
        return known

    weights = rng.integers(-2, 3, (6, 8))
    for factor in ([1, 0, 0], [0, 0, 2], [1, 1, 0], [1, 1, 1]):  # the first is not known
        query = LinearQuery.count(space, Factor((1,), np.array(factor)))
        family = Family(query, (0,), np.array([0, 0, 1, 2, 3, 3, 3, -1], dtype=np.int32), 4)
        prepared, alone = history(), history()
        prepared.prepare(family, family.queries())
        assert len(prepared._best) == 4
        for row in family.queries():
            found, expected = prepared.estimators(row), alone.estimators(row)
            assert len(found) == len(expected)
            assert (len(found) > 0) == (factor != [1, 0, 0])
            for one, two in zip(found, expected, strict=True):
                assert one.variance == pytest.approx(two.variance, rel=1e-12)
                assert math.isclose(one.slack, two.slack, rel_tol=0.5, abs_tol=1e-9)
                sums = np.zeros((2, len(prepared)))
                for place, each in enumerate((one, two)):
                    sums[place, each.rows] = each.coefficients * float(each.unit)
                assert sums[0] == pytest.approx(sums[1], abs=1e-12)
        prepared.append(Family(LinearQuery.count(space)), 1.0)
        assert not prepared._best


@settings(max_examples=40)
@given(st.integers(0, 10**6))
def test_rows_that_are_alike_are_the_same_law_as_rows_that_all_but_are(seed):
    """
    Taken together they are found in any order and with any sign, and what they say is right:
    rows too different to be taken together, by parts in 10¹², say the same.
    """
    rng = np.random.default_rng(seed)
    kinds = rng.integers(1, 5)
    a, w, g = rng.uniform(0.5, 3, kinds), rng.uniform(0.02, 0.4, kinds), rng.uniform(0.5, 2, kinds)
    counts = rng.integers(1, 90, kinds)
    order = rng.permutation(counts.sum())
    signs = rng.choice([-1.0, 1.0], counts.sum())
    each = [np.repeat(values, counts)[order] for values in (a, w, g)]
    law, told = GeometricSum(signs * each[0], *each[1:]), GeometricSum(a, w, g, counts)
    assert np.array_equal(law._rows, told._rows)
    assert law._rows.shape[1] == kinds
    assert law.size == counts.sum()
    apart = GeometricSum(each[0] * (1 + 1e-12 * np.arange(counts.sum())), *each[1:])
    assert apart._rows.shape[1] == apart.size == law.size
    assert law.variance == pytest.approx(apart.variance, rel=1e-9)
    for confidence in (0.5, 0.95):
        t = apart.continuous.half_width(confidence)
        assert law.continuous.half_width(confidence) == pytest.approx(t, rel=1e-9)
        assert law.bracket(t) == pytest.approx(apart.bracket(t), abs=1e-7)
        assert law.half_width(confidence) == pytest.approx(apart.half_width(confidence), rel=3e-4)


@given(st.integers(0, 10**6), st.floats(0, 1), st.floats(0, 3))
def test_a_law_mixed_with_a_row_is_that_of_all_rows(seed, part, coefficient):
    """
    Exactly: also where nothing is left of one of the two.
    """
    rng = np.random.default_rng(seed)
    a, w, g = rng.integers(1, 4, (3, 9)).astype(float)
    mixed = GeometricSum(a, w, g).mixed(part, coefficient, 2.0)
    whole = GeometricSum(np.append(a * part, coefficient), np.append(w, 2.0), np.append(g, 1.0))
    assert np.array_equal(mixed._rows, whole._rows)


def by_halves(law, confidence):
    """The half-width of a law, looked for by halves alone, by brackets that know of no other."""

    def meets(t):
        return law.bracket(t).lower >= confidence

    near = law.continuous.half_width(confidence)
    step, low, high = NEAR, 0.0, near * (1 + NEAR)
    while not meets(high):
        step *= 4
        low, high = high, near * (1 + step)
    while low == 0 and step < 0.5:
        below = near * (1 - step)
        if meets(below):
            high, step = below, 4 * step
        else:
            low = below
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if meets(middle) else (middle, high)
    return high


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.6, 0.9, 0.95, 0.99, 1 - 1e-6]))
def test_a_half_width_is_what_a_search_by_halves_finds(seed, confidence):
    """
    Looking where the bounds seem to meet the confidence finds the same, in fewer looks.
    """
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 60))
    terms = rng.exponential(size=size), rng.uniform(0.001, 0.3, size), np.ones(size)
    law = GeometricSum(*terms)
    found, alone = law.half_width(confidence), by_halves(GeometricSum(*terms), confidence)

    assert found == pytest.approx(alone, rel=1e-9)
    assert law.bracket(found).lower >= confidence - 1e-9


def test_a_half_width_takes_few_looks(monkeypatch):
    """
    Seven looks at a law of fifty terms, of which a search by halves alone takes twelve.
    """
    rng = np.random.default_rng(1)
    law = GeometricSum(rng.exponential(size=50), rng.uniform(0.001, 0.3, 50), np.ones(50))
    looks, narrowing = [], GeometricSum._narrowing

    def counted(law, t, closed):
        looks.append(t)
        return narrowing(law, t, closed)

    monkeypatch.setattr(GeometricSum, "_narrowing", counted)
    law.half_width(0.95)
    assert len(looks) <= 7
    law.meets(1e9, 0.95)
    law.half_width(0.95)
    assert len(looks) <= 8


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_looking_at_points_changes_no_bracket(seed):
    """
    What brackets of several laws begin with is what each would.
    """
    rng = np.random.default_rng(seed)
    rows = [(noise, rng.uniform(0.001, 0.3, noise.size)) for noise in noises(4)]
    laws, alone = ([GeometricSum(a, w, np.ones(a.size)) for a, w in rows] for _ in range(2))
    points = [rng.uniform(0.5, 4) * math.sqrt(law.variance) for law in laws]
    look_at([*laws, GeometricSum([2.0], [0.1], [1.0])], [*points, 3.0])
    smooth = [law._bounds.smooth(t) for law, t in zip(laws, points, strict=True)]
    ready = [any(kind == "contour" for kind, _ in law._built) for law in laws]
    assert ready == [law.size > 1 and known for law, known in zip(laws, smooth, strict=True)]
    for law, t in zip(laws, points, strict=True):
        least = (t - SHIFTS[-1] * law._bounds.size) / law.continuous.scale
        starts = [each.start for (kind, _), each in law._built.items() if kind == "contour"]
        assert all(start <= least for start in starts)
    found = [law.bracket(t) for law, t in zip(laws, points, strict=True)]
    each = [law.bracket(t) for law, t in zip(alone, points, strict=True)]
    assert np.ravel(found) == pytest.approx(np.ravel(each), abs=1e-10)


def test_one_contour_serves_points_that_are_near():
    """
    A law that was looked at where it is to be enough has what its half-width needs.
    """
    law = GeometricSum(np.ones(40), np.linspace(0.01, 0.02, 40), np.ones(40))
    t = 1.9 * math.sqrt(law.variance)
    for point in (t, 1.2 * t):
        law.bracket(point)
    assert [kind for kind, _ in law._built].count("contour") == 1


def test_terms_in_another_order_are_one_law():
    """
    Estimators of different answers, with the same weights, share what was worked out.
    """
    rows, rates = np.arange(3), np.array([0.1, 0.2, 0.3])
    one = Estimator(Fraction(1), rows, np.array([1.0, 2.0, 3.0]), rates)
    two = Estimator(Fraction(1), rows + 3, np.array([3.0, -2.0, 1.0]), rates[::-1].copy())
    other = Estimator(Fraction(1), rows, np.array([3.0, 2.0, 1.0]), rates)
    assert planning.law(one) is planning.law(two)
    assert planning.law(one) is not planning.law(other)
