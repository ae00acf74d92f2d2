"""The page Ask in Chromium: from the first visit to a charted answer, and all that is beside it."""

import asyncio
import re

import pytest

from proxy.console.embedded import Embedded
from proxy.console.service import Console
from proxy.engine import init
from tests.console.chromium import NARROW, WIDE, opened, violations
from tests.loops import loop_in_thread

pytestmark = [pytest.mark.slow, pytest.mark.clients]

SIZES = pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
DARK = pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
PRICED = "#preview:not(.old) p, #problem:not([hidden]):not(.old)"


def write(page, sql):
    """Put a statement into the editor, and wait until its price, or its error, is there."""
    page.locator(".cm-content").click()
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.press("Delete")
    page.keyboard.insert_text(sql)
    page.keyboard.press("Escape")
    page.locator(PRICED).first.wait_for()


def text_of(page):
    """What is in the editor."""
    return "\n".join(page.locator(".cm-line").all_inner_texts())


@SIZES
@DARK
def test_a_newcomer_gets_a_paid_charted_answer_with_one_key(enter, viewport, dark):
    """
    A statement is there, its price on the button; Ctrl+Enter runs it, and the keyboard alone
    reaches where a number comes from.  Nothing on the way breaks WCAG at level A or AA.
    """
    page = enter("alice", viewport=viewport, dark=dark)
    page.locator(PRICED).first.wait_for()
    button = page.locator("#run")
    assert re.fullmatch(r"Run · (free|costs \S+ of \S+ left)", button.inner_text())
    assert violations(page) == []
    page.locator(".cm-content").focus()
    page.keyboard.press("Control+Enter")
    page.locator("#result .plot canvas").wait_for()
    rows = page.locator("#result tbody tr")
    assert rows.count() == 4
    assert re.search(r"\[[\d,]+, [\d,]+\] 95%\s+(measured|inferred)", rows.first.inner_text())
    assert "south" in page.locator("#result .plot").get_attribute("aria-label")
    assert violations(page) == []
    why = page.locator(".why-button").first
    why.focus()
    page.keyboard.press("Enter")
    page.locator("dialog .origins").wait_for()
    assert violations(page) == []
    page.keyboard.press("Escape")
    assert why.evaluate("it => it === document.activeElement")
    page.wait_for_selector("#run:text('Run · free')")


def test_tab_leaves_the_editor_also_where_completions_are_open(enter):
    page = enter("alice")
    write(page, "SELECT COUNT(*) FROM cps1988 WHERE region = ")
    page.keyboard.type("'so")
    page.locator(".cm-tooltip-autocomplete li").first.wait_for()
    assert violations(page) == []
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert not page.locator(".cm-content").evaluate("it => it === document.activeElement")


def test_the_editor_completes_columns_and_declared_values(enter):
    page = enter("alice")
    write(page, "SELECT COUNT(*) FROM cps1988 WHERE ")
    page.keyboard.type("regi", delay=20)
    page.locator(".cm-tooltip-autocomplete li", has_text="region").wait_for()
    page.wait_for_timeout(150)  # a completion takes no key sooner than 75 ms after it has come
    page.keyboard.press("Tab")
    page.keyboard.type(" = 'so", delay=20)
    page.locator(".cm-tooltip-autocomplete li", has_text="south").wait_for()
    page.wait_for_timeout(150)
    page.keyboard.press("Enter")
    assert text_of(page) == "SELECT COUNT(*) FROM cps1988 WHERE region = 'south'"


def test_an_error_is_shown_beside_the_clause_that_caused_it(enter):
    page = enter("alice")
    write(page, "SELECT region, COUNT(*)\nFROM cps1988\nWHERE regoin = 'south' GROUP BY region")
    assert page.locator(".cm-lintRange-error").inner_text() == "regoin"
    told = page.get_by_role("alert").inner_text()
    assert 'Column "regoin" does not exist.' in told
    assert "line 3, column 7" in told
    assert "Did you mean region?" in told
    assert violations(page) == []
    write(page, "SELECT COUNT(*) FROM cps1988")
    assert page.locator(".cm-lintRange-error").count() == 0
    assert page.locator("#problem").is_hidden()


CLAUSES = [
    ("SELECT COUNT(*) FROM t", "SELECT COUNT(*) FROM t WITH UTILITY (30, 0.01)"),
    ("SELECT 1\nFROM t; -- x", "SELECT 1\nFROM t\nWITH UTILITY (30, 0.01); -- x"),
    ("SELECT 1 WITH UTILITY (50, .05) LIMIT 3", "SELECT 1 WITH UTILITY (30, 0.01) LIMIT 3"),
    ("(SELECT 1) with utility ( 5 % , 0.1 )", "(SELECT 1) WITH UTILITY (30 PERCENT, 0.01)"),
    (
        "SELECT 1 WITH UTILITY (5,.1), MAX COST 0.3",
        "SELECT 1 WITH UTILITY (30, 0.01), MAX COST 0.3",
    ),
    ("SELECT 1 WITH UTILITY MAX COST 1", "SELECT 1 WITH UTILITY (30, 0.01), MAX COST 1"),
    ("SELECT 'WITH UTILITY (1,2)'", "SELECT 'WITH UTILITY (1,2)' WITH UTILITY (30, 0.01)"),
    ("SELECT \"it's\" -- '\n", "SELECT \"it's\" WITH UTILITY (30, 0.01) -- '\n"),
    ("SELECT 1 WITH UTILITY (5, 0.1), total (3, 0.1)", None),
    ("SELECT 1 WITH UTILITY total (3, 0.1)", None),
    ("SELECT 1 /*+ UTILITY(3, 0.1) */", None),
    ("SELECT 1 WITH UTILITY (5", None),
    ("SELECT (SELECT 1 WITH UTILITY (5, 0.1)) WITH UTILITY (5, 0.1)", None),
    ("SHOW BUDGET", None),
    ("", None),
]


def test_the_sliders_fill_the_clause_and_touch_nothing_else(enter):
    """Also beside strings, comments and limits; what says more than they can is left alone."""
    page = enter("alice")
    filled = """async texts => {
        const { filled } = await import("/static/clause.js");
        return texts.map((text) => {
            const change = filled(text, 30, 0.01);
            return change && text.slice(0, change.from) + change.insert + text.slice(change.to);
        });
    }"""
    assert page.evaluate(filled, [text for text, _ in CLAUSES]) == [to for _, to in CLAUSES]


def test_a_slider_changes_the_text_and_the_price(enter):
    page = enter("alice")
    write(page, "SELECT COUNT(*) FROM cps1988 WHERE education = 3")
    first = page.locator("#run").inner_text()
    assert page.get_by_label("Within ±").input_value() == "100"
    slider = page.get_by_label("Half-width of the interval")
    slider.focus()
    page.keyboard.press("ArrowLeft")
    page.locator(PRICED).first.wait_for()
    found = re.search(r" WITH UTILITY \((\d+), 0.05\)$", text_of(page))
    assert 90 <= int(found[1]) < 100
    assert page.locator("#run").inner_text() != first
    page.get_by_label("Confidence of the interval").focus()
    page.keyboard.press("End")
    assert text_of(page).endswith(f"({found[1]}, 0.001)")
    write(page, "SELECT COUNT(*) AS n FROM cps1988 WITH UTILITY n (50, 0.05)")
    assert page.get_by_label("Within ±").is_disabled()
    assert "for a column" in page.locator("#dials-why").inner_text()


def test_whole_numbers_are_exact_beyond_the_digits_of_a_double_and_sorted_by_them(enter):
    page = enter("alice")
    large = "9007199254740992", "9007199254740993"
    shown = [f"-{large[1]}.50", f"-{large[0]}.50", "1.50", f"{large[0]}.50", f"{large[1]}.50"]
    write(page, " UNION ALL SELECT ".join([f"SELECT {shown[4]} AS x", *shown[:4]]))
    page.locator("#run").click()
    rows = page.locator("#result tbody tr")
    rows.first.wait_for()
    for order in (1, -1):
        page.locator("#result .sort").click()
        assert rows.all_inner_texts() == shown[::order]


def test_a_result_without_rows_says_so_and_what_nobody_sees_is_written_out(enter):
    """Control characters, and marks that turn the direction; in the editor, too."""
    page = enter("alice")
    write(page, "SELECT 'a\u202eb' AS x UNION ALL SELECT ''")
    page.locator("#run").click()
    rows = page.locator("#result tbody tr")
    rows.first.wait_for()
    assert rows.all_inner_texts() == ["a\\u202eb", "''"]
    assert page.locator(".cm-specialChar").count() == 1
    write(page, "SELECT 1 AS x WHERE false")
    page.locator("#run").click()
    page.locator("#result", has_text="No rows.").wait_for()


def test_long_names_of_columns_fit_a_narrow_page(enter):
    page = enter("alice", viewport=NARROW)
    names = [f"a_name_that_is_as_long_as_a_name_of_a_column_may_be_or_nearly_{i}" for i in range(3)]
    columns = ", ".join(f"COUNT(*) + {i} AS {name}" for i, name in enumerate(names))
    write(page, f"SELECT region, {columns} FROM cps1988 GROUP BY region WITH UTILITY (900, 0.05)")
    page.locator("#run").click()
    page.locator("#picture-number").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == NARROW["width"]


def test_a_claim_about_a_number_can_be_moved(enter):
    """The farther below the estimate, the more probable is more than that."""
    page = enter("alice")
    write(page, "SELECT COUNT(*) AS people FROM cps1988 WITH UTILITY (300, 0.05)")
    page.locator("#run").click()
    claim, told = page.get_by_label("How probable is more than"), page.locator(".probability")
    claim.wait_for()
    estimate = int(page.locator(".big-number").inner_text().replace(",", ""))
    shares = []
    for below in (5000, 100, -100, -5000):
        claim.fill(str(estimate - below))
        shares.append(told.inner_text())
    assert shares[0] == "more than 99.9 %"
    assert shares[3] == "less than 0.1 %"
    assert 50 < float(shares[1].split()[0]) < 100
    assert float(shares[2].split()[0]) < 50
    claim.fill("")
    assert told.inner_text() == "not a number"
    page.get_by_label("The claim about people").focus()
    page.keyboard.press("Home")
    assert told.inner_text() == "more than 99.9 %"


def test_where_the_price_has_changed_nothing_is_run_and_it_says_so(enter):
    page = enter("alice")
    page.route("**/ask/run", lambda route: route.continue_(post_data=lowered(route)))
    write(page, "SELECT COUNT(*) FROM cps1988 WHERE education = 5 WITH UTILITY (150, 0.05)")
    page.locator("#run").click()
    page.locator("#preview .notice").wait_for()
    assert "The price has changed meanwhile" in page.locator("#preview").inner_text()
    assert page.locator("#run").inner_text().startswith("Run · costs ")
    assert page.locator("#result").is_hidden()


def lowered(route):
    """What a page posts that was shown a lower price."""
    return re.sub("limit=[^&]+", "limit=0.0001", route.request.post_data)


def test_what_was_typed_too_fast_is_priced_before_it_is_paid(enter):
    """Ctrl+Enter before the price is there asks for it, and spends nothing unseen."""
    page = enter("alice")
    ran = []
    page.on("request", lambda request: ran.append(1) if request.url.endswith("/run") else None)
    write(page, "SELECT COUNT(*) FROM cps1988 WHERE education = 7")
    page.keyboard.insert_text(" WITH UTILITY (130, 0.05)")
    page.keyboard.press("Control+Enter")
    page.locator("#preview .notice", has_text="Run it again to spend that").wait_for()
    assert not ran
    page.keyboard.press("Control+Enter")
    page.locator(".big-number").wait_for()
    assert ran == [1]


def test_a_running_statement_can_be_canceled_by_its_button(enter):
    page = enter("alice")
    held = []
    page.route("**/ask/run", lambda route: held.append(route))
    page.route("**/ask/cancel", lambda route: (route.continue_(), held.pop().continue_()))
    write(page, "SELECT COUNT(*) FROM cps1988 WITH UTILITY (900, 0.05)")
    page.locator("#run").click()
    cancel = page.get_by_role("button", name="Cancel")
    cancel.click()
    cancel.wait_for(state="hidden")
    assert page.locator("#run").is_enabled()


@SIZES
def test_a_double_click_runs_a_statement_and_does_not_cancel_it(enter, viewport):
    """What cancels comes where nothing was."""
    page = enter("alice", viewport=viewport)
    held = []
    page.route("**/ask/run", lambda route: held.append(route))
    write(page, "SELECT COUNT(*) FROM cps1988 WITH UTILITY (950, 0.05)")
    run, cancel = page.locator("#run"), page.locator("#cancel")
    before = run.bounding_box()
    run.click()
    cancel.wait_for()
    there = cancel.bounding_box()
    assert (
        there["x"] + there["width"] <= before["x"] or there["y"] >= before["y"] + before["height"]
    )
    while not held:
        page.wait_for_timeout(10)
    held.pop().continue_()
    cancel.wait_for(state="hidden")


def test_an_error_of_a_run_stays_until_the_text_is_edited(enter):
    """Also one that no price foretells; the result below says which statement it is of."""
    page = enter("alice")
    write(page, "SHOW privacy.spend")
    page.locator("#run").click()
    page.locator("#result tbody tr").wait_for()
    write(page, "SET privacy.utility = 'abc'")
    assert page.locator("#earlier").is_hidden()
    with page.expect_response("**/ask/preview"):  # which follows every run
        page.locator("#run").click()
    page.wait_for_timeout(200)
    assert "not 'abc'" in page.get_by_role("alert").inner_text()
    assert page.locator("#earlier").inner_text().endswith("SHOW privacy.spend")
    write(page, "SHOW privacy.columns")
    assert page.locator("#problem").is_hidden()


def test_where_the_visit_has_ended_it_says_so_and_keeps_the_text(enter):
    page = enter("bob")
    page.locator(PRICED).first.wait_for()
    page.context.clear_cookies()
    write(page, "SELECT COUNT(*) FROM cps1988 WHERE education = 11")
    assert "Your visit has ended" in page.get_by_role("alert").inner_text()
    assert page.get_by_role("link", name="Log in again").is_visible()
    assert "education = 11" in text_of(page)


SHORT = '"><img src=x onerror=document.title=3>'
HOSTILE = '"><img src=x onerror="document.title=1"><script>document.title=2</script>'


def test_saved_queries_come_back_as_they_were_whatever_their_names(enter):
    page = enter("bob")
    title = page.title()
    write(page, f"SELECT '{HOSTILE}'")
    page.get_by_label("Name for the statement").fill(HOSTILE)
    page.get_by_role("button", name="Save").click()
    entry = page.locator("#saved .statement", has_text=HOSTILE)
    entry.wait_for()
    write(page, "SELECT 1")
    page.get_by_label("Name for the statement").fill(HOSTILE)
    page.get_by_role("button", name="Save").click()
    page.get_by_role("button", name="Replace it").wait_for()
    entry.click()
    assert text_of(page) == f"SELECT '{HOSTILE}'"
    page.reload()
    page.locator("#saved .statement", has_text=HOSTILE).wait_for()
    page.get_by_role("button", name=f"Delete {HOSTILE}").click()
    page.locator("#saved", has_text="Give the statement a name").wait_for()
    assert page.title() == title


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A dataset of names that try to be HTML, with an attribute of 5,000 values."""
    folder = tmp_path_factory.mktemp("large")
    values = [f"v{i:04d}" for i in range(4999)] + [HOSTILE]
    (folder / "d.csv").write_text("place\n" + "\n".join(values[:100]) + "\n")
    quoted = ", ".join("'" + value.replace("'", "''") + "'" for value in values)
    (folder / "d.yaml").write_text(
        f"dataset: 'd{SHORT}'\nsource: {{engine: duckdb, path: d.csv}}\nmax_records: 1000\n"
        f"outside: drop\nnulls: drop\nattributes:\n  place: {{values: [{quoted}]}}\n"
        f"  '{SHORT}': {{values: [a, b], expression: \"'a'\"}}\n"
        "privacy: {budget: 100, unit: row}\nutility: {half_width: 20, delta: 0.05}\n"
    )
    init(folder / "d.yaml", folder / "state")
    return folder


@pytest.fixture
def large_page(large, chrome):
    """A page of that dataset."""
    backend, console = Embedded([large / "d.yaml"], large / "state"), Console("127.0.0.1", 0)
    console.bind()
    with loop_in_thread() as loop:
        asyncio.run_coroutine_threadsafe(console.start(backend), loop).result(20)
        try:
            with opened(chrome) as page:
                page.goto(f"{console.url}login?token={backend.token}")
                page.locator(PRICED).first.wait_for()
                yield page
        finally:
            asyncio.run_coroutine_threadsafe(console.stop(), loop).result(20)
            backend.close()


def test_five_thousand_groups_are_sorted_and_turned_page_by_page(large_page):
    """The page has fifty rows at a time; names that try to be HTML are texts everywhere."""
    page = large_page
    title = page.title()
    table = page.evaluate("async () => (await (await fetch('ask/known')).json()).tables[0].written")
    write(page, f"SELECT place, COUNT(*) AS n FROM {table} GROUP BY place")
    page.keyboard.press("Control+Enter")
    rows = page.locator("#result tbody tr")
    rows.first.wait_for()
    assert rows.count() == 50
    assert "of 5,000" in page.locator(".pager").inner_text()
    for _ in range(2):
        page.locator("#result").get_by_role("button", name="place", exact=True).click()
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("place")
    assert rows.first.inner_text().startswith("v4998")
    page.get_by_role("button", name="Next").click()
    assert "Rows 51 to 100" in page.locator(".pager").inner_text()
    assert "60 largest of 5,000" in page.locator("figcaption").inner_text()
    assert violations(page) == []
    assert page.title() == title


def test_an_attribute_of_five_thousand_values_is_completed(large_page):
    """What is typed begins the values that come first, of all 5,000."""
    page = large_page
    write(page, "SELECT COUNT(*) FROM x WHERE place = ")
    page.keyboard.type("'v49", delay=20)
    found = page.locator(".cm-tooltip-autocomplete li")
    found.filter(has_text="'v4998'").wait_for(state="attached")
    assert found.first.inner_text().startswith("'v4900'")
    page.locator("#columns summary").first.click()
    assert "and 4,970 more" in page.locator("#columns").inner_text()
