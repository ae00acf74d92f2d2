"""The programs under ``examples/`` run, and print what they say they print."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.searches import share

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_a_dashboard_pays_for_what_is_new_alone():
    """
    Two simulated days of 30 charts: a refresh is free, which the program asserts itself, and
    inference costs less than a cache of texts, which costs less than paying every refresh; so does
    what is measured for many texts.
    """
    program = [sys.executable, "examples/benchmarks/dashboard.py", "--days", "2", "--every", "720"]
    done = subprocess.run(
        program, cwd=ROOT, env={"PYTHONPATH": "."}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    table = re.findall(r"^(\w[\w ,]*?)  +([\d,.]+)", done.stdout, re.M)
    kinds = re.compile("pay|auto")
    alpha = {name: float(value.replace(",", "")) for name, value in table if kinds.search(name)}
    topup, _, declared, learned, once, always = alpha.values()
    assert topup < once < always / 2, done.stdout
    assert max(declared, learned) < once, (
        done.stdout
    )  # in two days; later days cost next to nothing


@pytest.mark.slow
def test_the_table_of_speed_has_a_figure_for_each_line():
    """
    What large GROUP BYs cost, and what follows from them: measured where it must be, inferred where
    it can be, which the program asserts itself.
    """
    program = [sys.executable, "examples/benchmarks/speed.py", "groups"]
    done = subprocess.run(
        program, cwd=ROOT, env={"PYTHONPATH": "."}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^\w.* [\d.]+ ms +<= \d+ ms", done.stdout, re.M)) == 6, done.stdout


@pytest.mark.parametrize("strategy", share(0, ["auto", "pieces", "topup"], 1))
def test_a_data_teams_questions_are_answered_under_a_strategy(strategy, tmp_path):
    """
    A day of three analysts on meps1996: nearly everything is answered, a third of it free, within
    the budget; the figures are kept, and a part of them makes no page.
    """
    program = [sys.executable, "examples/strategies/run.py", "--days", "1", "--only", "meps1996"]
    done = subprocess.run(
        [*program, "--strategy", strategy, "--to", str(tmp_path)],
        cwd=ROOT, env={"PYTHONPATH": "."}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ((answered, free, spent),) = re.findall(
        r"([\d.]+)% answered +([\d.]+)% free +([\d.]+)", done.stdout
    )
    assert float(answered) > 90
    assert float(free) > 33
    assert 0 < float(spent) <= 1
    course = json.loads((tmp_path / f"results/meps1996-{strategy}.json").read_text())
    assert (course["asked"], course["spent"]) == ([36], [pytest.approx(float(spent), abs=0.001)])
    assert not (tmp_path / "README.md").exists()


def test_the_page_of_strategies_is_that_of_its_figures():
    """
    examples/strategies/README.md is what its program writes of the figures that are kept.
    """
    sys.path.insert(0, str(ROOT / "examples/strategies"))
    try:
        import run
    finally:
        sys.path.pop(0)
    courses = run.kept(ROOT / "examples/strategies/results", 10)
    assert run.page(courses, 10) == (ROOT / "examples/strategies/README.md").read_text()
