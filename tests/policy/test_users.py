"""Users have verifiers that PostgreSQL's clients meet; a plain password is refused, unseen."""

import base64
import hashlib
import hmac
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import PolicyError
from proxy.policy import Utility, Verifier, load_users, saslprep, scram_verifier

POLICIES = Path(__file__).parents[2] / "policies"
PENCIL = scram_verifier("pencil", 4096, base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))


@pytest.fixture
def users(tmp_path):
    """Return a function that loads a text as a users file."""

    def loaded(text):
        path = tmp_path / "users.yaml"
        path.write_text(text, encoding="utf-8")
        return load_users(path)

    return loaded


def test_the_exchange_of_rfc_7677():
    """
    User "user", password "pencil": the RFC's client proof and server signature.
    """
    verifier = Verifier.parse(PENCIL)
    message = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)"
        b"hNlF$k0"
    )
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    signature = hmac.digest(verifier.stored_key, message, "sha256")

    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == verifier.stored_key
    server_signature = hmac.digest(verifier.server_key, message, "sha256")
    assert server_signature == base64.b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_a_verifier_is_salted_at_random():
    """
    The same password twice gives two verifiers of 16 bytes of salt.
    """
    first, second = (
        Verifier.parse(scram_verifier("pencil")),
        Verifier.parse(scram_verifier("pencil")),
    )

    assert first.salt != second.salt
    assert (len(first.salt), first.iterations) == (16, 4096)


@given(st.text(min_size=1, max_size=20), st.binary(min_size=1, max_size=20), st.integers(1, 3))
def test_a_verifier_is_read_as_it_was_written(password, salt, iterations):
    """
    Text to verifier and back.
    """
    text = scram_verifier(password, iterations, salt)

    assert str(Verifier.parse(text)) == text
    assert Verifier.parse(text).salt == salt


@pytest.mark.parametrize(
    ("password", "prepared"),
    [
        ("I\u00adX", "IX"),  # RFC 4013, section 3
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("\u0007", "\u0007"),  # prohibited: PostgreSQL takes it as it is
        ("\u0627\u0031", "\u0627\u0031"),  # both directions
        ("\u0627\u00adX", "\u0627\u00adX"),  # so the soft hyphen stays
        ("a\u00a0b", "a b"),
        ("\u00ad", "\u00ad"),  # nothing would be left
    ],
)
def test_saslprep(password, prepared):
    """
    The RFC's examples; where it forbids, the password stays as it is.
    """
    assert saslprep(password) == prepared


def test_an_empty_password_has_no_verifier():
    """
    Whoever presses Enter twice gets an error.
    """
    with pytest.raises(ValueError, match="an empty password"):
        scram_verifier("")


def test_the_example_has_an_analyst_and_a_steward():
    """
    policies/users.yaml: alice queries, sam keeps the budgets.
    """
    users = load_users(POLICIES / "users.yaml")

    assert users.get("alice").roles == {"analyst"}
    assert users.get("sam").roles == {"steward"}
    assert users.get("alice").may_see("cps1988")
    assert users.get("mallory") is None


def test_all_that_a_user_may_have(users):
    """
    Groups, datasets and a utility of their own.
    """
    user = users(
        f"users:\n  ann lee: {{password: {PENCIL}, roles: [analyst, auditor], groups: [survey],\n"
        "    datasets: [people], utility: {half_width: 0.5, delta: 0.1}}\n"
    ).get("ann lee")

    assert str(user.password) == PENCIL
    assert (user.groups, user.datasets) == (("survey",), ("people",))
    assert user.roles == {"analyst", "auditor"}
    assert user.utility == Utility(*map(type(user.utility.delta), ("1/2", "1/10")))
    assert user.may_see("people")
    assert not user.may_see("cps1988")


NO_KEYS = PENCIL.rpartition("$")[0]


@pytest.mark.parametrize(
    "password",
    [
        "hunter2",
        "12345678",
        "off",
        "2020-01-01",
        "'*hunter2'",
        "*hunter2",
        "!hunter2 x",
        "[hunter2]",
        "{hunter2: x}",
        "md5a3556571e93b0d20722ba62be61e8c2d",
        f"{NO_KEYS}$abc:abc",
        f"{NO_KEYS}$aHVudGVyMg==:aHVudGVyMg==",
        PENCIL.replace("4096", "0"),
        PENCIL.replace("4096", "99999999"),
        f"{PENCIL}\n  x",
    ],
)
def test_a_plain_password_is_refused_and_not_shown(users, password):
    """
    The error names the line and the command to use, and no part of what was written.
    """
    with pytest.raises(PolicyError) as caught:
        users(f"users:\n  alice:\n    password: {password}\n    roles: [analyst]\n")

    shown = str(caught.value).replace(caught.value.file, "")
    written = set(re.findall(r"\w{5,}", password)) - {"SCRAM"}
    assert caught.value.line >= 3
    assert not written & set(re.findall(r"\w+", shown))


def test_a_plain_password_is_told_what_to_use(users):
    """
    `privacy-proxy passwd` makes verifiers.
    """
    with pytest.raises(PolicyError, match="privacy-proxy passwd") as caught:
        users("users:\n  alice: {password: hunter2, roles: [analyst]}\n")
    assert caught.value.key == "users.alice.password"


@pytest.mark.parametrize(
    ("text", "line", "key", "message"),
    [
        ("users: {}", 1, "users", "no user is named"),
        ("user: {}", 1, "user", "did you mean users?"),
        ("users:\n  a: {roles: [analyst]}", 2, "users.a.password", "missing"),
        (f"users:\n  a: {{password: {PENCIL}}}", 2, "users.a.roles", "missing"),
        (f"users:\n  a: {{password: {PENCIL}, roles: []}}", 2, "users.a.roles", "an empty list"),
        (f"users:\n  a: {{password: {PENCIL}, roles: [root]}}", 2, "users.a.roles[0]",
         "expected analyst | steward | auditor"),
        (f"users:\n  a: {{password: {PENCIL}, roles: [steward], grops: []}}", 2, "users.a.grops",
         "did you mean groups"),
        ("users:\n  on: {}", 2, "users.on", "write 'on'"),
    ],
)  # fmt: skip
def test_a_wrong_users_file_says_where_and_why(users, text, line, key, message):
    """
    Line, key and what is allowed, as in policies.
    """
    with pytest.raises(PolicyError, match=re.escape(message)) as caught:
        users(text)
    assert (caught.value.line, caught.value.key) == (line, key)
