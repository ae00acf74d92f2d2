"""COPY of the engine's answers: as PostgreSQL writes them, and at the price of the SELECT."""

import psycopg
import pytest

QUERY = (
    "SELECT region, COUNT(*) AS n, SUM(wage) AS w, CASE WHEN region = 'west' THEN NULL "
    "ELSE 'a;\"b\\c\nd é' END AS t, true AS b, 5 AS i, -1.50 AS x, NULL::integer AS z, "
    "DATE '2020-02-29' AS d, TIMESTAMP '2020-02-29 01:02:03.5' AS s, 2.5::float8 AS f "
    "FROM cps1988 GROUP BY region ORDER BY region WITH UTILITY (500, 0.05), w (900000, 0.05)"
)
OPTIONS = (
    "",
    "WITH (FORMAT text)",
    "(DELIMITER ';', NULL 'none')",
    "(HEADER)",
    "WITH CSV",
    "CSV HEADER",
    "WITH CSV HEADER DELIMITER AS ';' NULL AS 'n' QUOTE AS '%' ESCAPE AS '!' FORCE QUOTE region, t",
    "(FORMAT csv, HEADER true, DELIMITER E'\\t', NULL ')', QUOTE '''', ESCAPE '\\', FORCE_QUOTE *)",
    "(FORMAT csv, FORCE_QUOTE (region, n), ENCODING 'UTF8')",
    "(FORMAT csv, ENCODING 'LATIN1')",
    "(FORMAT binary)",
    "WITH BINARY",
    "WITH NULL AS '' DELIMITER AS '|'",
    '(FORMAT "binary") ; ',
    "(FORMAT csv) -- the end",
)


def simple(connection, text):
    with connection.cursor().copy(text) as copy:
        return b"".join(bytes(data) for data in copy)


def extended(connection, text):
    """Return what a COPY gives in the extended protocol, and check how it ends."""
    wire = connection.pgconn
    done = wire.exec_params(text.encode(), [])
    if done.status != psycopg.pq.ExecStatus.COPY_OUT:
        raise psycopg.errors.lookup(done.error_field(psycopg.pq.DiagnosticField.SQLSTATE).decode())
    found = []
    while True:
        size, data = wire.get_copy_data(0)
        if size < 0:
            break
        found.append(bytes(data))
    assert wire.get_result().command_status.startswith(b"COPY ")
    assert wire.get_result() is None
    return b"".join(found)


PROTOCOLS = pytest.mark.parametrize("ask", [simple, extended])


@pytest.fixture
def said(connection):
    found = []
    connection.add_notice_handler(lambda notice: found.append(notice.message_primary))
    return found


@PROTOCOLS
@pytest.mark.parametrize("options", OPTIONS)
def test_rows_are_written_as_postgresql_writes_them(connection, ask, options):
    """
    Every format, and every option in both grammars: byte for byte what PostgreSQL makes of the rows
    of the SELECT.
    """
    cursor = connection.execute(QUERY)
    types = [connection.adapters.types[column.type_code].name for column in cursor.description]
    names = ", ".join(column.name for column in cursor.description)
    rows = [
        ", ".join(
            f"{psycopg.sql.quote(value)}::{kind}" for value, kind in zip(row, types, strict=True)
        )
        for row in cursor
    ]
    values = f"SELECT * FROM (VALUES {', '.join(f'({row})' for row in rows)}) AS t ({names})"
    expected = ask(connection, f"COPY ({values}) TO STDOUT {options}")
    assert ask(connection, f"COPY ({QUERY}) TO STDOUT {options}") == expected


@PROTOCOLS
def test_it_costs_and_says_what_the_select_does(connection, said, ask):
    """
    The notice of a COPY is that of the SELECT, and what it told is known from then on.
    """
    what = f"education = {[simple, extended].index(ask)} AND experience >= 20"  # asked by no other
    text = f"SELECT COUNT(*) FROM cps1988 WHERE {what}"
    ask(connection, f"COPY ({text} WITH UTILITY (700, 0.05)) TO STDOUT")
    assert said.pop().startswith("privacy: 1 number measured; cost 0.0")
    (shown,) = connection.execute(f"{text} WITH UTILITY (700, 0.05)").fetchone()
    assert said.pop().startswith("privacy: 1 number free; cost nothing")
    assert ask(connection, f"/*+ UTILITY(700, 0.05) */ COPY ({text}) TO STDOUT") == b"%d\n" % shown


@PROTOCOLS
def test_columns_of_intervals_are_copied(connection, ask):
    """
    ``privacy.columns`` adds its columns to a COPY.
    """
    connection.execute("SET privacy.columns = on")
    text = "COPY (SELECT COUNT(*) AS n FROM cps1988 WITH UTILITY (500, 0.05)) TO STDOUT CSV HEADER"
    assert ask(connection, text).startswith(b"n,n_low,n_high,n_source\n")


@PROTOCOLS
@pytest.mark.parametrize(
    "options, sqlstate",
    [
        ("(FORMAT nonsense)", "22023"),
        ("(DELIMITER 'ab')", "0A000"),
        ("CSV FORCE QUOTE nothing", "42703"),
        ("(FORMAT csv, FORMAT csv)", "42601"),
        ("(FORMAT binary, HEADER)", "0A000"),
        (") TO STDOUT", "42601"),
        ("; SELECT 1", "42601"),
    ],
)
def test_an_option_that_is_wrong_costs_nothing(connection, said, ask, options, sqlstate):
    """
    PostgreSQL refuses the options before the engine measures; the session goes on.
    """
    asked = f"SELECT COUNT(*) FROM cps1988 WHERE education = 7 AND region = '{ask.__name__}'"
    asked = f"COPY ({asked} WITH UTILITY (70, 0.05)) TO STDOUT {options}"
    if options.startswith(";"):
        asked = asked.replace(options, "(FORMAT nonsense; SELECT 1")
    with pytest.raises(psycopg.Error) as caught:
        ask(connection, asked)
    assert caught.value.sqlstate == sqlstate
    assert not said
    assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_an_error_of_an_option_points_at_its_place(connection):
    """
    Positions are those of the client's text, behind the query too.
    """
    text = "SELECT 1; COPY (SELECT COUNT(*) FROM cps1988) TO STDOUT (FORMAT nonsense)"
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(text)
    assert int(caught.value.diag.statement_position) == text.index("FORMAT nonsense") + 1
    text = "COPY (SELECT foo FROM cps1988) TO STDOUT"
    with pytest.raises(psycopg.errors.UndefinedColumn) as caught:
        connection.execute(text)
    assert int(caught.value.diag.statement_position) == text.index("foo") + 1


@PROTOCOLS
@pytest.mark.parametrize(
    "query",
    [
        "SELECT COUNT(*) FROM cps1988 LIMIT 0",
        "SELECT region, COUNT(*) FROM cps1988 WHERE false GROUP BY region",
        "SELECT * FROM cps1988 WHERE 1 = 0",
        "SELECT wage FROM cps1988 LIMIT 0",
    ],
)
def test_a_probe_gives_no_rows(connection, said, ask, query):
    """
    What asks for columns only is free, and copies nothing.
    """
    assert ask(connection, f"COPY ({query}) TO STDOUT") == b""
    assert not said


@PROTOCOLS
@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM cps1988",
        "SELECT COUNT(*) FROM cps1988 WHERE wage IS NOT NULL",
        "SELECT EXISTS (SELECT 1 FROM cps1988)",
        'SELECT "region" FROM "public"."cps1988" WHERE ctid BETWEEN \'(0,0)\'::tid AND '
        "'(4294967295,0)'::tid",
        "SELECT COUNT(*) FROM cps1988 WITH UTILITY (0.001, 0.05)",
        "SELECT * FROM (SELECT * FROM cps1988) AS q",
    ],
)
def test_what_the_engine_refuses_stays_refused(connection, said, ask, query):
    """
    A COPY gives nothing where the SELECT gives nothing, for the engine's reason.
    """
    with pytest.raises(psycopg.Error) as caught:
        ask(connection, f"COPY ({query}) TO STDOUT")
    assert caught.value.sqlstate in ("0A000", "42703", "53400")
    assert not said


def test_several_statements_in_one_message(connection):
    """
    A COPY among other statements, in a transaction of its own or the client's.
    """
    count = "COPY (SELECT COUNT(*) FROM cps1988 WITH UTILITY (500, 0.05)) TO STDOUT"
    for text in (f"SELECT 1; {count}; SELECT 2", f"BEGIN; {count}; COMMIT"):
        wire = connection.pgconn
        wire.send_query(text.encode())
        tags = []
        while (done := wire.get_result()) is not None:
            if done.status == psycopg.pq.ExecStatus.COPY_OUT:
                while wire.get_copy_data(0)[0] >= 0:
                    pass
            elif done.status != psycopg.pq.ExecStatus.FATAL_ERROR:
                tags.append(done.command_status)
        assert b"COPY 1" in tags
        assert len(tags) == 3


def test_duckdb_s_statements(connection):
    """
    What DuckDB's extension sends for ``postgres_query``, in its transaction: it describes the
    query, wraps it with the columns that it needs and its own filter, and reads binary rows.
    """
    wire = connection.pgconn
    query = "/*+ UTILITY(500, 0.05) */ SELECT region, COUNT(*) AS n FROM cps1988 GROUP BY region"
    connection.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
    assert wire.prepare(b"", query.encode()).status == psycopg.pq.ExecStatus.COMMAND_OK
    told = wire.describe_prepared(b"")
    assert [told.ftype(i) for i in range(told.nfields)] == [25, 20]
    for columns, end in (('"region", "n"', ""), ('"n"', ' WHERE "n" > 0'), ("NULL", " LIMIT 2")):
        copy = f"COPY (SELECT {columns} FROM ({query}) AS __unnamed_subquery {end})"
        copied = simple(connection, f'{copy} TO STDOUT (FORMAT "binary");')
        assert copied.startswith(b"PGCOPY\n\xff\r\n\0")
        assert copied.endswith(b"\xff\xff")
        assert len(copied) > 30
    connection.execute("COMMIT")
