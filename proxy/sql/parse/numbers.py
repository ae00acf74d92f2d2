"""Numbers as PostgreSQL's scanner takes them from a text, where sqlglot's takes more or less.

sqlglot makes one number of ``1e1+5``, and ``1 AS _000`` of ``1_000``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from proxy.errors import SQLSyntaxError

NUMBER = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
SIGNS = {"+": TokenType.PLUS, "-": TokenType.DASH}
SIGNED = re.compile(r"[eE][-+]?\d+[-+]", re.ASCII)  # what sqlglot may have taken for one number
WORD = re.compile(r"[^\W\d]\w*")  # \w has _


def apart(found: Sequence[Token], text: str) -> list[Token]:
    """Return the tokens of a text, with a sign after an exponent no longer part of the number.

    Raises:
        SQLSyntaxError: what follows the sign is no number.
    """
    if not SIGNED.search(text):
        return list(found)
    out: list[Token] = []
    at = 0
    while at < len(found):
        token = found[at]
        at += 1
        number = NUMBER.match(text, token.start) if token.token_type is TokenType.NUMBER else None
        if number is None or token.end <= number.end() or text[number.end()] not in SIGNS:
            out.append(token)
            continue
        sign = number.end()
        after = NUMBER.match(text, sign + 1)
        assert after is not None
        comments = list(token.comments)
        while at < len(found) and found[at].start < after.end():  # of 1e1+1e1 the last e1
            token = found[at]
            comments += token.comments
            at += 1
        if token.end >= after.end():
            raise junk(text, after)
        for kind, start, end in (
            (TokenType.NUMBER, number.start(), sign),
            (SIGNS[text[sign]], sign, sign + 1),
            (TokenType.NUMBER, sign + 1, after.end()),
        ):
            col = token.col - (token.end + 1 - end)
            out.append(Token(kind, text[start:end], token.line, col, start, end - 1))
        out[-1].comments += comments
    return out


def junk(text: str, number: re.Match[str]) -> SQLSyntaxError:
    """Return the error for a number that something follows at once."""
    rest = WORD.match(text, number.end())
    near = number[0][:40] + (rest[0][:40] if rest else "")
    return SQLSyntaxError(
        f'trailing junk after numeric literal at or near "{near}"',
        hint="write the number in decimal digits, without _, and a space before a word",
        position=number.start() + 1,
    )


def refuse_junk(found: Sequence[Token], text: str) -> None:
    """Refuse a number with letters right after it, as PostgreSQL does.

    Raises:
        SQLSyntaxError: there is one; ``position`` says where.
    """
    for token in found:
        if token.token_type is TokenType.NUMBER and WORD.match(text, token.end + 1):
            number = NUMBER.match(text, token.start)
            assert number is not None
            raise junk(text, number)
