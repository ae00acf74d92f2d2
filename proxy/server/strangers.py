"""What a connection may use up before its password is right: a place, and guesses.  No I/O.

Places.  All connections that have not logged in share one pool.  A network that holds k places may
take another while more than k are free, so that however many one network opens, others find free
ones.  Past that the newcomer takes the oldest place of the network that holds most; from its own,
only one that has had its least time, so that a login under way can end.  Newcomers wait for that
in line, so that whoever comes again and again stands behind those who came once.

Guesses.  A proof waits before it is looked at, so that who guesses learns nothing from hanging up.
What counts is the number of proofs that have not been right:

    of a name from a network   waits grow to ``PAIR.most`` and form a queue: a guess for each wait,
                               over however many connections.  Past ``LONGEST`` they are refused.
    of a network, of a name    waits grow to a second, and form no queue.

Only the first is a queue, and nobody else stands in it: whoever guesses at a name elsewhere costs
its owner a second, never a refusal, and not even the second on a network that the owner has logged
in from: there a proof is looked at before that second, but told wrong after it, as anywhere.

A limit for a name over all networks that could refuse would let anybody shut its owner out, and a
million networks with a queue each guess more than it could hold back.  Who shares the network of
somebody who guesses at their own name waits with them.  A right proof forgives the queue, and no
more: an account of one's own must not pay for guesses at other names.

Invariant: memory is bounded, and a name that does not exist is treated like one that does.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections import Counter, OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from msgspec import Struct

PLACES = 512
LINE = 512  # who waits for a place
LEAST = 1.0  # seconds that a place is safe from others of its network
LONGEST = 20.0  # seconds that a proof may wait
FORGET = 900.0  # seconds after which a failure no longer counts
KEPT = 10_000  # names, networks and pairs that are remembered, each
LINES, MINUTE = 20, 60.0  # failures of a network that are logged one by one, in so many seconds
T = TypeVar("T", bound=Hashable)


class FullError(Exception):
    """There is no place for so many seconds, or the queue is too long."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


def network(address: str) -> str:
    """Return what counts as one source: an IPv4 address, or the /64 of an IPv6 one."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(found) >> 64 << 64, 64)))


class Places(Generic[T]):
    """The places of those who have not logged in."""

    def __init__(self, places: int = PLACES, least: float = LEAST) -> None:
        self._free, self._least = places, least
        self._held: dict[str, dict[T, float]] = {}  # by network, oldest first: since when

    def take(self, network: str, one: T, now: float) -> T | None:
        """Give a place to somebody; return who has lost theirs for it.

        Raises:
            FullError: there is none to take.
        """
        lost = None
        mine = len(self._held.get(network, ()))
        if mine >= self._free:
            where = max(self._held, key=lambda each: (len(self._held[each]), each == network))
            lost, since = next(iter(self._held[where].items()))
            if where == network and (safe := since + self._least - now) > 0:
                raise FullError(safe)
            self.leave(where, lost)
        self._held.setdefault(network, {})[one] = now
        self._free -= 1
        return lost

    def leave(self, network: str, one: T) -> None:
        """Give a place back, if it is still held."""
        held = self._held.get(network, {})
        if held.pop(one, None) is not None:
            self._free += 1
            if not held:
                del self._held[network]


class Slope(Struct, frozen=True):
    """How waits grow with failures."""

    free: int  # failures that cost nothing
    most: float  # seconds
    first: float = 0.25  # seconds; each further failure doubles it

    def wait(self, failures: int) -> float:
        """Return the seconds to wait after so many failures."""
        over = failures - self.free
        return min(self.most, self.first * 2.0 ** min(over, 16)) if over >= 0 else 0.0


PAIR = Slope(free=4, most=8.0)
NETWORK = Slope(free=20, most=1.0)
NAME = Slope(free=20, most=1.0)


@dataclass
class Failures:
    """The failures of one key."""

    count: int = 0
    last: float = 0.0
    next: float = 0.0  # when its queue has ended


class Memory:
    """The failures of each key; the one that has been silent longest goes first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, Failures] = OrderedDict()

    def of(self, key: bytes, now: float) -> Failures:
        """Return the failures of a key that still count."""
        found = self._kept.pop(key, None)
        if found is None or now - max(found.last, found.next) > FORGET:
            found = Failures()
        self._kept[key] = found
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return found

    def forget(self, key: bytes) -> None:
        """Forget a key's failures."""
        self._kept.pop(key, None)


class Throttle:
    """How long a proof waits before it is looked at."""

    def __init__(self) -> None:
        self._pairs, self._networks, self._names = Memory(), Memory(), Memory()
        self._familiar: OrderedDict[bytes, None] = OrderedDict()  # pairs that have logged in

    def wait(self, network: str, name: str, now: float) -> tuple[float, float]:
        """Return the seconds until a proof is looked at, and from then until it is told wrong.

        It counts as wrong until it is right.

        Raises:
            FullError: too many wait already; this one is not to be looked at.
        """
        key = _key(network, name)
        pair = self._pairs.of(key, now)
        others = [self._networks.of(_key(network), now), self._names.of(_key("", name), now)]
        if pair.next - now > LONGEST:
            raise FullError(pair.next - now)
        pair.next = max(now, pair.next) + PAIR.wait(pair.count)
        looked = pair.next - now
        told = max(looked, NETWORK.wait(others[0].count), NAME.wait(others[1].count))
        for each in (pair, *others):
            each.count, each.last = each.count + 1, now
        return (looked, told - looked) if key in self._familiar else (told, 0.0)

    def succeeded(self, network: str, name: str, now: float) -> None:
        """Take back that a proof counted as wrong, and forgive those of its pair."""
        key = _key(network, name)
        self._pairs.forget(key)
        for each in (self._networks.of(_key(network), now), self._names.of(_key("", name), now)):
            each.count = max(each.count - 1, 0)
        self._familiar[key] = None
        self._familiar.move_to_end(key)
        if len(self._familiar) > KEPT:
            self._familiar.popitem(last=False)


def _key(*parts: str) -> bytes:
    """Return what is kept of names, which may be long."""
    text = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).digest()


class Journal:
    """Which failures are logged one by one, so that a crowd of them does not fill the disk."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()  # of this minute, by network
        self._until = 0.0

    def one(self, network: str) -> bool:
        """Count a failure; whether it has a line of its own."""
        if network not in self._seen and len(self._seen) >= KEPT:
            network = "others"
        self._seen[network] += 1
        return self._seen[network] <= LINES

    def rest(self, now: float) -> list[tuple[str, int]]:
        """Return how many more there were, of the networks with most, once a minute."""
        if now < self._until:
            return []
        most = [(each, n - LINES) for each, n in self._seen.most_common(LINES) if n > LINES]
        self._seen.clear()
        self._until = now + MINUTE
        return most
