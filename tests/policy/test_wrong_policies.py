"""A wrong policy is refused with its file, its line, its key, and what is allowed."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.errors import PolicyError
from proxy.policy import load
from tests.policy.people import GOOD, LIST, axis, changed, partitioned

AGE = "{type: integer, range: [18, 62]}"
WAGE = "{clip: [0, 2000], quantum: 0.01}"
DUCK = "{engine: duckdb, path: people.csv}"
DEEP = "[" * 40 + "]" * 40
BOMB = ["a: &a [x, x, x, x, x, x, x, x, x, x]"] + [
    f"{this}: &{this} [{', '.join(['*' + before] * 10)}]"
    for before, this in ["ab", "bc", "cd", "de", "ef", "fg"]
]

# fmt: off
# (what is replaced, by what, line, key, a part of the message)
WRONG = [
    # keys
    ("dataset: people", "datset: people", 1, "datset", "unknown key, did you mean dataset?"),
    ("max_records: 1_000_000\n", "", 1, "max_records", "missing; expected a whole number"),
    ("outside: drop\n", "", 1, "outside", "missing; expected group | drop | clamp | error"),
    ("nulls: group\n", "", 1, "nulls", "missing; expected group | drop | error"),
    ("  unit: row\n", "", 14, "privacy.unit", "missing; expected row, or {column: …"),
    ("  budget: 0.1\n", "", 14, "privacy.budget", "missing; expected a number more than 0"),
    ("budget: 0.1\n", "bugdet: 0.1\n", 15, "privacy.bugdet", "did you mean budget?"),
    ("nulls: group", "nulls: group\nnulls: drop", 6, "nulls", "there twice, first in line 5"),
    (AGE, "{rang: [0, 3]}", 7, "attributes.age.rang", "did you mean range?"),
    ("analysts: {alice: {budget", "analysts: {alice: {spent", 20, "analysts.alice.spent",
     "unknown key, did you mean spend?"),
    ("dataset: people", 'dataset: "two\\nlines"', 1, "dataset", "a control character or a line"),
    ("dataset: people", "dataset: " + "ä" * 32, 1, "dataset", "longer than 63 bytes"),
    ("dataset: people", "dataset: '  '", 1, "dataset", "the text is empty; expected a name"),
    ("dataset: people", "dataset: 1988", 1, "dataset", "write '1988'"),
    ("outside: drop", "outside: clip", 4, "outside", "expected group | drop | clamp | error"),
    ("nulls: group", "nulls: clamp", 5, "nulls", "expected group | drop | error"),
    ("attributes:", "attributes: []\npublic:", 6, "attributes", "a list is not allowed; expected"),
    ("privacy:", "privacy: strict\npublic:", 14, "privacy", "strict is not allowed; expected"),
    ("dataset: people", "dataset: [people]", 1, "dataset", "a list is not allowed"),
    ("dataset: people", "dataset:", 1, "dataset", "nothing is there; expected a name"),
    ("budget: 0.1\n", "budget: [0.1]\n", 15, "privacy.budget", "a list is not allowed"),
    ("[age, region]", "age", 18, "privacy.guards[0].for_each", "age is not allowed"),
    ("  wage:", "  " + "w" * 64 + ":", 13, "measures." + "w" * 64, "longer than 63 bytes"),
    # what YAML reads otherwise
    ("['no', 'yes']", "[no, yes]", 9, "attributes.smokes.values[0]",
     "no is read as a boolean; for the text write 'no', or say type: boolean"),
    ("['no', 'yes']", "['no', on]", 9, "attributes.smokes.values[1]", "write 'on'"),
    (LIST, "[north, 1e3]", 10, "attributes.region.values[1]", "write '1e3'"),
    (LIST, "[012, 013]", 10, "attributes.region.values[0]",
     "012 is read as the octal number 10; for the text write '012'"),
    (LIST, "[01001, 08003]", 10, "attributes.region.values[0]", "write '01001'"),
    (LIST, "[0x1F, 1]", 10, "attributes.region.values[0]", "is read as the number 31"),
    (LIST, "[north, 12:30]", 10, "attributes.region.values[1]", "to base 60; for the text"),
    (LIST, "[2020-01-01]", 10, "attributes.region.values[0]",
     "is read as a date; for the text write '2020-01-01', or say type: date"),
    (LIST, "[north, null]", 10, "attributes.region.values[1]", "see nulls: group"),
    (LIST, "[north, ~]", 10, "attributes.region.values[1]", "~ is read as null"),
    (LIST, "[north, 7]", 10, "attributes.region.values[1]", "7 is read as a number"),
    (LIST, "{type: a}", 10, "attributes.region.values.type", "unknown key; allowed: path, column"),
    ("  age: {", "  no: {", 7, "attributes.no", "no is read as a boolean; for the text write 'no'"),
    ("budget: 0.1\n", "budget: 1e3\n", 15, "privacy.budget", "1e3 is text to some readers"),
    ("budget: 0.1\n", "budget: '0.1'\n", 15, "privacy.budget", "write it without the quotes"),
    ("budget: 0.1\n", "budget: 010\n", 15, "privacy.budget", "the octal number 8"),
    ("1_000_000", "1.5", 3, "max_records", "1.5 is not allowed; expected a whole number"),
    ("1_000_000", "0x_", 3, "max_records", "0x_ is not allowed; expected a whole number"),
    ("1_000_000", "0x" + "f" * 5000, 3, "max_records", "fff... is not allowed"),
    ("1_000_000", "9" * 5000, 3, "max_records", "more than 60 digits"),
    ("1_000_000", "09", 3, "max_records", "09 has a leading zero"),
    ("spend: off", "spend: 'off'", 20, "analysts.bi.spend", "'off' is not allowed"),
    ("spend: off", "spend: maybe", 20, "analysts.bi.spend", "expected on | off"),
    ("dataset: people", "description: no\ndataset: people", 1, "description", "write 'no'"),
    # YAML itself
    ("  budget: 0.1", "\tbudget: 0.1", 15, None, "a tab; YAML indents with spaces"),
    ("dataset: people", "dataset: [people", 2, None, "not YAML: "),
    ("timezone: Europe/Berlin", "timezone: 'Europe", 23, None, "not YAML: "),
    ("nulls: group", f"nulls: {DEEP}", 5, None, "nested more than 32 levels deep"),
    ("dataset: people", "\n".join([*BOMB, "dataset: people"]), 1, "e", "expand to too much"),
    ("dataset: people", "dataset: &a [*a]", 1, "dataset", "expand to too much"),
    ("dataset: people", "dataset: *people", 1, None, "text that begins with * is quoted"),
    ("dataset: people", "dataset: !!python/name:os.system people", 1, "dataset", "tags are not"),
    ("dataset: people", "dataset: !!map {}\n<<: {}", 2, "<<", "merge keys are not read"),
    ("dataset: people", "? [a]\n: 1\ndataset: people", 1, None, "a key is one word"),
    ("dataset: people", "dataset: people\n---\nx: 1", 2, None, "a file holds one"),
    ("dataset: people", "dataset: peo\x07ple", 1, None, "U+0007 is not allowed"),
    ("timezone: Europe/Berlin", "timezone: ''", 23, "timezone", "the text is empty"),
    ("timezone: Europe/Berlin", 'timezone: "a\\0"', 23, "timezone", "a character of the code 0"),
    ("dataset: people", r'dataset: "\ud800"', 1, None, "half of a pair"),
    ("dataset: people", r'"\ud800": people', 1, None, "half of a pair"),
    ("dataset: people", r'dataset: "\UFFFFFFFF"', 1, None, "no character"),
    # source
    (DUCK, "{engine: oracle}", 2, "source.engine", "expected duckdb | postgres | spark"),
    (DUCK, "{engine: duckdb}", 2, "source", "needs path"),
    (DUCK, "{engine: duckdb, path: people.xls}", 2, "source.path", "ends in none of .csv"),
    (DUCK, "{engine: duckdb, path: s3://people.csv}", 2, "source.path", "not a URL"),
    (DUCK, "{engine: duckdb, path: a.csv, table: t}", 2, "source.table", "leave table out"),
    (DUCK, "{engine: duckdb, path: a.duckdb}", 2, "source", "needs table or query"),
    (DUCK, "{engine: duckdb, path: a.db, table: t, query: SELECT 1}", 2, "source.query",
     "table is there too"),
    (DUCK, "{engine: duckdb, path: a.csv, dsn: x}", 2, "source.dsn", "leave dsn out"),
    (DUCK, "{engine: postgres, dsn: host=x}", 2, "source", "needs table or query"),
    (DUCK, "{engine: postgres, table: t}", 2, "source", "needs dsn"),
    (DUCK, "{engine: postgres, dsn: x, path: a.csv}", 2, "source.path", "connects by dsn"),
    (DUCK, "{engine: spark}", 2, "source", "needs path, table or query"),
    (DUCK, "{engine: spark, path: a.csv}", 2, "source.path", "reads Parquet"),
    (DUCK, "{engine: spark, path: a, table: t}", 2, "source.table", "leave table out"),
    (DUCK, "{engine: spark, dsn: x, table: t}", 2, "source.dsn", "has no use for it"),
    (DUCK, "{engine: spark, master: here, table: t}", 2, "source.master", "is expected"),
    (DUCK, "{engine: spark, master: 'sc://h/;token=x', table: t}", 2, "source.master", "a token"),
    (DUCK, "{engine: spark, master: 'sc://me@h', table: t}", 2, "source.master", "a user"),
    (DUCK, "{engine: duckdb, path: a.csv, master: yarn}", 2, "source.master", "has no use for it"),
    # attributes
    (AGE, "{type: integer}", 7, "attributes.age", "no domain; expected one of range"),
    (AGE, "", 7, "attributes.age", "no domain; expected one of range"),
    (AGE, "{range: [0, 3], values: [1]}", 7, "attributes.age.values", "range is there too"),
    (AGE, "{range: [3, 0]}", 7, "attributes.age.range", "got [3, 0]"),
    (AGE, "{range: [0, 1, 2]}", 7, "attributes.age.range", "3 entries; expected a pair"),
    (AGE, "{range: [0, 1.5]}", 7, "attributes.age.range[1]", "1.5 is not allowed"),
    (AGE, "{range: [0, .inf]}", 7, "attributes.age.range[1]", ".inf is not allowed"),
    (AGE, "{range: [0, 16_777_216]}", 7, "attributes.age.range", "at most 16,777,216: use edges"),
    (AGE, "{range: [0, 99999999999999999999]}", 7, "attributes.age.range[1]", "of 64 bits"),
    (AGE, "{edges: [-9223372036854775809, 0]}", 7, "attributes.age.edges[0]", "of 64 bits"),
    (AGE, "{type: text, range: [0, 3]}", 7, "attributes.age.type", "range is for integers"),
    (AGE, "{type: int, range: [0, 3]}", 7, "attributes.age.type", "did you mean integer?"),
    (AGE, "{edges: [0]}", 7, "attributes.age.edges", "with at least 2"),
    (AGE, "{edges: [0, 5, 5]}", 7, "attributes.age.edges[2]", "5 follows 5"),
    (AGE, "{type: integer, edges: [0, 0.5]}", 7, "attributes.age.edges[1]", "whole number"),
    (AGE, "{edges: [a, b]}", 7, "attributes.age.edges", "text needs values"),
    (AGE, "{values: []}", 7, "attributes.age.values", "an empty list"),
    (AGE, "{values: [a, b, a]}", 7, "attributes.age.values[2]", "a is there twice"),
    (AGE, "{values: [1.0, 1.00]}", 7, "attributes.age.values[1]", "1.00 is there twice"),
    (AGE, "{values: [[a]]}", 7, "attributes.age.values[0]", "a list is not allowed"),
    (AGE, "{type: boolean, values: [a]}", 7, "attributes.age.values[0]", "expected true | false"),
    (AGE, "{type: date, values: [2020-02-30]}", 7, "attributes.age.values[0]", "a date such as"),
    (AGE, "{type: timestamp, values: ['2020-01-01 00:00+02']}", 7, "attributes.age.values[0]",
     "without zone"),
    (AGE, "{values: {path: no.csv, column: a}}", 7, "attributes.age.values.path", "No such file"),
    (AGE, "{range: [0, 3], cut: snap}", 7, "attributes.age.cut", "no predicate can cut it"),
    (AGE, "{values: [a], outside: clamp}", 7, "attributes.age.outside", "clamp needs range"),
    ("outside: drop", "outside: clamp", 9, "attributes.smokes", "clamp needs range"),
    (AGE, "{range: [0, 3], column: a, expression: b}", 7, "attributes.age.expression",
     "column is there too"),
    ("  age:", '  "a\\0ge":', 7, "attributes.a\0ge", "not a name: it is empty, or has a control"),
    ("  age:", "  '':", 7, "attributes.", "not a name: it is empty, or has a control"),
    ("  age:", "  Seen:", 8, "attributes.seen", "taken by attributes.Seen in line 7"),
    ("  wage:", "  AGE:", 13, "measures.AGE", "taken by attributes.age in line 7"),
    (LIST, LIST + ", levels: {AGE: {a: [north, south, west]}}", 10,
     "attributes.region.levels.AGE", "taken by attributes.age in line 7"),
    (LIST, LIST + ", levels: {area: {a: [north, south]}}", 10, "attributes.region.levels.area",
     "no label has west"),
    (LIST, "[a, b, c, d, e], levels: {x: {y: [a]}}", 10, "attributes.region.levels.x",
     "no label has b, c, d and 1 more"),
    (LIST, LIST + ", levels: {area: {a: [norht]}}", 10, "attributes.region.levels.area.a[0]",
     "norht is no value of the attribute, did you mean north?"),
    (LIST, LIST + ", levels: {area: {a: [north], b: [north]}}", 10,
     "attributes.region.levels.area.b[0]", "north is under a too"),
    ("from: 2020-01-01", "from: 2020-01-02", 11, "attributes.born.from",
     "not the first day of a month; nearest are 2020-01-01 and 2020-02-01"),
    ("to: 2020-12-31", "to: 2020-12-30", 11, "attributes.born.to",
     "not the last day of a month; nearest are 2020-11-30 and 2020-12-31"),
    ("to: 2020-12-31", "to: 2019-12-31", 11, "attributes.born.to", "lies before 2020-01-01"),
    ("to: 2020-12-31", "to: 9999-12-31", 11, "attributes.born.to", "years from 2 to 9998"),
    (", to: 2020-12-31", "", 11, "attributes.born.from", "from needs to beside it"),
    ("from: 2020-01-01, ", "", 11, "attributes.born.to", "to needs from beside it"),
    ("bin: month", "bin: decade", 11, "attributes.born.bin", "expected day | week | month"),
    ("{from", "{type: integer, from", 11, "attributes.born.type", "date and timestamp, not"),
    (AGE, AGE + "\n" + "\n".join(f"  a{i}: {{range: [1, 100]}}" for i in range(9)), 6,
     "attributes", "at most 2^62 can be numbered"),
    (AGE, AGE + "\n" + "\n".join(f"  a{i}: {{range: [1, 100]}}" for i in range(200)), 6,
     "attributes", "e+405 cells, at most 2^62"),  # more than a float holds
    # measures
    (WAGE, "{clip: [0, 0.005], quantum: 0.01}", 13, "measures.wage.clip[1]",
     "0.005 is not a multiple of the quantum 0.01; the nearest is 0"),
    (WAGE, "{clip: [2, 1], quantum: 1}", 13, "measures.wage.clip", "low < high; got [2, 1]"),
    (WAGE, "{clip: [0, 1], quantum: 0}", 13, "measures.wage.quantum", "more than 0"),
    (WAGE, "{clip: [0, 1]}", 13, "measures.wage.quantum", "missing"),
    (WAGE, "{clip: [0, 1_000_000], quantum: 0.00000001}", 13, "measures.wage.clip",
     "pass 2^63 quanta"),
    (WAGE, "{clip: [0, 1], quantum: 1, utility: {delta: 0.1}}", 13,
     "measures.wage.utility.half_width", "missing"),
    # privacy
    ("budget: 0.1\n", "budget: 0\n", 15, "privacy.budget", "0 is not allowed; expected a number"),
    ("budget: 0.1\n", "budget: -1\n", 15, "privacy.budget", "more than 0"),
    ("budget: 0.1\n", "budget: .nan\n", 15, "privacy.budget", ".nan is not allowed"),
    ("budget: 0.1\n", "budget: 1.0e-30\n", 15, "privacy.budget", "the smallest charge"),
    ("budget: 0.1\n", "budget: 1_000_001\n", 15, "privacy.budget", "at most 1000000"),
    ("unit: row", "unit:", 16, "privacy.unit", "nothing is there; expected row"),
    ("unit: row", "unit: person", 16, "privacy.unit", "person is not allowed; expected row"),
    ("unit: row", "unit: {column: person}", 16, "privacy.unit.max_rows", "missing"),
    ("unit: row", "unit: {column: person, max_rows: 0}", 16, "privacy.unit.max_rows",
     "at least 1"),
    ("unit: row", "unit: {column: age, max_rows: 2}", 16, "privacy.unit.column",
     "age is the attribute or measure age"),
    ("unit: row", "unit: {column: Region, max_rows: 2}", 16, "privacy.unit.column",
     "Region is the attribute or measure region"),
    ("budget: 0.05}]", "budget: 0.2}]", 17, "privacy.cells[0].budget",
     "0.2 is more than the budget 0.1"),
    ('where: "age < 20"', 'where: ""', 17, "privacy.cells[0].where", "the text is empty"),
    ("BETWEEN 0 AND 5", "\\n< 5", 18, "privacy.guards[0].claim", "expected COUNT(*) BETWEEN low"),
    ("BETWEEN 0 AND 5", "BETWEEN 5 AND 0", 18, "privacy.guards[0].claim", "got 5 and 0"),
    ("[age, region]", "[age, regio]", 18, "privacy.guards[0].for_each[1]",
     "no attribute regio, did you mean region?"),
    ("[age, region]", "[age, age]", 18, "privacy.guards[0].for_each[1]", "there twice"),
    ("[age, region]", "[]", 18, "privacy.guards[0].for_each", "an empty list"),
    ("confidence: 0.95", "confidence: 1", 18, "privacy.guards[0].confidence", "less than 1"),
    ("per:", "floor: 0.2\n  per:", 19, "privacy.floor", "more than the budget"),
    ("per:", "history_size: {total: 3, analyst: 4}\n  per:", 19, "privacy.history_size.analyst",
     "more than total"),
    ("day: 0.01", "day: 0.06", 19, "privacy.per.day", "more than in a week"),
    ("week: 0.05", "week: 0.5", 19, "privacy.per.week", "0.5 is more than the budget 0.1"),
    ("week: 0.05", "month: 0.05", 19, "privacy.per.month", "allowed: day, week"),
    # the rest
    ("{budget: 0.05}, bi", "{budget: 0.5}, bi", 20, "analysts.alice.budget",
     "0.5 is more than the budget 0.1"),
    ("{spend: off}", "{history: own}", 20, "analysts.bi", "history: own needs a budget"),
    ("{budget: 0.05}, bi", "{budget: 0.09, history: own}, bi", 21, "groups.survey.budget",
     "own histories together pass the budget 0.1 by 0.01"),
    ("per:", "history: own\n  per:", 21, "analysts.bi", "history: own needs a budget"),
    ("half_width: 100", "half_width: 0", 22, "utility.half_width", "more than 0"),
    ("delta: 0.05", "delta: 1", 22, "utility.delta", "less than 1"),
    ("Europe/Berlin", "Europe/Berln", 23, "timezone", "did you mean Europe/Berlin"),
    ("Europe/Berlin", "../etc/passwd", 23, "timezone", "no time zone ../etc/passwd"),
    ("Europe/Berlin", "localtime", 23, "timezone", "no time zone localtime"),
    ("timezone: Europe/Berlin", "public: {p: {path: p.csv}}", 23, "public.p.path", "no file"),
    ("timezone: Europe/Berlin", "public: {p: {path: p.xls}}", 23, "public.p.path", "ends in none"),
    ("timezone: Europe/Berlin", "public: {People: {path: p.csv}}", 23, "public.People", "taken"),
    ("timezone: Europe/Berlin", "partition: {column: age, grain: day}", 23, "partition.column",
     "age is of type integer"),
    ("timezone: Europe/Berlin", "partition: {column: bor, grain: day}", 23, "partition.column",
     "no attribute bor, did you mean born?"),
    ("timezone: Europe/Berlin", "partition: {column: born, grain: week}", 23, "partition.grain",
     "from 2020-01-01 lies in more than one week"),
    ("timezone: Europe/Berlin", "partition: {column: born, grain: year}", 23, "partition.column",
     "born has nulls: group; partitions need drop or error"),
    ("timezone: Europe/Berlin", "partition: {column: born, grain: year, closes: -1}", 23,
     "partition.closes", "-1 is not allowed"),
    # each allowed, and together no sense
    ("half_width: 100", "half_width: 1_000_000", 22, "utility.half_width", "says nothing"),
    ("BETWEEN 0 AND 5", "BETWEEN 0 AND 1_000_000", 18, "privacy.guards[0].claim", "beforehand"),
    ("BETWEEN 0 AND 5", "BETWEEN 0 AND 900_000", 18, "privacy.guards[0].claim",
     "nothing could be measured"),
]  # fmt: skip

# fmt: on


@pytest.mark.parametrize(
    ("change", "key", "message"),
    [
        (("unit: row", "unit: {column: who, max_rows: 2}"), "partition", "need unit: row"),
        (("month, nulls: drop", "month, nulls: drop, outside: clamp"), "partition.column",
         "born has outside: clamp; partitions need drop or error"),
    ],
)  # fmt: skip
def test_partitions_that_somebody_is_in_twice_are_refused(policy, change, key, message):
    """
    With the reason: costs of periods are not added up.
    """
    with pytest.raises(PolicyError, match=message) as refused:
        policy(changed(change, text=partitioned()))
    assert refused.value.key == key


@pytest.mark.parametrize(("old", "new", "line", "key", "message"), WRONG)
def test_a_wrong_policy_says_where_and_why(policy, old, new, line, key, message):
    """
    One fault in the good policy: file, line, key, and what is allowed, in one line.
    """
    with pytest.raises(PolicyError, match=re.escape(message)) as caught:
        policy(changed((old, new)))

    error = caught.value
    assert (error.line, error.key) == (line, key)
    assert error.file.endswith("people.yaml")
    for each in (error, *error.others):
        assert each.message.startswith(f"{each.file}:{each.line}: ")
        assert "\n" not in each.message
        assert each.hint


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "hint"),
    [
        ("delta: 0.05", "delta: 0.95", 22, "utility.delta", "for 95% write 0.05"),
        ("confidence: 0.95", "confidence: 0.05", 18, "privacy.guards[0].confidence", "write 0.95"),
    ],
)
def test_a_delta_and_a_confidence_are_not_mistaken(policy, old, new, line, key, hint):
    """
    The hint says what to write.
    """
    with pytest.raises(PolicyError, match=r"0\.5") as caught:
        policy(changed((old, new)))
    assert (caught.value.line, caught.value.key) == (line, key)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b"", 1, "the file is empty"),
        (b"# only a comment\n", 1, "the file is empty"),
        (b"- a\n- b\n", 1, "not a mapping"),
        (b"cps1988", 1, "not a mapping"),
        (b"dataset: people\nsource: \xff\xfe", 2, "not UTF-8"),
        (b"#" * 1_000_001, 1, "larger than 1,000,000 bytes"),
        (b"\x00", 1, "U+0000"),
    ],
)
def test_a_file_that_is_no_policy_at_all(tmp_path, content, line, message):
    """
    Empty, no mapping, not UTF-8, too large.
    """
    (tmp_path / "wrong.yaml").write_bytes(content)

    with pytest.raises(PolicyError, match=re.escape(message)) as caught:
        load(tmp_path / "wrong.yaml")
    assert caught.value.line == line


def test_a_file_that_is_not_there(tmp_path):
    """
    Missing, or a directory.
    """
    with pytest.raises(PolicyError, match="there is no such file"):
        load(tmp_path / "missing.yaml")
    with pytest.raises(PolicyError, match="this is a directory"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("csv", "declaration", "line", "message"),
    [
        ("a\nx\n", "column: b", 7, "values.csv has no column b"),
        ("a\n", "column: a", 7, "has no rows"),
        ('a\n"x', "column: a", 7, "not a CSV file in UTF-8"),
        (
            "a\n1\nx\n",
            "column: a}, type: integer, cut: {",
            3,
            "values.csv:3: a: 'x' is not allowed",
        ),
        ("a,b\nx,1\ny\n", "column: b", 3, "is read as null"),
    ],
)
def test_a_public_file_that_is_wrong(policy, csv, declaration, line, message):
    """
    A fault in the file of values bears the line of that file.
    """
    declaration = f"{{values: {{path: values.csv, {declaration}}}}}".replace(", cut: {}", "")

    with pytest.raises(PolicyError, match=re.escape(message)) as caught:
        axis(policy, declaration, values=csv)
    assert caught.value.line == line


@given(st.text(st.characters(codec="utf-8"), max_size=60), st.integers(0, len(GOOD)))
@example("&a [*a]", 9)
@example("!!binary aGk=", 9)
@example("? ", 0)
@example("\u2028", 200)
@example('"\\ud800"', 9)
@example('"\\UFFFFFFFF"', 9)
@example('"x\\ny": 1\n', 0)
def test_no_text_breaks_the_reader(tmp_path_factory, text, place):
    """
    Whatever is typed anywhere, the policy loads or is refused in one line.
    """
    path = tmp_path_factory.mktemp("any") / "any.yaml"
    path.write_text(GOOD[:place] + text + GOOD[place:], encoding="utf-8")

    error = None
    try:
        load(path)
    except PolicyError as caught:
        error = caught
    if error:
        assert all(len(each.message.splitlines()) == 1 for each in (error, *error.others))
        assert error.line is not None
        assert 1 <= error.line <= GOOD.count("\n") + len(text) + 1
