"""Where a request stands, which numbers it is for, and which of several holds."""

from fractions import Fraction

import pytest

from proxy.sql import Request
from tests.sql.survey import program


def utilities(text):
    """The requests of the numbers of a statement, by their label."""
    return {
        number.label: number.utility
        for release in program(text).releases
        for number in release.numbers
    }


def absolute(half_width, delta, source="clause"):
    return Request(Fraction(half_width), Fraction(delta), False, source)


FIFTY = absolute("50", "0.05")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM survey WITH UTILITY (50, 0.05)",
        "select count(*) from survey with utility (50, 0.05)",
        "SELECT COUNT(*) FROM survey WITH UTILITY (50, 0.05);",
        "SELECT COUNT(*) FROM survey s WITH UTILITY (50, 0.05)",
        "SELECT COUNT(*) FROM survey WHERE age > 3 WITH UTILITY (50, 0.05)",
        "SELECT COUNT(*) FROM survey GROUP BY region WITH UTILITY (50, 0.05)",
        "SELECT COUNT(*) FROM survey GROUP BY region HAVING COUNT(*) > 3 WITH UTILITY (50, 0.05)",
        "SELECT COUNT(*) FROM survey GROUP BY region ORDER BY 1 WITH UTILITY (50, 0.05)",
        "SELECT COUNT(*) FROM survey GROUP BY region LIMIT 3 WITH UTILITY (50, 0.05)",
        "SELECT COUNT(*) FROM survey GROUP BY region WITH UTILITY (50, 0.05) LIMIT 3",
        "SELECT COUNT(*) FROM survey GROUP BY region ORDER BY 1 WITH UTILITY (50, 0.05) LIMIT 3 "
        "OFFSET 1",
        "SELECT COUNT(*) FROM survey WITH UTILITY (50.0, 5e-2)",
        "SELECT * FROM (SELECT COUNT(*) FROM survey WITH UTILITY (50, 0.05)) t",
        "SELECT * FROM (SELECT COUNT(*) FROM survey) t WITH UTILITY (50, 0.05)",
        "SELECT * FROM (SELECT COUNT(*) FROM survey WITH UTILITY (50, 0.05)) t "
        "WITH UTILITY (7, 0.1)",
        "WITH t AS (SELECT COUNT(*) FROM survey) SELECT * FROM t WITH UTILITY (50, 0.05)",
        "WITH t AS (SELECT COUNT(*) FROM survey WITH UTILITY (50, 0.05)) SELECT * FROM t",
        "/*+ UTILITY(9, 0.1) */ SELECT COUNT(*) FROM survey WITH UTILITY (50, 0.05)",
        "(SELECT COUNT(*) FROM survey) WITH UTILITY (50, 0.05)",
    ],
)
def test_the_nearest_clause_holds(text):
    """
    The clause stands before or after LIMIT, in a subquery or outside; the innermost one holds.
    """
    assert utilities(text) == {"COUNT(*)": FIFTY}


@pytest.mark.parametrize(
    "text, labels",
    [
        ("100.0 * COUNT(*) FILTER (WHERE age > 3) / COUNT(*)", {"COUNT(*) FILTER", "COUNT(*)"}),
        ("-COUNT(*) * 100.0 / COUNT(*)", {"COUNT(*)"}),
        ("ROUND(100.0 * COUNT(*))", {"COUNT(*)"}),
        ("100 * COUNT(*) > 5", {"COUNT(*)"}),
        ("(2 * COUNT(*) + COUNT(region)) / SUM(age)", {"(2 * COUNT(*)", "SUM(age)"}),
        ("100 * COUNT(*)", {"100 * COUNT(*)"}),
        ("CAST(-COUNT(*) AS NUMERIC)", {"CAST("}),
    ],
)
def test_what_is_scaled_inside_an_output_is_itself_the_number(text, labels):
    """
    A share in percent needs its count no better than a share; a multiple that is shown is a number.
    """
    found = utilities(f"SELECT {text} AS x FROM survey WITH UTILITY (50, 0.05)")
    assert len(found) == len(labels)
    assert all(any(label.startswith(start) for start in labels) for label in found), found


def test_a_clause_after_union_covers_the_whole():
    """
    Both sides of the UNION have the request that stands after the second.
    """
    text = (
        "SELECT COUNT(*) FROM survey UNION ALL SELECT COUNT(age) FROM survey "
        "UNION ALL SELECT SUM(age) FROM survey ORDER BY 1 WITH UTILITY (50, 0.05)"
    )
    assert utilities(text) == {"COUNT(*)": FIFTY, "COUNT(age)": FIFTY, "SUM(age)": FIFTY}


def test_per_cent_is_relative():
    """
    5 PERCENT and 5 % ask for a twentieth of the number.
    """
    for unit in ("PERCENT", "%"):
        found = utilities(f"SELECT COUNT(*) FROM survey WITH UTILITY (5 {unit}, 0.05)")
        assert found == {"COUNT(*)": Request(Fraction(5), Fraction(1, 20), True, "clause")}


def test_a_named_column_has_its_own_request():
    """
    Names are those of output columns; a number in the column's expression takes the request, also
    through subqueries and arithmetic.
    """
    text = (
        'SELECT region, COUNT(*) AS n, SUM(wage) AS "To Tal" FROM survey GROUP BY region '
        'WITH UTILITY (50, 0.05), "To Tal" (170000, 0.1)'
    )
    assert utilities(text) == {"COUNT(*)": FIFTY, "SUM(wage)": absolute("170000", "0.1")}
    text = (
        "SELECT share FROM (SELECT SUM(wage) / COUNT(*) AS share FROM survey) t "
        "WITH UTILITY share (5, 0.1)"
    )
    assert utilities(text) == {
        "SUM(wage)": absolute("5", "0.1"),
        "COUNT(*)": absolute("5", "0.1"),
    }


@pytest.mark.parametrize(
    "text",
    [
        "/*+ UTILITY(50, 0.05) */ SELECT COUNT(*) FROM survey",
        "SELECT /*+ UTILITY(50, 0.05) */ COUNT(*) FROM survey",
        "SELECT /* + utility ( 50 , 0.05 ) */ COUNT(*) FROM survey",
        "SELECT COUNT(*) FROM survey -- UTILITY(50, 0.05)",
        "SELECT COUNT(*) FROM survey /* UTILITY(50, 0.05) */ LIMIT 100",
        "SELECT COUNT(*) FROM (SELECT * FROM survey) t /* UTILITY(50, 0.05) */",
    ],
)
def test_any_comment_may_be_a_hint(text):
    """
    A comment that reads UTILITY(h, d), wherever a tool has put it, holds for the statement.
    """
    assert utilities(text) == {"COUNT(*)": absolute("50", "0.05", "hint")}


def test_without_a_request_there_is_none():
    """
    Defaults are not of the statement; a comment that merely speaks of utility is none.
    """
    assert utilities("SELECT COUNT(*) FROM survey -- the utility of it") == {"COUNT(*)": None}


def test_numbers_say_on_which_measure_they_depend():
    """
    A sum or average of a measure names it, so that its default can hold; a count names none.
    """
    (release,) = program(
        "SELECT COUNT(*), COUNT(bonus), SUM(wage) - 100 * COUNT(*), AVG(bonus), SUM(age) "
        "FROM survey"
    ).releases
    assert [(n.kind, n.measure) for n in release.numbers] == [
        ("count", None),
        ("count", None),
        ("sum", "wage"),
        ("avg", "bonus"),
        ("sum", None),
    ]


def test_a_linear_combination_is_one_number():
    """
    2 · COUNT(*) − 10 and SUM(wage) − 100 · COUNT(*) are one number each, with a shift.
    """
    (release,) = program(
        "SELECT 2 * COUNT(*) - 10, SUM(wage) - 100 * COUNT(*), COALESCE(SUM(wage), 0) FROM survey"
    ).releases
    assert [(n.kind, n.shift) for n in release.numbers] == [("count", -10), ("sum", 0), ("sum", 0)]
    assert release.numbers[0].family.grid == 2
    assert set(release.numbers[1].family.query.parts) == {0, 1}


def test_the_same_number_is_asked_once():
    """
    What is shown, filtered by and ordered by is one number; with another request it is another.
    """
    (release,) = program(
        "SELECT region, COUNT(*) AS n, COUNT(*) + 0 AS m FROM survey GROUP BY region "
        "HAVING COUNT(*) > 3 ORDER BY COUNT(*) DESC"
    ).releases
    assert len(release.numbers) == 1


def test_an_average_is_a_sum_about_its_middle_over_a_count():
    """
    AVG(wage) over [0, 2000]: U = SUM(wage) − 1000 · COUNT, so that one record moves U by 1000.
    """
    (release,) = program("SELECT AVG(wage) FROM survey").releases
    (number,) = release.numbers
    assert (number.kind, number.shift, number.bounds) == ("avg", 1000, (0, 2000))
    assert number.family.sensitivity * number.family.grid == 1000
    assert number.denominator.sensitivity == 1


def test_the_interval_of_a_number_can_be_shown():
    """
    CREDIBLE_LOW, CREDIBLE_HIGH, CONFIDENCE and PROBABILITY become companions of the number they
    name, claims on counts in whole numbers.
    """
    (release,) = program(
        "SELECT COUNT(*) AS n, CREDIBLE_LOW(COUNT(*)), CREDIBLE_HIGH(COUNT(*)), "
        "CONFIDENCE(COUNT(*)), PROBABILITY(COUNT(*) > 100), PROBABILITY(5.5 <= COUNT(*)), "
        "PROBABILITY(COUNT(*) BETWEEN 3 AND 7), PROBABILITY(COUNT(*) > 2 AND COUNT(*) < 9), "
        "PROBABILITY(SUM(age) < 7) FROM survey"
    ).releases
    count, total = release.numbers
    assert [(e.what, e.least, e.most) for e in count.companions] == [
        ("low", None, None),
        ("high", None, None),
        ("confidence", None, None),
        ("probability", 101, None),
        ("probability", 6, None),
        ("probability", 3, 7),
        ("probability", 3, 8),
    ]
    assert [(e.least, e.most) for e in total.companions] == [(None, 6)]
