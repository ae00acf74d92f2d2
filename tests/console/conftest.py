"""A console over an embedded engine for each test, and one over a server for all."""

import contextlib
import re

import httpx2
import pytest
from starlette.testclient import TestClient

from proxy.console.app import create_app
from proxy.console.embedded import Embedded
from proxy.console.service import Console
from tests.console.chromium import chromium, opened
from tests.server.serving import password, prepare, running

ORIGIN = {"origin": "http://testserver"}


class Browser(TestClient):
    """A client that behaves as a browser does on our own pages: it says so, and brings tokens."""

    def __init__(self, app):
        super().__init__(app, follow_redirects=True, headers=ORIGIN)

    def page(self, address, status=200, **more):
        """Return the text of a page."""
        response = self.get(address, **more)
        assert response.status_code == status, response.text
        return response.text

    @property
    def token(self):
        """The token that the pages of this visit hold."""
        text = self.get("/d/cps1988/budget").text
        return re.search('name="csrf-token" content="([^"]+)"', text)[1]

    def submit(self, address, status=200, fragment=True, **fields):
        """Post a form as a page of ours does."""
        headers = {"x-csrf-token": self.token} | ({"hx-request": "true"} if fragment else {})
        response = self.post(address, data=fields, headers=headers)
        assert response.status_code == status, response.text
        return response.text


@contextlib.contextmanager
def embedded(*policies, state):
    """A browser that has entered a console for one's own machine."""
    backend = Embedded(policies, state)
    with contextlib.closing(backend), Browser(create_app(backend)) as browser:
        browser.get(f"/login?token={backend.token}")
        yield browser


@pytest.fixture
def folder_of_survey(tmp_path):
    """A folder with the survey's policy, its state, and users."""
    prepare(tmp_path / "folder")
    return tmp_path / "folder"


@pytest.fixture
def browser(folder_of_survey):
    """A browser in a console for one's own machine, over a fresh state of the survey."""
    policy = folder_of_survey / "cps1988.yaml"
    with embedded(policy, state=folder_of_survey / "state") as entered:
        yield entered


@pytest.fixture(scope="package")  # its threads are in the way of tests of other packages
def served(tmp_path_factory):
    """A server with a console, over the survey; alice and bob are analysts, sam a steward."""
    folder = tmp_path_factory.mktemp("console") / "folder"
    prepare(folder)
    console = Console("127.0.0.1", 0)
    with running(folder, console=console) as server:
        server.console = console
        yield server


def stranger(served):
    """A client of the console of a server that has not logged in."""
    url = served.console.url.rstrip("/")
    return httpx2.Client(
        base_url=url, headers={"origin": url}, follow_redirects=True, timeout=60, trust_env=False
    )


@pytest.fixture
def visitor(served):
    """A function that gives a browser in which a user of the server has logged in."""
    with contextlib.ExitStack() as stack:

        def enter(user):
            client = stack.enter_context(stranger(served))
            reply = client.post("/login", data={"user": user, "password": password(user)})
            assert "password" not in reply.text
            return client

        yield enter


@pytest.fixture(scope="package")
def chrome():
    """Chromium, one for all tests."""
    with chromium() as browser:
        yield browser


@pytest.fixture
def enter(served, chrome):
    """A function that gives a page of Chromium in which a user of the server has logged in."""
    with contextlib.ExitStack() as stack:

        def log_in(user, **how):
            page = stack.enter_context(opened(chrome, **how))
            page.goto(served.console.url)
            page.get_by_label("User").fill(user)
            page.get_by_label("Password").fill(password(user))
            page.get_by_role("button", name="Log in").click()
            page.wait_for_url("**/d/**")
            return page

        yield log_in
