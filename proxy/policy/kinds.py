"""The kinds of values a key can have: each reads an item, names what is allowed, has a JSON Schema.

``read`` returns the same item with the value converted; numbers become exact fractions of the
text, never floats.  A wrong item is a ``PolicyError`` with its line, its key and what is allowed.
"""

from __future__ import annotations

import datetime
import difflib
import re
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from msgspec import Struct

from proxy.errors import PolicyError
from proxy.policy.document import Item, Scalar
from proxy.policy.faults import Unread

NAME = r"(?=.*\S)[^\x00-\x1f\x7f-\x9f]{1,63}"  # of what SQL names, and 63 bytes at most
NUMBER = re.compile(r"[-+]?(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][-+]\d{1,2})?")
INTEGER = re.compile(r"[-+]?(?:0|[1-9][\d_]*)")
INT64 = 2**63 - 1
LOWEST = -(2**63)  # whole number of 64 bits


class Kind(Struct, frozen=True):
    """What a key's value may be."""

    @property
    def words(self) -> str:
        """What is allowed, as a noun phrase."""
        raise NotImplementedError

    def read(self, item: Item) -> Item:
        """Return the item with its value converted.

        Raises:
            PolicyError: the value is not of this kind.
        """
        raise NotImplementedError

    def schema(self) -> dict[str, Any]:
        """Return the kind as JSON Schema."""
        raise NotImplementedError

    def wrong(self, item: Item) -> Exception:
        """Return the error that an item is of another kind."""
        value = item.value
        if isinstance(value, Scalar):
            if value.tag == "null":
                return item.error(f"nothing is there; expected {self.words}")
            got = f"{value}"
        else:
            got = "a list" if isinstance(value, list) else "a mapping"
        return item.error(f"{got} is not allowed; expected {self.words}")


class Text(Kind, frozen=True):
    """Text, as it is written; what YAML would read otherwise must be quoted."""

    words: str = "text"
    pattern: str | None = None

    def read(self, item: Item) -> Item:
        """Return the text."""
        scalar = item.value
        if not isinstance(scalar, Scalar) or scalar.tag == "null":
            raise self.wrong(item)
        if scalar.trap:
            raise item.error(scalar.trap)
        if "\0" in scalar.text:
            raise item.error("the text has a character of the code 0; leave it out")
        if not scalar.text.strip():
            raise item.error(f"the text is empty; expected {self.words}")
        if self.pattern and not re.fullmatch(self.pattern, scalar.text):
            raise self.wrong(item)
        return replace(item, value=scalar.text)

    def schema(self) -> dict[str, Any]:
        """Return a string, with its pattern."""
        return {"type": "string", "minLength": 1} | (
            {"pattern": f"^(?:{self.pattern})$"} if self.pattern else {}
        )


class Name(Text, frozen=True):
    """A name of SQL: whatever PostgreSQL takes in double quotes, in one line."""

    words: str = "a name"

    def read(self, item: Item) -> Item:
        """Return the name."""
        read = super().read(item)
        if fault := name_fault(read.value):
            raise item.error(fault)
        return read

    def schema(self) -> dict[str, Any]:
        """Return a string that may be a name."""
        return {"type": "string", "pattern": f"^{NAME}$"}


def name_fault(name: str) -> str | None:
    """Return what is wrong with a name, None if nothing is."""
    if len(name.encode()) > 63:
        return "the name is longer than 63 bytes"
    if not re.fullmatch(NAME, name):
        return "not a name: it is empty, or has a control character or a line break in it"
    return None


class Secret(Kind, frozen=True):
    """Text that no message shows."""

    words: str = "text"

    def read(self, item: Item) -> Item:
        """Return the text, whatever YAML takes it for."""
        if not isinstance(item.value, Scalar) or not item.value.text:
            raise item.error(f"expected {self.words}")
        return replace(item, value=item.value.text)

    def schema(self) -> dict[str, Any]:
        """Return a string."""
        return {"type": "string", "minLength": 1}


class Choice(Kind, frozen=True):
    """One of some words."""

    options: tuple[str, ...]

    @property
    def words(self) -> str:
        """The options."""
        return " | ".join(self.options)

    def read(self, item: Item) -> Item:
        """Return the word."""
        if not isinstance(item.value, Scalar) or item.value.tag == "null":
            raise self.wrong(item)
        if item.value.text not in self.options:
            near = nearest(item.value.text, self.options)
            raise item.error(f"{item.value} is not allowed; expected {self.words}{near}")
        return replace(item, value=item.value.text)

    def schema(self) -> dict[str, Any]:
        """Return an enumeration."""
        return {"enum": list(self.options)}


class Boolean(Kind, frozen=True):
    """A switch: on, off, true, false, yes or no, unquoted."""

    words: str = "on | off"

    def read(self, item: Item) -> Item:
        """Return the boolean."""
        if not isinstance(item.value, Scalar) or item.value.tag != "bool":
            raise self.wrong(item)
        return replace(item, value=item.value.text.lower() in ("true", "yes", "on"))

    def schema(self) -> dict[str, Any]:
        """Return a boolean; readers of YAML 1.2 take ``off`` for a string."""
        return {"enum": [True, False, "on", "off", "yes", "no"]}


class Number(Kind, frozen=True):
    """An exact decimal, within bounds; an integer where ``whole``."""

    low: int | None = None
    high: int | None = None
    open_low: bool = False  # low itself is not allowed
    open_high: bool = False
    whole: bool = False
    least: Fraction | None = None  # further bounds, which are checked elsewhere, with a hint
    most: Fraction | None = None

    @property
    def words(self) -> str:
        """The bounds in words."""
        noun = "a whole number" if self.whole else "a number"
        bounds = []
        if self.low is not None and self.low != LOWEST:
            bounds.append(f"{'more than' if self.open_low else 'at least'} {decimal(self.low)}")
        if self.high == INT64:
            bounds.append("of 64 bits")
        elif self.high is not None:
            bounds.append(f"{'less than' if self.open_high else 'at most'} {decimal(self.high)}")
        return f"{noun} {' and '.join(bounds)}".strip()

    def read(self, item: Item) -> Item:
        """Return a Fraction, or an int where whole."""
        scalar = item.value
        if not isinstance(scalar, Scalar):
            raise self.wrong(item)
        if scalar.plain and scalar.number_trap:
            raise item.error(f"{scalar.number_trap}; write {self.words} in plain digits")
        if scalar.tag == "str" and not scalar.plain and NUMBER.fullmatch(scalar.text):
            raise item.error(f"{scalar} is text; write it without the quotes")
        pattern = INTEGER if self.whole else NUMBER
        if scalar.tag not in ("int", "float") or not pattern.fullmatch(scalar.text):
            raise self.wrong(item)
        if len(scalar.text) > 60:
            raise item.error("more than 60 digits; write a shorter number")
        number = Fraction(scalar.text.replace("_", ""))
        if self.low is not None and (number <= self.low if self.open_low else number < self.low):
            raise self.wrong(item)
        if self.high is not None and (
            number >= self.high if self.open_high else number > self.high
        ):
            raise self.wrong(item)
        return replace(item, value=int(number) if self.whole else number)

    def schema(self) -> dict[str, Any]:
        """Return a number with its bounds."""
        low = "exclusiveMinimum" if self.open_low else "minimum"
        high = "exclusiveMaximum" if self.open_high else "maximum"
        bounds: dict[str, float | int | None] = {low: self.low, high: self.high}
        if self.least is not None:
            bounds["minimum"] = float(self.least)
        if self.most is not None:
            bounds["maximum"] = float(self.most)
        return {"type": "integer" if self.whole else "number"} | {
            name: bound for name, bound in bounds.items() if bound is not None
        }


class Date(Kind, frozen=True):
    """A calendar date."""

    words: str = "a date such as 2024-01-31"

    def read(self, item: Item) -> Item:
        """Return a datetime.date."""
        if isinstance(item.value, Scalar) and re.fullmatch(r"\d{4}-\d\d-\d\d", item.value.text):
            try:
                return replace(item, value=datetime.date.fromisoformat(item.value.text))
            except ValueError:
                pass
        raise self.wrong(item)

    def schema(self) -> dict[str, Any]:
        """Return a string in the format of dates."""
        return {"type": "string", "format": "date"}


class Value(Kind, frozen=True):
    """A value of an attribute, left as written: the attribute's type will say what it is."""

    words: str = "a value"

    def read(self, item: Item) -> Item:
        """Return the scalar, which is not null."""
        if not isinstance(item.value, Scalar):
            raise self.wrong(item)
        if item.value.tag == "null":
            raise item.error(f"{item.value.trap}; NULL is no value of the domain, see nulls: group")
        return item

    def schema(self) -> dict[str, Any]:
        """Return any scalar."""
        return {"type": ["string", "number", "boolean"]}


def attempt(kind: Kind, item: Item) -> Item:
    """Return what a kind reads of an item; where it is wrong, that is noted."""
    try:
        return kind.read(item)
    except PolicyError as error:
        item.faults.add(error)
    except Unread:
        pass
    return item.unread()


def near_names(name: str, names: Iterable[str]) -> list[str]:
    """Return the names that a wrong one may stand for, the nearest first."""
    by_case = {known.lower(): known for known in names}
    return [by_case[n] for n in difflib.get_close_matches(name.lower(), by_case, n=2, cutoff=0.6)]


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the near names, to be put behind a message; empty if none is near."""
    near = near_names(name, names)
    return f", did you mean {' or '.join(near)}?" if near else ""


def decimal(number: Fraction | int) -> str:
    """Return an exact number as people write it: a finite decimal, else a fraction."""
    number = Fraction(number)
    places, scaled = 0, abs(number)
    while scaled.denominator != 1 and places < 400:
        places, scaled = places + 1, scaled * 10
    if scaled.denominator != 1:
        return str(number)
    digits = f"{int(scaled):0{places + 1}d}"
    sign = "-" if number < 0 else ""
    return f"{sign}{digits[:-places]}.{digits[-places:]}" if places else f"{sign}{digits}"
