"""README.md tells the truth: its commands are run in order, and their outputs are those it shows.

The noise moves an estimate and its interval, `n [low, high]`, and the clock moves times; these are
compared by their pattern, everything else word by word.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
NUMBER = r"-?[\d,]+(?:\.\d+)?"
VARIES = [
    (rf"{NUMBER}\s+\[{NUMBER}, {NUMBER}\]", "# [#, #]"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d", "<time>"),
    (r'"(estimate|low|high)": -?[\d.]+', r'"\1": #'),
    (r'("rows": \[\s*\[\s*)-?\d+', r"\1#"),
]


def blocks(*languages):
    """Each fenced block of the languages, as (language, text), in order."""
    found = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [(language, text) for language, text in found if language in languages]


def commands(text):
    """The commands of a console block, each with the output that is shown below it."""
    parts = re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def pattern(output):
    """What must be equal: the words of an output, without what the noise and the clock move."""
    for varying, fixed in VARIES:
        output = re.sub(varying, fixed, output)
    return [line.split() for line in output.splitlines() if line.strip()]


def run_tour(folder, length=None):
    """Run the commands of the tour in one shell, or the first ones; return (command, output shown,
    real output) of each.
    """
    for name in ("policies", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns(".*"))
    (folder / "bin").mkdir()
    command = folder / "bin" / "privacy-proxy"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m proxy "$@"\n')
    command.chmod(0o755)
    steps = []
    for number, (language, text) in enumerate(blocks("console", "python", "text")):
        if language == "console":
            steps += commands(text)
        elif language == "python":
            (folder / f"{number}.py").write_text(text)
            steps.append((f'"{sys.executable}" {number}.py', ""))
        else:
            steps[-1] = (steps[-1][0], text)  # the output of the Python above
    steps = steps[:length]
    script = "".join(f"{step}\nstatus=$?; printf '\\0'; (exit $status)\n" for step, _ in steps)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PRIVACY_PROXY")}
    environment |= {"PATH": f"{folder}/bin:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    outputs = done.stdout.split("\0")[:-1]
    return [(*step, output) for step, output in zip(steps, outputs, strict=True)]


@pytest.fixture(scope="module")
def tour(tmp_path_factory):
    """The tour, run once."""
    return run_tour(tmp_path_factory.mktemp("tour"))


def as_shown(steps):
    """Check that each command has the output that stands below it."""
    for command, shown, real in steps:
        assert pattern(real) == pattern(shown), f"$ {command}\n{real}"


def test_the_tour_begins_as_a_reader_will_see(tmp_path):
    """
    A policy is drafted, a state is made, a number and groups are measured, a number is inferred.
    """
    as_shown(run_tour(tmp_path, 5))


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
    assert second.endswith(".venv/bin/python -m pytest -q -n auto -m 'not slow'\n")


def test_every_link_leads_to_a_file():
    """
    Relative links, in all the READMEs.
    """
    for readme in ("README.md", "proxy/README.md", "examples/README.md", "CHANGELOG.md"):
        path = ROOT / readme
        for link in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
            assert link.startswith("https://") or (path.parent / link).exists(), f"{readme}: {link}"
