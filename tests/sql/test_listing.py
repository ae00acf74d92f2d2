"""A statement that only lists a release is shown without SQL, and as its SQL would show it."""

import random
from itertools import product

import pytest
from msgspec.structs import replace

from proxy.sql import postprocess
from tests.sql.generator import Generator
from tests.sql.survey import evaluator, program
from tests.sql.test_cases import read

COLUMNS = ["region", "zone", '"Job Title"', "married", "children", "age", "joined", "seen", "score"]
NUMBERS = ["COUNT(*)", "SUM(wage)", "SUM(bonus)", "SUM(children)", "COUNT(bonus)"]
ORDERS = ["", "ORDER BY 1", "ORDER BY 2 DESC, 1", "ORDER BY 1 DESC NULLS LAST", "ORDER BY 3"]


def drawn(number, rng):
    """A value that a number may have."""
    if number.whole:
        return rng.choice([0, -1, rng.randrange(-(10**6), 10**6)])
    return rng.choice([None, -0.0, 0.1, rng.uniform(-1e9, 1e9), 5e-324, 1.7e308])


def both(text, rng, settings=None):
    """Whether a statement lists a release; if so, both ways gave the same."""
    compiled = program(text, settings=settings)
    if getattr(compiled, "listing", None) is None:
        return False
    (release,) = compiled.releases
    values = [[[drawn(n, rng) for _ in range(release.rows)] for n in release.numbers]]
    listed = postprocess(compiled, values, evaluator())
    shown = postprocess(replace(compiled, listing=None), values, evaluator())
    assert repr(listed.rows) == repr(shown.rows), text  # -0.0 and types, too
    assert list(listed.origins) == list(shown.origins), text
    assert replace(listed, rows=(), origins=()) == replace(shown, rows=(), origins=()), text
    return True


@pytest.mark.slow
def test_all_statements_that_list_a_release():
    """
    Of all accepted cases and of 300 random statements.
    """
    rng, generator = random.Random(1), Generator(77)
    texts = [case.values[1] for case in read("cases")]
    found = sum(both(text, rng) for text in texts)
    assert found > 100
    for _ in range(300):
        both(generator.statement()[0], rng)


@pytest.mark.parametrize("order", ORDERS)
def test_groups_of_every_type_in_every_order(order):
    """
    NULL as PostgreSQL has it, and equal groups in the order of the others.
    """
    rng, found = random.Random(2), 0
    for one, two in product(COLUMNS, COLUMNS):
        number = rng.choice(NUMBERS)
        columns = f"{one} AS a, {two} AS b, {number} AS n"
        found += both(f"SELECT {columns} FROM survey GROUP BY {one}, {two} {order}", rng)
    assert (found > 40) is (order != "ORDER BY 3" and "NULLS" not in order)


@pytest.mark.parametrize("day", ["month", "joined + 1", "date_trunc('month', joined)::date"])
def test_groups_that_are_computed_dates(day):
    """
    They are dates, as a column's are.
    """
    text = f"SELECT {day} AS d, COUNT(*) AS n FROM survey GROUP BY 1 ORDER BY 1 DESC"
    assert both(text, random.Random(3))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT SQRT(COUNT(*)) FROM survey",
        "SELECT COUNT(*)::text FROM survey",
        "SELECT region, COUNT(*) FROM survey GROUP BY region LIMIT 2",
        "SELECT region, COUNT(*) FROM survey GROUP BY region HAVING COUNT(*) > 9",
        "SELECT region, COUNT(*) FROM survey GROUP BY region ORDER BY COUNT(*)",
        "SELECT DISTINCT COUNT(*) FROM survey GROUP BY region",
        "SELECT COUNT(*) FROM survey UNION ALL SELECT COUNT(*) FROM survey",
        "SELECT (SELECT COUNT(*) FROM survey), COUNT(*) FROM survey",
        "SELECT COUNT(*) FROM survey OFFSET 1",
    ],
)
def test_any_other_statement_has_its_sql(text):
    """
    Whatever is computed, chosen or ordered by numbers.
    """
    assert program(text).listing is None
