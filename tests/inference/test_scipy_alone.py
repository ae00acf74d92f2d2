"""What the history takes of SciPy alone is SciPy's own."""

from importlib.machinery import PathFinder

import pytest
from scipy.linalg import blas, lapack

from proxy.inference import cholesky

LIBRARIES = [("blas", blas, "dtrsv"), ("lapack", lapack, "dpotrf")]


@pytest.mark.parametrize("name, whole, function", LIBRARIES)
def test_a_library_is_that_of_scipy(monkeypatch, name, whole, function):
    """
    The very functions of ``scipy.linalg``, also where they cannot be had alone.
    """
    assert getattr(cholesky.compiled(name), function) is getattr(whole, function)
    assert cholesky.dtrsv is blas.dtrsv
    monkeypatch.setattr(PathFinder, "find_spec", lambda name, path=None, target=None: None)
    assert cholesky.compiled(name) is whole
