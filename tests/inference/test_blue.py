"""The paper's worked example, and the best estimate against dense linear algebra."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import proxy.inference.cholesky as cholesky_module
import proxy.inference.history as history_module
from proxy.experiment.blue import blue
from proxy.inference.estimator import omega
from proxy.inference.family import Family
from proxy.inference.history import History
from proxy.inference.query import Factor, LinearQuery
from proxy.inference.space import Space
from tests.searches import share

H = np.array(
    [
        [1, 1, 0, 0],
        [0, 0, 1, 1],
        [0, 0, 0, 1],
        [0, 0, 1, 0],
        [0, 1, 0, 1],
        [2, 1, 0, 0],
        [0, 0, 2, -1],
        [0, -1, 0, 1],
    ]
)
ALPHA = np.array([0.05, 0.1, 0.05, 0.1, 0.1, 0.05, 0.05, 0.1])
WEIGHTS = ALPHA / np.abs(H).max(axis=1)
Y = np.array([30.8, 30.3, 46.9, 20.2, 30.4, 68.9, 38.9, 9.5])
A = [
    0.47692308, 0.36448598, -0.03271028, 0.4953271,
    -0.50007189, 0.26153846, 0.07009346, 0.23838965,
]  # fmt: skip


def test_the_papers_example():
    """
    The coefficients, the estimate and the variance of Q = [1 0 1 0], and x̂.
    """
    found = blue(H, WEIGHTS, Y, [1, 0, 1, 0])
    assert found.coefficients == pytest.approx(A, abs=5e-9)
    assert found.estimate == pytest.approx(42.01380301941049, abs=1e-10)
    assert found.variance == pytest.approx(554.4500359453630, abs=1e-10)
    cells = [blue(H, WEIGHTS, Y, row).estimate for row in np.eye(4)]
    assert cells == pytest.approx([24.9923, 10.1769, 17.0215, 19.5019], abs=5e-5)


def test_no_full_rank_is_needed():
    """
    From the total alone the total is estimable and one cell is not.
    """
    assert blue([[1, 1]], [0.5], [7], [2, 2]).estimate == pytest.approx(14)
    assert not blue([[1, 1]], [0.5], [7], [1, 0]).estimable


def query_of(vector, space):
    return LinearQuery.count(space, Factor((0,), np.array(vector, dtype=np.int64)))


matrices = arrays(np.int64, st.tuples(st.integers(1, 9), st.just(5)), elements=st.integers(-3, 3))


@pytest.mark.slow
@given(matrices, st.data())
def test_the_history_is_the_dense_solution(rows, data):
    """
    For random rows, dependent ones and repeats included, the incremental history finds the
    same estimable queries, estimate and variance as dense least squares with ω for w.
    """
    space = Space((5, 10**9))
    scales = data.draw(arrays(np.float64, len(rows), elements=st.floats(0.2, 30)))
    answers = data.draw(arrays(np.int64, len(rows), elements=st.integers(-50, 50)))
    history = History(space, records=100)
    kept = []
    for row, scale, answer in zip(rows, scales, answers, strict=True):
        query = query_of(row, space)
        if not query.zero:
            history.append(Family(query), scale, [int(answer)])
            kept.append((row, omega(1 / scale) / int(query.grid), answer * int(query.grid)))
    wanted = data.draw(arrays(np.int64, 5, elements=st.integers(-3, 3)))
    query = query_of(wanted, space)
    if query.zero or not kept:
        return
    dense = blue(*(np.array(part, dtype=float) for part in zip(*kept, strict=True)), wanted)
    found = history.estimators(query)
    assert bool(found) == dense.estimable
    if found:
        best = found[0]
        assert best.variance == pytest.approx(dense.variance, rel=1e-7)
        assert history.estimate(best) == pytest.approx(dense.estimate, rel=1e-6, abs=1e-6)
        assert best.slack < 1e-9


def bias(estimator, vectors, grids, wanted):
    """The most that one record can move θ̂ - θ, exactly, of rows of these vectors and grids."""
    total = [-Fraction(int(value)) for value in wanted]
    for row, coefficient in zip(estimator.rows, estimator.coefficients, strict=True):
        for cell, value in enumerate(vectors[row]):
            total[cell] += estimator.unit * Fraction(coefficient) * int(value) / grids[row]
    return max(map(abs, total))


@given(matrices, st.data())
def test_what_is_topped_up_is_the_dense_solution(rows, data):
    """
    A row that is measured beside what was known of its query is mixed with that: the result is
    what a history that solves for it finds, and has no more bias than it says.
    """
    space = Space((5, 10**9))
    scales = data.draw(arrays(np.float64, len(rows) + 1, elements=st.floats(0.2, 30)))
    answers = data.draw(arrays(np.int64, len(rows) + 1, elements=st.integers(-50, 50))).tolist()
    wanted = data.draw(st.sampled_from([*rows, rows.sum(axis=0), rows[0] * 2]))
    query = query_of(wanted, space)
    if query.zero:
        return
    one, two = History(space, records=100), History(space, records=100)
    measured = [row for row in rows if any(row)]
    for row, scale, answer in zip(measured, scales, answers, strict=False):
        for history in (one, two):
            history.append(Family(query_of(row, space)), scale, [answer])
    one.prepare(Family(query), [query])
    for history in (one, two):
        history.append(Family(query), scales[-1], answers[-1:])
    one._best_of = None  # nothing is solved for
    mixed, solved = (min(each.estimators(query), key=lambda e: e.variance) for each in (one, two))
    assert mixed.variance == pytest.approx(solved.variance, rel=1e-7)
    assert one.estimate(mixed) == pytest.approx(two.estimate(solved), rel=1e-6, abs=1e-6)
    grids = [block.family.grid for block in one.blocks]
    for each in one.estimators(query):
        off = 100 * bias(each, [*measured, wanted], grids, wanted)
        assert off <= each.unit * Fraction(each.slack) < Fraction(1, 10**8)


@pytest.mark.slow
@pytest.mark.parametrize("every", share(1, [8, 1]))
def test_a_longer_history_is_the_dense_solution_too(every):
    """
    Ninety rows over forty cells, thirty of them planned and taken back in between: every cell's
    (every eighth cell's in the fast run) estimate and variance are those of dense least squares.
    """
    rng = np.random.default_rng(5)
    space, history, kept = Space((40, 3)), History(Space((40, 3)), records=100), []
    for i in range(90):
        if i % 3 == 0:
            blocks = len(history.blocks)
            history.append(Family(query_of(rng.integers(-1, 3, 40), space)), 3.0, [1])
            history.truncate(blocks)
        row, scale = rng.integers(-1, 3, 40), float(rng.uniform(0.3, 20))
        query = query_of(row, space)
        answer = int(rng.integers(-30, 30))
        history.append(Family(query), scale, [answer])
        kept.append((row, omega(1 / scale) / int(query.grid), answer * int(query.grid)))
    h, w, y = (np.array(part, dtype=float) for part in zip(*kept, strict=True))
    for cell in np.eye(40, dtype=np.int64)[::every]:
        dense, best = blue(h, w, y, cell), history.estimators(query_of(cell, space))[0]
        assert best.variance == pytest.approx(dense.variance, rel=1e-9)
        assert history.estimate(best) == pytest.approx(dense.estimate, rel=1e-9)


def same(one, two):
    """Assert that two histories have the same rows, and say the same of them."""
    assert one._dense.number.tolist() == two._dense.number.tolist()
    assert one._dense.unit == two._dense.unit
    assert one._dense.basis.tolist() == two._dense.basis.tolist()
    assert one._dense.others.tolist() == two._dense.others.tolist()
    rank, others = one.rank, len(one._dense.others)
    for name in ("real", "wrapped"):
        left, right = (
            [getattr(m, name) for m in (h._dense.gram, h._dense.cross)] for h in (one, two)
        )
        assert (left[0][:rank, :rank] == right[0][:rank, :rank]).all()
        assert (left[1][:rank, :others] == right[1][:rank, :others]).all()
    assert np.allclose(one._dense.transform, two._dense.transform, rtol=1e-8, atol=1e-8)
    assert one._dense.norm == pytest.approx(two._dense.norm)
    for left, right in ((one._triangle, two._triangle), (one._weights, two._weights)):
        sides = np.random.default_rng(1).normal(size=left.size)
        assert left.solve(sides) == pytest.approx(right.solve(sides), rel=1e-6, abs=1e-9)


def asked_before(space, records, measured):
    """A history that was asked for what each row says, before it was added."""
    history = History(space, records=records)
    for family, *rest in measured:
        for query in family.queries():
            history.estimators(query)
        history.append(family, *rest)
    return history


@given(matrices, st.data())
def test_rows_together_are_as_rows_in_turn(rows, data):
    """
    Rows read at once, some of them planned later, are those of a history that followed them; and of
    one that was asked for each before it was one of its rows.
    """
    space, first = Space((5, 10**9)), data.draw(st.integers(0, 9))
    scales = data.draw(arrays(np.float64, len(rows), elements=st.floats(0.2, 30)))
    measured = [
        (Family(query_of(row, space)), scale, [i])
        for i, (row, scale) in enumerate(zip(rows, scales, strict=True))
    ]
    one, two = History(space, records=100), History(space, records=100)
    for each in measured:
        one.append(*each)
    two.extend(measured[:first])
    two.extend(measured[first:])
    same(one, two)
    same(one, asked_before(space, 100, measured))
    wanted = query_of(data.draw(arrays(np.int64, 5, elements=st.integers(-3, 3))), space)
    found = [[(e.variance, h.estimate(e)) for e in h.estimators(wanted)] for h in (one, two)]
    assert np.allclose(*found, rtol=1e-6, atol=1e-6)


def test_as_many_rows_fit_together_as_in_turn(monkeypatch):
    """
    Of nine rows five are solved together; and a look that finds none forgets nothing.
    """
    monkeypatch.setattr(history_module, "DENSE_ROWS", 5)
    space = Space((9,))
    measured = [(Family(query_of(row, space)), 2.0, [1]) for row in np.eye(9, dtype=np.int64)]
    one, two = History(space, records=100), History(space, records=100)
    for each in measured:
        one.append(*each)
    two.extend(measured)
    same(one, two)
    assert two.rank == 5
    asked = query_of([1, 1, 0, 0, 0, 0, 0, 0, 0], space)
    found = two.estimators(asked)
    assert two.extend([]) == []
    assert two.estimators(asked) is found


def test_many_rows_together_are_as_rows_in_turn(monkeypatch):
    """
    300 rows, in panels that end within them: conjunctions, repeats, tied rows, families beside, and
    rows that floats nearly lose, at the beginning and in the midst; likewise where each was asked
    for before.
    """
    monkeypatch.setattr(history_module, "PANEL", 70)
    monkeypatch.setattr(cholesky_module, "CANCELLED", 2.0**-8)
    rng, space = np.random.default_rng(8), Space((1000, 60, 6))
    total = LinearQuery.count(space)
    labels = np.arange(6, dtype=np.int32)

    def value(i):
        return LinearQuery.count(space, Factor((0,), np.eye(1, 1000, i, dtype=np.int64)[0]))

    asked = [total, total - value(0), total + value(0) * 2]
    for i in range(300):
        if i % 50 == 7:
            asked.append(total - value(i) * int(rng.integers(1, 3)))
        elif i % 10 == 3:
            asked.append(asked[rng.integers(len(asked))] * int(rng.integers(1, 4)))
        elif i % 5 == 0:
            asked.append(LinearQuery.count(space, Factor((1, 2), rng.integers(0, 2, (60, 6)))))
        else:
            axes = rng.choice(3, rng.integers(1, 4), replace=False).tolist()
            parts = [Factor((a,), rng.integers(0, 2, space.sizes[a])) for a in axes]
            asked.append(LinearQuery.count(space, *parts) * Fraction(1, 3))
    measured = [(Family(query), float(rng.uniform(1, 50)), [i]) for i, query in enumerate(asked)]
    measured[150:150] = [(Family(total, (2,), labels, 6), 3.0, range(6))]
    one, two = History(space, records=10**6), History(space, records=10**6)
    for each in measured:
        one.append(*each)
    blocks = two.extend(measured)
    assert [block.start for block in blocks] == [block.start for block in one.blocks]
    assert len(one._dense.others) > 30
    assert one.rank > 200
    same(one, two)
    same(one, asked_before(space, 10**6, measured))


@pytest.mark.slow
@given(matrices, st.integers(0, 8), st.data())
def test_truncating_forgets(rows, keep, data):
    """
    A history that planned more and took it back estimates as if it never had.
    """
    space = Space((5,))
    kept = [query_of(row, space) for row in rows]
    kept = [query for query in kept if not query.zero]
    one, two = History(space, 10), History(space, 10)
    for i, query in enumerate(kept):
        two.append(Family(query), 2.0, [i])
        if i < keep:
            one.append(Family(query), 2.0, [i])
    two.truncate(keep)
    for i, query in enumerate(kept[keep:]):
        one.append(Family(query), 3.0, [i])
        two.append(Family(query), 3.0, [i])
    query = query_of(data.draw(arrays(np.int64, 5, elements=st.integers(-3, 3))), space)
    left, right = one.estimators(query), two.estimators(query)
    assert [e.variance for e in left] == pytest.approx([e.variance for e in right])
    assert [one.estimate(e) for e in left] == pytest.approx([two.estimate(e) for e in right])


def test_nearly_equal_rows_of_a_trillion_cells():
    """
    Total minus all-but-one is that one cell, exactly; without the total nothing is.
    """
    space = Space((10**6, 10**6))
    one = np.zeros(10**6, dtype=np.int64)
    one[7] = 1
    cell = LinearQuery.count(space, Factor((0,), one), Factor((1,), one))
    row = LinearQuery.count(space, Factor((0,), one))
    but = row - cell
    history = History(space, records=10**6)
    history.append(Family(row), 5.0, [100])
    assert history.estimators(cell) == []
    assert history.estimators(but) == []
    history.append(Family(but), 5.0, [93])
    (found,) = history.estimators(cell)
    assert history.estimate(found) == pytest.approx(7, abs=1e-9)
    assert found.slack <= 1e-6


def test_a_large_family_is_used_alone():
    """
    A thousand groups sum up to their total, and to half of it, but say nothing finer.
    """
    space = Space((1000, 7))
    count = LinearQuery.count(space)
    family = Family(count, (0,), np.arange(1000, dtype=np.int32), 1000)
    history = History(space, 10)
    history.append(family, 2.0, range(1000))
    (total,) = history.estimators(count)
    assert history.estimate(total) == 499500
    half = np.repeat([1, 0], 500).astype(np.int64)
    (found,) = history.estimators(LinearQuery.count(space, Factor((0,), half)))
    assert history.estimate(found) == 124750
    fine = LinearQuery.count(space, Factor((1,), np.eye(7, dtype=np.int64)[0]))
    assert history.estimators(fine) == []


def test_a_refinement_counts_with_its_new_weight():
    """
    Replacing a repeated row's answer and scale gives what measuring so at once gives.
    """
    space = Space((3,))
    one, two = (History(space, 10) for _ in range(2))
    rows = [[1, 1, 0], [0, 1, 1], [1, 2, 1], [1, 0, 0]]
    for i, row in enumerate(rows):
        one.append(Family(query_of(row, space)), 4.0, [i])
        two.append(Family(query_of(row, space)), 1.0 if i == 2 else 4.0, [9 if i == 2 else i])
    one.replace(one.blocks[2], 1.0, [9])
    query = query_of([1, 2, 1], space)
    left, right = one.estimators(query)[0], two.estimators(query)[0]
    assert left.variance == pytest.approx(right.variance)
    assert one.estimate(left) == pytest.approx(two.estimate(right))


def test_a_row_that_a_refinement_loses_takes_no_other_s_place():
    """
    Of three dependent rows the second is lost in rounding, once the row that it repeats is told
    with far more noise: the third is still itself.
    """
    space = Space((2, 3))
    one, two = (query_of(row, space) for row in np.eye(2, dtype=np.int64))
    history = History(space, records=100)
    first = history.append(Family(one), 10.0, [1])
    for query, answer in ((two, 20), (one, 3), (one, 5), (two, 40)):
        history.append(Family(query), 10.0, [answer])
    assert len(history._dense.others) == 3
    history.replace(first, 2.0**40, [0])
    assert len(history._dense.others) == 2
    (best, *_) = history.estimators(two)
    assert history.estimate(best) == pytest.approx(30)
    (best, *_) = history.estimators(one + two)
    vector = np.zeros(2)
    for row, a in zip(best.rows.tolist(), best.coefficients.tolist(), strict=True):
        vector += float(best.unit) * a * np.array([[1, 0], [0, 1], [1, 0], [1, 0], [0, 1]])[row]
    assert vector == pytest.approx([1, 1])


def test_weights_over_nine_decades():
    """
    Repeats of the same rows with noise from a thousandth to a million: the estimate of each cell
    is unbiased to its slack, and no worse than the best single row.
    """
    rng = np.random.default_rng(3)
    space, counts = Space((6,)), np.array([5, 0, 17, 3, 1000, 2])
    history = History(space, records=2000)
    for _ in range(40):
        row = rng.integers(0, 2, 6)
        if row.any():
            history.append(
                Family(query_of(row, space)), 10.0 ** rng.integers(-3, 7), [int(row @ counts)]
            )
    for cell in np.eye(6, dtype=np.int64):
        found = history.estimators(query_of(cell, space))
        for estimator in found:  # the answers are exact here: what is left is bias
            assert abs(history.estimate(estimator) - cell @ counts) <= estimator.slack + 1e-9
        if len(found) > 1:
            singles = min(e.variance for e in found[1:])
            assert found[0].variance <= singles * (1 + 1e-6)


def test_what_does_not_fit_beside_the_others_is_known_by_itself(monkeypatch):
    """
    Past the room for rows that are solved together: a single row answers its multiples, free of
    bias, a family what its rows add up to, and what needs two single rows is not known.
    """
    monkeypatch.setattr(history_module, "DENSE_ROWS", 2)
    space, history = Space((6, 10**9)), History(Space((6, 10**9)), records=100)
    eye = np.eye(6, dtype=np.int64)
    labels = np.array([0, 0, 1, 1, 2, 2], dtype=np.int32)
    history.append(Family(query_of(eye[0], space)), 2.0, [5])
    history.append(Family(query_of(eye[1], space)), 2.0, [6])
    history.append(Family(query_of(2 * eye[2], space)), 2.0, [7])
    history.append(Family(query_of(np.ones(6), space), (0,), labels, 3), 2.0, [10, 20, 30])

    def estimates(vector):
        query = query_of(np.array(vector), space)
        return [(history.estimate(e), e.slack) for e in history.estimators(query)]

    assert estimates(eye[0] - eye[1]) == [(-1, 0)]
    assert estimates(-3 * eye[2]) == [(-21, 0)]  # of 7 for two of each record, or one
    assert estimates([0, 0, 1, 1, 1, 1]) == [(50, 0)]
    assert estimates(eye[1] + eye[2]) == []


def test_a_row_that_is_nearly_another_is_kept_beside_it():
    """
    Independent rows whose complement floats lose nearly all digits of: 10⁶ cells but for one.
    """
    space = Space((10**3, 10**3))
    cell = [np.zeros(10**3, dtype=np.int64) for _ in range(2)]
    cell[0][1] = cell[1][2] = 1
    one = LinearQuery.count(space, *(Factor((i,), each) for i, each in enumerate(cell)))
    total = LinearQuery.count(space)
    history = History(space, records=10**6)
    history.append(Family(total), 2.0, [1000])
    history.append(Family(total - one), 2.0, [900])
    history.append(Family(total + one * 2), 3.0, [1205])
    (best, *_) = history.estimators(one)
    assert history.rank == 2
    w = omega(np.array([1 / 2, 1 / 2, 1 / 3]))
    dense = blue([[10**3, 0], [10**3, -1e-3], [10**3, 2e-3]], w, [1000, 900, 1205], [0, 1e-3])
    assert best.variance == pytest.approx(dense.variance, rel=1e-6)
    assert best.slack < 1e-6


@pytest.mark.parametrize("beside", [1, 10**13])
def test_rows_on_two_that_are_nearly_one_have_whole_coordinates(beside):
    """
    3 total - 7 one, of 10⁵ parts of one cell, or of so many that floats alone do not settle.
    """
    space, one = Space((10**5, beside)), np.zeros(10**5, dtype=np.int64)
    one[7] = 1
    part, total = LinearQuery.count(space, Factor((0,), one)), LinearQuery.count(space)
    history = History(space, records=10**6)
    for query in (total, total - part, total + part * 2, total * 3 - part * 7):
        history.append(Family(query), 5.0, [1])
    assert history._dense.transform == pytest.approx(np.array([[3, -2], [-4, 7]]), abs=1e-12)


@settings(max_examples=60)
@given(
    st.integers(1, 27),
    st.lists(
        st.tuples(st.sampled_from(range(1, 8)), st.floats(0.05, 2000)), min_size=2, max_size=6
    ),
)
@example(24, [(7, 3.0), (7, 7.0), (7, 1234.5)])
@example(27, [(7, 3.0), (7, 3.0), (7, 0.1)])
def test_the_bias_is_no_more_than_it_says_in_cubes_of_any_size(digits, measured):
    """
    Of 10 to 10**27 cells: what rounding leaves of the coefficients, which add up 10**27 times, is
    in the slack, by rational arithmetic; counts of some of three parts.
    """
    space, records = Space((3, *[10] * (digits - 1)), ()), 1000
    parts = {n: np.array([n & 1, n >> 1 & 1, n >> 2], dtype=np.int64) for n in range(1, 8)}
    asked = {n: LinearQuery.count(space, Factor((0,), part)) for n, part in parts.items()}
    history = History(space, records)
    rows = [n for n, _ in measured]
    for n, scale in measured:
        history.append(Family(asked[n]), scale)
    for n, query in asked.items():
        for found in history.estimators(query):
            missed = bias(found, [parts[row] for row in rows], [1] * len(rows), parts[n])
            assert missed * records <= found.unit * Fraction(found.slack)
