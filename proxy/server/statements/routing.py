"""Routing: whether the engine or the mirror answers a client's statement, or nobody does.

Pure functions of the text and the names of the protected tables.  A mistake here gives no answer:
what is left to the mirror and reads a protected table raises there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from proxy.errors import Error, InsufficientPrivilegeError, NotSupportedError, SQLSyntaxError
from proxy.policy.promise import FOLD, folded
from proxy.server.statements import parameters
from proxy.server.statements.allowed_statements import not_one_statement, refused
from proxy.server.statements.copy_to import take_apart
from proxy.settings import Settings
from proxy.sql.parse import grammar
from proxy.sql.parse.identifiers import name_of
from proxy.sql.parse.views import SCHEMA as TEMPORARY
from proxy.sql.parse.views import Drop, reads

OWN = ("budget", "history")  # relations of schema privacy
DEFAULTS = ["privacy", ".", "utility"]  # the engine knows what holds where nothing was set
LONG = 2000  # characters of a statement that takes more than some milliseconds to read
PLACES = {TokenType.FROM, TokenType.COMMA, TokenType.L_PAREN, TokenType.DOT, TokenType.TABLE}
SIGNS = {TokenType.DASH, TokenType.PLUS, TokenType.DOT}  # before a number
QUERY = {"SELECT", "WITH", "VALUES", "(", "TABLE"}
CONTROL = {"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE"}
CONTROL |= {"PREPARE TRANSACTION"}
CHANGES = {"CREATE", "DROP"}
VIEW = re.compile(r"\bVIEW\b", re.IGNORECASE)
CURSOR = re.compile(r'\s*DECLARE\s+("(?:[^"]|"")+"|[^\W\d]\w*)\s', re.IGNORECASE)
DECLARE = re.compile(r"\s*DECLARE\b.*?\bCURSOR\b.*?\bFOR\b", re.IGNORECASE | re.DOTALL)
NAME = r'("(?:[^"]|"")+"|[^\W\d][\w$]*)'
LISTED = (
    r"\(((?:[^()]|\([^()]*\))*)\)"  # types, some with modifiers, of which PREPARE makes nothing
)
PREPARE = re.compile(rf"\s*PREPARE\s+{NAME}\s*(?:{LISTED})?\s+AS\b", re.IGNORECASE)
EXECUTE = re.compile(rf"\s*EXECUTE\s+{NAME}\s*(?:\((.*)\))?\s*;?\s*\Z", re.IGNORECASE | re.DOTALL)
DEALLOCATE_ALL = re.compile(
    r"\s*(?:DISCARD|DEALLOCATE(?:\s+PREPARE)?)\s+ALL\s*;?\s*\Z", re.IGNORECASE
)
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


class ToMirror(Struct, frozen=True):
    """The mirror runs ``text``."""

    text: str


class Reject(Struct, frozen=True):
    """The client gets an error of ours."""

    error: Error


class ToEngine(Struct, frozen=True):
    """The engine runs ``text``, which begins at ``offset`` of the statement.

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
    declares: str = ""  # the name of a cursor, as it is written
    explains: bool = False  # it is not run
    public: bool = False  # it reads public tables alone, so that the mirror can answer too
    tail: str = ""
    behind: int = 0  # where the tail begins
    view: bool = False  # it creates or drops one


class ExecutePrepared(Struct, frozen=True):
    """EXECUTE, perhaps of a statement that was prepared for the engine."""

    name: str
    arguments: tuple[str, ...]
    text: str


class Deallocate(Struct, frozen=True):
    """DEALLOCATE or DISCARD ALL, which the mirror runs too; ``name`` is None for all."""

    name: str | None
    text: str


Decision = ToMirror | Reject | ToEngine | ExecutePrepared | Deallocate


def route(
    text: str,
    datasets: tuple[str, ...],
    home: str,
    public: tuple[tuple[str, str], ...] = (),
    views: tuple[tuple[str, str], ...] = (),
) -> Decision:
    """Route one statement of a session in the database ``home``.

    ``public`` and ``views`` are the names of public tables and of the session's temporary views,
    each with the dataset whose engine answers for it.
    """
    uncached = len(text) > LONG  # a long text would fill the cache
    decision = _route.__wrapped__ if uncached else _route
    return decision(text, datasets, home, public, views)


@lru_cache(maxsize=1024)
def _route(
    text: str,
    datasets: tuple[str, ...],
    home: str,
    public: tuple[tuple[str, str], ...],
    views: tuple[tuple[str, str], ...],
) -> Decision:
    try:
        decision = _read(text, datasets, home, public, views)
    except SQLSyntaxError:
        decision = ToMirror(text)
    except Error as error:
        return Reject(error)
    if isinstance(decision, Reject):
        return decision
    why = refused(decision.text) if isinstance(decision, ToMirror) else not_one_statement(text)
    return decision if why is None else Reject(why)


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
            return Reject(error)
    if word in ("EXECUTE", "DEALLOCATE", "DISCARD"):
        return _prepared(word, text)
    if word == "ALTER" and re.search(r"\bPASSWORD\b", text, re.IGNORECASE):
        return Reject(InsufficientPrivilegeError("passwords are kept in the users file"))
    if word in ("SET", "RESET"):
        return _setting(text)
    tables, temporary = dict(public), dict(views)
    if word in CHANGES and VIEW.search(text):
        return _view(word, text, datasets, home, {**tables, **temporary})
    if not _mentions(text, (*datasets, *tables, *temporary)):
        return ToMirror(text)
    tokens = _tokens(word, text)
    if word == "SHOW":
        name = tokens[0].text.lower() if tokens else ""
        own = name in OWN or [token.text.lower() for token in tokens[:3]] == DEFAULTS
        return ToEngine(home, text, text, tag="SHOW") if own else ToMirror(text)
    if word == "EXPLAIN" and tokens and tokens[0].text.upper() == "UTILITY":
        named = _named(tokens, datasets) or [tables[t] for t in _named(tokens, tuple(tables))]
        return ToEngine(named[0] if named else home, text, text, tag="EXPLAIN")
    named = _named(tokens, datasets) or _relations(tokens, home)
    named = named or [temporary[name] for name in _named(tokens, tuple(temporary))]
    if not named and word in (*QUERY, "EXPLAIN", "DECLARE", "PREPARE", "COPY") and _veiled(tokens):
        named = [home]
    if named:
        return _touching(word, text, tokens, named[0], (*datasets, *tables), tuple(temporary))
    if shared := _named(tokens, tuple(tables)):  # the mirror has the rows: it does what is left
        if word == "EXPLAIN":
            return ToMirror(plain(text, tokens))
        routed = _touching(word, text, tokens, tables[shared[0]], tuple(tables))
        return replace(routed, public=True) if isinstance(routed, ToEngine) else ToMirror(text)
    return ToMirror(plain(text, tokens))


def first_word(text: str) -> str:
    """Return a statement's first word after comments, in capitals."""
    word = re.match(r"\w+|.", text[_start(text) :], re.DOTALL)
    return word[0].upper() if word else ""


def _start(text: str) -> int:
    """Return where a statement begins after its comments."""
    at = 0
    while match := COMMENTS.match(text, at):
        at = match.end()
    return len(text) - len(text[at:].lstrip())


def _tokens(word: str, text: str) -> list[Token]:
    """Return a query's tokens; of any other statement, those after its first word."""
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
            return Reject(error)
    return ToMirror(text)


def _prepared(word: str, text: str) -> Decision:
    if word == "EXECUTE":
        match = EXECUTE.match(text, _start(text))
        if not match:
            return ToMirror(text)
        return ExecutePrepared(folded(match[1]), arguments(match[2] or ""), text)
    if DEALLOCATE_ALL.match(text, _start(text)):
        return Deallocate(None, text)
    match = DEALLOCATE.match(text, _start(text))
    return Deallocate(folded(match[1]), text) if match else ToMirror(text)


def _named(tokens: Sequence[Token], datasets: Sequence[str]) -> list[str]:
    """Return the names of ``datasets`` that appear where a table may."""
    names = []
    for before, token in zip([None, *tokens], tokens, strict=False):
        name = _name(token)
        if name in datasets and (before is None or _place(before)):
            names.append(name)
    return names


def _place(before: Token) -> bool:
    if before.token_type in PLACES:
        return True
    word = before.text.upper()
    return word in ("JOIN", "ONLY", "INTO", "UPDATE", "COPY", "LOCK", "ANALYZE", "VACUUM", "ON")


def _relations(tokens: Sequence[Token], home: str) -> list[str]:
    """Return the session's dataset if a relation of schema privacy is named."""
    for a, b, c in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if _name(a) == "privacy" and b.token_type is TokenType.DOT and _name(c) in OWN:
            return [home]
    return []


def _veiled(tokens: Sequence[Token]) -> bool:
    """Whether a statement may read a table that it does not name: by a function, or ``U&"…"``."""
    for token, after in pairwise(tokens):
        if after.token_type is TokenType.L_PAREN and UNNAMED.fullmatch(_name(token)):
            return True
    return any(
        a.text.upper() == "U"
        and b.token_type is TokenType.AMP
        and c.token_type is TokenType.IDENTIFIER
        and a.end + 2 == b.end + 1 == c.start
        for a, b, c in zip(tokens, tokens[1:], tokens[2:], strict=False)
    )


def _name(token: Token) -> str:
    if token.token_type is TokenType.IDENTIFIER:
        return token.text
    return "" if token.token_type is TokenType.STRING else token.text.translate(FOLD)


def _view(
    word: str, text: str, datasets: Sequence[str], home: str, others: Mapping[str, str]
) -> Decision:
    """Route CREATE TEMP VIEW, which is the engine's, and DROP VIEW."""
    try:
        tokens = grammar.tokens(text)
        change = reads(text, tokens)
    except Error as error:
        return Reject(error)
    names = change.names if isinstance(change, Drop) else ()
    if change is None or (names and not {*names} & {*others}):
        return ToMirror(text)
    named = _named(tokens, datasets) or [others[name] for name in _named(tokens, tuple(others))]
    dataset = named[0] if named else home
    return ToEngine(dataset, text, text, tag=f"{word} VIEW", view=True)


def _touching(
    word: str,
    text: str,
    tokens: Sequence[Token],
    dataset: str,
    datasets: Sequence[str],
    views: Sequence[str] = (),
) -> Decision:
    """Route a statement that names a protected table."""
    if word in QUERY:
        if not _reads(text, tokens, datasets, views):
            return ToMirror(text)
        return ToEngine(dataset, text, plain(text, tokens))
    start = _start(text)
    if word == "EXPLAIN" and (match := EXPLAIN.match(text, start)):
        body = text[match.end() :]
        if RUNS.search(match[0]):
            word = "EXPLAIN ANALYZE"
        elif first_word(body) in QUERY:
            return ToEngine(dataset, body, _plain(body), match.end(), match[0], explains=True)
    if word == "DECLARE" and (match := DECLARE.match(text, start)):
        body, cursor = text[match.end() :], CURSOR.match(match[0])
        routed = ToEngine(dataset, body, _plain(body), match.end(), match[0], "DECLARE CURSOR")
        return replace(routed, declares=cursor[1] if cursor else "")
    if word == "PREPARE" and (match := PREPARE.match(text, start)):
        body = text[match.end() :]
        named = folded(match[1]), match[2] or ""
        return ToEngine(dataset, body, _plain(body), match.end(), match[0], "PREPARE", named)
    hint = f"ask for counts or sums, for example SELECT COUNT(*) FROM {dataset}"
    if word == "COPY":
        return _copy(text, tokens, dataset, datasets, views)
    if word.startswith("EXPLAIN"):
        hint = f"say what a statement costs with EXPLAIN UTILITY SELECT COUNT(*) FROM {dataset}"
    return Reject(
        NotSupportedError(f"{word} is not supported on the protected table {dataset}", hint=hint)
    )


def _copy(
    text: str,
    tokens: Sequence[Token],
    dataset: str,
    datasets: Sequence[str],
    views: Sequence[str],
) -> Decision:
    """Route a COPY as its query would be routed."""
    parts = take_apart(text, tokens, dataset)
    if isinstance(parts, Error):
        return Reject(parts)
    word = first_word(parts.query)
    routed = _touching(word, parts.query, grammar.tokens(parts.query), dataset, datasets, views)
    if isinstance(routed, ToEngine):
        start, stop = len(text) - len(parts.query.lstrip()), len(parts.query.rstrip())
        query, bare = parts.query[start:stop], routed.plain[start:stop]
        routed = replace(routed, text=query, plain=bare, offset=start, head=parts.head)
        return replace(routed, tail=parts.tail, behind=len(text) - len(parts.tail))
    return routed if isinstance(routed, Reject) else ToMirror(text)


def _reads(
    text: str, tokens: Sequence[Token], datasets: Sequence[str], views: Sequence[str]
) -> bool:
    """Whether a query may read a protected table; True where the text does not tell."""
    if _veiled(tokens):
        return True
    try:
        bare = [t for t in tokens if t.token_type is not TokenType.SEMICOLON]
        read = grammar.look if len(bare) == len(tokens) else grammar.parse
        tree = read(text, bare)
    except (Error, RecursionError):
        return True
    for table in tree.find_all(exp.Table):
        schema, this = table.args.get("db"), table.this
        if not isinstance(this, exp.Identifier):
            continue
        name = name_of(this)
        where = schema.name.lower() if schema is not None else "public"
        if (where == "public" and name in datasets) or (where == "privacy" and name in OWN):
            return True
        if name in views and (schema is None or schema.name.lower() == TEMPORARY):
            return True
    return False


def _plain(text: str) -> str:
    try:
        return plain(text, grammar.tokens(text))
    except Error:
        return text


def plain(text: str, tokens: Sequence[Token]) -> str:
    """Return the text with its utility clauses replaced by blanks."""
    out = text
    for i in range(1, len(tokens) - 2):
        if tokens[i].token_type is not TokenType.WITH or tokens[i + 1].text.upper() != "UTILITY":
            continue
        end = _clause_end(tokens, i + 2)
        if end is not None:
            start, stop = tokens[i].start, tokens[end].end + 1
            out = out[:start] + " " * (stop - start) + out[stop:]
    return out


def _clause_end(tokens: Sequence[Token], at: int) -> int | None:
    """Return the last token of ``(…) [, name (…)] [, MAX COST n]…``; None if it is no clause."""
    last = None
    while True:
        if last is not None:
            if at >= len(tokens) or tokens[at].token_type is not TokenType.COMMA:
                break
            at += 1
        if [token.text.upper() for token in tokens[at : at + 2]] == ["MAX", "COST"]:
            at += 2
            while at < len(tokens) - 1 and tokens[at].token_type in SIGNS:
                at += 1
            last, at = min(at, len(tokens) - 1), at + 1
            continue
        if at < len(tokens) and tokens[at].token_type is not TokenType.L_PAREN:
            at += 1  # a name
        if at >= len(tokens) or tokens[at].token_type is not TokenType.L_PAREN:
            return last
        while at < len(tokens) and tokens[at].token_type is not TokenType.R_PAREN:
            at += 1
        last, at = min(at, len(tokens) - 1), at + 1
    after = tokens[at].text.upper() if at < len(tokens) else ""
    return None if after == "AS" else last


def split_types(listed: str) -> list[str]:
    """Return the names in PREPARE's list of types."""
    return [name.strip() for name in re.split(r",(?![^()]*\))", listed)] if listed.strip() else []


def arguments(text: str) -> tuple[str, ...]:
    """Return the arguments of EXECUTE, split at the commas outside of brackets."""
    if not text.strip():
        return ()
    tokens, depth, starts, ends = grammar.tokens(text), 0, [0], []
    for token in tokens:
        depth += token.token_type in grammar.OPENING
        depth -= token.token_type in grammar.CLOSING
        if token.token_type is TokenType.COMMA and not depth:
            ends.append(token.start)
            starts.append(token.end + 1)
    return tuple(text[a:b].strip() for a, b in zip(starts, [*ends, len(text)], strict=True))
