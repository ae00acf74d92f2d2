"""What values look like that a column cannot read: the kind of look only, never a value.

For the data steward, who then writes an ``expression`` that reads them.
"""

from __future__ import annotations

from proxy.cube.sources.coding import NUMBERS, OUTSIDE, UNREADABLE
from proxy.cube.sources.dialect import TEXTUAL, Dialect, is_of, text
from proxy.domain import Attribute

MANY = 1000  # values of an axis past which nothing is compared with them
DIGITS = r"[-+]?[0-9]+([.,][0-9]+)*"
PART = "[0-9]{1,2}"  # of a date
SIGN = "([$€£¥₹]|EUR|USD|GBP|CHF)"
NAMES = "jan feb mar apr may jun jul aug sep oct nov dec"
MONTHS = "|".join("".join(f"[{c}{c.upper()}]" for c in name) for name in NAMES.split(" "))
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
    ("the name of a month", f".*({MONTHS}).*"),
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
    value: str, kind: str, code: str, axis: str, attribute: Attribute | None, dialect: Dialect
) -> str:
    """Return SQL for the look of a value whose ``code`` says that it is not read.

    It is the place of the look in ``names``, from 1; 0 of what is read, and of ``TYPE``.
    """
    if not is_of(kind, TEXTUAL) or not dialect.hints:
        return "0"
    if axis != "text":
        found = " ".join(
            f"WHEN {dialect.like(value, f'({pattern})')} THEN {i + 1}"
            for i, (_, pattern) in enumerate(_patterns(axis))
        )
        other = len(_patterns(axis)) + 1
        return f"CASE WHEN {code} = {UNREADABLE} THEN CASE {found} ELSE {other} END ELSE 0 END"
    if attribute is None or len(attribute.values) > MANY:
        return "0"
    known = ", ".join(text(str(value).strip().lower()) for value in attribute.values)
    near = f"lower({dialect.trimmed(value)}) IN ({known})"
    return f"CASE WHEN {code} = {OUTSIDE} AND {near} THEN 1 ELSE 0 END"


def names(axis: str) -> list[str]:
    """Return the looks of what is not read on an axis of a type."""
    return [CASE] if axis == "text" else [*(name for name, _ in _patterns(axis)), OTHER]


def _patterns(axis: str) -> tuple[tuple[str, str], ...]:
    if axis in NUMBERS:
        return NUMERIC
    return TRUTH if axis == "boolean" else MOMENT
