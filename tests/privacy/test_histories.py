"""Whatever becomes of a policy, its files and its state, nobody loses more than was promised."""

import os
import tempfile
from pathlib import Path

import pytest

from tests.privacy import edits
from tests.privacy.histories import Doubles, live

SHM = Path("/dev/shm")


@pytest.fixture
def lives(tmp_path):
    """A way to live lives, one after the other: a seed, an empty folder each, in memory."""
    base = SHM if SHM.is_dir() and os.access(SHM, os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(dir=base) as folder, Doubles() as doubles:
        yield lambda seed, **how: live(Path(folder) / str(seed), seed, doubles, **how)


def test_every_key_has_an_edit():
    """
    A key that is added to the table needs one, so that the search knows it.
    """
    assert sorted(edits.EDITS) == sorted(edits.paths())
    assert sorted(edits.USER_EDITS) == sorted(edits.user_paths())


@pytest.mark.parametrize("part", range(8))
def test_two_hundred_lives(part, lives):
    """
    Random edits, acts, accidents and statements: no record, unit or user loses more than the
    strictest promise since a weaker one was agreed to, and nothing fails but by refusing.
    """
    for seed in range(25 * part, 25 * (part + 1)):
        lives(seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(40))
def test_two_thousand_lives(part, lives):
    """
    The same over 2,000 lives.
    """
    for seed in range(1_000 + 50 * part, 1_000 + 50 * (part + 1)):
        lives(seed)


@pytest.mark.audit
@pytest.mark.parametrize("part", range(100))
def test_fifty_thousand_lives(part, lives):
    """
    The same over 50,000 lives.
    """
    for seed in range(10_000 + 500 * part, 10_000 + 500 * (part + 1)):
        lives(seed)


def test_a_life_is_alike_again(lives):
    """
    What is found can be found again: a life depends on its seed alone.
    """
    one, two = (lives(3).counts for _ in range(2))
    assert one == two
