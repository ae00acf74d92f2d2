"""Statements through the server, with psycopg: who answers, what it costs, what is said."""

import datetime
import json
import re
import threading
import time
from decimal import Decimal
from types import SimpleNamespace

import psycopg
import pytest
from psycopg import errors
from psycopg.types.numeric import Float4, Int2, Int4, Int8

from tests.server.serving import COUNT, NAMES, REGIONS


def notices(connection):
    """Collect what the server says beside the rows."""
    said = []
    connection.add_notice_handler(
        lambda notice: said.append(
            SimpleNamespace(
                severity=notice.severity,
                message_primary=notice.message_primary,
                message_detail=notice.message_detail,
            )
        )
    )
    return said


def refused(connection, text, parameters=None):
    """Return the error that a statement ends with."""
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(text, parameters).fetchall()
    return caught.value


def test_an_answer_is_charged_once_and_told(server):
    """
    The first time it is measured, the second time it is free, and each NOTICE says so.
    """
    text = "SELECT COUNT(*) AS n FROM cps1988 WHERE education = 11 WITH UTILITY (400, 0.05)"
    with server.connect() as connection:
        said = notices(connection)
        first = connection.execute(text).fetchall()
        assert connection.execute(text).fetchall() == first
    assert "1 number measured; cost " in said[0].message_primary
    assert "1 number free; cost nothing" in said[1].message_primary
    assert said[0].severity == "NOTICE"


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_types_are_as_announced(connection, binary):
    """
    COUNT is bigint, SUM double precision, groups as declared, in both formats.
    """
    cursor = connection.execute(
        "SELECT region, education, COUNT(*) AS n, SUM(wage) AS s, COUNT(*) > 5 AS b, "
        "1.5 AS d FROM cps1988 GROUP BY region, education "
        "ORDER BY region, education LIMIT 1 "
        "WITH UTILITY (500, 0.05), s (900000, 0.05)",
        binary=binary,
    )
    assert [c.type_display for c in cursor.description] == [
        "text", "int4", "int8", "float8", "bool", "numeric",
    ]  # fmt: skip
    row = cursor.fetchone()
    assert row[:2] == ("midwest", 0)
    assert [type(value).__name__ for value in row[2:]] == ["int", "float", "bool", "Decimal"]


@pytest.mark.parametrize(
    "condition, value",
    [
        ("education >= %s", 12),
        ("region = %s", "west"),
        ("region = %s", 'it\'s \\ "quoted" $1 é'),
        ("education = %s", None),
        ("education + 0.5 > %s", 3.25),
    ],
)
@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_parameters_mean_what_literals_mean(connection, condition, value, binary):
    """
    A statement with a parameter gives what the statement with the literal gives.
    """
    text = f"SELECT COUNT(*) FROM cps1988 WHERE {condition} WITH UTILITY (800, 0.05)"
    if binary:
        text = text.replace("%s", "%b")
    bound = connection.execute(text, [value]).fetchall()
    literal = psycopg.ClientCursor(connection).execute(text.replace("%b", "%s"), [value])
    assert bound == literal.fetchall()


HALF = datetime.datetime(2024, 3, 31, 12, 0)
TYPED = [  # an expression, a value, and PostgreSQL's type and value
    ("%s", Int2(5), "int2", 5),
    ("-%s", -3, "int2", 3),
    ("%s", Int4(5), "int4", 5),
    ("%s", Int8(5), "int8", 5),
    ("%s + 2147483647", Int8(1), "int8", 2**31),
    ("%s / 2", Int8(7), "int8", 3),
    ("%s", Decimal("5"), "numeric", Decimal("5")),
    ("%s / 2", Decimal("5"), "numeric", Decimal("2.5")),
    ("round(%s / 3, 2)", Decimal("1"), "numeric", Decimal("0.33")),
    ("%s", Decimal("1E+2"), "numeric", Decimal("100")),
    ("%s::text", Decimal("1.50"), "text", "1.50"),
    ("%s / 2", 5.0, "float8", 2.5),
    ("%s", 0.1, "float8", 0.1),
    ("%s / 10", 1e300, "float8", 1e299),
    ("%s / 2", Float4(5), "float8", 2.5),
    ("%s", Float4(0.5), "float4", 0.5),
    ("%s", True, "bool", True),
    ("%s", datetime.date(2024, 3, 31), "date", datetime.date(2024, 3, 31)),
    ("%s + 1", datetime.date(2024, 3, 31), "date", datetime.date(2024, 4, 1)),
    ("%s", HALF, "timestamp", HALF),
    ("%s - DATE '2024-03-31'", HALF, "interval", datetime.timedelta(hours=12)),
    ("%s", datetime.timedelta(days=3, hours=1), "interval", datetime.timedelta(days=3, hours=1)),
    ("%s", "5", "text", "5"),
    ("%s", None, "text", None),
    ("round(%s,%s)", [Decimal("2.345"), 2], "numeric", Decimal("2.35")),
    ("coalesce(%s,%s)", [None, "x"], "text", "x"),
    ("%s*%s", [Int4(2), Int4(3)], "int4", 6),
    ("replace('a.b',%s,%s)", [".", "$"], "text", "a$b"),
    ("'north' ~ %s", "^n", "bool", True),
    ("'north' SIMILAR TO %s", "%th", "bool", True),
    ("to_date(%s,%s)", ["2024-03-31", "YYYY-MM-DD"], "date", datetime.date(2024, 3, 31)),
    ("to_char(7.5,%s)", "FM990.00", "text", "7.50"),
    ("floor(0.3/%s)", Decimal("0.1"), "numeric", Decimal(3)),
]  # fmt: skip


@pytest.mark.parametrize("expression, value, kind, expected", TYPED)
@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
@pytest.mark.parametrize("alias", ["", " AS x"])
def test_a_parameter_keeps_its_type(connection, expression, value, kind, expected, binary, alias):
    """
    What a value is of is what the client says, and what is described is what comes.
    """
    placeholder = expression.replace("%s", "%b" if binary else "%t")
    cursor = connection.execute(
        f"SELECT {placeholder}{alias}, COUNT(*) FROM cps1988 WITH UTILITY (800, 0.05)",
        value if isinstance(value, list) else [value],
    )
    assert cursor.fetchone()[0] == expected
    assert cursor.description[0].type_display == kind
    if not alias and expression == "%s":
        assert cursor.description[0].name == "?column?"


@pytest.mark.parametrize("value", [Int2(7), 7, Decimal("7"), Decimal("7.0"), 7.0])
@pytest.mark.parametrize("text", ["COUNT(*) / {}", "SUM(education) / {}"])
def test_a_count_is_divided_as_the_type_says(connection, value, text):
    """
    By a whole number without remainder, by any other with.
    """
    text = f"SELECT {text} FROM cps1988 WITH UTILITY (800, 0.05)"
    whole = connection.execute(text.format("1")).fetchone()[0]
    found = connection.execute(text.format("%s"), [value]).fetchone()[0]
    if isinstance(value, int):
        assert found == whole // 7
    else:
        literal = "7.0" if isinstance(value, Decimal) else "CAST(7 AS double precision)"
        assert found == connection.execute(text.format(literal)).fetchone()[0]
        assert type(found) is type(value)


def test_a_number_that_is_none_is_refused(connection):
    """
    NaN and infinity are not supported, and it is said so.
    """
    for value in (float("nan"), float("inf"), Decimal("NaN")):
        error = refused(connection, "SELECT COUNT(*) FROM cps1988 WHERE education > %s", [value])
        assert "is not supported" in error.diag.message_primary


def test_a_text_is_compared_with_texts_alone(connection):
    """
    A parameter that is declared as text is no number, as in PostgreSQL.
    """
    text = "PREPARE texts (text) AS SELECT COUNT(*) FROM cps1988 WHERE education > $1"
    assert refused(connection, text).sqlstate == "42883"


CONVERTED = [  # a type, an argument of EXECUTE, and what it is: a value, or an error
    ("int", "1.6", 2),
    ("int", "-1.5", -2),
    ("int", "2.5::float8", 2),
    ("int", "' 7 '", 7),
    ("int", "NULL", None),
    ("int", "1 + 1", 2),
    ("int", "(3)", 3),
    ("int", "'1.6'", "22P02"),
    ("int", "3000000000", "22003"),
    ("int", "'1' || '2'", "42804"),
    ("int", "true", "42804"),
    ("smallint", "70000", "22003"),
    ("bigint", "7", 7),
    ("numeric", "7", Decimal("7")),
    ("numeric", "1E+2", Decimal("100")),
    ("numeric(5,1)", "0.25", Decimal("0.25")),  # PostgreSQL leaves the modifier unread
    ("decimal (10, 2)", "'7.125'", Decimal("7.125")),
    ("numeric", "'NaN'", "42000"),
    ("float8", "7", 7.0),
    ("float8", "'1e400'", "22003"),
    ("text", "7.50", "7.50"),
    ("text", "true", "true"),
    ("varchar(2)", "'abcd'", "abcd"),
    ("bool", "'yes'", True),
    ("bool", "1", "42804"),
    ("date", "'2024-03-31 12:00'", datetime.date(2024, 3, 31)),
    ("date", "timestamp '2024-03-31 12:00'", datetime.date(2024, 3, 31)),
    ("date", "'2024-03-31'::text", "42804"),
    ("timestamp(0)", "'2024-03-31 12:00'", HALF),
    ("timestamp", "date '2024-03-31'", datetime.datetime(2024, 3, 31)),
    ("interval", "'3 days'", datetime.timedelta(days=3)),
]


@pytest.mark.parametrize("kind, argument, expected", CONVERTED)
def test_execute_converts_its_arguments(connection, kind, argument, expected):
    """
    To the types that PREPARE declares, as where a value is assigned; or it is refused.
    """
    text = "SELECT $1 AS x, COUNT(*) FROM cps1988 WITH UTILITY (800, 0.05)"
    connection.execute(f"PREPARE converted ({kind}) AS {text}")
    if re.fullmatch(r"\d[\dP]{4}", str(expected)):
        assert refused(connection, f"EXECUTE converted ({argument})").sqlstate == expected
    else:
        found = connection.execute(f"EXECUTE converted ({argument})").fetchone()[0]
        assert found == expected
        assert type(found) is type(expected)
    connection.execute("DEALLOCATE converted")


def test_a_unit_may_be_a_parameter(connection):
    """
    A statement is described before the value is there, with a text that is a unit, too.
    """
    text = "SELECT date_trunc(%s, TIMESTAMP '2020-02-29 12:30'), COUNT(*) FROM cps1988"
    (row,) = connection.execute(text, ["day"]).fetchall()
    assert row[0] == datetime.datetime(2020, 2, 29)


@pytest.mark.parametrize(
    "column, values, listed",
    [("education", [1, 2, 3], "1, 2, 3"), ("region", ["west", "south"], "'west', 'south'")],
)
@pytest.mark.parametrize("cast", [False, True], ids=["plain", "cast"])
def test_a_list_as_a_parameter_is_a_list(connection, column, values, listed, cast):
    """
    ``= ANY($1)`` with an array is IN, whether or not the array is cast.
    """
    cast = "" if not cast else "::int[]" if column == "education" else "::text[]"
    text = "SELECT COUNT(*) FROM cps1988 WHERE {} WITH UTILITY (800, 0.05)"
    bound = connection.execute(text.format(f"{column} = ANY(%s{cast})"), [values]).fetchall()
    assert bound == connection.execute(text.format(f"{column} IN ({listed})")).fetchall()


def test_a_prepared_statement_is_described_free_and_run_for_each_value(server):
    """
    PREPARE costs nothing; EXECUTE asks the engine, with the values it is given.
    """
    with server.connect() as connection:
        said = notices(connection)
        connection.execute(
            "PREPARE q (integer) AS SELECT COUNT(*) AS n FROM cps1988 WHERE education = $1 "
            "WITH UTILITY (700, 0.05)"
        )
        assert not said
        some = connection.execute("EXECUTE q (13)").fetchall()
        direct = "SELECT COUNT(*) FROM cps1988 WHERE education = 13 WITH UTILITY (700, 0.05)"
        assert connection.execute(direct).fetchall() == some
        connection.execute("DEALLOCATE q")
        assert refused(connection, "EXECUTE q (13)").sqlstate == "26000"


def test_prepared_by_the_driver_and_read_in_parts(connection):
    """
    Named statements, portals with a row limit and cursors of the server give the same rows.
    """
    plain = connection.execute(REGIONS).fetchall()
    assert [name for name, _ in plain] == NAMES
    assert all(connection.execute(REGIONS, prepare=True).fetchall() == plain for _ in range(3))
    with connection.transaction(), connection.cursor(name="some") as cursor:
        cursor.execute(REGIONS)
        assert cursor.fetchmany(3) == plain[:3]
        cursor.scroll(-3)
        assert cursor.fetchall() == plain
    with connection.transaction():
        connection.execute("DECLARE c SCROLL CURSOR FOR " + REGIONS)
        connection.execute("FETCH 4 FROM c")
        assert connection.execute("FETCH BACKWARD 1 FROM c").fetchall() == plain[2:3]


def in_a_pipeline(connection, *statements):
    """Send statements together; the client may hear of an error at any of them, or at the end."""
    with connection.pipeline():
        for text, parameters in statements:
            connection.execute(text, parameters, prepare=parameters is not None)


def test_a_pipeline_stops_at_its_first_error(server):
    """
    In a pipeline, what follows an error is skipped: not run, and not charged.
    """
    text = "SELECT COUNT(*) FROM cps1988 WHERE education = 14 WITH UTILITY (600, 0.05)"
    with server.connect() as connection:
        said = notices(connection)
        with pytest.raises(errors.DivisionByZero):
            in_a_pipeline(connection, ("SELECT 1/0", None), (text, None))
        assert not said
        with connection.pipeline():
            cursors = [connection.execute(each) for each in (text, "SELECT 7", COUNT)]
            assert cursors[1].fetchall() == [(7,)]
        assert len(said) == 2


def test_a_prepared_statement_behind_an_error_is_not_run(server):
    """
    In a pipeline, a statement that was prepared before is skipped behind an error like any other.
    """
    text = "SELECT COUNT(*) FROM cps1988 WHERE education = %s WITH UTILITY (550, 0.05)"
    with server.connect() as connection:
        connection.execute(text, [1], prepare=True)
        said = notices(connection)
        with pytest.raises(errors.DivisionByZero):
            in_a_pipeline(connection, ("SELECT 1/0", None), (text, [16]))
        assert not said


def test_a_prepared_statement_whose_columns_changed_is_refused(server):
    """
    A setting that changes the columns of a statement makes its preparation stale: nothing is spent.
    """
    text = "SELECT COUNT(*) AS n FROM cps1988 WHERE education = 17 WITH UTILITY (350, 0.05)"
    with server.connect() as connection:
        wire = connection.pgconn
        wire.prepare(b"s", text.encode())
        connection.execute("SET privacy.columns = on")
        said = notices(connection)
        result = wire.exec_prepared(b"s", [])
        assert "cached plan must not change result type" in result.get_error_message()
        assert not said
        row = connection.execute(text).fetchone()
        assert len(row) == 4
        assert row[1] <= row[0] <= row[2]


COMPUTED = {
    "SELECT region, COUNT(*) * 100.0 / SUM(COUNT(*)) OVER () AS share, RANK() OVER (ORDER BY"
    " COUNT(*) DESC) AS place, COUNT(*) > 5 AS some FROM cps1988 GROUP BY region": "derived",
    "SELECT MAX(n) - MIN(n) AS spread, 'x' AS x FROM (SELECT region, COUNT(*) AS n FROM cps1988"
    " GROUP BY region) t": "approximate",
    "SELECT SUM(n) / 2.0 AS half FROM counts": "derived",
    "SELECT COUNT(*) FILTER (WHERE n > 5) AS c, STRING_AGG(n::text, ',') AS l FROM counts":
    "approximate",
}  # fmt: skip


@pytest.mark.parametrize("text", COMPUTED)
def test_computed_numbers_are_described_as_they_come(server, text):
    """
    With ``privacy.columns`` Describe, the rows, a COPY and a view have the same columns: three more
    for each computed number, worked out in a worker.
    """
    with server.connect(options="-c privacy.utility=500,0.05") as connection:
        connection.execute(
            "CREATE TEMP VIEW counts AS SELECT region, COUNT(*) AS n FROM cps1988 GROUP BY region"
        )
        connection.execute("SET privacy.columns = on")
        connection.execute(f"CREATE TEMP VIEW v AS {text}")
        wire = connection.pgconn
        wire.prepare(b"s", text.encode())
        described = wire.describe_prepared(b"s")
        names = [described.fname(i).decode() for i in range(described.nfields)]
        cursor = connection.execute(text)
        assert [column.name for column in cursor.description] == names
        rows = cursor.fetchall()
        assert connection.execute("SELECT * FROM v").fetchall() == rows
        with connection.cursor().copy(f"COPY ({text}) TO STDOUT CSV HEADER") as copied:
            head = b"".join(map(bytes, copied)).decode().split("\n")[0]
        assert head == ",".join(names)
        column = next(name for name in names if f"{name}_source" in names)
        at = names.index(column)
        assert names[at + 1 : at + 4] == [f"{column}_{what}" for what in ("low", "high", "source")]
        for row in rows:
            assert row[at + 3] == COMPUTED[text]
            assert row[at + 1] <= row[at] <= row[at + 2]


def test_settings_of_a_pipeline_end_with_it(server):
    """
    What was set for the implicit transaction of a pipeline holds in it, and not behind it.
    """
    count = "SELECT COUNT(*) FROM cps1988 WHERE education = 9"
    with server.connect(options="-c privacy.answers=on") as connection:
        said = notices(connection)
        with connection.pipeline():
            connection.execute("SELECT set_config('privacy.utility', '300, 0.25', true)")
            connection.execute(count)
        connection.execute(count)
    found = [json.loads(notice.message_detail)["answers"][0][0]["confidence"] for notice in said]
    assert found == [0.75, 0.95]


def test_an_error_takes_back_the_settings_of_its_message(connection):
    """
    Several statements of one message are one transaction, as in PostgreSQL.
    """
    error = refused(connection, f"SET privacy.utility = '1, 0.1'; {COUNT}; SELECT 1/0")
    assert error.sqlstate == "22012"
    shown = connection.execute("SHOW privacy.utility").fetchone()
    assert shown == ("100, 0.05; wage 170000, 0.05",)  # the policy's


def test_several_statements_in_one_message(server):
    """
    Each goes to the one who can answer it, in order, and none after the first error.
    """
    with server.connect() as connection:
        said = notices(connection)
        cursor = connection.execute(f"SELECT 1; {COUNT}; SELECT 'a;b'")
        rows = [cursor.fetchall()]
        while cursor.nextset():
            rows.append(cursor.fetchall())
        assert [rows[0], rows[2]] == [[(1,)], [("a;b",)]]
        assert rows[1] == connection.execute(COUNT).fetchall()
        said.clear()
        error = refused(connection, f"{COUNT}; SELECT oh; {COUNT}")
        assert (error.sqlstate, error.diag.statement_position) == ("42703", str(len(COUNT) + 10))
        assert len(said) == 1


def test_settings_are_those_of_the_session(connection):
    """
    SET, SET LOCAL, RESET and ROLLBACK hold for the engine as PostgreSQL has them.
    """

    def width():
        connection.execute("SET privacy.answers = on")
        said = notices(connection)
        connection.execute("SELECT COUNT(*) FROM cps1988 WHERE education = 9")
        (number,) = json.loads(said[-1].message_detail)["answers"][0]
        return number["confidence"]

    connection.execute("SET privacy.utility = '300, 0.25'")
    assert width() == 0.75
    with connection.transaction(force_rollback=True):
        connection.execute("SET LOCAL privacy.utility = '300, 0.125'")
        assert width() == 0.875
        connection.execute("SET privacy.utility = '300, 0.5'")
        assert width() == 0.5
    assert width() == 0.75
    connection.execute("SELECT set_config('privacy.utility', '300, 0.375', false)")
    assert width() == 0.625
    connection.execute("RESET privacy.utility")
    assert width() == 0.95


def test_another_time_zone_is_not_that_of_the_answers(server):
    """
    The session has it for what PostgreSQL itself reads and shows; of protected tables it is told
    that their times are in their policy's zone, once for each change, and not to who wants quiet.
    """
    with server.connect("alice") as connection:
        said = notices(connection)
        connection.execute("SET TIME ZONE 'Europe/Berlin'")
        assert ["time zone of its policy" in each.message_primary for each in said] == [True]
        connection.execute("SET TIME ZONE 'Europe/Berlin'")
        connection.execute("SET work.something = 'x'")
        assert len(said) == 1
        connection.execute("SET client_min_messages = 'warning'")
        connection.execute("SELECT COUNT(*) FROM cps1988 WITH UTILITY (600, 0.05)")
        connection.execute("SET TIME ZONE 'Asia/Tokyo'")
        assert len(said) == 1


def test_settings_at_connect(server):
    """
    ``-c`` in the connection's options is a setting like any other.
    """
    with server.connect(options="-c privacy.utility=300,0.25 -c privacy.answers=on") as connection:
        said = notices(connection)
        connection.execute("SELECT COUNT(*) FROM cps1988 WHERE education = 9")
    assert json.loads(said[0].message_detail)["answers"][0][0]["confidence"] == 0.75


@pytest.mark.parametrize(
    "text, sqlstate, words",
    [
        ("SET privacy.utility = 'a'", "22023", "half_width and delta"),
        ("SET privacy.utilty = '1, 0.1'", "42000", "unrecognized setting"),
        ("SELECT COUNT(*) FROM cps1988 WITH UTILITY (0, 0.1)", "22023", "half_width"),
        ("SELECT COUNT(*) FROM cps1988 WITH UTILITY (1e-6, 0.1)", "53400", "costs more"),
        ("SELECT * FROM cps1988 LIMIT 10", "0A000", "only aggregates"),
        ("SELECT foo FROM cps1988", "42703", '"foo"'),
        ("SELECT COUNT(* FROM cps1988", "42601", "syntax error"),
        ("SELECT COUNT(*) FROM cps1989", "42P01", "cps1989"),
        ("COPY cps1988 TO STDOUT", "0A000", "only aggregates"),
        ("COPY (SELECT wage FROM cps1988) TO STDOUT", "0A000", "only aggregates"),
        ("COPY (SELECT COUNT(*) FROM cps1988) TO '/x'", "0A000", "TO STDOUT only"),
        ("COPY cps1988 FROM STDIN", "0A000", "COPY FROM is not supported"),
        ("COPY privacy.budget TO STDOUT", "42809", "cannot copy from view"),
        ("CREATE VIEW v AS SELECT COUNT(*) FROM cps1988", "0A000", "CREATE VIEW"),
        ("CREATE TEMP VIEW v AS SELECT wage FROM cps1988", "0A000", "only aggregates"),
        ("CREATE TEMP VIEW v AS SELECT foo FROM cps1988", "42703", '"foo"'),
        ("CREATE TEMP VIEW public.v AS SELECT 1", "42P16", "non-temporary schema"),
        ("DROP VIEW v", "42P01", "does not exist"),
        ("INSERT INTO cps1988 VALUES (1)", "0A000", "INSERT"),
        ("CREATE TABLE t AS SELECT COUNT(*) FROM cps1988", "0A000", "CREATE"),
        ("CREATE TABLE t (a int)", "42501", "permission denied"),
        ("CREATE TEMP TABLE t (a int)", "42501", "permission denied"),
        ("LOCK TABLE cps1988", "0A000", "LOCK"),
        ("ALTER ROLE alice PASSWORD 'x'", "42501", "users file"),
    ],
)
@pytest.mark.parametrize("extended", [False, True], ids=["simple", "extended"])
def test_errors_have_their_sqlstate_and_leave_the_session_in_order(
    connection, text, sqlstate, words, extended
):
    """
    Each refusal has its SQLSTATE and says what is wrong, in both protocols; the session goes on.
    """
    with pytest.raises(psycopg.Error) as caught:
        psycopg.RawCursor(connection).execute(text, () if extended else None)
    assert caught.value.sqlstate == sqlstate
    assert words in str(caught.value)
    assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_an_error_points_at_its_place(connection):
    """
    ``position`` counts in the client's own text, also behind parameters.
    """
    text = "SELECT COUNT(*) FROM cps1988 WHERE education = %s AND oh = 1"
    error = refused(connection, text, [123456])
    sent = text.replace("%s", "$1")
    assert error.diag.statement_position == str(sent.index("oh") + 1)


def test_an_error_of_the_engine_aborts_the_transaction(server):
    """
    As with any failed statement, the transaction takes no more but ROLLBACK.
    """
    with server.connect(autocommit=False) as connection:
        said = notices(connection)
        refused(connection, "SELECT wage FROM cps1988")
        new = "SELECT COUNT(*) FROM cps1988 WHERE education = 18 WITH UTILITY (444, 0.05)"
        assert refused(connection, new).sqlstate == "25P02"
        assert refused(connection, new.replace("18", "%s"), [18]).sqlstate == "25P02"
        assert not said
        connection.rollback()
        assert connection.execute(COUNT).fetchall()


def test_a_release_stays_charged_after_rollback(server):
    """
    What was seen cannot be unseen: ROLLBACK says that it stays charged.
    """
    with server.connect(autocommit=False) as connection:
        said = notices(connection)
        connection.execute(
            "SELECT COUNT(*) FROM cps1988 WHERE education = 15 WITH UTILITY (450, 0.05)"
        )
        connection.rollback()
        assert "stays charged" in said[-1].message_primary
        connection.execute("SELECT 1")
        connection.rollback()
        assert len(said) == 2


@pytest.mark.parametrize(
    "probe",
    [
        "SELECT * FROM cps1988 LIMIT 0",
        "SELECT * FROM cps1988 WHERE 1=0",
        "SELECT region, wage FROM public.cps1988 WHERE 1<>1",
        "SELECT COUNT(*) FROM cps1988 WHERE 1=0 WITH UTILITY (1e-6, 0.05)",
        "EXPLAIN SELECT COUNT(*) FROM cps1988 WITH UTILITY (1e-6, 0.05)",
        "EXPLAIN (FORMAT JSON) SELECT * FROM cps1988",
        "SELECT 'cps1988'::regclass::text",
        "SELECT 1 AS cps1988",
    ],
)
def test_probes_are_free(server, probe):
    """
    What tools send to learn names and types is answered, in both protocols, and costs nothing.
    """
    with server.connect() as connection:
        said = notices(connection)
        for parameters in (None, ()):
            cursor = psycopg.RawCursor(connection)
            cursor.execute(probe, parameters)
            assert cursor.description
            cursor.fetchall()
        assert not any("measured" in notice.message_primary for notice in said)


def test_describing_is_free(server):
    """
    Parse and Describe, Bind without Execute: columns, and no charge.
    """
    with server.connect() as connection:
        said = notices(connection)
        wire = connection.pgconn
        text = b"SELECT region, COUNT(*) FROM cps1988 WHERE education = $1 GROUP BY 1 "
        wire.prepare(b"s", text + b"WITH UTILITY (1, 0.05)")
        told = wire.describe_prepared(b"s")
        assert [told.ftype(i) for i in range(told.nfields)] == [25, 20]
        assert [told.param_type(i) for i in range(told.nparams)] == [23]
        assert not said


@pytest.mark.parametrize(
    "slip",
    [
        "SELECT EXISTS (SELECT FROM cps1988)",
        "SELECT query_to_xml('SELECT count(*) FROM cps1988', true, true, '')",
        'SELECT count(*) FROM U&"\\0063ps1988"',
        "SELECT query_to_xml('SELECT 1 FROM cps1988 WHERE region = $$x$$', true, true, '')",
        "SELECT query_to_xml('SELECT 1 FROM cps1988 WHERE education = 5', true, true, '')",
        "SELECT ts_stat('SELECT region FROM cps1988')",
        "EXPLAIN ANALYZE SELECT count(*) FROM cps1988",
        "SELECT region FROM cps1988 ORDER BY 1 FETCH FIRST 1 ROW ONLY",
        "SELECT 1 FROM cps1988, pg_catalog.pg_class",
        "SELECT table_to_xml('cps1988', true, true, '')",
    ],
)
def test_what_slips_past_raises(connection, slip):
    """
    No form of reading a protected table is answered by the empty mirror: it raises 0A000.
    """
    assert refused(connection, slip).sqlstate in ("0A000", "42883", "42601", "42P01")


def test_a_running_statement_can_be_cancelled(connection):
    """
    A cancel request ends what the mirror runs.
    """
    threading.Timer(0.2, connection.cancel_safe).start()
    began = time.monotonic()
    assert refused(connection, "SELECT pg_sleep(20)").sqlstate == "57014"
    assert time.monotonic() - began < 5


def test_dates_and_empty_results(connection):
    """
    Values of the outer query have its types, and no row is no error.
    """
    row = connection.execute(
        "SELECT COUNT(*) AS n, DATE '2020-02-29' AS d, TIMESTAMP '2020-02-29 12:00' AS t, "
        "NULL AS nothing FROM cps1988 WITH UTILITY (500, 0.05)"
    ).fetchone()
    assert row[1:] == (datetime.date(2020, 2, 29), datetime.datetime(2020, 2, 29, 12), None)
    none = "SELECT region FROM cps1988 GROUP BY region HAVING COUNT(*) < -1e6 "
    assert connection.execute(none + "WITH UTILITY (500, 0.05)").fetchall() == []


def test_another_encoding(server):
    """
    A client that speaks LATIN1 is understood and answered in LATIN1.
    """
    with server.connect(client_encoding="latin1") as connection:
        row = connection.execute(
            "SELECT 'é' AS e, COUNT(*) FROM cps1988 WITH UTILITY (500, 0.05)"
        ).fetchone()
        assert row[0] == "é"
        assert refused(connection, "SELECT COUNT(*), 'é' || oh FROM cps1988").sqlstate == "42703"


def test_a_charge_is_told_wherever_its_number_is(server):
    """
    In HAVING, ORDER BY, a subquery or inside of an expression: the notice says cost and left, and
    the second time that it was free.
    """
    for number, text in enumerate(
        (
            "SELECT region FROM cps1988 WHERE {} GROUP BY region HAVING COUNT(*) > 0",
            "SELECT region FROM cps1988 WHERE {} GROUP BY region ORDER BY COUNT(*) LIMIT 1",
            "SELECT 1 WHERE (SELECT COUNT(*) FROM cps1988 WHERE {}) > 10",
            "SELECT round(COUNT(*) / 7.0) FROM cps1988 WHERE {}",
        )
    ):
        asked = f"{text.format(f'education = {3 + number}')} WITH UTILITY (61, 0.05)"
        with server.connect() as connection:
            said = notices(connection)
            for _ in range(2):
                connection.execute(asked)
        first, second = (notice.message_primary for notice in said)
        assert re.fullmatch(
            r"privacy: \d numbers? measured; cost 0\.\d+, left [01]\.\d+( \(.*\))?", first
        )
        assert re.fullmatch(r"privacy: \d numbers? free; cost nothing, left .*", second)


def test_a_session_s_pair_leaves_a_measure_its_default(server):
    """
    As the README has it for BI tools: counts within it, sums within the policy's default, and
    SHOW says what holds.
    """
    with server.connect(options="-c privacy.utility=650,0.25 -c privacy.answers=on") as connection:
        said = notices(connection)
        connection.execute("SELECT COUNT(*), SUM(wage) FROM cps1988 WHERE education = 8")
        shown = connection.execute("SHOW privacy.utility").fetchone()
    found = json.loads(said[0].message_detail)["answers"][0]
    assert [number["confidence"] for number in found] == [0.75, 0.95]
    assert shown == ("650,0.25",)


def test_a_result_that_chooses_rows_is_released_first_through_every_door(connection):
    """
    Simple and extended protocol, a cursor, EXPLAIN, COPY: one answer, paid once, described before.
    """
    inner = "SELECT region AS r, COUNT(*) AS k FROM cps1988 GROUP BY region ORDER BY k DESC LIMIT 2"
    text = (
        f"SELECT smsa, COUNT(*) AS n FROM cps1988 JOIN ({inner}) AS top ON region = r "
        "WHERE education > %s GROUP BY smsa WITH UTILITY (400, 0.05)"
    )
    notices = []
    connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))
    with connection.cursor() as cursor:
        first = cursor.execute(text, (12,)).fetchall()
        assert [column.name for column in cursor.description] == ["smsa", "n"]
        literal = text.replace("%s", "12")
        assert cursor.execute(literal, prepare=False).fetchall() == first
        with connection.transaction(), connection.cursor("named") as named:
            assert named.execute(literal).fetchall() == first
        explained = cursor.execute(f"EXPLAIN UTILITY {literal}").fetchall()
        assert {row[2] for row in explained} == {"inferred"}
        with cursor.copy(f"COPY ({literal}) TO STDOUT") as copy:
            copy.set_types(["text", "int8"])
            assert sorted(copy.rows()) == sorted(first)
    assert len(first) == 2
    assert sum("cost nothing" not in notice for notice in notices if "privacy" in notice) <= 1


@pytest.mark.parametrize("server_side", [False, True], ids=["simple", "extended"])
@pytest.mark.parametrize(
    ("begins", "head", "state"),
    [
        ((), "DECLARE c CURSOR FOR", "25P01"),
        (("BEGIN", "DECLARE c CURSOR FOR SELECT 1"), "DECLARE c CURSOR FOR", "42P03"),
        (("BEGIN",), 'DECLARE "c""d" SCROLL NO SCROLL CURSOR FOR', "42P11"),
        (("BEGIN",), "DECLARE c INSENSITIVE ASENSITIVE CURSOR FOR", "42P11"),
    ],
)
def test_a_cursor_that_cannot_be_costs_nothing(server, server_side, begins, head, state):
    """
    Outside of a transaction, under a name that is taken, with options that do not go together.
    """
    text = "SELECT COUNT(*) FROM cps1988 WHERE education = 10 WITH UTILITY (444, 0.05)"
    with server.connect() as connection:
        said = notices(connection)
        for begin in begins:
            connection.execute(begin)
        error = refused(connection, f"{head} {text}")
        if server_side:
            connection.rollback()
            for begin in begins:
                connection.execute(begin)
            with pytest.raises(psycopg.Error) as caught:
                connection.execute(f"{head} {text}", prepare=True)
            error = caught.value
        assert error.sqlstate == state
        assert not [notice for notice in said if notice.message_primary.startswith("privacy:")]
        connection.rollback()
        explained = connection.execute(f"EXPLAIN UTILITY {text}").fetchone()
        assert explained[2] == "measured"


def test_a_cursor_under_any_name_is_declared_once(connection):
    """
    Hidden trials leave nothing behind, held cursors included.
    """
    text = "SELECT region, COUNT(*) FROM cps1988 GROUP BY region WITH UTILITY (500, 0.05)"
    for name in ("c", '"C d"', '"q""q"'):
        with connection.transaction():
            connection.execute(f"DECLARE {name} CURSOR FOR {text}")
            assert len(connection.execute(f"FETCH ALL FROM {name}").fetchall()) == 4
    connection.execute(f"DECLARE held CURSOR WITH HOLD FOR {text}")
    assert len(connection.execute("FETCH ALL FROM held").fetchall()) == 4
    assert connection.execute("SELECT name FROM pg_cursors").fetchall() == [("held",)]
