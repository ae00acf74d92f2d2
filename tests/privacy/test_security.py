"""proxy/SECURITY.md tells the truth: the tests that it names exist, its limits are as it says."""

import ast
import inspect
import re
import shutil
from fractions import Fraction
from pathlib import Path

import pytest

from proxy.cube import Cube
from proxy.engine import Engine, init
from proxy.errors import InsufficientBudgetError
from proxy.inference.accounting import UNIT
from proxy.inference.noise.mechanism import GeometricSampler
from proxy.settings import TABLE
from proxy.sql.statement import compile_statement
from tests.privacy.double import MemoryLedger
from tests.privacy.replay import Recording
from tests.privacy.worlds import DOMAIN, cube

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "proxy" / "SECURITY.md").read_text()
COUNT = "SELECT COUNT(*) FROM people WHERE age = 1 WITH UTILITY (4, 0.1)"
PERSON = (1, "m", "a", "10", "pat")


def claims():
    """The claims: each bullet, with the tests that it names."""
    bullets = re.findall(r"^- (.*)$", TEXT, re.MULTILINE)
    return [(b, re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", b)) for b in bullets]


@pytest.mark.parametrize(("claim", "tests"), claims())
def test_every_claim_names_tests_that_exist(claim, tests):
    """
    At least one test a claim, each a function of the file that is named.
    """
    assert tests, claim
    for path, name in tests:
        tree = ast.parse((ROOT / path).read_text())
        assert name in {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}, path


def made(folder, rows=()):
    """Make a state of some rows, under a budget of 1; return policy and state."""
    folder.mkdir()
    (folder / "people.yaml").write_text(DOMAIN + "privacy: {budget: 1, unit: row}\n")
    lines = [",".join(map(str, row)) for row in rows]
    (folder / "people.csv").write_text("\n".join(["age,sex,town,pay,person", *lines, ""]))
    init(folder / "people.yaml", folder / "state")
    return folder / "people.yaml", folder / "state"


def test_no_setting_and_no_argument_turns_the_noise_off():
    """
    The sampler takes no seed; no setting of a session has to do with noise; only the constructor
    takes another sampler.
    """
    assert list(inspect.signature(GeometricSampler).parameters) == []
    assert not [name for name in TABLE if re.search("noise|seed|sampl|random|exact", name)]
    assert "sampler" not in inspect.signature(Engine.session).parameters
    one, two = (GeometricSampler().draw(1e6, 20) for _ in range(2))
    assert one != two


@pytest.mark.parametrize("largest", [2**22, 0])
def test_every_answer_reads_every_cell(worlds, monkeypatch, largest):
    """
    Whole, narrow and empty conditions, on either neighbour: the first answer over some columns
    looks up a place for each cell of the cube, later ones for none, and they have the same sums of
    all cells of those columns.  Where these are not kept, as many places are looked up for each
    factor as there are cells, none of them skipped.
    """
    world = worlds["rows"]
    looked = []

    def places(self, axes, shape, part, real=Cube._places):
        found = real(self, axes, shape, part)
        looked.append(len(found))
        return found

    monkeypatch.setattr(Cube, "_places", places)
    monkeypatch.setattr("proxy.cube.cells.LARGEST", largest)
    for text in ("age = 0", "age = 2 AND sex = 'f' AND town = 'b'", "age = 1 OR town = 'a'"):
        program = compile_statement(
            f"SELECT SUM(pay) FROM people WHERE {text}", world.policy, world.evaluator
        )
        (number,) = program.releases[0].numbers
        kept = []
        for made in (world.pairs[0].without[0], world.pairs[0].beside[0]):
            made._marginals.clear()
            for again in range(2):
                looked.clear()
                made.answer(number.family)
                cells, parts = made._parts[0].size, number.family.query.parts.values()
                factors = sum(len(term.factors) for term in parts)
                if largest:
                    assert looked == [cells] * (0 if again else len(parts))
                else:
                    assert looked == [cells] * factors
            kept.append({scope: each.shape for scope, each in made._marginals.items()})
        assert kept[0] == kept[1]
        assert bool(kept[0]) == bool(largest)


# --- what is not protected: these tests show the limit, not the product's strength ----------------


def test_the_state_holds_exact_counts(tmp_path):
    """
    Who can read the state can open the cube and add up the records, without noise or charge.
    """
    policy, state = made(tmp_path / "a", [PERSON] * 7)
    engine = Engine.open(policy, state)
    inside = engine.planner._curator._open_cube(1)
    inside._load()
    assert int(inside._parts[0].sum()) == 7
    assert engine.budget().rules[0].spent == 0
    engine.close()


def test_the_number_of_full_cells_shows_in_the_work(worlds):
    """
    A record in a cell of its own makes the scan one cell longer.
    """
    sizes = {
        (pair.beside[0]._parts[0].size - pair.without[0]._parts[0].size)
        for pair in worlds["rows"].pairs
    }
    assert sizes == {0, 1}


def test_a_person_of_three_rows_pays_one_and_loses_three(worlds, tmp_path):
    """
    Under ``unit: row`` three rows of one person, or of three who go together, move an answer by
    three, and its likelihood by three times the cost: the budget of a row is not theirs.
    """
    world = worlds["guards"]
    policy = world.policy
    losses = []
    for rows in ([], [PERSON] * 3):
        side = Recording([cube(policy, rows, tmp_path / f"{len(rows)}.duckdb")] * 2)
        ledger = MemoryLedger(policy)
        result = Engine(policy, ledger, side.open, sampler=side).session().execute(COUNT)
        losses.append(side.draws[0].exact[0] / Fraction(side.draws[0].scale))
    assert losses[1] - losses[0] == 3 / Fraction(side.draws[0].scale)
    assert result.cost * UNIT < (losses[1] - losses[0]) * UNIT / 2


@pytest.mark.slow
def test_two_policies_over_one_source_are_two_budgets(tmp_path):
    """
    What one has spent the other does not know.
    """
    states = [made(tmp_path / name, [PERSON]) for name in "ab"]
    for policy, state in states:
        engine = Engine.open(policy, state)
        engine.session().execute(COUNT)
        with pytest.raises(InsufficientBudgetError):
            engine.session().execute(COUNT.replace("(4", "(1"))
        engine.close()


def test_ledger_and_anchor_put_back_together_are_believed(tmp_path):
    """
    The budget is full again, and the chain of the older state verifies.
    """
    policy, state = made(tmp_path / "a", [PERSON])
    shutil.copytree(state, tmp_path / "backup")
    engine = Engine.open(policy, state)
    assert engine.session().execute(COUNT).cost > 0.5
    engine.close()
    shutil.rmtree(state)
    shutil.copytree(tmp_path / "backup", state)
    engine = Engine.open(policy, state)
    assert engine.budget().rules[0].spent == 0
    assert engine.ledger.verify() == []
    engine.close()


def test_a_copy_of_a_state_is_a_second_budget(tmp_path):
    """
    Both verify, and each spends the whole budget on the same people.
    """
    policy, state = made(tmp_path / "a", [PERSON])
    shutil.copytree(state, tmp_path / "copy")
    for each in (state, tmp_path / "copy"):
        engine = Engine.open(policy, each)
        assert engine.session().execute(COUNT).cost > 0.5
        assert engine.ledger.verify() == []
        engine.close()
