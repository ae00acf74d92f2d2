"""Logging in and out in Chromium, with the keyboard alone, on a wide and on a narrow screen."""

import pytest

from tests.console.chromium import NARROW, WIDE, opened, violations
from tests.server.serving import password

pytestmark = [pytest.mark.slow, pytest.mark.clients]


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_one_logs_in_and_out_with_the_keyboard(served, chrome, viewport, dark):
    with opened(chrome, viewport, dark) as page:
        page.goto(served.console.url)
        assert violations(page) == []
        page.keyboard.type("alice")
        page.keyboard.press("Tab")
        page.keyboard.type(password("alice"))
        page.keyboard.press("Enter")
        page.wait_for_url("**/d/cps1988/ask")
        assert violations(page) == []
        page.get_by_role("button", name="Log out").focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/login")


def test_a_wrong_password_is_told_and_read_out(served, chrome):
    with opened(chrome, status=401) as page:
        page.goto(served.console.url)
        page.get_by_label("User").fill("alice")
        page.get_by_label("Password").fill("guess")
        with page.expect_response("**/login") as told:
            page.get_by_role("button", name="Log in").click()
        assert told.value.status == 401
        assert "password authentication failed" in page.get_by_role("alert").inner_text()
        assert page.get_by_label("User").input_value() == "alice"
