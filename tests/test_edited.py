"""A policy that was edited and not applied: what can still be read, and what is said."""

import json
from contextlib import closing

import pytest

from proxy.cli import run
from tests.small import PRIVACY, Small

OWN = "analysts:\n  ann: {budget: 0.4, history: own}\n"
SQL = "SELECT COUNT(*) FROM people WITH UTILITY (10, 0.1)"
SPENT = 0.2187
EDITS = {  # how the file is edited, whether it then protects less
    "a larger budget": (lambda text: text.replace("budget: 1,", "budget: 2,"), True),
    "a smaller budget": (lambda text: text.replace("budget: 1,", "budget: 0.9,"), False),
    "an attribute is gone": (lambda text: text.replace("  town: {values: [a, b]}\n", ""), True),
    "an attribute is new": (
        lambda text: text.replace("  town:", "  place: {column: town, values: [a]}\n  town:"),
        True,
    ),
    "an attribute's name": (
        lambda text: text.replace("  town: {", "  place: {column: town, "),
        True,
    ),
    "other values": (lambda text: text.replace("[a, b]", "[b, c]"), True),
    "another source": (lambda text: text.replace("people.csv", "more.csv"), False),
    "no analyst": (lambda text: text.replace(OWN, ""), True),
    "an analyst": (lambda text: text + "  bob: {budget: 0.1}\n", False),
}


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A state in which ann's own history and the shared one have spent."""
    monkeypatch.chdir(tmp_path)
    small = Small(tmp_path)
    small.data((0, "a", 8), (1, "b", 8))
    (tmp_path / "more.csv").write_text((tmp_path / "people.csv").read_text() + "1,a,u\n")
    with closing(small.made(PRIVACY, OWN)) as engine:
        engine.session().execute(SQL)
        engine.session("ann").execute(SQL)
    return small


@pytest.fixture
def told(capsys):
    """A way to run a command: its output and its errors."""

    def tell(*command, status=0):
        capsys.readouterr()
        assert run(command) == status
        return capsys.readouterr()

    return tell


@pytest.mark.parametrize("edit", EDITS)
def test_what_was_spent_is_shown_whatever_the_file_has_become(small, told, edit):
    """
    Under the policy in force, with a line that says so and the command that takes the edit over.
    """
    before = json.loads(told("history", "people.yaml", "--json").out)
    change, weaker = EDITS[edit]
    text = small.policy.read_text()
    small.policy.write_text(change(text))
    assert small.policy.read_text() != text
    apply = "apply --accept-weaker people.yaml" if weaker else "apply people.yaml"

    found = told("budget", "people.yaml", "--json")
    rules = json.loads(found.out)["rules"]
    assert [round(rule["budget"], 6) for rule in sorted(rules, key=lambda r: r["name"])] == [
        0.6,
        0.4,
    ]
    assert all(rule["spent"] == pytest.approx(SPENT, abs=1e-3) for rule in rules)
    assert json.loads(found.out)["numbers"] == 2
    assert "shown is the policy in force" in found.err
    assert apply in found.err
    (own,) = json.loads(told("budget", "people.yaml", "--json", "--user", "ann").out)["rules"]
    assert own["budget"] == 0.4

    found = told("history", "people.yaml", "--json")
    assert json.loads(found.out) == before
    assert apply in found.err
    assert "measured" in told("audit", "people.yaml").out
    assert "under the policy in force" in told("check", "people.yaml").out
    assert apply in told("query", "people.yaml", SQL, status=2).err


def test_what_was_spent_is_shown_where_users_were_given_more(small, told):
    """
    A users file that gives more than was accepted stops statements, and nothing that is only read.
    """
    small.write(PRIVACY, OWN + "groups: {few: {budget: 0.1}}\n")
    small.users(cy="roles: [analyst], groups: [few]")
    told("apply", "people.yaml", "--accept-weaker")
    small.users(cy="roles: [analyst]")
    assert "gives more" in told("query", "people.yaml", SQL, status=2).err
    for command in ("budget", "history"):
        assert "shown is the policy in force" in told(command, "people.yaml").err
