"""Deeply nested statements: compiled in a thread of their own, with room for its recursion.

The parser and the walks over its trees recurse once or more for each level of nesting; Python's own
limit would refuse a statement of some thirty brackets within one another.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlglot.tokenizer_core import Token, TokenType

from proxy.errors import StatementTooComplexError

DEEP, LONG = 15, 150  # brackets within one another, operators: more would need a deep stack
OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE}
CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END}
CHAINED = {
    *(TokenType.PLUS, TokenType.DASH, TokenType.STAR, TokenType.SLASH, TokenType.MOD),
    *(TokenType.DPIPE, TokenType.AND, TokenType.OR, TokenType.NOT, TokenType.DCOLON),
    *(TokenType.UNION, TokenType.INTERSECT, TokenType.EXCEPT, TokenType.JOIN),
}
FRAMES = 25_000
STACK = 2**28  # bytes, of which only what is used is ever taken
Found = TypeVar("Found")
_lock = threading.Lock()  # the limits are those of the whole process
_room = False  # every thread that gets here has a deep stack


def have_room() -> None:
    """Make the limits of this process, whose threads have a deep stack, those of deep work."""
    global _room
    sys.setrecursionlimit(FRAMES)
    threading.stack_size(STACK)
    _room = True


def is_deep(tokens: Sequence[Token]) -> bool:
    """Return whether a statement will need a deep stack; where not, it may need one still.

    To find out by failing would be to do much of the work twice.
    """
    depth = chained = 0
    for token in tokens:
        kind = token.token_type
        if kind in CHAINED:
            chained += 1
        elif kind in OPENING:
            depth += 1
            if depth > DEEP:
                return True
        elif kind in CLOSING:
            depth -= 1
    return chained > LONG


def deeply(work: Callable[[], Found]) -> Found:
    """Return the result of work that needs a deep stack.

    Raises:
        StatementTooComplexError: it needs an even deeper one.
    """
    if _room:
        try:
            return work()
        except RecursionError:
            raise StatementTooComplexError("the statement is nested too deeply") from None
    results: list[Found] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except RecursionError:
            failed.append(StatementTooComplexError("the statement is nested too deeply"))
        except BaseException as error:
            failed.append(error)

    with _lock:
        limit, size = sys.getrecursionlimit(), threading.stack_size(STACK)
        sys.setrecursionlimit(max(limit, FRAMES))
        try:
            thread = threading.Thread(target=run, name="deep statement")
            thread.start()
            thread.join()
        finally:
            sys.setrecursionlimit(limit)
            threading.stack_size(size)
    if failed:
        raise failed[0]
    return results[0]
