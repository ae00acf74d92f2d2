"""Comparisons with constants that need no database are what DuckDB makes of them."""

import datetime
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.domain import Attribute, Domain
from proxy.sql import types
from proxy.sql.evaluator import evaluator as module
from proxy.sql.evaluator.comparisons import comparison
from proxy.sql.evaluator.evaluator import Evaluator
from tests.sql.survey import program

DAYS = tuple(datetime.date(2023, 12, 28) + datetime.timedelta(days=i) for i in range(9))
TEXTS = (
    "",
    "a",
    "A",
    "it's",
    "''",
    "é",
    "z",
    "Ω",
    "\uffff",
    "😀",
    "a)",
    "a' OR ('",
    "%",
    "\\",
    "a\nb",
)
EDGES = (-3, 0, 1, 4, 10)
KINDS = [
    Attribute("number", "integer", (-(10**12), -7, 0, 2, 3, 10, 2**40)),
    Attribute("text", "text", TEXTS),
    Attribute("day", "date", DAYS),
    Attribute("binned", "integer", EDGES[:-1], EDGES),
    Attribute("weeks", "date", DAYS[:-1:2], DAYS[::2]),
]
AXES = [replace(each, nulls=nulls) for each in KINDS for nulls in ("drop", "group")]
DOMAIN = Domain(tuple(AXES), ())
MORE = {
    "integer": st.one_of(st.integers(-12, 12), st.integers(-(10**18) + 1, 10**18 - 1)),
    "text": st.one_of(
        st.sampled_from(TEXTS),
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=3),
    ),
    "date": st.dates(datetime.date(2023, 12, 20), datetime.date(2024, 1, 12)),
}


@pytest.fixture(scope="module")
def evaluator():
    with_database = Evaluator(DOMAIN)
    yield with_database
    with_database.close()


def written(kind, value):
    """Return a constant as a statement's lowering writes it."""
    return str(value) if kind == "integer" else types.literal(kind, value)


@st.composite
def conditions(draw):
    """Return the index of an axis, and its comparison with constants as text."""
    axis = draw(st.integers(0, len(AXES) - 1))
    kind = AXES[axis].type
    constant = MORE[kind].map(lambda value: written(kind, value))
    sign = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "IN", "BETWEEN"]))
    if sign == "IN":
        text = f"(d{axis}.v IN ({', '.join(draw(st.lists(constant, min_size=1, max_size=4)))}))"
    elif sign == "BETWEEN":
        text = f"(d{axis}.v >= {draw(constant)} AND d{axis}.v <= {draw(constant)})"
    else:
        text = f"(d{axis}.v {sign} {draw(constant)})"
    return axis, draw(st.sampled_from([text, f"(NOT {text})"]))


@given(conditions())
def test_a_comparison_without_the_database_is_the_same(evaluator, condition):
    """
    Values, NULLs, and the cells of bins that are cut, of every kind of axis, with NULL and without.
    """
    axis, text = condition
    points = {axis: None} if AXES[axis].binned else {}
    assert comparison(text, AXES[axis]) is not None
    with patch.object(Evaluator, "_fetched", side_effect=AssertionError):
        ours = evaluator._evaluate(text, (axis,), points)
    with patch.object(module, "comparison", return_value=None):
        theirs = evaluator._evaluate(text, (axis,), points)
    assert np.array_equal(ours.array & ours.present, theirs.array & theirs.present)
    assert np.array_equal(ours.present, theirs.present)
    assert np.array_equal(ours.factor.array, theirs.factor.array)
    assert (ours.uneven, ours.scale, ours.decimal) == (theirs.uneven, theirs.scale, theirs.decimal)
    assert np.array_equal(ours.some, theirs.some)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("integer", "(d0.v = 1.5)"),
        ("integer", "(d0.v = '1')"),
        ("integer", f"(d0.v = {10**18})"),
        ("integer", "(d0.v + 1 = 1)"),
        ("integer", "(d0.v >= 1 AND d1.v <= 2)"),
        ("integer", "(d0.v IN ())"),
        ("integer", "(d0.v IN (1, CAST(NULL AS INTEGER)))"),
        ("text", "(d0.v = 'a' OR d0.v = 'b')"),
        ("text", "(d0.v = 'a\0')"),
        ("text", "(d0.v = 1)"),
        ("date", "(d0.v = CAST('2023-02-30' AS DATE))"),
        ("date", "(d0.v = CAST('2023-02-03 10:00:00' AS TIMESTAMP))"),
        ("date", "(d0.v == CAST('2023-02-03' AS DATE))"),
        ("boolean", "(d0.v = TRUE)"),
    ],
)
def test_what_is_no_plain_comparison_is_the_databases(kind, text):
    """Any other text, and what DuckDB refuses, goes to DuckDB."""
    assert comparison(text, Attribute("a", kind, ())) is None


@pytest.mark.parametrize(
    "where",
    [
        "age = 5 AND region <> 'north' AND children >= 2",
        "age > -1 AND income >= 5",
        "age IN (1, 2) AND region NOT IN ('it''s', 'x')",
        "age BETWEEN 20 AND 29 AND NOT age = 3",
        "joined = '2024-02-03' AND joined >= DATE '2024-02-03'",
    ],
)
def test_plain_comparisons_of_a_statement_ask_no_database(where):
    """
    What the lowering writes is of the form that is read here.
    """
    with patch.object(Evaluator, "_fetched", side_effect=AssertionError):
        found = program(f"SELECT COUNT(*) FROM survey WHERE {where}")
    assert found.releases
