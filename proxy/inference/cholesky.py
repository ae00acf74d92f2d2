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
BLOCK = 256  # rows that are solved for together
STEP = 512  # rows for which there is more room, at most


def compiled(name: Literal["blas", "lapack"]) -> Any:
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


blas, lapack = compiled("blas"), compiled("lapack")
dtrsm, dtrsv, dpotrf = blas.dtrsm, blas.dtrsv, lapack.dpotrf


def _factorised(matrix: Floats) -> tuple[Floats, int]:
    """Return L of the first rows, and their number: those whose complements are not lost."""
    factor, failed = dpotrf(matrix, lower=1)
    count = failed - 1 if failed else len(matrix)
    lost = np.flatnonzero(np.diagonal(factor)[:count] ** 2 <= CANCELLED)
    if failed or len(lost):
        return _factorised(matrix[: (first := min([*lost, count])), :first])
    return factor, count


class Cholesky:
    """L of a growing matrix, scaled by 1 / sqrt(diagonal)."""

    def __init__(self) -> None:
        self.size = 0
        self._factor = np.eye(16, order="F")  # beyond L it is the identity
        self._scale = np.zeros(16)

    def solve(self, right: Floats) -> Floats:
        """Return A⁻¹ · right [size], or [size, k]."""
        scale = self._scale[: self.size].reshape(-1, *[1] * (right.ndim - 1))
        return scale * self._back(self._back(scale * right), transposed=True)

    def _back(self, right: Floats, *, transposed: bool = False) -> Floats:
        """Return L⁻¹ · right, or that of its transpose."""
        if not right.size:
            return right
        if right.ndim > 1 and right.shape[1] > 1:
            return self._blocks(right, transposed)
        padded = np.zeros(len(self._factor))  # BLAS wants whole columns
        padded[: self.size] = right.ravel()
        solved = dtrsv(self._factor, padded, lower=1, trans=int(transposed))
        return np.asarray(solved[: self.size]).reshape(right.shape)

    def _blocks(self, right: Floats, transposed: bool) -> Floats:
        """Return the same of several, by blocks."""
        factor = self._factor[: self.size, : self.size]
        factor = factor.T if transposed else factor
        solved, starts = np.empty_like(right), range(0, self.size, BLOCK)
        for start in reversed(starts) if transposed else starts:
            here = slice(start, min(start + BLOCK, self.size))
            known = slice(here.stop, None) if transposed else slice(start)
            rest = right[here] - factor[here, known] @ solved[known]
            solved[here] = dtrsm(1.0, factor[here, here], rest, lower=not transposed)
        return solved

    def append(self, columns: Floats, square: Floats, schur: Callable[[], float]) -> int:
        """Add rows: A's new columns [size, k], and those of the new rows themselves [k, k].

        Returns how many were added: those before the first whose Schur complement floats are not
        enough for.  Of the first of all, ``schur`` knows it better; it is then added alone, or
        not at all where its complement is lost in rounding.
        """
        diagonal = np.diagonal(square)
        usable = np.isfinite(diagonal) & (diagonal > 0)
        count = len(usable) if usable.all() else int(usable.argmin())
        scale = 1 / np.sqrt(diagonal[:count])
        rows = self._back(self._scale[: self.size, None] * columns[:, :count] * scale)
        # the complement, of a unit diagonal, and then its own factor
        rest = square[:count, :count] * scale * scale[:, None] - rows.T @ rows
        factor, count = _factorised(rest)
        if not count and len(rest) and (known := schur() / diagonal[0]) > 2.0**-60:
            factor, count = np.sqrt([[known]]), 1
        size, new = self.size, self.size + count
        if new > len(self._factor):
            self.reserve(max(new, min(2 * size, size + STEP)))
        self._factor[size:new, :size] = rows.T[:count]
        self._factor[size:new, size:new] = factor
        self._scale[size:new] = scale[:count]
        self.size = new
        return count

    def reserve(self, room: int) -> None:
        """Have room for so many rows, and not for many more: these cost time in each solve."""
        have = self.size
        if not 0 <= len(self._factor) - room <= STEP:
            factor = np.zeros((room, room), order="F")
            factor[range(room), range(room)] = 1.0  # far faster than ``fill_diagonal`` here
            factor[:have, :have] = self._factor[:have, :have]
            self._factor = factor
            self._scale = np.concatenate([self._scale[:have], np.zeros(room - have)])

    def truncate(self, size: int) -> None:
        """Forget the rows from ``size`` on."""
        self._factor[size:, :] = 0.0
        self._factor[range(size, len(self._factor)), range(size, len(self._factor))] = 1.0
        self.size = size
