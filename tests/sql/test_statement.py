"""Texts that are no queries, probes, the clock, other languages, and the limits on a text."""

import contextlib
import datetime
import logging
import time
from decimal import Decimal

import pytest
from msgspec.structs import replace
from sqlglot import exp

from proxy.errors import (
    DataError,
    NotSupportedError,
    QueryCanceledError,
    SQLSyntaxError,
    StatementTooComplexError,
    UndefinedFunctionError,
)
from proxy.sql import Command, Evaluator, Program, compile_statement, postprocess, split
from proxy.sql.bind.query import Binder
from proxy.sql.evaluator.sandbox import Here
from proxy.sql.parse import grammar
from proxy.sql.parse.tree import called
from tests.searches import share
from tests.sql.survey import evaluator, policy, program, run


@pytest.mark.parametrize(
    "text, kind, name, value",
    [
        ("", "empty", "", None),
        (" ; ", "empty", "", None),
        ("-- nothing", "empty", "", None),
        ("SET privacy.utility = '50, 0.05'", "set", "privacy.utility", "50, 0.05"),
        ("set privacy.spend to off;", "set", "privacy.spend", "off"),
        ("SET SESSION privacy.spend = on", "set", "privacy.spend", "on"),
        ("SET x = 'it''s'", "set", "x", "it's"),
        ("SET x TO DEFAULT", "set", "x", None),
        ("SET TIME ZONE 'UTC'", "set", "timezone", "UTC"),
        ("RESET privacy.utility", "reset", "privacy.utility", None),
        ("RESET ALL", "reset", "all", None),
        ("SHOW BUDGET", "show", "budget", None),
        ("SHOW privacy.utility", "show", "privacy.utility", None),
        ("SHOW TIME ZONE", "show", "timezone", None),
        ("BEGIN", "begin", "BEGIN", None),
        ("START TRANSACTION READ ONLY", "begin", "START TRANSACTION READ ONLY", None),
        ("COMMIT", "commit", "COMMIT", None),
        ("END", "commit", "END", None),
        ("ROLLBACK TO SAVEPOINT a", "rollback", "ROLLBACK TO SAVEPOINT a", None),
        ("DEALLOCATE ALL", "deallocate", "DEALLOCATE ALL", None),
    ],
)
def test_commands(text, kind, name, value):
    """
    What a client sends beside queries is known by its first word.
    """
    found = program(text)
    assert isinstance(found, Command)
    assert (found.kind, found.name, found.value) == (kind, name, value)


def test_set_local():
    """
    SET LOCAL is told from SET.
    """
    assert program("SET LOCAL privacy.spend = off").local
    assert not program("SET privacy.spend = off").local


def test_explain_utility_holds_the_program():
    """
    EXPLAIN UTILITY has the program that it explains; EXPLAIN alone has none.
    """
    found = program("EXPLAIN UTILITY SELECT COUNT(*) FROM survey WITH UTILITY (50, 0.05)")
    assert (found.kind, found.name) == ("explain", "utility")
    assert found.program.releases[0].numbers[0].utility.half_width == 50
    assert program("EXPLAIN SELECT 1").program is None


def test_an_explain_of_explains_is_refused_by_what_it_is():
    """
    However many there are, and however deep the recursion that they would need.
    """
    for count in (2, 2000):
        with pytest.raises(NotSupportedError, match="takes a SELECT"):
            program("EXPLAIN UTILITY " * count + "SELECT COUNT(*) FROM survey")


@pytest.mark.parametrize(
    "text, columns",
    [
        ("SELECT * FROM survey WHERE 1 = 0", 13),
        ("SELECT * FROM survey WHERE 1 <> 1 AND age > 3", 13),
        ("SELECT * FROM survey LIMIT 0", 13),
        ("SELECT region, age + 1 AS x, wage FROM survey LIMIT 0", 3),
        ("SELECT region, COUNT(*) FROM survey GROUP BY region LIMIT 0", 2),
        ("SELECT * FROM (SELECT region, COUNT(*) FROM survey GROUP BY region) t LIMIT 0", 2),
        ("SELECT * FROM (SELECT * FROM survey) t WHERE FALSE", 13),
        ("(SELECT COUNT(*) FROM survey) LIMIT 0", 1),
        ("SELECT COUNT(*) FROM survey UNION ALL SELECT 1 LIMIT 0", 1),
    ],
)
def test_a_probe_releases_nothing(text, columns):
    """
    What tools send to learn the columns has columns, no release and no rows.
    """
    found = program(text)
    assert (found.probe, found.releases, len(found.columns)) == (True, (), columns)
    assert run(text).rows == ()


def test_types_are_announced():
    """
    Columns have PostgreSQL's types, and values are of them.
    """
    result = run(
        "SELECT age, region, married, score, joined, seen, COUNT(*), SUM(age), AVG(age) "
        "FROM survey WHERE age = 1 AND joined = '2020-01-01' AND score = 2.5 AND married "
        "GROUP BY age, region, married, score, joined, seen LIMIT 1"
    )
    assert [column.type for column in result.columns] == [
        "integer", "text", "boolean", "numeric", "date", "timestamp",
        "bigint", "bigint", "numeric",
    ]  # fmt: skip
    kinds = [type(cell).__name__ for cell in result.rows[0]]
    assert kinds[:8] == ["int", "str", "bool", "Decimal", "date", "datetime", "int", "int"]


def test_the_origin_of_a_cell_survives_what_moves_it():
    """
    ORDER BY, LIMIT, subqueries, renames, joins and UNION keep a number's origin; arithmetic on
    results loses it.
    """
    result = run(
        "SELECT b, a, a + 1 AS c FROM (SELECT region AS b, COUNT(*) AS a FROM survey "
        "GROUP BY region) t ORDER BY b DESC LIMIT 2"
    )
    assert [row[0] for row in result.rows] == ["west", "south"]
    assert result.origins == [(None, (0, 0, 3), None), (None, (0, 0, 1), None)]
    result = run(
        "WITH t AS (SELECT zone, COUNT(*) AS n FROM survey GROUP BY zone) SELECT x.n, y.n AS m "
        "FROM t x JOIN t y ON x.zone < y.zone UNION ALL SELECT SUM(age), 0 FROM survey"
    )
    assert sorted(result.origins, key=str) == [((0, 0, 0), (0, 0, 1)), ((1, 0, 0), None)]
    result = run("SELECT zone, married, COUNT(*) FROM survey GROUP BY CUBE (zone, married)")
    assert [origin[2] for origin in result.origins[-4:]] == [
        (2, 0, 0), (2, 0, 1), (2, 0, 2), (3, 0, 0),
    ]  # fmt: skip


def test_each_number_has_an_origin_of_its_own():
    """
    Numbers of one release, of grouping sets, and of both sides of a UNION are told apart; a row
    that both sides of a UNION have keeps the first one's.
    """
    result = run("SELECT COUNT(*), SUM(age), COUNT(age) + 1 FROM survey")
    assert result.origins == [((0, 0, 0), (0, 1, 0), (0, 2, 0))]
    result = run("SELECT COUNT(*), SUM(age) FROM survey GROUP BY ROLLUP (zone)")
    assert result.origins[-1] == ((1, 0, 0), (1, 1, 0))
    result = run("SELECT COUNT(*) FROM survey UNION SELECT COUNT(age) FROM survey")
    assert (result.rows, result.origins) == ([(600,)], [((0, 0, 0),)])


def test_rows_without_an_order_come_in_the_order_of_the_domain():
    """
    Groups come as they are declared, also where ORDER BY leaves them equal.
    """
    rows = run("SELECT region, COUNT(*) FROM survey GROUP BY region").rows
    assert [row[0] for row in rows] == ["north", "south", "east", "west"]
    rows = run("SELECT zone, region, COUNT(*) FROM survey GROUP BY zone, region ORDER BY zone").rows
    assert [row[1] for row in rows] == ["north", "east", "south", "west"]


def test_values_are_those_that_are_probably_there():
    """
    MAX and COUNT(DISTINCT) look at values of which the number is present, whatever their noisy
    count; variances at all, and percentiles at sums of all.
    """
    found = program(
        "SELECT MAX(children) AS a, COUNT(DISTINCT children) AS b, MEDIAN(children) AS c, "
        "VAR_POP(children) AS d FROM survey"
    )
    first, second, third = found.releases
    assert (first.numbers, second.numbers[0].companions[0].what) == ((), "present")
    assert (second.numbers[0].quantile, third.numbers[0].quantile.part) == (None, "0.5")
    counts = [0, 0, 5, 4, 0, 0, 0, 3, 9]  # of -2 ... 5, and of NULL
    present = [False, False, True, True, False, False, False, False, True]
    told = [[], [[present]], [[present]]]
    ((*values, variance),) = postprocess(found, [[], [counts], [counts]], evaluator(), told).rows
    mean = (4 + 15) / 12
    assert values == [1, 2, 1.0]
    assert float(variance) == pytest.approx((4 + 75) / 12 - mean**2)


def test_noise_never_makes_an_expression_fail():
    """
    Where a number happens to be 0 or negative, a quotient, root or logarithm of it is NULL.
    """
    result = run(
        "SELECT COUNT(*) / COUNT(*) AS a, SUM(wage) / COUNT(*) AS b, 7 % COUNT(*) AS c, "
        "SQRT(COUNT(*) - 5) AS d, LN(COUNT(*)) AS e, 1 / (COUNT(*) + 1) AS f "
        "FROM survey WHERE age > 100"
    )
    assert result.rows == [(None, None, None, None, None, 1)]


def test_hidden_groups_are_those_without_a_count():
    """
    privacy.hide_empty leaves out groups whose counts are all 0 or less.
    """
    text = "SELECT age, children, COUNT(*) FROM survey GROUP BY age, children"
    shown = run(text, settings={"privacy.hide_empty": "on"}).rows
    assert run(text, settings={"privacy.hide_empty": "TRUE"}).rows == shown
    assert shown == [row for row in run(text).rows if row[2] > 0]
    assert 0 < len(shown) < 360


GROUPS = "SELECT age, COUNT(*) AS n FROM survey GROUP BY age"


@pytest.mark.parametrize(
    "text, told",
    [
        (
            "SELECT COUNT(*) FROM (SELECT DISTINCT age, married FROM survey) AS u",
            "of age, married,",
        ),
        ("SELECT DISTINCT age FROM survey", "value of age,"),
        ("SELECT age FROM survey GROUP BY age", "COUNT(DISTINCT age)"),
        ("SELECT age % 2 FROM survey GROUP BY 1", "every declared group,"),
        ("SELECT COUNT(*) FROM (SELECT age FROM survey GROUP BY age) AS u", "value of age,"),
        ("SELECT EXISTS (SELECT DISTINCT age FROM survey WHERE married)", "value of age,"),
        ("SELECT 1 IN (SELECT DISTINCT age FROM survey)", "value of age,"),
        ("SELECT age FROM (SELECT DISTINCT age FROM survey) AS u LIMIT 2", "value of age,"),
        ("SELECT row_number() OVER (ORDER BY age) FROM survey GROUP BY age", "value of age,"),
        ("SELECT MIN(age) FROM (SELECT DISTINCT age FROM survey) AS u", "value of age,"),
        ("SELECT COUNT(*) FROM (SELECT DISTINCT age FROM survey UNION SELECT 1) AS u", "of age,"),
        (f"SELECT COUNT(*) FROM ({GROUPS}) AS u", "value of age,"),
        (f"SELECT AVG(n) FROM ({GROUPS}) AS u WHERE age > 1", "value of age,"),
        (f"SELECT COUNT(*) FROM ({GROUPS} UNION ALL {GROUPS}) AS u", "value of age,"),
        (f"SELECT EXISTS ({GROUPS})", "value of age,"),
        (f"WITH u AS ({GROUPS}), v AS (SELECT * FROM u) SELECT MAX(n) FROM v", "value of age,"),
        ("SELECT age, COUNT(*), COUNT(*) OVER () FROM survey GROUP BY age", "value of age,"),
        (GROUPS, ""),
        (f"SELECT SUM(n), SUM(n) FILTER (WHERE age > 1) FROM ({GROUPS}) AS u", ""),
        ("SELECT age, SUM(COUNT(*)) OVER () FROM survey GROUP BY age", ""),
        (f"SELECT COUNT(*) FROM ({GROUPS} HAVING COUNT(*) > 5) AS u", ""),
        (f"SELECT COUNT(*) FROM ({GROUPS}) AS u WHERE n > 5", ""),
        ("SELECT age FROM survey GROUP BY age ORDER BY COUNT(*) DESC LIMIT 3", ""),
        ("SELECT COUNT(DISTINCT age) FROM survey", ""),
        ("SELECT COUNT(*) FROM (SELECT COUNT(*) FROM survey) AS u", ""),
    ],
)
def test_rows_that_are_there_whatever_the_records_are_told(text, told):
    """
    Groups of the domain that are counted, listed or looked up, and not shown with their numbers,
    have a notice: PostgreSQL would count those of records alone.
    """
    notices = program(text).notices
    assert len(notices) == bool(told)
    if told:
        assert told in notices[0]
        assert "whether a record has it or not" in notices[0]


def test_a_cut_may_be_widened_to_the_edges():
    """
    With cut: snap a condition holds of a whole bin if it holds of some value in it, and the
    notice says so; the negated condition is widened too.
    """
    domain = policy().domain
    attributes = tuple(
        replace(a, cut="snap") if a.name == "income" else a for a in domain.attributes
    )
    snapping = replace(policy(), domain=replace(domain, attributes=attributes))
    other = Evaluator(snapping.domain)
    found = compile_statement("SELECT COUNT(*) FROM survey WHERE income >= 7", snapping, other)
    plain = program("SELECT COUNT(*) FROM survey WHERE income >= 5")
    assert found.releases[0].numbers[0].family.query == plain.releases[0].numbers[0].family.query
    assert "cuts the bin [5, 20) of income at 7" in found.notices[0]
    found = compile_statement("SELECT COUNT(*) FROM survey WHERE NOT income >= 7", snapping, other)
    plain = program("SELECT COUNT(*) FROM survey WHERE income < 20")
    assert found.releases[0].numbers[0].family.query == plain.releases[0].numbers[0].family.query


# --- the clock -----------------------------------------------------------------------------------

NOON = datetime.datetime(2020, 2, 15, 12, 30)


@pytest.mark.parametrize(
    "condition, plain",
    [
        ("joined >= CURRENT_DATE", "joined >= '2020-02-15'"),
        ("joined >= CURRENT_DATE - 30", "joined >= '2020-01-16'"),
        ("joined >= current_date - INTERVAL '1 month'", "joined >= '2020-01-15'"),
        ("joined > now()", "joined > '2020-02-15'"),
        ("joined >= date_trunc('month', now())", "joined >= '2020-02-01'"),
        ("joined < LOCALTIMESTAMP", "joined <= '2020-02-15'"),
        ("EXTRACT(month FROM joined) = EXTRACT(month FROM CURRENT_TIMESTAMP)",
         "EXTRACT(month FROM joined) = 2"),
    ],
)  # fmt: skip
def test_the_clock_is_read_once_in_the_policys_zone(condition, plain):
    """
    now() and its kin are literals before anything is compiled.
    """
    text = f"SELECT COUNT(*) FROM survey WHERE {condition}"
    found = compile_statement(text, policy(), evaluator(), now=NOON)
    known = program(f"SELECT COUNT(*) FROM survey WHERE {plain}")
    assert found.releases[0].numbers[0].family.query == known.releases[0].numbers[0].family.query


def test_a_day_later_is_another_statement():
    """
    A statement that reads the day is kept for the day, not for longer.
    """
    text = "SELECT CURRENT_DATE, now()"
    for day in (15, 16):
        moment = NOON.replace(day=day)
        found = compile_statement(text, policy(), evaluator(), now=moment)
        assert [c.name for c in found.columns] == ["current_date", "now"]
        assert postprocess(found, [], evaluator()).rows == [(moment.date(), moment)]


# --- other languages -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "language, text, plain",
    [
        ("duckdb", "SELECT age / 2 AS h, count(*) FROM survey GROUP BY ALL", None),
        ("mysql", "SELECT `region`, COUNT(*) AS n FROM survey WHERE age DIV 10 = 2 GROUP BY "
         "`region` LIMIT 1, 2", "SELECT region, COUNT(*) AS n FROM survey WHERE age / 10 = 2 "
         "GROUP BY region LIMIT 2 OFFSET 1"),
        ("bigquery", "SELECT COUNTIF(age > 3) AS n FROM `survey`",
         "SELECT COUNT(*) AS n FROM survey WHERE age > 3"),
        ("snowflake", "SELECT COUNT_IF(age > 3) AS n, IFF(COUNT(*) > 5, 1, 0) AS b FROM survey",
         "SELECT COUNT(*) FILTER (WHERE age > 3) AS n, CASE WHEN COUNT(*) > 5 THEN 1 ELSE 0 END "
         "AS b FROM survey"),
        ("tsql", "SELECT TOP 2 [region], COUNT(*) AS n FROM survey GROUP BY [region] ORDER BY n",
         "SELECT region, COUNT(*) AS n FROM survey GROUP BY region ORDER BY n LIMIT 2"),
        ("duckdb", "SELECT strftime(joined, '%d %b %y') AS d, COUNT(*) AS n FROM survey GROUP BY 1",
         "SELECT to_char(joined, 'DD Mon YY') AS d, COUNT(*) AS n FROM survey GROUP BY 1"),
        ("mysql", "SELECT DATE_FORMAT(joined, '%Y week') AS w FROM survey GROUP BY 1", None),
        ("duckdb", "SELECT strftime(joined, '%U'), COUNT(*) FROM survey GROUP BY 1", None),
    ],
)  # fmt: skip
def test_other_languages_are_translated_first(language, text, plain):
    """
    A statement of another language means what its translation to PostgreSQL means, and keeps its
    utility.
    """
    clause = " WITH UTILITY (5, 0.1)"
    if plain is None:
        with pytest.raises(NotSupportedError):
            compile_statement(text + clause, policy(), evaluator(), language=language)
        return
    found = compile_statement(text + clause, policy(), evaluator(), language=language)
    known = program(plain)
    for one, two in zip(found.releases, known.releases, strict=True):
        assert one.rows == two.rows
        for mine, other in zip(one.numbers, two.numbers, strict=True):
            assert mine.family.query == other.family.query
            assert mine.utility.half_width == 5


def test_hints_survive_translation():
    """
    A hint in another language's statement is found too.
    """
    text = "SELECT /*+ UTILITY(5 PERCENT, 0.1) */ COUNT(*) FROM `survey`"
    found = compile_statement(text, policy(), evaluator(), language="mysql")
    request = found.releases[0].numbers[0].utility
    assert (request.half_width, request.relative, request.source) == (5, True, "hint")


def test_an_unknown_language():
    """
    The languages that there are are named.
    """
    with pytest.raises(NotSupportedError, match="klingon"):
        compile_statement("SELECT 1", policy(), evaluator(), language="klingon")


# --- limits --------------------------------------------------------------------------------------


def test_statements_are_split_where_they_end():
    """
    Semicolons in strings, comments and names end nothing.
    """
    text = "SELECT ';' ; SELECT \";\" -- ;\n; /* ; */ SELECT $$;$$;"
    assert [piece.strip() for piece in split(text)] == [
        "SELECT ';'",
        'SELECT ";" -- ;',
        "/* ; */ SELECT $$;$$",
    ]
    assert split("") == [""]


def test_a_long_text_is_refused_before_it_is_read():
    """
    10 MB of SQL are refused at once; 1 MB, mostly a comment, is not.
    """
    with pytest.raises(StatementTooComplexError, match="longer than"):
        program("SELECT 1 -- " + "x" * 10_000_000)
    assert run("SELECT 1 AS a -- " + "x" * 900_000).rows == [(1,)]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT {}1{} AS a".format("(" * 500, ")" * 500),
        "SELECT COUNT(*) FROM survey WHERE {}age > 1{}".format("(" * 490, ")" * 490),
        "SELECT {}1{} AS a".format("CASE WHEN TRUE THEN " * 120, " END" * 120),
        "SELECT {}1{} AS a".format("abs(" * 200, ")" * 200),
        "SELECT {} TRUE AS a".format("NOT " * 490),
        "SELECT COUNT(*) FROM {}survey{} t".format("(SELECT * FROM " * 60, " t)" * 60 + " "),
        "SELECT {}1 AS a".format("- " * 400),
    ],
)
def test_hundreds_of_levels_are_understood(text):
    """
    Brackets, CASEs, functions, signs and subqueries nest up to 500 levels.
    """
    if "FROM (SELECT" in text:
        text = text.removesuffix(" t")
    assert isinstance(program(text), Program)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT {}1{}".format("(" * 10_000, ")" * 10_000),
        "SELECT {}1".format("(" * 10_000),
        "SELECT {}1".format("- " * 10_000),
        "SELECT {} TRUE".format("NOT " * 10_000),
        "SELECT {}1".format("CASE WHEN TRUE THEN " * 10_000),
        "SELECT {}1{}".format("[" * 10_000, "]" * 10_000),
        "SELECT {}1".format("abs(" * 10_000),
        "{}SELECT 1".format("(" * 10_000),
    ],
)
def test_thousands_of_levels_are_refused(text):
    """
    10,000 levels are refused from the tokens, before any recursion.
    """
    begun = time.perf_counter()
    with pytest.raises((StatementTooComplexError, SQLSyntaxError)):
        program(text)
    assert time.perf_counter() - begun < 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    share(
        2,
        [
            "SELECT COUNT(*) FROM survey WHERE "
            + " OR ".join(f"age = {i % 50}" for i in range(2000)),
            "SELECT COUNT(*) FROM survey WHERE " + " AND ".join(f"age <> {i}" for i in range(2000)),
            "SELECT COUNT(*) FROM survey WHERE age IN ({})".format(
                ", ".join(map(str, range(5000)))
            ),
            "SELECT {} AS a".format(" + ".join(["1"] * 500)),
            "SELECT {} AS a".format(" || ".join(["'x'"] * 500)),
            " UNION ALL ".join(["SELECT 1 AS a"] * 100),
        ],
    ),
)
def test_long_chains_are_understood(text):
    """
    What tools generate, thousands of conditions or values in a row, is no nesting.
    """
    assert isinstance(program(text), Program)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "SELECT {}".format(" + ".join(["1"] * 100_000)),
        "SELECT {}".format(" || ".join(["''"] * 100_000)),
        " UNION ALL ".join(["SELECT 1"] * 30_000),
        "SELECT 1 {}".format(", 1" * 200_000),
    ],
)
def test_chains_of_a_hundred_thousand_end_in_an_answer_or_a_refusal(text):
    """
    However long the chain, there is no crash.
    """
    with contextlib.suppress(StatementTooComplexError):
        assert isinstance(program(text), Program)


def test_nothing_is_logged(caplog):
    """
    The parser's own warnings never reach the log of whoever embeds the proxy.
    """
    with caplog.at_level(logging.DEBUG):
        for text in ("SHOW x", "SET x = 1", "EXPLAIN SELECT 1", "SELECT 1"):
            program(text)
    assert not caplog.records


@pytest.mark.parametrize(
    "text",
    share(3, [
        "SELECT {}1{} AS a".format("1 / (" * 60, ")" * 60),
        "SELECT {}'a'{} AS a".format("replace(" * 30, ", 'a', 'aaaaaaaaaa')" * 30),
        "WITH t0 AS (SELECT 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' AS x){} SELECT x FROM t40".format(
            "".join(f", t{i + 1} AS (SELECT x || x AS x FROM t{i})" for i in range(40))
        ),
        "WITH t0 AS (SELECT age AS x FROM survey){} SELECT SUM(x) FROM t40".format(
            "".join(f", t{i + 1} AS (SELECT x + x AS x FROM t{i})" for i in range(40))
        ),
        "SELECT {} FROM survey".format(
            ", ".join(f"COUNT(DISTINCT age + {i})" for i in range(300))
        ),
        "SELECT 1e400 AS a, 1e999999999 AS b",
        "WITH t AS (SELECT joined, COUNT(*) AS n FROM survey GROUP BY joined) "
        "SELECT a.n FROM t a, t b, t c, t d, t e",
        "SELECT COUNT(*) FROM survey GROUP BY CUBE (age, region, zone, married, children, score, "
        "joined)",
    ]),
)  # fmt: skip
def test_what_grows_without_end_is_stopped(text):
    """
    Divisions within divisions, texts that double, subqueries that double, joins without a
    condition: each ends in a refusal, soon.
    """
    begun = time.perf_counter()
    with pytest.raises((StatementTooComplexError, NotSupportedError, SQLSyntaxError)):
        run(text)
    assert time.perf_counter() - begun < 20


def test_a_text_that_doubles_is_refused_before_it_is_made():
    """
    32 bytes doubled forty times would be 35 TB: the bound on its length is known beforehand.
    """
    steps = "".join(f", t{i + 1} AS (SELECT x || x AS x FROM t{i})" for i in range(40))
    text = f"WITH t0 AS (SELECT '{'a' * 32}' AS x){steps} SELECT x FROM t40"
    with pytest.raises(StatementTooComplexError, match="a text of this statement becomes too long"):
        program(text)


def test_nesting_is_counted_on_the_tokens():
    """
    501 levels are refused before anything is parsed, wherever they are; 500 are not.
    """
    grammar.tokens("(" * 500)
    for opened in ("(", "[", "CASE ", "NOT ", "- "):
        with pytest.raises(StatementTooComplexError, match="501 levels"):
            grammar.tokens(opened * 501)
    assert len(grammar.tokens("()" * 1000)) == 2000


def test_a_query_that_takes_too_long_is_given_up():
    """
    The evaluator interrupts what runs past its limit.
    """
    impatient = Evaluator(policy().domain, Here(seconds=0.2))
    text = (
        "WITH t AS (SELECT joined, COUNT(*) AS n FROM survey GROUP BY joined) "
        "SELECT SUM(a.n + b.n + c.n + d.n + e.n + f.n) AS s FROM t a, t b, t c, t d, t e, t f"
    )
    found = compile_statement(text, policy(), impatient)
    begun = time.perf_counter()
    with pytest.raises(QueryCanceledError, match="took too long"):
        postprocess(found, [[list(range(67))]], impatient)
    assert time.perf_counter() - begun < 5
    assert run("SELECT 1 AS a").rows == [(1,)]


@pytest.mark.parametrize(
    "expression, kind, value",
    [
        ("COUNT(*)::numeric", "numeric", Decimal(600)),
        ("(COUNT(*)::numeric)", "numeric", Decimal(600)),
        ("CAST(COUNT(*) AS numeric(10, 2))", "numeric", Decimal("600.00")),
        ("COUNT(*)::int", "integer", 600),
        ("COUNT(*)::smallint", "smallint", 600),
        ("COUNT(*)::bigint", "bigint", 600),
        ("COUNT(*)::float8", "double precision", 600.0),
        ("SUM(age)::numeric", "numeric", Decimal(11617)),
        ("(SUM(age) / 2.0)::numeric", "numeric", Decimal("5808.5")),
        ("SUM(age)::bigint", "bigint", 11617),
        ("AVG(score)::numeric", "numeric", None),
        ("COUNT(*)::text", "text", "600"),
    ],
)
def test_a_cast_announces_its_type(expression, kind, value):
    """
    The outermost cast says of what type a column is, and its values are of that type.
    """
    found = run(f"SELECT {expression} AS n FROM survey")
    assert [column.type for column in found.columns] == [kind]
    assert value is None or (found.rows, type(found.rows[0][0])) == ([(value,)], type(value))


def test_a_number_that_is_cast_keeps_its_interval():
    """
    A cast to another number leaves the cell the number that it is.
    """
    for kind in ("numeric", "int", "bigint", "float8"):
        assert run(f"SELECT COUNT(*)::{kind} FROM survey").origins == [((0, 0, 0),)]
    one = run(
        "SELECT CREDIBLE_LOW(COUNT(*)::numeric), PROBABILITY(COUNT(*)::int >= 600), "
        "CREDIBLE_LOW(COUNT(*)::int + 5) FROM survey"
    )
    assert one.rows == [(600.0, 1.0, 605.0)]


@pytest.mark.parametrize(
    "expression, kind",
    [
        ("(COUNT(*) * 1000)::smallint", "smallint"),
        ("(COUNT(*) * 1000000000000)::int", "integer"),
        ("(SUM(wage) * 1e30::float8)::int", "integer"),
        ("SUM(age)::smallint * 1000000000", "integer"),
        ("COUNT(*) * 9223372036854775807", "bigint"),
    ],
)
def test_a_number_past_its_type_is_an_error(expression, kind):
    """
    As in PostgreSQL, and in its words.
    """
    with pytest.raises(DataError) as caught:
        run(f"SELECT {expression} FROM survey")
    assert (caught.value.sqlstate, caught.value.message) == ("22003", f"{kind} out of range")


@pytest.mark.slow
def test_results_upon_results_are_bound_no_more_often_than_they_stand_there(monkeypatch):
    """
    Of results that choose rows, one within another, and of WITH queries, each of which may read
    those before: neither doubles the work.
    """
    bound = []
    real = Binder.query

    def query(self, node, scope):
        bound.append(node)
        return real(self, node, scope)

    monkeypatch.setattr(Binder, "query", query)
    inner = "(SELECT AVG(age) FROM survey)"
    for _ in range(11):
        inner = f"(SELECT AVG(age) FROM survey WHERE age > {inner})"
    compile_statement(
        f"SELECT COUNT(*) FROM survey WHERE age > {inner}", policy(), evaluator(), released={}
    )
    assert len(bound) < 12**2
    withs = ["a0 AS (SELECT region, COUNT(*) AS n FROM survey GROUP BY region)"]
    withs += [f"a{i} AS (SELECT region, n FROM a{i - 1})" for i in range(1, 40)]
    text = f"WITH {', '.join(withs)} SELECT COUNT(*) FROM survey WHERE region IN ({{}})"
    bound.clear()
    text = text.format("SELECT region FROM a39 LIMIT 1")
    (first,) = compile_statement(text, policy(), evaluator(), released={}).first
    assert len(bound) < 10
    assert len(first[1].releases) == 1


@pytest.mark.parametrize(
    "expression, words",
    [
        ("age & 1 = 1", "operator & is"), ("age | 1 = 1", "operator | is"),
        ("age # 1 = 1", "operator # is"), ("~age = 1", "operator ~ is"),
        ("age << 1 = 1", "operator << is"), ("age >> 1 = 1", "operator >> is"),
        ("region -> 'a' = 'b'", "operator -> is"), ("region ->> 'a' = 'b'", "operator ->> is"),
        ("region @> 'a'", "operator @> is"), ("to_hex(age) = 'a'", "function to_hex is"),
        ("region COLLATE \"C\" = 'a'", "COLLATE is"), ("(ARRAY[1, 2])[1] = age", "a subscript, "),
        ("(joined, joined) OVERLAPS (joined, joined)", "operator OVERLAPS is"),
        ("seen > seen - INTERVAL '1.5 days'", "the interval '1.5 days' is"),
        ("regexp_replace('a', 'b', 'c', 1, 2, 'g') = 'a'", "regexp_replace is not supported in"),
        ("date_trunc('month', seen, 'UTC') = seen", "date_trunc is not supported in this form"),
        ("date_trunc('moon', seen) = seen", "a unit in quotes: day, "),
        ("EXTRACT(moon FROM joined) = 1", "there are century, "),
    ],
)  # fmt: skip
def test_what_is_refused_is_called_as_it_is_written(expression, words):
    """
    Of the dataset and of constants: by its operator, its function or its words, none of sqlglot's.
    """
    with pytest.raises((NotSupportedError, UndefinedFunctionError, DataError)) as caught:
        program(f"SELECT COUNT(*) FROM survey WHERE {expression}")
    assert words in str(caught.value)
    assert caught.value.hint


def test_the_words_of_errors_are_no_names_of_sqlglots_classes():
    """
    Whatever an expression of every kind of node is called when it is refused.
    """
    kinds = {k for k in vars(exp).values() if isinstance(k, type) and issubclass(k, exp.Expression)}
    operators = {k for k in kinds if issubclass(k, exp.Binary | exp.Unary) and k.arg_types}
    for kind in operators - {exp.Binary, exp.Unary, exp.Connector, exp.Condition}:
        if issubclass(kind, exp.Func):
            continue  # by the name that is written
        said = called(kind(this=exp.Var(this="a"), expression=exp.Var(this="b")))
        assert said != kind.key, kind
        assert "_" not in said, kind


@pytest.mark.parametrize("one", ["=", "<", ">=", "<>"])
@pytest.mark.parametrize("two", ["=", ">", "<=", "!="])
def test_a_comparison_of_a_comparison_takes_brackets(one, two):
    """
    As in PostgreSQL, where without them it is a syntax error.
    """
    with pytest.raises(SQLSyntaxError):
        program(f"SELECT COUNT(*) FROM survey WHERE age {one} 3 {two} married")
    program(f"SELECT COUNT(*) FROM survey WHERE (age {one} 3) {two} married")
