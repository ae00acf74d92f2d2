"""What clients were told against what the ledger charged, and its budgets cell by cell."""

import itertools
import json
from collections import Counter
from fractions import Fraction

from proxy.inference.accounting import UNIT
from tests.privacy.replay import reach


def told(folder):
    """What every client was told: statement -> (cost or None, error or None)."""
    found = {}
    for path in (folder / "told").glob("*.jsonl"):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                text, *rest = json.loads(line)
                assert text not in found
                found[text] = (rest[0], rest[1] if len(rest) > 1 else None)
    return found


def paid(ledger, known, budget, cap):
    """Check a ledger over the domain of ``worlds``; return what each statement was charged.

    Whatever clients know the cost of was paid as they know it, what they know to be refused was
    not; Ann is under her cap, alpha, and no cell over the budget, worked out record by record.
    """
    found = Counter()
    for line in ledger.audit():
        if line.kind == "measured":
            found[line.statement] += line.cost
    for text, (cost, error) in known.items():
        if error is None:
            assert found[text] == cost * UNIT, text
        elif error == "InsufficientBudgetError":
            assert found[text] == 0, text
    assert ledger.spent_by() == sum(found.values())
    assert ledger.spent_by("ann") <= cap * UNIT
    dearest = 0
    rows = [(m.family, UNIT / Fraction(m.scale)) for m in ledger.measurements()]
    for cell in itertools.product(range(3), range(2), range(2)):
        dearest = max(dearest, sum(-(-reach(f, cell) * rate // 1) for f, rate in rows))
    assert dearest == ledger.spent().get("shared", 0) <= budget * UNIT
    return found
