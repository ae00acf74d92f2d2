"""Budget, History, Policy and Audit in Chromium: every action, wide and narrow, light and dark.

At the end of each nothing was said on the browser's console, and axe-core finds no fault.
"""

import contextlib

import pytest

from proxy.steward import audit
from tests.console.chromium import NARROW, WIDE, opened, violations
from tests.console.roles import PASSWORD, XSS, made, served

PASTE = """text => {
    const data = new DataTransfer();
    data.setData("text/plain", text);
    const how = {clipboardData: data, bubbles: true, cancelable: true};
    document.querySelector(".cm-content").dispatchEvent(new ClipboardEvent("paste", how));
}"""
SIZES = pytest.mark.parametrize(
    "size, dark", [(WIDE, False), (NARROW, True)], ids=["wide", "narrow"]
)

pytestmark = [pytest.mark.slow, pytest.mark.clients]


@pytest.fixture
def backend(tmp_path):
    """A console's backend, over a dataset in which ann and bob have asked something."""
    backend = made(tmp_path / "folder")
    yield backend
    backend.engine.close()


@pytest.fixture
def console(backend, chrome):
    """A function that opens a place of a console over the backend, for a user."""
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(served(backend))

        def go(user, place, size=WIDE, dark=False, **more):
            page = stack.enter_context(opened(chrome, size, dark, **more))
            page.goto(f"{url}login?next=/d/people/{place}")
            page.get_by_label("User").fill(user)
            page.get_by_label("Password").fill(PASSWORD)
            page.get_by_role("button", name="Log in").click()
            page.wait_for_url(f"**/d/people/{place}")
            return page

        yield go


def fine(page):
    """Whether a page fits its window, has run nothing of its texts, and breaks no rule."""
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= page.viewport_size["width"]
    assert page.locator('img[src="x"]').count() == 0
    assert violations(page) == []


def on(page, name):
    """Go on to a field by the tabulator alone."""
    for _ in range(9):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.name") == name:
            return
    raise AssertionError(f"no way to {name}")


def accept(page):
    """Accept a completion: not in the first moment, in which it might be meant for the text."""
    page.wait_for_timeout(200)
    page.keyboard.press("Tab")


@SIZES
def test_a_budget_is_seen_at_a_glance(console, size, dark):
    """
    Its share, its curves, what questions cost, and the map of any two attributes.
    """
    page = console("all", "budget", size, dark)
    assert page.locator(".large").inner_text().startswith("15")
    assert page.locator("#chart canvas").is_visible()
    page.get_by_role("link", name="COUNT by age").wait_for()
    assert page.locator("#heat tbody tr").count() == 10
    page.get_by_label("Rows").select_option(XSS)
    page.get_by_text("125 values of").wait_for()
    page.get_by_label("Columns").select_option("")
    page.get_by_role("columnheader", name="Spent", exact=True).last.wait_for()
    assert page.locator("#heat tbody tr").count() == 40
    fine(page)


@SIZES
def test_a_history_is_searched_as_one_types(console, size, dark):
    page = console("aud", "history", size, dark)
    assert page.locator("tbody tr").count() == 2
    page.get_by_label("Search").press_sequentially("TOWN")
    page.wait_for_url("**words=TOWN**")
    assert page.get_by_text("1 statement", exact=True).is_visible()
    page.get_by_label("Show").select_option("refused")
    page.get_by_text("No statement is like that").wait_for()
    fine(page)


@SIZES
def test_an_audit_log_is_searched_looked_into_and_verified(console, size, dark):
    page = console("aud", "audit", size, dark)
    page.get_by_label("Text").press_sequentially("town")
    page.wait_for_url("**words=town**")
    assert page.get_by_text("1 line", exact=True).is_visible()
    page.get_by_role("link", name="Line 3").click()
    page.get_by_text("hash of the line before").wait_for()
    page.get_by_role("button", name="Verify").click()
    page.get_by_text("Everything agrees").wait_for()
    fine(page)


@SIZES
def test_a_policy_is_edited_checked_and_applied_by_keyboard_alone(console, backend, size, dark):
    """
    A pasted one, whose faults are marked in their lines; a weaker one needs tick and password.
    """
    page = console("sam", "policy", size, dark)
    text = (backend.folder / "people.yaml").read_text()
    editor = page.locator(".cm-content")
    editor.focus()
    page.keyboard.press("Control+a")
    page.evaluate(PASTE, text.replace("budget: 1\n", "budget: -1\n").replace("outside", "outsid"))
    page.keyboard.press("Control+Enter")
    page.get_by_text("2 things are wrong").wait_for()
    assert page.locator(".cm-lint-marker-error").count() == 2
    fine(page)
    page.get_by_role("button", name="Line 14").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Control+a")
    page.evaluate(PASTE, text.replace("budget: 1\n", "budget: 2\n"))
    page.keyboard.press("Control+Enter")
    page.get_by_text("privacy.budget is 2, it was 1").wait_for()
    fine(page)
    on(page, "accept")
    page.keyboard.press("Space")
    on(page, "password")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    page.get_by_text("is in force now").wait_for()
    fine(page)
    line = audit(backend.folder / "people.yaml", backend.folder / "state")[-1]
    assert (line.kind, line.user) == ("policy", "sam")


def test_what_is_typed_in_the_place_of_a_policy_breaks_no_rule(console):
    """
    The browser would give it the look of what was selected, by a style that the page forbids.
    """
    page = console("sam", "policy")
    page.locator(".cm-content").click()
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.type("dataset: new")
    assert page.locator(".cm-content").inner_text().strip() == "dataset: new"


def test_keys_of_a_policy_are_completed(console):
    """
    By what its schema has at the place, with what they mean; and the values that are allowed.
    """
    page = console("sam", "policy")
    editor = page.locator(".cm-content")
    editor.focus()
    page.keyboard.press("Control+Home")
    page.keyboard.type("rec")
    page.get_by_role("option", name="records", exact=True).wait_for()
    assert "never changes" in page.locator(".cm-completionInfo").inner_text()
    accept(page)
    page.keyboard.type("imm")
    page.get_by_role("option", name="immutable").wait_for()
    accept(page)
    page.keyboard.type("\npartition: {col")
    page.get_by_role("option", name="columnrequired").wait_for()
    accept(page)
    assert editor.inner_text().startswith("records: immutable\npartition: {column: ")


def test_without_scripts_a_policy_is_checked_and_lists_are_searched(backend, chrome):
    """
    What scripts make quicker is there without them.
    """
    with served(backend) as url:
        context = chrome.new_context(java_script_enabled=False)
        page = context.new_page()
        page.goto(f"{url}login?next=/d/people/history")
        page.get_by_label("User").fill("all")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()
        page.get_by_label("Search").fill("town")
        page.keyboard.press("Enter")
        page.wait_for_url("**words=town**")
        assert page.locator("tbody tr").count() == 1
        page.goto(f"{url}d/people/policy")
        assert "max_records: 1000" in page.locator("#text").input_value()
        context.close()
