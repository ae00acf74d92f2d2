"""What snapshots say of closed periods: as it is stored, and what a chain of them means.

A chain are snapshots from the newest back, each of which took cells over from the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from itertools import pairwise

from msgspec.structs import asdict

from proxy.errors import IntegrityError
from proxy.ledger import Closing
from proxy.ledger.chain import LOOK, parsed, text

Chain = Sequence[tuple[int, Closing]]  # with the snapshots' ids


def closing_of(value: str | None) -> Closing | None:
    """Return what a snapshot's row says is closed.

    Raises:
        IntegrityError: it is damaged.
    """
    if value is None:
        return None
    known = parsed(value)
    try:
        before, taken = (known[k] and date.fromisoformat(known[k]) for k in ("before", "taken"))
        paid = tuple((int(codes), amounts) for codes, amounts in known["paid"])
        return Closing(known["column"], before, taken, known["cells"], paid, known["grain"])
    except (KeyError, TypeError, ValueError):
        raise IntegrityError("a record of the ledger is damaged", hint=LOOK) from None


def text_of(closing: Closing) -> str:
    """Return it as it is stored."""
    days = {"before": str(closing.before), "taken": closing.taken and str(closing.taken)}
    return text(asdict(closing) | days)


def same(chain: Chain) -> dict[int, date]:
    """Return of older snapshots before which day their cells are still those of the newest."""
    days: dict[int, date] = {}
    least = date.max
    for (_, newer), (id, _) in pairwise(chain):
        assert newer.taken is not None
        days[id] = least = min(least, newer.taken)
    return days


def periods(chain: Chain) -> tuple[tuple[int, int, Mapping[str, int]], ...]:
    """Return by runs of codes since which snapshot they are charged, and what they had paid before.

    It is the newest that has read them itself.
    """
    found: list[tuple[int, Mapping[str, int]] | None] = []  # by code
    for id, closing in chain:
        codes = [amounts for count, amounts in closing.paid for _ in range(count)]
        found = found or [None] * len(codes)
        if len(codes) != len(found):
            raise IntegrityError("a record of the ledger is damaged", hint=LOOK)
        for code, amounts in enumerate(codes):
            if found[code] is None and amounts is not None:
                found[code] = (id, amounts)
    runs: list[tuple[int, int, Mapping[str, int]]] = []
    for each in found:
        if each is None:
            raise IntegrityError("a record of the ledger is damaged", hint=LOOK)
        if runs and runs[-1][1:] == each:
            runs[-1] = (runs[-1][0] + 1, *each)
        else:
            runs.append((1, *each))
    return tuple(runs)
