"""Saved queries: whose they are, what they may be, and who can read their file."""

import pytest

from proxy.console.saved import LONGEST, MOST, NAME, NAME_LIMIT, NameTakenError, SavedQueries
from proxy.errors import NotSupportedError, StateError


def test_queries_are_kept_under_their_names_for_each_user(tmp_path):
    """A second one of a name replaces the first, if it is to; nobody sees another's."""
    alice, bob = (SavedQueries(tmp_path, user) for user in ("alice", "bob"))
    assert alice.all() == []
    for name, text in (("b", "SELECT 1"), ("A", "SELECT 2"), ("b", "SELECT 1")):
        alice.save(name, text)
    with pytest.raises(NameTakenError, match='the name "b"'):
        alice.save(" b ", "SELECT 3")
    assert [q.statement for q in alice.all()] == ["SELECT 2", "SELECT 1"]
    alice.save(" b ", "SELECT 3", replace=True)
    bob.save("b", "SELECT 4")
    bob.delete("A")
    assert [(q.name, q.statement) for q in alice.all()] == [("A", "SELECT 2"), ("b", "SELECT 3")]
    alice.delete("b")
    assert [q.name for q in alice.all()] == ["A"]
    assert [q.statement for q in bob.all()] == ["SELECT 4"]


def test_the_file_is_for_its_owner_alone(tmp_path):
    SavedQueries(tmp_path, "alice").save("a", "SELECT 1")
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "name, text",
    [
        ("", "x"),
        (" \n", "x"),
        ("a", " "),
        ("a" * (NAME_LIMIT + 1), "x"),
        ("a", "x" * LONGEST + "x"),
    ],
)
def test_what_is_no_query_or_too_long_is_not_kept(tmp_path, name, text):
    queries = SavedQueries(tmp_path, "alice")
    with pytest.raises(NotSupportedError):
        queries.save(name, text)
    assert queries.all() == []


def test_a_user_has_so_many_and_no_more(tmp_path):
    """Those that are there can still be changed, and another user has as many."""
    queries = SavedQueries(tmp_path, "alice")
    for number in range(MOST):
        queries.save(f"q{number}", "SELECT 1")
    with pytest.raises(NotSupportedError):
        queries.save("one more", "SELECT 1")
    queries.save("q0", "SELECT 2", replace=True)
    SavedQueries(tmp_path, "bob").save("q", "SELECT 1")
    assert len(queries.all()) == MOST


def test_a_file_that_is_none_is_told_of(tmp_path):
    (tmp_path / NAME).write_bytes(b"no database" * 100)
    with pytest.raises(StateError, match=NAME):
        SavedQueries(tmp_path, "alice").all()
