"""Parameters of the extended protocol: from bytes on the wire to literals in the text.

The mirror has given each parameter its type, and has checked the value when the portal was bound;
here the value becomes a Python object and then a literal of that type: a cast where the literal
by itself would have another.
"""

from __future__ import annotations

import datetime
import math
import re
import struct
import uuid
from collections.abc import Container, Sequence
from decimal import ROUND_HALF_UP, Decimal
from enum import Enum, auto
from itertools import pairwise

import psycopg
from msgspec import Struct
from psycopg.adapt import Transformer
from psycopg.pq import Format
from sqlglot.tokenizer_core import Token, TokenType

from proxy.errors import (
    DataError,
    Error,
    NotSupportedError,
    TypeMismatchError,
    UndefinedParameterError,
)
from proxy.server.wire.messages import Bind
from proxy.sql import types
from proxy.sql.parse import grammar
from proxy.sql.parse.parameters import literal

TEXT = 25
TEXTS = (TEXT, 1042, 1043)  # and char, varchar
MOST = 65535  # parameters of one statement: what Bind can count
ARRAY = re.compile(r"\s*::\s*[\w. ]+?\s*\[\s*\]")  # its elements have their types
WHOLE = re.compile(r"\s*::\s*(?:integer|int|int4|int8|bigint)\b(?!\s*\[)", re.IGNORECASE)
NUMBER = re.compile(r"\((-)(\d+\.?\d*)\)|()(\d+\.?\d*)", re.ASCII)
KINDS = {  # types of PostgreSQL, as the engine names them
    "bool": "boolean",
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "numeric": "numeric",
    "float4": "real",
    "float8": "double precision",
    "date": "date",
    "timestamp": "timestamp",
    "timestamptz": "timestamptz",
    "interval": "interval",
}
ANY = "'month'"  # which is a unit of date_trunc, too
SAMPLES = {  # a value of each, to find out what a statement gives before it has one
    "boolean": "TRUE",
    **dict.fromkeys(types.INTEGERS, "1"),
    "numeric": "1.0",
    **dict.fromkeys(types.FLOATS, "1"),
    **dict.fromkeys(("date", "timestamp", "timestamptz"), "'2000-01-01'"),
    "interval": "'1 day'",
    "text": ANY,
}
COMPARISONS = {
    *(TokenType.EQ, TokenType.NEQ, TokenType.LT),
    *(TokenType.LTE, TokenType.GT, TokenType.GTE),
}
BY = {TokenType.ORDER_BY, TokenType.GROUP_BY, TokenType.PARTITION_BY}
SHOWS = {TokenType.SELECT, TokenType.DISTINCT, TokenType.ALL, TokenType.COMMA}
BEGINS = {  # what a condition stands behind
    *(TokenType.WHERE, TokenType.AND, TokenType.OR, TokenType.NOT, TokenType.ON),
    *(TokenType.HAVING, TokenType.WHEN, TokenType.L_PAREN),
}
ENDS = grammar.ENDING | {  # and what stands behind one
    *(TokenType.AND, TokenType.OR, TokenType.THEN, TokenType.ELSE, TokenType.END),
    TokenType.WITH,
}
COUNTS = {"LIMIT", "OFFSET", "FETCH", "FIRST", "NEXT"}  # what a number of rows stands behind
SIGNS = {TokenType.DASH: -1, TokenType.PLUS: 1}
CONSTANTS = {
    *(TokenType.STRING, TokenType.NUMBER, TokenType.NULL, TokenType.TRUE, TokenType.FALSE),
}
TIMES = (*types.TIMES, "timestamptz")
UNBOUND = re.compile(r"\s*(?:nan|[-+]?inf(?:inity)?)\s*", re.IGNORECASE)
FRAME = {"PRECEDING", "FOLLOWING"}  # and before


class Place(Enum):
    """Where a parameter stands, as far as it matters to how its value is written."""

    ANY = auto()
    COMPARED = auto()  # or counting rows: whole numbers of every type mean the same
    BY = auto()  # in a list of GROUP BY or ORDER BY, where a plain number is one of a column
    SHOWN = auto()  # alone in a SELECT list, where a cast would name the column
    UTILITY = auto()  # in the clause, which takes plain numbers


class Value(Struct, frozen=True):
    """A value as it is written, and the type that it is to have."""

    text: str
    type: str = ""  # the one that its place gives it

    def at(self, place: Place) -> str:
        """Return the value for a place: by itself where that is the same as with its type."""
        if not self.type or place is Place.UTILITY:
            return self.text
        own = _own(self.text)
        whole = own in types.INTEGERS and self.type in types.INTEGERS
        if place is Place.COMPARED and (whole or (self.text == "NULL" and self.type != "text")):
            return self.text
        same = own == self.type and not (place is Place.BY and own in types.NUMBERS)
        text = self.text if same else f"CAST({self.text} AS {self.type})"
        return f'{text} AS "?column?"' if place is Place.SHOWN else text


def _own(text: str) -> str:
    """Return the type that a literal has by itself; nothing where it takes that of its place."""
    if text in ("TRUE", "FALSE"):
        return "boolean"
    match = NUMBER.fullmatch(text)
    return types.of_literal(match[2] or match[4], -1 if match[1] else 1) if match else ""


class Bound(Struct, frozen=True):
    """A text with its parameters filled in."""

    text: str
    moves: tuple[tuple[int, int], ...] = ()  # behind this place, the original is so much shorter

    def original(self, position: int) -> int:
        """Return where a 1-based position of this text was in the original."""
        before = [shift for at, shift in self.moves if at < position]
        return position - (before[-1] if before else 0)


def places(text: str) -> list[tuple[int, int, int]]:
    """Return the parameters in a text: number, start and end.

    Raises:
        UndefinedParameterError: a number is none that a message can give a value to.
        SQLSyntaxError, StatementTooComplexError: the text has no tokens.
    """
    return _places(grammar.tokens(text)) if "$" in text else []


def check_numbers(text: str) -> None:
    """Refuse a statement of any kind with a parameter that no message can give a value to.

    Raises:
        UndefinedParameterError, SQLSyntaxError, StatementTooComplexError: as ``places``.
    """
    try:
        _places(grammar.tokens("(" + text))  # at the start, a command would be one token
    except Error as error:
        if error.position is not None:
            error.position -= 1
        raise


def _places(tokens: Sequence[Token]) -> list[tuple[int, int, int]]:
    return [
        (_number(number, mark.start), mark.start, number.end + 1)
        for mark, number in pairwise(tokens)
        if mark.token_type is TokenType.PARAMETER
        and number.token_type is TokenType.NUMBER
        and mark.end + 1 == number.start
        and number.text.isascii()
        and number.text.isdigit()
        and mark.text == "$"
    ]


def _number(token: Token, start: int) -> int:
    """Return the number of a parameter."""
    digits = token.text.lstrip("0")
    if not 1 <= len(digits) <= len(str(MOST)) or int(digits) > MOST:
        shown = token.text if len(token.text) < 20 else f"{token.text[:16]}..."
        raise UndefinedParameterError(
            f"there is no parameter ${shown}",
            hint=f"parameters are numbered from $1 to ${MOST}",
            position=start + 1,
        )
    return int(digits)


def fill(text: str, values: Sequence[Value]) -> Bound:
    """Return the text with ``$n`` replaced by the n-th value."""
    if "$" not in text:
        return Bound(text)
    tokens = grammar.tokens(text)
    found = _places(tokens)
    where = _where(text, tokens, {start for _, start, _ in found})
    out, at, moves, shift = [], 0, [], 0
    for number, start, end in found:
        if not 1 <= number <= len(values):
            continue
        end, place = where[start]
        written = values[number - 1].at(place)
        if written.startswith("ARRAY["):
            end = _behind(ARRAY, text, end)
        elif place is Place.COMPARED and _own(written) == "integer":
            end = _behind(WHOLE, text, end)
        out += [text[at:start], written]
        shift += len(written) - (end - start)
        moves.append((start + shift + (end - start), shift))
        at = end
    return Bound("".join([*out, text[at:]]), tuple(moves))


def _behind(cast: re.Pattern[str], text: str, end: int) -> int:
    """Return the end of a cast that a value does not need."""
    match = cast.match(text, end)
    return match.end() if match else end


def _where(
    text: str, tokens: Sequence[Token], starts: Container[int]
) -> dict[int, tuple[int, Place]]:
    """Return the end and the place of each parameter, by its start."""
    found, clauses = {}, [""]  # of each bracket that is open, what its items are
    kinds = [None, None, *(token.token_type for token in tokens), None, None, None]
    for i, token in enumerate(tokens):
        kind, before = token.token_type, kinds[i + 1]
        if kind is TokenType.L_PAREN and clauses[-1] != "UTILITY":
            clauses.append("IN" if before is TokenType.IN or before in COMPARISONS else "")
        elif kind is TokenType.L_PAREN:
            clauses.append("UTILITY")
        elif kind is TokenType.R_PAREN and len(clauses) > 1:
            clauses.pop()
        elif kind is TokenType.SELECT or kind in BY:
            clauses[-1] = "SELECT" if kind is TokenType.SELECT else "BY"
        elif before is TokenType.WITH and token.text.upper() == "UTILITY":
            clauses[-1] = "UTILITY"
        elif kind in grammar.ENDING - {TokenType.COMMA} and before is not TokenType.DISTINCT:
            clauses[-1] = ""
        elif token.start in starts:
            end = tokens[i + 1].end + 1
            cast, behind = _behind(WHOLE, text, end), i + 2
            while behind < len(tokens) and tokens[behind].start < cast:
                behind += 1
            words = [
                tokens[j].text.upper() if 0 <= j < len(tokens) else "" for j in (i - 1, behind)
            ]
            sides = kinds[i], before, kinds[behind + 2], kinds[behind + 3]
            place = _place(clauses[-1], sides, words)
            named = place is Place.SHOWN and cast > end  # by its cast
            found[token.start] = end, Place.ANY if named else place
    return found


def _place(clause: str, sides: tuple[TokenType | None, ...], words: Sequence[str]) -> Place:
    """Return the place of a parameter, by the two tokens before it and the two behind it."""
    first, before, after, last = sides
    if clause == "UTILITY":
        return Place.UTILITY
    ends = after is None or after in ENDS
    if before in COMPARISONS and ends and first is not TokenType.STRING:
        return Place.COMPARED
    if before in BEGINS and after in COMPARISONS and last is not TokenType.STRING:
        return Place.COMPARED
    if before in (TokenType.BETWEEN, TokenType.AND, TokenType.WHEN) and ends:
        return Place.COMPARED
    if clause == "IN" and before in (TokenType.L_PAREN, TokenType.COMMA) and ends:
        return Place.COMPARED
    if words[0] in COUNTS or words[1] in FRAME:
        return Place.COMPARED
    if clause == "BY" and (before in BY or before is TokenType.COMMA):
        return Place.BY
    return Place.SHOWN if clause == "SELECT" and before in SHOWS and ends else Place.ANY


def values(bind: Bind, oids: Sequence[int], encoding: str) -> list[Value]:
    """Return the values of a portal, with their types.

    Raises:
        DataError, NotSupportedError, ProgrammingError: a value has none.
    """
    load = Transformer()
    found = []
    for i, (value, oid) in enumerate(zip(bind.values, oids, strict=False)):
        if value is None:
            found.append(_null(oid))
            continue
        form = Format(bind.format(i))
        if form is Format.TEXT and encoding != "utf-8":
            value = value.decode(encoding).encode()
        try:
            if kind_of(oid) == "interval":
                found.append(_interval(value, form))
            else:
                found.append(typed(load.get_loader(oid, form).load(value), kind_of(oid)))
        except (ValueError, ArithmeticError, RecursionError, struct.error, psycopg.Error):
            raise DataError(f"the value of parameter ${i + 1} cannot be read") from None
    return found


def kind_of(oid: int) -> str:
    """Return the engine's name of a type, of an array the one of its elements; else nothing."""
    info = psycopg.postgres.types.get(oid)
    return KINDS.get(info.name, "") if info is not None else ""


def _is_array(oid: int) -> bool:
    info = psycopg.postgres.types.get(oid)
    return info is not None and oid == info.array_oid


def _interval(value: bytes, form: Format) -> Value:
    """Return an interval as it was sent: a timedelta has no months."""
    if form is Format.TEXT:
        return Value(literal(value.decode().replace(",", " ")), "interval")  # as Python writes it
    micros, days, months = struct.unpack("!qii", value)
    sign, size = "-" if micros < 0 else "", abs(micros)
    seconds = f"{sign}{size // 1_000_000}.{size % 1_000_000:06}"
    return Value(f"'{months} months {days} days {seconds} seconds'", "interval")


def typed(value: object, kind: str) -> Value:
    """Return a value of a type; of a list, the one of its elements."""
    if isinstance(value, list):
        return Value(f"ARRAY[{', '.join(_element(each, kind) for each in value)}]")
    if isinstance(value, float) and kind in types.FLOATS and math.isfinite(value):
        text = float.__repr__(value)
        return Value(f"({text})" if text.startswith("-") else text, kind)
    if isinstance(value, int) and kind == "numeric":
        value = Decimal(value)
    if isinstance(value, datetime.datetime) and kind == "timestamp":
        value = value.replace(tzinfo=None)  # which PostgreSQL does not read there
    if isinstance(value, datetime.datetime | datetime.date):
        return Value(f"'{value}'", kind)
    if isinstance(value, uuid.UUID):
        value = str(value)
    if isinstance(value, bytes | memoryview | dict):
        raise NotSupportedError("a parameter of this type is not supported")
    return Value(literal(value), kind)


def _element(value: object, kind: str) -> str:
    if value is None:
        return "NULL"
    return typed(value, kind).at(Place.COMPARED)


def samples(oids: Sequence[int], texts: Container[int] = ()) -> list[Value]:
    """Return a value of each type; those at ``texts`` are texts wherever they stand."""
    return [_sample(oid, "text" if i in texts else "") for i, oid in enumerate(oids)]


def _sample(oid: int, otherwise: str) -> Value:
    kind = kind_of(oid) or otherwise
    value = Value(SAMPLES.get(kind, ANY), kind)
    return Value(f"ARRAY[{value.at(Place.COMPARED)}]") if _is_array(oid) else value


def nulls(oids: Sequence[int], texts: Container[int] = ()) -> list[Value]:
    """Return a NULL of each type, which fits nearly everywhere; ``texts`` as in ``samples``."""
    return [
        _sample(oid, "") if _is_array(oid) else _null(oid, "text" if i in texts else "")
        for i, oid in enumerate(oids)
    ]


def _null(oid: int, otherwise: str = "") -> Value:
    if _is_array(oid):
        return Value("NULL")
    kind = kind_of(oid) or otherwise
    return Value("NULL", "timestamp" if kind == "timestamptz" else kind)


def constant(text: str) -> tuple[int, Token] | None:
    """Return an argument of EXECUTE that is a literal, perhaps with a sign; else None."""
    tokens = grammar.tokens(text)
    while len(tokens) > 2 and tokens[0].text == "(" and tokens[-1].text == ")":
        tokens = tokens[1:-1]
    if len(tokens) == 1 and tokens[0].token_type in CONSTANTS:
        return 1, tokens[0]
    if (
        len(tokens) == 2
        and tokens[0].token_type in SIGNS
        and grammar.LITERAL.fullmatch(tokens[1].text)
    ):
        return SIGNS[tokens[0].token_type], tokens[1]
    return None


def argument(text: str, oid: int, number: int) -> Value:
    """Return an argument of EXECUTE as a value of its parameter's type.

    Raises:
        DataError, ProgrammingError: it is none.
    """
    kind, given = kind_of(oid), constant(text)
    if _is_array(oid):
        return Value(text)
    if given is None:
        local = "timestamp" if kind == "timestamptz" else kind
        return Value(f"({text})", local or ("text" if oid in TEXTS else ""))
    sign, told = given[0], given[1].text
    if given[1].token_type is TokenType.STRING:
        if kind in ("", "interval", "timestamptz"):
            return Value(literal(told), kind)
        if kind in types.NUMBERS and UNBOUND.fullmatch(told):
            return typed(Decimal(told.strip()), kind)  # which is refused
        return typed(types.read(told, kind), kind)
    if given[1].token_type is TokenType.NULL:
        return _null(oid)
    if given[1].token_type is not TokenType.NUMBER:
        require(number, "boolean", kind)
        return typed(told.upper() == "TRUE", kind) if kind else Value(literal(told.lower()))
    exact = sign * Decimal(told)
    require(number, types.of_literal(told, sign), kind)
    if not kind:
        return Value(literal(format(exact, "f")))
    if kind in types.FLOATS:
        return typed(sign * types.real(told, kind), kind)
    if kind == "numeric":
        return typed(exact, kind)
    whole = int(exact.to_integral_value(ROUND_HALF_UP))
    if not types.fits(whole, kind):
        raise DataError(f"{kind} out of range", sqlstate="22003")
    return typed(whole, kind)


def require(number: int, given: str, kind: str) -> None:
    """Refuse an argument of a type that is not converted to its parameter's.

    Raises:
        TypeMismatchError: so it is.
    """
    given = given.removesuffix(" without time zone").replace("timestamp with time zone", TIMES[2])
    alike = next((group for group in (types.NUMBERS, TIMES) if kind in group), (kind,))
    if kind and given not in alike:
        raise TypeMismatchError(
            f"parameter ${number} of type {given} cannot be coerced to the expected type {kind}",
            hint="rewrite or cast the expression",
        )
