"""``privacy-proxy passwd``: what it prints, and what it leaves of a users file."""

import io
import re
import sys
from types import SimpleNamespace

import pytest

from proxy.cli import run
from proxy.policy import Verifier, load_users, scram_verifier


@pytest.fixture
def typed(monkeypatch):
    """A function that sets standard input: bytes of a pipe, or what a person types, hidden."""

    def set_input(*lines):
        if lines and isinstance(lines[0], str):
            left = list(lines)
            monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
            monkeypatch.setattr("click.termui.hidden_prompt_func", lambda prompt: left.pop(0))
        else:
            pipe = SimpleNamespace(isatty=lambda: False, buffer=io.BytesIO(*lines))
            monkeypatch.setattr(sys, "stdin", pipe)

    return set_input


def same(verifier, password):
    """Whether a verifier is that of a password."""
    read = Verifier.parse(verifier)
    return verifier == scram_verifier(password, read.iterations, read.salt)


@pytest.mark.parametrize(
    "lines, password",
    [
        ((b"secret\n",), "secret"),
        ((b"secret\r\nmore\n",), "secret"),
        ((" s \N{PILE OF POO}".encode(),), " s \N{PILE OF POO}"),
        (("secret", "secret"), "secret"),
        (("secret", "secrte", "other", "other"), "other"),
    ],
)
def test_passwd_prints_a_verifier(typed, capsys, lines, password):
    """
    Of the first line of a pipe, or of what a person types twice alike; nothing else is printed.
    """
    typed(*lines)
    assert run(["passwd"]) == 0
    out = capsys.readouterr().out
    assert same(out.removesuffix("\n"), password)
    assert password.strip() not in out


@pytest.mark.parametrize(
    "arguments, lines, message",
    [
        ([], b"\n", "the password is empty"),
        ([], b"", "the password is empty"),
        ([], b"\xff\n", "not UTF-8"),
        (["--users", "u.yaml"], b"x\n", "needs the name of the USER"),
        (["ann", "--role", "steward"], b"x\n", "--role goes with --users"),
        (["ann", "--users", "none/u.yaml"], b"x\n", "there is no folder"),
        (["ann", "--users", "u.yaml", "--role", "root"], b"x\n", "is not one of"),
    ],
)
def test_a_wrong_passwd_says_what_is_wrong(
    typed, capsys, tmp_path, monkeypatch, arguments, lines, message
):
    """
    And writes nothing.
    """
    monkeypatch.chdir(tmp_path)
    typed(lines)
    assert run(["passwd", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


V = scram_verifier("old", 1, b"salt")
HERS = f"password: {V}"
PASSWORDS = (
    f"users:\n  {{}}: {{{{password: &p {V}, roles: [analyst]}}}}\n"
    "  {}: {{password: *p, roles: [analyst]}}\n"
)
FILES = {
    "block": (f"# Who.\nusers:\n  # 1\n  ann:\n    {HERS}  # hers\n    roles: [analyst]\n", "ann"),
    "flow": (f"users: {{ann: {{{HERS}, roles: [analyst]}}}}", "ann"),
    "quoted": (
        f"users:\n    'ann lee':\n        roles: [steward]\n        password: \"{V}\"\n",
        "ann lee",
    ),
    "plain password": ("users:\n  ann: {password: hunter2, roles: [analyst]}\n", "ann"),
    "umlauts": (f"# für alle\nusers:\n  jürgen: {{roles: [analyst], password: '{V}'}}\n", "jürgen"),
    "block scalar": (f"users:\n  ann:\n    password: >-\n      {V}\n    roles: [analyst]\n", "ann"),
    "byte order": (f"\ufeffusers:\n  ann: {{{HERS}, roles: [analyst]}}\n", "ann"),
    "other aliases": (f"users:\n  ann: &a {{{HERS}, roles: &r [analyst], groups: *r}}\n", "ann"),
    "line ends": (f"users:\r\n  ann:\r\n    {HERS}\r\n    roles: [analyst]\r\n", "ann"),
}


@pytest.mark.parametrize("name", FILES)
def test_passwd_replaces_a_password_and_keeps_the_rest_of_the_file(typed, capsys, tmp_path, name):
    """
    Comments, quotes and line ends too; other users, roles and the file's mode.
    """
    text, user = FILES[name]
    path = tmp_path / "users.yaml"
    path.write_bytes(text.encode())
    path.chmod(0o640)
    typed(b"new\n")
    assert run(["passwd", user, "--users", str(path)]) == 0
    assert capsys.readouterr().out == f"{user} has a new password in {path}\n"
    verifier = str(load_users(path).get(user).password)
    assert same(verifier, "new")
    after = path.read_bytes().decode()
    expected = re.sub(
        r"hunter2|(>-\s+)?[\"']?SCRAM[^\s,}\"']*[\"']?", lambda match: verifier, text
    ).removeprefix("\ufeff")
    assert after == expected
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("user", ["bob", "no", "Ann O'Neil", "12"])
def test_passwd_adds_a_user_and_keeps_the_rest_of_the_file(typed, capsys, tmp_path, name, user):
    """
    Before the others, as an analyst or with the roles that are given; any name.
    """
    text, old = FILES[name]
    if "hunter2" in text:
        text = text.replace("hunter2", V)
    path = tmp_path / "users.yaml"
    path.write_bytes(text.encode())
    typed(b"new\n")
    roles = ["--role", "steward", "--role", "auditor"] if user == "no" else []
    assert run(["passwd", user, "--users", str(path), *roles]) == 0
    assert capsys.readouterr().out == f"{user} is a new user of {path}\n"
    users = load_users(path)
    assert list(users.users) == [user, old]
    assert same(str(users.get(user).password), "new")
    assert users.get(user).roles == ({"steward", "auditor"} if roles else {"analyst"})
    after = path.read_bytes().decode()
    lines = iter(after.splitlines() if "{ann" not in text else [text])
    assert all(line in lines for line in text.removeprefix("\ufeff").splitlines())


@pytest.mark.parametrize(
    "text", [None, "", "# nobody yet\n", "# nobody yet", "users:", "users: {}  # a\n", "users: ~\n"]
)
def test_passwd_begins_a_users_file(typed, tmp_path, text):
    """
    For its owner only, where it was not there.
    """
    path = tmp_path / "users.yaml"
    if text is not None:
        path.write_text(text)
    typed(b"new\n")
    assert run(["passwd", "ann", "--users", str(path), "--role", "steward"]) == 0
    assert load_users(path).get("ann").roles == {"steward"}
    assert path.read_text().startswith(text if text and text[0] == "#" else "users:\n  ann:")
    assert path.read_text().count("#") == (text or "").count("#")
    if text is None:
        assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "text, message",
    [
        ("users: [ann]\n", "yaml:1: users: .*a mapping"),
        ("- users\n", "yaml:1: not a mapping"),
        ("users: [\n", "yaml:1: not YAML"),
        ("users:\n  ann: {roles: [analyst]}\n", "yaml:2: users.ann.password: missing"),
        (f"users:\n  bob: &b {{{HERS}, roles: [analyst]}}\n  ann: *b\n", "yaml:3: by &b and"),
        (f"users:\n  ann: &b {{{HERS}, roles: [analyst]}}\n  bob: *b\n", "yaml:2: by &b and"),
        (PASSWORDS.format("ann", "bob"), "yaml:2: by &p and"),
        (PASSWORDS.format("bob", "ann"), "yaml:3: by &p and"),
        (f"users:\n  bob: &b {{{HERS}}}\n  ann: {{<<: *b, roles: [analyst]}}\n", "merge keys"),
        (f"users:\n  ? bob\n  : {{{HERS}, roles: [analyst]}}\n", "cannot be edited here"),
        ("{users: {}}\n", "cannot be edited here"),
        ("{}\n", "cannot be edited here"),
        (f"users:\n  bob: {{password: {V}, roles: [root]}}\n", r"roles\[0\]"),
    ],
)
def test_passwd_leaves_a_wrong_file_as_it_is(typed, capsys, tmp_path, text, message):
    """
    The error says what is wrong with it.
    """
    path = tmp_path / "users.yaml"
    path.write_text(text)
    typed(b"new\n")
    assert run(["passwd", "ann", "--users", str(path)]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error)
    assert "/." not in error  # a file beside it
    assert path.read_text() == text
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "user, message",
    [
        ("x" * 64, "longer than 63 bytes"),
        ("é" * 32, "longer than 63 bytes"),
        ("pg_ann", "is reserved"),
        ("a\nb", "cannot be edited here"),
        ("a\ab", "cannot be edited here"),
    ],
)
@pytest.mark.parametrize("text", ["", f"users:\n  bob: {{{HERS}, roles: [analyst]}}\n"])
def test_a_wrong_name_has_no_place_in_the_file_yet(typed, capsys, tmp_path, user, message, text):
    """
    What is wrong is the name: no line is given, which would be somebody else's, and no other file.
    """
    path = tmp_path / "users.yaml"
    path.write_text(text)
    typed(b"new\n")
    assert run(["passwd", user, "--users", str(path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "yaml:" not in error
    assert "/." not in error
    assert path.read_text() == text


@pytest.mark.parametrize("link", [False, True])
def test_a_missing_folder_is_named(typed, capsys, tmp_path, link):
    """
    Of a link, the folder that it leads to.
    """
    gone = tmp_path / "gone" / "users.yaml"
    path = gone
    if link:
        path = tmp_path / "users.yaml"
        path.symlink_to(gone)
    typed(b"new\n")
    assert run(["passwd", "ann", "--users", str(path)]) == 2
    assert (
        f"there is no folder {gone.parent} for users.yaml\nhint: make it" in capsys.readouterr().err
    )


def test_a_users_file_that_is_no_text_is_refused(typed, capsys, tmp_path):
    """
    With file and line.
    """
    path = tmp_path / "users.yaml"
    path.write_bytes("# für\n".encode("latin-1"))
    typed(b"new\n")
    assert run(["passwd", "ann", "--users", str(path)]) == 2
    assert f"{path}:1: not UTF-8" in capsys.readouterr().err
