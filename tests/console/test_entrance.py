"""Who gets in, how long they stay, and what no other site can make their browser do."""

import re
import time

import pytest

import proxy.console.visits as visits
from proxy.console.pages import COOKIE
from tests.console.conftest import embedded, stranger
from tests.server.serving import password


def test_who_is_not_logged_in_is_sent_to_do_so_and_then_back(served):
    with stranger(served) as client:
        reply = client.get("/d/cps1988/budget?x=1", follow_redirects=False)
        assert reply.status_code == 303
        assert reply.headers["location"] == "/login?next=%2Fd%2Fcps1988%2Fbudget%3Fx%3D1"
        given = {"user": "alice", "password": password("alice"), "next": "/d/cps1988/budget?x=1"}
        reply = client.post("/login", data=given, follow_redirects=False)
        assert reply.headers["location"] == "/d/cps1988/budget?x=1"


@pytest.mark.parametrize(
    "next_", ["https://evil.example/", "//evil.example/", "/\\evil.example/", "/\n/evil", "x"]
)
def test_no_address_sends_somebody_who_logs_in_to_another_site(served, next_):
    with stranger(served) as client:
        given = {"user": "alice", "password": password("alice"), "next": next_}
        reply = client.post("/login", data=given, follow_redirects=False)
        assert (reply.status_code, reply.headers["location"]) == (303, "/")


def test_a_wrong_password_and_an_unknown_name_are_told_alike(served):
    told = set()
    for user in ("alice", "nobody", "sam"):
        with stranger(served) as client:
            reply = client.post("/login", data={"user": user, "password": "guess"})
            assert reply.status_code == 401
            assert COOKIE not in client.cookies
            told.add(re.search('role="alert">([^<]*)', reply.text)[1].replace(user, "…"))
    assert told == {"password authentication failed for user &#34;…&#34;"}


@pytest.mark.slow
def test_guesses_through_the_console_wait_as_those_over_the_wire(served):
    """After some wrong ones a guess at a name waits for seconds, whichever way it comes."""
    with stranger(served) as client:
        for _ in range(6):
            reply = client.post("/login", data={"user": "guessed-at", "password": "guess"})
            assert reply.status_code == 401
        began = time.monotonic()
        client.post("/login", data={"user": "guessed-at", "password": "guess"})
        assert time.monotonic() - began > 0.9  # 0.25 s doubled twice: not less on any machine


def test_a_visit_has_a_token_that_was_not_there_before(served):
    """A token that a browser is made to have is worth nothing, and is replaced."""
    with stranger(served) as client:
        client.cookies.set(COOKIE, "fixed-by-somebody-else")
        client.post("/login", data={"user": "alice", "password": password("alice")})
        tokens = [cookie.value for cookie in client.cookies.jar if cookie.name == COOKIE]
        assert len(tokens[-1]) > 40
        with stranger(served) as other:
            other.cookies.set(COOKIE, "fixed-by-somebody-else")
            assert other.get("/", follow_redirects=False).headers["location"] == "/login"


def test_logging_in_again_ends_the_visit_before(served, visitor):
    client = visitor("alice")
    (before,) = [c.value for c in client.cookies.jar if c.name == COOKIE]
    client.post("/login", data={"user": "bob", "password": password("bob")})
    with stranger(served) as other:
        other.cookies.set(COOKIE, before)
        assert other.get("/", follow_redirects=False).headers["location"] == "/login"


def test_the_cookie_is_for_http_of_this_site_alone(served):
    with stranger(served) as client:
        given = {"user": "alice", "password": password("alice")}
        told = client.post("/login", data=given, follow_redirects=False).headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(told.split("; "))


FOREIGN = [
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": None},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site", "origin": None},
]


@pytest.mark.parametrize("foreign", FOREIGN)
@pytest.mark.parametrize("where", ["/login", "/logout", "/d/cps1988/ask"])
def test_no_other_site_can_send_a_form(browser, where, foreign):
    headers = {name: value for name, value in foreign.items() if value is not None}
    for name in foreign.keys() - headers.keys():
        del browser.headers[name]
    reply = browser.post(where, data={"csrf": "x"}, headers=headers)
    assert (reply.status_code, reply.text) == (403, "the request comes from another site")
    assert browser.get("/d/cps1988/budget", follow_redirects=False).status_code != 303


@pytest.mark.parametrize("token", [None, "", "wrong"])
def test_a_form_without_the_token_of_the_visit_does_nothing(browser, token):
    reply = browser.post("/logout", data={} if token is None else {"csrf": token})
    assert reply.status_code == 403
    assert browser.get("/d/cps1988/budget", follow_redirects=False).status_code != 303


def test_leaving_ends_the_visit(browser):
    cookie = browser.cookies[COOKIE]
    browser.post("/logout", data={"csrf": browser.token})
    browser.cookies.set(COOKIE, cookie)
    assert browser.get("/", follow_redirects=False).headers["location"] == "/login"


@pytest.mark.parametrize("limit", ["IDLE", "LONGEST"])
def test_a_visit_is_over_in_time(browser, monkeypatch, limit):
    assert "csrf-token" in browser.get("/d/cps1988/budget").text
    monkeypatch.setattr(visits, limit, -1.0)
    assert browser.get("/", follow_redirects=False).headers["location"] == "/login"


@pytest.mark.slow
def test_the_oldest_of_too_many_visits_of_a_user_ends(served, visitor):
    first = visitor("sam")
    for _ in range(visits.MOST_OF_USER):
        visitor("sam")
    assert first.get("/", follow_redirects=False).headers["location"] == "/login"


def test_a_token_that_is_not_the_consoles_lets_nobody_in(folder_of_survey):
    with embedded(folder_of_survey / "cps1988.yaml", state=folder_of_survey / "state") as browser:
        browser.cookies.clear()
        for address in ("/login?token=", "/login?token=guess", "/login"):
            reply = browser.get(address)
            assert COOKIE not in browser.cookies
            assert reply.status_code == (401 if "token" in address else 200)


@pytest.mark.parametrize("where", ["/login", "/nowhere", "/static/console.css", "/d/x/ask"])
def test_every_answer_lets_only_our_own_files_run(browser, where):
    headers = browser.get(where).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] in ("no-store", "no-cache")


def test_a_request_that_is_too_long_is_refused(browser):
    form = {"content-type": "application/x-www-form-urlencoded"}
    for content in (b"x" * (3 << 20), (b"x" * (1 << 20) for _ in range(3))):
        assert browser.post("/login", content=content, headers=form).status_code == 413


def test_a_dataset_that_is_not_open_is_as_one_that_is_not_there(visitor):
    client = visitor("bob")
    told = {client.get(f"/d/{name}/budget").text.split("<main")[1] for name in ("no", "../x", "")}
    assert len(told) <= 2
    assert client.get("/d/no/budget").status_code == 404
