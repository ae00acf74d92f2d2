"""What strategies would spend, request by request; needs matplotlib (the extra ``plots``)."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from itertools import accumulate
from pathlib import Path

from matplotlib.figure import Figure

from proxy.files import write
from proxy.inference.strategies.simulated import Simulated

STYLES = {  # colours that the colour-blind can tell apart, and lines that need no colour
    "paper": ("#0072B2", ":"),
    "topup": ("#000000", "--"),
    "pieces": ("#009E73", "-."),
    "hierarchy": ("#E69F00", "-"),
    "marginals": ("#D55E00", "-"),
}


def draw(simulated: Sequence[Simulated], budget: float, path: Path) -> None:
    """Draw what the dearest cell has paid after each request, and the budget."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    for each in simulated:
        color, line = STYLES[each.name]
        spent = list(accumulate(paid or 0.0 for paid in each.paid))
        answered = each.answered / max(each.asked, 1)
        label = f"{each.name}: {answered:.0%} answered"
        axes.plot(range(1, len(spent) + 1), spent, line, color=color, label=label)
    top = max(each.alpha for each in simulated)
    if budget < 3 * top:
        axes.axhline(budget, color="#999999", linewidth=1, label="the budget")
    axes.set_xlabel("requests")
    axes.set_ylabel("spent by the dearest cell (alpha)")
    axes.set_ylim(0)
    axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = BytesIO()
    figure.savefig(data, format=path.suffix[1:] or "png")
    write(path, data.getvalue())
