"""Which strategy is chosen: the one that serves best if such requests go on."""

import math

import numpy as np
import pytest

from proxy.experiment.systems import auto
from proxy.experiment.workload import ranges
from proxy.inference.strategies.simulated import AFTER, Simulated


def simulated(*paid):
    return Simulated("some", paid)


def test_later_requests_fare_as_the_later_half():
    """
    Two of 0.1, one of 0.2 and a free one; of 80 more each costs 0.1 in the mean, and what is left
    of 2 pays for 16; of the other 64 half are free.
    """
    answered, alpha = simulated(0.1, 0.1, 0.2, 0.0).lasting(2.0)
    assert AFTER == 20
    assert answered == pytest.approx(4 + 16 + 64 / 2)
    assert alpha == pytest.approx(2.0)


def test_without_a_budget_all_are_answered():
    """
    80 more, of 0.1 each.
    """
    assert simulated(0.1, 0.1, 0.2, 0.0).lasting(math.inf) == pytest.approx((84, 8.4))


def test_where_some_are_refused_only_the_free_go_on():
    """
    One of two later requests is free, and one is refused: whatever is left does not pay for such.
    """
    assert simulated(0.1, 0.1, None, 0.0).lasting(2.0) == pytest.approx((3 + 40, 0.2))


def test_nothing_lasts_of_no_requests():
    """
    There was no time for any.
    """
    assert simulated().lasting(1.0) == (0, 0)


def test_a_tree_is_chosen_though_topping_up_is_cheaper_so_far():
    """
    20 ranges of 256 cells: in the long run a tree is worth its price.
    """
    expected = ranges(256, 20, (20.0, 1000.0), 0.2, np.random.default_rng(3))
    choice = auto(256, 1.0, expected, 60.0)
    found = {each.name: each for each in choice.simulated}
    assert choice.best.name == "hierarchy"
    assert found["topup"].answered == found["hierarchy"].answered == 20
    assert found["topup"].alpha < found["hierarchy"].alpha
