"""The clock: now() and its kin become literals before a statement is analysed.

A statement that reads the clock is another one at every moment; one that reads the day only is
the same until midnight in the policy's time zone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from zoneinfo import ZoneInfo

from sqlglot import exp

from proxy.errors import DataError
from proxy.sql import types
from proxy.sql.parse.tree import position

WORDS = re.compile(
    r"\b(?:(now|current_timestamp|localtimestamp|transaction_timestamp|statement_timestamp)"
    r"|current_date|age(?=\s*\())\b",
    re.IGNORECASE,
)
CLOCKS = (exp.CurrentDate, exp.CurrentTimestamp, exp.Localtimestamp, exp.Anonymous)
NAMES = {"transaction_timestamp": "now", "statement_timestamp": "now"}


def reading(text: str, zone: str, now: datetime | None) -> datetime | None:
    """Return the time for a text: the moment, the day, or None if it reads no clock."""
    asked = [match[1] for match in WORDS.finditer(text)]
    if not asked:
        return None
    moment = now or datetime.now(ZoneInfo(zone)).replace(tzinfo=None)
    if any(asked):
        return moment
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def localise(nodes: Iterable[exp.Expr], zone: str) -> None:
    """Replace literals with a time zone, among nodes, by local times of the policy's zone.

    Raises:
        DataError: one is not a time.
    """
    for node in nodes:
        if not isinstance(node, exp.Cast):
            continue
        value = node.this
        if node.to.is_type(exp.DType.TIMESTAMPTZ) and value.is_string:
            try:
                moment = types.read(value.name, "timestamp")
            except DataError as error:
                error.position = position(value)
                raise
            assert isinstance(moment, datetime)
            if moment.tzinfo is not None:
                moment = moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
            literal = exp.cast(exp.Literal.string(str(moment)), "timestamp")
            literal.this.meta.update(value.meta)
            literal.meta["type"] = "timestamptz"  # as which a column is named
            node.replace(literal)


def fold(nodes: Iterable[exp.Expr], moment: datetime | None) -> None:
    """Replace the functions of the clock among nodes of a tree; without a moment they stay."""
    if moment is None:
        return
    for node in nodes:
        if not isinstance(node, CLOCKS):
            continue
        if isinstance(node, exp.Anonymous) and node.name.lower() == "age":
            if len(node.expressions) == 1:  # until today
                today = exp.cast(exp.Literal.string(str(moment.date())), "date")
                node.set("expressions", [today, *node.expressions])
            continue
        if isinstance(node, exp.Anonymous) and node.name.lower() not in NAMES:
            continue
        named = isinstance(node, exp.Anonymous)  # by ``this``, else that is an argument
        if any(value for key, value in node.args.items() if not (named and key == "this")):
            continue  # a precision, a zone or anything: refused by name later
        day = isinstance(node, exp.CurrentDate)
        text = str(moment.date() if day else moment)
        literal = exp.cast(exp.Literal.string(text), "date" if day else "timestamp")
        literal.meta.update(node.meta)
        literal.meta.setdefault("name", "current_date" if day else "now")
        node.replace(literal)
