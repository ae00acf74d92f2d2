"""Commands: settings, transactions, SHOW, EXPLAIN, views; recognised by their tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from proxy.errors import NotSupportedError, SQLSyntaxError
from proxy.sql.parse import views
from proxy.sql.program import Command

TRANSACTION = {
    "BEGIN": "begin",
    "START": "begin",
    "COMMIT": "commit",
    "END": "commit",
    "ROLLBACK": "rollback",
    "ABORT": "rollback",
    "SAVEPOINT": "savepoint",
    "RELEASE": "release",
    "DISCARD": "discard",
    "DEALLOCATE": "deallocate",
}
QUERY = {"SELECT", "WITH", "VALUES", "(", "TABLE"}
NAMED = {"TRANSACTION", "SESSION", "LOCAL"}
NAME = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
SET = re.compile(
    rf"SET\s+(?:(SESSION|LOCAL)\s+)?(?:(TIME\s+ZONE)\s+|({NAME})\s*(?:=|\bTO\b)\s*)(.*)",
    re.IGNORECASE | re.DOTALL,
)
RESET = re.compile(rf"RESET\s+({NAME})\s*", re.IGNORECASE)
SHOW = re.compile(rf"SHOW\s+(TIME\s+ZONE|{NAME})\s*", re.IGNORECASE)
EXPLAIN = re.compile(r"EXPLAIN\s+UTILITY\b(.*)", re.IGNORECASE | re.DOTALL)


def command(text: str, tokens: Sequence[Token]) -> Command | None:
    """Return a text as a command; None if it is a query.

    Raises:
        SQLSyntaxError, NotSupportedError: it is a malformed or an unknown command.
    """
    tokens = [token for token in tokens if token.token_type is not TokenType.SEMICOLON]
    if not tokens:
        return Command("empty")
    body = text[tokens[0].start : tokens[-1].end + 1]
    word = re.match(r"\w+|.", body, re.DOTALL)
    first = word[0].upper() if word else ""
    if first in QUERY:
        return None
    if first in TRANSACTION:
        return Command(TRANSACTION[first], body)
    if first == "SET" and (match := SET.fullmatch(body)):
        name = "timezone" if match[2] else match[3].lower()
        value = _value(match[4])
        return Command("set", name, value, local=(match[1] or "").upper() == "LOCAL")
    if first == "SET" and len(tokens) > 1 and tokens[1].text.upper() in NAMED:
        return Command("set", "transaction", body)
    if first == "RESET" and (match := RESET.fullmatch(body)):
        return Command("reset", match[1].lower())
    if first == "SHOW" and (match := SHOW.fullmatch(body)):
        return Command("show", re.sub(r"\s+", "", match[1].lower()))
    if first == "EXPLAIN" and (match := EXPLAIN.fullmatch(body)):
        start = tokens[0].start + match.start(1)
        blank = re.sub(r"\S", " ", text[:start])  # so that places are those of the whole text
        return Command("explain", "utility", blank + text[start : tokens[-1].end + 1])
    if first == "EXPLAIN":
        return Command("explain", "", None)
    if first in ("SET", "RESET", "SHOW"):
        raise SQLSyntaxError(f"{first} takes the name of a setting", position=tokens[0].start + 1)
    if first in ("CREATE", "DROP") and (change := views.reads(text, tokens)) is not None:
        name = f"{first.lower()} view"
        return Command(name, value=getattr(change, "text", None), change=change)
    raise NotSupportedError(
        f"{first[:40]} is not supported: the proxy answers SELECT, SHOW and SET",
        position=tokens[0].start + 1,
    )


def _value(text: str) -> str | None:
    """Return the value of SET: a quoted text, words, numbers; None for DEFAULT."""
    text = text.strip()
    if re.fullmatch(r"'(?:[^']|'')*'", text):
        return text[1:-1].replace("''", "'")
    if text.upper() == "DEFAULT":
        return None
    if not text:
        raise SQLSyntaxError("SET takes a value")
    return text.strip('"')
