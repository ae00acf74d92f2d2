"""What a request for utility may say: one check for every door, from the policy to the clause.

A default has the name of what it is of: ``COUNT(*)``, ``SUM(wage)`` or ``wage``, ``AVG(age)``,
``QUANTILE(age)`` (of medians and percentiles); ``*`` is every column that has none of its own.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

COLUMN = r'"(?:[^"]|"")+"|[^\W\d][\w$]*|\*'
AGGREGATE = re.compile(rf"(\w+)\s*\(\s*(?:[^().]+\.)*({COLUMN})\s*\)")
FOLD = str.maketrans({chr(c): chr(c + 32) for c in range(ord("A"), ord("Z") + 1)})
QUANTILES = ("median", "percentile_cont", "percentile_disc", "percentile")
KINDS = ("count", "sum", "avg", "quantile")

LEAST, MOST = Fraction(1, 10**9), 10**18  # of a half_width, or a limit on a cost; LEAST of a delta
HALF = Fraction(1, 2)
LENGTH = "it is half the length of the interval, in the units of the number"
CONFIDENCE = "delta is 1 - confidence: for 95% write 0.05"


class Fault(NamedTuple):
    """What is wrong with a request, and what to do."""

    message: str
    hint: str


def named(text: str) -> tuple[str, str]:
    """Return the aggregate and the column that the name of a default stands for."""
    found = AGGREGATE.fullmatch(text)
    if not found:
        return "sum", folded(text)
    aggregate = found[1].lower()
    return "quantile" if aggregate in QUANTILES else aggregate, folded(found[2])


def folded(name: str) -> str:
    """Return a name as PostgreSQL keeps it."""
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.translate(FOLD)


def fault(half_width: Fraction, delta: Fraction) -> Fault | None:
    """Return what makes no sense in a request; None where all does.

    A delta above one half asks for an interval that is more often wrong than right: it is a
    confidence, mistaken for delta.
    """
    if half_width <= 0:
        return Fault(f"half_width must be more than 0, not {_shown(half_width)}", LENGTH)
    if not LEAST <= half_width <= MOST:
        return Fault("half_width is out of any useful range", LENGTH)
    if not 0 < delta < 1:
        return Fault(f"delta must be between 0 and 1, not {_shown(delta)}", CONFIDENCE)
    if delta > HALF:
        return Fault(f"delta must be at most 0.5, not {_shown(delta)}", CONFIDENCE)
    return Fault("delta is out of any useful range", CONFIDENCE) if delta < LEAST else None


def _shown(value: Fraction) -> str:
    return f"{float(value):g}" if abs(value) < 10**300 else "a number of hundreds of digits"
