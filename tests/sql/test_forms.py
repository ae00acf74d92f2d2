"""How the numbers of a result depend on released ones, in SQL: against these numbers."""

import math

import pytest

from proxy.errors import DataError
from proxy.inference.functions.images import FUNCTIONS
from proxy.sql import Program, draw, parameters, postprocess
from proxy.sql.expression.faces import beside, drawn, narrow, shown, twofold, wide
from proxy.sql.provenance import DERIVED, unpack
from tests.sql.survey import companion, evaluator, exact, program
from tests.sql.test_cases import read

STATEMENTS = [
    each.values[1]
    for folder in ("cases", "analysts")
    for each in read(folder)
    if "refused" not in each.values[0]
]
MORE = [  # what those lack
    "SELECT n, n * 2 AS m, COUNT(*) AS c, SUM(n) AS s FROM (SELECT region, COUNT(*) AS n FROM"
    " survey GROUP BY region) t GROUP BY n",
    "SELECT n / 100 AS h, MAX(n) AS m FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY"
    " region) t GROUP BY GROUPING SETS ((n / 100), ())",
    "SELECT DISTINCT n * 2.5 AS m FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY 1) t",
    "SELECT COUNT(*) * 1.0 / 7 AS m FROM survey UNION SELECT SUM(wage) / COUNT(*) FROM survey",
    "SELECT COUNT(*) AS m FROM survey UNION ALL SELECT 5 ORDER BY m",
    "SELECT region, COALESCE(SUM(wage) / NULLIF(COUNT(*), 0), 0) AS m FROM survey GROUP BY region",
    "SELECT a.region, a.n - b.n AS d, GREATEST(a.n, 50) AS g FROM (SELECT region, COUNT(*) AS n"
    " FROM survey GROUP BY region) a JOIN (SELECT region, COUNT(*) AS n FROM survey WHERE married"
    " GROUP BY region) b ON a.region = b.region",
    "SELECT p.place, n * 1000.0 / p.people AS rate FROM places p LEFT JOIN (SELECT region,"
    " COUNT(*) AS n FROM survey GROUP BY region) t ON t.region = p.place",
    "SELECT SUM(CASE WHEN zone = 'cold' THEN n END) * 1.0 / SUM(n) AS share FROM (SELECT zone,"
    " region, COUNT(*) AS n FROM survey GROUP BY zone, region) t",
    "SELECT region, COUNT(*) FILTER (WHERE married) * 100 / COUNT(*) AS p, 3 - 2 * COUNT(*) / 7.0"
    " AS q, 1 - SUM(wage) / COUNT(*) AS r FROM survey GROUP BY region",
    "SELECT AVG(n) FILTER (WHERE region <> 'east') AS a, (SELECT SUM(wage) FROM survey) / SUM(n)"
    " AS b FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) t",
    "SELECT region, FIRST_VALUE(COUNT(*)) OVER (ORDER BY region) - COUNT(*) AS d,"
    " LAG(COUNT(*), 1, 0) OVER (ORDER BY region) AS l FROM survey GROUP BY region",
    "SELECT region, CASE WHEN COUNT(*) > 0 THEN SUM(wage) / COUNT(*) END AS m,"
    " POWER(COUNT(*), 2) AS s, ROUND(LN(COUNT(*))::numeric, 2) AS l FROM survey GROUP BY region",
    "SELECT SUM(w) AS w FROM (SELECT zone, SUM(n) AS w FROM (SELECT zone, region, COUNT(*) AS n"
    " FROM survey GROUP BY zone, region) t GROUP BY zone HAVING SUM(n) > 10) u",
    "SELECT COUNT(*) % 7 AS m, SUM(n) AS s FROM (SELECT COUNT(*) AS n FROM survey) t",
]  # fmt: skip


def combination(names, coefficients, values, places):
    """The value of a linear combination, None of what is not released as it stands."""
    total = 0.0
    for i, c in zip(names, coefficients, strict=True):
        release, number, row = unpack(i) if i >= 0 else (None, 0, 0)
        if release == DERIVED:
            return None
        value = 1.0 if release is None else values[places[release]][number][row]
        if value is None:
            return None
        total += c * float(value)
    return total


def stepped(value, steps):
    for name, *constants in steps:
        value = abs(value) if name == "abs" else FUNCTIONS[name](value, *constants)
    return value


def case(text):
    """A statement with computed numbers, its numbers without noise, and its parameters."""
    compiled = program(text)
    if not isinstance(compiled, Program) or compiled.wide is None:
        return None
    values = [[exact(number) for number in release.numbers] for release in compiled.releases]
    beside = [
        [[companion(n, what) for what in n.companions] for n in release.numbers]
        for release in compiled.releases
    ]
    return compiled, values, parameters(compiled, values, beside)


@pytest.fixture(scope="module")
def cases():
    """All statements that have computed numbers."""
    found = {text: case(text) for text in (*STATEMENTS, *MORE)}
    found = {text: each for text, each in found.items() if each}
    assert len(found) > 100
    assert set(MORE) <= set(found)
    return found


@pytest.mark.slow
def test_each_row_has_a_key_of_its_own_in_every_form(cases):
    """
    Also where one row is as another.
    """
    for text, (compiled, _, given) in cases.items():
        keys = [row[compiled.wide.key] for row in evaluator().rows(compiled.sql, given)]
        assert len(set(keys)) == len(keys), text
        if compiled.wide.linear:
            found = [row[0] for row in evaluator().rows(compiled.wide.linear, given)]
            assert sorted(found) == sorted(keys), text


@pytest.mark.slow
def test_the_form_of_a_number_at_the_numbers_is_the_number(cases):
    """
    Linear combinations, ratios and the steps on them, row by row.
    """
    seen = {"linear": 0, "ratio": 0}
    for text, (compiled, values, given) in cases.items():
        places = {release.index: k for k, release in enumerate(compiled.releases)}
        if not compiled.wide.linear:
            continue
        terms = {key: parts for key, *parts in evaluator().rows(compiled.wide.linear, given)}
        for row in evaluator().rows(compiled.sql, given):
            found = terms[row[compiled.wide.key]]
            for column, trace in enumerate(compiled.traces):
                if trace is None or trace.kind not in seen:
                    continue
                parts = [(found[part], found[part + 1]) for part in trace.parts]
                if (None, None) in parts:
                    constant = any(step[0] == "or" for step in trace.steps)
                    assert row[column] is None or constant, text
                    continue
                parts = [combination(*part, values, places) for part in parts]
                if None in parts or 0 in parts[1:]:
                    continue
                steps = [step for step in trace.steps if step[0] != "or"]
                value = stepped(parts[0] / parts[1] if len(parts) == 2 else parts[0], steps)
                assert math.isclose(value, float(row[column]), rel_tol=1e-9, abs_tol=1e-9), text
                seen[trace.kind] += 1
    assert min(seen.values()) > 100


def test_over_the_numbers_themselves_a_draw_is_what_is_shown(cases):
    """
    In every row and of every draw.
    """
    seen = 0
    for text, (compiled, values, given) in cases.items():
        if not compiled.wide.drawn:
            continue
        rows = evaluator().rows(compiled.sql, given)
        numbers = [[[list(each)] * 3 for each in release] for release in values]
        found = {
            (s, key): cells for s, key, *cells in draw(compiled, evaluator(), given, numbers, 3)
        }
        assert len(found) == 3 * len(rows), text
        for row in rows:
            for s in range(3):
                cells = found[s, row[compiled.wide.key]]
                for column, trace in enumerate(compiled.traces):
                    if trace and trace.kind == "drawn":
                        value = cells[trace.parts[0]]
                        if value is None or row[column] is None:
                            assert value is None, text
                            assert row[column] is None, text
                            continue
                        value = stepped(value, trace.steps)
                        assert math.isclose(value, float(row[column]), rel_tol=1e-9), text
                        seen += 1
    assert seen > 200


def test_what_is_drawn_moves_the_value_and_not_the_rows():
    """
    Other numbers in each draw: the rows, their filter and their order are those of what is shown.
    """
    text = (
        "SELECT region, n, RANK() OVER (ORDER BY n DESC) AS place, n * n AS s, (SELECT MAX(n) FROM"
        " (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) u WHERE n < 155) AS m"
        " FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) t WHERE n > 143"
        " ORDER BY n LIMIT 3"
    )
    compiled, values, given = case(text)
    rows = evaluator().rows(compiled.sql, given)
    assert [row[1] for row in rows] == sorted(n for n in values[0][0] if n > 143)
    moved = [[[[-n for n in each], [n + 100 for n in each]] for each in r] for r in values]
    found = {(s, key): cells for s, key, *cells in draw(compiled, evaluator(), given, moved, 2)}
    assert len(found) == 2 * len(rows)
    most = max(n for n in values[0][0] if n < 155)
    least = min(n for n in values[0][0] if n < 155)
    for place, row in enumerate(rows):
        key = row[compiled.wide.key]
        assert found[0, key] == [place + 1, row[1] ** 2, -least]  # the order is turned round
        assert found[1, key] == [len(rows) - place, (row[1] + 100) ** 2, most + 100]


def test_of_plain_numbers_nothing_more_is_worked_out():
    """
    Renamed, filtered, ordered, grouped, in a union; of means, medians and their ends.
    """
    for text in (
        "SELECT region, COUNT(*), SUM(wage), AVG(wage), MEDIAN(age) FROM survey GROUP BY region",
        "SELECT t.n FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) t WHERE n > 3",
        "SELECT COUNT(*) * 2 + 1 AS x, CREDIBLE_HIGH(COUNT(*)) AS h FROM survey",
        "SELECT COUNT(*) FROM survey UNION ALL SELECT SUM(wage) FROM survey",
        "SELECT n, COUNT(*) AS c FROM (SELECT COUNT(*) AS n FROM survey) t GROUP BY n",
        "SELECT region FROM (SELECT region, COUNT(*) AS n FROM survey GROUP BY region) t",
    ):
        compiled = program(text)
        assert (compiled.wide, compiled.traces) == (None, ()), text


def test_what_cannot_be_worked_out_beside_the_rows_does_not_fail_them():
    """
    The rows are those of the plain form.
    """
    compiled, values, _ = case("SELECT COUNT(*) / 7 AS n FROM survey")
    whole = postprocess(compiled, values, evaluator())
    assert whole.linear

    class Failing:
        def rows(self, sql, given):
            if sql == compiled.wide.linear:
                raise DataError("value out of range: overflow")
            return evaluator().rows(sql, given)

    rows = postprocess(compiled, values, Failing())
    assert (rows.rows, rows.linear) == (whole.rows, {})


def test_a_text_has_two_faces_and_what_stands_beside_it():
    """
    Nested as subqueries are.
    """
    inner = f"(SELECT {twofold('c0', 'd0')} FROM (SELECT 1 AS c0{beside(', 2 AS d0')}) AS t)"
    outer = f"SELECT {shown(inner)} AS c0{beside(f', {drawn(inner)} AS d0')}"
    assert narrow(outer) == "SELECT (SELECT c0 FROM (SELECT 1 AS c0) AS t) AS c0"
    assert wide(outer) == (
        "SELECT (SELECT c0 FROM (SELECT 1 AS c0, 2 AS d0) AS t) AS c0, "
        "(SELECT d0 FROM (SELECT 1 AS c0, 2 AS d0) AS t) AS d0"
    )
    assert narrow("SELECT 'a'") == wide("SELECT 'a'") == "SELECT 'a'"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT '{0}(' || n::text FROM (SELECT COUNT(*) / 2 AS n FROM survey) t",
        'SELECT COUNT(*) / 2 AS "{0}[" FROM survey',
        "SELECT COUNT(*) / 2 FROM survey WHERE region = E'a{0}'",
        "SELECT COUNT(*) / 2 FROM survey WHERE region = E'a\\x00'",
        "SELECT COUNT(*) / 2 FROM survey WHERE region LIKE '{0})%'",
        "SELECT to_char(COUNT(*), '\"{0}(\"999') FROM survey",
    ],
)
def test_no_text_of_a_client_has_a_mark(text):
    """
    NUL is in no text of PostgreSQL's: it is refused before it could be taken for a mark of ours.
    """
    with pytest.raises(Exception, match=r"0x00|token|pars|E'|escape") as caught:
        case(text.format("\0"))
    assert "Traceback" not in str(caught.value)
