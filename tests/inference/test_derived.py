"""Intervals of quantiles and extremes hold the truth as often as they say, of any noise."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.inference import plan as planning
from proxy.inference.derived import Counts, guess, interval
from proxy.inference.estimator import Estimator

RUNS = [pytest.param(500, marks=pytest.mark.slow), pytest.param(4000, marks=pytest.mark.audit)]
DELTA = 0.1
EVEN = {value: 12 for value in range(40)}
WORLDS = {  # true counts by value, and the scale of the noise
    "many": (EVEN, 4.0),
    "drowned": (EVEN, 40.0),
    "one record": ({3: 1}, 0.3),
    "two records": ({3: 1, 30: 1}, 0.4),
    "a small group": ({5: 3, 6: 2, 20: 4}, 1.0),
    "two heaps": ({0: 400, 39: 400}, 10.0),
    "skewed": ({value: 1000 >> value for value in range(10)}, 3.0),
    "nobody": ({}, 2.0),
}
KINDS = [
    ("percentile", "0.5", False),
    ("percentile", "0.5", True),
    ("percentile", "0.9", False),
    ("percentile", "0.25", True),
    ("min", "", False),
    ("max", "", False),
    ("distinct", "", False),
]


def truth(kind, part, discrete, counts):
    """The number of the records themselves, by PostgreSQL's definition."""
    records = [value for value, count in sorted(counts.items()) for _ in range(count)]
    if kind == "distinct":
        return len(set(records))
    if kind in ("min", "max"):
        return (min if kind == "min" else max)(records)
    if discrete:
        return records[max(math.ceil(Fraction(part) * len(records)) - 1, 0)]
    return float(np.percentile(records, float(part) * 100))


def shared(estimators, scale):
    """Estimators that have a row in common: their noises are correlated."""
    rows = len(estimators)
    return [
        Estimator(
            Fraction(1), np.array([i, rows]), np.array([1.0, 0.25]), np.array([1 / scale] * 2)
        )
        for i in range(rows)
    ]


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("alike", [False, True], ids=["independent", "correlated"])
@pytest.mark.parametrize("world", WORLDS)
def test_the_truth_is_inside_as_often_as_said(world, alike, runs):
    """
    Of 500 draws each (4,000 in the audit); None, and all that is possible, are never wrong.
    """
    least = 1 - DELTA - 4.75 * math.sqrt(DELTA * (1 - DELTA) / runs)  # missed once in 10**6 runs
    counts, scale = WORLDS[world]
    rng = np.random.default_rng(list(map(ord, world)))
    size = 40
    exact = np.array([counts.get(value, 0) for value in range(size)], dtype=float)
    singles = [
        Estimator(Fraction(1), np.array([i]), np.array([1.0]), np.array([1 / scale]))
        for i in range(size)
    ]
    estimators = shared(singles, scale) if alike else singles
    far = np.full(size, planning.half_width(estimators[0], DELTA / size))
    p = -math.expm1(-1 / scale)
    hits, told = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0)
    for _ in range(runs):
        one, two = rng.geometric(p, (2, size + 1))
        noise = (one - two).astype(float)
        noisy = exact + noise[:size] + (0.25 * noise[size] if alike else 0)
        known = Counts(np.arange(size) * 1.0, noisy, far, far, None, estimators, DELTA)
        for kind in KINDS:
            ends = interval(kind[0], kind[1], known, kind[2])
            told[kind] += ends is not None
            if ends is None:
                hits[kind] += 1
            elif counts or kind[0] == "distinct":
                hits[kind] += ends[0] - 1e-9 <= truth(*kind, counts) <= ends[1] + 1e-9
    assert {kind: hit / runs for kind, hit in hits.items() if hit < least * runs} == {}
    if world == "nobody":
        assert max(told[kind] for kind in KINDS[:6]) <= (1 - least) * runs  # it is seen to be empty
    if world in ("many", "skewed"):
        assert min(told[kind] for kind in KINDS[:4]) > 0.99 * runs


@pytest.mark.parametrize(
    "counts",
    [{0: 3, 2: 4, 7: 1, 9: 12}, {1: 1, 2: 1, 3: 1}, {1: 1, 8: 1}, {4: 1}, {2: 2, 3: 1, 6: 2, 8: 5}],
)
def test_an_exact_count_is_an_exact_quantile(counts):
    """
    Without noise to speak of, quantiles and extremes are points, as PostgreSQL has them.
    """
    size = 10
    exact = np.array([counts.get(value, 0) for value in range(size)], dtype=float)
    rates = np.array([40.0])
    estimators = [
        Estimator(Fraction(1), np.array([i]), np.array([1.0]), rates) for i in range(size)
    ]
    far = np.full(size, 0.1)
    known = Counts(np.arange(size) * 1.0, exact, far, far, None, estimators, 0.01)
    for kind in KINDS:
        value = truth(*kind, counts)
        low, high = interval(kind[0], kind[1], known, kind[2])
        assert low <= value <= high
        assert kind[0] == "percentile" or high == low


@pytest.mark.parametrize("part", ["0.15", "0.5", "0.75", "0.95"])
def test_a_quantile_of_bins_is_interpolated_within_its_bin(part):
    """
    Of values that lie evenly it is near the truth, and its interval is from edge to edge.
    """
    edges = np.array([0.0, 10, 20, 40, 100])
    records = np.linspace(0, 100, 5001)[:-1]
    exact = np.histogram(records, edges)[0].astype(float)
    estimators = [
        Estimator(Fraction(1), np.array([i]), np.array([1.0]), np.array([40.0])) for i in range(4)
    ]
    far = np.full(4, 0.1)
    known = Counts(edges[:-1], exact, far, far, edges[1:], estimators, 0.01)
    value = float(np.percentile(records, float(part) * 100))
    assert guess("percentile", part, known) == pytest.approx(value, abs=0.1)
    low, high = interval("percentile", part, known)
    assert low <= value <= high
    assert {low, high} <= set(edges.tolist())
    assert np.searchsorted(edges, high) - np.searchsorted(edges, low) == 1


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.lists(st.integers(0, 44), min_size=3, max_size=30),
    st.booleans(),
)
def test_of_bins_the_truth_of_their_records_is_inside(widths, records, whole):
    """
    Whatever lies within the bins: extremes, distinct values, variances and deviations.
    """
    edges = np.concatenate([[-3], -3 + np.cumsum(widths)]).astype(float)
    within = 0 if whole else np.linspace(0, 0.9, len(records))
    values = -3 + np.array(records) % sum(widths) + within
    exact = np.histogram(values, edges)[0].astype(float)
    near = np.full(len(widths), 1e-6)
    estimators = [
        Estimator(Fraction(1), np.array([i]), np.array([1.0]), np.array([40.0]))
        for i in range(len(widths))
    ]
    known = Counts(edges[:-1], exact, near, near, edges[1:], estimators, 0.01, whole)
    truths = {
        ("min", ""): values.min(),
        ("max", ""): values.max(),
        ("distinct", ""): len(np.unique(values)),
        ("spread", "var_pop"): values.var(),
        ("spread", "var_samp"): values.var(ddof=1),
        ("spread", "stddev_pop"): values.std(),
        ("spread", "stddev_samp"): values.std(ddof=1),
    }
    for kind, value in truths.items():
        ends = interval(*kind, known)
        assert ends is None or ends[0] - 1e-5 <= value <= ends[1] + 1e-5, kind
        assert ends is not None or kind[0] != "distinct"
    if whole and len(set(widths)) == 1 and widths[0] == 1:  # then bins are values
        assert interval("max", "", known) == (values.max(), values.max() + 1)
        assert interval("distinct", "", known) == (truths["distinct", ""],) * 2
