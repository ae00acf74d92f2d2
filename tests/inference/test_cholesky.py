"""The triangular solve of the history is SciPy's own."""

from importlib.machinery import PathFinder

from scipy.linalg import blas

from proxy.inference import cholesky


def test_the_solve_is_that_of_scipy(monkeypatch):
    """
    The very function of ``scipy.linalg.blas``, also where it cannot be had alone.
    """
    assert cholesky.dtrsv is blas.dtrsv
    monkeypatch.setattr(PathFinder, "find_spec", lambda name, path=None, target=None: None)
    assert cholesky._blas().dtrsv is blas.dtrsv
