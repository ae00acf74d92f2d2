"""Forty shapes that the test suites of other systems exercise, in SQL of our own.

Those systems are SmartNoise SQL, FLEX (Chorus), ZetaSQL's differential privacy, Privacy on Beam and
PipelineDP, Tumult Analytics, Qrlew, PINQ, PrivateSQL and OpenDP.  ``-- refused:`` says with which
SQLSTATE and in which words a shape is refused; every other is answered.
"""

import pytest

from proxy.errors import Error
from tests.sql.compare import same
from tests.sql.survey import program, run
from tests.sql.test_cases import read

SHAPES = list(read("peers"))
REFUSED = [shape for shape in SHAPES if "refused" in shape.values[0]]


@pytest.mark.parametrize("keys, text", [shape for shape in SHAPES if shape not in REFUSED])
def test_a_shape_is_answered(keys, text, postgres):
    """
    Without noise, it gives what PostgreSQL gives on the raw records.
    """
    names, rows = postgres.query(text)
    assert same(run(text), program(text), names, rows, "ordered" in keys) is None


@pytest.mark.parametrize("keys, text", REFUSED)
def test_a_shape_is_refused(keys, text):
    """
    It is no linear query of one dataset, or in a form that is not understood; the error says so.
    """
    with pytest.raises(Error) as caught:
        run(text)
    state, _, words = keys["refused"].partition(" ")
    assert (caught.value.sqlstate, words in caught.value.message) == (state, True)


def test_there_are_forty():
    """
    29 are answered and 11 refused.
    """
    assert (len(SHAPES), len(REFUSED)) == (40, 11)
