"""The growing Cholesky factor, against dense linear algebra."""

import numpy as np
import pytest

from proxy.inference.cholesky import Cholesky


def lost():
    """A Schur complement that is not known better."""
    return 0.0


@pytest.mark.parametrize("parts", [[600], [1] * 40 + [300, 260], [17, 583]])
def test_it_solves_whatever_came_together(parts):
    """
    600 rows with norms over nine decades, in parts of any size: one solution, and several at once.
    """
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(600, 700)) * np.exp(rng.uniform(-10, 10, (600, 1)))
    matrix, right = rows @ rows.T, rng.normal(size=(600, 5))
    factor, start = Cholesky(), 0
    for count in parts:
        new = slice(start, start + count)
        assert factor.append(matrix[:start, new], matrix[new, new], lost) == count
        start += count
    factor.reserve(1500)
    factor.reserve(600)
    scale = np.sqrt(np.diagonal(matrix))[:, None]
    solved = np.linalg.solve(matrix / scale / scale.T, right / scale) / scale
    assert factor.solve(right) * scale == pytest.approx(solved * scale, rel=1e-8)
    assert factor.solve(right[:, 1]) * scale[:, 0] == pytest.approx(
        (solved * scale)[:, 1], rel=1e-8
    )


def test_a_row_whose_complement_is_nearly_lost_is_taken_by_itself():
    """
    Rows are added up to the one that floats nearly lose; then that one, if its complement is known
    better, or none; what follows solves with it.
    """
    close = 1 - 2.0**-31  # a complement of nearly 2**-30
    matrix = np.eye(5)
    matrix[1, 3] = matrix[3, 1] = close
    factor = Cholesky()
    assert factor.append(matrix[:0], matrix, lost) == 3
    assert factor.append(matrix[:3, 3:], matrix[3:, 3:], lost) == 0
    assert factor.append(matrix[:3, 3:], matrix[3:, 3:], lambda: 1 - close**2) == 1
    assert factor.append(matrix[:4, 4:], matrix[4:, 4:], lost) == 1
    right = np.array([1.0, 1.0, 1.0, -1.0, 1.0])
    assert factor.solve(right) == pytest.approx(np.linalg.solve(matrix, right), rel=1e-6)
