"""A state that an older version made is opened by this one, with what was spent and answered."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from proxy.engine import Engine
from proxy.errors import StateError
from proxy.protection import digest
from proxy.steward import apply, audit, rebuild, restore, verify

MADE = Path(__file__).parent / "fixtures" / "version2"
TOWNS = "SELECT town, COUNT(*) FROM people GROUP BY town WITH UTILITY (12, 0.1)"
SPENT = {"shared": 202166327621, "own:ann": 123414069518}  # 2⁻⁴⁰ alpha, as it was told


@pytest.fixture
def folder(tmp_path):
    """A copy of the policy, the data, the state and a backup that the older version left."""
    return shutil.copytree(MADE, tmp_path / "made")


def opened(folder):
    return Engine.open(folder / "people.yaml", folder / "state")


def swapped(folder, *pairs):
    """Change the policy's text."""
    path = folder / "people.yaml"
    text = path.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


TOWN = "  town: {values: [b, a]}\n"
MOVED = ((TOWN, ""), ("  kind:", "  town: {values: [a, b]}\n  kind:"))


def test_answers_and_charges_are_as_they_were(folder):
    """
    A question that was paid is free, each history has paid what it had, and the audit agrees.
    """
    engine = opened(folder)
    before = {name: engine.ledger.spent()[name] for name in SPENT}
    result = engine.session().execute(TOWNS)

    assert before == SPENT
    assert (result.rows, result.cost) == ([("b", 5), ("a", 4)], 0)
    assert [line.kind for line in audit(folder / "people.yaml", folder / "state")][-3:] == [
        "migrate", "migrate", "inferred",
    ]  # fmt: skip
    assert verify(folder / "people.yaml", folder / "state") == []


def test_the_order_of_attributes_and_values_is_that_of_the_state(folder):
    """
    Once it was opened, lines of the policy may change places: what was paid for stays known.
    """
    opened(folder).close()
    swapped(folder, *MOVED)
    assert not apply(folder / "people.yaml", folder / "state").applied
    result = opened(folder).session().execute(TOWNS)

    assert (dict(result.rows), result.cost) == ({"b": 5, "a": 4}, 0)


@pytest.mark.slow
def test_a_policy_whose_lines_changed_places_before_begins_a_new_snapshot(folder):
    """
    The older version did not say what its positions stand for; its cube shows that it was another
    order, and every cell starts with the most that any had paid.
    """
    swapped(folder, (TOWN, ""), ("  kind:", TOWN + "  kind:"))
    with pytest.raises(StateError, match="other attributes or measures"):
        opened(folder)
    report = apply(folder / "people.yaml", folder / "state")

    assert report.rebuilt.bases == {n: pytest.approx(v / 2**40) for n, v in SPENT.items()}
    assert opened(folder).session().execute(TOWNS.replace("12", "25")).cost > 0


@pytest.mark.slow
def test_what_an_older_version_built_is_never_carried_on_cell_by_cell(folder):
    """
    What decided the cell of a record then was not written down.
    """
    report = rebuild(folder / "people.yaml", folder / "state")

    assert not report.carried
    assert report.bases["shared"] == pytest.approx(SPENT["shared"] / 2**40)
    assert rebuild(folder / "people.yaml", folder / "state").carried


@pytest.mark.slow
def test_an_older_backup_is_restored(folder):
    """
    In the place of its state, and on an empty disk with the whole budget charged.
    """
    policy, state, file = folder / "people.yaml", folder / "state", folder / "backup.sqlite"
    assert not restore(policy, file, state).missed
    assert opened(folder).session().execute(TOWNS).cost == 0
    assert verify(policy, state) == []
    shutil.rmtree(state)
    report = restore(policy, file, state, charge_all=True)

    assert report.charged == {"shared": pytest.approx(0.7), "own:ann": pytest.approx(0.3)}
    assert report.cube == "built"
    assert opened(folder).budget().rules[0].left == 0
    assert verify(policy, state) == []


def test_a_state_whose_protection_held_the_length_of_histories_is_taken_over(folder):
    """
    Such a length protects nobody, and is no part of it any more: the policy is the one in force,
    what was paid stays known, and who may do what is what it was.
    """
    with closing(opened(folder)) as engine:
        known = engine.ledger.protection()
        older = known.protection | {"rows": {"total": 5000, "analyst": 5000}}
        with engine.ledger.transaction() as tx:
            tx.apply_policy(digest(older), older)
            tx.audit("apply", "somebody", detail={"digest": digest(older)})
    with closing(opened(folder)) as engine:
        assert engine.session().execute(TOWNS).cost == 0
        assert engine.ledger.protection().protection == known.protection
        assert engine.ledger.protection().digest == known.digest
    assert verify(folder / "people.yaml", folder / "state") == []
