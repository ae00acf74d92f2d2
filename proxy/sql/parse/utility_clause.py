"""Utility requests: the clause WITH UTILITY, and hints in comments.

A hint is any comment that reads ``UTILITY(half_width, delta)``.  Defaults, of the session or of the
policy, are not of the statement and are not looked for here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from proxy.errors import UtilityError
from proxy.policy.promise import fault
from proxy.sql.program import Request

HINT = re.compile(r"\s*\+?\s*UTILITY\s*\(([^()]*)\)\s*", re.IGNORECASE)
NUMBER = r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d{1,3})?)\s*"


PAIR = re.compile(rf"\(?{NUMBER}(percent|%)?\s*,{NUMBER}\)?", re.IGNORECASE)


class Utility(exp.Expression):
    """The utility clause: a list of UtilityItem."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}


class UtilityItem(exp.Expression):
    """``[name] (half_width [PERCENT], delta)``; the name is that of an output column."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "expression": True,
        "percent": False,
        "name": False,
    }


def hint(tokens: Sequence[Token]) -> Request | None:
    """Return the request of a hint, if there is one."""
    for token in tokens:
        for comment in token.comments:
            match = HINT.fullmatch(comment)
            if match:
                return pair(match[1], source="hint")
    return None


def pair(text: str, source: str) -> Request:
    """Return the request that ``50, 0.05`` or ``5 PERCENT, 0.05`` stands for.

    Raises:
        UtilityError: it is no such pair, or its numbers are out of range.
    """
    match = PAIR.fullmatch(text.strip())
    if not match:
        raise UtilityError(
            "a utility reads: half_width, delta", hint="for example 50, 0.05 or 5 PERCENT, 0.05"
        )
    return request(Fraction(match[1]), Fraction(match[3]), bool(match[2]), source)


def requests(clause: Utility) -> tuple[Request | None, dict[str, Request]]:
    """Return the request of a clause for all numbers, and those for named columns."""
    general: Request | None = None
    named: dict[str, Request] = {}
    for item in clause.expressions:
        at = item.meta.get("start", -1) + 1 or None
        numbers = (_number(item.this, at), _number(item.expression, at))
        asked = request(*numbers, bool(item.args.get("percent")), position=at)
        name = item.args.get("name")
        if name is not None:
            text = name.name
            named[text if name.args.get("quoted") else text.lower()] = asked
        elif general is None:
            general = asked
        else:
            raise UtilityError(
                "WITH UTILITY has two requests for all numbers",
                hint="WITH UTILITY (50, 0.05), total (170000, 0.05): the others name a column",
                position=at,
            )
    return general, named


def _number(node: exp.Expr, at: int | None) -> Fraction:
    if isinstance(node, exp.Neg):
        return -_number(node.this, at)
    if isinstance(node, exp.Paren):
        return _number(node.this, at)
    if isinstance(node, exp.Literal) and not node.is_string:
        return Fraction(node.name)
    raise UtilityError("a utility takes plain numbers: WITH UTILITY (50, 0.05)", position=at)


def request(
    half_width: Fraction,
    delta: Fraction,
    relative: bool = False,
    source: str = "clause",
    position: int | None = None,
) -> Request:
    """Return a request whose numbers make sense.

    Raises:
        UtilityError: they do not.
    """
    if wrong := fault(half_width, delta):
        raise UtilityError(wrong.message, hint=wrong.hint, position=position)
    return Request(half_width, delta, relative, source)
