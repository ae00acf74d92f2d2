"""The noise: two-sided geometric, drawn by OpenDP's exact sampler from the system's randomness.

P(K = k) = (1 - p) / (1 + p) · p^|k|,  p = exp(-1 / scale), in grid units.  There is no seed and no
switch; tests inject a sampler of their own by constructor.  What would saturate in 64 bits is
refused from public bounds before anything is drawn.  Noise that was drawn is refined, to a smaller
scale, by its exact conditional law: the older answer then says nothing that the newer does not.
Source: the discrete analogue of the Laplace mechanism (Xiao & Xiong, Section 2); OpenDP.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

from proxy.inference.family import Family
from proxy.inference.noise.refinement import Refinement

SMALLEST_SCALE = 2.0**-12  # a privacy loss of 4096 per grid unit
LARGEST_SCALE = 2.0**48
LARGEST_ANSWER = 2**61


class UnsafeNoiseError(ValueError):
    """The noise, or answer plus noise, would leave 64 bits, or be none; what to do about it."""

    def __init__(
        self, message: str, hint: str = "ask for a half_width nearer to the size of the number"
    ) -> None:
        super().__init__(message)
        self.hint = hint


class Sampler(Protocol):
    """The source of the noise: GeometricSampler conforms; tests inject others."""

    def draw(self, scale: float, count: int) -> list[int]:
        """Return ``count`` independent draws of the two-sided geometric law of this scale."""

    def refine(self, noise: Sequence[int], old: float, new: float) -> list[int]:
        """Return noise of scale ``new``, each drawn given the old, of which it takes the place.

        ``noise`` is what is in the newest answers, in grid units: an older one would be an
        independent measurement, at its full price.

        Raises:
            ValueError: unless 0 < new < old.
        """


class GeometricSampler:
    """OpenDP's exact discrete Laplace sampler, and an exact sampler of its refinements."""

    def draw(self, scale: float, count: int) -> list[int]:
        """Return ``count`` independent draws of the two-sided geometric law of this scale."""
        import opendp.prelude as dp  # slow to load, and not needed for what is free

        measurement = dp.m.make_laplace(*_integers(), scale=scale)
        return [int(value) for value in measurement([0] * count)]

    def refine(self, noise: Sequence[int], old: float, new: float) -> list[int]:
        """Return noise of scale ``new``, each drawn given the old, of which it takes the place."""
        refinement = Refinement(old, new)
        return [refinement.draw(each) for each in noise]


@cache
def _integers() -> tuple[Any, Any]:
    """Return OpenDP's domain and metric of integers."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    return dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")


def check_safe(family: Family, scale: float, records: int) -> None:
    """Refuse, from public bounds alone, noise that 64 bits could not hold.

    Raises:
        UnsafeNoiseError: the scale is too small or too large, or the answer is.
    """
    if not SMALLEST_SCALE <= scale <= LARGEST_SCALE:
        raise UnsafeNoiseError(
            f"a noise scale of {scale:.3g} steps of the number cannot be drawn safely"
        )
    if family.sensitivity * records > LARGEST_ANSWER:
        raise UnsafeNoiseError(
            "answers as large as max_records allows do not fit 64 bits",
            "sum terms of very different size apart, or in larger units",
        )
