"""``to_char``, ``width_bucket``, ``date_bin``, ``age`` and intervals on random values."""

import random
import re
from datetime import date, datetime, timedelta

import pytest

from tests.searches import share
from tests.sql.compare import close
from tests.sql.survey import plain
from tests.sql.test_functions import answer, reference

EACH = 60  # expressions of a seed
KNOWN_DATES = [
    *("YYYY", "YYY", "YY", "Y", "IYYY", "IYY", "IY", "I", "Y,YYY", "MM", "MONTH", "Month"),
    *("month", "MON", "Mon", "mon", "DAY", "Day", "day", "DY", "Dy", "dy", "DDD", "IDDD"),
    *("DD", "D", "ID", "Q", "W", "WW", "IW", "CC", "J", "RM", "rm", "HH"),
    *("HH12", "HH24", "MI", "SS", "MS", "US", "FF1", "FF2", "FF3", "FF4", "FF5", "FF6"),
    *("SSSS", "SSSSS", "AM", "PM", "am", "pm", "A.M.", "P.M.", "a.m.", "p.m.", "AD", "BC"),
    *("ad", "B.C.", "a.d.", "yyyy", "yyy", "y,yyy", "iyyy", "iw", "mm", "dd", "ddd", "d"),
    *("hh24", "hh12", "hh", "mi", "ss", "ms", "us", "ff3", "q", "w", "ww", "cc"),
    *("j", "id", "iddd"),
]  # fmt: skip
BETWEEN = ["-", "/", ".", ",", " ", ":", "", " ", '"of"', '"T"', '"a\\"b"', "é", "x", "K", '\\"']
STRIDES = ["15 minutes", "1 day", "7 days", "12 hours", "90 seconds", "1 week 2 days", "0.5 s"]


def moment(draw):
    """A time, often at an edge of the calendar."""
    year = draw.choice([5, 99, 1582, 1900, 1969, 1970, 1999, 2000, 2004, 2019, 2020, 2100, 9999])
    start = datetime(year, draw.choice([1, 1, 2, 3, 6, 12, 12]), draw.choice([1, 2, 12, 27, 28]))
    micros = draw.choice([0, 1, 999_999, 500_000, 123_456, 86_399_999_999, 43_200_000_000])
    try:
        return start + timedelta(days=draw.randrange(-3, 4), microseconds=micros)
    except OverflowError:
        return start


def time(draw):
    """A date, a timestamp or NULL in SQL."""
    value = moment(draw)
    kinds = [f"TIMESTAMP '{value}'"] * 4 + [f"DATE '{value.date()}'", "NULL::timestamp"]
    return draw.choice(kinds)


def to_char_of_a_time(draw):
    """A template of words that are known, with prefixes, suffixes and texts between."""
    words = [
        draw.choice(["", "", "", "FM", "fm"]) + draw.choice(KNOWN_DATES)
        + draw.choice(["", "", "", "TH", "th"]) + draw.choice(BETWEEN)
        for _ in range(draw.randrange(1, 5))
    ]  # fmt: skip
    return f"to_char({time(draw)}, '{''.join(words)}')"


def number(draw):
    """A number of any type in SQL, near the ends of what a template holds."""
    size = draw.choice(
        [0, 0.4, 0.5, 0.95, 1, 9, 9.5, 99.995, 100, 999.5, 1234.5, 99999, 123456.789]
    )
    size = draw.choice([size, draw.randrange(10**6) / draw.choice([1, 10, 1000, 10**5])])
    sign = draw.choice([1, -1])
    kind = draw.choice(["int", "bigint", "numeric", "numeric(12,3)", "float8"])
    if kind in ("int", "bigint"):
        return f"{sign * int(size)}::{kind}"
    return draw.choice([f"({sign * size!r})::{kind}"] * 9 + [f"NULL::{kind}"])


def to_char_of_a_number(draw):
    """A template of digits, groups and a point, with FM, a sign and other texts."""
    digits = "".join(draw.choice("9999990") for _ in range(draw.randrange(1, 8)))
    if draw.random() < 0.5:
        group = draw.choice([",", "G", ","])
        digits = "".join(d + (group if draw.random() < 0.3 else "") for d in digits).strip(",G")
    if draw.random() < 0.6:
        digits += draw.choice(".D.") + "".join(
            draw.choice("990") for _ in range(draw.randrange(1, 5))
        )
    fill, sign = draw.choice(["", "FM"]), draw.choice(["", "", "S", "MI", "-MI"])
    before, after = draw.choice(["", "", "$", '"n "']), draw.choice(["", "", "%", " k", '"x9"'])
    if sign == "-MI":
        digits, sign = f"{digits}MI", ""
    shape = f"{fill}{before if not sign else ''}{sign}{digits}{after}"
    return f"to_char({number(draw)}, '{shape}')"


def width_bucket(draw):
    """Bounds in either order, values at them and outside."""
    low, high = draw.choice([(0, 10), (10, 0), (-5, 5), (0.5, 2.25), (1, 1), (100, 1000)])
    at = draw.choice([low, high, low - 1, high + 1, (low + high) / 2, draw.uniform(low, high)])
    kind = draw.choice(["numeric", "float8", "int"])
    values = [f"({draw.choice([x, x, round(x, 2)])})::{kind}" for x in (at, low, high)]
    count = draw.choice([1, 2, 3, 4, 10, 100, 0, -1, "NULL::int"])
    if draw.random() < 0.2:
        values[draw.randrange(3)] = "NULL"
    if draw.random() < 0.2:
        return f"width_bucket({values[0]}, ARRAY[-1, 0, 2.5, 7])"
    return f"width_bucket({', '.join(values)}, {count})"


def date_bin(draw):
    """Times before and after the origin."""
    return f"date_bin('{draw.choice(STRIDES)}', {time(draw)}, TIMESTAMP '{moment(draw)}')"


def age(draw):
    """An age as text, and its fields."""
    text = f"age({time(draw)}, {time(draw)})"
    field = draw.choice(["year", "month", "day", "hour", "minute", "second", "epoch", "text"])
    return f"({text})::text" if field == "text" else f"EXTRACT({field} FROM {text})"


def interval(draw):
    """Sums and multiples of intervals, as text and added to a time."""
    units = ["years", "mons", "days", "hours", "min", "secs", "weeks"]
    parts = [f"{draw.randrange(-40, 41)} {draw.choice(units)}" for _ in range(draw.randrange(1, 4))]
    text = f"INTERVAL '{' '.join(parts)}' * {draw.choice([1, 2, -3, 0])}"
    if draw.random() < 0.3:
        return f"TIMESTAMP '2020-01-31 12:00' + {text}"
    return f"({text})::text"


def regexp(draw):
    """Sequences of characters and classes that overlap, on texts of the same few."""
    atoms = ["a", "b", ".", "[ab]", "[^a]", "[b-d1]", "\\d", "\\w", "é", "-"]
    pattern = "".join(
        draw.choice(atoms) + draw.choice(["", "", "*", "+"]) for _ in range(draw.randrange(1, 6))
    )
    pattern = draw.choice(["", "", "^"]) + pattern + draw.choice(["", "", "$"])
    text = "".join(draw.choice("aabbcd1-é ") for _ in range(draw.randrange(12)))
    flags = draw.choice(["", ", 'g'", ", 'i'", ", 'gi'"])
    if draw.random() < 0.5:
        return f"substring('{text}' FROM '{pattern}')"
    return f"regexp_replace('{text}', '{pattern}', '<>'{flags})"


def empty(text):
    """Whether a regular expression matches nothing, which is refused."""
    pattern = text.split("'")[3].strip("^$")
    return re.fullmatch(pattern, "") is not None


MAKERS = [to_char_of_a_time, to_char_of_a_number, width_bucket, date_bin, age, interval, regexp]
SEEDS = [(make, seed) for seed in range(8) for make in MAKERS]


@pytest.mark.parametrize("make, seed", share(len(MAKERS), SEEDS, 4 * len(MAKERS)))
def test_random_values_equal_postgresql(make, seed, postgres):
    """
    What PostgreSQL computes we compute alike; what fails there is refused here.
    """
    draw = random.Random(f"{make.__name__} {seed}")
    wrong, answered = [], 0
    for _ in range(EACH):
        text = make(draw)
        ours, theirs = answer(text), reference(postgres, text)
        answered += ours is not None
        if ours is None and theirs is not None and not (make is regexp and empty(text)):
            wrong.append(f"{text}: refused, PostgreSQL has {theirs}")
        elif ours is not None and (theirs is None or not close(ours, theirs)):
            wrong.append(f"{text}: {ours}, PostgreSQL has {theirs}")
    assert not wrong, "\n".join(wrong)
    assert answered > EACH // 2


PARTS = {
    "YYYY": ["2024", "1999", "0024", "999"], "YYY": ["024", "999"], "YY": ["24", "69", "70"],
    "Y": ["4"], "MM": ["02", "2", "12", "13"], "DD": ["29", "1", "31"], "DDD": ["060", "366", "7"],
    "HH24": ["23", "0", "24"], "HH12": ["12", "1", "13"], "HH": ["11", "12"], "MI": ["59", "5"],
    "SS": ["07", "60"], "MS": ["05", "5"], "US": ["000005", "5"], "AM": ["am", "PM"],
    "pm": ["PM", "am"], "Mon": ["Feb", "DEC"], "Q": ["1"], "D": ["1"], "IYYY": ["2024"],
    "WW": ["1"], "W": ["1"],
}  # fmt: skip
YEARS = ("YYYY", "YYY", "YY", "Y")


def reading(draw):
    """to_date or to_timestamp of a text that has the parts of a template, mostly a year."""
    words = draw.sample([word for word in PARTS if word not in YEARS], draw.randrange(4))
    words += [draw.choice(YEARS)] * (draw.random() < 0.9)
    draw.shuffle(words)
    text = template = ""
    for word in words:
        between = draw.choice(["-", "/", ".", " ", ":", "T", '"T"', "", "-", "-"]) * bool(template)
        template += between + draw.choice([word, word, word.lower()])
        text += between.strip('"') + draw.choice(PARTS[word])
    text += draw.choice([""] * 8 + ["x", " "])
    if draw.random() < 0.5:
        return f"to_date('{text}', '{template}')"
    return f"to_timestamp('{text}', '{template}')::timestamp"


@pytest.mark.parametrize("seed", range(3))
def test_what_is_read_by_a_template_is_what_postgresql_reads(seed, postgres):
    """
    Or it is refused, as where no year is told: PostgreSQL's is the one before our era.
    """
    draw, wrong, answered = random.Random(seed), [], 0
    for _ in range(5 * EACH):
        text = reading(draw)
        ours = answer(text)
        answered += ours is not None
        if ours is not None and ours != (theirs := reference(postgres, text)):
            wrong.append(f"{text}: {ours}, PostgreSQL has {theirs}")
    assert not wrong, "\n".join(wrong)
    assert answered > EACH


@pytest.mark.parametrize(
    "text, value",
    [
        ("to_date('29 Feb 2024', 'DD Mon YYYY')", date(2024, 2, 29)),
        ("to_date('24-02-29', 'YY-MM-DD')", date(2024, 2, 29)),
        ("to_date('2024060', 'YYYYDDD')", date(2024, 2, 29)),
        ("to_date('2024-02', 'YYYY-MM')", date(2024, 2, 1)),
        ("to_timestamp('2024-02-29T01:30 PM', 'YYYY-MM-DD\"T\"HH12:MI AM')::timestamp",
            datetime(2024, 2, 29, 13, 30)),
        ("to_timestamp('2024-02-29T12:30', 'YYYY-MM-DDTHH24:MI')::timestamp", None),
        ("to_timestamp('12:30', 'HH24:MI')::timestamp", None),
        ("to_date('02-28', 'MM-DD')", None),
        ("to_date('2024-1', 'YYYY-Q')", None),
        ("to_date('2024-08', 'IYYY-IW')", None),
        ("to_date('2024-02-29', '%Y-%m-%d')", None),
    ],
)  # fmt: skip
def test_templates_that_are_read(text, value):
    """
    Those of a year and parts that do not contradict one another; others are refused.
    """
    assert answer(text) == (value and (plain(value),))
