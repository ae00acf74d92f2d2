"""Types and ranges: every column has PostgreSQL's type, and what is past it PostgreSQL's SQLSTATE.

Expressions of constants and of aggregates are drawn from a seed and put to both.  What is known to
differ is not drawn: numerics have 38 digits here, floats are not cast to text, and round(x, 2)
takes doubles too.
"""

import math
import random

import pytest
from psycopg import Error as ReferenceError

from proxy.errors import Error
from tests.searches import share
from tests.sql.survey import plain, run

STATEMENTS = 400
CONSTANTS = [
    "0", "1", "-1", "7", "32767", "-32768", "2147483647", "-2147483648", "2147483648",
    "9223372036854775807", "-9223372036854775808", "-(-2147483648)", "1.5", "-2.5", "0.05",
    "99999.995", "1e10", "1::smallint", "32767::smallint", "'-32768'::int2", "7::int",
    "(-2147483648)::int", "9223372036854775807::bigint", "(-9223372036854775808)::bigint",
    "1.25::numeric", "2.5::real", "1.1::real", "3e38::real", "2.5::float8", "1e300::float8",
    "-1e308::float8", "true::int",
]  # fmt: skip
AGGREGATES = [
    "count(*)", "count(children)", "sum(1)", "sum(1.5)", "sum(age)", "sum(-age)", "sum(age * 2)",
    "sum(age / 2)", "sum(age * 0.5)", "sum(age::smallint)", "sum(age::bigint)", "sum(age::real)",
    "sum(age::float8)", "sum(score)", "sum(wage)", "sum(wage::numeric)", "sum(wage * age)",
    "sum(true::int)", "sum(coalesce(children, 0))", "sum(case when married then 1 else 0 end)",
    "sum(case when married then 1 else 0.5 end)", "sum(case when married then age else wage end)",
    "avg(1)", "avg(age)", "avg(score)", "avg(wage)", "avg(age::real)", "avg(age * 2.5)",
    "sum(age)::bigint", "count(*)::smallint", "count(*)::int", "sum(wage)::bigint", "max(age)",
    "min(score)", "count(distinct age)", "coalesce(count(*), 0.5)", "nullif(sum(age), 2.5)",
    "variance(age)", "stddev(age)", "regr_count(age, wage)", "sum(age) filter (where married)",
]  # fmt: skip
CASTS = ["smallint", "int", "bigint", "numeric", "real", "float8", "numeric(6, 2)", "numeric(3, 0)"]
OPERATORS = ["+", "-", "*", "/", "%"]
FUNCTIONS = [
    "abs({})", "-({})", "ceil({})", "floor({})", "round({})", "sign({})", "trunc({})", "({})",
    "coalesce({}, {})", "case when true then {} else {} end", "nullif({}, {})",
    "greatest({}, {})", "least({}, {})", "mod({}, {})", "div({}, {})", "sqrt({})", "cbrt({})",
]  # fmt: skip
EDGES = [
    *(
        f"({value})::{kind}"
        for kind in CASTS
        for value in (
            *("32767", "32768", "-32768", "-32769", "32767.4", "32767.5", "32767.5::float8"),
            *("2147483647", "2147483648", "-2147483648", "-2147483649", "2147483647.5"),
            *("9223372036854775807", "9223372036854775808", "-9223372036854775808"),
            *("9223372036854775807::float8", "9223372036854774784::float8", "1e300::float8"),
            *("9999.994", "9999.995", "999.5", "999.49", "-999.5", "1e39::float8", "'32768'"),
        )
    ),
    *(
        f"{one} {sign} {two}"
        for sign in OPERATORS
        for kind, end in (("smallint", 32767), ("int", 2**31 - 1), ("bigint", 2**63 - 1))
        for one in (f"'{end}'::{kind}", f"'{-end - 1}'::{kind}")
        for two in (f"1::{kind}", f"'-1'::{kind}", f"2::{kind}")
    ),
    *(
        shape.format(f"'{least}'::{kind}")
        for shape in ("abs({})", "-({})", "- {}", "{} / '-1'")
        for kind, least in (("smallint", -32768), ("int", -(2**31)), ("bigint", -(2**63)))
    ),
    "1e308::float8 * 10", "1e308::float8 + 1e308::float8", "3e38::real * 10", "exp(710)",
    "exp(-800)",
    "power(10, 400)", "div(1e10, 3.5)", "7 / 0", "7 % 0", "7.5 / 0", "7::float8 / 0", "sqrt(-1)",
    "ln(0)", "ln(-1.5)", "'x'::text::int", "'1.5'::text::int", "'32768'::text::smallint",
    "'1e400'::float8", "'1e39'::real", "1e400::float8", "'2021-02-29'::date",
    "make_date(2021, 2, 30)",
    "'abcdef'::varchar(3)",
    "(SELECT x FROM (VALUES (1), (2)) t(x))", "date_part('year', now())",
    "extract(year from now())", "power(2, 3)", "power(2.0, 3)", "sqrt(2)", "sqrt(2.0)", "log(2, 8)",
    "log(8)", "log(8.0)", "exp(1.5)", "ln(2.0)", "2 ^ 3", "DATE '2020-01-01' + 1::smallint",
]  # fmt: skip


class Generator:
    """Expressions of some atoms."""

    def __init__(self, seed, atoms):
        self.draw = random.Random(seed)
        self.atoms = atoms

    def expression(self, depth):
        draw, kind = self.draw, self.draw.random()
        if depth == 0 or kind < 0.15:
            return draw.choice(self.atoms)
        if kind < 0.5:
            one, two = self.expression(depth - 1), self.expression(depth - 1)
            return f"({one} {draw.choice(OPERATORS)} {two})"
        if kind < 0.72:
            return f"({self.expression(depth - 1)})::{draw.choice(CASTS)}"
        shape = draw.choice(FUNCTIONS)
        return shape.format(*(self.expression(depth - 1) for _ in range(shape.count("{}"))))


def ours(text):
    """Our type and value of the one column, or our error."""
    try:
        result = run(text)
    except Error as error:
        return error, None
    return result.columns[0].type, plain(result.rows[0][0])


def theirs(postgres, text):
    """PostgreSQL's."""
    with postgres.cursor(raw=True) as cursor:
        try:
            cursor.execute(text)
            (value,) = cursor.fetchone()
            code = cursor.description[0].type_code
            cursor.execute("SELECT format_type(%s, NULL)", (code,))
        except ReferenceError as error:
            return error, None
        return cursor.fetchone()[0], plain(value)


def difference(postgres, text):
    """What differs between the two, or None."""
    kind, value = theirs(postgres, text)
    own, found = ours(text)
    if isinstance(kind, Exception) or isinstance(own, Exception):
        states = [getattr(each, "sqlstate", None) for each in (own, kind)]
        limit = getattr(own, "message", "") == "value overflows numeric format"
        if states[0] == states[1] or limit or "underflow" in str(kind):
            return None
        return f"{text}: {own!r}, PostgreSQL has {kind!r} {value}"
    if own != {"character varying": "text"}.get(kind, kind):
        return f"{text}: is a {own}, PostgreSQL has a {kind}"
    if isinstance(value, float) and found is not None:
        same = math.isclose(found, value, rel_tol=1e-6, abs_tol=1e-6)
        return None if same else f"{text}: {found}, PostgreSQL has {value}"
    return None if found == value else f"{text}: {found}, PostgreSQL has {value}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", share(1, range(2)))
def test_constants_have_postgresql_s_types_and_ranges(postgres, seed):
    """
    Of 400 expressions of numbers at the ends of their ranges, type and value, or SQLSTATE.
    """
    made = Generator(seed, CONSTANTS)
    texts = [f"SELECT {made.expression(2)} AS a" for _ in range(STATEMENTS)]
    assert [bad for text in texts if (bad := difference(postgres, text))] == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", share(1, range(2)))
def test_aggregates_have_postgresql_s_types_and_ranges(postgres, seed):
    """
    Of 200 expressions of aggregates, type and value, or SQLSTATE.
    """
    made = Generator(seed, AGGREGATES)
    texts = [f"SELECT {made.expression(1)} AS a FROM survey" for _ in range(STATEMENTS // 2)]
    assert [bad for text in texts if (bad := difference(postgres, text))] == []


@pytest.mark.slow
def test_aggregates_of_results_have_postgresql_s_types(postgres):
    """
    Each aggregate and window over a column of each type.
    """
    inner = (
        "SELECT region, count(*)::smallint AS a, count(*)::int AS b, count(*) AS c,"
        "sum(score) AS d, sum(age)::real AS e, sum(wage) AS f FROM survey GROUP BY region"
    )
    calls = ["sum({})", "avg({})", "min({})", "stddev({})", "var_pop({})"]
    calls += ["percentile_cont(0.5) WITHIN GROUP (ORDER BY {})", "count({})"]
    calls += ["percentile_disc(0.5) WITHIN GROUP (ORDER BY {})"]
    windows = ["sum({}) OVER ()", "avg({}) OVER ()", "lag({}) OVER (ORDER BY region)"]
    windows += [
        "stddev_pop({}) OVER ()",
        "ntile(2) OVER (ORDER BY {})",
        "rank() OVER (ORDER BY {})",
    ]
    texts = [f"SELECT {call.format(x)} AS a FROM ({inner}) t" for call in calls for x in "abcdef"]
    texts += [
        f"SELECT {call.format(x)} AS a FROM ({inner}) t ORDER BY region"
        for call in windows
        for x in "abcdef"
    ]
    assert [bad for text in texts if (bad := difference(postgres, text))] == []


@pytest.mark.slow
def test_casts_and_operators_at_the_ends_of_ranges(postgres):
    """
    Value or SQLSTATE, of constants.
    """
    texts = [f"SELECT {edge} AS a" for edge in EDGES]
    assert [bad for text in texts if (bad := difference(postgres, text))] == []
