"""Killed at any point, the proxy loses nothing that it let out, and lets out nothing uncharged."""

import json
import random
import signal
import subprocess
import sys
import time

import pytest

from proxy.engine import Engine

ASK = """
import json, random, sys
from proxy.engine import Engine
from proxy.errors import InsufficientBudgetError
engine = Engine.open(sys.argv[1], sys.argv[2])
session, rng = engine.session(), random.Random(int(sys.argv[3]))
print("ready", flush=True)
while True:
    low = rng.randint(0, 18)
    text = (f"SELECT COUNT(*) FROM cps1988 WHERE education BETWEEN {low} AND {low + low % 5}"
            f" AND region <= '{rng.choice(['midwest', 'northeast', 'south', 'west'])}'"
            f" WITH UTILITY ({rng.randint(40, 400)}, 0.05)")
    try:
        result = session.execute(text)
        print(json.dumps([text, result.cost, result.answers[0][0].estimate]), flush=True)
    except InsufficientBudgetError as error:
        print(json.dumps([text, None, error.requested]), flush=True)
"""


@pytest.mark.slow
def test_kill_at_any_point_of_five_hundred_queries(made):
    """
    After each ``kill -9``: whatever a client saw is charged and in the ledger, the chain of the
    ledger verifies, and no cell is over its budget.
    """
    policy, state = made("cps1988", ("budget: 1.0", "budget: 30"))
    rng, seen, kills = random.Random(7), [], 0
    while len(seen) < 500:
        process = subprocess.Popen(
            [sys.executable, "-c", ASK, str(policy), str(state), str(kills)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0.05, 3))
        process.send_signal(signal.SIGKILL)
        seen += [json.loads(line) for line in process.stdout.read().splitlines() if line[-1] == "]"]
        process.stdout.close()
        process.wait()
        kills += 1
        engine = Engine.open(policy, state)
        paid = {line.statement: line.cost for line in engine.history()}
        for text, cost, _ in seen:
            if cost:
                assert paid[text] == cost
        assert engine.ledger.verify() == []
        (rule,) = engine.budget().rules
        assert rule.spent <= rule.budget
        assert rule.spent <= sum(paid.values())
        engine.close()
    assert kills >= 5
    assert sum(1 for _, cost, _ in seen if cost) > 100
