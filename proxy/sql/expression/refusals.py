"""What is said of a node that has no translation."""

from __future__ import annotations

import difflib

from sqlglot import exp

from proxy.errors import NotSupportedError, UndefinedFunctionError
from proxy.sql.expression import allowlist
from proxy.sql.parse.tree import called

WORDS: dict[type[exp.Expr], str] = {
    exp.UnicodeString: "U&'...'",
    exp.BitString: "a bit string, B'...',",
    exp.HexString: "a bit string, X'...',",
    exp.Array: "ARRAY",
    exp.Parameter: "a parameter without a value",
    exp.AtTimeZone: "AT TIME ZONE",
    exp.Tuple: "a row of values",
    exp.Select: "a subquery",
    exp.Bracket: "a subscript, x[1],",
    exp.Collate: "COLLATE",
    exp.Distinct: "DISTINCT of several expressions",
    exp.Cast: "a cast",
}
HINTS: dict[type[exp.Expr], str] = {
    exp.UnicodeString: "write the characters themselves, or E'\\u00e9'",
    exp.BitString: "write a number in digits, a text in plain quotes",
    exp.HexString: "write a number in digits, a text in plain quotes",
    exp.AtTimeZone: "timestamps have no time zone here, they are in the policy's",
    exp.Tuple: "rows are for (a, b) = (1, 2) and (a, b) IN ((1, 2), (3, 4))",
    exp.Collate: 'texts are ordered by their bytes, as with COLLATE "C"',
    exp.Parameter: "abs(x) is the operator @",
    exp.Distinct: "COUNT(DISTINCT x) takes one expression, as concat(a, '-', b)",
    exp.Array: "lists are for = ANY (ARRAY[1, 2]) and IN (1, 2)",
}
KNOWN = f"{allowlist.PAGE} shows all forms that are known"


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
    name = called(node)
    if type(node) in WORDS or not name:
        what = WORDS.get(type(node), "what is written here")
        hint = HINTS.get(type(node), KNOWN)
        return NotSupportedError(f"{what} is not supported in an expression", hint=hint)
    if isinstance(node, exp.Func) and (name.isidentifier() or "name" in node.meta):
        return unknown(name)
    return NotSupportedError(f"the operator {name} is not supported", hint=KNOWN)


def not_so(node: exp.Expr) -> NotSupportedError:
    """Return the error for a node that is known, but not with all that is written there."""
    what = WORDS.get(type(node)) or called(node) or "an expression"
    return NotSupportedError(f"{what} is not supported in this form", hint=KNOWN)
