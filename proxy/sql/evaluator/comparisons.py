"""Comparisons of one axis with constants, most of all conditions, which need no database.

Read is DuckDB's text as ``expression/lowering.py`` writes it, of whole numbers, texts and dates,
whose order is the same to Python; what is not exactly of this form is DuckDB's to evaluate.
"""

from __future__ import annotations

import datetime
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxy.domain import Attribute, Value

LITERALS: dict[str, tuple[str, Callable[[str], Any]]] = {  # by type of an axis: form, meaning
    "integer": (r"-?\d{1,18}", int),
    "text": (r"'(?:[^'\0]|'')*'", lambda text: text[1:-1].replace("''", "'")),
    "date": (
        r"CAST\('\d{4}-\d\d-\d\d' AS DATE\)",
        lambda text: datetime.date.fromisoformat(text[6:16]),
    ),
}
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
FORMS = {
    kind: re.compile(
        rf"\((?P<axis>d\d+\.v) (?:(?P<sign>[<=>]+) (?P<only>{literal})"
        rf"|>= (?P<low>{literal}) AND (?P=axis) <= (?P<high>{literal})"
        rf"|IN \((?P<list>{literal}(?:, {literal})*)\))\)"
    )
    for kind, (literal, _) in LITERALS.items()
}
NEGATION = re.compile(r"\(NOT (\(.*\))\)", re.DOTALL)


def comparison(
    sql: str, attribute: Attribute
) -> Callable[[Sequence[Value | None]], NDArray[np.bool_]] | None:
    """Return a comparison of one axis, the only one in a text: of values, where they are true,
    masked where they are NULL.  None if the text is no such comparison.
    """
    if attribute.type not in LITERALS:
        return None
    negation = NEGATION.fullmatch(sql)
    form = FORMS[attribute.type].fullmatch(negation[1] if negation else sql)
    test = form and _test(form, *LITERALS[attribute.type])
    if test is None:
        return None

    def compared(values: Sequence[Value | None]) -> NDArray[np.bool_]:
        found = [value is not None and test(value) != bool(negation) for value in values]
        if None not in values:
            return np.array(found, dtype=bool)
        return np.ma.array(found, bool, mask=[value is None for value in values])

    return compared


def _test(
    form: re.Match[str], literal: str, meaning: Callable[[str], Any]
) -> Callable[[Any], bool] | None:
    """Return what a value is asked; None where a constant is none, as the 30th of February."""
    try:
        if form["list"]:
            members = {meaning(text) for text in re.findall(literal, form["list"])}
            return members.__contains__
        if form["low"]:
            low, high = meaning(form["low"]), meaning(form["high"])
            return lambda value: bool(low <= value <= high)
        sign, only = OPERATORS[form["sign"]], meaning(form["only"])
        return lambda value: sign(value, only)
    except (KeyError, ValueError):
        return None
