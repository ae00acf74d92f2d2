"""Exact linear independence of integer queries, from their inner products modulo random primes.

Let G be the integer Gram matrix of the independent rows so far, b = (⟨row, q⟩) and s = ⟨q, q⟩.
The query q lies in the span of the rows iff its Schur complement  s − bᵀ G⁻¹ b  is 0 (paper,
footnote to Section 3: no full-rank history is needed).  In floats that test fails: after one
COUNT(*) over 10**12 cells, "all but one cell" passes any tolerance.  Here G = L D Lᵀ is kept
modulo two random 31-bit primes as L and D, the blocks of L on the diagonal as their inverses, so
that one test is a triangular solve by products of blocks, and one new row adds one row.  A wrong
"yes" needs both primes, drawn at random, to divide one fixed integer.

Shapes: L [rank, rank] unit lower triangular, D [rank].  Cost: rank² / 2 per test and prime.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

BLOCK = 128  # rows of a block of L


def random_prime() -> int:
    """Return a prime in [2**30, 2**31), drawn by the operating system's random source."""
    while True:
        candidate = secrets.randbelow(2**29) * 2 + 2**30 + 1
        if _is_prime(candidate):
            return candidate


def _is_prime(n: int) -> bool:
    """Miller-Rabin, exact below 3.2e9 with these bases."""
    d, twos = n - 1, 0
    while d % 2 == 0:
        d, twos = d // 2, twos + 1
    for base in (2, 3, 5, 7):
        x = pow(base, d, n)
        if x not in (1, n - 1) and all((x := x * x % n) != n - 1 for _ in range(twos - 1)):
            return False
    return True


class ModularBasis:
    """The independent rows modulo one prime."""

    def __init__(self, prime: int) -> None:
        self.prime = prime
        self.rank = 0
        self._factor = np.zeros((16, 16))  # L, entries below 2**31 as floats for BLAS
        self._pivots: list[int] = []  # D⁻¹

    def reduce(self, products: Integers, norms: Sequence[int]) -> tuple[Integers, Integers]:
        """Return the Schur complements of queries with these products [rank, queries], and L⁻¹b,
        both modulo the prime.
        """
        reduced = np.zeros((self.rank, len(norms)), dtype=np.int64)
        for start in range(0, self.rank, BLOCK):
            here, before = slice(start, min(start + BLOCK, self.rank)), slice(start)
            known = self._times(self._factor[here, before], reduced[before])
            rest = (products[here] - known) % self.prime
            reduced[here] = self._times(self._factor[here, here], rest)
        pivots = np.array(self._pivots, dtype=np.int64)[:, None]
        squares = reduced * reduced % self.prime * pivots % self.prime
        sizes = np.array([norm % self.prime for norm in norms], dtype=np.int64)
        return (sizes - squares.sum(axis=0)) % self.prime, reduced

    def append(self, reduced: Integers, schur: int) -> None:
        """Add an independent row, from what ``reduce`` said of it."""
        rank = self.rank
        if rank == len(self._factor):
            grown = np.zeros((2 * rank, 2 * rank))
            grown[:rank, :rank] = self._factor
            self._factor = grown
        row = reduced * np.array(self._pivots, dtype=np.int64) % self.prime
        start = rank - rank % BLOCK
        inverse = self._times(self._factor[start:rank, start:rank].T, row[start:, None])[:, 0]
        self._factor[rank, :start] = row[:start]
        self._factor[rank, start:rank] = (self.prime - inverse) % self.prime
        self._factor[rank, rank] = 1
        self._pivots.append(pow(schur, -1, self.prime))
        self.rank += 1

    def truncate(self, rank: int) -> None:
        """Forget the rows from ``rank`` on."""
        self.rank = min(self.rank, rank)
        del self._pivots[self.rank :]

    def _times(self, matrix: Floats, right: Integers) -> Integers:
        """Return matrix · right [rank, queries] modulo the prime, exactly, by limbs that BLAS sums
        exactly.
        """
        rows, queries = len(matrix), right.shape[1]
        if not len(right):
            return np.zeros((rows, queries), dtype=np.int64)
        bits = 53 - 31 - len(right).bit_length()
        count = -(-31 // bits)
        limbs = (right[:, None] >> (bits * np.arange(count)[:, None])) & ((1 << bits) - 1)
        sums = matrix @ limbs.reshape(len(right), -1).astype(np.float64)
        partial = sums.astype(np.int64).reshape(rows, count, queries) % self.prime
        result = partial[:, -1]
        for place in reversed(range(count - 1)):
            result = (result * (1 << bits) + partial[:, place]) % self.prime
        return result


class Independence:
    """The independent rows modulo two random primes, which tell whether they span a query."""

    def __init__(self, primes: Sequence[int] | None = None) -> None:
        self.primes = tuple(primes) if primes else (random_prime(), random_prime())
        self._bases = [ModularBasis(prime) for prime in self.primes]

    @property
    def rank(self) -> int:
        """The number of independent rows."""
        return self._bases[0].rank

    def spans(self, products: Integers, norms: Sequence[int]) -> Integers:
        """Return which queries, with these products [primes, rank, queries], are in the span."""
        spanned = np.arange(len(norms))
        for basis, residues in zip(self._bases, products, strict=True):
            if spanned.size:
                schur, _ = basis.reduce(residues[:, spanned], [norms[i] for i in spanned.tolist()])
                spanned = spanned[schur == 0]
        return spanned

    def append(self, products: Integers, norm: int) -> bool | None:
        """Add a row with these products [primes, rank] if it is independent modulo both primes;
        return whether it was.

        None where the primes disagree, which happens to no row in practice: nothing is added.
        """
        found = [
            basis.reduce(residues[:, None], [norm])
            for basis, residues in zip(self._bases, products, strict=True)
        ]
        zeros = [bool(schur[0] == 0) for schur, _ in found]
        if any(zeros):
            return False if all(zeros) else None
        for basis, (schur, reduced) in zip(self._bases, found, strict=True):
            basis.append(reduced[:, 0], int(schur[0]))
        return True

    def truncate(self, rank: int) -> None:
        """Forget the independent rows from ``rank`` on."""
        for basis in self._bases:
            basis.truncate(rank)
