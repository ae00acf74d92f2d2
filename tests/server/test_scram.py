"""SCRAM-SHA-256 against the RFC's example, another implementation, and altered messages."""

import base64
import contextlib
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.policy import Verifier, saslprep, scram_verifier
from proxy.server import scram
from proxy.server.scram import Exchange, Proof, nobody
from proxy.server.wire.frames import FrameError

NONCE = b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
PENCIL = Verifier.parse(scram_verifier("pencil", 4096, SALT))
OTHER = Verifier.parse(scram_verifier("eraser", 4096, SALT))
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO" + NONCE + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO" + NONCE + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def exchange(verifier=PENCIL):
    """Return an exchange with the RFC's nonce, which has been challenged."""
    made = Exchange(verifier)
    made._nonce = NONCE
    made.challenge(FIRST)
    return made


def test_the_exchange_of_rfc_7677():
    """
    User "user", password "pencil": the RFC's challenge and signature.
    """
    made = Exchange(PENCIL)
    made._nonce = NONCE
    assert made.challenge(FIRST) == SERVER_FIRST
    assert made.signature(FINAL) == SIGNATURE


BINDING = hashlib.sha256(b"a certificate").digest()
BOUND = b"p=tls-server-end-point,,"


def bound_final(binding, header=BOUND):
    """Return the RFC's last message and signature, bound to a channel, by its formulas."""
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", SALT, 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    bare = b"c=" + base64.b64encode(header + binding)
    bare += b",r=rOprNGfwEbeRWgbNEkqO" + NONCE
    said = FIRST.removeprefix(b"n,,") + b"," + SERVER_FIRST + b"," + bare
    signed = hmac.digest(hashlib.sha256(client_key).digest(), said, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signed, strict=True))
    signature = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), said, "sha256")
    return bare + b",p=" + base64.b64encode(proof), b"v=" + base64.b64encode(signature)


def bound(binding=BINDING):
    """Return an exchange with the RFC's nonce, bound to a channel, which has been challenged."""
    made = Exchange(PENCIL, binding)
    made._nonce = NONCE
    assert made.challenge(BOUND + FIRST.removeprefix(b"n,,"), scram.PLUS) == SERVER_FIRST
    return made


def test_the_exchange_of_rfc_7677_with_channel_binding():
    """
    The same user, password and nonces, with "p=tls-server-end-point" and a hash of a certificate
    behind it: the challenge is the RFC's, proof and signature are others.
    """
    final, signature = bound_final(BINDING)
    assert final.startswith(b"c=cD10bHMtc2VydmVyLWVuZC1wb2ludCws" + base64.b64encode(BINDING))
    assert bound().signature(final) == signature
    assert signature != SIGNATURE


def test_a_proof_for_another_channel_is_refused():
    """
    Who is between has another certificate: its client's proof is bound to that one, or to none.
    """
    for final in (
        bound_final(hashlib.sha256(b"another certificate").digest())[0],
        bound_final(b"")[0],
        bound_final(b"", b"n,,")[0],
        FINAL,
    ):
        with pytest.raises(scram.ChannelBindingError) as caught:
            bound().signature(final)
        assert caught.value.sqlstate == "28000"
    unbound = exchange()
    with pytest.raises(FrameError):
        unbound.signature(bound_final(BINDING)[0])


REST = b"n=user,r=abc"


@pytest.mark.parametrize(
    "header, mechanism, binding, sqlstate",
    [
        (b"n,,", scram.MECHANISM, BINDING, None),  # it cannot bind
        (b"n,,", scram.MECHANISM, b"", None),
        (b"y,,", scram.MECHANISM, b"", None),  # it could, and we do not
        (BOUND, scram.PLUS, BINDING, None),
        (b"y,,", scram.MECHANISM, BINDING, "28000"),  # we do: somebody hid it
        (b"y,,", scram.PLUS, BINDING, "28000"),
        (b"n,,", scram.PLUS, BINDING, "08P01"),
        (BOUND, scram.MECHANISM, BINDING, "08P01"),
        (BOUND, scram.MECHANISM, b"", "08P01"),
        (BOUND, scram.PLUS, b"", "08P01"),  # not offered
        (b"p=tls-unique,,", scram.PLUS, BINDING, "08P01"),
        (b"p=tls-exporter,,", scram.PLUS, BINDING, "08P01"),
        (b"p=,,", scram.PLUS, BINDING, "08P01"),
        (b"p,,", scram.PLUS, BINDING, "08P01"),
        (b"p=tls-server-end-point,a=other,", scram.PLUS, BINDING, "08P01"),
        (b"n,,", b"SCRAM-SHA-1", BINDING, "08P01"),
        (b"n,,", b"", b"", "08P01"),
    ],
)
def test_what_a_client_says_of_channel_binding_is_checked(header, mechanism, binding, sqlstate):
    """
    RFC 5802, section 6: "y" where it was offered is a downgrade, "p" and the mechanism go together.
    """
    made = Exchange(PENCIL, binding)
    if sqlstate is None:
        assert made.challenge(header + REST, mechanism)
        return
    with pytest.raises(FrameError) as caught:
        made.challenge(header + REST, mechanism)
    assert caught.value.sqlstate == sqlstate


def test_a_proof_is_good_for_one_user_and_one_exchange():
    """
    The same proof is wrong for another verifier, and malformed in another exchange.
    """
    assert exchange(OTHER).signature(FINAL) is None
    fresh = Exchange(PENCIL)
    fresh.challenge(FIRST)
    with pytest.raises(FrameError):
        fresh.signature(FINAL)
    with pytest.raises(FrameError):
        Exchange(PENCIL).signature(FINAL)  # of an exchange that has not begun


@pytest.mark.parametrize("size", [0, 1, 31, 33, 3000])
def test_a_proof_of_another_length_is_malformed(size):
    """
    Only 32 bytes can be right; others are no proof, and wait for nothing.
    """
    bare = FINAL.rpartition(b",p=")[0]
    with pytest.raises(FrameError):
        exchange().read(bare + b",p=" + base64.b64encode(bytes(size)))


@given(st.integers(0, len(FINAL) - 1), st.integers(1, 255))
def test_every_altered_byte_is_found(at, flip):
    """
    Whichever byte of the last message is another, there is no signature.
    """
    altered = bytearray(FINAL)
    altered[at] ^= flip
    with contextlib.suppress(FrameError):
        assert exchange().signature(bytes(altered)) is None


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\0",
        b"n,,",
        b"n,,n=user",
        b"n,,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user,r=a b",
        b"n,,n=user,r=a\0",
        b"n,a=other,n=user,r=abc",  # for somebody else
        b"n,,m=new,n=user,r=abc",  # an extension that must be understood
        b"p=tls-server-end-point,,n=user,r=abc",  # was not offered
        b"y,n=user,r=abc",
        b"x,,n=user,r=abc",
        b"n,,n=user,r=\xff\xff",
    ],
)
def test_a_first_message_that_is_none_is_refused(first):
    """
    What is malformed, or asks for what was not offered, gets no challenge.
    """
    with pytest.raises(FrameError):
        Exchange(PENCIL).challenge(first)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12))
def test_both_sides_agree(password):
    """
    Our proof of a password meets our check of it, whatever it is made of, and no other password's.
    """
    verifier = Verifier.parse(scram_verifier(password, 2))
    made, proof = Exchange(verifier), Proof(saslprep(password))
    assert made.signature(proof.final(made.challenge(proof.first)))
    made, wrong = Exchange(verifier), Proof(saslprep(password) + "x")
    assert made.signature(wrong.final(made.challenge(wrong.first))) is None


@pytest.mark.parametrize("password", ["pencil", "I\u00adX", "\u2168", "a\u00a0b", "pässwörd"])
def test_another_implementation_agrees(password):
    """
    A client of scramp logs in, and believes us.
    """
    scramp = pytest.importorskip("scramp")
    client = scramp.ScramClient(["SCRAM-SHA-256"], "alice", password)
    made = Exchange(Verifier.parse(scram_verifier(password)))
    client.set_server_first(made.challenge(client.get_client_first().encode()).decode())
    client.set_server_final(made.signature(client.get_client_final().encode()).decode())


def test_another_implementation_binds():
    """
    A client of scramp logs in with the channel that we have, and with no other.
    """
    scramp = pytest.importorskip("scramp")
    for binding, right in ((BINDING, True), (BINDING[::-1], False)):
        client = scramp.ScramClient(
            ["SCRAM-SHA-256-PLUS"],
            "alice",
            "pencil",
            channel_binding=("tls-server-end-point", binding),
        )
        made = Exchange(PENCIL, BINDING)
        first = client.get_client_first().encode()
        client.set_server_first(made.challenge(first, scram.PLUS).decode())
        final = client.get_client_final().encode()
        if right:
            client.set_server_final(made.signature(final).decode())
        else:
            with pytest.raises(scram.ChannelBindingError):
                made.signature(final)


@pytest.mark.parametrize(
    "challenge", [b"", b"r=x,s=AAAA,i=1", b"r=%b,s=AAAA,i=0", b"r=%bx,s=AAAA,i=99999999"]
)
def test_a_mirror_may_not_ask_for_too_much(challenge):
    """
    A nonce that is not ours, no iterations, or more than others can wait for, are refused.
    """
    proof = Proof("secret")
    nonce = proof.first.removeprefix(b"n,,n=,r=")
    with pytest.raises(FrameError):
        proof.final(challenge.replace(b"%b", nonce))


def test_who_does_not_exist_looks_like_who_does():
    """
    A name and a key have one salt, other names and keys others; size and iterations are those of
    some user.
    """
    users = [PENCIL, Verifier.parse(scram_verifier("x", 10_000, b"s" * 24))]
    shapes = {(v.iterations, len(v.salt)) for v in users}
    seen = set()
    for i in range(100):
        one, again = (nobody(f"user{i}", b"key", users) for _ in range(2))
        assert (one.salt, one.iterations) == (again.salt, again.iterations)
        assert one.stored_key != again.stored_key
        assert one.salt != nobody(f"user{i}", b"another", users).salt
        seen.add((one.iterations, len(one.salt)))
    assert seen == shapes
    assert scram.nobody("x", b"key", []).iterations == 4096
