"""All faults of a policy and its users file are told at once: as many as there are, and no others.

The search plants wrong values, unknown and missing keys, wherever the table of keys has a key that
the good policy says, and faults that only several keys, a condition or the source make.
"""

import copy
import random
import re

import pytest
import yaml

from proxy.cli import run
from proxy.errors import PolicyError
from proxy.policy import keys, scram_verifier
from proxy.policy.kinds import Boolean, Choice, Date, Kind, Number, Secret, Text, Value
from proxy.policy.table import Either, Many, Named, Record
from proxy.steward import apply, init, loaded, rebuild
from tests.searches import share

POLICY = yaml.safe_load("""
dataset: people
description: some people
source: {engine: duckdb, path: people.csv}
max_records: 1000
outside: drop
nulls: group
attributes:
  age: {type: integer, range: [18, 62], nulls: drop}
  seen: {type: integer, edges: [-5, 0, 5, 10], outside: clamp, cut: snap}
  smokes: {values: [yep, nope], column: smoker}
  region: {values: [north, south, west], levels: {area: {up: [north], down: [south, west]}}}
  born: {from: 2020-01-01, to: 2020-12-31, bin: month}
  city: {values: {path: people.csv, column: city}, expression: "lower(city)"}
measures:
  wage: {clip: [0, 2000], quantum: 1, utility: {half_width: 1000, delta: 0.05}, nulls: drop}
  bonus: {clip: [0, 10], quantum: 1, expression: CAST(wage AS INTEGER) / 100}
privacy:
  budget: 1
  unit: {column: who, max_rows: 2, seed: abc}
  cells: [{where: age < 20, budget: 0.5}, {where: area = 'up', budget: 0.25}]
  guards: [{claim: COUNT(*) BETWEEN 0 AND 5, for_each: [age, region], confidence: 0.95}]
  floor: 0.001
  history_size: {total: 100, analyst: 50}
  per: {day: 0.1, week: 0.2}
  strategy: topup
  history: shared
analysts: {alice: {budget: 0.5, spend: false}, bob: {budget: 0.1, history: own}}
groups: {survey: {budget: 0.2, history: own}}
utility: {half_width: 100, delta: 0.05}
timezone: Europe/Berlin
public: {towns: {path: people.csv}}
state: folder
records: mutable
""")
USERS = {
    "users": {
        name: {
            "password": scram_verifier("secret", 1, b"salt"),
            "roles": ["analyst"],
            "groups": ["survey"],
            "datasets": ["people"],
            "utility": {"half_width": 10, "delta": 0.05},
        }
        for name in ("alice", "carl")
    }
}
DATA = "who,age,seen,smoker,region,born,city,wage\n1,20,3,yep,north,2020-03-01,ulm,1000\n"

# (the file, the key at which it is told, the path of what is put there, what is put there)
TOGETHER = [
    ("policy", "source.table", ("source", "table"), "t"),
    ("policy", "attributes.age.range", ("attributes", "age", "range"), [62, 18]),
    ("policy", "attributes.seen.edges[2]", ("attributes", "seen", "edges"), [-5, 0, 0, 10]),
    ("policy", "attributes.smokes.column", ("attributes", "smokes", "column"), "nowhere"),
    ("policy", "attributes.city.expression", ("attributes", "city", "expression"), "lowr(city)"),
    ("policy", "attributes.region.levels.area", ("attributes", "region", "levels", "area"),
     {"up": ["north"]}),
    ("policy", "attributes.born.to", ("attributes", "born", "to"), "2020-12-30"),
    ("policy", "measures.wage.clip[1]", ("measures", "wage", "clip"), [0, 2000.5]),
    ("policy", "measures.wage.utility.half_width", ("measures", "wage", "utility", "half_width"),
     10**7),
    ("policy", "measures.bonus.expression", ("measures", "bonus", "expression"), "sum(wage)"),
    ("policy", "privacy.unit.column", ("privacy", "unit", "column"), "nobody"),
    ("policy", "privacy.cells.where", ("privacy", "cells", 0, "where"), "xyz < 20"),
    ("policy", "privacy.cells.where", ("privacy", "cells", 1, "where"), "now() > born"),
    ("policy", "privacy.guards[0].claim", ("privacy", "guards", 0, "claim"), "COUNT(*) > 5"),
    ("policy", "privacy.guards[0].for_each[1]", ("privacy", "guards", 0, "for_each"), ["age", "x"]),
    ("policy", "privacy.guards[0].confidence", ("privacy", "guards", 0, "confidence"), 0.05),
    ("policy", "privacy.floor", ("privacy", "floor"), 2),
    ("policy", "privacy.per.day", ("privacy", "per", "day"), 0.5),
    ("policy", "privacy.history_size.analyst", ("privacy", "history_size", "analyst"), 1000),
    ("policy", "analysts.alice.budget", ("analysts", "alice", "budget"), 3),
    ("policy", "timezone", ("timezone",), "Europe/Berln"),
    ("policy", "public.towns.path", ("public", "towns", "path"), "no.csv"),
    ("users", "users.carl.password", ("users", "carl", "password"), "secret"),
    ("users", "users.alice.utility.delta", ("users", "alice", "utility", "delta"), 0.95),
]  # fmt: skip


def wrong(kind):
    """Return a value that a kind refuses, and nothing else does."""
    match kind:
        case Choice():
            return "zzzz"
        case Boolean():
            return "perhaps"
        case Number():
            return "many"
        case Date():
            return "2020-13-45"
        case Secret() | Text() | Value():
            return ["a", "list"]
        case Either(kinds):
            return {"zzzz": 1} if Record not in map(type, kinds) else "zzzz"
    assert isinstance(kind, Many | Named | Record)
    return "zzzz"


def keyed(path):
    """Return a path as messages name it."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def single(kind: Kind, value, path=()):
    """Yield (key, path, edit) of every fault that the table of keys alone makes in a value."""
    match kind:
        case Record(rows) if isinstance(value, dict):
            yield keyed((*path, "qqqq")), (*path, "qqqq"), 1
            for row in rows:
                here = (*path, row.name)
                if row.name in value:
                    yield keyed(here), here, wrong(row.kind)
                    yield from single(row.kind, value[row.name], here)
                    if row.required and path:
                        yield keyed(here), here, None  # it is taken away
        case Named(of=of) if isinstance(value, dict):
            for name, each in value.items():
                yield from single(of, each, (*path, name))
        case Many(of=of) if isinstance(value, list):
            for i, each in enumerate(value):
                yield keyed((*path, i)), (*path, i), wrong(of)
                yield from single(of, each, (*path, i))
        case Either(kinds):
            for each in kinds:
                yield from single(each, value, path)


FAULTS = [("policy", *each) for each in single(keys.POLICY, POLICY)]
FAULTS += [("users", *each) for each in single(keys.USERS, USERS)]
FAULTS += TOGETHER


def apart(one, other):
    """Whether two faults are independent: neither is inside the other, or decides of it."""
    if one[0] != other[0]:
        return True
    a, b = one[2], other[2]
    if a[: len(b)] == b or b[: len(a)] == a:
        return False
    for x, y in ((one, other), (other, one)):
        if x[2][0] == "source" and (y in TOGETHER or y[2][0] == "source"):
            return False  # where there is no source, nothing can be seen not to fit it
        if y in TOGETHER and x[2][: len(y[2]) - 1] == y[2][:-1]:
            return False  # keys beside it, with which it is wrong
        if y in TOGETHER and y[2][0] == x[2][0] and len(y[2]) > 2 and x[2][:2] == y[2][:2]:
            return False  # of the same column
        if y in TOGETHER and len(x[2]) == 1 and x[2][0] in ("max_records", "privacy", "timezone"):
            return False
        if x[2][:2] == ("privacy", "budget") and y in TOGETHER:
            return False
    return True


def planted(folder, faults):
    """Write the files with some faults in them; return the policy's path."""
    files = {"policy": copy.deepcopy(POLICY), "users": copy.deepcopy(USERS)}
    taken = []
    for file, _, path, value in faults:
        place = files[file]
        for part in path[:-1]:
            place = place[part]
        if value is None:
            taken.append((place, path[-1]))
        else:
            place[path[-1]] = copy.deepcopy(value)
    for place, name in taken:
        del place[name]
    (folder / "people.csv").write_text(DATA)
    for name, value in files.items():
        text = yaml.safe_dump(value, sort_keys=False, default_flow_style=False)
        (folder / f"{name}.yaml").write_text(text)
    return folder / "policy.yaml"


def told(policy):
    """Return the (file, key) of every fault that is told of a policy."""
    with pytest.raises(PolicyError) as caught:
        loaded(policy)
    errors = (caught.value, *caught.value.others)
    for error in errors:
        assert error.line is not None, error
        assert error.hint, error
        assert error.message.startswith(f"{error.file}:{error.line}: "), error
        assert "\n" not in error.message + error.hint
        assert error is errors[0] or error.message in caught.value.detail
    return sorted((error.file.split("/")[-1].removesuffix(".yaml"), error.key) for error in errors)


def test_the_good_files_are_good(tmp_path):
    """
    The policy of the search, without faults, fits its source; every key is in it, or is told why.
    """
    assert loaded(planted(tmp_path, [])).dataset == "people"


@pytest.mark.slow
@pytest.mark.parametrize("seed", share(8, range(80), 24))
def test_every_fault_is_told_once_and_no_other(tmp_path, seed):
    """
    Up to eight independent faults, anywhere: each is told at its key, none follows from another.
    """
    draw = random.Random(seed)
    for _ in range(5):
        faults = []
        for fault in draw.sample(FAULTS, len(FAULTS)):
            if all(apart(fault, other) for other in faults):
                faults.append(fault)
            if len(faults) == 1 + seed % 8:
                break
        assert told(planted(tmp_path, faults)) == sorted((f, key) for f, key, _, _ in faults), (
            faults
        )


@pytest.mark.parametrize("command", ["check", "init", "apply", "rebuild", "query", "serve"])
def test_every_command_tells_them_all(tmp_path, capsys, command):
    """
    Each fault has a line of its own with file and line, and a hint below it.
    """
    policy = planted(tmp_path, [FAULTS[0], *TOGETHER[:2], *TOGETHER[-2:]])
    of_file_only = {"query": 3}  # it has no need of the source, and reads users later

    status = run(
        {
            "query": ["query", str(policy), "SELECT 1"],
            "serve": ["serve", "--check", str(policy)],
        }.get(command, [command, str(policy)])
    )

    lines = capsys.readouterr().err.splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    assert status == 2
    assert len(errors) == of_file_only.get(command, 5), lines
    assert all(re.match(r"error: .*(policy|users)\.yaml:\d+: ", line) for line in errors)
    assert len(lines) >= 2 * len(errors) or command == "serve"


@pytest.mark.slow
def test_a_budget_can_be_changed_while_the_source_is_away(tmp_path):
    """
    `apply` needs the source for other cells only; `init` and `rebuild` say that it is missing.
    """
    policy = planted(tmp_path, [])
    init(policy)
    policy.write_text(policy.read_text().replace("  floor: 0.001", "  floor: 0.002"))
    (tmp_path / "values.csv").write_text(DATA)
    text = policy.read_text()
    text = text.replace("path: people.csv\n      column", "path: values.csv\n      column")
    policy.write_text(text.replace("towns:\n    path: people.csv", "towns:\n    path: values.csv"))
    apply(policy)
    (tmp_path / "people.csv").unlink()
    policy.write_text(policy.read_text().replace("  floor: 0.002", "  floor: 0.003"))
    assert apply(policy).applied
    with pytest.raises(PolicyError, match=r"policy.yaml:\d+: source: .* does not exist"):
        rebuild(policy)
