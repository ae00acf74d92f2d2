"""Parameters, ``$1``, apart from dollar quotes, ``$tag$...$tag$``.

sqlglot takes what begins with ``$`` and has another one behind it, as ``$1,$2``, for a quotation.
So parameters are marked with another character while it makes tokens of a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sqlglot.tokenizer_core import Token, TokenType

QUOTATION = re.compile(  # or a comment; ``open`` begins one that does not end: all that follows
    r"""--[^\n]*|/\*.*?\*/|\be'(?:[^'\\]|\\.|'')*+'|'(?:[^']|'')*+'|"(?:[^"]|"")*+"|"""
    r"""(\$(?:[^\W\d]\w*)?\$).*?\1|(?P<open>/\*|['"]|\$(?:[^\W\d]\w*)?\$).*""",
    re.DOTALL | re.IGNORECASE,
)
PARAMETER = re.compile(rf"{QUOTATION.pattern}|(?<![\w$])(?P<parameter>\$)(?=\d)", QUOTATION.flags)
SEVERAL = re.compile(r"\$\d.*\$", re.DOTALL)
DIGITS = re.compile(r"\d+")
MARKS = [chr(code) for code in range(1, 9)]  # no statement has them all


def marked(text: str) -> tuple[str, str]:
    """Return the text, as long, with a mark for the ``$`` of each parameter; and the mark.

    Both are empty where nothing needs one.
    """
    mark = next((mark for mark in MARKS if mark not in text), "")
    if not mark or not SEVERAL.search(text):
        return "", ""
    return PARAMETER.sub(lambda found: mark if found["parameter"] else found[0], text), mark


def unmarked(tokens: Iterable[Token], mark: str) -> Iterator[Token]:
    """Yield the tokens of a marked text as they are of the text itself."""
    for token in tokens:
        if token.token_type is not TokenType.VAR or not token.text.startswith(mark):
            token.text = token.text.replace(mark, "$")
            yield token
            continue
        digits = DIGITS.match(token.text, 1)
        assert digits is not None
        pieces = [(TokenType.PARAMETER, 0, 1), (TokenType.NUMBER, 1, digits.end())]
        if digits.end() < len(token.text):
            pieces.append((TokenType.VAR, digits.end(), len(token.text)))
        made = []
        for kind, start, end in pieces:
            first, last = token.start + start, token.start + end - 1
            col = token.col - (len(token.text) - end)
            made.append(Token(kind, token.text[start:end], token.line, col, first, last))
        made[0].text = "$"
        made[-1].comments += token.comments
        yield from made
