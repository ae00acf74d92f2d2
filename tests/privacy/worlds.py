"""Small datasets under policies of every kind, and their neighbours: one record, or unit, more.

A world has two states of its data, ``now`` and, after a rebuild, ``later``; a neighbour has the
same record (or all rows of the same unit) more in both.  Cubes are built once, by the product.
"""

import itertools
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import proxy.policy as policies
from proxy.cube import Cube, build
from proxy.sql.compile.release_point import space
from proxy.sql.evaluator.evaluator import Evaluator

AGES, SEXES, TOWNS, PAYS = (0, 1, 2), ("f", "m"), ("a", "b"), ("", "-2", "2.5", "10")
CELLS = list(itertools.product(AGES, SEXES, TOWNS))
DOMAIN = """
dataset: people
source: {engine: duckdb, path: people.csv}
max_records: 200
outside: drop
nulls: drop
attributes:
  age: {type: integer, range: [0, 2]}
  sex: {values: [f, m]}
  town: {values: [a, b]}
measures:
  pay: {clip: [-2, 10], quantum: 0.5, nulls: group}
utility: {half_width: 12, delta: 0.2}
"""
POLICIES = {
    "rows": """
privacy:
  budget: 4
  unit: row
  cells: [{where: "age = 0", budget: 1}, {where: "age = 1 AND sex = 'f'", budget: 2}]
  per: {day: 3.5}
analysts: {cap: {budget: 0.7}, free: {spend: off}}
""",
    "guards": """
records: immutable
privacy:
  budget: 3
  unit: row
  strategy: paper
  guards: [{claim: "COUNT(*) BETWEEN 0 AND 1", for_each: [age, town], confidence: 0.95}]
""",
    "units": """
privacy:
  budget: 6
  unit: {column: person, max_rows: 3}
""",
    "own": """
privacy:
  budget: 5
  unit: row
  cells: [{where: "town = 'a'", budget: 2}]
  guards: [{claim: "COUNT(*) BETWEEN 0 AND 0", for_each: [age, sex], confidence: 0.96}]
analysts: {ann: {budget: 1.5, history: own}, bob: {budget: 1, history: own}, cap: {budget: 0.7}}
""",
}
POLICIES["pieces"] = """
privacy:
  budget: 9
  unit: row
  strategy: pieces
  cells: [{where: "age = 0", budget: 2.5}]
analysts: {ann: {budget: 3, history: own}}
"""
POLICIES["hierarchy"] = POLICIES["pieces"].replace("strategy: pieces", "strategy: hierarchy")
USERS = {"rows": ("", "cap", "free"), "own": ("", "ann", "bob", "cap")}
USERS |= dict.fromkeys(("pieces", "hierarchy"), ("", "", "ann"))  # others: ("",)
BUDGETS = {"rows": 4, "guards": 3, "units": 6, "own": 5, "pieces": 9, "hierarchy": 9}


@dataclass(frozen=True)
class Neighbours:
    """Cubes [now, later] without and with the records at these cells, and which these are."""

    cells: tuple[tuple[int, int, int], ...]  # codes of each record that is more in the cubes
    without: tuple[Cube, Cube]
    beside: tuple[Cube, Cube]


@dataclass(frozen=True, eq=False)
class World:
    """A policy, and pairs of neighbouring data."""

    name: str
    policy: policies.Policy
    evaluator: Evaluator
    pairs: tuple[Neighbours, ...]

    @property
    def users(self):
        return USERS.get(self.name, ("",))

    def space(self):
        return space(self.policy.domain)


def people(rng, count):
    """Rows (age, sex, town, pay, person): some cells are empty, most are small."""
    cells = rng.sample(CELLS, 8)
    return [(*rng.choice(cells), rng.choice(PAYS), f"p{i // 2}") for i in range(count)]


def extra(name, rng, cell):
    """The rows of one record, or of one unit: more than its policy keeps."""
    count = 5 if name == "units" else 1
    near = [cell, *rng.choices(CELLS, k=4)] if rng.random() < 0.5 else [cell] * 5
    return [(*near[i], rng.choice(PAYS), "new") for i in range(count)]


def cube(policy, rows, path):
    """Build a cube of rows, with the product's own builder."""
    lines = [",".join(map(str, row)) for row in rows]
    policy.source.path.write_text("\n".join(["age,sex,town,pay,person", *lines, ""]))
    build(policy, path, "audit")
    return Cube.open(path, policy.domain, "audit")


def write(folder, name):
    """Write a policy over a source in the folder; return its path."""
    path = folder / f"{name}.yaml"
    path.write_text(DOMAIN + POLICIES[name])
    return path


def make(folder: Path, count=6, seed=0):
    """Make a world of each policy, with neighbours in so many cells."""
    rows = _neighbours(folder / "row", "rows", count, seed)
    units = _neighbours(folder / "unit", "units", count, seed)
    made = {}
    for name in POLICIES:
        part, pairs = ("unit", units) if name == "units" else ("row", rows)
        policy = policies.load(write(folder / part, name))
        made[name] = World(name, policy, Evaluator(policy.domain), pairs)
    return made


def _neighbours(folder, name, count, seed):
    """Build the cubes of one dataset and its neighbours."""
    folder.mkdir(parents=True)
    policy = policies.load(write(folder, name))
    rng = random.Random(f"{name} {seed}")
    data = [people(rng, 30), people(rng, 24)]
    names = (folder / f"{i}.duckdb" for i in itertools.count())
    without = tuple(cube(policy, rows, next(names)) for rows in data)
    pairs = []
    for cell in rng.sample(CELLS, count):
        more = extra(name, rng, cell)
        beside = tuple(cube(policy, rows + more, next(names)) for rows in data)
        cells = [more_records(*states) for states in zip(without, beside, strict=True)]
        assert len(cells[0]) == policy.privacy.unit.max_rows
        assert cells[0] == cells[1]  # a unit's rows are chosen by themselves alone
        pairs.append(Neighbours(cells[0], without, beside))
    return tuple(pairs)


def counts(cube):
    """The records of each cell, as a counter."""
    cube._load()
    codes = [map(int, column) for column in cube._codes]
    return Counter(dict(zip(zip(*codes, strict=True), map(int, cube._parts[0]), strict=True)))


def more_records(without, beside):
    """The cell of each record that one cube has and the other has not."""
    one, two = counts(without), counts(beside)
    assert not one - two
    return tuple(sorted((two - one).elements()))


def budget(name):
    """The budget of the whole, as the policy text has it."""
    return BUDGETS[name]


def limit(name, cell):
    """The budget of one cell, by hand: what the policy texts above say."""
    age, sex, _ = cell
    if name == "rows":
        return 1 if age == 0 else 2 if (age, sex) == (1, 0) else 4
    if name == "guards":
        return 1.4979  # ln(1/0.05)/2, rounded up
    if name in ("pieces", "hierarchy"):
        return 2.5 if age == 0 else 9
    if name == "own":
        return 2 if cell[2] == 0 else 3.2189  # ln(1/0.04)/1, rounded up
    return BUDGETS[name] / (3 if name == "units" else 1)
