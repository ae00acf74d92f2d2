"""Estimability is exact: the span of integer rows, by inner products modulo primes."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from proxy.inference.estimability import Independence, ModularBasis, random_prime
from proxy.inference.products import exact, stack, structure
from tests.inference.test_query import queries


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
    assert independence.append(np.zeros((2, 0), dtype=np.int64), n)
    products = np.array([[(n - 1) % p] for p in independence.primes])
    assert not independence.spans(products, n - 1)
    assert independence.spans(np.array([[2 * n % p] for p in independence.primes]), 4 * n)


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
        assert independence.spans(products, int(row @ row)) != new
        assert independence.append(products, int(row @ row)) == new
        if new:
            kept = np.vstack([kept, row])
    assert independence.rank == rank(rows)


def test_limbs_do_not_lose_bits_at_a_thousand_rows():
    """
    The product modulo a prime of 1,500 full-size entries is that of Python's integers.
    """
    generator = np.random.default_rng(1)
    basis = ModularBasis(random_prime())
    matrix = generator.integers(0, basis.prime, (3, 1500))
    vector = generator.integers(0, basis.prime, 1500)
    expected = [sum(int(a) * int(b) for a, b in zip(row, vector, strict=True)) for row in matrix]
    got = basis._times(matrix.astype(np.float64), vector)
    assert got.tolist() == [value % basis.prime for value in expected]


@pytest.mark.slow
@given(st.lists(queries(), min_size=1, max_size=6), queries())
def test_stacked_products_are_the_products(rows, query):
    """
    Rows stacked by structure give the same exact inner products as one by one.
    """
    primes = (random_prime(), random_prime())
    stacks = {}
    for number, row in enumerate(rows):
        if structure(row) not in stacks:
            stacks[structure(row)] = stack(row)
        stacks[structure(row)].append(number, row)
    for each in stacks.values():
        expected = exact([rows[n].dot(query) for n in each.numbers], primes)
        got = each.products(query, primes)
        assert (got.real == expected.real).all()
        assert (got.residues == expected.residues).all()
        assert (got.wrapped == expected.wrapped).all()
