"""``to_date`` and ``to_timestamp`` of a text: what PostgreSQL reads by a template, part by part.

PostgreSQL reads much that does not fit its template, and makes up what is missing; here a text has
every part of the template, and a template a year.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from itertools import pairwise

from proxy.errors import DataError, NotSupportedError
from proxy.sql.expression.date_templates import TOKEN

PARTS = {  # how many digits a word of a template reads
    "YYYY": 4, "YYY": 3, "YY": 2, "Y": 1, "MM": 2, "DD": 2, "DDD": 3,
    "HH24": 2, "HH12": 2, "HH": 2, "MI": 2, "SS": 2, "MS": 3, "US": 6,
}  # fmt: skip
YEARS, HALVES = ("YYYY", "YYY", "YY", "Y"), ("AM", "PM")
MONTHS = [datetime(2000, month, 1).strftime("%b").upper() for month in range(1, 13)]
SAME = dict.fromkeys(YEARS, "YYYY") | {
    "HH12": "HH",
    "HH24": "HH",
    "MON": "MM",
    "PM": "AM",
    "MS": "US",
}
BETWEEN = "-/.,: T"
KNOWN = "YYYY, YY, MM, Mon, DD, DDD, HH24, HH12 and AM, MI, SS, MS, US between - / . , : T"


def read(name: str, text: str, template: str) -> datetime:
    """Return the moment that a text says.

    Raises:
        NotSupportedError: the template is not among those that are known.
        DataError: the text is not written so, or there is no such moment.
    """
    words, pattern = _pattern(name, template)
    match = re.fullmatch(pattern, text, re.ASCII | re.IGNORECASE)
    if match is None:
        raise DataError(
            f'"{text}" is not written as {name} is told, {template}',
            hint="write every part, years with all their digits",
        )
    try:
        return _moment(dict(zip(words, match.groups(), strict=True)))
    except ValueError:
        raise DataError(f'date/time field value out of range: "{text}"', sqlstate="22008") from None


def _pattern(name: str, template: str) -> tuple[list[str], str]:
    """Return the words of a template, and the pattern of what they read, a group for each."""
    words: list[str] = []
    pattern = ""
    for token, after in pairwise([*TOKEN.finditer(template), None]):
        assert token is not None
        plain = token["quoted"] or token["plain"]
        if not token["word"] and plain and (token["quoted"] or plain in BETWEEN):
            pattern += re.escape(plain)
            continue
        word = (token["word"] or "").upper()
        kinds = [SAME.get(each, each) for each in (*words, word)]
        known = word in PARTS or word in (*HALVES, "MON")
        if not known or token["prefix"] or token["suffix"] or len(set(kinds)) < len(kinds):
            raise _refused(name, template)
        words.append(word)
        digits = PARTS.get(word)
        if digits is None:
            pattern += "([AP]M)" if word in HALVES else f"({'|'.join(MONTHS)})"
        else:
            whole = word in YEARS or (after is not None and after["word"])
            pattern += rf"(\d{{{digits if whole else 1},{digits}}})"
    kinds = [SAME.get(each, each) for each in words]
    halves = "AM" in kinds and not {"HH", "HH12"} & {*words}
    if "YYYY" not in kinds or halves or ("DDD" in kinds and {"MM", "DD"} & {*kinds}):
        raise _refused(name, template)
    return words, pattern


def _refused(name: str, template: str) -> NotSupportedError:
    return NotSupportedError(
        f"{name} takes a text in quotes and a template of {KNOWN}, a year among them: not "
        f'"{template}"',
        hint="cast the text: CAST(x AS date)",
    )


def _moment(said: dict[str, str]) -> datetime:
    """Return the moment of what the words of a template have read.

    Raises:
        ValueError: there is none.
    """

    def of(word: str, otherwise: int) -> int:
        return int(said.get(word, otherwise))

    word = next(each for each in YEARS if each in said)
    year, month = int(said[word]), of("MM", 1)
    if word != "YYYY":  # PostgreSQL: the year nearest to 2020
        year += 2000 if year < 70 else 1900 if year < 100 else 2000 if year < 520 else 1000
    if "MON" in said:
        month = MONTHS.index(said["MON"].upper()) + 1
    hour = of("HH24", of("HH12", of("HH", 0)))
    if "HH24" not in said and {"HH12", "HH"} & {*said}:
        half = (said.get("AM") or said.get("PM") or "").upper()
        if not 1 <= hour <= 12:
            raise ValueError
        hour = hour % 12 + 12 * (half == "PM")
    micros = int(said.get("MS", "0").ljust(3, "0")) * 1000 + int(said.get("US", "0").ljust(6, "0"))
    day = datetime(year, month, of("DD", 1), hour, of("MI", 0), of("SS", 0))
    nth = of("DDD", 1)
    if not 1 <= nth <= (datetime(year, 12, 31) - datetime(year, 1, 1)).days + 1:
        raise ValueError
    return day + timedelta(days=nth - 1, microseconds=micros)
