"""Routing: who answers a statement, cases by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.server.statements import parameters
from proxy.server.statements.parameters import Value
from proxy.server.statements.routing import (
    Deallocate,
    ExecutePrepared,
    Reject,
    ToEngine,
    ToMirror,
    plain,
    route,
)
from proxy.server.statements.split import MOST, split
from proxy.server.wire.messages import Bind
from proxy.server.workers.tasks import routed
from proxy.sql.parse import grammar

DATASETS = ("cps1988", "Odd name")
ASKED = (
    "SELECT COUNT(*) FROM cps1988",
    "select count(*) from CPS1988",
    "SELECT COUNT(*) FROM public.cps1988 AS t WITH UTILITY (50, 0.05)",
    'SELECT COUNT(*) FROM "cps1988"',
    'SELECT COUNT(*) FROM "Odd name"',
    "/* a */ -- b\n SELECT COUNT(*) FROM cps1988",
    "WITH t AS (SELECT region, COUNT(*) AS n FROM cps1988 GROUP BY 1) SELECT * FROM t",
    "(SELECT COUNT(*) FROM cps1988) UNION ALL (SELECT 1)",
    "TABLE cps1988",
    "SELECT 1 FROM pg_class, cps1988",
    "SELECT a FROM t WHERE a IN (SELECT education FROM cps1988)",
    "SELECT COUNT(*) FROM cps1988 WHERE (",
    "EXPLAIN UTILITY SELECT COUNT(*) FROM cps1988",
    "EXPLAIN SELECT COUNT(*) FROM cps1988",
    "EXPLAIN (FORMAT JSON, ANALYZE off) SELECT COUNT(*) FROM cps1988",
    "EXPLAIN (SELECT COUNT(*) FROM cps1988)",
    "-- a tool says\nEXPLAIN SELECT COUNT(*) FROM cps1988",
    "/* a tool says */ DECLARE c CURSOR FOR SELECT COUNT(*) FROM cps1988",
    "SELECT query_to_xml('SELECT 1', true, true, '')",
    'SELECT 1 FROM U&"\\0063ps1988"',
    "SHOW BUDGET",
    "show history;",
    "SHOW privacy.utility",
    "show Privacy . utility ;",
    "SELECT * FROM privacy.budget",
    "DECLARE c CURSOR FOR SELECT COUNT(*) FROM cps1988",
    "DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT COUNT(*) FROM cps1988",
    "COPY (SELECT COUNT(*) FROM cps1988) TO STDOUT",
    "COPY (WITH t AS (SELECT 1 FROM cps1988) TABLE t) TO STDOUT (FORMAT csv, NULL ')')",
    "COPY (SELECT * FROM privacy.budget) TO STDOUT CSV HEADER",
    "CREATE TEMP VIEW v AS SELECT COUNT(*) FROM cps1988",
    "CREATE OR REPLACE LOCAL TEMPORARY VIEW v AS SELECT 1",
    "PREPARE q (int) AS SELECT COUNT(*) FROM cps1988 WHERE education = $1",
)
LEFT = (
    "SELECT 1",
    "",
    ";",
    "BEGIN",
    "SHOW privacy.spend",
    "SELECT 'cps1988'",
    "COPY (SELECT relname FROM pg_class WHERE relname = 'cps1988') TO STDOUT",
    "COPY pg_class TO STDOUT",
    "DROP VIEW v",
    "SELECT 1 AS cps1988",
    "SELECT cps1988 FROM t",
    "SELECT * FROM other.cps1988",
    'SELECT * FROM "CPS1988"',
    "SELECT c.oid FROM pg_catalog.pg_class c WHERE c.relname OPERATOR(pg_catalog.~) '^(cps1988)$'",
    "FETCH ALL FROM c",
    "SELECT t.u & \"tgtype\" FROM pg_trigger t WHERE t.tgname <> 'privacy'",
    "SELECT COUNT(*) FROM cps1989 WITH UTILITY (50, 0.05)",
    "SET privacy.utility = '50, 0.05'",
    "SET LOCAL privacy.spend TO off",
    "SELECT * FROM pg_settings WHERE name = 'privacy.utility'",
)
REFUSED = (
    "COPY cps1988 TO STDOUT",
    "COPY (SELECT COUNT(*) FROM cps1988) TO '/x'",
    "COPY (SELECT COUNT(*) FROM cps1988) TO PROGRAM 'cat'",
    "COPY (SELECT COUNT(*) FROM cps1988 WHERE education = $1) TO STDOUT",
    "COPY (DELETE FROM cps1988 RETURNING 1) TO STDOUT",
    "COPY cps1988 FROM STDIN",
    "COPY cps1988 (region) FROM '/x' WITH (FORMAT csv)",
    "COPY privacy.budget TO STDOUT",
    'COPY "Odd name" (a, b) TO STDOUT WITH CSV HEADER',
    "CREATE RECURSIVE VIEW v (a) AS SELECT 1",
    "CREATE TEMP VIEW public.v AS SELECT 1",
    "INSERT INTO cps1988 VALUES (1)",
    "UPDATE cps1988 SET region = 'x'",
    "DELETE FROM cps1988",
    "CREATE VIEW v AS SELECT COUNT(*) FROM cps1988",
    "LOCK TABLE cps1988",
    "EXPLAIN ANALYZE SELECT COUNT(*) FROM cps1988",
    "EXPLAIN ANALYSE VERBOSE SELECT COUNT(*) FROM cps1988",
    "explain (costs, analyze true) SELECT COUNT(*) FROM cps1988",
    "EXPLAIN (ANALYZE off, ANALYZE) SELECT COUNT(*) FROM cps1988",
    "EXPLAIN UPDATE cps1988 SET region = 'x'",
    "SET privacy.utility = 'x'",
    "SET privacy.unknown = 1",
    "ALTER ROLE alice PASSWORD 'x'",
    r"SELECT COUNT(*) FROM cps1988 WHERE region = E'\xff'",
    r"EXECUTE q (E'\xff')",
)


@pytest.mark.parametrize("text", ASKED)
def test_asked(text):
    """
    What reads a protected table, or asks about budgets, is for the engine.
    """
    assert isinstance(route(text, DATASETS, "cps1988"), ToEngine)


@pytest.mark.parametrize("text", LEFT)
def test_left_to_the_mirror(text):
    """
    Catalogs, settings, transactions, and names that only look like it, are for the mirror.
    """
    assert isinstance(route(text, DATASETS, "cps1988"), ToMirror)


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text):
    """
    Other statements on a protected table, and settings that make no sense, are refused.
    """
    assert isinstance(route(text, DATASETS, "cps1988"), Reject)


def test_prepared_statements_are_followed():
    """
    EXECUTE has its arguments split at the commas that separate them.
    """
    assert route("-- a\nEXECUTE q (1)", DATASETS, "cps1988").arguments == ("1",)
    found = route("EXECUTE q (1, 'a,b', ARRAY[1, 2], f(1, 2))", DATASETS, "cps1988")
    assert found == ExecutePrepared("q", ("1", "'a,b'", "ARRAY[1, 2]", "f(1, 2)"), found.text)
    assert route('EXECUTE "Q"', DATASETS, "cps1988").name == "Q"
    assert route("DEALLOCATE q", DATASETS, "cps1988") == Deallocate("q", "DEALLOCATE q")
    assert route("DEALLOCATE ALL", DATASETS, "cps1988").name is None
    assert route("DISCARD ALL", DATASETS, "cps1988").name is None


def test_a_cursor_is_its_head_and_its_query():
    """
    Of DECLARE, the engine gets the query, and the mirror the head with the rows.
    """
    text = "DECLARE c CURSOR FOR SELECT COUNT(*) FROM cps1988 WITH UTILITY (1, 0.5)"
    found = route(text, DATASETS, "cps1988")
    assert found.head == "DECLARE c CURSOR FOR"
    assert text[found.offset :] == found.text
    assert "UTILITY" not in found.plain


@pytest.mark.parametrize(
    "text, bare",
    [
        ("SELECT 1 WITH UTILITY (50, 0.05)", "SELECT 1"),
        ("SELECT 1 WITH UTILITY (5 PERCENT, 0.05), n (1, 0.5) LIMIT 3", "SELECT 1 LIMIT 3"),
        ("WITH utility (a, b) AS (SELECT 1, 2) SELECT 1", None),
        ("WITH t AS (SELECT 1), utility AS (SELECT 2) SELECT 1", None),
        ("SELECT 'WITH UTILITY (1, 2)'", None),
    ],
)
def test_the_mirror_gets_the_text_without_the_clause(text, bare):
    """
    Only a utility clause is taken out, and what is behind it keeps its place.
    """
    found = plain(text, grammar.tokens(text))
    assert found.split() == (bare or text).split()
    assert len(found) == len(text)


def test_statements_are_split_at_their_semicolons():
    """
    Semicolons in literals and comments separate nothing; places are those of the message.
    """
    text = "SELECT 'a;b'; -- c;d\nSELECT 2;"
    pieces = split(text)
    assert [piece.strip() for piece, _ in pieces] == ["SELECT 'a;b'", "-- c;d\nSELECT 2"]
    assert all(text[at:].startswith(piece) for piece, at in pieces)


@given(st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8")), min_size=1))
def test_a_text_parameter_cannot_leave_its_literal(texts):
    """
    Whatever a text holds, it is one literal in the statement that the engine reads.
    """
    text = "SELECT " + ", ".join(f"${i + 1}" for i in range(len(texts)))
    bind = Bind(b"", b"", (), tuple(each.encode() for each in texts), b"")
    bound = parameters.fill(text, parameters.values(bind, [25] * len(texts), "utf-8"))
    tree = grammar.parse(bound.text, grammar.tokens(bound.text))
    assert [each.this for each in tree.expressions] == texts


@pytest.mark.parametrize(
    "text, value, filled",
    [
        ("a > $1", Value("1", "smallint"), "a > 1"),
        ("c OR $1 <= a AND b", Value("1", "bigint"), "c OR 1 <= a AND b"),
        ("a BETWEEN $1 AND 9 OR a IN (2, $1)", Value("1", "smallint"), None),
        ("a > $1::int", Value("1", "bigint"), "a > 1"),
        ("a = $1::int[]", Value("ARRAY[1]"), "a = ARRAY[1]"),
        ("'5' > $1", Value("1", "smallint"), "'5' > CAST(1 AS smallint)"),
        ("a > $1 + b", Value("1", "smallint"), "a > CAST(1 AS smallint) + b"),
        ("a > $1", Value("1", "integer"), "a > 1"),
        ("a > $1", Value("1.", "numeric"), "a > 1."),
        ("a > $1", Value("1.5", "double precision"), "a > CAST(1.5 AS double precision)"),
        ("a > $1", Value("NULL", "integer"), "a > NULL"),
        ("a + $1", Value("NULL", "integer"), "a + CAST(NULL AS integer)"),
        ("a LIMIT $1 OFFSET $1", Value("1", "smallint"), None),
        ("(ROWS $1 PRECEDING)", Value("1", "smallint"), None),
        ("a WITH UTILITY ($1, $1), b ($1, 1)", Value("0.5", "double precision"), None),
        ("SELECT $1, f(a, $1) FROM t", Value("1", "integer"),
         'SELECT 1 AS "?column?", f(a, 1) FROM t'),
        ("SELECT $1::bigint, a", Value("1", "integer"), "SELECT 1::bigint, a"),
        ("SELECT $1 AS x, a", Value("1", "smallint"), "SELECT CAST(1 AS smallint) AS x, a"),
        ("a GROUP BY b, $1 ORDER BY $1 DESC", Value("1", "integer"),
         "a GROUP BY b, CAST(1 AS integer) ORDER BY CAST(1 AS integer) DESC"),
        ("a > $1 AND $1", Value("'x'"), None),
    ],
)  # fmt: skip
def test_a_value_is_written_with_its_type_where_that_matters(text, value, filled):
    """
    By itself it stands where its type changes nothing; a plain number in ORDER BY is a column's.
    """
    expected = text.replace("$1", value.text) if filled is None else filled
    assert parameters.fill(text, [value]).text == expected


def test_positions_are_those_of_the_text_with_its_parameters():
    """
    A place behind a filled parameter is told as the client counts it.
    """
    text = "SELECT $1, oh, $2, ah"
    bound = parameters.fill(text, [Value("'a long literal'"), Value("1")])
    for word in ("oh", "ah"):
        assert bound.original(bound.text.index(word) + 1) == text.index(word) + 1
    assert bound.original(1) == 1


@pytest.mark.slow
def test_a_message_has_so_many_statements():
    """
    More of them, or more tokens than a statement may have, are refused by name, not handed on.
    """
    for text, words in ((";".join(["SELECT 1"] * (MOST + 1)), "1,001"), ("1;" * 31_000, "tokens")):
        ((_, _, decision),) = routed(text, DATASETS, "cps1988", (), (), True)
        assert isinstance(decision, Reject)
        assert words in decision.error.message
    assert len(routed(";".join(["SELECT 1"] * MOST), DATASETS, "cps1988", (), (), True)) == MOST
