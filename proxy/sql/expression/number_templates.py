"""``to_char`` of numbers: PostgreSQL's templates, with ``,`` between groups and ``.`` for decimals.

https://www.postgresql.org/docs/17/functions-formatting.html, as ``formatting.c`` reads it in the
locale C.
"""

from __future__ import annotations

import re

from msgspec import Struct

from proxy.errors import NotSupportedError
from proxy.sql import types
from proxy.sql.expression.guards import checked, wide
from proxy.sql.expression.typed import TypedSql, combine

MOST = 36  # digits of a template
DIGITS = 15  # of a double, which PostgreSQL trusts
# what stands around the digits: no word of PostgreSQL's templates but in double quotes
OTHER = r'(?:"[^"\\]*"|[^\W\d_bcdefglmprstvBCDEFGLMPRSTV]|[ $%€£()/:;=*#!?\'_+-])*'
SHAPE = re.compile(
    rf"(?P<fill>FM|fm)?(?P<before>{OTHER})(?P<sign>[Ss]|MI|mi)?(?P<more>{OTHER})"
    r"(?P<whole>[09](?:[,Gg ]?[09])*)(?:[.Dd](?P<part>[09]+))?"
    rf"(?P<minus>MI|mi)?(?P<after>{OTHER})"
)


class _Shape(Struct, frozen=True):
    """A template, taken apart."""

    fill: bool  # FM: no blanks, no trailing zeros
    before: str
    sign: str  # "S", "MI" or "": where the sign is, "MI-" after the digits
    whole: str
    part: str
    after: str

    @property
    def digits(self) -> int:
        """The digits before the point."""
        return sum(character in "09" for character in self.whole)


def _read(template: str) -> _Shape:
    """Return a template, taken apart.

    Raises:
        NotSupportedError: it has a word that is not known.
    """
    match = SHAPE.fullmatch(template)
    if (
        not match
        or (match["sign"] and (match["minus"] or match["more"]))
        or (match["fill"] and " " in match["whole"])
        or sum(c in "09" for c in match["whole"] + (match["part"] or "")) > MOST
    ):
        raise NotSupportedError(
            "to_char of a number takes digits 9 and 0, groups with , or G, one . or D, FM first, "
            "S or MI for the sign, and other signs around them",
            hint="for example 'FM999,999,990.00' or '999.9%'; letters stand in double quotes",
        )
    sign = (match["sign"] or "").upper() or ("MI-" if match["minus"] else "")
    whole = match["whole"].replace("G", ",").replace("g", ",")
    before, after = (_unquoted(part) for part in (match["before"] + match["more"], match["after"]))
    return _Shape(bool(match["fill"]), before, sign, whole, match["part"] or "", after)


def _unquoted(text: str) -> str:
    return text.replace('"', "")


def _literal(text: str) -> str:
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


def number_text(template: str, value: TypedSql) -> TypedSql:
    """Return a number as text, by a template.

    Raises:
        NotSupportedError: the template has a word that is not known.
    """
    if not template:
        return combine(f"CASE WHEN {value.sql} IS NULL THEN NULL END", "text", value)
    shape = _read(template)
    text, negative = _plain(value, len(shape.part))
    shown = f"CASE WHEN {value.sql} IS NULL THEN NULL ELSE {_written(shape, text, negative)} END"
    if value.type in types.FLOATS and shape.digits + len(shape.part) > DIGITS:
        size = f"length(split_part({text}, '.', 1))"
        wrong = f"{size} <= {shape.digits} AND {size} + {len(shape.part)} > {DIGITS}"
        message = "value out of range: to_char writes 15 digits of a double"
        shown = checked(wrong, message, shown, value)
    return combine(shown, "text", value, width=64 + 4 * len(template))


def _plain(value: TypedSql, decimals: int) -> tuple[str, str]:
    """Return the digits of a number's size, rounded, and whether it is shown as negative."""
    if value.type in types.FLOATS:
        text = f"format('{{:.{decimals}f}}', {value.sql})"
        return f"ltrim({text}, '-')", f"starts_with({text}, '-')"
    if value.type in types.INTEGERS:
        text = f"CAST(abs(CAST({value.sql} AS HUGEINT)) AS VARCHAR)"
        zeros = f" || '.{'0' * decimals}'" if decimals else ""
        return f"({text}{zeros})", f"({value.sql} < 0)"
    rounded = f"CAST({wide(value).sql} AS DECIMAL(38, {decimals}))"
    return f"CAST(abs({rounded}) AS VARCHAR)", f"({rounded} < 0)"


def _written(shape: _Shape, text: str, negative: str) -> str:
    """Return the digits of a number as the template has them."""
    whole, part = f"split_part({text}, '.', 1)", f"split_part({text}, '.', 2)"
    zero = shape.whole.find("0")
    if zero < 0 and not shape.part:
        zero = len(shape.whole) - 1  # the last digit is always there
    head, tail = _grouped(shape, whole, zero)
    shown = f"(ltrim({head}, '0, ') || {tail})"
    if zero < 0 and shape.fill and "0" not in shape.part:  # no digit at all: the zero is written
        bare = f"{whole} = '0' AND rtrim({part}, '0') = ''"
        shown = f"CASE WHEN {bare} THEN '0' ELSE {shown} END"
    many = f"length({whole}) > {shape.digits}"
    hashes = re.sub("[09]", "#", shape.whole)
    shown = f"CASE WHEN {many} THEN '{hashes}' ELSE {shown} END"
    signs = {"S": ("'-'", "'+'"), "": ("'-'", "''" if shape.fill else "' '")}.get(shape.sign)
    if signs:
        shown = f"(CASE WHEN {negative} THEN {signs[0]} ELSE {signs[1]} END || {shown})"
    if not shape.fill:
        shown = f"lpad({shown}, {len(shape.whole) + bool(signs)}, ' ')"
    pieces = [_literal(shape.before), f"({shown})", _fraction(shape, part, many)]
    minus = f"CASE WHEN {negative} THEN '-' ELSE {_literal('' if shape.fill else ' ')} END"
    if shape.sign == "MI":
        pieces.insert(1, minus)
    elif shape.sign == "MI-":
        pieces.append(minus)
    return f"({' || '.join([*pieces, _literal(shape.after)])})"


def _grouped(shape: _Shape, whole: str, zero: int) -> tuple[str, str]:
    """Return the digits in their groups: those that may be blank, and those from the first 0 on."""
    padded = f"lpad({whole}, {shape.digits}, '0')"
    pieces: list[str] = []
    seen = 0
    for character in shape.whole:
        if character in "09":
            seen += 1
            pieces.append(f"substr({padded}, {seen}, 1)")
        else:
            pieces.append(_literal(character))
    cut = len(pieces) if zero < 0 else zero
    return (
        f"({' || '.join(pieces[:cut] or [_literal('')])})",
        f"({' || '.join(pieces[cut:] or [_literal('')])})",
    )


def _fraction(shape: _Shape, part: str, many: str) -> str:
    """Return the point and the decimals."""
    if not shape.part:
        return "''"
    kept = part
    if shape.fill:
        least = shape.part.rfind("0") + 1
        kept = f"(left({part}, {least}) || rtrim(substr({part}, {least + 1}), '0'))"
    return f"('.' || CASE WHEN {many} THEN '{'#' * len(shape.part)}' ELSE {kept} END)"
