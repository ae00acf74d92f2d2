"""What the page shows of a result, and what can be taken away: from values to values."""

import ast
import io
import json
from contextlib import redirect_stderr, redirect_stdout
from datetime import date, datetime
from decimal import Decimal
from math import inf, nan

import duckdb
import pytest
from msgspec.structs import replace

import proxy.policy as policies
from proxy.cli import show
from proxy.console import downloads, results
from proxy.engine import Answer, Column, Result
from proxy.engine.answers import Explanation, Origin, Posterior
from tests.small import DOMAIN, PRIVACY

HOSTILE = ["", "NULL", 'a "b", c', "=1+1", "</script>", "x\r\ny", "'; --", "é\u2028"]


def answer(estimate=10.4, low=5.5, high=15.1, source="measured", cost=0.25):
    return Answer(estimate, low, high, 0.95, source, cost)


def counted(*rows, kind="text", name="k", answers=None):
    """A result with a key and a number of each row."""
    columns = (Column(name, kind), Column("n", "bigint"))
    answers = answers or [[answer(n)] for _, n in rows]
    return Result(columns, list(rows), answers, 0.25, 0.75, places=[[1]] * len(rows), numbers=1)


@pytest.fixture
def policy(tmp_path):
    """A policy in which a town may be missing, or none of those that are declared."""
    text = DOMAIN.replace("{values: [a, b]}", "{values: [a, b], nulls: group, outside: group}")
    (tmp_path / "people.yaml").write_text(text + PRIVACY)
    return policies.load(tmp_path / "people.yaml")


def test_a_number_is_shown_with_its_interval_its_source_and_its_cost(policy):
    """The ends are rounded outwards, and the confidence down."""
    ours = Answer(10.4, 5.56, 15.01, 0.94999, "inferred", 0.0)
    shown = results.view(counted(("a", 10), answers=[[ours]]), policy)
    assert shown["rows"] == [
        ["a", ["10", "[5.5, 15.1] 94.99%", "inferred", "free", 10.4, 5.56, 15.01]]
    ]
    assert shown["sources"].keys() == {"inferred"}
    assert (shown["cost"], shown["left"]) == ("0.25", "0.75")


def test_what_has_no_end_or_no_value_is_json_all_the_same(policy):
    """A ratio of nothing is NULL, an endless interval has no ends; unknown ones have none."""
    rows = [(nan, None), (inf, 5)]
    answers = [[Answer(nan, -inf, inf, 0.95, "unknown", 0.0)], [answer(low=-inf)]]
    shown = results.view(counted(*rows, kind="double precision", answers=answers), policy)
    assert json.loads(json.dumps(shown, allow_nan=False))["rows"] == [
        ["nan", [None, "", "unknown", "free", None, None, None]],
        ["inf", ["5", "[-inf, 15.10] 95%", "measured", "0.25", 10.4, None, 15.1]],
    ]


EXACT = [
    (9007199254740993, "bigint", "9007199254740993"),
    (-(10**30), "numeric", f"-1{'0' * 30}"),
    (Decimal("1.50"), "numeric", "1.50"),
    (Decimal("1.2345E-8"), "numeric", "0.000000012345"),
    (1e22, "double precision", "1e+22"),
    (True, "boolean", "true"),
    (datetime(2024, 1, 2, 3, 4), "timestamp", "2024-01-02 03:04:00"),
    ("", "text", "''"),
    ("NULL", "text", "'NULL'"),
    ("a\u202eb\x1b\nc", "text", "a\\u202eb\\x1b\nc"),
]


@pytest.mark.parametrize("value, kind, text", EXACT)
def test_a_value_is_shown_in_all_of_its_digits_as_the_command_line_does(policy, value, kind, text):
    """As a text, since a page's own numbers have but 53 bits; nothing passes for what it is not."""
    result = counted((value, 3), (None, 1), kind=kind)
    assert [row[0] for row in results.view(result, policy)["rows"]] == [text, None]
    lines = printed(show.result, result, False)
    assert all(line in lines for line in text.split("\n"))


def test_a_null_group_is_explained_by_what_the_policy_puts_into_it(policy):
    told = results.view(counted((None, 3), name="town"), policy)["nulls"]
    assert told == [
        "NULL in town: records without a value, and records whose value is none of the declared "
        "ones"
    ]
    (told,) = results.view(counted((None, 3), name="other"), policy)["nulls"]
    assert told.startswith("NULL in other: a total over all groups")
    assert results.view(counted(("a", 3)), policy)["nulls"] == []


PICTURES = [
    ("text", ["a"], "density"),
    ("text", ["a", "b"], "bars"),
    ("integer", range(20), "bars"),
    ("integer", range(100), "line"),
    ("date", [date(2024, 1, d) for d in (1, 2)], "line"),
    ("text", [f"v{i}" for i in range(100)], "bars"),
]


@pytest.mark.parametrize("kind, keys, picture", PICTURES)
def test_a_result_has_the_picture_that_fits_its_groups(policy, kind, keys, picture):
    shown = results.view(counted(*((key, 1) for key in keys), kind=kind), policy)
    assert shown["picture"]["kind"] == picture


def test_rows_without_a_number_have_no_picture(policy):
    nothing = Result((Column("k", "text"),), [("a",), ("b",)], [[], []], 0, 1, places=[[], []])
    assert results.view(nothing, policy)["picture"] is None


def test_a_number_is_explained_by_the_statements_it_follows_from(policy):
    posterior = Posterior((8.5, 9.5, 10.5), (0.0, 0.4, 1.0), 0.0, 1.0)
    when = datetime(2026, 1, 2, 3, 4)
    origins = (
        Origin("this", 1, 0.75, "SELECT <b>", when, 2, (0.5, 0.5)),
        Origin("others", 3, 0.25),
    )
    plain = counted(("a", 10), ("b", 1))
    explained = [[Explanation(posterior, origins)], [None]]
    result = replace(plain, explanations=explained)
    assert results.view(result, policy)["explained"] == [[True], [False]]
    told = results.explained(result, 0, 1)
    assert told["density"] == [(9.0, 0.4), (10.0, 0.6)]
    assert [(o["what"], o["share"], o["weights"]) for o in told["origins"]] == [
        ("1 number measured by this statement", 75, "0.5"),
        ("3 numbers of statements that you may not see", 25, None),
    ]
    assert [results.explained(result, *at) for at in ((1, 1), (0, 0), (2, 1))] == [None] * 3


def printed(function, *arguments):
    """What a function of the command line prints."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()):
        function(*arguments)
    return out.getvalue()


def test_a_download_is_what_the_command_line_writes():
    result = counted(*((text, i) for i, text in enumerate(HOSTILE)), (None, None))
    assert downloads.csv(result) == printed(show.csv, result)
    assert json.loads(downloads.as_json(result)) == json.loads(printed(show.result, result, True))


def test_parquet_has_the_same_rows_with_their_types(tmp_path):
    """No value is taken for another, nor for NULL; columns of one name get two."""
    rows = [*((text, i) for i, text in enumerate(HOSTILE)), (None, 9)]
    result = counted(*rows, name="n_low")
    (tmp_path / "x.parquet").write_bytes(downloads.parquet(result))
    read = duckdb.connect().execute(f"SELECT * FROM '{tmp_path / 'x.parquet'}'")
    names, kinds = zip(*((name, str(kind)) for name, kind, *_ in read.description), strict=True)
    assert names == ("n_low", "n", "n_low_2", "n_high", "n_source")
    assert kinds == ("VARCHAR", "BIGINT", "DOUBLE", "DOUBLE", "VARCHAR")
    assert read.fetchall() == [(*row, 5.5, 15.1, "measured") for row in rows]


@pytest.mark.parametrize(
    "statement",
    ["SELECT 1", "SELECT 'a\\b'", 'SELECT """x"""', 'SELECT 1 AS "a"', "SELECT '%s'\nFROM \"é\""],
)
def test_the_copied_program_asks_for_the_statement_and_nothing_else(statement):
    tree = ast.parse(downloads.python(statement, "it's.yaml"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    texts = [
        c.args[0].value.strip() for c in calls if c.args and isinstance(c.args[0], ast.Constant)
    ]
    assert texts[:2] == ["it's.yaml", statement]
