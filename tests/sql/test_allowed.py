"""The page of what is allowed: made of the allow-list, complete, and true of PostgreSQL."""

from datetime import date
from pathlib import Path

import pytest
from sqlglot import exp

from proxy.errors import UndefinedFunctionError
from proxy.sql.compile.columns import Axis, MeasureColumn, PerBranch, Public
from proxy.sql.expression import allowlist
from proxy.sql.expression.aggregates import AGGREGATES, WINDOWS
from proxy.sql.expression.lowering import RULES
from proxy.sql.parse import grammar
from tests.sql.compare import close
from tests.sql.survey import plain, run

ROOT = Path(__file__).parents[2]
EXAMPLES = [text for group in allowlist.SCALARS.values() for text in group]
INTERNAL = {Axis, MeasureColumn, Public, PerBranch, exp.Column}  # what columns become
OTHERWISE = {exp.If, exp.DateTrunc}  # refused in words of its own; of other dialects


def value(text):
    """What an expression is."""
    ((found,),) = run(f"SELECT {text}").rows
    return found


def shown(text):
    """The value as the page has it."""
    found = value(text)
    if isinstance(found, bool) or found is None:
        return {True: "true", False: "false", None: "NULL"}[found]
    return str(found)


def test_the_page_is_the_list():
    """
    FUNCTIONS.md is what `page` makes; write it anew with `python -m tests.sql.test_allowed`.
    """
    assert (ROOT / allowlist.PAGE).read_text(encoding="utf-8") == allowlist.page(shown)


@pytest.mark.parametrize("text", EXAMPLES)
def test_examples_are_true(postgres, text):
    """
    Each example has PostgreSQL's value.
    """
    _, ((theirs,),) = postgres.query(f"SELECT {text}")
    assert close([plain(value(text))], [plain(theirs)])


NAMED = [
    "CASE WHEN TRUE THEN 1 ELSE mod(7, 2) END", "CASE WHEN TRUE THEN 1 ELSE 3::bigint END",
    "CAST(CASE WHEN TRUE THEN 1 END AS int)", "(CASE 1 WHEN 1 THEN 2 ELSE 3 END)::bigint",
    "CASE WHEN TRUE THEN 1 ELSE CASE WHEN TRUE THEN 1 ELSE div(7, 2) END END",
    "COALESCE(1, 2)::numeric", "mod(7, 2)::numeric", "-mod(7, 2)", "mod(7, 2) + 1",
    "'x'::text::varchar", "1::int4", "1::int8", "1::float4", "1::float", "1::bool", "1::dec",
    "'a'::character varying(3)", "'2020-01-01'::timestamp with time zone", "'1 day'::interval",
    "TRUE", "NULL", "1", "'a'", "(1)", "NOT TRUE", "INTERVAL '1 day'", "DATE '2020-01-01'",
    "DATE '2020-01-01'::text", "TIMESTAMP '2020-01-01 12:00'::date::text", "NUMERIC '1.5'::int",
    "CURRENT_DATE", "now()", "CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "transaction_timestamp()",
    "(SELECT 1)", "(SELECT 1 AS z)", "(SELECT 1 AS z)::text", "EXISTS (SELECT 1)",
    "1 IN (SELECT 1)", "character_length('a')", '"abs"(-1)', "ABS(-1)", "substr('abc', 2)",
    "every(TRUE)", "bool_or(TRUE)", "string_agg('a', ',')", "count(*)", "count(DISTINCT 1)",
    "sum(1)", "avg(1)::int", "round(avg(1), 2)", "min(1) FILTER (WHERE TRUE)", "regr_count(1, 2)",
    "percentile_cont(0.5) WITHIN GROUP (ORDER BY 1)", "mode() WITHIN GROUP (ORDER BY 1)",
    "percentile_disc(0.5) WITHIN GROUP (ORDER BY 1)", "stddev(1)", "stddev_samp(1)", "variance(1)",
    "var_pop(1)", "row_number() OVER ()", "sum(1) OVER ()", "lag(1) OVER ()", "ntile(2) OVER ()",
    "first_value(1) OVER ()", "nth_value(1, 1) OVER ()", "percent_rank() OVER ()",
]  # fmt: skip


@pytest.mark.parametrize("text", [*EXAMPLES, *NAMED])
def test_a_column_has_postgresqls_name(postgres, text):
    """
    That of its function, its type or its kind; and it has a type of the same kind of value.
    """
    result = run(f"SELECT {text}")
    names, ((theirs,),) = postgres.query(f"SELECT {text}")
    assert [column.name for column in result.columns] == names
    if isinstance(theirs, date):  # of which a timestamp is one, too
        assert type(result.rows[0][0]) is type(theirs)


def test_every_rule_has_an_example():
    """
    No node of the parser is translated that is not on the page.
    """
    known = set(INTERNAL) | OTHERWISE
    for text in EXAMPLES:
        tree = grammar.parse(f"SELECT {text}", grammar.tokens(f"SELECT {text}"))
        known |= {type(node) for node in tree.walk()}
    assert {kind.__name__ for kind in RULES if kind not in known} == set()


def test_every_aggregate_is_on_the_page():
    """
    The names of aggregates and window functions are there.
    """
    words = (ROOT / allowlist.PAGE).read_text(encoding="utf-8").upper()
    names = {"LogicalAnd": "BOOL_AND", "LogicalOr": "BOOL_OR", "VariancePop": "VAR_POP"}
    names |= {"GroupConcat": "STRING_AGG"}
    for kind in [*AGGREGATES, *WINDOWS]:
        assert names.get(kind.__name__, kind.sql_names()[0]) in words


def test_an_unknown_function_is_told_the_nearest():
    """
    The hint names a function that is like it, or the page.
    """
    with pytest.raises(UndefinedFunctionError) as caught:
        run("SELECT COUNT(*) FROM survey WHERE lowwer(region) = 'x'")
    assert caught.value.hint == f"did you mean lower? {allowlist.PAGE} lists all that are known"
    with pytest.raises(UndefinedFunctionError) as caught:
        run("SELECT COUNT(*) FROM survey WHERE pg_sleep(9) > 1")
    assert caught.value.hint == f"{allowlist.PAGE} lists all that are known"


if __name__ == "__main__":
    (ROOT / allowlist.PAGE).write_text(allowlist.page(shown), encoding="utf-8")
