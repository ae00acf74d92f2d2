"""What to do with one statement of a client: ask the engine, leave it to the mirror, or refuse.

Pure functions of the text and the names of the protected tables.  A mistake here gives no answer:
what is left to the mirror and reads a protected table raises there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from proxy.errors import (
    Error,
    InsufficientPrivilegeError,
    NotSupportedError,
    SQLSyntaxError,
)
from proxy.server.session import parameters
from proxy.server.session.copy_to import taken_apart
from proxy.settings import Settings
from proxy.sql.parse import grammar
from proxy.sql.parse.identifiers import FOLD, name_of
from proxy.sql.parse.views import SCHEMA as TEMPORARY
from proxy.sql.parse.views import Drop, reads

OWN = ("budget", "history")  # relations of schema privacy
DEFAULTS = ["privacy", ".", "utility"]  # the engine knows what holds where nothing was set
LONG = 2000  # characters of a statement that takes more than some milliseconds to read
PLACES = {TokenType.FROM, TokenType.COMMA, TokenType.L_PAREN, TokenType.DOT, TokenType.TABLE}
QUERY = {"SELECT", "WITH", "VALUES", "(", "TABLE"}
CONTROL = {"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE"}
CONTROL |= {"PREPARE TRANSACTION"}
CHANGES = {"CREATE", "DROP"}
VIEW = re.compile(r"\bVIEW\b", re.IGNORECASE)
DECLARE = re.compile(r"\s*DECLARE\b.*?\bCURSOR\b.*?\bFOR\b", re.IGNORECASE | re.DOTALL)
NAME = r'("(?:[^"]|"")+"|[^\W\d][\w$]*)'
PREPARE = re.compile(rf"\s*PREPARE\s+{NAME}\s*(?:\(([^()]*)\))?\s+AS\b", re.IGNORECASE)
EXECUTE = re.compile(rf"\s*EXECUTE\s+{NAME}\s*(?:\((.*)\))?\s*;?\s*\Z", re.IGNORECASE | re.DOTALL)
DEALLOCATE = re.compile(rf"\s*DEALLOCATE\s+(?:PREPARE\s+)?{NAME}\s*;?\s*\Z", re.IGNORECASE)
EXPLAIN = re.compile(
    r"\s*EXPLAIN\b(?!\s+UTILITY\b)\s*"
    r"(?:\((?!\s*(?:SELECT|WITH|VALUES|TABLE)\b)[^()]*\)\s*|(?:ANALY[SZ]E|VERBOSE)\b\s*)*",
    re.IGNORECASE,
)
RUNS = re.compile(r"\bANALY[SZ]E\b(?!\W*(?:FALSE|OFF|0)\b)", re.IGNORECASE)  # what EXPLAIN explains
UNNAMED = re.compile(  # functions that read what a text or a number says, or count its rows
    r"(?:query|table|cursor|schema|database)_to_xml\w*|ts_stat|ts_rewrite"
    r"|pg_stat_get_(?:xact_)?(?:live_tuples|dead_tuples|tuples_\w+)",
    re.IGNORECASE,
)
LARGE = re.compile(r"\$0*[1-9][0-9]{4}")  # PostgreSQL makes room for all parameters up to a number
COMMENTS = re.compile(r"\s*(?:--[^\n]*\n|/\*.*?\*/)", re.DOTALL)


@dataclass(frozen=True)
class Forward:
    """The mirror answers; ``text`` is what it gets."""

    text: str


@dataclass(frozen=True)
class Refuse:
    """Nobody answers."""

    error: Error


@dataclass(frozen=True)
class Ask:
    """The engine answers ``text``, which begins at ``offset`` of the statement.

    ``head`` (of DECLARE … FOR, PREPARE … AS, …) goes before the rows, ``tail`` (of COPY) comes
    behind them; ``plain`` is the text without what only the engine understands.
    """

    dataset: str
    text: str
    plain: str
    offset: int = 0
    head: str = ""
    tag: str | None = None
    prepares: tuple[str, str] | None = None  # name and types, of PREPARE
    explains: bool = False  # it is not run
    public: bool = False  # it reads public tables alone, so that the mirror can answer too
    tail: str = ""
    behind: int = 0  # where the tail begins
    view: bool = False  # it creates or drops one


@dataclass(frozen=True)
class Execute:
    """EXECUTE of a statement that may be one of the engine's."""

    name: str
    arguments: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Forget:
    """DEALLOCATE or DISCARD: the mirror does it; ``name`` is None for all."""

    name: str | None
    text: str


Decision = Forward | Refuse | Ask | Execute | Forget


def decide(
    text: str,
    datasets: tuple[str, ...],
    home: str,
    public: tuple[tuple[str, str], ...] = (),
    views: tuple[tuple[str, str], ...] = (),
) -> Decision:
    """Return what to do with one statement in a session of the database ``home``.

    ``public`` are the public tables, each with the dataset whose engine answers for it, and
    ``views`` the temporary views that the session may have.
    """
    found = _decide if len(text) <= LONG else _decide.__wrapped__  # long ones are not remembered
    return found(text, datasets, home, public, views)


@lru_cache(maxsize=1024)
def _decide(
    text: str,
    datasets: tuple[str, ...],
    home: str,
    public: tuple[tuple[str, str], ...],
    views: tuple[tuple[str, str], ...],
) -> Decision:
    try:
        return _read(text, datasets, home, public, views)
    except SQLSyntaxError:
        return Forward(text)  # an open quotation: the mirror says so too
    except Error as error:
        return Refuse(error)


def _read(
    text: str,
    datasets: tuple[str, ...],
    home: str,
    public: tuple[tuple[str, str], ...],
    views: tuple[tuple[str, str], ...],
) -> Decision:
    word = first_word(text)
    if LARGE.search(text):
        try:
            parameters.check_numbers(text)
        except Error as error:
            return Refuse(error)
    if word in ("EXECUTE", "DEALLOCATE", "DISCARD"):
        return _prepared(word, text)
    if word == "ALTER" and re.search(r"\bPASSWORD\b", text, re.IGNORECASE):
        return Refuse(InsufficientPrivilegeError("passwords are kept in the users file"))
    if word in ("SET", "RESET"):
        return _setting(text)
    tables, made = dict(public), dict(views)
    if word in CHANGES and VIEW.search(text):
        return _view(word, text, datasets, home, {**tables, **made})
    if not _mentions(text, (*datasets, *tables, *made)):
        return Forward(text)
    found = _tokens(word, text)
    if word == "SHOW":
        name = found[0].text.lower() if found else ""
        own = name in OWN or [token.text.lower() for token in found[:3]] == DEFAULTS
        return Ask(home, text, text, tag="SHOW") if own else Forward(text)
    if word == "EXPLAIN" and found and found[0].text.upper() == "UTILITY":
        named = _named(found, datasets) or [tables[t] for t in _named(found, tuple(tables))]
        return Ask(named[0] if named else home, text, text, tag="EXPLAIN")
    named = _named(found, datasets) or _relations(found, home)
    named = named or [made[name] for name in _named(found, tuple(made))]
    if not named and word in (*QUERY, "EXPLAIN", "DECLARE", "PREPARE", "COPY") and _veiled(found):
        named = [home]
    if named:
        return _touching(word, text, found, named[0], (*datasets, *tables), tuple(made))
    if shared := _named(found, tuple(tables)):  # the mirror has the rows: it does what is left
        if word == "EXPLAIN":
            return Forward(plain(text, found))
        asked = _touching(word, text, found, tables[shared[0]], tuple(tables))
        return replace(asked, public=True) if isinstance(asked, Ask) else Forward(text)
    return Forward(plain(text, found))


def split(text: str) -> list[tuple[str, int]]:
    """Return the statements of a text, and where each begins; one that has no end is one."""
    try:
        pieces = grammar.split(text)
    except Error:
        return [(text, 0)]
    found, at = [], 0
    for piece in pieces:
        at = text.index(piece, at)
        found.append((piece, at))
        at += len(piece)
    return found


def first_word(text: str) -> str:
    """Return the first word of a statement, in capitals, behind its comments."""
    word = re.match(r"\w+|.", text[_start(text) :], re.DOTALL)
    return word[0].upper() if word else ""


def _start(text: str) -> int:
    """Return where a statement begins, behind its comments."""
    at = 0
    while match := COMMENTS.match(text, at):
        at = match.end()
    return len(text) - len(text[at:].lstrip())


def _tokens(word: str, text: str) -> list[Token]:
    """Return the tokens of a statement; of one that is no query, those behind its first word."""
    if word in QUERY:
        return grammar.tokens(text)
    start = _start(text)
    return grammar.tokens(" " * (start + len(word)) + text[start + len(word) :])


def _mentions(text: str, datasets: Sequence[str]) -> bool:
    low = text.lower().replace('""', '"')
    names = (*datasets, "privacy", "utility", 'u&"', *OWN)
    return any(name.lower() in low for name in names) or UNNAMED.search(low) is not None


def _setting(text: str) -> Decision:
    match = re.fullmatch(
        r"\s*SET\s+(?:SESSION\s+|LOCAL\s+)?(privacy\.\w+)\s*(?:=|\bTO\b)\s*(.*?)\s*;?\s*",
        text,
        re.IGNORECASE | re.DOTALL,
    )
    if match and match[2].upper() != "DEFAULT":
        value = match[2].strip("'") if match[2].startswith("'") else match[2]
        try:
            Settings().set(match[1].lower(), value)
        except Error as error:
            return Refuse(error)
    return Forward(text)


def _prepared(word: str, text: str) -> Decision:
    if word == "EXECUTE":
        match = EXECUTE.match(text, _start(text))
        return Execute(fold(match[1]), arguments(match[2] or ""), text) if match else Forward(text)
    match = DEALLOCATE.match(text, _start(text))
    named = match is not None and match[1].upper() != "ALL"
    return Forget(fold(match[1]) if match and named else None, text)


def _named(found: Sequence[Token], datasets: Sequence[str]) -> list[str]:
    """Return the protected tables that stand where a table may stand."""
    names = []
    for before, token in zip([None, *found], found, strict=False):
        name = _name(token)
        if name in datasets and (before is None or _place(before)):
            names.append(name)
    return names


def _place(before: Token) -> bool:
    if before.token_type in PLACES:
        return True
    word = before.text.upper()
    return word in ("JOIN", "ONLY", "INTO", "UPDATE", "COPY", "LOCK", "ANALYZE", "VACUUM", "ON")


def _relations(found: Sequence[Token], home: str) -> list[str]:
    """Return the dataset of the session's database, if a relation of schema privacy is read."""
    for a, b, c in zip(found, found[1:], found[2:], strict=False):
        if _name(a) == "privacy" and b.token_type is TokenType.DOT and _name(c) in OWN:
            return [home]
    return []


def _veiled(found: Sequence[Token]) -> bool:
    """Whether a statement may read a table that it does not name: by a function, or ``U&"…"``."""
    for token, after in pairwise(found):
        if after.token_type is TokenType.L_PAREN and UNNAMED.fullmatch(_name(token)):
            return True
    return any(
        a.text.upper() == "U"
        and b.token_type is TokenType.AMP
        and c.token_type is TokenType.IDENTIFIER
        and a.end + 2 == b.end + 1 == c.start
        for a, b, c in zip(found, found[1:], found[2:], strict=False)
    )


def _name(token: Token) -> str:
    if token.token_type is TokenType.IDENTIFIER:
        return token.text
    return "" if token.token_type is TokenType.STRING else token.text.translate(FOLD)


def _view(
    word: str, text: str, datasets: Sequence[str], home: str, others: Mapping[str, str]
) -> Decision:
    """Return what to do with CREATE TEMP VIEW, which is the engine's, and with DROP VIEW."""
    try:
        found = grammar.tokens(text)
        change = reads(text, found)
    except Error as error:
        return Refuse(error)
    names = change.names if isinstance(change, Drop) else ()
    if change is None or (names and not {*names} & {*others}):
        return Forward(text)
    named = _named(found, datasets) or [others[name] for name in _named(found, tuple(others))]
    dataset = named[0] if named else home
    return Ask(dataset, text, text, tag=f"{word} VIEW", view=True)


def _touching(
    word: str,
    text: str,
    found: Sequence[Token],
    dataset: str,
    datasets: Sequence[str],
    views: Sequence[str] = (),
) -> Decision:
    """Return what to do with a statement that has the name of a protected table in it."""
    if word in QUERY:
        if not _reads(text, found, datasets, views):
            return Forward(text)
        return Ask(dataset, text, plain(text, found))
    start = _start(text)
    if word == "EXPLAIN" and (match := EXPLAIN.match(text, start)):
        body = text[match.end() :]
        if RUNS.search(match[0]):
            word = "EXPLAIN ANALYZE"
        elif first_word(body) in QUERY:
            return Ask(dataset, body, _plain(body), match.end(), match[0], explains=True)
    if word == "DECLARE" and (match := DECLARE.match(text, start)):
        body = text[match.end() :]
        return Ask(dataset, body, _plain(body), match.end(), match[0], "DECLARE CURSOR")
    if word == "PREPARE" and (match := PREPARE.match(text, start)):
        body = text[match.end() :]
        named = fold(match[1]), match[2] or ""
        return Ask(dataset, body, _plain(body), match.end(), match[0], "PREPARE", named)
    hint = f"ask for counts or sums, for example SELECT COUNT(*) FROM {dataset}"
    if word == "COPY":
        return _copy(text, found, dataset, datasets, views)
    if word.startswith("EXPLAIN"):
        hint = f"say what a statement costs with EXPLAIN UTILITY SELECT COUNT(*) FROM {dataset}"
    return Refuse(
        NotSupportedError(f"{word} is not supported on the protected table {dataset}", hint=hint)
    )


def _copy(
    text: str,
    found: Sequence[Token],
    dataset: str,
    datasets: Sequence[str],
    views: Sequence[str],
) -> Decision:
    """Return what to do with a COPY: what would be done with its query."""
    parts = taken_apart(text, found, dataset)
    if isinstance(parts, Error):
        return Refuse(parts)
    word = first_word(parts.query)
    asked = _touching(word, parts.query, grammar.tokens(parts.query), dataset, datasets, views)
    if isinstance(asked, Ask):
        start, stop = len(text) - len(parts.query.lstrip()), len(parts.query.rstrip())
        query, bare = parts.query[start:stop], asked.plain[start:stop]
        asked = replace(asked, text=query, plain=bare, offset=start, head=parts.head)
        return replace(asked, tail=parts.tail, behind=len(text) - len(parts.tail))
    return asked if isinstance(asked, Refuse) else Forward(text)


def _reads(
    text: str, found: Sequence[Token], datasets: Sequence[str], views: Sequence[str]
) -> bool:
    """Whether a query reads a protected table; a text that does not parse, or hides it, may."""
    if _veiled(found):
        return True
    try:
        tree = grammar.parse(text, [t for t in found if t.token_type is not TokenType.SEMICOLON])
    except (Error, RecursionError):
        return True
    for table in tree.find_all(exp.Table):
        schema, this = table.args.get("db"), table.this
        if not isinstance(this, exp.Identifier):
            continue
        name = name_of(this)
        place = schema.name.lower() if schema is not None else "public"
        if (place == "public" and name in datasets) or (place == "privacy" and name in OWN):
            return True
        if name in views and (schema is None or schema.name.lower() == TEMPORARY):
            return True
    return False


def _plain(text: str) -> str:
    try:
        return plain(text, grammar.tokens(text))
    except Error:
        return text


def plain(text: str, found: Sequence[Token]) -> str:
    """Return the text without its utility clauses, blanks in their place."""
    out = text
    for i in range(1, len(found) - 2):
        if found[i].token_type is not TokenType.WITH or found[i + 1].text.upper() != "UTILITY":
            continue
        end = _clause_end(found, i + 2)
        if end is not None:
            start, stop = found[i].start, found[end].end + 1
            out = out[:start] + " " * (stop - start) + out[stop:]
    return out


def _clause_end(found: Sequence[Token], at: int) -> int | None:
    """Return the last token of ``(…) [, name (…)]…``; None if this is no utility clause."""
    last = None
    while True:
        if last is not None:
            if at >= len(found) or found[at].token_type is not TokenType.COMMA:
                break
            at += 1
        if at < len(found) and found[at].token_type is not TokenType.L_PAREN:
            at += 1  # a name
        if at >= len(found) or found[at].token_type is not TokenType.L_PAREN:
            return last
        while at < len(found) and found[at].token_type is not TokenType.R_PAREN:
            at += 1
        last, at = min(at, len(found) - 1), at + 1
    after = found[at].text.upper() if at < len(found) else ""
    return None if after == "AS" else last


def fold(name: str) -> str:
    """Return a name as PostgreSQL keeps it."""
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.translate(FOLD)


def arguments(text: str) -> tuple[str, ...]:
    """Return the arguments of EXECUTE, split at the commas outside of brackets."""
    if not text.strip():
        return ()
    found, depth, starts, ends = grammar.tokens(text), 0, [0], []
    for token in found:
        depth += token.token_type in grammar.OPENING
        depth -= token.token_type in grammar.CLOSING
        if token.token_type is TokenType.COMMA and not depth:
            ends.append(token.start)
            starts.append(token.end + 1)
    return tuple(text[a:b].strip() for a, b in zip(starts, [*ends, len(text)], strict=True))
