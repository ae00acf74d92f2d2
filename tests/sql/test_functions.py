"""Every function and operator on edge values: PostgreSQL's value, or a refusal."""

import re
from pathlib import Path

import pytest
from psycopg import Error as ReferenceError

import proxy.sql as privacy_sql
from proxy.errors import Error, NotSupportedError
from tests.searches import share
from tests.sql.compare import close
from tests.sql.survey import plain, run

INTEGERS = ["0", "1", "-1", "2", "-7", "7", "2147483647", "-2147483648", "NULL::int"]
BIGINTS = ["9223372036854775807", "2147483648", "-9223372036854775807"]
NUMERICS = ["0.0", "1.5", "-1.5", "2.5", "-2.5", "0.05", "-0.05", "12345.678", "NULL::numeric"]
DOUBLES = ["0::float8", "2.5::float8", "-2.5::float8", "3.5::float8", "0.1::float8", "1e15::float8"]
TEXTS = ["''", "'a'", "'abc'", "'Äé€'", "' x '", "'a_b%c'", "'a''b'", "'a\\b'", "NULL::text"]
DATES = [
    "DATE '2020-02-29'", "DATE '2019-12-30'", "DATE '2000-01-01'", "DATE '1999-12-31'",
    "DATE '2021-01-03'", "NULL::date",
]  # fmt: skip
TIMES = ["TIMESTAMP '2020-02-29 23:59:59.5'", "TIMESTAMP '2021-01-01 00:00:00'"]
BOOLEANS = ["TRUE", "FALSE", "NULL::boolean"]

UNARY = {
    "-({})": [INTEGERS, NUMERICS, DOUBLES],
    "abs({})": [INTEGERS[:-2], NUMERICS, DOUBLES],
    "floor({})": [INTEGERS, NUMERICS, DOUBLES],
    "ceil({})": [INTEGERS, NUMERICS, DOUBLES],
    "round({})": [INTEGERS, NUMERICS, DOUBLES],
    "round({}, 1)": [NUMERICS],
    "trunc({})": [INTEGERS, NUMERICS, DOUBLES],
    "trunc({}, 1)": [NUMERICS],
    "sign({})": [INTEGERS, NUMERICS, DOUBLES],
    "sqrt({})": [INTEGERS, NUMERICS, DOUBLES],
    "cbrt({})": [INTEGERS, DOUBLES],
    "ln({})": [INTEGERS, NUMERICS, DOUBLES],
    "log({})": [INTEGERS, DOUBLES],
    "exp({})": [["0", "1", "-7", "700", "710", "NULL::int"], ["0.5::float8"]],
    "({})::text": [INTEGERS, BIGINTS, NUMERICS, BOOLEANS, DATES, TIMES, DOUBLES[:-1]],
    "({})::int": [INTEGERS, BIGINTS, NUMERICS, DOUBLES, BOOLEANS],
    "({})::bigint": [INTEGERS, BIGINTS, NUMERICS, DOUBLES],
    "({})::numeric(6, 1)": [INTEGERS, NUMERICS, DOUBLES],
    "({})::float8": [INTEGERS, BIGINTS, NUMERICS],
    "({})::boolean": [INTEGERS, ["'t'::text", "'Yes'::text", "' off '::text", "'x'::text"]],
    "({}::text)::int": [["'1'", "' -5 '", "'1.5'", "''", "'x'", "'2147483648'", "'+3'"]],
    "({}::text)::numeric": [["'1.50'", "' -5 '", "'1e2'", "'.5'", "'x'", "''"]],
    "({}::text)::float8": [["'1.5'", "'-1e-3'", "'x'"]],
    "({}::text)::date": [["'2020-02-29'", "'2021-02-29'", "'x'", "' 2020-01-01 '"]],
    "({}::text)::timestamp": [["'2020-02-29 12:00'", "'2020-01-01T01:02:03.5'", "'x'"]],
    "({})::date": [DATES, TIMES],
    "({})::timestamp": [DATES, TIMES],
    "({})::varchar(2)": [TEXTS],
    "lower({})": [TEXTS],
    "upper({})": [TEXTS],
    "length({})": [TEXTS],
    "octet_length({})": [TEXTS],
    "reverse({})": [TEXTS],
    "initcap({})": [TEXTS, ["'hELLO wORLD'", "'o''neil-smith 3RD'", "'ÉCOLE écOLE x1y'"]],
    "translate({}, 'aé_', 'bX')": [TEXTS],
    "repeat({}, 3)": [TEXTS],
    "regexp_replace({}, '[a-c]+', '-')": [TEXTS, ["'xabcxab'", "'ABCabc'"]],
    "regexp_replace({}, '[^a-z]', '', 'g')": [TEXTS, ["'a1b2c3'", "'50%_off'"]],
    "regexp_replace({}, 'B.', '<>', 'gi')": [TEXTS, ["'abcbcb'", "'bb'"]],
    "substring({} FROM '[a-z]+')": [TEXTS, ["'12abc34d'"]],
    "substring({} FROM '^\\w+')": [TEXTS, ["'Äb1_ c'"]],
    "array_position(ARRAY['a', 'abc', 'a'], {})": [TEXTS],
    "trim({})": [TEXTS],
    "ltrim({}, 'ax ')": [TEXTS],
    "rtrim({}, 'cx ')": [TEXTS],
    "btrim({}, 'ac')": [TEXTS],
    "{} IS NULL": [INTEGERS, TEXTS, BOOLEANS],
    "{} IS NOT TRUE": [BOOLEANS],
    "NOT {}": [BOOLEANS],
    "{} LIKE 'a%'": [TEXTS],
    "{} LIKE '%\\_%'": [TEXTS],
    "{} LIKE 'a\\\\b'": [TEXTS],
    "{} LIKE '_'": [TEXTS],
    "{} LIKE '%!%%' ESCAPE '!'": [TEXTS],
    "{} ILIKE 'A%'": [TEXTS],
    "{} ILIKE 'äÉ_'": [TEXTS],
    "{} ~ '^a'": [TEXTS],
    "{} ~* 'B'": [TEXTS],
    "{} ~ '[a-b]+.c$'": [TEXTS],
    "{} ~ '^\\w+$'": [TEXTS, ["'é1'", "'１'", "'a_b'", "'a-b'"]],
    "{} ~ '^\\d+$'": [["'12'", "'１２'", "'x'", "''"]],
    "{} !~ 'b'": [TEXTS],
    "{} !~* '^A'": [TEXTS],
    "{} SIMILAR TO 'a%'": [TEXTS],
    "{} SIMILAR TO '_(b|_)c'": [TEXTS],
    "{} SIMILAR TO ''": [TEXTS],
    "{} NOT SIMILAR TO 'a|%x%'": [TEXTS],
    "lpad({}, 2, 'xy')": [TEXTS],
    "lpad({}, 6, 'xy')": [TEXTS],
    "rpad({}, 6)": [TEXTS],
    "rpad({}, 6, '')": [TEXTS],
    "lpad('abc', 5, {})": [TEXTS],
    "rpad('abc', 0, {})": [TEXTS],
    "({}, 1) = ('a', 1)": [TEXTS],
    "({}, 1) IN (('a', 1), ('abc', NULL))": [TEXTS],
    "{} = ANY ('{{a,NULL}}')": [TEXTS],
    "{} <> ALL ('{{a,abc}}')": [TEXTS],
    "{} < ANY ('{{0,5}}')": [INTEGERS],
    "{} >= ALL ('{{-7,NULL}}')": [INTEGERS],
    "date({})": [DATES, TIMES],
    "date_trunc('{unit}', {})": [DATES, TIMES],
    "EXTRACT({field} FROM {})": [DATES, TIMES],
    "to_char({}, 'YYYY-MM-DD HH24:MI:SS')": [DATES, TIMES],
    "{} + INTERVAL '1 month'": [DATES, TIMES],
    "{} - INTERVAL '1 year 2 days'": [DATES, TIMES],
    "{} - INTERVAL '36 hours'": [DATES, TIMES],
    "{} + INTERVAL '15 min' * 3": [DATES, TIMES],
    "{} - TIMESTAMP '2020-01-01 12:00'": [DATES, TIMES],
    "to_char({}, 'FMDay, DDth, FMMonth YYYY')": [DATES, TIMES],
    "EXTRACT({span} FROM age({}, DATE '1999-02-28'))": [DATES, TIMES],
    "age(DATE '2020-02-29', {})::text": [DATES, TIMES],
    "date_bin('1 day 6 hours', {}, TIMESTAMP '2020-01-01')": [DATES, TIMES],
    "width_bucket({}, -2, 8, 4)": [INTEGERS, NUMERICS, DOUBLES],
    "width_bucket({}, ARRAY[-1.5, 0, 2.5])": [INTEGERS, NUMERICS],
    "to_char({}, 'FM999,990.0')": [INTEGERS, BIGINTS, NUMERICS, DOUBLES[:-1]],
    "to_char({}, '0009')": [INTEGERS, NUMERICS, DOUBLES],
}
BINARY = {
    "{} + {}": [INTEGERS, NUMERICS, DOUBLES],
    "{} - {}": [INTEGERS, NUMERICS, DATES],
    "{} * {}": [INTEGERS, NUMERICS, DOUBLES],
    "{} / {}": [INTEGERS, NUMERICS, DOUBLES],
    "{} % {}": [INTEGERS, NUMERICS],
    "mod({}, {})": [INTEGERS],
    "div({}, {})": [INTEGERS],
    "power({}, {})": [["0", "1", "-1", "2", "-7", "0.5", "10"]],
    "{} = {}": [INTEGERS, NUMERICS, TEXTS, BOOLEANS, DATES],
    "{} < {}": [NUMERICS, TEXTS, BOOLEANS, DATES],
    "{} IS DISTINCT FROM {}": [INTEGERS, TEXTS],
    "{} AND {}": [BOOLEANS],
    "{} OR {}": [BOOLEANS],
    "{} || {}": [TEXTS],
    "{}::text || {}": [BOOLEANS],
    "concat({}, {})": [TEXTS, INTEGERS, NUMERICS, BOOLEANS, DATES, TIMES, DOUBLES[:-1]],
    "concat_ws('-', {}, {})": [TEXTS, INTEGERS, NUMERICS, BOOLEANS, DATES, TIMES, DOUBLES[:-1]],
    "greatest({}, {})": [INTEGERS, NUMERICS, TEXTS],
    "least({}, {})": [INTEGERS, DATES],
    "coalesce({}, {})": [INTEGERS, TEXTS],
    "nullif({}, {})": [INTEGERS, TEXTS],
    "position({} IN {})": [TEXTS],
    "strpos({}, {})": [TEXTS],
    "starts_with({}, {})": [TEXTS],
    "replace('abcabc', {}, {})": [TEXTS],
    "split_part('a_b_c', {}, 2)": [TEXTS],
    "{} BETWEEN SYMMETRIC 1 AND {}": [INTEGERS],
    "{} IN (1, {}, NULL)": [INTEGERS],
    "{} NOT IN (1, {})": [INTEGERS],
    "CASE {} WHEN {} THEN 'same' ELSE 'other' END": [INTEGERS],
}
MIXED = [
    *(f"substring('abcdef', {start}, {size})" for start in range(-2, 9, 2) for size in (0, 2, 9)),
    *(f"substr('abcdef', {start})" for start in (-3, 0, 1, 3, 9)),
    *(f"left('abc', {n})" for n in (-4, -1, 0, 2, 5)),
    *(f"right('abc', {n})" for n in (-4, -1, 0, 2, 5)),
    *(f"split_part('a,b,,c', ',', {n})" for n in (-5, -1, 0, 1, 3, 4, 5)),
    *(
        f"{one}{sign}{two}"
        for one in ("1e1", "1.5E+1", "5e-3", ".5e0", "1.", "7")
        for sign in "+-"
        for two in ("5", ".5", "2.5e1", "1e1-1e1+2", "3*1e1", "1e-1/* a */+1")
    ),
    *(f"make_date({y}, {m}, 31)" for y, m in ((2020, 1), (2020, 2), (1999, 12))),
    *(f"DATE '2020-02-28' + {n}" for n in (-60, 0, 2)),
    "substring('abc', NULL::int)", "substring('abc', NULL::int, 2)", "substring('abc', 2, NULL)",
    "substring('abc' FROM NULL)", "left('abc', NULL)", "right('abc', NULL::int)",
    "split_part('a-b', '-', NULL)", "make_date(2020, NULL, 1)",
    "width_bucket(1, NULL, 2, 3)", "width_bucket(1, 0, 2, NULL)",
    "age(NULL, DATE '2020-01-01')::text",
    "date_bin('1 hour', TIMESTAMP '2020-01-01 12:34', '2001-01-01')", "strpos(NULL, 'a')",
    "initcap(NULL)", "translate('abc', NULL, 'x')", "concat_ws(NULL, 'a', 'b')",
    "concat(INTERVAL '25 months -3 days 1.5 s', TRUE, '|', 1 > 2, NULL)",
    "substring('abc', 1, -1)", "1 / 2 * 2.0", "7 / 2 * 2", "10.0 / 4", "1 / 3.0", "2 / 3.0",
    "2147483647 + 1", "2147483647::bigint + 1", "9223372036854775807 + 1", "1.5 * 2", "5 % 3.5",
    "-7 / 2", "(-7) % 2", "2 ^ 3", "2 ^ -1", "0 ^ 0", "-2 ^ 2", "10 - 2 - 3", "2 + 3 * 4",
    "NOT TRUE OR TRUE", "NOT (TRUE OR TRUE)", "TRUE AND NULL", "FALSE AND NULL", "NULL OR TRUE",
    "1 = 1.0", "'1' = 1", "'a' = 'a '", "'abc' < 'B'", "'10' < '9'", "NULL = NULL", "'' IS NULL",
    "1 IN (NULL)", "1 NOT IN (NULL)", "NULL IN (1)", "3 BETWEEN 1 AND NULL", "0 BETWEEN 1 AND NULL",
    "coalesce(NULL, NULL, 3)", "greatest(NULL, NULL)", "CASE WHEN NULL THEN 1 ELSE 2 END",
    "CASE WHEN FALSE THEN 1 END", "CASE NULL WHEN NULL THEN 1 ELSE 2 END", "'a' || NULL",
    "'a' || 1", "1 || 'a'", "'2020-01-31'::date + INTERVAL '1 month'", "TRUE::int + 1",
    "'5'::int + '6'::int", "1.005::numeric(10, 2)", "round(2.675, 2)", "round(-0.5)", "log(2, 8)",
    "0.1 + 0.2 = 0.3", "0.1::float8 + 0.2::float8 = 0.3::float8", "1e3", "1.5e-2", "00012", "1.",
    "E'a\\nb'", "$$a'b$$", "'é' < 'z'", "upper('éñ')", "length('👩‍👧')",
]  # fmt: skip
SPANS = ["year", "month", "day", "hour", "minute", "second", "epoch", "decade", "century"]
UNITS = ["day", "week", "month", "quarter", "year", "decade", "hour", "minute", "second"]
EXTRACTS = [
    "year", "month", "day", "quarter", "week", "dow", "isodow", "doy", "isoyear", "decade",
    "century", "epoch", "hour", "minute", "second",
]  # fmt: skip
PARTS = {"{unit}": UNITS, "{field}": EXTRACTS, "{span}": SPANS}
REFUSED = {  # by type, though PostgreSQL has NULL for this one value
    *(f"EXTRACT({field} FROM NULL::date)" for field in ("hour", "minute", "second")),
}


def expressions():
    """Every expression on every combination of its edge values."""
    for shape, kinds in UNARY.items():
        for values in kinds:
            for value in values:
                for unit in next((v for k, v in PARTS.items() if k in shape), [""]):
                    yield shape.format(value, unit=unit, field=unit, span=unit)
    for shape, kinds in BINARY.items():
        for values in kinds:
            yield from (shape.format(one, two) for one in values for two in values)
    yield from MIXED


CASES = list(expressions())
NOT_ALIKE = {  # with a zone, or read leniently: position(a, b)
    "now", "transaction_timestamp", "to_timestamp", "position", "MEDIAN",
}  # fmt: skip
CHUNKS = 40


@pytest.mark.parametrize("chunk", share(8, range(CHUNKS)))
def test_functions_equal_postgresql(postgres, chunk):
    """
    What PostgreSQL computes we compute alike; what fails there is refused here.
    """
    wrong = []
    for text in CASES[chunk::CHUNKS]:
        theirs = reference(postgres, text)
        ours = answer(text)
        if ours is None and theirs is not None and text not in REFUSED:
            wrong.append(f"{text}: refused, PostgreSQL has {theirs}")
        elif ours is not None and (theirs is None or not close(ours, theirs)):
            wrong.append(f"{text}: {ours}, PostgreSQL has {theirs}")
    assert not wrong, "\n".join(wrong)


def answer(text):
    """Our value, None where the expression is refused."""
    try:
        return tuple(plain(cell) for cell in run(f"SELECT {text} AS a").rows[0])
    except Error:
        return None


def reference(postgres, text):
    """PostgreSQL's value, None where it fails."""
    try:
        rows = postgres.query(f"SELECT {text} AS a")[1]
    except ReferenceError:
        return None
    return tuple(plain(cell) for cell in rows[0]) if rows else ()


UNICODE_16 = {0x19B, 0x264, 0x1C89, 0x1C8A, *range(0xA7CB, 0xA7DD), *range(0x10D50, 0x10D86)}


@pytest.mark.slow
def test_capitals_and_small_letters_are_postgresqls(postgres):
    """
    Of every letter that has one, but for those whose counterpart is newer than our Unicode.
    """
    every = [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]
    letters = [c for c in every if (c.upper(), c.lower()) != (c, c) and ord(c) not in UNICODE_16]
    assert len(letters) > 2_700
    for begin in range(0, len(letters), 500):
        listed = ", ".join(f"('{letter}')" for letter in letters[begin : begin + 500])
        text = f"SELECT x, upper(x), lower(x), initcap(x) FROM (VALUES {listed}) AS v(x)"
        theirs = postgres.query(text)[1]
        assert sorted(run(text).rows) == sorted(theirs)


@pytest.mark.slow
@pytest.mark.parametrize("argument", share(1, ["'a'", "1", "1.5", "NULL", "DATE '2020-01-02'"]))
def test_any_number_of_arguments_is_computed_or_refused(postgres, argument):
    """
    None to four of them, for each function of the page, of constants and of a count: nothing but
    a refusal where PostgreSQL refuses, or finds another function.
    """
    page = Path(privacy_sql.__file__).with_name("FUNCTIONS.md").read_text()
    wrong = []
    for name in sorted(set(re.findall(r"(\w+)\(", page)) - NOT_ALIKE):
        for count in range(5):
            text = f"{name}({', '.join([argument] * count)})"
            ours = answer(text)
            theirs = reference(postgres, text)
            alike = argument == "NULL" or ours is None or (theirs and close(ours, theirs))
            if not alike:  # NULL has no type there
                wrong.append(f"{text}: {ours}, PostgreSQL has {theirs}")
        for count in range(1, 5):
            answer(f"{name}({', '.join(['COUNT(*)', *[argument] * (count - 1)])})")
    assert not wrong, "\n".join(wrong)


WRITTEN_OUT = [  # what must be written out, as drivers send it
    "{c} ~ {t}", "{c} ~* {t}", "{c} !~ {t}", "{c} SIMILAR TO {t}", "{c} LIKE {t}",
    "regexp_replace({c}, {t}, {e})", "to_char(7.5, {n})",
    "regexp_replace({c}, {t}, 'x', {g})", "to_date({d}, {y})", "to_timestamp({d}, {y})",
    "substring({c} FROM {t})", "split_part({c}, '', 2)", "split_part(NULL, '', 1) IS NULL",
]  # fmt: skip
CASTS = ["{}", "({})", "{}::text", "CAST({} AS varchar)", "({}::varchar)", "NULL", "NULL::text"]
VALUES = {
    "c": "'north'", "t": "'o'", "e": "'!'", "n": "'FM990.00'", "g": "'g'",
    "d": "'2021-03-04'", "y": "'YYYY-MM-DD'",
}  # fmt: skip


@pytest.mark.parametrize("shape", WRITTEN_OUT)
def test_what_is_written_out_may_be_cast_to_text_or_null(postgres, shape):
    """
    In every place of every such function: the value is PostgreSQL's, or it is refused by name.
    """
    wrong = []
    for key in [key for key in VALUES if f"{{{key}}}" in shape]:
        for cast in CASTS:
            text = shape.format(**VALUES | {key: cast.format(VALUES[key])})
            try:
                ((mine,),) = run(f"SELECT {text}").rows
            except NotSupportedError:
                assert "NULL" in cast, text
                continue
            (theirs,) = postgres.query(f"SELECT {text}")[1][0]
            if getattr(theirs, "tzinfo", None):
                theirs = theirs.replace(tzinfo=None)
            wrong += [(text, mine, theirs)] * (plain(mine) != plain(theirs))
    assert wrong == []
