"""Places and waits of those who have not logged in, without a server."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.server import strangers
from proxy.server.strangers import FullError, Journal, Places, Throttle, network


@pytest.mark.parametrize(
    "address, source",
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_a_source_is_what_one_owner_has(address, source):
    """
    An IPv4 address, also written as IPv6; of IPv6 the /64 that anybody is given whole.
    """
    assert network(address) == source


def filled(places, networks, now=0.0):
    """Return places that these networks have asked for, as often as each is named."""
    pool = Places(places)
    for i, where in enumerate(networks):
        pool.take(where, (where, i), now)
    return pool


def test_one_network_leaves_half_of_the_places():
    """
    Who opens without end holds as many as are free; past that its own oldest goes, after its least
    time, and until then the newcomer is refused.
    """
    pool = filled(100, ["bad"] * 50)
    with pytest.raises(FullError) as caught:
        pool.take("bad", "new", strangers.LEAST - 0.25)
    assert caught.value.seconds == 0.25
    assert pool.take("bad", "new", strangers.LEAST) == ("bad", 0)
    assert pool.take("bad", "newer", strangers.LEAST) == ("bad", 1)
    for i in range(25):
        assert pool.take("good", i, strangers.LEAST) is None


def test_where_none_is_free_the_network_with_most_gives_one():
    """
    With all places taken, a newcomer has one at once, of whoever holds most.
    """
    pool = Places(8)
    for one, where in enumerate("aaaabbcd"):
        assert pool.take(where, one, 0.0) is None
    assert pool.take("new", "x", 0.0) == 0
    assert pool.take("new", "y", 0.0) == 1


def test_a_place_that_was_given_back_is_free():
    """
    Giving back twice is giving back once; what was taken away need not be given back.
    """
    pool = filled(2, ["a"])
    for _ in range(2):
        pool.leave("a", ("a", 0))
    assert pool.take("a", 1, 0.0) is None
    assert pool.take("b", 2, 0.0) is None
    assert pool.take("c", 3, 0.0) == 1
    pool.leave("a", 1)
    assert pool.take("d", 4, 0.0) == 2


@given(
    st.integers(2, 12),
    st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(0, 1), st.booleans())),
)
def test_places_are_fair(places, steps):
    """
    Whatever the others do, there are never more than the places, a network that holds none gets
    one, and one that loses any to another holds the most.
    """
    pool, held, now = Places(places), {}, 0.0
    for one, (where, seconds, leaves) in enumerate(steps):
        now += seconds
        if leaves and held:
            gone = min(held)
            pool.leave(held.pop(gone), gone)
            continue
        counts = {each: list(held.values()).count(each) for each in "abcdef"}
        try:
            lost = pool.take(where, one, now)
        except FullError:
            assert counts[where] == max(counts.values()) > 0
            continue
        if lost is not None:
            loser = held.pop(lost)
            assert counts[loser] == max(counts.values())
            assert loser == where or counts[loser] > counts[where]
        held[one] = where
        assert len(held) <= places


def waits(throttle, count, where="bad", name="alice", now=0.0):
    """Return how long it takes until each of so many proofs is told wrong."""
    return [sum(throttle.wait(where, name, now)) for _ in range(count)]


def test_guesses_at_one_name_form_a_queue():
    """
    The first few cost nothing; then each waits longer behind the ones before, over however many
    connections, and past the longest wait it is not looked at.
    """
    throttle = Throttle()
    assert waits(throttle, 9) == [0, 0, 0, 0, 0.25, 0.75, 1.75, 3.75, 7.75]
    assert waits(throttle, 2) == [15.75, 23.75]
    with pytest.raises(FullError):
        throttle.wait("bad", "alice", 0.0)
    assert waits(throttle, 1, now=23.75) == [8.0]


def test_a_stranger_elsewhere_shuts_nobody_out():
    """
    A million guesses at a name cost its owner a second on a new network, and nothing on one that
    the owner has logged in from; never a refusal.
    """
    throttle = Throttle()
    throttle.wait("office", "alice", 0.0)
    throttle.succeeded("office", "alice", 0.0)
    for i in range(1000):
        throttle.wait(f"bad {i}", "alice", 1.0)
    assert throttle.wait("home", "alice", 1.0) == (strangers.NAME.most, 0.0)
    assert throttle.wait("office", "alice", 1.0) == (0.0, strangers.NAME.most)  # if it is wrong


def test_who_sprays_names_waits_at_each():
    """
    A network that fails at many names waits a second at the next one; its users who have logged in
    there do not.
    """
    throttle = Throttle()
    throttle.wait("office", "bob", 0.0)
    throttle.succeeded("office", "bob", 0.0)
    for i in range(40):
        throttle.wait("office", f"user {i}", 0.0)
    assert throttle.wait("office", "carol", 0.0) == (strangers.NETWORK.most, 0.0)
    assert throttle.wait("office", "bob", 0.0) == (0.0, strangers.NETWORK.most)  # if it is wrong


def test_a_right_proof_forgives_its_own_failures_only():
    """
    The owner's mistakes are forgotten once the password is right; an account of one's own buys no
    guess at another.
    """
    throttle = Throttle()
    assert waits(throttle, 6, "office", "bob")[-1] > 0
    throttle.succeeded("office", "bob", 0.0)
    assert waits(throttle, 2, "office", "bob") == [0.0, 0.0]
    for i in range(40):
        throttle.wait("office", f"user {i}", 0.0)
    throttle.wait("office", "bob", 0.0)
    throttle.succeeded("office", "bob", 0.0)
    assert throttle.wait("office", "carol", 0.0) == (strangers.NETWORK.most, 0.0)
    throttle = Throttle()
    for _ in range(11):
        throttle.wait("office", "alice", 0.0)
        throttle.wait("office", "bob", 0.0)
        throttle.succeeded("office", "bob", 0.0)
    with pytest.raises(FullError):
        throttle.wait("office", "alice", 0.0)


def test_failures_are_forgotten_after_a_silence():
    """
    After a quarter of an hour without one, guesses are free again.
    """
    throttle = Throttle()
    waits(throttle, 10)
    later = 15.75 + strangers.FORGET
    assert waits(throttle, 1, now=later + 1) == [0.0]


def test_memory_is_bounded_whatever_the_names(monkeypatch):
    """
    Names may be as long and as many as they like: what is kept is digests, and not too many.
    """
    monkeypatch.setattr(strangers, "KEPT", 50)
    throttle, journal = Throttle(), Journal()
    for i in range(500):
        throttle.wait(f"{i}", "x" * 5000 + f"{i}", 0.0)
        throttle.succeeded(f"{i}", f"{i}", 0.0)
        journal.one(f"{i}")
    for memory in (throttle._pairs, throttle._networks, throttle._names):
        assert len(memory._kept) <= 50
        assert all(len(key) == 16 for key in memory._kept)
    assert len(throttle._familiar) <= 50
    assert len(journal._seen) <= 51


def test_a_crowd_of_failures_has_one_line():
    """
    So many of a network have lines of their own; how many more there were is told each minute.
    """
    journal = Journal()
    journal.rest(0.0)
    lines = [journal.one("bad") for _ in range(100)]
    assert sum(lines) == strangers.LINES
    assert journal.one("other")
    assert journal.rest(59.0) == []
    assert journal.rest(60.0) == [("bad", 100 - strangers.LINES)]
    assert journal.rest(120.0) == []
