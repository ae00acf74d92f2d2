"""The README's pictures of the console: ``python -m tests.console.pictures`` takes them anew."""

import tempfile
from pathlib import Path

from proxy.console.service import Console
from tests.console.chromium import chromium, opened
from tests.console.test_browser_ask import write
from tests.server.serving import ROOT, password, prepare, running

TARGET = ROOT / "examples" / "console"
VIEW = {"width": 1280, "height": 860}
ASKED = (  # before the budget is looked at
    "SELECT education, COUNT(*) AS n FROM cps1988 GROUP BY education WITH UTILITY (60, 0.05)",
    "SELECT ethnicity, SUM(wage) FROM cps1988 WHERE region = 'south' GROUP BY ethnicity",
    "SELECT COUNT(*) FROM cps1988 WHERE education >= 16 WITH UTILITY (40, 0.05)",
    "SELECT COUNT(*) FROM cps1988 WHERE education < 9 AND experience >= 30 WITH UTILITY (15, 0.05)",
)


def run(page, sql):
    """Ask, and wait for the answer."""
    write(page, sql)
    page.locator("#run:enabled").click()
    page.locator("#result table.rows").wait_for()


def main():
    """Take them."""
    TARGET.mkdir(exist_ok=True)
    console = Console("127.0.0.1", 0)
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        prepare(Path(folder), budget="1")
        with running(Path(folder), console=console), opened(browser, VIEW) as page:
            page.goto(console.url)
            page.get_by_label("User").fill("alice")
            page.get_by_label("Password").fill(password("alice"))
            page.get_by_role("button", name="Log in").click()
            run(
                page,
                "SELECT region, COUNT(*) AS people\nFROM cps1988\nGROUP BY region\n"
                "WITH UTILITY (100, 0.05)",
            )
            page.screenshot(path=TARGET / "groups.png", full_page=True)
            run(
                page,
                "SELECT COUNT(*) AS people\nFROM cps1988\nWHERE region <> 'south'\n"
                "WITH UTILITY (200, 0.05)",
            )
            page.locator(".probability").wait_for()
            page.screenshot(path=TARGET / "posterior.png", full_page=True)
            for sql in ASKED:
                run(page, sql)
            page.get_by_role("link", name="Budget").click()
            page.get_by_text("Where it was spent").wait_for()
            page.wait_for_load_state("networkidle")
            page.screenshot(path=TARGET / "budget.png")


if __name__ == "__main__":
    main()
