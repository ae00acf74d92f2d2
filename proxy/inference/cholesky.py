"""A Cholesky factor that grows and shrinks by rows: the floating-point side of the history.

A = L Lᵀ is kept scaled to a unit diagonal, so that rows of very different norms (one cell, 10**12
cells) do not spoil it.  Shapes: A [size, size] positive definite; one solve or one new row costs
size² operations.  Results are approximate: callers refine them with exact residuals.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CANCELLED = 2.0**-20  # a smaller complement has lost too many digits


def library(name: Literal["blas", "lapack"]) -> Any:
    """Return what has the functions of ``scipy.linalg.blas``, or of ``scipy.linalg.lapack``.

    The package imports for longer than NumPy, and its compiled libraries need none of it.  Where
    one cannot be had alone, as in another layout of SciPy, it is the module itself.
    """
    scipy = find_spec("scipy")
    folders = [
        str(Path(each, "linalg")) for each in (scipy and scipy.submodule_search_locations) or ()
    ]
    alone = PathFinder.find_spec(f"scipy.linalg._f{name}", folders)
    if alone and alone.loader:
        with suppress(ImportError):
            found = module_from_spec(alone)
            alone.loader.exec_module(found)
            return found
    return import_module(f"scipy.linalg.{name}")


dtrsv = library("blas").dtrsv


class Cholesky:
    """L of a growing matrix, scaled by 1 / sqrt(diagonal)."""

    def __init__(self) -> None:
        self.size = 0
        self._factor = np.zeros((16, 16), order="F")
        self._scale = np.zeros(16)

    def solve(self, right: Floats) -> Floats:
        """Return A⁻¹ · right [size]."""
        scale = self._scale[: self.size]
        return scale * self._back(self._forward(scale * right), transposed=True)

    def _forward(self, right: Floats) -> Floats:
        return self._back(right, transposed=False)

    def _back(self, right: Floats, *, transposed: bool) -> Floats:
        if not self.size:
            return right
        part = self._factor[: self.size, : self.size]
        if self.size < len(self._factor):  # BLAS wants whole columns: pad with the identity
            padded = np.zeros(len(self._factor))
            padded[: self.size] = right
            return np.asarray(
                dtrsv(self._factor, padded, lower=1, trans=int(transposed))[: self.size]
            )
        return np.asarray(dtrsv(part, right, lower=1, trans=int(transposed)))

    def append(self, column: Floats, diagonal: float, schur: Callable[[], float]) -> bool:
        """Add a row: A's new column [size], its diagonal, and where floats are not enough its
        Schur complement, known better.

        Returns False, and adds nothing, where the complement is lost in rounding.
        """
        if not (np.isfinite(diagonal) and diagonal > 0):
            return False
        scale = 1 / np.sqrt(diagonal)
        row = self._forward(self._scale[: self.size] * column * scale)
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
