"""The people of a dataset: who may use it, who may no more, and what each has spent."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

import proxy.policy as policies
from proxy.files import enter
from proxy.inference.accounting import UNIT
from proxy.policy.weaker import UNLISTED
from proxy.privileges import OWN, access, users_of
from proxy.state import ledger_place, state_folder
from proxy.steward.changes import opened

ASKED = ("measured", "refined", "inferred", "refused")  # the kinds of lines of statements


class Person(Struct, frozen=True):
    """One user of a dataset.

    ``spent`` is the sum of what their statements cost, alpha, which is never given back.  Of what a
    restore knows by its cost only, it has, of who has a cap, all, as it is held against the cap; of
    who has a history of their own, what the dearest cell has paid there, at least.
    ``since`` the time of their first statement or act that the ledger has.
    """

    name: str
    listed: bool  # whether they may use the dataset now
    roles: tuple[str, ...]
    groups: tuple[str, ...]
    history: str
    spent: float
    since: datetime | None


def people(policy: str | Path, state: str | Path | None = None) -> list[Person]:
    """Return everybody whom the users file, the policy or the ledger knows, by name.

    Raises:
        PolicyError: the policy or the users file is wrong.
    """
    found = policies.load(policy)
    folder = state_folder(found, state)
    enter(folder)
    now = access(found, users_of(found))
    if not ledger_place(found, folder).exists():
        return [
            _person(name, each, True, 0, None) for name, each in now.items() if name != UNLISTED
        ]
    with opened(found, folder) as ledger:
        known = dict(ledger.protection().protection.get("users") or {}) | now
        since: dict[str, datetime] = {}
        for line in [*ledger.audit(), *ledger.notes()]:
            if line.user and line.kind in ASKED:
                since[line.user] = min(line.time, since.get(line.user, line.time))
        nobody: dict[str, Any] = {"roles": [], "groups": [], "history": "", "caps": {}}
        unknown, paid = ledger.spent_unknown(), ledger.spent()
        made = []
        for name in sorted({*known, *since} - {UNLISTED}):
            each, spent = known.get(name, nobody), ledger.spent_by(name)
            if name in each["caps"]:
                spent += unknown
            if each["history"] == "own":  # all that it paid is theirs, restored or not
                spent = max(spent, paid.get(OWN + name, 0))
            made.append(_person(name, each, name in now, spent, since.get(name)))
        return made


def _person(
    name: str, each: Mapping[str, Any], listed: bool, spent: int, since: datetime | None
) -> Person:
    roles, groups = tuple(each["roles"]), tuple(each["groups"])
    return Person(name, listed, roles, groups, each["history"], spent / UNIT, since)
