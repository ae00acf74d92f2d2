"""The paper's figures, drawn from outcomes; needs matplotlib (the extra ``plots``)."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from proxy.experiment.study import Outcome
from proxy.files import write

STYLES = {  # colours that the colour-blind can tell apart, and marks that need no colour
    "baseline": ("#999999", "v"),
    "improved baseline": ("#000000", "s"),
    "ols": ("#E69F00", "^"),
    "paper": ("#0072B2", "o"),
    "ours": ("#D55E00", "D"),
    "ours, pieces": ("#009E73", "P"),
    "ours, hierarchy": ("#CC79A7", "X"),
    "ours, auto": ("#000000", "*"),
    "exact": ("#D55E00", "D"),
    "pc": ("#0072B2", "o"),
    "mc": ("#009E73", "^"),
}
LABELS = {
    "ols": "OLS",
    "paper": "paper's",
    "ours": "ours, topup",
    "pc": "PC",
    "mc": "MC",
    "answer_ratio": "$R_a$",
    "reliability": "$R_i$",
    "error": "$E$",
    "system_cost": r"$\bar{\alpha}$",
    "seconds": "seconds",
    "m": "rows $m$",
    "n": "cells $n$",
    "beta": r"$\beta$",
    "samples": "samples $m_s$",
}
METRICS = {
    "unbounded": ("system_cost", "error", "reliability"),
    "bounded": ("answer_ratio", "error", "reliability"),
    "ranges": ("answer_ratio", "error", "reliability"),
}


def draw(outcomes: Sequence[Outcome], folder: Path) -> list[Path]:
    """Draw the figures of one experiment and seed into a folder, and return their paths."""
    experiment = outcomes[0].experiment
    if experiment in METRICS:
        panels = [("queries", metric) for metric in METRICS[experiment]]
        chosen = [list(outcomes)] * len(panels)
    else:
        panels, chosen = _timing_panels(outcomes)
    wide = min(len(panels), 3)
    tall = -(-len(panels) // wide)
    figure = Figure(figsize=(3.6 * wide, 2.7 * tall + 0.3), layout="constrained")
    places = figure.subplots(tall, wide, squeeze=False).ravel()[: len(panels)]
    for axes, (across, up), some in zip(places, panels, chosen, strict=True):
        _panel(axes, some, across, up)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{experiment}.png"
    data = BytesIO()
    figure.savefig(data, format="png", dpi=80)
    write(path, data.getvalue())
    return [path]


def _timing_panels(
    outcomes: Sequence[Outcome],
) -> tuple[list[tuple[str, str]], list[list[Outcome]]]:
    """Return a panel of times for each thing they are set against, and one of errors if known."""
    panels, chosen = [], []
    for across in dict.fromkeys(str(outcome.setting["against"]) for outcome in outcomes):
        some = [outcome for outcome in outcomes if outcome.setting["against"] == across]
        for up in ("seconds", "error") if across in ("beta", "samples") else ("seconds",):
            panels.append((across, up))
            chosen.append(some)
    return panels, chosen


def _panel(axes: Axes, outcomes: Sequence[Outcome], across: str, up: str) -> None:
    for system in dict.fromkeys(outcome.system for outcome in outcomes):
        points = [
            (_across(outcome, across), getattr(outcome, up))
            for outcome in outcomes
            if outcome.system == system and getattr(outcome, up) is not None
        ]
        colour, mark = STYLES[system]
        axes.plot(
            [x for x, _ in points],
            [y for _, y in points],
            color=colour,
            marker=mark,
            markersize=3.5,
            linewidth=1.2,
            label=LABELS.get(system, system),
        )
    if up == "seconds" or across == "beta":
        axes.set_yscale("log")
    if across == "beta":
        axes.set_xscale("log")
    axes.set_xlabel(LABELS.get(across, across))
    mass = up == "error" and across != "queries"  # the paper's error(u) of a mass vector, not E
    axes.set_ylabel("error" if mass else LABELS[up])
    axes.grid(alpha=0.3, linewidth=0.5)


def _across(outcome: Outcome, across: str) -> float:
    return float(outcome.queries if across == "queries" else outcome.setting[across])
