"""Parameters become literals that cannot be anything else, and only where a placeholder is."""

import datetime
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import ProgrammingError
from proxy.sql import bind_parameters
from tests.sql.survey import run


@pytest.mark.parametrize(
    "value, literal",
    [
        (5, "5"),
        (-5, "(-5)"),
        (2**70, str(2**70)),
        (1.5, "1.5"),
        (1e-7, "0.0000001"),
        (-0.5, "(-0.5)"),
        (Decimal("1.50"), "1.50"),
        (Decimal("7"), "7."),  # numeric, as PostgreSQL reads it
        (Decimal("-7"), "(-7.)"),
        (Decimal("1E+2"), "100."),
        (datetime.timedelta(days=31), "CAST('31 days 0.000000 seconds' AS INTERVAL)"),
        (datetime.timedelta(hours=-1), "CAST('-1 days 82800.000000 seconds' AS INTERVAL)"),
        (np.float64(-1.5), "(-1.5)"),
        (np.int64(7), "7"),
        ("south", "'south'"),
        ("O'Neil's", "'O''Neil''s'"),
        ("a\\b", "'a\\b'"),
        ("%s", "'%s'"),
        (True, "TRUE"),
        (None, "NULL"),
        (datetime.date(2020, 2, 29), "CAST('2020-02-29' AS DATE)"),
        (datetime.datetime(2020, 1, 1, 12), "CAST('2020-01-01 12:00:00' AS TIMESTAMP)"),
        ([1, -2], "(1, (-2))"),
        (("a", "b'"), "('a', 'b''')"),
    ],
)
def test_values_are_written_as_literals(value, literal):
    """
    Every type that PEP 249 clients send has its literal, negative numbers in brackets.
    """
    assert bind_parameters("%s", [value]) == literal
    assert bind_parameters("x = %(x)s", {"x": value}) == f"x = {literal}"


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), "a\0b", object(), [], b"bytes", 1j, Decimal("NaN"), 10**2000,
     Decimal("1e999999999"), Decimal("-1e-2000")],
)  # fmt: skip
def test_values_without_a_literal_are_refused(value):
    """
    NaN, infinity, NUL, empty lists, foreign types and numbers of thousands of digits have none.
    """
    with pytest.raises(ProgrammingError):
        bind_parameters("%s", [value])


@pytest.mark.parametrize(
    "value, text, literal",
    [
        ([1, 2], "a = ANY(%s)", "a = ANY(ARRAY[1, 2])"),
        (["{x}"], "a <> all ( %s )", "a <> all ( ARRAY['{x}'] )"),
        ([], "a = ANY(%s)", "a = ANY('{}')"),
        ([1], "a IN %s", "a IN (1)"),
    ],
)
def test_a_list_behind_any_is_an_array(value, text, literal):
    """
    ANY and ALL take an array, also an empty one; IN takes values in brackets.
    """
    assert bind_parameters(text, [value]) == literal


def test_lists_as_parameters_are_lists():
    """
    Each list finds the records that have one of its values.
    """
    one = run("SELECT COUNT(*) FROM survey WHERE age IN (3, 4)").rows
    assert run("SELECT COUNT(*) FROM survey WHERE age IN %s", [[3, 4]]).rows == one
    assert run("SELECT COUNT(*) FROM survey WHERE age = ANY(%s)", [[3, 4]]).rows == one
    assert run("SELECT COUNT(*) FROM survey WHERE age = ANY(%s)", [[]]).rows == [(0,)]
    # as the server writes an empty array
    assert run("SELECT COUNT(*) FROM survey WHERE age = ANY(ARRAY[])").rows == [(0,)]


@pytest.mark.parametrize(
    "text",
    ["'%s'", '"%s"', "-- %s\n", "/* %s /* %(x)s */ %s */", "$$ %s $$", "$a$ %s $$ $a$", "e'\\'%s'"],
)
def test_a_placeholder_in_a_quotation_is_none(text):
    """
    Strings, quoted names, comments and dollar quotes keep their per cent signs.
    """
    assert bind_parameters(f"{text} %s", [1]) == f"{text} 1"


def test_two_per_cent_signs_are_one():
    """
    %% is a per cent sign everywhere in a text with parameters; without them % is as it is.
    """
    assert bind_parameters("a %% b LIKE '%%x' %s", [1]) == "a % b LIKE '%x' 1"
    assert run("SELECT COUNT(*) % 7 AS n FROM survey").rows == [(5,)]
    assert run("SELECT COUNT(*) %% 7 AS n FROM survey", []).rows == [(5,)]


@pytest.mark.parametrize(
    "text, parameters, words",
    [
        ("%s %s", [1], "no value for the placeholder %s"),
        ("%(a)s", {}, "no value for the placeholder %(a)s"),
        ("%s", [1, 2], "2 parameters, but 1 placeholders"),
        ("1", {"a": 1}, "no placeholder %(a)s"),
        ("%(a)s", [1], "use %s for a sequence"),
        ("%s", {"a": 1}, "use %(name)s for a mapping"),
        ("%d", [1], "only %s, %(name)s and %% may follow"),
        ("5 % 3", [1], "only %s, %(name)s and %% may follow"),
        ("100%", [], "only %s, %(name)s and %% may follow"),
        ("%s", "x", "not a text"),
    ],
)
def test_what_does_not_fit_is_refused(text, parameters, words):
    """
    Missing, unused and misspelled placeholders are said by name.
    """
    with pytest.raises(ProgrammingError) as caught:
        bind_parameters(text, parameters)
    assert words in caught.value.message


def test_a_minus_before_a_negative_parameter_is_no_comment():
    """
    5 -%s with -3 is 8, not a comment.
    """
    assert run("SELECT 5 -%s AS a", [-3]).rows == [(8,)]


@pytest.mark.parametrize("value", ["7", "7.0", "-7", "1E+2", "0.5", "700"])
@pytest.mark.parametrize("text", ["5 / {}", "{} / 3", "COUNT(*) / {}", "-{}", "age / {}"])
def test_a_decimal_is_numeric_whatever_its_value(value, text):
    """
    A whole Decimal is divided as a numeric is, not as an integer.
    """
    sql = f"SELECT {text} AS x, COUNT(*) FROM survey{' GROUP BY 1' if 'age' in text else ''}"
    bound = run(sql.format("%s"), [Decimal(value)])
    assert bound.columns[0].type == "numeric"
    cast = run(sql.format(f"CAST('{value}' AS numeric)"))
    for row, other in zip(bound.rows, cast.rows, strict=True):
        assert [None if x is None else float(x) for x in row] == pytest.approx(
            [None if x is None else float(x) for x in other], rel=1e-14
        )
    assert run("SELECT region FROM survey GROUP BY 1 LIMIT %s", [Decimal(2)]).rows


def test_a_timedelta_is_an_interval():
    """
    It is taken from a time, as INTERVAL is.
    """
    text = "SELECT COUNT(*) FROM survey WHERE joined - {} < '2020-02-20 08:00'"
    bound = run(text.format("%s"), [datetime.timedelta(days=31, hours=-7)])
    assert bound.rows == run(text.format("INTERVAL '30 days 17 hours'")).rows


def test_a_list_is_for_in():
    """
    IN %s takes a list, as with psycopg2.
    """
    listed = run("SELECT COUNT(*) FROM survey WHERE region IN %s", [["south", "west"]])
    assert listed.rows == run("SELECT COUNT(*) FROM survey WHERE region IN ('south', 'west')").rows


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8")))
def test_a_text_comes_back_as_it_was(value):
    """
    Whatever a text holds, quotes, backslashes, comments, it is that text and nothing more.
    """
    assert run("SELECT %s AS a", [value]).rows == [(value,)]
