"""What a policy protects: for each record, in names, which cell it is in and what it may lose.

The protection is one value, as JSON, that the ledger keeps and every act of the steward compares:
the domain, what decides the cell of a record (``coding``), the budgets with the cells that their
conditions mean, and what each user may do.  Text, order and white space are no part of it; a
public table or a level that a condition reads is, through the cells.  The users file is beside the
digest: it may change while the policy does not.

Invariant: two policies of one digest give every record the same cell and the same limits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from fractions import Fraction
from typing import Any

from proxy.domain import described
from proxy.ledger import SHARED, Protection
from proxy.policy import Policy, Users
from proxy.policy.model import VERSION
from proxy.policy.regions import region_json
from proxy.policy.weaker import UNLISTED
from proxy.privileges import GROUP, OWN, access
from proxy.sql.conditions import region
from proxy.sql.evaluator.evaluator import Evaluator

CODING = 4  # how records become cells: 1 dropped the offset of a time, of 2 \w was ASCII alone,
# of 3 the capital of ß was ẞ
CHOICE = 5  # before, the text of whole records chose among the rows of a unit

Value = Mapping[str, Any]


def protection(
    policy: Policy, evaluator: Evaluator | None = None, users: Users | None = None
) -> Protection:
    """Return what a policy and a users file protect.

    Raises:
        PolicyError: a condition is none over the policy's attributes, or reads the clock.
    """
    cells = []
    with ExitStack() as stack:
        for rule in policy.privacy.cells:
            if evaluator is None:
                evaluator = stack.enter_context(closing(Evaluator(policy.domain)))
            factors = region(rule, policy, evaluator)
            names = region_json(((f.axes, f.array) for f in factors), policy.domain)
            cells.append({"where": rule.where, "budget": str(rule.budget), "region": names})
    value = policy.protection() | {"cells": cells, "users": access(policy, users)}
    return Protection(digest(value), value)


def digest(value: Value) -> str:
    """Return the SHA-256 of a protection, in hex, without its users and the texts of conditions."""
    cells = sorted(_json([rule["region"], rule["budget"]]) for rule in value["cells"])
    return _hash({k: v for k, v in value.items() if k != "users"} | {"cells": cells})


def coding(value: Value) -> str:
    """Return the SHA-256 of what decides the cell that a record of the source is in, in hex."""
    parts = ("source", "attributes", "measures", "unit", "timezone", "records")
    version = CODING if value["unit"]["column"] is None else max(CODING, CHOICE)
    return _hash({part: value[part] for part in parts} | {"coding": version})


def upgraded(value: Value) -> dict[str, Any]:
    """Return a protection in today's version; what an older one does not say is None."""
    if value["version"] == VERSION:
        return dict(value)
    cells = [rule | {"region": None} for rule in value["cells"]]
    source = {"engine": "duckdb", "path": None} | value["source"]
    own = value["history"] == "own"
    unlisted = {"roles": [], "groups": [], "caps": {}, "spend": True}
    unlisted |= {"history": "own", "own": "0"} if own else {"history": SHARED, "own": None}
    more = {"version": VERSION, "cells": cells, "source": source, "users": {UNLISTED: unlisted}}
    return dict(value) | more


def without_rows(value: Value) -> dict[str, Any]:
    """Return a protection without the length of histories, which was a part of it once."""
    return {key: each for key, each in value.items() if key != "rows"}


def first_version(policy: Policy) -> str:
    """Return the digest that the first version of the protection had, which had texts for cells."""
    value = policy.protection() | {"rows": {"total": 5000, "analyst": 5000}}  # then the default
    axes = {a.name: described(a.edges or a.values) for a in policy.domain.attributes}
    return _hash(
        value
        | {
            "version": 1,
            "source": {key: value["source"][key] for key in ("table", "query")},
            "attributes": {n: a | {"values": axes[n]} for n, a in value["attributes"].items()},
        }
    )


def shares(value: Value) -> dict[str, Fraction]:
    """Return what each history may charge a row, alpha."""
    rows, whole = value["unit"]["max_rows"], Fraction(value["budget"])
    own = {OWN + name: Fraction(budget) for name, budget in _own(value)}
    shared = {SHARED: whole - sum(own.values(), Fraction(0))}
    return {name: budget / rows for name, budget in (shared | own).items()}


def _own(value: Value) -> Iterator[tuple[str, str]]:
    """Yield the histories of their own, and what is set aside for each."""
    for kind, prefix in (("analysts", ""), ("groups", GROUP)):
        for name, entry in value[kind].items():
            if entry["history"] == "own":
                yield prefix + name, entry["budget"]


def _hash(value: object) -> str:
    return hashlib.sha256(_json(value).encode()).hexdigest()


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
