"""The programs under ``examples/`` run, and print what they say they print."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_a_dashboard_pays_for_what_is_new_alone():
    """
    Two simulated days of 30 charts: a refresh is free, which the program asserts itself, and
    inference costs less than a cache of texts, which costs less than paying every refresh.
    """
    program = [sys.executable, "examples/benchmarks/dashboard.py", "--days", "2", "--every", "480"]
    done = subprocess.run(
        program, cwd=ROOT, env={"PYTHONPATH": "."}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    table = re.findall(r"^(\w[\w ,]*?)  +([\d,.]+)", done.stdout, re.M)
    alpha = {name: float(value.replace(",", "")) for name, value in table if "pay" in name}
    topup, _, once, always = alpha.values()
    assert topup < once < always / 2, done.stdout


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
