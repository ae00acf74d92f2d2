"""The allow-list as people read it: an example of every function, operator and cast that is known.

``page`` makes FUNCTIONS.md of it, written anew by ``python -m tests.sql.test_allowed``.
Invariant (tested): each example of the first table is what PostgreSQL says it is, and no rule of
the translation is without an example.
"""

from __future__ import annotations

import re
from collections.abc import Callable

PAGE = "proxy/sql/FUNCTIONS.md"

SCALARS: dict[str, tuple[str, ...]] = {  # expressions of attributes, results and constants
    "Comparisons": (
        "1 = 1", "1 <> 2", "1 != 2", "1 < 2", "1 <= 2", "2 > 1", "2 >= 1",
        "2 BETWEEN 1 AND 3", "2 BETWEEN SYMMETRIC 3 AND 1", "2 IN (1, 2)", "2 NOT IN (1, 3)",
        "2 = ANY (ARRAY[1, 2])", "2 = ANY ('{1,2}')", "3 <> ALL (ARRAY[1, 2])", "3 > ALL ('{1,2}')",
        "(1, 'a') = (1, 'a')", "(1, 'a') IN ((1, 'a'), (2, 'b'))", "NULL IS NULL",
        "1 IS NOT NULL", "TRUE IS NOT FALSE", "NULL::boolean IS UNKNOWN", "1 IS DISTINCT FROM NULL",
        "1 IS NOT DISTINCT FROM 1", "TRUE AND FALSE", "TRUE OR FALSE", "NOT TRUE",
    ),
    "Conditions": (
        "CASE WHEN 1 > 2 THEN 'a' ELSE 'b' END", "CASE 2 WHEN 1 THEN 'a' WHEN 2 THEN 'b' END",
        "COALESCE(NULL, 2)", "NULLIF(1, 1)", "GREATEST(1, 3, 2)", "LEAST(1, 3, 2)",
    ),
    "Numbers": (
        "1 + 2", "3 - 1", "2 * 3", "7 / 2", "7.0 / 2", "7 % 2", "-(1)", "mod(7, 2)", "div(7, 2)",
        "abs(-1)", "sign(-2.5)", "ceil(1.2)", "ceiling(1.2)", "floor(1.8)", "round(2.5)",
        "round(2.345, 2)", "trunc(2.9)", "trunc(2.349, 2)", "sqrt(9)", "cbrt(27)", "power(2, 10)",
        "exp(0)", "ln(1)", "log(100)", "log(2, 8)", "width_bucket(5.35, 0, 10, 5)",
        "width_bucket(15, ARRAY[10, 20, 50])", "array_position(ARRAY['low', 'high'], 'high')",
        "to_char(-1234.5, '999,999.99')", "to_char(1234, 'FM999,990.00')",
    ),
    "Texts": (
        "'a' || 'b'", "lower('North')", "upper('North')", "length('north')",
        "char_length('north')", "octet_length('é')", "left('north', 2)", "right('north', 2)",
        "substring('north', 2, 3)", "substring('north' FROM 2 FOR 3)", "position('r' IN 'north')",
        "strpos('north', 'r')", "replace('north', 'n', 'f')", "split_part('a-b', '-', 2)",
        "concat('a', 1, NULL)", "concat_ws('-', 'a', 'b')", "lpad('7', 2, '0')", "rpad('7', 2)",
        "trim(' a ')", "ltrim('xa', 'x')", "rtrim('ax', 'x')", "btrim('xax', 'x')",
        "TRIM(LEADING 'x' FROM 'xa')", "reverse('abc')", "starts_with('north', 'no')",
        "initcap('the north')", "translate('north', 'no', 'N')", "repeat('ab', 2)",
    ),
    "Patterns": (
        "'north' LIKE 'n%'", "'north' NOT LIKE '_o%'", "'50%' LIKE '50!%' ESCAPE '!'",
        "'North' ILIKE 'n%'", "'north' LIKE ANY (ARRAY['n%', 's%'])",
        "'north' SIMILAR TO '(n|s)%'", "'north' ~ '^n.*h$'", "'North' ~* '^n'", "'north' !~ '^s'",
        "'North' !~* '^s'", "regexp_replace('n0r7h', '[0-9]+', '-', 'g')",
        "substring('north 12' FROM '[0-9]+')",
    ),
    "Dates and times": (
        "DATE '2020-01-31' + 1", "DATE '2020-02-01' - DATE '2020-01-01'",
        "DATE '2020-01-31' + INTERVAL '1 month'", "TIMESTAMP '2020-01-31 12:00' - INTERVAL '1 day'",
        "date_trunc('month', DATE '2020-02-29')", "EXTRACT(year FROM DATE '2020-02-29')",
        "date_part('week', DATE '2020-02-29')", "to_char(DATE '2020-02-29', 'YYYY-MM')",
        "to_char(TIMESTAMP '2020-02-29 15:04', 'FMDay DDth Mon YYYY, HH12:MI am')",
        "to_char(DATE '2020-02-29', '\"Q\"Q IYYY-IW')",
        "to_date('2020-02-29', 'YYYY-MM-DD')",
        "to_timestamp('2020-02-29 12:30', 'YYYY-MM-DD HH24:MI')::timestamp",
        "to_timestamp(1582979400)::timestamp",
        "date_bin('15 minutes', TIMESTAMP '2020-02-29 15:44', TIMESTAMP '2001-01-01')",
        "make_date(2020, 2, 29)", "make_timestamp(2020, 2, 29, 12, 30, 0)",
        "age(DATE '2020-02-29', DATE '1999-12-31')::text",
        "EXTRACT(year FROM age(DATE '2020-02-29', DATE '1999-12-31'))",
        "TIMESTAMP '2020-02-29 12:00' - TIMESTAMP '2020-02-28'",
        "INTERVAL '15 min' * 3", "INTERVAL '1 day' + INTERVAL '1 hour'",
        "date(TIMESTAMP '2020-02-29 12:00')",
    ),
    "Casts": (
        "CAST('7' AS integer)", "'7'::bigint", "'7.5'::numeric", "7.456::numeric(6, 2)",
        "'7.5'::real", "'7.5'::double precision", "7::smallint", "7::text",
        "'north'::varchar(2)", "'yes'::boolean",
        "1::boolean", "TRUE::integer", "'2020-02-29'::date", "'2020-02-29'::timestamp",
        "TIMESTAMP '2020-02-29 12:00'::date",
    ),
    "Ways to write a text": (
        "'it''s'", "E'it\\'s'", "$$it's$$",
    ),
}  # fmt: skip
OTHERS: dict[str, tuple[tuple[str, str], ...]] = {
    "Aggregates of protected rows, with an interval": (
        ("COUNT(*)", "records"),
        ("COUNT(x)", "records in which x is not NULL"),
        ("COUNT(DISTINCT person)", "where `person` is the privacy unit and `max_rows` 1: COUNT(*); "
            "else no statement may name that column"),
        ("COUNT_IF(c)", "records for which a condition is true"),
        ("REGR_COUNT(y, x)", "records in which neither is NULL; one of them may be a measure"),
        ("SUM(x)", "of attributes, or of a measure times an expression of attributes; 0, not NULL, "
            "where there is nothing to add: of no records, under FILTER (WHERE false), of a LEFT "
            "JOIN without a partner, since groups without records are not told from others"),
        ("AVG(x)", "of an attribute or a measure"),
        ("a FILTER (WHERE c)", "the same of the records for which a condition is true"),
        ("CREDIBLE_LOW(a), CREDIBLE_HIGH(a)", "the ends of the interval of a number"),
        ("CONFIDENCE(a)", "the confidence of that interval"),
        ("PROBABILITY(a > 100)", "of a claim about a number"),
    ),
    "Aggregates of protected rows, derived from noisy counts": (
        ("COUNT(DISTINCT x), MIN(x), MAX(x)", "of the values that are present"),
        ("BOOL_AND(c), EVERY(c), BOOL_OR(c)", "of the conditions that are present"),
        (
            "MEDIAN(x), PERCENTILE_CONT(p), PERCENTILE_DISC(p) WITHIN GROUP (ORDER BY x)",
            "quantiles",
        ),
        ("MODE() WITHIN GROUP (ORDER BY x)", "the most frequent value"),
        ("VARIANCE(x), VAR_SAMP(x), VAR_POP(x)", "variances"),
        ("STDDEV(x), STDDEV_SAMP(x), STDDEV_POP(x)", "standard deviations"),
    ),
    "Over results": (
        ("COUNT, SUM, AVG, MIN, MAX, …", "all of the above but CREDIBLE_… and PROBABILITY"),
        ("n / m, LN(n), SQRT(n)", "NULL where PostgreSQL has an error, division by zero or a "
            "logarithm of nothing: a noisy number may be anything, and it was paid for"),
        ("ROW_NUMBER(), RANK(), DENSE_RANK(), PERCENT_RANK(), CUME_DIST(), NTILE(n)", "ranks"),
        ("LAG(x), LEAD(x), FIRST_VALUE(x), LAST_VALUE(x), NTH_VALUE(x, n)", "other rows"),
        ("a OVER (PARTITION BY … ORDER BY … ROWS …)", "windows; RANGE of an interval too"),
        ("STRING_AGG(x, ', ' ORDER BY y)", "texts, one after the other"),
        ("SELECT DISTINCT ON (x) … ORDER BY x, y", "the first row of each x"),
        ("GROUPING(x)", "which columns a row of ROLLUP, CUBE or GROUPING SETS is grouped by"),
    ),
    "Where the interval of a number comes from: its source": (
        ("measured, inferred", "a COUNT, SUM, AVG, or linear combination of protected rows"),
        ("derived", "exact: what is linear in counts and sums (differences, totals and running "
            "sums of groups, LAG), the ratio of two such (shares, rates, SUM / COUNT); of either, "
            "or of any one number, casts, ROUND, TRUNC, FLOOR, CEIL, ABS, SIGN, SQRT, CBRT, LN, "
            "LOG, EXP, COALESCE, NULLIF, GREATEST and LEAST with constants; medians, extremes "
            "and variances of protected rows"),
        ("approximate", "from draws of the noise: all else, as ranks, products, MAX and STDDEV "
            "over results, CASE by a number, a difference of AVGs"),
        ("unknown", "there is none; a NOTICE says why"),
        ("WHERE, HAVING, GROUP BY, ORDER BY, LIMIT", "choose among numbers as they are shown: an "
            "interval is that of the rows that are there"),
    ),
    "Where a result is not to the letter PostgreSQL's": (
        ("GROUP BY, SELECT DISTINCT", "a row for every declared group, whether a record is in it "
            "or not; a NOTICE says so where the rows are counted or their numbers not shown"),
        ("SUM(x)", "0 where PostgreSQL has NULL, because there is nothing to add"),
        ("x / y, AVG(x), x::text of a computed numeric", "15 to 17 significant digits, where "
            "PostgreSQL's numeric has up to 20 decimals or more"),
    ),
    "Tables that are written out": (
        ("VALUES (0, 10), (10, 20)", "in FROM, and joined: as bins, `ON x >= lo AND x < hi`"),
        ("generate_series(1, 12)", "whole numbers, with a step too"),
        ("generate_series(DATE '…', DATE '…', INTERVAL '1 month')", "times"),
        ("unnest(ARRAY['a', 'b'])", "the values of a list"),
    ),
    "The clock": (
        ("now(), CURRENT_TIMESTAMP, LOCALTIMESTAMP, transaction_timestamp()", "the time"),
        ("CURRENT_DATE, age(x)", "the day; both in the time zone of the policy"),
    ),
    "In a policy: what records are made of": (
        ("expression, source.query", "this language, without the clock"),
        ("TRY_CAST(x AS type)", "NULL where x is no such value; in expression and source.query"),
        ("SELECT … FROM one table WHERE …", "a source.query: row by row"),
        ("FROM a JOIN b USING (person)", "where `person` is the privacy unit: tables that have "
            "it are joined by its equality, with USING, ON or WHERE; subqueries and views too"),
        ("JOIN c ON …, LEFT JOIN c ON …", "of a table c in source.public: by any condition"),
    ),
    "How a policy reads a column, by the attribute's type": (
        ("text", "text as it is; of other columns what `::text` gives in PostgreSQL"),
        ("boolean", "boolean; 0 and 1; text in PostgreSQL's words (`t`, `yes`, `on`, `0`, …)"),
        ("integer, decimal", "numbers by value; text in digits with sign, point and exponent; a "
            "number that is not whole is outside an integer attribute; measures are decimals"),
        ("date, timestamp", "dates and times; text `YYYY-MM-DD[THH:MM[:SS[.…]][zone]]`, the zone "
            "`Z`, `±HH[:MM]` or `Area/City`; what has a zone is brought into the policy's"),
        ("NULL", "NULL, NaN, and blank text where the attribute is no text"),
        ("unreadable", "all else: counted by `check`; goes the way of `outside`, or, where that "
            "is `clamp`, of `nulls`"),
    ),
}  # fmt: skip


def names() -> list[str]:
    """Return the names of the scalar functions."""
    matches = [re.match(r"([A-Za-z_]+)\(", text) for group in SCALARS.values() for text in group]
    return sorted({match[1].lower() for match in matches if match})


def page(shown: Callable[[str], str]) -> str:
    """Return the page; ``shown`` gives the value of an expression as people read it."""
    lines = [
        "# What statements may be made of",
        "",
        "Made by `proxy/sql/expression/allowlist.py`. Each means what it means in PostgreSQL, and",
        "is tested against it; what is not here is refused by name.",
    ]
    for title, forms in OTHERS.items():
        lines += ["", f"## {title}", ""]
        lines += [f"- `{form}`: {meaning}" for form, meaning in forms]
    for title, examples in SCALARS.items():
        lines += ["", f"## {title}", ""]
        lines += [f"- ``{text}`` is `{shown(text)}`" for text in examples]
    return "\n".join(lines) + "\n"
