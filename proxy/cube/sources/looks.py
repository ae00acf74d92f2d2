"""What values look like that a column cannot read: the kind of look only, never a value.

For the data steward, who then writes an ``expression`` that reads them.
"""

from __future__ import annotations

from proxy.cube.sources.coding import NUMBERS, OUTSIDE, TEXTUAL, UNREADABLE, is_of, like
from proxy.cube.sources.duckdb import text
from proxy.domain import Attribute

MANY = 1000  # values of an axis past which nothing is compared with them
DIGITS = r"[-+]?[0-9]+([.,][0-9]+)*"
PART = "[0-9]{1,2}"  # of a date
SIGN = "([$€£¥₹]|EUR|USD|GBP|CHF)"
MISSING = r"[-.?*]+|[nN]\.?/?[aA]\.?|#N/A|[nN]one|NONE|[nN]ull|NULL|[uU]nknown|[mM]issing|nil"
NUMERIC = (
    ("a thousands separator", r"[-+]?[0-9]{1,3}([,' _][0-9]{3})+(\.[0-9]+)?"),
    ("a thousands separator and another decimal sign", r"[-+]?[0-9]{1,3}([. '][0-9]{3})+,[0-9]+"),
    ("points between thousands", r"[-+]?[0-9]{1,3}(\.[0-9]{3}){2,}"),
    ("a decimal comma", r"[-+]?[0-9]*,[0-9]+"),
    ("a currency sign", rf"[-+]?{SIGN} ?{DIGITS}|{DIGITS} ?{SIGN}"),
    ("a per cent sign", rf"{DIGITS} ?%"),
    ("brackets around a number", rf"\( ?{DIGITS} ?\)"),
    ("a sign behind the number", r"[0-9.,]+-"),
    ("a word for what is missing", MISSING),
    ("a bound or a span", rf"[<>≤≥~] ?=? ?{DIGITS}|{DIGITS} ?(-|–|to) ?{DIGITS}|{DIGITS}\+"),
    ("a number with a unit", rf"{DIGITS} ?[A-Za-zµ°/²³]+"),
    ("a date", r"[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}([T ].*)?"),
)  # fmt: skip
MOMENT = (
    ("day or month first", rf"{PART}[-/. ]{PART}[-/. ]([0-9]{{4}}|[0-9]{{2}})([T ,].*)?"),
    ("year first, without hyphens", r"[0-9]{4}[/. ][0-9]{1,2}[/. ][0-9]{1,2}([T ].*)?"),
    ("a month or a day in one digit", r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([T ].*)?"),
    ("the name of a month", r".*(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec).*"),
    ("eight digits", r"[0-9]{8}"),
    ("a year, or a month, alone", r"[0-9]{4}([-/.][0-9]{1,2})?"),
    ("a number", r"[-+]?[0-9]+(\.[0-9]+)?"),
    ("a word for what is missing", MISSING),
)  # fmt: skip
TRUTH = (("a number", r"[-+]?[0-9.]+"), ("a word for what is missing", MISSING))
CASE = "a value of the list in another case, or with blanks around it"
OTHER = "another text"
TYPE = "a type that is not read as this one"


def look(
    value: str, kind: str, code: str, axis: str, attribute: Attribute | None = None
) -> str | None:
    """Return SQL for the look of a value whose ``code`` says that it is not read, else NULL.

    None where all that is not read looks like ``TYPE``.
    """
    if not is_of(kind, TEXTUAL):
        return None
    if axis != "text":
        found = " ".join(
            f"WHEN {like(value, f'({pattern})')} THEN {text(name)}"
            for name, pattern in _patterns(axis)
        )
        return f"CASE WHEN {code} = {UNREADABLE} THEN CASE {found} ELSE {text(OTHER)} END END"
    if attribute is None or len(attribute.values) > MANY:
        return "NULL"
    known = ", ".join(text(str(value).strip().lower()) for value in attribute.values)
    near = f"lower(trim(CAST({value} AS VARCHAR))) IN ({known})"
    return f"CASE WHEN {code} = {OUTSIDE} AND {near} THEN {text(CASE)} END"


def _patterns(axis: str) -> tuple[tuple[str, str], ...]:
    if axis in NUMBERS:
        return NUMERIC
    return TRUTH if axis == "boolean" else MOMENT
