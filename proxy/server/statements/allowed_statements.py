"""The kinds of statements that the mirror may run: a list, and PostgreSQL's own way to read a text.

What is not on the list is refused here, since PostgreSQL has no privilege for it: NOTIFY, ALTER of
one's own role, LOCK, VACUUM, DROP OWNED, two-phase commit, and all that a later version adds.  What
a statement may call and read, the mirror itself says (``mirror.functions``).

The text is split into tokens as PostgreSQL splits it, so that what is read here as one statement of
a kind is one of that kind there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from proxy.errors import (
    Error,
    InsufficientPrivilegeError,
    NotSupportedError,
    SQLSyntaxError,
)
from proxy.server.mirror import user_settings

QUERY = {"SELECT", "WITH", "VALUES", "TABLE", "("}
KINDS = QUERY | {
    *("SHOW", "SET", "RESET", "DISCARD"),
    *("BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE"),
    *("DECLARE", "FETCH", "MOVE", "CLOSE", "PREPARE", "EXECUTE", "DEALLOCATE"),
    *("EXPLAIN", "COPY", "LISTEN", "UNLISTEN"),
}
EXPLAINED = QUERY | {"DECLARE", "EXECUTE"}
WRITES = {
    *("CREATE", "ALTER", "DROP", "INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "COPY"),
    *("GRANT", "REVOKE", "DO", "CALL", "LOAD", "IMPORT"),
}
OTHERS = {
    *("ANALYSE", "ANALYZE", "CHECKPOINT", "CLUSTER", "COMMENT", "LOCK", "NOTIFY", "REASSIGN"),
    *("REFRESH", "REINDEX", "REPACK", "SECURITY", "VACUUM", "WAIT"),
}
SPECIAL = {"TRANSACTION", "CHARACTERISTICS", "TIME", "NAMES", "SCHEMA", "XML", "CONSTRAINTS"}
HINT = (
    "the server answers queries, SHOW and SET, transactions, cursors, prepared statements, "
    "EXPLAIN, COPY (SELECT …) TO STDOUT and CREATE TEMP VIEW"
)
BETWEEN = r"(?:[ \t\f\v]|--[^\n\r]*)*+[\n\r](?:[ \t\n\r\f\v]++|--[^\n\r]*[\n\r])*+"  # of one string
ESCAPED, QUOTED = r"'(?:[^'\\]++|\\.|'')*+'", r"'(?:[^']++|'')*+'"
START, PART = r"[a-zA-Z_\x80-\U0010ffff]", r"[\w\x80-\U0010ffff]"  # of a name
TOKEN = re.compile(
    rf"""
      (?P<blank> [ \t\n\r\f\v]+ | --[^\n\r]* )
    | (?P<comment> /\* )
    | (?P<string> [eE]{ESCAPED}(?:{BETWEEN}{ESCAPED})*+
                | (?:[bBxXnN]|[uU]&)?{QUOTED}(?:{BETWEEN}{QUOTED})*+
                | \$(?P<tag>(?:{START}{PART}*)?)\$.*?\$(?P=tag)\$ )
    | (?P<identifier> (?:[uU]&)?"(?:[^"]++|"")*+" )
    | (?P<end> ;[;\ \t\n\r\f\v]* )
    | (?P<word> {START}(?:{PART}|\$)* )
    | (?P<number> \d[\w.]* )
    | (?P<open> ['"] | \$(?:{START}{PART}*)?\$ )
    | (?P<symbol> . )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
COMMENT = re.compile(r"/\*|\*/")
FIRST, MOST = 50, 1000  # tokens that say of which kind a statement is
Token = tuple[str, str, int]  # its kind, its text, where it begins


def refused(text: str) -> Error | None:
    """Return why the mirror may not run a text; None if it may."""
    try:
        found = one_statement(text)
    except SQLSyntaxError as error:
        return error
    return _refused(found) if found else None


def not_one_statement(text: str) -> Error | None:
    """Return why a text is not one statement, as PostgreSQL reads it; None if it is."""
    try:
        one_statement(text)
    except SQLSyntaxError as error:
        return error
    return None


def one_statement(text: str) -> list[Token]:
    """Return the first tokens of a statement, and then those outside of brackets.

    Raises:
        SQLSyntaxError: they are several statements, or a quotation or a comment is open.
    """
    found: list[Token] = []
    depth, ended = 0, False
    left_out = 0  # brackets that are open
    for kind, value, at in tokens(text):
        if kind == "end":
            ended = bool(found)
            continue
        if ended:
            raise SQLSyntaxError(
                "cannot insert multiple commands into a prepared statement",
                hint="send one statement at a time",
                position=at + 1,
            )
        depth -= value == ")"
        keeps = len(found) < (FIRST if depth else MOST)
        if value == ")":
            keeps, left_out = not left_out, max(left_out - 1, 0)
        elif value == "(":
            left_out += not keeps
        if keeps:
            found.append((kind, value, at))
        depth += value == "("
    return found


def tokens(text: str) -> Iterator[Token]:
    """Split a text as PostgreSQL does where ``standard_conforming_strings`` is on.

    Raises:
        SQLSyntaxError: a quotation or a comment is open.
    """
    at = 0
    while match := TOKEN.match(text, at):
        kind, start, at = match.lastgroup or "", match.start(), match.end()
        if kind == "comment":
            at = _comment_end(text, start)
        elif kind == "open":
            raise SQLSyntaxError(
                f"unterminated quotation at or near {match[0]}", position=start + 1
            )
        elif kind != "blank":
            yield kind, match[0], start


def _comment_end(text: str, start: int) -> int:
    """Return where a comment ends; comments nest."""
    depth = 0
    for match in COMMENT.finditer(text, start):
        depth += 1 if match[0] == "/*" else -1
        if not depth:
            return match.end()
    raise SQLSyntaxError("unterminated /* comment", position=start + 1)


def _refused(tokens: Sequence[Token]) -> Error | None:
    words = [value.upper() if kind == "word" else value for kind, value, _ in tokens]
    first, second = words[0], (words[1:2] or [""])[0]
    if first in ("SET", "RESET"):
        return _setting(words, tokens) if first == "SET" else None
    if first == "EXPLAIN":
        first = _explained(words)
        return None if first in EXPLAINED else _unknown(first, tokens)
    if first == "COPY" and not _to_client(words):
        return InsufficientPrivilegeError(
            "permission denied for COPY to or from anything but the client",
            hint="let the client write the file: COPY (SELECT …) TO STDOUT",
        )
    two_phase = second == "PREPARED" or (first == "PREPARE" and tokens[2:3] and _is_string(tokens))
    if (first in KINDS and not two_phase) or (first, second) == ("DROP", "VIEW"):
        return None  # DROP VIEW: the mirror says that there is none
    return _unknown(first, tokens)


def _is_string(tokens: Sequence[Token]) -> bool:
    return tokens[2][0] == "string"


def _unknown(first: str, tokens: Sequence[Token]) -> Error:
    """Return the error for a statement of another kind."""
    if first in WRITES:
        return InsufficientPrivilegeError(f"permission denied for {first}", hint=HINT)
    if first in OTHERS | KINDS:
        return NotSupportedError(f"this form of {first} is not supported", hint=HINT)
    shown, at = tokens[0][1], tokens[0][2]
    return SQLSyntaxError(f'syntax error at or near "{shown}"', position=at + 1)


def _explained(words: Sequence[str]) -> str:
    """Return the first word of what an EXPLAIN explains."""
    at = 1
    if words[1:2] == ["("] and words[2:3] and words[2] not in QUERY:
        at = _closing(words, 1) + 1
    while words[at : at + 1] and words[at] in ("ANALYZE", "ANALYSE", "VERBOSE"):
        at += 1
    return words[at] if at < len(words) else ""


def _closing(words: Sequence[str], at: int) -> int:
    """Return the index of the bracket that closes the one at an index."""
    depth = 0
    for index in range(at, len(words)):
        depth += (words[index] == "(") - (words[index] == ")")
        if not depth:
            return index
    return len(words)


def _to_client(words: Sequence[str]) -> bool:
    """Whether a COPY is one TO STDOUT."""
    depth = 0
    for index, word in enumerate(words):
        depth += (word == "(") - (word == ")")
        if not depth and word in ("TO", "FROM"):
            return words[index : index + 2] == ["TO", "STDOUT"]
    return False


def _setting(words: list[str], tokens: Sequence[Token]) -> Error | None:
    """Return why a SET is refused; None if it is not."""
    at = 2 if words[1:2] in (["SESSION"], ["LOCAL"]) else 1
    rest, kinds = words[at:], [kind for kind, *_ in tokens[at:]]
    if not rest or rest[0] in SPECIAL:
        return None
    if rest[0] in ("AUTHORIZATION", "ROLE"):
        value = rest[1] if len(rest) > 1 else ""
        if value in ("DEFAULT", "NONE"):
            return None
        return InsufficientPrivilegeError(f"permission denied to set {rest[0].lower()}")
    name, index = _part(rest[0], kinds[0]), 1
    while rest[index : index + 1] == ["."] and index + 1 < len(rest):
        name, index = f"{name}.{_part(rest[index + 1], kinds[index + 1])}", index + 2
    wanted = rest[index + 1] if index + 1 < len(rest) else "DEFAULT"
    return user_settings.refused(name, None if wanted == "DEFAULT" else wanted.strip("'"))


def _part(word: str, kind: str) -> str:
    """Return a part of a setting's name, as PostgreSQL looks it up: in any case."""
    plain = word[1:-1].replace('""', '"') if kind == "identifier" and word[0] == '"' else word
    return plain.lower()
