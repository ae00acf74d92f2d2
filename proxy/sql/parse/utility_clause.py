"""Utility requests, and what a statement may cost: the clause WITH UTILITY, and hints in comments.

A hint is any comment that reads ``UTILITY(half_width, delta)``, ``MAX_COST(alpha)`` or both.
Defaults, of the session or of the policy, are not of the statement and are not looked for here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from proxy.errors import UtilityError
from proxy.policy.promise import LEAST, MOST, fault
from proxy.sql.program import Request

HINT = re.compile(r"(UTILITY|MAX_COST)\s*\(([^()]*)\)[\s,]*", re.IGNORECASE)
HINTS = re.compile(rf"\s*\+?\s*(?:{HINT.pattern})+", re.IGNORECASE)
NUMBER = r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d{1,3})?)\s*"


PAIR = re.compile(rf"\(?{NUMBER}(percent|%)?\s*,{NUMBER}\)?", re.IGNORECASE)


class Utility(exp.Expression):
    """The utility clause: a list of UtilityItem and MaxCost."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}


class UtilityItem(exp.Expression):
    """``[name] (half_width [PERCENT], delta)``; the name is that of an output column."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "expression": True,
        "percent": False,
        "name": False,
    }


class MaxCost(exp.Expression):
    """``MAX COST alpha``: the most that the whole statement may take from a cell's budget."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


def hint(tokens: Sequence[Token]) -> Request | None:
    """Return the request of the first hint that has one."""
    comments = (comment for token in tokens for comment in token.comments)
    return next((asked for each in comments if (asked := hinted(each))), None)


def hinted(comment: str) -> Request | None:
    """Return the request of a comment, if it is a hint."""
    found = _hints(comment, "UTILITY")
    return pair(found[0], source="hint") if found else None


def max_cost(tokens: Sequence[Token]) -> Fraction | None:
    """Return the least of the limits on the cost that the hints set, if one does."""
    comments = [comment for token in tokens for comment in token.comments]
    texts = [text for each in comments for text in _hints(each, "MAX_COST")]
    return min((limit(text) for text in texts), default=None)


def limit(text: str) -> Fraction:
    """Return the limit on the cost of a statement that a text is, in alpha.

    Raises:
        UtilityError: it is none.
    """
    match = re.fullmatch(NUMBER, text)
    return _limit(Fraction(match[1]) if match else None)


def _limit(found: Fraction | None, position: int | None = None) -> Fraction:
    if found is not None and LEAST <= found <= MOST:
        return found
    what = "out of any useful range" if found and found > 0 else "an alpha above 0"
    raise UtilityError(
        f"the most that a statement may cost is {what}",
        hint="for example 0.05; to spend nothing, SET privacy.spend = off",
        position=position,
    )


def _hints(comment: str, name: str) -> list[str]:
    """Return what stands in the brackets of the hints of one name, if a comment is hints."""
    found = HINT.findall(comment) if HINTS.fullmatch(comment) else []
    return [text for which, text in found if which.upper() == name]


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
    for item in clause.find_all(UtilityItem):
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


def limited(clause: Utility) -> Fraction | None:
    """Return the limit on the cost that a clause sets; the least, of several."""
    limits = []
    for item in clause.find_all(MaxCost):
        at = item.meta.get("start", -1) + 1 or None
        limits.append(_limit(_number(item.this, at), at))
    return min(limits, default=None)


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
