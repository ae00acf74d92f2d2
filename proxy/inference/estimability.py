"""Exact linear independence of integer queries, from their inner products modulo random primes.

Let G be the integer Gram matrix of the independent rows so far, b = (⟨row, q⟩) and s = ⟨q, q⟩.
The query q lies in the span of the rows iff its Schur complement  s − bᵀ G⁻¹ b  is 0 (paper,
footnote to Section 3: no full-rank history is needed).  In floats that test fails: after one
COUNT(*) over 10**12 cells, "all but one cell" passes any tolerance.  Here G = L D Lᵀ is kept
modulo two random 31-bit primes as L and D, the blocks of L on the diagonal as their inverses, so
that a test is a triangular solve by products of blocks, of one query or of several at once, and
new rows add rows.  A wrong "yes" needs both primes, drawn at random, to divide one fixed integer.

Shapes: L [rank, rank] unit lower triangular, D [rank]; k queries: b [rank, k].  Cost: rank² / 2 per
test and prime.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

BLOCK = 256  # rows of a block of L
STEP = 512  # rows for which there is more room, at most
PANEL = 64  # rows that are looked at together, within a block
LIMB = 16  # bits of a limb
TERMS = 256  # products of numbers within 2**30 and limbs within 2**15 that floats add up exactly


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
        self._factor = np.zeros((16, 16))  # L, entries within 2**30 as floats for BLAS
        self._pivots = np.zeros(16, dtype=np.int64)  # D⁻¹

    def reduce(self, products: Integers, inner: Integers) -> tuple[Floats, Integers]:
        """Return D⁻¹L⁻¹b of queries, and their Schur complement [k, k], modulo the prime.

        ``inner`` [k, k]: the products of the queries with one another.
        """
        reduced, limbs = self._reduced(products)
        scaled = self._floats(reduced * self._pivots[: self.rank, None] % self.prime)
        return scaled, (inner - self._times(scaled.T, limbs)) % self.prime

    def complements(self, products: Integers, norms: Integers) -> Integers:
        """Return the Schur complements of queries [k], each by itself."""
        reduced, _ = self._reduced(products)
        scaled = reduced * self._pivots[: self.rank, None] % self.prime
        return np.asarray((norms - (reduced * scaled % self.prime).sum(axis=0)) % self.prime)

    def _reduced(self, products: Integers) -> tuple[Integers, Floats]:
        """Return L⁻¹b of queries, and its limbs."""
        reduced, limbs = np.zeros_like(products), _limbs(products)
        for start in range(0, self.rank, BLOCK):
            here, before = slice(start, min(start + BLOCK, self.rank)), slice(start)
            rest = limbs[here]
            if start:
                known = self._times(self._factor[here, before], limbs[before])
                rest = _limbs((products[here] - known) % self.prime)
            reduced[here] = self._times(self._factor[here, here], rest) % self.prime
            limbs[here] = _limbs(reduced[here])
        return reduced, limbs

    def append(self, scaled: Floats, pivots: Integers, inverse: Integers) -> None:
        """Add k rows, within one block, from what ``reduce`` said of them.

        Their complement is L D Lᵀ: ``inverse`` is this L⁻¹ [k, k], ``pivots`` are this D⁻¹ [k].
        """
        rank, new = self.rank, self.rank + len(pivots)
        if new > len(self._factor):
            self.reserve(max(new, min(2 * rank, rank + STEP)))
        start = rank - rank % BLOCK
        block = self._factor[start:rank, start:rank].astype(np.int64) % self.prime
        beside = self._times(scaled[start:].T, _limbs(block)) % self.prime
        beside = -self._times(self._floats(inverse), _limbs(beside)) % self.prime
        self._factor[rank:new, :start] = scaled[:start].T
        self._factor[rank:new, start:rank] = self._floats(beside)
        self._factor[rank:new, rank:new] = self._floats(inverse)
        self._pivots[rank:new] = pivots
        self.rank = new

    def reserve(self, room: int) -> None:
        """Have room for so many rows."""
        have = self.rank
        if room > len(self._factor):
            grown = np.zeros((room, room))
            grown[:have, :have] = self._factor[:have, :have]
            self._factor = grown
            self._pivots = np.concatenate([self._pivots[:have], np.zeros(room - have, np.int64)])

    def truncate(self, rank: int) -> None:
        """Forget the rows from ``rank`` on."""
        self.rank = min(self.rank, rank)

    def _floats(self, values: Integers) -> Floats:
        """Return the same modulo the prime, as floats nearest to 0."""
        return (values - self.prime * (values > self.prime // 2)).astype(np.float64)

    def _times(self, matrix: Floats, limbs: Floats) -> Integers:
        """Return what is matrix · vectors modulo the prime, from the limbs of the vectors."""
        total = (matrix[:, :TERMS] @ limbs[:TERMS]).astype(np.int64)
        for start in range(TERMS, len(limbs), TERMS):
            terms = slice(start, start + TERMS)
            total += (matrix[:, terms] @ limbs[terms]).astype(np.int64)
        count = limbs.shape[1] // 2
        return (total[:, count:] % self.prime << LIMB) + total[:, :count]


def _limbs(vectors: Integers) -> Floats:
    """Return v = low + 2¹⁶ high as floats within 2**15: [n, 2k] of vectors [n, k] below 2**31."""
    half, count = 1 << LIMB - 1, vectors.shape[1]
    limbs = np.empty((len(vectors), 2 * count))
    limbs[:, :count] = ((vectors + half) & (2 * half - 1)) - half
    limbs[:, count:] = (vectors + half) >> LIMB
    return limbs


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
                own = [[norms[i] % basis.prime] for i in spanned.tolist()]
                schur = basis.complements(residues[:, spanned], np.array(own)[:, 0])
                spanned = spanned[schur == 0]
        return spanned

    def append(self, products: Integers, inner: Integers) -> list[bool | None]:
        """Add rows that are independent of those before them, modulo both primes; say which were.

        From their products with the independent rows [primes, rank, k], and with one another
        [primes, k, k].  None where the primes disagree, which happens to no row in practice: it is
        not added.
        """
        kinds: list[bool | None] = []
        while len(kinds) < inner.shape[2]:
            added = [row for row, kind in enumerate(kinds) if kind]
            panel = slice(len(kinds), len(kinds) + PANEL - self.rank % PANEL)
            beside = np.concatenate([products[:, :, panel], inner[:, added, panel]], axis=1)
            kinds += self._append(beside, inner[:, panel, panel])
        return kinds

    def _append(self, products: Integers, inner: Integers) -> list[bool | None]:
        """Add rows of one panel."""
        sides = zip(self._bases, products, inner, strict=True)
        scaled, rests = zip(*(basis.reduce(own, each) for basis, own, each in sides), strict=True)
        kinds, pivots, inverses = _eliminated(rests, self.primes)
        added = [row for row, kind in enumerate(kinds) if kind]
        if not added:
            return kinds
        for basis, own, pivot, inverse in zip(self._bases, scaled, pivots, inverses, strict=True):
            basis.append(own[:, added], pivot[added], inverse[np.ix_(added, added)])
        return kinds

    def reserve(self, room: int) -> None:
        """Have room for so many independent rows."""
        for basis in self._bases:
            basis.reserve(room)

    def truncate(self, rank: int) -> None:
        """Forget the independent rows from ``rank`` on."""
        for basis in self._bases:
            basis.truncate(rank)


def _eliminated(
    rests: Sequence[Integers], primes: Sequence[int]
) -> tuple[list[bool | None], list[Integers], list[Integers]]:
    """Factorise one complement [k, k] modulo each prime, as L D Lᵀ.

    Returns which rows are independent of those before them, and for each prime D⁻¹ [k] and L⁻¹
    [k, k]; rows that are not independent are left out of the others.
    """
    count = len(rests[0])
    both = [np.hstack([rest, np.eye(count, dtype=np.int64)]) for rest in rests]
    pivots = [np.zeros(count, dtype=np.int64) for _ in primes]
    kinds: list[bool | None] = []
    for row in range(count):
        found = [bool(each[row, row]) for each in both]
        kinds.append(found[0] if len(set(found)) == 1 else None)
        if not kinds[-1]:
            continue
        used = slice(row, count + row + 1)
        for each, pivot, prime in zip(both, pivots, primes, strict=True):
            pivot[row] = pow(int(each[row, row]), -1, prime)
            times = each[row + 1 :, row, None] * pivot[row] % prime
            each[row + 1 :, used] = (each[row + 1 :, used] - times * each[row, used]) % prime
    return kinds, pivots, [each[:, count:] for each in both]
