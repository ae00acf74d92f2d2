"""Parameters of the DB-API's ``pyformat``: one scan of the text, outside of the parser.

Invariant: a value enters the text as a literal that sqlglot has written, never as it is; inside
strings, quoted names, comments and dollar quotes a per cent sign is only a per cent sign.
"""

from __future__ import annotations

import datetime
import numbers
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal

from sqlglot import exp

from proxy.errors import ProgrammingError

Parameters = Mapping[str, object] | Sequence[object]

SCAN = re.compile(
    r"""
    (?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*)
    | (?P<escaped>\b[eE]'(?:[^'\\]|\\.|'')*')
    | (?P<dollar>\$(?P<tag>(?:[^\W\d]\w*)?)\$)
    | (?P<comment>/\*)
    | (?P<parameter>%(?:\((?P<name>[^)]*)\))?(?P<kind>.|$))
    """,
    re.VERBOSE | re.DOTALL,
)
LONGEST = 1000  # digits of a number, before its point or after
ANY = re.compile(r"\b(?:any|some|all)\s*\(\s*$", re.IGNORECASE)


def bind_parameters(text: str, parameters: Parameters) -> str:
    """Return the text with ``%(name)s`` or ``%s`` replaced by literals, and ``%%`` by ``%``.

    Raises:
        ProgrammingError: a parameter is missing or unused, or of a type that has no literal.
    """
    named = isinstance(parameters, Mapping)
    if isinstance(parameters, str | bytes):
        raise ProgrammingError("parameters are a mapping or a sequence of values, not a text")
    used: set[object] = set()
    out, at = [], 0
    while match := SCAN.search(text, at):
        out.append(text[at : match.start()])
        end = _end(text, match)
        if match["parameter"] is None:
            piece = text[match.start() : end]
            # as psycopg: %% is one per cent sign everywhere in a text with parameters
            out.append(piece.replace("%%", "%"))
        elif match["kind"] == "%" and match["name"] is None:
            out.append("%")
        else:
            out.append(_value(match, parameters, named, used))
        at = end
    out.append(text[at:])
    _all_used(parameters, named, used)
    return "".join(out)


def _end(text: str, match: re.Match[str]) -> int:
    """Return where the quotation that begins at a match ends."""
    if match["dollar"] is not None:
        end = text.find(match["dollar"], match.end())
        return len(text) if end < 0 else end + len(match["dollar"])
    if match["comment"] is None:
        return match.end()
    depth, at = 1, match.end()  # PostgreSQL's comments nest
    for mark in re.finditer(r"/\*|\*/", text[at:]):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return at + mark.end()
    return len(text)


def _value(match: re.Match[str], parameters: Parameters, named: bool, used: set[object]) -> str:
    if match["kind"] != "s":
        raise ProgrammingError(
            f"only %s, %(name)s and %% may follow a per cent sign, got {match[0]!r}",
            hint="write a literal per cent sign as %%",
            position=match.start() + 1,
        )
    if named != (match["name"] is not None):
        wanted = "%(name)s for a mapping" if named else "%s for a sequence"
        raise ProgrammingError(
            f"the placeholder {match[0]} does not go with the parameters: use {wanted}",
            position=match.start() + 1,
        )
    key: object = match["name"] if named else len(used)
    used.add(key)
    try:
        value = parameters[key]  # type: ignore[call-overload, index]
    except (KeyError, IndexError):
        raise ProgrammingError(
            f"no value for the placeholder {match[0]}", position=match.start() + 1
        ) from None
    behind = ANY.search(match.string, max(match.start() - 40, 0), match.start())
    if behind and isinstance(value, list | tuple | set | frozenset):
        return f"ARRAY[{', '.join(literal(item) for item in value)}]" if value else "'{}'"
    return literal(value)


def _all_used(parameters: Parameters, named: bool, used: set[object]) -> None:
    if not named and len(parameters) > len(used):
        raise ProgrammingError(
            f"{len(parameters)} parameters, but {len(used)} placeholders in the statement"
        )
    if named and (unused := [name for name in parameters if name not in used]):
        raise ProgrammingError(f"the statement has no placeholder %({unused[0]})s")


def literal(value: object) -> str:
    """Return a Python value as SQL; a list in parentheses, for IN (behind ANY it is an array).

    Raises:
        ProgrammingError: the value has no literal.
    """
    if isinstance(value, list | tuple | set | frozenset):
        if not value:
            raise ProgrammingError(
                "an empty list has no literal: IN needs one value at least",
                hint="= ANY (%s) takes an empty list as well",
            )
        return f"({', '.join(literal(item) for item in value)})"
    return _node(value).sql(dialect="postgres")


def _node(value: object) -> exp.Expr:
    if value is None:
        return exp.null()
    if isinstance(value, bool):
        return exp.true() if value else exp.false()
    if isinstance(value, numbers.Integral):  # NumPy's too
        return _number(Decimal(int(value)))
    if isinstance(value, float):
        return _number(Decimal(float.__repr__(value)))
    if isinstance(value, Decimal):
        return _number(value, exact=True)
    if isinstance(value, str):
        if "\0" in value:
            raise ProgrammingError("a text parameter may not contain a NUL character")
        return exp.Literal.string(value)
    if isinstance(value, datetime.datetime | datetime.date):
        if isinstance(value, datetime.datetime) and value.tzinfo:
            raise ProgrammingError("a timestamp parameter must have no time zone")
        kind = "timestamp" if isinstance(value, datetime.datetime) else "date"
        return exp.cast(exp.Literal.string(str(value)), kind)
    if isinstance(value, datetime.timedelta):
        seconds = f"{value.seconds}.{value.microseconds:06}"
        return exp.cast(exp.Literal.string(f"{value.days} days {seconds} seconds"), "interval")
    raise ProgrammingError(f"a parameter of type {type(value).__name__} has no literal")


def _number(value: Decimal, exact: bool = False) -> exp.Expr:
    """Return a number; an ``exact`` one is a numeric also where it is whole, and has a point."""
    if not value.is_finite():
        raise ProgrammingError(
            f"a parameter that is {value} is not supported", hint="send a finite number, or NULL"
        )
    if abs(value.adjusted()) > LONGEST:
        raise ProgrammingError(f"a number of more than {LONGEST} digits has no literal")
    digits = format(value, "f")
    digits += "." if exact and "." not in digits else ""
    number = exp.Literal.number(digits.lstrip("-"))
    # the parentheses keep - before a negative value from becoming a comment
    return exp.Paren(this=exp.Neg(this=number)) if digits.startswith("-") else number
