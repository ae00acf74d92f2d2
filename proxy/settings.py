"""The settings of one session: ``SET privacy.utility = '50, 0.05'`` and its kin.

One table names them all, with what they allow and what they do.  A setting is a text, as in
PostgreSQL; reading one gives its value.  Invariant: a session holds only texts that could be read.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from proxy.errors import ProgrammingError, UtilityError
from proxy.policy import Utility
from proxy.sql.statement import ON
from proxy.sql.views import Views

UTILITY = "privacy.utility"
SPEND = "privacy.spend"
COLUMNS = "privacy.columns"
HIDE_EMPTY = "privacy.hide_empty"
NONNEGATIVE = "privacy.nonnegative"
ANSWERS = "privacy.answers"


def utility(text: str) -> Utility | None:
    """Return the request that 'half_width, delta' says; None for an empty text."""
    if not text.strip():
        return None
    match = re.fullmatch(r"\s*\(?\s*([^,()]+),([^,()]+)\)?\s*", text)
    try:
        parts = match.groups() if match else ()
        half_width, delta = map(_exact, parts)
    except (InvalidOperation, ValueError, OverflowError):
        raise UtilityError(
            f"{UTILITY} is two numbers, half_width and delta, not {text!r}",
            hint=f"SET {UTILITY} = '50, 0.05' asks for intervals of ±50 with confidence 95%",
        ) from None
    return checked(half_width, delta)


def checked(half_width: Fraction, delta: Fraction, position: int | None = None) -> Utility:
    """Return a request whose half_width is positive and whose delta is a probability."""
    if half_width <= 0:
        raise UtilityError(
            f"half_width must be greater than 0, not {_shown(half_width)}",
            hint="it is half the length of the interval, in the units of the number",
            position=position,
        )
    if not 0 < delta < 1:
        raise UtilityError(
            f"delta must be between 0 and 1, not {_shown(delta)}",
            hint="delta 0.05 asks for a confidence of 95%",
            position=position,
        )
    if (
        not Fraction(1, 10**9) <= delta <= 1 - Fraction(1, 10**9)
        or not Fraction(1, 10**9) <= half_width <= 10**18
    ):
        raise UtilityError("half_width or delta is out of any useful range", position=position)
    return Utility(half_width, delta)


def given(pair: tuple[float, float]) -> Utility:
    """Return the request that a pair of Python's numbers is.

    Raises:
        UtilityError: it is no pair of numbers, or they make no sense.
    """
    try:
        half_width, delta = (_exact(str(part)) for part in pair)
    except (TypeError, ValueError, InvalidOperation, OverflowError):
        raise UtilityError(f"utility is two numbers, (half_width, delta), not {pair!r}") from None
    return checked(half_width, delta)


def written(wish: Utility) -> str:
    """Return the text that says a request."""
    return f"{float(wish.half_width)!r}, {float(wish.delta)!r}"


def _exact(text: str) -> Fraction:
    """Return a decimal number; of 1e999999999 the digits alone would take minutes."""
    number = Decimal(text.strip())
    if abs(number.adjusted()) > 300:
        raise UtilityError("half_width or delta is out of any useful range")
    return Fraction(number)


def _shown(value: Fraction) -> str:
    return f"{float(value):g}" if abs(value) < 10**300 else "a number of hundreds of digits"


def switch(text: str) -> bool:
    """Return what on/off says."""
    word = text.strip().lower()
    if word in ON:
        return True
    if word in ("off", "false", "no", "0", ""):
        return False
    raise ProgrammingError(f"on or off, not {text!r}")


@dataclass(frozen=True)
class Setting:
    """One setting: its default, how it is read, and what it does."""

    default: str
    read: Callable[[str], Any]
    what: str


TABLE = {
    UTILITY: Setting("", utility, "'half_width, delta' for the numbers that bring none"),
    SPEND: Setting("on", switch, "off: infer only, refuse what would have to be measured"),
    COLUMNS: Setting("off", switch, "on: add <name>_low, <name>_high, <name>_source columns"),
    HIDE_EMPTY: Setting("off", switch, "on: leave out groups that are probably empty"),
    NONNEGATIVE: Setting("off", switch, "on: show counts below 0 as 0"),
    ANSWERS: Setting("off", switch, "on: send the answers with each result, as JSON"),
}


class Settings:
    """The settings of a session, and the utility that it began with."""

    def __init__(self, wish: Utility | None = None) -> None:
        self._texts: dict[str, str] = {}
        self.views: Views = {}  # which are a session's own as its settings are
        self._defaults = {UTILITY: written(wish)} if wish else {}

    def set(self, name: str, text: str) -> None:
        """Set a setting, or refuse a value that it does not allow."""
        setting = _find(name)
        setting.read(text)
        self._texts[name.lower()] = text

    def reset(self, name: str | None = None) -> None:
        """Give one setting, or all, its default again."""
        if name is None:
            self._texts.clear()
            self.views = {}
        else:
            _find(name)
            self._texts.pop(name.lower(), None)

    def restore(self, texts: Mapping[str, str], views: Views) -> None:
        """Set what was set before, and nothing else."""
        self._texts, self.views = dict(texts), views

    def text(self, name: str) -> str:
        """Return a setting as it was written."""
        default = self._defaults.get(name.lower(), _find(name).default)
        return self._texts.get(name.lower(), default)

    def value(self, name: str) -> Any:
        """Return what a setting says."""
        return _find(name).read(self.text(name))

    def items(self) -> list[tuple[str, str]]:
        """Return what has been set, in one order."""
        return sorted(self._texts.items())

    @property
    def texts(self) -> Mapping[str, str]:
        """What has been set, as it was written."""
        return self._texts


def _find(name: str) -> Setting:
    try:
        return TABLE[name.lower()]
    except KeyError:
        near = difflib.get_close_matches(name.lower(), TABLE, 1)
        raise ProgrammingError(
            f'unrecognized setting "{name}"',
            hint=f"did you mean {near[0]}?" if near else f"there are {', '.join(TABLE)}",
        ) from None
