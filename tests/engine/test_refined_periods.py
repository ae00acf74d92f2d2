"""Refinements beside closed periods, in a ledger of a file and of a PostgreSQL."""

import threading
from contextlib import closing

from proxy.engine import Engine
from proxy.steward import apply, rebuild
from tests.engine.pieces import Witness, ask
from tests.test_partitions import APRIL, DAY, orders, quarter  # noqa: F401

REGIONS = "SELECT region, COUNT(*) FROM orders WHERE day < '2026-02-01' GROUP BY region"


def piecewise(place, budget):
    """Let a policy measure pieces."""
    place.write(budget=budget)
    text = place.policy.read_text()
    place.policy.write_text(text.replace("unit: row}", "unit: row, strategy: pieces}"))
    apply(place.policy, accept_weaker=True)


def test_what_was_answered_of_closed_periods_is_inferred_from_and_not_refined(quarter):  # noqa: F811
    """
    After a new snapshot its answers stay, as they are; a better one is drawn anew.
    """
    piecewise(quarter, "40")
    with closing(quarter.engine()) as engine:
        assert ask(engine, f"{REGIONS} WITH UTILITY (200, 0.1)").cost
        before = engine.ledger.measurements()
    quarter.today = APRIL + 9 * DAY
    quarter.put(APRIL, ("a", 3))
    rebuild(quarter.policy)
    with closing(Engine.open(quarter.policy, sampler=(witness := Witness()))) as engine:
        assert ask(engine, f"{REGIONS} WITH UTILITY (200, 0.1)").cost == 0
        for half in (100, 50):
            assert ask(engine, f"{REGIONS} WITH UTILITY ({half}, 0.1)").cost
        known = {row.id: row for row in engine.ledger.measurements()}
        for row in before:
            assert (known[row.id].scale, known[row.id].answers) == (row.scale, row.answers)
        assert [old for old, _ in witness.refined] == witness.drawn
        assert engine.ledger.verify() == []


def test_proxies_that_refine_at_once_refine_one_after_the_other(quarter):  # noqa: F811
    """
    Two engines with ledgers of their own on one place: no noise is refined twice.
    """
    piecewise(quarter, "40")
    text, witness, faults = "SELECT region, COUNT(*) FROM orders GROUP BY region", Witness(), []
    engines = [Engine.open(quarter.policy, sampler=witness) for _ in range(2)]
    ask(engines[0], f"{text} WITH UTILITY (20, 0.1)")

    def work(number):
        try:
            for half in range(18 - number, 2, -2):
                ask(engines[number], f"{text} WITH UTILITY ({half}, 0.1)")
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    (last,) = witness.drawn
    for old, new in witness.refined:
        assert old == last
        last = new
    (row,) = engines[0].ledger.measurements()
    assert row.scale == last[0]
    told = [ask(engine, f"{text} WITH UTILITY (3, 0.1)") for engine in engines]
    assert told[0].rows == told[1].rows
    assert [each.cost for each in told] == [0, 0]
    for engine in engines:
        assert engine.ledger.verify() == []
        engine.close()
