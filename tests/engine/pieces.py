"""People whose numbers are measured in pieces, and what is seen of the ledger and the account."""

import random
import shutil

import numpy as np
import pytest

from proxy.accountant import Accountant
from proxy.engine import Engine, init
from proxy.inference.accounting import Table, charge
from proxy.inference.noise.mechanism import GeometricSampler

DOMAIN = """\
dataset: people
source: {engine: duckdb, path: people.csv}
max_records: 1000
outside: drop
nulls: drop
attributes:
  age: {type: integer, range: [0, 19]}
  town: {values: [a, b, c], nulls: group}
  sex: {values: [f, m]}
measures:
  pay: {clip: [-5, 10], quantum: 0.5, nulls: group, utility: {half_width: 300, delta: 0.1}}
utility: {half_width: 10, delta: 0.1}
"""
PRIVACY = """\
privacy:
  budget: BUDGET
  unit: row
  strategy: STRATEGY
  cells: [{where: "age < 2", budget: 7}]
MORE
analysts: {ann: {budget: 2}, bi: {spend: off}}
"""
SHAPE = (20, 4, 2)
STRATEGIES = ("pieces", "hierarchy")


class Place:
    """A folder with the data, and a policy that may be written anew."""

    def __init__(self, folder, strategy, budget=30, more=""):
        self.folder, self.policy = folder, folder / "people.yaml"
        self.write(strategy, budget, more)

    def write(self, strategy, budget=30, more=""):
        text = PRIVACY.replace("STRATEGY", strategy).replace("BUDGET", str(budget))
        self.policy.write_text(DOMAIN + text.replace("MORE\n", more and f"  {more}\n"))

    def engine(self, sampler=None):
        return Engine.open(self.policy, sampler=sampler)


@pytest.fixture(scope="session")
def piecemeal(tmp_path_factory):
    """A function that makes a place of a state that was made once."""
    made = {}

    def place(*how):
        if how not in made:
            folder = made[how] = tmp_path_factory.mktemp("master")
            rng = random.Random(1)
            ages, pays = ["1", "3", "7", "7", "7", "12", "19"], ["", "-5", "2.5", "10", "3"]
            columns = ages, ["a", "b", "c", ""], ["f", "m"], pays
            lines = [",".join(map(rng.choice, columns)) for _ in range(600)]
            (folder / "people.csv").write_text("\n".join(["age,town,sex,pay", *lines, ""]))
            Place(folder, *how)
            init(folder / "people.yaml")
        folder = tmp_path_factory.mktemp("place") / "copy"
        shutil.copytree(made[how], folder)
        return Place(folder, *how)

    return place


def ask(engine, text, user=""):
    return engine.session(user).execute(text)


def paid(ledger):
    """What each cell has paid for the current rows of the shared history, by the ledger alone."""
    total = np.zeros(SHAPE, dtype=np.int64)
    for row in ledger.measurements():
        total += (row.history == "shared") * charge(row.family, row.scale).dense(
            range(3), row.family.query.space
        )
    return total


def accountant(engine, user=""):
    found = engine.planner._accountant(engine.privileges(user))
    found.catch_up(engine.ledger)
    return found


def anew(accountant, ledger):
    """An accountant that reads the ledger for the first time."""
    made = Accountant(accountant.name, accountant.policy, accountant.limits, accountant.digest)
    made.catch_up(ledger)
    return made


def state(accountant):
    """What an accountant holds: its rows, and what each cell has paid."""
    account, history = accountant.account, accountant.history
    total = account.base + np.zeros(SHAPE, dtype=np.int64)
    if account._table is not None:
        total = total + Table(account._axes, account._table).over(range(3))
    blocks = [(b.start, b.scale, b.refinable, b.family.key) for b in history.blocks]
    assert history.refined == []
    return (
        blocks,
        list(history.answers),
        history._rates.of(np.arange(len(history))).tolist(),
        total.tolist(),
    )


def widths(result):
    return [a.high - a.low for row in result.answers for a in row if a is not None]


class Witness:
    """The real noise, and which noise was refined into which."""

    def __init__(self):
        self._real, self.drawn, self.refined = GeometricSampler(), [], []

    def draw(self, scale, count):
        self.drawn.append((scale, tuple(self._real.draw(scale, count))))
        return list(self.drawn[-1][1])

    def refine(self, noise, old, new):
        made = self._real.refine(noise, old, new)
        self.refined.append(((old, tuple(noise)), (new, tuple(made))))
        return made
