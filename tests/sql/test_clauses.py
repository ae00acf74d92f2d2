"""No word of a statement is dropped: what a node has that nothing reads is refused."""

import pytest
from sqlglot import exp

from proxy.errors import Error, NotSupportedError
from proxy.sql.clauses import READ, refuse_unread
from proxy.sql.expression.rules import RULES
from proxy.sql.parse import grammar
from tests.sql.test_cases import read
from tests.sql.test_functions import CASES

OTHERWISE = {exp.If, exp.Interval, exp.Anonymous}  # read whole where they are met, or refused


@pytest.mark.parametrize("kind", READ, ids=lambda kind: kind.__name__)
def test_what_is_not_read_is_refused(kind):
    """
    Each other argument that sqlglot may give such a node, TRUE or FALSE, or that a later one may.
    """
    refuse_unread([kind(**dict.fromkeys(kind.arg_types)), kind()])
    for name in {*kind.arg_types, "unknown"} - READ[kind]:
        for value in (True, False, exp.Var(this="x")):
            with pytest.raises(NotSupportedError, match="is not supported"):
                refuse_unread([kind(**{name: value})])


def test_what_statements_are_made_of_is_in_a_table():
    """
    Of each kind of node of all accepted statements it is known what is read.
    """
    found = {}
    for text in [*(case.values[1] for case in read("cases")), *(f"SELECT {e}" for e in CASES)]:
        try:
            nodes = grammar.parsed(text, grammar.tokens(text))[1]
        except Error:  # a command, or an escape that is none
            continue
        found |= dict.fromkeys(map(type, nodes), text)
    assert {found[kind] for kind in found.keys() - READ.keys() - RULES.keys() - OTHERWISE} == set()
