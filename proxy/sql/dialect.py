"""Text to tree: PostgreSQL's grammar, plus the utility clause, hints, and the limits on a text.

The clause is ``WITH UTILITY (half_width [PERCENT], delta) [, name (half_width, delta)] ...``, last
in a query, before or after a LIMIT; after a UNION it covers the whole.  A hint is any comment that
reads ``UTILITY(half_width, delta)``.  Invariant: nothing is parsed before its length and its
nesting are known to be small.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError, UnsupportedError
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType

from proxy.errors import (
    NotSupportedError,
    SQLSyntaxError,
    StatementTooComplexError,
    UtilityError,
)
from proxy.sql.program import Request

MAX_BYTES = 1_000_000
MAX_DEPTH = 500  # brackets, CASEs and prefix operators within one another
OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}
PREFIX = {TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE}
HINT = re.compile(r"\s*\+?\s*UTILITY\s*\(([^()]*)\)\s*", re.IGNORECASE)
NUMBER = r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d{1,3})?)\s*"
LITERAL = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?", re.ASCII)
PAIR = re.compile(rf"\(?{NUMBER}(percent|%)?\s*,{NUMBER}\)?", re.IGNORECASE)


class Utility(exp.Expression):
    """The utility clause: a list of UtilityItem."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}


class UtilityItem(exp.Expression):
    """``[name] (half_width [PERCENT], delta)``; the name is that of an output column."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "expression": True,
        "percent": False,
        "name": False,
    }


class UtilityParser(Parser):
    """A parser, extended where a query's modifiers end."""

    def _parse_query_modifiers(self, this: Any) -> Any:
        this = super()._parse_query_modifiers(this)
        if not isinstance(this, exp.Query) or not self._match_text_seq("WITH", "UTILITY"):
            return this
        if this.args.get("utility"):
            self.raise_error("Found multiple 'WITH UTILITY' clauses", self._prev)
        items = self._parse_csv(self._parse_utility_item)
        this.set("utility", self.expression(Utility(expressions=items)))
        return self._parse_query_modifiers(this)  # a LIMIT appended by a tool

    def _warn_unsupported(self) -> None:
        self.raise_error("Unsupported syntax")  # sqlglot would log it and go on

    def _parse_utility_item(self) -> Any:
        start = self._curr
        name = None if self._curr.token_type is TokenType.L_PAREN else self._parse_id_var()
        self._match_l_paren()
        half_width = self._parse_unary()
        percent = bool(self._match_text_seq("PERCENT") or self._match(TokenType.MOD))
        if not self._match(TokenType.COMMA):
            self.raise_error("Expecting ', delta)' in WITH UTILITY")
        delta = self._parse_unary()
        self._match_r_paren()
        item = UtilityItem(this=half_width, expression=delta, percent=percent, name=name)
        item.meta["start"] = start.start
        return self.expression(item)

    def _parse_set_operations(self, this: Any) -> Any:
        this = super()._parse_set_operations(this)
        return self._parse_query_modifiers(this) if isinstance(this, exp.SetOperation) else this


def extended(name: str) -> Dialect:
    """Return one of sqlglot's dialects with the utility clause."""
    base: Any = type(Dialect.get_or_raise(name))
    modifiers = base.parser_class.SET_OP_MODIFIERS | {"utility"}
    parser = type("Parser", (UtilityParser, base.parser_class), {"SET_OP_MODIFIERS": modifiers})
    made: Dialect = type(f"Proxy{base.__name__}", (base,), {"Parser": parser})()
    return made


LANGUAGES = ("postgres", "duckdb", "mysql", "bigquery", "snowflake", "tsql")
DIALECT = extended("postgres")
_extended = {"postgres": DIALECT}


def language(name: str) -> Dialect:
    """Return one of the languages that statements may be written in.

    Raises:
        NotSupportedError: none of ours.
    """
    if name not in LANGUAGES:
        raise NotSupportedError(
            f"the dialect {name} is not known", hint=f"there are {', '.join(LANGUAGES)}"
        )
    if name not in _extended:
        _extended[name] = extended(name)
    return _extended[name]


def tokens(text: str, name: str = "postgres") -> list[Token]:
    """Return the tokens of a text.

    Raises:
        SQLSyntaxError: a quote or a comment does not end.
        StatementTooComplexError: the text is too long, or nested too deeply.
    """
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise StatementTooComplexError(f"the statement is longer than {MAX_BYTES} bytes")
    try:
        found = language(name).tokenize(text)
    except SqlglotError as error:
        at = getattr(error, "start", None)
        raise SQLSyntaxError(
            "the text ends inside a quotation or a comment",
            position=None if at is None else at + 1,
        ) from None
    depth = deepest = run = 0
    for token in found:
        kind = token.token_type
        run = run + 1 if kind in PREFIX else 0
        depth += (kind in OPENING) - (kind in CLOSING)
        deepest = max(deepest, depth + run)
    if deepest > MAX_DEPTH:
        raise StatementTooComplexError(
            f"the statement is nested {deepest} levels deep; {MAX_DEPTH} are allowed"
        )
    return found


def split(text: str) -> list[str]:
    """Return the statements of a text, without the semicolons between them."""
    starts = [0]
    ends = []
    for token in tokens(text):
        if token.token_type is TokenType.SEMICOLON:
            ends.append(token.start)
            starts.append(token.end + 1)
    pieces = [text[a:b] for a, b in zip(starts, [*ends, len(text)], strict=True)]
    return [piece for piece in pieces if piece.strip()] or [text]


def translated(text: str, found: Sequence[Token], name: str) -> tuple[str, list[Token]]:
    """Return a statement of another language as one of PostgreSQL, with its utility.

    Raises:
        SQLSyntaxError: it does not parse.
        NotSupportedError: PostgreSQL has no words for it.
    """
    tree = parse(text, found, name)
    clause = tree.args.get("utility")
    asked = hint(found)
    for node in list(tree.find_all(exp.Hint)):  # where the language has hints of its own
        written = node.sql(comments=False).removeprefix("/*+").removesuffix("*/")
        if asked is None and (match := HINT.fullmatch(written)):
            asked = pair(match[1], source="hint")
        node.pop()
    try:
        made = tree.sql(dialect="postgres", comments=False, unsupported_level=ErrorLevel.RAISE)
    except UnsupportedError as error:
        raise NotSupportedError(f"not translated from {name}: {error}") from None
    if isinstance(clause, Utility):
        made += f" WITH UTILITY {', '.join(_written(item) for item in clause.expressions)}"
    elif asked is not None:
        unit = " PERCENT" if asked.relative else ""
        made = f"/*+ UTILITY({_plain(asked.half_width)}{unit}, {_plain(asked.delta)}) */ {made}"
    return made, tokens(made)


def _plain(number: Fraction) -> str:
    return format(Decimal(number.numerator) / Decimal(number.denominator), "f")


def _written(item: exp.Expr) -> str:
    name = item.args.get("name")
    unit = " PERCENT" if item.args.get("percent") else ""
    pair = f"({item.this.sql()}{unit}, {item.expression.sql()})"
    return pair if name is None else f"{name.sql(dialect='postgres')} {pair}"


def parse(text: str, found: Sequence[Token], name: str = "postgres") -> exp.Expr:
    """Return the tree of one query.

    Raises:
        SQLSyntaxError: the text does not parse; ``position`` and DETAIL say where.
    """
    try:
        trees = language(name).parser().parse(list(found), text)
    except ParseError as error:
        raise _syntax_error(text, error) from None
    except (SqlglotError, ValueError, TypeError, AttributeError, LookupError) as error:
        # sqlglot's own slips on half a statement; what it meant to say is the same
        raise SQLSyntaxError("the text does not parse") from error
    if len(trees) != 1 or trees[0] is None:
        raise SQLSyntaxError("expected one statement")
    for number in trees[0].find_all(exp.Literal):
        if not number.args["is_string"] and not LITERAL.fullmatch(number.name):
            at = number.meta.get("start", -1) + 1 or None
            raise SQLSyntaxError(f"{number.name[:40]} is not a number", position=at)
    for quoted in list(trees[0].find_all(exp.RawString, exp.ByteString, exp.National)):
        quoted.replace(exp.Literal.string(quoted.name))  # $$text$$, E'text', N'text'
    return trees[0]


def _syntax_error(text: str, error: ParseError) -> SQLSyntaxError:
    first = error.errors[0] if error.errors else {}
    what = str(first.get("description") or "the text does not parse").rstrip(".")
    if what.startswith("Required keyword"):
        what = "the expression is incomplete"
    token = str(first.get("highlight") or "")
    line, last = int(first.get("line") or 1), int(first.get("col") or 1)
    column = max(last - len(token) + 1, 1)  # sqlglot gives the column of the token's end
    lines = text.split("\n")
    position = sum(len(row) + 1 for row in lines[: line - 1]) + column
    near = f' at or near "{token}"' if token else " at the end of the text"
    return SQLSyntaxError(
        f"syntax error{near}: {what[:1].lower()}{what[1:]}",
        detail=caret(text, position),
        position=position,
    )


def caret(text: str, position: int) -> str:
    """Return line and column of a 1-based position, the line itself, and a caret below it."""
    before = text[: position - 1]
    line = before.count("\n") + 1
    column = position - (before.rfind("\n") + 1)
    shown = text.split("\n")[line - 1]
    start = max(column - 60, 0)
    piece = shown[start : start + 120].replace("\t", " ")
    return f"line {line}, column {column}\n  {piece}\n  {' ' * (column - 1 - start)}^"


def hint(found: Sequence[Token]) -> Request | None:
    """Return the utility that a comment asks for, if one does."""
    for token in found:
        for comment in token.comments:
            match = HINT.fullmatch(comment)
            if match:
                return pair(match[1], source="hint")
    return None


def pair(text: str, source: str) -> Request:
    """Return the request that ``50, 0.05`` or ``5 PERCENT, 0.05`` stands for.

    Raises:
        UtilityError: it is no such pair, or its numbers are out of range.
    """
    match = PAIR.fullmatch(text.strip())
    if not match:
        raise UtilityError(
            "a utility reads: half_width, delta", hint="for example 50, 0.05 or 5 PERCENT, 0.05"
        )
    return request(Fraction(match[1]), Fraction(match[3]), bool(match[2]), source)


def requests(clause: Utility) -> tuple[Request | None, dict[str, Request]]:
    """Return the request of a clause for all numbers, and those for named columns."""
    general: Request | None = None
    named: dict[str, Request] = {}
    for item in clause.expressions:
        at = item.meta.get("start", -1) + 1 or None
        numbers = (_number(item.this, at), _number(item.expression, at))
        made = request(*numbers, bool(item.args.get("percent")), position=at)
        name = item.args.get("name")
        if name is not None:
            text = name.name
            named[text if name.args.get("quoted") else text.lower()] = made
        elif general is None:
            general = made
        else:
            raise UtilityError(
                "WITH UTILITY has two requests for all numbers",
                hint="WITH UTILITY (50, 0.05), total (170000, 0.05): the others name a column",
                position=at,
            )
    return general, named


def _number(node: exp.Expr, at: int | None) -> Fraction:
    if isinstance(node, exp.Neg):
        return -_number(node.this, at)
    if isinstance(node, exp.Paren):
        return _number(node.this, at)
    if isinstance(node, exp.Literal) and not node.is_string:
        return Fraction(node.name)
    raise UtilityError("a utility takes plain numbers: WITH UTILITY (50, 0.05)", position=at)


def request(
    half_width: Fraction,
    delta: Fraction,
    relative: bool = False,
    source: str = "clause",
    position: int | None = None,
) -> Request:
    """Return a request whose numbers make sense.

    Raises:
        UtilityError: half_width <= 0, or delta not between 0 and 1.
    """
    if half_width <= 0:
        raise UtilityError(
            "the half_width of a utility must be more than 0",
            hint="WITH UTILITY (50, 0.05): within 50 with a confidence of 95%",
            position=position,
        )
    if not 0 < delta < 1:
        raise UtilityError(
            "the delta of a utility must be between 0 and 1",
            hint="a confidence of 95% is delta 0.05",
            position=position,
        )
    return Request(half_width, delta, relative, source)
