"""README.md tells the truth: its commands run in order, and have the outputs that it shows."""

import re
from pathlib import Path

import pytest

from tests import documents
from tests.documents import NUMBER, as_shown

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(*languages):
    """The README's fenced blocks of some languages."""
    return documents.blocks(README, *languages)


@pytest.fixture(scope="module")
def tour(tmp_path_factory):
    """The tour, run once."""
    return documents.run(tmp_path_factory.mktemp("tour"), README)


def test_the_tour_begins_as_a_reader_will_see(tmp_path):
    """
    A policy is drafted, a state is made, a number and groups are measured, a number is inferred.
    """
    as_shown(documents.run(tmp_path, README, 5))


@pytest.mark.slow
def test_every_output_of_the_tour_is_what_a_reader_will_see(tour):
    """
    Commands run one after the other on one state, as the README tells it.
    """
    as_shown(tour)
    assert len(tour) >= 12


@pytest.mark.slow
def test_the_tour_shows_each_kind_of_answer(tour):
    """
    Measured, inferred and free, and refused with the amounts.
    """
    told = "".join(shown for _, shown, _ in tour)
    for word in ("measured", "inferred", "free", "requested", "spent", "left"):
        assert word in told


@pytest.mark.slow
def test_an_estimate_lies_within_its_interval_and_near_the_one_that_is_shown(tour):
    """
    What varies is not arbitrary: both runs saw the same people, so the intervals are near.
    """
    interval = rf"({NUMBER})\s+\[({NUMBER}), ({NUMBER})\]"
    compared = 0
    for command, shown, real in tour:
        found = [
            [[float(x.replace(",", "")) for x in match] for match in re.findall(interval, text)]
            for text in (shown, real)
        ]
        for (_, low, high), (estimate, a, b) in zip(*found, strict=True):
            assert a <= estimate <= b, command
            assert a < high + 10 * (high - low), command
            assert b > low - 10 * (high - low), command
            compared += 1
    assert compared >= 8


def test_the_policy_that_is_shown_is_part_of_the_policy_that_is_used():
    """
    Each line of the excerpt stands in the file, in this order.
    """
    ((_, excerpt),) = blocks("yaml")
    lines = iter((ROOT / "policies/cps1988.yaml").read_text().splitlines())
    for line in excerpt.splitlines():
        assert line in lines, line


def test_the_two_commands_of_a_newcomer_begin_alike_and_end_with_demo_and_tests():
    """
    Both are one line that can be pasted into a bare machine; .ci/run runs them as they stand.
    """
    (_, first), (_, second) = blocks("sh")
    assert first.count("\n") == second.count("\n") == 1
    beginning, _, _ = first.partition("-e .")
    assert "apt-get install -y python3-venv" in beginning
    assert second.startswith(f"{beginning}-e '.[test]'")
    assert first.endswith(".venv/bin/privacy-proxy demo\n")
    assert second.endswith(".venv/bin/python -m pytest -q -n auto --dist loadfile -m 'not slow'\n")


@pytest.mark.slow
def test_every_link_leads_to_a_file():
    """
    Relative links, in all the READMEs.
    """
    documents = [
        p
        for p in ROOT.rglob("*.md")
        if not any(part[0] == "." or part == "node_modules" for part in p.relative_to(ROOT).parts)
    ]
    assert len(documents) >= 10
    for path in documents:
        readme = path.relative_to(ROOT)
        for link in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
            assert link.startswith("https://") or (path.parent / link).exists(), f"{readme}: {link}"


def test_the_readme_is_short():
    """
    What it leads to is in documents of their own.
    """
    assert README.count("\n") < 250
