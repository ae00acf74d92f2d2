"""Refinement: less noise in the place of noise that was drawn, of which it is a noisier copy.

N₁ of scale s₁ and N₂ of scale s₂ < s₁ are two-sided geometric, P(k) ∝ p^|k|, p = exp(-1/s).  N₂ is
drawn given N₁ = n so that D = N₁ − N₂ is independent of N₂: 0 with probability
(1−p₁)² p₂ / ((1−p₂)² p₁), else two-sided geometric of scale s₁.  With r = p₂/p₁, q = p₁p₂,
C = (1−q)/(1−p₂²), c = (1−r)/(1−p₂²), and n ≥ 0 (else all signs are turned), that law is

    P(N₂ ≤ k) = c q^|k|             k < 0
    P(N₂ > k) = C r^(k+1)           0 ≤ k < n
    P(N₂ > k) = c r^n q^(k−n+1)     k ≥ n

and it is drawn by inversion: the least k with U < P(N₂ ≤ k), U uniform.  Of U as many bits are
drawn as are needed, and logarithms of it enclosed between decimals as narrowly as is needed, until
one k is left: what is drawn has this law itself, not one near it.  There is no largest k.

Source: Koufogiannis, Han & Pappas, Gradual Release of Sensitive Data under Differential Privacy
(2015), for the discrete law; the proofs are in REFINEMENT.md, beside this file.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from decimal import (
    MAX_EMAX,
    MIN_EMIN,
    ROUND_CEILING,
    ROUND_FLOOR,
    Context,
    Decimal,
    DivisionByZero,
    InvalidOperation,
    Overflow,
)
from fractions import Fraction

BITS = 64  # of U, at first; twice as many whenever these do not decide
ONE = Decimal(1)

Quotient = tuple[Decimal, Decimal]  # of two whole numbers, a rational without any rounding
Enclosure = tuple[Decimal, Decimal]  # a real number is in it, the ends included


class Refinement:
    """The law of the noise of scale ``new``, given that of scale ``old``.

    ``random`` returns a number of bytes whose bits are independent and fair.

    Raises:
        ValueError: unless 0 < new < old, both finite.
    """

    def __init__(self, old: float, new: float, random: Callable[[int], bytes] = os.urandom) -> None:
        if not 0 < new < old < math.inf:
            raise ValueError(f"a refinement has a smaller, positive scale: {new=}, {old=}")
        self._rates = 1 / Fraction(old), 1 / Fraction(new)
        self._random = random
        self._laws: dict[int, _Law] = {}

    def draw(self, noise: int) -> int:
        """Return the new noise, drawn given the old."""
        size = abs(int(noise))
        word = bits = 0
        drawn = None
        while drawn is None:
            more = bits or BITS
            word = word << more | int.from_bytes(self._random(more // 8), "big")
            bits += more
            drawn = self._law(bits).quantile(word, size)
        return drawn if noise >= 0 else -drawn

    def _law(self, bits: int) -> _Law:
        if bits not in self._laws:
            self._laws[bits] = _Law(*self._rates, bits)
        return self._laws[bits]


class _Law:
    """The law for rates 1/s₁ and 1/s₂, as narrow as ``bits`` bits of U deserve."""

    def __init__(self, first: Fraction, second: Fraction, bits: int) -> None:
        middle, outer = second - first, first + second
        self._size, self._whole = 2**bits, Decimal(2**bits)
        self._exact = middle  # −ln r
        self._middle, self._outer = _decimals(middle), _decimals(outer)  # −ln r and −ln q
        # 1 − r has as many zeros behind the point as −ln r; they are to cost no digit of its log
        zeros = middle.denominator.bit_length() - middle.numerator.bit_length()
        self._round(bits // 3 + 3 + max(zeros, 0) // 3)
        common = self._log_of_rest(2 * second)
        self._log_middle = self._minus(self._log_of_rest(outer), common)  # ln C
        self._log_outer = self._minus(self._log_of_rest(middle), common)  # ln c
        low, high = self._exp(*self._minus(self._log_outer, self._ratio(outer)))  # c q
        self._negative = (  # 2^bits P(N₂ < 0), between two whole numbers
            math.floor(self._down.multiply(low, self._whole)),
            math.ceil(self._up.multiply(high, self._whole)),
        )
        self._round(bits // 3 + 3)

    def quantile(self, word: int, size: int) -> int | None:
        """Return the k of all U between word and word + 1, in 2^-bits, given ``size`` = n ≥ 0.

        None where they have not all the same, or where that is not seen.
        """
        if word + 1 <= self._negative[0]:
            if not word:
                return None
            inverse = self._plus(self._log_inverse(word), self._log_outer)
            return _agreed(*(-k for k in self._steps(*inverse, self._outer)))
        rest = self._size - 1 - word  # 1 − U is between rest and rest + 1
        if word < self._negative[1] or not rest:
            return None
        exponential = self._log_inverse(rest)
        least, most = self._steps(*self._plus(exponential, self._log_middle), self._middle)
        if least < size:  # where most is not, they are not the same
            return _agreed(least, most)
        outside = self._minus(exponential, self._ratio(size * self._exact))
        least, most = self._steps(*self._plus(outside, self._log_outer), self._outer)
        return _agreed(size + least, size + most)

    def _steps(self, low: Decimal, high: Decimal, rate: Quotient) -> tuple[int, int]:
        """Enclose max(⌈x / rate⌉, 1) − 1, the whole steps of a rate before x."""
        (above, below), down, up = rate, self._down, self._up
        least = math.ceil(down.divide(down.multiply(low, below), above))
        most = math.ceil(up.divide(up.multiply(high, below), above))
        return max(least, 1) - 1, max(most, 1) - 1

    def _log_inverse(self, word: int) -> Enclosure:
        """Enclose −ln u for all u between word ≥ 1 and word + 1, in 2^-bits.

        With x ≤ u ≤ z: ln x ≤ ln u ≤ ln x + (z − x)/x.
        """
        down, up, whole = self._down, self._up, self._whole
        x, z = down.divide(Decimal(word), whole), up.divide(Decimal(word + 1), whole)
        log = down.ln(x)
        most = up.add(up.next_plus(log), up.divide(up.subtract(z, x), x))
        return most.copy_negate(), down.next_minus(log).copy_negate()

    def _log_of_rest(self, rate: Fraction) -> Enclosure:
        """Enclose ln(1 − exp(−rate))."""
        down, up = self._down, self._up
        low, high = self._minus((ONE, ONE), self._exp(*self._ratio(-rate)))
        return down.next_minus(down.ln(low)), up.next_plus(up.ln(high))

    def _exp(self, low: Decimal, high: Decimal) -> Enclosure:
        down, up = self._down, self._up
        return down.next_minus(down.exp(low)), up.next_plus(up.exp(high))

    def _ratio(self, value: Fraction) -> Enclosure:
        above, below = _decimals(value)
        return self._down.divide(above, below), self._up.divide(above, below)

    def _plus(self, one: Enclosure, other: Enclosure) -> Enclosure:
        return self._down.add(one[0], other[0]), self._up.add(one[1], other[1])

    def _minus(self, one: Enclosure, other: Enclosure) -> Enclosure:
        return self._down.subtract(one[0], other[1]), self._up.subtract(one[1], other[0])

    def _round(self, digits: int) -> None:
        """Set how wide what follows is rounded: downwards and upwards.

        exp and ln round to the nearest, whatever the context says: a step down or up encloses.
        """
        self._down, self._up = (
            Context(
                prec=digits,
                rounding=way,
                Emin=MIN_EMIN,
                Emax=MAX_EMAX,
                traps=[InvalidOperation, DivisionByZero, Overflow],
            )
            for way in (ROUND_FLOOR, ROUND_CEILING)
        )


def _decimals(value: Fraction) -> Quotient:
    return Decimal(value.numerator), Decimal(value.denominator)


def _agreed(one: int, other: int) -> int | None:
    return one if one == other else None
