"""A dataset with its state, and samplers that tests may inject."""

import contextlib
import json
import shutil
from pathlib import Path

import pytest

from proxy.engine import Engine, init
from proxy.engine.cache import Cache
from tests.engine.pieces import piecemeal  # noqa: F401

ROOT = Path(__file__).parent.parent.parent


class Silent:
    """A sampler without noise: what is then released is exact."""

    def draw(self, scale, count):
        return [0] * count

    def refine(self, noise, old, new):
        return list(noise)


class Memory:
    """A ledger that is gone with the process, for tests of thousands of independent ledgers."""

    def __init__(self, known=None):
        self.known = known
        self.rows, self.lines = [], [1]
        self.id = self.dataset = "memory"

    def sequence(self):
        return len(self.lines)

    def measurements(self, after=0):
        return []

    def snapshot(self, id=None):
        from proxy.ledger import Snapshot

        return Snapshot(1, "", {})

    def protection(self):
        return self.known

    def policy(self):
        return self.known.digest

    def spent_by(self, user=None, since=None):
        return 0

    def spent_unknown(self, since=None):
        return 0

    def answers_by(self, user=None, since=None):
        return 0

    def transaction(self):
        from contextlib import nullcontext

        return nullcontext(self)

    def append(self, measurement):
        self.rows.append(measurement)
        return len(self.rows)

    def audit(self, *args, **kwargs):
        self.lines.append(args)
        return len(self.lines)

    def note(self, *args, **kwargs):
        pass

    def close(self):
        pass


def begin_anew(engine, ledger=None):
    """Give an engine another ledger, or one that is empty and forgotten with the process."""
    ledger = ledger or Memory(engine.ledger.protection())
    engine.ledger = engine.planner.ledger = ledger
    engine.planner._accountants, engine._cache = {}, Cache()


@pytest.fixture(scope="module")
def silent(policy):
    """An engine of the module's policy without noise: what is told of nobody is sure."""
    with contextlib.closing(Engine.open(policy, sampler=Silent())) as engine:
        yield engine


def policy_with(folder, name, *changes):
    """Copy a policy, with texts replaced, beside a link to the examples; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    text = (ROOT / "policies" / f"{name}.yaml").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    text = text.replace("../examples", str(ROOT / "examples"))
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return path


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A function that copies a state that ``init`` has made once: (policy path, state folder)."""
    masters = {}

    def make(name, *changes):
        key = json.dumps([name, changes])
        if key not in masters:
            folder = tmp_path_factory.mktemp(name)
            masters[key] = policy_with(folder, name, *changes), folder / "state"
            init(*masters[key])
        policy, state = masters[key]
        copy = tmp_path_factory.mktemp("state") / "state"
        shutil.copytree(state, copy)
        return policy, copy

    return make


@pytest.fixture
def engine(made):
    """An engine of cps1988 with the real noise and its budget of 1."""
    engine = Engine.open(*made("cps1988"))
    yield engine
    engine.close()
