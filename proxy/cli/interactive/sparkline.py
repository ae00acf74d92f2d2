"""The posterior of a number as a line of blocks: how probable are values from left to right."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from proxy.cli.show import decimals, number

if TYPE_CHECKING:
    from proxy.engine import Answer, Result
    from proxy.engine.answers import Posterior

BLOCKS = " ▁▂▃▄▅▆▇█"
WIDTH = 48  # blocks, or fewer where fewer values are possible


def sparkline(result: Result) -> tuple[str, str, str] | None:
    """Return the line of a result that is one number, in the parts before, in and behind its
    interval; None of any other, and where nothing is known of it.
    """
    told = [each for row in result.explanations for each in row]
    if len(told) != 1 or told[0] is None:
        return None
    ((answer,),) = [row for row in result.answers if row]
    posterior = told[0].posterior
    beside = (answer.high - answer.low) / 2
    low = max(posterior.values[0], answer.low - beside)
    high = min(posterior.values[-1], answer.high + beside)
    if not high > low:
        return None
    parts = ["", "", ""]
    shares = list(_shares(posterior, low, high))
    most = max(share for _, share in shares)
    for middle, share in shares:
        parts[(middle >= answer.low) + (middle > answer.high)] += _block(share, most)
    ends = [number(each, decimals(answer)) for each in _edges(answer, low, high)]
    return f"{ends[0]} {parts[0]}", parts[1], f"{parts[2]} {ends[1]}"


def _edges(answer: Answer, low: float, high: float) -> tuple[float, float]:
    """Return the ends of the line; of a whole number they are whole."""
    if decimals(answer) == 0:
        return round(low), round(high)
    return low, high


def _shares(posterior: Posterior, low: float, high: float) -> Iterator[tuple[float, float]]:
    """Yield the middle of each part of the line, and how probable values in it are."""
    count = max(min(WIDTH, round((high - low) / posterior.step)), 1)
    edges = [low + (high - low) * i / count for i in range(count + 1)]
    for left, right in pairwise(edges):
        yield (left + right) / 2, posterior.at_most(right) - posterior.at_most(left)


def _block(share: float, most: float) -> str:
    """Return the block of a share; what is possible is never blank."""
    if share <= 0:
        return BLOCKS[0]
    return BLOCKS[max(round(share / most * (len(BLOCKS) - 1)), 1)]
