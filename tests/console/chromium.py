"""Debian's Chromium for tests, driven by Playwright; pages that say what went wrong in them."""

import contextlib
import os
import shutil
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


@contextlib.contextmanager
def chromium():
    """A browser that runs, or a skipped test where there is none."""
    api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no chromium here")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def opened(browser, viewport=WIDE, dark=False, status=None):
    """A page of a new context; at the end nothing was said on its console, but of a ``status``."""
    scheme = "dark" if dark else "light"
    context = browser.new_context(viewport=viewport, color_scheme=scheme)
    page = context.new_page()
    wrong = []
    page.on("console", lambda told: wrong.append(told.text) if told.type != "log" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.set_default_timeout(20_000)
    try:
        yield page
        assert [told for told in wrong if f"status of {status} " not in told] == []
    finally:
        context.close()


STILL = """async () => {
  const ends = animation => isFinite(animation.effect.getComputedTiming().endTime)
  await Promise.allSettled(document.getAnimations().filter(ends).map(each => each.finished))
}"""


def violations(page):
    """What axe-core finds that breaks WCAG at level A or AA, in words."""
    source = Path(os.environ.get("NODE_PATH", "node_modules")) / "axe-core" / "axe.min.js"
    if not source.exists():
        pytest.skip("no axe-core here: npm install axe-core, and NODE_PATH")
    page.evaluate(source.read_text())
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
    only = {"runOnly": {"type": "tag", "values": tags}}
    page.evaluate(STILL)  # what fades in has little contrast
    found = page.evaluate("only => axe.run(document, only)", only)["violations"]
    return [f"{v['id']}: {node['html']}" for v in found for node in v["nodes"]]
