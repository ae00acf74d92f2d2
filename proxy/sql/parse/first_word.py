"""The first word of a statement, by which it is told what kind it is before it is parsed."""

from __future__ import annotations

import re
from functools import cache


@cache
def _pattern(skipped: str) -> re.Pattern[str]:
    more = "".join(f"|{re.escape(each)}" for each in skipped)
    # possessive: what is skipped is never looked at again, however many comments there are
    return re.compile(rf"(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/{more})*+(\w*)", re.DOTALL)


def first_word(text: str, skipped: str = "") -> str:
    """Return the first word behind blanks, comments and the characters ``skipped``, in capitals.

    Where another character is there it is empty.
    """
    match = _pattern(skipped).match(text)
    assert match is not None  # it takes nothing, too
    return match[1].upper()
