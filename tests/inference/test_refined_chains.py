"""Chains of refinements: their joint law, and what they tell of a record."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from proxy.inference.mechanism import GeometricSampler
from tests.inference.refined import f, mass
from tests.searches import share

ALARM = 1e-6  # of all tests of one function together
CHAINS = [(8.0, 3.0, 1.0, 0.4), (2.0, 1.9, 1.0), (1000.0, 1.0), (300.0, 290.0, 40.0, 39.5)]
RUNS = [(4000, CHAINS[0]), *itertools.product([10_000, 10**6], CHAINS)]


def two_sided(scale):
    """P(N ≤ k) of the two-sided geometric law."""

    def below(k):
        tail = np.exp(-np.where(k < 0, -k, k + 1) / scale) / (1 + math.exp(-1 / scale))
        return np.where(k < 0, tail, 1 - tail)

    return below


def dropped(old, new):
    """P(N₁ − N₂ ≤ k): an atom at 0, and the law of the old scale."""
    p, q = math.exp(-1 / old), math.exp(-1 / new)
    atom = (1 - p) ** 2 * q / ((1 - q) ** 2 * p)
    return lambda k: (1 - atom) * two_sided(old)(k) + atom * (k >= 0)


def cuts(scale, bins):
    """Whole numbers between which the law of a scale has about equal shares; 0 is alone."""
    levels = np.linspace(0, 1, bins)[1:-1] / 2
    tail = np.unique(np.ceil(np.log(levels * 2) * scale).astype(int))
    return np.unique([*(tail - 1), -1, 0, *(-tail)])


def alarm(chains, scales):
    """Return the chance, at most, that chains are as far from the law as these, [steps, runs].

    By the product form: the last noise and what was dropped at each step are independent.  Counts
    of bins are binomial, exactly; the least likely of them counts, times how many there are.
    """
    noises = np.asarray(chains)
    drops = [dropped(*pair) for pair in itertools.pairwise(scales)]
    apart = [*(noises[:-1] - noises[1:]), noises[-1]]
    laws = [*drops, two_sided(scales[-1])]
    sizes = [*scales[:-1], scales[-1]]
    counts, chances = [], []

    def compare(values, laws, edges):
        """Count the cells of a product of independent numbers."""
        shape = [len(each) + 1 for each in edges]
        places = [np.searchsorted(e, v, side="left") for e, v in zip(edges, values, strict=True)]
        found = np.bincount(np.ravel_multi_index(places, shape), minlength=math.prod(shape))
        expected = np.ones(1)
        for law, each in zip(laws, edges, strict=True):
            expected = np.outer(expected, np.diff(law(each), prepend=0, append=1)).ravel()
        counts.extend(found)
        chances.extend(expected)

    compare(apart, laws, [cuts(size, 4) for size in sizes])
    for step, scale in enumerate(scales):
        compare([noises[step]], [two_sided(scale)], [cuts(scale, 40)])
        if step:
            pair = [apart[step - 1], noises[step]]
            old = scales[step - 1]
            compare(pair[:1], drops[step - 1 : step], [cuts(old, 20)])
            compare(pair, [drops[step - 1], two_sided(scale)], [cuts(old, 12), cuts(scale, 12)])
    counts, chances, runs = np.array(counts), np.array(chances), noises.shape[1]
    tails = np.minimum(binom.cdf(counts, runs, chances), binom.sf(counts - 1, runs, chances))
    return min(1.0, 2 * float(tails.min()) * len(counts))


@pytest.mark.parametrize(("runs", "scales"), share(1, RUNS, slow=1 + len(CHAINS)))
def test_chains_have_the_law_of_the_product(runs, scales):
    """
    4,000 chains of four noises in every run, 10,000 of each kind in the slow one, 10⁶ in the audit:
    all together, each noise, and what each step dropped, alone and beside what it left; alarm 1e-6
    in all.
    """
    sampler = GeometricSampler()
    chain = [sampler.draw(scales[0], runs)]
    for old, new in itertools.pairwise(scales):
        chain.append(sampler.refine(chain[-1], old, new))
    assert alarm(chain, scales) > ALARM / len(RUNS)


def recipe(rng, noise, old, new, fault):
    """Refine by another way: the old noise itself, or one of three parts of a line; or do it wrong.

    The atom is (1 − p₁²)/(1 − p₂²) (p₂/p₁)^(|n|+1); else k has p₂^|k| p₁^|n−k|, n not left out.
    """
    n, size = np.abs(noise), len(noise)
    p, s = math.exp(-1 / old), math.exp(-1 / new)
    r, q = s / p, s * p
    atom = (1 - p**2) / (1 - s**2) * r ** (n + 1) * (1.01 if fault == "atom" else 1)
    left, middle, right = (1 - r) * q, (1 - q) * (1 - r ** (n + 1)), (1 - r) * r**n * q
    parts = rng.random(size) * (left + middle + right)
    outside = rng.geometric(1 - q, size)
    last = np.where(n > 0, n - 1, 0) if fault == "apart" else n
    inside = np.log1p(-rng.random(size) * (1 - r ** (last + 1))) // math.log(r)
    inside = np.minimum(inside.astype(int), last)
    k = np.where(parts < left, -outside, np.where(parts < left + middle, inside, n + outside))
    k = np.where(rng.random(size) < atom, n, k)
    return k if fault == "unsigned" else np.where(noise < 0, -k, k)


FAULTS = [("atom", 200_000), ("none", 200_000)]
FAULTS += [(each, 10**6) for each in ("none", "afresh", "apart", "unsigned", "twice", "scale")]


@pytest.mark.parametrize(("fault", "runs"), share(2, FAULTS))
def test_wrong_refinements_are_found(fault, runs):
    """
    200,000 to 10⁶ chains in which the old noise is kept 1% too often, new noise is drawn without
    the old, n is left out of the other part, signs are lost, the first noise is refined twice, or
    scales are 1% too large; none is seen where another way draws the law itself.
    """
    rng, scales = np.random.default_rng(7), CHAINS[1]

    def plain(scale):
        one, two = rng.geometric(-math.expm1(-1 / scale), (2, runs))
        return one - two

    chain = [plain(scales[0])]
    for old, new in itertools.pairwise(scales):
        before = chain[0] if fault == "twice" else chain[-1]
        old = scales[0] if fault == "twice" else old
        wrong = 1.01 if fault == "scale" else 1
        chain.append(
            plain(new) if fault == "afresh" else recipe(rng, before, old, new * wrong, fault)
        )
    if fault == "none":
        assert alarm(chain, scales) > ALARM
    else:
        assert alarm(chain, scales) < ALARM


records = st.lists(st.integers(-3, 3), min_size=1, max_size=3)  # what one adds to each row
steps = st.lists(st.integers(-8, 8), min_size=1, max_size=7)  # what is released


def scale_after(scale, choice):
    """The scale of the next answer of a row: by a rule that may look at all that was released."""
    if scale is None:
        return (4.0, 1.5, 0.75)[choice % 3]
    return (math.nextafter(scale, 0), scale * 0.9, scale / 2, scale / 40)[choice % 4]


def told(released, adds, rule):
    """Return P(released) without and with a record, and what the last scales charge for it."""
    chances, rows = [mpmath.mpf(1)] * 2, {}
    for place, answer in enumerate(released):
        choice = hash((rule, *released[:place]))  # a rule of the analyst's, of earlier answers
        row = choice % len(adds)
        old, before = rows.get(row, (None, None))
        new = scale_after(old, choice // len(adds))
        for world in (0, 1):
            exact = world * adds[row]
            chances[world] *= (
                f(1 / mpmath.mpf(new), answer - exact)
                if old is None
                else mass(answer - exact, before - exact, old, new)
            )
        rows[row] = new, answer
    return *chances, sum(abs(adds[row]) / mpmath.mpf(scale) for row, (scale, _) in rows.items())


@given(records, steps, st.integers())
def test_no_transcript_tells_more_than_the_last_scales_charge(adds, released, rule):
    """
    Of rows measured and refined in an order, and to scales, that are chosen by what was released:
    its probability with and without a record differs by at most Σ |h_r| / s_r, s_r the last.
    """
    with mpmath.workdps(80):
        without, with_it, charge = told(released, adds, rule)
        assert abs(mpmath.log(without / with_it)) <= charge + mpmath.mpf("1e-30")


def test_the_charge_is_no_more_than_what_is_told():
    """
    Where all answers of a chain are above the exact ones, the loss is what its last scale charges.
    """
    with mpmath.workdps(80):
        chances = [f(mpmath.mpf(1) / 4, 9 - world) for world in (0, 1)]
        for (old, new), (before, after) in zip(
            itertools.pairwise([4, 3, 0.5]), itertools.pairwise([9, 9, 2]), strict=True
        ):
            chances = [c * mass(after - w, before - w, old, new) for w, c in enumerate(chances)]
        assert mpmath.almosteq(mpmath.log(chances[1] / chances[0]), 2, 1e-50)


@pytest.mark.parametrize("again", [1.0, 0.8])
def test_an_answer_that_is_refined_twice_tells_more(again):
    """
    Why only the newest answer is refined, and none of a restored backup: two refinements of one
    answer of scale 2, to 1 and, by whoever forgot that, to ``again``, tell 1/1 + 1/again + 1/2.
    """
    with mpmath.workdps(80):
        chances = [
            f(mpmath.mpf(1) / 2, -5 - w) * mass(5 - w, -5 - w, 2, 1) * mass(5 - w, -5 - w, 2, again)
            for w in (0, 1)
        ]
        loss = mpmath.log(chances[1] / chances[0])
        assert mpmath.almosteq(loss, 1 + 1 / mpmath.mpf(again) + mpmath.mpf(1) / 2, 1e-50)
        assert loss > 1 / mpmath.mpf(again)
