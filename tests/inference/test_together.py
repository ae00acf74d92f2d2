"""Families of any size are solved together as dense linear algebra solves them."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import proxy.inference.history as history_module
from proxy.experiment.blue import blue
from proxy.inference import plan as planning
from proxy.inference.dense_system import MeasuredFamily
from proxy.inference.estimator import mixed, omega
from proxy.inference.families.system import FamilySystem
from proxy.inference.family import Family
from proxy.inference.history import History
from proxy.inference.query import Factor, LinearQuery, Term
from proxy.inference.space import Box, Space
from tests.inference.test_family import families
from tests.inference.test_query import SPACE, dense, queries
from tests.searches import share

RECORDS = 1000
REACH = {0: 1, 1: 5, 2: 1, 3: 3, 4: 1}  # of one record, by part of SPACE
LARGE = Space((100, 51, 21), (Box(0, 1000),))


def vector(query):
    """All coefficients of a query, in units of its grid."""
    return np.array([each / query.grid for each in dense(query).flat], dtype=float)


def system_of(measured):
    """A system of families, their scales given; and rows, weights of the dense solution."""
    system, number = FamilySystem(SPACE, RECORDS), 0
    rows, weights = [], []
    for family, scale in measured:
        system.add(MeasuredFamily(family, number, scale))
        number += family.rows
        for row in range(family.rows):
            query = family.row(row)
            rows.append(vector(query) * float(query.grid / family.grid))
            weights.append(omega(np.array([1 / scale]))[0])
    return system, np.array(rows), np.array(weights)


measured = st.lists(
    st.tuples(families().filter(lambda f: not f.query.zero), st.floats(0.3, 30)), min_size=1,
    max_size=5,
)  # fmt: skip


@pytest.mark.parametrize("examples", share(1, [25, 300, 1000], 2))
def test_families_are_solved_as_the_dense_system_is(examples):
    """
    Of random families, repeats and opposite ones included, and random queries, and sums of their
    rows: the same are known, with the same variance; the bias is no more than it says.
    """

    @given(measured, queries(), st.data())
    def check(chosen, query, data):
        chosen += [(Family(-f.query, f.axes, f.labels, f.rows), 2 * s) for f, s in chosen[:1]]
        system, rows, weights = system_of(chosen)
        if data.draw(st.booleans()):  # a query that is known
            query = LinearQuery(SPACE, Fraction(1), {})
            for family, _ in data.draw(st.lists(st.sampled_from(chosen), min_size=1, max_size=3)):
                row = family.row(data.draw(st.integers(0, family.rows - 1)))
                query = query + row * data.draw(st.integers(-2, 2))
        if query.zero:
            return
        wanted = vector(query)
        truth = blue(rows, weights, np.zeros(len(rows)), wanted)
        ((found, _),) = system.estimators(Family(query))
        assert (found is not None) == truth.estimable
        if found is None:
            return
        unit = float(query.grid) ** 2
        assert found.variance == pytest.approx(truth.variance * unit, rel=1e-7)
        assert (np.diff(np.sort(found.rows)) > 0).all()
        ratio = found.unit / query.grid
        missed = [Fraction(a).limit_denominator(1) for a in wanted.tolist()]
        for number, a in zip(found.rows.tolist(), found.coefficients.tolist(), strict=True):
            times = ratio * Fraction(a)
            missed = [
                m - times * Fraction(h) if h else m
                for m, h in zip(missed, rows[number].tolist(), strict=True)
            ]
        cells = np.array(missed, dtype=object).reshape(5, -1)
        worst = max(
            sum(abs(cells[part, cell]) * reach for part, reach in REACH.items())
            for cell in range(cells.shape[1])
        )
        assert worst * RECORDS <= Fraction(found.slack) * ratio * (1 + Fraction(1, 10**9))

    settings(max_examples=examples)(check)()


@settings(max_examples=25)
@given(measured, families().filter(lambda f: not f.query.zero))
def test_the_rows_of_a_family_are_estimated_as_one_by_one(chosen, wanted):
    """
    All rows at once, also where they meet different parts of the system: the same is known of each.
    """
    system, _, _ = system_of(chosen)
    for row, (found, _) in enumerate(system.estimators(wanted)):
        query = wanted.row(row)
        if query.zero:
            continue
        ((alone, _),) = system.estimators(Family(query))
        assert (found is None) == (alone is None)
        if found is not None and alone is not None:
            assert found.variance == pytest.approx(alone.variance, rel=1e-9)


@settings(max_examples=25)
@given(measured, families().filter(lambda f: not f.query.zero))
def test_nothing_is_lost_by_looking_at_families_together(chosen, wanted):
    """
    What a family knows by itself the history knows, no worse, however the families are asked.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(history_module, "DENSE_FAMILY", 0)
        history = History(SPACE, RECORDS)
        for family, scale in chosen:
            history.append(family, scale)
    rows = [wanted.row(row) for row in range(wanted.rows)]
    history.prepare(wanted, rows)
    for row in rows:
        if not row.zero:
            alone = [each.variance for each in history.singles.estimators(row)]
            found = [each.variance for each in history.estimators(row)]
            assert not alone or min(found) <= min(alone) * (1 + 1e-8)


@settings(max_examples=25)
@given(measured, st.data())
def test_what_was_planned_and_taken_back_leaves_no_trace(chosen, data):
    """
    Families that come and go, the opposite of one in its place: what is known then is what is known
    of those that stayed.
    """
    system, number, kept = FamilySystem(SPACE, RECORDS), 0, []
    for family, scale in chosen:
        opposite = Family(-family.query, family.axes, family.labels, family.rows)
        for each in (family, opposite) if data.draw(st.booleans()) else (opposite, family):
            system.add(MeasuredFamily(each, number, scale))
            system.estimators(each)
            if each is family:
                system.truncate(number)
        system.truncate(number)
        if data.draw(st.booleans()):
            kept.append((family, scale))
            system.add(MeasuredFamily(family, number, scale))
            number += family.rows
    fresh, _, _ = system_of(kept)
    for wanted, _ in chosen:
        for (one, _), (two, _) in zip(
            system.estimators(wanted), fresh.estimators(wanted), strict=True
        ):
            assert (one is None) == (two is None)
            if one is not None and two is not None:
                assert one.rows.tolist() == two.rows.tolist()
                assert one.coefficients == pytest.approx(two.coefficients, rel=1e-6, abs=1e-9)


def grouped(axes, query=None):
    """Every combination of some axes of the large space."""
    shape = tuple(LARGE.sizes[axis] for axis in axes)
    labels = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    return Family(query or LinearQuery.count(LARGE), axes, labels, labels.size)


def above(axis, limit, query=None):
    """A count of those above a limit."""
    inside = (np.arange(LARGE.sizes[axis]) > limit).astype(np.int64)
    return (query or LinearQuery.count(LARGE)).times(Factor((axis,), inside))


def test_two_families_of_thousands_of_rows_are_averaged_by_their_precisions():
    """
    51 states' counts, which ages by states and states by industries know: 1 / (1 / u + 1 / v).
    """
    history = History(LARGE, RECORDS)
    history.append(grouped((0, 1)), 20.0)
    history.append(grouped((1, 2)), 12.0)
    states = grouped((1,))
    history.prepare(states, [states.row(row) for row in range(51)])
    one, two = 100 * 2 / omega(np.array([1 / 20])) ** 2, 21 * 2 / omega(np.array([1 / 12])) ** 2
    for row in (0, 25, 50):
        best = min(each.variance for each in history.estimators(states.row(row)))
        assert best == pytest.approx(float(1 / (1 / one + 1 / two)[0]), rel=1e-9)


def test_what_two_families_know_only_together_is_inferred():
    """
    A sum about the middle of its clip, from sums and from counts; nothing without one of them.
    """
    total = LinearQuery.of(LARGE, Fraction(1), {1: Term.of(1, ())})
    about = LinearQuery.of(LARGE, Fraction(1), {1: Term.of(1, ()), 0: Term.of(-500, ())})
    history = History(LARGE, RECORDS)
    history.append(grouped((0, 1), total), 500.0)
    assert not history.estimators(above(0, 40, about))
    history.append(grouped((0, 1)), 2.0)
    (found,) = history.estimators(above(0, 40, about))
    one, two = (2 / omega(np.array([1 / scale]))[0] ** 2 for scale in (500, 2))
    assert found.variance == pytest.approx(59 * 51 * (one + 500**2 * two), rel=1e-9)
    history.truncate(1)
    assert not history.estimators(above(0, 40, about))


def test_all_but_one_cell_is_not_known():
    """
    Of more than five million cells: the one would be a bias that nobody reports.
    """
    space = Space((200, 200, 130))
    system = FamilySystem(space, RECORDS)
    pairs = np.arange(40_000, dtype=np.int32).reshape(200, 200) // 20
    for number, (axes, labels) in enumerate(
        (((2,), np.arange(130, dtype=np.int32)), ((0, 1), pairs.astype(np.int32)))
    ):
        family = Family(LinearQuery.count(space), axes, labels, int(labels.max()) + 1)
        system.add(MeasuredFamily(family, 130 * number, 1.0))
    inside = np.ones((200, 200), dtype=np.int64)
    inside[3, 5] = 0
    assert system.estimators(Family(LinearQuery.count(space)))[0][0] is not None
    part = LinearQuery.count(space, Factor((0, 1), inside))
    assert system.estimators(Family(part))[0][0] is None


@pytest.mark.parametrize("times", [10**6, 10**12, 2**52])
def test_large_coefficients_are_exact_or_left_out(times):
    """
    Coefficients whose products pass 64 bits are told in parts; where not even sums of these are
    exact, such a family takes no part, and keeps no other from it.
    """
    about = LinearQuery.of(LARGE, Fraction(1), {1: Term.of(1, ()), 0: Term.of(-times, ())})
    total = LinearQuery.of(LARGE, Fraction(1), {1: Term.of(1, ())})
    system, number = FamilySystem(LARGE, RECORDS), 0
    for family in (grouped((0, 1), about), grouped((0, 1), total), grouped((1, 2)), grouped((1,))):
        system.add(MeasuredFamily(family, number, 20.0 * family.sensitivity))
        number += family.rows
    for query, known in (
        (above(1, 40), True),
        (above(0, 40, total), True),
        (above(0, 40, about), times < 10**7),
        (above(0, 40), times < 10**7),  # which differences of the first two tell
    ):
        ((found, _),) = system.estimators(Family(query))
        assert (found is not None) == known
        assert found is None or found.slack * float(found.unit) < found.variance**0.5 / 1000


def test_a_row_that_varies_along_fewer_columns_than_its_family_is_known():
    """
    Of CASE WHEN a < 100 THEN 0 WHEN b < 10 THEN 1 ELSE 2 END the first group is one of a alone.
    """
    space = Space((200, 20))
    history = History(space, RECORDS)
    labels = np.arange(200, dtype=np.int32)
    for scale in (1.0, 2.0):
        history.append(Family(LinearQuery.count(space), (0,), labels, 200), scale)
    cases = np.full((200, 20), 2, dtype=np.int32)
    cases[:, :10] = 1
    cases[:100] = 0
    family = Family(LinearQuery.count(space), (0, 1), cases, 3)
    rows = [family.row(row) for row in range(3)]
    history.prepare(family, rows)
    assert [bool(history.estimators(row)) for row in rows] == [True, False, False]


def test_what_takes_too_long_together_is_known_apart():
    """
    Random groups by thousands, which have products with nearly all others: a GROUP BY of 200 groups
    is not solved for, and what one family knows of it is known still.
    """
    space, rng = Space((128, 128)), np.random.default_rng(0)
    history = History(space, RECORDS)
    for _ in range(5):
        labels = rng.integers(0, 4000, (128, 128)).astype(np.int32)
        labels.flat[:4000] = np.arange(4000)
        history.append(Family(LinearQuery.count(space), (0, 1), labels, 4000), 10.0)
    cells = np.arange(2**14, dtype=np.int32).reshape(128, 128)
    history.append(Family(LinearQuery.count(space), (0, 1), cells // 2, 2**13), 10.0)
    family = Family(LinearQuery.count(space), (0, 1), cells // 2 % 200, 200)
    looks = []
    rows = [family.row(row) for row in range(200)]
    history.prepare(family, rows, lambda: looks.append(1))
    assert len(looks) < 100
    assert history.estimators(rows[7])


WIDE = Space((10, 20, 30) + (10,) * 27)


def test_a_cube_may_have_any_number_of_cells():
    """
    What is solved is in units of the cells that nothing mentions, 10**27 of them; a query that has
    nothing in common with a family is none of it.
    """
    system = FamilySystem(WIDE, RECORDS)
    history = History(WIDE, RECORDS)
    rows = np.arange(600, dtype=np.int32).reshape(20, 30)
    one = np.eye(10, dtype=np.int64)
    here, there = (LinearQuery.count(WIDE, Factor((0,), one[i])) for i in (1, 2))
    for number, query in enumerate((here, LinearQuery.count(WIDE))):
        system.add(MeasuredFamily(Family(query, (1, 2), rows, 600), 600 * number, 3.0))
        history.append(Family(query, (1, 2), rows, 600), 3.0)
    ((found, _),) = system.estimators(Family(here))
    assert found is not None
    assert found.variance == pytest.approx(600 * 2 / omega(np.array([1 / 3]))[0] ** 2)
    assert history.estimators(here)
    assert history.estimators(there) == []


@pytest.mark.parametrize("parts", [2, 5, 9])
def test_products_that_add_up_past_64_bits_are_none(parts):
    """
    Each part of a family's squares fits, their sum may not: it takes no part then, and a count that
    another family knows is what that family says.
    """
    space = Space((100, 200), (Box(0, 1, True),) * 4)
    array = np.full(100, 2**27, dtype=np.int64)
    array[0] -= 1
    each = {part: Term.of(1, (Factor((0,), array),)) for part in range(parts)}
    inside = Factor((1,), np.eye(200, dtype=np.int64)[7])
    hostile = LinearQuery.of(space, Fraction(1), each).times(inside)
    labels = np.arange(100, dtype=np.int32)
    history = History(space, RECORDS)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(history_module, "DENSE_FAMILY", 0)
        history.append(Family(hostile, (0,), labels, 100), 2.0**40)
        history.append(Family(LinearQuery.count(space), (0,), labels, 100), 4.0)
        history.append(Family(LinearQuery.count(space), (0,), labels // 2, 50), 4.0)
    found = history.estimators(LinearQuery.count(space))
    one, two = (n * 2 / omega(np.array([1 / 4]))[0] ** 2 for n in (100, 50))
    best = min(estimator.variance for estimator in found)
    assert best == pytest.approx(1 / (1 / one + 1 / two), rel=1e-8)


def test_families_with_nothing_in_common_may_have_any_factors():
    """
    2**51 times 2**14 times nothing is nothing.
    """
    space = Space((4, 300), (Box(0, 1),))
    history = History(space, RECORDS)
    for place, times in enumerate((2**51, 2**14)):
        one = Factor((0,), np.eye(4, dtype=np.int64)[place])
        query = LinearQuery.of(
            space, Fraction(1), {0: Term.of(times, (one,)), 1: Term.of(1, (one,))}
        )
        labels = np.arange(1200, dtype=np.int32).reshape(4, 300)
        history.append(Family(query, (0, 1), labels, 1200), 10.0 * times)
    for axes in ((0, 1), (1,)):
        shape = [space.sizes[axis] for axis in axes]
        labels = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
        history.append(Family(LinearQuery.count(space), axes, labels, labels.size), 1.0)
    assert history.estimators(LinearQuery.count(space))


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e-3, 1.0, 1e18, 1e100, 1e160, 1e300])
@pytest.mark.parametrize("beside", [1.0, 1e160])
def test_noise_of_any_size_raises_nothing(scale, beside):
    """
    Nor do factors far from 1, of a query or of a family.
    """
    space = Space((200, 3))
    labels = np.arange(200, dtype=np.int32)
    total = LinearQuery.count(space)
    history = History(space, RECORDS)
    with np.errstate(all="ignore"):  # far beyond what is ever drawn
        history.append(Family(total, (0,), labels, 200), scale)
        history.append(Family(total, (0,), labels // 2, 100), beside)
        history.append(Family(total * Fraction(10) ** 155, (0,), labels // 4, 50), beside)
        history.append(Family(total), beside)
        for times in (Fraction(1), Fraction(10) ** 160, Fraction(1, 10**320)):
            wanted = Family(total * times, (0,), labels, 200)
            history.prepare(wanted, [wanted.row(row) for row in range(200)])
            assert history.estimators(total * times)


def test_what_is_cheap_crowds_nothing_out():
    """
    Twenty families that are measured badly, or that can take no part, hide none that is good.
    """
    total = LinearQuery.of(LARGE, Fraction(1), {1: Term.of(1, ())})
    about, huge = (
        LinearQuery.of(LARGE, Fraction(1), {1: Term.of(1, ()), 0: Term.of(-middle, ())})
        for middle in (500, 10**12)
    )
    history = History(LARGE, RECORDS)
    history.append(grouped((0, 1), total), 500.0)
    history.append(grouped((0, 1)), 2.0)
    alone = min(each.variance for each in history.estimators(above(0, 40, about)))
    for number in range(20):
        labels = (np.arange(5100, dtype=np.int32).reshape(100, 51) > 51 * number).astype(np.int32)
        for query in (LinearQuery.count(LARGE), huge):
            family = Family(query, (0, 1), labels, 2)
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(history_module, "DENSE_FAMILY", 0)
                history.append(family, 1e6 * family.sensitivity)
    found = history.estimators(above(0, 40, about))
    assert min(each.variance for each in found) <= alone * (1 + 1e-6)


def test_a_family_of_wide_scope_stands_aside():
    """
    In whose units the products of all others would be too large.
    """
    space = Space((100, 51, 21) + (10,) * 14)
    history, hostile = History(space, RECORDS), History(space, RECORDS)
    one = np.eye(10, dtype=np.int64)[0]
    wide = LinearQuery.count(space, *(Factor((axis,), one) for axis in range(3, 17)))
    labels = np.arange(51, dtype=np.int32)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(history_module, "DENSE_FAMILY", 0)
        hostile.append(Family(wide, (1,), labels, 51), 0.5)
    for each in (history, hostile):
        for axes, scale in (((0, 1), 20.0), ((1, 2), 12.0)):
            shape = [space.sizes[axis] for axis in axes]
            rows = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
            each.append(Family(LinearQuery.count(space), axes, rows, rows.size), scale)
    third = Factor((1,), (np.arange(51) % 3 == 0).astype(np.int64))
    best = [
        min(estimator.variance for estimator in each.estimators(LinearQuery.count(space, third)))
        for each in (history, hostile)
    ]
    assert best[1] == pytest.approx(best[0], rel=1e-9)


@pytest.mark.parametrize("bits", [20, 28, 30])
def test_queries_with_huge_coefficients_are_known_without_bias_or_not(bits):
    """
    Past what floats can hold, and where the rows of several measurements share a coefficient.
    """
    space = Space((6, 5))
    labels = np.arange(30, dtype=np.int32).reshape(6, 5)
    family = Family(LinearQuery.count(space), (0, 1), labels, 30)
    system = FamilySystem(space, RECORDS)
    for number, scale in enumerate((32.0, 1.0, 3.7)):
        system.add(MeasuredFamily(family, 30 * number, scale))
    for step in range(20):
        one = np.full(6, 2**bits + 2**7 * (2 * step + 1), dtype=np.int64)
        one[1] += 1
        two = np.full(5, 2 ** (bits - 1) + 1, dtype=np.int64)
        two[0] -= 1
        query = LinearQuery.count(space, Factor((0,), one), Factor((1,), two))
        ((found, _),) = system.estimators(Family(query))
        if found is None:
            continue
        told = [Fraction(0)] * 30
        for row, a in zip(found.rows.tolist(), found.coefficients.tolist(), strict=True):
            told[row % 30] += Fraction(a) * found.unit
        wanted = query.parts[0].dense((0, 1), space).reshape(-1).tolist()
        bias = max(abs(t - w) for t, w in zip(told, wanted, strict=True)) * RECORDS
        assert bias <= Fraction(found.slack) * found.unit * (1 + Fraction(1, 10**9))


def test_a_family_that_is_measured_better_is_used_so():
    """
    Or worse: which of two is the nearest is looked at again.
    """
    labels = np.arange(200, dtype=np.int32)
    family = Family(LinearQuery.count(Space((200,))), (0,), labels, 200)
    for first, second in ((10.0, 1.0), (100.0, 20.0)):
        history = History(family.query.space, RECORDS)
        blocks = [history.append(family, scale) for scale in (10.0, 20.0)]
        history.replace(blocks[first == 10.0], 1.0 if first == 10.0 else 100.0, [0] * 200)
        best = min(each.variance for each in history.estimators(family.row(3)))
        assert best <= 2 / omega(np.array([1 / second]))[0] ** 2 * (1 + 1e-9)


def test_families_and_single_rows_both_count(monkeypatch):
    """
    What a large family and the dense system know, each of them, is mixed: each has weight, and the
    variance is that of the dense solution.
    """
    monkeypatch.setattr(history_module, "DENSE_FAMILY", 10)
    history = History(LARGE, RECORDS)
    history.append(grouped((1,)), 12.0)
    half = [(np.arange(51) % 2 == part).astype(np.int64) for part in range(2)]
    for part in half:
        history.append(Family(LinearQuery.count(LARGE, Factor((1,), part))), 30.0)
    best = min(
        history.estimators(LinearQuery.count(LARGE)), key=lambda estimator: estimator.variance
    )
    assert set(best.rows.tolist()) == set(range(53))
    one, two = (n * 2 / omega(np.array([1 / s]))[0] ** 2 for n, s in ((51, 12), (2, 30)))
    assert best.variance == pytest.approx(1 / (1 / one + 1 / two), rel=1e-8)
    answers = [3] * 51 + [60, 90]
    history.answers[:] = answers
    exact = sum(
        Fraction(a) * answers[row]
        for row, a in zip(best.rows.tolist(), best.coefficients.tolist(), strict=True)
    )
    assert history.exact(best) == best.unit * exact


@settings(max_examples=25)
@given(measured, measured, st.data())
def test_a_mixture_is_unbiased_and_no_worse(first, second, data):
    """
    Of estimators of one query: the coefficients of each row add up as in both, its variance is no
    more than that of either.
    """
    system, rows, _ = system_of([*first, *second])
    family = data.draw(st.sampled_from([family for family, _ in first]))
    ((one, _),) = system.estimators(Family(family.row(0)))
    if one is None or not one.rows.size:
        return
    two = one.__class__(
        one.unit,
        np.append(one.rows, len(rows)),
        np.append(one.coefficients, 0.25),
        np.append(one.rates / 3, 0.5),
        1e-12,
    )
    found = mixed(one, two, lambda numbers: np.full(len(numbers), 10.0))
    if found is not None:
        assert found.variance <= min(one.variance, two.variance) * (1 + 1e-9)
        units = float(found.unit / one.unit)
        told = dict(zip(found.rows.tolist(), (found.coefficients * units).tolist(), strict=True))
        for row, a in zip(one.rows.tolist(), one.coefficients.tolist(), strict=True):
            assert told[row] == pytest.approx(a, rel=1e-12)


def test_what_was_measured_is_found_again_beside_what_has_less_variance(monkeypatch):
    """
    A family that says no more of its rows than all do is passed over: yet its rows were enough.
    """
    monkeypatch.setattr(history_module, "DENSE_FAMILY", 0)
    history = History(LARGE, RECORDS)
    labels = np.arange(21, dtype=np.int32)
    wanted = Family(LinearQuery.count(LARGE), (2,), labels, 21)
    part = wanted.subset(range(12))
    target = planning.AccuracyTarget(part, Fraction(20), 0.05)
    (planned,) = planning.plan(history, [target], planning.Allocation()).measurements
    history.set_answers(history.blocks[-1], [0] * 12)
    monkeypatch.setattr(history.together, "told", lambda key: frozenset([planned.family.key]))
    monkeypatch.setattr(history.together, "estimators", lambda *_: [])  # none that is enough
    whole = planning.AccuracyTarget(wanted, Fraction(20), 0.05)
    assert [e is not None for e in planning.estimators(history, whole)] == [True] * 12 + [False] * 9


def test_what_families_say_is_solved_again_only_where_a_family_changes(monkeypatch):
    """
    Single rows that come and go change nothing of it; families, and their noise, do: it is always
    what a history says that was told the same at once.
    """
    solved = []
    solve = FamilySystem.estimators
    monkeypatch.setattr(
        FamilySystem, "estimators", lambda *a: solved.append(a[1]) or solve(*a)
    )  # fmt: skip

    def by(*axes):
        shape = tuple(LARGE.sizes[axis] for axis in axes)
        labels = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
        return Family(LinearQuery.count(LARGE), axes, labels, labels.size)

    def single(age):
        ages = (np.arange(100) < age).astype(np.int64)
        return Family(LinearQuery.count(LARGE, Factor((0,), ages)))

    def told(history):
        found = history.estimators(wanted.query)
        return [(e.unit, e.rows.tolist(), e.coefficients.tolist(), e.rates.tolist()) for e in found]

    wanted, measured = single(30), [(by(0, 1), 20.0, None), (by(0, 2), 9.0, None)]
    history = History(LARGE, RECORDS)
    history.extend(measured)

    def check(times):
        solved.clear()
        found = told(history)
        assert len(solved) == times
        again = History(LARGE, RECORDS)
        again.extend([(block.family, block.scale, None) for block in history.blocks])
        assert found == told(again)

    check(1)
    history.append(single(50), 5.0)
    check(0)
    history.truncate(2)
    check(0)
    history.append(by(0), 30.0)
    check(1)
    history.replace(history.blocks[0], 4.0, [0] * 5100)
    check(1)
    history.truncate(2)
    check(1)
