"""The demo: what the proxy does, told in statements over the wages of 28,155 people.

It has a state of its own, in a temporary folder, so that every run starts with a full budget.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import closing
from pathlib import Path

from proxy.cli import show
from proxy.cli.plain import WIDTH, rich
from proxy.engine import Engine, init
from proxy.errors import InsufficientBudgetError

STORY = (
    (
        "How many people are in the survey?  Within 50, with 95% confidence.\n"
        "Nothing is known yet, so it is measured: noise is added, and privacy budget spent.",
        "SELECT COUNT(*) AS people FROM cps1988 WITH UTILITY (50, 0.05)",
    ),
    (
        "The same question again: the same answer, for nothing.",
        "SELECT COUNT(*) AS people FROM cps1988 WITH UTILITY (50, 0.05)",
    ),
    (
        "Another question, another measurement: how many of them live in the south?",
        "SELECT COUNT(*) AS people FROM cps1988 WHERE region = 'south' WITH UTILITY (50, 0.05)",
    ),
    (
        "And how many do not?  Nobody asked that before, but the two answers above know it:\n"
        "it is inferred, with an interval of its own, and costs nothing.",
        "SELECT COUNT(*) AS people FROM cps1988 WHERE region <> 'south' WITH UTILITY (100, 0.05)",
    ),
    (
        "The whole survey once more, but within 10: the earlier answer is not good enough,\n"
        "so the better one is paid for.",
        "SELECT COUNT(*) AS people FROM cps1988 WITH UTILITY (10, 0.05)",
    ),
    (
        "People and the sum of their weekly wages, by region.  The regions have nobody in common,\n"
        "so that all of them cost no more than one.  The policy says how good the numbers must be.",
        "SELECT region, COUNT(*) AS people, SUM(wage) AS wages\n"
        "FROM cps1988 GROUP BY region ORDER BY region",
    ),
    (
        "Part-timers, to within 2.  That costs more than is left, so it is refused:\n"
        "nothing is read, and nothing spent.",
        "SELECT COUNT(*) AS people FROM cps1988 WHERE parttime = 'yes' WITH UTILITY (2, 0.05)",
    ),
    (
        "Within 100 costs much less, and is still to be had.",
        "SELECT COUNT(*) AS people FROM cps1988 WHERE parttime = 'yes' WITH UTILITY (100, 0.05)",
    ),
)


def policy() -> Path:
    """Return the path of the demo's policy, in the installed package or in a checkout."""
    package = Path(__file__).parent.parent
    shipped = package / "demo" / "policies" / "cps1988.yaml"
    return shipped if shipped.exists() else package.parent / "policies" / "cps1988.yaml"


def play() -> None:
    """Tell the story."""
    out = rich(None if sys.stdout.isatty() else WIDTH)
    with tempfile.TemporaryDirectory(prefix="privacy-proxy-") as state:
        init(policy(), state)
        with closing(Engine.open(policy(), state)) as engine:
            session = engine.session()
            for step, (words, sql) in enumerate(STORY, 1):
                out.print(f"{step}. {words}\n", style="bold")
                out.print(f"{sql};\n", style="cyan")
                try:
                    show.result(session.execute(sql), as_json=False)
                except InsufficientBudgetError as refusal:
                    out.print(str(refusal))
                out.print()
            out.print("What is left of the privacy budget in the end:\n", style="bold")
            show.budget(engine.budget(), as_json=False)
    out.print("\nThe demo leaves nothing behind.  To ask your own questions:\n")
    out.print(f"privacy-proxy init {_near(policy())}", style="cyan")
    out.print(f'privacy-proxy query {_near(policy())} "{STORY[0][1]}"', style="cyan")


def _near(path: Path) -> Path:
    """Return a path as seen from the current folder, where it lies inside."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
