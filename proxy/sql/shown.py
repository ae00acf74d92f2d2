"""How a value without an interval is shown, at every door: exactly, and told from all others."""

from __future__ import annotations

from decimal import Decimal
from typing import Any


def shown(value: Any) -> str:
    """Return a value as people read it; a text that would pass for NULL, or nothing, is quoted."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value in ("", "NULL"):
        return f"'{value}'"
    if isinstance(value, Decimal):
        return f"{value:f}"  # with the zeros of its scale, and no exponent
    return "NULL" if value is None else str(value)


def printable(text: str, kept: str = "") -> str:
    """Return a text with what nobody can see written out, but for the characters ``kept``."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text
    )
