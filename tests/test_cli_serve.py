"""The command ``serve``: its settings, from flags or the environment, and the unit for systemd."""

import os
import re
import shutil
import subprocess

import click
import pytest

from proxy.cli import run
from proxy.cli.environment import settings
from proxy.cli.serve import serve
from proxy.cli.systemd import quoted
from tests.small import Small

VARIABLES = {row[0]: row[1] for row in settings(serve)}
BAD = {  # what no server can be run with, by flag
    "--listen": ("5439", "h:", "h:65536", "h:-1", "h:²"),
    "--metrics-port": ("-1", "65536", "x"),
    "--connections": ("-1", "0", "1e3", "100001"),
    "--user-connections": ("-1", "0", "100001"),
    "--timeout": ("nan", "inf", "0", "-1", "86401"),
    "--rows": ("0", "-1"),
    "--mirror": ("secret", "x=y", "port=abc", "postgresql://h:abc/"),
    "--allow-plain": ("perhaps", "2"),
}


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    """The environment says nothing."""
    for name in [name for name in os.environ if name.startswith("PRIVACY_PROXY_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def people(tmp_path):
    made = Small(tmp_path)
    made.data((1, "a", 5))
    made.made().close()
    return made


def test_every_setting_has_a_variable_and_every_other_flag_none():
    """
    The name follows from the flag; whether to check or to print is never the environment's to say.
    """
    for parameter in serve.params:
        flag = parameter.opts[0]
        name = "PRIVACY_PROXY_" + flag.strip("-").upper().replace("-", "_")
        other = flag in ("--check", "--print-settings", "--print-systemd")
        assert parameter.envvar == (None if other else name)
    assert {flag.rstrip(".") for flag in VARIABLES} >= {"POLICIES", "--state", "--timeout"}


@pytest.mark.parametrize(
    "flag, value", [(flag, value) for flag, values in BAD.items() for value in values]
)
def test_a_bad_value_of_a_variable_is_named_like_a_flag(capsys, monkeypatch, flag, value):
    """
    Two lines that name both, status 2, and nothing of what a connection string holds.
    """
    monkeypatch.setenv(VARIABLES[flag], value)
    assert run(["serve", "p.yaml"]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert flag in error
    assert VARIABLES[flag] in error
    assert hint == "hint: privacy-proxy serve --help"
    assert flag != "--mirror" or value not in error


def parsed(arguments):
    """Return the values that a call of ``serve`` has."""
    with serve.make_context("serve", list(arguments)) as context:
        return context.params


def test_a_variable_is_a_flag_and_a_flag_goes_first(monkeypatch):
    """
    All of them from the environment, policies with colons between; a flag says otherwise.
    """
    values = {
        "POLICIES": "a b.yaml:c",
        "LISTEN": "[::1]:99",
        "STATE": "s",
        "MIRROR": "host=h",
        "TLS_CERT": "c",
        "TLS_KEY": "k",
        "ALLOW_PLAIN": "yes",
        "METRICS_PORT": "7",
        "CONSOLE": "localhost:8",
        "CONNECTIONS": "8",
        "USER_CONNECTIONS": "9",
        "TIMEOUT": "1.5",
        "ROWS": "10",
    }
    assert {f"PRIVACY_PROXY_{name}" for name in values} == set(VARIABLES.values())
    for name, value in values.items():
        monkeypatch.setenv(f"PRIVACY_PROXY_{name}", value)
    found = parsed([])
    assert found["policies"] == ("a b.yaml", "c")
    assert found["listen"] == ("::1", 99)
    assert (found["allow_plain"], found["timeout"], found["rows"]) == (True, 1.5, 10)
    assert not found["check"]
    assert parsed(["d", "--rows", "11"])["policies"] == ("d",)
    assert parsed(["d", "--rows", "11"])["rows"] == 11


def test_a_misspelt_variable_is_warned_of(capsys, monkeypatch, people):
    """
    With what was probably meant, and without its value; what is right says nothing.
    """
    monkeypatch.setenv("PRIVACY_PROXY_LISTN", "secret")
    monkeypatch.setenv("PRIVACY_PROXY_CHECK", "1")
    monkeypatch.setenv("PRIVACY_PROXY_ROWS", "5")
    assert run(["serve", str(people.policy), "--print-systemd"]) == 0
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("warning: the variable PRIVACY_PROXY_CHECK means nothing here")
    assert second.endswith(
        "PRIVACY_PROXY_LISTN means nothing here; did you mean PRIVACY_PROXY_LISTEN?"
    )


def test_the_table_of_settings_is_that_of_the_command(capsys):
    """
    Printed without policies; each flag with its variable, default and meaning, as --help has them.
    """
    assert run(["serve", "--print-settings"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["flag", "variable", "default", "meaning"]
    rows = [re.split(r" {2,}", line) for line in lines]
    assert [row[1] for row in rows] == list(VARIABLES.values())
    defaults = {row[0]: row[2] for row in rows if len(row) == 4}
    assert defaults == {
        "--listen": "127.0.0.1:5439",
        "--mirror": "an embedded one",
        "--console": "nowhere",
        "--connections": "200",
        "--user-connections": "20",
        "--timeout": "60.0",
        "--rows": "1000000",
    }
    assert run(["serve", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for _, variable, *_, meaning in rows[1:]:
        assert variable in shown
        assert meaning in shown


@pytest.mark.parametrize(
    "word, written",
    [
        ("a", "a"),
        ("a b", '"a b"'),
        ("50%", "50%%"),
        ("$x", "$$x"),
        ('a"b\\', '"a\\"b\\\\"'),
        ("it's", '"it\'s"'),
    ],
)
def test_a_word_is_quoted_for_systemd(word, written):
    """
    Specifiers, variables, blanks and quotes stay what they are.
    """
    assert quoted(word) == written


def unit(capsys, *arguments):
    """Return the settings of a printed unit, by name; those that stand twice as the last stands."""
    assert run(["serve", *map(str, arguments), "--print-systemd"]) == 0
    captured = capsys.readouterr()
    pairs = (line.partition("=") for line in captured.out.splitlines() if line[:1].isalpha())
    return {name: value for name, _, value in pairs}, captured


def test_a_unit_has_the_paths_and_flags_of_this_installation(capsys, monkeypatch, people):
    """
    Absolute, from flags and variables; what is written is the state alone.
    """
    monkeypatch.chdir(people.folder)
    monkeypatch.setenv("PRIVACY_PROXY_ROWS", "5")
    found, _ = unit(capsys, "people.yaml", "--listen", "[::1]:5439", "--allow-plain")
    flags = f"serve {people.policy} --listen [::1]:5439 --allow-plain --rows 5"
    assert found["ExecStart"].endswith(f" -m proxy {flags}")
    assert found["ReadWritePaths"] == str(people.folder / ".privacy-proxy")
    assert found["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert found["CapabilityBoundingSet"] == found["AmbientCapabilities"] == ""
    found, _ = unit(capsys, "people.yaml", "--console", "[::1]:443")
    assert found["ExecStart"].endswith("--console [::1]:443 --rows 5")
    assert found["CapabilityBoundingSet"] == "CAP_NET_BIND_SERVICE"
    found, _ = unit(capsys, "people.yaml", "--listen", "[::1]:443")
    assert found["CapabilityBoundingSet"] == "CAP_NET_BIND_SERVICE"


def test_a_unit_runs_as_whom_the_state_belongs_to_and_never_as_root(capsys, people):
    """
    Root's state needs an account of its own, and the unit says how to make one.
    """
    found, captured = unit(capsys, people.policy)
    assert found["User"] not in ("root", "0")
    if os.geteuid() == 0:
        assert "# useradd --system privacy-proxy && chown" in captured.out
        os.chown(people.folder / ".privacy-proxy", 1, -1)
        found, captured = unit(capsys, people.policy)
        assert found["User"] == "daemon"
        assert "useradd" not in captured.out


def test_a_password_is_not_in_the_unit(capsys, people):
    """
    Units can be read by everybody.
    """
    found, captured = unit(capsys, people.policy, "--mirror", "host=h password=hunter2")
    assert "hunter2" not in captured.out + captured.err
    assert "--mirror" not in found["ExecStart"]
    assert "PRIVACY_PROXY_MIRROR" in captured.err
    found, captured = unit(capsys, people.policy, "--mirror", "host=h user=u")
    assert '--mirror "host=h user=u"' in found["ExecStart"]


HARDENED = {  # what must stay, whoever edits the unit
    **dict.fromkeys(
        (
            *("NoNewPrivileges", "PrivateTmp", "PrivateDevices", "LockPersonality"),
            *("ProtectClock", "ProtectControlGroups", "ProtectHostname", "ProtectKernelLogs"),
            *("ProtectKernelModules", "ProtectKernelTunables", "MemoryDenyWriteExecute"),
            *("RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID"),
        ),
        "yes",
    ),
    "Type": "notify",
    "UMask": "0077",
    "ProtectSystem": "strict",
    "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6",
    "SystemCallArchitectures": "native",
    "LimitCORE": "0",
    "MemoryMax": "80%",
    "LimitNOFILE": "65536",
}


def test_a_unit_is_hardened(capsys, people, tmp_path):
    """
    By this list, and by systemd's own judgement where there is one.
    """
    found, captured = unit(capsys, people.policy)
    assert HARDENED.items() <= found.items()
    assert "SystemCallFilter=@system-service\n" in captured.out
    if shutil.which("systemd-analyze"):
        file = tmp_path / "privacy-proxy.service"
        file.write_text(captured.out)
        command = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager"]
        judged = subprocess.run([*command, file], capture_output=True, text=True, check=False)
        assert judged.returncode == 0, judged.stdout[-200:]
        verified = subprocess.run(
            ["systemd-analyze", "verify", file], capture_output=True, text=True, check=False
        )
        assert (verified.returncode, verified.stderr) == (0, "")


def test_settings_are_those_of_a_click_command():
    """
    A command without variables has none.
    """
    assert settings(click.Command("x", params=[click.Option(["--y"])])) == []


def test_serve_names_what_is_missing(tmp_path, capsys):
    """
    The folder itself, not a file in the one around it; and how a users file is made.
    """
    assert run(["serve", str(tmp_path / "nope")]) == 2
    assert f"error: {tmp_path / 'nope'}: there is no such policy" in capsys.readouterr().err
    small = Small(tmp_path)
    small.data((1, "a", 5))
    small.made().close()
    assert run(["serve", str(tmp_path)]) == 2
    users = tmp_path / "users.yaml"
    error = capsys.readouterr().err
    assert f"{users}: there is no such file" in error
    assert f"hint: make it: privacy-proxy passwd NAME --users {users}" in error
