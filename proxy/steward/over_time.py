"""How a budget was spent in the course of time, by user and by history: from audit lines alone."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from proxy.inference.accounting import UNIT
from proxy.ledger.transaction import SQLReads

POINTS = 400  # of a curve: more cannot be told apart


class Curves(Struct, frozen=True):
    """Sums up to some moments, in alpha; ``times`` are seconds since 1970, UTC."""

    times: tuple[float, ...]
    users: Mapping[str, tuple[float, ...]]  # what the statements of each had cost together
    histories: Mapping[str, tuple[float, ...]]  # what the dearest cell of each had paid, at most


def curves(ledger: SQLReads, points: int = POINTS, user: str | None = None) -> Curves:
    """Return the curves of a ledger, thinned to some of its moments, the last one among them; of
    the statements of a user, if one is named.
    """
    lines = [line for line in ledger.charges() if user in (None, line[1])]
    every = max(-(-len(lines) // points), 1)
    times: list[float] = []
    sums: dict[str, int] = {}
    users: dict[str, list[float]] = {}
    histories: dict[str, list[float]] = {}
    for left, (time, who, cost, spent) in zip(range(len(lines) - 1, -1, -1), lines, strict=True):
        sums[who] = sums.get(who, 0) + cost
        if left % every:
            continue
        for found, values in ((users, sums), (histories, spent)):
            for name, value in values.items():
                found.setdefault(name, [0.0] * len(times)).append(value / UNIT)
        times.append(time / 1_000_000)
    return Curves(
        tuple(times),
        {name: tuple(values) for name, values in sorted(users.items())},
        {name: tuple(values) for name, values in sorted(histories.items())},
    )
