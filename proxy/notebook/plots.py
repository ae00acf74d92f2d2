"""A result as a picture: bars with their intervals, or the posterior of one number.

Needs matplotlib, the extra ``plots``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from proxy.engine.answers import Answer, Posterior, Result
from proxy.engine.functions.digits import interval, number
from proxy.errors import InterfaceError, NotSupportedError
from proxy.notebook.tables import labels
from proxy.sql.shown import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BARS = 100  # in one picture
LABELS = 30  # of bars, of which more cannot be read
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
INK = "#555555"  # of intervals: seen on light and on dark


def plot(result: Result | None, axes: Axes | None = None, column: str | None = None) -> Axes:
    """Draw the numbers of a result, all or those of one column; return the axes.

    Raises:
        NotSupportedError: matplotlib is missing, or there are too many numbers.
        InterfaceError: there is nothing to draw.
    """
    places = _places(result, column)
    assert result is not None
    axes = axes or _axes()
    if len(result.rows) == len(places) == 1:
        return _one(axes, result, places[0])
    return _bars(axes, result, places)


def _axes() -> Axes:
    """Return the axes of a new figure."""
    try:
        import matplotlib.pyplot as pyplot
    except ImportError:
        raise NotSupportedError(
            "plot() needs matplotlib", hint="pip install 'sql-privacy-proxy[plots]'"
        ) from None
    axes: Axes = pyplot.subplots(layout="constrained")[1]
    return axes


def _places(result: Result | None, column: str | None) -> list[int]:
    """Return the columns of numbers that are drawn."""
    if result is None:
        raise InterfaceError("there is nothing to plot yet", hint="execute a statement first")
    places = sorted({place for places in result.places for place in places})
    names = [result.columns[place].name for place in places]
    if not places:
        raise InterfaceError(
            "there is nothing to plot: the result has no number with an interval",
            hint="ask for counts or sums, for example SELECT region, COUNT(*) … GROUP BY region",
        )
    if column is not None:
        places = [place for place, name in zip(places, names, strict=True) if name == column]
        if not places:
            raise InterfaceError(
                f'no column of numbers is called "{column}"',
                hint=f"there are {', '.join(names)}",
            )
    if len(places) * len(result.rows) > BARS:
        raise NotSupportedError(
            f"{len(places) * len(result.rows):,} numbers are too many for one picture",
            hint=f"it has room for {BARS}: add LIMIT, group by less, or name one column=",
        )
    return places


def _one(axes: Axes, result: Result, place: int) -> Axes:
    """Draw the posterior of one number, where it is explained; else the number alone."""
    ((answer,),) = _answers(result, [place])
    if answer is None:
        raise InterfaceError("there is nothing to plot: the number is not known")
    axes.set_xlabel(_plain(result.columns[place].name))
    axes.set_yticks([])
    explained = result.explanations[0] if result.explanations else []
    known = dict(zip(result.places[0], explained, strict=False)).get(place)
    if known is not None:
        _density(axes, known.posterior, answer)
    else:
        axes.hlines(0, answer.low, answer.high, colors=INK)
        axes.set_ylim(-1, 1)
    axes.plot([answer.estimate], [0], "o", color=COLOURS[0], clip_on=False, zorder=3)
    axes.set_title(f"{number(answer.estimate, answer)}  {interval(answer)}")
    return axes


def _density(axes: Axes, posterior: Posterior, answer: Answer) -> None:
    """Draw a density, and shade it within the interval."""
    points = posterior.density()
    x, y = [point for point, _ in points], [height for _, height in points]
    low, high = max(answer.low, x[0]), min(answer.high, x[-1])
    shaded = [low, *(point for point in x if low < point < high), high]
    axes.plot(x, y, color=COLOURS[0])
    axes.fill_between(shaded, np.interp(shaded, x, y), color=COLOURS[0], alpha=0.3)
    axes.set_ylim(0)


def _bars(axes: Axes, result: Result, places: Sequence[int]) -> Axes:
    """Draw a bar for each number, side by side where a row has several."""
    numeric = {place for row in result.places for place in row}
    keys = [place for place in range(len(result.columns)) if place not in numeric]
    names = [_plain(result.columns[place].name) for place in places]
    if not keys and len(result.rows) == 1:  # one row of numbers: a bar for each
        groups, answers = names, [[each] for each in _answers(result, places)[0]]
        names = [""]
    else:
        groups, answers = labels(result, keys), _answers(result, places)
        axes.set_xlabel(_plain(", ".join(result.columns[place].name for place in keys)))
    width = 0.8 / len(names)
    for i, name in enumerate(names):
        found = [
            (row + (i - (len(names) - 1) / 2) * width, each[i])
            for row, each in enumerate(answers)
            if each[i] is not None and math.isfinite(each[i].estimate)
        ]
        colour = COLOURS[i % len(COLOURS)]
        at, heights = [x for x, _ in found], [answer.estimate for _, answer in found]
        axes.bar(at, heights, width, color=colour, alpha=0.8, label=_plain(name) or None)
        for x, answer in found:
            _whisker(axes, x, answer)
    if len(names) > 1:
        axes.legend(frameon=False)
    elif names[0]:
        axes.set_ylabel(names[0])
    every = math.ceil(len(groups) / LABELS)
    long = max(map(len, groups), default=0) * len(groups[::every]) > 80
    ticks = range(0, len(groups), every)
    shown = [_plain(group) for group in groups[::every]]
    axes.set_xticks(ticks, shown, rotation=60 if long else 0, ha="right" if long else "center")
    return axes


def _whisker(axes: Axes, x: float, answer: Answer) -> None:
    """Draw an interval, which need not hold the estimate; ends that it has not are left out."""
    if math.isfinite(answer.low) and math.isfinite(answer.high):
        middle, half = (answer.low + answer.high) / 2, (answer.high - answer.low) / 2
        axes.errorbar(x, middle, half, fmt="none", ecolor=INK, capsize=3)


def _answers(result: Result, places: Sequence[int]) -> list[list[Any]]:
    """Return the answers in these columns, row by row; None where there is none."""
    rows = zip(result.places, result.answers, strict=True)
    known = (dict(zip(of, answers, strict=True)) for of, answers in rows)
    return [[each.get(place) for place in places] for each in known]


def _plain(text: str) -> str:
    """Return a text that matplotlib shows as it is: a dollar begins its mathematics."""
    return printable(text).replace("$", r"\$")
