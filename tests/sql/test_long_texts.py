"""Long texts mean what short ones do: the same vector, the same refusal, and nothing twice."""

import random
import threading

import pytest

from proxy.errors import Error
from proxy.sql.bind.protected_rows import ColumnResolver
from proxy.sql.evaluator.evaluator import Evaluator
from proxy.sql.parse.deep_stack import DEEP, LONG, is_deep
from proxy.sql.parse.grammar import tokens
from tests.searches import share
from tests.sql.survey import program

AGES = [str(age) for age in range(-3, 45)]
EDGES = [str(edge) for edge in (-10, 0, 5, 20, 50)]
JOBS = ["'clerk'", "'O''Neil''s'", "'50%_off'", "''", "'nobody'"]
SCORES = ["-1.5", "0", "0.25", "2.50", "3", "'10.00'"]


def counted(where):
    """Return a statement that counts the records of a condition."""
    return f"SELECT COUNT(*) AS n FROM survey WHERE {where}"


def vector(text):
    """Return the coefficients of the one number of a statement; of a refusal, all that is told."""
    try:
        found = program(text)
    except Error as error:
        return type(error).__name__, error.message, error.hint, error.sqlstate
    (release,) = found.releases
    (number,) = release.numbers
    return number.family.key


def written(values, column, long):
    """Return a condition that a column is among values, in several ways."""
    again = [*values, *random.Random(long).choices(values, k=long)]
    alike = " OR ".join(f"{column} = {value}" for value in again)
    apart = " AND ".join(f"{column} <> {value}" for value in again)
    cases = " ".join(f"WHEN {column} = {value} THEN 1" for value in again)
    return {
        "IN": f"{column} IN ({', '.join(again)})",
        "ORs": alike,
        "ORs, in brackets": f"(({alike}))",
        "ORs, each in brackets": " OR ".join(f"({column} = {value})" for value in again),
        "ORs, other sides": " OR ".join(f"{value} = {column}" for value in again),
        "ORs of INs": " OR ".join(f"{column} IN ({value}, {value})" for value in again),
        "ORs of BETWEENs": " OR ".join(f"{column} BETWEEN {v} AND {v}" for v in again),
        "NOT IN": f"NOT ({column} NOT IN ({', '.join(again)}))",
        "ANDs": f"NOT ({apart})",
        "ANY": f"{column} = ANY (ARRAY[{', '.join(again)}])",
        "ALL": f"NOT {column} <> ALL (ARRAY[{', '.join(again)}])",
        "rows": f"({column}, {column}) IN ({', '.join(f'({v}, {v})' for v in again)})",
        "CASE": f"CASE {cases} ELSE 0 END = 1",
    }


@pytest.mark.parametrize("seed", share(3, range(40), 6))
@pytest.mark.parametrize("column", ["age", "job_title", "score", "children"])
def test_a_set_of_values_is_one_vector_however_it_is_written(column, seed):
    """
    Long or short, as a list or as comparisons, with values once or again: the vector is one.
    """
    rng = random.Random(seed)
    of = {"age": AGES, "job_title": JOBS, "score": SCORES, "children": AGES[:12]}[column]
    values = rng.sample(of, rng.randint(2, min(len(of), 9)))
    name = '"Job_Title"' if column == "job_title" else column
    short = vector(counted(f"{name} IN ({', '.join(values)})"))
    for form, where in written(values, name, 40).items():
        assert vector(counted(where)) == short, form


@pytest.mark.parametrize("seed", share(3, range(40), 6))
def test_a_condition_says_nothing_more_when_it_is_said_again(seed):
    """
    Terms that are written many times over, in any order of the copies, are as they were once.
    """
    rng = random.Random(seed)
    terms = [
        rng.choice(
            [
                f"age {rng.choice(['=', '<>', '<', '>='])} {rng.choice(AGES)}",
                f"income >= {rng.choice(EDGES)}",
                f'"Job_Title" = {rng.choice(JOBS)}',
                "married IS NULL",
                f"NOT children = {rng.choice(AGES)}",
                f"score <= {rng.choice(SCORES)}",
            ]
        )
        for _ in range(5)
    ]
    for word in ("AND", "OR"):
        short = vector(counted(f" {word} ".join(terms)))
        again = terms + rng.choices(terms, k=60)
        assert vector(counted(f" {word} ".join(again))) == short


CUTS = {  # a condition below, one that cuts a bin, one above
    "income": ("5", "7", "20"),
    "seen": (
        "TIMESTAMP '2020-01-02 00:00:00'",
        "TIMESTAMP '2020-01-03 06:00:00'",
        "TIMESTAMP '2020-01-04 00:00:00'",
    ),
    "month": ("DATE '2020-03-01'", "DATE '2020-03-11'", "DATE '2020-06-01'"),
}


@pytest.mark.parametrize("column", CUTS)
def test_what_cuts_a_bin_is_refused_in_the_same_words_however_long_it_is(column):
    """
    The column, the bin and the value that a refusal names are those of the short condition.
    """
    low, bad, high = CUTS[column]
    short = vector(counted(f"{column} < {bad}"))
    assert short[0] == "CutError"
    for join, good in ((" OR ", low), (" AND ", high)):
        for terms in ([good] * 300 + [bad], [bad] * 300 + [good] * 5, [bad, good] * 200):
            found = vector(counted(join.join(f"{column} < {value}" for value in terms)))
            assert found == short


@pytest.mark.parametrize(
    "fault",
    [
        "age = 'x'", "nothing = 1", "nil(age) = 1", "wage = 1", "age LIKE 1", "1 / (age - 5) = 1",
        "age IN (1, 'x')", "COUNT(*) > 1", "age IN (SELECT 1, 2)",
        "age = (SELECT 1 / 0)", "-age", "age + 'x' = 1", "CASE WHEN age = 1 THEN 'a' END = 1",
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", [0, 150, 300])
def test_a_fault_in_a_long_condition_is_told_as_in_a_short_one(fault, place):
    """
    Where one of hundreds of terms is at fault the refusal is that of the term alone.
    """
    terms = [f"region = 'north' AND age = {i % 40}" for i in range(300)]
    terms.insert(place, fault)
    short = vector(counted(f"region = 'north' OR {fault}"))
    assert isinstance(short, tuple)
    assert vector(counted(" OR ".join(terms))) == short


def test_a_failure_is_met_wherever_it_stands():
    """
    A run of comparisons becomes a list where it stands, and hides nothing that stands beside it.
    """
    fails = "1 / (age - 5) = 7"
    for word, sign in (("OR", "="), ("AND", "<>")):
        run = f" {word} ".join(f"age {sign} {i}" for i in (5, 5, 6, 7))
        for where in (f"{run} {word} {fails}", f"{fails} {word} {run}"):
            assert vector(counted(where)) == vector(counted(f"age {sign} 5 {word} {fails}"))
        assert vector(counted(f"{run} {word} {fails} {word} {run}"))[0] == "DataError"


@pytest.mark.parametrize("count", [3, 200, 400])
def test_a_long_sum_is_its_short_one(count):
    """
    A chain of sums of an axis, of a measure or of a count is what it adds up to.
    """
    ones = " + 1" * count
    assert vector(f"SELECT SUM(age{ones}) FROM survey") == vector(
        f"SELECT SUM(age + {count}) FROM survey"
    )
    assert vector(f"SELECT SUM(wage{ones}) FROM survey") == vector(
        f"SELECT SUM(wage + {count}) FROM survey"
    )
    assert vector(f"SELECT COUNT(*){ones} FROM survey") == vector("SELECT COUNT(*) FROM survey")


def test_branches_of_a_case_that_are_never_met_say_nothing():
    """
    Of branches with one condition the first is met; what others would give is of no account.
    """
    values = " ".join(f"WHEN age = {i % 7} THEN {i}" for i in range(200))
    short = " ".join(f"WHEN age = {i} THEN {i}" for i in range(7))
    for what in ("SUM(CASE {} ELSE 0 END)", "SUM(wage * CASE {} END)", "AVG(CASE {} ELSE 9 END)"):
        long, brief = (vector(f"SELECT {what.format(c)} FROM survey") for c in (values, short))
        assert long == brief


def test_a_statement_is_known_to_be_deep_before_it_fails():
    """
    What would need more than Python's own stack gets a deep one at once; a list needs none.
    """
    assert not is_deep(tokens("SELECT 1 IN (" + "1, " * 5000 + "1)"))
    assert not is_deep(tokens("SELECT " + "(1), " * 5000 + "1"))
    assert is_deep(tokens("SELECT " + "(" * (DEEP + 1) + "1" + ")" * (DEEP + 1)))
    assert is_deep(tokens("SELECT 1" + " + 1" * (LONG + 1)))


def test_a_deep_statement_is_compiled_once(monkeypatch):
    """
    It is not begun with a shallow stack, and then again.
    """
    begun = []
    resolve = ColumnResolver.resolve

    def counting(self, node, parts=None):
        begun.append(threading.current_thread().name)
        return resolve(self, node, parts)

    monkeypatch.setattr(ColumnResolver, "resolve", counting)
    program(counted(" OR ".join(f"age = {i % 40} AND 7 = 7" for i in range(700))))
    assert len(begun) == 1


def test_constants_are_read_together(monkeypatch):
    """
    Hundreds of constants beside a binned axis are a handful of questions to the evaluator.
    """
    asked = []
    rows = Evaluator.rows

    def counting(self, sql, parameters):
        asked.append(sql)
        return rows(self, sql, parameters)

    monkeypatch.setattr(Evaluator, "rows", counting)
    moments = [f"TIMESTAMP '2020-01-01 12:{i % 60:02}:{i // 60:02}'" for i in range(300)]
    found = vector(counted(" OR ".join(f"seen < {moment}" for moment in moments)))
    assert found[0] == "CutError"
    assert len(asked) < 10
