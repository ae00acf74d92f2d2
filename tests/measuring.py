"""A process that measures, and prints the id and the answer of each after its commit."""

import itertools
from pathlib import Path

from tests.test_ledger import measure, reopen


def main(folder):
    """Measure until somebody ends it."""
    ledger = reopen(Path(folder))
    for i in itertools.count():
        ledger.note("inferred", "ann", str(i))
        id = measure(ledger, answers=(i,), cost=3)
        print(id, i, flush=True)  # noqa: T201
