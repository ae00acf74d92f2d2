"""COPY (SELECT …) TO STDOUT: the engine answers the SELECT, and the mirror writes its rows.

The rows go through the mirror like those of any other answer, inside of the COPY as the client
wrote it, so that text, CSV and binary, and all their options, are PostgreSQL's own.  This module
takes a COPY apart.  Invariant: what follows the query is the client's own text, which the mirror
has accepted before anything is measured.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from sqlglot.tokenizer_core import Token, TokenType

from proxy.errors import (
    Error,
    NotSupportedError,
    UndefinedParameterError,
    WrongObjectTypeError,
)
from proxy.policy.promise import FOLD
from proxy.server.statements import parameters
from proxy.sql.parse.identifiers import quoted

HINT = "let the client write the file: COPY (SELECT …) TO STDOUT, or \\copy in psql"


class Copy(Struct, frozen=True):
    """A COPY of a query to the client.

    ``query`` is as long as the statement, with blanks where the query is not, so that places in it
    are those of the statement; comments stay, since one may say how good the numbers must be.
    """

    query: str
    head: str
    tail: str


def take_apart(text: str, tokens: Sequence[Token], name: str) -> Copy | Error:
    """Return the parts of a COPY that names a protected table, or why it is refused.

    ``tokens`` are those after the word COPY.
    """
    query = bool(tokens) and tokens[0].token_type is TokenType.L_PAREN
    ways = [token.text.upper() for token in tokens]
    end = (
        _closing(tokens) if query else min(map(ways.index, {"TO", "FROM"} & {*ways}), default=0) - 1
    )
    way = ways[end + 1 : end + 3]
    if way[:1] == ["FROM"]:
        return NotSupportedError(f"COPY FROM is not supported on the protected table {name}")
    if way != ["TO", "STDOUT"]:
        return NotSupportedError("COPY is answered TO STDOUT only", hint=HINT)
    last = tokens[(ways.index("(") if "(" in ways[: end + 1] else end + 1) - 1]
    relation = text[tokens[0].start : last.end + 1]
    is_name = last.token_type is TokenType.IDENTIFIER
    if not query and (last.text if is_name else last.text.translate(FOLD)) != name:
        return WrongObjectTypeError(
            f"cannot copy from view {relation}",
            hint=f"COPY (SELECT * FROM {relation}) TO STDOUT",
            position=tokens[0].start + 1,
        )
    if not query:
        return NotSupportedError(
            "the rows of a protected dataset are not shown, only aggregates of them",
            hint="ask for counts or sums, for example "
            f"COPY (SELECT COUNT(*) FROM {quoted(name)}) TO STDOUT",
            position=tokens[0].start + 1,
        )
    start, stop = tokens[0].end + 1, tokens[end].start
    inner = _blanked(text, [tokens[0], *tokens[end:]])
    if parameters.places(inner):
        return UndefinedParameterError("COPY takes no parameters", position=inner.index("$") + 1)
    return Copy(inner, text[:start], text[stop:])


def _closing(tokens: Sequence[Token]) -> int:
    """Return the index of the token that closes the first bracket; the last one if none does."""
    depth = 0
    for at, token in enumerate(tokens):
        depth += token.token_type is TokenType.L_PAREN
        depth -= token.token_type is TokenType.R_PAREN
        if not depth:
            return at
    return len(tokens) - 1


def _blanked(text: str, tokens: Sequence[Token]) -> str:
    """Return a text with the word COPY and these tokens replaced by blanks."""
    at = text.upper().index("COPY", 0, tokens[0].start)
    spans = [(at, at + len("COPY")), *((token.start, token.end + 1) for token in tokens)]
    out = text
    for start, stop in spans:
        out = out[:start] + " " * (stop - start) + out[stop:]
    return out
