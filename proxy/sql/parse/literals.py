"""PostgreSQL's other ways to write a text, E'...' and $$...$$, and its array literals '{...}'.

Invariant: what is returned is what PostgreSQL reads there; what it refuses is refused.
"""

from __future__ import annotations

import re

from sqlglot.tokenizer_core import Token, TokenType

from proxy.errors import DataError

QUOTED = {TokenType.BYTE_STRING, TokenType.HEREDOC_STRING, TokenType.NATIONAL_STRING}
ESCAPE = re.compile(
    r"((?:\\u[0-9A-Fa-f]{4})+)|\\U([0-9A-Fa-f]{8})|\\([0-7]{1,3})|\\x([0-9A-Fa-f]{1,2})|\\(.)|''",
    re.DOTALL,
)
SINGLE = {"b": b"\b", "f": b"\f", "n": b"\n", "r": b"\r", "t": b"\t", "v": b"\v"}
ITEM = re.compile(r"""(?:\s*"((?:[^"\\]|\\.)*)"\s*|((?:[^{},"\\]|\\.)*))(,|\}\Z)""", re.DOTALL)


def plain(token: Token, text: str) -> Token:
    """Return a string token of any quoting as one in plain quotes.

    Raises:
        DataError: its escapes are invalid.
    """
    if token.token_type not in QUOTED:
        return token
    value = token.text
    if token.token_type is TokenType.BYTE_STRING:
        value = unescaped(text[token.start + 2 : token.end], token.start + 1)
    return Token(
        TokenType.STRING, value, token.line, token.col, token.start, token.end, token.comments
    )


def unescaped(body: str, position: int) -> str:
    """Return what stands between the quotes of E'...', its escapes resolved."""
    try:
        encoded, at = bytearray(), 0
        for match in ESCAPE.finditer(body):
            encoded += body[at : match.start()].encode() + _meaning(match)
            at = match.end()
        value = (encoded + body[at:].encode()).decode()
        if "\0" in value:
            raise ValueError
    except (ValueError, OverflowError):
        raise DataError(
            "an escape in E'...' makes no character",
            hint="write the characters themselves, and a backslash as \\\\",
            position=position,
        ) from None
    return value


def _meaning(match: re.Match[str]) -> bytes:
    """Return the bytes of an escape."""
    pairs, long, octal, byte, single = match.groups()
    if pairs:  # surrogates make one character together
        return bytes.fromhex(pairs.replace("\\u", "")).decode("utf-16-be").encode()
    if long:
        return chr(int(long, 16)).encode()
    if octal or byte:
        return bytes([int(octal or byte, 8 if octal else 16) & 255])
    if single in ("u", "U"):
        raise ValueError
    return SINGLE.get(single, (single or "'").encode())


def elements(text: str) -> list[str | None]:
    """Return the elements of an array literal of one dimension.

    Raises:
        DataError: it is malformed.
    """
    body = text.strip()
    if re.fullmatch(r"\{\s*\}", body):
        return []
    values: list[str | None] = []
    at = 1 if body.startswith("{") else len(body)
    while (match := ITEM.match(body, at)) and (match[1] is not None or match[2].strip()):
        bare = None if match[2] is None else match[2].strip()
        null = bare is not None and bare.upper() == "NULL"
        raw = match[1] if bare is None else bare
        values.append(None if null else re.sub(r"\\(.)", r"\1", raw, flags=re.DOTALL))
        at = match.end()
        if match[3] != ",":
            return values
    raise DataError(
        f'malformed array literal: "{text[:40]}"',
        hint="write the values as '{1, 2}' or ARRAY[1, 2]",
    )
