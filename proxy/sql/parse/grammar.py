"""Text to tree: PostgreSQL's grammar, plus the utility clause, hints, and the limits on a text.

The clause is ``WITH UTILITY (half_width [PERCENT], delta) [, name (half_width, delta)] ...
[, MAX COST alpha]``, last in a query, before or after a LIMIT; after a UNION it covers the whole.
A hint is any comment that reads ``UTILITY(half_width, delta)``, ``MAX_COST(alpha)``, or both.
Invariant: nothing is parsed before its length and its nesting are known to be small.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError, UnsupportedError
from sqlglot.tokenizer_core import Token, TokenType

from proxy.errors import (
    NotSupportedError,
    SQLSyntaxError,
    StatementTooComplexError,
)
from proxy.sql.parse.dialects import language
from proxy.sql.parse.dollars import QUOTATION, marked, unmarked
from proxy.sql.parse.literals import plain
from proxy.sql.parse.numbers import apart, refuse_junk
from proxy.sql.parse.tree import nodes
from proxy.sql.parse.utility_clause import MaxCost, Utility, hint, hinted, max_cost

MAX_BYTES = 1_000_000
MAX_DIGITS = 2000  # of one number: Python reads 4300, and few are this long
MAX_TOKENS = 60_000  # a list of 20,000 values has 40,000
MAX_CONNECTIVES = 5_000  # ANDs and ORs, each of which takes much more memory than a value
SHORT = 1_000  # tokens that are kept for who reads the text again
MAX_DEPTH = 500  # brackets, CASEs and prefix operators within one another
OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}
PREFIX = {TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE}
ENDING = {  # what no expression begins with
    *(TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.QUALIFY),
    *(TokenType.ORDER_BY, TokenType.LIMIT, TokenType.OFFSET, TokenType.FETCH, TokenType.UNION),
    *(TokenType.INTERSECT, TokenType.EXCEPT, TokenType.R_PAREN, TokenType.SEMICOLON),
    TokenType.COMMA,
}
CONNECTIVES = {TokenType.AND, TokenType.OR}
SPLIT = "ask in several statements, or join with a public table of the values"
OPEN = {TokenType.COMMA, TokenType.GROUP_BY, TokenType.OFFSET, TokenType.ON}  # sqlglot needs none
NUMBER = TokenType.NUMBER
NAMELESS = {TokenType.FROM, TokenType.JOIN, TokenType.COMMA, TokenType.DOT, TokenType.L_PAREN}
QUOTED = (exp.RawString, exp.ByteString, exp.National)
WRITTEN = (exp.Literal, *QUOTED)
LITERAL = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?", re.ASCII)


class _Ahead(threading.local):
    """The text that was looked at last, and its tree; the one that was read last, and its tokens.

    Who routes a statement reads it first, and who compiles it again.
    """

    looked: tuple[str, tuple[exp.Expr, list[exp.Expr]]] | None = None
    read: tuple[str, list[Token]] | None = None


_ahead = _Ahead()


def tokens(text: str, name: str = "postgres") -> list[Token]:
    """Return the tokens of a text.

    Raises:
        SQLSyntaxError: a quote or a comment does not end, or a number does not.
        StatementTooComplexError: the text is too long, or nested too deeply.
    """
    if name != "postgres":
        return _tokens(text, name)
    read, _ahead.read = _ahead.read, None
    if read is not None and read[0] == text:
        return read[1]
    found = _tokens(text, name)
    refuse_junk(found, text)
    found = [plain(token, text) for token in found]
    if len(found) < SHORT:
        _ahead.read = text, list(found)
    return found


def _tokens(text: str, name: str) -> list[Token]:
    """Return the tokens of a text, as sqlglot has them."""
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise StatementTooComplexError(f"the statement is longer than {MAX_BYTES} bytes")
    try:
        clear, mark = marked(text)
        found = language(name).tokenize(clear or text)
        found = apart(list(unmarked(found, mark)) if mark else found, text)
    except SqlglotError:
        begun = (match.start() + 1 for match in QUOTATION.finditer(text) if match["open"])
        raise SQLSyntaxError(
            "the text ends inside a quotation or a comment", position=next(begun, None)
        ) from None
    if len(found) > MAX_TOKENS:
        raise StatementTooComplexError(
            f"the statement has {len(found):,} tokens; {MAX_TOKENS:,} are allowed", hint=SPLIT
        )
    depth = deepest = run = connectives = 0
    for token in found:
        kind = token.token_type
        run = run + 1 if kind in PREFIX else 0
        depth += (kind in OPENING) - (kind in CLOSING)
        deepest = max(deepest, depth + run)
        connectives += kind in CONNECTIVES
        if kind is TokenType.NUMBER and len(token.text) > MAX_DIGITS:
            raise StatementTooComplexError(
                f"a number has more than {MAX_DIGITS} digits", position=token.start + 1
            )
    if deepest > MAX_DEPTH:
        raise StatementTooComplexError(
            f"the statement is nested {deepest} levels deep; {MAX_DEPTH} are allowed"
        )
    if connectives > MAX_CONNECTIVES:
        raise StatementTooComplexError(
            f"the statement has {connectives:,} ANDs and ORs; {MAX_CONNECTIVES:,} are allowed",
            hint=f"write x IN (...) rather than x = ... OR x = ...; {SPLIT}",
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


SLIPS = (ValueError, TypeError, AttributeError, LookupError, AssertionError)  # of sqlglot's

# as sqlglot writes the formats of other languages: no letter in them is one of PostgreSQL's words
TIME_FORMAT = re.compile(r"(?:%-?[YymdHIMSfjpaAbB]|[-/.,: ])+")


def to_postgres(text: str, given: Sequence[Token], name: str) -> tuple[str, list[Token]]:
    """Return a statement of any language as one of PostgreSQL, with its utility.

    Raises:
        SQLSyntaxError: it does not parse.
        NotSupportedError: PostgreSQL has no words for it.
    """
    if name == "postgres":
        return text, list(given)
    tree = parse(text, given, name)
    clause = tree.args.get("utility")
    request = hint(given)
    for node in list(tree.find_all(exp.Hint)):  # where the language has hints of its own
        written = node.sql(comments=False).removeprefix("/*+").removesuffix("*/")
        request = request or hinted(written)
        node.pop()
    for written_time in tree.find_all(exp.TimeToStr):
        shape = written_time.args.get("format")
        if not isinstance(shape, exp.Literal) or not TIME_FORMAT.fullmatch(shape.name):
            raise NotSupportedError(
                f"the format of a time is not translated from {name}",
                hint="years, months, days, hours, minutes, seconds and names, with - / . , : and "
                "spaces between them, are; write the rest in PostgreSQL's language",
            )
    try:
        postgres = tree.sql(dialect="postgres", comments=False, unsupported_level=ErrorLevel.RAISE)
    except UnsupportedError as error:
        raise NotSupportedError(f"not translated from {name}: {error}") from None
    if isinstance(clause, Utility):
        postgres += f" WITH UTILITY {', '.join(_written(item) for item in clause.expressions)}"
    elif request is not None:
        unit = " PERCENT" if request.relative else ""
        numbers = f"{_plain(request.half_width)}{unit}, {_plain(request.delta)}"
        postgres = f"/*+ UTILITY({numbers}) */ {postgres}"
    if (most := max_cost(given)) is not None:
        postgres = f"/*+ MAX_COST({_plain(most)}) */ {postgres}"
    return postgres, tokens(postgres)


def _plain(number: Fraction) -> str:
    return format(Decimal(number.numerator) / Decimal(number.denominator), "f")


def _written(item: exp.Expr) -> str:
    if isinstance(item, MaxCost):
        return f"MAX COST {item.this.sql()}"
    name = item.args.get("name")
    unit = " PERCENT" if item.args.get("percent") else ""
    pair = f"({item.this.sql()}{unit}, {item.expression.sql()})"
    return pair if name is None else f"{name.sql(dialect='postgres')} {pair}"


def parse(text: str, tokens: Sequence[Token], name: str = "postgres") -> exp.Expr:
    """Return the tree of one query; as ``parsed``."""
    return parsed(text, tokens, name)[0]


def parsed(
    text: str, tokens: Sequence[Token], name: str = "postgres"
) -> tuple[exp.Expr, list[exp.Expr]]:
    """Return the tree of one query, and its nodes.

    Raises:
        SQLSyntaxError: the text does not parse; ``position`` and DETAIL say where.
    """
    if name == "postgres":
        looked, _ahead.looked = _ahead.looked, None
        if looked is not None and looked[0] == text:
            return looked[1]
        _complete(text, tokens)
    try:
        trees = language(name).parser().parse(list(tokens), text)
    except ParseError as error:
        raise _syntax_error(text, error) from None
    except (SqlglotError, *SLIPS) as error:
        # sqlglot's own slips on half a statement; what it meant to say is the same
        raise SQLSyntaxError("the text does not parse") from error
    if len(trees) != 1 or trees[0] is None:
        raise SQLSyntaxError("expected one statement")
    found = nodes(trees[0])
    for node in found:
        if not isinstance(node, WRITTEN):
            continue
        if isinstance(node, QUOTED):  # of another language
            node.replace(exp.Literal.string(node.name))
        elif not node.args["is_string"] and not LITERAL.fullmatch(node.name):
            at = node.meta.get("start", -1) + 1 or None
            raise SQLSyntaxError(f"{node.name[:40]} is not a number", position=at)
    return trees[0], found


def look(text: str, tokens: Sequence[Token]) -> exp.Expr:
    """Return the tree of one query to look at: who parses the text next, in this thread, gets it.

    Raises:
        SQLSyntaxError: as ``parse``.
    """
    _ahead.looked = text, parsed(text, tokens)
    return _ahead.looked[1][0]


def _complete(text: str, tokens: Sequence[Token]) -> None:
    """Refuse a comma, or a keyword, after which an expression is missing; a dot without a name."""
    for at, token in enumerate(tokens):
        before = tokens[at - 1].token_type if at else None
        name_lacks = token.token_type is TokenType.DOT and before in NAMELESS
        if name_lacks and at + 1 < len(tokens) and tokens[at + 1].token_type is not NUMBER:
            raise SQLSyntaxError('syntax error at or near "."', position=token.start + 1)
        if token.token_type not in OPEN or before in (TokenType.ALIAS, TokenType.DOT):
            continue
        after = tokens[at + 1] if at + 1 < len(tokens) else None
        if after is None or after.token_type in ENDING:
            raise SQLSyntaxError(
                f'syntax error after "{token.text}": the expression is incomplete',
                position=after.start + 1 if after else len(text.rstrip()) + 1,
            )


def _syntax_error(text: str, error: ParseError) -> SQLSyntaxError:
    first = error.errors[0] if error.errors else {}
    what = str(first.get("description") or "the text does not parse").rstrip(".")
    what = what.partition(" but got <")[0]  # the rest is for whoever knows sqlglot's insides
    if what.startswith("Required keyword"):
        what = "the expression is incomplete"
    if what.startswith("Invalid expression"):
        what = ""  # which says no more
    token = str(first.get("highlight") or "")
    line, last = int(first.get("line") or 1), int(first.get("col") or 1)
    column = max(last - len(token) + 1, 1)  # sqlglot gives the column of the token's end
    lines = text.split("\n")
    position = sum(len(row) + 1 for row in lines[: line - 1]) + column
    position = min(position, len(text) + 1)  # of a token of several lines it is not quite known
    near = f' at or near "{token}"' if token else " at the end of the text"
    return SQLSyntaxError(
        f"syntax error{near}{what and ': '}{what[:1].lower()}{what[1:]}",
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
