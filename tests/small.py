"""A dataset of a few people, whose policy is written anew for each test, and whose state is made.

One count within 10 with confidence 90% costs 0.21 of the budget: ``ONE``.
"""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import proxy.policy as policies
from proxy.engine import Engine, init
from proxy.ledger.sqlite import SQLiteLedger
from proxy.policy import scram_verifier
from proxy.state import anchor_path, ledger_path, state_folder
from proxy.steward import open_cube

DOMAIN = """\
dataset: people
source: {engine: duckdb, path: people.csv}
max_records: 1000
outside: drop
nulls: drop
attributes:
  age: {type: integer, range: [0, 9]}
  town: {values: [a, b]}
utility: {half_width: 10, delta: 0.1}
"""
PRIVACY = "privacy: {budget: 1, unit: row}\n"
ONE = 0.21
VERIFIER = scram_verifier("secret", 1, b"salt")


class Silent:
    """A sampler without noise: what is then released is exact."""

    def draw(self, scale, count):
        return [0] * count

    def refine(self, noise, old, new):
        return list(noise)


@dataclass
class Small:
    """A folder with the data, a policy and its state."""

    folder: Path
    now: int = 0  # of the ledger's clock, microseconds

    @property
    def policy(self):
        return self.folder / "people.yaml"

    @property
    def state(self):
        return state_folder(policies.load(self.policy))

    def data(self, *counts):
        """Write (age, town, count) as people."""
        rows = [f"{age},{town},u{n // 2}" for age, town, count in counts for n in range(count)]
        (self.folder / "people.csv").write_text("\n".join(["age,town,unit", *rows]) + "\n")

    def write(self, privacy=PRIVACY, rest="", domain=DOMAIN):
        self.policy.write_text(domain + privacy + rest)

    def users(self, **users):
        """Write users.yaml: name -> what stands beside the password."""
        lines = [f'  {name}: {{password: "{VERIFIER}", {rest}}}' for name, rest in users.items()]
        (self.folder / "users.yaml").write_text("\n".join(["users:", *lines]) + "\n")

    def made(self, privacy=PRIVACY, rest="", domain=DOMAIN):
        """Write a policy, make its state, and return an engine."""
        self.write(privacy, rest, domain)
        init(self.policy)
        return self.engine()

    def engine(self):
        """Return an engine without noise."""
        return Engine.open(self.policy, sampler=Silent())

    def clocked(self):
        """Return an engine whose ledger has the time ``now``."""
        loaded = policies.load(self.policy)
        folder = state_folder(loaded)
        ledger = SQLiteLedger.open(
            ledger_path(folder),
            dataset=loaded.dataset,
            anchor=anchor_path(folder),
            clock=lambda: self.now,
        )
        return Engine(
            loaded,
            ledger,
            lambda snapshot: open_cube(loaded, folder, ledger.id, ledger.snapshot()),
            sampler=Silent(),
            clock=lambda zone: datetime.fromtimestamp(self.now / 10**6, zone),
        )


def count(engine, where="true", within=10, user=None):
    """Ask for a count; return its result."""
    text = f"SELECT COUNT(*) FROM people WHERE {where} WITH UTILITY ({within}, 0.1)"
    return engine.session(user).execute(text)
