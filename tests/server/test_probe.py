"""Which queries are probes: proven to give no row, as PostgreSQL agrees on a table with rows."""

import itertools

import psycopg
import pytest

from proxy.server.statements.probe import gives_no_row

PROBES = (
    "SELECT * FROM t LIMIT 0",
    "SELECT * FROM t LIMIT (0)",
    "SELECT * FROM t LIMIT 0::bigint",
    "SELECT * FROM t FETCH FIRST 0 ROWS ONLY",
    "(SELECT * FROM t) LIMIT 0",
    "TABLE t LIMIT 0;",
    "WITH x AS (SELECT 1) SELECT * FROM x LIMIT 0 OFFSET 3",
    "SELECT stddev(a) FROM t LIMIT 0",
    "SELECT * FROM t WHERE (1=0) WITH UTILITY (5, 0.05)",
    "SELECT TRUE FROM t WHERE 1 <> 1 LIMIT 0",
    "SELECT a FROM t WHERE a = 1 AND (b AND (1 = 0))",
    "SELECT a FROM t WHERE NOT (1 = 1) ORDER BY a",
    "SELECT * FROM t WHERE false OR 2 < 1.5",
    "SELECT DISTINCT ON (a) a FROM t WHERE 1 <> 1",
    "SELECT a, b FROM t WHERE 1 = 0 GROUP BY a, b",
    "SELECT CASE WHEN b THEN upper('x') END, a::text || 'x' FROM t WHERE 1=2",
    "SELECT * FROM (SELECT count(*) FROM t) AS q WHERE (0 = 1)",
    "SELECT * FROM (SELECT * FROM t WHERE 1=0) AS q",
    "SELECT a FROM t WHERE false UNION ALL SELECT a FROM t WHERE false",
)
NONE = (  # though some of them give no row
    "SELECT a FROM t",
    "SELECT a FROM t LIMIT 1",
    "SELECT a FROM t LIMIT ALL",
    "SELECT a FROM t LIMIT $1",
    "SELECT a FROM t WHERE a IS NOT NULL AND 1 = 1",
    "SELECT a FROM t WHERE a IS NULL AND b",
    "SELECT a INTO z FROM t LIMIT 0",
    "SELECT * FROM t LIMIT 0 FOR UPDATE",
    "WITH x AS (INSERT INTO t VALUES (1) RETURNING a) SELECT * FROM x LIMIT 0",
    "WITH x AS (DELETE FROM t RETURNING a) SELECT * FROM x WHERE 1=0",
    "DROP TABLE t",
    "SELECT a FROM t WHERE 1=0; SELECT a FROM t",
    "SELECT xmlagg(a) FROM t WHERE NOT true",
    "SELECT mode() WITHIN GROUP (ORDER BY a) FROM t WHERE false",
    "SELECT a FROM t WHERE",
    "",
)
LISTS = ("*", "a", "1", "count(*)", "a, max(c)", "coalesce(a, 0)", "every(b)", "abs(sum(a)) + 1")
WHERES = (
    *(
        "",
        "WHERE 1=0",
        "WHERE b",
        "WHERE 1=0 OR b",
        "WHERE NOT (b AND 1=1)",
        "WHERE 1=0 IS NOT NULL",
    ),
    *("WHERE b AND 2 <= 1", "WHERE EXISTS (SELECT 1 WHERE false)", "WHERE NOT (1=0 AND b)"),
)
TAILS = ("", "GROUP BY a", "GROUP BY ()", "GROUP BY ROLLUP (a)", "HAVING true", "ORDER BY count(*)")
WRAPS = (
    *("{0}", "{0} LIMIT 0", "SELECT * FROM ({0}) AS q", "SELECT count(*) FROM ({0}) AS q"),
    *("{0} UNION ALL SELECT 1", "SELECT * FROM ({0}) AS q RIGHT JOIN t ON true"),
    *("WITH q AS ({0}) SELECT * FROM q WHERE 0 > 1", "SELECT EXISTS ({0})", "SELECT ARRAY({0})"),
)


@pytest.mark.parametrize("text", PROBES)
def test_a_probe(text):
    """
    What tools send to learn columns is recognised.
    """
    assert gives_no_row(text)


@pytest.mark.parametrize("text", NONE)
def test_no_probe(text):
    """
    What may give a row, does more than read, or cannot be read, is none.
    """
    assert not gives_no_row(text)


@pytest.mark.slow
def test_a_probe_gives_no_row_in_postgresql(postgres):
    """
    Of all combinations of lists, conditions, groupings and what is put around them, those that are
    taken for probes give no row on a table that has some.
    """
    with postgres.connect() as connection:
        connection.execute("CREATE TEMP TABLE t (a integer, b boolean, c float8)")
        connection.execute("INSERT INTO t VALUES (1, true, 1), (2, false, NULL), (3, NULL, 3)")
        taken = 0
        for shown, where, tail, wrap in itertools.product(LISTS, WHERES, TAILS, WRAPS):
            text = wrap.format(f"SELECT {shown} FROM t {where} {tail}")
            try:
                rows = connection.execute(text).fetchall()
            except psycopg.Error:  # it makes no sense
                continue
            if gives_no_row(text):
                taken += 1
                assert rows == [], text
        assert taken > 300


@pytest.mark.slow
def test_a_long_or_deep_one_is_read():
    """
    Neither brackets in one another nor a chain of thousands of queries breaks the reading.
    """
    assert gives_no_row("SELECT 1 FROM t WHERE " + "(" * 400 + "1=0" + ")" * 400)
    assert gives_no_row(" UNION ALL ".join(["SELECT a FROM t WHERE 1=0"] * 2000))
    assert not gives_no_row("SELECT 1 FROM t WHERE " + "(" * 900 + "1=0" + ")" * 900)
