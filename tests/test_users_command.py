"""``privacy-proxy users``: whom it lists, and what it leaves of a users file."""

import json
import random
from contextlib import closing

import pytest
import yaml

from proxy.cli import run
from proxy.cli.users import without
from proxy.policy import load_users
from proxy.steward import backup, restore
from tests.small import PRIVACY, VERIFIER, Small

ASK = "SELECT COUNT(*) FROM people WITH UTILITY (10, 0.1)"


@pytest.fixture
def small(tmp_path):
    """A dataset of a few people, with three users."""
    small = Small(tmp_path)
    small.data((1, "a", 5))
    rest = "analysts: {dan: {budget: 0.3}}\ngroups: {survey: {budget: 0.5}}\n"
    small.write(PRIVACY, rest)
    entries = [
        f"  {name}:  # {name}'s\n    password: {VERIFIER}\n    roles: [{roles}]\n"
        f"    groups: [{groups}]\n    # more of {name}\n"
        for name, roles, groups in (
            ("ann", "analyst", "survey"), ("bob", "steward, analyst", ""), ("cid", "auditor", "")
        )
    ]  # fmt: skip
    (tmp_path / "users.yaml").write_text("# who\nusers:\n" + "".join(entries) + "# the end\n")
    assert run(["init", str(small.policy)]) == 0
    return small


def listed(small, capsys):
    """Return what is listed, by name."""
    capsys.readouterr()
    assert run(["users", str(small.policy), "--json"]) == 0
    return {each["name"]: each for each in json.loads(capsys.readouterr().out)}


def test_users_are_listed_with_what_they_spent_since_when(small, capsys):
    """
    Who asked nothing has no time; who is named by the policy alone is there too.
    """
    assert run(["query", str(small.policy), ASK, "--user", "ann"]) == 0
    found = listed(small, capsys)
    assert list(found) == ["ann", "bob", "cid", "dan"]
    assert found["ann"]["spent"] == pytest.approx(0.21, abs=0.02)
    assert found["ann"]["since"].startswith("20")
    assert (found["bob"]["spent"], found["bob"]["since"]) == (0, None)
    assert found["bob"]["roles"] == ["analyst", "steward"]
    assert found["ann"]["groups"] == ["survey"]
    assert run(["users", str(small.policy)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["user", "roles", "groups", "history", "spent", "since", "(UTC)"]
    assert lines[1].split()[:5] == ["ann", "analyst", "survey", "shared", "0.2187"]


def test_what_a_restore_charges_a_history_of_ones_own_is_shown(small, capsys):
    """
    It is the same person's, and what `budget --user` says is spent; of others nothing is known.
    """
    small.write(PRIVACY, "analysts: {own: {budget: 0.5, history: own}, dan: {}}\n")
    (small.folder / "users.yaml").unlink()
    assert run(["apply", str(small.policy), "--accept-weaker"]) == 0
    backup(small.policy, small.folder / "backup")
    assert run(["query", str(small.policy), ASK, "--user", "own"]) == 0
    spent = listed(small, capsys)["own"]["spent"]
    restore(small.policy, small.folder / "backup")
    with closing(small.engine()) as engine:
        assert engine.budget("own").rules[0].spent == pytest.approx(spent)
    found = listed(small, capsys)
    assert found["own"]["spent"] == pytest.approx(spent)
    assert found["dan"]["spent"] == 0


def test_who_is_removed_is_remembered_and_gets_nothing_back(small, capsys):
    """
    The entry goes with its own comments and no others; what was spent stays spent; who comes back
    with more is not let in without a word.
    """
    users = small.folder / "users.yaml"
    before = users.read_text()
    assert run(["query", str(small.policy), ASK, "--user", "ann"]) == 0
    assert run(["users", str(small.policy), "--remove", "ann"]) == 0
    text = users.read_text()
    assert "ann" not in text
    assert text.startswith("# who\nusers:\n  bob:  # bob's\n")
    assert text.endswith("# more of cid\n# the end\n")

    assert run(["query", str(small.policy), ASK, "--user", "ann"]) == 2
    found = listed(small, capsys)["ann"]
    assert (found["listed"], found["spent"] > 0.2) == (False, True)
    assert run(["users", str(small.policy)]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["ann", "removed"]
    assert small.engine().budget("").rules[0].spent > 0.2

    users.write_text(before.replace("[survey]", "[]"))
    assert run(["query", str(small.policy), ASK, "--user", "ann"]) == 2
    assert "more than was accepted" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name, message",
    [("nobody", 'there is no user "nobody"'), ("dan", 'there is no user "dan"')],
)
def test_a_wrong_removal_changes_nothing(small, capsys, name, message):
    """
    Whoever is only in the policy is taken out there.
    """
    before = (small.folder / "users.yaml").read_bytes()
    assert run(["users", str(small.policy), "--remove", name]) == 2
    assert message in capsys.readouterr().err
    assert (small.folder / "users.yaml").read_bytes() == before


def test_the_last_user_stays(small, capsys):
    """
    A file of nobody is wrong, and no file at all lets anybody in.
    """
    for name in ("ann", "bob"):
        assert run(["users", str(small.policy), "--remove", name]) == 0
    assert run(["users", str(small.policy), "--remove", "cid"]) == 2
    assert "the only user" in capsys.readouterr().err
    assert listed(small, capsys)["cid"]["listed"]


@pytest.mark.parametrize("seed", range(60))
def test_taking_out_is_the_inverse_of_being_there(tmp_path, seed):
    """
    Whatever the style of a file, all others are left as they were, and so are comments.
    """
    draw = random.Random(seed)
    names = draw.sample(["ann", "'b b'", '"c: d"', "dee", "é"], draw.randint(2, 5))
    flow = draw.random() < 0.3
    indent = " " * draw.choice([1, 2, 4])
    entries = []
    for name in names:
        inner = [f"password: {VERIFIER}", "roles: [analyst]"]
        inner += draw.choice([[], ["groups: [x, y]"], ["utility: {half_width: 1, delta: 0.1}"]])
        if flow or draw.random() < 0.4:
            entries.append(f"{name}: {{{', '.join(inner)}}}")
        else:
            lines = [f"{name}:", *(f"{indent}{indent}{line}" for line in inner)]
            if draw.random() < 0.5:
                lines.insert(1, f"{indent}{indent}# inside")
            if draw.random() < 0.5:
                lines.append(f"# outside {name}")
            entries.append("\n".join(lines))
    if flow:
        text = "users: {" + draw.choice([", ", ",\n  "]).join(entries) + "}\n# end\n"
    else:
        text = "users:\n" + "".join(f"{indent}{entry}\n" for entry in entries) + "# end\n"
    path = tmp_path / "users.yaml"
    path.write_text(text)
    users = load_users(path).users
    gone = draw.choice(sorted(users))
    path.write_text(without(text, gone))
    left = load_users(path).users
    assert left == {name: user for name, user in users.items() if name != gone}
    assert yaml.safe_load(path.read_text())["users"].keys() == left.keys()
    for comment in ("# end", *(f"# outside {name}" for name in names)):
        assert path.read_text().count(comment) == text.count(comment)


ENTRY = f"password: {VERIFIER}, roles: [analyst]"


@pytest.mark.parametrize(
    "entries, line",
    [
        (f"  ann: &a {{{ENTRY}}}\n  bob: *a\n", 2),
        (f"  {{ann: &a {{{ENTRY}}}, bob: *a}}\n", 2),
        (f"  {{ann: &a {{{ENTRY}}}, bob: *a, cid: *a}}\n", 2),
        (f"  ann: &a {{{ENTRY}}}\n  bob: *a\n  cid:\n    password: {VERIFIER}\n"
         "    roles: [auditor]\n", 2),
        (f"  ann:\n    password: &p {VERIFIER}\n    roles: [analyst]\n"
         "  bob: {password: *p, roles: [analyst]}\n", 3),
        (f"  ann: {{password: {VERIFIER}, roles: &r [analyst]}}\n"
         f"  bob: {{password: {VERIFIER}, roles: *r}}\n", 2),
        (f"  &n ann: {{{ENTRY}}}\n  bob: {{{ENTRY}, groups: [*n]}}\n", 2),
    ],
)  # fmt: skip
def test_what_others_are_aliases_of_is_not_taken_out(small, capsys, entries, line):
    """
    The error has file and line, and what to do; who is the alias may be taken out.
    """
    path = small.folder / "users.yaml"
    path.write_text(f"users:\n{entries}")
    assert run(["users", str(small.policy), "--remove", "ann"]) == 2
    error = capsys.readouterr().err
    assert f"{path}:{line}: by &" in error
    assert "hint: write it out" in error
    assert path.read_text() == f"users:\n{entries}"
    assert run(["users", str(small.policy), "--remove", "bob"]) == 0
    assert set(load_users(path).users) in ({"ann"}, {"ann", "cid"})
