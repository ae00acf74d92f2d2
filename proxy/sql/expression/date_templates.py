"""``to_char`` of dates and timestamps: PostgreSQL's templates, in English, without time zones.

https://www.postgresql.org/docs/17/functions-formatting.html, as ``formatting.c`` reads it.
"""

from __future__ import annotations

import re

from proxy.errors import NotSupportedError

YEAR = "CASE WHEN year({x}) > 0 THEN year({x}) ELSE 1 - year({x}) END"
SUB = "(microsecond({x}) % 1000000)"
ISO_DAY = "((week({x}) - 1) * 7 + isodow({x}))"
ROMAN = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"]
NUMBERS: dict[str, tuple[int, str]] = {  # the least digits, and the number
    "HH24": (2, "hour({x})"),
    **dict.fromkeys(("HH12", "HH"), (2, "((hour({x}) + 11) % 12 + 1)")),
    "MI": (2, "minute({x})"),
    "SS": (2, "second({x})"),
    **dict.fromkeys(("SSSSS", "SSSS"), (1, "(hour({x}) * 3600 + minute({x}) * 60 + second({x}))")),
    "YYYY": (4, f"({YEAR})"),
    "YYY": (3, f"(({YEAR}) % 1000)"),
    "YY": (2, f"(({YEAR}) % 100)"),
    "Y": (1, f"(({YEAR}) % 10)"),
    "IYYY": (4, "isoyear({x})"),
    "IYY": (3, "(isoyear({x}) % 1000)"),
    "IY": (2, "(isoyear({x}) % 100)"),
    "I": (1, "(isoyear({x}) % 10)"),
    "MM": (2, "month({x})"),
    "DDD": (3, "dayofyear({x})"),
    "IDDD": (3, ISO_DAY),
    "DD": (2, "day({x})"),
    "D": (1, "(dayofweek({x}) + 1)"),
    "ID": (1, "isodow({x})"),
    "Q": (1, "quarter({x})"),
    "WW": (2, "((dayofyear({x}) - 1) // 7 + 1)"),
    "W": (1, "((day({x}) - 1) // 7 + 1)"),
    "IW": (2, "week({x})"),
    "CC": (2, "century({x})"),
    "J": (1, "CAST(floor(julian(CAST({x} AS DATE))) AS BIGINT)"),
}
FRACTIONS: dict[str, tuple[int, str]] = {  # which FM leaves as they are
    "MS": (3, f"({SUB} // 1000)"),
    "US": (6, SUB),
    **{f"FF{n}": (n, f"({SUB} // {10 ** (6 - n)})") for n in range(1, 7)},
}
NAMES: dict[str, tuple[int, str]] = {  # the width, and the name
    "MONTH": (9, "monthname({x})"),
    "MON": (0, "left(monthname({x}), 3)"),
    "DAY": (9, "dayname({x})"),
    "DY": (0, "left(dayname({x}), 3)"),
    "RM": (4, f"([{', '.join(repr(r) for r in ROMAN)}])[month({{x}})]"),
    "AM": (0, "CASE WHEN hour({x}) < 12 THEN 'AM' ELSE 'PM' END"),
    "A.M.": (0, "CASE WHEN hour({x}) < 12 THEN 'A.M.' ELSE 'P.M.' END"),
    "AD": (0, "CASE WHEN year({x}) > 0 THEN 'AD' ELSE 'BC' END"),
    "A.D.": (0, "CASE WHEN year({x}) > 0 THEN 'A.D.' ELSE 'B.C.' END"),
}
NAMES |= {"PM": NAMES["AM"], "P.M.": NAMES["A.M."], "BC": NAMES["AD"], "B.C.": NAMES["A.D."]}
CAPITALIZED = ("Month", "Mon", "Day", "Dy")
REFUSED = ("TZH", "TZM", "TZ", "OF", "FX")
WORDS = [*NUMBERS, *FRACTIONS, *NAMES, *REFUSED, "Y,YYY"]
WORD = "|".join(
    re.escape(word)
    for word in sorted([*WORDS, *(w.lower() for w in WORDS), *CAPITALIZED], key=len, reverse=True)
)
TOKEN = re.compile(
    rf"(?P<prefix>FM|fm|TM|tm)?(?P<word>{WORD})(?P<suffix>TH|th|SP)?"
    r'|(?:FM|fm|TM|tm)?(?:"(?P<quoted>(?:[^"\\]|\\.)*\\?)"?|\\?(?P<escaped>")|(?P<plain>.))'
    r"|(?P<alone>FM|fm|TM|tm)",
    re.DOTALL,
)
DAYS = re.compile("HH|MI|^SS|MS|US|FF|AM|PM|A.M|P.M")  # words that look below a day


def texts(template: str, x: str) -> list[str]:
    """Return the pieces of a date as DuckDB texts, for a template; ``x`` is never NULL.

    Raises:
        NotSupportedError: the template has an unknown word.
    """
    pieces = []
    for match in TOKEN.finditer(template):
        if match["word"]:
            pieces.append(_piece(match, x))
        elif match["quoted"] is not None:
            pieces.append(_literal(re.sub(r"\\(.)", r"\1", match["quoted"], flags=re.DOTALL)))
        elif match["escaped"] or match["plain"]:
            pieces.append(_literal(match["escaped"] or match["plain"]))
    return pieces


def unit(template: str) -> str:
    """Return the unit of the calendar that a template looks at: day, hour, minute or second."""
    words = [match["word"].upper() for match in TOKEN.finditer(template) if match["word"]]
    if any(re.match("SS|MS|US|FF", word) for word in words):
        return "second"
    if "MI" in words:
        return "minute"
    return "hour" if any(DAYS.match(word) for word in words) else "day"


def _literal(text: str) -> str:
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


def _piece(match: re.Match[str], x: str) -> str:
    """Return the text of one word of a template, with its prefix and suffix."""
    word, prefix, suffix = match["word"], (match["prefix"] or "").upper(), match["suffix"]
    upper = word.upper()
    if upper in REFUSED or suffix == "SP" or (prefix == "TM" and upper not in NAMES):
        raise NotSupportedError(
            f"to_char of a date does not know {match[0]}",
            hint="FX, SP, TM and time zones are not known; words of the text stand in double "
            'quotes: "Q"Q',
        )
    filled = not prefix
    if upper in NAMES:
        width, name = NAMES[upper]
        text = f"({name.format(x=x)})"
        if word not in CAPITALIZED:
            text = f"{'upper' if word == upper else 'lower'}({text})"
        return f"rpad({text}, {width}, ' ')" if filled and width else text
    if upper == "Y,YYY":
        year = NUMBERS["YYYY"][1].format(x=x)
        digits = f"format('{{:d}},{{:03d}}', {year} // 1000, {year} % 1000)"
    else:
        width, number = (NUMBERS | FRACTIONS)[upper]
        width = width if filled or upper in FRACTIONS else 1
        digits = f"format('{{:0{width}d}}', {number.format(x=x)})"
    return f"({digits} || {_ordinal(digits, suffix)})" if suffix else digits


def _ordinal(digits: str, suffix: str) -> str:
    """Return the ending of an ordinal number: st, nd, rd or th."""
    last = f"right({digits}, 1)"
    teen = f"(length({digits}) > 1 AND left(right({digits}, 2), 1) = '1')"
    ending = (
        f"CASE WHEN {teen} THEN 'th' WHEN {last} = '1' THEN 'st' WHEN {last} = '2' THEN 'nd' "
        f"WHEN {last} = '3' THEN 'rd' ELSE 'th' END"
    )
    return f"upper({ending})" if suffix == "TH" else f"({ending})"
