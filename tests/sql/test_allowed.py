"""The page of what is allowed: made of the allow-list, complete, and true of PostgreSQL."""

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
