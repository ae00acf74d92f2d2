"""The statements of one message."""

from __future__ import annotations

from proxy.errors import SQLSyntaxError, StatementTooComplexError
from proxy.sql.parse import grammar

MOST = 1_000  # statements of a message


def split(text: str) -> list[tuple[str, int]]:
    """Split a text into statements with their offsets; one that does not lex stays whole."""
    try:
        pieces = grammar.split(text)
    except SQLSyntaxError:
        return [(text, 0)]
    if len(pieces) > MOST:
        raise StatementTooComplexError(
            f"a message has {len(pieces):,} statements; {MOST:,} are allowed"
        )
    statements, at = [], 0
    for piece in pieces:
        at = text.index(piece, at)
        statements.append((piece, at))
        at += len(piece)
    return statements
