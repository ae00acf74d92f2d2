"""A Cholesky factor that grows and shrinks by rows: the floating-point side of the history.

A = L Lᵀ is kept scaled to a unit diagonal, so that rows of very different norms (one cell, 10**12
cells) do not spoil it.  Shapes: A [size, size] positive definite; one solve or one new row costs
size² operations.  Results are approximate: callers refine them with exact residuals.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dtrsm, dtrsv

Floats = NDArray[np.float64]

CANCELLED = 2.0**-20  # a smaller complement has lost too many digits


class Cholesky:
    """L of a growing matrix, scaled by 1 / sqrt(diagonal)."""

    def __init__(self) -> None:
        self.size = 0
        self._factor = np.zeros((16, 16), order="F")
        self._scale = np.zeros(16)

    def solve(self, right: Floats) -> Floats:
        """Return A⁻¹ · right [size, columns]."""
        scale = self._scale[: self.size, None]
        back = self._back(self._back(scale * right, transposed=False), transposed=True)
        return np.asarray(scale * back)

    def _back(self, right: Floats, *, transposed: bool) -> Floats:
        """Return L⁻¹ · right [size, columns], or that of L transposed."""
        if not right.size:
            return right
        padded = right  # BLAS wants whole columns: pad with the identity
        if self.size < len(self._factor):
            padded = np.zeros((len(self._factor), right.shape[1]), order="F")
            padded[: self.size] = right
        trans = int(transposed)
        if right.shape[1] == 1:
            found = dtrsv(self._factor, padded[:, 0], lower=1, trans=trans)[:, None]
        else:
            found = dtrsm(1.0, self._factor, padded, lower=1, trans_a=trans)
        return np.asarray(found[: self.size])

    def append(self, column: Floats, diagonal: float, schur: Callable[[], float]) -> bool:
        """Add a row: A's new column [size], its diagonal, and where floats are not enough its
        Schur complement, known better.

        Returns False, and adds nothing, where the complement is lost in rounding.
        """
        if not (np.isfinite(diagonal) and diagonal > 0):
            return False
        scale = 1 / np.sqrt(diagonal)
        scaled = self._scale[: self.size] * column * scale
        row = self._back(scaled[:, None], transposed=False)[:, 0]
        rest = 1 - float(row @ row)  # the complement, of a unit diagonal
        if not rest > CANCELLED:
            rest = schur() / diagonal
        if not rest > 2.0**-60:
            return False
        if self.size == len(self._factor):
            grown = np.zeros((2 * self.size, 2 * self.size), order="F")
            grown[: self.size, : self.size] = self._factor
            self._factor = grown
            self._scale = np.concatenate([self._scale, np.zeros(self.size)])
        if not self.size:
            np.fill_diagonal(self._factor, 1.0)
        size = self.size
        self._factor[size, :size] = row
        self._factor[size, size] = np.sqrt(rest)
        self._factor[size + 1 :, size + 1 :][np.diag_indices(len(self._factor) - size - 1)] = 1.0
        self._scale[size] = scale
        self.size += 1
        return True

    def truncate(self, size: int) -> None:
        """Forget the rows from ``size`` on."""
        self._factor[size:, :] = 0.0
        self._factor[range(size, len(self._factor)), range(size, len(self._factor))] = 1.0
        self.size = size
