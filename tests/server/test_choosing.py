"""A server chooses again, in a process of its own, where a log has grown."""

import asyncio
import os
from contextlib import closing

import pytest

from proxy.server import choosing
from proxy.server.choosing import Choosing
from tests.small import Small


@pytest.fixture
def small(tmp_path, monkeypatch):
    small = Small(tmp_path)
    small.data(*((age, town, 20) for age in range(10) for town in "ab"))
    monkeypatch.setattr(choosing, "SECONDS", 5)
    return small


def chosen(engine):
    return [line for line in engine.ledger.audit() if line.kind == "strategy"]


def test_a_log_that_has_grown_is_chosen_by_and_only_once(small):
    """
    The choice is a line of the ledger, which the command has written; without new lines nothing is
    chosen again, and this process keeps its own niceness.
    """
    small.made("privacy: {budget: 9, unit: row, strategy: auto}\n").close()
    with closing(small.engine()) as engine:
        looks = Choosing(lambda: [engine])
        asyncio.run(looks.look())
        assert chosen(engine) == []
        session = engine.session()
        for half in range(40, 40 - choosing.GROWN, -1):
            session.execute(f"SELECT COUNT(*) FROM people WHERE age < 5 WITH UTILITY ({half}, 0.1)")
        for _ in range(2):
            asyncio.run(looks.look())
            assert len(chosen(engine)) == 1
        assert os.nice(0) < choosing.LOWEST


def test_where_the_policy_names_a_strategy_nothing_is_chosen(small):
    """
    However long its log is.
    """
    small.made("privacy: {budget: 9, unit: row, strategy: pieces}\n").close()
    with closing(small.engine()) as engine:
        looks = Choosing(lambda: [engine])
        looks._looked[engine.ledger.id] = -choosing.GROWN
        asyncio.run(looks.look())
        assert chosen(engine) == []
