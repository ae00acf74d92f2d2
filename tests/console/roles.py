"""A console for users with roles, over an engine in this process, and a dataset of evil names."""

import asyncio
import contextlib
import re
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from starlette.testclient import TestClient

from proxy.console.app import create_app
from proxy.console.embedded import Opened
from proxy.console.service import Console
from proxy.engine import Engine, init
from proxy.errors import InsufficientPrivilegeError
from proxy.inference.family import Family
from proxy.inference.query import Factor, LinearQuery
from proxy.ledger import Measurement
from proxy.policy import scram_verifier
from proxy.sql.compile.release_point import space
from proxy.steward import ledger_in_force
from tests.loops import loop_in_thread
from tests.small import Silent

PASSWORD = "correct horse"
ROLES = {
    "ann": "[analyst]",
    "bob": "[analyst]",
    "sam": "[steward]",
    "aud": "[auditor]",
    "all": "[analyst, steward, auditor]",
}
XSS = "<img src=x onerror=alert(1)>"
POLICY = """\
dataset: people
description: "People, {xss}"
source: {{engine: duckdb, path: people.csv}}
max_records: 1000
outside: drop
nulls: drop
attributes:
  age: {{type: integer, range: [0, 9]}}
  town: {{values: [a, b, "{xss}"]}}
  "{xss}": {{type: integer, range: [0, 4999], column: age}}
measures:
  pay: {{clip: [0, 100], quantum: 1, column: age, utility: {{half_width: 900, delta: 0.1}}}}
privacy:
  budget: 1
  unit: row
  cells: [{{where: "age = 9", budget: 0.5}}]
  guards: [{{claim: COUNT(*) BETWEEN 0 AND 5, for_each: [age], confidence: 0.99}}]
analysts: {{bob: {{budget: 0.5}}}}
utility: {{half_width: 30, delta: 0.1}}
"""


@dataclass
class Roles:
    """A backend in which each user of the users file has the same password."""

    engine: Engine
    folder: Path
    passwords = True
    refuse: bool = False

    async def login(self, credentials):
        known = credentials.user in ROLES
        if self.refuse or not known or credentials.password != PASSWORD:
            raise InsufficientPrivilegeError("password authentication failed")

    def valid(self, credentials):
        return True

    def datasets(self, user):
        return {"people": Opened(self.engine.policy, self.folder / "state")}

    def privileges(self, user, dataset):
        return self.engine.privileges(user)

    def address(self, user, dataset, host):
        return f"postgresql://{user}@{host}/{dataset}"

    async def connect(self, credentials, dataset):
        return self.engine.session(credentials.user)

    async def leave(self, credentials):
        pass

    async def renew(self, dataset):
        self.engine.close()
        self.engine = Engine.open(self.folder / "people.yaml", self.folder / "state")

    def ask(self, user, text):
        """Run a statement of a user's."""
        return self.engine.session(user).execute(text)


class Browser(TestClient):
    """A client that brings what pages of ours bring."""

    def __init__(self, app, user):
        super().__init__(app, follow_redirects=True, headers={"origin": "http://testserver"})
        self.user = user

    def token(self, place="budget"):
        """The token of this visit."""
        text = self.get(f"/d/people/{place}").text
        return re.search('name="csrf-token" content="([^"]+)"', text)[1]

    def part(self, address, **fields):
        """Post a form as htmx does; return what comes."""
        headers = {"x-csrf-token": self.token(), "hx-request": "true"}
        return self.post(f"/d/people/{address}", data=fields, headers=headers).text


@cache
def _prepared():
    """Return a folder of which copies are taken, so that its state is made once."""
    kept = tempfile.TemporaryDirectory(prefix="prepared-")
    folder = Path(kept.name)
    rows = [f"{n % 10},{'ab'[n % 2]}" for n in range(60)]
    (folder / "people.csv").write_text("\n".join(["age,town", *rows]) + "\n")
    (folder / "people.yaml").write_text(POLICY.format(xss=XSS))
    verifier = scram_verifier(PASSWORD, 1, b"salt")
    users = [f'  {n}: {{password: "{verifier}", roles: {roles}}}' for n, roles in ROLES.items()]
    (folder / "users.yaml").write_text("\n".join(["users:", *users]) + "\n")
    init(folder / "people.yaml", folder / "state")
    return kept


def made(folder):
    """Make a dataset, its users and its state in a folder; return a backend over it.

    ann and bob have asked something.
    """
    shutil.copytree(_prepared().name, folder, dirs_exist_ok=True)
    engine = Engine.open(folder / "people.yaml", folder / "state", sampler=Silent())
    backend = Roles(engine, folder)
    backend.ask("ann", "SELECT COUNT(*) FROM people WHERE age < 5")
    backend.ask("bob", f"SELECT town, COUNT(*) FROM people GROUP BY town -- {XSS}")
    return backend


@contextlib.contextmanager
def served(backend):
    """The address of a console over a backend, for browsers."""
    console = Console("127.0.0.1", 0)
    with loop_in_thread() as loop:
        asyncio.run_coroutine_threadsafe(console.start(backend), loop).result(60)
        try:
            yield console.url
        finally:
            asyncio.run_coroutine_threadsafe(console.stop(), loop).result(60)


@contextlib.contextmanager
def entered(backend, user):
    """A browser in which a user has logged in."""
    with Browser(create_app(backend), user) as browser:
        browser.post("/login", data={"user": user, "password": PASSWORD})
        yield browser


def fill(backend, lines, user="ann"):
    """Put statements into the ledger that cost next to nothing."""
    policy = backend.engine.policy
    query = LinearQuery.count(space(policy.domain), Factor((0,), np.eye(10, dtype=np.int64)[0]))
    family = Family(query)
    with ledger_in_force(policy, backend.folder / "state") as (ledger, _):
        for start in range(0, lines, 500):
            with ledger.transaction() as tx:
                for n in range(start, min(start + 500, lines)):
                    tx.append(Measurement(family, 1e6, (0,)))
                    text = f"SELECT COUNT(*) FROM people WHERE age = 0 -- number {n} {XSS}"
                    tx.audit("measured", user, text, 2**20 + 1)
