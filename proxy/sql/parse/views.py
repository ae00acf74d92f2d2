"""Temporary views: CREATE TEMP VIEW and DROP VIEW, and what a session's views mean to a statement.

A view is its definition: a name for a query, as if every statement that names it began with WITH.
So it holds no data, costs nothing, and belongs to one session.  Invariant: the views of a session
are one immutable mapping, in which a view sees those before it only, so that none can hold itself;
a change of them is a new mapping.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from proxy.errors import (
    DependentObjectsError,
    DuplicateColumnError,
    DuplicateTableError,
    InvalidTableDefinitionError,
    NotSupportedError,
    SQLSyntaxError,
    StatementTooComplexError,
    UndefinedTableError,
)
from proxy.policy.promise import FOLD
from proxy.sql.parse import grammar
from proxy.sql.parse.identifiers import name_of, output_name
from proxy.sql.program import Column

MOST, LONGEST = 20, 200_000  # views of a session, and characters of them all
NAME_BYTES = 63  # PostgreSQL cuts what is longer
TEMPORARY = ("TEMP", "TEMPORARY")
SCHEMA = "pg_temp"
NAMELESS = "ibis_"  # begins the names of the views that ibis makes for itself
NOT_WHOLE = "say CREATE TEMP VIEW name AS SELECT …"


class View(Struct, frozen=True):
    """A temporary view: its query, and the columns of that."""

    text: str
    columns: tuple[Column, ...]


Views = Mapping[str, View]


class Create(Struct, frozen=True):
    """CREATE [OR REPLACE] TEMP VIEW; ``text`` is the query, with blanks before it."""

    name: str
    columns: tuple[str, ...]
    text: str
    replaces: bool


class Drop(Struct, frozen=True):
    """DROP VIEW."""

    names: tuple[str, ...]  # none: what ibis 12 has made, which cannot say so with sqlglot 30.18
    if_exists: bool
    cascades: bool


class _Words:
    """The tokens of a statement, from one to the next."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = [token for token in tokens if token.token_type is not TokenType.SEMICOLON]
        self.at = 0

    def word(self, *any_of: str) -> str:
        """Return the next word if it is one of these, and go behind it."""
        token = self.tokens[self.at] if self.at < len(self.tokens) else None
        if token is None or token.token_type is TokenType.IDENTIFIER:
            return ""
        word = token.text.upper()
        self.at += word in any_of
        return word if word in any_of else ""

    def name(self) -> str:
        """Return the next name, as PostgreSQL keeps it, and go behind it.

        Raises:
            SQLSyntaxError: the next token is not a name.
        """
        token = self.tokens[self.at] if self.at < len(self.tokens) else None
        quoted = token is not None and token.token_type is TokenType.IDENTIFIER
        if token is None or not (quoted or re.fullmatch(r"[^\W\d][\w$]*", token.text)):
            at = token.start + 1 if token is not None else None
            raise SQLSyntaxError("expected the name of a view", hint=NOT_WHOLE, position=at)
        self.at += 1
        name = token.text if quoted else token.text.translate(FOLD)
        if len(name.encode()) > NAME_BYTES:
            raise SQLSyntaxError(f"a name is longer than {NAME_BYTES} bytes")
        return name

    def relation(self) -> str:
        """Return the next name of a relation, behind that of its schema where this is written."""
        name = self.name()
        if not self.word("."):
            return name
        return self.name() if name == SCHEMA else f"{name}.{self.name()}"

    def names(self) -> tuple[str, ...]:
        """Return a list of relations."""
        relations = [self.relation()]
        while self.word(","):
            relations.append(self.relation())
        return tuple(relations)


def reads(text: str, tokens: Sequence[Token]) -> Create | Drop | None:
    """Return a statement as a change of views; None if it is not one.

    Raises:
        SQLSyntaxError, NotSupportedError: it is malformed, or not supported.
    """
    words = _Words(tokens)
    if words.word("DROP"):
        return _drop(words) if words.word("VIEW") else None
    if not words.word("CREATE"):
        return None
    replaces = bool(words.word("OR")) and bool(words.word("REPLACE"))
    words.word("LOCAL", "GLOBAL")
    temporary = words.word(*TEMPORARY)
    recursive = words.word("RECURSIVE")
    if not words.word("VIEW"):
        return None
    if not temporary or recursive:
        what = f"CREATE {recursive} VIEW".replace("  ", " ")
        raise NotSupportedError(f"{what} is not supported", hint="CREATE TEMP VIEW is")
    name, columns = words.relation(), []
    if words.tokens[words.at - 2].text == "." and "." in name:
        raise InvalidTableDefinitionError(
            "cannot create temporary relation in non-temporary schema", hint="leave out the schema"
        )
    if words.word("("):
        columns.append(words.name())
        while words.word(","):
            columns.append(words.name())
        if not words.word(")"):
            raise SQLSyntaxError("the list of columns does not end", hint=NOT_WHOLE)
    if not words.word("AS") or words.at == len(words.tokens):
        raise SQLSyntaxError("a view lacks its query", hint=NOT_WHOLE)
    start, end = words.tokens[words.at].start, words.tokens[-1].end + 1
    blank = re.sub(r"\S", " ", text[:start])  # so that places are those of the whole text
    return Create(name, tuple(columns), blank + text[start:end], replaces)


def _drop(words: _Words) -> Drop:
    if_exists = bool(words.word("IF")) and bool(words.word("EXISTS"))
    if if_exists and words.at == len(words.tokens):
        return Drop((), if_exists, False)
    names = words.names()
    cascades = words.word("CASCADE", "RESTRICT") == "CASCADE"
    if words.at < len(words.tokens):
        raise SQLSyntaxError(
            "DROP VIEW takes names of views", position=words.tokens[words.at].start + 1
        )
    return Drop(names, if_exists, cascades)


def created(views: Views, create: Create, columns: Sequence[Column]) -> Views:
    """Return the views with one more; ``columns`` are those of its query.

    Raises:
        DatabaseError: what PostgreSQL says of it, or there are too many.
    """
    if len(create.columns) > len(columns):
        raise SQLSyntaxError("CREATE VIEW specifies more column names than columns")
    names = (*create.columns, *(column.name for column in columns[len(create.columns) :]))
    for name in names:
        if names.count(name) > 1:
            raise DuplicateColumnError(f'column "{name}" specified more than once')
    typed = tuple(
        Column(name, column.type if column.type not in ("unknown", "") else "text")
        for name, column in zip(names, columns, strict=True)
    )
    old = views.get(create.name)
    if old is not None and not create.replaces:
        raise DuplicateTableError(
            f'relation "{create.name}" already exists', hint="CREATE OR REPLACE TEMP VIEW"
        )
    if old is not None and old.columns != typed[: len(old.columns)]:
        raise InvalidTableDefinitionError(
            "cannot change the names, types or order of the columns of a view that is there",
            hint=f"DROP VIEW {create.name} first",
        )
    view = {create.name: View(create.text.strip(), typed)}
    more = {**readable_by(views, create.name), **view, **views, **view}  # its readers come last
    if len(more) > MOST or sum(len(view.text) for view in more.values()) > LONGEST:
        raise StatementTooComplexError(
            f"a session holds {MOST} temporary views, of {LONGEST:,} characters in all",
            hint="drop some: DROP VIEW",
        )
    return more


def dropped(views: Views, drop: Drop) -> tuple[Views, tuple[str, ...]]:
    """Return the remaining views, and notices.

    Raises:
        UndefinedTableError, DependentObjectsError: as PostgreSQL.
    """
    remaining, notices = dict(views), []
    newest = next(reversed(remaining), "")
    names = drop.names or ((newest,) if newest.startswith(NAMELESS) else ())
    for name in names:
        if name not in remaining:
            if not drop.if_exists:
                raise UndefinedTableError(f'view "{name}" does not exist')
            notices.append(f'view "{name}" does not exist, skipping')
            continue
        del remaining[name]
    behind = {each for name in names if name in views for each in _readers(views, name)}
    for name in [each for each in remaining if each in behind]:
        if not drop.cascades:
            raise DependentObjectsError(
                f"cannot drop view {names[0]} because other objects depend on it",
                detail=f"view {name} depends on it",
                hint="Use DROP ... CASCADE to drop the dependent objects too.",
            )
        del remaining[name]
    return remaining, tuple(notices)


def readable_by(views: Views, name: str) -> Views:
    """Return the views that a view of that name may read: those that do not read it."""
    readers = {name, *_readers(views, name)}
    return {each: view for each, view in views.items() if each not in readers}


def _readers(views: Views, name: str) -> list[str]:
    """Return the views that read one, at once or through others."""
    readers: list[str] = []
    for each in list(views)[list(views).index(name) + 1 :] if name in views else ():
        if {name, *readers} & _tables(views[each].text):
            readers.append(each)
    return readers


def readable_in(views: Views, text: str) -> Views:
    """Return the views that a text may name, and those that these may name."""
    wanted: set[str] = set()
    texts = [text]
    for name in reversed(list(views)):
        if any(name.lower() in each.lower().replace('""', '"') for each in texts):
            wanted.add(name)
            texts.append(views[name].text)
    return {name: view for name, view in views.items() if name in wanted}


def _tables(text: str) -> set[str]:
    """Return the names, in no schema, of what a query reads."""
    tables = grammar.parse(text, grammar.tokens(text)).find_all(exp.Table)
    return {
        name_of(table.this)
        for table in tables
        if isinstance(table.this, exp.Identifier) and not table.args.get("db")
    }


def without_positions(tree: exp.Expr, text: str) -> exp.Expr:
    """Return the tree of a view without positions, which would be read as the statement's."""
    for node in tree.walk():
        if isinstance(node, exp.Func) and "start" in node.meta and "name" not in node.meta:
            node.meta["name"] = output_name(node, text)  # it is read off the text
        for place in ("start", "end"):
            node.meta.pop(place, None)
    return tree


__all__ = [
    "Create",
    "Drop",
    "View",
    "Views",
    "created",
    "dropped",
    "readable_by",
    "readable_in",
    "reads",
    "without_positions",
]
