"""A dataset for tests of the shell, one of whose values would steer a terminal."""

import shutil
import tempfile
from functools import cache
from pathlib import Path

from tests.small import Small

ESCAPE = "\x1b]0;title\x07\x1b[31m\x9b2J"
PEOPLE = (0, "a", 40), (1, "a", 30), (2, "b", 20)
LONG = 5000
DOMAIN = """\
dataset: people
source: {{engine: duckdb, path: people.csv}}
max_records: 1000
outside: drop
nulls: drop
attributes:
  age: {{type: integer, range: [0, 9]}}
  town: {{values: [a, b, {hostile}, "it's"]}}
utility: {{half_width: 10, delta: 0.1}}
public:
  towns: {{path: towns.csv}}
""".format(hostile='"\\e]0;title\\a\\e[31m\\x9b2J"')


def copied(folder):
    """Put a copy of the state into a folder, with its whole budget."""
    shutil.copytree(_made().name, folder)
    return Small(Path(folder))


@cache
def _made():
    kept = tempfile.TemporaryDirectory(prefix="shell-")
    small = Small(Path(kept.name))
    small.data(*PEOPLE)
    (small.folder / "towns.csv").write_text("name,river\na,true\n")
    small.made("privacy: {budget: 2, unit: row}\n", domain=DOMAIN).close()
    return kept
