"""A crowd on one ledger, killed and starved: no budget is passed, nothing is lost or uncharged."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from proxy.engine import Engine, init
from proxy.inference.accounting import UNIT
from tests.privacy.paid import paid, told
from tests.privacy.worlds import DOMAIN, people
from tests.searches import share

ROOT = Path(__file__).parents[2]
BUDGET = 40
PRIVACY = f"""
privacy: {{budget: {BUDGET}, unit: row, floor: 0.05}}
analysts: {{ann: {{budget: 12}}}}
"""


@pytest.fixture
def state(tmp_path):
    """A policy and its new state."""
    (tmp_path / "people.yaml").write_text(DOMAIN + PRIVACY)
    rows = people(random.Random(1), 60)
    lines = [",".join(map(str, row)) for row in rows]
    (tmp_path / "people.csv").write_text("\n".join(["age,sex,town,pay,person", *lines, ""]))
    init(tmp_path / "people.yaml", tmp_path / "state")
    (tmp_path / "told").mkdir()
    return tmp_path


def crowd(folder, processes, threads, statements, seed, limit=0):
    """Start a crowd; return the process that waits for it, and the ids of its members."""
    paths = [folder / "people.yaml", folder / "state", folder / "told"]
    numbers = [processes, threads, statements, seed, limit]
    parent = subprocess.Popen(
        [sys.executable, "-m", "tests.privacy.crowd", *map(str, [*paths, *numbers])],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    return parent, [int(child) for child in parent.stdout.readline().split()]


def check(folder, killed=False):
    """Compare the ledger with what was told and with the budgets; return what was told.

    The cost of each cell is worked out anew from the rows of the ledger, one by one.
    """
    engine = Engine.open(folder / "people.yaml", folder / "state")
    ledger, known = engine.ledger, told(folder)
    charged = paid(ledger, known, BUDGET, 12)
    if not killed:
        assert set(charged) <= set(known)
        failed = {text for text, (_, error) in known.items() if error == "OperationalError"}
        told_of = sum(cost for cost, _ in known.values() if cost) * UNIT
        assert told_of == sum(cost for text, cost in charged.items() if text not in failed)
    assert ledger.verify() == []
    engine.close()
    return known


@pytest.mark.parametrize(
    "processes, threads, statements",
    [
        (2, 4, 12),
        pytest.param(8, 8, 12, marks=pytest.mark.slow),
        pytest.param(8, 8, 200, marks=pytest.mark.audit),
    ],
)
def test_a_crowd_spends_one_budget(processes, threads, statements, state):
    """
    The dearest cell stays within the budget, and the ledger's sum is what the clients were told.
    """
    parent, _ = crowd(state, processes, threads, statements, 1)
    parent.communicate()
    assert parent.returncode == 0
    known = check(state)
    assert len(known) == processes * threads * statements
    errors = {error for _, error in known.values()}
    assert errors <= {None, "InsufficientBudgetError"}
    assert sum(1 for cost, _ in known.values() if cost) > processes
    assert sum(1 for cost, _ in known.values() if cost == 0) > processes


@pytest.mark.parametrize(
    "kills, processes",
    [
        (2, 2),
        pytest.param(10, 4, marks=pytest.mark.slow),
        pytest.param(50, 8, marks=pytest.mark.audit),
    ],
)
@pytest.mark.parametrize("how", share(1, [signal.SIGKILL, signal.SIGTERM]))
def test_killed_at_random_nothing_is_lost(kills, processes, how, state):
    """
    A process of the crowd is killed at a random moment, again and again; the others go on.

    What any client was told is in the ledger and charged; what is in the ledger and told to
    nobody was charged all the same; the budget holds and the chain verifies.
    """
    rng, done = random.Random(how), 0
    while done < kills:
        parent, children = crowd(state, processes, 4, 100, done)
        files = [state / "told" / f"n{done}_{number}.jsonl" for number in range(processes)]
        while not all(file.exists() and file.stat().st_size for file in files):
            time.sleep(0.01)  # until every one of them is at work
        victims = rng.sample(children, max(processes - 1, 1))
        for child in [*victims, *(set(children) - set(victims))]:
            time.sleep(rng.uniform(0, 0.4))
            with suppress(ProcessLookupError):  # it was done already
                os.kill(child, how if child in victims else signal.SIGKILL)
        done += len(victims)
        parent.communicate()
        check(state, killed=True)
    assert sum(1 for cost, _ in told(state).values() if cost) >= kills / 2


@pytest.mark.parametrize("limit", [8, pytest.param(90, marks=pytest.mark.slow)])
def test_a_full_disk_charges_nothing_that_it_does_not_keep(limit, state):
    """
    No file may grow past what it is and so many KB: statements fail, as a whole, with words; what
    succeeded is kept, and with room again the crowd goes on.
    """
    files = [p for p in (state / "state").rglob("*") if p.is_file()]
    largest = max(p.stat().st_size for p in files if "ledger" in p.name)
    parent, _ = crowd(state, 2, 2, 30, 1, limit=largest + limit * 1024)
    parent.communicate()
    assert parent.returncode == 0
    known = check(state)
    assert any(error == "OperationalError" for _, error in known.values())
    parent, _ = crowd(state, 1, 2, 10, 2)
    parent.communicate()
    again = check(state)
    fresh = [error for text, (_, error) in again.items() if text not in known]
    assert len(fresh) == 20
    assert set(fresh) <= {None, "InsufficientBudgetError"}
