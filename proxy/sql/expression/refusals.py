"""What is said of a node that has no translation."""

from __future__ import annotations

import difflib

from sqlglot import exp

from proxy.errors import NotSupportedError, UndefinedFunctionError
from proxy.sql.expression import allowlist
from proxy.sql.parse.tree import as_sql

WORDS: dict[type[exp.Expr], str] = {
    exp.UnicodeString: "U&'...'",
    exp.BitString: "a bit string, B'...',",
    exp.HexString: "a bit string, X'...',",
    exp.Array: "ARRAY",
    exp.Parameter: "a parameter without a value",
    exp.AtTimeZone: "AT TIME ZONE",
    exp.Tuple: "a row of values",
    exp.Select: "a subquery",
}
HINTS: dict[type[exp.Expr], str] = {
    exp.UnicodeString: "write the characters themselves, or E'\\u00e9'",
    exp.BitString: "write a number in digits, a text in plain quotes",
    exp.HexString: "write a number in digits, a text in plain quotes",
    exp.AtTimeZone: "timestamps have no time zone here, they are in the policy's",
    exp.Tuple: "rows are for (a, b) = (1, 2) and (a, b) IN ((1, 2), (3, 4))",
    exp.Array: "lists are for = ANY (ARRAY[1, 2]) and IN (1, 2)",
}


def _function(node: exp.Func) -> str:
    """Return the name of a function as PostgreSQL has it."""
    name = node.name if isinstance(node, exp.Anonymous) else as_sql(node).split("(")[0]
    names = (n for n in node.sql_names() if n.replace("_", "") == name)  # WIDTHBUCKET
    return next(names, name).lower()


def unknown(name: str) -> UndefinedFunctionError:
    """Return the error for a function that is not on the list."""
    near = difflib.get_close_matches(name, allowlist.names(), 1, 0.8)
    hint = f"did you mean {near[0]}? " if near else ""
    return UndefinedFunctionError(
        f"function {name} is not among those the proxy knows",
        hint=f"{hint}{allowlist.PAGE} lists all that are known",
    )


def refusal(node: exp.Expr) -> NotSupportedError | UndefinedFunctionError:
    """Return the error for a node that has no translation."""
    if isinstance(node, exp.Func) and type(node) not in WORDS:
        return unknown(_function(node))
    return NotSupportedError(
        f"{WORDS.get(type(node), node.key.upper())} is not supported in an expression",
        hint=HINTS.get(type(node)),
    )
