"""Parameters of the extended protocol: from bytes on the wire to literals in the text.

The mirror has given each parameter its type, and has checked the value when the portal was bound;
here the value becomes a Python object and then a literal, as in the DB-API.
"""

from __future__ import annotations

import datetime
import re
import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import psycopg
from psycopg.adapt import Transformer
from psycopg.pq import Format
from sqlglot.tokenizer_core import Token, TokenType

from proxy.errors import DataError, Error, NotSupportedError, UndefinedParameterError
from proxy.server.wire.messages import Bind
from proxy.sql.parse import grammar
from proxy.sql.parse.parameters import literal

TEXT = 25
MOST = 65535  # parameters of one statement: what Bind can count
ARRAY = re.compile(r"\s*::\s*[\w. ]+?\s*\[\s*\]")  # its elements have their types
WHOLE = re.compile(r"\s*::\s*(?:integer|int|int4|int8|bigint)\b(?!\s*\[)", re.IGNORECASE)
ANY = "'month'"  # which is a unit of date_trunc, too
SAMPLES = {  # a value of each type, to find out what a statement gives before it has one
    "bool": "TRUE",
    "int2": "1",
    "int4": "1",
    "int8": "1",
    "numeric": "1.0",
    "float4": "CAST(1 AS double precision)",
    "float8": "CAST(1 AS double precision)",
    "date": "CAST('2000-01-01' AS date)",
    "timestamp": "CAST('2000-01-01' AS timestamp)",
    "timestamptz": "CAST('2000-01-01' AS timestamp)",
}


@dataclass(frozen=True)
class Bound:
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


def fill(text: str, literals: Sequence[str]) -> Bound:
    """Return the text with ``$n`` replaced by the n-th literal."""
    out, at, moves, shift = [], 0, [], 0
    for number, start, end in places(text):
        if not 1 <= number <= len(literals):
            continue
        value = literals[number - 1]
        if value.startswith("ARRAY[") or value.isdigit():
            end = _behind_cast(text, end, value.isdigit())
        out += [text[at:start], value]
        shift += len(value) - (end - start)
        moves.append((start + shift + (end - start), shift))
        at = end
    return Bound("".join([*out, text[at:]]), tuple(moves))


def _behind_cast(text: str, end: int, whole: bool) -> int:
    """Return the end of ``::type`` behind a value that needs none: a whole number, or an array."""
    match = (WHOLE if whole else ARRAY).match(text, end)
    return match.end() if match else end


def literals(bind: Bind, types: Sequence[int], encoding: str) -> list[str]:
    """Return the values of a portal as literals.

    Raises:
        DataError, NotSupportedError, ProgrammingError: a value has none.
    """
    load = Transformer()
    texts = []
    for i, (value, oid) in enumerate(zip(bind.values, types, strict=False)):
        if value is None:
            texts.append("NULL")
            continue
        form = Format(bind.format(i))
        if form is Format.TEXT and encoding != "utf-8":
            value = value.decode(encoding).encode()
        try:
            texts.append(written(load.get_loader(oid, form).load(value)))
        except (ValueError, ArithmeticError, RecursionError, struct.error, psycopg.Error):
            raise DataError(f"the value of parameter ${i + 1} cannot be read") from None
    return texts


def written(value: object) -> str:
    """Return a value as a literal of the engine's SQL."""
    if isinstance(value, list):
        return f"ARRAY[{', '.join(written(each) for each in value)}]"
    if isinstance(value, uuid.UUID):
        return literal(str(value))
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    if isinstance(value, bytes | memoryview | dict):
        raise NotSupportedError("a parameter of this type is not supported")
    return literal(value)


def samples(types: Sequence[int]) -> list[str]:
    """Return a literal of each type."""
    return [_sample(oid) for oid in types]


def _sample(oid: int) -> str:
    info = psycopg.postgres.types.get(oid)
    if info is None:
        return ANY
    one = SAMPLES.get(info.name, ANY)
    return f"ARRAY[{one}]" if oid == info.array_oid else one


def nulls(types: Sequence[int]) -> list[str]:
    """Return a NULL for each type, which fits nearly everywhere."""
    return ["NULL" if not _sample(oid).startswith("ARRAY") else _sample(oid) for oid in types]
