"""Estimability is exact: the span of integer rows, by inner products modulo primes."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from proxy.inference.dense_system import Gram
from proxy.inference.estimability import Independence, ModularBasis, random_prime
from proxy.inference.products import Products, exact, stack, structure
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
    both = [[[(n - 1) % p, 2 * n % p]] for p in independence.primes]
    assert independence.spans(np.array(both), [n - 1, 4 * n]).tolist() == [1]


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
    right = generator.integers(0, basis.prime, (1500, 2))
    expected = matrix.astype(object) @ right.astype(object) % basis.prime
    assert (basis._times(matrix.astype(np.float64), right) == expected).all()


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
