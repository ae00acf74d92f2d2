"""A policy that is edited as a text: what is wrong with it is said all at once, and where; what it
would change is said before it is done; and nothing but adopting it writes.
"""

import shutil

import pytest

import proxy.policy as policies
from proxy.errors import Error, StateError
from proxy.policy.edits import Edit
from proxy.steward import adopt, audit, review, text_of
from tests.small import DOMAIN, Small, count


@pytest.fixture
def small(tmp_path):
    """A folder with a few people, and their state."""
    small = Small(tmp_path)
    small.data((0, "a", 5), (1, "b", 3))
    count(small.made(), "age < 5")
    return small


def edited(small, old, new):
    """The policy's text with a change."""
    text = small.policy.read_text()
    assert old in text
    return text.replace(old, new)


def adopted(small, text, accepted=(), user="sam"):
    """Adopt a text that was made of the file as it is."""
    return adopt(small.policy, text, text_of(small.policy).digest, user, accepted)


def test_every_fault_is_told_with_its_line_and_key(small):
    """
    Of the text, not of the file; without the path of the file.
    """
    text = edited(small, "budget: 1", "budget: -1").replace("delta: 0.1", "delta: 7")
    found = review(small.policy, text)
    assert [(fault.line, fault.key) for fault in found.faults] == [
        (9, "utility.delta"),
        (10, "privacy.budget"),
    ]
    assert not any(str(small.folder) in fault.message for fault in found.faults)
    assert all(fault.hint for fault in found.faults)
    [fault] = review(small.policy, "attributes: [").faults
    assert fault.line == 1


def test_what_a_text_would_change_is_told_key_by_key_and_what_is_weaker(small):
    """
    And whether the cube would be built again; what means the same is nothing new.
    """
    found = review(small.policy, edited(small, "budget: 1,", "budget: 2,"))
    assert found.edits == (Edit("privacy.budget", 10, "1", "2"),)
    assert found.weaker == ("privacy.budget is 2, it was 1",)
    assert (found.new, found.rebuilds) == (True, False)
    found = review(small.policy, edited(small, "[a, b]", "[a, b, c]"))
    assert found.edits == (Edit("attributes.town.values", 8, "[a, b]", "[a, b, c]"),)
    assert found.rebuilds
    found = review(small.policy, "# a remark\n" + small.policy.read_text())
    assert (found.edits, found.weaker, found.new) == ((), (), False)


def test_a_review_writes_nothing(small):
    """
    Neither beside the policy nor in the state.
    """
    before = {path: path.stat().st_mtime_ns for path in small.folder.iterdir()}
    lines = len(audit(small.policy))
    review(small.policy, edited(small, "budget: 1,", "budget: 2,"))
    assert {path: path.stat().st_mtime_ns for path in small.folder.iterdir()} == before
    assert len(audit(small.policy)) == lines


def test_what_is_adopted_is_in_force_and_audited_under_its_users_name(small):
    """
    The text is in the file as it was written, the one before beside it.
    """
    old, text = small.policy.read_text(), edited(small, "budget: 1,", "budget: 0.5,") + "# less\n"
    assert adopted(small, text).applied
    assert small.policy.read_text() == text
    assert small.policy.with_name("people.yaml.before").read_text() == old
    assert (audit(small.policy)[-1].kind, audit(small.policy)[-1].user) == ("policy", "sam")
    assert small.engine().budget().rules[0].budget == 0.5


def test_what_protects_less_needs_each_sentence_accepted(small):
    """
    One that was accepted does not stand for another.
    """
    old, text = small.policy.read_text(), edited(small, "budget: 1,", "budget: 2,")
    with pytest.raises(StateError, match="not all of that was accepted"):
        adopted(small, text, ["privacy.budget is 1.5, it was 1"])
    assert small.policy.read_text() == old
    assert adopted(small, text, ["privacy.budget is 2, it was 1"]).changes
    assert audit(small.policy)[-1].detail["weaker"] == ["privacy.budget is 2, it was 1"]


def test_a_file_that_was_changed_meanwhile_is_left_alone(small):
    """
    The text was made of another.
    """
    digest = text_of(small.policy).digest
    small.policy.write_text(small.policy.read_text() + "# by hand\n")
    with pytest.raises(StateError, match="has changed since"):
        adopt(small.policy, edited(small, "budget: 1,", "budget: 0.5,"), digest, "sam")
    assert small.policy.read_text().endswith("# by hand\n")


def test_where_it_cannot_be_put_in_force_the_file_is_as_it_was(small, monkeypatch):
    """
    As when the source is gone that other cells would be read from.
    """
    old, text = small.policy.read_text(), edited(small, "[a, b]", "[a, b, c]")
    (small.folder / "people.csv").unlink()
    with pytest.raises(Error):
        adopted(small, text, review(small.policy, text).weaker)
    assert small.policy.read_text() == old


@pytest.mark.parametrize(
    "key, before, after",
    [
        ("dataset", "dataset: people", "dataset: others"),
        ("state", "state: elsewhere\n", ""),
        ("ledger", "ledger: postgresql://host/database\n", ""),
    ],
)
def test_no_text_finds_the_state_of_another_policy(small, key, before, after):
    """
    By another's name, or by leaving out where its own is.
    """
    text = small.policy.read_text()
    if not after:
        small.policy.write_text(before + text)
    elif key == "dataset":
        text = edited(small, before, after)
        others = Small(small.folder / "others")
        others.folder.mkdir()
        others.data((0, "a", 5))
        others.made(domain=DOMAIN.replace(before, after))
        shutil.copytree(others.state, small.state.with_name("others"))
    [fault] = review(small.policy, text).faults
    assert (fault.key, fault.message) == (key, f"{key} stays as it is in the file")


@pytest.mark.parametrize(
    "old, new",
    [
        ("path: people.csv", "path: /etc/passwd"),
        ("utility:", "public: {t: {path: other.csv}}\nutility:"),
        ("utility:", "state: elsewhere\nutility:"),
        ("utility:", "ledger: postgresql://host/database\nutility:"),
        ("utility:", "workload: x.sql\nutility:"),
        ("values: [a, b]", "values: {path: /etc/passwd, column: a}"),
        ("engine: duckdb, path: people.csv", "engine: postgres, dsn: host=inside, table: t"),
        ("engine: duckdb, path: people.csv", "engine: sqlalchemy, url: 'sqlite:///x', table: t"),
        ("path: people.csv", "path: &a '/etc/passwd'"),
    ],
)
def test_no_text_names_another_file_or_database_of_the_machine(small, old, new, monkeypatch):
    """
    Nor is it looked at.
    """
    monkeypatch.setattr(policies, "read", None)
    faults = review(small.policy, edited(small, old, new)).faults
    assert faults
    assert all(f.message == "what names a file or a database is changed where the file is"
               for f in faults)  # fmt: skip
