"""Estimability is exact: the span of integer rows, by inner products modulo primes."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from proxy.inference.dense_system import Gram
from proxy.inference.estimability import (
    BLOCK,
    TERMS,
    Independence,
    ModularBasis,
    _limbs,
    random_prime,
)
from proxy.inference.products import Products, gram, products_of, stack, structure, wrap
from proxy.inference.query import Factor, LinearQuery, Term
from proxy.inference.space import Space
from tests.inference.test_query import SPACE, queries


def rank(rows):
    """The rank over the rationals, by elimination with fractions."""
    rows = [[Fraction(int(v)) for v in row] for row in rows]
    done = 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((i for i in range(done, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[done], rows[pivot] = rows[pivot], rows[done]
        for i in range(done + 1, len(rows)):
            factor = rows[i][column] / rows[done][column]
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[done], strict=True)]
        done += 1
    return done


def test_all_but_one_of_a_trillion_cells_is_not_the_total():
    """
    ⟨q, q⟩ = n - 1, ⟨q, total⟩ = n - 1, ⟨total, total⟩ = n = 10**12: independent.
    """
    n = 10**12
    independence = Independence()
    assert independence.append(np.zeros((2, 0, 1), dtype=np.int64), np.full((2, 1, 1), n)) == [True]
    both = np.array([[[(n - 1) % p, 2 * n % p]] for p in independence.primes])
    assert independence.spans(both, [n - 1, 4 * n]).tolist() == [1]


@given(arrays(np.int64, (7, 5), elements=st.integers(-2, 2)))
def test_rank_is_that_of_rational_elimination(rows):
    """
    Appending the rows one by one finds exactly the rank, and spans exactly the rest.
    """
    independence = Independence()
    kept = np.zeros((0, 5), dtype=np.int64)
    for row in rows:
        products = np.array([kept @ row % p for p in independence.primes])
        before = rank(kept)
        new = rank([*kept, row]) > before
        assert len(independence.spans(products[..., None], [int(row @ row)])) != new
        inner = np.full((2, 1, 1), row @ row)
        assert independence.append(products[:, :, None], inner) == [new]
        if new:
            kept = np.vstack([kept, row])
    assert independence.rank == rank(rows)


def test_a_row_that_the_primes_disagree_about_is_left_out():
    """
    ⟨q, q⟩ is one of the primes; the rows beside it are as without it.
    """
    independence = Independence()
    first, inner = independence.primes[0], np.zeros((2, 3, 3), dtype=np.int64)
    for i, prime in enumerate(independence.primes):
        inner[i] = np.array([[first, 1, 1], [1, 5, 5], [1, 5, 5]]) % prime
    nothing = np.zeros((2, 0, 3), dtype=np.int64)
    assert independence.append(nothing, inner) == [None, True, False]
    assert independence.rank == 1
    assert independence.spans(np.array([[[5]], [[5]]]), [5]).size


@pytest.mark.parametrize("split", [(), (1,), (70, 71, 400)])
def test_rows_together_are_as_rows_in_turn(split):
    """
    Of 600 rows over 300 cells, with repeats, zeros and sums of two among them, the same are
    independent, and L and D are the same, however many are looked at together.
    """
    rng = np.random.default_rng(3)
    rows = rng.integers(-2, 3, (600, 300))
    rows[40] = 0
    rows[::7] = rows[rng.integers(0, 600, 86)]
    rows[5::11] = rows[4::11][:55] + rows[3::11][:55]
    one = Independence()
    many = Independence(one.primes)
    kept = []
    for number, row in enumerate(rows):
        own = np.array([rows[kept] @ row % p for p in one.primes], dtype=np.int64)
        if one.append(own[:, :, None], np.full((2, 1, 1), row @ row))[0]:
            kept.append(number)
    assert BLOCK < len(kept) < 310
    found = []
    for part in np.split(rows, split):
        before = rows[[i for i, kind in enumerate(found) if kind]]
        own = np.array([before @ part.T % p for p in one.primes], dtype=np.int64)
        found += many.append(own, np.array([part @ part.T % p for p in one.primes]))
    assert [i for i, kind in enumerate(found) if kind] == kept
    for left, right in zip(one._bases, many._bases, strict=True):
        used = slice(left.rank)
        assert (left._factor[used, used] == right._factor[used, used]).all()
        assert (left._pivots[used] == right._pivots[used]).all()


@pytest.mark.parametrize("prime", [2**31 - 1, random_prime()], ids=["largest", "random"])
def test_limbs_do_not_lose_bits_at_thousands_of_rows(prime):
    """
    Products modulo a prime of 2,100 entries of any size, and of the largest, are those of Python's
    integers.
    """
    rng = np.random.default_rng(1)
    basis = ModularBasis(prime)
    matrix = rng.integers(0, prime, (4, 2100))
    matrix[0], matrix[1] = prime // 2, prime // 2 + 1
    vectors = rng.integers(0, prime, (2100, 5))
    vectors[:, 0], vectors[:, 1], vectors[:, 2], vectors[:, 3] = prime - 1, 2**15, 2**15 - 1, 0
    vectors[-1, 1] = 1  # the sum is odd: where it is past 2**53, it is not exact
    expected = matrix.astype(object) @ vectors.astype(object) % prime
    assert (basis._times(basis._floats(matrix), _limbs(vectors)) % prime == expected).all()
    for start in range(0, 2100, TERMS):
        terms = slice(start, start + TERMS)
        sums = np.abs(basis._floats(matrix)[:, terms]) @ np.abs(_limbs(vectors)[terms])
        assert sums.max() <= 2**53


@pytest.mark.parametrize("largest", [1, 900, 2**40, 2**62])
def test_products_modulo_2_64_lose_no_bits(largest):
    """
    Whole numbers of 53 bits times inner products of any size, and of a row whose rounded ones are
    wrong since larger ones cancelled, are those of Python's integers.
    """
    generator = np.random.default_rng(1)
    values = generator.integers(-largest, largest, (300, 300), endpoint=True)
    right = generator.integers(-(2**52), 2**52, (300, 5)).astype(np.float64)
    expected = values.astype(object) @ right.astype(np.int64).astype(object)
    for wrong in (0, 1):
        gram = Gram()
        gram.grow(300, 300)
        rounded = values.astype(np.float64)
        rounded[7] += wrong
        gram.put((slice(300), slice(300)), Products(rounded, values[None], values))
        assert ((gram.times(300, right).astype(object) - expected) % 2**64 == 0).all()


def told(values, primes):
    """The parts of products, of integers of any size [rows, k]."""
    values = np.array(values, dtype=object)
    return values.astype(float), [values % p for p in primes], np.vectorize(wrap)(values)


@pytest.mark.slow
@given(st.lists(queries(), min_size=1, max_size=6), queries())
def test_stacked_products_are_the_products(rows, query):
    """
    Rows stacked by structure give the same exact inner products as one by one.
    """
    primes = (random_prime(), random_prime())
    stacks = {}
    for number, row in enumerate(rows):
        stacks.setdefault(structure(row), stack(row)).append(number, row)
    for each in stacks.values():
        real, residues, wrapped = told([rows[n].dot(query) for n in each.numbers], primes)
        got = each.products(query, primes)
        assert (got.real == real).all()
        assert (got.residues == residues).all()
        assert (got.wrapped == wrapped).all()


@given(st.lists(queries(), min_size=1, max_size=7), st.data())
def test_new_rows_are_multiplied_with_all_others_together(rows, data):
    """
    Of rows of any structures, exactly, whichever of them are new.
    """
    first = data.draw(st.integers(0, len(rows) - 1))
    primes = (random_prime(), random_prime())
    stacks = {}
    for number, row in enumerate(rows):
        stacks.setdefault(structure(row), stack(row)).append(number, row)
    got = gram(stacks.values(), dict(list(enumerate(rows))[first:]), primes)
    real, residues, wrapped = told([[a.dot(b) for b in rows[first:]] for a in rows], primes)
    assert (got.real == real).all()
    assert (got.residues == residues).all()
    assert (got.wrapped == wrapped).all()


@given(st.lists(queries(), min_size=1, max_size=6), st.lists(queries(), min_size=1, max_size=6))
def test_queries_are_multiplied_together_with_all_rows(rows, asked):
    """
    Of any structures, exactly, as one by one.
    """
    primes = (random_prime(), random_prime())
    stacks = {}
    for number, row in enumerate(rows):
        stacks.setdefault(structure(row), stack(row)).append(number, row)
    got = products_of(stacks.values(), len(rows), asked, primes)
    real, residues, wrapped = told([[a.dot(b) for b in asked] for a in rows], primes)
    assert (got.real == real).all()
    assert (got.residues == residues).all()
    assert (got.wrapped == wrapped).all()


def test_rows_of_different_unknowns_are_multiplied_where_they_share_some():
    """
    Counts over one axis, and counts with sums over another, each with axes that the others lack.
    """
    one, two = (Factor((a,), np.arange(1, n + 1)) for a, n in ((0, 3), (2, 4)))
    count = LinearQuery.count(SPACE, one)
    both = LinearQuery.of(SPACE, Fraction(1), {0: Term.of(2, [two]), 1: Term.of(-3, [two])})
    rows = [count, both, both - count.times(two), count * -1, both * -2]
    primes = (random_prime(), random_prime())
    stacks = {}
    for number, row in enumerate(rows):
        stacks.setdefault(structure(row), stack(row)).append(number, row)
    got = gram(stacks.values(), dict(enumerate(rows)), primes)
    real, residues, wrapped = told([[a.dot(b) for b in rows] for a in rows], primes)
    assert (got.real == real).all()
    assert (got.residues == residues).all()
    assert (got.wrapped == wrapped).all()


@pytest.mark.parametrize(
    "size, most", [(10, 8), (10, 170), (10, 180), (10, 407), (10**3, 2**20), (10**6, 2**20)]
)
def test_products_are_exact_modulo_all_whether_floats_hold_them_or_not(size, most):
    """
    Coefficients over many cells whose products are below 2**53, just there, and past 2**63: of new
    rows with all, and of one query with all.
    """
    space, rng = Space((size, 5, 7)), np.random.default_rng(4)
    rows = []
    for _ in range(4):
        signs = rng.choice([-1, 1], 3)
        factors = [
            Factor((axis,), sign * rng.integers(most // 2, most + 1, n))
            for axis, (sign, n) in enumerate(zip(signs, space.sizes, strict=True))
        ]
        rows.append(LinearQuery.count(space, *factors))
    primes = (random_prime(), random_prime())
    stacks = stack(rows[0])
    for number, row in enumerate(rows):
        stacks.append(number, row)
    asked = Products.columns([stacks.products(rows[3], primes)])
    got = gram([stacks], {2: rows[2], 3: rows[3]}, primes)
    real, residues, wrapped = told([[a.dot(b) for b in rows[2:]] for a in rows], primes)
    size = np.sqrt([[float(a.square) * float(b.square) for b in rows[2:]] for a in rows])
    for found, place in ((got, slice(2)), (asked, slice(1, 2))):
        assert (abs(found.real - real[:, place]) <= 1e-14 * size[:, place]).all()
        assert (found.residues == np.array(residues)[..., place]).all()
        assert (found.wrapped == wrapped[:, place]).all()
